/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-perf/recover/recover.h: what the parts of `gyre-perf recover` share.
 *
 *   recover.c       command line, table      rank.c  the rounds, as a rank of a job
 *   jobs.c  jobs of its own making on this host */
#ifndef TOOLS_GYRE_PERF_RECOVER_RECOVER_H
#define TOOLS_GYRE_PERF_RECOVER_RECOVER_H

#include <stdatomic.h>

#include "tools/gyre-perf/command.h"

enum { RECOVER_RANKS = 64 };

typedef struct {
    perf_common_t common;
    int ranks, rounds, seed;
    int during; /* in every other round another rank dies while the others shrink */
    const char *kind;
} recover_options_t;

/* One round: ms, of the slowest survivor. */
typedef struct {
    int victim, second; /* ranks of the job as it began; second: -1: none */
    int left, shrinks;  /* ranks left in the end; calls of gyre_comm_shrink until there was a good result */
    double detect;      /* from the last barrier with the victim to the error */
    double shrink;      /* from there to the new communicator */
    double result;      /* from there to the first all_reduce over it */
    int wrong;          /* 1: its result was not right */
} recover_round_t;

/* As a rank: up to `rounds` rounds, fewer if fewer than three ranks are left before. records: [rounds], *done
 * of them filled, the same on all survivors. first: number of the first round. *comm: in and out: the
 * job's communicator. */
gyre_status_t recover_rounds(gyre_comm_t **comm, const recover_options_t *o, int first, int rounds,
                             recover_round_t *records, int *done);

/* Starts jobs on this host until there are o->rounds records. A PERF_ code. */
int recover_jobs(const recover_options_t *o, recover_round_t *records);

#endif
