#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/system/build_places.sh: where and how the Makefile builds: a clone without history, a path with spaces, any -j, an
# output folder elsewhere that leaves the sources alone, and one line that helps where a tool is missing. A few objects
# stand for the rest; `make check-fresh` builds all.
# deadline: 300
. "$(dirname "$0")/../support/lib.sh"
unset MAKEFLAGS MFLAGS MAKELEVEL SANITIZE
DEADLINE=200
HERE=$PWD
clone="$W/a clone"
command -v git >/dev/null && git rev-parse --git-dir >/dev/null 2>&1 || skip "not in a clone, or without git"
objects=()
for pattern in 'base/*.c' 'collectives/*.c' 'model/*.c' 'tools/*.c' 'tests/base/*test_*.c'; do
    source=$(git ls-files "$pattern" | head -n 1)
    objects+=("obj/${source%.c}.o")
done
plain=(CUDA=0 VERBS=0)

git clone -q --depth 1 "file://$HERE" "$clone"
git diff --binary HEAD >"$W/changes"
[ ! -s "$W/changes" ] || git -C "$clone" apply "$W/changes"
cd "$clone" || exit 1
check "the clone has no history" [ "$(git rev-list --count HEAD)" = 1 ]

# a folder with a space, -j1 and -j16
run make -j1 "${plain[@]}" report "build/${objects[0]}"
want "-j1 in a folder with a space" 0
run make -j16 "${plain[@]}" "${objects[@]/#/build/}"
want "-j16 in a folder with a space" 0
check "all were built" ls "${objects[@]/#/build/}" >/dev/null
run make -j16 -n "${plain[@]}" all tests
want "the whole build in a folder with a space" 0
check "it would link the tools" grep -q 'build/bin/gyre-perf' "$W/out"
run make "${plain[@]}" compile_commands.json
want "compile_commands.json" 0
check "it is JSON, of this folder and of files that are there" /usr/bin/python3 -c '
import json, os, shlex
entries = json.load(open("compile_commands.json"))
assert len(entries) > 300 and all(e["directory"] == os.getcwd() for e in entries)
assert all(os.path.exists(e["file"]) and shlex.split(e["command"])[-1] == e["file"] for e in entries)'
run sh tools/setup build
want "a script in a folder with a space" 0
run make clean
want "make clean" 0
rm -f compile_commands.json

# an output folder elsewhere: nothing next to the sources is written, and they may be read-only
chmod -R a-w .
touch "$W/before"
out=$W/elsewhere
run make -j16 B="$out" "${plain[@]}" "${objects[@]/#/$out/}"
want "B=DIR with read-only sources" 0
check "all were built there" ls "${objects[@]/#/$out/}" "$out/config.mk" "$out/setup.done" >/dev/null
check "nothing was written next to the sources" [ -z "$(find . -path ./.git -prune -o -newer "$W/before" -print)" ]
run make B="$out" SANITIZE=undefined "${plain[@]}" "$out/${objects[0]}"
want "B=DIR with SANITIZE" 0
run make B="$out" clean
want "make clean with B=DIR" 2 "rm -r '$out'"
check "it removed nothing" [ -e "$out/config.mk" ]
run make B="$W/with space" "${plain[@]}" report
want "B=DIR with a space" 2 "B='.*with space'.* has no spaces"
chmod -R u+w .

# A machine without something: everything of this one but the compiler, and a user who may not install.
mkdir "$W/bin"
ln -s /usr/local/bin/* /usr/bin/* /usr/sbin/* "$W/bin/" 2>/dev/null
rm -f "$W/bin"/{gcc,cc,sudo,apt-get,id,clang-format}
printf '%s\n' '#!/bin/sh' 'echo 1000' >"$W/bin/id"
printf '%s\n' '#!/bin/sh' 'exit 1' >"$W/bin/apt-get"
chmod +x "$W/bin/id" "$W/bin/apt-get"
# lacks NAME PATTERN ARGUMENTS...: make fails, and prints one line with the command next to what make itself says of a
# rule that failed
lacks() {
    local name=$1 pattern=$2
    shift 2
    run env PATH="$W/bin" make "${plain[@]}" "$@"
    want "$name" 2 "$pattern"
    check "$name: one line" [ "$(grep -cvE '^make: \*\*\* \[|^Makefile:[0-9]+: .*config.mk: No such' "$W/err")" = 1 ]
}
lacks "no compiler in a fresh clone" 'sudo apt-get install -y .* build-essential' report
lacks "no compiler, built before" 'gcc is missing; to install it: sudo apt-get install build-essential' B="$out" report
ln -s "$(PATH=/usr/bin:$PATH command -v gcc)" "$W/bin/gcc" # not a link to ccache
rm "$W/bin/pkg-config"
lacks "no pkg-config" 'sudo apt-get install -y .* pkg-config' report
touch "$out/setup.done"
rm "$out/config.mk"
lacks "no pkg-config, set up before" 'sudo apt-get install -y .* pkg-config' B="$out" report
ln -s "$(command -v pkg-config)" "$W/bin/pkg-config"
lacks "no clang-format" 'clang-format is missing; to install it: sudo apt-get install clang-format' format
rm -f "$W/bin/cppcheck"
lacks "no cppcheck" 'sudo apt-get install -y .* cppcheck' lint-quick
lacks "another compiler that is not there" "clang-77 is missing; to install it: sudo apt-get install clang-77" CC=clang-77 report
# Each goal that `make help` lists has a rule.
for goal in $(make -s help | grep -oE '^make [a-z_-]+' | sed 's/^make //' | sort -u); do
    check "make help: $goal" grep -qE "^([a-z.-]+ )*$goal(\.json)?( [a-z-]+)*:([^=]|\$)" \
        Makefile bench/*.mk bindings/*/*.mk tests/*/*.mk tools/*.mk tools/*/*.mk
done
lacks "no CUDA toolkit" 'CUDA=1: no toolkit in .*/nowhere.*apt-get install' CUDA=1 CUDA_HOME=/nowhere report
finish
