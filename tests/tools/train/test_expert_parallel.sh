#!/bin/bash
# tests/tools/train/test_expert_parallel.sh: gyre-train --ep: data-parallel ranks that share experts have the bits of one process, in
# training, with Muon, of adapters, and in an evaluation of which they have not as many sequences each; a run goes on with another
# degree; what it does not go with is refused. All kinds of layouts: tests/layouts/check.
# deadline: 90
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../../support/lib.sh"
unset "${!GYRE_@}"
DEADLINE=40
TRAIN=$B/bin/gyre-train
# experts that find some choices no slot, shared ones, and a first layer without any
cat >"$W/model.json" <<'JSON'
{"model_type": "gyre", "vocab": 257, "seq": 32, "layers": 3, "hidden": 32, "heads": 4, "ffn": 24, "leaves": 2, "pos": "rope",
 "norm": "RMSNorm", "act": "silu", "gated": true, "untied": true, "no_qkv_bias": true, "no_proj_bias": true, "no_mlp_bias": true,
 "experts": 8, "top_k": 2, "capacity": 1.0, "balance": 0.01, "expert_bias": true, "router_bias": true, "shared_ffn": 16,
 "dense_first": 1, "dense_ffn": 48, "dropout": 0.1}
JSON
for i in $(seq 0 1999); do
    echo "the $((i * i % 97)) quick brown foxes jump over $((i % 13)) lazy dogs"
done >"$W/text"
RUN=(--model "$W/model.json" --data "$W/text" --batch 8 --steps 4 --warmup 2 --eval-every 2 --eval-sequences 5 --report none
    --sample-tokens 0 --peak-flops 1e9)
curve() { # LOG: what decides, in the last bit
    python3 -c 'import json, sys
for line in map(json.loads, open(sys.argv[1])):
    if "loss_hex" in line:
        print(line["step"], line["loss_hex"], line["grad_norm_hex"], line.get("val_loss"), line["balance_loss"], line["dropped"])' "$1"
}
alone() { # NAME OPTIONS...
    rm -f "$W/log"
    run "$TRAIN" "${RUN[@]}" "${@:2}" --log "$W/log" --save "$W/$1"
    want "$1, one process" 0
    curve "$W/log" >"$W/$1.curve"
}
same() { # NAME RANKS OPTIONS...
    rm -f "$W/log"
    run "$UCX_RUN" -n "$2" "$TRAIN" "${RUN[@]}" "${@:3}" --log "$W/log" --save "$W/weights"
    want "$1, ${*:3}" 0
    check "$1, ${*:3}: the same curve" cmp -s "$W/$1.curve" <(curve "$W/log")
    check "$1, ${*:3}: the same weights" cmp -s "$W/$1" "$W/weights"
}

alone fp32
check "four steps" [ "$(wc -l <"$W/fp32.curve")" = 4 ]
check "some choices find no slot" bash -c '! grep -q " 0.0$" "$1"' - "$W/fp32.curve"
same fp32 2 --ep 2
same fp32 4 --ep 4 --zero 3 --recompute full
same fp32 4 --ep 2 --dp 4 --zero 2 --micro-batch 2 --bucket-bytes 2K --trace "$W/trace" --trace-steps 2:2
check "all-to-alls have a name in the trace" python3 "$(dirname "$0")/../trace.py" "$W/trace" 4 2 2 forward "expert parallel"
same fp32 4 --ep 2 --tp 2 --zero 1 --sequence-parallel
same fp32 4 --ep 2 --pp 2 --schedule zb-h1
alone bf16 --precision bf16 --grad-type 16 --lanes 4 --clip 0.5
same bf16 4 --precision bf16 --grad-type 16 --lanes 4 --clip 0.5 --ep 2 --zero 3 --keep-weights
same bf16 4 --precision bf16 --grad-type 16 --lanes 4 --clip 0.5 --ep 4
alone groups --batch 12 --groups 6
same groups 6 --batch 12 --groups 6 --ep 2

# --- Muon, whose matrices come together from all ranks that have pieces of them ---
alone muon --optimizer muon
same muon 4 --optimizer muon --ep 2 --tp 2 --zero 1
same muon 4 --optimizer muon --ep 2 --zero 0

# --- adapters of weights that ranks share ---
run "$TRAIN" "${RUN[@]}" --steps 1 --save "$W/folder/"
want "weights to adapt" 0
MODEL=("${RUN[@]}")
RUN=("${RUN[@]:2}" --load "$W/folder/" --lora 4 --lr 0.01 --leaves 2)
alone adapters
same adapters 4 --ep 2 --zero 3
same adapters 4 --ep 2 --tp 2
RUN=("${MODEL[@]}")

# --- a batch that grows ---
alone grows --batch-rampup 4:4:12
same grows 4 --batch-rampup 4:4:12 --ep 2 --zero 3

# --- a step whose gradient is not finite is skipped by all, and the loss scale halved ---
SCALED=(--precision fp16 --loss-scale 524288 --loss-scale-hysteresis 1)
alone fp16 "${SCALED[@]}"
same fp16 4 "${SCALED[@]}" --ep 2 --zero 1
check "steps were skipped" grep -q '"skipped":true' "$W/log"

# --- a checkpoint is that of any degree ---
run "$UCX_RUN" -n 4 "$TRAIN" "${RUN[@]}" --ep 4 --checkpoint "$W/cp" --checkpoint-every 2 --report "$W/report.html"
want "with checkpoints" 0
check "the report has the degree" grep -q "<td>experts over</td><td>4 data-parallel ranks</td>" "$W/report.html"
rm -r "$W/cp/step-000000000004"
cp -r "$W/cp" "$W/again"
run "$UCX_RUN" -n 2 "$TRAIN" "${RUN[@]}" --ep 2 --zero 3 --checkpoint "$W/cp" --resume --save "$W/weights"
want "resumed with another degree" 0
check "to the same bits" cmp -s "$W/fp32" "$W/weights"
run "$TRAIN" "${RUN[@]}" --checkpoint "$W/again" --resume --save "$W/weights"
want "resumed by one process" 0
check "to the same bits there" cmp -s "$W/fp32" "$W/weights"

# --- what does not go together ---
once() { # TEXT OPTIONS...
    run "$UCX_RUN" -n 2 "$TRAIN" "${RUN[@]}" "${@:2}"
    want "${*:2}" 2 "$1"
}
once "--batch-rampup: 3 of 8 sequences have no equal shares for dp 2, as --ep 2 needs: take steps of a multiple of 2" --ep 2 \
    --batch-rampup 2:1:20
run "$UCX_RUN" -n 6 "$TRAIN" "${RUN[@]}" --ep 2 --batch 24 --groups 24 --batch-rampup 12:12:48
want "a size that other groups would divide" 2 \
    "12 of 24 sequences have no equal shares for dp 6, as --ep 2 needs: take --groups 6 \(other bits\), or --ep 1"
once "ep 2 must be a power of two that divides dp 1; the nearest that works on 2 ranks: --tp 2 --pp 1 --dp 1 --ep 1" --ep 2 --tp 2
once "ep 2 does not go with --grad-sequences 2: leave one out" --ep 2 --grad-sequences 2
once "ep 2 does not go with --sequence-parts 2: leave one out" --ep 2 --sequence-parts 2
DENSE=(--data "$W/text" --batch 4 --steps 1 --report none --sample-tokens 0 --peak-flops 1e9)
run "$TRAIN" "${DENSE[@]}" --layers 1 --hidden 16 --heads 2 --seq 16 --save "$W/dense"
want "a model without experts" 0
run "$UCX_RUN" -n 2 "$TRAIN" "${DENSE[@]}" --load "$W/dense" --ep 2
want "its ranks" 2 "ep 2: the model has no experts; the nearest that works on 2 ranks: --tp 1 --pp 1 --dp 2 --ep 1"
finish
