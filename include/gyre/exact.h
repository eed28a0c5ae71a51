/* SPDX-License-Identifier: Apache-2.0 */
/* gyre/exact.h: exact sums of local data. The result has the same bits for any split of the data among calls,
 * threads and ranks.
 *
 *   gyre_exact_t *dot;
 *   double value;
 *   gyre_exact_create(&dot);
 *   gyre_exact_add_dot(dot, x, y, count, GYRE_FLOAT64);
 *   gyre_exact_all_reduce(dot, comm);
 *   gyre_exact_value(dot, &value);
 *   gyre_exact_destroy(dot);
 *
 * A sum holds its value without any rounding, over the whole range of doubles and of their products, in about
 * 2 KiB. Only gyre_exact_value rounds, once. Up to 2^60 terms. NaN, infinities, zeros and overflow:
 * docs/contract.md, "Exact sums".
 *
 * Arrays lie in host memory, at any address. A sum belongs to one thread at a time; threads add to sums of
 * their own and merge them. Errors, which do not change the sum: INVALID: an argument is NULL (with a zero
 * count, arrays may be NULL); TYPE: the type is not GYRE_FLOAT32 or GYRE_FLOAT64. */
#ifndef GYRE_EXACT_H
#define GYRE_EXACT_H

#include <gyre/collectives.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gyre_exact gyre_exact_t;

/* A sum of nothing. The caller frees it with gyre_exact_destroy. Errors also: NO_MEMORY. */
GYRE_API gyre_status_t gyre_exact_create(gyre_exact_t **out);
/* exact NULL: OK. No gyre_exact_iall_reduce on it may be under way. */
GYRE_API gyre_status_t gyre_exact_destroy(gyre_exact_t *exact);
/* Makes it a sum of nothing again. */
GYRE_API gyre_status_t gyre_exact_reset(gyre_exact_t *exact);

/* x, y: [count]. Adds x[0] + ... + x[count - 1]; x[0] * y[0] + ..., each product exact; x[0] * x[0] + ... */
GYRE_API gyre_status_t gyre_exact_add(gyre_exact_t *exact, const void *x, size_t count, gyre_type_t type);
GYRE_API gyre_status_t gyre_exact_add_dot(gyre_exact_t *exact, const void *x, const void *y, size_t count,
                                          gyre_type_t type);
GYRE_API gyre_status_t gyre_exact_add_norm2(gyre_exact_t *exact, const void *x, size_t count,
                                            gyre_type_t type);

/* Adds the value of `from`, which stays as it is. INVALID also: both are the same. */
GYRE_API gyre_status_t gyre_exact_merge(gyre_exact_t *exact, const gyre_exact_t *from);
/* Adds up the sums of all ranks of `comm`; every rank's `exact` becomes the total. It is an ordinary
 * all-reduce of integers, about 1 KiB, with the same rules, errors and non-blocking form
 * (gyre/collectives.h). After an error that kills `comm`, the value is undefined. UNSUPPORTED: `comm` has
 * other than one leaf per rank (gyre_comm_set); gyre_comm_dup gives one that has. */
GYRE_API gyre_status_t gyre_exact_all_reduce(gyre_exact_t *exact, gyre_comm_t *comm);
GYRE_API gyre_status_t gyre_exact_iall_reduce(gyre_exact_t *exact, gyre_comm_t *comm,
                                              gyre_request_t **request);

/* *value = the double nearest to the sum, ties to the even one. The sum is not changed, and terms may be
 * added later. */
GYRE_API gyre_status_t gyre_exact_value(const gyre_exact_t *exact, double *value);

#ifdef __cplusplus
}
#endif
#endif
