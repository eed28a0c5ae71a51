/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/schedules/tree.c: the double binary tree (Sanders, Speck, Traeff 2009), built on the canonical
 * tree, pipelined.
 *
 * The vector's halves go through two trees, one per channel. The inner node of the canonical tree whose split
 * lies between ranks i and i + 1 lives at rank i in tree 0 and at rank i + 1 in tree 1. Each rank thus hosts
 * at most one inner node per tree, and ranks that do real work in one tree are leaves in the other:
 *
 *      tree 0, n = 5         3 (split 4)
 *                           /  \
 *                  1 (2)        leaf 4
 *                 /    \
 *           0 (1)      2 (3)
 *
 * up    An inner node receives its children's partial vectors, adds them and sends the sum up. A leaf is a
 * rank's own
 *        IN; the leaf next to its own node needs no message.
 * down  From host to host. Each rank is a host exactly once, except rank n - 1 in tree 0 and rank 0 in tree
 * 1, which are
 *        leaves only.
 *
 * all_reduce  reduction, then broadcast from the tree's root, as many chunks later as the way up and down is
 * long. The
 *              trees' shares of the vector are such that no host's link carries more than it must.
 * reduce      reduction; the tree's root passes the result on to `root`. broadcast   ranks renumbered from
 * `root`, which is thus rank 0, never an inner host; it feeds the trees' roots.
 *
 * TMP per channel: 2 chunks for receives, and for reduce 2 for sums. Steps per rank: O(chunks). */
#include "collectives/schedules/generator.h"

enum {
    SINGLE_TREE_BELOW = 16, /* elements: two halves are not worth two sets of messages */
    SHARES = 16,            /* the first tree's share of the vector is a number of these */
    BALANCED_RANKS =
        128 /* more are not looked at, which takes O(n^2) time: halves are right for nearly all of them */
};

typedef struct {
    coll_builder_t *b;
    const coll_args_t *a;
    int tree, rank; /* rank: as numbered in the tree */
    int shift;      /* rank in the communicator = (rank in the tree + shift) mod n */
    int is_host;    /* this rank hosts an inner node */
    coll_node_t node, child[2];
    int root_host, depth;
    int leaf_host;      /* hosts the parent of this rank as a leaf */
    size_t ahead;       /* chunks by which the messages to leaf_host run ahead, see send_leaf */
    coll_range_t range; /* this tree's part of the vector */
    coll_ref_t slots[2], sums[2];
} tree_t;

static int host_of(const tree_t *t, coll_node_t node)
{
    return coll_node_split(node) - 1 + t->tree;
}

/* The rank that sends a child's partial vector: the host of an inner node, or the leaf. */
static int source_of(const tree_t *t, coll_node_t node)
{
    return coll_node_size(node) == 1 ? node.lo : host_of(t, node);
}

static int is_root(const tree_t *t)
{
    return t->rank == t->root_host;
}

static int real_rank(const tree_t *t, int rank)
{
    return (int)(((long)rank + t->shift) % t->a->n);
}

static int depth_of(int n, coll_node_t node)
{
    int depth = 0;
    for (coll_node_t all = {0, n}; !coll_node_equal(node, all); depth++)
        node = coll_node_parent(n, node);
    return depth;
}

/* Messages of each chunk of a tree that cross the link of `rank`'s host on the way up, either way; as many
 * do on the way down. */
static int host_load(const coll_args_t *a, int tree, int rank)
{
    const tree_t t = {.tree = tree};
    int load = 0;
    for (int split = 1; split < a->n; split++) {
        const coll_node_t node = coll_node_of_split(a->n, split);
        const coll_node_t child[2] = {{node.lo, split}, {split, node.hi}};
        const int to = a->host[host_of(&t, node)];
        for (int i = 0; i < 2; i++) {
            const int from = a->host[source_of(&t, child[i])];
            load += from != to && (from == a->host[rank] || to == a->host[rank]);
        }
    }
    return load;
}

/* The share of the vector for tree 0 with which the busiest link between hosts carries least; halves unless
 * another is better by a tenth. It is with 3 hosts of equal size: one tree crosses the middle one's link 3
 * times, the other 2 times. */
static int first_share(const coll_args_t *a)
{
    int most[SHARES + 1] = {0}, best = SHARES / 2;
    if (!a->host || a->n > BALANCED_RANKS)
        return best;
    for (int r = 0; r < a->n; r++) {
        if (r > 0 && a->host[r] == a->host[r - 1])
            continue;
        const int load[2] = {host_load(a, 0, r), host_load(a, 1, r)};
        for (int f = 0; f <= SHARES; f++) {
            const int here = load[0] * f + load[1] * (SHARES - f);
            most[f] = here > most[f] ? here : most[f];
        }
    }
    for (int f = 0; f <= SHARES; f++)
        if (most[f] < most[best] && 10 * most[f] <= 9 * most[SHARES / 2])
            best = f;
    return best;
}

/* share: of tree 0, in SHARES. */
static tree_t tree_of(coll_builder_t *b, const coll_args_t *a, int tree, int shift, int share)
{
    tree_t t = {.b = b, .a = a, .tree = tree, .shift = shift};
    coll_node_t all = {0, a->n};
    t.rank = (int)(((long)a->rank + a->n - shift) % a->n);
    t.root_host = host_of(&t, all);
    int split = t.rank + 1 - tree;
    t.is_host = split >= 1 && split < a->n;
    if (t.is_host) {
        t.node = coll_node_of_split(a->n, split);
        t.child[0] = (coll_node_t){t.node.lo, split};
        t.child[1] = (coll_node_t){split, t.node.hi};
    }
    coll_node_t leaf = {t.rank, t.rank + 1}, at = t.is_host ? t.node : leaf;
    t.leaf_host = host_of(&t, coll_node_parent(a->n, leaf));
    t.depth = depth_of(a->n, at);
    size_t first = a->count < SINGLE_TREE_BELOW
                       ? a->count
                       : base_round_up(a->count - a->count / SHARES * (size_t)(SHARES - share), 16);
    if (share == 0)
        first = 0;
    first = base_min_size(first, a->count);
    t.range = tree == 0 ? (coll_range_t){0, first} : (coll_range_t){first, a->count - first};
    return t;
}

/* Sends this rank's own contribution. leaf_host may also get results from this rank on the same channel, and
 * expects the result of a chunk after the contributions to `ahead` more chunks than this rank would have sent
 * by then. Messages match in order, so the order here must be the receiver's. */
static void send_leaf(const tree_t *t, size_t k)
{
    if (t->leaf_host == t->rank)
        return;
    for (size_t i = k == 0 ? 0 : k + t->ahead; i <= k + t->ahead; i++) {
        coll_range_t part = coll_chunk(t->range, t->a->chunk, i);
        coll_add_send(t->b, t->tree, t->leaf_host, coll_in(part.offset), part.count);
    }
}

/* Adds one chunk up the tree. The sum of this rank's node ends in OUT if `into_out`, else in TMP. Returns
 * where. */
static coll_ref_t reduce_chunk(tree_t *t, size_t k, int into_out)
{
    coll_range_t part = coll_chunk(t->range, t->a->chunk, k);
    send_leaf(t, k);
    if (!t->is_host)
        return coll_out(part.offset);
    coll_ref_t sources[2];
    for (int i = 0; i < 2; i++) {
        int from = source_of(t, t->child[i]);
        sources[i] = from == t->rank ? coll_in(part.offset) : t->slots[i];
        if (from != t->rank)
            coll_add_recv(t->b, t->tree, from, sources[i], part.count);
    }
    coll_ref_t sum = into_out ? coll_out(part.offset) : t->sums[k % 2];
    coll_add_reduce(t->b, t->tree, sum, sources, 2, part.count, is_root(t) ? COLL_FINAL : 0);
    if (!is_root(t))
        coll_add_send(t->b, t->tree, host_of(t, coll_node_parent(t->a->n, t->node)), sum, part.count);
    return sum;
}

/* The rank that hosts no inner node in this tree and hangs on as a leaf. */
static int attached(const tree_t *t)
{
    return t->tree == 0 ? t->a->n - 1 : 0;
}

static void send_down(const tree_t *t, coll_ref_t from, size_t count, int skip)
{
    for (int i = 0; t->is_host && i < 2; i++) {
        int to = source_of(t, t->child[i]);
        if (coll_node_size(t->child[i]) == 1 && to != attached(t))
            continue; /* that leaf is a host elsewhere */
        if (to != skip && to != t->rank)
            coll_add_send(t->b, t->tree, real_rank(t, to), from, count);
    }
}

/* Brings one chunk of OUT down from the parent, and passes it on. skip: a rank that has it already, or -1. */
static void broadcast_chunk(const tree_t *t, size_t k, int skip)
{
    coll_range_t part = coll_chunk(t->range, t->a->chunk, k);
    coll_ref_t at = coll_out(part.offset);
    if (!is_root(t)) {
        coll_node_t mine = t->is_host ? t->node : (coll_node_t){t->rank, t->rank + 1};
        int parent = host_of(t, coll_node_parent(t->a->n, mine));
        coll_add_recv(t->b, t->tree, real_rank(t, parent), at, part.count);
    }
    send_down(t, at, part.count, skip);
}

static void make_room(tree_t *t, int sums)
{
    size_t count = base_min_size(t->a->chunk, t->range.count);
    for (int i = 0; i < 2 && t->is_host; i++) {
        t->slots[i] = coll_tmp(t->b, count);
        if (sums)
            t->sums[i] = coll_tmp(t->b, count);
    }
}

static void all_reduce(coll_builder_t *b, const coll_args_t *a, int tree, int share)
{
    tree_t t = tree_of(b, a, tree, 0, share);
    size_t chunks = coll_chunks(t.range.count, a->chunk), lag = 2 * (size_t)t.depth;
    make_room(&t, 0);
    for (int i = 0; t.is_host && i < 2; i++)
        if (coll_node_size(t.child[i]) > 1 && host_of(&t, t.child[i]) == t.leaf_host)
            t.ahead = 2; /* leaf_host is one level deeper: its lag is greater by 2 */
    for (size_t k = 0; k < chunks + lag; k++) {
        if (k < chunks)
            reduce_chunk(&t, k, 1);
        if (k >= lag && k - lag < chunks)
            broadcast_chunk(&t, k - lag, -1);
    }
}

static void reduce(coll_builder_t *b, const coll_args_t *a, int tree)
{
    tree_t t = tree_of(b, a, tree, 0, SHARES / 2);
    int passes_on = is_root(&t) && a->rank != a->root, receives = a->rank == a->root && !is_root(&t);
    size_t chunks = coll_chunks(t.range.count, a->chunk);
    /* The result of a chunk may be at `root` so many chunks later. Not more: the tree's root waits for `root`
     * to take it before it reuses the memory, two chunks on, and `root` can get two chunks ahead of it per
     * level, provided that no contribution of a leaf holds it up: those are sent early. */
    size_t lag = receives ? (size_t)t.depth + 1 : 0;
    t.ahead = (size_t)coll_levels(a->n) + 1;
    if (passes_on && t.leaf_host == a->root)
        t.ahead = (size_t)depth_of(a->n, coll_node_parent(a->n, (coll_node_t){t.rank, t.rank + 1})) + 1;
    make_room(&t, 1);
    for (size_t k = 0; k < chunks + lag; k++) {
        if (k < chunks) {
            coll_ref_t sum = reduce_chunk(&t, k, is_root(&t) && !passes_on);
            if (passes_on)
                coll_add_send(b, tree, a->root, sum, coll_chunk(t.range, a->chunk, k).count);
        }
        if (receives && k >= lag) {
            coll_range_t part = coll_chunk(t.range, a->chunk, k - lag);
            coll_add_recv(b, tree, real_rank(&t, t.root_host), coll_out(part.offset), part.count);
        }
    }
}

static void broadcast(coll_builder_t *b, const coll_args_t *a, int tree)
{
    tree_t t = tree_of(b, a, tree, a->root, SHARES / 2);
    size_t chunks = coll_chunks(t.range.count, a->chunk);
    for (size_t k = 0; k < chunks; k++) {
        coll_range_t part = coll_chunk(t.range, a->chunk, k);
        coll_ref_t in = coll_in(part.offset), out = coll_out(part.offset);
        if (t.rank == 0) {
            if (is_root(&t))
                send_down(&t, in, part.count, 0);
            else
                coll_add_send(b, tree, real_rank(&t, t.root_host), in, part.count);
        } else if (is_root(&t)) {
            coll_add_recv(b, tree, a->root, out, part.count);
            send_down(&t, out, part.count, 0);
        } else {
            broadcast_chunk(&t, k, 0);
        }
    }
    if (tree == 0 && t.rank == 0)
        coll_add_own_copy(b, a);
}

void coll_generate_tree(coll_builder_t *b, const coll_args_t *args)
{
    const int share = args->op == COLL_ALL_REDUCE ? first_share(args) : 0;
    for (int tree = 0; tree < 2; tree++) {
        if (args->op == COLL_ALL_REDUCE)
            all_reduce(b, args, tree, share);
        else if (args->op == COLL_REDUCE)
            reduce(b, args, tree);
        else
            broadcast(b, args, tree);
    }
}

size_t coll_tree_places(const coll_tmp_ask_t *ask)
{
    return ask->op == COLL_REDUCE ? 8 : 4;
}
