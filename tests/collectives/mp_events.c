/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: 1 2 3, over UCX: 2 */
/* tests/collectives/mp_events.c: gyre_comm_fd and gyre_comm_arm: a loop in poll(2) ends every operation. It
 * sleeps while nothing comes, and no wake-up is lost: without the timer that bounds the harm, too. */
#include "tests/support/mp.h"

#include <poll.h>
#include <time.h>

#include "collectives/run/communicator.h"

enum { ROUNDS = 300, LATE_MS = 200 };

static int n, rank, sleeps;
static gyre_comm_t *world;

static int ready(int fd, int ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, ms) > 0;
}

/* gyre_wait, by an event loop. */
static gyre_status_t loop(gyre_comm_t *comm, int fd, gyre_request_t **request)
{
    gyre_status_t st;
    while ((st = gyre_test(request)) == GYRE_IN_PROGRESS)
        if (gyre_comm_arm(comm) == GYRE_OK) {
            MP_CHECK(ready(fd, 20000), "nothing comes for 20 s");
            sleeps++;
        }
    return st;
}

static gyre_comm_t *split(int *fd)
{
    gyre_comm_t *comm;
    int again = -1;
    MP_OK(gyre_comm_split(world, 0, rank, &comm));
    MP_CHECK(gyre_comm_arm(comm) == GYRE_ERR_INVALID, "there is no descriptor");
    MP_CHECK(gyre_comm_fd(comm, NULL) == GYRE_ERR_INVALID, "fd is NULL");
    MP_OK(gyre_comm_fd(comm, fd));
    MP_OK(gyre_comm_fd(comm, &again));
    MP_CHECK(*fd >= 0 && again == *fd, "%d %d", *fd, again);
    MP_OK(gyre_barrier(world));
    return comm;
}

/* Short and long operations, one after the other. timer 0: without it. */
static void rounds(int timer)
{
    enum { LONG = 20000 };
    static int64_t in[LONG], out[LONG];
    int fd;
    gyre_comm_t *comm = split(&fd);
    gyre_request_t *r;
    comm->event->untimed = !timer;
    for (int i = 0; i < ROUNDS; i++) {
        const size_t count = i % 50 == 0 ? LONG : 1;
        in[0] = in[count - 1] = rank + i;
        if ((i + rank) % 7 == 0)
            mp_nap(1);
        MP_OK(gyre_iall_reduce(in, out, count, GYRE_INT64, GYRE_OP(GYRE_SUM), comm, &r));
        MP_OK(loop(comm, fd, &r));
        MP_CHECK(out[count - 1] == n * (n - 1) / 2 + (int64_t)n * i, "%lld", (long long)out[count - 1]);
    }
    MP_OK(gyre_comm_destroy(comm));
}

/* The others come late; a wait by gyre_wait in between does no harm. */
static void late(void)
{
    int fd;
    gyre_comm_t *comm = split(&fd);
    gyre_request_t *r;
    struct timespec cpu, then;
    for (int i = 0; i < 2; i++) {
        if (rank > 0)
            mp_nap(LATE_MS);
        MP_OK(gyre_ibarrier(comm, &r));
        sleeps = 0;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
        MP_OK(loop(comm, fd, &r));
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &then);
        const double used = (double)(then.tv_sec - cpu.tv_sec) + 1e-9 * (double)(then.tv_nsec - cpu.tv_nsec);
        MP_CHECK(rank > 0 || n == 1 || (sleeps > 0 && used < LATE_MS * 1e-3 / 2), "%d sleeps, %g s", sleeps,
                 used);
        MP_OK(gyre_barrier(comm));
        MP_OK(gyre_ibarrier(comm, &r));
        MP_OK(gyre_wait(&r));
    }
    MP_OK(gyre_comm_destroy(comm));
}

/* With nothing under way it is quiet, until the communicator fails. */
static void fails(void)
{
    int fd;
    gyre_comm_t *comm = split(&fd);
    gyre_status_t st;
    int quiet = 0;
    for (int turn = 0; turn < 100 && !quiet; turn++) /* a network has messages of its own */
        quiet = gyre_comm_arm(comm) == GYRE_OK && !ready(fd, 60);
    MP_CHECK(quiet, "nothing is under way");
    MP_OK(gyre_barrier(world));
    if (rank == 0)
        MP_OK(gyre_comm_abort(comm, "enough"));
    while ((st = gyre_comm_arm(comm)) == GYRE_OK || st == GYRE_IN_PROGRESS)
        MP_CHECK(st == GYRE_IN_PROGRESS || ready(fd, 20000), "it has failed");
    MP_CHECK(st == GYRE_ERR_ABORTED, "%s", gyre_last_error());
    MP_OK(gyre_barrier(world));
    MP_OK(gyre_comm_destroy(comm));
    MP_CHECK(gyre_comm_fd(comm, &fd) == GYRE_ERR_INVALID, "it has ended");
    MP_CHECK(gyre_comm_arm(comm) == GYRE_ERR_INVALID, "it has ended");
}

int main(int argc, char **argv)
{
    gyre_config_t config = GYRE_CONFIG_INITIALIZER;
    (void)argc, (void)argv;
    for (config.progress_thread = 0; config.progress_thread < 2; config.progress_thread++) {
        MP_OK(gyre_init(&config, &world));
        n = gyre_comm_size(world);
        rank = gyre_comm_rank(world);
        rounds(1);
        rounds(0);
        late();
        fails();
        MP_OK(gyre_finalize(world));
    }
    return 0;
}
