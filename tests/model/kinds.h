/* SPDX-License-Identifier: Apache-2.0 */
/* tests/model/kinds.h: kinds of models, as part of the initializer of a model_config_t. */
#ifndef TESTS_MODEL_KINDS_H
#define TESTS_MODEL_KINDS_H

#include "model/network/config.h"

#define LLAMA_LIKE                                                                                 \
    .pos = MODEL_POS_ROPE, .norm = MODEL_NORM_RMS, .act = MODEL_ACT_SILU, .gated = 1, .untied = 1, \
    .no_qkv_bias = 1, .no_proj_bias = 1, .no_mlp_bias = 1

#endif
