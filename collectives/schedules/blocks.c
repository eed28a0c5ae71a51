/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/schedules/blocks.c: where things lie: shards, chunks, blocks, in-place aliasing, and messages
 * of several pieces. */
#include "collectives/schedules/generator.h"

coll_range_t coll_shard(size_t count, int n, int j)
{
    size_t each = count / (size_t)n + (count % (size_t)n != 0);
    if (each >= 256)
        each = base_round_up(each, 16);
    if (each != 0 && (size_t)j > count / each) /* also keeps the product below from overflowing */
        return (coll_range_t){count, 0};
    size_t offset = base_min_size((size_t)j * each, count);
    return (coll_range_t){offset, base_min_size(each, count - offset)};
}

coll_range_t coll_chunk(coll_range_t range, size_t chunk, size_t k)
{
    if (k >= coll_chunks(range.count, chunk))
        return (coll_range_t){range.offset + range.count, 0};
    return (coll_range_t){range.offset + k * chunk, base_min_size(chunk, range.count - k * chunk)};
}

size_t coll_chunks(size_t count, size_t chunk)
{
    return count / chunk + (count % chunk != 0);
}

coll_range_t coll_reduced_block(const coll_args_t *args, int j)
{
    if (args->op == COLL_REDUCE_SCATTER)
        return (coll_range_t){args->displs[j], args->counts[j]};
    return coll_shard(args->count, args->n, j);
}

size_t coll_reduced_out(const coll_args_t *args)
{
    return args->op == COLL_REDUCE_SCATTER ? 0 : coll_shard(args->count, args->n, args->rank).offset;
}

size_t coll_reduced_most(const coll_args_t *args)
{
    if (args->op != COLL_REDUCE_SCATTER)
        return coll_shard(args->count, args->n, 0).count;
    size_t most = 0;
    for (int j = 0; j < args->n; j++)
        most = base_max_size(most, args->counts[j]);
    return most;
}

coll_range_t coll_gathered_block(const coll_args_t *args, int j)
{
    if (args->op == COLL_ALL_GATHER)
        return (coll_range_t){args->displs[j], args->counts[j]};
    return coll_shard(args->count, args->n, j);
}

int coll_aliased(const coll_args_t *args, size_t *in_shift, size_t *out_shift)
{
    *in_shift = *out_shift = 0;
    if (!args->in_place)
        return 0;
    switch (args->op) {
    case COLL_ALL_REDUCE:
    case COLL_ALL_TO_ALL:
    case COLL_SCAN:
    case COLL_EXSCAN:
        return 1;
    case COLL_BROADCAST:
    case COLL_REDUCE:
        return args->rank == args->root;
    case COLL_REDUCE_SCATTER:
        *out_shift = args->displs[args->rank];
        return 1;
    case COLL_SCATTER:
        if (args->rank != args->root)
            return 0;
        *out_shift = args->displs[args->rank];
        return 1;
    case COLL_GATHER:
        if (args->rank != args->root)
            return 0;
        *in_shift = args->displs[args->rank];
        return 1;
    case COLL_ALL_GATHER:
        *in_shift = args->displs[args->rank];
        return 1;
    default:
        return 0;
    }
}

static size_t blocks_end(const size_t *counts, const size_t *displs, int n)
{
    size_t end = 0;
    for (int i = 0; i < n; i++)
        if (counts[i])
            end = base_max_size(end, displs[i] + counts[i]);
    return end;
}

void coll_extent(const coll_args_t *args, size_t *in, size_t *out)
{
    int root = args->rank == args->root;
    *in = *out = 0;
    switch (args->op) {
    case COLL_ALL_REDUCE:
    case COLL_SCAN:
        *in = *out = args->count;
        break;
    case COLL_EXSCAN:
        *in = args->count;
        *out = args->rank > 0 ? args->count : 0;
        break;
    case COLL_BROADCAST:
        *in = root ? args->count : 0;
        *out = args->count;
        break;
    case COLL_REDUCE:
        *in = args->count;
        *out = root ? args->count : 0;
        break;
    case COLL_REDUCE_SCATTER:
        *in = blocks_end(args->counts, args->displs, args->n);
        *out = args->counts[args->rank];
        break;
    case COLL_ALL_GATHER:
        *in = args->counts[args->rank];
        *out = blocks_end(args->counts, args->displs, args->n);
        break;
    case COLL_GATHER:
        *in = args->counts[args->rank];
        *out = root ? blocks_end(args->counts, args->displs, args->n) : 0;
        break;
    case COLL_SCATTER:
        *in = root ? blocks_end(args->counts, args->displs, args->n) : 0;
        *out = args->counts[args->rank];
        break;
    case COLL_ALL_TO_ALL:
        *in = blocks_end(args->counts, args->displs, args->n);
        *out = blocks_end(args->rcounts, args->rdispls, args->n);
        break;
    default:
        break;
    }
    if (args->leaves && coll_op_reduces(args->op)) {
        const size_t mine = (size_t)(args->leaves[args->rank + 1] - args->leaves[args->rank]);
        *in = mine && *in ? (mine - 1) * args->stride + *in : 0;
    }
}

void coll_add_own_copy(coll_builder_t *b, const coll_args_t *args)
{
    size_t in_shift, out_shift, rank = (size_t)args->rank;
    if (coll_aliased(args, &in_shift, &out_shift))
        return;
    switch (args->op) {
    case COLL_ALL_GATHER:
    case COLL_GATHER:
        coll_add_copy(b, 0, coll_out(args->displs[rank]), coll_in(0), args->counts[rank], 0);
        break;
    case COLL_SCATTER:
        coll_add_copy(b, 0, coll_out(0), coll_in(args->displs[rank]), args->counts[rank], 0);
        break;
    case COLL_ALL_TO_ALL:
        coll_add_copy(b, 0, coll_out(args->rdispls[rank]), coll_in(args->displs[rank]), args->counts[rank],
                      0);
        break;
    case COLL_BROADCAST:
        coll_add_copy(b, 0, coll_out(0), coll_in(0), args->count, 0);
        break;
    default:
        break;
    }
}

/* 1 if the pieces, empty ones left out, follow each other in one buffer; *at is where they start. */
static int contiguous(const coll_piece_t *pieces, size_t n, coll_ref_t *at, size_t *total)
{
    int one = 1;
    *total = 0;
    *at = (coll_ref_t){0, COLL_TMP};
    for (size_t i = 0; i < n; i++) {
        if (!pieces[i].count)
            continue;
        if (!*total)
            *at = pieces[i].at;
        else if (pieces[i].at.buf != at->buf || pieces[i].at.offset != at->offset + *total)
            one = 0;
        *total += pieces[i].count;
    }
    return one;
}

/* Copies between the pieces and `packed`, neighbours in one step. */
static void add_packing(coll_builder_t *b, const coll_piece_t *pieces, size_t n, coll_ref_t packed,
                        int unpack)
{
    for (size_t i = 0, next; i < n; i = next) {
        size_t run = pieces[i].count;
        for (next = i + 1; next < n && pieces[next].at.buf == pieces[i].at.buf &&
                           pieces[next].at.offset == pieces[i].at.offset + run;
             next++)
            run += pieces[next].count;
        if (unpack)
            coll_add_copy(b, 0, pieces[i].at, packed, run, 0);
        else
            coll_add_copy(b, 0, packed, pieces[i].at, run, 0);
        packed = coll_ref_add(packed, run);
    }
}

coll_ref_t coll_add_pack(coll_builder_t *b, const coll_piece_t *pieces, size_t n, size_t *total)
{
    coll_ref_t at;
    if (!contiguous(pieces, n, &at, total)) {
        at = coll_tmp(b, *total);
        add_packing(b, pieces, n, at, 0);
    }
    return at;
}

void coll_add_send_pieces(coll_builder_t *b, int peer, const coll_piece_t *pieces, size_t n)
{
    size_t total;
    coll_ref_t at = coll_add_pack(b, pieces, n, &total);
    coll_add_send(b, 0, peer, at, total);
}

void coll_add_recv_pieces(coll_builder_t *b, int peer, const coll_piece_t *pieces, size_t n)
{
    coll_ref_t at;
    size_t total;
    if (contiguous(pieces, n, &at, &total)) {
        coll_add_recv(b, 0, peer, at, total);
        return;
    }
    at = coll_tmp(b, total);
    coll_add_recv(b, 0, peer, at, total);
    add_packing(b, pieces, n, at, 1);
}
