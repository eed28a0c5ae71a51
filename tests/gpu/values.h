/* SPDX-License-Identifier: Apache-2.0 */
/* tests/gpu/values.h: what tests of collectives on devices reduce. */
#ifndef TESTS_GPU_VALUES_H
#define TESTS_GPU_VALUES_H

#include <string.h>

#include <gyre/gyre.h>

#include "tests/support/random.h"

/* The kinds of reductions and types that device code computes; the first ones of gyre/types.h. */
enum { DEVICE_REDOPS = GYRE_AVG + 1, DEVICE_TYPES = GYRE_FLOAT64 + 1 };

/* `count` elements whose sums and products round, but stay finite. */
static inline void values_fill(char *to, size_t count, gyre_type_t type, uint64_t *state)
{
    const size_t size = gyre_type_size(type);
    for (size_t i = 0; i < count; i++) {
        const uint64_t bits = random_next(state);
        const double real = ((double)(bits >> 40) / (1 << 23) - 1.0) * 3.0;
        const float single = (float)real;
        uint64_t value = bits;
        uint32_t word;
        memcpy(&word, &single, 4);
        if (type == GYRE_FLOAT64)
            memcpy(&value, &real, 8);
        else if (type == GYRE_FLOAT32)
            value = word;
        else if (type == GYRE_BFLOAT16)
            value = word >> 16;
        else if (type == GYRE_FLOAT16) /* exponents from 2^-8 to 2^2 */
            value = (bits & 0x83ff) | (7 + bits % 11) << 10;
        for (size_t at = 0; at < size; at += sizeof value)
            memcpy(to + i * size + at, &value, size - at < sizeof value ? size - at : sizeof value);
    }
}

#endif
