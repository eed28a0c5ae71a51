/* SPDX-License-Identifier: Apache-2.0 */
/* model/gpu/layers/norm.cu: residual and norms. Compiled without contraction. */
#include "model/gpu/layers/launch.h"
#include "model/gpu/layers/norm.h"
#include "model/gpu/layers/rows.h"

enum { ROOM = 48 * 1024 /* shared memory for the rows of a block */ };

/* v = drop(v), elements `index` and after it: a block of four numbers at a time where they begin one. */
static __device__ __forceinline__ void drop_some(float (&v)[EACH], const uint32_t *key,
                                                 const model_cuda_dropout_t &drop, uint64_t index)
{
    if (index % 4 != 0) {
#pragma unroll
        for (int i = 0; i < EACH; i++)
            v[i] = model_drop(v[i], key, drop.place, index + (unsigned)i, drop.below, drop.kept);
        return;
    }
#pragma unroll
    for (int i = 0; i < EACH; i += 4) {
        uint32_t number[4];
        model_dropout_numbers(key, drop.place, (index + (unsigned)i) / 4, number);
#pragma unroll
        for (int k = 0; k < 4; k++)
            v[i + k] = number[k] < drop.below ? 0.0f : v[i + k] * drop.kept;
    }
}

/* As model_join_leaves, of `left` elements side by side. */
static __device__ __forceinline__ void join_some(float (&v)[EACH], const float *part, size_t leaves,
                                                 size_t count, size_t left, int wide)
{
    float other[EACH], right[EACH];
    if (leaves > 4) {
#pragma unroll
        for (int i = 0; i < EACH; i++)
            v[i] = (size_t)i < left ? model_join_leaves(part, leaves, count, (size_t)i) : 0.0f;
        return;
    }
    load_part(v, part, left, wide);
    if (leaves == 1)
        return;
    load_part(other, part + count, left, wide);
#pragma unroll
    for (int i = 0; i < EACH; i++)
        v[i] = v[i] + other[i];
    if (leaves == 2)
        return;
    load_part(right, part + 2 * count, left, wide);
    load_part(other, part + 3 * count, left, wide);
#pragma unroll
    for (int i = 0; i < EACH; i++)
        v[i] = v[i] + (right[i] + other[i]);
}

/* A row's place: sequence and position in it. */
typedef struct {
    size_t row, sequence, t;
} place_t;

static __device__ __forceinline__ place_t place_of(const model_cuda_norm_t &p, size_t row)
{
    size_t sequence = row / p.rows;
    return place_t{row, sequence, row - sequence * p.rows};
}

/* The residual stream's row after a branch, channels c and after it: stored, and returned as stored. */
template <typename S>
static __device__ __forceinline__ void residual_at(float (&v)[EACH], const model_cuda_norm_t &p,
                                                   const place_t &at, size_t c, int wide)
{
    size_t C = p.channels, left = C - c;
    float x[EACH], bias[EACH];
    load_part(x, (const S *)p.x + at.sequence * p.step_x + at.t * C + c, left, wide);
    join_some(v, p.sum + at.row * C + c, p.leaves, p.sequences * p.rows * C, left, wide);
    if (p.bias) {
        load_part(bias, (const S *)p.bias + c, left, wide);
#pragma unroll
        for (int i = 0; i < EACH; i++)
            v[i] = v[i] + bias[i];
    }
    if (p.drop.keys)
        drop_some(v, p.drop.keys + at.sequence * 4, p.drop, p.drop.first + at.t * C + c);
#pragma unroll
    for (int i = 0; i < EACH; i++)
        v[i] = model_rounded((const S *)p.out, p.alpha * x[i] + v[i]);
    store_part((S *)p.out + at.row * C + c, v, left, wide);
}

/* Where a row waits after the residual. */
template <typename S>
static __device__ __forceinline__ const S *row_at(const model_cuda_norm_t &p, const S *kept, size_t pitch,
                                                  size_t first, size_t row)
{
    if (pitch > 0)
        return kept + (row - first) * pitch;
    if (p.sum)
        return (const S *)p.out + row * p.channels;
    const place_t at = place_of(p, row);
    return (const S *)p.x + at.sequence * p.step_x + at.t * p.channels;
}

/* A warp: two rows, one after the other where it goes by channels, half a warp each for their sums. Shared:
 * the rows, `pitch` elements apart; pitch 0: they do not fit, and are read again from memory. */
template <typename S>
static __global__ void __launch_bounds__(128, 6)
    norm_forward(const model_cuda_norm_t p, size_t pitch, int wide)
{
    GYRE_DYNAMIC_SHARED(S, shared);
    size_t all = p.sequences * p.rows, C = p.channels;
    unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    size_t first = ((size_t)blockIdx.x * (blockDim.x / WARP) + warp) * 2;
    int rms = p.norm == MODEL_NORM_RMS;
    size_t last = first + 1 < all ? first + 1 : first; /* of an odd number of rows the last one is alone */
    S *const kept = shared + warp * 2 * pitch;
    if (first >= all) /* a whole warp */
        return;
#pragma unroll 1
    for (size_t row = first; row <= last; row++) {
        const place_t at = place_of(p, row);
        const S *x = (const S *)p.x + at.sequence * p.step_x + at.t * C;
        for (size_t c = lane * EACH; c < C && (p.sum || pitch > 0); c += WARP * EACH) {
            float v[EACH];
            if (p.sum)
                residual_at<S>(v, p, at, c, wide);
            else
                load_part(v, x + c, C - c, wide);
            if (pitch > 0)
                store_part(kept + (row - first) * pitch + c, v, C - c, wide);
        }
    }
    if (!p.y)
        return;
    __syncwarp();
    const S *mine = row_at(p, kept, pitch, first, lane < MODEL_LANES ? first : last);
    float acc = 0.0f, m = 0.0f;
#pragma unroll 8
    for (size_t c = lane % MODEL_LANES; c < C; c += MODEL_LANES) {
        float v = model_load(mine + c);
        acc = acc + (rms ? v * v : v);
    }
    acc = model_join_lanes(acc);
    if (!rms) {
        m = acc / (float)C;
        acc = 0.0f;
#pragma unroll 8
        for (size_t c = lane % MODEL_LANES; c < C; c += MODEL_LANES) {
            float v = model_load(mine + c) - m;
            acc = acc + v * v;
        }
        acc = model_join_lanes(acc);
    }
    float s = 1.0f / sqrtf(acc / (float)C + p.eps);
#pragma unroll 1
    for (size_t row = first; row <= last; row++) {
        const int from = (int)(row - first) * MODEL_LANES;
        const float mean = __shfl_sync(0xffffffffu, m, from), rstd = __shfl_sync(0xffffffffu, s, from);
        const place_t at = place_of(p, row);
        const S *x = row_at(p, kept, pitch, first, row);
        S *y = (S *)p.y + at.sequence * p.step_y + at.t * C;
        for (size_t c = lane * EACH; c < C; c += WARP * EACH) {
            float v[EACH], w[EACH], b[EACH];
            load_part(v, x + c, C - c, wide);
            load_part(w, (const S *)p.w + c, C - c, wide);
            if (!rms)
                load_part(b, (const S *)p.b + c, C - c, wide);
#pragma unroll
            for (int i = 0; i < EACH; i++)
                v[i] = rms ? v[i] * rstd * w[i] : (v[i] - mean) * rstd * w[i] + b[i];
            if (p.drop_y.keys)
                drop_some(v, p.drop_y.keys + at.sequence * 4, p.drop_y, p.drop_y.first + at.t * C + c);
            store_part(y + c, v, C - c, wide);
        }
        if (lane == 0) {
            p.rstd[row] = rstd;
            if (!rms)
                p.mean[row] = mean;
        }
    }
}

extern "C" gyre_status_t model_cuda_norm(const model_cuda_norm_t *p, struct CUstream_st *stream)
{
    size_t size = bytes_of(p->type), pitch = p->y ? pitch_of(p->channels) : 0, warps = 4;
    while (warps > 1 && warps * 2 * pitch * size > ROOM)
        warps /= 2;
    if (warps * 2 * pitch * size > ROOM)
        pitch = 0;
    const int wide = p->channels % EACH == 0 && is_wide(p->x, p->step_x, size) && is_wide(p->sum, 0, 1) &&
                     is_wide(p->bias, 0, 1) && is_wide(p->out, 0, 1) && is_wide(p->y, p->step_y, size) &&
                     is_wide(p->w, 0, 1) && is_wide(p->b, 0, 1);
    dim3 grid((unsigned)((p->sequences * p->rows + 2 * warps - 1) / (2 * warps))),
        block((unsigned)warps * WARP);
    if (grid.x == 0)
        return GYRE_OK;
    size_t bytes = warps * 2 * pitch * size;
    cudaError_t rc = p->type == MODEL_CUDA_BF16
                         ? GYRE_LAUNCH(norm_forward<uint16_t>, grid, block, bytes, stream, *p, pitch, wide)
                         : GYRE_LAUNCH(norm_forward<float>, grid, block, bytes, stream, *p, pitch, wide);
    return model_cuda_launched(rc, "norm_forward", grid, block);
}
