/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-plan/pipeline_svg.c: a pipeline schedule as one self-contained SVG file: a row per rank, time
 * to the right. */
#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/text/svg.h"
#include "tools/gyre-plan/pipeline.h"

/* SVG units */
#define LEFT       76.0
#define RIGHT      150.0
#define TOP        86.0
#define ROW        30.0
#define CELL       24.0
#define BOTTOM     64.0
#define LEAST_PLOT 560.0
#define MOST_PLOT  6000.0
#define UNIT       26.0 /* of the shortest action, if all fits */

static const char style[] =
    "text{font-family:'DejaVu Sans',Verdana,Helvetica,Arial,sans-serif;font-size:11px;fill:#1f2a3d}\n"
    ".h1{font-size:17px;font-weight:bold}.h2{font-size:12px;fill:#55617a}.r{text-anchor:end;font-weight:bold}"
    "\n"
    ".c{text-anchor:middle;font-size:10px}.x{text-anchor:middle;fill:#55617a}.s{fill:#55617a}\n"
    ".idle{fill:#eef1f5}.grid{stroke:#c9d1dc;stroke-width:1}rect.a{stroke:#fff;stroke-width:1}\n"
    ".f0{fill:#7fb0e6}.f1{fill:#bcd7f3}.b0{fill:#f0a35e}.b1{fill:#f8d0ab}.w0{fill:#79bd8f}.w1{fill:#bfe0ca}"
    "\n";

typedef struct {
    const pipeline_t *p;
    FILE *out;
    double scale, plot; /* SVG units per unit of time; width of the plot */
} drawing_t;

static const char *class_of(const pipe_action_t *a)
{
    static const char *const names[3][2] = {{"f0", "f1"}, {"b0", "b1"}, {"w0", "w1"}};
    int what = a->op == PIPE_FORWARD ? 0 : a->op == PIPE_BACKWARD_WEIGHT ? 2 : 1;
    return names[what][a->chunk % 2];
}

static void text(drawing_t *d, double x, double y, const char *class, const char *words)
{
    base_svg_text(d->out, x, y, class, words);
}

static void draw_action(drawing_t *d, int rank, size_t i)
{
    const pipeline_t *p = d->p;
    const pipe_action_t *a = &p->schedule->action[rank][i];
    double x = LEFT + p->sim->start[rank][i] * d->scale;
    double width = (p->sim->end[rank][i] - p->sim->start[rank][i]) * d->scale, y = TOP + rank * ROW;
    char number[16];
    fprintf(d->out,
            "<rect class=\"a %s\" x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\"><title>%s, chunk %d "
            "(stage "
            "%d), micro-batch %d: %g to %g</title></rect>\n",
            class_of(a), x, y, width, CELL, pipe_op_name(a->op), a->chunk,
            pipe_stage_of(&p->schedule->shape, rank, a->chunk), a->micro_batch, p->sim->start[rank][i],
            p->sim->end[rank][i]);
    int length = snprintf(number, sizeof number, "%d", a->micro_batch);
    if (width >= 7.0 * length + 2.0)
        text(d, x + width / 2, y + CELL / 2 + 3.5, "c", number);
}

static void draw_rank(drawing_t *d, int rank)
{
    const pipeline_t *p = d->p;
    char words[96];
    double y = TOP + rank * ROW;
    base_svg_rect(d->out, LEFT, y, d->plot, CELL, 0, "idle");
    snprintf(words, sizeof words, "rank %d", rank);
    text(d, LEFT - 8, y + CELL / 2 + 4, "r", words);
    for (size_t i = 0; i < p->schedule->count[rank]; i++)
        if (pipe_op_computes(p->schedule->action[rank][i].op))
            draw_action(d, rank, i);
    snprintf(words, sizeof words, "%d held, %.0f %% idle", p->sim->activations[rank],
             p->sim->makespan > 0 ? 100 * (1 - p->sim->busy[rank] / p->sim->makespan) : 0.0);
    text(d, LEFT + d->plot + 8, y + CELL / 2 + 4, "s", words);
}

static void draw_axis(drawing_t *d)
{
    double span = d->p->sim->makespan, step = base_svg_tick(span, 10),
           y = TOP + d->p->schedule->shape.ranks * ROW;
    char number[32];
    for (int i = 0; i * step <= span * (1 + 1e-9); i++) {
        double x = LEFT + i * step * d->scale;
        base_svg_line(d->out, x, y - 2, x, y + 4, "grid");
        snprintf(number, sizeof number, "%g", i * step);
        text(d, x, y + 17, "x", number);
    }
}

static void draw_legend(drawing_t *d)
{
    const pipe_shape_t *shape = &d->p->schedule->shape;
    int splits = pipe_kind_splits(shape->kind);
    const char *const names[3] = {"forward", splits ? "backward of the input" : "backward",
                                  "backward of the weights"};
    const char *const classes[3][2] = {{"a f0", "a f1"}, {"a b0", "a b1"}, {"a w0", "a w1"}};
    double x = LEFT, y = TOP + shape->ranks * ROW + 34;
    for (int i = 0; i < (splits ? 3 : 2); i++) {
        for (int odd = 0; odd < (shape->chunks > 1 ? 2 : 1); odd++, x += 16)
            base_svg_rect(d->out, x, y, 16, 14, 0, classes[i][odd]);
        text(d, x + 6, y + 11, "s", names[i]);
        x += 6.5 * (double)strlen(names[i]) + 24;
    }
    base_svg_rect(d->out, x, y, 16, 14, 0, "idle");
    text(d, x + 22, y + 11, "s",
         shape->chunks > 1 ? "idle; light: odd chunks; numbers: micro-batches"
                           : "idle; numbers: micro-batches");
}

static void draw_heading(drawing_t *d)
{
    const pipeline_t *p = d->p;
    const pipe_shape_t *shape = &p->schedule->shape;
    char words[256];
    int used = snprintf(words, sizeof words, "%s: %d rank%s, %d micro-batch%s", pipe_kind_name(shape->kind),
                        shape->ranks, shape->ranks == 1 ? "" : "s", shape->micro_batches,
                        shape->micro_batches == 1 ? "" : "es");
    if (shape->chunks > 1)
        snprintf(words + used, sizeof words - (size_t)used, ", %d stages per rank", shape->chunks);
    text(d, 20, 30, "h1", words);
    used = snprintf(words, sizeof words, "step %g, bubble %.2f %%", p->sim->makespan, 100 * p->sim->bubble);
    if (!isnan(p->formula))
        used += snprintf(words + used, sizeof words - (size_t)used, " (formula %.2f %%)", 100 * p->formula);
    snprintf(words + used, sizeof words - (size_t)used,
             "; a chunk: forward %g, backward %g of which weights %g, hop %g", p->times.forward,
             p->times.backward, p->times.weight, p->times.hop);
    text(d, 20, 52, "h2", words);
}

static double least_action(const pipeline_t *p)
{
    double least = p->sim->makespan;
    for (size_t i = 0; i < p->schedule->count[0]; i++) {
        double length = p->sim->end[0][i] - p->sim->start[0][i];
        if (pipe_op_computes(p->schedule->action[0][i].op) && length > 0 && length < least)
            least = length;
    }
    return least;
}

static void draw(drawing_t *d)
{
    const pipeline_t *p = d->p;
    double span = p->sim->makespan, wish = UNIT * span / least_action(p);
    d->plot = fmin(MOST_PLOT, fmax(LEAST_PLOT, wish));
    d->scale = d->plot / span;
    double width = LEFT + d->plot + RIGHT, height = TOP + p->schedule->shape.ranks * ROW + BOTTOM;
    char title[96];
    snprintf(title, sizeof title, "pipeline schedule %s", pipe_kind_name(p->schedule->shape.kind));
    base_svg_open(d->out, width, height, title, style);
    draw_heading(d);
    for (int r = 0; r < p->schedule->shape.ranks; r++)
        draw_rank(d, r);
    draw_axis(d);
    draw_legend(d);
    base_svg_close(d->out);
}

gyre_status_t pipeline_svg(const pipeline_t *p, const char *path)
{
    base_file_t file;
    gyre_status_t st = base_file_begin(path, &file);
    if (st != GYRE_OK)
        return st;
    drawing_t d = {.p = p, .out = file.out};
    draw(&d);
    return base_file_commit(&file);
}
