/* SPDX-License-Identifier: Apache-2.0 */
/* one thread: TSan has nothing to see */
/* Which rank has which sequences of a batch: equal shares that are subtrees, leaves of several sequences. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/log.h"
#include "optim/batch.h"
#include "optim/ramp.h"
#include "optim/tree.h"

/* Whether equal shares are subtrees, node by node. */
static int by_nodes(size_t share, size_t group, size_t ranks)
{
    if (ranks < 2)
        return 1;
    size_t left = optim_tree_split(ranks, 1);
    return optim_tree_split(share * ranks, group) == left * share && by_nodes(share, group, left) &&
           by_nodes(share, group, ranks - left);
}

/* optim_batch_invariant looks at few of the nodes and finds what all of them say, and optim_batch_share goes
 * by the same. */
static void equal_subtrees(void **state)
{
    (void)state;
    size_t found[2] = {0, 0}, next = 0;
    for (size_t ranks = 1; ranks <= 260; ranks++)
        for (size_t share = 1; share <= 13; share++)
            for (size_t groups = 1; groups <= ranks * share; groups++) {
                optim_batch_t batch = {.batch = ranks * share, .groups = groups, .equal = 1};
                if (batch.batch % groups != 0)
                    continue;
                const int all = by_nodes(share, batch.batch / groups, ranks);
                size_t first = 0, count = 0, rank = ranks - 1;
                assert_int_equal(optim_batch_invariant(&batch, ranks), all);
                batch.equal = 0;
                optim_batch_share(&batch, ranks, rank, &first, &count);
                assert_true(!all || (first == rank * share && count == share));
                found[all]++;
            }
    assert_true(found[0] > 1000 && found[1] > 1000);
    const optim_batch_t large = {.batch = 3 << 15, .groups = 1 << 15};
    for (size_t rank = 0; rank < 3 << 13; rank++) {
        size_t first, count;
        optim_batch_share(&large, 3 << 13, rank, &first, &count);
        assert_int_equal(first, next);
        next += count;
    }
    assert_int_equal(next, large.batch);
}

/* Leaves of several sequences are shared out as single ones are, and the refusals name what is accepted. */
static void leaves_of_several(void **state)
{
    (void)state;
    for (size_t n = 1; n <= 24; n++)
        for (size_t ranks = 1; ranks <= n; ranks++)
            for (size_t leaf = 2; leaf <= 6; leaf += 2) {
                const optim_batch_t one = {.batch = n}, several = {.batch = n * leaf, .leaf = leaf};
                assert_int_equal(optim_batch_check(&several, ranks), GYRE_OK);
                assert_int_equal(optim_batch_group(&several), leaf * optim_batch_group(&one));
                assert_int_equal(optim_batch_leaves(&several, several.batch), n);
                for (size_t r = 0; r < ranks; r++) {
                    size_t first, count, want_first, want_count;
                    optim_batch_share(&several, ranks, r, &first, &count);
                    optim_batch_share(&one, ranks, r, &want_first, &want_count);
                    assert_int_equal(first, leaf * want_first);
                    assert_int_equal(count, leaf * want_count);
                }
            }
    for (size_t size = 1; size < 20; size++)
        for (size_t leaf = 2; leaf < 20; leaf++)
            for (size_t ranks = 1; ranks < 9; ranks++) {
                optim_batch_t less = {.batch = size, .leaf = leaf}, more = less;
                if (optim_batch_check(&less, ranks) == GYRE_OK)
                    continue;
                const char *text = gyre_last_error(), *take = strstr(text, "take --grad-sequences "),
                           *batch = strstr(text, "a batch of ");
                while (strstr(batch + 1, "a batch of "))
                    batch = strstr(batch + 1, "a batch of ");
                more.batch = strtoull(batch + strlen("a batch of "), NULL, 10);
                less.leaf = take ? strtoull(take + strlen("take --grad-sequences "), NULL, 10) : 1;
                assert_int_equal(optim_batch_check(&more, ranks), GYRE_OK);
                if (size >= ranks)
                    assert_true(take && optim_batch_check(&less, ranks) == GYRE_OK);
            }
    const optim_ramp_t ramp = {.batch = 16, .start = 4, .increment = 4, .leaf = 4};
    assert_int_equal(optim_ramp_check(&ramp), GYRE_OK);
    const optim_ramp_t odd = {.batch = 16, .start = 4, .increment = 2, .leaf = 4};
    assert_int_equal(optim_ramp_check(&odd), GYRE_ERR_INVALID);
    assert_non_null(strstr(gyre_last_error(), "--grad-sequences"));
}

/* DP 24 of a batch of 4,224 (GLM-130B) has equal shares with 96 groups, and so have 12, 6, 3 and 1. */
static void groups_for_24(void **state)
{
    (void)state;
    const optim_batch_t batch = {.batch = 4224, .groups = 96};
    const size_t ranks[] = {24, 12, 6, 3, 1};
    for (size_t i = 0; i < sizeof ranks / sizeof ranks[0]; i++)
        for (size_t r = 0; r < ranks[i]; r++) {
            size_t first, count;
            optim_batch_share(&batch, ranks[i], r, &first, &count);
            assert_int_equal(count, 4224 / ranks[i]);
        }
}

int main(void)
{
    base_log_set_level(BASE_LOG_NONE);
    const struct CMUnitTest tests[] = {cmocka_unit_test(equal_subtrees), cmocka_unit_test(leaves_of_several),
                                       cmocka_unit_test(groups_for_24)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
