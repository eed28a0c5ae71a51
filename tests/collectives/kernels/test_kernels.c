/* SPDX-License-Identifier: Apache-2.0 */
/* tests/collectives/kernels/test_kernels.c: every instruction set that this machine has against a reference
 * that shares nothing with the kernels: trees by recursion, floats through double, short ones rounded by
 * search in the table of all values. Longer than 600 lines: one reference serves all of it. */
/* one thread: TSan has nothing to see */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/kernels/float8.h"
#include "collectives/kernels/kernels.h"
#include "tests/support/random.h"

enum { MAX_K = 130, MAX_COUNT = 5000, SLACK = 64 };

static const char *const isas[] = {"scalar", "avx2", "avx512", "neon"};
static const gyre_redop_kind_t ops[] = {
#define REDOP(id, name, kernels, device) GYRE_##id,
#include "base/redops.def"
#undef REDOP
};
enum { OPS = sizeof ops / sizeof *ops };

/* ---- random inputs ---- */
static uint64_t seed = 1;

static uint64_t next_random(void)
{
    return random_next(&seed);
}

/* ---- 8-bit and 16-bit floats by definition ---- */
typedef struct {
    double value
        /* of the non-negative patterns below `infinity`; at it: the next value that the format lacks */
        [0x8000];
    unsigned infinity; /* bits of +infinity, or, where the format has none, of +NaN */
    unsigned sign;     /* the sign's bit */
    int finite;        /* 1: it has none */
} table16_t;
static table16_t half_table, bfloat_table, e4m3_table, e5m2_table;

static void fill_table(table16_t *t, int bits, int mantissa_bits, int bias)
{
    unsigned exponents = 1u << (bits - 1 - mantissa_bits);
    t->sign = 1u << (bits - 1);
    t->infinity = (exponents - 1) << mantissa_bits;
    if (t == &e4m3_table) {
        t->infinity = 0x7f;
        t->finite = 1;
    }
    for (unsigned h = 0; h <= t->infinity; h++) {
        int e = (int)(h >> mantissa_bits);
        unsigned m = h & ((1u << mantissa_bits) - 1);
        t->value[h] = e == 0 ? ldexp(m, 1 - bias - mantissa_bits)
                             : ldexp(m + (1u << mantissa_bits), e - bias - mantissa_bits);
    }
}

static double value16(const table16_t *t, unsigned h)
{
    unsigned m = h & (t->sign - 1);
    double v = m > t->infinity || (t->finite && m == t->infinity) ? (double)NAN
               : m == t->infinity                                 ? (double)INFINITY
                                                                  : t->value[m];
    return h & t->sign ? -v : v;
}

/* The nearest pattern, ties to the even one. */
static unsigned nearest16(const table16_t *t, double v)
{
    unsigned sign = signbit(v) ? t->sign : 0;
    double a = fabs(v);
    if (isnan(v))
        return sign | (t->sign - 1);
    if (a >= t->value[t->infinity])
        return sign | t->infinity;
    unsigned low = 0, high = t->infinity; /* value[low] <= a < value[high] */
    while (high - low > 1) {
        unsigned mid = (low + high) / 2;
        *(t->value[mid] <= a ? &low : &high) = mid;
    }
    double below = a - t->value[low], above = t->value[high] - a;
    return sign | (below < above || (below == above && !(low & 1)) ? low : high);
}

static const table16_t *table_of(gyre_type_t type)
{
    return type == GYRE_FLOAT16       ? &half_table
           : type == GYRE_BFLOAT16    ? &bfloat_table
           : type == GYRE_FLOAT8_E4M3 ? &e4m3_table
           : type == GYRE_FLOAT8_E5M2 ? &e5m2_table
                                      : NULL;
}

/* ---- the reference: one element as bits ---- */
static int is_float(gyre_type_t type)
{
    return (type >= GYRE_FLOAT16 && type <= GYRE_FLOAT64) || type == GYRE_FLOAT8_E4M3 ||
           type == GYRE_FLOAT8_E5M2;
}
/* Complex numbers and pairs: test_wide_kernels.c. */
static int is_here(gyre_type_t type)
{
    return type <= GYRE_BOOL || is_float(type);
}
static int is_signed(gyre_type_t type)
{
    return type == GYRE_INT8 || type == GYRE_INT16 || type == GYRE_INT32 || type == GYRE_INT64;
}

static uint64_t get(const void *p, size_t size)
{
    uint64_t bits = 0;
    memcpy(&bits, p, size);
    return bits;
}

static double as_double(gyre_type_t type, uint64_t bits)
{
    if (table_of(type))
        return value16(table_of(type), (unsigned)bits);
    if (type == GYRE_FLOAT32) {
        float f;
        memcpy(&f, &bits, 4);
        return f;
    }
    double d;
    memcpy(&d, &bits, 8);
    return d;
}

/* v rounded to the type. Sums and products of two floats, and of shorter ones, are innocuous to round
 * twice. */
static uint64_t from_double(gyre_type_t type, double v)
{
    uint64_t bits = 0;
    if (table_of(type))
        return nearest16(table_of(type), v);
    if (type == GYRE_FLOAT32) {
        float f = (float)v;
        memcpy(&bits, &f, 4);
        return bits;
    }
    memcpy(&bits, &v, 8);
    return bits;
}

static int64_t sign_extend(uint64_t bits, size_t size)
{
    unsigned shift = (unsigned)(64 - 8 * size);
    return (int64_t)(bits << shift) >> shift;
}

/* 1 if a orders strictly before b. */
static int before(gyre_type_t type, uint64_t a, uint64_t b)
{
    if (is_signed(type))
        return sign_extend(a, gyre_type_size(type)) < sign_extend(b, gyre_type_size(type));
    if (!is_float(type))
        return a < b;
    double x = as_double(type, a), y = as_double(type, b);
    return x < y || (x == y && signbit(x) && !signbit(y));
}

static uint64_t combine(gyre_redop_kind_t op, gyre_type_t type, uint64_t a, uint64_t b)
{
    uint64_t r = 0;
    if (op == GYRE_MIN || op == GYRE_MAX) {
        if (is_float(type) && (isnan(as_double(type, a)) || isnan(as_double(type, b))))
            return isnan(as_double(type, a)) ? a : b;
        return (op == GYRE_MIN ? before(type, b, a) : before(type, a, b)) ? b : a;
    }
    if (is_float(type)) {
        double x = as_double(type, a), y = as_double(type, b);
        if (op == GYRE_SUM || op == GYRE_AVG)
            return from_double(type, x + y);
        assert_int_equal(op, GYRE_PROD);
        return from_double(type, x * y);
    }
    switch (op) {
    case GYRE_SUM:
    case GYRE_AVG: /* divided afterwards */
        r = a + b;
        break;
    case GYRE_PROD:
        r = a * b;
        break;
    case GYRE_BAND:
        return a & b;
    case GYRE_BOR:
        return a | b;
    case GYRE_BXOR:
        return a ^ b;
    case GYRE_LAND:
        return a != 0 && b != 0;
    case GYRE_LOR:
        return a != 0 || b != 0;
    case GYRE_LXOR:
        return (a != 0) != (b != 0);
    default:
        fail_msg("nothing is known here of reduction %d (%s)", (int)op, gyre_redop_name(op));
    }
    size_t size = gyre_type_size(type);
    return size == 8 ? r : r & ((1ull << 8 * size) - 1);
}

static uint64_t tree(gyre_redop_kind_t op, gyre_type_t type, const void *const *srcs, int k, size_t offset)
{
    size_t size = gyre_type_size(type);
    if (k == 1)
        return get((const char *)srcs[0] + offset, size);
    int left = 1;
    while (left * 2 < k)
        left *= 2;
    return combine(op, type, tree(op, type, srcs, left, offset),
                   tree(op, type, srcs + left, k - left, offset));
}

/* Equal bits; where a sum or product is not a number, equal in that. */
static int same(gyre_redop_kind_t op, gyre_type_t type, uint64_t got, uint64_t want)
{
    if (got == want)
        return 1;
    return is_float(type) && (op == GYRE_SUM || op == GYRE_AVG || op == GYRE_PROD) &&
           isnan(as_double(type, got)) && isnan(as_double(type, want));
}

/* ---- fixtures ---- */
static unsigned char *sources[MAX_K], *places[MAX_K]; /* as filled; as given to the kernels */
static unsigned char *expected, *output;

static void fill_sources(gyre_type_t type, int k, size_t count)
{
    size_t size = gyre_type_size(type);
    static const double notable[] = {0.0,     1.0,    65504.0,  65519.0, 0x1p-24,
                                     0x1p-14, 3.4e38, 0x1p-133, 1e308,   5e-324};
    for (int s = 0; s < k; s++) {
        for (size_t i = 0; i < count; i++) {
            uint64_t bits = next_random(), kind = bits >> 60;
            if (is_float(type) && kind < 8) /* ordinary numbers, so that most sums do not end as NaN */
                bits = from_double(type, ((double)(bits & 0xffff) - 32768.0) / 4096.0);
            else if (is_float(type) && kind < 11)
                bits = from_double(type, notable[bits % 10] * (bits & 1024 ? -1.0 : 1.0));
            else if (is_float(type) && kind == 11)
                bits = from_double(type, bits & 1 ? (double)INFINITY : -(double)INFINITY);
            else if (is_float(type) && kind == 12)
                bits = from_double(type, -0.0);
            else if (is_float(type) && kind == 13)
                bits = from_double(type, (double)NAN);
            else if (!is_float(type) && kind < 6) /* nothing, or few bits */
                bits = bits >> 8 & (bits & 1 ? 3 : 0);
            memcpy(sources[s] + i * size, &bits, size);
        }
    }
}

static int open_fixtures(void **state)
{
    (void)state;
    fill_table(&half_table, 16, 10, 15);
    fill_table(&bfloat_table, 16, 7, 127);
    fill_table(&e4m3_table, 8, 3, 7);
    fill_table(&e5m2_table, 8, 2, 15);
    for (int s = 0; s < MAX_K; s++) {
        sources[s] = malloc(MAX_COUNT * 8);
        places[s] = malloc(MAX_COUNT * 8 + 2 * SLACK);
        if (!sources[s] || !places[s])
            return -1;
    }
    expected = malloc(MAX_COUNT * 8);
    output = malloc(MAX_COUNT * 8 + 2 * SLACK);
    return expected && output ? 0 : -1;
}

static int close_fixtures(void **state)
{
    (void)state;
    for (int s = 0; s < MAX_K; s++) {
        free(sources[s]);
        free(places[s]);
    }
    free(expected);
    free(output);
    return 0;
}

static void compute_expected(gyre_redop_kind_t op, gyre_type_t type, int k, size_t count)
{
    size_t size = gyre_type_size(type);
    const void *srcs[MAX_K];
    for (int s = 0; s < k; s++)
        srcs[s] = sources[s];
    for (size_t i = 0; i < count; i++) {
        uint64_t want = tree(op, type, srcs, k, i * size);
        if (op >= GYRE_LAND && op <= GYRE_LXOR) /* of one source, too */
            want = want != 0;
        memcpy(expected + i * size, &want, size);
    }
}

/* Each source is copied to a place of its own, off its alignment if asked. alias < 0: dst is a buffer of
 * its own. */
static void check_reduce(gyre_redop_kind_t op, gyre_type_t type, int k, size_t count, int alias,
                         int misaligned)
{
    size_t size = gyre_type_size(type), bytes = count * size;
    const void *srcs[MAX_K];
    for (int s = 0; s < k; s++) {
        unsigned char *at = places[s] + SLACK + (misaligned ? next_random() % 17 : 0);
        srcs[s] = memcpy(at, sources[s], bytes);
    }
    unsigned char *dst = output + SLACK + (misaligned ? next_random() % 17 : 0);
    if (alias >= 0)
        dst = places[alias] + ((const unsigned char *)srcs[alias] - places[alias]);
    memset(dst - 16, 0xa5, 16);
    memset(dst + bytes, 0xa5, 16);
    coll_kernel_reduce(op, type, dst, srcs, k, count);
    for (int g = 0; g < 16; g++) {
        assert_int_equal(dst[g - 16], 0xa5);
        assert_int_equal(dst[bytes + (size_t)g], 0xa5);
    }
    for (size_t i = 0; i < count; i++) {
        uint64_t got = get(dst + i * size, size), want = get(expected + i * size, size);
        if (!same(op, type, got, want))
            fail_msg("%s %s %s k %d count %zu alias %d element %zu: got %llx, want %llx", coll_kernel_isa(),
                     gyre_redop_name(op), gyre_type_name(type), k, count, alias, i, (unsigned long long)got,
                     (unsigned long long)want);
    }
    for (int s = 0; s < k; s++) { /* sources other than dst stay as they were */
        if (s != alias)
            assert_memory_equal(srcs[s], sources[s], bytes);
    }
}

/* ---- tests ---- */
static void for_each_isa(void (*body)(void))
{
    int ran = 0;
    for (size_t i = 0; i < sizeof isas / sizeof *isas; i++) {
        if (!coll_kernel_select(isas[i]))
            continue;
        assert_string_equal(coll_kernel_isa(), isas[i]);
        seed = 1; /* every set sees the same inputs */
        body();
        ran++;
    }
    assert_true(ran > 0);
    assert_true(coll_kernel_select(NULL));
}

/* Under ASan every fifth count, but in check-long: ends of all lengths modulo 8, and nearly all modulo 16. */
static void small_counts(void)
{
#ifdef __SANITIZE_ADDRESS__
    const size_t step = getenv("TEST_LONG") ? 1 : 5;
#else
    const size_t step = 1;
#endif
    for (gyre_type_t type = 0; type < GYRE_TYPE_COUNT; type++) {
        for (int k = 1; k <= 17 && is_here(type); k++) {
            fill_sources(type, k, 70);
            for (size_t o = 0; o < OPS; o++) {
                if (!coll_kernel_has(ops[o], type) || (ops[o] > GYRE_AVG && k > 5 && k != 8 && k != 17))
                    continue;
                compute_expected(ops[o], type, k, 70);
                for (size_t count = 0; count <= 70; count += step) {
                    check_reduce(ops[o], type, k, count, -1, count % 2 == 1);
                    check_reduce(ops[o], type, k, count, (int)(count % (size_t)k), count % 3 != 0);
                }
            }
        }
    }
}

static void large_counts(void)
{
    static const int ks[] = {2, 3, 4, 5, 8, 9, 17};
    for (gyre_type_t type = 0; type < GYRE_TYPE_COUNT; type++) {
        for (size_t i = 0; i < sizeof ks / sizeof *ks; i++) {
            size_t count = 4000 - 37 * i;
            gyre_redop_kind_t op = ops[(i + type) % OPS];
            if (!is_here(type) || !coll_kernel_has(op, type))
                continue;
            fill_sources(type, ks[i], count);
            compute_expected(op, type, ks[i], count);
            check_reduce(op, type, ks[i], count, -1, (int)(i & 1));
        }
    }
}

static void many_sources(void)
{
    static const int ks[] = {18, 23, 24, 31, 32, 33, 47, 64, 65, 100, 127, 128, 130};
    static const gyre_type_t types[] = {GYRE_INT16, GYRE_FLOAT16, GYRE_BFLOAT16, GYRE_FLOAT32, GYRE_FLOAT64};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        for (size_t i = 0; i < sizeof ks / sizeof *ks; i++) {
            fill_sources(types[t], ks[i], 70);
            for (size_t o = 0; o < OPS; o++) {
                if (!coll_kernel_has(ops[o], types[t]))
                    continue;
                compute_expected(ops[o], types[t], ks[i], 70);
                check_reduce(ops[o], types[t], ks[i], 70, -1, 0);
                check_reduce(ops[o], types[t], ks[i], 33, ks[i] - 1, 1);
            }
        }
    }
}

/* The sum's order shows: with a = 2^24, the tree gives (a + 1) + (1 + 1) = a + 2, a chain would give a. */
static void canonical_order(void)
{
    float a = 0x1p24f, one = 1.0f, r;
    const void *srcs[] = {&a, &one, &one, &one};
    coll_kernel_reduce(GYRE_SUM, GYRE_FLOAT32, &r, srcs, 4, 1);
    assert_true(r == 0x1p24f + 2.0f);
    coll_kernel_reduce(GYRE_AVG, GYRE_FLOAT32, &r, srcs, 4, 1); /* counts as a sum */
    assert_true(r == 0x1p24f + 2.0f);
    /* Each 16-bit partial result is rounded: 2048 + 1 is 2048 in half, three times over. */
    uint16_t big = 0x6800, unit = 0x3c00, h;
    const void *halves[] = {&big, &unit, &unit};
    coll_kernel_reduce(GYRE_SUM, GYRE_FLOAT16, &h, halves, 3, 1);
    assert_int_equal(h, 0x6800);
}

static void test_small_counts(void **state)
{
    (void)state;
    for_each_isa(small_counts);
}
static void test_large_counts(void **state)
{
    (void)state;
    for_each_isa(large_counts);
}
static void test_many_sources(void **state)
{
    (void)state;
    for_each_isa(many_sources);
}
static void test_canonical_order(void **state)
{
    (void)state;
    for_each_isa(canonical_order);
}

static void check_conversions(const table16_t *t, float (*widen)(unsigned short),
                              unsigned short (*narrow)(float))
{
    for (unsigned h = 0; h < 0x10000; h++) {
        float f = widen((unsigned short)h);
        double want = value16(t, h);
        if (isnan(want)) {
            assert_true(isnan(f));
            unsigned back = narrow(f);
            assert_true((back & 0x7fff) > t->infinity && (back & 0x8000) == (h & 0x8000));
            continue;
        }
        assert_true((double)f == want && !signbit(f) == !signbit(want));
        assert_int_equal(narrow(f), h);
        unsigned m = h & 0x7fff;
        if (m >= t->infinity)
            continue;
        /* the tie with the next value up, and its neighbours on both sides */
        double tie = (t->value[m] + t->value[m + 1]) / 2 * (h & 0x8000 ? -1 : 1);
        float exact = (float)tie;
        if (isinf(exact)) /* beyond the largest bfloat a tie is no float */
            continue;
        assert_int_equal(narrow(exact), nearest16(t, exact));
        float up = nextafterf(exact, INFINITY), down = nextafterf(exact, -INFINITY);
        assert_int_equal(narrow(up), nearest16(t, up));
        assert_int_equal(narrow(down), nearest16(t, down));
    }
    assert_int_equal(narrow(INFINITY), t->infinity);
    assert_int_equal(narrow(3.4028235e38f), t->infinity);
    assert_int_equal(narrow(-1e-45f), 0x8000);
}

/* All patterns of 8 bits, and the ties between neighbours. */
static void check_conversions8(const table16_t *t, float (*widen)(unsigned char),
                               unsigned char (*narrow)(float))
{
    for (unsigned h = 0; h < 0x100; h++) {
        const float f = widen((unsigned char)h);
        const double want = value16(t, h);
        if (isnan(want)) {
            assert_true(isnan(f) && isnan(value16(t, narrow(f))) && !signbit(f) == !(h & 0x80));
            continue;
        }
        assert_true((double)f == want && !signbit(f) == !signbit(want));
        assert_int_equal(narrow(f), h);
        const unsigned m = h & 0x7f;
        if (m >= t->infinity)
            continue;
        const float tie = (float)((t->value[m] + t->value[m + 1]) / 2 * (h & 0x80 ? -1 : 1));
        const float around[] = {tie, nextafterf(tie, INFINITY), nextafterf(tie, -INFINITY)};
        for (int i = 0; i < 3; i++)
            assert_int_equal(narrow(around[i]), nearest16(t, (double)around[i]));
    }
    for (unsigned e = 0; e < 255; e++) { /* of any size: overflow, and what is far below the least */
        uint32_t u = e << 23 | 0x5a5a5a;
        float f;
        memcpy(&f, &u, sizeof f);
        assert_int_equal(narrow(f), nearest16(t, (double)f));
        assert_int_equal(narrow(-f), nearest16(t, -(double)f));
    }
    assert_int_equal(narrow(INFINITY), t->infinity);
    assert_true(isnan(value16(t, narrow(NAN))));
}

static void test_e4m3(void **state)
{
    (void)state;
    check_conversions8(&e4m3_table, kernel_from_e4m3, kernel_to_e4m3);
    assert_int_equal(kernel_to_e4m3(448), 0x7e);
    assert_int_equal(kernel_to_e4m3(464), 0x7e); /* a tie, to the even one */
    assert_int_equal(kernel_to_e4m3(465), 0x7f);
}
static void test_e5m2(void **state)
{
    (void)state;
    check_conversions8(&e5m2_table, kernel_from_e5m2, kernel_to_e5m2);
    assert_int_equal(kernel_to_e5m2(57344), 0x7b);
    assert_int_equal(kernel_to_e5m2(61440), 0x7c); /* a tie, to the even one: infinity */
}

static void test_half(void **state)
{
    (void)state;
    check_conversions(&half_table, coll_half_to_float, coll_float_to_half);
}
static void test_bfloat(void **state)
{
    (void)state;
    check_conversions(&bfloat_table, coll_bfloat_to_float, coll_float_to_bfloat);
}

/* Dividing by 1 takes every pattern through each set's own loads and stores: they must be the software's,
 * NaNs too. */
static void every_pattern(void)
{
    static uint16_t all[0x10000];
    for (unsigned h = 0; h < 0x10000; h++)
        all[h] = (uint16_t)h;
    coll_kernel_divide(GYRE_FLOAT16, all, 0x10000, 1);
    for (unsigned h = 0; h < 0x10000; h++)
        assert_int_equal(all[h], coll_float_to_half(coll_half_to_float((unsigned short)h)));
}
static void test_every_pattern(void **state)
{
    (void)state;
    for_each_isa(every_pattern);
}

static void scaling(void)
{
    int8_t i8[] = {-128, -1, 0, 7, 100};
    coll_kernel_scale(GYRE_INT8, i8, i8, 5, -3.9); /* truncated to -3; wraps */
    const int8_t i8_want[] = {(int8_t)(-128 * -3 & 0xff), 3, 0, -21, (int8_t)(-300 & 0xff)};
    assert_memory_equal(i8, i8_want, sizeof i8);
    uint64_t u64[] = {3, 1ull << 63};
    coll_kernel_scale(GYRE_UINT64, u64, u64, 2, 0x1p63);
    assert_true(u64[0] == 1ull << 63 && u64[1] == 0);
    coll_kernel_scale(GYRE_UINT64, u64, u64, 2, (double)NAN);
    assert_true(u64[0] == 0);
    for (gyre_type_t type = GYRE_FLOAT16; type < GYRE_TYPE_COUNT; type++) {
        size_t size = gyre_type_size(type);
        for (size_t count = 0; count <= 40 && is_float(type); count++) {
            fill_sources(type, 1, count);
            const unsigned char *src = sources[0];
            memset(output, 0xa5, 40 * 8 + 2 * SLACK);
            coll_kernel_scale(type, output + 1, src, count, 0.3);
            for (size_t i = 0; i < count; i++) {
                double x = as_double(type, get(src + i * size, size));
                double factor = type == GYRE_FLOAT64 ? 0.3 : (double)0.3f;
                /* short ones: rounded to fp32 first, as the kernels promise */
                double product = size <= 2 ? (double)(float)(x * factor) : x * factor;
                uint64_t want = from_double(type, product);
                assert_true(same(GYRE_SUM, type, get(output + 1 + i * size, size), want));
            }
            assert_int_equal(output[1 + count * size], 0xa5);
        }
    }
}

static void dividing(void)
{
    int8_t i8[] = {-128, -7, 7, 127};
    const int8_t i8_want[] = {-42, -2, 2, 42}; /* towards zero */
    coll_kernel_divide(GYRE_INT8, i8, 4, 3);
    assert_memory_equal(i8, i8_want, sizeof i8);
    int8_t by_300[] = {-128, 127};
    coll_kernel_divide(GYRE_INT8, by_300, 2, 300);
    assert_true(by_300[0] == 0 && by_300[1] == 0);
    uint32_t u32[] = {UINT32_MAX, 5};
    coll_kernel_divide(GYRE_UINT32, u32, 2, 2);
    assert_true(u32[0] == 0x7fffffff && u32[1] == 2);
    int64_t i64[] = {INT64_MIN, -1};
    coll_kernel_divide(GYRE_INT64, i64, 2, 2);
    assert_true(i64[0] == INT64_MIN / 2 && i64[1] == 0);
    static const int divisors[] = {1, 2, 3, 7, 64, 127, 255, 256, 1000, 32767, 65536, 1000003, INT32_MAX};
    for (gyre_type_t type = 0; type < GYRE_FLOAT16; type++) {
        size_t size = gyre_type_size(type);
        for (size_t k = 0; k < sizeof divisors / sizeof *divisors; k++) {
            const int n = divisors[k];
            fill_sources(type, 1, MAX_COUNT);
            for (size_t i = 0; i < 70; i++) { /* around multiples of n, and the ends of the range */
                uint64_t near = i < 64 ? i / 3 * (uint64_t)n + i % 3 - 1 : ~(uint64_t)0 >> (i - 64);
                memcpy(sources[0] + i * size, &near, size);
            }
            memcpy(output, sources[0], MAX_COUNT * size);
            coll_kernel_divide(type, output, MAX_COUNT, n);
            for (size_t i = 0; i < MAX_COUNT; i++) {
                uint64_t x = get(sources[0] + i * size, size);
                uint64_t want = is_signed(type) ? (uint64_t)(sign_extend(x, size) / n) : x / (uint64_t)n;
                assert_memory_equal(output + i * size, &want, size);
            }
        }
    }
    for (gyre_type_t type = GYRE_FLOAT16; type < GYRE_TYPE_COUNT; type++) {
        size_t size = gyre_type_size(type);
        for (size_t count = 0; count <= 40 && is_float(type); count++) {
            fill_sources(type, 1, count);
            memset(output, 0xa5, 40 * 8 + 2 * SLACK);
            memcpy(output + 1, sources[0], count * size);
            coll_kernel_divide(type, output + 1, count, 7);
            for (size_t i = 0; i < count; i++) {
                double q = as_double(type, get(sources[0] + i * size, size)) / 7.0;
                uint64_t want = from_double(type, size <= 2 ? (double)(float)q : q);
                assert_true(same(GYRE_SUM, type, get(output + 1 + i * size, size), want));
            }
            assert_int_equal(output[1 + count * size], 0xa5);
        }
    }
}

static void test_scale(void **state)
{
    (void)state;
    for_each_isa(scaling);
}
static void test_divide(void **state)
{
    (void)state;
    for_each_isa(dividing);
}

static void test_copy_and_select(void **state)
{
    (void)state;
    char from[] = "kernel", to[sizeof from] = "";
    coll_kernel_copy(to, from, sizeof from);
    assert_string_equal(to, from);
    coll_kernel_copy(to, to, sizeof to);
    coll_kernel_copy(NULL, NULL, 0);
    assert_string_equal(to, from);
    assert_false(coll_kernel_select("mmx"));
    assert_true(coll_kernel_select("scalar"));
    assert_string_equal(coll_kernel_isa(), "scalar");
    assert_true(coll_kernel_select("auto"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_e4m3),
        cmocka_unit_test(test_e5m2),
        cmocka_unit_test(test_half),
        cmocka_unit_test(test_bfloat),
        cmocka_unit_test(test_every_pattern),
        cmocka_unit_test(test_small_counts),
        cmocka_unit_test(test_large_counts),
        cmocka_unit_test(test_many_sources),
        cmocka_unit_test(test_canonical_order),
        cmocka_unit_test(test_scale),
        cmocka_unit_test(test_divide),
        cmocka_unit_test(test_copy_and_select),
    };
    return cmocka_run_group_tests(tests, open_fixtures, close_fixtures);
}
