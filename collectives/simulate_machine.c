/* collectives/simulate_machine.c: what a step costs: over the links of a network, or on one host.
 *
 * Network. Posting and taking a message are work of the rank (topo_node_cost_t). A message is cut through: its first byte
 * enters a link when it has left the one before; a link carries one message at a time, in the order in which they were
 * sent, and what comes meanwhile waits before it (sim_serve). A SEND is complete when its last byte is on the first link.
 *
 * Host. What comm/shm.c does: up to EAGER bytes are copied into a ring and out of it; larger ones are read where they lie
 * (windows: by the REDUCE or COPY that uses them, else by a copy) or by process_vm_readv, and a SEND is complete when
 * the receiver has read it. Data that no cache holds shares the memory's rate. */
#include <math.h>

#include "collectives/simulate_internal.h"

enum { EAGER_MOST = 4096, CMA_LEAST = 16384 }; /* as in comm/shm.c */

double sim_serve(sim_server_t *server, double when, double length)
{
    /* Messages reserve their links when they are sent, so a later one may come first: it may use the last gap. */
    double in_hole = sim_later(when, server->hole);
    if (in_hole + length <= server->end) {
        server->hole = in_hole + length;
        return in_hole;
    }
    double start = sim_later(when, server->free);
    if (start > server->free) {
        server->hole = server->free;
        server->end = start;
    }
    server->free = start + length;
    return start;
}

static double per(double amount, double rate)
{
    return rate > 0 ? amount / rate : 0;
}

/* ---- one host ------------------------------------------------------------------------------------------- */

/* Time for `amount` at the rate that holds in cache, or beyond, or between. */
static double mixed(const sim_t *s, double amount, double cache, double memory)
{
    return s->in_cache * per(amount, cache) + (1 - s->in_cache) * per(amount, memory);
}

/* The rank works for `work` ns and moves `traffic` bytes, which compete for the memory as far as caches do not hold them. */
static void host_work(sim_t *s, sim_rank_t *r, double work, double traffic)
{
    double length = (1 - s->in_cache) * per(traffic, s->cost->total_memory), end = r->now + work;
    if (length > 0)
        end = sim_later(end, sim_serve(&s->links[0], r->now, length) + length);
    r->now = end;
}

static double post_cost(const coll_cost_t *cost)
{
    return sim_later(cost->message - cost->line, 0) / 2;
}

static double host_send(sim_t *s, sim_rank_t *r, const sim_step_t *step, sim_message_t *m)
{
    const coll_cost_t *cost = s->cost;
    double bytes = (double)step->bytes;
    m->way = SIM_WAY_EAGER;
    if (step->bytes > EAGER_MOST) {
        m->way = SIM_WAY_WINDOW;
        if (step->user && s->memory == COLL_MEMORY_PLAIN)
            m->way = step->bytes >= CMA_LEAST ? SIM_WAY_CMA : SIM_WAY_BULK;
    }
    r->now += cost->step + post_cost(cost);
    if (m->way == SIM_WAY_EAGER || m->way == SIM_WAY_BULK)
        host_work(s, r, mixed(s, bytes, cost->copy_cache, cost->copy_memory), bytes);
    m->time = r->now + cost->line;
    return m->way == SIM_WAY_EAGER || m->way == SIM_WAY_BULK ? r->now : INFINITY;
}

static void host_recv(sim_t *s, int rank, const sim_step_t *step, const sim_message_t *m, int peer)
{
    const coll_cost_t *cost = s->cost;
    sim_rank_t *r = &s->ranks[rank];
    uint32_t view = r->program->local[step - r->program->steps].view;
    double bytes = (double)step->bytes;
    r->now += cost->step + post_cost(cost);
    if (m->way == SIM_WAY_WINDOW && view != SIM_NONE) {
        r->view[view] = (sim_view_t){peer, m->slot, 1};
        return;
    }
    if (m->way == SIM_WAY_CMA) {
        r->now += cost->cma_call;
        host_work(s, r, per(bytes, cost->cma_rate), 2 * bytes);
    } else if (m->way == SIM_WAY_WINDOW) {
        host_work(s, r, mixed(s, bytes, cost->peer_cache, cost->peer_memory), 2 * bytes);
    } else {
        host_work(s, r, per(bytes, cost->peer_cache), bytes); /* the ring is always in some cache */
        return;
    }
    sim_complete(s, peer, m->slot, r->now + cost->line);
}

static void host_compute(sim_t *s, int rank, const sim_step_t *step)
{
    const coll_cost_t *cost = s->cost;
    sim_rank_t *r = &s->ranks[rank];
    const sim_local_t *l = &r->program->local[step - r->program->steps];
    const uint32_t *views = r->program->viewed + l->first;
    double bytes = (double)step->bytes, own = step->arg, theirs = 0, work;
    for (uint32_t k = 0; k < l->nread; k++)
        theirs += r->view[views[k]].open;
    own -= theirs;
    double peer = mixed(s, bytes, cost->peer_cache, cost->peer_memory);
    if (step->kind == COLL_STEP_COPY) {
        double copy = mixed(s, bytes, cost->copy_cache, cost->copy_memory);
        work = theirs > 0 ? sim_later(copy, peer) : copy;
    } else {
        double add = mixed(s, bytes, cost->reduce_cache, cost->reduce_memory);
        work = own * add + theirs * sim_later(add, peer);
    }
    r->now += cost->step;
    host_work(s, r, work, (own + theirs + 1) * bytes);
    for (uint32_t k = 0; k < l->nrelease; k++) {
        sim_view_t *v = &r->view[views[k]];
        if (v->open)
            sim_complete(s, v->sender, v->slot, r->now + cost->line);
        v->open = 0;
    }
}

/* ---- a network ------------------------------------------------------------------------------------------ */

static double network_send(sim_t *s, int rank, const sim_step_t *step, int peer, sim_message_t *m)
{
    const topo_network_t *net = s->network;
    sim_rank_t *r = &s->ranks[rank];
    double bytes = (double)step->bytes;
    r->now += net->cost.send;
    double head = r->now, tail = r->now, sent = r->now;
    uint32_t hops = topo_network_route(net, rank, peer, s->route);
    for (uint32_t i = 0; i < hops; i++) {
        const topo_link_t *link = &net->links[s->route[i]];
        sim_server_t *server = &s->links[s->route[i]];
        double length = bytes / link->rate, start = sim_serve(server, head, length);
        server->bytes += bytes;
        head = start + link->latency;
        tail = sim_later(tail, start + length) + link->latency;
        if (i == 0)
            sent = start + length;
    }
    m->time = tail;
    if (rank / net->ranks_per_node != peer / net->ranks_per_node)
        s->result.between_nodes += bytes;
    if (topo_network_group(net, rank) != topo_network_group(net, peer))
        s->result.between_groups += bytes;
    return sent;
}

/* ---- either --------------------------------------------------------------------------------------------- */

double sim_send(sim_t *s, int rank, const sim_step_t *step, int peer, sim_message_t *m)
{
    s->result.payload += (double)step->bytes;
    return s->network ? network_send(s, rank, step, peer, m) : host_send(s, &s->ranks[rank], step, m);
}

void sim_recv(sim_t *s, int rank, const sim_step_t *step, const sim_message_t *m, int peer)
{
    if (s->network)
        s->ranks[rank].now += s->network->cost.recv;
    else
        host_recv(s, rank, step, m, peer);
}

void sim_compute(sim_t *s, int rank, const sim_step_t *step)
{
    double bytes = (double)step->bytes;
    if (!s->network)
        host_compute(s, rank, step);
    else if (step->kind == COLL_STEP_COPY)
        s->ranks[rank].now += per(bytes, s->network->cost.copy);
    else
        s->ranks[rank].now += per(bytes * step->arg, s->network->cost.reduce);
}
