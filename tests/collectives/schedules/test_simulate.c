/* SPDX-License-Identifier: Apache-2.0 */
/* tests/collectives/schedules/test_simulate.c: times worked out by hand, bytes by formula, and every
 * algorithm over every network. */
/* one thread: TSan has nothing to see */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/log.h"
#include "collectives/run/plan.h"
#include "collectives/proof/simulate/internal.h"
#include "tests/support/schedules.h"

enum { ES = 4 };

static void near(double got, double want)
{
    if (fabs(got - want) > 1e-6 * (1 + fabs(want)))
        fail_msg("%.6f ns, worked out by hand: %.6f ns", got, want);
}

/* A network with round numbers: 100 ns a link, 1 byte/ns; posting 10 ns, taking 20 ns; adding 8 bytes of
 * input a ns, copying costs nothing to speak of. */
static topo_network_t *plain_network(const char *what, int ranks)
{
    topo_network_t *t = NULL;
    assert_int_equal(topo_network_open(what, ranks, 0, &t), GYRE_OK);
    for (uint32_t i = 0; i < t->nlinks; i++)
        t->links[i] = (topo_link_t){100, 1};
    t->least_latency = 100;
    t->cost = (topo_node_cost_t){10, 20, 8, 1e12};
    return t;
}

static coll_args_t args_of(coll_op_t op, int n, size_t count)
{
    return (coll_args_t){.op = op, .n = n, .count = count, .uniform = 1, .fast_order = 1, .chunk = 1 << 20};
}

static coll_simulation_t simulate(const topo_network_t *t, const coll_args_t *args, coll_algo_t algo)
{
    coll_simulation_t r = {0};
    assert_int_equal(coll_simulate(t, args, algo, ES, &r), GYRE_OK);
    return r;
}

/* One hop of a ring: posted, over two links, taken: 10 + S + 200 + 20; and in the first half S is added to
 * S. */
static void rings(void **state)
{
    (void)state;
    for (int n = 2; n <= 8; n++) {
        size_t shard = 100;
        topo_network_t *t = plain_network("ethernet", n);
        coll_args_t a = args_of(COLL_ALL_REDUCE, n, shard * (size_t)n);
        coll_simulation_t r = simulate(t, &a, COLL_RING);
        double bytes = (double)shard * ES, hop = 10 + bytes + 200 + 20, add = 2 * bytes / 8;
        near(r.ns, 2 * (n - 1) * hop + (n - 1) * add);
        assert_int_equal(r.steps, 2 * (n - 1));
        assert_int_equal(r.messages, 2 * (n - 1) * n);
        assert_int_equal(r.most_sent, 2 * (n - 1));
        near(r.payload, 2.0 * (n - 1) * (double)shard * ES * n);
        near(r.link_most, 2.0 * (n - 1) * (double)shard * ES); /* 2 (n-1)/n of the vector, up and down */
        near(r.link_mean, r.link_most);
        near(r.link_total, 2 * r.payload);
        near(r.between_nodes, r.payload);
        topo_network_free(t);
    }
}

/* The classic example: latency and bandwidth of two ranks that exchange halves, with the preset's own
 * numbers. */
static void two_on_ethernet(void **state)
{
    (void)state;
    topo_network_t *t = NULL;
    assert_int_equal(topo_network_open("ethernet", 2, 0, &t), GYRE_OK);
    coll_args_t a = args_of(COLL_ALL_REDUCE, 2, 1 << 20);
    coll_simulation_t r = simulate(t, &a, COLL_RING);
    double half = 2 << 20, alpha = t->cost.send + 2 * t->links[0].latency + t->cost.recv;
    near(r.ns, 2 * (alpha + half / t->links[0].rate) + 2 * half / t->cost.reduce);
    near(r.hottest_busy, 2 * half / t->links[0].rate / r.ns);
    topo_network_free(t);
}

/* Two senders, one receiver: both messages leave at 10, enter the receiver's link at 110, and share it. */
static void shared_link(void **state)
{
    (void)state;
    topo_network_t *t = plain_network("ethernet", 3);
    size_t counts[3] = {250, 250, 250}, displs[3] = {0, 250, 500};
    coll_args_t a = args_of(COLL_GATHER, 3, 250);
    char name[64];
    a.counts = counts;
    a.displs = displs;
    coll_simulation_t r = simulate(t, &a, COLL_DIRECT);
    near(r.ns, 10 + 100 + 2 * 1000 + 100 + 20);
    assert_string_equal(topo_network_link_name(t, r.hottest, name, sizeof name), "node 0 down");
    near(r.link_most, 2000);
    /* the same to different receivers: nothing is shared but each one's own link up */
    coll_args_t b = args_of(COLL_SCATTER, 3, 250);
    b.counts = counts;
    b.displs = displs;
    r = simulate(t, &b, COLL_DIRECT);
    near(r.ns, 10 + 2 * 1000 + 200 + 20);
    topo_network_free(t);
}

/* An oversubscribed fat tree: four flows between two leaves over one spine take four times as long. */
static void oversubscribed(void **state)
{
    (void)state;
    for (int ratio = 1; ratio <= 4; ratio *= 4) {
        char what[16] = "fat-tree:0";
        what[9] = (char)('0' + ratio);
        topo_network_t *t = plain_network(what, 8); /* leaves of four */
        size_t counts[8], displs[8];
        coll_args_t a = args_of(COLL_REDUCE_SCATTER, 8, 2500);
        for (size_t i = 0; i < 8; i++) {
            counts[i] = 2500;
            displs[i] = i * 2500;
        }
        a.counts = counts;
        a.displs = displs;
        coll_simulation_t r = simulate(t, &a, COLL_BUTTERFLY);
        /* in the last of three rounds all four ranks of each leaf send 10,000 bytes to the other */
        double round = 10 + 20 + 200;
        double want = 3 * round + 40000 + 20000 + 10000.0 * ratio + 200 + (40000 + 20000 + 10000) * 2 / 8.0;
        near(r.ns, want);
        near(r.between_groups, 8 * 10000);
        topo_network_free(t);
    }
}

static void trees(void **state)
{
    (void)state;
    for (int levels = 1; levels <= 6; levels++) {
        int n = 1 << levels;
        topo_network_t *t = plain_network("ethernet", n);
        coll_args_t a = args_of(COLL_BARRIER, n, 0);
        coll_simulation_t r = simulate(t, &a, COLL_BUTTERFLY);
        near(r.ns, levels * (10 + 200 + 20));
        assert_int_equal(r.steps, levels);
        a = args_of(COLL_BROADCAST, n, 25);
        r = simulate(t, &a, COLL_BINOMIAL);
        assert_int_equal(r.steps, levels);
        near(r.payload, (n - 1) * 25.0 * ES);
        a = args_of(COLL_ALL_REDUCE, n, 25);
        a.one_shot = 1;
        r = simulate(t, &a, COLL_BUTTERFLY);
        near(r.ns, levels * (10 + 100 + 200 + 20 + 2 * 100 / 8.0));
        near(r.payload, n * levels * 25.0 * ES);
        assert_int_equal(r.messages, n * levels);
        a = args_of(COLL_ALL_REDUCE, n, 64 * (size_t)n);
        r = simulate(t, &a, COLL_BUTTERFLY); /* halving and doubling: the volume of the ring */
        near(r.payload, 2.0 * (n - 1) * 64 * ES * n);
        assert_int_equal(r.steps, 2 * levels);
        r = simulate(t, &a, COLL_PAIRWISE);
        near(r.payload, 2.0 * (n - 1) * 64 * ES * n);
        a = args_of(COLL_ALL_REDUCE, n, 15); /* one tree of a double binary tree: up, and down to hosts */
        r = simulate(t, &a, COLL_TREE);
        assert_true(r.steps <= 2 * (uint32_t)levels + 1);
        near(r.payload, 15.0 * ES * (double)r.messages);
        topo_network_free(t);
    }
}

/* Ring: traffic leaves a leaf switch over one link only. In a pairwise exchange it leaves the switch for
 * every outside rank. */
static void global_traffic(void **state)
{
    (void)state;
    topo_network_t *t = plain_network("fat-tree", 16); /* four leaves of four */
    coll_args_t a = args_of(COLL_ALL_REDUCE, 16, 1600);
    coll_simulation_t ring = simulate(t, &a, COLL_RING), pairs = simulate(t, &a, COLL_PAIRWISE);
    near(ring.between_groups, 4 * 2 * 15 * 100.0 * ES);
    near(pairs.between_groups, 16 * 12 * 2 * 100.0 * ES);
    near(ring.payload, pairs.payload);
    topo_network_free(t);
}

static void bus_factors(void **state)
{
    (void)state;
    near(coll_bus_factor(COLL_ALL_REDUCE, 4), 1.5);
    near(coll_bus_factor(COLL_REDUCE_SCATTER, 4), 0.75);
    near(coll_bus_factor(COLL_ALL_GATHER, 8), 0.875);
    near(coll_bus_factor(COLL_ALL_TO_ALL, 2), 0.5);
    near(coll_bus_factor(COLL_BROADCAST, 4), 1);
    near(coll_bus_factor(COLL_REDUCE, 4), 1);
}

static const char *const networks[] = {"nvswitch", "fat-tree:2", "torus", "dragonfly", "ethernet"};

static void everything(void **state)
{
    (void)state;
    coll_cost_t cost = {.call = 50,
                        .step = 10,
                        .line = 60,
                        .message = 100,
                        .yield = 500,
                        .copy_cache = 20,
                        .copy_memory = 8,
                        .reduce_cache = 20,
                        .reduce_memory = 8,
                        .peer_cache = 10,
                        .peer_memory = 6,
                        .total_memory = 20,
                        .cma_call = 500,
                        .cma_rate = 8,
                        .cache_bytes = 1 << 20,
                        .cores = 2};
#ifdef __SANITIZE_ADDRESS__
    static const int sizes[] = {1, 2, 3, 5, 8, 13};
#else
    static const int sizes[] = {1, 2, 3, 5, 8, 13, 24, 33};
#endif
    size_t counts[40], displs[40];
    int host[40];
    unsigned runs = 0;
    for (size_t i = 0; i < 40; i++) {
        counts[i] = 700;
        displs[i] = 700 * i;
        host[i] = (int)i / 4;
    }
    for (coll_op_t op = COLL_ALL_REDUCE; op < COLL_OP_END; op++)
        for (coll_algo_t algo = COLL_ALGO_AUTO + 1; algo < COLL_ALGO_END; algo++)
            for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
                for (unsigned form = 0; form < 4; form++) {
                    coll_args_t a = {.op = op,
                                     .n = sizes[k],
                                     .root = sizes[k] / 2,
                                     .count = op == COLL_BARRIER ? 0 : 700,
                                     .counts = counts,
                                     .displs = displs,
                                     .rcounts = counts,
                                     .rdispls = displs,
                                     .uniform = 1,
                                     .chunk = 100,
                                     .host = host,
                                     .one_shot = form % 2,
                                     .fast_order = form / 2 % 2};
                    coll_simulation_t r;
                    a.place = 16; /* for those that work in each other's memory, on one host */
                    if (!coll_algo_serves(algo, op, &a))
                        continue;
                    for (size_t i = 0; i < sizeof networks / sizeof *networks; i++) {
                        topo_network_t *t = NULL;
                        assert_int_equal(topo_network_open(networks[i], a.n, 0, &t), GYRE_OK);
                        gyre_status_t st = coll_simulate(t, &a, algo, ES, &r);
                        topo_network_free(t);
                        if (st == GYRE_ERR_UNSUPPORTED)
                            continue; /* an algorithm of certain numbers of ranks */
                        assert_int_equal(st, GYRE_OK);
                        assert_true(a.n == 1 || r.ns > 0);
                        assert_true(r.link_total >= r.payload);
                        assert_true(r.hottest_busy <= 1 + 1e-9);
                        assert_true(r.between_groups <= r.between_nodes && r.between_nodes <= r.payload);
                        runs++;
                    }
                    for (int memory = 0; memory < 2; memory++) {
                        gyre_status_t st = coll_simulate_host(&cost, &a, algo, ES, (coll_memory_t)memory, &r);
                        assert_true(st == GYRE_OK || st == GYRE_ERR_UNSUPPORTED);
                        if (st == GYRE_OK)
                            assert_true(r.ns >= cost.call);
                    }
                }
    assert_true(runs > 1000);
}

/* The two trees cross the links of three hosts 3 + 2 and 2 + 2 times for each byte of theirs: the first
 * gets nothing. */
static void trees_spare_the_busiest_host(void **state)
{
    (void)state;
    static const int host[8] = {0, 0, 1, 1, 2, 2, 3, 3};
    const double vector = 1 << 20;
    for (int n = 6; n <= 8; n += 2) {
        const coll_args_t a = {
            .op = COLL_ALL_REDUCE, .n = n, .count = (1 << 20) / ES, .chunk = 4096, .host = host};
        coll_simulation_t r;
        topo_network_t *t = NULL;
        assert_int_equal(topo_network_open("ethernet", n, 2, &t), GYRE_OK);
        assert_int_equal(coll_simulate(t, &a, COLL_TREE, ES, &r), GYRE_OK);
        topo_network_free(t);
        assert_true(r.link_most <= (n == 6 ? 2.01 : 2.51) * vector);
    }
}

/* What the simulator reads in place is what the executor may. */
static void views(void **state)
{
    (void)state;
    unsigned found = 0;
    for (coll_op_t op = COLL_ALL_REDUCE; op < COLL_OP_END; op++)
        for (coll_algo_t algo = COLL_ALGO_AUTO + 1; algo < COLL_ALGO_END; algo++)
            for (int n = 2; n <= 9; n++)
                for (int form = 0; form < 6; form++) {
                    sched_case_t c = {.algo = algo,
                                      .op = op,
                                      .n = n,
                                      .root = n - 1,
                                      .count = 300,
                                      .chunk = 64,
                                      .place = form % 3 ? PLACE_IN : PLACE_OUT,
                                      .one_shot = form % 2,
                                      .hosts = HOSTS_BLOCKS};
                    sched_world_t w;
                    gyre_status_t st;
                    if (!sched_case_served(&c))
                        continue;
                    if (!sched_world_build(&w, &c, &st)) {
                        assert_int_equal(st, GYRE_ERR_UNSUPPORTED);
                        sched_world_free(&w);
                        continue;
                    }
                    for (int r = 0; r < n; r++) {
                        base_arena_t arena = {0};
                        uint32_t steps = w.schedules[r].nsteps, *viewed, nviewed;
                        sim_local_t *local = base_arena_alloc(&arena, steps + 1, sizeof *local);
                        assert_non_null(local);
                        assert_int_not_equal(
                            sim_find_views(&w.schedules[r], 16, &arena, local, &viewed, &nviewed), SIM_NONE);
                        coll_segment_t segment;
                        assert_int_equal(coll_segment_compile(&w.schedules[r], ES, &segment), GYRE_OK);
                        for (uint32_t i = 0; i < steps; i++) {
                            if (segment.steps[i].kind == COLL_STEP_RECV)
                                assert_int_equal(local[i].view != SIM_NONE, segment.steps[i].may_view);
                            assert_int_equal(local[i].nrelease, segment.steps[i].nrelease);
                            found += local[i].view != SIM_NONE;
                        }
                        coll_segment_free(&segment);
                        base_arena_free(&arena);
                    }
                    sched_world_free(&w);
                }
    assert_true(found > 1000);
}

/* ---- one host ------------------------------------------------------------------------------------------ */

static const coll_cost_t plain_cost = {.call = 100,
                                       .step = 10,
                                       .line = 50,
                                       .message = 90,
                                       .copy_cache = 2,
                                       .reduce_cache = 4,
                                       .peer_cache = 1,
                                       .cma_call = 1000,
                                       .cma_rate = 0.5,
                                       .cache_bytes = 1 << 30,
                                       .cores = 64};

static double predict(const coll_cost_t *cost, const coll_args_t *a, coll_algo_t algo, coll_memory_t memory)
{
    double ns = 0;
    assert_int_equal(coll_predict(cost, a, algo, ES, memory, &ns), GYRE_OK);
    return ns;
}

static double alone(const coll_cost_t *cost, const coll_args_t *a, coll_algo_t algo, coll_memory_t memory)
{
    coll_simulation_t r = {0};
    assert_int_equal(coll_simulate_host(cost, a, algo, ES, memory, &r), GYRE_OK);
    return r.ns;
}

static void host_times(void **state)
{
    (void)state;
    /* with the flag: 100 + post (10 + 20 + 8 / 2), flight 50, take (10 + 20 + 8 / 2) */
    coll_args_t a = args_of(COLL_BROADCAST, 2, 2);
    near(alone(&plain_cost, &a, COLL_DIRECT, COLL_MEMORY_WINDOW), 100 + 34 + 50 + 34);
    /* through the ring: its lines are fetched back before the message leaves (2000 + 1000), and by the
     * receiver (50 + 2 * 2000) */
    a = args_of(COLL_BROADCAST, 2, 500);
    near(alone(&plain_cost, &a, COLL_DIRECT, COLL_MEMORY_WINDOW), 100 + 30 + 3000 + 50 + 30 + 50 + 4000);
    /* a window: its place travels, one copy at the receiver, which has it in its cache from the call before;
     * the sender learns of the end 50 later */
    a = args_of(COLL_BROADCAST, 2, 10000);
    near(alone(&plain_cost, &a, COLL_DIRECT, COLL_MEMORY_WINDOW), 100 + 30 + 50 + 30 + 20000 + 50);
    /* private memory: process_vm_readv instead */
    enum { KERNEL = 1000 + 80000 };
    near(alone(&plain_cost, &a, COLL_DIRECT, COLL_MEMORY_PLAIN), 100 + 30 + 50 + 30 + KERNEL + 50);
    /* in a loop: the root is ahead, and its own work (call, post, copy) is the pace */
    a = args_of(COLL_BROADCAST, 2, 2);
    near(predict(&plain_cost, &a, COLL_DIRECT, COLL_MEMORY_WINDOW), 100 + 34 + 14);
    a = args_of(COLL_BROADCAST, 2, 10000);
    /* reduce: the root adds its own 40000 bytes and the peer's where they lie */
    a = args_of(COLL_REDUCE, 2, 10000);
    near(alone(&plain_cost, &a, COLL_DIRECT, COLL_MEMORY_WINDOW), 100 + 30 + 50 + 30 + 10 + 20000 + 50);
}

/* In each other's memory: announced (48 bytes come with the flag: 10 + 20 + 24, flight 50, 10 + 20 + 24), two
 * inputs added, the sum written twice, and the end reported. */
static void host_shared(void **state)
{
    (void)state;
    coll_args_t a = args_of(COLL_ALL_REDUCE, 2, 20000);
    a.place = 12;
    double add = 2 * 40000 / 4.0, write = 40000 / 2.0;
    near(predict(&plain_cost, &a, COLL_SHARED, COLL_MEMORY_WINDOW),
         100 + 54 + 50 + 54 + 10 + add + write + 32 + 50 + 32);
    double fetch = 1000 + 80000, store = fetch; /* private memory: by system calls */
    near(predict(&plain_cost, &a, COLL_SHARED, COLL_MEMORY_PLAIN),
         100 + 54 + 50 + 54 + 10 + add + fetch + store + 32 + 50 + 32);
}

/* all_reduce of two shards of 40000 bytes: the sum goes where the peer has read the last one, so that its
 * lines must come back first, and the peer fetches what was just written. */
static void host_all_reduce(void **state)
{
    (void)state;
    coll_args_t a = args_of(COLL_ALL_REDUCE, 2, 20000);
    double begun = 30 + 50 + 30 + 10, drained = begun + 40000 + 32768 / 2.0;
    double arrived = drained + 50, fetched = arrived + 30 + 50 + 40000 + 32768;
    near(predict(&plain_cost, &a, COLL_DIRECT, COLL_MEMORY_WINDOW), 100 + fetched + 50);
    a.in_place = 1; /* then the peer's input was written in the call before, too */
    double more = 50 + 40000 + 32768 + 10000, late = begun + more + 30 + 50;
    assert_true(late > arrived);
    near(predict(&plain_cost, &a, COLL_DIRECT, COLL_MEMORY_WINDOW),
         100 + late + 30 + 50 + 40000 + 32768 + 50);
}

static void host_orders(void **state)
{
    (void)state;
    coll_cost_t cost = plain_cost;
    cost.yield = 500;
    coll_args_t a = args_of(COLL_ALL_REDUCE, 4, 1 << 16);
    double alone = predict(&cost, &a, COLL_DIRECT, COLL_MEMORY_WINDOW);
    assert_true(alone < predict(&cost, &a, COLL_DIRECT, COLL_MEMORY_PLAIN));
    cost.cores = 2; /* two ranks take turns on each core: twice the work, and some more */
    double shared = predict(&cost, &a, COLL_DIRECT, COLL_MEMORY_WINDOW);
    assert_in_range((int)(100 * shared / alone), 190, 260);
    cost.cores = 64;
    cost.cache_bytes =
        1 << 10; /* beyond the caches: the memory's own rate is the bound, whatever the cores do */
    cost.copy_memory = cost.reduce_memory = cost.peer_memory = 1000;
    cost.total_memory = 1;
    double bound = predict(&cost, &a, COLL_DIRECT, COLL_MEMORY_WINDOW);
    /* each rank adds 4 shards and writes one, then copies 3: 5 + 6 shards of a quarter, four ranks, 1
     * byte/ns */
    if (bound < 11 * 4 * 65536.0 * 0.99)
        fail_msg("%.0f ns, the memory alone takes %.0f", bound, 11 * 4 * 65536.0);
    assert_true(bound <= 11 * 4 * 65536.0 * 1.2);
}

/* Long pipelines are continued in proportion: close to the whole run. */
static void shortcuts(void **state)
{
    (void)state;
    coll_cost_t cost = plain_cost;
    size_t counts[4], displs[4];
    cost.copy_memory = 1.5;
    cost.reduce_memory = 3;
    cost.peer_memory = 0.9;
    cost.total_memory = 2.5;
    cost.cache_bytes = 1 << 20;
    for (coll_op_t op = COLL_ALL_REDUCE; op < COLL_BARRIER; op++)
        for (coll_algo_t algo = COLL_ALGO_AUTO + 1; algo < COLL_ALGO_END; algo++)
            for (int n = 2; n <= 4; n++) {
                int host[4] = {0}, vector = coll_op_is_vector(op);
                size_t count = (vector ? (size_t)n : 1) * 40 * 4096;
                for (size_t i = 0; i < 4; i++) {
                    counts[i] = count;
                    displs[i] = i * count;
                }
                coll_args_t a = args_of(op, n, count);
                a.counts = a.rcounts = counts;
                a.displs = a.rdispls = displs;
                a.chunk = 4096;
                a.host = host;
                coll_simulation_t r;
                int ahead = op == COLL_BROADCAST || op == COLL_REDUCE || op == COLL_GATHER ||
                            op == COLL_SCATTER || coll_op_scans(op);
                int calls = ahead ? 3 : 1;
                if (!coll_algo_serves(algo, op, &a) ||
                    sim_run_host(&cost, &a, algo, ES, COLL_MEMORY_WINDOW, sim_cached_part(&cost, &a, ES),
                                 calls, &r) == GYRE_ERR_UNSUPPORTED)
                    continue;
                double ns = predict(&cost, &a, algo, COLL_MEMORY_WINDOW);
                if (fabs(ns / r.ns - 1) >
                    (calls > 1 ? 0.15 : 0.05)) /* a root that runs ahead may do so in bursts */
                    fail_msg("%s by %s over %d: %.0f ns in short, %.0f ns in full", coll_op_name(op),
                             coll_algo_name(algo), n, ns, r.ns);
            }
}

static void refusals(void **state)
{
    (void)state;
    topo_network_t *t = plain_network("ethernet", 4);
    coll_simulation_t r;
    coll_args_t a = args_of(COLL_ALL_REDUCE, 5, 10);
    assert_int_equal(coll_simulate(t, &a, COLL_RING, ES, &r), GYRE_ERR_INVALID);
    a.n = 4;
    assert_int_equal(coll_simulate(t, &a, COLL_BRUCK, ES, &r), GYRE_ERR_UNSUPPORTED);
    double ns = -1;
    assert_int_equal(coll_predict(&plain_cost, &a, COLL_BRUCK, ES, COLL_MEMORY_WINDOW, &ns),
                     GYRE_ERR_UNSUPPORTED);
    assert_true(ns == -1);
    topo_network_free(t);
}

/* A message that reserved a link for later does not keep it from an earlier one. */
static void servers(void **state)
{
    (void)state;
    sim_server_t s = {0};
    near(sim_serve(&s, 100, 50), 100);
    near(sim_serve(&s, 10, 60), 10);  /* in the gap before */
    near(sim_serve(&s, 20, 40), 150); /* no room there */
    near(sim_serve(&s, 80, 20), 80);  /* what is left of it */
    near(sim_serve(&s, 0, 10), 190);
}

int main(void)
{
    base_log_set_level(BASE_LOG_NONE);
    const struct CMUnitTest tests[] = {cmocka_unit_test(rings),
                                       cmocka_unit_test(two_on_ethernet),
                                       cmocka_unit_test(shared_link),
                                       cmocka_unit_test(oversubscribed),
                                       cmocka_unit_test(trees),
                                       cmocka_unit_test(global_traffic),
                                       cmocka_unit_test(bus_factors),
                                       cmocka_unit_test(everything),
                                       cmocka_unit_test(trees_spare_the_busiest_host),
                                       cmocka_unit_test(views),
                                       cmocka_unit_test(host_times),
                                       cmocka_unit_test(host_shared),
                                       cmocka_unit_test(host_all_reduce),
                                       cmocka_unit_test(host_orders),
                                       cmocka_unit_test(shortcuts),
                                       cmocka_unit_test(refusals),
                                       cmocka_unit_test(servers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
