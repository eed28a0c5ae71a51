/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/api/members/create_group.c: communicators that only their members make, while the parent's
 * other ranks do other work. What the members exchange goes over the bootstrap
 * (comm/boot/members/circle.h), not over the parent. */
#include "collectives/run/communicator.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "collectives/api/members/asks.h"
#include "comm/boot/members/circle.h"

static const char NAME[] = "gyre_comm_create_group";

static gyre_status_t read_list(const char *name, const gyre_comm_t *comm, const int *ranks, int n,
                               unsigned char *seen, int *world_ranks, int *rank)
{
    *rank = -1;
    for (int i = 0; i < n; i++) {
        if (ranks[i] < 0 || ranks[i] >= comm->n)
            return gyre_fail(GYRE_ERR_INVALID, "%s: ranks[%d] is %d, not in 0..%d", name, i, ranks[i],
                             comm->n - 1);
        if (seen[ranks[i]]++)
            return gyre_fail(GYRE_ERR_INVALID, "%s: rank %d is in the list twice", name, ranks[i]);
        world_ranks[i] = comm_group_world_rank(comm->group, ranks[i]);
        *rank = ranks[i] == comm->rank ? i : *rank;
    }
    if (*rank < 0)
        return gyre_fail(GYRE_ERR_INVALID, "%s: this rank, %d, is not in the list: only the members call it",
                         name, comm->rank);
    return GYRE_OK;
}

gyre_status_t coll_members_read(const char *name, const gyre_comm_t *comm, const int *ranks, int n,
                                int **world_ranks, int *rank)
{
    if (!ranks)
        return gyre_fail(GYRE_ERR_INVALID, "%s: ranks is NULL", name);
    if (n < 1 || n > comm->n)
        return gyre_fail(GYRE_ERR_INVALID, "%s: nranks is %d, not in 1..%d", name, n, comm->n);
    unsigned char *seen = calloc((size_t)comm->n, 1);
    int *list = malloc((size_t)n * sizeof *list);
    gyre_status_t st = seen && list ? read_list(name, comm, ranks, n, seen, list, rank)
                                    : gyre_fail(GYRE_ERR_NO_MEMORY, "%s: no memory for %d ranks", name, n);
    free(seen);
    if (st == GYRE_OK)
        *world_ranks = list;
    else
        free(list);
    return st;
}

coll_members_t coll_members_of(const gyre_comm_t *comm)
{
    return (coll_members_t){.world = comm->world,
                            .group = comm->group,
                            .parent = comm->id,
                            .deadline = base_deadline(comm->timeout_s),
                            .options = &comm->options,
                            .timeout_s = comm->timeout_s};
}

/* If all ranks of the other communicator are on one host, one exchange is enough (comm/derive.c). *done: 1:
 * that was it; 0: the members have to meet as those of a job do. */
static gyre_status_t derive(const coll_members_t *m, comm_circle_t *circle, gyre_comm_t **out, int *done)
{
    const base_time_t start = base_now();
    comm_offer_t mine, *offers;
    comm_group_t *group;
    double cma_call_ns;
    *done = 0;
    if (m->n < 2 || !comm_group_derives(m->group))
        return GYRE_OK;
    *done = 1;
    offers = calloc((size_t)m->n, sizeof *offers);
    if (!offers)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "%s: no memory for %d ranks", m->label, m->n);
    mine = comm_group_offer(m->group);
    gyre_status_t st = comm_circle_gather(circle, &mine, sizeof mine, offers);
    if (st == GYRE_OK)
        *done = comm_offers_serve(offers, m->n, &cma_call_ns);
    /* After an error another member may have the first one's offer. */
    if (m->rank > 0 || !*done)
        comm_group_withdraw(m->group, &mine);
    if (st == GYRE_OK && *done)
        st = comm_group_derive(m->group, comm_circle_id(circle), m->ranks, m->n, m->rank, &offers[0],
                               cma_call_ns, &group);
    free(offers);
    return st == GYRE_OK && *done ? coll_comm_around(m->world, group, m->n, m->rank, start, out) : st;
}

gyre_status_t coll_members_make(const coll_members_t *m, gyre_comm_t **out)
{
    gyre_comm_t *made = NULL;
    comm_circle_t *circle;
    gyre_status_t st = comm_circle_open(m->world->boot, m->label, m->parent, m->tag, m->ranks, m->world_ranks,
                                        m->n, m->rank, m->deadline, &circle);
    if (st != GYRE_OK)
        return st;
    const uint64_t id = comm_circle_id(circle);
    int done;
    st = derive(m, circle, &made, &done);
    if (!done)
        st = coll_comm_make(m->world, id, m->world_ranks, m->n, m->rank, comm_circle_gather, circle,
                            m->deadline, &made);
    if (st == GYRE_OK) {
        made->options = *m->options;
        coll_comm_set_timeout(made, m->timeout_s);
    }
    st = comm_circle_close(circle, st);
    if (st == GYRE_OK) {
        base_bias_disown(&made->driving); /* this thread may be one that ends with the creation */
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
    char label[64];
    int *world_ranks = NULL, rank;
    gyre_status_t st = coll_check_parent(NAME, comm, out);
    if (st == GYRE_OK)
        st = coll_check_comm(NAME, comm);
    if (st == GYRE_OK)
        st = coll_members_read(NAME, comm, ranks, nranks, &world_ranks, &rank);
    if (st != GYRE_OK)
        return st;
    snprintf(label, sizeof label, "%s (tag %llu)", NAME, (unsigned long long)tag);
    coll_members_t m = coll_members_of(comm);
    m.label = label;
    m.tag = tag;
    m.ranks = ranks;
    m.world_ranks = world_ranks;
    m.n = nranks;
    m.rank = rank;
    st = coll_members_make(&m, out);
    free(world_ranks);
    return st;
}
