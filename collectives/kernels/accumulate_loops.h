/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/kernels/accumulate_loops.h: the loops of exact sums over long arrays, once for every
 * instruction set; part of template.h, after exact_loops.h. accumulate.c puts the loops together. Rows are
 * COLL_LANES doubles; there are a multiple of ACCUMULATE_ROWS of them. */

#if defined(__aarch64__)
#include <arm_neon.h>
#endif

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
typedef int64_t accumulate_bits_v __attribute__((vector_size(ACCUMULATE_BYTES)));
enum { ACCUMULATE_WIDTH = ACCUMULATE_BYTES / 8, ACCUMULATE_AT_ONCE = 4, ACCUMULATE_PAIR = 2 };

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

/* x y - p, rounded once */
static inline accumulate_v accumulate_rest(accumulate_v x, accumulate_v y, accumulate_v p)
{
#if defined(__AVX512F__)
    return _mm512_fmsub_pd(x, y, p);
#elif defined(__FMA__)
    return _mm256_fmsub_pd(x, y, p);
#elif defined(__aarch64__)
    return vfmaq_f64(-p, x, y);
#else
    for (int i = 0; i < ACCUMULATE_WIDTH; i++)
        p[i] = __builtin_fma(x[i], y[i], -p[i]);
    return p;
#endif
}

/* lanes[0] += each row of x, or of the products x y (y NULL: x), lanes[1] += the errors of these additions
 * and what the products lack, lanes[2] += the errors of these, and so on. In registers, as far as they reach.
 * Returns bits of what the last lanes have lost: 0, nothing. */
static inline __attribute__((always_inline)) uint64_t
accumulate_cascade(double (*lanes)[COLL_LANES], const double *x, const double *y, size_t rows, int levels)
{
    accumulate_bits_v lost = {0};
    for (int at = 0; at < COLL_LANES; at += ACCUMULATE_PAIR * ACCUMULATE_WIDTH) {
        accumulate_v s[COLL_DEEP][ACCUMULATE_PAIR];
        for (int l = 0; l < levels; l++)
            for (int v = 0; v < ACCUMULATE_PAIR; v++)
                s[l][v] = accumulate_load(&lanes[l][at + v * ACCUMULATE_WIDTH]);
        for (size_t i = (size_t)at; i < rows * COLL_LANES; i += COLL_LANES)
            for (int v = 0; v < ACCUMULATE_PAIR; v++) {
                accumulate_v high = accumulate_load(x + i + v * ACCUMULATE_WIDTH), low = high;
                if (y) {
                    const accumulate_v by = accumulate_load(y + i + v * ACCUMULATE_WIDTH);
                    high = low * by;
                    low = accumulate_rest(low, by, high);
                }
                high = accumulate_two_sum(&s[0][v], high);
                for (int l = 1; l < levels; l++) {
                    high = accumulate_two_sum(&s[l][v], high);
                    if (y)
                        low = accumulate_two_sum(&s[l][v], low);
                }
                lost |= (accumulate_bits_v)high;
                if (y)
                    lost |= (accumulate_bits_v)low;
            }
        for (int l = 0; l < levels; l++)
            for (int v = 0; v < ACCUMULATE_PAIR; v++)
                accumulate_store(&lanes[l][at + v * ACCUMULATE_WIDTH], s[l][v]);
    }
    uint64_t any = 0;
    for (int i = 0; i < ACCUMULATE_WIDTH; i++)
        any |= (uint64_t)lost[i];
    return any << 1; /* zeros have signs */
}

static uint64_t accumulate_levels(double (*lanes)[COLL_LANES], const void *x, const void *y, size_t rows)
{
    return y ? accumulate_cascade(lanes, x, y, rows, COLL_LEVELS)
             : accumulate_cascade(lanes, x, NULL, rows, COLL_LEVELS);
}

static uint64_t accumulate_deep(double (*lanes)[COLL_LANES], const void *x, const void *y, size_t rows)
{
    return y ? accumulate_cascade(lanes, x, y, rows, COLL_DEEP)
             : accumulate_cascade(lanes, x, NULL, rows, COLL_DEEP);
}

static const kernel_accumulate_t accumulate_table = {
    .level = accumulate_level,
    .flat = accumulate_flat,
    .products_f32 = accumulate_products_f32,
    .levels = accumulate_levels,
    .deep = accumulate_deep,
};
