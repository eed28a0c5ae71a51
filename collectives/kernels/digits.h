/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/kernels/digits.h: a number in digits of 32 bits, rounded once to a floating-point format; for
 * the host (wide.c) and for device code. */
#ifndef COLLECTIVES_KERNELS_DIGITS_H
#define COLLECTIVES_KERNELS_DIGITS_H

#include <math.h>
#include <stdint.h>

#include "collectives/kernels/float16.h"

enum { DIGIT_BITS = 32 };

/* A binary floating-point format: `bits` of significand, the hidden one included; its smallest positive value
 * is 2^least; values of 2^limit and above are infinite. */
typedef struct {
    int bits, least, limit;
} coll_format_t;

/* 64 bits of the number, from bit `at` on. */
KERNEL_INLINE uint64_t digits_from(const uint32_t *digit, int at)
{
    const uint32_t *d = digit + at / DIGIT_BITS;
    const int shift = at % DIGIT_BITS;
    const uint64_t low = (uint64_t)d[0] | (uint64_t)d[1] << DIGIT_BITS;
    return shift == 0 ? low : low >> shift | (uint64_t)d[2] << (2 * DIGIT_BITS - shift);
}

/* The place of the highest bit that is set; d is not 0. */
KERNEL_INLINE int digit_top(uint32_t d)
{
#ifdef __CUDA_ARCH__
    return DIGIT_BITS - 1 - __clz((int)d);
#else
    return DIGIT_BITS - 1 - __builtin_clz(d);
#endif
}

/* digit[0..count), two's complement, becomes its magnitude. -> 1 if it was negative. */
KERNEL_INLINE int digits_magnitude(uint32_t *digit, int count)
{
    const int negative = (int)(digit[count - 1] >> (DIGIT_BITS - 1));
    uint64_t carry = 1;
    for (int i = 0; negative && i < count; i++) {
        const uint64_t d = (uint64_t)(uint32_t)~digit[i] + carry;
        digit[i] = (uint32_t)d;
        carry = d >> DIGIT_BITS;
    }
    return negative;
}

/* The value of the format that is nearest to (sum of digit[i] 2^(32 i - point)) / k, ties to the even one;
 * k >= 1. +0 for an exact zero, and a `negative` one that rounds to zero is -0. Overwrites the digits;
 * digit[count] and digit[count + 1] are zero. No bit that the format keeps lies below those of digit[1]. */
KERNEL_INLINE double digits_round(uint32_t *digit, int count, int point, int negative, uint32_t k,
                                  const coll_format_t *format)
{
    /* divided as on paper; what is left over lies below every bit that is kept */
    uint64_t rest = 0;
    for (int i = count - 1; k > 1 && i >= 0; i--) {
        rest = rest << DIGIT_BITS | digit[i];
        digit[i] = (uint32_t)(rest / k);
        rest %= k;
    }

    int top = count - 1;
    while (top >= 0 && digit[top] == 0)
        top--;
    if (top < 0)
        return negative ? -0.0 : 0.0;                          /* negative: rest is not zero */
    const int high = top * DIGIT_BITS + digit_top(digit[top]); /* the highest bit that is set */
    int low = high - format->bits + 1;                         /* the lowest that is kept */
    if (low < format->least + point)
        low = format->least + point;
    uint64_t kept = high < low ? 0 : digits_from(digit, low);
    if (digits_from(digit, low - 1) & 1) { /* at least half */
        int more = (kept & 1) || rest != 0 ||
                   (digit[(low - 1) / DIGIT_BITS] & (((uint32_t)1 << (low - 1) % DIGIT_BITS) - 1)) != 0;
        for (int i = 0; !more && i < (low - 1) / DIGIT_BITS; i++)
            more = digit[i] != 0;
        kept += (uint64_t)more;
    }
    double value = ldexp((double)kept, low - point);
    if (value >= ldexp(1.0, format->limit - 1) * 2.0)
        value = (double)INFINITY;
    return negative ? -value : value;
}

#endif
