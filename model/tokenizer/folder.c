/* SPDX-License-Identifier: Apache-2.0 */
/* model/tokenizer/folder.c: what a model's folder says of its tokenizer: which file it is, and the special
 * tokens around a text. */
#include <dirent.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "model/tokenizer/json.h"

/* *out NULL: the folder has no such file. */
static gyre_status_t read_in(const char *folder, const char *name, json_t **out)
{
    char path[PATH_MAX];
    *out = NULL;
    return snprintf(path, sizeof path, "%s%s", folder, name) >= (int)sizeof path || access(path, F_OK) != 0
               ? GYRE_OK
               : base_json_read_with(path, 0, out);
}

/* ---- the tokenizer's file ------------------------------------------------------------------------------ */

/* Names in `transformers`, and of Mistral, Qwen and Kimi. The first that a folder has counts. */
static const struct {
    const char *pattern;
    /* 1: Gyre reads the kind, and the ids are those of the model as they are in the file; merges.txt: if
     * it is GPT-2's */
    int read;
} kinds[] = {
    {"tokenizer.json", 1},
    {"merges.txt", 1},
    {"tokenizer.model", 1},
    {"spiece.model", 1},
    {"tekken.json", 0},
    {"*.tiktoken", 0},
    {"tiktoken.model", 0},
    {"tokenizer.model.v*", 0},
    {"sentencepiece*.model", 0}, /* XLM-R and others move its ids */
    {"spm.model", 0},
    {"vocab.txt", 0},
    {"vocab.json", 0},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* KINDS: it is no such file. */
static size_t place_of(const char *name)
{
    size_t i = 0;
    while (i < KINDS && fnmatch(kinds[i].pattern, name, FNM_PERIOD) != 0)
        i++;
    return i;
}

int model_tokenizer_is_file(const char *name)
{
    return place_of(name) < KINDS;
}

int model_tokenizer_folder(const char *model, char *folder)
{
    struct stat info;
    char config[PATH_MAX];
    if (stat(model, &info) == 0 && S_ISDIR(info.st_mode))
        return snprintf(folder, PATH_MAX, "%s/", model) < PATH_MAX;
    const char *slash = strrchr(model, '/');
    const int length = slash ? (int)(slash - model) + 1 : 0;
    return snprintf(folder, PATH_MAX, "%.*s", length, model) < PATH_MAX &&
           snprintf(config, sizeof config, "%sconfig.json", folder) < PATH_MAX && access(config, F_OK) == 0;
}

/* A file of the folder; NULL: it is not there, or cannot be read, which is said where the model is. */
static json_t *quietly(const char *folder, const char *name)
{
    json_t *value = NULL;
    const int muted = base_log_mute(1);
    (void)read_in(folder, name, &value);
    base_log_mute(muted);
    return value;
}

static int is_one_of(const char *word, const char *const *words, size_t count)
{
    for (size_t i = 0; word && i < count; i++)
        if (strcmp(word, words[i]) == 0)
            return 1;
    return 0;
}

/* 1: the folder's merges.txt and vocab.json alone say how text is cut: by GPT-2's pattern, without a space
 * in front or further tokens. As in transformers, tokenizer_class says it, or else model_type; a folder
 * without either has what its user put there. The other tokenizers of transformers that have a merges.txt
 * have other patterns (Qwen2), or normalizers (GPT-NeoX). */
static int is_gpt2(const char *folder)
{
    static const char *const classes[] = {"GPT2Tokenizer", "GPT2TokenizerFast", "RobertaTokenizer",
                                          "RobertaTokenizerFast"},
                             *const types[] = {"gpt2", "opt", "gyre"};
    char added[PATH_MAX];
    json_t *own = quietly(folder, "tokenizer_config.json"), *config = quietly(folder, "config.json");
    const char *class = json_string_value(json_object_get(own, "tokenizer_class")),
               *type = json_string_value(json_object_get(config, "model_type"));
    if (!class)
        class = json_string_value(json_object_get(config, "tokenizer_class"));
    const int known = class ? is_one_of(class, classes, sizeof classes / sizeof *classes)
                            : is_one_of(type, types, sizeof types / sizeof *types) || !type;
    const int alone = snprintf(added, sizeof added, "%sadded_tokens.json", folder) < PATH_MAX &&
                      access(added, F_OK) != 0 && !json_is_true(json_object_get(own, "add_prefix_space"));
    json_decref(own);
    json_decref(config);
    return known && alone;
}

int model_tokenizer_file(const char *model, char *path)
{
    char folder[PATH_MAX], found[NAME_MAX + 1] = "";
    size_t first = KINDS;
    if (!model_tokenizer_folder(model, folder))
        return 0;
    DIR *all = opendir(*folder ? folder : ".");
    for (struct dirent *entry; all && (entry = readdir(all));) {
        const size_t i = place_of(entry->d_name);
        if (i > first || i == KINDS || (i == first && strcmp(entry->d_name, found) > 0))
            continue;
        first = i;
        snprintf(found, sizeof found, "%s", entry->d_name);
    }
    if (all)
        closedir(all);
    if (first == KINDS || snprintf(path, PATH_MAX, "%s%s", folder, found) >= PATH_MAX)
        return 0;
    const int read = kinds[first].read && (strcmp(found, "merges.txt") != 0 || is_gpt2(folder));
    return read ? 1 : -1;
}

/* ---- special tokens ------------------------------------------------------------------------------------ */

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
