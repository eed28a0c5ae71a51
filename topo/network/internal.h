/* SPDX-License-Identifier: Apache-2.0 */
/* topo/network/internal.h: networks from files, for network.c and file.c alone. */
#ifndef TOPO_NETWORK_INTERNAL_H
#define TOPO_NETWORK_INTERNAL_H

#include "topo/network/network.h"

/* Reads a JSON file into a network whose ranks and ranks_per_node (0: not asked for) are set. */
gyre_status_t topo_network_read(const char *path, topo_network_t *network);

uint32_t topo_graph_route(const topo_graph_net_t *graph, uint32_t from, uint32_t to, uint32_t *links);
void topo_graph_link_name(const topo_graph_net_t *graph, uint32_t link, char *text, size_t bytes);
void topo_graph_net_free(topo_graph_net_t *graph);

#endif
