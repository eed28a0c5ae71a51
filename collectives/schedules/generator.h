/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/schedules/generator.h: what the generators share: geometry of blocks, shards and chunks,
 * references, and messages that consist of several blocks. Internal to the schedules; the executor uses none
 * of it. */
#ifndef COLLECTIVES_SCHEDULES_GENERATOR_H
#define COLLECTIVES_SCHEDULES_GENERATOR_H

#include "base/checked.h"
#include "collectives/schedules/canonical.h"
#include "collectives/schedules/algorithms.h"

/* One per algorithm. n >= 2 (leaves: n >= 1); args are valid and served (algorithms.c has checked both). The
 * builder keeps failures of memory. */
typedef void coll_generator_t(coll_builder_t *b, const coll_args_t *args);
#define ALGORITHM(id, name, ...) coll_generator_t coll_generate_##name;
#include "collectives/schedules/algorithms.def"
#undef ALGORITHM

/* Bounds of TMP that rows of the table name: coll_tmp_factor and coll_tmp_places say what they return. */
typedef size_t coll_tmp_bound_t(const coll_tmp_ask_t *ask);
coll_tmp_bound_t coll_ring_factor, coll_butterfly_factor, coll_direct_factor, coll_hierarchical_factor,
    coll_shared_factor, coll_bine_factor, coll_swing_factor, coll_leaves_factor;
coll_tmp_bound_t coll_ring_places, coll_tree_places, coll_butterfly_places, coll_direct_places,
    coll_hierarchical_places;
/* That of most algorithms: a block for each level of a tree, and two; all blocks in one shot. */
coll_tmp_bound_t coll_plain_factor;

/* shared: elements of TMP per peer for copies of a peer's data that a joint step adds; TMP ends with n - 1
 * such places. */
size_t coll_joint_room(const coll_args_t *args);
/* shared: the offset in TMP of the announcement of `rank`. */
size_t coll_announcement_at(const coll_args_t *args, int rank);

/* scan.c: the scans of direct and of butterfly; n >= 2. */
coll_generator_t coll_scan_at_once, coll_scan_doubling;
/* TMP of coll_scan_doubling in chunks. */
size_t coll_scan_places(int n);

/* Zeroed memory that lives until coll_builder_finish; NULL (kept in the builder) if there is none. */
void *coll_scratch(coll_builder_t *b, size_t count, size_t size);

/* `slots` places of `stride` elements in TMP (one coll_tmp). */
static inline coll_ref_t coll_tmp_slots(coll_builder_t *b, size_t slots, size_t stride)
{
    size_t all;
    return coll_tmp(b, base_mul(slots, stride, &all) ? all : SIZE_MAX); /* coll_tmp refuses that much */
}

static inline coll_ref_t coll_in(size_t offset)
{
    return (coll_ref_t){offset, COLL_IN};
}
static inline coll_ref_t coll_out(size_t offset)
{
    return (coll_ref_t){offset, COLL_OUT};
}
static inline coll_ref_t coll_ref_add(coll_ref_t ref, size_t elements)
{
    return (coll_ref_t){ref.offset + elements, ref.buf};
}

typedef struct {
    size_t offset, count;
} coll_range_t;

/* Shard j of a vector cut in n: equal but for the last ones, which may be shorter or empty. Large shards
 * start on multiples of 16 elements, so that two ranks do not write to one cache line. */
coll_range_t coll_shard(size_t count, int n, int j);
/* The k-th chunk of at most `chunk` elements; empty past the end. */
coll_range_t coll_chunk(coll_range_t range, size_t chunk, size_t k);
size_t coll_chunks(size_t count, size_t chunk);

/* all_reduce and reduce_scatter: the part of IN whose reduction rank j ends up with first (its shard or
 * block), and where that lies in OUT of rank j. */
coll_range_t coll_reduced_block(const coll_args_t *args, int j);
size_t coll_reduced_out(const coll_args_t *args);
/* The largest count among those blocks, over all ranks. */
size_t coll_reduced_most(const coll_args_t *args);

/* all_gather: block j of OUT. For all_reduce: shard j, whose gather phase is an all_gather in place. */
coll_range_t coll_gathered_block(const coll_args_t *args, int j);

/* 1 if IN and OUT share memory on this rank: then IN offset i is address i + *in_shift and OUT offset i is
 * address i + *out_shift of one memory. */
int coll_aliased(const coll_args_t *args, size_t *in_shift, size_t *out_shift);
/* Elements of IN and OUT that this rank has. */
void coll_extent(const coll_args_t *args, size_t *in, size_t *out);

/* Copies this rank's own contribution of an all_gather, gather, scatter or all_to_all from IN to its place in
 * OUT, unless it lies there already (in place). */
void coll_add_own_copy(coll_builder_t *b, const coll_args_t *args);

/* One message made of several pieces of memory (empty ones allowed). Contiguous pieces are sent from where
 * they lie, others are packed or unpacked through TMP; the message is the same either way. On channel 0. */
typedef struct {
    coll_ref_t at;
    size_t count;
} coll_piece_t;
coll_ref_t coll_add_pack(coll_builder_t *b, const coll_piece_t *pieces, size_t n, size_t *total);
void coll_add_send_pieces(coll_builder_t *b, int peer, const coll_piece_t *pieces, size_t n);
void coll_add_recv_pieces(coll_builder_t *b, int peer, const coll_piece_t *pieces, size_t n);

/* Rank `step` places after or before this one, cyclically (0 <= step < n). */
static inline int coll_rank_after(const coll_args_t *args, int step)
{
    int rank = args->rank + step;
    return rank < args->n ? rank : rank - args->n;
}
static inline int coll_rank_before(const coll_args_t *args, int step)
{
    int rank = args->rank - step;
    return rank >= 0 ? rank : rank + args->n;
}

#endif
