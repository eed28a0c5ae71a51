/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/load/source.c: opens a model in any of its forms. */
#include "pipeline/load/source.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "model/formats/hf.h"
#include "model/formats/weights.h"
#include "model/network/hf_config.h"
#include "optim/checkpoint/snapshot.h"
#include "pipeline/agree/agree.h"

struct pipe_source {
    pipe_source_config_t config;
    model_config_t model;
    model_precision_t precision;
    optim_snapshot_t *snapshot; /* NULL: a folder or file of weights */
    uint64_t step;
    pipe_tokenizer_t learned; /* of a checkpoint */
};

/* ---- checkpoints --------------------------------------------------------------------------------------- */

/* FOLDER/step-N as folder [PATH_MAX] and step; 0: the path is not of that form. */
static int split_step(const char *path, char *folder, uint64_t *step)
{
    char *end;
    if (!realpath(path, folder))
        return 0;
    char *slash = strrchr(folder, '/');
    if (strncmp(slash + 1, "step-", 5) != 0 || slash[6] == 0)
        return 0;
    *step = strtoull(slash + 6, &end, 10);
    if (*end)
        return 0;
    slash[slash == folder] = 0;
    return 1;
}

/* What a checkpoint says of its model and precision. */
static gyre_status_t read_run(pipe_source_t *source)
{
    const json_t *run = optim_snapshot_run(source->snapshot), *model = json_object_get(run, "model");
    const char *precision = json_string_value(json_object_get(json_object_get(run, "options"), "precision"));
    static const char *const words[] = {"fp32", "bf16", "fp16"};
    if (!json_is_object(model))
        return gyre_fail(GYRE_ERR_FORMAT, "the checkpoint of step %" PRIu64 " in %s does not say its model",
                         source->step, source->config.path);
    if (json_object_get(run, "base"))
        return gyre_fail(
            GYRE_ERR_UNSUPPORTED,
            "%s holds adapters (--lora), not the weights that they are for: run the same gyre-train "
            "with --resume and --save, which writes the merged model",
            source->config.path);
    source->learned = pipe_tokenizer_recorded(run);
    for (int i = 0; precision && i < 3; i++)
        if (strcmp(precision, words[i]) == 0)
            source->precision = (model_precision_t)i;
    return model_config_from_json(model, source->config.path, 0, &source->model);
}

/* source->snapshot NULL: the path neither is nor holds a checkpoint. */
static gyre_status_t open_checkpoint(pipe_source_t *source)
{
    char folder[PATH_MAX];
    const char *path = source->config.path;
    gyre_status_t status;
    if (split_step(path, folder, &source->step)) {
        status = optim_snapshot_open(folder, source->step, &source->snapshot);
    } else if (source->config.chosen) {
        source->step = source->config.step;
        status = optim_snapshot_open(path, source->step, &source->snapshot);
    } else {
        status = optim_snapshot_open_newest(path, &source->step, &source->snapshot);
    }
    return status == GYRE_OK && source->snapshot ? read_run(source) : status;
}

/* 1: a folder with config.json, which is a model. */
static int holds_config(const char *path)
{
    char config[PATH_MAX];
    const int n = snprintf(config, sizeof config, "%s/config.json", path);
    return n > 0 && n < (int)sizeof config && access(config, F_OK) == 0;
}

/* 1: a folder that is not a model. */
static int may_hold_checkpoints(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode) && !holds_config(path);
}

int pipe_source_is_checkpoint(const char *path)
{
    char folder[PATH_MAX];
    uint64_t step, *steps = NULL;
    size_t count = 0;
    if (!may_hold_checkpoints(path))
        return 0;
    if (split_step(path, folder, &step))
        return 1;
    const int muted = base_log_mute(1);
    (void)optim_snapshot_list(path, &steps, &count);
    base_log_mute(muted);
    free(steps);
    return count > 0;
}

/* Rank 0's part. */
static gyre_status_t choose(pipe_source_config_t *config)
{
    char folder[PATH_MAX];
    uint64_t step;
    optim_snapshot_t *snapshot = NULL;
    if (!config->path || !may_hold_checkpoints(config->path) || split_step(config->path, folder, &step))
        return GYRE_OK;
    const gyre_status_t status = optim_snapshot_open_newest(config->path, &config->step, &snapshot);
    config->chosen = snapshot != NULL;
    optim_snapshot_close(snapshot);
    return status;
}

gyre_status_t pipe_source_choose(gyre_comm_t *comm, pipe_source_config_t *config, int *agreed)
{
    config->chosen = 0;
    gyre_status_t status = pipe_agree(comm, gyre_comm_rank(comm) == 0 ? choose(config) : GYRE_OK, agreed);
    uint64_t word[2] = {(uint64_t)config->chosen, config->step};
    if (status == GYRE_OK)
        status = gyre_broadcast(word, word, 2, GYRE_UINT64, 0, comm);
    config->chosen = word[0] != 0;
    config->step = word[1];
    return status;
}

/* ---- any form ------------------------------------------------------------------------------------------ */

/* The name of a file that lies in the checkpoint `at` [PATH_MAX]; NULL: it does not, or is not there. */
static const char *name_in_checkpoint(const char *path, char *at)
{
    char folder[PATH_MAX];
    uint64_t step;
    char *slash = realpath(path, at) ? strrchr(at, '/') : NULL;
    if (!slash || slash == at)
        return NULL;
    *slash = 0;
    return split_step(at, folder, &step) && optim_snapshot_has(folder, step) ? slash + 1 : NULL;
}

gyre_status_t pipe_source_check_file(const char *path)
{
    char at[PATH_MAX];
    return name_in_checkpoint(path, at)
               ? gyre_fail(GYRE_ERR_INVALID, "--load %s: it is a file of a checkpoint: give the folder, %s",
                           path, at)
               : GYRE_OK;
}

static gyre_status_t open_file(pipe_source_t *source)
{
    gyre_status_t status = pipe_source_check_file(source->config.path);
    if (status == GYRE_OK)
        status = model_checkpoint_config(source->config.path, &source->model);
    if (status == GYRE_OK && source->model.heads == 0 && source->config.heads == 0)
        return gyre_fail(GYRE_ERR_INVALID,
                         "%s does not say how many attention heads its model has: give --heads",
                         source->config.path);
    if (source->model.heads == 0)
        source->model.heads = source->config.heads;
    return status;
}

static gyre_status_t open_any(pipe_source_t *source)
{
    const char *path = source->config.path;
    struct stat info;
    if (stat(path, &info) != 0)
        return gyre_fail(GYRE_ERR_NOT_FOUND,
                         "--load %s: it is not there: give a folder with config.json, a folder of "
                         "checkpoints, or a file of weights",
                         path);
    if (!S_ISDIR(info.st_mode))
        return open_file(source);
    if (holds_config(path))
        return model_hf_config(path, source->config.seq, &source->model);
    gyre_status_t status = open_checkpoint(source);
    if (status != GYRE_OK || source->snapshot)
        return status;
    return gyre_fail(GYRE_ERR_NOT_FOUND,
                     "--load %s: the folder has neither config.json nor checkpoints (step-N)", path);
}

/* As gyre-train completes a shape. */
static gyre_status_t complete(pipe_source_t *source)
{
    const pipe_source_config_t *c = &source->config;
    model_config_t *model = &source->model;
    if (c->seq > model->seq)
        return gyre_fail(GYRE_ERR_INVALID, "--seq %zu: the model in %s has %zu positions", c->seq, c->path,
                         model->seq);
    if (c->heads > 0 && c->heads != model->heads)
        return gyre_fail(GYRE_ERR_INVALID, "--heads %zu: the model in %s has %zu: leave --heads out",
                         c->heads, c->path, model->heads);
    const int learned = model->pos == MODEL_POS_LEARNED || model->top_query;
    if (source->snapshot &&
        ((c->seq > 0 && c->seq != model->seq && learned) || (c->leaves > 0 && c->leaves != model->leaves)))
        return gyre_fail(GYRE_ERR_INVALID,
                         "--leaves, and --seq with learned positions, are for models that are not "
                         "checkpoints: the one in %s has %zu positions and %zu leaves: leave them out, or "
                         "write it as a folder first (gyre-train --export)",
                         c->path, model->seq, model->leaves);
    if (c->seq > 0)
        model->seq = c->seq;
    if (c->leaves > 0) {
        model->leaves = c->leaves;
        model->vocab_padded = 0; /* anew, for these leaves */
    }
    if (model->leaves == 0)
        model->leaves = model_config_leaves(model);
    if (c->precision >= 0)
        source->precision = (model_precision_t)c->precision;
    gyre_status_t status = model_config_check_of(model, c->path);
    *model = model_config_complete(model);
    return status;
}

gyre_status_t pipe_source_open(const pipe_source_config_t *config, pipe_source_t **out)
{
    pipe_source_t *source = calloc(1, sizeof *source);
    if (!source)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to open a model");
    *source = (pipe_source_t){.config = *config, .precision = MODEL_FLOAT32, .step = UINT64_MAX};
    gyre_status_t status = open_any(source);
    if (status == GYRE_OK)
        status = complete(source);
    if (status != GYRE_OK) {
        pipe_source_close(source);
        return status;
    }
    *out = source;
    return GYRE_OK;
}

void pipe_source_close(pipe_source_t *source)
{
    if (!source)
        return;
    if (source->snapshot)
        optim_snapshot_close(source->snapshot);
    free(source);
}

const model_config_t *pipe_source_model(const pipe_source_t *source)
{
    return &source->model;
}

model_precision_t pipe_source_precision(const pipe_source_t *source)
{
    return source->precision;
}

const char *pipe_source_overflow(const pipe_source_t *source)
{
    return source->precision == MODEL_FLOAT16 ? "fp16 ends at 65504: take --precision bf16 or fp32"
                                              : "activations overflow, or weights are no numbers";
}

uint64_t pipe_source_step(const pipe_source_t *source)
{
    return source->step;
}

uint64_t pipe_source_hash(const pipe_source_t *source)
{
    return source->snapshot ? optim_snapshot_hash(source->snapshot) : 0;
}

const char *pipe_source_began(const pipe_source_t *source)
{
    return source->snapshot
               ? json_string_value(json_object_get(optim_snapshot_run(source->snapshot), "origin"))
               : NULL;
}

const pipe_tokenizer_t *pipe_source_learned(const pipe_source_t *source)
{
    return &source->learned;
}

/* `given`, of --tokenizer, and the tokenizer that lies with the model. Bytes may be meant for any model, as
 * in training. */
static gyre_status_t compare_given(const pipe_source_t *source, const char *spec,
                                   const model_tokenizer_t *given)
{
    char path[PATH_MAX], why[512];
    const char *model = source->config.path;
    model_tokenizer_t *own = NULL;
    if (source->learned.hash || strcmp(spec, "bytes") == 0)
        return GYRE_OK;
    if (pipe_tokenizer_find(model, &source->model, path, &own, why, sizeof why) != GYRE_OK)
        log_warning("whether the ids of --tokenizer %s are those of the model in %s is not known: %s", spec,
                    model, why);
    gyre_status_t status =
        !own || pipe_tokenizer_same_ids(own, given)
            ? GYRE_OK
            : gyre_fail(GYRE_ERR_INVALID,
                        "--tokenizer %s has other ids than the model's, which is %s: name that one, or "
                        "leave --tokenizer out",
                        spec, path);
    model_tokenizer_destroy(own);
    return status;
}

/* Without --tokenizer. *out NULL: it is not known. */
static gyre_status_t open_own(const pipe_source_t *source, model_tokenizer_t **out)
{
    char path[PATH_MAX], why[512];
    const char *model = source->config.path;
    const pipe_tokenizer_t *learned = &source->learned;
    if (pipe_tokenizer_find(model, &source->model, path, out, why, sizeof why) != GYRE_OK)
        return gyre_fail(GYRE_ERR_INVALID,
                         "which ids the model in %s has is not known: %s: name a tokenizer of the same ids "
                         "with --tokenizer",
                         model, why);
    const int bytes = learned->hash ? strcmp(learned->name, "bytes") == 0 : source->model.vocab == 256;
    return !*out && bytes ? model_tokenizer_open("bytes", out) : GYRE_OK;
}

gyre_status_t pipe_source_tokenizer(const pipe_source_t *source, const char *spec, model_tokenizer_t **out)
{
    char what[PATH_MAX + 16];
    *out = NULL;
    if (pipe_tokenizer_is_none(spec))
        return GYRE_OK;
    gyre_status_t status = spec ? model_tokenizer_open(spec, out) : open_own(source, out);
    if (status != GYRE_OK || !*out)
        return status;
    const pipe_tokenizer_t own = pipe_tokenizer_of(*out);
    snprintf(what, sizeof what, spec ? "--tokenizer %s" : "its folder's %s", spec ? spec : own.name);
    status = pipe_tokenizer_compare(&source->learned, source->config.path, what, &own);
    if (status == GYRE_OK && spec)
        status = compare_given(source, spec, *out);
    if (status != GYRE_OK) {
        model_tokenizer_destroy(*out);
        *out = NULL;
    }
    return status;
}

gyre_status_t pipe_source_no_tokenizer(const pipe_source_t *source)
{
    const pipe_tokenizer_t *learned = &source->learned;
    if (learned->hash)
        return gyre_fail(GYRE_ERR_INVALID,
                         "the ids of the model in %s are of tokenizer '%s' (%016" PRIx64
                         "): name it with --tokenizer",
                         source->config.path, learned->name, learned->hash);
    return gyre_fail(GYRE_ERR_INVALID,
                     "which tokenizer the ids of the model in %s are from is not known: name it with "
                     "--tokenizer",
                     source->config.path);
}

/* ---- outputs ------------------------------------------------------------------------------------------- */

/* 1: weights by this name are a whole model, which other ones may replace. A part of several is not. */
static int is_whole(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot && strcmp(dot, ".safetensors") == 0 && !strstr(name, "-of-");
}

/* 1: `path` is a file of the model that is read, maybe by another name: of its folder, or one that lies next
 * to a single file of weights and is read with it. Others there may be an earlier run's own results.
 * `weights` 1: `path` is of new weights. */
static int is_of_model(const char *path, const char *model, int is_folder, int weights)
{
    char folder[PATH_MAX], file[PATH_MAX];
    DIR *names = model_tokenizer_folder(model, folder) ? opendir(*folder ? folder : ".") : NULL;
    int found = 0;
    for (const struct dirent *entry; names && !found && (entry = readdir(names));) {
        const char *name = entry->d_name;
        const int read = is_folder ? model_hf_is_file(name) && !(weights && is_whole(name))
                                   : model_hf_keeps(name) || strcmp(name, "config.json") == 0;
        const int n = snprintf(file, sizeof file, "%s%s", folder, name);
        found = read && n < (int)sizeof file && base_file_same(path, file);
    }
    if (names)
        closedir(names);
    return found;
}

/* 1: `path` is the file that a tokenizer is read from, by itself or after its kind (gpt2:FILE). */
static int is_tokenizer(const char *path, const char *spec)
{
    const char *colon = spec ? strchr(spec, ':') : NULL;
    if (!spec || strcmp(spec, "bytes") == 0 || pipe_tokenizer_is_none(spec))
        return 0;
    return base_file_same(path, spec) || (colon && base_file_same(path, colon + 1));
}

static gyre_status_t refuse_output(const char *flag, const char *path, const char *part, const char *read)
{
    return gyre_fail(GYRE_ERR_INVALID,
                     "--%s %s would replace %s%s, which is read: name another file with --%s", flag, path,
                     part, read, flag);
}

gyre_status_t pipe_source_check_input(const char *flag, const char *path, const char *read)
{
    return base_file_same(path, read) ? refuse_output(flag, path, "", read) : GYRE_OK;
}

static gyre_status_t check_output(const char *flag, const char *path, const char *model,
                                  const char *tokenizer, int weights)
{
    char at[PATH_MAX];
    struct stat info;
    const int is_folder = model && stat(model, &info) == 0 && S_ISDIR(info.st_mode);
    const char *name = path ? name_in_checkpoint(path, at) : NULL;
    if (!path)
        return GYRE_OK;
    if (name && optim_snapshot_is_file(name))
        return gyre_fail(GYRE_ERR_INVALID,
                         "--%s %s would replace a file of the checkpoint %s: name another file with --%s",
                         flag, path, at, flag);
    gyre_status_t status = weights ? GYRE_OK : pipe_source_check_input(flag, path, model);
    if (status == GYRE_OK && model && is_of_model(path, model, is_folder, weights))
        return refuse_output(flag, path, is_folder ? "a file of " : "a file next to ", model);
    return status == GYRE_OK && is_tokenizer(path, tokenizer) ? refuse_output(flag, path, "", tokenizer)
                                                              : status;
}

gyre_status_t pipe_source_check_output(const char *flag, const char *path, const char *model,
                                       const char *tokenizer)
{
    return check_output(flag, path, model, tokenizer, 0);
}

gyre_status_t pipe_source_check_save(const char *flag, const char *path, const char *model,
                                     const char *tokenizer)
{
    return check_output(flag, path, model, tokenizer, 1);
}

/* ---- weights ------------------------------------------------------------------------------------------- */

gyre_status_t pipe_source_verify(const pipe_source_t *source, const model_params_t *whole, size_t index,
                                 size_t of)
{
    gyre_status_t status = optim_snapshot_fit(source->snapshot, whole);
    return status == GYRE_OK ? optim_snapshot_verify(source->snapshot, index, of) : status;
}

gyre_status_t pipe_source_range(const pipe_source_t *source, const model_params_t *whole, size_t row,
                                size_t first, size_t count, float *to)
{
    const optim_range_t range = {
        .row = optim_range_row(whole, row), .first = first, .count = count, .part = {to}};
    return optim_snapshot_read(source->snapshot, whole, &range, 1);
}

static gyre_status_t read_checkpoint(const pipe_source_t *source, const model_params_t *whole,
                                     const model_params_t *slice, float *weights)
{
    optim_range_t *range = calloc(slice->rows, sizeof *range);
    size_t ranges = 0;
    if (!range)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a list of %zu rows", slice->rows);
    for (size_t r = 0; r < slice->rows; r++) {
        const model_param_t *row = &slice->row[r];
        if (row->alias == MODEL_NONE)
            range[ranges++] = (optim_range_t){.row = optim_range_row(whole, row->global),
                                              .first = row->first,
                                              .count = row->count,
                                              .part = {weights + row->offset}};
    }
    gyre_status_t status = optim_snapshot_fit(source->snapshot, whole);
    if (status == GYRE_OK)
        status = optim_snapshot_read(source->snapshot, whole, range, ranges);
    free(range);
    return status;
}

gyre_status_t pipe_source_read(const pipe_source_t *source, const model_params_t *whole,
                               const model_params_t *slice, float *weights)
{
    gyre_status_t status = source->snapshot ? read_checkpoint(source, whole, slice, weights)
                                            : model_hf_load(source->config.path, slice, weights);
    for (size_t r = 0; status == GYRE_OK && r < slice->rows; r++)
        if (slice->row[r].alias == MODEL_NONE && !model_kind_is_exact(slice->row[r].kind))
            model_keep_f32(model_kernels_f32(MODEL_ISA_BEST), (model_precision_t)source->precision,
                           weights + slice->row[r].offset, slice->row[r].count);
    return status;
}
