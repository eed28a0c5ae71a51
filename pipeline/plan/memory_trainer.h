/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/plan/memory_trainer.h: what gyre-train itself will hold. */
#ifndef PIPELINE_PLAN_MEMORY_TRAINER_H
#define PIPELINE_PLAN_MEMORY_TRAINER_H

#include "optim/store/lora.h"
#include "pipeline/plan/estimate.h"

/* The table of the whole model; the caller's (model_params_destroy). Errors of model_params_create. */
gyre_status_t plan_trainer_table(const pipe_recipe_t *recipe, model_params_t **out);
/* Bytes of weights, gradients and optimiser state by kind, of tensor- and data-parallel rank 0 of stage
 * `rank`, which has the largest shards: what optim_zero_memory of that rank will say. `bucket`: bytes of a
 * gradient bucket. adapters: of the table `whole`, if they are trained instead of it; else NULL. NO_MEMORY,
 * INVALID. */
gyre_status_t plan_trainer(const pipe_recipe_t *recipe, const plan_base_t *base, const model_params_t *whole,
                           const model_adapters_t *adapters, size_t rank, size_t bucket,
                           size_t bytes[OPTIM_MEMORY_KINDS]);

#endif
