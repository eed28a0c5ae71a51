/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/agree/agree.h: the ranks of a job agree whether a step that each does for itself has failed. So an
 * error is that of every rank, no rank waits for one that has given up, and it is logged once. */
#ifndef PIPELINE_AGREE_AGREE_H
#define PIPELINE_AGREE_AGREE_H

#include <gyre/gyre.h>

/* `mine` of all ranks become one: the status of the lowest rank that failed. Only rank 0 logs; an error of
 * other ranks alone is logged by the lowest of them. The error text of all others names the lowest, too.
 * *agreed: set to 1 if the error is that of every rank; NULL: nobody asks. Collective. */
gyre_status_t pipe_agree(gyre_comm_t *comm, gyre_status_t mine, int *agreed);
/* The end of it, or of another agreement, on one rank: rank `first` failed with `what`. mine, text: what this
 * rank has met. Returns `what`. */
gyre_status_t pipe_agree_failed(gyre_comm_t *comm, int first, gyre_status_t what, gyre_status_t mine,
                                const char *text);
/* What `step` does on each rank for itself, silent on all but rank 0, and pipe_agree. Collective. */
gyre_status_t pipe_by_all(gyre_comm_t *comm, gyre_status_t (*step)(void *user), void *user, int *agreed);

/* Threads for this rank, on its host's processors: its share of those that it may run on, of what the host's
 * ranks may, and of the control group's limit; at least 1, so 1 where ranks fill the cores. Collective. */
gyre_status_t pipe_threads_share(gyre_comm_t *comm, size_t *threads);

#endif
