/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-perf/persistent.c: --persistent: each operation of an iteration is made once for its buffers,
 * and then started (gyre/plan.h). */
#include "tools/gyre-perf/perf.h"

#include <stdlib.h>

#include "base/error.h"

static gyre_status_t make_uneven(const perf_case_t *c, const void *send, void *recv, gyre_plan_t **plan)
{
    switch (c->coll->op) {
    case COLL_REDUCE_SCATTER:
        return gyre_plan_reduce_scatterv(send, recv, c->counts, c->type, perf_case_redop(c), c->comm, plan);
    case COLL_ALL_GATHER:
        return gyre_plan_all_gatherv(send, recv, c->counts, c->displs, c->type, c->comm, plan);
    case COLL_GATHER:
        return gyre_plan_gatherv(send, c->send_count, recv, c->counts, NULL, c->type, c->root, c->comm, plan);
    case COLL_SCATTER:
        return gyre_plan_scatterv(send, c->counts, NULL, recv, c->recv_count, c->type, c->root, c->comm,
                                  plan);
    case COLL_ALL_TO_ALL:
        return gyre_plan_all_to_allv(send, c->counts, NULL, recv, c->rcounts, c->rdispls, c->type, c->comm,
                                     plan);
    default:
        return gyre_fail(GYRE_ERR_INTERNAL, "%s has no persistent form", c->coll->name);
    }
}

static gyre_status_t make(const perf_case_t *c, const void *send, void *recv, gyre_plan_t **plan)
{
    const perf_neighbors_t by = perf_neighbors(c);
    if (c->coll->uneven)
        return make_uneven(c, send, recv, plan);
    switch (c->coll->op) {
    case COLL_ALL_REDUCE:
        return gyre_plan_all_reduce(send, recv, c->param, c->type, perf_case_redop(c), c->comm, plan);
    case COLL_REDUCE_SCATTER:
        return gyre_plan_reduce_scatter(send, recv, c->param, c->type, perf_case_redop(c), c->comm, plan);
    case COLL_ALL_GATHER:
        return gyre_plan_all_gather(send, recv, c->param, c->type, c->comm, plan);
    case COLL_BROADCAST:
        return gyre_plan_broadcast(send, recv, c->param, c->type, c->root, c->comm, plan);
    case COLL_REDUCE:
        return gyre_plan_reduce(send, recv, c->param, c->type, perf_case_redop(c), c->root, c->comm, plan);
    case COLL_SCAN:
        return gyre_plan_scan(send, recv, c->param, c->type, perf_case_redop(c), c->comm, plan);
    case COLL_EXSCAN:
        return gyre_plan_exscan(send, recv, c->param, c->type, perf_case_redop(c), c->comm, plan);
    case COLL_GATHER:
        return gyre_plan_gather(send, recv, c->param, c->type, c->root, c->comm, plan);
    case COLL_SCATTER:
        return gyre_plan_scatter(send, recv, c->param, c->type, c->root, c->comm, plan);
    case COLL_ALL_TO_ALL:
        return gyre_plan_all_to_all(send, recv, c->param, c->type, c->comm, plan);
    case COLL_BARRIER:
        return gyre_plan_barrier(c->comm, plan);
    case COLL_SENDRECV:
        if (c->coll->neighbors)
            return gyre_plan_neighbor_exchange(send, c->counts, NULL, 2, by.to, recv, c->counts, NULL, 2,
                                               by.from, c->type, c->comm, plan);
        break;
    }
    return gyre_fail(GYRE_ERR_INTERNAL, "%s has no persistent form", c->coll->name);
}

gyre_status_t perf_plans_open(const perf_options_t *o, const perf_place_t *p, perf_case_t *c)
{
    gyre_status_t status = GYRE_OK;
    c->plans = calloc((size_t)o->aggregate, sizeof(gyre_plan_t *));
    if (!c->plans)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %d persistent operations", o->aggregate);
    for (int m = 0; m < o->aggregate && status == GYRE_OK; m++) {
        const size_t shift = (size_t)m * p->stride;
        status = make(c, p->send ? p->send + shift : NULL, p->recv ? p->recv + shift : NULL, &c->plans[m]);
    }
    return status;
}

gyre_status_t perf_plans_close(const perf_options_t *o, perf_case_t *c)
{
    gyre_status_t status = GYRE_OK;
    for (int m = 0; c->plans && m < o->aggregate && status == GYRE_OK; m++)
        status = gyre_plan_free(&c->plans[m]);
    free(c->plans);
    c->plans = NULL;
    return status;
}
