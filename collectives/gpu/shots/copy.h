/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/gpu/shots/copy.h: a block of threads copies; for .cu files. */
#ifndef COLLECTIVES_GPU_SHOTS_COPY_H
#define COLLECTIVES_GPU_SHOTS_COPY_H

#include "base/device/kernel.h"

enum { COLL_COPY_IN_FLIGHT = 8 }; /* vectors of 16 bytes that a thread loads before it stores the first */

template <typename V>
static __device__ __forceinline__ void coll_copy_as(char *to, const char *from, size_t bytes)
{
    for (size_t i = threadIdx.x; i < bytes / sizeof(V); i += blockDim.x)
        ((volatile V *)to)[i] = ((const volatile V *)from)[i];
}

/* to[0..bytes) = from, by the block, past L1: 16 bytes at a time where both ends allow it, else 4 or 1. */
static __device__ __forceinline__ void coll_copy_block(char *to, const char *from, size_t bytes)
{
    const size_t ends = (size_t)to | (size_t)from;
    if (ends % 16 == 0) {
        const size_t vectors = bytes / 16, step = blockDim.x;
        size_t i = threadIdx.x;
        for (; i + (COLL_COPY_IN_FLIGHT - 1) * step < vectors; i += COLL_COPY_IN_FLIGHT * step) {
            uint4 v[COLL_COPY_IN_FLIGHT];
#pragma unroll
            for (int j = 0; j < COLL_COPY_IN_FLIGHT; j++)
                v[j] = gyre_load16(from + 16 * (i + (size_t)j * step));
#pragma unroll
            for (int j = 0; j < COLL_COPY_IN_FLIGHT; j++)
                gyre_store16(to + 16 * (i + (size_t)j * step), v[j]);
        }
        for (; i < vectors; i += step)
            gyre_store16(to + 16 * i, gyre_load16(from + 16 * i));
        coll_copy_as<uint8_t>(to + vectors * 16, from + vectors * 16, bytes % 16);
    } else if (ends % 4 == 0) {
        coll_copy_as<uint32_t>(to, from, bytes);
        coll_copy_as<uint8_t>(to + bytes / 4 * 4, from + bytes / 4 * 4, bytes % 4);
    } else {
        coll_copy_as<uint8_t>(to, from, bytes);
    }
}

#endif
