/* SPDX-License-Identifier: Apache-2.0 */
/* model/data/infill.h: autoregressive blank infilling (Du et al. 2022, GLM), as GLM-130B was trained with it
 * (Zeng et al. 2023).
 *
 * A sequence is a text with blanks, whose positions see one another (the prefix). After the prefix come the
 * contents of the blanks, which are learned token by token. Of all sequences
 *
 *   30 %  have short blanks: lengths are Poisson(3) without 0, until 15 % of the text is gone; each blank is
 *   one [MASK].
 *         The blanks follow in random order, each as [sop] and its tokens, with its tokens and [eop] as
 *         targets, all of them at the position of their [MASK].
 *   70 %  lack their end: 20 % to 100 % of the text, uniformly, are one [gMASK]; they follow after [sop] and
 *   are the
 *         targets. Positions count up.
 *
 * All positions after the prefix are learned and no position is padding: the text has the length that fills
 * the sequence. */
#ifndef MODEL_DATA_INFILL_H
#define MODEL_DATA_INFILL_H

#include "model/data/data.h"
#include "model/random.h"

/* Ids that no text has. */
typedef struct {
    model_token_t mask, gmask, sop, eop;
} model_infill_ids_t;
#define MODEL_INFILL_IDS 4

/* The last four of a vocabulary of `vocab`, which is 4 or more, in the order above. */
model_infill_ids_t model_infill_ids_last(size_t vocab);

typedef struct model_infill model_infill_t;

/* For sequences of `seq` tokens below `vocab`. INVALID: an id is not below it, two are the same, or seq is
 * less than 8. NO_MEMORY. */
gyre_status_t model_infill_create(const model_infill_ids_t *ids, size_t vocab, size_t seq,
                                  model_infill_t **out);
void model_infill_destroy(model_infill_t *infill);

/* Makes the text in example->tokens [seq] an example. All random choices are a function of (seed, use,
 * number). use: MODEL_RANDOM_INFILL, or MODEL_RANDOM_INFILL_VALIDATION. number: of the sequence in the run,
 * or in the validation set. INVALID: the example has no positions. FORMAT: the text has one of the ids. Not
 * for two threads at a time. */
gyre_status_t model_infill_make(model_infill_t *infill, uint64_t seed, model_random_use_t use,
                                uint64_t number, model_example_t *example);

#endif
