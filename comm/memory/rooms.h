/* SPDX-License-Identifier: Apache-2.0 */
/* comm/memory/rooms.h: rooms in the backing file (backing.h) that serve one group after the
 * other.
 *
 * To map a segment, to touch its pages for the first time and to give them back costs a small group more than
 * all else. So each rank has a few rooms of its own that it gives out again, and every rank leaves mapped
 * what it has mapped:
 *
 *  1. The rank reserves a room. It need not know yet whether it will make a group there.
 *  2. The ranks of the group enter it, each for itself, and leave it, each in its own time.
 *  3. The last one gives its memory back to the system, if it is more than a few pages.
 *  4. Once all have left, its owner makes it all zeros again, when it next reserves one. So no rank that is
 *     late, or was stopped and goes on, writes to another group's segment. A room that a rank never leaves
 *     (it died) is not given out again.
 *
 * A rank whose own rooms are all in use reserves one that serves one group only. */
#ifndef COMM_MEMORY_ROOMS_H
#define COMM_MEMORY_ROOMS_H

#include <pthread.h>

#include "comm/memory/segment.h"

enum {
    COMM_ROOMS_OWN = 8, /* of a rank */
    COMM_ROOMS = 32     /* that a rank keeps mapped, its own among them */
};

typedef enum {
    COMM_ROOM_NONE, /* nothing is known of it */
    COMM_ROOM_FREE, /* nobody of this process is in it; an own one is all zeros */
    COMM_ROOM_USED, /* reserved, or this process is in it */
    COMM_ROOM_LEFT  /* an own one that this process has left: others may be in it */
} comm_room_state_t;

struct comm_room {
    uint64_t at;
    size_t bytes;
    unsigned char *base; /* NULL: not mapped */
    comm_room_state_t state;
    comm_segment_t seg; /* an own one's: the group that this process has left */
};

struct comm_rooms {
    pthread_mutex_t lock;
    comm_room_t room[COMM_ROOMS]; /* the first COMM_ROOMS_OWN: own ones */
    int next;                     /* where to look for an entry to use again */
};

void comm_rooms_init(comm_rooms_t *rooms);
/* Nobody of this process is in a room. */
void comm_rooms_free(comm_rooms_t *rooms);

/* A room for `bytes`, all zeros: its offset in the file, and COMM_ROOM_KEPT if it can be used again. 0: there
 * is none. keep: pages that the last group has touched may serve the next; else they are given back first, so
 * that they come to lie near the ranks that use them. */
#define COMM_ROOM_KEPT UINT64_C(1)
uint64_t comm_room_reserve(comm_backing_t *backing, size_t bytes, int keep);
/* No rank has entered the room that was reserved with `bytes`, or will. */
void comm_room_return(comm_backing_t *backing, uint64_t at, size_t bytes);

/* Maps seg->bytes at seg->at, or has them mapped: fills in seg->base and seg->room. NO_MEMORY. */
gyre_status_t comm_room_enter(comm_backing_t *backing, comm_segment_t *seg);
/* The opposite. seg says what this group has used, to be made zeros. */
void comm_room_leave(const comm_segment_t *seg);

#endif
