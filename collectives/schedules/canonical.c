/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/schedules/canonical.c: arithmetic on the canonical reduction tree (see the header). */
#include "collectives/schedules/canonical.h"

int coll_power_below(int n)
{
    int power = 1;
    while (power <= n / 2)
        power *= 2;
    return power;
}

int coll_levels(int n)
{
    int levels = 0;
    while (levels < 31 && (1L << levels) < n)
        levels++;
    return levels;
}

int coll_node_split(coll_node_t node)
{
    return node.lo + coll_power_below(coll_node_size(node) - 1);
}

coll_node_t coll_node_parent(int n, coll_node_t node)
{
    coll_node_t at = {0, n};
    for (;;) {
        int split = coll_node_split(at);
        coll_node_t next = node.lo < split ? (coll_node_t){at.lo, split} : (coll_node_t){split, at.hi};
        if (coll_node_equal(next, node) || coll_node_size(next) < 2)
            return at;
        at = next;
    }
}

coll_node_t coll_node_sibling(int n, coll_node_t node)
{
    coll_node_t parent = coll_node_parent(n, node);
    int split = coll_node_split(parent);
    return node.lo < split ? (coll_node_t){split, parent.hi} : (coll_node_t){parent.lo, split};
}

coll_node_t coll_node_of_split(int n, int split)
{
    int half = split & -split;
    return (coll_node_t){split - half, half < n - split ? split + half : n};
}

/* The node of level k (up to 2^k ranks) that holds `rank`. */
static coll_node_t coll_node_at(int n, int rank, int level)
{
    int size = 1 << level, lo = rank & ~(size - 1);
    return (coll_node_t){lo, size < n - lo ? lo + size : n};
}

coll_node_t coll_node_first_inside(int n, int lo, int hi)
{
    coll_node_t node = {lo, lo + 1};
    for (int size = 2; size > 0 && lo % size == 0; size *= 2) {
        int end = size < n - lo ? lo + size : n;
        if (end > hi)
            break;
        node.hi = end;
        if (end == n)
            break;
    }
    return node;
}

int coll_merge_at(int n, int rank, int level, coll_merge_t *m)
{
    coll_node_t both = coll_node_at(n, rank, level + 1);
    if (coll_node_size(both) <= 1 << level)
        return 0;
    int split = both.lo + (1 << level);
    m->both = both;
    m->left = (coll_node_t){both.lo, split};
    m->right = (coll_node_t){split, both.hi};
    m->is_left = rank < split;
    m->mine = m->is_left ? m->left : m->right;
    m->other = m->is_left ? m->right : m->left;
    m->is_last = coll_node_size(both) == n;
    return 1;
}
