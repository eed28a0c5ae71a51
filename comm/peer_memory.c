/* SPDX-License-Identifier: Apache-2.0 */
/* comm/peer_memory.c: see the header. */
#include "comm/peer_memory.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/thread/cacheline.h"
#include "base/thread/fence.h"
#include "base/settings/settings.h"
#include "comm/link.h"
#include "comm/memory/memory.h"
#include "comm/memory/cma.h"

enum {
    MAPS = 8,        /* windows of a peer that are remembered */
    FETCH_MS = 2,    /* that one call may wait for the peer's watcher to hand over a window */
    GRACE_MS = 1000, /* in which the watcher learns why memory cannot be reached, if the peer is dead */
    CLOSE_MS = 1000
};

/* A window's number is never used again, so an entry can be stale only for windows that nobody asks for
 * again. */
typedef struct {
    uint64_t window; /* 0: unused */
    unsigned char *base;
    size_t bytes; /* at least so far it was checked */
    comm_mapping_t *held;
} map_t;

struct comm_peer_memory {
    comm_group_t *group; /* borrowed */
    int peer;
    map_t maps[MAPS];
    unsigned next;
    comm_watch_fetch_t fetch; /* of `wanted` */
    comm_place_t wanted;      /* window 0: nothing is being fetched */
    size_t wanted_bytes;
    uint64_t refused;      /* a window that could not be mapped, until another one could; 0: none */
    base_time_t broken_at; /* 0: not broken */
};

/* All read the same settings' words from the cards and the same bytes from the segment, which are written
 * once, before the group exists. */
int comm_peer_memory_all(const comm_group_t *group)
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

comm_place_t comm_place_of(const void *ptr, size_t bytes)
{
    comm_place_t place = {.address = (uint64_t)(uintptr_t)ptr};
    size_t offset = 0;

    if (strcmp(base_setting_string(SET_SHM_COPY), "cma") != 0 &&
        comm_mem_show(ptr, bytes, &place.window, &offset, &place.address))
        place.offset = offset;
    return place;
}

comm_peer_memory_t *comm_peer_memory(comm_group_t *group, int peer)
{
    comm_peer_memory_t **place = &group->peer_memory[peer];

    if (!*place && (*place = calloc(1, sizeof **place))) {
        (*place)->group = group;
        (*place)->peer = peer;
        group->private_bytes += sizeof **place;
    }
    return *place;
}

void comm_peer_memory_free(comm_group_t *group)
{
    for (int r = 0; group->peer_memory && r < group->n; r++) {
        if (group->peer_memory[r]) {
            comm_watch_fetch_drop(&group->peer_memory[r]->fetch);
            for (unsigned i = 0; i < MAPS; i++)
                comm_mapping_release(group->peer_memory[r]->maps[i].held);
        }
        free(group->peer_memory[r]);
        group->peer_memory[r] = NULL;
    }
}

/* ---- windows ------------------------------------------------------------------------------------------- */

static map_t *find(comm_peer_memory_t *memory, uint64_t window)
{
    for (unsigned i = 0; i < MAPS; i++)
        if (memory->maps[i].window == window)
            return &memory->maps[i];
    return NULL;
}

/* Lets go of the windows that the peer has freed, so that they can be unmapped. */
static void forget_freed(comm_peer_memory_t *memory)
{
    for (unsigned i = 0; i < MAPS; i++)
        if (memory->maps[i].held && comm_mapping_freed(memory->maps[i].held)) {
            comm_mapping_release(memory->maps[i].held);
            memory->maps[i] = (map_t){0};
        }
}

/* Goes on with fetching and mapping what is wanted. Anything but IN_PROGRESS ends that. */
static gyre_status_t fetch(comm_peer_memory_t *memory)
{
    const comm_group_t *group = memory->group;
    const comm_place_t *wanted = &memory->wanted;
    const void *found = NULL;
    comm_mapping_t *held = NULL;
    gyre_status_t status;

    forget_freed(memory);
    status = comm_mem_map(group->world->watch, group->cards[memory->peer].address, wanted->window,
                          (size_t)wanted->offset, memory->wanted_bytes, &memory->fetch,
                          base_now() + FETCH_MS * BASE_MS, &found, &held);

    if (status == GYRE_IN_PROGRESS)
        return status;
    if (status == GYRE_OK) {
        map_t *map = find(memory, wanted->window);
        if (!map)
            map = &memory->maps[memory->next++ % MAPS];
        comm_mapping_release(map->held);
        *map = (map_t){.window = wanted->window,
                       .held = held,
                       .base = (unsigned char *)(uintptr_t)found - wanted->offset,
                       .bytes = (size_t)wanted->offset + memory->wanted_bytes};
    }
    memory->refused = status == GYRE_OK ? 0 : wanted->window;
    memory->wanted.window = 0;
    return status;
}

gyre_status_t comm_peer_memory_map(comm_peer_memory_t *memory, const comm_place_t *place, size_t bytes,
                                   void **at)
{
    const map_t *map = place->window != 0 ? find(memory, place->window) : NULL;
    gyre_status_t status = GYRE_OK;

    if (map && place->offset <= map->bytes && bytes <= map->bytes - place->offset) {
        *at = map->base + place->offset;
        return GYRE_OK;
    }
    if (place->window == 0 || memory->refused == place->window)
        return GYRE_ERR_UNSUPPORTED;
    /* Another lane's window comes first: a fetch that was begun is for one window. */
    if (memory->wanted.window != 0 && memory->wanted.window != place->window)
        status = fetch(memory);
    if (status == GYRE_IN_PROGRESS)
        return status;
    memory->wanted = *place;
    memory->wanted_bytes = bytes;
    status = fetch(memory);
    if (status == GYRE_OK)
        *at = find(memory, place->window)->base + place->offset;
    return status == GYRE_OK || status == GYRE_IN_PROGRESS ? status : GYRE_ERR_UNSUPPORTED;
}

comm_mapping_t *comm_peer_memory_hold(comm_peer_memory_t *memory, const comm_place_t *place)
{
    comm_mapping_t *held = find(memory, place->window)->held;

    comm_mapping_hold(held);
    return held;
}

/* ---- the kernel's way ---------------------------------------------------------------------------------- */

gyre_status_t comm_peer_memory_lost(comm_peer_memory_t *memory)
{
    const base_time_t now = base_now();
    gyre_status_t lost = comm_group_lost(memory->group);

    if (lost != GYRE_OK)
        return lost;
    if (memory->broken_at == 0)
        memory->broken_at = now;
    return now - memory->broken_at < GRACE_MS * BASE_MS ? GYRE_IN_PROGRESS : GYRE_OK;
}

/* A call that the kernel refused. But where a word is still read that was when the group was made, the peer
 * lives, and it is the buffer. */
static gyre_status_t unreachable(comm_peer_memory_t *memory, const comm_place_t *place, int to_output,
                                 size_t offset, size_t bytes, int err)
{
    const comm_card_t *card = &memory->group->cards[memory->peer];
    const char *call = to_output ? "process_vm_writev" : "process_vm_readv";
    gyre_status_t lost = comm_peer_memory_lost(memory);
    uint64_t word;

    if (lost != GYRE_OK && lost != GYRE_IN_PROGRESS)
        return lost;
    if (err == EFAULT && comm_cma_read(card->pid, card->probe_address, &word, sizeof word) == 0)
        return gyre_fail_quiet(
            GYRE_ERR_TRANSPORT,
            "the %s buffer of rank %d cannot be %s (%zu bytes at %#llx, %s: %s): it was freed during the "
            "call, or the pointer or the count is wrong; memory that only its owner may read (memfd_secret, "
            "a device's) needs GYRE_SHM_COPY=copy on all ranks",
            to_output ? "output" : "input", memory->peer, to_output ? "written" : "read", bytes,
            (unsigned long long)(place->address + offset), call, strerror(err));
    if (lost == GYRE_IN_PROGRESS)
        return lost;
    if (place->window != 0)
        return gyre_fail_quiet(GYRE_ERR_TRANSPORT,
                               "a window of rank %d could not be mapped here (see ulimit -n and -v), and %s "
                               "fails (%s); GYRE_SHM_COPY=copy avoids windows",
                               memory->peer, call, strerror(err));
    return gyre_fail_quiet(
        GYRE_ERR_TRANSPORT,
        "%s was allowed on the memory of rank %d when the group was made and fails now (%s); "
        "GYRE_SHM_COPY=copy avoids it",
        call, memory->peer, strerror(err));
}

gyre_status_t comm_peer_memory_read(comm_peer_memory_t *memory, const comm_place_t *place, size_t offset,
                                    void *to, size_t bytes)
{
    int err = comm_cma_read(memory->group->cards[memory->peer].pid, place->address + offset, to, bytes);

    if (err)
        return unreachable(memory, place, 0, offset, bytes, err);
    memory->broken_at = 0;
    return GYRE_OK;
}

gyre_status_t comm_peer_memory_write(comm_peer_memory_t *memory, const comm_place_t *place, size_t offset,
                                     const void *from, size_t bytes)
{
    int err = comm_cma_write(memory->group->cards[memory->peer].pid, place->address + offset, from, bytes);

    if (err)
        return unreachable(memory, place, 1, offset, bytes, err);
    memory->broken_at = 0;
    return GYRE_OK;
}

/* ---- giving up early ----------------------------------------------------------------------------------- */

static comm_board_t *board_of(const comm_group_t *group, int rank)
{
    return comm_segment_board(&group->seg, group->local_of[rank]);
}

int comm_peer_memory_closed(const comm_peer_memory_t *memory)
{
    /* Pairs with the fence in comm_peer_memory_close: if what we have read is newer than that, then so is
     * what we read now. */
    atomic_thread_fence(memory_order_acquire);
    return (int)atomic_load_explicit(&board_of(memory->group, memory->peer)->closed, memory_order_relaxed);
}

/* The fence pairs with the one in comm_peer_memory_close: either we see that the owner has closed, or it sees
 * that we are inside. */
int comm_peer_memory_enter(comm_group_t *group)
{
    atomic_store_explicit(&group->board->inside, 1, memory_order_relaxed);
    base_fence();
    for (int r = 0; r < group->n; r++)
        if (atomic_load_explicit(&board_of(group, r)->closed, memory_order_relaxed)) {
            comm_peer_memory_leave(group);
            return 0;
        }
    return 1;
}

void comm_peer_memory_leave(comm_group_t *group)
{
    /* Release: what we did is done for each thread that sees the 0 (acquire in comm_peer_memory_close). */
    atomic_store_explicit(&group->board->inside, 0, memory_order_release);
}

/* 1: it has crashed and its core is being written: it will not go on. */
static int dumps_core(int pid)
{
    char path[64], line[128];
    int dumping = 0;
    FILE *file;

    snprintf(path, sizeof path, "/proc/%d/status", pid);
    file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file) && sscanf(line, "CoreDumping: %d", &dumping) != 1) {
    }
    if (file)
        fclose(file);
    return dumping;
}

/* 1: it is ready. */
static int poll_until(struct pollfd *fd, base_time_t deadline)
{
    int ready;
    while ((ready = poll(fd, 1, base_poll_ms(deadline))) < 0 && errno == EINTR)
        ;
    return ready == 1;
}

/* Ends the process of a rank that stands still in the middle of its work in this rank's memory. It would
 * finish that work whenever it goes on: by stores through a mapping, or by a call to the kernel, neither of
 * which can be taken from it. The word that it had in its memory when the group was made shows that the
 * process is still that one. When this returns, none of its threads runs, or an error was logged. */
static void end_process(const comm_group_t *group, int rank)
{
    const comm_card_t *card = &group->cards[rank];
    const int pidfd = (int)syscall(SYS_pidfd_open, card->pid, 0);
    struct pollfd ended = {.fd = pidfd, .events = POLLIN};
    uint64_t word = 0;
    int err = comm_cma_read(card->pid, card->probe_address, &word, sizeof word);

    if (err == 0 && word == card->probe_value && !dumps_core(card->pid)) {
        log_warning("rank %d (process %d) stands still at work in the memory of rank %d, which its program "
                    "gets back: it is ended",
                    rank, card->pid, group->rank);
        if ((pidfd >= 0 ? syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0)
                        : kill(card->pid, SIGKILL)) != 0 &&
            errno != ESRCH)
            err = errno;
        else if (pidfd >= 0 && !poll_until(&ended, base_deadline(CLOSE_MS / 1e3)))
            err = ETIMEDOUT;
    }
    if (err != 0 && err != ESRCH && err != EFAULT)
        log_error("rank %d (process %d) may still write to the memory of rank %d and cannot be ended: %s",
                  rank, card->pid, group->rank, strerror(err));
    if (pidfd >= 0)
        close(pidfd);
}

/* A rank at work looks at `closed` after each MiB at the latest. */
static int at_work(const comm_group_t *group, int rank)
{
    return (int)atomic_load_explicit(&board_of(group, rank)->inside, memory_order_acquire);
}

void comm_peer_memory_take(comm_peer_memory_t *memory, void *at, size_t bytes)
{
    comm_group_t *group = memory->group;

    atomic_store_explicit(&group->board->inside, 1, memory_order_relaxed);
    base_fence();
    if (!comm_peer_memory_closed(memory))
        base_take_within(at, bytes);
    comm_peer_memory_leave(group);
}

void comm_peer_memory_close(comm_group_t *group)
{
    const double silent_s = base_setting_seconds(SET_HEARTBEAT);
    const base_time_t until = base_now() + CLOSE_MS * BASE_MS + (base_time_t)(silent_s * 1e9);

    if (!group->seg.base)
        return; /* nobody could */
    comm_peer_memory_leave(group);
    atomic_store_explicit(&group->board->closed, 1, memory_order_relaxed);
    base_fence();
    for (int r = 0; r < group->n; r++) {
        int stands_still;
        if (r == group->rank || group->local_of[r] < 0)
            continue;
        /* Seen once outside, it may be seen inside again, but not at work: it is about to see `closed`. */
        while ((stands_still = at_work(group, r)) && base_now() < until &&
               comm_watch_dead(group->world->watch, &group->world_ranks[r], 1, NULL, 0) < 0)
            sched_yield();
        if (stands_still && group->cards[r].pid != (int32_t)getpid())
            end_process(group, r);
        else if (stands_still)
            log_error("rank %d, of this process, too, may still write to the memory of rank %d", r,
                      group->rank);
    }
}
