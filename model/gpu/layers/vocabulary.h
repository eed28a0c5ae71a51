/* SPDX-License-Identifier: Apache-2.0 */
/* model/gpu/layers/vocabulary.h: both ends of the model on the GPU: the embedding, and the cross-entropy over
 * a vocabulary that is cut into leaves and over ranks (Shoeybi et al. 2019, section 3). Launchers enqueue on
 * `stream`.
 *
 * The gradient of the logits is written over them, so that neither softmax nor gradient has a tensor apart.
 * vocabulary.cu has the embedding, loss.cu the cross-entropy. */
#ifndef MODEL_GPU_LAYERS_VOCABULARY_H
#define MODEL_GPU_LAYERS_VOCABULARY_H

#include <stdint.h>

#include "model/gpu/layers/norm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- embedding ---- */

typedef struct {
    model_cuda_type_t type;              /* of wte, wpe, out */
    size_t sequences, T, rows, channels; /* rows of each sequence here: positions begin .. begin + rows - 1 */
    size_t begin;
    const int32_t *tokens; /* device, [sequences][T] */
    const void *wte;       /* rows first .. first + vocab - 1 of the table, [vocab, channels] */
    size_t first, vocab;
    const void *wpe; /* of position 0, [T, channels]; NULL: no position embedding */
    /* [sequences][rows][channels] token embeddings, instead of wte; NULL: look up */
    const float *sum;
    void *out; /* [sequences][rows][channels] */
    model_cuda_dropout_t drop;
} model_cuda_embed_t;
/* out = drop(token + position). Without `sum` every token must be here. */
gyre_status_t model_cuda_embed(const model_cuda_embed_t *embed, struct CUstream_st *stream);
/* part [sequences][T][channels] = the tokens' rows, -0.0 where another rank has them: what the group sums.
 * Reads type, sequences, T, channels, tokens, wte, first, vocab. */
gyre_status_t model_cuda_embed_part(const model_cuda_embed_t *embed, float *part, struct CUstream_st *stream);

/* dw [vocab, channels], zeroed before: its rows of tokens that occur become the sums of the rows d [T,
 * channels] of one sequence or several, times `shrink`. segments [T], made by model_cuda_segments, has the
 * positions of each token side by side, so that their rows are added in their order without atomics. */
gyre_status_t model_cuda_embed_back(model_cuda_type_t type, float *dw, size_t first, size_t vocab,
                                    const void *d, const int32_t *tokens, const int32_t *segments, size_t T,
                                    size_t channels, float shrink, struct CUstream_st *stream);
/* On the host: fills segments [T] from tokens [T]: the positions of each token in their order, tokens in the
 * order of their first positions. A token's first position t is written as -1 - t. last [V]: -1 in every
 * place, before and after. */
void model_cuda_segments(int32_t *segments, const int32_t *tokens, size_t T, int32_t *last);

/* out [count] floats = d [terms][count] of `type`, terms >= 1, added one after another. */
gyre_status_t model_cuda_widen(model_cuda_type_t type, float *out, const void *d, size_t terms, size_t count,
                               struct CUstream_st *stream);

/* ---- cross-entropy ---- */

typedef struct {
    model_cuda_type_t type;      /* S, of the logits and their gradient */
    size_t sequences, T;         /* positions in all: sequences T */
    size_t leaves, width, first; /* leaves here, vocabulary of each, the first leaf's number in the model */
    size_t ld;                   /* elements between rows of the logits */
    size_t vocab;                /* tokens of the model: later rows are padding */
    /* S [leaves][sequences T][width], rows ld >= width apart, each at a multiple of 16 bytes; what lies
     * between rows may be overwritten */
    void *logits;
    float *leaf; /* [2][leaves][sequences T]: largest logit of a leaf, and sum of e^(logit - that) */
    float *max;  /* [sequences T] */
    float *pair; /* [2][sequences T]: sum over the vocabulary of e^(logit - max); the target's logit */
    const int32_t *targets; /* device, [sequences][T] */
    /* device, [sequences]: positions before it are not learned; NULL: all are learned */
    const uint32_t *prefix;
    double *loss; /* device, [sequences] */
} model_cuda_loss_t;
/* With all leaves here: leaf, max and pair, and with `back` the logits become the gradient of the mean loss.
 * One kernel, which reads a row once as far as shared memory holds it. */
gyre_status_t model_cuda_loss(const model_cuda_loss_t *loss, int back, struct CUstream_st *stream);
/* The same with leaves on several ranks, to the same bits, in three steps. First leaf, and max over the
 * leaves here, which the group takes the maximum of. */
gyre_status_t model_cuda_loss_max(const model_cuda_loss_t *loss, struct CUstream_st *stream);
/* pair, of the leaves here: the group sums it (the target's logit is -0.0 where it is not). */
gyre_status_t model_cuda_loss_pair(const model_cuda_loss_t *loss, struct CUstream_st *stream);
/* The logits become the gradient of the mean loss. */
gyre_status_t model_cuda_loss_back(const model_cuda_loss_t *loss, struct CUstream_st *stream);
/* loss [sequences]: the mean over positions of -log p(target), from max and pair. */
gyre_status_t model_cuda_loss_mean(const model_cuda_loss_t *loss, struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
