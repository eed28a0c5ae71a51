/* SPDX-License-Identifier: Apache-2.0 */
/* tests/optim/test_exact.c: exact sums of squares against plain long arithmetic, bit by bit. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "optim/exact.h"

/* The reference: a number of DIGITS bytes, whose bit 0 is 2^-300. */
enum { DIGITS = 90 };
typedef struct {
    uint32_t digit[DIGITS];
} long_t;

static void long_add_square(long_t *sum, float x)
{
    int exponent;
    uint64_t m = (uint64_t)ldexp(frexp(fabs((double)x), &exponent), 24); /* x = m 2^(exponent - 24) */
    if (m == 0)
        return;
    while (m % 2 == 0) { /* denormals have low exponents and low bits that are zero */
        m /= 2;
        exponent++;
    }
    uint64_t square = m * m;
    int bit = 2 * (exponent - 24) + 300;
    for (int b = 0; b < 48; b++)
        if (square >> b & 1) {
            size_t at = (size_t)(bit + b) / 8;
            sum->digit[at] += 1u << (bit + b) % 8;
            for (; sum->digit[at] > 255; at++) {
                sum->digit[at + 1] += sum->digit[at] >> 8;
                sum->digit[at] &= 255;
            }
        }
}

static int long_bit(const long_t *sum, int bit)
{
    return bit >= 0 && (sum->digit[bit / 8] >> bit % 8 & 1);
}

static double long_value(const long_t *sum)
{
    int top = 8 * DIGITS - 1;
    while (top >= 0 && !long_bit(sum, top))
        top--;
    if (top < 0)
        return 0.0;
    uint64_t m = 0;
    for (int b = 0; b < 53; b++)
        m = m << 1 | (uint64_t)long_bit(sum, top - b);
    int below = 0;
    for (int b = top - 54; b >= 0; b--)
        below |= long_bit(sum, b);
    if (long_bit(sum, top - 53) && (below || (m & 1)))
        m++;
    return ldexp((double)m, top - 52 - 300);
}

static double reference(const float *x, size_t n)
{
    long_t sum = {0};
    for (size_t i = 0; i < n; i++)
        long_add_square(&sum, x[i]);
    return long_value(&sum);
}

static double exact(const float *x, size_t n)
{
    optim_exact_t sum;
    optim_exact_begin(&sum);
    optim_exact_add(&sum, x, n);
    optim_exact_close(&sum);
    return optim_exact_value(sum.word);
}

static uint64_t state = 1;
static uint32_t next(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 32);
}

static float from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Of every exponent, zeros and denormals, too; never infinite or NaN. */
static float any(void)
{
    uint32_t bits = next();
    if ((bits >> 23 & 0xff) == 0xff)
        bits ^= 0x40000000u;
    return from_bits(bits);
}
static float gradient(void)
{
    return (float)((int32_t)next()) * 0x1p-31f * ldexpf(1.0f, -(int)(next() % 24));
}

static void test_known(void **unused)
{
    (void)unused;
    const float three[] = {3.0f, -4.0f},
                ties[] = {1.0f, 0x1p-27f, 0x1p-27f}, /* 1 + 2^-53: half an ulp, twice */
        tie[] = {1.0f, 0x1p-27f, 0x1.6a09e6p-28f};   /* just below half an ulp */
    assert_true(exact(NULL, 0) == 0.0);
    assert_true(exact(three, 2) == 25.0);
    assert_true(exact(ties, 3) == 1.0 + 0x1p-53); /* rounds to 1: 2^-54 + 2^-54 is a tie, to even */
    assert_true(exact(tie, 3) == 1.0);
    const float over[] = {1.0f, 0x1p-27f, 0x1p-27f, FLT_TRUE_MIN}; /* a tie, and a speck: up */
    assert_true(exact(over, 4) == 1.0 + DBL_EPSILON);
    const float ends[] = {FLT_MAX, FLT_TRUE_MIN};
    assert_true(exact(ends, 1) == (double)FLT_MAX * (double)FLT_MAX);
    assert_true(exact(ends + 1, 1) == (double)FLT_TRUE_MIN * (double)FLT_TRUE_MIN);
    assert_true(exact(ends, 2) == (double)FLT_MAX * (double)FLT_MAX);
    const float minus[] = {-0.0f, 0.0f};
    assert_true(exact(minus, 2) == 0.0);
}

static void test_random(void **unused)
{
    (void)unused;
    enum { N = 3000 };
    static float x[N];
    for (int round = 0; round < 40; round++) {
        size_t n = 1 + next() % N;
        for (size_t i = 0; i < n; i++)
            x[i] = round % 2 ? any() : gradient();
        double want = reference(x, n);
        assert_true(exact(x, n) == want);
        for (size_t i = n; i-- > 1;) { /* another order, other pieces, on "ranks" whose words are summed */
            size_t j = next() % (i + 1);
            float t = x[i];
            x[i] = x[j];
            x[j] = t;
        }
        uint64_t word[OPTIM_EXACT_WORDS] = {0};
        for (size_t at = 0; at < n;) {
            optim_exact_t part;
            optim_exact_begin(&part);
            for (int pieces = 0; pieces < 3 && at < n; pieces++) {
                size_t len = 1 + next() % (n - at);
                optim_exact_add(&part, x + at, len);
                if (pieces == 1)
                    optim_exact_close(&part);
                at += len;
            }
            optim_exact_close(&part);
            for (size_t k = 0; k < OPTIM_EXACT_WORDS; k++)
                word[k] += part.word[k];
        }
        assert_true(optim_exact_value(word) == want);
    }
}

/* More elements than a bin has room for, in one call and in many. */
static void test_long(void **unused)
{
    (void)unused;
    const size_t n = (1u << 20) + 5;
    float *x = malloc(n * sizeof *x);
    assert_non_null(x);
    const float largest = from_bits(0x3fffffffu); /* 2 - 2^-23 */
    for (size_t i = 0; i < n; i++)
        x[i] = largest;
    uint64_t m = 0xffffff;
    double high = (double)(m * m >> 24) * (double)n,
           low = (double)(m * m & 0xffffff) * (double)n; /* both exact */
    double want = ldexp(high * 0x1p24 + low, -46);
    assert_true(exact(x, n) == want);
    optim_exact_t part;
    optim_exact_begin(&part);
    for (size_t at = 0, len = 1; at < n; at += len, len = len % 7 + 1) {
        len = n - at < len ? n - at : len;
        optim_exact_add(&part, x + at, len);
    }
    optim_exact_close(&part);
    assert_true(optim_exact_value(part.word) == want);
    free(x);
}

static void test_special(void **unused)
{
    (void)unused;
    float x[7] = {1.0f, INFINITY, 2.0f, NAN, -INFINITY, 3.0f, 4.0f};
    optim_exact_t sum;
    optim_exact_begin(&sum);
    optim_exact_add(&sum, x, 7);
    optim_exact_close(&sum);
    assert_int_equal(sum.word[OPTIM_EXACT_LIMBS], 3);
    assert_true(isnan(optim_exact_value(sum.word)));
    x[1] = x[3] = x[4] = 0.0f;
    assert_true(exact(x, 7) == 30.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_long),
        cmocka_unit_test(test_special),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
