#!/bin/bash
# tests/optim/reshard.sh: a run saved in its middle in one layout goes on in another. Losses and gradient norms of the steps after and the final
# weights are those of the run that nothing ended, to the last bit, and so is everything that it wrote before.
#   `make check-reshard` (TEST_LONG=1): all pairs; else a few of them.  ONLY=WORD: the pairs whose text has it.
# deadline: 200
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../support/lib.sh"
TRAIN=$B/bin/gyre-train
HALF=$([ -n "${TEST_LONG:-}" ] && echo 20 || echo 8)
for i in $(seq 0 2999); do
    echo "the $((i * i % 97)) quick brown foxes jump over $((i % 13)) lazy dogs"
done >"$W/text"
MODEL=(--data "$W/text" --layers 8 --hidden 32 --heads 4 --seq 16 --batch 8 --leaves 4 --vocab 256 --steps $((2 * HALF)) --warmup 4
    --eval-every $((HALF / 2)) --eval-sequences 5 --sample-tokens 0 --peak-flops 1e9 --report none --progress none)
export DEADLINE=100

# ranks | saved by | gone on with by | ranks. The first ones are those of `make check`.
fp32=(
    "4 | --zero 3 | --pp 4 | 4"
    "8 | --tp 2 --pp 2 --zero 1 | | 2"
    "4 | --tp 4 | | 1"
    "1 | | --tp 2 --pp 2 --zero 2 --sequence-parallel | 8"
    "4 | --pp 4 --schedule 1f1b | --tp 4 --sequence-parallel | 4"
    "8 | --zero 2 | --tp 2 --zero 1 | 4"
    "4 | --zero 1 | --zero 3 | 3"
    "3 | --zero 3 | --tp 4 | 4"
    "2 | --pp 2 --schedule zb-v | --pp 4 --schedule gpipe | 4"
    "2 | --pp 2 --schedule interleaved --chunks 2 | --zero 3 | 2"
    "4 | --tp 2 --pp 2 --sequence-parallel | --pp 2 --zero 3 --recompute full | 4"
    "8 | --tp 2 --zero 3 | --pp 4 --zero 2 --schedule zb-h1 | 8"
    "8 | --tp 4 --zero 1 | | 1"
    "3 | --pp 3 | --zero 3 | 5"
    "6 | --tp 2 --zero 2 | --pp 2 | 4"
    "2 | --pp 2 --micro-batch 4 | --pp 2 --micro-batch 1 | 4"
    "2 | --recompute selective | --tp 2 | 2"
    "5 | --zero 3 --bucket-bytes 16K | --zero 3 --bucket-bytes 1M | 7"
    "8 | --pp 4 --zero 3 | --tp 4 --pp 2 | 8"
    "8 | --zero 3 | --zero 0 | 8"
    "4 | --zero 3 --offload $W | --pp 2 --zero 1 --offload $W | 4"
)
# 16-bit weights beside fp32 master weights; fp16's loss scale goes on, too
bf16=("4 | --tp 2 --zero 3 | --pp 2 | 2" "4 | --zero 1 | --tp 4 --sequence-parallel | 4"
    "2 | --pp 2 | --zero 3 --offload $W | 3")
fp16=("2 | --zero 2 --offload $W | --tp 2 --pp 2 | 4")
[ -n "${TEST_LONG:-}" ] || { fp32=("${fp32[@]:0:2}") bf16=(); }

# The bits of a log: step, loss, gradient norm, validation loss, loss scale.
bits() { sed -nE '/"step"/{s/,"seconds".*//;s/,"tokens_per_second".*//;p}' "$1"; }
# train RANKS OPTION...
train() {
    local ranks=$1
    shift
    run "$UCX_RUN" -n "$ranks" --timeout 90 "$TRAIN" "${MODEL[@]}" --log "$W/log" --save "$W/st" "$@"
}
pair() { # OPTIONS RANKS FROM TO RANKS
    local name="$1 $2: $3 -> $5: $4" folder=$W/checkpoints
    case $name in *"${ONLY:-}"*) ;; *) return ;; esac
    rm -rf "$folder" "$W/log" "$W/st"
    # shellcheck disable=SC2086 # lists of options
    train "$2" $1 $3 --checkpoint "$folder" --checkpoint-every $HALF
    want "$name: saved" 0
    check "$name: the first layout's bits" cmp "$W/one.bits" <(bits "$W/log")
    rm -rf "$(printf %s/step-%012d "$folder" $((2 * HALF)))" "$W/st"
    # shellcheck disable=SC2086
    train "$5" $1 $4 --checkpoint "$folder" --checkpoint-every $HALF --resume
    want "$name: gone on" 0
    check "$name: behind step $HALF" grep -q "\"resumed\":$HALF,\"ranks\":$5" "$W/log"
    check "$name: the uninterrupted run's losses and norms" cmp "$W/one.bits" <(bits "$W/log")
    check "$name: its weights" cmp "$W/one.st" "$W/st"
    [ $errors = 0 ] && echo "ok $name"
}
pairs() { # OPTIONS PAIR...
    local options=$1 ranks from to others
    shift
    rm -f "$W/log"
    # shellcheck disable=SC2086
    train 1 $options
    want "one process${options:+, $options}" 0
    bits "$W/log" >"$W/one.bits"
    check "each step" [ "$(wc -l <"$W/one.bits")" = $((2 * HALF)) ]
    mv "$W/st" "$W/one.st"
    for line in "$@"; do
        IFS='|' read -r ranks from to others <<<"$line"
        pair "$options" $((ranks)) "$from" "$to" $((others))
    done
}

# rounds of accumulation: 3 of 4 gradients
lanes=("4 | --zero 3 | --pp 2 --schedule zb-h1 | 2" "2 | --zero 1 | | 4" "4 | --pp 2 --zero 2 | --tp 2 --zero 0 | 4")
[ -n "${TEST_LONG:-}" ] || lanes=("${lanes[@]:0:1}")

# sequences in parts, which ranks share out
parts=("4 | --cp 4 --zero 3 | --pp 2 --schedule zb-h1 | 2" "1 | | --tp 2 --cp 2 --zero 2 | 8" "4 | --cp 2 --zero 0 | --cp 4 --zero 1 | 4")
[ -n "${TEST_LONG:-}" ] || parts=()

pairs "" "${fp32[@]}"
pairs "--batch 12 --lanes 4" "${lanes[@]}"
if [ -d "$W/checkpoints" ]; then
    train 2 --batch 12 --lanes 2 --checkpoint "$W/checkpoints" --resume
    want "other lanes" 2 "--lanes is 2, but the run in .* was begun with 4: give --lanes 4"
    train 2 --batch 12 --checkpoint "$W/checkpoints" --resume
    want "the order without lanes" 2 "--lanes is 0, but the run in .* was begun with 4"
    train 8 --batch 12 --lanes 4
    want "more ranks than lanes" 2 "rounds of 4 gradients \(--lanes\) cannot feed dp 8"
fi
[ ${#parts[@]} = 0 ] || pairs "--sequence-parts 4" "${parts[@]}"
[ ${#bf16[@]} = 0 ] || pairs "--precision bf16" "${bf16[@]}"
pairs "--precision fp16" "${fp16[@]}"
finish
