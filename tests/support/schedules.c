/* SPDX-License-Identifier: Apache-2.0 */
/* tests/support/schedules.c: see the header. */
#include <malloc.h>
#include <stdio.h>

#include "collectives/schedules/algorithms.h"
#include "tests/support/schedules.h"

unsigned sched_random(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static int host_of(const sched_case_t *c, int rank)
{
    switch (c->hosts) {
    case HOSTS_BLOCKS:
        return rank / 4;
    case HOSTS_ROUND_ROBIN:
        return rank % 3;
    case HOSTS_UNEVEN: /* 1, 2, 3, ... ranks */
        for (int host = 0, end = 1;; host++, end += host + 1)
            if (rank < end)
                return host;
    case HOSTS_SCATTERED: {
        unsigned state = c->seed + (unsigned)rank * 77u + 5u;
        sched_random(&state);
        return (int)(sched_random(&state) % 5u) * 3 + 1; /* numbers need not be dense */
    }
    case HOSTS_EACH:
        return c->n - rank;
    default:
        return 7;
    }
}

/* order: [n] */
static void put_in_order(const sched_case_t *c, const int *host, int *order)
{
    unsigned state = c->seed * 7u + 11u;
    int at = 0;
    for (int r = 0; r < c->n; r++)
        order[r] = c->order == ORDER_BACKWARDS ? c->n - 1 - r : r;
    for (int i = c->n - 1; c->order == ORDER_RANDOM && i > 0; i--) {
        const int k = (int)(sched_random(&state) % (unsigned)(i + 1)), other = order[k];
        order[k] = order[i];
        order[i] = other;
    }
    for (int r = 0; c->order == ORDER_HOSTS && r < c->n; r++) {
        int first = 0;
        while (host[first] != host[r])
            first++;
        for (int s = r; first == r && s < c->n; s++)
            if (host[s] == host[r])
                order[at++] = s;
    }
}

/* Places blocks one after the other, or in a random order with gaps. */
static void place(const size_t *counts, size_t *displs, int n, int ragged, unsigned *seed)
{
    size_t at = 0;
    int step = ragged ? (int)(sched_random(seed) % (unsigned)n) : 0;
    for (int i = 0; i < n; i++) {
        int r = ragged ? (n - 1 - i + step) % n : i;
        displs[r] = at + (ragged ? sched_random(seed) % 3u : 0);
        at = displs[r] + counts[r];
    }
}

static size_t block_count(const sched_case_t *c, int from, int to)
{
    if (!c->ragged)
        return c->count;
    unsigned state = c->seed * 31u + (unsigned)from * 1009u + (unsigned)to * 9176u + 3u;
    sched_random(&state);
    unsigned pick = sched_random(&state);
    return pick % 4 == 0 ? 0 : pick / 4 % (2 * c->count + 2);
}

static int in_place(const sched_case_t *c, int rank)
{
    return c->place == PLACE_IN || (c->place == PLACE_MIXED && rank % 3 != 1);
}

static void fill_blocks(sched_world_t *w, const sched_case_t *c, coll_args_t *a)
{
    size_t n = (size_t)c->n;
    size_t *arrays = base_arena_alloc(&w->arena, 4 * n, sizeof *arrays);
    size_t *counts = arrays, *displs = arrays + n, *rcounts = arrays + 2 * n, *rdispls = arrays + 3 * n;
    unsigned seed = c->seed + (unsigned)a->rank * (c->op != COLL_REDUCE_SCATTER);
    for (int r = 0; r < c->n; r++) {
        counts[r] = block_count(c, c->op == COLL_ALL_TO_ALL ? a->rank : 0, r);
        rcounts[r] = block_count(c, r, a->rank);
    }
    place(counts, displs, c->n, c->ragged, &seed);
    place(rcounts, rdispls, c->n, c->ragged, &seed);
    if ((c->op == COLL_GATHER || c->op == COLL_SCATTER) && c->ragged && a->rank != c->root)
        for (int r = 0; r < c->n; r++)
            counts[r] = r == a->rank ? counts[r] : 0;
    a->counts = counts;
    a->displs = displs;
    a->rcounts = rcounts;
    a->rdispls = rdispls;
}

static void fill_args(sched_world_t *w, const sched_case_t *c, int rank, const int *host, const int *order)
{
    coll_args_t *a = &w->args[rank];
    *a = (coll_args_t){.op = c->op,
                       .n = c->n,
                       .rank = rank,
                       .root = c->root,
                       .count = c->count,
                       .uniform = !c->ragged,
                       .in_place = in_place(c, rank),
                       .fast_order = c->fast,
                       .exact = coll_algo_is(c->algo, COLL_AT_ONCE),
                       .chunk = c->chunk,
                       .one_shot = c->one_shot,
                       .place = 6,
                       .host = host,
                       .order = c->order == ORDER_RANK ? NULL : order};
    if (c->op == COLL_REDUCE_SCATTER || c->op == COLL_ALL_GATHER || c->op == COLL_GATHER ||
        c->op == COLL_SCATTER || c->op == COLL_ALL_TO_ALL)
        fill_blocks(w, c, a);
}

int sched_case_served(const sched_case_t *c)
{
    int host = 0;
    coll_args_t a = {.op = c->op,
                     .n = c->n,
                     .uniform = !c->ragged,
                     .in_place = c->place != PLACE_OUT,
                     .place = 6,
                     .host = &host};
    return coll_algo_serves(c->algo, c->op, &a);
}

/* Thousands of worlds are made and freed: memory that goes back to the kernel each time costs more. */
static void keep_memory(void)
{
    static int kept;
    if (!kept) {
        mallopt(M_TRIM_THRESHOLD, 256 << 20);
        mallopt(M_MMAP_THRESHOLD, 32 << 20);
    }
    kept = 1;
}

int sched_world_build(sched_world_t *w, const sched_case_t *c, gyre_status_t *status)
{
    keep_memory();
    *w = (sched_world_t){.n = c->n};
    w->args = base_arena_alloc(&w->arena, (size_t)c->n, sizeof *w->args);
    w->schedules = base_arena_alloc(&w->arena, (size_t)c->n, sizeof *w->schedules);
    int *host = base_arena_alloc(&w->arena, (size_t)c->n, sizeof *host);
    int *order = base_arena_alloc(&w->arena, (size_t)c->n, sizeof *order);
    for (int r = 0; r < c->n; r++)
        host[r] = host_of(c, r);
    put_in_order(c, host, order);
    for (int r = 0; r < c->n; r++) {
        fill_args(w, c, r, host, order);
        *status = coll_schedule_build(c->algo, &w->args[r], &w->schedules[r]);
        if (*status != GYRE_OK)
            return 0;
    }
    return 1;
}

void sched_world_free(sched_world_t *w)
{
    for (int r = 0; r < w->n; r++)
        coll_schedule_free(&w->schedules[r]);
    base_arena_free(&w->arena);
}

void sched_case_print(const sched_case_t *c, char *text, size_t bytes)
{
    snprintf(text, bytes, "%s %s n %d root %d count %zu%s place %d%s chunk %zu%s hosts %d order %d seed %u",
             coll_algo_name(c->algo), coll_op_name(c->op), c->n, c->root, c->count,
             c->ragged ? " ragged" : "", (int)c->place, c->fast ? " fast" : "", c->chunk,
             c->one_shot ? " one_shot" : "", (int)c->hosts, (int)c->order, c->seed);
}
