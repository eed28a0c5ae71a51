#!/bin/bash
# tests/system/mishaps.sh: a rank of 64 that is killed, a launcher that is killed, every mishap of GYRE_FAULT, --timeout, and
# ranks that are stopped: the others print an error that names the rank, and nobody stays. tests/system/failures.sh measures
# how soon.
# deadline: 180
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../support/lib.sh"
. "$(dirname "$0")/../support/measuring.sh"

# Among as many ranks as a node has, in an exchange of outboxes: nobody hangs.
GYRE_FAULT=5:200:kill "$UCX_RUN" -n 64 --timeout 60 "$PERF" all_reduce -b 8 -e 8 -n 1000000 -w 5 -c 0 \
    >"$W/out" 2>"$W/err"
rc=$?
want "kill -9 of rank 5 of 64" 137 "rank 5 \(pid .*\) killed by signal 9 \(SIGKILL\)"
check "a survivor of 64 names rank 5" grep -qE "^gyre\[[0-9]+\] error: .*rank 5 died" "$W/err"

# The same when ucx-run itself is killed: nobody stays.
"$UCX_RUN" -n 4 "$PERF" all_reduce -b 4K -e 4K -n 1000000 -c 0 >"$W/out" 2>"$W/err" &
launcher=$!
until_true 20 ranks_are 4 || bad "4 ranks did not start"
measuring
pids=$(pids_of "$launcher")
kill -9 "$launcher"
wait "$launcher" 2>/dev/null
for pid in $pids; do
    check "rank with pid $pid is gone" until_true 5 gone "$pid"
done

# Every mishap of GYRE_FAULT ends at both survivors with an error that names rank 1.
fault() { # KIND TEXT [SETTING...]: at the survivors' errors
    local kind=$1 text=$2
    shift 2
    run env GYRE_FAULT="1:20:$kind" GYRE_TIMEOUT=3 GYRE_HEARTBEAT=1 "$@" "$UCX_RUN" -n 3 --timeout 20 "$PERF" all_reduce -b 8 -e 8 -n 100 -c 0
    checks=$((checks + 1))
    [ "$rc" != 0 ] || bad "$kind is no error"
    check "$kind: rank 0 or 2 says it" grep -qE "^gyre\\[[02]\\] error: .*$text" "$W/err"
}
fault kill 'rank 1 died: its connection closed'
fault exit 'rank 1 died: it ended \(exit\) without gyre_finalize'
fault stop 'rank 1 died: silent for [1-9]\.[0-9] s'
# who looks first names itself last
fault disagree '(called all_reduce #20 .*, but rank 1 called barrier #20|rank 1 called barrier #20, but rank [02] called all_reduce #20)'
fault stuck 'rank 1 on host .* keeps it waiting: it is in no call; its last calls: all_reduce #19'
# three ranks on two cores take long to begin over UCX: rank 0 may be seconds late to the first call
fault stuck 'rank 1 on host .* keeps it waiting: it is in no call; its last calls: all_reduce #19' GYRE_HOST_RANKS=1 GYRE_TUNE=none GYRE_TIMEOUT=6

# --timeout says what the ranks were doing.
run "$UCX_RUN" -n 2 --timeout 2 "$PERF" all_reduce -b 4K -e 4K -n 100000000 -c 0
want "--timeout names the operation" 124 'rank 0 \(pid [0-9]+\): .*all_reduce #[0-9]+ \(count 1024, float, sum\)' 'rank 1'

# Rank 1 of N is stopped while the ranks measure: the job ends, with an error.
stopped() { # N SETTING...
    local ranks=$1
    shift
    env "$@" "$UCX_RUN" -n "$ranks" --timeout 30 "$PERF" all_reduce -b 4K -e 4K -n 100000000 -c 0 >"$W/out" 2>"$W/err" &
    launcher=$!
    until_true 20 ranks_are "$ranks" || bad "$ranks ranks did not start"
    measuring
    kill -STOP "$(pids_of "$launcher" | sed -n 2p)"
    until_true 20 gone "$launcher" || bad "a stopped rank hangs the job"
    wait "$launcher"
    rc=$?
    checks=$((checks + 1))
    [ "$rc" != 0 ] || bad "a stopped rank is no error"
}
# Stopped is as good as dead: the heartbeat notices.
stopped 4 GYRE_HEARTBEAT=1
for survivor in 0 2 3; do
    check "rank $survivor names rank 1" grep -qE "^gyre\[$survivor\] error: .*rank 1 died: silent for [1-9]\.[0-9] s" "$W/err"
done

# Without a heartbeat nobody waits for it beyond the deadline.
stopped 2 GYRE_HEARTBEAT=0 GYRE_TIMEOUT=2
check "the survivor names rank 1" grep -qE '^gyre\[0\] error: .*rank 1\b' "$W/err"
[ "$errors" = 0 ] || sed 's/^/    err: /' "$W/err" | head -30
finish
