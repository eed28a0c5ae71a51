/* SPDX-License-Identifier: Apache-2.0 */
/* optim/checkpoint/snapshot.h: a folder of checkpoints from which a training run goes on, in the layout in
 * which it was or in another.
 *
 *     FOLDER/step-000000000200/shard-00000.safetensors  ...   what each rank wrote
 *     (optim/checkpoint/shards.h)
 *                              index.json                     what belongs together: below
 *
 * index.json {"format", "version", "step", "run": {...}, "rows", "files", "xxh3"}: "run" is the caller's,
 * "rows" and "files" are those of optim/checkpoint/shards.h; "xxh3" is the hash of the compact, sorted text
 * of all other members, so a changed figure is found out.
 *
 * All ranks write into one hidden folder; when all their shards are synced one of them writes the index,
 * syncs, and renames the folder: at every moment a name step-N stands for a whole checkpoint or for none,
 * whatever dies. What is damaged later (cut off, overwritten, foreign) is recognised by sizes and hashes and
 * named. One run writes to a folder at a time (optim/checkpoint/lock.h). Where two do all the same, each
 * knows the other's checkpoints by "id" of "run", if both have one. */
#ifndef OPTIM_CHECKPOINT_SNAPSHOT_H
#define OPTIM_CHECKPOINT_SNAPSHOT_H

#include <jansson.h>

#include "model/network/params.h"
#include "optim/checkpoint/shards.h"

#define OPTIM_SNAPSHOT_STEPS 1000000000000u /* steps are below it */
#define OPTIM_SNAPSHOT_ID    96             /* bytes of the name of a writer, "HOST-PID" */

/* ---- the folder ---------------------------------------------------------------------------------------- */

/* FOLDER/step-N into path [bytes]; 0 if it does not fit. */
int optim_snapshot_path(const char *folder, uint64_t step, char *path, size_t bytes);
/* The steps that have a name in the folder, good or not, newest first; *steps is malloc'd. A folder that is
 * not there holds none. IO, NO_MEMORY. */
gyre_status_t optim_snapshot_list(const char *folder, uint64_t **steps, size_t *count);
/* 1: there is something of this name in the folder, good or not. */
int optim_snapshot_has(const char *folder, uint64_t step);
/* 1: a file of that name in the folder of a checkpoint belongs to it. */
int optim_snapshot_is_file(const char *name);
/* Removes the checkpoint of `step`; if it is interrupted no half of it keeps the name. NOT_FOUND, IO. */
gyre_status_t optim_snapshot_remove(const char *folder, uint64_t step);
/* Makes the folder if it is not there, finds out whether it can be written to, and removes what a writer that
 * was killed has left: a process of this host that is no more, or of any where nothing has changed for an
 * hour. What it left whole, but without its name, gets that back. A writer that lives is left alone. IO;
 * NO_MEMORY: what could not be looked at is as it was. */
gyre_status_t optim_snapshot_prepare(const char *folder);

/* ---- writing: every rank begins and writes its shard; the one whose id it is publishes ----------------- */

/* The name of this process as a writer, into id [OPTIM_SNAPSHOT_ID]. All ranks of a run write under the
 * one of rank 0. */
void optim_snapshot_id(char *id, size_t bytes);
/* Leaves a mark by which the other ranks find out whether they see the same folder; _sweep removes it. IO. */
gyre_status_t optim_snapshot_probe(const char *folder, const char *id);
/* 1: the mark is there, and this process may write next to it. */
int optim_snapshot_sees(const char *folder, const char *id);

/* The hidden folder for `step` into made [PATH_MAX]; the first rank makes it. `attempt` distinguishes
 * attempts of a run. IO. */
gyre_status_t optim_snapshot_begin(const char *folder, uint64_t step, const char *id, unsigned attempt,
                                   char *made);
/* 1: the checkpoint of `step` is of another run than `run`: both have an "id", and they differ. 0: it is not,
 * or its index cannot be read. */
int optim_snapshot_is_other(const char *folder, uint64_t step, const json_t *run);
/* All shards are in `made`; `files` are their entries. Writes the index, syncs, and gives it its name,
 * instead of a checkpoint of that step: of any run with `replaces`, else of this run. FORMAT: elements of a
 * row are in no shard, or in two. INVALID: the checkpoint is another run's. IO, NO_MEMORY. After an error
 * what was there before is still there, and `made` is to be abandoned. */
gyre_status_t optim_snapshot_publish(const char *folder, uint64_t step, const char *made,
                                     const model_params_t *whole, json_t *files, const json_t *run,
                                     int replaces);
void optim_snapshot_abandon(const char *made);
/* Removes what this writer has hidden in the folder, but for `except` (which _begin gave; NULL: all of
 * it). */
void optim_snapshot_sweep(const char *folder, const char *id, const char *except);
/* 1: the process with this id is writing or removing a checkpoint in the folder. 0: it is not, or it is a
 * process of this host that is gone. Asks the file system twice at most, so that many ranks may wait. */
int optim_snapshot_busy(const char *folder, const char *id);

/* ---- reading ------------------------------------------------------------------------------------------- */

typedef struct optim_snapshot optim_snapshot_t;

/* Opens the checkpoint of `step` with a quick look: the index is whole, every element of every row is in one
 * file, every file has its size. FORMAT, NOT_FOUND, IO name the file and what is wrong. */
gyre_status_t optim_snapshot_open(const char *folder, uint64_t step, optim_snapshot_t **out);
void optim_snapshot_close(optim_snapshot_t *snapshot);
/* Opens the newest that a quick look finds whole, and warns of each that it passes over. *out NULL: there is
 * none, good or not. An error: none is whole, and the oldest one's is returned; NO_MEMORY: one could not be
 * looked at. */
gyre_status_t optim_snapshot_open_newest(const char *folder, uint64_t *step, optim_snapshot_t **out);
/* The quick look alone. */
gyre_status_t optim_snapshot_check(const char *folder, uint64_t step);

/* The caller's object, borrowed; the checksum of the index, from which that of all files follows. */
const json_t *optim_snapshot_run(const optim_snapshot_t *snapshot);
uint64_t optim_snapshot_hash(const optim_snapshot_t *snapshot);

/* optim_shards_fit, _verify and _read of it. */
gyre_status_t optim_snapshot_fit(const optim_snapshot_t *snapshot, const model_params_t *whole);
gyre_status_t optim_snapshot_verify(const optim_snapshot_t *snapshot, size_t index, size_t of);
gyre_status_t optim_snapshot_read(const optim_snapshot_t *snapshot, const model_params_t *whole,
                                  const optim_range_t *range, size_t ranges);

/* The text of an index [length]; no NUL needed. `path` is for messages. *index is a new reference to the
 * whole object, whose checksum, step and run have been checked. FORMAT, NO_MEMORY. */
gyre_status_t optim_snapshot_parse(const char *text, size_t length, const char *path, json_t **index);

#endif
