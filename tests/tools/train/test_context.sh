#!/bin/bash
# tests/tools/train/test_context.sh: gyre-train --cp: ranks that share sequences have the bits of one process, with sequences of several
# blocks of attention, packed documents, grouped heads and windows, with heads dealt out and
# in a ring; a run goes on with another degree; what it does not go with is refused.
# All kinds of layouts: tests/layouts/check. The arithmetic: tests/model/test_stage_parts.c.
# deadline: 90
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../../support/lib.sh"
unset "${!GYRE_@}"
DEADLINE=40
TRAIN=$B/bin/gyre-train
cat >"$W/model.json" <<'JSON'
{"model_type": "gyre", "vocab": 257, "seq": 320, "layers": 2, "hidden": 32, "heads": 8, "kv_heads": 4, "ffn": 48, "leaves": 2,
 "pos": "rope", "norm": "RMSNorm", "act": "silu", "gated": true, "untied": true, "no_qkv_bias": true, "no_proj_bias": true,
 "no_mlp_bias": true, "dropout": 0.1, "attn_dropout": 0.1, "window": 200, "window_every": 2}
JSON
python3 -c 'import json
for i in range(600):
    print(json.dumps({"text": " ".join(f"{i * j % 97} foxes" for j in range(1 + i * i % 50))}))' >"$W/texts.jsonl"
run "$B/bin/gyre-tokenize" --tokenizer bytes --jsonl --quiet --out "$W/texts.gyt" "$W/texts.jsonl"
want "documents" 0
RUN=(--model "$W/model.json" --data "$W/texts.gyt" --sampling packed --batch 4 --steps 4 --warmup 2 --eval-every 2 --eval-sequences 3
    --report none --sample-tokens 0 --peak-flops 1e9)
PARTS=("${RUN[@]}" --sequence-parts 4)
curve() { # LOG: what decides, in the last bit
    python3 -c 'import json, sys
for line in map(json.loads, open(sys.argv[1])):
    if "loss_hex" in line:
        print(line["step"], line["loss_hex"], line["grad_norm_hex"], line.get("val_loss"))' "$1"
}

run "$TRAIN" "${PARTS[@]}" --log "$W/log" --save "$W/alone"
want "one process" 0
curve "$W/log" >"$W/curve"
check "four steps" [ "$(wc -l <"$W/curve")" = 4 ]
run "$TRAIN" "${RUN[@]}" --log "$W/log" --save "$W/weights"
check "whole sequences have other bits" bash -c '! cmp -s "$1" "$2"' - "$W/alone" "$W/weights"
check "and nearly the same curve" python3 -c 'import json, sys
a = [float.fromhex(line.split()[1]) for line in open(sys.argv[1])]
b = [line["loss"] for line in map(json.loads, open(sys.argv[2])) if "loss_hex" in line]
sys.exit(not all(abs(x - y) < 1e-4 for x, y in zip(a, b)))' "$W/curve" "$W/log"
while read -r ranks options <&3; do
    rm -f "$W/log"
    # shellcheck disable=SC2086 # several options
    run "$UCX_RUN" -n "$ranks" "$TRAIN" "${PARTS[@]}" $options --log "$W/log" --save "$W/weights"
    want "$options" 0
    check "$options: the same curve" cmp -s "$W/curve" <(curve "$W/log")
    check "$options: the same weights" cmp -s "$W/alone" "$W/weights"
done 3<<'LAYOUTS'
2 --cp 2
4 --cp 4 --zero 3 --recompute full
4 --cp 2 --dp 2 --zero 1
2 --cp 2 --cp-attention ring --recompute full
4 --cp 4 --cp-attention ring --zero 3
LAYOUTS

# --- a ring needs no heads to deal out: one head of keys and values, with sinks, a cap, 16 bits and tensor parallelism ---
sed 's/"heads": 8/"heads": 4/; s/"kv_heads": 4/"kv_heads": 1/; s/"window_every": 2/"sinks": true, "attn_cap": 3/' "$W/model.json" >"$W/one.json"
FEW=("${PARTS[@]/model.json/one.json}" --precision bf16 --steps 2)
rm -f "$W/log"
run "$TRAIN" "${FEW[@]}" --log "$W/log" --save "$W/few"
want "one head, one process" 0
curve "$W/log" >"$W/curve"
rm -f "$W/log"
run "$UCX_RUN" -n 4 "$TRAIN" "${FEW[@]}" --tp 2 --cp 2 --cp-attention ring --log "$W/log" --save "$W/weights"
want "one head in a ring" 0
check "one head in a ring: the same curve" cmp -s "$W/curve" <(curve "$W/log")
check "one head in a ring: the same weights" cmp -s "$W/few" "$W/weights"

# --- shares of whole blocks, without documents; windows end the way in every second layer ---
sed 's/"seq": 320/"seq": 512/; s/"pos": "rope"/"pos": "alibi"/; s/"window": 200/"window": 100/' "$W/model.json" >"$W/whole.json"
cp "$W/texts.jsonl" "$W/text"
WHOLE=(--model "$W/whole.json" --data "$W/text" --batch 2 --steps 2 --warmup 1 --eval-sequences 1 --report none --sample-tokens 0 --peak-flops 1e9
    --sequence-parts 4)
rm -f "$W/log"
run "$TRAIN" "${WHOLE[@]}" --log "$W/log" --save "$W/few"
want "whole blocks, one process" 0
curve "$W/log" >"$W/curve"
rm -f "$W/log"
run "$UCX_RUN" -n 4 "$TRAIN" "${WHOLE[@]}" --cp 4 --cp-attention ring --log "$W/log" --save "$W/weights"
want "whole blocks in a ring" 0
check "whole blocks in a ring: the same curve" cmp -s "$W/curve" <(curve "$W/log")
check "whole blocks in a ring: the same weights" cmp -s "$W/few" "$W/weights"

# --- a checkpoint is that of any degree ---
run "$UCX_RUN" -n 4 "$TRAIN" "${PARTS[@]}" --cp 2 --tp 2 --zero 2 --checkpoint "$W/cp" --checkpoint-every 2 --trace "$W/trace" \
    --trace-steps 2:2
want "with checkpoints" 0
check "its all-to-alls have a name" python3 "$(dirname "$0")/../trace.py" "$W/trace" 4 2 2 forward "tensor parallel" "context parallel"
rm -r "$W/cp/step-000000000004"
run "$TRAIN" "${RUN[@]}" --sequence-parts 2 --checkpoint "$W/cp" --resume
want "resumed with other parts" 2 "--sequence-parts is 2, but the run in .* was begun with 4"
run "$UCX_RUN" -n 2 "$TRAIN" "${PARTS[@]}" --pp 2 --checkpoint "$W/cp" --resume --save "$W/weights"
want "resumed on a pipeline" 0
check "to the same bits" cmp -s "$W/alone" "$W/weights"

# --- what does not go together ---
once() { # TEXT OPTIONS...
    run "$UCX_RUN" -n 2 "$TRAIN" "${RUN[@]}" "${@:2}"
    want "${*:2}" 2 "$1"
}
once "cp 2 does not divide the 1 part of each sequence: with --sequence-parts 2 \(other bits\) it could" --cp 2
once "--cp-attention ring is for --cp 2 or more: leave it out" --sequence-parts 2 --cp-attention ring
once "--sequence-parts 3: it must be a power of two up to 64" --sequence-parts 3
once "--sequence-parts 2 with --grad-sequences 2: a gradient is that of a part or of several" --sequence-parts 2 --grad-sequences 2
once "--cp 2 with --batch-rampup: .*; take --cp 1" --sequence-parts 2 --cp 2 --batch-rampup 2:2:20
finish
