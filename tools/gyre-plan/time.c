/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-plan/time.c: `gyre-plan time`: how long a step takes, what it sends, and how near that comes
 * to what was measured. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/gyre-plan/plan.h"
#include "tools/gyre-plan/time_rows.h"

static const char help[] = "usage: gyre-plan time [--recipe FILE] [flags]\n"
                           "       gyre-plan time --recipe FILE --rows TABLE [--fit ROW,ROW,...]\n"
                           "\n"
                           "Prints an estimate of a step's time by parts, TFLOP/s per rank, MFU and HFU, "
                           "tokens per second, and what a rank of\n"
                           "the busiest stage sends in each group. With --rows it prints the estimate of "
                           "each row of a table of measured runs\n"
                           "next to the measurement.\n";

static json_t *time_json(const plan_time_t *t)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, "
                     "s:f, s:f, s:f, s:f, s:f, s:f}",
                     "step_s", t->step, "slot_compute_s", t->compute, "slot_memory_s", t->memory, "update_s",
                     t->update, "slot_tp_s", t->tp, "slot_cp_s", t->cp, "slot_ep_s", t->ep, "slot_overhead_s",
                     t->overhead, "slot_hops_s", t->hops, "slots", t->slots, "bubble", t->bubble, "dp_s",
                     t->dp, "model_flops", t->model_flops, "hardware_flops", t->hardware_flops, "tflops",
                     t->teraflops, "mfu", t->mfu, "hfu", t->hfu, "tokens_per_s", t->tokens, "tp_bytes",
                     t->volume.tp, "cp_bytes", t->volume.cp, "ep_bytes", t->volume.ep, "pp_bytes",
                     t->volume.pp, "dp_bytes", t->volume.dp);
}

static json_t *machine_json(const plan_machine_t *m, const plan_software_t *s)
{
    return json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:i, s:s}", "name", m->name, "peak_tflops",
                     m->peak / 1e12, "intra_gbs", m->intra / 1e9, "inter_gbs", m->inter / 1e9,
                     "bandwidth_gbs", m->bandwidth / 1e9, "efficiency", m->efficiency, "overhead_ms",
                     m->overhead * 1e3, "per_node", m->per_node, "software", s->name);
}

/* ", 0.1 ms to ..."; nothing if the figure is 0. */
static void print_term(double value, const char *unit)
{
    if (value > 0.0)
        printf(", %.4g %s", value, unit);
}

static void print_machine(const plan_machine_t *m, const plan_software_t *s)
{
    printf("on %s: peak %.1f TFLOP/s", m->name, m->peak / 1e12);
    if (s->fp8)
        printf(", %.1f in fp8", m->peak8 / 1e12);
    printf(", of which products achieve %.3f", m->efficiency);
    print_term(m->overhead * 1e3, "ms more per layer and micro-batch");
    printf("; %.4g GB/s inside a node of %d, %.4g to others\n", m->intra / 1e9, m->per_node, m->inter / 1e9);
    printf("with the software %s", s->name);
    if (s->attention < 1.0 || s->attention > 1.0)
        print_term(s->attention, "times the rate for attention's products");
    print_term(s->host * 1e3, "ms to launch a layer");
    print_term(s->latency * 1e6, "us more per tensor-parallel collective");
    print_term(s->step * 1e3, "ms more per step");
    printf("; figures: %s\n", s->source);
}

static void print_time(const pipe_recipe_t *r, const plan_base_t *base, const plan_time_t *t)
{
    double slot = t->compute + t->memory + t->tp + t->cp + t->ep + t->overhead + t->hops;
    printf("\nstep        %10.4f s   %.2f slots of %.4f s, %.4f s for gradients and weights between "
           "replicas, %.4f s for the optimizer and the rest\n",
           t->step, t->slots, slot, t->dp, t->update);
    printf("  slot      %10.4f s   one micro-batch of %zu on the slowest stage: products %.4f, "
           "tensor-parallel %.4f,\n",
           slot, base->micro_batches, t->compute, t->tp);
    printf("                           memory's traffic %.4f, waiting for the host and other %.4f, "
           "neighbours %.4f\n",
           t->memory, t->overhead, t->hops);
    if (pipe_layout_context(&r->layout) > 1)
        printf("                           ranks that share sequences %.4f\n", t->cp);
    if (pipe_layout_experts(&r->layout) > 1)
        printf("                           ranks that share experts %.4f\n", t->ep);
    printf("  bubble    %10.1f %%   of the step\n", 100.0 * t->bubble);
    printf("TFLOP/s     %10.2f     per rank, as the hardware does them (recompute %s)\n", t->teraflops,
           pipe_recompute_name(r->recompute));
    printf("MFU, HFU    %10.1f %%   %.1f %%\n", 100.0 * t->mfu, 100.0 * t->hfu);
    printf("tokens/s    %10.0f\n", t->tokens);
    printf("sent        %10.3f GB  in the tensor-parallel group, %.3f GB to pipeline neighbours, %.3f GB "
           "between replicas\n",
           t->volume.tp / 1e9, t->volume.pp / 1e9, t->volume.dp / 1e9);
    if (pipe_layout_context(&r->layout) > 1)
        printf("            %10.3f GB  to ranks that share sequences\n", t->volume.cp / 1e9);
    if (pipe_layout_experts(&r->layout) > 1)
        printf("            %10.3f GB  to ranks that share experts\n", t->volume.ep / 1e9);
}

static int one(const plan_question_t *q)
{
    plan_base_t base;
    plan_time_t t;
    if (plan_base(&q->recipe, &base) != GYRE_OK)
        return PLAN_FAILED;
    plan_time(&q->recipe, &base, &q->machine, &q->software, &t);
    plan_print_recipe(&q->recipe, &base);
    print_machine(&q->machine, &q->software);
    print_time(&q->recipe, &base, &t);
    json_t *root = plan_json_recipe(&q->recipe, &base);
    if (root)
        json_object_update_new(root,
                               json_pack("{s:o, s:o}", "machine", machine_json(&q->machine, &q->software),
                                         "time", time_json(&t)));
    return plan_json_write(q, root);
}

static void print_errors(const char *of, plan_errors_t e)
{
    if (e.rows)
        printf("%s: %zu rows, median error %.2f %%, 90 %% of them within %.2f %%, largest %.2f %%\n", of,
               e.rows, 100.0 * e.median, 100.0 * e.ninety, 100.0 * e.worst);
}

static json_t *errors_json(plan_errors_t e)
{
    return json_pack("{s:I, s:f, s:f, s:f}", "rows", (json_int_t)e.rows, "median", e.median, "ninety",
                     e.ninety, "worst", e.worst);
}

/* The operations of the row over its measured time: what its log should have printed, if it counts as we
 * do. */
static double from_seconds(const plan_row_t *row, const plan_time_t *t)
{
    return t->teraflops * t->step / row->seconds;
}

static int table(const plan_question_t *q)
{
    plan_rows_t rows;
    int code = plan_rows_read(q, &rows);
    if (code != PLAN_OK)
        return code;
    plan_machine_t machine = q->machine;
    if (q->fits)
        plan_fit(&rows, q->fit, q->fits, &q->software, &machine);
    if (q->fits && machine.efficiency >= 0.999)
        fprintf(stderr,
                "gyre-plan time: --fit: efficiency ended at 1: these rows are faster than --inter and "
                "--overlap let them be; change those\n");
    double *step = calloc(2 * rows.rows, sizeof *step), *count = step ? step + rows.rows : NULL;
    json_t *list = json_array();
    if (!step || !list) {
        fprintf(stderr, "gyre-plan time: no memory left\n");
        free(step);
        plan_rows_free(&rows);
        return PLAN_FAILED;
    }
    print_machine(&machine, &q->software);
    printf("\n%5s %6s %6s %5s %4s %3s %3s %5s %6s %10s %10s %8s %9s %9s\n", "row", "layers", "hidden",
           "heads", "dp", "tp", "pp", "micro", "global", "measured s", "estimate s", "error %", "printed",
           "counted");
    size_t steps = 0, counts = 0;
    for (size_t i = 0; i < rows.rows; i++) {
        const plan_row_t *row = &rows.row[i];
        const pipe_layout_t *l = &row->recipe.layout;
        plan_time_t t;
        if (!(row->seconds > 0.0))
            continue;
        plan_time(&row->recipe, &row->base, &machine, &q->software, &t);
        double error = t.step / row->seconds - 1.0, counted = from_seconds(row, &t);
        int own = plan_is_fitted(q, i + 1);
        if (!own)
            step[steps++] = fabs(error);
        if (row->teraflops > 0.0)
            count[counts++] = fabs(counted / row->teraflops - 1.0);
        printf("%4zu%c %6zu %6zu %5zu %4zu %3zu %3zu %5zu %6zu %10.2f %10.2f %+8.1f %9.2f %9.2f\n", i + 1,
               own ? '*' : ' ', row->recipe.model.layers, row->recipe.model.hidden, row->recipe.model.heads,
               l->dp, l->tp, l->pp, l->micro_batch, row->recipe.batch.batch, row->seconds, t.step,
               100.0 * error, row->teraflops, counted);
        json_array_append_new(list, json_pack("{s:I, s:b, s:f, s:f, s:f, s:f, s:o}", "row",
                                              (json_int_t)(i + 1), "fitted", own, "measured_s", row->seconds,
                                              "estimate_s", t.step, "printed_tflops", row->teraflops,
                                              "counted_tflops", counted, "time", time_json(&t)));
    }
    plan_errors_t of_steps = plan_errors(step, steps), of_counts = plan_errors(count, counts);
    putchar('\n');
    print_errors(q->fits ? "step time, rows that were not fitted" : "step time", of_steps);
    print_errors("TFLOP/s counted from the measured time, against those printed", of_counts);
    free(step);
    plan_rows_free(&rows);
    return plan_json_write(q, json_pack("{s:s, s:o, s:o, s:o, s:o}", "version", GYRE_VERSION, "machine",
                                        machine_json(&machine, &q->software), "rows", list, "step_errors",
                                        errors_json(of_steps), "tflops_errors", errors_json(of_counts)));
}

int plan_time_question(int argc, char **argv)
{
    plan_question_t q;
    int code = plan_question(argc, argv, PLAN_FOR_TIME, help, &q);
    if (code != PLAN_OK)
        return code < 0 ? PLAN_OK : code;
    return q.rows ? table(&q) : one(&q);
}
