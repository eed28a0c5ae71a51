#!/bin/bash
# tests/tools/train/test_muon.sh: gyre-train --optimizer muon: it learns, with the same bits in every layout, also where a run goes on in
# another one; its checkpoints; what it does not go with is refused. The arithmetic: tests/optim/test_muon.c.
# deadline: 120
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../../support/lib.sh"
unset "${!GYRE_@}"
DEADLINE=40
TRAIN=$B/bin/gyre-train
DATA=(--data tests/support/english.txt --batch 8 --warmup 2 --eval-every 0 --eval-sequences 4 --report none --sample-tokens 0 --peak-flops 1e9)
ADAMW=("${DATA[@]}" --layers 2 --hidden 32 --heads 4 --seq 32)
MUON=("${ADAMW[@]}" --optimizer muon)
MIXED=("${DATA[@]}" --model "$W/mixed.json" --optimizer muon --steps 4)
cat >"$W/mixed.json" <<'JSON'
{"model_type": "gyre", "vocab": 256, "seq": 16, "layers": 2, "hidden": 32, "heads": 8, "kv_heads": 4, "ffn": 48, "leaves": 4, "pos": "rope",
 "norm": "RMSNorm", "act": "silu", "gated": true, "untied": true, "no_qkv_bias": true, "no_proj_bias": true, "no_mlp_bias": true,
 "experts": 4, "top_k": 2}
JSON
last() { # LOG KEY
    tail -n 1 "$1" | python3 -c 'import json, sys
print(json.load(sys.stdin)[sys.argv[1]])' "$2"
}

run "$TRAIN" "${MUON[@]}" --steps 80 --lr 0.01 --log "$W/log"
want "80 steps" 0
check "it learns" python3 -c 'import sys; sys.exit(not float(sys.argv[1]) < 3.3)' "$(last "$W/log" val_loss)"

MUON+=(--steps 6)
run "$TRAIN" "${MUON[@]}" --save "$W/alone"
want "one process" 0
run "$TRAIN" "${ADAMW[@]}" --steps 6 --save "$W/weights"
check "AdamW is another optimiser" bash -c '! cmp -s "$1" "$2"' - "$W/alone" "$W/weights"
run "$TRAIN" "${MUON[@]}" --precision bf16 --save "$W/bf16"
run "$TRAIN" "${MIXED[@]}" --save "$W/mixed"
want "experts" 0
while read -r ranks options <&3; do
    for model in alone bf16 mixed; do
        words=("${MUON[@]}")
        [ "$model" = mixed ] && words=("${MIXED[@]}")
        [ "$model" = bf16 ] && words+=(--precision bf16)
        # shellcheck disable=SC2086 # several options
        run "$UCX_RUN" -n "$ranks" "$TRAIN" "${words[@]}" $options --save "$W/weights"
        want "$model, $options" 0
        check "$model, $options: the same bits" cmp -s "$W/$model" "$W/weights"
    done
done 3<<'LAYOUTS'
4 --tp 2 --dp 2 --zero 0
4 --tp 2 --dp 2 --zero 3 --sequence-parallel
3 --dp 3 --zero 1 --bucket-bytes 2K
4 --pp 2 --dp 2 --zero 2
LAYOUTS

# --- going on in another layout ---
run "$UCX_RUN" -n 4 "$TRAIN" "${MUON[@]}" --tp 2 --dp 2 --zero 2 --checkpoint "$W/cp" --checkpoint-every 3
want "with checkpoints" 0
rm -r "$W/cp/step-000000000006"
run "$TRAIN" "${ADAMW[@]}" --steps 6 --checkpoint "$W/cp" --resume
want "resumed with AdamW" 2 "--optimizer is adamw, but the run in .* was begun with muon"
run "$TRAIN" "${ADAMW[@]}" --steps 6 --checkpoint "$W/cp" --resume --may-change optimizer
want "which may not change so" 2 "--may-change: optimizer: a run may go from adamw to muon only"
run "$TRAIN" "${MUON[@]}" --momentum 0.9 --checkpoint "$W/cp" --resume
want "resumed with another momentum" 2 "--momentum is 0.9, but the run in .* was begun with 0.95"
cp -r "$W/cp" "$W/cp3"
run "$TRAIN" "${MUON[@]}" --checkpoint "$W/cp" --resume --save "$W/weights"
want "resumed alone" 0
check "to the same bits" cmp -s "$W/alone" "$W/weights"
run "$UCX_RUN" -n 3 "$TRAIN" "${MUON[@]}" --zero 3 --checkpoint "$W/cp3" --resume --save "$W/weights"
want "resumed on three" 0
check "to the same bits there" cmp -s "$W/alone" "$W/weights"
run "$TRAIN" "${ADAMW[@]}" --steps 3 --checkpoint "$W/from" --checkpoint-every 3
run "$TRAIN" "${MUON[@]}" --checkpoint "$W/from" --resume --may-change optimizer,steps
want "from AdamW to Muon" 0

# --- rates and decay by name are Muon's, too ---
run "$TRAIN" "${MUON[@]}" --lr 0.0015 --decay-on '*=0.2' --save "$W/half"
run "$UCX_RUN" -n 2 "$TRAIN" "${MUON[@]}" --lr 0.003 --lr-scale '*=0.5' --decay-on '*=0.2' --tp 2 --save "$W/weights"
check "half of the rate for all is half of the rate" cmp -s "$W/half" "$W/weights"
run "$TRAIN" "${MUON[@]}" --freeze '*mlp*' --clip 0 --save "$W/frozen"
run "$TRAIN" "${MUON[@]}" --lr-scale '*mlp*=0' --clip 0 --save "$W/weights"
check "none at all is frozen" cmp -s "$W/frozen" "$W/weights"

# --- what it does not go with ---
run "$TRAIN" "${MUON[@]}" --offload "$W"
want "a file" 2 "--optimizer muon and --offload exclude each other"
run "$TRAIN" "${DATA[@]}" --load "$W/alone" --heads 4 --lora 4 --optimizer muon
want "adapters" 2 "--optimizer muon and --lora exclude each other"
run "$TRAIN" "${ADAMW[@]}" --steps 1 --momentum 0.9
want "a momentum of nothing" 0 "--momentum has no effect here: --optimizer is adamw"
finish
