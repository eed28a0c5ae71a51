/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/api/neighbors.c: exchange with a list of neighbours: a group of messages (p2p.c) that are
 * waited for as one. */
#include "collectives/api/persistent.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "collectives/api/start.h"
#include "collectives/gpu/gpu.h"

static const char NAME[] = "neighbor_exchange";

/* The blocks that are sent, or those that are received. */
typedef struct {
    coll_req_kind_t kind;
    const char *buffer_is, *ranks_are; /* their names, for errors */
    char *buffer;
    const size_t *counts, *displs; /* [n]; displs NULL: back to back */
    const int *ranks;              /* [n] */
    int n;
    int on_device; /* its blocks are in a device's memory */
} side_t;

struct coll_neighbors {
    side_t side[2]; /* sends, then receives: the order in which they start */
    gyre_type_t type;
    gyre_comm_t *comm;
};

static coll_neighbors_t of(side_t sends, side_t recvs, gyre_type_t type, gyre_comm_t *comm)
{
    return (coll_neighbors_t){.side = {sends, recvs}, .type = type, .comm = comm};
}

static side_t of_sends(const void *buffer, const size_t *counts, const size_t *displs, int n,
                       const int *ranks)
{
    return (side_t){COLL_REQ_SEND, "send", "to", (char *)(uintptr_t)buffer, counts, displs, ranks, n, 0};
}

static side_t of_recvs(void *buffer, const size_t *counts, const size_t *displs, int n, const int *ranks)
{
    return (side_t){COLL_REQ_RECV, "recv", "from", buffer, counts, displs, ranks, n, 0};
}

/* Block i, which begins `packed` elements after the buffer if blocks are back to back. NULL: it is empty. */
static char *block_of(const side_t *s, int i, size_t packed, gyre_type_t type)
{
    const size_t at = s->displs ? s->displs[i] : packed;
    return s->counts[i] ? s->buffer + at * gyre_type_size(type) : NULL;
}

/* The blocks of a side lie in one array: the first that is not empty stands for all. */
static int is_on_device(const side_t *s, gyre_type_t type)
{
    for (int i = 0; i < s->n; i++)
        if (s->counts[i])
            return coll_cuda_holds(block_of(s, i, 0, type));
    return 0;
}

static gyre_status_t check_side(side_t *s, gyre_type_t type, const gyre_comm_t *comm)
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
    if (!coll_counts_extent(s->counts, s->displs, s->n, &extent) ||
        !base_mul(extent, gyre_type_size(type), &bytes) || bytes > PTRDIFF_MAX)
        return gyre_fail(GYRE_ERR_OVERFLOW, "%s: %s_counts and %s_displs are more than memory can hold", NAME,
                         s->buffer_is, s->buffer_is);
    if (bytes && !s->buffer)
        return gyre_fail(GYRE_ERR_INVALID, "%s: %s is NULL, but its blocks have %zu elements", NAME,
                         s->buffer_is, extent);
    s->on_device = is_on_device(s, type);
    return GYRE_OK;
}

static gyre_status_t check(coll_neighbors_t *x, int streamed)
{
    gyre_status_t st = coll_check_comm(NAME, x->comm);
    if (st == GYRE_OK)
        st = coll_check_type(NAME, x->type);
    if (st == GYRE_OK && !streamed)
        st = coll_p2p_check(NAME, x->comm);
    for (int k = 0; k < 2 && st == GYRE_OK; k++)
        st = check_side(&x->side[k], x->type, x->comm);
    return st == GYRE_OK ? st : coll_refuse(st);
}

/* A message for each block, as a part of `whole`. */
static gyre_status_t start_side(const side_t *s, gyre_type_t type, uint32_t tag, gyre_request_t *whole)
{
    size_t packed = 0;
    for (int i = 0; i < s->n; i++) {
        gyre_request_t *part;
        gyre_status_t st = coll_p2p_begin(s->kind, block_of(s, i, packed, type), s->on_device, s->counts[i],
                                          type, s->ranks[i], whole->comm, &part);
        if (st != GYRE_OK)
            return st;
        part->whole = whole;
        part->call.user_tag = tag;
        whole->parts++;
        packed += s->counts[i];
    }
    return GYRE_OK;
}

gyre_status_t coll_neighbors_start(const coll_neighbors_t *x, uint32_t tag, _Atomic uint32_t *under_way,
                                   gyre_request_t **request)
{
    gyre_request_t *whole = coll_request_new(x->comm);
    if (!whole)
        return coll_refuse(GYRE_ERR_NO_MEMORY);
    whole->kind = COLL_REQ_MESSAGES;
    whole->parts = 1; /* itself: it ends after it was started */
    whole->call = (comm_call_t){.op = COLL_SENDRECV,
                                .type = (uint8_t)x->type,
                                .flags = COMM_CALL_P2P,
                                .root = x->comm->rank,
                                .comm = (uint32_t)x->comm->id,
                                .user_tag = tag};
    coll_request_of(whole, under_way);
    gyre_group_start();
    gyre_status_t st = start_side(&x->side[0], x->type, tag, whole);
    if (st == GYRE_OK)
        st = start_side(&x->side[1], x->type, tag, whole);
    coll_group_collect(whole, st == GYRE_OK ? request : NULL); /* of a refused call nobody has the request */
    gyre_status_t end = gyre_group_end();
    return st == GYRE_OK ? end : st;
}

static gyre_status_t exchange(coll_neighbors_t x, gyre_request_t **request)
{
    gyre_status_t st = check(&x, 0);
    return st == GYRE_OK ? coll_neighbors_start(&x, x.comm->options.tag, NULL, request) : st;
}

gyre_status_t gyre_neighbor_exchange(const void *send, const size_t *send_counts, const size_t *send_displs,
                                     int nto, const int *to, void *recv, const size_t *recv_counts,
                                     const size_t *recv_displs, int nfrom, const int *from, gyre_type_t type,
                                     gyre_comm_t *comm)
{
    return exchange(of(of_sends(send, send_counts, send_displs, nto, to),
                       of_recvs(recv, recv_counts, recv_displs, nfrom, from), type, comm),
                    NULL);
}

gyre_status_t gyre_ineighbor_exchange(const void *send, const size_t *send_counts, const size_t *send_displs,
                                      int nto, const int *to, void *recv, const size_t *recv_counts,
                                      const size_t *recv_displs, int nfrom, const int *from, gyre_type_t type,
                                      gyre_comm_t *comm, gyre_request_t **request)
{
    gyre_status_t st = coll_check_request("ineighbor_exchange", request);
    return st != GYRE_OK ? st
                         : exchange(of(of_sends(send, send_counts, send_displs, nto, to),
                                       of_recvs(recv, recv_counts, recv_displs, nfrom, from), type, comm),
                                    request);
}

/* --- persistent --- */

/* The lists are in `counts`, `displs` and `ranks` from here on. */
static void keep_side(side_t *s, size_t *counts, size_t *displs, int *ranks)
{
    const size_t n = (size_t)s->n;
    if (n == 0)
        return;
    s->counts = memcpy(counts, s->counts, n * sizeof *counts);
    s->ranks = memcpy(ranks, s->ranks, n * sizeof *ranks);
    if (s->displs)
        s->displs = memcpy(displs, s->displs, n * sizeof *displs);
}

/* A copy with lists of its own, in one piece: counts, displs and ranks, each of the sends
 * and then of the receives. NULL: no memory. */
static coll_neighbors_t *keep(const coll_neighbors_t *x)
{
    const size_t nto = (size_t)x->side[0].n, n = nto + (size_t)x->side[1].n;
    coll_neighbors_t *kept = malloc(sizeof *kept + n * (2 * sizeof(size_t) + sizeof(int)));
    if (!kept)
        return NULL;
    size_t *counts = (size_t *)(kept + 1), *displs = counts + n;
    int *ranks = (int *)(displs + n);
    *kept = *x;
    keep_side(&kept->side[0], counts, displs, ranks);
    keep_side(&kept->side[1], counts + nto, displs + nto, ranks + nto);
    return kept;
}

gyre_status_t gyre_plan_neighbor_exchange(const void *send, const size_t *send_counts,
                                          const size_t *send_displs, int nto, const int *to, void *recv,
                                          const size_t *recv_counts, const size_t *recv_displs, int nfrom,
                                          const int *from, gyre_type_t type, gyre_comm_t *comm,
                                          gyre_plan_t **plan)
{
    coll_neighbors_t x = of(of_sends(send, send_counts, send_displs, nto, to),
                            of_recvs(recv, recv_counts, recv_displs, nfrom, from), type, comm);
    gyre_status_t st = coll_check_plan("plan_neighbor_exchange", plan);
    if (st == GYRE_OK)
        st = check(&x, 0);
    if (st != GYRE_OK)
        return st;
    coll_neighbors_t *kept = keep(&x);
    return kept ? coll_persistent_make_neighbors(NAME, type, comm, kept, plan)
                : coll_refuse(gyre_fail(GYRE_ERR_NO_MEMORY, "%s: no memory for a plan", NAME));
}

/* --- on a stream --- */

/* An entry of a side, and where its block begins if blocks are back to back. */
typedef struct {
    int i;
    size_t packed;
} entry_t;

/* The first entry from `e` on that is this rank itself; i is s->n: there is none. */
static entry_t own_entry(const side_t *s, entry_t e, int rank)
{
    for (; e.i < s->n && s->ranks[e.i] != rank; e.i++)
        e.packed += s->counts[e.i];
    return e;
}

/* Blocks to this rank itself are copied to those from it. copies 0: only checks that they match. */
static gyre_status_t copy_own(const coll_neighbors_t *x, int copies, gyre_cuda_stream_t stream)
{
    const side_t *out = &x->side[0], *in = &x->side[1];
    const int rank = x->comm->rank;
    entry_t to = {0}, from = {0};
    gyre_status_t st = GYRE_OK;
    while (st == GYRE_OK) {
        to = own_entry(out, to, rank);
        from = own_entry(in, from, rank);
        if (to.i == out->n && from.i == in->n)
            break;
        if (to.i == out->n || from.i == in->n)
            return gyre_fail(
                GYRE_ERR_INVALID,
                "%s_stream: rank %d has %s itself: on a stream blocks are copied within the call", NAME, rank,
                to.i == out->n ? "more blocks from itself than to" : "more blocks to itself than from");
        const size_t count = out->counts[to.i];
        if (count != in->counts[from.i])
            return gyre_fail(
                GYRE_ERR_INVALID,
                "%s_stream: rank %d sends itself %zu elements (to[%d]) and receives %zu (from[%d])", NAME,
                rank, count, to.i, in->counts[from.i], from.i);
        if (copies && count)
            st = coll_cuda_copy(NAME, block_of(out, to.i, to.packed, x->type),
                                block_of(in, from.i, from.packed, x->type), count, x->type, x->comm, stream);
        to = (entry_t){to.i + 1, to.packed + count};
        from = (entry_t){from.i + 1, from.packed + count};
    }
    return st;
}

/* A message for each block but the own ones. They are collected by the open group. */
static gyre_status_t enqueue_side(const side_t *s, const coll_neighbors_t *x, gyre_cuda_stream_t stream)
{
    gyre_status_t st = GYRE_OK;
    size_t packed = 0;
    for (int i = 0; i < s->n && st == GYRE_OK; i++) {
        if (s->ranks[i] != x->comm->rank)
            st = coll_cuda_message(NAME, s->kind, block_of(s, i, packed, x->type), s->counts[i], x->type,
                                   s->ranks[i], x->comm, stream);
        packed += s->counts[i];
    }
    return st;
}

gyre_status_t gyre_neighbor_exchange_stream(const void *send, const size_t *send_counts,
                                            const size_t *send_displs, int nto, const int *to, void *recv,
                                            const size_t *recv_counts, const size_t *recv_displs, int nfrom,
                                            const int *from, gyre_type_t type, gyre_comm_t *comm,
                                            gyre_cuda_stream_t stream)
{
    coll_neighbors_t x = of(of_sends(send, send_counts, send_displs, nto, to),
                            of_recvs(recv, recv_counts, recv_displs, nfrom, from), type, comm);
    gyre_status_t st = check(&x, 1);
    if (st != GYRE_OK)
        return st;
    st = copy_own(&x, 0, stream);
    if (st != GYRE_OK)
        return coll_refuse(st);
    gyre_group_start();
    for (int k = 0; k < 2 && st == GYRE_OK; k++)
        st = enqueue_side(&x.side[k], &x, stream);
    if (st == GYRE_OK) /* last: a copy is on its way at once */
        st = copy_own(&x, 1, stream);
    gyre_status_t end = gyre_group_end();
    return st == GYRE_OK ? end : st;
}
