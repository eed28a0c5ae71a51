/* SPDX-License-Identifier: Apache-2.0 */
/* optim/store/lora.h: what a model's stages work on when adapters are trained (model/network/lora.h).
 *
 * Two stores of optim/store/zero.h stand under it: `base` has the weights alone, which nobody updates, and
 * `factors` the adapters with their gradients and moments. A unit's weights are acquired from the base, and
 * those with an adapter are merged with it, so stages compute with W + scale A B and know of no adapters. The
 * gradient of a merged weight is made in memory for one unit, and those of the factors follow from it:
 *
 *     dA = scale dW B^T        dB = scale A^T dW
 *
 * The logits of a run are thus those of the merged model that it leaves, to the bit in fp32, and in 16 bits
 * if the model is read in the same type. Gradients and moments are there for factors only. A backward pass
 * makes dW of the adapted weights; those of others are not made. Of the factor that all leaves share the sum
 * goes over the leaves in the tree of docs/contract.md, first here, then over the tensor-parallel ranks.
 * Replicas of the weights are compared when a run begins and when it ends, those of the factors in every
 * step. */
#ifndef OPTIM_STORE_LORA_H
#define OPTIM_STORE_LORA_H

#include "model/network/lora.h"
#include "optim/store/zero.h"

typedef struct optim_lora optim_lora_t;

/* All fields outlive the object. */
typedef struct {
    const model_adapters_t *adapters;
    const model_params_t *weights, *factors; /* this rank's slices: of the model's table, and of adapters' */
    gyre_comm_t *tp;                         /* ranks with the other leaves; NULL: there are none */
    model_precision_t precision;             /* to which merged weights are rounded */
} optim_lora_config_t;

/* What `config` of a run is for each of the two stores. Weights are cut over ranks with ZeRO 3, moments of
 * factors from ZeRO 1 on; factors and their gradients are small, and whole on each rank. */
optim_zero_config_t optim_lora_base(const optim_zero_config_t *config);
optim_zero_config_t optim_lora_factors(const optim_zero_config_t *config);

/* base, factors: of the slices in `config`; they outlive the object. NO_MEMORY. */
gyre_status_t optim_lora_create(const optim_lora_config_t *config, optim_zero_t *base, optim_zero_t *factors,
                                optim_lora_t **out);
void optim_lora_destroy(optim_lora_t *lora);
/* What stages are created with; lives as long as the object. */
const model_store_t_f32 *optim_lora_store(optim_lora_t *lora);
/* Nanoseconds in collectives of the tensor-parallel group since it was made; who records them, or NULL. */
base_time_t optim_lora_exposed(const optim_lora_t *lora);
void optim_lora_watch(optim_lora_t *lora, model_spans_t *spans);
/* Adds the bytes that such an object holds itself: merged weights to OPTIM_MEMORY_GATHERED, gradients on
 * their way to OPTIM_MEMORY_BUCKETS. Pure. */
void optim_lora_memory(const optim_lora_config_t *config, size_t bytes[OPTIM_MEMORY_KINDS]);
/* What optim_zero_predict says of both stores of a run with `how`, and what such an object holds itself. */
gyre_status_t optim_lora_predict(const optim_lora_config_t *config, const optim_zero_config_t *how,
                                 size_t dp_size, size_t dp_rank, size_t bytes[OPTIM_MEMORY_KINDS]);

#endif
