# tests/support/launch.sh: a ucx-run in the background whose ranks say when they are up; sourced after lib.sh, by tests that
# have job control on (`set -m`: background jobs do not ignore INT).
# shellcheck shell=bash disable=SC2034 # lib.sh's variables
# SPDX-License-Identifier: Apache-2.0

# launch_ranks N SCRIPT COMMAND...: COMMAND is ucx-run with its options. Its N ranks run SCRIPT (traps, say), note their numbers in
# $W/up.RANK and stay for half a minute. Returns when all are up; ucx-run's number is $launcher, its output in $W/out and $W/err.
launch_ranks() {
    local n=$1 script=$2
    shift 2
    rm -f "$W"/up.*
    "$@" bash -c "$script; echo \$\$ >$W/up.\$RANK; for i in {1..600}; do sleep 0.05; done; exit 0" >"$W/out" 2>"$W/err" &
    launcher=$!
    until_true 20 started "$n" || bad "the ranks did not start"
}
started() { [ "$(cat "$W"/up.* 2>/dev/null | wc -l)" -ge "$1" ]; }
# finished: waits for the end of $launcher; leaves $rc
finished() {
    until_true 20 gone "$launcher" || {
        bad "the job does not end"
        kill -9 "$launcher"
    }
    wait "$launcher" 2>/dev/null
    rc=$?
}
# noticed NAME PATTERN: waits until ucx-run's stderr has it
noticed() { until_true 10 grep -qE -- "$2" "$W/err" || bad "$1 was not noticed"; }
# interrupted_twice: once the first INT has been noticed, a second one
interrupted_twice() {
    kill -INT "$launcher"
    noticed "the first INT" 'once more kills'
    kill -INT "$launcher"
    finished
}
# Text for a rank's script: from here on the rank has an unfinished write, as comm_recorder_hold would note it in the rank's slot of
# the flight recorder (comm/recorder/recorder.h; test_recorder has the place), until $W/go exists; then $W/over comes.
HOLD='unfinished() {
    local slot=$(od -An -t u4 -j 12 -N 4 /proc/self/fd/$GYRE_RECORDER_FD)
    printf "\\$1\\0\\0\\0" | dd of=/proc/self/fd/$GYRE_RECORDER_FD bs=1 seek=$((4096 + GYRE_LOCAL_RANK * slot + 28)) conv=notrunc status=none
}
unfinished 1; { until [ -e '$W'/go ]; do sleep 0.05; done; unfinished 0; : >'$W'/over; } &'
