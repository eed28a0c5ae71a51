/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/schedules/hazards.c: finds which steps must wait for an earlier SEND because they overwrite its
 * source.
 *
 * The sends are sorted by (memory, start). In most schedules two of them read either the same range or ranges
 * that do not touch: then each range keeps a list of the sends that are posted and not yet known to be
 * complete, and a write looks up the ranges that it overlaps. Otherwise the sends become the leaves of a
 * segment tree that holds the furthest end among the sends that are posted and not yet known to be complete.
 * Walking the steps in order, a write asks the tree for the posted sends that it overlaps; one that it covers
 * wholly is complete afterwards and leaves the tree. Both ways O(steps log steps + edges). */
#include <stdlib.h>

#include "collectives/schedules/builder.h"
#include "collectives/schedules/generator.h"

typedef struct {
    size_t start, end;
    uint32_t step;
    int memory;
} span_t;

typedef struct {
    coll_builder_t *b;
    span_t *spans;    /* [n] sorted */
    uint32_t *place;  /* [nsteps]: a SEND's index in spans */
    size_t *furthest; /* [2 * width]: 0 where nothing is posted */
    size_t n, width;
    size_t first[COLL_TMP + 1]; /* index in spans of each memory's first */
    /* where ranges are equal or apart: spans holds each once, `place` says which is a SEND's, and */
    int apart;
    uint32_t *posted; /* [n] the last posted send of each range, + 1; 0: none */
    uint32_t *before; /* [nsteps] the one posted before it, + 1 */
    int aliased;
    size_t in_shift, out_shift;
} hazards_t;

static span_t span_of(const hazards_t *h, const coll_step_t *s, uint32_t step)
{
    size_t offset = s->at.offset;
    int memory = (int)s->at.buf;
    if (h->aliased && memory != COLL_TMP) {
        offset += memory == COLL_IN ? h->in_shift : h->out_shift;
        memory = COLL_OUT;
    }
    return (span_t){offset, offset + s->count, step, memory};
}

static int span_order(const void *a, const void *b)
{
    const span_t *x = a, *y = b;
    if (x->memory != y->memory)
        return x->memory < y->memory ? -1 : 1;
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    return x->step < y->step ? -1 : 1;
}

static void set_leaf(hazards_t *h, size_t leaf, size_t end)
{
    size_t at = leaf + h->width;
    h->furthest[at] = end;
    for (at /= 2; at; at /= 2) {
        size_t most = base_max_size(h->furthest[2 * at], h->furthest[2 * at + 1]);
        if (h->furthest[at] == most)
            break; /* nor does anything change above */
        h->furthest[at] = most;
    }
}

/* First leaf in [from, below) whose end lies past `start`, or `below`. */
static size_t next_leaf(const hazards_t *h, size_t from, size_t below, size_t start)
{
    size_t at = from + h->width;
    if (from >= below)
        return below;
    while (h->furthest[at] <= start) {
        /* to the next subtree on the right, climbing while this is a right child */
        while (at & 1)
            at /= 2;
        if (at <= 1)
            return below;
        at++;
        /* `at` covers leaves from here on; stop if they all lie past the end */
        size_t first = at << (__builtin_clzll(at) - __builtin_clzll(h->width));
        if (first - h->width >= below)
            return below;
    }
    while (at < h->width)
        at = h->furthest[2 * at] > start ? 2 * at : 2 * at + 1;
    return at - h->width < below ? at - h->width : below;
}

/* First index in spans that is not before (memory, start). */
static size_t lower_bound(const hazards_t *h, int memory, size_t start)
{
    size_t lo = 0, hi = h->n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        const span_t *s = &h->spans[mid];
        if (s->memory < memory || (s->memory == memory && s->start < start))
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Where ranges are equal or apart. */
static int write_waits_apart(hazards_t *h, const span_t *w)
{
    size_t i = lower_bound(h, w->memory, w->start);
    if (i > 0 && h->spans[i - 1].memory == w->memory && h->spans[i - 1].end > w->start)
        i--;
    for (; i < h->n && h->spans[i].memory == w->memory && h->spans[i].start < w->end; i++) {
        for (uint32_t sent = h->posted[i]; sent; sent = h->before[sent - 1])
            if (!coll_add_edge(h->b, w->step, sent - 1))
                return 0;
        if (w->start <= h->spans[i].start && h->spans[i].end <= w->end)
            h->posted[i] = 0;
    }
    return 1;
}

static int write_waits(hazards_t *h, uint32_t step)
{
    span_t w = span_of(h, &h->b->steps[step], step);
    if (h->apart)
        return write_waits_apart(h, &w);
    size_t from = h->first[w.memory], below = lower_bound(h, w.memory, w.end);
    for (size_t i = next_leaf(h, from, below, w.start); i < below; i = next_leaf(h, i + 1, below, w.start)) {
        const span_t *sent = &h->spans[i];
        if (!coll_add_edge(h->b, step, sent->step))
            return 0;
        if (w.start <= sent->start && sent->end <= w.end)
            set_leaf(h, i, 0);
    }
    return 1;
}

/* Lists and sorts the sends' ranges; keeps one of equal ones if all are equal or apart. */
static void list_spans(hazards_t *h)
{
    const coll_builder_t *b = h->b;
    size_t n = 0;
    for (uint32_t i = 0; i < b->nsteps; i++)
        if (n < h->n && b->steps[i].kind == COLL_STEP_SEND && b->steps[i].count)
            h->spans[n++] = span_of(h, &b->steps[i], i);
    for (n = 1; n < h->n && span_order(&h->spans[n - 1], &h->spans[n]) < 0;)
        n++;
    if (n < h->n) /* many generators send in order */
        qsort(h->spans, h->n, sizeof *h->spans, span_order);
    h->apart = 1;
    for (size_t i = 1; i < h->n && h->apart; i++) {
        const span_t *x = &h->spans[i - 1], *y = &h->spans[i];
        h->apart = x->memory != y->memory || y->start >= x->end || (y->start == x->start && y->end == x->end);
    }
    size_t kept = 0;
    for (size_t i = 0; i < h->n; i++) {
        const span_t *x = kept ? &h->spans[kept - 1] : NULL, *y = &h->spans[i];
        if (!h->apart || !x || x->memory != y->memory || x->start != y->start)
            h->spans[kept++] = *y;
        h->place[y->step] = (uint32_t)kept - 1;
    }
    h->n = kept;
    for (int memory = COLL_IN; memory <= COLL_TMP; memory++)
        h->first[memory] = lower_bound(h, memory, 0);
}

static void post(hazards_t *h, uint32_t step)
{
    uint32_t at = h->place[step];
    if (h->apart) {
        h->before[step] = h->posted[at];
        h->posted[at] = step + 1;
    } else {
        set_leaf(h, at, h->spans[at].end);
    }
}

int coll_add_hazard_edges(coll_builder_t *b)
{
    hazards_t h = {.b = b};
    h.aliased = coll_aliased(&b->args, &h.in_shift, &h.out_shift);
    int writes_after_send = 0;
    for (uint32_t i = 0; i < b->nsteps; i++) {
        h.n += b->steps[i].kind == COLL_STEP_SEND && b->steps[i].count;
        writes_after_send |= h.n && b->steps[i].kind != COLL_STEP_SEND;
    }
    if (!writes_after_send)
        return 1;
    for (h.width = 1; h.width < h.n;)
        h.width *= 2;
    h.spans = calloc(h.n, sizeof *h.spans);
    h.place = calloc(b->nsteps, sizeof *h.place);
    h.posted = calloc(h.n, sizeof *h.posted);
    h.before = calloc(b->nsteps, sizeof *h.before);
    h.furthest = calloc(2 * h.width, sizeof *h.furthest);
    int done = h.spans && h.place && h.posted && h.before && h.furthest;
    if (done)
        list_spans(&h);
    for (uint32_t i = 0; done && i < b->nsteps; i++) {
        if (!b->steps[i].count)
            continue;
        if (b->steps[i].kind == COLL_STEP_SEND)
            post(&h, i);
        else
            done = write_waits(&h, i);
    }
    free(h.spans);
    free(h.place);
    free(h.posted);
    free(h.before);
    free(h.furthest);
    return done;
}
