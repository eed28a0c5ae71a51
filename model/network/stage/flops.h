/* SPDX-License-Identifier: Apache-2.0 */
/* model/network/stage/flops.h: floating-point operations of a training step, by the shapes of its products.
 *
 * A product [m, k] x [k, n] is 2 m k n operations, and only products count. Backward is two products for one
 * of forward. Attention counts every pair of positions, although a causal mask needs half of them: the
 * convention of Narayanan et al. 2021 (section 5.1, equation 3) and of later papers. For a GPT of L layers, F
 * = 4 C, full recomputation, their equation follows: 96 B T L C^2 (1 + T / 6C + V / 16LC). */
#ifndef MODEL_NETWORK_STAGE_FLOPS_H
#define MODEL_NETWORK_STAGE_FLOPS_H

#include "model/network/stage/stage.h"

/* Forward of one sequence of T = config.seq tokens. */
typedef struct {
    double matrix;    /* the products with weights of one layer */
    double attention; /* q k^T and its product with v, of one layer */
    double head;      /* the logits */
} model_flops_t;

/* `config` has passed model_config_check. */
model_flops_t model_flops(const model_config_t *config);

/* Forward and backward of one sequence through `layers` layers and the head. `redo`: what
 * backward computes again: nothing (the model's operations, for MFU), attention, or whole layers (the
 * hardware's, for HFU). */
double model_flops_step(const model_flops_t *flops, double layers, model_recompute_t redo);

#endif
