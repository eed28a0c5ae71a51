/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/gpu/shots/peers.c: launches the operation that describe.c has made of a call, at once or by
 * phases.
 *
 * Long blocks of all_gather and broadcast are moved by copy engines instead, through two halves of their own
 * in turns: what a rank copies there is read by the others before they come to the next round's sync, and
 * written again in the round after that.
 *
 * Buffers that the ranks have registered are read where they lie: registered.c. */
#include "collectives/gpu/state.h"

#ifdef GYRE_CUDA

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/settings/settings.h"
#include "collectives/kernels/kernels.h"

#define RESCUE_SECONDS 0.1 /* that one copy of a few bytes may take */

static gyre_status_t copy(char *to, const char *from, size_t bytes, const char *name, cudaStream_t stream)
{
    if (bytes == 0 || from == to)
        return GYRE_OK;
    cudaError_t rc = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
    return rc == cudaSuccess ? GYRE_OK
                             : coll_cuda_failed(rc, "cudaMemcpyAsync(%p, %p, %zu) of %s", (void *)to,
                                                (const void *)from, bytes, name);
}

/* This rank's own block goes by itself where the kernel need not carry it: a copy on the device, by its
 * copy engine or as the driver likes. */
static gyre_status_t copy_own(coll_cuda_op_t *op, const coll_call_t *call, cudaStream_t stream)
{
    const coll_shape_t *s = &call->shape;
    const int me = op->rank, root = s->root;
    const char *from = call->send;
    char *to = call->recv;
    size_t bytes = 0;
    switch (s->op) {
    case COLL_BROADCAST:
        bytes = me == root ? op->part_bytes[0] : 0;
        break;
    case COLL_GATHER:
        bytes = me == root ? op->take_bytes[me] : 0;
        to += bytes ? op->take_at[me] : 0;
        op->take_bytes[me] = 0;
        break;
    case COLL_SCATTER:
        bytes = me == root ? op->part_bytes[me] : 0;
        from += bytes ? op->part_at[me] : 0;
        if (me == root)
            op->part_bytes[me] = 0;
        break;
    case COLL_ALL_GATHER:
        if (s->in_place)
            op->take_bytes[me] = 0;
        return GYRE_OK;
    default:
        return GYRE_OK;
    }
    return copy(to, from, bytes, call->name, stream);
}

/* Uneven operations: which ranks' lengths this one can compare with its own. */
static void mark_unknown(coll_cuda_op_t *op, const coll_shape_t *s)
{
    for (int r = 0; r < op->n; r++) {
        const int known = s->op == COLL_ALL_TO_ALL || (s->op == COLL_GATHER && op->rank == s->root) ||
                          (s->op == COLL_SCATTER && op->rank != s->root && r == s->root);
        if (!known)
            op->take_bytes[r] = UINT64_MAX;
    }
}

static gyre_status_t launch(const coll_cuda_op_t *op, int blocks, const char *name, cudaStream_t stream)
{
    cudaError_t rc = coll_cuda_launch_peers(op, blocks, stream);
    return rc == cudaSuccess ? GYRE_OK
                             : coll_cuda_failed(rc, "launching the kernel of %s on %d blocks", name, blocks);
}

gyre_status_t coll_cuda_stream_wait(const coll_cuda_t *c, const void *word, uint32_t value, const char *name,
                                    cudaStream_t stream)
{
    enum { GEQ = 0 }; /* CU_STREAM_WAIT_VALUE_GEQ: compared on a circle */
    const int rc = c->wait(stream, (unsigned long long)(uintptr_t)word, value, GEQ);
    return rc == 0 ? GYRE_OK
                   : coll_cuda_failed((cudaError_t)rc, "cuStreamWaitValue32 of %s on stream %p", name,
                                      (void *)stream);
}

/* The stream goes on once all peers have ended the phase that this rank has enqueued last. */
static gyre_status_t wait_for_peers(const coll_cuda_t *c, const char *name, cudaStream_t stream)
{
    const char *phases = c->arena[c->comm->rank] + offsetof(coll_cuda_head_t, phases);
    gyre_status_t st = GYRE_OK;
    for (int r = 0; r < c->comm->n && st == GYRE_OK; r++)
        if (r != c->comm->rank)
            st = coll_cuda_stream_wait(c, phases + (size_t)r * sizeof(uint32_t), c->phase, name, stream);
    return st;
}

static uint32_t next_phase(coll_cuda_t *c)
{
    c->phase += c->phase == UINT32_MAX ? 2 : 1; /* 0 means none */
    return c->phase;
}

/* One launch per phase of each round, and in between the stream waits. A kernel that waits would keep a
 * device that it shares with the rank it waits for, for all of its time slice; the flags of blocks, which
 * kernels look at all the same, are there then. */
static gyre_status_t launch_phases(coll_cuda_t *c, coll_cuda_op_t *op, int blocks, const char *name,
                                   cudaStream_t stream)
{
    const int phases = coll_cuda_phases(op);
    gyre_status_t st = GYRE_OK;
    for (uint32_t round = 0; round < op->rounds; round++)
        for (int phase = 0; phase < phases && st == GYRE_OK; phase++) {
            op->first_round = round;
            op->end_round = round + 1;
            op->first_phase = (uint8_t)phase;
            op->end_phase = (uint8_t)(phase + 1);
            op->begins = round == 0 && phase == 0;
            op->ends = round + 1 == op->rounds && phase + 1 == phases;
            if (phase > 0)
                st = wait_for_peers(c, name, stream);
            if (st != GYRE_OK)
                return st;
            op->phase = 0;
            if (phase + 1 < phases)
                op->phase = next_phase(c);
            st = launch(op, blocks, name, stream);
        }
    return st;
}

/* All ranks meet, and agree on what they called; nothing is moved. */
static gyre_status_t launch_sync(coll_cuda_t *c, const coll_cuda_op_t *op, uint32_t round, uint32_t rounds,
                                 const char *name, cudaStream_t stream)
{
    coll_cuda_op_t meet = *op;
    meet.parts = 0;
    meet.reduces = 0;
    memset(meet.take_bytes, 0, sizeof meet.take_bytes);
    meet.rounds = 1;
    meet.first_round = 0;
    meet.end_round = 1;
    meet.begins = round == 0;
    meet.ends = round + 1 == rounds;
    if (!c->stream_waits)
        return launch(&meet, 1, name, stream);
    meet.end_phase = 1;
    meet.ends = 0;
    meet.phase = next_phase(c);
    gyre_status_t st = launch(&meet, 1, name, stream);
    if (st == GYRE_OK)
        st = wait_for_peers(c, name, stream);
    meet.first_phase = 1;
    meet.end_phase = 2;
    meet.phase = 0;
    meet.begins = 0;
    meet.ends = round + 1 == rounds;
    return st == GYRE_OK ? launch(&meet, 1, name, stream) : st;
}

/* One block of one thread more or less, and the rest is copies. */
static gyre_status_t move_by_engines(coll_cuda_t *c, const coll_cuda_op_t *op, size_t most, const char *name,
                                     cudaStream_t stream)
{
    const size_t area = COLL_CUDA_HEAD + c->region * (size_t)c->blocks, half = c->engine_half;
    const uint32_t rounds = (uint32_t)((most + half - 1) / half);
    gyre_status_t st = GYRE_OK;
    for (uint32_t round = 0; round < rounds && st == GYRE_OK; round++) {
        const size_t from = (size_t)round * half, at = area + c->engines++ % 2 * half;
        if (op->parts && op->part_bytes[0] > from)
            st = copy(op->arena[op->rank] + at, op->in + from, base_min_size(op->part_bytes[0] - from, half),
                      name, stream);
        if (st == GYRE_OK)
            st = launch_sync(c, op, round, rounds, name, stream);
        for (int i = 1; i <= op->n && st == GYRE_OK; i++) {
            const int r = (op->rank + i) % op->n; /* not all from one */
            if (op->take_bytes[r] > from)
                st = copy(op->out + op->take_at[r] + from, op->arena[r] + at,
                          base_min_size(op->take_bytes[r] - from, half), name, stream);
        }
    }
    return st;
}

static int too_many_launches(const coll_cuda_t *c, const coll_shape_t *s, size_t most)
{
    const size_t rounds = (most + c->engine_half - 1) / c->engine_half, n = (size_t)c->comm->n,
                 each = (c->stream_waits ? n + 1 : 1) + (s->op == COLL_BROADCAST ? 1 : n + 1);
    return (c->comm->team || c->several) && rounds * each > COLL_CUDA_TEAM_LAUNCHES;
}

static int by_engines(const coll_cuda_t *c, const coll_shape_t *s, size_t most)
{
    const size_t least = (size_t)base_setting_int(SET_CUDA_ENGINES);
    return (s->op == COLL_ALL_GATHER || s->op == COLL_BROADCAST) && least > 0 && most >= least &&
           c->comm->n > 1 && c->engine_half > 0 && !too_many_launches(c, s, most);
}

int coll_cuda_differs_captured(const coll_cuda_t *c, const coll_shape_t *s, int registered)
{
    coll_cuda_op_t op;
    int blocks;
    coll_cuda_describe(c, s, 0, &op, &blocks);
    const size_t most = coll_cuda_longest_part(&op, s, gyre_type_size(s->type));
    return (!registered && by_engines(c, s, most)) ||
           coll_cuda_in_phases(c, &op, 0); /* a kernel alone neither signals phases nor counts them */
}

/* The device may have put that stream into one queue with another that waits, so this must not wait for
 * long: the guard comes again, with all other communicators in between. */
int coll_cuda_rescued(const coll_cuda_t *c)
{
    const struct timespec pause = {.tv_nsec = 20 * 1000};
    const base_time_t until = base_deadline(RESCUE_SECONDS);
    cudaError_t rc;
    while ((rc = cudaStreamQuery(c->rescue)) == cudaErrorNotReady && base_now() < until)
        nanosleep(&pause, NULL);
    if (rc != cudaSuccess)
        (void)cudaGetLastError();
    return rc == cudaSuccess;
}

static void rescue(coll_cuda_t *c)
{
    if (!coll_cuda_rescued(c)) /* the one before is still on its way */
        return;
    for (int r = 0; r < COLL_CUDA_RANKS; r++)
        c->pages[r] = c->phase + (1u << 30);
    /* before messages and phases: a kernel whose stream those let go on sees it */
    const cudaError_t rc =
        cudaMemcpyAsync(c->arena[c->comm->rank] + offsetof(coll_cuda_head_t, over),
                        c->pages + 2 * COLL_CUDA_RANKS, sizeof *c->pages, cudaMemcpyHostToDevice, c->rescue);
    if (rc == cudaSuccess)
        coll_cuda_mail_release(c);
    if (rc != cudaSuccess ||
        cudaMemcpyAsync(c->arena[c->comm->rank] + offsetof(coll_cuda_head_t, phases), c->pages,
                        COLL_CUDA_RANKS * sizeof *c->pages, cudaMemcpyHostToDevice, c->rescue) != cudaSuccess)
        (void)cudaGetLastError(); /* the device itself has failed, and with it kernels and streams */
    else
        (void)coll_cuda_rescued(c);
}

void coll_cuda_release(coll_cuda_t *c)
{
    coll_cuda_proxy_release(c);
    if (!c->rescue)
        return;
    coll_cuda_look_t look = coll_cuda_begin_look(c);
    rescue(c);
    coll_cuda_end_look(c, &look);
}

/* The whole operation, between these buffers. */
static void bind(const coll_cuda_t *c, const coll_call_t *call, const comm_call_t *as, coll_cuda_op_t *op)
{
    memcpy(op->arena, c->arena, sizeof op->arena);
    op->board = c->board;
    op->in = call->send;
    op->out = call->recv;
    op->scale = call->scale;
    op->whole = coll_kernel_whole(call->scale);
    op->sig = as->sig;
    op->call = as->seq;
    op->end_phase = 4;
    op->begins = op->ends = 1;
}

gyre_status_t coll_cuda_enqueue_peers(coll_cuda_t *c, const coll_call_t *call, const comm_call_t *as,
                                      coll_algo_t algo, const coll_cuda_places_t *places, cudaStream_t stream,
                                      int capturing)
{
    coll_cuda_op_t op;
    coll_cuda_plan_t *plan = NULL;
    int blocks;
    gyre_status_t st = GYRE_OK;
    if (algo != COLL_ALGO_AUTO)
        st = coll_cuda_find_plan(c, &call->shape, algo, capturing, &plan);
    if (st != GYRE_OK)
        return st;
    if (plan) {
        coll_cuda_describe_arithmetic(c, &call->shape, &op);
        bind(c, call, as, &op);
        return coll_cuda_enqueue_plan(plan, &op, call->name, stream);
    }
    if (!places && coll_cuda_in_ll(c, &call->shape, algo, capturing))
        return coll_cuda_enqueue_ll(c, call, as, stream);
    if (places)
        coll_cuda_describe_registered(c, &call->shape, capturing, &op, &blocks);
    else
        coll_cuda_describe(c, &call->shape, capturing, &op, &blocks);
    bind(c, call, as, &op);
    op.sum_to = op.reduces == 1 ? call->recv : NULL;
    if (places) {
        c->read_directly++;
        op.places[0] = places->in;
        op.places[1] = places->out;
        op.sum_to = op.reduces ? op.out + (op.reduces == 2 ? op.read_at : 0) : NULL;
    }
    op.end_round = op.rounds;
    st = copy_own(&op, call, stream);
    if (st != GYRE_OK)
        return st;
    if (op.uneven)
        mark_unknown(&op, &call->shape);
    const size_t most = coll_cuda_longest_part(&op, &call->shape, gyre_type_size(call->shape.type));
    if (!capturing && !places && by_engines(c, &call->shape, most))
        return move_by_engines(c, &op, most, call->name, stream);
    if (coll_cuda_in_phases(c, &op, capturing))
        return launch_phases(c, &op, blocks, call->name, stream);
    return launch(&op, blocks, call->name, stream);
}

gyre_status_t coll_cuda_explain(gyre_comm_t *comm, const coll_shape_t *shape, int registered,
                                coll_cuda_explanation_t *out)
{
    coll_cuda_t *c = comm->cuda;
    if (!c)
        return gyre_fail(GYRE_ERR_INVALID, "the communicator has not been used on a device yet");
    coll_cuda_op_t op;
    memset(out, 0, sizeof *out);
    if (shape->op == COLL_SENDRECV) {
        const size_t bytes = shape->count * gyre_type_size(shape->type);
        int direct = 0;
        for (int r = 0; c->direct && r < comm->n; r++)
            direct += c->direct[r];
        snprintf(out->algorithm, sizeof out->algorithm, "%s", coll_cuda_mail_mover(c, bytes));
        snprintf(out->path, sizeof out->path, "%s", c->mail ? "peers" : direct ? "direct" : "staged");
        snprintf(out->why, sizeof out->why, "%s", c->messages);
        return GYRE_OK;
    }
    snprintf(out->why, sizeof out->why, "%s", c->why);
    snprintf(out->path, sizeof out->path, "%s", c->path == COLL_CUDA_PEERS ? "peers" : "staged");
    if (c->path == COLL_CUDA_STAGED) {
        const int hosts = coll_cuda_hosts_take(c, shape), wire = hosts || coll_cuda_wire_takes(c, shape);
        snprintf(out->why, sizeof out->why, "%s; %s", c->why, c->collectives);
        snprintf(out->path, sizeof out->path, "%s", wire ? "wire" : "staged");
        snprintf(out->algorithm, sizeof out->algorithm, "%s",
                 hosts  ? "hierarchical"
                 : wire ? "pairwise"
                        : "host");
        out->rounds = wire && !hosts ? coll_cuda_wire_rounds(c, shape) : 0;
        return GYRE_OK;
    }
    if (!coll_cuda_adds(shape))
        return gyre_fail(GYRE_ERR_UNSUPPORTED, "device code has no %s of %s", gyre_redop_name(shape->redop),
                         gyre_type_name(shape->type));
    coll_algo_t algo;
    coll_cuda_plan_t *plan = NULL;
    const char *rule;
    gyre_status_t st = coll_cuda_choose(c, shape, &algo, &rule);
    if (st == GYRE_OK && registered && c->registered && coll_cuda_may_be_registered(c, shape, algo)) {
        coll_cuda_describe_registered(c, shape, 0, &op, &out->blocks);
        out->rounds = op.rounds;
        snprintf(out->algorithm, sizeof out->algorithm, "registered");
        return GYRE_OK;
    }
    if (st == GYRE_OK && algo != COLL_ALGO_AUTO)
        st = coll_cuda_find_plan(c, shape, algo, 0, &plan);
    if (st != GYRE_OK)
        return st;
    if (algo != COLL_ALGO_AUTO && !plan)
        snprintf(out->why, sizeof out->why, "%s; no kernel runs %s for this: %s", c->why,
                 coll_algo_name(algo), coll_cuda_plan_refused(c, shape, algo));
    else if (rule[0] != '\0')
        snprintf(out->why, sizeof out->why, "%s; %s", c->why, rule);
    if (plan) {
        coll_cuda_plan_shape(plan, &out->blocks, &out->rounds);
        snprintf(out->algorithm, sizeof out->algorithm, "%s", coll_algo_name(algo));
        return GYRE_OK;
    }
    if (coll_cuda_in_ll(c, shape, algo, 0)) {
        size_t bytes;
        coll_cuda_ll_shape(shape, &bytes, &out->blocks);
        out->rounds = 1;
        snprintf(out->algorithm, sizeof out->algorithm, "ll");
        snprintf(out->why, sizeof out->why, "%s; LL up to %zu bytes for each rank (GYRE_CUDA_LL)", c->why,
                 c->ll_most);
        return GYRE_OK;
    }
    coll_cuda_describe(c, shape, 0, &op, &out->blocks);
    out->rounds = op.rounds;
    const size_t most = coll_cuda_longest_part(&op, shape, gyre_type_size(shape->type));
    if (by_engines(c, shape, most)) {
        out->blocks = 1;
        out->rounds = (uint32_t)((most + c->engine_half - 1) / c->engine_half);
        snprintf(out->algorithm, sizeof out->algorithm, "engines");
        return GYRE_OK;
    }
    snprintf(out->algorithm, sizeof out->algorithm, "%s",
             op.reduces == 2                                            ? "two_shot"
             : shape->op == COLL_ALL_REDUCE || shape->op == COLL_REDUCE ? "one_shot"
                                                                        : "direct");
    return GYRE_OK;
}

#endif
