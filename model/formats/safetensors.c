/* SPDX-License-Identifier: Apache-2.0 */
/* model/formats/safetensors.c: the container, written and read. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/text/foreign.h"
#include "base/text/json.h"
#include "model/formats/safetensors.h"

#define HEADER_LIMIT 100000000u /* bytes, the format's own limit */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "safetensors is little-endian: add byte swaps here");

/* ---- writing ------------------------------------------------------------------------------------------- */

static void set(model_safetensors_t *to, const char *name, json_t *value)
{
    if (!to->header)
        to->header = json_object();
    to->bad |= json_object_set_new(to->header, name, value) != 0;
}

void model_safetensors_metadata(model_safetensors_t *to, json_t *metadata)
{
    set(to, "__metadata__", metadata);
}

void model_safetensors_tensor(model_safetensors_t *to, const char *name, const char *dtype,
                              const size_t *shape, size_t dims, size_t bytes)
{
    json_t *extents = json_array();
    for (size_t d = 0; d < dims; d++)
        to->bad |= json_array_append_new(extents, json_integer((json_int_t)shape[d])) != 0;
    set(to, name,
        json_pack("{s:s, s:o, s:[I, I]}", "dtype", dtype, "shape", extents, "data_offsets",
                  (json_int_t)to->data, (json_int_t)(to->data + bytes)));
    to->data += bytes;
}

/* The header with the length in front of it; caller frees. NULL: no memory. */
static char *header_text(const model_safetensors_t *to, size_t *bytes)
{
    char *text = to->bad ? NULL : base_json_dump(to->header, JSON_COMPACT), *whole = NULL;
    size_t length = text ? strlen(text) : 0;
    uint64_t padded = base_round_up(length, 8);
    *bytes = sizeof padded + padded;
    if (text && (whole = malloc(*bytes))) {
        memset(whole, ' ', *bytes);
        memcpy(whole, &padded, sizeof padded);
        memcpy(whole + sizeof padded, text, length);
    }
    free(text);
    return whole;
}

gyre_status_t model_safetensors_begin(model_safetensors_t *to, const char *path)
{
    char *text = header_text(to, &to->data);
    gyre_status_t status = text ? base_file_begin(path, &to->file)
                                : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the header of %s", path);
    if (status == GYRE_OK) {
        to->open = 1;
        status = model_safetensors_put(to, text, to->data);
    }
    free(text);
    if (status != GYRE_OK)
        model_safetensors_abandon(to);
    return status;
}

gyre_status_t model_safetensors_put(model_safetensors_t *to, const void *data, size_t bytes)
{
    gyre_status_t status = GYRE_OK;
    if (to->hash)
        base_hash_add(to->hash, data, bytes);
    to->bytes += bytes;
    for (size_t at = 0, n; status == GYRE_OK && at < bytes; at += n) {
        n = base_min_size(bytes - at, MODEL_SAFETENSORS_SYNC - to->unsynced);
        if (fwrite((const char *)data + at, n, 1, to->file.out) != 1)
            return gyre_fail_errno(GYRE_ERR_IO, errno, "cannot write %s", to->file.path);
        to->unsynced += n;
        if (to->unsynced < MODEL_SAFETENSORS_SYNC)
            continue;
        status = base_file_sync(&to->file);
        to->unsynced = 0;
    }
    return status;
}

gyre_status_t model_safetensors_commit(model_safetensors_t *to)
{
    gyre_status_t status = base_file_commit(&to->file);
    to->open = 0;
    model_safetensors_abandon(to);
    return status;
}

void model_safetensors_abandon(model_safetensors_t *to)
{
    if (to->open)
        base_file_abandon(&to->file);
    json_decref(to->header);
    *to = (model_safetensors_t){.header = NULL};
}

/* ---- reading ------------------------------------------------------------------------------------------- */

/* What it is instead is worth more than `why`. */
static gyre_status_t refuse_header(const model_safetensors_file_t *file, const char *why)
{
    const char *foreign = base_foreign_file(file->path);
    return gyre_fail(GYRE_ERR_FORMAT, "%s is not a safetensors file: %s%s", file->path, foreign ? "it " : "",
                     foreign ? foreign : why);
}

static gyre_status_t read_header(model_safetensors_file_t *file)
{
    uint64_t length = 0;
    gyre_status_t status = base_file_read(file->fd, file->path, &length, sizeof length, 0);
    char why[80];
    snprintf(why, sizeof why, "its header would be %llu bytes of %zu", (unsigned long long)length,
             file->bytes);
    if (status == GYRE_OK && (length < 2 || length > HEADER_LIMIT || length > file->bytes - sizeof length))
        status = refuse_header(file, why);
    char *text = status == GYRE_OK ? malloc(length) : NULL;
    if (status == GYRE_OK && !text)
        status = gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the header of %s", file->path);
    if (status == GYRE_OK)
        status = base_file_read(file->fd, file->path, text, length, sizeof length);
    json_error_t error = {.text = ""};
    int lacks = 0;
    if (status == GYRE_OK)
        file->header = base_json_text(text, length, &error, &lacks);
    free(text);
    if (lacks)
        status = gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the header of %s", file->path);
    if (status == GYRE_OK && !json_is_object(file->header))
        status = refuse_header(file, file->header ? "the header is not an object" : error.text);
    file->data = sizeof length + (size_t)length;
    return status;
}

gyre_status_t model_safetensors_open(const char *path, model_safetensors_file_t *out)
{
    struct stat info;
    *out = (model_safetensors_file_t){.fd = open(path, O_RDONLY | O_CLOEXEC)};
    if (out->fd < 0)
        return gyre_fail_errno(base_file_status(errno), errno, "cannot open %s", path);
    gyre_status_t status = GYRE_OK;
    if (!(out->path = strdup(path)))
        status = gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to open %s", path);
    else if (fstat(out->fd, &info) != 0 || !S_ISREG(info.st_mode) || (size_t)info.st_size < sizeof(uint64_t))
        status = gyre_fail(GYRE_ERR_FORMAT,
                           "%s is not a safetensors file: it has less than 8 bytes or is not a regular file",
                           path);
    if (status == GYRE_OK) {
        out->bytes = (size_t)info.st_size;
        status = read_header(out);
    }
    if (status != GYRE_OK)
        model_safetensors_close(out);
    return status;
}

void model_safetensors_close(model_safetensors_file_t *file)
{
    json_decref(file->header);
    close(file->fd);
    free(file->path);
    *file = (model_safetensors_file_t){.path = NULL};
}
