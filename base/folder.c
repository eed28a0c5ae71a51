/* SPDX-License-Identifier: Apache-2.0 */
/* base/folder.c: whole folders through a temporary one and an exchange. */
#include "base/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"

/* ---- small things -------------------------------------------------------------------------------------- */

static int join(char path[PATH_MAX], const char *folder, const char *name)
{
    int n = snprintf(path, PATH_MAX, "%s/%s", folder, name);
    return n > 0 && n < PATH_MAX;
}

static int is_dot(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

gyre_status_t base_folder_sync(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int bad = fd < 0 || base_sync_failed(fsync(fd)), err = errno;
    if (fd >= 0)
        close(fd);
    return bad ? gyre_fail_errno(GYRE_ERR_IO, err, "cannot sync the folder %s", path) : GYRE_OK;
}

int base_folder_remove(const char *path)
{
    char file[PATH_MAX];
    struct stat info;
    if (lstat(path, &info) == 0 && !S_ISDIR(info.st_mode))
        return unlink(path) == 0 ? 0 : errno;
    DIR *folder = opendir(path);
    if (!folder)
        return errno;
    int err = 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (is_dot(entry->d_name))
            continue;
        if (!join(file, path, entry->d_name))
            err = ENAMETOOLONG;
        else if (unlink(file) != 0 && errno != ENOENT)
            err = errno;
    }
    closedir(folder);
    return rmdir(path) == 0 || errno == ENOENT ? 0 : err ? err : errno;
}

/* The folder that holds `path`, which ends in no slash. */
static void parent_of(const char *path, char parent[PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    size_t length = !slash ? 0 : slash == path ? 1 : (size_t)(slash - path);
    snprintf(parent, PATH_MAX, "%.*s", (int)length, path);
    if (!slash)
        snprintf(parent, PATH_MAX, ".");
}

static void forget(base_folder_t *folder)
{
    free(folder->target);
    free(folder->made);
    *folder = (base_folder_t){0};
}

/* ---- beginning ----------------------------------------------------------------------------------------- */

/* The place, links resolved if it is there. NULL: errno says why. */
static char *resolve(const char *path)
{
    char *place = realpath(path, NULL);
    if (place || errno != ENOENT)
        return place;
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    return strndup(path, n);
}

/* An old folder that can be exchanged for another. */
static gyre_status_t check_old(const char *path, const char *target, const struct stat *old)
{
    char parent[PATH_MAX];
    struct stat around, here;
    parent_of(target, parent);
    if (!S_ISDIR(old->st_mode))
        return gyre_fail_errno(GYRE_ERR_IO, ENOTDIR, "cannot write to the folder %s", path);
    if (access(target, W_OK | X_OK) != 0)
        return gyre_fail_errno(GYRE_ERR_IO, errno, "cannot write to the folder %s", path);
    if (stat(parent, &around) == 0 &&
        (around.st_dev != old->st_dev || around.st_ino == old->st_ino)) /* the latter: "/" */
        return gyre_fail(GYRE_ERR_INVALID,
                         "%s is a mount point, and is to be replaced as a whole: name a folder in it", path);
    if (stat(".", &here) == 0 && here.st_dev == old->st_dev && here.st_ino == old->st_ino)
        return gyre_fail(GYRE_ERR_INVALID,
                         "%s is the working folder, and is to be replaced as a whole: name a folder in it",
                         path);
    return GYRE_OK;
}

static int create(const char *name)
{
    return mkdir(name, 0777);
}

gyre_status_t base_folder_begin(const char *path, base_folder_t *folder)
{
    struct stat old;
    base_folder_t begun = {.target = resolve(path)};
    if (!begun.target)
        return gyre_fail_errno(GYRE_ERR_IO, errno, "cannot write to the folder %s", path);
    int exists = stat(begun.target, &old) == 0;
    gyre_status_t status = exists ? check_old(path, begun.target, &old) : GYRE_OK;
    if (status == GYRE_OK && base_file_temporary(begun.target, create, &begun.made) < 0)
        status = gyre_fail_errno(errno == ENOMEM ? GYRE_ERR_NO_MEMORY : GYRE_ERR_IO, errno,
                                 "cannot make the folder %s", path);
    if (status != GYRE_OK) {
        forget(&begun);
        return status;
    }
    if (exists) /* who may read it stays as it was; on file systems without modes it cannot */
        (void)chmod(begun.made, old.st_mode & 0777);
    *folder = begun;
    return GYRE_OK;
}

void base_folder_abandon(base_folder_t *folder)
{
    int err = errno;
    if (folder->made)
        (void)base_folder_remove(folder->made);
    forget(folder);
    errno = err;
}

gyre_status_t base_folder_check(const char *path)
{
    base_folder_t folder = {0};
    gyre_status_t status = base_folder_begin(path, &folder);
    base_folder_abandon(&folder);
    return status;
}

/* ---- the exchange -------------------------------------------------------------------------------------- */

typedef int replaced_fn_t(const char *name);

/* Moves what is kept of the folder `from` to `to`. linked: by a second name, so that files are in both
 * folders until the exchange; what cannot have two names (folders) is moved after it. Returns 0 or errno's
 * value. */
static int keep(const char *from, const char *to, replaced_fn_t *replaced, int linked)
{
    char old[PATH_MAX], new[PATH_MAX];
    struct stat info;
    int why = 0;
    DIR *all = opendir(from);
    if (!all)
        return errno;
    for (struct dirent *entry; (entry = readdir(all));) {
        const char *name = entry->d_name;
        if (is_dot(name) || replaced(name))
            continue;
        if (!join(old, from, name) || !join(new, to, name))
            why = ENAMETOOLONG;
        else if (lstat(new, &info) == 0)
            continue;
        else if (linked)
            (void)link(old, new);
        else if (rename(old, new) != 0)
            why = errno;
    }
    closedir(all);
    return why;
}

/* *old: where the old folder is afterwards. */
static gyre_status_t swap(const base_folder_t *folder, char old[PATH_MAX])
{
    const char *made = folder->made, *target = folder->target;
    int fits = snprintf(old, PATH_MAX, "%s", made) < PATH_MAX;
    if (renameat2(AT_FDCWD, made, AT_FDCWD, target, RENAME_EXCHANGE) == 0)
        return GYRE_OK;
    int cannot = errno == EINVAL || errno == ENOSYS || errno == ENOTSUP, err = errno;
    fits = fits && snprintf(old, PATH_MAX, "%s.old", made) < PATH_MAX;
    if (cannot && fits && rename(target, old) == 0) {
        if (rename(made, target) == 0)
            return GYRE_OK;
        err = errno;
        (void)rename(old, target);
    }
    return gyre_fail_errno(GYRE_ERR_IO, err, "cannot rename %s, which is complete and is kept, to %s", made,
                           target);
}

static gyre_status_t replace(const base_folder_t *folder, replaced_fn_t *replaced)
{
    char parent[PATH_MAX], old[PATH_MAX];
    parent_of(folder->target, parent);
    (void)keep(folder->target, folder->made, replaced, 1); /* what fails here is moved below */
    gyre_status_t status = base_folder_sync(folder->made);
    if (status == GYRE_OK)
        status = swap(folder, old);
    if (status == GYRE_OK)
        status = base_folder_sync(parent); /* before the old one goes */
    if (status != GYRE_OK)
        return status;
    int why = keep(old, folder->target, replaced, 0);
    if (why == 0)
        why = base_folder_remove(old);
    if (why != 0)
        log_warning("%s is written; what is left of the folder that it replaces stays in %s: %s",
                    folder->target, old, strerror(why));
    return GYRE_OK;
}

gyre_status_t base_folder_commit(base_folder_t *folder, replaced_fn_t *replaced)
{
    char parent[PATH_MAX];
    struct stat info;
    parent_of(folder->target, parent);
    gyre_status_t status = base_folder_sync(folder->made);
    if (status != GYRE_OK) {
        base_folder_abandon(folder);
        return status;
    }
    if (lstat(folder->target, &info) == 0)
        status = replace(folder, replaced);
    else if (rename(folder->made, folder->target) != 0)
        status = gyre_fail_errno(GYRE_ERR_IO, errno, "cannot rename %s, which is complete and is kept, to %s",
                                 folder->made, folder->target);
    else
        status = base_folder_sync(parent);
    forget(folder);
    return status;
}
