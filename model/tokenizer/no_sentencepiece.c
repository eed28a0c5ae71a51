/* SPDX-License-Identifier: Apache-2.0 */
/* model/tokenizer/no_sentencepiece.c: .model files in a build without SentencePiece's library. */
#include "model/tokenizer/sentencepiece.h"

#include "base/error.h"

gyre_status_t tokenizer_library_open(const char *path, const void *model, size_t bytes,
                                     tokenizer_library_t **out)
{
    (void)model;
    (void)bytes;
    (void)out;
    return gyre_fail(
        GYRE_ERR_INVALID,
        "%s is a model of SentencePiece, which this build cannot read: take the tokenizer.json of "
        "the same model, or install libsentencepiece-dev and build again (SENTENCEPIECE=1)",
        path);
}

void tokenizer_library_close(tokenizer_library_t *library)
{
    (void)library;
}

/* No library is ever open. */

int tokenizer_library_size(const tokenizer_library_t *library)
{
    (void)library;
    return 0;
}

int tokenizer_library_end(const tokenizer_library_t *library)
{
    (void)library;
    return -1;
}

int tokenizer_library_begin(const tokenizer_library_t *library)
{
    (void)library;
    return -1;
}

const char *tokenizer_library_piece(const tokenizer_library_t *library, int id, size_t *bytes)
{
    (void)library;
    (void)id;
    *bytes = 0;
    return "";
}

tokenizer_library_kind_t tokenizer_library_kind(const tokenizer_library_t *library, int id)
{
    (void)library;
    (void)id;
    return LIBRARY_NORMAL;
}

gyre_status_t tokenizer_library_encode(tokenizer_library_t *library, int goes_on, const void *text,
                                       size_t bytes, int32_t **ids, size_t *count)
{
    (void)library;
    (void)goes_on;
    (void)text;
    (void)bytes;
    (void)ids;
    (void)count;
    return GYRE_ERR_INVALID;
}

gyre_status_t tokenizer_library_decode(const tokenizer_library_t *library, const int32_t *ids, size_t count,
                                       unsigned char **text, size_t *bytes)
{
    (void)library;
    (void)ids;
    (void)count;
    (void)text;
    (void)bytes;
    return GYRE_ERR_INVALID;
}
