/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/kernels/accumulate_loops.h: the loops of exact sums over long arrays, once for every
 * instruction set; part of template.h, after exact_loops.h. accumulate.c puts the loops together. Rows are
 * COLL_LANES doubles; there are a multiple of ACCUMULATE_ROWS of them. */

/* Vectors by hand here: compilers would keep lanes in memory. ACCUMULATE_AT_ONCE of them hide the time of an
 * addition. */
#if defined(__AVX512F__)
#define ACCUMULATE_BYTES 64
#elif defined(__AVX__)
#define ACCUMULATE_BYTES 32
#else
#define ACCUMULATE_BYTES 16
#endif
typedef double accumulate_v __attribute__((vector_size(ACCUMULATE_BYTES)));
typedef double accumulate_unaligned_v __attribute__((vector_size(ACCUMULATE_BYTES), aligned(1), may_alias));
enum { ACCUMULATE_WIDTH = ACCUMULATE_BYTES / 8, ACCUMULATE_AT_ONCE = 4 };

static inline accumulate_v accumulate_load(const void *at)
{
    return *(const accumulate_unaligned_v *)at;
}

static inline void accumulate_store(void *at, accumulate_v v)
{
    *(accumulate_unaligned_v *)at = v;
}

/* *s += x; returns the error. */
static inline accumulate_v accumulate_two_sum(accumulate_v *s, accumulate_v x)
{
    const accumulate_v sum = *s + x, x_part = sum - *s;
    const accumulate_v error = (*s - (sum - x_part)) + (x - x_part);
    *s = sum;
    return error;
}

/* lanes += each row of x; the errors of these additions go to the rows of `errors` */
static void accumulate_level(double *lanes, double *errors, const void *from, size_t rows)
{
    const double *x = from;
    for (int at = 0; at < COLL_LANES; at += ACCUMULATE_AT_ONCE * ACCUMULATE_WIDTH) {
        accumulate_v s[ACCUMULATE_AT_ONCE];
        for (int v = 0; v < ACCUMULATE_AT_ONCE; v++)
            s[v] = accumulate_load(lanes + at + v * ACCUMULATE_WIDTH);
        for (size_t i = (size_t)at; i < rows * COLL_LANES; i += COLL_LANES) {
            for (int v = 0; v < ACCUMULATE_AT_ONCE; v++)
                accumulate_store(errors + i + v * ACCUMULATE_WIDTH,
                                 accumulate_two_sum(&s[v], accumulate_load(x + i + v * ACCUMULATE_WIDTH)));
        }
        for (int v = 0; v < ACCUMULATE_AT_ONCE; v++)
            accumulate_store(lanes + at + v * ACCUMULATE_WIDTH, s[v]);
    }
}

/* lanes += each row of x, which a flag proves exact */
static void accumulate_flat(double *lanes, const double *x, size_t rows)
{
    double s[COLL_LANES];
    memcpy(s, lanes, sizeof s);
    for (size_t row = 0; row < rows; row += ACCUMULATE_ROWS) {
        for (int i = 0; i < COLL_LANES; i++)
            s[i] += (x[i] + x[COLL_LANES + i]) + (x[2 * COLL_LANES + i] + x[3 * COLL_LANES + i]);
        x += ACCUMULATE_ROWS * COLL_LANES;
    }
    memcpy(lanes, s, sizeof s);
}

static void accumulate_products_f32(double *p, const void *from, const void *by, size_t count)
{
    const kernel_f32 *x = from, *y = by;
    KERNEL_LOOP
    for (size_t i = 0; i < count; i++)
        p[i] = (double)x[i] * (double)y[i]; /* 48 bits: exact */
}

/* x y = p + low, unless that raises a flag other than "inexact" */
static void accumulate_products_f64(double *p, double *low, const void *from, const void *by, size_t count)
{
    const kernel_f64 *x = from, *y = by;
    KERNEL_LOOP
    for (size_t i = 0; i < count; i++) {
        const double product = x[i] * y[i];
        p[i] = product;
        low[i] = __builtin_fma(x[i], y[i], -product);
    }
}

static const kernel_accumulate_t accumulate_table = {
    .level = accumulate_level,
    .flat = accumulate_flat,
    .products_f32 = accumulate_products_f32,
    .products_f64 = accumulate_products_f64,
};
