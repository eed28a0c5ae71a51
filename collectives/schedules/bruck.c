/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/schedules/bruck.c: the dissemination pattern (Bruck et al. 1997): in round k talk to the ranks
 * 2^k away, ceil(log2 n) rounds, for short messages.
 *
 *  all_gather   After k rounds a rank has the blocks of 2^k ranks, its own and the next ones (cyclically);
 *               it gets as many more from the rank 2^k further on. Blocks lie in OUT from the start. TMP
 *               only where displacements have gaps.
 *  all_to_all   Equal blocks. The block for the rank i further on travels the distances 2^k of the bits of
 *               i. Blocks that go together are packed. TMP: 2 n blocks.
 *  barrier      all_gather of nothing. */
#include "collectives/schedules/generator.h"

/* The blocks of ranks first, first + 1, ... in one or, where they wrap round, two messages. */
static int cyclic_parts(const coll_args_t *a, int first, int length, coll_node_t parts[2])
{
    int end = first + length;
    parts[0] = (coll_node_t){first, end < a->n ? end : a->n};
    parts[1] = (coll_node_t){0, end - a->n};
    return end > a->n ? 2 : 1;
}

static size_t list_blocks(const coll_args_t *a, coll_node_t ranks, coll_piece_t *pieces)
{
    for (int r = ranks.lo; r < ranks.hi; r++)
        pieces[r - ranks.lo] = (coll_piece_t){coll_out(a->displs[r]), a->counts[r]};
    return (size_t)coll_node_size(ranks);
}

static void all_gather(coll_builder_t *b, const coll_args_t *a)
{
    coll_piece_t *pieces = coll_scratch(b, (size_t)a->n, sizeof *pieces);
    if (!pieces)
        return;
    coll_add_own_copy(b, a);
    for (int have = 1; have < a->n; have *= 2) {
        int more = have < a->n - have ? have : a->n - have, from = coll_rank_after(a, have);
        coll_node_t parts[2];
        for (int i = 0, n = cyclic_parts(a, a->rank, more, parts); i < n; i++)
            coll_add_send_pieces(b, coll_rank_before(a, have), pieces, list_blocks(a, parts[i], pieces));
        for (int i = 0, n = cyclic_parts(a, from, more, parts); i < n; i++)
            coll_add_recv_pieces(b, from, pieces, list_blocks(a, parts[i], pieces));
    }
}

static void all_to_all(coll_builder_t *b, const coll_args_t *a)
{
    size_t block = a->counts[a->rank], n = (size_t)a->n;
    coll_piece_t *pieces = coll_scratch(b, n, sizeof *pieces);
    unsigned char *moved = coll_scratch(b, n, 1);
    if (!pieces || !moved)
        return;
    /* Block i is for the rank i further on. It lies in IN until it has travelled once, then at held + i *
     * block. */
    coll_ref_t held = coll_tmp(b, n * block), packed = coll_tmp(b, (n + 1) / 2 * block),
               got = coll_tmp(b, (n + 1) / 2 * block);
    for (int distance = 1; distance < a->n; distance *= 2) {
        size_t k = 0;
        for (int i = distance; i < a->n; i = (i + 1) | distance) {
            size_t at = (size_t)i, to = (size_t)coll_rank_after(a, i);
            coll_ref_t from = moved[i] ? coll_ref_add(held, at * block) : coll_in(a->displs[to]);
            coll_add_copy(b, 0, coll_ref_add(packed, k++ * block), from, block, 0);
        }
        coll_add_send(b, 0, coll_rank_after(a, distance), packed, k * block);
        coll_add_recv(b, 0, coll_rank_before(a, distance), got, k * block);
        k = 0;
        for (int i = distance; i < a->n; i = (i + 1) | distance) {
            coll_add_copy(b, 0, coll_ref_add(held, (size_t)i * block), coll_ref_add(got, k++ * block), block,
                          0);
            moved[i] = 1;
        }
    }
    /* What arrived as block i was sent by the rank i before this one. */
    coll_add_own_copy(b, a);
    for (int i = 1; i < a->n; i++) {
        size_t from = (size_t)coll_rank_before(a, i);
        coll_add_copy(b, 0, coll_out(a->rdispls[from]), coll_ref_add(held, (size_t)i * block), block, 0);
    }
}

static void barrier(coll_builder_t *b, const coll_args_t *a)
{
    for (int distance = 1; distance < a->n; distance *= 2) {
        coll_add_sync_send(b, coll_rank_after(a, distance));
        coll_add_sync_recv(b, coll_rank_before(a, distance));
    }
}

void coll_generate_bruck(coll_builder_t *b, const coll_args_t *args)
{
    if (args->op == COLL_ALL_GATHER)
        all_gather(b, args);
    else if (args->op == COLL_ALL_TO_ALL)
        all_to_all(b, args);
    else
        barrier(b, args);
}
