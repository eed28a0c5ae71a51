/* SPDX-License-Identifier: Apache-2.0 */
/* topo/network/seats.c: where ranks sit in a network, and ranks that are dealt out in turn. See network.h. */
#include <stdlib.h>

#include "base/error.h"
#include "topo/network/internal.h"

topo_seat_t topo_network_seat(const topo_network_t *network, int rank)
{
    topo_seat_t seat = {.host = topo_network_node(network, rank), .package = -1, .numa = -1, .cache = -1};
    if (network->kind == TOPO_NET_MACHINE) {
        const int *places = network->places[topo_network_position(network, rank)];
        seat.package = places[TOPO_PACKAGE];
        seat.numa = places[TOPO_NUMA];
        seat.cache = network->caches ? places[TOPO_CACHE] : -1;
    } else if (network->kind == TOPO_NET_FAT_TREE || network->kind == TOPO_NET_TORUS ||
               network->kind == TOPO_NET_DRAGONFLY) {
        seat.fabric = (uint64_t)topo_network_group(network, rank) + 1;
    }
    return seat;
}

static int unit_of(const topo_network_t *t, topo_deal_t how, int rank)
{
    return how == TOPO_DEAL_HOSTS    ? topo_network_node(t, rank)
           : how == TOPO_DEAL_GROUPS ? topo_network_group(t, rank)
                                     : t->places[rank][TOPO_CACHE];
}

/* Each place gets a rank in turn, as long as it has room. */
gyre_status_t topo_network_deal(topo_network_t *t, topo_deal_t how)
{
    const int n = t->ranks;
    if (how == TOPO_DEAL_CACHES && !t->caches)
        return gyre_fail(GYRE_ERR_INVALID, "%s: ranks cannot be dealt out to caches, which divide nothing",
                         t->title);
    if (how == TOPO_DEAL_NEAR)
        return GYRE_OK;
    int most = 0, dealt = 0;
    for (int r = 0; r < n; r++)
        most = unit_of(t, how, r) > most ? unit_of(t, how, r) : most;
    int *turn = calloc((unsigned)n, sizeof *turn), *seen = calloc((unsigned)most + 1, sizeof *seen);
    int *position = calloc((unsigned)n, sizeof *position);
    const int all = turn && seen && position;
    for (int r = 0; all && r < n; r++)
        turn[r] = seen[unit_of(t, how, r)]++;
    for (int round = 0; all && dealt < n; round++)
        for (int r = 0; r < n; r++)
            if (turn[r] == round)
                position[dealt++] = r;
    free(turn);
    free(seen);
    if (!all) {
        free(position);
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the places of %d ranks", n);
    }
    t->position = position;
    return GYRE_OK;
}
