/* SPDX-License-Identifier: Apache-2.0 */
/* optim/checkpoint/saver.h: checkpoints of a run, written by a thread of each rank while training goes on.
 *
 * optim_saver_save copies what this rank writes (12 bytes per element, allocated once) and returns; the
 * thread writes and syncs the shard. That of rank 0 then waits for the shards of the others, which it sees as
 * files: one look for all of them, ever more rarely, in the end once a second. It publishes the checkpoint
 * (optim/checkpoint/snapshot.h) and removes what is older than the last `keep`. No thread communicates. Only
 * one checkpoint is under way at a time. What fails is logged and leaves the checkpoints before it as they
 * were.
 *
 * All ranks save at the same steps: they ask optim_saver_ready, agree by a collective of theirs, and then all
 * add their ranges and call optim_saver_save, or all call optim_saver_skip. */
#ifndef OPTIM_CHECKPOINT_SAVER_H
#define OPTIM_CHECKPOINT_SAVER_H

#include "optim/checkpoint/snapshot.h"

typedef struct optim_saver optim_saver_t;

typedef struct {
    const char *folder; /* optim_snapshot_prepare has made it; copied */
    const char *id;     /* optim_snapshot_id of rank 0's process, on all ranks; copied */
    size_t keep;        /* good checkpoints that stay, >= 1 */
    /* the step that the run begins at: what is newer in the folder is known to be no good */
    uint64_t resumed;
    size_t rank, ranks;
    const unsigned char *writes; /* rank 0: [ranks], 1: that rank has ranges to write; copied */
    double patience;             /* rank 0: seconds that it waits for the shards of the others */
    /* NULL: nobody wants to know. Called with 1 when a checkpoint is handed to the thread, and with 0 when
     * the thread has ended it, well or not. Called from both threads; it must not wait for them. */
    void (*writing)(int begins);
} optim_saver_config_t;

/* `whole` must outlive it; memory for `elements`, the sum of counts of this rank's ranges, is taken now. A
 * rank that never has any needs no saver, but for rank 0. NO_MEMORY, SYSTEM (no thread), IO. */
gyre_status_t optim_saver_create(const model_params_t *whole, const optim_saver_config_t *config,
                                 size_t elements, optim_saver_t **out);

/* Bytes of its copy of this rank's part. saver NULL: 0. */
size_t optim_saver_bytes(const optim_saver_t *saver);

/* 1: the checkpoint before is written, which is waited for at most `patience` seconds. */
int optim_saver_ready(optim_saver_t *saver, double patience);
/* Copies one of the ranges that this rank writes, all parts; the saver is ready. NO_MEMORY: the checkpoint
 * will fail. */
gyre_status_t optim_saver_add(optim_saver_t *saver, const optim_range_t *range);
/* A range could not be had, for the reason that gyre_last_error has: the checkpoint will fail, and rank 0
 * gets the reason instead of waiting for this rank's shard. The saver is ready; optim_saver_save follows
 * as ever. The first reason counts. */
void optim_saver_fail(optim_saver_t *saver, gyre_status_t why);
/* The ranges added are the state after `step`. Rank 0: `run` (stolen; NULL: NO_MEMORY) becomes the index's
 * object; the file after `first_sync` (-1: none) is on disk before the checkpoint has its name.
 * IN_PROGRESS: the saver is not ready. */
gyre_status_t optim_saver_save(optim_saver_t *saver, uint64_t step, json_t *run, int first_sync);
/* The ranks leave this one out: some rank was not ready. Rank 0 warns. */
void optim_saver_skip(optim_saver_t *saver, uint64_t step);
/* Rank 0, when the others are lost: what is added from now on is all of a checkpoint. First gives what is
 * under way `patience` seconds, and then up what waits for lost ranks. 1: ready. */
int optim_saver_alone(optim_saver_t *saver, double patience);
/* `rank` is dead: its shard may be on the disk, or does not come any more. Once no other shards are missing,
 * rank 0 waits `patience` seconds more. It may be called for several ranks, and again for the same one. */
void optim_saver_lost(optim_saver_t *saver, size_t rank, double patience);

/* Waits until nothing is under way, at most `patience` seconds (TIMEOUT). The newest attempt's status;
 * *newest, if not NULL, is the step of the newest good checkpoint, UINT64_MAX if there is none (rank 0;
 * others know of none). */
gyre_status_t optim_saver_wait(optim_saver_t *saver, double patience, uint64_t *newest);

/* Waits as above, then gives up what waits for other ranks, and frees. 0: the file system does not let the
 * thread go; it keeps its memory and `whole`, until the process ends. */
int optim_saver_destroy(optim_saver_t *saver, double patience);

#endif
