/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: 2 3, over UCX: 2 3 */
/* tests/collectives/mp_skips.c: a rank skips a call and goes to gyre_finalize: the errors of all ranks say
 * so, and name no barrier that no rank called. Of two ranks one skips an all_reduce, of three a barrier: the
 * one in gyre_finalize does not pass for it. */
#include "tests/support/mp.h"

#include <string.h>

int main(void)
{
    gyre_comm_t *world;
    double x = 1;
    setenv("GYRE_LOG", "none", 1); /* the errors are wanted */
    MP_OK(gyre_init(NULL, &world));
    gyre_status_t st;
    const int rank = gyre_comm_rank(world), barrier = gyre_comm_size(world) == 3;
    if (rank == 1)
        st = gyre_finalize(world);
    else if (barrier)
        st = gyre_barrier(world);
    else
        st = gyre_all_reduce(&x, &x, 1, GYRE_FLOAT64, GYRE_OP(GYRE_SUM), world);
    MP_CHECK(st == GYRE_ERR_MISMATCH, "%s: %s", gyre_status_string(st), gyre_last_error());
    MP_CHECK(strstr(gyre_last_error(), "called gyre_finalize #1") &&
                 !strstr(gyre_last_error(), "barrier") == !barrier &&
                 strstr(gyre_last_error(),
                        barrier ? "called barrier #1" : "called all_reduce #1 (count 1, double, sum)"),
             "%s", gyre_last_error());
    return rank != 1 && gyre_finalize(world) != GYRE_OK;
}
