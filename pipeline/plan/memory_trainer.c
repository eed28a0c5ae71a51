/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/plan/memory_trainer.c: what gyre-train itself will hold, by the plan that its optimiser makes
 * (optim/store/zero.h). */
#include "pipeline/plan/memory_trainer.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

static optim_zero_config_t config_of(const pipe_recipe_t *r, size_t bucket)
{
    optim_zero_config_t c = {.stage = r->layout.zero,
                             .bucket_bytes = bucket,
                             .precision = r->precision.type,
                             .grad16 =
                                 r->precision.type != MODEL_FLOAT32 && r->precision.grad == r->precision.type,
                             .adamw = {.beta1 = r->optimizer.beta1,
                                       .beta2 = r->optimizer.beta2,
                                       .epsilon = r->optimizer.eps,
                                       .weight_decay = r->optimizer.weight_decay},
                             .muon = r->optimizer.muon,
                             .momentum = r->optimizer.momentum,
                             .clip = r->optimizer.clip};
    c.ep = pipe_layout_experts(&r->layout);
    const optim_part_t most = pipe_layout_most(&r->layout, &r->batch); /* which keeps most sums */
    optim_zero_share(&c, &r->batch, &most);
    return c;
}

gyre_status_t plan_trainer_table(const pipe_recipe_t *recipe, model_params_t **out)
{
    return model_params_create(&recipe->model, out);
}

/* Of the weights and of the adapters that are trained, slices of `has`. */
static gyre_status_t plan_adapters(const optim_zero_config_t *config, size_t dp, const model_params_t *local,
                                   const model_adapters_t *adapters, const model_slice_t *slice,
                                   size_t bytes[OPTIM_MEMORY_KINDS])
{
    model_params_t *factors = NULL;
    gyre_status_t status = model_params_slice(adapters->table, slice, &factors);
    const optim_lora_config_t lora = {.adapters = adapters, .weights = local, .factors = factors};
    if (status == GYRE_OK)
        status = optim_lora_predict(&lora, config, dp, 0, bytes);
    model_params_destroy(factors);
    return status;
}

gyre_status_t plan_trainer(const pipe_recipe_t *r, const plan_base_t *base, const model_params_t *whole,
                           const model_adapters_t *adapters, size_t rank, size_t bucket,
                           size_t bytes[OPTIM_MEMORY_KINDS])
{
    const pipe_layout_t *l = &r->layout;
    const optim_zero_config_t config = config_of(r, bucket);
    const model_holds_t holds = plan_holds(r, base, rank);
    unsigned char *has = calloc(r->model.layers, 1);
    if (!has)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %zu layers", r->model.layers);
    for (size_t c = 0; c < l->chunks; c++) {
        size_t first, count;
        pipe_layout_layers(l, r->model.layers, (size_t)pipe_stage_of(&base->shape, (int)rank, (int)c), &first,
                           &count);
        memset(has + first, 1, count);
    }
    const model_slice_t slice = {
        .tp_size = l->tp, .ep_size = l->ep, .has = has, .embed = holds.embed, .head = holds.head};
    model_params_t *local = NULL;
    gyre_status_t status = model_params_slice(whole, &slice, &local);
    if (status == GYRE_OK && adapters)
        status = plan_adapters(&config, pipe_layout_replicas(l), local, adapters, &slice, bytes);
    else if (status == GYRE_OK) /* a bucket's first rank has its largest shard (optim/store/shard.h) */
        status = optim_zero_predict(local, &config, pipe_layout_replicas(l), 0, base->micro_batches,
                                    base->micro_batches, bytes, NULL);
    model_params_destroy(local);
    free(has);
    return status;
}
