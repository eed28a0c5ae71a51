/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-tokenize/tokenize.h: shared by the parts of gyre-tokenize.
 *
 *   input.c    files, folders and lines become batches of documents
 *   encode.c   batches become tokens on several threads, and a file, in their order
 *   show.c     the content of a token file, and its text */
#ifndef GYRE_TOKENIZE_H
#define GYRE_TOKENIZE_H

#include <stddef.h>
#include <stdint.h>

#include <gyre/gyre.h>

#include "model/data/files.h"
#include "model/tokenizer/tokenizer.h"
#include "model/data/tokens.h"

typedef struct {
    const char *tokenizer, *out, *key; /* key: of --jsonl; NULL: files are documents */
    const char *decode, *info;         /* the token file; NULL: another task */
    model_tokens_format_t format;      /* of decode and info */
    uint64_t from, count, threads;     /* count UINT64_MAX: to the end */
    int eot, quiet, specials;
    char *const *inputs; /* [input_count] */
    size_t input_count;
} tokenize_options_t;

/* Consecutive documents: a file, or lines of one. */
typedef struct {
    const char *path;    /* borrowed: their file */
    uint64_t line;       /* 1-based number of the first; 0: the text is one document */
    unsigned char *text; /* [bytes], owned by the batch, room for `room` */
    size_t bytes, room;
} tokenize_batch_t;

/* Where documents come from. */
typedef struct tokenize_input tokenize_input_t;
/* Lists folders (as gyre-train does) and checks that all files are there. NOT_FOUND, IO, INVALID,
 * NO_MEMORY. */
gyre_status_t tokenize_input_open(const tokenize_options_t *options, tokenize_input_t **out);
void tokenize_input_close(tokenize_input_t *input);
/* The next batch; *more 0: there are no more. Batches do not depend on the number of threads. */
gyre_status_t tokenize_input_next(tokenize_input_t *input, tokenize_batch_t *batch, int *more);
size_t
tokenize_input_skipped(const tokenize_input_t *input); /* files in folders that do not look like text */
uint64_t tokenize_input_bytes(const tokenize_input_t *input); /* of all files; 0: unknown (standard input) */

gyre_status_t tokenize_encode(const tokenize_options_t *options);
gyre_status_t tokenize_info(const tokenize_options_t *options);
gyre_status_t tokenize_decode(const tokenize_options_t *options);

#endif
