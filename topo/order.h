/* topo/order.h: orders over ranks as pure functions: no machine, no memory of their own. */
#ifndef TOPO_ORDER_H
#define TOPO_ORDER_H

#include "topo/topo.h"

/* A ring over n places that visits near ones next to each other. near[a * n + b]: distance of a and b, smaller is
 * nearer, symmetric. order: [n], order[0] == 0. Nearest neighbour, then 2-opt until no swap helps. */
gyre_status_t topo_ring_order(int n, const unsigned char *near, int *order);

/* Double binary tree over 0..n-1 (Sanders, Speck, Traeff 2009): two trees in which no rank is an inner node of
 * both. tree: 0 or 1. parent -1 at the root; absent children -1. */
typedef struct {
    int parent, child[2];
} topo_tree_node_t;
topo_tree_node_t topo_double_tree(int n, int rank, int tree);

/* Butterfly over n ranks: at level k the partner blocks of `rank`'s aligned block of 2^k ranks. */
int topo_butterfly_levels(int n);

/* Hierarchy: groups (0..) of ranks that share a host, then an L3 or NUMA node, then a package. level 0 is the
 * smallest. group: [n]. Returns the number of groups. host, numa, package: [n], -1 unknown. */
int topo_hierarchy(int n, const int *host, const int *package, const int *numa, int level, int *group);

#endif
