/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/run/team.h: what the ranks of one process share (gyre_cuda_comms_create).
 *
 * A team replaces comm_group and the job's watcher. The ranks have no transport between them: their
 * operations are on devices (collectives/gpu/call/team.c). The ranks share two things:
 *  1. Each rank's board of calls, so that an error can name the calls of the ranks.
 *  2. The failure of any rank. The others see it at their next call, or when the guard looks at them
 *     (collectives/gpu/call/guard.c).
 *
 * Each rank also has a world and a place in a flight recorder of its own. No other rank reads these two: they
 * exist so that the other files of this module need no special case. */
#ifndef COLLECTIVES_RUN_TEAM_H
#define COLLECTIVES_RUN_TEAM_H

#include <pthread.h>
#include <stdatomic.h>

#include "comm/recorder/recorder.h"
#include "comm/memory/segment.h"
#include "comm/transport.h"

enum { COLL_TEAM_STREAMS = 8 /* of a rank that are remembered */ };

typedef struct {
    comm_recorder_slot_t recorder;
    comm_board_t board;
    comm_world_t world;
    _Atomic int left;   /* its communicator was destroyed */
    int device, beside; /* its CUDA device, and how many ranks of the team are on it, itself included */
    char *arena; /* on the device; owned by the team, as the others read there until they are gone, too */
    /* streams of calls that were not captured, each with its newest call (0: none): two ranks on one may wait
     * forever */
    struct {
        uintptr_t stream;
        uint32_t seq;
    } used[COLL_TEAM_STREAMS];
} coll_team_rank_t;

typedef struct coll_team coll_team_t;
struct coll_team {
    int n;
    _Atomic int users;        /* communicators that are left, and the creating rank until it is done */
    _Atomic uint32_t trouble; /* 1: a rank has failed; the story is below */
    pthread_mutex_t lock;     /* guards the story, what ranks note of streams, and plans */
    gyre_status_t status;
    char text[1700];
    void (*drop)(coll_team_t *team); /* frees the arenas, when the last communicator has gone */
    /* which shapes schedules serve (collectives/gpu/plans/schedule.c), under the lock, and the bytes of
     * each arena that are theirs */
    struct coll_cuda_plan *plans;
    size_t planned;
    int *host_of;            /* [n] zeros */
    coll_team_rank_t rank[]; /* [n] */
};

/* With one user, its caller. NULL: no memory (reported). */
coll_team_t *coll_team_create(int n);
/* One user less; with the last one goes the team. leave: the communicator of that rank. */
void coll_team_release(coll_team_t *team);
void coll_team_leave(coll_team_t *team, int rank);

/* Its lock. 1: this thread was interrupted while it held the lock or waited for it: a signal handler must not
 * wait for it, too. */
void coll_team_lock(coll_team_t *team);
void coll_team_unlock(coll_team_t *team);
int coll_team_locking(void);

/* A rank has failed, or aborts: the first story stays. */
void coll_team_tell(coll_team_t *team, gyre_status_t status, const char *text);
/* The failure that a rank of the team has reported, with its text. GYRE_OK: none. */
gyre_status_t coll_team_told(coll_team_t *team, char *text, size_t bytes);

#endif
