/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-train/progress.h: what the terminal shows while a run trains. */
#ifndef TOOLS_GYRE_TRAIN_PROGRESS_H
#define TOOLS_GYRE_TRAIN_PROGRESS_H

#include <stdint.h>
#include <stdio.h>

#include "base/clock.h"
#include "pipeline/report/record.h"

typedef struct {
    FILE *out;
    int style;             /* TRAIN_PROGRESS_BAR, _LINES or _NONE */
    int drawn;             /* a bar stands in the present line */
    uint64_t skipped;      /* updates of the run that were left out */
    uint64_t first, steps; /* done before; of the run */
    double before;         /* seconds of the time limit that were gone at the start */
    double time_limit;
    base_time_t start, last; /* of this process's part; of the last line */
    double val;              /* latest, NaN: none yet */
    double rate;             /* tokens per second, smoothed */
} train_progress_t;

/* `style` as --progress says. `first` steps, of which `skipped` made no update, and `before` seconds were
 * done by the processes before this one; `val` is the validation loss after these steps, as it was measured
 * last, or NaN. */
void train_progress_start(train_progress_t *progress, FILE *out, int style, uint64_t first, uint64_t skipped,
                          uint64_t steps, double before, double time_limit, double val);
/* `last`: this is the run's last step. */
void train_progress_step(train_progress_t *progress, const train_step_t *step, uint64_t tokens, int last);
/* Ends the bar's line, so that something else can be printed. */
void train_progress_end(train_progress_t *progress);

#endif
