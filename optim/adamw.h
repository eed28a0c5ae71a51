/* optim/adamw.h: AdamW (Loshchilov and Hutter 2019) and the gradient's norm. */
#ifndef OPTIM_ADAMW_H
#define OPTIM_ADAMW_H

#include "model/params.h"

typedef struct {
    double beta1, beta2, epsilon;
    double
        weight_decay; /* decoupled: matrices shrink by (1 - rate * weight_decay) per step; vectors do not */
} optim_adamw_config_t;

/* One step's constants. */
typedef struct {
    float scale, b1, c1, b2, c2, inverse_root, epsilon, step;
    float keep[2]; /* of a vector, of a matrix */
} optim_adamw_factors_t;
/* For update number `steps`, counted from 1. */
optim_adamw_factors_t optim_adamw_factors(const optim_adamw_config_t *config, uint64_t steps, float scale,
                                          double rate);
/* Any range of a row; decay: the row's. No two arrays overlap. */
void optim_adamw_update(const optim_adamw_factors_t *factors, int decay, float *w, float *m, float *v,
                        const float *grad, size_t n);

typedef struct optim_adamw optim_adamw_t;

/* Moments for every element of the table, zero at first. `params` must outlive it. NO_MEMORY. */
gyre_status_t optim_adamw_create(const model_params_t *params, const optim_adamw_config_t *config,
                                 optim_adamw_t **out);
void optim_adamw_destroy(optim_adamw_t *adamw);

/* One step on flat [params->total] with gradients grads[row] * scale (1/batch and clipping in one factor):
 *     m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
 *     w = w (1 - rate decay) - rate / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + epsilon)
 * as PyTorch orders it. Element by element: no order of rows can change the bits. */
void optim_adamw_step(optim_adamw_t *adamw, float *flat, float *const *grads, float scale, double rate);

/* What a checkpoint must hold beside the weights: both moments, [total] each, in the layout of the flat buffer, and
 * the steps made so far. The memory is the optimiser's and may be read and written between steps. */
float *optim_adamw_exp_avg(optim_adamw_t *adamw);
float *optim_adamw_exp_avg_sq(optim_adamw_t *adamw);
uint64_t optim_adamw_steps(const optim_adamw_t *adamw);
void optim_adamw_set_steps(optim_adamw_t *adamw, uint64_t steps);

/* The 2-norm of all gradients, in double: sums of squares of blocks of OPTIM_NORM_BLOCK elements of each row, joined
 * in the tree of optim/tree.h in the order of the table. Blocks are fixed, so any owner may compute any of them.
 * *norm may come out infinite or NaN. NO_MEMORY. */
#define OPTIM_NORM_BLOCK 4096
gyre_status_t optim_grad_norm(const model_params_t *params, float *const *grads, double *norm);
/* Sum of squares of x[0..n), n <= OPTIM_NORM_BLOCK. */
double optim_norm_block(const float *x, size_t n);

/* The factor that brings a norm down to `limit`; 1 if it is no larger, or if limit is 0 (no clipping). */
double optim_clip_factor(double norm, double limit);

#endif
