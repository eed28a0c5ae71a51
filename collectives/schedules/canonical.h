/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/schedules/canonical.h: the canonical reduction tree over ranks 0..n-1, as arithmetic.
 *
 * The tree splits [lo, hi) at lo + the largest power of two below hi - lo, so its nodes are the aligned
 * blocks [b * 2^k, min(n, (b + 1) * 2^k)). A node is named by its range; everything here is O(log n) and
 * needs no memory. */
#ifndef COLLECTIVES_SCHEDULES_CANONICAL_H
#define COLLECTIVES_SCHEDULES_CANONICAL_H

typedef struct {
    int lo, hi; /* ranks lo..hi-1 */
} coll_node_t;

static inline int coll_node_size(coll_node_t node)
{
    return node.hi - node.lo;
}
static inline int coll_node_equal(coll_node_t a, coll_node_t b)
{
    return a.lo == b.lo && a.hi == b.hi;
}
/* For qsort: elements that begin with a node, by its first rank. */
static inline int coll_node_order(const void *a, const void *b)
{
    const int x = ((const coll_node_t *)a)->lo, y = ((const coll_node_t *)b)->lo;
    return (x > y) - (x < y);
}
/* 1 if n is a power of two (n >= 1). */
static inline int coll_is_power(int n)
{
    return (n & (n - 1)) == 0;
}
/* The largest power of two that is <= n (n >= 1). */
int coll_power_below(int n);
/* Number of levels: the smallest k with 2^k >= n. */
int coll_levels(int n);

/* Where an inner node (size >= 2) is cut: its children are [lo, split) and [split, hi). */
int coll_node_split(coll_node_t node);
/* The node's parent and sibling in the tree over n ranks; the node must not be the root. */
coll_node_t coll_node_parent(int n, coll_node_t node);
coll_node_t coll_node_sibling(int n, coll_node_t node);
/* The inner node of the tree over n ranks whose split is `split` (1..n-1). */
coll_node_t coll_node_of_split(int n, int split);

/* The two halves that meet at a level, seen from one rank. */
typedef struct {
    coll_node_t both, left, right, mine, other;
    int is_left, is_last; /* is_last: `both` is the whole tree */
} coll_merge_t;

/* The merge of level `level` (0: pairs) that this rank's block takes part in; 0 if nothing meets it there. */
int coll_merge_at(int n, int rank, int level, coll_merge_t *merge);

/* The largest node that starts at lo and lies within [lo, hi): repeated use from lo = hi of the last one
 * lists the maximal nodes inside an interval in rank order, at most 2 log2 n of them. */
coll_node_t coll_node_first_inside(int n, int lo, int hi);

#endif
