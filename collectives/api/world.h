/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/api/world.h: the jobs that this process is a rank of. Each has its own ranks, secret,
 * connections and watcher; several can be there at once. */
#ifndef COLLECTIVES_API_WORLD_H
#define COLLECTIVES_API_WORLD_H

#include <sys/types.h>

#include "collectives/api/comm.h"

typedef enum { COLL_WORLD_JOINING = 0, COLL_WORLD_READY, COLL_WORLD_LEAVING } coll_world_state_t;

typedef struct coll_world coll_world_t;
struct coll_world {
    comm_world_t comm; /* first: the world of a communicator's is this */
    coll_world_t *next;
    coll_world_state_t state;
    int by_launcher;    /* gyre_init made it, with what the launcher gave; there is one at most */
    int threaded;       /* uses the progress thread */
    coll_tune_t tune;   /* the same on all its ranks */
    coll_asked_t asked; /* of its communicator, which begins with it */
};

int coll_world_launched(const comm_world_t *world); /* 1: gyre_init made it */
/* INVALID: this process is a child of fork of one that is in a job. */
gyre_status_t coll_world_refuse_child(const char *call);
/* A world that is being joined. timeout_s, progress_thread: as in gyre_config_t; where they say nothing, the
 * settings do. asked: copied. NULL: no memory (reported). */
coll_world_t *coll_world_new(int by_launcher, double timeout_s, int progress_thread,
                             const coll_asked_t *asked);
/* The one of gyre_init, also while it is being joined; NULL: none. */
coll_world_t *coll_world_of_launcher(void);
/* The rank that log lines begin with, -1: none. They say that of one world, the first. */
void coll_world_name(const coll_world_t *world, int rank);
/* Joins the job that `who` describes, and makes its communicator. On an error nothing of it is left, and
 * `world` is freed. Waits for the other ranks; other worlds may be joined meanwhile. */
gyre_status_t coll_world_begin(coll_world_t *world, const comm_identity_t *who, base_time_t deadline,
                               gyre_comm_t **out);
/* The same for a newcomer to a running job (GYRE_JOIN). */
gyre_status_t coll_world_enter(coll_world_t *world, base_time_t deadline, gyre_comm_t **out);
/* Frees one that was not joined. */
void coll_world_drop(coll_world_t *world);

#endif
