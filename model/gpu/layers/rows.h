/* SPDX-License-Identifier: Apache-2.0 */
/* model/gpu/layers/rows.h: for .cu files: rows of a block in shared memory.
 *
 * Elements are loaded and stored 16 bytes at a time, eight channels of a thread side by side. Sums of a row
 * keep the host's 16 lanes, so rows wait in shared memory, where half a warp reads one lane by lane. */
#ifndef MODEL_GPU_LAYERS_ROWS_H
#define MODEL_GPU_LAYERS_ROWS_H

#include "model/gpu/layers/wide.h"
#include "model/gpu/products/matmul.h"

enum { WARP = 32, EACH = 8 /* channels of a thread */ };

/* Elements between rows in shared memory: lanes of neighbouring rows are in different banks. */
static inline size_t pitch_of(size_t channels)
{
    return (channels + 63) / 64 * 64 + MODEL_LANES;
}

static inline size_t bytes_of(model_cuda_type_t type)
{
    return type == MODEL_CUDA_BF16 ? sizeof(uint16_t) : sizeof(float);
}

#endif
