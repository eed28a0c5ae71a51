/* SPDX-License-Identifier: Apache-2.0 */
/* optim/checkpoint/snapshot.c: checkpoints of a run: written whole or not at all, checked when read. */
#include "optim/checkpoint/snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/folder.h"
#include "base/log.h"
#include "base/text/json.h"
#include "optim/checkpoint/folder.h"
#include "optim/checkpoint/index.h"
#include "optim/checkpoint/path.h"

/* ---- checking and reading ------------------------------------------------------------------------------ */

struct optim_snapshot {
    char at[PATH_MAX];
    json_t *index;
    optim_shards_t *shards;
};

void optim_snapshot_close(optim_snapshot_t *snapshot)
{
    if (!snapshot)
        return;
    json_decref(snapshot->index);
    optim_shards_destroy(snapshot->shards);
    free(snapshot);
}

gyre_status_t checkpoint_open_folder(const char *at, uint64_t step, optim_snapshot_t **out)
{
    char path[PATH_MAX];
    optim_snapshot_t *snapshot = calloc(1, sizeof *snapshot);
    if (!snapshot)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to read %s", at);
    int fits = checkpoint_path_join(path, at, CHECKPOINT_INDEX);
    snprintf(snapshot->at, sizeof snapshot->at, "%s", at);
    gyre_status_t status =
        fits ? checkpoint_open_index(at, step, &snapshot->index) : checkpoint_path_too_long(at);
    if (status == GYRE_OK)
        status = optim_shards_parse(snapshot->index, path, &snapshot->shards);
    if (status == GYRE_OK)
        status = optim_shards_sizes(snapshot->shards, at);
    if (status != GYRE_OK) {
        optim_snapshot_close(snapshot);
        return status;
    }
    *out = snapshot;
    return GYRE_OK;
}

gyre_status_t optim_snapshot_open(const char *folder, uint64_t step, optim_snapshot_t **out)
{
    char at[PATH_MAX];
    if (!optim_snapshot_path(folder, step, at, sizeof at))
        return checkpoint_path_too_long(folder);
    return checkpoint_open_folder(at, step, out);
}

gyre_status_t optim_snapshot_open_newest(const char *folder, uint64_t *step, optim_snapshot_t **out)
{
    uint64_t *steps = NULL;
    size_t count = 0;
    *out = NULL;
    gyre_status_t status = optim_snapshot_list(folder, &steps, &count);
    for (size_t i = 0; status != GYRE_ERR_NO_MEMORY && !*out && i < count; i++) {
        status = optim_snapshot_open(folder, steps[i], out);
        if (status == GYRE_OK)
            *step = steps[i];
        else if (status != GYRE_ERR_NO_MEMORY)
            log_warning("the checkpoint of step %" PRIu64 " in %s is not used", steps[i], folder);
    }
    free(steps);
    return status;
}

gyre_status_t optim_snapshot_check(const char *folder, uint64_t step)
{
    optim_snapshot_t *snapshot = NULL;
    gyre_status_t status = optim_snapshot_open(folder, step, &snapshot);
    optim_snapshot_close(snapshot);
    return status;
}

const json_t *optim_snapshot_run(const optim_snapshot_t *snapshot)
{
    return json_object_get(snapshot->index, "run");
}

uint64_t optim_snapshot_hash(const optim_snapshot_t *snapshot)
{
    return strtoull(json_string_value(json_object_get(snapshot->index, "xxh3")), NULL, 16);
}

gyre_status_t optim_snapshot_fit(const optim_snapshot_t *snapshot, const model_params_t *whole)
{
    return optim_shards_fit(snapshot->shards, whole, snapshot->at);
}

gyre_status_t optim_snapshot_verify(const optim_snapshot_t *snapshot, size_t index, size_t of)
{
    return optim_shards_verify(snapshot->shards, snapshot->at, index, of);
}

gyre_status_t optim_snapshot_read(const optim_snapshot_t *snapshot, const model_params_t *whole,
                                  const optim_range_t *range, size_t ranges)
{
    return optim_shards_read(snapshot->shards, snapshot->at, whole, range, ranges);
}

/* ---- writing ------------------------------------------------------------------------------------------- */

gyre_status_t optim_snapshot_begin(const char *folder, uint64_t step, const char *id, unsigned attempt,
                                   char *made)
{
    char what[24];
    snprintf(what, sizeof what, "new%u", attempt);
    if (step >= OPTIM_SNAPSHOT_STEPS)
        return gyre_fail(GYRE_ERR_INVALID, "step %llu: checkpoints know steps below %llu",
                         (unsigned long long)step, (unsigned long long)OPTIM_SNAPSHOT_STEPS);
    if (!checkpoint_hidden_path(folder, step, what, id, made))
        return checkpoint_path_too_long(folder);
    if (mkdir(made, 0777) != 0 && errno != EEXIST) /* another rank was first */
        return gyre_fail_errno(GYRE_ERR_IO, errno, "cannot write to the checkpoint folder %s", folder);
    return GYRE_OK;
}

void optim_snapshot_abandon(const char *made)
{
    (void)base_folder_remove(made);
}

/* The index of what is written; every range must be there. *out is a new reference. */
static gyre_status_t make_index(const char *path, uint64_t step, const model_params_t *whole, json_t *files,
                                const json_t *run, json_t **out)
{
    optim_shards_t *shards = NULL;
    json_t *rows = optim_shards_rows(whole);
    json_t *index = rows ? json_pack("{s:s, s:i, s:I, s:o, s:O, s:O}", "format", CHECKPOINT_FORMAT, "version",
                                     CHECKPOINT_VERSION, "step", (json_int_t)step, "rows", rows, "files",
                                     files, "run", (json_t *)run)
                         : NULL;
    uint64_t hash = 0;
    gyre_status_t status = index && checkpoint_index_hash(index, &hash) &&
                                   json_object_set_new(index, "xxh3", base_json_hex(hash)) == 0
                               ? GYRE_OK
                               : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %s", path);
    if (status == GYRE_OK)
        status = optim_shards_parse(index, path, &shards);
    optim_shards_destroy(shards);
    if (status != GYRE_OK) {
        json_decref(index);
        return status;
    }
    *out = index;
    return GYRE_OK;
}

/* Last: without it, it is not a checkpoint. */
static gyre_status_t complete(const char *made, uint64_t step, const model_params_t *whole, json_t *files,
                              const json_t *run)
{
    char path[PATH_MAX];
    json_t *index = NULL;
    if (!checkpoint_path_join(path, made, CHECKPOINT_INDEX))
        return checkpoint_path_too_long(made);
    gyre_status_t status = make_index(path, step, whole, files, run, &index);
    if (status == GYRE_OK)
        status = checkpoint_write_index(path, index);
    json_decref(index);
    return status == GYRE_OK ? base_folder_sync(made) : status;
}

int optim_snapshot_is_other(const char *folder, uint64_t step, const json_t *run)
{
    const char *mine = json_string_value(json_object_get(run, "id")), *other;
    char at[PATH_MAX];
    json_t *index = NULL;
    if (!mine || !optim_snapshot_path(folder, step, at, sizeof at))
        return 0;
    const int muted = base_log_mute(1); /* what is damaged is nobody's */
    (void)checkpoint_open_index(at, step, &index);
    base_log_mute(muted);
    other = json_string_value(json_object_get(json_object_get(index, "run"), "id"));
    const int is_other = other && strcmp(mine, other) != 0;
    json_decref(index);
    return is_other;
}

/* Gives what was written its name. A checkpoint that has it already is exchanged for it at one stroke; file
 * systems that cannot do that leave a moment in which neither has the name (restore). */
static gyre_status_t publish(const char *folder, uint64_t step, const char *made, const json_t *run,
                             int replaces)
{
    char path[PATH_MAX], moved[PATH_MAX];
    const char *old = made;
    if (!optim_snapshot_path(folder, step, path, sizeof path))
        return checkpoint_path_too_long(folder);
    if (rename(made, path) == 0)
        return base_folder_sync(folder);
    if (errno != ENOTEMPTY && errno != EEXIST && errno != ENOTDIR)
        return gyre_fail_errno(GYRE_ERR_IO, errno, "cannot rename the checkpoint %s to %s", made, path);
    if (!replaces && optim_snapshot_is_other(folder, step, run))
        return gyre_fail(GYRE_ERR_INVALID,
                         "%s is of another run, which writes to the same folder: give each run a "
                         "--checkpoint folder of its own",
                         path);
    if (renameat2(AT_FDCWD, made, AT_FDCWD, path, RENAME_EXCHANGE) != 0) {
        gyre_status_t status = checkpoint_move_away(folder, step, moved);
        if (status != GYRE_OK)
            return status;
        if (rename(made, path) != 0) {
            status = gyre_fail_errno(GYRE_ERR_IO, errno, "cannot rename the checkpoint %s to %s", made, path);
            (void)rename(moved, path);
            return status;
        }
        old = moved;
    }
    gyre_status_t synced = base_folder_sync(folder); /* before the old one goes */
    (void)base_folder_remove(old);
    return synced;
}

gyre_status_t optim_snapshot_publish(const char *folder, uint64_t step, const char *made,
                                     const model_params_t *whole, json_t *files, const json_t *run,
                                     int replaces)
{
    gyre_status_t status = complete(made, step, whole, files, run);
    return status == GYRE_OK ? publish(folder, step, made, run, replaces) : status;
}
