/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/gpu/mail/peer.c: messages between ranks that map each other's device memory, from device to
 * device (collectives/gpu/mail/mail.h): places in rings, and the work that is enqueued for a piece. Streams
 * wait if the driver lets them (cuStreamWaitValue32): then no kernel holds a device that the other rank may
 * need. Copy engines move long pieces, a block moves short ones.
 *
 * The room for messages on their way is divided among the peers once, since both ends of a ring must know its
 * place before either has called. A communicator of the ranks that exchange messages (gyre_comm_split) gives
 * all of it to them. */
#include "collectives/gpu/state.h"

#ifdef GYRE_CUDA

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "collectives/gpu/mail/mail.h"

enum {
    PIECES = 4,      /* that a ring holds of a long message */
    TURNS = 2048,    /* of which it is known what they are; a stream takes some thousand launches ahead */
    LEAST = 64 << 10 /* bytes of a ring */
};

/* CUresult cuStreamWriteValue32(CUstream, CUdeviceptr, cuuint32_t, unsigned) */
typedef int (*write_fn)(cudaStream_t stream, unsigned long long address, uint32_t value, unsigned flags);

/* In pinned memory. */
typedef struct {
    coll_cuda_mail_board_t board;
    uint32_t release[2 * COLL_CUDA_RANKS]; /* came and taken, beyond all that is waited for */
} words_t;

struct coll_cuda_mail {
    size_t room; /* of a ring */
    words_t *words;
    write_fn write; /* NULL: the driver has none */
    uint32_t turn;
    pthread_mutex_t lock;       /* of calls: the guard reads there */
    comm_call_t calls[TURNS];   /* turn t is [t % TURNS] */
    coll_mail_ring_t *out, *in; /* [n] to and from each rank */
    _Atomic uint32_t sent[COLL_CUDA_RANKS],
        got[COLL_CUDA_RANKS]; /* pieces enqueued: ring->count, for the guard */
    uint32_t sends[COLL_CUDA_RANKS], receives[COLL_CUDA_RANKS]; /* messages */
};

/* Rings have as much together as the blocks, and no more than half of that each. */
static size_t ring_bytes(size_t staging, int n)
{
    const size_t each = staging / (size_t)(n > 2 ? n - 1 : 2);
    return base_max_size(each, LEAST) & ~(size_t)(COLL_MAIL_ALIGN - 1);
}

size_t coll_cuda_mail_bytes(size_t staging, int n)
{
    _Static_assert(sizeof(coll_cuda_mail_head_t) <= COLL_CUDA_MAIL, "the head has its place");
    return n > 1 ? COLL_CUDA_MAIL + ring_bytes(staging, n) * (size_t)(n - 1) : 0;
}

gyre_status_t coll_cuda_mail_clear(char *mail, cudaStream_t stream)
{
    return coll_cuda_clear(mail, COLL_CUDA_MAIL, stream);
}

gyre_status_t coll_cuda_mail_start(coll_cuda_t *c)
{
    const size_t n = (size_t)c->comm->n;
    void *write = NULL;
    coll_cuda_mail_t *m = calloc(1, sizeof *m);
    if (!m)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for messages between devices");
    c->mail = m;
    pthread_mutex_init(&m->lock, NULL);
    m->room = ring_bytes(c->region * (size_t)c->blocks, c->comm->n);
    m->out = calloc(2 * n, sizeof *m->out);
    if (!m->out)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the rings of %zu ranks", n);
    m->in = m->out + n;
    cudaError_t rc =
        cudaHostAlloc((void **)&m->words, sizeof *m->words, cudaHostAllocPortable | cudaHostAllocMapped);
    if (rc != cudaSuccess)
        return coll_cuda_failed(rc, "cudaHostAlloc(%zu)", sizeof *m->words);
    memset(m->words, 0, sizeof *m->words);
    rc = coll_cuda_load_mail();
    if (rc != cudaSuccess)
        return coll_cuda_failed(rc, "loading the kernel of messages on device %d", c->device);
    if (c->wait && base_device_driver("cuStreamWriteValue32", &write) == GYRE_OK)
        memcpy(&m->write, &write, sizeof m->write);
    snprintf(c->messages, sizeof c->messages,
             "from device memory to device memory, %zu KiB at most on their way to each rank; %s wait",
             m->room >> 10, c->wait ? "streams" : "kernels");
    return GYRE_OK;
}

void coll_cuda_mail_free(coll_cuda_t *c)
{
    coll_cuda_mail_t *m = c->mail;
    if (!m)
        return;
    if (m->words)
        (void)cudaFreeHost(m->words);
    free(m->out);
    pthread_mutex_destroy(&m->lock);
    free(m);
    c->mail = NULL;
}

size_t coll_cuda_mail_piece(const coll_cuda_t *c)
{
    return c->mail->room / PIECES & ~(size_t)(COLL_MAIL_ALIGN - 1);
}

/* ---- the stream's side --------------------------------------------------------------------------------- */

static coll_cuda_mail_head_t *head_of(const coll_cuda_t *c, int rank)
{
    return (coll_cuda_mail_head_t *)(c->arena[rank] + c->mail_at);
}

/* The ring in the memory of `from` for messages to `to`. */
static char *ring_of(const coll_cuda_t *c, int from, int to)
{
    const size_t index = (size_t)(to < from ? to : to - 1);
    return c->arena[from] + c->mail_at + COLL_CUDA_MAIL + index * c->mail->room;
}

static gyre_status_t launch(const coll_cuda_piece_t *piece, cudaStream_t stream)
{
    cudaError_t rc = coll_cuda_launch_piece(piece, stream);
    return rc == cudaSuccess
               ? GYRE_OK
               : coll_cuda_failed(rc, "launching the kernel of messages on stream %p", (void *)stream);
}

/* The guard must know since when the stream waits. */
static gyre_status_t mark(const coll_cuda_mail_t *m, uint32_t turn, cudaStream_t stream)
{
    uint32_t *began = &m->words->board.began;
    if (m->write) {
        const int rc = m->write(stream, (unsigned long long)(uintptr_t)began, turn, 0);
        return rc == 0 ? GYRE_OK
                       : coll_cuda_failed((cudaError_t)rc, "cuStreamWriteValue32 of a message on stream %p",
                                          (void *)stream);
    }
    cudaError_t rc = coll_cuda_launch_post(began, turn, stream);
    return rc == cudaSuccess
               ? GYRE_OK
               : coll_cuda_failed(rc, "launching a kernel of one thread on stream %p", (void *)stream);
}

/* Makes the stream wait until the piece may be moved. If kernels wait, the kernel of a short piece waits
 * itself. */
static gyre_status_t wait_for_turn(const coll_cuda_t *c, const coll_cuda_piece_t *piece, size_t bytes,
                                   cudaStream_t stream)
{
    if (c->wait) {
        gyre_status_t st = mark(c->mail, piece->turn, stream);
        return st == GYRE_OK ? coll_cuda_stream_wait(c, piece->wait, piece->until, "a message", stream) : st;
    }
    if (bytes <= COLL_CUDA_SHORT)
        return GYRE_OK;
    coll_cuda_piece_t waits = *piece;
    waits.tell = NULL;
    waits.bytes = 0;
    return launch(&waits, stream);
}

static gyre_status_t enqueue(const coll_cuda_t *c, coll_cuda_piece_t *piece, size_t bytes, int waits,
                             cudaStream_t stream)
{
    gyre_status_t st = waits ? wait_for_turn(c, piece, bytes, stream) : GYRE_OK;
    if (st != GYRE_OK)
        return st;
    piece->bytes = bytes;
    if (bytes > COLL_CUDA_SHORT) {
        piece->bytes = 0;
        cudaError_t rc = cudaMemcpyAsync(piece->to, piece->from, bytes, cudaMemcpyDeviceToDevice, stream);
        if (rc != cudaSuccess)
            return coll_cuda_failed(rc, "cudaMemcpyAsync(%p, %p, %zu) of a message", (void *)piece->to,
                                    (const void *)piece->from, bytes);
    }
    return launch(piece, stream);
}

gyre_status_t coll_cuda_mail_enqueue(const coll_cuda_message_t *message, uint32_t k, size_t at, size_t bytes)
{
    coll_cuda_t *c = message->c;
    coll_cuda_mail_t *m = c->mail;
    const int sends = message->kind == COLL_REQ_SEND, me = c->comm->rank, peer = message->as.root;
    coll_cuda_mail_head_t *mine = head_of(c, me), *theirs = head_of(c, peer);
    coll_mail_ring_t *ring = sends ? &m->out[peer] : &m->in[peer];
    uint64_t fetched;
    char *place = sends ? ring_of(c, me, peer) : ring_of(c, peer, me);
    place += coll_mail_ring_next(ring, m->room, bytes, &fetched);
    const uint32_t number = (uint32_t)ring->count;
    atomic_store_explicit(sends ? &m->sent[peer] : &m->got[peer], number, memory_order_relaxed);
    uint32_t *messages = sends ? &m->sends[peer] : &m->receives[peer];
    *messages += k == 0;
    const uint32_t turn = ++m->turn;
    pthread_mutex_lock(&m->lock);
    m->calls[turn % TURNS] = message->as;
    m->calls[turn % TURNS].seq = *messages;
    pthread_mutex_unlock(&m->lock);
    coll_cuda_piece_t piece = {.wait = sends ? &mine->taken[peer] : &mine->came[peer],
                               .until = sends ? (uint32_t)fetched : number,
                               .turn = turn,
                               .letter = sends ? &theirs->letters[me][number % COLL_MAIL_LETTERS]
                                               : &mine->letters[peer][number % COLL_MAIL_LETTERS],
                               .text = {.bytes = message->bytes, .piece = k},
                               .to = sends ? place : message->buffer + at,
                               .from = sends ? message->buffer + at : place,
                               .tell = sends ? &theirs->came[me] : &theirs->taken[me],
                               .number = number,
                               .peer = peer,
                               .takes = !sends,
                               .abort = &c->board->abort,
                               .over = &((coll_cuda_head_t *)c->arena[c->comm->rank])->over,
                               .board = &m->words->board};
    return enqueue(c, &piece, bytes, !sends || fetched > 0, message->stream);
}

/* ---- the guard's side ---------------------------------------------------------------------------------- */

static comm_call_t call_of(coll_cuda_mail_t *m, uint32_t turn)
{
    pthread_mutex_lock(&m->lock);
    const comm_call_t call = m->calls[turn % TURNS];
    pthread_mutex_unlock(&m->lock);
    return call;
}

int coll_cuda_mail_waits(const coll_cuda_t *c, uint32_t *turn, comm_call_t *call)
{
    coll_cuda_mail_t *m = c->mail;
    if (!m)
        return 0;
    *turn = coll_cuda_read(&m->words->board.began);
    *call = call_of(m, *turn);
    return *turn != coll_cuda_read(&m->words->board.ended);
}

int coll_cuda_mail_wrong(const coll_cuda_t *c)
{
    const coll_cuda_mail_t *m = c->mail;
    const int peer = m ? (int)coll_cuda_read(&m->words->board.wrong) - 1 : -1;
    if (peer < 0)
        return 0;
    char mine[160];
    const comm_call_t call = call_of(c->mail, coll_cuda_read(&m->words->board.turn));
    coll_call_text(&call, mine, sizeof mine);
    const uint64_t expected = call.count * gyre_type_size((gyre_type_t)call.type);
    if (m->words->board.bytes != expected)
        gyre_fail_quiet(GYRE_ERR_MISMATCH,
                        "rank %d called %s, %llu bytes, but what rank %d sent has %llu bytes: messages are "
                        "matched in the order of their calls, and both ends must have one length",
                        c->comm->rank, mine, (unsigned long long)expected, peer,
                        (unsigned long long)m->words->board.bytes);
    else
        gyre_fail_quiet(
            GYRE_ERR_MISMATCH,
            "rank %d called %s, but piece %u of another message came from rank %d: the pieces of a "
            "group's messages must come in the same order on both ends",
            c->comm->rank, mine, m->words->board.piece, peer);
    return 1;
}

const char *coll_cuda_mail_mover(const coll_cuda_t *c, size_t bytes)
{
    return !c->mail ? "message" : bytes > COLL_CUDA_SHORT ? "engines" : "kernel";
}

void coll_cuda_mail_release(const coll_cuda_t *c)
{
    coll_cuda_mail_t *m = c->mail;
    if (!m || !c->wait)
        return;
    for (int r = 0; r < COLL_CUDA_RANKS; r++) {
        m->words->release[r] = atomic_load_explicit(&m->got[r], memory_order_relaxed) + (1u << 30);
        m->words->release[COLL_CUDA_RANKS + r] =
            atomic_load_explicit(&m->sent[r], memory_order_relaxed) + (1u << 30);
    }
    _Static_assert(offsetof(coll_cuda_mail_head_t, came) == 0 &&
                       offsetof(coll_cuda_mail_head_t, taken) == COLL_CUDA_RANKS * sizeof(uint32_t),
                   "one copy writes both");
    if (cudaMemcpyAsync(head_of(c, c->comm->rank), m->words->release, sizeof m->words->release,
                        cudaMemcpyHostToDevice, c->rescue) != cudaSuccess)
        (void)cudaGetLastError(); /* the device itself has failed, and with it the stream */
}

#endif
