/* SPDX-License-Identifier: Apache-2.0 */
/* model/gpu/attention/weights.h: what the kernels of mma.cu and wgmma.cu do between products: scores become
 * weights, forward under a running maximum, backward from the stored log-sum-exp. Both kernels have scores
 * in tiles of 16 x 8, a lane's four elements of each as gyre_mma_bf16 has them. */
#ifndef MODEL_GPU_ATTENTION_WEIGHTS_H
#define MODEL_GPU_ATTENTION_WEIGHTS_H

#include "model/gpu/attention/internal.h"

static constexpr int COLUMNS = 64; /* a block goes through so many at a time */

/* Of J tiles of 16 x 8 side by side: bit 4 j + e: dropout takes element e of tile j. The lane's first element
 * is (r, c) of the head, rows being queries, or keys (OF_KEYS). */
template <int OF_KEYS, int J>
static __device__ __forceinline__ uint32_t lost_of(const model_cuda_attention_t *a, int b, int head, int r,
                                                   int c)
{
    uint32_t lost = 0;
#pragma unroll 1
    for (int i = 0; i < J * 4; i += OF_KEYS ? 1 : 2) {
        int row = r + (i & 2) * 4, column = c + i / 4 * 8 + (i & 1);
        uint32_t pair =
            dropped_pair(a, b, first_element(a, head, OF_KEYS ? column : row) + (OF_KEYS ? row : column));
        lost |= (OF_KEYS ? pair & 1 : pair)
                << i; /* neighbours in memory are neighbours here where columns are keys */
    }
    return lost;
}

/* One row of a tile of 16, the lane's upper or lower: its scores with 64 columns, of which the lane's first
 * is c, become weights under the largest so far, and what was added up before is rescaled. */
template <int D>
static __device__ __forceinline__ void soften(float s[COLUMNS / 8][4], float out[D / 8][4], float *largest,
                                              float *sum, int upper, const attend_t *p, float slope, int row,
                                              int prefix, int c, int masked)
{
    const int sees = seen(row, prefix), last = (sees < (int)p->a.T ? sees : (int)p->a.T) - c;
    float top = *largest, add = 0;
    if (slope > 0)
#pragma unroll
        for (int j = 0; j < COLUMNS / 8; j++)
#pragma unroll
            for (int e = 0; e < 2; e++)
                s[j][upper + e] -= slope * fabsf((float)(row - (c + j * 8 + e)));
    if (masked)
#pragma unroll
        for (int j = 0; j < COLUMNS / 8; j++)
#pragma unroll
            for (int e = 0; e < 2; e++)
                if (j * 8 + e >= last)
                    s[j][upper + e] = -INFINITY;
#pragma unroll
    for (int j = 0; j < COLUMNS / 8; j++)
        top = fmaxf(top, fmaxf(s[j][upper], s[j][upper + 1]));
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2)); /* finite: every row sees column 0 */
    const float shrink = power_2((*largest - top) * p->scale_2), top_2 = top * p->scale_2;
#pragma unroll
    for (int j = 0; j < COLUMNS / 8; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            float x = power_2(s[j][upper + e] * p->scale_2 - top_2);
            s[j][upper + e] = x;
            add += x;
        }
    *largest = top;
    *sum = *sum * shrink + add;
#pragma unroll
    for (int j = 0; j < D / 8; j++) {
        out[j][upper] *= shrink;
        out[j][upper + 1] *= shrink;
    }
}

/* Of J tiles of 16 x 8 side by side: w, which are scores, become weights after dropout; d, which is do v^T,
 * the scores' gradients. The lane's first element is (r, c) of the head, and its queries' numbers begin at
 * lse and delta. */
template <int OF_KEYS, int J>
static __device__ __forceinline__ void weigh(float w[][4], float d[][4], const attend_t *p, int b, int head,
                                             int prefix, int r, int c, const float *lse, const float *delta,
                                             int masked)
{
    const model_cuda_attention_t *a = &p->a;
    const float slope = a->slopes ? a->slopes[head] * LOG2E : 0;
#define COLUMN(j, e) ((j)*8 + ((e)&1))
#define ROW(e)       (((e)&2) * 4)
#define QUERY(j, e)  (OF_KEYS ? COLUMN(j, e) : ROW(e))
#pragma unroll
    for (int j = 0; j < J; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            w[j][e] = w[j][e] * p->scale_2 - lse[QUERY(j, e)];
    if (slope > 0)
#pragma unroll
        for (int j = 0; j < J; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                w[j][e] -= slope * fabsf((float)(r - c + ROW(e) - COLUMN(j, e)));
    if (masked)
#pragma unroll
        for (int j = 0; j < J; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int row = r + ROW(e), column = c + COLUMN(j, e), query = OF_KEYS ? column : row,
                    key = OF_KEYS ? row : column;
                if (key >= seen(query, prefix) || key >= (int)a->T)
                    w[j][e] = -INFINITY;
            }
#pragma unroll
    for (int j = 0; j < J; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            w[j][e] = power_2(w[j][e]);
    const uint32_t lost = a->keys ? lost_of<OF_KEYS, J>(a, b, head, r, c) : 0;
    if (a->keys)
#pragma unroll
        for (int j = 0; j < J; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                d[j][e] = lost >> (j * 4 + e) & 1 ? 0 : d[j][e] * a->kept;
#pragma unroll
    for (int j = 0; j < J; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            d[j][e] = w[j][e] * (d[j][e] - delta[QUERY(j, e)]);
    if (a->keys)
#pragma unroll
        for (int j = 0; j < J; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                w[j][e] = lost >> (j * 4 + e) & 1 ? 0 : w[j][e] * a->kept;
#undef COLUMN
#undef ROW
#undef QUERY
}

#endif
