/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: 2 4 */
/* tests/collectives/mp_sleepers.c: ranks that wait for one that computes. They sleep many times, but
 * interrupt it by a fence in all processes only a few times. That holds for sleeps in poll(2), too, as with a
 * network between hosts: a fake one here, on which nothing ever arrives. TEST_LONG=1 prints what rank 0 loses
 * while the others wait. */
#include "tests/support/mp.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/order.h"
#include "collectives/run/communicator.h"
#include "comm/link.h"

enum { SLEEPS = 10, FENCES = 2 }; /* for each rank: each rings the others for a barrier */
enum { PAIRS = 61, SLICE_MS = 30 };

static int rank, ranks;

static void quiet(comm_group_t *group)
{
    (void)group;
}

static int sleep_on(comm_group_t *group, struct pollfd *polls)
{
    (void)group;
    polls[0] = (struct pollfd){.fd = -1};
    return 1;
}

static const comm_transport_ops_t network = {.name = "fake", .progress = quiet, .sleep_on = sleep_on};

/* As if some ranks were on another host. */
static void join_network(comm_group_t *group)
{
    group->network = &network;
    group->network_state = group;
    group->bell_fd = comm_bell_open(group->bell);
    MP_CHECK(group->bell_fd >= 0, "no socket");
}

static void leave_network(comm_group_t *group)
{
    group->network_state = NULL;
    group->network = NULL;
}

static uint64_t sleeps_of(gyre_comm_t *comm)
{
    gyre_comm_stats_t stats = {.size = sizeof stats};

    MP_OK(gyre_comm_stats(comm, &stats));
    return stats.sleeps;
}

/* Steps of work in `ms` milliseconds of this thread's own time on a core. */
static double compute(int ms)
{
    double until = mp_cpu_seconds() + 1e-3 * ms, steps = 0;
    volatile uint64_t x = 1;

    while (mp_cpu_seconds() < until) {
        for (int i = 0; i < 1000; i++)
            x = x * 6364136223846793005u + 1;
        steps++;
    }
    return steps;
}

/* Rank 0 computes until the others have slept often in one wait. */
static void count_fences(gyre_comm_t *comm)
{
    for (int ms = 200, often = 0; !often; ms *= 2) {
        comm_group_stats_t before, after;
        uint64_t slept = sleeps_of(comm), fences;
        int64_t mine = INT64_MAX, least = 0;
        comm_group_stats(comm->group, &before);
        if (rank == 0)
            compute(ms);
        MP_OK(gyre_barrier(comm));
        comm_group_stats(comm->group, &after);
        fences = after.fences - before.fences;
        if (rank > 0)
            mine = (int64_t)(sleeps_of(comm) - slept);
        MP_CHECK(rank == 0 || fences <= (uint64_t)(FENCES * ranks), "%llu fences for %lld sleeps",
                 (unsigned long long)fences, (long long)mine);
        MP_OK(gyre_all_reduce(&mine, &least, 1, GYRE_INT64, GYRE_OP(GYRE_MIN), comm));
        often = least >= SLEEPS * ranks;
    }
}

/* What computing loses if the others wait for it, instead of doing nothing at all. Steps are counted for each
 * second that the thread has a core; pairs of short slices, and the middle one of what they show, leave out
 * what other programs do to the caches meanwhile. */
static void print_loss(gyre_comm_t *comm, const char *name)
{
    double steps[2] = {0, 0}, loss[PAIRS];

    for (int i = 0; i < 2 * PAIRS; i++) {
        const int wait = i % 2 ^ i / 2 % 2; /* each comes first as often as the other */
        if (rank == 0) {
            steps[wait] = compute(SLICE_MS);
            loss[i / 2] = 100 * (1 - steps[1] / steps[0]);
        } else if (!wait) {
            usleep(3 * SLICE_MS * 1000);
        }
        MP_OK(gyre_barrier(comm));
    }
    if (rank == 0) {
        qsort(loss, PAIRS, sizeof *loss, base_order_double);
        printf(
            "%s: %d ranks wait, rank 0 loses %.2f %% of its speed (half of %d pairs of slices: %.2f to %.2f "
            "%%)\n",
            name, ranks - 1, loss[PAIRS / 2], PAIRS, loss[PAIRS / 4], loss[3 * PAIRS / 4]);
    }
}

int main(void)
{
    gyre_comm_t *world;

    setenv("GYRE_SPIN", "1", 1);
    MP_OK(gyre_init(NULL, &world));
    rank = gyre_comm_rank(world);
    ranks = gyre_comm_size(world);
    if (getenv("TEST_LONG"))
        print_loss(world, "shared memory");
    join_network(world->group);
    count_fences(world);
    if (getenv("TEST_LONG"))
        print_loss(world, "network and shared memory");
    leave_network(world->group);
    MP_OK(gyre_finalize(world));
    return 0;
}
