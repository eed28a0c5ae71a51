/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/gpu/call/guard.c: the thread that keeps streams from waiting forever.
 *
 * Work that waits on a device does not know of deaths and deadlines. So one thread per process looks at the
 * boards of all communicators that work on devices, some fifty times a second. It notes deaths and aborts,
 * kernels that met a rank with another call, and operations that the device has begun and not ended for
 * GYRE_TIMEOUT. The communicator then fails as it does on the host, and its abort word ends everything on its
 * streams (coll_cuda_stop). The thread sleeps in between, and takes part in no operation that goes well. */
#include "collectives/gpu/state.h"

#ifdef GYRE_CUDA

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include "base/error.h"
#include "base/log.h"

enum { LOOK_NS = 20 * 1000 * 1000, SOON_NS = 1000 * 1000 /* while streams of one that has failed end */ };
/* that streams of a communicator that has failed have, before what they use is given up */
#define STUCK_SECONDS 5.0

static struct {
    pthread_mutex_t turn; /* one joins or leaves at a time, so that there is one thread */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    coll_cuda_t *list;
    coll_cuda_t *stuck; /* have gone, and their streams had not ended */
    pthread_t thread;
    int running; /* the thread exists */
} guard = {.turn = PTHREAD_MUTEX_INITIALIZER,
           .lock = PTHREAD_MUTEX_INITIALIZER,
           .changed = PTHREAD_COND_INITIALIZER};

/* The request that failure texts are about: the message that waits, or the call that the device began
 * last. */
static gyre_request_t newest_call(const coll_cuda_t *c)
{
    gyre_request_t r = {.comm = c->comm, .kind = COLL_REQ_DEVICE, .peer = -1};
    uint32_t turn;
    if (coll_cuda_mail_waits(c, &turn, &r.call))
        return r;
    const uint32_t number = coll_cuda_read(&c->board->call);
    if (!coll_find_call(c->comm, c->comm->rank, number, &r.call))
        r.call = (comm_call_t){.seq = number};
    return r;
}

static void fail(coll_cuda_t *c, gyre_status_t status, int peer, cudaError_t error)
{
    gyre_request_t r = newest_call(c);
    r.peer = peer;
    coll_drive(c->comm);
    if (error != cudaSuccess)
        (void)coll_cuda_failed(error, "an operation on CUDA device %d", c->device);
    else
        gyre_fail_quiet(status, "an operation on CUDA device %d did not end", c->device);
    if (atomic_load(&c->comm->error) == GYRE_OK)
        coll_comm_fail(c->comm, &r, status, NULL);
    coll_stop_driving(c->comm);
}

static _Thread_local int is_guard;

int coll_cuda_is_guard(void)
{
    return is_guard;
}

int coll_cuda_still_runs(const coll_cuda_t *c)
{
    return c->any && coll_cuda_query(c, c->newest) == cudaErrorNotReady;
}

/* Requests end when streams have, or had the time for it. Another thread that drives does the same, and may
 * wait. 1: they have ended. */
static int ended_requests(coll_cuda_t *c)
{
    gyre_comm_t *comm = c->comm;
    if (!coll_try_drive(comm))
        return 0;
    coll_comm_fail(comm, NULL, (gyre_status_t)atomic_load(&comm->error), NULL);
    const int ended = coll_cuda_stop(comm);
    coll_stop_driving(comm);
    return ended;
}

/* 1: look again soon. */
static int look_at(coll_cuda_t *c)
{
    gyre_comm_t *comm = c->comm;
    if (cudaSetDevice(c->device) != cudaSuccess) /* else calls here would open a context on device 0 */
        (void)cudaGetLastError();
    if (coll_comm_troubled(comm)) {
        coll_drive(comm);
        coll_comm_notice(comm);
        coll_stop_driving(comm);
    }
    const gyre_status_t part = atomic_load(&comm->error) == GYRE_OK ? coll_cuda_hosts_trouble(c) : GYRE_OK;
    if (part != GYRE_OK) { /* the whole fails with it */
        coll_drive(comm);
        if (atomic_load(&comm->error) == GYRE_OK)
            coll_comm_fail(comm, NULL, part, NULL);
        coll_stop_driving(comm);
    }
    if (atomic_load(&comm->error) != GYRE_OK) {
        if (!c->failed)
            c->failed = ended_requests(c);
        else if (coll_cuda_still_runs(c))
            coll_cuda_release(c); /* a stream whose own work came first */
        return !c->failed;
    }
    const uint32_t other = coll_cuda_read(&c->board->mismatch);
    if (other) {
        fail(c, GYRE_ERR_MISMATCH, (int)other - 1, cudaSuccess);
        return 1;
    }
    const cudaError_t state = c->any ? coll_cuda_query(c, c->newest) : cudaSuccess;
    if (state != cudaSuccess &&
        state != cudaErrorNotReady) { /* the device's own, which every call on it gets from here on */
        fail(c, GYRE_ERR_SYSTEM, -1, state);
        return 1;
    }
    if (coll_cuda_mail_wrong(c)) {
        coll_drive(comm);
        coll_comm_fail(comm, NULL, GYRE_ERR_MISMATCH, NULL);
        coll_stop_driving(comm);
        return 1;
    }
    comm_call_t message;
    uint32_t turn = 0;
    const int waits = coll_cuda_mail_waits(c, &turn, &message);
    const uint32_t finished = coll_cuda_read(&c->board->finished),
                   started = coll_cuda_read(&c->board->started);
    const base_time_t now = base_now();
    if ((started == finished && !waits) || started != c->seen || turn != c->seen_turn) {
        if (c->told_late)
            coll_cuda_tell_late(c, -1);
        c->told_late = 0;
        c->seen = started;
        c->seen_turn = turn;
        c->since = now;
        return 0;
    }
    if (now - c->since > COLL_CUDA_LONG_NS) {
        if (!c->told_late)
            coll_cuda_tell_late(c, coll_cuda_late(comm));
        c->told_late = 1;
        gyre_request_t r = newest_call(c);
        comm_call_t theirs;
        const int peer = r.call.op && !(r.call.flags & COMM_CALL_P2P) ? coll_disagreeing(&r, &theirs) : -1;
        if (peer >= 0) {
            fail(c, GYRE_ERR_MISMATCH, peer, cudaSuccess);
            return 1;
        }
    }
    if (now - c->since <= comm->timeout_ns)
        return 0;
    fail(c, GYRE_ERR_TIMEOUT, -1, cudaSuccess);
    return 1;
}

static void *run(void *unused)
{
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    (void)unused;
    is_guard = 1;
    pthread_mutex_lock(&guard.lock);
    /* What this thread asks of events must not spoil what others capture. After a device was chosen: the call
     * opens a context on the current one. */
    if (guard.list && base_device_use((base_device_t){BASE_CUDA, guard.list->device}) == GYRE_OK &&
        cudaThreadExchangeStreamCaptureMode(&mode) != cudaSuccess)
        (void)cudaGetLastError();
    while (guard.list) {
        int soon = 0;
        for (coll_cuda_t *c = guard.list; c; c = c->next)
            soon |= look_at(c);
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += soon ? SOON_NS : LOOK_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        (void)pthread_cond_clockwait(&guard.changed, &guard.lock, CLOCK_MONOTONIC, &until);
    }
    pthread_mutex_unlock(&guard.lock);
    return NULL;
}

gyre_status_t coll_cuda_guard_add(coll_cuda_t *c)
{
    int rc = 0;
    pthread_mutex_lock(&guard.turn);
    pthread_mutex_lock(&guard.lock);
    c->next = guard.list;
    guard.list = c;
    if (!guard.running) {
        sigset_t all, before;
        sigfillset(&all); /* signals are the program's threads' business */
        pthread_sigmask(SIG_SETMASK, &all, &before);
        rc = pthread_create(&guard.thread, NULL, run, NULL);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        guard.running = rc == 0;
    }
    if (rc != 0)
        guard.list = c->next;
    pthread_mutex_unlock(&guard.lock);
    pthread_mutex_unlock(&guard.turn);
    return rc == 0 ? GYRE_OK
                   : gyre_fail_errno(GYRE_ERR_SYSTEM, rc, "cannot start the thread that watches streams");
}

void coll_cuda_guard_remove(coll_cuda_t *c)
{
    pthread_mutex_lock(&guard.turn);
    pthread_mutex_lock(&guard.lock);
    for (coll_cuda_t **at = &guard.list; *at; at = &(*at)->next)
        if (*at == c) {
            *at = c->next;
            break;
        }
    const int last = !guard.list && guard.running;
    const pthread_t thread = guard.thread;
    if (last)
        guard.running = 0;
    pthread_cond_signal(&guard.changed);
    pthread_mutex_unlock(&guard.lock);
    if (last)
        pthread_join(thread, NULL);
    pthread_mutex_unlock(&guard.turn);
}

void coll_cuda_guard_note_stuck(coll_cuda_t *c)
{
    pthread_mutex_lock(&guard.lock);
    c->next = guard.stuck;
    guard.stuck = c;
    pthread_mutex_unlock(&guard.lock);
}

int coll_cuda_guard_any_stuck(void)
{
    int any = 0;
    pthread_mutex_lock(&guard.lock);
    for (const coll_cuda_t *c = guard.stuck; c && !any; c = c->next)
        any = coll_cuda_still_runs(c);
    pthread_mutex_unlock(&guard.lock);
    return any;
}

/* A stream on which an operation of `own` has not ended, or else one of a communicator of this process that
 * has failed, also of one that has gone (stuck), which comes first where `own` has failed, too. Freeing
 * memory of a device waits for all streams. */
typedef struct {
    int any, others, stuck, device;
    cudaStream_t stream;
} held_t;

static held_t find_held(const coll_cuda_t *own)
{
    const coll_cuda_t *held = coll_cuda_still_runs(own) ? own : NULL;
    pthread_mutex_lock(&guard.lock);
    for (const coll_cuda_t *c = guard.list; c && !held; c = c->next)
        held = atomic_load(&c->stopped) && coll_cuda_still_runs(c) ? c : NULL;
    const int healthy = held == own && atomic_load(&own->comm->error) == GYRE_OK; /* it will end by itself */
    for (const coll_cuda_t *c = guard.stuck; c && !healthy && (!held || !held->stuck); c = c->next)
        held = coll_cuda_still_runs(c) ? c : held;
    const held_t found = held ? (held_t){1, held != own, held->stuck, held->device, held->on} : (held_t){0};
    pthread_mutex_unlock(&guard.lock);
    (void)cudaGetLastError(); /* the guard reports the failure */
    return found;
}

/* The guard is still at work, so what waits for a peer that died or never calls comes to its end. Work of the
 * program that was enqueued before may not: after a failure nobody waits for that. */
int coll_cuda_wait_for_streams(coll_cuda_t *c)
{
    const struct timespec pause = {.tv_nsec = 50 * 1000};
    base_time_t until = BASE_TIME_NEVER;
    for (held_t held; !c->stuck && (held = find_held(c)).any; nanosleep(&pause, NULL)) {
        if (until == BASE_TIME_NEVER && (held.others || atomic_load(&c->comm->error) != GYRE_OK))
            until = base_deadline(STUCK_SECONDS);
        if (base_now() <= until && !held.stuck)
            continue;
        c->stuck = 1;
        if (!held.stuck)
            log_error("a communicator has failed, and %g s later stream %p of CUDA device %d has still not "
                      "ended what the program enqueued there before: what the communicator has on the device "
                      "stays until the process ends",
                      STUCK_SECONDS, (void *)held.stream, held.device);
    }
    return !c->stuck;
}

/* The rank from which the fewest phases have come. */
static int behind(const coll_cuda_t *c)
{
    const uint32_t *from = (const uint32_t *)(c->arena[c->comm->rank] + offsetof(coll_cuda_head_t, phases));
    uint32_t *pages = c->pages + COLL_CUDA_RANKS;
    int late = -1;
    coll_cuda_look_t look = coll_cuda_begin_look(c);
    const int copied = coll_cuda_rescued(c) &&
                       cudaMemcpyAsync(pages, from, COLL_CUDA_RANKS * sizeof *pages, cudaMemcpyDeviceToHost,
                                       c->rescue) == cudaSuccess &&
                       coll_cuda_rescued(c);
    coll_cuda_end_look(c, &look);
    if (!copied)
        return -1;
    for (int r = 0; r < c->comm->n; r++)
        if (r != c->comm->rank && (int32_t)(c->phase - pages[r]) > 0 &&
            (late < 0 || (int32_t)(pages[late] - pages[r]) > 0))
            late = r;
    return late;
}

void coll_cuda_tell_late(const coll_cuda_t *c, int rank)
{
    if (c->comm->world->boot)
        comm_boot_stream_waits(c->comm->world->boot, rank < 0 ? -1 : c->comm->world_ranks[rank]);
}

int coll_cuda_late(const gyre_comm_t *comm)
{
    const coll_cuda_t *c = comm->cuda;
    if (!c)
        return -1;
    comm_call_t message;
    uint32_t turn;
    if (coll_cuda_mail_waits(c, &turn, &message))
        return message.root;
    if (coll_cuda_wire_late(c) >= 0)
        return coll_cuda_wire_late(c);
    const int late = (int)coll_cuda_read(&c->board->late) - 1;
    return late < 0 && c->stream_waits ? behind(c) : late;
}

#endif
