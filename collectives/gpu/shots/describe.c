/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/gpu/shots/describe.c: from a call's shape to the operation that the kernel of rounds.h runs.
 *
 *     all_reduce       one shot: everybody publishes the vector and adds up all of them
 *                      two shots: n shards; rank r adds up shard r and publishes the sum; all take all
 *     reduce           the same, but only the root takes (or adds up)
 *     reduce_scatter   n parts are published, rank r adds up part r
 *     all_gather       one part is published, all take all parts;   gather: the root takes them
 *     broadcast        the root publishes, the others take;         scatter: n parts, each takes his
 *     all_to_all       n parts are published, each takes his part of everyone
 *     barrier          a sync
 *
 * All of it is a pure function of the shape and of what the ranks have agreed on, so they launch the same
 * grid and the same number of rounds. Who knows only his own counts (uneven gather, scatter, all_to_all)
 * launches all blocks, and the kernel agrees on the rounds. */
#include "collectives/gpu/state.h"

#ifdef GYRE_CUDA

#include <string.h>

#include "base/checked.h"
#include "base/hash.h"
#include "base/settings/settings.h"

enum {
    BLOCK_LEAST = 8192, /* bytes of a part for which another block is worth its flags */
    MEMORY_DEVICE = 1
};

size_t coll_cuda_count(const coll_shape_t *s, int r)
{
    return s->uniform ? s->count : s->counts[r];
}

static size_t receive_count(const coll_shape_t *s, int r)
{
    return s->uniform ? s->count : s->rcounts[r];
}

uint32_t coll_cuda_sig(const coll_cuda_t *c, const coll_shape_t *s, coll_algo_t algo)
{
    const size_t own_bytes = s->type < GYRE_TYPE_USER ? 0 : gyre_type_size(s->type);
    uint64_t head[13] = {MEMORY_DEVICE,
                         (uint64_t)s->op,
                         (uint64_t)s->type | (uint64_t)own_bytes << 8,
                         (uint64_t)s->redop,
                         (uint64_t)s->root,
                         (uint64_t)s->scaled,
                         (uint64_t)s->uniform,
                         coll_op_is_vector(s->op) || s->uniform ? s->count : 0,
                         (uint64_t)base_setting_int(SET_CUDA_ONE_SHOT),
                         (uint64_t)base_setting_int(SET_CUDA_ENGINES),
                         (uint64_t)base_setting_int(SET_CUDA_LL),
                         (uint64_t)algo,
                         (uint64_t)coll_shape_is_exact(s)};
    uint64_t h = base_hash64(head, sizeof head, 5);
    if (!s->uniform && (s->op == COLL_REDUCE_SCATTER || s->op == COLL_ALL_GATHER))
        h = base_hash64(s->counts, (size_t)c->comm->n * sizeof(size_t), h);
    return (uint32_t)(h ^ (h >> 32));
}

void coll_cuda_shard(size_t bytes, int n, int r, size_t *at, size_t *length)
{
    const size_t each = base_round_up((bytes + (size_t)n - 1) / (size_t)n, COLL_CUDA_ALIGN);
    *at = base_min_size(bytes, each * (size_t)r);
    *length = base_min_size(bytes - *at, each);
}

static void publish_one(coll_cuda_op_t *op, size_t bytes)
{
    op->parts = 1;
    op->part_at[0] = 0;
    op->part_bytes[0] = bytes;
}

/* One part per rank, by blocks. */
static void publish_blocks(coll_cuda_op_t *op, const coll_shape_t *s, size_t esize)
{
    size_t packed = 0;
    op->parts = op->n;
    for (int r = 0; r < op->n; r++) {
        const size_t count = coll_cuda_count(s, r);
        op->part_at[r] = (s->displs ? s->displs[r] : packed) * esize;
        op->part_bytes[r] = count * esize;
        packed += count;
    }
}

static void take_blocks(coll_cuda_op_t *op, const coll_shape_t *s, size_t esize)
{
    size_t packed = 0;
    for (int r = 0; r < op->n; r++) {
        const size_t count = coll_cuda_count(s, r);
        op->take_at[r] = (s->displs ? s->displs[r] : packed) * esize;
        op->take_bytes[r] = count * esize;
        packed += count;
    }
}

/* Longer vectors of more than two ranks in two shots: every rank then reads about twice the vector and not
 * n times. */
static int in_one_shot(const coll_shape_t *s, int n, size_t esize)
{
    return n <= 2 || s->count * esize <= (size_t)base_setting_int(SET_CUDA_ONE_SHOT);
}

/* Returns the slots that a rank of this operation publishes at most. */
static int describe_vector_sum(coll_cuda_op_t *op, const coll_shape_t *s, size_t esize)
{
    const size_t bytes = s->count * esize;
    const int wants = s->op == COLL_ALL_REDUCE || op->rank == s->root;
    if (in_one_shot(s, op->n, esize)) {
        publish_one(op, bytes);
        op->reduces = 1;
        op->sum_bytes = wants ? bytes : 0;
        return 1;
    }
    size_t at;
    op->parts = op->n;
    op->reduces = 2;
    op->sum_slot = op->rank;
    coll_cuda_shard(bytes, op->n, op->rank, &at, &op->sum_bytes);
    for (int r = 0; r < op->n; r++) {
        coll_cuda_shard(bytes, op->n, r, &op->part_at[r], &op->part_bytes[r]);
        op->take_at[r] = op->part_at[r];
        op->take_bytes[r] = wants ? op->part_bytes[r] : 0;
    }
    return op->n;
}

static int describe_rooted(coll_cuda_op_t *op, const coll_shape_t *s, size_t esize)
{
    const int me = op->rank, root = s->root;
    if (s->op == COLL_BROADCAST) {
        if (me == root)
            publish_one(op, s->count * esize);
        else
            op->take_bytes[root] = s->count * esize;
        return 1;
    }
    if (s->op == COLL_GATHER) {
        if (me == root)
            take_blocks(op, s, esize);
        else
            publish_one(op, coll_cuda_count(s, me) * esize);
        return 1;
    }
    if (me == root)
        publish_blocks(op, s, esize);
    else
        op->take_bytes[root] = coll_cuda_count(s, me) * esize;
    op->take_slot = (uint16_t)me;
    return op->n;
}

static int describe_parts(coll_cuda_op_t *op, const coll_shape_t *s, size_t esize)
{
    size_t packed = 0;
    switch (s->op) {
    case COLL_ALL_REDUCE:
    case COLL_REDUCE:
        return describe_vector_sum(op, s, esize);
    case COLL_REDUCE_SCATTER:
        publish_blocks(op, s, esize);
        op->reduces = 1;
        op->sum_slot = op->rank;
        op->sum_bytes = op->part_bytes[op->rank];
        return op->n;
    case COLL_ALL_GATHER:
        publish_one(op, coll_cuda_count(s, op->rank) * esize);
        take_blocks(op, s, esize);
        return 1;
    case COLL_ALL_TO_ALL:
        publish_blocks(op, s, esize);
        op->take_slot = op->rank;
        for (int r = 0; r < op->n; r++) {
            op->take_at[r] = (s->rdispls ? s->rdispls[r] : packed) * esize;
            op->take_bytes[r] = receive_count(s, r) * esize;
            packed += receive_count(s, r);
        }
        return op->n;
    case COLL_BARRIER:
        return 1;
    default:
        return describe_rooted(op, s, esize);
    }
}

size_t coll_cuda_longest_part(const coll_cuda_op_t *op, const coll_shape_t *s, size_t esize)
{
    size_t most = 0;
    for (int r = 0; r < op->parts; r++)
        most = base_max_size(most, op->part_bytes[r]);
    for (int r = 0; r < op->n; r++)
        most = base_max_size(most, op->take_bytes[r]);
    if (s->op == COLL_ALL_GATHER || s->op == COLL_REDUCE_SCATTER)
        for (int r = 0; r < op->n; r++)
            most = base_max_size(most, coll_cuda_count(s, r) * esize);
    return most;
}

void coll_cuda_describe_arithmetic(const coll_cuda_t *c, const coll_shape_t *s, coll_cuda_op_t *op)
{
    memset(op, 0, sizeof *op);
    op->n = (uint16_t)c->comm->n;
    op->rank = (uint16_t)c->comm->rank;
    op->type = (uint8_t)s->type;
    op->redop = (uint8_t)s->redop;
    op->average = s->redop == GYRE_AVG;
    op->exact = (uint8_t)coll_shape_is_exact(s);
    op->divisor = (uint16_t)(c->divisor ? c->divisor : c->comm->n);
    op->scaled = (uint8_t)s->scaled;
    op->region = c->region;
    if (s->type == GYRE_INT8 || s->type == GYRE_INT16 || s->type == GYRE_INT32 || s->type == GYRE_INT64)
        op->sign = (uint64_t)1 << (8 * gyre_type_size(s->type) - 1);
}

int coll_cuda_phases(const coll_cuda_op_t *op)
{
    return 2 + (op->reduces == 2) + op->registered;
}

/* Each phase is a launch and waits for the peers. Before its rounds are known an operation counts as one. */
int coll_cuda_in_phases(const coll_cuda_t *c, const coll_cuda_op_t *op, int capturing)
{
    const size_t entries = base_max_size(op->rounds, 1) * (size_t)coll_cuda_phases(op) * (size_t)c->comm->n;
    return c->stream_waits && !capturing && !op->uneven &&
           (!c->several || entries <= COLL_CUDA_TEAM_LAUNCHES);
}

static void divide(coll_cuda_op_t *op, size_t most, int room, int *blocks)
{
    const size_t useful = (most + BLOCK_LEAST - 1) / BLOCK_LEAST;
    *blocks = op->uneven ? room : (int)base_min_size((size_t)room, base_max_size(useful, 1));
    const size_t round = op->slot * (size_t)*blocks;
    op->rounds = (uint32_t)base_max_size((most + round - 1) / round, 1);
}

void coll_cuda_describe(const coll_cuda_t *c, const coll_shape_t *s, int capturing, coll_cuda_op_t *op,
                        int *blocks)
{
    const size_t esize = s->op == COLL_BARRIER ? 1 : gyre_type_size(s->type);
    coll_cuda_describe_arithmetic(c, s, op);
    const int slots = describe_parts(op, s, esize);
    op->slot = op->region / 2 / (size_t)slots & ~(size_t)(COLL_CUDA_ALIGN - 1);
    op->uneven = (uint8_t)coll_shape_is_uneven(s);
    const size_t most = coll_cuda_longest_part(op, s, esize);
    divide(op, most, c->blocks, blocks);
    if (!coll_cuda_in_phases(c, op, capturing)) /* which is no other with more rounds */
        divide(op, most, c->resident, blocks);
}

#endif
