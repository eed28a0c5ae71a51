#!/bin/bash
# tests/tools/test_gyre_plan_recipes.sh: gyre-plan memory, time and search: recipes, tables, mistakes; test_plan.c has
# the figures.
# deadline: 120
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../support/lib.sh"
P=$B/bin/gyre-plan
R=examples/recipes
unset "${!GYRE_@}"

json() { # EXPRESSION over d, the JSON file of the last run, that must be true
    python3 -S -c 'import json, sys
d = json.load(open(sys.argv[1]))
sys.exit(0 if eval(sys.argv[2]) else 1)' "$W/out.json" "$1"
}
plan() { run "$P" "$@" --json "$W/out.json"; }

# --- every recipe fits its machine; both scales; one look at all files ---
for file in "$R"/*.json; do
    name=$(basename "$file" .json)
    for scale in full tiny; do
        flags=()
        [ $scale = full ] || flags=(--scale tiny --machine A100-80)
        run "$P" memory --recipe "$file" "${flags[@]}" --json "$W/memory-$name-$scale.json"
        want "memory of $name, $scale" 0
        run "$P" time --recipe "$file" "${flags[@]}" --json "$W/time-$name-$scale.json"
        want "time of $name, $scale" 0
    done
done
check "kinds add up, all fit, times are there" python3 -S - "$W"/memory-*.json "$W"/time-*.json <<'END'
import json, sys
bad = len(sys.argv) < 49
kinds = ("weights", "gradients", "optimizer", "activations", "ends", "working", "buffers")
for name in sys.argv[1:]:
    d = json.load(open(name))
    if "stages" in d:
        ok = d["fits"] and len(d["stages"]) == d["pp"] and all(s["total"] == sum(s[k] for k in kinds) for s in d["stages"])
        ok = ok and d["worst_stage"]["total"] == max(s["total"] for s in d["stages"])
    else:
        ok = d["time"]["step_s"] > 0 and 0 < d["time"]["mfu"] < 1
    if not ok:
        bad = 1
        print(name, d)
sys.exit(bad)
END
run "$P" memory
check "one rank is no ranks" grep -q '^1 rank: tp 1' "$W/out"
run "$P" memory --recipe $R/bloom-176b.json
check "a table" grep -qE '^ +0 +5\+e +3982551552 +12 +7.418' "$W/out"
check "the state" grep -q '7.5000 bytes per parameter' "$W/out"

plan memory --recipe $R/mt-nlg-530b.json --trainer
want "gyre-train's own" 0
check "its buckets, not those of other software" grep -q 'buckets of 524288 bytes' "$W/out"
check "35 stages" json 'len(d["trainer"]) == 35 and all(s["weights"] > 0 for s in d["trainer"])'
plan memory --lora 8 --lora-on '*attn*' --dp 2 --zero 3 --global-batch 2
want "of adapters" 0
check "gradients and moments of 12 layers with 8 (3 x 768 + 2304) elements" json \
    'd["trainer"][0]["gradients"] == 4 * 442368 and d["trainer"][0]["moments"] == 4 * 442368'
plan memory --recipe $R/llama-7b.json --lora 8 --dp 1 --zero 0 --global-batch 8 --micro-batch 1 --grad-sequences 1 --lanes 0
want "adapters of a large model" 0
check "fit where full training does not; the total is that of the kinds" json \
    'd["fits"] and (w := d["worst_stage"]) == d["trainer"][0] and 2 * w["total"] == sum(w.values()) and w["activations"] > 0'
check "said so, in gyre-train's table alone" [ "$(grep -c "adapters of rank 8 alone\|in gyre-train on CPUs, GiB\|in flight\|out of memory" "$W/out")" = 2 ]
check "the verdict is last" [ "$(tail -n 1 "$W/out" | cut -d ' ' -f 1-4)" = "most on stage 0:" ]
plan memory --optimizer muon --trainer --dp 2 --zero 1 --global-batch 2
want "of Muon" 0
check "one moment of 12 layers' matrices, two of the rest, 3 rows of padding among it; the longest row, 768 x 3072, what it is made orthogonal in, and its pieces" json \
    'd["trainer"][0]["moments"] == 4 * (124439808 + 3 * 768 - 12 * 12 * 768 * 768 // 2) and d["trainer"][0]["muon"] == 4 * (768 * 3072 + 2 * (768 * 3072 + 768 * 768) + 768 * 3072)'
plan memory --optimizer muon --dp 2 --zero 1 --global-batch 2
check "the estimate has them, too" json 'abs(d["worst_stage"]["optimizer"] - 4 * 124439808 + 2 * 12 * 12 * 768 * 768) < 1e6'
run "$P" memory --optimizer sgd
want "another optimiser" 2 "--optimizer is adamw or muon, not sgd"
run "$P" memory --optimizer muon --lora 8
want "of adapters" 2 "--lora: adapters take AdamW"
run "$P" memory --lora-on '*attn*'
want "names without adapters" 2 "--lora-on needs --lora RANK"
run "$P" memory --lora 8 --lora-on '*q_proj*'
want "unknown names" 1 "--lora-on \*q_proj\*: no weight that can have an adapter is named so"
check "before anything is printed" [ ! -s "$W/out" ]

# --- the verdict is that of the table that was asked for ---
BLOOM=(--recipe "$R/bloom-176b.json")
plan memory "${BLOOM[@]}"
check "by the formulas BLOOM fits" json 'd["fits"] and "trainer" not in d and d["lanes"] == 0 and d["grad_sequences"] == 1'
plan memory "${BLOOM[@]}" --trainer --lanes 0 --grad-sequences 1
want "one round of 256 gradients per rank" 0
check "which gyre-train cannot hold" json 'not d["fits"] and d["worst"] == 0 and d["worst_stage"]["accumulation"] > 118 * 2**30 and "stages" not in d'
check "and says so" grep -qx 'most on stage 0: .* GiB and 1.5 GiB that the driver takes; A100-80 has 79 GiB: out of memory' "$W/out"
plan memory "${BLOOM[@]}" --trainer
check "rounds of the recipe fit" json 'd["fits"] and d["lanes"] == 8 and d["worst_stage"]["accumulation"] == 0 and d["worst_stage"]["activations"] > 0'
plan time "${BLOOM[@]}" --trainer
cp "$W/out.json" "$W/rounds.json"
plan time "${BLOOM[@]}"
check "their reductions are gyre-train's alone" \
    json 'd["time"]["step_s"] < 0.8 * json.load(open(sys.argv[1].replace("out.json", "rounds.json")))["time"]["step_s"]'
OWN=(--dp 2 --zero 3 --dtype bf16 --global-batch 2 --micro-batch 1)
plan memory --trainer "${OWN[@]}"
cp "$W/out.json" "$W/plain.json"
plan memory --trainer "${OWN[@]}" --keep-weights
check "kept weights" json '4 <= d["worst_stage"]["gathered"] / (124439808 + 50304 * 768) < 5'
plan memory --trainer "${OWN[@]}" --offload /nowhere
check "state in a file that is not looked for" json '(w := d["worst_stage"])["master"] == w["moments"] == 0 and w["offload"] > 0'
plan memory --trainer "${OWN[@]}" --threads 4
check "workspace of threads" \
    json 'd["worst_stage"]["activations"] > json.load(open(sys.argv[1].replace("out.json", "plain.json")))["worst_stage"]["activations"]'
plan memory --trainer "${OWN[@]}" --matmul-type bf16
check "what products of bf16 are packed in" \
    json 'd["worst_stage"]["activations"] - json.load(open(sys.argv[1].replace("out.json", "plain.json")))["worst_stage"]["activations"] == 10 * 2**20 + 64'
plan memory --trainer "${OWN[@]}" --z-loss 1e-4
check "a number per position" \
    json 'd["worst_stage"]["activations"] - json.load(open(sys.argv[1].replace("out.json", "plain.json")))["worst_stage"]["activations"] == 4 * 1024'
plan memory --trainer --recipe $R/mixtral-8x7b.json --scale tiny
cp "$W/out.json" "$W/tiny.json"
plan memory --trainer --recipe $R/mixtral-8x7b.json --scale tiny --router-z-loss 1e-3
check "a number per position, layer, and micro-batch in flight" \
    json 'd["worst_stage"]["activations"] > json.load(open(sys.argv[1].replace("out.json", "tiny.json")))["worst_stage"]["activations"]'
run "$P" memory --trainer --router-z-loss 1e-3
want "of a router that is not there" 2 'router_z 0.001: it is of logits of experts'
plan memory --trainer "${OWN[@]}" --optimizer muon
cp "$W/out.json" "$W/muon.json"
plan memory --trainer "${OWN[@]}" --optimizer muon --freeze '*.h.0.*'
check "second moments of a frozen layer, half of them here" \
    json 'd["worst_stage"]["moments"] - json.load(open(sys.argv[1].replace("out.json", "muon.json")))["worst_stage"]["moments"] == 4 * 12 * 768 * 768 // 2'
run "$P" memory --trainer --freeze 'x*'
want "no such weight" 1 '--freeze x\*: no weight is named so'
# on a GPU: layers in bf16, logits of all positions, no workspace of threads; 12 layers' inputs of 1024 x 768 may wait on the host
plan memory --trainer "${OWN[@]}" --device cuda
want "activations on a GPU" 0
check "said so" grep -q '^in gyre-train on GPUs, GiB' "$W/out"
check "weights are gathered in bf16 alone" \
    json '2 * d["worst_stage"]["gathered"] < json.load(open(sys.argv[1].replace("out.json", "plain.json")))["worst_stage"]["gathered"]'
check "logits of all positions are among them" json 'd["worst_stage"]["activations"] > 2 * 1024 * 50304 + 12 * 34 * 1024 * 768'
plan memory --trainer "${OWN[@]}" --device cuda --recompute full
cp "$W/out.json" "$W/full.json"
plan memory --trainer "${OWN[@]}" --device cuda --recompute full --offload-activations
check "inputs of 12 layers less, and of 2 that come and go" \
    json 'json.load(open(sys.argv[1].replace("out.json", "full.json")))["worst_stage"]["activations"] - d["worst_stage"]["activations"] == (12 - 2) * 2 * 1024 * 768'
run "$P" memory --trainer --device tpu
want "another device" 2 '--device is cpu or cuda, not tpu'
for flag in '--threads 2' '--sequence-parts 2' '--sequence-parts 2 --cp 2' '--offload /x' '--lora 8' '--optimizer muon' '--freeze x' \
    "--recipe $R/mixtral-8x7b.json --scale tiny --ep 2" '--matmul-type bf16'; do
    # shellcheck disable=SC2086
    run "$P" memory --trainer --device cuda $flag
    case $flag in
    --recipe*) named=--ep ;;
    *) named=${flag%% *} ;;
    esac
    want "$flag on a GPU" 2 "$named.* is for --device cpu: "
done
run "$P" memory --trainer --device cuda --offload-activations
want "activations that are not put off" 2 '--offload-activations needs --device cuda and --recompute full'
run "$P" memory --trainer --device cuda --dtype fp16
want "what gyre-train refuses" 1 'fp16 is not supported on the GPU'
run "$P" memory --trainer --dtype fp32 --matmul-type bf16
want "products of bf16 of fp32" 2 '--matmul-type bf16 needs --dtype bf16'
run "$P" memory --trainer --dtype bf16 --matmul-type int8
want "products of another type" 2 '--matmul-type is fp32 or bf16, not int8'
for flag in --keep-weights '--offload /x' '--threads 2' '--matmul-type bf16' '--device cuda' '--z-loss 0.1'; do
    # shellcheck disable=SC2086
    run "$P" memory $flag
    want "$flag without gyre-train" 2 "${flag%% *} is of gyre-train, and needs --trainer"
done
run "$P" memory --trainer --rows docs/data/bloom-sweep.txt
want "rows of other software" 2 '--trainer is of one run, and --rows are runs of other software: leave one out'
run "$P" memory --trainer --offload /x --optimizer muon
want "Muon's state in a file" 2 '--optimizer muon and --offload exclude each other'

# --- an architecture of Hugging Face ---
mkdir "$W/Llama-3.1-8B"
cat >"$W/Llama-3.1-8B/config.json" <<'END'
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 14336,
 "max_position_embeddings": 131072, "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
 "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "tie_word_embeddings": false, "vocab_size": 128256,
 "rope_scaling": {"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                  "original_max_position_embeddings": 8192, "rope_type": "llama3"}}
END
MODEL=(--model "$W/Llama-3.1-8B/config.json")
plan memory "${MODEL[@]}"
want "an architecture alone" 0
check "its size, its name, as many positions as it has" \
    json 'd["parameters"] == 8030261248 and d["recipe"] == "Llama-3.1-8B" and (d["dp"], d["dtype"]) == (1, "fp32")'
check "in words" grep -q '^Llama-3.1-8B: 8030261248 parameters, 32 layers, hidden 4096, 32 heads, sequences of 131072$' "$W/out"
for question in memory time search; do
    plan $question "${MODEL[@]}" --recipe $R/llama-7b.json --global-batch 1024
    want "$question with a recipe's layout" 0
done
plan memory "${MODEL[@]}" --recipe $R/llama-7b.json --global-batch 1024
check "layout, type and sequences of the recipe" \
    json '(d["parameters"], d["dp"], d["zero"], d["dtype"], d["global_batch"]) == (8030261248, 128, 3, "bf16", 1024)'
check "of 2,048 tokens" grep -q 'sequences of 2048$' "$W/out"
plan memory "${MODEL[@]}" --recipe $R/llama-7b.json --seq 4096 --trainer
check "or as many as asked for" grep -q 'sequences of 4096$' "$W/out"
plan memory "${MODEL[@]}" --recipe $R/llama-7b.json --scale tiny --trainer
want "tiny" 0
sed 's/131072/1024/; s/"rope_scaling".*/"x": 0}/; /"original_max/d' "$W/Llama-3.1-8B/config.json" >"$W/short.json"
run "$P" memory --model "$W/short.json" --recipe $R/llama-7b.json
check "or as its positions" grep -q '^short: 8030261248 .* sequences of 1024$' "$W/out"
run "$P" memory "${MODEL[@]}" --seq 200000
want "too few positions" 1 'Llama-3.1-8B/config.json.*131072'
run "$P" time --model "$W/none.json"
want "no such file" 1 'cannot open .*none.json'
echo '{"model_type": "perceiver"}' >"$W/other.json"
run "$P" memory --model "$W/other.json"
want "another family" 1 'other.json.*perceiver'

# --- replicas that share experts ---
SHARED=(--recipe "$R/mixtral-8x7b.json" --tp 1 --pp 1 --dp 8 --ep 4 --zero 1 --lanes 8)
plan memory --trainer "${SHARED[@]}"
want "shared experts" 0
check "a quarter of the experts, an eighth of the state of all" json '(d["ep"] == 4 and
    d["trainer"][0]["weights"] == 2 * (1605636096 + 45097156608 // 4) and d["trainer"][0]["moments"] == 8 * (46702792704 // 8))'
plan time "${SHARED[@]}"
check "they are named" grep -q "x dp 8, of which 4 share experts, ZeRO 1" "$W/out"
check "their traffic is there" json 'd["time"]["ep_bytes"] > 0 and d["time"]["slot_ep_s"] > 0'
check "twice" [ "$(grep -c "ranks that share experts" "$W/out")" = 2 ]
check "the figure stands before its unit" grep -qE '^ +[0-9.]+ GB  to ranks that share experts$' "$W/out"
check "no figures that are 0, and where the others are from" grep -qx "with the software megatron; figures: the machine's, .*" "$W/out"
run "$P" time --software nanotron
check "figures that are not 0" grep -qE "software nanotron, 0.55 times the rate for attention.s products, [0-9.]+ ms to launch a layer, .*; figures: calibrated on docs/data/runs/ultrascale.txt" "$W/out"
plan memory --trainer "${SHARED[@]}" --optimizer muon
check "Muon: no second moments of an eighth of all experts" json 'd["trainer"][0]["moments"] < 8 * (46702792704 // 8) - 4 * (45097156608 // 8)'
plan memory "${SHARED[@]}" --lora 8
check "adapters beside shared experts" json 'd["trainer"][0]["weights"] == 2 * (1605636096 + 45097156608 // 4) + 2 * 8 * 32 * (2 * 4096 + 6144 + 4096)'
run "$P" memory --recipe "$R/llama-7b.json" --ep 2
want "no experts" 2 "ep 2: the model has no experts; the nearest that works on 128 ranks: --tp 1 --pp 1 --dp 128 --ep 1"

# --- fp8 ---
plan time --recipe "$R/llama-65b.json" --machine H100
cp "$W/out.json" "$W/16.json"
plan time --recipe "$R/llama-65b.json" --machine H100 --products fp8
check "products take half of the time, attention's and the head's as long" \
    json '0.5 < d["time"]["slot_compute_s"] / json.load(open(sys.argv[1].replace("out.json", "16.json")))["time"]["slot_compute_s"] < 0.6'
check "at a rate that is named" grep -q '^on H100: peak 989.4 TFLOP/s, 1978.9 in fp8, of which' "$W/out"
run "$P" time --recipe "$R/llama-65b.json" --products fp8
want "a machine without" 2 '--products fp8: A100-80 has no rate of fp8; take --products 16, or another --machine'
for machine in H200 B200; do
    run "$P" time --recipe "$R/llama-65b.json" --machine $machine --products fp8
    want "time on $machine" 0
done
plan search --recipe "$R/llama-7b.json" --gpus 72 --global-batch 1152 --machine GB200 --products fp8 --top 1 --schedule 1f1b
want "a search" 0
check "in one NVLink domain of 72" json 'd["machine"] == "GB200" and d["found"][0]["bytes"] < 185 * 2**30'

# --- the size of a node ---
for row in "GB200 72" "V100-32 16" "A100-80 8"; do
    run "$P" time --recipe "$R/llama-65b.json" --machine "${row% *}"
    check "a node of ${row% *}" grep -q "GB/s inside a node of ${row#* }," "$W/out"
done
run "$P" time --recipe "$R/llama-65b.json" --machine GB200 --per-node 4
check "or as asked for" grep -q "GB/s inside a node of 4," "$W/out"

# --- tables of measured runs ---
SWEEP=(--recipe "$R/bloom-176b.json" --rows docs/data/bloom-sweep.txt --fit '31,33,79,80,84')
plan time "${SWEEP[@]}" --inter 6.25
want "BLOOM's sweep" 0
check "124 rows that were not fitted" json 'd["step_errors"]["rows"] == 124 and d["step_errors"]["median"] < 0.10 and len(d["rows"]) == 129'
plan memory "${SWEEP[@]}"
check "memory blind within 6 %; 5 of 6 that were out of memory called, none falsely" \
    json 'd["median"] < 0.06 and (d["out_of_memory"], d["called"], d["falsely"]) == (6, 5, 0)'

# --- search ---
plan search --recipe $R/bloom-176b.json --machine jean-zay --reserve 11.31 --schedule 1f1b
want "BLOOM's search" 0
check "BLOOM ran within 3 % of what the search puts first: tp 4, pp 12, dp 8, micro-batch 2" json 'any([f[k] for k in ("tp", "pp", "dp", "micro_batch")] == [4, 12, 8, 2] and f["step_s"] < 1.03 * d["found"][0]["step_s"] for f in d["found"])'
check "ten, the fastest first, each of 384 that fits" json 'len(d["found"]) == 10 and [f["step_s"] for f in d["found"]] == sorted(f["step_s"] for f in d["found"]) and all(f["tp"] * f["pp"] * f["dp"] == 384 and f["bytes"] <= 80 * 2**30 for f in d["found"])'
check "every split is kept or refused" json 'all(r["why"] for r in d["refused"]) and any(r["pp"] == 96 for r in d["refused"])'
check "no experts, none that share them" json 'all(f["ep"] == 1 for f in d["found"])'
plan search --recipe $R/mixtral-8x7b.json --top 1
want "a search with experts" 0
check "the fastest shares them" json '(d["found"][0]["ep"], d["found"][0]["dp"]) == (8, 256)'
cp "$W/out.json" "$W/found.json"
of=mixtral-8x7b
as_found() { # QUESTION OPTIONS...: the same of the layout that was found
    local -a layout
    mapfile -t layout < <(python3 -S -c 'import json, sys
for key, value in json.load(open(sys.argv[1]))["found"][0].items():
    if key in ("tp", "ep", "pp", "dp", "micro_batch", "schedule", "chunks", "zero", "sequence_parallel", "recompute"):
        print("--" + key.replace("_", "-"), int(value) if isinstance(value, bool) else value, sep="\n")' "$W/found.json")
    plan "$1" --recipe "$R/$of.json" "${layout[@]}" "${@:2}"
}
found() { # EXPRESSION over d and the layout f
    json "[f for f in json.load(open('$W/found.json'))['found'] if $1]"
}
as_found memory
check "its memory, to the byte" found 'f["bytes"] == d["worst_stage"]["total"]'
as_found time
check "its time" found 'f["step_s"] == d["time"]["step_s"]'
as_found time --ep 1
check "which is shorter than without" found '1.05 * f["step_s"] < d["time"]["step_s"]'
python3 -S -c 'import json, sys
recipe, best = json.load(open(sys.argv[1])), json.load(open(sys.argv[2]))["found"][0]
recipe["layout"] = {**{k: best[k] for k in ("tp", "ep", "pp", "dp", "micro_batch", "zero", "sequence_parallel", "recompute")},
                    **{k: recipe["layout"][k] for k in ("global_batch", "seq")}}
json.dump(recipe, sys.stdout)' $R/mixtral-8x7b.json "$W/found.json" >"$W/recipe.json"
plan memory --recipe "$W/recipe.json"
check "so does a recipe with ep" found 'd["ep"] == 8 and f["bytes"] == d["worst_stage"]["total"]'
of=llama-65b
SMALL=(--recipe "$R"/llama-65b.json --gpus 64 --global-batch 256 --schedule 1f1b)
plan search "${SMALL[@]}" --trainer --lanes 0 --grad-sequences 1
want "a search for gyre-train" 0
cp "$W/out.json" "$W/found.json"
as_found memory --global-batch 256 --lanes 0 --grad-sequences 1 --trainer
check "its memory is gyre-train's, to the byte" found 'f["bytes"] == d["worst_stage"]["total"] and d["fits"]'
plan search "${SMALL[@]}"
check "the formulas find what gyre-train cannot hold" found 'f["step_s"] > d["found"][0]["step_s"]'
cp "$W/out.json" "$W/found.json"
as_found memory --global-batch 256 --lanes 0 --grad-sequences 1 --trainer
check "so it says" json 'not d["fits"]'
# a batch that grows, which gyre-train refuses in some layouts, and leaves that it must be given
GROWS=(--recipe "$R"/bloom-176b.json --scale tiny --trainer)
plan search "${GROWS[@]}" --top 100
want "a search where the batch grows" 0
check "no interleaved layout has whole rounds of 4 sequences in micro-batches of 4" \
    json 'all(f["micro_batch"] * f["pp"] <= 4 for f in d["found"] if f["schedule"] == "interleaved") and any(f["schedule"] == "interleaved" for f in d["found"])'
check "--leaves stands next to layouts that need it" python3 -S - "$W/out" "$W/out.json" <<'PY'
import json, sys
rows = [line for line in open(sys.argv[1]) if line.endswith("  --leaves 8\n")]
found = json.load(open(sys.argv[2]))["found"]
assert {f["leaves"] for f in found if f["tp"] < 8} == {4} and {f["leaves"] for f in found if f["tp"] == 8} == {8}
assert len(rows) == sum(f["tp"] == 8 for f in found) > 0, rows
PY
plan search "${GROWS[@]}" --schedule interleaved --balance layers
want "its own layout is not asked for" 0
plan search "${GROWS[@]}" --top 100 --global-batch 8
check "they have if it does not grow" json 'any(f["micro_batch"] * f["pp"] > 4 for f in d["found"] if f["schedule"] == "interleaved")'
run "$P" memory "${GROWS[@]}" --tp 4 --pp 2 --dp 1 --schedule interleaved --micro-batch 4
want "a layout in which it cannot grow" 2 'the batch grows: of 4 of 8 sequences the longest share has 1 micro-batch, and interleaved needs a multiple of pp 2'
run "$P" memory "${GROWS[@]}" --tp 8 --pp 1 --dp 1
want "leaves that are not the model's" 0
check "are said" grep -q '^in gyre-train on CPUs, .* bytes, 8 leaves)$' "$W/out"
plan search --recipe $R/llama-30b.json --gpus 64
check "heads that tp does not divide" grep -q 'tp 8 x pp 1 x dp 8: 52 heads are not divisible by tp' "$W/out"
plan search --recipe $R/gpt-3-175b.json --gpus 8
want "no layout fits" 1 'no layout fits: take more accelerators'
check "and what it would take" grep -q 'out of memory: [0-9.]* GiB at least' "$W/out"
check "no empty table" [ "$(grep -c '^place' "$W/out")" = 0 ]
"$P" search --recipe $R/gpt-3-175b.json --gpus 8 >"$W/both" 2>&1
check "the verdict is last" grep -q 'no layout fits' <(tail -n 1 "$W/both")
plan search --layers 6 --heads 8 --hidden 256 --balance embedding --global-batch 12 --gpus 6
want "a search that refuses a split" 0
check "it names the rule that the simplest schedule breaks" json '[(r["pp"], r["why"].split(":")[0]) for r in d["refused"]] == [(6, "balance")]'
plan search --gpus 4 --global-batch 8 --machine H100 --schedule gpipe --top 100
want "a schedule that search leaves out by itself" 0
check "it is tried where it is asked for" json 'any(f["schedule"] == "gpipe" and f["pp"] > 1 for f in d["found"])'
check "with a reason for each refusal" json 'all(r["why"] for r in d["refused"])'
plan search --recipe $R/bloom-176b.json --machine jean-zay --schedule interleaved --global-batch 1536 --top 1000
want "stages of 70 layers and of embedding and head" 0
check "72 of them are 3 chunks on each of 12 ranks" json 'any((f["pp"], f["chunks"]) == (12, 3) for f in d["found"])'
run "$P" search --recipe $R/llama-65b.json --hbm 30 --schedule 1f1b
want "a search where the recipe's own layout does not fit" 0
check "which is said next to it" [ "$(grep -c ': out of memory$' "$W/out")" = 1 ]
run "$P" search --recipe $R/llama-65b.json --schedule 1f1b
check "and only then" [ "$(grep -c ': out of memory$' "$W/out")" = 0 ]

# the recipe's own layout need not work with what is asked
plan search --recipe $R/bloom-176b.json --machine jean-zay --schedule interleaved
want "a schedule that the recipe's own layout has no rounds for" 0
check "it is found in others" json 'all(f["schedule"] == "interleaved" for f in d["found"] if f["pp"] > 1) and d["found"]'
check "and the recipe's own is left out" test "$(grep -c "the recipe's own" "$W/out")" = 0
plan search --recipe $R/llama-7b.json --gpus 4 --global-batch 6
want "a batch that its own ranks could not share" 0
check "is that of 4" json 'd["found"] and all(f["tp"] * f["pp"] * f["dp"] == 4 for f in d["found"])'
run "$P" search --recipe $R/llama-7b.json --gpus 4 --sequence-parts 3
want "what no layout can have" 2 '--sequence-parts 3: it must be a power of two'

# --- mistakes ---
run "$P" memory --recipe $R/bloom-176b.json --tp 3
want "a wrong degree, and the nearest that works" 2 'tp 3 does not divide.*nearest that works on 288 ranks: --tp'
run "$P" memory --heads 7
want "heads" 2 'hidden 768 is not divisible by heads 7: take heads 6 or 8'
run "$P" memory --recipe llama-7b
want "no file" 1 'cannot open the recipe llama-7b: name a file such as examples/recipes/'
run "$P" time --machine B201
want "an unknown machine" 2 'does not know the machine B201; there is: V100-32.*H100'
run "$P" memory --tpp 2
want "an unknown flag" 2 'unknown option --tpp .did you mean --tp'
for flag in peak intra inter efficiency overhead overlap; do
    run "$P" memory --$flag 1
    want "memory: a flag of time" 2 "unknown option --$flag"
done
run "$P" search --dp 2
want "a flag of another question" 2 'unknown option --dp;'
run "$P" memory --zero 4
want "a value out of range" 2 '--zero 4: wants a whole number from 0 to 3'
run "$P" memory --recompute some
want "a wrong name" 2 'none, selective or full, not some'
run "$P" memory --dtype fp16 --grad-dtype bf16
want "gradients of another kind" 2 'fp16 or fp32, not bf16'
run "$P" memory --scale huge
want "a wrong scale" 2 '--scale huge: wants tiny'
run "$P" time --fit 1
want "rows to fit, and no table" 2 '--fit needs --rows'
run "$P" time --rows docs/data/sc21-table1.txt --fit 11
want "a row that is not there" 2 'has 10 rows, and row 11'
printf 'tp seconds\n2 1\nx\n' >"$W/rows.txt"
run "$P" time --rows "$W/rows.txt"
want "a short row" 1 'rows.txt:3: as many values'
printf 'tpp seconds\n2 1\n' >"$W/rows.txt"
run "$P" time --rows "$W/rows.txt"
want "an unknown column" 2 'line 2: there is no column tpp'
run "$P" time extra
want "an argument" 2 'extra'
cp "$R/gpt-3-175b.json" "$W/only.json"
for flag in recipe rows model; do
    run "$P" time --$flag "$W/only.json" --json "$W/only.json"
    [ $flag != recipe ] || want "results over the recipe" 2 "--json $W/only.json would replace $W/only.json, which is read"
    check "--$flag is still there" cmp -s "$R/gpt-3-175b.json" "$W/only.json"
done
run "$P" memory --json "$W/no/such.json"
want "results into nowhere" 1 '--json: cannot write .*such.json'
manual=$(<docs/man/gyre-plan.1)
manual=${manual//\\-/-}
for question in memory time search; do
    run "$P" $question --help
    want "$question --help" 0
    check "$question: help in lines that can be read" [ "$(wc -L <"$W/out")" -le 120 ]
    grep -oE -- '--[a-z-]+' "$W/out" | sort -u >"$W/flags"
    check "$question: help has flags" [ "$(wc -l <"$W/flags")" -ge 20 ]
    while read -r flag; do
        check "man page: $flag of $question" [ "${manual/"${flag#--}"/}" != "$manual" ]
    done <"$W/flags"
done
finish
