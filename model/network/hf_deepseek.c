/* SPDX-License-Identifier: Apache-2.0 */
/* model/network/hf_deepseek.c: keys that only DeepSeek-V2 and V3 have. */
#include "model/network/hf_deepseek.h"

#include <stdint.h>

#include "base/checked.h"
#include "model/network/hf_values.h"

/* A whole number: *out; absent: as it is. */
static gyre_status_t read_size(const json_t *object, const char *key, const char *where, size_t *out)
{
    const json_t *value = json_object_get(object, key);
    if (value && (!json_is_integer(value) || json_integer_value(value) < 0))
        return model_hf_bad_value(GYRE_ERR_FORMAT, where, key, value,
                                  "it must be a whole number, not below 0");
    *out = value ? (size_t)json_integer_value(value) : *out;
    return GYRE_OK;
}

/* How DeepSeek-V2 chooses: `greedy` looks at no groups. */
static gyre_status_t read_method(model_config_t *c, const json_t *object, const char *where)
{
    static const model_hf_word_t methods[] = {{"greedy", 0}, {"group_limited_greedy", 1}, {NULL, 0}};
    const json_t *value = json_object_get(object, "topk_method");
    int grouped = 0;
    gyre_status_t status = value ? model_hf_word(value, methods, where, "topk_method", &grouped) : GYRE_OK;
    if (!grouped)
        c->groups = c->top_groups = 1;
    return status;
}

gyre_status_t model_hf_check_shares(const model_config_t *c, int shares, const char *where)
{
    return shares && c->top_k < 2
               ? MODEL_HF_COMPLAIN(where, GYRE_ERR_UNSUPPORTED,
                                   "%s: num_experts_per_tok %zu: with norm_topk_prob Gyre has above 1 only",
                                   where, c->top_k)
               : GYRE_OK;
}

gyre_status_t model_hf_read_deepseek(model_config_t *c, const json_t *object, const char *where)
{
    size_t plain = 128, shared = c->router_sigmoid ? 1 : 2;
    int shares = 1;
    gyre_status_t status = read_size(object, "qk_nope_head_dim", where, &plain);
    if (status == GYRE_OK)
        status = read_size(object, "n_shared_experts", where, &shared);
    if (status == GYRE_OK)
        status = read_size(object, "intermediate_size", where, &c->dense_ffn);
    if (status == GYRE_OK && c->router_sigmoid)
        status = model_hf_flag(object, "norm_topk_prob", where, &shares);
    else if (status == GYRE_OK)
        status = read_method(c, object, where);
    if (status == GYRE_OK)
        status = model_hf_check_shares(c, c->router_sigmoid && shares, where);
    if (status == GYRE_OK && c->kv_latent == 0)
        status = MODEL_HF_COMPLAIN(where, GYRE_ERR_UNSUPPORTED,
                                   "%s: kv_lora_rank is 0: it is the width of the latents of keys and values",
                                   where);
    c->raw_weights = !c->router_sigmoid || !shares;
    c->head_dim = plain + c->rotary_dim;
    if (!base_mul(shared, c->ffn, &c->shared_ffn))
        c->shared_ffn = SIZE_MAX; /* model_config_check refuses it */
    if (json_is_null(json_object_get(object, "q_lora_rank")))
        c->q_latent = 0;
    c->capacity = (double)c->experts / (double)(c->top_k ? c->top_k : 1);
    return status;
}

int model_hf_write_deepseek(const model_config_t *c, json_t *object)
{
    const size_t shared = c->shared_ffn / c->ffn, plain = c->head_dim - c->rotary_dim;
    int bad = json_object_set_new(object, "qk_nope_head_dim", json_integer((json_int_t)plain));
    bad |= json_object_set_new(object, "n_shared_experts", json_integer((json_int_t)shared));
    if (c->dense_first > 0)
        bad |= json_object_set_new(object, "intermediate_size", json_integer((json_int_t)c->dense_ffn));
    if (c->q_latent == 0)
        bad |= json_object_set_new(object, "q_lora_rank", json_null());
    if (c->router_sigmoid) {
        bad |= json_object_set_new(object, "norm_topk_prob", json_boolean(!c->raw_weights));
        bad |= json_object_set_new(object, "num_nextn_predict_layers", json_integer(0));
    } else {
        const char *method = c->groups > 1 ? "group_limited_greedy" : "greedy";
        bad |= json_object_set_new(object, "topk_method", json_string(method));
    }
    return bad;
}
