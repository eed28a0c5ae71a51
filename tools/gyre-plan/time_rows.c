/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-plan/time_rows.c: reads tables of measured runs and fits a machine to some of them. */
#include "tools/gyre-plan/time_rows.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "base/order.h"
#include "tools/gyre-plan/plan.h"

enum { COLUMNS = 32, LINE = 1024 };

static int wrong(const char *path, size_t line, const char *what, const char *which)
{
    fprintf(stderr, "gyre-plan: %s:%zu: %s%s\n", path, line, what, which);
    return PLAN_FAILED;
}

static size_t split(char *line, char *word[COLUMNS])
{
    size_t n = 0;
    char *rest;
    for (char *at = strtok_r(line, " \t\r\n", &rest); at && n < COLUMNS;
         at = strtok_r(NULL, " \t\r\n", &rest))
        word[n++] = at;
    return n;
}

static int figure(const char *name, const char *text, plan_row_t *row, int *known)
{
    static const char *const names[] = {"seconds", "tflops", "memory", "extra"};
    double *out[] = {&row->seconds, &row->teraflops, &row->memory, &row->extra};
    *known = !strcmp(name, "date") || !strcmp(name, "note");
    for (size_t i = 0; i < 4; i++)
        if (!strcmp(name, names[i])) {
            char *end;
            *known = 1;
            *out[i] = strtod(text, &end);
            return end != text && !*end && isfinite(*out[i]);
        }
    return 1;
}

static int read_row(const plan_question_t *q, size_t line, char *const *name, char *const *value, size_t n,
                    plan_row_t *row)
{
    const char *flag[COLUMNS], *text[COLUMNS];
    size_t flags = 0;
    *row = (plan_row_t){.extra = -1};
    for (size_t i = 0; i < n; i++) {
        int known;
        if (!figure(name[i], value[i], row, &known))
            return wrong(q->rows, line, "not a number: ", value[i]);
        if (known || !strcmp(value[i], "-"))
            continue;
        flag[flags] = name[i];
        text[flags++] = value[i];
    }
    char what[64];
    snprintf(what, sizeof what, "row at line %zu", line);
    int code = plan_row_recipe(q, what, flag, text, flags, &row->recipe);
    if (code == PLAN_OK && plan_base(&row->recipe, &row->base) != GYRE_OK)
        code = PLAN_FAILED;
    return code;
}

static int read_lines(const plan_question_t *q, FILE *file, plan_rows_t *out)
{
    char head[LINE], text[LINE], *name[COLUMNS], *value[COLUMNS];
    size_t columns = 0, room = 0;
    for (size_t line = 1; fgets(text, sizeof text, file); line++) {
        if (!strchr(text, '\n') && !feof(file))
            return wrong(q->rows, line, "the line is too long", "");
        if (text[0] == '#' || text[strspn(text, " \t\r\n")] == '\0')
            continue;
        if (!columns) {
            memcpy(head, text, sizeof head);
            columns = split(head, name);
            continue;
        }
        size_t n = split(text, value);
        if (n != columns)
            return wrong(q->rows, line, "as many values are wanted as there are columns", "");
        if (!base_grow(&out->row, &room, out->rows, 1, sizeof *out->row))
            return wrong(q->rows, line, "no memory left", "");
        int code = read_row(q, line, name, value, n, &out->row[out->rows]);
        if (code != PLAN_OK)
            return code;
        out->rows++;
    }
    if (ferror(file) || out->rows == 0)
        return wrong(q->rows, 1, ferror(file) ? "cannot read: " : "there is no row",
                     ferror(file) ? strerror(errno) : "");
    return PLAN_OK;
}

int plan_rows_read(const plan_question_t *q, plan_rows_t *out)
{
    FILE *file = fopen(q->rows, "re");
    if (!file) {
        fprintf(stderr, "gyre-plan: cannot open %s: %s\n", q->rows, strerror(errno));
        return PLAN_FAILED;
    }
    plan_rows_t rows = {0};
    int code = read_lines(q, file, &rows);
    fclose(file);
    for (size_t i = 0; code == PLAN_OK && i < q->fits; i++)
        if (q->fit[i] > rows.rows ||
            !(rows.row[q->fit[i] - 1].seconds > 0.0 || rows.row[q->fit[i] - 1].memory > 0.0)) {
            fprintf(stderr, "gyre-plan: --fit: %s has %zu rows, and row %zu was not measured\n", q->rows,
                    rows.rows, q->fit[i]);
            code = PLAN_USAGE;
        }
    if (code == PLAN_OK)
        *out = rows;
    else
        plan_rows_free(&rows);
    return code;
}

void plan_rows_free(plan_rows_t *rows)
{
    free(rows->row);
    *rows = (plan_rows_t){0};
}

/* ---- fitting ------------------------------------------------------------------------------------------- */

enum { UNKNOWNS = 3, ROUNDS = 400 };
#define FAR 25.0 /* square of the error, in units of 5 %, from which on a row counts less */
static const double loose[UNKNOWNS] = {0.2, 0.7, 3.0}; /* of logarithms */

typedef struct {
    const plan_rows_t *rows;
    const size_t *fit;
    size_t fits;
    plan_machine_t machine; /* as given */
    const plan_software_t *software;
    double from[UNKNOWNS]; /* logarithms of what is sought */
} fit_t;

static plan_machine_t machine_at(const fit_t *f, const double x[UNKNOWNS])
{
    plan_machine_t m = f->machine;
    m.efficiency = fmin(1.0, exp(x[0]));
    m.intra = exp(x[1]);
    m.overhead = exp(x[2]);
    return m;
}

static double cost(const fit_t *f, const double x[UNKNOWNS])
{
    plan_machine_t machine = machine_at(f, x);
    double sum = 0.0;
    for (size_t i = 0; i < f->fits; i++) {
        const plan_row_t *row = &f->rows->row[f->fit[i] - 1];
        plan_time_t t;
        if (!(row->seconds > 0.0))
            continue;
        plan_time(&row->recipe, &row->base, &machine, f->software, &t);
        sum += FAR * log1p(pow(log(t.step / row->seconds) / 0.05, 2) / FAR);
    }
    for (int u = 0; u < UNKNOWNS; u++)
        sum += pow((x[u] - f->from[u]) / loose[u], 2);
    return sum;
}

typedef struct {
    double x[UNKNOWNS], cost;
} corner_t;

static int by_cost(const void *a, const void *b)
{
    double x = ((const corner_t *)a)->cost, y = ((const corner_t *)b)->cost;
    return (x > y) - (x < y);
}

/* The point at `part` of the way from the middle of the others through the worst corner. */
static corner_t along(const fit_t *f, const corner_t *s, double part)
{
    corner_t c;
    for (int u = 0; u < UNKNOWNS; u++) {
        double middle = 0.0;
        for (int i = 0; i < UNKNOWNS; i++)
            middle += s[i].x[u] / UNKNOWNS;
        c.x[u] = middle + part * (s[UNKNOWNS].x[u] - middle);
    }
    c.cost = cost(f, c.x);
    return c;
}

static void shrink(const fit_t *f, corner_t *s)
{
    for (int i = 1; i <= UNKNOWNS; i++) {
        for (int u = 0; u < UNKNOWNS; u++)
            s[i].x[u] = (s[i].x[u] + s[0].x[u]) / 2.0;
        s[i].cost = cost(f, s[i].x);
    }
}

void plan_fit(const plan_rows_t *rows, const size_t *fit, size_t fits, const plan_software_t *software,
              plan_machine_t *machine)
{
    fit_t f = {.rows = rows,
               .fit = fit,
               .fits = fits,
               .machine = *machine,
               .software = software,
               .from = {log(machine->efficiency), log(machine->intra), log(fmax(machine->overhead, 1e-5))}};
    corner_t s[UNKNOWNS + 1];
    for (int i = 0; i <= UNKNOWNS; i++) {
        for (int u = 0; u < UNKNOWNS; u++)
            s[i].x[u] = f.from[u] + (i == u + 1 ? loose[u] : 0.0);
        s[i].cost = cost(&f, s[i].x);
    }
    for (int round = 0; round < ROUNDS; round++) {
        qsort(s, UNKNOWNS + 1, sizeof s[0], by_cost);
        corner_t turned = along(&f, s, -1.0);
        if (turned.cost < s[0].cost) {
            corner_t far = along(&f, s, -2.0);
            s[UNKNOWNS] = far.cost < turned.cost ? far : turned;
        } else if (turned.cost < s[UNKNOWNS - 1].cost) {
            s[UNKNOWNS] = turned;
        } else {
            corner_t near = along(&f, s, 0.5);
            if (near.cost < s[UNKNOWNS].cost)
                s[UNKNOWNS] = near;
            else
                shrink(&f, s);
        }
    }
    qsort(s, UNKNOWNS + 1, sizeof s[0], by_cost);
    *machine = machine_at(&f, s[0].x);
}

plan_errors_t plan_errors(double *error, size_t n)
{
    if (n == 0)
        return (plan_errors_t){0};
    qsort(error, n, sizeof error[0], base_order_double);
    return (plan_errors_t){.rows = n,
                           .median = (error[(n - 1) / 2] + error[n / 2]) / 2.0,
                           .ninety = error[(n * 9 + 9) / 10 - 1],
                           .worst = error[n - 1]};
}
