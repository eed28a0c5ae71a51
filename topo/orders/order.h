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

/* Butterfly over n ranks: at level k the aligned block of 2^k ranks that holds `rank` meets its neighbour.
 * Levels: ceil(log2 n); 0 for n <= 1. */
int topo_butterfly_levels(int n);
/* The block that `rank`'s block meets at `level`: ranks *first .. *first + result - 1. Fewer than 2^level of
 * them, or none (result 0), where n ends. */
int topo_butterfly_partner(int n, int rank, int level, int *first);

/* Hierarchy: groups (0.., in the order of their lowest rank) of ranks that share
 *     level 0: host, package and NUMA node (or whatever small domain the caller numbers in numa)
 *     level 1: host and package
 *     level 2: host
 *     level 3 and above: the job
 * group: [n]. Returns the number of groups; 0 if n < 1, level < 0 or group is NULL. host, package, numa: [n];
 * package and numa need be unique on their host only. NULL: host the same for all, package or numa unknown. A
 * host of -1 is unknown and thus shared with nobody; a package or numa of -1 is a domain of its own kind, as
 * if the host were not divided there. */
int topo_hierarchy(int n, const int *host, const int *package, const int *numa, int level, int *group);

#endif
