/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/schedules/binomial.c: binomial trees over the blocks of the canonical tree: log2 n rounds, for
 * short messages.
 *
 * A block of ranks is represented by `root` if it lies in it, else by its first rank. Upwards (reduce,
 * gather) the representative of one half sends what the half has to the representative of both; downwards
 * (broadcast, scatter) the other way round.
 *
 *  reduce, broadcast   in chunks, any root.
 *  all_reduce          reduce to 0, then broadcast.
 *  gather, scatter     equal blocks only: a rank that passes blocks on must know their sizes.
 *  barrier             gather and broadcast of nothing.
 * TMP: reduce 3 chunks (all_reduce 1); gather, scatter: the blocks that a rank passes on, at most n / 2. */
#include "collectives/schedules/generator.h"

typedef struct {
    coll_merge_t merge;
    int holder, giver; /* representatives of both halves together, and of the half without it */
} round_t;

static int representative(coll_node_t node, int root)
{
    return root >= node.lo && root < node.hi ? root : node.lo;
}

/* The round of a level as this rank sees it; 0 if it has no part in it. */
static int round_at(const coll_args_t *a, int root, int level, round_t *r)
{
    if (!coll_merge_at(a->n, a->rank, level, &r->merge))
        return 0;
    r->holder = representative(r->merge.both, root);
    r->giver = representative(r->holder < r->merge.right.lo ? r->merge.right : r->merge.left, root);
    return a->rank == r->holder || a->rank == r->giver;
}

typedef struct {
    coll_ref_t slot, sums[2];
    int in_out; /* sums grow in OUT */
} room_t;

static void reduce_chunk(coll_builder_t *b, const coll_args_t *a, const room_t *room, int root, size_t k)
{
    coll_range_t part = coll_chunk((coll_range_t){0, a->count}, a->chunk, k);
    coll_ref_t partial = coll_in(part.offset);
    for (int level = 0; level < coll_levels(a->n); level++) {
        round_t r;
        if (!round_at(a, root, level, &r))
            continue;
        if (a->rank == r.giver) {
            coll_add_send(b, 0, r.holder, partial, part.count);
            return;
        }
        coll_add_recv(b, 0, r.giver, room->slot, part.count);
        coll_ref_t sources[2] = {r.merge.is_left ? partial : room->slot,
                                 r.merge.is_left ? room->slot : partial};
        partial = room->in_out || r.merge.is_last ? coll_out(part.offset) : room->sums[k % 2];
        coll_add_reduce(b, 0, partial, sources, 2, part.count, r.merge.is_last ? COLL_FINAL : 0);
    }
}

static void broadcast_chunk(coll_builder_t *b, const coll_args_t *a, int root, coll_buf_t from, size_t k)
{
    coll_range_t part = coll_chunk((coll_range_t){0, a->count}, a->chunk, k);
    for (int level = coll_levels(a->n) - 1; level >= 0; level--) {
        round_t r;
        if (!round_at(a, root, level, &r))
            continue;
        if (a->rank == r.giver)
            coll_add_recv(b, 0, r.holder, coll_out(part.offset), part.count);
        else
            coll_add_send(b, 0, r.giver, (coll_ref_t){part.offset, from}, part.count);
    }
}

static void all_reduce(coll_builder_t *b, const coll_args_t *a)
{
    size_t chunks = coll_chunks(a->count, a->chunk);
    size_t lag = a->rank == 0 ? 0 : 2 * (size_t)coll_levels(a->n); /* the way up and down, in chunks */
    room_t room = {.in_out = 1};
    if (a->rank % 2 == 0)
        room.slot = coll_tmp(b, base_min_size(a->chunk, a->count));
    for (size_t k = 0; k < chunks + lag; k++) {
        if (k < chunks)
            reduce_chunk(b, a, &room, 0, k);
        if (k >= lag && k - lag < chunks)
            broadcast_chunk(b, a, 0, COLL_OUT, k - lag);
    }
}

static void reduce(coll_builder_t *b, const coll_args_t *a)
{
    size_t count = base_min_size(a->chunk, a->count);
    room_t room = {.slot = coll_tmp(b, count), .sums = {coll_tmp(b, count), coll_tmp(b, count)}};
    for (size_t k = 0; k < coll_chunks(a->count, a->chunk); k++)
        reduce_chunk(b, a, &room, a->root, k);
}

static void broadcast(coll_builder_t *b, const coll_args_t *a)
{
    for (size_t k = 0; k < coll_chunks(a->count, a->chunk); k++)
        broadcast_chunk(b, a, a->root, a->rank == a->root ? COLL_IN : COLL_OUT, k);
    if (a->rank == a->root)
        coll_add_own_copy(b, a);
}

/* The ranks whose blocks pass through this one: a node that starts here and does not hold root. */
static coll_node_t passes_on(const coll_args_t *a)
{
    coll_node_t node = {a->rank, a->rank + 1};
    for (int level = 0; level < coll_levels(a->n); level++) {
        round_t r;
        if (round_at(a, a->root, level, &r) && a->rank == r.holder)
            node = r.merge.both;
    }
    return node;
}

static size_t size_of(coll_node_t node, size_t block)
{
    return (size_t)coll_node_size(node) * block;
}

/* 1 if the blocks of `node` lie back to back in the root's buffer. */
static int back_to_back(const coll_args_t *a, coll_node_t node)
{
    for (int r = node.lo + 1; r < node.hi; r++)
        if (a->displs[r] != a->displs[r - 1] + a->counts[r - 1])
            return 0;
    return 1;
}

/* The root takes the blocks of `node` in one message; where they do not lie together (a segment of a larger
 * call), through TMP. */
static void receive_blocks(coll_builder_t *b, const coll_args_t *a, int giver, coll_node_t node)
{
    size_t block = a->counts[a->rank];
    if (back_to_back(a, node)) {
        coll_add_recv(b, 0, giver, coll_out(a->displs[node.lo]), size_of(node, block));
        return;
    }
    coll_ref_t at = coll_tmp(b, size_of(node, block));
    coll_add_recv(b, 0, giver, at, size_of(node, block));
    for (int r = node.lo; r < node.hi; r++)
        coll_add_copy(b, 0, coll_out(a->displs[r]), coll_ref_add(at, (size_t)(r - node.lo) * block), block,
                      0);
}

static void send_blocks(coll_builder_t *b, const coll_args_t *a, int taker, coll_node_t node)
{
    size_t block = a->counts[a->rank];
    if (back_to_back(a, node)) {
        coll_add_send(b, 0, taker, coll_in(a->displs[node.lo]), size_of(node, block));
        return;
    }
    coll_ref_t at = coll_tmp(b, size_of(node, block));
    for (int r = node.lo; r < node.hi; r++)
        coll_add_copy(b, 0, coll_ref_add(at, (size_t)(r - node.lo) * block), coll_in(a->displs[r]), block, 0);
    coll_add_send(b, 0, taker, at, size_of(node, block));
}

static void gather(coll_builder_t *b, const coll_args_t *a)
{
    size_t block = a->counts[a->rank];
    coll_node_t mine = passes_on(a);
    coll_ref_t at = coll_in(0);
    if (a->rank == a->root) {
        at = coll_out(a->displs[a->rank]);
        coll_add_own_copy(b, a);
    } else if (coll_node_size(mine) > 1) {
        at = coll_tmp(b, size_of(mine, block));
        coll_add_copy(b, 0, at, coll_in(0), block, 0);
    }
    for (int level = 0; level < coll_levels(a->n); level++) {
        round_t r;
        if (!round_at(a, a->root, level, &r))
            continue;
        if (a->rank == r.giver) {
            coll_add_send(b, 0, r.holder, at, size_of(r.merge.mine, block));
            return;
        }
        size_t first = (size_t)r.merge.other.lo * block;
        if (a->rank == a->root)
            receive_blocks(b, a, r.giver, r.merge.other);
        else
            coll_add_recv(b, 0, r.giver, coll_ref_add(at, first - (size_t)a->rank * block),
                          size_of(r.merge.other, block));
    }
}

static void scatter(coll_builder_t *b, const coll_args_t *a)
{
    size_t block = a->counts[a->rank];
    coll_node_t mine = passes_on(a);
    int passes = a->rank != a->root && coll_node_size(mine) > 1;
    coll_ref_t at = a->rank == a->root ? coll_in(a->displs[a->rank])
                    : passes           ? coll_tmp(b, size_of(mine, block))
                                       : coll_out(0);
    for (int level = coll_levels(a->n) - 1; level >= 0; level--) {
        round_t r;
        if (!round_at(a, a->root, level, &r))
            continue;
        if (a->rank == r.giver) {
            coll_add_recv(b, 0, r.holder, at, size_of(r.merge.mine, block));
            continue;
        }
        size_t first = (size_t)r.merge.other.lo * block;
        if (a->rank == a->root)
            send_blocks(b, a, r.giver, r.merge.other);
        else
            coll_add_send(b, 0, r.giver, coll_ref_add(at, first - (size_t)a->rank * block),
                          size_of(r.merge.other, block));
    }
    if (passes)
        coll_add_copy(b, 0, coll_out(0), at, block, 0);
    else if (a->rank == a->root)
        coll_add_own_copy(b, a);
}

static void barrier(coll_builder_t *b, const coll_args_t *a)
{
    int levels = coll_levels(a->n);
    for (int i = 0; i < 2 * levels; i++) {
        int up = i < levels;
        round_t r;
        if (!round_at(a, 0, up ? i : 2 * levels - 1 - i, &r))
            continue;
        if ((a->rank == r.giver) == up)
            coll_add_sync_send(b, up ? r.holder : r.giver);
        else
            coll_add_sync_recv(b, up ? r.giver : r.holder);
    }
}

void coll_generate_binomial(coll_builder_t *b, const coll_args_t *args)
{
    switch (args->op) {
    case COLL_ALL_REDUCE:
        all_reduce(b, args);
        break;
    case COLL_REDUCE:
        reduce(b, args);
        break;
    case COLL_BROADCAST:
        broadcast(b, args);
        break;
    case COLL_GATHER:
        gather(b, args);
        break;
    case COLL_SCATTER:
        scatter(b, args);
        break;
    default:
        barrier(b, args);
        break;
    }
}
