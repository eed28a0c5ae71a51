#!/bin/bash
# tests/tools/train/test_groups.sh: rates and weight decay by names of weights: what they mean, the same bits in every layout and when
# a run goes on, and bad input is refused by name.
# deadline: 120
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../../support/lib.sh"
unset "${!GYRE_@}"
DEADLINE=40
TRAIN=$B/bin/gyre-train
RUN=(--data tests/support/english.txt --layers 2 --hidden 32 --heads 4 --seq 32 --batch 8 --steps 6 --warmup 2 --lr 0.01 --eval-every 0 --eval-sequences 4
    --report none --sample-tokens 0 --peak-flops 1e9)
BY_NAME=(--lr-scale '*=0.5,*wte*=0.25,*mlp*=2' --decay-on '*ln*=0.3,*wte*=0')
saves() { # NAME OPTIONS...
    run "$TRAIN" "${RUN[@]}" --save "$W/$1" "${@:2}"
    want "$1" 0
}

# --- what they mean ---
saves half --lr 0.005
saves scaled --lr-scale '*=0.5'
check "half of the rate for all is half of the rate" cmp -s "$W/half" "$W/scaled"
saves frozen --freeze '*wte*' --clip 0 --checkpoint "$W/frozen.cp"
saves still --lr-scale '*=1,*wte*=0' --clip 0 --checkpoint "$W/still.cp"
check "none at all is frozen" cmp -s "$W/frozen" "$W/still"
check "a frozen weight has the moments of one that is not" cmp -s "$W"/{frozen,still}.cp/step-000000000006/shard-00000.safetensors
saves none --weight-decay 0
saves zero --decay-on '*=0'
check "no decay of all is no decay" cmp -s "$W/none" "$W/zero"
saves plain
saves vectors --decay-on '*.ln_1.*=0.3'
check "decay of vectors changes bits" bash -c '! cmp -s "$1" "$2"' - "$W/plain" "$W/vectors"

# --- layouts, and going on ---
saves all "${BY_NAME[@]}"
while read -r ranks options <&3; do
    # shellcheck disable=SC2086 # several options
    run "$UCX_RUN" -n "$ranks" "$TRAIN" "${RUN[@]}" "${BY_NAME[@]}" $options --save "$W/weights"
    want "$options" 0
    check "$options: the same bits" cmp -s "$W/all" "$W/weights"
done 3<<'LAYOUTS'
2 --tp 2
2 --dp 2 --zero 3 --bucket-bytes 2K
4 --pp 2 --dp 2 --zero 2
LAYOUTS
run "$UCX_RUN" -n 2 "$TRAIN" "${RUN[@]}" "${BY_NAME[@]}" --zero 1 --checkpoint "$W/cp" --checkpoint-every 3
want "with checkpoints" 0
rm -r "$W/cp/step-000000000006"
run "$TRAIN" "${RUN[@]}" --checkpoint "$W/cp" --resume
want "resumed without" 2 "--lr-scale is none, but the run in .* was begun with \*=0.5,\*wte\*=0.25,\*mlp\*=2: give"
run "$UCX_RUN" -n 2 "$TRAIN" "${RUN[@]}" "${BY_NAME[@]}" --tp 2 --checkpoint "$W/cp" --resume --save "$W/weights"
want "resumed" 0
check "to the same bits" cmp -s "$W/all" "$W/weights"

# --- adapters ---
LORA=(--load "$W/plain" --lora 4 --heads 4)
saves lora "${LORA[@]}" --lr 0.005
saves loras "${LORA[@]}" --lr 0.01 --lr-scale '*lora_[AB]*=0.5'
check "of adapters by their names" cmp -s "$W/lora" "$W/loras"

# --- what is refused ---
refused() { # NAME PATTERN OPTIONS...
    run "$TRAIN" "${RUN[@]}" "${@:3}"
    want "$1" 2 "$2"
}
refused "an unknown name" "--lr-scale \*q_proj\*: no weight is named so; names are .*transformer.wte.weight" --lr-scale '*=2,*q_proj*=1'
refused "no value" "--lr-scale \*wte\*: wants PATTERN=X,... with X from 0 to 1000" --lr-scale '*wte*'
refused "no number" "--decay-on \*wte\*: wants PATTERN=X,... with X from 0 to 100" --decay-on '*wte*=x'
refused "a negative rate" "--lr-scale \*wte\*: wants" --lr-scale '*wte*=-1'
refused "a decay that is too large" "--decay-on \*wte\*: wants" --decay-on '*wte*=1e3'
finish
