/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/train/outputs_open.c: whether the outputs can be written, before the run begins. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/file.h"
#include "base/folder.h"
#include "pipeline/load/source.h"
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

/* Whether adapters have a form in PEFT is known now, too. */
static gyre_status_t check_adapters(const train_config_t *options)
{
    if (is_inside(options->checkpoint, options->save_adapters))
        return gyre_fail(GYRE_ERR_INVALID,
                         "--checkpoint %s is in the folder %s, which is replaced as a whole: name another "
                         "with --save-adapters",
                         options->checkpoint, options->save_adapters);
    return base_folder_check(options->save_adapters);
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

/* The file of a data source that is `path`; NULL: none is. */
static const char *source_file(const model_mix_t *mix, const char *path)
{
    for (size_t s = 0; s < mix->sources; s++)
        for (size_t f = 0; f < mix->tokens[s]->files; f++)
            if (base_file_same(mix->tokens[s]->file[f].path, path))
                return mix->tokens[s]->file[f].path;
    return NULL;
}

/* The same, and the option that names it. */
static const char *data_file(const model_data_t *data, const char *path, const char **flag)
{
    const char *found = source_file(&data->train, path);
    *flag = found ? "data" : "valid-data";
    for (size_t s = 0; data->own_valid && !found && s < data->sets; s++)
        found = source_file(&data->set[s].mix, path);
    return found;
}

/* No output is written over another one, or over what the run reads. The weights that were loaded
 * may be replaced by those of --save. */
static gyre_status_t check_apart(const train_run_t *run)
{
    static const char text[] = "--%s %s and --%s %s are one file: name another with --%s";
    enum { OUTPUTS = 4 };
    const train_config_t *o = run->options;
    const struct {
        const char *flag, *path;
    } file[] = {{"log", o->log},       {"report", o->report}, {"trace", o->trace}, {"save", o->save},
                {"config", o->config}, {"recipe", o->recipe}, {"model", o->model}};
    for (size_t i = 0; i < OUTPUTS; i++) {
        for (size_t j = i + 1; j < sizeof file / sizeof file[0]; j++)
            if (base_file_same(file[i].path, file[j].path))
                return gyre_fail(GYRE_ERR_INVALID, text, file[i].flag, file[i].path, file[j].flag,
                                 file[j].path, file[i].flag);
        const char *flag, *read = file[i].path ? data_file(run->data, file[i].path, &flag) : NULL;
        if (read)
            return gyre_fail(GYRE_ERR_INVALID, text, file[i].flag, file[i].path, flag, read, file[i].flag);
        gyre_status_t status =
            file[i].path == o->save
                ? pipe_source_check_save(file[i].flag, file[i].path, o->load, o->tokenizer)
                : pipe_source_check_output(file[i].flag, file[i].path, o->load, o->tokenizer);
        if (status == GYRE_OK)
            status = pipe_source_check_output(file[i].flag, file[i].path, o->load_adapters, NULL);
        if (status != GYRE_OK)
            return status;
    }
    return GYRE_OK;
}

gyre_status_t train_open_outputs(train_run_t *run)
{
    const train_config_t *options = run->options;
    gyre_status_t status = check_apart(run);
    if (status == GYRE_OK)
        status = check_writable(options->report, "report");
    if (status == GYRE_OK && base_file_is_stdout(options->log))
        status = check_writable(options->log, "log");
    if (status == GYRE_OK)
        status = check_writable(options->trace, "trace");
    run->made_checkpoints = options->checkpoint && !train_is_folder(options->checkpoint);
    if (status == GYRE_OK && options->checkpoint)
        status = train_resume_open(options, &run->resuming, &run->lock);
    if (status == GYRE_OK)
        status = train_saves_folder(options) ? check_folder(options) : check_writable(options->save, "save");
    if (status == GYRE_OK && options->save_adapters)
        status = check_adapters(options);
    return status == GYRE_OK ? train_record_open(&run->record, options) : status;
}
