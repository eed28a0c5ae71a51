/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-perf/cases.c: the collectives: what a size means for each, how it is called, what its bandwidth
 * counts.
 *
 * A size is that of the larger buffer, as in nccl-tests: all_gather receives it, reduce_scatter sends it, and
 * each rank's block is size / n rounded down to elements. busbw scales the rate so that it compares with what
 * a link must carry, whatever n is (nccl-tests, PERFORMANCE.md). */
#include "tools/gyre-perf/perf.h"

#include <string.h>

#include "base/device/device.h"
#include "collectives/kernels/kernels.h"

const perf_coll_t perf_colls[] = {
    {"all_reduce", "reduction, result on every rank", COLL_ALL_REDUCE, 1, 0, 0, 1, 0},
    {"reduce_scatter", "reduction, one block per rank", COLL_REDUCE_SCATTER, 1, 0, 0, 1, 0},
    {"all_gather", "the blocks of all ranks on every rank", COLL_ALL_GATHER, 0, 0, 0, 1, 0},
    {"broadcast", "the root's buffer on every rank", COLL_BROADCAST, 0, 1, 0, 1, 0},
    {"reduce", "reduction, result on the root", COLL_REDUCE, 1, 1, 0, 1, 0},
    {"gather", "the blocks of all ranks on the root", COLL_GATHER, 0, 1, 0, 1, 0},
    {"scatter", "one block of the root's buffer to each rank", COLL_SCATTER, 0, 1, 0, 1, 0},
    {"all_to_all", "one block from each rank to each rank", COLL_ALL_TO_ALL, 0, 0, 0, 1, 0},
    {"scan", "reduction of ranks 0 to r on rank r", COLL_SCAN, 1, 0, 0, 1, 0},
    {"exscan", "reduction of the ranks below r on rank r", COLL_EXSCAN, 1, 0, 0, 1, 0},
    {"reduce_scatterv", "reduce_scatter, blocks of unequal size", COLL_REDUCE_SCATTER, 1, 0, 1, 1, 0},
    {"all_gatherv", "all_gather, blocks of unequal size", COLL_ALL_GATHER, 0, 0, 1, 1, 0},
    {"gatherv", "gather, blocks of unequal size", COLL_GATHER, 0, 1, 1, 1, 0},
    {"scatterv", "scatter, blocks of unequal size", COLL_SCATTER, 0, 1, 1, 1, 0},
    {"all_to_allv", "all_to_all, blocks of unequal size", COLL_ALL_TO_ALL, 0, 0, 1, 0, 0},
    {"barrier", "no data; one row", COLL_BARRIER, 0, 0, 0, 0, 0},
    {"sendrecv", "to the next rank, from the one before", COLL_SENDRECV, 0, 0, 0, 0, 0},
    {"neighbor_exchange", "half of the buffer to each neighbour in a ring", COLL_SENDRECV, 0, 0, 0, 0, 1},
};
const int perf_coll_count = sizeof perf_colls / sizeof *perf_colls;

const perf_coll_t *perf_coll_find(const char *name)
{
    const char *slash = strrchr(name, '/');
    name = slash ? slash + 1 : name;
    size_t length = strlen(name);
    static const char suffix[] = "_perf";
    if (length >= sizeof suffix && strcmp(name + length - (sizeof suffix - 1), suffix) == 0)
        length -= sizeof suffix - 1;
    static const char *const alias[][2] = {{"alltoall", "all_to_all"}, {"alltoallv", "all_to_allv"}};
    for (size_t i = 0; i < 2; i++) {
        if (strlen(alias[i][0]) == length && strncmp(name, alias[i][0], length) == 0)
            return perf_coll_find(alias[i][1]);
    }
    for (int i = 0; i < perf_coll_count; i++) {
        if (strlen(perf_colls[i].name) == length && strncmp(name, perf_colls[i].name, length) == 0)
            return &perf_colls[i];
    }
    return NULL;
}

const char *perf_op_name(perf_op_t op)
{
    return op == PERF_MULSUM ? "mulsum" : gyre_redop_name((gyre_redop_kind_t)op);
}

int perf_has(const perf_coll_t *coll, gyre_type_t type, perf_op_t op, int device)
{
    const gyre_redop_kind_t kind = op == PERF_MULSUM ? GYRE_SUM : (gyre_redop_kind_t)op;
    if (coll_op_scans(coll->op) && (device || op == PERF_AVG))
        return 0;
    if (device && (type > GYRE_FLOAT64 || kind > GYRE_AVG))
        return 0;
    return coll_kernel_has(kind, type);
}

/* Block `which` of n: equal shares of param elements, or for v-variants from small (often zero) to nearly
 * twice the share, together no more than n shares. */
static size_t block(const perf_case_t *c, size_t which)
{
    if (!c->coll->uneven)
        return c->param;
    size_t n = (size_t)c->n;
    return c->param / (n + 1) * 2 * (which + 1) + c->param % (n + 1) * 2 * (which + 1) / (n + 1);
}

static size_t pack(const size_t *counts, size_t *displs, int n)
{
    size_t at = 0;
    for (int r = 0; r < n; r++) {
        displs[r] = at;
        at += counts[r];
    }
    return at;
}

void perf_case_set(perf_case_t *c, const perf_coll_t *coll, gyre_type_t type, perf_op_t op, int root,
                   size_t bytes)
{
    c->coll = coll;
    c->type = type;
    c->elem = gyre_type_size(type);
    c->op = op;
    c->root = root;
    c->leaves = 1;
    const size_t count = bytes / c->elem, n = (size_t)c->n, rank = (size_t)c->rank;
    const int at_root = c->rank == root;
    c->param = count / n;
    if (coll->op == COLL_ALL_TO_ALL) {
        /* by distance: what p sends to q differs from what q sends to p, and both know it */
        for (size_t p = 0; p < n; p++) {
            c->counts[p] = block(c, (p + n - rank) % n);
            c->rcounts[p] = block(c, (rank + n - p) % n);
        }
        c->recv_count = pack(c->rcounts, c->rdispls, c->n);
    } else {
        for (size_t r = 0; r < n; r++)
            c->counts[r] = block(c, r);
    }
    const size_t total = pack(c->counts, c->displs, c->n), mine = c->counts[rank];
    c->bytes = total * c->elem;
    switch (coll->op) {
    case COLL_REDUCE_SCATTER:
        c->send_count = total, c->recv_count = mine;
        break;
    case COLL_ALL_GATHER:
        c->send_count = mine, c->recv_count = total;
        break;
    case COLL_GATHER:
        c->send_count = mine, c->recv_count = at_root ? total : 0;
        break;
    case COLL_SCATTER:
        c->send_count = at_root ? total : 0, c->recv_count = mine;
        break;
    case COLL_ALL_TO_ALL:
        c->send_count = total;
        break;
    case COLL_BARRIER:
        c->param = c->send_count = c->recv_count = c->bytes = 0;
        break;
    case COLL_SENDRECV:
        c->counts[0] = count / 2, c->counts[1] = count - count / 2;
        c->displs[0] = 0, c->displs[1] = count / 2;
        c->param = c->send_count = c->recv_count = count;
        c->bytes = count * c->elem;
        break;
    case COLL_ALL_REDUCE:
    case COLL_BROADCAST:
    case COLL_REDUCE:
    case COLL_SCAN:
    case COLL_EXSCAN:
        c->param = c->send_count = count;
        c->recv_count =
            (coll->op == COLL_REDUCE && !at_root) || (coll->op == COLL_EXSCAN && rank == 0) ? 0 : count;
        c->bytes = count * c->elem;
        break;
    }
}

size_t perf_case_send_offset(const perf_case_t *c)
{
    int blocks = c->coll->op == COLL_ALL_GATHER || (c->coll->op == COLL_GATHER && c->rank == c->root);
    return blocks ? c->displs[c->rank] : 0;
}

size_t perf_case_recv_offset(const perf_case_t *c)
{
    int blocks = c->coll->op == COLL_REDUCE_SCATTER || (c->coll->op == COLL_SCATTER && c->rank == c->root);
    return blocks ? c->displs[c->rank] : 0;
}

gyre_redop_t perf_case_redop(const perf_case_t *c)
{
    return c->op == PERF_MULSUM ? GYRE_SCALED_SUM(perf_scale(c->rank)) : GYRE_OP((gyre_redop_kind_t)c->op);
}

perf_neighbors_t perf_neighbors(const perf_case_t *c)
{
    const int next = (c->rank + 1) % c->n, before = (c->rank + c->n - 1) % c->n;
    return (perf_neighbors_t){.to = {before, next}, .from = {next, before}};
}

gyre_status_t perf_case_enqueue(const perf_case_t *c, const void *send, void *recv, gyre_cuda_stream_t stream)
{
    const perf_neighbors_t by = perf_neighbors(c);
    if (c->coll->neighbors)
        return gyre_neighbor_exchange_stream(send, c->counts, NULL, 2, by.to, recv, c->counts, NULL, 2,
                                             by.from, c->type, c->comm, stream);
    gyre_status_t status = gyre_send_stream(send, c->param, c->type, by.to[1], c->comm, stream);
    return status == GYRE_OK ? gyre_recv_stream(recv, c->param, c->type, by.from[1], c->comm, stream)
                             : status;
}

/* On a device: as programs exchange messages there, in stream order; then the stream is waited for. */
static gyre_status_t run_on_stream(const perf_case_t *c, const void *send, void *recv)
{
    gyre_status_t status = gyre_group_start();
    if (status == GYRE_OK)
        status = perf_case_enqueue(c, send, recv, base_stream_native(c->stream));
    if (status == GYRE_OK)
        status = gyre_group_end();
    if (status == GYRE_OK)
        status = base_stream_wait(c->stream);
    return status == GYRE_OK ? gyre_comm_error(c->comm) : status;
}

static gyre_status_t run_messages(const perf_case_t *c, const void *send, void *recv)
{
    const perf_neighbors_t by = perf_neighbors(c);
    if (c->coll->neighbors)
        return gyre_neighbor_exchange(send, c->counts, NULL, 2, by.to, recv, c->counts, NULL, 2, by.from,
                                      c->type, c->comm);
    gyre_status_t status = gyre_group_start();
    if (status == GYRE_OK)
        status = gyre_send(send, c->param, c->type, by.to[1], c->comm);
    if (status == GYRE_OK)
        status = gyre_recv(recv, c->param, c->type, by.from[1], c->comm);
    return status == GYRE_OK ? gyre_group_end() : status;
}

gyre_status_t perf_case_run(const perf_case_t *c, const void *send, void *recv)
{
    const int uneven = c->coll->uneven;
    switch (c->coll->op) {
    case COLL_ALL_REDUCE:
        return gyre_all_reduce(send, recv, c->param, c->type, perf_case_redop(c), c->comm);
    case COLL_REDUCE_SCATTER:
        return uneven ? gyre_reduce_scatterv(send, recv, c->counts, c->type, perf_case_redop(c), c->comm)
                      : gyre_reduce_scatter(send, recv, c->param, c->type, perf_case_redop(c), c->comm);
    case COLL_ALL_GATHER:
        return uneven ? gyre_all_gatherv(send, recv, c->counts, c->displs, c->type, c->comm)
                      : gyre_all_gather(send, recv, c->param, c->type, c->comm);
    case COLL_BROADCAST:
        return gyre_broadcast(send, recv, c->param, c->type, c->root, c->comm);
    case COLL_REDUCE:
        return gyre_reduce(send, recv, c->param, c->type, perf_case_redop(c), c->root, c->comm);
    case COLL_SCAN:
        return gyre_scan(send, recv, c->param, c->type, perf_case_redop(c), c->comm);
    case COLL_EXSCAN:
        return gyre_exscan(send, recv, c->param, c->type, perf_case_redop(c), c->comm);
    case COLL_GATHER:
        return uneven ? gyre_gatherv(send, c->send_count, recv, c->counts, NULL, c->type, c->root, c->comm)
                      : gyre_gather(send, recv, c->param, c->type, c->root, c->comm);
    case COLL_SCATTER:
        return uneven ? gyre_scatterv(send, c->counts, NULL, recv, c->recv_count, c->type, c->root, c->comm)
                      : gyre_scatter(send, recv, c->param, c->type, c->root, c->comm);
    case COLL_ALL_TO_ALL:
        return uneven
                   ? gyre_all_to_allv(send, c->counts, NULL, recv, c->rcounts, c->rdispls, c->type, c->comm)
                   : gyre_all_to_all(send, recv, c->param, c->type, c->comm);
    case COLL_BARRIER:
        return gyre_barrier(c->comm);
    case COLL_SENDRECV:
        return c->stream ? run_on_stream(c, send, recv) : run_messages(c, send, recv);
    }
    return GYRE_ERR_INTERNAL;
}

void perf_case_bandwidth(const perf_case_t *c, double seconds, double *algbw, double *busbw)
{
    const double n = c->n;
    double factor = 1.0;
    switch (c->coll->op) {
    case COLL_ALL_REDUCE:
        factor = 2.0 * (n - 1.0) / n;
        break;
    case COLL_REDUCE_SCATTER:
    case COLL_ALL_GATHER:
    case COLL_GATHER:
    case COLL_SCATTER:
    case COLL_ALL_TO_ALL:
        factor = (n - 1.0) / n;
        break;
    case COLL_BROADCAST:
    case COLL_REDUCE:
    case COLL_SCAN:
    case COLL_EXSCAN:
    case COLL_SENDRECV:
    case COLL_BARRIER:
        break;
    }
    *algbw = seconds > 0.0 ? (double)c->bytes / seconds / 1e9 : 0.0;
    *busbw = *algbw * factor;
}
