/* SPDX-License-Identifier: Apache-2.0 */
/* model/network/decode/decode.h: layers of a model on one rank that read tokens of some sequences, a few at a
 * time, and keep keys and values: a further token costs the products of one position, not of a sequence.
 *
 * The arithmetic is that of a stage's forward (model/network/stage/stage.h), in float, and so are the bits:
 * of sums over leaves and ranks (the same tree), of products (model/kernels/order.h), of each kernel, and of
 * tensors in 16 bits. They do not depend on how many tokens are read at a time, on the other sequences, on
 * the degree of tensor parallelism, or on where the model is cut into runs of layers. An expert takes as many
 * positions of a sequence as there. */
#ifndef MODEL_NETWORK_DECODE_DECODE_H
#define MODEL_NETWORK_DECODE_DECODE_H

#include "model/network/params.h"
#include "model/network/stage/stage.h"

typedef struct model_decoder model_decoder_t;

typedef struct {
    const model_params_t *params; /* the rank's table */
    const float *weights;         /* [params->total]; in 16 bits where `precision` says so */
    model_tp_t tp;                /* without sequence parallelism */
    size_t first, layers;         /* of the whole model */
    int embed, head;              /* 1: has the embedding before its layers, final norm and head after them */
    size_t slots;                 /* sequences that it has keys and values of */
    /* of a sequence that are read, at most; 0: as many as the model has. Bits do not depend on it */
    size_t positions;
    size_t rows; /* tokens of a call, at most */
    model_precision_t precision;
    /* 1: does not look for the orders of products, which takes seconds for large models; the last bits may
     * differ from a stage's */
    int fast;
    int warns; /* 1: logs a warning before it looks for orders, if that takes minutes */
    /* Threads for which attention has memory to work in; 0: 1. Those of the caller's team
     * (base/thread/team.h) take heads, and columns of products. */
    size_t threads;
} model_decoder_config_t;

/* Tokens that follow those which the sequence in `slot` has. Each sees those before it and itself; with
 * `open` each of them sees all: a prefix, which only a model with prefixes has, and which comes first. */
typedef struct {
    size_t slot;
    const model_token_t *tokens; /* [count] */
    size_t count;
    int open;
} model_piece_t;

/* params, weights and the communicator must outlive the decoder. Memory: keys and values of slots x
 * `positions`, rounded up to blocks of attention, work for `rows` positions, and a copy of the head's
 * weights. NO_MEMORY. */
gyre_status_t model_decoder_create(const model_decoder_config_t *config, model_decoder_t **out);
void model_decoder_destroy(model_decoder_t *decoder);
/* The first product, but for routers', whose order was not found: reading some tokens costs the product of a
 * whole sequence. NULL: all were found. Static storage. */
const char *model_decoder_slow(const model_decoder_t *decoder);

/* Forgets the tokens of a sequence: the next one is at position 0. */
void model_decoder_reset(model_decoder_t *decoder, size_t slot);
/* Tokens since then. */
size_t model_decoder_length(const model_decoder_t *decoder, size_t slot);

/* Reads pieces of different slots, n tokens together. x_in [n,C]: the residual stream, without embedding;
 * x_out [n,C]: without head. logits [pieces, vocab_padded], with head: of each piece's last token, on every
 * rank of the group. Collective over the group. INVALID: more tokens than `positions` or rows, a token
 * outside of the vocabulary, a prefix that must not be. */
gyre_status_t model_decoder_read(model_decoder_t *decoder, const model_piece_t *piece, size_t pieces,
                                 const float *x_in, float *x_out, float *logits);

/* log p(token), from logits [vocab_padded] of the position before it: the bits of that position's loss in a
 * stage, negated. scratch [vocab_padded + leaves]. */
float model_log_probability(const model_config_t *config, const float *logits, model_token_t token,
                            float *scratch);

#endif
