/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/kernels/wide.c: exact sums in fixed point. */
#include "collectives/kernels/wide.h"

#include <math.h>
#include <string.h>

const coll_format_t coll_format_double = {53, -1074, 1024};
const coll_format_t coll_format_float = {24, -149, 128};
const coll_format_t coll_format_bfloat = {8, -133, 128};
const coll_format_t coll_format_half = {11, -24, 16};

enum { LIMB_BITS = 32, DOUBLE_LEAST = -1074 };
static const uint64_t LIMB_MASK = 0xffffffffu;
static const int64_t MAX_TERMS = (int64_t)1 << 30;

void coll_wide_clear(coll_wide_t *w)
{
    memset(w, 0, sizeof *w);
}

/* x = significand * 2^(*exponent), without its sign. */
static uint64_t take_apart(double x, int *exponent)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint64_t fraction = bits & 0xfffffffffffffu;
    int field = (int)(bits >> 52 & 0x7ffu);
    *exponent = DOUBLE_LEAST + (field > 0 ? field - 1 : 0);
    return field > 0 ? fraction | (uint64_t)1 << 52 : fraction;
}

static void count_term(coll_wide_t *w)
{
    if (++w->terms >= MAX_TERMS)
        coll_wide_carry(w);
}

void coll_wide_add(coll_wide_t *w, double x)
{
    int exponent;
    uint64_t m = take_apart(x, &exponent);
    unsigned at = (unsigned)(exponent + COLL_WIDE_POINT), shift = at % LIMB_BITS;
    int64_t *limb = w->limb + at / LIMB_BITS;
    int64_t sign = signbit(x) ? -1 : 1;
    limb[0] += sign * (int64_t)(m << shift & LIMB_MASK);
    m = m >> 1 >> (LIMB_BITS - 1 - shift); /* m >> (32 - shift), also where shift is 0 */
    limb[1] += sign * (int64_t)(m & LIMB_MASK);
    limb[2] += sign * (int64_t)(m >> LIMB_BITS);
    count_term(w);
}

void coll_wide_add_product(coll_wide_t *w, double x, double y)
{
    int ex, ey;
    uint64_t mx = take_apart(x, &ex), my = take_apart(y, &ey);
    __extension__ unsigned __int128 m = mx;
    m *= my; /* at most 106 bits */
    unsigned at = (unsigned)(ex + ey + COLL_WIDE_POINT), shift = at % LIMB_BITS;
    int64_t *limb = w->limb + at / LIMB_BITS;
    int64_t sign = !signbit(x) == !signbit(y) ? 1 : -1;
    limb[0] += sign * (int64_t)((uint64_t)m << shift & LIMB_MASK);
    m = m >> 1 >> (LIMB_BITS - 1 - shift);
    for (int i = 1; m != 0; i++, m >>= LIMB_BITS)
        limb[i] += sign * (int64_t)((uint64_t)m & LIMB_MASK);
    count_term(w);
}

/* Among limbs first to last, of which the last gets the sign. */
static void carry_among(coll_wide_t *w, int first, int last)
{
    int64_t carry = 0;
    for (int i = first; i < last; i++) {
        int64_t v = w->limb[i] + carry;
        w->limb[i] = v & (int64_t)LIMB_MASK;
        carry = v >> LIMB_BITS; /* rounds down, also below zero */
    }
    w->limb[last] += carry;
    w->terms = 1;
}

void coll_wide_carry(coll_wide_t *w)
{
    carry_among(w, 0, COLL_WIDE_LIMBS - 1);
}

void coll_wide_merge(coll_wide_t *w, coll_wide_t *other)
{
    coll_wide_carry(other);
    coll_wide_carry(w);
    for (int i = 0; i < COLL_WIDE_LIMBS; i++)
        w->limb[i] += other->limb[i];
    count_term(w);
}

static double round_among(coll_wide_t *w, int first, int last, uint32_t k, const coll_format_t *format)
{
    uint32_t digit[COLL_WIDE_LIMBS + 2];
    const int count = last - first + 1;
    carry_among(w, first, last);
    for (int i = 0; i < count; i++)
        digit[i] = (uint32_t)((uint64_t)w->limb[first + i] & LIMB_MASK);
    digit[count] = digit[count + 1] = 0;
    const int negative = digits_magnitude(digit, count);
    return digits_round(digit, count, COLL_WIDE_POINT - first * LIMB_BITS, negative, k, format);
}

double coll_wide_round(coll_wide_t *w, uint32_t k, const coll_format_t *format)
{
    return round_among(w, 0, COLL_WIDE_LIMBS - 1, k, format);
}

double coll_wide_round_few(coll_wide_t *w, uint32_t k, const coll_format_t *format)
{
    const int first = (format->least + COLL_WIDE_POINT) / LIMB_BITS - 1;
    const int last = (format->limit + COLL_WIDE_POINT) / LIMB_BITS + 2;
    return round_among(w, first, last, k, format);
}
