/* SPDX-License-Identifier: Apache-2.0 */
/* model/network/hf_config.h: Hugging Face's config.json -> model_config_t, and back.
 *
 * "model_type" names the family; each family is a block of options with the names that its own files use:
 *
 *     gpt2, gpt_neox, opt, bloom, llama, mistral, mixtral     as `transformers` has them
 *     qwen2, qwen3, qwen3_moe, phi3, gemma, olmo2, gemma2,
 *     gemma3_text, glm4, glm with rms_norm_eps, gpt_oss,
 *     deepseek_v2, deepseek_v3, smollm3                       the same
 *     glm            GLM-130B (Zeng et al. 2023): RoPE, DeepNorm, GeGLU, prefix mask; keys as of llama, and
 *                    hidden_act "gelu" or "geglu", layer_norm_eps. The GLM-4 that `transformers` calls "glm"
 *                    is another model: a file with rms_norm_eps.
 *     codegeex       CodeGeeX (Zheng et al. 2023); keys as of gpt2; n_layer counts the top query layer
 *     megatron_gpt   MT-NLG and other models of Megatron-LM; keys as of gpt2, or Megatron's own: num_layers,
 *                    hidden_size, num_attention_heads, ffn_hidden_size, kv_channels, num_query_groups,
 *                    max_position_embeddings, position_embedding_type (learned_absolute, rope, alibi, none),
 *                    rotary_percent, rotary_base, rotary_interleaved, normalization (LayerNorm, RMSNorm),
 *                    swiglu, add_bias_linear, untie_embeddings_and_output_weights, num_experts,
 *                    moe_router_topk, moe_aux_loss_coeff, moe_z_loss_coeff,
 *                    moe_expert_capacity_factor
 *     gyre           any combination: keys are the fields of model_config_t
 *
 * A key may have any of the names that these families have for the same thing (hidden_size is n_embd), since
 * `transformers` accepts them, too. A further object "gyre" sets any field of model_config_t by its own name
 * and wins: {"model_type": "llama", ..., "gyre": {"leaves": 2, "capacity": 1.5}}; `transformers` ignores it.
 * A key that changes what the model computes must have a value that Gyre supports, or it is an error. Keys
 * that change nothing (token ids, dtype, versions) are ignored. A key that is absent has the default of
 * `transformers`, except dropout, whose default here is 0. */
#ifndef MODEL_NETWORK_HF_CONFIG_H
#define MODEL_NETWORK_HF_CONFIG_H

#include <jansson.h>

#include "model/network/config.h"

/* A family of architectures: what its files can express. */
typedef enum {
#define FAMILY(id, type, names, ...) MODEL_FAMILY_##id,
#include "model/network/families.def"
#undef FAMILY
    MODEL_FAMILIES
} model_family_t;

/* Its "model_type". Static storage. */
const char *model_family_name(model_family_t family);
/* The first family, in the order above, whose files can express `config`. If several can (a GPT-2 without
 * biases has no other name than "gyre"), the choice depends on `config` alone. NO_MEMORY. */
gyre_status_t model_config_family(const model_config_t *config, model_family_t *family);

/* `object`: the content of config.json; `where` names it in errors. seq: the tokens of a sequence, at most
 * the model's positions; 0: as many as those. *out is complete, has passed model_config_check and has that
 * `seq`. `leaves` == 0 becomes the largest of 4, 2, 1 that divides heads, kv_heads and ffn or experts.
 *  - UNSUPPORTED: a model_type or a value that Gyre lacks (the text names key, value and the supported ones)
 *  - FORMAT: a value of another type, a key that is missing or contradicts another
 *  - INVALID: model_config_check; fewer positions than `seq` */
gyre_status_t model_config_from_json(const json_t *object, const char *where, size_t seq,
                                     model_config_t *out);
/* Makes config.json of model_config_family(config), with "architectures" if `transformers` has a class: a new
 * reference. Reading it gives the same configuration (completed). NO_MEMORY. */
gyre_status_t model_config_to_json(const model_config_t *config, json_t **out);
/* Of all that model_config_to_json writes: configurations that differ in it have different ones.
 * NO_MEMORY. */
gyre_status_t model_config_hash(const model_config_t *config, uint64_t *out);

/* The largest of 4, 2, 1 that divides what leaves must divide. */
size_t model_config_leaves(const model_config_t *config);

#endif
