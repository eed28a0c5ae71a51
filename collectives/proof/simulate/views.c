/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/proof/simulate/views.c: finds the receives of a schedule that a host's ranks need not copy.
 *
 * These are the receives into TMP that only COPY and REDUCE steps of their channel read before something else
 * is written there. collectives/run/compile.c finds the same for the executor. Here one pass finds them: a
 * list of the receives whose data is still there is enough, and the list is short. Also finds the steps that
 * write what peers will read. */
#include <stdlib.h>

#include "collectives/proof/simulate/internal.h"

typedef struct {
    size_t start, end;
    uint32_t recv, last_reader;
    uint8_t channel, viewable;
} kept_t;

typedef struct {
    const coll_schedule_t *s;
    kept_t *kept;    /* [nkept] every receive into TMP */
    uint32_t *live;  /* indices into kept: data that is still there */
    uint32_t *reads; /* [nreads] indices into kept, by step */
    uint32_t nkept, nlive, nreads;
} finder_t;

static void read_range(finder_t *f, uint32_t step, size_t start, size_t end)
{
    const coll_step_t *t = &f->s->steps[step];
    for (uint32_t i = f->nlive; i-- > 0;) {
        kept_t *k = &f->kept[f->live[i]];
        if (k->start >= end || start >= k->end)
            continue;
        if (t->kind == COLL_STEP_SEND || t->channel != k->channel || start < k->start || end > k->end) {
            k->viewable = 0;
        } else {
            k->last_reader = step;
            f->reads[f->nreads++] = f->live[i];
        }
        return; /* ranges that are received do not overlap */
    }
}

static void write_range(finder_t *f, uint32_t step, size_t start, size_t end)
{
    const coll_step_t *t = &f->s->steps[step];
    for (uint32_t i = f->nlive; i-- > 0;) {
        kept_t *k = &f->kept[f->live[i]];
        if (k->start >= end || start >= k->end)
            continue;
        if (t->channel != k->channel || k->last_reader == step)
            k->viewable = 0;
        f->live[i] = f->live[--f->nlive];
    }
}

static void pass(finder_t *f, sim_local_t *local)
{
    for (uint32_t i = 0; i < f->s->nsteps; i++) {
        const coll_step_t *t = &f->s->steps[i];
        local[i] = (sim_local_t){.view = SIM_NONE, .first = f->nreads};
        if (t->count == 0)
            continue;
        if (t->kind == COLL_STEP_SEND) {
            if (t->at.buf == COLL_TMP)
                read_range(f, i, t->at.offset, t->at.offset + t->count);
            continue;
        }
        for (uint32_t k = 0; t->kind != COLL_STEP_RECV && k < t->nsrc; k++) {
            coll_ref_t from = f->s->sources[t->src + k];
            if (from.buf == COLL_TMP)
                read_range(f, i, from.offset, from.offset + t->count);
        }
        local[i].nread = (uint16_t)(f->nreads - local[i].first);
        if (t->at.buf != COLL_TMP)
            continue;
        write_range(f, i, t->at.offset, t->at.offset + t->count);
        if (t->kind == COLL_STEP_RECV) {
            f->live[f->nlive++] = f->nkept;
            f->kept[f->nkept++] = (kept_t){t->at.offset, t->at.offset + t->count, i, SIM_NONE, t->channel, 1};
        }
    }
}

typedef struct {
    size_t start, end;
    int buf;
} sent_t;

static int sent_order(const void *x, const void *y)
{
    const sent_t *a = x, *b = y;
    if (a->buf != b->buf)
        return a->buf < b->buf ? -1 : 1;
    return a->start < b->start ? -1 : a->start > b->start;
}

/* Marks the steps that write what a longer SEND reads. sent: [nsteps] scratch. */
static void find_sent_on(const coll_schedule_t *s, size_t eager, sent_t *sent, sim_local_t *local)
{
    size_t n = 0, merged = 0;
    for (uint32_t i = 0; i < s->nsteps; i++) {
        const coll_step_t *t = &s->steps[i];
        if (t->kind == COLL_STEP_SEND && t->count > eager)
            sent[n++] = (sent_t){t->at.offset, t->at.offset + t->count, (int)t->at.buf};
    }
    qsort(sent, n, sizeof *sent, sent_order);
    for (size_t i = 0; i < n; i++) {
        sent_t *last = merged ? &sent[merged - 1] : NULL;
        if (last && last->buf == sent[i].buf && sent[i].start <= last->end)
            last->end = sent[i].end > last->end ? sent[i].end : last->end;
        else
            sent[merged++] = sent[i];
    }
    for (uint32_t i = 0; i < s->nsteps; i++) {
        const coll_step_t *t = &s->steps[i];
        size_t lo = 0, hi = merged;
        while (lo < hi) { /* the first that ends after the step's range starts */
            size_t mid = (lo + hi) / 2;
            int before = sent[mid].buf != (int)t->at.buf ? sent[mid].buf < (int)t->at.buf
                                                         : sent[mid].end <= t->at.offset;
            lo = before ? mid + 1 : lo;
            hi = before ? hi : mid;
        }
        local[i].sent_on = t->kind != COLL_STEP_SEND && lo < merged && sent[lo].buf == (int)t->at.buf &&
                           sent[lo].start < t->at.offset + t->count;
    }
}

uint32_t sim_find_views(const coll_schedule_t *schedule, size_t eager, base_arena_t *arena,
                        sim_local_t *local, uint32_t **viewed, uint32_t *nviewed)
{
    base_arena_t scratch = {0};
    finder_t f = {.s = schedule};
    uint32_t views = 0;
    f.kept = base_arena_alloc(&scratch, schedule->nsteps + 1u, sizeof *f.kept);
    f.live = base_arena_alloc(&scratch, schedule->nsteps + 1u, sizeof *f.live);
    f.reads = base_arena_alloc(&scratch, schedule->nsources + 1u, sizeof *f.reads);
    sent_t *sent = base_arena_alloc(&scratch, schedule->nsteps + 1u, sizeof *sent);
    uint32_t *made = base_arena_alloc(arena, schedule->nsources + 1u, sizeof *made);
    if (!f.kept || !f.live || !f.reads || !made || !sent) {
        base_arena_free(&scratch);
        return SIM_NONE;
    }
    pass(&f, local);
    find_sent_on(schedule, eager, sent, local);
    for (uint32_t i = 0; i < f.nkept; i++)
        if (f.kept[i].viewable && f.kept[i].last_reader != SIM_NONE)
            local[f.kept[i].recv].view = views++;
    uint32_t n = 0;
    for (uint32_t i = 0; i < schedule->nsteps; i++) {
        uint32_t from = local[i].first, end = from + local[i].nread;
        local[i].first = n;
        for (int round = 0; round < 2; round++) /* those that are given back first */
            for (uint32_t k = from; k < end; k++) {
                const kept_t *got = &f.kept[f.reads[k]];
                uint32_t view = local[got->recv].view;
                if (view == SIM_NONE || (got->last_reader == i) != (round == 0))
                    continue;
                made[n++] = view;
                if (round == 0)
                    local[i].nrelease++;
            }
        local[i].nread = (uint16_t)(n - local[i].first);
    }
    *viewed = made;
    *nviewed = n;
    base_arena_free(&scratch);
    return views;
}
