/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/gpu/through/staged.c: collectives whose ranks cannot work in each other's device memory
 * (several hosts, no peer access). They go through pinned memory of the host, in chunks: the transport of a
 * chunk overlaps with the copies of its neighbours (proxy.h). Copies, on one stream, do not overlap with each
 * other.
 *
 * Results have the host's bits: an element's sum does not depend on its chunk (docs/contract.md). */
#include "collectives/gpu/through/proxy.h"

#ifdef GYRE_CUDA

#include "base/checked.h"
#include "base/defined.h"
#include "base/error.h"
#include "base/settings/settings.h"

enum { LAG = 2 /* chunks by which copies in follow copies out */ };

/* ---- the proxy's side ---------------------------------------------------------------------------------- */

/* What of a block of `count` elements is in chunk k. */
static size_t in_chunk(const coll_cuda_operation_t *o, size_t count, uint32_t k)
{
    const size_t from = (size_t)k * o->chunk;
    return count > from ? base_min_size(count - from, o->chunk) : 0;
}

static gyre_status_t run_blocks(const coll_cuda_proxy_t *p, const coll_cuda_operation_t *o,
                                const coll_cuda_job_t *job)
{
    gyre_comm_t *comm = p->c->shadow;
    const coll_shape_t *s = &o->shape;
    const gyre_redop_t redop = {s->redop, s->scaled, o->scale};
    const int n = comm->n, me = comm->rank;
    for (int r = 0; r < n; r++) {
        o->piece[r] = in_chunk(o, o->counts[r], job->chunk);
        o->rpiece[r] = in_chunk(o, o->rcounts[r], job->chunk);
    }
    switch (s->op) {
    case COLL_REDUCE_SCATTER:
        return gyre_reduce_scatterv(job->in, job->out, o->piece, s->type, redop, comm);
    case COLL_ALL_GATHER:
        return gyre_all_gatherv(job->in, job->out, o->piece, NULL, s->type, comm);
    case COLL_GATHER:
        if (s->uniform)
            return gyre_gather(job->in, job->out, o->piece[me], s->type, s->root, comm);
        return gyre_gatherv(job->in, o->piece[me], job->out, o->piece, NULL, s->type, s->root, comm);
    case COLL_SCATTER:
        if (s->uniform)
            return gyre_scatter(job->in, job->out, o->piece[me], s->type, s->root, comm);
        return gyre_scatterv(job->in, o->piece, NULL, job->out, o->piece[me], s->type, s->root, comm);
    default:
        if (s->uniform)
            return gyre_all_to_all(job->in, job->out, o->piece[0], s->type, comm);
        return gyre_all_to_allv(job->in, o->piece, NULL, job->out, o->rpiece, NULL, s->type, comm);
    }
}

static gyre_status_t run_chunk(const coll_cuda_proxy_t *p, const coll_cuda_operation_t *o,
                               const coll_cuda_job_t *job)
{
    gyre_comm_t *comm = p->c->shadow;
    const coll_shape_t *s = &o->shape;
    const gyre_redop_t redop = {s->redop, s->scaled, o->scale};
    const size_t count = in_chunk(o, s->count, job->chunk);
    comm->options.order = s->order;
    switch (s->op) {
    case COLL_ALL_REDUCE:
        return gyre_all_reduce(job->in, job->out, count, s->type, redop, comm);
    case COLL_REDUCE:
        return gyre_reduce(job->in, job->out, count, s->type, redop, s->root, comm);
    case COLL_SCAN:
        return gyre_scan(job->in, job->out, count, s->type, redop, comm);
    case COLL_EXSCAN:
        return gyre_exscan(job->in, job->out, count, s->type, redop, comm);
    case COLL_BROADCAST:
        return gyre_broadcast(job->out, job->out, count, s->type, s->root, comm);
    case COLL_BARRIER:
        return gyre_barrier(comm);
    default:
        return run_blocks(p, o, job);
    }
}

/* Uneven operations, whose ranks do not know each other's chunks: all take part in as many as the one with
 * most. */
gyre_status_t coll_cuda_run_chunk(coll_cuda_proxy_t *p, const coll_cuda_job_t *job)
{
    coll_cuda_operation_t *o = job->operation;
    uint64_t most = o->chunks;
    gyre_status_t st = GYRE_OK;
    if (job->chunk == 0 && coll_shape_is_uneven(&o->shape)) {
        st = gyre_all_reduce(&most, &most, 1, GYRE_UINT64, GYRE_OP(GYRE_MAX), p->c->shadow);
        o->most_chunks = most;
    }
    if (st == GYRE_OK)
        st = run_chunk(p, o, job);
    if (job->chunk + 1 < o->chunks)
        return st;
    for (uint32_t k = o->chunks; st == GYRE_OK && k < o->most_chunks; k++) {
        const coll_cuda_job_t more = {.operation = o, .chunk = k, .in = job->in, .out = job->out};
        st = run_chunk(p, o, &more);
    }
    return st;
}

/* ---- the stream's side --------------------------------------------------------------------------------- */

/* Which of a rank's buffers the operation uses, and how they are laid out: in blocks of all ranks, or as
 * one. */
typedef struct {
    int in, out;               /* used */
    int in_blocks, out_blocks; /* by counts and rcounts; else one piece of `own` elements at 0 */
    size_t own;
} layout_t;

static layout_t layout_of(const coll_shape_t *s, const size_t *counts, int me)
{
    const int root = s->root == me;
    switch (s->op) {
    case COLL_ALL_REDUCE:
    case COLL_SCAN:
        return (layout_t){1, 1, 0, 0, s->count};
    case COLL_EXSCAN:
        return (layout_t){1, me > 0, 0, 0, s->count};
    case COLL_REDUCE:
        return (layout_t){1, root, 0, 0, s->count};
    case COLL_BROADCAST:
        return (layout_t){root, !root, 0, 0, s->count};
    case COLL_REDUCE_SCATTER:
        return (layout_t){1, 1, 1, 0, counts[me]};
    case COLL_ALL_GATHER:
        return (layout_t){1, 1, 0, 1, counts[me]};
    case COLL_GATHER:
        return (layout_t){1, root, 0, 1, counts[me]};
    case COLL_SCATTER:
        return (layout_t){root, 1, 1, 0, counts[me]};
    case COLL_ALL_TO_ALL:
        return (layout_t){1, 1, 1, 1, 0};
    default:
        return (layout_t){0, 0, 0, 0, 0};
    }
}

/* Copies chunk k between the program's buffer and a slot, where blocks lie back to back. */
static gyre_status_t copy_chunk(const coll_cuda_operation_t *o, int n, uint32_t k, int out, const layout_t *l,
                                size_t esize, char *buffer, char *slot, cudaStream_t stream)
{
    const size_t from = (size_t)k * o->chunk * esize;
    gyre_status_t st = GYRE_OK;
    if (!(out ? l->out_blocks : l->in_blocks)) {
        const size_t bytes = in_chunk(o, l->own, k) * esize;
        return out ? coll_cuda_proxy_copy(buffer + from, slot, bytes, stream)
                   : coll_cuda_proxy_copy(slot, buffer + from, bytes, stream);
    }
    const size_t *counts = out ? o->rcounts : o->counts, *displs = out ? o->rdispls : o->displs;
    for (int r = 0; r < n && st == GYRE_OK; r++) {
        const size_t bytes = in_chunk(o, counts[r], k) * esize;
        char *at = buffer + displs[r] * esize + from;
        st = out ? coll_cuda_proxy_copy(at, slot, bytes, stream)
                 : coll_cuda_proxy_copy(slot, at, bytes, stream);
        slot += bytes;
    }
    return st;
}

static void spell_out(coll_cuda_operation_t *o, const coll_shape_t *s, int n)
{
    size_t packed = 0, rpacked = 0;
    for (int r = 0; r < n; r++) {
        o->counts[r] = s->uniform ? s->count : s->counts ? s->counts[r] : 0;
        o->displs[r] = s->displs ? s->displs[r] : packed;
        o->rcounts[r] = s->rcounts ? s->rcounts[r] : o->counts[r];
        o->rdispls[r] = s->rdispls ? s->rdispls[r] : s->op == COLL_ALL_TO_ALL ? rpacked : o->displs[r];
        packed += o->counts[r];
        rpacked += o->rcounts[r];
    }
}

gyre_status_t coll_cuda_make_operation(coll_cuda_proxy_t *p, const coll_call_t *call,
                                       coll_cuda_operation_t **out)
{
    const coll_shape_t *s = &call->shape;
    gyre_status_t st =
        coll_cuda_proxy_room(p, "operations", p->operations_made, &p->operations_done, p->operations_most);
    if (st != GYRE_OK)
        return st;
    coll_cuda_operation_t *o = &p->operations[p->operations_made++ % p->operations_most];
    base_redop_hold(s->redop); /* until its last job is done */
    o->shape = *s;
    o->scale = call->scale;
    o->most_chunks = 0;
    spell_out(o, s, p->c->comm->n);
    o->call = (comm_call_t){.op = (uint8_t)s->op,
                            .type = (uint8_t)s->type,
                            .redop = (uint8_t)s->redop,
                            .flags = (uint8_t)(COMM_CALL_DEVICE | (s->scaled ? COMM_CALL_SCALED : 0)),
                            .root = s->root,
                            .seq = p->c->comm->seq,
                            .count = call->shown};
    *out = o;
    return GYRE_OK;
}

/* Elements of a vector, or of each block, that a slot has room for. */
static size_t room_for(const coll_cuda_t *c, const coll_shape_t *s, size_t esize)
{
    return c->proxy->slot / esize / (coll_op_is_vector(s->op) ? 1 : (size_t)c->comm->n);
}

gyre_status_t coll_cuda_check_staged(const coll_cuda_t *c, const char *name, const coll_shape_t *s)
{
    const size_t esize = gyre_type_size(s->type);
    if (s->op == COLL_BARRIER || room_for(c, s, esize) > 0 || coll_cuda_wire_takes(c, s) ||
        coll_cuda_hosts_take(c, s))
        return GYRE_OK;
    return gyre_fail(
        GYRE_ERR_INVALID,
        "%s: GYRE_CUDA_STAGING=%s is too little for elements of %zu bytes on %d ranks: raise it on "
        "all ranks",
        name, base_setting_string(SET_CUDA_STAGING), esize, c->comm->n);
}

/* Into chunks that fit in slots. */
static void cut(const coll_cuda_proxy_t *p, coll_cuda_operation_t *o, size_t esize)
{
    const coll_shape_t *s = &o->shape;
    const int n = p->c->comm->n, vector = coll_op_is_vector(s->op);
    size_t longest = vector ? s->count : 0;
    for (int r = 0; !vector && r < n; r++)
        longest = base_max_size(longest, base_max_size(o->counts[r], o->rcounts[r]));
    o->chunk = room_for(p->c, s, esize);
    o->chunks = (uint32_t)base_max_size((longest + o->chunk - 1) / o->chunk, 1);
}

/* Own blocks that the host's operation does not move: the root's of a broadcast that is not in place. */
static gyre_status_t copy_own(const coll_call_t *call, int me, size_t esize, cudaStream_t stream)
{
    const coll_shape_t *s = &call->shape;
    if (s->op != COLL_BROADCAST || s->root != me)
        return GYRE_OK;
    return coll_cuda_proxy_copy(call->recv, call->send, s->count * esize, stream);
}

gyre_status_t coll_cuda_enqueue_staged(coll_cuda_t *c, const coll_call_t *call, cudaStream_t stream)
{
    coll_cuda_proxy_t *p = c->proxy;
    const coll_shape_t *s = &call->shape;
    const int n = c->comm->n, me = c->comm->rank;
    const size_t esize = s->op == COLL_BARRIER ? 1 : gyre_type_size(s->type);
    coll_cuda_operation_t *o;
    uint32_t number[COLL_CUDA_SLOTS];
    coll_cuda_job_t jobs[COLL_CUDA_SLOTS];
    gyre_status_t st = coll_cuda_make_operation(p, call, &o);
    if (st == GYRE_OK)
        st = copy_own(call, me, esize, stream);
    if (st != GYRE_OK)
        return st;
    cut(p, o, esize);
    const layout_t l = layout_of(s, o->counts, me);
    for (uint32_t k = 0; k < o->chunks + LAG && st == GYRE_OK; k++) {
        if (k < o->chunks) {
            const size_t place = p->collectives++ % COLL_CUDA_SLOTS;
            coll_cuda_job_t *job = &jobs[k % COLL_CUDA_SLOTS];
            *job = (coll_cuda_job_t){
                .kind = COLL_CUDA_CHUNK, .operation = o, .chunk = k, .last = k + 1 == o->chunks};
            job->in = p->memory + place * p->slot;
            job->out = p->memory + (COLL_CUDA_SLOTS + place) * p->slot;
            char *to = s->op == COLL_BROADCAST ? job->out : job->in;
            if (l.in)
                st = copy_chunk(o, n, k, 0, &l, esize, (char *)(uintptr_t)call->send, to, stream);
            if (st == GYRE_OK)
                st = coll_cuda_proxy_post(p, job, stream, &number[k % COLL_CUDA_SLOTS]);
        }
        if (k < LAG || st != GYRE_OK)
            continue;
        const uint32_t back = k - LAG;
        if (back >= o->chunks)
            continue;
        st = coll_cuda_proxy_await(p, &p->words->done, number[back % COLL_CUDA_SLOTS], stream);
        if (st == GYRE_OK && l.out)
            st = copy_chunk(o, n, back, 1, &l, esize, call->recv, jobs[back % COLL_CUDA_SLOTS].out, stream);
    }
    return st;
}

#endif
