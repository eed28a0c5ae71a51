/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/train/weights.c: a run's weights as a whole: where its ranks hold them, and what they are for
 * those who read them, whether all are trained or adapters of them (optim/store/lora.h). */
#include <stdlib.h>

#include "base/error.h"
#include "base/hash.h"
#include "pipeline/train/engine.h"

gyre_status_t train_set_groups(const pipe_train_t *train, model_params_t *table)
{
    gyre_status_t status = GYRE_OK;
    if (train->config.rates)
        status = model_params_rates(table, train->config.rates);
    return status == GYRE_OK && train->config.decays ? model_params_decays(table, train->config.decays)
                                                     : status;
}

gyre_status_t train_make_adapters(pipe_train_t *train, const model_slice_t *slice)
{
    gyre_status_t status = model_adapters_create(train->whole, &train->config.lora, &train->adapters);
    if (status == GYRE_OK)
        status = train_set_groups(train, train->adapters->table);
    return status == GYRE_OK ? model_params_slice(train->adapters->table, slice, &train->factors) : status;
}

static optim_lora_config_t lora_of(const pipe_train_t *train)
{
    return (optim_lora_config_t){.adapters = train->adapters,
                                 .weights = train->local,
                                 .factors = train->factors,
                                 .tp = train->layout.tp > 1 ? train->tp : NULL,
                                 .precision = train->config.precision};
}

gyre_status_t train_make_stores(pipe_train_t *train, const optim_zero_groups_t *groups,
                                const optim_zero_config_t *how)
{
    if (!train->adapters)
        return optim_zero_make(train->local, groups, how, &train->zero);
    const optim_zero_config_t base = optim_lora_base(how), factors = optim_lora_factors(how);
    const optim_lora_config_t lora = lora_of(train);
    optim_zero_groups_t apart = *groups;
    apart.tied = NULL;
    gyre_status_t status = optim_zero_make(train->local, groups, &base, &train->base);
    if (status == GYRE_OK)
        status = optim_zero_make(train->factors, &apart, &factors, &train->zero);
    return status == GYRE_OK ? optim_lora_create(&lora, train->base, train->zero, &train->lora) : status;
}

gyre_status_t pipe_train_init(pipe_train_t *train, optim_zero_t *store, uint64_t seed)
{
    base_team_t *before = base_team_use(train->team);
    const gyre_status_t status = optim_zero_init(store, seed);
    base_team_use(before);
    return status;
}

gyre_status_t train_predict_stores(const pipe_train_t *train, const optim_zero_config_t *how,
                                   size_t bytes[OPTIM_MEMORY_KINDS])
{
    const size_t dp = pipe_layout_replicas(&train->layout),
                 rank = train->place.dp * train->layout.cp + train->place.cp;
    const optim_lora_config_t lora = lora_of(train);
    return train->adapters ? optim_lora_predict(&lora, how, dp, rank, bytes)
                           : optim_zero_predict(train->local, how, dp, rank, 1, bytes, NULL);
}

const model_store_t_f32 *train_store(pipe_train_t *train)
{
    return train->lora ? optim_lora_store(train->lora) : optim_zero_store(train->zero);
}

gyre_status_t train_idle(pipe_train_t *train, const chunk_t *chunk, optim_pass_t pass)
{
    return optim_zero_idle(train->base ? train->base : train->zero, chunk->first, chunk->rows, pass);
}

const model_params_t *pipe_train_whole(const pipe_train_t *train)
{
    return train->whole;
}

const model_params_t *pipe_train_table(const pipe_train_t *train)
{
    return train->adapters ? train->adapters->table : train->whole;
}

optim_zero_t *pipe_train_zero(pipe_train_t *train)
{
    return train->zero;
}

optim_zero_t *pipe_train_base(pipe_train_t *train)
{
    return train->base;
}

void pipe_train_memory(const pipe_train_t *train, size_t bytes[OPTIM_MEMORY_KINDS])
{
    size_t base[OPTIM_MEMORY_KINDS];
    optim_zero_memory(train->zero, bytes);
    if (!train->base)
        return;
    const optim_lora_config_t lora = lora_of(train);
    optim_zero_memory(train->base, base);
    for (size_t k = 0; k < OPTIM_MEMORY_KINDS; k++)
        bytes[k] += base[k];
    optim_lora_memory(&lora, bytes);
}

gyre_status_t pipe_train_verify(pipe_train_t *train)
{
    /* a rank that finds a drift takes part in what others, which cannot see it, still compare */
    const gyre_status_t status = optim_zero_verify(train->zero);
    const int goes_on = status == GYRE_OK || status == GYRE_ERR_MISMATCH;
    const gyre_status_t base = goes_on && train->base ? optim_zero_verify(train->base) : GYRE_OK;
    return status == GYRE_OK ? base : status;
}

gyre_status_t pipe_train_digest(pipe_train_t *train, uint64_t *digest)
{
    uint64_t base;
    gyre_status_t status = optim_zero_digest(train->zero, digest);
    if (status != GYRE_OK || !train->base)
        return status;
    status = optim_zero_digest(train->base, &base);
    *digest += base_mix64(base);
    return status;
}

const model_adapters_t *pipe_train_adapters(const pipe_train_t *train)
{
    return train->adapters;
}

gyre_status_t pipe_train_gather_adapter(pipe_train_t *train, size_t i, float *factors)
{
    const model_adapters_t *adapters = train->adapters;
    const model_param_t *factor = &adapters->table->row[2 * i];
    float *b = factors ? factors + factor[0].count : NULL;
    gyre_status_t status = optim_zero_gather_row(train->zero, adapters->table, 2 * i, factors);
    if (status == GYRE_OK)
        status = optim_zero_gather_row(train->zero, adapters->table, 2 * i + 1, b);
    if (status == GYRE_OK && factors)
        model_keep_f32(model_kernels_f32(MODEL_ISA_BEST), train->config.precision, factors,
                       factor[0].count + factor[1].count);
    return status;
}

/* Row `row` with its adapter, of place `i`; factors [A and B]: rank 0's memory, NULL elsewhere. */
static gyre_status_t merge_row(pipe_train_t *train, size_t row, size_t i, float *factors, float *canonical)
{
    const model_adapters_t *adapters = train->adapters;
    gyre_status_t status = pipe_train_gather_adapter(train, i, factors);
    if (status == GYRE_OK && factors)
        model_lora_merge(&train->whole->row[row], adapters->rank, adapters->scale, factors,
                         factors + adapters->table->row[2 * i].count, canonical);
    return status;
}

gyre_status_t pipe_train_gather_row(pipe_train_t *train, size_t row, float *canonical)
{
    optim_zero_t *zero = train->base ? train->base : train->zero;
    size_t i = train->adapters ? model_adapters_find(train->adapters, row) : MODEL_NONE;
    float *factors = NULL;
    if (i != MODEL_NONE && canonical) {
        const model_param_t *factor = &train->adapters->table->row[2 * i];
        factors = malloc((factor[0].count + factor[1].count) * sizeof *factors);
        if (!factors)
            return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the adapter of %s",
                             train->whole->row[row].name);
    }
    gyre_status_t status = optim_zero_gather_row(zero, train->whole, row, canonical);
    if (status == GYRE_OK && i != MODEL_NONE)
        status = merge_row(train, row, i, factors, canonical);
    free(factors);
    return status;
}
