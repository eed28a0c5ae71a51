/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/run/wait.c: how operations are waited for, one or any of several: moving what moves, then
 * spinning, yielding and sleeping (comm/wait.h), until it is done or its deadline has passed. */
#include "collectives/run/communicator.h"

#include <sched.h>
#include <time.h>

#include "base/error.h"

enum {
    SPIN_NOTES = 1 << 16,       /* turns of a spin, some 10 ms */
    NAP_NS = 1000 * 1000,       /* between looks at what has no doorbell, */
    DEVICE_NAP_NS = 50 * 1000,  /* and at a device, whose operations are short */
    LOOK_NS = 10 * 1000 * 1000, /* of looking at a device without a nap, */
    LOOK_TURNS = 64             /* and of that, before anybody else may have the core */
};

/* What a wait is for: one of these has finished. */
typedef struct {
    gyre_request_t *const *list; /* [count]; NULLs are passed over */
    size_t count;
    gyre_request_t *first; /* of the unfinished ones, the one with the earliest deadline; NULL: none */
    int looks;             /* 1: some are on a device, which rings no bell */
    int team;              /* 1: some are of a team, which has none */
    int tasks;             /* 1: some are a task's, whose end rings elsewhere (task.c) */
} wanted_t;

enum { NOT_YET = -1 };

/* The place of the first that has finished, or NOT_YET. */
static ptrdiff_t find_done(const wanted_t *w)
{
    for (size_t i = 0; i < w->count; i++)
        if (w->list[i] && atomic_load_explicit(&w->list[i]->done, memory_order_acquire))
            return (ptrdiff_t)i;
    return NOT_YET;
}

/* Nothing moves. others: communicators that this thread moves, too. The caller is driving. */
static gyre_status_t idle_driving(const wanted_t *w, comm_wait_t *wait, int others)
{
    gyre_request_t *r = w->first;
    gyre_comm_t *comm = r->comm;
    if (r->started == 0) {
        coll_request_begin_at(r, base_now());
        comm_recorder_since(comm->world->recorder, r->started);
    }
    wait->deadline = r->deadline;
    if (others > 0 || w->looks || w->tasks) {
        /* communicators need this thread as well, and their doorbells ring elsewhere, or a device rings
         * none: sleep briefly only */
        base_time_t soon = base_now() + (w->looks ? DEVICE_NAP_NS : NAP_NS);
        wait->deadline = soon < r->deadline ? soon : r->deadline;
    }
    uint32_t armed = wait->armed;
    gyre_status_t st = comm_wait_idle(wait);
    if (wait->armed && !armed) { /* going to sleep: leave word for whom, and see whether that makes sense */
        comm_call_t theirs;
        coll_note_blocker(r);
        if (st == GYRE_OK && coll_disagreeing(r, &theirs) >= 0)
            return gyre_fail_quiet(GYRE_ERR_MISMATCH, "ranks disagree");
    } else if (wait->turns % SPIN_NOTES == SPIN_NOTES - 1) {
        coll_note_blocker(r); /* GYRE_SPIN may be longer than the others' patience */
    }
    return st;
}

/* One turn of waiting: moves what moves, else waits a little, in the communicator of w->first. Returns what
 * went wrong there, or GYRE_OK. */
static gyre_status_t wait_turn(const wanted_t *w, comm_wait_t *wait)
{
    gyre_request_t *r = w->first;
    gyre_comm_t *comm = r->comm;
    gyre_status_t st = GYRE_OK;
    int others;
    int moved = coll_registry_advance(comm, &others);
    if (!coll_try_drive(comm)) {
        comm_wait_busy(wait);
        return GYRE_OK;
    }
    moved += coll_comm_advance_driving(comm);
    const int done = find_done(w) != NOT_YET;
    if (!done && !moved)
        st = idle_driving(w, wait, others);
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
    if (r->kind == COLL_REQ_TASK)
        return coll_task_finish(r);
    gyre_comm_t *comm = r->comm;
    if (coll_request_orphaned(r))
        return gyre_fail(GYRE_ERR_INVALID, "%s", comm->error_text);
    gyre_status_t status = r->status;
    if (status != GYRE_OK && atomic_load_explicit(&comm->error, memory_order_acquire) != GYRE_OK) {
        gyre_fail_quiet(status, "%s", comm->error_text);
    } else if (status != GYRE_OK) {
        char call[160] = "neighbor_exchange";
        if (r->kind != COLL_REQ_MESSAGES)
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

/* r has not finished in time, or something went wrong (st, and its text) while the caller waited for it. Then
 * all of its communicator's requests are done. */
static void give_up(gyre_request_t *r, gyre_status_t st)
{
    gyre_comm_t *comm = r->comm;
    coll_drive(comm);
    /* If the watcher knows of a death or of another rank's error, that is the cause, whatever its status.
     * Otherwise this rank reports what it sees itself: a deadline that passed, or a disagreement. */
    coll_comm_notice(comm);
    if (!atomic_load_explicit(&r->done, memory_order_acquire))
        coll_comm_fail(comm, r, st, NULL);
    coll_stop_driving(comm);
}

/* Operations of a team are on devices: nobody rings a bell. So this thread looks, and sleeps in between once
 * that has lasted. */
static void look_until_done(const wanted_t *w, comm_wait_t *wait)
{
    const struct timespec nap = {.tv_nsec = DEVICE_NAP_NS};
    int others;
    wait->since = base_now();
    for (uint32_t turn = 0;; turn++) {
        (void)coll_comm_advance(w->first->comm);
        (void)coll_registry_advance(w->first->comm, &others);
        const base_time_t now = base_now();
        wait->waited = now - wait->since;
        if (find_done(w) != NOT_YET)
            return;
        if (now >= w->first->deadline) {
            give_up(w->first, gyre_fail_quiet(GYRE_ERR_TIMEOUT, "the deadline passed"));
        } else if (wait->waited > LOOK_NS) {
            nanosleep(&nap, NULL);
            wait->sleeps++;
        } else if (turn >= LOOK_TURNS) {
            sched_yield(); /* of a rank that is another thread of this process, perhaps */
        }
    }
}

/* All that is left are tasks, in which this thread cannot help: it moves what other operations there are. */
static void sleep_until_done(const wanted_t *w)
{
    for (;;) {
        const uint32_t ended = coll_tasks_ended();
        int others;
        for (size_t i = 0; i < w->count; i++)
            if (w->list[i])
                (void)coll_request_orphaned(w->list[i]);
        if (find_done(w) != NOT_YET)
            return;
        if (coll_registry_advance(NULL, &others) == 0)
            coll_tasks_sleep(ended, others > 0 ? base_now() + NAP_NS : BASE_TIME_NEVER);
    }
}

/* Bytes that a rank moves for it, about. */
static size_t volume(const gyre_request_t *r)
{
    const int blocks =
        r->call.flags & COMM_CALL_P2P || coll_op_is_vector((coll_op_t)r->call.op) ? 1 : r->comm->n;
    return (size_t)r->call.count * base_type_size((gyre_type_t)r->call.type) * (size_t)blocks;
}

/* Waits until one has finished, and ends it. *at: its place. Returns its status. */
static gyre_status_t wait_for_one(const wanted_t *w, ptrdiff_t *at)
{
    comm_wait_t wait = {0};
    if (coll_request_orphaned(w->first)) { /* is done */
    } else if (w->first->kind == COLL_REQ_TASK) {
        sleep_until_done(w);
    } else if (w->team) {
        look_until_done(w, &wait);
    } else {
        comm_wait_begin(&wait, w->first->comm->group, w->first->deadline);
        wait.bytes = volume(w->first);
        while (find_done(w) == NOT_YET) {
            gyre_status_t st = wait_turn(w, &wait);
            if (st != GYRE_OK)
                give_up(w->first, st);
        }
        comm_wait_end(&wait);
    }
    *at = find_done(w);
    return finish_wait(w->list[*at], &wait);
}

gyre_status_t coll_request_wait(gyre_request_t *r)
{
    const wanted_t w = {.list = &r,
                        .count = 1,
                        .first = r,
                        .looks = r->kind == COLL_REQ_DEVICE,
                        .team = r->comm->team != NULL};
    ptrdiff_t at;
    return wait_for_one(&w, &at);
}

static gyre_status_t not_to_be_ended(const char *name, const gyre_request_t *r)
{
    if (r->collected == COLL_COLLECTED_FREE)
        return gyre_fail(GYRE_ERR_INVALID,
                         "%s: the request was freed when a call reported its end: do not use copies of it",
                         name);
    return gyre_fail(GYRE_ERR_INVALID, "%s: the request is part of a group that has not ended", name);
}

gyre_status_t gyre_wait(gyre_request_t **request)
{
    if (!request)
        return gyre_fail(GYRE_ERR_INVALID, "gyre_wait: request is NULL");
    gyre_request_t *r = *request;
    if (!r)
        return GYRE_OK;
    if (r->collected)
        return not_to_be_ended("gyre_wait", r);
    *request = NULL;
    return coll_request_wait(r);
}

gyre_status_t gyre_wait_all(size_t count, gyre_request_t **requests)
{
    if (count && !requests)
        return gyre_fail(GYRE_ERR_INVALID, "gyre_wait_all: requests is NULL but count is %zu", count);
    coll_first_t first;
    coll_first_begin(&first);
    for (size_t i = 0; i < count; i++)
        coll_first_note(&first, gyre_wait(&requests[i]));
    return coll_first_end(&first);
}

/* For a caller that tests r, and perhaps others. */
static void move_a_step(gyre_request_t *r, int tasks)
{
    gyre_status_t st = gyre_progress(r->comm);
    (void)st; /* a failed communicator has finished its requests: r carries the status */
    if (tasks)
        sched_yield(); /* their threads may need this core, which a caller that spins would keep for long */
}

gyre_status_t gyre_test(gyre_request_t **request)
{
    if (!request)
        return gyre_fail(GYRE_ERR_INVALID, "gyre_test: request is NULL");
    gyre_request_t *r = *request;
    if (!r)
        return GYRE_OK;
    if (r->collected)
        return r->collected == COLL_COLLECTED_FREE ? not_to_be_ended("gyre_test", r) : GYRE_IN_PROGRESS;
    if (!atomic_load_explicit(&r->done, memory_order_acquire)) {
        move_a_step(r, r->kind == COLL_REQ_TASK);
        (void)coll_request_orphaned(r);
        if (!atomic_load_explicit(&r->done, memory_order_acquire) && base_now_coarse() < r->deadline)
            return GYRE_IN_PROGRESS;
    }
    *request = NULL;
    return coll_request_wait(r);
}

/* Reads a caller's list. *open: an entry is part of a group that has not ended. */
static gyre_status_t want(const char *name, size_t count, gyre_request_t **requests, wanted_t *w, int *open)
{
    if (count && !requests)
        return gyre_fail(GYRE_ERR_INVALID, "%s: requests is NULL but count is %zu", name, count);
    *w = (wanted_t){.list = requests, .count = count};
    *open = 0;
    for (size_t i = 0; i < count; i++) {
        gyre_request_t *r = requests[i];
        if (!r)
            continue;
        if (r->collected == COLL_COLLECTED_FREE)
            return not_to_be_ended(name, r);
        if (r->collected) {
            *open = 1;
            continue;
        }
        w->looks |= r->kind == COLL_REQ_DEVICE;
        w->team |= r->comm->team != NULL;
        w->tasks |= r->kind == COLL_REQ_TASK;
        (void)coll_request_orphaned(r);
        if (!atomic_load_explicit(&r->done, memory_order_acquire) &&
            (!w->first || r->deadline < w->first->deadline))
            w->first = r;
    }
    return GYRE_OK;
}

/* Moves what is unfinished a step, and fails it if its deadline has passed. */
static void test_turn(const wanted_t *w)
{
    gyre_request_t *r = w->first;
    move_a_step(r, w->tasks);
    if (!atomic_load_explicit(&r->done, memory_order_acquire) && base_now_coarse() >= r->deadline)
        give_up(r, gyre_fail_quiet(GYRE_ERR_TIMEOUT, "the deadline passed"));
}

gyre_status_t gyre_test_all(size_t count, gyre_request_t **requests)
{
    wanted_t w;
    int open;
    gyre_status_t st = want("gyre_test_all", count, requests, &w, &open);
    if (st != GYRE_OK)
        return st;
    if (w.first)
        test_turn(&w);
    for (size_t i = 0; i < count; i++)
        if (requests[i] && !atomic_load_explicit(&requests[i]->done, memory_order_acquire))
            return GYRE_IN_PROGRESS;
    return gyre_wait_all(count, requests);
}

/* One has finished: ends it. */
static gyre_status_t end_at(gyre_request_t **requests, ptrdiff_t at, ptrdiff_t *index)
{
    *index = at;
    return gyre_wait(&requests[at]);
}

gyre_status_t gyre_test_any(size_t count, gyre_request_t **requests, ptrdiff_t *index)
{
    wanted_t w;
    int open;
    if (!index)
        return gyre_fail(GYRE_ERR_INVALID, "gyre_test_any: index is NULL");
    *index = NOT_YET;
    gyre_status_t st = want("gyre_test_any", count, requests, &w, &open);
    if (st != GYRE_OK)
        return st;
    ptrdiff_t at = find_done(&w);
    if (at == NOT_YET && w.first) {
        test_turn(&w);
        at = find_done(&w);
    }
    if (at != NOT_YET)
        return end_at(requests, at, index);
    return w.first || open ? GYRE_IN_PROGRESS : GYRE_OK;
}

gyre_status_t gyre_wait_any(size_t count, gyre_request_t **requests, ptrdiff_t *index)
{
    wanted_t w;
    int open;
    if (!index)
        return gyre_fail(GYRE_ERR_INVALID, "gyre_wait_any: index is NULL");
    *index = NOT_YET;
    gyre_status_t st = want("gyre_wait_any", count, requests, &w, &open);
    if (st == GYRE_OK && open)
        st = gyre_fail(GYRE_ERR_INVALID, "gyre_wait_any: a request is part of a group that has not ended");
    if (st != GYRE_OK)
        return st;
    const ptrdiff_t at = find_done(&w);
    if (at != NOT_YET)
        return end_at(requests, at, index);
    if (!w.first)
        return GYRE_OK;
    st = wait_for_one(&w, index);
    requests[*index] = NULL;
    return st;
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
        coll_registry_leave(comm);
        coll_stop_driving(comm);
    }
    (void)coll_registry_advance(comm, &others);
    return coll_comm_ask(comm);
}
