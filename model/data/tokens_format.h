/* SPDX-License-Identifier: Apache-2.0 */
/* model/data/tokens_format.h: what the readers of token files share (this folder only). */
#ifndef MODEL_DATA_TOKENS_FORMAT_H
#define MODEL_DATA_TOKENS_FORMAT_H

#include <endian.h>
#include <string.h>

#include "model/data/tokens.h"

#define TOKENS_VOCAB_MOST INT32_MAX /* an id is a model_token_t */

/* Gyre's header: all numbers little-endian. docs/data.md has the table. */
/* its bytes show damage by text mode, 7-bit transfer and cutting */
#define TOKENS_GYRE_MAGIC   "\x89GYT\r\n\x1a\n"
#define TOKENS_GYRE_VERSION 1
#define TOKENS_GYRE_MASKED  2 /* the version of files that say which ids are learned */
#define TOKENS_GYRE_HEADER  256
enum {
    TOKENS_AT_MAGIC = 0,
    TOKENS_AT_VERSION = 8,
    TOKENS_AT_BITS = 12,
    TOKENS_AT_COUNT = 16,
    TOKENS_AT_DOCUMENTS = 24,
    TOKENS_AT_VOCAB = 32,
    TOKENS_AT_DATA = 40,
    TOKENS_AT_TABLE = 48,
    TOKENS_AT_DATA_HASH = 56,
    TOKENS_AT_TABLE_HASH = 64,
    TOKENS_AT_TOKENIZER_HASH = 72,
    TOKENS_AT_EOT = 80,
    TOKENS_AT_NAME = 88,
    TOKENS_AT_MASK = 224,      /* of version 2, whose name is shorter */
    TOKENS_AT_MASK_HASH = 232, /* the same */
    TOKENS_AT_SIZE = 240,
    TOKENS_AT_HEADER_HASH = 248
};
_Static_assert(TOKENS_AT_NAME + MODEL_TOKENS_NAME == TOKENS_AT_SIZE, "the name ends where the size begins");

static inline uint32_t tokens_u32(const unsigned char *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return le32toh(value);
}
static inline uint64_t tokens_u64(const unsigned char *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return le64toh(value);
}
static inline void tokens_put_u32(unsigned char *at, uint32_t value)
{
    value = htole32(value);
    memcpy(at, &value, sizeof value);
}
static inline void tokens_put_u64(unsigned char *at, uint64_t value)
{
    value = htole64(value);
    memcpy(at, &value, sizeof value);
}

/* The format that the first `count` bytes of a file identify; AUTO: no format. An .idx counts as
 * Megatron's. */
model_tokens_format_t tokens_sniff(const unsigned char *head, size_t count);
#define TOKENS_SNIFF 12

/* Maps `path` whole as file number tokens->maps and counts it there; a small file, or one after very many, is
 * read into memory. Empty files are FORMAT. */
gyre_status_t tokens_map(model_tokens_t *tokens, const char *path);
/* Takes the last of them back, which is in no part. */
void tokens_unmap_last(model_tokens_t *tokens);
/* Frees what tokens_map has mapped and the list of parts, but not `tokens` itself. */
void tokens_unmap(model_tokens_t *tokens);
/* Appends ids [count] at `at` in file number `file`; joins them with the last part if they lie right after
 * it. */
gyre_status_t tokens_append(model_tokens_t *tokens, size_t file, const unsigned char *at, uint64_t count);

/* The part that holds id number `at`. */
size_t tokens_find_part(const model_tokens_t *tokens, uint64_t at);

/* A text file, or a folder of them: all of the stream. sure: a file that does not look like text is one all
 * the same; else it is INVALID. */
gyre_status_t tokens_open_text(model_tokens_t *tokens, const char *path, int sure);
/* One more file of the format. */
gyre_status_t tokens_open_gyre(model_tokens_t *tokens, const char *path);
gyre_status_t tokens_open_llmc(model_tokens_t *tokens, const char *path);
gyre_status_t tokens_open_megatron(model_tokens_t *tokens,
                                   const char *path); /* .idx, .bin, or neither ending */
gyre_status_t tokens_open_nanogpt(model_tokens_t *tokens, const char *path);

#endif
