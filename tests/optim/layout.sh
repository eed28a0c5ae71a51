#!/bin/bash
# tests/optim/layout.sh: the same training run on 1, 2 and 4 ranks, with micro-batches, small buckets, another transport
# and the progress thread, gives the same log and the same weights, byte for byte; and what is told of wrong input.
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../support/lib.sh"
TRAIN=$B/bin/gyre-train
SMALL=(--layers 2 --hidden 48 --heads 3 --seq 48 --batch 8 --steps 12 --eval-every 5 --eval-sequences 9 --warmup 4
    --sample-tokens 0 --peak-flops 1e9 --report none)

# A text of our own: the test must not depend on what the machine has.
awk 'BEGIN { for (i = 0; i < 900; i++) printf "line %d of %s has %d words, and %s\n", i, (i % 3 ? "verse" : "prose"),
    i * 7 % 23, (i % 5 ? "more follow." : "that is all."); }' >"$W/text"

# curve NAME RANKS OPTION...: trains; leaves the log's exact part in $W/NAME.curve and weights in $W/NAME.st
curve() {
    local name=$1 ranks=$2
    shift 2
    DEADLINE=100 run "$UCX_RUN" -n "$ranks" --timeout 90 "$TRAIN" --data "$W/text" "${SMALL[@]}" --log "$W/$name.jsonl" \
        --save "$W/$name.st" "$@"
    want "$name trains" 0
    sed -E '/"config"/d; s/,"tokens_per_second".*//; s/,"seconds".*//' "$W/$name.jsonl" >"$W/$name.curve"
}
same() {
    check "$1: the curve is that of one rank" cmp "$W/one.curve" "$W/$1.curve"
    check "$1: the weights are those of one rank" cmp "$W/one.st" "$W/$1.st"
}

curve one 1
check "a line for each step, and the end's" [ "$(wc -l <"$W/one.curve")" = 13 ]
check "validation every five steps and at the end" [ "$(grep -c val_loss "$W/one.curve")" = 4 ]
check "the loss falls" python3 - "$W/one.jsonl" <<'PY'
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
steps = [line for line in lines if "step" in line]
assert steps[-1]["loss"] < 0.85 * steps[0]["loss"], (steps[0]["loss"], steps[-1]["loss"])
assert lines[-1]["val_loss"] == steps[-1]["val_loss"]
PY
curve two 2
same two
curve four 4 --bucket-bytes 16K
same four
curve three 3
same three
curve five 5 --micro-batch 3
same five
check "a rank without work is told of" grep -q "batch 8 on 5 ranks: 1 of them has no sequence" "$W/err"
curve micro 2 --micro-batch 2
same micro
GYRE_TRANSPORT=ucx curve ucx 2
same ucx
curve thread 2 --progress-thread
same thread
curve other 1 --seed 2
check "another seed is another run" bash -c "! cmp -s '$W/one.st' '$W/other.st'"

# times: what is hidden lies inside compute, and one rank has nothing to hide
check "the times of a step go together" python3 - "$W"/{one,two,thread}.jsonl <<'PY'
import json, sys
for name in sys.argv[1:]:
    for step in (s for s in map(json.loads, open(name)) if "step" in s):
        assert step["compute_s"] > 0 and step["exposed_s"] >= 0, step
        assert 0 <= step["hidden_s"] <= step["compute_s"] + 1e-5, step
        assert "/one." not in name or step["hidden_s"] == 0, step
PY

# weights go on where they were, in their own shape; a sample is the same each time
for i in 1 2; do
    run "$TRAIN" --data "$W/text" --load "$W/one.st" --steps 0 --sample-tokens 60 --eval-sequences 9 --report "$W/r$i.html"
    want "samples from a checkpoint" 0
    cp "$W/out" "$W/sample$i"
done
check "the same sample" diff <(sed 's/r1.html//' "$W/sample1") <(sed 's/r2.html//' "$W/sample2")
loss=$(sed -nE 's/^validation loss +([0-9.]+).*/\1/p' "$W/sample1")
final=$(printf %.4f "$(sed -nE '$s/.*"val_loss":([0-9.]+).*/\1/p' "$W/one.jsonl")") # rounded as the summary is
check "its loss ($loss) is the one it ended with ($final)" [ "$loss" = "$final" ]
run "$TRAIN" --data "$W/text" --load "$W/one.st" --steps 0 --sample-tokens 60 --eval-sequences 9 --report none --dropout 0.5 \
    --log "$W/dropout.jsonl"
want "evaluates a model that is trained with dropout" 0
check "the sample sees none" diff <(grep -vE "^(report|log) |of memory on" "$W/sample1") <(grep -vE "^(report|log) |of memory on" "$W/out")
check "and validation sees none" diff <(sed -nE '$s/.*"val_loss":([^,]+),.*/\1/p' "$W/one.jsonl") \
    <(sed -nE '$s/.*"val_loss":([^,]+),.*/\1/p' "$W/dropout.jsonl")

check "the report is a page with its drawing inside" grep -q '<svg' "$W/r1.html"
check "the report fetches nothing" bash -c "! grep -qE '(src|href)=' '$W/r1.html'"

# a config file; flags win
echo '{"layers": 1, "hidden": 32, "heads": 2, "seq": 16, "batch": 2, "steps": 3, "eval_every": 0, "report": "none", "lr": 1e-3}' \
    >"$W/config.json"
run "$TRAIN" --config "$W/config.json" --data "$W/text" --steps 2 --sample-tokens 0 --log "$W/config.jsonl"
want "reads a config file" 0
check "flags win over it" [ "$(grep -c '"step":' "$W/config.jsonl")" = 2 ]

# the clock ends a run, on all ranks at the same step
run "$UCX_RUN" -n 2 --timeout 25 "$TRAIN" --data "$W/text" "${SMALL[@]:0:10}" --report none --sample-tokens 0 --time-limit 1
want "stops by the clock" 0
check "soon" [ "$ms" -lt 15000 ]

# a signal ends a run behind the present step, with all its results
"$UCX_RUN" -n 2 --timeout 60 "$TRAIN" --data "$W/text" "${SMALL[@]:0:10}" --steps 1000000 --sample-tokens 0 --report none \
    --log "$W/signal.jsonl" --save "$W/signal.st" >"$W/signal.out" 2>&1 &
pid=$!
until_true 20 grep -qs '"step":3' "$W/signal.jsonl"
kill -TERM $pid
check "ends soon after a signal" until_true 20 gone $pid
wait $pid
check "with 143" [ $? = 143 ]
check "and says so" grep -q "stopped by SIGTERM after step" "$W/signal.out"
check "with the weights written" [ -s "$W/signal.st" ]
check "and the log's last line" grep -q weights_hash "$W/signal.jsonl"

# wrong input: a message that names it and the way out, status 2
refuse() { # NAME PATTERN OPTION...
    local name=$1 pattern=$2
    shift 2
    run "$TRAIN" --report none "$@"
    want "$name" 2 "$pattern"
}
: >"$W/empty"
head -c 200 "$W/text" >"$W/short"
echo '{"layers": "many"}' >"$W/bad1.json"
echo '{"layer": 3}' >"$W/bad2.json"
echo '{"layers": 3' >"$W/bad3.json"
echo '[1]' >"$W/bad4.json"
refuse "no such text" "$W/none: No such file.*name a text file" --data "$W/none"
refuse "empty text" "$W/empty is empty: name one with text" --data "$W/empty"
refuse "short text" "too short for one sequence of 128.*--seq" --data "$W/short"
refuse "heads" "hidden 128 is not divisible by heads 3: take heads 2 or 4" --heads 3
refuse "unknown option" "no option --layer: the nearest is --layers;" --layer 3
refuse "unknown option, near none" "no option --colour;" --colour red
refuse "not one of the words" "--progress wants one of auto.bar.lines.none, not 'bars'" --progress bars
refuse "no value" "--layers needs a value" --layers
refuse "malformed number" "--layers wants a whole number from 1 to 4096, not '2x'" --layers 2x
refuse "too long" "--seq wants a whole number from 1 to 1048576, not '1048577'" --seq 1048577
refuse "negative" "--batch wants a whole number from 1" --batch -4
refuse "not finite" "--lr wants a number" --lr nan
refuse "an argument too many" "does not know what to do with 'x'" x
refuse "config value" "bad1.json: layers wants a whole number" --config "$W/bad1.json"
refuse "config name" "bad2.json: layer: there is no such option: the nearest is layers" --config "$W/bad2.json"
refuse "config syntax" "bad3.json" --config "$W/bad3.json"
refuse "config kind" "bad4.json: is not a JSON object" --config "$W/bad4.json"
refuse "no config" "nothere.json" --config "$W/nothere.json"
refuse "no checkpoint" "cannot open .*none.st" --load "$W/none.st"
refuse "not a checkpoint" "not a safetensors file" --load "$W/text"
refuse "checkpoint of another shape" "--layers is 5, but the model in .* has 2" --load "$W/one.st" --layers 5
run "$TRAIN" --data "$W/text" "${SMALL[@]}" --log "$W/no/such/log"
want "log in no folder" 1 "cannot create the log $W/no/such/log.*--log"
run "$TRAIN" --data "$W/text" "${SMALL[@]}" --report "$W/no/r.html"
want "report in no folder" 1 "cannot write $W/no/r.html.*--report"
run "$TRAIN" --data "$W/text" "${SMALL[@]}" --lr 100 --clip 0 --warmup 0 --steps 200
want "a run that blows up" 1 "no longer finite.*--lr"
for scale in 65536 4; do
    run "$TRAIN" --data "$W/text" "${SMALL[@]}" --lr 100 --clip 0 --warmup 0 --steps 200 --precision fp16 --loss-scale $scale
    want "a run in fp16 that blows up, loss scale $scale" 1 "step [0-9]+: (the loss is|gradients are) not finite.*scale.*--lr"
done
run "$UCX_RUN" -n 3 "$TRAIN" --data "$W/text" "${SMALL[@]}" --batch 2
want "more ranks than sequences" 2 "a batch of 2 sequences cannot feed dp 3"
check "told once" [ "$(grep -c 'cannot feed' "$W/err")" = 1 ]
run "$TRAIN" --data "$W/text" "${SMALL[@]}" --batch 6 --steps 2 --save "$W/six1"
want "a batch of 6 on one rank" 0
run "$UCX_RUN" -n 2 "$TRAIN" --data "$W/text" "${SMALL[@]}" --batch 6 --steps 2 --save "$W/six2"
want "and on two" 0
check "the same bits, with 3 sequences each" cmp "$W/six1" "$W/six2"
# an error of all ranks is told by one, and blames none
once() { # NAME PATTERN OPTION...
    local name=$1 pattern=$2
    shift 2
    run "$UCX_RUN" -n 2 "$TRAIN" --data "$W/text" --report none "$@"
    want "$name on two ranks" 2 "$pattern"
    check "$name: told once" [ "$(grep -cE "$pattern" "$W/err")" = 1 ]
    check "$name: nobody died" bash -c "! grep -qE 'died|dead|lost|abort' '$W/err'"
}
once "heads" "not divisible by heads 3" --heads 3
once "no such text" "$W/none" --data "$W/none"
once "no checkpoint" "cannot open .*none.st" --load "$W/none.st"
run "$UCX_RUN" -n 2 --timeout 25 "$TRAIN" --data "$W/text" "${SMALL[@]}" --lr 100 --clip 0 --warmup 0 --steps 200
want "a run of two that blows up" 1 "no longer finite.*--lr"
check "told once" [ "$(grep -c 'no longer finite' "$W/err")" = 1 ]
cp "$W/text" "$W/text.0"
run "$UCX_RUN" -n 2 sh -c "exec '$TRAIN' --report none --data $W/text.\$GYRE_RANK"
want "a text that rank 1 lacks" 2 "\[1\].*$W/text.1"

# ranks that are told different things: refused before the first collective that would not fit, and by name
apart() { # NAME PATTERN OPTION-OF-RANK-0 OPTION-OF-RANK-1
    run "$UCX_RUN" -n 2 --timeout 30 sh -c \
        "if [ \$GYRE_RANK = 0 ]; then o='$3'; else o='$4'; fi; exec '$TRAIN' ${SMALL[*]} --data $W/text \$o"
    want "ranks with different $1" 2 "$2"
    check "$1: told once" [ "$(grep -cE -- "$2" "$W/err")" = 1 ]
    check "$1: nobody died" bash -c "! grep -qE 'died|dead|lost|abort' '$W/err'"
}
sed 's/verse/Verse/' "$W/text" >"$W/text.other" # as long, and half as like
apart "--lr" "--lr is 0.003 on rank 0, but 0.004 on rank 1" "--lr 0.003" "--lr 0.004"
apart "--tp" "--tp is 1 on rank 0, but 2 on rank 1" "--heads 4 --tp 1" "--heads 4 --tp 2"
apart "--eval-every" "--eval-every is 5 on rank 0, but 7 on rank 1" "--seed 1" "--eval-every 7"
apart "--data" "--data is $W/text .*but $W/text.other .* on rank 1" "--seed 1" "--data $W/text.other"
apart "--trace" "--trace is .* on rank 0, but not given on rank 1" "--trace $W/apart.trace" "--seed 1"
cp "$W/text" "$W/text.1"
run "$UCX_RUN" -n 2 --timeout 60 sh -c "exec '$TRAIN' ${SMALL[*]} --steps 1 --data $W/text.\$GYRE_RANK \
    --log $W/own.\$GYRE_RANK.jsonl --progress none"
want "names of files may differ" 0

# a checkpoint without its number of heads is not guessed at
sed 's/"n_head"/"m_head"/' "$W/one.st" >"$W/headless.st"
refuse "no heads" "headless.st does not say how many attention heads.*--heads" --load "$W/headless.st" --data "$W/text"
run "$TRAIN" --load "$W/headless.st" --heads 3 --data "$W/text" --steps 0 --sample-tokens 0 --report none
want "heads by flag" 0
sed 's/"n_head":"3"/"n_head":"x"/' "$W/one.st" >"$W/badheads.st"
refuse "malformed heads" "n_head in the metadata of .*badheads.st" --load "$W/badheads.st" --data "$W/text"
python3 - "$W/one.st" "$W/nan.st" <<'END'
import sys
raw = bytearray(open(sys.argv[1], "rb").read())
at = 8 + int.from_bytes(raw[:8], "little")
raw[at : at + 4] = b"\0\0\xc0\x7f"
open(sys.argv[2], "wb").write(raw)
END
run "$TRAIN" --load "$W/nan.st" --data "$W/text" --steps 2 --report none
want "weights that are no numbers" 1 "step 1: the loss is not finite \(-?nan\) before any update: $W/nan.st has weights that are no numbers"

# what cannot be written is refused at the start; what fails at the end loses nothing else
short=(--data "$W/text" "${SMALL[@]:0:10}" --steps 2 --sample-tokens 0)
mkdir "$W/folder"
for flag in save report log; do
    run "$TRAIN" "${short[@]}" --report none --$flag "$W/folder"
    want "--$flag names a folder" 1 "$W/folder: name another.*--$flag"
    check "no training before that" bash -c "! grep -q step '$W/err'"
done
run "$TRAIN" "${short[@]}" --report none --save /proc/none.st
want "--save where nothing can be made" 1 "cannot write /proc/none.st: name another.*--save"
run "$TRAIN" "${short[@]}" --save /dev/full --report "$W/kept.html" --log "$W/kept.jsonl"
want "a full disk" 1 "cannot write .*/dev/full"
check "the report is there all the same" [ -s "$W/kept.html" ]
check "and the end of the log" grep -q weights_hash "$W/kept.jsonl"
check "and the summary" grep -q "^validation loss" "$W/out"
check "which says what is not" grep -q "^weights .*/dev/full: not written" "$W/out"
check "/dev/full is still a device" [ -c /dev/full ]
run "$TRAIN" "${short[@]}" --report none --log /dev/full
want "a log that is full" 1 "cannot write the log /dev/full: No space left"
run "$TRAIN" "${short[@]}" --save /dev/null --report /dev/null --log /dev/null
want "results for nobody" 0
check "/dev/null is still a device" [ -c /dev/null ]
ln -s kept.html "$W/link.html"
: >"$W/kept.html"
run "$TRAIN" "${short[@]}" --report "$W/link.html"
want "a report through a link" 0
check "the link is still one" [ -L "$W/link.html" ]
check "and leads to the page" grep -q '<svg' "$W/kept.html"

run "$UCX_RUN" -n 2 "$TRAIN" --layers 0
want "flags of many ranks" 2 "--layers wants"
check "told once" [ "$(grep -c 'layers wants' "$W/err")" = 1 ]
finish
