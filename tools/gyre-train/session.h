/* tools/gyre-train/session.h: a run from the command line.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_GYRE_TRAIN_SESSION_H
#define TOOLS_GYRE_TRAIN_SESSION_H

#include "pipeline/config/config.h"

/* Trains as the options say. The exit status; errors are logged. */
int train_session(train_config_t *options);

#endif
