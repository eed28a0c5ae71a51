/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-perf/bucket/bucket.h: `gyre-perf bucket`: many tensors reduced through buckets.
 *
 *   tensors.c  which tensors       run.c  one bucket size measured       bucket.c  the command, table, curve,
 *              JSON
 */
#ifndef TOOLS_GYRE_PERF_BUCKET_BUCKET_H
#define TOOLS_GYRE_PERF_BUCKET_BUCKET_H

#include "tools/gyre-perf/command.h"

/* In the order in which a backward pass finishes them. */
typedef struct {
    size_t *counts; /* [count] elements of each */
    size_t count, room, elements, largest;
} perf_tensors_t;
/* gpt2, bloom, or a file. PERF_OK, or PERF_USAGE with the reason in `why`. */
int perf_tensors_load(const char *model, perf_tensors_t *t, char *why, size_t bytes);
void perf_tensors_free(perf_tensors_t *t);

typedef struct {
    const perf_tensors_t *tensors;
    gyre_type_t type;
    int iters, warmup, check;
    /* Of one backward pass; 0: no computing. Below 0: twice as long as one large all_reduce, which the first
     * measurement sets here. */
    double compute_s;
} perf_bucket_plan_t;

/* Seconds; averages over ranks of each rank's median. */
typedef struct {
    /* bytes: what is reduced, with the padding between tensors */
    size_t bucket_bytes, buckets, bytes;
    double time;            /* through buckets, all tensors ready at once */
    double one, each;       /* one large all_reduce; one per tensor */
    double compute;         /* the stand-in for backward alone; 0: not asked for */
    double step;            /* backward with buckets starting as tensors become ready */
    double exposed, hidden; /* of that step, as gyre-train counts them */
    /* Medians of the ratios of single iterations, which a machine whose speed drifts changes little: */
    double one_ratio, each_ratio; /* one / time, each / time */
    double gain;                  /* (compute + one) / step; 0: no computing */
    uint64_t nwrong;
} perf_bucket_row_t;

/* Collective. */
gyre_status_t perf_bucket_measure(gyre_comm_t *comm, perf_bucket_plan_t *plan, perf_work_t *work,
                                  size_t bucket_bytes, perf_bucket_row_t *row);

#endif
