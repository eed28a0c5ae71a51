/* SPDX-License-Identifier: Apache-2.0 */
/* model/formats/peft.c: adapters to the files that PEFT loads. */
#include "model/formats/peft.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/folder.h"
#include "base/text/json.h"
#include "model/formats/safetensors.h"
#include "model/network/names.h"

struct model_peft_writer {
    const model_params_t *params;
    const model_adapters_t *adapters;
    model_family_t family;
    base_folder_t output;
    json_t *modules; /* names, for the configuration */
    size_t next;     /* adapter to be written */
    int plain;       /* 1: the model's modules hold [in, out], as GPT-2's do */
    model_safetensors_t file;
};

static gyre_status_t no_memory(void)
{
    return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to write adapters");
}

/* The file's tensor i of adapter `adapter`'s weight; 0 after the last one. */
static int tensor_of(const model_peft_writer_t *w, size_t adapter, size_t i, model_tensor_t *out)
{
    return model_row_tensor(w->params, w->family, &w->params->row[w->adapters->weight[adapter]], i, out);
}

/* The name of a module: that of its tensor without ".weight". */
static int module_of(const model_tensor_t *tensor)
{
    return (int)(strlen(tensor->name) - strlen(".weight"));
}

void model_peft_factor(const model_tensor_t *tensor, char factor, char name[MODEL_PEFT_NAME])
{
    snprintf(name, MODEL_PEFT_NAME, "base_model.model.%.*s.lora_%c.weight", module_of(tensor), tensor->name,
             factor);
}

static gyre_status_t list_module(model_peft_writer_t *w, const model_param_t *row,
                                 const model_tensor_t *tensor)
{
    const size_t rank = w->adapters->rank, a[] = {rank, tensor->rows}, b[] = {tensor->columns, rank};
    char name[MODEL_PEFT_NAME];
    /* a module takes all of the weight's input */
    if (tensor->row != 0 || tensor->rows != row->shape[0] || tensor->order == MODEL_ORDER_WOVEN)
        return gyre_fail(GYRE_ERR_UNSUPPORTED, "the adapter of %s has no form in PEFT", row->name);
    w->plain |= tensor->order == MODEL_ORDER_PLAIN;
    model_peft_factor(tensor, 'A', name);
    model_safetensors_tensor(&w->file, name, "F32", a, 2, 4 * a[0] * a[1]);
    model_peft_factor(tensor, 'B', name);
    model_safetensors_tensor(&w->file, name, "F32", b, 2, 4 * b[0] * b[1]);
    return json_array_append_new(w->modules, json_stringn(tensor->name, (size_t)module_of(tensor))) == 0
               ? GYRE_OK
               : no_memory();
}

static gyre_status_t list_modules(model_peft_writer_t *w)
{
    model_tensor_t tensor;
    gyre_status_t status = GYRE_OK;
    model_safetensors_metadata(&w->file, json_pack("{s:s}", "format", "pt"));
    for (size_t n = 0; n < w->adapters->table->rows / 2; n++)
        for (size_t i = 0; status == GYRE_OK && tensor_of(w, n, i, &tensor); i++)
            status = list_module(w, &w->params->row[w->adapters->weight[n]], &tensor);
    return status;
}

static gyre_status_t write_config(const model_peft_writer_t *w, const char *base)
{
    char path[PATH_MAX];
    json_t *config = json_pack("{s:s, s:s, s:s, s:I, s:f, s:f, s:s, s:b, s:b, s:b, s:n, s:O}", "peft_type",
                               "LORA", "task_type", "CAUSAL_LM", "base_model_name_or_path", base, "r",
                               (json_int_t)w->adapters->rank, "lora_alpha",
                               (double)w->adapters->scale * (double)w->adapters->rank, "lora_dropout", 0.0,
                               "bias", "none", "fan_in_fan_out", w->plain, "inference_mode", 1, "use_rslora",
                               0, "modules_to_save", "target_modules", w->modules);
    if (!config)
        return no_memory();
    snprintf(path, sizeof path, "%s/" MODEL_PEFT_CONFIG, w->output.made);
    const gyre_status_t status = base_json_write(path, config);
    json_decref(config);
    return status;
}

gyre_status_t model_peft_create(const char *folder, const model_params_t *params,
                                const model_adapters_t *adapters, const char *base, model_peft_writer_t **out)
{
    char path[PATH_MAX];
    model_peft_writer_t *w = calloc(1, sizeof *w);
    if (!w || !(w->modules = json_array())) {
        free(w);
        return no_memory();
    }
    w->params = params;
    w->adapters = adapters;
    gyre_status_t status = model_config_family(&params->config, &w->family);
    if (status == GYRE_OK)
        status = base_folder_begin(folder, &w->output);
    if (status == GYRE_OK)
        status = list_modules(w);
    if (status == GYRE_OK)
        status = write_config(w, base);
    if (status == GYRE_OK &&
        snprintf(path, sizeof path, "%s/" MODEL_PEFT_WEIGHTS, w->output.made) >= (int)sizeof path)
        status = gyre_fail(GYRE_ERR_INVALID, "the path %.80s... is too long", folder);
    if (status == GYRE_OK)
        status = model_safetensors_begin(&w->file, path);
    if (status != GYRE_OK) {
        model_peft_abandon(w);
        return status;
    }
    *out = w;
    return GYRE_OK;
}

/* turned [columns, rows] from matrix [rows, columns]. */
static void turn(float *turned, const float *matrix, size_t rows, size_t columns)
{
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++)
            turned[j * rows + i] = matrix[i * columns + j];
}

gyre_status_t model_peft_write(model_peft_writer_t *w, const float *a, const float *b)
{
    const model_param_t *row = &w->adapters->table->row[2 * w->next];
    const size_t rank = w->adapters->rank, in = row[0].shape[0], columns = row[1].shape[1],
                 most = (in > columns ? in : columns) * rank;
    float *whole = malloc(most * sizeof *whole), *file = malloc(most * sizeof *file),
          *first = malloc(in * rank * sizeof *first);
    gyre_status_t status = whole && file && first ? GYRE_OK : no_memory();
    model_tensor_t tensor;
    if (status == GYRE_OK) {
        model_param_to_file(&row[0], a, whole);
        turn(first, whole, in, rank);
        model_param_to_file(&row[1], b, whole);
    }
    for (size_t i = 0; status == GYRE_OK && tensor_of(w, w->next, i, &tensor); i++) {
        if ((status = model_safetensors_put(&w->file, first, in * rank * sizeof *first)) != GYRE_OK)
            break;
        tensor.rows = rank; /* B is to the module as its weight is, with other rows */
        if (tensor.order == MODEL_ORDER_PLAIN)
            tensor.order = MODEL_ORDER_TURNED;
        model_tensor_from_whole(&tensor, file, whole, columns);
        status = model_safetensors_put(&w->file, file, tensor.columns * rank * sizeof *file);
    }
    free(whole);
    free(file);
    free(first);
    w->next++;
    return status;
}

static int is_of_adapters(const char *name)
{
    return strcmp(name, MODEL_PEFT_CONFIG) == 0 || strcmp(name, MODEL_PEFT_WEIGHTS) == 0;
}

void model_peft_abandon(model_peft_writer_t *w)
{
    if (!w)
        return;
    base_folder_abandon(&w->output);
    model_safetensors_abandon(&w->file);
    json_decref(w->modules);
    free(w);
}

gyre_status_t model_peft_finish(model_peft_writer_t *w)
{
    gyre_status_t status = GYRE_OK;
    if (w->next != w->adapters->table->rows / 2)
        status = gyre_fail(GYRE_ERR_INVALID, "the export to %s ends after %zu of %zu adapters",
                           w->output.target, w->next, w->adapters->table->rows / 2);
    if (status == GYRE_OK)
        status = model_safetensors_commit(&w->file);
    if (status == GYRE_OK)
        status = base_folder_commit(&w->output, is_of_adapters);
    model_peft_abandon(w);
    return status;
}
