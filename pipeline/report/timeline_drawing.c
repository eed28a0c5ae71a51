/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/report/timeline_drawing.c: the report's drawings with a row for each rank: one step as it went,
 * and memory. */
#include <math.h>
#include <string.h>

#include "base/settings/size.h"
#include "base/text/svg.h"
#include "pipeline/report/svg.h"

enum { WIDTH = 860, LEFT = 150, RIGHT = 76, LINE = 20, SHOWN = 64 };

/* "rank 3" and, where there is more than one kind of parallelism, its place. */
static void name_row(FILE *out, const train_record_t *record, size_t rank, double y)
{
    pipe_place_t place = pipe_layout_place(&record->layout, rank);
    fprintf(out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\" fill=\"%s\">rank %zu", LEFT - 10, y, INK,
            rank);
    if (record->layout.tp > 1 || record->layout.cp > 1 || record->layout.pp > 1) {
        fprintf(out, "<tspan fill=\"%s\"> &#183;", MUTED);
        if (record->layout.pp > 1)
            fprintf(out, " pp %zu", place.pp);
        if (record->layout.dp > 1)
            fprintf(out, " dp %zu", place.dp);
        if (record->layout.cp > 1)
            fprintf(out, " cp %zu", place.cp);
        if (record->layout.tp > 1)
            fprintf(out, " tp %zu", place.tp);
        fprintf(out, "</tspan>");
    }
    fprintf(out, "</text>\n");
}

/* Names with their colours, in lines of the drawing's width; returns the height that they take. out NULL:
 * only that. */
static int keys(FILE *out, const char *const *name, const char *const *color, const int *shown, size_t count)
{
    double x = LEFT, y = 0;
    for (size_t i = 0; i < count; i++) {
        if (!shown[i])
            continue;
        double width = 36.0 + 6.4 * (double)strlen(name[i]);
        if (x + width > WIDTH) {
            x = LEFT;
            y += LINE;
        }
        if (out)
            svg_key(out, x, y, color[i], name[i]);
        x += width;
    }
    return (int)y + LINE + 6;
}

/* ---- one step ------------------------------------------------------------------------------------------ */

static const char *const span_color[MODEL_SPAN_KINDS] = {
    [MODEL_SPAN_FORWARD] = PALE,      [MODEL_SPAN_BACKWARD] = BLUE,     [MODEL_SPAN_BACKWARD_WEIGHT] = PURPLE,
    [MODEL_SPAN_OPTIMISER] = SLATE,   [MODEL_SPAN_WAIT] = "#f3c9a8",    [MODEL_SPAN_TENSOR] = GOLD,
    [MODEL_SPAN_CONTEXT] = "#4fa3a5", [MODEL_SPAN_EXPERTS] = "#8fb339", [MODEL_SPAN_REDUCE] = ORANGE,
    [MODEL_SPAN_GATHER] = ROSE,       [MODEL_SPAN_TRAVEL] = GREEN,
};

/* The three lanes of a row: what the training thread computes, what it waits for, which messages travel
 * meanwhile. */
static int lane_of(int kind)
{
    return kind < MODEL_SPAN_WAIT ? 0 : kind < MODEL_SPAN_TRAVEL ? 1 : 2;
}

typedef struct {
    FILE *out;
    const train_watched_t *step;
    double row; /* height */
    double head;
} timeline_t;

static double place_of(const timeline_t *t, base_time_t time)
{
    double whole = fmax((double)(t->step->end - t->step->start), 1.0);
    return LEFT + (double)(time - t->step->start) / whole * (WIDTH - LEFT - RIGHT);
}

/* count spans from `span` on, of one rank and one lane, drawn as one: they are too short to be seen one by
 * one. */
static void draw_span(const timeline_t *t, const model_span_t *span, base_time_t end, size_t count,
                      size_t row)
{
    int lane = lane_of(span->kind);
    double x = place_of(t, span->start), width = fmax(place_of(t, end) - x, 0.3);
    double top = t->head + t->row * (double)row + t->row * (lane == 0 ? 0.08 : lane == 1 ? 0.60 : 0.78);
    double height = t->row * (lane == 0 ? 0.5 : 0.16);
    fprintf(t->out, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" fill=\"%s\"><title>%s", x,
            top, width, height, span_color[span->kind], train_span_name(span->kind));
    if (count > 1)
        fprintf(t->out, " (%zu)", count);
    if (span->micro_batch >= 0 && count == 1)
        fprintf(t->out, ", micro-batch %d, chunk %d", span->micro_batch, span->chunk);
    fprintf(t->out, ": %.3f ms</title></rect>\n", (double)(end - span->start) * 1e-6);
    if (lane == 0 && count == 1 && span->micro_batch >= 0 && width > 13.0 && t->row >= 24.0)
        fprintf(t->out,
                "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\" font-size=\"10\" fill=\"%s\">%d</text>\n",
                x + width / 2, top + height / 2 + 3.5, span->kind == MODEL_SPAN_FORWARD ? INK : "#fff",
                span->micro_batch);
}

/* The spans of one rank; those of one kind that lie closer than a pixel become one, so that the page stays
 * small. */
static void draw_rank(const timeline_t *t, const model_span_t *span, size_t count, size_t row)
{
    for (int lane = 0; lane < 3; lane++) {
        const model_span_t *first = NULL;
        base_time_t end = 0;
        size_t n = 0;
        for (size_t i = 0; i < count; i++) {
            if (lane_of(span[i].kind) != lane)
                continue;
            int joins = first && span[i].kind == first->kind &&
                        place_of(t, span[i].start) - place_of(t, end) < 0.3 &&
                        place_of(t, span[i].end) - place_of(t, span[i].start) < 1.0;
            if (first && !joins)
                draw_span(t, first, end, n, row);
            if (!joins) {
                first = &span[i];
                end = span[i].end;
                n = 0;
            }
            end = span[i].end > end ? span[i].end : end;
            n++;
        }
        if (first)
            draw_span(t, first, end, n, row);
    }
}

static void axis_of_time(const timeline_t *t, size_t rows)
{
    double ms = (double)(t->step->end - t->step->start) * 1e-6, tick = base_svg_tick(fmax(ms, 1e-6), 8);
    double bottom = t->head + t->row * (double)rows;
    for (size_t i = 0; (double)i * tick <= ms * (1 + 1e-9); i++) {
        const double x = (double)i * tick;
        double at = LEFT + x / ms * (WIDTH - LEFT - RIGHT);
        fprintf(t->out,
                "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"/>\n"
                "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\" fill=\"%s\">%.4g</text>\n",
                at, at, t->head, bottom, GRID, at, bottom + 16, MUTED, x);
    }
    fprintf(t->out, "<text x=\"%d\" y=\"%.1f\" fill=\"%s\">ms</text>\n", WIDTH - RIGHT + 14, bottom + 16,
            MUTED);
}

void train_svg_timeline(FILE *out, const train_record_t *record, const train_watched_t *step)
{
    const char *name[MODEL_SPAN_KINDS];
    int shown[MODEL_SPAN_KINDS] = {0};
    size_t rows = (size_t)record->ranks < SHOWN ? (size_t)record->ranks : SHOWN;
    for (int k = 0; k < MODEL_SPAN_KINDS; k++)
        name[k] = train_span_name(k);
    for (size_t i = 0; i < step->count; i++)
        shown[step->span[i].kind] = 1;
    timeline_t t = {.out = out,
                    .step = step,
                    .row = rows <= 4    ? 44
                           : rows <= 16 ? 30
                                        : 16,
                    .head = keys(NULL, name, span_color, shown, MODEL_SPAN_KINDS)};
    svg_frame_t f = {.width = WIDTH, .height = (int)(t.head + t.row * (double)rows) + 26};
    svg_open(out, &f, "One step on every rank");
    keys(out, name, span_color, shown, MODEL_SPAN_KINDS);
    axis_of_time(&t, rows);
    for (size_t r = 0; r < rows; r++)
        name_row(out, record, r, t.head + t.row * ((double)r + 0.33) + 4.0);
    for (size_t i = 0, n; i < step->count; i += n) {
        const model_span_t *span = &step->span[i];
        for (n = 1; i + n < step->count && span[n].rank == span->rank; n++)
            ;
        if ((size_t)span->rank < rows)
            draw_rank(&t, span, n, (size_t)span->rank);
    }
    fprintf(out, "</svg>\n");
}

/* ---- memory -------------------------------------------------------------------------------------------- */

static const char *const memory_color[TRAIN_MEMORY_KINDS] = {
    BLUE, GREEN, GOLD, ROSE, PURPLE, ORANGE, SLATE, PALE, "#8cc9ad", "#f0d48a", "#c9b8e6", "#f3c9a8"};

void train_svg_memory(FILE *out, const train_record_t *record)
{
    const train_memory_t *memory = &record->memory;
    size_t rows = memory->ranks < SHOWN ? memory->ranks : SHOWN, kinds = memory->kinds;
    double most = 1.0, row = rows <= 16 ? 24 : 15;
    int shown[TRAIN_MEMORY_KINDS] = {0};
    for (size_t r = 0; r < memory->ranks; r++) {
        double sum = 0.0;
        for (size_t k = 0; k < kinds; k++) {
            shown[k] |= memory->bytes[r * kinds + k] > 0;
            sum += (double)memory->bytes[r * kinds + k];
        }
        most = fmax(most, sum);
    }
    int head = keys(NULL, memory->kind, memory_color, shown, kinds);
    svg_frame_t f = {.width = WIDTH, .height = (int)(head + row * (double)rows) + 8};
    svg_open(out, &f, "Memory by kind on every rank");
    keys(out, memory->kind, memory_color, shown, kinds);
    for (size_t r = 0; r < rows; r++) {
        double x = LEFT, top = head + row * (double)r, sum = 0.0;
        char size[BASE_SIZE_TEXT];
        for (size_t k = 0; k < kinds; k++) {
            double bytes = (double)memory->bytes[r * kinds + k];
            double width = bytes / most * (WIDTH - LEFT - RIGHT - 20);
            if (width > 0.05)
                fprintf(
                    out,
                    "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" fill=\"%s\"><title>%s: %.0f "
                    "bytes</title></rect>\n",
                    x, top + row * 0.12, width, row * 0.76, memory_color[k], memory->kind[k], bytes);
            x += width;
            sum += bytes;
        }
        name_row(out, record, r, top + row * 0.5 + 4.0);
        fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" fill=\"%s\">%s</text>\n", x + 8, top + row * 0.5 + 4.0, INK,
                base_size_about(sum, size));
    }
    fprintf(out, "</svg>\n");
}
