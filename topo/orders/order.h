/* SPDX-License-Identifier: Apache-2.0 */
/* topo/orders/order.h: orders over ranks as pure functions: no machine, no memory of their own. */
#ifndef TOPO_ORDERS_ORDER_H
#define TOPO_ORDERS_ORDER_H

#include <gyre/status.h>

/* A ring over n places that visits near ones next to each other. near[a * n + b]: distance of a and b,
 * smaller is nearer, symmetric. order: [n], order[0] == 0. Nearest neighbour, then 2-opt until no swap helps.
 * INVALID: n < 1 or a null pointer. */
gyre_status_t topo_ring_order(int n, const unsigned char *near, int *order);

/* Double binary tree over 0..n-1 (Sanders, Speck, Traeff 2009): two trees in which no rank is an inner node
 * of both. tree: 0 or 1. parent -1 at the root; absent children -1 (child[1] first). All -1 if rank is not in
 * 0..n-1. The two roots differ for n > 1, and neither need be rank 0. Depth: floor(log2 n) edges. */
typedef struct {
    int parent, child[2];
} topo_tree_node_t;
topo_tree_node_t topo_double_tree(int n, int rank, int tree);

#endif
