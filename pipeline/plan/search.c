/* pipeline/plan/search.c: every layout of a model on N accelerators, timed and weighed.
 *
 * For each split tp x cp x pp x dp, each number of ranks that share experts, each micro-batch and schedule,
 * the fastest way to run it that fits: ZeRO stage, recomputation, sequence parallelism. A split of which no
 * way works is refused, and says why.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/plan/search.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/grow.h"
#include "pipeline/schedules/kinds.h"

#define GIB 1073741824.0
enum { MOST_CHUNKS = 8, LARGEST_MICRO = 16 };

static void fit_leaves(model_config_t *c, size_t least)
{
    size_t g = c->leaves;
    while (g < least)
        g *= 2;
    if (c->heads % g == 0 && (c->kv_heads % g == 0 || g % c->kv_heads == 0) &&
        (c->experts ? c->experts : c->ffn) % g == 0 && c->dense_ffn % g == 0 && c->shared_ffn % g == 0)
        c->leaves = g;
    c->vocab_padded = (base_max_size(c->vocab, c->vocab_padded) + c->leaves - 1) / c->leaves * c->leaves;
}

void plan_fit_leaves(model_config_t *c, size_t tp, size_t cp)
{
    fit_leaves(c, tp);
    if (c->leaves % tp == 0 && model_config_key_heads(c) / tp % cp != 0)
        fit_leaves(c, tp * cp); /* copies of heads of keys and values */
}

/* ---- growing lists ------------------------------------------------------------------------------------- */

static int grow(void *list, size_t count, size_t *room, size_t size)
{
    if (base_grow(list, room, count, 1, size))
        return 1;
    gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %zu layouts", count + 1);
    return 0;
}

static int keep(plan_search_t *s, const plan_found_t *found)
{
    if (!grow(&s->found, s->founds, &s->found_room, sizeof *s->found))
        return 0;
    s->found[s->founds++] = *found;
    return 1;
}

static int refuse(plan_search_t *s, const pipe_layout_t *l, const char *why)
{
    if (!grow(&s->refused, s->refuseds, &s->refused_room, sizeof *s->refused))
        return 0;
    plan_refused_t *r = &s->refused[s->refuseds++];
    *r = (plan_refused_t){.tp = l->tp, .cp = pipe_layout_context(l), .pp = l->pp, .dp = l->dp};
    snprintf(r->why, sizeof r->why, "%s", why);
    return 1;
}

/* ---- one split ----------------------------------------------------------------------------------------- */

typedef struct {
    int any;            /* a layout was legal */
    double least;       /* bytes of the leanest */
    pipe_layout_t lean; /* itself */
    model_recompute_t lean_recompute;
    char why[PIPE_LAYOUT_WHY]; /* of the first one that was not */
} tried_t;

/* What each stage holds; NULL: the formulas do not ask. NO_MEMORY. */
static gyre_status_t take_held(const plan_search_t *s, size_t stages, plan_held_t **held)
{
    *held = s->trainer ? calloc(stages, sizeof **held) : NULL;
    return *held || !s->trainer ? GYRE_OK : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %zu stages", stages);
}

/* stored: as of plan_trainer. */
static gyre_status_t count_bytes(const plan_search_t *s, const pipe_recipe_t *r, const plan_base_t *base,
                                 int stored, plan_held_t *held, size_t *bytes)
{
    if (!s->trainer) {
        plan_memory_t memory = {0};
        plan_memory_worst(r, base, &s->software, &memory);
        *bytes = memory.total;
        return GYRE_OK;
    }
    gyre_status_t status = plan_trainer(r, s->trainer, stored, held);
    if (status == GYRE_OK)
        *bytes = held[plan_trainer_worst(held, r->layout.pp)].total;
    return status;
}

gyre_status_t plan_search_bytes(const plan_search_t *s, const pipe_recipe_t *r, const plan_base_t *base,
                                size_t *bytes)
{
    plan_held_t *held;
    gyre_status_t status = take_held(s, r->layout.pp, &held);
    if (status == GYRE_OK)
        status = count_bytes(s, r, base, 0, held, bytes);
    free(held);
    return status;
}

/* A recipe with all that it needs: counted among those tried, and in *best if it fits and is faster. */
static int try_way(plan_search_t *s, const pipe_recipe_t *r, const plan_base_t *base, int stored,
                   plan_held_t *held, tried_t *tried, plan_found_t *best)
{
    const plan_machine_t *machine = &s->machine;
    plan_time_t time;
    size_t own;
    s->tried++;
    if (count_bytes(s, r, base, stored, held, &own) != GYRE_OK)
        return 0;
    const double bytes = (double)own + machine->reserve;
    if (tried->least <= 0.0 || bytes < tried->least) {
        tried->least = bytes;
        tried->lean = r->layout;
        tried->lean_recompute = r->recompute;
    }
    if (bytes > machine->memory)
        return 1;
    plan_time(r, base, machine, &s->software, &time);
    /* what is not faster by a thousandth is taken only if it is leaner */
    if (best->time.step < 0.0 || time.step < best->time.step * 0.999 ||
        (time.step <= best->time.step * 1.001 && own < best->bytes))
        *best = (plan_found_t){*r, time, own};
    return 1;
}

/* The fastest of ZeRO stages, recomputation and sequence parallelism that fits, for a recipe that has all
 * the rest. */
static int fastest(plan_search_t *s, pipe_recipe_t *r, tried_t *tried)
{
    plan_base_t base = s->base;
    plan_found_t best = {.time.step = -1.0};
    plan_held_t *held;
    plan_base_layout(r, &base);
    const int parallel =
        r->layout.tp > 1 && r->model.seq / base_max_size(1, r->batch.parts) % r->layout.tp == 0;
    int good = take_held(s, r->layout.pp, &held) == GYRE_OK;
    for (int zero = 0; good && zero <= (pipe_layout_replicas(&r->layout) > 1 ? 3 : 0); zero++)
        for (int sequence = 0; good && sequence <= (parallel ? 1 : 0); sequence++)
            for (int recompute = 0; good && recompute <= (int)MODEL_RECOMPUTE_FULL; recompute++) {
                r->layout.zero = zero;
                r->layout.sequence = sequence;
                r->recompute = (model_recompute_t)recompute;
                good = try_way(s, r, &base, sequence + recompute > 0, held, tried, &best);
            }
    free(held);
    return good && (best.time.step < 0.0 || keep(s, &best));
}

static int try_schedule(plan_search_t *s, pipe_recipe_t *r, pipe_kind_t schedule, size_t chunks,
                        tried_t *tried)
{
    char why[PIPE_LAYOUT_WHY];
    r->layout.schedule = schedule;
    r->layout.chunks = chunks;
    r->layout.zero = r->layout.sequence = 0;
    if (!pipe_layout_works(&r->layout, &r->model, s->gpus, &r->batch, why) ||
        (s->trainer && !pipe_recipe_grows(r, why))) {
        if (!*tried->why)
            memcpy(tried->why, why, sizeof why);
        return 1;
    }
    tried->any = 1;
    return fastest(s, r, tried);
}

static int try_kind(plan_search_t *s, pipe_recipe_t *r, pipe_kind_t kind, tried_t *tried)
{
    const size_t pp = r->layout.pp, slots = r->model.layers + (r->layout.balance ? 2 : 0);
    if (pp == 1 ? kind != PIPE_1F1B : s->one_schedule && kind != s->recipe.layout.schedule)
        return 1;
    if (!pipe_kind_row(kind)->any_chunks)
        return try_schedule(s, r, kind, (size_t)pipe_kind_chunks(kind), tried);
    for (size_t chunks = 2; chunks <= MOST_CHUNKS; chunks++)
        if ((chunks == 2 || slots % (chunks * pp) == 0) && !try_schedule(s, r, kind, chunks, tried))
            return 0;
    return 1;
}

/* 1 if so many data-parallel ranks may share the model's experts; what else is asked of them the layout's
 * rules know. */
static int shares_experts(const pipe_recipe_t *r, size_t ep)
{
    return ep == 1 ||
           (r->model.experts > 0 && r->model.experts % (r->layout.tp * ep) == 0 && r->layout.dp % ep == 0);
}

/* All schedules and micro-batches of a split. */
static int try_micro_batches(plan_search_t *s, pipe_recipe_t *r, tried_t *tried)
{
    const size_t leaf = optim_batch_complete(&r->batch).leaf; /* micro-batches are whole ones */
    for (size_t micro = leaf;
         micro <= LARGEST_MICRO * leaf && (micro == leaf || micro * r->layout.dp <= r->batch.batch);
         micro *= 2) {
        r->layout.micro_batch = micro;
        for (pipe_kind_t k = 0; k < PIPE_KIND_END; k++)
            if ((!pipe_kind_row(k)->dominated || (s->one_schedule && k == s->recipe.layout.schedule)) &&
                !try_kind(s, r, k, tried))
                return 0;
    }
    return 1;
}

static int try_split(plan_search_t *s, size_t tp, size_t cp, size_t pp, size_t dp)
{
    pipe_recipe_t r = s->recipe;
    tried_t tried = {0};
    const size_t kept = s->founds;
    r.nodes = 0;
    r.layout.tp = tp;
    r.layout.cp = cp;
    r.layout.pp = pp;
    r.layout.dp = dp;
    r.layout.ep = 1;
    r.batch.groups = s->trainer ? r.batch.groups : 0; /* bits of gyre-train's */
    plan_fit_leaves(&r.model, tp, r.layout.ring ? 1 : cp);
    char text[PIPE_LAYOUT_WHY + 64];
    const size_t kv = r.model.kv_heads;
    if (r.model.heads % tp != 0 || (kv % tp != 0 && tp % kv != 0)) {
        if (r.model.heads % tp != 0)
            snprintf(text, sizeof text, "%zu heads are not divisible by tp", r.model.heads);
        else
            snprintf(text, sizeof text,
                     "%zu heads of keys and values neither divide tp nor are divisible by it", kv);
        return refuse(s, &r.layout, text);
    }
    pipe_recipe_complete(&r);
    for (size_t ep = 1; ep <= dp; ep *= 2) {
        r.layout.ep = ep;
        if (shares_experts(&r, ep) && !try_micro_batches(s, &r, &tried))
            return 0;
    }
    if (!tried.any)
        return refuse(s, &r.layout, tried.why);
    if (s->founds > kept)
        return 1;
    char shared[32] = "";
    if (tried.lean.ep > 1)
        snprintf(shared, sizeof shared, "ep %zu, ", tried.lean.ep);
    snprintf(text, sizeof text,
             "out of memory: %.1f GiB at least (%sZeRO %d, micro-batch %zu, recompute %s%s), of %.1f",
             tried.least / GIB, shared, tried.lean.zero, tried.lean.micro_batch,
             pipe_recompute_name(tried.lean_recompute), tried.lean.sequence ? ", sequence parallel" : "",
             s->machine.memory / GIB);
    return refuse(s, &r.layout, text);
}

/* ---- all ----------------------------------------------------------------------------------------------- */

static int by_time(const void *a, const void *b)
{
    const plan_found_t *x = a, *y = b;
    if (x->time.step != y->time.step)
        return x->time.step < y->time.step ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

int plan_search(plan_search_t *s)
{
    const size_t gpus = s->gpus;
    if (plan_base(&s->recipe, &s->base) != GYRE_OK)
        return 0;
    for (size_t tp = 1; tp <= gpus && tp <= (size_t)s->machine.per_node; tp *= 2)
        for (size_t cp = 1; cp <= base_max_size(1, s->recipe.batch.parts); cp *= 2)
            for (size_t pp = 1; gpus % (tp * cp) == 0 && pp <= gpus / (tp * cp); pp++)
                if (gpus / (tp * cp) % pp == 0 && !try_split(s, tp, cp, pp, gpus / (tp * cp) / pp))
                    return 0;
    if (s->founds)
        qsort(s->found, s->founds, sizeof s->found[0], by_time);
    return 1;
}

void plan_search_free(plan_search_t *s)
{
    free(s->found);
    free(s->refused);
    s->found = NULL;
    s->refused = NULL;
    s->founds = s->refuseds = s->found_room = s->refused_room = 0;
}
