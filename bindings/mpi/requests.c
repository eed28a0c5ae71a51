/* SPDX-License-Identifier: Apache-2.0 */
/* bindings/mpi/requests.c: how a collective that is taken begins and ends. A blocking one is waited for. One
 * that does not block becomes a generalized request of MPI, so that the program's MPI_Wait and its siblings
 * take it together with all other requests. They are defined here: while requests of Gyre are open, they
 * test instead of waiting, and drive Gyre in between. Otherwise they cost one comparison.
 *
 * A rank may leave MPI_Wait out for long, as it computes or waits in another call of MPI, while other ranks
 * need its part. So a thread drives Gyre if nothing else does; it makes no call of MPI. */
#include "shim.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

MPI_Request shim_blocking;

static bool threaded;    /* MPI_THREAD_MULTIPLE */
static atomic_int alive; /* requests that MPI has not freed */
static atomic_int open;  /* those of them that have not ended: the list */
static struct {
    pthread_mutex_t lock; /* if threaded */
    shim_op_t *first;
    shim_op_t **end;
    unsigned turn;
} list = {PTHREAD_MUTEX_INITIALIZER, NULL, &list.first, 0};

/* What this thread's call of MPI has met: a request that failed. */
static _Thread_local struct {
    int class;
    MPI_Comm comm;
} failed;

/* A blocking collective over the network ends when the network's library has taken what it sends, which may
 * be more than the socket takes. The receiver gets the rest when somebody drives Gyre, and the program may be
 * in MPI_Recv by then, for an answer of that receiver. So between hosts the helper never sleeps for good. */
static atomic_bool between_hosts;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t more;
    pthread_t thread;
    gyre_comm_t *world;
    bool tried;
    atomic_bool runs;
    bool stops;
    atomic_bool sleeps;
    atomic_uint turns; /* of calls of the program that drive Gyre */
    atomic_uint starts;
} helper = {.lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER};

void shim_requests_between_hosts(void)
{
    atomic_store(&between_hosts, true);
}

void shim_enter(shim_comm_t *on)
{
    if (threaded)
        pthread_mutex_lock(&on->lock);
}
void shim_exit(shim_comm_t *on)
{
    if (threaded)
        pthread_mutex_unlock(&on->lock);
}

/* Drives Gyre while the program's calls do not. Looks often at first: a message of another rank is the next
 * thing that happens. */
static void *help(void *unused)
{
    enum { SHORT_NS = 100 * 1000, LONG_NS = 1000 * 1000, SHORT_NAPS = 50 };
    unsigned turns = 0;
    unsigned starts = 0;
    int naps = 0;
    (void)unused;
    pthread_mutex_lock(&helper.lock);
    while (!helper.stops) {
        if (atomic_load(&open) == 0 && !atomic_load(&between_hosts)) {
            atomic_store(&helper.sleeps, true);
            if (atomic_load(&open) == 0) /* begin() adds first and looks at `sleeps` then */
                pthread_cond_wait(&helper.more, &helper.lock);
            atomic_store(&helper.sleeps, false);
            continue;
        }
        pthread_mutex_unlock(&helper.lock);
        unsigned now = atomic_load_explicit(&helper.starts, memory_order_relaxed);
        naps = now != starts ? 0 : naps < SHORT_NAPS ? naps + 1 : naps;
        starts = now;
        const struct timespec nap = {.tv_nsec = naps < SHORT_NAPS ? SHORT_NS : LONG_NS};
        nanosleep(&nap, NULL);
        now = atomic_load_explicit(&helper.turns, memory_order_relaxed);
        if (now == turns)
            (void)GYRE(progress)(helper.world);
        turns = now;
        pthread_mutex_lock(&helper.lock);
    }
    pthread_mutex_unlock(&helper.lock);
    return NULL;
}
static void wake_helper(void)
{
    if (helper.runs && !atomic_load(&helper.sleeps))
        return;
    pthread_mutex_lock(&helper.lock);
    if (!helper.tried) {
        sigset_t all;
        sigset_t old;
        helper.tried = true;
        helper.world = atomic_load(&shim_job.gyre);
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, &old);
        helper.runs = pthread_create(&helper.thread, NULL, help, NULL) == 0;
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        if (!helper.runs)
            fprintf(stderr,
                    "libgyre-mpi: no thread can be started: non-blocking collectives go on in MPI_Wait "
                    "and MPI_Test and their siblings only\n");
    }
    pthread_cond_signal(&helper.more);
    pthread_mutex_unlock(&helper.lock);
}

shim_op_t *shim_take(shim_op_t *own, shim_call_t id, int root, int count, MPI_Datatype type, MPI_Comm comm,
                     MPI_Request *request)
{
    const bool blocking = request == BLOCKING;
    shim_why_t why;
    shim_comm_t *on = shim_comm_of(comm, blocking, count, type, &why);
    if (!blocking)
        id += CALL_COUNT;
    if (on != NULL && (request == NULL || root < 0 || root >= on->size))
        why = WHY_ARGUMENT;
    if (why != WHY_TAKEN) {
        shim_passed_on(id, why);
        return NULL;
    }
    shim_op_t *o = blocking ? own : malloc(sizeof(*o));
    if (o == NULL)
        shim_no_memory("a request");
    memset(o, 0, offsetof(shim_op_t, send));
    o->id = id;
    o->blocking = blocking;
    o->ordered = true;
    o->comm = comm;
    o->on = on;
    o->status = GYRE_OK;
    o->type = GYRE_TYPE_NONE;
    o->other = MPI_REQUEST_NULL;
    shim_begin(o);
    return o;
}
void shim_drop(shim_op_t *o, shim_why_t why)
{
    shim_passed_on(o->id, why);
    if (!o->blocking)
        free(o);
}
bool shim_misplaced(shim_op_t *o, const void *buffer, int root)
{
    if (buffer != MPI_IN_PLACE || o->on->rank == root)
        return false;
    fprintf(stderr, "libgyre-mpi: %s: rank %d: MPI_IN_PLACE is for the root alone, which is rank %d\n",
            shim_name(o->id), o->on->rank, root);
    o->status = GYRE_ERR_INVALID;
    return true;
}

/* Whether it has ended; moves it a step. */
static bool has_ended(shim_op_t *o)
{
    int flag = 1;
    if (o->request != NULL) {
        shim_enter(o->on);
        gyre_status_t status = GYRE(test)(&o->request);
        shim_exit(o->on);
        if (status == GYRE_IN_PROGRESS)
            return false;
        o->status = status;
    }
    if (o->other != MPI_REQUEST_NULL && o->status == GYRE_OK)
        REAL(Test)(&o->other, &flag, MPI_STATUS_IGNORE);
    return flag;
}
/* It has ended: the program gets the result. */
static void complete(shim_op_t *o)
{
    if (o->bounce != NULL && o->status == GYRE_OK)
        memcpy(o->result, o->bounce, o->length);
    free(o->bounce);
    if (o->status == GYRE_OK)
        shim_receive(o);
    shim_end(o);
    shim_close(o);
}
static void note_turn(void)
{
    atomic_store_explicit(&helper.turns, atomic_load_explicit(&helper.turns, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

/* Moves all open requests a step, and ends those that have ended. */
static void drive(void)
{
    if (atomic_load(&open) == 0 || (threaded && pthread_mutex_trylock(&list.lock) != 0))
        return;
    note_turn();
    list.turn++;
    for (shim_op_t **at = &list.first; *at != NULL;) {
        shim_op_t *o = *at;
        /* One that waits for one before it need not be asked. */
        if ((o->ordered && o->on->turn == list.turn) || !has_ended(o)) {
            if (o->ordered)
                o->on->turn = list.turn;
            at = &o->next;
            continue;
        }
        *at = o->next;
        if (o->next == NULL)
            list.end = at;
        atomic_fetch_sub(&open, 1);
        complete(o);
        MPI_Request handle = o->handle;
        bool left = o->left;
        PMPI_Grequest_complete(handle);
        if (left)
            REAL(Request_free)(&handle);
    }
    if (threaded)
        pthread_mutex_unlock(&list.lock);
}

/* What MPI calls for a generalized request: in a call that ends it; at its end; in MPI_Cancel. */
static int query(void *extra, MPI_Status *status)
{
    const shim_op_t *o = extra;
    PMPI_Status_set_elements(status, MPI_BYTE, 0);
    PMPI_Status_set_cancelled(status, 0);
    status->MPI_SOURCE = MPI_ANY_SOURCE;
    status->MPI_TAG = MPI_ANY_TAG;
    if (o->status != GYRE_OK) {
        /* MPI would call the handler of another communicator for an error that is returned here. */
        failed.class = status->MPI_SOURCE = shim_class(o->status);
        failed.comm = atomic_load(&o->on->freed) ? MPI_COMM_WORLD : o->comm;
        status->MPI_TAG = MPI_UNDEFINED;
    }
    return MPI_SUCCESS;
}
static int release(void *extra)
{
    shim_op_t *o = extra;
    shim_comm_t *on = o->on;
    free(o);
    atomic_fetch_sub(&alive, 1);
    shim_comm_leave(on);
    return MPI_SUCCESS;
}
static int cancel(void *extra, int completed)
{
    (void)extra;
    (void)completed;
    return MPI_ERR_REQUEST; /* a collective cannot be cancelled */
}

static int finish_blocking(shim_op_t *o)
{
    for (unsigned turn = 1; o->status == GYRE_OK && !has_ended(o); turn++) {
        shim_rest(turn, false);
        if (atomic_load_explicit(&open, memory_order_relaxed) != 0)
            note_turn();
    }
    shim_rest(0, true);
    if (atomic_load_explicit(&between_hosts, memory_order_relaxed))
        wake_helper();
    complete(o);
    drive(); /* what MPI_Request_free has left has no other call in which to end */
    return shim_result(o->comm, o->status);
}
int shim_finish(shim_op_t *o, MPI_Request *request)
{
    if (o->blocking)
        return finish_blocking(o);
    if (o->status != GYRE_OK) {
        int rc = shim_class(o->status);
        MPI_Comm comm = o->comm;
        complete(o);
        free(o);
        *request = MPI_REQUEST_NULL;
        PMPI_Comm_call_errhandler(comm, rc);
        return rc;
    }
    if (PMPI_Grequest_start(query, release, cancel, o, request) != MPI_SUCCESS)
        shim_no_memory("a request");
    o->handle = *request;
    atomic_fetch_add(&o->on->requests, 1);
    atomic_fetch_add(&alive, 1);
    if (threaded)
        pthread_mutex_lock(&list.lock);
    *list.end = o;
    list.end = &o->next;
    atomic_fetch_add(&open, 1);
    atomic_fetch_add_explicit(&helper.starts, 1, memory_order_relaxed);
    if (threaded)
        pthread_mutex_unlock(&list.lock);
    wake_helper();
    return MPI_SUCCESS;
}

void shim_requests_init(void)
{
    int level = MPI_THREAD_SINGLE;
    PMPI_Query_thread(&level);
    threaded = level == MPI_THREAD_MULTIPLE;
}
static void drive_for(double seconds)
{
    for (double until = PMPI_Wtime() + seconds; atomic_load(&open) > 0 && PMPI_Wtime() < until;) {
        drive();
        shim_rest(0, true);
        shim_yield(0);
    }
}
void shim_helper_end(void)
{
    if (!helper.runs)
        return;
    pthread_mutex_lock(&helper.lock);
    helper.stops = true;
    pthread_cond_signal(&helper.more);
    pthread_mutex_unlock(&helper.lock);
    pthread_join(helper.thread, NULL);
    helper.runs = false;
}
void shim_requests_end(int rank)
{
    drive();
    if (atomic_load(&open) == 0)
        return;
    fprintf(
        stderr,
        "libgyre-mpi: MPI_Finalize: rank %d: open requests of non-blocking collectives: %d, the first one "
        "of %s: wait for each before MPI_Finalize (MPI_Wait)\n",
        rank, atomic_load(&open), shim_name(list.first->id));
    drive_for(1);
    for (const shim_op_t *o = list.first; o != NULL; o = o->next)
        GYRE(comm_abort)(o->on->gyre, "MPI_Finalize was called before a non-blocking collective had ended");
    drive_for(5);
}

/* Calls that wait test until `done`, and drive Gyre in between. */
#define UNTIL(done, test)                    \
    do {                                     \
        for (unsigned turn = 1;; turn++) {   \
            drive();                         \
            rc = test;                       \
            if ((done) || rc != MPI_SUCCESS) \
                break;                       \
            shim_yield(turn);                \
        }                                    \
    } while (0)
static bool none_alive(void)
{
    if (atomic_load_explicit(&alive, memory_order_relaxed) == 0)
        return true;
    failed.class = MPI_SUCCESS;
    return false;
}
/* What a call for one request returns. */
static int of_one(int rc)
{
    if (rc != MPI_SUCCESS || failed.class == MPI_SUCCESS)
        return rc;
    PMPI_Comm_call_errhandler(failed.comm, failed.class);
    return failed.class;
}
/* And one for several, of which the first `count` statuses are set. */
static int of_several(int rc, int count, MPI_Status *statuses)
{
    int class = rc;
    if (rc != MPI_SUCCESS)
        PMPI_Error_class(rc, &class);
    if (failed.class == MPI_SUCCESS || (class != MPI_SUCCESS && class != MPI_ERR_IN_STATUS))
        return rc;
    for (int i = 0; statuses != MPI_STATUSES_IGNORE && i < count; i++) {
        MPI_Status *s = &statuses[i];
        if (class == MPI_SUCCESS)
            s->MPI_ERROR = MPI_SUCCESS;
        /* One of query(). Another error there is that of a message, or MPI_ERR_PENDING. */
        if (s->MPI_ERROR == MPI_SUCCESS && s->MPI_TAG == MPI_UNDEFINED)
            s->MPI_ERROR = s->MPI_SOURCE;
    }
    PMPI_Comm_call_errhandler(failed.comm, failed.class);
    return class == MPI_SUCCESS ? MPI_ERR_IN_STATUS : rc;
}

int MPI_Wait(MPI_Request *request, MPI_Status *status)
{
    int flag = 0;
    int rc;
    if (none_alive())
        return REAL(Wait)(request, status);
    UNTIL(flag, REAL(Test)(request, &flag, status));
    return of_one(rc);
}
int MPI_Waitall(int count, MPI_Request *requests, MPI_Status *statuses)
{
    int flag = 0;
    int rc;
    if (none_alive() || requests == NULL)
        return REAL(Waitall)(count, requests, statuses);
    /* One by one, as in MPICH 4.0.2 MPI_Testall fails for persistent collectives. */
    bool good = true;
    for (int i = 0; i < count; i++)
        if (requests[i] != MPI_REQUEST_NULL) {
            UNTIL(flag, REAL(Request_get_status)(requests[i], &flag, MPI_STATUS_IGNORE));
            good = good && rc == MPI_SUCCESS;
        }
    /* After an error MPICH's MPI_Waitall leaves out what follows in the list, MPI_Testall does not. */
    if (good)
        rc = REAL(Waitall)(count, requests, statuses);
    else
        UNTIL(flag, REAL(Testall)(count, requests, &flag, statuses));
    return of_several(rc, count, statuses);
}
int MPI_Waitany(int count, MPI_Request *requests, int *index, MPI_Status *status)
{
    int flag = 0;
    int rc;
    if (none_alive())
        return REAL(Waitany)(count, requests, index, status);
    UNTIL(flag, REAL(Testany)(count, requests, index, &flag, status));
    return of_one(rc);
}
int MPI_Waitsome(int count, MPI_Request *requests, int *ended, int *indices, MPI_Status *statuses)
{
    int rc;
    if (none_alive())
        return REAL(Waitsome)(count, requests, ended, indices, statuses);
    UNTIL(*ended != 0, REAL(Testsome)(count, requests, ended, indices, statuses));
    return of_several(rc, *ended, statuses);
}
int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status)
{
    if (none_alive())
        return REAL(Test)(request, flag, status);
    drive();
    return of_one(REAL(Test)(request, flag, status));
}
int MPI_Testall(int count, MPI_Request *requests, int *flag, MPI_Status *statuses)
{
    if (none_alive())
        return REAL(Testall)(count, requests, flag, statuses);
    drive();
    return of_several(REAL(Testall)(count, requests, flag, statuses), count, statuses);
}
int MPI_Testany(int count, MPI_Request *requests, int *index, int *flag, MPI_Status *status)
{
    if (none_alive())
        return REAL(Testany)(count, requests, index, flag, status);
    drive();
    return of_one(REAL(Testany)(count, requests, index, flag, status));
}
int MPI_Testsome(int count, MPI_Request *requests, int *ended, int *indices, MPI_Status *statuses)
{
    if (none_alive())
        return REAL(Testsome)(count, requests, ended, indices, statuses);
    drive();
    int rc = REAL(Testsome)(count, requests, ended, indices, statuses);
    return of_several(rc, *ended, statuses);
}
int MPI_Request_get_status(MPI_Request request, int *flag, MPI_Status *status)
{
    if (!none_alive())
        drive();
    return REAL(Request_get_status)(request, flag, status); /* an error is reported where it ends */
}
/* MPI forbids it for collectives. One that is open goes on; MPICH would forget it at once. */
int MPI_Request_free(MPI_Request *request)
{
    shim_op_t *o = NULL;
    if (none_alive() || request == NULL)
        return REAL(Request_free)(request);
    if (threaded)
        pthread_mutex_lock(&list.lock);
    for (o = list.first; o != NULL && o->handle != *request;)
        o = o->next;
    if (o != NULL)
        o->left = true;
    if (threaded)
        pthread_mutex_unlock(&list.lock);
    if (o == NULL)
        return REAL(Request_free)(request);
    *request = MPI_REQUEST_NULL;
    return MPI_SUCCESS;
}
/* Fortran calls these in both MPI libraries. */
SHIM_WAITS(SHIM_ALIAS)
