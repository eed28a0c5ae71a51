/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/api/comm.h: what comm.c, world.c and members/ ask of each other. */
#ifndef COLLECTIVES_API_COMM_H
#define COLLECTIVES_API_COMM_H

#include "collectives/run/communicator.h"

/* A communicator of `n` ranks of the job: world_ranks[n], of which this process is number `rank`. id: the
 * same on all of them. all_gather(user, ...) gathers bytes of all of them. Collective over them; *out is
 * set on success only. */
gyre_status_t coll_comm_make(comm_world_t *world, uint64_t id, const int *world_ranks, int n, int rank,
                             comm_all_gather_fn all_gather, void *user, base_time_t deadline,
                             gyre_comm_t **out);

/* The same of a group, which the communicator owns, also on an error. start: when its making began. */
gyre_status_t coll_comm_around(comm_world_t *world, comm_group_t *group, int n, int rank, base_time_t start,
                               gyre_comm_t **out);

void coll_comm_set_timeout(gyre_comm_t *comm, double seconds);

/* A caller's options, checked. */
typedef struct {
    coll_options_t options; /* what schedules are made by */
    int leaves;             /* of this rank */
    double timeout_s;       /* 0: that of the job */
    int chooses;            /* 1: an order, an algorithm or a chunk is named */
} coll_asked_t;

/* The same of the two deadlines of a config. */
gyre_status_t coll_check_deadlines(const char *call, double init_timeout_s, double timeout_s);
/* Reads a caller's options (NULL: the defaults) for the call `name`. INVALID. */
gyre_status_t coll_options_read(const char *name, const gyre_options_t *given, coll_asked_t *out);
/* Sets them for `comm`, which nobody uses. Collective over its ranks, by all_gather(user, ...): MISMATCH if
 * they differ, INVALID if they are no leaves together. Nothing is set on an error. */
gyre_status_t coll_options_agree(const char *name, const coll_asked_t *mine, gyre_comm_t *comm,
                                 comm_all_gather_fn all_gather, void *user);

/* What chooses algorithms in `world`, the same on all its ranks; it lives as long as the world. */
const coll_tune_t *coll_world_tune(comm_world_t *world);
/* The same for communicators that are in no job: gyre_init's, if it was called. */
const coll_tune_t *coll_process_tune(void);
/* Seconds that an operation may take: gyre_init's, or before it GYRE_TIMEOUT's. */
double coll_process_timeout(void);

#endif
