/* SPDX-License-Identifier: Apache-2.0 */
/* topo/network/internal.h: networks from files, for the files of this folder alone. */
#ifndef TOPO_NETWORK_INTERNAL_H
#define TOPO_NETWORK_INTERNAL_H

#include "topo/network/network.h"

/* As which a rank sits. */
static inline int topo_network_position(const topo_network_t *network, int rank)
{
    return network->position ? network->position[rank] : rank;
}

/* Reads a JSON file into a network whose ranks and ranks_per_node (0: not asked for) are set. */
gyre_status_t topo_network_read(const char *path, topo_network_t *network);

/* The same from an hwloc XML file. src, dst: positions. */
gyre_status_t topo_network_machine(const char *file, topo_network_t *network);
uint32_t topo_machine_route(const topo_network_t *network, int src, int dst, uint32_t *links);
void topo_machine_link_name(const topo_network_t *network, uint32_t link, char *text, size_t bytes);

uint32_t topo_graph_route(const topo_graph_net_t *graph, uint32_t from, uint32_t to, uint32_t *links);
void topo_graph_link_name(const topo_graph_net_t *graph, uint32_t link, char *text, size_t bytes);
void topo_graph_net_free(topo_graph_net_t *graph);

#endif
