#!/bin/bash
# tests/tools/train/test_matmul_type.sh: gyre-train --matmul-type bf16: it learns as with products of fp32, with bits of its own that are the
# same in every layout and on any number of threads, also where a run goes on; what it does not go with is refused. The arithmetic:
# tests/model/test_matmul.c; all layouts: tests/layouts/check.
# deadline: 120
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../../support/lib.sh"
unset "${!GYRE_@}"
DEADLINE=40
TRAIN=$B/bin/gyre-train
# sums have several tiles of 32 terms, and some end within one
MODEL=(--data tests/support/english.txt --layers 2 --hidden 72 --heads 4 --seq 40 --leaves 2 --batch 6 --warmup 2 --eval-every 0
    --eval-sequences 4 --report none --sample-tokens 0 --peak-flops 1e9)

run "$TRAIN" "${MODEL[@]}" --steps 1 --matmul-type bf16
want "weights of fp32" 2 '--matmul-type bf16 needs --precision bf16: in fp32 and fp16 tensors hold more bits'
run "$TRAIN" "${MODEL[@]}" --steps 1 --matmul-type bf16 --precision fp16
want "weights of fp16" 2 '--matmul-type bf16 needs --precision bf16'
run "$TRAIN" "${MODEL[@]}" --steps 1 --matmul-type fp16 --precision bf16
want "another type" 2 'matmul-type.*fp32.*bf16'

TILES=("${MODEL[@]}" --precision bf16 --matmul-type bf16)
if ! grep -qw amx_bf16 /proc/cpuinfo; then
    run "$TRAIN" "${TILES[@]}" --steps 1
    want "a processor without tiles" 2 '--matmul-type bf16: .*bfloat16 tiles.*: take --matmul-type fp32'
    leave_out "the tiles of bfloat16, which this processor lacks"
    finish
fi

run "$TRAIN" "${MODEL[@]}" --precision bf16 --steps 40 --log "$W/fp32.log" --save "$W/fp32"
want "products of fp32" 0
run "$TRAIN" "${TILES[@]}" --steps 40 --log "$W/log" --save "$W/alone"
want "products of bf16" 0
check "have other bits" bash -c '! cmp -s "$1" "$2"' - "$W/fp32" "$W/alone"
check "losses agree to 0.1 %, and fall" python3 - "$W/fp32.log" "$W/log" <<'PYTHON'
import json, sys
a, b = ([s["loss"] for s in map(json.loads, open(log)) if "loss_hex" in s] for log in sys.argv[1:])
worst = max(abs(x - y) / x for x, y in zip(a, b))
print("worst", worst, "first", b[0], "last", b[-1])
sys.exit(not (len(a) == len(b) == 40 and worst < 0.001 and b[-1] < b[0] - 1))
PYTHON

while read -r ranks options <&3; do
    # shellcheck disable=SC2086 # several options
    run "$UCX_RUN" -n "$ranks" "$TRAIN" "${TILES[@]}" --steps 40 $options --save "$W/weights"
    want "$options" 0
    check "$options: the same bits" cmp -s "$W/alone" "$W/weights"
done 3<<'LAYOUTS'
1 --threads 3
4 --tp 2 --dp 2 --zero 3 --sequence-parallel
3 --dp 3 --zero 1
2 --pp 2 --schedule zb-h1 --micro-batch 2 --recompute full
LAYOUTS

# --- going on ---
run "$UCX_RUN" -n 2 "$TRAIN" "${TILES[@]}" --steps 40 --dp 2 --zero 2 --checkpoint "$W/cp" --checkpoint-every 20
want "with checkpoints" 0
rm -r "$W/cp/step-000000000040"
run "$TRAIN" "${MODEL[@]}" --precision bf16 --steps 40 --checkpoint "$W/cp" --resume
want "resumed with products of fp32" 2 "--matmul-type is fp32, but the run in .* was begun with bf16"
run "$TRAIN" "${TILES[@]}" --steps 40 --checkpoint "$W/cp" --resume --save "$W/weights"
want "resumed" 0
check "the same bits" cmp -s "$W/alone" "$W/weights"
rm -r "$W/cp/step-000000000040"
run "$TRAIN" "${MODEL[@]}" --precision bf16 --steps 40 --checkpoint "$W/cp" --resume --may-change matmul-type --save "$W/weights"
want "which may change" 0
finish
