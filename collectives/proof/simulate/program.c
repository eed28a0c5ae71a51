/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/proof/simulate/program.c: turns the schedules of all ranks into programs: 32 bytes a step,
 * peers relative to the rank, and each distinct one kept once. The 4,096 ranks of a ring share one
 * program, so that what is 1.3 GB of schedules fits a cache.
 *
 * Dependencies become slots: a step that others wait for by name leaves the time of its completion in its
 * slot. In schedules of one channel a slot serves again after the last step that waits for it has started. */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/hash.h"
#include "collectives/proof/simulate/internal.h"

/* Working memory for one schedule, used again for the next. */
typedef struct {
    uint32_t capacity;   /* steps */
    uint32_t *order;     /* the program's step of each step */
    uint32_t *last_user; /* last step that waits for this one; SIM_NONE: none */
    uint32_t *slot;
    uint32_t *free_slots;
    sim_step_t *steps;
    uint32_t *deps;
    sim_peer_t *peers; /* in order of first use, then sorted */
    uint32_t *peer_of; /* by step */
    uint32_t *table;   /* hash of peers: index + 1 */
    uint32_t dep_capacity, table_size;
} workspace_t;

static void workspace_free(workspace_t *w)
{
    free(w->order);
    free(w->last_user);
    free(w->slot);
    free(w->free_slots);
    free(w->steps);
    free(w->deps);
    free(w->peers);
    free(w->peer_of);
    free(w->table);
    *w = (workspace_t){0};
}

static int workspace_grow(workspace_t *w, const coll_schedule_t *s)
{
    if (s->nsteps <= w->capacity && s->ndeps <= w->dep_capacity && w->table)
        return 1;
    workspace_free(w);
    size_t n = base_max_size(s->nsteps, 64), size = 64;
    while (size < 2 * n)
        size *= 2;
    w->order = calloc(n, sizeof *w->order);
    w->last_user = calloc(n, sizeof *w->last_user);
    w->slot = calloc(n, sizeof *w->slot);
    w->free_slots = calloc(n, sizeof *w->free_slots);
    w->steps = calloc(n, sizeof *w->steps);
    w->deps = calloc(base_max_size(s->ndeps, 64), sizeof *w->deps);
    w->peers = calloc(n, sizeof *w->peers);
    w->peer_of = calloc(n, sizeof *w->peer_of);
    w->table = calloc(size, sizeof *w->table);
    w->capacity = (uint32_t)n;
    w->dep_capacity = (uint32_t)base_max_size(s->ndeps, 64);
    w->table_size = (uint32_t)size;
    return w->order && w->last_user && w->slot && w->free_slots && w->steps && w->deps && w->peers &&
           w->peer_of && w->table;
}

/* Gives slots to the steps that others depend on. Returns how many there are. */
static uint32_t assign_slots(workspace_t *w, const coll_schedule_t *s)
{
    uint32_t slots = 0, nfree = 0;
    for (uint32_t i = 0; i < s->nsteps; i++)
        w->last_user[i] = w->slot[i] = SIM_NONE;
    for (uint32_t i = 0; i < s->nsteps; i++)
        for (uint32_t k = 0; k < s->steps[i].ndep; k++)
            w->last_user[s->deps[s->steps[i].dep + k]] = i;
    for (uint32_t i = 0; i < s->nsteps; i++) {
        for (uint32_t k = 0; s->channels < 2 && k < s->steps[i].ndep; k++) {
            uint32_t on = s->deps[s->steps[i].dep + k];
            if (w->last_user[on] == i)
                w->free_slots[nfree++] = w->slot[on];
        }
        if (w->last_user[i] != SIM_NONE)
            w->slot[i] = nfree ? w->free_slots[--nfree] : slots++;
    }
    return slots;
}

static uint32_t peer_index(workspace_t *w, uint32_t *npeers, sim_peer_t peer)
{
    uint32_t mask = w->table_size - 1;
    uint32_t at = ((uint32_t)peer.ahead * 2u + (uint32_t)peer.channel) * 2654435761u;
    at = (at ^ at >> 15) & mask;
    while (w->table[at]) {
        sim_peer_t known = w->peers[w->table[at] - 1];
        if (known.ahead == peer.ahead && known.channel == peer.channel)
            return w->table[at] - 1;
        at = (at + 1) & mask;
    }
    w->peers[*npeers] = peer;
    w->table[at] = ++*npeers;
    return *npeers - 1;
}

static int peer_order(const void *x, const void *y)
{
    const sim_peer_t *a = x, *b = y;
    if (a->ahead != b->ahead)
        return a->ahead < b->ahead ? -1 : 1;
    return a->channel < b->channel ? -1 : a->channel > b->channel;
}

static uint32_t find_peer(const sim_peer_t *peers, uint32_t n, sim_peer_t peer)
{
    const sim_peer_t *found = n ? bsearch(&peer, peers, n, sizeof peer, peer_order) : NULL;
    return found ? (uint32_t)(found - peers) : SIM_NONE;
}

/* Lists the peers of all steps of one kind, sorted, into *list, and notes each step's index in peer_of. */
static int list_peers(workspace_t *w, base_arena_t *arena, const coll_args_t *args, const coll_schedule_t *s,
                      uint8_t kind, sim_peer_t **list, uint32_t *count)
{
    uint32_t n = 0;
    memset(w->table, 0, w->table_size * sizeof *w->table);
    for (uint32_t i = 0; i < s->nsteps; i++) {
        if (s->steps[i].kind != kind)
            continue;
        int ahead = s->steps[i].peer - args->rank;
        w->peer_of[i] =
            peer_index(w, &n, (sim_peer_t){ahead < 0 ? ahead + args->n : ahead, s->steps[i].channel});
    }
    *count = n;
    *list = base_arena_alloc(arena, n ? n : 1, sizeof **list);
    if (!*list)
        return 0;
    memcpy(*list, w->peers, n * sizeof **list);
    qsort(*list, n, sizeof **list, peer_order);
    for (uint32_t i = 0; i < s->nsteps; i++)
        if (s->steps[i].kind == kind)
            w->peer_of[i] = find_peer(*list, n, w->peers[w->peer_of[i]]);
    return 1;
}

/* Fills w->steps and w->deps, channel by channel. */
static void fill_steps(workspace_t *w, const coll_schedule_t *s, int n, size_t esize, int local,
                       sim_program_t *p)
{
    uint32_t at = 0;
    for (uint32_t c = 0; c < COLL_MAX_CHANNELS; c++) {
        p->first[c] = at;
        for (uint32_t i = 0; i < s->nsteps; i++)
            if (s->steps[i].channel == c)
                w->order[i] = at++;
    }
    p->first[COLL_MAX_CHANNELS] = at;
    for (uint32_t i = 0; i < s->nsteps; i++) {
        const coll_step_t *from = &s->steps[i];
        sim_step_t *to = &w->steps[w->order[i]];
        memset(to, 0, sizeof *to);
        to->bytes = (uint64_t)from->count * esize;
        to->arg = from->kind <= COLL_STEP_RECV ? w->peer_of[i] : from->nsrc;
        if (from->kind == COLL_STEP_JOINT)
            to->arg = from->peer == COLL_FROM_ALL ? (uint32_t)n : 1;
        to->kind = from->kind;
        to->buf = local ? (uint8_t)from->at.buf : 0;
        to->stage = (from->flags & COLL_STAGE) != 0;
        to->slot = w->slot[i];
        to->dep = p->ndeps;
        to->ndep = (uint16_t)from->ndep;
        for (uint32_t k = 0; k < from->ndep; k++)
            w->deps[p->ndeps++] = w->slot[s->deps[from->dep + k]];
        p->sends += from->kind == COLL_STEP_SEND;
    }
}

static int same_program(const sim_program_t *a, const sim_program_t *b, const workspace_t *w)
{
    return a->hash == b->hash && a->nsteps == b->nsteps && a->ndeps == b->ndeps && a->nout == b->nout &&
           a->nin == b->nin && !memcmp(a->first, b->first, sizeof a->first) &&
           !memcmp(a->steps, w->steps, a->nsteps * sizeof *w->steps) &&
           !memcmp(a->deps, w->deps, a->ndeps * sizeof *w->deps) &&
           !memcmp(a->out, b->out, a->nout * sizeof *a->out) && !memcmp(a->in, b->in, a->nin * sizeof *a->in);
}

/* Views of one host, in the order of the program's steps. */
static int add_views(sim_programs_t *ps, workspace_t *w, const coll_schedule_t *s, size_t esize,
                     sim_program_t *p)
{
    base_arena_t arena = {0};
    sim_local_t *by_step = base_arena_alloc(&arena, s->nsteps + 1, sizeof *by_step);
    p->local = base_arena_alloc(&ps->arena, s->nsteps + 1, sizeof *p->local);
    if (by_step && p->local)
        p->nviews =
            sim_find_views(s, COMM_SHM_EAGER_MOST / esize, &ps->arena, by_step, &p->viewed, &p->nviewed);
    for (uint32_t i = 0; by_step && p->local && i < s->nsteps; i++)
        p->local[w->order[i]] = by_step[i];
    int done = by_step && p->local && p->nviews != SIM_NONE;
    base_arena_free(&arena);
    return done;
}

/* The program of one schedule: a known one, or a new one. NULL: no memory. */
static sim_program_t *program_of(sim_programs_t *ps, workspace_t *w, const coll_args_t *args,
                                 const coll_schedule_t *s, size_t esize, int local)
{
    base_arena_t scratch = {0};
    sim_program_t p = {.nsteps = s->nsteps};
    sim_program_t *found = NULL;
    if (!workspace_grow(w, s) || !list_peers(w, &scratch, args, s, COLL_STEP_SEND, &p.out, &p.nout) ||
        !list_peers(w, &scratch, args, s, COLL_STEP_RECV, &p.in, &p.nin))
        goto done;
    p.nslots = assign_slots(w, s);
    fill_steps(w, s, args->n, esize, local, &p);
    p.hash = base_hash64(w->steps, p.nsteps * sizeof *w->steps, p.nout);
    sim_program_t **chain = &ps->chain[p.hash % SIM_CHAINS];
    for (found = *chain; found && (local || !same_program(found, &p, w));)
        found = found->next;
    if (found)
        goto done;
    sim_program_t *made = base_arena_alloc(&ps->arena, 1, sizeof *made);
    sim_step_t *steps = base_arena_alloc(&ps->arena, p.nsteps + 1, sizeof *steps);
    uint32_t *deps = base_arena_alloc(&ps->arena, p.ndeps + 1, sizeof *deps);
    sim_peer_t *peers = base_arena_alloc(&ps->arena, (size_t)p.nout + p.nin + 1, sizeof *peers);
    if (!made || !steps || !deps || !peers || (local && !add_views(ps, w, s, esize, &p)))
        goto done;
    memcpy(steps, w->steps, p.nsteps * sizeof *steps);
    memcpy(deps, w->deps, p.ndeps * sizeof *deps);
    memcpy(peers, p.out, p.nout * sizeof *peers);
    memcpy(peers + p.nout, p.in, p.nin * sizeof *peers);
    *made = p;
    made->steps = steps;
    made->deps = deps;
    made->out = peers;
    made->in = peers + p.nout;
    made->next = *chain;
    *chain = found = made;
done:
    base_arena_free(&scratch);
    return found;
}

/* Numbers the lanes, and finds those that messages come on. */
static gyre_status_t connect_lanes(sim_programs_t *ps, const coll_args_t *args)
{
    size_t lanes = 0;
    for (int r = 0; r < ps->n; r++) {
        ps->first_lane[r] = (uint32_t)lanes;
        lanes += ps->of[r]->nout;
        ps->messages += ps->of[r]->sends;
        if (lanes >= SIM_NONE / 16)
            return gyre_fail(GYRE_ERR_NO_MEMORY,
                             "%d ranks talk to so many others that their lanes do not fit the memory", ps->n);
    }
    ps->nlanes = (uint32_t)lanes;
    for (int r = 0; r < ps->n; r++) {
        const sim_program_t *p = ps->of[r];
        ps->in[r] = base_arena_alloc(&ps->arena, p->nin ? p->nin : 1, sizeof *ps->in[r]);
        if (!ps->in[r])
            return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to simulate %d ranks", ps->n);
        for (uint32_t k = 0; k < p->nin; k++) {
            int src = (int)(((long)r + p->in[k].ahead) % ps->n);
            sim_peer_t back = {(ps->n - p->in[k].ahead) % ps->n, p->in[k].channel};
            uint32_t at = find_peer(ps->of[src]->out, ps->of[src]->nout, back);
            if (at == SIM_NONE)
                return gyre_fail(GYRE_ERR_INTERNAL,
                                 "the schedule of %s: rank %d waits for rank %d, which never sends to it",
                                 coll_op_name(args->op), r, src);
            ps->in[r][k] = ps->first_lane[src] + at;
        }
    }
    return GYRE_OK;
}

gyre_status_t sim_programs_build(const coll_args_t *args, coll_algo_t algo, size_t esize, int local,
                                 sim_programs_t *out)
{
    sim_programs_t ps = {.n = args->n};
    workspace_t w = {0};
    size_t n = (size_t)args->n;
    ps.of = base_arena_alloc(&ps.arena, n, sizeof(sim_program_t *));
    ps.first_lane = base_arena_alloc(&ps.arena, n, sizeof *ps.first_lane);
    ps.in = base_arena_alloc(&ps.arena, n, sizeof(uint32_t *));
    gyre_status_t st = GYRE_OK;
    if (!ps.of || !ps.first_lane || !ps.in)
        st = gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to simulate %d ranks", args->n);
    for (int r = 0; st == GYRE_OK && r < args->n; r++) {
        coll_args_t a = *args;
        coll_schedule_t schedule;
        a.rank = r;
        st = coll_schedule_build(algo, &a, &schedule);
        if (st != GYRE_OK)
            break;
        ps.of[r] = program_of(&ps, &w, &a, &schedule, esize, local);
        coll_schedule_free(&schedule);
        if (!ps.of[r])
            st = gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the steps of %d ranks", args->n);
    }
    if (st == GYRE_OK)
        st = connect_lanes(&ps, args);
    workspace_free(&w);
    if (st != GYRE_OK)
        sim_programs_free(&ps);
    else
        *out = ps;
    return st;
}

void sim_programs_free(sim_programs_t *programs)
{
    base_arena_free(&programs->arena);
    *programs = (sim_programs_t){0};
}
