/* SPDX-License-Identifier: Apache-2.0 */
/* comm/launch/pmi1.h: a client of PMI-1's wire protocol, used by mpiexec.hydra of MPICH and Intel MPI and by
 * srun --mpi=pmi2. The client uses the descriptor that the launcher left open (PMI_FD). Each message is one
 * line of text and has one line as its answer. Every wait has a deadline.
 *
 * An MPI library in the same process uses the same descriptor before or after Gyre, never at the same time
 * (gyre_init and MPI_Init are both collective). The protocol's goodbye is sent once: by MPI_Finalize if the
 * process has an MPI library. */
#ifndef COMM_LAUNCH_PMI1_H
#define COMM_LAUNCH_PMI1_H

#include <stddef.h>

#include <gyre/status.h>

#include "base/clock.h"

enum {
    PMI1_LINE_MAX = 4096, /* bytes of an answer; a longer one is an error */
    PMI1_NAME_MAX = 256
};

typedef struct {
    int fd;
    base_time_t deadline;
    int value_max;             /* bytes of a value that the launcher takes, with its NUL */
    char space[PMI1_NAME_MAX]; /* the job's key-value space: the same text on all its ranks */
    size_t line_bytes, have;   /* the newest answer, and how much of `in` is filled */
    char in[PMI1_LINE_MAX];
} pmi1_t;

/* Opens the conversation. Errors of all calls: BOOTSTRAP (the launcher's answer is malformed or a refusal, or
 * the launcher is gone), TIMEOUT, INVALID (fd is not open). */
gyre_status_t pmi1_open(pmi1_t *pmi, int fd, base_time_t deadline);
/* Reads a value that the launcher or a rank has put. text: [room]. NOT_FOUND (quiet). */
gyre_status_t pmi1_get(pmi1_t *pmi, const char *key, char *text, size_t room);
/* Puts a value, which all ranks see after the next barrier. No spaces or newlines. A key can be put once. */
gyre_status_t pmi1_put(pmi1_t *pmi, const char *key, const char *text);
gyre_status_t pmi1_barrier(pmi1_t *pmi);
/* Ends the conversation. The launcher no longer takes the end of this process for a failure. */
gyre_status_t pmi1_goodbye(pmi1_t *pmi);

#endif
