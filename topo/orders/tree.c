/* SPDX-License-Identifier: Apache-2.0 */
/* topo/orders/tree.c: double binary trees and the butterfly, as functions of (n, rank).
 *
 * Peter Sanders, Jochen Speck, Jesper Larsson Traeff: Two-tree algorithms for full bandwidth broadcast,
 * reduction and scan. Parallel Computing 35 (2009), section 3. */
#include "topo/orders/order.h"

/* The in-order binary tree over places 1..n: a place whose lowest set bit is 2^k lies k levels above the
 * leaves, so odd places are leaves and even ones inner nodes. n = 6:
 *
 *            4
 *          /   \
 *        2       6
 *       / \     /
 *      1   3   5
 */
static topo_tree_node_t in_order(int n, int place)
{
    topo_tree_node_t node = {.parent = -1, .child = {-1, -1}};
    unsigned low = (unsigned)place & -(unsigned)place, limit = (unsigned)n;
    /* The parent has the next higher bit as its lowest one: on our right if it exists and clears to us,
     * else left. */
    unsigned up = ((unsigned)place ^ low) | (low << 1);
    if (up > limit)
        up = (unsigned)place ^ low;
    if (up != 0) /* 0: the highest power of two, the root */
        node.parent = (int)up;
    if (low > 1)
        node.child[0] = place - (int)(low >> 1);
    /* The right subtree may be cut short by n: its root is then the highest that fits. */
    for (unsigned half = low >> 1; half > 0 && node.child[1] < 0; half >>= 1)
        if ((unsigned)place + half <= limit)
            node.child[1] = place + (int)half;
    return node;
}

/* Tree 1 is tree 0 with the ranks renamed such that even and odd places change roles: mirrored for even n;
 * for odd n, where the mirror would keep the roles, shifted by one (place n, a leaf, becomes rank 0). */
static int place_of(int n, int rank, int tree)
{
    if (tree == 0)
        return rank + 1;
    return n % 2 == 0 ? n - rank : (rank + n - 1) % n + 1;
}

static int rank_of(int n, int place, int tree)
{
    if (place < 0)
        return -1;
    if (tree == 0)
        return place - 1;
    return n % 2 == 0 ? n - place : place % n;
}

topo_tree_node_t topo_double_tree(int n, int rank, int tree)
{
    if (n < 1 || rank < 0 || rank >= n)
        return (topo_tree_node_t){.parent = -1, .child = {-1, -1}};
    topo_tree_node_t node = in_order(n, place_of(n, rank, tree));
    return (topo_tree_node_t){.parent = rank_of(n, node.parent, tree),
                              .child = {rank_of(n, node.child[0], tree), rank_of(n, node.child[1], tree)}};
}
