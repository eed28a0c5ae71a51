/* SPDX-License-Identifier: Apache-2.0 */
/* model/gpu/layers/norm.cu: residual, norms and sums over positions. Compiled without contraction. */
#include "model/gpu/layers/launch.h"
#include "model/gpu/layers/norm.h"
#include "model/gpu/scalar.h"

enum { THREADS = 256, ROWS = THREADS / MODEL_LANES };

/* ---- forward ------------------------------------------------------------------------------------------- */

/* The residual stream's row [channels] after a branch, stored; returns this lane's element c. */
template <typename S>
static __device__ __forceinline__ float residual_at(const model_cuda_norm_t &p, size_t row, size_t c)
{
    size_t count = p.sequences * p.rows * p.channels, at = row * p.channels + c;
    float s = model_join_leaves(p.sum, p.leaves, count, at);
    if (p.bias)
        s = s + model_load((const S *)p.bias + c);
    if (p.drop.keys)
        s = model_drop(s, p.drop.keys + row / p.rows * 4, p.drop.place,
                       p.drop.first + row % p.rows * p.channels + c, p.drop.below, p.drop.kept);
    float v = model_rounded(
        (const S *)p.out,
        p.alpha * model_load((const S *)p.x + row / p.rows * p.step_x + row % p.rows * p.channels + c) + s);
    model_store((S *)p.out + at, v);
    return v;
}

/* Block: 16 rows of 16 threads; grid: rows / 16. No shared memory. Sums of a row: 16 lanes, joined by
 * shuffles. A row's threads each read back only what they wrote. */
template <typename S> static __global__ void norm_forward(const model_cuda_norm_t p)
{
    size_t all = p.sequences * p.rows, C = p.channels, lane = threadIdx.x % MODEL_LANES;
    size_t mine = (size_t)blockIdx.x * ROWS + threadIdx.x / MODEL_LANES, row = mine < all ? mine : all - 1;
    int live = mine < all; /* the others keep their warp's shuffles whole */
    const S *x =
        p.sum ? (const S *)p.out + row * C : (const S *)p.x + row / p.rows * p.step_x + row % p.rows * C;
    float acc = 0.0f, m = 0.0f;
    for (size_t c = lane; live && c < C; c += MODEL_LANES) {
        float v = p.sum ? residual_at<S>(p, row, c) : model_load(x + c);
        acc = acc + (p.norm == MODEL_NORM_RMS ? v * v : v);
    }
    if (!p.y)
        return;
    acc = model_join_lanes(acc);
    if (p.norm != MODEL_NORM_RMS) {
        m = acc / (float)C;
        acc = 0.0f;
        for (size_t c = lane; live && c < C; c += MODEL_LANES) {
            float v = model_load(x + c) - m;
            acc = acc + v * v;
        }
        acc = model_join_lanes(acc);
    }
    if (!live)
        return;
    float s = 1.0f / sqrtf(acc / (float)C + p.eps);
    size_t t = row % p.rows, sequence = row / p.rows;
    S *y = (S *)p.y + sequence * p.step_y + t * C;
    for (size_t c = lane; c < C; c += MODEL_LANES) {
        float v = model_load(x + c), w = model_load((const S *)p.w + c);
        v = p.norm == MODEL_NORM_RMS ? v * s * w : (v - m) * s * w + model_load((const S *)p.b + c);
        if (p.drop_y.keys)
            v = model_drop(v, p.drop_y.keys + sequence * 4, p.drop_y.place, p.drop_y.first + t * C + c,
                           p.drop_y.below, p.drop_y.kept);
        model_store(y + c, v);
    }
    if (lane == 0) {
        p.rstd[row] = s;
        if (p.norm != MODEL_NORM_RMS)
            p.mean[row] = m;
    }
}

extern "C" gyre_status_t model_cuda_norm(const model_cuda_norm_t *p, struct CUstream_st *stream)
{
    size_t blocks = (p->sequences * p->rows + ROWS - 1) / ROWS;
    return MODEL_LAUNCH(p->type, norm_forward, blocks, THREADS, stream, *p);
}

/* ---- backward ------------------------------------------------------------------------------------------ */

/* With n = (x - mean) rstd and g = dy w:  dx = rstd (g - mean(g) - n mean(g n)); a root mean square has n = x
 * rstd, and no mean(g). Block, grid and sums as norm_forward. */
template <typename S> static __global__ void norm_backward(const model_cuda_norm_back_t p)
{
    size_t C = p.channels, lane = threadIdx.x % MODEL_LANES;
    size_t mine = (size_t)blockIdx.x * ROWS + threadIdx.x / MODEL_LANES,
           row = mine < p.rows ? mine : p.rows - 1;
    int live = mine < p.rows, rms = p.norm == MODEL_NORM_RMS;
    const S *dy = (const S *)p.dy + row * C, *x = (const S *)p.x + row * C, *w = (const S *)p.w;
    float m = rms ? 0.0f : p.mean[row], s = p.rstd[row], sum_g = 0.0f, sum_gn = 0.0f;
    for (size_t c = lane; live && c < C; c += MODEL_LANES) {
        float g = model_load(dy + c) * model_load(w + c), v = model_load(x + c);
        sum_g = sum_g + g;
        sum_gn = sum_gn + g * (rms ? v * s : (v - m) * s);
    }
    float mean_g = model_join_lanes(sum_g) / (float)C, mean_gn = model_join_lanes(sum_gn) / (float)C;
    for (size_t c = lane; live && c < C; c += MODEL_LANES) {
        float v = model_load(x + c), n = rms ? v * s : (v - m) * s,
              g = model_load(dy + c) * model_load(w + c);
        float base = p.base ? model_load((const S *)p.base + row * C + c) : 0.0f;
        model_store((S *)p.out + row * C + c, base + s * (rms ? g - n * mean_gn : g - mean_g - n * mean_gn));
    }
}

extern "C" gyre_status_t model_cuda_norm_back(const model_cuda_norm_back_t *p, struct CUstream_st *stream)
{
    return MODEL_LAUNCH(p->type, norm_backward, (p->rows + ROWS - 1) / ROWS, THREADS, stream, *p);
}

/* ---- sums over positions ------------------------------------------------------------------------------- */

enum { COLUMNS = 32, PIECES = 32, SHORTEST = 8 /* positions that a piece is worth */ };

/* Block: 32 columns x up to 32 pieces; grid: (columns / 32, sequences). Shared: the pieces' two sums of 32
 * columns, 8 KiB for 32 pieces. Each thread adds up its pieces from their first position to their last;
 * then the tree. */
template <typename S> static __global__ void position_sums(const model_cuda_position_sums_t p, size_t pieces)
{
    GYRE_DYNAMIC_SHARED(float, part);
    float(*part_w)[COLUMNS] = (float(*)[COLUMNS])part, (*part_b)[COLUMNS] = part_w + pieces;
    size_t C = p.channels, c = (size_t)blockIdx.x * COLUMNS + threadIdx.x, sequence = blockIdx.y;
    size_t here = pieces * p.rows / p.all, skip = pieces * p.begin / p.all; /* whole numbers: see norm.h */
    for (size_t i = threadIdx.y; i < here; i += blockDim.y) {
        size_t from = (skip + i) * p.all / pieces - p.begin, to = (skip + i + 1) * p.all / pieces - p.begin;
        float w = 0.0f, b = 0.0f;
        for (size_t t = from; c < C && t < to; t++) {
            float d = model_load((const S *)p.dy + sequence * p.step_dy + t * C + c);
            b = b + d;
            if (p.x) {
                size_t row = sequence * p.rows + t;
                float v = model_load((const S *)p.x + row * C + c), s = p.rstd[row];
                w = w + d * (p.norm == MODEL_NORM_RMS ? v * s : (v - p.mean[row]) * s);
            }
        }
        part_w[i][threadIdx.x] = w;
        part_b[i][threadIdx.x] = b;
    }
    for (size_t n = 1; n < here; n *= 2) {
        __syncthreads();
        for (size_t i = threadIdx.y * 2 * n; i + n < here; i += blockDim.y * 2 * n) {
            part_w[i][threadIdx.x] = part_w[i][threadIdx.x] + part_w[i + n][threadIdx.x];
            part_b[i][threadIdx.x] = part_b[i][threadIdx.x] + part_b[i + n][threadIdx.x];
        }
    }
    if (threadIdx.y != 0 || c >= C) /* the threads that wrote piece 0 last */
        return;
    if (p.x)
        p.sum_w[sequence * p.step_sum + c] = part_w[0][threadIdx.x];
    if (p.sum_b)
        p.sum_b[sequence * p.step_sum + c] = part_b[0][threadIdx.x];
}

extern "C" gyre_status_t model_cuda_position_sums(const model_cuda_position_sums_t *p,
                                                  struct CUstream_st *stream)
{
    size_t pieces = 1;
    while (pieces < (size_t)PIECES && 2 * pieces * SHORTEST <= p->all)
        pieces *= 2;
    pieces = p->leaves > pieces ? p->leaves : pieces;
    dim3 grid((unsigned)((p->channels + COLUMNS - 1) / COLUMNS), (unsigned)p->sequences);
    dim3 block(COLUMNS, (unsigned)(pieces < (size_t)PIECES ? pieces : (size_t)PIECES));
    size_t bytes = 2 * pieces * COLUMNS * sizeof(float);
    cudaError_t rc = p->type == MODEL_CUDA_BF16
                         ? GYRE_LAUNCH(position_sums<uint16_t>, grid, block, bytes, stream, *p, pieces)
                         : GYRE_LAUNCH(position_sums<float>, grid, block, bytes, stream, *p, pieces);
    return model_cuda_launched(rc, "position_sums", grid, block);
}
