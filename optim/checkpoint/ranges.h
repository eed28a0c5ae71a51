/* SPDX-License-Identifier: Apache-2.0 */
/* optim/checkpoint/ranges.h: a rank's weights and optimiser state as ranges of canonical rows, whatever
 * the layout. */
#ifndef OPTIM_CHECKPOINT_RANGES_H
#define OPTIM_CHECKPOINT_RANGES_H

#include "optim/checkpoint/shards.h"
#include "optim/store/zero.h"

/* The range's memory is valid during the call. */
typedef gyre_status_t (*optim_checkpoint_fn)(void *user, const optim_range_t *range);

/* optim_zero_state, with ranges as files of checkpoints have them: rows are those of the whole table. */
gyre_status_t optim_checkpoint_visit(optim_zero_t *zero, optim_state_t what, optim_checkpoint_fn fn,
                                     void *user);

#endif
