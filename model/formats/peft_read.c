/* SPDX-License-Identifier: Apache-2.0 */
/* model/formats/peft_read.c: PEFT's files into the weights that they are for. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/text/json.h"
#include "model/formats/hf_files.h"
#include "model/formats/peft.h"

struct model_peft {
    const model_params_t *params;
    model_family_t family;
    hf_files_t files;
    float scale;
    size_t rank;
};

static gyre_status_t no_memory(const char *folder)
{
    return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the adapters in %s", folder);
}

/* ---- the configuration --------------------------------------------------------------------------------- */

/* What changes the sum W + scale B A. */
static gyre_status_t check_config(const char *path, const json_t *config)
{
    static const char *const off[] = {
        "use_dora",         "modules_to_save",         "rank_pattern",      "alpha_pattern",
        "lora_bias",        "trainable_token_indices", "target_parameters", "alora_invocation_tokens",
        "layer_replication"};
    const char *type = json_string_value(json_object_get(config, "peft_type")),
               *bias = json_string_value(json_object_get(config, "bias"));
    if (!type || strcmp(type, "LORA") != 0)
        return gyre_fail(GYRE_ERR_UNSUPPORTED, "%s: peft_type is %.40s: LORA is read", path,
                         type ? type : "missing");
    if (bias && strcmp(bias, "none") != 0)
        return gyre_fail(GYRE_ERR_UNSUPPORTED, "%s: bias is %.40s: adapters without biases are read", path,
                         bias);
    /* Others change the base's weights before training (pissa, olora, corda ...). */
    const json_t *begun = json_object_get(config, "init_lora_weights");
    if (json_is_string(begun) && strcmp(json_string_value(begun), "gaussian") != 0)
        return gyre_fail(GYRE_ERR_UNSUPPORTED,
                         "%s: init_lora_weights is %.40s: merge the adapters with PEFT (merge_and_unload)",
                         path, json_string_value(begun));
    for (size_t i = 0; i < sizeof off / sizeof *off; i++) {
        const json_t *value = json_object_get(config, off[i]);
        const int empty = !value || json_is_null(value) || json_is_false(value) ||
                          ((json_is_object(value) || json_is_array(value)) && json_object_size(value) == 0 &&
                           json_array_size(value) == 0);
        if (!empty)
            return gyre_fail(GYRE_ERR_UNSUPPORTED,
                             "%s: %s is set: merge the adapters with PEFT (merge_and_unload)", path, off[i]);
    }
    return GYRE_OK;
}

static gyre_status_t read_config(const char *folder, model_peft_t *peft)
{
    char path[PATH_MAX];
    json_t *config = NULL;
    if (snprintf(path, sizeof path, "%s/" MODEL_PEFT_CONFIG, folder) >= (int)sizeof path)
        return gyre_fail(GYRE_ERR_INVALID, "the path %.80s... is too long", folder);
    gyre_status_t status = base_json_read(path, &config);
    if (status == GYRE_OK)
        status = check_config(path, config);
    const double rank = json_number_value(json_object_get(config, "r")),
                 alpha = json_number_value(json_object_get(config, "lora_alpha"));
    if (status == GYRE_OK && (!(rank >= 1 && rank <= 1e9) || !isfinite(alpha)))
        status = gyre_fail(GYRE_ERR_FORMAT, "%s: r and lora_alpha are not numbers of adapters", path);
    if (status == GYRE_OK) {
        const int root = json_is_true(json_object_get(config, "use_rslora"));
        peft->scale = (float)(alpha / (root ? sqrt(rank) : rank));
        peft->rank = (size_t)rank;
    }
    json_decref(config);
    return status;
}

/* ---- factors ------------------------------------------------------------------------------------------- */

/* 1: the tensor is a module's matrix. */
static int is_module(const model_tensor_t *tensor)
{
    const size_t n = strlen(tensor->name), end = strlen(".weight");
    return n > end && strcmp(tensor->name + n - end, ".weight") == 0 && tensor->dims == 2 &&
           tensor->order != MODEL_ORDER_WOVEN;
}

static const json_t *find_factor(const model_peft_t *peft, const model_tensor_t *tensor, char factor,
                                 const model_safetensors_file_t **file)
{
    char name[MODEL_PEFT_NAME];
    model_peft_factor(tensor, factor, name);
    return hf_files_find(&peft->files, name, file);
}

static size_t side(const json_t *entry, size_t dim)
{
    const json_t *shape = json_object_get(entry, "shape");
    return json_array_size(shape) == 2 ? (size_t)json_integer_value(json_array_get(shape, dim)) : 0;
}

/* The module's sides: what goes in and comes out. */
static void sides(const model_tensor_t *tensor, size_t *in, size_t *out)
{
    const int plain = tensor->order == MODEL_ORDER_PLAIN; /* GPT-2's modules hold [in, out] */
    *in = tensor->shape[!plain];
    *out = tensor->shape[plain];
}

/* Takes the module's factors out of `rest`, if it has some. */
static gyre_status_t check_module(const model_peft_t *peft, const model_tensor_t *tensor, json_t *rest)
{
    const model_safetensors_file_t *file;
    char name[MODEL_PEFT_NAME];
    const json_t *a = is_module(tensor) ? find_factor(peft, tensor, 'A', &file) : NULL,
                 *b = a ? find_factor(peft, tensor, 'B', &file) : NULL;
    size_t in, out;
    if (!a)
        return GYRE_OK;
    sides(tensor, &in, &out);
    model_peft_factor(tensor, 'A', name);
    json_object_del(rest, name);
    if (!b || side(a, 0) != peft->rank || side(b, 1) != peft->rank || side(a, 1) != in || side(b, 0) != out)
        return gyre_fail(
            GYRE_ERR_FORMAT,
            "%s: %s and its lora_B are not [%zu, %zu] and [%zu, %zu], for the r of the configuration: they "
            "are another model's",
            peft->files.path, name, peft->rank, in, out, peft->rank);
    for (int i = 0; i < 2; i++) {
        const char *type = json_string_value(json_object_get(i ? b : a, "dtype"));
        if (!type || !hf_type_is_read(type))
            return gyre_fail(GYRE_ERR_UNSUPPORTED, "%s: %s is %.20s: F32, BF16 and F16 are read",
                             peft->files.path, name, type ? type : "of no type");
    }
    model_peft_factor(tensor, 'B', name);
    json_object_del(rest, name);
    return GYRE_OK;
}

/* Every tensor of the file is a factor of one of the model's weights. */
static gyre_status_t check_factors(const model_peft_t *peft)
{
    json_t *rest = json_copy(peft->files.file[0].header);
    model_tensor_t tensor;
    gyre_status_t status = rest ? GYRE_OK : no_memory(peft->files.path);
    json_object_del(rest, "__metadata__");
    for (size_t r = 0; r < peft->params->rows; r++)
        for (size_t i = 0; status == GYRE_OK &&
                           model_row_tensor(peft->params, peft->family, &peft->params->row[r], i, &tensor);
             i++)
            status = check_module(peft, &tensor, rest);
    if (status == GYRE_OK && json_object_size(rest) > 0)
        status = gyre_fail(GYRE_ERR_FORMAT,
                           "%s: %.120s is for no matrix of the model's: they are another model's, or of a "
                           "kind that is not read",
                           peft->files.path, json_object_iter_key(json_object_iter(rest)));
    json_decref(rest);
    return status;
}

gyre_status_t model_peft_open(const char *folder, const model_params_t *params, model_peft_t **out)
{
    char path[PATH_MAX];
    model_peft_t *peft = calloc(1, sizeof *peft);
    if (!peft)
        return no_memory(folder);
    peft->params = params;
    gyre_status_t status = read_config(folder, peft);
    if (status == GYRE_OK)
        status = model_config_family(&params->config, &peft->family);
    if (status == GYRE_OK)
        status = snprintf(path, sizeof path, "%s/" MODEL_PEFT_WEIGHTS, folder) < (int)sizeof path
                     ? hf_files_open(path, &peft->files)
                     : gyre_fail(GYRE_ERR_INVALID, "the path %.80s... is too long", folder);
    if (status == GYRE_OK)
        status = check_factors(peft);
    if (status != GYRE_OK) {
        model_peft_close(peft);
        return status;
    }
    *out = peft;
    return GYRE_OK;
}

void model_peft_close(model_peft_t *peft)
{
    if (!peft)
        return;
    hf_files_close(&peft->files);
    free(peft);
}

int model_peft_has(const model_peft_t *peft, const model_tensor_t *tensor)
{
    const model_safetensors_file_t *file;
    return peft && is_module(tensor) && find_factor(peft, tensor, 'A', &file);
}

static gyre_status_t read_factor(const model_peft_t *peft, const model_tensor_t *tensor, char factor,
                                 float **out)
{
    const model_safetensors_file_t *file;
    const json_t *entry = find_factor(peft, tensor, factor, &file);
    const size_t count = side(entry, 0) * side(entry, 1);
    if (!(*out = malloc(count * sizeof **out)))
        return no_memory(peft->files.path);
    return hf_files_decode(
        file,
        file->data + (size_t)json_integer_value(json_array_get(json_object_get(entry, "data_offsets"), 0)),
        json_string_value(json_object_get(entry, "dtype")), *out, count);
}

gyre_status_t model_peft_add(const model_peft_t *peft, const model_tensor_t *tensor, float *values)
{
    const size_t rank = peft->rank;
    size_t in, out;
    float *a = NULL, *b = NULL;
    sides(tensor, &in, &out);
    float *line = malloc(in * sizeof *line);
    gyre_status_t status = line ? read_factor(peft, tensor, 'A', &a) : no_memory(peft->files.path);
    if (status == GYRE_OK)
        status = read_factor(peft, tensor, 'B', &b);
    for (size_t o = 0; status == GYRE_OK && o < out; o++) {
        memset(line, 0, in * sizeof *line);
        for (size_t r = 0; r < rank; r++)
            for (size_t i = 0; i < in; i++)
                line[i] += b[o * rank + r] * a[r * in + i];
        float *to = tensor->order == MODEL_ORDER_PLAIN ? values + o : values + o * in;
        const size_t step = tensor->order == MODEL_ORDER_PLAIN ? out : 1;
        for (size_t i = 0; i < in; i++)
            to[i * step] += peft->scale * line[i];
    }
    free(line);
    free(a);
    free(b);
    return status;
}

gyre_status_t model_peft_hash(const model_peft_t *peft, uint64_t *hash)
{
    model_tensor_t tensor;
    gyre_status_t status = GYRE_OK;
    *hash = base_hash64(&peft->scale, sizeof peft->scale, peft->rank);
    for (size_t r = 0; r < peft->params->rows; r++)
        for (size_t i = 0; status == GYRE_OK &&
                           model_row_tensor(peft->params, peft->family, &peft->params->row[r], i, &tensor);
             i++)
            for (int b = 0; status == GYRE_OK && b < 2 && model_peft_has(peft, &tensor); b++) {
                float *factor = NULL;
                size_t in, out;
                sides(&tensor, &in, &out);
                status = read_factor(peft, &tensor, b ? 'B' : 'A', &factor);
                *hash = base_hash64(tensor.name, strlen(tensor.name), *hash);
                if (status == GYRE_OK)
                    *hash = base_hash64(factor, (b ? out : in) * peft->rank * sizeof *factor, *hash);
                free(factor);
            }
    return status;
}
