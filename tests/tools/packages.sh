#!/bin/bash
# tests/tools/packages.sh: CMake finds what is installed, wherever it lies; completions offer what --help
# says; make dist gives the same bytes each time; the lists of the Debian packages name what is installed.
# `make check-deb` installs the packages.
# deadline: 120
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../support/lib.sh"
MAKE=${MAKE:-make}
DEADLINE=100
version=$(sed -n 's/^#define GYRE_VERSION  *"\(.*\)"$/\1/p' include/gyre/version.h)
triplet=$("${CC:-gcc}" -dumpmachine)
run $MAKE install PREFIX=/usr LIBDIR=/usr/lib/"$triplet" DESTDIR="$W/stage"
want "make install" 0
[ "$rc" = 0 ] || finish
at="$W/moved here"
mv "$W/stage/usr" "$at"
run $MAKE install-lib PREFIX=/usr LIBDIR=/opt/lib DESTDIR="$W/stage"
want "a LIBDIR elsewhere" 2 "LIBDIR='/opt/lib' is not below PREFIX='/usr'"
run $MAKE install-lib PREFIX=gyre DESTDIR="$W/"
want "a relative PREFIX" 2 "PREFIX='gyre' is not an absolute path"

# ---- CMake ----
# project NAME LINE...: after the two lines that every project has
project() {
    mkdir -p "$W/$1"
    printf '%s\n' 'cmake_minimum_required(VERSION 3.13)' "project($1 C)" "${@:2}" >"$W/$1/CMakeLists.txt"
}
configure() { # NAME [VARIABLE=VALUE...]
    run env "${@:2}" cmake -S "$W/$1" -B "$W/$1/build" -DCMAKE_PREFIX_PATH="$at"
}
cp tests/tools/hello.c "$W/"
if command -v cmake >/dev/null; then
    mkdir "$W/hello"
    awk '/^```/ { on = /cmake/; next } on' docs/packages.md >"$W/hello/CMakeLists.txt"
    cp "$W/hello.c" "$W/hello/"
    configure hello PKG_CONFIG_LIBDIR="$W"
    want "the project of docs/packages.md, without pkg-config's files" 0
    check "it says which targets there are not" grep -q 'no target gyre::static: pkg-config does not find hwloc' "$W/out"
    run cmake --build "$W/hello/build"
    want "it builds" 0
    check "with the shared library" bash -c 'ldd "$0" | grep -qF "$1/lib/$2/libgyre.so.0"' "$W/hello/build/hello" "$at" "$triplet"
    run "$UCX_RUN" -n 2 --timeout 20 "$W/hello/build/hello"
    out_is "it runs" "2
2"
    project both 'find_package(gyre 0.1 REQUIRED COMPONENTS static train)' 'add_executable(static ../hello.c)' \
        'target_link_libraries(static gyre::static)' "add_executable(train $PWD/examples/train.c)" \
        'target_link_libraries(train gyre::train)'
    configure both PKG_CONFIG_LIBDIR="$W"
    want "a component without what it needs" 1 'gyre::train: pkg-config does not find'
    rm -rf "$W/both/build"
    configure both
    want "the static libraries" 0
    run cmake --build "$W/both/build"
    want "they link" 0
    check "without the shared one" bash -c '! ldd "$0" | grep -q libgyre' "$W/both/build/static"
    run "$W/both/build/static"
    out_is "a static program" 1
    seq 3000 >"$W/numbers"
    run "$W/both/build/train" '{"data": "'"$W/numbers"'", "steps": 2, "hidden": 32, "seq": 16}'
    want "a program that trains" 0
    project other 'find_package(gyre 0.1 REQUIRED COMPONENTS mpi)'
    configure other
    want "a component that is not" 1 'there is no such component'
    project newer 'find_package(gyre 99 REQUIRED)'
    configure newer
    want "a version that is not" 1 "version: $version"
    mv "$at/lib/$triplet/libgyre-train.a" "$W"
    rm -rf "$W/both/build"
    configure both
    want "without libgyre-train" 1 install-train
    mv "$W/libgyre-train.a" "$at/lib/$triplet/"
else
    leave_out "CMake: there is none here (apt-get install cmake)"
fi

# ---- completions ----
dir=$at/share/bash-completion/completions
# offered WORD...: what bash completes the last word to, one a line
offered() {
    (
        # shellcheck disable=SC1090 # made by make install
        . "$dir/$1"
        complete -p "$1" >/dev/null || exit 1
        COMP_WORDS=("$@")
        COMP_CWORD=$(($# - 1))
        _gyre
        printf '%s\n' "${COMPREPLY[@]}"
    )
}
# documented WORD...: the options that begin a line of its --help
documented() {
    "$B/bin/$1" "${@:2}" --help | /usr/bin/python3 -c '
import re, sys
for line in sys.stdin:
    found = re.match(r" {1,8}(-.*?)(?:  |$)", line)
    if found:
        print(*re.findall(r"(?:(?<=[,;] )|^)(--?[A-Za-z][\w-]*)", found[1]), sep="\n")' | sed '/^$/d' | sort -u
}
MPI=
[ ! -e "$at/bin/gyre-mpi" ] || MPI=gyre-mpi
for words in $MPI ucx-run gyre-perf gyre-topo gyre-plan gyre-train gyre-generate gyre-eval gyre-tokenize gyre-doctor 'gyre-perf latency' 'gyre-plan memory'; do
    # shellcheck disable=SC2086 # words
    documented $words >"$W/documented"
    check "$words has options" [ "$(wc -l <"$W/documented")" -ge 2 ]
    # shellcheck disable=SC2086
    offered $words - | sort -u >"$W/offered"
    check "completions of $words are the options of its --help" diff "$W/documented" "$W/offered"
done
is() { check "$1" [ "$(offered "${@:3}" | xargs)" = "$2" ]; }
is "a value" "core l3 numa none" ucx-run --bind ''
is "a value that has begun" "bf16" gyre-train --precision b
is "a first word" "latency" gyre-perf la
is "questions" "memory" gyre-plan me
is "a file" "$W/numbers" gyre-perf --json "$W/numb"
is "what ucx-run starts" "$W/hello.c" ucx-run -n 4 ls "$W/hello."
is "a template" "llama3 llama3.1" gyre-tokenize --template ll
is "formats of token files" "auto text gyre llmc megatron nanogpt" gyre-tokenize --data-format ''
is "formats of data" "auto text gyre llmc megatron nanogpt" gyre-eval --data-format ''
[ -z "$MPI" ] || is "what gyre-mpi starts" "$W/hello.c" gyre-mpi ls "$W/hello."
# a tool that has a new option
mkdir "$W/bin"
printf '%s\n' '#!/bin/sh' "echo '  --fresh one|two   it'\\''s new'" >"$W/bin/tool"
chmod +x "$W/bin/tool"
sh tools/package/completions bash "$W/bin" tool >"$W/bash"
sh tools/package/completions zsh "$W/bin" tool >"$W/zsh"
dir=$W/tools
mkdir "$dir"
mv "$W/bash" "$dir/tool"
is "a new option" --fresh tool --f
is "its values" "one two" tool --fresh ''
if command -v zsh >/dev/null; then
    cat >"$W/run.zsh" <<'END'
compadd() { print -l -- ${(P)2} }
_describe() { print -rl -- ${(P)3} }
_files() { print files }
_command_names() { print commands }
_normal() { print -r -- the rest: $words }
complete_words() { words=("$@"); CURRENT=$#; eval "$text" }
text=$(<$1)
complete_words "${@:2}"
END
    zsh_is() { # NAME OUTPUT FILE WORD...
        run zsh -f "$W/run.zsh" "${@:3}"
        out_is "zsh: $1" "$2"
    }
    zsh_is "a new option" "--fresh:it's new" "$W/zsh" tool -
    zsh_is "its values" "one
two" "$W/zsh" tool --fresh ''
    gyre=$at/share/zsh/site-functions/_gyre
    zsh_is "what ucx-run starts" "the rest: ls x" "$gyre" ucx-run -n 4 ls x
    [ -z "$MPI" ] || zsh_is "what gyre-mpi starts" "the rest: ls x" "$gyre" gyre-mpi ls x
    zsh_is "a value" "fp32
bf16
fp16" "$gyre" gyre-train --precision ''
    check "zsh: the tools" grep -qx "#compdef ucx-run .*gyre-doctor${MPI:+ $MPI}" "$gyre"
else
    leave_out "zsh: there is none here (apt-get install zsh)"
fi

# ---- make dist ----
if [ -e .git ] && git rev-parse -q --verify HEAD >/dev/null; then
    run $MAKE dist DIST="$W/a.tar.gz"
    want "make dist" 0
    run env TZ=Asia/Tokyo GIT_CONFIG_COUNT=2 GIT_CONFIG_KEY_0=tar.umask GIT_CONFIG_VALUE_0=0077 GIT_CONFIG_KEY_1=core.autocrlf \
        GIT_CONFIG_VALUE_1=true sh -c "umask 077; exec $MAKE "'"$@"' sh dist DIST="$W/b.tar.gz"
    want "again, with other settings" 0
    check "the same bytes" cmp "$W/a.tar.gz" "$W/b.tar.gz"
    tar -tf "$W/a.tar.gz" | sed -n "s|^gyre-$version/\(.*[^/]\)$|\1|p" | sort >"$W/in"
    git ls-tree -r --name-only --full-tree HEAD | sort >"$W/committed"
    check "all that is committed, and nothing else" diff "$W/committed" "$W/in"
    tar -C "$W" -xf "$W/a.tar.gz"
    run $MAKE -C "$W/gyre-$version" -n CUDA=0 VERBS=0 all
    want "make in it" 0
    check "builds libgyre" grep -q -- '-o .*/libgyre\.so' "$W/out"
    run $MAKE -C "$W/gyre-$version" dist
    want "make dist outside of a clone" 2 'make dist: needs a git clone'
else
    leave_out "make dist: this is no clone"
fi

# ---- lists of the packages ----
debian=tools/package/debian
check "the packages' version" grep -q "^gyre ($version-" <(head -1 "$debian/changelog")
check "the recipe's version" grep -q "version(\"$version\")" tools/package/spack/packages/gyre/package.py
while read -r pattern _; do
    path=${pattern#usr/}
    check "$pattern, which a package lists, is installed" bash -c 'compgen -G "$0" >/dev/null' "${at// /\\ }/$path"
done < <(cat "$debian"/*.install)
for tool in "$at"/bin/*; do
    check "$(basename "$tool") is in a package" bash -c 'for p in $(sed "s/ .*//" '"$debian"'/*.install); do
        case usr/bin/$0 in $p) exit 0 ;; esac; done; exit 1' "$(basename "$tool")"
done
# No program is linked with UCX, so dpkg does not find it by itself.
for package in libgyre0 gyre-tools; do
    check "$package recommends UCX" grep -q '^Recommends:.*libucx0' <(sed -n "/^Package: $package\$/,/^\$/p" $debian/control)
done
check "the recipe for Spack is Python" /usr/bin/python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read())' \
    tools/package/spack/packages/gyre/package.py
finish
