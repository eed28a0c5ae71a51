/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/schedules/simulate.c: all ranks' programs in virtual time. Each rank is advanced as far as it
 * gets; what it waits for either was done by another rank, and then its time is known, or was not. Since no
 * rank ever has a choice, the order in which ranks are advanced does not matter: if this run gets stuck,
 * every run does. */
#include "pipeline/schedules/simulate.h"

#include <math.h>

#include "base/error.h"
#include "pipeline/schedules/match.h"
#include "pipeline/schedules/program.h"
#include "pipeline/schedules/kinds.h"

typedef struct {
    pipe_program_t program;
    size_t at; /* step */
    double clock;
    int posted;
    double *posted_at; /* [steps]: of RECVs; NAN: not yet */
    size_t *last_send; /* [slots]: step + 1 of the last SEND from there; 0: none */
} rank_t;

typedef struct {
    const pipe_schedule_t *schedule;
    const pipe_times_t *times;
    pipe_simulation_t *out;
    rank_t *rank; /* [ranks] */
    size_t **link, *cursor;
    base_arena_t work;
} run_t;

static double cost_unscaled(const pipe_times_t *t, pipe_op_t op)
{
    switch (op) {
    case PIPE_FORWARD:
        return t->forward;
    case PIPE_BACKWARD:
        return t->backward;
    case PIPE_BACKWARD_INPUT:
        return t->backward - t->weight;
    case PIPE_BACKWARD_WEIGHT:
        return t->weight;
    default:
        return 0.0;
    }
}

static double cost(const run_t *run, int rank, const pipe_action_t *a)
{
    const double *scale = run->times->scale;
    double took = cost_unscaled(run->times, a->op);
    return scale ? took * scale[pipe_stage_of(&run->schedule->shape, rank, a->chunk)] : took;
}

/* When the message that `from` sends in step i has come: NAN if that is not known yet. */
static double arrival(const run_t *run, int from, size_t i)
{
    const rank_t *sender = &run->rank[from];
    const pipe_action_t *a = &run->schedule->action[from][i];
    double posted = run->rank[a->peer].posted_at[run->link[from][i]];
    if (sender->at <= i || isnan(posted))
        return NAN;
    return fmax(run->out->start[from][i], posted) + run->times->hop;
}

/* From when on the rank may do its next step; NAN: not known yet. */
static double ready(const run_t *run, int r)
{
    const rank_t *rank = &run->rank[r];
    const pipe_step_t *step = &rank->program.step[rank->at];
    if (pipe_op_receives(step->action.op))
        return arrival(run, step->action.peer, run->link[r][rank->at]);
    if (pipe_op_computes(step->action.op) && step->out >= 0 && rank->last_send[step->out])
        return arrival(run, r, rank->last_send[step->out] - 1);
    return 0.0;
}

static void post(rank_t *rank)
{
    const pipe_program_t *program = &rank->program;
    for (; rank->posted < program->step[rank->at].posted; rank->posted++)
        rank->posted_at[program->receive[rank->posted].step] = rank->clock;
}

/* Steps of one rank until it must wait. Returns how many. */
static size_t advance(run_t *run, int r)
{
    rank_t *rank = &run->rank[r];
    size_t from = rank->at;
    for (; rank->at < rank->program.steps; rank->at++) {
        const pipe_step_t *step = &rank->program.step[rank->at];
        post(rank);
        double when = ready(run, r), took = cost(run, r, &step->action);
        if (isnan(when))
            break;
        double *start = &run->out->start[r][rank->at];
        *start = pipe_op_receives(step->action.op) ? rank->clock : fmax(rank->clock, when);
        rank->clock = fmax(rank->clock, when) + took;
        run->out->end[r][rank->at] = rank->clock;
        if (pipe_op_computes(step->action.op)) {
            run->out->busy[r] += took;
            run->out->makespan = fmax(run->out->makespan, rank->clock);
        }
        if (pipe_op_sends(step->action.op))
            rank->last_send[step->out] = rank->at + 1;
    }
    return rank->at - from;
}

static gyre_status_t stuck(const run_t *run)
{
    char mine[200], theirs[200];
    int r = 0;
    while (run->rank[r].at == run->rank[r].program.steps)
        r++;
    const rank_t *rank = &run->rank[r];
    const pipe_step_t *step = &rank->program.step[rank->at];
    int receives = pipe_op_receives(step->action.op);
    size_t sent = receives ? 0 : rank->last_send[step->out] - 1;
    int peer = receives ? step->action.peer : run->schedule->action[r][sent].peer;
    pipe_action_text(run->schedule, r, rank->at, mine, sizeof mine);
    pipe_action_text(run->schedule, peer, run->rank[peer].at, theirs, sizeof theirs);
    return gyre_fail_quiet(GYRE_ERR_INTERNAL, "deadlock: %s waits for rank %d%s, which waits in %s", mine,
                           peer, receives ? "" : " to post a receive", theirs);
}

static gyre_status_t run_all(run_t *run)
{
    int p = run->schedule->shape.ranks;
    for (;;) {
        size_t moved = 0, left = 0;
        for (int r = 0; r < p; r++) {
            moved += advance(run, r);
            left += run->rank[r].program.steps - run->rank[r].at;
        }
        if (left == 0)
            return GYRE_OK;
        if (moved == 0)
            return stuck(run);
    }
}

/* Peaks follow from the list alone. */
static void count_held(const pipe_schedule_t *s, int r, int *activations, int *weights)
{
    int held = 0, later = 0;
    *activations = *weights = 0;
    for (size_t i = 0; i < s->count[r]; i++) {
        pipe_op_t op = s->action[r][i].op;
        held += op == PIPE_FORWARD;
        later += op == PIPE_BACKWARD_INPUT;
        *activations = held > *activations ? held : *activations;
        *weights = later > *weights ? later : *weights;
        later -= op == PIPE_BACKWARD_WEIGHT;
        held -= op == PIPE_BACKWARD || op == PIPE_BACKWARD_WEIGHT ||
                (s->shape.forward_only && op == PIPE_FORWARD);
    }
}

static gyre_status_t make_room(run_t *run)
{
    const pipe_schedule_t *s = run->schedule;
    pipe_simulation_t *out = run->out;
    size_t p = (size_t)s->shape.ranks;
    run->rank = base_arena_alloc(&run->work, p, sizeof *run->rank);
    run->link = base_arena_alloc(&run->work, p, sizeof *run->link);
    run->cursor = base_arena_alloc(&run->work, p, sizeof *run->cursor);
    out->start = base_arena_alloc(&out->arena, p, sizeof *out->start);
    out->end = base_arena_alloc(&out->arena, p, sizeof *out->end);
    out->busy = base_arena_alloc(&out->arena, p, sizeof *out->busy);
    out->activations = base_arena_alloc(&out->arena, 3 * p, sizeof *out->activations);
    if (!run->rank || !run->link || !run->cursor || !out->start || !out->end || !out->busy ||
        !out->activations)
        return GYRE_ERR_NO_MEMORY;
    out->weights = out->activations + p;
    out->slots = out->weights + p;
    for (size_t r = 0; r < p; r++) {
        size_t n = s->count[r];
        run->link[r] = base_arena_alloc(&run->work, n, sizeof **run->link);
        run->rank[r].posted_at = base_arena_alloc(&run->work, n, sizeof(double));
        out->start[r] = base_arena_alloc(&out->arena, n, sizeof **out->start);
        out->end[r] = base_arena_alloc(&out->arena, n, sizeof **out->end);
        if (!run->link[r] || !run->rank[r].posted_at || !out->start[r] || !out->end[r])
            return GYRE_ERR_NO_MEMORY;
        for (size_t i = 0; i < n; i++)
            run->rank[r].posted_at[i] = NAN;
    }
    return GYRE_OK;
}

static gyre_status_t prepare(run_t *run)
{
    const pipe_schedule_t *s = run->schedule;
    if (make_room(run) != GYRE_OK)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to simulate a pipeline of %d ranks", s->shape.ranks);
    gyre_status_t st = pipe_match(s, run->link, run->cursor);
    for (int r = 0; r < s->shape.ranks && st == GYRE_OK; r++) {
        rank_t *rank = &run->rank[r];
        st = pipe_program_build(s, r, &rank->program);
        if (st != GYRE_OK)
            break;
        int slots = rank->program.first[PIPE_SLOT_KINDS];
        rank->last_send = base_arena_alloc(&run->work, (size_t)slots + 1, sizeof *rank->last_send);
        if (!rank->last_send)
            st =
                gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to simulate a pipeline of %d ranks", s->shape.ranks);
        run->out->slots[r] = slots;
        count_held(s, r, &run->out->activations[r], &run->out->weights[r]);
    }
    return st;
}

gyre_status_t pipe_simulate(const pipe_schedule_t *schedule, const pipe_times_t *times,
                            pipe_simulation_t *out)
{
    *out = (pipe_simulation_t){0};
    run_t run = {.schedule = schedule, .times = times, .out = out};
    gyre_status_t st = prepare(&run);
    if (st == GYRE_OK)
        st = run_all(&run);
    double busy = 0.0;
    for (int r = 0; r < schedule->shape.ranks; r++) {
        busy += st == GYRE_OK ? out->busy[r] : 0.0;
        if (run.rank)
            pipe_program_free(&run.rank[r].program);
    }
    base_arena_free(&run.work);
    if (st != GYRE_OK)
        pipe_simulation_free(out);
    else if (out->makespan > 0.0)
        out->bubble = 1.0 - busy / (out->makespan * (double)schedule->shape.ranks);
    return st;
}

void pipe_simulation_free(pipe_simulation_t *simulation)
{
    base_arena_free(&simulation->arena);
    *simulation = (pipe_simulation_t){0};
}

double pipe_idle_zb_h1(const pipe_shape_t *shape, const pipe_times_t *t)
{
    double p = shape->ranks, m = shape->micro_batches, input = t->backward - t->weight;
    return m >= p ? (p - 1) * fmax(fmax(t->forward, input), t->forward + input - t->weight) : NAN;
}

double pipe_idle_zb_v(const pipe_shape_t *shape, const pipe_times_t *t)
{
    double p = shape->ranks, m = shape->micro_batches;
    int even = t->forward == t->weight && t->backward == 2 * t->weight;
    return even && m >= 2 * p ? (p - 1) * t->forward : NAN;
}

double pipe_bubble_formula(const pipe_shape_t *shape, const pipe_times_t *t)
{
    const pipe_kind_row_t *row = pipe_kind_row(shape->kind);
    double p = shape->ranks, m = shape->micro_batches, v = shape->chunks, both = t->forward + t->backward;
    for (int stage = 0; t->scale && stage < pipe_stages(shape); stage++)
        if (t->scale[stage] != 1.0)
            return NAN;
    if (shape->forward_only || !row)
        return NAN;
    double idle = row->idle ? row->idle(shape, t) : (p - 1) * both, work = m * v * both;
    return idle / (work + idle);
}
