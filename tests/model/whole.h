/* SPDX-License-Identifier: Apache-2.0 */
/* tests/model/whole.h: a whole model as one stage in double, with its store; for the tests of stages. */
#ifndef TESTS_MODEL_WHOLE_H
#define TESTS_MODEL_WHOLE_H

#include <stdlib.h>

#include "model/random.h"
#include "model/network/stage/plain_store.h"
#include "tests/model/f64/f64.h"

typedef struct {
    model_params_t *params;
    double *weights, *grads;
    model_plain_store_t_f64 plain;
    model_stage_t_f64 *stage;
    model_token_t tokens[16], targets[16];
    int32_t positions[16];
    model_sequence_t sequence;
} whole_t;

static const model_tp_t alone = {.size = 1};

static void make(whole_t *w, const model_config_t *config, model_stage_config_t how)
{
    assert_int_equal(model_params_create(config, &w->params), GYRE_OK);
    w->weights = calloc(w->params->total, sizeof(double));
    w->grads = calloc(w->params->grad_total, sizeof(double));
    assert_true(w->weights && w->grads);
    for (size_t i = 0; i < w->params->total; i++)
        w->weights[i] = 0.3 * model_random_normal(11, MODEL_RANDOM_DATA, 0, i);
    for (size_t r = 0; r < w->params->rows; r++)
        for (size_t i = 0; w->params->row[r].init == MODEL_INIT_ONE && i < w->params->row[r].count; i++)
            w->weights[w->params->row[r].offset + i] += 1.0;
    for (size_t t = 0; t < config->seq; t++) {
        w->tokens[t] = (model_token_t)(t * t % config->vocab);
        w->targets[t] = (model_token_t)((t * 5 + 2) % config->vocab);
        w->positions[t] = t < 4 ? (int32_t)t : 1; /* as after a blank: two places at one position */
    }
    w->sequence =
        (model_sequence_t){.tokens = w->tokens, .targets = w->targets, .sequence = 3, .step = 4, .prefix = 2};
    if (config->prefix && config->pos == MODEL_POS_ROPE)
        w->sequence.positions = w->positions;
    w->plain = (model_plain_store_t_f64){.params = w->params, .weights = w->weights, .grads = w->grads};
    const model_store_t_f64 store = model_plain_store_f64(&w->plain);
    how.layers = config->layers;
    how.embed = how.head = 1;
    how.slots = how.slots ? how.slots : 1;
    assert_int_equal(model_stage_create_f64(w->params, &alone, &how, &store, MODEL_ISA_BEST, &w->stage),
                     GYRE_OK);
}

static void unmake(whole_t *w)
{
    model_stage_destroy_f64(w->stage);
    model_params_destroy(w->params);
    free(w->weights);
    free(w->grads);
}

static double loss_of(whole_t *w)
{
    double loss = 0.0;
    assert_int_equal(model_stage_forward_f64(w->stage, 0, &w->sequence, NULL, NULL, &loss), GYRE_OK);
    return loss + model_stage_auxiliary_f64(w->stage, 0);
}

static const model_config_t gpt2 = {
    .vocab = 11, .seq = 6, .layers = 2, .hidden = 8, .heads = 4, .leaves = 4, .vocab_padded = 12};

#endif
