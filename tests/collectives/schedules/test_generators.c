/* SPDX-License-Identifier: Apache-2.0 */
/* tests/collectives/schedules/test_generators.c: the checker proves every generator: each (algorithm,
 * operation) that is served, all roots, counts that do not divide, several chunks, in place, out of place
 * and mixed, blocks of different sizes, host maps, orders of places, both orders of additions. Which numbers
 * of ranks:
 *   plain                 all of 1 to 13; 16, 17, 31, 32, 33 and 64 with four roots each; 65, 100 or 129 of
 *                         each second operation that an algorithm serves
 *   under a sanitizer     all of 1 to 4, for the memory that generators and checker touch
 *   TEST_LONG=1           all of 1 to 64 with all roots, and all samples (make check-long); under a
 *                         sanitizer all of 1 to 8
 * test_generators [TEST [RANKS]]: one of them; all of 1 to RANKS.
 * deadline: 300 (a busy machine of two cores) */
/* takes: 10 */
/* one thread: TSan has nothing to see */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "collectives/proof/check/check.h"
#include "collectives/schedules/algorithms.h"
#include "tests/support/schedules.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif
enum { ALL_SANITIZED = 4, ALL_PLAIN = 13, ALL_SANITIZED_LONG = 8, ALL_LONG = 64 };

static int all_ranks; /* up to so many, all numbers of ranks with all roots */
static unsigned long proofs;

/* What the executor makes of COLL_STAGE copies where peers can read IN: SENDs read IN. The copies go to TMP
 * that nobody may read. Returns how many there are. */
static size_t leave_out_stages(coll_schedule_t *s)
{
    size_t stages = 0;
    coll_ref_t from = {0, COLL_IN}, to = {SIZE_MAX, COLL_TMP};
    for (uint32_t i = 0; i < s->nsteps; i++) {
        coll_step_t *step = &s->steps[i];
        if (step->flags & COLL_STAGE) {
            from = s->sources[step->src];
            to = step->at;
            step->at.offset = s->tmp_count;
            s->tmp_count += step->count;
            stages++;
        } else if (step->kind == COLL_STEP_SEND && step->at.buf == to.buf && step->at.offset == to.offset) {
            step->at = from;
        }
    }
    return stages;
}

static void prove(const sched_case_t *c)
{
    if (!sched_case_served(c))
        return;
    sched_world_t w;
    gyre_status_t status;
    size_t stages = 0;
    char text[200], why[600] = "";
    int built = sched_world_build(&w, c, &status);
    if (built)
        status = coll_check(w.args, w.schedules, w.n, why, sizeof why);
    for (int r = 0; status == GYRE_OK && r < w.n; r++)
        stages += leave_out_stages(&w.schedules[r]);
    if (status == GYRE_OK && stages > 0)
        status = coll_check(w.args, w.schedules, w.n, why, sizeof why);
    if (status != GYRE_OK) {
        sched_case_print(c, text, sizeof text);
        fail_msg("%s: %s: %s", text, gyre_status_string(status), why);
    }
    sched_world_free(&w);
    proofs++;
}

/* Per (algorithm, operation, n, root): a few counts, the rest of the variants spread over them so that each
 * meets each in the course of the sweep. */
static void sweep(coll_algo_t algo, coll_op_t op, int n)
{
    int rooted = op == COLL_BROADCAST || op == COLL_REDUCE || op == COLL_GATHER || op == COLL_SCATTER;
    int blocks = coll_op_has_blocks(op);
    size_t un = (size_t)n;
    const size_t vectors[] = {1, un - 1, un, un + 1, 37, 2 * un + 3, 0};
    const size_t each[] = {1, 5, 3, 0};
    unsigned state = (unsigned)n * 131u + (unsigned)algo * 17u + (unsigned)op;
    int step = rooted && n > all_ranks ? (n + 3) / 4 : 1;
    for (int root = 0; root < (rooted ? n : 1); root += step) {
        size_t ncounts = op == COLL_BARRIER ? 1 : rooted ? 2 : blocks ? 4 : 7;
        for (size_t k = 0; k < ncounts; k++) {
            unsigned mix = sched_random(&state);
            sched_case_t c = {
                .algo = algo, .op = op, .n = n, .root = root, .seed = mix, .place = (place_t)(mix % 3)};
            size_t pick = rooted && n > 4 ? mix / 3 % (blocks ? 4 : 7) : k;
            c.count = op == COLL_BARRIER ? 0 : blocks ? each[pick % 4] : vectors[pick];
            c.chunk = mix / 64 % 3 == 0 ? 1000 : mix / 64 % 3 == 1 ? 2 : 7;
            c.hosts = (hosts_t)(mix / 256 % HOSTS_END);
            c.order = (order_t)(mix / 4096 % ORDER_END);
            for (int form = 0; form < 4; form++) {
                c.ragged = form & 1 && blocks;
                c.fast = form & 1 && !blocks;
                if (op == COLL_REDUCE_SCATTER)
                    c.fast = mix / 1024 & 1;
                c.one_shot = form >> 1;
                if ((form & 1 && !c.ragged && !c.fast) || (c.one_shot && op != COLL_ALL_REDUCE))
                    continue;
                prove(&c);
                c.place = (place_t)((c.place + 1) % PLACE_END);
            }
        }
    }
}

static void sweep_all(coll_algo_t algo)
{
    static const int beyond[] = {16, 17, 31, 32, 33, 64};
    for (coll_op_t op = COLL_ALL_REDUCE; op < COLL_OP_END; op++) {
        if (!coll_algo_serves(algo, op, NULL))
            continue;
        for (int n = 1; n <= all_ranks; n++)
            sweep(algo, op, n);
        for (size_t i = 0; all_ranks == ALL_PLAIN && i < sizeof beyond / sizeof beyond[0]; i++)
            sweep(algo, op, beyond[i]);
    }
}

#define SWEEP_TEST(name, algo)                                                                           \
    static void name(void **state)                                                                       \
    {                                                                                                    \
        (void)state;                                                                                     \
        proofs = 0;                                                                                      \
        sweep_all(algo);                                                                                 \
        assert_true(proofs > 0 ||                                                                        \
                    coll_algo_is(algo, COLL_OF_LEAVES)); /* tests/collectives/schedules/test_leaves.c */ \
        print_message("           %lu proofs\n", proofs);                                                \
    }
#define ALGORITHM(id, name, ...) SWEEP_TEST(test_##name, COLL_##id)
#include "collectives/schedules/algorithms.def"
#undef ALGORITHM

/* Vectors that are long enough for shards to be rounded up, and more ranks than the sweep has. */
static void test_samples(void **state)
{
    (void)state;
    const unsigned parts = SANITIZED && all_ranks == ALL_SANITIZED ? 4 : 1;
    for (coll_algo_t algo = COLL_RING; algo < COLL_ALGO_END; algo++) {
        unsigned nth = 0;
        for (coll_op_t op = COLL_ALL_REDUCE; op < COLL_OP_END; op++) {
            const unsigned serves = coll_algo_serves(algo, op, NULL) != 0;
            const unsigned size = (algo + nth / 2) % 3; /* of `many` */
            nth += serves;
            for (unsigned i = 0; serves && i < (SANITIZED ? 6u : 18u); i++) {
                const int few[] = {1, 2, 3, 5, 7, 8}, many[] = {65, 100, 129};
                int beyond =
                    i % 6 == 5 && !SANITIZED && (all_ranks == ALL_LONG || (nth % 2 == 1 && i / 6 == size));
                sched_case_t c = {
                    .algo = algo, .op = op, .seed = i, .place = (place_t)(i % 3), .fast = i % 5 == 4};
                c.n = beyond ? many[i / 6] : few[i % 6];
                c.root = c.n - 1 - (int)i % c.n;
                c.count = op == COLL_BARRIER ? 0 : beyond ? 3 + i : (500 + 119 * i) / parts;
                c.chunk = (i % 2 ? 300 : 1001) / parts;
                c.one_shot = i % 3 == 2 && op == COLL_ALL_REDUCE;
                c.hosts = (hosts_t)(i % HOSTS_END);
                c.order = (order_t)(i % ORDER_END);
                prove(&c);
            }
        }
    }
}

/* TMP of long vectors and blocks stays below what the algorithm's row promises, which is what segments are
 * cut by. */
static void test_tmp(void **state)
{
    (void)state;
    enum {
        LONG = SANITIZED ? 1500 : 6000,
        CHUNK = 64,
        SLACK = 64 /* each block, chunk or announcement is rounded up */
    };
    static const int ranks[] = {2, 3, 4, 5, 7, 8, 13, 16};
    const size_t counts = SANITIZED ? 4 : sizeof ranks / sizeof *ranks;
    unsigned long bounded = 0;
    for (coll_algo_t algo = COLL_ALGO_AUTO + 1; algo < COLL_ALGO_END; algo++)
        for (unsigned i = 0; i < 4 * COLL_OP_END * counts; i++) {
            const coll_op_t op = (coll_op_t)(i / 4 % COLL_OP_END);
            sched_case_t c = {.algo = algo,
                              .op = op,
                              .n = ranks[i / 4 / COLL_OP_END],
                              .count = LONG,
                              .chunk = CHUNK,
                              .fast = i & 1,
                              .one_shot = i & 2 && op == COLL_ALL_REDUCE,
                              .place = (place_t)(i % PLACE_END),
                              .hosts = (hosts_t)(HOSTS_BLOCKS + i % 3),
                              .order = (order_t)(i / 4 % ORDER_END)};
            if (op < COLL_ALL_REDUCE || op == COLL_BARRIER || !sched_case_served(&c))
                continue;
            sched_world_t w;
            gyre_status_t status;
            assert_true(sched_world_build(&w, &c, &status));
            coll_tmp_ask_t ask = {.op = op, .n = c.n, .one_shot = c.one_shot, .fast_order = c.fast};
            int hosts = 0;
            for (int r = 0; w.args[0].host && r < c.n; r++)
                hosts = w.args[0].host[r] >= hosts ? w.args[0].host[r] + 1 : hosts;
            ask.part_places = hosts ? coll_places_by_parts(w.args[0].host, c.n, hosts) : 0;
            const size_t blocks = coll_op_is_vector(op) ? 1 : (size_t)c.n;
            const size_t places = coll_tmp_places(algo, &ask), factor = coll_tmp_factor(algo, &ask);
            const size_t slack = (places + factor + (size_t)c.n) * 4 * SLACK;
            const size_t most = places ? places * CHUNK : factor * blocks * LONG;
            for (int r = 0; r < c.n; r++, bounded++)
                if (w.schedules[r].tmp_count > most + slack) {
                    char text[200];
                    sched_case_print(&c, text, sizeof text);
                    fail_msg("%s: rank %d has %zu elements of TMP; its row in algorithms.def promises %zu",
                             text, r, w.schedules[r].tmp_count, most + slack);
                }
            sched_world_free(&w);
        }
    assert_true(bounded > 1000);
}

/* Elements that cross hosts, sent by all ranks. */
static size_t crossing(const sched_world_t *w)
{
    size_t sum = 0;
    for (int r = 0; r < w->n; r++)
        for (uint32_t i = 0; i < w->schedules[r].nsteps; i++) {
            const coll_step_t *s = &w->schedules[r].steps[i];
            if (s->kind == COLL_STEP_SEND && w->args[0].host[s->peer] != w->args[0].host[r])
                sum += s->count;
        }
    return sum;
}

/* Elements that cross hosts in one case, which is proved, too. */
static size_t proved_crossing(coll_algo_t algo, coll_op_t op, int fast, int n, order_t order)
{
    const sched_case_t c = {.algo = algo,
                            .op = op,
                            .n = n,
                            .root = n / 2,
                            .count = coll_op_is_vector(op) ? 4 * (size_t)n : 3,
                            .fast = fast,
                            .chunk = 7,
                            .hosts = HOSTS_ROUND_ROBIN,
                            .order = order};
    sched_world_t w;
    gyre_status_t status;
    prove(&c);
    assert_true(sched_world_build(&w, &c, &status));
    const size_t elements = crossing(&w);
    sched_world_free(&w);
    return elements;
}

/* Ranks dealt out in turn to three hosts: what follows the order of hosts is proved right, and crosses hosts
 * less than by rank, where nearly every message of a ring crosses. */
static void test_orders(void **state)
{
    (void)state;
    static const struct {
        coll_algo_t algo;
        coll_op_t op;
        int fast;
        size_t less; /* by this factor, over all n. 1: the canonical ring goes by rank from 13 ranks on */
    } rows[] = {{COLL_RING, COLL_ALL_GATHER, 0, 10},     {COLL_RING, COLL_BROADCAST, 0, 10},
                {COLL_RING, COLL_ALL_REDUCE, 1, 10},     {COLL_RING, COLL_REDUCE_SCATTER, 1, 10},
                {COLL_RING, COLL_ALL_REDUCE, 0, 1},      {COLL_RING, COLL_REDUCE_SCATTER, 0, 1},
                {COLL_RING, COLL_REDUCE, 0, 1},          {COLL_BINOMIAL, COLL_BROADCAST, 0, 5},
                {COLL_TREE, COLL_BROADCAST, 0, 3},       {COLL_TREE, COLL_ALL_REDUCE, 1, 5},
                {COLL_BUTTERFLY, COLL_ALL_REDUCE, 1, 5}, {COLL_SWING, COLL_ALL_REDUCE, 1, 4},
                {COLL_BINE, COLL_ALL_REDUCE, 1, 4},      {COLL_BINE, COLL_BROADCAST, 0, 4},
                {COLL_PAT, COLL_ALL_REDUCE, 1, 4}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t sums[2] = {0, 0};
        for (int n = 6; n <= (SANITIZED ? 12 : 64); n += all_ranks == ALL_LONG || n < 24 ? 1 : 8) {
            const size_t by_rank = proved_crossing(rows[i].algo, rows[i].op, rows[i].fast, n, ORDER_RANK);
            const size_t ordered = proved_crossing(rows[i].algo, rows[i].op, rows[i].fast, n, ORDER_HOSTS);
            assert_true(ordered <= by_rank);
            sums[0] += by_rank;
            sums[1] += ordered;
        }
        if (SANITIZED ? sums[1] >= sums[0] : rows[i].less * sums[1] >= sums[0])
            fail_msg("%s %s: %zu elements cross hosts in their order, %zu by rank",
                     coll_algo_name(rows[i].algo), coll_op_name(rows[i].op), sums[1], sums[0]);
    }
}

int main(int argc, char **argv)
{
    if (getenv("TEST_LONG"))
        all_ranks = SANITIZED ? ALL_SANITIZED_LONG : ALL_LONG;
    else
        all_ranks = SANITIZED ? ALL_SANITIZED : ALL_PLAIN;
    if (argc > 2)
        all_ranks = atoi(argv[2]);
    print_message("all of 1 to %d ranks\n", all_ranks);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
#define ALGORITHM(id, name, ...) cmocka_unit_test(test_##name),
#include "collectives/schedules/algorithms.def"
#undef ALGORITHM
        cmocka_unit_test(test_samples),
        cmocka_unit_test(test_tmp),
        cmocka_unit_test(test_orders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
