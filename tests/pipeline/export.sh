#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# gyre-train --export CHECKPOINT DIR writes, without data and in one process, the folder that --save DIR/ of the run at that step
# would have written: every file of it, byte for byte, whatever layout and precision the run had, and what it had been loaded
# from. And what is refused.
. "$(dirname "$0")/../support/lib.sh"
TRAIN=$B/bin/gyre-train
cd "$W" || exit 1
seq 1 1500 >text
COMMON=(--data text --batch 4 --eval-sequences 4 --sample-tokens 0 --peak-flops 1e9 --report none)
train() { # RANKS OPTION...
    local ranks=$1
    shift
    run "$UCX_RUN" -n "$ranks" --timeout 25 "$TRAIN" "${COMMON[@]}" "$@"
}
# same NAME OPTION...: the export of the checkpoint in run is the folder saved
same() {
    local name=$1
    shift
    rm -rf folder
    run "$TRAIN" --export run folder "$@"
    want "$name" 0
    check "$name: the folder" diff -r saved folder
}
begin() { # NAME RANKS OPTION...: a run with its checkpoint and its folder
    rm -rf run saved
    train "${@:2}" --checkpoint run --save saved/
    want "$1" 0
}
refuse() { # NAME PATTERN OPTION...
    local name=$1 pattern=$2
    shift 2
    run "$TRAIN" "$@"
    want "$name" 2 "$pattern"
    check "$name: one line" [ "$(wc -l <"$W/err")" = 1 ]
    check "$name: nothing is written" [ ! -e out2 ]
}

# ---- random weights: fp32, state in shards of four ranks; bf16; both types of files
SHAPE=(--layers 2 --hidden 32 --heads 4 --seq 24 --steps 2)
begin "four ranks" 4 "${SHAPE[@]}" --tp 2 --zero 3
same "four ranks"
check "says what was written" grep -q "^weights  *folder, of the checkpoint of step 2$" "$W/out"
run "$UCX_RUN" -n 2 --timeout 25 "$TRAIN" --export run/step-000000000002 folder
want "two processes" 0
check "one of them writes" [ "$(grep -c '^weights' "$W/out")" = 1 ]
check "a step by its folder, over an older export" diff -r saved folder
begin "bf16" 2 "${SHAPE[@]}" --pp 2 --precision bf16
same "bf16"
begin "files in bf16" 1 "${SHAPE[@]}" --save-type bf16
same "files in bf16" --save-type bf16
begin "an older step" 1 "${SHAPE[@]}" --checkpoint-every 1
run "$TRAIN" --export run/step-000000000001 older
want "an older step" 0
check "has other weights" [ "$(cmp -s saved/model.safetensors older/model.safetensors || echo no)" = no ]
run "$TRAIN" "${COMMON[@]}" --load older --steps 0 --log log
train 1 --load run/step-000000000001 --steps 0 --log log2
check "which are those of that step" cmp <(grep -o '"val_loss":[^,}]*' log) <(grep -o '"val_loss":[^,}]*' log2)

# ---- a model that was loaded: positions beyond the run's sequences, keys, tokenizer, type; the same of a run from its checkpoint
echo '{"model_type": "gpt2", "n_layer": 1, "n_embd": 16, "n_head": 2, "vocab_size": 256, "n_positions": 32}' >gpt2.json
train 1 --model gpt2.json --steps 1 --save base/ --save-type bf16
sed -i '1s/{/{"task_specific_params": {"a": 1},/; s/"bos_token_id": null/"bos_token_id": 7/' base/config.json
echo '{"eos_token_id": 8}' >base/generation_config.json
printf '#version: 0.2\nT h\n' >base/merges.txt
begin "a loaded model" 2 --load base --seq 24 --steps 2 --tokenizer bytes
check "keeps its files" [ -e saved/merges.txt ]
same "a loaded model"
mv run first
begin "a run from its checkpoint" 1 --load first --steps 2
same "a run from its checkpoint"
check "has the first one's files" [ -e folder/merges.txt ]
mv base moved
run "$TRAIN" --export run out2
want "its folder is gone" 0 "the run began with the model in $W/base, whose tokenizer, .* are left out: cannot open $W/base"
check "without its files" [ ! -e out2/merges.txt ]
rm -r out2
same "its folder is named" --load moved

# ---- what is refused
train 1 --load moved --seq 24 --lora 2 --steps 1 --checkpoint adapters --tokenizer bytes
refuse "adapters" "adapters holds adapters \(--lora\), not the weights" --export adapters out2
refuse "no folder" "--export run: name the folder to write, too" --export run
refuse "no checkpoint" "--export moved: it is not a checkpoint" --export moved out2
refuse "nothing there" "--export none: it is not a checkpoint" --export none out2
refuse "the folder of the checkpoint" "--export run: it is in the folder $W," --export run "$W"
refuse "an option of runs" "--export and --layers exclude each other" --export run out2 --layers 2
refuse "two folders" "does not know what to do with 'out3'" --export run out2 out3
echo '{"model_type": "gpt2", "n_layer": 2, "n_embd": 16, "n_head": 2, "vocab_size": 256, "n_positions": 32}' >moved/config.json
refuse "another model" "moved is another model: it has 256 ids, 2 layers" --export run out2 --load moved
printf X | dd of=run/step-000000000002/shard-00000.safetensors bs=1 seek=3000 conv=notrunc status=none
refuse "a damaged checkpoint" "shard-00000.safetensors is damaged" --export run out2
finish
