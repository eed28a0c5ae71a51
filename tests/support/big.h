/* SPDX-License-Identifier: Apache-2.0 */
/* tests/support/big.h: floating-point numbers as integers of many bits: the reference of exact sums.
 *
 * The program says before how many: BIG_POINT, so that units are 2^-BIG_POINT, and BIG_WORDS of 32 bits. */
#ifndef TESTS_SUPPORT_BIG_H
#define TESTS_SUPPORT_BIG_H

#include <stdint.h>

#include <gyre/types.h>

/* ---- formats ---- */
typedef struct {
    gyre_type_t type;
    int size, fraction, exponent; /* bytes; bits of the two fields */
} format_t;

static inline uint64_t infinity_of(const format_t *f)
{
    return ((UINT64_C(1) << f->exponent) - 1) << f->fraction;
}
static inline uint64_t sign_of(const format_t *f)
{
    return UINT64_C(1) << (f->fraction + f->exponent);
}
static inline uint64_t nan_of(const format_t *f)
{
    return infinity_of(f) | UINT64_C(1) << (f->fraction - 1);
}

/* The size of a finite number is the result times 2^*power. */
static inline uint64_t significand_of(const format_t *f, uint64_t bits, int *power)
{
    int field = (int)(bits >> f->fraction) & ((1 << f->exponent) - 1);
    uint64_t m = bits & ((UINT64_C(1) << f->fraction) - 1);
    *power = (field ? field : 1) - ((1 << (f->exponent - 1)) - 1) - f->fraction;
    return field ? m | UINT64_C(1) << f->fraction : m;
}

/* ---- integers ---- */
typedef struct {
    uint32_t word[BIG_WORDS];
} big_t;

/* a += m * 2^power */
static inline void big_add(big_t *a, uint64_t m, int power)
{
    const int shift = power + BIG_POINT;
    uint64_t carry = 0;
    for (int i = shift / 32; i < BIG_WORDS && (carry || i < shift / 32 + 3); i++) {
        int from = 32 * i - shift; /* the lowest bit of m that this word takes */
        uint64_t part = from >= 64 ? 0 : from < 0 ? m << -from : m >> from;
        carry += (uint64_t)a->word[i] + (uint32_t)part;
        a->word[i] = (uint32_t)carry;
        carry >>= 32;
    }
}

/* a += m * n * 2^power */
static inline void big_add_product(big_t *a, uint64_t m, uint64_t n, int power)
{
    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < 2; j++)
            big_add(a, (m >> 32 * i & 0xffffffffu) * (n >> 32 * j & 0xffffffffu), power + 32 * (i + j));
    }
}

static inline int big_compare(const big_t *a, const big_t *b)
{
    for (int i = BIG_WORDS - 1; i >= 0; i--) {
        if (a->word[i] != b->word[i])
            return a->word[i] < b->word[i] ? -1 : 1;
    }
    return 0;
}

/* a -= b, which is not larger */
static inline void big_subtract(big_t *a, const big_t *b)
{
    uint64_t borrow = 0;
    for (int i = 0; i < BIG_WORDS; i++) {
        uint64_t d = (uint64_t)a->word[i] - b->word[i] - borrow;
        a->word[i] = (uint32_t)d;
        borrow = d >> 63;
    }
}

/* The bits of the number that is nearest to (plus - minus) / divisor, ties to the even one: by search among
 * all of the format. */
static inline uint64_t big_nearest(const format_t *f, const big_t *plus, const big_t *minus, uint32_t divisor)
{
    const int negative = big_compare(plus, minus) < 0;
    big_t total = negative ? *minus : *plus;
    big_subtract(&total, negative ? plus : minus);

    /* value(low) <= total / divisor, which is below value(high), or high is infinity */
    uint64_t low = 0, high = infinity_of(f), m;
    int power;
    while (high - low > 1) {
        uint64_t middle = (low + high) / 2;
        big_t there = {{0}};
        m = significand_of(f, middle, &power);
        big_add_product(&there, m, divisor, power);
        *(big_compare(&there, &total) <= 0 ? &low : &high) = middle;
    }
    big_t tie = {
        {0}}; /* twice the value that is half-way, times the divisor; infinity: what would come next */
    m = significand_of(f, low, &power);
    big_add_product(&tie, m, divisor, power);
    m = significand_of(f, high, &power);
    big_add_product(&tie, m, divisor, power);
    big_t twice = {{0}};
    for (int i = 0; i < BIG_WORDS; i++)
        twice.word[i] = total.word[i] << 1 | (i > 0 ? total.word[i - 1] >> 31 : 0);
    int side = big_compare(&twice, &tie);
    return (side > 0 || (side == 0 && (low & 1)) ? high : low) | (negative ? sign_of(f) : 0);
}

#endif
