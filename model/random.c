/* model/random.c: Philox4x32-10 and what is made of it. */
#include <math.h>

#include "model/random.h"

void model_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
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
