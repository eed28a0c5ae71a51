/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-tokenize/input.c: documents, in the order of the command line and of paths. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text/foreign.h"
#include "pipeline/load/source.h"
#include "tools/gyre-tokenize/tokenize.h"

#define LOOK        8192              /* bytes in which a zero byte says "not text" */
#define BATCH_BYTES ((size_t)1 << 20) /* of lines, and more until the last of them ends */

struct tokenize_input {
    model_files_t files;
    unsigned char *listed; /* [files.count]: found in a folder: left out if it is not text */
    size_t next, skipped;
    uint64_t bytes;
    int by_line, any_bytes; /* any_bytes: nothing that is named is too strange */
    FILE *in;               /* files.path[next - 1], being read by lines */
    uint64_t line;          /* lines read of it */
};

static gyre_status_t add_input(tokenize_input_t *input, const char *path)
{
    struct stat info;
    if (strcmp(path, "-") == 0)
        return model_files_add(&input->files, path);
    if (stat(path, &info) != 0)
        return gyre_fail_errno(errno == ENOENT ? GYRE_ERR_NOT_FOUND : GYRE_ERR_IO, errno, "cannot open %s",
                               path);
    if (!S_ISDIR(info.st_mode))
        return model_files_add(&input->files, path);
    model_files_t inside = {0};
    gyre_status_t status = model_files_find(path, &inside);
    for (size_t i = 0; status == GYRE_OK && i < inside.count; i++)
        status = model_files_add(&input->files, inside.path[i]);
    model_files_free(&inside);
    return status;
}

gyre_status_t tokenize_input_open(const tokenize_options_t *options, tokenize_input_t **out)
{
    tokenize_input_t *input = calloc(1, sizeof *input);
    gyre_status_t status =
        input ? GYRE_OK : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the list of inputs");
    int piped = 0;
    if (status == GYRE_OK)
        status = pipe_source_check_output("out", options->out, NULL, options->tokenizer);
    for (size_t i = 0; status == GYRE_OK && i < options->input_count; i++) {
        size_t before = input->files.count;
        status = add_input(input, options->inputs[i]);
        unsigned char *grown = realloc(input->listed, input->files.count + 1);
        if (status == GYRE_OK && !grown)
            status = gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the list of inputs");
        if (!grown)
            break;
        input->listed = grown;
        struct stat info;
        const int folder = stat(options->inputs[i], &info) == 0 && S_ISDIR(info.st_mode);
        if (base_file_same(options->out, options->inputs[i]))
            status = gyre_fail(GYRE_ERR_INVALID, "--out %s would replace the INPUT %s: name another file",
                               options->out, options->inputs[i]);
        if (input->files.count > before)
            memset(input->listed + before, folder, input->files.count - before);
    }
    if (status == GYRE_OK && input->files.count == 0)
        status = gyre_fail(GYRE_ERR_NOT_FOUND,
                           "%s holds no files: links and names that begin with a dot are left out",
                           options->inputs[0]);
    if (status != GYRE_OK) {
        tokenize_input_close(input);
        return status;
    }
    input->by_line = options->jsonl;
    input->any_bytes = !options->jsonl && strcmp(options->tokenizer, "bytes") == 0;
    for (size_t i = 0; i < input->files.count; i++) {
        struct stat info;
        if (stat(input->files.path[i], &info) == 0 && S_ISREG(info.st_mode))
            input->bytes += (uint64_t)info.st_size;
        else
            piped = 1;
    }
    if (piped)
        input->bytes = 0;
    *out = input;
    return GYRE_OK;
}

void tokenize_input_close(tokenize_input_t *input)
{
    if (!input)
        return;
    if (input->in && input->in != stdin)
        fclose(input->in);
    model_files_free(&input->files);
    free(input->listed);
    free(input);
}

size_t tokenize_input_skipped(const tokenize_input_t *input)
{
    return input->skipped;
}

uint64_t tokenize_input_bytes(const tokenize_input_t *input)
{
    return input->bytes;
}

static gyre_status_t room_for(tokenize_batch_t *batch, size_t more)
{
    size_t need;
    if (!base_add(batch->bytes, more, &need))
        return gyre_fail(GYRE_ERR_NO_MEMORY, "%s is too long for memory", batch->path);
    if (need <= batch->room)
        return GYRE_OK;
    size_t room = base_max_size(need, batch->room + batch->room / 2);
    unsigned char *grown = realloc(batch->text, room);
    if (!grown)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %zu bytes of %s", room, batch->path);
    batch->text = grown;
    batch->room = room;
    return GYRE_OK;
}

static gyre_status_t open_next(tokenize_input_t *input, const char *path)
{
    input->in = strcmp(path, "-") == 0 ? stdin : fopen(path, "rbe");
    input->line = 0;
    return input->in ? GYRE_OK : gyre_fail_errno(GYRE_ERR_IO, errno, "cannot open %s", path);
}

static void close_this(tokenize_input_t *input)
{
    if (input->in != stdin)
        fclose(input->in);
    input->in = NULL;
}

static gyre_status_t check_kind(const tokenize_batch_t *batch)
{
    const char *foreign = base_foreign(batch->text, batch->bytes);
    return foreign ? gyre_fail(GYRE_ERR_INVALID, "%s %s",
                               strcmp(batch->path, "-") == 0 ? "standard input" : batch->path, foreign)
                   : GYRE_OK;
}

/* A file as one document. *take 0: it is not text, and was found in a folder. */
static gyre_status_t read_whole(tokenize_input_t *input, tokenize_batch_t *batch, int *take)
{
    size_t got;
    do {
        gyre_status_t status = room_for(batch, BATCH_BYTES);
        if (status != GYRE_OK)
            return status;
        got = fread(batch->text + batch->bytes, 1, BATCH_BYTES, input->in);
        batch->bytes += got;
    } while (got == BATCH_BYTES);
    if (ferror(input->in))
        return gyre_fail_errno(GYRE_ERR_IO, errno, "cannot read %s", batch->path);
    const int listed = input->listed[input->next - 1];
    *take = !listed || !(memchr(batch->text, 0, base_min_size(batch->bytes, LOOK)) ||
                         base_foreign(batch->text, batch->bytes));
    input->skipped += !*take;
    return listed || input->any_bytes ? GYRE_OK : check_kind(batch);
}

/* Whole lines, about BATCH_BYTES of them. *take 0: there are no more. */
static gyre_status_t read_lines(tokenize_input_t *input, tokenize_batch_t *batch, int *take)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t length = 0;
    gyre_status_t status = GYRE_OK;
    batch->line = input->line + 1;
    while (status == GYRE_OK && batch->bytes < BATCH_BYTES &&
           (length = getline(&line, &room, input->in)) > 0) {
        input->line++;
        if ((status = room_for(batch, (size_t)length)) == GYRE_OK) {
            memcpy(batch->text + batch->bytes, line, (size_t)length);
            batch->bytes += (size_t)length;
        }
    }
    const int err = errno;
    free(line);
    if (status == GYRE_OK && length < 0 && !feof(input->in))
        status = gyre_fail_errno(err == ENOMEM ? GYRE_ERR_NO_MEMORY : GYRE_ERR_IO, err,
                                 "cannot read line %" PRIu64 " of %s", input->line + 1, batch->path);
    *take = batch->bytes > 0;
    return status == GYRE_OK && batch->line == 1 ? check_kind(batch) : status;
}

gyre_status_t tokenize_input_next(tokenize_input_t *input, tokenize_batch_t *batch, int *more)
{
    gyre_status_t status = GYRE_OK;
    *more = 0;
    while (status == GYRE_OK && !*more && (input->in || input->next < input->files.count)) {
        if (!input->in && (status = open_next(input, input->files.path[input->next++])) != GYRE_OK)
            break;
        batch->path = input->files.path[input->next - 1];
        batch->line = batch->bytes = 0;
        status = input->by_line ? read_lines(input, batch, more) : read_whole(input, batch, more);
        if (!input->by_line || !*more)
            close_this(input);
    }
    return status;
}
