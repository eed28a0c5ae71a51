/* SPDX-License-Identifier: Apache-2.0 */
/* tests/collectives/comms/members.h: which ranks of the world a communicator has, seen by an operation. */
#ifndef TESTS_COLLECTIVES_MEMBERS_H
#define TESTS_COLLECTIVES_MEMBERS_H

#include "tests/support/mp.h"

static gyre_comm_t *world;
static int rank, n; /* of the world */

/* All its ranks are there, in this order: a list of ranks of the world. */
static void is_of(gyre_comm_t *comm, const int *ranks, int count)
{
    int mine = rank, all[64];
    MP_CHECK(gyre_comm_size(comm) == count, "%d ranks, not %d", gyre_comm_size(comm), count);
    MP_OK(gyre_all_gather(&mine, all, 1, GYRE_INT32, comm));
    for (int i = 0; i < count; i++)
        MP_CHECK(all[i] == ranks[i], "rank %d is %d, not %d", i, all[i], ranks[i]);
    MP_CHECK(ranks[gyre_comm_rank(comm)] == rank, "rank %d", gyre_comm_rank(comm));
}

static void world_works(void)
{
    int all[64];
    for (int i = 0; i < n; i++)
        all[i] = i;
    is_of(world, all, n);
}

#endif
