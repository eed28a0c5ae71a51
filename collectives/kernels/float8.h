/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/kernels/float8.h: the two 8-bit float formats of the Open Compute Project, by selections, so
 * that loops over them vectorise; the same bits everywhere.
 *
 * E4M3 has a bias of 7, no infinities, and one NaN of each sign: all other bits set. E5M2 is laid out like a
 * half. Denormals are kept, and rounding is to nearest even. What is too large becomes NaN (E4M3) or infinity
 * (E5M2), never the largest number: docs/contract.md says why. A NaN keeps its sign. */
#ifndef COLLECTIVES_KERNELS_FLOAT8_H
#define COLLECTIVES_KERNELS_FLOAT8_H

#include "collectives/kernels/float16.h"

/* least: the smallest normal number's bits, without sign; unit: that of denormals. shift: what a float has
 * more of mantissa; rebase: the difference of the biases, in front of the format's mantissa. */
KERNEL_INLINE uint32_t kernel_widen8(uint32_t magnitude, uint32_t least, unsigned shift, uint32_t rebase,
                                     float unit)
{
    const uint32_t normal = (magnitude + rebase) << shift;
    const uint32_t denormal = kernel_bits((float)(int32_t)magnitude * unit);
    return magnitude >= least ? normal : denormal;
}

/* big: the float whose last bit is worth a denormal's unit, so that adding it rounds to that. May be more
 * than fits into 7 bits. */
KERNEL_INLINE uint32_t kernel_narrow8(uint32_t magnitude, uint32_t least, unsigned shift, uint32_t rebase,
                                      float big)
{
    const uint32_t rebased = magnitude - (rebase << shift);
    const uint32_t half = (1u << (shift - 1)) - 1u;
    const uint32_t normal = (rebased + half + (rebased >> shift & 1u)) >> shift;
    const uint32_t denormal = kernel_bits(kernel_float(magnitude) + big) - kernel_bits(big);
    return magnitude >= least ? normal : denormal;
}

KERNEL_INLINE float kernel_from_e4m3(uint8_t x)
{
    const uint32_t sign = (uint32_t)(x & 0x80u) << 24, magnitude = x & 0x7fu;
    const uint32_t number = kernel_widen8(magnitude, 8, 20, (127u - 7u) << 3, 0x1p-9f);
    return kernel_float(sign | (magnitude == 0x7fu ? 0x7fc00000u : number));
}

KERNEL_INLINE uint8_t kernel_to_e4m3(float f)
{
    const uint32_t u = kernel_bits(f), magnitude = u & 0x7fffffffu;
    const uint32_t number = kernel_narrow8(magnitude, 0x3c800000u, 20, (127u - 7u) << 3, 0x1p14f);
    return (uint8_t)((u >> 24 & 0x80u) | (number > 0x7eu ? 0x7fu : number)); /* NaN is large, too */
}

KERNEL_INLINE float kernel_from_e5m2(uint8_t x)
{
    const uint32_t sign = (uint32_t)(x & 0x80u) << 24, magnitude = x & 0x7fu;
    const uint32_t number = kernel_widen8(magnitude, 4, 21, (127u - 15u) << 2, 0x1p-16f);
    const uint32_t special = magnitude > 0x7cu ? 0x7fc00000u | magnitude << 21 : 0x7f800000u;
    return kernel_float(sign | (magnitude >= 0x7cu ? special : number));
}

KERNEL_INLINE uint8_t kernel_to_e5m2(float f)
{
    const uint32_t u = kernel_bits(f), magnitude = u & 0x7fffffffu;
    const uint32_t number = kernel_narrow8(magnitude, 0x38800000u, 21, (127u - 15u) << 2, 0x1p7f);
    const uint32_t finite = number > 0x7cu ? 0x7cu : number;
    const uint32_t nan = 0x7eu | (magnitude >> 21 & 1u);
    return (uint8_t)((u >> 24 & 0x80u) | (magnitude > 0x7f800000u ? nan : finite));
}

#endif
