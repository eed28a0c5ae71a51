/* model/params.c: builds the parameter table and its initial values. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/checked.h"
#include "base/error.h"
#include "model/params.h"
#include "model/random.h"

#define LIMIT 1048576u /* of any extent: products' sizes are ints in the BLAS */

gyre_status_t model_config_check(const model_config_t *config)
{
    const struct {
        const char *name;
        size_t value;
    } extent[] = {{"vocab", config->vocab},
                  {"seq", config->seq},
                  {"layers", config->layers},
                  {"hidden", config->hidden},
                  {"heads", config->heads}};
    for (size_t i = 0; i < sizeof extent / sizeof extent[0]; i++)
        if (extent[i].value < 1 || extent[i].value > LIMIT)
            return gyre_fail(GYRE_ERR_INVALID, "%s is %zu: it must lie in 1..%u", extent[i].name,
                             extent[i].value, LIMIT);
    if (config->hidden % config->heads != 0) {
        size_t down = config->heads, up = config->heads;
        while (down > 1 && config->hidden % down != 0)
            down--;
        while (up < config->hidden && config->hidden % up != 0)
            up++;
        return gyre_fail(GYRE_ERR_INVALID,
                         "hidden %zu is not divisible by heads %zu: take heads %zu or %zu, or hidden %zu",
                         config->hidden, config->heads, down, up,
                         (config->hidden / config->heads + 1) * config->heads);
    }
    return GYRE_OK;
}

/* What distinguishes a kind. Extents are C * c + T * t + V * v. */
typedef struct {
    const char *name;
    size_t dims;
    struct {
        size_t c, t, v;
    } extent[2];
    int cut, cut_groups;
    model_init_t init;
    int residual; /* projects into the residual stream */
} kind_t;

static const kind_t kinds[MODEL_KINDS] = {
    [MODEL_MLP_PROJ_W] = {"mlp.c_proj.weight", 2, {{4, 0, 0}, {1, 0, 0}}, 0, 1, MODEL_INIT_NORMAL, 1},
    [MODEL_MLP_PROJ_B] = {"mlp.c_proj.bias", 1, {{1, 0, 0}}, -1, 1, MODEL_INIT_ZERO, 0},
    [MODEL_MLP_FC_W] = {"mlp.c_fc.weight", 2, {{1, 0, 0}, {4, 0, 0}}, 1, 1, MODEL_INIT_NORMAL, 0},
    [MODEL_MLP_FC_B] = {"mlp.c_fc.bias", 1, {{4, 0, 0}}, 0, 1, MODEL_INIT_ZERO, 0},
    [MODEL_LN2_W] = {"ln_2.weight", 1, {{1, 0, 0}}, -1, 1, MODEL_INIT_ONE, 0},
    [MODEL_LN2_B] = {"ln_2.bias", 1, {{1, 0, 0}}, -1, 1, MODEL_INIT_ZERO, 0},
    [MODEL_ATTN_PROJ_W] = {"attn.c_proj.weight", 2, {{1, 0, 0}, {1, 0, 0}}, 0, 1, MODEL_INIT_NORMAL, 1},
    [MODEL_ATTN_PROJ_B] = {"attn.c_proj.bias", 1, {{1, 0, 0}}, -1, 1, MODEL_INIT_ZERO, 0},
    [MODEL_ATTN_QKV_W] = {"attn.c_attn.weight", 2, {{1, 0, 0}, {3, 0, 0}}, 1, 3, MODEL_INIT_NORMAL, 0},
    [MODEL_ATTN_QKV_B] = {"attn.c_attn.bias", 1, {{3, 0, 0}}, 0, 3, MODEL_INIT_ZERO, 0},
    [MODEL_LN1_W] = {"ln_1.weight", 1, {{1, 0, 0}}, -1, 1, MODEL_INIT_ONE, 0},
    [MODEL_LN1_B] = {"ln_1.bias", 1, {{1, 0, 0}}, -1, 1, MODEL_INIT_ZERO, 0},
    [MODEL_LNF_W] = {"ln_f.weight", 1, {{1, 0, 0}}, -1, 1, MODEL_INIT_ONE, 0},
    [MODEL_LNF_B] = {"ln_f.bias", 1, {{1, 0, 0}}, -1, 1, MODEL_INIT_ZERO, 0},
    [MODEL_WPE] = {"wpe.weight", 2, {{0, 1, 0}, {1, 0, 0}}, -1, 1, MODEL_INIT_NORMAL, 0},
    [MODEL_WTE] = {"wte.weight", 2, {{0, 0, 1}, {1, 0, 0}}, 0, 1, MODEL_INIT_NORMAL, 0},
};

static gyre_status_t add_row(model_params_t *params, model_kind_t kind, size_t layer)
{
    const model_config_t *config = &params->config;
    const kind_t *k = &kinds[kind];
    model_param_t *row = &params->row[params->rows];
    int in_layer = kind < MODEL_LAYER_KINDS;
    *row = (model_param_t){.kind = kind,
                           .layer = in_layer                                     ? (int)layer
                                    : kind == MODEL_LNF_W || kind == MODEL_LNF_B ? (int)config->layers
                                                                                 : -1,
                           .dims = k->dims,
                           .shape = {1, 1},
                           .offset = params->total,
                           .cut = k->cut,
                           .cut_groups = k->cut_groups,
                           .init = k->init,
                           .std = 0.02 * sqrt(768.0 / (double)config->hidden),
                           .decay = k->dims == 2};
    if (k->residual)
        row->std /= sqrt(2.0 * (double)config->layers);
    if (in_layer)
        snprintf(row->name, sizeof row->name, "transformer.h.%zu.%s", layer, k->name);
    else
        snprintf(row->name, sizeof row->name, "transformer.%s", k->name);
    for (size_t d = 0; d < k->dims; d++)
        row->shape[d] =
            k->extent[d].c * config->hidden + k->extent[d].t * config->seq + k->extent[d].v * config->vocab;
    if (!base_mul(row->shape[0], row->shape[1], &row->count) ||
        !base_add(params->total, row->count, &params->total) || params->total > SIZE_MAX / sizeof(double))
        return gyre_fail(GYRE_ERR_OVERFLOW, "%s [%zu, %zu]: the model does not fit in the address space",
                         row->name, row->shape[0], row->shape[1]);
    params->rows++;
    return GYRE_OK;
}

gyre_status_t model_params_create(const model_config_t *config, model_params_t **out)
{
    gyre_status_t status = model_config_check(config);
    if (status != GYRE_OK)
        return status;
    size_t rows = MODEL_LAYER_KINDS * config->layers + (MODEL_KINDS - MODEL_LAYER_KINDS);
    model_params_t *params = calloc(1, sizeof *params);
    if (params)
        params->row = calloc(rows, sizeof *params->row);
    if (!params || !params->row) {
        free(params);
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a table of %zu parameters", rows);
    }
    params->config = *config;
    status = add_row(params, MODEL_LNF_W, 0);
    if (status == GYRE_OK)
        status = add_row(params, MODEL_LNF_B, 0);
    for (size_t layer = config->layers; status == GYRE_OK && layer-- > 0;)
        for (int kind = 0; status == GYRE_OK && kind < MODEL_LAYER_KINDS; kind++)
            status = add_row(params, (model_kind_t)kind, layer);
    if (status == GYRE_OK)
        status = add_row(params, MODEL_WPE, 0);
    if (status == GYRE_OK)
        status = add_row(params, MODEL_WTE, 0);
    if (status != GYRE_OK) {
        model_params_destroy(params);
        return status;
    }
    *out = params;
    return GYRE_OK;
}

void model_params_destroy(model_params_t *params)
{
    if (!params)
        return;
    free(params->row);
    free(params);
}

size_t model_params_find(const model_params_t *params, model_kind_t kind, size_t layer)
{
    size_t layers = params->config.layers;
    if (kind < MODEL_LAYER_KINDS)
        return 2 + (layers - 1 - layer) * MODEL_LAYER_KINDS + (size_t)kind;
    if (kind == MODEL_LNF_W || kind == MODEL_LNF_B)
        return kind == MODEL_LNF_B;
    return 2 + layers * MODEL_LAYER_KINDS + (kind == MODEL_WTE);
}

void model_params_init(const model_params_t *params, uint64_t seed, float *flat)
{
    for (size_t r = 0; r < params->rows; r++) {
        const model_param_t *row = &params->row[r];
        float *value = flat + row->offset;
        for (size_t i = 0; i < row->count; i++)
            value[i] = row->init == MODEL_INIT_ZERO ? 0.0f
                       : row->init == MODEL_INIT_ONE
                           ? 1.0f
                           : (float)(row->std * model_random_normal(seed, MODEL_RANDOM_INIT, (uint32_t)r, i));
    }
}
