/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/gpu/through/proxy.c: the thread that does the host's work for streams of a communicator, its
 * memory, and the signals between streams and thread (proxy.h). */
#include "collectives/gpu/through/proxy.h"

#ifdef GYRE_CUDA

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/checked.h"
#include "base/defined.h"
#include "base/error.h"
#include "base/log.h"
#include "base/settings/settings.h"
#include "comm/memory/memory.h"

enum {
    MESSAGES = 16 << 20, /* twice their pinned memory, at most */
    LOOKS = 200,         /* of the proxy before it yields, */
    YIELDS = 50          /* and before it sleeps between looks */
};

/* ---- the thread ---------------------------------------------------------------------------------------- */

static gyre_status_t do_job(coll_cuda_proxy_t *p, uint32_t number)
{
    const coll_cuda_job_t *job = &p->jobs[number % COLL_CUDA_JOBS];
    switch (job->kind) {
    case COLL_CUDA_CHUNK:
        return coll_cuda_run_chunk(p, job);
    case COLL_CUDA_EXCHANGE:
        return coll_cuda_run_exchange(p, number);
    default:
        return coll_cuda_run_message(p, job);
    }
}

/* The program's communicator fails with what its proxy met. */
static void fail(const coll_cuda_proxy_t *p, const coll_cuda_job_t *job, gyre_status_t status)
{
    char what[160] = "a message from device memory", why[1024];
    gyre_comm_t *comm = p->c->comm;
    const coll_cuda_operation_t *operation = job ? job->operation : NULL;
    const int late = status == GYRE_ERR_TIMEOUT && operation && job->kind == COLL_CUDA_EXCHANGE;
    snprintf(why, sizeof why, "%s", gyre_last_error());
    if (operation)
        coll_call_text(&operation->call, what, sizeof what);
    if (gyre_status_scope(status) < GYRE_SCOPE_COMMUNICATOR)
        status = GYRE_ERR_ABORTED;
    coll_drive(comm);
    coll_comm_notice(comm); /* a death that the watcher knows of is the better story */
    if (atomic_load(&comm->error) == GYRE_OK && late) {
        gyre_request_t r = {.comm = comm, .kind = COLL_REQ_DEVICE, .peer = -1, .call = operation->call};
        coll_comm_fail(comm, &r, status, NULL); /* finds out who keeps all waiting */
    } else if (atomic_load(&comm->error) == GYRE_OK) {
        gyre_fail_quiet(status, "%s on rank %d: %s", what, comm->rank, why);
        coll_comm_fail(comm, NULL, status, NULL);
    }
    coll_stop_driving(comm);
    coll_cuda_hosts_fail(p->c); /* before the stream goes on */
}

/* The oldest one's record may serve another call, and its reduction may be freed. */
static void end_operation(coll_cuda_proxy_t *p)
{
    const uint32_t done = atomic_load(&p->operations_done);
    base_redop_release(p->operations[done % p->operations_most].shape.redop);
    atomic_store(&p->operations_done, done + 1);
}

/* One look; 1 if something was done. */
static int work(coll_cuda_proxy_t *p, int *failed)
{
    int moved = 0;
    const coll_cuda_job_t *job = NULL;
    gyre_status_t st = *failed ? GYRE_OK : coll_cuda_reap_messages(p, &moved);
    const uint32_t next = atomic_load(&p->finished) + 1;
    if (st == GYRE_OK && (int32_t)(atomic_load(&p->made) - next) >= 0 &&
        (*failed ||
         ((int32_t)(coll_cuda_read(&p->words->posted) - next) >= 0 && !coll_cuda_hosts_hold(p->c)))) {
        job = &p->jobs[next % COLL_CUDA_JOBS];
        st = *failed ? GYRE_OK : do_job(p, next);
        if (job->last)
            end_operation(p);
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
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    /* UCX works in the context that is current where it is moved. */
    gyre_status_t st = base_device_use((base_device_t){BASE_CUDA, p->c->device});
    /* What this thread and UCX ask of the device must not spoil what others capture. After a device was
     * chosen: the call opens a context on the current one. */
    if (cudaThreadExchangeStreamCaptureMode(&mode) != cudaSuccess)
        (void)cudaGetLastError();
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

/* ---- the stream's side --------------------------------------------------------------------------------- */

gyre_status_t coll_cuda_proxy_room(coll_cuda_proxy_t *p, const char *what, uint32_t made,
                                   _Atomic uint32_t *done, uint32_t most)
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
                "rank %d: %u %s wait on their streams and none of them has moved for %g s%s", comm->rank,
                most, what, comm->timeout_s,
                p->c->several ? "; a thread that calls for several ranks of this process must go to the next "
                                "rank after fewer"
                              : "");
        nanosleep(&pause, NULL);
    }
    return GYRE_OK;
}

gyre_status_t coll_cuda_proxy_post(coll_cuda_proxy_t *p, const coll_cuda_job_t *job, cudaStream_t stream,
                                   uint32_t *number)
{
    const uint32_t made = atomic_load(&p->made);
    gyre_status_t st = coll_cuda_proxy_room(p, "parts of operations", made, &p->finished, COLL_CUDA_JOBS - 1);
    if (st != GYRE_OK)
        return st;
    *number = made + 1;
    p->jobs[*number % COLL_CUDA_JOBS] = *job;
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

/* The stream itself waits where the driver lets it: a kernel that waits burns the time that ranks on the
 * same device need. */
gyre_status_t coll_cuda_proxy_await(coll_cuda_proxy_t *p, const uint32_t *word, uint32_t value,
                                    cudaStream_t stream)
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

gyre_status_t coll_cuda_proxy_copy(void *to, const void *from, size_t bytes, cudaStream_t stream)
{
    if (bytes == 0 || to == from)
        return GYRE_OK;
    cudaError_t rc = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);
    return rc == cudaSuccess ? GYRE_OK
                             : coll_cuda_failed(rc, "cudaMemcpyAsync(%p, %p, %zu)", to, from, bytes);
}

/* ---- made and ended ------------------------------------------------------------------------------------ */

/* A window, pinned; where the driver does not pin one, memory of its own, which the host's transports
 * copy. */
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
    (void)cudaGetLastError(); /* clears the runtime's error, which is not the application's */
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

static gyre_status_t allocate(coll_cuda_proxy_t *p)
{
    coll_cuda_t *c = p->c;
    const size_t n = (size_t)c->comm->n, all = (size_t)base_setting_int(SET_CUDA_STAGING);
    const int staged = c->path == COLL_CUDA_STAGED;
    /* half for collectives, half for messages, which are all there is on the other path, and which more
     * does not make faster */
    p->slot = staged ? all / 2 / (2 * COLL_CUDA_SLOTS) & ~(size_t)63 : 0;
    p->message = base_min_size(all, MESSAGES) / 2 / (COLL_CUDA_SENDS + 1) & ~(size_t)63;
    if ((staged && p->slot < 16 * n) || p->message == 0)
        return gyre_fail(GYRE_ERR_INVALID, "GYRE_CUDA_STAGING=%s is too little for %zu ranks",
                         base_setting_string(SET_CUDA_STAGING), n);
    const size_t bytes = 2 * COLL_CUDA_SLOTS * p->slot + (COLL_CUDA_SENDS + 1) * p->message;
    gyre_status_t st = allocate_slots(p, bytes);
    if (st != GYRE_OK)
        return st;
    cudaError_t rc =
        cudaHostAlloc((void **)&p->words, sizeof *p->words, cudaHostAllocPortable | cudaHostAllocMapped);
    if (rc != cudaSuccess)
        return coll_cuda_failed(rc, "cudaHostAlloc(%zu)", sizeof *p->words);
    memset(p->words, 0, sizeof *p->words);
    p->operations_most = c->several ? COLL_CUDA_AHEAD : COLL_CUDA_OPERATIONS;
    p->operations = calloc(p->operations_most, sizeof *p->operations);
    p->arrays = calloc((size_t)p->operations_most * 6, n * sizeof *p->arrays);
    if (!p->operations || !p->arrays)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the blocks of %zu ranks", n);
    for (size_t i = 0; i < p->operations_most; i++) {
        size_t *at = p->arrays + i * 6 * n;
        coll_cuda_operation_t *o = &p->operations[i];
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
    return rc == 0 ? GYRE_OK
                   : gyre_fail_errno(GYRE_ERR_SYSTEM, rc, "cannot start a communicator's proxy thread");
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
    while (atomic_load(&p->operations_done) != p->operations_made) /* enqueued in part */
        end_operation(p);
    coll_cuda_drop_messages(p);
}

void coll_cuda_proxy_free(coll_cuda_t *c)
{
    coll_cuda_proxy_t *p = c->proxy;
    if (!p)
        return;
    free_slots(p);
    if (p->words)
        (void)cudaFreeHost(p->words);
    free(p->operations);
    free(p->arrays);
    pthread_cond_destroy(&p->more);
    pthread_mutex_destroy(&p->lock);
    free(p);
    c->proxy = NULL;
}

#endif
