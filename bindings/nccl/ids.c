/* SPDX-License-Identifier: Apache-2.0 */
/* bindings/nccl/ids.c: unique ids, and what an id makes in this process: a job of Gyre for each of its ranks
 * here. To leave a job waits for all ranks, and one thread may hold several of them. So the jobs of an id
 * end together, with the last communicator that was made of any of them.
 *
 * Processes may destroy communicators of two ids in different orders, and each would wait for the other one.
 * So a thread leaves the jobs, and the call goes on after a while if the process has another id. The
 * last id of the process waits for all, unless it is aborted. */
#include "bindings/nccl/shim.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert(sizeof(ncclUniqueId) == sizeof(gyre_unique_id_t), "an id of Gyre has the size of NCCL's");

struct shim_id {
    struct shim_id *next;
    ncclUniqueId id;
    int users; /* communicators, and calls that are making one */
    int ranks;
    shim_job_t *jobs;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct shim_id *ids; /* with the jobs and counts: under the lock */

/* NCCL makes the same id of it on every rank. Here each rank makes an id of its own: a program that does not
 * give rank 0's id to the others waits until the deadline. Most programs do, and need no address. */
static void warn_of_address(void)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    const char *address = getenv("NCCL_COMM_ID");
    if (address && *address && !atomic_flag_test_and_set(&warned))
        shim_warn("NCCL_COMM_ID has no effect, since an address holds no secret: give all ranks the id that "
                  "rank 0 makes");
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    gyre_unique_id_t made;
    if (!id)
        return shim_fail(ncclInvalidArgument, "%s: uniqueId is NULL", __func__);
    warn_of_address();
    const gyre_status_t st = gyre_get_unique_id(&made);
    if (st != GYRE_OK)
        return shim_status(__func__, st);
    memcpy(id, &made, sizeof made);
    return ncclSuccess;
}
SHIM_API(ncclGetUniqueId);

/* A job for one more rank of this id. */
static shim_job_t *enter(const ncclUniqueId *id)
{
    shim_job_t *job = calloc(1, sizeof *job);
    struct shim_id *of, *fresh = calloc(1, sizeof *fresh);
    if (!job || !fresh) {
        free(job);
        free(fresh);
        return NULL;
    }
    pthread_mutex_lock(&lock);
    for (of = ids; of && memcmp(&of->id, id, sizeof *id) != 0; of = of->next)
        ;
    if (!of) {
        of = fresh;
        fresh = NULL;
        of->id = *id;
        of->next = ids;
        ids = of;
    }
    of->users++;
    of->ranks++;
    job->of = of;
    job->next = of->jobs;
    of->jobs = job;
    pthread_mutex_unlock(&lock);
    free(fresh);
    return job;
}

static void *end_job(void *argument)
{
    shim_job_t *job = argument;
    shim_relaxed_t relaxed = shim_relax();
    (void)gyre_finalize(job->world); /* NULL if it was not made */
    shim_relax_end(&relaxed);
    free(job);
    return NULL;
}

/* All at once: each waits for the others. */
static void end_jobs(shim_job_t *job)
{
    pthread_t thread;
    shim_job_t *next = job->next;
    if (!next) {
        (void)end_job(job);
        return;
    }
    if (pthread_create(&thread, NULL, end_job, job) != 0) {
        (void)gyre_comm_abort(job->world, "libgyre-nccl has no thread to leave the job with");
        (void)end_job(job); /* which does not wait then */
        end_jobs(next);
        return;
    }
    end_jobs(next);
    (void)pthread_join(thread, NULL);
}

typedef struct leave {
    struct leave *next;
    pthread_t thread;
    shim_job_t *jobs;
    atomic_int done;
} leave_t;
static leave_t *leaving; /* those that a call did not wait for: under the lock */

static void *run_leave(void *argument)
{
    leave_t *leave = argument;
    end_jobs(leave->jobs);
    atomic_store(&leave->done, 1);
    return NULL;
}

/* all: waits for those that are not done, too. */
static void join_leaving(int all)
{
    leave_t *ended = NULL;
    pthread_mutex_lock(&lock);
    for (leave_t **at = &leaving; *at;) {
        leave_t *leave = *at;
        if (!all && !atomic_load(&leave->done)) {
            at = &leave->next;
            continue;
        }
        *at = leave->next;
        leave->next = ended;
        ended = leave;
    }
    pthread_mutex_unlock(&lock);
    while (ended) {
        leave_t *leave = ended;
        ended = leave->next;
        (void)pthread_join(leave->thread, NULL);
        free(leave);
    }
}

/* Waits for half a second; longer if the process has no other id left by then: the thread that has taken the
 * last one did not see this leave. aborted: half a second in any case. */
static void leave_beside(shim_job_t *jobs, int aborted)
{
    enum { LOOKS = 500, LOOK_US = 1000 };
    leave_t *leave = calloc(1, sizeof *leave);
    if (leave)
        leave->jobs = jobs;
    if (!leave || pthread_create(&leave->thread, NULL, run_leave, leave) != 0) {
        free(leave);
        end_jobs(jobs);
        return;
    }
    for (int look = 0; look < LOOKS && !atomic_load(&leave->done); look++)
        usleep(LOOK_US);
    pthread_mutex_lock(&lock);
    const int wait = !ids && !aborted;
    leave->next = leaving;
    leaving = leave;
    pthread_mutex_unlock(&lock);
    join_leaving(wait);
}

void shim_leave(shim_job_t *job, int aborted)
{
    struct shim_id *of = job->of;
    int beside = aborted;
    pthread_mutex_lock(&lock);
    const int last = --of->users == 0;
    if (last) {
        struct shim_id **at = &ids;
        while (*at != of)
            at = &(*at)->next;
        *at = of->next;
        beside |= ids != NULL;
    }
    pthread_mutex_unlock(&lock);
    if (!last)
        return;
    if (beside)
        leave_beside(of->jobs, aborted);
    else {
        end_jobs(of->jobs);
        join_leaving(1);
    }
    free(of);
}

void shim_hold(shim_job_t *job)
{
    pthread_mutex_lock(&lock);
    job->of->users++;
    pthread_mutex_unlock(&lock);
}

/* Whether some process has several ranks of the job: the same on all ranks. All ranks of this process have
 * entered by now, or the job would not be there. */
static gyre_status_t look_around(shim_job_t *job)
{
    pthread_mutex_lock(&lock);
    int32_t several = job->of->ranks > 1;
    pthread_mutex_unlock(&lock);
    const gyre_status_t st =
        gyre_all_reduce(&several, &several, 1, GYRE_INT32, GYRE_OP(GYRE_MAX), job->world);
    job->several = (int)several;
    return st;
}

ncclResult_t shim_join(const shim_call_t *call, shim_job_t **out)
{
    gyre_unique_id_t id;
    shim_job_t *job = enter(&call->id);
    if (!job)
        return shim_no_memory(call->name);
    memcpy(&id, &call->id, sizeof id);
    gyre_status_t st = gyre_comm_create_id(&id, call->rank, call->nranks, NULL, &job->world);
    if (st == GYRE_OK)
        st = look_around(job);
    if (st == GYRE_OK) {
        *out = job;
        return ncclSuccess;
    }
    const ncclResult_t result = shim_status(call->name, st);
    shim_leave(job, 1);
    return result;
}
