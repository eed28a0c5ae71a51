/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: 2 3, over UCX: 2 */
/* tests/collectives/mp_any.c: gyre_wait_any, gyre_test_any and gyre_test_all: each request ends once, in the
 * order in which the operations finish; what has not finished stays; waiting sleeps; errors and deadlines
 * come out at the request that they belong to. */
#include "tests/support/mp.h"

#include <stdlib.h>

#include "collectives/run/communicator.h"

enum { MESSAGES = 6 };

static int n, rank;
static gyre_comm_t *world;

static void arguments(void)
{
    ptrdiff_t at = 7;
    gyre_request_t *none[3] = {NULL, NULL, NULL};
    MP_CHECK(gyre_test_all(2, NULL) == GYRE_ERR_INVALID, "%s", gyre_last_error());
    MP_CHECK(gyre_test_any(2, NULL, &at) == GYRE_ERR_INVALID && at == -1, "%td", at);
    MP_CHECK(gyre_wait_any(2, NULL, &at) == GYRE_ERR_INVALID && at == -1, "%td", at);
    MP_CHECK(gyre_test_any(3, none, NULL) == GYRE_ERR_INVALID, "index is NULL");
    MP_CHECK(gyre_wait_any(3, none, NULL) == GYRE_ERR_INVALID, "index is NULL");
    at = 7;
    MP_OK(gyre_test_any(3, none, &at));
    MP_CHECK(at == -1, "%td", at);
    at = 7;
    MP_OK(gyre_wait_any(3, none, &at));
    MP_CHECK(at == -1, "%td", at);
    at = 7;
    MP_OK(gyre_wait_any(0, NULL, &at));
    MP_CHECK(at == -1, "%td", at);
    MP_OK(gyre_test_all(3, none));
    MP_OK(gyre_test_all(0, NULL));
}

/* Every rank but 0 sends to rank 0; rank r's message k has the value 100 r + k. Rank 0 takes them as they
 * come. */
static void messages(int tests)
{
    int64_t got[MESSAGES * 2] = {0}, mine[MESSAGES];
    gyre_request_t *r[MESSAGES * 2 + 1] = {NULL};
    const int senders = n - 1;
    const size_t count = (size_t)(MESSAGES * senders) + 1; /* the last is NULL */
    MP_OK(gyre_barrier(world));
    if (rank > 0) {
        for (int k = 0; k < MESSAGES; k++) {
            mp_nap(1);
            mine[k] = 100 * rank + k;
            MP_OK(gyre_isend(&mine[k], 1, GYRE_INT64, 0, world, &r[k]));
        }
        MP_OK(gyre_wait_all(MESSAGES, r));
        return;
    }
    for (int k = 0; k < MESSAGES; k++)
        for (int s = 0; s < senders; s++)
            MP_OK(gyre_irecv(&got[k * senders + s], 1, GYRE_INT64, s + 1, world, &r[k * senders + s]));
    int next[3] = {0};
    for (size_t left = count - 1; left > 0; left--) {
        ptrdiff_t at = 7;
        gyre_status_t st;
        if (tests)
            while ((st = gyre_test_any(count, r, &at)) == GYRE_IN_PROGRESS)
                MP_CHECK(at == -1, "%td", at);
        else
            st = gyre_wait_any(count, r, &at);
        MP_OK(st);
        MP_CHECK(at >= 0 && at < (ptrdiff_t)count - 1 && !r[at], "%td", at);
        const int from = (int)at % senders, k = (int)at / senders;
        MP_CHECK(next[from]++ == k, "message %d of rank %d comes out of order", k, from + 1);
        MP_CHECK(got[at] == 100 * (from + 1) + k, "%lld", (long long)got[at]);
    }
    ptrdiff_t at = 7;
    MP_OK(gyre_wait_any(count, r, &at));
    MP_CHECK(at == -1, "%td", at);
}

/* Two communicators; what rank 1 calls late ends late, and nothing is freed before all of it has ended. */
static void two_communicators(void)
{
    gyre_comm_t *comm[2];
    gyre_request_t *r[2];
    int32_t one = 1, sum[2] = {0};
    ptrdiff_t at;
    for (int i = 0; i < 2; i++)
        MP_OK(gyre_comm_split(world, 0, rank, &comm[i]));
    for (int late = 0; late < 2; late++) {
        const int soon = 1 - late;
        MP_OK(gyre_iall_reduce(&one, &sum[soon], 1, GYRE_INT32, GYRE_OP(GYRE_SUM), comm[soon], &r[soon]));
        if (rank == 1) {
            r[late] = NULL;
            MP_OK(gyre_wait_any(2, r, &at));
            MP_CHECK(at == soon, "%td", at);
            MP_OK(gyre_barrier(world)); /* the others have looked */
            MP_OK(gyre_iall_reduce(&one, &sum[late], 1, GYRE_INT32, GYRE_OP(GYRE_SUM), comm[late], &r[late]));
        } else {
            MP_OK(gyre_iall_reduce(&one, &sum[late], 1, GYRE_INT32, GYRE_OP(GYRE_SUM), comm[late], &r[late]));
            gyre_request_t *before[2] = {r[0], r[1]};
            MP_CHECK(gyre_test_all(2, r) == GYRE_IN_PROGRESS, "rank 1 has not called");
            MP_CHECK(r[0] == before[0] && r[1] == before[1], "a request is gone");
            MP_OK(gyre_wait_any(2, r, &at));
            MP_CHECK(at == soon && !r[soon] && r[late] == before[late], "%td", at);
            MP_CHECK(gyre_test_any(2, r, &at) == GYRE_IN_PROGRESS && at == -1, "%td", at);
            MP_OK(gyre_barrier(world));
        }
        gyre_status_t st;
        while ((st = gyre_test_all(2, r)) == GYRE_IN_PROGRESS)
            ;
        MP_OK(st);
        MP_CHECK(!r[0] && !r[1] && sum[0] == n && sum[1] == n, "%d %d", (int)sum[0], (int)sum[1]);
    }
    for (int i = 0; i < 2; i++)
        MP_OK(gyre_comm_destroy(comm[i]));
}

/* Rank 1 comes 300 ms late: rank 0 sleeps meanwhile. */
/* A rank whose calls on one communicator end at once moves the other one by starting and testing, or waiting
 * for, them. */
static void calls_that_end_at_once(int tests)
{
    enum { COUNT = 1 << 20 };
    float *sums = calloc(COUNT, sizeof *sums), one = 1;
    gyre_request_t *large = NULL, *small;
    gyre_comm_t *own;
    MP_CHECK(sums, "no memory");
    MP_OK(gyre_comm_split(world, rank, 0, &own));
    MP_OK(gyre_iall_reduce(sums, sums, COUNT, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), world, &large));
    const base_time_t until = base_deadline(20.0);
    while (rank > 0 && !atomic_load(&large->done) && base_now() < until) {
        MP_OK(gyre_iall_reduce(&one, &one, 1, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), own, &small));
        MP_OK(tests ? gyre_test(&small) : gyre_wait(&small));
    }
    MP_CHECK(rank == 0 || atomic_load(&large->done), "the other communicator did not move in 20 s");
    MP_OK(gyre_wait(&large));
    MP_OK(gyre_comm_destroy(own));
    free(sums);
}

static void sleeps(void)
{
    enum { LATE_MS = 300 };
    char in[2] = {0}, token = 1;
    gyre_comm_stats_t before = {.size = sizeof before}, after = {.size = sizeof after};
    MP_OK(gyre_barrier(world));
    if (rank == 1) {
        mp_nap(LATE_MS);
        MP_OK(gyre_send(&token, 1, GYRE_INT8, 0, world));
        MP_OK(gyre_send(&token, 1, GYRE_INT8, 0, world));
    }
    if (rank > 0)
        return;
    gyre_request_t *r[2];
    ptrdiff_t at;
    for (int i = 0; i < 2; i++)
        MP_OK(gyre_irecv(&in[i], 1, GYRE_INT8, 1, world, &r[i]));
    MP_OK(gyre_comm_stats(world, &before));
    const double cpu = mp_cpu_seconds();
    MP_OK(gyre_wait_any(2, r, &at));
    const double used = mp_cpu_seconds() - cpu;
    MP_OK(gyre_comm_stats(world, &after));
    MP_CHECK(at == 0, "%td", at);
    MP_CHECK(after.sleeps > before.sleeps, "it does not sleep");
    MP_CHECK(used < LATE_MS * 1e-3 / 2, "%g s of the core for a wait of %d ms", used, LATE_MS);
    MP_OK(gyre_wait_any(2, r, &at));
    MP_CHECK(at == 1, "%td", at);
}

static void in_a_group(void)
{
    int32_t one = 1, sum = 0;
    gyre_request_t *r[2] = {NULL, NULL};
    ptrdiff_t at;
    MP_OK(gyre_group_start());
    MP_OK(gyre_iall_reduce(&one, &sum, 1, GYRE_INT32, GYRE_OP(GYRE_SUM), world, &r[1]));
    MP_CHECK(gyre_test_all(2, r) == GYRE_IN_PROGRESS && r[1], "it has not been started");
    MP_CHECK(gyre_test_any(2, r, &at) == GYRE_IN_PROGRESS && at == -1 && r[1], "%td", at);
    MP_CHECK(gyre_wait_any(2, r, &at) == GYRE_ERR_INVALID && at == -1 && r[1], "%td", at);
    MP_OK(gyre_group_end());
    MP_OK(gyre_wait_any(2, r, &at));
    MP_CHECK(at == 1 && sum == n, "%td %d", at, (int)sum);
}

/* An operation that ends with an error ends its own request, and the others in turn. */
static void errors(void)
{
    gyre_comm_t *comm;
    gyre_request_t *r[3] = {NULL, NULL, NULL};
    int32_t one = 1, sum = 0;
    ptrdiff_t at;
    MP_OK(gyre_comm_split(world, 0, rank, &comm));
    MP_OK(gyre_barrier(world)); /* all have it */
    if (rank == 0) {
        MP_OK(gyre_iall_reduce(&one, &sum, 1, GYRE_INT32, GYRE_OP(GYRE_SUM), comm, &r[0]));
        MP_OK(gyre_iall_reduce(&one, &sum, 1, GYRE_INT32, GYRE_OP(GYRE_SUM), comm, &r[2]));
        MP_OK(gyre_comm_abort(comm, "enough"));
        MP_CHECK(gyre_wait_any(3, r, &at) == GYRE_ERR_ABORTED && at == 0 && !r[0], "%td", at);
        MP_CHECK(gyre_test_any(3, r, &at) == GYRE_ERR_ABORTED && at == 2 && !r[2], "%td", at);
    }
    MP_OK(gyre_barrier(world));
    MP_OK(gyre_comm_destroy(comm));
}

/* Rank 0's operations end at their deadline, in each of the three calls. */
static void deadlines(void)
{
    gyre_request_t *r[2] = {NULL, NULL};
    ptrdiff_t at = -1;
    for (int call = 0; call < 3; call++) {
        gyre_comm_t *comm;
        gyre_status_t st = GYRE_IN_PROGRESS;
        MP_OK(gyre_comm_split(world, 0, rank, &comm));
        comm->timeout_ns = 100 * 1000 * 1000;
        if (rank == 0) {
            MP_OK(gyre_ibarrier(comm, &r[1]));
            while (st == GYRE_IN_PROGRESS) {
                st = call == 0   ? gyre_wait_any(2, r, &at)
                     : call == 1 ? gyre_test_any(2, r, &at)
                                 : gyre_test_all(2, r);
                mp_nap(1);
            }
            MP_CHECK(st == GYRE_ERR_TIMEOUT && !r[1], "%s: %s", gyre_status_string(st), gyre_last_error());
            MP_CHECK(call == 2 || at == 1, "%td", at);
        }
        MP_OK(gyre_barrier(world));
        MP_OK(gyre_comm_destroy(comm));
    }
}

int main(void)
{
    MP_OK(gyre_init(NULL, &world));
    n = gyre_comm_size(world);
    rank = gyre_comm_rank(world);
    arguments();
    messages(0);
    messages(1);
    two_communicators();
    calls_that_end_at_once(1);
    calls_that_end_at_once(0);
    sleeps();
    in_a_group();
    errors();
    deadlines();
    MP_OK(gyre_finalize(world));
    return 0;
}
