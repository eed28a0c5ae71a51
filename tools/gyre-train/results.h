/* tools/gyre-train/results.h: what the terminal says when a run starts and when it has ended. Rank 0.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_GYRE_TRAIN_RESULTS_H
#define TOOLS_GYRE_TRAIN_RESULTS_H

#include "pipeline/train/run.h"

void train_print_start(const train_run_t *run);
/* After train_conclude: writes the outputs and prints where they are. What went wrong with one output is no
 * reason to lose the others. Returns the first failure. */
gyre_status_t train_print_results(train_run_t *run);

#endif
