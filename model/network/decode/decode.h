/* SPDX-License-Identifier: Apache-2.0 */
/* model/network/decode.h: a whole model on one thread that reads tokens one after another and keeps the keys
 * and values of those before: a further token costs the products of one position, not of a sequence.
 *
 * What a stage computes (model/network/stage/stage.h), in float, without its layouts and its bits: shapes of
 * products differ, and so may the last bits. An expert takes as many positions of a sequence as there. */
#ifndef MODEL_NETWORK_DECODE_H
#define MODEL_NETWORK_DECODE_H

#include "model/network/params.h"

typedef struct model_decoder model_decoder_t;

/* params: a whole table; weights [params->total]; both must outlive the decoder. Memory: 2 layers config.seq
 * (channels of keys) floats, and work for one layer. NO_MEMORY, UNSUPPORTED. */
gyre_status_t model_decoder_create(const model_params_t *params, const float *weights, model_decoder_t **out);
void model_decoder_destroy(model_decoder_t *decoder);

/* Forgets all tokens: the next one is at position 0. */
void model_decoder_reset(model_decoder_t *decoder);
/* Tokens since then. */
size_t model_decoder_length(const model_decoder_t *decoder);

/* Reads n >= 1 further tokens. Each sees those before it and itself; with `open` each of the n sees all n: a
 * prefix, which only a model with prefixes has, and which comes first. logits [V]: of the last one. INVALID:
 * together more than config.seq, a token outside of the vocabulary, or a prefix that must not be. */
gyre_status_t model_decoder_read(model_decoder_t *decoder, const model_token_t *tokens, size_t n, int open,
                                 float *logits);

#endif
