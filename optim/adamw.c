/* SPDX-License-Identifier: Apache-2.0 */
/* optim/adamw.c: the optimiser's step, and clipping. */
#include <math.h>

#include "base/checked.h"
#include "base/thread/team.h"
#include "optim/adamw.h"

optim_adamw_factors_t optim_adamw_factors(const optim_adamw_config_t *c, uint64_t steps, float scale,
                                          double rate)
{
    double t = (double)steps, correction = 1.0 - pow(c->beta1, t);
    return (optim_adamw_factors_t){.scale = scale,
                                   .b1 = (float)c->beta1,
                                   .c1 = (float)(1.0 - c->beta1),
                                   .b2 = (float)c->beta2,
                                   .c2 = (float)(1.0 - c->beta2),
                                   .inverse_root = (float)(1.0 / sqrt(1.0 - pow(c->beta2, t))),
                                   .epsilon = (float)c->epsilon,
                                   .step = (float)(rate / correction),
                                   .keep = {1.0f, (float)(1.0 - rate * c->weight_decay)},
                                   .rate = rate,
                                   .weight_decay = c->weight_decay,
                                   .correction = correction};
}

optim_adamw_factors_t optim_adamw_row(const optim_adamw_factors_t *factors, double times, double decay)
{
    optim_adamw_factors_t k = *factors;
    k.rate *= times;
    k.step = (float)(k.rate / k.correction);
    k.keep[1] = (float)(1.0 - k.rate * (decay < 0.0 ? k.weight_decay : decay));
    k.keep[0] = decay < 0.0 ? 1.0f : k.keep[1];
    return k;
}

static void update(const optim_adamw_factors_t *factors, int decay, float *restrict w, float *restrict m,
                   float *restrict v, const float *restrict grad, size_t n)
{
    const optim_adamw_factors_t k = *factors;
    const float keep = k.keep[decay != 0];
    for (size_t i = 0; i < n; i++) {
        float g = grad[i] * k.scale;
        float mi = k.b1 * m[i] + k.c1 * g;
        float vi = k.b2 * v[i] + k.c2 * (g * g);
        m[i] = mi;
        v[i] = vi;
        w[i] = w[i] * keep - k.step * (mi / (sqrtf(vi) * k.inverse_root + k.epsilon));
    }
}

/* Elements that a thread takes at a time. */
#define PIECE ((size_t)16384)

typedef struct {
    const optim_adamw_factors_t *factors;
    int decay;
    float *w, *m, *v;
    const float *grad;
    size_t n;
} update_t;

static void update_piece(void *arg, size_t piece)
{
    const update_t *u = arg;
    const size_t at = piece * PIECE;
    update(u->factors, u->decay, u->w + at, u->m + at, u->v + at, u->grad + at,
           base_min_size(PIECE, u->n - at));
}

void optim_adamw_update(const optim_adamw_factors_t *factors, int decay, float *w, float *m, float *v,
                        const float *grad, size_t n)
{
    update_t u = {factors, decay, w, m, v, grad, n};
    base_each(n / PIECE + (n % PIECE > 0), update_piece, &u);
}

double optim_clip_factor(double norm, double limit)
{
    double factor = limit > 0.0 ? limit / (norm + 1e-6) : 1.0;
    return factor < 1.0 ? factor : 1.0;
}
