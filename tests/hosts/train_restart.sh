#!/bin/bash
# tests/hosts/train_restart.sh: a training run over 2 hosts x 2 ranks loses a host, is started anew by ucx-run on the other one,
# and goes on from its checkpoint: its loss curve and its weights are those of the run that nothing ended, to the bit.
# Once the lost host is the one without rank 0, once the one with it, and once rank 0's host is cut off while it lives: what
# its ranks still write to the disk that all share must not harm the run that goes on elsewhere.
#
# At last three hosts with one rank each, of which two are left: no power of two, and still the same bits.
#
# Hosts are namespaces (tests/lab/nethosts); needs root. The last host has only the launcher.
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../support/lib.sh"
[ -n "${NETHOSTS_PREFIX:-}" ] || printf -v NETHOSTS_PREFIX 'tr%04x' $(($$ & 0xffff))
export NETHOSTS_PREFIX
NH=tests/lab/nethosts
TRAIN=$B/bin/gyre-train
[ "$(id -u)" = 0 ] || skip "needs root for namespaces"
[ -x "$(command -v sshd || echo /usr/sbin/sshd)" ] || skip "no sshd: tools/setup hosts installs it"
trap '$NH down >/dev/null 2>&1; rm -rf "$W"' EXIT

awk 'BEGIN { for (i = 0; i < 900; i++) printf "line %d of %s has %d words, and %s\n", i, (i % 3 ? "verse" : "prose"),
    i * 7 % 23, (i % 5 ? "more follow." : "that is all."); }' >"$W/text"
MODEL=(--data "$W/text" --layers 2 --hidden 96 --heads 3 --seq 96 --batch 8 --steps 150 --eval-every 50 --eval-sequences 9
    --warmup 4 --sample-tokens 0 --report none)

hosts_up() { $NH up 4 --rate 1gbit --ttl 600 >/dev/null && $NH sshd >/dev/null; }
curve() { sed -E '/"config"/d; /"resumed"/d; s/,"tokens_per_second".*//; s/,"seconds".*//' "$1"; }
same() {
    curve "$W/log" >"$W/curve"
    check "$1: the curve is that of the run that nothing ended" cmp "$W/whole.curve" "$W/curve"
    check "$1: so are the weights" cmp "$W/whole.st" "$W/st"
}

# train OPTION...: on the hosts of $HOSTS, from host 3
HOSTS=${NETHOSTS_PREFIX}0:2,${NETHOSTS_PREFIX}1:2
train() {
    DEADLINE=150 run $NH exec 3 -- "$B/bin/ucx-run" -H "$HOSTS" --bind none --timeout 140 \
        "$@" -- "$TRAIN" "${MODEL[@]}" --log "$W/log" --save "$W/st" "${KEEP[@]}"
}

# lose NAME COMMAND...: the same with one restart; COMMAND once the log holds step 45
lose() {
    local name=$1 told waiting
    shift
    $NH down >/dev/null 2>&1
    hosts_up || {
        bad "$name: no hosts"
        return
    }
    rm -rf "$W/log" "$W/st" "$W/checkpoints" "$W/when"
    (
        until_true 100 grep -qs '"step":45,' "$W/log" && date +%s.%N >"$W/when" && "$@"
        # the first sign of the new start
        until_true 60 grep -qs '"resumed"' "$W/log" && date +%s.%N >>"$W/when"
    ) &
    waiting=$!
    train --max-restarts 1
    wait $waiting
    want "$name" 0 "host .* is lost"
    same "$name"
    told=$(sed -nE 's/.*"resumed":([0-9]+),"ranks":([0-9]+).*/step \1 on \2 ranks/p' "$W/log")
    echo "$name: the run went on behind ${told:-?}, $(awk 'NR == 1 { a = $1 } NR == 2 { printf "%.1f s", $1 - a }' "$W/when") after the loss"
    check "$name: it went on, with two ranks" grep -q '"resumed":[1-9][0-9]*,"ranks":2}' "$W/log"
    grep -hE "died|lost|newest checkpoint|anew|restart" "$W/err" | sed 's/^/    /'
}

hosts_up || skip "no hosts can be made here"
KEEP=()
train
want "the run that nothing ends" 0
mv "$W/st" "$W/whole.st"
curve "$W/log" >"$W/whole.curve"
check "it has all its steps" [ "$(grep -c '"step"' "$W/whole.curve")" = 150 ]
KEEP=(--checkpoint "$W/checkpoints" --checkpoint-every 10 --resume)
lose "the host without rank 0 crashes" $NH crash 1
lose "the host with rank 0 crashes" $NH crash 0
lose "the host with rank 0 is cut off and lives" $NH cut 0
HOSTS=${NETHOSTS_PREFIX}0:1,${NETHOSTS_PREFIX}1:1,${NETHOSTS_PREFIX}2:1
lose "one of three hosts crashes" $NH crash 2
finish
