/* SPDX-License-Identifier: Apache-2.0 */
/* model/tokenizer/vocabulary.c: a vocabulary, its maps, and decoding. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/file.h"
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

gyre_status_t tokenizer_add(model_tokenizer_t *tokenizer, const char *path, size_t id, const void *bytes,
                            size_t count, int special)
{
    if (id >= TOKENIZER_IDS || count > UINT32_MAX / 2 - tokenizer->blob_bytes)
        return gyre_fail(GYRE_ERR_FORMAT, "%s: id %zu is above %zu, which no vocabulary has", path, id,
                         TOKENIZER_IDS);
    if (id >= tokenizer->room) {
        size_t room = base_max_size(base_max_size(2 * tokenizer->room, id + 1), 1024);
        tokenizer_token_t *grown = realloc(tokenizer->token, room * sizeof *grown);
        if (!grown)
            return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %zu tokens of %s", room, path);
        memset(grown + tokenizer->room, 0, (room - tokenizer->room) * sizeof *grown);
        tokenizer->token = grown;
        tokenizer->room = room;
    }
    tokenizer_token_t *token = &tokenizer->token[id];
    if (token->there) {
        if (token->count != count || memcmp(tokenizer->blob + token->at, bytes, count) != 0)
            return gyre_fail(GYRE_ERR_FORMAT, "%s: id %zu stands for two tokens", path, id);
        token->special |= special;
        return GYRE_OK;
    }
    if (tokenizer->blob_bytes + count > tokenizer->blob_room) {
        size_t room = base_max_size(2 * tokenizer->blob_room, tokenizer->blob_bytes + count + 4096);
        unsigned char *grown = realloc(tokenizer->blob, room);
        if (!grown)
            return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the tokens of %s", path);
        tokenizer->blob = grown;
        tokenizer->blob_room = room;
    }
    if (count > 0)
        memcpy(tokenizer->blob + tokenizer->blob_bytes, bytes, count);
    *token = (tokenizer_token_t){
        .at = (uint32_t)tokenizer->blob_bytes, .count = (uint32_t)count, .there = 1, .special = special};
    tokenizer->blob_bytes += count;
    tokenizer->vocab = base_max_size(tokenizer->vocab, id + 1);
    return GYRE_OK;
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
        if (!token->there || token->special || token->count == 0)
            continue;
        size_t at = slot_of(tokenizer, tokenizer->blob + token->at, token->count);
        if (tokenizer->by_bytes[at] != TOKENIZER_NONE)
            return gyre_fail(GYRE_ERR_FORMAT, "%s: ids %u and %zu stand for the same bytes", path,
                             tokenizer->by_bytes[at], id);
        tokenizer->by_bytes[at] = (uint32_t)id;
        tokenizer->longest = base_max_size(tokenizer->longest, token->count);
    }
    for (unsigned b = 0; b < 256; b++) {
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

/* ---- opening ------------------------------------------------------------------------------------------- */

static gyre_status_t read_file(const char *path, char **text, size_t *bytes)
{
    struct stat info;
    FILE *in = fopen(path, "rbe");
    if (!in)
        return gyre_fail_errno(base_file_status(errno), errno, "cannot open the tokenizer %s", path);
    gyre_status_t status = GYRE_OK;
    char *all = NULL;
    size_t got = 0;
    if (fstat(fileno(in), &info) != 0 || !S_ISREG(info.st_mode))
        status = gyre_fail(GYRE_ERR_INVALID, "%s is not a file: name a tokenizer's file", path);
    else if (!(all = malloc((size_t)info.st_size + 1)))
        status = gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to read %s", path);
    else if ((got = fread(all, 1, (size_t)info.st_size, in)) != (size_t)info.st_size)
        status = gyre_fail_errno(GYRE_ERR_IO, errno ? errno : EIO, "cannot read %s", path);
    fclose(in);
    if (status != GYRE_OK) {
        free(all);
        return status;
    }
    all[got] = 0;
    *text = all;
    *bytes = got;
    return GYRE_OK;
}

/* The pattern in the name of a .tiktoken file. */
static const char *pattern_of_name(const char *path)
{
    const char *name = strrchr(path, '/');
    name = name ? name + 1 : path;
    if (strstr(name, "cl100k"))
        return "cl100k";
    if (strstr(name, "o200k"))
        return "o200k";
    return strstr(name, "r50k") || strstr(name, "p50k") || strstr(name, "gpt2") ? "gpt2" : NULL;
}

/* merges.txt: "#version" or two words without a digit in the second, in a line; .tiktoken: base64 and a
 * number. */
static int looks_like_tiktoken(const char *text)
{
    const char *space = strpbrk(text, " \n");
    if (*text == '#' || !space || *space != ' ')
        return 0;
    size_t digits = strspn(space + 1, "0123456789");
    return digits > 0 && (space[1 + digits] == '\n' || space[1 + digits] == '\r' || !space[1 + digits]);
}

void tokenizer_find_eot(model_tokenizer_t *tokenizer)
{
    static const char *const ends[] = {"<|endoftext|>", "<|end_of_text|>", "</s>"};
    for (size_t i = 0; tokenizer->eot < 0 && i < sizeof ends / sizeof *ends; i++)
        tokenizer->eot = model_tokenizer_find(tokenizer, ends[i], strlen(ends[i]));
}

static gyre_status_t read_kind(model_tokenizer_t *tokenizer, const char *path, const char *pattern)
{
    char *text = NULL;
    size_t bytes = 0;
    gyre_status_t status = read_file(path, &text, &bytes);
    if (status != GYRE_OK)
        return status;
    const char *name = strrchr(path, '/');
    snprintf(tokenizer->name, sizeof tokenizer->name, "%s", pattern ? pattern : name ? name + 1 : path);
    if (text[strspn(text, " \t\r\n")] == '{')
        status = pattern ? gyre_fail(GYRE_ERR_INVALID,
                                     "%s is a tokenizer.json, which says its pattern: leave %s: out", path,
                                     pattern)
                         : tokenizer_read_json(tokenizer, path);
    else if (looks_like_tiktoken(text)) {
        const char *told = pattern ? pattern : pattern_of_name(path);
        if (told) {
            snprintf(tokenizer->name, sizeof tokenizer->name, "%s", told);
            status = tokenizer_read_tiktoken(tokenizer, path, text, bytes, told);
        } else
            status =
                gyre_fail(GYRE_ERR_INVALID,
                          "%s does not say by which pattern text is cut: give gpt2:%s, cl100k:%s or o200k:%s",
                          path, path, path, path);
    } else if (!pattern || strcmp(pattern, "gpt2") == 0) {
        snprintf(tokenizer->name, sizeof tokenizer->name, "gpt2");
        status = tokenizer_read_merges(tokenizer, path, text, bytes);
    } else
        status = gyre_fail(GYRE_ERR_FORMAT,
                           "%s is not a .tiktoken file: its first line is not base64 and a number", path);
    free(text);
    return status;
}

static gyre_status_t make_bytes(model_tokenizer_t *tokenizer)
{
    gyre_status_t status = GYRE_OK;
    snprintf(tokenizer->name, sizeof tokenizer->name, "bytes");
    for (unsigned b = 0; status == GYRE_OK && b < 256; b++) {
        unsigned char byte = (unsigned char)b;
        status = tokenizer_add(tokenizer, "bytes", b, &byte, 1, 0);
    }
    if (status == GYRE_OK)
        status = tokenizer_index(tokenizer, "bytes");
    return status == GYRE_OK ? tokenizer_merges(tokenizer, 0) : status;
}

/* A hash of everything that decides which tokens a text becomes: the pattern, the bytes of every id, merges
 * in their order, whether a piece that is a token is taken apart, and which added tokens text may give. */
static uint64_t hash_of(const model_tokenizer_t *tokenizer)
{
    uint64_t hash = tokenizer_split_hash(tokenizer->split, tokenizer->vocab);
    uint64_t sizes[] = {tokenizer->merges, tokenizer->whole_first != 0, tokenizer->added_count};
    hash = base_hash64(sizes, sizeof sizes, hash);
    for (size_t id = 0; id < tokenizer->vocab; id++) {
        const tokenizer_token_t *token = &tokenizer->token[id];
        if (token->there)
            hash = base_hash64(tokenizer->blob + token->at, token->count, hash + id);
    }
    uint64_t merges = 0; /* the table's order depends on its size; a sum does not depend on the order */
    for (size_t i = 0; i < tokenizer->pair_slots; i++)
        if (tokenizer->pair_rank[i] != TOKENIZER_NONE) {
            uint64_t merge[] = {tokenizer->pair_rank[i], tokenizer->pair[i]};
            merges += base_hash64(merge, sizeof merge, 0);
        }
    hash = base_hash64(&merges, sizeof merges, hash);
    uint64_t added = 0; /* any order: no two have the same text */
    for (size_t i = 0; i < tokenizer->added_count; i++)
        added += base_hash64(&tokenizer->added[i].id, sizeof tokenizer->added[i].id, 0);
    hash = base_hash64(&added, sizeof added, hash);
    return hash ? hash : 1; /* 0 means unknown */
}

gyre_status_t model_tokenizer_open(const char *spec, model_tokenizer_t **out)
{
    model_tokenizer_t *tokenizer = calloc(1, sizeof *tokenizer);
    if (!tokenizer)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a tokenizer");
    tokenizer->eot = -1;
    gyre_status_t status;
    const char *colon = strchr(spec, ':');
    char prefix[16] = "";
    if (colon && (size_t)(colon - spec) < sizeof prefix)
        memcpy(prefix, spec, (size_t)(colon - spec));
    if (strcmp(spec, "bytes") == 0)
        status = make_bytes(tokenizer);
    else
        status = *prefix && tokenizer_pattern(prefix) ? read_kind(tokenizer, colon + 1, prefix)
                                                      : read_kind(tokenizer, spec, NULL);
    if (status != GYRE_OK) {
        model_tokenizer_destroy(tokenizer);
        return status;
    }
    tokenizer->hash = hash_of(tokenizer);
    *out = tokenizer;
    return GYRE_OK;
}

void model_tokenizer_destroy(model_tokenizer_t *tokenizer)
{
    if (!tokenizer)
        return;
    tokenizer_split_destroy(tokenizer->split);
    free(tokenizer->token);
    free(tokenizer->blob);
    free(tokenizer->by_bytes);
    free(tokenizer->merged);
    free(tokenizer->pair);
    free(tokenizer->pair_rank);
    free(tokenizer->added);
    free(tokenizer);
}

/* ---- facts and decoding -------------------------------------------------------------------------------- */

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
    *count = tokenizer->token[id].count;
    return tokenizer->blob + tokenizer->token[id].at;
}

int64_t model_tokenizer_find(const model_tokenizer_t *tokenizer, const void *bytes, size_t count)
{
    for (size_t id = 0; id < tokenizer->vocab; id++) {
        const tokenizer_token_t *token = &tokenizer->token[id];
        if (token->there && token->count == count && memcmp(tokenizer->blob + token->at, bytes, count) == 0)
            return (int64_t)id;
    }
    return -1;
}

gyre_status_t model_decode(const model_tokenizer_t *tokenizer, const model_token_t *ids, size_t count,
                           unsigned char **bytes, size_t *length)
{
    size_t all = 0, one = 0;
    for (size_t i = 0; i < count; i++) {
        if (!model_tokenizer_bytes(tokenizer, ids[i], &one))
            return gyre_fail(GYRE_ERR_FORMAT, "token %zu is %d, which tokenizer '%s' does not have", i,
                             (int)ids[i], tokenizer->name);
        if (!base_add(all, one, &all))
            return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the text of %zu tokens", count);
    }
    unsigned char *text = malloc(all + 1);
    if (!text)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the text of %zu tokens", count);
    size_t used = 0;
    for (size_t i = 0; i < count; i++, used += one)
        memcpy(text + used, model_tokenizer_bytes(tokenizer, ids[i], &one), tokenizer->token[ids[i]].count);
    text[used] = 0;
    *bytes = text;
    *length = used;
    return GYRE_OK;
}
