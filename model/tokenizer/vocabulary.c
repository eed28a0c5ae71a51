/* SPDX-License-Identifier: Apache-2.0 */
/* model/tokenizer/vocabulary.c: a vocabulary and its maps. */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/grow.h"
#include "base/hash.h"
#include "model/tokenizer/internal.h"

/* ---- letters and code points --------------------------------------------------------------------------- */

static int is_plain(unsigned byte)
{
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

uint32_t tokenizer_letter(unsigned byte)
{
    uint32_t n = 256;
    if (is_plain(byte))
        return byte;
    for (unsigned b = 0; b < byte; b++)
        n += !is_plain(b);
    return n;
}

int tokenizer_unletter(uint32_t letter)
{
    if (letter < 256)
        return is_plain(letter) ? (int)letter : -1;
    for (int b = 0; b < 256; b++) /* 68 of them, at loading only */
        if (!is_plain((unsigned)b) && letter-- == 256)
            return b;
    return -1;
}

/* ---- vocabulary ---------------------------------------------------------------------------------------- */

/* Appends to the blob. */
static gyre_status_t put_bytes(model_tokenizer_t *tokenizer, const char *path, const void *bytes,
                               size_t count, uint32_t *at)
{
    if (count > UINT32_MAX / 2 - tokenizer->blob_bytes)
        return gyre_fail(GYRE_ERR_FORMAT, "%s: its tokens have more than 2 GiB", path);
    if (!base_grow(&tokenizer->blob, &tokenizer->blob_room, tokenizer->blob_bytes, count, 1))
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the tokens of %s", path);
    if (count > 0)
        memcpy(tokenizer->blob + tokenizer->blob_bytes, bytes, count);
    *at = (uint32_t)tokenizer->blob_bytes;
    tokenizer->blob_bytes += count;
    return GYRE_OK;
}

gyre_status_t tokenizer_add(model_tokenizer_t *tokenizer, const char *path, size_t id, const void *bytes,
                            size_t count, int special)
{
    if (id >= TOKENIZER_IDS)
        return gyre_fail(GYRE_ERR_FORMAT, "%s: id %zu is above %zu, which no vocabulary has", path, id,
                         TOKENIZER_IDS);
    const size_t before = tokenizer->room;
    if (!base_grow(&tokenizer->token, &tokenizer->room, id, 1, sizeof *tokenizer->token))
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %zu tokens of %s", id + 1, path);
    for (size_t i = before; i < tokenizer->room; i++)
        tokenizer->token[i] = (tokenizer_token_t){0};
    tokenizer_token_t *token = &tokenizer->token[id];
    if (token->there) {
        if (token->count != count || memcmp(tokenizer->blob + token->at, bytes, count) != 0)
            return gyre_fail(GYRE_ERR_FORMAT, "%s: id %zu stands for two tokens", path, id);
        token->special |= special;
        return GYRE_OK;
    }
    uint32_t at = 0;
    gyre_status_t status = put_bytes(tokenizer, path, bytes, count, &at);
    if (status != GYRE_OK)
        return status;
    *token = (tokenizer_token_t){.at = at,
                                 .count = (uint32_t)count,
                                 .text_at = at,
                                 .text_count = (uint32_t)count,
                                 .there = 1,
                                 .special = special};
    tokenizer->vocab = base_max_size(tokenizer->vocab, id + 1);
    return GYRE_OK;
}

gyre_status_t tokenizer_set_text(model_tokenizer_t *tokenizer, size_t id, const void *bytes, size_t count)
{
    tokenizer_token_t *token = &tokenizer->token[id];
    token->text_count = (uint32_t)count;
    return put_bytes(tokenizer, tokenizer->name, bytes, count, &token->text_at);
}

/* The slot that holds these bytes, or the empty one where they belong. */
static size_t slot_of(const model_tokenizer_t *tokenizer, const unsigned char *bytes, size_t count)
{
    size_t at = (size_t)base_hash64(bytes, count, 0) & (tokenizer->slots - 1);
    for (uint32_t id; (id = tokenizer->by_bytes[at]) != TOKENIZER_NONE;
         at = (at + 1) & (tokenizer->slots - 1)) {
        const tokenizer_token_t *token = &tokenizer->token[id];
        if (token->count == count && memcmp(tokenizer->blob + token->at, bytes, count) == 0)
            break;
    }
    return at;
}

uint32_t tokenizer_lookup(const model_tokenizer_t *tokenizer, const unsigned char *bytes, size_t count)
{
    return count > tokenizer->longest ? TOKENIZER_NONE
                                      : tokenizer->by_bytes[slot_of(tokenizer, bytes, count)];
}

/* A power of two at least twice `count`, in which `width` bytes each are set to 0xff. */
static void *slots_for(size_t count, size_t width, size_t *slots)
{
    *slots = 16;
    while (*slots < 2 * count)
        *slots *= 2;
    void *made = malloc(*slots * width);
    return made ? memset(made, 0xff, *slots * width) : NULL;
}

gyre_status_t tokenizer_index(model_tokenizer_t *tokenizer, const char *path)
{
    if (!(tokenizer->by_bytes = slots_for(tokenizer->vocab, sizeof *tokenizer->by_bytes, &tokenizer->slots)))
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the map of %zu tokens", tokenizer->vocab);
    for (size_t id = 0; id < tokenizer->vocab; id++) {
        const tokenizer_token_t *token = &tokenizer->token[id];
        if (!token->there || token->count == 0 || (token->special && tokenizer->kind == TOKENIZER_BYTES))
            continue;
        size_t at = slot_of(tokenizer, tokenizer->blob + token->at, token->count);
        if (tokenizer->by_bytes[at] != TOKENIZER_NONE)
            return gyre_fail(GYRE_ERR_FORMAT, "%s: ids %u and %zu stand for the same bytes", path,
                             tokenizer->by_bytes[at], id);
        tokenizer->by_bytes[at] = (uint32_t)id;
        tokenizer->longest = base_max_size(tokenizer->longest, token->count);
    }
    for (unsigned b = 0; b < 256 && tokenizer->kind == TOKENIZER_BYTES; b++) {
        unsigned char byte = (unsigned char)b;
        tokenizer->byte_id[b] = tokenizer_lookup(tokenizer, &byte, 1);
        if (tokenizer->byte_id[b] == TOKENIZER_NONE)
            return gyre_fail(GYRE_ERR_FORMAT,
                             "%s: byte 0x%02x has no token, so there are texts that cannot be encoded: it is "
                             "not a byte-level vocabulary",
                             path, b);
    }
    return GYRE_OK;
}

/* ---- the list of merges -------------------------------------------------------------------------------- */

static size_t pair_slot(const model_tokenizer_t *tokenizer, uint64_t pair)
{
    uint64_t mixed = (pair ^ pair >> 29) * UINT64_C(0x9E3779B97F4A7C15);
    size_t at = (size_t)(mixed >> 20) & (tokenizer->pair_slots - 1);
    while (tokenizer->pair_rank[at] != TOKENIZER_NONE && tokenizer->pair[at] != pair)
        at = (at + 1) & (tokenizer->pair_slots - 1);
    return at;
}

gyre_status_t tokenizer_merges(model_tokenizer_t *tokenizer, size_t most)
{
    size_t slots;
    tokenizer->merged = calloc(most + 1, sizeof *tokenizer->merged);
    tokenizer->pair_rank = slots_for(most, sizeof *tokenizer->pair_rank, &slots);
    tokenizer->pair = calloc(slots, sizeof *tokenizer->pair);
    tokenizer->pair_slots = slots;
    return tokenizer->merged && tokenizer->pair_rank && tokenizer->pair
               ? GYRE_OK
               : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %zu merges", most);
}

gyre_status_t tokenizer_merge(model_tokenizer_t *tokenizer, const char *path, uint32_t left, uint32_t right)
{
    const tokenizer_token_t *a = &tokenizer->token[left], *b = &tokenizer->token[right];
    unsigned char both[1024];
    size_t count = (size_t)a->count + b->count;
    if (count > sizeof both)
        return gyre_fail(GYRE_ERR_FORMAT,
                         "%s: merge %zu makes a token of %zu bytes; at most %zu are understood", path,
                         tokenizer->merges + 1, count, sizeof both);
    memcpy(both, tokenizer->blob + a->at, a->count);
    memcpy(both + a->count, tokenizer->blob + b->at, b->count);
    uint32_t id = tokenizer_lookup(tokenizer, both, count);
    if (id == TOKENIZER_NONE)
        return gyre_fail(GYRE_ERR_FORMAT, "%s: merge %zu makes a token that the vocabulary lacks", path,
                         tokenizer->merges + 1);
    uint64_t pair = (uint64_t)left << 32 | right;
    size_t at = pair_slot(tokenizer, pair);
    if (tokenizer->pair_rank[at] != TOKENIZER_NONE)
        return gyre_fail(GYRE_ERR_FORMAT, "%s: merge %zu stands there twice", path, tokenizer->merges + 1);
    tokenizer->pair[at] = pair;
    tokenizer->pair_rank[at] = (uint32_t)tokenizer->merges;
    tokenizer->merged[tokenizer->merges++] = id;
    return GYRE_OK;
}

uint32_t tokenizer_rank(const model_tokenizer_t *tokenizer, uint32_t left, uint32_t right)
{
    return tokenizer->pair_rank[pair_slot(tokenizer, (uint64_t)left << 32 | right)];
}

/* ---- facts --------------------------------------------------------------------------------------------- */

const char *model_tokenizer_name(const model_tokenizer_t *tokenizer)
{
    return tokenizer->name;
}

size_t model_tokenizer_vocab(const model_tokenizer_t *tokenizer)
{
    return tokenizer->vocab;
}

int64_t model_tokenizer_eot(const model_tokenizer_t *tokenizer)
{
    return tokenizer->eot;
}

uint64_t model_tokenizer_hash(const model_tokenizer_t *tokenizer)
{
    return tokenizer->hash;
}

const unsigned char *model_tokenizer_bytes(const model_tokenizer_t *tokenizer, model_token_t id,
                                           size_t *count)
{
    if (id < 0 || (size_t)id >= tokenizer->vocab || !tokenizer->token[id].there)
        return NULL;
    *count = tokenizer->token[id].text_count;
    return tokenizer->blob + tokenizer->token[id].text_at;
}

const unsigned char *model_tokenizer_piece(const model_tokenizer_t *tokenizer, model_token_t id,
                                           size_t *count)
{
    if (!model_tokenizer_bytes(tokenizer, id, count))
        return NULL;
    *count = tokenizer->token[id].count;
    return tokenizer->blob + tokenizer->token[id].at;
}

int model_tokenizer_special(const model_tokenizer_t *tokenizer, model_token_t id)
{
    if (id < 0 || (size_t)id >= tokenizer->vocab || !tokenizer->token[id].special ||
        (uint32_t)id == tokenizer->unknown) /* stands for text, too */
        return 0;
    for (size_t i = 0; i < tokenizer->added_count; i++)
        if (tokenizer->added[i].id == (uint32_t)id)
            return tokenizer->added[i].special;
    return 1;
}

int64_t model_tokenizer_find(const model_tokenizer_t *tokenizer, const void *bytes, size_t count)
{
    int64_t written = -1; /* so is one that the vocabulary spells otherwise */
    for (size_t id = 0; id < tokenizer->vocab; id++) {
        const tokenizer_token_t *token = &tokenizer->token[id];
        if (token->there && token->count == count && memcmp(tokenizer->blob + token->at, bytes, count) == 0)
            return (int64_t)id;
        if (written < 0 && token->there && token->text_count == count &&
            memcmp(tokenizer->blob + token->text_at, bytes, count) == 0)
            written = (int64_t)id;
    }
    return written;
}
