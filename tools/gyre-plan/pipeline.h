/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-plan/pipeline.h: a pipeline schedule that was proved and timed, for those who draw it. */
#ifndef GYRE_PLAN_PIPELINE_H
#define GYRE_PLAN_PIPELINE_H

#include <stdio.h>

#include "pipeline/schedules/schedule.h"
#include "pipeline/schedules/simulate.h"

typedef struct {
    const pipe_schedule_t *schedule;
    const pipe_simulation_t *sim;
    pipe_times_t times; /* of one chunk */
    double formula;     /* bubble; NAN: none is known */
} pipeline_t;

/* One line per rank, at most `columns` wide; then what the signs mean. NO_MEMORY. */
gyre_status_t pipeline_chart(const pipeline_t *p, int columns, FILE *out);
/* The same as a self-contained SVG file. Errors of the file: IO. */
gyre_status_t pipeline_svg(const pipeline_t *p, const char *path);

#endif
