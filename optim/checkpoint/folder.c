/* SPDX-License-Identifier: Apache-2.0 */
/* optim/checkpoint/folder.c: names in a folder of checkpoints, and checkpoints taken away. */
#include "optim/checkpoint/folder.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/grow.h"
#include "optim/checkpoint/index.h"
#include "optim/checkpoint/path.h"
#include "optim/checkpoint/snapshot.h"

/* ---- names --------------------------------------------------------------------------------------------- */

int optim_snapshot_path(const char *folder, uint64_t step, char *path, size_t bytes)
{
    int n = snprintf(path, bytes, "%s/step-%012llu", folder, (unsigned long long)step);
    return n > 0 && (size_t)n < bytes;
}

int optim_snapshot_has(const char *folder, uint64_t step)
{
    char path[PATH_MAX];
    return optim_snapshot_path(folder, step, path, sizeof path) && access(path, F_OK) == 0;
}

int optim_snapshot_is_file(const char *name)
{
    return strcmp(name, CHECKPOINT_INDEX) == 0 ||
           strncmp(name, CHECKPOINT_SHARD, strlen(CHECKPOINT_SHARD)) == 0;
}

void optim_snapshot_id(char *id, size_t bytes)
{
    char host[HOST_NAME_MAX + 1] = "";
    (void)gethostname(host, sizeof host - 1);
    snprintf(id, bytes, "%s-%ld", host, (long)getpid());
}

int checkpoint_hidden_path(const char *folder, uint64_t step, const char *what, const char *id, char *path)
{
    int n = snprintf(path, PATH_MAX, "%s/" CHECKPOINT_HIDDEN "%012llu.%s-%s", folder,
                     (unsigned long long)step, what, id);
    return n > 0 && n < PATH_MAX;
}

int checkpoint_own_hidden_path(const char *folder, uint64_t step, const char *what, char *path)
{
    char id[OPTIM_SNAPSHOT_ID];
    optim_snapshot_id(id, sizeof id);
    return checkpoint_hidden_path(folder, step, what, id, path);
}

/* The step that a name stands for; -1: the name is not a checkpoint's. */
static int64_t step_of(const char *name)
{
    const char *digits = name + 5;
    if (strncmp(name, "step-", 5) != 0 || strlen(digits) != 12 || strspn(digits, "0123456789") != 12)
        return -1;
    return (int64_t)strtoull(digits, NULL, 10);
}

/* ---- folders ------------------------------------------------------------------------------------------- */

static int newest_first(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x < y) - (x > y);
}

gyre_status_t optim_snapshot_list(const char *folder, uint64_t **steps, size_t *count)
{
    uint64_t *found = NULL;
    size_t n = 0, room = 0;
    DIR *all = opendir(folder);
    if (!all && errno != ENOENT)
        return gyre_fail_errno(base_file_status(errno), errno, "cannot read the checkpoint folder %s",
                               folder);
    for (struct dirent *entry; all && (entry = readdir(all));) {
        int64_t step = step_of(entry->d_name);
        if (step < 0)
            continue;
        if (!base_grow(&found, &room, n, 1, sizeof *found)) {
            free(found);
            closedir(all);
            return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the names of %zu checkpoints", n + 1);
        }
        found[n++] = (uint64_t)step;
    }
    if (all)
        closedir(all);
    if (n > 1)
        qsort(found, n, sizeof *found, newest_first);
    *steps = found;
    *count = n;
    return GYRE_OK;
}

gyre_status_t checkpoint_move_away(const char *folder, uint64_t step, char *hidden)
{
    char path[PATH_MAX];
    if (!optim_snapshot_path(folder, step, path, sizeof path) ||
        !checkpoint_own_hidden_path(folder, step, "old", hidden))
        return checkpoint_path_too_long(folder);
    (void)base_folder_remove(hidden); /* of an attempt that failed half-way */
    if (rename(path, hidden) != 0)
        return errno == ENOENT
                   ? gyre_fail_quiet(GYRE_ERR_NOT_FOUND, "there is no checkpoint %s", path)
                   : gyre_fail_errno(GYRE_ERR_IO, errno, "cannot take the checkpoint %s away", path);
    return GYRE_OK;
}

gyre_status_t optim_snapshot_remove(const char *folder, uint64_t step)
{
    char hidden[PATH_MAX];
    gyre_status_t status = checkpoint_move_away(folder, step, hidden);
    if (status != GYRE_OK)
        return status;
    int why = base_folder_remove(hidden);
    return why == 0 ? GYRE_OK
                    : gyre_fail_errno(GYRE_ERR_IO, why, "cannot remove the old checkpoint %s", hidden);
}
