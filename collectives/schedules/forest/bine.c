/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/schedules/forest/bine.c: Bine trees and butterflies (De Sensi et al., "Bine Trees: Enhancing
 * Collective Operations by Optimizing Communication Locality", arXiv 2508.17311).
 *
 * In the steps s = 0, 1, ... a rank's partner is rho(s) = (1 - (-2)^(s + 1)) / 3 = 1, -1, 3, -5, 11, ...
 * ranks further on if the rank is even, further back if it is odd (the negabinary numbering of ranks). What
 * has met after s steps is an interval of 2^s ranks that has grown to both sides by turns, so partners are
 * about 2/3 as far apart as in recursive doubling (1, 2, 4, 8, ...): where neighbouring ranks share a switch
 * or group, up to a third less traffic crosses its scarce uplinks. Where it wins, by the simulator:
 * docs/algorithms.md.
 *
 *  reduce_scatter  Nearest partners first, as they exchange most: half of the blocks, then a quarter, ... One
 * partner
 *                  per step, log2 n steps, volume (n - 1) / n of the vector.
 *  all_gather      The same backwards.
 *  all_reduce      Both, by shards that are ordered so that what travels together lies together: no packing
 * for
 *                  powers of two. one_shot: whole vectors with the same partners, log2 n steps.
 *  broadcast, reduce  One tree, whose root talks to the farthest partner first (broadcast) or last (reduce),
 * chunk by
 *                  chunk.
 *
 * Numbers of ranks that are no power of two: the trees of the next power of two without the places that are
 * too many, at the far end of the last partner's part; where a place that hands something on is missing, the
 * nearest one of those below stands in. Still ceil(log2 n) steps and the same volume. Odd n: as pairing even
 * and odd ranks does not close around an odd ring, all trees are turned alike, and a rank has a partner on
 * each side in every step.
 *
 * Canonical order: forest.h. The intervals are no nodes of the canonical tree, but nearly: a quarter of the
 * traffic is exchanged by pairs, for which they are. With n a power of two the reduction sends 1.0 (n = 4) to
 * 1.4 (large n) times as much as with fast_order. */

#include "collectives/schedules/forest/forest.h"

static long rho(int step)
{
    long power = 1;
    for (int i = 0; i <= step; i++)
        power *= -2;
    return (1 - power) / 3;
}

/* The place (or rank) that meets `v` of m (even) at a step. */
static int partner(int m, int v, int step)
{
    long far = (v + (v & 1 ? -rho(step) : rho(step))) % m;
    return (int)(far < 0 ? far + m : far);
}

/* The rank that ends with each block: sort keys in which blocks that stay together are neighbours, for n =
 * 2^levels. Two ranks that are joined by the steps s, s + 1, ... agree in (even ? r : r - rho(s)) modulo 2^(s
 * + 1). */
static int label(int n, int levels, int rank)
{
    int key = 0;
    for (int s = 1; s < levels; s++) {
        long even = rank & 1 ? rank - rho(s) : rank;
        even = (even % n + n) % n;
        key = 2 * key + (int)(even >> s & 1);
    }
    return 2 * key + (rank & 1);
}

/* What has met in the steps before `step` around place v: 2^step places. Even places grow to the right in
 * even steps, to the left in odd ones; odd places the other way. */
typedef struct {
    long lo, hi;
} interval_t;

static interval_t met(long v, int step)
{
    long before = 0, size = 1;
    for (int s = 0; s < step; s++, size *= 2)
        before += s & 1 ? size : 0;
    return v & 1 ? (interval_t){v + before - size + 1, v + before}
                 : (interval_t){v - before, v - before + size - 1};
}

static int meets(interval_t x, interval_t y)
{
    return x.lo <= y.hi && y.lo <= x.hi;
}

static long other(long v, int step)
{
    return v & 1 ? v - rho(step) : v + rho(step);
}

/* The place that stands for v in met(v, step) of a tree that has only the places in `there`: v if it is
 * there. */
static long stand_in(long v, int step, interval_t there)
{
    while (v < there.lo || v > there.hi)
        if (!meets(met(v, --step), there))
            v = other(v, step);
    return v;
}

static int place_of(long v, int n)
{
    return (int)((v % n + n) % n);
}

/* Hangs all places of met(v, step) that are there below `top`, which stands for v. */
static void hang(coll_forest_t *f, long v, int step, interval_t there, int top)
{
    while (step-- > 0) {
        long w = other(v, step);
        interval_t theirs = met(w, step);
        if (!meets(met(v, step), there)) {
            v = w;
        } else if (meets(theirs, there)) {
            int place = place_of(stand_in(w, step, there), f->n);
            f->parent[place] = top;
            f->round[place] = step;
            f->start[place] = place_of(theirs.lo > there.lo ? theirs.lo : there.lo, f->n);
            hang(f, w, step, there, place);
        }
    }
}

int coll_negabinary_forest(coll_builder_t *b, int n, int paired, int flip, coll_forest_t *f, int *position)
{
    int levels = coll_levels(n);
    if (!coll_forest_init(b, f, n, levels))
        return 0;
    f->paired = paired && !(n & 1);
    f->flip = flip;
    /* what is too much of a power of two is left out on the side of the last partner */
    interval_t there = met(0, levels);
    if (levels & 1)
        there.hi = there.lo + n - 1;
    else
        there.lo = there.hi - n + 1;
    f->parent[0] = -1;
    f->start[0] = place_of(there.lo, n);
    hang(f, 0, levels, there, 0);
    for (int r = 0; position && r < n; r++)
        position[r] = coll_is_power(n) ? label(n, levels, flip ? (n - r) % n : r) : r;
    coll_forest_finish(f);
    return 1;
}

/* ---- whole vectors ----------------------------------------------------------------------------------------
 * Over the largest power of two of ranks: of the first 2 e ranks, e = n - power, every odd one gives its
 * vector to its left neighbour first and gets the result back. Such a pair is a node of the canonical
 * tree. */

enum { MOST_PIECES = 2 * 32 };

typedef struct {
    coll_builder_t *b;
    const coll_args_t *a;
    int power, extra;
    int nheld;
    coll_node_t node[MOST_PIECES]; /* what this rank has */
    coll_ref_t at[MOST_PIECES];
} doubling_t;

static int real_rank(const doubling_t *d, int v)
{
    return v < d->extra ? 2 * v : v + d->extra;
}

/* The ranks first .. first + length - 1 (modulo power) of the reduced numbering, as nodes. */
static int interval_nodes(const doubling_t *d, int first, int length, coll_node_t *list)
{
    int count = 0, end = first + length, n = d->a->n;
    coll_node_t parts[2] = {{0, end > d->power ? end - d->power : 0},
                            {first, end < d->power ? end : d->power}};
    for (int i = 0; i < 2; i++) {
        int hi = parts[i].hi == d->power ? n : real_rank(d, parts[i].hi);
        for (int at = real_rank(d, parts[i].lo); parts[i].hi > parts[i].lo && at < hi;
             at = list[count - 1].hi)
            list[count++] = coll_node_first_inside(n, at, hi);
    }
    return count;
}

/* Adds a partial result to what this rank has, combining siblings. The last combination goes to `result`. */
static void merge(doubling_t *d, coll_node_t node, coll_ref_t at, coll_ref_t result, int is_last)
{
    int n = d->a->n;
    for (int k = 0; k < d->nheld;) {
        if (!d->a->fast_order && !coll_node_equal(d->node[k], coll_node_sibling(n, node))) {
            k++;
            continue;
        }
        int left = node.lo < d->node[k].lo;
        int whole = d->a->fast_order ? is_last : coll_node_size(node) + coll_node_size(d->node[k]) == n;
        coll_ref_t sources[2] = {left ? at : d->at[k], left ? d->at[k] : at};
        coll_ref_t to = whole ? result : coll_tmp(d->b, d->a->count);
        coll_add_reduce(d->b, 0, to, sources, 2, d->a->count, whole ? COLL_FINAL : 0);
        node = (coll_node_t){left ? node.lo : d->node[k].lo, left ? d->node[k].hi : node.hi};
        at = to;
        d->nheld--;
        d->node[k] = d->node[d->nheld];
        d->at[k] = d->at[d->nheld];
        if (whole || d->a->fast_order)
            break;
        k = 0;
    }
    d->node[d->nheld] = node;
    d->at[d->nheld++] = at;
}

static void send_held(doubling_t *d, int peer)
{
    coll_piece_t pieces[MOST_PIECES];
    for (int i = 1; i < d->nheld; i++) /* in rank order */
        for (int k = i; k > 0 && d->node[k].lo < d->node[k - 1].lo; k--) {
            coll_node_t node = d->node[k];
            coll_ref_t at = d->at[k];
            d->node[k] = d->node[k - 1];
            d->at[k] = d->at[k - 1];
            d->node[k - 1] = node;
            d->at[k - 1] = at;
        }
    for (int i = 0; i < d->nheld; i++)
        pieces[i] = (coll_piece_t){d->at[i], d->a->count};
    coll_add_send_pieces(d->b, peer, pieces, (size_t)d->nheld);
}

void coll_negabinary_doubling(coll_builder_t *b, const coll_args_t *a)
{
    doubling_t d = {.b = b, .a = a, .power = coll_power_below(a->n)};
    d.extra = a->n - d.power;
    int folded = a->rank < 2 * d.extra, levels = coll_levels(d.power),
        v = folded ? a->rank / 2 : a->rank - d.extra;
    if (folded && a->rank & 1) {
        coll_add_send(b, 0, a->rank - 1, coll_in(0), a->count);
        coll_add_recv(b, 0, a->rank - 1, coll_out(0), a->count);
        return;
    }
    /* In place the result must not land in OUT while IN, the same memory, is still being sent: the receiver's
     * result may wait for this one in the same way. */
    coll_ref_t result = a->in_place ? coll_tmp(b, a->count) : coll_out(0);
    d.node[0] = (coll_node_t){a->rank, a->rank + 1};
    d.at[0] = coll_in(0);
    d.nheld = 1;
    if (folded) {
        coll_ref_t theirs = coll_tmp(b, a->count);
        coll_add_recv(b, 0, a->rank + 1, theirs, a->count);
        merge(&d, (coll_node_t){a->rank + 1, a->rank + 2}, theirs, result, 0);
    }
    int before = 0; /* the interval of those met so far starts so much before an even rank */
    for (int s = 0, size = 1; s < levels; s++, size *= 2) {
        int peer = partner(d.power, v, s), pieces = 1;
        coll_node_t list[MOST_PIECES] = {{real_rank(&d, peer), real_rank(&d, peer) + 1}};
        int first = peer & 1 ? peer + before - size + 1 : peer - before;
        if (!a->fast_order)
            pieces = interval_nodes(&d, (first % d.power + d.power) % d.power, size, list);
        send_held(&d, real_rank(&d, peer));
        coll_ref_t got = coll_tmp_slots(b, (size_t)pieces, a->count);
        coll_add_recv(b, 0, real_rank(&d, peer), got, (size_t)pieces * a->count);
        for (int i = 0; i < pieces; i++)
            merge(&d, list[i], coll_ref_add(got, (size_t)i * a->count), result, s + 1 == levels);
        before += s & 1 ? size : 0; /* rho(s) is negative for odd s: the partner's interval lies before */
    }
    if (a->in_place)
        coll_add_copy(b, 0, coll_out(0), result, a->count, 0);
    if (folded)
        coll_add_send(b, 0, a->rank + 1, coll_out(0), a->count);
}

/* ---- the operations ------------------------------------------------------------------------------------ */

static void one_tree(coll_builder_t *b, const coll_args_t *a)
{
    coll_forest_t f;
    coll_range_t *at = coll_scratch(b, (size_t)a->n, sizeof *at);
    int *position = coll_scratch(b, (size_t)a->n, sizeof *position);
    if (!at || !position || !coll_negabinary_forest(b, a->n, 0, 0, &f, NULL))
        return;
    at[a->root].count = a->count;
    coll_forest_blocks_t blocks = {.at = at, .position = position};
    if (a->op == COLL_REDUCE) {
        coll_forest_reduce(b, a, &f, &blocks);
        return;
    }
    if (a->rank == a->root)
        coll_add_own_copy(b, a);
    coll_forest_gather(b, a, &f, &blocks);
}

void coll_generate_bine(coll_builder_t *b, const coll_args_t *args)
{
    coll_forest_t f;
    coll_forest_blocks_t blocks;
    if (args->op == COLL_BROADCAST || args->op == COLL_REDUCE) {
        one_tree(b, args);
        return;
    }
    if (args->op == COLL_ALL_REDUCE && args->one_shot) {
        coll_negabinary_doubling(b, args);
        return;
    }
    int *position = coll_scratch(b, (size_t)args->n, sizeof *position);
    if (!position || !coll_negabinary_forest(b, args->n, 1, 0, &f, position) ||
        !coll_forest_blocks(b, args, position, 0, 1, &blocks))
        return;
    if (args->op != COLL_ALL_GATHER)
        coll_forest_reduce(b, args, &f, &blocks);
    else
        coll_add_own_copy(b, args);
    if (args->op != COLL_REDUCE_SCATTER)
        coll_forest_gather(b, args, &f, &blocks);
}

/* In one shot, lists of nodes in every step. One rank alone needs no TMP, and something is divided by
 * this. */
size_t coll_bine_factor(const coll_tmp_ask_t *ask)
{
    if (ask->op == COLL_REDUCE)
        return 9 * (size_t)coll_levels(ask->n) + 1;
    return ask->one_shot ? 2 * (size_t)ask->n + 2 : coll_plain_factor(ask);
}
