/* SPDX-License-Identifier: Apache-2.0 */
/* optim/store/lora.c: merges adapters into weights, and gives them their gradients (optim/store/lora.h). */
#include "optim/store/lora.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/error.h"

enum { MOST = 4 }; /* adapted weights of a layer */

/* An adapted weight of this rank. */
typedef struct {
    size_t row;    /* of the weights' slice */
    size_t factor; /* its A in the factors' slice, which B follows */
    size_t at;     /* its elements among those of its unit's adapted weights */
    size_t shared; /* the same of factors that leaves share */
} pair_t;

/* Elements that the memory for a unit holds. */
typedef struct {
    size_t unit, shared, part;
} need_t;

struct optim_lora {
    optim_lora_config_t config;
    model_store_t_f32 base, factors, store;
    size_t pairs;
    pair_t *pair;         /* in the order of the table */
    float *merged, *grad; /* [need.unit] weights as the model has them, and their gradients */
    base_time_t exposed;
    model_spans_t *spans;
    float *shared, *part; /* [need.shared], [need.part] gradients of factors that leaves share */
};

optim_zero_config_t optim_lora_base(const optim_zero_config_t *config)
{
    optim_zero_config_t base = *config;
    base.weights_only = 1;
    base.stage = config->stage == 3 ? 3 : 0;
    base.grad16 = 0;
    base.offload = NULL;
    return base;
}

optim_zero_config_t optim_lora_factors(const optim_zero_config_t *config)
{
    optim_zero_config_t factors = *config;
    factors.stage = config->stage > 0;
    factors.ep = 0; /* experts have none */
    return factors;
}

/* The pairs of these slices, pair [factors->rows / 2] (NULL: not wanted), and what memory they need. */
static void find_pairs(const optim_lora_config_t *c, pair_t *pair, need_t *need)
{
    const model_params_t *weights = c->weights, *factors = c->factors;
    need_t unit = {0};
    int layer = -1;
    *need = (need_t){0};
    for (size_t f = 0, r = 0; f < factors->rows; f += 2) {
        size_t global = c->adapters->weight[factors->row[f].global / 2];
        while (weights->row[r].global != global)
            r++;
        const model_param_t *row = &weights->row[r];
        size_t shared = model_lora_shared(row, c->adapters->rank);
        if (row->layer != layer)
            unit = (need_t){0};
        layer = row->layer;
        if (pair)
            pair[f / 2] = (pair_t){.row = r, .factor = f, .at = unit.unit, .shared = unit.shared};
        unit.unit += row->count;
        unit.shared += shared;
        need->unit = base_max_size(need->unit, unit.unit);
        need->shared = base_max_size(need->shared, unit.shared);
        need->part = base_max_size(need->part, row->count / row->leaf_count * shared);
    }
}

void optim_lora_memory(const optim_lora_config_t *config, size_t bytes[OPTIM_MEMORY_KINDS])
{
    need_t need;
    find_pairs(config, NULL, &need);
    bytes[OPTIM_MEMORY_GATHERED] += need.unit * sizeof(float);
    bytes[OPTIM_MEMORY_BUCKETS] += (need.unit + need.shared + need.part) * sizeof(float);
}

gyre_status_t optim_lora_predict(const optim_lora_config_t *config, const optim_zero_config_t *how,
                                 size_t dp_size, size_t dp_rank, size_t bytes[OPTIM_MEMORY_KINDS])
{
    const optim_zero_config_t base = optim_lora_base(how), factors = optim_lora_factors(how);
    size_t more[OPTIM_MEMORY_KINDS];
    gyre_status_t status = optim_zero_predict(config->weights, &base, dp_size, dp_rank, 1, bytes, NULL);
    if (status == GYRE_OK)
        status = optim_zero_predict(config->factors, &factors, dp_size, dp_rank, 1, more, NULL);
    if (status != GYRE_OK)
        return status;
    for (size_t k = 0; k < OPTIM_MEMORY_KINDS; k++)
        bytes[k] += more[k];
    optim_lora_memory(config, bytes);
    return GYRE_OK;
}

/* The pairs whose weights are among rows first .. first + rows - 1, which are of one unit. */
static const pair_t *pairs_of(const optim_lora_t *lora, size_t first, size_t rows, size_t *count)
{
    size_t begin = 0, end;
    while (begin < lora->pairs && lora->pair[begin].row < first)
        begin++;
    for (end = begin; end < lora->pairs && lora->pair[end].row < first + rows;)
        end++;
    *count = end - begin;
    return lora->pair + begin;
}

static void merge(const optim_lora_t *lora, const pair_t *pair, const float *weight, const float *a,
                  const float *b)
{
    const optim_lora_config_t *c = &lora->config;
    const model_param_t *row = &c->weights->row[pair->row];
    float *merged = lora->merged + pair->at;
    memcpy(merged, weight, row->count * sizeof *merged);
    model_lora_merge(row, c->adapters->rank, c->adapters->scale, a, b, merged);
    model_keep_f32(model_kernels_f32(MODEL_ISA_BEST), c->precision, merged, row->count);
}

static gyre_status_t acquire(void *user, size_t first, size_t rows, size_t next_first, size_t next_rows,
                             const float **value)
{
    optim_lora_t *lora = user;
    const float *factor[2 * MOST];
    size_t n;
    const pair_t *pair = pairs_of(lora, first, rows, &n);
    gyre_status_t status = lora->base.acquire(lora->base.user, first, rows, next_first, next_rows, value);
    if (status == GYRE_OK && n > 0)
        status = lora->factors.acquire(lora->factors.user, pair->factor, 2 * n, 0, 0, factor);
    if (status != GYRE_OK || n == 0)
        return status;
    for (size_t i = 0; i < n; i++) {
        merge(lora, &pair[i], value[pair[i].row - first], factor[2 * i], factor[2 * i + 1]);
        value[pair[i].row - first] = lora->merged + pair[i].at;
    }
    lora->factors.release(lora->factors.user, pair->factor, 2 * n);
    return GYRE_OK;
}

static void release(void *user, size_t first, size_t rows)
{
    const optim_lora_t *lora = user;
    lora->base.release(lora->base.user, first, rows);
}

static gyre_status_t place(void *user, size_t slot, size_t first, size_t rows, float **grad)
{
    const optim_lora_t *lora = user;
    size_t n;
    const pair_t *pair = pairs_of(lora, first, rows, &n);
    (void)slot;
    memset(grad, 0, rows * sizeof *grad);
    for (size_t i = 0; i < n; i++)
        grad[pair[i].row - first] = lora->grad + pair[i].at;
    return GYRE_OK;
}

/* Sums that each tensor-parallel rank has of its own leaves. */
static gyre_status_t group_sums(optim_lora_t *lora, size_t count)
{
    if (!lora->config.tp)
        return GYRE_OK;
    base_time_t begin = base_now();
    gyre_status_t status =
        gyre_all_reduce(lora->shared, lora->shared, count, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), lora->config.tp);
    base_time_t end = base_now();
    lora->exposed += end - begin;
    model_spans_add(lora->spans, MODEL_SPAN_TENSOR, begin, end, -1, -1);
    return status;
}

/* The gradients of n pairs' factors from those of their weights; to [2 n]: their places. */
static gyre_status_t give_gradients(optim_lora_t *lora, const pair_t *pair, size_t n,
                                    const float *const *factor, float *const *to)
{
    const optim_lora_config_t *c = &lora->config;
    size_t rank = c->adapters->rank, all = 0;
    for (size_t i = 0; i < n; i++) {
        const model_param_t *row = &c->weights->row[pair[i].row];
        model_lora_gradient(row, rank, c->adapters->scale, factor[2 * i], factor[2 * i + 1],
                            lora->grad + pair[i].at, to[2 * i + (row->cut != 0)],
                            lora->shared + pair[i].shared, lora->part);
        all = pair[i].shared + model_lora_shared(row, rank);
    }
    gyre_status_t status = group_sums(lora, all);
    for (size_t i = 0; status == GYRE_OK && i < n; i++) {
        const model_param_t *row = &c->weights->row[pair[i].row];
        memcpy(to[2 * i + (row->cut == 0)], lora->shared + pair[i].shared,
               model_lora_shared(row, rank) * sizeof(float));
    }
    return status;
}

static gyre_status_t ready(void *user, size_t slot, size_t first, size_t rows)
{
    optim_lora_t *lora = user;
    const model_store_t_f32 *f = &lora->factors;
    const float *factor[2 * MOST];
    float *to[2 * MOST];
    size_t n;
    const pair_t *pair = pairs_of(lora, first, rows, &n);
    if (n == 0)
        return GYRE_OK;
    gyre_status_t status = f->acquire(f->user, pair->factor, 2 * n, 0, 0, factor);
    if (status != GYRE_OK)
        return status;
    status = f->place(f->user, slot, pair->factor, 2 * n, to);
    if (status == GYRE_OK)
        status = give_gradients(lora, pair, n, factor, to);
    f->release(f->user, pair->factor, 2 * n);
    return status == GYRE_OK ? f->ready(f->user, slot, pair->factor, 2 * n) : status;
}

static float *take(size_t count)
{
    return calloc(count ? count : 1, sizeof(float));
}

gyre_status_t optim_lora_create(const optim_lora_config_t *config, optim_zero_t *base, optim_zero_t *factors,
                                optim_lora_t **out)
{
    optim_lora_t *lora = calloc(1, sizeof *lora);
    size_t pairs = config->factors->rows / 2;
    need_t need = {0};
    int there = lora && (lora->pair = calloc(pairs + 1, sizeof *lora->pair));
    if (there) {
        find_pairs(config, lora->pair, &need);
        there = (lora->merged = take(need.unit)) && (lora->grad = take(need.unit)) &&
                (lora->shared = take(need.shared)) && (lora->part = take(need.part));
    }
    if (!there) {
        optim_lora_destroy(lora);
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a layer's weights with their adapters");
    }
    lora->config = *config;
    lora->pairs = pairs;
    lora->base = *optim_zero_store(base);
    lora->factors = *optim_zero_store(factors);
    lora->store = (model_store_t_f32){
        .acquire = acquire, .release = release, .place = place, .ready = ready, .user = lora};
    *out = lora;
    return GYRE_OK;
}

void optim_lora_destroy(optim_lora_t *lora)
{
    if (!lora)
        return;
    free(lora->pair);
    free(lora->merged);
    free(lora->grad);
    free(lora->shared);
    free(lora->part);
    free(lora);
}

const model_store_t_f32 *optim_lora_store(optim_lora_t *lora)
{
    return &lora->store;
}

base_time_t optim_lora_exposed(const optim_lora_t *lora)
{
    return lora->exposed;
}

void optim_lora_watch(optim_lora_t *lora, model_spans_t *spans)
{
    lora->spans = spans;
}
