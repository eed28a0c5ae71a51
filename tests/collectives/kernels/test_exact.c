/* SPDX-License-Identifier: Apache-2.0 */
/* tests/collectives/kernels/test_exact.c: exact sums and averages, on every instruction set that this
 * machine has, against a reference that shares nothing with the kernels (tests/support/hostile.h).
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
#include "tests/support/hostile.h"

enum { MAX_K = 33, MAX_COUNT = 1100, SLACK = 64 };

static const char *const isas[] = {"scalar", "avx2", "avx512", "neon"};

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
