/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: 2 */
/* tests/collectives/mp_turns.c: a group's transport is used by one thread at a time, also by threads that
 * wait while others drive the same communicator. The transport is a fake one, which counts the calls that
 * meet another call. The messages themselves go through shared memory. */
#include "tests/support/mp.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "collectives/run/communicator.h"
#include "comm/link.h"

enum { ROUNDS = 30, COMMS = 2, LATE_MS = 4, LATEST_MS = 256 };

typedef struct {
    _Atomic int inside, clashes;
    long calls, arms, sleeps; /* not atomic: ThreadSanitizer sees calls at the same time, too */
} fake_t;

static int rank;

static void call(comm_group_t *group, long offset)
{
    fake_t *fake = group->network_state;

    if (atomic_fetch_add_explicit(&fake->inside, 1, memory_order_relaxed) != 0)
        atomic_fetch_add_explicit(&fake->clashes, 1, memory_order_relaxed);
    fake->calls++;
    fake->arms += offset == 1;
    fake->sleeps += offset == 2;
    /* Another thread may come. Rarely in progress: on cores that others use, too, a waiting thread would not
     * get through the turns after which it sleeps. */
    for (int i = 0; i < 3 && (offset > 0 || fake->calls % 64 == 0); i++)
        sched_yield();
    atomic_fetch_sub_explicit(&fake->inside, 1, memory_order_relaxed);
}

static void fake_progress(comm_group_t *group)
{
    call(group, 0);
}

static void fake_arm(comm_group_t *group)
{
    call(group, 1);
}

static int fake_sleep_on(comm_group_t *group, struct pollfd *polls)
{
    call(group, 2);
    polls[0] = (struct pollfd){.fd = -1};
    return 1;
}

static const comm_transport_ops_t fake_ops = {
    .name = "fake", .progress = fake_progress, .arm = fake_arm, .sleep_on = fake_sleep_on};
static gyre_comm_t *comms[COMMS];
static fake_t fakes[COMMS];

/* The progress thread may still have a look at the communicator. */
static void use_network(gyre_comm_t *comm, const comm_transport_ops_t *ops, fake_t *fake)
{
    coll_drive(comm);
    comm->group->network = ops;
    comm->group->network_state = fake;
    comm->group->yields.sleeps = INT32_MAX; /* it sleeps at once, even with more ranks than cores */
    coll_stop_driving(comm);
}

static int late_ms;

/* One message each way and round, between ranks 0 and 1; its sender is late, so its receiver sleeps. */
static void *messages(void *arg)
{
    gyre_comm_t *comm = arg;

    for (int round = 0; rank < 2 && round < ROUNDS; round++) {
        int sent = 100 * round, got = -1;
        gyre_request_t *r;
        if ((round + rank) % 2 == 0) {
            mp_nap(late_ms);
            MP_OK(gyre_isend(&sent, 1, GYRE_INT32, 1 - rank, comm, &r));
        } else {
            MP_OK(gyre_irecv(&got, 1, GYRE_INT32, 1 - rank, comm, &r));
        }
        MP_OK(gyre_wait(&r));
        MP_CHECK((round + rank) % 2 == 0 || got == sent, "round %d: %d", round, got);
    }
    return NULL;
}

int main(void)
{
    gyre_comm_t *world;
    pthread_t threads[COMMS];

    setenv("GYRE_PROGRESS_THREAD", "1", 1);
    setenv("GYRE_SPIN", "1", 1);
    MP_OK(gyre_init(NULL, &world));
    rank = gyre_comm_rank(world);
    for (int i = 0; i < COMMS; i++) {
        MP_OK(gyre_comm_split(world, 0, rank, &comms[i]));
        use_network(comms[i], &fake_ops, &fakes[i]);
    }
    /* Where other programs take the cores, messages come before anybody waits for them: they come later,
     * then. */
    int all_waited = 0;
    for (late_ms = LATE_MS; late_ms <= LATEST_MS && !all_waited; late_ms *= 4) {
        for (int i = 0; i < COMMS; i++)
            MP_CHECK(pthread_create(&threads[i], NULL, messages, comms[i]) == 0, "no thread");
        for (int i = 0; i < COMMS; i++)
            pthread_join(threads[i], NULL);
        long arms = 0, sleeps = 0;
        for (int i = 0; i < COMMS; i++) {
            coll_drive(comms[i]); /* the progress thread writes them while it drives */
            arms += fakes[i].arms;
            sleeps += fakes[i].sleeps;
            coll_stop_driving(comms[i]);
        }
        const int waited = rank > 1 || (arms > 0 && sleeps > 0);
        MP_OK(gyre_all_reduce(&waited, &all_waited, 1, GYRE_INT32, GYRE_OP(GYRE_MIN), world));
    }
    MP_CHECK(all_waited, "nobody waited");
    MP_OK(gyre_barrier(world));
    for (int i = 0; i < COMMS; i++) {
        use_network(comms[i], NULL, NULL);
        MP_CHECK(fakes[i].clashes == 0, "%d of %ld calls met another", fakes[i].clashes, fakes[i].calls);
        MP_OK(gyre_comm_destroy(comms[i]));
    }
    MP_OK(gyre_finalize(world));
    return 0;
}
