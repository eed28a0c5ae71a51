/* SPDX-License-Identifier: Apache-2.0 */
/* model/data/tokens_text.c: text files and folders as streams of bytes. */
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/text/foreign.h"
#include "model/data/files.h"
#include "model/data/tokens_format.h"

#define LOOK 8192 /* a zero byte in so many first bytes means "not text" */

static int is_binary(const model_tokens_file_t *file)
{
    return memchr(file->map, 0, file->bytes < LOOK ? file->bytes : LOOK) ||
           base_foreign(file->map, file->bytes);
}

/* One file of a folder. An empty one is left out; one that does not look like text is counted, too. */
static gyre_status_t append_file(model_tokens_t *tokens, const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return gyre_fail_errno(errno == ENOENT ? GYRE_ERR_NOT_FOUND : GYRE_ERR_IO, errno, "cannot look at %s",
                               path);
    if (info.st_size == 0)
        return GYRE_OK;
    gyre_status_t status = tokens_map(tokens, path);
    if (status != GYRE_OK)
        return status;
    const model_tokens_file_t *file = &tokens->file[tokens->maps - 1];
    if (is_binary(file)) {
        tokens_unmap_last(tokens);
        tokens->skipped++;
        return GYRE_OK;
    }
    return tokens_append(tokens, tokens->maps - 1, file->map, file->bytes);
}

static gyre_status_t append_folder(model_tokens_t *tokens, const char *folder)
{
    model_files_t files = {0};
    gyre_status_t status = model_files_find(folder, &files);
    for (size_t i = 0; status == GYRE_OK && i < files.count; i++)
        status = append_file(tokens, files.path[i]);
    if (status == GYRE_OK && tokens->count == 0)
        status = gyre_fail(
            GYRE_ERR_FORMAT,
            "the folder %s holds no text (%zu files were skipped as binary; links and names that begin "
            "with a dot are not followed): name another; if its files hold 16-bit ids alone (nanoGPT's), use "
            "--data-format nanogpt",
            folder, tokens->skipped);
    model_files_free(&files);
    return status;
}

static gyre_status_t append_alone(model_tokens_t *tokens, const char *path, const struct stat *info, int sure)
{
    if (!S_ISREG(info->st_mode))
        return gyre_fail(GYRE_ERR_INVALID, "%s is neither a file nor a folder", path);
    if (info->st_size == 0)
        return gyre_fail(GYRE_ERR_FORMAT, "the file %s is empty: name one with text", path);
    gyre_status_t status = tokens_map(tokens, path);
    if (status != GYRE_OK)
        return status;
    const char *foreign = sure ? NULL : base_foreign(tokens->file[0].map, tokens->file[0].bytes);
    if (foreign)
        return gyre_fail(GYRE_ERR_INVALID, "%s %s", path, foreign);
    if (!sure && is_binary(&tokens->file[0]))
        return gyre_fail(
            GYRE_ERR_INVALID,
            "%s does not look like text, nor has it a header of tokens: if it holds 16-bit ids "
            "alone (nanoGPT's), use --data-format nanogpt; ids of 32 bits are read with a header "
            "only (gyre-tokenize's, llm.c's, Megatron's .idx); to train on its bytes all the "
            "same, use --data-format text",
            path);
    return tokens_append(tokens, 0, tokens->file[0].map, tokens->file[0].bytes);
}

gyre_status_t tokens_open_text(model_tokens_t *tokens, const char *path, int sure)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return gyre_fail_errno(errno == ENOENT ? GYRE_ERR_NOT_FOUND : GYRE_ERR_IO, errno,
                               "cannot open the text %s: name a text file or folder", path);
    tokens->vocab = 256;
    snprintf(tokens->tokenizer, sizeof tokens->tokenizer, "bytes");
    return S_ISDIR(info.st_mode) ? append_folder(tokens, path) : append_alone(tokens, path, &info, sure);
}
