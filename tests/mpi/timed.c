/* SPDX-License-Identifier: Apache-2.0 */
/* tests/mpi/timed.c: preloaded in front of gyre-mpi, or without it: each rank's blocking collectives, and the
 * time that the program spent in them, on stderr when it ends: "timed: CALLS calls, SECONDS s". C, mpif.h and
 * mpi_f08. For 64-bit processors that pass pointers and ints alike. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef int call_t(void *, void *, void *, void *, void *, void *, void *, void *, void *, void *);

static long calls;
static double seconds;
static int inside;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static call_t *next(const char *name)
{
    call_t *real;
    void *symbol = dlsym(RTLD_NEXT, name);
    if (symbol == NULL) {
        fprintf(stderr, "timed: no %s after this one\n", name);
        abort();
    }
    memcpy(&real, &symbol, sizeof(real));
    return real;
}

/* No collective has more than 10 arguments; a callee does not look at those that it does not have. */
#define TIMED(NAME)                                                                                    \
    call_t NAME;                                                                                       \
    int NAME(void *a, void *b, void *c, void *d, void *e, void *f, void *g, void *h, void *i, void *j) \
    {                                                                                                  \
        static call_t *real;                                                                           \
        if (real == NULL)                                                                              \
            real = next(#NAME);                                                                        \
        if (inside)                                                                                    \
            return real(a, b, c, d, e, f, g, h, i, j);                                                 \
        inside = 1;                                                                                    \
        const double begin = now();                                                                    \
        const int result = real(a, b, c, d, e, f, g, h, i, j);                                         \
        seconds += now() - begin;                                                                      \
        calls++;                                                                                       \
        inside = 0;                                                                                    \
        return result;                                                                                 \
    }
#define COLLECTIVE(C, FORTRAN) TIMED(MPI_##C) TIMED(mpi_##FORTRAN##_) TIMED(mpi_##FORTRAN##_f08_)

COLLECTIVE(Barrier, barrier)
COLLECTIVE(Bcast, bcast)
COLLECTIVE(Reduce, reduce)
COLLECTIVE(Allreduce, allreduce)
COLLECTIVE(Gather, gather)
COLLECTIVE(Gatherv, gatherv)
COLLECTIVE(Scatter, scatter)
COLLECTIVE(Scatterv, scatterv)
COLLECTIVE(Allgather, allgather)
COLLECTIVE(Allgatherv, allgatherv)
COLLECTIVE(Alltoall, alltoall)
COLLECTIVE(Alltoallv, alltoallv)
COLLECTIVE(Alltoallw, alltoallw)
COLLECTIVE(Reduce_scatter, reduce_scatter)
COLLECTIVE(Reduce_scatter_block, reduce_scatter_block)
COLLECTIVE(Scan, scan)
COLLECTIVE(Exscan, exscan)

__attribute__((destructor)) static void say(void)
{
    if (calls)
        fprintf(stderr, "timed: %ld calls, %.6f s\n", calls, seconds);
}
