/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/run/request.c: the life of an operation: made, queued, driven, waited for, finished. How it
 * fails: failure.c.
 *
 * Collectives of a communicator run one after the other in call order. Point-to-point messages run
 * concurrently with them. Requests come from a free list, so that a repeated call allocates nothing. */
#include "collectives/run/communicator.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/log.h"

gyre_request_t *coll_request_new_driving(gyre_comm_t *comm)
{
    gyre_request_t *r = comm->free_requests;
    if (r) {
        comm->free_requests = r->next;
    } else {
        r = malloc(sizeof *r);
        if (!r) {
            gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a request");
            return NULL;
        }
        comm->allocations++;
    }
    comm->open++;
    *r = (gyre_request_t){.comm = comm, .peer = -1};
    return r;
}

gyre_request_t *coll_request_new(gyre_comm_t *comm)
{
    coll_drive(comm);
    gyre_request_t *r = coll_request_new_driving(comm);
    coll_stop_driving(comm);
    return r;
}

void coll_request_free_driving(gyre_request_t *r)
{
    r->next = r->comm->free_requests;
    r->comm->free_requests = r;
}

int coll_request_reserve(gyre_comm_t *comm)
{
    gyre_request_t *r = comm->free_requests ? NULL : coll_request_new_driving(comm);
    if (r) {
        comm->open--;
        coll_request_free_driving(r);
    }
    return comm->free_requests != NULL;
}

/* The caller is driving. */
void coll_request_finish(gyre_request_t *r, gyre_status_t status)
{
    gyre_comm_t *comm = r->comm;
    r->status = status;
    if (r->plan)
        coll_plan_release(r->plan);
    comm->operations += status == GYRE_OK;
    if (r->finished)
        r->finished(r->user, status);
    atomic_store_explicit(&r->done, 1, memory_order_release); /* its waiter may free it from here on */
}

int coll_comm_idle(const gyre_comm_t *comm)
{
    return !comm->head && !comm->p2p_head && !comm->device_head;
}

/* The first rank that r waits for goes into the flight recorder. The caller is driving. */
static void note_blocker_driving(const gyre_request_t *r)
{
    gyre_comm_t *comm = r->comm;
    int peer = coll_first_blocker(r);
    if (peer < 0)
        return;
    comm_recorder_wait(comm->world->recorder, comm->world_ranks[peer]);
    comm->noted = 1;
}

enum { IDLE_TURNS = 8 /* between two looks at the clock */ };
#define IDLE_NS ((base_time_t)10000000)

void coll_note_idle(gyre_comm_t *comm)
{
    gyre_request_t *r = comm->head ? comm->head : comm->p2p_head;
    if (!r || comm->idle_turns++ % IDLE_TURNS != 0)
        return;
    base_time_t now = base_now();
    if (comm->idle_turns == 1)
        comm->idle_since = now;
    if (now - comm->idle_since < IDLE_NS)
        return;
    comm->idle_since = now;
    note_blocker_driving(r);
    coll_speak_up(r, 1);
}

/* What was noted is no longer so: who reads it would look for the culprit at the wrong rank. */
static void moves_again(gyre_comm_t *comm)
{
    comm->idle_turns = 0;
    if (comm->noted)
        comm_recorder_wait(comm->world->recorder, -1);
    comm->noted = 0;
}

int coll_comm_advance_driving(gyre_comm_t *comm)
{
    int moved = 0;
    coll_comm_notice(comm);
    if (comm->group)
        comm_group_progress(comm->group);
    while (comm->head) {
        gyre_request_t *r = comm->head;
        gyre_status_t st = coll_run_advance(r, &moved);
        if (st == GYRE_IN_PROGRESS)
            break;
        if (st != GYRE_OK) {
            coll_comm_fail(comm, r, st, NULL);
            return 1;
        }
        comm->head = r->next;
        if (!comm->head)
            comm->tail = NULL;
        coll_request_finish(r, GYRE_OK);
        moved = 1;
    }
    if (comm->p2p_head)
        moved |= coll_p2p_advance(comm);
    if (comm->device_head)
        moved |= comm->device_ops->advance(comm);
    comm->moves += moved > 0;
    if (moved && (comm->noted || comm->idle_turns) && atomic_load(&comm->error) == GYRE_OK)
        moves_again(comm); /* else it is part of the story */
    return moved;
}

/* The same for a caller that is not driving. 0, too: another thread is driving. */
static int advance(gyre_comm_t *comm)
{
    if (!coll_try_drive(comm))
        return 0;
    int moved = coll_comm_advance_driving(comm);
    coll_stop_driving(comm);
    return moved;
}

/* Its deadline counts from `now`. */
static void begin_at(gyre_request_t *r, base_time_t now)
{
    r->started = now;
    r->deadline = now + r->comm->timeout_ns;
}

/* Numbers are given here and not when a call is collected: a group that is refused leaves no gap. */
static void number(gyre_request_t *r)
{
    gyre_comm_t *comm = r->comm;
    coll_p2p_peer_t *with = r->kind == COLL_REQ_COLLECTIVE ? NULL : &comm->p2p[r->peer];
    r->tag.seq = !with ? ++comm->seq : r->kind == COLL_REQ_SEND ? ++with->sent : ++with->received;
    r->call.seq = r->tag.seq;
}

void coll_request_enqueue(gyre_request_t *r, base_time_t now)
{
    gyre_comm_t *comm = r->comm;
    if (r->kind == COLL_REQ_DEVICE) /* is on its way */
        return;
    coll_drive(comm);
    gyre_status_t error = (gyre_status_t)atomic_load(&comm->error);
    number(r);
    r->started = 0;
    if (now != 0)
        begin_at(r, now);
    gyre_request_t **head = r->kind == COLL_REQ_COLLECTIVE ? &comm->head : &comm->p2p_head;
    gyre_request_t **tail = r->kind == COLL_REQ_COLLECTIVE ? &comm->tail : &comm->p2p_tail;
    r->next = NULL;
    if (*head)
        (*tail)->next = r;
    else
        *head = r;
    *tail = r;
    comm_recorder_begin(comm->world->recorder, &r->call, r->started);
    comm_group_post_call(comm->group, &r->call);
    if (error != GYRE_OK)
        coll_fail_queue(head, tail, error);
    coll_stop_driving(comm);
}

/* An exchange that has begun becomes the request at the head of the queue: for waiting, and for telling
 * what went wrong. */
static gyre_request_t *exchange_to_request(gyre_comm_t *comm, coll_plan_t *plan, const coll_run_t *run,
                                           const comm_call_t *call)
{
    gyre_request_t *r = coll_request_new_driving(comm);
    if (!r)
        return NULL;
    r->plan = plan;
    r->run = *run;
    r->run.started = 1;
    r->call = *call;
    r->tag = comm->oneshot.tag;
    begin_at(r, base_now());
    comm_recorder_since(comm->world->recorder, r->started);
    comm->head = comm->tail = r;
    return r;
}

gyre_status_t coll_run_oneshot(gyre_comm_t *comm, coll_plan_t *plan, const coll_run_t *run, comm_call_t *call)
{
    coll_oneshot_run_t *e = &comm->oneshot;
    comm_recorder_slot_t *recorder = comm->world->recorder;
    call->seq = ++comm->seq;
    e->comm = comm;
    e->plan = plan;
    e->in = run->in;
    e->out = run->out;
    e->scale = run->scale;
    e->tag = (comm_tag_t){.seq = call->seq, .sig = plan->sig};
    coll_oneshot_begin(e);
    comm_recorder_begin(recorder, call, 0); /* no time for the clock: see exchange_to_request */
    comm_group_post_call(comm->group, call);
    if (coll_oneshot_spin(e) == GYRE_OK) {
        coll_plan_release(plan);
        comm->operations++;
        if (!comm->p2p_head)
            comm_recorder_end(recorder);
        coll_stop_driving(comm);
        return GYRE_OK;
    }
    gyre_request_t *r = exchange_to_request(comm, plan, run, call);
    if (!r) { /* half an operation cannot be taken back */
        coll_plan_release(plan);
        coll_comm_fail(comm, NULL, GYRE_ERR_NO_MEMORY, NULL);
    }
    coll_stop_driving(comm);
    return r ? coll_request_wait(r) : GYRE_ERR_NO_MEMORY;
}

gyre_status_t coll_request_start(gyre_request_t *r, gyre_request_t **request)
{
    if (coll_group_open()) {
        coll_group_collect(r, request);
        return GYRE_OK;
    }
    coll_request_enqueue(r, request ? base_now() : 0);
    if (!request)
        return coll_request_wait(r);
    coll_registry_add(r->comm);
    advance(r->comm);
    *request = r;
    return GYRE_OK;
}

enum {
    SPIN_NOTES = 1 << 16,       /* turns of a spin, some 10 ms */
    NAP_NS = 1000 * 1000,       /* between looks at what has no doorbell, */
    DEVICE_NAP_NS = 50 * 1000,  /* and at a device, whose operations are short */
    LOOK_NS = 10 * 1000 * 1000, /* of looking at a device without a nap, */
    LOOK_TURNS = 64             /* and of that, before anybody else may have the core */
};

/* Nothing moves. others: communicators that this thread moves, too. The caller is driving. */
static gyre_status_t idle_driving(gyre_request_t *r, comm_wait_t *wait, int others)
{
    gyre_comm_t *comm = r->comm;
    if (r->started == 0) {
        begin_at(r, base_now());
        comm_recorder_since(comm->world->recorder, r->started);
    }
    wait->deadline = r->deadline;
    if (others > 0 || r->kind == COLL_REQ_DEVICE) {
        /* communicators need this thread as well, and their doorbells ring elsewhere, or a device rings
         * none: sleep briefly only */
        base_time_t soon = base_now() + (r->kind == COLL_REQ_DEVICE ? DEVICE_NAP_NS : NAP_NS);
        wait->deadline = soon < r->deadline ? soon : r->deadline;
    }
    uint32_t armed = wait->armed;
    gyre_status_t st = comm_wait_idle(wait);
    if (wait->armed && !armed) { /* going to sleep: leave word for whom, and see whether that makes sense */
        comm_call_t theirs;
        note_blocker_driving(r);
        if (st == GYRE_OK && coll_disagreeing(r, &theirs) >= 0)
            return gyre_fail_quiet(GYRE_ERR_MISMATCH, "ranks disagree");
    } else if (wait->turns % SPIN_NOTES == SPIN_NOTES - 1) {
        note_blocker_driving(r); /* GYRE_SPIN may be longer than the others' patience */
    }
    return st;
}

/* One turn of waiting for r: moves what moves, else waits a little. Returns what went wrong, or GYRE_OK. */
static gyre_status_t wait_turn(gyre_request_t *r, comm_wait_t *wait)
{
    gyre_comm_t *comm = r->comm;
    gyre_status_t st = GYRE_OK;
    int others;
    int moved = coll_registry_advance(comm, &others);
    if (!coll_try_drive(comm)) {
        comm_wait_busy(wait);
        return GYRE_OK;
    }
    moved += coll_comm_advance_driving(comm);
    const int done = atomic_load_explicit(&r->done, memory_order_acquire) != 0;
    if (!done && !moved)
        st = idle_driving(r, wait, others);
    coll_stop_driving(comm);
    if (done)
        return GYRE_OK;
    if (moved) {
        comm_wait_moved(wait);
        return GYRE_OK;
    }
    if (st == GYRE_OK && wait->armed)
        coll_speak_up(r, 0);
    if (st == GYRE_OK)
        st = comm_wait_rest(wait);
    if (st == GYRE_ERR_TIMEOUT && base_now() < r->deadline)
        return GYRE_OK;
    return st;
}

/* r is done: its status, and r is free again. */
static gyre_status_t finish_wait(gyre_request_t *r, const comm_wait_t *wait)
{
    gyre_comm_t *comm = r->comm;
    gyre_status_t status = r->status;
    if (status != GYRE_OK && atomic_load_explicit(&comm->error, memory_order_acquire) != GYRE_OK) {
        gyre_fail_quiet(status, "%s", comm->error_text);
    } else if (status != GYRE_OK) {
        char call[160];
        coll_call_text(&r->call, call, sizeof call);
        gyre_fail_quiet(status, "%s was not started: another call of its group was refused", call);
    }
    coll_drive(comm);
    comm->sleeps += wait->sleeps;
    comm->waited += wait->waited;
    comm->open--;
    if (status == GYRE_OK && coll_comm_idle(comm))
        comm_recorder_end(comm->world->recorder);
    coll_request_free_driving(r);
    coll_stop_driving(comm);
    return status;
}

/* Waits for r of a team, whose operations are on devices: nobody rings a bell, so it looks, and sleeps in
 * between once that has lasted. OK: it is done; TIMEOUT. */
static gyre_status_t look_until_done(gyre_request_t *r, comm_wait_t *wait)
{
    const struct timespec nap = {.tv_nsec = DEVICE_NAP_NS};
    gyre_comm_t *comm = r->comm;
    int others;
    wait->since = base_now();
    for (uint32_t turn = 0;; turn++) {
        (void)advance(comm);
        (void)coll_registry_advance(comm, &others);
        const base_time_t now = base_now();
        wait->waited = now - wait->since;
        if (atomic_load_explicit(&r->done, memory_order_acquire))
            return GYRE_OK;
        if (now >= r->deadline)
            return gyre_fail_quiet(GYRE_ERR_TIMEOUT, "the deadline passed");
        if (wait->waited > LOOK_NS) {
            nanosleep(&nap, NULL);
            wait->sleeps++;
        } else if (turn >= LOOK_TURNS) {
            sched_yield(); /* of a rank that is another thread of this process, perhaps */
        }
    }
}

static gyre_status_t wait_of_team(gyre_request_t *r)
{
    gyre_comm_t *comm = r->comm;
    comm_wait_t wait = {0};
    gyre_status_t st = look_until_done(r, &wait);
    coll_drive(comm);
    coll_comm_notice(comm); /* another rank's story comes before a deadline that passed */
    if (!atomic_load_explicit(&r->done, memory_order_acquire))
        coll_comm_fail(comm, r, st, NULL);
    coll_stop_driving(comm);
    return finish_wait(r, &wait);
}

gyre_status_t coll_request_wait(gyre_request_t *r)
{
    gyre_comm_t *comm = r->comm;
    comm_wait_t wait;
    if (comm->team)
        return wait_of_team(r);
    comm_wait_begin(&wait, comm->group, r->deadline);
    while (!atomic_load_explicit(&r->done, memory_order_acquire)) {
        gyre_status_t st = wait_turn(r, &wait);
        if (st == GYRE_OK)
            continue;
        coll_drive(comm);
        /* If the watcher knows of a death or of another rank's error, that is the cause, whatever its status.
         * Otherwise this rank reports what it sees itself: a deadline that passed, or a disagreement. */
        coll_comm_notice(comm);
        if (!atomic_load_explicit(&r->done, memory_order_acquire))
            coll_comm_fail(comm, r, st, NULL);
        coll_stop_driving(comm);
    }
    comm_wait_end(&wait);
    return finish_wait(r, &wait);
}

gyre_status_t gyre_wait(gyre_request_t **request)
{
    if (!request)
        return gyre_fail(GYRE_ERR_INVALID, "gyre_wait: request is NULL");
    gyre_request_t *r = *request;
    if (!r)
        return GYRE_OK;
    if (r->collected)
        return gyre_fail(GYRE_ERR_INVALID, "gyre_wait: the request is part of a group that has not ended");
    *request = NULL;
    return coll_request_wait(r);
}

gyre_status_t gyre_wait_all(size_t count, gyre_request_t **requests)
{
    if (count && !requests)
        return gyre_fail(GYRE_ERR_INVALID, "gyre_wait_all: requests is NULL but count is %zu", count);
    gyre_status_t first = GYRE_OK;
    for (size_t i = 0; i < count; i++) {
        gyre_status_t st = gyre_wait(&requests[i]);
        if (first == GYRE_OK)
            first = st;
    }
    return first;
}

gyre_status_t gyre_test(gyre_request_t **request)
{
    if (!request)
        return gyre_fail(GYRE_ERR_INVALID, "gyre_test: request is NULL");
    gyre_request_t *r = *request;
    if (!r)
        return GYRE_OK;
    if (r->collected)
        return GYRE_IN_PROGRESS;
    gyre_status_t st = gyre_progress(r->comm);
    (void)st; /* a failed communicator has finished its requests: r carries the status */
    if (!atomic_load_explicit(&r->done, memory_order_acquire) && base_now() < r->deadline)
        return GYRE_IN_PROGRESS;
    *request = NULL;
    return coll_request_wait(r);
}

gyre_status_t gyre_progress(gyre_comm_t *comm)
{
    gyre_status_t st = coll_check_live("gyre_progress", comm);
    if (st != GYRE_OK)
        return st;
    int others;
    if (coll_try_drive(comm)) {
        if (!coll_comm_advance_driving(comm))
            coll_note_idle(comm);
        coll_stop_driving(comm);
    }
    coll_registry_advance(comm, &others);
    return coll_comm_ask(comm);
}
