/* SPDX-License-Identifier: Apache-2.0 */
/* base/text/json.c: whole JSON files, read and written so that a failure names file, line and column. */
#include "base/text/json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/error.h"
#include "base/file.h"

gyre_status_t base_json_read(const char *path, json_t **out)
{
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return gyre_fail_errno(errno == ENOENT ? GYRE_ERR_NOT_FOUND : GYRE_ERR_IO, errno, "cannot open %s",
                               path);

    json_error_t error;
    errno = 0;
    json_t *value = json_loadf(file, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    int err = errno;
    int unread = ferror(file); /* to jansson an unreadable file (a directory, a bad disk) merely ends early */
    fclose(file);
    if (unread) {
        json_decref(value);
        return gyre_fail_errno(GYRE_ERR_IO, err, "cannot read %s", path);
    }
    if (value == NULL) {
        if (json_error_code(&error) == json_error_out_of_memory)
            return gyre_fail(GYRE_ERR_NO_MEMORY, "%s: no memory left to read it", path);
        return gyre_fail(GYRE_ERR_FORMAT, "%s:%d:%d: not valid JSON: %s", path, error.line, error.column,
                         error.text);
    }
    *out = value;
    return GYRE_OK;
}

gyre_status_t base_json_write(const char *path, const json_t *value)
{
    base_file_t file;
    gyre_status_t status = base_file_begin(path, &file);
    if (status != GYRE_OK)
        return status;
    if (json_dumpf(value, file.out, JSON_INDENT(2) | JSON_ENCODE_ANY) != 0 && !ferror(file.out)) {
        /* nothing failed but jansson: it was asked to write what JSON has no text for */
        base_file_abandon(&file);
        return gyre_fail(GYRE_ERR_INVALID, "cannot write %s: the value is not JSON", path);
    }
    fputc('\n', file.out);
    return base_file_commit(&file);
}

json_t *base_json_hex(uint64_t value)
{
    char text[17];
    snprintf(text, sizeof text, "%016" PRIx64, value);
    return json_string(text);
}
