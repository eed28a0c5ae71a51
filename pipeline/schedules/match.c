/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/schedules/match.c: messages between two ranks meet in the order of both lists. */
#include "pipeline/schedules/match.h"

#include <string.h>

#include "base/error.h"

int pipe_source_stage(const pipe_shape_t *shape, int rank, const pipe_action_t *a)
{
    int stage = pipe_stage_of(shape, rank, a->chunk);
    switch (a->op) {
    case PIPE_FORWARD:
    case PIPE_RECV_ACT:
        return stage - 1;
    case PIPE_BACKWARD:
    case PIPE_BACKWARD_INPUT:
    case PIPE_RECV_GRAD:
        return stage + 1 < pipe_stages(shape) ? stage + 1 : -1;
    default:
        return -1;
    }
}

int pipe_target_stage(const pipe_shape_t *shape, int rank, const pipe_action_t *a)
{
    int stage = pipe_stage_of(shape, rank, a->chunk);
    switch (a->op) {
    case PIPE_FORWARD:
    case PIPE_SEND_ACT:
        return stage + 1 < pipe_stages(shape) ? stage + 1 : -1;
    case PIPE_BACKWARD:
    case PIPE_BACKWARD_INPUT:
    case PIPE_SEND_GRAD:
        return stage - 1;
    default:
        return -1;
    }
}

enum { TEXT = 200 };

static gyre_status_t alone(const pipe_schedule_t *s, int rank, size_t i)
{
    char text[TEXT];
    return gyre_fail_quiet(GYRE_ERR_INTERNAL, "%s: the other end of this message is missing",
                           pipe_action_text(s, rank, i, text, sizeof text));
}

/* The two ends of one message? */
static int fits(const pipe_schedule_t *s, int from, const pipe_action_t *send, int to,
                const pipe_action_t *recv)
{
    return (send->op == PIPE_SEND_ACT) == (recv->op == PIPE_RECV_ACT) &&
           send->micro_batch == recv->micro_batch &&
           pipe_target_stage(&s->shape, from, send) == pipe_stage_of(&s->shape, to, recv->chunk);
}

static gyre_status_t match_from(const pipe_schedule_t *s, int from, size_t *const *link, size_t *cursor)
{
    char mine[TEXT], theirs[TEXT];
    for (size_t i = 0; i < s->count[from]; i++) {
        const pipe_action_t *a = &s->action[from][i];
        if (!pipe_op_sends(a->op))
            continue;
        int to = a->peer;
        size_t *at = &cursor[to];
        while (*at < s->count[to] &&
               !(pipe_op_receives(s->action[to][*at].op) && s->action[to][*at].peer == from))
            ++*at;
        if (*at == s->count[to])
            return alone(s, from, i);
        if (!fits(s, from, a, to, &s->action[to][*at]))
            return gyre_fail_quiet(GYRE_ERR_INTERNAL,
                                   "%s meets %s: messages between two ranks match in order",
                                   pipe_action_text(s, from, i, mine, sizeof mine),
                                   pipe_action_text(s, to, *at, theirs, sizeof theirs));
        link[from][i] = *at;
        link[to][*at] = i;
        ++*at;
    }
    return GYRE_OK;
}

gyre_status_t pipe_match(const pipe_schedule_t *s, size_t *const *link, size_t *cursor)
{
    int p = s->shape.ranks;
    for (int r = 0; r < p; r++)
        memset(link[r], 0xff, s->count[r] * sizeof *link[r]);
    for (int r = 0; r < p; r++) {
        memset(cursor, 0, (size_t)p * sizeof *cursor);
        gyre_status_t st = match_from(s, r, link, cursor);
        if (st != GYRE_OK)
            return st;
    }
    for (int r = 0; r < p; r++)
        for (size_t i = 0; i < s->count[r]; i++)
            if (pipe_op_receives(s->action[r][i].op) && link[r][i] == SIZE_MAX)
                return alone(s, r, i);
    return GYRE_OK;
}
