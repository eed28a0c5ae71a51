/* SPDX-License-Identifier: Apache-2.0 */
/* tests/support/mp.h: for multi-rank test programs (tests/<module>/mp_*.c), run by ucx-run.
 *
 * Each rank checks for itself; the first failed check of a rank prints where and ends it with status 1, and
 * ucx-run ends the others. */
#ifndef TESTS_MP_H
#define TESTS_MP_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <gyre/gyre.h>

#include "tests/support/random.h"

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

/* The call ends with the error `wanted`, and its text has `text` in it. */
#define MP_EXPECT(call, wanted, text)                                                                     \
    do {                                                                                                  \
        const gyre_status_t mp_status_ = (call), mp_wanted_ = (wanted);                                   \
        MP_CHECK(mp_status_ == mp_wanted_, "%s instead of %s: %s", gyre_status_string(mp_status_),        \
                 gyre_status_string(mp_wanted_), gyre_last_error());                                      \
        MP_CHECK(strstr(gyre_last_error(), text), "\"%s\" does not say \"%s\"", gyre_last_error(), text); \
    } while (0)

static inline void mp_nap(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* Of the calling thread. */
static inline double mp_cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Until rank 0 comes, which computes something for all: the other ranks sleep, since a call of Gyre's would
 * spin or yield for a while, and take processors. */
static inline void mp_wait_for_0(gyre_comm_t *comm)
{
    gyre_request_t *request;
    char byte = 0;
    gyre_status_t status;
    MP_OK(gyre_ibroadcast(&byte, &byte, 1, GYRE_UINT8, 0, comm, &request));
    while ((status = gyre_test(&request)) == GYRE_IN_PROGRESS)
        nanosleep(&(struct timespec){.tv_nsec = 300000}, NULL);
    MP_OK(status);
}

#endif
