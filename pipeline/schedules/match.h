/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/schedules/match.h: which SEND of a schedule meets which RECV. */
#ifndef PIPELINE_SCHEDULES_MATCH_H
#define PIPELINE_SCHEDULES_MATCH_H

#include "pipeline/schedules/schedule.h"

static inline int pipe_op_sends(pipe_op_t op)
{
    return op == PIPE_SEND_ACT || op == PIPE_SEND_GRAD;
}
static inline int pipe_op_receives(pipe_op_t op)
{
    return op == PIPE_RECV_ACT || op == PIPE_RECV_GRAD;
}

/* The stage that an action's tensor comes from (its input, or the message that it receives) or goes to;
 * -1: there is none. */
int pipe_source_stage(const pipe_shape_t *shape, int rank, const pipe_action_t *a);
int pipe_target_stage(const pipe_shape_t *shape, int rank, const pipe_action_t *a);

/* link[rank][i]: for a SEND the index of its RECV in the peer's list, for a RECV that of its SEND; undefined
 * for others. Messages between two ranks meet in order. link: [ranks], each [count[rank]]; cursor: [ranks],
 * for work. INTERNAL (quiet) if two that meet are not the two ends of one message, or one is left over;
 * the text names both. */
gyre_status_t pipe_match(const pipe_schedule_t *schedule, size_t *const *link, size_t *cursor);

#endif
