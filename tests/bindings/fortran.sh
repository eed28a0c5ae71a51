#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/bindings/fortran.sh: module gyre as installed: the page's commands and example as written, every call against reference
# values on 1, 2 and 3 ranks, the heat equation as in C, an error without a status argument.
. "$(dirname "$0")/../support/lib.sh"
. "$(dirname "$0")/../support/language.sh"
command -v gfortran >/dev/null || skip "no gfortran"
umask 077
installs docs/fortran.md
check "everyone may read all of it: $(find "$P" ! -type l ! -perm -004)" [ -z "$(find "$P/lib" "$P/include" ! -type l ! -perm -004)" ]
umask 022
# compile PROGRAM SOURCE FLAGS...
compile() {
    local program=$1 source=$2
    shift 2
    # shellcheck disable=SC2046 # a list of words
    DEADLINE=60 run gfortran "$@" -J"$W" "$source" $(pkg-config --cflags --libs gyre-fortran) -o "$program"
    want "$source $*" 0
}

page docs/fortran.md fortran sum.f90

compile "$W/operations" tests/bindings/operations.f90 -std=f2018 -O1 -fcheck=all
operations
compile "$W/heat" examples/heat.f90 -std=f2018 -Wall -O2 -ffp-contract=off
heat

reached docs/fortran.md < <(nm --undefined-only "$P/lib/libgyre-fortran.a" | grep -o 'gyre_[a-z0-9_]*')

# program NAME STATEMENTS: with world, x and request
program() {
    printf 'program p\nuse gyre\nimplicit none\ntype(gyre_comm) :: world\nreal :: x(4, 4)\ntype(gyre_request) :: request\n%s\n%s\nend program\n' \
        'call gyre_init(world)' "$2" >"$W/$1.f90"
}
program stops 'x = 0
call gyre_broadcast(x(1, :), 0, world)'
compile "$W/stops" "$W/stops.f90"
run "$UCX_RUN" -n 1 --timeout 25 "$W/stops"
want "no status argument" 1 'ERROR STOP gyre_broadcast: buffer is not contiguous'
program gyre 'x = 0
call gyre_broadcast(x, 99, world)'
compile "$W/gyre" "$W/gyre.f90"
run "$UCX_RUN" -n 1 --timeout 25 "$W/gyre"
want "no status argument, and Gyre's text" 1 'ERROR STOP gyre_broadcast: root 99'
# What must not compile: a temporary as a buffer of a non-blocking call.
for send in 'x + 1' 'x(:, [1, 3])'; do
    program no "x = 0
call gyre_iall_reduce($send, x, GYRE_SUM, world, request)"
    # shellcheck disable=SC2046 # a list of words
    run gfortran -fsyntax-only $(pkg-config --cflags gyre-fortran) "$W/no.f90"
    want "must not compile: $send" 1 'variable definition context|INTENT\(INOUT\)|[Vv]ector'
done
finish
