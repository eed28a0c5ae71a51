/* SPDX-License-Identifier: Apache-2.0 */
/* bench/waiters.c: what ranks that wait cost one that computes (`make bench-waiters`).
 *
 * Rank 0 does a fixed piece of work again and again. Meanwhile all other ranks either sleep outside Gyre, or
 * wait in gyre_barrier for rank 0. Both are timed in turns. The ratio of the medians is what waiting costs:
 * 1.01 is one per cent. */
#include <gyre/gyre.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROUNDS = 15 };

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Some 0.5 s in registers; returns how long it took. */
static double work(void)
{
    const double begun = seconds();
    volatile double result = 1;
    double x = result;
    for (long i = 0; i < 300L * 1000 * 1000; i++)
        x = x * 0.9999999 + 1e-9;
    result = x;
    return seconds() - begun;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *took)
{
    qsort(took, ROUNDS, sizeof *took, compare);
    return took[ROUNDS / 2];
}

int main(void)
{
    gyre_comm_t *world = NULL;
    double asleep[ROUNDS], waiting[ROUNDS];
    gyre_status_t status = gyre_init(NULL, &world);
    if (status != GYRE_OK)
        return 1;
    const int rank = gyre_comm_rank(world), n = gyre_comm_size(world);
    double once = rank == 0 ? work() : 0;
    status = gyre_broadcast(&once, &once, 1, GYRE_FLOAT64, 0, world);
    const struct timespec pause = {.tv_sec = (time_t)(2 * once) + 1}; /* longer than the work takes */
    for (int i = 0; i < ROUNDS && status == GYRE_OK; i++) {
        status = gyre_barrier(world);
        if (rank == 0)
            asleep[i] = work();
        else
            nanosleep(&pause, NULL);
        if (status == GYRE_OK)
            status = gyre_barrier(world);
        if (rank == 0)
            waiting[i] = work();
        if (status == GYRE_OK)
            status = gyre_barrier(world);
    }
    if (rank == 0 && status == GYRE_OK) {
        const double alone = median(asleep), beside = median(waiting);
        printf("%d others asleep: %.4f s; waiting in gyre_barrier: %.4f s; ratio %.4f\n", n - 1, alone,
               beside, beside / alone);
    }
    if (gyre_finalize(world) != GYRE_OK)
        return 1;
    return status != GYRE_OK;
}
