/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/report/svg.c: the report's wide drawings, the loss curve and where the time of a step went, and
 * what all share. */
#include <math.h>
#include <stdlib.h>

#include "base/order.h"
#include "base/text/svg.h"
#include "pipeline/report/svg.h"

double svg_x(const svg_frame_t *f, double x)
{
    return f->left + (x - f->x0) / (f->x1 - f->x0) * (f->width - f->left - f->right);
}

double svg_y(const svg_frame_t *f, double y)
{
    return f->height - f->bottom - (y - f->y0) / (f->y1 - f->y0) * (f->height - f->top - f->bottom);
}

void svg_open(FILE *out, const svg_frame_t *f, const char *title)
{
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\" "
            "font-family=\"system-ui, 'Segoe UI', Helvetica, Arial, sans-serif\" font-size=\"12\">\n",
            f->width, f->height, title);
}

void svg_axes(FILE *out, const svg_frame_t *f, const char *x_name, const char *y_name)
{
    double unit = f->unit > 0.0 ? f->unit : 1.0;
    double dy = base_svg_tick((f->y1 - f->y0) / unit, (f->height - f->top - f->bottom) / 45 + 1) * unit;
    dy = f->whole && dy < 1.0 ? 1.0 : dy;
    double dx = base_svg_tick(f->x1 - f->x0, (f->width - f->left - f->right) / 85);
    dx = dx < 1.0 ? 1.0 : dx; /* there are no halves of a step */
    const double low = ceil(f->y0 / dy - 1e-9) * dy, left = ceil(f->x0 / dx - 1e-9) * dx;
    for (size_t i = 0; low + (double)i * dy <= f->y1 + 1e-9 * dy; i++) {
        const double y = low + (double)i * dy;
        fprintf(out, "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"/>\n", f->left,
                f->width - f->right, svg_y(f, y), svg_y(f, y), GRID);
        fprintf(out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\" fill=\"%s\">%.6g</text>\n", f->left - 8,
                svg_y(f, y) + 4, MUTED, fabs(y) < 1e-12 * unit ? 0.0 : y / unit);
    }
    for (size_t i = 0; left + (double)i * dx <= f->x1 + 1e-9 * dx; i++) {
        const double x = left + (double)i * dx;
        fprintf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\" fill=\"%s\">%.7g</text>\n",
                svg_x(f, x), f->height - f->bottom + 18, MUTED, fabs(x) < 1e-12 ? 0.0 : x);
    }
    if (*x_name)
        fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\" fill=\"%s\">%s</text>\n",
                f->width - f->right, f->height - 6, MUTED, x_name);
    if (*y_name)
        fprintf(
            out,
            "<text transform=\"translate(13 %d) rotate(-90)\" text-anchor=\"end\" fill=\"%s\">%s</text>\n",
            f->top, MUTED, y_name);
}

/* A rectangle, unless it is too low to be seen. */
static void svg_bar(FILE *out, double x, double width, double top, double bottom, const char *color)
{
    if (bottom - top > 0.05)
        fprintf(out, "<rect x=\"%.1f\" width=\"%.1f\" y=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>\n", x, width,
                top, bottom - top, color);
}

void svg_key(FILE *out, double x, double y, const char *color, const char *name)
{
    fprintf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"11\" height=\"11\" rx=\"2\" fill=\"%s\"/>\n", x, y,
            color);
    fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" fill=\"%s\">%s</text>\n", x + 17, y + 10, INK, name);
}

/* The frame of the two wide drawings. */
enum { WIDTH = 860, LEFT = 56, RIGHT = 104, TOP = 16, BOTTOM = 40 };
static const svg_frame_t wide = {.width = WIDTH, .left = LEFT, .right = RIGHT, .top = TOP, .bottom = BOTTOM};

/* ---- loss ---------------------------------------------------------------------------------------------- */

typedef struct {
    double y, wish;
    const char *name, *color;
} label_t;

static int by_wish(const void *a, const void *b)
{
    double x = ((const label_t *)a)->wish, y = ((const label_t *)b)->wish;
    return (x > y) - (x < y);
}

/* Names at the right end of their lines, pushed apart so that no name covers another. */
static void labels(FILE *out, label_t *label, size_t n)
{
    qsort(label, n, sizeof *label, by_wish);
    for (size_t i = 0; i < n; i++) {
        label[i].y = label[i].wish;
        if (i > 0 && label[i].y < label[i - 1].y + 15.0)
            label[i].y = label[i - 1].y + 15.0;
        fprintf(out, "<text x=\"%d\" y=\"%.1f\" fill=\"%s\" font-weight=\"600\">%s</text>\n",
                WIDTH - RIGHT + 8, label[i].y + 4, label[i].color, label[i].name);
    }
}

static void widen(double value, double *low, double *high)
{
    if (isfinite(value)) { /* a step whose update is left out may have another loss */
        *low = fmin(*low, value);
        *high = fmax(*high, value);
    }
}

static svg_frame_t loss_frame(const train_record_t *record)
{
    double low = record->unigram, high = record->unigram;
    for (size_t i = 0; i < record->steps; i++)
        widen(record->step[i].loss, &low, &high);
    widen(record->first_val, &low, &high);
    widen(record->final_val, &low, &high);
    double step = base_svg_tick(fmax(high - low, 0.1), 6);
    svg_frame_t f = wide;
    f.x1 = record->steps ? (double)record->step[record->steps - 1].step : 1.0;
    f.y0 = fmax(0.0, floor(low / step) * step);
    f.y1 = ceil(high / step) * step;
    f.height = 340;
    return f;
}

static double loss_of(const train_record_t *record, const train_step_t *step)
{
    (void)record;
    return step->loss;
}

/* The last that is a number; NaN: none is. */
static double last_loss(const train_record_t *record)
{
    size_t i = record->steps;
    while (i > 0 && !isfinite(record->step[i - 1].loss))
        i--;
    return i > 0 ? record->step[i - 1].loss : NAN;
}

static void val_line(FILE *out, const svg_frame_t *f, const train_record_t *record)
{
    size_t points = 0;
    fprintf(out,
            "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" stroke-linejoin=\"round\" points=\"",
            ORANGE);
    if (isfinite(record->first_val))
        fprintf(out, "%.1f,%.1f ", svg_x(f, 0), svg_y(f, record->first_val));
    for (size_t i = 0; i < record->steps; i++)
        if (isfinite(record->step[i].val)) {
            fprintf(out, "%.1f,%.1f ", svg_x(f, (double)record->step[i].step), svg_y(f, record->step[i].val));
            points++;
        }
    fprintf(out, "\"/>\n");
    for (size_t i = 0; i < record->steps && points <= 60; i++)
        if (isfinite(record->step[i].val))
            fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.6\" fill=\"%s\"/>\n",
                    svg_x(f, (double)record->step[i].step), svg_y(f, record->step[i].val), ORANGE);
}

void train_svg_loss(FILE *out, const train_record_t *record, int is_text)
{
    svg_frame_t f = loss_frame(record);
    svg_open(out, &f, "Loss over steps");
    svg_axes(out, &f, "step", is_text ? "loss, nats per byte" : "loss, nats per token");
    double unigram = svg_y(&f, record->unigram);
    fprintf(out,
            "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" stroke-dasharray=\"5 4\"/>\n",
            LEFT, WIDTH - RIGHT, unigram, unigram, MUTED);
    label_t label[3] = {
        {.wish = unigram, .name = is_text ? "byte entropy" : "token entropy", .color = MUTED}};
    size_t n = 1;
    if (isfinite(last_loss(record))) {
        svg_steps(out, &f, record, loss_of, BLUE, 1);
        label[n++] = (label_t){.wish = svg_y(&f, last_loss(record)), .name = "training", .color = BLUE};
    }
    if (isfinite(record->final_val)) {
        val_line(out, &f, record);
        label[n++] = (label_t){.wish = svg_y(&f, record->final_val), .name = "validation", .color = ORANGE};
    }
    labels(out, label, n);
    fprintf(out, "</svg>\n");
}

/* ---- time ---------------------------------------------------------------------------------------------- */

enum { BINS = 60 };

typedef struct {
    double compute, exposed, hidden; /* ms per step */
} bin_t;

static size_t make_bins(const train_record_t *record, bin_t *bin)
{
    size_t bins = record->steps < BINS ? record->steps : BINS;
    for (size_t b = 0; b < bins; b++) {
        size_t from = b * record->steps / bins, to = (b + 1) * record->steps / bins;
        bin[b] = (bin_t){0};
        for (size_t i = from; i < to; i++) {
            bin[b].compute += record->step[i].compute_s * 1e3 / (double)(to - from);
            bin[b].exposed += record->step[i].exposed_s * 1e3 / (double)(to - from);
            bin[b].hidden += record->step[i].hidden_s * 1e3 / (double)(to - from);
        }
    }
    return bins;
}

void train_svg_time(FILE *out, const train_record_t *record)
{
    bin_t bin[BINS];
    double sorted[BINS];
    size_t bins = make_bins(record, bin);
    if (bins == 0)
        return;
    for (size_t b = 0; b < bins; b++)
        sorted[b] = fmax(bin[b].compute + bin[b].exposed, bin[b].hidden);
    qsort(sorted, bins, sizeof *sorted, base_order_double);
    /* a few stalls must not flatten all other bars: they are cut at the top */
    double high = fmin(sorted[bins - 1], 2.5 * sorted[bins / 2]);
    double unit = base_svg_tick(high, 5);
    svg_frame_t f = wide;
    f.x0 = (double)record->step[0].step - 1;
    f.x1 = (double)record->step[record->steps - 1].step;
    f.y1 = ceil(high / unit) * unit;
    f.height = 260;
    svg_open(out, &f, "Time per step");
    svg_axes(out, &f, "step", "ms per step");
    double slot = (double)(WIDTH - LEFT - RIGHT) / (double)bins, width = fmin(slot * 0.8, 40.0);
    for (size_t b = 0; b < bins; b++) {
        double x = LEFT + slot * (double)b + (slot - width) / 2, floor_y = svg_y(&f, 0);
        double middle = svg_y(&f, fmin(bin[b].compute, f.y1)),
               top = svg_y(&f, fmin(bin[b].compute + bin[b].exposed, f.y1));
        svg_bar(out, x, width, middle, floor_y, PALE);
        svg_bar(out, x, width, top, middle, ORANGE);
        svg_bar(out, x, width * 0.45, svg_y(&f, fmin(bin[b].hidden, f.y1)), floor_y, GREEN);
    }
    const char *const name[] = {"exposed", "compute", "hidden"};
    const char *const color[] = {ORANGE, PALE, GREEN};
    for (int i = 0; i < 3; i++)
        svg_key(out, WIDTH - RIGHT + 8, TOP + 20 * i, color[i], name[i]);
    fprintf(out, "</svg>\n");
}
