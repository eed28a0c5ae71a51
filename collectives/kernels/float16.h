/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/kernels/float16.h: the two 16-bit float formats by integer arithmetic, the same bits
 * everywhere.
 *
 * Denormals are kept, rounding is to nearest even, overflow gives infinity. A NaN stays a NaN of the same
 * sign: quiet, with the upper bits of its payload, as F16C and Arm convert it. */
#ifndef COLLECTIVES_KERNELS_FLOAT16_H
#define COLLECTIVES_KERNELS_FLOAT16_H

#include <stdint.h>
#include <string.h>

/* Of the GPU's code, too. */
#ifdef __CUDACC__
#define KERNEL_INLINE static __host__ __device__ __forceinline__
#else
#define KERNEL_INLINE static inline
#endif

KERNEL_INLINE uint32_t kernel_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

KERNEL_INLINE float kernel_float(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

KERNEL_INLINE float kernel_from_bfloat(uint16_t h)
{
    return kernel_float((uint32_t)h << 16);
}

/* The bfloat nearest to f, still as the upper half of 32 bits. Branchless, so that loops over it
 * vectorise. */
KERNEL_INLINE uint32_t kernel_round_bfloat_bits(float f)
{
    uint32_t u = kernel_bits(f);
    uint32_t rounded = u + 0x7fffu + ((u >> 16) & 1u);
    uint32_t quiet = u | 0x00400000u;
    return ((u & 0x7fffffffu) > 0x7f800000u ? quiet : rounded) & 0xffff0000u;
}

KERNEL_INLINE float kernel_round_bfloat(float f)
{
    return kernel_float(kernel_round_bfloat_bits(f));
}

KERNEL_INLINE uint16_t kernel_to_bfloat(float f)
{
    return (uint16_t)(kernel_round_bfloat_bits(f) >> 16);
}

KERNEL_INLINE float kernel_from_half(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t magnitude = h & 0x7fffu;
    if (magnitude > 0x7c00u) /* NaN: made quiet */
        return kernel_float(sign | 0x7fc00000u | (magnitude & 0x3ffu) << 13);
    if (magnitude == 0x7c00u)
        return kernel_float(sign | 0x7f800000u);
    if (magnitude >= 0x0400u) /* normal: 15 is half's exponent bias, 127 float's */
        return kernel_float(sign | ((magnitude << 13) + ((127u - 15u) << 23)));
    /* zero or denormal: magnitude units of 2^-24, exact in a float */
    return kernel_float(sign | kernel_bits((float)magnitude * 0x1p-24f));
}

KERNEL_INLINE uint16_t kernel_to_half(float f)
{
    uint32_t u = kernel_bits(f);
    uint32_t sign = u >> 16 & 0x8000u;
    uint32_t magnitude = u & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x1ffu));
    if (magnitude >= 0x47800000u) /* 65536 and above, infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude >=
        0x38800000u) { /* 2^-14: normal halves; rounding may carry into the exponent, up to infinity */
        uint32_t rebased = magnitude - ((127u - 15u) << 23);
        return (uint16_t)(sign | ((rebased + 0xfffu + (rebased >> 13 & 1u)) >> 13));
    }
    if (magnitude < 0x33000000u) /* below 2^-25: nearest is zero */
        return (uint16_t)sign;
    /* Denormal: value = mantissa * 2^(exponent - 150) in units of 2^-24, so shift right by 126 - exponent. */
    uint32_t shift = 126u - (magnitude >> 23);
    uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
    uint32_t kept = mantissa >> shift, lost = mantissa & ((1u << shift) - 1u), tie = 1u << (shift - 1u);
    kept += lost > tie || (lost == tie && (kept & 1u));
    return (uint16_t)(sign | kept);
}

#endif
