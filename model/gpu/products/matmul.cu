/* SPDX-License-Identifier: Apache-2.0 */
/* model/gpu/products/matmul.cu: products of matrices without cuBLASLt: bf16 on tensor cores, fp32 on the
 * ordinary units.
 *
 * The scheme is CUTLASS's (Kerr, Merrill, Demouth, Tran 2017, "CUTLASS: fast linear algebra in CUDA C++"). A
 * block computes a tile of D. Pieces of A and B of 32 (bf16) or 16 (fp32) of K's elements pass through shared
 * memory, several under way. Each warp has a part of the tile in registers. Every element of D is one sum
 * over K from the first piece to the last, in any tile; padding adds zeros at the end. So bits depend neither
 * on M, N and the batch nor on the tile's size. The tile then goes through shared memory: the epilogue works
 * on rows of eight elements, and a thread writes 16 or 32 bytes at once.
 *
 * Registers per thread: docs/gpu-training.md. */
#include "base/device/kernel.h"

#include <stdint.h>
#include <string.h>

#include "model/gpu/products/internal.h"
#include "model/gpu/scalar.h"

typedef __nv_bfloat16 bf16;

typedef struct {
    model_cuda_product_t p;
    const void *A, *B;
    void *D;
    int fast_a, fast_b, fast_d, fast_pre; /* 16-byte accesses are aligned */
    int tiles_m, tiles_n;
} args_t;

/* ---- activations: the host's source -------------------------------------------------------------------- */

/* Not inlined: one copy for the epilogues of all kernels. */
static __device__ __attribute__((noinline)) float act_value(int act, float x)
{
    return model_act(act, x);
}

static __device__ __attribute__((noinline)) float act_slope(int act, float x)
{
    return model_act_slope(act, x);
}

/* ---- eight elements of a row, of either type ----------------------------------------------------------- */

/* x[i] = element `at` + i for i < n <= 8. */
static __device__ __forceinline__ void read8(float x[8], const void *data, size_t at, int n, int type,
                                             int fast)
{
    if (type == MODEL_CUDA_BF16) {
        const bf16 *from = (const bf16 *)data + at;
        if (fast && n == 8) {
            const uint4 raw = *(const uint4 *)from;
            const uint32_t two[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
            for (int i = 0; i < 8; i++) /* a bf16 is the upper half of a float */
                x[i] = __uint_as_float(i % 2 ? two[i / 2] & 0xffff0000u : two[i / 2] << 16);
        } else {
#pragma unroll
            for (int i = 0; i < 8; i++)
                x[i] = i < n ? __bfloat162float(from[i]) : 0;
        }
    } else {
        const float *from = (const float *)data + at;
        if (fast && n == 8) {
            float4 low = *(const float4 *)from, high = *(const float4 *)(from + 4);
            x[0] = low.x, x[1] = low.y, x[2] = low.z, x[3] = low.w;
            x[4] = high.x, x[5] = high.y, x[6] = high.z, x[7] = high.w;
        } else {
#pragma unroll
            for (int i = 0; i < 8; i++)
                x[i] = i < n ? from[i] : 0;
        }
    }
}

static __device__ __forceinline__ void write8(void *data, size_t at, const float x[8], int n, int type,
                                              int fast)
{
    if (type == MODEL_CUDA_BF16) {
        bf16 *to = (bf16 *)data + at;
        if (fast && n == 8) {
            uint32_t two[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                __nv_bfloat162 pair = __floats2bfloat162_rn(x[2 * i], x[2 * i + 1]);
                memcpy(&two[i], &pair, sizeof(pair));
            }
            *(uint4 *)to = make_uint4(two[0], two[1], two[2], two[3]);
        } else {
#pragma unroll
            for (int i = 0; i < 8; i++)
                if (i < n)
                    to[i] = __float2bfloat16(x[i]);
        }
    } else {
        float *to = (float *)data + at;
        if (fast && n == 8) {
            *(float4 *)to = make_float4(x[0], x[1], x[2], x[3]);
            *(float4 *)(to + 4) = make_float4(x[4], x[5], x[6], x[7]);
        } else {
#pragma unroll
            for (int i = 0; i < 8; i++)
                if (i < n)
                    to[i] = x[i];
        }
    }
}

/* The epilogue of eight elements of row `row`, from column `col` on, of product z: v becomes what is
 * stored. */
static __device__ __forceinline__ void epilogue8(const args_t *a, float v[8], size_t row, size_t col, int n,
                                                 size_t z)
{
    const model_cuda_product_t *p = &a->p;
    float other[8];
    size_t at = z * p->step_d + row * p->ldd + col, at_pre = z * p->step_pre + row * p->ldpre + col;
    if (p->epilogue != MODEL_CUDA_PLAIN && p->epilogue != MODEL_CUDA_ACT_BACK && p->bias) {
        read8(other, p->bias, z * p->step_bias + col, n, p->out, 0);
#pragma unroll
        for (int i = 0; i < 8; i++)
            v[i] += other[i];
    }
    if (p->epilogue == MODEL_CUDA_ACT) {
        if (p->out == MODEL_CUDA_BF16) /* backward sees the rounded one */
#pragma unroll
            for (int i = 0; i < 8; i++)
                v[i] = __bfloat162float(__float2bfloat16(v[i]));
        if (p->pre)
            write8(p->pre, at_pre, v, n, p->out, a->fast_pre);
#pragma unroll
        for (int i = 0; i < 8; i++)
            v[i] = act_value(p->act, v[i]);
    } else if (p->epilogue == MODEL_CUDA_ACT_BACK) {
        read8(other, p->pre, at_pre, n, p->out, a->fast_pre);
#pragma unroll
        for (int i = 0; i < 8; i++)
            v[i] *= act_slope(p->act, other[i]);
    }
    write8(a->D, at, v, n, p->out, a->fast_d);
}

/* Stores a tile of BM x BN that lies in shared memory, rows BN + 8 apart. */
template <int BM, int BN, int THREADS>
static __device__ __forceinline__ void finish(const args_t *a, const float *tile, int m0, int n0, size_t z)
{
    const model_cuda_product_t *p = &a->p;
    for (int i = threadIdx.x; i < BM * BN / 8; i += THREADS) {
        int r = i / (BN / 8), c = i % (BN / 8) * 8;
        size_t row = m0 + r, col = n0 + c;
        if (row >= p->M || col >= p->N)
            continue;
        int n = p->N - col < 8 ? (int)(p->N - col) : 8;
        float v[8];
        read8(v, tile, r * (BN + 8) + c, 8, MODEL_CUDA_F32, 1);
#pragma unroll
        for (int e = 0; e < 8; e++)
            v[e] *= p->alpha;
        if (p->beta != 0) {
            float before[8];
            read8(before, a->D, z * p->step_d + row * p->ldd + col, n, p->out, a->fast_d);
#pragma unroll
            for (int e = 0; e < 8; e++)
                v[e] += p->beta * before[e];
        }
        epilogue8(a, v, row, col, n, z);
    }
}

/* Which tile a block computes: eight rows of tiles are walked through together, so that what is in the L2
 * cache is used again. */
static __device__ __forceinline__ void tile_of(const args_t *a, int *m, int *n)
{
    int band = (int)blockIdx.x / (8 * a->tiles_n), first = band * 8,
        in_band = (int)blockIdx.x - band * 8 * a->tiles_n;
    int rows = a->tiles_m - first < 8 ? a->tiles_m - first : 8;
    *m = first + in_band % rows;
    *n = in_band / rows;
}

/* ---- bf16 ---------------------------------------------------------------------------------------------- */

enum { BK = 32, STAGES = 4 };

/* A piece of an operand in shared memory has lines of W groups of eight elements: along K (32 of them) for
 * each of R rows or columns of D, or R of those for each k, as it lies in memory. Group c of line r is at
 * at<W>(r, c), where the same group of eight successive lines has eight different places in the banks, for
 * ldmatrix. */
template <int W> static __device__ __forceinline__ int place(int r, int c)
{
    return W == 4 ? (r * 4 + (c ^ (r >> 1 & 3))) * 8 : (r * W + (c ^ (r & 7))) * 8;
}

/* What a thread of the 128 brings of every piece of an operand. */
template <int ALONG_K, int R> struct feed_t {
    static constexpr int W = ALONG_K ? BK / 8 : R / 8, STEP = 128 / W, PASSES = (ALONG_K ? R : BK) / STEP;
    const bf16 *base, *at; /* its first group of the next piece */
    size_t step, advance;  /* elements to its next group, to the next piece */
    int line, chunk;
    int have, left; /* lines (along K) or elements of a group (else) that exist; elements of K to come */
    int fast;

    __device__ __forceinline__ void begin(const bf16 *x, size_t ld, int r0, int rows, int K, int aligned)
    {
        line = (int)threadIdx.x / W;
        chunk = (int)threadIdx.x % W;
        base = x;
        at = ALONG_K ? x + (size_t)(r0 + line) * ld + chunk * 8 : x + (size_t)line * ld + r0 + chunk * 8;
        step = STEP * ld;
        advance = BK * (ALONG_K ? 1 : ld);
        have = ALONG_K ? rows - r0 : rows - r0 - chunk * 8;
        left = K;
        fast = aligned;
    }

    __device__ __forceinline__ void load(bf16 *piece)
    {
        int along = left - chunk * 8;
#pragma unroll
        for (int j = 0; j < PASSES; j++) {
            int l = line + j * STEP, n = ALONG_K ? (l < have ? along : 0) : (l < left ? have : 0);
            n = n < 0 ? 0 : n > 8 ? 8 : n;
            bf16 *to = piece + place<W>(l, chunk);
            const bf16 *from = at + j * step;
            if (fast) {
                gyre_cp_async16(to, n > 0 ? from : base, 2 * n);
            } else {
#pragma unroll
                for (int e = 0; e < 8; e++)
                    to[e] = e < n ? from[e] : __float2bfloat16(0);
            }
        }
        at += advance;
        left -= BK;
    }
};

/* D tile [BM,BN] by 128 threads: four warps of [BM/2,BN/2]; grid x: tiles, z: the batch.
 * Dynamic shared memory: STAGES pieces of A and B, then the tile. */
template <int TA, int TB, int BM, int BN>
__global__ void __launch_bounds__(128, BM == 128 ? 2 : 4) product_bf16(const __grid_constant__ args_t a)
{
    constexpr int MT = BM / 32, NT = BN / 16; /* tiles of the tensor cores, 16 x 8, in a warp's part */
    constexpr int WA = TA ? BM / 8 : 4, WB = TB ? 4 : BN / 8;
    constexpr int PIECE_A = BM * BK, PIECE_B = BN * BK;
    GYRE_DYNAMIC_SHARED(bf16, shared);
    bf16 *piece_a = shared, *piece_b = shared + STAGES * PIECE_A;
    const model_cuda_product_t *p = &a.p;
    int tile_m, tile_n;
    tile_of(&a, &tile_m, &tile_n);
    const int m0 = tile_m * BM, n0 = tile_n * BN, K = (int)p->K;
    const size_t z = blockIdx.z;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, wm = warp / 2 * (BM / 2),
              wn = warp % 2 * (BN / 2);

    feed_t<!TA, BM> feed_a;
    feed_t<TB, BN> feed_b;
    feed_a.begin((const bf16 *)a.A + z * p->step_a, p->lda, m0, (int)p->M, K, a.fast_a);
    feed_b.begin((const bf16 *)a.B + z * p->step_b, p->ldb, n0, (int)p->N, K, a.fast_b);

    float acc[MT][NT][4];
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int j = 0; j < NT; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                acc[i][j][e] = 0;

    const int pieces = (K + BK - 1) / BK;
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < pieces) {
            feed_a.load(piece_a + s * PIECE_A);
            feed_b.load(piece_b + s * PIECE_B);
        }
        gyre_cp_async_commit(); /* also an empty group: the count of groups shows how far the pieces are */
    }
    for (int piece = 0; piece < pieces; piece++) {
        gyre_cp_async_wait<STAGES - 2>();
        /* all threads' parts of this piece are there, and no thread reads the one before any longer */
        __syncthreads();
        if (piece + STAGES - 1 < pieces) {
            int s = (piece + STAGES - 1) % STAGES;
            feed_a.load(piece_a + s * PIECE_A);
            feed_b.load(piece_b + s * PIECE_B);
        }
        gyre_cp_async_commit();
        const bf16 *in_a = piece_a + piece % STAGES * PIECE_A, *in_b = piece_b + piece % STAGES * PIECE_B;
#pragma unroll
        for (int ks = 0; ks < BK / 16; ks++) {
            uint32_t fa[MT][4], fb[NT / 2][4];
            const int eighth = lane % 8, odd = lane / 8 & 1, upper = lane / 16;
#pragma unroll
            for (int i = 0; i < MT; i++) {
                if (TA)
                    gyre_ldmatrix_x4_trans(
                        fa[i], in_a + place<WA>(ks * 16 + upper * 8 + eighth, (wm + i * 16) / 8 + odd));
                else
                    gyre_ldmatrix_x4(fa[i], in_a + place<WA>(wm + i * 16 + odd * 8 + eighth, ks * 2 + upper));
            }
#pragma unroll
            for (int j = 0; j < NT / 2; j++) {
                if (TB)
                    gyre_ldmatrix_x4(fb[j], in_b + place<WB>(wn + j * 16 + upper * 8 + eighth, ks * 2 + odd));
                else
                    gyre_ldmatrix_x4_trans(
                        fb[j], in_b + place<WB>(ks * 16 + odd * 8 + eighth, (wn + j * 16) / 8 + upper));
            }
#pragma unroll
            for (int i = 0; i < MT; i++)
#pragma unroll
                for (int j = 0; j < NT; j++)
                    gyre_mma_bf16(acc[i][j], fa[i], &fb[j / 2][j % 2 * 2]);
        }
    }
    gyre_cp_async_wait<0>();
    __syncthreads();

    float *tile = (float *)shared;
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int j = 0; j < NT; j++) {
            float *at = tile + (wm + i * 16 + lane / 4) * (BN + 8) + wn + j * 8 + lane % 4 * 2;
            *(float2 *)at = make_float2(acc[i][j][0], acc[i][j][1]);
            *(float2 *)(at + 8 * (BN + 8)) = make_float2(acc[i][j][2], acc[i][j][3]);
        }
    __syncthreads();
    finish<BM, BN, 128>(&a, tile, m0, n0, z);
}

/* ---- fp32 ---------------------------------------------------------------------------------------------- */

enum { BK_F32 = 16 };

/* A thread's share of a piece: R elements, four at a time, along K or across. */
template <int R>
static __device__ __forceinline__ void fetch_f32(float v[R], const float *x, size_t ld, int along_k, int r0,
                                                 int rows, int k0, int K, int fast)
{
    const int T = 16 * R;
#pragma unroll
    for (int j = 0; j < R / 4; j++) {
        int i = (int)threadIdx.x + j * 256;
        int line = along_k ? r0 + i / 4 : k0 + i / (T / 4),
            first = along_k ? k0 + i % 4 * 4 : r0 + i % (T / 4) * 4;
        int lines = along_k ? rows : K, end = along_k ? K : rows;
        const float *from = x + (size_t)line * ld + first;
        if (fast && line < lines && first + 4 <= end) {
            float4 four = *(const float4 *)from;
            v[j * 4] = four.x, v[j * 4 + 1] = four.y, v[j * 4 + 2] = four.z, v[j * 4 + 3] = four.w;
        } else {
#pragma unroll
            for (int e = 0; e < 4; e++)
                v[j * 4 + e] = line < lines && first + e < end ? from[e] : 0;
        }
    }
}

/* Puts it into piece [BK_F32][T + 4]. */
template <int R> static __device__ __forceinline__ void put_f32(float *piece, const float v[R], int along_k)
{
    const int T = 16 * R;
#pragma unroll
    for (int j = 0; j < R / 4; j++) {
        int i = (int)threadIdx.x + j * 256;
        if (along_k) {
#pragma unroll
            for (int e = 0; e < 4; e++)
                piece[(i % 4 * 4 + e) * (T + 4) + i / 4] = v[j * 4 + e];
        } else {
            *(float4 *)(piece + i / (T / 4) * (T + 4) + i % (T / 4) * 4) =
                make_float4(v[j * 4], v[j * 4 + 1], v[j * 4 + 2], v[j * 4 + 3]);
        }
    }
}

/* D tile [16 R, 16 R] by 256 threads of R x R elements: rows and columns 4 t .. 4 t + 3 of each 64. */
template <int R> __global__ void __launch_bounds__(256) product_f32(const __grid_constant__ args_t a)
{
    constexpr int T = 16 * R, PIECE = BK_F32 * (T + 4);
    GYRE_DYNAMIC_SHARED(float, shared);
    const model_cuda_product_t *p = &a.p;
    int tile_m, tile_n;
    tile_of(&a, &tile_m, &tile_n);
    const int m0 = tile_m * T, n0 = tile_n * T, M = (int)p->M, N = (int)p->N, K = (int)p->K;
    const size_t z = blockIdx.z;
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    const float *A = (const float *)a.A + z * p->step_a, *B = (const float *)a.B + z * p->step_b;
    float acc[R][R], next_a[R], next_b[R];
#pragma unroll
    for (int i = 0; i < R; i++)
#pragma unroll
        for (int j = 0; j < R; j++)
            acc[i][j] = 0;

    const int pieces = (K + BK_F32 - 1) / BK_F32;
    if (pieces > 0) {
        fetch_f32<R>(next_a, A, p->lda, !p->trans_a, m0, M, 0, K, a.fast_a);
        fetch_f32<R>(next_b, B, p->ldb, p->trans_b, n0, N, 0, K, a.fast_b);
    }
    for (int piece = 0; piece < pieces; piece++) {
        float *in_a = shared + piece % 2 * 2 * PIECE, *in_b = in_a + PIECE;
        put_f32<R>(in_a, next_a, !p->trans_a);
        put_f32<R>(in_b, next_b, p->trans_b);
        __syncthreads(); /* the other half of `shared` was read before the barrier of the piece before */
        if (piece + 1 < pieces) {
            fetch_f32<R>(next_a, A, p->lda, !p->trans_a, m0, M, (piece + 1) * BK_F32, K, a.fast_a);
            fetch_f32<R>(next_b, B, p->ldb, p->trans_b, n0, N, (piece + 1) * BK_F32, K, a.fast_b);
        }
#pragma unroll 4
        for (int k = 0; k < BK_F32; k++) {
            float fa[R], fb[R];
#pragma unroll
            for (int h = 0; h < R / 4; h++) {
                float4 x = *(const float4 *)(in_a + k * (T + 4) + h * 64 + ty * 4);
                float4 y = *(const float4 *)(in_b + k * (T + 4) + h * 64 + tx * 4);
                fa[h * 4] = x.x, fa[h * 4 + 1] = x.y, fa[h * 4 + 2] = x.z, fa[h * 4 + 3] = x.w;
                fb[h * 4] = y.x, fb[h * 4 + 1] = y.y, fb[h * 4 + 2] = y.z, fb[h * 4 + 3] = y.w;
            }
#pragma unroll
            for (int i = 0; i < R; i++)
#pragma unroll
                for (int j = 0; j < R; j++)
                    acc[i][j] += fa[i] * fb[j];
        }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < R; i++)
#pragma unroll
        for (int h = 0; h < R / 4; h++)
            *(float4 *)(shared + (i / 4 * 64 + ty * 4 + i % 4) * (T + 8) + h * 64 + tx * 4) =
                make_float4(acc[i][h * 4], acc[i][h * 4 + 1], acc[i][h * 4 + 2], acc[i][h * 4 + 3]);
    __syncthreads();
    finish<T, T, 256>(&a, shared, m0, n0, z);
}

/* ---- the epilogue alone, and sums of columns ----------------------------------------------------------- */

/* Grid x: groups of 256 times 8 elements of all rows, z: the batch. */
static __global__ void __launch_bounds__(256)
    epilogue_alone(const __grid_constant__ args_t a, const void *from, size_t ldfrom, size_t step_from)
{
    const model_cuda_product_t *p = &a.p;
    size_t groups = (p->N + 7) / 8, i = (size_t)blockIdx.x * 256 + threadIdx.x, z = blockIdx.z;
    if (i >= groups * p->M)
        return;
    size_t row = i / groups, col = i % groups * 8;
    int n = p->N - col < 8 ? (int)(p->N - col) : 8;
    float v[8];
    read8(v, from, z * step_from + row * ldfrom + col, n, p->out, a.fast_a);
    epilogue8(&a, v, row, col, n, z);
}

/* partial [z][y][col] = the sum of rows 64 y .. of column col. 128 threads, a column each. */
static __global__ void __launch_bounds__(128)
    sum_blocks(float *partial, const void *d, int type, size_t M, size_t N, size_t ld, size_t step)
{
    size_t col = (size_t)blockIdx.x * 128 + threadIdx.x, first = (size_t)blockIdx.y * MODEL_CUDA_SUM_ROWS;
    size_t end = M - first < MODEL_CUDA_SUM_ROWS ? M : first + MODEL_CUDA_SUM_ROWS;
    if (col >= N)
        return;
    size_t at = blockIdx.z * step + first * ld + col;
    float sum = 0;
    if (type == MODEL_CUDA_BF16) {
#pragma unroll 16
        for (size_t row = first; row < end; row++, at += ld)
            sum += __bfloat162float(((const bf16 *)d)[at]);
    } else {
#pragma unroll 16
        for (size_t row = first; row < end; row++, at += ld)
            sum += ((const float *)d)[at];
    }
    partial[((size_t)blockIdx.z * gridDim.y + blockIdx.y) * N + col] = sum;
}

/* sum [z][col]: lane y of a column adds up partial [z][b][col] for b = y, y + LANES .., and a tree joins the
 * lanes. All loads of 256 blocks are under way at once. Block: [LANES][COLUMNS]. */
enum { COLUMNS = 32, LANES = MODEL_CUDA_SUM_LANES };
static __global__ void __launch_bounds__(COLUMNS *LANES)
    sum_partials(float *sum, size_t step_sum, const float *partial, size_t blocks, size_t N)
{
    GYRE_DYNAMIC_SHARED(float, shared);
    float(*lane)[COLUMNS] = (float(*)[COLUMNS])shared;
    const size_t col = (size_t)blockIdx.x * COLUMNS + threadIdx.x;
    const float *from = partial + blockIdx.z * blocks * N + col;
    float total = 0;
    if (col < N)
#pragma unroll 8
        for (size_t b = threadIdx.y; b < blocks; b += LANES)
            total += from[b * N];
    lane[threadIdx.y][threadIdx.x] = total;
    for (unsigned n = 1; n < LANES; n *= 2) {
        __syncthreads();
        if (threadIdx.y % (2 * n) == 0)
            lane[threadIdx.y][threadIdx.x] += lane[threadIdx.y + n][threadIdx.x];
    }
    if (threadIdx.y == 0 && col < N)
        sum[blockIdx.z * step_sum + col] = lane[0][threadIdx.x];
}

/* ---- launching ----------------------------------------------------------------------------------------- */

/* Whether rows of `ld` elements and matrices of `step` that begin at x can be read 16 bytes at a time. */
static int aligned16(const void *x, size_t ld, size_t step, size_t element)
{
    return (uintptr_t)x % 16 == 0 && ld * element % 16 == 0 && step * element % 16 == 0;
}

static size_t most(size_t a, size_t b)
{
    return a > b ? a : b;
}

typedef void kernel_t(args_t);

extern "C" cudaError_t model_cuda_product_launch(const model_cuda_product_t *product, const void *A,
                                                 const void *B, void *D, model_cuda_tile_t tile,
                                                 cudaStream_t stream)
{
    static kernel_t *const bf16_large[4] = {product_bf16<0, 0, 128, 128>, product_bf16<0, 1, 128, 128>,
                                            product_bf16<1, 0, 128, 128>, product_bf16<1, 1, 128, 128>};
    static kernel_t *const bf16_small[4] = {product_bf16<0, 0, 64, 64>, product_bf16<0, 1, 64, 64>,
                                            product_bf16<1, 0, 64, 64>, product_bf16<1, 1, 64, 64>};
    const size_t in = product->in == MODEL_CUDA_BF16 ? 2 : 4, out = product->out == MODEL_CUDA_BF16 ? 2 : 4;
    const int large = tile == MODEL_CUDA_TILE_LARGE, side = large ? 128 : 64;
    args_t a;
    a.p = *product;
    a.A = A, a.B = B, a.D = D;
    a.fast_a = aligned16(A, product->lda, product->step_a, in);
    a.fast_b = aligned16(B, product->ldb, product->step_b, in);
    a.fast_d = aligned16(D, product->ldd, product->step_d, out);
    a.fast_pre = product->pre && aligned16(product->pre, product->ldpre, product->step_pre, out);
    a.tiles_m = (int)((product->M + side - 1) / side);
    a.tiles_n = (int)((product->N + side - 1) / side);
    dim3 grid((unsigned)a.tiles_m * (unsigned)a.tiles_n, 1, (unsigned)product->batch);
    size_t tile_bytes = (size_t)side * (side + 8) * 4;
    if (product->in == MODEL_CUDA_F32) {
        kernel_t *kernel = large ? product_f32<8> : product_f32<4>;
        return GYRE_LAUNCH(kernel, grid, dim3(256), most(tile_bytes, 4 * BK_F32 * (size_t)(side + 4) * 4),
                           stream, a);
    }
    int which = (product->trans_a ? 2 : 0) + (product->trans_b ? 1 : 0);
    kernel_t *kernel = large ? bf16_large[which] : bf16_small[which];
    return GYRE_LAUNCH(kernel, grid, dim3(128), most(tile_bytes, STAGES * 2 * (size_t)side * BK * 2), stream,
                       a);
}

extern "C" cudaError_t model_cuda_epilogue_launch(const model_cuda_product_t *product, const void *from,
                                                  size_t ldfrom, size_t step_from, void *D,
                                                  cudaStream_t stream)
{
    const size_t out = product->out == MODEL_CUDA_BF16 ? 2 : 4;
    args_t a = {};
    a.p = *product;
    a.D = D;
    a.fast_a = aligned16(from, ldfrom, step_from, out);
    a.fast_d = aligned16(D, product->ldd, product->step_d, out);
    a.fast_pre = product->pre && aligned16(product->pre, product->ldpre, product->step_pre, out);
    size_t blocks = (product->M * ((product->N + 7) / 8) + 255) / 256;
    return GYRE_LAUNCH(epilogue_alone, dim3((unsigned)blocks, 1, (unsigned)product->batch), dim3(256), 0,
                       stream, a, from, ldfrom, step_from);
}

extern "C" cudaError_t model_cuda_column_sum_launch(float *sum, size_t step_sum, float *partial,
                                                    const void *d, model_cuda_type_t type, size_t M, size_t N,
                                                    size_t ld, size_t batch, size_t step, cudaStream_t stream)
{
    size_t blocks = (M + MODEL_CUDA_SUM_ROWS - 1) / MODEL_CUDA_SUM_ROWS;
    cudaError_t rc = cudaSuccess;
    if (blocks > 0)
        rc = GYRE_LAUNCH(sum_blocks, dim3((unsigned)((N + 127) / 128), (unsigned)blocks, (unsigned)batch),
                         dim3(128), 0, stream, partial, d, (int)type, M, N, ld, step);
    if (rc != cudaSuccess)
        return rc;
    return GYRE_LAUNCH(sum_partials, dim3((unsigned)((N + COLUMNS - 1) / COLUMNS), 1, (unsigned)batch),
                       dim3(COLUMNS, LANES), COLUMNS * LANES * sizeof(float), stream, sum, step_sum,
                       (const float *)partial, blocks, N);
}
