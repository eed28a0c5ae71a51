/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/schedules/leaves.c: reductions in which a rank has any number of inputs, its leaves. The result
 * is the canonical tree over all leaves in rank order, whatever ranks hold them.
 *
 * A rank's leaves are a range of the tree's. The range consists of whole nodes, at most 2 log2 (leaves) of
 * them; the rank adds up each and sends one vector for each to the rank that ends up with the block. That
 * rank adds up the nodes of all ranks as the tree has them. With args.exact it needs the leaves themselves:
 * every leaf is a node.
 *
 *  all_reduce      rank j makes shard j of the vector and sends it to all. In chunks.
 *  reduce_scatter  the first half of that.
 *  reduce          the root makes the whole vector.
 *
 * Before a rank sends chunk k + 1 it has received chunk k: a partial sum stays in its place until it is sent.
 * TMP: a chunk per node of another rank, per node of this rank and peer, and per level of the tree. */
#include "collectives/schedules/generator.h"

enum { SOURCES = 256 }; /* of a step that adds up nodes */

typedef struct {
    coll_builder_t *b;
    const coll_args_t *a;
    coll_node_t *nodes; /* of all ranks, in order */
    coll_ref_t *at;     /* [total] where each lies, for the chunk at hand */
    int *first;         /* [n + 1] the nodes of rank r are first[r] .. first[r + 1] - 1 */
    coll_ref_t *leaf;   /* scratch: sources of this rank's sums */
    coll_ref_t received, partial, merged;
    size_t stride; /* between places in TMP */
} leaves_t;

int coll_leaf_nodes(const int *leaves, int n, int rank, int exact, coll_node_t *nodes)
{
    int count = 0;
    for (int at = leaves[rank]; at < leaves[rank + 1]; count++) {
        const coll_node_t node =
            exact ? (coll_node_t){at, at + 1} : coll_node_first_inside(leaves[n], at, leaves[rank + 1]);
        if (nodes)
            nodes[count] = node;
        at = node.hi;
    }
    return count;
}

static int prepare(leaves_t *t, size_t most)
{
    const coll_args_t *a = t->a;
    const int n = a->n;
    t->first = coll_scratch(t->b, (size_t)n + 1, sizeof *t->first);
    if (!t->first)
        return 0;
    for (int r = 0; r < n; r++)
        t->first[r + 1] = t->first[r] + coll_leaf_nodes(a->leaves, n, r, a->exact, NULL);
    const int mine = t->first[a->rank + 1] - t->first[a->rank];
    const size_t total = (size_t)t->first[n], own = (size_t)(a->leaves[a->rank + 1] - a->leaves[a->rank]);
    t->nodes = coll_scratch(t->b, total, sizeof *t->nodes);
    t->at = coll_scratch(t->b, total, sizeof *t->at);
    t->leaf = coll_scratch(t->b, own + 1, sizeof *t->leaf);
    if (!t->nodes || !t->at || !t->leaf)
        return 0;
    for (int r = 0; r < n; r++)
        coll_leaf_nodes(a->leaves, n, r, a->exact, t->nodes + t->first[r]);
    t->stride = base_round_up(base_min_size(a->chunk, most), 64);
    t->received = coll_tmp_slots(t->b, total - (size_t)mine, t->stride);
    t->partial = coll_tmp_slots(t->b, (size_t)(a->op == COLL_REDUCE ? 1 : n) * (size_t)mine, t->stride);
    t->merged = coll_tmp_slots(t->b, (size_t)coll_levels(a->leaves[n]) + 2, t->stride);
    return 1;
}

/* Node `i` of this rank over `range` of the vector, added up at `place` unless it is one leaf. */
static coll_ref_t own_node(leaves_t *t, int i, coll_range_t range, coll_ref_t place)
{
    const coll_node_t node = t->nodes[i];
    const int mine = t->a->leaves[t->a->rank], size = coll_node_size(node);
    for (int l = 0; l < size; l++)
        t->leaf[l] = coll_in((size_t)(node.lo - mine + l) * t->a->stride + range.offset);
    if (size == 1)
        return t->leaf[0];
    coll_add_reduce(t->b, 0, place, t->leaf, (uint32_t)size, range.count, 0);
    return place;
}

/* This rank's nodes over `range` go to `peer`; its places for partial sums are those of `turn`. */
static void send_nodes(leaves_t *t, int peer, int turn, coll_range_t range)
{
    const int from = t->first[t->a->rank], to = t->first[t->a->rank + 1];
    for (int i = from; i < to && range.count; i++) {
        const size_t slot = (size_t)turn * (size_t)(to - from) + (size_t)(i - from);
        coll_ref_t node = own_node(t, i, range, coll_ref_add(t->partial, slot * t->stride));
        coll_add_send(t->b, 0, peer, node, range.count);
    }
}

/* The nodes of all ranks over `range` come together here. */
static void gather_nodes(leaves_t *t, coll_range_t range)
{
    const coll_args_t *a = t->a;
    size_t slot = 0;
    for (int s = 1; s < a->n; s++) {
        const int peer = coll_rank_before(a, s);
        for (int i = t->first[peer]; i < t->first[peer + 1]; i++) {
            t->at[i] = coll_ref_add(t->received, slot++ * t->stride);
            coll_add_recv(t->b, 0, peer, t->at[i], range.count);
        }
    }
    const int from = t->first[a->rank], to = t->first[a->rank + 1];
    for (int i = from; i < to; i++)
        t->at[i] = own_node(t, i, range, coll_ref_add(t->partial, (size_t)(i - from) * t->stride));
}

/* 1 if the tree over these nodes has the shape of the tree over that many leaves. */
static int is_regular(const coll_node_t *nodes, int count)
{
    const int size = coll_node_size(nodes[0]);
    for (int i = 1; i < count; i++)
        if (coll_node_size(nodes[i]) > size || (coll_node_size(nodes[i]) < size && i + 1 < count))
            return 0;
    return count <= SOURCES && coll_is_power(size);
}

static void combine(leaves_t *t, coll_node_t node, int from, int to, int free, coll_ref_t at, size_t count,
                    int flags);

/* Where `node` lies, which nodes [from, to) make up: in the first free place, unless it is one of these. */
static coll_ref_t add_up(leaves_t *t, coll_node_t node, int from, int to, int free, size_t count)
{
    const coll_ref_t place = coll_ref_add(t->merged, (size_t)free * t->stride);
    if (to - from == 1)
        return t->at[from];
    combine(t, node, from, to, free, place, count, 0);
    return place;
}

/* Adds up nodes [from, to), which make up `node`, at `at`. free: the first place for sums that is not in use;
 * `at` may be that one. */
static void combine(leaves_t *t, coll_node_t node, int from, int to, int free, coll_ref_t at, size_t count,
                    int flags)
{
    if (t->a->exact || to - from == 1 || is_regular(t->nodes + from, to - from)) {
        coll_add_reduce(t->b, 0, at, t->at + from, (uint32_t)(to - from), count, flags);
        return;
    }
    const int split = coll_node_split(node);
    int middle = from;
    while (t->nodes[middle].lo < split)
        middle++;
    const coll_ref_t both[2] = {
        add_up(t, (coll_node_t){node.lo, split}, from, middle, free, count),
        add_up(t, (coll_node_t){split, node.hi}, middle, to, free + 1, count),
    };
    coll_add_reduce(t->b, 0, at, both, 2, count, flags);
}

/* The whole tree, at `to`. */
static void add_up_all(leaves_t *t, coll_ref_t to, size_t count)
{
    const coll_node_t all = {0, t->a->leaves[t->a->n]};
    combine(t, all, 0, t->first[t->a->n], 0, to, count, COLL_FINAL);
}

static void reduce(leaves_t *t)
{
    const coll_args_t *a = t->a;
    for (size_t k = 0; k < coll_chunks(a->count, a->chunk); k++) {
        const coll_range_t range = coll_chunk((coll_range_t){0, a->count}, a->chunk, k);
        if (a->rank != a->root) {
            send_nodes(t, a->root, 0, range);
            continue;
        }
        gather_nodes(t, range);
        add_up_all(t, coll_out(range.offset), range.count);
    }
}

static void reduce_by_blocks(leaves_t *t, size_t most)
{
    const coll_args_t *a = t->a;
    const coll_range_t own = coll_reduced_block(a, a->rank);
    for (size_t k = 0; k < coll_chunks(most, a->chunk); k++) {
        const coll_range_t range = coll_chunk(own, a->chunk, k);
        const coll_ref_t to = coll_out(coll_reduced_out(a) + (range.offset - own.offset));
        for (int s = 1; s < a->n; s++) {
            const int peer = coll_rank_after(a, s);
            send_nodes(t, peer, s, coll_chunk(coll_reduced_block(a, peer), a->chunk, k));
        }
        if (range.count) {
            gather_nodes(t, range);
            add_up_all(t, to, range.count);
        }
        for (int s = 1; s < a->n && a->op == COLL_ALL_REDUCE; s++)
            coll_add_send(t->b, 0, coll_rank_after(a, s), to, range.count);
        for (int s = 1; s < a->n && a->op == COLL_ALL_REDUCE; s++) {
            const int peer = coll_rank_before(a, s);
            const coll_range_t theirs = coll_chunk(coll_reduced_block(a, peer), a->chunk, k);
            coll_add_recv(t->b, 0, peer, coll_out(theirs.offset), theirs.count);
        }
    }
}

void coll_generate_leaves(coll_builder_t *b, const coll_args_t *args)
{
    leaves_t t = {.b = b, .a = args};
    const size_t most = args->op == COLL_REDUCE ? args->count : coll_reduced_most(args);
    if (!prepare(&t, most))
        return;
    if (args->op == COLL_REDUCE)
        reduce(&t);
    else
        reduce_by_blocks(&t, most);
}

size_t coll_leaves_factor(const coll_tmp_ask_t *ask)
{
    const size_t blocks = ask->op == COLL_REDUCE ? 1 : (size_t)ask->n;
    return ask->most_nodes + ask->all_nodes / blocks + (size_t)coll_levels(ask->leaves) / blocks + 4;
}
