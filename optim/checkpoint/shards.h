/* SPDX-License-Identifier: Apache-2.0 */
/* optim/checkpoint/shards.h: the state of a run, cut into ranges of canonical rows (model/network/params.h),
 * in as many files as ranks wrote.
 *
 * What a rank holds of a row, in any layout, is a range of the canonical row; so a checkpoint is ranges, and
 * may be read in another layout than it was written in. A shard is a safetensors file: for each range three
 * F32 vectors, back to back:
 *
 *     ROW[FIRST:END].weight    .exp_avg    .exp_avg_sq
 *
 * An entry is what is known of a shard outside of it: {"name", "bytes", "xxh3", "data": where the vectors
 * begin, "ranges": [[row, first, count], ...] in the order of the file}; row counts the rows that are stored,
 * which are those of the whole table without a tied head. The index (optim/checkpoint/snapshot.h) holds
 * "rows": [{"name", "shape", "leaves", "parts"}] and "files": [entry, ...]; every element of every row is
 * in exactly one range. */
#ifndef OPTIM_CHECKPOINT_SHARDS_H
#define OPTIM_CHECKPOINT_SHARDS_H

#include <jansson.h>

#include "model/network/params.h"

enum { MODEL_WEIGHT, MODEL_EXP_AVG, MODEL_EXP_AVG_SQ, OPTIM_RANGE_PARTS };

/* Elements [first, first + count) of a canonical row and where they are in memory. */
typedef struct {
    size_t row; /* of the whole table */
    size_t first, count;
    /* [count] each. NULL: when reading it is not wanted; a saver writes zeros, as an optimiser has no such
     * state */
    float *part[OPTIM_RANGE_PARTS];
} optim_range_t;

/* The row under which `row` is stored: the token embedding for a tied head, whose weights it shares. */
size_t optim_range_row(const model_params_t *whole, size_t row);
/* Rows of the whole table as they are counted in files: [rows], MODEL_NONE for one that is not stored;
 * malloc'd. NULL: no memory. */
size_t *optim_range_numbers(const model_params_t *whole);

/* ---- writing: each rank its own file ------------------------------------------------------------------- */

/* Writes and syncs shard `writer` in `folder`, and then its entry next to it (shard-N.done), which
 * model_shard_entry reads: so a rank that sees the entry can rely on the shard. Ranges of a tied head are an
 * error (INVALID). IO, NO_MEMORY: logged, and model_shard_fail is called. */
gyre_status_t model_shard_write(const char *folder, size_t writer, const model_params_t *whole,
                                const optim_range_t *range, size_t ranges);
/* Leaves shard-N.failed with this thread's last error, so that nobody waits for the shard. */
void model_shard_fail(const char *folder, size_t writer);
/* The entry of shard `writer`, a new reference. IN_PROGRESS: it is not there yet. IO: its writer has
 * failed. FORMAT. */
gyre_status_t model_shard_entry(const char *folder, size_t writer, json_t **entry);
/* One look for all writers, which asks the file system once: came [writers] becomes 1 for those whose entry,
 * or whose reason for having none, is in the folder. IO: the folder cannot be read. */
gyre_status_t model_shards_look(const char *folder, unsigned char *came, size_t writers);
/* Removes what the entries were for: shard-N.done. */
void model_shard_forget(const char *folder, size_t writer);

/* The index's "rows" of this table. NULL: no memory. */
json_t *optim_shards_rows(const model_params_t *whole);

/* ---- reading ------------------------------------------------------------------------------------------- */

typedef struct optim_shards optim_shards_t;

/* Takes "rows" and "files" of an index. `path` is for messages. FORMAT: a member lacks or is invalid, a range
 * is outside of its row, elements are in no file or in two (both are named). NO_MEMORY. */
gyre_status_t optim_shards_parse(const json_t *index, const char *path, optim_shards_t **out);
void optim_shards_destroy(optim_shards_t *shards);

/* The rows are those of this model, in names, shapes and leaves. INVALID names the first that is not. */
gyre_status_t optim_shards_fit(const optim_shards_t *shards, const model_params_t *whole, const char *path);
/* Every file is there in its size: a quick look. NOT_FOUND, FORMAT, IO. */
gyre_status_t optim_shards_sizes(const optim_shards_t *shards, const char *folder);
/* Files index, index + of, ... have their checksums. Together `of` readers check each file once. FORMAT,
 * IO. */
gyre_status_t optim_shards_verify(const optim_shards_t *shards, const char *folder, size_t index, size_t of);
/* Fills the ranges from whichever files hold them; the shards must fit `whole`. IO, FORMAT. */
gyre_status_t optim_shards_read(const optim_shards_t *shards, const char *folder, const model_params_t *whole,
                                const optim_range_t *range, size_t ranges);

#endif
