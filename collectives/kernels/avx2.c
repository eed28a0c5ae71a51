/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/kernels/avx2.c: the kernels for x86 with AVX2, FMA and F16C (Haswell, Zen and later). */
#if defined(__x86_64__)

#include <immintrin.h>

/* F16C ignores the flush-to-zero modes and takes its rounding from the instruction: the bits of float16.h. */
#define KERNEL_HALF_WIDTH 8
typedef __m256 kernel_half_v;

static inline __m256 kernel_half_load(const void *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128(p));
}
static inline void kernel_half_store(void *p, __m256 v)
{
    _mm_storeu_si128(p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
static inline __m256 kernel_half_round(__m256 v)
{
    return _mm256_cvtph_ps(_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
static inline __m256 kernel_half_splat(float f)
{
    return _mm256_set1_ps(f);
}

#define KERNEL_TABLE coll_kernels_avx2
#define KERNEL_NAME  "avx2"
#include "collectives/kernels/template.h"

#else
typedef int kernels_avx2_is_empty_here; /* ISO C forbids an empty file */
#endif
