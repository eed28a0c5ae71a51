/* SPDX-License-Identifier: Apache-2.0 */
/* tests/model/mp_stage_whole.h: a model of mp_stage_shapes.h with weights and sequences, and what one rank
 * makes of them; the part of its weights that a stage holds. Include after an enum with SEQUENCES. */
#ifndef TESTS_MODEL_MP_STAGE_WHOLE_H
#define TESTS_MODEL_MP_STAGE_WHOLE_H

#include <string.h>

#include "model/network/params.h"
#include "model/random.h"
#include "tests/model/mp_stage_shapes.h"
#include "tests/support/mp.h"

enum { LONGEST = 272 };

typedef struct {
    model_params_t *params; /* of the whole model */
    float *weights;         /* [total] */
    model_token_t tokens[SEQUENCES][LONGEST], targets[SEQUENCES][LONGEST];
    double loss[SEQUENCES];
    float *grads[SEQUENCES]; /* [grad_total], canonical */
} whole_t;

static void make_whole(const shape_t *shape, whole_t *w)
{
    *w = (whole_t){0};
    MP_OK(model_params_create(&shape->config, &w->params));
    w->weights = calloc(w->params->total, sizeof(float));
    MP_CHECK(w->weights != NULL, "memory");
    for (size_t r = 0; r < w->params->rows; r++) { /* biases that are 0 would hide mistakes */
        const model_param_t *row = &w->params->row[r];
        for (size_t i = 0; i < row->count; i++)
            w->weights[row->offset + i] = (float)(0.3 * model_random_normal(3, MODEL_RANDOM_DATA, (uint32_t)r,
                                                                            model_param_place(row, i)));
    }
    for (size_t i = 0; i < SEQUENCES; i++) {
        MP_CHECK((w->grads[i] = calloc(w->params->grad_total, sizeof(float))) != NULL, "memory");
        for (size_t t = 0; t < shape->config.seq; t++) {
            w->tokens[i][t] = (model_token_t)(model_random_bits(4, MODEL_RANDOM_DATA, (uint32_t)i, t) %
                                              shape->config.vocab);
            w->targets[i][t] = (model_token_t)((w->tokens[i][t] * 7 + 3) % (int)shape->config.vocab);
        }
    }
}

static void free_whole(whole_t *w)
{
    model_params_destroy(w->params);
    free(w->weights);
    for (size_t i = 0; i < SEQUENCES; i++)
        free(w->grads[i]);
}

/* The rows of a slice, their weights, and room for their gradients; the caller frees all three. */
static void take_slice(const whole_t *w, const model_slice_t *slice, model_params_t **params, float **weights,
                       float **grads)
{
    MP_OK(model_params_slice(w->params, slice, params));
    *weights = calloc((*params)->total, sizeof(float));
    *grads = calloc((*params)->grad_total, sizeof(float));
    MP_CHECK(*weights && *grads, "memory");
    for (size_t r = 0; r < (*params)->rows; r++) {
        const model_param_t *row = &(*params)->row[r];
        memcpy(*weights + row->offset, w->weights + w->params->row[row->global].offset + row->first,
               row->count * sizeof(float));
    }
}

#endif
