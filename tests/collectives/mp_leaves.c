/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: 1 2 3 5 8 13 16, and in check-long: 4 6 7 9 10 11 12 14 15; over UCX: 3 */
/* tests/collectives/mp_leaves.c: 16 leaves give the same bits on any number of ranks, however they are dealt
 * out, in canonical and in exact order; and gyre_comm_set refuses what makes no sense. */
#include "tests/support/mp.h"

#include <string.h>

#include "collectives/kernels/kernels.h"

enum { LEAVES = 16, MOST = 30000 };

static int n, rank;
static gyre_comm_t *comm;
static float leaf[LEAVES][MOST], in[LEAVES * MOST], out[MOST], want[MOST];

/* How many leaves rank r has, by the deal. */
static int share(int deal, int r)
{
    const int even = (r + 1) * LEAVES / n - r * LEAVES / n;
    const int uneven = r == n - 1 ? LEAVES - 3 * (n - 1) : 3;
    switch (deal) {
    case 0:
        return even;
    case 1:
        return n > 5 ? (r < 3 ? 0 : r == 3 ? LEAVES - n + 4 : 1) : uneven;
    default:
        return r == n / 2 ? LEAVES : 0;
    }
}

static void set(int mine, gyre_order_t order)
{
    gyre_options_t options = GYRE_OPTIONS_INITIALIZER;
    options.leaves = mine;
    options.order = order;
    MP_OK(gyre_comm_set(comm, &options));
    MP_CHECK(gyre_comm_leaves(comm) == mine, "%d leaves, not %d", gyre_comm_leaves(comm), mine);
}

static void reduce_all(int deal, gyre_order_t order, gyre_redop_kind_t kind, size_t count)
{
    const void *from[LEAVES];
    int first = 0;
    gyre_request_t *request;
    for (int l = 0; l < LEAVES; l++)
        from[l] = leaf[l];
    if (order == GYRE_ORDER_EXACT) {
        coll_kernel_reduce_exact(kind, GYRE_FLOAT32, want, from, LEAVES, count);
    } else {
        coll_kernel_reduce(kind, GYRE_FLOAT32, want, from, LEAVES, count);
        if (kind == GYRE_AVG)
            coll_kernel_divide(GYRE_FLOAT32, want, count, LEAVES);
    }
    for (int r = 0; r < rank; r++)
        first += share(deal, r);
    for (int l = 0; l < share(deal, rank); l++)
        memcpy(in + (size_t)l * count, leaf[first + l], count * sizeof *in);
    memset(out, 0x55, sizeof out);
    MP_OK(gyre_all_reduce(in, out, count, GYRE_FLOAT32, GYRE_OP(kind), comm));
    MP_CHECK(memcmp(out, want, count * sizeof *out) == 0, "all_reduce, deal %d, %zu elements", deal, count);
    memset(out, 0x55, sizeof out);
    MP_OK(gyre_ireduce(in, out, count, GYRE_FLOAT32, GYRE_OP(kind), n / 2, comm, &request));
    MP_OK(gyre_wait(&request));
    MP_CHECK(rank != n / 2 || memcmp(out, want, count * sizeof *out) == 0, "reduce, deal %d", deal);
    size_t counts[LEAVES], at = 0;
    for (int r = 0; r < n; r++) {
        counts[r] = r == n - 1 ? count - at : count / (size_t)n;
        at += r < n - 1 ? counts[r] : 0;
    }
    memset(out, 0x55, sizeof out);
    MP_OK(gyre_reduce_scatterv(in, out, counts, GYRE_FLOAT32, GYRE_OP(kind), comm));
    MP_CHECK(memcmp(out, want + (size_t)rank * (count / (size_t)n), counts[rank] * sizeof *out) == 0,
             "reduce_scatterv, deal %d", deal);
    /* other collectives are as they were */
    float one = (float)rank, all[LEAVES];
    MP_OK(gyre_all_gather(&one, all, 1, GYRE_FLOAT32, comm));
    MP_CHECK(all[n - 1] == (float)(n - 1), "all_gather: %g", all[n - 1]);
}

static void refused(gyre_status_t want_status, gyre_status_t got, const char *text)
{
    MP_CHECK(got == want_status && strstr(gyre_last_error(), text), "%s: %s", gyre_status_string(got),
             gyre_last_error());
}

static void refusals(void)
{
    gyre_options_t options = GYRE_OPTIONS_INITIALIZER;
    options.leaves = -1;
    refused(GYRE_ERR_INVALID, gyre_comm_set(comm, &options), "leaves is -1");
    options.leaves = 1025;
    refused(GYRE_ERR_INVALID, gyre_comm_set(comm, &options), "leaves is 1025");
    options.leaves = 0;
    refused(GYRE_ERR_INVALID, gyre_comm_set(comm, &options), "0 leaves together");
    options.order = GYRE_ORDER_EXACT;
    options.leaves = n > 1 ? 1024 : 2;
    const gyre_status_t got = gyre_comm_set(comm, &options);
    if (n > 1)
        refused(GYRE_ERR_INVALID, got, "1024 at most");
    set(2, GYRE_ORDER_DEFAULT);
    refused(GYRE_ERR_UNSUPPORTED, gyre_all_reduce(in, out, 4, GYRE_FLOAT32, GYRE_SCALED_SUM(0.5), comm),
            "cannot be scaled");
    refused(GYRE_ERR_OVERLAP, gyre_all_reduce(in, in, 4, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), comm), "overlap");
    MP_OK(gyre_comm_set(comm, NULL));
    out[0] = (float)rank;
    MP_OK(gyre_all_reduce(out, out, 1, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), comm));
    MP_CHECK(out[0] == (float)(n * (n - 1) / 2), "%g", out[0]);
}

int main(void)
{
    uint64_t seed = 5;
    MP_OK(gyre_init(NULL, &comm));
    MP_CHECK(gyre_comm_leaves(comm) == 1 && gyre_comm_leaves(NULL) == -1, "leaves before gyre_comm_set");
    n = gyre_comm_size(comm);
    rank = gyre_comm_rank(comm);
    for (int l = 0; l < LEAVES; l++)
        for (int i = 0; i < MOST; i++)
            leaf[l][i] =
                (float)((double)(int64_t)random_next(&seed) * (random_next(&seed) % 2 ? 1e-19 : 3e-23));
    for (int deal = 0; deal < 3; deal++) {
        set(share(deal, rank), GYRE_ORDER_CANONICAL);
        reduce_all(deal, GYRE_ORDER_CANONICAL, GYRE_SUM, 5);
        reduce_all(deal, GYRE_ORDER_CANONICAL, GYRE_AVG, MOST);
        set(share(deal, rank), GYRE_ORDER_EXACT);
        reduce_all(deal, GYRE_ORDER_EXACT, deal == 1 ? GYRE_AVG : GYRE_SUM, 3000);
    }
    refusals();
    MP_OK(gyre_finalize(comm));
    return 0;
}
