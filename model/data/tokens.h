/* SPDX-License-Identifier: Apache-2.0 */
/* model/data/tokens.h: a stream of token ids, read in place from files of several formats (docs/data.md, byte
 * by byte).
 *
 *   text      bytes are ids; a file or a folder of files, read recursively and joined in the order of
 *             their paths. Skipped in folders: names that begin with a dot, links (they would repeat
 *             text), and files with a zero byte in their first 8 KiB. One such file alone is INVALID, unless
 *             `format` is TEXT
 *   gyre      Gyre's own, .gyt: has its vocabulary, tokenizer and documents, and checksums
 *   llmc      llm.c's shards: GPT-2's ids in 16 bits, Llama 3's in 32
 *   megatron  Megatron's pairs NAME.bin and NAME.idx
 *   nanogpt   nanoGPT's 16-bit ids without a header; nothing identifies it, so it must be asked for
 *
 * Files are mapped, not read: opening reads the headers only, and many ranks of a host share the page cache.
 * Those of less than 64 KiB are read into memory, since the kernel allows a process a limited number of maps.
 * A mapped file must not be cut while it is open (the kernel then ends the reader with SIGBUS). Replacing it
 * by renaming is safe. */
#ifndef MODEL_DATA_TOKENS_H
#define MODEL_DATA_TOKENS_H

#include <stddef.h>
#include <stdint.h>

#include <gyre/status.h>

#include "model/types.h"

typedef enum {
    MODEL_TOKENS_AUTO, /* by the first bytes of the files; a file that nothing identifies is text */
    MODEL_TOKENS_TEXT,
    MODEL_TOKENS_GYRE,
    MODEL_TOKENS_LLMC,
    MODEL_TOKENS_MEGATRON,
    MODEL_TOKENS_NANOGPT
} model_tokens_format_t;

const char *model_tokens_format_name(model_tokens_format_t format);
/* Returns 0 for an unknown name. */
int model_tokens_format_find(const char *name, model_tokens_format_t *out);

/* How an id is stored; little-endian. */
typedef enum {
    MODEL_TOKENS_U8,
    MODEL_TOKENS_I8,
    MODEL_TOKENS_U16,
    MODEL_TOKENS_I16,
    MODEL_TOKENS_I32,
    MODEL_TOKENS_U32,
    MODEL_TOKENS_I64
} model_tokens_type_t;
size_t model_tokens_width(model_tokens_type_t type); /* bytes */

/* A mapped file, or a small one in memory. */
typedef struct {
    char *path;               /* owned: what holds the ids */
    const unsigned char *map; /* [bytes] */
    unsigned char *copy;      /* the same, if it is owned memory; else NULL */
    size_t bytes;
    model_tokens_type_t type;
    uint64_t hash[2];               /* gyre: of ids and of documents, from the header */
    const unsigned char *documents; /* gyre: u64 [documents + 1] in the map */
    uint64_t document_count;
    const unsigned char *ids, *mask; /* gyre: where its ids begin; bit i: id i is learned. NULL: all are */
} model_tokens_file_t;

/* Ids that lie side by side. */
typedef struct {
    const unsigned char *at; /* of any alignment */
    uint64_t first, count;   /* number of the first of them in the stream */
    size_t file;
} model_tokens_part_t;

#define MODEL_TOKENS_NAME 152

typedef struct {
    model_tokens_format_t format;      /* never AUTO */
    uint64_t count;                    /* ids */
    uint64_t bytes;                    /* of all ids */
    uint64_t documents;                /* 0: the format does not have it */
    size_t vocab;                      /* every id is below it; 0: the format does not have it */
    char tokenizer[MODEL_TOKENS_NAME]; /* name of the ids' tokenizer; "": the format does not have it */
    uint64_t tokenizer_hash;           /* of its definition (model/tokenizer/tokenizer.h); 0: unknown */
    int64_t eot;                       /* id between documents; -1: no such id, or unknown */
    size_t files, skipped;             /* skipped: files in a text folder that do not look like text */
    size_t parts;
    char *path;                /* owned: as asked for */
    model_tokens_file_t *file; /* [maps] */
    model_tokens_part_t *part; /* [parts], by `first` */
    size_t maps;               /* entries of `file` */
    int masked;                /* 1: some file says which ids are learned */
} model_tokens_t;

/* Opens `path`: a file, a folder of files of one format, a pattern of them (glob(7), used if there is no such
 * file), for Megatron's also the name without .bin and .idx. Several files are one stream, in the order of
 * their paths. NOT_FOUND, IO, NO_MEMORY, FORMAT (truncated or foreign; names the file and the position),
 * INVALID. */
gyre_status_t model_tokens_open(const char *path, model_tokens_format_t format, model_tokens_t **out);
void model_tokens_close(model_tokens_t *tokens);

/* The path of the file whose map holds address `at`; NULL: it is in none. Also for signal handlers. */
const char *model_tokens_mapped(const model_tokens_t *tokens, const void *at);

/* Copies ids first .. first + count - 1, which must be in the stream, to out[count]. FORMAT: an id is
 * negative or not below `vocab`; the message names file and position, and all ids in out are below
 * `vocab`. */
gyre_status_t model_tokens_read(const model_tokens_t *tokens, uint64_t first, size_t count, size_t vocab,
                                model_token_t *out);

/* Whether ids first .. first + count - 1, which must be in the stream, are learned: out[count] is 1 or 0. */
void model_tokens_learned(const model_tokens_t *tokens, uint64_t first, size_t count, unsigned char *out);
/* The first id from `first` on that is learned, before `end`; `end`: no id is. */
uint64_t model_tokens_next_learned(const model_tokens_t *tokens, uint64_t first, uint64_t end);

/* Reads everything and checks it: checksums if the format has them, documents in order, every id below
 * `vocab` (0: not negative). *most: the largest id. FORMAT. */
gyre_status_t model_tokens_verify(const model_tokens_t *tokens, size_t vocab, model_token_t *most);

/* A hash that identifies the ids. Of text up to 64 MiB: base_hash64 of all its bytes. Else of formats, sizes
 * and content. Content of gyre's files: the hashes in their headers. Of other files: all bytes up to 64 MiB;
 * beyond that 1,024 pieces of 64 KiB spread evenly over each file, its first and its last among them.
 * NO_MEMORY. */
gyre_status_t model_tokens_hash(const model_tokens_t *tokens, uint64_t *out);

/* ---- writing Gyre's own format ------------------------------------------------------------------------- */

typedef struct model_tokens_writer model_tokens_writer_t;

typedef struct {
    size_t vocab;          /* decides the width: 16 bits up to 65,536 */
    const char *tokenizer; /* cut at MODEL_TOKENS_NAME - 1 bytes */
    uint64_t tokenizer_hash;
    int64_t eot; /* written to the header; -1: no such id */
} model_tokens_header_t;

/* Writes a file next to `path` (base/file.h); finish renames it. INVALID (vocabulary), NO_MEMORY, IO. */
gyre_status_t model_tokens_create(const char *path, const model_tokens_header_t *header,
                                  model_tokens_writer_t **out);
/* One more document. learned [count]: 1 if an id is a target of training, else 0; NULL: all are. INVALID: an
 * id is not below the vocabulary; IO; NO_MEMORY. */
gyre_status_t model_tokens_add(model_tokens_writer_t *writer, const model_token_t *ids,
                               const unsigned char *learned, size_t count);
/* Frees the writer in any case. */
gyre_status_t model_tokens_finish(model_tokens_writer_t *writer);
void model_tokens_abandon(model_tokens_writer_t *writer);

#endif
