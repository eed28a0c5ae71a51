/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/kernels/neon.c: the kernels for 64-bit Arm, where Advanced SIMD is part of the baseline. */
#if defined(__aarch64__)

#include <arm_neon.h>

#define KERNEL_HALF_WIDTH 4
typedef float32x4_t kernel_half_v;

static inline float32x4_t kernel_half_load(const void *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p))); /* bytes: no alignment is assumed */
}
static inline void kernel_half_store(void *p, float32x4_t v)
{
    vst1_u8(p, vreinterpret_u8_f16(vcvt_f16_f32(v)));
}
static inline float32x4_t kernel_half_round(float32x4_t v)
{
    return vcvt_f32_f16(vcvt_f16_f32(v));
}
static inline float32x4_t kernel_half_splat(float f)
{
    return vdupq_n_f32(f);
}

#define KERNEL_TABLE coll_kernels_neon
#define KERNEL_NAME  "neon"
#include "collectives/kernels/template.h"

#else
typedef int kernels_neon_is_empty_here; /* ISO C forbids an empty file */
#endif
