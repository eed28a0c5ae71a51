#!/bin/bash
# tests/tools/test_abi.sh: a program that was built for 0.1 runs with this library, and no symbol of an older release is
# missing or has moved to another version node (docs/abi.md, tests/abi/). Also what a program asks of a version.
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../support/lib.sh"
lib=$B/lib/libgyre.so.0
[ -e "$lib" ] || skip "there is no shared library: make lib"

nm -D --defined-only --with-symbol-versions "$lib" | awk '$2 != "A" { print $3 }' | sort >"$W/now"
for old in tests/abi/symbols-*; do
    check "$old lists symbols" test -s "$old"
    comm -23 <(sort "$old") "$W/now" >"$W/lost"
    check "the library lacks symbols of $old: $(tr '\n' ' ' <"$W/lost")" test ! -s "$W/lost"
done

runs() { # WHAT PROGRAM
    for n in 1 2; do
        LD_LIBRARY_PATH=$B/lib run "$UCX_RUN" -n "$n" --timeout 20 "$2"
        want "$1 on $n ranks" 0
        check "$1 says with what it runs" grep -q "built for 0.1, runs with $("$B/bin/gyre-doctor" --version | sed 's/.* //')" "$W/out"
    done
}
if [ "$(uname -m)" = x86_64 ]; then
    runs "the program of 0.1" tests/abi/program-0.1.x86_64
else
    leave_out "the program of 0.1 is for x86-64"
fi
# The same, built from the history of the sources: the program is what the source says, on each machine.
tests/abi/build "$W/program"
case $? in
0) runs "the program of 0.1, built now" "$W/program" ;;
3) leave_out "the history of these sources does not have 0.1" ;;
*) bad "tests/abi/build" ;;
esac

cat >"$W/version.c" <<'END'
#include <gyre/gyre.h>
#include <stdio.h>
int main(void)
{
    return printf("%d %d %s\n", gyre_api_version(), GYRE_VERSION_NUMBER, gyre_version()) < 0;
}
END
run "${CC:-gcc}" -std=c11 -Iinclude "$W/version.c" -L"$B/lib" -lgyre -o "$W/version"
want "a program that asks for the version" 0
LD_LIBRARY_PATH=$B/lib run "$W/version"
want "it runs" 0
check "headers and library are of one version" awk '{ split($3, v, "."); n = v[1] * 10000 + v[2] * 100 + v[3]; exit !($1 == $2 && $1 == n) }' "$W/out"
finish
