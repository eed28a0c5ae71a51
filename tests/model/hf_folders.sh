#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Folders of Hugging Face as users have them: sequences shorter than the model's positions; a folder that is
# trained in place; keys and files that training does not change; bf16; a run that is refused leaves nothing.
. "$(dirname "$0")/../support/train.sh"
common=(--data text --batch 4 --sample-tokens 0 --peak-flops 1e9 --report none --eval-sequences 4)
number() { # JSON of a safetensors file's header
    python3 -c 'import json, struct, sys
with open(sys.argv[1], "rb") as f: print(json.dumps(json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))))' "$1"
}

# GPT-2: learned positions, of which 24 of 32 are used; the folder is replaced by the trained model
echo '{"model_type": "gpt2", "n_layer": 1, "n_embd": 16, "n_head": 2, "vocab_size": 256, "n_positions": 32,
 "bos_token_id": 7, "eos_token_id": 8, "task_specific_params": {"text-generation": {"max_length": 50}}}' >gpt2.json
train --model gpt2.json --steps 1 --save gpt2/
cp gpt2.json gpt2/config.json
echo '{"eos_token_id": 8}' >gpt2/generation_config.json
echo '# My model' >gpt2/README.md
touch gpt2/model-00001-of-00002.safetensors gpt2/model-00002-of-00002.safetensors
cp -r gpt2 before
train --load gpt2 --seq 24 --steps 2 --lr 0.001 --save gpt2/ --save-type bf16
number gpt2/model.safetensors | python3 -c 'import json, sys
t = json.load(sys.stdin)["transformer.wpe.weight"]
assert t["shape"] == [32, 16] and t["dtype"] == "BF16", t'
python3 - <<'PY'
import json
was, now = json.load(open("before/config.json")), json.load(open("gpt2/config.json"))
changed = {k for k in was if was[k] != now.get(k)}
assert not changed, changed
assert now["torch_dtype"] == "bfloat16" and now["architectures"] == ["GPT2LMHeadModel"], now
PY
[ "$(echo gpt2/*)" = "gpt2/README.md gpt2/config.json gpt2/generation_config.json gpt2/model.safetensors" ]
cmp before/generation_config.json gpt2/generation_config.json
train --load gpt2 --steps 0 --save again/ # in the type that it had, all positions
cmp gpt2/model.safetensors again/model.safetensors
train --load gpt2 --seq 8 --steps 0 --save again.safetensors
train --load again.safetensors --seq 8 --steps 0 --save again2.safetensors
cmp again.safetensors again2.safetensors
ls -d ./*.tmp-* 2>/dev/null && exit 1

# a tensor that the model has no place for is named once, and a part of a download that is missing
cp -r again more
python3 - <<'PY'
import json, os, struct
data = open("again/model.safetensors", "rb").read()
size = struct.unpack("<Q", data[:8])[0]
header, rest = json.loads(data[8:8 + size]), data[8 + size:]
header["vision.weight"] = {"dtype": "F32", "shape": [1], "data_offsets": [len(rest), len(rest) + 4]}
text = json.dumps(header).encode()
open("more/model-00001-of-00002.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + rest + bytes(4))
os.remove("more/model.safetensors")
names = {name: "model-00001-of-00002.safetensors" for name in header if name != "__metadata__"}
json.dump({"weight_map": names}, open("more/model.safetensors.index.json", "w"))
PY
train --load more --seq 24 --steps 0 --save again2/
[ "$(grep -c "left out" out.log)" = 1 ] || { cat out.log; exit 1; }
mv more/model-00001-of-00002.safetensors more/model-00001-of-00002.safetensors.part
refused "more/model-00001-of-00002.safetensors is missing (1 of the 1 files" --load more --steps 0
mv more/model-00001-of-00002.safetensors.part more/model-00001-of-00002.safetensors
rm more/model.safetensors.index.json
refused "more/model.safetensors.index.json is missing" --load more --steps 0

# a head of its own where the model's is the embedding: it is left out, which is said if it differs; and the other way round
echo '{"model_type": "gpt2", "n_layer": 1, "n_embd": 64, "n_head": 2, "vocab_size": 512, "n_positions": 32}' >tied.json
train --model tied.json --steps 0 --save tied/
cp -r tied headed
cp -r again headless
for differs in 0 1; do
    python3 - $differs <<'PY'
import json, struct, sys
data = open("tied/model.safetensors", "rb").read()
size = struct.unpack("<Q", data[:8])[0]
header, rest = json.loads(data[8:8 + size]), data[8 + size:]
begin, end = header["transformer.wte.weight"]["data_offsets"]
header["lm_head.weight"] = dict(header["transformer.wte.weight"], data_offsets=[len(rest), len(rest) + end - begin])
text = json.dumps(header).encode()
head = bytearray(rest[begin:end])
head[4 * 200] ^= int(sys.argv[1])
open("headed/model.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + rest + head)
PY
    train --load headed --seq 24 --steps 0 --save again2/
    [ "$(grep -c "lm_head.weight differs from the embedding, and is left out (transformers 5 keeps it" out.log)" = $differs ] || { cat out.log; exit 1; }
done
sed -i 's/"model_type"/"tie_word_embeddings": false, "model_type"/' headless/config.json
refused "holds no tensor lm_head.weight: if the model's head is its embedding, \"tie_word_embeddings\" must be true" --load headless --seq 24 --steps 0

# adapters whose weights are not there, and one file of a folder
mkdir adapters
echo '{"peft_type": "LORA", "r": 1, "lora_alpha": 1}' >adapters/adapter_config.json
refused "cannot open adapters/adapter_model.safetensors" --load again --load-adapters adapters --steps 0

# Mistral: a window that is shorter than the model's positions, and than some sequences
echo '{"model_type": "mistral", "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1,
 "num_attention_heads": 2, "vocab_size": 256, "max_position_embeddings": 64, "sliding_window": 16}' >mistral.json
train --model mistral.json --seq 17 --steps 1 --save mistral/
cp mistral.json mistral/config.json
train --load mistral --seq 16 --steps 1 --save mistral2/
refused "does not say what model it is of: give its folder, mistral/, whose config.json does" --load mistral/model.safetensors --steps 0
python3 - <<'PY'
import json
now = json.load(open("mistral2/config.json"))
assert (now["model_type"], now["max_position_embeddings"], now["sliding_window"]) == ("mistral", 64, 16), now
PY

# a run that is refused after the outputs were looked at
sed -i 's/"n_embd": 16/"n_embd": 32/' before/config.json
refused "this model needs" --load before --steps 1 --save new/ --tensorboard board --checkpoint check --log log
[ ! -e new ] && [ ! -e board ] && [ ! -e check ] || { ls; exit 1; }
mkdir inside
refused "name another with --save" --steps 1 --save inside/ --checkpoint inside/check
refused "--save-type is for a folder" --steps 1 --save file --save-type bf16
[ -z "$(ls inside)" ]
echo "folders of models: shorter sequences, in place, keys and files kept, nothing left by runs that are refused"
