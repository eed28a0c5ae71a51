/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/api/create_group.c: communicators that only their members make, while the parent's other ranks
 * do other work. What the members exchange goes over the bootstrap (comm/boot/members/circle.h), not over the
 * parent. */
#include "collectives/run/communicator.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "collectives/api/comm.h"
#include "comm/boot/members/circle.h"

static const char NAME[] = "gyre_comm_create_group";

/* world: [n] the list by ranks of the job. *rank: this rank's place in it. */
static gyre_status_t read_list(const gyre_comm_t *comm, const int *ranks, int n, int *world, int *rank)
{
    unsigned char *seen = calloc((size_t)comm->n, 1);
    gyre_status_t st =
        seen ? GYRE_OK : gyre_fail(GYRE_ERR_NO_MEMORY, "%s: no memory for %d ranks", NAME, comm->n);
    *rank = -1;
    for (int i = 0; i < n && st == GYRE_OK; i++) {
        if (ranks[i] < 0 || ranks[i] >= comm->n) {
            st = gyre_fail(GYRE_ERR_INVALID, "%s: ranks[%d] is %d, not in 0..%d", NAME, i, ranks[i],
                           comm->n - 1);
        } else if (seen[ranks[i]]++) {
            st = gyre_fail(GYRE_ERR_INVALID, "%s: rank %d is in the list twice", NAME, ranks[i]);
        } else {
            world[i] = comm_group_world_rank(comm->group, ranks[i]);
            *rank = ranks[i] == comm->rank ? i : *rank;
        }
    }
    if (st == GYRE_OK && *rank < 0)
        st = gyre_fail(GYRE_ERR_INVALID, "%s: this rank, %d, is not in the list: only the members call it",
                       NAME, comm->rank);
    free(seen);
    return st;
}

static gyre_status_t make(gyre_comm_t *comm, const int *ranks, const int *world, int n, int rank,
                          uint64_t tag, gyre_comm_t **out)
{
    const base_time_t deadline = base_deadline(comm->timeout_s);
    char nothing = 0;
    gyre_comm_t *made = NULL;
    comm_circle_t *circle;
    gyre_status_t st =
        comm_circle_open(comm->world->boot, NAME, comm->id, tag, ranks, world, n, rank, deadline, &circle);
    if (st != GYRE_OK)
        return st;
    const uint64_t id = comm_circle_id(circle);
    st = comm_circle_gather(circle, &nothing, 0, &nothing); /* all are there, with the same list */
    if (st == GYRE_OK)
        st = coll_comm_make(comm->world, id, world, n, rank, comm_circle_gather, circle, deadline, &made);
    if (st == GYRE_OK)
        coll_options_inherit(made, comm);
    st = comm_circle_close(circle, st);
    if (st == GYRE_OK) {
        *out = made;
    } else if (made) { /* another member may have it already */
        char text[1024];
        snprintf(text, sizeof text, "%s", gyre_last_error());
        coll_comm_claim_abort(made, text);
        coll_comm_free(made);
        gyre_fail_quiet(st, "%s", text);
    }
    return st;
}

gyre_status_t gyre_comm_create_group(gyre_comm_t *comm, const int *ranks, int nranks, uint64_t tag,
                                     gyre_comm_t **out)
{
    int rank = -1;
    gyre_status_t st = coll_check_parent(NAME, comm, out);
    if (st == GYRE_OK)
        st = coll_check_comm(NAME, comm);
    if (st == GYRE_OK && !ranks)
        st = gyre_fail(GYRE_ERR_INVALID, "%s: ranks is NULL", NAME);
    if (st == GYRE_OK && (nranks < 1 || nranks > comm->n))
        st = gyre_fail(GYRE_ERR_INVALID, "%s: nranks is %d, not in 1..%d", NAME, nranks, comm->n);
    if (st != GYRE_OK)
        return st;
    int *world = malloc((size_t)nranks * sizeof *world);
    st = world ? read_list(comm, ranks, nranks, world, &rank)
               : gyre_fail(GYRE_ERR_NO_MEMORY, "%s: no memory for %d ranks", NAME, nranks);
    if (st == GYRE_OK)
        st = make(comm, ranks, world, nranks, rank, tag, out);
    free(world);
    return st;
}
