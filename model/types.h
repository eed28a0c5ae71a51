/* SPDX-License-Identifier: Apache-2.0 */
/* model/types.h: names that every room of model/ uses: token ids and the choices that distinguish
 * architectures. */
#ifndef MODEL_TYPES_H
#define MODEL_TYPES_H

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

#endif
