/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-tokenize/tokenize.h: shared by the parts of gyre-tokenize.
 *
 *   input.c    files, folders and lines become batches of documents
 *   lines.c    a line of JSON becomes a document
 *   encode.c   batches become tokens on several threads, and a file, in their order
 *   show.c     the content of a token file, and its text */
#ifndef GYRE_TOKENIZE_H
#define GYRE_TOKENIZE_H

#include <stddef.h>
#include <stdint.h>

#include <gyre/gyre.h>

#include "model/data/files.h"
#include "model/chat/conversation.h"
#include "model/data/tokens.h"

enum { TOKENIZE_LEARN_ANSWERS, TOKENIZE_LEARN_ALL };

typedef struct {
    const char *tokenizer, *out;
    int jsonl;                     /* lines are documents, else files are */
    const char *key;               /* of --jsonl; NULL: what the objects have */
    const char *template;          /* of conversations; NULL: the one of the tokenizer's folder */
    const char *date;              /* YYYY-MM-DD, of templates that ask for the day; NULL: none */
    int learn;                     /* TOKENIZE_LEARN_: of conversations, and of prompts' completions */
    uint64_t context;              /* longer ones of these are left out */
    const char *decode, *info;     /* the token file; NULL: another task */
    model_tokens_format_t format;  /* of decode and info */
    uint64_t from, count, threads; /* count UINT64_MAX: to the end */
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

/* Ids of documents, one after another; zeros to begin with, and the owner frees the arrays. */
typedef struct {
    model_ids_t ids;
    size_t *end; /* [count] first id after each */
    size_t count, room;
    uint64_t longer, unlearned; /* left out: longer than the context; without a token that is learned */
} tokenize_documents_t;

/* What one thread encodes with. */
typedef struct {
    const tokenize_options_t *options;
    const model_tokenizer_t *tokenizer;
    model_encoder_t *encoder;
    void *ring; /* encode.c's */
} tokenize_coder_t;

typedef struct {
    const char *path;
    uint64_t number; /* 1-based */
    const char *text;
    size_t length;
} tokenize_line_t;

/* encode.c: the chat template, which is looked for when the first conversation comes. Errors are not logged,
 * as those of the calls below. */
gyre_status_t tokenize_coder_chat(tokenize_coder_t *coder, const model_chat_t **out);

/* lines.c: appends the document that the text, or the line's JSON object, is. FORMAT, INVALID: the text names
 * the line. NO_MEMORY. */
gyre_status_t tokenize_text(tokenize_coder_t *coder, const char *text, size_t bytes,
                            tokenize_documents_t *out);
gyre_status_t tokenize_line(tokenize_coder_t *coder, const tokenize_line_t *line, tokenize_documents_t *out);

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
