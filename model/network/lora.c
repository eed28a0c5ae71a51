/* SPDX-License-Identifier: Apache-2.0 */
/* model/network/lora.c: the table of adapters, and their products (model/network/lora.h). */
#include "model/network/lora.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "model/kernels/kernels.h"

static int can_adapt(const model_param_t *row)
{
    return row->kind == MODEL_MLP_PROJ_W || row->kind == MODEL_MLP_FC_W || row->kind == MODEL_ATTN_PROJ_W ||
           row->kind == MODEL_ATTN_QKV_W;
}

/* ---- the table ----------------------------------------------------------------------------------------- */

/* Names for a message, of the first layer. */
static void list_names(const model_params_t *params, char *text, size_t bytes)
{
    size_t n = 0;
    *text = 0;
    for (size_t r = params->rows; r-- > 0 && n + 1 < bytes;)
        if (params->row[r].layer == 0 && can_adapt(&params->row[r]))
            n += (size_t)snprintf(text + n, bytes - n, "%s%s", n > 0 ? ", " : "", params->row[r].name);
}

/* chosen [rows]: 1 for each weight that one of the patterns fits. `list` is used up. */
static gyre_status_t choose(const model_params_t *params, char *list, unsigned char *chosen)
{
    char names[600], *rest = NULL;
    for (char *pattern = strtok_r(list, ",", &rest); pattern; pattern = strtok_r(NULL, ",", &rest)) {
        size_t fits = 0;
        for (size_t r = 0; r < params->rows; r++)
            if (can_adapt(&params->row[r]) && fnmatch(pattern, params->row[r].name, 0) == 0) {
                chosen[r] = 1;
                fits++;
            }
        if (fits == 0) {
            list_names(params, names, sizeof names);
            return gyre_fail(GYRE_ERR_INVALID,
                             "--lora-on %s: no weight that can have an adapter is named so; names are %s",
                             pattern, names);
        }
    }
    return GYRE_OK;
}

/* Appends a factor of `weight`: A (b 0) or B. What it begins with is numbered apart from the weight's own
 * initial values. */
static void add_factor(model_params_t *table, const model_param_t *weight, size_t rank, int b)
{
    model_param_t *row = &table->row[table->rows];
    const char *end = strstr(weight->name, ".weight");
    *row = *weight;
    row->kind = (model_kind_t)(MODEL_ADAPTERS + (size_t)weight->kind);
    snprintf(row->name, sizeof row->name, "%.*s.lora_%c.weight",
             end ? (int)(end - weight->name) : (int)strlen(weight->name), weight->name, b ? 'B' : 'A');
    row->shape[!b] = rank;
    if (weight->cut != b) { /* the weight is cut along its other side */
        row->cut = -1;
        row->leaves = row->parts = row->copies = 1;
        row->part[0] = 0;
    }
    (void)model_param_measure(row); /* smaller than the weight */
    row->global = table->rows++;
    row->first = 0;
    row->offset = row->grad = table->total;
    table->total = table->grad_total += row->count;
    row->frozen = 0;
    row->init = b ? MODEL_INIT_ZERO : MODEL_INIT_NORMAL;
    row->std = 1.0 / sqrt(3.0 * (double)weight->shape[0]); /* that of a uniform value within 1/sqrt(in) */
}

static gyre_status_t fill(const model_params_t *params, const model_lora_t *lora, const unsigned char *chosen,
                          model_adapters_t *adapters)
{
    size_t n = 0;
    for (size_t r = 0; r < params->rows; r++) {
        const model_param_t *row = &params->row[r];
        size_t most = base_min_size(row->shape[0], row->shape[1]);
        if (!chosen[r])
            continue;
        if (lora->rank > most)
            return gyre_fail(GYRE_ERR_INVALID, "--lora %zu: %s [%zu, %zu] takes a rank of up to %zu",
                             lora->rank, row->name, row->shape[0], row->shape[1], most);
        adapters->weight[n++] = r;
        add_factor(adapters->table, row, lora->rank, 0);
        add_factor(adapters->table, row, lora->rank, 1);
    }
    return GYRE_OK;
}

gyre_status_t model_adapters_create(const model_params_t *params, const model_lora_t *lora,
                                    model_adapters_t **out)
{
    model_adapters_t *adapters = calloc(1, sizeof *adapters);
    unsigned char *chosen = calloc(params->rows + 1, 1);
    char *list = strdup(lora->on ? lora->on : "*");
    double alpha = lora->alpha > 0.0 ? lora->alpha : 2.0 * (double)lora->rank;
    int there = adapters && chosen && list && (adapters->table = calloc(1, sizeof *adapters->table)) &&
                (adapters->table->row = calloc(2 * params->rows + 1, sizeof *adapters->table->row)) &&
                (adapters->weight = calloc(params->rows + 1, sizeof *adapters->weight));
    gyre_status_t status = there ? choose(params, list, chosen)
                                 : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a table of adapters");
    if (status == GYRE_OK) {
        adapters->rank = lora->rank;
        adapters->scale = (float)(alpha / (double)lora->rank);
        adapters->table->config = params->config;
        status = fill(params, lora, chosen, adapters);
    }
    free(chosen);
    free(list);
    if (status != GYRE_OK) {
        model_adapters_destroy(adapters);
        return status;
    }
    *out = adapters;
    return GYRE_OK;
}

void model_adapters_destroy(model_adapters_t *adapters)
{
    if (!adapters)
        return;
    model_params_destroy(adapters->table);
    free(adapters->weight);
    free(adapters);
}

size_t model_adapters_find(const model_adapters_t *adapters, size_t row)
{
    for (size_t i = 0; i < adapters->table->rows / 2; i++)
        if (adapters->weight[i] == row)
            return i;
    return MODEL_NONE;
}

/* ---- products ------------------------------------------------------------------------------------------ */

/* A leaf of a weight and of its factors: W [in, out], A [in, R], B [R, out]; from one leaf to the next. In a
 * leaf of copies only the first `own` columns are not the copies of another's. */
typedef struct {
    size_t in, out, own, leaves, step_a, step_b;
} leaf_t;

static leaf_t leaf_of(const model_param_t *row, size_t rank)
{
    leaf_t l = {.in = row->shape[0], .out = row->shape[1], .leaves = row->count / row->leaf_count};
    if (row->cut == 0) {
        l.in /= row->leaves;
        l.step_a = l.in * rank;
    } else {
        l.out = row->leaf_count / row->shape[0];
        l.step_b = rank * l.out;
    }
    l.own = row->copies > 1 ? row->part[0] / row->leaves : l.out;
    return l;
}

void model_lora_merge(const model_param_t *row, size_t rank, float scale, const float *a, const float *b,
                      float *weight)
{
    const leaf_t l = leaf_of(row, rank);
    for (size_t i = 0; i < l.leaves; i++)
        model_matmul_f32(0, 0, l.in, l.out, rank, scale, a + i * l.step_a, rank, b + i * l.step_b, l.out, 1,
                         weight + i * l.in * l.out, l.out);
}

size_t model_lora_shared(const model_param_t *row, size_t rank)
{
    return rank * row->shape[row->cut == 0];
}

/* sum [n] = the tree over part [leaves][n], a power of two of them. */
static void join(float *sum, float *part, size_t leaves, size_t n)
{
    const model_kernels_t_f32 *k = model_kernels_f32(MODEL_ISA_BEST);
    for (; leaves > 1; leaves /= 2)
        for (size_t i = 0; i < leaves / 2; i++)
            k->add(part + i * n, part + 2 * i * n, part + (2 * i + 1) * n, n);
    memcpy(sum, part, n * sizeof *sum);
}

void model_lora_gradient(const model_param_t *row, size_t rank, float scale, const float *a, const float *b,
                         const float *grad, float *own, float *shared, float *part)
{
    const leaf_t l = leaf_of(row, rank);
    const size_t n = model_lora_shared(row, rank);
    for (size_t i = 0; i < l.leaves; i++) {
        const float *d = grad + i * l.in * l.out, *ai = a + i * l.step_a, *bi = b + i * l.step_b;
        float *d_a = row->cut == 0 ? own + i * l.step_a : part + i * n,
              *d_b = row->cut == 0 ? part + i * n : own + i * l.step_b;
        const size_t out = (row->first / row->leaf_count + i) % row->copies > 0 ? l.own : l.out;
        model_matmul_f32(0, 1, l.in, rank, out, scale, d, l.out, bi, l.out, 0, d_a, rank);
        model_matmul_f32(1, 0, rank, l.out, l.in, scale, ai, rank, d, l.out, 0, d_b, l.out);
    }
    join(shared, part, l.leaves, n);
}
