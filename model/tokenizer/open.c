/* SPDX-License-Identifier: Apache-2.0 */
/* model/tokenizer/open.c: opens a tokenizer: which kind of file it is, the hash. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/text/foreign.h"
#include "model/tokenizer/internal.h"
#include "model/tokenizer/sentencepiece.h"

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
    static const char *const ends[] = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>",
                                       "<\xef\xbd\x9c"
                                       "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>"};
    for (size_t i = 0; tokenizer->eot < 0 && i < sizeof ends / sizeof *ends; i++)
        tokenizer->eot = model_tokenizer_find(tokenizer, ends[i], strlen(ends[i]));
}

/* What decoding writes for a piece by itself: a space for each U+2581, and the byte of a byte token. */
static gyre_status_t add_piece(model_tokenizer_t *tokenizer, const char *path, int id)
{
    size_t count, used = 0;
    const unsigned char *piece =
        (const unsigned char *)tokenizer_library_piece(tokenizer->library, id, &count);
    const tokenizer_library_kind_t kind = tokenizer_library_kind(tokenizer->library, id);
    gyre_status_t status = tokenizer_add(tokenizer, path, (size_t)id, piece, count, kind == LIBRARY_CONTROL);
    if (status != GYRE_OK || kind == LIBRARY_CONTROL)
        return status;
    if (kind == LIBRARY_UNKNOWN) /* as the library writes it */
        return tokenizer_set_text(tokenizer, (size_t)id, " \xe2\x81\x87 ", 5);
    if (kind == LIBRARY_BYTE) {
        unsigned char byte = (unsigned char)tokenizer_fallback_byte(piece, count);
        return tokenizer_set_text(tokenizer, (size_t)id, &byte, 1);
    }
    unsigned char *text = malloc(count + 1);
    if (!text)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the pieces of %s", path);
    for (size_t i = 0; i < count; i++)
        if (count - i >= 3 && memcmp(piece + i, "\xe2\x96\x81", 3) == 0) {
            text[used++] = ' ';
            i += 2;
        } else
            text[used++] = piece[i];
    if (used < count)
        status = tokenizer_set_text(tokenizer, (size_t)id, text, used);
    free(text);
    return status;
}

/* Protocol buffers whose field 1, the pieces, comes first and has more than a few bytes: SentencePiece writes
 * them so, and no text begins with the byte 0x0A, a length and the byte 0x0A. */
static int is_sentencepiece(const char *path, const char *text, size_t bytes)
{
    size_t length = strlen(path);
    return (length > 6 && strcmp(path + length - 6, ".model") == 0) ||
           (bytes > 3 && text[0] == 0x0A && text[1] > 2 && text[2] == 0x0A);
}

static gyre_status_t read_model(model_tokenizer_t *tokenizer, const char *path, const char *text,
                                size_t bytes)
{
    gyre_status_t status = tokenizer_library_open(path, text, bytes, &tokenizer->library);
    if (status != GYRE_OK)
        return status;
    tokenizer->kind = TOKENIZER_MODEL;
    tokenizer->more = base_hash64(text, bytes, TOKENIZER_MODEL);
    for (int id = 0; status == GYRE_OK && id < tokenizer_library_size(tokenizer->library); id++)
        status = add_piece(tokenizer, path, id);
    tokenizer->eot = tokenizer_library_end(tokenizer->library);
    const int begin = tokenizer_library_begin(tokenizer->library);
    if (begin >= 0)
        tokenizer->begin = (model_specials_t){.id = {begin}, .count = 1};
    return status;
}

static gyre_status_t read_kind(model_tokenizer_t *tokenizer, const char *path, const char *pattern)
{
    char *text = NULL;
    size_t bytes = 0;
    gyre_status_t status = read_file(path, &text, &bytes);
    if (status != GYRE_OK)
        return status;
    const char *name = strrchr(path, '/');
    if (!(tokenizer->folder = strndup(path, name ? (size_t)(name + 1 - path) : 0))) {
        free(text);
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a tokenizer");
    }
    const char *foreign = base_foreign(text, bytes);
    snprintf(tokenizer->name, sizeof tokenizer->name, "%s", pattern ? pattern : name ? name + 1 : path);
    if (foreign)
        status = gyre_fail(GYRE_ERR_FORMAT, "%s %s", path, foreign);
    else if (!pattern && is_sentencepiece(path, text, bytes))
        status = read_model(tokenizer, path, text, bytes);
    else if (text[strspn(text, " \t\r\n")] == '{')
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
 * in their order, whether a piece that is a token is taken apart, and which added tokens text may give; of
 * other kinds what they have more. */
static uint64_t hash_of(const model_tokenizer_t *tokenizer)
{
    uint64_t hash = tokenizer_split_hash(tokenizer->split, tokenizer->vocab);
    uint64_t from_text = 0, added = 0; /* a sum: any order, no two have the same text */
    for (size_t i = 0; i < tokenizer->added_count; i++)
        if (!tokenizer->added[i].special) {
            added += base_hash64(&tokenizer->added[i].id, sizeof tokenizer->added[i].id, 0);
            from_text++;
        }
    uint64_t sizes[] = {tokenizer->merges, tokenizer->whole_first != 0, from_text};
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
    hash = base_hash64(&added, sizeof added, hash);
    if (tokenizer->more)
        hash = base_hash64(&tokenizer->more, sizeof tokenizer->more, hash);
    return hash ? hash : 1; /* 0 means unknown */
}

gyre_status_t model_tokenizer_open(const char *spec, model_tokenizer_t **out)
{
    model_tokenizer_t *tokenizer = calloc(1, sizeof *tokenizer);
    if (!tokenizer)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a tokenizer");
    tokenizer->eot = -1;
    tokenizer->unknown = TOKENIZER_NONE;
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
    free(tokenizer->folder);
    free(tokenizer->token);
    free(tokenizer->blob);
    free(tokenizer->by_bytes);
    free(tokenizer->merged);
    free(tokenizer->pair);
    free(tokenizer->pair_rank);
    free(tokenizer->score);
    free(tokenizer->pieces.word);
    free(tokenizer->raw.word);
    free(tokenizer->normal.word);
    for (size_t i = 0; i < tokenizer->added_count; i++)
        free(tokenizer->added[i].content);
    free(tokenizer->added);
    tokenizer_normalizer_destroy(tokenizer->normalizer);
    tokenizer_library_close(tokenizer->library);
    free(tokenizer);
}
