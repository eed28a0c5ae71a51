/* SPDX-License-Identifier: Apache-2.0 */
/* model/data/files.c: lists of files. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/file.h"
#include "base/grow.h"
#include "model/data/files.h"

#define MAX_DEPTH 64

void model_files_free(model_files_t *paths)
{
    for (size_t i = 0; i < paths->count; i++)
        free(paths->path[i]);
    free(paths->path);
    *paths = (model_files_t){0};
}

gyre_status_t model_files_add(model_files_t *paths, const char *path)
{
    if (!base_grow(&paths->path, &paths->room, paths->count, 1, sizeof *paths->path) ||
        !(paths->path[paths->count] = strdup(path)))
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the list of files at %s", path);
    paths->count++;
    return GYRE_OK;
}

static gyre_status_t collect(const char *folder, model_files_t *paths, int depth)
{
    if (depth > MAX_DEPTH)
        return gyre_fail(GYRE_ERR_INVALID, "%s: folders nest deeper than %d: name a folder further down",
                         folder, MAX_DEPTH);
    DIR *dir = opendir(folder);
    if (!dir)
        return gyre_fail_errno(base_file_status(errno), errno, "cannot open the folder %s: name another",
                               folder);
    gyre_status_t status = GYRE_OK;
    struct dirent *entry;
    while (status == GYRE_OK && (errno = 0, entry = readdir(dir)) != NULL) {
        char path[PATH_MAX];
        struct stat info;
        if (entry->d_name[0] == '.')
            continue;
        if (snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) >= (int)sizeof path)
            status = gyre_fail(GYRE_ERR_INVALID, "%s/%s: the path is too long", folder, entry->d_name);
        else if (lstat(path, &info) != 0)
            status = gyre_fail_errno(GYRE_ERR_IO, errno, "cannot look at %s", path);
        else if (S_ISDIR(info.st_mode))
            status = collect(path, paths, depth + 1);
        else if (S_ISREG(info.st_mode))
            status = model_files_add(paths, path);
    }
    if (status == GYRE_OK && errno != 0)
        status = gyre_fail_errno(GYRE_ERR_IO, errno, "cannot list the folder %s", folder);
    closedir(dir);
    return status;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void model_files_sort(model_files_t *files)
{
    if (files->count > 1)
        qsort(files->path, files->count, sizeof *files->path, by_path);
}

gyre_status_t model_files_find(const char *folder, model_files_t *files)
{
    gyre_status_t status = collect(folder, files, 0);
    model_files_sort(files);
    return status;
}
