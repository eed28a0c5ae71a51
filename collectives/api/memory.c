/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/api/memory.c: memory that ranks share: comm/memory/ on a host, comm/remote.h between hosts;
 * but not while an operation of this process uses it.
 *
 * gyre_mem_alloc_shared, all ranks together:
 *
 *  1. Each allocates a window of its own. An all-gather passes on where it is, or why there is none.
 *  2. Each maps the windows of all others. A second all-gather passes on whether that worked.
 *
 * After an error on any rank all of them give up. What a rank has mapped it holds until gyre_mem_free,
 * whatever becomes of the communicator, of the job or of the owner. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "collectives/run/communicator.h"
#include "comm/memory/memory.h"
#include "comm/remote.h"

static const char SHARED[] = "gyre_mem_alloc_shared";
enum {
    LOOK_MS = 50, /* between two looks at whether the communicator still works */
    /* turns of a wait for another host's memory, and the nap between the last ones */
    YIELDS_FROM = 200,
    NAPS_FROM = 2000,
    NAP_US = 50
};

/* What a rank contributed, as this process sees it. */
typedef struct {
    void *at; /* NULL: on another host */
    size_t bytes;
    comm_mapping_t *held; /* NULL: its own, or on another host */
} part_t;

/* One call of gyre_mem_alloc_shared, until gyre_mem_free. */
typedef struct shared {
    struct shared *next;
    void *own;
    pid_t maker;       /* a child of fork only forgets it */
    gyre_comm_t *comm; /* borrowed: it may have ended, and then has another id */
    uint64_t comm_id;
    comm_remote_t *remote;   /* for ranks on other hosts, as long as `comm` is there; NULL: there are none */
    comm_retired_t *retired; /* for let_go */
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
    int32_t status, pad;   /* of the rank so far */
    comm_remote_key_t key; /* for ranks on other hosts */
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
    return comm_mem_alloc_now(bytes, ptr);
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

/* Ranks 0 and `other` are on different hosts. */
static gyre_status_t check_network(const gyre_comm_t *comm, int other)
{
    char why[200];
    gyre_status_t st = comm_remote_check(comm->group);
    snprintf(why, sizeof why, "%s", st == GYRE_OK ? "" : gyre_last_error());
    return st == GYRE_OK
               ? st
               : gyre_fail(
                     st,
                     "%s: ranks 0 and %d are on different hosts, and %s: GYRE_TRANSPORT=ucx can, or call "
                     "it on a communicator of gyre_comm_split_type with GYRE_SPLIT_HOST",
                     SHARED, other, why);
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
            return check_network(comm, r);
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
    const base_time_t deadline = base_deadline(comm->timeout_s), look = LOOK_MS * BASE_MS;
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
        else if (comm->host_of[r] == comm->host_of[comm->rank])
            st = map_part(comm, &all[r], &s->parts[r]);
        if (st == GYRE_OK)
            continue;
        snprintf(why, sizeof why, "%s", gyre_last_error());
        return gyre_fail(st, "%s: the %zu bytes of rank %d cannot be mapped here (see ulimit -n and -v): %s",
                         SHARED, s->parts[r].bytes, r, why);
    }
    return GYRE_OK;
}

/* 1: the communicator that it was made on has not ended. */
static int has_comm(const shared_t *s)
{
    return atomic_load_explicit(&s->comm->error, memory_order_acquire) != GYRE_ERR_INVALID &&
           s->comm->id == s->comm_id;
}

/* Ranks of other hosts flush before a part is freed, but they cannot do so once the communicator has failed:
 * what they have begun may still come, or be answered with what was there. */
static gyre_status_t let_go(shared_t *s)
{
    const int reached = s->remote && s->maker == getpid();
    const int late = reached && (!has_comm(s) || gyre_comm_error(s->comm) != GYRE_OK);
    if (reached && has_comm(s))
        comm_remote_conceal(s->comm->group, s->remote);
    for (int r = 0; r < s->n && s->maker == getpid(); r++)
        if (s->parts[r].held)
            comm_mapping_leave(s->parts[r].held);
    s->retired->base = s->own;
    gyre_status_t st = late ? comm_remote_retire(s->retired) : comm_mem_free(s->own);
    if (!late)
        free(s->retired);
    free(s);
    return st;
}

static gyre_status_t know_keys(gyre_comm_t *comm, const said_t *all, comm_remote_t *remote)
{
    comm_remote_key_t *keys = malloc((size_t)comm->n * sizeof *keys);
    if (!keys)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "%s: no memory for %d ranks", SHARED, comm->n);
    for (int r = 0; r < comm->n; r++)
        keys[r] = all[r].key;
    gyre_status_t st = comm_remote_know(comm->group, remote, keys);
    free(keys);
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
    if (mine.status == GYRE_OK && comm->hosts > 1)
        mine.status = (int32_t)comm_remote_expose(comm->group, s->own, bytes, &mine.key, &s->remote);
    gyre_status_t st = agree(comm, &mine, all);
    if (st != GYRE_OK)
        return st;
    mine.status = (int32_t)map_parts(comm, all, s);
    if (mine.status == GYRE_OK && s->remote)
        mine.status = (int32_t)know_keys(comm, all, s->remote);
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
    if (s)
        s->retired = calloc(1, sizeof *s->retired);
    if (!s || !s->retired || !all) {
        if (s)
            free(s->retired);
        free(s);
        free(all);
        return gyre_fail(GYRE_ERR_NO_MEMORY, "%s: no memory for %zu ranks", SHARED, n);
    }
    s->n = comm->n;
    s->comm = comm;
    s->comm_id = comm->id;
    s->maker = getpid();
    st = share(comm, bytes, all, s);
    free(all);
    if (st != GYRE_OK) {
        (void)let_go(s);
        return st;
    }
    *ptr = s->own;
    if (s->remote)
        coll_registry_keep(comm, 1);
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
    } else if (!s->parts[rank].at) {
        st = gyre_fail(GYRE_ERR_UNSUPPORTED,
                       "gyre_mem_peer: rank %d is on another host, where this process can neither load nor "
                       "store: gyre_put and gyre_get reach it",
                       rank);
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
    if (s->remote && s->maker == getpid() && has_comm(s))
        coll_registry_keep(s->comm, 0);
    return let_go(s);
}

/* ---- put, get, flush ---- */

/* 1: the part of `rank`, or with -1 some part, is on another host. */
static int is_far(const shared_t *s, int rank)
{
    return s->remote && (rank < 0 || !s->parts[rank].at);
}

/* The record of the memory at ptr, of which `rank` has a part; -1: all. */
static gyre_status_t find_part(const char *name, const void *ptr, int rank, shared_t **out)
{
    gyre_status_t st = GYRE_OK;
    pthread_mutex_lock(&all_shared.lock);
    shared_t *s = *find_shared(ptr);
    if (!s)
        st = gyre_fail(GYRE_ERR_INVALID, "%s: %p was not given by gyre_mem_alloc_shared, or is free already",
                       name, ptr);
    else if (rank < -1 || rank >= s->n)
        st = gyre_fail(GYRE_ERR_INVALID, "%s: rank %d is out of range 0..%d", name, rank, s->n - 1);
    else if (s->maker != getpid())
        st = gyre_fail(GYRE_ERR_INVALID,
                       "%s: the memory is the parent's: a child of fork can only exec or exit", name);
    else if (is_far(s, rank) && !has_comm(s))
        st = gyre_fail(GYRE_ERR_INVALID, "%s: the communicator of this memory has ended", name);
    pthread_mutex_unlock(&all_shared.lock);
    if (st == GYRE_OK && is_far(s, rank))
        st = coll_check_comm(name, s->comm);
    *out = s;
    return st;
}

/* What the other rank is late with. No bell rings for it: looks, then yields, then naps. */
static gyre_status_t wait_more(const char *name, gyre_comm_t *comm, int rank, base_time_t deadline,
                               uint32_t turn)
{
    static const struct timespec nap = {.tv_nsec = NAP_US * 1000};
    int others;
    gyre_status_t st = coll_comm_ask(comm);
    if (st != GYRE_OK)
        return st;
    if (coll_registry_advance(comm, &others) > 0)
        return GYRE_IN_PROGRESS;
    if (turn > NAPS_FROM)
        nanosleep(&nap, NULL);
    else if (turn > YIELDS_FROM)
        sched_yield();
    if (turn % 16 || base_now() < deadline)
        return GYRE_IN_PROGRESS;
    return gyre_fail_quiet(
        GYRE_ERR_TIMEOUT,
        "%s: rank %d on another host has not answered within %.1f s: over TCP it must be in "
        "a call of Gyre, or have GYRE_PROGRESS_THREAD=1",
        name, rank, comm->timeout_s);
}

/* The communicator has failed with st, if that is an error. */
static gyre_status_t moved(gyre_comm_t *comm, gyre_status_t st)
{
    char text[1024];
    if (st == GYRE_OK)
        return st;
    snprintf(text, sizeof text, "%s", gyre_last_error());
    coll_drive(comm);
    coll_comm_notice(comm); /* a death that nobody has met yet is the better story */
    if (gyre_comm_error(comm) == GYRE_OK) {
        gyre_fail_quiet(st, "%s", text);
        coll_comm_fail(comm, NULL, st, NULL);
    }
    coll_stop_driving(comm);
    return coll_comm_ask(comm);
}

static gyre_status_t move(const char *name, void *ptr, int rank, size_t offset, void *local, size_t bytes,
                          int writes)
{
    shared_t *s;
    gyre_status_t st = find_part(name, ptr, rank, &s);
    if (st == GYRE_OK && rank < 0)
        st = gyre_fail(GYRE_ERR_INVALID, "%s: rank %d is out of range 0..%d", name, rank, s->n - 1);
    if (st == GYRE_OK && bytes > 0 && !local)
        st = gyre_fail(GYRE_ERR_INVALID, "%s: %s is NULL but bytes is %zu", name, writes ? "from" : "to",
                       bytes);
    if (st == GYRE_OK && (offset > s->parts[rank].bytes || bytes > s->parts[rank].bytes - offset))
        st = gyre_fail(GYRE_ERR_INVALID, "%s: %zu bytes from offset %zu: rank %d has %zu bytes", name, bytes,
                       offset, rank, s->parts[rank].bytes);
    if (st != GYRE_OK || bytes == 0)
        return st;
    if (s->parts[rank].at) {
        unsigned char *theirs = (unsigned char *)s->parts[rank].at + offset;
        memmove(writes ? theirs : local, writes ? local : theirs, bytes);
        return GYRE_OK;
    }
    const base_time_t deadline = base_deadline(s->comm->timeout_s);
    for (uint32_t turn = 0;; turn++) {
        st = comm_remote_move(s->comm->group, s->remote, rank, writes, offset, local, bytes);
        if (st == GYRE_IN_PROGRESS)
            st = wait_more(name, s->comm, rank, deadline, turn);
        if (st != GYRE_IN_PROGRESS)
            return moved(s->comm, st);
    }
}

gyre_status_t gyre_put(const void *from, size_t bytes, void *ptr, int rank, size_t offset)
{
    return move("gyre_put", ptr, rank, offset, (void *)(uintptr_t)from, bytes, 1); /* NOLINT: it is read */
}

gyre_status_t gyre_get(void *to, size_t bytes, void *ptr, int rank, size_t offset)
{
    return move("gyre_get", ptr, rank, offset, to, bytes, 0);
}

gyre_status_t gyre_flush(void *ptr, int rank)
{
    static const char name[] = "gyre_flush";
    shared_t *s;
    gyre_status_t st = find_part(name, ptr, rank, &s);
    /* Stores to ranks of this host are in their place before anything that this thread does next. */
    atomic_thread_fence(memory_order_seq_cst);
    if (st != GYRE_OK || !s->remote)
        return st;
    const base_time_t deadline = base_deadline(s->comm->timeout_s);
    for (int r = rank < 0 ? 0 : rank; r < (rank < 0 ? s->n : rank + 1) && st == GYRE_OK; r++) {
        if (s->parts[r].at)
            continue;
        for (uint32_t turn = 0; (st = comm_remote_flush(s->comm->group, r)) == GYRE_IN_PROGRESS &&
                                (st = wait_more(name, s->comm, r, deadline, turn)) == GYRE_IN_PROGRESS;
             turn++) {
        }
    }
    return moved(s->comm, st);
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
