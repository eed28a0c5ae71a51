/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/run/progress.c: the registry of communicators with non-blocking operations under way, and the
 * optional thread that drives them.
 *
 * A blocking call on an otherwise idle communicator never comes here: its caller drives it. */
#include "collectives/run/communicator.h"

#include <sched.h>
#include <signal.h>
#include <pthread.h>

#include "base/error.h"
#include "base/thread/futex.h"

static struct {
    pthread_mutex_t lock;
    gyre_comm_t *list;
    _Atomic int count;
    _Atomic uint64_t pass;       /* passes of coll_registry_advance begun so far */
    _Atomic uint32_t bell;       /* changes when the list gets longer or the thread must stop */
    pthread_mutex_t thread_lock; /* guards `users` and starting and joining */
    pthread_t thread;
    int users;
    _Atomic int running; /* the thread exists: additions must ring */
    _Atomic int stop;
} registry = {.lock = PTHREAD_MUTEX_INITIALIZER, .thread_lock = PTHREAD_MUTEX_INITIALIZER};

void coll_drive_wait(gyre_comm_t *comm)
{
    for (uint32_t turn = 0; !coll_try_drive(comm); turn++) {
        if (turn % 64 == 63)
            sched_yield();
        base_relax();
    }
}

void coll_registry_add(gyre_comm_t *comm)
{
    pthread_mutex_lock(&registry.lock);
    if (!comm->registered) {
        comm->registered = 1;
        comm->next_registered = registry.list;
        registry.list = comm;
        atomic_fetch_add(&registry.count, 1);
    }
    pthread_mutex_unlock(&registry.lock);
    if (atomic_load_explicit(&registry.running, memory_order_acquire)) {
        atomic_fetch_add(&registry.bell, 1);
        base_futex_wake(&registry.bell, 1);
    }
}

static void unlink_locked(gyre_comm_t *comm)
{
    for (gyre_comm_t **at = &registry.list; *at; at = &(*at)->next_registered)
        if (*at == comm) {
            *at = comm->next_registered;
            comm->registered = 0;
            atomic_fetch_sub(&registry.count, 1);
            return;
        }
}

void coll_registry_keep(gyre_comm_t *comm, int on)
{
    atomic_fetch_add(&comm->kept, on ? 1 : -1);
    if (on && atomic_load_explicit(&registry.running, memory_order_acquire))
        coll_registry_add(comm);
}

void coll_registry_remove(gyre_comm_t *comm)
{
    pthread_mutex_lock(&registry.lock);
    unlink_locked(comm);
    pthread_mutex_unlock(&registry.lock);
}

void coll_registry_leave(gyre_comm_t *comm)
{
    if (!atomic_load_explicit(&comm->registered, memory_order_relaxed) || !coll_comm_idle(comm))
        return;
    if (!atomic_load_explicit(&registry.running, memory_order_acquire) || !atomic_load(&comm->kept))
        coll_registry_remove(comm);
}

void coll_registry_forget(void)
{
    registry.list = NULL;
    atomic_store(&registry.count, 0);
}

/* The next communicator of this pass, with this thread driving it, or NULL. Taken under the lock, driven
 * without it: nobody waits for somebody else's copying. A communicator cannot go away meanwhile, since
 * freeing it takes a turn at driving. */
static gyre_comm_t *take_next(const gyre_comm_t *except, uint64_t pass, int *others)
{
    gyre_comm_t *found = NULL;
    pthread_mutex_lock(&registry.lock);
    for (gyre_comm_t *comm = registry.list; comm && !found; comm = comm->next_registered) {
        if (comm == except || comm->visited >= pass)
            continue;
        comm->visited = pass;
        ++*others;
        if (coll_try_drive(comm))
            found = comm;
    }
    pthread_mutex_unlock(&registry.lock);
    return found;
}

int coll_registry_advance(gyre_comm_t *except, int *others)
{
    int moved = 0;
    *others = 0;
    if (!coll_registry_others(except))
        return 0;
    uint64_t pass = atomic_fetch_add(&registry.pass, 1) + 1;
    for (gyre_comm_t *comm; (comm = take_next(except, pass, others));) {
        int here = coll_comm_advance_driving(comm);
        moved += here;
        if (!here)
            coll_note_idle(comm);
        coll_registry_leave(comm);
        coll_stop_driving(comm);
    }
    return moved;
}

int coll_registry_others(const gyre_comm_t *comm)
{
    return atomic_load_explicit(&registry.count, memory_order_acquire) >
           (comm ? atomic_load_explicit(&comm->registered, memory_order_relaxed) : 0);
}

int coll_requests_use(const gyre_request_t *list, const void *base, size_t bytes, comm_call_t *call)
{
    const uintptr_t from = (uintptr_t)base;
    for (const gyre_request_t *r = list; r; r = r->next) {
        const void *buffers[] = {r->run.in, r->run.out, r->buffer};
        for (int k = 0; k < 3; k++)
            if (buffers[k] && (uintptr_t)buffers[k] - from < bytes) {
                *call = r->call;
                return 1;
            }
    }
    return 0;
}

/* -1: another thread drives one of the communicators. A thread that drives may wait for the registry's lock,
 * so this one does not wait for it to stop. */
static int find_use(const void *base, size_t bytes, comm_call_t *call)
{
    int found = 0;
    pthread_mutex_lock(&registry.lock);
    for (gyre_comm_t *comm = registry.list; comm && found == 0; comm = comm->next_registered) {
        if (!coll_try_drive(comm)) {
            found = -1;
        } else {
            found = coll_requests_use(comm->head, base, bytes, call) ||
                    coll_requests_use(comm->p2p_head, base, bytes, call);
            coll_stop_driving(comm);
        }
    }
    pthread_mutex_unlock(&registry.lock);
    return found;
}

int coll_registry_uses(const void *base, size_t bytes, comm_call_t *call)
{
    int found;
    if (atomic_load_explicit(&registry.count, memory_order_acquire) == 0)
        return 0;
    while ((found = find_use(base, bytes, call)) < 0)
        sched_yield();
    return found;
}

static void *progress_main(void *unused)
{
    (void)unused;
    uint32_t idle_turns = 0;
    while (!atomic_load(&registry.stop)) {
        uint32_t bell = atomic_load(&registry.bell);
        int others;
        if (coll_registry_advance(NULL, &others) > 0) {
            idle_turns = 0;
        } else if (others == 0) {
            base_futex_wait(&registry.bell, bell, BASE_TIME_NEVER);
        } else if (++idle_turns < 200) {
            base_relax();
        } else if (idle_turns < 400) {
            sched_yield();
        } else { /* peers are late: look again soon, and at once when more work comes */
            base_futex_wait(&registry.bell, bell, base_deadline(100e-6));
        }
    }
    return NULL;
}

gyre_status_t coll_progress_thread_start(void)
{
    gyre_status_t st = GYRE_OK;
    pthread_mutex_lock(&registry.thread_lock);
    if (registry.users == 0) {
        sigset_t all, old;
        sigfillset(&all);
        atomic_store(&registry.stop, 0);
        pthread_sigmask(SIG_BLOCK, &all, &old);
        int err = pthread_create(&registry.thread, NULL, progress_main, NULL);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        if (err)
            st = gyre_fail_errno(GYRE_ERR_SYSTEM, err,
                                 "cannot start the progress thread (GYRE_PROGRESS_THREAD=0 does without)");
    }
    if (st == GYRE_OK) {
        registry.users++;
        atomic_store(&registry.running, 1);
    }
    pthread_mutex_unlock(&registry.thread_lock);
    return st;
}

void coll_progress_thread_stop(void)
{
    pthread_mutex_lock(&registry.thread_lock);
    if (--registry.users == 0) {
        atomic_store(&registry.stop, 1);
        atomic_fetch_add(&registry.bell, 1);
        base_futex_wake(&registry.bell, 1);
        pthread_join(registry.thread, NULL);
        atomic_store(&registry.running, 0);
    }
    pthread_mutex_unlock(&registry.thread_lock);
}
