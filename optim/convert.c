/* SPDX-License-Identifier: Apache-2.0 */
/* optim/convert.c: loops over collectives' conversions; half by the processor's instructions where it has
 * them. */
#include "collectives/kernels/float16.h"
#include "optim/convert.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#include <immintrin.h>

__attribute__((target("avx,f16c"))) static size_t round_f16c(const float *from, uint16_t *to, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(void *)(to + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
    return i;
}

__attribute__((target("avx,f16c"))) static size_t expand_f16c(const uint16_t *from, float *to, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(from + i))));
    return i;
}

/* Asked once: CPUID leaves a virtual machine, which takes longer than a whole row. */
static int has_f16c(void)
{
    enum { UNKNOWN, NO, YES };
    static int answer;
    int known = __atomic_load_n(&answer, __ATOMIC_RELAXED);
    if (known == UNKNOWN) {
        unsigned a, b, c, d; /* F16C has no name that every compiler's __builtin_cpu_supports knows */
        int is = __builtin_cpu_supports("avx") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
        known = is ? YES : NO;
        __atomic_store_n(&answer, known, __ATOMIC_RELAXED);
    }
    return known == YES;
}
#else
static size_t round_f16c(const float *from, uint16_t *to, size_t n)
{
    (void)from, (void)to, (void)n;
    return 0;
}
static size_t expand_f16c(const uint16_t *from, float *to, size_t n)
{
    (void)from, (void)to, (void)n;
    return 0;
}
static int has_f16c(void)
{
    return 0;
}
#endif

void optim_round(model_precision_t type, const float *from, uint16_t *to, size_t n)
{
    if (type == MODEL_BFLOAT16) {
        for (size_t i = 0; i < n; i++)
            to[i] = kernel_to_bfloat(from[i]);
        return;
    }
    for (size_t i = has_f16c() ? round_f16c(from, to, n) : 0; i < n; i++)
        to[i] = kernel_to_half(from[i]);
}

void optim_expand(model_precision_t type, const uint16_t *from, float *to, size_t n)
{
    if (type == MODEL_BFLOAT16) {
        for (size_t i = 0; i < n; i++)
            to[i] = kernel_from_bfloat(from[i]);
        return;
    }
    for (size_t i = has_f16c() ? expand_f16c(from, to, n) : 0; i < n; i++)
        to[i] = kernel_from_half(from[i]);
}
