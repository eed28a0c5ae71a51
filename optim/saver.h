/* optim/saver.h: checkpoints of a run, written by a thread of their own while training goes on.
 *
 * optim_saver_save copies weights and moments (12 bytes per parameter, allocated once) and returns; a thread writes,
 * syncs, names (model/snapshot.h) and then removes what is older than the last `keep`. Only one checkpoint is under
 * way at a time: the next one waits for it, for so long as the caller permits. What fails is told and leaves the
 * checkpoints before it as they were. */
#ifndef OPTIM_SAVER_H
#define OPTIM_SAVER_H

#include "model/snapshot.h"
#include "optim/adamw.h"

typedef struct optim_saver optim_saver_t;

/* The arrays of a checkpoint, in the order of optim_saver_parts. */
#define OPTIM_SAVER_PARTS 3
void optim_saver_parts(float *weights, float *exp_avg, float *exp_avg_sq,
                       model_snapshot_part_t part[OPTIM_SAVER_PARTS]);

typedef struct {
    const char *folder; /* model_snapshot_prepare has made it; copied */
    size_t keep;        /* good checkpoints that stay, >= 1 */
    uint64_t
        resumed; /* the step that the run begins at: what is newer in the folder is known to be no good */
} optim_saver_config_t;

/* `params` must outlive it. NO_MEMORY, SYSTEM (no thread), IO. */
gyre_status_t optim_saver_create(const model_params_t *params, const optim_saver_config_t *config,
                                 optim_saver_t **out);

/* Takes the state behind `step`. `run` (stolen) becomes the index's object; the file behind `first_sync` (-1: none) is
 * on disk before the checkpoint has its name. Waits at most `patience` seconds for the checkpoint before;
 * IN_PROGRESS: that one is still being written and this one is left out, with a warning. NO_MEMORY: run is NULL. */
gyre_status_t optim_saver_save(optim_saver_t *saver, uint64_t step, const float *flat, optim_adamw_t *adamw,
                               json_t *run, int first_sync, double patience);

/* Waits until nothing is under way, at most `patience` seconds (TIMEOUT). The newest attempt's status; *newest, if not
 * NULL, is the step of the newest good checkpoint, UINT64_MAX if there is none. */
gyre_status_t optim_saver_wait(optim_saver_t *saver, double patience, uint64_t *newest);

/* Waits as above, then frees. 0: the file system does not let the thread go; it keeps its memory, and `params`, until
 * the process ends. */
int optim_saver_destroy(optim_saver_t *saver, double patience);

#endif
