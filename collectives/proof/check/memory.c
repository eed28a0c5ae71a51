/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/proof/check/memory.c: what a step does to its rank's memory: bounds, values, and races.
 *
 * Races. Two accesses to a cell, one a write, must be ordered whatever the timing. Within a channel COPY,
 * REDUCE and RECV are ordered by the list; between channels by vector clocks. A SEND reads until it is
 * complete, which only a step that depends on it (or comes after one that does) may rely on: that its message
 * was received does not prove it, since a receiver may read the memory later (views). */
#include "collectives/proof/check/internal.h"
#include "collectives/schedules/algorithms.h"

static cell_t *cells_at(proc_t *p, coll_ref_t ref)
{
    return p->cells + p->base[ref.buf] + ref.offset;
}

static int in_bounds(const proc_t *p, coll_ref_t ref, size_t count)
{
    return ref.buf <= COLL_TMP && ref.offset <= p->extent[ref.buf] &&
           count <= p->extent[ref.buf] - ref.offset;
}

/* Of a reduction that ends at `rank`. */
static uint32_t inputs_at(const check_t *c, int rank)
{
    return coll_op_scans(c->op) ? (uint32_t)coll_op_inputs(c->op, c->n, rank) : c->inputs;
}

/* Ranges of one rank's memory, aliasing counted: 0 apart, 1 the same start, 2 overlapping otherwise. */
static int overlap(const proc_t *p, coll_ref_t x, coll_ref_t y, size_t count)
{
    size_t a = p->base[x.buf] + x.offset, b = p->base[y.buf] + y.offset;
    if (a == b)
        return 1;
    return a < b ? (b - a < count ? 2 : 0) : (a - b < count ? 2 : 0);
}

static int check_destination(check_t *c, int rank, uint32_t step)
{
    proc_t *p = &c->proc[rank];
    const coll_step_t *s = &p->schedule->steps[step];
    if (s->at.buf == COLL_IN)
        return coll_check_fail(c, rank, step, "writes to IN");
    for (size_t i = 0; s->at.buf == COLL_OUT && i < s->count; i++)
        if (p->want[s->at.offset + i] == COLL_VALUE_NONE)
            return coll_check_fail(c, rank, step, "writes OUT element %zu, which is not part of the result",
                                   s->at.offset + i);
    return 1;
}

static int check_local_shape(check_t *c, int rank, uint32_t step)
{
    proc_t *p = &c->proc[rank];
    const coll_step_t *s = &p->schedule->steps[step];
    uint32_t nsources = p->schedule->nsources;
    if (s->nsrc == 0 || s->src > nsources || s->nsrc > nsources - s->src ||
        (s->kind == COLL_STEP_COPY && s->nsrc != 1))
        return coll_check_fail(c, rank, step, "has %u sources", s->nsrc);
    int same = 0;
    for (uint32_t i = 0; i < s->nsrc; i++) {
        coll_ref_t from = p->schedule->sources[s->src + i];
        if (!in_bounds(p, from, s->count))
            return coll_check_fail(c, rank, step, "source %u leaves its buffer", i);
        int how = overlap(p, s->at, from, s->count);
        same += how == 1;
        if (how == 2 || (how == 1 && s->kind == COLL_STEP_COPY) || same > 1)
            return coll_check_fail(c, rank, step, "source %u overlaps the destination", i);
    }
    if ((s->kind == COLL_STEP_REDUCE && !c->reduces) || ((s->flags & COLL_FINAL) && !c->reduces))
        return coll_check_fail(c, rank, step, "reduces in an operation that does not");
    if (s->flags & COLL_STAGE &&
        (s->kind != COLL_STEP_COPY || s->at.buf != COLL_TMP || p->schedule->sources[s->src].buf != COLL_IN))
        return coll_check_fail(c, rank, step, "stages other memory than IN, or elsewhere than in TMP");
    if (s->kind == COLL_STEP_REDUCE && c->exact && s->nsrc != inputs_at(c, rank))
        return coll_check_fail(c, rank, step, "has %u sources, not all %u inputs", s->nsrc,
                               inputs_at(c, rank));
    return 1;
}

int coll_check_shape(check_t *c, int rank, uint32_t step)
{
    proc_t *p = &c->proc[rank];
    const coll_step_t *s = &p->schedule->steps[step];
    int message = s->kind == COLL_STEP_SEND || s->kind == COLL_STEP_RECV;
    if (s->kind > COLL_STEP_JOINT || (s->flags & ~(COLL_FINAL | COLL_STAGE)) || (message && s->flags))
        return coll_check_fail(c, rank, step, "has kind %d and flags %d", s->kind, s->flags);
    if (s->count == 0 && !(message && c->op == COLL_BARRIER))
        return coll_check_fail(c, rank, step, "is empty");
    if (message && (s->peer < 0 || s->peer >= c->n || s->peer == rank))
        return coll_check_fail(c, rank, step, "has peer %d", s->peer);
    if (!in_bounds(p, s->at, s->count))
        return coll_check_fail(c, rank, step, "leaves its buffer");
    if (s->dep > p->schedule->ndeps || s->ndep > p->schedule->ndeps - s->dep)
        return coll_check_fail(c, rank, step, "has dependencies outside the list");
    for (uint32_t i = 0; i < s->ndep; i++)
        if (p->schedule->deps[s->dep + i] >= p->schedule->nsteps)
            return coll_check_fail(c, rank, step, "depends on step %u, which does not exist",
                                   p->schedule->deps[s->dep + i]);
    if (coll_algo_is(p->schedule->algo, COLL_REACHES) && message && !coll_check_announcement(c, rank, step))
        return 0;
    if (s->kind == COLL_STEP_JOINT)
        return s->at.buf == COLL_OUT ||
               coll_check_fail(c, rank, step, "is a joint step on other memory than OUT");
    if (s->kind != COLL_STEP_SEND && !check_destination(c, rank, step))
        return 0;
    return message || check_local_shape(c, rank, step);
}

/* 1 if `earlier` (step + 1, or 0: none) of this rank is over before `step` starts, whatever the timing. */
static int before(const check_t *c, int rank, uint32_t earlier, uint32_t step)
{
    const proc_t *p = &c->proc[rank];
    if (earlier == 0)
        return 1;
    unsigned from = p->schedule->steps[earlier - 1].channel, here = p->schedule->steps[step].channel;
    if (from == here)
        return 1; /* it ran already, so it comes before in the list */
    return p->clock[here][(unsigned)rank * COLL_MAX_CHANNELS + from] >= p->position[earlier - 1];
}

static int reading(check_t *c, int rank, uint32_t step, cell_t *cell, coll_ref_t ref, size_t i)
{
    if (cell->joint_write)
        return coll_check_fail(c, rank, step, "reads element %zu, which a joint step of rank %u writes",
                               ref.offset + i, cell->joint_write - 1);
    if (cell->value == COLL_VALUE_NONE)
        return coll_check_fail(c, rank, step, "reads element %zu of its source before anything wrote it",
                               ref.offset + i);
    if (!before(c, rank, cell->write, step))
        return coll_check_fail(c, rank, step, "races with step %u, which writes element %zu that it reads",
                               cell->write - 1, ref.offset + i);
    return 1;
}

/* 1 if the SEND is known to be complete when `step` starts. */
static int is_retired(const check_t *c, int rank, uint32_t send, uint32_t step)
{
    const uint32_t *retired = c->proc[rank].retired[send];
    for (int ch = 0; ch < COLL_MAX_CHANNELS; ch++)
        if (retired[ch] && (retired[ch] - 1 == step || before(c, rank, retired[ch], step)))
            return 1;
    return 0;
}

static int writing(check_t *c, int rank, uint32_t step, cell_t *cell, size_t i, uint32_t value)
{
    size_t element = c->proc[rank].schedule->steps[step].at.offset + i;
    if (cell->joint_write || cell->joint_read)
        return coll_check_fail(c, rank, step, "writes element %zu, which a joint step works on", element);
    if (!before(c, rank, cell->write, step))
        return coll_check_fail(c, rank, step, "races with step %u: both write element %zu", cell->write - 1,
                               element);
    for (int ch = 0; ch < COLL_MAX_CHANNELS; ch++) {
        if (!before(c, rank, cell->read[ch], step))
            return coll_check_fail(c, rank, step, "races with step %u, which reads element %zu",
                                   cell->read[ch] - 1, element);
        cell->read[ch] = 0;
    }
    for (uint32_t at = cell->sends; at; at = c->pending[at].next)
        if (!is_retired(c, rank, c->pending[at].send, step))
            return coll_check_fail(c, rank, step,
                                   "overwrites element %zu, which the send of step %u may still read",
                                   element, c->pending[at].send);
    cell->sends = 0;
    cell->write = step + 1;
    cell->value = value;
    return 1;
}

static int add_pending(check_t *c, cell_t *cell, uint32_t send)
{
    if (c->npending >= c->pending_capacity) {
        size_t capacity = c->pending_capacity ? 2 * c->pending_capacity : 1024;
        pending_t *grown = coll_check_alloc(c, capacity, sizeof *grown);
        if (!grown)
            return 0;
        for (size_t i = 0; i < c->npending; i++)
            grown[i] = c->pending[i];
        c->pending = grown;
        c->pending_capacity = capacity;
        c->npending += c->npending == 0; /* 0 ends the lists */
    }
    c->pending[c->npending] = (pending_t){send, cell->sends};
    cell->sends = (uint32_t)c->npending++;
    return 1;
}

int coll_check_read_message(check_t *c, int rank, uint32_t step, message_t *m)
{
    proc_t *p = &c->proc[rank];
    const coll_step_t *s = &p->schedule->steps[step];
    cell_t *from = cells_at(p, s->at);
    int writable = s->at.buf != COLL_IN || p->aliased;
    m->values = coll_check_alloc(c, s->count, sizeof *m->values);
    if (!m->values)
        return 0;
    for (size_t i = 0; i < s->count; i++) {
        if (!reading(c, rank, step, &from[i], s->at, i))
            return 0;
        m->values[i] = from[i].value;
        if (writable && !add_pending(c, &from[i], step))
            return 0;
    }
    return 1;
}

int coll_check_write_message(check_t *c, int rank, uint32_t step, const message_t *m)
{
    proc_t *p = &c->proc[rank];
    const coll_step_t *s = &p->schedule->steps[step];
    cell_t *to = cells_at(p, s->at);
    for (size_t i = 0; i < s->count; i++)
        if (!writing(c, rank, step, &to[i], i, m->values[i]))
            return 0;
    return 1;
}

static int combine(check_t *c, int rank, uint32_t step, size_t element, uint32_t *result)
{
    const coll_step_t *s = &c->proc[rank].schedule->steps[step];
    for (uint32_t k = 0; c->reduces && k < s->nsrc; k++)
        if (c->values.nodes[c->operands[k]].has_final && (s->nsrc > 1 || s->flags & COLL_FINAL))
            return coll_check_fail(c, rank, step, "works on element %zu of source %u after its final step",
                                   element, k);
    *result = coll_value_reduce(&c->values, c->operands, s->nsrc);
    if (!(s->flags & COLL_FINAL))
        return 1;
    if (c->values.nodes[*result].leaves != inputs_at(c, rank)) {
        char text[200];
        coll_value_print(&c->values, *result, text, sizeof text);
        return coll_check_fail(
            c, rank, step, "is final for element %zu, which holds %s: not one of each input", element, text);
    }
    *result = coll_value_final(&c->values, *result);
    return 1;
}

int coll_check_compute(check_t *c, int rank, uint32_t step)
{
    proc_t *p = &c->proc[rank];
    const coll_step_t *s = &p->schedule->steps[step];
    const coll_ref_t *sources = p->schedule->sources + s->src;
    cell_t *to = cells_at(p, s->at);
    for (size_t i = 0; i < s->count; i++) {
        uint32_t result = COLL_VALUE_NONE;
        for (uint32_t k = 0; k < s->nsrc; k++) {
            cell_t *from = cells_at(p, sources[k]) + i;
            if (!reading(c, rank, step, from, sources[k], i))
                return 0;
            from->read[s->channel] = step + 1;
            c->operands[k] = from->value;
        }
        if (!combine(c, rank, step, i, &result) || !writing(c, rank, step, &to[i], i, result))
            return 0;
    }
    return !c->values.failed;
}

/* A RECV into TMP that is only read by COPY and REDUCE steps of its channel may be a view: the executor then
 * reads the sender's memory in those steps, and the SEND is complete when the last of them is done. Found by
 * walking the list. */
int coll_check_find_views(check_t *c, int rank)
{
    proc_t *p = &c->proc[rank];
    const coll_schedule_t *schedule = p->schedule;
    uint32_t *owner = coll_check_alloc(c, schedule->tmp_count, sizeof *owner);
    unsigned char *real = coll_check_alloc(c, schedule->nsteps, 1);
    if (!owner || !real)
        return 0;
    for (uint32_t step = 0; step < schedule->nsteps; step++) {
        const coll_step_t *s = &schedule->steps[step];
        uint32_t nreads = s->kind == COLL_STEP_SEND ? 1 : s->kind == COLL_STEP_RECV ? 0 : s->nsrc;
        for (uint32_t k = 0; k < nreads; k++) {
            coll_ref_t from = s->kind == COLL_STEP_SEND ? s->at : schedule->sources[s->src + k];
            for (size_t i = 0; from.buf == COLL_TMP && i < s->count; i++) {
                uint32_t recv = owner[from.offset + i];
                if (!recv)
                    continue;
                if (s->kind == COLL_STEP_SEND || schedule->steps[recv - 1].channel != s->channel)
                    real[recv - 1] = 1;
                p->last_view[recv - 1] = step + 1;
            }
        }
        for (size_t i = 0; s->kind != COLL_STEP_SEND && s->at.buf == COLL_TMP && i < s->count; i++)
            owner[s->at.offset + i] = s->kind == COLL_STEP_RECV ? step + 1 : 0;
    }
    for (uint32_t step = 0; step < schedule->nsteps; step++)
        if (real[step])
            p->last_view[step] = 0;
    return 1;
}
