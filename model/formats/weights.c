/* SPDX-License-Identifier: Apache-2.0 */
/* model/formats/weights.c: reads and writes the weights of a whole model as safetensors, row by row. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/text/json.h"
#include "model/formats/weights.h"
#include "model/formats/safetensors.h"
#include "model/network/hf_config.h"
#include "model/network/names.h"
#include "model/tokenizer/tokenizer.h"

#define PREFIX "transformer."
/* In the metadata: the model's config.json as text. */
#define CONFIG "gyre_config"

/* ---- writing ------------------------------------------------------------------------------------------- */

static size_t largest_row(const model_params_t *params)
{
    size_t largest = 0;
    for (size_t r = 0; r < params->rows; r++)
        largest = base_max_size(largest, params->row[r].leaves * params->row[r].leaf_count);
    return largest;
}

/* A file being written, and room for the largest row in three orders. */
typedef struct {
    const char *path;
    const model_params_t *params;
    model_family_t family;
    model_safetensors_t file;
    char *config;
    float *canonical, *whole, *piece;
} writer_t;

/* writer->config, without what each run chooses; NULL: it is the model that the shapes and n_head say. */
static gyre_status_t describe(writer_t *writer)
{
    model_config_t c = writer->params->config;
    const model_config_t said = {
        .vocab = c.vocab, .seq = c.seq, .layers = c.layers, .hidden = c.hidden, .heads = c.heads};
    json_t *object = NULL, *plain = NULL;
    c.leaves = c.vocab_padded = 0;
    c.dropout = c.z_loss = c.router_z = 0.0;
    gyre_status_t status = model_config_to_json(&c, &object);
    if (status == GYRE_OK)
        status = model_config_to_json(&said, &plain);
    if (status == GYRE_OK && !json_equal(object, plain) &&
        !(writer->config = base_json_dump(object, JSON_COMPACT)))
        status = gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %s", writer->path);
    json_decref(object);
    json_decref(plain);
    return status;
}

static void list_tensors(writer_t *writer)
{
    const model_params_t *params = writer->params;
    model_tensor_t tensor;
    char heads[32];
    snprintf(heads, sizeof heads, "%zu", params->config.heads);
    model_safetensors_metadata(&writer->file, json_pack("{s:s, s:s, s:s, s:s*}", "format", "pt", "model_type",
                                                        model_family_name(writer->family), "n_head", heads,
                                                        CONFIG, writer->config));
    for (size_t r = 0; r < params->rows; r++)
        for (size_t i = 0; model_row_tensor(params, writer->family, &params->row[r], i, &tensor); i++)
            model_safetensors_tensor(&writer->file, tensor.name, "F32", tensor.shape, tensor.dims,
                                     tensor.rows * tensor.columns * sizeof(float));
}

static gyre_status_t writer_open(writer_t *writer)
{
    size_t room = largest_row(writer->params);
    gyre_status_t status = model_config_family(&writer->params->config, &writer->family);
    if (status == GYRE_OK)
        status = describe(writer);
    if (status != GYRE_OK)
        return status;
    writer->canonical = malloc(3 * room * sizeof(float));
    if (!writer->canonical)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %s", writer->path);
    writer->whole = writer->canonical + room;
    writer->piece = writer->whole + room;
    list_tensors(writer);
    return model_safetensors_begin(&writer->file, writer->path);
}

static gyre_status_t write_row(writer_t *writer, const model_param_t *row)
{
    model_tensor_t tensor;
    gyre_status_t status = GYRE_OK;
    model_param_to_file(row, writer->canonical, writer->whole);
    for (size_t i = 0; status == GYRE_OK && model_row_tensor(writer->params, writer->family, row, i, &tensor);
         i++) {
        model_tensor_from_whole(&tensor, writer->piece, writer->whole, row->shape[1]);
        status =
            model_safetensors_put(&writer->file, writer->piece, tensor.rows * tensor.columns * sizeof(float));
    }
    return status;
}

gyre_status_t model_checkpoint_stream(const char *path, const model_params_t *params, model_row_fn get,
                                      void *user)
{
    writer_t writer = {.path = path, .params = params};
    gyre_status_t written = path ? writer_open(&writer) : GYRE_OK, status = GYRE_OK;
    int open = path && written == GYRE_OK;
    for (size_t r = 0; status == GYRE_OK && r < params->rows; r++) {
        if (params->row[r].kind == MODEL_HEAD && params->row[r].twin)
            continue;
        /* go on after a failed write: other ranks take part in every row */
        status = get(user, r, writer.canonical);
        if (status == GYRE_OK && open && written == GYRE_OK)
            written = write_row(&writer, &params->row[r]);
    }
    if (open && status == GYRE_OK && written == GYRE_OK)
        written = model_safetensors_commit(&writer.file);
    else if (open)
        model_safetensors_abandon(&writer.file);
    free(writer.canonical);
    free(writer.config);
    return status != GYRE_OK ? status : written;
}

gyre_status_t model_checkpoint_sum(const char *path, model_file_sum_t *sum)
{
    enum { PIECE = 1 << 20 };
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return gyre_fail_errno(base_file_status(errno), errno, "cannot open %s", path);
    model_file_sum_t found = {0};
    base_hash_t *hash = base_hash_begin();
    char *piece = malloc(PIECE);
    gyre_status_t status =
        hash && piece ? GYRE_OK : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to read %s", path);
    while (status == GYRE_OK) {
        ssize_t n = read(fd, piece, PIECE);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            status = gyre_fail_errno(GYRE_ERR_IO, errno, "cannot read %s", path);
        if (n <= 0)
            break;
        base_hash_add(hash, piece, (size_t)n);
        found.bytes += (uint64_t)n;
    }
    close(fd);
    free(piece);
    found.hash = base_hash_end(hash);
    if (status == GYRE_OK)
        *sum = found;
    return status;
}

/* ---- reading ------------------------------------------------------------------------------------------- */

typedef model_safetensors_file_t file_t;

/* The entry of a tensor under its full name, or under GPT-2's own without the prefix. */
static const json_t *find(const file_t *file, const char *name)
{
    size_t prefix = strlen(PREFIX);
    const json_t *entry = json_object_get(file->header, name);
    return entry || strncmp(name, PREFIX, prefix) != 0 ? entry : json_object_get(file->header, name + prefix);
}

/* The shape of a matrix. */
static gyre_status_t find_shape(const file_t *file, const char *name, size_t shape[2])
{
    const json_t *entry = find(file, name), *extents = json_object_get(entry, "shape");
    if (!entry)
        return gyre_fail(GYRE_ERR_FORMAT,
                         "the checkpoint %s holds no tensor %s: it is not of this kind of model", file->path,
                         name);
    for (size_t d = 0; d < 2; d++) {
        json_int_t extent = json_integer_value(json_array_get(extents, d));
        if (json_array_size(extents) != 2 || extent <= 0)
            return gyre_fail(GYRE_ERR_FORMAT, "%s in %s is not a matrix", name, file->path);
        shape[d] = (size_t)extent;
    }
    return GYRE_OK;
}

/* n_head of the metadata; 0 if it is not there. */
static gyre_status_t find_heads(const file_t *file, size_t *heads)
{
    const json_t *value = json_object_get(json_object_get(file->header, "__metadata__"), "n_head");
    const char *text = json_string_value(value);
    *heads = 0;
    if (!value)
        return GYRE_OK;
    size_t digits = text ? strspn(text, "0123456789") : 0;
    if (digits == 0 || text[digits] || digits > 9 || (*heads = strtoul(text, NULL, 10)) == 0)
        return gyre_fail(GYRE_ERR_FORMAT,
                         "n_head in the metadata of %s is not a number of attention heads: %.30s", file->path,
                         text ? text : "not a string");
    return GYRE_OK;
}

/* The model as `text` of the metadata says it; the run chooses leaves. */
static gyre_status_t read_config(const file_t *file, const char *text, model_config_t *config)
{
    json_error_t error;
    int lacks = 0;
    json_t *object = text ? base_json_text(text, strlen(text), &error, &lacks) : NULL;
    if (!object)
        return gyre_fail(lacks ? GYRE_ERR_NO_MEMORY : GYRE_ERR_FORMAT,
                         CONFIG " in the metadata of %s is not the text of a config.json", file->path);
    gyre_status_t status = model_config_from_json(object, file->path, 0, config);
    if (status == GYRE_OK)
        config->leaves = config->vocab_padded = 0;
    json_decref(object);
    return status;
}

/* Of a model of GPT-2, by the shapes of its tensors. */
static gyre_status_t read_shapes(const file_t *file, model_config_t *config)
{
    size_t wte[2] = {0}, wpe[2] = {0}, layers = 0, heads = 0;
    char folder[PATH_MAX];
    if (!find(file, PREFIX "wte.weight") &&
        model_tokenizer_folder(file->path, folder)) /* it has config.json */
        return gyre_fail(GYRE_ERR_INVALID,
                         "%s does not say what model it is of: give its folder, %s, whose config.json does",
                         file->path, *folder ? folder : ".");
    gyre_status_t status = find_shape(file, PREFIX "wte.weight", wte);
    if (status == GYRE_OK)
        status = find_shape(file, PREFIX "wpe.weight", wpe);
    if (status == GYRE_OK) {
        char name[64];
        do
            snprintf(name, sizeof name, PREFIX "h.%zu.ln_1.weight", layers);
        while (find(file, name) && ++layers);
        if (layers == 0)
            status = gyre_fail(GYRE_ERR_FORMAT, "the checkpoint %s holds no layer", file->path);
    }
    if (status == GYRE_OK)
        status = find_heads(file, &heads);
    if (status == GYRE_OK)
        *config = (model_config_t){
            .vocab = wte[0], .seq = wpe[0], .layers = layers, .hidden = wte[1], .heads = heads};
    return status;
}

gyre_status_t model_checkpoint_config(const char *path, model_config_t *config)
{
    file_t file;
    gyre_status_t status = model_safetensors_open(path, &file);
    if (status != GYRE_OK)
        return status;
    const json_t *said = json_object_get(json_object_get(file.header, "__metadata__"), CONFIG);
    status = said ? read_config(&file, json_string_value(said), config) : read_shapes(&file, config);
    model_safetensors_close(&file);
    return status;
}
