/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/run/compile.c: turns a schedule (elements, buffers by name) into a segment that the executor
 * can run (bytes, steps sorted by channel, views found).
 *
 * A *view* is a received range of TMP that need not be copied. The condition: only later COPY and REDUCE
 * steps of the RECV's own channel read the range, before anything overwrites it. These steps can then read
 * the sender's memory, where the transport allows that. The view is given back to the sender after the last
 * of these steps. */
#include "collectives/run/plan.h"

#include "base/error.h"

static int overlap(coll_ref_t a, size_t a_count, coll_ref_t b, size_t b_count)
{
    return a.buf == b.buf && a.offset < b.offset + b_count && b.offset < a.offset + a_count;
}

static int contains(coll_ref_t a, size_t a_count, coll_ref_t b, size_t b_count)
{
    return a.buf == b.buf && a.offset <= b.offset && b.offset + b_count <= a.offset + a_count;
}

/* The last step that reads what RECV `recv` wrote, if all its readers may read a view; UINT32_MAX if not. */
static uint32_t view_last_reader(const coll_schedule_t *s, uint32_t recv)
{
    const coll_step_t *r = &s->steps[recv];
    if (r->at.buf != COLL_TMP || r->count == 0)
        return UINT32_MAX;
    uint32_t last = UINT32_MAX;
    for (uint32_t i = 0; i < s->nsteps; i++) {
        const coll_step_t *t = &s->steps[i];
        if (i == recv || (i < recv && t->channel == r->channel))
            continue;
        int foreign = t->channel != r->channel;
        if (t->kind == COLL_STEP_SEND) {
            if (overlap(t->at, t->count, r->at, r->count))
                return UINT32_MAX;
            continue;
        }
        int reads = 0, whole = 1;
        for (uint32_t k = 0; t->kind != COLL_STEP_RECV && k < t->nsrc; k++)
            if (overlap(s->sources[t->src + k], t->count, r->at, r->count)) {
                reads = 1;
                whole = whole && contains(r->at, r->count, s->sources[t->src + k], t->count);
            }
        int writes = overlap(t->at, t->count, r->at, r->count);
        if (foreign && (reads || writes))
            return UINT32_MAX;
        if (reads && (!whole || writes))
            return UINT32_MAX;
        if (reads)
            last = i;
        if (writes) /* new contents from here on: later readers read those */
            break;
    }
    return last;
}

static void link_sources(const coll_schedule_t *s, size_t esize, coll_segment_t *g)
{
    for (uint32_t i = 0; i < s->nsources; i++)
        g->sources[i] = (coll_psource_t){
            .offset = s->sources[i].offset * esize, .buf = (uint8_t)s->sources[i].buf, .recv = UINT32_MAX};
}

/* Marks the viewable RECVs. Writes to their readers where to look and what to give back. `last_of` is
 * scratch. */
static void find_views(const coll_schedule_t *s, size_t esize, coll_segment_t *g, uint32_t *last_of)
{
    for (uint32_t i = 0; i < s->nsteps; i++) {
        last_of[i] = s->steps[i].kind == COLL_STEP_RECV ? view_last_reader(s, i) : UINT32_MAX;
        if (last_of[i] == UINT32_MAX)
            continue;
        const coll_step_t *r = &s->steps[i];
        g->steps[i].may_view = 1;
        g->steps[last_of[i]].nrelease++;
        for (uint32_t t = i + 1; t <= last_of[i]; t++) {
            const coll_step_t *reader = &s->steps[t];
            if (reader->channel != r->channel || reader->kind < COLL_STEP_COPY)
                continue;
            for (uint32_t k = reader->src; k < reader->src + reader->nsrc; k++)
                if (overlap(s->sources[k], reader->count, r->at, r->count)) {
                    g->sources[k].recv = i;
                    g->sources[k].recv_offset = (s->sources[k].offset - r->at.offset) * esize;
                }
        }
    }
    uint32_t at = 0;
    for (uint32_t i = 0; i < s->nsteps; i++) {
        g->steps[i].release = at;
        at += g->steps[i].nrelease;
        g->steps[i].nrelease = 0;
    }
    for (uint32_t i = 0; i < s->nsteps; i++)
        if (last_of[i] != UINT32_MAX) {
            coll_pstep_t *reader = &g->steps[last_of[i]];
            g->releases[reader->release + reader->nrelease++] = i;
        }
}

/* The offset in IN of what `stage`, the last COLL_STAGE copy before it (NULL: none), brought to where SEND f
 * reads; SIZE_MAX: it reads something else. */
static size_t staged_from(const coll_schedule_t *s, const coll_step_t *stage, const coll_step_t *f,
                          size_t esize)
{
    const int reads_it =
        stage && f->kind == COLL_STEP_SEND && f->at.buf == COLL_TMP && f->at.offset == stage->at.offset;
    return reads_it ? s->sources[stage->src].offset * esize : SIZE_MAX;
}

gyre_status_t coll_segment_compile(coll_schedule_t *schedule, size_t esize, coll_segment_t *out)
{
    for (uint32_t i = 0; i < schedule->nsteps; i++)
        if (schedule->steps[i].nsrc > COLL_MAX_SOURCES)
            return gyre_fail(GYRE_ERR_UNSUPPORTED,
                             "a step of %s adds %u sources at once, more than %d: choose another algorithm "
                             "(GYRE_ALGO)",
                             coll_algo_name(schedule->algo), schedule->steps[i].nsrc, COLL_MAX_SOURCES);
    coll_segment_t g = {.schedule = *schedule, .tmp_bytes = schedule->tmp_count * esize};
    const coll_schedule_t *s = &g.schedule;
    size_t n = s->nsteps;
    g.steps = base_arena_alloc(&g.arena, n + 1, sizeof *g.steps);
    g.sources = base_arena_alloc(&g.arena, s->nsources + 1, sizeof *g.sources);
    g.releases = base_arena_alloc(&g.arena, n + 1, sizeof *g.releases);
    g.open_sends = base_arena_alloc(&g.arena, n + 1, sizeof *g.open_sends);
    g.order = base_arena_alloc(&g.arena, n + 1, sizeof *g.order);
    uint32_t *last_of = base_arena_alloc(&g.arena, n + 1, sizeof *last_of);
    if (!g.steps || !g.sources || !g.releases || !g.open_sends || !g.order || !last_of) {
        base_arena_free(&g.arena);
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a plan of %zu steps", n);
    }
    uint32_t at = 0;
    for (int c = 0; c < COLL_MAX_CHANNELS; c++) {
        g.first[c] = at;
        for (uint32_t i = 0; i < n; i++)
            if (s->steps[i].channel == c)
                g.order[at++] = i;
        g.last[c] = at;
    }
    const coll_step_t *stage = NULL;
    for (uint32_t i = 0; i < n; i++) {
        const coll_step_t *f = &s->steps[i];
        stage = f->flags & COLL_STAGE ? f : stage;
        g.steps[i] = (coll_pstep_t){.kind = f->kind,
                                    .lane = f->channel,
                                    .flags = f->flags,
                                    .peer = f->peer,
                                    .bytes = f->count * esize,
                                    .offset = f->at.offset * esize,
                                    .staged_from = staged_from(s, stage, f, esize),
                                    .buf = (uint8_t)f->at.buf,
                                    .src = f->src,
                                    .nsrc = f->nsrc,
                                    .dep = f->dep,
                                    .ndep = f->ndep};
    }
    g.stages = stage != NULL;
    link_sources(s, esize, &g);
    find_views(s, esize, &g, last_of);
    *out = g;
    *schedule = (coll_schedule_t){0};
    return GYRE_OK;
}

void coll_segment_free(coll_segment_t *segment)
{
    coll_schedule_free(&segment->schedule);
    base_arena_free(&segment->arena);
    *segment = (coll_segment_t){0};
}
