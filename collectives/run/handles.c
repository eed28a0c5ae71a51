/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/run/handles.c: the memory of communicators.
 *
 * A program may use a communicator after its end: a destructor or an exit handler that runs late, a child of
 * fork. Each such call must be refused, and the fast path may not look anything up. So the memory of a
 * communicator is never given back to the allocator. After its end it holds an error in the place where every
 * call looks anyway (`error`, `error_text`). It serves a new communicator only after KEPT others have
 * ended; a handle older than that may be that of a new communicator. */
#include "collectives/run/communicator.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

enum { KEPT = 64 };

typedef struct {
    gyre_comm_t *first, *last;
    int count;
} handle_list_t;

static struct {
    pthread_mutex_t lock;
    handle_list_t live, dead; /* oldest first */
    int watches_fork;
} handles = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void append(handle_list_t *list, gyre_comm_t *comm)
{
    comm->next_handle = NULL;
    comm->last_handle = list->last;
    *(list->last ? &list->last->next_handle : &list->first) = comm;
    list->last = comm;
    list->count++;
}

static void take_out(handle_list_t *list, const gyre_comm_t *comm)
{
    *(comm->last_handle ? &comm->last_handle->next_handle : &list->first) = comm->next_handle;
    *(comm->next_handle ? &comm->next_handle->last_handle : &list->last) = comm->last_handle;
    list->count--;
}

/* Calls on it are refused from here on. */
static void mark(gyre_comm_t *comm, const char *why)
{
    comm->n = comm->rank = comm->local_size = comm->local_rank = comm->hosts = -1;
    snprintf(comm->error_text, sizeof comm->error_text, "%s", why);
    atomic_store(&comm->claimed, 1);
    atomic_store(&comm->error, GYRE_ERR_INVALID);
}

static void lock_handles(void)
{
    pthread_mutex_lock(&handles.lock);
}

static void unlock_handles(void)
{
    pthread_mutex_unlock(&handles.lock);
}

/* A child has its parent's communicators in memory, but is no rank: what it sent would be the parent's. */
static void end_in_child(void)
{
    for (gyre_comm_t *comm = handles.live.first; comm; comm = comm->next_handle)
        mark(comm, "the communicator is the parent's: a child of fork can only exec or exit");
    coll_registry_forget();
    unlock_handles();
}

gyre_comm_t *coll_handle_new(comm_world_t *world)
{
    lock_handles();
    if (!handles.watches_fork)
        handles.watches_fork = pthread_atfork(lock_handles, unlock_handles, end_in_child) == 0;
    gyre_comm_t *comm = handles.dead.count > KEPT ? handles.dead.first : NULL;
    if (comm) {
        take_out(&handles.dead, comm);
        memset(comm, 0, sizeof *comm);
    } else if (handles.watches_fork) {
        comm = calloc(1, sizeof *comm);
    }
    if (comm) {
        comm->world = world; /* other threads look for those of their worlds */
        append(&handles.live, comm);
    }
    unlock_handles();
    if (!comm)
        gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a communicator");
    return comm;
}

void coll_handle_end(gyre_comm_t *comm, const char *why)
{
    lock_handles();
    take_out(&handles.live, comm);
    memset(comm, 0, sizeof *comm);
    mark(comm, why);
    append(&handles.dead, comm);
    unlock_handles();
}

gyre_comm_t *coll_handle_find(const comm_world_t *world, int index)
{
    lock_handles();
    gyre_comm_t *comm = handles.live.first;
    while (comm && (comm->world != world || index-- > 0))
        comm = comm->next_handle;
    unlock_handles();
    return comm;
}

gyre_status_t coll_check_live(const char *name, const gyre_comm_t *comm)
{
    if (!comm)
        return gyre_fail(GYRE_ERR_INVALID, "%s: comm is NULL", name);
    if (atomic_load_explicit(&comm->error, memory_order_acquire) == GYRE_ERR_INVALID)
        return gyre_fail(GYRE_ERR_INVALID, "%s: %s", name, comm->error_text);
    return GYRE_OK;
}
