/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/run/executor.c: follows a rank's program (pipeline/schedules/program.h): posts receives, calls
 * back, sends. */
#include "pipeline/run/executor.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/checked.h"
#include "base/device/ranges.h"
#include "base/error.h"
#include "pipeline/schedules/check.h"
#include "pipeline/schedules/program.h"

enum { MOST_CHECKED = 1 << 18 }; /* actions of all ranks: what a tenth of a second or two proves */

struct pipe_executor {
    gyre_comm_t *comm;
    pipe_shape_t shape;
    int rank;
    pipe_callbacks_t call;
    void *user;
    size_t *counts; /* [micro_batches]: elements */
    gyre_type_t type, grad_type;
    pipe_program_t program;

    /* [slots][slot_bytes]; of gyre_mem_alloc, or on the device; NULL if nothing comes or goes */
    unsigned char *memory;
    size_t slot_bytes, memory_bytes;
    gyre_request_t **received; /* [receives]: posted and not waited for */
    gyre_request_t **sent;     /* [slots]: the last message from this slot, until it was taken */

    /* on a GPU */
    pipe_links_t *links; /* NULL: on the host */
    base_device_t device;
    base_event_t **moved; /* [slots]: after what came there last, or left from there */
    /* [2 * steps + 2], timed: first where the step begins and ends, then before and after each wait */
    base_event_t **gap;
    size_t gaps; /* of this step so far */
    int watched;

    /* the step that runs, or the last */
    int posted;         /* receives so far */
    base_time_t waited; /* since the last callback ended */
    base_time_t wait_sum, busy_sum, span;
    pipe_event_t *event; /* [computing actions] */
    size_t events;
    size_t sent_bytes;
    gyre_status_t dead; /* what ended a step, for all that follow */
    char story[2048];   /* how, as this rank saw it; empty: see the communicator's error */
};

/* ---- making one ---------------------------------------------------------------------------------------- */

static gyre_status_t check_config(gyre_comm_t *comm, const pipe_shape_t *shape,
                                  const pipe_executor_config_t *config)
{
    if (gyre_comm_size(comm) != shape->ranks)
        return gyre_fail(GYRE_ERR_INVALID,
                         "a pipeline schedule of %d ranks needs a communicator of as many ranks, not of %d",
                         shape->ranks, gyre_comm_size(comm));
    if (!config->call.forward || (!shape->forward_only && !config->call.backward))
        return gyre_fail(GYRE_ERR_INVALID, "a pipeline executor needs the callbacks forward and backward");
    if (!shape->forward_only && pipe_kind_splits(shape->kind) && !config->call.backward_weight)
        return gyre_fail(GYRE_ERR_INVALID,
                         "the %s schedule splits backward passes: it needs the callback backward_weight",
                         pipe_kind_name(shape->kind));
    if (gyre_type_size(config->type) == 0 || gyre_type_size(config->grad_type) == 0)
        return gyre_fail(GYRE_ERR_TYPE,
                         "a pipeline's boundary tensors need a type, not %d for values and %d for gradients",
                         (int)config->type, (int)config->grad_type);
    for (int i = 0; config->counts && i < shape->micro_batches; i++)
        if (config->counts[i] > config->count)
            return gyre_fail(
                GYRE_ERR_INVALID,
                "micro-batch %d of the pipeline has %zu elements, more than the %zu of the largest", i,
                config->counts[i], config->count);
    return GYRE_OK;
}

static gyre_status_t make_slots(pipe_executor_t *e, size_t count)
{
    size_t size = base_max_size(gyre_type_size(e->type), gyre_type_size(e->grad_type));
    gyre_status_t st = pipe_program_bytes(&e->program, count, size, &e->slot_bytes, &e->memory_bytes);
    if (st != GYRE_OK || e->memory_bytes == 0)
        return st;
    void *memory = NULL;
    st = e->links ? base_device_alloc(e->device, e->memory_bytes, &memory)
                  : gyre_mem_alloc(e->memory_bytes, &memory);
    e->memory = memory;
    return st;
}

static gyre_status_t make_events(pipe_executor_t *e)
{
    size_t slots = (size_t)e->program.first[PIPE_SLOT_KINDS];
    gyre_status_t st = GYRE_OK;
    if (!e->links)
        return GYRE_OK;
    e->moved = calloc(slots + 1, sizeof *e->moved);
    e->gap = calloc(2 * e->program.steps + 2, sizeof *e->gap);
    if (!e->moved || !e->gap)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the events of %zu actions", e->program.steps);
    for (size_t i = 0; i < slots && st == GYRE_OK; i++)
        st = base_event_create(e->device, 0, &e->moved[i]);
    for (size_t i = 0; i < 2 * e->program.steps + 2 && st == GYRE_OK; i++)
        st = base_event_create(e->device, 1, &e->gap[i]);
    return st;
}

static void free_events(pipe_executor_t *e)
{
    size_t slots = (size_t)e->program.first[PIPE_SLOT_KINDS];
    for (size_t i = 0; e->moved && i < slots; i++)
        if (e->moved[i])
            base_event_destroy(e->moved[i]);
    for (size_t i = 0; e->gap && i < 2 * e->program.steps + 2; i++)
        if (e->gap[i])
            base_event_destroy(e->gap[i]);
    free(e->moved);
    free(e->gap);
}

static gyre_status_t make_parts(pipe_executor_t *e, const pipe_executor_config_t *config)
{
    size_t m = (size_t)e->shape.micro_batches, slots = (size_t)e->program.first[PIPE_SLOT_KINDS];
    e->counts = calloc(m, sizeof *e->counts);
    e->received = calloc((size_t)e->program.receives + 1, sizeof *e->received);
    e->sent = calloc(slots + 1, sizeof *e->sent);
    e->event = calloc(e->program.steps, sizeof *e->event);
    if (!e->counts || !e->received || !e->sent || !e->event)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a pipeline executor of %zu actions",
                         e->program.steps);
    for (size_t i = 0; i < m; i++)
        e->counts[i] = config->counts ? config->counts[i] : config->count;
    gyre_status_t st = make_slots(e, config->count);
    return st == GYRE_OK ? make_events(e) : st;
}

/* What would end in a deadlock or in wrong numbers is not begun. All ranks come to the same answer. */
static gyre_status_t check_schedule(const pipe_schedule_t *schedule)
{
    size_t actions = 0;
    for (int r = 0; r < schedule->shape.ranks; r++)
        actions += schedule->count[r];
    gyre_status_t st = actions <= MOST_CHECKED ? pipe_check(schedule) : GYRE_OK;
    if (st == GYRE_ERR_INTERNAL)
        return gyre_fail(GYRE_ERR_INVALID, "the %s pipeline schedule is not sound: %s",
                         pipe_kind_name(schedule->shape.kind), gyre_last_error());
    return st;
}

gyre_status_t pipe_executor_create(gyre_comm_t *comm, const pipe_schedule_t *schedule,
                                   const pipe_executor_config_t *config, pipe_executor_t **out)
{
    gyre_status_t st = check_config(comm, &schedule->shape, config);
    if (st == GYRE_OK)
        st = check_schedule(schedule);
    if (st != GYRE_OK)
        return st;
    pipe_executor_t *e = calloc(1, sizeof *e);
    if (!e)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a pipeline executor");
    e->comm = comm;
    e->shape = schedule->shape;
    e->rank = gyre_comm_rank(comm);
    e->call = config->call;
    e->user = config->user;
    e->type = config->type;
    e->grad_type = config->grad_type;
    e->device = config->device;
    e->links = config->links;
    st = pipe_program_build(schedule, e->rank, &e->program);
    if (st == GYRE_OK)
        st = make_parts(e, config);
    if (st != GYRE_OK) {
        pipe_executor_destroy(e);
        return st;
    }
    *out = e;
    return GYRE_OK;
}

void pipe_executor_destroy(pipe_executor_t *e)
{
    if (!e)
        return;
    if (e->memory && e->links)
        base_device_free(e->device, e->memory);
    else if (e->memory)
        gyre_mem_free(e->memory);
    free_events(e);
    pipe_program_free(&e->program);
    free(e->counts);
    free(e->received);
    free(e->sent);
    free(e->event);
    free(e);
}

/* ---- a step -------------------------------------------------------------------------------------------- */

static void *slot_at(const pipe_executor_t *e, int slot)
{
    return slot < 0 || !e->memory ? NULL : e->memory + (size_t)slot * e->slot_bytes;
}

static gyre_status_t wait_for(pipe_executor_t *e, gyre_request_t **request)
{
    if (!*request)
        return GYRE_OK;
    base_time_t from = base_now();
    gyre_status_t st = gyre_wait(request);
    base_time_t took = base_now() - from;
    e->waited += took;
    e->wait_sum += took;
    return st;
}

/* On a GPU: the computation waits for what came to the slot, or left from it. */
static gyre_status_t await_slot(pipe_executor_t *e, int slot)
{
    gyre_status_t st = GYRE_OK;
    if (slot < 0 || !e->memory)
        return st;
    if (e->watched) { /* first for all that was computed: the rest is the wait */
        if ((st = pipe_links_note(e->links, e->gap[1])) == GYRE_OK)
            st = base_event_wait(e->gap[1]);
        base_time_t from = base_now();
        if (st == GYRE_OK)
            st = base_event_wait(e->moved[slot]);
        e->waited += base_now() - from;
    }
    base_event_t **gap = &e->gap[2 + 2 * e->gaps++];
    if (st == GYRE_OK && (st = pipe_links_note(e->links, gap[0])) == GYRE_OK &&
        (st = pipe_links_await(e->links, e->moved[slot])) == GYRE_OK)
        st = pipe_links_note(e->links, gap[1]);
    return st;
}

/* A wait that ended badly: what the communicator says of it knows calls and ranks, not what of the
 * pipeline was waited for. */
static gyre_status_t wait_failed(pipe_executor_t *e, const pipe_action_t *a, gyre_status_t status)
{
    int stage = pipe_stage_of(&e->shape, e->rank, a->chunk), receives = !pipe_op_computes(a->op);
    snprintf(e->story, sizeof e->story,
             "pipeline rank %d, waiting for %s stage %d (chunk %d), micro-batch %d: %s", e->rank,
             !receives                ? "its messages to be taken, before"
             : a->op == PIPE_RECV_ACT ? "the input of"
                                      : "the gradient of the output of",
             stage, a->chunk, a->micro_batch, gyre_last_error());
    return gyre_fail_quiet(status, "%s", e->story);
}

static gyre_status_t post_receives(pipe_executor_t *e, int until)
{
    while (e->posted < until) {
        const pipe_receive_t *r = &e->program.receive[e->posted];
        const pipe_action_t *a = &e->program.step[r->step].action;
        const gyre_type_t type = a->op == PIPE_RECV_ACT ? e->type : e->grad_type;
        const size_t count = e->counts[a->micro_batch];
        gyre_status_t st =
            e->links
                ? pipe_links_receive(e->links, a->peer, slot_at(e, r->slot), count, type, e->moved[r->slot])
                : gyre_irecv(slot_at(e, r->slot), count, type, a->peer, e->comm, &e->received[e->posted]);
        if (st != GYRE_OK)
            return st;
        e->posted++;
    }
    return GYRE_OK;
}

static gyre_status_t send(pipe_executor_t *e, const pipe_step_t *step)
{
    const pipe_action_t *a = &step->action;
    gyre_type_t type = a->op == PIPE_SEND_ACT ? e->type : e->grad_type;
    e->sent_bytes += e->counts[a->micro_batch] * gyre_type_size(type);
    if (e->links)
        return pipe_links_send(e->links, a->peer, slot_at(e, step->out), e->counts[a->micro_batch], type,
                               e->moved[step->out]);
    return gyre_isend(slot_at(e, step->out), e->counts[a->micro_batch], type, a->peer, e->comm,
                      &e->sent[step->out]);
}

static gyre_status_t call_back(pipe_executor_t *e, const pipe_step_t *step)
{
    const pipe_action_t *a = &step->action;
    unsigned last = a->micro_batch == e->shape.micro_batches - 1 ? PIPE_LAST : 0;
    const void *in = slot_at(e, step->in);
    void *out = slot_at(e, step->out);
    switch (a->op) {
    case PIPE_FORWARD:
        return e->call.forward(e->user, a->chunk, a->micro_batch, in, out);
    case PIPE_BACKWARD:
        return e->call.backward(e->user, a->chunk, a->micro_batch, in, out, last);
    case PIPE_BACKWARD_INPUT:
        return e->call.backward(e->user, a->chunk, a->micro_batch, in, out, PIPE_INPUT_ONLY);
    case PIPE_BACKWARD_WEIGHT:
        return e->call.backward_weight(e->user, a->chunk, a->micro_batch, last);
    default:
        return gyre_fail(GYRE_ERR_INTERNAL, "pipeline action %d is not one that computes", (int)a->op);
    }
}

/* A callback has reported an error: adds the place in the schedule, for all ranks. */
static gyre_status_t callback_failed(pipe_executor_t *e, const pipe_action_t *a, gyre_status_t status)
{
    const char *why = gyre_last_error();
    snprintf(e->story, sizeof e->story, "pipeline rank %d: %s of stage %d (chunk %d), micro-batch %d: %s%s%s",
             e->rank, pipe_op_name(a->op), pipe_stage_of(&e->shape, e->rank, a->chunk), a->chunk,
             a->micro_batch, gyre_status_string(status), *why ? ": " : "", why);
    return gyre_fail_quiet(status, "%s", e->story);
}

/* 1: a slot to send from, not one that hands over to another stage of this rank. */
static int is_sent(const pipe_executor_t *e, int slot)
{
    return slot >= e->program.first[PIPE_SLOT_SEND_ACT];
}

static gyre_status_t compute(pipe_executor_t *e, const pipe_step_t *step)
{
    const pipe_action_t *a = &step->action;
    gyre_status_t st = step->out < 0 ? GYRE_OK
                       : e->links    ? await_slot(e, is_sent(e, step->out) ? step->out : -1)
                                     : wait_for(e, &e->sent[step->out]);
    if (st != GYRE_OK)
        return wait_failed(e, a, st);
    pipe_event_t *event = &e->event[e->events];
    *event = (pipe_event_t){.op = a->op,
                            .stage = pipe_stage_of(&e->shape, e->rank, a->chunk),
                            .chunk = a->chunk,
                            .micro_batch = a->micro_batch,
                            .start = base_now(),
                            .waited = e->waited};
    base_range_begin(pipe_op_name(a->op), (uint64_t)a->micro_batch);
    st = call_back(e, step);
    base_range_end();
    if (st != GYRE_OK) /* perhaps of the communicator, from pipe_executor_progress: that has its own story */
        return gyre_comm_error(e->comm) == GYRE_OK ? callback_failed(e, a, st) : st;
    event->end = base_now();
    e->busy_sum += event->end - event->start;
    e->events++;
    e->waited = 0;
    return GYRE_OK;
}

static gyre_status_t run_step(pipe_executor_t *e, const pipe_step_t *step)
{
    gyre_status_t st = post_receives(e, step->posted);
    if (st != GYRE_OK)
        return st;
    switch (step->action.op) {
    case PIPE_RECV_ACT:
    case PIPE_RECV_GRAD:
        st = e->links ? await_slot(e, step->in) : wait_for(e, &e->received[step->receive]);
        return st == GYRE_OK ? st : wait_failed(e, &step->action, st);
    case PIPE_SEND_ACT:
    case PIPE_SEND_GRAD:
        return send(e, step);
    default:
        st = compute(e, step);
        return st == GYRE_OK ? pipe_executor_progress(e) : st;
    }
}

/* On a GPU: the step ends when what it sent has left. */
static gyre_status_t close_step(pipe_executor_t *e)
{
    gyre_status_t st = GYRE_OK;
    for (int slot = e->program.first[PIPE_SLOT_SEND_ACT];
         slot < e->program.first[PIPE_SLOT_KINDS] && st == GYRE_OK && e->memory; slot++)
        st = pipe_links_await(e->links, e->moved[slot]);
    return st == GYRE_OK ? pipe_links_note(e->links, e->gap[1]) : st;
}

/* Waits for everything under way. Returns the first error. */
static gyre_status_t drain(pipe_executor_t *e)
{
    gyre_status_t first = GYRE_OK;
    int slots = e->program.first[PIPE_SLOT_KINDS];
    if (e->links)
        return close_step(e);
    for (int i = 0; i < e->posted + slots; i++) {
        gyre_status_t st = wait_for(e, i < e->posted ? &e->received[i] : &e->sent[i - e->posted]);
        if (first == GYRE_OK)
            first = st;
    }
    return first;
}

/* Ends the step on all ranks, and leaves no request open. This rank's own error stays its last error. */
static gyre_status_t fail_step(pipe_executor_t *e, gyre_status_t status)
{
    if (e->shape.ranks > 1 && gyre_comm_error(e->comm) == GYRE_OK)
        gyre_comm_abort(e->comm, *e->story ? e->story : gyre_last_error());
    if (e->links)
        pipe_links_abort(e->links, *e->story ? e->story : gyre_last_error());
    drain(e); /* all of it ends at once, with the communicator's error */
    return *e->story ? gyre_fail_quiet(status, "%s", e->story) : status;
}

gyre_status_t pipe_executor_step(pipe_executor_t *e)
{
    if (e->dead != GYRE_OK)
        return gyre_fail(e->dead, "rank %d's pipeline cannot go on: an earlier step failed%s%s", e->rank,
                         *e->story ? ": " : "", e->story);
    base_time_t begin = base_now();
    gyre_status_t st = GYRE_OK;
    e->posted = 0;
    e->events = 0;
    e->sent_bytes = 0;
    e->waited = e->wait_sum = e->busy_sum = 0;
    e->gaps = 0;
    if (e->links)
        st = pipe_links_note(e->links, e->gap[0]);
    for (size_t i = 0; i < e->program.steps && st == GYRE_OK; i++)
        st = run_step(e, &e->program.step[i]);
    e->dead = st == GYRE_OK ? drain(e) : fail_step(e, st);
    e->span = base_now() - begin;
    return e->dead;
}

gyre_status_t pipe_executor_progress(pipe_executor_t *e)
{
    return e->shape.ranks > 1 && !e->links ? gyre_progress(e->comm) : GYRE_OK;
}

void pipe_executor_watch(pipe_executor_t *e, int watched)
{
    e->watched = watched && e->links;
}

/* ---- what it was like ---------------------------------------------------------------------------------- */

size_t pipe_executor_timeline(const pipe_executor_t *e, const pipe_event_t **events)
{
    *events = e->event;
    return e->events;
}

/* Seconds between two events that have come. */
static double between(base_event_t *from, base_event_t *to)
{
    double ms = 0.0;
    return base_event_elapsed_ms(from, to, &ms) == GYRE_OK ? ms * 1e-3 : 0.0;
}

void pipe_executor_report(const pipe_executor_t *e, pipe_report_t *out)
{
    *out = (pipe_report_t){.span_s = (double)e->span * 1e-9,
                           .busy_s = (double)e->busy_sum * 1e-9,
                           .wait_s = (double)e->wait_sum * 1e-9,
                           .buffer_bytes = e->memory_bytes,
                           .bytes_sent = e->sent_bytes};
    if (!e->links || e->span == 0 || e->dead != GYRE_OK)
        return;
    out->span_s = between(e->gap[0], e->gap[1]);
    for (size_t i = 1; i <= e->gaps; i++)
        out->wait_s += between(e->gap[2 * i], e->gap[2 * i + 1]);
    out->busy_s = out->span_s - out->wait_s;
}
