/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/load/tokenizer.c: recorded and compared tokenizers. */
#include "pipeline/load/tokenizer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text/json.h"
#include "base/utf8.h"
#include "model/formats/hf.h"

int pipe_tokenizer_is_none(const char *spec)
{
    return spec && strcmp(spec, "none") == 0;
}

pipe_tokenizer_t pipe_tokenizer_named(const char *name, uint64_t hash)
{
    pipe_tokenizer_t tokenizer = {.hash = hash};
    snprintf(tokenizer.name, sizeof tokenizer.name, "%s", name);
    tokenizer.name[base_utf8_span((const unsigned char *)tokenizer.name, strlen(tokenizer.name))] = 0;
    return tokenizer;
}

pipe_tokenizer_t pipe_tokenizer_of(const model_tokenizer_t *tokenizer)
{
    return pipe_tokenizer_named(model_tokenizer_name(tokenizer), model_tokenizer_hash(tokenizer));
}

int pipe_tokenizer_record(json_t *run, const pipe_tokenizer_t *tokenizer)
{
    return tokenizer->hash == 0 ||
           json_object_set_new(
               run, "tokenizer",
               json_pack("{s:s, s:o}", "name", tokenizer->name, "xxh3", base_json_hex(tokenizer->hash))) == 0;
}

pipe_tokenizer_t pipe_tokenizer_recorded(const json_t *run)
{
    const json_t *said = json_object_get(run, "tokenizer");
    const char *name = json_string_value(json_object_get(said, "name"));
    return pipe_tokenizer_named(name ? name : "", base_json_hex_value(json_object_get(said, "xxh3")));
}

gyre_status_t pipe_tokenizer_compare(const pipe_tokenizer_t *learned, const char *where, const char *what,
                                     const pipe_tokenizer_t *other)
{
    if (learned->hash == 0 || other->hash == 0 || learned->hash == other->hash)
        return GYRE_OK;
    return gyre_fail(GYRE_ERR_INVALID,
                     "%s is of tokenizer '%s' (%016" PRIx64
                     "), but the model in %s has learned the ids of '%s' (%016" PRIx64
                     "): take that one; if the ids of both are the same, write the model as a folder, which "
                     "does not say it (gyre-train --export)",
                     what, other->name, other->hash, where, learned->name, learned->hash);
}

int pipe_tokenizer_foreign(const char *model, const model_config_t *shape, char *why, size_t room)
{
    model_config_t next;
    if (!model_hf_foreign(model, shape, &next))
        return 0;
    snprintf(
        why, room,
        "config.json next to %s is of a model of %zu ids, %zu layers and %zu channels, and the file's has "
        "%zu, %zu and %zu",
        model, next.vocab, next.layers, next.hidden, shape->vocab, shape->layers, shape->hidden);
    return 1;
}

gyre_status_t pipe_tokenizer_find(const char *model, const model_config_t *shape, char *path,
                                  model_tokenizer_t **out, char *why, size_t room)
{
    *out = NULL;
    const int there = model_tokenizer_file(model, path);
    if (there < 0)
        snprintf(why, room, "its tokenizer, %s, is of a kind that Gyre does not compare", path);
    if (there <= 0)
        return there < 0 ? GYRE_ERR_UNSUPPORTED : GYRE_OK;
    if (pipe_tokenizer_foreign(model, shape, why, room))
        return GYRE_ERR_INVALID;
    const int muted = base_log_mute(1);
    gyre_status_t status = model_tokenizer_open(path, out);
    base_log_mute(muted);
    if (status != GYRE_OK)
        snprintf(why, room, "%s", gyre_last_error());
    return status;
}

typedef const unsigned char *bytes_fn_t(const model_tokenizer_t *tokenizer, model_token_t id, size_t *count);

static int same(bytes_fn_t *bytes, const model_tokenizer_t *a, const model_tokenizer_t *b, model_token_t id)
{
    size_t x = 0, y = 0;
    const unsigned char *p = bytes(a, id, &x), *q = bytes(b, id, &y);
    return !p || !q || (x == y && memcmp(p, q, x) == 0);
}

/* As text, or as vocabularies have it: SentencePiece writes an unknown token as U+2047, tokenizer.json as
 * "<unk>". */
int pipe_tokenizer_same_ids(const model_tokenizer_t *a, const model_tokenizer_t *b)
{
    const size_t n = base_max_size(model_tokenizer_vocab(a), model_tokenizer_vocab(b));
    for (size_t id = 0; id < n; id++)
        if (!same(model_tokenizer_bytes, a, b, (model_token_t)id) &&
            !same(model_tokenizer_piece, a, b, (model_token_t)id))
            return 0;
    return 1;
}
