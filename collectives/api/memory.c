/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/api/memory.c: memory that ranks of one host share: comm/memory/, but not while an operation of
 * this process uses it.
 *
 * gyre_mem_alloc_shared, all ranks together:
 *
 *  1. Each allocates a window of its own. An all-gather passes on where it is, or why there is none.
 *  2. Each maps the windows of all others. A second all-gather passes on whether that worked.
 *
 * After an error on any rank all of them give up. What a rank has mapped it holds until gyre_mem_free,
 * whatever becomes of the communicator, of the job or of the owner. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/error.h"
#include "collectives/run/communicator.h"
#include "comm/memory/memory.h"

static const char SHARED[] = "gyre_mem_alloc_shared";
enum { LOOK_MS = 50 }; /* between two looks at whether the communicator still works */

/* What a rank contributed, as this process sees it. */
typedef struct {
    void *at;
    size_t bytes;
    comm_mapping_t *held; /* NULL: its own */
} part_t;

/* One call of gyre_mem_alloc_shared, until gyre_mem_free. */
typedef struct shared {
    struct shared *next;
    void *own;
    pid_t maker; /* a child of fork only forgets it */
    int n;
    part_t parts[];
} shared_t;

static struct {
    pthread_mutex_t lock;
    shared_t *list;
} all_shared = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* What a rank says of its own memory. */
typedef struct {
    unsigned char address[32]; /* from where its window is fetched */
    uint64_t window, bytes;
    int32_t status, pad; /* of the rank so far */
} said_t;

/* INVALID: an operation has a buffer there. */
static gyre_status_t check_idle(const char *name, const void *ptr, size_t bytes)
{
    char text[160];
    comm_call_t call;
    if (bytes == 0 || (!coll_group_uses(ptr, bytes, &call) && !coll_registry_uses(ptr, bytes, &call)))
        return GYRE_OK;
    coll_call_text(&call, text, sizeof text);
    return gyre_fail(GYRE_ERR_INVALID,
                     "%s: %s has not finished and uses the %zu bytes at %p: wait for it first", name, text,
                     bytes, ptr);
}

gyre_status_t gyre_mem_alloc(size_t bytes, void **ptr)
{
    return comm_mem_alloc(bytes, ptr);
}

/* ---- shared by the ranks of a communicator ---- */

/* Where the record of the memory at `ptr` hangs, or the list's end. Under the lock. */
static shared_t **find_shared(const void *ptr)
{
    shared_t **link = &all_shared.list;
    while (*link && (*link)->own != ptr)
        link = &(*link)->next;
    return link;
}

static gyre_status_t check_shared(gyre_comm_t *comm, void *const *ptr)
{
    gyre_status_t st = coll_check_comm(SHARED, comm);
    if (st == GYRE_OK && !ptr)
        st = gyre_fail(GYRE_ERR_INVALID, "%s: ptr is NULL", SHARED);
    if (st == GYRE_OK && coll_group_open())
        st = gyre_fail(GYRE_ERR_INVALID, "%s cannot be part of a group", SHARED);
    if (st == GYRE_OK && comm->team)
        st = gyre_fail(GYRE_ERR_UNSUPPORTED,
                       "%s: the communicator's ranks are all in this process, which can use any memory for "
                       "them",
                       SHARED);
    for (int r = 1; st == GYRE_OK && r < comm->n; r++)
        if (comm->host_of[r] != comm->host_of[0])
            st = gyre_fail(GYRE_ERR_UNSUPPORTED,
                           "%s: ranks 0 and %d are on different hosts (or in containers that share no "
                           "memory): call it on a communicator of gyre_comm_split_type with GYRE_SPLIT_HOST",
                           SHARED, r);
    return st;
}

/* Fills all[n]. The error of the lowest rank that has one: the same answer on all ranks. */
static gyre_status_t agree(gyre_comm_t *comm, const said_t *mine, said_t *all)
{
    char why[400];
    snprintf(why, sizeof why, "%s", gyre_last_error());
    gyre_status_t st = coll_inside_all_gather(mine, all, sizeof *mine, comm, COLL_INSIDE_MEM_SHARED);
    for (int r = 0; st == GYRE_OK && r < comm->n; r++) {
        st = (gyre_status_t)all[r].status;
        if (st != GYRE_OK && r == comm->rank)
            gyre_fail_quiet(st, "%s", why);
        else if (st != GYRE_OK)
            gyre_fail(st, "%s: rank %d could not take part: %s; its own message says why", SHARED, r,
                      gyre_status_string(st));
    }
    return st;
}

static gyre_status_t map_part(gyre_comm_t *comm, const said_t *said, part_t *part)
{
    const base_time_t deadline = base_deadline(comm->timeout_s), look = (base_time_t)LOOK_MS * 1000000;
    comm_watch_fetch_t fetch = {0};
    const void *at;
    gyre_status_t st;
    do
        st = comm_mem_map(comm->world->watch, said->address, said->window, 0, said->bytes, &fetch,
                          base_now() + look, &at, &part->held);
    while (st == GYRE_IN_PROGRESS && base_now() < deadline && gyre_comm_error(comm) == GYRE_OK);
    if (st == GYRE_OK)
        part->at = (void *)(uintptr_t)at; /* NOLINT: it is mapped to be written, too */
    comm_watch_fetch_drop(&fetch);
    return st == GYRE_IN_PROGRESS ? gyre_fail_quiet(GYRE_ERR_TIMEOUT, "its process does not answer") : st;
}

static gyre_status_t map_parts(gyre_comm_t *comm, const said_t *all, shared_t *s)
{
    for (int r = 0; r < comm->n; r++) {
        char why[400];
        gyre_status_t st = GYRE_OK;
        s->parts[r].bytes = (size_t)all[r].bytes;
        if (r == comm->rank)
            s->parts[r].at = s->own;
        else
            st = map_part(comm, &all[r], &s->parts[r]);
        if (st == GYRE_OK)
            continue;
        snprintf(why, sizeof why, "%s", gyre_last_error());
        return gyre_fail(st, "%s: the %zu bytes of rank %d cannot be mapped here (see ulimit -n and -v): %s",
                         SHARED, s->parts[r].bytes, r, why);
    }
    return GYRE_OK;
}

static gyre_status_t let_go(shared_t *s)
{
    for (int r = 0; r < s->n && s->maker == getpid(); r++)
        if (s->parts[r].held)
            comm_mapping_leave(s->parts[r].held);
    gyre_status_t st = comm_mem_free(s->own);
    free(s);
    return st;
}

static gyre_status_t share(gyre_comm_t *comm, size_t bytes, said_t *all, shared_t *s)
{
    said_t mine = {.bytes = bytes};
    size_t offset;
    if (comm->world->watch)
        comm_watch_address(comm->world->watch, mine.address);
    mine.status = (int32_t)comm_mem_alloc_shared(bytes, (uint32_t)comm->n, &s->own);
    if (mine.status == GYRE_OK)
        comm_mem_find(s->own, 1, &mine.window, &offset);
    gyre_status_t st = agree(comm, &mine, all);
    if (st != GYRE_OK)
        return st;
    mine.status = (int32_t)map_parts(comm, all, s);
    return agree(comm, &mine, all);
}

gyre_status_t gyre_mem_alloc_shared(gyre_comm_t *comm, size_t bytes, void **ptr)
{
    gyre_status_t st = check_shared(comm, ptr);
    if (st != GYRE_OK)
        return st;
    const size_t n = (size_t)comm->n;
    shared_t *s = calloc(1, sizeof *s + n * sizeof s->parts[0]);
    said_t *all = calloc(n, sizeof *all);
    if (!s || !all) {
        free(s);
        free(all);
        return gyre_fail(GYRE_ERR_NO_MEMORY, "%s: no memory for %zu ranks", SHARED, n);
    }
    s->n = comm->n;
    s->maker = getpid();
    st = share(comm, bytes, all, s);
    free(all);
    if (st != GYRE_OK) {
        (void)let_go(s);
        return st;
    }
    *ptr = s->own;
    pthread_mutex_lock(&all_shared.lock);
    s->next = all_shared.list;
    all_shared.list = s;
    pthread_mutex_unlock(&all_shared.lock);
    return GYRE_OK;
}

gyre_status_t gyre_mem_peer(const void *ptr, int rank, void **peer, size_t *bytes)
{
    gyre_status_t st = GYRE_OK;
    if (!peer)
        return gyre_fail(GYRE_ERR_INVALID, "gyre_mem_peer: peer is NULL");
    pthread_mutex_lock(&all_shared.lock);
    const shared_t *s = *find_shared(ptr);
    if (!s) {
        st = gyre_fail(GYRE_ERR_INVALID,
                       "gyre_mem_peer: %p was not given by gyre_mem_alloc_shared, or is free already", ptr);
    } else if (rank < 0 || rank >= s->n) {
        st = gyre_fail(GYRE_ERR_INVALID, "gyre_mem_peer: rank %d is out of range 0..%d", rank, s->n - 1);
    } else {
        *peer = s->parts[rank].at;
        if (bytes)
            *bytes = s->parts[rank].bytes;
    }
    pthread_mutex_unlock(&all_shared.lock);
    return st;
}

gyre_status_t gyre_mem_free(void *ptr)
{
    gyre_status_t st = check_idle("gyre_mem_free", ptr, comm_mem_allocated(ptr));
    pthread_mutex_lock(&all_shared.lock);
    shared_t *s = *find_shared(ptr);
    pthread_mutex_unlock(&all_shared.lock);
    /* Without the lock, since this waits for operations; the memory is this caller's to free. */
    for (int r = 0; s && r < s->n && st == GYRE_OK; r++)
        st = check_idle("gyre_mem_free", s->parts[r].at, s->parts[r].bytes);
    if (st != GYRE_OK || !s)
        return st == GYRE_OK ? comm_mem_free(ptr) : st;
    pthread_mutex_lock(&all_shared.lock);
    *find_shared(ptr) = s->next;
    pthread_mutex_unlock(&all_shared.lock);
    return let_go(s);
}

gyre_status_t gyre_mem_register(void *ptr, size_t bytes)
{
    return comm_mem_register(ptr, bytes);
}

gyre_status_t gyre_mem_deregister(void *ptr)
{
    gyre_status_t st = check_idle("gyre_mem_deregister", ptr, comm_mem_registered(ptr));
    return st == GYRE_OK ? comm_mem_deregister(ptr) : st;
}
