/* SPDX-License-Identifier: Apache-2.0 */
/* optim/store/zero.c: makes and ends one rank's weights, gradients and state (optim/store/zero.h). */
#include <gyre/cuda.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/error.h"
#include "optim/store/internal.h"

gyre_status_t zero_take(optim_zero_t *zero, optim_memory_t kind, size_t bytes, int shared, void **out)
{
    *out = NULL;
    gyre_status_t status = zero->on->take(zero, bytes ? bytes : 1, shared, out);
    if (status == GYRE_ERR_NO_MEMORY)
        return gyre_fail(
            status,
            "no memory for %zu bytes of %s: take more data-parallel ranks with a higher ZeRO stage, tensor "
            "or pipeline parallelism, or offload",
            bytes, optim_memory_name(kind));
    if (status == GYRE_OK)
        zero->bytes[kind] += bytes;
    return status;
}

/* What of `bytes[kind]` belongs to a tied head is counted as such. */
static void count_tied(optim_zero_t *zero, optim_memory_t kind, size_t bytes)
{
    zero->bytes[kind] -= bytes;
    zero->bytes[OPTIM_MEMORY_TIED] += bytes;
}

/* What depends on the number of sequences. */
static gyre_status_t take_share(optim_zero_t *zero)
{
    const zero_plan_t *plan = &zero->plan;
    gyre_status_t status = GYRE_OK;
    void *memory;
    if (plan->staging && !zero->staging) {
        status = zero_take(zero, OPTIM_MEMORY_BUCKETS, plan->staging * sizeof(float), 0, &memory);
        zero->staging = memory;
    }
    if (status == GYRE_OK)
        status = zero->on->stack(zero);
    if (status == GYRE_OK)
        zero->bytes[OPTIM_MEMORY_ACCUMULATION] = zero_plan_sums(plan);
    if (status == GYRE_OK && zero_plan_levels(plan) > 0) {
        status = zero_take(zero, OPTIM_MEMORY_ACCUMULATION, zero_plan_levels(plan), 0, &memory);
        zero->levels = memory;
    }
    return status;
}

static gyre_status_t take_gradients(optim_zero_t *zero)
{
    const zero_plan_t *plan = &zero->plan;
    int shards = plan->grad_shards;
    void *memory;
    for (size_t b = 0; b < plan->buckets; b++)
        zero->run[b].buffer = ZERO_NO_BUFFER;
    if (plan->config.weights_only)
        return GYRE_OK;
    gyre_status_t status =
        zero_take(zero, OPTIM_MEMORY_GRADIENTS,
                  (shards ? plan->grads : plan->params->grad_total) * plan->grad_bytes, 1, &memory);
    if (status != GYRE_OK)
        return status;
    zero->grads = memory;
    for (size_t b = 0; b < plan->buckets; b++) {
        const zero_bucket_t *k = &plan->bucket[b];
        if (k->tied)
            count_tied(zero, OPTIM_MEMORY_GRADIENTS, (shards ? k->own : k->count) * plan->grad_bytes);
        if (plan->pools == 0) /* whole, or one rank's only shard */
            zero->run[b].data = zero->grads + (shards ? k->grad_at : k->grad) * plan->grad_bytes;
    }
    for (size_t i = 0; i < plan->pools; i++) {
        zero->idle[i] = (zero_idle_t){ZERO_NO_BUFFER, ZERO_NO_BUFFER};
        for (size_t j = 0; status == GYRE_OK && j < plan->pool[i].buffers; j++)
            status = zero_buffer_add(zero, i);
    }
    return status == GYRE_OK ? take_share(zero) : status;
}

static gyre_status_t take_weights(optim_zero_t *zero)
{
    const zero_plan_t *plan = &zero->plan;
    size_t state = plan->state * sizeof(float);
    void *memory;
    gyre_status_t status = zero_take(
        zero, OPTIM_MEMORY_WEIGHTS,
        (plan->config.stage == 3 ? plan->state : plan->params->total) * plan->weight_bytes, 1, &memory);
    zero->weights = memory;
    if (status == GYRE_OK && plan->config.offload)
        status = zero_file_create(zero);
    else if (status == GYRE_OK && !plan->config.weights_only) {
        if (zero_half(zero) && (status = zero_take(zero, OPTIM_MEMORY_MASTER, state, 0, &memory)) == GYRE_OK)
            zero->master = memory;
        if (status == GYRE_OK &&
            (status = zero_take(zero, OPTIM_MEMORY_MOMENTS, state, 0, &memory)) == GYRE_OK)
            zero->m = memory;
        if (status == GYRE_OK && (status = zero_take(zero, OPTIM_MEMORY_MOMENTS,
                                                     plan->seconds * sizeof(float), 0, &memory)) == GYRE_OK)
            zero->v = memory;
    }
    for (size_t b = 0; status == GYRE_OK && b < plan->buckets; b++) {
        const zero_bucket_t *k = &plan->bucket[b];
        if (!k->tied || k->alias != MODEL_NONE)
            continue;
        count_tied(zero, OPTIM_MEMORY_WEIGHTS,
                   (plan->config.stage == 3 ? k->own : k->count) * plan->weight_bytes);
        if (zero->master)
            count_tied(zero, OPTIM_MEMORY_MASTER, k->own * sizeof(float));
        if (zero->m)
            count_tied(zero, OPTIM_MEMORY_MOMENTS, 2 * k->own * sizeof(float));
    }
    return status;
}

/* Memory for gathered or expanded units: what serves all, or one for each unit in the order of the table. */
static gyre_status_t take_entries(optim_zero_t *zero)
{
    const zero_plan_t *plan = &zero->plan;
    gyre_status_t status = GYRE_OK;
    void *memory;
    if (plan->landing > 0) {
        status = zero_take(zero, OPTIM_MEMORY_GATHERED, plan->landing * plan->weight_bytes, 1, &memory);
        zero->landing = memory;
    }
    if (status == GYRE_OK && plan->expands && !plan->config.keep) {
        status = zero_take(zero, OPTIM_MEMORY_GATHERED, plan->expanded * sizeof(float), 1, &memory);
        zero->expanded = memory;
    }
    for (size_t i = 0, begin, end = 0; status == GYRE_OK && i < plan->entries; i++) {
        zero_entry_t *entry = &zero->entry[i];
        entry->request = zero->requests + i * plan->max_unit_buckets;
        zero->entries++;
        if (!plan->config.keep)
            continue;
        zero_plan_unit(plan, end, &begin, &end);
        const size_t each = plan->expands ? sizeof(float) : plan->weight_bytes;
        status =
            zero_take(zero, OPTIM_MEMORY_GATHERED, zero_plan_unit_count(plan, begin, end) * each, 1, &memory);
        if (plan->expands)
            entry->own_value = memory;
        else
            entry->own_raw = memory;
    }
    return status;
}

static gyre_status_t take_tables(optim_zero_t *zero)
{
    const zero_plan_t *plan = &zero->plan;
    size_t rows = plan->params->rows + 1, buckets = plan->buckets + 1, units = plan->units + 1, shards;
    if (!base_mul(buckets, plan->ranks, &shards))
        return gyre_fail(GYRE_ERR_OVERFLOW, "ZeRO: %zu buckets over %zu ranks are more than memory can hold",
                         plan->buckets, plan->ranks);
    zero->run = calloc(buckets, sizeof *zero->run);
    zero->shards = calloc(shards, sizeof *zero->shards);
    zero->queue = calloc(buckets, sizeof *zero->queue);
    zero->buffer = calloc(buckets, sizeof *zero->buffer);
    zero->idle = calloc(plan->pools + 1, sizeof *zero->idle);
    zero->seen = calloc(rows, sizeof *zero->seen);
    zero->placed = calloc(rows, sizeof *zero->placed);
    zero->entry = calloc(units, sizeof *zero->entry);
    zero->requests = calloc(units * (plan->max_unit_buckets + 1), sizeof *zero->requests);
    if (!zero->run || !zero->shards || !zero->queue || !zero->buffer || !zero->idle || !zero->seen ||
        !zero->placed || !zero->entry || !zero->requests)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %zu buckets of %zu rows", plan->buckets,
                         plan->params->rows);
    for (size_t r = 0; plan->expands && r < plan->params->rows; r++)
        zero->exact_count += model_kind_is_exact(plan->params->row[r].kind) ? plan->params->row[r].count : 0;
    if (zero->exact_count > 0 && !(zero->exact = calloc(zero->exact_count, sizeof *zero->exact)))
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %zu weights in fp32", zero->exact_count);
    for (size_t b = 0; b < plan->buckets; b++) {
        zero->run[b].shards = zero->shards + b * plan->ranks;
        for (size_t p = 0, first; p < plan->ranks; p++)
            optim_shard_cut(plan->bucket[b].count, plan->ranks, p, &first, &zero->run[b].shards[p]);
    }
    return GYRE_OK;
}

static gyre_status_t check_groups(const optim_zero_t *zero)
{
    int partner = zero_plan_needs_partner(&zero->plan);
    if (partner && (!zero->groups.tied || gyre_comm_size(zero->groups.tied) != 2))
        return gyre_fail(
            GYRE_ERR_INVALID,
            "this rank holds the token embedding or its copy in the head, and the other is elsewhere: a "
            "group of the two must be given");
    if (!partner && zero->groups.tied)
        return gyre_fail(GYRE_ERR_INVALID,
                         "a group for tied rows is given, but no tied row has its twin on another rank");
    const gyre_comm_t *plane = zero->groups.plane;
    if (zero->plan.muon.plane > 1 && (!plane || (size_t)gyre_comm_size(plane) != zero->plan.muon.plane))
        return gyre_fail(GYRE_ERR_INVALID, "Muon: a group of the %zu ranks of dp and tp must be given",
                         zero->plan.muon.plane);
    return GYRE_OK;
}

static gyre_status_t prepare_gathers(optim_zero_t *zero)
{
    gyre_comm_t *dp = zero->groups.dp;
    return gyre_comm_split(dp, 0, gyre_comm_rank(dp), &zero->gather_comm);
}

static gyre_status_t resize(optim_zero_t *zero, const optim_zero_config_t *config)
{
    zero_plan_t *plan = &zero->plan;
    gyre_status_t status = zero_plan_resize(plan, config);
    if (status != GYRE_OK)
        return status;
    optim_stack_destroy(zero->stack);
    optim_stack_destroy(zero->turns);
    zero->stack = zero->turns = NULL;
    zero->on->give(zero, zero->levels, 0);
    zero->levels = NULL;
    zero->bytes[OPTIM_MEMORY_ACCUMULATION] = 0;
    return take_share(zero);
}

gyre_status_t optim_zero_resize(optim_zero_t *zero, const optim_zero_config_t *config)
{
    optim_zero_t *experts = zero_of_experts(zero);
    gyre_status_t status = resize(zero, config);
    return status == GYRE_OK && experts ? resize(experts, config) : status;
}

/* Of these rows alone; lanes: of zero_plan_t. */
static gyre_status_t make(const model_params_t *local, const optim_zero_groups_t *groups,
                          const optim_zero_config_t *config, size_t lanes, optim_zero_t **out)
{
    size_t ranks = groups->dp ? (size_t)gyre_comm_size(groups->dp) : 1;
    optim_zero_t *zero = calloc(1, sizeof *zero);
    if (!zero)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a rank's state");
    zero->groups = *groups;
    zero->travel = &zero->own_travel;
    zero->file = -1;
    zero->limit = INFINITY;
    zero->on = &zero_host_ops;
    zero->tp_rank = groups->tp ? (size_t)gyre_comm_rank(groups->tp) : 0;
    zero->world_rank = groups->world ? (size_t)gyre_comm_rank(groups->world) : 0;
    gyre_status_t status = zero_plan_make(
        local, config, ranks, groups->dp ? (size_t)gyre_comm_rank(groups->dp) : 0, lanes, &zero->plan);
    if (status == GYRE_OK)
        status = gyre_exact_create(&zero->squares);
    for (size_t i = 0; status == GYRE_OK && !config->on_device && i < ZERO_PARTS; i++)
        status = gyre_exact_create(&zero->part[i]);
    if (status == GYRE_OK)
        status = check_groups(zero);
    if (status == GYRE_OK && config->on_device)
        status = zero_cuda_begin(zero);
    if (status == GYRE_OK)
        status = take_tables(zero);
    if (status == GYRE_OK)
        status = take_weights(zero);
    if (status == GYRE_OK)
        status = take_gradients(zero);
    if (status == GYRE_OK)
        status = take_entries(zero);
    if (status == GYRE_OK && zero->plan.muon.rows > 0)
        status = zero_muon_take(zero);
    if (status != GYRE_OK) {
        optim_zero_destroy(zero);
        return status;
    }
    optim_scaler_begin(&zero->scaler, &zero->plan.config.scaler);
    zero_store_init(zero);
    zero_buckets_reset(zero);
    *out = zero;
    return GYRE_OK;
}

gyre_status_t optim_zero_make(const model_params_t *local, const optim_zero_groups_t *groups,
                              const optim_zero_config_t *config, optim_zero_t **out)
{
    const size_t ranks = groups->dp ? (size_t)gyre_comm_size(groups->dp) : 1, ep = config->ep;
    zero_experts_t *experts;
    optim_zero_t *zero;
    if (ep <= 1)
        return make(local, groups, config, 1, out);
    gyre_status_t status = zero_experts_check(local, config, ranks);
    if (status == GYRE_OK && (groups->edp ? (size_t)gyre_comm_size(groups->edp) : 1) != ranks / ep)
        status =
            gyre_fail(GYRE_ERR_INVALID,
                      "ZeRO: a group of the %zu ranks that hold the same experts must be given", ranks / ep);
    if (status == GYRE_OK)
        status = zero_experts_create(local, &experts);
    if (status != GYRE_OK)
        return status;
    if ((status = make(experts->table[0], groups, config, 1, &zero)) != GYRE_OK) {
        zero_experts_destroy(experts);
        return status;
    }
    zero->experts = experts;
    experts->others = zero;
    /* no tp: it holds no row of an expert twice */
    const optim_zero_groups_t apart = {
        .world = groups->world, .dp = groups->edp, .plane = groups->experts_plane};
    if ((status = make(experts->table[1], &apart, config, ep, &experts->store)) != GYRE_OK) {
        optim_zero_destroy(zero);
        return status;
    }
    experts->store->travel = zero->travel;
    *out = zero;
    return GYRE_OK;
}

gyre_status_t optim_zero_join(optim_zero_t *zero)
{
    optim_zero_t *experts = zero_of_experts(zero);
    gyre_status_t status = zero->plan.gathers ? prepare_gathers(zero) : GYRE_OK;
    if (status == GYRE_OK && experts && experts->plan.gathers)
        status = prepare_gathers(experts);
    return status == GYRE_OK ? zero->on->join(zero) : status;
}

void optim_zero_abort(optim_zero_t *zero, const char *reason)
{
    if (zero->groups.dp)
        gyre_comm_abort(zero->groups.dp, reason);
    if (zero->gather_comm)
        gyre_comm_abort(zero->gather_comm, reason);
    if (zero_of_experts(zero))
        optim_zero_abort(zero->experts->store, reason);
}

void optim_zero_leave(optim_zero_t *zero)
{
    if (zero_of_experts(zero))
        optim_zero_leave(zero->experts->store);
    zero_buckets_abandon(zero);
    for (size_t i = 0; i < zero->entries; i++)
        for (size_t r = 0; r < zero->entry[i].requests; r++)
            zero->on->wait(zero, &zero->entry[i].request[r]);
    zero->on->leave(zero);
    if (zero->gather_comm)
        gyre_comm_destroy(zero->gather_comm);
    zero->gather_comm = NULL;
}

void optim_zero_destroy(optim_zero_t *zero)
{
    if (!zero)
        return;
    optim_zero_leave(zero);
    for (size_t i = 0; i < zero->entries; i++) {
        zero->on->give(zero, zero->entry[i].own_value, 1);
        zero->on->give(zero, zero->entry[i].own_raw, 1);
    }
    zero->on->give(zero, zero->landing, 1);
    zero->on->give(zero, zero->expanded, 1);
    for (size_t i = 0; i < zero->buffers; i++)
        zero->on->give(zero, zero->buffer[i].data, 1);
    zero->on->give(zero, zero->staging, 0);
    zero->on->give(zero, zero->weights, 1);
    zero->on->give(zero, zero->grads, 1);
    zero->on->give(zero, zero->levels, 0);
    optim_stack_destroy(zero->stack);
    optim_stack_destroy(zero->turns);
    zero->on->give(zero, zero->master, 0);
    zero->on->give(zero, zero->m, 0);
    zero->on->give(zero, zero->v, 0);
    zero->on->give(zero, zero->muon_whole, 1);
    zero->on->give(zero, zero->muon_pack, 1);
    free(zero->muon_counts);
    for (size_t b = 0; zero->run && b < zero->plan.buckets; b++) {
        base_event_destroy(zero->run[b].reduce.event);
        base_event_destroy(zero->run[b].gather.event);
    }
    for (size_t i = 0; zero->requests && i < zero->plan.units * zero->plan.max_unit_buckets; i++)
        base_event_destroy(zero->requests[i].event);
    zero->on->end(zero);
    free(zero->window);
    free(zero->lost);
    if (zero->file >= 0)
        close(zero->file);
    free(zero->run);
    free(zero->shards);
    free(zero->queue);
    free(zero->buffer);
    free(zero->idle);
    free(zero->seen);
    free(zero->placed);
    free(zero->exact);
    gyre_exact_destroy(zero->squares);
    for (size_t i = 0; i < ZERO_PARTS; i++)
        gyre_exact_destroy(zero->part[i]);
    free(zero->entry);
    free(zero->requests);
    zero_plan_free(&zero->plan);
    zero_experts_destroy(zero->experts);
    free(zero);
}

const model_store_t_f32 *optim_zero_store(optim_zero_t *zero)
{
    return zero->device ? NULL : zero->experts ? &zero->experts->serve : &zero->store;
}

const model_cuda_store_t *optim_zero_cuda_store(optim_zero_t *zero)
{
    return zero->device ? &zero->cuda_store : NULL;
}

double optim_zero_loss_scale(const optim_zero_t *zero)
{
    return zero->plan.config.precision == MODEL_FLOAT16 ? zero->scaler.scale : 1.0;
}

uint64_t optim_zero_steps(const optim_zero_t *zero)
{
    return zero->steps;
}

const optim_scaler_t *optim_zero_scaler(const optim_zero_t *zero)
{
    return zero->plan.config.precision == MODEL_FLOAT16 ? &zero->scaler : NULL;
}

void optim_zero_memory(const optim_zero_t *zero, size_t bytes[OPTIM_MEMORY_KINDS])
{
    memcpy(bytes, zero->bytes, sizeof zero->bytes);
    for (size_t k = 0; zero->experts && k < OPTIM_MEMORY_KINDS; k++)
        bytes[k] += zero->experts->store->bytes[k];
}
