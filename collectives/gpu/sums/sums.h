/* collectives/gpu/sums/sums.h: the kernels that add elements of one type; for .cu files of one line each
 * (sum_NAME.cu), so that they are compiled apart.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef COLLECTIVES_GPU_SUMS_SUMS_H
#define COLLECTIVES_GPU_SUMS_SUMS_H

#include "collectives/gpu/ll/kernel.h"
#include "collectives/gpu/sums/add.h"
#include "collectives/gpu/sums/kernels.h"
#include "collectives/gpu/shots/rounds.h"

/* What the kernel of rounds.h adds. */
template <typename T> struct coll_sums {
    enum { adds = 1 };
    static __device__ __forceinline__ void scale(const coll_cuda_op_t &op, char *to, const char *from,
                                                 size_t bytes)
    {
        scale_range<T>(to, from, bytes, op.scale, op.whole);
    }
    static __device__ __forceinline__ void add_up(const coll_cuda_op_t &op, char *const *sources, char *to,
                                                  size_t at, size_t bytes)
    {
        add_sources<T>(op, sources, to, at, bytes);
    }
};

/* What the kernel of ll/kernel.h adds: the elements of 8 bytes. */
template <typename T> struct coll_ll_sums {
    enum { adds = 1 };
    typedef typename T::value V;
    union line_t {
        uint2 whole;
        V each[COLL_LL_DATA / sizeof(V)];
    };
    template <typename O>
    static __device__ __forceinline__ uint2 join_by(const coll_order_t &order, line_t a, line_t b)
    {
#pragma unroll
        for (unsigned i = 0; i < COLL_LL_DATA / sizeof(V); i++)
            a.each[i] = O::template one<T>(a.each[i], b.each[i], order);
        return a.whole;
    }
    static __device__ __forceinline__ uint2 join(const coll_cuda_ll_t &p, uint2 a, uint2 b)
    {
        const coll_order_t order = {p.sign, p.redop == GYRE_MAX};
        const line_t x = {a}, y = {b};
        return p.does == COLL_LL_sum    ? join_by<coll_do_sum>(order, x, y)
               : p.does == COLL_LL_prod ? join_by<coll_do_prod>(order, x, y)
                                        : join_by<coll_do_first>(order, x, y);
    }
    static __device__ __forceinline__ uint2 scale(const coll_cuda_ll_t &p, uint2 a)
    {
        line_t x = {a};
#pragma unroll
        for (unsigned i = 0; i < COLL_LL_DATA / sizeof(V); i++)
            x.each[i] = T::scale(x.each[i], p.scale, p.whole);
        return x.whole;
    }
    static __device__ __forceinline__ uint2 finish(const coll_cuda_ll_t &p, uint2 a)
    {
        line_t x = {a};
        if (p.average)
#pragma unroll
            for (unsigned i = 0; i < COLL_LL_DATA / sizeof(V); i++)
                x.each[i] = T::divide(x.each[i], p.sign, p.divisor);
        return x.whole;
    }
};

/* The bytes [*from, + the result) of `bytes` are this block's, in whole vectors. */
static __device__ __forceinline__ size_t share(size_t bytes, size_t *from)
{
    const size_t each = (bytes / 16 / gridDim.x + 1) * 16;
    *from = least_of(bytes, blockIdx.x * each);
    return least_of(bytes - *from, each);
}

/* Adds up slots that came over a network; rounds.h says what A is. Grid: as many blocks of THREADS as the
 * host chooses. */
template <typename A>
static __global__ void __launch_bounds__(THREADS) add_kernel(const __grid_constant__ coll_cuda_op_t given)
{
    __shared__ coll_cuda_op_t op;
    size_t from;
    for (unsigned i = threadIdx.x; i < sizeof op / sizeof(uint32_t); i += blockDim.x)
        ((uint32_t *)&op)[i] = ((const uint32_t *)&given)[i];
    __syncthreads();
    const size_t bytes = share(op.sum_bytes, &from);
    if (bytes)
        A::add_up(op, op.arena, op.sum_to + from, from, bytes);
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    scale_kernel(const __grid_constant__ coll_cuda_op_t op, size_t all)
{
    size_t from;
    const size_t bytes = share(all, &from);
    if (bytes)
        scale_range<T>(op.out + from, op.in + from, bytes, op.scale, op.whole);
}

template <typename T> static cudaError_t load_sums(void)
{
    cudaError_t rc = gyre_load(rounds_kernel<coll_sums<T>>);
    if (rc == cudaSuccess)
        rc = gyre_load(add_kernel<coll_sums<T>>);
    if (rc == cudaSuccess)
        rc = gyre_load(ll_kernel<coll_ll_sums<T>>);
    return rc == cudaSuccess ? gyre_load(scale_kernel<T>) : rc;
}

template <typename A> static cudaError_t launch_add(const coll_cuda_op_t *op, int blocks, cudaStream_t stream)
{
    return GYRE_LAUNCH(add_kernel<A>, dim3((unsigned)blocks), dim3(THREADS), 0, stream, *op);
}

template <typename T>
static cudaError_t launch_scale(const coll_cuda_op_t *op, size_t bytes, int blocks, cudaStream_t stream)
{
    return GYRE_LAUNCH(scale_kernel<T>, dim3((unsigned)blocks), dim3(THREADS), 0, stream, *op, bytes);
}

/* The kernels of coll_NAME (arithmetic.h). */
#define COLL_CUDA_SUMS(name)                                                                 \
    const coll_cuda_kernels_t coll_cuda_sum_##name = {load_sums<coll_##name>,                \
                                                      held_rounds<coll_sums<coll_##name>>,   \
                                                      launch_rounds<coll_sums<coll_##name>>, \
                                                      launch_add<coll_sums<coll_##name>>,    \
                                                      launch_scale<coll_##name>,             \
                                                      launch_ll<coll_ll_sums<coll_##name>>};

#endif
