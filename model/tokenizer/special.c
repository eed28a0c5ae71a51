/* SPDX-License-Identifier: Apache-2.0 */
/* model/tokenizer/special.c: the special tokens around a text, as the files of a model's folder say them. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "model/tokenizer/json.h"

/* *out NULL: the folder has no such file. Numbers are reals: "model_max_length" is often 1e30 in digits. */
static gyre_status_t read_in(const char *folder, const char *name, json_t **out)
{
    char path[PATH_MAX];
    *out = NULL;
    return snprintf(path, sizeof path, "%s%s", folder, name) >= (int)sizeof path || access(path, F_OK) != 0
               ? GYRE_OK
               : base_json_read_with(path, JSON_DECODE_INT_AS_REAL, out);
}

static void append(model_specials_t *list, int64_t id)
{
    if (id >= 0 && id <= INT32_MAX && list->count < MODEL_SPECIALS)
        list->id[list->count++] = (model_token_t)id;
}

/* A number or a list of numbers; anything else is none. */
static void append_ids(model_specials_t *list, const json_t *ids)
{
    if (json_is_number(ids) && json_number_value(ids) >= 0 && json_number_value(ids) <= INT32_MAX)
        append(list, (int64_t)json_number_value(ids));
    for (size_t i = 0; i < json_array_size(ids); i++)
        append_ids(list, json_array_get(ids, i));
}

/* The id of a token that tokenizer_config.json names: a text, or an object with its content; -1: none. */
static int64_t named(const model_tokenizer_t *tokenizer, const json_t *token)
{
    const json_t *text = json_is_object(token) ? json_object_get(token, "content") : token;
    return json_is_string(text)
               ? model_tokenizer_find(tokenizer, json_string_value(text), json_string_length(text))
               : -1;
}

/* ---- ends ---------------------------------------------------------------------------------------------- */

/* What the folder's model ends with. */
static gyre_status_t ends_in(const char *folder, model_specials_t *out)
{
    static const char *const names[] = {"generation_config.json", "config.json"};
    gyre_status_t status = GYRE_OK;
    for (size_t i = 0; status == GYRE_OK && out->count == 0 && i < sizeof names / sizeof *names; i++) {
        json_t *config = NULL;
        status = read_in(folder, names[i], &config);
        append_ids(out, json_object_get(config, "eos_token_id"));
        json_decref(config);
    }
    return status;
}

gyre_status_t model_tokenizer_ends(const model_tokenizer_t *tokenizer, const char *model,
                                   model_specials_t *out)
{
    char folder[PATH_MAX];
    json_t *config = NULL;
    gyre_status_t status = GYRE_OK;
    *out = (model_specials_t){0};
    if (model && model_tokenizer_folder(model, folder))
        status = ends_in(folder, out);
    if (status == GYRE_OK && out->count == 0 && tokenizer->folder)
        status = ends_in(tokenizer->folder, out);
    if (status == GYRE_OK && out->count == 0 && tokenizer->folder)
        status = read_in(tokenizer->folder, "tokenizer_config.json", &config);
    if (status == GYRE_OK && out->count == 0)
        append(out, named(tokenizer, json_object_get(config, "eos_token")));
    if (status == GYRE_OK && out->count == 0)
        append(out, tokenizer->eot);
    json_decref(config);
    return status;
}
