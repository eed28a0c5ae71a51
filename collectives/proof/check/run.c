/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/proof/check/run.c: runs all ranks' schedules symbolically and says whether they are right
 * (see check.h).
 *
 * The run. A channel goes on until it meets a RECV whose message was not sent or a dependency that is not
 * complete; a SEND is posted at once and complete when it was received (or, if the receiver can use it as a
 * view, when the last step that reads it is done: the latest moment that an executor may choose). Steps never
 * compete for anything, so every order of execution makes the same progress and one maximal run decides about
 * deadlock; values and races do not depend on it either, because any two conflicting accesses must be
 * ordered. Cost: O(elements moved), plus O(ranks) per step where vector clocks are needed (two channels).
 * Memory: the messages of the whole run. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "collectives/proof/check/internal.h"

int coll_check_fail(check_t *c, int rank, uint32_t step, const char *format, ...)
{
    if (c->why_bytes == 0 || c->why[0])
        return 0; /* the first failure is the one to tell */
    size_t at = (size_t)snprintf(c->why, c->why_bytes, "rank %d", rank);
    if (step != UINT32_MAX && at < c->why_bytes) {
        at += (size_t)snprintf(c->why + at, c->why_bytes - at, ", step ");
        if (at < c->why_bytes) {
            size_t most =
                base_min_size(c->why_bytes - at, 160); /* a reduction may have hundreds of sources */
            int n = coll_step_print(c->proc[rank].schedule, step, c->why + at, most);
            at += n < 0 ? 0 : base_min_size((size_t)n, most - 1);
        }
    }
    if (at + 2 < c->why_bytes)
        at += (size_t)snprintf(c->why + at, c->why_bytes - at, ": ");
    va_list list;
    va_start(list, format);
    if (at < c->why_bytes)
        vsnprintf(c->why + at, c->why_bytes - at, format, list);
    va_end(list);
    return 0;
}

void *coll_check_alloc(check_t *c, size_t count, size_t size)
{
    void *memory = base_arena_alloc(&c->arena, count ? count : 1, size);
    if (!memory)
        c->out_of_memory = 1;
    return memory;
}

static int same_question(check_t *c, const coll_args_t *args)
{
    for (int r = 0; r < c->n; r++) {
        const coll_args_t *a = &args[r];
        if (a->rank != r || a->n != c->n || a->op != args[0].op || a->root != args[0].root ||
            a->count != args[0].count)
            return coll_check_fail(c, r, UINT32_MAX, "was asked for another operation than rank 0");
    }
    return 1;
}

/* Lays out one rank's memory: TMP, then OUT and IN, which lie over each other if in place. */
static int set_up_rank(check_t *c, int rank, const coll_args_t *a, const coll_schedule_t *schedule)
{
    proc_t *p = &c->proc[rank];
    size_t in_shift, out_shift, user, n = schedule->nsteps;
    p->args = a;
    p->schedule = schedule;
    coll_extent(a, &p->extent[COLL_IN], &p->extent[COLL_OUT]);
    p->extent[COLL_TMP] = schedule->tmp_count;
    p->aliased = coll_aliased(a, &in_shift, &out_shift);
    p->base[COLL_TMP] = 0;
    p->base[COLL_OUT] = schedule->tmp_count + out_shift;
    p->base[COLL_IN] = schedule->tmp_count + in_shift;
    user = base_max_size(in_shift + p->extent[COLL_IN], out_shift + p->extent[COLL_OUT]);
    if (!p->aliased) {
        p->base[COLL_IN] += p->extent[COLL_OUT];
        user = p->extent[COLL_IN] + p->extent[COLL_OUT];
    }
    p->cells = coll_check_alloc(c, schedule->tmp_count + user, sizeof *p->cells);
    p->want = coll_check_alloc(c, p->extent[COLL_OUT], sizeof *p->want);
    p->position = coll_check_alloc(c, n, sizeof *p->position);
    p->next_in_channel = coll_check_alloc(c, n, sizeof *p->next_in_channel);
    p->last_view = coll_check_alloc(c, n, sizeof *p->last_view);
    p->retired = coll_check_alloc(c, n, sizeof *p->retired);
    p->complete = coll_check_alloc(c, n, 1);
    p->wanted_clock = coll_check_alloc(c, n, 1);
    p->clock_of = coll_check_alloc(c, n, sizeof *p->clock_of);
    p->held = coll_check_alloc(c, n, sizeof *p->held);
    return !c->out_of_memory;
}

/* Threads the steps of each channel, and checks each step by itself. */
static int thread_steps(check_t *c, int rank, size_t *most_sources)
{
    proc_t *p = &c->proc[rank];
    uint32_t last[COLL_MAX_CHANNELS], count[COLL_MAX_CHANNELS] = {0};
    for (int ch = 0; ch < COLL_MAX_CHANNELS; ch++)
        p->at[ch] = last[ch] = UINT32_MAX;
    for (uint32_t i = 0; i < p->schedule->nsteps; i++) {
        const coll_step_t *s = &p->schedule->steps[i];
        if (s->channel >= COLL_MAX_CHANNELS || s->channel >= p->schedule->channels)
            return coll_check_fail(c, rank, i, "is on channel %u of %u", s->channel, p->schedule->channels);
        if (!coll_check_shape(c, rank, i))
            return 0;
        *(last[s->channel] == UINT32_MAX ? &p->at[s->channel] : &p->next_in_channel[last[s->channel]]) = i;
        last[s->channel] = i;
        p->next_in_channel[i] = UINT32_MAX;
        p->position[i] = ++count[s->channel];
        *most_sources = base_max_size(*most_sources, s->nsrc);
        for (uint32_t k = 0; k < s->ndep; k++) {
            uint32_t on = p->schedule->deps[s->dep + k];
            p->wanted_clock[on] |= p->schedule->steps[on].channel != s->channel;
        }
    }
    return coll_check_find_views(c, rank);
}

static int set_up(check_t *c, const coll_args_t *args, const coll_schedule_t *schedules)
{
    size_t messages = 0, sources = (size_t)(args[0].leaves ? args[0].leaves[c->n] + c->n : c->n),
           lanes = (size_t)c->n * COLL_MAX_CHANNELS;
    c->proc = coll_check_alloc(c, (size_t)c->n, sizeof *c->proc);
    c->operands = coll_check_alloc(c, sources, sizeof *c->operands);
    c->seen = coll_check_alloc(c, sources, sizeof *c->seen);
    c->work = coll_check_alloc(c, lanes, sizeof *c->work);
    c->working = coll_check_alloc(c, lanes, 1);
    if (c->out_of_memory || !same_question(c, args))
        return 0;
    c->clocks = c->op == COLL_BARRIER;
    c->clock_size = lanes;
    for (int r = 0; r < c->n; r++) {
        if (!set_up_rank(c, r, &args[r], &schedules[r]))
            return 0;
        c->clocks |= schedules[r].channels > 1;
    }
    if (!coll_check_expect(c, args))
        return 0;
    for (int r = 0; r < c->n; r++) {
        if (!thread_steps(c, r, &sources))
            return 0;
        messages += schedules[r].nsteps;
        for (int ch = 0; c->clocks && ch < COLL_MAX_CHANNELS; ch++)
            c->proc[r].clock[ch] = coll_check_alloc(c, lanes, sizeof(uint32_t));
    }
    size_t size = 2;
    while (size < 2 * messages)
        size *= 2;
    c->queue_mask = size - 1;
    c->queues = coll_check_alloc(c, size, sizeof *c->queues);
    c->operands = coll_check_alloc(c, sources, sizeof *c->operands);
    return !c->out_of_memory;
}

static queue_t *queue_between(check_t *c, int src, int dst, int channel)
{
    uint64_t h = ((uint64_t)src << 33 ^ (uint64_t)dst << 1 ^ (uint64_t)channel) * 0x9e3779b97f4a7c15u;
    size_t at = (size_t)(h >> 32) & c->queue_mask;
    for (;; at = (at + 1) & c->queue_mask) {
        queue_t *q = &c->queues[at];
        if (!q->used) {
            *q = (queue_t){.src = src, .dst = dst, .channel = channel, .used = 1, .tail = &q->head};
            return q;
        }
        if (q->src == src && q->dst == dst && q->channel == channel)
            return q;
    }
}

static void wake(check_t *c, int rank, int channel)
{
    size_t lanes = (size_t)c->n * COLL_MAX_CHANNELS,
           lane = (size_t)rank * COLL_MAX_CHANNELS + (size_t)channel;
    if (c->working[lane])
        return;
    c->working[lane] = 1;
    c->work[(c->work_head + c->work_count++) % lanes] = (uint32_t)lane;
}

static void completed(check_t *c, int rank, uint32_t step)
{
    proc_t *p = &c->proc[rank];
    p->complete[step] = 1;
    for (int ch = 0; ch < COLL_MAX_CHANNELS; ch++) {
        if (p->stopped[ch])
            wake(c, rank, ch);
        p->stopped[ch] = 0;
    }
    for (held_t *h = p->held[step]; h; h = h->next)
        completed(c, h->rank, h->step); /* SENDs hold nothing, so this goes one level deep */
}

static void join(const check_t *c, uint32_t *clock, const uint32_t *other)
{
    for (size_t i = 0; other && i < c->clock_size; i++)
        if (clock[i] < other[i])
            clock[i] = other[i];
}

/* 1 if all dependencies are complete; then they count as such for what follows in this channel. */
static int dependencies_met(check_t *c, int rank, uint32_t step)
{
    proc_t *p = &c->proc[rank];
    const coll_step_t *s = &p->schedule->steps[step];
    const uint32_t *deps = p->schedule->deps + s->dep;
    for (uint32_t i = 0; i < s->ndep; i++)
        if (!p->complete[deps[i]])
            return 0;
    for (uint32_t i = 0; i < s->ndep; i++) {
        uint32_t *retired = &p->retired[deps[i]][s->channel];
        if (*retired == 0)
            *retired = step + 1;
        if (c->clocks)
            join(c, p->clock[s->channel], p->clock_of[deps[i]]);
    }
    return 1;
}

static int run_send(check_t *c, int rank, uint32_t step)
{
    const coll_step_t *s = &c->proc[rank].schedule->steps[step];
    message_t *m = coll_check_alloc(c, 1, sizeof *m);
    if (!m || !coll_check_read_message(c, rank, step, m))
        return 0;
    m->step = step;
    m->count = s->count;
    if (c->clocks) {
        m->clock = coll_check_alloc(c, c->clock_size, sizeof *m->clock);
        if (!m->clock)
            return 0;
        memcpy(m->clock, c->proc[rank].clock[s->channel], c->clock_size * sizeof *m->clock);
    }
    queue_t *q = queue_between(c, rank, s->peer, s->channel);
    *q->tail = m;
    q->tail = &m->next;
    if (q->waiting)
        wake(c, s->peer, s->channel);
    q->waiting = 0;
    return 1;
}

static int run_recv(check_t *c, int rank, uint32_t step, queue_t *q)
{
    proc_t *p = &c->proc[rank];
    const coll_step_t *s = &p->schedule->steps[step];
    message_t *m = q->head;
    if (m->count != s->count)
        return coll_check_fail(
            c, rank, step,
            "expects %zu elements as message %llu on this channel, but step %u of rank %d sends %zu",
            s->count, (unsigned long long)q->arrived, m->step, s->peer, m->count);
    if (!coll_check_write_message(c, rank, step, m))
        return 0;
    q->arrived++;
    q->head = m->next;
    if (!q->head)
        q->tail = &q->head;
    if (!p->last_view[step]) {
        completed(c, s->peer, m->step);
        return 1;
    }
    held_t *held = coll_check_alloc(c, 1, sizeof *held);
    if (!held)
        return 0;
    held_t **list = &p->held[p->last_view[step] - 1];
    *held = (held_t){*list, s->peer, m->step};
    *list = held;
    return 1;
}

/* Runs one step if it can run: 1 done, 0 not yet, -1 the proof failed. */
static int run_step(check_t *c, int rank, uint32_t step)
{
    proc_t *p = &c->proc[rank];
    const coll_step_t *s = &p->schedule->steps[step];
    queue_t *q = NULL;
    if (!dependencies_met(c, rank, step)) {
        p->stopped[s->channel] = 1;
        return 0;
    }
    if (s->kind == COLL_STEP_RECV) {
        q = queue_between(c, s->peer, rank, s->channel);
        if (!q->head) {
            q->waiting = 1;
            return 0;
        }
    }
    uint32_t *clock = p->clock[s->channel];
    if (c->clocks) {
        clock[(size_t)rank * COLL_MAX_CHANNELS + s->channel] = p->position[step];
        if (q)
            join(c, clock, q->head->clock);
    }
    int fine = s->kind == COLL_STEP_SEND    ? run_send(c, rank, step)
               : s->kind == COLL_STEP_RECV  ? run_recv(c, rank, step, q)
               : s->kind == COLL_STEP_JOINT ? coll_check_joint(c, rank, step)
                                            : coll_check_compute(c, rank, step);
    if (!fine)
        return -1;
    if (c->clocks && p->wanted_clock[step]) {
        p->clock_of[step] = coll_check_alloc(c, c->clock_size, sizeof **p->clock_of);
        if (!p->clock_of[step])
            return -1;
        memcpy(p->clock_of[step], clock, c->clock_size * sizeof *clock);
    }
    if (s->kind != COLL_STEP_SEND)
        completed(c, rank, step);
    return 1;
}

static int run(check_t *c)
{
    size_t lanes = (size_t)c->n * COLL_MAX_CHANNELS;
    for (int r = 0; r < c->n; r++)
        for (int ch = 0; ch < COLL_MAX_CHANNELS; ch++)
            wake(c, r, ch);
    while (c->work_count) {
        uint32_t lane = c->work[c->work_head];
        c->work_head = (c->work_head + 1) % lanes;
        c->work_count--;
        c->working[lane] = 0;
        int rank = (int)(lane / COLL_MAX_CHANNELS), went = 1;
        uint32_t *at = &c->proc[rank].at[lane % COLL_MAX_CHANNELS];
        while (*at != UINT32_MAX && (went = run_step(c, rank, *at)) > 0)
            *at = c->proc[rank].next_in_channel[*at];
        if (went < 0)
            return 0;
    }
    return 1;
}

/* The run stopped: everything must be done and every message received. */
static int check_finished(check_t *c)
{
    for (int r = 0; r < c->n; r++) {
        proc_t *p = &c->proc[r];
        for (int ch = 0; ch < COLL_MAX_CHANNELS; ch++) {
            uint32_t step = p->at[ch];
            if (step == UINT32_MAX)
                continue;
            const coll_step_t *s = &p->schedule->steps[step];
            for (uint32_t i = 0; i < s->ndep; i++)
                if (!p->complete[p->schedule->deps[s->dep + i]])
                    return coll_check_fail(c, r, step, "deadlock: waits forever for step %u",
                                           p->schedule->deps[s->dep + i]);
            return coll_check_fail(c, r, step, "deadlock: waits forever for rank %d", s->peer);
        }
    }
    for (size_t i = 0; i <= c->queue_mask; i++)
        if (c->queues[i].used && c->queues[i].head)
            return coll_check_fail(c, c->queues[i].src, c->queues[i].head->step, "is never received");
    for (int r = 0; r < c->n; r++)
        for (uint32_t i = 0; i < c->proc[r].schedule->nsteps; i++)
            if (!c->proc[r].complete[i])
                return coll_check_fail(c, r, i, "is never complete");
    return 1;
}

gyre_status_t coll_check(const coll_args_t *args, const coll_schedule_t *schedules, int n, char *why,
                         size_t why_bytes)
{
    check_t c = {.n = n,
                 .op = args[0].op,
                 .why = why,
                 .why_bytes = why_bytes,
                 .fast = args[0].fast_order,
                 .exact = args[0].exact,
                 .inputs = (uint32_t)(args[0].leaves ? args[0].leaves[n] : n)};
    c.reduces = coll_op_reduces(c.op);
    if (why_bytes)
        why[0] = '\0';
    int proved = set_up(&c, args, schedules) && run(&c) && check_finished(&c) && coll_check_results(&c);
    int memory = c.out_of_memory || c.values.failed;
    coll_values_free(&c.values);
    base_arena_free(&c.arena);
    if (memory)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to check the schedules of %s over %d ranks",
                         coll_op_name(args[0].op), n);
    if (proved)
        return GYRE_OK;
    return gyre_fail_quiet(GYRE_ERR_INTERNAL, "the schedule of %s over %d ranks is wrong: %s",
                           coll_op_name(args[0].op), n, why_bytes ? why : "");
}
