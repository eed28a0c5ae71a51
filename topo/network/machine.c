/* SPDX-License-Identifier: Apache-2.0 */
/* topo/network/machine.c: "machine:FILE": hosts of one kind, whose cores, caches, NUMA nodes and packages are
 * those of an hwloc XML file, as a network. One switch joins the hosts.
 *
 * A host's ranks are bound as `ucx-run --bind core` binds them. Places lie within each other:
 *
 *      rank -- cache -- NUMA node -- package -- host -- switch
 *
 * Each has a link to the place around it and one back. A message goes up until both ranks are within, and
 * down again: within a cache over the links of the two ranks alone. */
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "topo/network/internal.h"

/* Round figures of servers of 2020 to 2024, one way: docs/simulator.md says whose. */
static const topo_link_t level_links[TOPO_LEVELS] = {
    {15, 12},  /* a core's loads of what another has written */
    {30, 40},  /* out of a cache's own part of the mesh */
    {10, 80},  /* between NUMA nodes of a package */
    {50, 100}, /* between packages */
    {500, 25}, /* 200 Gb/s adapter and switch */
};
static const topo_node_cost_t core_cost = {60, 60, 20, 12};

static int number_at(const topo_core_t *core, int level)
{
    return level == TOPO_CACHE ? core->l3 : level == TOPO_NUMA ? core->numa : core->package;
}

/* Numbers the places of a host at a level: 0, 1, ... in the order of the cores that may be used; hwloc's
 * numbers count those between that may not, too. number: [cores]. -> how many. */
static int number_level(const topo_t *topo, int level, int *number)
{
    int count = 0;
    for (int c = 0; topo_core(topo, c); c++) {
        int like = 0;
        while (number_at(topo_core(topo, like), level) != number_at(topo_core(topo, c), level))
            like++;
        number[c] = like == c ? count++ : number[like];
    }
    return count;
}

/* A cache that spans its NUMA node divides nothing: its ranks are as near as the node's. */
static int caches_divide(const topo_summary_t *s)
{
    return s->l3_count > s->numa_nodes;
}

static gyre_status_t place_ranks(topo_network_t *t, const topo_t *topo)
{
    topo_summary_t s;
    topo_summary(topo, &s);
    if (t->ranks_per_node == 0)
        t->ranks_per_node = t->ranks < s.cores ? t->ranks : s.cores;
    if (t->ranks_per_node > s.cores)
        return gyre_fail(GYRE_ERR_INVALID, "%d ranks per host, but the machine has %d cores",
                         t->ranks_per_node, s.cores);
    t->nodes = (t->ranks + t->ranks_per_node - 1) / t->ranks_per_node;
    t->caches = caches_divide(&s);
    t->places = calloc((size_t)t->ranks, sizeof *t->places);
    int *cores = calloc((size_t)t->ranks_per_node, sizeof *cores);
    int *number = calloc((size_t)s.cores, sizeof *number);
    gyre_status_t st = t->places && cores && number
                           ? topo_bind_plan(topo, TOPO_BIND_CORE, t->ranks_per_node, cores)
                           : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the places of %d ranks", t->ranks);
    for (int level = TOPO_CACHE; st == GYRE_OK && level <= TOPO_PACKAGE; level++) {
        const int each = number_level(topo, level, number);
        for (int r = 0; r < t->ranks; r++)
            t->places[r][level] = r / t->ranks_per_node * each + number[cores[r % t->ranks_per_node]];
    }
    for (int r = 0; st == GYRE_OK && r < t->ranks; r++) {
        t->places[r][TOPO_RANK] = r;
        t->places[r][TOPO_HOST] = r / t->ranks_per_node;
    }
    free(number);
    free(cores);
    snprintf(t->title, sizeof t->title, "%d host%s of %d packages, %d NUMA nodes, %d caches, %d cores",
             t->nodes, t->nodes == 1 ? "" : "s", s.packages, s.numa_nodes, s.l3_count, s.cores);
    return st;
}

/* Per level and place: up, down. */
static gyre_status_t make_links(topo_network_t *t)
{
    uint32_t at = 0;
    for (int level = 0; level < TOPO_LEVELS; level++) {
        int most = 0;
        for (int r = 0; r < t->ranks; r++)
            most = t->places[r][level] > most ? t->places[r][level] : most;
        t->first[level] = at;
        at += 2 * ((uint32_t)most + 1);
    }
    t->first[TOPO_LEVELS] = t->nlinks = at;
    t->links = calloc(at, sizeof *t->links);
    if (!t->links)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a network of %u links", at);
    for (int level = 0; level < TOPO_LEVELS; level++)
        for (uint32_t i = t->first[level]; i < t->first[level + 1]; i++)
            t->links[i] = level_links[level];
    return GYRE_OK;
}

gyre_status_t topo_network_machine(const char *file, topo_network_t *t)
{
    topo_t *topo;
    gyre_status_t st = topo_load(file, &topo);
    if (st != GYRE_OK)
        return st;
    t->kind = TOPO_NET_MACHINE;
    t->cost = core_cost;
    t->most_hops = 2 * TOPO_LEVELS;
    st = place_ranks(t, topo);
    topo_free(topo);
    return st == GYRE_OK ? make_links(t) : st;
}

static int counts(const topo_network_t *t, int level)
{
    return level != TOPO_CACHE || t->caches;
}

uint32_t topo_machine_route(const topo_network_t *t, int src, int dst, uint32_t *links)
{
    const int *from = t->places[src], *to = t->places[dst];
    uint32_t n = 0;
    int top = TOPO_LEVELS - 1;
    while (from[top] == to[top] || !counts(t, top))
        top--;
    for (int level = 0; level <= top; level++)
        if (counts(t, level))
            links[n++] = t->first[level] + 2 * (uint32_t)from[level];
    for (int level = top; level >= 0; level--)
        if (counts(t, level))
            links[n++] = t->first[level] + 2 * (uint32_t)to[level] + 1;
    return n;
}

void topo_machine_link_name(const topo_network_t *t, uint32_t link, char *text, size_t bytes)
{
    static const char *const names[TOPO_LEVELS] = {"core", "cache", "NUMA node", "package", "host"};
    int level = 0;
    while (link >= t->first[level + 1])
        level++;
    link -= t->first[level];
    snprintf(text, bytes, "%s %u %s", names[level], link / 2, link % 2 ? "in" : "out");
}
