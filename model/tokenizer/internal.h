/* SPDX-License-Identifier: Apache-2.0 */
/* model/tokenizer/internal.h: what the parts of the tokenizer share (this folder only).
 *
 *   vocabulary.c        the vocabulary, its maps, decoding      files.c   merges.txt and .tiktoken
 *   bpe.c    pieces to tokens                        json.c    tokenizer.json
 *   split.c  text to pieces */
#ifndef MODEL_TOKENIZER_INTERNAL_H
#define MODEL_TOKENIZER_INTERNAL_H

#include "base/utf8.h"
#include "model/tokenizer/tokenizer.h"

#define TOKENIZER_IDS    ((size_t)1 << 22) /* a larger id is an error */
#define TOKENIZER_MERGES ((size_t)1 << 23)
#define TOKENIZER_NONE   UINT32_MAX

typedef struct {
    uint32_t at, count; /* bytes in the blob */
    int there;          /* it exists */
    int special;        /* never made from text */
} tokenizer_token_t;

typedef struct {
    uint32_t id;
    uint32_t count;
    const unsigned char *bytes; /* in the blob */
} tokenizer_added_t;

typedef struct tokenizer_split tokenizer_split_t;

struct model_tokenizer {
    char name[128];
    size_t vocab;             /* one above the largest id */
    tokenizer_token_t *token; /* [room], of which [vocab] */
    size_t room;
    unsigned char *blob; /* [blob_bytes] */
    size_t blob_bytes, blob_room;
    int64_t eot;
    uint64_t hash;
    uint32_t byte_id[256];
    /* bytes -> id, of tokens that text may give: open addressing, TOKENIZER_NONE is empty */
    uint32_t *by_bytes; /* [slots] */
    size_t slots, longest;
    /* Merges of a list: pair -> rank, which is its number. Without a list any neighbours merge whose joined
     * bytes are a token, and the rank is that token's id. */
    size_t merges;
    uint32_t *merged;    /* [merges]: id of the result */
    uint64_t *pair;      /* [pair_slots]: left id << 32 | right id */
    uint32_t *pair_rank; /* [pair_slots]; TOKENIZER_NONE: empty */
    size_t pair_slots;
    int whole_first; /* a piece that is a token is not taken apart */
    /* added tokens that are taken from text before it is cut: [added], longest first */
    tokenizer_added_t *added;
    size_t added_count;
    tokenizer_split_t *split; /* NULL: text is one piece */
};

/* The alphabet in which GPT-2's files write bytes: a byte is this code point (below 0x144), and back; -1:
 * none. */
uint32_t tokenizer_letter(unsigned byte);
int tokenizer_unletter(uint32_t letter);

/* Gives token `id` these bytes. FORMAT: it has others, or is out of range; `path` is for the message. */
gyre_status_t tokenizer_add(model_tokenizer_t *tokenizer, const char *path, size_t id, const void *bytes,
                            size_t count, int special);
/* Builds the map of bytes when all tokens are there. FORMAT: a byte has no token, or two ids that text may
 * give have the same bytes. */
gyre_status_t tokenizer_index(model_tokenizer_t *tokenizer, const char *path);
/* The id of a token that text may give; TOKENIZER_NONE. */
uint32_t tokenizer_lookup(const model_tokenizer_t *tokenizer, const unsigned char *bytes, size_t count);
/* Room for merges 0 .. most - 1, after tokenizer_index; then each in turn. FORMAT: the pair has come
 * before. */
gyre_status_t tokenizer_merges(model_tokenizer_t *tokenizer, size_t most);
gyre_status_t tokenizer_merge(model_tokenizer_t *tokenizer, const char *path, uint32_t left, uint32_t right);
/* Rank of a pair in the list; TOKENIZER_NONE. */
uint32_t tokenizer_rank(const model_tokenizer_t *tokenizer, uint32_t left, uint32_t right);

/* Sets the token between documents, by the names that it has in published vocabularies. */
void tokenizer_find_eot(model_tokenizer_t *tokenizer);

gyre_status_t tokenizer_read_merges(model_tokenizer_t *tokenizer, const char *path, const char *text,
                                    size_t bytes);
gyre_status_t tokenizer_read_tiktoken(model_tokenizer_t *tokenizer, const char *path, const char *text,
                                      size_t bytes, const char *pattern);
gyre_status_t tokenizer_read_json(model_tokenizer_t *tokenizer, const char *path);

/* ---- pieces -------------------------------------------------------------------------------------------- */

/* Names of patterns: gpt2, cl100k, o200k. NULL: unknown. */
const char *tokenizer_pattern(const char *name);
/* Appends a step: text is cut at the matches of the pattern; the text between two matches is a piece, too.
 * FORMAT: PCRE2 does not accept the pattern. `path` is for the message. */
gyre_status_t tokenizer_split_add(tokenizer_split_t **split, const char *path, const char *pattern);
void tokenizer_split_destroy(tokenizer_split_t *split);
uint64_t tokenizer_split_hash(const tokenizer_split_t *split, uint64_t hash);

typedef struct tokenizer_cutter tokenizer_cutter_t; /* one thread's */
gyre_status_t tokenizer_cutter_create(const tokenizer_split_t *split, tokenizer_cutter_t **out);
void tokenizer_cutter_destroy(tokenizer_cutter_t *cutter);
/* Calls take(user, piece, bytes) for each piece of the text, in order, until one fails. Runs of bytes that
 * are not UTF-8 are pieces; the text ends before them and begins anew after them. */
typedef gyre_status_t (*tokenizer_take_fn)(void *user, const unsigned char *piece, size_t bytes);
gyre_status_t tokenizer_cut(tokenizer_cutter_t *cutter, const unsigned char *text, size_t bytes,
                            tokenizer_take_fn take, void *user);

#endif
