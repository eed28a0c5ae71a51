/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-train/options.h: gyre-train's command line. */
#ifndef TOOLS_GYRE_TRAIN_OPTIONS_H
#define TOOLS_GYRE_TRAIN_OPTIONS_H

#include "tools/gyre-train/export.h"

enum { TRAIN_OK = 0, TRAIN_ERROR = 1, TRAIN_USAGE = 2 };

/* Writes to `options`, which train_config_free frees, and with --export to `export`. -1: go on; else the exit
 * status (--help and --version have been answered on stdout, an error is on stderr if `speak`). */
int train_options_parse(int argc, char **argv, train_config_t *options, export_options_t *export, int speak);

#endif
