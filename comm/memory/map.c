/* SPDX-License-Identifier: Apache-2.0 */
/* comm/memory/map.c: windows of other processes, mapped here and remembered.
 *
 * The first use of a window costs a fetch from its owner's watcher and an mmap; the descriptor is closed at
 * once. A mapping is dropped when its owner has freed the window and nobody holds the mapping, which is
 * looked at whenever another window is mapped. An owner whose operation has failed may free a window that is
 * still being read here, so a thread that reads must hold it. */
#include "comm/memory/memory.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/memory_file.h"
#include "comm/memory/window.h"

struct comm_mapping {
    comm_mapping_t *next;
    unsigned char owner[32];
    uint64_t id;
    const unsigned char *base;
    size_t bytes; /* of data; the control page follows */
    int left;     /* 1: comm_mapping_leave: it is dropped even if the owner has not freed it, or has died */
    /* By how many it is held. From 0 it rises under the lock only. Release and acquire: the accesses of the
     * one that let go come before the munmap. */
    _Atomic unsigned holds;
};

static struct {
    pthread_mutex_t lock;
    comm_mapping_t *mappings;
} maps = {.lock = PTHREAD_MUTEX_INITIALIZER};

static comm_mapping_t *find(const unsigned char owner[32], uint64_t id)
{
    for (comm_mapping_t *map = maps.mappings; map; map = map->next) {
        if (map->id == id && memcmp(map->owner, owner, sizeof map->owner) == 0)
            return map;
    }
    return NULL;
}

static const void *place(const comm_mapping_t *map, size_t offset, size_t bytes)
{
    return offset <= map->bytes && bytes <= map->bytes - offset ? map->base + offset : NULL;
}

static void unmap(comm_mapping_t *map)
{
    munmap((void *)(uintptr_t)map->base, map->bytes + mem_page());
    free(map);
}

static mem_control_t *control_of(const comm_mapping_t *map)
{
    return (mem_control_t *)(uintptr_t)(map->base + map->bytes); /* NOLINT: a page */
}

int comm_mapping_freed(const comm_mapping_t *map)
{
    return (int)atomic_load_explicit(&control_of(map)->closed, memory_order_acquire);
}

void comm_mapping_hold(comm_mapping_t *map)
{
    atomic_fetch_add_explicit(&map->holds, 1, memory_order_relaxed);
}

void comm_mapping_release(comm_mapping_t *map)
{
    if (map)
        atomic_fetch_sub_explicit(&map->holds, 1, memory_order_release);
}

/* Drops the mappings that nobody holds: of windows that their owners have freed or this process has left, or
 * all. */
static void sweep(int all)
{
    comm_mapping_t **link = &maps.mappings;

    while (*link) {
        comm_mapping_t *map = *link;
        if (atomic_load_explicit(&map->holds, memory_order_acquire) == 0 &&
            (all || map->left || comm_mapping_freed(map))) {
            *link = map->next;
            unmap(map);
        } else {
            link = &map->next;
        }
    }
}

void comm_mapping_leave(comm_mapping_t *map)
{
    if (mem_control_leave(control_of(map)) &&
        madvise((void *)(uintptr_t)map->base, map->bytes, MADV_REMOVE) != 0)
        log_debug("window %llu of a peer: its memory goes back only when it is unmapped",
                  (unsigned long long)map->id);
    pthread_mutex_lock(&maps.lock);
    map->left = 1;
    comm_mapping_release(map);
    sweep(0);
    pthread_mutex_unlock(&maps.lock);
}

/* Maps what `fd` stands for; NULL on failure. */
static comm_mapping_t *map_new(const unsigned char owner[32], uint64_t id, int fd)
{
    comm_mapping_t *map = calloc(1, sizeof *map);
    void *base = MAP_FAILED;
    struct stat info;

    if (map && fstat(fd, &info) == 0 && info.st_size > (off_t)mem_page())
        base = base_memory_file_map(fd, (uint64_t)info.st_size);
    if (base == MAP_FAILED) {
        free(map);
        return NULL;
    }
    memcpy(map->owner, owner, sizeof map->owner);
    map->id = id;
    map->base = base;
    map->bytes = (size_t)info.st_size - mem_page();
    return map;
}

/* 1 if the window is mapped already, with its place in *at, and held: NULL if it is not as large as that. */
static int look_up(const unsigned char owner[32], uint64_t id, size_t offset, size_t bytes, const void **at,
                   comm_mapping_t **held)
{
    comm_mapping_t *known;

    pthread_mutex_lock(&maps.lock);
    known = find(owner, id);
    *at = known ? place(known, offset, bytes) : NULL;
    *held = *at ? known : NULL;
    if (*held)
        comm_mapping_hold(*held);
    pthread_mutex_unlock(&maps.lock);
    return known != NULL;
}

static void keep(comm_mapping_t *made)
{
    pthread_mutex_lock(&maps.lock);
    sweep(0);
    if (find(made->owner, made->id)) { /* another thread was faster */
        unmap(made);
    } else {
        made->next = maps.mappings;
        maps.mappings = made;
    }
    pthread_mutex_unlock(&maps.lock);
}

gyre_status_t comm_mem_map(comm_watch_t *watch, const unsigned char owner[32], uint64_t id, size_t offset,
                           size_t bytes, comm_watch_fetch_t *fetch, base_time_t until, const void **at,
                           comm_mapping_t **held)
{
    gyre_status_t status = GYRE_OK;
    comm_mapping_t *made = NULL;
    int fd = -1;

    if (!look_up(owner, id, offset, bytes, at, held)) {
        status =
            comm_watch_fetch_some(watch, owner, id, fetch, &fd, until); /* without the lock: it may wait */
        if (status == GYRE_IN_PROGRESS)
            return status;
        if (status == GYRE_OK) {
            made = map_new(owner, id, fd);
            close(fd); /* the mapping keeps the memory */
            if (made)
                keep(made);
            else
                status = gyre_fail_quiet(GYRE_ERR_NO_MEMORY, "window %llu of a peer could not be mapped",
                                         (unsigned long long)id);
        }
        if (status != GYRE_OK) {
            log_debug("window %llu of a peer: %s", (unsigned long long)id, gyre_last_error());
            return status;
        }
        look_up(owner, id, offset, bytes, at, held);
    }
    comm_watch_fetch_drop(fetch); /* another thread may have brought it meanwhile */
    return *at ? GYRE_OK
               : gyre_fail_quiet(GYRE_ERR_FORMAT, "window %llu of a peer is smaller than that",
                                 (unsigned long long)id);
}

void comm_mem_unmap_all(void)
{
    pthread_mutex_lock(&maps.lock);
    sweep(1);
    pthread_mutex_unlock(&maps.lock);
}
