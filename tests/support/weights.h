/* SPDX-License-Identifier: Apache-2.0 */
/* tests/support/weights.h: all weights of a model at once. */
#ifndef TESTS_SUPPORT_WEIGHTS_H
#define TESTS_SUPPORT_WEIGHTS_H

#include <string.h>

#include "model/formats/hf.h"
#include "model/formats/weights.h"
#include "model/network/params.h"

typedef struct {
    const model_params_t *params;
    const float *flat; /* [total] */
} flat_t;

static inline gyre_status_t flat_row(void *user, size_t r, float *canonical)
{
    const flat_t *from = user;
    const model_param_t *row = &from->params->row[r];
    memcpy(canonical, from->flat + row->offset, row->count * sizeof *canonical);
    return GYRE_OK;
}

/* All rows of flat [total] in one safetensors file. */
static inline gyre_status_t save_weights(const char *path, const model_params_t *params, const float *flat)
{
    flat_t from = {params, flat};
    return model_checkpoint_stream(path, params, flat_row, &from);
}

/* Initial weights of all rows, into flat [total]. */
static inline void init_params(const model_params_t *params, uint64_t seed, float *flat)
{
    for (size_t r = 0; r < params->rows; r++) {
        const model_param_t *row = &params->row[r];
        if (row->alias == MODEL_NONE)
            model_param_init(row, seed, row->first, row->count, flat + row->offset);
    }
}

/* All rows of flat [total] in the format of Hugging Face. */
static inline gyre_status_t save_hf(const char *path, const model_params_t *params, const float *flat,
                                    model_hf_type_t type, size_t shard_bytes)
{
    model_hf_writer_t *w = NULL;
    gyre_status_t status = model_hf_create(path, params, type, shard_bytes, NULL, &w);
    for (size_t r = 0; status == GYRE_OK && r < params->rows; r++)
        status = model_hf_write(w, r, flat + params->row[r].offset);
    if (status != GYRE_OK) {
        model_hf_abandon(w);
        return status;
    }
    return model_hf_finish(w);
}

#endif
