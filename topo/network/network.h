/* SPDX-License-Identifier: Apache-2.0 */
/* topo/network/network.h: a network as data: links with a latency and a rate, and the way that a message
 * takes over them. For machines that we lack: the simulator (collectives/proof/simulate/simulate.h) runs
 * schedules over it.
 *
 * Ranks sit on nodes, `ranks_per_node` consecutive ones on each, unless they are dealt out otherwise
 * (topo_network_deal); links are one-way and numbered 0..nlinks-1.
 * Routes are computed, not stored, so that a network of 65,536 ranks takes a few megabytes. A network does
 * not change after it was made: threads may share it. The figures of the presets are round numbers for
 * hardware of their kind, not measurements; docs/simulator.md gives their sources. */
#ifndef TOPO_NETWORK_NETWORK_H
#define TOPO_NETWORK_NETWORK_H

#include <stddef.h>
#include <stdint.h>

#include <gyre/status.h>

#include "topo/topo.h"

typedef struct {
    double latency; /* ns from the first byte's entry to its exit */
    double rate;    /* bytes per nanosecond (GB/s) */
} topo_link_t;

/* What a node does by itself. Times in ns, rates in bytes per ns. */
typedef struct {
    double send;   /* the rank's work to post a message */
    double recv;   /* ... and to take one in */
    double reduce; /* bytes of input that a rank adds up per ns */
    double copy;   /* bytes that a rank copies per ns */
} topo_node_cost_t;

typedef enum {
    TOPO_NET_NVSWITCH = 0,
    TOPO_NET_FAT_TREE,
    TOPO_NET_TORUS,
    TOPO_NET_DRAGONFLY,
    TOPO_NET_ETHERNET,
    TOPO_NET_GRAPH,  /* from a file: nodes, switches and links by name */
    TOPO_NET_MACHINE /* cores, caches, NUMA nodes and packages from an hwloc XML file */
} topo_net_kind_t;

/* What a machine's places are, from the inside. */
enum { TOPO_RANK, TOPO_CACHE, TOPO_NUMA, TOPO_PACKAGE, TOPO_HOST, TOPO_LEVELS };

/* How ranks are dealt out: consecutive ones near each other, or in turn to all hosts; to all groups
 * (topo_network_group); to all caches of a machine. */
typedef enum { TOPO_DEAL_NEAR, TOPO_DEAL_HOSTS, TOPO_DEAL_GROUPS, TOPO_DEAL_CACHES } topo_deal_t;

typedef struct topo_graph_net topo_graph_net_t;

typedef struct {
    topo_net_kind_t kind;
    char title[128]; /* "fat tree, 64 nodes, 4 leaves of 16, oversubscribed 2:1" */
    int ranks, ranks_per_node, nodes;
    topo_node_cost_t cost;
    uint32_t nlinks;
    topo_link_t *links;   /* [nlinks], owned */
    uint32_t most_hops;   /* no route is longer */
    double least_latency; /* of any link */
    /* geometry of the kinds, for the files of this folder alone */
    int dims[3];              /* torus */
    int leaf, leaves, spines; /* fat tree: nodes per leaf switch */
    int hosts, routers, globals, groups,
        bundles; /* dragonfly: nodes per router, routers per group, global links per
                                                     router, groups in use, links between two groups */
    topo_graph_net_t *graph;
    int (*places)[TOPO_LEVELS];      /* machine: [ranks] numbers over all hosts, owned */
    uint32_t first[TOPO_LEVELS + 1]; /* machine: links of a level */
    int caches;                      /* machine: 1: caches divide packages */
    int *position;                   /* [ranks] as which a rank that was dealt out sits; NULL: as itself */
} topo_network_t;

/* Makes a network for `ranks` ranks. what: a preset ("nvswitch", "fat-tree", "fat-tree:4" oversubscribed 4:1,
 * "torus", "torus:4x8x8", "dragonfly", "ethernet"), "machine:FILE" with an hwloc XML file, or the path of a
 * JSON file (gyre-plan(1) has its form).
 * ranks_per_node: 0 for the network's own. The caller frees it. NOT_FOUND: neither a preset nor a file (the
 * text lists the presets); INVALID: a preset that cannot have so many ranks; FORMAT, IO: the file. */
gyre_status_t topo_network_open(const char *what, int ranks, int ranks_per_node, topo_network_t **out);
void topo_network_free(topo_network_t *network);
/* Gives the ranks of a new network other places. INVALID: it has no caches. NO_MEMORY. */
gyre_status_t topo_network_deal(topo_network_t *network, topo_deal_t how);
/* Where a rank sits, for topo_seat_order. cache: -1 where caches divide nothing. */
topo_seat_t topo_network_seat(const topo_network_t *network, int rank);

/* The links from one rank to another, in order, into links [most_hops]. Returns their number; 0 to itself. */
uint32_t topo_network_route(const topo_network_t *network, int src, int dst, uint32_t *links);
/* "node 3 up", "leaf 2 to spine 1", ...; returns text. */
const char *topo_network_link_name(const topo_network_t *network, uint32_t link, char *text, size_t bytes);
/* The group of nodes that are near each other: the node itself (nvswitch, ethernet, graph), leaf switch (fat
 * tree), row of the last dimension (torus), group (dragonfly), NUMA node (machine). Traffic between groups is
 * what is scarce. */
int topo_network_group(const topo_network_t *network, int rank);
int topo_network_node(const topo_network_t *network, int rank);
/* The names of the presets, for messages; "host", which coll_simulate_host stands for, among them. */
const char *topo_network_presets(void);

#endif
