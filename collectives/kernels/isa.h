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

/* dst[i] = tree over srcs[0..k-1][i], for the one k, type and op that the function was made for. */
typedef void (*kernel_reduce_fn)(void *dst, const void *const *srcs, size_t count);
/* dst[i] = src[i] * factor; integers use `whole`, the factor truncated. */
typedef void (*kernel_scale_fn)(void *dst, const void *src, size_t count, double factor, uint64_t whole);
typedef void (*kernel_divide_fn)(void *buf, size_t count, int n);

/* The numbers of sources that have a straight-line kernel; others are put together from these. */
typedef enum { KERNEL_OF_2 = 0, KERNEL_OF_3, KERNEL_OF_4, KERNEL_OF_8, KERNEL_ARITIES } kernel_arity_t;

typedef struct {
    const char *name;
    kernel_reduce_fn reduce[GYRE_REDOP_COUNT][GYRE_TYPE_COUNT][KERNEL_ARITIES];
    kernel_scale_fn scale[GYRE_TYPE_COUNT];
    kernel_divide_fn divide[GYRE_TYPE_COUNT];
} kernel_table_t;

extern const kernel_table_t coll_kernels_scalar;
#if defined(__x86_64__)
extern const kernel_table_t coll_kernels_avx2, coll_kernels_avx512;
#elif defined(__aarch64__)
extern const kernel_table_t coll_kernels_neon;
#endif

#endif
