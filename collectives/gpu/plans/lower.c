/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/gpu/plans/lower.c: from the steps of a schedule to the actions of a kernel.
 *
 * The executor of the host posts sends, and receives into the step's place. A kernel is faster if data is
 * touched once:
 *
 *   RECV into TMP         becomes nothing, if all its readers can read the slot that the message came into
 *   (the views of
 *                         collectives/run/compile.c; here sends may read slots, too: data that only passes
 *                         through)
 *   REDUCE, COPY or RECV  and the first SEND of exactly that become one action, in the SEND's place, that
 *   writes the
 *                         neighbour's slot; the rank's own copy is written only if a later step reads it, or
 *                         it is the result
 *   all else              is an action for itself
 *
 * SENDs keep their order, which is that of the messages of a link. A slot is given back after the last action
 * that reads it, in the order of the messages.
 *
 * A SEND of the host continues in the background even if the lane is full; a SEND of the kernel waits for a
 * slot. So the lists are played through here: do all ranks come to their end with so many slots? Waits are
 * for counters that only grow, so lists that end in one order of steps end in every order. Segments that
 * follow each other end if each of them does: for the first one that has not ended on some rank, no message
 * lies after one of a later segment. */
#include "collectives/gpu/plans/lower.h"

#ifdef GYRE_CUDA

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "collectives/schedules/generator.h"

#define NONE UINT32_MAX

typedef struct {
    int memory; /* coll_buf_t; IN that is OUT's memory counts as OUT */
    size_t lo, hi;
} span_t;

/* A step of the channel, and what becomes of it. */
typedef struct {
    uint32_t step;         /* in the schedule */
    uint32_t link, number; /* of its message */
    uint32_t moved;        /* the SEND that it is one action with; of the SEND: the producer; NONE */
    uint32_t last;         /* RECV: the action that reads its slot last */
    uint8_t viewed;        /* RECV: read in its slot, no action */
    uint8_t unread;        /* not written locally */
} item_t;

typedef struct {
    const coll_schedule_t *s;
    size_t esize;
    item_t *items;
    uint32_t count;
    uint32_t *source_of,
        *sender_of; /* RECV that a source, a SEND's data lie in the slot of; [nsources], [count] */
    int aliased;
    size_t in_shift, out_shift;
} lower_t;

static const coll_step_t *step_of(const lower_t *l, uint32_t i)
{
    return &l->s->steps[l->items[i].step];
}

static span_t span_of(const lower_t *l, coll_ref_t ref, size_t count)
{
    size_t at = ref.offset;
    int memory = (int)ref.buf;
    if (l->aliased && memory != COLL_TMP) {
        at += memory == COLL_IN ? l->in_shift : l->out_shift;
        memory = COLL_OUT;
    }
    return (span_t){memory, at, at + count};
}

static int overlap(span_t a, span_t b)
{
    return a.memory == b.memory && a.lo < b.hi && b.lo < a.hi;
}

static int contains(span_t a, span_t b)
{
    return a.memory == b.memory && a.lo <= b.lo && b.hi <= a.hi;
}

static int writes(const coll_step_t *t)
{
    return t->kind != COLL_STEP_SEND;
}

static uint32_t nsources(const coll_step_t *t)
{
    return t->kind == COLL_STEP_COPY || t->kind == COLL_STEP_REDUCE ? t->nsrc : t->kind == COLL_STEP_SEND;
}

/* What step i reads as its k-th source. */
static span_t source_span(const lower_t *l, uint32_t i, uint32_t k)
{
    const coll_step_t *t = step_of(l, i);
    return span_of(l, t->kind == COLL_STEP_SEND ? t->at : l->s->sources[t->src + k], t->count);
}

static span_t written_span(const lower_t *l, uint32_t i)
{
    return span_of(l, step_of(l, i)->at, step_of(l, i)->count);
}

static int reads(const lower_t *l, uint32_t i, span_t what)
{
    for (uint32_t k = 0; k < nsources(step_of(l, i)); k++)
        if (overlap(source_span(l, i, k), what))
            return 1;
    return 0;
}

static uint32_t *slot_of(const lower_t *l, uint32_t i, uint32_t k)
{
    const coll_step_t *t = step_of(l, i);
    return t->kind == COLL_STEP_SEND ? &l->sender_of[i] : &l->source_of[t->src + k];
}

static uint32_t link_to(uint16_t *ranks, uint32_t *count, int rank)
{
    for (uint32_t i = 0; i < *count; i++)
        if (ranks[i] == rank)
            return i;
    if (*count == COLL_CUDA_LINKS)
        return NONE;
    ranks[*count] = (uint16_t)rank;
    return (*count)++;
}

/* The channel's steps, and the numbers of their messages. */
static gyre_status_t collect(lower_t *l, int channel, coll_cuda_lowered_t *out)
{
    const coll_schedule_t *s = l->s;
    for (uint32_t i = 0; i < s->nsteps; i++) {
        const coll_step_t *t = &s->steps[i];
        if (t->channel != channel)
            continue;
        for (uint32_t k = 0; k < t->ndep; k++)
            if (s->steps[s->deps[t->dep + k]].channel != channel)
                return gyre_fail_quiet(GYRE_ERR_UNSUPPORTED,
                                       "its channels wait for each other, which is not run on a device");
        if (t->kind == COLL_STEP_JOINT || (t->kind == COLL_STEP_REDUCE && t->nsrc > 2) ||
            t->count > (UINT32_MAX - 63) / l->esize)
            return gyre_fail_quiet(GYRE_ERR_UNSUPPORTED, "it has steps that are not run on a device");
        item_t *item = &l->items[l->count++];
        *item = (item_t){.step = i, .moved = NONE, .last = NONE, .link = NONE};
        if (t->kind == COLL_STEP_SEND) {
            item->link = link_to(out->to, &out->nto, t->peer);
            item->number = item->link == NONE ? 0 : out->sent[item->link]++;
            out->message = base_max_size(out->message, t->count * l->esize);
        } else if (t->kind == COLL_STEP_RECV) {
            item->link = link_to(out->from, &out->nfrom, t->peer);
            item->number = item->link == NONE ? 0 : out->received[item->link]++;
        }
        if ((t->kind == COLL_STEP_SEND || t->kind == COLL_STEP_RECV) && item->link == NONE)
            return gyre_fail_quiet(GYRE_ERR_UNSUPPORTED, "a rank has more than %d neighbours in it",
                                   (int)COLL_CUDA_LINKS);
    }
    return GYRE_OK;
}

/* Marks RECV r as viewed if all that read it read parts of it, and until it is overwritten as a whole. */
static void find_view(const lower_t *l, uint32_t r)
{
    const span_t got = written_span(l, r);
    uint32_t end = l->count;
    if (got.memory != COLL_TMP)
        return;
    for (uint32_t i = r + 1; i < end; i++) {
        for (uint32_t k = 0; k < nsources(step_of(l, i)); k++) {
            const span_t from = source_span(l, i, k);
            if (overlap(from, got) && !contains(got, from))
                return;
        }
        if (!writes(step_of(l, i)) || !overlap(written_span(l, i), got))
            continue;
        if (!contains(written_span(l, i), got))
            return;
        end = i + 1;
    }
    l->items[r].viewed = 1;
    for (uint32_t i = r + 1; i < end; i++)
        for (uint32_t k = 0; k < nsources(step_of(l, i)); k++)
            if (overlap(source_span(l, i, k), got))
                *slot_of(l, i, k) = r;
}

/* 1: nothing reads what step p writes after step `from`, before all of it is overwritten. */
static int is_unread(const lower_t *l, uint32_t p, uint32_t from)
{
    const span_t what = written_span(l, p);
    if (what.memory != COLL_TMP)
        return 0;
    for (uint32_t i = from + 1; i < l->count; i++) {
        if (reads(l, i, what))
            return 0;
        if (writes(step_of(l, i)) && overlap(written_span(l, i), what))
            return contains(written_span(l, i), what);
    }
    return 1;
}

/* 1: step p can as well be done right before step `to`: nothing in between has to do with what it writes, or
 * changes what it reads. */
static int may_move(const lower_t *l, uint32_t p, uint32_t to)
{
    const span_t what = written_span(l, p);
    for (uint32_t i = p + 1; i < to; i++) {
        if (l->items[i].viewed)
            continue;
        if (reads(l, i, what))
            return 0;
        if (!writes(step_of(l, i)))
            continue;
        const span_t other = written_span(l, i);
        if (overlap(other, what))
            return 0;
        for (uint32_t k = 0; k < nsources(step_of(l, p)); k++)
            if (*slot_of(l, p, k) == NONE && overlap(source_span(l, p, k), other))
                return 0;
    }
    return 1;
}

/* The step that made what SEND s sends, if it can be one action with it. */
static void find_producer(const lower_t *l, uint32_t s)
{
    const span_t what = source_span(l, s, 0);
    if (l->sender_of[s] != NONE || (what.memory == COLL_IN))
        return;
    for (uint32_t p = s; p-- > 0;) {
        if (!writes(step_of(l, p)) || l->items[p].viewed || !overlap(written_span(l, p), what))
            continue;
        const span_t made = written_span(l, p);
        if (l->items[p].moved != NONE || !contains(made, what) || !contains(what, made) || !may_move(l, p, s))
            return;
        l->items[p].moved = s;
        l->items[s].moved = p;
        l->items[p].unread = (uint8_t)is_unread(l, p, s);
        return;
    }
}

/* ---- TMP, packed --------------------------------------------------------------------------------------- */

typedef struct {
    size_t lo, hi, at; /* elements, elements, bytes */
} place_t;

static int place_order(const void *a, const void *b)
{
    const place_t *x = a, *y = b;
    return x->lo < y->lo ? -1 : x->lo > y->lo;
}

/* The ranges of TMP that are written, joined where they touch; returns how many. */
static size_t pack(const lower_t *l, place_t *places, size_t *bytes)
{
    size_t found = 0, kept = 0;
    for (uint32_t i = 0; i < l->count; i++) {
        const span_t w = written_span(l, i);
        if (writes(step_of(l, i)) && !l->items[i].viewed && !l->items[i].unread && w.memory == COLL_TMP)
            places[found++] = (place_t){.lo = w.lo, .hi = w.hi};
    }
    qsort(places, found, sizeof *places, place_order);
    for (size_t i = 0; i < found; i++) {
        if (kept > 0 && places[i].lo <= places[kept - 1].hi)
            places[kept - 1].hi = base_max_size(places[kept - 1].hi, places[i].hi);
        else
            places[kept++] = places[i];
    }
    *bytes = 0;
    for (size_t i = 0; i < kept; i++) {
        places[i].at = *bytes;
        *bytes += base_round_up((places[i].hi - places[i].lo) * l->esize, COLL_CUDA_ALIGN);
    }
    return kept;
}

/* Where an element of TMP lies; UINT64_MAX: nowhere, which no schedule that the checker passed reads. */
static uint64_t packed_at(const place_t *places, size_t count, size_t element, size_t esize)
{
    size_t low = 0, high = count;
    while (high - low > 1) {
        const size_t middle = (low + high) / 2;
        if (places[middle].lo <= element)
            low = middle;
        else
            high = middle;
    }
    if (count == 0 || element < places[low].lo || element >= places[low].hi)
        return UINT64_MAX;
    return places[low].at + (element - places[low].lo) * esize;
}

/* ---- actions ------------------------------------------------------------------------------------------- */

typedef struct {
    const place_t *places;
    size_t nplaces;
} tmp_t;

static void set_source(const lower_t *l, const tmp_t *tmp, coll_cuda_action_t *a, int k, coll_ref_t ref,
                       uint32_t recv)
{
    if (recv != NONE) {
        a->from[k] = COLL_CUDA_SLOT;
        a->from_link[k] = (uint8_t)l->items[recv].link;
        a->number[k] = l->items[recv].number;
        a->from_at[k] = (ref.offset - step_of(l, recv)->at.offset) * l->esize;
    } else {
        a->from[k] = (uint8_t)ref.buf;
        a->from_at[k] = ref.buf == COLL_TMP ? packed_at(tmp->places, tmp->nplaces, ref.offset, l->esize)
                                            : ref.offset * l->esize;
    }
}

/* Step p, a SEND of its own or any other step, as an action; *ok 0: it reads TMP that no step wrote. */
static coll_cuda_action_t action_of(lower_t *l, const tmp_t *tmp, uint32_t p, uint32_t index, int *ok)
{
    const coll_step_t *t = step_of(l, p);
    coll_cuda_action_t a = {.from = {COLL_CUDA_NOWHERE, COLL_CUDA_NOWHERE},
                            .to = COLL_CUDA_NOWHERE,
                            .to_link = COLL_CUDA_NO_LINK,
                            .free_link = {COLL_CUDA_NO_LINK, COLL_CUDA_NO_LINK},
                            .bytes = (uint32_t)(t->count * l->esize),
                            .final = (uint8_t)((t->flags & COLL_FINAL) != 0)};
    if (t->kind == COLL_STEP_RECV) {
        set_source(l, tmp, &a, 0, t->at, p);
        l->items[p].last = index;
    }
    for (uint32_t k = 0; k < nsources(t); k++) {
        const uint32_t recv = *slot_of(l, p, k);
        set_source(l, tmp, &a, (int)k, t->kind == COLL_STEP_SEND ? t->at : l->s->sources[t->src + k], recv);
        if (recv != NONE)
            l->items[recv].last = index;
    }
    if (writes(t) && !l->items[p].unread) {
        a.to = (uint8_t)t->at.buf;
        a.to_at = t->at.buf == COLL_TMP ? packed_at(tmp->places, tmp->nplaces, t->at.offset, l->esize)
                                        : t->at.offset * l->esize;
    }
    const uint32_t send = t->kind == COLL_STEP_SEND ? p : l->items[p].moved;
    if (send != NONE) {
        a.to_link = (uint8_t)l->items[send].link;
        a.push = l->items[send].number;
    }
    for (int k = 0; k < 2; k++)
        *ok = *ok && !(a.from[k] == COLL_CUDA_TMP && a.from_at[k] == UINT64_MAX);
    return a;
}

/* After which actions slots are free, in the order of messages. */
static int give_back(const lower_t *l, base_arena_t *arena, coll_cuda_lowered_t *out)
{
    for (uint32_t link = 0; link < out->nfrom; link++) {
        const uint32_t all = out->received[link];
        uint32_t *last = base_arena_alloc(arena, (size_t)all + 1, sizeof *last), latest = 0;
        if (!last)
            return 0;
        for (uint32_t i = 0; i < l->count; i++)
            if (step_of(l, i)->kind == COLL_STEP_RECV && l->items[i].link == link)
                last[l->items[i].number] = l->items[i].last;
        for (uint32_t k = 0; k < all; k++) {
            if (last[k] == NONE) /* it is received and never read */
                return 0;
            latest = last[k] > latest ? last[k] : latest;
            coll_cuda_action_t *a = &out->actions[latest];
            const int place = a->free_link[0] == link || a->free_link[0] == COLL_CUDA_NO_LINK ? 0 : 1;
            a->free_link[place] = (uint8_t)link;
            a->freed[place] = k + 1;
        }
    }
    return 1;
}

static gyre_status_t emit(lower_t *l, base_arena_t *arena, coll_cuda_lowered_t *out)
{
    place_t *places = base_arena_alloc(arena, (size_t)l->count + 1, sizeof *places);
    out->actions = base_arena_alloc(arena, (size_t)l->count + 1, sizeof *out->actions);
    if (!places || !out->actions)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %u actions", l->count);
    tmp_t tmp = {places, pack(l, places, &out->tmp)};
    int ok = 1;
    for (uint32_t i = 0; i < l->count; i++) {
        const item_t *item = &l->items[i];
        const int is_send = step_of(l, i)->kind == COLL_STEP_SEND;
        if (item->viewed || (!is_send && item->moved != NONE))
            continue;
        out->actions[out->count] = action_of(l, &tmp, item->moved == NONE ? i : item->moved, out->count, &ok);
        out->count++;
    }
    ok = ok && give_back(l, arena, out);
    return ok ? GYRE_OK
              : gyre_fail_quiet(GYRE_ERR_UNSUPPORTED,
                                "a step reads what no step wrote, or no step reads what one wrote");
}

gyre_status_t coll_cuda_lower(const coll_schedule_t *s, const coll_args_t *args, int channel, size_t esize,
                              base_arena_t *arena, coll_cuda_lowered_t *out)
{
    lower_t l = {.s = s, .esize = esize};
    out->actions = NULL;
    out->count = 0;
    out->message = out->tmp = 0;
    memset(out->sent, 0, sizeof out->sent);
    memset(out->received, 0, sizeof out->received);
    l.aliased = coll_aliased(args, &l.in_shift, &l.out_shift);
    l.items = base_arena_alloc(arena, (size_t)s->nsteps + 1, sizeof *l.items);
    l.source_of = base_arena_alloc(arena, (size_t)s->nsources + 1, sizeof *l.source_of);
    l.sender_of = base_arena_alloc(arena, (size_t)s->nsteps + 1, sizeof *l.sender_of);
    if (!l.items || !l.source_of || !l.sender_of)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %u steps", s->nsteps);
    memset(l.source_of, 0xff, s->nsources * sizeof *l.source_of);
    memset(l.sender_of, 0xff, s->nsteps * sizeof *l.sender_of);
    gyre_status_t st = collect(&l, channel, out);
    if (st != GYRE_OK)
        return st;
    for (uint32_t i = 0; i < l.count; i++)
        if (step_of(&l, i)->kind == COLL_STEP_RECV)
            find_view(&l, i);
    for (uint32_t i = 0; i < l.count; i++)
        if (step_of(&l, i)->kind == COLL_STEP_SEND)
            find_producer(&l, i);
    return emit(&l, arena, out);
}

/* ---- the play ------------------------------------------------------------------------------------------ */

int coll_cuda_ends(const coll_cuda_lowered_t *lanes, size_t stride, int n, uint32_t depth, uint32_t *memory)
{
    uint32_t *came = memory, *freed = memory + (size_t)n * (size_t)n; /* [from][to] */
    uint32_t at[COLL_CUDA_RANKS] = {0};
    int left = n, moved = 1;
    memset(memory, 0, 2 * (size_t)n * (size_t)n * sizeof *memory);
    for (int r = 0; r < n; r++)
        left -= lanes[(size_t)r * stride].count == 0;
    while (left > 0 && moved) {
        moved = 0;
        for (int r = 0; r < n; r++) {
            const coll_cuda_lowered_t *lane = &lanes[(size_t)r * stride];
            while (at[r] < lane->count) {
                const coll_cuda_action_t *a = &lane->actions[at[r]];
                int ready = 1;
                for (int k = 0; k < 2; k++)
                    ready = ready && (a->from[k] != COLL_CUDA_SLOT ||
                                      came[lane->from[a->from_link[k]] * n + r] > a->number[k]);
                if (a->to_link != COLL_CUDA_NO_LINK)
                    ready = ready && a->push < freed[r * n + lane->to[a->to_link]] + depth;
                if (!ready)
                    break;
                if (a->to_link != COLL_CUDA_NO_LINK)
                    came[r * n + lane->to[a->to_link]] = a->push + 1;
                for (int k = 0; k < 2; k++)
                    if (a->free_link[k] != COLL_CUDA_NO_LINK)
                        freed[lane->from[a->free_link[k]] * n + r] = a->freed[k];
                at[r]++;
                moved = 1;
                left -= at[r] == lane->count;
            }
        }
    }
    return left == 0;
}

#endif
