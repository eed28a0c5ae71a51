/* SPDX-License-Identifier: Apache-2.0 */
/* model/data/sources.c: blends of paths by weight, sets for validation by name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/hash.h"
#include "model/data/sources.h"

/* ---- WEIGHT:PATH,WEIGHT:PATH and NAME=SOURCES,NAME=SOURCES --------------------------------------------- */

/* Bytes of a weight and its colon at the beginning of the text; 0: no weight. */
static size_t weight_length(const char *text)
{
    size_t digits = strspn(text, "0123456789.");
    return digits > 0 && text[digits] == ':' ? digits + 1 : 0;
}

/* The same of a name and its equals sign. */
static size_t name_length(const char *text)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
                      all[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
    size_t length = strspn(text, letters) > 0 ? strspn(text, all) : 0;
    return length > 0 && length < MODEL_DATA_NAME && text[length] == '=' ? length + 1 : 0;
}

/* A comma ends an entry where the head of another follows, so other commas may stand in a path. */
static char *entry_end(char *entry, size_t (*head)(const char *))
{
    char *at = entry;
    while ((at = strchr(at, ',')) != NULL && head(at + 1) == 0)
        at++;
    return at;
}

typedef struct {
    char *text; /* owned: the list, cut up */
    size_t count;
    const char *head[MODEL_BLEND_SOURCES], *rest[MODEL_BLEND_SOURCES];
} list_t;

/* Cuts a list of heads, each without its last byte, and what follows them. alone: the head of a text that is
 * no list. */
static gyre_status_t parse_list(const char *text, size_t (*head)(const char *), const char *alone,
                                size_t most, list_t *list)
{
    struct stat info;
    if (!(list->text = strdup(text)))
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the list of sources");
    if (head(text) == 0 || stat(text, &info) == 0) { /* a file of that name comes first */
        list->count = 1;
        list->head[0] = alone;
        list->rest[0] = list->text;
        return GYRE_OK;
    }
    for (char *entry = list->text, *end; entry; entry = end) {
        if ((end = entry_end(entry, head)) != NULL)
            *end++ = 0;
        if (list->count == most)
            return gyre_fail(GYRE_ERR_INVALID, "%s: at most %zu %s can be named", text, most,
                             most == MODEL_DATA_SETS ? "sets" : "sources of a blend");
        size_t length = head(entry);
        entry[length - 1] = 0;
        list->head[list->count] = entry;
        list->rest[list->count++] = entry + length;
    }
    return GYRE_OK;
}
_Static_assert(MODEL_DATA_SETS < MODEL_BLEND_SOURCES, "a list has room for either, and messages tell them");

/* ---- mixes --------------------------------------------------------------------------------------------- */

static gyre_status_t mix_room(model_mix_t *mix, size_t sources)
{
    mix->tokens = calloc(sources, sizeof *mix->tokens);
    mix->first = calloc(sources, sizeof *mix->first);
    mix->count = calloc(sources, sizeof *mix->count);
    return mix->tokens && mix->first && mix->count
               ? GYRE_OK
               : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %zu sources", sources);
}

gyre_status_t sources_open(const char *path, model_tokens_format_t format, model_mix_t *mix)
{
    list_t list = {0};
    gyre_status_t status = parse_list(path, weight_length, "1", MODEL_BLEND_SOURCES, &list);
    if (status == GYRE_OK)
        status = mix_room(mix, list.count);
    if (status == GYRE_OK)
        status = model_blend_create(list.head, list.count, &mix->blend);
    if (list.count == 1) { /* a weight that does not count must be one all the same */
        model_blend_destroy(mix->blend);
        mix->blend = NULL;
    }
    for (size_t s = 0; status == GYRE_OK && s < list.count; s++) {
        status = model_tokens_open(list.rest[s], format, &mix->tokens[s]);
        mix->sources += status == GYRE_OK;
        if (status == GYRE_OK)
            mix->count[s] = mix->tokens[s]->count;
    }
    free(list.text);
    return status;
}

void sources_close(model_mix_t *mix, int own)
{
    for (size_t s = 0; own && s < mix->sources; s++)
        model_tokens_close(mix->tokens[s]);
    if (own)
        model_blend_destroy(mix->blend);
    free(mix->tokens);
    free(mix->first);
    free(mix->count);
}

gyre_status_t sources_hash(const model_mix_t *mix, uint64_t *hash)
{
    gyre_status_t status = GYRE_OK;
    for (size_t s = 0; s < mix->sources && status == GYRE_OK; s++) {
        uint64_t told[] = {0, mix->first[s], mix->count[s], mix->blend ? mix->blend->share[s] : 1};
        status = model_tokens_hash(mix->tokens[s], &told[0]);
        *hash = base_hash64(told, sizeof told, *hash);
    }
    return status;
}

const char *sources_path(const model_tokens_t *tokens)
{
    return tokens->format == MODEL_TOKENS_TEXT ? tokens->path : tokens->file[0].path;
}

/* ---- validation ---------------------------------------------------------------------------------------- */

static gyre_status_t sets_room(model_data_t *data, size_t sets)
{
    data->set = calloc(sets, sizeof *data->set);
    return data->set ? GYRE_OK : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %zu validation sets", sets);
}

static gyre_status_t check_names(const list_t *list)
{
    for (size_t s = 1; s < list->count; s++)
        for (size_t before = 0; before < s; before++)
            if (strcmp(list->head[before], list->head[s]) == 0)
                return gyre_fail(GYRE_ERR_INVALID,
                                 "--valid-data has two sets named %s: give each a name of its own",
                                 list->head[s]);
    return GYRE_OK;
}

gyre_status_t sources_open_sets(const char *text, model_tokens_format_t format, model_data_t *data)
{
    list_t list = {0};
    gyre_status_t status = parse_list(text, name_length, "", MODEL_DATA_SETS, &list);
    if (status == GYRE_OK)
        status = sets_room(data, list.count);
    if (status == GYRE_OK)
        status = check_names(&list);
    for (size_t s = 0; status == GYRE_OK && s < list.count; s++) {
        snprintf(data->set[s].name, sizeof data->set[s].name, "%s", list.head[s]);
        data->sets++;
        status = sources_open(list.rest[s], format, &data->set[s].mix);
    }
    free(list.text);
    return status;
}

gyre_status_t sources_hold_out(model_data_t *data, double fraction)
{
    model_mix_t *train = &data->train;
    if (!(fraction > 0.0))
        return GYRE_OK;
    gyre_status_t status = sets_room(data, 1);
    if (status != GYRE_OK)
        return status;
    model_mix_t *valid = &data->set[0].mix;
    data->sets = 1;
    if ((status = mix_room(valid, train->sources)) != GYRE_OK)
        return status;
    for (size_t s = 0; s < train->sources; s++) {
        /* of a tenth this is count / 10 for every count that a disk can hold */
        uint64_t held = (uint64_t)((double)train->count[s] * fraction);
        valid->tokens[s] = train->tokens[s];
        train->count[s] -= held;
        valid->first[s] = train->count[s];
        valid->count[s] = held;
    }
    valid->sources = train->sources;
    valid->blend = train->blend;
    return GYRE_OK;
}
