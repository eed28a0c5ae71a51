/* SPDX-License-Identifier: Apache-2.0 */
/* comm/derive.c: groups made of ranks of another one, all on this host, without asking again what that one
 * knows: who is where, who reads whose memory, which transports there are.
 *
 * All that differs is where the segment lies. Nobody knows who will make it before the ranks have exchanged
 * who belongs together. So in that exchange each rank offers a room; the first rank's is taken. Its layout
 * follows from the first rank's budget. So there is nothing to wait for: ranks enter the room in any order.
 *
 * The parent shares nothing with the new group: an error in one of them is none in the other. */
#include "comm/link.h"
#include "comm/memory/rooms.h"

#include "base/settings/settings.h"

/* All ranks are on this host, with places in its segment, and what their cards say holds for any of them. */
int comm_group_derives(const comm_group_t *parent)
{
    return parent->n > 1 && parent->hosts == 1 && parent->seg.base && parent->seg.locals == parent->n &&
           !parent->network && !comm_group_shuns_memory(parent) && comm_cells_one(parent);
}

/* 1: pages that were touched first by some ranks are as good for others. */
static int is_one_node(const comm_group_t *parent)
{
    for (int r = 1; r < parent->n; r++)
        if (parent->node_of[r] != parent->node_of[0])
            return 0;
    return 1;
}

static size_t room_bytes(const comm_group_t *parent, uint64_t budget)
{
    return comm_segment_room((size_t)budget, parent->n);
}

comm_offer_t comm_group_offer(const comm_group_t *parent)
{
    comm_world_t *world = parent->world;
    comm_backing_t *backing = comm_world_backing(world);
    comm_offer_t offer = {0};

    if (!backing || !comm_group_derives(parent) || !comm_card_holds(parent))
        return offer;
    offer.budget = (uint64_t)base_setting_int(SET_SHM_BUDGET);
    offer.room = comm_room_reserve(backing, room_bytes(parent, offer.budget), is_one_node(parent));
    offer.backing = offer.room ? comm_backing_name(backing) : 0;
    offer.cma_call_ns = atomic_load_explicit(&world->cma_call_ns, memory_order_relaxed);
    return offer;
}

void comm_group_withdraw(const comm_group_t *parent, const comm_offer_t *offer)
{
    if (offer->backing)
        comm_room_return(atomic_load_explicit(&parent->world->backing, memory_order_acquire), offer->room,
                         room_bytes(parent, offer->budget));
}

int comm_offers_serve(const comm_offer_t *offers, int n, double *cma_call_ns)
{
    double sum = 0;
    int known = 0;

    for (int r = 0; r < n; r++) {
        if (offers[r].backing != offers[0].backing)
            return 0;
        sum += offers[r].cma_call_ns > 0 ? offers[r].cma_call_ns : 0;
        known += offers[r].cma_call_ns > 0;
    }
    *cma_call_ns = known ? sum / known : 0;
    return offers[0].backing != 0;
}

static void copy_reads(comm_group_t *group, const comm_group_t *parent, const int *members)
{
    const int here = parent->local_of[parent->rank];

    for (int r = 0; r < group->n; r++) {
        const unsigned char reads = atomic_load_explicit(
            comm_segment_cma(&parent->seg, here, parent->local_of[members[r]]), memory_order_acquire);
        atomic_store_explicit(comm_segment_cma(&group->seg, group->rank, r), reads, memory_order_release);
    }
}

static gyre_status_t move_in(comm_group_t *group, const comm_group_t *parent, const int *members,
                             const comm_offer_t *first)
{
    comm_backing_t *backing = atomic_load_explicit(&group->world->backing, memory_order_acquire);
    gyre_status_t status =
        comm_segment_enter(backing, first->room, (size_t)first->budget, group->n, &group->seg);

    if (status != GYRE_OK)
        return status;
    group->seg.local = group->rank;
    copy_reads(group, parent, members);
    comm_group_count_crowd(group);
    comm_cells_take(group);
    status = comm_seats_order(group);
    if (status != GYRE_OK)
        return status;
    comm_group_move_in(group);
    comm_group_begin(group);
    return GYRE_OK;
}

gyre_status_t comm_group_derive(const comm_group_t *parent, uint64_t id, const int *members, int n, int rank,
                                const comm_offer_t *first, double cma_call_ns, comm_group_t **out)
{
    comm_group_t *group;
    gyre_status_t status = comm_group_new(parent->world, id, parent->world_ranks, n, rank, &group);

    if (status != GYRE_OK)
        return status;
    for (int r = 0; r < n; r++) {
        group->world_ranks[r] = parent->world_ranks[members[r]];
        group->node_of[r] = parent->node_of[members[r]];
        group->local_of[r] = r;
        if (n > 1)
            group->cards[r] = parent->cards[members[r]];
    }
    if (n > 1) {
        group->cma_call_ns = cma_call_ns;
        status = move_in(group, parent, members, first);
    }
    if (status != GYRE_OK) {
        comm_group_destroy(group);
        return status;
    }
    *out = group;
    return GYRE_OK;
}
