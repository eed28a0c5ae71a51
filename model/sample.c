/* model/sample.c: temperature and top-k sampling. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "model/plain_store.h"
#include "model/random.h"
#include "model/sample.h"

static int by_logit_down(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

/* Draws from softmax(logits / temperature) over the logits that are at least the k-th largest. scratch: [vocab]. */
static size_t draw(const float *logits, size_t vocab, const model_sample_t *how, uint64_t index,
                   float *scratch)
{
    size_t best = 0;
    for (size_t i = 1; i < vocab; i++)
        if (logits[i] > logits[best])
            best = i;
    if (how->temperature == 0.0)
        return best;
    float least = -INFINITY;
    if (how->top_k > 0 && how->top_k < vocab) {
        for (size_t i = 0; i < vocab; i++)
            scratch[i] = logits[i];
        qsort(scratch, vocab, sizeof *scratch, by_logit_down);
        least = scratch[how->top_k - 1];
    }
    double sum = 0.0;
    for (size_t i = 0; i < vocab; i++)
        if (logits[i] >= least)
            sum += exp(((double)logits[i] - (double)logits[best]) / how->temperature);
    double left = sum * model_random_uniform(how->seed, MODEL_RANDOM_SAMPLE, 0, index);
    for (size_t i = 0; i < vocab; i++) {
        if (logits[i] < least)
            continue;
        left -= exp(((double)logits[i] - (double)logits[best]) / how->temperature);
        if (left < 0.0)
            return i;
    }
    return best; /* rounding left a sliver behind the last token */
}

/* All tokens of `count` more, each from the logits of the position before it. The stage's layers work on config.seq positions
 * always; those behind the last token cannot be seen from it. scratch: [2, vocab]. */
static gyre_status_t grow(model_stage_t_f32 *stage, const model_config_t *config, const model_sample_t *how,
                          model_token_t *tokens, size_t *length, size_t count, model_token_t *window,
                          float *scratch)
{
    float *logits = scratch + config->vocab; /* [vocab] */
    gyre_status_t status = GYRE_OK;
    for (size_t i = 0; status == GYRE_OK && i < count; i++) {
        size_t n = *length < config->seq ? *length : config->seq;
        const model_sequence_t sequence = {.tokens = window};
        memcpy(window, tokens + *length - n, n * sizeof *window);
        status = model_stage_logits_f32(stage, &sequence, NULL, n - 1, 1, logits);
        if (status == GYRE_OK)
            tokens[(*length)++] = (model_token_t)draw(logits, config->vocab, how, i, scratch);
    }
    return status;
}

gyre_status_t model_sample(const model_params_t *whole, const float *weights, const model_sample_t *how,
                           model_token_t *tokens, size_t *length, size_t count)
{
    const model_config_t *config = &whole->config;
    if (*length < 1 || !(how->temperature >= 0.0) || !isfinite(how->temperature))
        return gyre_fail(GYRE_ERR_INVALID,
                         "sampling needs a prompt (it has %zu tokens) and a temperature of 0 or "
                         "more (it is %g)",
                         *length, how->temperature);
    model_plain_store_t_f32 plain = {.params = whole, .weights = weights};
    const model_store_t_f32 store = model_plain_store_f32(&plain);
    const model_tp_t alone = {.size = 1};
    const model_stage_config_t all = {.layers = config->layers, .embed = 1, .head = 1, .slots = 1};
    model_stage_t_f32 *stage = NULL;
    float *scratch = calloc(config->vocab, 2 * sizeof *scratch);
    model_token_t *window = calloc(config->seq, sizeof *window);
    gyre_status_t status =
        scratch && window
            ? model_stage_create_f32(whole, &alone, &all, &store, MODEL_ISA_BEST, &stage)
            : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the logits of %zu tokens", config->vocab);
    if (status == GYRE_OK)
        status = grow(stage, config, how, tokens, length, count, window, scratch);
    model_stage_destroy_f32(stage);
    free(scratch);
    free(window);
    return status;
}
