/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/report/trace.h: a file of Chrome's trace events, for ui.perfetto.dev. */
#ifndef PIPELINE_REPORT_TRACE_H
#define PIPELINE_REPORT_TRACE_H

#include "pipeline/report/record.h"
#include "pipeline/report/timeline.h"

/* Trace Event JSON. INVALID: there are no steps; IO. */
gyre_status_t train_trace_write(const char *path, const train_record_t *record, const train_watched_t *step,
                                size_t steps);

#endif
