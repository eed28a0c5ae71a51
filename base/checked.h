/* SPDX-License-Identifier: Apache-2.0 */
/* base/checked.h: size arithmetic that notices overflow. Each returns 1 and sets *out, or returns 0. */
#ifndef BASE_CHECKED_H
#define BASE_CHECKED_H

#include <stddef.h>

static inline int base_mul(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}
static inline int base_add(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}
static inline size_t base_min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}
static inline int base_min_int(int a, int b)
{
    return a < b ? a : b;
}

static inline size_t base_max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}
/* a rounded up to a multiple of `to` (a power of two); the caller knows that it cannot overflow. */
static inline size_t base_round_up(size_t a, size_t to)
{
    return (a + to - 1) & ~(to - 1);
}

#endif
