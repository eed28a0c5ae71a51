/* SPDX-License-Identifier: Apache-2.0 */
/* optim/gpu/kernels.cu: the optimiser's loops as kernels, and their launchers (kernels.h).
 *
 * Element by element everywhere, or sums of integers: no grid, block or order of execution can change a bit.
 * Compiled without contraction; division and square root are IEEE's, as on the host. */
#include "base/device/kernel.h"
#include "base/hash.h"
#include "optim/gpu/kernels.h"

#include "collectives/kernels/float16.h"

static const unsigned THREADS = 256, MOST_BLOCKS = 1024;

static dim3 grid_for(size_t n, size_t per_block, size_t spans)
{
    const size_t blocks = (n + per_block - 1) / per_block;
    return dim3((unsigned)(blocks < 1 ? 1 : blocks > MOST_BLOCKS ? MOST_BLOCKS : blocks), (unsigned)spans);
}

static __device__ __forceinline__ float widen(const float *from, size_t i, int)
{
    return from[i];
}
static __device__ __forceinline__ float widen(const uint16_t *from, size_t i, int type)
{
    return type == OPTIM_CUDA_BFLOAT16 ? kernel_from_bfloat(from[i]) : kernel_from_half(from[i]);
}
static __device__ __forceinline__ uint16_t narrow(float x, int type)
{
    return type == OPTIM_CUDA_BFLOAT16 ? kernel_to_bfloat(x) : kernel_to_half(x);
}
static __device__ __forceinline__ float rounded(float x, int type)
{
    return type == OPTIM_CUDA_BFLOAT16  ? kernel_round_bfloat(x)
           : type == OPTIM_CUDA_FLOAT16 ? kernel_from_half(kernel_to_half(x))
                                        : x;
}

/* grid: (any, spans), block: 256. G: how gradients are held. */
template <typename G>
static __global__ void __launch_bounds__(THREADS)
    adamw(const optim_cuda_span_t *list, int type, int store, const optim_adamw_factors_t k)
{
    const optim_cuda_span_t span = list[blockIdx.y];
    const float keep = k.keep[span.decay != 0];
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < span.n;
         i += (size_t)gridDim.x * THREADS) {
        const float g = widen((const G *)span.grad, i, type) * k.scale;
        const float m = k.b1 * span.m[i] + k.c1 * g;
        const float v = k.b2 * span.v[i] + k.c2 * (g * g);
        const float w = span.w[i] * keep - k.step * (m / (sqrtf(v) * k.inverse_root + k.epsilon));
        span.m[i] = m;
        span.v[i] = v;
        span.w[i] = w;
        if (span.rounded != NULL)
            span.rounded[i] = narrow(w, store);
    }
}

/* limb[0 ..] += value 2^bit in pieces of 32 bits, which are added up with room above. */
static __device__ __forceinline__ void put_bin(unsigned long long *limb, unsigned bit, uint64_t value)
{
    const unsigned at = bit / 32, shift = bit % 32;
    const uint64_t low = value << shift, high = value >> 1 >> (63 - shift);
    atomicAdd(&limb[at], (unsigned long long)(uint32_t)low);
    atomicAdd(&limb[at + 1], (unsigned long long)(low >> 32));
    if (high != 0)
        atomicAdd(&limb[at + 2], (unsigned long long)high);
}

/* The same of a whole warp: each lane has high 2^64 + low, and all the same bit. One lane writes the sums. */
static __device__ __forceinline__ void put_warp(unsigned long long *limb, unsigned bit, uint64_t low,
                                                uint64_t high)
{
    const unsigned at = bit / 32, shift = bit % 32;
    const uint64_t down = low << shift, middle = high << shift | low >> 1 >> (63 - shift);
    unsigned long long piece[5] = {(uint32_t)down, down >> 32, (uint32_t)middle, middle >> 32,
                                   high >> 1 >> (63 - shift)};
#pragma unroll
    for (int i = 0; i < 5; i++) {
        for (int by = 16; by > 0; by /= 2)
            piece[i] += __shfl_down_sync(0xffffffffu, piece[i], by);
        if (threadIdx.x % 32 == 0 && piece[i] != 0)
            atomicAdd(&limb[at + i], piece[i]);
    }
}

enum { EXACT_BINS = 256 /* one per exponent of a float */ };

/* Squares of 48 bits times 4^exponent, added up as integers, so in any order (R. M. Neal, "Fast exact
 * summation using small and large superaccumulators", 2015). Each thread has a number of 128 bits for 32
 * exponents around those of the first values that its warp sees; the few values beyond go to a bin by
 * exponent in shared memory. A bin holds 2^16 squares, so a block stops for deposits before it has seen more;
 * a thread's number has room for 2^18. grid: (any, spans), block: 256, dynamic shared memory:
 * [EXACT_BINS + OPTIM_EXACT_LIMBS] uint64. */
template <typename G>
static __global__ void __launch_bounds__(THREADS)
    exact(const optim_cuda_values_t *list, int type, uint64_t *word)
{
    enum {
        ROUNDS = 65536 / 256,
        BELOW = 20, /* exponents below the largest of the first values */
        LOADS = 4   /* of a thread under way */
    };
    GYRE_DYNAMIC_SHARED(unsigned long long, bins);
    unsigned long long *const limb = bins + EXACT_BINS;
    const optim_cuda_values_t span = list[blockIdx.y];
    const size_t stride = (size_t)gridDim.x * THREADS;
    unsigned special = 0;
    if ((size_t)blockIdx.x * THREADS >= span.n)
        return;
    for (int i = threadIdx.x; i < OPTIM_EXACT_LIMBS; i += THREADS)
        limb[i] = 0;
    for (size_t begin = (size_t)blockIdx.x * THREADS; begin < span.n; begin += ROUNDS * stride) {
        uint64_t low = 0, high = 0;
        unsigned base = 0; /* the lowest exponent of `low`; 0: the warp has seen nothing but zeros */
        bins[threadIdx.x] = 0;
        __syncthreads();
        for (int round = 0; round < ROUNDS; round += LOADS) {
            const size_t first = begin + (size_t)round * stride + threadIdx.x;
            float value[LOADS];
            if (first - threadIdx.x % 32 >= span.n) /* nothing for the whole warp */
                break;
#pragma unroll
            for (int k = 0; k < LOADS; k++)
                value[k] = first + k * stride < span.n ? widen((const G *)span.data, first + k * stride, type)
                                                       : 0.0f;
#pragma unroll
            for (int k = 0; k < LOADS; k++) {
                const uint32_t bits = kernel_bits(value[k]);
                const uint32_t raw = bits >> 23 & 0xffu, e = raw > 0 ? raw : 1;
                const uint32_t m = (bits & 0x7fffffu) | (raw > 0 ? 0x800000u : 0);
                const int counts = raw != 0xffu && m != 0;
                if (base == 0) {
                    const unsigned most = __reduce_max_sync(0xffffffffu, counts ? e : 0u);
                    base = most > BELOW ? most - BELOW : most > 0;
                }
                if (raw == 0xffu)
                    special++;
                if (!counts)
                    continue;
                const uint64_t square = (uint64_t)m * m;
                const unsigned up = 2 * (e - base); /* below the base: a huge one */
                if (up < 64) {
                    const uint64_t part = square << up;
                    low += part;
                    high += (square >> 1 >> (63 - up)) + (low < part);
                } else {
                    atomicAdd(&bins[raw], (unsigned long long)square);
                }
            }
        }
        if (base > 0)
            put_warp(limb, 2 * base - 2, low, high);
        __syncthreads();
        if (bins[threadIdx.x] != 0)
            put_bin(limb, threadIdx.x > 0 ? 2 * threadIdx.x - 2 : 0, bins[threadIdx.x]);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < OPTIM_EXACT_LIMBS; i += THREADS)
        if (limb[i] != 0)
            atomicAdd((unsigned long long *)&word[i], limb[i]);
    if (special > 0)
        atomicAdd((unsigned long long *)&word[OPTIM_EXACT_LIMBS], (unsigned long long)special);
}

/* grid: (any, spans), block: 256 */
static __global__ void __launch_bounds__(THREADS)
    hash(const optim_cuda_hashed_t *list, size_t part, size_t parts, uint64_t *word)
{
    const optim_cuda_hashed_t span = list[blockIdx.y];
    const size_t n = span.bytes / 2, each = (n + parts - 1) / parts;
    const size_t lo = !span.sliced ? 0 : part * each < n ? part * each : n;
    const size_t hi = !span.sliced ? n : lo + each < n ? lo + each : n;
    const uint16_t *const data = (const uint16_t *)span.data;
    unsigned long long sum = 0;
    for (size_t i = lo + (size_t)blockIdx.x * THREADS + threadIdx.x; i < hi; i += (size_t)gridDim.x * THREADS)
        sum += base_mix64(span.salt + i * 0x9e3779b97f4a7c15u + base_mix64(data[i] + 1u));
    for (int by = 16; by > 0; by /= 2)
        sum += __shfl_down_sync(0xffffffffu, sum, by);
    if (threadIdx.x % 32 == 0)
        atomicAdd((unsigned long long *)&word[span.word], sum);
}

typedef struct {
    float *at[OPTIM_CUDA_LEVELS];
} levels_t;

/* grid: any, block: 256 */
static __global__ void __launch_bounds__(THREADS)
    join(float *value, const levels_t left, int joins, int keep, int type, size_t n)
{
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += (size_t)gridDim.x * THREADS) {
        float x = rounded(value[i], type);
        for (int j = 0; j < joins; j++)
            x = rounded(left.at[j][i] + x, type);
        if (keep && joins > 0)
            left.at[joins - 1][i] = x;
        else
            value[i] = x;
    }
}

static __global__ void __launch_bounds__(THREADS) add(void *sum, const void *other, int type, size_t n)
{
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += (size_t)gridDim.x * THREADS)
        if (type == OPTIM_CUDA_FLOAT32)
            ((float *)sum)[i] = ((const float *)other)[i] + ((float *)sum)[i];
        else
            ((uint16_t *)sum)[i] =
                narrow(widen((const uint16_t *)other, i, type) + widen((const uint16_t *)sum, i, type), type);
}

static __global__ void __launch_bounds__(THREADS)
    round_all(int type, const float *from, uint16_t *to, size_t n)
{
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += (size_t)gridDim.x * THREADS)
        to[i] = narrow(from[i], type);
}

static __global__ void __launch_bounds__(THREADS) nothing(int type, void *data, size_t n)
{
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += (size_t)gridDim.x * THREADS)
        if (type == OPTIM_CUDA_FLOAT32)
            ((float *)data)[i] = -0.0f;
        else
            ((uint16_t *)data)[i] = 0x8000u;
}

cudaError_t optim_cuda_adamw(const optim_cuda_span_t *span, size_t spans, size_t longest,
                             optim_cuda_type_t grad, optim_cuda_type_t store,
                             const optim_adamw_factors_t *factors, cudaStream_t stream)
{
    if (spans == 0)
        return cudaSuccess;
    const dim3 grid = grid_for(longest, 4 * THREADS, spans);
    return grad == OPTIM_CUDA_FLOAT32
               ? GYRE_LAUNCH(adamw<float>, grid, THREADS, 0, stream, span, grad, store, *factors)
               : GYRE_LAUNCH(adamw<uint16_t>, grid, THREADS, 0, stream, span, grad, store, *factors);
}

cudaError_t optim_cuda_exact(const optim_cuda_values_t *list, size_t spans, size_t longest,
                             optim_cuda_type_t type, uint64_t *word, cudaStream_t stream)
{
    const size_t bytes = (EXACT_BINS + OPTIM_EXACT_LIMBS) * sizeof(uint64_t);
    if (spans == 0)
        return cudaSuccess;
    const dim3 grid = grid_for(longest, 64 * THREADS, spans);
    return type == OPTIM_CUDA_FLOAT32
               ? GYRE_LAUNCH(exact<float>, grid, THREADS, bytes, stream, list, type, word)
               : GYRE_LAUNCH(exact<uint16_t>, grid, THREADS, bytes, stream, list, type, word);
}

cudaError_t optim_cuda_hash(const optim_cuda_hashed_t *list, size_t spans, size_t longest_bytes, size_t part,
                            size_t parts, uint64_t *word, cudaStream_t stream)
{
    if (spans == 0)
        return cudaSuccess;
    return GYRE_LAUNCH(hash, grid_for(longest_bytes / 2, 16 * THREADS, spans), THREADS, 0, stream, list, part,
                       parts, word);
}

cudaError_t optim_cuda_join(float *value, float *const *left, size_t joins, int keep, optim_cuda_type_t type,
                            size_t n, cudaStream_t stream)
{
    levels_t levels = {};
    if (n == 0 || (joins == 0 && type == OPTIM_CUDA_FLOAT32))
        return cudaSuccess;
    if (joins > OPTIM_CUDA_LEVELS)
        return cudaErrorInvalidValue;
    for (size_t j = 0; j < joins; j++)
        levels.at[j] = left[j];
    return GYRE_LAUNCH(join, grid_for(n, 4 * THREADS, 1), THREADS, 0, stream, value, levels, (int)joins, keep,
                       type, n);
}

cudaError_t optim_cuda_add(void *sum, const void *other, optim_cuda_type_t type, size_t n,
                           cudaStream_t stream)
{
    if (n == 0)
        return cudaSuccess;
    return GYRE_LAUNCH(add, grid_for(n, 4 * THREADS, 1), THREADS, 0, stream, sum, other, type, n);
}

cudaError_t optim_cuda_round(optim_cuda_type_t type, const float *from, uint16_t *to, size_t n,
                             cudaStream_t stream)
{
    if (n == 0)
        return cudaSuccess;
    return GYRE_LAUNCH(round_all, grid_for(n, 4 * THREADS, 1), THREADS, 0, stream, type, from, to, n);
}

cudaError_t optim_cuda_nothing(optim_cuda_type_t type, void *data, size_t n, cudaStream_t stream)
{
    if (n == 0)
        return cudaSuccess;
    return GYRE_LAUNCH(nothing, grid_for(n, 4 * THREADS, 1), THREADS, 0, stream, type, data, n);
}
