#!/bin/bash
# tests/tools/train/test_signals.sh: SIGTERM and SIGINT save first and end with 128 plus the signal, so that nobody takes the run
# for a whole one; SIGUSR1 saves and goes on.
# deadline: 150
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../../support/lib.sh"
TRAIN=$B/bin/gyre-train
CK=$W/checkpoints
awk 'BEGIN { for (i = 0; i < 60000; i++) printf "line %d of verse has %d words, and more follow.\n", i, i * 7 % 23 }' >"$W/text"
MODEL=(--data "$W/text" --layers 2 --hidden 64 --heads 2 --seq 64 --batch 4 --warmup 2 --sample-tokens 0 --peak-flops 1e9 --report none --progress none
    --log "$W/log")
RUN=("${MODEL[@]}" --checkpoint "$CK" --checkpoint-every 0)
ENDLESS=("${RUN[@]}" --steps 1000000 --eval-every 0 --eval-sequences 4)

steps() { (cd "$CK" 2>/dev/null && echo step-*) | sed 's/step-0*//g'; }
logged() { grep -cs '"step"' "$W/log"; }
fresh() { rm -rf "$CK" "$W/log"; }
begin() { # COMMAND...: in the background, as $pid, with default signals (a shell's & leaves SIGINT ignored)
    rm -f "$W/out" "$W/err" # what the last command said is not this one's
    python3 -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execvp(sys.argv[1], sys.argv[1:])' "$@" >"$W/out" 2>"$W/err" &
    pid=$!
}
ends() { # NAME CODE: soon
    check "$1: soon" until_true 20 gone $pid
    kill -9 $pid 2>/dev/null
    wait $pid 2>/dev/null
    rc=$?
    want "$1" "$2"
}

# ---- a signal ends the run, with a checkpoint of its last step
for signal in TERM:143 INT:130; do
    name=${signal%:*}
    fresh
    begin "$TRAIN" "${ENDLESS[@]}"
    until_true 20 grep -qs '"step":3,' "$W/log"
    kill -"$name" $pid
    ends "SIG$name" "${signal#*:}"
    check "SIG$name: a checkpoint of the last step" [ "$(steps)" = "$(logged)" ]
    check "SIG$name: is said" grep -q "^stopped by SIG$name after step $(logged)$" "$W/out"
    check "SIG$name: the log has its end" grep -q weights_hash "$W/log"
done

# ---- the checkpoint comes before the validation, which takes minutes here
begin "$TRAIN" "${ENDLESS[@]}" --resume --eval-sequences 1000000
from=$(logged)
later() { [ "$(logged)" -gt "$from" ]; }
until_true 20 later
kill -TERM $pid
kill -TERM $pid # a scheduler signals the ranks, and ucx-run, which passes it on
ends "a long validation" 143
check "a long validation: a checkpoint of the last step" grep -qE "(^| )$(logged)$" <<<"$(steps)"
check "a long validation: is left out" [ "$(grep -c val_loss <<<"$(grep '"step"' "$W/log")")" = 0 ]

# ---- also when it is under way: before the first step, and after the sixth
fresh
begin "$TRAIN" "${RUN[@]}" --steps 1000000 --eval-sequences 1000000
until_true 20 grep -qs tokens "$W/out"
kill -TERM $pid
ends "the first validation" 143
check "the first validation: says so" grep -q "^validation loss  was not measured" "$W/out"
fresh
begin "$TRAIN" "${ENDLESS[@]}"
until_true 20 grep -qs '"step":3,' "$W/log"
kill -TERM $pid
ends "to go on from" 143
from=$(logged)
begin "$UCX_RUN" -n 2 "$TRAIN" "${ENDLESS[@]}" --resume --eval-every $((from + 2)) --eval-sequences 1000000
until_true 20 later
sleep 0.5 # now it validates, unless this machine is very slow
kill -TERM $pid
ends "a validation that is under way" 143
check "a validation that is under way: a checkpoint of the last step" grep -qE "(^| )$(logged)$" <<<"$(steps)"

# ---- SIGUSR1: a checkpoint, and the run goes on
fresh
begin "$UCX_RUN" -n 2 "$TRAIN" "${RUN[@]}" --steps 400 --eval-every 0 --eval-sequences 4 --zero 1
until_true 20 grep -qs '"step":3,' "$W/log"
kill -USR1 $pid
saved() { compgen -G "$CK/step-*" >/dev/null; }
check "SIGUSR1: a checkpoint at once" until_true 20 saved
check "SIGUSR1: before the end" [ "$(logged)" -lt 400 ]
check "SIGUSR1: each rank gets it, and one or two are written" [ "$(steps | wc -w)" -le 2 ]
ends "SIGUSR1: the run goes on" 0
check "SIGUSR1: to its end" grep -qE " 400$" <<<"$(steps)"
fresh
begin "$TRAIN" "${MODEL[@]}" --steps 300 --eval-sequences 4
until_true 20 grep -qs '"step":3,' "$W/log"
kill -USR1 $pid
ends "SIGUSR1 without --checkpoint" 0
want "SIGUSR1 without --checkpoint: is said" 0 "SIGUSR1: there is no --checkpoint to save to"

# ---- under ucx-run: what its caller sees; one rank that gets SIGTERM ends all, and a launcher that restarts goes on
fresh
begin "$UCX_RUN" -n 2 --max-restarts 3 "$TRAIN" "${ENDLESS[@]}" --zero 1
until_true 20 grep -qs '"step":3,' "$W/log"
kill -TERM $pid
ends "ucx-run" 143
check "ucx-run: it is not started anew" [ "$(grep -c resumed "$W/log")" = 0 ]
check "ucx-run: a checkpoint of the last step" [ "$(steps)" = "$(logged)" ]
fresh
begin "$UCX_RUN" -n 2 --max-restarts 1 "$TRAIN" "${RUN[@]}" --steps 120 --eval-every 0 --eval-sequences 4 --zero 1
until_true 20 grep -qs '"step":3,' "$W/log"
rank=$(pgrep -P $pid -f gyre-train | tail -1)
kill -TERM "$rank"
check "one rank: the job is started anew" until_true 20 grep -qs '"resumed"' "$W/log"
ends "one rank: and ends well" 0
check "one rank: no step was made twice" [ "$(logged)" = 120 ]
check "one rank: ucx-run says why" grep -q "exited with code 143" "$W/err"
finish
