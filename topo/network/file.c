/* SPDX-License-Identifier: Apache-2.0 */
/* topo/network/file.c: networks from JSON files: nodes and switches by name, and the links between them.
 *
 *     {"title": "two racks", "ranks_per_node": 1, "nodes": ["a", "b", "c"],
 *      "cost": {"send_ns": 150, "recv_ns": 150, "reduce": 20, "copy": 15},
 *      "links": [{"between": ["a", "s1"], "latency_ns": 500, "rate": 25},
 *                {"from": "s1", "to": "s2", "latency_ns": 700, "rate": 12.5}, ...]}
 *
 * nodes may also be a number: they are called n0, n1, ... Every other name in `links` is a switch. Messages
 * take a shortest way; of several, the one that the destination's number falls on. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/text/json.h"
#include "topo/network/internal.h"

enum { MOST_VERTICES = 1 << 16, MOST_TABLE = 1 << 26 };

typedef struct {
    uint32_t from, to;
} edge_t;

struct topo_graph_net {
    uint32_t nodes, vertices, nedges;
    char **names;              /* [vertices] nodes first */
    edge_t *edges;             /* [nedges] in the order of links */
    uint32_t *first, *leaving; /* edges that leave vertex v: leaving[first[v]] .. leaving[first[v + 1]] */
    uint32_t *next;            /* [vertices * nodes] the edge to take towards a node */
    base_arena_t arena;
};

typedef struct {
    const char *path;
    topo_network_t *t;
    topo_graph_net_t *g;
    uint32_t capacity; /* of names */
} reader_t;

static gyre_status_t no_memory(const reader_t *r)
{
    return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the network in %s", r->path);
}

/* A number above or equal to `least`, or its default if the key is absent. */
static gyre_status_t number(const reader_t *r, const json_t *object, const char *key, double least,
                            double *value)
{
    const json_t *v = json_object_get(object, key);
    if (!v)
        return GYRE_OK;
    if (!json_is_number(v) || !(json_number_value(v) >= least))
        return gyre_fail(GYRE_ERR_FORMAT, "%s: \"%s\" must be a number of at least %g", r->path, key, least);
    *value = json_number_value(v);
    return GYRE_OK;
}

/* The object has no other keys than those of `keys`, which have blanks around them: a typing mistake would
 * look as if it did nothing. */
static gyre_status_t check_keys(const reader_t *r, json_t *object, const char *keys)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        char word[32];
        const int length = snprintf(word, sizeof word, " %s ", key);
        if (length >= (int)sizeof word || strchr(key, ' ') || !strstr(keys, word))
            return gyre_fail(GYRE_ERR_FORMAT, "%s: \"%s\" is not one of%s", r->path, key, keys);
    }
    return GYRE_OK;
}

static uint32_t vertex_of(reader_t *r, const char *name, int may_add)
{
    topo_graph_net_t *g = r->g;
    for (uint32_t v = 0; v < g->vertices; v++)
        if (!strcmp(g->names[v], name))
            return v;
    if (!may_add || g->vertices == r->capacity)
        return UINT32_MAX;
    g->names[g->vertices] = base_arena_strdup(&g->arena, name);
    return g->names[g->vertices] ? g->vertices++ : UINT32_MAX;
}

static gyre_status_t read_nodes(reader_t *r, const json_t *root)
{
    const json_t *nodes = json_object_get(root, "nodes"), *links = json_object_get(root, "links");
    topo_graph_net_t *g = r->g;
    size_t count = json_is_array(nodes) ? json_array_size(nodes)
                   : json_is_integer(nodes) && json_integer_value(nodes) > 0
                       ? (size_t)json_integer_value(nodes)
                       : 0;
    if (count < 1 || count > MOST_VERTICES)
        return gyre_fail(GYRE_ERR_FORMAT, "%s: \"nodes\" must be a list of names or a number from 1 to %d",
                         r->path, MOST_VERTICES);
    if (!json_is_array(links) || json_array_size(links) < 1 || json_array_size(links) > MOST_TABLE / 8)
        return gyre_fail(GYRE_ERR_FORMAT, "%s: \"links\" must be a list of links", r->path);
    r->capacity = (uint32_t)(count + 2 * json_array_size(links));
    g->names = base_arena_alloc(&g->arena, r->capacity, sizeof(char *));
    g->edges = base_arena_alloc(&g->arena, 2 * json_array_size(links), sizeof *g->edges);
    r->t->links = calloc(2 * json_array_size(links), sizeof *r->t->links);
    if (!g->names || !g->edges || !r->t->links)
        return no_memory(r);
    for (size_t i = 0; i < count; i++) {
        char text[32];
        const char *name = json_is_array(nodes) ? json_string_value(json_array_get(nodes, i)) : text;
        snprintf(text, sizeof text, "n%zu", i);
        if (!name || (json_is_array(nodes) && vertex_of(r, name, 0) != UINT32_MAX))
            return gyre_fail(GYRE_ERR_FORMAT, "%s: node %zu has no name, or the name of another node",
                             r->path, i);
        g->names[g->vertices] = base_arena_strdup(&g->arena, name);
        if (!g->names[g->vertices++])
            return no_memory(r);
    }
    g->nodes = (uint32_t)count;
    return GYRE_OK;
}

static gyre_status_t read_link(reader_t *r, json_t *link, size_t index)
{
    topo_graph_net_t *g = r->g;
    const json_t *between = json_object_get(link, "between");
    const char *from =
        json_string_value(between ? json_array_get(between, 0) : json_object_get(link, "from"));
    const char *to = json_string_value(between ? json_array_get(between, 1) : json_object_get(link, "to"));
    gyre_status_t st = check_keys(r, link, " between from to latency_ns rate ");
    if (st != GYRE_OK)
        return st;
    if (!from || !to || !strcmp(from, to) || (between && json_array_size(between) != 2))
        return gyre_fail(GYRE_ERR_FORMAT,
                         "%s: link %zu needs \"between\": [NAME, NAME] or \"from\" and \"to\", two names",
                         r->path, index);
    topo_link_t made = {-1, -1};
    st = number(r, link, "latency_ns", 0, &made.latency);
    if (st == GYRE_OK)
        st = number(r, link, "rate", 1e-9, &made.rate);
    if (st != GYRE_OK)
        return st;
    if (made.latency < 0 || made.rate < 0)
        return gyre_fail(GYRE_ERR_FORMAT, "%s: link %zu (%s to %s) needs \"latency_ns\" and \"rate\" (GB/s)",
                         r->path, index, from, to);
    uint32_t a = vertex_of(r, from, 1), b = vertex_of(r, to, 1);
    if (a == UINT32_MAX || b == UINT32_MAX)
        return no_memory(r);
    for (int back = 0; back < (between ? 2 : 1); back++) {
        g->edges[g->nedges] = back ? (edge_t){b, a} : (edge_t){a, b};
        r->t->links[g->nedges++] = made;
    }
    return GYRE_OK;
}

/* Lists the edges by where they start (or, incoming, by where they end). */
static int sort_edges(topo_graph_net_t *g, base_arena_t *arena, int incoming, uint32_t **first,
                      uint32_t **list)
{
    *first = base_arena_alloc(arena, g->vertices + 2u, sizeof **first);
    *list = base_arena_alloc(arena, g->nedges + 1u, sizeof **list);
    if (!*first || !*list)
        return 0;
    for (uint32_t e = 0; e < g->nedges; e++)
        ++(*first)[(incoming ? g->edges[e].to : g->edges[e].from) + 2];
    for (uint32_t v = 2; v < g->vertices + 2; v++)
        (*first)[v] += (*first)[v - 1];
    for (uint32_t e = 0; e < g->nedges; e++)
        (*list)[(*first)[(incoming ? g->edges[e].to : g->edges[e].from) + 1]++] = e;
    return 1;
}

/* The distances to one node from everywhere: breadth first, backwards. distance, queue: [vertices]. Nodes
 * pass messages on, too, as in a mesh. */
static void distances_to(topo_graph_net_t *g, const uint32_t *first_in, const uint32_t *entering,
                         uint32_t node, uint32_t *distance, uint32_t *queue)
{
    uint32_t reached = 0, end = 0;
    for (uint32_t v = 0; v < g->vertices; v++)
        distance[v] = UINT32_MAX;
    distance[node] = 0;
    for (queue[end++] = node; reached < end; reached++) {
        uint32_t v = queue[reached];
        for (uint32_t k = first_in[v]; k < first_in[v + 1]; k++) {
            uint32_t u = g->edges[entering[k]].from;
            if (distance[u] == UINT32_MAX) {
                distance[u] = distance[v] + 1;
                queue[end++] = u;
            }
        }
    }
}

static gyre_status_t make_routes(reader_t *r)
{
    topo_graph_net_t *g = r->g;
    base_arena_t scratch = {0};
    uint32_t *first_in = NULL, *entering = NULL, most = 0;
    gyre_status_t st = GYRE_OK;
    if ((size_t)g->vertices * g->nodes > MOST_TABLE)
        return gyre_fail(GYRE_ERR_FORMAT,
                         "%s: %u nodes and %u vertices are too many: the table of routes would not fit",
                         r->path, g->nodes, g->vertices);
    g->next = base_arena_alloc(&g->arena, (size_t)g->vertices * g->nodes, sizeof *g->next);
    uint32_t *distance = base_arena_alloc(&scratch, g->vertices, sizeof *distance);
    uint32_t *queue = base_arena_alloc(&scratch, g->vertices, sizeof *queue);
    if (!g->next || !distance || !queue || !sort_edges(g, &g->arena, 0, &g->first, &g->leaving) ||
        !sort_edges(g, &scratch, 1, &first_in, &entering))
        st = no_memory(r);
    for (uint32_t node = 0; st == GYRE_OK && node < g->nodes; node++) {
        distances_to(g, first_in, entering, node, distance, queue);
        for (uint32_t v = 0; st == GYRE_OK && v < g->vertices; v++) {
            uint32_t choices = 0, taken = 0;
            for (int round = 0; round < 2; round++)
                for (uint32_t k = g->first[v]; k < g->first[v + 1]; k++) {
                    uint32_t to = g->edges[g->leaving[k]].to;
                    if (v == node || distance[v] == UINT32_MAX || distance[to] != distance[v] - 1)
                        continue;
                    if (round == 0)
                        choices++;
                    else if (taken++ == node % choices)
                        g->next[(size_t)v * g->nodes + node] = g->leaving[k];
                }
            if (v < g->nodes && distance[v] == UINT32_MAX)
                st = gyre_fail(GYRE_ERR_FORMAT, "%s: there is no path from %s to %s", r->path, g->names[v],
                               g->names[node]);
            if (distance[v] != UINT32_MAX && distance[v] > most)
                most = distance[v];
        }
    }
    r->t->most_hops = most > 0 ? most : 1;
    base_arena_free(&scratch);
    return st;
}

static gyre_status_t read_all(reader_t *r, json_t *root)
{
    topo_network_t *t = r->t;
    double per_node = 1;
    topo_node_cost_t *c = &t->cost;
    *c = (topo_node_cost_t){150, 150, 20, 15};
    json_t *cost = json_object_get(root, "cost"), *link;
    const json_t *title = json_object_get(root, "title");
    if (!json_is_object(root) || (cost && !json_is_object(cost)))
        return gyre_fail(GYRE_ERR_FORMAT, "%s: %s is not a JSON object", r->path,
                         json_is_object(root) ? "\"cost\"" : "the file");
    gyre_status_t st = check_keys(r, root, " title ranks_per_node nodes cost links ");
    if (st == GYRE_OK)
        st = check_keys(r, cost, " send_ns recv_ns reduce copy ");
    if (st == GYRE_OK)
        st = number(r, root, "ranks_per_node", 1, &per_node);
    if (st == GYRE_OK)
        st = number(r, cost, "send_ns", 0, &c->send);
    if (st == GYRE_OK)
        st = number(r, cost, "recv_ns", 0, &c->recv);
    if (st == GYRE_OK)
        st = number(r, cost, "reduce", 1e-9, &c->reduce);
    if (st == GYRE_OK)
        st = number(r, cost, "copy", 1e-9, &c->copy);
    if (st == GYRE_OK)
        st = read_nodes(r, root);
    size_t i;
    json_array_foreach(json_object_get(root, "links"), i, link)
    {
        if (st == GYRE_OK)
            st = read_link(r, link, i);
    }
    if (st != GYRE_OK)
        return st;
    if (t->ranks_per_node == 0)
        t->ranks_per_node = per_node > 1 << 20 ? 1 << 20 : (int)per_node;
    t->nodes = (int)r->g->nodes;
    if ((long)t->nodes * t->ranks_per_node < t->ranks)
        return gyre_fail(GYRE_ERR_INVALID, "%s: %d nodes with %d ranks each are too few for %d ranks",
                         r->path, t->nodes, t->ranks_per_node, t->ranks);
    t->nlinks = r->g->nedges;
    snprintf(t->title, sizeof t->title, "%s", json_is_string(title) ? json_string_value(title) : r->path);
    return make_routes(r);
}

gyre_status_t topo_network_read(const char *path, topo_network_t *network)
{
    json_t *root = NULL;
    network->kind = TOPO_NET_GRAPH;
    if (access(path, F_OK) != 0)
        return gyre_fail(GYRE_ERR_NOT_FOUND, "\"%s\" is neither a file nor a preset (%s)", path,
                         topo_network_presets());
    gyre_status_t st = base_json_read(path, &root);
    if (st != GYRE_OK)
        return st;
    network->graph = calloc(1, sizeof *network->graph);
    reader_t r = {.path = path, .t = network, .g = network->graph};
    st = r.g ? read_all(&r, root) : no_memory(&r);
    json_decref(root);
    return st;
}

uint32_t topo_graph_route(const topo_graph_net_t *graph, uint32_t from, uint32_t to, uint32_t *links)
{
    uint32_t n = 0;
    for (uint32_t at = from; at != to; at = graph->edges[links[n - 1]].to)
        links[n++] = graph->next[(size_t)at * graph->nodes + to];
    return n;
}

void topo_graph_link_name(const topo_graph_net_t *graph, uint32_t link, char *text, size_t bytes)
{
    snprintf(text, bytes, "%s to %s", graph->names[graph->edges[link].from],
             graph->names[graph->edges[link].to]);
}

void topo_graph_net_free(topo_graph_net_t *graph)
{
    if (!graph)
        return;
    base_arena_free(&graph->arena);
    free(graph);
}
