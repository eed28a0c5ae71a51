/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-train/cut_file.h: what is said when a file of the data gets shorter while the run reads it. */
#ifndef TOOLS_GYRE_TRAIN_CUT_FILE_H
#define TOOLS_GYRE_TRAIN_CUT_FILE_H

#include "pipeline/train/run.h"

/* From here on SIGBUS in a map of the run's data is a line on standard error that names the file, and then
 * still the end of the process by that signal. Any other SIGBUS goes to the handler before. NULL: no run is
 * watched any more. */
void train_watch_files(const train_run_t *run);

#endif
