/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-perf/tuning/choice.h: the algorithm of a call and the source of the decision, the other
 * candidates, and the predictions of the cost model (collectives/proof). The library asks no model: --explain
 * prints its opinion, and --tune measures the candidates. */
#ifndef TOOLS_GYRE_PERF_TUNING_CHOICE_H
#define TOOLS_GYRE_PERF_TUNING_CHOICE_H

#include "collectives/proof/simulate/simulate.h"
#include "collectives/run/plan.h"

enum { PERF_CANDIDATES_MOST = 24 };

/* Candidates for a call like args (op, n, uniform, host, root) of `bytes` (as gyre-perf's first column) on
 * `parts` hosts, or cells of one host. list: [PERF_CANDIDATES_MOST], as lines that a tuning file could have,
 * without ranges. Returns how many. */
int perf_candidates(const coll_args_t *args, int parts, uint64_t bytes, coll_tune_line_t *list);

/* The algorithm of a call, the reason, and the model's prediction. */
typedef struct {
    coll_choice_t choice;
    int oneshot; /* 1: path "oneshot", without a schedule; then algo, chunk and channels mean nothing */
    const char *path;
    char transport[32]; /* of the links to all others: "shm", or "shm+verbs" where they differ */
    uint32_t channels, segments;
    uint64_t bytes, chunk; /* as in gyre-perf's first column; bytes of a chunk */
    double predicted;      /* ns; 0: no prediction */
    /* the best predicted other one; algo AUTO: there is no other */
    coll_tune_line_t second;
    double second_predicted; /* ns */
    char why[288];
} perf_choice_t;
/* Not collective; builds the plan if it is not there. memory: of the buffers. Errors: of coll_plan_get. */
gyre_status_t perf_choice_of(gyre_comm_t *comm, const coll_shape_t *shape, coll_memory_t memory,
                             perf_choice_t *out);

#endif
