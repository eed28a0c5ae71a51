#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/system/tutorials.sh: every command of docs/tutorials/ works and prints what the page shows.
# deadline: 400
# takes: 25
. "$(dirname "$0")/../support/lib.sh"
command -v python3 >/dev/null || skip "there is no python3"
unset "${!GYRE_@}"
top=$PWD
MAKE=${MAKE:-make}
make() { command $MAKE "$@"; }
export MAKE
export -f make

# A clone to work in: a copy of the sources, and the build is ours.
clone() {
    mkdir "$W/$1" "$W/$1/home" || exit 1
    for entry in *; do
        [ "$entry" = build ] || cp -a "$entry" "$W/$1/"
    done
}
tutorial() {
    cd "$W/$1" || exit 1
    HOME=$W/$1/home python3 tests/system/tutorials.py "docs/tutorials/$1.md" >"$W/$1.out" 2>&1
    rc=$?
    cd "$top" || exit 1
    check "docs/tutorials/$1.md" [ $rc = 0 ]
    cat "$W/$1.out"
}
for name in measure train finetune link; do
    clone $name
    ln -s "$(realpath "$B")" "$W/$name/build"
    tutorial $name
done
# This one adds a file to the sources, so it gets a copy of what was built, too.
clone contribute
mkdir "$W/contribute/build" || exit 1
for entry in "$B"/*; do
    case ${entry##*/} in
    bin | lib | obj | examples | mpicc-* | *flags* | *.h | *.mk | *.done) cp -a "$entry" "$W/contribute/build/" ;;
    esac
done
tutorial contribute

finish
