/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-plan/pipeline_chart.c: a pipeline schedule in letters.
 *
 * Time runs to the right in columns. Where there is room each action begins with its letter and micro-batch,
 * and lasts as long as its dashes; where there is not, a column shows what the rank does most of that
 * time. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/gyre-plan/pipeline.h"

static int digits(int number)
{
    int n = 1;
    for (; number >= 10; number /= 10)
        n++;
    return n;
}

/* F, B and W of even chunks, f, b and w of odd ones. */
static char letter(const pipe_action_t *a)
{
    const char c = a->op == PIPE_FORWARD ? 'F' : a->op == PIPE_BACKWARD_WEIGHT ? 'W' : 'B';
    return a->chunk % 2 ? (char)(c - 'A' + 'a') : c;
}

/* The shortest action: the unit of the chart. */
static double unit_of(const pipeline_t *p)
{
    double unit = p->sim->makespan;
    for (int r = 0; r < p->schedule->shape.ranks; r++)
        for (size_t i = 0; i < p->schedule->count[r]; i++) {
            double length = p->sim->end[r][i] - p->sim->start[r][i];
            if (pipe_op_computes(p->schedule->action[r][i].op) && length > 0 && length < unit)
                unit = length;
        }
    return unit;
}

static size_t column_of(double time, double per_unit)
{
    return (size_t)llround(time * per_unit);
}

/* per_time: columns in a unit of time; labels: there is room for them in the shortest action. */
static void fill(const pipeline_t *p, int rank, double per_time, int labels, char *line, size_t columns)
{
    memset(line, '.', columns);
    line[columns] = '\0';
    for (size_t i = 0; i < p->schedule->count[rank]; i++) {
        const pipe_action_t *a = &p->schedule->action[rank][i];
        if (!pipe_op_computes(a->op))
            continue;
        size_t from = column_of(p->sim->start[rank][i], per_time),
               to = column_of(p->sim->end[rank][i], per_time);
        char label[16];
        int length = snprintf(label, sizeof label, "%c%d", letter(a), a->micro_batch);
        to = to < columns ? to : columns;
        for (size_t c = from; c < to; c++)
            line[c] = !labels                     ? letter(a)
                      : c < from + (size_t)length ? label[c - from]
                      : c + 1 == to               ? ' '
                                                  : '-';
    }
}

gyre_status_t pipeline_chart(const pipeline_t *p, int columns, FILE *out)
{
    const pipe_shape_t *shape = &p->schedule->shape;
    const double unit = unit_of(p), units = p->sim->makespan > 0 ? p->sim->makespan / unit : 1;
    const int width = digits(shape->ranks - 1), label = 1 + digits(shape->micro_batches - 1);
    const int room = columns > 8 + width + 20 ? columns - 6 - width : 20;
    int each = (int)(room / units);
    const int labels = each >= label + 1; /* and a blank or a dash after it */
    each = each > label + 3 ? label + 3 : each;
    const double per_unit = labels || each >= 1 ? (labels ? each : 1) : room / units;
    const double per_time = per_unit / unit;
    const size_t cells = column_of(p->sim->makespan, per_time);
    char *line = malloc(cells + 1);
    if (!line) {
        fputs("gyre-plan: no memory for the chart\n", stderr);
        return GYRE_ERR_NO_MEMORY;
    }
    for (int r = 0; r < shape->ranks; r++) {
        fill(p, r, per_time, labels, line, cells);
        for (size_t end = cells; end > 0 && line[end - 1] == ' ';)
            line[--end] = '\0';
        fprintf(out, "rank %*d %s\n", width, r, line);
    }
    free(line);
    fprintf(out, "\nF forward, B backward%s%s; . idle; ",
            pipe_kind_splits(shape->kind) ? " of the input, W of the weights" : "",
            shape->chunks > 1 ? " (small letters: odd chunks)" : "");
    if (labels)
        fprintf(out, "%d columns are %g\n", each, unit);
    else
        fprintf(out, "a column is %g%s\n", 1 / per_time,
                per_unit < 1 ? ", what falls on its middle shows" : "");
    return GYRE_OK;
}
