#!/bin/bash
# tests/system/other_machine.sh: the tuning file of another machine (GYRE_TUNE): other ways are chosen, as --explain shows, and
# results are right all the same.
# deadline: 180
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../support/lib.sh"
unset "${!GYRE_@}"

machine() { # NAME COST...: a file of a machine that is as others are, but for these costs
    local name=$1 cost
    shift
    {
        echo 'gyre-tune 1'
        for cost in 'call 90' 'step 20' 'line 60' 'message 130' 'yield 800' 'wake 5000' 'copy_cache 30' 'copy_memory 9' \
            'reduce_cache 50' 'reduce_memory 14' 'peer_cache 12' 'peer_memory 9' 'peer_write 10' 'peer_stage 15' 'total_memory 32' \
            'cma_call 600' 'cma_rate 9' 'cma_memory 4' 'copy_pages 8' 'cache_bytes 1048576' "$@"; do
            echo "cost $cost"
        done
    } >"$W/$name"
}
machine plain
machine slow_cma 'cma_call 50000' 'cma_rate 0.5' 'cma_memory 0.5'
machine fast_cma 'cma_call 10' 'cma_rate 1000' 'cma_memory 1000'
machine slow_flights 'line 100000'
machine small_cache 'cache_bytes 262144'

# explain MACHINE COLLECTIVE FLAG...: the row of --explain
explain() {
    local machine=$1
    shift
    GYRE_TUNE=$W/$machine run "$UCX_RUN" -n "${ranks:-2}" "$PERF" "$@" -n 3 -w 1 --inplace 0 --explain
    want "$machine: $*" 0
    check "$machine: $*: right" grep -qE '^# Out of bounds values *: *0 OK' "$W/out"
    row=$(grep -v '^#' "$W/out")
}
field() { awk -v n="$1" '{ print $n }' <<<"$row"; }

explain slow_cma all_gather -b 1M -e 1M -R 0
check "calls of the kernel are dear: staged, $row" [ "$(field 5)" = staged ]
explain fast_cma all_gather -b 1M -e 1M -R 0
check "they cost nothing: by the kernel, $row" [ "$(field 5)" = links ]
ranks=3 explain slow_cma broadcast -b 4M -e 4M -R 0
check "a broadcast of three ranks: chunks are staged, $row" [ "$(field 5)" = staged ]
ranks=3 explain fast_cma broadcast -b 4M -e 4M -R 0
check "they are not, $row" [ "$(field 5)" = links ]
explain small_cache all_reduce -b 4M -e 4M -R 1
check "a small cache: short chunks, $row" [ "$(field 8)" = 64K ]
explain plain all_reduce -b 4M -e 4M -R 1
check "a larger one: longer chunks, $row" [ "$(field 8)" = 256K ]
if [ "$(nproc)" -ge 2 ]; then
    explain plain scan -b 1K -e 1K
    check "a flight costs little: all at once, $row" [ "$(field 3)" = direct ]
    explain slow_flights scan -b 1K -e 1K
    check "a flight is dear: few rounds, $row" [ "$(field 3)" = butterfly ]
else
    leave_out "slow flights: with one core the rules do not weigh them"
fi

for machine in slow_cma fast_cma slow_flights small_cache; do
    for collective in all_reduce all_to_all; do
        GYRE_TUNE=$W/$machine run "$UCX_RUN" -n 3 "$PERF" $collective -b 8 -e 1M -f 32 -n 2 -w 1 -c 1 -R 0
        want "$machine, $collective" 0
        check "$machine, $collective: right" grep -qE '^# Out of bounds values *: *0 OK' "$W/out"
    done
done
finish
