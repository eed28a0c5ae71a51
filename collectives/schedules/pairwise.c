/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/schedules/pairwise.c: one peer per step, n - 1 steps: the volume of a ring, in one hop, with
 * one partner at a time.
 *
 *  reduce_scatter  In step i a rank sends the block of the rank i further on and receives its own block of
 *                  the rank i before it; in the end the owner adds the n contributions in canonical order.
 *                  In chunks. TMP: (n - 1) * chunk.
 *  all_gather      The same pattern with whole blocks, no TMP.
 *  all_reduce      reduce_scatter by shards, all_gather.
 *  all_to_all      In step i the partners are the ranks whose numbers add up to i modulo n, so that each
 *                  pair swaps its blocks in one step. TMP: in place 2 blocks. */
#include "collectives/schedules/generator.h"

static void reduce_chunk(coll_builder_t *b, const coll_args_t *a, size_t k, coll_ref_t room, size_t stride,
                         coll_ref_t *sources)
{
    coll_range_t block = coll_reduced_block(a, a->rank), own = coll_chunk(block, a->chunk, k);
    for (int i = 1; i < a->n; i++) {
        int to = coll_rank_after(a, i), from = coll_rank_before(a, i);
        coll_range_t theirs = coll_chunk(coll_reduced_block(a, to), a->chunk, k);
        sources[from] = coll_ref_add(room, (size_t)(i - 1) * stride);
        coll_add_send(b, 0, to, coll_in(theirs.offset), theirs.count);
        coll_add_recv(b, 0, from, sources[from], own.count);
    }
    sources[a->rank] = coll_in(own.offset);
    coll_add_reduce(b, 0, coll_out(coll_reduced_out(a) + (own.offset - block.offset)), sources,
                    (uint32_t)a->n, own.count, COLL_FINAL);
}

static void reduce_blocks(coll_builder_t *b, const coll_args_t *a)
{
    size_t most = coll_reduced_most(a), stride = base_round_up(base_min_size(most, a->chunk), 64);
    coll_ref_t *sources = coll_scratch(b, (size_t)a->n, sizeof *sources);
    coll_ref_t room = coll_tmp_slots(b, (size_t)a->n - 1, stride);
    for (size_t k = 0; sources && k < coll_chunks(most, a->chunk); k++)
        reduce_chunk(b, a, k, room, stride, sources);
}

static void gather_blocks(coll_builder_t *b, const coll_args_t *a, coll_ref_t own)
{
    for (int i = 1; i < a->n; i++) {
        int from = coll_rank_before(a, i);
        coll_range_t theirs = coll_gathered_block(a, from);
        coll_add_send(b, 0, coll_rank_after(a, i), own, coll_gathered_block(a, a->rank).count);
        coll_add_recv(b, 0, from, coll_out(theirs.offset), theirs.count);
    }
}

static void all_to_all(coll_builder_t *b, const coll_args_t *a)
{
    coll_ref_t rooms[2] = {{0, COLL_TMP}, {0, COLL_TMP}};
    uint32_t emptied[2] = {UINT32_MAX, UINT32_MAX};
    for (int i = 0; a->in_place && i < 2; i++)
        rooms[i] = coll_tmp(b, a->counts[a->rank]);
    coll_add_own_copy(b, a);
    for (int i = 0, used = 0; i < a->n; i++) {
        int peer = i >= a->rank ? i - a->rank : i - a->rank + a->n;
        if (peer == a->rank)
            continue;
        coll_add_send(b, 0, peer, coll_in(a->displs[peer]), a->counts[peer]);
        if (!a->in_place) {
            coll_add_recv(b, 0, peer, coll_out(a->rdispls[peer]), a->rcounts[peer]);
            continue;
        }
        /* The copy waits for our send; on another channel than the receive, see direct.c. */
        int room = used++ % 2;
        uint32_t got = coll_add_recv(b, 0, peer, rooms[room], a->rcounts[peer]);
        coll_add_dep(b, got, emptied[room]);
        emptied[room] = coll_add_copy(b, 1, coll_out(a->rdispls[peer]), rooms[room], a->rcounts[peer], 0);
        coll_add_dep(b, emptied[room], got);
    }
}

void coll_generate_pairwise(coll_builder_t *b, const coll_args_t *args)
{
    switch (args->op) {
    case COLL_ALL_REDUCE:
        reduce_blocks(b, args);
        gather_blocks(b, args, coll_out(coll_reduced_out(args)));
        break;
    case COLL_REDUCE_SCATTER:
        reduce_blocks(b, args);
        break;
    case COLL_ALL_GATHER:
        gather_blocks(b, args, coll_in(0));
        coll_add_own_copy(b, args);
        break;
    default:
        all_to_all(b, args);
        break;
    }
}
