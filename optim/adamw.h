/* SPDX-License-Identifier: Apache-2.0 */
/* optim/adamw.h: AdamW (Loshchilov and Hutter 2019), and clipping. */
#ifndef OPTIM_ADAMW_H
#define OPTIM_ADAMW_H

#include <stddef.h>
#include <stdint.h>

/* The least epsilon. Of a gradient g below about 1e-18, (1 - b2) g^2 may be 0 in fp32, and m is not: the
 * update is then rate * g / epsilon. */
#define OPTIM_ADAMW_EPSILON 1e-18

typedef struct {
    double beta1, beta2, epsilon;
    /* decoupled: matrices shrink by (1 - rate * weight_decay) per step; vectors do not */
    double weight_decay;
} optim_adamw_config_t;

/* One step's constants. */
typedef struct {
    float scale, b1, c1, b2, c2, inverse_root, epsilon, step;
    float keep[2];                         /* of a vector, of a matrix */
    double rate, weight_decay, correction; /* of which step and keep are made */
} optim_adamw_factors_t;
/* For update number `steps`, counted from 1. */
optim_adamw_factors_t optim_adamw_factors(const optim_adamw_config_t *config, uint64_t steps, float scale,
                                          double rate);
/* The same for a row with `times` the rate, and weight decay of its own; `decay` negative: the run's. */
optim_adamw_factors_t optim_adamw_row(const optim_adamw_factors_t *factors, double times, double decay);
/* Any range of a row; decay: the row's. No two arrays overlap. grad * scale is the gradient g (1/batch and
 * clipping in one factor):
 *     m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
 *     w = w (1 - rate decay) - rate / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + epsilon)
 * as PyTorch orders it. Element by element: no order of rows can change the bits. */
void optim_adamw_update(const optim_adamw_factors_t *factors, int decay, float *w, float *m, float *v,
                        const float *grad, size_t n);

/* The factor that brings a norm down to `limit`; 1 if it is no larger, or if limit is 0 (no clipping). */
double optim_clip_factor(double norm, double limit);

#endif
