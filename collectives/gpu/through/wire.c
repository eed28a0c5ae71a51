/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/gpu/through/wire.c: long collectives between hosts from device memory to device memory, if
 * every rank can send so to every other (lent.c). No byte passes through the host's memory; kernels add.
 *
 *     reduce_scatter             part r of every rank goes to rank r, which adds in the canonical tree
 *     all_reduce, reduce         the same with shards of the vector; then the sums go to all (to the root)
 *     broadcast                  shards go from the root to all, and from there to all
 *     all_gather, gather,        parts go where they belong
 *     scatter, all_to_all
 *
 * Parts are cut into pieces. A *chunk* is piece k of all parts of an operation; it works in one of SETS sets
 * of places on the device:
 *
 *     set    | to rank 0 | ... | to rank n - 1 | from rank 0 | ... | from rank n - 1 |
 *
 *     stream    pack chunk k | signal the proxy | wait for chunk k - 1, add up | signal the proxy |
 *               wait for the sums of k - 2, unpack | ...
 *     proxy     exchange: parts of chunk k | sums of chunk k - 1 | parts of chunk k + 1 | ...
 *
 * Proxy and stream signal each other as for other jobs (proxy.h). The proxy begins an exchange while the one
 * before it still runs, so the network does not idle in between. Exchanges use lane 0 of the shadow's group,
 * like the collectives that the proxy runs for shorter operations: in the same order on all ranks.
 *
 * A set is packed again after the unpacking of the chunk that had it before, on the stream. That chunk's
 * messages have ended on this side by then. The peers send into the set only when this rank receives it,
 * never before.
 *
 * Messages have more than COMM_LEND_LEAST bytes, as lent memory needs. Shorter pieces, which are ends of
 * parts, are sent with the bytes after them. The tag has their true length, so ranks that disagree are
 * detected.
 *
 * Longer than 600 lines: the two sides of one exchange, stream and proxy, read together. */
#include "collectives/gpu/through/proxy.h"

#ifdef GYRE_CUDA

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/device/rdma.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/settings/settings.h"
#include "collectives/kernels/kernels.h"
#include "comm/lend.h"

enum {
    SETS = 3,        /* one is packed, one is on the wire, one is unpacked */
    ALIGNMENT = 512, /* of places */
    LEAST_MESSAGE = COMM_LEND_LEAST + ALIGNMENT,
    BLOCK_BYTES = 16 << 10, /* of a sum for which another block of the kernel is worth it */
    NAP_NS = 50 * 1000      /* the proxy's, which must see what streams post */
};

/* Phases of an operation. */
enum { PARTS = 0, SUMS = 1 };

/* Messages of one job with every other rank. */
typedef struct {
    uint32_t number; /* of the job; 0: none */
    int left;        /* messages that are under way */
    comm_msg_t *send, *recv;
    unsigned char *sent, *received; /* [n] 1: has ended, or there is none */
} exchange_t;

struct coll_cuda_wire {
    char *base;             /* [SETS][2 n] places on the device; a part of c->slots */
    size_t part;            /* bytes of a place */
    uint32_t sets;          /* handed out so far */
    comm_link_t **link;     /* [n] */
    exchange_t exchange[2]; /* the proxy's: job j is in [j % 2] */
    _Atomic int late;       /* as coll_cuda_wire_late gives it */
};

/* ---- what each rank sends to each other --------------------------------------------------------------- */

static size_t element(const coll_cuda_operation_t *o)
{
    return gyre_type_size(o->shape.type);
}

/* A vector in n shards, of whole vectors of 16 bytes but for the end. */
static size_t shard_of(size_t bytes, int n)
{
    return base_round_up((bytes + (size_t)n - 1) / (size_t)n, COLL_CUDA_ALIGN);
}

static size_t shard_at(const coll_cuda_operation_t *o, int n, int r)
{
    const size_t bytes = o->shape.count * element(o);
    return base_min_size(bytes, shard_of(bytes, n) * (size_t)r);
}

static size_t shard_bytes(const coll_cuda_operation_t *o, int n, int r)
{
    return shard_at(o, n, r + 1) - shard_at(o, n, r);
}

/* Bytes that rank `from` has for rank `to`, one of which is this one; of uneven operations it knows no
 * others. */
static size_t part_bytes(const coll_cuda_t *c, const coll_cuda_operation_t *o, int phase, int from, int to)
{
    const int n = c->comm->n, root = o->shape.root;
    switch (o->shape.op) {
    case COLL_ALL_REDUCE:
        return shard_bytes(o, n, phase == PARTS ? to : from);
    case COLL_REDUCE:
        return phase == PARTS ? shard_bytes(o, n, to) : to == root ? shard_bytes(o, n, from) : 0;
    case COLL_BROADCAST:
        if (phase == PARTS)
            return from == root ? shard_bytes(o, n, to) : 0;
        return to == root ? 0 : shard_bytes(o, n, from);
    case COLL_REDUCE_SCATTER:
        return o->counts[to] * element(o);
    case COLL_ALL_GATHER:
        return o->counts[from] * element(o);
    case COLL_GATHER:
        return to == root ? o->counts[from] * element(o) : 0;
    case COLL_SCATTER:
        return from == root ? o->counts[to] * element(o) : 0;
    default:
        return (from == c->comm->rank ? o->counts[to] : o->rcounts[from]) * element(o);
    }
}

/* What of it is in chunk k. */
static size_t piece_bytes(const coll_cuda_t *c, const coll_cuda_operation_t *o, int phase, int from, int to,
                          uint32_t k)
{
    const size_t all = part_bytes(c, o, phase, from, to), at = (size_t)k * c->wire->part;
    return all > at ? base_min_size(all - at, c->wire->part) : 0;
}

static size_t message_bytes(size_t bytes)
{
    return bytes ? base_max_size(bytes, LEAST_MESSAGE) : 0;
}

/* The address of this rank's packed part for `to`. A part that is the same for all ranks is packed once. */
static char *packed_for(const coll_cuda_t *c, const coll_cuda_operation_t *o, char *set, int to)
{
    const int once = o->shape.op == COLL_ALL_GATHER || o->shape.op == COLL_GATHER;
    return set + (size_t)(once ? c->comm->rank : to) * c->wire->part;
}

static char *place_from(const coll_cuda_t *c, char *set, int from)
{
    return set + (size_t)(c->comm->n + from) * c->wire->part;
}

/* What a message is sent from: a sum lies where this rank's own part did, a shard of a broadcast where it
 * came. */
static char *send_from(const coll_cuda_t *c, const coll_cuda_job_t *job, int to)
{
    const coll_cuda_operation_t *o = job->operation;
    if (job->phase == PARTS)
        return packed_for(c, o, job->in, to);
    if (o->shape.op == COLL_BROADCAST && c->comm->rank != o->shape.root)
        return place_from(c, job->in, o->shape.root);
    return packed_for(c, o, job->in, c->comm->rank);
}

/* Where it goes: the root's own shard of a broadcast not to where the one came that this rank sends on. */
static char *receive_to(const coll_cuda_t *c, const coll_cuda_operation_t *o, int phase, char *set, int from)
{
    const int aside = phase == SUMS && o->shape.op == COLL_BROADCAST && from == o->shape.root;
    return place_from(c, set, aside ? c->comm->rank : from);
}

/* ---- the proxy's side: exchanges ----------------------------------------------------------------------- */

static comm_tag_t tag_of(const coll_cuda_job_t *job, size_t bytes)
{
    const uint64_t words[3] = {(uint64_t)job->phase, job->chunk, bytes};
    const uint64_t h = base_hash64(words, sizeof words, job->operation->call.sig);
    return (comm_tag_t){.seq = job->operation->call.seq, .sig = (uint32_t)(h ^ (h >> 32))};
}

static void begin(const coll_cuda_t *c, exchange_t *x, uint32_t number, const coll_cuda_job_t *job)
{
    const int n = c->comm->n, me = c->comm->rank;
    x->number = number;
    x->left = 0;
    memset(x->send, 0, (size_t)n * sizeof *x->send);
    memset(x->recv, 0, (size_t)n * sizeof *x->recv);
    for (int r = 0; r < n; r++) {
        x->sent[r] = r == me || piece_bytes(c, job->operation, job->phase, me, r, job->chunk) == 0;
        x->received[r] = r == me || piece_bytes(c, job->operation, job->phase, r, me, job->chunk) == 0;
        x->left += !x->sent[r] + !x->received[r];
    }
}

static gyre_status_t move_send(const coll_cuda_t *c, exchange_t *x, const coll_cuda_job_t *job, int to,
                               int *moved)
{
    const size_t bytes = piece_bytes(c, job->operation, job->phase, c->comm->rank, to, job->chunk);
    const uint64_t done = x->send[to].done;
    gyre_status_t st = comm_send(c->wire->link[to], send_from(c, job, to), message_bytes(bytes),
                                 tag_of(job, bytes), &x->send[to]);
    x->sent[to] = st == GYRE_OK;
    x->left -= st == GYRE_OK;
    *moved |= st == GYRE_OK || x->send[to].done != done;
    return st == GYRE_IN_PROGRESS ? GYRE_OK : st;
}

static gyre_status_t move_receive(const coll_cuda_t *c, exchange_t *x, const coll_cuda_job_t *job, int from,
                                  int *moved)
{
    const size_t bytes = piece_bytes(c, job->operation, job->phase, from, c->comm->rank, job->chunk);
    const uint64_t done = x->recv[from].done;
    gyre_status_t st =
        comm_recv(c->wire->link[from], receive_to(c, job->operation, job->phase, job->in, from),
                  message_bytes(bytes), tag_of(job, bytes), &x->recv[from]);
    x->received[from] = st == GYRE_OK;
    x->left -= st == GYRE_OK;
    *moved |= st == GYRE_OK || x->recv[from].done != done;
    return st == GYRE_IN_PROGRESS ? GYRE_OK : st;
}

/* One look at all messages of a job. first: the job before it that has not ended, or NULL: a lane's messages
 * begin in order, and are received one at a time. The caller is driving the shadow. */
static gyre_status_t move(const coll_cuda_t *c, exchange_t *x, const coll_cuda_job_t *job,
                          const exchange_t *first, int *moved)
{
    const int n = c->comm->n, me = c->comm->rank;
    gyre_status_t st = GYRE_OK;
    for (int i = 1; i < n && st == GYRE_OK && x->left > 0; i++) {
        const int to = (me + i) % n, from = (me + n - i) % n; /* not all to one */
        if (!x->sent[to] && (!first || first->sent[to] || comm_send_accepted(&first->send[to])))
            st = move_send(c, x, job, to, moved);
        if (st == GYRE_OK && !x->received[from] && (!first || first->received[from]))
            st = move_receive(c, x, job, from, moved);
    }
    return st;
}

/* The job after `number`, if it is an exchange that the stream has come to. */
static const coll_cuda_job_t *next_exchange(const coll_cuda_proxy_t *p, uint32_t number)
{
    const coll_cuda_job_t *next = &p->jobs[(number + 1) % COLL_CUDA_JOBS];
    if ((int32_t)(atomic_load(&p->made) - (number + 1)) < 0 ||
        (int32_t)(coll_cuda_read(&p->words->posted) - (number + 1)) < 0)
        return NULL;
    return next->kind == COLL_CUDA_EXCHANGE ? next : NULL;
}

/* One look at everything that the proxy has under way. */
static gyre_status_t look(coll_cuda_proxy_t *p, uint32_t number, int *moved)
{
    coll_cuda_t *c = p->c;
    gyre_comm_t *shadow = c->shadow;
    exchange_t *x = &c->wire->exchange[number % 2], *y = &c->wire->exchange[(number + 1) % 2];
    const coll_cuda_job_t *next = next_exchange(p, number);
    coll_drive(shadow);
    gyre_status_t st = move(c, x, &p->jobs[number % COLL_CUDA_JOBS], NULL, moved);
    if (st == GYRE_OK && next) {
        if (y->number != number + 1)
            begin(c, y, number + 1, next);
        st = move(c, y, next, x, moved);
    }
    if (st == GYRE_OK) { /* messages, deaths, aborts */
        *moved |= coll_comm_advance_driving(shadow);
        st = (gyre_status_t)atomic_load(&shadow->error);
        if (st != GYRE_OK)
            gyre_fail_quiet(st, "%s", shadow->error_text);
    }
    coll_stop_driving(shadow);
    return st;
}

/* The rank that it waits for: of those that have not sent their parts, or else not received this rank's, the
 * first. */
static int late_rank(const coll_cuda_t *c, const exchange_t *x)
{
    const unsigned char *ended[2] = {x->received, x->sent};
    for (int i = 0; i < 2; i++)
        for (int r = 0; r < c->comm->n; r++)
            if (!ended[i][r])
                return r;
    return -1;
}

/* -1: it waits for none any more. */
static void note_late(coll_cuda_t *c, int rank)
{
    if (atomic_exchange(&c->wire->late, rank) != rank)
        coll_cuda_tell_late(c, rank);
}

int coll_cuda_wire_late(const coll_cuda_t *c)
{
    return c->wire ? atomic_load(&c->wire->late) : -1;
}

gyre_status_t coll_cuda_run_exchange(coll_cuda_proxy_t *p, uint32_t number)
{
    coll_cuda_t *c = p->c;
    gyre_comm_t *shadow = c->shadow;
    exchange_t *x = &c->wire->exchange[number % 2];
    const base_time_t began = base_now(), deadline = began + shadow->timeout_ns;
    base_time_t still = began; /* since when nothing has moved */
    comm_wait_t wait;
    gyre_status_t st = GYRE_OK;
    if (x->number != number)
        begin(c, x, number, &p->jobs[number % COLL_CUDA_JOBS]);
    comm_wait_begin(&wait, shadow->group, deadline);
    while (x->left > 0 && st == GYRE_OK) {
        int moved = 0;
        st = look(p, number, &moved);
        if (st != GYRE_OK)
            break;
        const base_time_t now = base_now();
        if (moved) {
            still = now;
            note_late(c, -1);
            comm_wait_moved(&wait);
            continue;
        }
        if (now - still > COLL_CUDA_LONG_NS || now >= deadline)
            note_late(c, late_rank(c, x));
        if (now >= deadline) {
            st = gyre_fail_quiet(GYRE_ERR_TIMEOUT, "did not finish within %g s (GYRE_TIMEOUT)",
                                 shadow->timeout_s);
            break;
        }
        /* what a stream posts rings no doorbell here: sleep briefly only */
        const base_time_t soon = now + NAP_NS;
        wait.deadline = soon < deadline ? soon : deadline;
        coll_drive(shadow);
        st = comm_wait_idle(&wait);
        coll_stop_driving(shadow);
        if (st == GYRE_OK)
            st = comm_wait_rest(&wait);
        if (st == GYRE_ERR_TIMEOUT)
            st = GYRE_OK;
    }
    comm_wait_end(&wait);
    return st == GYRE_OK && c->flush ? base_device_rdma_flush((base_device_t){BASE_CUDA, c->device}) : st;
}

/* ---- the stream's side --------------------------------------------------------------------------------- */

/* Where this rank's part for `to` lies in what the program sends. */
static size_t send_at(const coll_cuda_t *c, const coll_cuda_operation_t *o, int to)
{
    if (coll_op_is_vector(o->shape.op))
        return shard_at(o, c->comm->n, to);
    if (o->shape.op == COLL_ALL_GATHER || o->shape.op == COLL_GATHER)
        return 0;
    return o->displs[to] * element(o);
}

/* Where what came from `from` goes in what it receives. */
static size_t receive_at(const coll_cuda_t *c, const coll_cuda_operation_t *o, int from)
{
    if (coll_op_is_vector(o->shape.op))
        return shard_at(o, c->comm->n, from);
    if (o->shape.op == COLL_REDUCE_SCATTER || o->shape.op == COLL_SCATTER)
        return 0;
    return o->rdispls[from] * element(o);
}

static int blocks_for(const coll_cuda_t *c, size_t bytes)
{
    return (int)base_min_size((size_t)c->blocks, bytes / BLOCK_BYTES + 1);
}

static gyre_status_t scale(const coll_cuda_t *c, coll_cuda_op_t *op, char *to, const char *from, size_t bytes,
                           cudaStream_t stream)
{
    op->in = from;
    op->out = to;
    cudaError_t rc = coll_cuda_launch_scale(op, bytes, blocks_for(c, bytes), stream);
    return rc == cudaSuccess ? GYRE_OK
                             : coll_cuda_failed(rc, "launching a kernel that scales %zu bytes", bytes);
}

static gyre_status_t pack(const coll_cuda_t *c, const coll_cuda_operation_t *o, coll_cuda_op_t *op,
                          uint32_t k, char *set, const char *send, cudaStream_t stream)
{
    const int n = c->comm->n, me = c->comm->rank;
    const size_t at = (size_t)k * c->wire->part;
    const char *last = NULL;
    gyre_status_t st = GYRE_OK;
    for (int i = 1; i <= n && st == GYRE_OK; i++) {
        const int to = (me + i) % n;
        const size_t bytes = piece_bytes(c, o, PARTS, me, to, k);
        char *place = packed_for(c, o, set, to);
        /* the own part where it is added up, or sent on as the root's shard of a broadcast */
        if (bytes == 0 || place == last ||
            (to == me && !coll_op_is_vector(o->shape.op) && !coll_op_reduces(o->shape.op)))
            continue;
        const char *from = send + send_at(c, o, to) + at;
        st = o->shape.scaled ? scale(c, op, place, from, bytes, stream)
                             : coll_cuda_proxy_copy(place, from, bytes, stream);
        last = place;
    }
    return st;
}

/* This rank's share of the sum of a chunk: to where its own part was packed, if the sum goes on to others,
 * else to its place. */
static gyre_status_t add_up(const coll_cuda_t *c, const coll_cuda_operation_t *o, coll_cuda_op_t *op,
                            uint32_t k, char *set, char *recv, cudaStream_t stream)
{
    const int n = c->comm->n, me = c->comm->rank;
    const size_t bytes = piece_bytes(c, o, PARTS, me, me, k);
    if (bytes == 0)
        return GYRE_OK;
    for (int r = 0; r < n; r++)
        op->arena[r] = r == me ? packed_for(c, o, set, me) : place_from(c, set, r);
    op->sum_to = o->shape.op == COLL_REDUCE_SCATTER ? recv + (size_t)k * c->wire->part : op->arena[me];
    op->sum_bytes = bytes;
    cudaError_t rc = coll_cuda_launch_add(op, blocks_for(c, bytes), stream);
    return rc == cudaSuccess ? GYRE_OK
                             : coll_cuda_failed(rc, "launching a kernel that adds up %zu bytes", bytes);
}

/* What came in a phase goes to the program's memory, and this rank's own share of it. */
static gyre_status_t unpack(const coll_cuda_t *c, const coll_cuda_operation_t *o, int phase, uint32_t k,
                            char *set, char *recv, cudaStream_t stream)
{
    const int n = c->comm->n, me = c->comm->rank;
    const size_t at = (size_t)k * c->wire->part;
    gyre_status_t st = GYRE_OK;
    for (int i = 1; i <= n && st == GYRE_OK; i++) {
        const int from = (me + n - i) % n;
        size_t bytes = piece_bytes(c, o, phase, from, me, k);
        const char *place = receive_to(c, o, phase, set, from);
        if (from ==
            me) { /* a shard: the sum, or what the root has sent; all else was copied at the beginning */
            bytes = phase == SUMS ? bytes : 0;
            place =
                o->shape.op == COLL_BROADCAST ? place_from(c, set, o->shape.root) : packed_for(c, o, set, me);
        }
        if (bytes)
            st = coll_cuda_proxy_copy(recv + receive_at(c, o, from) + at, place, bytes, stream);
    }
    return st;
}

/* Own blocks that are not sent, at the beginning. */
static gyre_status_t copy_own(const coll_cuda_t *c, const coll_cuda_operation_t *o, const coll_call_t *call,
                              cudaStream_t stream)
{
    const int me = c->comm->rank, root = o->shape.root;
    const char *send = call->send;
    char *recv = call->recv;
    switch (o->shape.op) {
    case COLL_BROADCAST:
        return me == root ? coll_cuda_proxy_copy(recv, send, o->shape.count * element(o), stream) : GYRE_OK;
    case COLL_GATHER:
    case COLL_SCATTER:
        if (me != root)
            return GYRE_OK;
        break;
    case COLL_ALL_GATHER:
    case COLL_ALL_TO_ALL:
        break;
    default:
        return GYRE_OK;
    }
    const size_t bytes = part_bytes(c, o, PARTS, me, me);
    return bytes ? coll_cuda_proxy_copy(recv + receive_at(c, o, me), send + send_at(c, o, me), bytes, stream)
                 : GYRE_OK;
}

/* Chunks of the longest part that this rank sends or receives; of vectors, the longest of all, as their sums
 * follow in all ranks' order. */
static uint32_t chunks_of(const coll_cuda_t *c, const coll_cuda_operation_t *o)
{
    const int n = c->comm->n, me = c->comm->rank;
    size_t most = coll_op_is_vector(o->shape.op) ? shard_bytes(o, n, 0) : 0;
    for (int r = 0; r < n; r++) {
        most = base_max_size(most, part_bytes(c, o, PARTS, me, r));
        most = base_max_size(most, part_bytes(c, o, PARTS, r, me));
    }
    return (uint32_t)base_max_size((most + c->wire->part - 1) / c->wire->part, 1);
}

static gyre_status_t post(const coll_cuda_t *c, coll_cuda_operation_t *o, int phase, uint32_t k, char *set,
                          int last, cudaStream_t stream, uint32_t *number)
{
    const coll_cuda_job_t job = {
        .kind = COLL_CUDA_EXCHANGE, .operation = o, .chunk = k, .phase = phase, .last = last, .in = set};
    return coll_cuda_proxy_post(c->proxy, &job, stream, number);
}

gyre_status_t coll_cuda_enqueue_wire(coll_cuda_t *c, const coll_call_t *call, uint32_t sig,
                                     cudaStream_t stream)
{
    coll_cuda_proxy_t *p = c->proxy;
    const coll_op_t kind = call->shape.op;
    const int twice = coll_op_is_vector(kind);
    coll_cuda_operation_t *o;
    coll_cuda_op_t op;
    uint32_t parts[SETS], sums[SETS];
    char *set[SETS];
    int blocks;
    gyre_status_t st = coll_cuda_make_operation(p, call, &o);
    if (st != GYRE_OK)
        return st;
    coll_cuda_describe(c, &call->shape, 0, &op, &blocks);
    op.scale = call->scale;
    op.whole = coll_kernel_whole(call->scale);
    o->call.sig = sig;
    o->chunks = chunks_of(c, o);
    st = copy_own(c, o, call, stream);
    for (uint32_t k = 0; k < o->chunks + 2 && st == GYRE_OK; k++) {
        if (k < o->chunks) {
            char **to = &set[k % SETS];
            *to = c->wire->base + (size_t)(c->wire->sets++ % SETS) * 2 * (size_t)c->comm->n * c->wire->part;
            st = pack(c, o, &op, k, *to, call->send, stream);
            if (st == GYRE_OK)
                st = post(c, o, PARTS, k, *to, !twice && k + 1 == o->chunks, stream, &parts[k % SETS]);
        }
        if (k >= 1 && k - 1 < o->chunks && st == GYRE_OK) {
            const uint32_t i = k - 1;
            st = coll_cuda_proxy_await(p, &p->words->done, parts[i % SETS], stream);
            if (st == GYRE_OK && coll_op_reduces(kind))
                st = add_up(c, o, &op, i, set[i % SETS], call->recv, stream);
            else if (st == GYRE_OK && !twice)
                st = unpack(c, o, PARTS, i, set[i % SETS], call->recv, stream);
            if (st == GYRE_OK && twice)
                st = post(c, o, SUMS, i, set[i % SETS], i + 1 == o->chunks, stream, &sums[i % SETS]);
        }
        if (k >= 2 && twice && st == GYRE_OK) {
            const uint32_t i = k - 2;
            st = coll_cuda_proxy_await(p, &p->words->done, sums[i % SETS], stream);
            if (st == GYRE_OK && call->recv)
                st = unpack(c, o, SUMS, i, set[i % SETS], call->recv, stream);
        }
    }
    return st;
}

/* The longest part of an operation whose lengths all ranks know. */
static size_t longest_part(const coll_cuda_t *c, const coll_shape_t *s)
{
    const size_t esize = gyre_type_size(s->type);
    size_t most = 0;
    if (coll_op_is_vector(s->op))
        return shard_of(s->count * esize, c->comm->n);
    for (int r = 0; r < c->comm->n; r++)
        most = base_max_size(most, coll_cuda_count(s, r) * esize);
    return most;
}

int coll_cuda_wire_takes(const coll_cuda_t *c, const coll_shape_t *s)
{
    if (!c->wire || s->op == COLL_BARRIER || !coll_cuda_adds(s))
        return 0;
    return coll_shape_is_uneven(s) || longest_part(c, s) > COMM_LEND_LEAST;
}

uint32_t coll_cuda_wire_rounds(const coll_cuda_t *c, const coll_shape_t *s)
{
    const size_t chunks = (longest_part(c, s) + c->wire->part - 1) / c->wire->part;
    return (uint32_t)(chunks * (coll_op_is_vector(s->op) ? 2 : 1));
}

/* ---- made and ended ------------------------------------------------------------------------------------ */

size_t coll_cuda_wire_bytes(const coll_cuda_t *c)
{
    const size_t places = (size_t)SETS * 2 * (size_t)c->comm->n;
    const size_t part = (size_t)base_setting_int(SET_CUDA_STAGING) / places & ~(size_t)(ALIGNMENT - 1);
    return c->path == COLL_CUDA_STAGED && c->comm->n <= COLL_CUDA_RANKS && part >= LEAST_MESSAGE
               ? part * places
               : 0;
}

static gyre_status_t allocate(coll_cuda_wire_t *w, size_t n)
{
    w->link = calloc(n, sizeof(comm_link_t *));
    int made = w->link != NULL;
    for (int i = 0; i < 2; i++) {
        exchange_t *x = &w->exchange[i];
        x->send = calloc(2 * n, sizeof *x->send);
        x->sent = calloc(2 * n, 1);
        made = made && x->send && x->sent;
        x->recv = x->send ? x->send + n : NULL;
        x->received = x->sent ? x->sent + n : NULL;
    }
    return made ? GYRE_OK : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the messages of %zu ranks", n);
}

gyre_status_t coll_cuda_wire_start(coll_cuda_t *c, char *base)
{
    const int n = c->comm->n;
    c->wire = calloc(1, sizeof *c->wire);
    if (!c->wire)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for collectives between %d hosts", n);
    c->wire->base = base;
    atomic_init(&c->wire->late, -1);
    c->wire->part = coll_cuda_wire_bytes(c) / ((size_t)SETS * 2 * (size_t)n);
    gyre_status_t st = allocate(c->wire, (size_t)n);
    coll_drive(c->shadow);
    for (int r = 0; r < n && st == GYRE_OK; r++)
        if (r != c->comm->rank)
            st = comm_group_link(c->shadow->group, r, 0, &c->wire->link[r]);
    coll_stop_driving(c->shadow);
    return st;
}

void coll_cuda_wire_stop(coll_cuda_t *c)
{
    coll_cuda_wire_t *w = c->wire;
    if (!w)
        return;
    for (int i = 0; i < 2; i++) {
        free(w->exchange[i].send);
        free(w->exchange[i].sent);
    }
    free(w->link);
    free(w);
    c->wire = NULL;
}

#endif
