/* SPDX-License-Identifier: Apache-2.0 */
/* model/gpu/layers/vocabulary.cu: embedding and cross-entropy. Compiled without contraction. */
#include "model/gpu/layers/launch.h"
#include "model/gpu/layers/vocabulary.h"
#include "model/gpu/layers/wide.h"

enum { THREADS = 256, ROW_THREADS = 128, WARP = 32 };

/* Threads of a block that goes over `width` elements: a power of two up to `most`. */
static unsigned threads_for(size_t width, unsigned most)
{
    unsigned threads = WARP;
    while (threads < most && threads * 2 <= width)
        threads *= 2;
    return threads;
}

/* Elements of n from the i-th on. */
static __device__ __forceinline__ size_t rest_of(size_t n, size_t i)
{
    return i < n ? n - i : 0;
}

/* ---- embedding ----------------------------------------------------------------------------------------- */

/* Block: a row; threads stride over its channels. */
template <typename S> static __global__ void embed(const model_cuda_embed_t p)
{
    size_t row = blockIdx.x, sequence = row / p.rows, t = p.begin + row % p.rows, C = p.channels;
    size_t token = p.sum ? 0 : (size_t)p.tokens[sequence * p.T + t] - p.first;
    for (size_t c = threadIdx.x; c < C; c += blockDim.x) {
        float v = p.sum ? p.sum[row * C + c] : model_load((const S *)p.wte + token * C + c);
        if (p.wpe)
            v = v + model_load((const S *)p.wpe + t * C + c);
        if (p.drop.keys)
            v = model_drop(v, p.drop.keys + sequence * 4, p.drop.place, p.drop.first + row % p.rows * C + c,
                           p.drop.below, p.drop.kept);
        model_store((S *)p.out + row * C + c, v);
    }
}

extern "C" gyre_status_t model_cuda_embed(const model_cuda_embed_t *p, struct CUstream_st *stream)
{
    return MODEL_LAUNCH(p->type, embed, p->sequences * p->rows, threads_for(p->channels, ROW_THREADS), stream,
                        *p);
}

template <typename S> static __global__ void embed_part(const model_cuda_embed_t p, float *part)
{
    size_t row = blockIdx.x, C = p.channels, token = (size_t)p.tokens[row] - p.first;
    for (size_t c = threadIdx.x; c < C; c += blockDim.x)
        part[row * C + c] = token < p.vocab ? model_load((const S *)p.wte + token * C + c) : -0.0f;
}

extern "C" gyre_status_t model_cuda_embed_part(const model_cuda_embed_t *p, float *part,
                                               struct CUstream_st *stream)
{
    return MODEL_LAUNCH(p->type, embed_part, p->sequences * p->T, threads_for(p->channels, ROW_THREADS),
                        stream, *p, part);
}

typedef struct {
    float *dw;
    size_t first, vocab, T, channels;
    const void *d;
    const int32_t *tokens, *segments;
    float shrink;
    int wide;
} scatter_t;

enum { SLICE = 4 /* channels of a lane */, SCATTER_WARPS = 4, AHEAD = 16 /* rows under way */ };

/* A warp: the segment of one token that begins at place blockIdx.x x 4 + its number, if one does, and 128
 * channels; grid: (places / 4, channels / 128). The positions of a segment are known before its rows, so that
 * the loads of 16 rows are under way together; rows are added one after another. */
template <typename S>
static __global__ void __launch_bounds__(SCATTER_WARPS *WARP) embed_back(const scatter_t p)
{
    const unsigned ALL = 0xffffffffu;
    unsigned lane = threadIdx.x % WARP;
    size_t place = (size_t)blockIdx.x * SCATTER_WARPS + threadIdx.x / WARP, C = p.channels;
    size_t c = ((size_t)blockIdx.y * WARP + lane) * SLICE, left = rest_of(C, c);
    if (place >= p.T || p.segments[place] >= 0) /* a whole warp */
        return;
    size_t first = (size_t)(-1 - (int64_t)p.segments[place]), token = (size_t)p.tokens[first] - p.first;
    if (token >= p.vocab)
        return;
    float sum[SLICE] = {0.0f, 0.0f, 0.0f, 0.0f};
    /* of this lane: a position, or a negative number after the segment's end */
    int32_t mine = lane == 0 ? (int32_t)first : place + lane < p.T ? p.segments[place + lane] : -1, next;
    for (int count = WARP; count == WARP; mine = next) {
        count = __ffs((int)__ballot_sync(ALL, mine < 0)) - 1;
        count = count < 0 ? (int)WARP : count;
        place += WARP;
        next = place + lane < p.T ? p.segments[place + lane] : -1;
#pragma unroll 1
        for (int from = 0; from < count; from += AHEAD) {
            float v[AHEAD][SLICE];
#pragma unroll
            for (int i = 0; i < AHEAD; i++) {
                size_t t = (size_t)__shfl_sync(ALL, mine, from + i);
                if (from + i < count)
                    load_part(v[i], (const S *)p.d + t * C + c, left, p.wide);
            }
#pragma unroll
            for (int i = 0; i < AHEAD; i++)
                if (from + i < count)
#pragma unroll
                    for (int k = 0; k < SLICE; k++)
                        sum[k] = p.shrink * v[i][k] + sum[k];
        }
    }
    store_part(p.dw + token * C + c, sum, left, p.wide);
}

extern "C" gyre_status_t model_cuda_embed_back(model_cuda_type_t type, float *dw, size_t first, size_t vocab,
                                               const void *d, const int32_t *tokens, const int32_t *segments,
                                               size_t T, size_t channels, float shrink,
                                               struct CUstream_st *stream)
{
    const int wide = channels % SLICE == 0 && is_wide(d, 0, 1) && is_wide(dw, 0, 1);
    const scatter_t p = {dw, first, vocab, T, channels, d, tokens, segments, shrink, wide};
    dim3 grid((unsigned)((T + SCATTER_WARPS - 1) / SCATTER_WARPS),
              (unsigned)((channels + WARP * SLICE - 1) / (WARP * SLICE)));
    return MODEL_LAUNCH_AS(type, embed_back, grid, dim3(SCATTER_WARPS * WARP), stream, p);
}

/* A thread: four neighbouring elements. */
template <typename S>
static __global__ void widen(float *out, const S *d, size_t terms, size_t count, int wide)
{
    size_t i = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * SLICE, left = rest_of(count, i);
    float sum[SLICE], v[SLICE];
    if (left == 0)
        return;
    load_part(sum, d + i, left, wide);
#pragma unroll 8
    for (size_t term = 1; term < terms; term++) {
        load_part(v, d + term * count + i, left, wide);
#pragma unroll
        for (int k = 0; k < SLICE; k++)
            sum[k] = sum[k] + v[k];
    }
    store_part(out + i, sum, left, wide);
}

extern "C" gyre_status_t model_cuda_widen(model_cuda_type_t type, float *out, const void *d, size_t terms,
                                          size_t count, struct CUstream_st *stream)
{
    const int wide = count % SLICE == 0 && is_wide(d, 0, 1) && is_wide(out, 0, 1);
    dim3 grid((unsigned)((count + THREADS * SLICE - 1) / (THREADS * SLICE))), block(THREADS);
    if (grid.x == 0)
        return GYRE_OK;
    cudaError_t rc = type == MODEL_CUDA_BF16 ? GYRE_LAUNCH(widen<uint16_t>, grid, block, 0, stream, out,
                                                           (const uint16_t *)d, terms, count, wide)
                                             : GYRE_LAUNCH(widen<float>, grid, block, 0, stream, out,
                                                           (const float *)d, terms, count, wide);
    return model_cuda_launched(rc, "widen", grid, block);
}

/* ---- cross-entropy ------------------------------------------------------------------------------------- */

/* Tokens of leaf `leaf` of those here: the last ones of the model may be padding. */
static __device__ __forceinline__ size_t leaf_tokens(const model_cuda_loss_t &p, size_t leaf)
{
    size_t begin = (p.first + leaf) * p.width, left = begin >= p.vocab ? 0 : p.vocab - begin;
    return left < p.width ? left : p.width;
}

static int rows_are_wide(const model_cuda_loss_t *p)
{
    return is_wide(p->logits, p->ld, sizeof(float));
}

/* The largest and the sum of e^(x - largest) of two disjoint parts; -inf and 0: nothing. */
static __device__ __forceinline__ void merge(float *max, float *sum, float other_max, float other_sum)
{
    float m = *max > other_max ? *max : other_max;
    float a = *max < m ? *sum * exp_one_f32(*max - m) : *sum,
          b = other_max < m ? other_sum * exp_one_f32(other_max - m) : other_sum;
    *max = m;
    *sum = a + b;
}

/* One more logit of a lane: a NaN stays one. The exponent is never positive, whichever of them is larger. */
static __device__ __forceinline__ void take_logit(float *max, float *sum, float v)
{
    int more = v > *max;
    float e = exp_one_f32(more ? *max - v : v - *max);
    *sum = more ? *sum * e + 1.0f : *sum + e;
    *max = more ? v : *max;
}

enum { NEAR = 4 /* lanes of a thread: 16 bytes */, TURNS = 4 /* that are loaded before the first is used */ };

/* Block: a position and a leaf; grid: (positions, leaves). Each of up to 256 lanes (a power of two) goes once
 * over its logits, lane l over l, l + lanes, ..., with a running maximum (Milakov and Gimelshein 2018,
 * "Online normalizer calculation for softmax"), then lanes are joined in a tree: an order that depends on the
 * leaf's width alone. A thread has four neighbouring lanes. Shared: 2 KiB. */
static __global__ void __launch_bounds__(THREADS / NEAR) leaf_sums(const model_cuda_loss_t p, int wide)
{
    __shared__ float max[THREADS], sum[THREADS];
    size_t row = blockIdx.x, leaf = blockIdx.y, all = p.sequences * p.T, n = leaf_tokens(p, leaf);
    unsigned me = threadIdx.x * NEAR, lanes = blockDim.x * NEAR;
    const float *x = p.logits + (leaf * all + row) * p.ld;
    float m[NEAR], s[NEAR], v[TURNS][NEAR];
    size_t i = me;
#pragma unroll
    for (int l = 0; l < NEAR; l++) {
        m[l] = -INFINITY;
        s[l] = 0.0f;
    }
    for (; i + (TURNS - 1) * lanes + NEAR <= n; i += TURNS * lanes) {
#pragma unroll
        for (int t = 0; t < TURNS; t++)
            load_part(v[t], x + i + (unsigned)t * lanes, NEAR, wide);
#pragma unroll
        for (int t = 0; t < TURNS; t++)
#pragma unroll
            for (int l = 0; l < NEAR; l++)
                take_logit(&m[l], &s[l], v[t][l]);
    }
    for (; i < n; i += lanes) {
        load_part(v[0], x + i, n - i, wide);
#pragma unroll
        for (int l = 0; l < NEAR; l++)
            if (i + (unsigned)l < n)
                take_logit(&m[l], &s[l], v[0][l]);
    }
#pragma unroll
    for (int l = 0; l < NEAR; l++) {
        max[me + l] = m[l];
        sum[me + l] = s[l];
    }
    for (unsigned w = lanes / 2; w > 0; w /= 2) {
        __syncthreads();
        for (unsigned l = threadIdx.x; l < w; l += blockDim.x)
            merge(&max[l], &sum[l], max[l + w], sum[l + w]);
    }
    if (me == 0) {
        p.leaf[leaf * all + row] = max[0];
        p.leaf[(p.leaves + leaf) * all + row] = sum[0];
    }
}

static __global__ void largest(const model_cuda_loss_t p)
{
    size_t all = p.sequences * p.T, row = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= all)
        return;
    float m = p.leaf[row];
    for (size_t leaf = 1; leaf < p.leaves; leaf++)
        m = p.leaf[leaf * all + row] > m ? p.leaf[leaf * all + row] : m;
    p.max[row] = m;
}

extern "C" gyre_status_t model_cuda_loss_max(const model_cuda_loss_t *p, struct CUstream_st *stream)
{
    size_t all = p->sequences * p->T;
    dim3 grid((unsigned)all, (unsigned)p->leaves), block(threads_for(p->width, THREADS) / NEAR);
    dim3 few((unsigned)((all + THREADS - 1) / THREADS)), each(THREADS);
    gyre_status_t status = model_cuda_launched(
        GYRE_LAUNCH(leaf_sums, grid, block, 0, stream, *p, rows_are_wide(p)), "leaf_sums", grid, block);
    return status == GYRE_OK
               ? model_cuda_launched(GYRE_LAUNCH(largest, few, each, 0, stream, *p), "largest", few, each)
               : status;
}

/* One thread per position: leaves' sums, brought to the whole vocabulary's maximum, in the tree; and the
 * target's logit. */
static __global__ void make_pair(const model_cuda_loss_t p)
{
    size_t all = p.sequences * p.T, row = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= all)
        return;
    float level[7];
    float sum = 0.0f;
    for (size_t leaf = 0; leaf < p.leaves; leaf++) {
        float m = p.leaf[leaf * all + row], s = p.leaf[(p.leaves + leaf) * all + row];
        sum = s == 0.0f ? 0.0f : s * exp_one_f32(m - p.max[row]); /* a leaf of padding has no maximum */
        int k = 0;
        for (size_t n = leaf; n & 1; n >>= 1, k++)
            sum = level[k] + sum;
        level[k] = sum;
    }
    p.pair[row] = sum;
    size_t at = (size_t)p.targets[row] - p.first * p.width;
    p.pair[all + row] =
        at < p.leaves * p.width ? p.logits[(at / p.width * all + row) * p.ld + at % p.width] : -0.0f;
}

extern "C" gyre_status_t model_cuda_loss_pair(const model_cuda_loss_t *p, struct CUstream_st *stream)
{
    dim3 grid((unsigned)((p->sequences * p->T + THREADS - 1) / THREADS)), block(THREADS);
    return model_cuda_launched(GYRE_LAUNCH(make_pair, grid, block, 0, stream, *p), "make_pair", grid, block);
}

/* Block: a sequence. Each thread adds every 256th position in double, then the tree. Shared: 2 KiB. */
static __global__ void mean_loss(const model_cuda_loss_t p)
{
    __shared__ double sum[THREADS];
    size_t all = p.sequences * p.T, sequence = blockIdx.x, first = p.prefix ? p.prefix[sequence] : 0,
           me = threadIdx.x;
    double s = 0.0;
    for (size_t t = first + me; t < p.T; t += THREADS) {
        size_t row = sequence * p.T + t;
        s += (double)(float)(log((double)p.pair[row]) + (double)(p.max[row] - p.pair[all + row]));
    }
    sum[me] = s;
    for (size_t w = THREADS / 2; w > 0; w /= 2) {
        __syncthreads();
        if (me < w)
            sum[me] = sum[me] + sum[me + w];
    }
    if (me == 0)
        p.loss[sequence] = sum[0] / (double)(p.T - first);
}

extern "C" gyre_status_t model_cuda_loss_mean(const model_cuda_loss_t *p, struct CUstream_st *stream)
{
    dim3 grid((unsigned)p->sequences), block(THREADS);
    return model_cuda_launched(GYRE_LAUNCH(mean_loss, grid, block, 0, stream, *p), "mean_loss", grid, block);
}

enum { EACH = 8, BACK_THREADS = 128 }; /* logits of a thread in a turn: 16 bytes of the gradient in bf16 */

/* Block: a position and a leaf; grid: (positions, leaves). d = scale / (T - prefix) (e^(x - max) / sum -
 * one-hot). The next turn's logits are loaded before this one's are used. In bf16 what a block writes lies in
 * the front half of its own row: a turn's writes wait for all reads of it and of the next turn, and never
 * reach what later turns read. */
template <typename S>
static __global__ void __launch_bounds__(BACK_THREADS)
    loss_back(const model_cuda_loss_t p, float scale, int wide)
{
    size_t row = blockIdx.x, leaf = blockIdx.y, all = p.sequences * p.T, width = p.width;
    size_t sequence = row / p.T, first = p.prefix ? p.prefix[sequence] : 0, learned = row % p.T >= first;
    size_t target = (size_t)p.targets[row] - (p.first + leaf) * width;
    size_t n = learned ? leaf_tokens(p, leaf) : 0, turn = (size_t)blockDim.x * EACH;
    const float *x = p.logits + (leaf * all + row) * p.ld;
    S *d = (S *)(p.logits + (leaf * all + row) * p.ld);
    float each = scale / (float)(p.T - first), factor = each / p.pair[row], max = p.max[row], v[EACH],
          next[EACH];
    load_part(next, x + (size_t)threadIdx.x * EACH, rest_of(n, (size_t)threadIdx.x * EACH), wide);
    for (size_t from = 0; from < width; from += turn) {
        size_t i = from + (size_t)threadIdx.x * EACH;
#pragma unroll
        for (int k = 0; k < EACH; k++)
            v[k] = next[k];
        load_part(next, x + i + turn, rest_of(n, i + turn), wide);
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            v[k] = i + (unsigned)k < n ? exp_one_f32(v[k] - max) * factor : 0.0f;
            if (i + (unsigned)k == target && i + (unsigned)k < n)
                v[k] = v[k] - each;
        }
        __syncthreads();
        store_part(d + i, v, rest_of(width, i), wide);
    }
}

extern "C" gyre_status_t model_cuda_loss_back(const model_cuda_loss_t *p, float scale,
                                              struct CUstream_st *stream)
{
    dim3 grid((unsigned)(p->sequences * p->T), (unsigned)p->leaves),
        block(threads_for((p->width + EACH - 1) / EACH, BACK_THREADS));
    return MODEL_LAUNCH_AS(p->type, loss_back, grid, block, stream, *p, scale, rows_are_wide(p));
}
