/* SPDX-License-Identifier: Apache-2.0 */
/* model/network/hf_rope.c: the keys of rotary positions, as `transformers` 4 and 5 have them. */
#include "model/network/hf_rope.h"

#include <math.h>

const model_hf_word_t model_hf_rope_types[] = {{"default", MODEL_ROPE_PLAIN},   {"linear", MODEL_ROPE_LINEAR},
                                               {"dynamic", MODEL_ROPE_DYNAMIC}, {"llama3", MODEL_ROPE_LLAMA3},
                                               {"yarn", MODEL_ROPE_YARN},       {NULL, 0}};

/* ---- the share of a head ------------------------------------------------------------------------------- */

static gyre_status_t read_share(model_config_t *c, const json_t *object, const json_t *rope,
                                const char *where, double share)
{
    gyre_status_t status = model_hf_number(object, "rotary_pct", where, &share);
    if (status == GYRE_OK)
        status = model_hf_number(object, "rotary_percent", where, &share);
    if (status == GYRE_OK)
        status = model_hf_number(object, "partial_rotary_factor", where, &share);
    if (status == GYRE_OK)
        status = model_hf_number(rope, "partial_rotary_factor", where, &share);
    if (status == GYRE_OK && (share <= 0.0 || share > 1.0))
        status = MODEL_HF_COMPLAIN(where, GYRE_ERR_FORMAT,
                                   "%s: the share of a head that rotates is %g: it must lie above 0, up to 1",
                                   where, share);
    if (status != GYRE_OK || share == 1.0)
        return status;
    size_t head_dim = model_config_complete(c).head_dim;
    c->rotary_dim = (size_t)((double)head_dim * share);
    if (c->rotary_dim == 0 && head_dim > 0) /* 0 would mean: all of them */
        status = MODEL_HF_COMPLAIN(
            where, GYRE_ERR_FORMAT,
            "%s: the share of a head that rotates is %g, which leaves none of its %zu channels", where, share,
            head_dim);
    return status;
}

/* ---- scaled frequencies -------------------------------------------------------------------------------- */

static gyre_status_t read_original(model_rope_t *rope, const json_t *scaling, const char *where)
{
    static const char key[] = "original_max_position_embeddings";
    const json_t *value = json_object_get(scaling, key);
    if (!value || json_is_null(value))
        return GYRE_OK;
    if (!json_is_integer(value) || json_integer_value(value) < 1)
        return model_hf_bad_value(GYRE_ERR_FORMAT, where, key, value, "it must be a whole number above 0");
    rope->original = (size_t)json_integer_value(value);
    return GYRE_OK;
}

/* YaRN's weight of attention; DeepSeek's files say it by two weights of a logarithm. */
static gyre_status_t read_attention(model_rope_t *rope, const json_t *scaling, const char *where)
{
    double all = 0.0, some = 0.0;
    gyre_status_t status = model_hf_number(scaling, "mscale_all_dim", where, &all);
    if (status == GYRE_OK)
        status = model_hf_number(scaling, "mscale", where, &some);
    if (all > 0.0 && some > 0.0 && rope->factor > 1.0)
        rope->attention = (1.0 + 0.1 * some * log(rope->factor)) / (1.0 + 0.1 * all * log(rope->factor));
    return status == GYRE_OK ? model_hf_number(scaling, "attention_factor", where, &rope->attention) : status;
}

/* Absent keys: low and high are YaRN's own, `positions` are the model's. */
static gyre_status_t read_scaling(model_rope_t *rope, const json_t *scaling, const char *where,
                                  size_t positions)
{
    const int yarn = rope->type == MODEL_ROPE_YARN;
    rope->original = positions;
    rope->low = yarn ? 1.0 : 0.0;
    rope->high = yarn ? 32.0 : 0.0;
    gyre_status_t status = read_original(rope, scaling, where);
    if (yarn && rope->original > 0)
        rope->factor = (double)positions / (double)rope->original;
    if (status == GYRE_OK)
        status = model_hf_number(scaling, "factor", where, &rope->factor);
    if (status == GYRE_OK)
        status = model_hf_number(scaling, yarn ? "beta_slow" : "low_freq_factor", where, &rope->low);
    if (status == GYRE_OK)
        status = model_hf_number(scaling, yarn ? "beta_fast" : "high_freq_factor", where, &rope->high);
    int truncate = 1;
    if (status == GYRE_OK && yarn)
        status = model_hf_flag(scaling, "truncate", where, &truncate);
    rope->untruncated = !truncate;
    if (status == GYRE_OK && yarn)
        status = read_attention(rope, scaling, where);
    return status;
}

/* Parameters of layers with windows, in `transformers` 5. */
static gyre_status_t read_local(model_config_t *c, const json_t *parameters, const char *where)
{
    const json_t *local = json_object_get(parameters, "sliding_attention");
    if (c->local_theta == 0.0)
        return model_hf_bad_value(GYRE_ERR_UNSUPPORTED, where, "rope_parameters", parameters,
                                  "models of this type have the same for all layers only");
    gyre_status_t status = model_hf_only(local, "rope_type", where, "\"default\"");
    return status == GYRE_OK ? model_hf_number(local, "rope_theta", where, &c->local_theta) : status;
}

gyre_status_t model_hf_read_rope(model_config_t *c, const json_t *object, const char *where, double share)
{
    const json_t *parameters = json_object_get(object, "rope_parameters"),
                 *scaling = json_object_get(object, "rope_scaling"),
                 *full = json_object_get(parameters, "full_attention");
    gyre_status_t status = full ? read_local(c, parameters, where) : GYRE_OK;
    if (full)
        parameters = full;
    if (!scaling || json_is_null(scaling) || (json_is_object(scaling) && json_object_size(scaling) == 0))
        scaling = parameters;
    const json_t *type = json_object_get(scaling, "rope_type");
    int word = MODEL_ROPE_PLAIN;
    if (status == GYRE_OK)
        status = read_share(c, object, parameters, where, share);
    if (status == GYRE_OK && scaling && !json_is_null(scaling) && !json_is_object(scaling))
        status = model_hf_bad_value(GYRE_ERR_FORMAT, where, "rope_scaling", scaling, "it must be an object");
    if (status == GYRE_OK)
        status = model_hf_number(scaling, "rope_theta", where, &c->rope.theta);
    if (!type)
        type = json_object_get(scaling, "type");
    if (status == GYRE_OK && type)
        status = model_hf_word(type, model_hf_rope_types, where, "rope_type", &word);
    else if (status == GYRE_OK && json_object_size(scaling) > 0 && scaling != parameters)
        status = model_hf_bad_value(GYRE_ERR_FORMAT, where, "rope_scaling", scaling, "rope_type is missing");
    c->rope.type = (model_rope_type_t)word;
    if (status == GYRE_OK && word == MODEL_ROPE_YARN && c->kv_latent > 0)
        status = model_hf_number(scaling, "mscale_all_dim", where, &c->rope.scores);
    return status == GYRE_OK && word != MODEL_ROPE_PLAIN ? read_scaling(&c->rope, scaling, where, c->seq)
                                                         : status;
}

int model_hf_write_rope(const model_config_t *c, json_t *object)
{
    const model_rope_t *rope = &c->rope;
    if (c->pos != MODEL_POS_ROPE || rope->type == MODEL_ROPE_PLAIN)
        return 0;
    const char *type = model_hf_word_of(model_hf_rope_types, rope->type);
    json_t *scaling = json_pack("{s:s, s:f}", "rope_type", type, "factor", rope->factor);
    const int yarn = rope->type == MODEL_ROPE_YARN;
    int bad = !scaling;
    if (yarn || rope->type == MODEL_ROPE_LLAMA3) {
        bad |= json_object_set_new(scaling, yarn ? "beta_slow" : "low_freq_factor", json_real(rope->low));
        bad |= json_object_set_new(scaling, yarn ? "beta_fast" : "high_freq_factor", json_real(rope->high));
        bad |= json_object_set_new(scaling, "original_max_position_embeddings",
                                   json_integer((json_int_t)rope->original));
    }
    if (yarn)
        bad |= json_object_set_new(scaling, "attention_factor", json_real(rope->attention));
    if (yarn && rope->untruncated)
        bad |= json_object_set_new(scaling, "truncate", json_false());
    if (rope->scores > 0.0)
        bad |= json_object_set_new(scaling, "mscale_all_dim", json_real(rope->scores));
    return bad | json_object_set_new(object, "rope_scaling", scaling);
}

/* ---- layers without rotary positions ------------------------------------------------------------------- */

/* The first 0 of the list says which layers those are, all others whether that is so. */
gyre_status_t model_hf_read_nope(model_config_t *c, const json_t *object, const char *where)
{
    const json_t *list = json_object_get(object, "no_rope_layers"), *one;
    size_t l, first = json_array_size(list);
    if (!list || json_is_null(list))
        return GYRE_OK;
    if (!json_is_array(list) || json_array_size(list) != c->layers)
        return model_hf_bad_value(GYRE_ERR_FORMAT, where, "no_rope_layers", list,
                                  "it must be a list of as many as there are layers");
    json_array_foreach(list, l, one)
    {
        if (l < first && json_is_integer(one) && json_integer_value(one) == 0)
            first = l;
    }
    c->nope_every = first < json_array_size(list) ? first + 1 : 0;
    json_array_foreach(list, l, one)
    {
        if (!json_is_integer(one) || json_integer_value(one) != model_config_turns(c, l))
            return model_hf_bad_value(
                GYRE_ERR_UNSUPPORTED, where, "no_rope_layers", list,
                "Gyre has lists of 1 (rotary positions) in which each n-th is 0 (none) only");
    }
    return GYRE_OK;
}

int model_hf_write_nope(const model_config_t *c, json_t *object)
{
    json_t *list = json_array();
    int bad = !list;
    for (size_t l = 0; !bad && l < c->layers; l++)
        bad = json_array_append_new(list, json_integer(model_config_turns(c, l)));
    return json_object_set_new(object, "no_rope_layers", list) | bad;
}
