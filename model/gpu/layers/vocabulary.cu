/* SPDX-License-Identifier: Apache-2.0 */
/* model/gpu/layers/vocabulary.cu: embedding and cross-entropy. Compiled without contraction. */
#include "model/gpu/layers/launch.h"
#include "model/gpu/scalar.h"
#include "model/gpu/layers/vocabulary.h"

enum { THREADS = 256, ROW_THREADS = 128, WARP = 32 };

/* Threads of a block that goes over `width` elements: a power of two up to `most`. */
static unsigned threads_for(size_t width, unsigned most)
{
    unsigned threads = WARP;
    while (threads < most && threads * 2 <= width)
        threads *= 2;
    return threads;
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
    size_t first, vocab, channels;
    const void *d;
    const int32_t *tokens, *chain;
    float shrink;
} scatter_t;

/* Block: a position; the first of each token walks the chain of those that have it. */
template <typename S> static __global__ void embed_back(const scatter_t p)
{
    size_t token = (size_t)p.tokens[blockIdx.x] - p.first;
    if (token >= p.vocab || p.chain[blockIdx.x] < 0)
        return;
    for (size_t c = threadIdx.x; c < p.channels; c += blockDim.x) {
        float sum = p.dw[token * p.channels + c];
        for (int32_t t = (int32_t)blockIdx.x; t >= 0;) {
            sum = p.shrink * model_load((const S *)p.d + (size_t)t * p.channels + c) + sum;
            int32_t link = p.chain[t];
            t = (link < 0 ? -1 - link : link) - 1;
        }
        p.dw[token * p.channels + c] = sum;
    }
}

extern "C" gyre_status_t model_cuda_embed_back(model_cuda_type_t type, float *dw, size_t first, size_t vocab,
                                               const void *d, const int32_t *tokens, const int32_t *chain,
                                               size_t T, size_t channels, float shrink,
                                               struct CUstream_st *stream)
{
    const scatter_t p = {dw, first, vocab, channels, d, tokens, chain, shrink};
    return MODEL_LAUNCH(type, embed_back, T, threads_for(channels, ROW_THREADS), stream, p);
}

template <typename S> static __global__ void widen(float *out, const S *d, size_t terms, size_t count)
{
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += (size_t)gridDim.x * blockDim.x) {
        float sum = model_load(d + i);
        for (size_t k = 1; k < terms; k++)
            sum = sum + model_load(d + k * count + i);
        out[i] = sum;
    }
}

extern "C" gyre_status_t model_cuda_widen(model_cuda_type_t type, float *out, const void *d, size_t terms,
                                          size_t count, struct CUstream_st *stream)
{
    size_t blocks = (count + THREADS - 1) / THREADS;
    dim3 grid((unsigned)(blocks < 16384 ? blocks : 16384)), block(THREADS);
    if (grid.x == 0)
        return GYRE_OK;
    cudaError_t rc =
        type == MODEL_CUDA_BF16
            ? GYRE_LAUNCH(widen<uint16_t>, grid, block, 0, stream, out, (const uint16_t *)d, terms, count)
            : GYRE_LAUNCH(widen<float>, grid, block, 0, stream, out, (const float *)d, terms, count);
    return model_cuda_launched(rc, "widen", grid, block);
}

/* ---- cross-entropy ------------------------------------------------------------------------------------- */

/* Tokens of leaf `leaf` of those here: the last ones of the model may be padding. */
static __device__ __forceinline__ size_t leaf_tokens(const model_cuda_loss_t &p, size_t leaf)
{
    size_t begin = (p.first + leaf) * p.width, left = begin >= p.vocab ? 0 : p.vocab - begin;
    return left < p.width ? left : p.width;
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

/* Block: a position and a leaf; grid: (positions, leaves). Each of up to 256 threads goes once over its
 * logits, with a running maximum (Milakov and Gimelshein 2018, "Online normalizer calculation for softmax"),
 * then threads are joined in a tree: an order that depends on the leaf's width alone. Shared: 2 KiB. */
static __global__ void leaf_sums(const model_cuda_loss_t p)
{
    __shared__ float max[THREADS], sum[THREADS];
    size_t row = blockIdx.x, leaf = blockIdx.y, all = p.sequences * p.T, n = leaf_tokens(p, leaf),
           me = threadIdx.x;
    const float *x = p.logits + (leaf * all + row) * p.ld;
    float m = -INFINITY, s = 0.0f;
    for (size_t i = me; i < n; i += blockDim.x) {
        float v = x[i];
        if (v > m) {
            s = s * exp_one_f32(m - v) + 1.0f;
            m = v;
        } else {
            s = s + exp_one_f32(v - m); /* a NaN stays one */
        }
    }
    max[me] = m;
    sum[me] = s;
    for (size_t w = blockDim.x / 2; w > 0; w /= 2) {
        __syncthreads();
        if (me < w)
            merge(&max[me], &sum[me], max[me + w], sum[me + w]);
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
    dim3 grid((unsigned)all, (unsigned)p->leaves), block(threads_for(p->width, THREADS));
    dim3 few((unsigned)((all + THREADS - 1) / THREADS)), each(THREADS);
    gyre_status_t status =
        model_cuda_launched(GYRE_LAUNCH(leaf_sums, grid, block, 0, stream, *p), "leaf_sums", grid, block);
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

enum { EACH = 4 }; /* logits per thread and turn */

/* Block: a position and a leaf; grid: (positions, leaves). d = scale / (T - prefix) (e^(x - max) / sum -
 * one-hot). In bf16 what a block writes lies in the front half of its own row: a turn's writes wait for
 * its reads, and never reach what later turns read. */
template <typename S> static __global__ void loss_back(const model_cuda_loss_t p, float scale)
{
    size_t row = blockIdx.x, leaf = blockIdx.y, all = p.sequences * p.T, n = leaf_tokens(p, leaf);
    size_t sequence = row / p.T, first = p.prefix ? p.prefix[sequence] : 0, learned = row % p.T >= first;
    size_t target = (size_t)p.targets[row] - (p.first + leaf) * p.width;
    const float *x = p.logits + (leaf * all + row) * p.ld;
    S *d = (S *)(p.logits + (leaf * all + row) * p.ld);
    float each = scale / (float)(p.T - first), factor = each / p.pair[row], max = p.max[row];
    for (size_t from = 0; from < p.width; from += blockDim.x * EACH) {
        float v[EACH];
        for (size_t k = 0; k < EACH; k++) {
            size_t i = from + k * blockDim.x + threadIdx.x;
            v[k] = i < n && learned ? exp_one_f32(x[i] - max) * factor : 0.0f;
            if (i == target && i < n && learned)
                v[k] = v[k] - each;
        }
        __syncthreads();
        for (size_t k = 0; k < EACH; k++) {
            size_t i = from + k * blockDim.x + threadIdx.x;
            if (i < p.width)
                model_store(d + i, v[k]);
        }
    }
}

extern "C" gyre_status_t model_cuda_loss_back(const model_cuda_loss_t *p, float scale,
                                              struct CUstream_st *stream)
{
    dim3 grid((unsigned)(p->sequences * p->T), (unsigned)p->leaves), block(threads_for(p->width, THREADS));
    return MODEL_LAUNCH_AS(p->type, loss_back, grid, block, stream, *p, scale);
}
