#!/bin/bash
# tests/tools/train/test_infill.sh: --objective infill: the same bits in every layout, after a resume, from a blend in epochs;
# who takes it without being asked; what it lacks is an error. What an example is: tests/model/data/test_infill.c; that it is learned
# as PyTorch learns it: tests/model/torch_arch_compare.py.
# deadline: 60
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../../support/lib.sh"
unset "${!GYRE_@}"
DEADLINE=20
TRAIN=$B/bin/gyre-train
printf '{"model_type": "glm", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
"vocab_size": 260, "max_position_embeddings": 32, "hidden_act": "geglu"}' >"$W/glm.json"
sed 's/260/256/' "$W/glm.json" >"$W/narrow.json"
SMALL=(--model "$W/glm.json" --data "3:tests/support/english.txt,1:docs/data.md" --sampling epoch --batch 4 --leaves 2 --lr 0.01 --warmup 1
    --eval-every 3 --eval-sequences 3 --report none --sample-tokens 0 --peak-flops 1e9)

# Losses and norms of the log, to the last bit.
curve() {
    python3 -c 'import json, sys
for line in map(json.loads, open(sys.argv[1])):
    if "loss_hex" in line or "val_hex" in line:
        print({k: line[k] for k in line if k == "step" or k.endswith("_hex")})' "$1"
}
option() { # NAME: as the log has it
    python3 -c 'import json, sys; print(json.loads(open(sys.argv[1]).readline())["config"][sys.argv[2]])' "$W/log" "$1"
}

run "$TRAIN" "${SMALL[@]}" --steps 6 --log "$W/alone"
want "one process" 0
curve "$W/alone" >"$W/curve"
check "six losses" [ "$(grep -c loss_hex "$W/curve")" = 6 ]
run "$UCX_RUN" -n 4 "$TRAIN" "${SMALL[@]}" --steps 6 --tp 2 --pp 2 --sequence-parallel --micro-batch 2 --log "$W/log"
want "two stages of two" 0
check "have the same bits" cmp -s "$W/curve" <(curve "$W/log")
check "a GLM takes it by itself" [ "$(option objective) $(option infill-ids)" = "infill 256,257,258,259" ]

run "$TRAIN" "${SMALL[@]}" --steps 6 --checkpoint "$W/kept" --checkpoint-every 3 --log "$W/log"
want "with checkpoints" 0
rm -r "$W/kept/step-000000000006"
run "$UCX_RUN" -n 2 "$TRAIN" "${SMALL[@]}" --steps 6 --checkpoint "$W/kept" --resume --dp 2 --zero 2 --log "$W/log"
want "gone on with behind step 3" 0
check "it is gone on with" resumed "$W/log" 3 2
check "the same bits again" [ "$(curve "$W/log" | tail -n 3 | cut -d, -f2-)" = "$(tail -n 3 "$W/curve" | cut -d, -f2-)" ]

# another objective goes on where it may, without its ids; else the advice is what works
GOES_ON=("${SMALL[@]}" --checkpoint "$W/kept" --resume)
run "$TRAIN" "${GOES_ON[@]}" --steps 6 --objective prefix
want "another objective" 2 "--objective is prefix, but the run in .* was begun with infill: give --objective infill to"
run "$TRAIN" "${GOES_ON[@]}" --steps 6 --objective infill --infill-ids 256,257,259,258
want "other ids" 2 "--infill-ids is 256,257,259,258, but the run in .* with 256,257,258,259: give --infill-ids 256,257,258,259 to"
run "$TRAIN" "${GOES_ON[@]}" --steps 6 --batch-rampup 2:2:8
want "a batch that grows" 2 "--batch-rampup is 2:2:8, but the run in .* was begun with none: give --batch-rampup none to"
run "$TRAIN" "${GOES_ON[@]}" --steps 7 --objective prefix --may-change objective,steps --batch-rampup none --log "$W/other"
want "another objective that may differ" 0
check "goes on with step 7" resumed "$W/other" 6 1

run "$TRAIN" "${SMALL[@]}" --steps 1 --objective prefix --log "$W/log"
want "only a prefix" 0
check "is another curve" bash -c '! diff <(head -n 1 "$1") <(head -n 1 "$2") >/dev/null' - "$W/curve" <(curve "$W/log")
run "$TRAIN" "${SMALL[@]}" --steps 1 --sample-tokens 40 --infill-ids 1,2,3,4 --prompt "A sentence"
want "ids that texts lack, and a sample" 0

run "$TRAIN" "${SMALL[@]}" --steps 1 --infill-ids 97,98,99,100
want "ids that texts have" 2 "the data holds id .*: name ids that no text has with --infill-ids"
check "are suspect from the start" grep -q -- "--infill-ids 97,98,99,100: 97 is one of the data's 256 ids" "$W/err"
run "$UCX_RUN" -n 4 "$TRAIN" "${SMALL[@]}" --steps 1 --batch 8 --infill-ids 97,98,99,100
want "ids that texts have, on four ranks" 2 "the data holds id .*: name ids that no text has with --infill-ids"
check "a line of each rank at most" [ "$(grep -c "the data holds id" "$W/err")" -le 4 ]
check "and nobody is aborted" bash -c '! grep -qi abort "$1"' - "$W/err"
run "$TRAIN" "${SMALL[@]}" --steps 1 --infill-ids 256,257,258
want "three ids" 2 "--infill-ids 256,257,258: it must be four ids"
run "$TRAIN" "${SMALL[@]}" --steps 1 --infill-ids 257,258,259,260
want "an id too high" 2 "id 260 for blank infilling: the vocabulary is 0..259"
run "$TRAIN" "${SMALL[@]}" --steps 1 --objective prefix --infill-ids 256,257,258,259
want "ids of nothing" 2 "--infill-ids is for --objective infill only"
run "$TRAIN" "${SMALL[@]}" --model "$W/narrow.json" --steps 1
want "no room for ids" 2 "needs 4 ids in addition to the data's 256, but the model has 256 in all: give it 260"
run "$TRAIN" --steps 1 --objective infill --report none
want "a causal model" 2 "--objective infill needs a model with prefix masks"
finish
