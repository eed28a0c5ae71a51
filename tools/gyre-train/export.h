/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-train/export.h: --export: the model of a checkpoint as a folder, without a run. */
#ifndef TOOLS_GYRE_TRAIN_EXPORT_H
#define TOOLS_GYRE_TRAIN_EXPORT_H

#include "pipeline/config/config.h"

typedef struct {
    const char *checkpoint, *folder; /* of the command line; NULL: not given */
} export_options_t;

/* Of the options --load and --save-type count. The exit status; errors are logged. */
int export_checkpoint(const train_config_t *options, const export_options_t *export);

#endif
