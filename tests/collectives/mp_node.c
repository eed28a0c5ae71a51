/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: 64, and in check-long: 128 192 */
/* deadline: 120 */
/* takes: 6 */
/* no TSan: 64 ranks take more memory than a machine for tests has */
/* tests/collectives/mp_node.c: as many ranks as a large node has. All collectives give the right values,
 * small ones are exchanges of outboxes, messages of up to 4 KiB wait for nobody, memory grows with the number
 * of ranks and not with its square, and ranks that sleep do not disturb those that compute. */
#include "tests/support/mp.h"

#include <stdint.h>
#include <unistd.h>

#include "collectives/run/communicator.h"
#include "comm/link.h"

enum { MOST = 2048, SMALL = 6 /* 48 bytes: within a line */, RANK_BYTES = 512 << 10 };

static int n, rank;
static uint64_t *in, *out;

static uint64_t value(int of, size_t i)
{
    return (uint64_t)(of + 1) * 1000003u + i * 7u;
}

/* Sum over all ranks. */
static uint64_t total(size_t i)
{
    const uint64_t un = (uint64_t)n;
    return un * (un + 1) / 2 * 1000003u + un * 7u * i;
}

static void clear(size_t count)
{
    memset(out, 0xee, count * sizeof *out);
}

static void check_sum(const char *what, size_t first, size_t count)
{
    for (size_t i = 0; i < count; i++)
        MP_CHECK(out[i] == total(first + i), "%s of %zu: rank %d of %d: element %zu is %llu", what, count,
                 rank, n, i, (unsigned long long)out[i]);
}

static void check_block(const char *what, const uint64_t *got, int of, size_t first, size_t count)
{
    for (size_t i = 0; i < count; i++)
        MP_CHECK(got[i] == value(of, first + i), "%s of %zu: rank %d of %d: element %zu from rank %d is %llu",
                 what, count, rank, n, i, of, (unsigned long long)got[i]);
}

/* 1: the last call of this kind was an exchange of outboxes, if there is anyone to exchange with. */
static int exchanged(const gyre_comm_t *comm, coll_op_t op)
{
    return n == 1 || (comm->plans.last[op] && comm->plans.last[op]->oneshot);
}

/* `count` elements in all that each rank gives or gets. */
static void vectors(gyre_comm_t *comm, size_t count, int root)
{
    const gyre_redop_t sum = GYRE_OP(GYRE_SUM);
    clear(count);
    MP_OK(gyre_all_reduce(in, out, count, GYRE_UINT64, sum, comm));
    check_sum("all_reduce", 0, count);
    MP_CHECK(exchanged(comm, COLL_ALL_REDUCE) || count > SMALL, "all_reduce of %zu is a schedule", count);
    clear(count);
    MP_OK(gyre_reduce(in, out, count, GYRE_UINT64, sum, root, comm));
    if (rank == root)
        check_sum("reduce", 0, count);
    clear(count);
    MP_OK(gyre_broadcast(in, out, count, GYRE_UINT64, root, comm));
    check_block("broadcast", out, root, 0, count);
    MP_CHECK(exchanged(comm, COLL_BROADCAST) || count > SMALL, "broadcast of %zu is a schedule", count);
    MP_OK(gyre_barrier(comm));
    MP_CHECK(exchanged(comm, COLL_BARRIER), "a barrier is a schedule");
}

/* Blocks of `count` elements. */
static void blocks(gyre_comm_t *comm, size_t count, int root)
{
    const size_t un = (size_t)n, mine = (size_t)rank * count;
    clear(count);
    MP_OK(gyre_reduce_scatter(in, out, count, GYRE_UINT64, GYRE_OP(GYRE_SUM), comm));
    check_sum("reduce_scatter", mine, count);
    clear(count);
    MP_OK(gyre_scatter(in, out, count, GYRE_UINT64, root, comm));
    check_block("scatter", out, root, mine, count);
    clear(un * count);
    MP_OK(gyre_all_gather(in, out, count, GYRE_UINT64, comm));
    for (int r = 0; r < n; r++)
        check_block("all_gather", out + (size_t)r * count, r, 0, count);
    clear(un * count);
    MP_OK(gyre_gather(in, out, count, GYRE_UINT64, root, comm));
    for (int r = 0; r < n && rank == root; r++)
        check_block("gather", out + (size_t)r * count, r, 0, count);
    clear(un * count);
    MP_OK(gyre_all_to_all(in, out, count, GYRE_UINT64, comm));
    for (int r = 0; r < n; r++)
        check_block("all_to_all", out + (size_t)r * count, r, mine, count);
}

/* All send before any receives: 4 KiB to some ranks, near and far. */
static void messages(gyre_comm_t *comm)
{
    enum { COUNT = 512 };
    const int step = n / 5 + 1;
    for (int i = 1; i < n; i += step)
        MP_OK(gyre_send(in, COUNT, GYRE_UINT64, (rank + i) % n, comm));
    for (int i = 1; i < n; i += step) {
        const int from = (rank + n - i) % n;
        clear(COUNT);
        MP_OK(gyre_recv(out, COUNT, GYRE_UINT64, from, comm));
        check_block("recv", out, from, 0, COUNT);
    }
}

/* They come one after the other, rank 0 last. Those who wait for it sleep, and the posts of the others do not
 * wake them. */
static void sleepers(gyre_comm_t *comm)
{
    enum { MS = 1000, APART = 2 * MS, SLEEP = 50 * MS /* at most: comm/wait.c */ };
    gyre_comm_stats_t stats = {.size = sizeof stats}, before = stats;
    comm_group_stats_t group;
    MP_OK(gyre_barrier(comm));
    MP_OK(gyre_comm_stats(comm, &before));
    const base_time_t start = base_now();
    usleep((useconds_t)((rank == 0 ? n + 50 : rank) * APART));
    MP_OK(gyre_barrier(comm));
    MP_OK(gyre_comm_stats(comm, &stats));
    comm_group_stats(comm->group, &group);
    const uint64_t sleeps = stats.sleeps - before.sleeps, us = (uint64_t)(base_now() - start) / 1000;
    MP_CHECK(n <= COMM_FENCE_RANKS || sleeps <= us / SLEEP + (uint64_t)n / 4, "rank %d slept %llu times",
             rank, (unsigned long long)sleeps);
    MP_CHECK(n <= COMM_FENCE_RANKS || group.fences == 0, "rank %d interrupted all others %llu times", rank,
             (unsigned long long)group.fences);
    MP_CHECK(n < COMM_BUDGET_RANKS || stats.shared_bytes <= (uint64_t)n * RANK_BYTES,
             "%llu bytes for %d ranks", (unsigned long long)stats.shared_bytes, n);
}

int main(void)
{
    gyre_comm_t *world, *half;
    MP_OK(gyre_init(NULL, &world));
    n = gyre_comm_size(world);
    rank = gyre_comm_rank(world);
    const size_t all = (size_t)n * 64 > MOST ? (size_t)n * 64 : MOST;
    in = malloc(all * sizeof *in);
    out = malloc(all * sizeof *out);
    MP_CHECK(in && out, "no memory");
    for (size_t i = 0; i < all; i++)
        in[i] = value(rank, i);
    vectors(world, 1, n - 1);
    vectors(world, SMALL, 1);
    vectors(world, 129, n / 2);
    vectors(world, MOST, 0);
    blocks(world, 1, n - 1);
    blocks(world, 5, n / 2);
    blocks(world, 64, 0);
    messages(world);
    sleepers(world);
    MP_OK(gyre_comm_split(world, rank % 2, -rank, &half));
    n = gyre_comm_size(half);
    const int there = gyre_comm_rank(half);
    MP_CHECK(there == n - 1 - rank / 2, "rank %d is rank %d of its half", rank, there);
    rank = there;
    for (size_t i = 0; i < all; i++)
        in[i] = value(rank, i);
    vectors(half, 6, 0);
    blocks(half, 3, n - 1);
    MP_OK(gyre_comm_destroy(half));
    free(in);
    free(out);
    MP_OK(gyre_finalize(world));
    return 0;
}
