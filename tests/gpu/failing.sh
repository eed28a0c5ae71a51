#!/bin/bash
# tests/gpu/failing.sh: the k-th call of CUDA of one rank fails, once for lack of memory or from then on (tests/failing/test_failing.c);
# a sample of k, with TEST_LONG=1 all.
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../support/lib.sh"
T=$B/emulated/tests/failing/test_failing
[ -x "$T" ] || skip "no emulated build here (make emulated)"
export EMULATED_GUARD=1
every=47
[ -n "${TEST_LONG:-}" ] && every=1
# sweep FIRST SCENARIO RANK KIND
sweep() {
    DEADLINE=100000 run "$T" "$2" "$3" "$4" "$1/$every"
    checks=$((checks + 1))
    grep -qE '^[0-9]{2,} runs, 0 failed|^[3-9] runs, 0 failed' "$W/out" || bad "$2, rank $3, $4: $(grep -v '^  ' "$W/out")"
}
for scenario in direct staged; do
    for rank in 0 1; do
        sweep $((1 + 11 * rank)) $scenario $rank cuda
        sweep $((5 + 11 * rank)) $scenario $rank lost
    done
done
finish
