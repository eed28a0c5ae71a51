#!/bin/bash
# tests/tools/train/test_valid.sh: what a run is validated on: sets by name, a part that is held out, data of which little
# is learned.
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../../support/lib.sh"
TRAIN=$B/bin/gyre-train
verse() { awk -v n="$1" 'BEGIN { for (i = 0; i < n; i++) printf "line %d of verse has %d words, and more follow.\n", i, i * 7 % 23 }'; }
verse 300 >"$W/text"
verse 80 | tr '[:lower:]' '[:upper:]' >"$W/loud"
verse 80 | tr 0-9 a-j >"$W/plain"
SMALL=(--data "$W/text" --layers 1 --hidden 32 --heads 2 --seq 32 --batch 4 --eval-every 2 --eval-sequences 4 --warmup 2
    --sample-tokens 0 --peak-flops 1e9 --report none --progress none)
SETS="loud=$W/loud,both=0.7:$W/plain,0.3:$W/loud"
# steps LOG: its lines up to what depends on clocks
steps() { sed -nE 's/("step":.*)"tokens_per_second".*/\1/p' "$1"; }

# ---- sets by name
run "$TRAIN" "${SMALL[@]}" --steps 4 --valid-data "$SETS" --log "$W/one" --tensorboard "$W/board" --report "$W/page.html"
want "two sets" 0
cp "$W/out" "$W/one.out"
check "each is printed, and the mean" python3 - "$W/one.out" "$W/one" <<'PY'
import json, re, sys
out, lines = open(sys.argv[1]).read(), [json.loads(line) for line in open(sys.argv[2])]
vals = [line for line in lines if "val_loss" in line]
assert [line.get("step") for line in vals] == [2, 4, None]
for line in vals:
    loud, both = line["val_losses"]["loud"], line["val_losses"]["both"]
    assert list(line["val_losses"]) == ["loud", "both"] and loud != both
    assert line["val_loss"] == (loud + both) / 2
last = vals[-1]["val_losses"]
for name in last:
    assert re.search(rf"^  {name} +{last[name]:.4f} nats/byte; [0-9.]+ before training$", out, re.M), out
assert re.search(rf"^validation loss  {vals[-1]['val_loss']:.4f} nats/byte, the mean of the sets, ", out, re.M), out
PY
python3 -c 'import json, sys; print(json.dumps(json.loads(open(sys.argv[1]).readline())["config"]))' "$W/one" >"$W/config"
run "$TRAIN" --config "$W/config" --log "$W/again" --tensorboard "$W/board2" --report none
want "the options of the log" 0
check "are the same run" cmp -s <(steps "$W/one") <(steps "$W/again")
check "TensorBoard has each" grep -qa 'loss/validation/both' "$W/board"/events*
check "and so has the report" grep -q '<span>both</span>' "$W/page.html"
for set in "loud=$W/loud" "$W/loud"; do
    run "$TRAIN" "${SMALL[@]}" --steps 4 --valid-data "$set" --log "$W/alone"
    want "one set ($set)" 0
    check "a set has the loss that it has alone" python3 - "$W/one" "$W/alone" <<'PY'
import json, sys
of = lambda path: [line for line in map(json.loads, open(path)) if "val_loss" in line]
assert [line["val_losses"]["loud"] for line in of(sys.argv[1])] == [line["val_loss"] for line in of(sys.argv[2])]
PY
done
check "a set without a name has none" test "$(grep -c val_losses "$W/alone")" = 0
for layout in "2 --pp 2 --layers 2" "3 --zero 2"; do
    # shellcheck disable=SC2086 # words
    set -- $layout
    ranks=$1
    shift
    run "$TRAIN" "${SMALL[@]}" --steps 4 --valid-data "$SETS" --log "$W/want" "$@" --pp 1 --zero 0
    want "one rank, for $layout" 0
    run "$UCX_RUN" -n "$ranks" "$TRAIN" "${SMALL[@]}" --steps 4 --valid-data "$SETS" --log "$W/got" "$@"
    want "$layout" 0
    check "the same bits: $layout" cmp -s <(steps "$W/want") <(steps "$W/got")
done
run "$TRAIN" "${SMALL[@]}" --steps 1 --valid-data "a=$W/loud,a=$W/plain"
want "a name twice" 2 "two sets named a"
run "$TRAIN" "${SMALL[@]}" --steps 1 --valid-data "a=$W/loud,short=$W/plain,b=$W/nope"
want "a set that is not there" 2 "cannot open $W/nope"
head -c 20 "$W/loud" >"$W/stub"
run "$TRAIN" "${SMALL[@]}" --steps 1 --valid-data "a=$W/loud,stub=$W/stub"
want "a set that is too short" 2 "--valid-data stub: $W/stub holds 20 tokens: too short for one sequence of 32"
run "$TRAIN" "${SMALL[@]}" --steps 1 --valid-data "$(for i in {1..17}; do printf 's%d=%s,' "$i" "$W/loud"; done)"
want "too many" 2 "at most 16 sets can be named"
cp "$W/loud" "$W/x=1,y=2"
(cd "$W" && "$TRAIN" "${SMALL[@]}" --steps 0 --valid-data "x=1,y=2" >"$W/out" 2>"$W/err")
rc=$?
want "a file with such a name" 0

# ---- a part that is held out
run "$TRAIN" "${SMALL[@]}" --steps 4 --log "$W/tenth"
want "a tenth by itself" 0
run "$TRAIN" "${SMALL[@]}" --steps 4 --log "$W/said" --valid-fraction 0.1
want "a tenth that is said" 0
check "is the same" cmp -s <(steps "$W/tenth") <(steps "$W/said")
run "$TRAIN" "${SMALL[@]}" --steps 4 --log "$W/half" --valid-fraction 0.5 --report "$W/half.html" --checkpoint "$W/ck"
want "half" 0
check "the start says which part" grep -q 'the last 0.5 of it for validation' "$W/out"
check "in the report, too" grep -q 'the last 0.5 of the data' "$W/half.html"
check "is another part" test "$(steps "$W/tenth")" != "$(steps "$W/half")"
run "$UCX_RUN" -n 2 "$TRAIN" "${SMALL[@]}" --steps 4 --log "$W/half2" --valid-fraction 0.5
want "half, on 2 ranks" 0
check "of the same bits" cmp -s <(steps "$W/half") <(steps "$W/half2")
run "$TRAIN" "${SMALL[@]}" --steps 8 --checkpoint "$W/ck" --resume --may-change steps
want "another part is another run" 2 "valid-fraction is 0.1.* 0.5"
run "$TRAIN" "${SMALL[@]}" --steps 8 --checkpoint "$W/ck" --resume --may-change steps,data
want "unless the data may change" 0
run "$TRAIN" "${SMALL[@]}" --steps 4 --valid-fraction 0 --log "$W/none" --report "$W/none.html"
want "nothing is held out" 0
check "then nothing is validated" grep -q 'validation loss  was not measured' "$W/out"
check "nor said" test "$(grep -c '"val_loss":[0-9]' "$W/none")$(grep -c nan "$W/none.html")" = 00
for wrong in 1 -0.1 x; do
    run "$TRAIN" "${SMALL[@]}" --steps 1 --valid-fraction "$wrong"
    want "--valid-fraction $wrong" 2 "valid-fraction"
done
run "$TRAIN" "${SMALL[@]}" --steps 1 --valid-fraction 0.2 --valid-data "$W/loud"
want "both" 2 "leave one of them out"
run "$TRAIN" "${SMALL[@]}" --steps 1 --valid-fraction 0.001
want "too small a part" 2 "the last 0.001 \([0-9]+\) are for validation: too short for one sequence of 32 tokens; name at least 33000 bytes"
run "$TRAIN" "${SMALL[@]}" --steps 1 --valid-fraction 0.000001
want "nothing in it" 2 "the last 1e-06 \(0\) are for validation: .* name at least 33000000 bytes with --data, or another --valid-fraction"

# ---- named sets, over an interruption
run "$TRAIN" "${SMALL[@]}" --steps 8 --valid-data "$SETS" --log "$W/whole"
want "8 steps" 0
run "$TRAIN" "${SMALL[@]}" --steps 4 --lr-decay 8 --valid-data "$SETS" --checkpoint "$W/ck2" --log "$W/part"
want "4 of 8" 0
run "$TRAIN" "${SMALL[@]}" --steps 8 --lr-decay 8 --may-change steps --valid-data "$SETS" --checkpoint "$W/ck2" --resume --log "$W/part"
want "the other 4" 0
check "the same losses of each set" cmp -s <(steps "$W/whole") <(steps "$W/part")
check "and those before training are known" grep -qE '^  both +[0-9.]+ nats/byte; [0-9.]+ before training$' "$W/out"
run "$TRAIN" "${SMALL[@]}" --steps 8 --lr-decay 8 --may-change steps --valid-data "loud=$W/loud" --checkpoint "$W/ck2" --resume
want "other sets" 2 "give the same text with --data and --valid-data, or --may-change data"

# ---- little is learned
printf "#version: 0.2\na b\n" >"$W/merges.txt"
python3 - "$W" <<'PY'
import json, sys
def write(name, count, words):
    with open(f"{sys.argv[1]}/{name}.jsonl", "w") as out:
        for i in range(count):
            out.write(json.dumps({"messages": [{"role": "user", "content": ("word %d " % i) * words},
                                               {"role": "assistant", "content": "y"}]}) + "\n")
write("long", 60, 60)
write("short", 40, 2)
PY
for name in long short; do
    run "$B/bin/gyre-tokenize" --tokenizer "gpt2:$W/merges.txt" --jsonl --template plain --out "$W/$name.gyt" "$W/$name.jsonl"
    want "conversations: $name" 0
done
LITTLE=(--data "$W/long.gyt" --layers 1 --hidden 32 --heads 2 --seq 32 --batch 1 --eval-sequences 2 --steps 6 --sample-tokens 0 --peak-flops 1e9
    --report none --progress none)
run "$TRAIN" "${LITTLE[@]}"
want "validation without a token to learn" 2 "long.gyt: none of the 2 sequences of 32 tokens for validation has a token that is learned" \
    "--eval-sequences, --sampling packed"
run "$TRAIN" "${LITTLE[@]}" --valid-data "good=$W/short.gyt,bad=$W/long.gyt"
want "in a set" 2 "--valid-data bad: none of the 2 sequences"
run "$B/bin/gyre-tokenize" --tokenizer "gpt2:$W/merges.txt" --out "$W/unmasked.gyt" "$W/text"
run "$TRAIN" "${LITTLE[@]}" --data "$W/unmasked.gyt" --valid-data "$W/long.gyt"
want "with other data for training, which has no mask" 2 "none of the 2 sequences"
run "$TRAIN" "${LITTLE[@]}" --valid-data "$W/short.gyt" --log "$W/little"
want "a step without a token to learn" 0 "step 1: no token of its 1 sequences is learned"
check "one warning of it" test "$(grep -c 'no token of its' "$W/err")" = 1
check "and stands in the log" python3 - "$W/little" "$W/out" <<'PY'
import json, re, sys
steps = [line for line in map(json.loads, open(sys.argv[1])) if "step" in line]
empty = [line for line in steps if line.get("unlearned")]
assert empty and all((line["loss"] == 0) == bool(line.get("unlearned")) for line in steps)
assert f"no token of {len(empty)} steps was learned" in open(sys.argv[2]).read()
PY
counted=$(grep 'steps was learned' "$W/out")
LITTLE+=(--valid-data "$W/short.gyt" --checkpoint "$W/ck3")
run "$TRAIN" "${LITTLE[@]}" --checkpoint-every 3 --log "$W/little2"
want "with checkpoints" 0
rm -r "$W/ck3/step-000000000006"
run "$TRAIN" "${LITTLE[@]}" --resume --log "$W/little2"
want "a run that goes on" 0
check "counts those before, too" [ "$(grep 'steps was learned' "$W/out")" = "$counted" ]
rm -r "$W/ck3/step-000000000006"
run "$TRAIN" "${LITTLE[@]}" --resume
want "a run that goes on without its log" 0
check "counts those before, too, without the log" [ "$(grep 'steps was learned' "$W/out")" = "$counted" ]
finish
