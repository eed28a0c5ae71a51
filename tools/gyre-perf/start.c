/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-perf/start.c: each collective by its non-blocking call. */
#include "tools/gyre-perf/perf.h"

#include "base/error.h"

static gyre_status_t start_uneven(const perf_case_t *c, const void *send, void *recv, gyre_request_t **r)
{
    switch (c->coll->op) {
    case COLL_REDUCE_SCATTER:
        return gyre_ireduce_scatterv(send, recv, c->counts, c->type, perf_case_redop(c), c->comm, r);
    case COLL_ALL_GATHER:
        return gyre_iall_gatherv(send, recv, c->counts, c->displs, c->type, c->comm, r);
    case COLL_GATHER:
        return gyre_igatherv(send, c->send_count, recv, c->counts, NULL, c->type, c->root, c->comm, r);
    case COLL_SCATTER:
        return gyre_iscatterv(send, c->counts, NULL, recv, c->recv_count, c->type, c->root, c->comm, r);
    case COLL_ALL_TO_ALL:
        return gyre_iall_to_allv(send, c->counts, NULL, recv, c->rcounts, c->rdispls, c->type, c->comm, r);
    default:
        return gyre_fail(GYRE_ERR_INTERNAL, "%s has no non-blocking call", c->coll->name);
    }
}

static gyre_status_t start_messages(const perf_case_t *c, const void *send, void *recv,
                                    gyre_request_t *requests[2])
{
    const perf_neighbors_t by = perf_neighbors(c);
    if (c->coll->neighbors)
        return gyre_ineighbor_exchange(send, c->counts, NULL, 2, by.to, recv, c->counts, NULL, 2, by.from,
                                       c->type, c->comm, &requests[0]);
    gyre_status_t status = gyre_isend(send, c->param, c->type, by.to[1], c->comm, &requests[0]);
    return status == GYRE_OK ? gyre_irecv(recv, c->param, c->type, by.from[1], c->comm, &requests[1])
                             : status;
}

gyre_status_t perf_case_start(const perf_case_t *c, const void *send, void *recv, gyre_request_t *requests[2])
{
    gyre_request_t **r = &requests[0];
    requests[0] = requests[1] = NULL;
    if (c->coll->uneven)
        return start_uneven(c, send, recv, r);
    switch (c->coll->op) {
    case COLL_ALL_REDUCE:
        return gyre_iall_reduce(send, recv, c->param, c->type, perf_case_redop(c), c->comm, r);
    case COLL_REDUCE_SCATTER:
        return gyre_ireduce_scatter(send, recv, c->param, c->type, perf_case_redop(c), c->comm, r);
    case COLL_ALL_GATHER:
        return gyre_iall_gather(send, recv, c->param, c->type, c->comm, r);
    case COLL_BROADCAST:
        return gyre_ibroadcast(send, recv, c->param, c->type, c->root, c->comm, r);
    case COLL_REDUCE:
        return gyre_ireduce(send, recv, c->param, c->type, perf_case_redop(c), c->root, c->comm, r);
    case COLL_SCAN:
        return gyre_iscan(send, recv, c->param, c->type, perf_case_redop(c), c->comm, r);
    case COLL_EXSCAN:
        return gyre_iexscan(send, recv, c->param, c->type, perf_case_redop(c), c->comm, r);
    case COLL_GATHER:
        return gyre_igather(send, recv, c->param, c->type, c->root, c->comm, r);
    case COLL_SCATTER:
        return gyre_iscatter(send, recv, c->param, c->type, c->root, c->comm, r);
    case COLL_ALL_TO_ALL:
        return gyre_iall_to_all(send, recv, c->param, c->type, c->comm, r);
    case COLL_BARRIER:
        return gyre_ibarrier(c->comm, r);
    case COLL_SENDRECV:
        return start_messages(c, send, recv, requests);
    }
    return gyre_fail(GYRE_ERR_INTERNAL, "%s has no non-blocking call", c->coll->name);
}
