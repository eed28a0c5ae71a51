#!/bin/bash
# tests/system/failures.sh: kill -9 of one rank of 4 during gyre-perf: the others print an error that names it, the job
# is gone within 2 s, nothing is left in /dev/shm, TMPDIR or the process table.
# deadline: 180
# alone: 1, for it measures how soon survivors notice; where others want the cores, that is left out
# Others may leave files in /dev/shm meanwhile, so the test has one of its own: root's mount namespace, or a user
# namespace where those are permitted.
# SPDX-License-Identifier: Apache-2.0
if [ "${1:-}" != inside ]; then
    space=(unshare -m)
    [ "$(id -u)" = 0 ] || space=(unshare -rm)
    mounts='mount -t tmpfs none /dev/shm'
    if "${space[@]}" sh -c "$mounts" 2>/dev/null; then
        exec "${space[@]}" bash -c "$mounts && exec bash \"\$0\" inside" "$0"
    fi
fi
. "$(dirname "$0")/../support/lib.sh"
[ "${1:-}" = inside ] || leave_out "what stays in /dev/shm: no tmpfs may be mounted here (${space[*]})"
mkdir "$W/tmp"
OWN_SHM=${1:-}
left_in_shm() { [ -z "$OWN_SHM" ] || ls -A /dev/shm; }
pids_of() { # LAUNCHER: its ranks, in order of rank
    local dir stat
    for dir in /proc/[0-9]*; do
        { read -r stat <"$dir/stat"; } 2>/dev/null || continue
        stat=${stat##*) }
        stat=${stat#* }
        [ "${stat%% *}" = "$1" ] || continue
        tr '\0' '\n' 2>/dev/null <"$dir/environ" | sed -n "s/^GYRE_RANK=\(.*\)/\1 ${dir#/proc/}/p"
    done | sort -n | cut -d' ' -f2
}
ranks_are() { [ "$(pids_of "$launcher" | wc -l)" = "$1" ]; }
# The ranks know each other and measure: what ends one now, ends it in a collective.
measuring() {
    until_true 20 grep -qF '(us)' "$W/out" || bad "the job does not begin to measure"
    sleep 0.3
}

victim_of() { # RANK TRANSPORT
    local rank=$1 transport=$2 from victim pids
    TMPDIR=$W/tmp "$UCX_RUN" -n 4 --timeout 60 "$PERF" all_reduce -b 4K -e 64K -f 2 -n 1000000 -w 5 -c 0 --transport "$transport" \
        >"$W/out" 2>"$W/err" &
    launcher=$!
    until_true 20 ranks_are 4 || bad "4 ranks did not start"
    measuring
    pids=$(pids_of "$launcher")
    victim=$(echo "$pids" | sed -n "$((rank + 1))p")
    from=${EPOCHREALTIME/[.,]/}
    kill -9 "$victim"
    until_true 20 gone "$launcher" || bad "rank $rank, $transport: the job hangs"
    ms=$(((${EPOCHREALTIME/[.,]/} - from) / 1000))
    wait "$launcher"
    rc=$?
    want "kill -9 of rank $rank over $transport" 137 "rank $rank \(pid $victim, .*\) killed by signal 9 \(SIGKILL\)"
    # three survivors, each with a line of its own that names the dead one
    for survivor in 0 1 2 3; do
        [ $survivor != "$rank" ] || continue
        check "rank $survivor names rank $rank ($transport)" grep -qE "^gyre\[$survivor\] error: .*rank $rank\b" "$W/err"
    done
    timed "gone within 2 s (took $ms ms, $transport)" [ "$ms" -lt 2000 ]
    for pid in $pids; do
        check "process $pid is gone" test ! -e "/proc/$pid"
    done
    check "nothing in TMPDIR" test -z "$(ls -A "$W/tmp")"
    check "nothing in /dev/shm" test -z "$(left_in_shm)"
    [ "$errors" = 0 ] || sed 's/^/    err: /' "$W/err" | head -30
}
victim_of 2 shm
victim_of 0 shm
victim_of 3 ucx

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
fault stop 'rank 1 died: silent for 1\.[0-9] s'
# who looks first names itself last
fault disagree '(called all_reduce #20 .*, but rank 1 called barrier #20|rank 1 called barrier #20, but rank [02] called all_reduce #20)'
fault stuck 'rank 1 on host .* keeps it waiting: it is in no call; its last calls: all_reduce #19'
fault stuck 'rank 1 on host .* keeps it waiting: it is in no call; its last calls: all_reduce #19' GYRE_HOST_RANKS=1

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
    check "rank $survivor names rank 1" grep -qE "^gyre\[$survivor\] error: .*rank 1 died: silent for 1\.[0-9] s" "$W/err"
done

# Without a heartbeat nobody waits for it beyond the deadline.
stopped 2 GYRE_HEARTBEAT=0 GYRE_TIMEOUT=2
check "the survivor names rank 1" grep -qE '^gyre\[0\] error: .*rank 1\b' "$W/err"
[ "$errors" = 0 ] || sed 's/^/    err: /' "$W/err" | head -30
finish
