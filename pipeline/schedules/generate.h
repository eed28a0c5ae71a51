/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/schedules/generate.h: the orders of computing that schedules are made of;
 * pipeline/schedules/schedule.c adds the messages. */
#ifndef PIPELINE_SCHEDULES_GENERATE_H
#define PIPELINE_SCHEDULES_GENERATE_H

#include "pipeline/schedules/kinds.h"

/* Where the next action goes, and how many of each (op, chunk) there were: micro-batches come in order, so
 * the count is the micro-batch. */
struct pipe_writer {
    const pipe_shape_t *shape;
    pipe_action_t *next;
    int done[PIPE_BACKWARD_WEIGHT + 1][2]; /* of chunks 0 and 1 */
};

/* The generators, and what they promise. */
#define KIND(id, stem, name, ...)     \
    pipe_orderer_t pipe_order_##stem; \
    pipe_bound_t pipe_held_##stem;
#include "pipeline/schedules/kinds.def"
#undef KIND
pipe_bound_t pipe_left_zb_h1, pipe_left_zb_v;
/* simulate.c has the formulas of the papers */
pipe_idle_t pipe_idle_zb_h1, pipe_idle_zb_v;

/* Computing actions of one rank: micro_batches * chunks, times 1 (forward only), 2, or 3 (split). */
size_t pipe_order_length(const pipe_shape_t *shape);
/* Writes them, in order, to action [pipe_order_length]. The shape is one that pipe_shape_check accepts. */
void pipe_order(const pipe_shape_t *shape, int rank, pipe_action_t *action);

#endif
