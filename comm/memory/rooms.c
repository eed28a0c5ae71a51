/* SPDX-License-Identifier: Apache-2.0 */
/* comm/memory/rooms.c: see rooms.h. */
#include "comm/memory/rooms.h"

#include <errno.h>
#include <sys/mman.h>

#include "base/error.h"

void comm_rooms_init(comm_rooms_t *rooms)
{
    *rooms = (comm_rooms_t){.lock = PTHREAD_MUTEX_INITIALIZER, .next = COMM_ROOMS_OWN};
}

static void unmap(comm_room_t *room)
{
    if (room->base)
        munmap(room->base, room->bytes);
    room->base = NULL;
}

void comm_rooms_free(comm_rooms_t *rooms)
{
    for (int i = 0; i < COMM_ROOMS; i++)
        unmap(&rooms->room[i]);
    pthread_mutex_destroy(&rooms->lock);
}

/* ---- own rooms ----------------------------------------------------------------------------------------- */

/* 1: no rank is in it. */
static int is_empty(const comm_room_t *room)
{
    return room->state == COMM_ROOM_FREE ||
           (room->state == COMM_ROOM_LEFT && comm_segment_left_by_all(&room->seg));
}

/* An own room that is all zeros, and long enough; NULL: there is none. */
static comm_room_t *find_free(comm_backing_t *backing, comm_rooms_t *rooms, size_t bytes, int keep)
{
    for (comm_room_t *room = rooms->room; room < rooms->room + COMM_ROOMS_OWN; room++) {
        if (room->bytes < bytes || !is_empty(room))
            continue;
        if (room->state == COMM_ROOM_FREE || comm_segment_clean(backing, &room->seg, keep))
            return room;
    }
    return NULL;
}

/* One that is too short makes way: its bytes in the file are not used again. */
static comm_room_t *find_new(comm_backing_t *backing, comm_rooms_t *rooms, size_t bytes)
{
    for (comm_room_t *room = rooms->room; room < rooms->room + COMM_ROOMS_OWN; room++) {
        if (is_empty(room)) {
            unmap(room);
            comm_backing_give_back(backing, room->at, room->bytes);
            *room = (comm_room_t){0};
        }
        if (room->state != COMM_ROOM_NONE)
            continue;
        room->at = comm_backing_take(backing, bytes);
        room->bytes = bytes;
        return room->at ? room : NULL;
    }
    return NULL;
}

uint64_t comm_room_reserve(comm_backing_t *backing, size_t bytes, int keep)
{
    comm_rooms_t *rooms = comm_backing_rooms(backing);

    pthread_mutex_lock(&rooms->lock);
    comm_room_t *room = find_free(backing, rooms, bytes, keep);
    if (!room)
        room = find_new(backing, rooms, bytes);
    if (room)
        room->state = COMM_ROOM_USED;
    const uint64_t at = room ? room->at | COMM_ROOM_KEPT : comm_backing_take(backing, bytes);
    pthread_mutex_unlock(&rooms->lock);
    return at;
}

/* The entry for the room at `at`; NULL: there is none. */
static comm_room_t *find(comm_rooms_t *rooms, uint64_t at)
{
    for (comm_room_t *room = rooms->room; room < rooms->room + COMM_ROOMS; room++)
        if (room->state != COMM_ROOM_NONE && room->at == at)
            return room;
    return NULL;
}

void comm_room_return(comm_backing_t *backing, uint64_t at, size_t bytes)
{
    comm_rooms_t *rooms = comm_backing_rooms(backing);

    if (!(at & COMM_ROOM_KEPT)) {
        comm_backing_untake(backing, at, bytes);
        return;
    }
    pthread_mutex_lock(&rooms->lock);
    find(rooms, at & ~COMM_ROOM_KEPT)->state = COMM_ROOM_FREE;
    pthread_mutex_unlock(&rooms->lock);
}

/* ---- rooms that this process is in --------------------------------------------------------------------- */

/* An entry for the mapping of another rank's room, which may take that of a room that nobody here is in.
 * NULL: all are in use. */
static comm_room_t *find_entry(comm_rooms_t *rooms)
{
    for (int i = COMM_ROOMS_OWN; i < COMM_ROOMS; i++) {
        comm_room_t *room = &rooms->room[rooms->next];
        rooms->next = rooms->next + 1 < COMM_ROOMS ? rooms->next + 1 : COMM_ROOMS_OWN;
        if (room->state == COMM_ROOM_USED)
            continue;
        unmap(room);
        *room = (comm_room_t){0};
        return room;
    }
    return NULL;
}

/* NULL, and errno: that failed, also after this process has given up the mappings that it does not need. */
static unsigned char *map(const comm_backing_t *backing, comm_rooms_t *rooms, uint64_t at, size_t bytes)
{
    for (int attempt = 0; attempt < 2; attempt++) {
        void *base =
            mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, comm_backing_fd(backing), (off_t)at);
        if (base != MAP_FAILED)
            return base;
        for (int i = 0; i < COMM_ROOMS && attempt == 0; i++)
            if (rooms->room[i].state == COMM_ROOM_FREE)
                unmap(&rooms->room[i]);
    }
    return NULL;
}

/* *entry: the room's, or NULL: it is mapped for this group alone. rooms->lock is held. */
static unsigned char *enter(comm_backing_t *backing, comm_rooms_t *rooms, const comm_segment_t *seg,
                            comm_room_t **entry)
{
    comm_room_t *room = seg->kept ? find(rooms, seg->at) : NULL;

    *entry = NULL;
    if (room && room->bytes < seg->bytes) { /* another rank's, which serves a larger group now */
        unmap(room);
        room->bytes = seg->bytes;
    }
    if (seg->kept && !room && (room = find_entry(rooms)))
        *room = (comm_room_t){.at = seg->at, .bytes = seg->bytes, .state = COMM_ROOM_FREE};
    if (!room)
        return map(backing, rooms, seg->at, seg->bytes);
    if (!room->base)
        room->base = map(backing, rooms, room->at, room->bytes);
    if (room->base) {
        room->state = COMM_ROOM_USED;
        *entry = room;
    }
    return room->base;
}

gyre_status_t comm_room_enter(comm_backing_t *backing, comm_segment_t *seg)
{
    comm_rooms_t *rooms = comm_backing_rooms(backing);

    pthread_mutex_lock(&rooms->lock);
    seg->base = enter(backing, rooms, seg, &seg->room);
    pthread_mutex_unlock(&rooms->lock);
    if (!seg->base)
        return gyre_fail_errno(GYRE_ERR_NO_MEMORY, errno, "cannot map the shared segment of %zu bytes",
                               seg->bytes);
    return GYRE_OK;
}

/* Under the lock: once the last rank has left, the owner may give the room out again, and another thread of
 * this process may enter it. That thread must not find the entry that is about to be left. */
void comm_room_leave(const comm_segment_t *seg)
{
    comm_rooms_t *rooms = comm_backing_rooms(seg->backing);

    pthread_mutex_lock(&rooms->lock);
    if (comm_segment_leave(seg))
        comm_segment_unsoil(seg);
    if (!seg->room) {
        munmap(seg->base, seg->bytes);
    } else {
        const int own = seg->room < rooms->room + COMM_ROOMS_OWN;
        seg->room->state = own ? COMM_ROOM_LEFT : COMM_ROOM_FREE;
        if (own)
            seg->room->seg = *seg;
    }
    pthread_mutex_unlock(&rooms->lock);
}
