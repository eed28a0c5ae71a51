/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/kernels/accumulate.h: exact sums over long arrays: the arithmetic of gyre/exact.h. */
#ifndef COLLECTIVES_KERNELS_ACCUMULATE_H
#define COLLECTIVES_KERNELS_ACCUMULATE_H

#include <stddef.h>
#include <stdint.h>

#include <gyre/types.h>

#include "collectives/kernels/wide.h"

/* Doubles of a row; rows that a sum keeps, and that a block of it may take while it is added. */
enum { COLL_LANES = 32, COLL_LEVELS = 3, COLL_DEEP = 5 };

/* What a total has seen, each a count. */
typedef enum {
    COLL_SEEN_NAN,
    COLL_SEEN_PLUS, /* +infinity */
    COLL_SEEN_MINUS,
    COLL_SEEN_OTHER, /* anything but -0 */
    COLL_SEEN_ANY,
    COLL_SEEN_COUNT
} coll_seen_t;

/* Totals are added up like integers, word by word, after coll_accumulator_settle. Up to 2^30 of them at
 * once. */
typedef struct {
    coll_wide_t wide;
    int64_t seen[COLL_SEEN_COUNT];
} coll_total_t;
enum { COLL_TOTAL_WORDS = sizeof(coll_total_t) / sizeof(int64_t) };

/* The value is total + all lanes, which hold what vectors have added up so far without an error. */
typedef struct {
    coll_total_t total;
    double lanes[COLL_LEVELS][COLL_LANES]; /* sums; errors of these sums; errors of those */
} coll_accumulator_t;

void coll_accumulator_clear(coll_accumulator_t *a);
/* a += x[0] + ... + x[count - 1]. type: FLOAT32 or FLOAT64. */
void coll_accumulator_add(coll_accumulator_t *a, const void *x, size_t count, gyre_type_t type);
/* a += x[0] y[0] + ..., with exact products; y NULL: a += x[0] + ... */
void coll_accumulator_add_dot(coll_accumulator_t *a, const void *x, const void *y, size_t count,
                              gyre_type_t type);
/* a += b */
void coll_accumulator_merge(coll_accumulator_t *a, const coll_accumulator_t *b);
/* Moves the lanes into the total. */
void coll_accumulator_settle(coll_accumulator_t *a);
/* The double nearest to the value; the rules for NaN, infinities and zeros are those of
 * coll_kernel_reduce_exact; +0 if nothing was added. */
double coll_accumulator_value(const coll_accumulator_t *a);

#endif
