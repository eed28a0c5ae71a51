/* SPDX-License-Identifier: Apache-2.0 */
/* tests/gpu/spread.h: a figure that was measured several times. */
#ifndef TESTS_GPU_SPREAD_H
#define TESTS_GPU_SPREAD_H

#include <stdlib.h>

typedef struct {
    double median, least, most;
} spread_t;

static inline int spread_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts them. */
static inline spread_t spread_of(double *rounds, int count)
{
    qsort(rounds, (size_t)count, sizeof(rounds[0]), spread_compare);
    return (spread_t){rounds[count / 2], rounds[0], rounds[count - 1]};
}

#endif
