/* SPDX-License-Identifier: Apache-2.0 */
/* tests/gpu/spread.h: a figure that was measured several times. */
#ifndef TESTS_GPU_SPREAD_H
#define TESTS_GPU_SPREAD_H

#include <stdlib.h>

#include "base/order.h"

typedef struct {
    double median, least, most;
} spread_t;

/* Sorts them. */
static inline spread_t spread_of(double *rounds, int count)
{
    qsort(rounds, (size_t)count, sizeof(rounds[0]), base_order_double);
    return (spread_t){rounds[count / 2], rounds[0], rounds[count - 1]};
}

#endif
