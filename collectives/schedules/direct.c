/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/schedules/direct.c: every rank exchanges with every other, in one hop. The schedule for shared
 * memory, where a receive that is only read by a reduction costs nothing: the reduction reads the peers'
 * memory itself.
 *
 * all_reduce      rank j adds shard j of all ranks (one multi-source step) and sends the sum to all. In
 *                  chunks: while the sums of chunk k travel, chunk k + 1 is added. one_shot: every rank sends
 *                  its whole vector to every other and adds all.
 * reduce_scatter  the first half of that. the others      one message per pair that has data to exchange.
 * scan, exscan    one message from each rank to every higher one: scan.c.
 * Peers are visited from rank + 1 on, so no rank is hit by all at once.
 *
 * TMP: (n - 1) * chunk for the reductions and for all_to_all in place (one_shot in place: n * chunk);
 * broadcast: STAGES * chunk. Steps per rank: O(n) per chunk. */
#include "collectives/schedules/generator.h"

/* One place in TMP per peer for a chunk of its contribution. */
typedef struct {
    coll_ref_t at;
    size_t stride;
    coll_ref_t *sources; /* [n], scratch */
} slots_t;

/* For chunks of a vector of `most` elements. */
static slots_t receive_slots(coll_builder_t *b, const coll_args_t *a, size_t most)
{
    slots_t slots = {.stride = base_round_up(base_min_size(a->chunk, most), 64)};
    slots.at = coll_tmp_slots(b, (size_t)a->n - 1, slots.stride);
    slots.sources = coll_scratch(b, (size_t)a->n, sizeof *slots.sources);
    return slots;
}

/* Receives `range` of every rank's IN (each sends its own) and reduces it into `to`. */
static void receive_and_reduce(coll_builder_t *b, const coll_args_t *a, const slots_t *slots,
                               coll_range_t range, coll_ref_t to)
{
    for (int i = 1; i < a->n; i++) {
        int peer = coll_rank_before(a, i);
        slots->sources[peer] = coll_ref_add(slots->at, (size_t)(i - 1) * slots->stride);
        coll_add_recv(b, 0, peer, slots->sources[peer], range.count);
    }
    slots->sources[a->rank] = coll_in(range.offset);
    coll_add_reduce(b, 0, to, slots->sources, (uint32_t)a->n, range.count, COLL_FINAL);
}

/* Chunk k of each peer's block goes to that peer. */
static void send_blocks(coll_builder_t *b, const coll_args_t *a, size_t k)
{
    for (int i = 1; i < a->n; i++) {
        int peer = coll_rank_after(a, i);
        coll_range_t range = coll_chunk(coll_reduced_block(a, peer), a->chunk, k);
        coll_add_send(b, 0, peer, coll_in(range.offset), range.count);
    }
}

static void send_to_all(coll_builder_t *b, const coll_args_t *a, coll_ref_t from, size_t count)
{
    for (int i = 1; i < a->n; i++)
        coll_add_send(b, 0, coll_rank_after(a, i), from, count);
}

static void receive_results(coll_builder_t *b, const coll_args_t *a, size_t k)
{
    for (int i = 1; i < a->n; i++) {
        int peer = coll_rank_before(a, i);
        coll_range_t range = coll_chunk(coll_reduced_block(a, peer), a->chunk, k);
        coll_add_recv(b, 0, peer, coll_out(range.offset), range.count);
    }
}

static void reduce_by_blocks(coll_builder_t *b, const coll_args_t *a)
{
    int spread = a->op == COLL_ALL_REDUCE;
    size_t most = coll_reduced_most(a), chunks = coll_chunks(most, a->chunk), out = coll_reduced_out(a);
    coll_range_t own = coll_reduced_block(a, a->rank);
    slots_t slots = receive_slots(b, a, most);
    if (!slots.sources)
        return;
    send_blocks(b, a, 0);
    for (size_t k = 0; k < chunks; k++) {
        coll_range_t range = coll_chunk(own, a->chunk, k);
        coll_ref_t to = coll_out(out + (range.offset - own.offset));
        send_blocks(b, a, k + 1);
        receive_and_reduce(b, a, &slots, range, to);
        if (spread)
            send_to_all(b, a, to, range.count);
        if (spread && k > 0)
            receive_results(b, a, k - 1);
    }
    if (spread && chunks > 0)
        receive_results(b, a, chunks - 1);
}

static void all_reduce_one_shot(coll_builder_t *b, const coll_args_t *a)
{
    size_t chunks = coll_chunks(a->count, a->chunk);
    slots_t slots = receive_slots(b, a, a->count);
    /* In place the sum must not land in OUT while peers still read IN there, and all ranks would wait for
     * each other: the sum is made in TMP and copied. */
    coll_ref_t sum = a->in_place ? coll_tmp(b, base_min_size(a->chunk, a->count)) : coll_out(0);
    if (!slots.sources)
        return;
    for (size_t k = 0; k < chunks; k++) {
        coll_range_t range = coll_chunk((coll_range_t){0, a->count}, a->chunk, k);
        send_to_all(b, a, coll_in(range.offset), range.count);
        receive_and_reduce(b, a, &slots, range, a->in_place ? sum : coll_out(range.offset));
        if (a->in_place)
            coll_add_copy(b, 0, coll_out(range.offset), sum, range.count, 0);
    }
}

static void reduce(coll_builder_t *b, const coll_args_t *a)
{
    coll_range_t all = {0, a->count};
    size_t chunks = coll_chunks(a->count, a->chunk);
    if (a->rank != a->root) {
        for (size_t k = 0; k < chunks; k++) {
            coll_range_t range = coll_chunk(all, a->chunk, k);
            coll_add_send(b, 0, a->root, coll_in(range.offset), range.count);
        }
        return;
    }
    slots_t slots = receive_slots(b, a, a->count);
    for (size_t k = 0; slots.sources && k < chunks; k++) {
        coll_range_t range = coll_chunk(all, a->chunk, k);
        receive_and_reduce(b, a, &slots, range, coll_out(range.offset));
    }
}

/* In chunks: a rank copies a chunk of its own block while peers read it, from its cache. */
static void all_gather(coll_builder_t *b, const coll_args_t *a)
{
    size_t in_shift, out_shift, most = 0;
    const int copies = !coll_aliased(a, &in_shift, &out_shift);
    const coll_range_t own = {0, a->counts[a->rank]};
    for (int r = 0; r < a->n; r++)
        most = base_max_size(most, a->counts[r]);
    const size_t chunks = coll_chunks(most, a->chunk);
    for (size_t k = 0; k < chunks; k++) {
        const coll_range_t mine = coll_chunk(own, a->chunk, k);
        send_to_all(b, a, coll_in(mine.offset), mine.count);
        if (copies)
            coll_add_copy(b, 0, coll_out(a->displs[a->rank] + mine.offset), coll_in(mine.offset), mine.count,
                          0);
        for (int i = 1; i < a->n; i++) {
            const int peer = coll_rank_before(a, i);
            const coll_range_t range =
                coll_chunk((coll_range_t){a->displs[peer], a->counts[peer]}, a->chunk, k);
            coll_add_recv(b, 0, peer, coll_out(range.offset), range.count);
        }
    }
}

/* Chunks of a broadcast that may be under way: one is written, one read, and one that late ranks still read.
 * With chunks of a quarter of a second-level cache (collectives/choose/select.c) all stay in it. */
enum { STAGES = 3 };

/* In chunks where ranks can reach each other's memory: all read a chunk while a cache holds it. */
static void broadcast(coll_builder_t *b, const coll_args_t *a)
{
    const coll_range_t all = {0, a->count};
    const size_t chunk = a->place ? a->chunk : base_max_size(a->count, 1), stride = base_round_up(chunk, 64);
    const size_t chunks = coll_chunks(a->count, chunk);
    const int staged = a->rank == a->root && chunks > 1;
    const coll_ref_t room = staged ? coll_tmp_slots(b, base_min_size(chunks, STAGES), stride) : coll_in(0);
    for (size_t k = 0; k < chunks; k++) {
        const coll_range_t range = coll_chunk(all, chunk, k);
        const coll_ref_t in = coll_in(range.offset);
        const coll_ref_t from = staged ? coll_ref_add(room, k % STAGES * stride) : in;
        if (a->rank != a->root) {
            coll_add_recv(b, 0, a->root, coll_out(range.offset), range.count);
            continue;
        }
        const uint32_t stage = staged ? coll_add_copy(b, 0, from, in, range.count, COLL_STAGE) : UINT32_MAX;
        send_to_all(b, a, from, range.count);
        /* for while the other channel waits for a place */
        if (!a->in_place)
            coll_add_dep(b, coll_add_copy(b, staged, coll_out(range.offset), in, range.count, 0), stage);
    }
}

static void gather(coll_builder_t *b, const coll_args_t *a)
{
    if (a->rank != a->root) {
        coll_add_send(b, 0, a->root, coll_in(0), a->counts[a->rank]);
        return;
    }
    coll_add_own_copy(b, a);
    for (int i = 1; i < a->n; i++) {
        int peer = coll_rank_before(a, i);
        coll_add_recv(b, 0, peer, coll_out(a->displs[peer]), a->counts[peer]);
    }
}

static void scatter(coll_builder_t *b, const coll_args_t *a)
{
    if (a->rank != a->root) {
        coll_add_recv(b, 0, a->root, coll_out(0), a->counts[a->rank]);
        return;
    }
    for (int i = 1; i < a->n; i++) {
        int peer = coll_rank_after(a, i);
        coll_add_send(b, 0, peer, coll_in(a->displs[peer]), a->counts[peer]);
    }
    coll_add_own_copy(b, a);
}

/* Chunk k of the block for each peer. */
static void send_pieces(coll_builder_t *b, const coll_args_t *a, size_t chunk, size_t k)
{
    for (int i = 1; i < a->n; i++) {
        const int peer = coll_rank_after(a, i);
        const coll_range_t range = coll_chunk((coll_range_t){a->displs[peer], a->counts[peer]}, chunk, k);
        coll_add_send(b, 0, peer, coll_in(range.offset), range.count);
    }
}

/* Blocks that all ranks know to be equal go in chunks, so that in place a chunk of each suffices in TMP. */
static void all_to_all(coll_builder_t *b, const coll_args_t *a)
{
    const size_t chunk = a->uniform ? a->chunk : SIZE_MAX;
    const size_t chunks = a->uniform ? coll_chunks(a->counts[a->rank], chunk) : 1;
    const size_t stride = base_round_up(base_min_size(chunk, a->counts[a->rank]), 64);
    const coll_ref_t slots = a->in_place ? coll_tmp_slots(b, (size_t)a->n - 1, stride) : coll_out(0);
    uint32_t *free_after =
        coll_scratch(b, (size_t)a->n, sizeof *free_after); /* the copy that empties a slot */
    if (!free_after)
        return;
    send_pieces(b, a, chunk, 0);
    coll_add_own_copy(b, a);
    for (size_t k = 0; k < chunks; k++) {
        send_pieces(b, a, chunk, k + 1);
        for (int i = 1; i < a->n; i++) {
            const int peer = coll_rank_before(a, i);
            const coll_range_t range =
                coll_chunk((coll_range_t){a->rdispls[peer], a->rcounts[peer]}, chunk, k);
            const coll_ref_t to = coll_out(range.offset);
            if (!a->in_place) {
                coll_add_recv(b, 0, peer, to, range.count);
                continue;
            }
            /* The copy waits for our send to `peer`, and runs on another channel than the receive, so
             * that the chunk is fetched before: if it were read from the peer's memory as late as in the
             * copy, both would wait for each other. */
            const coll_ref_t slot = coll_ref_add(slots, (size_t)(i - 1) * stride);
            const uint32_t got = coll_add_recv(b, 0, peer, slot, range.count);
            if (k > 0)
                coll_add_dep(b, got, free_after[i]);
            free_after[i] = coll_add_copy(b, 1, to, slot, range.count, 0);
            coll_add_dep(b, free_after[i], got);
        }
    }
}

static void barrier(coll_builder_t *b, const coll_args_t *a)
{
    for (int i = 1; i < a->n; i++)
        coll_add_sync_send(b, coll_rank_after(a, i));
    for (int i = 1; i < a->n; i++)
        coll_add_sync_recv(b, coll_rank_before(a, i));
}

void coll_generate_direct(coll_builder_t *b, const coll_args_t *args)
{
    switch (args->op) {
    case COLL_ALL_REDUCE:
        if (args->one_shot)
            all_reduce_one_shot(b, args);
        else
            reduce_by_blocks(b, args);
        break;
    case COLL_REDUCE_SCATTER:
        reduce_by_blocks(b, args);
        break;
    case COLL_REDUCE:
        reduce(b, args);
        break;
    case COLL_ALL_GATHER:
        all_gather(b, args);
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
    case COLL_ALL_TO_ALL:
        all_to_all(b, args);
        break;
    case COLL_SCAN:
    case COLL_EXSCAN:
        coll_scan_at_once(b, args);
        break;
    default:
        barrier(b, args);
        break;
    }
}

size_t coll_direct_places(const coll_tmp_ask_t *ask)
{
    switch (ask->op) {
    case COLL_BROADCAST:
        return STAGES;
    case COLL_ALL_TO_ALL: /* in place */
        return base_max_size((size_t)ask->n - 1, 1);
    case COLL_ALL_GATHER: /* chunks, but none in TMP */
        return 1;
    default:
        return 0;
    }
}

size_t coll_direct_factor(const coll_tmp_ask_t *ask)
{
    if (ask->op == COLL_REDUCE || coll_op_scans(ask->op))
        return (size_t)ask->n + 1;
    if (ask->op == COLL_GATHER || ask->op == COLL_SCATTER)
        return 0;
    return ask->op == COLL_ALL_GATHER || ask->op == COLL_ALL_TO_ALL ? 1 : coll_plain_factor(ask);
}
