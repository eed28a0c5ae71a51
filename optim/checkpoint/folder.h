/* SPDX-License-Identifier: Apache-2.0 */
/* optim/checkpoint/folder.h: a folder of checkpoints, for snapshot.c and leftovers.c. */
#ifndef OPTIM_CHECKPOINT_FOLDER_H
#define OPTIM_CHECKPOINT_FOLDER_H

#include <limits.h>

#include "optim/checkpoint/snapshot.h"

#define CHECKPOINT_HIDDEN ".step-" /* what is being written or removed begins so */

/* A hidden name next to the checkpoint that no other writer uses, into path [PATH_MAX]; 0: too long. */
int checkpoint_hidden_path(const char *folder, uint64_t step, const char *what, const char *id, char *path);
/* The same of this process. */
int checkpoint_own_hidden_path(const char *folder, uint64_t step, const char *what, char *path);
/* Takes the name away at one stroke. `*hidden` [PATH_MAX] is what is left to be removed. NOT_FOUND, IO. */
gyre_status_t checkpoint_move_away(const char *folder, uint64_t step, char *hidden);

/* snapshot.c: opens what is in the folder `at`, whatever its name. */
gyre_status_t checkpoint_open_folder(const char *at, uint64_t step, optim_snapshot_t **out);

#endif
