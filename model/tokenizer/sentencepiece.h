/* SPDX-License-Identifier: Apache-2.0 */
/* model/tokenizer/sentencepiece.h: SentencePiece's .model files, by its library where the build has it
 * (SENTENCEPIECE=1; sentencepiece.cc), else refused (no_sentencepiece.c). This folder only. */
#ifndef MODEL_TOKENIZER_SENTENCEPIECE_H
#define MODEL_TOKENIZER_SENTENCEPIECE_H

#include <stddef.h>
#include <stdint.h>

#include <gyre/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tokenizer_library tokenizer_library_t;

/* FORMAT: the library does not take the file's contents; NO_MEMORY; INVALID: the build is without it. `path`
 * is for the message. */
gyre_status_t tokenizer_library_open(const char *path, const void *model, size_t bytes,
                                     tokenizer_library_t **out);
void tokenizer_library_close(tokenizer_library_t *library);

int tokenizer_library_size(const tokenizer_library_t *library);  /* ids are below */
int tokenizer_library_end(const tokenizer_library_t *library);   /* id of the end of a text; -1: none */
int tokenizer_library_begin(const tokenizer_library_t *library); /* of its beginning; -1: none */
/* The piece of an id, with U+2581 for spaces; the library's. */
const char *tokenizer_library_piece(const tokenizer_library_t *library, int id, size_t *bytes);
typedef enum { LIBRARY_NORMAL, LIBRARY_CONTROL, LIBRARY_UNKNOWN, LIBRARY_BYTE } tokenizer_library_kind_t;
tokenizer_library_kind_t tokenizer_library_kind(const tokenizer_library_t *library, int id);

/* The ids of a text; threads may call it at the same time. The caller frees *ids. `goes_on`: the text is the
 * continuation of another, and gets no space in front. */
gyre_status_t tokenizer_library_encode(tokenizer_library_t *library, int goes_on, const void *text,
                                       size_t bytes, int32_t **ids, size_t *count);
/* The text of ids, with a NUL after it that is not counted; the caller frees it. */
gyre_status_t tokenizer_library_decode(const tokenizer_library_t *library, const int32_t *ids, size_t count,
                                       unsigned char **text, size_t *bytes);

#ifdef __cplusplus
}
#endif

#endif
