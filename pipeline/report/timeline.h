/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/report/timeline.h: what every rank did in the steps that are watched, brought to rank 0. */
#ifndef PIPELINE_REPORT_TIMELINE_H
#define PIPELINE_REPORT_TIMELINE_H

#include <stddef.h>
#include <stdint.h>

#include <gyre/gyre.h>

#include "base/clock.h"
#include "model/spans.h"
#include "pipeline/config/config.h"

/* A step that was watched, as rank 0 knows it. */
typedef struct {
    uint64_t step;
    base_time_t start, end; /* of the first and last span, by rank 0's clock */
    model_span_t *span;     /* [count] by rank, then by start; owned by the timeline */
    size_t count;
} train_watched_t;

typedef struct train_timeline train_timeline_t;

/* Watches the steps that --trace-steps names, else the tenth step after `done` steps (or the last step).
 * Collective; `comm` must outlive the timeline. NO_MEMORY, errors of the communicator. */
gyre_status_t train_timeline_create(gyre_comm_t *comm, const train_config_t *options, uint64_t done,
                                    train_timeline_t **out);
void train_timeline_destroy(train_timeline_t *timeline);
/* Where the spans of step `step` (1-based) go; NULL: the step is not watched. `timeline` may be NULL. Not
 * collective. */
model_spans_t *train_timeline_begin(train_timeline_t *timeline, uint64_t step);
/* After that step: brings its spans to rank 0. Collective on watched steps, nothing on others. */
gyre_status_t train_timeline_end(train_timeline_t *timeline, uint64_t step);
/* Rank 0: what was watched, in the order of steps. `timeline` may be NULL. */
size_t train_timeline_steps(const train_timeline_t *timeline, const train_watched_t **step);

/* A span's kind as page and trace name it. */
const char *train_span_name(int kind);

/* Which kernel's clock this rank reads: the same on ranks of one host. */
uint64_t train_host_clock(void);

#endif
