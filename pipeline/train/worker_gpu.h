/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/train/worker_gpu.h: what pipeline/train/worker.c hands on to the GPU (worker_gpu.c). */
#ifndef PIPELINE_TRAIN_WORKER_GPU_H
#define PIPELINE_TRAIN_WORKER_GPU_H

#include "pipeline/train/worker.h"

typedef struct pipe_gpu_stage pipe_gpu_stage_t; /* a stage, and its edges on the device */

gyre_status_t pipe_gpu_stage_create(const pipe_worker_config_t *config, pipe_gpu_stage_t **out);
void pipe_gpu_stage_destroy(pipe_gpu_stage_t *stage);
size_t pipe_gpu_stage_boundary(const pipe_gpu_stage_t *stage);
gyre_type_t pipe_gpu_stage_type(const pipe_gpu_stage_t *stage);
size_t pipe_gpu_stage_bytes(const pipe_gpu_stage_t *stage);
gyre_status_t pipe_gpu_stage_forward(pipe_gpu_stage_t *stage, size_t slot, size_t n,
                                     const model_sequence_t *sequence, const void *in, void *out,
                                     double *loss, size_t step);
gyre_status_t pipe_gpu_stage_backward(pipe_gpu_stage_t *stage, size_t slot, size_t n, float scale,
                                      const void *d_out, void *d_in);
gyre_status_t pipe_gpu_stage_backward_weight(pipe_gpu_stage_t *stage, size_t slot, size_t n);
void pipe_gpu_stage_watch(pipe_gpu_stage_t *stage, int watched);

#endif
