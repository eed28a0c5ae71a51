/* SPDX-License-Identifier: Apache-2.0 */
/* topo/network/presets.c: networks as arithmetic: the presets, their links and their routes. See
 * network.h. */
#include "topo/network/network.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "topo/network/internal.h"

/* Round figures of hardware of the kind; docs/simulator.md says whose. */
static const topo_link_t nvlink = {350, 450}, rail = {1200, 50}; /* NVLink 4 through NVSwitch; 400 Gb/s */
static const topo_link_t host_port = {500, 25}, switch_port = {250, 25}; /* 200 Gb/s; between switches */
static const topo_link_t torus_port = {300, 50};                         /* a direct link to the neighbour */
static const topo_link_t dragon_host = {400, 25}, dragon_local = {250, 25}, dragon_global = {700, 25};
static const topo_link_t ethernet_port = {8000, 3.125}; /* 25 Gb/s and the kernel's TCP */
static const topo_link_t within_node = {100, 10};       /* a core reads what another has written */
static const topo_node_cost_t gpu_cost = {500, 500, 1500, 1200};
static const topo_node_cost_t rdma_cost = {150, 150, 20, 15};
static const topo_node_cost_t tcp_cost = {2000, 2500, 10, 8};

static const struct {
    const char *name;
    topo_net_kind_t kind;
} presets[] = {{"nvswitch", TOPO_NET_NVSWITCH},
               {"fat-tree", TOPO_NET_FAT_TREE},
               {"torus", TOPO_NET_TORUS},
               {"dragonfly", TOPO_NET_DRAGONFLY},
               {"ethernet", TOPO_NET_ETHERNET}};
enum { PRESETS = sizeof presets / sizeof *presets };

const char *topo_network_presets(void)
{
    return "nvswitch, fat-tree, fat-tree:RATIO, torus, torus:AxB, torus:AxBxC, dragonfly, ethernet, host, "
           "machine:FILE";
}

/* ---- links ------------------------------------------------------------------------------------------------
 *
 * Ranks that share a node (ranks_per_node > 1) have a way to each other there: links 0..ranks-1 are what the
 * others read of rank r. Then come the network's own, from `base` on; nvswitch has its own idea of a node
 * and needs no such links. */

static uint32_t base_link(const topo_network_t *t)
{
    return t->ranks_per_node > 1 && t->kind != TOPO_NET_NVSWITCH ? (uint32_t)t->ranks : 0;
}

static void fill(topo_network_t *t, uint32_t *at, size_t count, topo_link_t link)
{
    for (size_t i = 0; i < count; i++)
        t->links[(*at)++] = link;
}

static gyre_status_t make_links(topo_network_t *t, size_t own)
{
    size_t all = base_link(t) + own;
    if (all > UINT32_MAX / 2)
        return gyre_fail(GYRE_ERR_INVALID, "%s: the network has too many links", t->title);
    t->nlinks = (uint32_t)all;
    t->links = calloc(all + 1, sizeof *t->links);
    if (!t->links)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a network of %zu links", all);
    uint32_t at = 0;
    fill(t, &at, base_link(t), within_node);
    return GYRE_OK;
}

/* ---- nvswitch: GPUs of a node below one switch, and rail i joins GPU i of all nodes
 * --------------------------
 *
 * Per rank: link 4r to its node's switch, 4r+1 from it, 4r+2 to the rail, 4r+3 from it. A message to another
 * GPU number on another node goes through the sender's node to the GPU on that rail (NCCL's PXN), and from
 * there over the rail. */

static gyre_status_t make_nvswitch(topo_network_t *t)
{
    gyre_status_t st = make_links(t, 4 * (size_t)t->ranks);
    for (uint32_t at = 0; st == GYRE_OK && at < t->nlinks;) {
        fill(t, &at, 2, nvlink);
        fill(t, &at, 2, rail);
    }
    t->cost = gpu_cost;
    t->most_hops = 4;
    snprintf(t->title, sizeof t->title, "%d node%s of %d GPUs behind NVSwitch, %d rails", t->nodes,
             t->nodes == 1 ? "" : "s", t->ranks_per_node, t->nodes > 1 ? t->ranks_per_node : 0);
    return st;
}

static uint32_t route_nvswitch(const topo_network_t *t, int src, int dst, uint32_t *links)
{
    int k = t->ranks_per_node, relay = src / k * k + dst % k;
    uint32_t n = 0;
    if (src / k == dst / k)
        relay = dst;
    if (relay >=
        t->ranks) { /* the last node is not full: over the sender's rail, and on within the other node */
        relay = dst / k * k + src % k;
        links[n++] = 4 * (uint32_t)src + 2;
        links[n++] = 4 * (uint32_t)relay + 3;
        src = relay;
        relay = dst;
    }
    if (relay != src) {
        links[n++] = 4 * (uint32_t)src;
        links[n++] = 4 * (uint32_t)relay + 1;
    }
    if (relay != dst) {
        links[n++] = 4 * (uint32_t)relay + 2;
        links[n++] = 4 * (uint32_t)dst + 3;
    }
    return n;
}

/* ---- ethernet: one switch --------------------------------------------------------------------------------
 * Per node: up, down. */

static gyre_status_t make_ethernet(topo_network_t *t)
{
    gyre_status_t st = make_links(t, 2 * (size_t)t->nodes);
    uint32_t at = base_link(t);
    if (st == GYRE_OK)
        fill(t, &at, 2 * (size_t)t->nodes, ethernet_port);
    t->cost = tcp_cost;
    t->most_hops = 2;
    snprintf(t->title, sizeof t->title, "%d nodes on one Ethernet switch", t->nodes);
    return st;
}

/* ---- fat tree: leaf switches, and spines above them
 * --------------------------------------------------------- Per node: up, down; per leaf and spine: up, down.
 * A node is always reached through the same spine (its number modulo the spines), as with deterministic
 * routing. */

static gyre_status_t make_fat_tree(topo_network_t *t, const char *detail)
{
    int ratio = 1, most = 32;
    char more;
    if (*detail && (sscanf(detail, "%d%c", &ratio, &more) != 1 || ratio < 1 || ratio > most))
        return gyre_fail(GYRE_ERR_INVALID, "fat-tree:%s: the oversubscription is a whole number from 1 to %d",
                         detail, most);
    t->leaf = t->nodes <= 16 ? 4 : t->nodes <= 256 ? 16 : most;
    t->leaves = (t->nodes + t->leaf - 1) / t->leaf;
    t->spines = t->leaf / ratio > 0 ? t->leaf / ratio : 1;
    gyre_status_t st = make_links(t, 2 * ((size_t)t->nodes + (size_t)t->leaves * (size_t)t->spines));
    uint32_t at = base_link(t);
    if (st == GYRE_OK) {
        fill(t, &at, 2 * (size_t)t->nodes, host_port);
        fill(t, &at, 2 * (size_t)t->leaves * (size_t)t->spines, switch_port);
    }
    t->cost = rdma_cost;
    t->most_hops = 4;
    snprintf(t->title, sizeof t->title, "fat tree of %d nodes, %d leaves of %d, %d spines (%d:%d)", t->nodes,
             t->leaves, t->leaf, t->spines, t->leaf / t->spines, 1);
    return st;
}

static uint32_t route_fat_tree(const topo_network_t *t, uint32_t src, uint32_t dst, uint32_t *links)
{
    uint32_t leaf = (uint32_t)t->leaf, spines = (uint32_t)t->spines, n = 0;
    links[n++] = 2 * src;
    if (src / leaf != dst / leaf) {
        uint32_t spine = dst % spines, between = 2 * (uint32_t)t->nodes;
        links[n++] = between + 2 * (src / leaf * spines + spine);
        links[n++] = between + 2 * (dst / leaf * spines + spine) + 1;
    }
    links[n++] = 2 * dst + 1;
    return n;
}

/* ---- torus -----------------------------------------------------------------------------------------------
 * Per node and dimension: forwards, backwards. Routes finish one dimension after the other, the shorter way
 * round (forwards if both are equal). Node = x + dims[0] * (y + dims[1] * z). */

/* The dimensions that are nearest to each other: largest factor not above the root, first for three, then
 * two. */
static void choose_dims(int nodes, int *dims)
{
    int third = 1;
    for (int f = 1; nodes > 64 && (long)f * f * f <= nodes; f++)
        third = nodes % f == 0 ? f : third;
    int rest = nodes / third, second = 1;
    for (int f = 1; (long)f * f <= rest; f++)
        second = rest % f == 0 ? f : second;
    dims[0] = third;
    dims[1] = second;
    dims[2] = rest / second;
    if (third == 1) {
        dims[0] = second;
        dims[1] = rest / second;
        dims[2] = 1;
    }
}

static gyre_status_t make_torus(topo_network_t *t, const char *detail)
{
    int *d = t->dims;
    char more;
    d[0] = d[1] = d[2] = 1;
    if (!*detail)
        choose_dims(t->nodes, d);
    else if (sscanf(detail, "%dx%d%c", &d[0], &d[1], &more) != 2 &&
             sscanf(detail, "%dx%dx%d%c", &d[0], &d[1], &d[2], &more) != 3)
        return gyre_fail(GYRE_ERR_INVALID, "torus:%s: the form is torus:AxB or torus:AxBxC", detail);
    for (int i = 0; i < 3; i++)
        if (d[i] < 1 || d[i] > t->nodes)
            return gyre_fail(GYRE_ERR_INVALID, "torus:%s does not have %d nodes", detail, t->nodes);
    if ((long)d[0] * d[1] * d[2] != t->nodes)
        return gyre_fail(GYRE_ERR_INVALID, "torus:%s has %ld nodes, not %d", detail, (long)d[0] * d[1] * d[2],
                         t->nodes);
    gyre_status_t st = make_links(t, 6 * (size_t)t->nodes);
    uint32_t at = base_link(t);
    if (st == GYRE_OK)
        fill(t, &at, 6 * (size_t)t->nodes, torus_port);
    t->cost = rdma_cost;
    t->cost.reduce = 200; /* accelerators, not hosts */
    t->cost.copy = 150;
    t->most_hops = (uint32_t)(d[0] / 2 + d[1] / 2 + d[2] / 2) + 1; /* one within a node */
    snprintf(t->title, sizeof t->title, "torus of %d nodes, %d x %d x %d", t->nodes, d[0], d[1], d[2]);
    return st;
}

static uint32_t route_torus(const topo_network_t *t, uint32_t src, uint32_t dst, uint32_t *links)
{
    uint32_t at = src, stride = 1, n = 0;
    for (uint32_t k = 0; k < 3; k++) {
        uint32_t size = (uint32_t)t->dims[k], from = at / stride % size, to = dst / stride % size;
        uint32_t ahead = (to + size - from) % size, forwards = ahead <= size - ahead;
        for (uint32_t left = forwards ? ahead : size - ahead; left > 0; left--) {
            uint32_t next = forwards ? (from + 1 == size ? 0 : from + 1) : from == 0 ? size - 1 : from - 1;
            links[n++] = 6 * at + 2 * k + !forwards;
            at += (next - from) * stride; /* modulo 2^32 */
            from = next;
        }
        stride *= size;
    }
    return n;
}

/* ---- dragonfly -------------------------------------------------------------------------------------------
 * Balanced (Kim, Dally, Scott, Abts 2008): p nodes per router, a = 2p routers per group, p global links per
 * router. All routers of a group are joined, and all groups; with fewer groups than there could be, two
 * groups share several links. Minimal routes: to the router with the global link, over it, to the router of
 * the destination.
 *
 * Links: per node up, down; per group a * a local ones, from router i to j; per group (groups - 1) *
 * bundles global ones. */

static gyre_status_t make_dragonfly(topo_network_t *t)
{
    int p = 2;
    while ((long)p * 2 * p * (2L * p * p + 1) < t->nodes)
        p++;
    t->hosts = p;
    t->routers = 2 * p;
    t->globals = p;
    int group = t->hosts * t->routers, ports = t->routers * t->globals;
    t->groups = (t->nodes + group - 1) / group;
    t->bundles = t->groups > 1 ? ports / (t->groups - 1) : 0;
    size_t local = (size_t)t->groups * (size_t)t->routers * (size_t)t->routers;
    size_t global = (size_t)t->groups * (size_t)(t->groups - 1) * (size_t)t->bundles;
    gyre_status_t st = make_links(t, 2 * (size_t)t->nodes + local + global);
    uint32_t at = base_link(t);
    if (st == GYRE_OK) {
        fill(t, &at, 2 * (size_t)t->nodes, dragon_host);
        fill(t, &at, local, dragon_local);
        fill(t, &at, global, dragon_global);
    }
    t->cost = rdma_cost;
    t->most_hops = 5;
    snprintf(t->title, sizeof t->title, "dragonfly of %d nodes, %d groups of %d routers with %d nodes",
             t->nodes, t->groups, t->routers, t->hosts);
    return st;
}

static uint32_t dragonfly_local(const topo_network_t *t, uint32_t group, uint32_t from, uint32_t to)
{
    uint32_t a = (uint32_t)t->routers;
    return 2 * (uint32_t)t->nodes + (group * a + from) * a + to;
}

/* The router of `group` that holds link `which` of those to `other`. */
static uint32_t dragonfly_gate(const topo_network_t *t, uint32_t group, uint32_t other, uint32_t which)
{
    uint32_t place = other > group ? other - 1 : other;
    return (place * (uint32_t)t->bundles + which) / (uint32_t)t->globals;
}

static uint32_t route_dragonfly(const topo_network_t *t, uint32_t src, uint32_t dst, uint32_t *links)
{
    uint32_t p = (uint32_t)t->hosts, a = (uint32_t)t->routers, n = 0;
    uint32_t from = src / p % a, to = dst / p % a, here = src / (p * a), there = dst / (p * a);
    links[n++] = 2 * src;
    if (here != there) {
        uint32_t which = dst % (uint32_t)t->bundles, place = there > here ? there - 1 : there;
        uint32_t out = dragonfly_gate(t, here, there, which), in = dragonfly_gate(t, there, here, which);
        if (from != out)
            links[n++] = dragonfly_local(t, here, from, out);
        links[n++] = dragonfly_local(t, (uint32_t)t->groups, 0, 0) +
                     (here * (uint32_t)(t->groups - 1) + place) * (uint32_t)t->bundles + which;
        from = in;
    }
    if (from != to)
        links[n++] = dragonfly_local(t, there, from, to);
    links[n++] = 2 * dst + 1;
    return n;
}

/* ---- all of them --------------------------------------------------------------------------------------- */

uint32_t topo_network_route(const topo_network_t *network, int src, int dst, uint32_t *links)
{
    if (src == dst)
        return 0;
    src = topo_network_position(network, src);
    dst = topo_network_position(network, dst);
    if (network->kind == TOPO_NET_NVSWITCH)
        return route_nvswitch(network, src, dst, links);
    if (network->kind == TOPO_NET_MACHINE)
        return topo_machine_route(network, src, dst, links);
    uint32_t k = (uint32_t)network->ranks_per_node, from = (uint32_t)src / k, to = (uint32_t)dst / k, n;
    if (from == to) {
        links[0] = (uint32_t)src;
        return 1;
    }
    switch (network->kind) {
    case TOPO_NET_FAT_TREE:
        n = route_fat_tree(network, from, to, links);
        break;
    case TOPO_NET_TORUS:
        n = route_torus(network, from, to, links);
        break;
    case TOPO_NET_DRAGONFLY:
        n = route_dragonfly(network, from, to, links);
        break;
    case TOPO_NET_GRAPH:
        n = topo_graph_route(network->graph, from, to, links);
        break;
    default:
        links[0] = 2 * from;
        links[1] = 2 * to + 1;
        n = 2;
        break;
    }
    uint32_t base = base_link(network);
    for (uint32_t i = 0; base && i < n; i++)
        links[i] += base;
    return n;
}

int topo_network_node(const topo_network_t *network, int rank)
{
    return topo_network_position(network, rank) / network->ranks_per_node;
}

int topo_network_group(const topo_network_t *network, int rank)
{
    int node = topo_network_node(network, rank);
    switch (network->kind) {
    case TOPO_NET_FAT_TREE:
        return node / network->leaf;
    case TOPO_NET_TORUS:
        return network->dims[2] > 1 ? node / (network->dims[0] * network->dims[1]) : node / network->dims[0];
    case TOPO_NET_DRAGONFLY:
        return node / (network->hosts * network->routers);
    case TOPO_NET_MACHINE:
        return network->places[topo_network_position(network, rank)][TOPO_NUMA];
    default:
        return node;
    }
}

static void name_dragonfly(const topo_network_t *t, uint32_t link, char *text, size_t bytes)
{
    uint32_t a = (uint32_t)t->routers, at = link - 2 * (uint32_t)t->nodes,
             local = (uint32_t)t->groups * a * a;
    if (at < local) {
        snprintf(text, bytes, "group %u router %u to %u", at / (a * a), at / a % a, at % a);
        return;
    }
    uint32_t all = (uint32_t)(t->groups - 1) * (uint32_t)t->bundles, group = (at - local) / all;
    uint32_t other = (at - local) % all / (uint32_t)t->bundles;
    snprintf(text, bytes, "group %u to group %u, link %u", group, other >= group ? other + 1 : other,
             (at - local) % (uint32_t)t->bundles);
}

const char *topo_network_link_name(const topo_network_t *t, uint32_t link, char *text, size_t bytes)
{
    static const char *const gpu[] = {"to NVSwitch", "from NVSwitch", "to its rail", "from its rail"};
    static const char *const way[] = {"+x", "-x", "+y", "-y", "+z", "-z"};
    uint32_t base = base_link(t), nodes = (uint32_t)t->nodes;
    if (t->kind == TOPO_NET_MACHINE) {
        topo_machine_link_name(t, link, text, bytes);
        return text;
    }
    if (link < base) {
        snprintf(text, bytes, "memory of rank %u", link);
        return text;
    }
    link -= base;
    if (t->kind == TOPO_NET_NVSWITCH)
        snprintf(text, bytes, "GPU %u %s", link / 4, gpu[link % 4]);
    else if (t->kind == TOPO_NET_TORUS)
        snprintf(text, bytes, "node %u %s", link / 6, way[link % 6]);
    else if (t->kind == TOPO_NET_GRAPH)
        topo_graph_link_name(t->graph, link, text, bytes);
    else if (link < 2 * nodes)
        snprintf(text, bytes, "node %u %s", link / 2, link % 2 ? "down" : "up");
    else if (t->kind == TOPO_NET_FAT_TREE)
        snprintf(
            text, bytes, link % 2 ? "spine %u to leaf %u" : "leaf %u to spine %u",
            link % 2 ? (link / 2 - nodes) % (uint32_t)t->spines : (link / 2 - nodes) / (uint32_t)t->spines,
            link % 2 ? (link / 2 - nodes) / (uint32_t)t->spines : (link / 2 - nodes) % (uint32_t)t->spines);
    else
        name_dragonfly(t, link, text, bytes);
    return text;
}

/* A file has the links between nodes; those within them come before. */
static gyre_status_t add_within_node(topo_network_t *t)
{
    uint32_t base = base_link(t);
    topo_link_t *links = calloc((size_t)base + t->nlinks + 1, sizeof *links);
    if (!links)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a network of %u links", t->nlinks);
    memcpy(links + base, t->links, t->nlinks * sizeof *links);
    free(t->links);
    t->links = links;
    t->nlinks += base;
    fill(t, &(uint32_t){0}, base, within_node);
    return GYRE_OK;
}

static gyre_status_t make_preset(topo_network_t *t, const char *what, const char *detail)
{
    if (*detail && t->kind != TOPO_NET_FAT_TREE && t->kind != TOPO_NET_TORUS)
        return gyre_fail(GYRE_ERR_INVALID, "%s: this network has no parameters after a colon", what);
    switch (t->kind) {
    case TOPO_NET_NVSWITCH:
        return make_nvswitch(t);
    case TOPO_NET_FAT_TREE:
        return make_fat_tree(t, detail);
    case TOPO_NET_TORUS:
        return make_torus(t, detail);
    case TOPO_NET_DRAGONFLY:
        return make_dragonfly(t);
    default:
        return make_ethernet(t);
    }
}

/* 1 if `what` names a preset; *detail is what follows its colon. */
static int find_preset(const char *what, topo_net_kind_t *kind, const char **detail)
{
    size_t length = strcspn(what, ":");
    for (int i = 0; i < PRESETS; i++)
        if (strlen(presets[i].name) == length && !strncmp(what, presets[i].name, length)) {
            *kind = presets[i].kind;
            *detail = what[length] ? what + length + 1 : "";
            return 1;
        }
    return 0;
}

gyre_status_t topo_network_open(const char *what, int ranks, int ranks_per_node, topo_network_t **out)
{
    static const char machine[] = "machine:";
    const char *detail = "";
    if (ranks < 1 || ranks > 1 << 20 || ranks_per_node < 0)
        return gyre_fail(GYRE_ERR_INVALID,
                         "a network has 1 to 1048576 ranks, not %d, and 0 or more per node, not %d", ranks,
                         ranks_per_node);
    topo_network_t *t = calloc(1, sizeof *t);
    if (!t)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a network");
    gyre_status_t st;
    if (!strcmp(what, "host")) {
        free(t);
        return gyre_fail(GYRE_ERR_INVALID, "\"host\" is this machine's memory, not a network with links");
    }
    t->ranks = ranks;
    t->ranks_per_node = ranks_per_node;
    int known = find_preset(what, &t->kind, &detail);
    if (known) {
        if (t->ranks_per_node == 0)
            t->ranks_per_node = t->kind == TOPO_NET_NVSWITCH ? 8 : 1;
        t->nodes = (ranks + t->ranks_per_node - 1) / t->ranks_per_node;
        st = make_preset(t, what, detail);
    } else if (!strncmp(what, machine, sizeof machine - 1)) {
        st = topo_network_machine(what + sizeof machine - 1, t);
    } else {
        st = topo_network_read(what, t);
        if (st == GYRE_OK)
            st = add_within_node(t);
    }
    if (st != GYRE_OK) {
        topo_network_free(t);
        return st;
    }
    t->least_latency = t->nlinks ? t->links[0].latency : 0;
    for (uint32_t i = 1; i < t->nlinks; i++)
        t->least_latency = fmin(t->least_latency, t->links[i].latency);
    *out = t;
    return GYRE_OK;
}

void topo_network_free(topo_network_t *network)
{
    if (!network)
        return;
    topo_graph_net_free(network->graph);
    free(network->places);
    free(network->position);
    free(network->links);
    free(network);
}
