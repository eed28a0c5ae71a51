/* SPDX-License-Identifier: Apache-2.0 */
/* tests/collectives/schedules/test_leaves.c: schedules over leaves are proved by the checker for any number
 * of ranks with any number of leaves each, and take no more TMP than their row promises. */
/* one thread: TSan has nothing to see */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/checked.h"
#include "collectives/proof/check/check.h"
#include "collectives/schedules/algorithms.h"
#include "tests/support/random.h"

enum { RANKS = 24 };

static unsigned long proofs;

/* Leaves of each rank: one; a power of two; none here and there; any. */
static void deal(int n, int form, uint64_t *seed, int *leaves)
{
    leaves[0] = 0;
    for (int r = 0; r < n; r++) {
        const int any = (int)(random_next(seed) % 8);
        const int each[] = {1, 4, any % 3, any, r == n / 2 ? 13 : 1, r ? 0 : 16};
        leaves[r + 1] = leaves[r] + each[form];
    }
    leaves[n] += leaves[n] == 0;
}

static size_t longest(const coll_args_t *a, const size_t *counts)
{
    size_t most = a->count;
    for (int r = 0; a->op == COLL_REDUCE_SCATTER && r < a->n; r++)
        most = base_max_size(most, counts[r]);
    return most;
}

static void check_scratch(const coll_args_t *a, const coll_schedule_t *schedules, const size_t *counts)
{
    coll_tmp_ask_t ask = {.op = a->op, .n = a->n, .leaves = a->leaves[a->n]};
    for (int r = 0; r < a->n; r++) {
        const size_t nodes = (size_t)coll_leaf_nodes(a->leaves, a->n, r, a->exact, NULL);
        ask.most_nodes = base_max_size(ask.most_nodes, nodes);
        ask.all_nodes += nodes;
    }
    const size_t blocks = a->op == COLL_REDUCE_SCATTER ? (size_t)a->n : 1;
    const size_t bound = coll_tmp_factor(COLL_LEAVES, &ask) * longest(a, counts) * blocks;
    for (int r = 0; r < a->n && longest(a, counts) >= 4096; r++)
        assert_in_range(schedules[r].tmp_count, 0, bound);
}

static void prove(coll_op_t op, int n, size_t count, size_t chunk, int exact, int form, uint64_t *seed)
{
    static coll_args_t args[RANKS];
    static coll_schedule_t schedules[RANKS];
    size_t counts[RANKS], displs[RANKS], sum = 0;
    int leaves[RANKS + 1];
    char why[400];
    deal(n, form, seed, leaves);
    for (int r = 0; r < n; r++) {
        counts[r] = form == 3 ? (count + (size_t)r) % (count + 2) : count;
        displs[r] = sum;
        sum += counts[r];
    }
    for (int r = 0; r < n; r++) {
        args[r] = (coll_args_t){.op = op,
                                .n = n,
                                .rank = r,
                                .root = n - 1 - (int)(count % (size_t)n),
                                .count = count,
                                .counts = counts,
                                .displs = displs,
                                .exact = exact,
                                .leaves = leaves,
                                .stride = (op == COLL_REDUCE_SCATTER ? sum : count) + (size_t)(form % 2) * 5,
                                .chunk = chunk};
        assert_true(coll_algo_serves(COLL_LEAVES, op, &args[r]));
        assert_false(coll_algo_serves(COLL_DIRECT, op, &args[r]));
        assert_int_equal(coll_schedule_build(COLL_LEAVES, &args[r], &schedules[r]), GYRE_OK);
    }
    if (coll_check(args, schedules, n, why, sizeof why) != GYRE_OK)
        fail_msg("%s, %d ranks, %d leaves (form %d), count %zu, chunk %zu%s: %s", coll_op_name(op), n,
                 leaves[n], form, count, chunk, exact ? ", exact" : "", why);
    check_scratch(&args[0], schedules, counts);
    for (int r = 0; r < n; r++)
        coll_schedule_free(&schedules[r]);
    proofs++;
}

static void test_proofs(void **state)
{
    static const int ranks[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 24};
    static const coll_op_t ops[] = {COLL_ALL_REDUCE, COLL_REDUCE_SCATTER, COLL_REDUCE};
    uint64_t seed = 1;
    (void)state;
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++)
        for (size_t op = 0; op < sizeof ops / sizeof *ops; op++)
            for (int form = 0; form < 6; form++)
                for (int exact = 0; exact < 2; exact++)
                    for (int k = 0; k < 3; k++) {
                        const size_t counts[] = {1, 11, 37}, chunks[] = {100, 3, 7};
                        prove(ops[op], ranks[i], counts[k], chunks[(k + form) % 3], exact, form, &seed);
                    }
    print_message("           %lu proofs\n", proofs);
}

static void test_long(void **state)
{
    uint64_t seed = 2;
    (void)state;
    for (int form = 0; form < 6; form++) {
        prove(COLL_ALL_REDUCE, 4, 5000, 1000, form % 2, form, &seed);
        prove(COLL_REDUCE_SCATTER, 3, 4500, 5000, form % 2, form, &seed);
        prove(COLL_REDUCE, 5, 4096, 900, form % 2, form, &seed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_proofs), cmocka_unit_test(test_long)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
