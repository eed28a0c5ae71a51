/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/train/outputs_open.c: whether the outputs can be written, before the run begins. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/file.h"
#include "base/folder.h"
#include "pipeline/train/run.h"

int train_is_folder(const char *path)
{
    struct stat info;
    return path && stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* 1: `path` is there, and is `folder` or in it. */
static int is_inside(const char *path, const char *folder)
{
    char *in = path ? realpath(path, NULL) : NULL, *whole = realpath(folder, NULL);
    const size_t n = whole ? strlen(whole) : 0;
    const int inside = in && whole && strncmp(in, whole, n) == 0 && (in[n] == '/' || !in[n]);
    free(in);
    free(whole);
    return inside;
}

/* A folder for the model in Hugging Face's form is replaced as a whole: nothing may be at work in it, nor may
 * the tokenizer that the user names go with the model that was there. */
static gyre_status_t check_folder(const train_config_t *options)
{
    static const char text[] = "--%s %s is in the folder %s, which is replaced as a whole: name another with "
                               "--save";
    const char *spec = options->tokenizer, *colon = spec ? strchr(spec, ':') : NULL;
    if (is_inside(options->checkpoint, options->save))
        return gyre_fail(GYRE_ERR_INVALID, text, "checkpoint", options->checkpoint, options->save);
    if (!is_inside(options->load, options->save) && is_inside(colon ? colon + 1 : spec, options->save))
        return gyre_fail(GYRE_ERR_INVALID, text, "tokenizer", spec, options->save);
    return base_folder_check(options->save);
}

/* Better known now than at the end of the run. */
static gyre_status_t check_writable(const char *path, const char *flag)
{
    if (base_file_is_stdout(path))
        return gyre_fail(GYRE_ERR_INVALID, "--%s -: standard output has the run's own lines: name a file",
                         flag);
    int why = path ? base_file_check(path) : 0;
    return why == 0 ? GYRE_OK
                    : gyre_fail_errno(GYRE_ERR_IO, why, "cannot write %s: name another file with --%s", path,
                                      flag);
}

gyre_status_t train_open_outputs(train_run_t *run)
{
    const train_config_t *options = run->options;
    gyre_status_t status = check_writable(options->report, "report");
    if (status == GYRE_OK && base_file_is_stdout(options->log))
        status = check_writable(options->log, "log");
    if (status == GYRE_OK)
        status = check_writable(options->trace, "trace");
    run->made_checkpoints = options->checkpoint && !train_is_folder(options->checkpoint);
    if (status == GYRE_OK && options->checkpoint)
        status = train_resume_open(options, &run->resuming, &run->lock);
    if (status == GYRE_OK)
        status = train_saves_folder(options) ? check_folder(options) : check_writable(options->save, "save");
    return status == GYRE_OK ? train_record_open(&run->record, options) : status;
}
