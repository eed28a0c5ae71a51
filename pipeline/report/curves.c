/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/report/curves.c: the report's small drawings, one figure of a run over its steps each. */
#include <math.h>
#include <stdlib.h>

#include "base/order.h"
#include "base/text/svg.h"
#include "pipeline/report/svg.h"

typedef struct {
    const char *title, *color;
    double unit;  /* of the axis */
    int noisy;    /* 1: the mean of neighbours is drawn over the steps themselves */
    int power;    /* 1: the axis is the exponent of two */
    double usual; /* where every step has this value nothing is drawn; NaN: always */
    svg_value_t *of;
} curve_t;

static double rate_of(const train_record_t *record, const train_step_t *step)
{
    (void)record;
    return step->lr;
}

static double norm_of(const train_record_t *record, const train_step_t *step)
{
    (void)record;
    return step->skipped ? NAN : step->grad_norm;
}

static double scale_of(const train_record_t *record, const train_step_t *step)
{
    (void)record;
    return step->loss_scale > 0.0 ? log2(step->loss_scale) : NAN;
}

static double speed_of(const train_record_t *record, const train_step_t *step)
{
    return (double)record->tokens_per_step * train_step_part(record, step) / fmax(step->seconds, 1e-9);
}

static double mfu_of(const train_record_t *record, const train_step_t *step)
{
    (void)record;
    return step->mfu;
}

static double bubble_of(const train_record_t *record, const train_step_t *step)
{
    (void)record;
    return step->bubble;
}

static double batch_of(const train_record_t *record, const train_step_t *step)
{
    return record->grows ? (double)step->batch : NAN;
}

static double balance_of(const train_record_t *record, const train_step_t *step)
{
    (void)record;
    return step->balance;
}

static double dropped_of(const train_record_t *record, const train_step_t *step)
{
    (void)record;
    return step->dropped;
}

static double z_loss_of(const train_record_t *record, const train_step_t *step)
{
    (void)record;
    return step->z_loss;
}

static double router_z_of(const train_record_t *record, const train_step_t *step)
{
    (void)record;
    return step->router_z;
}

static const curve_t curves[] = {
    {"learning rate", BLUE, 1, 0, 0, NAN, rate_of},
    {"gradient norm, before clipping", PURPLE, 1, 1, 0, NAN, norm_of},
    {"loss scale, as a power of two", GOLD, 1, 0, 1, 0.0, scale_of},
    {"sequences per step", BLUE, 1, 0, 0, NAN, batch_of},
    {"balance loss of experts", PURPLE, 1, 1, 0, 0.0, balance_of},
    {"choices of experts that found no room, %", ORANGE, 0.01, 1, 0, NAN, dropped_of},
    {"z-loss of logits", PURPLE, 1, 1, 0, 0.0, z_loss_of},
    {"z-loss of routers", PURPLE, 1, 1, 0, 0.0, router_z_of},
    {"tokens per second", GREEN, 1, 1, 0, NAN, speed_of},
    {"MFU: model operations, % of the peak", GREEN, 0.01, 1, 0, NAN, mfu_of},
    {"waiting for pipeline neighbours, % of the step", ORANGE, 0.01, 1, 0, NAN, bubble_of},
};

enum { WIDTH = 420, HEIGHT = 190 };

/* The mean of the known values around step i, as many on one side as on the other: it does not lag. */
static double around(const train_record_t *record, svg_value_t *of, size_t i)
{
    size_t reach = record->steps / 100 + 1, n = 0;
    reach = reach < i ? reach : i;
    reach = reach < record->steps - 1 - i ? reach : record->steps - 1 - i;
    double sum = 0.0;
    for (size_t k = i - reach; k <= i + reach; k++) {
        double value = of(record, &record->step[k]);
        if (isfinite(value)) {
            sum += value;
            n++;
        }
    }
    return n ? sum / (double)n : NAN;
}

/* smooth: the mean of neighbours. strong: the line that is meant. At most one point per half unit of width:
 * long runs stay small. */
static void line(FILE *out, const svg_frame_t *f, const train_record_t *record, svg_value_t *of,
                 const char *color, int smooth, int strong)
{
    size_t stride = record->steps / (size_t)(2 * (f->width - f->left - f->right)) + 1;
    int open = 0;
    for (size_t i = 0; i < record->steps; i++) {
        if (i % stride != 0 && i + 1 != record->steps)
            continue;
        double y = smooth ? around(record, of, i) : of(record, &record->step[i]);
        if (!isfinite(y)) {
            if (open)
                fprintf(out, "\"/>\n");
            open = 0;
            continue;
        }
        if (!open)
            fprintf(out,
                    "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"%s\" stroke-opacity=\"%s\" "
                    "stroke-linejoin=\"round\" points=\"",
                    color, strong ? "2" : "1", strong ? "1" : "0.28");
        open = 1;
        fprintf(out, "%.1f,%.1f ", svg_x(f, (double)record->step[i].step),
                svg_y(f, fmax(f->y0, fmin(y, f->y1))));
    }
    if (open)
        fprintf(out, "\"/>\n");
}

void svg_steps(FILE *out, const svg_frame_t *f, const train_record_t *record, svg_value_t *of,
               const char *color, int noisy)
{
    line(out, f, record, of, color, 0, !noisy);
    if (noisy)
        line(out, f, record, of, color, 1, 1);
}

/* The range of the axis; 0: there is nothing to draw. A few outliers must not flatten the rest: the axis ends
 * at three times what nine of ten steps stay below. */
static int range(const train_record_t *record, const curve_t *curve, svg_frame_t *f)
{
    double *value = malloc((record->steps ? record->steps : 1) * sizeof *value);
    size_t n = 0;
    int other = isnan(curve->usual);
    for (size_t i = 0; value && i < record->steps; i++) {
        double y = curve->of(record, &record->step[i]);
        if (isfinite(y))
            value[n++] = y;
        other |= isfinite(y) && fabs(y - curve->usual) > 1e-12;
    }
    if (n > 0) {
        qsort(value, n, sizeof *value, base_order_double);
        double high = fmin(value[n - 1], 3.0 * fmax(value[(n - 1) * 9 / 10], 1e-300));
        double low = curve->power ? value[0] : 0.0;
        high = fmax(high, low + (curve->power ? 2.0 : 1e-12));
        double step = base_svg_tick((high - low) / curve->unit, 4) * curve->unit;
        step = curve->power && step < 1.0 ? 1.0 : step;
        f->y0 = floor(low / step) * step;
        f->y1 = ceil(high / step - 1e-9) * step;
    }
    free(value);
    return n > 0 && other;
}

static void draw(FILE *out, const train_record_t *record, const curve_t *curve)
{
    svg_frame_t f = {.x1 = record->steps ? (double)record->step[record->steps - 1].step : 1.0,
                     .width = WIDTH,
                     .height = HEIGHT,
                     .left = 58,
                     .right = 12,
                     .top = 8,
                     .bottom = 26,
                     .unit = curve->unit,
                     .whole = curve->power};
    if (!range(record, curve, &f))
        return;
    fprintf(out, "<figure><figcaption>%s</figcaption>\n", curve->title);
    svg_open(out, &f, curve->title);
    svg_axes(out, &f, "", "");
    svg_steps(out, &f, record, curve->of, curve->color, curve->noisy);
    for (size_t i = 0; (curve->of == norm_of || curve->power) && i < record->steps; i++)
        if (record->step[i].skipped || record->step[i].spike)
            fprintf(
                out,
                "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\" stroke=\"%s\" stroke-width=\"1.5\"/>\n",
                svg_x(&f, (double)record->step[i].step), svg_x(&f, (double)record->step[i].step),
                f.height - f.bottom - 9, f.height - f.bottom, ORANGE);
    fprintf(out, "</svg></figure>\n");
}

void train_svg_curves(FILE *out, const train_record_t *record)
{
    for (size_t i = 0; i < sizeof curves / sizeof curves[0]; i++)
        draw(out, record, &curves[i]);
}
