/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/schedules/butterfly.c: recursive halving and doubling over any number of ranks (Rabenseifner
 * 2004; the treatment of odd sizes is Gyre's own and keeps the canonical order).
 *
 * At level k the left block L = [b, b + 2^k) and the right block R = [b + 2^k, min(b + 2^(k+1), n)) of the
 * canonical tree are merged, nearest blocks first. R may be smaller or absent.
 *
 * all_reduce one_shot  Recursive doubling: all ranks of a block hold its partial vector. Rank j of R gets
 *                       L's from rank j of L; rank i of L gets R's from rank i mod |R| of R. log2 n rounds.
 *                       TMP: 3 * count.
 * all_reduce           Before the merge each element has one owner in L and one in R. The vector falls into
 *                       runs with the same pair of owners; of each run L's owner keeps the part |L| / (|L| +
 *                       |R|), R's owner the rest, and each sends the other its partial of what that one
 *                       keeps. In the end every element has one owner; the gather goes the same way back.
 *                       For powers of two this is the usual butterfly. Partial results lie in OUT. TMP: one
 *                       chunk.
 * reduce_scatter       The same by blocks: block x is owned, in a merged block M, by rank x if x is in M;
 *                       else by the owner in L or the owner in R, in proportion to their sizes. Blocks for
 *                       one peer travel as one message, packed in TMP. TMP: at most 3 times the vector.
 * all_gather           Recursive doubling, blocks of ranks instead of partial vectors. TMP only where
 *                       displacements have gaps.
 * scan, exscan         Recursive doubling with partial prefixes: scan.c.
 * barrier              all_gather of nothing. */
#include <stdlib.h>

#include "collectives/schedules/generator.h"

/* ---- recursive doubling: whole vectors ---------------------------------------------------------------- */

/* The ranks of the other block that this rank serves: first, first + step, ... below other.hi. */
static int first_served(const coll_args_t *a, const coll_merge_t *m)
{
    return m->other.lo + (a->rank - m->mine.lo);
}

/* The rank of the other block that serves this one. */
static int server(const coll_args_t *a, const coll_merge_t *m)
{
    return m->other.lo + (a->rank - m->mine.lo) % coll_node_size(m->other);
}

static void all_reduce_doubling(coll_builder_t *b, const coll_args_t *a)
{
    coll_ref_t partial = coll_in(0), slot = coll_tmp(b, a->count);
    coll_ref_t sums[2] = {coll_tmp(b, a->count), coll_tmp(b, a->count)};
    for (int level = 0, used = 0; level < coll_levels(a->n); level++) {
        coll_merge_t m;
        if (!coll_merge_at(a->n, a->rank, level, &m))
            continue;
        for (int peer = first_served(a, &m); peer < m.other.hi; peer += coll_node_size(m.mine))
            coll_add_send(b, 0, peer, partial, a->count);
        coll_add_recv(b, 0, server(a, &m), slot, a->count);
        coll_ref_t sources[2] = {m.is_left ? partial : slot, m.is_left ? slot : partial};
        /* In place the last sum must not land in OUT while IN, the same memory, is still being sent: the
         * peer's sum may wait for this rank's in the same way. */
        int copy = m.is_last && a->in_place && partial.buf == COLL_IN;
        coll_ref_t to = m.is_last && !copy ? coll_out(0) : sums[used++ % 2];
        coll_add_reduce(b, 0, to, sources, 2, a->count, m.is_last ? COLL_FINAL : 0);
        if (copy)
            coll_add_copy(b, 0, coll_out(0), to, a->count, 0);
        partial = to;
    }
}

/* ---- recursive halving: runs with one owner --------------------------------------------------------------
 */

typedef struct {
    size_t lo, hi;
    int owner;
} run_t;

static size_t proportion(size_t length, int part, int whole)
{
    size_t p = (size_t)part, w = (size_t)whole;
    return length / w * p + length % w * p / w; /* no overflow: both are ranks */
}

/* The run of `block` that holds element e. Full blocks need no recursion: their runs are halved again and
 * again. */
static run_t run_at(size_t count, coll_node_t block, size_t e)
{
    int size = coll_node_size(block);
    run_t run = {0, count, block.lo};
    if (coll_is_power(size)) {
        for (int half = 1; half < size; half *= 2) {
            size_t cut = run.lo + proportion(run.hi - run.lo, 1, 2);
            run.owner += e < cut ? 0 : half;
            *(e < cut ? &run.hi : &run.lo) = cut;
        }
        return run;
    }
    int split = coll_node_split(block);
    run_t left = run_at(count, (coll_node_t){block.lo, split}, e);
    run_t right = run_at(count, (coll_node_t){split, block.hi}, e);
    run = (run_t){base_max_size(left.lo, right.lo), base_min_size(left.hi, right.hi), left.owner};
    size_t cut = run.lo + proportion(run.hi - run.lo, split - block.lo, size);
    if (e < cut)
        run.hi = cut;
    else
        run = (run_t){cut, run.hi, right.owner};
    return run;
}

/* One run that is divided between this rank and `peer`. */
typedef struct {
    coll_range_t keep, give;
    int peer;
} share_t;

typedef struct {
    share_t *shares;
    size_t nshares;
    coll_range_t *kept; /* the non-empty keeps, in order: what this rank owns afterwards */
    size_t nkept;
} level_t;

/* Goes through the runs of (mine, other) inside `owned`; fills `level` if it has room made, else only counts.
 */
static size_t divide(const coll_args_t *a, const coll_merge_t *m, const coll_range_t *owned, size_t nowned,
                     level_t *level)
{
    size_t found = 0;
    for (size_t i = 0; i < nowned; i++) {
        size_t end = owned[i].offset + owned[i].count;
        for (size_t e = owned[i].offset, next; e < end; e = next, found++) {
            run_t other = run_at(a->count, m->other, e);
            /* a full block's own runs are exactly `owned`; so are this rank's, as they came out of the same
             * division */
            size_t lo = base_max_size(other.lo, owned[i].offset);
            next = base_min_size(other.hi, end);
            if (!level->shares)
                continue;
            size_t cut = lo + proportion(next - lo, coll_node_size(m->left),
                                         coll_node_size(m->left) + coll_node_size(m->right));
            coll_range_t first = {lo, cut - lo}, second = {cut, next - cut};
            share_t share = {m->is_left ? first : second, m->is_left ? second : first, other.owner};
            level->shares[found] = share;
            if (share.keep.count)
                level->kept[level->nkept++] = share.keep;
        }
    }
    return found;
}

static void exchange_halves(coll_builder_t *b, const coll_args_t *a, const coll_merge_t *m,
                            const level_t *level, coll_ref_t from, coll_ref_t slot)
{
    for (size_t i = 0; i < level->nshares; i++) {
        const share_t *s = &level->shares[i];
        for (size_t k = 0; k < coll_chunks(s->give.count, a->chunk); k++) {
            coll_range_t part = coll_chunk(s->give, a->chunk, k);
            coll_add_send(b, 0, s->peer, coll_ref_add(from, part.offset), part.count);
        }
    }
    for (size_t i = 0; i < level->nshares; i++) {
        const share_t *s = &level->shares[i];
        for (size_t k = 0; k < coll_chunks(s->keep.count, a->chunk); k++) {
            coll_range_t part = coll_chunk(s->keep, a->chunk, k);
            coll_ref_t own = coll_ref_add(from, part.offset);
            coll_ref_t sources[2] = {m->is_left ? own : slot, m->is_left ? slot : own};
            coll_add_recv(b, 0, s->peer, slot, part.count);
            coll_add_reduce(b, 0, coll_out(part.offset), sources, 2, part.count, m->is_last ? COLL_FINAL : 0);
        }
    }
}

static void all_reduce_halving(coll_builder_t *b, const coll_args_t *a)
{
    enum { LEVELS = 32 };
    level_t levels[LEVELS] = {0};
    coll_range_t all = {0, a->count}, *owned = &all;
    size_t nowned = a->count != 0;
    coll_ref_t from = coll_in(0), slot = coll_tmp(b, base_min_size(a->chunk, a->count));
    for (int k = 0; k < coll_levels(a->n); k++) {
        coll_merge_t m;
        level_t *level = &levels[k];
        if (!coll_merge_at(a->n, a->rank, k, &m))
            continue;
        size_t n = divide(a, &m, owned, nowned, level);
        level->kept = coll_scratch(b, n, sizeof *level->kept);
        level->shares = coll_scratch(b, n, sizeof *level->shares);
        if (!level->kept || !level->shares)
            return;
        level->nshares = divide(a, &m, owned, nowned, level);
        exchange_halves(b, a, &m, level, from, slot);
        owned = level->kept;
        nowned = level->nkept;
        from = coll_out(0);
    }
    for (int k = coll_levels(a->n) - 1; k >= 0; k--) {
        for (size_t i = 0; i < levels[k].nshares; i++) {
            const share_t *s = &levels[k].shares[i];
            coll_add_send(b, 0, s->peer, coll_out(s->keep.offset), s->keep.count);
        }
        for (size_t i = 0; i < levels[k].nshares; i++) {
            const share_t *s = &levels[k].shares[i];
            coll_add_recv(b, 0, s->peer, coll_out(s->give.offset), s->give.count);
        }
    }
}

/* ---- reduce_scatter: blocks with one owner ------------------------------------------------------------ */

static int goes_left(int block, const coll_merge_t *m)
{
    if (block >= m->left.lo && block < m->right.hi)
        return block < m->left.hi;
    return block % (m->right.hi - m->left.lo) < coll_node_size(m->left);
}

/* The rank of `node` that owns the partial result of a block. */
static int block_owner(coll_node_t node, int block)
{
    while (coll_node_size(node) > 1) {
        if (block >= node.lo && block < node.hi)
            return block;
        int split = coll_node_split(node), size = coll_node_size(node);
        if (coll_is_power(size))
            return node.lo + block % size; /* what the loop would come to */
        if (block % size < split - node.lo)
            node.hi = split;
        else
            node.lo = split;
    }
    return node.lo;
}

/* A block whose partial result this rank holds, and where. */
typedef struct {
    int block, peer; /* peer: its owner in the other half */
    int keep;
    coll_ref_t at;
} holding_t;

/* By peer, then by block: both ends of a message list its blocks in the same order. */
static int holding_order(const void *x, const void *y)
{
    const holding_t *p = x, *q = y;
    if (p->peer != q->peer)
        return p->peer < q->peer ? -1 : 1;
    return p->block < q->block ? -1 : p->block > q->block;
}

typedef struct {
    coll_builder_t *b;
    const coll_args_t *a;
    holding_t *held;
    coll_piece_t *pieces;
    size_t nheld;
} scatter_t;

static size_t peer_group(const scatter_t *s, size_t from)
{
    size_t end = from;
    while (end < s->nheld && s->held[end].peer == s->held[from].peer)
        end++;
    return end;
}

/* Reduces neighbours whose operands are neighbours, too, in one step. */
static void reduce_group(scatter_t *s, size_t from, size_t end, const coll_merge_t *m, coll_ref_t got,
                         coll_ref_t *sum)
{
    for (size_t i = from; i < end;) {
        if (!s->held[i].keep) {
            i++;
            continue;
        }
        coll_ref_t own = s->held[i].at, to = m->is_last ? coll_out(0) : *sum;
        size_t run = 0;
        for (; i < end; i++) {
            size_t count = s->a->counts[s->held[i].block];
            if (!s->held[i].keep)
                continue;
            if (count && (s->held[i].at.buf != own.buf || s->held[i].at.offset != own.offset + run)) {
                if (run)
                    break;
                own = s->held[i].at;
            }
            s->held[i].at = coll_ref_add(to, run);
            run += count;
        }
        coll_ref_t sources[2] = {m->is_left ? own : got, m->is_left ? got : own};
        coll_add_reduce(s->b, 0, to, sources, 2, run, m->is_last ? COLL_FINAL : 0);
        got = coll_ref_add(got, run);
        if (!m->is_last)
            *sum = coll_ref_add(*sum, run);
    }
}

static void exchange_blocks(scatter_t *s, const coll_merge_t *m)
{
    size_t kept_total = 0, kept = 0;
    for (size_t i = 0; i < s->nheld; i++) {
        s->held[i].peer = block_owner(m->other, s->held[i].block);
        s->held[i].keep = goes_left(s->held[i].block, m) == m->is_left;
        kept_total += s->held[i].keep ? s->a->counts[s->held[i].block] : 0;
    }
    qsort(s->held, s->nheld, sizeof *s->held, holding_order);
    for (size_t i = 0, end; i < s->nheld; i = end) {
        size_t n = 0;
        end = peer_group(s, i);
        for (size_t k = i; k < end; k++)
            if (!s->held[k].keep)
                s->pieces[n++] = (coll_piece_t){s->held[k].at, s->a->counts[s->held[k].block]};
        coll_add_send_pieces(s->b, s->held[i].peer, s->pieces, n);
    }
    coll_ref_t sum = {0, COLL_OUT}, got = coll_tmp(s->b, kept_total);
    if (!m->is_last)
        sum = coll_tmp(s->b, kept_total);
    for (size_t i = 0, end; i < s->nheld; i = end) {
        size_t total = 0;
        end = peer_group(s, i);
        for (size_t k = i; k < end; k++)
            total += s->held[k].keep ? s->a->counts[s->held[k].block] : 0;
        coll_add_recv(s->b, 0, s->held[i].peer, got, total);
        reduce_group(s, i, end, m, got, &sum);
        got = coll_ref_add(got, total);
    }
    for (size_t i = 0; i < s->nheld; i++)
        if (s->held[i].keep)
            s->held[kept++] = s->held[i];
    s->nheld = kept;
}

static void reduce_scatter(coll_builder_t *b, const coll_args_t *a)
{
    size_t n = (size_t)a->n;
    scatter_t s = {.b = b, .a = a, .nheld = n};
    s.held = coll_scratch(b, n, sizeof *s.held);
    s.pieces = coll_scratch(b, n, sizeof *s.pieces);
    if (!s.held || !s.pieces)
        return;
    for (size_t i = 0; i < n; i++)
        s.held[i] = (holding_t){.block = (int)i, .at = coll_in(a->displs[i])};
    for (int level = 0; level < coll_levels(a->n); level++) {
        coll_merge_t m;
        if (coll_merge_at(a->n, a->rank, level, &m))
            exchange_blocks(&s, &m);
    }
}

/* ---- all_gather and barrier --------------------------------------------------------------------------- */

static void fill_pieces(const coll_args_t *a, coll_node_t ranks, coll_piece_t *pieces)
{
    for (int r = ranks.lo; r < ranks.hi; r++)
        pieces[r - ranks.lo] = (coll_piece_t){coll_out(a->displs[r]), a->counts[r]};
}

static void all_gather(coll_builder_t *b, const coll_args_t *a)
{
    coll_piece_t *pieces = coll_scratch(b, (size_t)a->n, sizeof *pieces);
    if (!pieces)
        return;
    coll_add_own_copy(b, a);
    for (int level = 0; level < coll_levels(a->n); level++) {
        coll_merge_t m;
        if (!coll_merge_at(a->n, a->rank, level, &m))
            continue;
        fill_pieces(a, m.mine, pieces);
        int served = first_served(a, &m) < m.other.hi;
        size_t total;
        coll_ref_t mine = coll_add_pack(b, pieces, served ? (size_t)coll_node_size(m.mine) : 0, &total);
        for (int peer = first_served(a, &m); peer < m.other.hi; peer += coll_node_size(m.mine))
            coll_add_send(b, 0, peer, mine, total);
        fill_pieces(a, m.other, pieces);
        coll_add_recv_pieces(b, server(a, &m), pieces, (size_t)coll_node_size(m.other));
    }
}

static void barrier(coll_builder_t *b, const coll_args_t *a)
{
    for (int level = 0; level < coll_levels(a->n); level++) {
        coll_merge_t m;
        if (!coll_merge_at(a->n, a->rank, level, &m))
            continue;
        for (int peer = first_served(a, &m); peer < m.other.hi; peer += coll_node_size(m.mine))
            coll_add_sync_send(b, peer);
        coll_add_sync_recv(b, server(a, &m));
    }
}

void coll_generate_butterfly(coll_builder_t *b, const coll_args_t *args)
{
    switch (args->op) {
    case COLL_ALL_REDUCE:
        if (args->one_shot)
            all_reduce_doubling(b, args);
        else
            all_reduce_halving(b, args);
        break;
    case COLL_REDUCE_SCATTER:
        reduce_scatter(b, args);
        break;
    case COLL_ALL_GATHER:
        all_gather(b, args);
        break;
    case COLL_SCAN:
    case COLL_EXSCAN:
        coll_scan_doubling(b, args);
        break;
    default:
        barrier(b, args);
        break;
    }
}

size_t coll_butterfly_factor(const coll_tmp_ask_t *ask)
{
    return coll_op_scans(ask->op) ? coll_scan_places(ask->n) : coll_plain_factor(ask);
}

size_t coll_butterfly_places(const coll_tmp_ask_t *ask)
{
    return coll_op_scans(ask->op) ? coll_scan_places(ask->n) : 0;
}
