/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/load/export.c: from a checkpoint's rows to a folder, one row at a time. */
#include "pipeline/load/export.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "model/formats/weights.h"

/* ---- what the model keeps of another one --------------------------------------------------------------- */

static gyre_status_t open_origin(const char *path, const model_params_t *whole, model_hf_origin_t **out)
{
    const model_config_t *model = &whole->config;
    model_config_t was;
    struct stat info;
    if (stat(path, &info) != 0)
        return gyre_fail_errno(GYRE_ERR_NOT_FOUND, errno, "cannot open %s", path);
    gyre_status_t status =
        S_ISDIR(info.st_mode) ? model_hf_config(path, model->seq, &was) : model_checkpoint_config(path, &was);
    if (status == GYRE_OK &&
        (was.vocab != model->vocab || was.layers != model->layers || was.hidden != model->hidden))
        status =
            gyre_fail(GYRE_ERR_INVALID,
                      "%s is another model: it has %zu ids, %zu layers and %zu channels, the checkpoint %zu, "
                      "%zu and %zu",
                      path, was.vocab, was.layers, was.hidden, model->vocab, model->layers, model->hidden);
    return status == GYRE_OK ? model_hf_origin_open(path, whole, out) : status;
}

gyre_status_t pipe_source_origin(const pipe_source_t *source, const char *named, const model_params_t *whole,
                                 model_hf_origin_t **out)
{
    const char *path = named ? named : pipe_source_began(source);
    *out = NULL;
    if (!path)
        return GYRE_OK;
    if (named)
        return open_origin(path, whole, out);
    const int muted = base_log_mute(1);
    gyre_status_t status = open_origin(path, whole, out);
    base_log_mute(muted);
    if (status != GYRE_OK)
        log_warning(
            "the run began with the model in %s, whose tokenizer, type and keys of config.json are left "
            "out: %s",
            path, gyre_last_error());
    return status == GYRE_ERR_NO_MEMORY ? status : GYRE_OK;
}

/* ---- export -------------------------------------------------------------------------------------------- */

/* The folder is replaced as a whole: the checkpoint must not be in it. */
static gyre_status_t check_apart(const pipe_export_t *config)
{
    char *from = realpath(config->checkpoint, NULL), *to = realpath(config->folder, NULL);
    const size_t n = to ? strlen(to) : 0;
    const int inside = from && to && strncmp(from, to, n) == 0 && (from[n] == '/' || !from[n]);
    free(from);
    free(to);
    return inside
               ? gyre_fail(GYRE_ERR_INVALID,
                           "--export %s: it is in the folder %s, which is replaced as a whole: name another",
                           config->checkpoint, config->folder)
               : GYRE_OK;
}

static gyre_status_t write_rows(const pipe_source_t *source, const model_params_t *whole,
                                const model_hf_origin_t *origin, model_hf_writer_t *writer)
{
    const model_params_t *table = origin ? model_hf_origin_params(origin) : whole;
    size_t largest = 0;
    for (size_t r = 0; r < table->rows; r++)
        largest = base_max_size(largest, table->row[r].count);
    float *row = malloc(largest * sizeof *row);
    gyre_status_t status =
        row ? GYRE_OK : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a row of %zu weights", largest);
    for (size_t r = 0; status == GYRE_OK && r < whole->rows; r++) {
        if (whole->row[r].alias != MODEL_NONE)
            continue;
        status = pipe_source_range(source, whole, r, 0, whole->row[r].count, row);
        if (status == GYRE_OK && origin)
            model_hf_origin_fill(origin, r, row);
        if (status == GYRE_OK)
            status = model_hf_write(writer, r, row);
    }
    free(row);
    return status;
}

static gyre_status_t write_folder(const pipe_export_t *config, const pipe_source_t *source,
                                  const model_params_t *whole)
{
    model_hf_origin_t *origin = NULL;
    model_hf_writer_t *writer = NULL;
    gyre_status_t status = pipe_source_origin(source, config->origin, whole, &origin);
    const model_hf_type_t type = config->type ? *config->type
                                 : origin     ? model_hf_origin_type(origin)
                                              : MODEL_HF_F32;
    if (status == GYRE_OK)
        status = model_hf_create(config->folder, origin ? model_hf_origin_params(origin) : whole, type,
                                 MODEL_HF_SHARD_BYTES, origin, &writer);
    if (status == GYRE_OK)
        status = write_rows(source, whole, origin, writer);
    if (status == GYRE_OK)
        status = model_hf_finish(writer);
    else
        model_hf_abandon(writer);
    model_hf_origin_close(origin);
    return status;
}

gyre_status_t pipe_export(const pipe_export_t *config, uint64_t *step)
{
    const pipe_source_config_t from = {.path = config->checkpoint, .precision = -1};
    pipe_source_t *source = NULL;
    model_params_t *whole = NULL;
    if (!pipe_source_is_checkpoint(config->checkpoint))
        return gyre_fail(GYRE_ERR_INVALID,
                         "--export %s: it is not a checkpoint (step-N), nor a folder of checkpoints",
                         config->checkpoint);
    gyre_status_t status = check_apart(config);
    if (status == GYRE_OK)
        status = pipe_source_open(&from, &source);
    if (status == GYRE_OK)
        status = model_params_create(pipe_source_model(source), &whole);
    if (status == GYRE_OK)
        status = pipe_source_verify(source, whole, 0, 1);
    if (status == GYRE_OK)
        status = write_folder(config, source, whole);
    if (status == GYRE_OK)
        *step = pipe_source_step(source);
    model_params_destroy(whole);
    pipe_source_close(source);
    return status;
}
