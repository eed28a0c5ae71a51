/* SPDX-License-Identifier: Apache-2.0 */
/* model/gpu/layers/launch.h: for .cu files: launches a kernel template for the storage that a tensor has, and
 * returns errors. */
#ifndef MODEL_GPU_LAYERS_LAUNCH_H
#define MODEL_GPU_LAYERS_LAUNCH_H

extern "C" {
#include "base/error.h"
}
#include "base/device/kernel.h"
#include "model/gpu/products/matmul.h"

static inline gyre_status_t model_cuda_launched(cudaError_t rc, const char *kernel, dim3 grid, dim3 block)
{
    if (rc == cudaSuccess)
        return GYRE_OK;
    cudaGetLastError(); /* clears the runtime's error, which this call returns */
    return gyre_fail(GYRE_ERR_SYSTEM, "launching %s with %u x %u blocks of %u x %u threads: %s", kernel,
                     grid.x, grid.y, block.x, block.y, cudaGetErrorString(rc));
}

/* kernel<float> or kernel<uint16_t>. Blocks and threads may be numbers or dim3. A grid without blocks is
 * no launch. */
#define MODEL_LAUNCH_AS(type, kernel, grid, block, stream, ...)                                             \
    ((grid).x == 0 || (grid).y == 0 ? GYRE_OK                                                               \
     : (type) == MODEL_CUDA_BF16                                                                            \
         ? model_cuda_launched(GYRE_LAUNCH(kernel<uint16_t>, grid, block, 0, stream, __VA_ARGS__), #kernel, \
                               grid, block)                                                                 \
         : model_cuda_launched(GYRE_LAUNCH(kernel<float>, grid, block, 0, stream, __VA_ARGS__), #kernel,    \
                               grid, block))
#define MODEL_LAUNCH(type, kernel, blocks, threads, stream, ...) \
    MODEL_LAUNCH_AS(type, kernel, dim3((unsigned)(blocks)), dim3((unsigned)(threads)), stream, __VA_ARGS__)

#endif
