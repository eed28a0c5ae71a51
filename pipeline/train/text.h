/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/train/text.h: between text and token ids: the tokenizer of a run, its prompt, its sample. */
#ifndef PIPELINE_TRAIN_TEXT_H
#define PIPELINE_TRAIN_TEXT_H

#include <stddef.h>

#include "model/data/data.h"
#include "model/tokenizer/tokenizer.h"
#include "pipeline/config/config.h"
#include "pipeline/load/tokenizer.h"

/* 1: somebody has said what a sample of text goes on from (a log's config says the default, too). */
int train_text_prompted(const train_config_t *options);
/* The run's tokenizer: --tokenizer, or bytes where the data and what --load has learned are. *out NULL: it is
 * not known. INVALID: the data says that it was written with another; there is a prompt, and it is not
 * known. */
gyre_status_t train_text_open(const train_config_t *options, const model_data_t *data,
                              model_tokenizer_t **out);
/* Whether the data may be of the tokenizer of --load's model, of this shape; own: the run's tokenizer, which
 * may be NULL. INVALID: it is not, or is text and the model's ids are not bytes, or the
 * model's tokenizer cannot be read and --tokenizer does not say what the data's ids are. */
gyre_status_t train_text_check(const train_config_t *options, const model_data_t *data,
                               const model_config_t *shape, const model_tokenizer_t *own);
/* The tokenizer of the data: its own word, or that of --tokenizer (`own`, which may be NULL). FORMAT,
 * NO_MEMORY. */
gyre_status_t train_text_identify(const model_data_t *data, const model_tokenizer_t *own,
                                  pipe_tokenizer_t *out);
/* The same as train_text_check for --load's checkpoint, which says what it has learned; known: the data's
 * tokenizer. INVALID: they are not the same, as far as both are known. */
gyre_status_t train_text_compare(const train_config_t *options, const model_data_t *data, size_t vocab,
                                 const pipe_tokenizer_t *known, const pipe_tokenizer_t *learned);
/* The prompt's ids [*count], with room for `more`; caller frees. INVALID: one is not below the model's
 * vocabulary. */
gyre_status_t train_text_prompt(const model_tokenizer_t *tokenizer, const char *prompt, size_t vocab,
                                size_t more, model_token_t **tokens, size_t *count);
/* What ids stand for, [*bytes]; one that stands for nothing, which a padded vocabulary has, is byte 0xff.
 * Caller frees. NULL: no memory. */
unsigned char *train_text_bytes(const model_tokenizer_t *tokenizer, const model_token_t *tokens, size_t count,
                                size_t *bytes);
/* Ids as train_readable has their bytes; caller frees. NULL: no memory. */
char *train_text_of(const model_tokenizer_t *tokenizer, const model_token_t *tokens, size_t count);

#endif
