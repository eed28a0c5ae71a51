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
. "$(dirname "$0")/../support/measuring.sh"

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
}
victim_of 2 shm
victim_of 0 shm
victim_of 3 ucx
[ "$errors" = 0 ] || sed 's/^/    err: /' "$W/err" | head -30
finish
