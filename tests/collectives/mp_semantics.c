/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: 1 2 3 4, and in check-long: 5 7 */
/* tests/collectives/mp_semantics.c: what every public call does, for counts that do and do not divide, every
 * root, in place and out of place, uneven blocks with gaps, non-blocking, grouped and split; and that
 * repeated calls neither allocate nor plan anew. */
#include "tests/support/mp.h"

#include <string.h>

#include "base/settings/settings.h"
#include "collectives/schedules/schedule.h"

enum { MAX_N = 8, MAX_COUNT = 3000, GUARD = 77 };

static int n, rank;
static gyre_comm_t *job;   /* of gyre_init */
static gyre_comm_t *world; /* the one under test: all ranks, made anew for each setting */
static int64_t *in, *out;

/* Element i of rank r's data. */
static int64_t value(int r, size_t i)
{
    return (int64_t)(r + 1) * 100003 + (int64_t)i * 7;
}

static int64_t sum_of(size_t i)
{
    int64_t s = 0;
    for (int r = 0; r < n; r++)
        s += value(r, i);
    return s;
}

static void clear(void)
{
    for (size_t i = 0; i < (size_t)MAX_N * MAX_COUNT; i++) {
        in[i] = value(rank, i);
        out[i] = GUARD;
    }
}

#define EXPECT(i, want)                                                                     \
    MP_CHECK(out[i] == (want), "rank %d: element %zu is %lld, not %lld", rank, (size_t)(i), \
             (long long)out[i], (long long)(want))

static void vectors(size_t count)
{
    clear();
    MP_OK(gyre_all_reduce(in, out, count, GYRE_INT64, GYRE_OP(GYRE_SUM), world));
    for (size_t i = 0; i < count; i++)
        EXPECT(i, sum_of(i));
    EXPECT(count, GUARD);
    memcpy(out, in, count * 8);
    MP_OK(gyre_all_reduce(out, out, count, GYRE_INT64, GYRE_OP(GYRE_MAX), world));
    for (size_t i = 0; i < count; i++)
        EXPECT(i, value(n - 1, i));
    for (int root = 0; root < n; root++) {
        clear();
        MP_OK(gyre_broadcast(rank == root ? in : NULL, out, count, GYRE_INT64, root, world));
        for (size_t i = 0; i < count; i++)
            EXPECT(i, value(root, i));
        clear();
        MP_OK(gyre_reduce(in, rank == root ? out : NULL, count, GYRE_INT64, GYRE_OP(GYRE_SUM), root, world));
        for (size_t i = 0; i < count; i++)
            EXPECT(i, rank == root ? sum_of(i) : GUARD);
        memcpy(out, in, count * 8);
        MP_OK(gyre_reduce(out, rank == root ? out : NULL, count, GYRE_INT64, GYRE_OP(GYRE_SUM), root, world));
        for (size_t i = 0; i < count; i++)
            EXPECT(i, rank == root ? sum_of(i) : value(rank, i));
    }
}

static void blocks(size_t count)
{
    size_t all = count * (size_t)n, mine = count * (size_t)rank;
    clear();
    MP_OK(gyre_reduce_scatter(in, out, count, GYRE_INT64, GYRE_OP(GYRE_SUM), world));
    for (size_t i = 0; i < count; i++)
        EXPECT(i, sum_of(mine + i));
    EXPECT(count, GUARD);
    memcpy(out, in, all * 8);
    MP_OK(gyre_reduce_scatter(out, out + mine, count, GYRE_INT64, GYRE_OP(GYRE_SUM), world));
    for (size_t i = 0; i < count; i++)
        EXPECT(mine + i, sum_of(mine + i));
    clear();
    MP_OK(gyre_all_gather(in, out, count, GYRE_INT64, world));
    for (size_t i = 0; i < all; i++)
        EXPECT(i, value((int)(i / count), i % count));
    clear();
    memcpy(out + mine, in, count * 8);
    MP_OK(gyre_all_gather(out + mine, out, count, GYRE_INT64, world));
    for (size_t i = 0; i < all; i++)
        EXPECT(i, value((int)(i / count), i % count));
    clear();
    MP_OK(gyre_all_to_all(in, out, count, GYRE_INT64, world));
    for (size_t i = 0; i < all; i++)
        EXPECT(i, value((int)(i / count), mine + i % count));
    memcpy(out, in, all * 8);
    MP_OK(gyre_all_to_all(out, out, count, GYRE_INT64, world));
    for (size_t i = 0; i < all; i++)
        EXPECT(i, value((int)(i / count), mine + i % count));
    memcpy(out, in, all * 8); /* some in place, the others not */
    MP_OK(gyre_all_to_all(rank % 2 ? out : in, out, count, GYRE_INT64, world));
    for (size_t i = 0; i < all; i++)
        EXPECT(i, value((int)(i / count), mine + i % count));
    for (int root = 0; root < n; root++) {
        clear();
        MP_OK(gyre_gather(in, rank == root ? out : NULL, count, GYRE_INT64, root, world));
        for (size_t i = 0; i < all; i++)
            EXPECT(i, rank == root ? value((int)(i / count), i % count) : GUARD);
        clear();
        MP_OK(gyre_scatter(rank == root ? in : NULL, out, count, GYRE_INT64, root, world));
        for (size_t i = 0; i < count; i++)
            EXPECT(i, value(root, mine + i));
    }
}

/* Uneven blocks: rank r has (r * 37 + shift) % 50 elements, some of them none; displs leave gaps and run
 * backwards. */
static void uneven(size_t shift)
{
    size_t counts[MAX_N], displs[MAX_N], packed[MAX_N], at = 0;
    for (int r = 0; r < n; r++) {
        counts[r] = ((size_t)r * 37 + shift) % 50;
        displs[r] = (size_t)(n - 1 - r) * 60 + 3;
        packed[r] = at;
        at += counts[r];
    }
    size_t mine = counts[rank];
    clear();
    MP_OK(gyre_all_gatherv(in, out, counts, displs, GYRE_INT64, world));
    for (int r = 0; r < n; r++) {
        for (size_t i = 0; i < counts[r]; i++)
            EXPECT(displs[r] + i, value(r, i));
        EXPECT(displs[r] + counts[r], GUARD);
    }
    clear();
    MP_OK(gyre_reduce_scatterv(in, out, counts, GYRE_INT64, GYRE_OP(GYRE_SUM), world));
    for (size_t i = 0; i < mine; i++)
        EXPECT(i, sum_of(packed[rank] + i));
    EXPECT(mine, GUARD);
    for (int root = 0; root < n; root++) {
        clear();
        MP_OK(gyre_gatherv(in, mine, out, rank == root ? counts : NULL, rank == root ? displs : NULL,
                           GYRE_INT64, root, world));
        for (int r = 0; rank == root && r < n; r++)
            for (size_t i = 0; i < counts[r]; i++)
                EXPECT(displs[r] + i, value(r, i));
        clear();
        MP_OK(gyre_scatterv(in, rank == root ? counts : NULL, NULL, out, mine, GYRE_INT64, root, world));
        for (size_t i = 0; i < mine; i++)
            EXPECT(i, value(root, packed[rank] + i));
    }
    size_t to[MAX_N], from[MAX_N];
    for (int p = 0; p < n; p++) {
        to[p] = ((size_t)rank * 5 + (size_t)p * 3 + shift) % 11;
        from[p] = ((size_t)p * 5 + (size_t)rank * 3 + shift) % 11;
    }
    clear();
    MP_OK(gyre_all_to_allv(in, to, NULL, out, from, displs, GYRE_INT64, world));
    for (int p = 0; p < n; p++) {
        size_t start = 0; /* of this rank's block in p's send buffer */
        for (int q = 0; q < rank; q++)
            start += ((size_t)p * 5 + (size_t)q * 3 + shift) % 11;
        for (size_t i = 0; i < from[p]; i++)
            EXPECT(displs[p] + i, value(p, start + i));
        EXPECT(displs[p] + from[p], GUARD);
    }
}

static void averages_and_scales(void)
{
    double a[33], b[33];
    for (int i = 0; i < 33; i++)
        a[i] = rank + i;
    MP_OK(gyre_all_reduce(a, b, 33, GYRE_FLOAT64, GYRE_OP(GYRE_AVG), world));
    for (int i = 0; i < 33; i++)
        MP_CHECK(b[i] == (n * (n - 1) / 2 + n * i) / (double)n, "avg is %g", b[i]);
    MP_OK(gyre_all_reduce(a, b, 33, GYRE_FLOAT64, GYRE_SCALED_SUM(rank + 1.0), world));
    for (int i = 0; i < 33; i++) {
        double want = 0;
        for (int r = 0; r < n; r++)
            want += (r + 1.0) * (r + i);
        MP_CHECK(b[i] == want, "scaled sum is %g, not %g", b[i], want);
    }
    double big[MAX_N * 33], part[33];
    for (int i = 0; i < 33 * n; i++)
        big[i] = rank + i;
    MP_OK(gyre_reduce_scatter(big, part, 33, GYRE_FLOAT64, GYRE_SCALED_SUM(0.5), world));
    for (int i = 0; i < 33; i++)
        MP_CHECK(part[i] == 0.5 * (n * (n - 1) / 2 + n * (33 * rank + i)), "scaled reduce_scatter: %g",
                 part[i]);
    MP_OK(gyre_reduce_scatter(big, part, 33, GYRE_FLOAT64, GYRE_OP(GYRE_AVG), world));
    for (int i = 0; i < 33; i++)
        MP_CHECK(part[i] == (n * (n - 1) / 2 + n * (33 * rank + i)) / (double)n, "avg: %g", part[i]);
}

static void many_at_once(void)
{
    gyre_request_t *requests[40];
    clear();
    for (int k = 0; k < 20; k++)
        MP_OK(gyre_iall_reduce(in + k * 100, out + k * 100, 90, GYRE_INT64, GYRE_OP(GYRE_SUM), world,
                               &requests[k]));
    MP_OK(gyre_wait_all(20, requests));
    for (size_t k = 0; k < 20; k++)
        for (size_t i = 0; i < 90; i++)
            EXPECT(k * 100 + i, sum_of(k * 100 + i));
    gyre_request_t *barrier;
    MP_OK(gyre_ibarrier(world, &barrier));
    gyre_status_t st;
    while ((st = gyre_test(&barrier)) == GYRE_IN_PROGRESS)
        ;
    MP_CHECK(st == GYRE_OK && !barrier, "barrier: %s", gyre_last_error());
}

/* Every rank to every rank in one group, self included, several messages per pair, sizes around every
 * threshold. */
static void messages(void)
{
    static const size_t sizes[] = {0, 1, 5, 6, 7, 500, 513, 2900};
    for (size_t s = 0; s < 8; s++) {
        size_t count = sizes[s];
        clear();
        MP_OK(gyre_group_start());
        for (int p = 0; p < n; p++) {
            MP_OK(gyre_send(in + p, count / 2, GYRE_INT64, p, world));
            MP_OK(gyre_send(in + count / 2, count - count / 2, GYRE_INT64, p, world));
            MP_OK(gyre_recv(out + (size_t)p * MAX_COUNT, count / 2, GYRE_INT64, p, world));
            MP_OK(
                gyre_recv(out + (size_t)p * MAX_COUNT + count / 2, count - count / 2, GYRE_INT64, p, world));
        }
        MP_OK(gyre_group_end());
        for (int p = 0; p < n; p++) {
            for (size_t i = 0; i < count / 2; i++)
                EXPECT((size_t)p * MAX_COUNT + i, value(p, i + (size_t)rank));
            for (size_t i = count / 2; i < count; i++)
                EXPECT((size_t)p * MAX_COUNT + i, value(p, i));
            EXPECT((size_t)p * MAX_COUNT + count, GUARD);
        }
    }
    if (n < 2)
        return;
    clear(); /* a ring by blocking calls: even ranks send first */
    int next = (rank + 1) % n, prev = (rank + n - 1) % n;
    if (rank % 2 == 0) {
        MP_OK(gyre_send(in, 2000, GYRE_INT64, next, world));
        MP_OK(gyre_recv(out, 2000, GYRE_INT64, prev, world));
    } else {
        MP_OK(gyre_recv(out, 2000, GYRE_INT64, prev, world));
        MP_OK(gyre_send(in, 2000, GYRE_INT64, next, world));
    }
    for (size_t i = 0; i < 2000; i++)
        EXPECT(i, value(prev, i));
}

static void splits(void)
{
    gyre_comm_t *half, *none, *reversed;
    MP_OK(gyre_comm_split(world, rank % 2, rank, &half));
    MP_OK(gyre_comm_split(world, rank == 0 ? -1 : 0, 0, &none));
    MP_OK(gyre_comm_split(world, 0, -rank, &reversed));
    MP_CHECK((rank == 0) == (none == NULL), "a negative color gives no communicator");
    MP_CHECK(gyre_comm_rank(reversed) == n - 1 - rank, "ordered by key");
    MP_CHECK(gyre_comm_size(half) == (n + 1 - rank % 2) / 2, "size of the half");
    int64_t one = rank, sum[2] = {0, 0};
    /* operations of several communicators under way together, waited for in different orders */
    gyre_request_t *r[2];
    MP_OK(gyre_iall_reduce(&one, &sum[0], 1, GYRE_INT64, GYRE_OP(GYRE_SUM), half, &r[0]));
    MP_OK(gyre_iall_reduce(&one, &sum[1], 1, GYRE_INT64, GYRE_OP(GYRE_SUM), reversed, &r[1]));
    MP_OK(gyre_wait(&r[rank % 2]));
    MP_OK(gyre_wait(&r[1 - rank % 2]));
    int64_t want = 0;
    for (int q = rank % 2; q < n; q += 2)
        want += q;
    MP_CHECK(sum[0] == want && sum[1] == n * (n - 1) / 2, "sums %lld %lld", (long long)sum[0],
             (long long)sum[1]);
    MP_OK(gyre_comm_destroy(half));
    MP_OK(gyre_comm_destroy(none));
    MP_OK(gyre_comm_destroy(reversed));
}

/* A receive that was posted early must not be taken for one of the split's own messages. */
static void split_beside_messages(void)
{
    gyre_comm_t *half;
    gyre_request_t *r = NULL;
    int64_t got = -1, mine = rank + 1000;
    int next = (rank + 1) % n, prev = (rank + n - 1) % n;
    if (n < 2)
        return;
    MP_OK(gyre_irecv(&got, 1, GYRE_INT64, prev, world, &r));
    MP_OK(gyre_comm_split(world, rank % 2, 0, &half));
    MP_OK(gyre_send(&mine, 1, GYRE_INT64, next, world));
    MP_OK(gyre_wait(&r));
    MP_CHECK(got == prev + 1000, "got %lld", (long long)got);
    MP_OK(gyre_comm_destroy(half));
}

/* More shapes than a small cache would hold, again and again. */
static void many_shapes(void)
{
    gyre_comm_stats_t before = {.size = sizeof before}, after = {.size = sizeof after};
    for (int round = 0; round < 3; round++) {
        for (size_t count = 1; count <= 150; count++)
            MP_OK(gyre_all_reduce(in, out, count, GYRE_INT64, GYRE_OP(GYRE_SUM), world));
        MP_OK(gyre_comm_stats(world, round ? &after : &before));
    }
    MP_CHECK(after.plans_built == before.plans_built, "%llu plans were built again",
             (unsigned long long)(after.plans_built - before.plans_built));
}

static void steady_state(void)
{
    gyre_comm_stats_t before = {.size = sizeof before}, after = {.size = sizeof after};
    for (int k = 0; k < 3; k++)
        MP_OK(gyre_all_reduce(in, out, 1000, GYRE_INT64, GYRE_OP(GYRE_SUM), world));
    MP_OK(gyre_comm_stats(world, &before));
    for (int k = 0; k < 200; k++)
        MP_OK(gyre_all_reduce(in, out, 1000, GYRE_INT64, GYRE_OP(GYRE_SUM), world));
    MP_OK(gyre_comm_stats(world, &after));
    MP_CHECK(after.operations == before.operations + 200, "operations are counted");
    MP_CHECK(after.allocations == before.allocations && after.plans_built == before.plans_built &&
                 after.connections == before.connections,
             "a repeated call allocates or plans: %llu allocations, %llu plans",
             (unsigned long long)(after.allocations - before.allocations),
             (unsigned long long)(after.plans_built - before.plans_built));
    MP_CHECK(after.shared_bytes <= 4u << 20, "shared memory: %llu bytes",
             (unsigned long long)after.shared_bytes);
}

static void everything(const size_t *counts, size_t ncounts)
{
    MP_OK(gyre_comm_split(job, 0, rank, &world));
    for (size_t c = 0; c < ncounts; c++) {
        vectors(counts[c]);
        blocks(counts[c] > 2000 ? 2000 : counts[c]);
    }
    MP_OK(gyre_all_reduce(NULL, NULL, 0, GYRE_INT64, GYRE_OP(GYRE_SUM), world));
    MP_OK(gyre_all_gather(NULL, NULL, 0, GYRE_INT64, world));
    for (size_t s = 0; s < 50; s += 7)
        uneven(s);
    averages_and_scales();
    many_at_once();
    messages();
    splits();
    split_beside_messages();
    many_shapes();
    steady_state();
    MP_OK(gyre_barrier(world));
    MP_OK(gyre_comm_destroy(world));
}

static void with(const char *algo, const char *scratch, const char *hosts, const size_t *counts,
                 size_t ncounts)
{
    MP_OK(base_settings_set(SET_ALGO, algo, "test"));
    MP_OK(base_settings_set(SET_SCRATCH, scratch, "test"));
    MP_OK(base_settings_set(SET_HOST_RANKS, hosts, "test"));
    everything(counts, ncounts);
}

int main(void)
{
    MP_OK(gyre_init(NULL, &job));
    n = gyre_comm_size(job);
    rank = gyre_comm_rank(job);
    gyre_comm_stats_t fresh = {.size = sizeof fresh};
    MP_OK(gyre_comm_stats(job, &fresh));
    MP_CHECK(n > 1 || fresh.shared_bytes + fresh.private_bytes < 64u << 10, "a lone rank takes %llu bytes",
             (unsigned long long)(fresh.shared_bytes + fresh.private_bytes));
    in = malloc(sizeof *in * MAX_N * MAX_COUNT + 64);
    MP_OK(gyre_mem_alloc(sizeof *out * MAX_N * MAX_COUNT + 64, (void **)&out));
    MP_CHECK(in, "no memory");
    static const size_t counts[] = {1, 2, 3, 6, 7, 8, 9, 61, 700, 2999}, few[] = {1, 13, 1500};
    with("", "4M", "0", counts, sizeof counts / sizeof *counts);
    for (int a = COLL_ALGO_AUTO + 1; a < COLL_ALGO_END; a++) /* little scratch: several segments */
        if (a != COLL_LEAVES)
            with(coll_algo_name((coll_algo_t)a), "16K", "0", few, 3);
    MP_OK(base_settings_set(SET_CHUNK, "1K", "test")); /* blocks of many chunks */
    with("direct", "4M", "0", few, 3);
    MP_OK(base_settings_set(SET_CHUNK, "0", "test"));
    if (n > 2) {
        with("hierarchical", "4M", "2", few, 3); /* hosts of two ranks, joined by UCX */
        with("", "4M", "1", few, 3);             /* every rank a host of its own */
    }
    free(in);
    MP_OK(gyre_mem_free(out));
    MP_OK(gyre_finalize(job));
    return 0;
}
