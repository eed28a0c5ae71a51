/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/plan/work.h: what a rank multiplies, and what its device memory reads and writes for that.
 *
 * Bytes are counted operation by operation, as if each were a kernel of its own. A product reads its two
 * factors and writes the result. A norm, a residual sum, an activation reads its inputs and writes its
 * output; its backward takes twice as much. Nothing here is fitted. */
#ifndef PIPELINE_PLAN_WORK_H
#define PIPELINE_PLAN_WORK_H

#include "pipeline/plan/estimate.h"

typedef struct {
    double products;  /* FLOP of products with weights */
    double attention; /* FLOP of q k^T and of its product with v; both halves of the square */
    double bytes;     /* of device memory */
} plan_work_t;

/* One layer, one micro-batch (a rank's share of it, with context parallelism): forward, backward, and what
 * backward computes again. */
plan_work_t plan_work_layer(const pipe_recipe_t *recipe, const plan_base_t *base,
                            const plan_software_t *software);
/* The same of the head: the product, the loss and its gradient. */
plan_work_t plan_work_head(const pipe_recipe_t *recipe, const plan_base_t *base);
/* Bytes to add a micro-batch's gradients of `parameters` elements to their sum; 0 where there is one
 * micro-batch. */
double plan_work_sum(const pipe_recipe_t *recipe, const plan_base_t *base, size_t parameters);
/* Bytes of the optimizer's step on a rank that holds `parameters` elements. */
double plan_work_update(const pipe_recipe_t *recipe, size_t parameters);

#endif
