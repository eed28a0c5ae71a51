/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/kernels/exact_steps.h: exact sums of one element, for the host's loops (exact_loops.h) and for
 * device code; exact.c says why they are right. Compiled without contraction everywhere. */
#ifndef COLLECTIVES_KERNELS_EXACT_STEPS_H
#define COLLECTIVES_KERNELS_EXACT_STEPS_H

#include <stdint.h>
#include <string.h>

#include "collectives/kernels/float16.h"

KERNEL_INLINE uint64_t exact_bits(double d)
{
    uint64_t u;
    memcpy(&u, &d, sizeof u);
    return u;
}

KERNEL_INLINE double exact_double(uint64_t u)
{
    double d;
    memcpy(&d, &u, sizeof d);
    return d;
}

#define EXACT_SIGN     0x8000000000000000u
#define EXACT_INFINITY 0x7ff0000000000000u
#define EXACT_NAN      0x7ff8000000000000u
/* All ones where the condition holds: selections by masks, which become vectors everywhere. */
#define EXACT_IF(c)      (0 - (uint64_t)(c))
#define EXACT_FINITE(u)  (((u)&EXACT_INFINITY) != EXACT_INFINITY)
#define EXACT_NONZERO(u) (((u) & ~EXACT_SIGN) != 0)

/* a + b = sum + error (D. Knuth, TAOCP 2, 4.2.2). */
#define EXACT_TWO_SUM(a, b, sum, error) \
    const double sum = (a) + (b);       \
    const double sum##_b = sum - (a);   \
    const double error = ((a) - (sum - sum##_b)) + ((b)-sum##_b)

/* s + e += x, without an error; *bad becomes non-zero where there was one. */
KERNEL_INLINE void exact_pair_step(double *s, double *e, uint64_t *bad, double x)
{
    EXACT_TWO_SUM(*s, x, sum, error);
    EXACT_TWO_SUM(*e, error, errors, lost);
    *s = sum;
    *e = errors;
    *bad |= exact_bits(lost) & ~EXACT_SIGN;
}

/* ---- rounding to odd: a value that is not a double becomes the neighbour with the odd significand ---- */

/* The neighbour of `near`, the nearest double, on the side that `rest` points to; if the value is near +
 * rest. */
KERNEL_INLINE double exact_odd(double near, double rest)
{
    uint64_t u = exact_bits(near), r = exact_bits(rest);
    uint64_t move = EXACT_IF(EXACT_NONZERO(r)) & EXACT_IF(EXACT_FINITE(u)) & (~u & 1);
    uint64_t down = EXACT_IF((int64_t)(u ^ r) < 0); /* towards zero */
    return exact_double(u + ((move ^ down) - down));
}

/* s + e, rounded to odd */
KERNEL_INLINE double exact_join_step(double s, double e)
{
    EXACT_TWO_SUM(s, e, sum, error);
    uint64_t some = EXACT_IF(EXACT_NONZERO(exact_bits(e))); /* -0 + 0 would be 0 */
    return exact_double((exact_bits(exact_odd(sum, error)) & some) | (exact_bits(s) & ~some));
}

/* a = q k + *rest without an error, where q is the double nearest to a / k: halves of q have so few bits
 * that their products with k are doubles (k is less than 2^15), and so is the rest. */
KERNEL_INLINE double exact_quotient(double a, double k, double *rest)
{
    double q = a / k;
    double high = exact_double(exact_bits(q) & ~(uint64_t)0x7ffffff);
    *rest = (a - high * k) - (q - high) * k;
    return q;
}

/* s / k, rounded to odd */
KERNEL_INLINE double exact_divide_step(double s, double k)
{
    double rest, q = exact_quotient(s, k, &rest);
    return exact_odd(q, rest);
}

/* ---- results ---- */

/* f; of any NaN, the one with fixed bits. */
KERNEL_INLINE float exact_quiet(float f)
{
    uint32_t u = kernel_bits(f);
    return kernel_float((u & 0x7fffffffu) > 0x7f800000u ? 0x7fc00000u : u);
}

/* The significand cut to 24 bits, rounded to odd: the float of it rounds to a shorter format as d does. */
KERNEL_INLINE uint64_t exact_shorten(uint64_t u)
{
    const uint64_t below = 0x1fffffff;
    return (u & ~below) | (((u & below) + below) & (below + 1));
}

/* A bfloat of a float, rounded to nearest even; any NaN becomes the same one. */
KERNEL_INLINE uint16_t exact_bfloat(float f)
{
    uint32_t u = kernel_bits(f);
    uint32_t rounded = u + 0x7fffu + (u >> 16 & 1u);
    return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded >> 16);
}

/* s + e, rounded once; *bad becomes non-zero where that is no finite number */
KERNEL_INLINE double exact_sum_step(double s, double e, uint64_t *bad)
{
    uint64_t some = EXACT_IF(EXACT_NONZERO(exact_bits(e))); /* -0 + 0 would be 0 */
    uint64_t u = (exact_bits(s + e) & some) | (exact_bits(s) & ~some);
    *bad |= EXACT_IF(!EXACT_FINITE(u));
    return exact_double(u);
}

/* (s + e) / k, rounded once. With the sum as `sum` + `error`, the value is q + (rest + error) / k.
 * Where that second term is a double, as for every tie, one addition rounds the value. Otherwise it is
 * known but for a few roundings, 2^-52 of it: where it gives the same result when it is changed by 2^-50
 * both ways, that is the right one (A. Ziv, ACM TOMS 17, 1991). Where not, and where a small number could
 * have lost bits, *bad becomes non-zero. */
KERNEL_INLINE double exact_average_step(double s, double e, uint64_t *bad, double k)
{
    EXACT_TWO_SUM(s, e, sum, error);
    double rest, q = exact_quotient(sum, k, &rest);
    EXACT_TWO_SUM(rest, error, over, lost);
    double left, more = exact_quotient(over, k, &left);
    uint64_t rounded = EXACT_IF(EXACT_NONZERO(exact_bits(lost) | exact_bits(left)));
    double doubt = more * exact_double(exact_bits(0x1p-50) & rounded);
    double low = q + (more - doubt), high = q + (more + doubt);
    uint64_t size = exact_bits(low) & ~EXACT_SIGN;
    uint64_t zero = EXACT_IF(!EXACT_NONZERO(exact_bits(sum)));
    uint64_t some = EXACT_IF(EXACT_NONZERO(exact_bits(e))); /* without one, zero is s: -0 + 0 would be 0 */
    *bad |= ~zero & (EXACT_IF(exact_bits(low) != exact_bits(high)) | EXACT_IF(!EXACT_FINITE(size)) |
                     EXACT_IF((int64_t)size < (int64_t)(1023 - 900) << 52));
    return exact_double((exact_bits(low) & ~zero) | (exact_bits(s) & zero & ~some));
}

#endif
