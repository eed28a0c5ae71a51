/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/gpu/through/proxy.h: shared by the files that work through pinned memory of the host: the
 * proxy, a thread per communicator that does the host's work for streams (proxy.c), its chunks of collectives
 * (staged.c) and its messages (collectives/gpu/mail/messages.c).
 *
 *     stream    copy chunk k + 1 out | signal the proxy | wait until chunk k is done | copy chunk k in | ...
 *     proxy     the host's collective of the same kind, or a message, on a communicator of its own
 *
 * Stream and proxy signal each other by counters in pinned memory: a kernel of one thread stores `posted`,
 * and the stream waits for `done` (cuStreamWaitValue32; with GYRE_CUDA_WAIT=kernel another kernel of one
 * thread does). Jobs are numbered over all operations. The stream posts them in order, as operations of a
 * communicator are in order (collectives/gpu/call/enqueue.c), and the proxy does them in order. Slots are
 * windows (comm/memory/memory.h) that are also pinned: local peers map them, and adapters read and write them
 * without a copy. */
#ifndef COLLECTIVES_GPU_THROUGH_PROXY_H
#define COLLECTIVES_GPU_THROUGH_PROXY_H

#include "collectives/gpu/state.h"

#ifdef GYRE_CUDA

#include <pthread.h>

enum {
    COLL_CUDA_SLOTS = 4,       /* of collectives */
    COLL_CUDA_SENDS = 8,       /* messages on their way */
    COLL_CUDA_JOBS = 512,      /* most jobs posted or to be posted: more than a stream has room for */
    COLL_CUDA_OPERATIONS = 64, /* under way, at most; */
    COLL_CUDA_AHEAD = 256 /* where a thread may call for several ranks: as many as a stream has room for */
};

/* One collective, kept until its last job is done. */
typedef struct {
    coll_shape_t shape;
    double scale;
    size_t chunk; /* elements of each block, or of the vector; staged only */
    uint32_t chunks;
    uint64_t most_chunks; /* of the rank with most; 0: not exchanged */
    comm_call_t call;
    size_t *counts, *rcounts; /* [n] of the whole operation; spelled out */
    size_t *displs, *rdispls; /* [n] in the program's buffers */
    size_t *piece, *rpiece;   /* [n] of the chunk that runs */
} coll_cuda_operation_t;

typedef enum { COLL_CUDA_CHUNK, COLL_CUDA_EXCHANGE, COLL_CUDA_SEND, COLL_CUDA_RECV } coll_cuda_job_kind_t;
typedef struct {
    coll_cuda_job_kind_t kind;
    coll_cuda_operation_t *operation; /* NULL: a message */
    uint32_t chunk;
    int last;       /* of its operation */
    int phase;      /* of an exchange */
    char *in, *out; /* slots; of an exchange: in: its set */
    size_t bytes;   /* of a message */
    int peer;
    int direct; /* in, out are on the device */
} coll_cuda_job_t;

/* In pinned memory. */
typedef struct {
    uint32_t posted; /* by the stream: jobs whose input is there */
    uint32_t done;   /* by the proxy: jobs whose output is there */
    uint32_t sent;   /* by the proxy: messages that have left their slots */
} coll_cuda_words_t;

struct coll_cuda_proxy {
    coll_cuda_t *c;
    coll_cuda_words_t *words;
    int window; /* 1: memory is a window; 0: CUDA's */
    /* pinned: SLOTS slots in, SLOTS out, then those of messages: SENDS, and one to receive in */
    char *memory;
    /* collectives */
    size_t slot;
    uint32_t operations_most;
    coll_cuda_operation_t *operations; /* [operations_most] */
    size_t *arrays;                    /* [operations_most * 6 * n] */
    uint32_t collectives, operations_made;
    _Atomic uint32_t operations_done;
    /* messages */
    size_t message;                           /* bytes of a slot */
    uint32_t sends;                           /* slots handed out so far */
    gyre_request_t *pending[COLL_CUDA_SENDS]; /* sends under way: message number q is in [q % SENDS] */
    uint32_t send_began, send_ended;          /* the proxy's: messages begun, and gone in order */
    /* jobs */
    coll_cuda_job_t jobs[COLL_CUDA_JOBS];
    _Atomic uint32_t made;     /* enqueued so far */
    _Atomic uint32_t finished; /* done so far; as words->done */
    _Atomic int stop;
    pthread_mutex_t lock;
    pthread_cond_t more;
    int asleep; /* the thread waits for `more`; under the lock */
    pthread_t thread;
    int running;
};

/* ---- proxy.c: the stream's side ---- */
/* Waits until the proxy has room: fewer than `most` of those made are not done yet. what: they are, for the
 * error. */
gyre_status_t coll_cuda_proxy_room(coll_cuda_proxy_t *p, const char *what, uint32_t made,
                                   _Atomic uint32_t *done, uint32_t most);
/* Enqueues a job, after the stream's work so far. *number: to be waited for. */
gyre_status_t coll_cuda_proxy_post(coll_cuda_proxy_t *p, const coll_cuda_job_t *job, cudaStream_t stream,
                                   uint32_t *number);
/* Makes the stream wait until *word, one of p->words, has come to `value`. */
gyre_status_t coll_cuda_proxy_await(coll_cuda_proxy_t *p, const uint32_t *word, uint32_t value,
                                    cudaStream_t stream);
gyre_status_t coll_cuda_proxy_copy(void *to, const void *from, size_t bytes, cudaStream_t stream);

/* ---- staged.c ---- */
/* The record of a call, which is given back when the last of its jobs is done: the call, and counts and
 * displacements of all blocks. */
gyre_status_t coll_cuda_make_operation(coll_cuda_proxy_t *p, const coll_call_t *call,
                                       coll_cuda_operation_t **out);
/* On the proxy's thread. */
gyre_status_t coll_cuda_run_chunk(coll_cuda_proxy_t *p, const coll_cuda_job_t *job);

/* ---- wire.c: on the proxy's thread ---- */
/* Runs job `number`; the next one may begin, too. */
gyre_status_t coll_cuda_run_exchange(coll_cuda_proxy_t *p, uint32_t number);

/* ---- collectives/gpu/mail/messages.c: on the proxy's thread ---- */
gyre_status_t coll_cuda_run_message(coll_cuda_proxy_t *p, const coll_cuda_job_t *job);
/* Handles messages that have gone, in order. *moved becomes 1 if there are any. */
gyre_status_t coll_cuda_reap_messages(coll_cuda_proxy_t *p, int *moved);
/* Of a communicator whose thread has ended. */
void coll_cuda_drop_messages(coll_cuda_proxy_t *p);

#endif
#endif
