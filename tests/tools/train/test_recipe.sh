#!/bin/bash
# tests/tools/train/test_recipe.sh: what --recipe says is what is trained, flags win, contradictions are errors. That the
# recipes train, and to which bits: tests/layouts/recipes.
# deadline: 60
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../../support/lib.sh"
unset "${!GYRE_@}"
RECIPES=examples/recipes
DEADLINE=20
TRAIN=$B/bin/gyre-train
TINY=(--scale tiny --data tests/support/english.txt --steps 1 --sample-tokens 0 --peak-flops 1e9 --eval-sequences 1 --report none --log "$W/log")

# What the log says that options were: what, NAME=VALUE...
is() {
    local what=$1
    shift
    check "$what: $*" python3 - "$W/log" "$@" <<'PY'
import json, sys
first = json.loads(open(sys.argv[1]).readline())
said = {**first["model"], **first["config"]}
wrong = [f"{pair}, but {said.get(name)}" for pair in sys.argv[2:] for name, value in [pair.split("=")] if str(said.get(name)) != value]
assert not wrong, wrong
PY
}

run "$UCX_RUN" -n 8 "$TRAIN" --recipe $RECIPES/opt-175b.json "${TINY[@]}"
want "a recipe in its own layout" 0
is "OPT" tp=2 pp=1 dp=4 zero=3 recompute=full micro-batch=2 batch=8 precision=fp16 grad-type=16 loss-scale=4 \
    loss-scale-min=0.25 loss-scale-hysteresis=1 lr-schedule=linear lr-decay=200 warmup=10 beta2=0.95 dropout=0.1 hidden_size=64
run "$TRAIN" --recipe $RECIPES/opt-175b.json "${TINY[@]}" --tp 1 --batch 4 --lr 0.5 --precision bf16 --zero 1 --steps 1
want "flags win" 0
is "what is not said follows" tp=1 dp=0 zero=1 batch=4 groups=0 lr=0.5 min-lr=0.1 precision=bf16 grad-type=fp32 \
    loss-scale=None lr-decay=400 beta2=0.95
run "$TRAIN" --recipe $RECIPES/opt-175b.json "${TINY[@]:0:4}" --tp 1 --time-limit 5 --trace "$W/trace" --trace-steps 9999:9999
want "a recipe's steps end a run with --time-limit" 2 "--trace-steps 9999:9999: the run ends with step 200, so none"
python3 - $RECIPES/mixtral-8x7b.json "$W/shared.json" <<'PY'
import json, sys
recipe = json.load(open(sys.argv[1]))
recipe["layout"].update(dp=128, tp=1, pp=2, ep=8, lanes=128, sequence_parallel=False)
json.dump(recipe, open(sys.argv[2], "w"))
PY
run "$UCX_RUN" -n 8 "$TRAIN" --recipe "$W/shared.json" "${TINY[@]}"
want "ranks that share experts" 0
is "as many as there are" tp=1 pp=2 dp=4 ep=4
run "$UCX_RUN" -n 2 "$TRAIN" --recipe "$W/shared.json" "${TINY[@]}" --pp 1
want "other ranks" 0
is "they share none" tp=1 pp=1 dp=0 ep=1
printf '{"recipe": "%s", "scale": "tiny", "tp": 1, "clip": 7, "lanes": 0, "grad-sequences": 1}' $RECIPES/bloom-176b.json >"$W/config"
run "$TRAIN" --config "$W/config" --pp 1 "${TINY[@]:2}"
want "by a config file" 0
is "and its keys win" tp=1 pp=1 clip=7 lanes=0 grad-sequences=1 precision=bf16 balance=layers
is "the batch grows, and so many sequences are more steps" batch=8 batch-rampup=4:4:80 warmup=20 lr-decay=210 steps=1
run "$TRAIN" --config "$W/config" --pp 1 --batch 6 "${TINY[@]:2}"
want "another batch" 0 "--batch 6: a batch of constant size replaces that of .*bloom-176b.json, which grows from 4 to 8 sequences: give --batch-rampup 4:2:[0-9]+ to"
KEEPS=$(grep -oE -m 1 "rampup [0-9:]+" "$W/err")
is "does not grow" batch=6 batch-rampup=None warmup=14 lr-decay=267
run "$TRAIN" --config "$W/config" --pp 1 --batch 6 --batch-rampup "${KEEPS#* }" "${TINY[@]:2}"
want "with what keeps it growing" 0
is "grows" batch=6 batch-rampup="${KEEPS#* }"
check "nothing is said" bash -c '! grep -q "does not grow" "$1"' - "$W/err"
run "$TRAIN" --config "$W/config" --pp 1 --batch 4 "${TINY[@]:2}"
want "a batch that cannot grow" 0 "--batch 4: a batch of constant size replaces that of .*--batch-rampup none"
run "$TRAIN" --config "$W/config" --pp 1 --batch 6 --batch-rampup none "${TINY[@]:2}"
want "one that shall not" 0
check "nothing is said of that" bash -c '! grep -q "does not grow" "$1"' - "$W/err"

# ids that are not those which a run takes by itself
printf '{"model": {"model_type": "glm", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
"vocab_size": 300, "max_position_embeddings": 32}, "layout": {"global_batch": 2},
"objective": {"name": "infill", "mask_id": 290, "gmask_id": 291, "sop_id": 292, "eop_id": 293}}' >"$W/infills"
INFILLS=(--recipe "$W/infills" "${TINY[@]:2}")
for objective in recipe infill auto; do
    # shellcheck disable=SC2046 # two words or none
    run "$TRAIN" "${INFILLS[@]}" $([ $objective = recipe ] || echo --objective $objective)
    want "a recipe that infills: $objective" 0
    is "its ids: $objective" objective=infill infill-ids=290,291,292,293
done
run "$TRAIN" "${INFILLS[@]}" --objective infill --infill-ids 257,258,259,260
want "ids by a flag" 0
is "that win" infill-ids=257,258,259,260
run "$TRAIN" "${INFILLS[@]}" --objective prefix
want "a recipe that infills, otherwise" 0
is "no ids" objective=prefix infill-ids=None

run "$UCX_RUN" -n 2 "$TRAIN" --recipe $RECIPES/glm-130b.json "${TINY[@]}"
want "too few ranks" 2 "tp 2 x pp 2 x dp 2 does not make 2 ranks; the nearest that works on 2 ranks: --tp 1 --pp 1 --dp 2"
run "$TRAIN" --scale tiny
want "a scale of nothing" 2 "--scale needs a --recipe: name its file"
run "$TRAIN" --recipe $RECIPES/llama-7b.json --layers 3
want "another shape" 2 "--layers and --recipe exclude each other: .*llama-7b.json describes the model"
run "$TRAIN" --recipe "$W/none.json"
want "no file" 2 "none.json"
printf '{"model": {"model_type": "gpt2"}, "layuot": {}}' >"$W/slip"
run "$TRAIN" --recipe "$W/slip"
want "a slip in a recipe" 2 'a recipe has no "layuot"'
printf '{"model": {"model_type": "gpt2", "vocab_size": 256, "n_positions": 64, "n_embd": 64, "n_layer": 2, "n_head": 4}, "optimizer": {"lr": 1e-4, "min_lr": 1e-3}}' >"$W/rates"
run "$TRAIN" --recipe "$W/rates"
want "rates that rise" 2 "optimizer.min_lr is 0.001, more than lr, 0.0001"
finish
