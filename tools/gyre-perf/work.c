/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-perf/work.c: a stand-in for computing, calibrated; and the median. */
#include "tools/gyre-perf/command.h"

#include <stdlib.h>
#include <time.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/order.h"

enum {
    RING = 4 << 20, /* elements: 16 MiB, more than a core's own caches */
    PIECE = 1024,   /* elements: 4 KiB, inside L1 */
    PASSES = 16
};

void perf_work_do(perf_work_t *w, size_t amount)
{
    while (amount > 0) {
        const size_t count = base_min_size(base_min_size(amount, PIECE), RING - w->at);
        float *x = w->memory + w->at;
        for (int pass = 0; pass < PASSES; pass++) {
            for (size_t i = 0; i < count; i++)
                x[i] = x[i] * 0.75f + 0.25f;   /* towards 1: no zeros, no denormal numbers */
            __asm__ volatile("" ::: "memory"); /* each pass counts */
        }
        w->at = (w->at + count) % RING;
        amount -= count;
    }
}

size_t perf_work_amount(const perf_work_t *w, double seconds)
{
    return (size_t)(w->rate * seconds + 0.5);
}

double perf_median(double *values, size_t count)
{
    if (count == 0)
        return 0.0;
    qsort(values, count, sizeof *values, base_order_double);
    return (values[(count - 1) / 2] + values[count / 2]) / 2.0;
}

/* Nanoseconds that this thread had a core: other load of the machine does not make the work look longer. */
static double cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

gyre_status_t perf_work_create(gyre_comm_t *comm, perf_work_t *w)
{
    enum { ROUNDS = 20 };
    *w = (perf_work_t){.memory = malloc(RING * sizeof(float))};
    if (!w->memory)
        return gyre_fail(GYRE_ERR_NO_MEMORY,
                         "no memory for the %zu bytes that the stand-in for computing touches",
                         RING * sizeof(float));
    for (size_t i = 0; i < RING; i++)
        w->memory[i] = 1.0f + (float)(i % 7);
    gyre_status_t status = gyre_barrier(comm);
    for (int round = 0; round < ROUNDS; round++) {
        const size_t amount = RING / 4;
        const double start = cpu_ns();
        perf_work_do(w, amount);
        const double rate = (double)amount * 1e9 / (cpu_ns() - start);
        w->rate = rate > w->rate ? rate : w->rate;
    }
    if (status != GYRE_OK)
        perf_work_destroy(w);
    return status;
}

void perf_work_destroy(perf_work_t *w)
{
    free(w->memory);
    w->memory = NULL;
}
