/* SPDX-License-Identifier: Apache-2.0 */
/* optim/checkpoint/leftovers.c: what a writer leaves that was killed, and what it has hidden. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/log.h"
#include "optim/checkpoint/folder.h"
#include "optim/checkpoint/path.h"
#include "optim/checkpoint/snapshot.h"

#define ABANDONED_S 3600 /* nothing was written in there for so long: nobody writes there any more */

/* The newest change of the folder or of a file in it; 0: it is not there any more. What cannot be looked at
 * may have changed just now. */
static time_t last_change(const char *path)
{
    char file[PATH_MAX];
    struct stat info;
    DIR *folder = opendir(path);
    time_t newest = !folder && base_file_status(errno) != GYRE_ERR_NOT_FOUND ? time(NULL) : 0;
    for (struct dirent *entry; folder && (entry = readdir(folder));) /* "." among them */
        if (checkpoint_path_join(file, path, entry->d_name) && strcmp(entry->d_name, "..") != 0 &&
            stat(file, &info) == 0 && info.st_mtime > newest)
            newest = info.st_mtime;
    if (folder)
        closedir(folder);
    return newest;
}

/* 1: the process is no more, or only its parent has not taken note yet (in containers nobody may ever). */
static int is_gone(long pid)
{
    char path[48], stat[256] = "";
    if (kill((pid_t)pid, 0) != 0 && errno == ESRCH)
        return 1;
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    FILE *in = fopen(path, "re");
    size_t n = in ? fread(stat, 1, sizeof stat - 1, in) : 0;
    if (in)
        fclose(in);
    stat[n] = 0;
    const char *name_end = strrchr(stat, ')'); /* "PID (NAME) STATE ..." */
    return name_end && (strncmp(name_end, ") Z", 3) == 0 || strncmp(name_end, ") X", 3) == 0);
}

typedef enum { UNSEEN, GONE, LIVES } writer_t;

/* What can be seen from here of the process that made the hidden folder `name`, which ends in -HOST-PID. One
 * that has our number is not the one that made it. */
static writer_t writer_of(const char *name)
{
    char host[HOST_NAME_MAX + 2] = "-", *end;
    (void)gethostname(host + 1, sizeof host - 2);
    const char *dash = strrchr(name, '-');
    size_t n = strlen(host);
    if (!dash || (size_t)(dash - name) <= n || strncmp(dash - n, host, n) != 0)
        return UNSEEN;
    long pid = strtol(dash + 1, &end, 10);
    if (end == dash + 1 || *end || pid <= 0)
        return UNSEEN;
    return pid == (long)getpid() || is_gone(pid) ? GONE : LIVES;
}

/* Nobody is at work on the hidden folder `name`: its process is gone, or nothing was written for long. A
 * process that lives may be another one, with the number of the first. */
static int is_abandoned(const char *path, const char *name)
{
    return writer_of(name) == GONE || time(NULL) - last_change(path) > ABANDONED_S;
}

/* Somebody is at work on it, as far as one call shows, or none: many ranks ask for that, again and again. */
static int is_busy(const char *path, const char *name)
{
    struct stat info;
    const writer_t writer = writer_of(name);
    return writer == LIVES ||
           (writer == UNSEEN && (stat(path, &info) != 0 || time(NULL) - info.st_mtime <= ABANDONED_S));
}

/* Where checkpoints cannot be exchanged, a writer that is killed between two renames leaves a step without
 * its name: the old and the new one are whole, and hidden. OK: this one has the name now. FORMAT: it is not
 * to have it. NO_MEMORY, IO: it may be whole. */
static gyre_status_t restore(const char *folder, const char *path, const char *name)
{
    const char *digits = name + sizeof CHECKPOINT_HIDDEN - 1;
    char place[PATH_MAX];
    struct stat info;
    optim_snapshot_t *snapshot = NULL;
    if (strspn(digits, "0123456789") != 12 || digits[12] != '.')
        return GYRE_ERR_FORMAT;
    uint64_t step = strtoull(digits, NULL, 10);
    if (!optim_snapshot_path(folder, step, place, sizeof place) || lstat(place, &info) == 0)
        return GYRE_ERR_FORMAT;
    int muted = base_log_mute(1); /* most are half-written: not an error */
    gyre_status_t status = checkpoint_open_folder(path, step, &snapshot);
    if (status == GYRE_OK)
        status = optim_snapshot_verify(snapshot, 0, 1);
    base_log_mute(muted);
    optim_snapshot_close(snapshot);
    if (status == GYRE_ERR_NO_MEMORY)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to look at what a writer has left in %s", path);
    if (status == GYRE_OK && rename(path, place) != 0)
        return gyre_fail_errno(GYRE_ERR_IO, errno, "cannot rename the checkpoint %s to %s", path, place);
    return status == GYRE_OK || status == GYRE_ERR_IO ? status : GYRE_ERR_FORMAT;
}

/* Gives what was abandoned its name back, or removes it; NO_MEMORY, IO: it is as it was. */
static gyre_status_t clear(const char *folder, const char *path, const char *name)
{
    gyre_status_t status = restore(folder, path, name);
    if (status != GYRE_ERR_FORMAT)
        return status;
    (void)base_folder_remove(path); /* what cannot be removed harms nobody */
    return GYRE_OK;
}

/* 1: the name of something that the writer `id` has hidden. */
static int is_hidden_of(const char *name, const char *id)
{
    size_t length = strlen(name), n = strlen(id);
    return strncmp(name, CHECKPOINT_HIDDEN, sizeof CHECKPOINT_HIDDEN - 1) == 0 &&
           length > n + sizeof CHECKPOINT_HIDDEN && strcmp(name + length - n, id) == 0 &&
           name[length - n - 1] == '-';
}

void optim_snapshot_sweep(const char *folder, const char *id, const char *except)
{
    char path[PATH_MAX];
    DIR *all = opendir(folder);
    for (struct dirent *entry; all && (entry = readdir(all));)
        if (is_hidden_of(entry->d_name, id) && checkpoint_path_join(path, folder, entry->d_name) &&
            (!except || strcmp(path, except) != 0))
            (void)base_folder_remove(path);
    if (all)
        closedir(all);
}

int optim_snapshot_busy(const char *folder, const char *id)
{
    char path[PATH_MAX];
    int busy = 0;
    DIR *all = opendir(folder);
    for (struct dirent *entry; all && !busy && (entry = readdir(all));)
        busy = is_hidden_of(entry->d_name, id) && checkpoint_path_join(path, folder, entry->d_name) &&
               is_busy(path, entry->d_name);
    if (all)
        closedir(all);
    return busy;
}

gyre_status_t optim_snapshot_probe(const char *folder, const char *id)
{
    char path[PATH_MAX];
    if (!checkpoint_hidden_path(folder, 0, "probe", id, path))
        return checkpoint_path_too_long(folder);
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
        return gyre_fail_errno(GYRE_ERR_IO, errno, "cannot write to the checkpoint folder %s", folder);
    return GYRE_OK;
}

int optim_snapshot_sees(const char *folder, const char *id)
{
    char path[PATH_MAX];
    struct stat info;
    return checkpoint_hidden_path(folder, 0, "probe", id, path) && stat(path, &info) == 0 &&
           access(folder, W_OK) == 0;
}

gyre_status_t optim_snapshot_prepare(const char *folder)
{
    char path[PATH_MAX];
    gyre_status_t status = checkpoint_make_folder(folder);
    if (status != GYRE_OK)
        return status;
    DIR *all = opendir(folder);
    if (!all)
        return gyre_fail_errno(base_file_status(errno), errno, "cannot read the checkpoint folder %s",
                               folder);
    for (struct dirent *entry; status == GYRE_OK && (entry = readdir(all));)
        if (strncmp(entry->d_name, CHECKPOINT_HIDDEN, sizeof CHECKPOINT_HIDDEN - 1) == 0 &&
            checkpoint_path_join(path, folder, entry->d_name) && is_abandoned(path, entry->d_name))
            status = clear(folder, path, entry->d_name);
    closedir(all);
    if (status != GYRE_OK)
        return status;
    if (!checkpoint_own_hidden_path(folder, 0, "try", path))
        return checkpoint_path_too_long(folder);
    if (mkdir(path, 0777) != 0)
        return gyre_fail_errno(GYRE_ERR_IO, errno, "cannot write to the checkpoint folder %s", folder);
    (void)rmdir(path);
    return GYRE_OK;
}
