/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/api/neighbors.c: exchange with a list of neighbours: a group of messages (p2p.c) that are
 * waited for as one. */
#include "collectives/run/communicator.h"

#include "base/checked.h"
#include "base/error.h"
#include "collectives/api/start.h"

static const char NAME[] = "neighbor_exchange";

/* The blocks that are sent, or those that are received. */
typedef struct {
    coll_req_kind_t kind;
    const char *buffer_is, *ranks_are; /* their names, for errors */
    char *buffer;
    const size_t *counts, *displs; /* [n]; displs NULL: back to back */
    const int *ranks;              /* [n] */
    int n;
} side_t;

static gyre_status_t check_side(const side_t *s, size_t size, const gyre_comm_t *comm)
{
    size_t extent = 0, bytes;
    if (s->n < 0 || (s->n > 0 && (!s->ranks || !s->counts)))
        return gyre_fail(GYRE_ERR_INVALID, "%s: n%s is %d, and %s is %s, %s_counts is %s", NAME, s->ranks_are,
                         s->n, s->ranks_are, s->ranks ? "a list" : "NULL", s->buffer_is,
                         s->counts ? "a list" : "NULL");
    for (int i = 0; i < s->n; i++)
        if (s->ranks[i] < 0 || s->ranks[i] >= comm->n)
            return gyre_fail(GYRE_ERR_INVALID, "%s: %s[%d] is %d, which is not in 0..%d", NAME, s->ranks_are,
                             i, s->ranks[i], comm->n - 1);
    if (!coll_counts_extent(s->counts, s->displs, s->n, &extent) || !base_mul(extent, size, &bytes) ||
        bytes > PTRDIFF_MAX)
        return gyre_fail(GYRE_ERR_OVERFLOW, "%s: %s_counts and %s_displs are more than memory can hold", NAME,
                         s->buffer_is, s->buffer_is);
    if (bytes && !s->buffer)
        return gyre_fail(GYRE_ERR_INVALID, "%s: %s is NULL, but its blocks have %zu elements", NAME,
                         s->buffer_is, extent);
    return GYRE_OK;
}

/* A message for each block, as a part of `whole`. */
static gyre_status_t start_side(const side_t *s, gyre_type_t type, gyre_request_t *whole)
{
    size_t packed = 0;
    for (int i = 0; i < s->n; i++) {
        const size_t at = s->displs ? s->displs[i] : packed;
        char *block = s->counts[i] ? s->buffer + at * gyre_type_size(type) : NULL;
        gyre_request_t *part;
        gyre_status_t st =
            coll_p2p_call(NAME, s->kind, block, s->counts[i], type, s->ranks[i], whole->comm, &part);
        if (st != GYRE_OK)
            return st;
        part->whole = whole;
        whole->parts++;
        packed += s->counts[i];
    }
    return GYRE_OK;
}

static gyre_status_t exchange(const side_t *sends, const side_t *recvs, gyre_type_t type, gyre_comm_t *comm,
                              gyre_request_t **request)
{
    gyre_status_t st = coll_check_comm(NAME, comm);
    if (st == GYRE_OK)
        st = coll_check_type(NAME, type);
    if (st == GYRE_OK)
        st = coll_p2p_check(NAME, comm);
    if (st == GYRE_OK)
        st = check_side(sends, gyre_type_size(type), comm);
    if (st == GYRE_OK)
        st = check_side(recvs, gyre_type_size(type), comm);
    gyre_request_t *whole = st == GYRE_OK ? coll_request_new(comm) : NULL;
    if (!whole)
        return coll_refuse(st == GYRE_OK ? GYRE_ERR_NO_MEMORY : st);
    whole->kind = COLL_REQ_MESSAGES;
    whole->parts = 1; /* itself: it ends after it was started */
    whole->call = (comm_call_t){.op = COLL_SENDRECV,
                                .type = (uint8_t)type,
                                .flags = COMM_CALL_P2P,
                                .root = comm->rank,
                                .comm = (uint32_t)comm->id};
    gyre_group_start();
    st = start_side(sends, type, whole);
    if (st == GYRE_OK)
        st = start_side(recvs, type, whole);
    coll_group_collect(whole, st == GYRE_OK ? request : NULL); /* of a refused call nobody has the request */
    gyre_status_t end = gyre_group_end();
    return st == GYRE_OK ? end : st;
}

static side_t of_sends(const void *buffer, const size_t *counts, const size_t *displs, int n,
                       const int *ranks)
{
    return (side_t){COLL_REQ_SEND, "send", "to", (char *)(uintptr_t)buffer, counts, displs, ranks, n};
}

static side_t of_recvs(void *buffer, const size_t *counts, const size_t *displs, int n, const int *ranks)
{
    return (side_t){COLL_REQ_RECV, "recv", "from", buffer, counts, displs, ranks, n};
}

gyre_status_t gyre_neighbor_exchange(const void *send, const size_t *send_counts, const size_t *send_displs,
                                     int nto, const int *to, void *recv, const size_t *recv_counts,
                                     const size_t *recv_displs, int nfrom, const int *from, gyre_type_t type,
                                     gyre_comm_t *comm)
{
    const side_t sends = of_sends(send, send_counts, send_displs, nto, to),
                 recvs = of_recvs(recv, recv_counts, recv_displs, nfrom, from);
    return exchange(&sends, &recvs, type, comm, NULL);
}

gyre_status_t gyre_ineighbor_exchange(const void *send, const size_t *send_counts, const size_t *send_displs,
                                      int nto, const int *to, void *recv, const size_t *recv_counts,
                                      const size_t *recv_displs, int nfrom, const int *from, gyre_type_t type,
                                      gyre_comm_t *comm, gyre_request_t **request)
{
    const side_t sends = of_sends(send, send_counts, send_displs, nto, to),
                 recvs = of_recvs(recv, recv_counts, recv_displs, nfrom, from);
    gyre_status_t st = coll_check_request("ineighbor_exchange", request);
    return st == GYRE_OK ? exchange(&sends, &recvs, type, comm, request) : st;
}
