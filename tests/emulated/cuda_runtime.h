/* SPDX-License-Identifier: Apache-2.0 */
/* tests/emulated/cuda_runtime.h: what .cu files include that know nothing of the emulator (gyre/device.cuh,
 * examples): CUDA's language, and a launch by its arguments' addresses, instead of <<<...>>>. */
#ifndef EMULATED_CUDA_RUNTIME_H
#define EMULATED_CUDA_RUNTIME_H

#include "emulated.h"

template <typename... P, size_t... I>
static inline cudaError_t emulated_launch_listed(void (*kernel)(P...), dim3 grid, dim3 block,
                                                 void **arguments, size_t bytes, cudaStream_t stream,
                                                 std::index_sequence<I...>)
{
    return gyre_launch("cudaLaunchKernel", kernel, grid, block, bytes, stream, *(P *)arguments[I]...);
}

template <typename... P>
static inline cudaError_t cudaLaunchKernel(void (*kernel)(P...), dim3 grid, dim3 block, void **arguments,
                                           size_t bytes, cudaStream_t stream)
{
    return emulated_launch_listed(kernel, grid, block, arguments, bytes, stream,
                                  std::index_sequence_for<P...>());
}

#endif
