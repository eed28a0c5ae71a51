/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/proof/simulate/machine.c: what a step costs: over the links of a network, or on one host.
 *
 * Network. Posting and taking a message are work of the rank (topo_node_cost_t). A message is cut through:
 * its first byte enters a link when it has left the one before; a link carries one message at a time, in
 * the order in which they were sent, and what comes meanwhile waits before it (sim_serve). A SEND is
 * complete when its last byte is on the first link.
 *
 * Host. What comm/shm/link.c does: up to COMM_SHM_EAGER_MOST bytes are copied into a ring and out of it;
 * larger ones are read where they lie (windows: by the REDUCE or COPY that uses them, else by a copy), by
 * process_vm_readv, or go through the ring, too, where that costs less, and a SEND is complete when the
 * receiver has read it. Data that no cache holds shares the memory's rate. */
#include <math.h>

#include "collectives/proof/simulate/internal.h"

double sim_serve(sim_server_t *server, double when, double length)
{
    /* Messages reserve their links when they are sent, so a later one may come first: it may use the last
     * gap. */
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

/* ---- one host -------------------------------------------------------------------------------------------
 *
 * Calls are repeated with the same buffers, as in a benchmark or in training: what nobody wrote since the
 * call before is still in the reader's cache, whosever it is. What its owner has written since comes from
 * the owner's cache, line by line; and writing to what peers have read takes the lines away from them
 * first. */

enum {
    STREAM_START =
        32 << 10,        /* bytes in which prefetching between cores gets going: they take twice the time */
    STORE_BUFFER = 4096, /* stores that wait for their lines while the core goes on */
    INLINE_MOST = 48,    /* a payload that comes with the flag */
    JOINT_PIECE = 256 << 10 /* fetched and added at once, about: see coll_joint_room */
};

/* Time for `amount` at the rate that holds in cache, or beyond, or between. */
static double mixed(const sim_t *s, double amount, double cache, double memory)
{
    return s->in_cache * per(amount, cache) + (1 - s->in_cache) * per(amount, memory);
}

static double stream_start(const sim_t *s, double bytes)
{
    return per(sim_sooner(bytes, STREAM_START), s->cost->peer_cache);
}

/* Fetching what a peer has just written. */
static double fetch(const sim_t *s, double bytes)
{
    if (bytes <= INLINE_MOST)
        return per(bytes, s->cost->copy_cache);
    return s->cost->line + mixed(s, bytes, s->cost->peer_cache, s->cost->peer_memory) +
           stream_start(s, bytes);
}

/* Writing what peers have read. */
static double take_back(const sim_t *s, double bytes)
{
    return mixed(s, bytes, s->cost->peer_cache, s->cost->peer_memory) + stream_start(s, bytes) / 2;
}

/* process_vm_readv. Its rate includes what it does for each page. Data that is not in this core's cache takes
 * as much longer as a plain copy of it does. */
static double by_kernel(const sim_t *s, double bytes, int fresh)
{
    const coll_cost_t *cost = s->cost;
    const double near = per(bytes, cost->copy_cache);
    const double from = fresh ? fetch(s, bytes) : mixed(s, bytes, cost->copy_cache, cost->copy_memory);
    return cost->cma_call + per(bytes, cost->cma_rate) + sim_later(from - near, 0);
}

/* The rank works for `work` ns and moves `traffic` bytes. Bytes that the caches do not hold compete for the
 * memory. written: bytes that peers have read before. Stores wait for their cache lines while the work goes
 * on, but only a limited number of stores. */
static void host_work(sim_t *s, sim_rank_t *r, double work, double traffic, double written)
{
    double length = (1 - s->in_cache) * per(traffic, s->cost->total_memory), begun = r->now;
    r->now += work;
    if (length > 0)
        r->now = sim_later(r->now, sim_serve(&s->links[0], begun, length) + length);
    if (written > INLINE_MOST) {
        r->drained = sim_later(r->drained, begun + take_back(s, written));
        r->now = sim_later(r->now, r->drained - take_back(s, STORE_BUFFER));
    }
}

static double post_cost(const coll_cost_t *cost)
{
    return sim_later(cost->message - cost->line, 0) / 2;
}

static int is_copied(uint8_t way)
{
    return way == SIM_WAY_EAGER || way == SIM_WAY_BULK;
}

static double host_send(sim_t *s, sim_rank_t *r, const sim_step_t *step, sim_message_t *m)
{
    const coll_cost_t *cost = s->cost;
    double bytes = (double)step->bytes;
    m->way = SIM_WAY_EAGER;
    m->fresh = step->buf != COLL_IN || s->fresh_input;
    if (step->bytes > COMM_SHM_EAGER_MOST) {
        m->way = SIM_WAY_WINDOW;
        if (step->buf != COLL_TMP && s->memory == COLL_MEMORY_PLAIN)
            m->way = step->bytes > s->ring_most ? SIM_WAY_CMA : SIM_WAY_BULK;
    }
    r->now += cost->step + post_cost(cost);
    if (is_copied(m->way))
        host_work(s, r, mixed(s, bytes, cost->copy_cache, cost->copy_memory), bytes, bytes);
    m->time = sim_later(r->now, r->drained) + cost->line; /* the flag is stored after the data */
    return is_copied(m->way) ? r->now : INFINITY;
}

static void host_recv(sim_t *s, int rank, const sim_step_t *step, const sim_message_t *m, int peer)
{
    const coll_cost_t *cost = s->cost;
    sim_rank_t *r = &s->ranks[rank];
    const sim_local_t *l = &r->program->local[step - r->program->steps];
    double bytes = (double)step->bytes, work = fetch(s, bytes);
    r->now += cost->step + post_cost(cost);
    if (m->way == SIM_WAY_WINDOW && l->view != SIM_NONE) {
        r->view[l->view] = (sim_view_t){peer, m->slot, 1, m->fresh};
        return;
    }
    if (m->way == SIM_WAY_CMA) {
        work = by_kernel(s, bytes, m->fresh);
    } else if (m->way == SIM_WAY_WINDOW && !m->fresh) {
        work = mixed(s, bytes, cost->copy_cache, cost->copy_memory);
    }
    host_work(s, r, work, 2 * bytes, l->sent_on ? bytes : 0);
    if (!is_copied(m->way))
        sim_complete(s, peer, m->slot, r->now + cost->line);
}

/* In the memory of all: n inputs are read once, n outputs written once, each by one rank only; nobody's
 * lines move. Private memory is fetched and written by system calls, piece by piece. */
static void host_joint(sim_t *s, sim_rank_t *r, const sim_step_t *step)
{
    const coll_cost_t *cost = s->cost;
    double bytes = (double)step->bytes, others = step->arg - 1.0;
    double copy = mixed(s, bytes, cost->copy_cache, cost->copy_memory), work = copy, moved = 2 * bytes;
    if (step->arg > 1) {
        work = step->arg * mixed(s, bytes, cost->reduce_cache, cost->reduce_memory) + others * copy;
        moved = 2 * step->arg * bytes;
    }
    if (s->memory == COLL_MEMORY_PLAIN) {
        double calls = ceil(bytes / JOINT_PIECE) - 1, all = others > 0 ? 2 * others : 1;
        work += all * (calls * cost->cma_call + by_kernel(s, bytes, 0)) - (others > 0 ? others : 1) * copy;
    }
    r->now += cost->step;
    host_work(s, r, work, moved, 0);
}

static void host_compute(sim_t *s, int rank, const sim_step_t *step)
{
    const coll_cost_t *cost = s->cost;
    sim_rank_t *r = &s->ranks[rank];
    const sim_local_t *l = &r->program->local[step - r->program->steps];
    const uint32_t *views = r->program->viewed + l->first;
    double bytes = (double)step->bytes, each, work = 0, fetched = 0;
    if (step->stage && s->memory == COLL_MEMORY_WINDOW)
        return;
    for (uint32_t k = 0; k < l->nread; k++)
        fetched += r->view[views[k]].open && r->view[views[k]].fresh;
    if (step->kind == COLL_STEP_COPY)
        each = mixed(s, bytes, cost->copy_cache, cost->copy_memory);
    else
        each = mixed(s, bytes, cost->reduce_cache, cost->reduce_memory);
    work = (step->arg - fetched) * each;
    if (fetched > 0)
        work += fetched * sim_later(each, fetch(s, bytes));
    r->now += cost->step;
    host_work(s, r, work, (step->arg + 1.0) * bytes, l->sent_on ? bytes : 0);
    for (uint32_t k = 0; k < l->nrelease; k++) {
        sim_view_t *v = &r->view[views[k]];
        if (v->open)
            sim_complete(s, v->sender, v->slot, r->now + cost->line);
        v->open = 0;
    }
}

/* ---- a network ----------------------------------------------------------------------------------------- */

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
    if (topo_network_node(net, rank) != topo_network_node(net, peer))
        s->result.between_nodes += bytes;
    if (topo_network_group(net, rank) != topo_network_group(net, peer))
        s->result.between_groups += bytes;
    return sent;
}

/* ---- either -------------------------------------------------------------------------------------------- */

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
    if (!s->network && step->kind == COLL_STEP_JOINT)
        host_joint(s, &s->ranks[rank], step);
    else if (!s->network)
        host_compute(s, rank, step);
    else if (step->kind == COLL_STEP_COPY)
        s->ranks[rank].now += per(bytes, s->network->cost.copy);
    else
        s->ranks[rank].now += per(bytes * step->arg, s->network->cost.reduce);
}
