/* SPDX-License-Identifier: Apache-2.0 */
/* model/tokenizer/json.h: what the two readers of tokenizer.json share (this folder only). */
#ifndef MODEL_TOKENIZER_JSON_H
#define MODEL_TOKENIZER_JSON_H

#include "base/text/json.h"
#include "model/tokenizer/internal.h"

/* What is refused: KEY is VALUE, and what there is. */
gyre_status_t tokenizer_unsupported(const char *path, const char *key, const json_t *value, const char *why);
static inline int tokenizer_absent(const json_t *value)
{
    return !value || json_is_null(value);
}
/* The field "type", or "". */
const char *tokenizer_type_of(const json_t *value);

/* json_text.c. Normalizers and pre-tokenizers; the latter say whether the model is one of bytes (*bytes). */
gyre_status_t tokenizer_json_normalizer(model_tokenizer_t *tokenizer, const char *path, const json_t *value);
gyre_status_t tokenizer_json_steps(model_tokenizer_t *tokenizer, const char *path, const json_t *value,
                                   int *bytes);
/* folder.c. What a post-processor puts in front of a text goes in front of tokenizer->begin. */
void tokenizer_json_begin(model_tokenizer_t *tokenizer, const json_t *processor);
/* What decoding writes for each token, when all are there. */
gyre_status_t tokenizer_json_decoder(model_tokenizer_t *tokenizer, const char *path, const json_t *value);

#endif
