/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/kernels/isa.h: the table that one instruction set's build of the kernels gives to
 * collectives/kernels/reduce.c.
 *
 * Private to the kernels. Each of the files avx2.c, avx512.c, neon.c and scalar.c fills one table from
 * template.h, compiled with that set's own -m flags. Nothing in such a file may run before reduce.c has found
 * that the machine has the set. */
#ifndef COLLECTIVES_KERNELS_ISA_H
#define COLLECTIVES_KERNELS_ISA_H

#include <stddef.h>
#include <stdint.h>

#include <gyre/types.h>

#include "collectives/kernels/accumulate.h"

/* dst[i] = tree over srcs[0..k-1][i], for the one k, type and op that the function was made for. */
typedef void (*kernel_reduce_fn)(void *dst, const void *const *srcs, size_t count);
/* dst[i] = src[i] * factor; integers use `whole`, the factor truncated. */
typedef void (*kernel_scale_fn)(void *dst, const void *src, size_t count, double factor, uint64_t whole);
typedef void (*kernel_divide_fn)(void *buf, size_t count, int n);

/* The numbers of sources that have a straight-line kernel; others are put together from these. */
typedef enum { KERNEL_OF_2 = 0, KERNEL_OF_3, KERNEL_OF_4, KERNEL_OF_8, KERNEL_ARITIES } kernel_arity_t;

/* The loops of exact sums (exact_loops.h, exact.c). Tables over numbers of sources are for 1, 2, 4 and 8 of
 * them; `more` adds to what is there. */
enum { EXACT_BLOCK = 1024, EXACT_ROW = 256, EXACT_ARITIES = 4 };
typedef void (*kernel_exact_sum_fn)(double *s, const void *const *srcs, size_t count);
typedef void (*kernel_exact_split_fn)(double *s, double *e, const void *const *srcs, size_t count);
typedef struct {
    /* of floats, of bfloats */
    kernel_exact_sum_fn sum[2][EXACT_ARITIES], sum_more[2][EXACT_ARITIES];
    /* of doubles, with rows of errors; and the sums of these rows */
    kernel_exact_split_fn split[EXACT_ARITIES], split_more[EXACT_ARITIES];
    kernel_exact_sum_fn errors[EXACT_ARITIES], errors_more[EXACT_ARITIES];
    void (*pair)(double *s, double *e, uint64_t *bad, const double *x, size_t count);
    void (*join)(double *s, const double *e, size_t count);
    void (*divide)(double *s, size_t count, int k);
    uint64_t (*finish_sum)(double *s, const double *e, uint64_t *bad, size_t count);
    uint64_t (*finish_average)(double *s, const double *e, uint64_t *bad, size_t count, int k);
    /* dst = s * scale, rounded once; scale is a power of two. To halves, bfloats, floats. */
    void (*to[3])(void *dst, const double *s, size_t count, double scale);
    void (*widen_f16)(float *to, const void *src, size_t count);
    /* the sum of two halves, bfloats, floats, doubles */
    void (*add[4])(void *dst, const void *const *srcs, size_t count);
} kernel_exact_t;

/* The loops of exact sums over long arrays (accumulate_loops.h, accumulate.c). */
enum { ACCUMULATE_ROWS = 4 };
typedef struct {
    void (*level)(double *lanes, double *errors, const void *x, size_t rows);
    void (*flat)(double *lanes, const double *x, size_t rows);
    void (*products_f32)(double *p, const void *x, const void *y, size_t count);
    /* with COLL_LEVELS and with COLL_DEEP lanes; lanes is an array of [COLL_LANES] doubles */
    uint64_t (*levels)(double (*lanes)[COLL_LANES], const void *x, const void *y, size_t rows);
    uint64_t (*deep)(double (*lanes)[COLL_LANES], const void *x, const void *y, size_t rows);
} kernel_accumulate_t;

typedef struct {
    const char *name;
    const kernel_exact_t *exact;
    const kernel_accumulate_t *accumulate;
    kernel_reduce_fn reduce[GYRE_REDOP_COUNT][GYRE_TYPE_COUNT][KERNEL_ARITIES];
    kernel_scale_fn scale[GYRE_TYPE_COUNT];
    kernel_divide_fn divide[GYRE_TYPE_COUNT];
} kernel_table_t;

/* The table in use. */
const kernel_table_t *coll_kernel_table(void);

extern const kernel_table_t coll_kernels_scalar;
#if defined(__x86_64__)
extern const kernel_table_t coll_kernels_avx2, coll_kernels_avx512;
#elif defined(__aarch64__)
extern const kernel_table_t coll_kernels_neon;
#endif

#endif
