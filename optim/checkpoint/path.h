/* SPDX-License-Identifier: Apache-2.0 */
/* optim/checkpoint/path.h: names of files below a checkpoint folder. */
#ifndef OPTIM_CHECKPOINT_PATH_H
#define OPTIM_CHECKPOINT_PATH_H

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/error.h"

/* path = "folder/name"; 0: longer than PATH_MAX. */
static inline int checkpoint_path_join(char path[PATH_MAX], const char *folder, const char *name)
{
    int n = snprintf(path, PATH_MAX, "%s/%s", folder, name);
    return n > 0 && n < PATH_MAX;
}

static inline gyre_status_t checkpoint_path_too_long(const char *folder)
{
    return gyre_fail(GYRE_ERR_INVALID, "the name of the checkpoint folder is too long: %.80s...", folder);
}

/* It may be there. IO. */
static inline gyre_status_t checkpoint_make_folder(const char *folder)
{
    struct stat info;
    if (mkdir(folder, 0777) == 0)
        return GYRE_OK;
    if (errno != EEXIST)
        return gyre_fail_errno(GYRE_ERR_IO, errno, "cannot make the checkpoint folder %s", folder);
    return stat(folder, &info) == 0
               ? GYRE_OK
               : gyre_fail_errno(GYRE_ERR_IO, errno,
                                 "the checkpoint folder %s is a symbolic link whose target cannot be used",
                                 folder);
}

#endif
