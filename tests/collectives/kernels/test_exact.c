/* SPDX-License-Identifier: Apache-2.0 */
/* tests/collectives/kernels/test_exact.c: exact sums and averages, on every instruction set that this
 * machine has, against a reference that shares nothing with the kernels: integers of 2400 bits, rounded by
 * search among all values of the format.
 *
 *   test_exact print   prints cases and results for tests/collectives/kernels/exact_compare.py */
/* one thread: TSan has nothing to see */
#include <fenv.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/kernels/kernels.h"
#include "tests/support/random.h"

enum { BIG_POINT = 1074, BIG_WORDS = 75 };
#include "tests/support/big.h"

enum { MAX_K = 33, MAX_COUNT = 1100, SLACK = 64 };

static const char *const isas[] = {"scalar", "avx2", "avx512", "neon"};
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

/* ---- one set of inputs ---- */
static uint64_t input[MAX_COUNT][MAX_K], want[MAX_COUNT];
static unsigned char place[MAX_K][MAX_COUNT * 8 + 2 * SLACK], output[MAX_COUNT * 8 + 2 * SLACK];

static void run(const format_t *f, gyre_redop_kind_t op, int k, size_t count, int kind)
{
    const size_t size = (size_t)f->size;
    const void *srcs[MAX_K];
    int alias = next_random() % 3 == 0 ? (int)(next_random() % (uint64_t)k) : -1;
    int first = (int)(next_random() % (uint64_t)k); /* sources in another order than that of the inputs */
    unsigned char *dst = output + SLACK + next_random() % 9;
    for (int j = 0; j < k; j++) {
        unsigned char *at = place[j] + SLACK + next_random() % 9;
        for (size_t i = 0; i < count; i++)
            memcpy(at + i * size, &input[i][(j + first) % k], size);
        srcs[j] = at;
        if (j == alias)
            dst = at;
    }
    memset(dst - 8, 0xa5, 8);
    memset(dst + count * size, 0xa5, 8);
    coll_kernel_reduce_exact(op, f->type, dst, srcs, k, count);
    for (size_t i = 0; i < count; i++) {
        uint64_t got = 0;
        memcpy(&got, dst + i * size, size);
        if (got != want[i])
            fail_msg("%s %s %s k %d count %zu kind %d element %zu: got %" PRIx64 ", want %" PRIx64,
                     coll_kernel_isa(), gyre_redop_name(op), gyre_type_name(f->type), k, count, kind, i, got,
                     want[i]);
    }
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal(dst[(ptrdiff_t)i - 8], 0xa5);
        assert_int_equal(dst[count * size + i], 0xa5);
    }
    for (int j = 0; j < k; j++) {
        for (size_t i = 0; i < count && j != alias; i++)
            assert_memory_equal((const unsigned char *)srcs[j] + i * size, &input[i][(j + first) % k], size);
    }
}

static void fill(const format_t *f, gyre_redop_kind_t op, int k, size_t count, int kind)
{
    for (size_t i = 0; i < count; i++) {
        fill_element(f, kind, input[i], k);
        want[i] = expected_of(f, input[i], k, op == GYRE_AVG ? (uint32_t)k : 1);
    }
}

static void check(const format_t *f, int k, size_t count, int kind)
{
    static const gyre_redop_kind_t ops[] = {GYRE_SUM, GYRE_AVG};
    for (int o = 0; o < 2; o++) {
        fill(f, ops[o], k, count, kind);
        for (size_t i = 0; i < sizeof isas / sizeof *isas; i++) {
            if (coll_kernel_select(isas[i]))
                run(f, ops[o], k, count, kind);
        }
    }
    assert_true(coll_kernel_select(NULL));
}

/* ---- tests ---- */
static void test_all_kinds(void **state)
{
    static const int ks[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 33};
    (void)state;
    for (int t = 0; t < FORMATS; t++) {
        for (size_t i = 0; i < sizeof ks / sizeof *ks; i++) {
            for (int kind = 0; kind < KINDS; kind++)
                check(&formats[t], ks[i], 1 + next_random() % 50, kind);
        }
    }
}

/* More than a block, of elements that need different ways. */
static void test_blocks(void **state)
{
    (void)state;
    for (int t = 0; t < FORMATS; t++) {
        check(&formats[t], 3, MAX_COUNT, MIXED);
        check(&formats[t], 8, MAX_COUNT, LIKE);
        check(&formats[t], 2, MAX_COUNT, INTEGERS);
    }
}

/* More sources than any group, and more than the loops divide by: the same few, many times. */
static void test_many_sources(void **state)
{
    enum { MOST = 140001 };
    static const void *srcs[MOST];
    static uint64_t all[MOST];
    static const int ks[] = {2001, 32769, MOST};
    (void)state;
    for (int t = 0; t < FORMATS; t++) {
        const format_t *f = &formats[t];
        for (size_t i = 0; i < 2 * sizeof ks / sizeof *ks; i++) {
            uint64_t x[3], got = 0;
            const int k = ks[i / 2];
            fill_element(f, i % 2 ? SUBNORMAL : LIKE, x, 3);
            for (int j = 0; j < k; j++) {
                all[j] = x[j % 3];
                srcs[j] = &x[j % 3];
            }
            coll_kernel_reduce_exact(GYRE_AVG, f->type, &got, srcs, k, 1);
            uint64_t expected = expected_of(f, all, k, (uint32_t)k);
            assert_memory_equal(&got, &expected, (size_t)f->size);
        }
    }
    /* so near to a tie that a float would lie on it: the smallest bfloat times (MOST + 1) / 2 / MOST */
    const uint16_t least = 1, zero = 0;
    uint16_t got = 0;
    for (int j = 0; j < MOST; j++)
        srcs[j] = j % 2 == 0 ? &least : &zero;
    coll_kernel_reduce_exact(GYRE_AVG, GYRE_BFLOAT16, &got, srcs, MOST, 1);
    assert_int_equal(got, 1);
}

/* The thread's modes change nothing, and stay; so do its flags. */
static void test_modes(void **state)
{
    (void)state;
    for (int t = 0; t < FORMATS; t++) {
        const format_t *f = &formats[t];
        fill(f, GYRE_SUM, 5, 60, MIXED);
        feclearexcept(FE_ALL_EXCEPT);
        feraiseexcept(FE_DIVBYZERO);
        assert_int_equal(fesetround(FE_UPWARD), 0);
        const void *srcs[5];
        unsigned char *dst = output;
        for (int j = 0; j < 5; j++) {
            for (size_t i = 0; i < 60; i++)
                memcpy(place[j] + i * (size_t)f->size, &input[i][j], (size_t)f->size);
            srcs[j] = place[j];
        }
        coll_kernel_reduce_exact(GYRE_SUM, f->type, dst, srcs, 5, 60);
        int rounding = fegetround(), flags = fetestexcept(FE_ALL_EXCEPT);
        assert_int_equal(fesetround(FE_TONEAREST), 0);
        assert_int_equal(rounding, FE_UPWARD);
        assert_int_equal(flags, FE_DIVBYZERO);
        feclearexcept(FE_ALL_EXCEPT);
        for (size_t i = 0; i < 60; i++)
            assert_memory_equal(dst + i * (size_t)f->size, &want[i], (size_t)f->size);
    }
}

/* One case in a line: type, operation, inputs, result; all but the names as hexadecimal bits. */
static int print_cases(void)
{
    for (int n = 0; n < 4000; n++) {
        const format_t *f = &formats[n % FORMATS];
        int k = 1 + (int)(next_random() % 9);
        gyre_redop_kind_t op = next_random() & 1 ? GYRE_SUM : GYRE_AVG;
        const void *srcs[MAX_K];
        uint64_t x[MAX_K], got = 0;
        fill_element(f, n / FORMATS % KINDS, x, k);
        for (int j = 0; j < k; j++)
            srcs[j] = &x[j];
        coll_kernel_reduce_exact(op, f->type, &got, srcs, k, 1);
        printf("%s %s", gyre_type_name(f->type), gyre_redop_name(op));
        for (int j = 0; j < k; j++)
            printf(" %" PRIx64, x[j]);
        printf(" %" PRIx64 "\n", got);
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "print") == 0)
        return print_cases();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_kinds),
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_many_sources),
        cmocka_unit_test(test_modes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
