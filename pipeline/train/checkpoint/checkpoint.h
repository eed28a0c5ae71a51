/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/train/checkpoint/checkpoint.h: checkpoints of a run: describing, writing, finding and reading
 * them, all ranks together. */
#ifndef PIPELINE_TRAIN_CHECKPOINT_CHECKPOINT_H
#define PIPELINE_TRAIN_CHECKPOINT_CHECKPOINT_H

#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include <gyre/gyre.h>

#include "model/data/data.h"
#include "optim/checkpoint/lock.h"
#include "optim/checkpoint/ranges.h"
#include "optim/checkpoint/saver.h"
#include "optim/checkpoint/snapshot.h"
#include "optim/scaler.h"
#include "optim/spike.h"
#include "pipeline/config/config.h"
#include "pipeline/load/tokenizer.h"
#include "pipeline/report/record.h"

/* What a run is in addition to its weights and moments, after `step` updates. Everything random is a function
 * of the seed, the step and the sequences before it. */
typedef struct {
    uint64_t step;
    uint64_t sequences;       /* of these steps, whose batches may have differed */
    uint64_t ranks;           /* that wrote the checkpoint */
    double seconds, progress; /* of training so far; the part of the time limit that is gone */
    double first_val, final_val;
    train_set_t set[MODEL_DATA_SETS]; /* validation sets with names, first; others have none */
    uint64_t id;                      /* of the run, by which its log is known; 0: none */
    optim_scaler_t scaler;            /* of the steps in fp16, in this or an earlier process; scale 0: none */
    int unvalidated;                  /* 1: the validation after `step` was due and was not made */
    optim_spike_t spike;              /* the steps before, and how many of them were spikes */
    uint64_t unlearned;               /* steps before of which no token was learned; rank 0's word counts */
} train_state_t;

/* The parts of a run that a checkpoint holds or is compared with; all borrowed. */
typedef struct {
    gyre_comm_t *comm;
    const train_config_t *options;
    const char *folder; /* of the checkpoints */
    const model_data_t *data;
    const model_params_t *params; /* the whole table: of weights, or of adapters */
    optim_zero_t *zero;
    uint64_t base;              /* of adapters: optim_zero_digest of the weights that they are for; else 0 */
    pipe_tokenizer_t tokenizer; /* of the data; rank 0's word counts */
    const char *origin;         /* the model that the run began with; NULL: random weights */
} train_parts_t;

/* The index's object for this state; NULL: no memory. */
json_t *train_state_describe(const train_parts_t *parts, const train_state_t *state);
/* What that object, in the checkpoint `at`, says of the state after state->step updates. FORMAT. */
gyre_status_t train_state_read(const json_t *run, const char *at, train_state_t *state);

/* Finds the newest good checkpoint that any rank sees and gives every rank its ranges and state. Collective;
 * ranks may fail alone, and nobody waits for them. *found: 0 if there is none. INVALID: it is of a run with
 * other options, of which the message names the first, or an older one is of another run. */
gyre_status_t train_resume(const train_parts_t *parts, train_state_t *state, int *found);

/* The part of that which looks at options: `run` is what train_state_describe said in the checkpoint `at`.
 * INVALID: the first that differs and may not; FORMAT: `run` names no options. */
gyre_status_t train_resume_options(const train_config_t *options, int prefix_masks, const json_t *run,
                                   const char *at);

/* Sequences of the first `step` steps, as `run` says. Older checkpoints do not: it is what the batch that
 * they name takes in so many steps. FORMAT; INVALID: it names no batch that there is. */
gyre_status_t train_state_sequences(const json_t *run, uint64_t step, const char *at, uint64_t *sequences);

/* *well: every rank's `mine` is OK. This rank's own error is its answer; that of others is GYRE_OK.
 * Collective. */
gyre_status_t train_all_well(const train_parts_t *parts, gyre_status_t mine, int *well);
/* Reads all ranges of `snapshot`, which this rank may lack (NULL) where rank `owner` has it. Collective. */
gyre_status_t train_resume_from_owner(const train_parts_t *parts, const optim_snapshot_t *snapshot,
                                      int owner);

/* Makes what writes checkpoints of this run, which goes on after `step`. Collective; ranks may fail alone.
 * INVALID: this rank does not see the folder of rank 0, and has something to write. id: the name under which
 * all write. *saver: NULL where there is nothing to write. */
gyre_status_t train_save_open(const train_parts_t *parts, uint64_t step, char id[OPTIM_SNAPSHOT_ID],
                              optim_saver_t **saver);
/* A checkpoint of this state, begun by all ranks or, if one before is not written after `patience` seconds,
 * by none. What goes wrong with it is logged and stops nothing. Collective: an error is one of the
 * communicator. *saved: IN_PROGRESS: left out, on all ranks. */
gyre_status_t train_save_step(const train_parts_t *parts, optim_saver_t *saver, const train_state_t *state,
                              int first_sync, double patience, gyre_status_t *saved);
/* Rank 0, when the others are lost: the same without them, if it holds all of the model and no update
 * failed half-way (optim_zero_torn). 1: it is begun. */
int train_save_alone(const train_parts_t *parts, optim_saver_t *saver, const train_state_t *state,
                     int first_sync, double patience);

/* Rank 0: makes the folder ready. *resuming: the run goes on with what is in it, since --resume says so, or
 * since a launcher (ucx-run, torchrun, a requeued Slurm job) has started anew what wrote there. *lock: no
 * other run writes there, until optim_lock_leave; also after an error, unless it is NULL. INVALID: one does,
 * or the folder holds checkpoints otherwise; nothing in it was changed. IO. */
gyre_status_t train_resume_open(const train_config_t *options, int *resuming, optim_lock_t **lock);
/* Rank 0, when nothing can refuse the run any more: notes in FOLDER/launch who launched it. What cannot be
 * noted stops nothing but the launcher's next start. */
void train_resume_note(const char *folder);

#endif
