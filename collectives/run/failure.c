/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/run/failure.c: how a communicator fails: the error is claimed once, sent to the other ranks,
 * and ends all operations under way. What the text says: blame.c.
 *
 * Any thread may claim the error (gyre_comm_abort). The operations end on the thread that drives, which
 * first makes sure that no peer touches their buffers any more. The program's function (gyre_comm_on_failure)
 * is called by the thread that learns of the failure first: by that one, or by the watcher's. */
#include "collectives/run/communicator.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

/* Ends a queue's requests, which is empty then. The caller is driving. */
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

static void fail_devices(gyre_comm_t *comm, gyre_status_t status)
{
    gyre_request_t *r = comm->device_head;
    comm->device_head = comm->device_tail = NULL;
    while (r) {
        gyre_request_t *next = r->device_next;
        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): they are there if a request is */
        comm->device_ops->give_up(comm, r);
        coll_request_finish(r, status);
        r = next;
    }
}

/* The status with which another rank has aborted the communicator; `why` gets its text. GYRE_OK: none has. */
static gyre_status_t told_by_others(const gyre_comm_t *comm, char *why, size_t bytes)
{
    comm_watch_t *watch = comm->world->watch;
    if (comm->team)
        return coll_team_told(comm->team, why, bytes);
    return watch ? comm_watch_aborted(watch, comm->id, why, bytes) : GYRE_OK;
}

/* All other ranks hear that it has failed. */
static void tell_ranks(gyre_comm_t *comm, gyre_status_t status, const char *text)
{
    if (comm->team)
        coll_team_tell(comm->team, status, text);
    else if (comm->world->watch)
        comm_watch_abort(comm->world->watch, comm->id, status, text);
}

/* 1: this thread writes the error and its text. 0: another thread has, or is about to; it has by then. */
static int claim_error(gyre_comm_t *comm)
{
    if (!atomic_exchange(&comm->claimed, 1))
        return 1;
    while (atomic_load_explicit(&comm->error, memory_order_acquire) == GYRE_OK)
        sched_yield();
    return 0;
}

/* Held while a function of the program runs, so that none runs once it was taken back. */
static pthread_mutex_t calling = PTHREAD_MUTEX_INITIALIZER;

/* If the communicator `user` has failed, the program hears it, once. Also on the watcher's thread. */
static void call_program(void *user)
{
    gyre_comm_t *comm = user;
    pthread_mutex_lock(&calling);
    if (comm->on_failure) {
        const gyre_failure_fn function = comm->on_failure;
        const gyre_status_t status = coll_comm_ask(comm); /* leaves the text in gyre_last_error */
        if (status != GYRE_OK) {
            comm->on_failure = NULL;
            function(comm, status, comm->on_failure_user);
        }
    }
    pthread_mutex_unlock(&calling);
}

/* The caller has claimed it. */
static void set_error(gyre_comm_t *comm, gyre_status_t status, const char *text)
{
    snprintf(comm->error_text, sizeof comm->error_text, "%s", text);
    /* last: another thread that sees it reads the text, and may end the process */
    atomic_store(&comm->error, (int)status);
    coll_event_note(comm);
    call_program(comm);
}

void coll_comm_claim_abort(gyre_comm_t *comm, const char *text)
{
    char told[600];
    if (atomic_exchange(&comm->claimed, 1))
        return; /* it has failed; or it is about to, and the thread that says so may be kept by its log */
    /* the watcher says which rank it was; in a team nobody does */
    snprintf(told, sizeof told, "rank %d: %s", comm->rank, text);
    tell_ranks(comm, GYRE_ERR_ABORTED, comm->team ? told : text);
    set_error(comm, GYRE_ERR_ABORTED, text);
}

/* What would kill an operation only, had it happened before anything was sent, leaves the others waiting
 * now. */
static gyre_status_t at_least_communicator(gyre_status_t status)
{
    return gyre_status_scope(status) < GYRE_SCOPE_COMMUNICATOR ? GYRE_ERR_ABORTED : status;
}

/* What has happened to it elsewhere, as far as this process knows. */
static gyre_status_t trouble_of(const gyre_comm_t *comm, char *text, size_t bytes)
{
    return comm->team ? coll_team_told(comm->team, text, bytes)
                      : comm_group_trouble(comm->group, text, bytes);
}

gyre_status_t coll_comm_ask(const gyre_comm_t *comm)
{
    char text[1024];
    const int troubled = coll_comm_troubled(comm); /* first: it ends once the error is set */
    gyre_status_t status = (gyre_status_t)atomic_load_explicit(&comm->error, memory_order_acquire);
    if (status != GYRE_OK)
        return gyre_fail_quiet(status, "%s", comm->error_text);
    if (!troubled || comm_watch_interrupted() || coll_team_locking())
        return GYRE_OK;
    status = trouble_of(comm, text, sizeof text);
    return status == GYRE_OK ? status : gyre_fail_quiet(at_least_communicator(status), "%s", text);
}

int coll_comm_has_died(const gyre_comm_t *comm, int rank)
{
    char how[64] = "";
    return comm->world->watch &&
           comm_watch_dead(comm->world->watch, &comm->world_ranks[rank], 1, how, sizeof how) >= 0 &&
           strncmp(how, "died", 4) == 0;
}

gyre_status_t gyre_comm_on_failure(gyre_comm_t *comm, gyre_failure_fn function, void *user)
{
    gyre_status_t st = coll_check_live("gyre_comm_on_failure", comm);
    if (st == GYRE_OK && function && !comm->hears_failure && comm->world->watch) {
        comm->sleeper = (comm_watch_sleeper_t){.wake = call_program, .user = comm};
        comm_watch_on_trouble(comm->world->watch, &comm->sleeper);
        comm->hears_failure = 1;
    }
    if (st != GYRE_OK)
        return st;
    pthread_mutex_lock(&calling);
    comm->on_failure = function;
    comm->on_failure_user = user;
    pthread_mutex_unlock(&calling);
    if (function)
        call_program(comm); /* it may have failed before */
    return GYRE_OK;
}

void coll_comm_off_failure(gyre_comm_t *comm)
{
    if (comm->hears_failure)
        comm_watch_off_trouble(comm->world->watch, &comm->sleeper);
    comm->hears_failure = 0;
    pthread_mutex_lock(&calling);
    comm->on_failure = NULL;
    pthread_mutex_unlock(&calling);
}

/* detail: the text of the failure, where other ranks have sent one; else NULL. */
static void note_failure(gyre_comm_t *comm, const gyre_request_t *r, gyre_status_t status, const char *detail)
{
    char why[1024], text[1700], mine[160];
    snprintf(why, sizeof why, "%s", detail ? detail : gyre_last_error());
    /* The failure seen here may be the end of a rank that had sent its own error to all before. */
    gyre_status_t told = detail ? GYRE_OK : told_by_others(comm, why, sizeof why);
    if (told == GYRE_OK && r && !detail &&
        coll_failure_text(comm, r, status, why, text, sizeof text) != GYRE_OK)
        told = told_by_others(comm, why, sizeof why); /* meanwhile */
    if (told != GYRE_OK) {
        status = told;
        detail = why;
    }
    if (!r) {
        snprintf(text, sizeof text, "%s", why);
    } else if (detail) {
        char other[sizeof mine + 16];
        coll_call_text(&r->call, mine, sizeof mine);
        snprintf(other, sizeof other, "%s on rank ", mine);
        if (strstr(why, other)) /* the same call, on the rank that it came from */
            snprintf(text, sizeof text, "%s", why);
        else
            snprintf(text, sizeof text, "%s on rank %d: %s", mine, comm->rank, why);
    }
    status = at_least_communicator(status);
    if (!claim_error(comm))
        return;
    comm_recorder_fail(comm->world->recorder, text);
    /* Before the log, which may block. A death reaches all ranks by itself; an abort came from a rank that
     * sent it to all. */
    if (status != GYRE_ERR_PEER_DEAD && !detail)
        tell_ranks(comm, status, text);
    gyre_fail(status, "%s", text);
    set_error(comm, status, text);
}

void coll_comm_fail(gyre_comm_t *comm, gyre_request_t *r, gyre_status_t status, const char *detail)
{
    if (atomic_load(&comm->error) == GYRE_OK)
        note_failure(comm, r ? coll_request_named(r) : NULL, status, detail);
    gyre_status_t error = (gyre_status_t)atomic_load(&comm->error);
    if (error == GYRE_ERR_INVALID) /* in a child of fork: what the ranks share is the parent's */
        return;
    if (comm->group)
        comm_group_let_go(comm->group); /* the caller's buffers are its own again; over UCX once it is shut */
    if (comm->device_ops && !comm->device_ops->stop(comm))
        return;
    fail_queue(&comm->head, &comm->tail, error);
    fail_queue(&comm->p2p_head, &comm->p2p_tail, error);
    coll_p2p_forget(comm);
    fail_devices(comm, error);
}

void coll_comm_notice(gyre_comm_t *comm)
{
    gyre_status_t st = (gyre_status_t)atomic_load_explicit(&comm->error, memory_order_acquire);
    if (st != GYRE_OK && !coll_comm_idle(comm)) /* gyre_comm_abort, on a thread that does not drive */
        coll_comm_fail(comm, NULL, st, NULL);
    if (st != GYRE_OK || comm->n == 1)
        return;
    uint32_t trouble = atomic_load_explicit(comm->troubles, memory_order_acquire);
    if (trouble == comm->trouble)
        return;
    char text[1024];
    gyre_request_t *r = comm->head ? comm->head : comm->p2p_head;
    st = trouble_of(comm, text, sizeof text);
    if (st != GYRE_OK)
        coll_comm_fail(comm, r, st, text);
    /* last: until then gyre_comm_error and new calls look for themselves */
    atomic_store_explicit(&comm->trouble, trouble, memory_order_release);
}
