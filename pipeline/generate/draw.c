/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/generate/draw.c: temperature, top-k and top-p. */
#include "pipeline/generate/draw.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/random.h"

static int by_logit_down(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

static double weight(const pipe_draw_t *how, float logit, float best)
{
    return exp(((double)logit - (double)best) / how->temperature);
}

/* The least logit that may be drawn. */
static float least_of(const pipe_draw_t *how, const float *logits, size_t vocab, float *sorted)
{
    size_t count = how->top_k > 0 && how->top_k < vocab ? how->top_k : vocab;
    int nucleus = how->top_p > 0.0 && how->top_p < 1.0;
    double sum = 0.0, all = 0.0;
    if (count == vocab && !nucleus)
        return -INFINITY;
    memcpy(sorted, logits, vocab * sizeof *sorted);
    qsort(sorted, vocab, sizeof *sorted, by_logit_down);
    if (!nucleus)
        return sorted[count - 1];
    for (size_t i = 0; i < count; i++)
        all += weight(how, sorted[i], sorted[0]);
    for (size_t i = 0; i < count; i++)
        if ((sum += weight(how, sorted[i], sorted[0])) >= how->top_p * all)
            return sorted[i];
    return sorted[count - 1];
}

size_t pipe_draw(const pipe_draw_t *how, const float *logits, size_t vocab, uint64_t sequence, uint64_t index,
                 float *scratch)
{
    size_t best = 0;
    for (size_t i = 1; i < vocab; i++)
        if (logits[i] > logits[best])
            best = i;
    if (how->temperature == 0.0)
        return best;
    const float least = least_of(how, logits, vocab, scratch);
    double sum = 0.0;
    for (size_t i = 0; i < vocab; i++)
        if (logits[i] >= least)
            sum += weight(how, logits[i], logits[best]);
    double left = sum * model_random_uniform(how->seed, MODEL_RANDOM_SAMPLE, (uint32_t)sequence, index);
    for (size_t i = 0; i < vocab; i++) {
        if (logits[i] < least)
            continue;
        left -= weight(how, logits[i], logits[best]);
        if (left < 0.0)
            return i;
    }
    return best; /* rounding left a sliver after the last token */
}
