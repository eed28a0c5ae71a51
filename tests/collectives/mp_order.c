/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: 2 3 4, over UCX: 3 */
/* tests/collectives/mp_order.c: a communicator keeps its own order of reductions: two of the same process may
 * differ, changing it is refused while operations are under way, and ranks that disagree get an error. */
#include "tests/support/mp.h"

#include <string.h>

#include "base/settings/settings.h"
#include "collectives/run/communicator.h"

enum { COUNT = 20000 };

static int n, rank;
static float in[COUNT];

static void reduce(gyre_comm_t *comm, float *out)
{
    memset(out, 0, COUNT * sizeof *out);
    MP_OK(gyre_all_reduce(in, out, COUNT, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), comm));
}

static int same(const float *a, const float *b)
{
    return memcmp(a, b, COUNT * sizeof *a) == 0;
}

/* With the ring forced, the two orders differ in their bits from 3 ranks on, and each comes back as it
 * was. */
static void orders_of_two(gyre_comm_t *world)
{
    static float canonical[COUNT], fast[COUNT], again[COUNT];
    gyre_comm_t *other, *child;
    MP_OK(gyre_comm_split(world, 0, rank, &other));
    MP_OK(coll_comm_set_order(other, 1));
    reduce(world, canonical);
    reduce(other, fast);
    MP_CHECK(same(canonical, fast) == (n < 3), "%d ranks: the orders should %s", n,
             n < 3 ? "agree" : "differ");
    MP_OK(gyre_comm_split(other, 0, rank, &child));
    reduce(child, again);
    MP_CHECK(same(fast, again), "a split does not reduce as its parent does");
    reduce(world, again);
    MP_CHECK(same(canonical, again), "another communicator's order is not the world's");
    MP_OK(coll_comm_set_order(other, 0)); /* the plans of before must not be used */
    reduce(other, again);
    MP_CHECK(same(canonical, again), "back in the canonical order, the bits are not");
    MP_OK(gyre_comm_destroy(child));
    MP_OK(gyre_comm_destroy(other));
}

static void not_while_under_way(gyre_comm_t *world)
{
    static float out[COUNT];
    gyre_request_t *request;
    MP_OK(gyre_iall_reduce(in, out, COUNT, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), world, &request));
    MP_CHECK(coll_comm_set_order(world, 1) == GYRE_ERR_INVALID, "changed under an operation");
    MP_CHECK(strstr(gyre_last_error(), "under way"), "%s", gyre_last_error());
    MP_OK(gyre_wait(&request));
}

static void ranks_that_disagree(gyre_comm_t *world)
{
    static float out[COUNT];
    gyre_comm_t *comm;
    MP_OK(gyre_comm_split(world, 0, rank, &comm));
    MP_OK(coll_comm_set_order(comm, rank == 0));
    gyre_status_t got = gyre_all_reduce(in, out, COUNT, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), comm);
    MP_CHECK(got == GYRE_ERR_MISMATCH || got == GYRE_ERR_ABORTED, "%s: %s", gyre_status_string(got),
             gyre_last_error());
    MP_OK(gyre_comm_destroy(comm));
    MP_OK(gyre_barrier(world));
}

int main(void)
{
    gyre_comm_t *world;
    MP_OK(base_settings_load());
    MP_OK(base_settings_set(SET_ALGO, "all_reduce:ring", "test"));
    MP_OK(gyre_init(NULL, &world));
    n = gyre_comm_size(world);
    rank = gyre_comm_rank(world);
    uint64_t seed = (uint64_t)rank + 1;
    for (size_t i = 0; i < COUNT; i++)
        in[i] = (float)(random_next(&seed) >> 40) * 1e-3f;
    orders_of_two(world);
    not_while_under_way(world);
    ranks_that_disagree(world);
    MP_OK(gyre_finalize(world));
    return 0;
}
