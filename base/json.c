/* base/json.c: whole JSON files, read and written so that a failure names file, line and column. */
#include "base/json.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

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

/* Writes `value` and a newline to `fd` and closes it. */
static gyre_status_t dump(int fd, const char *path, const json_t *value, int durable)
{
    FILE *file = fdopen(fd, "w");
    if (file == NULL) {
        int err = errno;
        close(fd);
        return gyre_fail_errno(GYRE_ERR_IO, err, "cannot write %s", path);
    }
    errno = 0;
    int bad = json_dumpf(value, file, JSON_INDENT(2) | JSON_ENCODE_ANY) != 0;
    bad = bad || fputc('\n', file) == EOF || fflush(file) != 0 || (durable && fsync(fd) != 0);
    int err = errno;
    if (fclose(file) != 0 && !bad) {
        bad = 1;
        err = errno;
    }
    if (!bad)
        return GYRE_OK;
    if (err == 0) /* nothing failed but jansson: it was asked to write what JSON has no text for */
        return gyre_fail(GYRE_ERR_INVALID, "cannot write %s: the value is not JSON", path);
    return gyre_fail_errno(GYRE_ERR_IO, err, "cannot write %s", path);
}

/* `path` is a regular file or does not exist yet. */
static gyre_status_t replace(const char *path, const json_t *value)
{
    static _Atomic unsigned counter;
    size_t room = strlen(path) + 48;
    char *temporary = malloc(room);
    if (temporary == NULL)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory left to write %s", path);
    snprintf(temporary, room, "%s.tmp-%ld-%u", path, (long)getpid(), atomic_fetch_add(&counter, 1));

    gyre_status_t status;
    int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) {
        status = gyre_fail_errno(GYRE_ERR_IO, errno, "cannot create %s to write %s", temporary, path);
        goto free_name;
    }
    status = dump(fd, path, value, 1);
    if (status == GYRE_OK && rename(temporary, path) != 0)
        status = gyre_fail_errno(GYRE_ERR_IO, errno, "cannot rename %s to %s", temporary, path);
    if (status != GYRE_OK)
        unlink(temporary);
free_name:
    free(temporary);
    return status;
}

gyre_status_t base_json_write(const char *path, const json_t *value)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return replace(path, value);
    if (!S_ISREG(info.st_mode)) { /* a pipe, a terminal, /dev/null: nothing to rename over */
        int fd = open(path, O_WRONLY | O_CLOEXEC);
        if (fd < 0)
            return gyre_fail_errno(GYRE_ERR_IO, errno, "cannot write %s", path);
        return dump(fd, path, value, 0);
    }
    char *real = realpath(path, NULL); /* a link keeps pointing to the file, which is what gets replaced */
    if (real == NULL)
        return gyre_fail_errno(GYRE_ERR_IO, errno, "cannot resolve %s", path);
    gyre_status_t status = replace(real, value);
    free(real);
    return status;
}
