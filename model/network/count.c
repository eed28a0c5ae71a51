/* SPDX-License-Identifier: Apache-2.0 */
/* model/network/count.c: counts parameters by the table of one layer. */
#include "model/network/count.h"

#include "base/checked.h"
#include "base/error.h"

static void add(model_part_t *part, const model_param_t *row)
{
    if (row->cut >= 0)
        part->cut += row->count, part->copies += row->count - row->shape[0] * row->shape[1];
    else
        part->whole += row->count;
}

static model_part_t *part_of(model_count_t *count, const model_param_t *row, size_t dense)
{
    switch (row->kind) {
    case MODEL_WQE:
        return &count->top;
    case MODEL_LNF_W:
    case MODEL_LNF_B:
        return &count->norm;
    case MODEL_HEAD:
        return &count->head;
    case MODEL_WPE:
    case MODEL_WTE:
    case MODEL_EMB_LN_W:
    case MODEL_EMB_LN_B:
        return &count->embed;
    default:
        return (size_t)row->layer < dense ? &count->dense : &count->layer;
    }
}

gyre_status_t model_count(const model_config_t *config, model_count_t *out)
{
    gyre_status_t status = model_config_check(config);
    if (status != GYRE_OK)
        return status;
    const model_config_t complete = model_config_complete(config);
    model_config_t one = complete;
    one.dense_first = complete.dense_first > 0; /* a layer of each form */
    one.layers = 1 + one.dense_first;
    model_params_t *params = NULL;
    status = model_params_create(&one, &params);
    if (status != GYRE_OK)
        return status;
    model_count_t count = {
        .layers = config->layers, .dense_layers = complete.dense_first, .tied = !config->untied};
    for (size_t r = 0; r < params->rows; r++)
        add(part_of(&count, &params->row[r], one.dense_first), &params->row[r]);
    if (one.experts > 0) {
        for (size_t r = 0; r < params->rows; r++)
            if (model_kind_of_experts(params->row[r].kind))
                count.experts += params->row[r].count;
        count.idle = count.experts / one.experts * (one.experts - one.top_k);
    }
    model_params_destroy(params);
    size_t layers, dense, all;
    if (!base_mul(config->layers - count.dense_layers, count.layer.whole + count.layer.cut, &layers) ||
        !base_mul(count.dense_layers, count.dense.whole + count.dense.cut, &dense) ||
        !base_add(layers, dense, &layers) ||
        !base_add(layers, count.embed.cut + count.embed.whole + count.head.cut + count.top.whole, &all) ||
        all > SIZE_MAX / 64)
        return gyre_fail(GYRE_ERR_OVERFLOW,
                         "a model of %zu layers with %zu parameters each cannot be counted", config->layers,
                         count.layer.whole + count.layer.cut);
    *out = count;
    return GYRE_OK;
}

static size_t both(model_part_t part)
{
    return part.whole + part.cut - part.copies;
}

size_t model_count_total(const model_count_t *count)
{
    return (count->layers - count->dense_layers) * both(count->layer) +
           count->dense_layers * both(count->dense) + both(count->top) + both(count->embed) +
           both(count->norm) + (count->tied ? 0 : both(count->head));
}

size_t model_count_active(const model_count_t *count)
{
    return model_count_total(count) - (count->layers - count->dense_layers) * count->idle;
}

size_t model_count_experts(const model_count_t *count, const model_holds_t *holds, size_t tp, size_t ep)
{
    return (holds->layers - holds->dense) * (count->experts / (tp * ep));
}

size_t model_count_rank(const model_count_t *count, const model_holds_t *holds, size_t tp, size_t ep)
{
    const size_t layers = holds->layers - holds->dense;
    size_t whole = layers * count->layer.whole + holds->dense * count->dense.whole,
           cut = layers * (count->layer.cut - count->experts) + holds->dense * count->dense.cut;
    if (holds->top) {
        whole += count->top.whole;
        cut += count->top.cut;
    }
    if (holds->embed) {
        whole += count->embed.whole;
        cut += count->embed.cut;
    }
    if (holds->head) {
        whole += count->norm.whole;
        cut += count->norm.cut;
        if (!count->tied || !holds->embed) {
            whole += count->head.whole;
            cut += count->head.cut;
        }
    }
    return whole + cut / tp + model_count_experts(count, holds, tp, ep);
}
