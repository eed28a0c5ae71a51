/* SPDX-License-Identifier: Apache-2.0 */
/* bench.c: nanoseconds of gyre_all_reduce of one double on one rank: the least of several batches. */
#include <gyre/gyre.h>
#include <stdio.h>
#include <time.h>

int main(void)
{
    enum { BATCHES = 20, CALLS = 20000 };
    double x = 1, least = 1e9;
    gyre_comm_t *world = NULL;
    if (gyre_init(NULL, &world) != GYRE_OK)
        return 1;
    for (int batch = 0; batch < BATCHES; batch++) {
        struct timespec begin, end;
        timespec_get(&begin, TIME_UTC);
        for (int i = 0; i < CALLS; i++)
            if (gyre_all_reduce(&x, &x, 1, GYRE_FLOAT64, GYRE_OP(GYRE_SUM), world) != GYRE_OK)
                return 1;
        timespec_get(&end, TIME_UTC);
        double each =
            ((double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec)) / CALLS;
        least = each < least ? each : least;
    }
    printf("%.0f\n", least);
    return gyre_finalize(world) != GYRE_OK;
}
