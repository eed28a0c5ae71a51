/* SPDX-License-Identifier: Apache-2.0 */
/* model/random.c: Philox4x32-10 and what is made of it. */
#include <math.h>
#include <string.h>

#include "model/philox.h"
#include "model/random.h"

void model_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    memcpy(out, counter, 4 * sizeof *out);
    model_philox_rounds(out, key[0], key[1]);
}

static void draw(uint64_t seed, model_random_use_t use, uint32_t stream, uint64_t index, uint32_t out[4])
{
    const uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), stream, (uint32_t)use};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    model_philox(counter, key, out);
}

uint64_t model_random_bits(uint64_t seed, model_random_use_t use, uint32_t stream, uint64_t index)
{
    uint32_t out[4];
    draw(seed, use, stream, index, out);
    return (uint64_t)out[1] << 32 | out[0];
}

static double to_uniform(uint32_t low, uint32_t high)
{
    return (double)(((uint64_t)high << 32 | low) >> 11) * 0x1p-53;
}

double model_random_uniform(uint64_t seed, model_random_use_t use, uint32_t stream, uint64_t index)
{
    uint32_t out[4];
    draw(seed, use, stream, index, out);
    return to_uniform(out[0], out[1]);
}

double model_random_normal(uint64_t seed, model_random_use_t use, uint32_t stream, uint64_t index)
{
    uint32_t out[4];
    draw(seed, use, stream, index, out);
    double radius = sqrt(-2.0 * log1p(-to_uniform(out[0], out[1]))); /* 1 - u is in (0, 1] */
    return radius * cos(6.283185307179586477 * to_uniform(out[2], out[3]));
}
