/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/gpu/through/hosts.c: hierarchical collectives on device memory, for long calls of ranks of
 * which several share each host. Within a host: the kernels of ranks that map each other's memory
 * (collectives/gpu/shots/peers.c). Between hosts: wire.c, among the ranks that have the same place on their
 * hosts. The network carries the least possible: in an all_reduce each rank sends and receives the share of
 * its vector that it has in its host, and all of a host's networks work at once.
 *
 *     all_reduce   reduce_scatter within | all_reduce of a shard between | all_gather within
 *     broadcast    scatter within the root's host | broadcast of a shard between | all_gather within
 *     all_gather   all_gather between | of every host's blocks an all_gather within
 *
 * All of them are calls of two communicators of their own, one after the other on the program's stream, in
 * the program's buffers: nothing is allocated, and nothing else is copied.
 *
 * A failure of either is the whole's, and only the whole's failure ends the waits on streams
 * (coll_cuda_stop). Otherwise the later steps would give other ranks invalid results before any error is
 * reported.
 *
 * The bits are those of the flat way if hosts hold equally many ranks in a row, a power of two. A host's
 * ranks are then a node of the canonical tree, and the hosts' sums are joined as ranks are
 * (collectives/schedules/canonical.h). An average is divided once, at the end, by the number of all ranks
 * (coll_cuda_t.divisor). */
#include "collectives/gpu/state.h"

#ifdef GYRE_CUDA

#include <stdio.h>

#include "base/checked.h"
#include "base/error.h"
#include "collectives/schedules/canonical.h"
#include "comm/lend.h"

/* Ranks of each host; 0: the canonical tree is not made of them, or one each. */
static int ranks_per_host(const gyre_comm_t *comm)
{
    const int each = comm->n / comm->hosts;
    if (comm->hosts < 2 || each < 2 || each * comm->hosts != comm->n || !coll_is_power(each))
        return 0;
    for (int r = 0; r < comm->n; r++)
        if (comm->host_of[r] != r / each)
            return 0;
    return each;
}

/* Both communicators, ready for the device. Each step is agreed on: all ranks take the next, or none. */
static gyre_status_t make(coll_cuda_t *c, int each, gyre_comm_t *made[2])
{
    const int rank = c->comm->rank;
    gyre_status_t st = GYRE_OK;
    for (int i = 0; i < 2 && st == GYRE_OK; i++) {
        st = coll_cuda_agree(c, gyre_comm_split(c->comm, i == 0 ? rank / each : rank % each, rank, &made[i]));
        if (st == GYRE_OK)
            st = coll_cuda_agree(c, coll_cuda_prepare(made[i], c->device));
    }
    return st;
}

gyre_status_t coll_cuda_hosts_start(coll_cuda_t *c)
{
    const int each = ranks_per_host(c->comm);
    gyre_comm_t *made[2] = {NULL, NULL};
    int32_t works = 0, all = 0;
    if (!each) {
        snprintf(c->collectives, sizeof c->collectives,
                 "through pinned host memory: %d ranks on %d hosts are not 2, 4, 8, ... in a row on each",
                 c->comm->n, c->comm->hosts);
        return GYRE_OK;
    }
    gyre_status_t st = make(c, each, made);
    if (st == GYRE_OK) {
        works = made[0]->cuda->path == COLL_CUDA_PEERS && made[1]->cuda->wire;
        st = gyre_all_reduce(&works, &all, 1, GYRE_INT32, GYRE_OP(GYRE_MIN), c->comm);
    }
    if (st == GYRE_OK && all) {
        snprintf(c->collectives, sizeof c->collectives,
                 "all_reduce, broadcast and all_gather within hosts (%.120s) and between them, %.300s",
                 made[0]->cuda->why, made[1]->cuda->collectives);
        made[1]->cuda->divisor = c->comm->n;
        atomic_store(&made[0]->cuda->whole, c);
        atomic_store(&made[1]->cuda->whole, c);
        atomic_store(&c->within, made[0]);
        atomic_store(&c->between, made[1]);
        return GYRE_OK;
    }
    if (st == GYRE_OK)
        snprintf(c->collectives, sizeof c->collectives, "through pinned host memory: %.200s; %.250s",
                 made[0]->cuda->why, made[1]->cuda->collectives);
    for (int i = 0; i < 2; i++)
        if (made[i])
            coll_comm_free(made[i]);
    return st;
}

/* A vector in a shard for each rank of a host, of whole vectors of 16 bytes but for the end. Elements. */
static void cut(size_t count, size_t esize, int each, size_t *counts, size_t *displs)
{
    const size_t unit = COLL_CUDA_ALIGN / esize,
                 most = base_round_up((count + (size_t)each - 1) / (size_t)each, unit);
    for (int l = 0; l < each; l++) {
        displs[l] = base_min_size(count, most * (size_t)l);
        counts[l] = base_min_size(count - displs[l], most);
    }
}

static gyre_status_t all_reduce(const coll_call_t *call, gyre_comm_t *within, gyre_comm_t *between,
                                cudaStream_t stream)
{
    const coll_shape_t *s = &call->shape;
    const size_t esize = gyre_type_size(s->type);
    const int l = within->rank;
    size_t counts[COLL_CUDA_RANKS], displs[COLL_CUDA_RANKS];
    gyre_redop_t first = {s->redop == GYRE_AVG ? GYRE_SUM : s->redop, s->scaled, call->scale},
                 second = {s->redop, 0, 0};
    cut(s->count, esize, within->n, counts, displs);
    char *shard = (char *)call->recv + displs[l] * esize;
    gyre_status_t st = gyre_reduce_scatterv_stream(call->send, shard, counts, s->type, first, within, stream);
    if (st == GYRE_OK)
        st = gyre_all_reduce_stream(shard, shard, counts[l], s->type, second, between, stream);
    if (st == GYRE_OK)
        st = gyre_all_gatherv_stream(shard, call->recv, counts, NULL, s->type, within, stream);
    return st;
}

static gyre_status_t broadcast(const coll_call_t *call, gyre_comm_t *within, gyre_comm_t *between,
                               cudaStream_t stream)
{
    const coll_shape_t *s = &call->shape;
    const size_t esize = gyre_type_size(s->type);
    const int l = within->rank, host = s->root / within->n, place = s->root % within->n;
    const int here = between->rank == host;
    size_t counts[COLL_CUDA_RANKS], displs[COLL_CUDA_RANKS];
    gyre_status_t st = GYRE_OK;
    cut(s->count, esize, within->n, counts, displs);
    char *shard = (char *)call->recv + displs[l] * esize;
    if (here)
        st = gyre_scatterv_stream(l == place ? call->send : NULL, counts, NULL, shard, counts[l], s->type,
                                  place, within, stream);
    if (st == GYRE_OK)
        st = gyre_broadcast_stream(here ? shard : NULL, shard, counts[l], s->type, host, between, stream);
    if (st == GYRE_OK)
        st = gyre_all_gatherv_stream(shard, call->recv, counts, NULL, s->type, within, stream);
    return st;
}

static gyre_status_t all_gather(const coll_call_t *call, gyre_comm_t *within, gyre_comm_t *between,
                                cudaStream_t stream)
{
    const coll_shape_t *s = &call->shape;
    const size_t esize = gyre_type_size(s->type);
    const int each = within->n, l = within->rank, n = each * between->n;
    size_t counts[COLL_CUDA_RANKS], displs[COLL_CUDA_RANKS], packed = 0;
    size_t at[COLL_CUDA_RANKS * COLL_CUDA_RANKS];
    for (int r = 0; r < n; r++) {
        at[r] = s->displs ? s->displs[r] : packed;
        packed += coll_cuda_count(s, r);
        if (r % each == l) {
            counts[r / each] = coll_cuda_count(s, r);
            displs[r / each] = at[r];
        }
    }
    gyre_status_t st =
        gyre_all_gatherv_stream(call->send, call->recv, counts, displs, s->type, between, stream);
    for (int h = 0; h < between->n && st == GYRE_OK; h++) {
        for (int i = 0; i < each; i++)
            counts[i] = coll_cuda_count(s, h * each + i);
        st = gyre_all_gatherv_stream((char *)call->recv + at[h * each + l] * esize, call->recv, counts,
                                     at + h * each, s->type, within, stream);
    }
    return st;
}

/* Calls read the options of both on the thread that makes them. The shadow's proxy works on earlier calls: it
 * reads the deadline at each, and has the order of the call. */
void coll_cuda_set(gyre_comm_t *comm)
{
    const coll_cuda_t *c = comm->cuda;
    gyre_comm_t *parts[2] = {c ? atomic_load(&c->within) : NULL, c ? atomic_load(&c->between) : NULL};
    if (c && c->shadow) {
        c->shadow->timeout_s = comm->timeout_s;
        c->shadow->timeout_ns = comm->timeout_ns;
    }
    for (int i = 0; i < 2; i++)
        if (parts[i]) {
            coll_options_inherit(parts[i], comm);
            coll_cuda_set(parts[i]);
        }
}

gyre_status_t coll_cuda_enqueue_hosts(const coll_cuda_t *c, const coll_call_t *call, cudaStream_t stream)
{
    gyre_comm_t *within = atomic_load(&c->within), *between = atomic_load(&c->between);
    switch (call->shape.op) {
    case COLL_ALL_REDUCE:
        return all_reduce(call, within, between, stream);
    case COLL_BROADCAST:
        return broadcast(call, within, between, stream);
    default:
        return all_gather(call, within, between, stream);
    }
}

/* Where all that crosses the network goes by wire.c, the last shard, which may be shorter, too: only there
 * averages are divided by the number of all ranks. Of blocks it is the longest that counts. */
int coll_cuda_hosts_take(const coll_cuda_t *c, const coll_shape_t *s)
{
    const gyre_comm_t *within = atomic_load(&c->within), *between = atomic_load(&c->between);
    size_t most = 0;
    if (coll_shape_is_exact(s)) /* two parts would be rounded twice */
        return 0;
    if (!within || (s->op != COLL_ALL_REDUCE && s->op != COLL_BROADCAST && s->op != COLL_ALL_GATHER))
        return 0;
    if (s->op != COLL_ALL_GATHER) {
        size_t counts[COLL_CUDA_RANKS], displs[COLL_CUDA_RANKS];
        coll_shape_t last = *s;
        cut(s->count, gyre_type_size(s->type), within->n, counts, displs);
        last.count = counts[within->n - 1];
        return coll_cuda_wire_takes(between->cuda, &last);
    }
    for (int r = 0; r < c->comm->n; r++)
        most = base_max_size(most, coll_cuda_count(s, r) * gyre_type_size(s->type));
    return most > COMM_LEND_LEAST;
}

gyre_status_t coll_cuda_hosts_trouble(const coll_cuda_t *c)
{
    gyre_comm_t *parts[2] = {atomic_load(&c->within), atomic_load(&c->between)};
    for (int i = 0; i < 2; i++) {
        const gyre_status_t st = parts[i] ? (gyre_status_t)atomic_load(&parts[i]->error) : GYRE_OK;
        if (st != GYRE_OK)
            return gyre_fail_quiet(st, "%s", parts[i]->error_text);
    }
    return GYRE_OK;
}

void coll_cuda_hosts_abort(const coll_cuda_t *c, const char *text)
{
    gyre_comm_t *parts[2] = {atomic_load(&c->within), atomic_load(&c->between)};
    for (int i = 0; i < 2; i++)
        if (parts[i])
            (void)gyre_comm_abort(parts[i], text);
}

void coll_cuda_hosts_release(const coll_cuda_t *c)
{
    gyre_comm_t *parts[2] = {atomic_load(&c->within), atomic_load(&c->between)};
    for (int i = 0; i < 2; i++)
        if (parts[i])
            coll_cuda_release(parts[i]->cuda);
}

void coll_cuda_hosts_fail(const coll_cuda_t *c)
{
    const coll_cuda_t *whole = atomic_load(&c->whole);
    if (!whole)
        return;
    coll_drive(whole->comm);
    const gyre_status_t st = coll_cuda_hosts_trouble(whole);
    if (st != GYRE_OK && atomic_load(&whole->comm->error) == GYRE_OK)
        coll_comm_fail(whole->comm, NULL, st, NULL);
    coll_stop_driving(whole->comm);
}

int coll_cuda_hosts_hold(const coll_cuda_t *c)
{
    const coll_cuda_t *whole = atomic_load(&c->whole);
    const gyre_comm_t *within = whole ? atomic_load(&whole->within) : NULL;
    return within && coll_cuda_read(&within->cuda->board->mismatch) != 0;
}

void coll_cuda_hosts_end(const coll_cuda_t *c)
{
    if (atomic_load(&c->within)) {
        coll_cuda_end(atomic_load(&c->within));
        coll_cuda_end(atomic_load(&c->between));
    }
}

void coll_cuda_hosts_stop(coll_cuda_t *c)
{
    if (atomic_load(&c->within)) { /* `between` first: its proxy may be failing both */
        coll_comm_free(atomic_load(&c->between));
        coll_comm_free(atomic_load(&c->within));
    }
}

#endif
