/* SPDX-License-Identifier: Apache-2.0 */
/* tests/collectives/comms/mp_create.c: communicators made of another one: gyre_comm_dup,
 * gyre_comm_split_type, gyre_comm_create_group; their errors, after which the parent still works.
 * ranks: 1 3 5
 * over UCX: 3 */
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "collectives/run/communicator.h"
#include "tests/collectives/comms/members.h"
#include "topo/topo.h"

static void duplicates(void)
{
    int all[64], mine = rank, theirs[64];
    gyre_comm_t *a, *b;
    gyre_request_t *first, *second;
    for (int i = 0; i < n; i++)
        all[i] = i;
    MP_OK(gyre_comm_dup(world, &a));
    MP_CHECK(a->options.order == world->options.order, "%d", (int)a->options.order);
    gyre_options_t options = GYRE_OPTIONS_INITIALIZER;
    options.order = GYRE_ORDER_FAST;
    MP_OK(gyre_comm_set(a, &options));
    MP_OK(gyre_comm_dup(a, &b));
    MP_CHECK(b->options.order == GYRE_ORDER_FAST, "%d", (int)b->options.order);
    /* the traffic is apart: operations of the two in different orders */
    if (rank % 2)
        MP_OK(gyre_iall_gather(&mine, theirs, 1, GYRE_INT32, a, &first));
    MP_OK(gyre_ibarrier(b, &second));
    if (rank % 2 == 0)
        MP_OK(gyre_iall_gather(&mine, theirs, 1, GYRE_INT32, a, &first));
    MP_OK(gyre_wait(&second));
    MP_OK(gyre_wait(&first));
    is_of(a, all, n);
    MP_OK(gyre_comm_destroy(a));
    is_of(b, all, n);
    MP_OK(gyre_comm_destroy(b));
    MP_EXPECT(gyre_comm_dup(world, NULL), GYRE_ERR_INVALID, "gyre_comm_dup: out is NULL");
    MP_EXPECT(gyre_comm_dup(NULL, &a), GYRE_ERR_INVALID, "gyre_comm_dup: comm is NULL");
    MP_OK(gyre_group_start());
    MP_EXPECT(gyre_comm_dup(world, &a), GYRE_ERR_INVALID, "gyre_comm_dup cannot be part of a group");
    MP_OK(gyre_group_end());
    if (n > 1) {
        a = world;
        gyre_status_t st = rank == n - 1 ? gyre_comm_split(world, 0, 0, &a) : gyre_comm_dup(world, &a);
        MP_EXPECT(st, GYRE_ERR_MISMATCH, "rank 0 called gyre_comm_dup and rank");
        MP_CHECK(a == world, "out was set");
    }
    world_works();
}

static void by_host(void)
{
    int all[64];
    gyre_comm_t *comm;
    for (int i = 0; i < n; i++)
        all[i] = n - 1 - i;
    MP_OK(gyre_comm_split_type(world, GYRE_SPLIT_HOST, -rank, &comm));
    is_of(comm, all, n);
    MP_OK(gyre_comm_destroy(comm));
    MP_EXPECT(gyre_comm_split_type(world, (gyre_split_t)3, 0, &comm), GYRE_ERR_INVALID,
              "3 is not a kind of place");
    if (n > 1)
        MP_EXPECT(gyre_comm_split_type(world, rank ? GYRE_SPLIT_NUMA : GYRE_SPLIT_HOST, 0, &comm),
                  GYRE_ERR_MISMATCH, "rank 0 called it with GYRE_SPLIT_HOST and rank 1 with GYRE_SPLIT_NUMA");
    world_works();
}

/* A machine of two NUMA nodes, processors 0 and 1, for all of Gyre: the linker takes this function. */
int topo_own_nodes(uint64_t nodes[TOPO_SETS])
{
    cpu_set_t mine;
    memset(nodes, 0, TOPO_SETS * sizeof *nodes);
    CPU_ZERO(&mine);
    if (sched_getaffinity(0, sizeof mine, &mine) == 0)
        nodes[0] = (CPU_ISSET(0, &mine) ? 1u : 0u) | (CPU_ISSET(1, &mine) ? 2u : 0u);
    return nodes[0] == 3 ? 2 : nodes[0] != 0;
}

/* Rank 0 is bound to neither, the odd ranks to the second. */
static void by_node(void)
{
    cpu_set_t before, mine;
    int like[64] = {0}, count = 0;
    gyre_comm_t *comm;
    const int bound = rank > 0;
    MP_CHECK(sched_getaffinity(0, sizeof before, &before) == 0, "no affinity");
    CPU_ZERO(&mine);
    CPU_SET(0, &mine);
    CPU_SET(1, &mine);
    int both = sched_setaffinity(0, sizeof mine, &mine) == 0; /* also where ucx-run has bound this rank */
    both = both && sched_getaffinity(0, sizeof mine, &mine) == 0 && CPU_COUNT(&mine) == 2;
    int all_have[64];
    MP_OK(gyre_all_gather(&both, all_have, 1, GYRE_INT32, world));
    for (int r = 0; r < n; r++)
        both &= all_have[r];
    if (!both && rank == 0)
        printf("not all ranks may run on processors 0 and 1: no test of NUMA nodes\n");
    if (!both) {
        MP_CHECK(sched_setaffinity(0, sizeof before, &before) == 0, "cannot unbind");
        return;
    }
    if (bound)
        CPU_CLR(rank % 2 ? 0 : 1, &mine);
    MP_CHECK(sched_setaffinity(0, sizeof mine, &mine) == 0, "cannot bind");
    for (int r = 0; r < n; r++)
        if ((r > 0) == bound && (!bound || r % 2 == rank % 2))
            like[count++] = r;
    MP_OK(gyre_comm_split_type(world, GYRE_SPLIT_NUMA, 0, &comm));
    is_of(comm, like, count);
    for (int i = 0; i < count; i++) { /* and gyre_comm_place says the same */
        gyre_place_t place = {.size = sizeof place};
        MP_OK(gyre_comm_place(comm, i, &place));
        MP_CHECK(place.numa == (bound ? rank % 2 : -1), "node %d", place.numa);
    }
    MP_OK(gyre_comm_destroy(comm));
    MP_CHECK(sched_setaffinity(0, sizeof before, &before) == 0, "cannot unbind");
}

static void by_device(void)
{
    gyre_comm_t *comm = NULL;
    gyre_status_t st = gyre_comm_split_type(world, GYRE_SPLIT_DEVICE, 0, &comm);
    if (st != GYRE_OK) {
        MP_EXPECT(st, GYRE_ERR_UNSUPPORTED,
                  "gyre_comm_split_type(GYRE_SPLIT_DEVICE): current device: no CUDA device");
    } else { /* all have the same current device here, the first */
        MP_CHECK(gyre_comm_size(comm) == n, "%d", gyre_comm_size(comm));
        MP_OK(gyre_comm_destroy(comm));
    }
    world_works();
}

/* The last rank, then the first: the others do not call anything. */
static void some(void)
{
    const int list[2] = {n - 1, 0};
    const int count = n > 1 ? 2 : 1;
    gyre_comm_t *comm;
    if (rank == 0 || rank == n - 1) {
        MP_OK(gyre_comm_create_group(world, list, count, 7, &comm));
        is_of(comm, list, count);
        if (count == 2) { /* and a group of the group */
            gyre_comm_t *one;
            const int self = gyre_comm_rank(comm);
            MP_OK(gyre_comm_create_group(comm, &self, 1, 7, &one));
            is_of(one, &rank, 1);
            MP_OK(gyre_comm_destroy(one));
        }
        MP_OK(gyre_comm_destroy(comm));
    }
    world_works();
}

/* Rank r is in {r, r + 1} and {r - 1, r}: both at once, in two threads. */
static void *in_ring(void *user)
{
    const int first = (int)(intptr_t)user, list[2] = {first, (first + 1) % n};
    gyre_comm_t *comm;
    MP_OK(gyre_comm_create_group(world, list, 2, (uint64_t)first, &comm));
    is_of(comm, list, 2);
    MP_OK(gyre_comm_destroy(comm));
    return NULL;
}

static void overlapping(void)
{
    pthread_t thread;
    if (n < 3)
        return;
    MP_CHECK(pthread_create(&thread, NULL, in_ring, (void *)(intptr_t)rank) == 0, "no thread");
    (void)in_ring((void *)(intptr_t)((rank + n - 1) % n));
    MP_CHECK(pthread_join(thread, NULL) == 0, "no end");
    world_works();
}

/* Rank 0's collective of the parent waits for the last rank, which makes a communicator with rank 0 first. */
static void *in_barrier(void *unused)
{
    (void)unused;
    MP_OK(gyre_barrier(world));
    return NULL;
}

static void beside_a_collective(void)
{
    pthread_t thread;
    const int list[2] = {0, n - 1};
    gyre_comm_t *comm;
    if (n == 1)
        return;
    if (rank == 0)
        MP_CHECK(pthread_create(&thread, NULL, in_barrier, NULL) == 0, "no thread");
    if (rank == 0 || rank == n - 1) {
        MP_OK(gyre_comm_create_group(world, list, 2, 30, &comm));
        is_of(comm, list, 2);
        MP_OK(gyre_comm_destroy(comm));
    }
    if (rank == 0)
        MP_CHECK(pthread_join(thread, NULL) == 0, "no end");
    else
        MP_OK(gyre_barrier(world));
    world_works();
}

/* One tag again and again, for lists that differ: who is ahead does not disturb the others. */
static void one_tag(void)
{
    const int all[5] = {0, 1, 2, 3, 4}, pair[2] = {0, 1};
    gyre_comm_t *comm;
    for (int i = 0; i < 15 && n > 2; i++) {
        const int small = i % 3 != 1;
        if (small && rank > 1)
            continue;
        MP_OK(gyre_comm_create_group(world, small ? pair : all, small ? 2 : n, 9, &comm));
        MP_CHECK(gyre_comm_rank(comm) == rank, "%d", gyre_comm_rank(comm));
        MP_OK(gyre_comm_destroy(comm));
    }
    world_works();
}

static void refused(void)
{
    const int twice[2] = {0, 0}, outside[1] = {n}, other[1] = {(rank + 1) % n};
    gyre_comm_t *comm = world;
    MP_EXPECT(gyre_comm_create_group(world, NULL, 1, 0, &comm), GYRE_ERR_INVALID, "ranks is NULL");
    MP_EXPECT(gyre_comm_create_group(world, &rank, 0, 0, &comm), GYRE_ERR_INVALID, "nranks is 0");
    MP_EXPECT(gyre_comm_create_group(world, &rank, n + 1, 0, &comm), GYRE_ERR_INVALID, "nranks is");
    MP_EXPECT(gyre_comm_create_group(world, outside, 1, 0, &comm), GYRE_ERR_INVALID, "ranks[0] is");
    MP_EXPECT(gyre_comm_create_group(world, &rank, 1, 0, NULL), GYRE_ERR_INVALID, "out is NULL");
    if (n > 1) {
        MP_EXPECT(gyre_comm_create_group(world, twice, 2, 0, &comm), GYRE_ERR_INVALID,
                  "rank 0 is in the list twice");
        MP_EXPECT(gyre_comm_create_group(world, other, 1, 0, &comm), GYRE_ERR_INVALID, "not in the list");
    }
    MP_CHECK(comm == world, "out was set");
}

static void lists_differ(void)
{
    int rotated[64], all[64];
    gyre_comm_t *comm = world;
    if (n == 1)
        return;
    for (int i = 0; i < n; i++) {
        rotated[i] = (i + rank) % n;
        all[i] = i;
    }
    MP_EXPECT(gyre_comm_create_group(world, rotated, n, 20, &comm), GYRE_ERR_MISMATCH,
              "gyre_comm_create_group (tag 20): called by rank");
    MP_CHECK(strstr(gyre_last_error(), "0, 1") && strstr(gyre_last_error(), n > 2 ? "1, 2" : "1, 0"), "%s",
             gyre_last_error());
    MP_EXPECT(gyre_comm_create_group(world, all, n, 20, &comm), GYRE_ERR_INVALID, "take another tag");
    /* the others have done without rank 0, which waits for them all the same */
    if (n > 2 && rank > 0) {
        MP_OK(gyre_comm_create_group(world, all + 1, n - 1, 21, &comm));
        is_of(comm, all + 1, n - 1);
        MP_OK(gyre_comm_destroy(comm));
    }
    MP_OK(gyre_barrier(world));
    if (n > 2 && rank == 0) {
        const double before = world->timeout_s;
        world->timeout_s = 0.3;
        MP_EXPECT(gyre_comm_create_group(world, all, n, 21, &comm), GYRE_ERR_TIMEOUT,
                  "in vain for rank 1, 2");
        world->timeout_s = before;
    }
    MP_CHECK(rank > 0 || comm == world, "out was set");
    MP_OK(gyre_comm_create_group(world, all, n, 22, &comm));
    is_of(comm, all, n);
    MP_OK(gyre_comm_destroy(comm));
    world_works();
}

/* A communicator that has failed makes no more, and its abort ends a rank that waits for members. */
static void *abort_soon(void *comm)
{
    usleep(50000);
    MP_OK(gyre_comm_abort(comm, "enough"));
    return NULL;
}

static void parent_fails(void)
{
    gyre_comm_t *parent, *comm;
    pthread_t thread;
    int all[64];
    for (int i = 0; i < n; i++)
        all[i] = i;
    MP_OK(gyre_comm_dup(world, &parent));
    if (rank == 0 && n > 1) {
        MP_CHECK(pthread_create(&thread, NULL, abort_soon, parent) == 0, "no thread");
        MP_EXPECT(gyre_comm_create_group(parent, all, n, 1, &comm), GYRE_ERR_ABORTED, "enough");
        MP_CHECK(pthread_join(thread, NULL) == 0, "no end");
    }
    MP_OK(gyre_barrier(world));
    if (n > 1)
        MP_EXPECT(gyre_comm_create_group(parent, all, n, 2, &comm), GYRE_ERR_ABORTED, "enough");
    MP_OK(gyre_comm_destroy(parent));
    world_works();
}

int main(void)
{
    MP_OK(gyre_init(NULL, &world));
    rank = gyre_comm_rank(world);
    n = gyre_comm_size(world);
    duplicates();
    by_host();
    by_node();
    by_device();
    some();
    overlapping();
    beside_a_collective();
    one_tag();
    refused();
    lists_differ();
    parent_fails();
    MP_OK(gyre_finalize(world));
    return 0;
}
