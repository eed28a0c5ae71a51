/* SPDX-License-Identifier: Apache-2.0 */
/* model/gpu/attention/kernels.h: the kernels of mma.cu and f32.cu, for launch.c, which checks arguments. */
#ifndef MODEL_GPU_ATTENTION_KERNELS_H
#define MODEL_GPU_ATTENTION_KERNELS_H

#include <driver_types.h>

#include "model/gpu/attention/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Arguments are checked, T is at least 1. */
cudaError_t model_cuda_attention_forward_launch(const model_cuda_attention_t *attention, cudaStream_t stream);
/* bytes of shared memory that a block of backward takes, at most */
size_t model_cuda_attention_backward_shared(model_cuda_type_t type, size_t head_dim);
cudaError_t model_cuda_attention_backward_launch(const model_cuda_attention_t *attention,
                                                 cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
