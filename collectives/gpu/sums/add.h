/* collectives/gpu/sums/add.h: how a block of threads adds up one part of every rank in the canonical tree
 * (collectives/schedules/canonical.h), and how it scales one part; for .cu files.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A thread loads IN_FLIGHT vectors of 16 bytes before it uses the first, as many of few ranks as of one
 * vector of many ranks. A type is one of the structs of arithmetic.h. */
#ifndef COLLECTIVES_GPU_SUMS_ADD_H
#define COLLECTIVES_GPU_SUMS_ADD_H

#include "collectives/gpu/sums/arithmetic.h"
#include "collectives/gpu/shots/peers.h"
#include "collectives/gpu/sums/types.h"
#include "collectives/gpu/shots/vectors.h"

/* to[0..bytes) = from times the operation's factor; `to` is a slot. */
template <typename T>
static __device__ APART void scale_range(char *to, const char *from, size_t bytes, double factor,
                                         uint64_t whole)
{
    typedef typename T::value V;
    for (size_t i = threadIdx.x; i < bytes / sizeof(V); i += blockDim.x)
        ((volatile V *)to)[i] = T::scale(load_any<V>(from + i * sizeof(V)), factor, whole);
}

/* Of up to 8 ranks from `first` on `width` (1, 2, 4 or 8) share v: v[m * width] becomes the sum of vector
 * i + m * blockDim.x of them, for each of 8 / width places m: few ranks, more vectors of each, always 8
 * loads before the first is used. The tree is the complete one over `width` leaves without those that are
 * missing on the right; that is the canonical one, as its nodes are aligned blocks of ranks. Which
 * registers meet is known when it is compiled, whether they do is the same for all threads. */
template <typename T, typename O>
static __device__ __forceinline__ void add_eight(const coll_cuda_op_t &op, char *const *sources,
                                                 const coll_order_t &order, int first, int width, size_t at,
                                                 size_t i, size_t vectors, uint4 v[IN_FLIGHT])
{
    const int k = op.n - first;
#pragma unroll
    for (int j = 0; j < IN_FLIGHT; j++) {
        const int leaf = j & (width - 1);
        const size_t vector = i + (size_t)((unsigned)(j - leaf) / (unsigned)width) * blockDim.x;
        v[j] = leaf < k && vector < vectors ? gyre_load16(sources[first + leaf] + at + 16 * vector)
                                            : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int s = 1; s < IN_FLIGHT; s *= 2)
#pragma unroll
        for (int j = 0; j + s < IN_FLIGHT; j += 2 * s)
            if (s < width && (j & (width - 1)) + s < k)
                v[j] = coll_join<T, O>(v[j], v[j + s], order);
}

/* More than 8 ranks: groups of 8 carry into each other like the digits of a binary counter; what is left
 * are the left parts of the tree's right spine, which join from the right. */
template <typename T, typename O>
static __device__ __forceinline__ void add_all(const coll_cuda_op_t &op, char *const *sources,
                                               const coll_order_t &order, int width, size_t at, size_t i,
                                               size_t vectors, uint4 v[IN_FLIGHT])
{
    uint4 digit[3];
    const int groups = (op.n + 7) / 8; /* at most 8 */
    int have = 0;                      /* bit i: digit[i] is in use */
#pragma unroll 1
    for (int g = 0;; g++) {
        add_eight<T, O>(op, sources, order, g * 8, width, at, i, vectors, v);
        int last = g + 1 == groups;
#pragma unroll
        for (int d = 0; d < 3; d++) { /* carries over all digits at the end, over those in a row before */
            if (have >> d & 1) {
                v[0] = coll_join<T, O>(digit[d], v[0], order);
                have &= ~(1 << d);
            } else if (!last) {
                digit[d] = v[0];
                have |= 1 << d;
                break;
            }
        }
        if (last)
            return;
    }
}

/* Integers of an average, by the thread that wrote them. */
template <typename T>
static __device__ APART void divide_range(const coll_cuda_op_t &op, char *to, size_t bytes)
{
    typedef typename T::value V;
    for (size_t i = threadIdx.x; i < (bytes + 15) / 16; i += blockDim.x)
        for (size_t at = 16 * i; at < 16 * i + 16 && at < bytes; at += sizeof(V))
            store_any<V>(to + at, T::divide(load_any<V>(to + at), op.sign, op.divisor));
}

/* Vector i of a result of `bytes` goes to its place, which may have any alignment. */
template <typename T>
static __device__ __forceinline__ void store_vector(char *to, size_t i, size_t bytes, coll_vector<T> v)
{
    typedef typename T::value V;
    const size_t rest = bytes - 16 * i;
    if ((size_t)to % 16 == 0 && rest >= 16) {
        gyre_store16(to + 16 * i, v.whole);
    } else {
        for (unsigned j = 0; j < 16 / sizeof(V) && j * sizeof(V) < rest; j++)
            store_any<V>(to + 16 * i + j * sizeof(V), v.each[j]);
    }
}

/* The same of a sum, which may be that of an average. */
template <typename T>
static __device__ __forceinline__ void store_sum(const coll_cuda_op_t &op, char *to, size_t i, size_t bytes,
                                                 uint4 sum)
{
    typedef typename T::value V;
    coll_vector<T> v;
    v.whole = sum;
    if (T::is_float && op.average)
#pragma unroll
        for (unsigned j = 0; j < 16 / sizeof(V); j++)
            v.each[j] = T::divide(v.each[j], op.sign, op.divisor);
    store_vector<T>(to, i, bytes, v);
}

/* to[0..bytes) = the sum of what lies at sources[rank] + at. Sources are aligned, and vectors may be
 * loaded whole to the end, as of slots; `to` is the user's and may have any alignment. */
template <typename T, typename O>
static __device__ APART void add_range(const coll_cuda_op_t &op, char *const *sources, char *to, size_t at,
                                       size_t bytes)
{
    const coll_order_t order = {op.sign, op.redop == GYRE_MAX};
    const int width = op.n > 4 ? 8 : op.n > 2 ? 4 : op.n;
    const size_t vectors = (bytes + 15) / 16, step = blockDim.x;
    for (size_t i = threadIdx.x; i < vectors; i += step * (IN_FLIGHT / (unsigned)width)) {
        uint4 v[IN_FLIGHT];
        add_all<T, O>(op, sources, order, width, at, i, vectors, v);
#pragma unroll
        for (int j = 0; j < IN_FLIGHT; j++) {
            const size_t vector = i + (size_t)((unsigned)j / (unsigned)width) * step;
            if ((j & (width - 1)) == 0 && vector < vectors)
                store_sum<T>(op, to, vector, bytes, v[j]);
        }
    }
}

/* to[0..bytes) = what the operation makes of elements of type T at sources[rank] + at; as add_range. */
template <typename T>
static __device__ __forceinline__ void add_sources(const coll_cuda_op_t &op, char *const *sources, char *to,
                                                   size_t at, size_t bytes)
{
    switch ((gyre_redop_kind_t)op.redop) {
#define REDOP(id, name, kernels, device)                            \
    case GYRE_##id:                                                 \
        add_range<T, coll_do_##device>(op, sources, to, at, bytes); \
        break;
#define REDOP_HOST(id, name, rows, of)                     \
    case GYRE_##id: /* coll_cuda_can_add has refused it */ \
        break;
#include "base/redops.def"
#undef REDOP
    case GYRE_REDOP_USER:
    case GYRE_REDOP_NONE:
        break;
    }
    if (!T::is_float && op.average)
        divide_range<T>(op, to, bytes);
}

#endif
