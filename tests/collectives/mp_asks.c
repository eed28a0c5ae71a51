/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: 2 3 */
/* takes: 2 */
/* tests/collectives/mp_asks.c: threads that do not drive a communicator: one that only asks sees what the
 * watcher knows, with the text, and a signal handler may ask; one that aborts waits for nobody. And no rank
 * stays inside its peers' memory between two calls. */
#include "tests/support/mp.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "collectives/run/communicator.h"
#include "comm/boot/tree.h"
#include "comm/link.h"

static gyre_comm_t *world;
static int rank;

static gyre_comm_t *split(void)
{
    gyre_comm_t *comm;
    MP_OK(gyre_comm_split(world, 0, rank, &comm));
    return comm;
}

static int soon(_Atomic int *done)
{
    const base_time_t until = base_deadline(20.0);
    while (!atomic_load(done) && base_now() < until)
        usleep(1000);
    return atomic_load(done);
}

/* Rank 0 aborts. The others make no call that would look for news. */
static void *ask(void *arg)
{
    gyre_comm_t *comm = arg;
    const base_time_t until = base_deadline(20.0);
    gyre_status_t st;
    while ((st = gyre_comm_error(comm)) == GYRE_OK && base_now() < until)
        usleep(1000);
    MP_CHECK(st == GYRE_ERR_ABORTED, "the status is %s", gyre_status_string(st));
    MP_CHECK(strstr(gyre_last_error(), "enough of it") && strstr(gyre_last_error(), "rank 0"),
             "the text is \"%s\"", gyre_last_error());
    return NULL;
}

static void only_asked(void)
{
    gyre_comm_t *comm = split();
    pthread_t thread;
    if (rank == 0) {
        MP_OK(gyre_comm_abort(comm, "enough of it"));
        MP_CHECK(gyre_comm_error(comm) == GYRE_ERR_ABORTED, "%s", gyre_last_error());
        MP_CHECK(strstr(gyre_last_error(), "enough of it"), "%s", gyre_last_error());
    } else { /* first another thread, then this one, after which a call has met it */
        MP_CHECK(pthread_create(&thread, NULL, ask, comm) == 0, "no thread");
        pthread_join(thread, NULL);
        ask(comm);
        MP_CHECK(gyre_barrier(comm) == GYRE_ERR_ABORTED, "%s", gyre_last_error());
        ask(comm);
    }
    MP_OK(gyre_comm_destroy(comm));
    MP_OK(gyre_barrier(world));
    MP_CHECK(gyre_comm_error(world) == GYRE_OK, "%s", gyre_last_error());
}

static gyre_comm_t *asked;
static volatile sig_atomic_t answer;

static void handler(int number)
{
    (void)number;
    answer = (sig_atomic_t)gyre_comm_error(asked);
}

/* A signal comes while this thread looks at the watcher's news: its handler does not wait for this thread. */
static void asked_by_a_handler(void)
{
    const base_time_t until = base_deadline(20.0);
    asked = split();
    if (rank == 0) {
        MP_OK(gyre_comm_abort(asked, "enough of it"));
    } else {
        while (gyre_comm_error(asked) == GYRE_OK && base_now() < until)
            usleep(1000);
        MP_CHECK(signal(SIGUSR1, handler) != SIG_ERR, "no handler");
        answer = -1;
        boot_lock(asked->world->boot); /* as all that look do */
        MP_CHECK(raise(SIGUSR1) == 0 && answer == GYRE_OK, "the handler got %d", (int)answer);
        boot_unlock(asked->world->boot);
        MP_CHECK(raise(SIGUSR1) == 0 && answer == GYRE_ERR_ABORTED, "then it got %d", (int)answer);
        signal(SIGUSR1, SIG_DFL);
    }
    MP_OK(gyre_comm_destroy(asked));
}

typedef struct {
    gyre_comm_t *comm;
    _Atomic int aborted;
} aborter_t;

static void *abort_it(void *arg)
{
    aborter_t *a = arg;
    MP_OK(gyre_comm_abort(a->comm, "from the second thread"));
    atomic_store(&a->aborted, 1);
    return NULL;
}

/* The thread that drives is busy, in a copy perhaps: the one that aborts does not wait for it. */
static void aborted_while_driven(void)
{
    aborter_t a = {.comm = split()};
    pthread_t thread;
    gyre_request_t *request = NULL;
    float x = 1, sum;
    MP_OK(gyre_barrier(a.comm));
    MP_OK(gyre_barrier(world)); /* no rank is in that barrier any more */
    if (rank == 0) {
        MP_OK(gyre_iall_reduce(&x, &sum, 1, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), a.comm, &request));
        coll_drive(a.comm);
        MP_CHECK(pthread_create(&thread, NULL, abort_it, &a) == 0, "no thread");
        MP_CHECK(soon(&a.aborted), "it waits for the thread that drives");
        coll_stop_driving(a.comm);
        pthread_join(thread, NULL);
        MP_CHECK(gyre_wait(&request) == GYRE_ERR_ABORTED, "the request did not end with it");
        MP_CHECK(strstr(gyre_last_error(), "from the second thread"), "%s", gyre_last_error());
    } else {
        while (gyre_comm_error(a.comm) == GYRE_OK)
            usleep(1000);
    }
    MP_OK(gyre_comm_destroy(a.comm));
    MP_OK(gyre_barrier(world));
}

/* A blocked call of any length ends: on each side of the sleep. */
static void aborted_while_blocked(size_t count)
{
    aborter_t a = {.comm = split()};
    pthread_t thread;
    float *x = calloc(count, sizeof *x);
    MP_CHECK(x, "no memory");
    if (rank == 0) {
        MP_CHECK(pthread_create(&thread, NULL, abort_it, &a) == 0, "no thread");
        const gyre_status_t st =
            gyre_all_reduce(x, x, count, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), a.comm); /* nobody comes */
        MP_CHECK(st == GYRE_ERR_ABORTED, "%s: %s", gyre_status_string(st), gyre_last_error());
        pthread_join(thread, NULL);
    }
    free(x);
    MP_OK(gyre_comm_destroy(a.comm));
    MP_OK(gyre_barrier(world));
}

/* A call that was checked before the abort and comes after it ends those before it: their memory is the
 * program's again when they are done, so it is closed to peers by then. */
static void aborted_in_a_group(void)
{
    gyre_comm_t *comm = split();
    float x = 1, y = 1, sum[2];
    gyre_request_t *first, *second;
    MP_OK(gyre_barrier(comm));
    MP_OK(gyre_barrier(world)); /* all have left the other one */
    if (rank == 0) {
        MP_OK(gyre_iall_reduce(&x, &sum[0], 1, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), comm, &first));
        MP_OK(gyre_group_start());
        MP_OK(gyre_iall_reduce(&y, &sum[1], 1, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), comm, &second));
        MP_OK(gyre_comm_abort(comm, "enough of it"));
        MP_OK(gyre_group_end());
        MP_CHECK(gyre_wait(&first) == GYRE_ERR_ABORTED, "%s", gyre_last_error());
        MP_CHECK(atomic_load(&comm->group->board->closed), "its memory is still open");
        MP_CHECK(gyre_wait(&second) == GYRE_ERR_ABORTED, "%s", gyre_last_error());
    }
    MP_OK(gyre_comm_destroy(comm));
    MP_OK(gyre_barrier(world));
}

enum { MANY = 4 << 20 };

static void outside_between_calls(void)
{
    gyre_comm_t *comm = split();
    float *in = malloc(MANY * sizeof *in), *out = malloc(MANY * sizeof *out);
    gyre_request_t *request;
    gyre_status_t st;
    int calls = 0;
    gyre_options_t shared = GYRE_OPTIONS_INITIALIZER; /* the one in which a rank stands in peers' memory */
    shared.algorithm = "all_reduce:shared";
    MP_OK(gyre_comm_set(comm, &shared));
    MP_CHECK(in && out, "no memory");
    for (size_t i = 0; i < MANY; i++)
        in[i] = (float)rank;
    MP_OK(gyre_iall_reduce(in, out, MANY, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), comm, &request));
    for (; (st = gyre_test(&request)) == GYRE_IN_PROGRESS; calls++)
        MP_CHECK(!atomic_load(&comm->group->board->inside), "rank %d is inside after call %d", rank, calls);
    MP_OK(st);
    const int n = gyre_comm_size(comm);
    MP_CHECK(out[0] == (float)(n * (n - 1) / 2) && out[MANY - 1] == out[0], "%g", (double)out[0]);
    MP_CHECK(calls > 0, "it took one call: too short to show anything");
    free(in);
    free(out);
    MP_OK(gyre_comm_destroy(comm));
}

int main(void)
{
    setenv("GYRE_LOG", "none", 1); /* the errors are wanted */
    MP_OK(gyre_init(NULL, &world));
    rank = gyre_comm_rank(world);
    only_asked();
    asked_by_a_handler();
    aborted_while_driven();
    aborted_while_blocked(1);
    aborted_while_blocked(1 << 20);
    aborted_in_a_group();
    outside_between_calls();
    MP_OK(gyre_finalize(world));
    return 0;
}
