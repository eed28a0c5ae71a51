/* SPDX-License-Identifier: Apache-2.0 */
/* model/formats/hf_origin.c: what a trained model keeps of the model that it was loaded from. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text/json.h"
#include "model/formats/hf.h"
#include "model/tokenizer/tokenizer.h"

typedef struct {
    char *name, *bytes;
    size_t count;
} kept_t;

struct model_hf_origin {
    json_t *config; /* of the folder; NULL: a single file has none */
    kept_t *file;
    size_t files;
    const model_params_t *trained;
    model_params_t *longer; /* NULL: the files have no more positions than `trained` */
    float *rest[2];         /* of MODEL_WPE and MODEL_WQE: what `longer` has more */
    model_hf_type_t type;
};

static const model_kind_t with_positions[2] = {MODEL_WPE, MODEL_WQE};

void model_hf_origin_close(model_hf_origin_t *origin)
{
    if (!origin)
        return;
    json_decref(origin->config);
    for (size_t i = 0; i < origin->files; i++) {
        free(origin->file[i].name);
        free(origin->file[i].bytes);
    }
    free(origin->file);
    model_params_destroy(origin->longer);
    free(origin->rest[0]);
    free(origin->rest[1]);
    free(origin);
}

/* ---- reading ------------------------------------------------------------------------------------------- */

int model_hf_keeps(const char *name)
{
    static const char *const kept[] = {"tokenizer_config.json",   "added_tokens.json",
                                       "chat_template.jinja",     "chat_template.json",
                                       "special_tokens_map.json", "generation_config.json"};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (strcmp(name, kept[i]) == 0)
            return 1;
    return model_tokenizer_is_file(name);
}

/* Into *file, with a NUL after its bytes. */
static gyre_status_t read_file(const char *path, const char *name, kept_t *file)
{
    struct stat info;
    FILE *in = fopen(path, "re");
    if (!in)
        return gyre_fail_errno(base_file_status(errno), errno, "cannot open %s", path);
    gyre_status_t status = GYRE_OK;
    if (fstat(fileno(in), &info) != 0)
        status = gyre_fail_errno(GYRE_ERR_IO, errno, "cannot look at %s", path);
    else if (!(file->name = strdup(name)) || !(file->bytes = calloc(1, (size_t)info.st_size + 1)))
        status = gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to read %s", path);
    else
        status = base_file_read(fileno(in), path, file->bytes, file->count = (size_t)info.st_size, 0);
    fclose(in);
    return status;
}

/* The files of `folder`, which ends in a slash or is empty, whose names `keeps`. */
static gyre_status_t read_kept(model_hf_origin_t *origin, const char *folder, int (*keeps)(const char *name))
{
    char path[PATH_MAX];
    struct stat info;
    gyre_status_t status = GYRE_OK;
    DIR *all = opendir(*folder ? folder : ".");
    if (!all)
        return gyre_fail_errno(GYRE_ERR_IO, errno, "cannot list the folder %s", *folder ? folder : ".");
    for (struct dirent *entry; status == GYRE_OK && (entry = readdir(all));) {
        kept_t *grown;
        int there = 0;
        if (!keeps(entry->d_name))
            continue;
        if (snprintf(path, sizeof path, "%s%s", folder, entry->d_name) >= (int)sizeof path)
            status = gyre_fail(GYRE_ERR_INVALID, "the path %.80s... is too long", folder);
        else if (!(there = stat(path, &info) == 0) && errno != ENOENT && errno != ELOOP)
            status = gyre_fail_errno(GYRE_ERR_IO, errno, "cannot look at %s", path);
        else if (!there || !S_ISREG(info.st_mode))
            continue; /* a link to nothing, a folder */
        else if (!(grown = realloc(origin->file, (origin->files + 1) * sizeof *grown)))
            status = gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to read %s", path);
        else {
            origin->file = grown;
            grown[origin->files] = (kept_t){0};
            status = read_file(path, entry->d_name, &grown[origin->files++]);
        }
    }
    closedir(all);
    return status;
}

static int is_python(const char *name)
{
    const size_t n = strlen(name);
    return n > 3 && strcmp(name + n - 3, ".py") == 0;
}

/* 1: config.json or tokenizer_config.json names classes in files of the folder, which may import others
 * there. */
static int names_code(const model_hf_origin_t *origin)
{
    for (size_t i = 0; i < origin->files; i++)
        if (strcmp(origin->file[i].name, "tokenizer_config.json") == 0 &&
            strstr(origin->file[i].bytes, "\"auto_map\""))
            return 1;
    return json_object_get(origin->config, "auto_map") != NULL;
}

int model_hf_foreign(const char *path, const model_config_t *model, model_config_t *next)
{
    char folder[PATH_MAX];
    struct stat info;
    if (stat(path, &info) != 0 || S_ISDIR(info.st_mode) || !model_tokenizer_folder(path, folder))
        return 0;
    const int muted = base_log_mute(1);
    const gyre_status_t status = model_hf_config(*folder ? folder : ".", 0, next);
    base_log_mute(muted);
    return status == GYRE_OK && /* of a model that Gyre does not have nothing is known */
           (next->vocab != model->vocab || next->layers != model->layers || next->hidden != model->hidden);
}

static gyre_status_t read_files(model_hf_origin_t *origin, const char *path)
{
    char folder[PATH_MAX], config[PATH_MAX];
    struct stat info;
    model_config_t next;
    if (!model_tokenizer_folder(path, folder) || model_hf_foreign(path, &origin->trained->config, &next))
        return GYRE_OK;
    gyre_status_t status = read_kept(origin, folder, model_hf_keeps);
    if (status == GYRE_OK && stat(path, &info) == 0 && S_ISDIR(info.st_mode))
        status = snprintf(config, sizeof config, "%sconfig.json", folder) < (int)sizeof config
                     ? base_json_read(config, &origin->config)
                     : gyre_fail(GYRE_ERR_INVALID, "the path %.80s... is too long", path);
    return status == GYRE_OK && names_code(origin) ? read_kept(origin, folder, is_python) : status;
}

/* Positions that sequences in training do not reach. */
static gyre_status_t read_rest(model_hf_origin_t *origin, const char *path, size_t positions)
{
    const model_params_t *trained = origin->trained;
    model_config_t config = trained->config;
    model_hf_t *hf = NULL;
    config.seq = positions;
    gyre_status_t status = model_params_create(&config, &origin->longer);
    if (status == GYRE_OK)
        status = model_hf_open(path, origin->longer, &hf);
    for (size_t i = 0; status == GYRE_OK && i < 2; i++) {
        size_t r = model_params_find(trained, with_positions[i], config.layers - 1);
        if (r == MODEL_NONE)
            continue;
        size_t first = trained->row[r].count, more = origin->longer->row[r].count - first;
        status = (origin->rest[i] = malloc(more * sizeof(float)))
                     ? model_hf_read(hf, &origin->longer->row[r], first, more, origin->rest[i])
                     : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %s", trained->row[r].name);
    }
    model_hf_close(hf);
    return status;
}

gyre_status_t model_hf_origin_open(const char *path, const model_params_t *trained, model_hf_origin_t **out)
{
    model_hf_t *hf = NULL;
    model_hf_origin_t *origin = calloc(1, sizeof *origin);
    if (!origin)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to read %s", path);
    origin->trained = trained;
    gyre_status_t status = model_hf_open(path, trained, &hf);
    if (status == GYRE_OK) {
        size_t positions = model_hf_positions(hf);
        origin->type = model_hf_type(hf);
        if (positions > trained->config.seq)
            status = read_rest(origin, path, positions);
    }
    model_hf_close(hf);
    if (status == GYRE_OK)
        status = read_files(origin, path);
    if (status != GYRE_OK) {
        model_hf_origin_close(origin);
        return status;
    }
    *out = origin;
    return GYRE_OK;
}

/* ---- what an export takes ------------------------------------------------------------------------------ */

const model_params_t *model_hf_origin_params(const model_hf_origin_t *origin)
{
    return origin->longer ? origin->longer : origin->trained;
}

model_hf_type_t model_hf_origin_type(const model_hf_origin_t *origin)
{
    return origin->type;
}

void model_hf_origin_fill(const model_hf_origin_t *origin, size_t row, float *canonical)
{
    size_t had = origin->trained->row[row].count;
    for (size_t i = 0; i < 2; i++)
        if (origin->rest[i] && origin->trained->row[row].kind == with_positions[i])
            memcpy(canonical + had, origin->rest[i],
                   (origin->longer->row[row].count - had) * sizeof *canonical);
}

/* Keys of Gyre that differ between the model as it was and as it is now are new; those of the origin that
 * mean the same are as they were, and so is everything that Gyre does not know. */
gyre_status_t model_hf_origin_config(const model_hf_origin_t *origin, const model_config_t *config,
                                     json_t **out)
{
    model_config_t was;
    json_t *before = NULL, *now = NULL, *value, *merged;
    const char *key;
    gyre_status_t status = model_config_to_json(config, &now);
    if (status != GYRE_OK || !origin->config) {
        *out = now;
        return status;
    }
    status = model_config_from_json(origin->config, "config.json", origin->trained->config.seq, &was);
    was.seq = config->seq;
    if (status == GYRE_OK)
        status = model_config_to_json(&was, &before);
    int bad = !(merged = json_deep_copy(origin->config));
    /* Mistral's shape is LLaMA's */
    int same_type = json_equal(json_object_get(now, "model_type"), json_object_get(merged, "model_type"));
    json_object_foreach(now, key, value)
    {
        /* weights are written by the names of a class with a head; leaves may be others than were read */
        int own = strcmp(key, "gyre") == 0 || (same_type && strcmp(key, "architectures") == 0) ||
                  strcmp(key, "num_nextn_predict_layers") == 0; /* such layers are not written */
        if (own || !json_equal(value, json_object_get(before, key)))
            bad |= json_object_set(merged, key, value);
    }
    json_object_del(merged, "quantization_config"); /* neither were those that were read */
    json_decref(now);
    json_decref(before);
    if (status == GYRE_OK && bad)
        status = gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a model's config.json");
    if (status != GYRE_OK) {
        json_decref(merged);
        return status;
    }
    *out = merged;
    return GYRE_OK;
}

gyre_status_t model_hf_origin_copy(const model_hf_origin_t *origin, const char *folder)
{
    char path[PATH_MAX];
    gyre_status_t status = GYRE_OK;
    for (size_t i = 0; status == GYRE_OK && i < origin->files; i++) {
        base_file_t file;
        if (snprintf(path, sizeof path, "%s/%s", folder, origin->file[i].name) >= (int)sizeof path)
            return gyre_fail(GYRE_ERR_INVALID, "the path %.80s... is too long", folder);
        status = base_file_begin(path, &file);
        if (status != GYRE_OK)
            break;
        (void)fwrite(origin->file[i].bytes, 1, origin->file[i].count, file.out); /* commit looks for errors */
        status = base_file_commit(&file);
    }
    return status;
}
