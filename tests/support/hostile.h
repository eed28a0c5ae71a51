/* SPDX-License-Identifier: Apache-2.0 */
/* tests/support/hostile.h: inputs that make exact sums hard, and what they add up to, by integers of 2400
 * bits and a search among all values of the format; for tests of exact kernels, which include it once. */
#ifndef TESTS_SUPPORT_HOSTILE_H
#define TESTS_SUPPORT_HOSTILE_H

#include <stdint.h>

#include <gyre/types.h>

#include "tests/support/random.h"

enum { BIG_POINT = 1074, BIG_WORDS = 75 };
#include "tests/support/big.h"

static uint64_t seed = 1;

static uint64_t next_random(void)
{
    return random_next(&seed);
}

static const format_t formats[] = {
    {GYRE_FLOAT16, 2, 10, 5}, {GYRE_BFLOAT16, 2, 7, 8}, {GYRE_FLOAT32, 4, 23, 8}, {GYRE_FLOAT64, 8, 52, 11}};
enum { FORMATS = sizeof formats / sizeof *formats };

/* ---- the reference ---- */
static uint64_t expected_of(const format_t *f, const uint64_t *x, int k, uint32_t divisor)
{
    uint64_t infinity = infinity_of(f), sign = sign_of(f);
    big_t plus = {{0}}, minus = {{0}};
    int nan = 0, up = 0, down = 0, all_minus_zero = 1, power;
    for (int j = 0; j < k; j++) {
        uint64_t size = x[j] & ~sign;
        nan |= size > infinity;
        up |= x[j] == infinity;
        down |= x[j] == (infinity | sign);
        all_minus_zero &= x[j] == sign;
        const uint64_t m = significand_of(f, size, &power);
        if (size < infinity)
            big_add(x[j] & sign ? &minus : &plus, m, power);
    }
    if (nan || (up && down))
        return nan_of(f);
    if (up || down)
        return infinity | (down ? sign : 0);
    if (all_minus_zero)
        return sign;
    return big_nearest(f, &plus, &minus, divisor);
}

/* ---- inputs ---- */
enum {
    ANY_BITS,
    LIKE,      /* of similar size: no bit is lost */
    INTEGERS,  /* small ones: ties of averages */
    CANCEL,    /* pairs that cancel, and something small */
    SUBNORMAL, /* and near it */
    TIES,      /* a value, half its last place, and something tiny or nothing */
    LARGE,     /* around the largest value: sums overflow on the way, at the end, or just not */
    SPECIAL,   /* infinities and NaN among others */
    ZEROS,     /* of both signs, mostly -0 */
    AVERAGE_TIES,
    ALL_POWERS, /* every exponent, finite */
    KINDS,
    MIXED = KINDS
};

static uint64_t make(const format_t *f, uint64_t exponent, uint64_t fraction, uint64_t negative)
{
    return (negative & 1 ? sign_of(f) : 0) | exponent << f->fraction |
           (fraction & ((UINT64_C(1) << f->fraction) - 1));
}

/* n units, each of which would have this exponent field. */
static uint64_t make_integer(const format_t *f, uint64_t n, uint64_t unit, uint64_t negative)
{
    if (n == 0)
        return make(f, 0, 0, negative);
    const uint64_t top = 63u - (uint64_t)__builtin_clzll(n), most = (uint64_t)f->fraction;
    return make(f, unit + top, top > most ? n >> (top - most) : n << (most - top), negative);
}

/* Inputs whose average lies on a tie, or next to one: k times a number with one bit too many, in two
 * parts. */
static void fill_average_tie(const format_t *f, uint64_t *x, int k)
{
    const uint64_t precision = (uint64_t)f->fraction + 1, unit = f->type == GYRE_FLOAT16 ? 10 : 100;
    const uint64_t half = UINT64_C(1) << precision, r = next_random();
    const uint64_t n = (half | 1 | (r & (half - 1))) * (uint64_t)k, top = 64 - (uint64_t)__builtin_clzll(n);
    const uint64_t low = n & ((UINT64_C(1) << (top - precision)) - 1), down = 1 + next_random() % 64;
    for (int j = 0; j < k; j++)
        x[j] = j == 0   ? make_integer(f, n - low, unit, r >> 60)
               : j == 1 ? make_integer(f, low, unit, r >> 60)
               : j == 2 ? make(f, unit > down ? unit - down : 0, 0, r >> 61)
                        : 0;
}

/* The k inputs of one element. */
static void fill_element(const format_t *f, int kind, uint64_t *x, int k)
{
    const uint64_t exponents = (UINT64_C(1) << f->exponent) - 1; /* that of infinity */
    const uint64_t middle = 1 + next_random() % (exponents - 1), sign = sign_of(f);
    if (kind == MIXED)
        kind = (int)(next_random() % KINDS);
    if (kind == AVERAGE_TIES)
        fill_average_tie(f, x, k);
    for (int j = 0; j < k && kind != AVERAGE_TIES; j++) {
        uint64_t r = next_random(), r2 = next_random(), e;
        switch (kind) {
        case LIKE:
            x[j] = make(f, exponents / 2 + r % 3, r2, r >> 8);
            break;
        case INTEGERS: { /* 1 to 16, as sums of powers of two would be */
            uint64_t n = 1 + r % 16, top = 63u - (uint64_t)__builtin_clzll(n);
            x[j] = make(f, exponents / 2 + top, n << ((uint64_t)f->fraction - top), r2);
            break;
        }
        case CANCEL:
            if (j % 2 == 1)
                x[j] = x[j - 1] ^ sign;
            else
                x[j] = make(f, r % exponents, j == k - 1 && r & 1 ? 0 : r2, r >> 32);
            if (r >> 40 & 1 && j > 0)
                x[j] = x[j] & sign ? x[j] | 1 : x[j] ^ 1;
            break;
        case SUBNORMAL:
            x[j] = make(f, r % 8 ? 0 : r % 64 / 8, r2 >> (r >> 8) % 60, r >> 32);
            break;
        case TIES: /* what is tiny here lies far below, or just below, half the last place */
            e = middle > (uint64_t)f->fraction + 2 ? middle - (uint64_t)f->fraction - 1 : 1;
            x[j] = j == 0   ? make(f, middle, r2, 0)
                   : j == 1 ? make(f, e, 0, r)
                   : r & 1 ? make(f, 0, r2 >> (64 - (uint64_t)f->fraction + (r >> 8) % (uint64_t)f->fraction),
                                  r >> 1)
                           : make(f, e > 3 ? e - 1 - r2 % 3 : 0, 0, r >> 1);
            break;
        case LARGE:
            x[j] = make(f, exponents - 1 - (r % 4 ? 0 : r % 16), r & 64 ? r2 : ~(r2 >> 62), r >> 8);
            if (r % 16 == 1) /* half the last place of the largest value */
                x[j] = make(f, exponents - 2 - (uint64_t)f->fraction, 0, r >> 8);
            break;
        case SPECIAL:
            x[j] = r % 8 == 0    ? infinity_of(f) | (r2 & 7 ? 0 : sign)
                   : r % 64 == 1 ? infinity_of(f) | (r2 & sign) | (1 + r2 % 100)
                                 : make(f, r2 % exponents, r >> 4, r >> 32);
            break;
        case ZEROS:
            x[j] = r % 16 ? sign : 0;
            break;
        case ALL_POWERS:
            x[j] = make(f, r % exponents, r2, r >> 32);
            break;
        default:
            x[j] = r & (sign | (sign - 1));
        }
    }
    for (int j = k - 1; j > 0; j--) { /* in any order */
        int other = (int)(next_random() % (uint64_t)(j + 1));
        uint64_t t = x[j];
        x[j] = x[other], x[other] = t;
    }
}

#endif
