#!/bin/bash
# A trained model leaves in Hugging Face's form and comes back: in another layout, to the bit. A LLaMA with grouped queries, whose
# rows are taken apart and turned in the files.
set -eu
# SPDX-License-Identifier: Apache-2.0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat >"$folder/llama.json" <<'JSON'
{"model_type": "llama", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
 "num_key_value_heads": 2, "vocab_size": 256, "max_position_embeddings": 32}
JSON
seq 1 4000 >"$folder/text"
common=(--data "$folder/text" --batch 4 --sample-tokens 0 --report "$folder/report.html")
"$B/bin/gyre-train" --model "$folder/llama.json" "${common[@]}" --steps 3 --save "$folder/one/"
"$B/bin/ucx-run" -n 2 --timeout 60 "$B/bin/gyre-train" --load "$folder/one" --tp 2 "${common[@]}" --steps 0 \
    --save "$folder/two/"
cmp "$folder/one/model.safetensors" "$folder/two/model.safetensors"
grep -q '"LlamaForCausalLM"' "$folder/two/config.json"
grep -q 'model.layers.1.self_attn.k_proj.weight' "$folder/two/model.safetensors"
echo "out in Hugging Face's form, and back on two ranks: the same bytes"
