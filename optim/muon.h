/* SPDX-License-Identifier: Apache-2.0 */
/* optim/muon.h: Muon: momentum, of which each matrix is made orthogonal before it is a step.
 *
 *     m = b m + (1 - b) g;  u = b m + (1 - b) g                              (Nesterov's momentum)
 *     X = u / |u|, and five times:  A = X X^T,  X = 3.4445 X + (-4.7750 A + 2.0315 A A) X
 *     w = w (1 - rate decay) - rate 0.2 sqrt(max(rows, columns)) X
 *
 * The iteration is Newton and Schulz's, with the coefficients of Jordan et al. 2024, "Muon: An optimizer for
 * hidden layers in neural networks", kellerjordan.github.io/posts/muon. Decay, and the factor with which
 * steps are as long as AdamW's and take its rate, are those of Liu et al. 2025, "Muon is Scalable for LLM
 * Training", arXiv 2502.16982, section 2.2.
 *
 * For matrices of layers. Vectors, embeddings, positions and heads take AdamW. q, k and v, gate and up, and
 * each expert's matrices are matrices of their own, though a row holds several. */
#ifndef OPTIM_MUON_H
#define OPTIM_MUON_H

#include <stddef.h>

#include "model/network/params.h"

/* 1: the row is a matrix of a layer that is trained. */
int optim_muon_takes(const model_param_t *row);

/* Any range of a row; element by element. grad * scale is the gradient. The second: u [n]. */
void optim_muon_momentum(float momentum, float scale, float *m, const float *grad, size_t n);
void optim_muon_look_ahead(float momentum, float scale, const float *m, const float *grad, float *u,
                           size_t n);

/* Elements that the next call works in; a multiple of 16. */
size_t optim_muon_work(const model_config_t *config, const model_param_t *row);
/* u [leaves * leaf_count], a whole canonical row, becomes 0.2 sqrt(max(rows, columns)) X of each of its
 * matrices. fp32, by the products that the model is computed with; no layout is known here. work:
 * [optim_muon_work], its first element on a cache line. */
void optim_muon_direction(const model_config_t *config, const model_param_t *row, float *u, float *work);

/* w = w keep - rate x, of any range. */
void optim_muon_apply(float keep, float rate, float *w, const float *x, size_t n);

#endif
