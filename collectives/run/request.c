/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/run/request.c: the life of an operation: made, queued, driven, finished. How it is waited for:
 * wait.c. How it fails: failure.c.
 *
 * Collectives of a communicator run one after the other in call order. Point-to-point messages run
 * concurrently with them. Requests come from a free list, so that a repeated call allocates nothing. */
#include "collectives/run/call.h"

#include <stdlib.h>

#include "base/error.h"

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
    if (r->under_way) /* release: pairs with the load in gyre_start */
        atomic_store_explicit(r->under_way, 0, memory_order_release);
    r->collected = COLL_COLLECTED_FREE;
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

/* A part has no waiter of its own. */
static void finish_part(gyre_request_t *r)
{
    gyre_request_t *whole = r->whole;
    const gyre_status_t status = r->status;
    r->comm->open--;
    coll_request_free_driving(r);
    coll_request_finish(whole, status);
}

void coll_request_finish(gyre_request_t *r, gyre_status_t status)
{
    gyre_comm_t *comm = r->comm;
    if (r->kind != COLL_REQ_MESSAGES || r->status == GYRE_OK)
        r->status = status;
    if (r->kind == COLL_REQ_MESSAGES && --r->parts > 0)
        return;
    if (r->plan)
        coll_plan_release(r->plan);
    comm->operations += status == GYRE_OK && r->kind != COLL_REQ_MESSAGES; /* its parts count */
    if (r->finished)
        r->finished(r->user, status);
    if (r->whole) {
        finish_part(r);
        return;
    }
    atomic_store_explicit(&r->done, 1, memory_order_release); /* its waiter may free it from here on */
    coll_event_note(comm);
}

int coll_request_orphaned(gyre_request_t *r)
{
    if (r->kind == COLL_REQ_TASK)
        return coll_task_orphaned(r);
    if (atomic_load_explicit(&r->comm->error, memory_order_acquire) != GYRE_ERR_INVALID)
        return 0;
    r->status = GYRE_ERR_INVALID;
    atomic_store_explicit(&r->done, 1, memory_order_release);
    return 1;
}

int coll_comm_idle(const gyre_comm_t *comm)
{
    return !comm->head && !comm->p2p_head && !comm->device_head;
}

void coll_note_blocker(const gyre_request_t *r)
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
    coll_note_blocker(r);
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

int coll_comm_advance(gyre_comm_t *comm)
{
    if (!coll_try_drive(comm))
        return 0;
    int moved = coll_comm_advance_driving(comm);
    coll_stop_driving(comm);
    return moved;
}

void coll_request_begin_at(gyre_request_t *r, base_time_t now)
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
    if (r->kind == COLL_REQ_MESSAGES) { /* its parts are in the queue */
        coll_request_begin_at(r, now);
        coll_request_finish(r, GYRE_OK);
        coll_stop_driving(comm);
        return;
    }
    gyre_status_t error = (gyre_status_t)atomic_load(&comm->error);
    number(r);
    r->started = 0;
    if (now != 0)
        coll_request_begin_at(r, now);
    gyre_request_t **head = r->kind == COLL_REQ_COLLECTIVE ? &comm->head : &comm->p2p_head;
    gyre_request_t **tail = r->kind == COLL_REQ_COLLECTIVE ? &comm->tail : &comm->p2p_tail;
    r->next = NULL;
    r->prev = *head ? *tail : NULL;
    if (*head)
        (*tail)->next = r;
    else
        *head = r;
    *tail = r;
    if (r->kind != COLL_REQ_COLLECTIVE)
        coll_p2p_queued(r);
    comm_recorder_begin(comm->world->recorder, &r->call, r->started);
    coll_post_call(comm, &r->call);
    if (error != GYRE_OK) /* since the call was checked: ends those before it, too, which may be under way */
        coll_comm_fail(comm, NULL, error, NULL);
    coll_stop_driving(comm);
}

/* An exchange that has begun becomes the request at the head of the queue: for waiting, and for telling
 * what went wrong. */
static gyre_request_t *exchange_to_request(const coll_call_t *c, coll_plan_t *plan, const comm_call_t *call)
{
    gyre_comm_t *comm = c->comm;
    gyre_request_t *r = coll_request_new_driving(comm);
    if (!r)
        return NULL;
    r->plan = plan;
    r->run = (coll_run_t){.in = c->send, .out = c->recv, .scale = c->scale, .started = 1};
    r->call = *call;
    r->tag = comm->oneshot.tag;
    coll_request_begin_at(r, base_now());
    comm_recorder_since(comm->world->recorder, r->started);
    comm->head = comm->tail = r;
    return r;
}

gyre_status_t coll_call_wait(const coll_call_t *c, coll_plan_t *plan, const comm_call_t *call)
{
    gyre_comm_t *comm = c->comm;
    gyre_request_t *r = exchange_to_request(c, plan, call);
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
    (void)coll_comm_advance(r->comm);
    int others;
    if (!atomic_load_explicit(&r->done, memory_order_acquire))
        coll_registry_add(r->comm);
    else
        (void)coll_registry_advance(r->comm, &others); /* for who only starts and ends such calls */
    *request = r;
    return GYRE_OK;
}

gyre_status_t coll_call_queue(const coll_call_t *c, coll_plan_t *plan, const comm_call_t *call)
{
    gyre_request_t *r = coll_request_new_driving(c->comm);
    if (!r)
        coll_plan_release(plan);
    coll_stop_driving(c->comm);
    if (!r)
        return coll_refuse(GYRE_ERR_NO_MEMORY);
    r->plan = plan;
    r->run = (coll_run_t){.in = c->send, .out = c->recv, .scale = c->scale};
    r->finished = c->finished;
    r->user = c->user;
    r->tag.sig = call->sig;
    r->call = *call;
    coll_request_of(r, c->under_way);
    return coll_request_start(r, c->request);
}
