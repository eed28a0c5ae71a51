/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/api/calls.c: the public collective calls: arguments turned into a shape.
 *
 * Every check happens before anything is sent, so a refused call leaves the communicator as it was.
 *
 * Longer than 600 lines: each collective has four names of some lines (blocking, with a request, on a stream,
 * persistent), and a reader looks for them in one place. */
#include "collectives/api/start.h"

#include <stdlib.h>

#include "base/checked.h"
#include "base/defined.h"
#include "base/error.h"
#include "collectives/api/persistent.h"

/* How a call is to be made. */
typedef struct {
    gyre_request_t **request; /* NULL: blocking */
    gyre_cuda_stream_t stream;
    int streamed;       /* on `stream` */
    gyre_plan_t **plan; /* not NULL: not now, but whenever it is started */
} how_t;
static const how_t blocking;
#define LATER(where) ((how_t){.request = (where)})

static const void *at(const void *buffer, size_t elements, gyre_type_t type)
{
    return (const char *)buffer + elements * gyre_type_size(type);
}

#define CHECK(call)                     \
    do {                                \
        gyre_status_t check_ = (call);  \
        if (check_ != GYRE_OK)          \
            return coll_refuse(check_); \
    } while (0)

/* The checks that do not depend on the operation; sets up what all calls share. */
static gyre_status_t begin(coll_call_t *c, const char *name, coll_op_t op, const void *send, void *recv,
                           size_t count, gyre_type_t type, gyre_comm_t *comm, how_t how)
{
    CHECK(coll_check_comm(name, comm));
    CHECK(coll_check_type(name, type));
    /* Field by field: GCC clears a struct of this size by a string instruction, whose start takes longer. */
    c->name = name;
    c->comm = comm;
    c->shape =
        (coll_shape_t){.op = op, .type = type, .order = comm->options.order, .root = -1, .count = count};
    c->send = send;
    c->recv = recv;
    c->send_count = c->recv_count = 0;
    c->shown = count;
    c->v = 0;
    c->scale = 1.0;
    c->tag = comm->options.tag;
    c->request = how.request;
    c->finished = NULL;
    c->user = NULL;
    c->stream = how.stream;
    c->streamed = how.streamed;
    c->plan = how.plan;
    c->under_way = NULL;
    return GYRE_OK;
}

static gyre_status_t with_redop(coll_call_t *c, gyre_redop_t op)
{
    CHECK(coll_check_redop(c->name, op, c->shape.type));
    c->shape.redop = op.kind;
    if (c->shape.order != GYRE_ORDER_CANONICAL && c->shape.order != GYRE_ORDER_DEFAULT)
        CHECK(coll_call_order(c, c->shape.order));
    c->shape.scaled = op.scaled != 0;
    c->scale = op.scale;
    return GYRE_OK;
}

/* A rank gives each of its leaves: send has that many vectors, one after the other. Not in place. */
static gyre_status_t with_leaves(coll_call_t *c)
{
    const gyre_comm_t *comm = c->comm;
    if (!comm->leaves)
        return GYRE_OK;
    const size_t mine = (size_t)(comm->leaves[comm->rank + 1] - comm->leaves[comm->rank]);
    if (c->shape.scaled)
        return coll_refuse(gyre_fail(GYRE_ERR_UNSUPPORTED,
                                     "%s: the communicator has leaves (gyre_comm_set), and sums of leaves "
                                     "cannot be scaled: scale the leaves before",
                                     c->name));
    c->shape.in_place = 0;
    return base_mul(c->send_count, mine, &c->send_count) ? GYRE_OK : coll_refuse_overflow(c->name);
}

/* n * count, for calls with equal blocks. */
static gyre_status_t blocks(const coll_call_t *c, size_t count, size_t *out)
{
    if (!base_mul(count, (size_t)c->comm->n, out))
        return coll_refuse_overflow(c->name);
    return GYRE_OK;
}

static gyre_status_t all_reduce(const void *send, void *recv, size_t count, gyre_type_t type, gyre_redop_t op,
                                gyre_comm_t *comm, coll_inside_t inside, coll_finished_fn finished,
                                void *user, how_t how)
{
    coll_call_t c;
    const char *name = coll_call_name(COLL_ALL_REDUCE, 0, inside);
    CHECK(begin(&c, name, COLL_ALL_REDUCE, send, recv, count, type, comm, how));
    c.shape.inside = (uint8_t)inside;
    CHECK(with_redop(&c, op));
    c.send_count = c.recv_count = count;
    c.shape.in_place = send == recv;
    c.finished = finished;
    c.user = user;
    CHECK(with_leaves(&c));
    return coll_call_start(&c);
}

static gyre_status_t reduce_scatter(const void *send, void *recv, size_t count, gyre_type_t type,
                                    gyre_redop_t op, gyre_comm_t *comm, how_t how)
{
    coll_call_t c;
    CHECK(begin(&c, "reduce_scatter", COLL_REDUCE_SCATTER, send, recv, count, type, comm, how));
    CHECK(with_redop(&c, op));
    CHECK(blocks(&c, count, &c.send_count));
    c.recv_count = count;
    c.shape.uniform = 1;
    c.shape.in_place = send && recv == at(send, (size_t)comm->rank * count, type);
    CHECK(with_leaves(&c));
    return coll_call_start(&c);
}

static gyre_status_t reduce_scatterv(const void *send, void *recv, const size_t *counts, gyre_type_t type,
                                     gyre_redop_t op, gyre_comm_t *comm, coll_finished_fn finished,
                                     void *user, how_t how)
{
    coll_call_t c;
    CHECK(begin(&c, "reduce_scatterv", COLL_REDUCE_SCATTER, send, recv, 0, type, comm, how));
    c.v = 1;
    CHECK(with_redop(&c, op));
    if (!counts)
        return coll_refuse(gyre_fail(GYRE_ERR_INVALID, "reduce_scatterv: counts is NULL"));
    if (!coll_counts_extent(counts, NULL, comm->n, &c.send_count))
        return coll_refuse_overflow(c.name);
    c.recv_count = c.shown = counts[comm->rank];
    c.shape.counts = counts;
    c.shape.in_place = send && recv == at(send, coll_packed_displ(counts, NULL, comm->rank), type);
    c.finished = finished;
    c.user = user;
    CHECK(with_leaves(&c));
    return coll_call_start(&c);
}

static gyre_status_t all_gather(const void *send, void *recv, size_t count, gyre_type_t type,
                                gyre_comm_t *comm, coll_inside_t inside, how_t how)
{
    coll_call_t c;
    const char *name = coll_call_name(COLL_ALL_GATHER, 0, inside);
    CHECK(begin(&c, name, COLL_ALL_GATHER, send, recv, count, type, comm, how));
    c.shape.inside = (uint8_t)inside;
    CHECK(blocks(&c, count, &c.recv_count));
    c.send_count = count;
    c.shape.uniform = 1;
    c.shape.in_place = recv && send == at(recv, (size_t)comm->rank * count, type);
    return coll_call_start(&c);
}

static gyre_status_t all_gatherv(const void *send, void *recv, const size_t *counts, const size_t *displs,
                                 gyre_type_t type, gyre_comm_t *comm, how_t how)
{
    coll_call_t c;
    CHECK(begin(&c, "all_gatherv", COLL_ALL_GATHER, send, recv, 0, type, comm, how));
    c.v = 1;
    if (!counts)
        return coll_refuse(gyre_fail(GYRE_ERR_INVALID, "all_gatherv: counts is NULL"));
    if (!coll_counts_extent(counts, displs, comm->n, &c.recv_count))
        return coll_refuse_overflow(c.name);
    c.send_count = c.shown = counts[comm->rank];
    c.shape.counts = counts;
    c.shape.displs = displs;
    c.shape.in_place = recv && send == at(recv, coll_packed_displ(counts, displs, comm->rank), type);
    return coll_call_start(&c);
}

static gyre_status_t broadcast(const void *send, void *recv, size_t count, gyre_type_t type, int root,
                               gyre_comm_t *comm, how_t how)
{
    coll_call_t c;
    CHECK(begin(&c, "broadcast", COLL_BROADCAST, send, recv, count, type, comm, how));
    CHECK(coll_check_root(c.name, root, comm));
    c.shape.root = root;
    c.send_count = comm->rank == root ? count : 0;
    c.recv_count = count;
    c.shape.in_place = comm->rank == root && send == recv;
    return coll_call_start(&c);
}

static gyre_status_t reduce(const void *send, void *recv, size_t count, gyre_type_t type, gyre_redop_t op,
                            int root, gyre_comm_t *comm, how_t how)
{
    coll_call_t c;
    CHECK(begin(&c, "reduce", COLL_REDUCE, send, recv, count, type, comm, how));
    CHECK(with_redop(&c, op));
    CHECK(coll_check_root(c.name, root, comm));
    c.shape.root = root;
    c.send_count = count;
    c.recv_count = comm->rank == root ? count : 0;
    c.shape.in_place = comm->rank == root && send == recv;
    CHECK(with_leaves(&c));
    return coll_call_start(&c);
}

static gyre_status_t gather(const void *send, void *recv, size_t count, gyre_type_t type, int root,
                            gyre_comm_t *comm, how_t how)
{
    coll_call_t c;
    CHECK(begin(&c, "gather", COLL_GATHER, send, recv, count, type, comm, how));
    CHECK(coll_check_root(c.name, root, comm));
    c.shape.root = root;
    c.shape.uniform = 1;
    c.send_count = count;
    if (comm->rank == root) {
        CHECK(blocks(&c, count, &c.recv_count));
        c.shape.in_place = recv && send == at(recv, (size_t)root * count, type);
    }
    return coll_call_start(&c);
}

static gyre_status_t scatter(const void *send, void *recv, size_t count, gyre_type_t type, int root,
                             gyre_comm_t *comm, how_t how)
{
    coll_call_t c;
    CHECK(begin(&c, "scatter", COLL_SCATTER, send, recv, count, type, comm, how));
    CHECK(coll_check_root(c.name, root, comm));
    c.shape.root = root;
    c.shape.uniform = 1;
    c.recv_count = count;
    if (comm->rank == root) {
        CHECK(blocks(&c, count, &c.send_count));
        c.shape.in_place = send && recv == at(send, (size_t)root * count, type);
    }
    return coll_call_start(&c);
}

/* scan and exscan: rank r gets the reduction of ranks 0..r, or of 0..r - 1; rank 0 of an exscan nothing. */
static gyre_status_t scan(coll_op_t kind, const void *send, void *recv, size_t count, gyre_type_t type,
                          gyre_redop_t op, gyre_comm_t *comm, how_t how)
{
    coll_call_t c;
    const char *name = coll_op_name(kind);
    CHECK(begin(&c, name, kind, send, recv, count, type, comm, how));
    CHECK(with_redop(&c, op));
    if (op.kind == GYRE_AVG)
        return coll_refuse(gyre_fail(GYRE_ERR_INVALID,
                                     "%s: there is no avg of a prefix, which has another number of inputs on "
                                     "each rank: use sum, and divide",
                                     name));
    if (comm->leaves)
        return coll_refuse(gyre_fail(GYRE_ERR_UNSUPPORTED,
                                     "%s: the communicator has leaves (gyre_comm_set), of which there are no "
                                     "prefixes: use another communicator",
                                     name));
    c.send_count = count;
    c.recv_count = kind == COLL_EXSCAN && comm->rank == 0 ? 0 : count;
    c.shape.in_place = send == recv;
    return coll_call_start(&c);
}

/* gatherv and scatterv: away from the root a rank knows its own count only. `mine` is this rank's block,
 * `whole` the buffer of all blocks at the root. */
static gyre_status_t rooted_v(coll_call_t *c, const void *whole, const void *mine, size_t my_count,
                              const size_t *counts, const size_t *displs, int root, size_t *whole_count)
{
    gyre_comm_t *comm = c->comm;
    CHECK(coll_check_root(c->name, root, comm));
    c->shape.root = root;
    c->shown = my_count;
    if (!comm->own_count && !(comm->own_count = calloc((size_t)comm->n, sizeof *comm->own_count)))
        return coll_refuse(gyre_fail(GYRE_ERR_NO_MEMORY, "%s: no memory for %d counts", c->name, comm->n));
    comm->own_count[comm->rank] = my_count;
    c->shape.counts = comm->own_count;
    if (comm->rank != root)
        return GYRE_OK;
    if (!counts)
        return coll_refuse(gyre_fail(GYRE_ERR_INVALID, "%s: counts is NULL at the root", c->name));
    if (counts[root] != my_count)
        return coll_refuse(gyre_fail(GYRE_ERR_INVALID,
                                     "%s: the root's own count is %zu, but counts[%d] is %zu", c->name,
                                     my_count, root, counts[root]));
    if (!coll_counts_extent(counts, displs, comm->n, whole_count))
        return coll_refuse_overflow(c->name);
    c->shape.counts = counts;
    c->shape.displs = displs;
    c->shape.in_place = whole && mine == at(whole, coll_packed_displ(counts, displs, root), c->shape.type);
    return GYRE_OK;
}

static gyre_status_t gatherv(const void *send, size_t send_count, void *recv, const size_t *counts,
                             const size_t *displs, gyre_type_t type, int root, gyre_comm_t *comm, how_t how)
{
    coll_call_t c;
    CHECK(begin(&c, "gatherv", COLL_GATHER, send, recv, 0, type, comm, how));
    c.v = 1;
    c.send_count = send_count;
    CHECK(rooted_v(&c, recv, send, send_count, counts, displs, root, &c.recv_count));
    return coll_call_start(&c);
}

static gyre_status_t scatterv(const void *send, const size_t *counts, const size_t *displs, void *recv,
                              size_t recv_count, gyre_type_t type, int root, gyre_comm_t *comm, how_t how)
{
    coll_call_t c;
    CHECK(begin(&c, "scatterv", COLL_SCATTER, send, recv, 0, type, comm, how));
    c.v = 1;
    c.recv_count = recv_count;
    CHECK(rooted_v(&c, send, recv, recv_count, counts, displs, root, &c.send_count));
    return coll_call_start(&c);
}

static gyre_status_t all_to_all(const void *send, void *recv, size_t count, gyre_type_t type,
                                gyre_comm_t *comm, how_t how)
{
    coll_call_t c;
    CHECK(begin(&c, "all_to_all", COLL_ALL_TO_ALL, send, recv, count, type, comm, how));
    CHECK(blocks(&c, count, &c.send_count));
    c.recv_count = c.send_count;
    c.shape.uniform = 1;
    c.shape.in_place = send == recv;
    return coll_call_start(&c);
}

static gyre_status_t all_to_allv(const void *send, const size_t *send_counts, const size_t *send_displs,
                                 void *recv, const size_t *recv_counts, const size_t *recv_displs,
                                 gyre_type_t type, gyre_comm_t *comm, how_t how)
{
    coll_call_t c;
    CHECK(begin(&c, "all_to_allv", COLL_ALL_TO_ALL, send, recv, 0, type, comm, how));
    c.v = 1;
    if (!send_counts || !recv_counts)
        return coll_refuse(gyre_fail(GYRE_ERR_INVALID, "all_to_allv: %s is NULL",
                                     send_counts ? "recv_counts" : "send_counts"));
    if (send_counts[comm->rank] != recv_counts[comm->rank])
        return coll_refuse(gyre_fail(GYRE_ERR_INVALID,
                                     "all_to_allv: rank %d sends %zu elements to itself but receives %zu",
                                     comm->rank, send_counts[comm->rank], recv_counts[comm->rank]));
    if (!coll_counts_extent(send_counts, send_displs, comm->n, &c.send_count) ||
        !coll_counts_extent(recv_counts, recv_displs, comm->n, &c.recv_count))
        return coll_refuse_overflow(c.name);
    c.shown = c.send_count;
    c.shape.counts = send_counts;
    c.shape.displs = send_displs;
    c.shape.rcounts = recv_counts;
    c.shape.rdispls = recv_displs;
    return coll_call_start(&c);
}

static gyre_status_t barrier(gyre_comm_t *comm, coll_inside_t inside, how_t how)
{
    coll_call_t c;
    const char *name = coll_call_name(COLL_BARRIER, 0, inside);
    CHECK(begin(&c, name, COLL_BARRIER, NULL, NULL, 0, GYRE_INT8, comm, how));
    c.shape.inside = (uint8_t)inside;
    return coll_call_start(&c);
}

gyre_status_t coll_inside_barrier(gyre_comm_t *comm, coll_inside_t inside)
{
    return barrier(comm, inside, blocking);
}

gyre_status_t coll_inside_all_reduce(void *data, size_t count, gyre_type_t type, gyre_redop_t op,
                                     gyre_comm_t *comm, coll_inside_t inside, gyre_request_t **request)
{
    return all_reduce(data, data, count, type, op, comm, inside, NULL, NULL,
                      request ? LATER(request) : blocking);
}

gyre_status_t coll_inside_all_gather(const void *send, void *recv, size_t bytes, gyre_comm_t *comm,
                                     coll_inside_t inside)
{
    return all_gather(send, recv, bytes, GYRE_UINT8, comm, inside, blocking);
}

gyre_status_t coll_start_all_reduce(void *data, size_t count, gyre_type_t type, gyre_redop_t op,
                                    gyre_comm_t *comm, coll_finished_fn finished, void *user,
                                    gyre_request_t **request)
{
    return all_reduce(data, data, count, type, op, comm, COLL_INSIDE_NONE, finished, user, LATER(request));
}

gyre_status_t coll_start_reduce_scatterv(const void *send, void *recv, const size_t *counts, gyre_type_t type,
                                         gyre_redop_t op, gyre_comm_t *comm, coll_finished_fn finished,
                                         void *user, gyre_request_t **request)
{
    return reduce_scatterv(send, recv, counts, type, op, comm, finished, user, LATER(request));
}

/* --- the public names --- */

#define ASYNC(name, call)                                     \
    gyre_status_t check_ = coll_check_request(name, request); \
    return check_ == GYRE_OK ? (call) : check_

gyre_status_t gyre_all_reduce(const void *send, void *recv, size_t count, gyre_type_t type, gyre_redop_t op,
                              gyre_comm_t *comm)
{
    return all_reduce(send, recv, count, type, op, comm, COLL_INSIDE_NONE, NULL, NULL, blocking);
}

gyre_status_t gyre_iall_reduce(const void *send, void *recv, size_t count, gyre_type_t type, gyre_redop_t op,
                               gyre_comm_t *comm, gyre_request_t **request)
{
    ASYNC("iall_reduce",
          all_reduce(send, recv, count, type, op, comm, COLL_INSIDE_NONE, NULL, NULL, LATER(request)));
}

gyre_status_t gyre_reduce_scatter(const void *send, void *recv, size_t count, gyre_type_t type,
                                  gyre_redop_t op, gyre_comm_t *comm)
{
    return reduce_scatter(send, recv, count, type, op, comm, blocking);
}

gyre_status_t gyre_ireduce_scatter(const void *send, void *recv, size_t count, gyre_type_t type,
                                   gyre_redop_t op, gyre_comm_t *comm, gyre_request_t **request)
{
    ASYNC("ireduce_scatter", reduce_scatter(send, recv, count, type, op, comm, LATER(request)));
}

gyre_status_t gyre_reduce_scatterv(const void *send, void *recv, const size_t *counts, gyre_type_t type,
                                   gyre_redop_t op, gyre_comm_t *comm)
{
    return reduce_scatterv(send, recv, counts, type, op, comm, NULL, NULL, blocking);
}

gyre_status_t gyre_ireduce_scatterv(const void *send, void *recv, const size_t *counts, gyre_type_t type,
                                    gyre_redop_t op, gyre_comm_t *comm, gyre_request_t **request)
{
    ASYNC("ireduce_scatterv",
          reduce_scatterv(send, recv, counts, type, op, comm, NULL, NULL, LATER(request)));
}

gyre_status_t gyre_all_gather(const void *send, void *recv, size_t count, gyre_type_t type, gyre_comm_t *comm)
{
    return all_gather(send, recv, count, type, comm, COLL_INSIDE_NONE, blocking);
}

gyre_status_t gyre_iall_gather(const void *send, void *recv, size_t count, gyre_type_t type,
                               gyre_comm_t *comm, gyre_request_t **request)
{
    ASYNC("iall_gather", all_gather(send, recv, count, type, comm, COLL_INSIDE_NONE, LATER(request)));
}

gyre_status_t gyre_all_gatherv(const void *send, void *recv, const size_t *counts, const size_t *displs,
                               gyre_type_t type, gyre_comm_t *comm)
{
    return all_gatherv(send, recv, counts, displs, type, comm, blocking);
}

gyre_status_t gyre_iall_gatherv(const void *send, void *recv, const size_t *counts, const size_t *displs,
                                gyre_type_t type, gyre_comm_t *comm, gyre_request_t **request)
{
    ASYNC("iall_gatherv", all_gatherv(send, recv, counts, displs, type, comm, LATER(request)));
}

gyre_status_t gyre_broadcast(const void *send, void *recv, size_t count, gyre_type_t type, int root,
                             gyre_comm_t *comm)
{
    return broadcast(send, recv, count, type, root, comm, blocking);
}

gyre_status_t gyre_ibroadcast(const void *send, void *recv, size_t count, gyre_type_t type, int root,
                              gyre_comm_t *comm, gyre_request_t **request)
{
    ASYNC("ibroadcast", broadcast(send, recv, count, type, root, comm, LATER(request)));
}

gyre_status_t gyre_reduce(const void *send, void *recv, size_t count, gyre_type_t type, gyre_redop_t op,
                          int root, gyre_comm_t *comm)
{
    return reduce(send, recv, count, type, op, root, comm, blocking);
}

gyre_status_t gyre_ireduce(const void *send, void *recv, size_t count, gyre_type_t type, gyre_redop_t op,
                           int root, gyre_comm_t *comm, gyre_request_t **request)
{
    ASYNC("ireduce", reduce(send, recv, count, type, op, root, comm, LATER(request)));
}

gyre_status_t gyre_gather(const void *send, void *recv, size_t count, gyre_type_t type, int root,
                          gyre_comm_t *comm)
{
    return gather(send, recv, count, type, root, comm, blocking);
}

gyre_status_t gyre_igather(const void *send, void *recv, size_t count, gyre_type_t type, int root,
                           gyre_comm_t *comm, gyre_request_t **request)
{
    ASYNC("igather", gather(send, recv, count, type, root, comm, LATER(request)));
}

gyre_status_t gyre_gatherv(const void *send, size_t send_count, void *recv, const size_t *counts,
                           const size_t *displs, gyre_type_t type, int root, gyre_comm_t *comm)
{
    return gatherv(send, send_count, recv, counts, displs, type, root, comm, blocking);
}

gyre_status_t gyre_igatherv(const void *send, size_t send_count, void *recv, const size_t *counts,
                            const size_t *displs, gyre_type_t type, int root, gyre_comm_t *comm,
                            gyre_request_t **request)
{
    ASYNC("igatherv", gatherv(send, send_count, recv, counts, displs, type, root, comm, LATER(request)));
}

gyre_status_t gyre_scatter(const void *send, void *recv, size_t count, gyre_type_t type, int root,
                           gyre_comm_t *comm)
{
    return scatter(send, recv, count, type, root, comm, blocking);
}

gyre_status_t gyre_iscatter(const void *send, void *recv, size_t count, gyre_type_t type, int root,
                            gyre_comm_t *comm, gyre_request_t **request)
{
    ASYNC("iscatter", scatter(send, recv, count, type, root, comm, LATER(request)));
}

gyre_status_t gyre_scatterv(const void *send, const size_t *counts, const size_t *displs, void *recv,
                            size_t recv_count, gyre_type_t type, int root, gyre_comm_t *comm)
{
    return scatterv(send, counts, displs, recv, recv_count, type, root, comm, blocking);
}

gyre_status_t gyre_iscatterv(const void *send, const size_t *counts, const size_t *displs, void *recv,
                             size_t recv_count, gyre_type_t type, int root, gyre_comm_t *comm,
                             gyre_request_t **request)
{
    ASYNC("iscatterv", scatterv(send, counts, displs, recv, recv_count, type, root, comm, LATER(request)));
}

gyre_status_t gyre_scan(const void *send, void *recv, size_t count, gyre_type_t type, gyre_redop_t op,
                        gyre_comm_t *comm)
{
    return scan(COLL_SCAN, send, recv, count, type, op, comm, blocking);
}

gyre_status_t gyre_iscan(const void *send, void *recv, size_t count, gyre_type_t type, gyre_redop_t op,
                         gyre_comm_t *comm, gyre_request_t **request)
{
    ASYNC("iscan", scan(COLL_SCAN, send, recv, count, type, op, comm, LATER(request)));
}

gyre_status_t gyre_exscan(const void *send, void *recv, size_t count, gyre_type_t type, gyre_redop_t op,
                          gyre_comm_t *comm)
{
    return scan(COLL_EXSCAN, send, recv, count, type, op, comm, blocking);
}

gyre_status_t gyre_iexscan(const void *send, void *recv, size_t count, gyre_type_t type, gyre_redop_t op,
                           gyre_comm_t *comm, gyre_request_t **request)
{
    ASYNC("iexscan", scan(COLL_EXSCAN, send, recv, count, type, op, comm, LATER(request)));
}

gyre_status_t gyre_all_to_all(const void *send, void *recv, size_t count, gyre_type_t type, gyre_comm_t *comm)
{
    return all_to_all(send, recv, count, type, comm, blocking);
}

gyre_status_t gyre_iall_to_all(const void *send, void *recv, size_t count, gyre_type_t type,
                               gyre_comm_t *comm, gyre_request_t **request)
{
    ASYNC("iall_to_all", all_to_all(send, recv, count, type, comm, LATER(request)));
}

gyre_status_t gyre_all_to_allv(const void *send, const size_t *send_counts, const size_t *send_displs,
                               void *recv, const size_t *recv_counts, const size_t *recv_displs,
                               gyre_type_t type, gyre_comm_t *comm)
{
    return all_to_allv(send, send_counts, send_displs, recv, recv_counts, recv_displs, type, comm, blocking);
}

gyre_status_t gyre_iall_to_allv(const void *send, const size_t *send_counts, const size_t *send_displs,
                                void *recv, const size_t *recv_counts, const size_t *recv_displs,
                                gyre_type_t type, gyre_comm_t *comm, gyre_request_t **request)
{
    ASYNC("iall_to_allv", all_to_allv(send, send_counts, send_displs, recv, recv_counts, recv_displs, type,
                                      comm, LATER(request)));
}

gyre_status_t gyre_barrier(gyre_comm_t *comm)
{
    return barrier(comm, COLL_INSIDE_NONE, blocking);
}

gyre_status_t gyre_ibarrier(gyre_comm_t *comm, gyre_request_t **request)
{
    ASYNC("ibarrier", barrier(comm, COLL_INSIDE_NONE, LATER(request)));
}

/* --- on streams --- */

static how_t on(gyre_cuda_stream_t stream)
{
    return (how_t){.stream = stream, .streamed = 1};
}

gyre_status_t gyre_all_reduce_stream(const void *send, void *recv, size_t count, gyre_type_t type,
                                     gyre_redop_t op, gyre_comm_t *comm, gyre_cuda_stream_t stream)
{
    return all_reduce(send, recv, count, type, op, comm, COLL_INSIDE_NONE, NULL, NULL, on(stream));
}

gyre_status_t gyre_reduce_scatter_stream(const void *send, void *recv, size_t count, gyre_type_t type,
                                         gyre_redop_t op, gyre_comm_t *comm, gyre_cuda_stream_t stream)
{
    return reduce_scatter(send, recv, count, type, op, comm, on(stream));
}

gyre_status_t gyre_reduce_scatterv_stream(const void *send, void *recv, const size_t *counts,
                                          gyre_type_t type, gyre_redop_t op, gyre_comm_t *comm,
                                          gyre_cuda_stream_t stream)
{
    return reduce_scatterv(send, recv, counts, type, op, comm, NULL, NULL, on(stream));
}

gyre_status_t gyre_all_gather_stream(const void *send, void *recv, size_t count, gyre_type_t type,
                                     gyre_comm_t *comm, gyre_cuda_stream_t stream)
{
    return all_gather(send, recv, count, type, comm, COLL_INSIDE_NONE, on(stream));
}

gyre_status_t gyre_all_gatherv_stream(const void *send, void *recv, const size_t *counts,
                                      const size_t *displs, gyre_type_t type, gyre_comm_t *comm,
                                      gyre_cuda_stream_t stream)
{
    return all_gatherv(send, recv, counts, displs, type, comm, on(stream));
}

gyre_status_t gyre_broadcast_stream(const void *send, void *recv, size_t count, gyre_type_t type, int root,
                                    gyre_comm_t *comm, gyre_cuda_stream_t stream)
{
    return broadcast(send, recv, count, type, root, comm, on(stream));
}

gyre_status_t gyre_reduce_stream(const void *send, void *recv, size_t count, gyre_type_t type,
                                 gyre_redop_t op, int root, gyre_comm_t *comm, gyre_cuda_stream_t stream)
{
    return reduce(send, recv, count, type, op, root, comm, on(stream));
}

gyre_status_t gyre_gather_stream(const void *send, void *recv, size_t count, gyre_type_t type, int root,
                                 gyre_comm_t *comm, gyre_cuda_stream_t stream)
{
    return gather(send, recv, count, type, root, comm, on(stream));
}

gyre_status_t gyre_gatherv_stream(const void *send, size_t send_count, void *recv, const size_t *counts,
                                  const size_t *displs, gyre_type_t type, int root, gyre_comm_t *comm,
                                  gyre_cuda_stream_t stream)
{
    return gatherv(send, send_count, recv, counts, displs, type, root, comm, on(stream));
}

gyre_status_t gyre_scatter_stream(const void *send, void *recv, size_t count, gyre_type_t type, int root,
                                  gyre_comm_t *comm, gyre_cuda_stream_t stream)
{
    return scatter(send, recv, count, type, root, comm, on(stream));
}

gyre_status_t gyre_scatterv_stream(const void *send, const size_t *counts, const size_t *displs, void *recv,
                                   size_t recv_count, gyre_type_t type, int root, gyre_comm_t *comm,
                                   gyre_cuda_stream_t stream)
{
    return scatterv(send, counts, displs, recv, recv_count, type, root, comm, on(stream));
}

gyre_status_t gyre_all_to_all_stream(const void *send, void *recv, size_t count, gyre_type_t type,
                                     gyre_comm_t *comm, gyre_cuda_stream_t stream)
{
    return all_to_all(send, recv, count, type, comm, on(stream));
}

gyre_status_t gyre_all_to_allv_stream(const void *send, const size_t *send_counts, const size_t *send_displs,
                                      void *recv, const size_t *recv_counts, const size_t *recv_displs,
                                      gyre_type_t type, gyre_comm_t *comm, gyre_cuda_stream_t stream)
{
    return all_to_allv(send, send_counts, send_displs, recv, recv_counts, recv_displs, type, comm,
                       on(stream));
}

gyre_status_t gyre_barrier_stream(gyre_comm_t *comm, gyre_cuda_stream_t stream)
{
    return barrier(comm, COLL_INSIDE_NONE, on(stream));
}

/* --- persistent: gyre/plan.h --- */

static how_t held(gyre_plan_t **plan)
{
    return (how_t){.plan = plan};
}

#define HELD(name, call)                                \
    gyre_status_t check_ = coll_check_plan(name, plan); \
    return check_ == GYRE_OK ? (call) : check_

gyre_status_t gyre_plan_all_reduce(const void *send, void *recv, size_t count, gyre_type_t type,
                                   gyre_redop_t op, gyre_comm_t *comm, gyre_plan_t **plan)
{
    HELD("plan_all_reduce",
         all_reduce(send, recv, count, type, op, comm, COLL_INSIDE_NONE, NULL, NULL, held(plan)));
}

gyre_status_t gyre_plan_reduce_scatter(const void *send, void *recv, size_t count, gyre_type_t type,
                                       gyre_redop_t op, gyre_comm_t *comm, gyre_plan_t **plan)
{
    HELD("plan_reduce_scatter", reduce_scatter(send, recv, count, type, op, comm, held(plan)));
}

gyre_status_t gyre_plan_reduce_scatterv(const void *send, void *recv, const size_t *counts, gyre_type_t type,
                                        gyre_redop_t op, gyre_comm_t *comm, gyre_plan_t **plan)
{
    HELD("plan_reduce_scatterv", reduce_scatterv(send, recv, counts, type, op, comm, NULL, NULL, held(plan)));
}

gyre_status_t gyre_plan_all_gather(const void *send, void *recv, size_t count, gyre_type_t type,
                                   gyre_comm_t *comm, gyre_plan_t **plan)
{
    HELD("plan_all_gather", all_gather(send, recv, count, type, comm, COLL_INSIDE_NONE, held(plan)));
}

gyre_status_t gyre_plan_all_gatherv(const void *send, void *recv, const size_t *counts, const size_t *displs,
                                    gyre_type_t type, gyre_comm_t *comm, gyre_plan_t **plan)
{
    HELD("plan_all_gatherv", all_gatherv(send, recv, counts, displs, type, comm, held(plan)));
}

gyre_status_t gyre_plan_broadcast(const void *send, void *recv, size_t count, gyre_type_t type, int root,
                                  gyre_comm_t *comm, gyre_plan_t **plan)
{
    HELD("plan_broadcast", broadcast(send, recv, count, type, root, comm, held(plan)));
}

gyre_status_t gyre_plan_reduce(const void *send, void *recv, size_t count, gyre_type_t type, gyre_redop_t op,
                               int root, gyre_comm_t *comm, gyre_plan_t **plan)
{
    HELD("plan_reduce", reduce(send, recv, count, type, op, root, comm, held(plan)));
}

gyre_status_t gyre_plan_gather(const void *send, void *recv, size_t count, gyre_type_t type, int root,
                               gyre_comm_t *comm, gyre_plan_t **plan)
{
    HELD("plan_gather", gather(send, recv, count, type, root, comm, held(plan)));
}

gyre_status_t gyre_plan_gatherv(const void *send, size_t send_count, void *recv, const size_t *counts,
                                const size_t *displs, gyre_type_t type, int root, gyre_comm_t *comm,
                                gyre_plan_t **plan)
{
    HELD("plan_gatherv", gatherv(send, send_count, recv, counts, displs, type, root, comm, held(plan)));
}

gyre_status_t gyre_plan_scatter(const void *send, void *recv, size_t count, gyre_type_t type, int root,
                                gyre_comm_t *comm, gyre_plan_t **plan)
{
    HELD("plan_scatter", scatter(send, recv, count, type, root, comm, held(plan)));
}

gyre_status_t gyre_plan_scatterv(const void *send, const size_t *counts, const size_t *displs, void *recv,
                                 size_t recv_count, gyre_type_t type, int root, gyre_comm_t *comm,
                                 gyre_plan_t **plan)
{
    HELD("plan_scatterv", scatterv(send, counts, displs, recv, recv_count, type, root, comm, held(plan)));
}

gyre_status_t gyre_plan_scan(const void *send, void *recv, size_t count, gyre_type_t type, gyre_redop_t op,
                             gyre_comm_t *comm, gyre_plan_t **plan)
{
    HELD("plan_scan", scan(COLL_SCAN, send, recv, count, type, op, comm, held(plan)));
}

gyre_status_t gyre_plan_exscan(const void *send, void *recv, size_t count, gyre_type_t type, gyre_redop_t op,
                               gyre_comm_t *comm, gyre_plan_t **plan)
{
    HELD("plan_exscan", scan(COLL_EXSCAN, send, recv, count, type, op, comm, held(plan)));
}

gyre_status_t gyre_plan_all_to_all(const void *send, void *recv, size_t count, gyre_type_t type,
                                   gyre_comm_t *comm, gyre_plan_t **plan)
{
    HELD("plan_all_to_all", all_to_all(send, recv, count, type, comm, held(plan)));
}

gyre_status_t gyre_plan_all_to_allv(const void *send, const size_t *send_counts, const size_t *send_displs,
                                    void *recv, const size_t *recv_counts, const size_t *recv_displs,
                                    gyre_type_t type, gyre_comm_t *comm, gyre_plan_t **plan)
{
    HELD("plan_all_to_allv",
         all_to_allv(send, send_counts, send_displs, recv, recv_counts, recv_displs, type, comm, held(plan)));
}

gyre_status_t gyre_plan_barrier(gyre_comm_t *comm, gyre_plan_t **plan)
{
    HELD("plan_barrier", barrier(comm, COLL_INSIDE_NONE, held(plan)));
}
