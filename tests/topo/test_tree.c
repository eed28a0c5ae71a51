/* SPDX-License-Identifier: Apache-2.0 */
/* one thread: TSan has nothing to see */
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
    int roots = 0, edges = 0, limit = 1;
    while (1 << (limit - 1) < n)
        limit++;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trees),
        cmocka_unit_test(outside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
