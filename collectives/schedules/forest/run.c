/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/schedules/forest/run.c: schedules from forests: the reduction towards the owners of the blocks
 * and the gather back (see forest.h).
 *
 * Blocks are worked on in slices of at most a chunk: all rounds for the first slice of every block, then for
 * the second, and so on. In each round a rank first sends, then receives. TMP is handed out in regions, one
 * per received message, results of combinations and packed message. A region that a SEND has read is used
 * again two rounds later at the earliest. By then every receiver has finished the round without this rank's
 * help, so ranks cannot wait in a circle. */
#include <stdlib.h>
#include <string.h>

#include "collectives/schedules/forest/forest.h"

typedef struct {
    coll_ref_t at;
    size_t size;
    int live;  /* partial results that lie here */
    int ready; /* first round, counted over all slices, in which it may be used again */
    int packs; /* for packed messages only, which then find nothing left of what they are made of */
} region_t;

typedef struct {
    coll_node_t node;
    coll_ref_t at;
    int region; /* -1: IN or OUT */
} partial_t;

/* What a rank has of one block. */
typedef struct {
    partial_t *list;
    size_t n, room;
    int weight; /* contributions in it */
} held_t;

typedef struct {
    int peer, block, position;
    int low;         /* the lower place of the edge */
    size_t elements; /* of the message */
} move_t;

typedef struct {
    coll_ref_t to, left, right;
    size_t count;
    int flags;
} combine_t;

typedef struct {
    coll_builder_t *b;
    const coll_args_t *a;
    const coll_forest_t *f;
    const coll_forest_blocks_t *blocks;
    region_t *regions;
    int nregions, room;
    int clock; /* rounds so far */
    size_t slice;
    held_t *held;         /* [n] */
    move_t *moves;        /* [n] */
    coll_node_t *nodes;   /* [n] */
    coll_piece_t *pieces; /* grows */
    size_t npieces, pieces_room;
    combine_t pending; /* the last combination, not yet added: the next may lengthen it */
    int got, sums;     /* regions of the message that is worked on; sums: -1 if none yet */
} run_t;

/* ---- memory -------------------------------------------------------------------------------------------- */

static int region_take(run_t *r, size_t size, int packs)
{
    int best = -1;
    for (int i = 0; i < r->nregions; i++) {
        const region_t *g = &r->regions[i];
        if (!g->live && g->packs == packs && g->ready <= r->clock && g->size >= size &&
            (best < 0 || g->size < r->regions[best].size))
            best = i;
    }
    if (best < 0) {
        if (r->nregions == r->room) {
            int room = r->room ? 2 * r->room : 16;
            region_t *more = coll_scratch(r->b, (size_t)room, sizeof *more);
            if (!more)
                return -1;
            if (r->nregions)
                memcpy(more, r->regions, (size_t)r->nregions * sizeof *more);
            r->regions = more;
            r->room = room;
        }
        best = r->nregions++;
        r->regions[best] = (region_t){.at = coll_tmp(r->b, size), .size = size, .packs = packs};
    }
    r->regions[best].live = 1;
    return best;
}

static void region_drop(run_t *r, int region)
{
    if (region >= 0)
        r->regions[region].live--;
}

static void region_sent(run_t *r, int region)
{
    if (region >= 0)
        r->regions[region].ready = r->clock + 2;
}

static int add_partial(run_t *r, held_t *h, partial_t p)
{
    if (h->n == h->room) {
        size_t room = h->room ? 2 * h->room : 2;
        partial_t *more = coll_scratch(r->b, room, sizeof *more);
        if (!more)
            return 0;
        if (h->n)
            memcpy(more, h->list, h->n * sizeof *more);
        h->list = more;
        h->room = room;
    }
    h->list[h->n++] = p;
    return 1;
}

static void add_piece(run_t *r, coll_ref_t at, size_t count)
{
    if (r->npieces == r->pieces_room) {
        size_t room = r->pieces_room ? 2 * r->pieces_room : 64;
        coll_piece_t *more = coll_scratch(r->b, room, sizeof *more);
        if (!more)
            return;
        if (r->npieces)
            memcpy(more, r->pieces, r->npieces * sizeof *more);
        r->pieces = more;
        r->pieces_room = room;
    }
    /* neighbours make one piece */
    coll_piece_t *last = r->npieces ? &r->pieces[r->npieces - 1] : NULL;
    if (last && last->at.buf == at.buf && last->at.offset + last->count == at.offset)
        last->count += count;
    else
        r->pieces[r->npieces++] = (coll_piece_t){at, count};
}

/* ---- messages ------------------------------------------------------------------------------------------ */

static coll_range_t slice_of(const run_t *r, int block)
{
    return coll_chunk(r->blocks->at[block], r->a->chunk, r->slice);
}

static void send_pieces(run_t *r, int peer)
{
    size_t total = 0;
    coll_ref_t at = r->npieces ? r->pieces[0].at : (coll_ref_t){0, COLL_TMP};
    for (size_t i = 0; i < r->npieces; i++)
        total += r->pieces[i].count;
    if (r->npieces > 1) {
        int region = region_take(r, total, 1);
        if (region < 0)
            return;
        at = r->regions[region].at;
        for (size_t i = 0, done = 0; i < r->npieces; done += r->pieces[i++].count)
            coll_add_copy(r->b, r->blocks->channel, coll_ref_add(at, done), r->pieces[i].at,
                          r->pieces[i].count, 0);
        region_sent(r, region);
        region_drop(r, region);
    }
    coll_add_send(r->b, r->blocks->channel, peer, at, total);
    r->npieces = 0;
}

static void recv_pieces(run_t *r, int peer)
{
    size_t total = 0;
    for (size_t i = 0; i < r->npieces; i++)
        total += r->pieces[i].count;
    if (r->npieces == 1) {
        coll_add_recv(r->b, r->blocks->channel, peer, r->pieces[0].at, total);
    } else if (r->npieces > 1) {
        int region = region_take(r, total, 0);
        if (region < 0)
            return;
        coll_ref_t at = r->regions[region].at;
        coll_add_recv(r->b, r->blocks->channel, peer, at, total);
        for (size_t i = 0, done = 0; i < r->npieces; done += r->pieces[i++].count)
            coll_add_copy(r->b, r->blocks->channel, r->pieces[i].at, coll_ref_add(at, done),
                          r->pieces[i].count, 0);
        region_drop(r, region);
    }
    r->npieces = 0;
}

/* By peer, then in the order in which both ends list the blocks. */
static int move_order(const void *x, const void *y)
{
    const move_t *p = x, *q = y;
    if (p->peer != q->peer)
        return p->peer < q->peer ? -1 : 1;
    return p->position < q->position ? -1 : p->position > q->position;
}

/* The moves of a round. up: towards the owners. theirs: the moves that this rank receives. */
static size_t list_moves(run_t *r, int round, int up, int theirs)
{
    const coll_forest_t *f = r->f;
    size_t n = 0;
    for (int i = f->first[round]; i < f->first[round + 1]; i++) {
        int low = f->by_round[i], high = f->parent[low],
            below = up != theirs; /* this rank's end is the lower */
        int block = coll_forest_block(f, r->a->rank, below ? low : high);
        size_t elements = slice_of(r, block).count;
        if (!elements)
            continue;
        if (up && !r->a->fast_order)
            elements *= coll_forest_nodes(f, block, low, r->nodes);
        r->moves[n++] = (move_t){.peer = coll_forest_rank(f, block, below ? high : low),
                                 .block = block,
                                 .position = r->blocks->position[block],
                                 .low = low,
                                 .elements = elements};
    }
    qsort(r->moves, n, sizeof *r->moves, move_order);
    return n;
}

/* The end of the message that starts with move `from`: to one peer, at most a chunk, at least one block. */
static size_t message_end(const run_t *r, size_t from, size_t n, size_t *total)
{
    size_t end = from;
    for (*total = 0; end < n && r->moves[end].peer == r->moves[from].peer; end++) {
        if (end > from && *total + r->moves[end].elements > r->a->chunk)
            break;
        *total += r->moves[end].elements;
    }
    return end;
}

/* ---- reduction ----------------------------------------------------------------------------------------- */

static void flush(run_t *r)
{
    combine_t *p = &r->pending;
    coll_ref_t sources[2] = {p->left, p->right};
    if (p->count)
        coll_add_reduce(r->b, r->blocks->channel, p->to, sources, 2, p->count, p->flags);
    p->count = 0;
}

static int follows(coll_ref_t at, coll_ref_t before, size_t count)
{
    return at.buf == before.buf && at.offset == before.offset + count;
}

/* 1 if a combination reads what the pending one makes. */
static int reads(coll_ref_t at, const combine_t *pending)
{
    return at.buf == pending->to.buf && at.offset >= pending->to.offset &&
           at.offset < pending->to.offset + pending->count;
}

static void combine(run_t *r, combine_t c)
{
    combine_t *p = &r->pending;
    if (p->count && p->flags == c.flags && follows(c.to, p->to, p->count) &&
        follows(c.left, p->left, p->count) && follows(c.right, p->right, p->count) && !reads(c.left, p) &&
        !reads(c.right, p)) {
        p->count += c.count;
        return;
    }
    flush(r);
    *p = c;
}

static held_t *holding(run_t *r, int block)
{
    held_t *h = &r->held[block];
    int rank = r->a->rank;
    if (!h->n && add_partial(r, h, (partial_t){{rank, rank + 1}, coll_in(slice_of(r, block).offset), -1}))
        h->weight = 1;
    return h;
}

static size_t find_sibling(const run_t *r, const held_t *h, coll_node_t node)
{
    size_t at = 0;
    if (!r->a->fast_order) {
        coll_node_t sibling = coll_node_sibling(r->a->n, node);
        while (at < h->n && !coll_node_equal(h->list[at].node, sibling))
            at++;
    }
    return at;
}

/* The place for the combination of two partial results: the result's own place, this block's place in OUT if
 * this rank owns it and it is free, or the message's region of sums at the offset of the piece that has
 * come. */
static int place_result(run_t *r, int block, const partial_t *x, const partial_t *y, size_t piece, int whole,
                        partial_t *to)
{
    int rank = r->a->rank;
    coll_range_t slice = slice_of(r, block);
    size_t inside = slice.offset - r->blocks->at[block].offset;
    to->node = (coll_node_t){x->node.lo < y->node.lo ? x->node.lo : y->node.lo,
                             x->node.hi > y->node.hi ? x->node.hi : y->node.hi};
    to->region = -1;
    if (r->blocks->in_out && (r->a->fast_order || (rank >= to->node.lo && rank < to->node.hi))) {
        to->at = coll_out(slice.offset);
    } else if (whole) {
        to->at = coll_out(r->blocks->out + inside);
    } else {
        if (r->sums < 0)
            r->sums = region_take(r, r->regions[r->got].size, 0);
        if (r->sums < 0)
            return 0;
        to->region = r->sums;
        to->at = coll_ref_add(r->regions[r->sums].at, piece);
        r->regions[r->sums].live++;
    }
    return 1;
}

/* Takes one partial result that has come for a block, at `piece` elements in its message, and combines what
 * can be combined. */
static void take_partial(run_t *r, int block, partial_t p, size_t piece, int weight)
{
    held_t *h = holding(r, block);
    int n = r->a->n;
    h->weight += weight;
    for (;;) {
        size_t at = find_sibling(r, h, p.node);
        if (at >= h->n)
            break;
        partial_t other = h->list[at], sum;
        int whole =
            r->a->fast_order ? h->weight == n : coll_node_size(p.node) + coll_node_size(other.node) == n;
        if (!place_result(r, block, &p, &other, piece, whole, &sum))
            return;
        int left = p.node.lo < other.node.lo;
        combine(r, (combine_t){.to = sum.at,
                               .left = left ? p.at : other.at,
                               .right = left ? other.at : p.at,
                               .count = slice_of(r, block).count,
                               .flags = whole ? COLL_FINAL : 0});
        region_drop(r, p.region);
        region_drop(r, other.region);
        h->list[at] = h->list[--h->n];
        p = sum;
        if (whole || r->a->fast_order)
            break;
    }
    add_partial(r, h, p);
}

static void send_partials(run_t *r, int round)
{
    size_t n = list_moves(r, round, 1, 0), total;
    for (size_t i = 0, end; i < n; i = end) {
        end = message_end(r, i, n, &total);
        for (size_t k = i; k < end; k++) {
            held_t *h = holding(r, r->moves[k].block);
            if (!h->n) /* no memory */
                return;
            size_t count = slice_of(r, r->moves[k].block).count;
            qsort(h->list, h->n, sizeof *h->list, coll_node_order);
            for (size_t j = 0; j < h->n; j++) {
                add_piece(r, h->list[j].at, count);
                region_sent(r, h->list[j].region);
            }
        }
        send_pieces(r, r->moves[i].peer);
        for (size_t k = i; k < end; k++) {
            held_t *h = &r->held[r->moves[k].block];
            for (size_t j = 0; j < h->n; j++)
                region_drop(r, h->list[j].region);
            h->n = 0;
        }
    }
}

/* Moves the parts that could not be combined out of the message's region. Otherwise the executor may read
 * them where they lie at the sender (a view). The SEND would then last until they are combined, rounds later,
 * while the sender counts on two. */
static void settle(run_t *r, size_t from, size_t end)
{
    coll_ref_t got = r->regions[r->got].at;
    for (size_t k = from; k < end && !r->a->fast_order; k++) {
        held_t *h = &r->held[r->moves[k].block];
        for (size_t j = 0; j < h->n; j++) {
            partial_t *p = &h->list[j];
            if (p->region != r->got)
                continue;
            if (r->sums < 0)
                r->sums = region_take(r, r->regions[r->got].size, 0);
            if (r->sums < 0)
                return;
            add_piece(r, p->at, slice_of(r, r->moves[k].block).count);
            p->at = coll_ref_add(r->regions[r->sums].at, p->at.offset - got.offset);
            p->region = r->sums;
            r->regions[r->sums].live++;
            region_drop(r, r->got);
        }
    }
    for (size_t i = 0; i < r->npieces; i++)
        coll_add_copy(r->b, r->blocks->channel,
                      coll_ref_add(r->regions[r->sums].at, r->pieces[i].at.offset - got.offset),
                      r->pieces[i].at, r->pieces[i].count, 0);
    r->npieces = 0;
}

static void recv_partials(run_t *r, int round)
{
    size_t n = list_moves(r, round, 1, 1), total;
    for (size_t i = 0, end; i < n; i = end) {
        end = message_end(r, i, n, &total);
        r->got = region_take(r, total, 0);
        r->sums = -1;
        if (r->got < 0)
            return;
        coll_ref_t at = r->regions[r->got].at;
        coll_add_recv(r->b, r->blocks->channel, r->moves[i].peer, at, total);
        size_t done = 0;
        for (size_t k = i; k < end; k++) {
            int block = r->moves[k].block, low = r->moves[k].low;
            size_t count = slice_of(r, block).count, pieces = 1;
            if (r->a->fast_order)
                r->nodes[0] = (coll_node_t){r->moves[k].peer, r->moves[k].peer + 1};
            else
                pieces = coll_forest_nodes(r->f, block, low, r->nodes);
            for (size_t j = 0; j < pieces; j++, done += count) {
                r->regions[r->got].live++;
                take_partial(r, block, (partial_t){r->nodes[j], coll_ref_add(at, done), r->got}, done,
                             j == 0 ? r->f->size[low] : 0);
            }
        }
        flush(r);
        settle(r, i, end);
        region_drop(r, r->got);
        region_drop(r, r->sums);
    }
}

/* ---- the whole ----------------------------------------------------------------------------------------- */

static int run_init(run_t *r, coll_builder_t *b, const coll_args_t *a, const coll_forest_t *f,
                    const coll_forest_blocks_t *blocks)
{
    size_t n = (size_t)a->n;
    *r = (run_t){.b = b, .a = a, .f = f, .blocks = blocks};
    r->held = coll_scratch(b, n, sizeof *r->held);
    r->moves = coll_scratch(b, n, sizeof *r->moves);
    r->nodes = coll_scratch(b, n, sizeof *r->nodes);
    return r->held && r->moves && r->nodes;
}

static size_t slices(const coll_args_t *a, const coll_forest_blocks_t *blocks)
{
    size_t most = 0;
    for (int o = 0; o < a->n; o++)
        most = base_max_size(most, blocks->at[o].count);
    return coll_chunks(most, a->chunk);
}

void coll_forest_reduce(coll_builder_t *b, const coll_args_t *a, const coll_forest_t *f,
                        const coll_forest_blocks_t *blocks)
{
    run_t r;
    if (!run_init(&r, b, a, f, blocks))
        return;
    for (size_t end = slices(a, blocks); r.slice < end; r.slice++) {
        for (int round = 0; round < f->rounds; round++, r.clock++) {
            send_partials(&r, round);
            recv_partials(&r, round);
        }
        for (int o = 0; o < a->n; o++) /* what is left is this rank's own result, in OUT */
            r.held[o].n = 0;
    }
}

void coll_forest_own(coll_builder_t *b, const coll_args_t *a, const coll_forest_blocks_t *blocks)
{
    size_t in_shift, out_shift;
    coll_range_t own = blocks->at[a->rank];
    if (!coll_aliased(a, &in_shift, &out_shift))
        coll_add_copy(b, blocks->channel, coll_out(own.offset), coll_in(own.offset - a->displs[a->rank]),
                      own.count, 0);
}

static void gather_round(run_t *r, int round, int theirs)
{
    size_t n = list_moves(r, round, 0, theirs), total;
    for (size_t i = 0, end; i < n; i = end) {
        end = message_end(r, i, n, &total);
        for (size_t k = i; k < end; k++) {
            coll_range_t slice = slice_of(r, r->moves[k].block);
            add_piece(r, coll_out(slice.offset), slice.count);
        }
        if (theirs)
            recv_pieces(r, r->moves[i].peer);
        else
            send_pieces(r, r->moves[i].peer);
    }
}

void coll_forest_gather(coll_builder_t *b, const coll_args_t *a, const coll_forest_t *f,
                        const coll_forest_blocks_t *blocks)
{
    run_t r;
    if (!run_init(&r, b, a, f, blocks))
        return;
    for (size_t end = slices(a, blocks); r.slice < end; r.slice++)
        for (int round = f->rounds - 1; round >= 0; round--, r.clock++) {
            gather_round(&r, round, 0);
            gather_round(&r, round, 1);
        }
}
