/* SPDX-License-Identifier: Apache-2.0 */
/* tests/collectives/kernels/test_exact_value.c: gyre/exact.h in one process, on every instruction set that
 * this machine has: sums, dot products and norms against integers of 4300 bits, however the data are split.
 * mp_exact_value.c has the ranks. */
/* one thread: TSan has nothing to see */
#include <fenv.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include <cmocka.h>

#include <gyre/exact.h>

#include "collectives/kernels/kernels.h"
#include "tests/support/random.h"

enum { BIG_POINT = 2148, BIG_WORDS = 134 };
#include "tests/support/big.h"

enum { MOST = 3000 };

static const char *const isas[] = {"scalar", "avx2", "avx512", "neon"};
static const format_t single = {GYRE_FLOAT32, 4, 23, 8}, real = {GYRE_FLOAT64, 8, 52, 11};
static uint64_t seed = 1;

static uint64_t next_random(void)
{
    return random_next(&seed);
}

static double as_double(uint64_t bits)
{
    double d;
    memcpy(&d, &bits, sizeof d);
    return d;
}

static uint64_t as_bits(double d)
{
    uint64_t bits;
    memcpy(&bits, &d, sizeof bits);
    return bits;
}

/* ---- inputs ---- */
typedef enum {
    PLAIN,     /* of similar size */
    SPREAD,    /* exponents over 140 places: errors of errors are needed */
    WIDE,      /* all exponents */
    CANCEL,    /* everything cancels but for a few small numbers */
    LARGE,     /* sums and products overflow on the way */
    SUBNORMAL, /* products lose bits to underflow */
    MIRROR, /* as SPREAD or WIDE, and its negative, so that what is left are the last bits of all numbers */
    MIRROR_WIDE,
    KINDS
} kind_t;

static double number(kind_t kind, const format_t *f, size_t i)
{
    const uint64_t r = next_random(), r2 = next_random();
    const double m = (r & 1 ? 1 : -1) * (1 + (double)(r >> 12) * 0x1p-52);
    switch (kind) {
    case SPREAD:
    case MIRROR:
        return ldexp(m, (int)(r2 % 140) - 70);
    case WIDE:
    case MIRROR_WIDE:
        return ldexp(m, (int)(r2 % 2040) - 1030);
    case CANCEL:
        return ldexp(i % 2 ? 1 : -1, 40) + (r2 % 64 == 0 ? m * 0x1p-12 : 0);
    case LARGE:
        return ldexp(m, 1023 - (int)(r2 % 4));
    case SUBNORMAL:
        if (f->type == GYRE_FLOAT32)
            return ldexp(m, -100 - (int)(r2 % 45));
        return ldexp(m, (int)(r2 % 8 ? -540 : -1060) + (int)(r2 % 50));
    default:
        return m * (double)(r2 % 1000);
    }
}

static unsigned char room_x[MOST * 8 + 16], room_y[MOST * 8 + 16];
static unsigned char *x, *y; /* at odd addresses, now and then */

static void put(unsigned char *to, size_t i, const format_t *f, double v)
{
    float narrow = (float)v;
    if (f->type == GYRE_FLOAT64)
        memcpy(to + i * 8, &v, 8);
    else
        memcpy(to + i * 4, &narrow, 4);
}

static uint64_t get(const unsigned char *from, size_t i, const format_t *f)
{
    uint64_t bits = 0;
    memcpy(&bits, from + i * (size_t)f->size, (size_t)f->size);
    return bits;
}

static void fill(kind_t kind, const format_t *f, size_t count)
{
    x = room_x + next_random() % 9;
    y = room_y + next_random() % 9;
    for (size_t i = 0; i < count; i++) {
        double a = number(kind, f, i), b = number(kind, f, i);
        if (f->type == GYRE_FLOAT32 && (fabs(a) > 3e38 || fabs(b) > 3e38)) /* stays finite */
            a = copysign(3e38, a), b = copysign(3e38, b);
        put(x, i, f, a);
        put(y, i, f, b);
    }
    for (size_t i = count / 2 + 1; i < count && kind >= MIRROR; i++) {
        const size_t size = (size_t)f->size, from = count - 1 - i;
        memcpy(y + i * size, y + from * size, size);
        const uint64_t negative = get(x, from, f) ^ sign_of(f);
        memcpy(x + i * size, &negative, size);
    }
}

/* ---- the reference ---- */
typedef enum { SUM, DOT, NORM, WAYS } way_t;

static uint64_t expected(const format_t *f, way_t way, size_t count)
{
    big_t plus = {{0}}, minus = {{0}};
    int all_minus_zero = 1;
    for (size_t i = 0; i < count; i++) {
        uint64_t a = get(x, i, f), b = way == DOT ? get(y, i, f) : a, sign = way == SUM ? a : a ^ b;
        int pa, pb;
        uint64_t ma = significand_of(f, a, &pa), mb = significand_of(f, b, &pb);
        if (way == SUM)
            mb = 1, pb = 0;
        big_add_product(sign & sign_of(f) ? &minus : &plus, ma, mb, pa + pb);
        all_minus_zero &= (ma == 0 || mb == 0) && (sign & sign_of(f)) != 0;
    }
    if (all_minus_zero)
        return sign_of(&real);
    return big_nearest(&real, &plus, &minus, 1);
}

static void add(gyre_exact_t *sum, way_t way, const format_t *f, size_t from, size_t count)
{
    const void *a = x + from * (size_t)f->size, *b = y + from * (size_t)f->size;
    gyre_status_t st = way == SUM   ? gyre_exact_add(sum, a, count, f->type)
                       : way == DOT ? gyre_exact_add_dot(sum, a, b, count, f->type)
                                    : gyre_exact_add_norm2(sum, a, count, f->type);
    assert_int_equal(st, GYRE_OK);
}

static uint64_t value_of(const gyre_exact_t *sum)
{
    double v;
    assert_int_equal(gyre_exact_value(sum, &v), GYRE_OK);
    return as_bits(v);
}

/* ---- tests ---- */

/* In one call, in pieces, and in pieces that several sums get and that are merged in some order. */
static void check(kind_t kind, const format_t *f, way_t way, size_t count, uint64_t want)
{
    enum { PARTS = 3 };
    gyre_exact_t *sum, *part[PARTS];
    assert_int_equal(gyre_exact_create(&sum), GYRE_OK);
    add(sum, way, f, 0, count);
    uint64_t got = value_of(sum);
    if (got != want)
        fail_msg("%s kind %d %s way %d count %zu: got %a, want %a", coll_kernel_isa(), (int)kind,
                 gyre_type_name(f->type), (int)way, count, as_double(got), as_double(want));
    assert_int_equal(gyre_exact_reset(sum), GYRE_OK);
    for (int p = 0; p < PARTS; p++)
        assert_int_equal(gyre_exact_create(&part[p]), GYRE_OK);
    for (size_t at = 0, piece; at < count; at += piece) {
        piece = 1 + next_random() % (count - at < 700 ? count - at : 700);
        add(part[next_random() % PARTS], way, f, at, piece);
    }
    for (size_t p = 0, first = next_random() % PARTS; p < PARTS; p++)
        assert_int_equal(gyre_exact_merge(sum, part[(first + p) % PARTS]), GYRE_OK);
    assert_true(value_of(sum) == want);
    for (int p = 0; p < PARTS; p++)
        assert_int_equal(gyre_exact_destroy(part[p]), GYRE_OK);
    assert_int_equal(gyre_exact_destroy(sum), GYRE_OK);
}

static void test_values(void **state)
{
    static const size_t counts[] = {1, 2, 16, 17, 100, 127, 128, 129, 1024, 1025, MOST};
    (void)state;
    for (int t = 0; t < 2; t++) {
        const format_t *f = t ? &real : &single;
        for (kind_t kind = 0; kind < KINDS; kind++) {
            for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
                fill(kind, f, counts[c]);
                for (way_t way = 0; way < WAYS; way++) {
                    uint64_t want = expected(f, way, counts[c]);
                    for (size_t i = 0; i < sizeof isas / sizeof *isas; i++) {
                        if (coll_kernel_select(isas[i]))
                            check(kind, f, way, counts[c], want);
                    }
                }
            }
        }
    }
    assert_true(coll_kernel_select(NULL));
}

/* Many blocks that lanes keep, then a sudden change of size. */
static void test_long(void **state)
{
    (void)state;
    gyre_exact_t *sum;
    assert_int_equal(gyre_exact_create(&sum), GYRE_OK);
    double *a = malloc(200000 * sizeof *a);
    assert_non_null(a);
    for (size_t i = 0; i < 200000; i++)
        a[i] = (double)(i % 1000) * 0.125 - 40;
    double whole = 0; /* exact: multiples of an eighth */
    for (size_t i = 0; i < 200000; i++)
        whole += a[i];
    const double steps[] = {0x1p900, 0x1p-1000, -0x1p900, -0x1p-1000};
    for (int s = 0; s < 4; s++) {
        assert_int_equal(gyre_exact_add(sum, a, 200000, GYRE_FLOAT64), GYRE_OK);
        assert_int_equal(gyre_exact_add(sum, &steps[s], 1, GYRE_FLOAT64), GYRE_OK);
    }
    assert_true(value_of(sum) == as_bits(4 * whole));
    free(a);
    assert_int_equal(gyre_exact_destroy(sum), GYRE_OK);
}

/* n times a, then n times b: the value. n is more than goes number by number. */
static double twice(double a, double b, size_t n)
{
    double v, *many = malloc(n * sizeof *many);
    gyre_exact_t *sum;
    assert_non_null(many);
    assert_int_equal(gyre_exact_create(&sum), GYRE_OK);
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < n; i++)
            many[i] = round ? b : a;
        assert_int_equal(gyre_exact_add(sum, many, n, GYRE_FLOAT64), GYRE_OK);
    }
    assert_int_equal(gyre_exact_value(sum, &v), GYRE_OK);
    assert_int_equal(gyre_exact_destroy(sum), GYRE_OK);
    free(many);
    return v;
}

static double product(double a, double b, size_t n)
{
    double v, *many = malloc(2 * n * sizeof *many);
    gyre_exact_t *sum;
    assert_non_null(many);
    assert_int_equal(gyre_exact_create(&sum), GYRE_OK);
    for (size_t i = 0; i < n; i++)
        many[i] = a, many[n + i] = b;
    assert_int_equal(gyre_exact_add_dot(sum, many, many + n, n, GYRE_FLOAT64), GYRE_OK);
    assert_int_equal(gyre_exact_value(sum, &v), GYRE_OK);
    assert_int_equal(gyre_exact_destroy(sum), GYRE_OK);
    free(many);
    return v;
}

static void is(double got, double want)
{
    if (as_bits(got) != as_bits(want))
        fail_msg("got %a, want %a", got, want);
}

static void test_special(void **state)
{
    static const size_t counts[] = {1, 200};
    const double infinity = (double)INFINITY, nan = (double)NAN, most = 0x1.fffffffffffffp1023;
    (void)state;
    for (int c = 0; c < 2; c++) {
        const size_t n = counts[c];
        is(twice(infinity, 1, n), infinity);
        is(twice(1, -infinity, n), -infinity);
        is(twice(infinity, -infinity, n), nan);
        is(twice(-nan, 1, n), nan);
        is(twice(infinity, nan, n), nan);
        is(twice(-0.0, -0.0, n), -0.0);
        is(twice(-0.0, 0.0, n), 0.0);
        is(twice(1, -1, n), 0.0);
        is(twice(most, -most, n), 0.0);
        is(twice(most, most, n), infinity);
        is(product(0, infinity, n), nan);
        is(product(-2, infinity, n), -infinity);
        is(product(-0.0, 3, n), -0.0);
        is(product(-0.0, -3, n), 0.0);
        is(product(most, -most, n), -infinity);
    }
    is(product(0x1p-1074, 0x1p-1074, 1), 0.0); /* rounded: the sum is not zero */
    is(product(0x1p-1074, -0x1p-1074, 1), -0.0);
    is(product(0x1p-540, 0x1p-540, 64), 0x1p-1074);
}

static void test_empty(void **state)
{
    (void)state;
    gyre_exact_t *sum;
    assert_int_equal(gyre_exact_create(&sum), GYRE_OK);
    assert_true(value_of(sum) == 0);
    assert_int_equal(gyre_exact_add(sum, NULL, 0, GYRE_FLOAT64), GYRE_OK);
    assert_int_equal(gyre_exact_add_dot(sum, NULL, NULL, 0, GYRE_FLOAT32), GYRE_OK);
    assert_true(value_of(sum) == 0);
    assert_int_equal(gyre_exact_destroy(sum), GYRE_OK);
    assert_int_equal(gyre_exact_destroy(NULL), GYRE_OK);
}

/* The thread's modes change nothing, and stay. No call raises a flag, as a program may trap them. */
static void test_modes(void **state)
{
    (void)state;
    static const double all[][3] = {
        {1, 0x1p-60, -3}, {0x1p-1074, 0x1p-1070, 0x1p-1073}, {0x1p1023, 0x1p1023, 0}};
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++) {
        uint64_t want = 0, got = 1;
        for (int mode = 0; mode < 2; mode++) {
            gyre_exact_t *sum, *other;
            double value = -1;
            assert_int_equal(gyre_exact_create(&sum), GYRE_OK);
            assert_int_equal(gyre_exact_create(&other), GYRE_OK);
            feclearexcept(FE_ALL_EXCEPT);
            if (mode == 1) {
                assert_int_equal(fesetround(FE_UPWARD), 0);
#if defined(__x86_64__)
                _mm_setcsr(_mm_getcsr() | 0x8040); /* subnormal numbers and results are zero: -ffast-math */
#endif
            }
            gyre_exact_add(sum, all[k], 2, GYRE_FLOAT64);
            gyre_exact_add(other, all[k] + 2, 1, GYRE_FLOAT64);
            gyre_exact_merge(sum, other);
            gyre_exact_value(sum, &value);
            const int rounding = fegetround(), flags = fetestexcept(FE_ALL_EXCEPT);
#if defined(__x86_64__)
            assert_int_equal(_mm_getcsr() & 0x8040, mode == 1 ? 0x8040 : 0);
            _mm_setcsr(_mm_getcsr() & ~0x8040U);
#endif
            fesetround(FE_TONEAREST);
            assert_int_equal(rounding, mode == 1 ? FE_UPWARD : FE_TONEAREST);
            assert_int_equal(flags, 0);
            *(mode == 1 ? &got : &want) = as_bits(value);
            assert_int_equal(gyre_exact_destroy(sum), GYRE_OK);
            assert_int_equal(gyre_exact_destroy(other), GYRE_OK);
        }
        assert_true(got == want);
    }
}

static void test_errors(void **state)
{
    (void)state;
    gyre_exact_t *sum, *other;
    gyre_request_t *request = NULL;
    double one = 1, value = 7;
    assert_int_equal(gyre_exact_create(NULL), GYRE_ERR_INVALID);
    assert_int_equal(gyre_exact_create(&sum), GYRE_OK);
    assert_int_equal(gyre_exact_create(&other), GYRE_OK);
    assert_int_equal(gyre_exact_add(sum, &one, 1, GYRE_FLOAT64), GYRE_OK);
    assert_int_equal(gyre_exact_reset(NULL), GYRE_ERR_INVALID);
    assert_int_equal(gyre_exact_add(NULL, &one, 1, GYRE_FLOAT64), GYRE_ERR_INVALID);
    assert_int_equal(gyre_exact_add(sum, NULL, 1, GYRE_FLOAT64), GYRE_ERR_INVALID);
    assert_non_null(strstr(gyre_last_error(), "gyre_exact_add: x is NULL"));
    assert_int_equal(gyre_exact_add(sum, &one, 1, GYRE_INT64), GYRE_ERR_TYPE);
    assert_non_null(strstr(gyre_last_error(), "int64"));
    assert_int_equal(gyre_exact_add(sum, &one, 0, (gyre_type_t)99), GYRE_ERR_TYPE);
    assert_int_equal(gyre_exact_add_dot(sum, &one, NULL, 1, GYRE_FLOAT64), GYRE_ERR_INVALID);
    assert_non_null(strstr(gyre_last_error(), "y is NULL"));
    assert_int_equal(gyre_exact_add_norm2(sum, &one, 1, GYRE_BFLOAT16), GYRE_ERR_TYPE);
    assert_int_equal(gyre_exact_merge(sum, NULL), GYRE_ERR_INVALID);
    assert_int_equal(gyre_exact_merge(NULL, sum), GYRE_ERR_INVALID);
    assert_int_equal(gyre_exact_merge(sum, sum), GYRE_ERR_INVALID);
    assert_int_equal(gyre_exact_all_reduce(sum, NULL), GYRE_ERR_INVALID);
    assert_int_equal(gyre_exact_iall_reduce(sum, NULL, &request), GYRE_ERR_INVALID);
    assert_int_equal(gyre_exact_value(sum, NULL), GYRE_ERR_INVALID);
    assert_int_equal(gyre_exact_value(NULL, &value), GYRE_ERR_INVALID);
    assert_true(value == 7);
    assert_true(value_of(sum) == as_bits(1)); /* none of that changed it */
    assert_int_equal(gyre_exact_destroy(sum), GYRE_OK);
    assert_int_equal(gyre_exact_destroy(other), GYRE_OK);
}

int main(void)
{
    setenv("GYRE_LOG", "none", 1); /* the refusals are wanted */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values), cmocka_unit_test(test_long),   cmocka_unit_test(test_special),
        cmocka_unit_test(test_empty),  cmocka_unit_test(test_errors), cmocka_unit_test(test_modes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
