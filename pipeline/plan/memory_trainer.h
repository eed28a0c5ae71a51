/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/plan/memory_trainer.h: what gyre-train itself will hold on CPUs, or on GPUs, to the byte. */
#ifndef PIPELINE_PLAN_MEMORY_TRAINER_H
#define PIPELINE_PLAN_MEMORY_TRAINER_H

#include "optim/store/lora.h"
#include "pipeline/plan/estimate.h"

/* What a recipe does not say of a run of gyre-train. */
typedef struct {
    size_t bucket_bytes; /* of a gradient bucket */
    int keep, offload;   /* as optim_zero_config_t has them; offload 1: there is a folder */
    size_t threads;      /* of a rank; 0: 1 */
    int matmul_bf16;     /* model_stage_config_t.matmul_bf16 */
    model_lora_t lora;   /* adapters that are trained; rank 0: none */
    const char *freeze;  /* rows that are not trained (model_params_freeze); NULL: none */
    int device;          /* 1: everything is on GPUs, of which none is needed here */
    int away;            /* with device: model_stage_config_t.offload */
} plan_trainer_t;

/* Bytes of a rank. */
typedef struct {
    size_t store[OPTIM_MEMORY_KINDS]; /* weights, gradients and optimiser state: pipe_train_memory */
    /* what layers keep for backward, their workspace, and boundary tensors, those of an evaluation among
     * them: pipe_train_activation_bytes */
    size_t activations;
    size_t total;
} plan_held_t;

/* held: [pp] of each stage, and of each kind, what the rank of it that has most of that kind holds; it is the
 * first rank most often. stored 1: held[].store is there, of a recipe that differs in recomputation, sequence
 * parallelism and micro-batches alone. Not counted: a checkpoint that is being written, data, tokens and
 * losses of a batch.
 * INVALID, UNSUPPORTED (what gyre-train refuses), NO_MEMORY, OVERFLOW. */
gyre_status_t plan_trainer(const pipe_recipe_t *recipe, const plan_trainer_t *how, int stored,
                           plan_held_t *held);
/* Which of them holds most. */
size_t plan_trainer_worst(const plan_held_t *held, size_t stages);

#endif
