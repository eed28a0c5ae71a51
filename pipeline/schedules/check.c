/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/schedules/check.c: the proof, in four parts: each rank's list by itself; messages and deadlock,
 * which the simulator decides with all times zero; slots; bounds.
 *
 * Micro-batches of a chunk come in order in every kind of action, so "was made before" is one comparison
 * of counts. */
#include "pipeline/schedules/check.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "pipeline/schedules/match.h"
#include "pipeline/schedules/program.h"
#include "pipeline/schedules/simulate.h"

typedef struct {
    const pipe_schedule_t *schedule;
    int rank;
    size_t i;  /* the action that is looked at */
    int *done; /* [chunks][PIPE_OP_END]: of this rank so far */
} view_t;

static int *done(const view_t *v, pipe_op_t op, int chunk)
{
    return &v->done[chunk * PIPE_OP_END + (int)op];
}

static const pipe_action_t *action(const view_t *v)
{
    return &v->schedule->action[v->rank][v->i];
}

static gyre_status_t wrong(const view_t *v, const char *what)
{
    char text[200];
    return gyre_fail_quiet(GYRE_ERR_INTERNAL, "%s: %s",
                           pipe_action_text(v->schedule, v->rank, v->i, text, sizeof text), what);
}

/* ---- one list by itself -------------------------------------------------------------------------------- */

/* How often (op, any micro-batch) must come for a chunk: m times or never. */
static int expected(const pipe_shape_t *shape, int rank, int chunk, pipe_op_t op)
{
    int m = shape->micro_batches, splits = pipe_kind_splits(shape->kind), other = rank;
    pipe_action_t a = {.op = op, .chunk = chunk};
    if (op == PIPE_FORWARD)
        return m;
    if (pipe_op_sends(op) || pipe_op_receives(op)) {
        int stage =
            pipe_op_sends(op) ? pipe_target_stage(shape, rank, &a) : pipe_source_stage(shape, rank, &a);
        if (stage >= 0)
            pipe_place_of(shape, stage, &other, NULL);
        if (other == rank || op == PIPE_SEND_ACT || op == PIPE_RECV_ACT)
            return other == rank ? 0 : m;
    }
    if (shape->forward_only)
        return 0;
    if (op == PIPE_BACKWARD)
        return splits ? 0 : m;
    if (op == PIPE_BACKWARD_INPUT || op == PIPE_BACKWARD_WEIGHT)
        return splits ? m : 0;
    return m;
}

static gyre_status_t check_names(const view_t *v)
{
    const pipe_shape_t *shape = &v->schedule->shape;
    const pipe_action_t *a = action(v);
    int peer = -1;
    if ((unsigned)a->op >= PIPE_OP_END || a->chunk < 0 || a->chunk >= shape->chunks || a->micro_batch < 0 ||
        a->micro_batch >= shape->micro_batches)
        return gyre_fail_quiet(GYRE_ERR_INTERNAL,
                               "rank %d, action %zu does not exist: op %d, chunk %d, micro-batch %d", v->rank,
                               v->i, (int)a->op, a->chunk, a->micro_batch);
    if (expected(shape, v->rank, a->chunk, a->op) == 0)
        return wrong(v, "this schedule has no such action on this chunk");
    if (*done(v, a->op, a->chunk) != a->micro_batch) {
        char what[80];
        return wrong(v, *done(v, a->op, a->chunk) > a->micro_batch
                            ? "it was done before"
                            : (snprintf(what, sizeof what, "micro-batches must come in order, and %d is next",
                                        *done(v, a->op, a->chunk)),
                               what));
    }
    if (pipe_op_sends(a->op))
        pipe_place_of(shape, pipe_target_stage(shape, v->rank, a), &peer, NULL);
    if (pipe_op_receives(a->op))
        pipe_place_of(shape, pipe_source_stage(shape, v->rank, a), &peer, NULL);
    return a->peer == peer ? GYRE_OK : wrong(v, "the neighbouring stage is not on that rank");
}

static int went_backward(const view_t *v, int chunk)
{
    return *done(v, pipe_kind_splits(v->schedule->shape.kind) ? PIPE_BACKWARD_INPUT : PIPE_BACKWARD, chunk);
}

/* The tensor that comes in was received, or made by the neighbouring stage on this rank. */
static gyre_status_t check_input(const view_t *v)
{
    const pipe_shape_t *shape = &v->schedule->shape;
    const pipe_action_t *a = action(v);
    int forward = a->op == PIPE_FORWARD, from = pipe_source_stage(shape, v->rank, a), rank, chunk;
    if (from < 0)
        return GYRE_OK;
    pipe_place_of(shape, from, &rank, &chunk);
    if (rank != v->rank)
        return *done(v, forward ? PIPE_RECV_ACT : PIPE_RECV_GRAD, a->chunk) > a->micro_batch
                   ? GYRE_OK
                   : wrong(v, "its input was not received before");
    return (forward ? *done(v, PIPE_FORWARD, chunk) : went_backward(v, chunk)) > a->micro_batch
               ? GYRE_OK
               : wrong(v, "its input, of the neighbouring stage on this rank, was not made before");
}

static gyre_status_t check_before(const view_t *v)
{
    const pipe_action_t *a = action(v), *last = v->i > 0 ? a - 1 : NULL;
    switch (a->op) {
    case PIPE_FORWARD:
        return check_input(v);
    case PIPE_BACKWARD:
    case PIPE_BACKWARD_INPUT:
        if (*done(v, PIPE_FORWARD, a->chunk) <= a->micro_batch)
            return wrong(v, "it did not go forward before");
        return check_input(v);
    case PIPE_BACKWARD_WEIGHT:
        return *done(v, PIPE_BACKWARD_INPUT, a->chunk) > a->micro_batch
                   ? GYRE_OK
                   : wrong(v, "the gradient of its input was not made before");
    case PIPE_SEND_ACT:
    case PIPE_SEND_GRAD:
        if (last && last->chunk == a->chunk && last->micro_batch == a->micro_batch &&
            (a->op == PIPE_SEND_ACT ? last->op == PIPE_FORWARD
                                    : last->op == PIPE_BACKWARD || last->op == PIPE_BACKWARD_INPUT))
            return GYRE_OK;
        return wrong(v, "it does not stand right after the action that makes what it sends");
    default:
        return GYRE_OK;
    }
}

static gyre_status_t check_list(view_t *v)
{
    const pipe_shape_t *shape = &v->schedule->shape;
    memset(v->done, 0, (size_t)shape->chunks * PIPE_OP_END * sizeof *v->done);
    for (v->i = 0; v->i < v->schedule->count[v->rank]; v->i++) {
        gyre_status_t st = check_names(v);
        if (st == GYRE_OK)
            st = check_before(v);
        if (st != GYRE_OK)
            return st;
        ++*done(v, action(v)->op, action(v)->chunk);
    }
    for (int c = 0; c < shape->chunks; c++)
        for (int op = 0; op < PIPE_OP_END; op++) {
            int want = expected(shape, v->rank, c, (pipe_op_t)op), have = *done(v, (pipe_op_t)op, c);
            if (have != want)
                return gyre_fail_quiet(
                    GYRE_ERR_INTERNAL, "rank %d: %s of chunk %d (stage %d), micro-batch %d is missing",
                    v->rank, pipe_op_name((pipe_op_t)op), c, pipe_stage_of(shape, v->rank, c), have);
        }
    return GYRE_OK;
}

/* ---- slots --------------------------------------------------------------------------------------------- */

/* What each slot holds, as the step that puts it there + 1, while the list is walked; and of each (chunk,
 * micro-batch) the slot and holder that its forward and backward pass read. */
typedef struct {
    const pipe_program_t *program;
    size_t *holds; /* [slots] */
    struct held {
        int slot;
        size_t holder;
    } * input; /* [chunks][micro_batches][2] */
} slots_t;

static struct held *input_of(const view_t *v, const slots_t *s, const pipe_action_t *a, int forward)
{
    size_t m = (size_t)v->schedule->shape.micro_batches;
    return &s->input[((size_t)a->chunk * m + (size_t)a->micro_batch) * 2 + (size_t)forward];
}

/* Is `by` what brings in the tensor that `a` reads: its RECV, or the action of the neighbouring stage on this
 * rank? */
static int brings(const view_t *v, const pipe_action_t *a, const pipe_action_t *by)
{
    const pipe_shape_t *shape = &v->schedule->shape;
    int from = pipe_source_stage(shape, v->rank, a), forward = a->op == PIPE_FORWARD;
    if (by->micro_batch != a->micro_batch)
        return 0;
    if (pipe_op_receives(by->op))
        return by->chunk == a->chunk && (by->op == PIPE_RECV_ACT) == forward;
    return pipe_stage_of(shape, v->rank, by->chunk) == from && (by->op == PIPE_FORWARD) == forward &&
           by->op != PIPE_BACKWARD_WEIGHT;
}

static gyre_status_t check_read(const view_t *v, slots_t *s, const pipe_step_t *step)
{
    const pipe_action_t *a = &step->action;
    if (a->op == PIPE_BACKWARD_WEIGHT)
        return GYRE_OK;
    if ((pipe_source_stage(&v->schedule->shape, v->rank, a) < 0) != (step->in < 0))
        return wrong(v, "it has a slot to read from and needs none, or the other way round");
    struct held *held = input_of(v, s, a, a->op == PIPE_FORWARD);
    *held = (struct held){.slot = step->in};
    if (step->in < 0)
        return GYRE_OK;
    held->holder = s->holds[step->in];
    if (held->holder == 0 || !brings(v, a, &s->program->step[held->holder - 1].action))
        return wrong(v, "its slot holds something else");
    return GYRE_OK;
}

static gyre_status_t check_written(const view_t *v, slots_t *s, const pipe_step_t *step)
{
    if ((pipe_target_stage(&v->schedule->shape, v->rank, &step->action) < 0) != (step->out < 0))
        return wrong(v, "it has a slot to write to and needs none, or the other way round");
    if (step->out >= 0)
        s->holds[step->out] = v->i + 1;
    return GYRE_OK;
}

static gyre_status_t check_message(const view_t *v, const slots_t *s, const pipe_step_t *step, int posted)
{
    if (pipe_op_sends(step->action.op))
        return s->holds[step->out] == v->i ? GYRE_OK : wrong(v, "its slot holds something else");
    if (step->receive < 0 || step->receive >= posted)
        return wrong(v, "it is waited for before it is posted");
    const pipe_receive_t *receive = &s->program->receive[step->receive];
    return receive->step == v->i && receive->slot == step->in ? GYRE_OK
                                                              : wrong(v, "it waits for another receive");
}

static gyre_status_t check_kept(const view_t *v, const slots_t *s, const pipe_action_t *a)
{
    int end = a->op == PIPE_BACKWARD || a->op == PIPE_BACKWARD_WEIGHT;
    for (int forward = 0; end && forward < 2; forward++) {
        const struct held *held = input_of(v, s, a, forward);
        if (held->slot >= 0 && s->holds[held->slot] != held->holder)
            return wrong(v, forward ? "the input of its forward pass was overwritten before"
                                    : "the gradient of its output was overwritten before");
    }
    return GYRE_OK;
}

static gyre_status_t check_step(const view_t *v, slots_t *s, const pipe_step_t *step, int posted)
{
    if (!pipe_op_computes(step->action.op))
        return check_message(v, s, step, posted);
    gyre_status_t st = check_read(v, s, step);
    if (st == GYRE_OK)
        st = check_written(v, s, step);
    return st == GYRE_OK ? check_kept(v, s, &step->action) : st;
}

static gyre_status_t walk_slots(view_t *v, slots_t *s)
{
    const pipe_receive_t *receive = s->program->receive;
    int posted = 0;
    for (v->i = 0; v->i < s->program->steps; v->i++) {
        const pipe_step_t *step = &s->program->step[v->i];
        for (; posted < step->posted; posted++) {
            if (posted > 0 && receive[posted].step <= receive[posted - 1].step)
                return wrong(v, "receives are posted in another order than the list's before it");
            s->holds[receive[posted].slot] = receive[posted].step + 1;
        }
        gyre_status_t st = check_step(v, s, step, posted);
        if (st != GYRE_OK)
            return st;
    }
    return GYRE_OK;
}

gyre_status_t pipe_check_program(const pipe_schedule_t *schedule, int rank, const pipe_program_t *program)
{
    const pipe_shape_t *shape = &schedule->shape;
    view_t v = {.schedule = schedule, .rank = rank};
    slots_t s = {.program = program};
    base_arena_t work = {0};
    s.holds = base_arena_alloc(&work, (size_t)program->first[PIPE_SLOT_KINDS] + 1, sizeof *s.holds);
    s.input =
        base_arena_alloc(&work, 2 * (size_t)shape->chunks * (size_t)shape->micro_batches, sizeof *s.input);
    gyre_status_t st =
        s.holds && s.input
            ? walk_slots(&v, &s)
            : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to check a pipeline of %d ranks", shape->ranks);
    base_arena_free(&work);
    return st;
}

static gyre_status_t check_slots(const pipe_schedule_t *schedule, int rank)
{
    pipe_program_t program;
    gyre_status_t st = pipe_program_build(schedule, rank, &program);
    if (st != GYRE_OK)
        return st;
    st = pipe_check_program(schedule, rank, &program);
    pipe_program_free(&program);
    return st;
}

/* ---- all ranks together -------------------------------------------------------------------------------- */

static gyre_status_t check_bounds(const pipe_schedule_t *s, const pipe_simulation_t *sim)
{
    for (int r = 0; r < s->shape.ranks; r++) {
        int activations = pipe_activation_bound(&s->shape, r), weights = pipe_weight_bound(&s->shape, r);
        if (sim->activations[r] > activations)
            return gyre_fail_quiet(GYRE_ERR_INTERNAL,
                                   "rank %d holds %d activations at a time; %s promises %d", r,
                                   sim->activations[r], pipe_kind_name(s->shape.kind), activations);
        if (sim->weights[r] > weights)
            return gyre_fail_quiet(GYRE_ERR_INTERNAL,
                                   "rank %d leaves %d weight gradients for later at a time; %s promises %d",
                                   r, sim->weights[r], pipe_kind_name(s->shape.kind), weights);
    }
    return GYRE_OK;
}

gyre_status_t pipe_check(const pipe_schedule_t *schedule)
{
    static const pipe_times_t nothing = {0};
    const pipe_shape_t *shape = &schedule->shape;
    base_arena_t work = {0};
    view_t v = {.schedule = schedule,
                .done = base_arena_alloc(&work, (size_t)shape->chunks * PIPE_OP_END, sizeof *v.done)};
    gyre_status_t st = GYRE_OK;
    if (!v.done)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to check a pipeline of %d ranks", shape->ranks);
    for (v.rank = 0; v.rank < shape->ranks && st == GYRE_OK; v.rank++)
        st = check_list(&v);
    base_arena_free(&work);
    pipe_simulation_t sim;
    if (st == GYRE_OK)
        st = pipe_simulate(schedule, &nothing, &sim);
    if (st != GYRE_OK)
        return st;
    for (v.rank = 0; v.rank < shape->ranks && st == GYRE_OK; v.rank++)
        st = check_slots(schedule, v.rank);
    if (st == GYRE_OK)
        st = check_bounds(schedule, &sim);
    pipe_simulation_free(&sim);
    return st;
}
