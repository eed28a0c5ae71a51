/* pipeline/schedules/generate.h: the orders of computing that schedules are made of; pipeline/schedules/schedule.c adds the messages. */
#ifndef PIPELINE_SCHEDULES_GENERATE_H
#define PIPELINE_SCHEDULES_GENERATE_H

#include "pipeline/schedules/schedule.h"

/* Computing actions of one rank: micro_batches * chunks, times 1 (forward only), 2, or 3 (split). */
size_t pipe_order_length(const pipe_shape_t *shape);
/* Writes them, in order, to action [pipe_order_length]. The shape is one that pipe_shape_check accepts. */
void pipe_order(const pipe_shape_t *shape, int rank, pipe_action_t *action);

#endif
