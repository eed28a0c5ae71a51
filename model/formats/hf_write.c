/* SPDX-License-Identifier: Apache-2.0 */
/* model/formats/hf_write.c: rows of the parameter table into files that Hugging Face loads unmodified. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/folder.h"
#include "base/grow.h"
#include "base/text/json.h"
#include "collectives/kernels/kernels.h"
#include "model/formats/hf.h"
#include "model/formats/safetensors.h"

typedef struct {
    size_t row, piece, shard, bytes; /* shard: the file */
} place_t;

struct model_hf_writer {
    const model_params_t *params;
    model_family_t family;
    model_hf_type_t type;
    const model_hf_origin_t *origin; /* NULL: none */
    base_folder_t output;
    const char *folder; /* where it is written: output.made */
    place_t *place;     /* of every tensor, in the order of rows and pieces */
    size_t tensors, shards, total;
    size_t next; /* tensor to be written */
    int failed;  /* a call has failed */
    model_safetensors_t file;
};

static size_t element_bytes(model_hf_type_t type)
{
    return type == MODEL_HF_F32 ? 4 : 2;
}

static const char *type_name(model_hf_type_t type)
{
    return type == MODEL_HF_F32 ? "F32" : type == MODEL_HF_BF16 ? "BF16" : "F16";
}

static gyre_status_t no_memory(const char *folder)
{
    return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to write the model %s", folder);
}

static model_hf_type_t type_of(const model_hf_writer_t *w, size_t row)
{
    return model_kind_is_exact(w->params->row[row].kind) ? MODEL_HF_F32 : w->type;
}

/* ---- what goes where ----------------------------------------------------------------------------------- */

static gyre_status_t plan(model_hf_writer_t *w, size_t shard_bytes)
{
    model_tensor_t tensor;
    size_t room = 0, filled = 0;
    for (size_t r = 0; r < w->params->rows; r++)
        for (size_t i = 0; model_row_tensor(w->params, w->family, &w->params->row[r], i, &tensor); i++) {
            size_t bytes = tensor.rows * tensor.columns * element_bytes(type_of(w, r));
            if (!base_grow(&w->place, &room, w->tensors, 1, sizeof *w->place))
                return no_memory(w->folder);
            if (w->shards == 0 || (shard_bytes > 0 && filled > 0 && filled + bytes > shard_bytes)) {
                w->shards++;
                filled = 0;
            }
            w->place[w->tensors++] = (place_t){.row = r, .piece = i, .shard = w->shards - 1, .bytes = bytes};
            filled += bytes;
            w->total += bytes;
        }
    return GYRE_OK;
}

static void shard_name(const model_hf_writer_t *w, size_t shard, char name[64])
{
    if (w->shards == 1)
        snprintf(name, 64, "model.safetensors");
    else
        snprintf(name, 64, "model-%05zu-of-%05zu.safetensors", shard + 1, w->shards);
}

static void tensor_of(const model_hf_writer_t *w, const place_t *place, model_tensor_t *out)
{
    (void)model_row_tensor(w->params, w->family, &w->params->row[place->row], place->piece, out);
}

/* ---- files --------------------------------------------------------------------------------------------- */

static void list_tensors(model_hf_writer_t *w, size_t shard)
{
    model_tensor_t tensor;
    model_safetensors_metadata(&w->file, json_pack("{s:s}", "format", "pt"));
    for (size_t i = 0; i < w->tensors; i++)
        if (w->place[i].shard == shard) {
            tensor_of(w, &w->place[i], &tensor);
            const char *type = type_name(type_of(w, w->place[i].row));
            model_safetensors_tensor(&w->file, tensor.name, type, tensor.shape, tensor.dims,
                                     w->place[i].bytes);
        }
}

static gyre_status_t begin_shard(model_hf_writer_t *w, size_t shard)
{
    char name[64], path[PATH_MAX];
    shard_name(w, shard, name);
    if (snprintf(path, sizeof path, "%s/%s", w->folder, name) >= (int)sizeof path)
        return gyre_fail(GYRE_ERR_INVALID, "the path %.80s... is too long", w->folder);
    list_tensors(w, shard);
    return model_safetensors_begin(&w->file, path);
}

static gyre_status_t write_index(const model_hf_writer_t *w)
{
    char name[64], path[PATH_MAX];
    model_tensor_t tensor;
    json_t *map = json_object();
    int bad = !map;
    for (size_t i = 0; i < w->tensors; i++) {
        tensor_of(w, &w->place[i], &tensor);
        shard_name(w, w->place[i].shard, name);
        bad |= json_object_set_new(map, tensor.name, json_string(name));
    }
    json_t *index =
        json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)w->total, "weight_map", map);
    if (bad || !index) {
        json_decref(index);
        return no_memory(w->folder);
    }
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", w->folder);
    gyre_status_t status = base_json_write(path, index);
    json_decref(index);
    return status;
}

static gyre_status_t write_config(const model_hf_writer_t *w)
{
    static const char *const names[] = {"float32", "bfloat16", "float16"};
    char path[PATH_MAX];
    json_t *config = NULL;
    gyre_status_t status = w->origin ? model_hf_origin_config(w->origin, &w->params->config, &config)
                                     : model_config_to_json(&w->params->config, &config);
    if (status != GYRE_OK)
        return status;
    /* `transformers` 5 says "dtype" */
    const char *key = json_object_get(config, "dtype") ? "dtype" : "torch_dtype";
    snprintf(path, sizeof path, "%s/config.json", w->folder);
    status = json_object_set_new(config, key, json_string(names[w->type])) == 0
                 ? base_json_write(path, config)
                 : no_memory(w->folder);
    json_decref(config);
    return status;
}

/* ---- rows ---------------------------------------------------------------------------------------------- */

gyre_status_t model_hf_create(const char *folder, const model_params_t *params, model_hf_type_t type,
                              size_t shard_bytes, const model_hf_origin_t *origin, model_hf_writer_t **out)
{
    model_hf_writer_t *w = calloc(1, sizeof *w);
    if (!w)
        return no_memory(folder);
    w->params = params;
    w->type = type;
    w->origin = origin;
    gyre_status_t status = model_config_family(&params->config, &w->family);
    if (status == GYRE_OK)
        status = base_folder_begin(folder, &w->output);
    if (status == GYRE_OK) {
        w->folder = w->output.made;
        status = plan(w, shard_bytes);
    }
    if (status != GYRE_OK) {
        model_hf_abandon(w);
        return status;
    }
    *out = w;
    return GYRE_OK;
}

/* file [count] in the type of the export, in place. */
static void encode(model_hf_type_t type, float *file, size_t count)
{
    unsigned char *to = (unsigned char *)file;
    for (size_t i = 0; type != MODEL_HF_F32 && i < count; i++) {
        unsigned short half =
            type == MODEL_HF_BF16 ? coll_float_to_bfloat(file[i]) : coll_float_to_half(file[i]);
        memcpy(to + 2 * i, &half, sizeof half);
    }
}

static gyre_status_t write_tensor(model_hf_writer_t *w, const place_t *place, const float *whole, size_t ld)
{
    model_tensor_t tensor;
    tensor_of(w, place, &tensor);
    size_t count = tensor.rows * tensor.columns;
    float *file = malloc(count * sizeof *file);
    if (!file)
        return no_memory(w->folder);
    gyre_status_t status = w->file.open ? GYRE_OK : begin_shard(w, place->shard);
    model_tensor_from_whole(&tensor, file, whole, ld);
    encode(type_of(w, place->row), file, count);
    if (status == GYRE_OK)
        status = model_safetensors_put(&w->file, file, place->bytes);
    free(file);
    int last = w->next + 1 == w->tensors || w->place[w->next + 1].shard != place->shard;
    if (status == GYRE_OK && last)
        status = model_safetensors_commit(&w->file);
    w->next++;
    return status;
}

gyre_status_t model_hf_write(model_hf_writer_t *w, size_t r, const float *canonical)
{
    const model_param_t *row = &w->params->row[r];
    if (row->kind == MODEL_HEAD && row->twin)
        return GYRE_OK;
    if (w->failed || w->next == w->tensors || w->place[w->next].row != r || w->place[w->next].piece != 0)
        return gyre_fail(GYRE_ERR_INVALID, "%s is not the next row of the export to %s", row->name,
                         w->folder);
    float *whole = malloc(row->shape[0] * row->shape[1] * sizeof *whole);
    if (!whole)
        return no_memory(w->folder);
    model_param_to_file(row, canonical, whole);
    gyre_status_t status = GYRE_OK;
    while (status == GYRE_OK && w->next < w->tensors && w->place[w->next].row == r)
        status = write_tensor(w, &w->place[w->next], whole, row->shape[1]);
    free(whole);
    w->failed = status != GYRE_OK;
    return status;
}

void model_hf_abandon(model_hf_writer_t *w)
{
    if (!w)
        return;
    base_folder_abandon(&w->output);
    model_safetensors_abandon(&w->file);
    free(w->place);
    free(w);
}

/* A file of a model without its tokenizer: the next one replaces it, or does without it. */
static int is_of_weights(const char *name)
{
    size_t part, of;
    int end = -1;
    return strcmp(name, "config.json") == 0 || strcmp(name, "model.safetensors") == 0 ||
           strcmp(name, "model.safetensors.index.json") == 0 ||
           (sscanf(name, "model-%5zu-of-%5zu.safetensors%n", &part, &of, &end) == 2 && end > 0 && !name[end]);
}

/* What an export replaces, but not weights of other names, or adapters, which it does not write. */
static int is_of_model(const char *name)
{
    return is_of_weights(name) || model_hf_keeps(name);
}

int model_hf_is_file(const char *name)
{
    static const char *const ends[] = {".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json"};
    const size_t n = strlen(name);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (n > strlen(ends[i]) && strcmp(name + n - strlen(ends[i]), ends[i]) == 0)
            return 1;
    return is_of_model(name) || strcmp(name, MODEL_PEFT_CONFIG) == 0;
}

/* 1: the files of a tokenizer in `folder` are those of the model there. Without a model they are the user's,
 * put there for this one. */
static int has_model(const char *folder)
{
    char path[PATH_MAX];
    return snprintf(path, sizeof path, "%s/config.json", folder) < (int)sizeof path &&
           access(path, F_OK) == 0;
}

gyre_status_t model_hf_finish(model_hf_writer_t *w)
{
    gyre_status_t status = GYRE_OK;
    if (w->failed || w->next != w->tensors)
        status = gyre_fail(GYRE_ERR_INVALID, "the export to %s ends after %zu of %zu tensors",
                           w->output.target, w->next, w->tensors);
    if (status == GYRE_OK && w->shards > 1)
        status = write_index(w);
    if (status == GYRE_OK)
        status = write_config(w);
    if (status == GYRE_OK && w->origin)
        status = model_hf_origin_copy(w->origin, w->folder);
    if (status == GYRE_OK)
        status = base_folder_commit(&w->output, has_model(w->output.target) ? is_of_model : is_of_weights);
    model_hf_abandon(w);
    return status;
}
