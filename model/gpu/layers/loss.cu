/* SPDX-License-Identifier: Apache-2.0 */
/* model/gpu/layers/loss.cu: cross-entropy over a vocabulary that is cut into leaves. Compiled without
 * contraction.
 *
 * A block has a position, and goes once over its logits for the largest and the sum of exponentials (Milakov
 * and Gimelshein 2018, "Online normalizer calculation for softmax"), and once more for their gradient, which
 * it writes over them. Pieces of 16 bytes belong to threads: piece c of a leaf to thread c % threads, in both
 * passes. So what a thread reads again is its own, no thread overwrites what another one still reads, and a
 * row waits in shared memory for the second pass without a barrier. What shared memory cannot hold is read
 * twice.
 *
 * A leaf's sum: a thread adds the exponentials of a piece one after another, under the largest of all its
 * pieces so far; then threads meet in a tree. That order depends on the leaf's width alone, so bits are the
 * same for leaves on one rank and on several, and whatever shared memory holds. */
#include "model/gpu/layers/launch.h"
#include "model/gpu/layers/vocabulary.h"
#include "model/gpu/layers/wide.h"

enum { THREADS = 512, ROW_THREADS = 256, WARP = 32, PIECE = 16 /* bytes */ };

/* What a launch of loss_rows does: fills leaf and max, fills pair from them, writes the gradient. */
enum { SUMS = 1, PAIR = 2, BACK = 4 };

/* Tokens of leaf `leaf` of those here: the last ones of the model may be padding. */
static __device__ __forceinline__ size_t leaf_tokens(const model_cuda_loss_t &p, size_t leaf)
{
    size_t begin = (p.first + leaf) * p.width, left = begin >= p.vocab ? 0 : p.vocab - begin;
    return left < p.width ? left : p.width;
}

/* e^x for x <= 0: the host's bits for logits in fp32, and two instructions for those in bf16. */
static __device__ __forceinline__ float exp_of(const float *, float x)
{
    return exp_one_f32(x);
}

static __device__ __forceinline__ float exp_of(const uint16_t *, float x)
{
    return power_2(x * LOG2E);
}

/* The largest and the sum of e^(x - largest) of two disjoint parts; -inf and 0: nothing. */
template <typename S>
static __device__ __forceinline__ void merge(float *max, float *sum, float other_max, float other_sum)
{
    float m = *max > other_max ? *max : other_max;
    float a = *max < m ? *sum * exp_of((const S *)0, *max - m) : *sum,
          b = other_max < m ? other_sum * exp_of((const S *)0, other_max - m) : other_sum;
    *max = m;
    *sum = a + b;
}

/* Joins what the lanes of a warp have; every lane gets the result. */
template <typename S> static __device__ __forceinline__ void merge_warp(float *max, float *sum)
{
#pragma unroll
    for (int apart = WARP / 2; apart > 0; apart /= 2) {
        float m = __shfl_xor_sync(0xffffffffu, *max, apart), s = __shfl_xor_sync(0xffffffffu, *sum, apart);
        merge<S>(max, sum, m, s);
    }
}

/* Piece c of a leaf x, the first `kept` pieces of which are held in shared memory. */
template <int E, typename S>
static __device__ __forceinline__ void load_piece(float (&v)[E], const S *held, const S *x, unsigned c,
                                                  unsigned kept)
{
    if (c < kept)
        load_some(v, held + c * E);
    else
        load_some(v, x + (size_t)c * E);
}

/* Of `kept` pieces of a row those that are a leaf's, whose first one is number `first`. */
static __device__ __forceinline__ unsigned kept_of(unsigned kept, unsigned first, unsigned pieces)
{
    unsigned left = kept > first ? kept - first : 0;
    return left < pieces ? left : pieces;
}

/* One more piece, of `left` logits if they are fewer than E: a NaN makes the sum one. No exponent is
 * positive. */
template <typename S, int E>
static __device__ __forceinline__ void take_piece(float *max, float *sum, float (&v)[E], unsigned left)
{
    const S *type = 0;
    if (left < E)
#pragma unroll
        for (int k = 0; k < E; k++)
            v[k] = (unsigned)k < left ? v[k] : -INFINITY;
    float top = v[0];
#pragma unroll
    for (int k = 1; k < E; k++)
        top = fmaxf(top, v[k]);
    if (top > *max) {
        *sum = *sum * exp_of(type, *max - top);
        *max = top;
    }
#pragma unroll
    for (int k = 0; k < E; k++)
        *sum = *sum + exp_of(type, v[k] - *max);
}

/* Writes the gradient of a piece v of `left` tokens to d; the target is `target` places after its first. */
template <int E, typename S>
static __device__ __forceinline__ void turn_piece(S *d, float (&v)[E], unsigned left, unsigned target,
                                                  float max, float factor, float each)
{
#pragma unroll
    for (int k = 0; k < E; k++)
        v[k] = exp_of(d, v[k] - max) * factor;
    if (left < E)
#pragma unroll
        for (int k = 0; k < E; k++)
            v[k] = (unsigned)k < left ? v[k] : 0.0f;
    if (target < E)
#pragma unroll
        for (int k = 0; k < E; k++)
            v[k] = (unsigned)k == target ? v[k] - each : v[k];
    store_some(d, v);
}

/* The sums of the row's leaves, brought to the whole vocabulary's maximum, in the tree; and the target's
 * logit. */
template <typename S> static __device__ __forceinline__ void put_pair(const model_cuda_loss_t &p, size_t row)
{
    size_t all = p.sequences * p.T;
    float level[7];
    float sum = 0.0f, max = p.max[row];
    for (size_t leaf = 0; leaf < p.leaves; leaf++) {
        float m = p.leaf[leaf * all + row], s = p.leaf[(p.leaves + leaf) * all + row];
        sum = s == 0.0f ? 0.0f : s * exp_of((const S *)0, m - max); /* a leaf of padding has no maximum */
        int k = 0;
        for (size_t n = leaf; n & 1; n >>= 1, k++)
            sum = level[k] + sum;
        level[k] = sum;
    }
    size_t at = (size_t)p.targets[row] - p.first * p.width;
    p.pair[row] = sum;
    p.pair[all + row] =
        at < p.leaves * p.width
            ? model_load((const S *)p.logits + (at / p.width * all + row) * p.ld + at % p.width)
            : -0.0f;
}

/* Block: a position. `what`: SUMS, PAIR, BACK. Shared: the first `kept` pieces of the row. */
template <typename S>
static __global__ void __launch_bounds__(THREADS, 2)
    loss_rows(const model_cuda_loss_t p, int what, unsigned kept)
{
    constexpr unsigned E = PIECE / sizeof(S);
    GYRE_DYNAMIC_SHARED(S, held);
    __shared__ float max[THREADS / WARP], sum[THREADS / WARP];
    const size_t row = blockIdx.x, all = p.sequences * p.T, step = all * p.ld;
    const unsigned me = threadIdx.x, warp = me / WARP, lane = me % WARP, warps = blockDim.x / WARP;
    const unsigned leaves = (unsigned)p.leaves, pieces = (unsigned)((p.width + E - 1) / E);
    S *logits = (S *)p.logits + row * p.ld;
    for (unsigned leaf = 0, first = 0; leaf < leaves; leaf++, first += pieces)
        for (unsigned c = me, end = kept_of(kept, first, pieces); c < end; c += blockDim.x)
            gyre_cp_async16(held + (first + c) * E, logits + leaf * step + c * E);
    gyre_cp_async_commit();
    gyre_cp_async_wait<0>();

    float top = -INFINITY;
    for (unsigned leaf = 0, first = 0; leaf < leaves && what & SUMS; leaf++, first += pieces) {
        const unsigned n = (unsigned)leaf_tokens(p, leaf), here = kept_of(kept, first, pieces);
        const S *x = logits + leaf * step;
        float m = -INFINITY, s = 0.0f;
        for (unsigned c = me; c * E < n; c += blockDim.x) {
            float v[E];
            load_piece(v, held + first * E, x, c, here);
            take_piece<S>(&m, &s, v, n - c * E);
        }
        merge_warp<S>(&m, &s);
        if (lane == 0) {
            max[warp] = m;
            sum[warp] = s;
        }
        __syncthreads();
        if (warp == 0) {
            m = lane < warps ? max[lane] : -INFINITY;
            s = lane < warps ? sum[lane] : 0.0f;
            merge_warp<S>(&m, &s);
            top = m > top ? m : top;
            if (lane == 0) {
                p.leaf[leaf * all + row] = m;
                p.leaf[(leaves + leaf) * all + row] = s;
            }
        }
        __syncthreads();
    }
    if (what & SUMS && me == 0)
        p.max[row] = top;
    if (what & PAIR && me == 0)
        put_pair<S>(p, row);
    if (!(what & BACK))
        return;
    __syncthreads(); /* thread 0 has written max and pair, and read the target's logit */

    const size_t sequence = row / p.T, begin = p.prefix ? p.prefix[sequence] : 0;
    const float each = 1.0f / (float)(p.T - begin), factor = each / p.pair[row], largest = p.max[row];
    for (unsigned leaf = 0, first = 0; leaf < leaves; leaf++, first += pieces) {
        const unsigned n = row % p.T >= begin ? (unsigned)leaf_tokens(p, leaf) : 0;
        const unsigned target = (unsigned)((size_t)p.targets[row] - (p.first + leaf) * p.width);
        const unsigned here = kept_of(kept, first, pieces);
        S *x = logits + leaf * step;
        for (unsigned c = me; c < pieces; c += blockDim.x) {
            float v[E];
            if (c * E >= n) {
                *((uint4 *)x + c) = make_uint4(0, 0, 0, 0);
                continue;
            }
            load_piece(v, held + first * E, x, c, here);
            turn_piece((S *)((uint4 *)x + c), v, n - c * E, target - c * E, largest, factor, each);
        }
    }
}

/* Two blocks share a multiprocessor: one loads its row while the other computes. */
static gyre_status_t launch_rows(const model_cuda_loss_t *p, int what, struct CUstream_st *stream)
{
    const size_t element = p->type == MODEL_CUDA_BF16 ? sizeof(uint16_t) : sizeof(float), E = PIECE / element;
    const size_t pieces = p->leaves * ((p->width + E - 1) / E);
    unsigned threads = WARP;
    int device = 0, most = 0;
    while (threads < THREADS && threads * 2 * E <= p->width)
        threads *= 2;
    dim3 grid((unsigned)(p->sequences * p->T)), block(threads);
    if (grid.x == 0)
        return GYRE_OK;
    if (!is_wide(p->logits, p->ld, element))
        return gyre_fail(
            GYRE_ERR_INVALID,
            "cross-entropy on the GPU: rows of logits that are %zu elements apart do not begin at "
            "multiples of 16 bytes",
            p->ld);
    cudaError_t rc = cudaGetDevice(&device);
    if (rc == cudaSuccess)
        rc = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    const size_t room = (size_t)most / 2 / PIECE - 64, kept = pieces < room ? pieces : room;
    if (rc == cudaSuccess)
        rc = p->type == MODEL_CUDA_BF16
                 ? GYRE_LAUNCH(loss_rows<uint16_t>, grid, block, kept * PIECE, stream, *p, what,
                               (unsigned)kept)
                 : GYRE_LAUNCH(loss_rows<float>, grid, block, kept * PIECE, stream, *p, what, (unsigned)kept);
    return model_cuda_launched(rc, "loss_rows", grid, block);
}

extern "C" gyre_status_t model_cuda_loss(const model_cuda_loss_t *p, int back, struct CUstream_st *stream)
{
    return launch_rows(p, SUMS | PAIR | (back ? BACK : 0), stream);
}

extern "C" gyre_status_t model_cuda_loss_max(const model_cuda_loss_t *p, struct CUstream_st *stream)
{
    return launch_rows(p, SUMS, stream);
}

extern "C" gyre_status_t model_cuda_loss_back(const model_cuda_loss_t *p, struct CUstream_st *stream)
{
    return launch_rows(p, BACK, stream);
}

/* One thread per position. */
template <typename S> static __global__ void make_pair(const model_cuda_loss_t p)
{
    size_t row = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (row < p.sequences * p.T)
        put_pair<S>(p, row);
}

extern "C" gyre_status_t model_cuda_loss_pair(const model_cuda_loss_t *p, struct CUstream_st *stream)
{
    return MODEL_LAUNCH(p->type, make_pair, (p->sequences * p->T + ROW_THREADS - 1) / ROW_THREADS,
                        ROW_THREADS, stream, *p);
}

/* Block: a sequence. Each thread adds every 256th position in double, then the tree. Shared: 2 KiB. */
static __global__ void mean_loss(const model_cuda_loss_t p)
{
    __shared__ double sum[ROW_THREADS];
    size_t all = p.sequences * p.T, sequence = blockIdx.x, first = p.prefix ? p.prefix[sequence] : 0,
           me = threadIdx.x;
    double s = 0.0;
    for (size_t t = first + me; t < p.T; t += ROW_THREADS) {
        size_t row = sequence * p.T + t;
        s += (double)(float)(log((double)p.pair[row]) + (double)(p.max[row] - p.pair[all + row]));
    }
    sum[me] = s;
    for (size_t w = ROW_THREADS / 2; w > 0; w /= 2) {
        __syncthreads();
        if (me < w)
            sum[me] = sum[me] + sum[me + w];
    }
    if (me == 0)
        p.loss[sequence] = sum[0] / (double)(p.T - first);
}

extern "C" gyre_status_t model_cuda_loss_mean(const model_cuda_loss_t *p, struct CUstream_st *stream)
{
    dim3 grid((unsigned)p->sequences), block(ROW_THREADS);
    return model_cuda_launched(GYRE_LAUNCH(mean_loss, grid, block, 0, stream, *p), "mean_loss", grid, block);
}
