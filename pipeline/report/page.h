/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/report/page.h: the HTML page about a run. */
#ifndef PIPELINE_REPORT_PAGE_H
#define PIPELINE_REPORT_PAGE_H

#include "pipeline/report/record.h"
#include "pipeline/report/timeline.h"

/* step: that was watched; NULL: none. */
gyre_status_t train_report_write(const char *path, const train_config_t *options,
                                 const train_record_t *record, const model_data_t *data,
                                 const train_watched_t *step);

#endif
