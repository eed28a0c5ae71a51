/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/kernels/exact_loops.h: the loops of exact sums, once for every instruction set. Part of
 * template.h, whose types and macros it uses; exact.c puts the loops together and says why they are right.
 *
 * Every loop works on one block of at most EXACT_BLOCK elements, those with errors on at most EXACT_ROW.
 * s[], e[] and so on are a block's doubles in the first-level cache; sources and results are elements at
 * any alignment. What a loop does with one element is in exact_steps.h. */

/* ---- plain sums in double, for sums that a flag proves exact ---- */
#define EXACT_WIDE_LOAD(p)   ((double)*(p))
#define EXACT_BFLOAT_LOAD(p) ((double)kernel_from_bfloat(*(p)))
#define EXACT_OF(LOAD, j)    LOAD(x[j] + i)
#define EXACT_OF_1(LOAD)     EXACT_OF(LOAD, 0)
#define EXACT_OF_2(LOAD)     (EXACT_OF(LOAD, 0) + EXACT_OF(LOAD, 1))
#define EXACT_OF_3(LOAD)     (EXACT_OF_2(LOAD) + EXACT_OF(LOAD, 2))
#define EXACT_OF_4(LOAD)     (EXACT_OF_2(LOAD) + (EXACT_OF(LOAD, 2) + EXACT_OF(LOAD, 3)))
#define EXACT_OF_4_MORE(LOAD) \
    ((EXACT_OF(LOAD, 4) + EXACT_OF(LOAD, 5)) + (EXACT_OF(LOAD, 6) + EXACT_OF(LOAD, 7)))
#define EXACT_OF_7(LOAD) (EXACT_OF_4(LOAD) + ((EXACT_OF(LOAD, 4) + EXACT_OF(LOAD, 5)) + EXACT_OF(LOAD, 6)))
#define EXACT_OF_8(LOAD) (EXACT_OF_4(LOAD) + EXACT_OF_4_MORE(LOAD))
#define EXACT_DEFINE_SUM(NAME, K, T, SUM)                              \
    static void NAME(double *s, const void *const *srcs, size_t count) \
    {                                                                  \
        const T *x[K];                                                 \
        for (int j = 0; j < (K); j++)                                  \
            x[j] = srcs[j];                                            \
        KERNEL_LOOP                                                    \
        for (size_t i = 0; i < count; i++)                             \
            s[i] = SUM;                                                \
    }
#define EXACT_DEFINE_SUMS(NAME, T, LOAD)                                   \
    EXACT_DEFINE_SUM(exact_##NAME##_1, 1, T, EXACT_OF_1(LOAD))             \
    EXACT_DEFINE_SUM(exact_##NAME##_2, 2, T, EXACT_OF_2(LOAD))             \
    EXACT_DEFINE_SUM(exact_##NAME##_4, 4, T, EXACT_OF_4(LOAD))             \
    EXACT_DEFINE_SUM(exact_##NAME##_8, 8, T, EXACT_OF_8(LOAD))             \
    EXACT_DEFINE_SUM(exact_##NAME##_1_more, 1, T, s[i] + EXACT_OF_1(LOAD)) \
    EXACT_DEFINE_SUM(exact_##NAME##_2_more, 2, T, s[i] + EXACT_OF_2(LOAD)) \
    EXACT_DEFINE_SUM(exact_##NAME##_4_more, 4, T, s[i] + EXACT_OF_4(LOAD)) \
    EXACT_DEFINE_SUM(exact_##NAME##_8_more, 8, T, s[i] + EXACT_OF_8(LOAD))
EXACT_DEFINE_SUMS(f32, kernel_f32, EXACT_WIDE_LOAD)
EXACT_DEFINE_SUMS(b16, kernel_u16, EXACT_BFLOAT_LOAD)
/* rows of errors */
EXACT_DEFINE_SUM(exact_f64_1, 1, kernel_f64, EXACT_OF_1(PLAIN_LOAD))
EXACT_DEFINE_SUM(exact_f64_1_more, 1, kernel_f64, s[i] + EXACT_OF_1(PLAIN_LOAD))
EXACT_DEFINE_SUM(exact_f64_2_more, 2, kernel_f64, s[i] + EXACT_OF_2(PLAIN_LOAD))
EXACT_DEFINE_SUM(exact_f64_4_more, 4, kernel_f64, s[i] + EXACT_OF_4(PLAIN_LOAD))
EXACT_DEFINE_SUM(exact_f64_8_more, 8, kernel_f64, s[i] + EXACT_OF_8(PLAIN_LOAD))
EXACT_DEFINE_SUM(exact_f64_3, 3, kernel_f64, EXACT_OF_3(PLAIN_LOAD))
EXACT_DEFINE_SUM(exact_f64_7, 7, kernel_f64, EXACT_OF_7(PLAIN_LOAD))

/* ---- sums of doubles and their errors ----
 *
 * s = x[0] + ... (+ the old s); one row of errors for each addition. */
#define EXACT_SPLIT(to, a, b, row)       \
    EXACT_TWO_SUM(a, b, to, to##_error); \
    e[(row) * (size_t)EXACT_ROW + i] = to##_error
#define EXACT_DEFINE_SPLIT(NAME, K, STEPS)                                        \
    static void NAME(double *s, double *e, const void *const *srcs, size_t count) \
    {                                                                             \
        const kernel_f64 *x[K];                                                   \
        for (int j = 0; j < (K); j++)                                             \
            x[j] = srcs[j];                                                       \
        KERNEL_LOOP                                                               \
        for (size_t i = 0; i < count; i++) {                                      \
            STEPS;                                                                \
        }                                                                         \
    }
#define EXACT_SPLIT_2 EXACT_SPLIT(ab, x[0][i], x[1][i], 0)
#define EXACT_SPLIT_4                     \
    EXACT_SPLIT_2;                        \
    EXACT_SPLIT(cd, x[2][i], x[3][i], 1); \
    EXACT_SPLIT(abcd, ab, cd, 2)
#define EXACT_SPLIT_8                     \
    EXACT_SPLIT_4;                        \
    EXACT_SPLIT(ef, x[4][i], x[5][i], 3); \
    EXACT_SPLIT(gh, x[6][i], x[7][i], 4); \
    EXACT_SPLIT(efgh, ef, gh, 5);         \
    EXACT_SPLIT(all, abcd, efgh, 6)
EXACT_DEFINE_SPLIT(exact_split_1, 1, s[i] = x[0][i]; (void)e)
EXACT_DEFINE_SPLIT(exact_split_2, 2, EXACT_SPLIT_2; s[i] = ab)
EXACT_DEFINE_SPLIT(exact_split_4, 4, EXACT_SPLIT_4; s[i] = abcd)
EXACT_DEFINE_SPLIT(exact_split_8, 8, EXACT_SPLIT_8; s[i] = all)
EXACT_DEFINE_SPLIT(exact_split_1_more, 1, EXACT_SPLIT(sum, s[i], x[0][i], 0); s[i] = sum)
EXACT_DEFINE_SPLIT(exact_split_2_more, 2, EXACT_SPLIT_2; EXACT_SPLIT(sum, s[i], ab, 1); s[i] = sum)
EXACT_DEFINE_SPLIT(exact_split_4_more, 4, EXACT_SPLIT_4; EXACT_SPLIT(sum, s[i], abcd, 3); s[i] = sum)
EXACT_DEFINE_SPLIT(exact_split_8_more, 8, EXACT_SPLIT_8; EXACT_SPLIT(sum, s[i], all, 7); s[i] = sum)

/* s + e += x, without an error; bad[i] becomes non-zero where there was one. */
static void exact_pair(double *s, double *e, uint64_t *bad, const double *x, size_t count)
{
    KERNEL_LOOP
    for (size_t i = 0; i < count; i++)
        exact_pair_step(s + i, e + i, bad + i, x[i]);
}

/* s = s + e, rounded to odd */
static void exact_join(double *s, const double *e, size_t count)
{
    KERNEL_LOOP
    for (size_t i = 0; i < count; i++)
        s[i] = exact_join_step(s[i], e[i]);
}

/* s = s / k, rounded to odd */
static void exact_divide(double *s, size_t count, int k)
{
    const double by = k;
    KERNEL_LOOP
    for (size_t i = 0; i < count; i++)
        s[i] = exact_divide_step(s[i], by);
}

/* ---- results ---- */

static void exact_to_f32(void *dst, const double *s, size_t count, double scale)
{
    kernel_f32 *d = dst;
    KERNEL_LOOP
    for (size_t i = 0; i < count; i++)
        d[i] = exact_quiet((float)(s[i] * scale));
}

/* Through a float: of a sum, that is exact below 2^-126. An average n / k there, in units of the last place
 * of bfloats, is on a tie or at least 1 / 2k away from one, and the float moves it by at most 2^-17. */
static void exact_to_b16(void *dst, const double *s, size_t count, double scale)
{
    kernel_u16 *d = dst;
    KERNEL_LOOP
    for (size_t i = 0; i < count; i++)
        d[i] = exact_bfloat((float)exact_double(exact_shorten(exact_bits(s[i] * scale))));
}

static void exact_to_f16(void *dst, const double *s, size_t count, double scale)
{
    float f[EXACT_BLOCK];
    kernel_u16 *d = dst;
    size_t i;
    KERNEL_LOOP
    for (i = 0; i < count; i++)
        f[i] = exact_quiet((float)exact_double(exact_shorten(exact_bits(s[i] * scale))));
    for (i = 0; i + KERNEL_HALF_WIDTH <= count; i += KERNEL_HALF_WIDTH) {
        kernel_half_v v;
        memcpy(&v, f + i, sizeof v);
        kernel_half_store(d + i, v);
    }
    for (; i < count; i++)
        d[i] = kernel_to_half(f[i]);
}

/* Halves as floats, for the sums of floats. */
static void exact_widen_f16(float *to, const void *src, size_t count)
{
    const kernel_u16 *x = src;
    size_t i = 0;
    for (; i + KERNEL_HALF_WIDTH <= count; i += KERNEL_HALF_WIDTH) {
        kernel_half_v v = kernel_half_load(x + i);
        memcpy(to + i, &v, sizeof v);
    }
    for (; i < count; i++)
        to[i] = kernel_from_half(x[i]);
}

/* s = s + e, rounded once; bad[i] becomes non-zero where that is no finite number */
static uint64_t exact_finish_sum(double *s, const double *e, uint64_t *bad, size_t count)
{
    uint64_t any = 0;
    KERNEL_LOOP
    for (size_t i = 0; i < count; i++) {
        s[i] = exact_sum_step(s[i], e[i], bad + i);
        any |= bad[i];
    }
    return any;
}

/* s = (s + e) / k, rounded once; as exact_finish_sum */
static uint64_t exact_finish_average(double *s, const double *e, uint64_t *bad, size_t count, int k)
{
    const double by = k;
    uint64_t any = 0;
    KERNEL_LOOP
    for (size_t i = 0; i < count; i++) {
        s[i] = exact_average_step(s[i], e[i], bad + i, by);
        any |= bad[i];
    }
    return any;
}

/* ---- sums of two: an addition is the exact sum, rounded once ---- */
static void exact_add_f32(void *dst, const void *const *srcs, size_t count)
{
    const kernel_f32 *a = srcs[0], *b = srcs[1];
    kernel_f32 *d = dst;
    KERNEL_LOOP
    for (size_t i = 0; i < count; i++)
        d[i] = exact_quiet(a[i] + b[i]);
}

/* Added in float. That is as good as exact: a float has at least 2 p + 2 bits for p of the short format, so
 * rounding its sum again gives what rounding once does (S. A. Figueroa, "When is double rounding
 * innocuous?", ACM SIGNUM Newsletter 30, 1995). */
static void exact_add_b16(void *dst, const void *const *srcs, size_t count)
{
    const kernel_u16 *x = srcs[0], *y = srcs[1];
    kernel_u16 *d = dst;
    KERNEL_LOOP
    for (size_t i = 0; i < count; i++)
        d[i] = exact_bfloat(kernel_from_bfloat(x[i]) + kernel_from_bfloat(y[i]));
}

static void exact_add_f16(void *dst, const void *const *srcs, size_t count)
{
    const kernel_u16 *x = srcs[0], *y = srcs[1];
    kernel_u16 *d = dst;
    size_t i = 0;
    for (; i + KERNEL_HALF_WIDTH <= count; i += KERNEL_HALF_WIDTH) {
        float f[KERNEL_HALF_WIDTH];
        kernel_half_v sum = kernel_half_load(x + i) + kernel_half_load(y + i);
        memcpy(f, &sum, sizeof f);
        for (int j = 0; j < KERNEL_HALF_WIDTH; j++)
            f[j] = exact_quiet(f[j]);
        memcpy(&sum, f, sizeof sum);
        kernel_half_store(d + i, sum);
    }
    for (; i < count; i++)
        d[i] = kernel_to_half(exact_quiet(kernel_from_half(x[i]) + kernel_from_half(y[i])));
}

static void exact_add_f64(void *dst, const void *const *srcs, size_t count)
{
    const kernel_f64 *a = srcs[0], *b = srcs[1];
    kernel_f64 *d = dst;
    KERNEL_LOOP
    for (size_t i = 0; i < count; i++) {
        uint64_t u = exact_bits(a[i] + b[i]);
        uint64_t nan = EXACT_IF((int64_t)(u & ~EXACT_SIGN) > (int64_t)EXACT_INFINITY);
        d[i] = exact_double((EXACT_NAN & nan) | (u & ~nan));
    }
}

static const kernel_exact_t exact_table = {
    .sum = {{exact_f32_1, exact_f32_2, exact_f32_4, exact_f32_8},
            {exact_b16_1, exact_b16_2, exact_b16_4, exact_b16_8}},
    .sum_more = {{exact_f32_1_more, exact_f32_2_more, exact_f32_4_more, exact_f32_8_more},
                 {exact_b16_1_more, exact_b16_2_more, exact_b16_4_more, exact_b16_8_more}},
    .split = {exact_split_1, exact_split_2, exact_split_4, exact_split_8},
    .split_more = {exact_split_1_more, exact_split_2_more, exact_split_4_more, exact_split_8_more},
    .errors = {NULL, exact_f64_1, exact_f64_3, exact_f64_7},
    .errors_more = {exact_f64_1_more, exact_f64_2_more, exact_f64_4_more, exact_f64_8_more},
    .pair = exact_pair,
    .join = exact_join,
    .divide = exact_divide,
    .finish_sum = exact_finish_sum,
    .finish_average = exact_finish_average,
    .to = {exact_to_f16, exact_to_b16, exact_to_f32},

    .widen_f16 = exact_widen_f16,
    .add = {exact_add_f16, exact_add_b16, exact_add_f32, exact_add_f64},
};
