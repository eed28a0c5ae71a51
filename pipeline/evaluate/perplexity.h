/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/evaluate/perplexity.h: the log-probability of each token of a text, by the trainer's own forward
 * (model/network/stage/stage.h) over windows of the model's T positions.
 *
 * Window w begins at token w * stride and gives log-probabilities of the T tokens after its first one. Each
 * token but the text's first is scored once: in the first window that has it.
 *
 *     T = 8, stride 4, 14 tokens:
 *     window 0 reads tokens 0 .. 7 and scores 1 .. 8
 *     window 1 reads tokens 4 .. 11 and scores 9 .. 12
 *     window 2 reads tokens 8 .. 12 and scores 13
 *
 * So with stride T windows are those of the trainer's validation, and with a smaller one each token of a
 * further window is predicted from T - stride + 1 tokens at least. Positions at the end of the last window
 * that have no token hold id 0, which no token before them sees. */
#ifndef PIPELINE_EVALUATE_PERPLEXITY_H
#define PIPELINE_EVALUATE_PERPLEXITY_H

#include "pipeline/load/part.h"

typedef struct pipe_evaluator pipe_evaluator_t;

/* `part` is open and outlives the evaluator. Collective; an error is that of every rank. NO_MEMORY. */
gyre_status_t pipe_evaluator_create(const pipe_part_t *part, pipe_evaluator_t **out);
void pipe_evaluator_destroy(pipe_evaluator_t *evaluator);

typedef struct {
    size_t windows;
    size_t tokens; /* that were scored: all but the first */
    /* Mean of their -log p. The sum over windows is the tree of the trainer's validation: with a stride of T
     * and k T + 1 tokens this is the trainer's validation loss, to the bit. */
    double nats;
} pipe_perplexity_t;

/* All ranks have the same tokens. stride: 1 .. T. log_probability [count], natural: that of each token, 0 for
 * the first; the same on every rank. Collective. INVALID: fewer than two tokens; a stride that is not there;
 * an id outside of the vocabulary. */
gyre_status_t pipe_perplexity(pipe_evaluator_t *evaluator, const model_token_t *tokens, size_t count,
                              size_t stride, float *log_probability, pipe_perplexity_t *out);

#endif
