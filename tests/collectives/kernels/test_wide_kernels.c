/* SPDX-License-Identifier: Apache-2.0 */
/* tests/collectives/kernels/test_wide_kernels.c: the kernels of complex numbers and of pairs of value and
 * index, every instruction set against trees by recursion over structs. Padding of inputs is garbage, that of
 * results 0. */
/* one thread: TSan has nothing to see */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/kernels/kernels.h"
#include "tests/support/random.h"

enum { MOST_K = 33, MOST = 40, WIDE = 16 };

static const char *const isas[] = {"scalar", "avx2", "avx512", "neon"};
static uint64_t seed = 1;

typedef union {
    unsigned char bytes[WIDE];
    float c64[2];
    double c128[2];
    gyre_float32_int32_t f32;
    gyre_float64_int32_t f64;
    gyre_int32_int32_t i32;
    gyre_int64_int32_t i64;
    gyre_int16_int32_t i16;
} element_t;

static double special(uint64_t bits)
{
    static const double some[] = {0.0,        -0.0, 1.0, -1.0, 1e30, (double)INFINITY, -(double)INFINITY,
                                  (double)NAN};
    return bits & 8 ? some[bits & 7] : (double)(bits >> 8 & 15) - 7.0;
}

static element_t random_element(gyre_type_t type)
{
    element_t e;
    const uint64_t a = random_next(&seed), b = random_next(&seed);
    const int32_t index = (int32_t)(b & 3) - 1; /* often equal */
    memset(&e, 0xa5, sizeof e);
    switch (type) {
    case GYRE_COMPLEX64:
        e.c64[0] = (float)special(a) * 1.1f;
        e.c64[1] = (float)special(b) * 1.1f;
        break;
    case GYRE_COMPLEX128:
        e.c128[0] = special(a) * 1.1;
        e.c128[1] = special(b) * 1.1;
        break;
    case GYRE_FLOAT32_INT32:
        e.f32.value = (float)special(a);
        e.f32.index = index;
        break;
    case GYRE_FLOAT64_INT32:
        e.f64.value = special(a);
        e.f64.index = index;
        break;
    case GYRE_INT32_INT32:
        e.i32.value = (int32_t)(a & 7) - 3;
        e.i32.index = index;
        break;
    case GYRE_INT64_INT32:
        e.i64.value = a & 8 ? INT64_MIN + (int64_t)(a & 1) : (int64_t)(a & 7) - 3;
        e.i64.index = index;
        break;
    default:
        e.i16.value = (int16_t)(a & 8 ? INT16_MAX - (int)(a & 1) : (int)(a & 7) - 3);
        e.i16.index = index;
    }
    return e;
}

/* 1: y is better than x. */
static int float_before(double x, double y, int max)
{
    if (isnan(x) || isnan(y))
        return isnan(y) && !isnan(x);
    if (x == y)
        return max ? signbit(x) && !signbit(y) : signbit(y) && !signbit(x);
    return max ? y > x : y < x;
}

static int int_before(int64_t x, int64_t y, int max)
{
    return max ? y > x : y < x;
}

#define PAIR(FIELD, BEFORE, VALUE)                                                          \
    do {                                                                                    \
        const int second = BEFORE((VALUE)a->FIELD.value, (VALUE)b->FIELD.value, max),       \
                  first = BEFORE((VALUE)b->FIELD.value, (VALUE)a->FIELD.value, max);        \
        const element_t *x = second || (!first && b->FIELD.index < a->FIELD.index) ? b : a; \
        memcpy(&r.FIELD.value, &x->FIELD.value, sizeof r.FIELD.value);                      \
        r.FIELD.index = x->FIELD.index;                                                     \
    } while (0)

static element_t combine(gyre_redop_kind_t op, gyre_type_t type, const element_t *a, const element_t *b)
{
    const int max = op == GYRE_MAXLOC, sum = op == GYRE_SUM || op == GYRE_AVG;
    element_t r;
    memset(&r, 0, sizeof r);
    switch (type) {
    case GYRE_COMPLEX64: {
        volatile float ac = a->c64[0] * b->c64[0], bd = a->c64[1] * b->c64[1], ad = a->c64[0] * b->c64[1],
                       bc = a->c64[1] * b->c64[0];
        r.c64[0] = sum ? a->c64[0] + b->c64[0] : ac - bd;
        r.c64[1] = sum ? a->c64[1] + b->c64[1] : ad + bc;
        break;
    }
    case GYRE_COMPLEX128: {
        volatile double ac = a->c128[0] * b->c128[0], bd = a->c128[1] * b->c128[1],
                        ad = a->c128[0] * b->c128[1], bc = a->c128[1] * b->c128[0];
        r.c128[0] = sum ? a->c128[0] + b->c128[0] : ac - bd;
        r.c128[1] = sum ? a->c128[1] + b->c128[1] : ad + bc;
        break;
    }
    case GYRE_FLOAT32_INT32:
        PAIR(f32, float_before, double);
        break;
    case GYRE_FLOAT64_INT32:
        PAIR(f64, float_before, double);
        break;
    case GYRE_INT32_INT32:
        PAIR(i32, int_before, int64_t);
        break;
    case GYRE_INT64_INT32:
        PAIR(i64, int_before, int64_t);
        break;
    default:
        PAIR(i16, int_before, int64_t);
    }
    return r;
}

static element_t sources[MOST_K][MOST];

static element_t tree(gyre_redop_kind_t op, gyre_type_t type, int first, int k, size_t i)
{
    int left = 1;
    if (k == 1)
        return sources[first][i];
    while (left * 2 < k)
        left *= 2;
    const element_t a = tree(op, type, first, left, i), b = tree(op, type, first + left, k - left, i);
    return combine(op, type, &a, &b);
}

/* Equal bits; of a complex number that is no number, equal in that. */
static int same(gyre_type_t type, const element_t *got, const element_t *want)
{
    const size_t size = gyre_type_size(type);
    if (memcmp(got, want, size) == 0)
        return 1;
    for (int i = 0; i < 2; i++) {
        const double x = type == GYRE_COMPLEX64 ? (double)got->c64[i] : got->c128[i];
        const double y = type == GYRE_COMPLEX64 ? (double)want->c64[i] : want->c128[i];
        if ((type != GYRE_COMPLEX64 && type != GYRE_COMPLEX128) ||
            !(isnan(x) ? isnan(y) : x == y && !signbit(x) == !signbit(y)))
            return 0;
    }
    return 1;
}

/* alias < 0: dst is a buffer of its own. */
static void check(gyre_redop_kind_t op, gyre_type_t type, int k, size_t count, int alias)
{
    static unsigned char rows[MOST_K][MOST * WIDE + 1], own[MOST * WIDE + 2];
    const size_t size = gyre_type_size(type), off = (size_t)(k & 1);
    const void *srcs[MOST_K];
    for (int s = 0; s < k; s++) {
        srcs[s] = rows[s] + off;
        for (size_t i = 0; i < count; i++)
            memcpy(rows[s] + off + i * size, &sources[s][i], size);
    }
    unsigned char *dst = alias < 0 ? own + off : rows[alias] + off;
    own[off + count * size] = 0x5a;
    coll_kernel_reduce(op, type, dst, srcs, k, count);
    assert_int_equal(own[off + count * size], 0x5a);
    for (size_t i = 0; i < count; i++) {
        const element_t alone = tree(op, type, 0, k, i);
        element_t got, want = k == 1 && op >= GYRE_MINLOC ? combine(op, type, &alone, &alone) : alone;
        memset(&got, 0, sizeof got);
        memcpy(&got, dst + i * size, size);
        if (!same(type, &got, &want))
            fail_msg("%s %s %s k %d count %zu alias %d element %zu is wrong", coll_kernel_isa(),
                     gyre_redop_name(op), gyre_type_name(type), k, count, alias, i);
    }
}

static void reductions(void **state)
{
    (void)state;
    int pairs = 0;
    for (size_t isa = 0; isa < sizeof isas / sizeof *isas; isa++) {
        if (!coll_kernel_select(isas[isa]))
            continue;
        seed = 1;
        for (gyre_type_t type = GYRE_COMPLEX64; type < GYRE_TYPE_COUNT; type++)
            for (int op = 0; op < GYRE_REDOP_COUNT; op++) {
                if (!coll_kernel_has((gyre_redop_kind_t)op, type) || type == GYRE_FLOAT8_E4M3 ||
                    type == GYRE_FLOAT8_E5M2)
                    continue;
                pairs++;
                for (int k = 1; k <= MOST_K; k += k < 9 ? 1 : 8) {
                    for (int s = 0; s < k; s++)
                        for (size_t i = 0; i < MOST; i++)
                            sources[s][i] = random_element(type);
                    for (size_t count = 0; count <= MOST; count += 5) {
                        check((gyre_redop_kind_t)op, type, k, count, -1);
                        check((gyre_redop_kind_t)op, type, k, count, (int)(count % (size_t)k));
                    }
                }
            }
    }
    assert_true(coll_kernel_select(NULL));
    assert_true(pairs > 0 && pairs % (2 * 3 + 5 * 2) == 0);
}

static void scaling(void **state)
{
    (void)state;
    double z[4] = {1.5, -2, 3, 0.1}, d[4];
    float f[4] = {1.5f, -2, 3, 0.1f};
    coll_kernel_scale(GYRE_COMPLEX128, d, z, 2, 0.3);
    for (int i = 0; i < 4; i++)
        assert_true(d[i] == z[i] * 0.3);
    coll_kernel_scale(GYRE_COMPLEX64, f, f, 2, 0.3);
    assert_true(f[0] == 1.5f * 0.3f && f[1] == -2 * 0.3f && f[2] == 3 * 0.3f && f[3] == 0.1f * 0.3f);
    coll_kernel_divide(GYRE_COMPLEX128, z, 2, 7);
    assert_true(z[0] == 1.5 / 7 && z[1] == -2.0 / 7 && z[2] == 3.0 / 7 && z[3] == 0.1 / 7);
}

/* The examples of docs/contract.md. */
static void rules(void **state)
{
    (void)state;
    const gyre_float32_int32_t zero = {0.0f, 1}, minus = {-0.0f, 7}, nan = {NAN, 9}, late = {NAN, 3};
    gyre_float32_int32_t r;
    const void *zeros[] = {&zero, &minus}, *nans[] = {&minus, &nan, &late};
    coll_kernel_reduce(GYRE_MINLOC, GYRE_FLOAT32_INT32, &r, zeros, 2, 1);
    assert_true(r.index == 7 && signbit(r.value));
    coll_kernel_reduce(GYRE_MAXLOC, GYRE_FLOAT32_INT32, &r, zeros, 2, 1);
    assert_true(r.index == 1 && !signbit(r.value));
    coll_kernel_reduce(GYRE_MAXLOC, GYRE_FLOAT32_INT32, &r, nans, 3, 1);
    assert_true(r.index == 3 && isnan(r.value));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(reductions), cmocka_unit_test(scaling),
                                       cmocka_unit_test(rules)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
