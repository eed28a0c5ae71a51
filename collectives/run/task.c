/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/run/task.c: a call of many steps as a request: a thread of its own makes it. The program's
 * thread that waits hands the results over, so that the program sees its variables change only in its own
 * calls. */
#include "collectives/run/communicator.h"

#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/error.h"
#include "base/thread/futex.h"

typedef struct coll_task {
    pthread_t thread;
    pid_t process; /* that it runs in */
    const coll_task_ops_t *ops;
    void *user;
    gyre_request_t *request;
    gyre_request_t own;   /* the request, and its communicator, of a task of none */
    gyre_comm_t *nowhere; /* or NULL */
    char text[1700];      /* of the error */
} coll_task_t;

static _Atomic uint32_t ended;

uint32_t coll_tasks_ended(void)
{
    return atomic_load(&ended);
}

void coll_tasks_sleep(uint32_t seen, base_time_t until)
{
    (void)base_futex_wait(&ended, seen, until);
}

/* Who ends the request joins this thread first: request and communicator are there until it returns. */
static void *task_main(void *user)
{
    coll_task_t *task = user;
    gyre_request_t *r = task->request;
    r->status = task->ops->run(task->user);
    if (r->status != GYRE_OK)
        snprintf(task->text, sizeof task->text, "%s", gyre_last_error());
    atomic_store_explicit(&r->done, 1, memory_order_release);
    coll_event_note(r->comm);
    atomic_fetch_add(&ended, 1);
    base_futex_wake(&ended, INT_MAX);
    return NULL;
}

/* A communicator without ranks that call it, for a request of no communicator: nothing moves there. */
static gyre_request_t *request_of_none(coll_task_t *task)
{
    task->nowhere = calloc(1, sizeof *task->nowhere);
    if (!task->nowhere)
        return NULL;
    task->nowhere->n = 1;
    task->own = (gyre_request_t){.comm = task->nowhere, .peer = -1};
    return &task->own;
}

static void drop(coll_task_t *task)
{
    gyre_request_t *r = task->request;
    if (r && !task->nowhere) {
        gyre_comm_t *comm = r->comm;
        coll_drive(comm);
        comm->open--;
        coll_request_free_driving(r);
        coll_stop_driving(comm);
    }
    free(task->nowhere);
    free(task);
}

gyre_status_t coll_task_start(const char *name, gyre_comm_t *comm, const coll_task_ops_t *ops, void *user,
                              gyre_request_t **request)
{
    sigset_t all, old;
    coll_task_t *task = calloc(1, sizeof *task);
    if (task)
        task->request = comm ? coll_request_new(comm) : request_of_none(task);
    if (!task || !task->request) {
        free(task);
        return gyre_fail(GYRE_ERR_NO_MEMORY, "%s: no memory for a request", name);
    }
    task->ops = ops;
    task->user = user;
    task->process = getpid();
    task->request->kind = COLL_REQ_TASK;
    task->request->task = task;
    task->request->started = base_now();
    task->request->deadline = BASE_TIME_NEVER; /* its thread has one */
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    const int err = pthread_create(&task->thread, NULL, task_main, task);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (err) {
        drop(task);
        return gyre_fail_errno(GYRE_ERR_SYSTEM, err,
                               "%s: no thread to make it (see ulimit -u); the call that blocks needs none",
                               name);
    }
    *request = task->request;
    return GYRE_OK;
}

int coll_task_orphaned(gyre_request_t *r)
{
    if (r->kind != COLL_REQ_TASK || r->task->process == getpid())
        return 0;
    r->status = GYRE_ERR_INVALID;
    snprintf(r->task->text, sizeof r->task->text,
             "the request is the parent's: a child of fork can only exec or exit");
    atomic_store_explicit(&r->done, 1, memory_order_release);
    return 1;
}

gyre_status_t coll_task_finish(gyre_request_t *r)
{
    coll_task_t *task = r->task;
    const gyre_status_t status = r->status;
    if (coll_task_orphaned(r)) /* what the thread worked with is nobody's here */
        return gyre_fail(GYRE_ERR_INVALID, "%s", task->text);
    pthread_join(task->thread, NULL);
    task->ops->end(task->user, status);
    if (status != GYRE_OK)
        gyre_fail_quiet(status, "%s", task->text);
    drop(task);
    return status;
}
