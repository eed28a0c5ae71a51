#!/bin/bash
# tests/tools/train/test_kv_heads.sh: gyre-train with fewer heads of keys and values than tensor-parallel ranks, or ranks that share a
# sequence: the bits of one process, in fp32, bf16, with Muon and with adapters, whose norms are those of a run without copies; checkpoints,
# folders and the generator on any number of ranks; what is planned is what is allocated. The arithmetic: tests/model/test_stage_copies.c.
# deadline: 120
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../../support/lib.sh"
unset "${!GYRE_@}"
DEADLINE=40
TRAIN=$B/bin/gyre-train
cat >"$W/model.json" <<'JSON'
{"model_type": "llama", "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 8, "num_hidden_layers": 2, "num_key_value_heads": 1,
 "vocab_size": 256, "max_position_embeddings": 32, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "tie_word_embeddings": false}
JSON
ANY=(--data tests/support/english.txt --batch 8 --steps 3 --warmup 2 --eval-every 0 --eval-sequences 2 --report none --sample-tokens 0 --peak-flops 1e9)
RUN=(--model "$W/model.json" "${ANY[@]}")
FOUR=("${RUN[@]}" --leaves 4)
curve() { # LOG: what decides, in the last bit
    python3 -c 'import json, sys
for line in map(json.loads, open(sys.argv[1])):
    if "loss_hex" in line:
        print(line["loss_hex"], line["grad_norm_hex"])' "$1"
}
near() { # CURVE OTHER
    python3 -c 'import sys
a, b = ([float.fromhex(x) for x in open(f).read().split()] for f in sys.argv[1:])
sys.exit(not (len(a) == len(b) > 3 and all(abs(x - y) < 1e-4 * abs(x) for x, y in zip(a, b))))' "$1" "$2"
}
compare() { # NAME RANKS OPTIONS...: against the one process of that name
    rm -f "$W/log"
    run "$UCX_RUN" -n "$2" "$TRAIN" "${@:3}" --log "$W/log" --save "$W/weights"
    want "$1: ${*: -4}" 0
    check "$1: ${*: -4}: the same curve" cmp -s "$W/$1.curve" <(curve "$W/log")
    check "$1: ${*: -4}: the same weights" cmp -s "$W/$1" "$W/weights"
}
alone() { # NAME OPTIONS...
    rm -f "$W/log"
    run "$TRAIN" "${@:2}" --log "$W/log" --save "$W/$1"
    want "$1, one process" 0
    curve "$W/log" >"$W/$1.curve"
}

alone few "${RUN[@]}"
alone four "${FOUR[@]}"
check "copies count once in norms" near "$W/few.curve" "$W/four.curve"
compare four 4 "${FOUR[@]}" --tp 4 --sequence-parallel
compare four 4 "${FOUR[@]}" --tp 2 --dp 2 --zero 3
alone parts "${FOUR[@]}" --sequence-parts 4 --precision bf16
compare parts 4 "${FOUR[@]}" --sequence-parts 4 --precision bf16 --cp 4 --zero 2
compare parts 4 "${FOUR[@]}" --sequence-parts 4 --precision bf16 --tp 2 --cp 2
alone few-muon "${RUN[@]}" --optimizer muon
alone muon "${FOUR[@]}" --optimizer muon
check "Muon takes each head once" near "$W/few-muon.curve" "$W/muon.curve"
compare muon 4 "${FOUR[@]}" --optimizer muon --tp 4 --zero 0

# --- a checkpoint is that of any layout; folders go out and in ---
run "$UCX_RUN" -n 4 "$TRAIN" "${FOUR[@]}" --tp 4 --checkpoint "$W/cp" --checkpoint-every 2 --save "$W/folder/"
want "with checkpoints" 0
run "$TRAIN" "${ANY[@]}" --leaves 4 --steps 0 --load "$W/folder/" --save "$W/weights"
check "and read again" cmp -s "$W/four" "$W/weights"
for ranks in 1 4; do
    run "$UCX_RUN" -n $ranks "$B/bin/gyre-generate" --load "$W/cp" --prompt "What" --tokens 16 --ignore-eot --quiet --logprobs "$W/said$ranks"
    want "generated on $ranks" 0
done
check "with the same bits" cmp -s "$W/said1" "$W/said4"
rm -r "$W/cp/step-000000000003"
run "$UCX_RUN" -n 2 "$TRAIN" "${FOUR[@]}" --pp 2 --checkpoint "$W/cp" --resume --save "$W/weights"
want "resumed on a pipeline" 0
check "to the same bits" cmp -s "$W/four" "$W/weights"

# --- adapters of them ---
FEW=("${ANY[@]}" --load "$W/folder" --lora 4 --lr 0.01)
LORA=("${FEW[@]}" --leaves 4)
alone few-lora "${FEW[@]}"
alone lora "${LORA[@]}"
check "adapters have the gradients of each head once" near "$W/few-lora.curve" "$W/lora.curve"
compare lora 4 "${LORA[@]}" --tp 4 --zero 0

# --- what does not go together ---
run "$UCX_RUN" -n 2 "$TRAIN" "${RUN[@]}" --tp 2
want "more ranks than leaves" 2 "tp 2 does not divide the 1 leaves .*, or --leaves 2 \(other bits\)"
run "$UCX_RUN" -n 2 "$TRAIN" "${RUN[@]}" --sequence-parts 2 --cp 2
want "more ranks of a context than heads" 2 "cp 2 does not divide the 1 key and value heads of a tensor rank: with --cp-attention ring it could, or with --leaves 2 \(other bits\)"
finish
