/* SPDX-License-Identifier: Apache-2.0 */
/* model/gpu/attention/kernels.h: the kernels of mma.cu, wgmma.cu and f32.cu, for launch.c, which checks
 * arguments. */
#ifndef MODEL_GPU_ATTENTION_KERNELS_H
#define MODEL_GPU_ATTENTION_KERNELS_H

#include <driver_types.h>

#include "model/gpu/attention/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether this build has wgmma.cu's kernels: CUDA_ARCHES names 90. */
int model_cuda_attention_wgmma_built(void);
/* Arguments are checked, T is at least 1. wgmma: by the kernels of wgmma.cu: bf16, heads of up to 64 or of 97
 * to 128 channels, compute capability 9.0. */
cudaError_t model_cuda_attention_forward_launch(const model_cuda_attention_t *attention, int wgmma,
                                                cudaStream_t stream);
/* bytes of shared memory that a block of backward takes, at most */
size_t model_cuda_attention_backward_shared(model_cuda_type_t type, size_t head_dim);
cudaError_t model_cuda_attention_backward_launch(const model_cuda_attention_t *attention, int wgmma,
                                                 cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
