/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-plan/memory.c: `gyre-plan memory`: what each stage of a recipe holds, byte by byte. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/settings/size.h"
#include "tools/gyre-plan/plan.h"
#include "tools/gyre-plan/time_rows.h"

#define GIB 1073741824.0
#define MIB 1048576.0

static const char help[] = "usage: gyre-plan memory [--recipe FILE] [flags]\n"
                           "\n"
                           "Prints for each stage of the pipeline what one of its ranks holds, by kind: "
                           "weights, gradients, optimizer state,\n"
                           "activations at their peak, what embedding and head keep, what recomputation "
                           "needs at a time, buffers. Sizes are\n"
                           "those of the rank with the largest data-parallel shard.\n";

static json_t *stage_json(size_t stage, const plan_memory_t *m)
{
    return json_pack("{s:I, s:I, s:b, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "stage",
                     (json_int_t)stage, "layers", (json_int_t)m->holds.layers, "embedding", m->holds.embed,
                     "head", m->holds.head, "parameters", (json_int_t)m->parameters, "shard",
                     (json_int_t)m->shard, "in_flight", (json_int_t)m->in_flight, "weights",
                     (json_int_t)m->weights, "gradients", (json_int_t)m->gradients, "optimizer",
                     (json_int_t)m->optimizer, "activations", (json_int_t)m->activations, "ends",
                     (json_int_t)m->ends, "working", (json_int_t)m->working, "buffers",
                     (json_int_t)m->buffers, "total", (json_int_t)m->total);
}

/* In which sizes like the largest are printed. */
static double unit(size_t largest)
{
    return (double)largest < GIB / 2 ? MIB : GIB;
}

static const char *unit_name(double size)
{
    return size < GIB ? "MiB" : "GiB";
}

static void print_stage(size_t stage, const plan_memory_t *m, double size)
{
    const double bytes[] = {(double)m->weights,     (double)m->gradients, (double)m->optimizer,
                            (double)m->activations, (double)m->ends,      (double)m->working,
                            (double)m->buffers,     (double)m->total};
    printf("%5zu %6zu%s%s %14zu %9zu", stage, m->holds.layers, m->holds.embed ? "+e" : "  ",
           m->holds.head ? "+h" : "  ", m->parameters, m->in_flight);
    for (size_t i = 0; i < sizeof bytes / sizeof bytes[0]; i++)
        printf(" %10.3f", bytes[i] / size);
    putchar('\n');
}

/* A row's own column "extra" wins over the flag. */
static plan_software_t software_of(const plan_question_t *q, const plan_row_t *row)
{
    plan_software_t software = q->software;
    software.extra = row->extra < 0 ? software.extra : (size_t)row->extra;
    return software;
}

/* What is between estimate and measurement in the middle of the rows to fit; else the machine's. */
static double fit_reserve(const plan_question_t *q, const plan_rows_t *rows)
{
    double between[PLAN_FIT];
    size_t n = 0;
    for (size_t i = 0; i < q->fits; i++) {
        const plan_row_t *row = &rows->row[q->fit[i] - 1];
        const plan_software_t software = software_of(q, row);
        plan_memory_t m = {0};
        plan_memory_worst(&row->recipe, &row->base, &software, &m);
        if (row->memory > 0.0)
            between[n++] = row->memory * GIB - (double)m.total;
    }
    return n ? plan_errors(between, n).median : q->machine.reserve;
}

typedef struct {
    double *error; /* [errors] of rows that were measured and not fitted */
    size_t errors, failed, called, falsely;
    json_t *list;
} seen_t;

static void compare(const plan_question_t *q, size_t i, const plan_row_t *row, double reserve, seen_t *seen)
{
    const pipe_layout_t *l = &row->recipe.layout;
    const plan_software_t software = software_of(q, row);
    plan_memory_t m = {0};
    plan_memory_worst(&row->recipe, &row->base, &software, &m);
    double bytes = (double)m.total + reserve;
    int out = bytes > q->machine.memory;
    printf("%5zu %6zu %6zu %4zu %3zu %3zu %5zu %10.1f %10.1f ", i + 1, row->recipe.model.layers,
           row->recipe.model.hidden, l->dp, l->tp, l->pp, l->micro_batch,
           (double)(m.weights + m.gradients + m.optimizer) / GIB, bytes / GIB);
    if (row->memory < 0.0) {
        printf("%10s %8s\n", "none left", out ? "called" : "missed");
        seen->failed++;
        seen->called += out ? 1 : 0;
    } else {
        double part = bytes / GIB / row->memory - 1.0;
        printf("%10.0f %+8.1f%s\n", row->memory, 100.0 * part, out ? "  called out of memory" : "");
        if (!plan_is_fitted(q, i + 1))
            seen->error[seen->errors++] = fabs(part);
        seen->falsely += out ? 1 : 0;
    }
    json_array_append_new(seen->list,
                          json_pack("{s:I, s:f, s:f, s:b, s:f, s:f}", "row", (json_int_t)(i + 1), "estimate",
                                    bytes, "measured", row->memory, "out_of_memory", out, "reserve", reserve,
                                    "state", (double)(m.weights + m.gradients + m.optimizer)));
}

/* Measured runs: the estimate and what the driver takes, next to what was seen; for those that failed the
 * machine's memory. */
static int table(const plan_question_t *q)
{
    plan_rows_t rows;
    int code = plan_rows_read(q, &rows);
    if (code != PLAN_OK)
        return code;
    seen_t seen = {.error = calloc(rows.rows, sizeof *seen.error), .list = json_array()};
    if (!seen.error || !seen.list) {
        fprintf(stderr, "gyre-plan memory: no memory left\n");
        free(seen.error);
        json_decref(seen.list);
        plan_rows_free(&rows);
        return PLAN_FAILED;
    }
    double reserve = fit_reserve(q, &rows);
    printf("%5s %6s %6s %4s %3s %3s %5s %10s %10s %10s %8s\n", "row", "layers", "hidden", "dp", "tp", "pp",
           "micro", "state", "estimate", "measured", "error %");
    for (size_t i = 0; i < rows.rows; i++)
        if (rows.row[i].memory > 0.0 || rows.row[i].memory < 0.0)
            compare(q, i, &rows.row[i], reserve, &seen);
    plan_errors_t e = plan_errors(seen.error, seen.errors);
    printf("\n%.2f GiB for driver and allocator; %zu rows in GiB, median error %.1f %%, 90 %% of them within "
           "%.1f %%; "
           "%zu of %zu that were out of memory called, %zu called falsely\n",
           reserve / GIB, e.rows, 100.0 * e.median, 100.0 * e.ninety, seen.called, seen.failed, seen.falsely);
    free(seen.error);
    plan_rows_free(&rows);
    return plan_json_write(q,
                           json_pack("{s:s, s:o, s:f, s:I, s:I, s:I}", "version", GYRE_VERSION, "rows",
                                     seen.list, "median", e.median, "out_of_memory", (json_int_t)seen.failed,
                                     "called", (json_int_t)seen.called, "falsely", (json_int_t)seen.falsely));
}

/* ---- one run ------------------------------------------------------------------------------------------- */

static void print_head(double size)
{
    printf("\n%5s %-10s %14s %9s %10s %10s %10s %10s %10s %10s %10s %6s %s\n", "stage", "layers",
           "parameters", "in flight", "weights", "gradients", "optimizer", "activat.", "ends", "working",
           "buffers", "total", unit_name(size));
}

/* What most on stage `at` is, and whether the machine has it. */
static void print_worst(const plan_question_t *q, size_t at, size_t total)
{
    double size = unit(total);
    printf("\nmost on stage %zu: %.3f %s", at, (double)total / size, unit_name(size));
    if (q->have_machine) {
        char driver[BASE_SIZE_TEXT], all[BASE_SIZE_TEXT];
        printf(" and %s that the driver takes; %s has %s%s", base_size_about(q->machine.reserve, driver),
               q->machine.name, base_size_about(q->machine.memory, all),
               plan_fits(q, total) ? "" : ": out of memory");
    }
    putchar('\n');
}

/* Adds the stages, which it steals, and the verdict to what is known of the recipe. */
static json_t *memory_json(const plan_question_t *q, const plan_base_t *base, const char *key, json_t *stages,
                           size_t at, size_t total)
{
    json_t *root = plan_json_recipe(&q->recipe, base);
    if (!root || !stages) {
        json_decref(root);
        json_decref(stages);
        return NULL; /* plan_json_write says so */
    }
    json_t *more = json_pack("{s:o, s:I, s:O, s:b}", key, stages, "worst", (json_int_t)at, "worst_stage",
                             json_array_get(stages, at), "fits", plan_fits(q, total));
    if (!more || json_object_update_new(root, more)) {
        json_decref(root);
        root = NULL;
    }
    return root;
}

/* ---- of the papers' formulas --------------------------------------------------------------------------- */

static int formulas(const plan_question_t *q, const plan_base_t *base)
{
    const size_t pp = q->recipe.layout.pp;
    plan_memory_t most;
    const size_t at = plan_memory_worst(&q->recipe, base, &q->software, &most);
    const double size = unit(most.total), state = (double)(most.weights + most.gradients + most.optimizer);
    json_t *stages = json_array();
    plan_print_recipe(&q->recipe, base);
    print_head(size);
    for (size_t s = 0; s < pp; s++) {
        plan_memory_t m;
        plan_memory(&q->recipe, base, s, &q->software, &m);
        print_stage(s, &m, size);
        json_array_append_new(stages, stage_json(s, &m));
    }
    print_worst(q, at, most.total);
    printf("state: %.4f bytes per parameter\n", state / (double)most.parameters);
    return plan_json_write(q, memory_json(q, base, "stages", stages, at, most.total));
}

/* ---- of gyre-train ------------------------------------------------------------------------------------- */

enum { COLUMNS = OPTIM_MEMORY_KINDS + 2 };

static const char *column_name(int column)
{
    return column < OPTIM_MEMORY_KINDS    ? optim_memory_name((optim_memory_t)column)
           : column == OPTIM_MEMORY_KINDS ? "activations"
                                          : "total";
}

static size_t column_of(const plan_held_t *held, int column)
{
    return column < OPTIM_MEMORY_KINDS    ? held->store[column]
           : column == OPTIM_MEMORY_KINDS ? held->activations
                                          : held->total;
}

static void print_held(const plan_question_t *q, const plan_held_t *held, double size)
{
    printf("\nin gyre-train on %s, %s (buckets of %zu bytes, %zu leaves)\n%5s",
           q->own.device ? "GPUs" : "CPUs", unit_name(size), q->own.bucket_bytes, q->recipe.model.leaves,
           "stage");
    for (int k = 0; k < COLUMNS; k++)
        printf(" %12s", column_name(k));
    putchar('\n');
    for (size_t s = 0; s < q->recipe.layout.pp; s++) {
        printf("%5zu", s);
        for (int k = 0; k < COLUMNS; k++)
            printf(" %12.3f", (double)column_of(&held[s], k) / size);
        putchar('\n');
    }
}

static json_t *held_json(const plan_held_t *held, size_t stages)
{
    json_t *list = json_array();
    for (size_t s = 0; s < stages; s++) {
        json_t *stage = json_object();
        for (int k = 0; k < COLUMNS; k++)
            json_object_set_new(stage, column_name(k), json_integer((json_int_t)column_of(&held[s], k)));
        json_array_append_new(list, stage);
    }
    return list;
}

static int trainer(const plan_question_t *q, const plan_base_t *base)
{
    const size_t pp = q->recipe.layout.pp;
    plan_held_t *held = calloc(pp, sizeof *held);
    gyre_status_t status =
        held ? plan_trainer(&q->recipe, &q->own, 0, held)
             : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %zu stages", q->recipe.layout.pp);
    int code = PLAN_FAILED;
    if (status == GYRE_OK) {
        const size_t at = plan_trainer_worst(held, pp), total = held[at].total;
        plan_print_recipe(&q->recipe, base);
        if (q->own.lora.rank > 0)
            printf("adapters of rank %zu alone are trained\n", q->own.lora.rank);
        print_held(q, held, unit(total));
        print_worst(q, at, total);
        code = plan_json_write(q, memory_json(q, base, "trainer", held_json(held, pp), at, total));
    }
    free(held);
    return code;
}

static int one(const plan_question_t *q)
{
    plan_base_t base;
    if (plan_base(&q->recipe, &base) != GYRE_OK)
        return PLAN_FAILED;
    return q->trainer ? trainer(q, &base) : formulas(q, &base);
}

int plan_memory_question(int argc, char **argv)
{
    plan_question_t q;
    int code = plan_question(argc, argv, PLAN_FOR_MEMORY, help, &q);
    if (code != PLAN_OK)
        return code < 0 ? PLAN_OK : code;
    return q.rows ? table(&q) : one(&q);
}
