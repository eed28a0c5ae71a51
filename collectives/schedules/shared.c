/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/schedules/shared.c: ranks that can reach each other's memory work in it directly. An operation
 * waits twice: until all ranks have announced the addresses of their buffers, and until all have reported
 * that they are done.
 *
 * all_reduce   rank j adds shard j of all ranks' IN and writes the sum to all ranks' OUT: each input is read
 * once and
 *               each output written once, the least traffic there is without multicast. In place needs
 *               nothing more, because no other rank touches shard j meanwhile.
 * broadcast    root and receiver copy a part each, so no core is idle. The root copies 1/n of a receiver's
 * vector: both
 *               then have (n - 1)/n of a vector to copy.
 *
 * TMP: one announcement per rank, and room for the chunks of peers whose memory cannot be mapped. Messages
 * carry announcements only, so data never waits for a slot. */
#include "collectives/schedules/generator.h"

/* Only a scaled sum has TMP as long as the vector: the scaled input, counted by the caller, and the sum. */
size_t coll_shared_factor(const coll_tmp_ask_t *ask)
{
    return ask->scaled ? 1 : 0;
}

size_t coll_announcement_at(const coll_args_t *args, int rank)
{
    size_t index = rank == args->rank ? 0 : rank < args->rank ? (size_t)rank + 1 : (size_t)rank;
    return index * base_round_up(args->place, 64);
}

/* Reserves the places in TMP: this rank's own announcement first. */
static coll_ref_t announcements(coll_builder_t *b, const coll_args_t *a)
{
    return coll_tmp_slots(b, (size_t)a->n, base_round_up(a->place, 64));
}

static coll_ref_t announcement_of(const coll_args_t *a, coll_ref_t first, int rank)
{
    return coll_ref_add(first, coll_announcement_at(a, rank));
}

static void all_reduce(coll_builder_t *b, const coll_args_t *a)
{
    coll_ref_t first = announcements(b, a);
    coll_range_t shard = coll_shard(a->count, a->n, a->rank);
    coll_tmp_slots(b, (size_t)a->n - 1, coll_joint_room(a));
    for (int i = 1; i < a->n; i++)
        coll_add_send(b, 0, coll_rank_after(a, i), first, a->place);
    for (int i = 1; i < a->n; i++) {
        int peer = coll_rank_before(a, i);
        coll_add_recv(b, 0, peer, announcement_of(a, first, peer), a->place);
    }
    coll_add_joint(b, COLL_FROM_ALL, coll_out(shard.offset), shard.count, COLL_FINAL);
    for (int i = 1; i < a->n; i++)
        coll_add_send(b, 0, coll_rank_after(a, i), first, 1);
    for (int i = 1; i < a->n; i++) {
        int peer = coll_rank_before(a, i);
        coll_add_recv(b, 0, peer, announcement_of(a, first, peer), 1);
    }
}

/* What the root copies to a receiver; the rest is the receiver's. */
static coll_range_t pushed(const coll_args_t *a)
{
    size_t all = a->count, own = all / (size_t)a->n;
    if (all >= 256)
        own = own / 16 * 16;
    return (coll_range_t){all - own, own};
}

static void broadcast(coll_builder_t *b, const coll_args_t *a)
{
    coll_ref_t first = announcements(b, a);
    coll_range_t part = pushed(a);
    if (a->rank != a->root) {
        coll_add_send(b, 0, a->root, first, a->place);
        coll_add_recv(b, 0, a->root, announcement_of(a, first, a->root), a->place);
        coll_add_joint(b, a->rank, coll_out(0), part.offset, 0);
        coll_add_send(b, 0, a->root, first, 1);
        coll_add_recv(b, 0, a->root, announcement_of(a, first, a->root), 1);
        return;
    }
    for (int i = 1; i < a->n; i++)
        coll_add_send(b, 0, coll_rank_after(a, i), first, a->place);
    for (int i = 1; i < a->n; i++) {
        int peer = coll_rank_after(a, i);
        coll_add_recv(b, 0, peer, announcement_of(a, first, peer), a->place);
        coll_add_joint(b, peer, coll_out(part.offset), part.count, 0);
        coll_add_send(b, 0, peer, first, 1);
    }
    coll_add_own_copy(b, a);
    for (int i = 1; i < a->n; i++) {
        int peer = coll_rank_after(a, i);
        coll_add_recv(b, 0, peer, announcement_of(a, first, peer), 1);
    }
}

size_t coll_joint_room(const coll_args_t *args)
{
    size_t most = coll_shard(args->count, args->n, 0).count;
    size_t share = base_max_size(4 * args->chunk / (size_t)(args->n - 1), 64);
    return base_round_up(base_min_size(most, base_min_size(share, args->chunk)), 64);
}

void coll_generate_shared(coll_builder_t *b, const coll_args_t *args)
{
    if (args->op == COLL_ALL_REDUCE)
        all_reduce(b, args);
    else
        broadcast(b, args);
}
