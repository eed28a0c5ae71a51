#!/bin/bash
# tests/optim/kills.sh: kill -9 at random moments of runs that write a checkpoint every three steps, each start in another layout; a rank or
# all of them die, also while shards are written, while rank 0 puts them together, and at the start. In the end log and
# weights are those of the run that nothing ended.
#   TEST_LONG=1: 200 moments instead of 4; MOMENTS=N: so many.  SEED=N: other choices than those of seed 1. What a moment
#   meets is the machine's: the same seed repeats layouts, pauses and victims, not what they were doing.
# deadline: 120
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../support/lib.sh"
TRAIN=$B/bin/gyre-train
export DEADLINE=100
CK=$W/checkpoints
for i in $(seq 0 899); do
    echo "the $((i * i % 97)) quick brown foxes jump over $((i % 13)) lazy dogs"
done >"$W/text"
RUN=(--data "$W/text" --layers 4 --hidden 32 --heads 4 --seq 32 --batch 8 --leaves 4 --steps 60 --eval-every 20 --eval-sequences 4
    --warmup 4 --sample-tokens 0 --peak-flops 1e9 --report none --progress none --log "$W/log" --save "$W/st")
layouts=("1 " "2 " "4 --zero 3" "4 --tp 4" "4 --pp 4" "4 --tp 2 --pp 2 --sequence-parallel" "3 --zero 2" "4 --pp 2 --zero 1 --schedule zb-v" "2 --zero 1")
moments=${MOMENTS:-4}
[ -z "${TEST_LONG:-}" ] || moments=${MOMENTS:-200}

curve() { sed -nE '/"step"/{s/,"seconds".*//;s/,"tokens_per_second".*//;p}' "$1"; }
same() { # NAME
    check "$1: the curve is the uninterrupted one" cmp "$W/one.curve" <(curve "$W/log")
    check "$1: so are the weights" cmp "$W/one.st" "$W/st"
}
fresh() { rm -rf "$CK" "$W/log" "$W/st"; }
# nobody TEXT: no process trains on it any more
nobody() { ! grep -qsa -- "$1" /proc/[0-9]*/cmdline 2>/dev/null; }
# of_kill: the run ended because of kill -9, of a rank or of the launcher; no rank crashed, no start was refused
of_kill() {
    [ -n "$killed" ] && { [ "$rc" = 137 ] || grep -q 'killed by signal 9 ' "$W/err"; } &&
        ! grep -qE 'killed by signal (4|6|7|8|11) |is not used|is damaged|holds the checkpoints' "$W/err" && return
    sed 's/^/    err: /' "$W/err" | head -20
    return 1
}

run "$TRAIN" "${RUN[@]}"
want "the run that nothing ends" 0
mv "$W/st" "$W/one.st"
curve "$W/log" >"$W/one.curve"

RANDOM=${SEED:=1}
echo "random moments: SEED=$SEED"
fresh
deaths=0
ends=0
while [ $deaths -lt "$moments" ]; do
    layout=${layouts[RANDOM % ${#layouts[@]}]}
    # shellcheck disable=SC2086 # a list of options
    setsid "$UCX_RUN" -n $((${layout%% *})) --timeout 25 --kill-grace 1 "$TRAIN" "${RUN[@]}" ${layout#* } \
        --checkpoint "$CK" --checkpoint-every 3 --resume >"$W/out" 2>"$W/err" &
    pid=$!
    sleep "$((RANDOM % 10 / 7)).$((RANDOM % 10))$((RANDOM % 10))"
    # one of the ranks, or all of them with their launcher
    victim=$pid killed=''
    one=$((RANDOM % 2)) which=$RANDOM # drawn alike, however many are there
    if [ $one = 1 ]; then
        mapfile -t ranks < <(pgrep -f -- "^$TRAIN .*$W/text" | sort -n)
        victim=''
        [ ${#ranks[@]} = 0 ] || victim=${ranks[which % ${#ranks[@]}]}
    fi
    if [ -n "$victim" ] && kill -9 "$victim" 2>/dev/null; then
        deaths=$((deaths + 1))
        killed=1
    fi
    { wait $pid; } 2>/dev/null
    rc=$?
    check "$layout: no rank is left" until_true 20 nobody "$W/text"
    if [ $rc = 0 ]; then # it was over before
        ends=$((ends + 1))
        same "after $deaths deaths, at last with $layout"
        fresh
    else
        check "$layout: ended with $rc, by the kill alone" of_kill
    fi
done
run "$UCX_RUN" -n 2 --timeout 90 "$TRAIN" "${RUN[@]}" --checkpoint "$CK" --checkpoint-every 3 --resume
want "after $deaths deaths" 0
same "after $deaths deaths"
check "nothing half-written stays" bash -c "! ls -A '$CK' | grep '^[.]'"
echo "$deaths deaths, $((ends + 1)) runs"
finish
