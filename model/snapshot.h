/* model/snapshot.h: a folder of checkpoints from which a training run goes on.
 *
 *     FOLDER/step-000000000200/model.safetensors                  weights: model/checkpoint.h reads them alone, too
 *                              adamw_exp_avg.safetensors  ...     further arrays in the layout of the table
 *                              index.json                         what belongs together: below
 *
 * index.json {"format", "version", "step", "files": [{"name", "bytes", "xxh3"}], "run": {...}, "xxh3"}: "run" is the
 * caller's; "xxh3" is the hash of the compact, sorted text of all other members, so a changed figure is found out.
 *
 * A checkpoint is written under a hidden name, files and folder are synced, and then it is renamed: at every moment
 * a name step-N stands for a whole checkpoint or for none, whatever dies. What is damaged later (cut off, overwritten,
 * foreign) is recognised by sizes and hashes and named. Only one process writes to a folder at a time. */
#ifndef MODEL_SNAPSHOT_H
#define MODEL_SNAPSHOT_H

#include <jansson.h>

#include "model/params.h"

#define MODEL_SNAPSHOT_STEPS 1000000000000u /* steps are below it */

/* One file of a checkpoint: an array in the layout of the table. */
typedef struct {
    const char *name; /* "model.safetensors" */
    float *flat;      /* [params->total]; read by _write, filled by _load */
} model_snapshot_part_t;

/* Writes the checkpoint of `step`, replacing one of that step. `folder` must exist. IO, NO_MEMORY: nothing is left
 * behind, what was there before is still there. */
gyre_status_t model_snapshot_write(const char *folder, uint64_t step, const model_params_t *params,
                                   const model_snapshot_part_t *part, size_t parts, const json_t *run);

/* The steps that have a name in the folder, good or not, newest first; *steps is malloc'd. A folder that is not
 * there holds none. IO, NO_MEMORY. */
gyre_status_t model_snapshot_list(const char *folder, uint64_t **steps, size_t *count);

/* Quick look at one: the index is whole and every file has its size. *run, if not NULL, is a new reference to the
 * caller's object. FORMAT, NOT_FOUND, IO name the file and what is wrong. */
gyre_status_t model_snapshot_check(const char *folder, uint64_t step, json_t **run);

/* The whole check, hashes included, and the parts' arrays. *run as above. On failure arrays may be partly filled. */
gyre_status_t model_snapshot_load(const char *folder, uint64_t step, const model_params_t *params,
                                  const model_snapshot_part_t *part, size_t parts, json_t **run);

/* The text of an index [length]; no NUL needed. `path` is for messages. *index is a new reference to the whole object,
 * whose members have been checked. FORMAT, NO_MEMORY. */
gyre_status_t model_snapshot_parse(const char *text, size_t length, const char *path, json_t **index);

/* Removes the checkpoint of `step`; if it is interrupted no half of it keeps the name. NOT_FOUND, IO. */
gyre_status_t model_snapshot_remove(const char *folder, uint64_t step);
/* Makes the folder if it is not there, finds out whether it can be written to, and removes what a writer that was
 * killed has left: a process of this host that is no more, or of any where nothing has changed for an hour. What it left
 * whole, but without its name, gets that back. A writer that lives is left alone. IO. */
gyre_status_t model_snapshot_prepare(const char *folder);

/* FOLDER/step-N into path [bytes]; 0 if it does not fit. */
int model_snapshot_path(const char *folder, uint64_t step, char *path, size_t bytes);

#endif
