/* SPDX-License-Identifier: Apache-2.0 */
/* tests/gpu/memory.h: arrays of cmocka tests on the device and back. */
#ifndef TESTS_GPU_MEMORY_H
#define TESTS_GPU_MEMORY_H

#include "tests/gpu/gpu.h"

/* A copy in the device's memory, which is the caller's to free; from NULL: as it is. */
static inline void *to_device(const void *from, size_t bytes)
{
    void *memory = NULL;
    assert_cuda(cudaMalloc(&memory, bytes));
    if (from)
        assert_cuda(cudaMemcpy(memory, from, bytes, cudaMemcpyHostToDevice));
    return memory;
}

/* What lies there when `stream` has come to its end; the device's memory is freed. */
static inline void from_device(void *to, void *memory, size_t bytes, cudaStream_t stream)
{
    assert_cuda(cudaStreamSynchronize(stream));
    assert_cuda(cudaMemcpy(to, memory, bytes, cudaMemcpyDeviceToHost));
    assert_cuda(cudaFree(memory));
}

#endif
