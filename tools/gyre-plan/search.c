/* tools/gyre-plan/search.c: `gyre-plan search`: every layout of a model on N accelerators, timed and weighed.
 *
 * For each split tp x pp x dp and each micro-batch and schedule, the fastest way to run it that fits: ZeRO stage, recomputation,
 * sequence parallelism. A split of which no way works is refused, and says why. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "tools/gyre-plan/plan.h"
#include "tools/gyre-plan/recipe.h"
#include "pipeline/schedules/kinds.h"

#define GIB 1073741824.0
enum { MOST_CHUNKS = 8, LARGEST_MICRO = 16, SHOWN_REFUSED = 16 };

static const char help[] =
    "usage: gyre-plan search [--recipe FILE] [--gpus N] [flags]\n"
    "\n"
    "Tries every layout of the recipe's model and batch on N accelerators: tensor, pipeline and data "
    "parallelism, micro-\n"
    "batch, schedule, ZeRO stage, recomputation, sequence parallelism. Prints the fastest that fit into "
    "memory by the\n"
    "estimates of gyre-plan time and memory, and why splits were refused.\n";

typedef struct {
    pipe_recipe_t recipe;
    plan_time_t time;
    plan_memory_t memory;
} found_t;

typedef struct {
    size_t tp, pp, dp;
    char why[PIPE_LAYOUT_WHY + 64];
} refused_t;

typedef struct {
    const plan_question_t *q;
    plan_base_t base; /* counts of the model */
    found_t *found;
    size_t founds, found_room;
    refused_t *refused;
    size_t refuseds, refused_room;
    size_t tried;
} search_t;

/* ---- growing lists ------------------------------------------------------------------------------------------------- */

static int grow(void **list, size_t count, size_t *room, size_t size)
{
    if (count < *room)
        return 1;
    size_t more = *room ? 2 * *room : 64;
    void *larger = realloc(*list, more * size);
    if (!larger) {
        gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %zu layouts", more);
        return 0;
    }
    *list = larger;
    *room = more;
    return 1;
}

static int keep(search_t *s, const found_t *found)
{
    if (!grow((void **)&s->found, s->founds, &s->found_room, sizeof *s->found))
        return 0;
    s->found[s->founds++] = *found;
    return 1;
}

static int refuse(search_t *s, const pipe_layout_t *l, const char *why)
{
    if (!grow((void **)&s->refused, s->refuseds, &s->refused_room, sizeof *s->refused))
        return 0;
    refused_t *r = &s->refused[s->refuseds++];
    *r = (refused_t){.tp = l->tp, .pp = l->pp, .dp = l->dp};
    snprintf(r->why, sizeof r->why, "%s", why);
    return 1;
}

/* ---- one split ----------------------------------------------------------------------------------------------------- */

typedef struct {
    int any;            /* a layout was legal */
    double least;       /* bytes of the leanest */
    pipe_layout_t lean; /* itself */
    model_recompute_t lean_recompute;
    char why[PIPE_LAYOUT_WHY]; /* of the last one that was not */
} tried_t;

/* The fastest of ZeRO stages, recomputation and sequence parallelism that fits, for a recipe that has all the rest. */
static int fastest(search_t *s, pipe_recipe_t *r, tried_t *tried)
{
    const plan_machine_t *machine = &s->q->machine;
    plan_base_t base = s->base;
    found_t best = {.time.step = -1.0};
    plan_base_layout(r, &base);
    for (int zero = 0; zero <= (r->layout.dp > 1 ? 3 : 0); zero++)
        for (int sequence = 0; sequence <= (r->layout.tp > 1 && r->model.seq % r->layout.tp == 0 ? 1 : 0);
             sequence++)
            for (int recompute = 0; recompute <= (int)MODEL_RECOMPUTE_FULL; recompute++) {
                plan_memory_t memory = {0};
                plan_time_t time;
                r->layout.zero = zero;
                r->layout.sequence = sequence;
                r->recompute = (model_recompute_t)recompute;
                s->tried++;
                plan_memory_worst(r, &base, &s->q->memory, &memory);
                double bytes = (double)memory.total + machine->reserve;
                if (tried->least <= 0.0 || bytes < tried->least) {
                    tried->least = bytes;
                    tried->lean = r->layout;
                    tried->lean_recompute = r->recompute;
                }
                if (bytes > machine->memory)
                    continue;
                plan_time(r, &base, machine, &time);
                /* what is not faster by a thousandth is taken only if it is leaner */
                if (best.time.step < 0.0 || time.step < best.time.step * 0.999 ||
                    (time.step <= best.time.step * 1.001 && memory.total < best.memory.total))
                    best = (found_t){*r, time, memory};
            }
    return best.time.step < 0.0 || keep(s, &best);
}

static int try_schedule(search_t *s, pipe_recipe_t *r, pipe_kind_t schedule, size_t chunks, tried_t *tried)
{
    char why[PIPE_LAYOUT_WHY];
    r->layout.schedule = schedule;
    r->layout.chunks = chunks;
    r->layout.zero = r->layout.sequence = 0;
    if (!pipe_layout_works(&r->layout, &r->model, s->q->gpus, &r->batch, why)) {
        if (!tried->any)
            memcpy(tried->why, why, sizeof why);
        return 1;
    }
    tried->any = 1;
    return fastest(s, r, tried);
}

static int try_kind(search_t *s, pipe_recipe_t *r, pipe_kind_t kind, tried_t *tried)
{
    const size_t pp = r->layout.pp;
    if (pp == 1 ? kind != PIPE_1F1B : s->q->one_schedule && kind != s->q->recipe.layout.schedule)
        return 1;
    if (!pipe_kind_row(kind)->any_chunks)
        return try_schedule(s, r, kind, (size_t)pipe_kind_chunks(kind), tried);
    for (size_t chunks = 2; chunks <= MOST_CHUNKS; chunks++)
        if ((chunks == 2 || r->model.layers % (chunks * pp) == 0) && !try_schedule(s, r, kind, chunks, tried))
            return 0;
    return 1;
}

static int try_split(search_t *s, size_t tp, size_t pp, size_t dp)
{
    pipe_recipe_t r = s->q->recipe;
    tried_t tried = {0};
    const size_t kept = s->founds;
    r.nodes = 0;
    r.layout.tp = tp;
    r.layout.pp = pp;
    r.layout.dp = dp;
    r.batch.groups = 0;
    plan_fit_leaves(&r.model, tp);
    char text[PIPE_LAYOUT_WHY + 64];
    if (r.model.heads % tp != 0 || r.model.kv_heads % tp != 0) {
        size_t heads = r.model.heads % tp != 0 ? r.model.heads : r.model.kv_heads;
        snprintf(text, sizeof text, "%zu heads%s are not divisible by tp", heads,
                 heads == r.model.heads ? "" : " of keys and values");
        return refuse(s, &r.layout, text);
    }
    pipe_recipe_complete(&r);
    const size_t leaf = optim_batch_complete(&r.batch).leaf; /* micro-batches are whole ones */
    for (size_t micro = leaf; micro <= LARGEST_MICRO * leaf && (micro == leaf || micro * dp <= r.batch.batch);
         micro *= 2) {
        r.layout.micro_batch = micro;
        for (pipe_kind_t k = 0; k < PIPE_KIND_END; k++)
            if (!pipe_kind_row(k)->dominated && !try_kind(s, &r, k, &tried))
                return 0;
    }
    if (!tried.any)
        return refuse(s, &r.layout, tried.why);
    if (s->founds > kept)
        return 1;
    snprintf(text, sizeof text,
             "out of memory: %.1f GiB at least (ZeRO %d, micro-batch %zu, recompute %s%s), of %.0f",
             tried.least / GIB, tried.lean.zero, tried.lean.micro_batch,
             pipe_recompute_name(tried.lean_recompute), tried.lean.sequence ? ", sequence parallel" : "",
             s->q->machine.memory / GIB);
    return refuse(s, &r.layout, text);
}

/* ---- all ------------------------------------------------------------------------------------------------------------ */

static int by_time(const void *a, const void *b)
{
    const found_t *x = a, *y = b;
    if (x->time.step != y->time.step)
        return x->time.step < y->time.step ? -1 : 1;
    return (x->memory.total > y->memory.total) - (x->memory.total < y->memory.total);
}

static int search_all(search_t *s)
{
    const size_t gpus = s->q->gpus;
    for (size_t tp = 1; tp <= gpus && tp <= (size_t)s->q->machine.per_node; tp *= 2)
        for (size_t pp = 1; gpus % tp == 0 && pp <= gpus / tp; pp++)
            if (gpus / tp % pp == 0 && !try_split(s, tp, pp, gpus / tp / pp))
                return 0;
    if (s->founds)
        qsort(s->found, s->founds, sizeof s->found[0], by_time);
    return 1;
}

static json_t *found_json(const found_t *f)
{
    const pipe_layout_t *l = &f->recipe.layout;
    return json_pack("{s:I, s:I, s:I, s:I, s:s, s:I, s:i, s:b, s:s, s:f, s:f, s:f, s:I}", "tp",
                     (json_int_t)l->tp, "pp", (json_int_t)l->pp, "dp", (json_int_t)l->dp, "micro_batch",
                     (json_int_t)l->micro_batch, "schedule", pipe_kind_name(l->schedule), "chunks",
                     (json_int_t)l->chunks, "zero", l->zero, "sequence_parallel", l->sequence, "recompute",
                     pipe_recompute_name(f->recipe.recompute), "step_s", f->time.step, "mfu", f->time.mfu,
                     "bubble", f->time.bubble, "bytes", (json_int_t)f->memory.total);
}

static void print_found(size_t place, const found_t *f)
{
    const pipe_layout_t *l = &f->recipe.layout;
    char schedule[48];
    if (l->pp == 1)
        snprintf(schedule, sizeof schedule, "-");
    else if (l->chunks > 1 && pipe_kind_row(l->schedule)->any_chunks)
        snprintf(schedule, sizeof schedule, "%s x %zu", pipe_kind_name(l->schedule), l->chunks);
    else
        snprintf(schedule, sizeof schedule, "%s", pipe_kind_name(l->schedule));
    printf("%5zu %3zu %4zu %5zu %6zu  %-16s %4d %4s  %-10s %10.3f %6.1f %8.1f %10.1f\n", place, l->tp, l->pp,
           l->dp, l->micro_batch, schedule, l->zero, l->sequence ? "yes" : "no",
           pipe_recompute_name(f->recipe.recompute), f->time.step, 100.0 * f->time.mfu,
           100.0 * f->time.bubble, (double)f->memory.total / GIB);
}

static void print_refused(const search_t *s)
{
    if (!s->refuseds)
        return;
    printf("\nrefused, of %zu splits:\n", s->refuseds);
    for (size_t i = 0; i < s->refuseds && i < SHOWN_REFUSED; i++) {
        const refused_t *r = &s->refused[i];
        printf("  tp %zu x pp %zu x dp %zu: %s\n", r->tp, r->pp, r->dp, r->why);
    }
    if (s->refuseds > SHOWN_REFUSED)
        printf("  and %zu more (--json has all)\n", s->refuseds - SHOWN_REFUSED);
}

/* The recipe's own layout, if it is one of this many ranks. */
static void print_own(const search_t *s)
{
    const pipe_recipe_t *r = &s->q->recipe;
    plan_base_t base = s->base;
    plan_time_t time;
    plan_memory_t memory = {0};
    if (r->layout.tp * r->layout.pp * r->layout.dp != s->q->gpus)
        return;
    plan_base_layout(r, &base);
    plan_time(r, &base, &s->q->machine, &time);
    plan_memory_worst(r, &base, &s->q->memory, &memory);
    found_t own = {*r, time, memory};
    size_t place = 1;
    while (place <= s->founds && s->found[place - 1].time.step < time.step)
        place++;
    printf("the recipe's own:\n");
    print_found(place, &own);
}

static int print_all(const search_t *s)
{
    const plan_question_t *q = s->q;
    json_t *found = json_array(), *refused = json_array();
    printf("%s on %zu %s of %.0f GiB (%.1f reserved): %zu layouts tried, %zu kept\n\n", q->recipe.name,
           q->gpus, q->machine.name, q->machine.memory / GIB, q->machine.reserve / GIB, s->tried, s->founds);
    printf("%5s %3s %4s %5s %6s  %-16s %4s %4s  %-10s %10s %6s %8s %10s\n", "place", "tp", "pp", "dp",
           "micro", "schedule", "ZeRO", "seq", "recompute", "step s", "MFU %", "bubble %", "GiB");
    for (size_t i = 0; i < s->founds && i < q->top; i++) {
        print_found(i + 1, &s->found[i]);
        json_array_append_new(found, found_json(&s->found[i]));
    }
    print_own(s);
    print_refused(s);
    for (size_t i = 0; i < s->refuseds; i++)
        json_array_append_new(refused, json_pack("{s:I, s:I, s:I, s:s}", "tp", (json_int_t)s->refused[i].tp,
                                                 "pp", (json_int_t)s->refused[i].pp, "dp",
                                                 (json_int_t)s->refused[i].dp, "why", s->refused[i].why));
    return plan_json_write(q,
                           json_pack("{s:s, s:s, s:I, s:s, s:I, s:o, s:o}", "version", GYRE_VERSION, "recipe",
                                     q->recipe.name, "gpus", (json_int_t)q->gpus, "machine", q->machine.name,
                                     "tried", (json_int_t)s->tried, "found", found, "refused", refused));
}

int plan_search_question(int argc, char **argv)
{
    plan_question_t q;
    int code = plan_question(argc, argv, PLAN_FOR_SEARCH, help, &q);
    if (code != PLAN_OK)
        return code < 0 ? PLAN_OK : code;
    search_t s = {.q = &q};
    if (plan_base(&q.recipe, &s.base) != GYRE_OK)
        return PLAN_FAILED;
    code = search_all(&s) ? print_all(&s) : PLAN_FAILED;
    if (code == PLAN_OK && s.founds == 0) {
        fprintf(
            stderr,
            "gyre-plan search: no layout fits: take more accelerators, or ones with more memory (--hbm)\n");
        code = PLAN_FAILED;
    }
    free(s.found);
    free(s.refused);
    return code;
}
