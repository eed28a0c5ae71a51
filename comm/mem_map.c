/* comm/mem_map.c: windows of other processes, mapped here read-only and remembered.
 *
 * The first use of a window costs a fetch from its owner's watcher and an mmap; the descriptor is closed at once. A
 * mapping is dropped when its owner has freed the window, which is looked at whenever another one is mapped. */
#include "comm/mem.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "comm/mem_window.h"

typedef struct mapping {
    struct mapping *next;
    unsigned char owner[32];
    uint64_t id;
    const unsigned char *base;
    size_t bytes; /* of data; the control page follows */
} mapping_t;

static struct {
    pthread_mutex_t lock;
    mapping_t *mappings;
} maps = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const mapping_t *find(const unsigned char owner[32], uint64_t id)
{
    for (const mapping_t *map = maps.mappings; map; map = map->next) {
        if (map->id == id && memcmp(map->owner, owner, sizeof map->owner) == 0)
            return map;
    }
    return NULL;
}

static const void *place(const mapping_t *map, size_t offset, size_t bytes)
{
    return offset <= map->bytes && bytes <= map->bytes - offset ? map->base + offset : NULL;
}

static void unmap(mapping_t *map)
{
    munmap((void *)(uintptr_t)map->base, map->bytes + MEM_CONTROL_BYTES);
    free(map);
}

/* Drops the mappings of windows that their owners have freed, or all. */
static void sweep(int all)
{
    mapping_t **link = &maps.mappings;

    while (*link) {
        mapping_t *map = *link;
        const mem_control_t *control = (const mem_control_t *)(const void *)(map->base + map->bytes);
        if (all || atomic_load_explicit(&control->closed, memory_order_acquire)) {
            *link = map->next;
            unmap(map);
        } else {
            link = &map->next;
        }
    }
}

/* Fetches and maps; NULL on failure. Without the lock: it may wait for the owner's watcher. */
static mapping_t *fetch(comm_watch_t *watch, const unsigned char owner[32], uint64_t id, base_time_t deadline)
{
    mapping_t *map = calloc(1, sizeof *map);
    struct stat info;
    void *base;
    int fd = -1;

    if (!map)
        return NULL;
    if (comm_watch_fetch(watch, owner, id, &fd, deadline) != GYRE_OK)
        goto fail;
    if (fstat(fd, &info) != 0 || info.st_size <= MEM_CONTROL_BYTES)
        goto fail;
    base = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        goto fail;
    close(fd);
    memcpy(map->owner, owner, sizeof map->owner);
    map->id = id;
    map->base = base;
    map->bytes = (size_t)info.st_size - MEM_CONTROL_BYTES;
    return map;
fail:
    log_debug("window %llu of a peer could not be mapped", (unsigned long long)id);
    if (fd >= 0)
        close(fd);
    free(map);
    return NULL;
}

const void *comm_mem_map(comm_watch_t *watch, const unsigned char owner[32], uint64_t id, size_t offset,
                         size_t bytes, base_time_t deadline)
{
    const mapping_t *known;
    const void *at = NULL;
    mapping_t *made;

    pthread_mutex_lock(&maps.lock);
    known = find(owner, id);
    if (known)
        at = place(known, offset, bytes);
    pthread_mutex_unlock(&maps.lock);
    if (known)
        return at;
    made = fetch(watch, owner, id, deadline);
    if (!made)
        return NULL;
    pthread_mutex_lock(&maps.lock);
    sweep(0);
    known = find(owner, id);
    if (known) { /* another thread was faster */
        unmap(made);
    } else {
        made->next = maps.mappings;
        maps.mappings = made;
        known = made;
    }
    at = place(known, offset, bytes);
    pthread_mutex_unlock(&maps.lock);
    return at;
}

void comm_mem_unmap_all(void)
{
    pthread_mutex_lock(&maps.lock);
    sweep(1);
    pthread_mutex_unlock(&maps.lock);
}
