/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/api/comm.h: what comm.c, join.c and split.c ask of each other. */
#ifndef COLLECTIVES_API_COMM_H
#define COLLECTIVES_API_COMM_H

#include "collectives/run/communicator.h"

/* A communicator of `n` ranks of the job: world_ranks[n], of which this process is number `rank`. id: the
 * same on all of them. all_gather(user, ...) gathers bytes of all of them. Collective over them; *out is
 * set on success only. */
gyre_status_t coll_comm_make(comm_world_t *world, uint64_t id, const int *world_ranks, int n, int rank,
                             comm_all_gather_fn all_gather, void *user, base_time_t deadline,
                             gyre_comm_t **out);

void coll_comm_set_timeout(gyre_comm_t *comm, double seconds);

/* What chooses algorithms, the same on all ranks of the job; it lives as long as the process. */
const coll_tune_t *coll_process_tune(void);
/* Seconds that an operation may take: gyre_init's, or before it GYRE_TIMEOUT's. */
double coll_process_timeout(void);

#endif
