#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# gyre-train --load CHECKPOINT: a new run begins with the weights of a checkpoint, whatever layout wrote it and whatever layout
# the new run has, to the bit as with the weights that its run would have saved; and what is refused.
. "$(dirname "$0")/../support/lib.sh"
TRAIN=$B/bin/gyre-train
seq 1 1500 >"$W/text"
COMMON=(--data "$W/text" --batch 4 --eval-sequences 4 --sample-tokens 0 --peak-flops 1e9 --report none)
SHAPE=(--layers 2 --hidden 32 --heads 4 --seq 24)
train() { # RANKS OPTION...
    local ranks=$1
    shift
    run "$UCX_RUN" -n "$ranks" --timeout 25 "$TRAIN" "${COMMON[@]}" "$@"
}
tuned() { # NAME RANKS OPTION...: the tuned model is $W/want
    local name=$1
    shift
    rm -f "$W/tuned"
    train "$@" --steps 2 --save "$W/tuned"
    want "$name" 0
    check "$name: the weights" cmp "$W/want" "$W/tuned"
}
refuse() { # NAME PATTERN OPTION...
    local name=$1 pattern=$2
    shift 2
    run "$TRAIN" "${COMMON[@]}" --steps 1 "$@"
    want "$name" 2 "$pattern"
}

# a run of one rank, a run of four, with state in shards; the one of four is stopped early, too
train 1 "${SHAPE[@]}" --steps 4 --checkpoint "$W/one" --checkpoint-every 2 --save "$W/whole"
train 4 "${SHAPE[@]}" --tp 2 --zero 3 --steps 4 --checkpoint "$W/four" --checkpoint-every 2
want "a run of four ranks" 0

# ---- any layout from any layout, with an optimizer that begins anew, and the rate of loaded weights
train 1 --load "$W/whole" --heads 4 --steps 2 --save "$W/want"
for from in one four; do
    tuned "$from on one rank" 1 --load "$W/$from"
    check "$from: the rate of weights that are loaded" grep -q "learning rate 2e-05" "$W/out"
    tuned "$from on TP 2" 2 --load "$W/$from" --tp 2
    tuned "$from on PP 2 with ZeRO 2" 4 --load "$W/$from" --pp 2 --zero 2
done
tuned "a step by its folder" 1 --load "$W/four/step-000000000004/"
check "nothing is written to what is loaded" [ "$(ls "$W/four")" = "$(printf 'launch\nstep-%012d\nstep-%012d' 2 4)" ]

# ---- an older step, and the newest whole one
mkdir "$W/older"
cp -r "$W/one/step-000000000002" "$W/older"
train 1 --load "$W/older" --steps 2 --save "$W/want"
check "it is another model" [ "$(cmp -s "$W/want" "$W/tuned" || echo no)" = no ]
tuned "an older step" 2 --load "$W/four/step-000000000002" --tp 2
cp -r "$W/four" "$W/cut"
truncate -s -1 "$W"/cut/step-000000000004/shard-00001.safetensors
tuned "the newest whole one" 2 --load "$W/cut" --tp 2
check "the other is named" grep -q "the checkpoint of step 4 in $W/cut is not used" "$W/err"
cp "$W/four/step-000000000004/shard-00001.safetensors" "$W/cut/step-000000000004"
printf X | dd of="$W/cut/step-000000000004/shard-00001.safetensors" bs=1 seek=9000 conv=notrunc status=none
refuse "a damaged one" "shard-00001.safetensors is damaged: its checksum is" --load "$W/cut"

# ---- a run that saves meanwhile: all ranks take what rank 0 finds to be the newest
for r in 0 1; do mkdir "$W/view.$r" && cp -r "$W/four" "$W/view.$r/run"; done
rm -r "$W/view.0/run/step-000000000004"
train 2 --load "$W/four/step-000000000002" --tp 2 --steps 2 --save "$W/want"
rm -f "$W/tuned"
run "$UCX_RUN" -n 2 --timeout 25 sh -c 'cd "$0.$GYRE_RANK" && exec "$@"' "$W/view" "$TRAIN" "${COMMON[@]}" --load run --tp 2 --steps 2 \
    --save "$W/tuned"
want "ranks that see other checkpoints" 0
check "all take rank 0's" cmp "$W/want" "$W/tuned"

# ---- rotary positions: shorter sequences; adapters on a checkpoint
echo '{"model_type": "llama", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
 "num_key_value_heads": 2, "vocab_size": 256, "max_position_embeddings": 32}' >"$W/llama.json"
train 2 --model "$W/llama.json" --pp 2 --steps 2 --checkpoint "$W/llama" --save "$W/folder/"
want "a model with rotary positions" 0
train 1 --load "$W/folder" --seq 16 --steps 2 --save "$W/want"
tuned "shorter sequences" 2 --load "$W/llama" --seq 16 --tp 2
train 1 --load "$W/folder" --lora 2 --steps 2 --save "$W/want"
tuned "adapters" 2 --load "$W/llama" --lora 2 --checkpoint "$W/adapters"
refuse "a checkpoint of adapters" "$W/adapters holds adapters \(--lora\), not the weights" --load "$W/adapters"

# ---- what is refused
shard=$W/one/step-000000000004/shard-00000.safetensors
refuse "a file of a checkpoint" "--load $shard: it is a file of a checkpoint: give the folder, .*/one/step-000000000004" --load "$shard"
refuse "another shape" "--layers and --load exclude each other: $W/one describes" --load "$W/one" --layers 3
refuse "more positions" "--seq 64: .* 32 positions" --load "$W/llama" --seq 64
refuse "fewer learned positions" "the one in $W/one has 24 positions and 4 leaves: .*--export" --load "$W/one" --seq 16
refuse "other leaves" "the one in $W/one has 24 positions and 4 leaves" --load "$W/one" --leaves 2
refuse "its own folder" "$W/one holds the checkpoints of a run" --load "$W/one" --checkpoint "$W/one"
refuse "a step that is not there" "step-000000000009" --load "$W/one/step-000000000009"
# a file next to the config.json and the tokenizer of another model, which would be taken for the file's
mkdir "$W/near" && cp "$W/whole" "$W/near/file" && sed 's/: 256/: 300/' "$W/llama.json" >"$W/near/config.json" && echo {} >"$W/near/tokenizer.json"
near="config.json next to $W/near/file is of a model of 300 ids, 2 layers and 32 channels, and the file's has 256, 2 and 32"
refuse "a file in another model's folder" "whether the ids of .* is not known: $near: .*--tokenizer bytes" --load "$W/near/file"
train 1 --load "$W/near/file" --tokenizer bytes --steps 1 --save "$W/far/"
want "a file in another model's folder, and --tokenizer" 0
check "the other model's tokenizer does not go with it" test ! -e "$W/far/tokenizer.json"
for tool in "gyre-generate --prompt 1 --tokens 1" "gyre-eval $W/text"; do
    # shellcheck disable=SC2086 # a command
    run "$B"/bin/$tool --load "$W/near/file"
    want "$tool: a file in another model's folder" 2 "which ids the model in .* has is not known: $near: name a tokenizer"
    # shellcheck disable=SC2086 # a command
    run "$B"/bin/$tool --load "$W/near/file" --tokenizer bytes
    want "$tool: and --tokenizer" 0
done
# ranks that load different models: of another shape, and of another curve
train 1 --layers 3 --hidden 32 --seq 24 --steps 1 --save "$W/deeper"
train 1 "${SHAPE[@]}" --steps 1 --seed 2 --save "$W/other/"
train 1 "${SHAPE[@]}" --steps 1 --seed 3 --save "$W/third/"
differ() { # NAME MODEL MODEL: of rank 0 and of rank 1
    ln -sfn "$2" "$W/load.0"
    ln -sfn "$3" "$W/load.1"
    run "$UCX_RUN" -n 2 --timeout 25 sh -c 'exec "$@" --load "$0.$GYRE_RANK"' "$W/load" "$TRAIN" "${COMMON[@]}" --tp 2 --steps 1
    want "$1" 2 "--load is $W/load.0 .* on rank 0, but $W/load.1 .* on rank 1"
}
differ "ranks that load models of other depths" "$W/whole" "$W/deeper"
differ "ranks that load checkpoints and folders of other depths" "$W/one" "$W/deeper"
differ "ranks that load other weights" "$W/other" "$W/third"
cp -r "$W/other" "$W/copy"
run "$UCX_RUN" -n 2 --timeout 25 sh -c 'exec "$@" --load "$0"' "$W/other" "$TRAIN" "${COMMON[@]}" --tp 2 --steps 1 --save "$W/want"
run "$UCX_RUN" -n 2 --timeout 25 sh -c '[ "$GYRE_RANK" = 0 ] || at=copy; exec "$@" --load "$0/${at:-other}"' "$W" "$TRAIN" "${COMMON[@]}" --tp 2 \
    --steps 1 --save "$W/tuned"
want "ranks that load copies of a model" 0
check "copies: the weights" cmp "$W/want" "$W/tuned"
run "$UCX_RUN" -n 2 --timeout 25 sh -c 'exec "$@" --load "$0/step-00000000000$((4 - 2 * GYRE_RANK))"' "$W/four" "$TRAIN" "${COMMON[@]}"
want "ranks that see other checkpoints" 2 "--load is .*step 4.* on rank 0, but .*step 2.* on rank 1"
finish
