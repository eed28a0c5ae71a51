/* SPDX-License-Identifier: Apache-2.0 */
/* model/formats/hf_read.c: Hugging Face's files into rows of the parameter table. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/text/json.h"
#include "model/formats/hf.h"

#include "model/formats/hf_files.h"

struct model_hf {
    const model_params_t *params;
    model_family_t family;
    hf_files_t files;
    const model_peft_t *adapters; /* NULL: none */
    /* the row that was read whole last: its next range is often asked for next. NULL: none */
    float *whole;
    char whole_name[sizeof((model_param_t){0}.name)];
};

typedef model_safetensors_file_t file_t;

/* What the files call it: its name, or the name without its first part. */
static const char *held_as(const model_hf_t *hf, const char *name)
{
    const file_t *file;
    const char *dot = strchr(name, '.');
    return hf_files_find(&hf->files, name, &file) || !dot ? name : dot + 1;
}

static const json_t *find_tensor(const model_hf_t *hf, const char *name, const file_t **file)
{
    return hf_files_find(&hf->files, held_as(hf, name), file);
}

/* The files' tensors that no row of the whole model wants, in their order; without memory some or NULL. */
static json_t *list_rest(const model_hf_t *hf)
{
    json_t *rest = json_object();
    model_params_t *whole = NULL;
    const char *name;
    json_t *entry;
    for (size_t i = 0; i < hf->files.count; i++)
        json_object_foreach(hf->files.file[i].header, name, entry)
        {
            if (strcmp(name, "__metadata__") != 0 && !hf_name_is_made(name))
                json_object_set(rest, name, entry);
        }
    (void)model_params_create(&hf->params->config, &whole);
    if (!whole) {
        json_decref(rest);
        return NULL;
    }
    model_tensor_t tensor;
    for (size_t r = 0; r < whole->rows; r++)
        for (size_t i = 0; model_row_tensor(whole, hf->family, &whole->row[r], i, &tensor); i++)
            json_object_del(rest, held_as(hf, tensor.name));
    if (!whole->config.untied) { /* the embedding's once more */
        model_row_name(&whole->config, hf->family, MODEL_HEAD, 0, tensor.name);
        json_object_del(rest, tensor.name);
    }
    model_params_destroy(whole);
    return rest;
}

/* 1: the files hold a head of its own, which a model whose head is its embedding does not read. */
static int head_differs(const model_hf_t *hf, char name[MODEL_NAME_MAX])
{
    enum { PIECE = 4096 };
    const model_config_t *c = &hf->params->config;
    const file_t *file[2];
    float piece[2][PIECE];
    char embedding[MODEL_NAME_MAX];
    model_row_name(c, hf->family, MODEL_HEAD, 0, name);
    model_row_name(c, hf->family, MODEL_WTE, 0, embedding);
    const json_t *entry[2] = {hf_files_find(&hf->files, name, &file[0]),
                              find_tensor(hf, embedding, &file[1])};
    const json_t *shape = json_object_get(entry[0], "shape");
    if (c->untied || !entry[0] || !entry[1])
        return 0;
    if (!json_equal(shape, json_object_get(entry[1], "shape")))
        return 1;
    const size_t count = (size_t)json_integer_value(json_array_get(shape, 0)) *
                         (size_t)json_integer_value(json_array_get(shape, 1));
    for (size_t from = 0, n; from < count; from += n) {
        n = base_min_size(PIECE, count - from);
        for (int e = 0; e < 2; e++) {
            const char *type = json_string_value(json_object_get(entry[e], "dtype"));
            const size_t at =
                (size_t)json_integer_value(json_array_get(json_object_get(entry[e], "data_offsets"), 0));
            if (!hf_type_is_read(type) ||
                hf_files_decode(file[e], file[e]->data + at + from * hf_type_bytes(type), type, piece[e],
                                n) != GYRE_OK)
                return 0; /* which is said where it is read */
        }
        if (memcmp(piece[0], piece[1], n * sizeof piece[0][0]) != 0)
            return 1;
    }
    return 0;
}

/* What the files hold and the model has no place for. In DeepSeek-V3's files layers after the last one
 * predict further tokens, which is not trained here. */
void model_hf_report(const model_hf_t *hf)
{
    char prefix[MODEL_NAME_MAX];
    size_t after = 0, others = 0;
    json_t *rest = base_log_rank() <= 0 ? list_rest(hf) : NULL, *entry;
    const char *name, *first = "";
    char head[MODEL_NAME_MAX];
    if (rest && head_differs(hf, head))
        log_warning(
            "%s: %s differs from the embedding, and is left out (transformers 5 keeps it, transformers 4 "
            "does not): to keep it, set \"tie_word_embeddings\": false in config.json",
            hf->files.path, head);
    snprintf(prefix, sizeof prefix, "model.layers.%zu.", hf->params->config.layers);
    json_object_foreach(rest, name, entry)
    {
        if (strncmp(name, prefix, strlen(prefix)) == 0)
            after++;
        else if (others++ == 0)
            first = name;
    }
    if (after > 0)
        log_warning(
            "%s: the %zu tensors of %s... are left out: the model has %zu layers, and Gyre has none that "
            "predict further tokens (num_nextn_predict_layers)",
            hf->files.path, after, prefix, hf->params->config.layers);
    if (others > 0)
        log_warning("%s: %zu tensor%s left out: the model of its config.json has no parameter %.80s%s",
                    hf->files.path, others, others == 1 ? " is" : "s are", first, others == 1 ? "" : ", ...");
    json_decref(rest);
}

gyre_status_t model_hf_open(const char *path, const model_params_t *params, model_hf_t **out)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return gyre_fail_errno(errno == ENOENT ? GYRE_ERR_NOT_FOUND : GYRE_ERR_IO, errno, "cannot open %s",
                               path);
    model_hf_t *hf = calloc(1, sizeof *hf);
    if (!hf)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to open %s", path);
    hf->params = params;
    gyre_status_t status = model_config_family(&params->config, &hf->family);
    if (status == GYRE_OK)
        status = hf_files_open(path, &hf->files);
    if (status != GYRE_OK) {
        model_hf_close(hf);
        return status;
    }
    *out = hf;
    return GYRE_OK;
}

void model_hf_merge(model_hf_t *hf, const model_peft_t *adapters)
{
    hf->adapters = adapters;
}

void model_hf_close(model_hf_t *hf)
{
    if (!hf)
        return;
    free(hf->whole);
    hf_files_close(&hf->files);
    free(hf);
}

gyre_status_t model_hf_config(const char *folder, size_t seq, model_config_t *out)
{
    json_t *object = NULL;
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/config.json", folder) >= (int)sizeof path)
        return gyre_fail(GYRE_ERR_INVALID, "the path %.80s... is too long", folder);
    gyre_status_t status = base_json_read(path, &object);
    if (status == GYRE_OK)
        status = model_config_from_json(object, path, seq, out);
    if (status == GYRE_OK)
        status = hf_files_check_quantized(folder, object);
    json_decref(object);
    return status;
}

/* ---- a tensor ------------------------------------------------------------------------------------------ */

typedef struct {
    const file_t *file;
    const char *type;
    size_t at; /* in the file */
} found_t;

/* Where the tensor is, if it is what is wanted. */
static gyre_status_t find_wanted(const model_hf_t *hf, const model_tensor_t *want, found_t *out)
{
    const file_t *file = NULL;
    const json_t *entry = find_tensor(hf, want->name, &file);
    if (!entry) {
        char blocks[MODEL_NAME_MAX + 8];
        snprintf(blocks, sizeof blocks, "%s_blocks", want->name);
        if (find_tensor(hf, blocks, &file))
            return gyre_fail(GYRE_ERR_UNSUPPORTED,
                             "%s: %s is in 4 bits (MXFP4): F32, BF16 and F16 are read; let transformers "
                             "dequantize it first (docs/models.md, Quantized weights)",
                             file->path, want->name);
        char head[MODEL_NAME_MAX];
        model_row_name(&hf->params->config, hf->family, MODEL_HEAD, 0, head);
        if (hf->params->config.untied && strcmp(want->name, head) == 0)
            return gyre_fail(GYRE_ERR_FORMAT,
                             "%s holds no tensor %s: if the model's head is its embedding, "
                             "\"tie_word_embeddings\" must be true in config.json",
                             hf->files.path, head);
        return gyre_fail(GYRE_ERR_FORMAT, "%s holds no tensor %s: it is not a model of this architecture%s",
                         hf->files.path, want->name,
                         hf->family == MODEL_FAMILY_GYRE
                             ? "; no model_type of Hugging Face's has this architecture, so tensors have "
                               "Gyre's own names: is what config.json's \"gyre\" sets meant? (docs/models.md)"
                             : "");
    }
    const char *type = json_string_value(json_object_get(entry, "dtype"));
    const json_t *shape = json_object_get(entry, "shape"), *offsets = json_object_get(entry, "data_offsets");
    int fits = json_array_size(shape) == want->dims;
    for (size_t d = 0; fits && d < want->dims; d++) {
        json_int_t there = json_integer_value(json_array_get(shape, d)), wanted = (json_int_t)want->shape[d];
        fits = there == wanted || (want->positions && d == 0 && there > wanted);
    }
    if (!fits) {
        char *text = json_dumps(shape, JSON_COMPACT), rest[2][24] = {"", ""};
        for (size_t d = 1; d < want->dims; d++)
            snprintf(rest[d - 1], sizeof rest[0], ", %zu", want->shape[d]);
        gyre_status_t status =
            gyre_fail(GYRE_ERR_FORMAT, "%s in %s is %.60s; this model needs [%zu%s%s]", want->name,
                      file->path, text ? text : "of another shape", want->shape[0], rest[0], rest[1]);
        free(text);
        return status;
    }
    if (strncmp(type, "F8_", 3) == 0)
        return gyre_fail(
            GYRE_ERR_UNSUPPORTED,
            "%s in %s is %s, of 8 bits: F32, BF16 and F16 are read. Take a copy in BF16, or make "
            "one, in which weights are multiplied by their weight_scale_inv (fp8_cast_bf16.py of "
            "DeepSeek-V3)",
            want->name, file->path, type);
    if (!hf_type_is_read(type))
        return gyre_fail(GYRE_ERR_UNSUPPORTED, "%s in %s is %s: F32, BF16 and F16 are read; convert it first",
                         want->name, file->path, type);
    *out = (found_t){.file = file,
                     .type = type,
                     .at = file->data + (size_t)json_integer_value(json_array_get(offsets, 0))};
    return GYRE_OK;
}

/* ---- rows ---------------------------------------------------------------------------------------------- */

/* 1 if a row is one tensor (out), whose elements lie in the file as they do in the row-major whole of the
 * row. */
static int is_plain(const model_hf_t *hf, const model_param_t *row, model_tensor_t *out)
{
    model_tensor_t second;
    return !model_row_tensor(hf->params, hf->family, row, 1, &second) &&
           model_row_tensor(hf->params, hf->family, row, 0, out) && out->order == MODEL_ORDER_PLAIN &&
           out->row == 0 && out->column == 0 && out->columns == row->shape[1];
}

/* Reads the range alone. Rows after the tensor's are the vocabulary's padding. */
static gyre_status_t read_range(const model_hf_t *hf, const model_tensor_t *tensor, const model_param_t *row,
                                size_t first, size_t count, float *to)
{
    found_t found = {0};
    size_t there = tensor->rows * tensor->columns;
    gyre_status_t status = find_wanted(hf, tensor, &found);
    for (size_t i = 0, run; status == GYRE_OK && i < count; i += run) {
        size_t place = model_param_place(row, first + i);
        run = base_min_size(model_param_run(row, first + i), count - i);
        size_t held = place < there ? base_min_size(run, there - place) : 0;
        memset(to + i + held, 0, (run - held) * sizeof *to);
        status = hf_files_decode(found.file, found.at + place * hf_type_bytes(found.type), found.type, to + i,
                                 held);
    }
    return status;
}

/* The same of a woven tensor, `woven` elements at a time: it is experts' and may be larger than memory. */
static gyre_status_t read_woven(const model_hf_t *hf, const model_tensor_t *tensor, size_t first,
                                size_t count, float *to)
{
    const size_t line = tensor->woven;
    model_tensor_t one = *tensor; /* as a vector, which is woven in the same way */
    found_t found = {0};
    gyre_status_t status = find_wanted(hf, tensor, &found);
    float *file = malloc(2 * line * sizeof *file);
    if (!file)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to read %s", tensor->name);
    float *values = file + line;
    one.rows = line;
    one.columns = 1;
    for (size_t i = 0, run; status == GYRE_OK && i < count; i += run) {
        const size_t at = (first + i) % line;
        run = base_min_size(line - at, count - i);
        status = hf_files_decode(found.file, found.at + (first + i - at) * hf_type_bytes(found.type),
                                 found.type, file, line);
        if (status == GYRE_OK) {
            model_tensor_to_whole(&one, file, values, 1);
            memcpy(to + i, values + at, run * sizeof *to);
        }
    }
    free(file);
    return status;
}

/* A tensor into its block of the row-major whole. */
static gyre_status_t read_whole(const model_hf_t *hf, const model_tensor_t *tensor, float *whole, size_t ld)
{
    found_t found = {0};
    size_t count = tensor->rows * tensor->columns;
    gyre_status_t status = find_wanted(hf, tensor, &found);
    if (status != GYRE_OK)
        return status;
    float *values = malloc(count * sizeof *values);
    if (!values)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to read %s of %s", tensor->name, found.file->path);
    status = hf_files_decode(found.file, found.at, found.type, values, count);
    if (status == GYRE_OK && model_peft_has(hf->adapters, tensor))
        status = model_peft_add(hf->adapters, tensor, values);
    if (status == GYRE_OK)
        model_tensor_to_whole(tensor, values, whole, ld);
    free(values);
    return status;
}

/* Decodes a row, as `source` names it, into hf->whole, unless it is there. */
static gyre_status_t decode_row(model_hf_t *hf, const model_param_t *source)
{
    model_tensor_t tensor;
    if (hf->whole && strcmp(hf->whole_name, source->name) == 0)
        return GYRE_OK;
    free(hf->whole);
    if (!(hf->whole = calloc(source->shape[0] * source->shape[1], sizeof *hf->whole)))
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %s", source->name);
    snprintf(hf->whole_name, sizeof hf->whole_name, "%s", source->name);
    gyre_status_t status = GYRE_OK;
    for (size_t i = 0; status == GYRE_OK && model_row_tensor(hf->params, hf->family, source, i, &tensor); i++)
        status = read_whole(hf, &tensor, hf->whole, source->shape[1]);
    if (status != GYRE_OK) {
        free(hf->whole);
        hf->whole = NULL;
    }
    return status;
}

gyre_status_t model_hf_read(model_hf_t *hf, const model_param_t *row, size_t first, size_t count, float *to)
{
    enum { RANGE = 1024 }; /* elements that are worth a read of their own */
    model_param_t source = *row;
    model_tensor_t tensor;
    if (row->kind == MODEL_HEAD && row->twin) { /* the same weights */
        source.kind = MODEL_WTE;
        model_row_name(&hf->params->config, hf->family, MODEL_WTE, 0, source.name);
    }
    if (count == 0)
        return GYRE_OK;
    if (model_row_tensor(hf->params, hf->family, &source, 0, &tensor) && tensor.order == MODEL_ORDER_WOVEN)
        return read_woven(hf, &tensor, first, count, to);
    if (is_plain(hf, &source, &tensor) && !model_peft_has(hf->adapters, &tensor) &&
        model_param_run(row, first) >= base_min_size(count, RANGE))
        return read_range(hf, &tensor, row, first, count, to);
    const gyre_status_t status = decode_row(hf, &source);
    for (size_t i = 0; status == GYRE_OK && i < count;) {
        size_t run = base_min_size(model_param_run(row, first + i), count - i);
        memcpy(to + i, hf->whole + model_param_place(row, first + i), run * sizeof *to);
        i += run;
    }
    return status;
}

/* The numbers of one tensor. */
static gyre_status_t sample(const model_hf_t *hf, const model_tensor_t *tensor, uint64_t *hash)
{
    enum { SOME = 8 };
    float some[SOME];
    size_t all = 1;
    found_t found = {0};
    gyre_status_t status = find_wanted(hf, tensor, &found);
    for (size_t d = 0; d < tensor->dims; d++)
        all *= tensor->shape[d];
    const size_t n = base_min_size(SOME, all), at = (all - n) / 2;
    if (status == GYRE_OK)
        status = hf_files_decode(found.file, found.at + at * hf_type_bytes(found.type), found.type, some, n);
    if (status == GYRE_OK)
        *hash = base_hash64(some, n * sizeof *some, *hash);
    return status;
}

gyre_status_t model_hf_sample(const model_hf_t *hf, uint64_t *hash)
{
    model_tensor_t tensor;
    gyre_status_t status = GYRE_OK;
    *hash = 0;
    for (size_t r = 0; r < hf->params->rows; r++)
        for (size_t i = 0;
             status == GYRE_OK && model_row_tensor(hf->params, hf->family, &hf->params->row[r], i, &tensor);
             i++)
            status = sample(hf, &tensor, hash);
    return status;
}

/* ---- what the files hold --------------------------------------------------------------------------------
 * */

model_hf_type_t model_hf_type(const model_hf_t *hf)
{
    model_tensor_t tensor;
    const file_t *file;
    int others = 0;
    for (size_t r = 0; r < hf->params->rows; r++)
        for (size_t i = 0; model_row_tensor(hf->params, hf->family, &hf->params->row[r], i, &tensor); i++) {
            const json_t *entry = find_tensor(hf, tensor.name, &file);
            const char *type = json_string_value(json_object_get(entry, "dtype"));
            others |= !model_kind_is_exact(hf->params->row[r].kind) && (!type || strcmp(type, "BF16") != 0);
        }
    return others ? MODEL_HF_F32 : MODEL_HF_BF16;
}

size_t model_hf_positions(const model_hf_t *hf)
{
    model_tensor_t tensor;
    const file_t *file;
    size_t r = model_params_find(hf->params, MODEL_WPE, 0);
    if (r == MODEL_NONE || !model_row_tensor(hf->params, hf->family, &hf->params->row[r], 0, &tensor))
        return 0;
    const json_t *entry = find_tensor(hf, tensor.name, &file);
    size_t rows = (size_t)json_integer_value(json_array_get(json_object_get(entry, "shape"), 0));
    return rows > hf->params->config.pos_offset ? rows - hf->params->config.pos_offset : 0;
}

gyre_status_t model_hf_load(const char *path, const model_params_t *params, float *flat)
{
    model_hf_t *hf = NULL;
    gyre_status_t status = model_hf_open(path, params, &hf);
    if (status == GYRE_OK)
        model_hf_report(hf);
    for (size_t r = 0; status == GYRE_OK && r < params->rows; r++) {
        const model_param_t *row = &params->row[r];
        if (row->alias == MODEL_NONE)
            status = model_hf_read(hf, row, row->first, row->count, flat + row->offset);
    }
    model_hf_close(hf);
    return status;
}
