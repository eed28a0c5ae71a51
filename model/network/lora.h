/* SPDX-License-Identifier: Apache-2.0 */
/* model/network/lora.h: low-rank adapters of weights (LoRA: Hu et al. 2021, section 4.1).
 *
 * A weight W [in, out] that stays as it is gets two factors, A [in, R] and B [R, out], which are trained. The
 * model computes with W + scale A B, scale = alpha / R. B begins as zeros, so the model begins as it was. Of
 * a weight that is cut along `out` B is cut the same way and A is whole; of one that is cut along `in` A is
 * cut and B is whole. Each leaf of W has a product of its own, so its bits are those of any layout. */
#ifndef MODEL_NETWORK_LORA_H
#define MODEL_NETWORK_LORA_H

#include "model/network/params.h"

typedef struct {
    size_t rank;    /* R; 0: no adapters */
    double alpha;   /* 0: 2 R */
    const char *on; /* names of weights: patterns of fnmatch(3), commas between them; NULL: all that can be */
} model_lora_t;

typedef struct {
    size_t rank;
    float scale;
    /* Two rows for each adapted weight, A and then B, in the order of the weights' table. A row is a
     * parameter like any other: it can be sliced, initialised, stored. */
    model_params_t *table;
    size_t *weight; /* [table->rows / 2] the weight's row in the whole table */
} model_adapters_t;

/* Adapters of the whole table `params`: of products with attention's and the MLP's weights in layers, not of
 * experts. INVALID: a pattern fits no name of those (the text has the names), or the rank is larger than a
 * side of a weight. NO_MEMORY. Freed by model_adapters_destroy. */
gyre_status_t model_adapters_create(const model_params_t *params, const model_lora_t *lora,
                                    model_adapters_t **out);
void model_adapters_destroy(model_adapters_t *adapters);
/* The place of row `row` of the whole table among the adapted weights; MODEL_NONE: it has no adapter. */
size_t model_adapters_find(const model_adapters_t *adapters, size_t row);

/* weight += scale a b, of the leaves that the slice `row` of the weight's row has. a, b: of the same
 * slice. */
void model_lora_merge(const model_param_t *row, size_t rank, float scale, const float *a, const float *b,
                      float *weight);

/* Elements of the factor that every leaf shares: A of a weight that is cut along `out`, else B. */
size_t model_lora_shared(const model_param_t *row, size_t rank);
/* From `grad`, the gradient of W + scale A B in the slice's leaves: own, that of the factor that is cut as
 * the weight; shared, that of the other, a sum over the slice's leaves in the tree (over all leaves if the
 * caller adds the slices' sums in the tree). part: [leaves of the slice][model_lora_shared], used up. */
void model_lora_gradient(const model_param_t *row, size_t rank, float scale, const float *a, const float *b,
                         const float *grad, float *own, float *shared, float *part);

#endif
