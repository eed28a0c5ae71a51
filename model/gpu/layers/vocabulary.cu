/* SPDX-License-Identifier: Apache-2.0 */
/* model/gpu/layers/vocabulary.cu: the embedding. Compiled without contraction. */
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
