/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/proof/check/joint.c: JOINT steps: what they do to the memory of all ranks, and that nothing
 * else touches it meanwhile.
 *
 * Only messages bound the time between ranks. A rank whose memory is touched has announced the memory before,
 * in a message that the working rank received. The working rank sends the end in a later message, which must
 * be received like any other. In between everything may happen at once. So no element may be worked on by
 * joint steps of two ranks unless both read it. The same holds for a joint step and a local one. */
#include "collectives/proof/check/internal.h"

static cell_t *cell_of(proc_t *p, coll_buf_t buf, size_t element)
{
    return p->cells + p->base[buf] + element;
}

/* Is there a message of `kind` with `other` before the step (with `after`: after the step) in its channel? */
static int has_message(const coll_schedule_t *s, uint32_t step, coll_step_kind_t kind, int other, int after)
{
    for (uint32_t i = after ? step + 1 : 0; i < (after ? s->nsteps : step); i++)
        if (s->steps[i].kind == kind && s->steps[i].peer == other &&
            s->steps[i].channel == s->steps[step].channel)
            return 1;
    return 0;
}

/* Announcements and notices lie where the executor looks for them. */
int coll_check_announcement(check_t *c, int rank, uint32_t step)
{
    const proc_t *p = &c->proc[rank];
    const coll_step_t *s = &p->schedule->steps[step];
    size_t at = s->kind == COLL_STEP_SEND ? 0 : coll_announcement_at(p->args, s->peer);
    if (s->at.buf != COLL_TMP || s->at.offset != at || (s->count != p->args->place && s->count != 1))
        return coll_check_fail(c, rank, step, "is no announcement and no notice");
    return 1;
}

static int is_framed(check_t *c, int rank, uint32_t step, int other)
{
    const coll_schedule_t *mine = c->proc[rank].schedule, *theirs = c->proc[other].schedule;
    const coll_args_t *a = c->proc[other].args;
    if (other == rank)
        return 1;
    if (!has_message(mine, step, COLL_STEP_RECV, other, 0))
        return coll_check_fail(c, rank, step, "touches memory of rank %d before that was announced", other);
    if (!has_message(mine, step, COLL_STEP_SEND, other, 1))
        return coll_check_fail(c, rank, step, "does not tell rank %d when it is done", other);
    for (uint32_t i = 0; i < theirs->nsteps; i++) {
        const coll_step_t *s = &theirs->steps[i];
        if (s->kind != COLL_STEP_SEND || s->peer != rank)
            continue;
        if (s->count != a->place)
            return coll_check_fail(c, other, i, "is the first message to rank %d and no announcement", rank);
        return 1;
    }
    return 1;
}

static int read_joint(check_t *c, int rank, uint32_t step, int owner, size_t element, uint32_t *value)
{
    cell_t *cell = cell_of(&c->proc[owner], COLL_IN, element);
    uint32_t me = (uint32_t)rank + 1;
    if (cell->value == COLL_VALUE_NONE)
        return coll_check_fail(c, rank, step, "reads element %zu of rank %d, which nothing wrote", element,
                               owner);
    if (cell->write || (cell->joint_write && cell->joint_write != me))
        return coll_check_fail(c, rank, step, "races for element %zu of rank %d, which is written meanwhile",
                               element, owner);
    cell->joint_read = !cell->joint_read || cell->joint_read == me ? me : UINT32_MAX;
    *value = cell->value;
    return 1;
}

static int write_joint(check_t *c, int rank, uint32_t step, int owner, size_t element, uint32_t value)
{
    cell_t *cell = cell_of(&c->proc[owner], COLL_OUT, element);
    uint32_t me = (uint32_t)rank + 1;
    int local = cell->write || cell->sends;
    for (int ch = 0; ch < COLL_MAX_CHANNELS; ch++)
        local |= cell->read[ch] != 0;
    if (local || cell->joint_write || (cell->joint_read && cell->joint_read != me))
        return coll_check_fail(c, rank, step, "races for element %zu of rank %d, which is in use meanwhile",
                               element, owner);
    cell->joint_write = me;
    cell->value = value;
    return 1;
}

static int reduce_joint(check_t *c, int rank, uint32_t step, size_t element)
{
    uint32_t sum;
    for (int r = 0; r < c->n; r++)
        if (!read_joint(c, rank, step, r, element, &c->operands[r]))
            return 0;
    sum = coll_value_final(&c->values, coll_value_reduce(&c->values, c->operands, (size_t)c->n));
    for (int r = 0; r < c->n; r++)
        if (!write_joint(c, rank, step, r, element, sum))
            return 0;
    return 1;
}

int coll_check_joint(check_t *c, int rank, uint32_t step)
{
    const coll_step_t *s = &c->proc[rank].schedule->steps[step];
    const int all = s->peer == COLL_FROM_ALL, root = c->proc[rank].args->root;
    if (all ? c->op != COLL_ALL_REDUCE || s->flags != COLL_FINAL
            : c->op != COLL_BROADCAST || s->flags != 0 || s->peer < 0 || s->peer >= c->n || s->peer == root ||
                  (rank != root && rank != s->peer))
        return coll_check_fail(c, rank, step, "is no joint step of this operation");
    for (int r = 0; r < c->n; r++)
        if ((all || r == root || r == s->peer) && !is_framed(c, rank, step, r))
            return 0;
    for (size_t i = s->at.offset; i < s->at.offset + s->count; i++) {
        uint32_t value;
        if (all ? !reduce_joint(c, rank, step, i)
                : !read_joint(c, rank, step, root, i, &value) ||
                      !write_joint(c, rank, step, s->peer, i, value))
            return 0;
    }
    return !c->values.failed;
}
