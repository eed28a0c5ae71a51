/* SPDX-License-Identifier: Apache-2.0 */
/* model/gpu/stage/store.h: the source of the weights of a stage on the GPU and the destination of their
 * gradients: model_store_t of model/network/stage/stage.h with device memory, in the order of one stream.
 *
 * acquire: value[i] -> row first + i as [count] of the stage's storage (float, or bfloat16), in device
 * memory, for everything that is enqueued on the stream until release. Enqueued work may still read the
 * memory after that, so the memory is used again later in the stream. Called in the order of use, once per
 * micro-batch, unit of rows and pass.
 *
 * place: grad[i] -> [count] floats in device memory, overwritten by work that is enqueued on the stream until
 * `ready` of the same rows. A unit's rows are placed and ready once per sequence (or per
 * config.grad_sequences, under the slot of the first), one after the other, then those of the next unit. */
#ifndef MODEL_GPU_STAGE_STORE_H
#define MODEL_GPU_STAGE_STORE_H

#include "model/network/stage/stage.h"

typedef struct {
    gyre_status_t (*acquire)(void *user, size_t first, size_t rows, size_t next_first, size_t next_rows,
                             const void **value);
    void (*release)(void *user, size_t first, size_t rows);
    gyre_status_t (*place)(void *user, size_t slot, size_t first, size_t rows, float **grad);
    model_rows_fn ready;
    void *user;
} model_cuda_store_t;

#endif
