/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: 6 */
/* no TSan: it needs 6 ranks, and has no threads of its own */
/* tests/collectives/comms/mp_ring_order.c: ranks that are dealt out in turn to two hosts (GYRE_HOST_RANKS),
 * or to hosts of three switches: rings and trees visit one host or switch after the other. The plans that run
 * send as few bytes between hosts as any ring can, and results have the bits of other algorithms. */
#include "tests/support/mp.h"

#include "base/settings/settings.h"
#include "collectives/run/communicator.h"

enum { N = 6, COUNT = 1001, MOST = N * COUNT };

static int rank;
static float in[MOST], out[MOST], want[MOST];
static int32_t whole[COUNT], sum[COUNT];

static void set(base_setting_t id, const char *text)
{
    MP_OK(base_settings_set(id, text, "test"));
}

/* Bytes that this rank's plan of the latest call of `op` sends to other hosts. */
static uint64_t crossing(const gyre_comm_t *comm, coll_op_t op)
{
    const coll_plan_t *plan = comm->plans.last[op];
    uint64_t bytes = 0;
    MP_CHECK(plan && plan->cut.n == 1 && !plan->oneshot, "rank %d has no plan of %s", rank, coll_op_name(op));
    const coll_segment_t *segment = &plan->segments[0];
    for (uint32_t i = 0; i < segment->schedule.nsteps; i++)
        if (segment->steps[i].kind == COLL_STEP_SEND &&
            comm->host_of[segment->steps[i].peer] != comm->host_of[comm->rank])
            bytes += segment->steps[i].bytes;
    return bytes;
}

static void use(gyre_comm_t *comm, const char *algorithm, gyre_order_t order)
{
    gyre_options_t options = GYRE_OPTIONS_INITIALIZER;
    options.algorithm = algorithm;
    options.order = order;
    MP_OK(gyre_comm_set(comm, &options));
}

/* The same of all ranks. */
static uint64_t all_crossing(gyre_comm_t *comm, coll_op_t op)
{
    uint64_t mine = crossing(comm, op), all = 0;
    use(comm, "direct", GYRE_ORDER_CANONICAL);
    MP_OK(gyre_all_reduce(&mine, &all, 1, GYRE_UINT64, GYRE_OP(GYRE_SUM), comm));
    return all;
}

static void expect_order(const gyre_comm_t *comm, const int *order)
{
    for (int i = 0; i < N; i++)
        MP_CHECK(order ? comm->order && comm->order[i] == order[i] : !comm->order,
                 "rank %d: place %d of the order is rank %d", rank, i, comm->order ? comm->order[i] : i);
}

/* links: between hosts, of a ring. */
static void rings(gyre_comm_t *comm, unsigned links)
{
    const gyre_redop_t add = GYRE_OP(GYRE_SUM);
    const int root = 4;
    use(comm, "ring", GYRE_ORDER_CANONICAL);
    memset(out, 0, sizeof out);
    MP_OK(gyre_all_gather(in, out, COUNT, GYRE_FLOAT32, comm));
    uint64_t bytes = all_crossing(comm, COLL_ALL_GATHER);
    MP_CHECK(bytes == links * (N - 1) * sizeof(float) * COUNT, "all_gather: %llu bytes between hosts",
             (unsigned long long)bytes);
    use(comm, "direct", GYRE_ORDER_CANONICAL);
    MP_OK(gyre_all_gather(in, want, COUNT, GYRE_FLOAT32, comm));
    MP_CHECK(memcmp(out, want, sizeof out) == 0, "all_gather on rank %d", rank);

    use(comm, "ring", GYRE_ORDER_CANONICAL);
    memset(out, 0, sizeof out);
    if (comm->rank == root)
        memcpy(out, in, COUNT * sizeof *in);
    MP_OK(gyre_broadcast(out, out, COUNT, GYRE_FLOAT32, root, comm));
    bytes = all_crossing(comm, COLL_BROADCAST);
    MP_CHECK(bytes <= links * sizeof(float) * COUNT, "broadcast: %llu bytes between hosts",
             (unsigned long long)bytes);
    MP_CHECK(memcmp(out, want + root * COUNT, COUNT * sizeof *out) == 0, "broadcast on rank %d", rank);

    for (int i = 0; i < COUNT; i++)
        whole[i] = i * (comm->rank + 1);
    use(comm, "ring", GYRE_ORDER_FAST);
    MP_OK(gyre_all_reduce(whole, sum, COUNT, GYRE_INT32, add, comm));
    bytes = all_crossing(comm, COLL_ALL_REDUCE);
    MP_CHECK(bytes <= links * 2 * sizeof(int32_t) * COUNT, "all_reduce: %llu bytes between hosts",
             (unsigned long long)bytes);
    for (int i = 0; i < COUNT; i++)
        MP_CHECK(sum[i] == i * N * (N + 1) / 2, "all_reduce on rank %d: %d is %d", rank, i, sum[i]);
}

/* Every algorithm gives the canonical bits, whatever order it follows. */
static void bits(gyre_comm_t *comm)
{
    static const char *const algorithms[] = {"ring",         "tree", "butterfly", "binomial",
                                             "hierarchical", "bine", "swing",     "pat"};
    const gyre_redop_t add = GYRE_OP(GYRE_SUM);
    use(comm, "direct", GYRE_ORDER_CANONICAL);
    MP_OK(gyre_all_reduce(in, want, COUNT, GYRE_FLOAT32, add, comm));
    for (size_t a = 0; a < sizeof algorithms / sizeof *algorithms; a++) {
        use(comm, algorithms[a], GYRE_ORDER_CANONICAL);
        memset(out, 0, sizeof out);
        MP_OK(gyre_all_reduce(in, out, COUNT, GYRE_FLOAT32, add, comm));
        MP_CHECK(memcmp(out, want, COUNT * sizeof *out) == 0, "%s has other bits on rank %d", algorithms[a],
                 rank);
    }
    use(comm, "ring", GYRE_ORDER_CANONICAL);
    MP_OK(gyre_reduce(in, out, COUNT, GYRE_FLOAT32, add, 3, comm));
    MP_CHECK(comm->rank != 3 || memcmp(out, want, COUNT * sizeof *out) == 0, "reduce has other bits");
    use(comm, "hierarchical", GYRE_ORDER_CANONICAL);
    memcpy(out, in, COUNT * sizeof *out);
    MP_OK(gyre_broadcast(in, out, COUNT, GYRE_FLOAT32, 2, comm));
    MP_OK(gyre_barrier(comm));
}

int main(void)
{
    static const int in_turn[N] = {0, 2, 4, 1, 3, 5}, swapped[N] = {0, 3, 1, 4, 2, 5};
    gyre_comm_t *world, *comm;
    MP_OK(gyre_init(NULL, &world));
    rank = gyre_comm_rank(world);
    MP_CHECK(gyre_comm_size(world) == N, "wants %d ranks", N);
    uint64_t seed = (uint64_t)rank + 1;
    for (size_t i = 0; i < COUNT; i++)
        in[i] = (float)((double)(int64_t)random_next(&seed) * 1e-17);

    set(SET_HOST_RANKS, "3"); /* consecutive ranks on each host: nothing to change */
    MP_OK(gyre_comm_dup(world, &comm));
    expect_order(comm, NULL);
    rings(comm, 2);
    bits(comm);
    MP_OK(gyre_comm_destroy(comm));

    MP_OK(gyre_comm_split(world, 0, rank % 3 * 2 + rank / 3, &comm)); /* host A: 0 2 4, host B: 1 3 5 */
    expect_order(comm, in_turn);
    rings(comm, 2);
    bits(comm);
    MP_OK(gyre_comm_destroy(comm));

    set(SET_HOST_RANKS, "1");
    set(SET_SWITCHES, rank % 3 == 0 ? "core.leaf0" : rank % 3 == 1 ? "core.leaf1" : "core.leaf2");
    MP_OK(gyre_comm_dup(world, &comm));
    expect_order(comm, swapped);
    rings(comm, N);
    bits(comm);
    MP_OK(gyre_comm_destroy(comm));
    MP_OK(gyre_finalize(world));
    return 0;
}
