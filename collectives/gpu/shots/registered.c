/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/gpu/shots/registered.c: the program's own buffers, read by the peers of the host where they
 * lie: registered together by all ranks, mapped by each (base/device/peer.h), and then the operands of
 * operations without arenas in between.
 *
 *                    arenas, per rank              registered
 *   all_reduce       2 ranks 5 S, n: (5 + 1/n) S   every rank adds up its shard of all inputs into its
 *                                                  output, and takes the others' from theirs: (3 - 1/n) S
 *   reduce_scatter   (3 + 1/n) S                   block r of all inputs into rank r's output: (1 + 1/n) S
 *   all_gather       (2 + 2/n) S                   everyone's block from its input: 2 S
 *   broadcast        2 S, the root 4 S             the root's input: 2 S, the root only if it is out of place
 *   all_to_all       4 S                           everyone's block for this rank: 2 S
 *
 * Bytes read and written for a vector of S bytes, the blocks of all ranks together. What is read by peers
 * is never written by them: an operation that fails in its middle leaves no other rank's buffer changed.
 *
 * *Syncs.* One before, as peers must not read what the streams have not written yet; one after, as none of
 * the buffers may change while a peer still reads; all_reduce has one more between its two halves. No
 * rounds: a block has the same bytes of every part on all ranks from the first sync to the last.
 *
 * *In place.* Between the first two syncs rank r writes only what no other rank reads then: its own shard
 * of an all_reduce's output (of its input that part is read by itself alone), its own block of a
 * reduce_scatter; in an all_gather all but its own block, which alone the others read. In the second half
 * of an all_reduce it writes the others' shards, of which each was read by its owner before the second
 * sync (by the owner's block of the same number, which has the same bytes of every shard), and the others
 * read its own. An all_to_all in place has no such order and goes through the arenas.
 *
 * *Agreement.* Whether a call works so depends on the shape, and on whether this rank's buffers lie in
 * registered memory; that is part of what flags compare (the sig), so ranks of which only some pass
 * registered memory get an error and nothing is read. Where in which registration a buffer lies may
 * differ: each rank's flags say it for its own, and a table in every arena has the registrations of all
 * ranks in the addresses of this one. */
#include "collectives/gpu/state.h"

#ifdef GYRE_CUDA

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/device/peer.h"
#include "base/error.h"
#include "base/settings/settings.h"

enum { BLOCK_LEAST = 8192 }; /* bytes of a part for which another block is worth its flags */

_Static_assert(sizeof(coll_cuda_head_t) <= COLL_CUDA_HEAD, "the head lies before the first region");
_Static_assert((int)GYRE_PEERS_MOST == (int)COLL_CUDA_RANKS, "a view has room for all ranks");

struct gyre_cuda_registration {
    gyre_cuda_registration_t *next;
    int index; /* in the tables, the same on all ranks */
    char *begin;
    size_t bytes;
    char *at[COLL_CUDA_RANKS]; /* of rank r, in addresses of this process; own: begin */
};

/* ---- which calls -------------------------------------------------------------------------------------- */

/* The place of [buffer, + bytes) in registered memory, as flags tell it; 0: not registered as a whole. */
static uint64_t find(const coll_cuda_t *c, const void *buffer, size_t bytes)
{
    const char *at = buffer;
    for (const gyre_cuda_registration_t *r = c->registered; r; r = r->next)
        if (at >= r->begin && (size_t)(at - r->begin) < r->bytes &&
            bytes <= r->bytes - (size_t)(at - r->begin))
            return (uint64_t)(r->index + 1) << COLL_CUDA_PLACE_BITS | (uint64_t)(at - r->begin);
    return 0;
}

/* Bytes of the blocks of all ranks; 0: one of them is empty, and its rank may have no buffer at all. */
static size_t all_blocks(const coll_cuda_t *c, const coll_shape_t *s, size_t esize)
{
    size_t all = 0;
    for (int r = 0; r < c->comm->n; r++) {
        if (coll_cuda_count(s, r) == 0)
            return 0;
        all += coll_cuda_count(s, r) * esize;
    }
    return all;
}

int coll_cuda_in_registered(const coll_cuda_t *c, const coll_call_t *call, coll_algo_t algo,
                            coll_cuda_places_t *places)
{
    const coll_shape_t *s = &call->shape;
    memset(places, 0, sizeof *places);
    if (!c->registered || c->path != COLL_CUDA_PEERS || c->comm->n == 1 || s->op == COLL_BARRIER)
        return 0;
    const size_t esize = gyre_type_size(s->type);
    if (!coll_cuda_may_be_registered(c, s, algo))
        return 0;
    places->in = call->send ? find(c, call->send, call->send_count * esize) : 0;
    places->out = call->recv ? find(c, call->recv, call->recv_count * esize) : 0;
    if (s->op == COLL_ALL_REDUCE)
        return places->in && places->out;
    if (s->op == COLL_BROADCAST) /* the root's is read; the others learn it from what they pass */
        return (c->comm->rank == s->root ? places->in : places->out) != 0;
    return places->in != 0;
}

int coll_cuda_may_be_registered(const coll_cuda_t *c, const coll_shape_t *s, coll_algo_t algo)
{
    const size_t esize = gyre_type_size(s->type);
    size_t bytes;
    if (algo != COLL_ALGO_AUTO) /* a schedule was asked for */
        return 0;
    switch (s->op) {
    case COLL_ALL_REDUCE: /* a scaled sum's factors are their ranks' own */
        bytes = s->scaled ? 0 : s->count * esize;
        break;
    case COLL_BROADCAST:
        bytes = s->count * esize;
        break;
    case COLL_REDUCE_SCATTER:
        bytes = s->scaled ? 0 : all_blocks(c, s, esize);
        break;
    case COLL_ALL_GATHER:
        bytes = all_blocks(c, s, esize);
        break;
    case COLL_ALL_TO_ALL:
        bytes = s->uniform && !s->in_place ? all_blocks(c, s, esize) : 0;
        break;
    default:
        return 0;
    }
    return bytes > (size_t)base_setting_int(SET_CUDA_ONE_SHOT);
}

/* ---- what the kernel does ----------------------------------------------------------------------------- */

static size_t longest_block(const coll_cuda_op_t *op, const coll_shape_t *s, size_t esize)
{
    size_t most = 0;
    for (int r = 0; r < op->n; r++)
        most = base_max_size(most, coll_cuda_count(s, r) * esize);
    return most;
}

/* Returns the bytes of the longest part that any rank adds up or takes. */
static size_t describe_parts(coll_cuda_op_t *op, const coll_shape_t *s, size_t esize)
{
    const int me = op->rank;
    size_t at = 0, length, first;
    switch (s->op) {
    case COLL_ALL_REDUCE:
        op->reduces = 2;
        for (int r = 0; r < op->n; r++)
            coll_cuda_shard(s->count * esize, op->n, r, &op->take_at[r], &op->take_bytes[r]);
        op->read_at = op->take_at[me];
        op->sum_bytes = op->take_bytes[me];
        op->take_bytes[me] = 0; /* is there */
        coll_cuda_shard(s->count * esize, op->n, 0, &first, &length);
        return length;
    case COLL_BROADCAST:
        if (me != s->root)
            op->take_bytes[s->root] = s->count * esize;
        else
            op->part_bytes[0] = s->count * esize; /* for its own output, by a copy */
        return s->count * esize;
    case COLL_ALL_TO_ALL:
        op->read_at = (size_t)me * s->count * esize;
        break;
    default:
        break;
    }
    for (int r = 0; r < op->n; r++) {
        const size_t displacement = (s->displs ? s->displs[r] * esize : at),
                     bytes = coll_cuda_count(s, r) * esize;
        at += bytes;
        if (s->op == COLL_REDUCE_SCATTER) {
            op->reduces = 1;
            op->read_at = r == me ? displacement : op->read_at;
            op->sum_bytes = r == me ? bytes : op->sum_bytes;
        } else {
            op->take_at[r] = displacement;
            op->take_bytes[r] = r == me && s->op == COLL_ALL_GATHER && s->in_place ? 0 : bytes;
        }
    }
    return longest_block(op, s, esize);
}

void coll_cuda_describe_registered(const coll_cuda_t *c, const coll_shape_t *s, int capturing,
                                   coll_cuda_op_t *op, int *blocks)
{
    coll_cuda_describe_arithmetic(c, s, op);
    op->registered = 1;
    op->rounds = 1;
    const size_t most = describe_parts(op, s, gyre_type_size(s->type));
    const size_t useful = (most + BLOCK_LEAST - 1) / BLOCK_LEAST;
    const int room = coll_cuda_in_phases(c, op, capturing) ? c->blocks : c->resident;
    *blocks = (int)base_min_size((size_t)room, base_max_size(useful, 1));
    op->slot = base_round_up((most + (size_t)*blocks - 1) / (size_t)*blocks, COLL_CUDA_ALIGN);
}

/* ---- registering -------------------------------------------------------------------------------------- */

/* The least number that is free: the same on all ranks, as all register and deregister in one order. */
static int free_index(const coll_cuda_t *c)
{
    for (int index = 0; index < COLL_CUDA_REGISTERED; index++) {
        const gyre_cuda_registration_t *r = c->registered;
        while (r && r->index != index)
            r = r->next;
        if (!r)
            return index;
    }
    return -1;
}

static gyre_status_t export_own(const gyre_cuda_registration_t *r, base_device_handle_t *own)
{
    if (base_device_export(r->begin, own) != GYRE_OK)
        return gyre_fail_quiet(
            GYRE_ERR_UNSUPPORTED,
            "gyre_comm_register_cuda: the memory at %p cannot be shared (it must come from "
            "cudaMalloc): %s",
            (void *)r->begin, gyre_last_error());
    return own->bytes >= r->bytes
               ? GYRE_OK
               : gyre_fail(
                     GYRE_ERR_INVALID,
                     "gyre_comm_register_cuda: %zu bytes from %p on are more than the allocation's %llu",
                     r->bytes, (void *)r->begin, (unsigned long long)own->bytes);
}

/* handles: [n + 1], the last for this rank's own. */
static gyre_status_t export_here(const gyre_cuda_registration_t *r, int n, base_device_handle_t **handles)
{
    *handles = calloc((size_t)n + 1, sizeof **handles);
    if (!*handles)
        return gyre_fail(GYRE_ERR_NO_MEMORY,
                         "gyre_comm_register_cuda: no memory to note the buffers of %d ranks", n);
    return export_own(r, *handles + n);
}

/* What this rank can check and make by itself. *out is the caller's, also after an error. handles NULL:
 * nobody maps it; but what cannot be mapped is not there for the peers' devices either, whatever access
 * they have. */
static gyre_status_t describe_here(const coll_cuda_t *c, void *buffer, size_t bytes,
                                   gyre_cuda_registration_t **out, base_device_handle_t **handles)
{
    const int n = c->comm->n, index = free_index(c);
    const base_device_t of = base_device_of(buffer);
    gyre_cuda_registration_t *r;
    base_device_handle_t unused;
    if (!out)
        return gyre_fail(GYRE_ERR_INVALID, "gyre_comm_register_cuda: registration is NULL");
    if (!buffer || bytes == 0)
        return gyre_fail(GYRE_ERR_INVALID, "gyre_comm_register_cuda: the range is empty: %zu bytes at %p",
                         bytes, buffer);
    if (of.kind != BASE_CUDA || of.index != c->device)
        return gyre_fail(GYRE_ERR_INVALID,
                         "gyre_comm_register_cuda: %p is not in the memory of CUDA device %d, on which this "
                         "communicator works",
                         buffer, c->device);
    if (index < 0)
        return gyre_fail(
            GYRE_ERR_NO_MEMORY,
            "gyre_comm_register_cuda: a communicator has room for %d registrations: register larger "
            "pieces of memory",
            (int)COLL_CUDA_REGISTERED);
    r = calloc(1, sizeof *r);
    if (!r)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "gyre_comm_register_cuda: no memory to note a buffer");
    *r = (gyre_cuda_registration_t){.index = index, .begin = buffer, .bytes = bytes};
    *out = r;
    return handles ? export_here(r, n, handles) : export_own(r, &unused);
}

static void unmap(const coll_cuda_t *c, gyre_cuda_registration_t *r)
{
    for (int peer = 0; peer < c->comm->n; peer++)
        if (peer != c->comm->rank && r->at[peer])
            (void)base_device_unimport(r->at[peer]); /* fails where the owner has gone */
}

/* Addresses of a registration, those of ranks first, first + 1, ..., into the table in the arena of rank
 * `owner`. */
static gyre_status_t write_row(const coll_cuda_t *c, int owner, int index, int first, const uint64_t *row,
                               int n)
{
    const size_t place = (size_t)index * COLL_CUDA_RANKS + (size_t)first, bytes = (size_t)n * sizeof *row;
    char *to = c->arena[owner] + offsetof(coll_cuda_head_t, registered) + place * sizeof *row;
    cudaError_t rc = cudaMemcpyAsync(to, row, bytes, cudaMemcpyHostToDevice, c->stream);
    if (rc == cudaSuccess) /* before any operation on another stream */
        rc = cudaStreamSynchronize(c->stream);
    return rc == cudaSuccess ? GYRE_OK
                             : coll_cuda_failed(rc, "cudaMemcpyAsync(%p, %p, %zu) of addresses", (void *)to,
                                                (const void *)row, bytes);
}

/* The peers' buffers in this rank's addresses, and these in the table of the own arena, where kernels look
 * them up. */
static gyre_status_t map(coll_cuda_t *c, gyre_cuda_registration_t *r, const base_device_handle_t *handles)
{
    const gyre_comm_t *comm = c->comm;
    uint64_t row[COLL_CUDA_RANKS] = {0};
    gyre_status_t st = GYRE_OK;
    for (int peer = 0; peer < comm->n && st == GYRE_OK; peer++) {
        void *at = r->begin;
        if (peer != comm->rank)
            st = base_device_import((base_device_t){BASE_CUDA, c->device}, &handles[peer], &at);
        if (st != GYRE_OK)
            return gyre_fail_quiet(GYRE_ERR_UNSUPPORTED, "gyre_comm_register_cuda: rank %d's buffer: %s",
                                   peer, gyre_last_error());
        r->at[peer] = at;
        row[peer] = (uint64_t)(uintptr_t)at;
    }
    return write_row(c, comm->rank, r->index, 0, row, comm->n);
}

/* Collective, on a communicator that is prepared. */
static gyre_status_t register_here(coll_cuda_t *c, void *buffer, size_t bytes, gyre_cuda_registration_t **out)
{
    gyre_cuda_registration_t *r = NULL;
    base_device_handle_t *handles = NULL; /* [n], after them the own */
    gyre_status_t st = coll_cuda_agree(c, describe_here(c, buffer, bytes, out ? &r : NULL, &handles));
    if (!r) { /* refused, or no memory */
        free(handles);
        return st;
    }
    if (st == GYRE_OK)
        st = gyre_all_gather(handles + c->comm->n, handles, sizeof *handles, GYRE_UINT8, c->comm);
    if (st == GYRE_OK)
        st = coll_cuda_agree(c, map(c, r, handles));
    free(handles);
    if (st != GYRE_OK) {
        if (r)
            unmap(c, r);
        free(r);
        return st;
    }
    r->next = c->registered;
    c->registered = r;
    *out = r;
    return GYRE_OK;
}

/* A rank of a team: its address goes into the tables of all, before it makes a call that has the others
 * look there. */
static gyre_status_t register_in_team(coll_cuda_t *c, void *buffer, size_t bytes,
                                      gyre_cuda_registration_t **out)
{
    const gyre_comm_t *comm = c->comm;
    gyre_cuda_registration_t *r = NULL;
    const uint64_t address = (uint64_t)(uintptr_t)buffer;
    gyre_status_t st = describe_here(c, buffer, bytes, out ? &r : NULL, NULL);
    for (int peer = 0; peer < comm->n && st == GYRE_OK; peer++)
        st = write_row(c, peer, r->index, comm->rank, &address, 1);
    if (st != GYRE_OK) {
        free(r);
        return st;
    }
    r->next = c->registered;
    c->registered = r;
    *out = r;
    return GYRE_OK;
}

/* A view that a peer asks for from here on is refused, until the place has a new registration. One asked for
 * before has memory that is about to be freed: the caller's duty (gyre/cuda.h). A device that has failed
 * keeps the addresses: nothing runs there any more. */
static void forget_in_team(const coll_cuda_t *c, int index)
{
    const uint64_t none = 0;
    for (int peer = 0; peer < c->comm->n; peer++)
        (void)write_row(c, peer, index, c->comm->rank, &none, 1);
}

/* Logged once for a communicator: programs register many buffers, and go on without. */
static gyre_status_t refuse_staged(coll_cuda_t *c)
{
    const gyre_status_t st = gyre_fail_quiet(
        GYRE_ERR_UNSUPPORTED,
        "gyre_comm_register_cuda: operations of this communicator are staged through the host (%s): "
        "no peer would read the memory",
        c->why);
    if (c->logged_staged)
        return st;
    c->logged_staged = 1;
    return gyre_fail(st, "%s", gyre_last_error());
}

gyre_status_t gyre_comm_register_cuda(gyre_comm_t *comm, void *buffer, size_t bytes,
                                      gyre_cuda_registration_t **registration)
{
    int before;
    gyre_status_t st = coll_check_comm("gyre_comm_register_cuda", comm);
    if (st == GYRE_OK && base_device_count(BASE_CUDA) == 0)
        st = gyre_fail(GYRE_ERR_UNSUPPORTED, "gyre_comm_register_cuda: no CUDA device: %s",
                       base_device_why_not(BASE_CUDA));
    if (st == GYRE_OK && coll_group_open())
        st = gyre_fail(GYRE_ERR_INVALID, "gyre_comm_register_cuda cannot be part of a group");
    if (st == GYRE_OK && !comm->cuda) {
        const base_device_t of = base_device_of(buffer);
        st = of.kind == BASE_CUDA ? coll_cuda_prepare(comm, of.index) : gyre_comm_prepare_cuda(comm);
    }
    if (st == GYRE_OK && comm->cuda->path != COLL_CUDA_PEERS)
        st = refuse_staged(comm->cuda);
    if (st == GYRE_OK)
        st = coll_cuda_enter(comm->cuda, &before);
    if (st != GYRE_OK)
        return coll_refuse(st);
    st = comm->team ? register_in_team(comm->cuda, buffer, bytes, registration)
                    : register_here(comm->cuda, buffer, bytes, registration);
    coll_cuda_exit(comm->cuda, before);
    return st == GYRE_OK ? st : coll_refuse(st);
}

/* Whether all ranks give up the same registration; true if an error keeps them from telling. */
static int all_give_up(const coll_cuda_t *c, int index)
{
    const int64_t mine[2] = {index, -index};
    int64_t most[2] = {0, 0};
    return gyre_all_reduce(mine, most, 2, GYRE_INT64, GYRE_OP(GYRE_MAX), c->comm) != GYRE_OK ||
           most[0] == -most[1];
}

gyre_status_t gyre_comm_deregister_cuda(gyre_comm_t *comm, gyre_cuda_registration_t *registration)
{
    gyre_cuda_registration_t **at;
    int before;
    gyre_status_t st = coll_check_live("gyre_comm_deregister_cuda", comm);
    if (st != GYRE_OK)
        return coll_refuse(st);
    coll_cuda_t *c = comm->cuda;
    for (at = c ? &c->registered : NULL; at && *at && *at != registration; at = &(*at)->next)
        ;
    if (!registration || !at || !*at)
        return coll_refuse(gyre_fail(
            GYRE_ERR_INVALID, "gyre_comm_deregister_cuda: %p is not a registration of this communicator",
            (void *)registration));
    if (coll_group_open())
        return coll_refuse(
            gyre_fail(GYRE_ERR_INVALID, "gyre_comm_deregister_cuda cannot be part of a group"));
    if (!comm->team && !all_give_up(c, registration->index))
        return coll_refuse(gyre_fail(GYRE_ERR_INVALID,
                                     "gyre_comm_deregister_cuda: ranks give up different registrations: all "
                                     "must do so in the same order"));
    *at = registration->next;
    const gyre_status_t entered = coll_cuda_enter(c, &before);
    /* this rank reads there no more; nor do others, as an operation ends when they have read, */
    if (coll_cuda_wait_for_streams(c)) {
        if (comm->team && entered == GYRE_OK)
            forget_in_team(c, registration->index);
        unmap(c, registration);
        free(registration);
    }
    if (entered == GYRE_OK)
        coll_cuda_exit(c, before);
    st = coll_check_comm("gyre_comm_deregister_cuda", comm);
    if (st == GYRE_OK && !comm->team)
        st = coll_cuda_agree(c, entered); /* and nobody has it mapped */
    return st == GYRE_OK ? st : coll_refuse(st);
}

/* ---- for kernels of the program (gyre/device.cuh) ------------------------------------------------------ */

static gyre_status_t check_view(const gyre_comm_t *comm, const gyre_cuda_registration_t *registration,
                                const gyre_cuda_peers_t *peers)
{
    if (!peers)
        return gyre_fail(GYRE_ERR_INVALID, "gyre_comm_peers_cuda: peers is NULL");
    const gyre_cuda_registration_t *r = comm->cuda ? comm->cuda->registered : NULL;
    while (r && r != registration)
        r = r->next;
    return r ? GYRE_OK
             : gyre_fail(GYRE_ERR_INVALID,
                         "gyre_comm_peers_cuda: %p is not a registration of this communicator",
                         (const void *)registration);
}

/* The table in the own arena has the addresses of all ranks, also where each rank registers by itself. */
static gyre_status_t read_row(const coll_cuda_t *c, int index, uint64_t row[COLL_CUDA_RANKS])
{
    const coll_cuda_head_t *head = (const coll_cuda_head_t *)c->arena[c->comm->rank];
    const size_t bytes = sizeof head->registered[index];
    cudaError_t rc = cudaMemcpyAsync(row, head->registered[index], bytes, cudaMemcpyDeviceToHost, c->stream);
    if (rc == cudaSuccess)
        rc = cudaStreamSynchronize(c->stream);
    return rc == cudaSuccess ? GYRE_OK
                             : coll_cuda_failed(rc, "cudaMemcpyAsync(%p, %p, %zu) of addresses", (void *)row,
                                                (const void *)head->registered[index], bytes);
}

static gyre_status_t view(const coll_cuda_t *c, const gyre_cuda_registration_t *r, gyre_cuda_peers_t *peers)
{
    const int n = c->comm->n;
    uint64_t row[COLL_CUDA_RANKS] = {0};
    coll_cuda_head_t *head = (coll_cuda_head_t *)c->arena[c->comm->rank];
    const gyre_status_t st = read_row(c, r->index, row);
    if (st != GYRE_OK)
        return st;
    for (int peer = 0; peer < n; peer++)
        if (!row[peer])
            return gyre_fail(GYRE_ERR_INVALID,
                             "gyre_comm_peers_cuda: rank %d has not registered its memory yet: call it "
                             "after all %d ranks have",
                             peer, n);
    *peers = (gyre_cuda_peers_t){
        .bytes = r->bytes, .rank = c->comm->rank, .n = n, .over = &head->over, .abort = &c->board->abort};
    for (int peer = 0; peer < n; peer++) {
        coll_cuda_head_t *its = (coll_cuda_head_t *)c->arena[peer];
        peers->memory[peer] = (void *)(uintptr_t)row[peer];
        peers->counters[peer] = &its->kernels[0][0][0];
    }
    return GYRE_OK;
}

gyre_status_t gyre_comm_peers_cuda(gyre_comm_t *comm, const gyre_cuda_registration_t *registration,
                                   gyre_cuda_peers_t *peers)
{
    int before;
    gyre_status_t st = coll_check_comm("gyre_comm_peers_cuda", comm);
    if (st == GYRE_OK)
        st = check_view(comm, registration, peers);
    if (st == GYRE_OK)
        st = coll_cuda_enter(comm->cuda, &before);
    if (st != GYRE_OK)
        return coll_refuse(st);
    st = view(comm->cuda, registration, peers);
    coll_cuda_exit(comm->cuda, before);
    return st == GYRE_OK ? st : coll_refuse(st);
}

void coll_cuda_unmap_registered(coll_cuda_t *c)
{
    for (gyre_cuda_registration_t *r = c->registered, *next; r; r = next) {
        next = r->next;
        unmap(c, r);
        free(r);
    }
    c->registered = NULL;
}

#endif
