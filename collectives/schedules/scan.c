/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/schedules/scan.c: prefixes. Rank r ends with the reduction of ranks 0..r (scan), or of 0..r-1
 * (exscan: rank 0 ends with nothing), in the canonical tree over just these ranks. Two forms:
 *
 * at once    (direct) Every rank sends its vector to all higher ranks and adds those of all lower ranks in
 *            one step. Volume: up to (n - 1) vectors per rank. TMP: up to n chunks.
 * doubling   (butterfly) Recursive doubling (Sanders and Traeff, EuroPVM/MPI 2006). At level k, the ranks r
 *            and r + 2^k of two neighbouring blocks of 2^k ranks exchange the sums of their blocks. The upper
 *            one puts the lower block's sum before its prefix:
 *
 *                                  rank    4        5        6        7
 *                          own block  |    4        5        6        7
 *                level 0   partner 5, 4, 7, 6
 *                          own block  |   4+5      4+5      6+7      6+7
 *                             prefix  |    4       4+5       6       6+7
 *                level 1   partner 6, 7, 4, 5
 *                             prefix  |    4       4+5   (4+5)+6  (4+5)+(6+7)
 *                level 2   partner 0, 1, 2, 3: each gets (0+1)+(2+3) and puts it before its prefix
 *
 *            The canonical tree over ranks 0..r is cut at the same places: at the largest power of two below
 *            r + 1, and so on to the right. So the bits are those of the canonical tree, also of a prefix
 *            whose last block is not whole; the sum of such a block is never needed. A sum that nobody uses
 *            is not sent (see sum_is_used). Volume: up to log2 n vectors per rank. TMP: coll_scan_places.
 *
 *            Long vectors go in waves: level k of chunk c is in wave c + k, and a wave sends all that it
 *            sends before it receives. No step waits for a step of its own wave but for the partner's of the
 *            same level and chunk, and there only the upper one does (in place, it overwrites what the lower
 *            one reads), so no ranks wait for each other. */
#include "collectives/schedules/generator.h"

static coll_range_t chunk_of(const coll_args_t *a, size_t k)
{
    return coll_chunk((coll_range_t){0, a->count}, a->chunk, k);
}

static size_t chunk_stride(const coll_args_t *a)
{
    return base_round_up(base_min_size(a->chunk, a->count), 64);
}

/* Rank 0's prefix, after its messages: in place this waits for them. */
static void add_first(coll_builder_t *b, const coll_args_t *a)
{
    const coll_ref_t in = coll_in(0);
    if (a->op == COLL_SCAN)
        coll_add_reduce(b, 0, coll_out(0), &in, 1, a->count, COLL_FINAL);
}

/* ---- at once ------------------------------------------------------------------------------------------- */

static void send_up(coll_builder_t *b, const coll_args_t *a, size_t k)
{
    const coll_range_t range = chunk_of(a, k);
    for (int peer = a->rank + 1; peer < a->n; peer++)
        coll_add_send(b, 0, peer, coll_in(range.offset), range.count);
}

void coll_scan_at_once(coll_builder_t *b, const coll_args_t *a)
{
    const int rank = a->rank, inputs = coll_op_inputs(a->op, a->n, rank);
    /* In place the prefix must not land in OUT before all higher ranks have read IN there: each would wait
     * for the next. It is made in TMP and copied. */
    const int copy = a->in_place && rank > 0 && rank < a->n - 1;
    const size_t chunks = coll_chunks(a->count, a->chunk), stride = chunk_stride(a);
    const coll_ref_t slots = coll_tmp_slots(b, (size_t)rank, stride), sum = coll_tmp(b, copy ? stride : 0);
    coll_ref_t *sources = coll_scratch(b, (size_t)a->n, sizeof *sources);
    if (!sources)
        return;
    send_up(b, a, 0);
    for (size_t k = 0; k < chunks; k++) {
        const coll_range_t range = chunk_of(a, k);
        const coll_ref_t out = coll_out(range.offset);
        send_up(b, a, k + 1);
        for (int peer = rank - 1; peer >= 0; peer--) {
            sources[peer] = coll_ref_add(slots, (size_t)peer * stride);
            coll_add_recv(b, 0, peer, sources[peer], range.count);
        }
        sources[rank] = coll_in(range.offset); /* of scan */
        if (rank > 0)
            coll_add_reduce(b, 0, copy ? sum : out, sources, (uint32_t)inputs, range.count, COLL_FINAL);
        if (copy)
            coll_add_copy(b, 0, out, sum, range.count, 0);
    }
    if (rank == 0)
        add_first(b, a);
}

/* ---- recursive doubling -------------------------------------------------------------------------------- */

typedef struct {
    coll_builder_t *b;
    const coll_args_t *a;
    coll_ref_t slot, sums; /* what a peer sent; sums of blocks */
    size_t stride;
} scan_t;

/* 1 if rank needs the sum of its block of 2^level ranks (which then is whole): some rank with the same low
 * bits in a block that contains it has a higher one to send to at a level from here on. */
static int sum_is_used(int n, int rank, int level)
{
    for (int j = level; 1 << j < n; j++) {
        const int lowest = rank & ~((1 << j) - (1 << level));
        if (!(rank >> j & 1) && lowest + (1 << j) < n)
            return 1;
    }
    return 0;
}

/* The sum of the sender's block is what an upper rank adds to its prefix, and a lower one to its block. */
static int sends_at(int n, int rank, int level)
{
    const int bit = 1 << level;
    return rank & bit ? sum_is_used(n, rank ^ bit, level + 1) : rank + bit < n;
}

/* Two places per level: a wave makes the next chunk's sum while this one's is on its way. */
static coll_ref_t block_sum(const scan_t *s, int level, size_t k)
{
    if (level == 0)
        return coll_in(chunk_of(s->a, k).offset);
    return coll_ref_add(s->sums, (2 * (size_t)(level - 1) + k % 2) * s->stride);
}

size_t coll_scan_places(int n)
{
    return 2 * (size_t)coll_levels(n); /* one for what a peer sent, and two for each level but the first */
}

/* The lower block's sum is in the slot; `next`: the sum of both blocks was made, too. The prefix within the
 * rank's own block is in OUT, unless the rank is the first or the last of that block. */
static void extend_prefix(const scan_t *s, int level, size_t k, int next)
{
    const coll_args_t *a = s->a;
    const int rank = a->rank, bit = 1 << level, place = rank & (bit - 1);
    const int inclusive = a->op == COLL_SCAN, last_of_block = inclusive && place == bit - 1;
    const int flags = rank >> (level + 1) == 0 ? COLL_FINAL : 0;
    const coll_range_t range = chunk_of(a, k);
    coll_ref_t sources[2] = {s->slot, coll_out(range.offset)};
    if (last_of_block && next) { /* the sum is the prefix, and stays it while the next bit is set, too */
        if (!(rank >> (level + 1) & 1))
            coll_add_copy(s->b, 0, coll_out(range.offset), block_sum(s, level + 1, k), range.count, flags);
        return;
    }
    if (last_of_block && sum_is_used(a->n, rank, level))
        sources[1] = block_sum(s, level, k);
    else if (inclusive && place == 0)
        sources[1] = coll_in(range.offset);
    coll_add_reduce(s->b, 0, coll_out(range.offset), sources, inclusive || place ? 2 : 1, range.count, flags);
}

static void receive(const scan_t *s, int level, size_t k)
{
    const coll_args_t *a = s->a;
    const int bit = 1 << level, peer = a->rank ^ bit, upper = a->rank & bit;
    const int next = sum_is_used(a->n, a->rank, level + 1);
    const size_t count = chunk_of(a, k).count;
    const coll_ref_t own = block_sum(s, level, k);
    const coll_ref_t sources[2] = {upper ? s->slot : own, upper ? own : s->slot};
    if (peer >= a->n || !sends_at(a->n, peer, level))
        return;
    coll_add_recv(s->b, 0, peer, s->slot, count);
    if (next)
        coll_add_reduce(s->b, 0, block_sum(s, level + 1, k), sources, 2, count, 0);
    if (upper)
        extend_prefix(s, level, k, next);
}

void coll_scan_doubling(coll_builder_t *b, const coll_args_t *a)
{
    const size_t chunks = coll_chunks(a->count, a->chunk);
    const int levels = coll_levels(a->n);
    scan_t s = {.b = b, .a = a, .stride = chunk_stride(a)};
    s.slot = coll_tmp(b, s.stride);
    s.sums = coll_tmp_slots(b, 2 * (size_t)(levels - 1), s.stride);
    for (size_t wave = 0; chunks && wave < chunks + (size_t)levels - 1; wave++)
        for (int receives = 0; receives < 2; receives++)
            for (int level = levels - 1; level >= 0; level--) {
                const size_t k = wave - (size_t)level; /* wraps round before the first chunk */
                if (k >= chunks)
                    continue;
                if (receives)
                    receive(&s, level, k);
                else if (sends_at(a->n, a->rank, level))
                    coll_add_send(b, 0, a->rank ^ (1 << level), block_sum(&s, level, k),
                                  chunk_of(a, k).count);
            }
    if (a->rank == 0)
        add_first(b, a);
}
