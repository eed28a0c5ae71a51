#!/bin/bash
# tests/system/perf_matrix.sh: every collective gives the right results for every type and reduction, in and out of place, on
# several numbers of ranks, over each transport, with each algorithm that gyre-perf's help names for it.
# A short form, to which tests/tools/perf/test_gyre_perf.sh adds every type and reduction. TEST_LONG=1 (make check-long): every
# algorithm with seven numbers of ranks and sizes to 8 MiB, over shm and UCX; some 15 minutes.
# deadline: 300
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../support/lib.sh"
LONG=${TEST_LONG:-}
DEADLINE=$([ -n "$LONG" ] && echo 1800 || echo 120)
only=${1:-} # one collective

"$PERF" --help >"$W/help" || bad "gyre-perf --help fails"
# "  all_reduce   title" followed by a line of algorithms
awk '/^Collectives and the algorithms/ { on = 1; next } on && /^  [a-z]/ { name = $1; next } on && name != "" { print name, $0; name = "" }' \
    "$W/help" >"$W/table"
check "the help lists the collectives" [ "$(wc -l <"$W/table")" -ge 9 ]

# perf N COLLECTIVE FLAGS...: 0 wrong, and something was measured
perf() {
    local n=$1 c=$2
    shift 2
    run "$UCX_RUN" -n "$n" --timeout $((DEADLINE - 10)) "$PERF" "$c" -c 1 -w 0 "$@"
    want "-n $n $c $*" 0
    # nccl-tests' own last lines
    check "-n $n $c $*: a verdict of 0 wrong" grep -qE '^# Out of bounds values *: *0 OK' "$W/out"
    [ -z "$LONG" ] || echo "$n $c $*: code $rc, $ms ms"
}
reduces() { case $1 in all_reduce | reduce_scatter | reduce | scan | exscan) return 0 ;; *) return 1 ;; esac; }
algos_of() { awk -v c="$1" '$1 == c { for (i = 2; i <= NF; i++) if ($i != "none" && $i != "to" && $i != "choose" && $i != "from") print $i }' "$W/table"; }

while read -r c _; do
    [ -z "$only" ] || [ "$only" = "$c" ] || continue
    ops=()
    ! reduces "$c" || ops=(-o all)
    if [ -n "$LONG" ]; then
        # which ranks meet in which step of a schedule, and its blocks, are those of its algorithm and the number of ranks;
        # types and reductions are the ranks' own, and so have one number of ranks
        for algo in auto $(algos_of "$c"); do
            choice=()
            [ "$algo" = auto ] || choice=(--algo "$algo")
            for n in 2 3 4 5 7 8; do
                perf $n "$c" -b 4 -e 8M -f 8 -n 1 --transport shm "${choice[@]}"
            done
            perf 3 "$c" -b 4 -e 64K -f 16 -n 1 -d all "${ops[@]}" --transport shm "${choice[@]}"
            [ "$algo" != shared ] || continue # needs each other's memory
            for n in 2 3 5; do # where ranks outnumber cores, UCX is slow
                perf $n "$c" -b 4 -e 2M -f 8 -n 1 --transport ucx "${choice[@]}"
            done
        done
        perf 1 "$c" -b 4 -e 16M -f 4 -n 1 -d all "${ops[@]}"
        perf 4 "$c" -b 4 -e 16M -f 4 -n 1 --transport shm
        perf 3 "$c" -b 4 -e 64K -f 16 -n 1 -d all "${ops[@]}" --transport ucx
    else
        perf 4 "$c" -b 4 -e 4M -f 16 -n 1
        perf 3 "$c" -b 4 -e 256K -f 32 -n 1 --transport ucx
        perf 1 "$c" -b 4 -e 64K -f 64 -n 1 -d bfloat16
        perf 7 "$c" -b 4 -e 64K -f 64 -n 1 -d double
        for algo in $(algos_of "$c"); do
            perf 3 "$c" -b 4 -e 256K -f 64 -n 1 --algo "$algo"
        done
    fi
done <"$W/table"
finish
