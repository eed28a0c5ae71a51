#!/bin/bash
# tests/collectives/comms/split.sh: what mp_split cannot see of itself: the system calls of a split, and what the others get when a
# rank dies or stops in the middle of one.
# takes: 3
# deadline: 150
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../../support/lib.sh"
SPLIT=$B/tests/collectives/comms/mp_split
export DEADLINE=60

# In each of its two exchanges, the rank that makes one of the communicators, and another one, which makes none.
dies() { # KIND RANK EXCHANGE TEXT
    run env GYRE_FAULT="$2:$3:$1" "$UCX_RUN" -n 4 --no-kill-on-bad-exit --timeout 20 --kill-grace 1 "$SPLIT" dead
    local others
    others=$(grep -cE "rank $2 (\(world rank [0-9]\) )?died: $4" "$W/out")
    check "$1 of rank $2 in exchange $3: $others of 3 others say it" [ "$others" = 3 ]
}
for exchange in 41 42; do
    dies kill 0 "$exchange" 'its connection closed'
    dies kill 3 "$exchange" 'its connection closed'
done

run env GYRE_FAULT=2:3:kill "$UCX_RUN" -n 3 --no-kill-on-bad-exit --timeout 30 "$SPLIT" survive
want "two ranks split after a death" 137

# The first death cuts the tree, and no word of the second comes to rank 3. ucx-run would end it at --timeout.
run "$UCX_RUN" -n 4 --no-kill-on-bad-exit --timeout 20 "$SPLIT" second
check "a second death is noticed" grep -qx heard "$W/out"

# One of two ranks has the communicator, and the other one gets the parent's error: the first one's calls do not wait for it.
run env GYRE_FAULT=0:3:stop "$UCX_RUN" -n 2 --timeout 30 "$SPLIT" half
want "the parent is aborted between two ranks of a split" 0

command -v strace >/dev/null || skip "strace is not installed"
strace -f -o /dev/null true 2>/dev/null || skip "ptrace is not permitted here"

# All but what waits, and the look at where the thread may run.
calls() { # TIMES
    run strace -fc -o "$W/calls" "$UCX_RUN" -n 2 --timeout 50 "$SPLIT" loop "$1"
    want "$1 splits" 0
    awk '$NF !~ /^(total|sched_yield|futex|membarrier|sched_getaffinity|getrusage)$/ && $4 ~ /^[0-9]+$/ { sum += $4 } END { print sum + 0 }' "$W/calls"
}
few=$(calls 100)
many=$(calls 600)
check "something was counted" [ "$few" -gt 100 ]
check "500 splits on each of 2 ranks: $((many - few)) system calls more" [ $((many - few)) -lt 100 ]
finish
