/* SPDX-License-Identifier: Apache-2.0 */
/* one thread: TSan has nothing to see */
/* tests/collectives/schedules/test_rules.c: the rules inside a host (collectives/choose/select.c) on
 * machines that are not here: what they weigh, and whether the simulator agrees with what they choose. */
#include <fenv.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "collectives/choose/choose.h"
#include "collectives/proof/simulate/simulate.h"

enum { MOST = 64, ESIZE = 4 };

typedef struct {
    coll_op_t op;
    int n, cells, cores;
    size_t bytes; /* of the vector, or of a block */
} case_t;

static int part_of[MOST];
static size_t counts[MOST], displs[MOST];

static coll_args_t args_of(const case_t *c)
{
    const size_t count = c->op == COLL_BARRIER ? 0 : c->bytes / ESIZE;
    const int blocks = !coll_op_is_vector(c->op) && c->op != COLL_BARRIER;
    for (int r = 0; r < c->n; r++) {
        part_of[r] = r / (c->n / c->cells);
        counts[r] = count;
        displs[r] = (size_t)r * count;
    }
    return (coll_args_t){.op = c->op,
                         .n = c->n,
                         .count = count,
                         .uniform = !coll_op_is_vector(c->op),
                         .chunk = (256 << 10) / ESIZE,
                         .host = part_of,
                         .counts = blocks ? counts : NULL,
                         .displs = blocks ? displs : NULL,
                         .rcounts = blocks ? counts : NULL,
                         .rdispls = blocks ? displs : NULL};
}

static coll_choice_t choice_of(const case_t *c, const coll_args_t *args)
{
    coll_facts_t facts = {.hosts = 1, .parts = c->cells, .algo = ""};
    coll_choice_t choice;
    coll_cost_builtin(&facts.cost);
    facts.cost.cores = c->cores;
    assert_int_equal(coll_select(&facts, args, ESIZE, 0, &choice), GYRE_OK);
    return choice;
}

static coll_algo_t algo_of(case_t c)
{
    const coll_args_t args = args_of(&c);
    return choice_of(&c, &args).algo;
}

/* Log n rounds for short messages of many ranks, each with a core of its own. */
static void test_few_rounds(void **state)
{
    (void)state;
    static const coll_op_t ops[] = {COLL_ALL_REDUCE, COLL_REDUCE_SCATTER, COLL_ALL_GATHER, COLL_BROADCAST,
                                    COLL_REDUCE,     COLL_GATHER,         COLL_SCATTER};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        const coll_algo_t few =
            ops[i] == COLL_ALL_REDUCE || ops[i] == COLL_REDUCE_SCATTER || ops[i] == COLL_ALL_GATHER
                ? COLL_BUTTERFLY
                : COLL_BINOMIAL;
        assert_int_equal(algo_of((case_t){ops[i], 16, 1, 16, 64}), few);
        assert_int_equal(algo_of((case_t){ops[i], 4, 1, 16, 64}), COLL_DIRECT);         /* few ranks */
        assert_int_equal(algo_of((case_t){ops[i], 16, 1, 15, 64}), COLL_DIRECT);        /* they take turns */
        assert_int_equal(algo_of((case_t){ops[i], 16, 1, 16, 256 << 10}), COLL_DIRECT); /* much to move */
    }
    assert_int_equal(algo_of((case_t){COLL_BARRIER, 16, 1, 16, 0}), COLL_BUTTERFLY);
    assert_int_equal(algo_of((case_t){COLL_ALL_TO_ALL, 16, 1, 16, 64}), COLL_DIRECT);
}

/* The cells of a host decide over reductions to a root, and over all_gather. */
static void test_cells(void **state)
{
    (void)state;
    const size_t large = 256 << 10;
    assert_int_equal(algo_of((case_t){COLL_REDUCE, 48, 6, 48, large}), COLL_HIERARCHICAL);
    assert_int_not_equal(algo_of((case_t){COLL_REDUCE, 48, 1, 48, large}), COLL_HIERARCHICAL); /* no cells */
    assert_int_not_equal(algo_of((case_t){COLL_REDUCE, 48, 6, 2, large}), COLL_HIERARCHICAL);  /* turns */
    assert_int_not_equal(algo_of((case_t){COLL_REDUCE, 48, 6, 48, 8}), COLL_HIERARCHICAL);     /* few bytes */
    assert_int_not_equal(algo_of((case_t){COLL_REDUCE, 8, 2, 48, large}), COLL_HIERARCHICAL);  /* few ranks */
    assert_int_equal(algo_of((case_t){COLL_ALL_GATHER, 48, 6, 48, large}), COLL_HIERARCHICAL);
    assert_int_equal(algo_of((case_t){COLL_ALL_GATHER, 48, 6, 48, 16 << 10}), COLL_HIERARCHICAL);
    assert_int_equal(algo_of((case_t){COLL_ALL_GATHER, 48, 1, 48, large}), COLL_BUTTERFLY);
    assert_int_equal(algo_of((case_t){COLL_ALL_GATHER, 48, 6, 2, large}), COLL_BUTTERFLY);
    assert_int_equal(algo_of((case_t){COLL_ALL_GATHER, 48, 6, 48, 4096}), COLL_BUTTERFLY);
}

/* A broadcast goes in chunks where the kernel's copies cost more than staging, and as GYRE_CHUNK says. */
static void test_chunks(void **state)
{
    (void)state;
    const case_t c = {COLL_BROADCAST, 8, 1, 8, 4 << 20};
    const coll_args_t args = args_of(&c);
    coll_facts_t facts = {.hosts = 1, .parts = 1, .reach = 1, .algo = ""};
    coll_choice_t choice;
    coll_cost_builtin(&facts.cost);
    facts.cost.peer_cache = 30;
    facts.cost.peer_stage = 15;
    facts.cost.cache_bytes = 1 << 20;
    facts.cost.cma_memory = 10;
    assert_int_equal(coll_select(&facts, &args, ESIZE, 0, &choice), GYRE_OK);
    assert_int_equal(choice.algo, COLL_DIRECT);
    assert_int_equal(choice.chunk * ESIZE, 256 << 10);
    facts.cost.cma_memory = 100;
    assert_int_equal(coll_select(&facts, &args, ESIZE, 0, &choice), GYRE_OK);
    assert_int_equal(choice.chunk, args.count);
    facts.chunk = 64 << 10;
    assert_int_equal(coll_select(&facts, &args, ESIZE, 0, &choice), GYRE_OK);
    assert_int_equal(choice.chunk * ESIZE, 64 << 10);
}

/* Under gfortran's -ffpe-trap or feenableexcept a division by zero ends the program: no rule raises one, also
 * on 1 rank. */
static void test_no_traps(void **state)
{
    (void)state;
    for (int op = 1; op < COLL_OP_END; op++)
        for (int n = 1; n <= 9; n++)
            for (size_t bytes = 0; bytes <= 16 << 20; bytes = bytes ? bytes * 16 : 16)
                for (int measured = 0; measured < 2; measured++) {
                    const case_t c = {(coll_op_t)op, n, 1, 4, bytes};
                    const coll_args_t args = args_of(&c);
                    coll_facts_t facts = {.hosts = 1, .parts = 1, .reach = 1, .algo = ""};
                    coll_choice_t choice;
                    coll_cost_builtin(&facts.cost);
                    if (measured) {
                        facts.cost.peer_cache = 30;
                        facts.cost.peer_write = 10;
                        facts.cost.peer_stage = 15;
                        facts.cost.cma_rate = 10;
                        facts.cost.cma_memory = 10;
                    }
                    feclearexcept(FE_ALL_EXCEPT);
                    assert_int_equal(coll_select(&facts, &args, ESIZE, 0, &choice), GYRE_OK);
                    if (fetestexcept(FE_DIVBYZERO | FE_INVALID | FE_OVERFLOW))
                        fail_msg("%s, %d ranks, %zu bytes: floating-point exceptions %#x", coll_op_name(c.op),
                                 n, bytes, (unsigned)fetestexcept(FE_DIVBYZERO | FE_INVALID | FE_OVERFLOW));
                }
}

static double predict(const case_t *c, coll_algo_t algo, int one_shot, coll_memory_t memory)
{
    coll_args_t args = args_of(c);
    coll_cost_t cost;
    double ns = 0;
    coll_cost_builtin(&cost);
    cost.cores = c->cores;
    args.one_shot = one_shot;
    return coll_predict(&cost, &args, algo, ESIZE, memory, &ns) == GYRE_OK ? ns : 0;
}

/* Of the flat schedule and those with log n rounds, whatever a rule takes is at most so much slower than the
 * fastest, by the simulator, in memory of either kind. */
static const double NEVER_SLOWER = 1.6;

static void test_simulator_agrees(void **state)
{
    (void)state;
    static const int ranks[] = {4, 8, 12, 16, 24, 32};
    static const coll_algo_t algos[] = {COLL_DIRECT, COLL_BUTTERFLY, COLL_BINOMIAL};
    int left = 0;
    for (int op = 1; op < COLL_OP_END; op++)
        for (size_t k = 0; k < sizeof ranks / sizeof *ranks; k++)
            for (size_t bytes = 8; bytes <= 4096; bytes *= 8) {
                const case_t c = {(coll_op_t)op, ranks[k], 1, 64, bytes};
                const coll_args_t args = args_of(&c);
                const coll_choice_t choice = choice_of(&c, &args);
                left += choice.algo != COLL_DIRECT;
                for (int i = 0; i < 6; i++) {
                    const coll_memory_t memory = (coll_memory_t)(i % 2);
                    const double other = predict(&c, algos[i / 2], choice.one_shot, memory);
                    const double ours = predict(&c, choice.algo, choice.one_shot, memory);
                    assert_true(ours > 0);
                    if (other > 0 && ours > NEVER_SLOWER * other)
                        fail_msg("%s, %d ranks, %zu bytes: %s takes %.0f ns, %s %.0f", coll_op_name(c.op),
                                 c.n, bytes, coll_algo_name(choice.algo), ours, coll_algo_name(algos[i / 2]),
                                 other);
                }
            }
    assert_true(left > 40); /* both kinds are chosen */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_few_rounds),       cmocka_unit_test(test_cells),
        cmocka_unit_test(test_chunks),           cmocka_unit_test(test_no_traps),
        cmocka_unit_test(test_simulator_agrees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
