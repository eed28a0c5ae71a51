/* SPDX-License-Identifier: Apache-2.0 */
/* model/network/hf_window.c: the keys of sliding windows, as `transformers` has them. */
#include "model/network/hf_window.h"

#include <stdio.h>
#include <string.h>

/* A whole number, not below 0; absent: as it is; null: `null`. */
static gyre_status_t read_size(const json_t *object, const char *key, const char *where, size_t null,
                               size_t *out)
{
    const json_t *value = json_object_get(object, key);
    if (!value)
        return GYRE_OK;
    if (!json_is_null(value) && (!json_is_integer(value) || json_integer_value(value) < 0))
        return model_hf_bad_value(GYRE_ERR_FORMAT, where, key, value,
                                  "it must be null or a whole number, not below 0");
    *out = json_is_null(value) ? null : (size_t)json_integer_value(value);
    return GYRE_OK;
}

/* What "layer_types" has for a layer. */
static const char *word_of(const model_config_t *c, size_t layer)
{
    return model_config_is_local(c, layer) ? "sliding_attention" : "full_attention";
}

/* The first layer that sees all says which ones do, check_layers whether that is so. */
static void read_layers(model_config_t *c, const json_t *types)
{
    size_t l, first = json_array_size(types);
    json_t *type;
    if (first == 0)
        return;
    json_array_foreach(types, l, type)
    {
        if (l < first && json_is_string(type) && strcmp(json_string_value(type), "full_attention") == 0)
            first = l;
    }
    c->window_every = first < json_array_size(types) ? first + 1 : 0;
}

/* "layer_types": layer by layer the same as what the other keys say. */
static gyre_status_t check_layers(const model_config_t *c, const json_t *object, const char *where)
{
    const json_t *types = json_object_get(object, "layer_types"), *type;
    size_t l;
    if (!types || json_is_null(types))
        return GYRE_OK;
    if (!json_is_array(types) || json_array_size(types) != c->layers)
        return model_hf_bad_value(GYRE_ERR_FORMAT, where, "layer_types", types,
                                  "it must be a list of as many as there are layers");
    json_array_foreach(types, l, type)
    {
        const char *word = json_string_value(type), *want = word_of(c, l);
        char what[120];
        if (word && strcmp(word, want) == 0)
            continue;
        snprintf(what, sizeof what, "layer %zu must be \"%s\"; for other patterns take model_type \"gyre\"",
                 l, want);
        return model_hf_bad_value(GYRE_ERR_UNSUPPORTED, where, "layer_types", types, what);
    }
    return GYRE_OK;
}

gyre_status_t model_hf_read_window(model_config_t *c, const json_t *object, const char *where,
                                   model_hf_windows_t keys, const char *type)
{
    int use = keys != MODEL_HF_USE_WINDOWS;
    gyre_status_t status = GYRE_OK;
    if (keys == MODEL_HF_NO_WINDOWS || keys == MODEL_HF_USE_WINDOWS) /* transformers ignores it elsewhere */
        status = model_hf_flag(object, "use_sliding_window", where, &use);
    if (status == GYRE_OK)
        status = read_size(object, "sliding_window", where, 0, &c->window);
    if (status == GYRE_OK && keys == MODEL_HF_USE_WINDOWS)
        status = read_size(object, "max_window_layers", where, c->window_from, &c->window_from);
    if (!use || (keys == MODEL_HF_NO_WINDOWS && c->window >= c->seq))
        c->window = 0;
    if (status == GYRE_OK && keys == MODEL_HF_NO_WINDOWS && c->window > 0) {
        char what[120];
        snprintf(what, sizeof what,
                 "models of type %s have no windows; for any combination take model_type \"gyre\"", type);
        return model_hf_bad_value(GYRE_ERR_UNSUPPORTED, where, "sliding_window",
                                  json_object_get(object, "sliding_window"), what);
    }
    if (status == GYRE_OK && keys == MODEL_HF_LAYER_WINDOWS)
        read_layers(c, json_object_get(object, "layer_types"));
    return status == GYRE_OK ? check_layers(c, object, where) : status;
}

static int write_layers(const model_config_t *c, json_t *object)
{
    json_t *types = json_array();
    int bad = !types;
    for (size_t l = 0; !bad && l < c->layers; l++)
        bad = json_array_append_new(types, json_string(word_of(c, l)));
    return json_object_set_new(object, "layer_types", types) | bad;
}

int model_hf_write_window(const model_config_t *c, json_t *object, model_hf_windows_t keys)
{
    int bad = 0;
    if (keys == MODEL_HF_NO_WINDOWS)
        return 0;
    bad |= json_object_set_new(object, "sliding_window",
                               c->window > 0 ? json_integer((json_int_t)c->window) : json_null());
    if (keys == MODEL_HF_LAYER_WINDOWS)
        bad |= write_layers(c, object);
    if (keys == MODEL_HF_USE_WINDOWS) {
        bad |= json_object_set_new(object, "use_sliding_window", json_boolean(c->window > 0));
        bad |= json_object_set_new(object, "max_window_layers", json_integer((json_int_t)c->window_from));
    }
    return bad;
}
