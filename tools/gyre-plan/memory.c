/* tools/gyre-plan/memory.c: `gyre-plan memory`: what each stage of a recipe holds, byte by byte. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/gyre-plan/plan.h"
#include "tools/gyre-plan/time_rows.h"

#define GIB 1073741824.0

static const char help[] =
    "usage: gyre-plan memory [--recipe FILE] [flags]\n"
    "\n"
    "Prints for each stage of the pipeline what one of its ranks holds, by kind: "
    "weights, gradients, optimizer state,\n"
    "activations at their peak, what embedding and head keep, what recomputation "
    "needs at a time, buffers. Sizes are\n"
    "those of the rank with the largest data-parallel shard.\n"
    "\n"
    "  --bucket-bytes N        of a gradient bucket (default 26214400)\n"
    "  --rows TABLE            measured runs, as of gyre-plan time --rows; column memory is GB per rank, -1 "
    "where a run\n"
    "                          was out of memory; prints the estimate of each beside it\n"
    "  --fit ROW,...           first sets --reserve to what is between estimate and measurement in the "
    "middle of these\n"
    "                          rows; errors are then of the others\n"
    "  --reserve GIB           what driver, libraries and allocator take (default: the machine's)\n"
    "  --extra N               bytes per parameter that the software keeps besides (default 0; DeepSpeed's "
    "BF16\n"
    "                          optimizer: 2)\n"
    "  --json FILE             also writes all of it there, in bytes\n"
    "  -h, --help              this text\n"
    "\n";

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

static void print_stage(size_t stage, const plan_memory_t *m)
{
    const double bytes[] = {(double)m->weights,     (double)m->gradients, (double)m->optimizer,
                            (double)m->activations, (double)m->ends,      (double)m->working,
                            (double)m->buffers,     (double)m->total};
    printf("%5zu %6zu%s%s %14zu %9zu", stage, m->holds.layers, m->holds.embed ? "+e" : "  ",
           m->holds.head ? "+h" : "  ", m->parameters, m->in_flight);
    for (size_t i = 0; i < sizeof bytes / sizeof bytes[0]; i++)
        printf(" %10.3f", bytes[i] / GIB);
    putchar('\n');
}

/* A row's own column "extra" wins over the flag. */
static plan_software_t software_of(const plan_question_t *q, const plan_row_t *row)
{
    return (plan_software_t){.bucket = q->memory.bucket,
                             .extra = row->extra < 0 ? q->memory.extra : (size_t)row->extra};
}

static int fitted(const plan_question_t *q, size_t row)
{
    for (size_t i = 0; i < q->fits; i++)
        if (q->fit[i] == row)
            return 1;
    return 0;
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

/* Measured runs: the estimate and what the driver takes beside what was seen; the machine's memory beside those that failed. */
static int table(const plan_question_t *q)
{
    plan_rows_t rows;
    int code = plan_rows_read(q, &rows);
    if (code != PLAN_OK)
        return code;
    double *error = calloc(rows.rows, sizeof *error), reserve = fit_reserve(q, &rows);
    json_t *list = json_array();
    size_t errors = 0, failed = 0, called = 0, false_calls = 0;
    printf("%5s %6s %6s %4s %3s %3s %5s %10s %10s %10s %8s\n", "row", "layers", "hidden", "dp", "tp", "pp",
           "micro", "state", "estimate", "measured", "error %");
    for (size_t i = 0; error && i < rows.rows; i++) {
        const plan_row_t *row = &rows.row[i];
        const pipe_layout_t *l = &row->recipe.layout;
        const plan_software_t software = software_of(q, row);
        plan_memory_t m = {0};
        if (row->memory == 0.0)
            continue;
        plan_memory_worst(&row->recipe, &row->base, &software, &m);
        double bytes = (double)m.total + reserve;
        int out = bytes > q->machine.memory;
        printf("%5zu %6zu %6zu %4zu %3zu %3zu %5zu %10.1f %10.1f ", i + 1, row->recipe.model.layers,
               row->recipe.model.hidden, l->dp, l->tp, l->pp, l->micro_batch,
               (double)(m.weights + m.gradients + m.optimizer) / GIB, bytes / GIB);
        if (row->memory < 0.0) {
            printf("%10s %8s\n", "none left", out ? "called" : "missed");
            failed++;
            called += out ? 1 : 0;
        } else {
            double part = bytes / GIB / row->memory - 1.0;
            printf("%10.0f %+8.1f%s\n", row->memory, 100.0 * part, out ? "  called out of memory" : "");
            if (!fitted(q, i + 1))
                error[errors++] = fabs(part);
            false_calls += out ? 1 : 0;
        }
        json_array_append_new(list, json_pack("{s:I, s:f, s:f, s:b}", "row", (json_int_t)(i + 1), "estimate",
                                              bytes, "measured", row->memory, "out_of_memory", out));
    }
    plan_errors_t e = plan_errors(error, errors);
    printf("\n%.2f GiB for driver and allocator; %zu rows in GiB, median error %.1f %%, 90 %% of them within "
           "%.1f %%; %zu of %zu that were out "
           "of memory called, "
           "%zu called falsely\n",
           reserve / GIB, e.rows, 100.0 * e.median, 100.0 * e.ninety, called, failed, false_calls);
    free(error);
    plan_rows_free(&rows);
    return plan_json_write(q, json_pack("{s:s, s:o, s:f, s:I, s:I, s:I}", "version", GYRE_VERSION, "rows",
                                        list, "median", e.median, "out_of_memory", (json_int_t)failed,
                                        "called", (json_int_t)called, "falsely", (json_int_t)false_calls));
}

int plan_memory_question(int argc, char **argv)
{
    plan_question_t q;
    plan_base_t base;
    int code = plan_question(argc, argv, PLAN_FOR_MEMORY, help, &q);
    if (code != PLAN_OK)
        return code < 0 ? PLAN_OK : code;
    if (q.rows)
        return table(&q);
    if (plan_base(&q.recipe, &base) != GYRE_OK)
        return PLAN_FAILED;
    plan_print_recipe(&q.recipe, &base);
    printf("\n%5s %-10s %14s %9s %10s %10s %10s %10s %10s %10s %10s %10s\n", "stage", "layers", "parameters",
           "in flight", "weights", "gradients", "optimizer", "activations", "ends", "working", "buffers",
           "total GiB");
    json_t *stages = json_array();
    plan_memory_t worst = {0};
    size_t at = plan_memory_worst(&q.recipe, &base, &q.memory, &worst);
    for (size_t s = 0; s < q.recipe.layout.pp; s++) {
        plan_memory_t m;
        plan_memory(&q.recipe, &base, s, &q.memory, &m);
        print_stage(s, &m);
        json_array_append_new(stages, stage_json(s, &m));
    }
    double state = (double)(worst.weights + worst.gradients + worst.optimizer);
    printf("\nmost on stage %zu: %.3f GiB", at, (double)worst.total / GIB);
    if (q.have_machine)
        printf(" and %.1f GiB that the driver takes; %s has %.0f GiB%s", q.machine.reserve / GIB,
               q.machine.name, q.machine.memory / GIB,
               (double)worst.total + q.machine.reserve > q.machine.memory ? ": out of memory" : "");
    printf("\nstate: %.4f bytes per parameter\n", state / (double)worst.parameters);
    json_t *root = plan_json_recipe(&q.recipe, &base);
    if (root)
        json_object_update_new(root, json_pack("{s:o, s:I, s:o, s:b}", "stages", stages, "worst",
                                               (json_int_t)at, "worst_stage", stage_json(at, &worst), "fits",
                                               (double)worst.total + q.machine.reserve <= q.machine.memory));
    else
        json_decref(stages);
    return plan_json_write(&q, root);
}
