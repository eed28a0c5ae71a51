#!/bin/bash
# tests/tools/test_install.sh: make install and uninstall below a DESTDIR; a program built with pkg-config
# against what was installed; the library's exported symbols; libgyre alone, without what tools and training need.
# deadline: 300
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../support/lib.sh"
MAKE=${MAKE:-make}
D=$W/stage
DEADLINE=240
run $MAKE install PREFIX="/opt/my gyre" DESTDIR="$D"
want "a folder with a space" 2 "PREFIX='/opt/my gyre' has a space"
# shellcheck disable=SC2086
run sh -c 'umask 077 && exec "$@"' - $MAKE install PREFIX=/opt/gyre DESTDIR="$D"
want "make install" 0
check "make install has no complaint" [ ! -s "$W/err" ]
at=$D/opt/gyre
check "everyone may read all of it" [ -z "$(find "$at" ! -type l ! -perm -004)" ]
for file in include/gyre/gyre.h include/gyre/device.cuh include/gyre/train.h lib/libgyre.so.0 lib/libgyre.so lib/libgyre.a lib/libgyre-malloc.so lib/libgyre-train.a \
    lib/pkgconfig/gyre.pc lib/pkgconfig/gyre-train.pc bin/ucx-run share/man/man1/ucx-run.1 \
    share/man/man7/gyre.7; do
    check "$file is installed" [ -e "$at/$file" ]
done
check "soname" bash -c 'readelf -d "$0" | grep -q "SONAME.*\[libgyre\.so\.0\]"' "$at/lib/libgyre.so.0"

# The exported symbols are exactly those that libgyre.map lists (beside the version's own name).
nm -D --defined-only "$at/lib/libgyre.so.0" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort >"$W/exported"
sed -nE 's/^ +(gyre_[a-z0-9_]+);$/\1/p' libgyre.map | sort >"$W/listed"
check "the map lists something" test -s "$W/listed"
check "exported symbols are those of libgyre.map" diff "$W/listed" "$W/exported"
# and the map lists every function of the installed headers, but for those of libgyre-train, which is static
functions() { grep -hoE '^GYRE_API [^(]*\b(gyre_[a-z0-9_]+)\(' "$@" | sed -E 's/.*\b(gyre_[a-z0-9_]+)\($/\1/' | sort -u; }
# shellcheck disable=SC2046
functions $(ls include/gyre/*.h | grep -v /train.h) >"$W/declared"
check "every function of the headers is exported" diff "$W/declared" "$W/listed"
functions include/gyre/train.h >"$W/train"
check "gyre/train.h declares something" test -s "$W/train"
nm --defined-only "$at/lib/libgyre-train.a" 2>/dev/null | awk '$2 == "T" && $3 ~ /^gyre_/ { print $3 }' | sort >"$W/defined"
check "libgyre-train has the functions of gyre/train.h" diff "$W/train" "$W/defined"

# Every public function has a manual page, its own or one that refers to a page which names it.
man3=$at/share/man/man3
while read -r name; do
    page=$man3/$name.3
    check "$name has a manual page" test -s "$page"
    target=$(sed -n 's/^\.so //p' "$page")
    [ -z "$target" ] || page=$at/share/man/$target
    check "the page of $name has it in its synopsis" grep -q "\b$name(" "$page"
done < <(cat "$W/listed" "$W/train")
if man --version 2>/dev/null | grep -q '^man '; then
    for name in gyre_wait gyre_broadcast gyre_comm_local_rank gyre_buckets_ready; do
        check "man $name" bash -c 'MANPATH=$0 MANPAGER=cat man "$1" 2>/dev/null | grep -q "$1"' "$at/share/man" $name
    done
else
    leave_out "that man finds the pages: there is no man here (apt-get install man-db)"
fi

# The version is one: header, Makefile, pkg-config, changelog (manual pages: tests/tools/test_man.sh).
version=$(sed -n 's/^#define GYRE_VERSION  *"\(.*\)"$/\1/p' "$at/include/gyre/version.h")
check "the header has a version" test -n "$version"
check "the pkg-config file has it" grep -qx "Version: $version" "$at/lib/pkgconfig/gyre.pc"
check "ucx-run has it" bash -c '"$0" --version | grep -qF " $1"' "$at/bin/ucx-run" "$version"
check "the changelog begins with it" [ "$(grep -m1 '^## ' CHANGELOG.md | cut -d' ' -f2)" = "$version" ]

# What manual pages and headers refer to is installed, and so is what the installed documents link to.
doc=$at/share/doc/gyre
for name in $(grep -rhoE '\b(docs|examples)/[A-Za-z0-9_./-]*[A-Za-z0-9]' "$at/share/man" "$at/include/gyre" | sort -u); do
    check "$name, which a manual page or a header names" test -e "$doc/$name"
done
check "a recipe" test -s "$at/share/gyre/recipes/llama-7b.json"
python3 - "$doc" >"$W/broken" <<'END'
import os, re, sys
for folder, _, files in os.walk(sys.argv[1]):
    for name in files:
        text = open(os.path.join(folder, name), errors="replace").read() if name.endswith(".md") else ""
        for target in re.findall(r"\]\(([^)#\s]+)", re.sub(r"(?s)```.*?```", "", text)):
            if "://" not in target and not os.path.exists(os.path.join(folder, target)):
                print(f"{os.path.join(folder, name)}: {target}")
END
# raw results and the sources of tests stay in the source tree
check "links in installed documents" bash -c '! grep -vE ": (\.\./)*(bench/results|tests)/" "$0"' "$W/broken"

cp tests/tools/hello.c "$W/"
export PKG_CONFIG_PATH=$at/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=
export PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1
# The .pc names the final place; --define-prefix finds it from where the file lies now.
flags() { pkg-config --define-prefix "$@" gyre; }
# shellcheck disable=SC2046 # words
run ${CC:-gcc} -Wall -Wextra -Werror -o "$W/hello" "$W/hello.c" $(flags --cflags --libs)
want "a program compiles against it" 0
export LD_LIBRARY_PATH=$at/lib
run "$W/hello"
want "it runs alone" 0
out_is "alone" 1
run "$at/bin/ucx-run" -n 3 --timeout 20 "$W/hello"
want "it runs as three ranks" 0
out_is "three ranks" "3
3
3"
# libgyre itself statically, what it needs dynamically (`pkg-config --static` asks for static system libraries, too)
# shellcheck disable=SC2046
run ${CC:-gcc} -o "$W/hello-static" "$W/hello.c" $(flags --cflags) "$at/lib/libgyre.a" \
    $(pkg-config --libs $(flags --print-requires-private)) $(sed -n 's/^Libs.private: //p' "$at/lib/pkgconfig/gyre.pc")
want "it links statically" 0
unset LD_LIBRARY_PATH
run "$W/hello-static"
out_is "the static one runs" 1
# libgyre-train: the installed example
# shellcheck disable=SC2046
run ${CC:-gcc} -Wall -Wextra -Werror -o "$W/train-example" "$doc/examples/train.c" \
    $(pkg-config --define-prefix --cflags --libs gyre-train)
want "a program that trains compiles against it" 0
check "text to train on" bash -c 'seq 3000 >"$0"' "$W/numbers"
run "$W/train-example" '{"data": "'"$W/numbers"'", "steps": 2, "hidden": 32, "seq": 16}'
want "it trains" 0
if command -v g++ >/dev/null; then
    cp "$W/hello.c" "$W/hello.cc"
    # shellcheck disable=SC2046
    sed -i '1i #include <gyre/train.h>' "$W/hello.cc"
    # shellcheck disable=SC2046
    run g++ -Wall -Wextra -Werror -fsyntax-only $(flags --cflags) "$W/hello.cc"
    want "the headers serve C++" 0
else
    leave_out "the headers in C++: there is no g++"
fi

run $MAKE uninstall PREFIX=/opt/gyre DESTDIR="$D"
want "make uninstall" 0
check "nothing is left" test -z "$(find "$D" ! -type d)"
for directory in include/gyre share/gyre share/doc/gyre; do
    check "no $directory is left" test ! -e "$at/$directory"
done

# libgyre alone: pkg-config knows no other package here, so set-up and make must not ask for one.
core='hwloc libsodium libxxhash'
mkdir "$W/pc"
for package in $core ucx; do
    ln -s "$(pkg-config --variable=pcfiledir "$package")/$package"*.pc "$W/pc"
done
# shellcheck disable=SC2086 # words
run env -u PKG_CONFIG_PATH PKG_CONFIG_LIBDIR="$W/pc" $MAKE -n B="$W/alone" lib
want "make lib without jansson, OpenBLAS and PCRE2" 0
check "it asks for no more" test ! -e "$W/alone/config-tools.mk"
check "it links libgyre" grep -q -- '-o .*/libgyre\.so' "$W/out"
check "and with nothing else" bash -c '! grep -qE "jansson|openblas|pcre2|libgyre-(train|proof)" "$0"' "$W/out"
run $MAKE install-lib PREFIX=/opt/gyre DESTDIR="$D"
want "make install-lib" 0
for file in include/gyre/gyre.h lib/libgyre.so lib/libgyre.a lib/libgyre-malloc.so share/man/man3/gyre_all_reduce.3; do
    check "$file is installed with libgyre" [ -e "$at/$file" ]
done
check "nothing of libgyre-train is installed" test -z "$(find "$at" -name '*train*')"
check "no tool is installed" test -z "$(find "$at/bin" -mindepth 1)"
check "gyre.pc asks for these alone" [ "$(flags --print-requires-private | xargs)" = "$core" ]
check "libgyre needs no more" bash -c '! readelf -d "$0" | grep -E "NEEDED.*(jansson|openblas|pcre2|libuc)"' "$at/lib/libgyre.so"
# shellcheck disable=SC2046
run ${CC:-gcc} -Wall -Wextra -Werror -o "$W/hello" "$W/hello.c" $(flags --cflags --libs)
want "a program compiles against libgyre alone" 0
run env LD_LIBRARY_PATH="$at/lib" "$W/hello"
out_is "it runs" 1
run $MAKE uninstall PREFIX=/opt/gyre DESTDIR="$D"
want "make uninstall of libgyre" 0
check "nothing of it is left" test -z "$(find "$D" ! -type d)"
finish
