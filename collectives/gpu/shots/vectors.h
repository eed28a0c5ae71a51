/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/gpu/shots/vectors.h: how blocks of the collectives' kernels reach memory: in vectors of 16
 * bytes where both ends allow it, by volatile accesses, which no L1 holds. For .cu files. */
#ifndef COLLECTIVES_GPU_SHOTS_VECTORS_H
#define COLLECTIVES_GPU_SHOTS_VECTORS_H

#include "base/device/kernel.h"

#ifdef GYRE_EMULATED
#define THREADS 32 /* each is a fiber */
#define APART   __attribute__((noinline))
#else
#define THREADS 512
#define APART   __noinline__ /* compiled once, not in every place that calls it */
#endif

enum { IN_FLIGHT = 8 }; /* loads of 16 bytes that a thread issues before it uses the first */

static __device__ __host__ __forceinline__ size_t least_of(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* One element at any address. */
template <typename V> static __device__ __forceinline__ V load_any(const char *from)
{
    V value;
    if ((size_t)from % sizeof(V) == 0)
        return *(const volatile V *)from;
    for (unsigned i = 0; i < sizeof(V); i++)
        ((volatile char *)&value)[i] = from[i];
    return value;
}

template <typename V> static __device__ __forceinline__ void store_any(char *to, V value)
{
    if ((size_t)to % sizeof(V) == 0)
        *(volatile V *)to = value;
    else
        for (unsigned i = 0; i < sizeof(V); i++)
            ((volatile char *)to)[i] = ((const char *)&value)[i];
}

#endif
