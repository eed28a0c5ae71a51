/* SPDX-License-Identifier: Apache-2.0 */
/* model/data/order.h: the order of samples, as functions of their number. Nothing is kept between two calls:
 * the answer is the same on every rank and after every restart.
 *
 * An epoch's order is a permutation computed forwards only: a Feistel network over the next power of four
 * above the number of samples, applied again until the result is below that number (Black and Rogaway,
 * "Ciphers with arbitrary finite domains", CT-RSA 2002), with Philox as the round function.
 *
 * A blend gives the source of each sample. After any number n of samples, source s has given less than one
 * sample more or less than its share n w(s), for any number of sources (Tijdeman, "The chairman assignment
 * problem", Discrete Mathematics 32, 1980): among the sources with less than their share, take the one whose
 * next sample is due first. Taking the source with the greatest error, as Megatron does, keeps this bound for
 * two sources only. Shares are whole numbers out of a period, and the order of one period is a table. */
#ifndef MODEL_DATA_ORDER_H
#define MODEL_DATA_ORDER_H

#include <stddef.h>
#include <stdint.h>

#include <gyre/status.h>

/* The position of sample `i` of 0 .. count - 1 in epoch `epoch` of source `source`: a permutation of 0 ..
 * count - 1. Expected time does not depend on count. */
uint64_t model_order_place(uint64_t seed, uint32_t source, uint64_t epoch, uint64_t count, uint64_t i);

/* Weights that no common period up to this size expresses are rounded to multiples of its inverse. */
#define MODEL_BLEND_PERIOD  ((uint32_t)1 << 18)
#define MODEL_BLEND_SOURCES 256

typedef struct {
    size_t sources;
    uint32_t period;
    uint32_t *share; /* [sources]: samples in a period */
    uint16_t *owner; /* [period]: the source of each sample */
    uint32_t *rank;  /* [period]: how many of its samples are before it in the period */
} model_blend_t;

/* Weights [sources]: decimal numbers as text ("0.7"), greater than 0, of any sum. At most 1.5 MiB for the
 * tables. INVALID, NO_MEMORY. */
gyre_status_t model_blend_create(const char *const *weights, size_t sources, model_blend_t **out);
void model_blend_destroy(model_blend_t *blend);

/* Sample i of the run is sample *number of source *source. */
void model_blend_find(const model_blend_t *blend, uint64_t i, size_t *source, uint64_t *number);

#endif
