/* SPDX-License-Identifier: Apache-2.0 */
/* model/random.h: numbers that depend on a key and a counter only (Philox4x32-10; Salmon, Moraes, Dror, Shaw,
 * "Parallel random numbers: as easy as 1, 2, 3", SC 2011), so that no layout can change them: every call for
 * number (stream, index) under a seed gets the same one. */
#ifndef MODEL_RANDOM_H
#define MODEL_RANDOM_H

#include <stdint.h>

/* What a number is for; part of the key. */
typedef enum {
    MODEL_RANDOM_INIT = 1,
    MODEL_RANDOM_DATA = 2,
    MODEL_RANDOM_SAMPLE = 3,
    MODEL_RANDOM_DROPOUT = 4,
    MODEL_RANDOM_PROBE = 5,
    MODEL_RANDOM_INFILL = 6,
    MODEL_RANDOM_INFILL_VALIDATION = 7
} model_random_use_t;

/* The Philox4x32-10 block: 128 bits of counter, 64 bits of key, 128 bits out. */
void model_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* 64 uniform bits. */
uint64_t model_random_bits(uint64_t seed, model_random_use_t use, uint32_t stream, uint64_t index);
/* Uniform in [0, 1), 53 bits. */
double model_random_uniform(uint64_t seed, model_random_use_t use, uint32_t stream, uint64_t index);
/* Standard normal (Box and Muller). */
double model_random_normal(uint64_t seed, model_random_use_t use, uint32_t stream, uint64_t index);

#endif
