/* SPDX-License-Identifier: Apache-2.0 */
/* model/network/hf_config.c: one table of keys, one entry per family; both directions read them. */
#include "model/network/hf_config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/text/json.h"
#include "model/network/hf_deepseek.h"
#include "model/network/hf_rope.h"
#include "model/network/hf_values.h"
#include "model/network/hf_window.h"

#include "model/network/hf_config_tables.inc"

const char *model_family_name(model_family_t family)
{
    return (unsigned)family < MODEL_FAMILIES ? families[family].name : "unknown";
}

static const field_t *find_field(const char *name)
{
    for (size_t i = 0; i < FIELDS; i++)
        if (strcmp(fields[i].name, name) == 0)
            return &fields[i];
    return NULL;
}

static const key_t_ *find_key(const char *name)
{
    for (size_t i = 0; i < KEYS; i++)
        if (strcmp(keys[i].key, name) == 0)
            return &keys[i];
    return NULL;
}

/* 1 if a file of the family may set `field`. All families share the names of `keys`, but a field without a
 * key of the family's own has no choice there. */
static int family_has(const family_t *family, const char *field)
{
    for (size_t i = 0; i < sizeof family->writes / sizeof family->writes[0] && family->writes[i]; i++)
        if (strcmp(find_key(family->writes[i])->field, field) == 0)
            return 1;
    return 0;
}

static const model_hf_word_t *words_of(type_t type)
{
    return type == POS ? positions : type == NORM ? norms : type == ACT ? activations : model_hf_rope_types;
}

/* ---- reading ------------------------------------------------------------------------------------------- */

static gyre_status_t read_field(model_config_t *c, const field_t *field, const json_t *value,
                                const char *where, const char *key, int inverse)
{
    void *at = (char *)c + field->at;
    int word = 0;
    gyre_status_t status = GYRE_OK;
    switch (field->type) {
    case SIZE:
        if (!json_is_integer(value) || json_integer_value(value) < 0)
            return model_hf_bad_value(GYRE_ERR_FORMAT, where, key, value,
                                      "it must be a whole number, not below 0");
        *(size_t *)at = (size_t)json_integer_value(value);
        return GYRE_OK;
    case REAL_:
        if (!json_is_number(value) || json_number_value(value) < 0.0)
            return model_hf_bad_value(GYRE_ERR_FORMAT, where, key, value, "it must be a number, not below 0");
        *(double *)at = json_number_value(value);
        return GYRE_OK;
    case FLAG:
        if (!json_is_boolean(value))
            return model_hf_bad_value(GYRE_ERR_FORMAT, where, key, value, "it must be true or false");
        *(int *)at = json_is_true(value) != inverse;
        return GYRE_OK;
    default: /* enumerations are ints */
        status = model_hf_word(value, words_of(field->type), where, key, &word);
        if (status == GYRE_OK)
            memcpy(at, &word, sizeof word);
        return status;
    }
}

static int same_field(const field_t *field, const model_config_t *a, const model_config_t *b)
{
    const void *x = (const char *)a + field->at, *y = (const char *)b + field->at;
    switch (field->type) {
    case SIZE:
        return *(const size_t *)x == *(const size_t *)y;
    case REAL_:
        return *(const double *)x == *(const double *)y;
    default: /* enumerations and flags are ints */
        return memcmp(x, y, sizeof(int)) == 0;
    }
}

/* A value that only one or the other of two keys can mean. */
typedef struct {
    const char *key[FIELDS]; /* which key set a field */
} seen_t;

static gyre_status_t read_key(model_config_t *c, const family_t *family, const key_t_ *key,
                              const json_t *value, const char *where, seen_t *seen)
{
    const field_t *field = find_field(key->field);
    size_t f = (size_t)(field - fields);
    if (json_is_null(value) && field->type == FLAG) /* as in Python */
        value = json_false();
    if (json_is_null(value)) /* "as it is by default": n_inner, num_key_value_heads, head_dim */
        return GYRE_OK;
    model_config_t read = *c;
    gyre_status_t status = read_field(&read, field, value, where, key->key, key->inverse);
    if (status != GYRE_OK)
        return status;
    if (!family_has(family, key->field) && !field->free && !same_field(field, &read, c)) {
        char what[120];
        snprintf(what, sizeof what,
                 "models of type %s are not so; for any combination take model_type \"gyre\"", family->name);
        return model_hf_bad_value(GYRE_ERR_UNSUPPORTED, where, key->key, value, what);
    }
    if (seen->key[f] && !same_field(field, &read, c)) {
        char what[120];
        snprintf(what, sizeof what, "%s says otherwise", seen->key[f]);
        return model_hf_bad_value(GYRE_ERR_FORMAT, where, key->key, value, what);
    }
    seen->key[f] = key->key;
    *c = read;
    return GYRE_OK;
}

/* Dropout: of the embedding and both residual branches, one probability. */
static gyre_status_t read_dropout(model_config_t *c, const json_t *object, const char *where)
{
    static const char *const names[] = {"resid_pdrop", "embd_pdrop", "hidden_dropout", "dropout"};
    const char *first = NULL;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const json_t *value = json_object_get(object, names[i]);
        double p = c->dropout;
        gyre_status_t status = model_hf_number(object, names[i], where, &p);
        if (status != GYRE_OK)
            return status;
        if (value && first && p != c->dropout) {
            char what[120];
            snprintf(what, sizeof what, "%s is %g; Gyre has one dropout for embeddings and residual branches",
                     first, c->dropout);
            return model_hf_bad_value(GYRE_ERR_UNSUPPORTED, where, names[i], value, what);
        }
        if (value && !json_is_null(value)) {
            c->dropout = p;
            first = names[i];
        }
    }
    return GYRE_OK;
}

/* ---- what only some families have ---------------------------------------------------------------------- */

static gyre_status_t read_opt(model_config_t *c, const json_t *object, const char *where)
{
    const json_t *value = json_object_get(object, "word_embed_proj_dim");
    if (!value || json_is_null(value) || json_integer_value(value) == (json_int_t)c->hidden)
        return GYRE_OK;
    return model_hf_bad_value(GYRE_ERR_UNSUPPORTED, where, "word_embed_proj_dim", value,
                              "Gyre has embeddings as wide as hidden_size only");
}

/* Without the keys, transformers takes the last id of GPT-2's own vocabulary to begin and end texts: a
 * smaller one, such as that of bytes, does not have it. */
static int write_gpt2(const model_config_t *c, json_t *object)
{
    enum { GPT2_VOCABULARY = 50257 };
    return c->vocab < GPT2_VOCABULARY && (json_object_set_new(object, "bos_token_id", json_null()) != 0 ||
                                          json_object_set_new(object, "eos_token_id", json_null()) != 0);
}

static int write_opt(const model_config_t *c, json_t *object)
{
    return json_object_set_new(object, "word_embed_proj_dim", json_integer((json_int_t)c->hidden));
}

static gyre_status_t read_attention_bias(model_config_t *c, const json_t *object, const char *where)
{
    int bias = !c->no_qkv_bias;
    gyre_status_t status = model_hf_flag(object, "attention_bias", where, &bias);
    c->no_qkv_bias = c->no_proj_bias = !bias;
    return status;
}

static int write_attention_bias(const model_config_t *c, json_t *object)
{
    return json_object_set_new(object, "attention_bias", json_boolean(!c->no_qkv_bias));
}

/* A share whose product with the head is not below the channels: readers, transformers among them, cut its
 * decimals off. */
static int write_share(const model_config_t *c, const char *key, json_t *object)
{
    const double channels = (double)c->rotary_dim, head = (double)c->head_dim, share = channels / head;
    return json_object_set_new(object, key,
                               json_real(share * head < channels ? nextafter(share, 1.0) : share));
}

static int write_gpt_neox(const model_config_t *c, json_t *object)
{
    return write_share(c, "rotary_pct", object) | write_attention_bias(c, object);
}

static gyre_status_t read_megatron(model_config_t *c, const json_t *object, const char *where)
{
    int all = !c->no_mlp_bias;
    gyre_status_t status = GYRE_OK;
    if (json_object_get(object, "add_bias_linear")) {
        status = model_hf_flag(object, "add_bias_linear", where, &all);
        c->no_qkv_bias = c->no_proj_bias = c->no_mlp_bias = !all;
    }
    if (c->gated)
        c->act = MODEL_ACT_SILU;
    return status;
}

static int write_megatron(const model_config_t *c, json_t *object)
{
    return write_share(c, "rotary_percent", object) |
           json_object_set_new(object, "add_bias_linear", json_boolean(!c->no_mlp_bias));
}

/* "geglu" is gelu with a gate, which GLM has by itself. */
static int skips_glm(const json_t *object, const key_t_ *key)
{
    const char *act = json_string_value(json_object_get(object, key->key));
    return strcmp(key->field, "act") == 0 && act && strcmp(act, "geglu") == 0;
}

static gyre_status_t read_glm(model_config_t *c, const json_t *object, const char *where)
{
    (void)object, (void)where;
    c->deepnorm = sqrt(2.0 * (double)c->layers);
    return GYRE_OK;
}

static gyre_status_t read_smollm3(model_config_t *c, const json_t *object, const char *where)
{
    gyre_status_t status = model_hf_read_nope(c, object, where);
    if (json_is_null(json_object_get(object, "num_key_value_heads")))
        c->kv_heads = 0;
    return status == GYRE_OK ? read_attention_bias(c, object, where) : status;
}

static int write_smollm3(const model_config_t *c, json_t *object)
{
    return model_hf_write_nope(c, object) | write_attention_bias(c, object) |
           json_object_set_new(object, "use_sliding_window", json_false()) |
           json_object_set_new(object, "pad_token_id", json_null());
}

#include "model/network/hf_config_experts.inc"

/* intermediate_size is of the layers without experts; head_dim is said by its two parts. */
static int skips_deepseek(const json_t *object, const key_t_ *key)
{
    return skips_mixtral(object, key) || strcmp(key->key, "intermediate_size") == 0 ||
           strcmp(key->key, "head_dim") == 0;
}

/* hidden_activation counts. The first files, without it, say "gelu" and mean the tanh form. */
static int skips_gemma(const json_t *object, const key_t_ *key)
{
    const char *act = json_string_value(json_object_get(object, "hidden_act"));
    const json_t *counts = json_object_get(object, "hidden_activation");
    return strcmp(key->key, "hidden_act") == 0 &&
           ((counts && !json_is_null(counts)) || (act && strcmp(act, "gelu") == 0));
}

/* Biases of q, k and v only. */
static gyre_status_t read_glm4(model_config_t *c, const json_t *object, const char *where)
{
    int bias = !c->no_qkv_bias;
    gyre_status_t status = model_hf_flag(object, "attention_bias", where, &bias);
    c->no_qkv_bias = !bias;
    return status;
}

/* A cap that is null is none. */
static gyre_status_t read_gemma2(model_config_t *c, const json_t *object, const char *where)
{
    if (json_is_null(json_object_get(object, "attn_logit_softcapping")))
        c->attn_cap = 0.0;
    if (json_is_null(json_object_get(object, "final_logit_softcapping")))
        c->logit_cap = 0.0;
    return read_attention_bias(c, object, where);
}

/* To transformers the scale is a whole number. */
static int write_gemma2(const model_config_t *c, json_t *object)
{
    int bad = write_attention_bias(c, object);
    if (c->attn_cap == 0.0)
        bad |= json_object_set_new(object, "attn_logit_softcapping", json_null());
    if (c->logit_cap == 0.0)
        bad |= json_object_set_new(object, "final_logit_softcapping", json_null());
    const double scale = model_config_query_scale(c);
    if (scale == floor(scale) && scale < 1e9)
        bad |= json_object_set_new(object, "query_pre_attn_scalar", json_integer((json_int_t)scale));
    return bad;
}

/* Layers with windows by number, too: `transformers` before 4.53 reads only that. */
static int write_gemma3(const model_config_t *c, json_t *object)
{
    const size_t pattern = c->window == 0 ? 1 : c->window_every > 0 ? c->window_every : c->layers + 1;
    int bad = json_object_set_new(object, "sliding_window_pattern", json_integer((json_int_t)pattern));
    return bad | write_gemma2(c, object) | json_object_set_new(object, "attn_logit_softcapping", json_null());
}

/* Without the key, transformers takes a token for padding that a smaller vocabulary does not have. */
static int write_phi3(const model_config_t *c, json_t *object)
{
    int bad = json_object_set_new(object, "pad_token_id", json_null());
    return bad | write_share(c, "partial_rotary_factor", object);
}

static int write_glm4(const model_config_t *c, json_t *object)
{
    return write_phi3(c, object) | write_attention_bias(c, object);
}

/* ---- a whole file -------------------------------------------------------------------------------------- */

/* {"hidden": 64, ...}: fields by their own names. */
static gyre_status_t read_own(model_config_t *c, const json_t *object, const char *where, int whole)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        const field_t *field = find_field(key);
        static const char *const others[] = {"model_type", "gyre", "torch_dtype", "dtype", "architectures"};
        int known = 0;
        for (size_t i = 0; whole && i < sizeof others / sizeof others[0]; i++)
            known |= strcmp(key, others[i]) == 0;
        if (known)
            continue;
        if (!field)
            return MODEL_HF_COMPLAIN(
                where, GYRE_ERR_FORMAT,
                "%s: %s is no field of Gyre's configuration (model/network/config.h lists them)", where, key);
        gyre_status_t status = read_field(c, field, value, where, key, 0);
        if (status != GYRE_OK)
            return status;
    }
    return GYRE_OK;
}

static gyre_status_t read_family(model_config_t *c, model_family_t kind, const json_t *object,
                                 const char *where)
{
    const family_t *family = &families[kind];
    gyre_status_t status = GYRE_OK;
    seen_t seen = {{NULL}};
    *c = family->base;
    if (family->own)
        return read_own(c, object, where, 1);
    for (size_t i = 0; status == GYRE_OK && i < KEYS; i++) {
        const json_t *value = json_object_get(object, keys[i].key);
        if (!value || (family->skips && family->skips(object, &keys[i])))
            continue;
        status = read_key(c, family, &keys[i], value, where, &seen);
    }
    for (size_t i = 0;
         status == GYRE_OK && i < sizeof family->only / sizeof family->only[0] && family->only[i].key; i++)
        status = model_hf_only(object, family->only[i].key, where, family->only[i].value);
    if (status == GYRE_OK && c->pos == MODEL_POS_ROPE && c->heads > 0)
        status =
            model_hf_read_rope(c, object, where, family->rotary_share > 0.0 ? family->rotary_share : 1.0);
    if (status == GYRE_OK)
        status = model_hf_read_window(c, object, where, family->windows, family->name);
    if (status == GYRE_OK)
        status = read_dropout(c, object, where);
    return status == GYRE_OK && family->read ? family->read(c, object, where) : status;
}

static gyre_status_t find_family(const json_t *object, const char *where, model_family_t *out)
{
    const char *type = json_string_value(json_object_get(object, "model_type"));
    char known[400] = "";
    if (!json_is_object(object))
        return MODEL_HF_COMPLAIN(where, GYRE_ERR_FORMAT, "%s: a model's configuration is a JSON object",
                                 where);
    for (int f = 0; f < MODEL_FAMILIES; f++) {
        const char *other = families[f].not_with;
        if (other && json_object_get(object, other))
            continue;
        if (type && strcmp(type, families[f].name) == 0) {
            *out = (model_family_t)f;
            return GYRE_OK;
        }
        size_t n = strlen(known);
        if (!other) /* else a later family has the name, too */
            snprintf(known + n, sizeof known - n, "%s%s", n ? ", " : "", families[f].name);
    }
    if (!type)
        return MODEL_HF_COMPLAIN(where, GYRE_ERR_FORMAT, "%s: model_type is missing: it is one of %s", where,
                                 known);
    if (json_object_get(object, "text_config"))
        return MODEL_HF_COMPLAIN(
            where, GYRE_ERR_UNSUPPORTED,
            "%s: model_type is \"%.40s\", with text_config: Gyre has text models only. Save "
            "its text model to a folder of its own (docs/models.md, Models of more than text)",
            where, type);
    return MODEL_HF_COMPLAIN(where, GYRE_ERR_UNSUPPORTED, "%s: model_type is \"%.40s\": supported are %s",
                             where, type, known);
}

size_t model_config_leaves(const model_config_t *config)
{
    const model_config_t c = model_config_complete(config);
    size_t cut = c.experts ? c.experts : c.ffn;
    for (size_t leaves = 4; leaves > 1; leaves /= 2)
        if (c.heads % leaves == 0 && c.kv_heads % leaves == 0 && cut % leaves == 0 &&
            c.dense_ffn % leaves == 0 && c.shared_ffn % leaves == 0)
            return leaves;
    return 1;
}

gyre_status_t model_config_from_json(const json_t *object, const char *where, size_t seq, model_config_t *out)
{
    model_family_t family = MODEL_FAMILY_GYRE;
    model_config_t c = {0};
    gyre_status_t status = find_family(object, where, &family);
    if (status == GYRE_OK)
        status = read_family(&c, family, object, where);
    const json_t *own = json_object_get(object, "gyre");
    if (status == GYRE_OK && own && !json_is_object(own))
        status = MODEL_HF_COMPLAIN(where, GYRE_ERR_FORMAT, "%s: gyre must be an object", where);
    if (status == GYRE_OK && own)
        status = read_own(&c, own, where, 0);
    if (status == GYRE_OK && c.leaves == 0)
        c.leaves = model_config_leaves(&c);
    if (status == GYRE_OK && seq > c.seq)
        status =
            MODEL_HF_COMPLAIN(where, GYRE_ERR_INVALID, "--seq %zu: %s has %zu positions", seq, where, c.seq);
    if (status == GYRE_OK && seq > 0)
        c.seq = seq;
    status = status == GYRE_OK ? model_config_check_of(&c, where) : status;
    if (status == GYRE_OK)
        *out = model_config_complete(&c);
    return status;
}

/* ---- writing ------------------------------------------------------------------------------------------- */

static json_t *field_json(const model_config_t *c, const field_t *field, int inverse)
{
    const void *at = (const char *)c + field->at;
    const char *word;
    int value = 0;
    switch (field->type) {
    case SIZE:
        return json_integer((json_int_t) * (const size_t *)at);
    case REAL_:
        return json_real(*(const double *)at);
    case FLAG:
        return json_boolean(*(const int *)at != inverse);
    default:
        memcpy(&value, at, sizeof value);
        word = model_hf_word_of(words_of(field->type), value);
        return word ? json_string(word) : NULL;
    }
}

/* The keys that `transformers` has for the family, with their values; NULL: no memory. */
static json_t *family_json(model_family_t kind, const model_config_t *c)
{
    const family_t *family = &families[kind];
    json_t *object = json_pack("{s:s}", "model_type", family->name);
    int bad = !object;
    if (family->architecture)
        bad |= json_object_set_new(object, "architectures", json_pack("[s]", family->architecture));
    for (size_t i = 0; i < sizeof family->writes / sizeof family->writes[0] && family->writes[i]; i++) {
        const key_t_ *key = find_key(family->writes[i]);
        bad |= json_object_set_new(object, key->key, field_json(c, find_field(key->field), key->inverse));
    }
    if (!family->own) /* those are keys of others: its own fields say all */
        bad |= model_hf_write_rope(c, object) | model_hf_write_window(c, object, family->windows);
    if (family->write)
        bad |= family->write(c, object);
    for (int i = 0; i < 3; i++)
        if (family->dropouts[i])
            bad |= json_object_set_new(object, family->dropouts[i],
                                       json_real(i == 2 ? c->attn_dropout : c->dropout));
    if (bad) {
        json_decref(object);
        return NULL;
    }
    return object;
}

/* Reads `object` back; not OK: it is not a valid configuration, or NO_MEMORY. */
static gyre_status_t read_back(model_family_t family, const json_t *object, model_config_t *out)
{
    gyre_status_t status = read_family(out, family, object, model_hf_unheard);
    *out = model_config_complete(out);
    return status;
}

/* *can 1: the family's own keys express all fields of `c` that files of weights depend on. */
static gyre_status_t can_say(model_family_t family, const model_config_t *c, int *can)
{
    model_config_t back = {0};
    json_t *object = family_json(family, c);
    gyre_status_t status = object ? read_back(family, object, &back) : GYRE_ERR_NO_MEMORY;
    json_decref(object);
    if (status == GYRE_ERR_NO_MEMORY)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to compare a model with those of type %s",
                         families[family].name);
    *can = status == GYRE_OK;
    for (size_t i = 0; *can && i < FIELDS; i++)
        *can = fields[i].free || same_field(&fields[i], c, &back);
    return GYRE_OK;
}

/* Gives fields that mean nothing without others their defaults, so they make no difference. */
static model_config_t plain(const model_config_t *config)
{
    model_config_t c = *config;
    if (c.pos != MODEL_POS_ROPE) {
        c.rotary_dim = 0;
        c.rope_interleaved = 0;
        c.rope = (model_rope_t){0};
        c.nope_every = 0;
    }
    if (!c.experts)
        c.top_k = 0;
    if (!c.post_norm)
        c.deepnorm = 0.0;
    return model_config_complete(&c);
}

gyre_status_t model_config_family(const model_config_t *config, model_family_t *family)
{
    const model_config_t c = plain(config);
    gyre_status_t status = GYRE_OK;
    int f = 0;
    for (int can = 0; f < MODEL_FAMILY_GYRE; f++)
        if ((status = can_say((model_family_t)f, &c, &can)) != GYRE_OK || can)
            break;
    *family = (model_family_t)f;
    return status;
}

gyre_status_t model_config_to_json(const model_config_t *config, json_t **out)
{
    const model_config_t c = plain(config);
    model_family_t family;
    gyre_status_t status = model_config_family(&c, &family);
    if (status != GYRE_OK)
        return status;
    json_t *object = family_json(family, &c), *own = json_object();
    model_config_t back = {0};
    int bad = !object || !own;
    if (family != MODEL_FAMILY_GYRE && !bad)
        bad = read_back(family, object, &back) == GYRE_ERR_NO_MEMORY;
    for (size_t i = 0; !bad && i < FIELDS; i++) {
        if (family == MODEL_FAMILY_GYRE)
            bad |= json_object_set_new(object, fields[i].name, field_json(&c, &fields[i], 0));
        else if (!same_field(&fields[i], &c, &back) || strcmp(fields[i].name, "leaves") == 0)
            bad |= json_object_set_new(own, fields[i].name, field_json(&c, &fields[i], 0));
    }
    if (!bad && json_object_size(own) > 0)
        bad |= json_object_set(object, "gyre", own);
    json_decref(own);
    if (bad) {
        json_decref(object);
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a model's config.json");
    }
    *out = object;
    return GYRE_OK;
}

gyre_status_t model_config_hash(const model_config_t *config, uint64_t *out)
{
    json_t *object;
    gyre_status_t status = model_config_to_json(config, &object);
    if (status != GYRE_OK)
        return status;
    char *text = base_json_dump(object, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(object);
    if (!text)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the model as text");
    *out = base_hash64(text, strlen(text), 0);
    free(text);
    return GYRE_OK;
}
