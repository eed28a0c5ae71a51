/* SPDX-License-Identifier: Apache-2.0 */
/* model/data/files.h: the files of a folder, in one order on every machine. */
#ifndef MODEL_DATA_FILES_H
#define MODEL_DATA_FILES_H

#include <stddef.h>

#include <gyre/status.h>

typedef struct {
    char **path; /* [count], owned, as is each */
    size_t count, room;
} model_files_t; /* all zero is an empty list */

/* Adds the regular files below `folder`, at any depth, and sorts the list by the bytes of the paths. Left
 * out: names that begin with a dot, symbolic links (they would repeat files). IO, INVALID, NO_MEMORY; the
 * owner frees the list in any case. */
gyre_status_t model_files_find(const char *folder, model_files_t *files);
gyre_status_t model_files_add(model_files_t *files, const char *path);
void model_files_sort(model_files_t *files);
void model_files_free(model_files_t *files);

#endif
