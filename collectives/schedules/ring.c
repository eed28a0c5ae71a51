/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/schedules/ring.c: everyone talks to the next rank only.
 *
 * Reductions. Shard (or block) o starts at rank o + 1, travels o + 2, ..., and ends at its owner o, each
 * rank adding its own contribution. In step s rank r works on the shard of owner r - 1 - s, so all links
 * are busy all the time.
 *
 *  fast_order   The classic ring: what travels is one partial sum. Volume per link: one vector, whatever n.
 *  otherwise    The canonical ring. A partial sum in ring order is not a node of the canonical tree, so what
 *               travels is the list of partial sums of the maximal canonical subtrees inside the set of
 *               ranks visited so far, which is a cyclic interval: at most 2 log2 n pieces, about log2 n on
 *               average. A rank adds its own contribution as a leaf and combines as long as the sibling of
 *               what it has is in the list; the other pieces pass through. So the result has the bits of
 *               every other algorithm, for any n, at the price of a volume that is larger by the average
 *               number of pieces.
 *
 *  all_reduce      reductions by shards, then all_gather; the shards' first chunks are gathered while the
 * next ones
 *                  are reduced, so that a neighbour that is late for one leaves the link to the other.
 *  reduce_scatter  the reductions.
 *  reduce          one reduction, with owner `root` and the whole vector: a chain.
 *  all_gather      blocks go round, chunk by chunk.
 *  broadcast       a chain from root, chunk by chunk.
 *
 * Over places (coll_args_t.order) the ring visits ranks in another order. All but canonical reductions are
 * renumbered then (algorithms.c). A canonical reduction may follow the order, too: what travels are the
 * maximal subtrees inside the set of ranks visited, whatever that set is, so the bits stay. But an order that
 * tears the canonical tree apart, such as that of 64 ranks dealt out to 2 hosts, makes up to n / 2 pieces.
 * Where a message had more of them than it can have by rank, the reduction goes by rank.
 *
 * The chunks of a shard go round in fours: a rank reuses the memory of a message only when the next rank
 * has long used it, and must never wait for its neighbour to get ahead of itself. TMP: 16 chunks
 * (fast_order), else 8 * (2 log2 n + 1) chunks. Steps per rank and chunk: O(n), canonical O(n log n). */
#include <string.h>

#include "collectives/schedules/generator.h"

enum {
    GROUP = 4,           /* chunks of one shard that are worked on before the next shard */
    SETS = 2 * GROUP,    /* sets of TMP; more than GROUP, see above */
    MOST_PIECES = 3 * 32 /* 2 log2 n, and while they are put together over places, log2 n more */
};

typedef struct {
    coll_builder_t *b;
    const coll_args_t *a;
    const int *order; /* [n] ranks along the ring, and where each is; NULL: by rank */
    int *at;
    int next, before; /* neighbours */
    size_t stride, used;
    coll_ref_t room; /* [SETS][places][stride] */
    size_t places;
} ring_t;

/* One shard as it passes this rank. */
typedef struct {
    int visited; /* ranks that have added theirs before this one */
    coll_node_t came[MOST_PIECES], goes[MOST_PIECES];
    int ncame, ngoes;
    coll_range_t in; /* the shard in IN */
    coll_ref_t out;  /* where the result goes, at the owner */
} passing_t;

/* Messages of one chunk that are at hand at a time, and the sum. */
static size_t places_of(int n, int fast_order)
{
    return fast_order ? 2 : 2 * (size_t)coll_levels(n) + 1;
}

size_t coll_ring_places(const coll_tmp_ask_t *ask)
{
    return SETS * places_of(ask->n, ask->fast_order);
}

size_t coll_ring_factor(const coll_tmp_ask_t *ask)
{
    return ask->one_shot ? coll_plain_factor(ask) : 2 * coll_plain_factor(ask);
}

/* How far along the ring `rank` is. */
static int place_of(const ring_t *ring, int rank)
{
    return ring->order ? ring->at[rank] : rank;
}

/* The rank `steps` places before this one on the ring, 0 <= steps <= n. */
static int rank_before(const ring_t *ring, int steps)
{
    int place = place_of(ring, ring->a->rank) - steps;
    place = place >= 0 ? place : place + ring->a->n;
    return ring->order ? ring->order[place] : place;
}

/* The number of ranks after which a chain from place `first` has visited all of `node`. ends[k], which may be
 * NULL, counts the inner nodes for which that number is k. */
static int visited_after(const ring_t *ring, int first, coll_node_t node, int *ends)
{
    if (coll_node_size(node) == 1) {
        const int ahead = ring->at[node.lo] - first;
        return (ahead >= 0 ? ahead : ahead + ring->a->n) + 1;
    }
    const int split = coll_node_split(node);
    const int left = visited_after(ring, first, (coll_node_t){node.lo, split}, ends);
    const int right = visited_after(ring, first, (coll_node_t){split, node.hi}, ends);
    const int all = left > right ? left : right;
    ends[all]++;
    return all;
}

/* 1 if no message of a canonical reduction over the order has more pieces than there can be by rank: each
 * inner node of the canonical tree that has been visited makes one piece of two. O(n^2). */
static int keeps_pieces_few(const ring_t *ring)
{
    const int n = ring->a->n, most = 2 * coll_levels(n);
    int *ends = coll_scratch(ring->b, (size_t)n + 1, sizeof *ends);
    for (int first = 0; ends && first < n; first++) {
        memset(ends, 0, ((size_t)n + 1) * sizeof *ends);
        visited_after(ring, first, (coll_node_t){0, n}, ends);
        for (int visited = 1, pieces = 0; visited <= n; visited++) {
            pieces += 1 - ends[visited];
            if (pieces > most)
                return 0;
        }
    }
    return ends != NULL;
}

static void follow_order(ring_t *ring)
{
    const coll_args_t *a = ring->a;
    ring->at = coll_scratch(ring->b, (size_t)a->n, sizeof *ring->at);
    for (int i = 0; ring->at && i < a->n; i++)
        ring->at[a->order[i]] = i;
    if (ring->at && keeps_pieces_few(ring))
        ring->order = a->order;
}

static ring_t ring_of(coll_builder_t *b, const coll_args_t *a, size_t most)
{
    ring_t ring = {.b = b, .a = a};
    if (a->order)
        follow_order(&ring);
    ring.before = rank_before(&ring, 1);
    ring.next = rank_before(&ring, a->n - 1);
    ring.places = places_of(a->n, a->fast_order);
    ring.stride = base_round_up(base_min_size(most, a->chunk), 64);
    ring.room = coll_tmp_slots(b, SETS * ring.places, ring.stride);
    return ring;
}

/* The maximal nodes inside the cyclic interval of `length` ranks from `first`, in rank order. */
static int maximal_nodes(int n, int first, int length, coll_node_t *list)
{
    int count = 0, end = first + length; /* n <= 2^30 */
    coll_node_t parts[2] = {{0, end > n ? end - n : 0}, {first, end < n ? end : n}};
    if (length == n)
        parts[0] = (coll_node_t){0, n};
    for (int i = 0; i < (length == n ? 1 : 2); i++) {
        for (int at = parts[i].lo; at < parts[i].hi; at = list[count - 1].hi)
            list[count++] = coll_node_first_inside(n, at, parts[i].hi);
    }
    return count;
}

/* The same for the ranks that a chain over the order visits: adds those inside `node`. 1: all of it. */
static int nodes_visited(const ring_t *ring, int first, int length, coll_node_t node, coll_node_t *list,
                         int *count)
{
    int whole = 0;
    if (coll_node_size(node) == 1) {
        whole = visited_after(ring, first, node, NULL) <= length;
    } else {
        const int split = coll_node_split(node);
        const int left = nodes_visited(ring, first, length, (coll_node_t){node.lo, split}, list, count);
        const int right = nodes_visited(ring, first, length, (coll_node_t){split, node.hi}, list, count);
        whole = left && right;
        *count -= whole ? 2 : 0;
    }
    if (whole)
        list[(*count)++] = node;
    return whole;
}

static int find_node(const coll_node_t *list, int count, coll_node_t node)
{
    int at = 0;
    while (at < count && !coll_node_equal(list[at], node))
        at++;
    return at;
}

static passing_t passing_of(const ring_t *ring, int owner, coll_range_t in, coll_ref_t out)
{
    const coll_args_t *a = ring->a;
    passing_t p = {.in = in, .out = out};
    int first = place_of(ring, owner) + 1, mine = place_of(ring, a->rank);
    first = first == a->n ? 0 : first;
    p.visited = mine >= first ? mine - first : mine - first + a->n;
    if (ring->order) {
        nodes_visited(ring, first, p.visited, (coll_node_t){0, a->n}, p.came, &p.ncame);
        nodes_visited(ring, first, p.visited + 1, (coll_node_t){0, a->n}, p.goes, &p.ngoes);
    } else if (!a->fast_order) {
        p.ncame = maximal_nodes(a->n, first, p.visited, p.came);
        p.ngoes = maximal_nodes(a->n, first, p.visited + 1, p.goes);
    }
    return p;
}

static coll_ref_t place(const ring_t *ring, size_t i)
{
    size_t set = ring->used % SETS;
    return coll_ref_add(ring->room, (set * ring->places + i) * ring->stride);
}

static void pass_fast(ring_t *ring, const passing_t *p, coll_range_t part, coll_ref_t out)
{
    coll_ref_t partial = coll_in(part.offset);
    int last = p->visited == ring->a->n - 1;
    if (p->visited > 0) {
        coll_ref_t sources[2] = {place(ring, 0), partial};
        coll_add_recv(ring->b, 0, ring->before, sources[0], part.count);
        partial = last ? out : place(ring, 1);
        coll_add_reduce(ring->b, 0, partial, sources, 2, part.count, last ? COLL_FINAL : 0);
    }
    if (!last)
        coll_add_send(ring->b, 0, ring->next, partial, part.count);
}

static void pass_canonical(ring_t *ring, const passing_t *p, coll_range_t part, coll_ref_t out)
{
    int n = ring->a->n, rank = ring->a->rank, last = p->visited == n - 1;
    coll_node_t node = {rank, rank + 1}, all = {0, n};
    coll_ref_t partial = coll_in(part.offset);
    for (int i = 0; i < p->ncame; i++)
        coll_add_recv(ring->b, 0, ring->before, place(ring, (size_t)i), part.count);
    while (!coll_node_equal(node, all)) {
        coll_node_t sibling = coll_node_sibling(n, node);
        int at = find_node(p->came, p->ncame, sibling);
        if (at == p->ncame)
            break;
        int is_left = node.lo < sibling.lo;
        coll_ref_t other = place(ring, (size_t)at);
        coll_ref_t sources[2] = {is_left ? partial : other, is_left ? other : partial};
        node = is_left ? (coll_node_t){node.lo, sibling.hi} : (coll_node_t){sibling.lo, node.hi};
        int whole = coll_node_equal(node, all);
        partial = whole ? out : place(ring, ring->places - 1);
        coll_add_reduce(ring->b, 0, partial, sources, 2, part.count, whole ? COLL_FINAL : 0);
    }
    for (int i = 0; !last && i < p->ngoes; i++) {
        int at = find_node(p->came, p->ncame, p->goes[i]);
        coll_add_send(ring->b, 0, ring->next, at < p->ncame ? place(ring, (size_t)at) : partial, part.count);
    }
}

static void pass_group(ring_t *ring, const passing_t *p, size_t group)
{
    for (size_t k = group * GROUP; k < (group + 1) * GROUP; k++, ring->used++) {
        coll_range_t part = coll_chunk(p->in, ring->a->chunk, k);
        coll_ref_t out = coll_ref_add(p->out, part.offset - p->in.offset);
        if (ring->a->fast_order)
            pass_fast(ring, p, part, out);
        else
            pass_canonical(ring, p, part, out);
    }
}

/* Step s of a group of chunks: the block of the rank s before this one comes in and goes on; s = 0: the
 * own one leaves. */
static void gather_group(const ring_t *ring, int s, size_t group)
{
    const coll_args_t *a = ring->a;
    coll_range_t block = coll_gathered_block(a, rank_before(ring, s));
    for (size_t k = group * GROUP; k < (group + 1) * GROUP; k++) {
        coll_range_t part = coll_chunk(block, a->chunk, k);
        if (s > 0)
            coll_add_recv(ring->b, 0, ring->before, coll_out(part.offset), part.count);
        if (s + 1 < a->n)
            coll_add_send(ring->b, 0, ring->next, coll_out(part.offset), part.count);
    }
}

static void reduce_shards(coll_builder_t *b, const coll_args_t *a, int gathers)
{
    size_t most = coll_reduced_most(a), out = coll_reduced_out(a);
    size_t groups = (coll_chunks(most, a->chunk) + GROUP - 1) / GROUP;
    ring_t ring = ring_of(b, a, most);
    for (size_t group = 0; group < groups + (gathers ? 1 : 0); group++) {
        for (int s = 0; s < a->n; s++) {
            int owner = rank_before(&ring, s + 1);
            passing_t p = passing_of(&ring, owner, coll_reduced_block(a, owner), coll_out(out));
            if (group < groups)
                pass_group(&ring, &p, group);
            if (gathers && group > 0)
                gather_group(&ring, s, group - 1);
        }
    }
}

static void reduce(coll_builder_t *b, const coll_args_t *a)
{
    ring_t ring = ring_of(b, a, a->count);
    passing_t p = passing_of(&ring, a->root, (coll_range_t){0, a->count}, coll_out(0));
    for (size_t group = 0; group * GROUP < coll_chunks(a->count, a->chunk); group++)
        pass_group(&ring, &p, group);
}

/* Blocks of OUT go round; `own` is where this rank's block is sent from. */
static void gather_blocks(coll_builder_t *b, const coll_args_t *a, coll_ref_t own)
{
    int next = coll_rank_after(a, 1), before = coll_rank_before(a, 1);
    coll_range_t block = coll_gathered_block(a, a->rank);
    for (size_t k = 0; k < coll_chunks(block.count, a->chunk); k++) {
        coll_range_t part = coll_chunk(block, a->chunk, k);
        coll_add_send(b, 0, next, coll_ref_add(own, part.offset - block.offset), part.count);
    }
    for (int s = 1; s < a->n; s++) {
        block = coll_gathered_block(a, coll_rank_before(a, s));
        for (size_t k = 0; k < coll_chunks(block.count, a->chunk); k++) {
            coll_range_t part = coll_chunk(block, a->chunk, k);
            coll_add_recv(b, 0, before, coll_out(part.offset), part.count);
            if (s + 1 < a->n)
                coll_add_send(b, 0, next, coll_out(part.offset), part.count);
        }
    }
}

static void broadcast(coll_builder_t *b, const coll_args_t *a)
{
    int next = coll_rank_after(a, 1), is_root = a->rank == a->root;
    for (size_t k = 0; k < coll_chunks(a->count, a->chunk); k++) {
        coll_range_t part = coll_chunk((coll_range_t){0, a->count}, a->chunk, k);
        if (!is_root)
            coll_add_recv(b, 0, coll_rank_before(a, 1), coll_out(part.offset), part.count);
        if (next != a->root)
            coll_add_send(b, 0, next, is_root ? coll_in(part.offset) : coll_out(part.offset), part.count);
    }
    if (is_root)
        coll_add_own_copy(b, a);
}

void coll_generate_ring(coll_builder_t *b, const coll_args_t *args)
{
    switch (args->op) {
    case COLL_ALL_REDUCE:
        reduce_shards(b, args, 1);
        break;
    case COLL_REDUCE_SCATTER:
        reduce_shards(b, args, 0);
        break;
    case COLL_ALL_GATHER:
        gather_blocks(b, args, coll_in(0));
        coll_add_own_copy(b, args);
        break;
    case COLL_REDUCE:
        reduce(b, args);
        break;
    default:
        broadcast(b, args);
        break;
    }
}
