/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-plan/search.c: `gyre-plan search`: prints the fastest layouts of a model on N accelerators
 * (pipeline/plan/search.h). */
#include <stdio.h>

#include "pipeline/plan/search.h"
#include "tools/gyre-plan/plan.h"
#include "tools/gyre-plan/recipe.h"
#include "pipeline/schedules/kinds.h"

#define GIB 1073741824.0
enum { SHOWN_REFUSED = 16 };

static const char help[] =
    "usage: gyre-plan search [--recipe FILE] [--gpus N] [flags]\n"
    "\n"
    "Tries every layout of the recipe's model and batch on N accelerators: tensor, pipeline and data "
    "parallelism, context\n"
    "parallelism up to --sequence-parts, expert parallelism, micro-batch, schedule, ZeRO stage, "
    "recomputation, sequence\n"
    "parallelism. Prints the fastest that fit into memory by the estimates of gyre-plan time and memory, and "
    "why splits\n"
    "were refused.\n";

static json_t *found_json(const plan_found_t *f)
{
    const pipe_layout_t *l = &f->recipe.layout;
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:I, s:i, s:b, s:s, s:f, s:f, s:f, s:I}", "tp",
                     (json_int_t)l->tp, "leaves", (json_int_t)f->recipe.model.leaves, "cp",
                     (json_int_t)pipe_layout_context(l), "ep", (json_int_t)pipe_layout_experts(l), "pp",
                     (json_int_t)l->pp, "dp", (json_int_t)l->dp, "micro_batch", (json_int_t)l->micro_batch,
                     "schedule", pipe_kind_name(l->schedule), "chunks", (json_int_t)l->chunks, "zero",
                     l->zero, "sequence_parallel", l->sequence, "recompute",
                     pipe_recompute_name(f->recipe.recompute), "step_s", f->time.step, "mfu", f->time.mfu,
                     "bubble", f->time.bubble, "bytes", (json_int_t)f->bytes);
}

/* note: text after the row */
static void print_found(size_t place, const plan_found_t *f, const char *note)
{
    const pipe_layout_t *l = &f->recipe.layout;
    char schedule[48];
    if (l->pp == 1)
        snprintf(schedule, sizeof schedule, "-");
    else if (l->chunks > 1 && pipe_kind_row(l->schedule)->any_chunks)
        snprintf(schedule, sizeof schedule, "%s x %zu", pipe_kind_name(l->schedule), l->chunks);
    else
        snprintf(schedule, sizeof schedule, "%s", pipe_kind_name(l->schedule));
    printf("%5zu %3zu %3zu %4zu %4zu %5zu %6zu  %-16s %4d %4s  %-10s %10.3f %6.1f %8.1f %10.1f%s\n", place,
           l->tp, pipe_layout_context(l), pipe_layout_experts(l), l->pp, l->dp, l->micro_batch, schedule,
           l->zero, l->sequence ? "yes" : "no", pipe_recompute_name(f->recipe.recompute), f->time.step,
           100.0 * f->time.mfu, 100.0 * f->time.bubble, (double)f->bytes / GIB, note);
}

static void print_refused(const plan_search_t *s)
{
    if (!s->refuseds)
        return;
    printf("\nrefused, of %zu splits:\n", s->refuseds);
    for (size_t i = 0; i < s->refuseds && i < SHOWN_REFUSED; i++) {
        const plan_refused_t *r = &s->refused[i];
        printf("  tp %zu x ", r->tp);
        if (r->cp > 1)
            printf("cp %zu x ", r->cp);
        printf("pp %zu x dp %zu: %s\n", r->pp, r->dp, r->why);
    }
    if (s->refuseds > SHOWN_REFUSED)
        printf("  and %zu more (--json has all)\n", s->refuseds - SHOWN_REFUSED);
}

/* What gyre-train needs in addition to the row: leaves that the model does not have by itself. */
static void print_place(const plan_question_t *q, size_t place, const plan_found_t *f)
{
    char note[48] = "";
    if (q->trainer && f->recipe.model.leaves != q->recipe.model.leaves)
        snprintf(note, sizeof note, "  --leaves %zu", f->recipe.model.leaves);
    print_found(place, f, note);
}

/* The recipe's own layout, if it is one of this many ranks that works. */
static void print_own(const plan_question_t *q, const plan_search_t *s)
{
    const pipe_recipe_t *r = &q->recipe;
    plan_base_t base = s->base;
    plan_time_t time;
    size_t bytes;
    char why[PIPE_LAYOUT_WHY];
    if (!pipe_layout_works(&r->layout, &r->model, q->gpus, &r->batch, why) ||
        (q->trainer && !pipe_recipe_grows(r, why)))
        return;
    plan_base_layout(r, &base);
    plan_time(r, &base, &q->machine, &q->software, &time);
    if (plan_search_bytes(s, r, &base, &bytes) != GYRE_OK)
        return;
    plan_found_t own = {*r, time, bytes};
    size_t place = 1;
    while (place <= s->founds && s->found[place - 1].time.step < time.step)
        place++;
    printf("the recipe's own:\n");
    print_found(place, &own, plan_fits(q, bytes) ? "" : ": out of memory");
}

static int print_all(const plan_question_t *q, const plan_search_t *s)
{
    json_t *found = json_array(), *refused = json_array();
    printf("%s on %zu %s of %.1f GiB (%.1f reserved): %zu layouts tried, %zu kept\n\n", q->recipe.name,
           q->gpus, q->machine.name, q->machine.memory / GIB, q->machine.reserve / GIB, s->tried, s->founds);
    if (s->founds)
        printf("%5s %3s %3s %4s %4s %5s %6s  %-16s %4s %4s  %-10s %10s %6s %8s %10s\n", "place", "tp", "cp",
               "ep", "pp", "dp", "micro", "schedule", "ZeRO", "seq", "recompute", "step s", "MFU %",
               "bubble %", "GiB");
    for (size_t i = 0; i < s->founds && i < q->top; i++) {
        print_place(q, i + 1, &s->found[i]);
        json_array_append_new(found, found_json(&s->found[i]));
    }
    if (s->founds)
        print_own(q, s);
    print_refused(s);
    for (size_t i = 0; i < s->refuseds; i++)
        json_array_append_new(refused,
                              json_pack("{s:I, s:I, s:I, s:I, s:s}", "tp", (json_int_t)s->refused[i].tp, "cp",
                                        (json_int_t)s->refused[i].cp, "pp", (json_int_t)s->refused[i].pp,
                                        "dp", (json_int_t)s->refused[i].dp, "why", s->refused[i].why));
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
    plan_search_t s = {.recipe = q.recipe,
                       .machine = q.machine,
                       .software = q.software,
                       .gpus = q.gpus,
                       .one_schedule = q.one_schedule,
                       .trainer = q.trainer ? &q.own : NULL};
    if (q.trainer && !q.one_balance) /* what gyre-train takes with --pp */
        s.recipe.layout.balance = 0;
    code = plan_search(&s) ? print_all(&q, &s) : PLAN_FAILED;
    if (code == PLAN_OK && s.founds == 0) {
        fflush(stdout); /* the verdict stands below */
        fprintf(
            stderr,
            "gyre-plan search: no layout fits: take more accelerators, or ones with more memory (--hbm)\n");
        code = PLAN_FAILED;
    }
    plan_search_free(&s);
    return code;
}
