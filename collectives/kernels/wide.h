/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/kernels/wide.h: an accumulator that holds any sum of doubles, and of products of two doubles,
 * without rounding (a superaccumulator: U. Kulisch, "Computer Arithmetic and Validity", 2008).
 *
 * The value is the sum of limb[i] * 2^(32 i - 2176). One term changes at most four limbs, each by less than
 * 2^32, so 2^30 terms can be added before carries must be moved up. 2^63 terms of any size fit. */
#ifndef COLLECTIVES_KERNELS_WIDE_H
#define COLLECTIVES_KERNELS_WIDE_H

#include <stdint.h>

#include "collectives/kernels/digits.h"

enum {
    COLL_WIDE_LIMBS = 136, /* the smallest product of two doubles is 2^-2148, the largest below 2^2048 */
    COLL_WIDE_POINT = 2176 /* limb 0 counts units of 2^-2176 */
};

typedef struct {
    int64_t limb[COLL_WIDE_LIMBS];
    /* Terms since the carries were last moved. */
    int64_t terms;
} coll_wide_t;

extern const coll_format_t coll_format_double, coll_format_float, coll_format_bfloat, coll_format_half;

void coll_wide_clear(coll_wide_t *w);
/* w += x; x is finite. */
void coll_wide_add(coll_wide_t *w, double x);
/* w += x * y, exactly; both are finite. */
void coll_wide_add_product(coll_wide_t *w, double x, double y);
/* w += other, which gets its carries moved and keeps its value. */
void coll_wide_merge(coll_wide_t *w, coll_wide_t *other);
/* Moves the carries up: the limbs are in [0, 2^32) then, but for the last, which has the sign. A value has
 * one such form. */
void coll_wide_carry(coll_wide_t *w);
/* The value of the format that is nearest to w / k, ties to the even one: rounded once. +0 for an exact zero;
 * a value that rounds to zero keeps its sign. k >= 1. Moves the carries. */
double coll_wide_round(coll_wide_t *w, uint32_t k, const coll_format_t *format);
/* The same for a sum of fewer than 2^31 numbers of this very format: looks at the limbs that these reach. */
double coll_wide_round_few(coll_wide_t *w, uint32_t k, const coll_format_t *format);

#endif
