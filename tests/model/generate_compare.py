#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The likeliest text of gyre-generate is that of `transformers`, in double precision, for 64 tokens after each of some prompts;
each log-probability is within 1e-5 of it, 1e-4 where rotary angles are scaled: `transformers` computes those in float. On one rank and on two."""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
try:
    import small_bpe
    import torch
    import transformers
except ImportError as missing:
    print(f"skipped: {missing.name} is not installed (tools/setup references)")
    sys.exit(77)

BUILD = os.environ.get("B", "build")
TOKENS = 64
PROMPTS = ["Gyre is a", "the quick brown fox", "collectives"]
SIZES = {"vocab_size": 300, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "initializer_range": 0.3}
MODELS = {
    "gpt2": transformers.GPT2Config(vocab_size=300, n_embd=32, n_layer=2, n_head=4, n_positions=96, initializer_range=0.3),
    "opt": transformers.OPTConfig(**{k: v for k, v in SIZES.items() if k != "initializer_range"}, ffn_dim=64, init_std=0.3,
                                  max_position_embeddings=96, word_embed_proj_dim=32),
    "llama": transformers.LlamaConfig(**SIZES, intermediate_size=48, num_key_value_heads=2, max_position_embeddings=96),
    "llama 3": transformers.LlamaConfig(**SIZES, intermediate_size=48, num_key_value_heads=2, max_position_embeddings=96,
                                        rope_scaling={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                                                      "high_freq_factor": 4.0, "original_max_position_embeddings": 24}),
    "mistral": transformers.MistralConfig(**SIZES, intermediate_size=48, num_key_value_heads=2, max_position_embeddings=96,
                                          sliding_window=20, attn_implementation="eager"),
    "qwen2": transformers.Qwen2Config(**SIZES, intermediate_size=48, num_key_value_heads=2, max_position_embeddings=96,
                                      tie_word_embeddings=True),
    "phi3": transformers.Phi3Config(**SIZES, intermediate_size=48, num_key_value_heads=2, max_position_embeddings=96,
                                    pad_token_id=0, attn_implementation="eager"),
    "gemma": transformers.GemmaConfig(**SIZES, intermediate_size=48, num_key_value_heads=2, head_dim=12,
                                      max_position_embeddings=96),
    "gemma2": transformers.Gemma2Config(**SIZES, intermediate_size=48, num_key_value_heads=2, head_dim=12, sliding_window=20,
                                        query_pre_attn_scalar=10, attn_logit_softcapping=5.0, final_logit_softcapping=8.0,
                                        max_position_embeddings=96, attn_implementation="eager"),
    "gpt_neox": transformers.GPTNeoXConfig(**SIZES, intermediate_size=64, rotary_pct=0.5, max_position_embeddings=96),
}
if hasattr(transformers, "Qwen3Config"): # of 4.51
    MODELS["qwen3"] = transformers.Qwen3Config(**SIZES, intermediate_size=48, num_key_value_heads=2, head_dim=12,
                                               max_position_embeddings=96)
if hasattr(transformers, "Gemma3TextConfig"): # of 4.50
    MODELS["gemma3"] = transformers.Gemma3TextConfig(**SIZES, intermediate_size=48, num_key_value_heads=2, head_dim=12,
                                                     sliding_window=20, sliding_window_pattern=2, query_pre_attn_scalar=10,
                                                     max_position_embeddings=96, attn_implementation="eager")
if hasattr(transformers, "Glm4Config"): # of 4.51
    MODELS["glm4"] = transformers.Glm4Config(**SIZES, intermediate_size=48, num_key_value_heads=2, head_dim=12, pad_token_id=0,
                                             eos_token_id=0, max_position_embeddings=96)
if hasattr(transformers, "GptOssConfig"): # of 4.55
    MODELS["gpt_oss"] = transformers.GptOssConfig(**SIZES, intermediate_size=48, num_key_value_heads=2, head_dim=12,
                                                  num_local_experts=4, num_experts_per_tok=2, sliding_window=20,
                                                  max_position_embeddings=96, attn_implementation="eager",
                                                  experts_implementation="eager") # others have no double
if hasattr(transformers, "SmolLM3Config"): # of 4.53
    MODELS["smollm3"] = transformers.SmolLM3Config(**SIZES, intermediate_size=48, num_key_value_heads=2, no_rope_layer_interval=2,
                                                   max_position_embeddings=96, pad_token_id=0, bos_token_id=0, eos_token_id=0)
if hasattr(transformers, "Olmo2Config"): # of 4.47
    MODELS["olmo2"] = transformers.Olmo2Config(**SIZES, intermediate_size=48, num_key_value_heads=2, max_position_embeddings=96,
                                               pad_token_id=0, eos_token_id=0)
LATENT = {"intermediate_size": 48, "moe_intermediate_size": 16, "num_key_value_heads": 4, "kv_lora_rank": 8, "qk_nope_head_dim": 8,
          "qk_rope_head_dim": 4, "v_head_dim": 8, "n_routed_experts": 8, "num_experts_per_tok": 3, "n_group": 4, "topk_group": 2,
          "first_k_dense_replace": 1, "max_position_embeddings": 96, "pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0}
if hasattr(transformers, "DeepseekV3Config"): # of 4.50
    MODELS["deepseek_v3"] = transformers.DeepseekV3Config(
        **SIZES, **LATENT, q_lora_rank=12, n_shared_experts=1, rope_scaling={
            "rope_type": "yarn", "factor": 4.0, "mscale": 1.0, "mscale_all_dim": 0.8, "original_max_position_embeddings": 24})
if hasattr(transformers, "DeepseekV2Config"): # of 4.54
    MODELS["deepseek_v2"] = transformers.DeepseekV2Config(**SIZES, **LATENT, q_lora_rank=None, n_shared_experts=2,
                                                          topk_method="group_limited_greedy")


def expect(model, prompt):
    """The likeliest tokens after the ids `prompt`, and their log-probabilities."""
    ids, logs = list(prompt), []
    with torch.no_grad():
        for _ in range(TOKENS):
            all_logs = torch.log_softmax(model(torch.tensor([ids]), use_cache=False).logits[0, -1], -1)
            ids.append(int(all_logs.argmax()))
            logs.append(all_logs[ids[-1]].item())
    return ids[len(prompt):], logs


def gyre(folder, ranks, log):
    launch = [f"{BUILD}/bin/ucx-run", "-n", str(ranks)] if ranks > 1 else []
    done = subprocess.run([*launch, f"{BUILD}/bin/gyre-generate", "--load", folder, "--lines", "--temperature", "0", "--tokens",
                           str(TOKENS), "--ignore-eot", "--quiet", "--logprobs", log], input="\n".join(PROMPTS) + "\n",
                          capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    said = [[] for _ in PROMPTS]
    with open(log, encoding="utf-8") as lines:
        for line in map(json.loads, lines):
            said[line["prompt"]].append((line["token"], line["logprob"]))
    return said


def main():
    with open("tests/support/english.txt", encoding="utf-8") as readme:
        tokenizer = small_bpe.train(readme.read())
    with tempfile.TemporaryDirectory() as top:
        for name, config in MODELS.items():
            folder = f"{top}/{name}"
            torch.set_default_dtype(torch.float32)
            torch.manual_seed(1)
            model = transformers.AutoModelForCausalLM.from_config(config).eval()
            if hasattr(model, "set_experts_implementation"): # of 5: others have no double
                model.set_experts_implementation("eager")
            for key, bias in model.state_dict().items(): # 0 at first, which would hide mistakes
                if "e_score_correction_bias" in key:
                    bias.normal_(std=0.1)
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
            torch.set_default_dtype(torch.float64)
            model = model.double()
            expected = [expect(model, tokenizer(prompt)["input_ids"]) for prompt in PROMPTS]
            for ranks in (1, 2):
                for prompt, (tokens, logs), said in zip(PROMPTS, expected, gyre(folder, ranks, f"{top}/log")):
                    assert [token for token, _ in said] == tokens, f"{name} after '{prompt}': {said}, but {tokens}"
                    worst = max(abs(value - log) for (_, value), log in zip(said, logs))
                    assert worst < (1e-4 if name in ("llama 3", "gpt_oss", "deepseek_v3") else 1e-5), f"{name} after '{prompt}': a log-probability is off by {worst}"
            print(f"{name}: {len(PROMPTS)} times {TOKENS} tokens, those of transformers {transformers.__version__}")


main()
