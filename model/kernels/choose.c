/* SPDX-License-Identifier: Apache-2.0 */
/* model/kernels/choose.c: the choice of an instruction set, and numbers that operators take as arguments. */
#include <math.h>

#include "model/kernels/kernels.h"
#include "model/kernels/instances.h"
#include "model/random.h"

const char *model_isa_name(model_isa_t isa)
{
    static const char *const names[MODEL_ISA_COUNT] = {"best", "base", "avx2", "avx512"};
    return (unsigned)isa < MODEL_ISA_COUNT ? names[isa] : "unknown";
}

static int machine_has(model_isa_t isa)
{
    if (isa == MODEL_ISA_BASE)
        return 1;
#if MODEL_HAVE_X86_TARGETS
    if (isa == MODEL_ISA_AVX2)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (isa == MODEL_ISA_AVX512)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
#endif
    return 0;
}

static model_isa_t resolve(model_isa_t isa)
{
    if (isa != MODEL_ISA_BEST)
        return isa;
    if (machine_has(MODEL_ISA_AVX512))
        return MODEL_ISA_AVX512;
    return machine_has(MODEL_ISA_AVX2) ? MODEL_ISA_AVX2 : MODEL_ISA_BASE;
}

const model_kernels_t_f32 *model_kernels_f32(model_isa_t isa)
{
    isa = resolve(isa);
    if (!machine_has(isa))
        return NULL;
#if MODEL_HAVE_X86_TARGETS
    if (isa == MODEL_ISA_AVX512)
        return &model_table_f32_avx512;
    if (isa == MODEL_ISA_AVX2)
        return &model_table_f32_avx2;
#endif
    return &model_table_f32_base;
}

/* ---- numbers that operators are given ------------------------------------------------------------------ */

double model_alibi_slope(size_t h, size_t H)
{
    size_t power = 1;
    while (power * 2 <= H)
        power *= 2;
    if (h < power)
        return exp2(-8.0 * (double)(h + 1) / (double)power);
    return exp2(-4.0 * (double)(2 * (h - power) + 1) / (double)power);
}

void model_dropout_key(uint64_t seed, uint64_t sequence, uint64_t step, size_t layer, unsigned site,
                       uint32_t key[4])
{
    /* A block of its own: the key of the mask is a number of (seed, step, sequence); place and element are
     * its counter. */
    const uint32_t counter[4] = {(uint32_t)step, (uint32_t)(step >> 32), (uint32_t)(sequence >> 32),
                                 MODEL_RANDOM_DROPOUT};
    const uint32_t by_seed[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t out[4];
    model_philox(counter, by_seed, out);
    key[0] = out[0];
    key[1] = out[1];
    key[2] = (uint32_t)sequence;
    key[3] = (uint32_t)layer * 4 + site;
}

uint32_t model_dropout_below(double probability)
{
    return (uint32_t)(probability * 4294967296.0);
}

#define TURN 6.283185307179586476925 /* 2 pi */

/* The share of the scaled frequency, the rest is the plain one: 0 for pairs that rotate often within the
 * original positions, 1 for those that rotate seldom. */
static double scaled_share(const model_rope_t *rope, double plain, size_t i, size_t half)
{
    const double original = (double)rope->original;
    double share;
    if (rope->type == MODEL_ROPE_LLAMA3) {
        share = (rope->high - original * plain / TURN) / (rope->high - rope->low);
    } else { /* so many rotations has pair half log(original / (rotations 2 pi)) / log(theta) */
        const double pairs = (double)half / log(rope->theta);
        double first = pairs * log(original / (rope->high * TURN)),
               last = pairs * log(original / (rope->low * TURN));
        first = fmax(rope->untruncated ? first : floor(first), 0.0);
        last = fmin(rope->untruncated ? last : ceil(last), (double)(2 * half - 1));
        share = ((double)i - first) / (last == first ? 0.001 : last - first);
    }
    return fmin(fmax(share, 0.0), 1.0);
}

double model_rope_frequency(const model_rope_t *rope, size_t i, size_t half)
{
    const double plain = pow(rope->theta, -(double)i / (double)half);
    if (rope->type == MODEL_ROPE_PLAIN || rope->type == MODEL_ROPE_DYNAMIC)
        return plain;
    const double share = rope->type == MODEL_ROPE_LINEAR ? 1.0 : scaled_share(rope, plain, i, half);
    return plain / rope->factor * share + plain * (1.0 - share);
}

double model_rope_attention(const model_rope_t *rope)
{
    return rope->type == MODEL_ROPE_YARN ? rope->attention : 1.0;
}

void model_rope_table_f32(float *turn, size_t T, size_t half, const model_rope_t *rope)
{
    const double times = model_rope_attention(rope);
    for (size_t i = 0; i < half; i++) {
        const double frequency = model_rope_frequency(rope, i, half);
        for (size_t t = 0; t < T; t++) {
            turn[2 * t * half + i] = (float)(times * cos((double)t * frequency));
            turn[(2 * t + 1) * half + i] = (float)(times * sin((double)t * frequency));
        }
    }
}
