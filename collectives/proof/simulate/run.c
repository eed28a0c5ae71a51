/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/proof/simulate/run.c: runs programs in virtual time.
 *
 * Every rank has a clock and goes on until its next step must wait for a message or for a step that is not
 * complete. The ranks that can go on are in a queue by time, and the first one runs. Links, memory and cores
 * are shared: before a rank uses them, it goes back to the queue if another rank's clock is earlier. Messages
 * find their receives per (sender, receiver, channel) in order. So the cost is O(log ranks) per message on
 * any network. */
#include <math.h>
#include <stdlib.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/grow.h"
#include "base/settings/settings.h"
#include "collectives/schedules/generator.h"
#include "collectives/proof/simulate/internal.h"
#include "comm/memory/segment.h"

/* ---- the queue: a 4-ary heap of (time, rank) ---------------------------------------------------------- */

static void queue_push(sim_t *s, double time, int rank)
{
    if (!base_grow(&s->queue, &s->queue_capacity, s->nqueue, 1, sizeof *s->queue)) {
        s->failed = 1;
        return;
    }
    size_t at = s->nqueue++;
    for (size_t up; at > 0 && s->queue[up = (at - 1) / 4].time > time; at = up)
        s->queue[at] = s->queue[up];
    s->queue[at] = (sim_event_t){time, rank};
}

static sim_event_t queue_pop(sim_t *s)
{
    sim_event_t top = s->queue[0], last = s->queue[--s->nqueue];
    size_t at = 0;
    for (size_t child; (child = 4 * at + 1) < s->nqueue; at = child) {
        size_t end = child + 4 < s->nqueue ? child + 4 : s->nqueue;
        for (size_t i = child + 1; i < end; i++)
            if (s->queue[i].time < s->queue[child].time)
                child = i;
        if (s->queue[child].time >= last.time)
            break;
        s->queue[at] = s->queue[child];
    }
    s->queue[at] = last;
    return top;
}

/* Lets `rank` run at `time`, if it would not run earlier anyway. */
static void wake(sim_t *s, int rank, double time)
{
    sim_rank_t *r = &s->ranks[rank];
    if (time >= r->wake)
        return;
    r->wake = time;
    queue_push(s, time, rank);
}

void sim_complete(sim_t *s, int rank, uint32_t slot, double when)
{
    sim_rank_t *r = &s->ranks[rank];
    r->open--;
    r->finished = sim_later(r->finished, when);
    if (slot != SIM_NONE)
        r->slot[slot] = when;
    if (slot != SIM_NONE || !r->open)
        wake(s, rank, when);
}

/* ---- messages ----------------------------------------------------------------------------------------- */

static uint32_t message_new(sim_t *s)
{
    uint32_t at = s->free_message;
    if (at != SIM_NONE) {
        s->free_message = s->messages[at].next;
        return at;
    }
    if (s->nmessages == s->message_capacity) {
        uint32_t wanted = s->message_capacity ? 2 * s->message_capacity : 1024;
        sim_message_t *grown =
            wanted > s->message_capacity ? realloc(s->messages, wanted * sizeof *grown) : NULL;
        if (!grown) {
            s->failed = 1;
            return SIM_NONE;
        }
        s->messages = grown;
        s->message_capacity = wanted;
    }
    return s->nmessages++;
}

static void run_send(sim_t *s, int rank, const sim_step_t *step)
{
    sim_rank_t *r = &s->ranks[rank];
    sim_lane_t *lane = &s->lanes[s->programs.first_lane[rank] + step->arg];
    uint32_t at = message_new(s);
    if (at == SIM_NONE)
        return;
    sim_message_t m = {.bytes = step->bytes, .next = SIM_NONE, .depth = r->depth + 1, .slot = step->slot};
    double complete = sim_send(s, rank, step, lane->receiver, &m);
    if (step->slot != SIM_NONE)
        r->slot[step->slot] = complete;
    if (isinf(complete))
        r->open++;
    else
        r->finished = sim_later(r->finished, complete);
    s->messages[at] = m;
    if (lane->head == SIM_NONE)
        lane->head = at;
    else
        s->messages[lane->tail].next = at;
    lane->tail = at;
    if (s->ranks[lane->receiver].waiting)
        wake(s, lane->receiver, m.time);
}

static int run_recv(sim_t *s, int rank, const sim_step_t *step)
{
    sim_rank_t *r = &s->ranks[rank];
    sim_lane_t *lane = &s->lanes[s->programs.in[rank][step->arg]];
    uint32_t at = lane->head;
    sim_message_t m = s->messages[at];
    if (m.bytes != step->bytes) {
        s->wrong = rank;
        return 0;
    }
    lane->head = m.next;
    s->messages[at].next = s->free_message;
    s->free_message = at;
    if (m.depth > r->depth)
        r->depth = m.depth;
    sim_recv(s, rank, step, &m, lane->sender);
    return 1;
}

/* ---- ranks -------------------------------------------------------------------------------------------- */

/* From when on a step can run: its message is there and what it depends on is complete. INFINITY: not
 * known yet. */
static double ready_at(const sim_t *s, int rank, const sim_step_t *step)
{
    const sim_rank_t *r = &s->ranks[rank];
    double when = 0;
    for (uint32_t k = 0; k < step->ndep; k++)
        when = sim_later(when, r->slot[r->program->deps[step->dep + k]]);
    if (step->kind == COLL_STEP_RECV) {
        uint32_t head = s->lanes[s->programs.in[rank][step->arg]].head;
        when = head == SIM_NONE ? INFINITY : sim_later(when, s->messages[head].time);
    }
    return when;
}

static int others_behind(const sim_t *s, double now)
{
    return s->nqueue && now > s->queue[0].time + s->lookahead;
}

typedef struct {
    double next; /* when the rank can go on; INFINITY: when somebody wakes it */
    int moved, gave_way;
} turn_t;

static void run_channel(sim_t *s, int rank, int channel, turn_t *turn)
{
    sim_rank_t *r = &s->ranks[rank];
    const sim_program_t *p = r->program;
    for (uint32_t *at = &r->at[channel]; *at < p->first[channel + 1] && s->wrong < 0 && !s->failed; ++*at) {
        const sim_step_t *step = &p->steps[*at];
        double when = ready_at(s, rank, step);
        if (when > r->now) {
            turn->next = sim_sooner(turn->next, when);
            return;
        }
        if ((step->kind == COLL_STEP_SEND || !s->network) && others_behind(s, r->now)) {
            turn->next = r->now;
            turn->gave_way = 1;
            return;
        }
        if (step->kind == COLL_STEP_SEND)
            run_send(s, rank, step);
        else if (step->kind != COLL_STEP_RECV)
            sim_compute(s, rank, step);
        else if (!run_recv(s, rank, step))
            return;
        if (step->kind != COLL_STEP_SEND && step->slot != SIM_NONE)
            r->slot[step->slot] = r->now;
        turn->moved = 1;
    }
}

/* Takes the core of `rank`, or puts the rank into the line for it and returns 0. */
static int take_core(sim_t *s, int rank)
{
    sim_core_t *core = &s->cores[rank % s->cost->cores];
    sim_rank_t *r = &s->ranks[rank];
    if (core->holder >= 0 && core->holder != rank) {
        if (r->in_line)
            return 0;
        r->in_line = 1;
        r->next_in_line = -1;
        if (core->first_waiter < 0)
            core->first_waiter = rank;
        else
            s->ranks[core->last_waiter].next_in_line = rank;
        core->last_waiter = rank;
        return 0;
    }
    core->holder = rank;
    r->now = sim_later(r->now, core->free);
    if (core->last != rank && core->last >= 0)
        r->now += s->cost->yield;
    core->last = rank;
    return 1;
}

static void leave_core(sim_t *s, int rank)
{
    sim_core_t *core = &s->cores[rank % s->cost->cores];
    core->free = s->ranks[rank].now;
    core->holder = -1;
    int next = core->first_waiter;
    if (next < 0)
        return;
    core->first_waiter = s->ranks[next].next_in_line;
    s->ranks[next].in_line = 0;
    wake(s, next, core->free);
}

/* 1 if the rank is through with a call and makes another. */
static int next_call(sim_t *s, int rank)
{
    sim_rank_t *r = &s->ranks[rank];
    const sim_program_t *p = r->program;
    for (int c = 0; c < s->channels; c++)
        if (r->at[c] < p->first[c + 1])
            return 0;
    if (r->open || r->call == s->calls)
        return 0;
    r->now = sim_later(r->now, r->finished);
    if (r->call++ == 0)
        s->first_end = sim_later(s->first_end, r->now);
    if (r->call == s->calls)
        return 0;
    for (int c = 0; c < COLL_MAX_CHANNELS; c++)
        r->at[c] = p->first[c];
    for (uint32_t i = 0; i < p->nslots; i++)
        r->slot[i] = INFINITY;
    if (!s->network)
        r->now += s->cost->call;
    return 1;
}

static void run_rank(sim_t *s, int rank, double time)
{
    sim_rank_t *r = &s->ranks[rank];
    r->now = sim_later(r->now, time);
    if (s->crowded && !take_core(s, rank))
        return;
    turn_t turn;
    do {
        turn = (turn_t){.next = INFINITY};
        for (int c = 0; c < s->channels && !turn.gave_way; c++)
            run_channel(s, rank, c, &turn);
        if (!turn.moved && !turn.gave_way && turn.next == INFINITY)
            turn.moved = next_call(s, rank);
        /* alone on its time: no need to go through the queue */
        if (!turn.moved && !turn.gave_way && turn.next < INFINITY && !s->crowded &&
            !others_behind(s, turn.next)) {
            r->now = turn.next;
            turn.moved = 1;
        }
    } while (turn.moved && !turn.gave_way);
    r->waiting = !turn.gave_way;
    if (s->crowded && !turn.gave_way)
        leave_core(s, rank);
    if (turn.next < INFINITY)
        wake(s, rank, turn.next);
}

/* ---- the whole ---------------------------------------------------------------------------------------- */

static int set_up(sim_t *s)
{
    size_t slots = 0, views = 0, n = (size_t)s->n;
    size_t links = s->network ? s->network->nlinks : 1, hops = s->network ? s->network->most_hops : 1;
    for (int r = 0; r < s->n; r++) {
        slots += s->programs.of[r]->nslots;
        views += s->programs.of[r]->nviews;
        s->channels = s->programs.of[r]->first[1] < s->programs.of[r]->nsteps ? 2 : s->channels;
    }
    s->ranks = base_arena_alloc(&s->arena, n, sizeof *s->ranks);
    s->lanes = base_arena_alloc(&s->arena, s->programs.nlanes + 1u, sizeof *s->lanes);
    s->links = base_arena_alloc(&s->arena, links + 1, sizeof *s->links);
    s->route = base_arena_alloc(&s->arena, hops + 1, sizeof *s->route);
    double *slot = base_arena_alloc(&s->arena, slots + 1, sizeof *slot);
    sim_view_t *view = base_arena_alloc(&s->arena, views + 1, sizeof *view);
    if (s->crowded)
        s->cores = base_arena_alloc(&s->arena, (size_t)s->cost->cores, sizeof *s->cores);
    if (!s->ranks || !s->lanes || !s->links || !s->route || !slot || !view || (s->crowded && !s->cores))
        return 0;
    for (int c = 0; s->crowded && c < s->cost->cores; c++)
        s->cores[c] = (sim_core_t){-1, -1, -1, -1, 0};
    for (size_t i = 0; i < slots; i++)
        slot[i] = INFINITY;
    for (int r = 0; r < s->n; r++) {
        const sim_program_t *p = s->programs.of[r];
        s->ranks[r] = (sim_rank_t){.program = p, .slot = slot, .view = view, .wake = INFINITY};
        s->ranks[r].now = s->network ? 0 : s->cost->call;
        for (int c = 0; c < COLL_MAX_CHANNELS; c++)
            s->ranks[r].at[c] = p->first[c];
        slot += p->nslots;
        view += p->nviews;
        for (uint32_t k = 0; k < p->nout; k++)
            s->lanes[s->programs.first_lane[r] + k] =
                (sim_lane_t){SIM_NONE, SIM_NONE, r, (int)(((long)r + p->out[k].ahead) % s->n)};
    }
    return 1;
}

static gyre_status_t stuck(const sim_t *s, const coll_args_t *args, coll_algo_t algo)
{
    const char *why = "waits forever";
    int rank = s->wrong;
    if (rank >= 0)
        why = "receives a message of another length";
    for (int r = 0; rank < 0 && r < s->n; r++)
        for (int c = 0; c < COLL_MAX_CHANNELS; c++)
            if (s->ranks[r].at[c] < s->ranks[r].program->first[c + 1] || s->ranks[r].open)
                rank = r;
    if (rank < 0)
        return GYRE_OK;
    return gyre_fail(GYRE_ERR_INTERNAL, "%s by %s over %d ranks: rank %d %s", coll_op_name(args->op),
                     coll_algo_name(algo), s->n, rank, why);
}

static void sum_up(sim_t *s)
{
    coll_simulation_t *out = &s->result;
    out->messages = s->programs.messages;
    for (int r = 0; r < s->n; r++) {
        const sim_rank_t *rank = &s->ranks[r];
        out->ns = sim_later(out->ns, sim_later(rank->now, rank->finished));
        out->steps = rank->depth > out->steps ? rank->depth : out->steps;
        out->most_sent = rank->program->sends > out->most_sent ? rank->program->sends : out->most_sent;
    }
    if (s->calls > 1)
        out->ns = (out->ns - s->first_end) / (s->calls - 1);
    if (!s->network)
        return;
    double busiest = -1;
    for (uint32_t i = 0; i < s->network->nlinks; i++) {
        double bytes = s->links[i].bytes, busy = bytes / s->network->links[i].rate;
        out->link_total += bytes;
        out->link_most = sim_later(out->link_most, bytes);
        if (busy > busiest) {
            busiest = busy;
            out->hottest = i;
        }
    }
    out->link_mean = s->network->nlinks ? out->link_total / s->network->nlinks : 0;
    out->hottest_busy = out->ns > 0 ? busiest / out->ns : 0;
}

static gyre_status_t simulate(sim_t *s, const coll_args_t *args, coll_algo_t algo, coll_simulation_t *out)
{
    s->n = args->n;
    s->channels = 1;
    s->free_message = SIM_NONE;
    s->wrong = -1;
    gyre_status_t st = sim_programs_build(args, algo, s->esize, !s->network, &s->programs);
    if (st != GYRE_OK)
        return st;
    if (!set_up(s))
        s->failed = 1;
    for (int r = 0; r < s->n && !s->failed; r++)
        wake(s, r, 0);
    while (s->nqueue && !s->failed && s->wrong < 0) {
        sim_event_t next = queue_pop(s);
        if (next.time != s->ranks[next.rank].wake)
            continue; /* it has run since */
        s->ranks[next.rank].wake = INFINITY;
        run_rank(s, next.rank, next.time);
    }
    if (s->failed)
        st = gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to simulate %d ranks", s->n);
    else
        st = stuck(s, args, algo);
    if (st == GYRE_OK) {
        sum_up(s);
        *out = s->result;
    }
    sim_programs_free(&s->programs);
    base_arena_free(&s->arena);
    free(s->messages);
    free(s->queue);
    return st;
}

gyre_status_t coll_simulate(const topo_network_t *network, const coll_args_t *args, coll_algo_t algo,
                            size_t esize, coll_simulation_t *out)
{
    if (network->ranks != args->n)
        return gyre_fail(GYRE_ERR_INVALID, "simulation: the network has %d ranks, but the schedule %d",
                         network->ranks, args->n);
    sim_t s = {.network = network, .esize = esize, .lookahead = network->least_latency, .calls = 1};
    coll_args_t apart = *args;
    apart.place = 0; /* nobody reaches another's memory */
    return simulate(&s, &apart, algo, out);
}

static const double USABLE = 0.85; /* of a cache, for one collective's buffers */

/* The part of a rank's data that its cache still holds in the next call, as caches that replace lines at
 * random would. The data is what the rank has and what it reads from others; something else is always in
 * the way. */
double sim_cached_part(const coll_cost_t *cost, const coll_args_t *args, size_t esize)
{
    size_t in, out;
    coll_extent(args, &in, &out);
    double own = (double)(args->in_place ? (in > out ? in : out) : in + out);
    double theirs = (double)(out > in ? out - in : in) / 2;
    double bytes = (own + theirs) * (double)esize, cache = (double)cost->cache_bytes;
    return cache > 0 && bytes > 0 ? sim_sooner(1, USABLE * cache / bytes) : 1;
}

gyre_status_t sim_run_host(const coll_cost_t *cost, const coll_args_t *args, coll_algo_t algo, size_t esize,
                           coll_memory_t memory, double in_cache, int calls, coll_simulation_t *out)
{
    if (cost->cores < 1)
        return gyre_fail(GYRE_ERR_INVALID, "simulation: a host must have 1 core or more, not %d",
                         cost->cores);
    sim_t s = {.cost = cost, .esize = esize, .memory = memory, .in_cache = in_cache, .calls = calls};
    s.crowded = args->n > cost->cores;
    s.ring_most =
        base_min_size(coll_cost_ring_best(cost, cost->cma_call),
                      comm_segment_ring_would_hold((size_t)base_setting_int(SET_SHM_BUDGET), args->n, 0));
    s.fresh_input = args->in_place &&
                    (args->op == COLL_ALL_REDUCE || args->op == COLL_ALL_TO_ALL || coll_op_scans(args->op));
    return simulate(&s, args, algo, out);
}

gyre_status_t coll_simulate_host(const coll_cost_t *cost, const coll_args_t *args, coll_algo_t algo,
                                 size_t esize, coll_memory_t memory, coll_simulation_t *out)
{
    return sim_run_host(cost, args, algo, esize, memory, sim_cached_part(cost, args, esize), 1, out);
}

double coll_bus_factor(coll_op_t op, int n)
{
    double part = (n - 1.0) / n;
    switch (op) {
    case COLL_ALL_REDUCE:
        return 2 * part;
    case COLL_REDUCE_SCATTER:
    case COLL_ALL_GATHER:
    case COLL_GATHER:
    case COLL_SCATTER:
    case COLL_ALL_TO_ALL:
        return part;
    default:
        return 1;
    }
}
