# SPDX-License-Identifier: Apache-2.0
"""tests/model/hf_families.py: a small configuration of every family that Gyre shares with `transformers`, for
scripts that compare folders and generated text with it. A family of model/network/families.def that has an
.architecture, but no row here, fails these scripts.

build/venv has `transformers` 4.46, the last for Debian 12's PyTorch. `tools/run-tests` runs these scripts
once more, with NEWEST=1, in the environment of `make check-torch`, which has the newest: then with the
families that 4.46 lacks, and where TEST_LONG is set with all."""
import os
import re

NEW_ONLY = "NEWEST" in os.environ and "TEST_LONG" not in os.environ
SHAPE = {"vocab_size": 300, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
         "initializer_range": 0.3, "bos_token_id": 3, "eos_token_id": 5, "pad_token_id": 7}
BASE = {**SHAPE, "max_position_embeddings": 96}
LLAMA = {**BASE, "intermediate_size": 48, "num_key_value_heads": 2}
HEADS = {**LLAMA, "head_dim": 12}
TWO_OF_4 = {"num_local_experts": 4, "num_experts_per_tok": 2}
GEMMA = {**HEADS, "sliding_window": 20, "query_pre_attn_scalar": 10}
LATENT = {**LLAMA, "moe_intermediate_size": 16, "num_key_value_heads": 4, "kv_lora_rank": 8,
          "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8, "n_routed_experts": 8,
          "num_experts_per_tok": 3, "n_group": 4, "topk_group": 2, "first_k_dense_replace": 1}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 24}
YARN = {"rope_type": "yarn", "factor": 4.0, "beta_fast": 16.0}
LATENT_YARN = {"rope_type": "yarn", "factor": 4.0, "mscale": 1.0, "mscale_all_dim": 0.8,
               "original_max_position_embeddings": 24}

# model_type[, what is particular], class, the first release that has it if 4.46 lacks it, keys
ROWS = [
    ("gpt2", "GPT2Config", None, {**SHAPE, "n_positions": 96}),
    ("opt", "OPTConfig", None, {**BASE, "init_std": 0.3, "ffn_dim": 64, "word_embed_proj_dim": 32,
                                "dropout": 0.0}),
    ("bloom", "BloomConfig", None, SHAPE),
    ("gpt_neox", "GPTNeoXConfig", None, {**BASE, "intermediate_size": 64, "rotary_pct": 0.5}),
    ("llama", "LlamaConfig", None, {**LLAMA, "rope_theta": 50000.0}),
    ("llama, llama3", "LlamaConfig", None, {**LLAMA, "rope_scaling": LLAMA3}),
    ("llama, yarn", "LlamaConfig", None, {**LLAMA, "rope_scaling": YARN}),
    ("mistral", "MistralConfig", None, {**LLAMA, "sliding_window": 20}),
    ("mixtral", "MixtralConfig", None, {**LLAMA, **TWO_OF_4, "sliding_window": None}),
    ("qwen2", "Qwen2Config", None, {**LLAMA, "tie_word_embeddings": True}),
    ("qwen2, windows", "Qwen2Config", None, {**LLAMA, "use_sliding_window": True, "sliding_window": 20,
                                             "max_window_layers": 1}),
    ("qwen3", "Qwen3Config", "4.51", HEADS),
    ("qwen3_moe", "Qwen3MoeConfig", "4.51", {**HEADS, "num_experts": 4, "num_experts_per_tok": 2,
                                             "moe_intermediate_size": 24, "norm_topk_prob": True}),
    ("phi3", "Phi3Config", None, LLAMA),
    ("gemma", "GemmaConfig", None, HEADS),
    ("gemma2", "Gemma2Config", None, {**GEMMA, "attn_logit_softcapping": 5.0,
                                      "final_logit_softcapping": 8.0}),
    ("gemma3_text", "Gemma3TextConfig", "4.50", {**GEMMA, "sliding_window_pattern": 2}),
    ("glm", "GlmConfig", None, {**LLAMA, "head_dim": 8}),  # 4.46 can no other than hidden_size over heads
    ("glm4", "Glm4Config", "4.51", HEADS),
    ("gpt_oss", "GptOssConfig", "4.55", {**HEADS, **TWO_OF_4, "sliding_window": 20}),
    ("deepseek_v3", "DeepseekV3Config", "4.50", {**LATENT, "q_lora_rank": 12, "n_shared_experts": 1,
                                                 "num_nextn_predict_layers": 0, "rope_scaling": LATENT_YARN}),
    ("deepseek_v2", "DeepseekV2Config", "4.54", {**LATENT, "q_lora_rank": None, "n_shared_experts": 2,
                                                 "topk_method": "group_limited_greedy"}),
    ("smollm3", "SmolLM3Config", "4.53", {**LLAMA, "no_rope_layer_interval": 2}),
    ("olmo2", "Olmo2Config", "4.47", LLAMA),
]
NEW = {name.split(",")[0] for name, _, since, _ in ROWS if since}


def model_types(shared):
    """Those of families.def; shared: only those with an .architecture, which is a class of `transformers`."""
    with open("model/network/families.def", encoding="utf-8") as file:
        found = re.findall(r'^FAMILY\(\w+, "(\w+)"(.*?)\)$', file.read(), re.M | re.S)
    assert len(found) > 20, found
    return {name for name, row in found if not shared or ".architecture" in row}


def release(transformers):
    return tuple(int(part) for part in transformers.__version__.split(".")[:2])


def rows(transformers):
    """(name, configuration) of what this run compares. Prints what this `transformers` lacks."""
    transformers.logging.disable_progress_bar()
    forgotten = model_types(True) - {name.split(",")[0] for name, *_ in ROWS}
    assert not forgotten, f"tests/model/hf_families.py has no row for {', '.join(sorted(forgotten))}"
    lacking = [name for name, kind, *_ in ROWS if not hasattr(transformers, kind)]
    if lacking:
        print(f"not compared, since transformers {transformers.__version__} lacks it: {', '.join(lacking)}")
    for name, kind, since, keys in ROWS:
        if hasattr(transformers, kind) and (since or not NEW_ONLY):
            config = getattr(transformers, kind)(**keys)
            assert config.model_type == name.split(",")[0], name
            yield name, config


def model_of(transformers, config):
    """A model with random weights, also where `transformers` begins with 0 or 1, which hides mistakes."""
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    if hasattr(model, "set_experts_implementation"):  # of 5: the others have no double
        model.set_experts_implementation("eager")
    for value in model.state_dict().values():
        if value.is_floating_point() and value.dim() == 1:
            value += 0.1 * value.new_empty(value.shape).normal_()
    return model
