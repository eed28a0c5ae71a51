/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/run/wait.c: waiting for operations, and asking whether they are done. */
#include "collectives/run/communicator.h"

#include <sched.h>
#include <time.h>

#include "base/error.h"
#include "collectives/run/request.h"

static void note_blocker(const gyre_request_t *r)
{
    if (!coll_try_drive(r->comm))
        return;
    coll_note_blocker_driving(r);
    coll_stop_driving(r->comm);
}

enum {
    SPIN_NOTES = 1 << 16,       /* turns of a spin, some 10 ms */
    NAP_NS = 1000 * 1000,       /* between looks at what has no doorbell, */
    DEVICE_NAP_NS = 50 * 1000,  /* and at a device, whose operations are short */
    LOOK_NS = 10 * 1000 * 1000, /* of looking at a device without a nap, */
    LOOK_TURNS = 64             /* and of that, before anybody else may have the core */
};

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
        coll_request_begin_at(r, base_now());
        comm_recorder_since(comm->world->recorder, r->started);
    }
    wait->deadline = r->deadline;
    if (others > 0 || r->kind == COLL_REQ_DEVICE) {
        /* communicators need this thread as well, and their doorbells ring elsewhere, or a device rings none: sleep briefly only */
        base_time_t soon = base_now() + (r->kind == COLL_REQ_DEVICE ? DEVICE_NAP_NS : NAP_NS);
        wait->deadline = soon < r->deadline ? soon : r->deadline;
    }
    uint32_t armed = wait->armed;
    gyre_status_t st = comm_wait_idle(wait);
    if (wait->armed && !armed) { /* going to sleep: leave word for whom, and see whether that makes sense */
        comm_call_t theirs;
        note_blocker(r);
        if (st == GYRE_OK && coll_disagreeing(r, &theirs) >= 0)
            return gyre_fail_quiet(GYRE_ERR_MISMATCH, "ranks disagree");
    } else if (wait->turns % SPIN_NOTES == SPIN_NOTES - 1) {
        note_blocker(r); /* GYRE_SPIN may be longer than the others' patience */
    }
    if (st == GYRE_ERR_TIMEOUT && base_now() < r->deadline)
        return GYRE_OK;
    return st;
}

/* r is done: its status, and r is free again. */
static gyre_status_t finish_wait(gyre_request_t *r, const comm_wait_t *wait)
{
    gyre_comm_t *comm = r->comm;
    gyre_status_t status = r->status;
    if (status != GYRE_OK)
        gyre_fail_quiet(status, "%s", comm->error_text);
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

/* Waits for r of a team, whose operations are on devices: nobody rings a bell, so it looks, and sleeps in between once that has
 * lasted. OK: it is done; TIMEOUT. */
static gyre_status_t look_until_done(gyre_request_t *r, comm_wait_t *wait)
{
    const struct timespec nap = {.tv_nsec = DEVICE_NAP_NS};
    gyre_comm_t *comm = r->comm;
    int others;
    wait->since = base_now();
    for (uint32_t turn = 0;; turn++) {
        (void)coll_comm_advance(comm);
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
        /* What the watcher knows of a death, or was told of another rank's error, is the whole story, whatever its status; what
         * is left, a deadline that passed or a disagreement seen from here, is this rank's own to tell. */
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
    if (!comm)
        return gyre_fail(GYRE_ERR_INVALID, "gyre_progress: comm is NULL");
    int others;
    if (coll_try_drive(comm)) {
        if (!coll_comm_advance_driving(comm))
            coll_note_idle(comm);
        coll_stop_driving(comm);
    }
    coll_registry_advance(comm, &others);
    return (gyre_status_t)atomic_load(&comm->error);
}
