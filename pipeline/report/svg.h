/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/report/svg.h: what the report's drawings share: a frame with axes, ticks and colours. */
#ifndef PIPELINE_REPORT_SVG_H
#define PIPELINE_REPORT_SVG_H

#include "pipeline/report/record.h"
#include "pipeline/report/timeline.h"

#define INK    "#1c2733"
#define MUTED  "#6b7785"
#define GRID   "#e6eaee"
#define BLUE   "#2463b4"
#define PALE   "#9dbbe3"
#define ORANGE "#d9601a"
#define GREEN  "#2f9e6e"
#define PURPLE "#7a5ab5"
#define GOLD   "#d8a106"
#define ROSE   "#c2456b"
#define SLATE  "#55636f"

/* In SVG units; the plot lies inside the margins. */
typedef struct {
    double x0, x1, y0, y1; /* data */
    int width, height, left, right, top, bottom;
    double unit; /* axis labels are in y / unit; 0: 1 */
    int whole;   /* 1: there is nothing between whole numbers of y */
} svg_frame_t;

double svg_x(const svg_frame_t *f, double x);
double svg_y(const svg_frame_t *f, double y);
void svg_open(FILE *out, const svg_frame_t *f, const char *title);
/* Grid, labels of both axes and their names; an empty name is left out. */
void svg_axes(FILE *out, const svg_frame_t *f, const char *x_name, const char *y_name);
/* A coloured square and a name. */
void svg_key(FILE *out, double x, double y, const char *color, const char *name);

/* A step's figure; not finite: it is not known. */
typedef double svg_value_t(const train_record_t *record, const train_step_t *step);
/* A line through what is known; it is interrupted where nothing is. Outside of the frame it runs along its
 * edge. noisy: the mean of neighbours is drawn over the steps themselves. */
void svg_steps(FILE *out, const svg_frame_t *f, const train_record_t *record, svg_value_t *of,
               const char *color, int noisy);

/* Inline SVG. is_text: tokens are bytes. */
void train_svg_loss(FILE *out, const train_record_t *record, int is_text);
void train_svg_time(FILE *out, const train_record_t *record);
/* A <figure> for each of learning rate, gradient norm, loss scale, speed, MFU and bubble that has
 * something to show. */
void train_svg_curves(FILE *out, const train_record_t *record);
void train_svg_timeline(FILE *out, const train_record_t *record, const train_watched_t *step);
void train_svg_memory(FILE *out, const train_record_t *record);

#endif
