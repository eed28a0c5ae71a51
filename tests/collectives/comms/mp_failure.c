/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: 1 2 3, over UCX: 2 */
/* tests/collectives/comms/mp_failure.c: gyre_comm_on_failure: the function is called once, with status and
 * text, whatever the thread that learns of the failure is doing; and never for a communicator that was
 * ended. */
#include "tests/support/mp.h"

#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int n, rank;
static gyre_comm_t *world;

typedef struct {
    _Atomic int calls;
    gyre_comm_t *comm;
    gyre_status_t status, asked;
    int rank;
    char text[512];
} heard_t;

static void note(gyre_comm_t *comm, gyre_status_t status, void *user)
{
    heard_t *h = user;
    h->comm = comm;
    h->status = status;
    h->rank = gyre_comm_rank(comm);
    snprintf(h->text, sizeof h->text, "%s", gyre_last_error());
    h->asked = gyre_comm_error(comm);
    atomic_fetch_add(&h->calls, 1);
}

/* Without a call of Gyre. */
static void await(heard_t *h)
{
    const struct timespec pause = {.tv_nsec = 1000 * 1000};
    for (int ms = 0; ms < 20000 && !atomic_load(&h->calls); ms++)
        nanosleep(&pause, NULL);
}

static void check(const heard_t *h, const gyre_comm_t *comm, gyre_status_t status, const char *text)
{
    MP_CHECK(atomic_load(&h->calls) == 1, "%d calls", atomic_load(&h->calls));
    MP_CHECK(h->comm == comm && h->rank == rank, "rank %d", h->rank);
    MP_CHECK(h->status == status && h->asked == status, "%s", gyre_status_string(h->status));
    MP_CHECK(strstr(h->text, text), "%s", h->text);
}

static gyre_comm_t *split(heard_t *h)
{
    gyre_comm_t *comm;
    memset(h, 0, sizeof *h);
    MP_OK(gyre_comm_split(world, 0, rank, &comm));
    MP_OK(gyre_comm_on_failure(comm, note, h));
    MP_OK(gyre_barrier(comm));
    MP_CHECK(atomic_load(&h->calls) == 0, "nothing has failed");
    MP_OK(gyre_barrier(world));
    return comm;
}

/* Rank 0 aborts; the others are in no call of Gyre, or with `waits` in one on that communicator. */
static void aborted(int waits)
{
    heard_t h, late = {0};
    gyre_comm_t *comm = split(&h);
    gyre_request_t *r = NULL;
    if (rank == 0)
        MP_OK(gyre_comm_abort(comm, "no more"));
    else if (waits)
        MP_CHECK(gyre_barrier(comm) == GYRE_ERR_ABORTED, "%s", gyre_last_error());
    else
        await(&h);
    check(&h, comm, GYRE_ERR_ABORTED, "no more");
    MP_CHECK(gyre_barrier(comm) == GYRE_ERR_ABORTED, "%s", gyre_last_error());
    MP_CHECK(gyre_ibarrier(comm, &r) == GYRE_ERR_ABORTED, "%s", gyre_last_error());
    MP_OK(gyre_comm_on_failure(comm, note, &late)); /* it has failed: at once */
    check(&late, comm, GYRE_ERR_ABORTED, "no more");
    MP_OK(gyre_barrier(world));
    MP_OK(gyre_comm_destroy(comm));
    check(&h, comm, GYRE_ERR_ABORTED, "no more");
    MP_CHECK(gyre_comm_on_failure(comm, note, &h) == GYRE_ERR_INVALID, "it has ended");
}

/* A disagreement is met by the calls themselves. */
static void disagreed(void)
{
    heard_t h;
    gyre_comm_t *comm = split(&h);
    int64_t x[5] = {0}, y[5];
    const size_t count = rank == 0 ? 4 : 5;
    gyre_status_t st = gyre_all_reduce(x, y, count, GYRE_INT64, GYRE_OP(GYRE_SUM), comm);
    MP_CHECK(st == GYRE_ERR_MISMATCH, "%s", gyre_status_string(st));
    check(&h, comm, GYRE_ERR_MISMATCH, "count 4");
    MP_OK(gyre_barrier(world));
    MP_OK(gyre_comm_destroy(comm));
}

/* Taken back, replaced, ended. */
static void not_called(void)
{
    heard_t h, other = {0};
    gyre_comm_t *comm = split(&h);
    MP_OK(gyre_comm_on_failure(comm, note, &other));
    MP_OK(gyre_comm_on_failure(comm, NULL, NULL));
    MP_OK(gyre_barrier(world));
    MP_OK(gyre_comm_abort(comm, "nobody listens"));
    MP_CHECK(gyre_barrier(comm) == GYRE_ERR_ABORTED, "%s", gyre_last_error());
    MP_OK(gyre_barrier(world));
    MP_OK(gyre_comm_destroy(comm));
    MP_CHECK(atomic_load(&h.calls) == 0 && atomic_load(&other.calls) == 0, "it was taken back");
    comm = split(&h);
    MP_OK(gyre_comm_destroy(comm));
    MP_CHECK(atomic_load(&h.calls) == 0, "the end is no failure");
    MP_CHECK(gyre_comm_on_failure(NULL, note, &h) == GYRE_ERR_INVALID, "no communicator");
}

int main(void)
{
    heard_t ends = {0};
    MP_OK(gyre_init(NULL, &world));
    n = gyre_comm_size(world);
    rank = gyre_comm_rank(world);
    MP_OK(gyre_comm_on_failure(world, note, &ends));
    aborted(0);
    aborted(1);
    if (n > 1)
        disagreed();
    not_called();
    MP_OK(gyre_finalize(world));
    MP_CHECK(atomic_load(&ends.calls) == 0, "%s", ends.text);
    return 0;
}
