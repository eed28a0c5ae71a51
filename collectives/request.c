/* collectives/request.c: the life of an operation: made, queued (or collected by a group), driven, waited for, finished.
 *
 * Collectives of a communicator run one after the other in call order; point-to-point messages run beside them.
 * Requests come from a free list, so that a repeated call allocates nothing. */
#include "collectives/communicator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"

static _Thread_local struct {
    int depth;
    gyre_request_t *head, *tail;
    gyre_status_t error;
} group;

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

static void request_free_driving(gyre_request_t *r)
{
    r->next = r->comm->free_requests;
    r->comm->free_requests = r;
}

int coll_request_reserve(gyre_comm_t *comm)
{
    gyre_request_t *r = comm->free_requests ? NULL : coll_request_new_driving(comm);
    if (r) {
        comm->open--;
        request_free_driving(r);
    }
    return comm->free_requests != NULL;
}

/* The caller is driving. */
void coll_request_finish(gyre_request_t *r, gyre_status_t status)
{
    gyre_comm_t *comm = r->comm;
    r->status = status;
    if (r->plan)
        r->plan->busy--;
    comm->operations += status == GYRE_OK;
    if (r->finished)
        r->finished(r->user, status);
    atomic_store_explicit(&r->done, 1, memory_order_release); /* its waiter may free it from here on */
}

void coll_call_text(const comm_call_t *call, char *text, size_t bytes)
{
    gyre_type_t type = (gyre_type_t)call->type;
    if (call->op == COLL_SENDRECV) {
        snprintf(text, bytes, "%s rank %d #%u (count %llu, %s)",
                 call->flags & COMM_CALL_RECV ? "recv from" : "send to", call->root, call->seq,
                 (unsigned long long)call->count, gyre_type_name(type));
        return;
    }
    coll_op_t op = (coll_op_t)call->op;
    int at =
        snprintf(text, bytes, "%s #%u", op > 0 && op < COLL_OP_END ? coll_op_name(op) : "no call", call->seq);
    if (op == COLL_BARRIER || at < 0 || (size_t)at >= bytes || op <= 0 || op >= COLL_OP_END)
        return;
    int reduces = op == COLL_ALL_REDUCE || op == COLL_REDUCE_SCATTER || op == COLL_REDUCE;
    int rooted = op == COLL_BROADCAST || op == COLL_REDUCE || op == COLL_GATHER || op == COLL_SCATTER;
    char root[24] = "";
    if (rooted)
        snprintf(root, sizeof root, ", root %d", call->root);
    snprintf(text + at, bytes - (size_t)at, " (count %llu, %s%s%s%s%s)", (unsigned long long)call->count,
             gyre_type_name(type), reduces ? ", " : "",
             reduces && (call->flags & COMM_CALL_SCALED) ? "scaled " : "",
             reduces ? gyre_redop_name((gyre_redop_kind_t)call->redop) : "", root);
}

#define ASK_SECONDS 0.5 /* for the answer of a rank that did not come in all the time that an operation has */

static void add_blocker(const gyre_comm_t *comm, int peer, const char *how, char *text, size_t bytes,
                        size_t *at)
{
    comm_call_t call;
    char doing[256] = "none on this communicator";
    if (*at >= bytes)
        return;
    int k;
    if (comm->host_of[peer] != comm->host_of[comm->rank]) { /* its watcher knows, even if it is busy */
        gyre_status_t st = comm_boot_ask(comm->world->boot, comm_group_world_rank(comm->group, peer), doing,
                                         sizeof doing, base_deadline(ASK_SECONDS));
        k = snprintf(text + *at, bytes - *at, "%s%s rank %d (%s)", *at ? "; " : "", how, peer,
                     st == GYRE_OK ? doing : "on another host; it does not answer");
    } else {
        if (comm_group_peer_call(comm->group, peer, &call))
            coll_call_text(&call, doing, sizeof doing);
        k = snprintf(text + *at, bytes - *at, "%s%s rank %d (its newest call: %s)", *at ? "; " : "", how,
                     peer, doing);
    }
    *at += k > 0 ? (size_t)k : 0;
}

void coll_request_blockers(const gyre_request_t *r, char *text, size_t bytes)
{
    size_t at = 0;
    text[0] = 0;
    if (r->kind != COLL_REQ_COLLECTIVE) {
        add_blocker(r->comm, r->peer, "waiting for", text, bytes, &at);
        return;
    }
    if (r->plan->exchange && r->run.started) {
        int late = coll_exchange_late(&r->comm->exchange);
        if (late >= 0)
            add_blocker(r->comm, late,
                        r->comm->exchange.state == COLL_EXCHANGE_POSTS
                            ? "not yet done with an earlier call is"
                            : "nothing came from",
                        text, bytes, &at);
        return;
    }
    if (!r->run.started || r->run.segment >= r->plan->nsegments)
        return;
    const coll_segment_t *g = &r->plan->segments[r->plan->segment_of[r->run.segment]];
    for (int c = 0; c < COLL_MAX_CHANNELS; c++) {
        if (r->run.pc[c] >= g->last[c])
            continue;
        const coll_pstep_t *s = &g->steps[g->order[r->run.pc[c]]];
        if (s->kind == COLL_STEP_RECV)
            add_blocker(r->comm, s->peer, "nothing came from", text, bytes, &at);
        else if (s->kind == COLL_STEP_SEND)
            add_blocker(r->comm, s->peer, "nothing is taken by", text, bytes, &at);
    }
    for (uint32_t i = 0; i < r->run.nopen && i < 4; i++)
        add_blocker(r->comm, g->steps[g->open_sends[i]].peer, "a message was not fetched by", text, bytes,
                    &at);
    char line[160];
    for (uint32_t i = 0; i < g->schedule.nsteps; i++)
        if (!g->steps[i].done) {
            coll_step_print(&g->schedule, i, line, sizeof line);
            log_info("open step %u: %s", i, line);
        }
}

/* A rank of this host whose call of r's number, or of a number shortly before, is another one than this rank's, as far as
 * both are still on their boards. -1: none. Ranks that disagree may not even wait for each other in the same
 * place (one for a post, one at a link), so this is what tells them. */
static int disagreeing(const gyre_request_t *r, comm_call_t *call)
{
    const gyre_comm_t *comm = r->comm;
    comm_call_t own;
    for (uint32_t back = 0; r->kind == COLL_REQ_COLLECTIVE && back < 8 && back < r->call.seq; back++) {
        uint32_t seq = r->call.seq - back;
        if (!comm_group_find_call(comm->group, comm->rank, seq, 0, -1, &own))
            continue;
        for (int p = 0; p < comm->n; p++)
            if (p != comm->rank && comm_group_find_call(comm->group, p, seq, 0, -1, call) &&
                call->sig != own.sig)
                return p;
    }
    return -1;
}

/* The rank from which, or on whose board, is another call, and that call. */
static int foreign_call(const gyre_request_t *r, int *peer, comm_call_t *call)
{
    if (r->kind != COLL_REQ_COLLECTIVE) {
        *peer = r->peer;
        return r->link && comm_link_their_call(r->link, call);
    }
    int other = disagreeing(r, call);
    if (other >= 0) {
        *peer = other;
        return 1;
    }
    if (r->plan->exchange) {
        *peer = coll_exchange_late(&r->comm->exchange);
        return *peer >= 0 && comm_group_peer_call(r->comm->group, *peer, call);
    }
    const coll_segment_t *g = &r->plan->segments[r->plan->segment_of[r->run.segment]];
    for (int c = 0; c < COLL_MAX_CHANNELS; c++) {
        if (r->run.pc[c] >= g->last[c])
            continue;
        const coll_pstep_t *s = &g->steps[g->order[r->run.pc[c]]];
        *peer = s->peer;
        if (s->kind == COLL_STEP_RECV && s->link && comm_link_their_call(s->link, call))
            return 1;
    }
    return 0;
}

static int same_call(const comm_call_t *a, const comm_call_t *b)
{
    return a->op == b->op && a->count == b->count && a->type == b->type && a->redop == b->redop &&
           ((a->flags ^ b->flags) & COMM_CALL_SCALED) == 0 &&
           (a->root == b->root || (a->flags & COMM_CALL_P2P));
}

static void mismatch_text(const gyre_request_t *r, const char *mine, char *text, size_t bytes)
{
    const gyre_comm_t *comm = r->comm;
    comm_call_t theirs, own = r->call;
    int peer = -1, p2p = r->kind != COLL_REQ_COLLECTIVE;
    char other[160], then[200] = "";
    if (!foreign_call(r, &peer, &theirs)) {
        snprintf(
            text, bytes,
            "rank %d called %s, but what rank %d sent belongs to another call: all ranks must make the same "
            "calls in the same order",
            comm->rank, mine, peer);
        return;
    }
    coll_call_text(&theirs, other, sizeof other);
    /* the message may be of a call that this rank has long left: then show what this rank made of it */
    if (!p2p && theirs.seq != own.seq &&
        comm_group_find_call(comm->group, comm->rank, theirs.seq, 0, -1, &own)) {
        char call[160];
        coll_call_text(&own, call, sizeof call);
        snprintf(then, sizeof then, ", where rank %d called %s", comm->rank, call);
    }
    const char *why = "all ranks must make the same calls with the same arguments in the same order";
    if (r->call.seq == theirs.seq && same_call(&r->call, &theirs))
        why = "the arguments agree as far as they are shown, so the ranks differ in uneven counts or in "
              "settings "
              "(GYRE_ALGO, GYRE_CHUNK, GYRE_SCRATCH, GYRE_ORDER must be the same everywhere)";
    snprintf(text, bytes, "rank %d called %s, but rank %d %s %s%s: %s", comm->rank, mine, peer,
             then[0] ? "sent for" : "called", other, then, why);
}

static void fail_queue(gyre_request_t **head, gyre_request_t **tail, gyre_status_t status)
{
    gyre_request_t *r = *head;
    *head = *tail = NULL;
    while (r) {
        gyre_request_t *next = r->next;
        coll_request_finish(r, status);
        r = next;
    }
}

/* The story of a failure for gyre_last_error. */
static void failure_text(const gyre_comm_t *comm, const gyre_request_t *r, gyre_status_t status,
                         const char *why, char *text, size_t bytes)
{
    char mine[160], blockers[512], unanswered[400] = "";
    coll_call_text(&r->call, mine, sizeof mine);
    if (status == GYRE_ERR_TIMEOUT) {
        coll_request_blockers(r, blockers, sizeof blockers);
        comm_group_unanswered(comm->group, unanswered, sizeof unanswered);
        snprintf(text, bytes, "%s on rank %d did not finish within %g s: %s%s%s", mine, comm->rank,
                 comm->timeout_s, blockers[0] ? blockers : why, unanswered[0] ? "; " : "", unanswered);
        return;
    }
    snprintf(text, bytes, "%s on rank %d: %s", mine, comm->rank, why[0] ? why : gyre_status_string(status));
}

static void note_failure(gyre_comm_t *comm, const gyre_request_t *r, gyre_status_t status, const char *detail)
{
    char why[1024], text[1700];
    snprintf(why, sizeof why, "%s", detail ? detail : gyre_last_error());
    if (!r) {
        snprintf(text, sizeof text, "%s", why);
    } else if (status == GYRE_ERR_MISMATCH && !detail) {
        char mine[160];
        coll_call_text(&r->call, mine, sizeof mine);
        mismatch_text(r, mine, text, sizeof text);
    } else {
        failure_text(comm, r, status, why, text, sizeof text);
    }
    /* what would kill an operation only, had it happened before anything was sent, leaves the others waiting now */
    if (gyre_status_scope(status) < GYRE_SCOPE_COMMUNICATOR)
        status = GYRE_ERR_ABORTED;
    gyre_fail(status, "%s", text);
    snprintf(comm->error_text, sizeof comm->error_text, "%s", text);
    atomic_store(&comm->error, (int)status);
    comm_recorder_fail(comm->world->recorder, text);
    /* a death reaches everyone by itself, an abort came from somebody who told everyone */
    if (status != GYRE_ERR_PEER_DEAD && !detail && comm->world->watch)
        comm_watch_abort(comm->world->watch, comm->id, status, text);
}

void coll_comm_fail(gyre_comm_t *comm, gyre_request_t *r, gyre_status_t status, const char *detail)
{
    if (atomic_load(&comm->error) == GYRE_OK)
        note_failure(comm, r, status, detail);
    gyre_status_t error = (gyre_status_t)atomic_load(&comm->error);
    comm_group_let_go(comm->group); /* the buffers belong to the caller again */
    fail_queue(&comm->head, &comm->tail, error);
    fail_queue(&comm->p2p_head, &comm->p2p_tail, error);
}

void coll_comm_notice(gyre_comm_t *comm)
{
    if (comm->n == 1)
        return;
    uint32_t trouble = atomic_load_explicit(comm_watch_trouble(comm->world->watch), memory_order_acquire);
    if (trouble == comm->trouble || atomic_load(&comm->error) != GYRE_OK)
        return;
    comm->trouble = trouble;
    char text[1024];
    gyre_request_t *r = comm->head ? comm->head : comm->p2p_head;
    gyre_status_t st = comm_watch_aborted(comm->world->watch, comm->id, text, sizeof text);
    if (st != GYRE_OK) {
        coll_comm_fail(comm, r, st, text);
        return;
    }
    if (comm_group_lost(comm->group) != GYRE_OK) {
        snprintf(text, sizeof text, "%s", gyre_last_error());
        coll_comm_fail(comm, r, GYRE_ERR_PEER_DEAD, text);
    }
}

int coll_comm_idle(const gyre_comm_t *comm)
{
    return !comm->head && !comm->p2p_head;
}

int coll_comm_advance_driving(gyre_comm_t *comm)
{
    int moved = 0;
    coll_comm_notice(comm);
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

/* Appends to the communicator's queue. now: base_now(), or 0 for a call that is waited for at once: most are done before it is time to
 * read the clock (wait_turn). */
static void enqueue(gyre_request_t *r, base_time_t now)
{
    gyre_comm_t *comm = r->comm;
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
        fail_queue(head, tail, error);
    coll_stop_driving(comm);
}

/* An exchange that has begun becomes the request at the head of the queue: for waiting, and for telling what went wrong. */
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
    r->tag = comm->exchange.tag;
    begin_at(r, base_now());
    comm_recorder_since(comm->world->recorder, r->started);
    comm->head = comm->tail = r;
    return r;
}

gyre_status_t coll_run_exchange(gyre_comm_t *comm, coll_plan_t *plan, const coll_run_t *run,
                                comm_call_t *call)
{
    coll_exchange_run_t *e = &comm->exchange;
    comm_recorder_slot_t *recorder = comm->world->recorder;
    call->seq = ++comm->seq;
    e->comm = comm;
    e->plan = plan;
    e->in = run->in;
    e->out = run->out;
    e->scale = run->scale;
    e->tag = (comm_tag_t){.seq = call->seq, .sig = plan->sig};
    coll_exchange_begin(e);
    comm_recorder_begin(recorder, call, 0); /* no time for the clock: see exchange_to_request */
    comm_group_post_call(comm->group, call);
    if (coll_exchange_spin(e) == GYRE_OK) {
        plan->busy--;
        comm->operations++;
        if (!comm->p2p_head)
            comm_recorder_end(recorder);
        coll_stop_driving(comm);
        return GYRE_OK;
    }
    gyre_request_t *r = exchange_to_request(comm, plan, run, call);
    if (!r) { /* half an operation cannot be taken back */
        plan->busy--;
        coll_comm_fail(comm, NULL, GYRE_ERR_NO_MEMORY, NULL);
    }
    coll_stop_driving(comm);
    return r ? coll_request_wait(r) : GYRE_ERR_NO_MEMORY;
}

gyre_status_t coll_request_start(gyre_request_t *r, gyre_request_t **request)
{
    if (group.depth > 0) {
        r->next = NULL;
        if (group.tail)
            group.tail->next = r;
        else
            group.head = r;
        group.tail = r;
        r->collected = request ? COLL_COLLECTED_ASYNC : COLL_COLLECTED_BLOCKING;
        if (request)
            *request = r;
        return GYRE_OK;
    }
    enqueue(r, request ? base_now() : 0);
    if (!request)
        return coll_request_wait(r);
    coll_registry_add(r->comm);
    coll_comm_advance(r->comm);
    *request = r;
    return GYRE_OK;
}

/* The first rank that r waits for goes into the flight recorder. */
static void note_blocker(gyre_request_t *r)
{
    gyre_comm_t *comm = r->comm;
    int peer = r->peer;
    if (!coll_try_drive(comm))
        return;
    if (r->kind == COLL_REQ_COLLECTIVE && r->run.started && r->plan->exchange) {
        peer = coll_exchange_late(&comm->exchange);
    } else if (r->kind == COLL_REQ_COLLECTIVE && r->run.started && r->run.segment < r->plan->nsegments) {
        const coll_segment_t *g = &r->plan->segments[r->plan->segment_of[r->run.segment]];
        for (int c = 0; peer < 0 && c < COLL_MAX_CHANNELS; c++)
            if (r->run.pc[c] < g->last[c])
                peer = g->steps[g->order[r->run.pc[c]]].peer;
        if (peer < 0 && r->run.nopen)
            peer = g->steps[g->open_sends[0]].peer;
    }
    if (peer >= 0)
        comm_recorder_wait(comm->world->recorder, comm_group_world_rank(comm->group, peer));
    coll_stop_driving(comm);
}

/* One look at what went wrong while waiting for r; returns GYRE_OK if nothing did. */
static gyre_status_t wait_turn(gyre_request_t *r, comm_wait_t *wait)
{
    gyre_comm_t *comm = r->comm;
    int others;
    int moved = coll_comm_advance(comm);
    moved += coll_registry_advance(comm, &others);
    if (atomic_load_explicit(&r->done, memory_order_acquire))
        return GYRE_OK;
    if (moved) {
        comm_wait_moved(wait);
        return GYRE_OK;
    }
    if (r->started == 0) {
        begin_at(r, base_now());
        comm_recorder_since(comm->world->recorder, r->started);
    }
    wait->deadline = r->deadline;
    if (others >
        0) { /* communicators need this thread as well, and their doorbells ring elsewhere: sleep briefly only */
        base_time_t soon = base_now() + 1000000;
        wait->deadline = soon < r->deadline ? soon : r->deadline;
    }
    uint32_t armed = wait->armed;
    gyre_status_t st = comm_wait_idle(wait);
    if (wait->armed && !armed) { /* going to sleep: leave word for whom, and see whether that makes sense */
        comm_call_t theirs;
        note_blocker(r);
        if (st == GYRE_OK && disagreeing(r, &theirs) >= 0)
            return gyre_fail_quiet(GYRE_ERR_MISMATCH, "ranks disagree");
    }
    if (st == GYRE_ERR_TIMEOUT && base_now() < r->deadline)
        return GYRE_OK;
    return st;
}

gyre_status_t coll_request_wait(gyre_request_t *r)
{
    gyre_comm_t *comm = r->comm;
    comm_wait_t wait;
    comm_wait_begin(&wait, comm->group, r->deadline);
    while (!atomic_load_explicit(&r->done, memory_order_acquire)) {
        gyre_status_t st = wait_turn(r, &wait);
        if (st == GYRE_OK)
            continue;
        coll_drive(comm);
        /* What the watcher knows of a death, or was told of another rank's error, is the whole story, whatever its status; what
         * is left, a deadline that passed or a disagreement seen from here, is this rank's own to tell. */
        coll_comm_notice(comm);
        if (!atomic_load_explicit(&r->done, memory_order_acquire))
            coll_comm_fail(comm, r, st, NULL);
        coll_stop_driving(comm);
    }
    comm_wait_end(&wait);
    gyre_status_t status = r->status;
    if (status != GYRE_OK)
        gyre_fail_quiet(status, "%s", comm->error_text);
    coll_drive(comm);
    comm->sleeps += wait.sleeps;
    comm->waited += wait.waited;
    comm->open--;
    if (status == GYRE_OK && coll_comm_idle(comm))
        comm_recorder_end(comm->world->recorder);
    request_free_driving(r);
    coll_stop_driving(comm);
    return status;
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
    if (!comm)
        return gyre_fail(GYRE_ERR_INVALID, "gyre_progress: comm is NULL");
    int others;
    coll_comm_advance(comm);
    coll_registry_advance(comm, &others);
    return (gyre_status_t)atomic_load(&comm->error);
}

gyre_status_t gyre_group_start(void)
{
    group.depth++;
    return GYRE_OK;
}

int coll_group_open(void)
{
    return group.depth > 0;
}

void coll_group_note_error(gyre_status_t status)
{
    if (group.depth > 0 && group.error == GYRE_OK)
        group.error = status;
}

/* Nothing of a group with a bad call is started: its requests end with that call's status. */
static void group_discard(gyre_request_t *list, gyre_status_t status)
{
    while (list) {
        gyre_request_t *r = list;
        list = r->next;
        int blocking = r->collected == COLL_COLLECTED_BLOCKING;
        r->collected = 0;
        coll_drive(r->comm);
        coll_request_finish(r, status);
        if (blocking) {
            r->comm->open--;
            request_free_driving(r);
        }
        coll_stop_driving(r->comm);
    }
}

gyre_status_t gyre_group_end(void)
{
    if (group.depth == 0)
        return gyre_fail(GYRE_ERR_INVALID, "gyre_group_end without gyre_group_start");
    if (--group.depth > 0)
        return GYRE_OK;
    gyre_request_t *list = group.head;
    gyre_status_t status = group.error;
    group.head = group.tail = NULL;
    group.error = GYRE_OK;
    if (status != GYRE_OK) {
        group_discard(list, status);
        return status;
    }
    gyre_request_t *blocking = NULL, **end = &blocking;
    const base_time_t now = base_now();
    for (gyre_request_t *r = list, *next; r; r = next) {
        next = r->next;
        int waits = r->collected == COLL_COLLECTED_BLOCKING;
        r->collected = 0;
        r->group_next = NULL;
        if (waits) {
            *end = r;
            end = &r->group_next;
        }
        gyre_comm_t *comm = r->comm; /* enqueue may finish r, and a waiter elsewhere may free it */
        enqueue(r, now);
        coll_registry_add(comm);
    }
    for (gyre_request_t *r = blocking, *next; r; r = next) {
        next = r->group_next;
        gyre_status_t st = coll_request_wait(r);
        if (status == GYRE_OK)
            status = st;
    }
    return status;
}
