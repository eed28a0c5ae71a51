#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# newest transformers, too: families that 4.46 lacks
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
import hf_families

BUILD = os.environ.get("B", "build")


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
    model = hf_families.model_of(transformers, config).to(getattr(torch, dtype))
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
    config = transformers.GptOssConfig(**{**hf_families.LLAMA, "intermediate_size": 32}, head_dim=8, num_local_experts=4,
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
        types = "float32", "bfloat16"
        for number, (name, config) in enumerate(hf_families.rows(transformers)):
            for dtype in types if "TEST_LONG" in os.environ else [types[number % 2]]:
                check(name, config, dtype, folder, f"{folder}/tokens.gyt", tokenizer)
        if hasattr(transformers, "GptOssConfig"):
            check_mxfp4(folder, f"{folder}/tokens.gyt")


main()
