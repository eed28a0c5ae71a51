#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Folders that `transformers` wrote, through gyre-train --load, --seq and --save and back: `transformers` loads them as they
are, with every weight, every key of the configuration, the tokenizer and the type that they had; after training, too."""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
try:
    import safetensors.torch
    import small_bpe
    import torch
    import transformers
except ImportError as missing:
    print(f"skipped: {missing.name} is not installed (tools/setup references)")
    sys.exit(77)

BUILD = os.environ.get("B", "build")
MINE = {"bos_token_id": 3, "eos_token_id": 5, "pad_token_id": 7}
SIZES = {"vocab_size": 300, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4}
LLAMA = {**SIZES, "intermediate_size": 24, "num_key_value_heads": 2, "max_position_embeddings": 64, **MINE}
MODELS = {
    "gpt2": transformers.GPT2Config(vocab_size=300, n_embd=16, n_layer=2, n_head=4, n_positions=64, **MINE),
    "opt": transformers.OPTConfig(**SIZES, ffn_dim=32, max_position_embeddings=64, word_embed_proj_dim=16, dropout=0.0, **MINE),
    "llama": transformers.LlamaConfig(**LLAMA, rope_theta=50000.0),
    "llama 3": transformers.LlamaConfig(**LLAMA, rope_scaling={"rope_type": "yarn", "factor": 4.0, "beta_fast": 16.0}),
    "mistral": transformers.MistralConfig(**LLAMA, sliding_window=12),
    "qwen2": transformers.Qwen2Config(**LLAMA, use_sliding_window=True, sliding_window=12, max_window_layers=1),
    "phi3": transformers.Phi3Config(**LLAMA),
    "mixtral": transformers.MixtralConfig(**LLAMA, num_local_experts=2, sliding_window=None),
    "gpt_neox": transformers.GPTNeoXConfig(**SIZES, intermediate_size=32, rotary_pct=0.5, max_position_embeddings=64,
                                           **MINE),
}
if hasattr(transformers, "GptOssConfig"): # of 4.55
    MODELS["gpt_oss"] = transformers.GptOssConfig(**LLAMA, head_dim=6, num_local_experts=4, num_experts_per_tok=2,
                                                  sliding_window=12)
LATENT = {"intermediate_size": 24, "moe_intermediate_size": 8, "num_key_value_heads": 4, "kv_lora_rank": 8, "qk_nope_head_dim": 6,
          "qk_rope_head_dim": 2, "v_head_dim": 4, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1,
          "first_k_dense_replace": 1, "max_position_embeddings": 64}
if hasattr(transformers, "DeepseekV3Config"): # of 4.50
    MODELS["deepseek_v3"] = transformers.DeepseekV3Config(
        **SIZES, **LATENT, **MINE, q_lora_rank=12, num_nextn_predict_layers=0, rope_scaling={
            "rope_type": "yarn", "factor": 4.0, "mscale": 1.0, "mscale_all_dim": 0.8, "original_max_position_embeddings": 16})
if hasattr(transformers, "DeepseekV2Config"): # of 4.54
    MODELS["deepseek_v2"] = transformers.DeepseekV2Config(**SIZES, **LATENT, **MINE, q_lora_rank=None)


def gyre(tool, *words):
    done = subprocess.run([f"{BUILD}/bin/{tool}", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{tool} {' '.join(words)}: {done.stderr}"


def changed_keys(before, after):
    keys = []
    for folder in (before, after):
        with open(f"{folder}/config.json", encoding="utf-8") as config:
            keys.append(json.load(config))
    return {k: (v, keys[1].get(k)) for k, v in keys[0].items() if keys[1].get(k) != v}


def check(name, config, dtype, folder, tokens, tokenizer):
    was, same, trained = (f"{folder}/{name}-{dtype}-{what}" for what in ("was", "same", "trained"))
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(config).to(getattr(torch, dtype))
    model.save_pretrained(was)
    tokenizer.save_pretrained(was)
    common = ["--load", was, "--data", tokens, "--seq", "16", "--batch", "2", "--eval-sequences", "2", "--sample-tokens", "0",
              "--report", "none", "--lr", "0.01", "--warmup", "0"]
    gyre("gyre-train", *common, "--steps", "0", "--save", same + "/")
    gyre("gyre-train", *common, "--steps", "2", "--save", trained + "/")
    for after in (same, trained):
        changed = changed_keys(was, after)
        assert not changed, f"{after}: {changed}"
        assert transformers.AutoTokenizer.from_pretrained(after)("a word")["input_ids"] == tokenizer("a word")["input_ids"]
        assert transformers.GenerationConfig.from_pretrained(after).eos_token_id == 5
    weights = transformers.AutoModelForCausalLM.from_pretrained(same, torch_dtype="auto").state_dict()
    # as it loads what it saved: it has some routers in fp32 whatever the type of the file
    for key, value in transformers.AutoModelForCausalLM.from_pretrained(was, torch_dtype="auto").state_dict().items():
        assert weights[key].dtype == value.dtype and torch.equal(weights[key], value), f"{name}: {key}"
    learned = transformers.AutoModelForCausalLM.from_pretrained(trained, torch_dtype="auto").state_dict()
    moved = [k for k, v in learned.items() if v.is_floating_point() and not torch.equal(v, weights[k])]
    assert len(moved) > 8, moved
    for key in learned:
        if "wpe" in key or "embed_positions" in key:  # positions that no sequence reached
            rest = 16 + (2 if name == "opt" else 0)
            assert torch.equal(learned[key][rest:], weights[key][rest:]) and not torch.equal(learned[key], weights[key])
    print(f"{name} in {dtype}: the same weights, keys, tokenizer and type, and {len(moved)} tensors that have learned")


def check_mxfp4(folder, tokens):
    """A folder in 4 bits is refused by name; what the lines in docs/models.md leave of it is taken."""
    packed, whole = f"{folder}/packed", f"{folder}/whole"
    config = transformers.GptOssConfig(**{**LLAMA, "hidden_size": 32, "intermediate_size": 32}, head_dim=8, num_local_experts=4,
                                       num_experts_per_tok=2)
    transformers.AutoModelForCausalLM.from_config(config).bfloat16().save_pretrained(packed)
    weights = safetensors.torch.load_file(f"{packed}/model.safetensors")
    for name in [n for n in weights if n.endswith(("gate_up_proj", "down_proj"))]:
        experts, rows, columns = weights.pop(name).shape
        weights[name + "_blocks"] = torch.randint(0, 256, (experts, columns, rows // 32, 16), dtype=torch.uint8)
        weights[name + "_scales"] = torch.randint(118, 124, (experts, columns, rows // 32), dtype=torch.uint8)
    safetensors.torch.save_file(weights, f"{packed}/model.safetensors", metadata={"format": "pt"})
    config.quantization_config = {"quant_method": "mxfp4", "modules_to_not_convert": ["self_attn", "router", "embed_tokens", "lm_head"]}
    config.save_pretrained(packed)
    load = [f"{BUILD}/bin/gyre-train", "--data", tokens, "--seq", "16", "--batch", "2", "--steps", "0", "--sample-tokens", "0", "--report",
            "none", "--load"]
    refused = subprocess.run([*load, packed], capture_output=True, text=True, check=False)
    assert refused.returncode and "is in 4 bits (MXFP4)" in refused.stderr, refused
    model = transformers.AutoModelForCausalLM.from_pretrained(
        packed, quantization_config=transformers.Mxfp4Config(dequantize=True), dtype="bfloat16")
    model.save_pretrained(whole)
    subprocess.run([*load, whole], capture_output=True, check=True)
    print("MXFP4 is refused, and taken when transformers has dequantized it")


def main():
    with tempfile.TemporaryDirectory() as folder:
        with open("tests/support/english.txt", encoding="utf-8") as readme:
            text = readme.read() * 4
        tokenizer = small_bpe.train(text)
        tokenizer.save_pretrained(f"{folder}/tokenizer")
        with open(f"{folder}/text", "w", encoding="utf-8") as out:
            out.write(text)
        gyre("gyre-tokenize", "--tokenizer", f"{folder}/tokenizer/tokenizer.json", "--out", f"{folder}/tokens.gyt", f"{folder}/text")
        for number, (name, config) in enumerate(MODELS.items()):
            check(name, config, "bfloat16" if number % 2 else "float32", folder, f"{folder}/tokens.gyt", tokenizer)
        if "gpt_oss" in MODELS:
            check_mxfp4(folder, f"{folder}/tokens.gyt")


main()
