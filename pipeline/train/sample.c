/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/train/sample.c: temperature and top-k sampling. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "model/network/stage/plain_store.h"
#include "model/random.h"
#include "pipeline/train/sample.h"

static int by_logit_down(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

/* Draws from softmax(logits / temperature) over the logits that are at least the k-th largest. scratch:
 * [vocab]. */
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
    return best; /* rounding left a sliver after the last token */
}

/* The window of a model that fills blanks: the text up to *begin, as much as there is room for, [gMASK],
 * [sop] and what has been said since; when that is half of the window it becomes text to go on from.
 * Returns how many tokens are in it. */
static size_t lay_out_blank(const model_infill_ids_t *ids, size_t seq, const model_token_t *tokens,
                            size_t length, size_t *begin, model_token_t *window, size_t *prefix)
{
    if (length - *begin > seq / 2)
        *begin = length;
    size_t said = length - *begin, kept = seq - 2 - said;
    kept = *begin < kept ? *begin : kept;
    memcpy(window, tokens + *begin - kept, kept * sizeof *window);
    window[kept] = ids->gmask;
    window[kept + 1] = ids->sop;
    memcpy(window + kept + 2, tokens + *begin, said * sizeof *window);
    *prefix = kept + 1;
    return kept + 2 + said;
}

/* The same of others: the last tokens. */
static size_t lay_out_text(size_t seq, const model_token_t *tokens, size_t length, model_token_t *window)
{
    size_t n = length < seq ? length : seq;
    memcpy(window, tokens + length - n, n * sizeof *window);
    return n;
}

/* All tokens of `count` more, each from the logits of the position before it. The stage's layers work on
 * config.seq positions always; those after the last token cannot be seen from it. scratch: [2, vocab]. */
static gyre_status_t grow(model_stage_t_f32 *stage, const model_config_t *config, const model_sample_t *how,
                          model_token_t *tokens, size_t *length, size_t count, model_token_t *window,
                          float *scratch)
{
    float *logits = scratch + config->vocab; /* [vocab] */
    gyre_status_t status = GYRE_OK;
    size_t begin = *length;
    for (size_t i = 0; status == GYRE_OK && i < count; i++) {
        model_sequence_t sequence = {.tokens = window};
        size_t n = how->infill ? lay_out_blank(how->infill, config->seq, tokens, *length, &begin, window,
                                               &sequence.prefix)
                               : lay_out_text(config->seq, tokens, *length, window);
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
        return gyre_fail(
            GYRE_ERR_INVALID,
            "sampling needs a prompt of 1 token or more, not %zu, and a temperature of 0 or more, not %g",
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
