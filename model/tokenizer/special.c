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

/* ---- the beginning ------------------------------------------------------------------------------------- */

/* What a post-processor puts in front of a text. What it puts after the text is not of interest here. */
static model_specials_t front(const json_t *processor)
{
    const char *type = tokenizer_type_of(processor);
    const json_t *pieces = json_object_get(processor, "single"),
                 *special = json_object_get(processor, "special_tokens"), *word;
    model_specials_t ids = {0};
    if (strcmp(type, "TemplateProcessing") == 0)
        for (size_t i = 0; (word = json_object_get(json_array_get(pieces, i), "SpecialToken")); i++) {
            const char *id = json_string_value(json_object_get(word, "id"));
            append_ids(&ids, json_object_get(json_object_get(special, id ? id : ""), "ids"));
        }
    else if (strcmp(type, "RobertaProcessing") == 0 || strcmp(type, "BertProcessing") == 0)
        append_ids(&ids, json_array_get(json_object_get(processor, "cls"), 1));
    return ids;
}

void tokenizer_json_begin(model_tokenizer_t *tokenizer, const json_t *processor)
{
    const json_t *list = json_object_get(processor, "processors");
    for (size_t i = 0; i < json_array_size(list); i++)
        tokenizer_json_begin(tokenizer, json_array_get(list, i));
    model_specials_t ids = front(processor);
    for (size_t i = 0; i < tokenizer->begin.count; i++)
        append(&ids, tokenizer->begin.id[i]);
    tokenizer->begin = ids;
}

/* Whether a .model file lies in a model's folder: such a model has learned its texts with its beginning. */
static int is_of_model(const model_tokenizer_t *tokenizer, const json_t *config)
{
    char path[PATH_MAX];
    return config || (snprintf(path, sizeof path, "%sconfig.json", tokenizer->folder) < (int)sizeof path &&
                      access(path, F_OK) == 0);
}

gyre_status_t model_tokenizer_begin(const model_tokenizer_t *tokenizer, model_specials_t *out)
{
    json_t *config = NULL;
    gyre_status_t status =
        tokenizer->folder ? read_in(tokenizer->folder, "tokenizer_config.json", &config) : GYRE_OK;
    const json_t *add = json_object_get(config, "add_bos_token");
    const int64_t id = json_is_true(add) ? named(tokenizer, json_object_get(config, "bos_token")) : -1;
    *out = tokenizer->begin;
    if (json_is_false(add) || id >= 0 || (tokenizer->library && !is_of_model(tokenizer, config)))
        out->count = 0;
    append(out, id);
    json_decref(config);
    return status;
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
