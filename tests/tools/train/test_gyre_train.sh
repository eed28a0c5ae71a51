#!/bin/bash
# tests/tools/train/test_gyre_train.sh: what a person sees of a training run: help, slips, progress, log, TensorBoard's files,
# report and trace.
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../../support/lib.sh"
TRAIN=$B/bin/gyre-train
awk 'BEGIN { for (i = 0; i < 300; i++) printf "line %d of verse has %d words, and more follow.\n", i, i * 7 % 23 }' >"$W/text"
SMALL=(--data "$W/text" --layers 1 --hidden 32 --heads 2 --seq 32 --batch 4 --eval-every 4 --eval-sequences 4 --warmup 2
    --sample-tokens 0 --peak-flops 1e9)

# ---- flags
run "$TRAIN" --help
want "--help" 0
for group in Recipe Model Data Run Optimiser Parallelism Precision "Evaluation and sample" Checkpoints Output; do
    check "--help has the group $group" grep -qx "$group:" "$W/out"
done
check "no line of --help is too long" [ "$(awk 'length > 118' "$W/out" | wc -l)" = 0 ]
check "every flag is in the manual page" python3 - "$W/out" docs/man/gyre-train.1 <<'PY'
import re, sys
flags = re.findall(r"^  --([a-z0-9-]+)", open(sys.argv[1]).read(), re.M)
page = open(sys.argv[2]).read().replace("\\-", "-")
lacking = [flag for flag in flags if not re.search("--" + flag + r"(?![a-z-])", page)]
assert len(flags) > 30 and not lacking, f"the page lacks {lacking}"
PY
run "$TRAIN" --lerning-rate 1 --report none
want "a word that is no option" 2 "no option --lerning-rate;"
run "$TRAIN" --weight-decai 1
want "a slip" 2 "no option --weight-decai: the nearest is --weight-decay"
run "$TRAIN" --may-change stepz --checkpoint "$W/none"
want "a slip in a list" 2 "stepz: there is no such option: the nearest is steps"

# ---- no step, no checkpoint; a run that has ended before has one
NONE=("${SMALL[@]}" --report none --checkpoint "$W/checkpoints")
run "$TRAIN" "${NONE[@]}" --steps 0
check "no step: no checkpoint" grep -qx "checkpoint       none: no step was made" "$W/out"
run "$TRAIN" "${NONE[@]}" --steps 1
check "a step: its checkpoint" grep -qx "checkpoint       $W/checkpoints" "$W/out"
run "$TRAIN" "${NONE[@]}" --steps 1 --resume
check "a run that has ended: its checkpoint" grep -qx "checkpoint       $W/checkpoints" "$W/out"

# ---- progress
run "$UCX_RUN" -n 2 "$TRAIN" "${SMALL[@]}" --steps 9 --report none
want "lines where there is no terminal" 0 "^step 1/9  loss [0-9.]+  [0-9]+ tokens/s  [0-9:]+ left$" "^step 9/9 .* val [0-9.]+ .* 0:00 left$"
run "$TRAIN" "${SMALL[@]}" --steps 9 --report none --progress bar
want "a bar that is asked for" 0 "\[#+\] step 9/9"
run "$TRAIN" "${SMALL[@]}" --steps 1 --report none --lr-schedule constant --lr-cooldown 50 --min-lr 0.5 --lr-decay 9 --spike-window 8
want "what a constant rate does not use" 0 "--min-lr has no effect here: --lr-schedule is constant" \
    "--lr-decay has no effect here: --lr-schedule is constant" "--lr-cooldown has no effect here: --lr-schedule is not wsd" \
    "--spike-window has no effect here: there is no --spike-loss and no --spike-norm"
run "$TRAIN" "${SMALL[@]}" --steps 1 --report none --lr-schedule wsd --lr-cooldown 2 --min-lr 0.5 --lr-decay 9 --spike-window 8 --spike-norm 99
want "what wsd and spikes use" 0
check "no warning of it" bash -c '! grep "no effect" "$1"' - "$W/err"
run "$TRAIN" "${SMALL[@]}" --steps 1 --report none --lr-schedule wsd --lr-cooldown 1
want "a cool-down that begins and ends with its first step" 0 "--lr-cooldown has no effect here: the first step of a cool-down has the full rate"
run "$TRAIN" "${SMALL[@]}" --steps 2 --report none --progress none
check "nothing if asked" [ ! -s "$W/err" ]
if command -v script >/dev/null; then
    run script -qec "TERM=xterm '$TRAIN' ${SMALL[*]} --steps 5 --report none" /dev/null
    check "a bar on a terminal" grep -q $'\r\033\[K\[#*\]* *step 5/5' "$W/out"
else
    leave_out "a bar on a terminal: there is no script(1)"
fi

# ---- log and TensorBoard, over an interruption
part=(--log "$W/run.jsonl" --tensorboard "$W/board" --report "$W/run.html" --checkpoint "$W/ck" --checkpoint-every 5)
run "$UCX_RUN" -n 2 "$TRAIN" "${SMALL[@]}" --steps 12 --may-change steps "${part[@]}"
want "a run with all outputs" 0
cp "$W/run.jsonl" "$W/first.jsonl"
check "log lines are whole, and exact twice" python3 - "$W/first.jsonl" <<'PY'
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
steps = [line for line in lines if "step" in line]
assert [line["step"] for line in steps] == list(range(1, 13))
for line in steps:
    assert float.fromhex(line["loss_hex"]) == line["loss"]
    assert float.fromhex(line["grad_norm_hex"]) == line["grad_norm"]
    assert line["skipped"] is False and line["loss_scale"] == 1
    assert list(line).index("tokens_per_second") > list(line).index("skipped")
PY
run "$UCX_RUN" -n 2 "$TRAIN" "${SMALL[@]}" --steps 16 --may-change steps "${part[@]}" --resume
want "goes on" 0
check "behind step 12" resumed "$W/run.jsonl" 12 2
check "with the validation loss of before" grep -qE "^step 13/16  loss [0-9.]+  val [0-9.]+  " "$W/err"
python=$(with_module tensorboard) ||
    leave_out "TensorBoard's own reader: tensorboard is not installed (tools/setup references)"
check "the events are the log's, in both parts" "$python" tests/tools/events.py "$W/board" "$W/first.jsonl" \
    "$W/run.jsonl"

# ---- the log's first line holds the run: --config takes it
again() { # NAME OPTION...: a run, and that which its log describes
    local name=$1
    shift
    run "$TRAIN" --report none --progress none --log "$W/one.jsonl" "$@"
    want "$name" 0
    python3 -c 'import json, sys; print(json.dumps(json.loads(sys.stdin.readline())["config"]))' <"$W/one.jsonl" >"$W/again.json"
    run "$TRAIN" --config "$W/again.json" --log "$W/two.jsonl"
    want "$name, from its log" 0
    check "$name, from its log: is the same run" python3 - "$W/one.jsonl" "$W/two.jsonl" <<'PY'
import json, sys
one, two = [[json.loads(line) for line in open(path)] for path in sys.argv[1:]]
assert len(one) == len(two) > 2
for log in one, two:
    del log[0]["config"]["log"], log[0]["run"], log[-1]["seconds"]
    for line in log[1:-1]:
        for name in list(line)[list(line).index("tokens_per_second"):]:
            del line[name]
assert one == two, next((a, b) for a, b in zip(one, two) if a != b)
PY
}
again "flags" "${SMALL[@]}" --steps 3 --lr 0.0123456789012345 --min-lr 0.3 --clip 0.5 --loss-scale 1024 --precision fp16 --prompt $'a "b"\n\\ \xc3\xb6' \
    --schedule gpipe --bucket-bytes 64K
again "a recipe" --recipe examples/recipes/gpt-neox-20b.json --scale tiny --tp 1 --pp 1 --data "$W/text" --steps 3 --batch 4 --seed 5 \
    --eval-sequences 2 --sample-tokens 0
cat >"$W/model.json" <<'END'
{"model_type": "gyre", "vocab": 256, "vocab_padded": 264, "seq": 32, "layers": 1, "hidden": 32, "heads": 4, "leaves": 2,
 "dropout": 0.1}
END
again "defaults" --data "$W/text" --steps 3 --layers 1 --hidden 32 --eval-sequences 2 --sample-tokens 0
check "no warning of what the log says" bash -c '! grep "no effect" "$1"' - "$W/err"
again "a model's file" --model "$W/model.json" --data "$W/text" --steps 3 --eval-sequences 2 --sample-tokens 0 --time-limit 1000
LOSSES=(--model "$W/model.json" --data "$W/text" --checkpoint "$W/kept3" --sample-tokens 0 --eval-sequences 2 --report none)
run "$TRAIN" "${LOSSES[@]}" --steps 1
want "a model with dropout" 0
run "$TRAIN" "${LOSSES[@]}" --steps 2 --dropout 0 --z-loss 0.001 --resume --may-change steps
want "other dropout" 2 "--dropout is 0, but the run in .* was begun with 0.1"
run "$TRAIN" "${LOSSES[@]}" --steps 2 --dropout 0 --z-loss 0.001 --resume --may-change steps,dropout,z-loss
want "other dropout and z-loss on purpose" 0
run "$TRAIN" "${SMALL[@]}" --steps 4 --lr 0.1 --checkpoint "$W/kept2" --report none
want "a run with checkpoints" 0
run "$TRAIN" "${SMALL[@]}" --steps 4 --lr 0.3 --checkpoint "$W/kept2" --resume --report none
want "another rate" 2 "--lr is 0.3, but the run in .* was begun with 0.1: give --lr 0.1 "
run "$TRAIN" "${SMALL[@]}" --steps 8 --may-change steps --lr 0.1 --checkpoint "$W/kept2" --resume --time-limit 0.000001 --report none
want "no time is left" 0 'the time limit \(1e-06 s\) was used up by earlier parts of this run: raise --time-limit'
check "no time is left: no step" [ ! -e "$W/kept2/step-000000000005" ]
run "$TRAIN" "${SMALL[@]}" --save "$W/none/x/" --report none
want "a folder that cannot be made" 1 "cannot make the folder $W/none/x/: No such file"
run "$TRAIN" "${SMALL[@]}" --lr 1e9
want "a rate out of range" 2 "--lr wants a number from 1e-12 to 100, not '1e9'"
run "$TRAIN" "${SMALL[@]}" --epsilon 1e-19 --report none
want "an epsilon that a tiny gradient exceeds" 2 "--epsilon wants a number from 1e-18 to 1, not '1e-19'"

# ---- report and trace: of a made-up run of 8 ranks, and of real ones
mkdir "$W/made"
run "$B/tests/tools/train/test_gyre_train" "$W/made"
check "a made-up run" [ "$rc" = 0 ]
check "its page is whole" python3 tests/tools/page.py "$W/made/report.html" "Step 10 on every rank" Memory Layout "loss scale" \
    "MFU" "learning rate" "gradient norm" "stage 1" "1f1b" "3 updates were left out" "tp 1"
check "its trace is one" python3 tests/tools/trace.py "$W/made/trace.json" 8 10 10 forward backward "tensor parallel" "in flight" gather
check "the page of a run is whole" python3 tests/tools/page.py "$W/run.html" "on every rank" "MFU" "tokens per second" "Layout"
check "its memory has rank 0's copy for checkpoints" python3 - "$W/run.html" <<'PY'
import re, sys
held = {kind: [int(n) for n in re.findall(rf"<title>{kind}: (\d+) bytes", open(sys.argv[1]).read())] for kind in ("weights", "checkpoint")}
assert len(held["weights"]) == 2 and held["checkpoint"] == [3 * held["weights"][0]], held
PY
run "$UCX_RUN" -n 3 "$TRAIN" "${SMALL[@]}" --steps 9 --report none --trace "$W/trace.json" --trace-steps 4:6
want "a trace" 0
check "says where it is" grep -q "^trace  *$W/trace.json$" "$W/out"
check "is one" python3 tests/tools/trace.py "$W/trace.json" 3 4 6 forward backward reduce optimiser
run "$TRAIN" "${SMALL[@]}" --steps 3 --report none --trace "$W/late.json" --trace-steps 4:6
want "a trace behind the last step" 2 "--trace-steps 4:6: the run ends with step 3.*--steps"
run "$TRAIN" "${SMALL[@]}" --valid-data "$W/nope"
want "no such data for validation" 2 "cannot open $W/nope: No such file or directory; name a text file"
run "$TRAIN" "${SMALL[@]}" --time-limit 0.2 --report none --trace "$W/late.json" --trace-steps 99999999:99999999
want "a trace of steps that are not made" 1 "no step of --trace-steps was made: the trace $W/late.json is not written"
check "is not written" [ ! -e "$W/late.json" ]
run "$TRAIN" "${SMALL[@]}" --trace "$W/late.json" --trace-steps 6:4
want "a range the wrong way round" 2 "--trace-steps 6:4: wants FROM:TO"
run "$TRAIN" "${SMALL[@]}" --steps 2 --report none --trace "$W"
want "a trace where a folder is" 1 "cannot write $W: .*--trace"
# ---- outputs replace no other file
cp "$W/text" "$W/kept"
run "$TRAIN" "${SMALL[@]}" --steps 1 --report none --sample-tokens 0 --log "$W/kept"
want "a log where another file is" 2 "$W/kept is not the log of a run: name another with --log"
printf '{"con' >"$W/begun"
run "$TRAIN" "${SMALL[@]}" --steps 1 --report none --sample-tokens 0 --log "$W/begun"
want "a log that was cut in its first line" 0
run "$TRAIN" "${SMALL[@]}" --steps 1 --sample-tokens 0 --log "$W/one.out" --report "$W/./one.out"
want "one file for two outputs" 2 "--log $W/one.out and --report $W/./one.out are one file: name another with --log"
check "and not written" test ! -e "$W/one.out"
for output in log report trace save; do
    run "$TRAIN" "${SMALL[@]}" --data "$W/kept" --steps 1 --report none --$output "$W/./kept"
    want "--$output over the data" 2 "--$output $W/./kept and --data $W/kept are one file"
done
check "the file is as it was" cmp "$W/text" "$W/kept"
run "$TRAIN" "${SMALL[@]}" --valid-data "own=$W/kept" --steps 1 --report "$W/./kept"
want "the report over own validation data" 2 "--report $W/./kept and --valid-data $W/kept are one file"

run "$UCX_RUN" -n 4 "$TRAIN" "${SMALL[@]}" --steps 4 --tp 2 --pp 2 --layers 2 --schedule zb-h1 --trace "$W/cube.json" --trace-steps 2:3 \
    --report "$W/cube.html"
want "a trace of tensor and pipeline parallelism" 0
check "has what they do" python3 tests/tools/trace.py "$W/cube.json" 4 2 3 forward backward "weight gradient" "wait for a stage" \
    "tensor parallel" reduce optimiser
check "the page has, too" python3 tests/tools/page.py "$W/cube.html" "Step 3 on every rank" Memory "zb-h1" "stage 1" \
    "waiting for pipeline neighbours"

# ---- steps that overflow
run "$TRAIN" "${SMALL[@]}" --steps 6 --precision fp16 --loss-scale 16777216 --log "$W/half.jsonl" --tensorboard "$W/half" \
    --report "$W/half.html"
want "fp16 that overflows" 0 "step 6/6 .* [1-6] skipped "
check "the log says which" python3 - "$W/half.jsonl" <<'PY'
import json, sys
steps = [line for line in map(json.loads, open(sys.argv[1])) if "step" in line]
assert steps[0]["skipped"] is True and steps[0]["grad_norm"] is None and steps[0]["loss_scale"] == 16777216
assert steps[-1]["loss_scale"] < 16777216
PY
check "and so do the events" python3 tests/tools/events.py "$W/half" "$W/half.jsonl"
check "and the page" python3 tests/tools/page.py "$W/half.html" "left out, since gradients overflowed" "loss scale"

# ---- experts, and a batch that grows: in the log, the events and the page, over an interruption
cat >"$W/experts.json" <<'END'
{"model_type": "gyre", "vocab": 256, "seq": 32, "layers": 2, "hidden": 32, "heads": 2, "ffn": 32, "experts": 4, "top_k": 2,
 "capacity": 1.0, "balance": 0.01}
END
GROWS=(--model "$W/experts.json" --z-loss 0.001 --router-z-loss 0.01 --data "$W/text" --batch 8 --batch-rampup 2:3:20 --eval-sequences 4 --sample-tokens 0 --peak-flops 1e9 --steps 9)
run "$TRAIN" "${GROWS[@]}" --log "$W/grows.jsonl" --tensorboard "$W/grows" --report "$W/grows.html"
want "experts and a batch that grows" 0
check "says how" grep -q "8 x 32 tokens per step in the end, from 2 on over 20 sequences (7 steps)" "$W/out"
check "the log says what became of them" python3 - "$W/grows.jsonl" <<'PY'
import json, sys
steps = [line for line in map(json.loads, open(sys.argv[1])) if "loss" in line]
assert [line["batch"] for line in steps] == [2] * 5 + [5] * 2 + [8] * 2, [line["batch"] for line in steps]
for line in steps:
    assert 0.01 < line["balance_loss"] < 0.1, line  # of 2 layers with 2 choices: 2 * 0.01 * 2 where all have the same
    # of 5.5 nats over the vocabulary, and of 2 layers with ln 4 and some at the beginning
    assert 0.02 < line["z_loss"] < 0.04 and 0.03 < line["router_z_loss"] < 0.06, line
    assert 0 <= line["dropped"] < 1 and (line["dropped"] * line["batch"] * 2 * 32 * 2) % 1 == 0, line
    assert list(line).index("dropped") < list(line).index("tokens_per_second")
assert any(line["dropped"] > 0 for line in steps)
PY
check "and so do the events" python3 tests/tools/events.py "$W/grows" "$W/grows.jsonl"
check "and the page" python3 tests/tools/page.py "$W/grows.html" "balance loss of experts" "z-loss of logits" "z-loss of routers" "found no room" "sequences per step" "2:3:20"
run "$UCX_RUN" -n 4 "$TRAIN" "${GROWS[@]}" --dp 4 --zero 2 --checkpoint "$W/grown" --steps 6 --may-change steps \
    --log "$W/parts.jsonl" --report none
want "a part of it" 0
run "$UCX_RUN" -n 2 "$TRAIN" "${GROWS[@]}" --tp 2 --checkpoint "$W/grown" --may-change steps --resume --log "$W/parts.jsonl" --report none
want "goes on, in another layout" 0
check "behind step 6" resumed "$W/parts.jsonl" 6 2
check "says no number of steps, which is that of a whole run" grep -q "8 x 32 tokens per step in the end, from 2 on over 20 sequences$" "$W/out"
check "with the same steps" python3 - "$W/grows.jsonl" "$W/parts.jsonl" <<'PY'
import json, sys
one, two = [[{k: line[k] for k in list(line)[:list(line).index("tokens_per_second")] if k != "val_loss"}
             for line in map(json.loads, open(path)) if "loss" in line] for path in sys.argv[1:]]
assert len(one) == 9 and one == two, (one, two)
PY
run "$TRAIN" "${GROWS[@]}" --batch-rampup 2:4:20
want "a batch that cannot grow so" 2 "cannot grow from 2 to 8 sequences by 4 at a time: take an increment of 3"
run "$TRAIN" "${GROWS[@]}" --batch-rampup 2:x:20
want "no ramp" 2 "--batch-rampup 2:x:20 is not START:INCREMENT:SEQUENCES"
run "$UCX_RUN" -n 2 "$TRAIN" --data "$W/text" --layers 4 --hidden 32 --heads 4 --seq 16 --pp 2 --schedule interleaved --chunks 2 \
    --batch 16 --micro-batch 4 --grad-sequences 2 --batch-rampup 12:4:20
want "a batch whose micro-batches are no whole rounds" 2 "with 12 of 16 .* has 3 micro-batches, .*: take --micro-batch 2, or"
again "a batch that grows" "${GROWS[@]}"

# ---- what all ranks find is said once, and what one finds by itself, too
once() { # NAME CODE PATTERN OPTION...
    local name=$1 code=$2 pattern=$3
    shift 3
    run "$UCX_RUN" -n 4 "$TRAIN" "${SMALL[@]}" --steps 2 --report none "$@"
    want "$name" "$code" "$pattern"
    check "$name: once" [ "$(grep -c "error: " "$W/err")" = 1 ]
}
once "a folder that is not there" 1 "offload: no file can be made in $W/nowhere" --offload "$W/nowhere"
once "a loss scale that would round" 2 "loss scale: start 3 is not a power of two" --precision fp16 --loss-scale 3
once "a least scale above the first" 2 "min 1024 <= start 16" --precision fp16 --loss-scale 16 --loss-scale-min 1024
once "a layout that does not fit" 2 "tp 3 x pp 1 x dp 1 does not make 4 ranks" --tp 3 --dp 1
run "$TRAIN" "${SMALL[@]}" --tp 2
want "tp without ranks" 2 "tp 2 x pp 1 x dp 1 does not make 1 rank: start 2 ranks, with ucx-run -n 2"
once "heads that do not divide" 2 "hidden 32 is not divisible by heads 3" --heads 3
once "leaves that do not divide" 2 "heads 2 is not divisible by leaves 8: take leaves 2" --leaves 8
printf '{"model_type": "gpt2",\n "vocab_size": }' >"$W/torn.json"
once "a torn file" 2 "$W/torn.json:2:16: not valid JSON" --model "$W/torn.json"

# ---- MFU
mfu() { # OPTION...: the last step's, and the operations per second that it is of
    run "$TRAIN" "${SMALL[@]:0:${#SMALL[@]}-2}" --steps 3 --report none --log "$W/mfu.jsonl" "$@" # which ends with --peak-flops
    want "mfu" 0
}
mfu --peak-flops 1e9
check "MFU is operations of the peak" python3 - "$W/mfu.jsonl" <<'PY'
import json, sys
last = [json.loads(line) for line in open(sys.argv[1])][3]
L, C, T, V = 1, 32, 32, 256
flops = 3 * 2 * (L * (12 * C * C + 2 * T * C) + C * V)  # of a token
want = last["tokens_per_second"] * flops / 1e9
assert abs(last["mfu"] / want - 1) < 0.01, (last["mfu"], want)
PY
mfu
check "and of what is measured, where nothing is said" python3 -c '
import json, sys
last = [json.loads(line) for line in open(sys.argv[1])][3]
assert 0 < last["mfu"] < 1.5, last' "$W/mfu.jsonl"

# ---- weights that are loaded: a learning rate that does not wreck them, and no text of ids that are no bytes
lr() { python3 -c 'import json, sys; print(json.loads(sys.stdin.readline())["config"]["lr"])' <"$W/load.jsonl"; }
BYTES=("${SMALL[@]}" --steps 1 --report none --log "$W/load.jsonl")
export GYRE_LOG=info
run "$TRAIN" "${BYTES[@]}" --save "$W/bytes.st"
check "random weights: the rate" [ "$(lr)" = 0.003 ]
check "random weights are drawn" grep -q "random weights: " "$W/err"
run "$TRAIN" "${BYTES[@]}" --vocab 300 --save "$W/ids.st"
LOADED=(--data "$W/text" --eval-sequences 4 --report none --peak-flops 1e9 --log "$W/load.jsonl")
run "$TRAIN" "${LOADED[@]}" --load "$W/bytes.st" --steps 1 --sample-tokens 0
want "loaded weights" 0
check "loaded weights: the rate" [ "$(lr)" = 2e-05 ]
check "loaded weights: no random ones are drawn" bash -c "grep -q 'loaded weights: ' '$W/err' && ! grep -q 'random weights' '$W/err'"
run "$TRAIN" "${LOADED[@]}" --load "$W/bytes.st" --steps 1 --sample-tokens 0 --checkpoint "$W/loaded"
run "$TRAIN" "${LOADED[@]}" --load "$W/bytes.st" --steps 1 --sample-tokens 0 --checkpoint "$W/loaded" --resume
want "a run that goes on" 0
check "a run that goes on: no weights but the checkpoint's" bash -c "! grep -qE '(random|loaded) weights: ' '$W/err'"
unset GYRE_LOG
run "$TRAIN" "${LOADED[@]}" --load "$W/bytes.st" --steps 1 --sample-tokens 0 --lr 0.01
check "loaded weights: the rate that is given" [ "$(lr)" = 0.01 ]
run "$TRAIN" "${LOADED[@]}" --load "$W/bytes.st" --steps 0 --prompt "line 7 of" --sample-tokens 20
want "bytes: a prompt" 0
check "bytes: text that begins with it" grep -q "^line 7 of" "$W/out"
run "$TRAIN" "${LOADED[@]}" --load "$W/ids.st" --steps 0 --prompt "line 7 of" --sample-tokens 20
want "other ids: a prompt" 2 "--prompt: .* name it with --tokenizer"
run "$TRAIN" "${LOADED[@]}" --load "$W/ids.st" --steps 0 --sample-tokens 20
want "other ids: no text" 0 "no sample of text: name the tokenizer"
check "other ids: none at all" bash -c "! grep -q 'a sample of text, temp' '$W/out'"
python3 -c 'import json, sys; print(json.dumps(json.loads(sys.stdin.readline())["config"]))' <"$W/load.jsonl" >"$W/again.json"
run "$TRAIN" --config "$W/again.json"
want "other ids: the same from its log" 0

# ---- a truth value is no number and no text
for key in lr steps log; do
    printf '{"%s": true}' $key >"$W/truth.json"
    run "$TRAIN" --config "$W/truth.json" "${SMALL[@]}"
    want "$key: true" 2 "$key"
done
printf '{"keep-weights": true, "resume": false}' >"$W/truth.json"
run "$TRAIN" --config "$W/truth.json" "${SMALL[@]}" --steps 0 --report none
want "of switches it is the value" 0

# ---- threads: the same bits for every number; a rank that runs alone has as many as cores
WIDE=(--data "$W/text" --layers 1 --hidden 256 --heads 4 --seq 160 --batch 1 --steps 2 --eval-every 0 --eval-sequences 1 \
    --sample-tokens 0 --peak-flops 1e9 --report none)
for n in 1 3; do
    run "$TRAIN" "${WIDE[@]}" --threads $n --save "$W/threads-$n.st" --log "$W/threads-$n.jsonl"
    want "$n threads" 0
done
check "3 threads" grep -q '^3 threads compute$' "$W/out"
check "3 threads: the same weights" cmp "$W/threads-1.st" "$W/threads-3.st"
check "3 threads: the same norms" diff <(grep -o '"grad_norm_hex":[^,]*' "$W/threads-1.jsonl") \
    <(grep -o '"grad_norm_hex":[^,]*' "$W/threads-3.jsonl")
run "$UCX_RUN" -n 2 "$TRAIN" "${WIDE[@]}" --tp 2 --steps 0 --threads 64
want "threads of ranks that are bound to a core each" 0 "--threads 64: the threads take turns on 1 processor, .*: take --threads 1"
check "is said once" test "$(grep -c "take turns" "$W/err")" = 1
check "with what gives more" test "$(nproc --all)" = 1 -o "$(grep -c "or more processors (ucx-run --bind none or numa)" "$W/err")" = 1
run "$TRAIN" "${WIDE[@]}" --steps 0 --threads 1025
want "too many threads" 2 "--threads wants a whole number from 0 to 1024"
run taskset -c "$(taskset -cp $$ | sed 's/.*[ :]\([0-9]*\).*/\1/')" "$TRAIN" "${SMALL[@]}" --steps 0 --report none
want "one core" 0
check "one core: one thread" bash -c "! grep -q 'threads compute' '$W/out'"
run "$TRAIN" "${SMALL[@]}" --steps 0 --report none
want "all cores" 0
cores=$(nproc)
if [ "$cores" -gt 1 ]; then
    check "all cores: threads" grep -qE '^[0-9]+ threads compute$' "$W/out"
fi
run "$UCX_RUN" -n "$cores" --bind none "$TRAIN" "${SMALL[@]}" --batch "$cores" --steps 0 --report none
want "ranks that fill the cores" 0
check "ranks that fill the cores: one thread each" bash -c "! grep -q 'threads compute' '$W/out'"

# ---- the sample: unasked only of a small model
LARGE=(--data "$W/text" --heads 2 --batch 1 --steps 0 --eval-sequences 1 --report none --threads 1 --peak-flops 1e9)
run "$TRAIN" "${LARGE[@]}" --layers 1 --hidden 128 --seq 8 --vocab 160000 --save "$W/large.st"
want "a large model" 0
check "a large model: no sample, and why" grep -q "^no sample of text, .* 20 million parameters: --sample-tokens N" "$W/out"
run "$TRAIN" "${LARGE[@]}" --load "$W/large.st" --tokenizer bytes --sample-tokens 3 # drawn weights take longer
check "a large model, asked for" grep -q "a sample of text, temp" "$W/out"
printf 'MemTotal: 100 kB\nMemAvailable: 100 kB\nSwapFree: 1000000 kB\n' >"$W/meminfo"
if unshare -m mount --bind "$W/meminfo" /proc/meminfo 2>/dev/null; then # rank 0's host has no memory for the sample
    run unshare -m bash -c 'mount --bind "$0" /proc/meminfo && exec "$@"' "$W/meminfo" "$UCX_RUN" -n 2 "$TRAIN" "${SMALL[@]}" --steps 4 \
        --sample-tokens 20 --report "$W/sampled.html" --log "$W/sampled.jsonl" --save "$W/sampled.st" --checkpoint "$W/sampled"
    want "no memory for the sample" 1 "no sample of text: it needs the whole model on rank 0, .*--sample-tokens 0"
    check "no memory for the sample: the weights are saved" [ -s "$W/sampled.st" ]
    check "no memory for the sample: so is the checkpoint" [ -e "$W/sampled/step-000000000004/index.json" ]
    check "no memory for the sample: the log has its end" grep -q weights_hash "$W/sampled.jsonl"
    check "no memory for the sample: the report is written" [ -s "$W/sampled.html" ]
    mkdir -p "$W"/groups/memory # the same of a control group, whatever its version; the host has enough
    for file in memory.max memory.current memory/memory.limit_in_bytes memory/memory.usage_in_bytes; do
        echo $((1 << 40)) >"$W/groups/$file"
    done
    for used in 1000 1; do # thousandths, without files that the kernel can take back
        echo "inactive_file $((((1 << 40) / 1000) * (1000 - used)))" >"$W/groups/memory.stat"
        sed 's/^/total_/' "$W/groups/memory.stat" >"$W/groups/memory/memory.stat"
        run unshare -m bash -c 'mount --bind "$0" /sys/fs/cgroup && exec "$@"' "$W/groups" "$TRAIN" "${SMALL[@]}" --steps 1 \
            --sample-tokens 20 --report none
        if [ $used = 1 ]; then
            want "memory for the sample in the control group" 0
        else
            want "no memory for the sample in the control group" 1 "no sample of text: it needs the whole model on rank 0"
        fi
    done
else
    echo "not checked: no memory for the sample (no mount namespace here)"
fi

run "$TRAIN" "${SMALL[@]}" --steps 2 --report none --tensorboard /proc/none
want "events where nothing can be made" 1 "cannot write events to /proc/none.*--tensorboard"
run "$TRAIN" "${SMALL[@]}" --steps 2 --report none --tensorboard "$W/text"
want "events in a file" 1 "cannot write events to $W/text.*--tensorboard"

# interleaved wants whole rounds at every size of a batch that grows; what is advised instead is accepted
GROWS=(--data tests/support/english.txt --layers 4 --hidden 32 --heads 4 --seq 16 --batch 8 --steps 2 --report none --eval-sequences 2
    --sample-tokens 0 --peak-flops 1e9 --batch-rampup 2:2:20)
run "$UCX_RUN" -n 2 "$TRAIN" "${GROWS[@]}" --pp 2 --schedule interleaved --micro-batch 2
want "a size that is no whole round" 2 "has 1 micro-batch, .*: take --micro-batch 1, or --schedule 1f1b --chunks 1"
run "$UCX_RUN" -n 2 "$TRAIN" "${GROWS[@]}" --pp 2 --schedule interleaved --micro-batch 1
want "with the micro-batch that was advised" 0
run "$UCX_RUN" -n 4 "$TRAIN" "${GROWS[@]}"
want "more ranks than sequences at first" 0 "up to 2 of 4 data-parallel ranks have no sequence until the batch is 4"
# --- little address space: it works or says why not; OpenBLAS by itself asks for memory without end. Its kernels for
# Haswell do so at the first product, however small ---
for mib in 60 100 150 200 300 400 600; do
    OPENBLAS_CORETYPE=Haswell run sh -c 'ulimit -v $(($1 * 1024)) && shift && exec "$@"' - $mib "$TRAIN" "${SMALL[@]}" --steps 1 --threads 2 \
        --report none
    checks=$((checks + 1))
    [ "$rc" = 0 ] || { [ "$rc" != 124 ] && grep -q 'ulimit -v\|OpenBLAS' "$W/err"; } || bad "$mib MiB of address space: code $rc"
done
run sh -c 'ulimit -v 102400 && exec "$1" --version' - "$TRAIN"
want "--version with 100 MiB of address space" 0
finish
