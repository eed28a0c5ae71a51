/* SPDX-License-Identifier: Apache-2.0 */
/* model/data/text.h: text files as bytes.
 *
 * A folder is read recursively; its files are joined in the order of their paths. Skipped in folders: names
 * that begin with a dot, symbolic links (they would repeat text), and files with a zero byte in their first 8
 * KiB. */
#ifndef MODEL_DATA_TEXT_H
#define MODEL_DATA_TEXT_H

#include <stddef.h>

#include <gyre/status.h>

typedef struct {
    unsigned char *bytes; /* [count], owned */
    size_t count;
    size_t files;   /* read */
    size_t skipped; /* files in the folder that do not look like text */
} model_text_t;

/* Reads `path`, a file or folder, whole. NOT_FOUND, IO, NO_MEMORY, FORMAT (nothing to read), INVALID: the
 * text names the path and what to do. Freed by model_text_destroy. */
gyre_status_t model_text_open(const char *path, model_text_t **out);
void model_text_destroy(model_text_t *text);

#endif
