/* tests/support/mp.h: for multi-rank test programs (tests/<room>/mp_*.c), run by ucx-run.
 *
 * Each rank checks for itself; the first failed check of a rank prints where and ends it with status 1, and ucx-run ends the
 * others. */
#ifndef TESTS_MP_H
#define TESTS_MP_H

#include <stdio.h>
#include <stdlib.h>

#include <gyre/gyre.h>

#define MP_CHECK(condition, ...)                                            \
    do {                                                                    \
        if (!(condition)) {                                                 \
            fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition); \
            fprintf(stderr, __VA_ARGS__);                                   \
            fprintf(stderr, "\n");                                          \
            exit(1);                                                        \
        }                                                                   \
    } while (0)

#define MP_OK(call)                                                                                   \
    do {                                                                                              \
        gyre_status_t mp_status_ = (call);                                                            \
        MP_CHECK(mp_status_ == GYRE_OK, "%s: %s", gyre_status_string(mp_status_), gyre_last_error()); \
    } while (0)

/* A small deterministic generator: the same numbers on every rank for the same seed. */
static inline uint64_t mp_next(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

#endif
