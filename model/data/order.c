/* SPDX-License-Identifier: Apache-2.0 */
/* model/data/order.c: an epoch's permutation, and the order of sources. */
#include <ctype.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/log.h"
#include "model/data/order.h"
#include "model/random.h"

/* ---- permutation --------------------------------------------------------------------------------------- */

#define ROUNDS 6

/* One pass through the network over 2 `bits` bits: left and right half of `bits` each. */
static uint64_t mix(uint64_t value, unsigned bits, const uint32_t key[2], uint32_t epoch_low,
                    uint32_t epoch_high)
{
    uint64_t mask = ((uint64_t)1 << bits) - 1, left = value >> bits, right = value & mask;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        const uint32_t counter[4] = {(uint32_t)right, round, epoch_low, epoch_high};
        uint32_t out[4];
        model_philox(counter, key, out);
        uint64_t next = left ^ (out[0] & mask);
        left = right;
        right = next;
    }
    return left << bits | right;
}

uint64_t model_order_place(uint64_t seed, uint32_t source, uint64_t epoch, uint64_t count, uint64_t i)
{
    unsigned bits = 1;
    while (bits < 32 && count - 1 >= (uint64_t)1 << (2 * bits))
        bits++;
    /* a key of its own for each source; sequences of steps use low streams, prefixes the first source's
     * (pipeline/train/objective.c) */
    uint64_t bits64 = model_random_bits(seed, MODEL_RANDOM_DATA, UINT32_MAX - source, 0);
    const uint32_t key[2] = {(uint32_t)bits64, (uint32_t)(bits64 >> 32)};
    do
        i = mix(i, bits, key, (uint32_t)epoch, (uint32_t)(epoch >> 32));
    while (i >= count);
    return i;
}

/* ---- weights ------------------------------------------------------------------------------------------- */

#define DIGITS 17 /* that a weight may have in all: below 2^57 */

typedef struct {
    uint64_t digits;
    int decimals;
} decimal_t;

/* Parses "0.30" as 30 with 2 decimals. 0: not a decimal number above 0. */
static int parse(const char *text, decimal_t *out)
{
    int point = 0, seen = 0, used = 0;
    *out = (decimal_t){0, 0};
    for (; *text; text++) {
        if (*text == '.' && !point)
            point = 1;
        else if (isdigit((unsigned char)*text)) {
            seen = 1;
            if (used == DIGITS)
                return 0;
            out->digits = 10 * out->digits + (uint64_t)(*text - '0');
            used += out->digits > 0;
            out->decimals += point;
        } else
            return 0;
    }
    return seen && out->digits > 0 && out->decimals <= DIGITS;
}

static uint64_t common(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Finds whole numbers in the proportions of the weights, without a common divisor, whose sum is a period. 0:
 * there are none. */
static int exact_shares(const decimal_t *weight, size_t sources, model_blend_t *blend)
{
    int decimals = 0;
    uint64_t divisor = 0, sum = 0, whole[MODEL_BLEND_SOURCES];
    for (size_t s = 0; s < sources; s++)
        if (weight[s].decimals > decimals)
            decimals = weight[s].decimals;
    for (size_t s = 0; s < sources; s++) {
        whole[s] = weight[s].digits;
        for (int d = weight[s].decimals; d < decimals; d++)
            if (__builtin_mul_overflow(whole[s], UINT64_C(10), &whole[s]))
                return 0;
        divisor = common(whole[s], divisor);
    }
    for (size_t s = 0; s < sources; s++)
        if (__builtin_add_overflow(sum, whole[s] / divisor, &sum) || sum > MODEL_BLEND_PERIOD)
            return 0;
    for (size_t s = 0; s < sources; s++)
        blend->share[s] = (uint32_t)(whole[s] / divisor);
    blend->period = (uint32_t)sum;
    return 1;
}

/* The nearest shares of the longest period, at least 1 each; what rounding leaves goes to the largest. */
static void rounded_shares(const decimal_t *weight, size_t sources, model_blend_t *blend)
{
    long double sum = 0, value[MODEL_BLEND_SOURCES];
    uint32_t given = 0;
    size_t largest = 0;
    for (size_t s = 0; s < sources; s++) {
        value[s] = (long double)weight[s].digits;
        for (int d = 0; d < weight[s].decimals; d++)
            value[s] /= 10;
        sum += value[s];
        if (value[s] > value[largest])
            largest = s;
    }
    blend->period = MODEL_BLEND_PERIOD;
    for (size_t s = 0; s < sources; s++) {
        uint32_t share = (uint32_t)(value[s] / sum * MODEL_BLEND_PERIOD + 0.5L);
        blend->share[s] = share > 0 ? share : 1;
        given += blend->share[s];
    }
    blend->share[largest] += MODEL_BLEND_PERIOD - given; /* it has at least a 256th of the period */
    log_info("the weights of the blend have no short common period: they are rounded to multiples of 1/%u",
             MODEL_BLEND_PERIOD);
}

/* ---- turns --------------------------------------------------------------------------------------------- */

/* Number of the turn (from 1) by which source s, which has had `had`, must have its next, lest it lag by a
 * whole sample. */
static uint64_t due(const model_blend_t *blend, size_t s, uint32_t had)
{
    return ((uint64_t)blend->period * (had + 1) + blend->share[s] - 1) / blend->share[s];
}

static void take_turns(model_blend_t *blend)
{
    uint32_t had[MODEL_BLEND_SOURCES] = {0};
    uint64_t until[MODEL_BLEND_SOURCES];
    for (size_t s = 0; s < blend->sources; s++)
        until[s] = due(blend, s, 0);
    for (uint32_t n = 0; n < blend->period; n++) {
        size_t best = blend->sources;
        for (size_t s = 0; s < blend->sources; s++) {
            if ((uint64_t)blend->share[s] * (n + 1) <= (uint64_t)blend->period * had[s])
                continue; /* has its share already */
            if (best == blend->sources || until[s] < until[best])
                best = s;
        }
        blend->owner[n] = (uint16_t)best;
        blend->rank[n] = had[best]++;
        until[best] = due(blend, best, had[best]);
    }
}

gyre_status_t model_blend_create(const char *const *weights, size_t sources, model_blend_t **out)
{
    decimal_t weight[MODEL_BLEND_SOURCES];
    if (sources < 1 || sources > MODEL_BLEND_SOURCES)
        return gyre_fail(GYRE_ERR_INVALID, "a blend has 1 to %d sources, not %zu", MODEL_BLEND_SOURCES,
                         sources);
    for (size_t s = 0; s < sources; s++)
        if (!parse(weights[s], &weight[s]))
            return gyre_fail(GYRE_ERR_INVALID,
                             "'%s' is not a weight: give a decimal number above 0 of at most %d digits",
                             weights[s], DIGITS);
    model_blend_t *blend = calloc(1, sizeof *blend);
    if (!blend || !(blend->share = calloc(sources, sizeof *blend->share)))
        goto no_memory;
    blend->sources = sources;
    if (!exact_shares(weight, sources, blend))
        rounded_shares(weight, sources, blend);
    blend->owner = calloc(blend->period, sizeof *blend->owner);
    blend->rank = calloc(blend->period, sizeof *blend->rank);
    if (!blend->owner || !blend->rank)
        goto no_memory;
    take_turns(blend);
    *out = blend;
    return GYRE_OK;
no_memory:
    model_blend_destroy(blend);
    return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the turns of %zu sources", sources);
}

void model_blend_destroy(model_blend_t *blend)
{
    if (!blend)
        return;
    free(blend->share);
    free(blend->owner);
    free(blend->rank);
    free(blend);
}

void model_blend_find(const model_blend_t *blend, uint64_t i, size_t *source, uint64_t *number)
{
    uint64_t turn = i / blend->period;
    uint32_t at = (uint32_t)(i % blend->period);
    *source = blend->owner[at];
    *number = turn * blend->share[*source] + blend->rank[at];
}
