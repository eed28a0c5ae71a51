/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/schedules/builder.c: puts schedules together for the generators.
 *
 * Steps, sources and dependencies grow in malloc'd arrays. coll_builder_finish finds the dependencies that
 * memory reuse demands (hazards.c), and moves everything into an arena of exactly the right size. A failed
 * allocation is remembered and makes every later call do nothing, so generators need not check. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/grow.h"
#include "collectives/schedules/builder.h"
#include "collectives/schedules/generator.h"

coll_builder_t *coll_builder_new(const coll_args_t *args)
{
    coll_builder_t *b = calloc(1, sizeof *b);
    if (b)
        b->args = *args;
    return b;
}

/* Makes room for `more` elements in an array of `count`, which 32 bits number; 0 if there is no memory. */
static int grow(coll_builder_t *b, void *array, size_t *capacity, size_t count, size_t more, size_t size)
{
    if (!b->failed && more < UINT32_MAX - count && base_grow(array, capacity, count, more, size))
        return 1;
    b->failed = 1;
    return 0;
}

static uint32_t add_step(coll_builder_t *b, coll_step_t step)
{
    if (!grow(b, &b->steps, &b->step_capacity, b->nsteps, 1, sizeof *b->steps))
        return UINT32_MAX;
    if (step.channel >= b->channels)
        b->channels = step.channel + 1u;
    b->steps[b->nsteps] = step;
    return b->nsteps++;
}

static uint32_t add_message(coll_builder_t *b, coll_step_kind_t kind, int channel, int peer, coll_ref_t at,
                            size_t count)
{
    return add_step(
        b, (coll_step_t){
               .kind = (uint8_t)kind, .channel = (uint8_t)channel, .peer = peer, .at = at, .count = count});
}

uint32_t coll_add_send(coll_builder_t *b, int channel, int peer, coll_ref_t from, size_t count)
{
    return count ? add_message(b, COLL_STEP_SEND, channel, peer, from, count) : UINT32_MAX;
}

uint32_t coll_add_recv(coll_builder_t *b, int channel, int peer, coll_ref_t to, size_t count)
{
    return count ? add_message(b, COLL_STEP_RECV, channel, peer, to, count) : UINT32_MAX;
}

void coll_add_sync_send(coll_builder_t *b, int peer)
{
    add_message(b, COLL_STEP_SEND, 0, peer, (coll_ref_t){0, COLL_TMP}, 0);
}

void coll_add_sync_recv(coll_builder_t *b, int peer)
{
    add_message(b, COLL_STEP_RECV, 0, peer, (coll_ref_t){0, COLL_TMP}, 0);
}

static uint32_t add_local(coll_builder_t *b, coll_step_kind_t kind, int channel, coll_ref_t to,
                          const coll_ref_t *from, uint32_t nfrom, size_t count, int flags)
{
    if (!count || !grow(b, &b->sources, &b->source_capacity, b->nsources, nfrom, sizeof *b->sources))
        return UINT32_MAX;
    memcpy(b->sources + b->nsources, from, nfrom * sizeof *from);
    uint32_t first = b->nsources;
    b->nsources += nfrom;
    return add_step(b, (coll_step_t){.kind = (uint8_t)kind,
                                     .channel = (uint8_t)channel,
                                     .flags = (uint16_t)flags,
                                     .peer = -1,
                                     .at = to,
                                     .count = count,
                                     .src = first,
                                     .nsrc = nfrom});
}

uint32_t coll_add_copy(coll_builder_t *b, int channel, coll_ref_t to, coll_ref_t from, size_t count,
                       int flags)
{
    return add_local(b, COLL_STEP_COPY, channel, to, &from, 1, count, flags);
}

uint32_t coll_add_reduce(coll_builder_t *b, int channel, coll_ref_t to, const coll_ref_t *from,
                         uint32_t nfrom, size_t count, int flags)
{
    return add_local(b, COLL_STEP_REDUCE, channel, to, from, nfrom, count, flags);
}

uint32_t coll_add_joint(coll_builder_t *b, int peer, coll_ref_t to, size_t count, int flags)
{
    return count ? add_step(b, (coll_step_t){.kind = COLL_STEP_JOINT,
                                             .flags = (uint16_t)flags,
                                             .peer = peer,
                                             .at = to,
                                             .count = count})
                 : UINT32_MAX;
}

int coll_add_edge(coll_builder_t *b, uint32_t step, uint32_t on)
{
    if (!grow(b, &b->edges, &b->edge_capacity, b->nedges, 1, sizeof *b->edges))
        return 0;
    b->edges[b->nedges++] = (coll_edge_t){step, on};
    return 1;
}

void coll_add_dep(coll_builder_t *b, uint32_t step, uint32_t on)
{
    if (step != UINT32_MAX && on != UINT32_MAX)
        coll_add_edge(b, step, on);
}

coll_ref_t coll_tmp(coll_builder_t *b, size_t count)
{
    coll_ref_t at = {b->tmp_count, COLL_TMP};
    if (count > SIZE_MAX / 2 - b->tmp_count)
        b->failed = 1;
    else
        b->tmp_count += base_round_up(count, 64);
    return at;
}

void *coll_scratch(coll_builder_t *b, size_t count, size_t size)
{
    void *memory = b->failed ? NULL : base_arena_alloc(&b->scratch, count ? count : 1, size);
    if (!memory)
        b->failed = 1;
    return memory;
}

static int edge_order(const void *a, const void *b)
{
    const coll_edge_t *x = a, *y = b;
    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    return x->on < y->on ? -1 : x->on > y->on;
}

/* Sorts the edges by step, drops doubles and writes them as the steps' dependency lists. */
static void place_deps(coll_builder_t *b, uint32_t *deps, uint32_t *ndeps)
{
    uint32_t n = 0;
    if (b->nedges)
        qsort(b->edges, b->nedges, sizeof *b->edges, edge_order);
    for (uint32_t i = 0; i < b->nedges; i++) {
        if (i && edge_order(&b->edges[i - 1], &b->edges[i]) == 0)
            continue;
        coll_step_t *step = &b->steps[b->edges[i].step];
        if (step->ndep++ == 0)
            step->dep = n;
        deps[n++] = b->edges[i].on;
    }
    *ndeps = n;
}

gyre_status_t coll_builder_finish(coll_builder_t *b, coll_algo_t algo, coll_schedule_t *out)
{
    coll_schedule_t made = {.algo = algo,
                            .nsteps = b->nsteps,
                            .nsources = b->nsources,
                            .channels = b->channels,
                            .tmp_count = b->tmp_count};
    if (!b->failed && coll_add_hazard_edges(b)) {
        made.steps = base_arena_alloc(&made.arena, b->nsteps ? b->nsteps : 1, sizeof *made.steps);
        made.sources = base_arena_alloc(&made.arena, b->nsources ? b->nsources : 1, sizeof *made.sources);
        made.deps = base_arena_alloc(&made.arena, b->nedges ? b->nedges : 1, sizeof *made.deps);
    }
    int whole = made.steps && made.sources && made.deps;
    if (whole) {
        place_deps(b, made.deps, &made.ndeps);
        if (b->nsteps)
            memcpy(made.steps, b->steps, b->nsteps * sizeof *b->steps);
        if (b->nsources)
            memcpy(made.sources, b->sources, b->nsources * sizeof *b->sources);
        *out = made;
    } else {
        base_arena_free(&made.arena);
    }
    coll_args_t args = b->args;
    base_arena_free(&b->scratch);
    free(b->steps);
    free(b->sources);
    free(b->edges);
    free(b);
    if (whole)
        return GYRE_OK;
    return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the %s schedule of %s over %d ranks",
                     coll_algo_name(algo), coll_op_name(args.op), args.n);
}

void coll_schedule_free(coll_schedule_t *schedule)
{
    base_arena_free(&schedule->arena);
    *schedule = (coll_schedule_t){0};
}

/* Text under construction; `at` counts what would have been written, like snprintf. */
typedef struct {
    char *text;
    size_t bytes, at;
} printer_t;

__attribute__((format(printf, 2, 3))) static void print(printer_t *p, const char *format, ...)
{
    size_t used = base_min_size(p->at, p->bytes);
    va_list list;
    va_start(list, format);
    int n = vsnprintf(p->bytes ? p->text + used : NULL, p->bytes - used, format, list);
    va_end(list);
    p->at += n > 0 ? (size_t)n : 0;
}

static void print_ref(printer_t *p, const char *before, coll_ref_t ref)
{
    static const char *const names[] = {"in", "out", "tmp"};
    print(p, "%s%s+%zu", before, ref.buf <= COLL_TMP ? names[ref.buf] : "?", ref.offset);
}

int coll_step_print(const coll_schedule_t *schedule, uint32_t step, char *text, size_t bytes)
{
    static const char *const kinds[] = {"send", "recv", "copy", "reduce", "joint"};
    const coll_step_t *s = &schedule->steps[step];
    printer_t p = {text, bytes, 0};
    print(&p, "%u: channel %u %s %zu%s", step, s->channel,
          kinds[s->kind <= COLL_STEP_JOINT ? s->kind : COLL_STEP_JOINT], s->count,
          s->flags & COLL_FINAL ? " final" : "");
    if (s->kind == COLL_STEP_SEND) {
        print_ref(&p, " from ", s->at);
        print(&p, " to rank %d", s->peer);
    } else {
        print_ref(&p, " into ", s->at);
        if (s->kind == COLL_STEP_RECV)
            print(&p, " of rank %d", s->peer);
        if (s->kind == COLL_STEP_JOINT)
            print(&p, s->peer == COLL_FROM_ALL ? " of all ranks" : " of rank %d", s->peer);
    }
    for (uint32_t i = 0; i < s->nsrc; i++)
        print_ref(&p, i ? ", " : " from ", schedule->sources[s->src + i]);
    for (uint32_t i = 0; i < s->ndep; i++)
        print(&p, "%s%u", i ? ", " : ", after ", schedule->deps[s->dep + i]);
    return (int)p.at;
}
