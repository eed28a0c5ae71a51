/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/schedules/simulate.h: a schedule in virtual time: how long a step lasts, how long the ranks are
 * idle, what the ranks hold.
 *
 * Ranks follow their programs (pipeline/schedules/program.h) as the executor does, with the executor's slots.
 * A message leaves when it was sent and its receive was posted, and takes `hop`. A rank that needs a slot
 * waits until the slot's last message was taken. */
#ifndef PIPELINE_SCHEDULES_SIMULATE_H
#define PIPELINE_SCHEDULES_SIMULATE_H

#include "pipeline/schedules/schedule.h"

/* Any unit, the same for all; of one chunk and one micro-batch. */
typedef struct {
    double forward;
    double backward; /* whole: gradients of input and weights */
    /* the part of `backward` that makes the gradients of weights: what a split schedule moves */
    double weight;
    double hop;          /* from sending to having */
    const double *scale; /* [stages]: multiplies all but hop, for uneven stages. NULL: all 1 */
} pipe_times_t;

typedef struct {
    double makespan;       /* until the last rank has computed all */
    double bubble;         /* the part of ranks * makespan in which no rank computes */
    double **start, **end; /* [ranks][count[rank]]: of each action; of a RECV, the time that was waited */
    double *busy;          /* [ranks] */
    int *
        /* [ranks]: the most held at a time, in (chunk, micro-batch) pairs; see pipe_activation_bound */
        activations;
    int *weights; /* [ranks]: the most weight gradients left for later; see pipe_weight_bound */
    int *slots;   /* [ranks]: boundary tensors that the executor has memory for */
    base_arena_t arena;
} pipe_simulation_t;

/* out: the caller's, pipe_simulation_free. INTERNAL (quiet): ranks wait for each other, or messages do not
 * match; the text names actions. NO_MEMORY. */
gyre_status_t pipe_simulate(const pipe_schedule_t *schedule, const pipe_times_t *times,
                            pipe_simulation_t *out);
void pipe_simulation_free(pipe_simulation_t *simulation);

/* The bubble that the papers promise, with hop = 0, as a part of the step:
 *   gpipe, 1f1b   (p - 1)(F + B) / ((m + p - 1)(F + B)), that is (p - 1) / (m + p - 1)
 *   interleaved   (p - 1) / (v m + p - 1)
 *   zb-h1         (p - 1) I / (m (F + B) + (p - 1) I), I = max(F, B - W, F + B - 2W), B whole: a third of
 *   1f1b's where F = W = B / 2; from m = p on. The paper has I = F + B - 2W, the longest of the three where
 *   W is no longer than F and B - W
 *   zb-v          (p - 1) F / (2 m (F + B) + that) where F = W = B / 2: only the first way down, from m = 2p
 *   on
 * NAN where no formula is known: stages of different scales, zb-v with other times or short batches, zb-h1
 * below m = p. */
double pipe_bubble_formula(const pipe_shape_t *shape, const pipe_times_t *times);

#endif
