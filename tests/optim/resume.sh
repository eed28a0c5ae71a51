#!/bin/bash
# tests/optim/resume.sh: checkpoints of a training run. Whatever ends a run (kill -9 of a rank, of all, a signal), the same
# command goes on from the newest good checkpoint, on any number of ranks, and its log and weights are those of the
# run that nothing ended, byte for byte. What is damaged is named and passed over; what cannot be written stops nothing.
# deadline: 240
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../support/lib.sh"
TRAIN=$B/bin/gyre-train
CK=$W/checkpoints
awk 'BEGIN { for (i = 0; i < 900; i++) printf "line %d of %s has %d words, and %s\n", i, (i % 3 ? "verse" : "prose"),
    i * 7 % 23, (i % 5 ? "more follow." : "that is all."); }' >"$W/text"
MODEL=(--data "$W/text" --layers 2 --hidden 48 --heads 3 --seq 24 --batch 8 --steps 60 --eval-every 8 --eval-sequences 9
    --warmup 4 --sample-tokens 0 --peak-flops 1e9 --report none)
KEEP=(--checkpoint "$CK" --checkpoint-every 5)

# The part of a log that bits decide, without the lines that tell who computed it.
curve() { sed -E '/"config"/d; /"resumed"/d; s/,"tokens_per_second".*//; s/,"seconds".*//' "$1"; }
same() { # NAME: the last run's log and weights are those of the uninterrupted run
    curve "$W/log" >"$W/curve"
    check "$1: the curve is the uninterrupted one" cmp "$W/one.curve" "$W/curve"
    check "$1: so are the weights" cmp "$W/one.st" "$W/st"
}
steps() { # the checkpoints' steps, newest last
    (cd "$CK" && echo step-*) | sed 's/step-0*//g'
}
train() { # RANKS OPTION...
    local ranks=$1
    shift
    run "$UCX_RUN" -n "$ranks" --timeout 25 "$TRAIN" "${MODEL[@]}" --log "$W/log" --save "$W/st" "$@"
}
fresh() { rm -rf "$CK" "$W/log" "$W/st"; }

# rewind STEP: the checkpoints behind STEP were never written
rewind() {
    local step
    for step in $(steps); do
        [ "$step" -le "$1" ] || rm -r "$(printf %s/step-%012d "$CK" "$step")"
    done
}

# ---- the run that nothing ends
train 1
want "the run without checkpoints" 0
mv "$W/st" "$W/one.st"
curve "$W/log" >"$W/one.curve"

fresh
train 2 "${KEEP[@]}"
want "with checkpoints" 0
same "with checkpoints"
check "the last two stay" [ "$(steps)" = "55 60" ]
check "nothing half-written stays" bash -c "! ls -A '$CK' | grep -q '^[.]'"
train 2 "${KEEP[@]}"
want "a second run in the same folder" 2 "holds the checkpoints of a run \(the newest of step 60\): give --resume"
rm "$W/st"
train 2 "${KEEP[@]}" --resume
want "a run that has ended goes on" 0
same "a run that has ended"
check "no step was made twice" [ "$(grep -c '"step"' "$W/log")" = 60 ]

# A launcher that starts the job anew means --resume, for what this launch itself has written. Each is told apart by its id.
for launcher in GYRE_RESTART/GYRE_LAUNCH TORCHELASTIC_RESTART_COUNT/TORCHELASTIC_RUN_ID SLURM_RESTART_COUNT/SLURM_JOB_ID; do
    count=${launcher%/*} id=${launcher#*/}
    run env "$count"=1 "$id"=other "$TRAIN" "${MODEL[@]}" "${KEEP[@]}"
    want "started anew by $count, but another launch" 2 "holds the checkpoints of a run .*this launch has not written them"
    run env "$count"=1 "$id"=none "$TRAIN" "${MODEL[@]}" "${KEEP[@]}"
    want "started anew by $count, which has no id" 2 "this launch has not written them"
    run env "$count"=0 "$id"=mine "$TRAIN" "${MODEL[@]}" --log "$W/log" "${KEEP[@]}" --resume
    want "started by $count" 0
    run env "$count"=1 "$id"=mine "$TRAIN" "${MODEL[@]}" --log "$W/log" "${KEEP[@]}"
    want "started anew by $count" 0
    check "started anew by $count: it goes on" grep -q '"resumed":60' "$W/log"
done
run "$UCX_RUN" -n 2 --timeout 25 sh -c '[ $GYRE_RANK = 1 ] || export SLURM_RESTART_COUNT=2 SLURM_JOB_ID=mine; exec "$@"' sh "$TRAIN" \
    "${MODEL[@]}" --log "$W/log" "${KEEP[@]}"
want "only rank 0 knows that it was started anew" 0
check "and all go on" grep -q '"resumed":60,"ranks":2' "$W/log"
run env SLURM_RESTART_COUNT=0 SLURM_JOB_ID=mine "$TRAIN" "${MODEL[@]}" "${KEEP[@]}"
want "started for the first time" 2 "holds the checkpoints of a run"

# ---- a start that is refused touches nothing, however often a launcher tries, and whoever writes there now goes on
mkdir "$CK/.step-000000000065.new-$(uname -n)-$$"
(cd "$CK" && ls -lA --time-style=full-iso) >"$W/before"
run "$UCX_RUN" -n 2 --timeout 25 --max-restarts 2 "$TRAIN" "${MODEL[@]}" "${KEEP[@]}"
want "--max-restarts in the folder of another run" 2 "holds the checkpoints of a run" "not started anew: code 2"
run env GYRE_RESTART=1 "$TRAIN" "${MODEL[@]}" "${KEEP[@]}"
want "started anew without an id" 2 "this launch has not written them"
(cd "$CK" && ls -lA --time-style=full-iso) >"$W/after"
check "the folder is as it was" cmp "$W/before" "$W/after"
cp "$CK/launch" "$W/launch"
run "$UCX_RUN" -n 1 --timeout 25 --max-restarts 1 "$TRAIN" "${MODEL[@]}" "${KEEP[@]}" --resume --lr 0.7
want "--resume with another rate" 2 "--lr is 0.7, but the run in"
check "the folder says as before who writes there" cmp "$W/launch" "$CK/launch"

# ---- another number of ranks each time
all=(--checkpoint "$CK" --checkpoint-every 5 --checkpoint-keep 100)
for ranks in "4 2 1" "2 4 3"; do
    read -r a b c <<<"$ranks"
    fresh
    train "$a" "${all[@]}"
    rewind 15
    train "$b" "${all[@]}" --resume --micro-batch 2
    want "$ranks ranks: the second" 0
    check "$ranks ranks: it goes on behind step 15" grep -q '{"resumed":15,"ranks":'"$b}" "$W/log"
    rewind 40
    train "$c" "${KEEP[@]}" --resume --bucket-bytes 16K
    want "$ranks ranks: the third" 0
    same "$ranks ranks"
    check "$ranks ranks: the log says who went on where" [ "$(grep -c '"resumed":\(15\|40\),' "$W/log")" = 2 ]
    check "$ranks ranks: the old checkpoints go" [ "$(steps)" = "55 60" ]
done

# ---- a signal: the run ends with a checkpoint of the present step
fresh
"$TRAIN" "${MODEL[@]}" --log "$W/log" --save "$W/st" "${KEEP[@]}" --checkpoint-every 0 >"$W/out" 2>&1 &
pid=$!
until_true 20 grep -qs '"step":9,' "$W/log"
kill -STOP $pid
for resume in "" --resume; do # a run that goes on is not resumed, nor is another begun in its folder
    # shellcheck disable=SC2086 # an option or none
    train 2 "${KEEP[@]}" $resume
    want "while the run goes on ($resume)" 2 "$CK is in use: process $pid on $(uname -n) .*remove $CK/lock"
done
# one that a launcher has started anew waits, but not until its other ranks give up
run env SLURM_JOB_ID=1 SLURM_RESTART_COUNT=1 GYRE_TIMEOUT=4 "$UCX_RUN" -n 2 "$TRAIN" "${MODEL[@]}" "${KEEP[@]}" --resume
want "while the run goes on, started anew" 2 "$CK is in use by process $pid on .*: waiting at most 2 s" "$CK is in use: process $pid on "
kill -TERM $pid
kill -CONT $pid
wait $pid
check "a run that a signal ends returns 143" [ $? = 143 ]
check "it leaves no lock" [ ! -e "$CK/lock" ]
check "a run that a signal ends leaves one checkpoint" [ "$(steps | wc -w)" = 1 ]
train 1 "${KEEP[@]}" --resume
want "goes on behind it" 0
curve "$W/log" | sed -E 's/"val_loss":[^,]*,//' >"$W/curve"
check "behind a signal: the same curve, but for one more validation" \
    diff <(sed -E 's/"val_loss":[^,]*,//' "$W/one.curve") "$W/curve"
check "behind a signal: the same weights" cmp "$W/one.st" "$W/st"

# ---- damage: what is wrong is named, and the one before is taken
spoil() { # NAME PATTERN COMMAND...: runs COMMAND in the newest checkpoint
    local name=$1 pattern=$2
    shift 2
    fresh
    cp -a "$W/good" "$CK"
    cp "$W/good.log" "$W/log"
    (cd "$CK/step-000000000040" && eval "$*")
    train 2 "${KEEP[@]}" --resume
    want "$name" 0 "$pattern" "the checkpoint of step 40 in $CK is not used"
    check "$name: told once" [ "$(grep -c 'is not used' "$W/err")" = 1 ]
    check "$name: the one before is taken" grep -q '"resumed":35' "$W/log"
    same "$name"
}
fresh
train 2 "${all[@]}"
rewind 40
rm -r "$CK"/step-0000000000[012]* "$CK/step-000000000030"
{ sed '/"step":43,/,$d' "$W/log" && printf '{"step":43,"loss":1.'; } >"$W/good.log" # killed while it wrote a line
mv "$CK" "$W/good"
spoil "cut off" "shard-00000.safetensors has 1000 bytes instead of" truncate -s 1000 shard-00000.safetensors
spoil "one bit" "shard-00000.safetensors is damaged: its checksum is" \
    "printf X | dd of=shard-00000.safetensors bs=1 seek=9000 conv=notrunc status=none"
spoil "a file is missing" "cannot open .*shard-00000.safetensors" rm shard-00000.safetensors
spoil "no index" "cannot open .*index.json" rm index.json
spoil "half an index" "index.json:[0-9]+: is damaged" truncate -s 300 index.json
spoil "a changed figure" "index.json is damaged: its checksum does not fit" "sed -i 's/\"ranks\": 2/\"ranks\": 4/' index.json"
spoil "a foreign index" "index.json is not the index of a training checkpoint" "echo '{\"step\": 40}' >index.json"
spoil "the first version" "is of Gyre's first version.* give its model.safetensors to --load" \
    "sed -i 's/\"version\": 2/\"version\": 1/' index.json"
spoil "a renamed checkpoint" "index.json is of step 35: the folder was renamed" cp ../step-000000000035/index.json .
check "the damaged ones are replaced or gone" [ "$(steps)" = "55 60" ]
fresh
cp -a "$W/good" "$CK"
truncate -s 5 "$CK"/*/index.json
mkdir "$CK/.step-000000000045.new-host-1"
echo x >"$CK/.step-000000000045.new-host-1/model.safetensors"
touch -d '2 hours ago' "$CK/.step-000000000045.new-host-1" "$CK/.step-000000000045.new-host-1/model.safetensors"
train 2 "${KEEP[@]}" --resume
want "no good one" 0 "step 40 in .* is not used" "step 35 in .* is not used"
check "begins with step 1" grep -q "no checkpoint in $CK yet: beginning with step 1" "$W/out"
same "no good one"
check "the rest of a killed writer is gone" [ ! -e "$CK/.step-000000000045.new-host-1" ]

# ---- two runs in one folder: which of them goes on is not for a start to guess
cp -a "$W/good/step-000000000040" "$CK"
ls -l --time-style=full-iso "$CK" >"$W/before"
train 2 "${KEEP[@]}" --resume
want "the checkpoints of two runs" 2 "$CK holds checkpoints of two runs, such as those of steps 40 and 60: "
ls -l --time-style=full-iso "$CK" >"$W/after"
check "the folder is as it was" cmp "$W/before" "$W/after"

# ---- disks that are not shared: whoever sees the newest one reads it for all
fresh
rm -rf "$CK".[01]
cp -a "$W/good" "$CK.1"
cp "$W/good.log" "$W/log"
run "$UCX_RUN" -n 2 --timeout 25 sh -c 'exec "$@" --checkpoint "$0.$GYRE_RANK"' "$CK" "$TRAIN" "${MODEL[@]}" --log "$W/log" \
    --save "$W/st" --checkpoint-every 5 --resume
want "only rank 1 sees checkpoints" 0
check "they are gone on with" grep -q '"resumed":40' "$W/log"
same "only rank 1 sees checkpoints"
check "rank 0 writes where it is" [ -d "$CK.0/step-000000000060" ]

# ---- state in shards needs a disk that all share, and says so; a shard that is damaged is found by whoever checks it
run "$UCX_RUN" -n 2 --timeout 25 sh -c 'exec "$@" --checkpoint "$0.$GYRE_RANK.zero"' "$CK" "$TRAIN" "${MODEL[@]}" --zero 1
want "shards without a shared disk" 2 "rank 1 on .* does not see the checkpoint folder .* of rank 0.*: put --checkpoint on a disk that all hosts share"
fresh
train 2 "${KEEP[@]}" --zero 3
want "two shards" 0
same "two shards"
check "each rank writes" [ "$(echo "$CK"/step-000000000060/*.safetensors | wc -w)" = 2 ]
check "nothing else is in a checkpoint" [ "$(ls -A "$CK/step-000000000060" | wc -l)" = 3 ]
printf X | dd of="$CK/step-000000000060/shard-00001.safetensors" bs=1 seek=20000 conv=notrunc status=none
rm -r "$W/st"
train 3 "${KEEP[@]}" --zero 2 --resume
want "a damaged shard" 0 "shard-00001.safetensors is damaged: its checksum is" "the checkpoint of step 60 in $CK is not used"
check "a damaged shard: told once" [ "$(grep -c 'is damaged' "$W/err")" = 1 ]
check "a damaged shard: the one before is taken" grep -q '"resumed":55,"ranks":3' "$W/log"
same "a damaged shard"

# ---- another run is not gone on with
differ() { # NAME PATTERN OPTION...
    local name=$1 pattern=$2
    shift 2
    rm -rf "$CK"
    cp -a "$W/good" "$CK"
    cp "$W/good.log" "$W/log"
    train 2 "${KEEP[@]}" --resume "$@"
    want "$name" 2 "$pattern"
    check "$name: told once" [ "$(grep -cE -- "$pattern" "$W/err")" = 1 ]
    check "$name: the log is as it was" cmp "$W/good.log" "$W/log"
}
differ "another rate" "--lr is 0.01[0-9]*, but the run in .*step-000000000040 was begun with 0.003.*: give --lr 0.003" --lr 0.01
differ "more steps" "--steps is 80, but .* --may-change steps" --steps 80
differ "another batch" "--batch is 16, but" --batch 16
differ "another model" "--hidden is 96, but the model in .* has 48" --hidden 96
tail -c +2 "$W/text" >"$W/other"
differ "another text" "/other holds .* but the run in .* was begun on .*--may-change data" --data "$W/other"
rm -rf "$CK"
cp -a "$W/good" "$CK"
cp "$W/good.log" "$W/log"
train 2 "${KEEP[@]}" --resume --steps 80 --lr 0.004 --may-change steps,lr
want "on purpose" 0
check "goes to the new end" grep -q '"steps":80' "$W/log"
echo "my diary" >"$W/log"
train 2 "${KEEP[@]}" --resume --steps 80 --lr 0.004 --may-change steps,lr
want "a file that is no log" 2 "$W/log is not the log of a run: name another with --log"
check "is left as it is" [ "$(cat "$W/log")" = "my diary" ]
rm "$W/log"
train 1 --steps 9
cp "$W/log" "$W/other.log"
train 2 "${KEEP[@]}" --resume --steps 80 --lr 0.004 --may-change steps,lr
want "the log of another run" 2 "$W/log is the log of another run: name another with --log"
check "it is left as it is, too" cmp "$W/log" "$W/other.log"

# ---- a batch that changes: the order of the data goes on with the next sequence. The rate changes no weight, so a step's
# loss is the mean of what its sequences have, and 2 steps of 4 sequences have those of one of 8.
order=(--data "$W/text" --layers 1 --hidden 16 --heads 2 --seq 24 --batch 8 --lr 1e-12 --min-lr 0 --warmup 0 --eval-every 0
    --eval-sequences 1 --sample-tokens 0 --peak-flops 1e9 --report none --sampling epoch)
changes=("${order[@]}" --checkpoint "$CK" --resume --may-change "batch,batch-rampup,steps")
rm -rf "$CK"
run "$TRAIN" "${order[@]}" --steps 7 --log "$W/whole"
want "an epoch's order" 0
run "$TRAIN" "${order[@]}" --checkpoint "$CK" --steps 3 --log "$W/changed"
want "its first 24 sequences" 0
run "$TRAIN" "${changes[@]}" --batch 4 --steps 7 --log "$W/changed"
want "16 more, with half of the batch" 0
run "$TRAIN" "${changes[@]}" --batch-rampup 4:4:48 --steps 10 --log "$W/changed"
want "8 more, and 8, with a batch that grows and is over" 0
check "each sequence once" python3 - "$W/whole" "$W/changed" <<'PY'
import json, sys
whole, changed = [[line["loss"] for line in map(json.loads, open(path)) if "step" in line] for path in sys.argv[1:]]
same = lambda a, b: abs(a - b) < 1e-6 * a
halves = changed[3:9]
assert len(whole) == 7 and len(changed) == 10 and len({round(loss, 4) for loss in whole}) > 4, (whole, changed)
assert all(same(a, b) for a, b in zip(whole, changed[:3])), (whole, changed)
assert all(same(a, (b + c) / 2) for a, b, c in zip(whole[3:], halves[::2], halves[1::2])), (whole, changed)
assert same(whole[6], changed[9]), (whole, changed)
PY
mine=(--data "$W/text" --steps 1 --report none --sample-tokens 0 --peak-flops 1e9)
run "$TRAIN" "${mine[@]}" --load "$W/none"
want "--load of nothing" 2 "$W/none"
run "$TRAIN" --resume
want "nothing to go on with" 2 "--resume needs --checkpoint DIR"
run "$TRAIN" --checkpoint x --resume --may-change layers
want "the shape does not change" 2 "--may-change: layers is the shape of the model"
run "$TRAIN" --checkpoint x --resume --may-change lr,tokens
want "an unknown option" 2 "--may-change: tokens: there is no such option"
train 2 --checkpoint /proc/none
want "a folder that cannot be made" 1 "cannot make the checkpoint folder /proc/none"
ln -s nowhere "$W/dangling"
train 2 --checkpoint "$W/dangling"
want "a link to nothing" 1 "the checkpoint folder .*dangling is a symbolic link whose target cannot be used: No such file"

# ---- precision and the loss scale change: AdamW goes on counting updates, and what is passed takes effect
changed() { # NAME STEP OPTION...: from the checkpoint of STEP on
    local name=$1 step=$2
    shift 2
    rewind "$step"
    rm -f "$W/st"
    train 1 "${short[@]}" --resume "$@"
    want "$name" 0
}
scale() { grep "\"step\":$1," "$W/log" | grep -o '"loss_scale":[^,]*'; } # STEP
short=(--steps 9 --checkpoint "$CK" --checkpoint-every 3 --checkpoint-keep 9)
fresh
train 1 "${short[@]}" --precision fp16 --loss-scale 16777216 --loss-scale-hysteresis 1
want "fp16" 0
check "fp16: steps are skipped" grep -q '"step":[123],.*"skipped":true' "$W/log"
cp -a "$CK" "$W/fp16"
changed "fp16 to bf16" 3 --precision bf16 --may-change precision
mv "$W/st" "$W/bf16.st"
changed "fp16 to bf16, and once more" 6 --precision bf16
check "fp16 to bf16: the count of updates goes on" cmp "$W/bf16.st" "$W/st"
rm -r "$CK"
cp -a "$W/fp16" "$CK"
changed "another loss scale" 6 --precision fp16 --loss-scale 1024 --loss-scale-hysteresis 1 --may-change loss-scale
check "another loss scale: it is that of the next step" [ "$(scale 7)" = '"loss_scale":1024' ]
changed "another loss scale, and once more" 9 --precision fp16 --loss-scale 1024 --loss-scale-hysteresis 1
rm -r "$CK"
cp -a "$W/fp16" "$CK"
changed "a larger least scale, more hysteresis" 6 --precision fp16 --loss-scale 16777216 --loss-scale-min 16777216 \
    --loss-scale-hysteresis 100 --may-change loss-scale-min,loss-scale-hysteresis
check "a larger least scale: it is that of the next step" [ "$(scale 7) $(scale 9)" = '"loss_scale":16777216 "loss_scale":16777216' ]
fresh
train 1 "${short[@]}"
want "fp32" 0
changed "fp32 to fp16" 3 --precision fp16 --loss-scale 2048 --may-change precision
check "fp32 to fp16: the loss scale begins" [ "$(scale 4)" = '"loss_scale":2048' ]

# ---- a full disk: told, training goes on, the checkpoint before stays
if unshare -m true 2>/dev/null; then
    fresh
    mkdir "$CK"
    # room for one checkpoint (850 KiB), not for two
    DEADLINE=30 run unshare -m bash -c 'mount -t tmpfs -o size=1300k none "$0" || exit 99
        "$@"; rc=$?; ls -A "$0" >"$0.list"; exit $rc' "$CK" "$UCX_RUN" -n 2 --timeout 25 "$TRAIN" "${MODEL[@]}" --log "$W/log" \
        --save "$W/st" "${KEEP[@]}"
    want "a full disk" 1 "No space left on device" "no new checkpoint of step 60; the newest is still that of step 5 in"
    same "a full disk"
    check "the old checkpoint stays" [ "$(grep -v '^launch$' "$CK.list")" = step-000000000005 ]
    check "the summary says so" grep -q "^checkpoint .*: not written" "$W/out"
else
    leave_out "a full disk: no mount namespace here"
fi

# ---- a rank fails: rank 0 still writes what it has, and ucx-run starts the job anew. A run has about 190 collectives on
# the job's communicator, two per step and some 50 at its end; the 140th is far from the checkpoint of step 0 and from the end, which what is left after it does not reach again.
kinds="kill exit disagree"
[ -z "${TEST_LONG:-}" ] || kinds="$kinds crash stop stuck"
for kind in $kinds; do
    fresh
    run env GYRE_FAULT=1:140:"$kind" GYRE_TIMEOUT=6 GYRE_HEARTBEAT=2 "$UCX_RUN" -n 4 --timeout 28 --kill-grace 3 --max-restarts 1 \
        "$TRAIN" "${MODEL[@]}" --log "$W/log" --save "$W/st" --checkpoint "$CK" --checkpoint-every 15
    want "$kind" 0
    same "$kind"
    check "$kind: it went on behind a checkpoint" grep -q '"resumed":[45]' "$W/log"
    if [ "$kind" != disagree ]; then # then the ranks' own states are in doubt: the last checkpoint is not
        check "$kind: rank 0 wrote one when it heard of it" grep -qE '"resumed":(4[6-9]|5[0-9])' "$W/log"
        check "$kind: and says what to do" \
            grep -q "the newest checkpoint in $CK is of step [0-9]*: the same command with --resume" "$W/err"
    fi
done

# ---- a rank fails in the validation after the first step: the step is kept, and the run that goes on makes up for the
# validation. Of the collectives it has some 15 around the one that fails, which others before it move by one each.
LONG=(--valid-data "$W/text" --eval-sequences 2000 --eval-every 1 --steps 2)
fresh
train 1 "${LONG[@]}"
want "long validations" 0
curve "$W/log" >"$W/long.curve"
fresh
LONG+=(--checkpoint "$CK" --checkpoint-every 100)
run env GYRE_FAULT=1:50:kill GYRE_TIMEOUT=6 GYRE_HEARTBEAT=2 "$UCX_RUN" -n 4 --timeout 28 --kill-grace 3 "$TRAIN" "${MODEL[@]}" \
    "${LONG[@]}" --log "$W/log"
want "in a validation" 137
check "in a validation: it is not made" [ "$(grep '"step":1,' "$W/log" | grep -vc val_loss)" = 1 ]
train 2 "${LONG[@]}" --resume
want "in a validation: it goes on" 0
check "in a validation: the step before it is kept" grep -q '"resumed":1,' "$W/log"
check "in a validation: the curve is the uninterrupted one" cmp "$W/long.curve" <(curve "$W/log")

# ---- rank 0 that hears of a failure does not write the newest checkpoint once more
fresh
run env GYRE_LOG=info GYRE_FAULT=1:500:exit GYRE_TIMEOUT=6 GYRE_HEARTBEAT=2 "$UCX_RUN" -n 2 --timeout 28 --kill-grace 3 --max-restarts 1 \
    "$TRAIN" "${MODEL[@]}" --log "$W/log" --save "$W/st" --checkpoint "$CK" --checkpoint-every 1 --checkpoint-keep 1
want "a checkpoint of each step" 0
same "a checkpoint of each step"
grep -oE 'checkpoint of step [0-9]+: written' "$W/err" | sort >"$W/written"
check "each is written" [ "$(wc -l <"$W/written")" -ge 50 ]
check "none is written twice" [ -z "$(uniq -d "$W/written")" ]

finish
