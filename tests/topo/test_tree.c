/* SPDX-License-Identifier: Apache-2.0 */
/* tests/topo/test_tree.c: the double tree for every n to 1025, the butterfly, and groups of ranks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "topo/orders/order.h"

enum { MOST = 1025 };

/* Follows parents from `rank` to the root; more than `limit` steps would be a circle or too deep a tree. */
static int depth_of(int n, int rank, int tree, int limit)
{
    int depth = 0;
    for (int at = rank; (at = topo_double_tree(n, at, tree).parent) >= 0;)
        if (++depth > limit)
            return depth;
    return depth;
}

/* One root; parent and child agree about each other; every rank reaches the root within ceil(log2 n) + 1
 * steps. */
static void expect_spanning(int n, int tree)
{
    int roots = 0, edges = 0, limit = topo_butterfly_levels(n) + 1;
    for (int rank = 0; rank < n; rank++) {
        topo_tree_node_t node = topo_double_tree(n, rank, tree);
        roots += node.parent < 0;
        if (node.parent >= 0) {
            topo_tree_node_t parent = topo_double_tree(n, node.parent, tree);
            assert_true(node.parent < n);
            assert_true(parent.child[0] == rank || parent.child[1] == rank);
        }
        for (int i = 0; i < 2; i++) {
            if (node.child[i] < 0)
                continue;
            edges++;
            assert_true(node.child[i] < n);
            assert_int_equal(topo_double_tree(n, node.child[i], tree).parent, rank);
        }
        assert_true(node.child[0] >= 0 || node.child[1] < 0);
        assert_true(node.child[0] != node.child[1] || node.child[0] < 0);
        assert_true(depth_of(n, rank, tree, limit) <= limit);
    }
    assert_int_equal(roots, 1);
    assert_int_equal(edges, n - 1);
}

static void trees(void **state)
{
    (void)state;
    for (int n = 1; n <= MOST; n++) {
        expect_spanning(n, 0);
        expect_spanning(n, 1);
        for (int rank = 0; rank < n; rank++) {
            int inner0 = topo_double_tree(n, rank, 0).child[0] >= 0;
            int inner1 = topo_double_tree(n, rank, 1).child[0] >= 0;
            assert_false(inner0 && inner1);
        }
    }
}

static void outside(void **state)
{
    (void)state;
    static const int cases[][2] = {{0, 0}, {-3, 0}, {4, -1}, {4, 4}};
    for (int i = 0; i < 4; i++) {
        topo_tree_node_t node = topo_double_tree(cases[i][0], cases[i][1], i & 1);
        assert_int_equal(node.parent, -1);
        assert_int_equal(node.child[0], -1);
        assert_int_equal(node.child[1], -1);
    }
}

/* After the last level every rank has met every other exactly once. */
static void butterfly(void **state)
{
    (void)state;
    assert_int_equal(topo_butterfly_levels(0), 0);
    assert_int_equal(topo_butterfly_levels(1), 0);
    assert_int_equal(topo_butterfly_levels(2), 1);
    assert_int_equal(topo_butterfly_levels(5), 3);
    assert_int_equal(topo_butterfly_levels(1 << 20), 20);
    for (int n = 1; n <= 70; n++) {
        for (int rank = 0; rank < n; rank++) {
            int met[70] = {0};
            met[rank] = 1;
            for (int level = 0; level < topo_butterfly_levels(n); level++) {
                int first, count = topo_butterfly_partner(n, rank, level, &first);
                assert_true(count >= 0 && count <= 1 << level && first + count <= n);
                for (int other = first; other < first + count; other++)
                    met[other]++;
            }
            for (int other = 0; other < n; other++)
                assert_int_equal(met[other], 1);
        }
    }
    int first = 9;
    assert_int_equal(topo_butterfly_partner(4, 4, 0, &first), 0);
    assert_int_equal(topo_butterfly_partner(4, -1, 0, &first), 0);
    assert_int_equal(topo_butterfly_partner(4, 0, 2, &first), 0);
}

static void expect_groups(const int *group, const int *wanted, int n)
{
    for (int i = 0; i < n; i++)
        assert_int_equal(group[i], wanted[i]);
}

static void hierarchy(void **state)
{
    (void)state;
    static const int host[8] = {3, 3, 3, 3, 9, 9, 9, 9}, package[8] = {0, 0, 1, 1, 0, 0, 1, 0};
    static const int numa[8] = {0, 1, 2, 2, 0, 0, 2, 0};
    static const int level0[8] = {0, 1, 2, 2, 3, 3, 4, 3}, level1[8] = {0, 0, 1, 1, 2, 2, 3, 2};
    static const int level2[8] = {0, 0, 0, 0, 1, 1, 1, 1}, level3[8] = {0};
    int group[8];
    assert_int_equal(topo_hierarchy(8, host, package, numa, 0, group), 5);
    expect_groups(group, level0, 8);
    assert_int_equal(topo_hierarchy(8, host, package, numa, 1, group), 4);
    expect_groups(group, level1, 8);
    assert_int_equal(topo_hierarchy(8, host, package, numa, 2, group), 2);
    expect_groups(group, level2, 8);
    assert_int_equal(topo_hierarchy(8, host, package, numa, 3, group), 1);
    expect_groups(group, level3, 8);
}

static void hierarchy_of_the_unknown(void **state)
{
    (void)state;
    static const int host[4] = {-1, -1, 2, 2}, unknown[4] = {-1, -1, -1, -1};
    static const int wanted[4] = {0, 1, 2, 2};
    int group[4];
    for (int level = 0; level < 3; level++) {
        assert_int_equal(topo_hierarchy(4, host, unknown, unknown, level, group), 3);
        expect_groups(group, wanted, 4);
        assert_int_equal(topo_hierarchy(4, host, NULL, NULL, level, group), 3);
        assert_int_equal(topo_hierarchy(4, NULL, NULL, NULL, level, group), 1);
    }
    assert_int_equal(topo_hierarchy(0, host, NULL, NULL, 0, group), 0);
    assert_int_equal(topo_hierarchy(4, host, NULL, NULL, -1, group), 0);
    assert_int_equal(topo_hierarchy(4, host, NULL, NULL, 0, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trees),
        cmocka_unit_test(outside),
        cmocka_unit_test(butterfly),
        cmocka_unit_test(hierarchy),
        cmocka_unit_test(hierarchy_of_the_unknown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
