/* SPDX-License-Identifier: Apache-2.0 */
/* model/types.h: names that every room of model/ uses: token ids and the choices that distinguish
 * architectures. */
#ifndef MODEL_TYPES_H
#define MODEL_TYPES_H

#include <stddef.h>
#include <stdint.h>

typedef int32_t model_token_t;
/* As a target: the position is not learned. */
#define MODEL_IGNORED ((model_token_t)-1)

typedef enum { MODEL_POS_LEARNED, MODEL_POS_ROPE, MODEL_POS_ALIBI, MODEL_POS_NONE } model_pos_t;
typedef enum { MODEL_NORM_LAYER, MODEL_NORM_RMS } model_norm_t;
typedef enum {
    MODEL_ACT_GELU_TANH,
    MODEL_ACT_GELU_ERF,
    MODEL_ACT_GELU_FAST, /* x * sigmoid(1.702 x), Ascend's FastGelu */
    MODEL_ACT_RELU,
    MODEL_ACT_SILU
} model_act_t;
#define MODEL_ACTS 5

/* How rotary positions reach further than those of the first training: frequencies are divided by `factor`,
 * all of them (linear), or slow ones (llama3: by rotations within `original` positions; YaRN, Peng et al.
 * 2023: by the pair's number). "dynamic" scales nothing up to the model's own positions, and Gyre has no
 * others. */
typedef enum {
    MODEL_ROPE_PLAIN,
    MODEL_ROPE_LINEAR,
    MODEL_ROPE_DYNAMIC,
    MODEL_ROPE_LLAMA3,
    MODEL_ROPE_YARN
} model_rope_type_t;

/* Rotary positions. Pair i of `half` turns at position t by t times its frequency, which without a type is
 * theta^(-i / half). What a type does not use is 0. */
typedef struct {
    double theta; /* 0: 10000 */
    model_rope_type_t type;
    double factor;    /* at least 1 */
    double low, high; /* rotations: llama3's low_freq_factor, high_freq_factor; YaRN's beta_slow, beta_fast */
    double attention; /* YaRN: cosines and sines are multiplied by it; 0: 0.1 ln(factor) + 1 */
    size_t original;  /* positions of the first training: llama3 and YaRN */
    int untruncated;  /* YaRN: 1: the pairs where scaling begins and ends are not whole numbers (gpt-oss) */
    /* YaRN with latent attention: scores are multiplied by (1 + 0.1 scores ln(factor))^2; 0: they are not */
    double scores;
} model_rope_t;

#endif
