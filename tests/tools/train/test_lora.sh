#!/bin/bash
# tests/tools/train/test_lora.sh: adapters of weights that are loaded: the same bits in every layout, the merged model that a run leaves,
# checkpoints of adapters alone, and what is refused. Products and gradients: tests/model/test_lora.c; memory: tests/pipeline/mp_memory.c.
# deadline: 60
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../../support/lib.sh"
unset "${!GYRE_@}"
DEADLINE=30
TRAIN=$B/bin/gyre-train

DATA=(--data tests/support/english.txt --eval-sequences 8 --report none --sample-tokens 0 --peak-flops 1e9)
run "$TRAIN" "${DATA[@]}" --layers 2 --hidden 32 --heads 4 --seq 32 --leaves 4 --steps 30 --save "$W/base"
want "weights to begin with" 0
ON=("${DATA[@]}" --load "$W/base" --batch 8 --warmup 2 --steps 6 --eval-every 3 --lr 0.01)
LORA=("${ON[@]}" --lora 4 --lora-on '*attn*,*.1.mlp*')
last() { # LOG: the last validation loss
    python3 -c 'import json, sys
line = json.loads(open(sys.argv[1]).readlines()[-1])
print(line["val_loss"])' "$1"
}
curve() {
    python3 -c 'import json, sys
for line in map(json.loads, open(sys.argv[1])):
    if "loss_hex" in line or "weights_hash" in line:
        print({k: line[k] for k in line if k in ("step", "val_loss", "weights_hash") or k.endswith("_hex")})' "$1"
}

# --- layouts ---
run "$TRAIN" "${LORA[@]}" --log "$W/alone" --save "$W/merged" --save-adapters "$W/peft"
want "one process" 0
check "says where the adapters are" grep -q "adapters *.*/peft" "$W/out"
check "says what is trained" grep -qE "^adapters of rank 4 on 6 weights: 0.003 million parameters are trained, of 0.03 million" "$W/out"
curve "$W/alone" >"$W/bits"
check "six steps and the end" [ "$(wc -l <"$W/bits")" = 7 ]
while read -r ranks options <&3; do
    # shellcheck disable=SC2086 # several options
    run "$UCX_RUN" -n "$ranks" "$TRAIN" "${LORA[@]}" $options --log "$W/log" --save "$W/weights" --save-adapters "$W/other/"
    want "$options" 0
    check "$options: the same adapters" diff -r "$W/peft" "$W/other"
    check "$options: the same bits" cmp -s "$W/bits" <(curve "$W/log")
    check "$options: the same merged model" cmp -s "$W/merged" "$W/weights"
done 3<<'LAYOUTS'
2 --tp 2 --sequence-parallel --recompute full
4 --pp 2 --dp 2 --zero 3 --schedule zb-h1
3 --dp 3 --zero 1
LAYOUTS
run "$UCX_RUN" -n 2 "$TRAIN" "${LORA[@]}" --lora-on '*.0.attn*' --pp 2 --precision bf16
want "a rank without adapters" 0

# --- adapters alone, as PEFT has them (tests/model/tune_compare.py compares with PyTorch) ---
check "modules, and their names" python3 - "$W/peft" <<'PY'
import json, struct, sys
data = open(sys.argv[1] + "/adapter_model.safetensors", "rb").read()
head = json.loads(data[8 : 8 + struct.unpack_from("<Q", data)[0]])
config = json.load(open(sys.argv[1] + "/adapter_config.json"))
modules = config["target_modules"]
assert len(modules) == 6 and (config["r"], config["lora_alpha"], config["fan_in_fan_out"], config["bias"]) == (4, 8, True, "none"), config
assert config["base_model_name_or_path"].endswith("/base") and config["peft_type"] == "LORA"
shapes = {name: head[f"base_model.model.{module}.lora_{name}.weight"]["shape"] for module in modules if "1.mlp.c_fc" in module for name in "AB"}
assert shapes == {"A": [4, 32], "B": [128, 4]} and len(head) == 13, (shapes, list(head))
PY
mkdir "$W/peft/mine"
run "$TRAIN" "${LORA[@]}" --save-adapters "$W/peft" --steps 1
want "a folder that is there" 0
check "what else is in it stays" [ -d "$W/peft/mine" ]

run "$TRAIN" "${DATA[@]}" --load "$W/base" --load-adapters "$W/peft" --steps 0 --save "$W/again" --log "$W/log"
want "adapters merged again" 0
run "$UCX_RUN" -n 2 "$TRAIN" "${DATA[@]}" --load "$W/base" --load-adapters "$W/peft" --steps 0 --save "$W/weights" --tp 2 --zero 3
want "on two ranks" 0
check "the same weights" cmp -s "$W/again" "$W/weights"
run "$TRAIN" "${LORA[@]}" --load-adapters "$W/peft" --steps 1 --save-adapters "$W/next"
want "new adapters on top of them" 0
cp -r "$W/peft" "$W/peft.0"
cp -r "$W/peft" "$W/peft.1"
sed -i 's/"lora_alpha": [0-9.]*/"lora_alpha": 7/' "$W/peft.1/adapter_config.json"
run "$UCX_RUN" -n 2 --timeout 25 sh -c 'exec "$@" --load-adapters "$0.$GYRE_RANK"' "$W/peft" "$TRAIN" "${DATA[@]}" --load "$W/base" --steps 0
want "other adapters on another rank" 2 "--load-adapters is .*/peft.0 .* on rank 0, but .*/peft.1 .* on rank 1"
cp -r "$W/peft" "$W/kept"
for output in log report trace save; do
    run "$TRAIN" "${DATA[@]}" --load "$W/base" --load-adapters "$W/kept" --steps 0 --$output "$W/kept/adapter_model.safetensors"
    want "--$output over the adapters" 2 "--$output $W/kept/adapter_model.safetensors would replace a file of $W/kept, which is read"
done
check "they are as they were" diff -r "$W/peft" "$W/kept"
spoil() { # NAME PATTERN PYTHON: the configuration c, or the names of tensors n, changed
    rm -rf "$W/bad"
    cp -r "$W/peft" "$W/bad"
    python3 - "$W/bad" "$3" <<'PY'
import json, struct, sys
c = json.load(open(sys.argv[1] + "/adapter_config.json"))
data = open(sys.argv[1] + "/adapter_model.safetensors", "rb").read()
size = struct.unpack_from("<Q", data)[0]
n = data[8 : 8 + size].decode()
scope = {"c": c, "n": n}
exec(sys.argv[2], scope)
assert len(scope["n"]) == len(n)
json.dump(c, open(sys.argv[1] + "/adapter_config.json", "w"))
open(sys.argv[1] + "/adapter_model.safetensors", "wb").write(data[:8] + scope["n"].encode() + data[8 + size :])
PY
    run "$TRAIN" "${ON[@]}" --load-adapters "$W/bad"
    want "$1" 2 "$2"
}
spoil "another method" "adapter_config.json: peft_type is IA3: LORA is read" 'c["peft_type"] = "IA3"'
spoil "DoRA" "use_dora is set: merge the adapters with PEFT" 'c["use_dora"] = True'
spoil "ranks by pattern" "rank_pattern is set" 'c["rank_pattern"] = {"c_fc": 2}'
spoil "biases" "bias is all" 'c["bias"] = "all"'
spoil "another base" "init_lora_weights is pissa: merge the adapters with PEFT" 'c["init_lora_weights"] = "pissa"'
spoil "adapters of some tokens" "alora_invocation_tokens is set" 'c["alora_invocation_tokens"] = [1]'
spoil "another rank" "are not \[8, [0-9]+\] and \[[0-9]+, 8\], for the r of the configuration" 'c["r"] = 8'
spoil "no scale" "r and lora_alpha are not numbers" 'c["r"] = 0'
spoil "another module" "base_model.model.transformer.h.7.mlp.c_proj.lora_[AB].weight is for no matrix of the model's" 'n = n.replace("h.1.mlp.c_proj", "h.7.mlp.c_proj")'
spoil "another shape" "lora_A.weight and its lora_B are not \[4, 32\] and \[128, 4\]" 'n = n.replace("[128,4]", "[4,128]")'

# --- the merged model ---
check "weights without adapters keep their bits, others do not" python3 - "$W/base" "$W/merged" <<'PY'
import json, struct, sys
def tensors(path):
    data = open(path, "rb").read()
    (n,) = struct.unpack_from("<Q", data)
    head = json.loads(data[8 : 8 + n])
    return {k: data[8 + n + v["data_offsets"][0] : 8 + n + v["data_offsets"][1]] for k, v in head.items() if k != "__metadata__"}
base, merged = map(tensors, sys.argv[1:])
assert base.keys() == merged.keys()
for name in base:
    adapted = (".attn." in name or ".1.mlp." in name) and name.endswith("weight")
    assert (base[name] != merged[name]) == adapted, name
PY
run "$TRAIN" "${DATA[@]}" --load "$W/merged" --steps 0 --log "$W/log"
want "the merged model" 0
check "its loss is that of the run, to the bit" [ "$(last "$W/log")" = "$(last "$W/alone")" ]
run "$UCX_RUN" -n 2 "$TRAIN" "${LORA[@]}" --precision bf16 --tp 2 --log "$W/half" --save "$W/weights"
want "bf16" 0
run "$TRAIN" "${DATA[@]}" --load "$W/weights" --precision bf16 --steps 0 --log "$W/log"
want "the merged model in bf16" 0
check "its loss is that of the run, too" [ "$(last "$W/log")" = "$(last "$W/half")" ]

# --- checkpoints ---
run "$UCX_RUN" -n 2 "$TRAIN" "${LORA[@]}" --tp 2 --checkpoint "$W/cp" --checkpoint-every 3 --save "$W/weights"
want "with checkpoints" 0
check "they hold adapters alone" python3 -c 'import json, sys
names = [row["name"] for row in json.load(open(sys.argv[1]))["rows"]]
assert len(names) == 12 and all(".lora_" in name for name in names), names' "$W/cp/step-000000000003/index.json"
rm -rf "$W/cp/step-000000000006"
run "$TRAIN" "${ON[@]}" --checkpoint "$W/cp" --resume
want "resumed without adapters" 2 "--lora is 0, but the run in .* was begun with 4"
run "$TRAIN" "${LORA[@]}" --load "$W/merged" --checkpoint "$W/cp" --resume
want "resumed on other weights" 2 "the adapters in .* were trained on other weights than those in .*/merged"
run "$UCX_RUN" -n 2 "$TRAIN" "${LORA[@]}" --zero 3 --checkpoint "$W/cp" --resume --save "$W/weights"
want "resumed in another layout" 0
check "goes on after step 3" grep -q "going on after step 3" "$W/out"
check "to the same merged model" cmp -s "$W/merged" "$W/weights"
run "$B/bin/gyre-generate" --load "$W/cp" --prompt x
want "adapters are no model" 2 "holds adapters \(--lora\), not the weights that they are for"

# --- what is refused ---
refused() { # NAME PATTERN OPTIONS...
    run "$TRAIN" "${ON[@]}" "${@:3}"
    want "$1" 2 "$2"
}
refused "an unknown name" "--lora-on \*q_proj\*: no weight that can have an adapter is named so; names are .*h.0.attn.c_attn.weight" --lora 4 \
    --lora-on '*attn*,*q_proj*'
refused "a rank that is too large" "--lora 33: .* takes a rank of up to 32" --lora 33
refused "frozen weights, too" "--lora and --freeze exclude each other" --lora 4 --freeze '*wte*'
refused "names without adapters" "--lora-on needs --lora RANK" --lora-on '*attn*'
refused "a factor without adapters" "--lora-alpha needs --lora RANK" --lora-alpha 8
refused "a folder without adapters" "cannot open .*/cp/adapter_config.json" --load-adapters "$W/cp"
run "$TRAIN" "${DATA[@]}" --load-adapters "$W/peft"
want "adapters without a model" 2 "--load-adapters needs --load"
run "$TRAIN" "${DATA[@]}" --layers 1 --hidden 32 --heads 4 --seq 32 --steps 1 --checkpoint "$W/run"
run "$TRAIN" "${DATA[@]}" --load "$W/run" --load-adapters "$W/peft" --steps 1
want "on a checkpoint" 2 "--load-adapters .*/peft: the weights in .*/run are a checkpoint's"
refused "adapters that are not there" "--save-adapters needs --lora RANK" --save-adapters "$W/none"
run "$TRAIN" "${ON[@]}" --lora 4 --save-adapters "$W/base"
want "a file for adapters" 1 "cannot write to the folder .*/base"
refused "checkpoints in them" "--checkpoint .*/peft/mine is in the folder .*/peft, which is replaced" --lora 4 --save-adapters "$W/peft" --checkpoint "$W/peft/mine"
run "$TRAIN" "${DATA[@]}" --lora 4
want "nothing to adapt" 2 "--lora needs --load"
finish
