/* SPDX-License-Identifier: Apache-2.0 */
/* model/gpu/attention/tiles.h: for mma.cu: tiles of bf16 in shared memory, and products of a warp with them.
 *
 * Rows of a tile in shared memory are D + 8 elements apart: an odd number of 16-byte groups, so ldmatrix's
 * eight rows never meet in a bank. Tiles are padded with zeros to D = 64, 96 or 128 columns, and beyond T. */
#ifndef MODEL_GPU_ATTENTION_TILES_H
#define MODEL_GPU_ATTENTION_TILES_H

#include "model/gpu/attention/internal.h"

/* tile [LINES][D + 8] = rows r0 .. of x, rows `ld` elements apart, by cp.async (fast) or plainly. 8 or 16
 * threads have a row; of D 96 a quarter of them has nothing to do, which costs less than divisions by 12. */
template <int D, int LINES, int THREADS>
static __device__ __forceinline__ void load_tile(bf16 *tile, const bf16 *x, size_t ld, int r0, int T,
                                                 int head_dim, int fast)
{
    constexpr int W = D > 64 ? 16 : 8, STEP = THREADS / W;
    const int c = (int)threadIdx.x % W * 8, line = (int)threadIdx.x / W, here = T - r0 - line;
    const int n = head_dim - c < 0 ? 0 : head_dim - c > 8 ? 8 : head_dim - c;
    const bf16 *from = x + (size_t)(r0 + line) * ld + c;
    bf16 *to = tile + line * (D + 8) + c;
    if (c >= D)
        return;
    if (fast) {
#pragma unroll
        for (int j = 0; j < LINES / STEP; j++, from += STEP * ld) {
            int m = j * STEP < here ? n : 0;
            gyre_cp_async16(to + j * STEP * (D + 8), m > 0 ? from : x, 2 * m);
        }
    } else {
#pragma unroll 1
        for (int j = 0; j < LINES / STEP; j++, from += STEP * ld)
#pragma unroll
            for (int e = 0; e < 8; e++)
                to[j * STEP * (D + 8) + e] = e < n && j * STEP < here ? from[e] : __float2bfloat16(0);
    }
}

/* Fragments of 16 x 16: of the left factor from rows of its own; of the right one for 16 columns of the
 * result, which are rows in memory (`across`) or columns (`along`: the tile is [K][N]). */
template <int D>
static __device__ __forceinline__ void left16(uint32_t f[4], const bf16 *tile, int row, int k)
{
    int lane = threadIdx.x % 32;
    gyre_ldmatrix_x4(f, tile + (row + lane % 16) * (D + 8) + k + lane / 16 * 8);
}

template <int D>
static __device__ __forceinline__ void across16(uint32_t f[4], const bf16 *tile, int row, int k)
{
    int lane = threadIdx.x % 32;
    gyre_ldmatrix_x4(f, tile + (row + lane / 16 * 8 + lane % 8) * (D + 8) + k + (lane / 8 & 1) * 8);
}

template <int D>
static __device__ __forceinline__ void along16(uint32_t f[4], const bf16 *tile, int k, int column)
{
    int lane = threadIdx.x % 32;
    gyre_ldmatrix_x4_trans(f, tile + (k + lane % 16) * (D + 8) + column + lane / 16 * 8);
}

static __device__ __forceinline__ uint32_t pack(float low, float high)
{
    __nv_bfloat162 two = __floats2bfloat162_rn(low, high);
    uint32_t bits;
    memcpy(&bits, &two, sizeof(bits));
    return bits;
}

/* Two neighbouring tiles of a result, 16 x 8 each, as the left factor of the next product. */
static __device__ __forceinline__ void as_left(uint32_t f[4], const float a[4], const float b[4])
{
    f[0] = pack(a[0], a[1]);
    f[1] = pack(a[2], a[3]);
    f[2] = pack(b[0], b[1]);
    f[3] = pack(b[2], b[3]);
}

/* Rows row .. of a tile as left factors, of all channels. */
template <int D, int I>
static __device__ __forceinline__ void keep(uint32_t kept[I][D / 16][4], const bf16 *rows, int row)
{
#pragma unroll
    for (int i = 0; i < I; i++)
#pragma unroll
        for (int kk = 0; kk < D; kk += 16)
            left16<D>(kept[i][kk / 16], rows, row + i * 16, kk);
}

/* s [16 I, C] of a warp = rows row .. of one tile, or those `kept`, times rows column .. of another, over the
 * channels. */
template <int D, int I, int C>
static __device__ __forceinline__ void scores(float s[I][C / 8][4], const uint32_t (*kept)[D / 16][4],
                                              const bf16 *rows, int row, const bf16 *columns, int column)
{
#pragma unroll
    for (int i = 0; i < I; i++)
#pragma unroll
        for (int j = 0; j < C / 8; j++)
            s[i][j][0] = s[i][j][1] = s[i][j][2] = s[i][j][3] = 0;
#pragma unroll
    for (int kk = 0; kk < D; kk += 16) {
        uint32_t left[I][4], right[4];
#pragma unroll
        for (int i = 0; i < I; i++)
            if (kept) /* known when this is compiled */
                memcpy(left[i], kept[i][kk / 16], sizeof left[i]);
            else
                left16<D>(left[i], rows, row + i * 16, kk);
#pragma unroll
        for (int j = 0; j < C / 16; j++) {
            across16<D>(right, columns, column + j * 16, kk);
#pragma unroll
            for (int i = 0; i < I; i++) {
                gyre_mma_bf16(s[i][2 * j], left[i], right);
                gyre_mma_bf16(s[i][2 * j + 1], left[i], right + 2);
            }
        }
    }
}

/* acc [16 I, D] of a warp += w [16 I, C], as bf16, times rows column .. of a tile. */
template <int D, int I, int C>
static __device__ __forceinline__ void gather(float acc[I][D / 8][4], const float w[I][C / 8][4],
                                              const bf16 *columns, int column)
{
#pragma unroll
    for (int kk = 0; kk < C; kk += 16) {
        uint32_t left[I][4], right[4];
#pragma unroll
        for (int i = 0; i < I; i++)
            as_left(left[i], w[i][kk / 8], w[i][kk / 8 + 1]);
#pragma unroll
        for (int j = 0; j < D / 16; j++) {
            along16<D>(right, columns, column + kk, j * 16);
#pragma unroll
            for (int i = 0; i < I; i++) {
                gyre_mma_bf16(acc[i][2 * j], left[i], right);
                gyre_mma_bf16(acc[i][2 * j + 1], left[i], right + 2);
            }
        }
    }
}

/* A warp stores 16 rows x D of a result, times `factor` of the two rows that a lane has. It goes through its
 * own rows of a tile that is no longer used. */
template <int D>
static __device__ __forceinline__ void store16(bf16 *x, size_t ld, int r0, int T, int head_dim, int fast,
                                               bf16 *tile, const float acc[D / 8][4], float factor_0,
                                               float factor_1)
{
    int lane = threadIdx.x % 32;
    __syncwarp();
#pragma unroll
    for (int j = 0; j < D / 8; j++) {
        bf16 *at = tile + lane / 4 * (D + 8) + j * 8 + lane % 4 * 2;
        *(uint32_t *)at = pack(acc[j][0] * factor_0, acc[j][1] * factor_0);
        *(uint32_t *)(at + 8 * (D + 8)) = pack(acc[j][2] * factor_1, acc[j][3] * factor_1);
    }
    __syncwarp();
    for (int i = lane; i < 16 * (D / 8); i += 32) {
        int r = i / (D / 8), c = i % (D / 8) * 8;
        if (r0 + r >= T || c >= head_dim)
            continue;
        const bf16 *from = tile + r * (D + 8) + c;
        bf16 *to = x + (size_t)(r0 + r) * ld + c;
        if (fast) {
            *(uint4 *)to = *(const uint4 *)from;
        } else {
            for (int e = 0; e < 8 && c + e < head_dim; e++)
                to[e] = from[e];
        }
    }
}

#endif
