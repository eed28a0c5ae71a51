/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-doctor/compare.h: what differs between the ranks of a job. */
#ifndef GYRE_DOCTOR_COMPARE_H
#define GYRE_DOCTOR_COMPARE_H

#include "tools/gyre-doctor/report.h"

/* Called by all ranks of a job: rank 0 prints what is not alike in their reports, their settings and their
 * environment. Adds settings and environment to `report`. *json: where rank 0 puts the same as JSON instead
 * of printing it, the caller's; NULL: print. Returns the exit status, the same on all ranks: 1: something
 * differs, or it could not be found out. */
int compare_ranks(report_t *report, json_t **json);

#endif
