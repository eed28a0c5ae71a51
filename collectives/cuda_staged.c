/* collectives/cuda_staged.c: operations whose ranks cannot work in each other's device memory (several hosts, no peer access), and
 * all messages: through pinned memory of the host, in chunks.
 *
 *     stream    copy chunk k + 1 out | tell the proxy | wait until chunk k is done | copy chunk k in | ...
 *     proxy     a thread per communicator: the host's collective of the same kind, on a communicator of its own
 *
 * so that the transport of a chunk overlaps with the copies of its neighbours; copies, on one stream, do not with each other. Stream and proxy tell each other by two
 * counters in pinned memory: a kernel of one thread stores `posted`, and the stream waits for `done` (cuStreamWaitValue32; with
 * GYRE_CUDA_WAIT=kernel another kernel of one thread does). Jobs are numbered over all
 * operations; the stream posts them in order, as operations of a communicator are in order (cuda_call.c), and the proxy does them in
 * order. Slots are windows (comm/mem.h) that are pinned besides: local peers map them, and adapters read and write them without a
 * copy. Those of large messages between hosts lie on the device where the network reaches it (cuda_direct.c). Messages that are sent leave their slot later: `sent` counts them, and whoever wants the slot again waits for it.
 *
 * Results have the host's bits: an element's sum does not depend on the chunk that it is in (docs/contract.md). */
#include "collectives/cuda_state.h"

#ifdef GYRE_CUDA

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/checked.h"
#include "base/device_rdma.h"
#include "base/error.h"
#include "base/log.h"
#include "base/settings.h"
#include "comm/direct.h"
#include "comm/mem.h"

enum {
    SLOTS = 4,           /* of collectives: LAG chunks are under way while one is copied */
    LAG = 2,             /* chunks by which copies in follow copies out */
    SEND_SLOTS = 8,      /* messages on their way */
    MESSAGES = 16 << 20, /* twice their pinned memory, at most */
    JOBS = 256,          /* posted or to be posted, at most */
    OPERATIONS = 64,     /* under way, at most */
    LOOKS = 200,         /* of the proxy before it yields, */
    YIELDS = 50          /* and before it sleeps between looks */
};

/* One call, kept until its last chunk is done. */
typedef struct {
    coll_shape_t shape;
    double scale;
    size_t chunk; /* elements of each block, or of the vector */
    uint32_t chunks;
    comm_call_t call;
    size_t *counts, *rcounts; /* [n] of the whole operation; spelled out */
    size_t *displs, *rdispls; /* [n] in the program's buffers */
    size_t *piece, *rpiece;   /* [n] of the chunk that runs */
} operation_t;

typedef enum { JOB_CHUNK, JOB_SEND, JOB_RECV } job_kind_t;
typedef struct {
    job_kind_t kind;
    operation_t *operation;
    uint32_t chunk;
    char *in, *out; /* slots */
    size_t bytes;   /* of a message */
    int peer;
    int direct; /* in, out are on the device */
} job_t;

/* In pinned memory. */
typedef struct {
    uint32_t posted; /* by the stream: jobs whose input is there */
    uint32_t done;   /* by the proxy: jobs whose output is there */
    uint32_t sent;   /* by the proxy: messages that have left their slots */
} words_t;

struct coll_cuda_proxy {
    coll_cuda_t *c;
    words_t *words;
    int window;   /* 1: memory is a window; 0: CUDA's */
    char *memory; /* pinned: SLOTS slots in, SLOTS out, then those of messages */
    size_t slot, message;
    operation_t operations[OPERATIONS];
    size_t *arrays; /* [OPERATIONS * 6 * n] */
    job_t jobs[JOBS];
    uint32_t collectives, sends; /* slots handed out so far */
    uint32_t operations_made;
    gyre_request_t *pending[SEND_SLOTS]; /* sends under way: message number q is in [q % SEND_SLOTS] */
    uint32_t send_began, send_ended;     /* the proxy's: messages begun, and gone in order */
    _Atomic uint32_t made;               /* jobs enqueued so far */
    _Atomic uint32_t finished;           /* jobs done so far; as words->done */
    _Atomic uint32_t operations_done;
    _Atomic int stop;
    pthread_mutex_t lock;
    pthread_cond_t more;
    int asleep; /* the thread waits for `more`; under the lock */
    pthread_t thread;
    int running;
};

/* ---- the proxy's side ------------------------------------------------------------------------------------------- */

/* What of a block of `count` elements is in chunk k. */
static size_t in_chunk(const operation_t *o, size_t count, uint32_t k)
{
    const size_t from = (size_t)k * o->chunk;
    return count > from ? base_min_size(count - from, o->chunk) : 0;
}

static gyre_status_t run_blocks(const coll_cuda_proxy_t *p, const operation_t *o, const job_t *job)
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

static gyre_status_t run_chunk(const coll_cuda_proxy_t *p, const operation_t *o, const job_t *job)
{
    gyre_comm_t *comm = p->c->shadow;
    const coll_shape_t *s = &o->shape;
    const gyre_redop_t redop = {s->redop, s->scaled, o->scale};
    const size_t count = in_chunk(o, s->count, job->chunk);
    switch (s->op) {
    case COLL_ALL_REDUCE:
        return gyre_all_reduce(job->in, job->out, count, s->type, redop, comm);
    case COLL_REDUCE:
        return gyre_reduce(job->in, job->out, count, s->type, redop, s->root, comm);
    case COLL_BROADCAST:
        return gyre_broadcast(job->out, job->out, count, s->type, s->root, comm);
    case COLL_BARRIER:
        return gyre_barrier(comm);
    default:
        return run_blocks(p, o, job);
    }
}

static int is_uneven(const coll_shape_t *s)
{
    return !s->uniform && (s->op == COLL_GATHER || s->op == COLL_SCATTER || s->op == COLL_ALL_TO_ALL);
}

/* Uneven operations, whose ranks do not know each other's chunks: all take part in as many as the one with most. */
static gyre_status_t run_job(coll_cuda_proxy_t *p, const job_t *job)
{
    operation_t *o = job->operation;
    uint64_t most = o->chunks;
    gyre_status_t st = GYRE_OK;
    if (job->chunk == 0 && is_uneven(&o->shape)) {
        st = gyre_all_reduce(&most, &most, 1, GYRE_UINT64, GYRE_OP(GYRE_MAX), p->c->shadow);
        o->call.reserved = most;
    }
    if (st == GYRE_OK)
        st = run_chunk(p, o, job);
    if (job->chunk + 1 < o->chunks)
        return st;
    for (uint32_t k = o->chunks; st == GYRE_OK && k < o->call.reserved; k++) {
        const job_t more = {.operation = o, .chunk = k, .in = job->in, .out = job->out};
        st = run_chunk(p, o, &more);
    }
    return st;
}

/* Messages that have gone, in order. */
static gyre_status_t reap_sends(coll_cuda_proxy_t *p, int *moved)
{
    while (p->send_ended != p->send_began) {
        gyre_request_t **request = &p->pending[p->send_ended % SEND_SLOTS];
        gyre_status_t st = *request ? gyre_test(request) : GYRE_OK;
        if (st == GYRE_IN_PROGRESS)
            return GYRE_OK;
        p->send_ended++;
        __atomic_store_n(&p->words->sent, p->send_ended, __ATOMIC_RELEASE);
        *moved = 1;
        if (st != GYRE_OK)
            return st;
    }
    return GYRE_OK;
}

static gyre_status_t do_job(coll_cuda_proxy_t *p, const job_t *job)
{
    switch (job->kind) {
    case JOB_SEND: {
        gyre_status_t st = coll_check_comm("isend", p->c->shadow);
        if (st != GYRE_OK)
            return st;
        gyre_request_t **request = &p->pending[p->send_began % SEND_SLOTS];
        *request = NULL;
        p->send_began++;
        return coll_p2p_start(COLL_REQ_SEND, job->in, job->bytes, GYRE_UINT8, job->peer, p->c->shadow,
                              request);
    }
    case JOB_RECV: {
        gyre_status_t st = coll_check_comm("recv", p->c->shadow);
        if (st == GYRE_OK)
            st = coll_p2p_start(COLL_REQ_RECV, job->out, job->bytes, GYRE_UINT8, job->peer, p->c->shadow,
                                NULL);
        return st == GYRE_OK && job->direct && p->c->flush
                   ? base_device_rdma_flush((base_device_t){BASE_CUDA, p->c->device})
                   : st;
    }
    default:
        return run_job(p, job);
    }
}

/* The program's communicator fails with what its proxy met. */
static void fail(const coll_cuda_proxy_t *p, const job_t *job, gyre_status_t status)
{
    char what[160] = "a message from device memory", why[1024];
    gyre_comm_t *comm = p->c->comm;
    snprintf(why, sizeof why, "%s", gyre_last_error());
    if (job && job->kind == JOB_CHUNK)
        coll_call_text(&job->operation->call, what, sizeof what);
    if (gyre_status_scope(status) < GYRE_SCOPE_COMMUNICATOR)
        status = GYRE_ERR_ABORTED;
    coll_drive(comm);
    coll_comm_notice(comm); /* a death that the watcher knows of is the better story */
    if (atomic_load(&comm->error) == GYRE_OK) {
        gyre_fail_quiet(status, "%s on rank %d: %s", what, comm->rank, why);
        coll_comm_fail(comm, NULL, status, NULL);
    }
    coll_stop_driving(comm);
}

/* One look; 1 if something was done. */
static int work(coll_cuda_proxy_t *p, int *failed)
{
    int moved = 0;
    const job_t *job = NULL;
    gyre_status_t st = *failed ? GYRE_OK : reap_sends(p, &moved);
    const uint32_t next = atomic_load(&p->finished) + 1;
    if (st == GYRE_OK && (int32_t)(atomic_load(&p->made) - next) >= 0 &&
        (*failed || (int32_t)(coll_cuda_read(&p->words->posted) - next) >= 0)) {
        job = &p->jobs[next % JOBS];
        st = *failed ? GYRE_OK : do_job(p, job);
        if (job->kind == JOB_CHUNK && job->chunk + 1 == job->operation->chunks)
            atomic_fetch_add(&p->operations_done, 1);
        if (st == GYRE_OK)
            __atomic_store_n(&p->words->done, next, __ATOMIC_RELEASE);
        atomic_store(&p->finished, next);
        moved = 1;
    }
    if (st != GYRE_OK) {
        fail(p, job, st);
        *failed = 1;
    }
    return moved;
}

static void rest(coll_cuda_proxy_t *p, uint32_t *idle)
{
    const struct timespec pause = {.tv_nsec = 50 * 1000};
    if (++*idle < LOOKS)
        return;
    if (*idle < LOOKS + YIELDS) {
        sched_yield();
        return;
    }
    if (atomic_load(&p->made) != atomic_load(&p->finished) || p->send_began != p->send_ended) {
        nanosleep(&pause, NULL);
        return;
    }
    pthread_mutex_lock(&p->lock);
    p->asleep = 1;
    while (atomic_load(&p->made) == atomic_load(&p->finished) && !atomic_load(&p->stop))
        pthread_cond_wait(&p->more, &p->lock);
    p->asleep = 0;
    pthread_mutex_unlock(&p->lock);
    *idle = 0;
}

static void *proxy_main(void *user)
{
    coll_cuda_proxy_t *p = user;
    uint32_t idle = 0;
    int failed = 0;
    /* UCX works in the context that is current where it is moved. */
    gyre_status_t st = base_device_use((base_device_t){BASE_CUDA, p->c->device});
    if (st != GYRE_OK) {
        fail(p, NULL, st);
        failed = 1;
    }
    for (;;) {
        if (work(p, &failed))
            idle = 0;
        else if (atomic_load(&p->stop) && (failed || p->send_began == p->send_ended))
            break;
        else
            rest(p, &idle);
        failed = failed || atomic_load(&p->c->stopped);
    }
    return NULL;
}

/* ---- the stream's side --------------------------------------------------------------------------------------------- */

/* Waits until the proxy has room: `behind` of what was made are not done yet. */
static gyre_status_t wait_for_room(coll_cuda_proxy_t *p, uint32_t made, _Atomic uint32_t *done, uint32_t most)
{
    const struct timespec pause = {.tv_nsec = 20 * 1000};
    const gyre_comm_t *comm = p->c->comm;
    const base_time_t until = base_now() + comm->timeout_ns;
    while (made - atomic_load(done) >= most) {
        if (atomic_load(&comm->error) != GYRE_OK)
            return gyre_fail_quiet((gyre_status_t)atomic_load(&comm->error), "%s", comm->error_text);
        if (base_now() > until)
            return gyre_fail(
                GYRE_ERR_TIMEOUT,
                "rank %d: %u operations wait on their streams and none of them has moved for %g s",
                comm->rank, most, comm->timeout_s);
        nanosleep(&pause, NULL);
    }
    return GYRE_OK;
}

/* Enqueues a job for the proxy, behind what the stream did so far. *number: to be waited for. */
static gyre_status_t post(coll_cuda_proxy_t *p, const job_t *job, cudaStream_t stream, uint32_t *number)
{
    const uint32_t made = atomic_load(&p->made);
    gyre_status_t st = wait_for_room(p, made, &p->finished, JOBS - 1);
    if (st != GYRE_OK)
        return st;
    *number = made + 1;
    p->jobs[*number % JOBS] = *job;
    cudaError_t rc = coll_cuda_launch_post(&p->words->posted, *number, stream);
    if (rc != cudaSuccess)
        return coll_cuda_failed(rc, "launching a kernel of one thread on stream %p", (void *)stream);
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->made, *number);
    if (p->asleep)
        pthread_cond_signal(&p->more);
    pthread_mutex_unlock(&p->lock);
    return GYRE_OK;
}

/* The stream itself waits where the driver lets it: a kernel that waits burns the time that ranks on the same device need. */
static gyre_status_t await(coll_cuda_proxy_t *p, const uint32_t *word, uint32_t value, cudaStream_t stream)
{
    if (p->c->wait)
        return coll_cuda_stream_wait(p->c, word, value, "a staged operation", stream);
    cudaError_t rc = coll_cuda_launch_await(word, value, &p->c->board->abort, stream);
    return rc == cudaSuccess
               ? GYRE_OK
               : coll_cuda_failed(rc, "launching a kernel of one thread on stream %p", (void *)stream);
}

void coll_cuda_proxy_release(coll_cuda_t *c)
{
    coll_cuda_proxy_t *p = c->proxy;
    if (!c->wait || !p || !p->words)
        return;
    /* beyond all that is waited for; the proxy may overwrite it once more with a job that was under way */
    __atomic_store_n(&p->words->done, atomic_load(&p->made) + (1u << 30), __ATOMIC_RELEASE);
    __atomic_store_n(&p->words->sent, atomic_load(&p->made) + (1u << 30), __ATOMIC_RELEASE);
}

static gyre_status_t copy(void *to, const void *from, size_t bytes, cudaStream_t stream)
{
    if (bytes == 0 || to == from)
        return GYRE_OK;
    cudaError_t rc = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);
    return rc == cudaSuccess ? GYRE_OK
                             : coll_cuda_failed(rc, "cudaMemcpyAsync(%p, %p, %zu)", to, from, bytes);
}

/* Which of a rank's buffers the operation uses, and how they are laid out: in blocks of all ranks, or as one. */
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
        return (layout_t){1, 1, 0, 0, s->count};
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
static gyre_status_t copy_chunk(const operation_t *o, int n, uint32_t k, int out, const layout_t *l,
                                size_t esize, char *buffer, char *slot, cudaStream_t stream)
{
    const size_t from = (size_t)k * o->chunk * esize;
    gyre_status_t st = GYRE_OK;
    if (!(out ? l->out_blocks : l->in_blocks)) {
        const size_t bytes = in_chunk(o, l->own, k) * esize;
        return out ? copy(buffer + from, slot, bytes, stream) : copy(slot, buffer + from, bytes, stream);
    }
    const size_t *counts = out ? o->rcounts : o->counts, *displs = out ? o->rdispls : o->displs;
    for (int r = 0; r < n && st == GYRE_OK; r++) {
        const size_t bytes = in_chunk(o, counts[r], k) * esize;
        char *at = buffer + displs[r] * esize + from;
        st = out ? copy(at, slot, bytes, stream) : copy(slot, at, bytes, stream);
        slot += bytes;
    }
    return st;
}

static void spell_out(operation_t *o, const coll_shape_t *s, int n)
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

/* The record of a call, cut into chunks that fit in slots. */
static gyre_status_t make_operation(coll_cuda_proxy_t *p, const coll_call_t *call, size_t esize,
                                    operation_t **out)
{
    const coll_shape_t *s = &call->shape;
    const int n = p->c->comm->n;
    gyre_status_t st = wait_for_room(p, p->operations_made, &p->operations_done, OPERATIONS);
    if (st != GYRE_OK)
        return st;
    operation_t *o = &p->operations[p->operations_made++ % OPERATIONS];
    o->shape = *s;
    o->scale = call->scale;
    spell_out(o, s, n);
    const int vector = s->op == COLL_ALL_REDUCE || s->op == COLL_REDUCE || s->op == COLL_BROADCAST;
    size_t longest = vector ? s->count : 0;
    for (int r = 0; !vector && r < n; r++)
        longest = base_max_size(longest, base_max_size(o->counts[r], o->rcounts[r]));
    o->chunk = p->slot / esize / (vector ? 1 : (size_t)n);
    o->chunks = (uint32_t)base_max_size((longest + o->chunk - 1) / o->chunk, 1);
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

/* Own blocks that the host's operation does not move: the root's of a broadcast that is not in place. */
static gyre_status_t copy_own(const coll_call_t *call, int me, size_t esize, cudaStream_t stream)
{
    const coll_shape_t *s = &call->shape;
    if (s->op != COLL_BROADCAST || s->root != me)
        return GYRE_OK;
    return copy(call->recv, call->send, s->count * esize, stream);
}

gyre_status_t coll_cuda_enqueue_staged(coll_cuda_t *c, const coll_call_t *call, cudaStream_t stream)
{
    coll_cuda_proxy_t *p = c->proxy;
    const coll_shape_t *s = &call->shape;
    const int n = c->comm->n, me = c->comm->rank;
    const size_t esize = s->op == COLL_BARRIER ? 1 : gyre_type_size(s->type);
    operation_t *o;
    uint32_t number[SLOTS];
    job_t jobs[SLOTS];
    gyre_status_t st = make_operation(p, call, esize, &o);
    if (st == GYRE_OK)
        st = copy_own(call, me, esize, stream);
    if (st != GYRE_OK)
        return st;
    const layout_t l = layout_of(s, o->counts, me);
    for (uint32_t k = 0; k < o->chunks + LAG && st == GYRE_OK; k++) {
        if (k < o->chunks) {
            const size_t place = p->collectives++ % SLOTS;
            job_t *job = &jobs[k % SLOTS];
            *job = (job_t){.kind = JOB_CHUNK, .operation = o, .chunk = k};
            job->in = p->memory + place * p->slot;
            job->out = p->memory + (SLOTS + place) * p->slot;
            char *to = s->op == COLL_BROADCAST ? job->out : job->in;
            if (l.in)
                st = copy_chunk(o, n, k, 0, &l, esize, (char *)(uintptr_t)call->send, to, stream);
            if (st == GYRE_OK)
                st = post(p, job, stream, &number[k % SLOTS]);
        }
        if (k < LAG || st != GYRE_OK)
            continue;
        const uint32_t back = k - LAG;
        if (back >= o->chunks)
            continue;
        st = await(p, &p->words->done, number[back % SLOTS], stream);
        if (st == GYRE_OK && l.out)
            st = copy_chunk(o, n, back, 1, &l, esize, call->recv, jobs[back % SLOTS].out, stream);
    }
    return st;
}

size_t coll_cuda_message_piece(const coll_cuda_t *c)
{
    return c->proxy->message;
}

gyre_status_t coll_cuda_enqueue_message(coll_cuda_t *c, coll_req_kind_t kind, void *buffer, size_t bytes,
                                        int peer, cudaStream_t stream)
{
    coll_cuda_proxy_t *p = c->proxy;
    char *sends = p->memory + (c->path == COLL_CUDA_STAGED ? 2 * SLOTS * p->slot : 0);
    job_t job = {.kind = kind == COLL_REQ_SEND ? JOB_SEND : JOB_RECV, .bytes = bytes, .peer = peer};
    job.direct = c->direct && c->direct[peer] && bytes > COMM_DIRECT_LEAST;
    char *slots = job.direct ? c->slots : sends;
    uint32_t number;
    gyre_status_t st = GYRE_OK;
    if (kind == COLL_REQ_SEND) {
        const uint32_t q = p->sends++;
        job.in = slots + q % SEND_SLOTS * p->message;
        if (q >= SEND_SLOTS)
            st = await(p, &p->words->sent, q - SEND_SLOTS + 1, stream);
        if (st == GYRE_OK)
            st = copy(job.in, buffer, bytes, stream);
        return st == GYRE_OK ? post(p, &job, stream, &number) : st;
    }
    job.out = slots + SEND_SLOTS * p->message;
    st = post(p, &job, stream, &number);
    if (st == GYRE_OK)
        st = await(p, &p->words->done, number, stream);
    return st == GYRE_OK ? copy(buffer, job.out, bytes, stream) : st;
}

/* ---- made and ended ---------------------------------------------------------------------------------------------------- */

/* A window, pinned; where the driver does not pin one, memory of its own, which the host's transports copy. */
static gyre_status_t allocate_slots(coll_cuda_proxy_t *p, size_t bytes)
{
    void *memory = NULL;
    gyre_status_t st = comm_mem_alloc(bytes, &memory);
    if (st != GYRE_OK)
        return st;
    p->memory = memory;
    p->window = 1;
    cudaError_t rc = cudaHostRegister(memory, bytes, cudaHostRegisterPortable);
    if (rc == cudaSuccess)
        return GYRE_OK;
    log_info("staging memory is copied by the host's transports: cudaHostRegister(%p, %zu): %s", memory,
             bytes, cudaGetErrorString(rc));
    (void)cudaGetLastError(); /* the runtime keeps the error; it is not the application's */
    p->memory = NULL;
    st = comm_mem_free(memory);
    if (st != GYRE_OK)
        return st;
    p->window = 0;
    rc = cudaHostAlloc((void **)&p->memory, bytes, cudaHostAllocPortable);
    return rc == cudaSuccess ? GYRE_OK
                             : coll_cuda_failed(rc, "cudaHostAlloc(%zu) for GYRE_CUDA_STAGING", bytes);
}

static void free_slots(coll_cuda_proxy_t *p)
{
    if (!p->memory)
        return;
    cudaError_t rc = p->window ? cudaHostUnregister(p->memory) : cudaFreeHost(p->memory);
    if (rc != cudaSuccess)
        log_info("staging memory of a communicator: %s", cudaGetErrorString(rc));
    if (p->window && rc == cudaSuccess && comm_mem_free(p->memory) != GYRE_OK)
        log_info("staging memory of a communicator: %s", gyre_last_error());
}

size_t coll_cuda_proxy_slots(const coll_cuda_t *c)
{
    return (SEND_SLOTS + 1) * c->proxy->message;
}

static gyre_status_t allocate(coll_cuda_proxy_t *p)
{
    coll_cuda_t *c = p->c;
    const size_t n = (size_t)c->comm->n, all = (size_t)base_setting_int(SET_CUDA_STAGING);
    const int staged = c->path == COLL_CUDA_STAGED;
    /* half for collectives, half for messages, which are all there is on the other path, and which more does not make faster */
    p->slot = staged ? all / 2 / (2 * SLOTS) & ~(size_t)63 : 0;
    p->message = base_min_size(all, MESSAGES) / 2 / (SEND_SLOTS + 1) & ~(size_t)63;
    if ((staged && p->slot < 16 * n) || p->message == 0)
        return gyre_fail(GYRE_ERR_INVALID, "GYRE_CUDA_STAGING=%s is too little for %zu ranks",
                         base_setting_string(SET_CUDA_STAGING), n);
    const size_t bytes = 2 * SLOTS * p->slot + (SEND_SLOTS + 1) * p->message;
    gyre_status_t st = allocate_slots(p, bytes);
    if (st != GYRE_OK)
        return st;
    cudaError_t rc =
        cudaHostAlloc((void **)&p->words, sizeof *p->words, cudaHostAllocPortable | cudaHostAllocMapped);
    if (rc != cudaSuccess)
        return coll_cuda_failed(rc, "cudaHostAlloc(%zu)", sizeof *p->words);
    memset(p->words, 0, sizeof *p->words);
    p->arrays = calloc((size_t)OPERATIONS * 6, n * sizeof *p->arrays);
    if (!p->arrays)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the blocks of %zu ranks", n);
    for (size_t i = 0; i < OPERATIONS; i++) {
        size_t *at = p->arrays + i * 6 * n;
        operation_t *o = &p->operations[i];
        o->counts = at;
        o->rcounts = at + n;
        o->displs = at + 2 * n;
        o->rdispls = at + 3 * n;
        o->piece = at + 4 * n;
        o->rpiece = at + 5 * n;
    }
    return GYRE_OK;
}

gyre_status_t coll_cuda_proxy_start(coll_cuda_t *c)
{
    coll_cuda_proxy_t *p = calloc(1, sizeof *p);
    if (!p)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a communicator's proxy");
    c->proxy = p;
    p->c = c;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->more, NULL);
    gyre_status_t st = allocate(p);
    if (st != GYRE_OK)
        return st;
    sigset_t all, before;
    sigfillset(&all); /* signals are the program's threads' business */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int rc = pthread_create(&p->thread, NULL, proxy_main, p);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    p->running = rc == 0;
    return rc == 0 ? GYRE_OK : gyre_fail_errno(GYRE_ERR_SYSTEM, rc, "starting a communicator's proxy");
}

void coll_cuda_proxy_stop(coll_cuda_t *c)
{
    coll_cuda_proxy_t *p = c->proxy;
    if (!p)
        return;
    if (p->running) {
        pthread_mutex_lock(&p->lock);
        atomic_store(&p->stop, 1);
        pthread_cond_signal(&p->more);
        pthread_mutex_unlock(&p->lock);
        pthread_join(p->thread, NULL);
    }
    for (uint32_t q = p->send_ended; q != p->send_began; q++)
        if (p->pending[q % SEND_SLOTS]) /* of a communicator that has failed: it ends at once */
            (void)gyre_wait(&p->pending[q % SEND_SLOTS]);
}

void coll_cuda_proxy_free(coll_cuda_t *c)
{
    coll_cuda_proxy_t *p = c->proxy;
    if (!p)
        return;
    free_slots(p);
    if (p->words)
        (void)cudaFreeHost(p->words);
    free(p->arrays);
    pthread_cond_destroy(&p->more);
    pthread_mutex_destroy(&p->lock);
    free(p);
    c->proxy = NULL;
}

#endif
