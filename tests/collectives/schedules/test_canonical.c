/* SPDX-License-Identifier: Apache-2.0 */
/* tests/collectives/schedules/test_canonical.c: the arithmetic of the canonical tree against its definition,
 * shards and chunks, and the time that large schedules take. */
/* one thread: TSan has nothing to see */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "collectives/schedules/generator.h"

enum { MOST = 130 };

/* Visits the tree over n ranks from the top by the definition: split at the largest power of two below the
 * size. */
static void visit(int n, coll_node_t node, coll_node_t parent, coll_node_t sibling)
{
    if (coll_node_size(node) < n) {
        assert_true(coll_node_equal(coll_node_parent(n, node), parent));
        assert_true(coll_node_equal(coll_node_sibling(n, node), sibling));
    }
    if (coll_node_size(node) == 1)
        return;
    int split = 1;
    while (split * 2 < coll_node_size(node))
        split *= 2;
    split += node.lo;
    assert_int_equal(coll_node_split(node), split);
    assert_true(coll_node_equal(coll_node_of_split(n, split), node));
    coll_node_t left = {node.lo, split}, right = {split, node.hi};
    visit(n, left, node, right);
    visit(n, right, node, left);
}

static int is_node(int n, int lo, int hi)
{
    coll_node_t at = {0, n};
    while (at.lo != lo || at.hi != hi) {
        if (coll_node_size(at) == 1)
            return 0;
        int split = coll_node_split(at);
        at = lo < split ? (coll_node_t){at.lo, split} : (coll_node_t){split, at.hi};
    }
    return 1;
}

static void test_nodes(void **state)
{
    (void)state;
    for (int n = 1; n <= MOST; n++) {
        coll_node_t all = {0, n};
        visit(n, all, all, all);
    }
}

static void test_maximal_nodes(void **state)
{
    (void)state;
    for (int n = 1; n <= 40; n++) {
        for (int lo = 0; lo < n; lo++) {
            for (int hi = lo + 1; hi <= n; hi++) {
                coll_node_t first = coll_node_first_inside(n, lo, hi);
                assert_int_equal(first.lo, lo);
                assert_true(first.hi <= hi && is_node(n, first.lo, first.hi));
                for (int longer = first.hi + 1; longer <= hi; longer++)
                    assert_false(is_node(n, lo, longer));
            }
        }
    }
}

static void test_merges(void **state)
{
    (void)state;
    for (int n = 1; n <= MOST; n++) {
        for (int rank = 0; rank < n; rank++) {
            coll_node_t block = {rank, rank + 1};
            for (int level = 0; level < coll_levels(n); level++) {
                coll_merge_t m;
                if (!coll_merge_at(n, rank, level, &m))
                    continue;
                assert_true(coll_node_equal(m.mine, block));
                assert_true(coll_node_equal(m.both, coll_node_parent(n, block)));
                assert_true(coll_node_equal(m.other, coll_node_sibling(n, block)));
                assert_int_equal(m.is_left, m.mine.lo < m.other.lo);
                block = m.both;
                assert_int_equal(m.is_last, coll_node_size(block) == n);
            }
            assert_int_equal(coll_node_size(block), n);
        }
    }
}

static void test_shards(void **state)
{
    (void)state;
    const size_t counts[] = {0, 1, 2, 5, 64, 1000, 16384, 16385, 100003, SIZE_MAX / 16};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        for (int n = 1; n <= MOST; n++) {
            size_t at = 0;
            for (int j = 0; j < n; j++) {
                coll_range_t shard = coll_shard(counts[i], n, j);
                assert_int_equal(shard.offset, at);
                assert_true(shard.count <= coll_shard(counts[i], n, 0).count);
                at += shard.count;
            }
            assert_int_equal(at, counts[i]);
        }
    }
    coll_range_t r = {100, 25};
    assert_int_equal(coll_chunks(25, 10), 3);
    assert_int_equal(coll_chunk(r, 10, 2).offset, 120);
    assert_int_equal(coll_chunk(r, 10, 2).count, 5);
    assert_int_equal(coll_chunk(r, 10, 3).count, 0);
    assert_int_equal(coll_chunks(SIZE_MAX, SIZE_MAX), 1);
}

/* One rank's schedule has steps of its own only, not n * n; a generator that takes quadratic time for them
 * would miss the test's deadline by far. */
static void test_large(void **state)
{
    (void)state;
    const struct {
        coll_algo_t algo;
        int n, fast;
        size_t count;
        uint32_t most_steps;
    } cases[] = {
        {COLL_RING, 4096, 0, (size_t)1 << 24, 150000},   {COLL_RING, 4096, 1, (size_t)1 << 24, 25000},
        {COLL_TREE, 65536, 0, (size_t)1 << 20, 400},     {COLL_BUTTERFLY, 65535, 0, (size_t)1 << 24, 4000},
        {COLL_BINOMIAL, 65536, 0, (size_t)1 << 20, 600}, {COLL_BINE, 4096, 0, (size_t)1 << 24, 15000},
        {COLL_SWING, 4095, 0, (size_t)1 << 24, 60000},   {COLL_PAT, 4095, 0, (size_t)1 << 24, 40000},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        coll_args_t a = {.op = COLL_ALL_REDUCE,
                         .n = cases[i].n,
                         .rank = cases[i].n / 3,
                         .count = cases[i].count,
                         .fast_order = cases[i].fast,
                         .chunk = 1 << 14};
        coll_schedule_t s;
        assert_int_equal(coll_schedule_build(cases[i].algo, &a, &s), GYRE_OK);
        assert_true(s.nsteps > 0 && s.nsteps <= cases[i].most_steps);
        coll_schedule_free(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nodes),  cmocka_unit_test(test_maximal_nodes), cmocka_unit_test(test_merges),
        cmocka_unit_test(test_shards), cmocka_unit_test(test_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
