/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/kernels/avx512.c: the kernels for x86 with AVX-512 F, BW, DQ and VL (Skylake-SP, Zen 4 and
 * later). */
#if defined(__x86_64__)

#include <immintrin.h>

#if !defined(__OPTIMIZE__) && !defined(__clang__)
/* gcc has macros for its intrinsics then, which convert a mask of -1. */
#pragma GCC diagnostic ignored "-Wsign-conversion"
#endif

#define KERNEL_HALF_WIDTH 16
typedef __m512 kernel_half_v;

static inline __m512 kernel_half_load(const void *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256(p));
}
static inline void kernel_half_store(void *p, __m512 v)
{
    _mm256_storeu_si256(p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
static inline __m512 kernel_half_round(__m512 v)
{
    return _mm512_cvtph_ps(_mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
static inline __m512 kernel_half_splat(float f)
{
    return _mm512_set1_ps(f);
}

#define KERNEL_TABLE coll_kernels_avx512
#define KERNEL_NAME  "avx512"
#include "collectives/kernels/template.h"

#else
typedef int kernels_avx512_is_empty_here; /* ISO C forbids an empty file */
#endif
