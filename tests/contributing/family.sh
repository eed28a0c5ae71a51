#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/contributing/family.sh: a config.json of the toy family makes a model that trains, and is written
# as one of that family.
$MAKE build/tests/model/test_config_json build/tests/model/test_hf build/bin/gyre-train build/bin/gyre-doctor
build/tests/model/test_config_json
build/tests/model/test_hf
cat >toy.json <<'END'
{"model_type": "toy", "vocab_size": 256, "max_position_embeddings": 16,
 "num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32}
END
build/bin/gyre-train --model toy.json --data README.md --seq 16 --batch 2 --steps 2 --save toy/ --report none
grep '"model_type": *"toy"' toy/config.json
grep -a -q 'model.layers.0.self_attn.q_proj.bias' toy/*.safetensors
build/bin/gyre-train --load toy/ --data README.md --batch 2 --steps 1 --report none
sed -i 's/"toy"/"toi"/' toy.json
{ build/bin/gyre-train --model toy.json --data README.md 2>&1 || true; } | grep 'supported are .*toy'
bash tests/system/documents.sh
