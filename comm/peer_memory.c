/* comm/peer_memory.c: see the header. */
#include "comm/peer_memory.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/thread/fence.h"
#include "base/settings/settings.h"
#include "comm/link.h"
#include "comm/memory/memory.h"
#include "comm/memory/cma.h"

enum {
    MAPS = 4,     /* windows of a peer that are remembered */
    FETCH_MS = 2, /* that one call may wait for the peer's watcher to hand over a window */
    GRACE_MS =
        1000, /* in which the watcher tells why a peer's memory cannot be reached, if the peer is dead */
    CLOSE_MS = 1000
};
#define MS ((base_time_t)1000000)

typedef struct {
    uint64_t window; /* 0: unused */
    unsigned char *base;
    size_t bytes;
} map_t;

typedef struct {
    map_t maps[MAPS];
    unsigned next;
    uint64_t refused; /* a window that could not be mapped; 0: none */
    comm_watch_fetch_t fetch;
    base_time_t broken_at; /* 0: not broken */
} peer_t;

struct comm_reach {
    int n;
    peer_t peers[];
};

/* All read the same settings' words from the cards and the same bytes from the segment, which are written once, before the
 * group exists. */
int comm_reach_all(const comm_group_t *group)
{
    if (group->n < 2 || group->hosts > 1 || !group->seg.base || comm_group_shuns_memory(group))
        return 0;
    for (int r = 0; r < group->n; r++) {
        if (!group->cards[r].reaches)
            return 0;
        for (int owner = 0; owner < group->n; owner++)
            if (owner != r && !atomic_load_explicit(
                                  comm_segment_cma(&group->seg, group->local_of[r], group->local_of[owner]),
                                  memory_order_acquire))
                return 0;
    }
    return 1;
}

comm_place_t comm_reach_place(const void *ptr, size_t bytes)
{
    comm_place_t place = {.address = (uint64_t)(uintptr_t)ptr};
    size_t offset = 0;

    if (strcmp(base_setting_string(SET_SHM_COPY), "cma") != 0 &&
        comm_mem_find(ptr, bytes, &place.window, &offset))
        place.offset = offset;
    return place;
}

static peer_t *peer_of(comm_group_t *group, int peer)
{
    size_t bytes = sizeof(struct comm_reach) + (size_t)group->n * sizeof(peer_t);

    if (!group->reach) {
        group->reach = calloc(1, bytes);
        if (!group->reach)
            return NULL;
        group->reach->n = group->n;
        group->private_bytes += bytes;
    }
    return &group->reach->peers[peer];
}

void comm_reach_free(comm_group_t *group)
{
    for (int r = 0; group->reach && r < group->reach->n; r++)
        comm_watch_fetch_drop(&group->reach->peers[r].fetch);
    free(group->reach);
    group->reach = NULL;
}

gyre_status_t comm_reach_map(comm_group_t *group, int peer, const comm_place_t *place, size_t bytes,
                             void **at)
{
    peer_t *p = peer_of(group, peer);
    const void *found = NULL;

    if (place->window == 0)
        return GYRE_ERR_UNSUPPORTED;
    if (!p)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to remember windows of %d ranks", group->n);
    for (unsigned i = 0; i < MAPS; i++) {
        const map_t *map = &p->maps[i];
        if (map->window == place->window && place->offset <= map->bytes &&
            bytes <= map->bytes - place->offset) {
            *at = map->base + place->offset;
            return GYRE_OK;
        }
    }
    if (p->refused == place->window)
        return GYRE_ERR_UNSUPPORTED;
    gyre_status_t status =
        comm_mem_map(group->world->watch, group->cards[peer].address, place->window, (size_t)place->offset,
                     bytes, &p->fetch, base_now() + FETCH_MS * MS, &found);
    if (status == GYRE_IN_PROGRESS)
        return status;
    if (status != GYRE_OK) {
        p->refused = place->window;
        return GYRE_ERR_UNSUPPORTED;
    }
    *at = (void *)(uintptr_t)found;
    p->maps[p->next++ % MAPS] = (map_t){.window = place->window,
                                        .base = (unsigned char *)*at - place->offset,
                                        .bytes = (size_t)place->offset + bytes};
    return GYRE_OK;
}

/* A call that the kernel refused. Death is the watcher's to tell, and it may take a moment longer than it takes to find that memory
 * is gone. But where a word is still read that was when the group was made, the peer lives, and it is the buffer. */
static gyre_status_t unreachable(comm_group_t *group, int peer, int to_output, uint64_t address, size_t bytes,
                                 int err)
{
    const comm_card_t *card = &group->cards[peer];
    peer_t *p = peer_of(group, peer);
    base_time_t now = base_now();
    gyre_status_t lost = comm_group_lost(group);
    const char *call = to_output ? "process_vm_writev" : "process_vm_readv";
    uint64_t word;

    if (lost != GYRE_OK)
        return lost;
    if (err == EFAULT && comm_cma_read(card->pid, card->probe_address, &word, sizeof word) == 0)
        return gyre_fail_quiet(
            GYRE_ERR_TRANSPORT,
            "the kernel lets no other process reach the %s buffer of rank %d (%zu bytes at %#llx, %s: %s); "
            "GYRE_SHM_COPY=copy on all ranks avoids it, or a window (gyre_mem_alloc)%s",
            to_output ? "output" : "input", peer, bytes, (unsigned long long)address, call, strerror(err),
            to_output ? "; for broadcast also GYRE_ALGO=broadcast:direct" : "");
    if (p && p->broken_at == 0)
        p->broken_at = now;
    if (p && now - p->broken_at < GRACE_MS * MS)
        return GYRE_IN_PROGRESS;
    return gyre_fail_quiet(
        GYRE_ERR_TRANSPORT,
        "%s was allowed on the memory of rank %d when the group was made and fails now (%s); "
        "GYRE_SHM_COPY=copy avoids it",
        call, peer, strerror(err));
}

static gyre_status_t reached(comm_group_t *group, int peer)
{
    if (group->reach)
        group->reach->peers[peer].broken_at = 0;
    return GYRE_OK;
}

gyre_status_t comm_reach_read(comm_group_t *group, int peer, const comm_place_t *place, size_t offset,
                              void *to, size_t bytes)
{
    int err = comm_cma_read(group->cards[peer].pid, place->address + offset, to, bytes);

    return err ? unreachable(group, peer, 0, place->address + offset, bytes, err) : reached(group, peer);
}

gyre_status_t comm_reach_write(comm_group_t *group, int peer, const comm_place_t *place, size_t offset,
                               const void *from, size_t bytes)
{
    int err = comm_cma_write(group->cards[peer].pid, place->address + offset, from, bytes);

    return err ? unreachable(group, peer, 1, place->address + offset, bytes, err) : reached(group, peer);
}

static comm_board_t *board_of(const comm_group_t *group, int rank)
{
    return comm_segment_board(&group->seg, group->local_of[rank]);
}

/* The fence pairs with the one in comm_reach_close: either we see that the owner has closed, or it sees that we are inside. */
int comm_reach_enter(comm_group_t *group)
{
    atomic_store_explicit(&group->board->inside, 1, memory_order_relaxed);
    base_fence();
    for (int r = 0; r < group->n; r++)
        if (atomic_load_explicit(&board_of(group, r)->closed, memory_order_relaxed)) {
            comm_reach_leave(group);
            return 0;
        }
    return 1;
}

void comm_reach_leave(comm_group_t *group)
{
    /* Release: what we did is done for whoever sees the 0 (acquire in comm_reach_close). */
    atomic_store_explicit(&group->board->inside, 0, memory_order_release);
}

void comm_reach_close(comm_group_t *group)
{
    base_time_t until = base_now() + CLOSE_MS * MS;

    if (group->n < 2 || group->hosts > 1 || !group->seg.base)
        return; /* nobody could */
    comm_reach_leave(group);
    atomic_store_explicit(&group->board->closed, 1, memory_order_relaxed);
    base_fence();
    for (int r = 0; r < group->n; r++)
        while (r != group->rank && atomic_load_explicit(&board_of(group, r)->inside, memory_order_acquire) &&
               base_now() < until &&
               comm_watch_dead(group->world->watch, &group->world_ranks[r], 1, NULL, 0) < 0)
            sched_yield();
}
