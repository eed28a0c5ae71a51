/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/train/sample.h: text from a model. */
#ifndef PIPELINE_TRAIN_SAMPLE_H
#define PIPELINE_TRAIN_SAMPLE_H

#include "model/data/infill.h"
#include "model/network/params.h"
#include "model/kernels/kernels.h"

typedef struct {
    double temperature; /* > 0; 0: always the likeliest token */
    size_t top_k;       /* only the k likeliest tokens; 0: all */
    uint64_t seed;
    /* of a model that was trained on blanks: what it says stands for one [gMASK] after the prompt; NULL: it
     * goes on token by token */
    const model_infill_ids_t *infill;
} model_sample_t;

/* Appends `count` tokens to tokens[0 .. *length), which must hold at least one and have room for count more.
 * The model sees at most the last config.seq of them (with infill: [gMASK] and [sop] among them): when there
 * is no place for a further one, half of them. `whole` is a whole
 * table, `weights` [whole->total]. Same weights, prompt and seed: same text. INVALID, NO_MEMORY. */
gyre_status_t model_sample(const model_params_t *whole, const float *weights, const model_sample_t *how,
                           model_token_t *tokens, size_t *length, size_t count);

#endif
