/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/kernels/kernels.h: the arithmetic of reductions: multi-source, so k inputs are read once and
 * the output is written once. The instruction set is chosen at run time (GYRE_KERNELS); all give the same
 * bits. */
#ifndef COLLECTIVES_KERNELS_KERNELS_H
#define COLLECTIVES_KERNELS_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include <gyre/types.h>

/* 1 if elements of `type` can be reduced so (any values). A type that has AVG also has coll_kernel_divide,
 * one that has SUM coll_kernel_scale. */
int coll_kernel_has(gyre_redop_kind_t op, gyre_type_t type);
/* dst[i] = srcs[0][i] op ... op srcs[k-1][i], combined in the canonical tree over k sources: balanced, split
 * at the largest power of two below k; operand order left to right. k >= 1 (k = 1 copies; truth becomes 0 or
 * 1, padding 0). dst may be exactly one of srcs; otherwise no overlap. Any alignment. AVG adds;
 * coll_kernel_divide ends it. 8-bit and 16-bit floats: each combination is computed in fp32 and rounded to
 * nearest even, so that partial results that travel have the same bits as those that do not. */
void coll_kernel_reduce(gyre_redop_kind_t op, gyre_type_t type, void *dst, const void *const *srcs, int k,
                        size_t count);
/* The same for every kind of reduction, operations of gyre_op_create included (of 2048 sources at most): what
 * is not OK is what such a function returned, which may be anything. */
gyre_status_t coll_kernel_combine(gyre_redop_kind_t op, gyre_type_t type, void *dst, const void *const *srcs,
                                  int k, size_t count);
/* The error of a call whose function returned that: the same status, or ABORTED if that is no error that may
 * kill a communicator. Quiet. */
gyre_status_t coll_kernel_failed(gyre_redop_kind_t op, gyre_status_t returned);
/* dst[i] = the sum of srcs[0..k-1][i], op AVG: divided by k: the exact value, rounded once, to nearest even.
 * So the order of the sources does not matter, and AVG needs no coll_kernel_divide. op: SUM or AVG. type:
 * FLOAT16, BFLOAT16, FLOAT32 or FLOAT64; COMPLEX64 or COMPLEX128, by parts. k >= 1; dst and alignment as
 * above.
 *   a NaN, or +infinity and -infinity   the quiet NaN with a clear sign and no payload
 *   else an infinity                    that infinity
 *   the exact sum is zero               +0; -0 if all inputs are -0
 *   overflow                            only of the rounded value, never on the way
 * Subnormals are kept. The thread's rounding and flushing modes do not matter; its floating-point flags are
 * left as they were. */
void coll_kernel_reduce_exact(gyre_redop_kind_t op, gyre_type_t type, void *dst, const void *const *srcs,
                              int k, size_t count);
/* 1: coll_kernel_reduce_exact takes this type. */
static inline int coll_kernel_has_exact(gyre_type_t type)
{
    return type == GYRE_FLOAT16 || type == GYRE_BFLOAT16 || type == GYRE_FLOAT32 || type == GYRE_FLOAT64 ||
           type == GYRE_COMPLEX64 || type == GYRE_COMPLEX128;
}
/* dst[i] = src[i] * factor; dst == src allowed. */
void coll_kernel_scale(gyre_type_t type, void *dst, const void *src, size_t count, double factor);
/* `factor` as integers are scaled by it: truncated, as the bits that modular multiplication needs; out of
 * range: the nearest. */
uint64_t coll_kernel_whole(double factor);
/* buf[i] = buf[i] / n (the finishing step of AVG). Floats: one correctly rounded division (16-bit: in
 * fp32). */
void coll_kernel_divide(gyre_type_t type, void *buf, size_t count, int n);
void coll_kernel_copy(void *dst, const void *src, size_t bytes);

/* "scalar", "avx2", "avx512", "neon": what is in use. */
const char *coll_kernel_isa(void);
/* For tests and the bench: 1 if this machine can run it and it was selected. NULL or "auto": best. */
int coll_kernel_select(const char *isa);

/* Conversions: to nearest even; NaN stays NaN. What is too large becomes infinity. */
float coll_half_to_float(unsigned short h);
unsigned short coll_float_to_half(float f);
float coll_bfloat_to_float(unsigned short h);
unsigned short coll_float_to_bfloat(float f);

#endif
