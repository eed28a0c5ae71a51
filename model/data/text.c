/* SPDX-License-Identifier: Apache-2.0 */
/* model/data/text.c: reads text files and folders. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "model/data/files.h"
#include "model/data/text.h"

#define LOOK 8192 /* a zero byte in so many first bytes means "not text" */

/* Appends the file to text->bytes; with skip_binary a file that does not look like text is counted and
 * left out. */
static gyre_status_t append_file(model_text_t *text, const char *path, int skip_binary)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return gyre_fail_errno(errno == ENOENT ? GYRE_ERR_NOT_FOUND : GYRE_ERR_IO, errno, "cannot open %s",
                               path);
    gyre_status_t status = GYRE_OK;
    struct stat info;
    if (fstat(fd, &info) != 0) {
        status = gyre_fail_errno(GYRE_ERR_IO, errno, "cannot look at %s", path);
        goto close_file;
    }
    size_t size = (size_t)info.st_size, room, got = 0;
    if (size == 0)
        goto close_file;
    unsigned char *grown = base_add(text->count, size, &room) ? realloc(text->bytes, room) : NULL;
    if (!grown) {
        status = gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the %zu bytes of %s", size, path);
        goto close_file;
    }
    text->bytes = grown;
    while (got <
           size) { /* a file that shrinks meanwhile ends early; one that grows is cut at its first size */
        ssize_t n = read(fd, grown + text->count + got, size - got);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            status = gyre_fail_errno(GYRE_ERR_IO, errno, "cannot read %s", path);
            goto close_file;
        }
        if (n == 0)
            break;
        got += (size_t)n;
    }
    if (memchr(grown + text->count, 0, base_min_size(got, LOOK))) {
        if (skip_binary) {
            text->skipped++;
            goto close_file;
        }
        log_warning("%s does not look like text; its bytes are tokens all the same (headerless 16-bit "
                    "tokens: --data-format nanogpt)",
                    path);
    }
    text->count += got;
    text->files++;
close_file:
    close(fd);
    return status;
}

static gyre_status_t append_folder(model_text_t *text, const char *folder)
{
    model_files_t files = {0};
    gyre_status_t status = model_files_find(folder, &files);
    for (size_t i = 0; status == GYRE_OK && i < files.count; i++)
        status = append_file(text, files.path[i], 1);
    model_files_free(&files);
    return status;
}

gyre_status_t model_text_open(const char *path, model_text_t **out)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return gyre_fail_errno(errno == ENOENT ? GYRE_ERR_NOT_FOUND : GYRE_ERR_IO, errno,
                               "cannot open the text %s: name a text file or folder", path);
    if (!S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode))
        return gyre_fail(GYRE_ERR_INVALID,
                         "%s is neither a file nor a folder: name one with --data or --valid-data", path);
    model_text_t *text = calloc(1, sizeof *text);
    if (!text)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the training text %s", path);
    gyre_status_t status = S_ISDIR(info.st_mode) ? append_folder(text, path) : append_file(text, path, 0);
    if (status == GYRE_OK && text->count == 0)
        status =
            S_ISDIR(info.st_mode)
                ? gyre_fail(GYRE_ERR_FORMAT,
                            "the folder %s holds no text (%zu files were skipped as binary; links and names "
                            "that begin with a dot are not followed): name another",
                            path, text->skipped)
                : gyre_fail(GYRE_ERR_FORMAT,
                            "the file %s is empty: name one with text with --data or --valid-data", path);
    if (status != GYRE_OK) {
        model_text_destroy(text);
        return status;
    }
    *out = text;
    return GYRE_OK;
}

void model_text_destroy(model_text_t *text)
{
    if (!text)
        return;
    free(text->bytes);
    free(text);
}
