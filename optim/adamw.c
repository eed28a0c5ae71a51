/* optim/adamw.c: the optimiser's step, and clipping. */
#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "optim/adamw.h"
#include "optim/tree.h"

#define LANES 8

struct optim_adamw {
    const model_params_t *params;
    optim_adamw_config_t config;
    uint64_t steps;
    float *m, *v; /* [total] */
};

gyre_status_t optim_adamw_create(const model_params_t *params, const optim_adamw_config_t *config,
                                 optim_adamw_t **out)
{
    optim_adamw_t *adamw = calloc(1, sizeof *adamw);
    if (adamw) {
        adamw->m = calloc(params->total, sizeof *adamw->m);
        adamw->v = calloc(params->total, sizeof *adamw->v);
    }
    if (!adamw || !adamw->m || !adamw->v) {
        optim_adamw_destroy(adamw);
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the moments of %zu parameters", params->total);
    }
    adamw->params = params;
    adamw->config = *config;
    *out = adamw;
    return GYRE_OK;
}

void optim_adamw_destroy(optim_adamw_t *adamw)
{
    if (!adamw)
        return;
    free(adamw->m);
    free(adamw->v);
    free(adamw);
}

float *optim_adamw_exp_avg(optim_adamw_t *adamw)
{
    return adamw->m;
}

float *optim_adamw_exp_avg_sq(optim_adamw_t *adamw)
{
    return adamw->v;
}

uint64_t optim_adamw_steps(const optim_adamw_t *adamw)
{
    return adamw->steps;
}

void optim_adamw_set_steps(optim_adamw_t *adamw, uint64_t steps)
{
    adamw->steps = steps;
}

optim_adamw_factors_t optim_adamw_factors(const optim_adamw_config_t *c, uint64_t steps, float scale,
                                          double rate)
{
    double t = (double)steps;
    return (optim_adamw_factors_t){.scale = scale,
                                   .b1 = (float)c->beta1,
                                   .c1 = (float)(1.0 - c->beta1),
                                   .b2 = (float)c->beta2,
                                   .c2 = (float)(1.0 - c->beta2),
                                   .inverse_root = (float)(1.0 / sqrt(1.0 - pow(c->beta2, t))),
                                   .epsilon = (float)c->epsilon,
                                   .step = (float)(rate / (1.0 - pow(c->beta1, t))),
                                   .keep = {1.0f, (float)(1.0 - rate * c->weight_decay)}};
}

void optim_adamw_update(const optim_adamw_factors_t *factors, int decay, float *restrict w, float *restrict m,
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

void optim_adamw_step(optim_adamw_t *adamw, float *flat, float *const *grads, float scale, double rate)
{
    const optim_adamw_factors_t f = optim_adamw_factors(&adamw->config, ++adamw->steps, scale, rate);
    for (size_t r = 0; r < adamw->params->rows; r++) {
        const model_param_t *row = &adamw->params->row[r];
        optim_adamw_update(&f, row->decay, flat + row->offset, adamw->m + row->offset, adamw->v + row->offset,
                           grads[r], row->count);
    }
}

double optim_norm_block(const float *x, size_t n)
{
    double lane[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t l = 0; l < LANES; l++)
            lane[l] += (double)x[i + l] * (double)x[i + l];
    for (size_t l = 0; i < n; i++, l++)
        lane[l] += (double)x[i] * (double)x[i];
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

gyre_status_t optim_grad_norm(const model_params_t *params, float *const *grads, double *norm)
{
    size_t blocks = 0, b = 0;
    for (size_t r = 0; r < params->rows; r++)
        blocks += (params->row[r].count + OPTIM_NORM_BLOCK - 1) / OPTIM_NORM_BLOCK;
    double *sum = malloc(blocks * sizeof *sum);
    if (!sum)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the norm of %zu blocks", blocks);
    for (size_t r = 0; r < params->rows; r++)
        for (size_t i = 0; i < params->row[r].count; i += OPTIM_NORM_BLOCK) {
            size_t left = params->row[r].count - i;
            sum[b++] = optim_norm_block(grads[r] + i, left < OPTIM_NORM_BLOCK ? left : OPTIM_NORM_BLOCK);
        }
    *norm = sqrt(optim_tree_sum(sum, blocks, 1));
    free(sum);
    return GYRE_OK;
}

double optim_clip_factor(double norm, double limit)
{
    double factor = limit > 0.0 ? limit / (norm + 1e-6) : 1.0;
    return factor < 1.0 ? factor : 1.0;
}
