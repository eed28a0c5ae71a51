/* SPDX-License-Identifier: Apache-2.0 */
/* model/gpu/attention/mma.cu: FlashAttention-2 (Dao 2023), forward and backward, for bf16 on tensor cores.
 *
 * Forward (algorithm 1): a block has 128 rows of one head and goes through the keys that these rows see, 64
 * at a time. For each row it keeps the largest score so far, the sum of exponentials under it, and the
 * product with the values; both are rescaled when the largest grows. Exponentials are powers of two of scores
 * times scale log2(e): one fused multiply-add and one instruction each.
 *
 * Backward (algorithm 2), without its atomics: the weights are computed again from the stored log-sum-exp,
 * once in blocks of 128 keys that go through the queries (dk, dv) and once in blocks of 128 queries that go
 * through the keys (dq). That is seven products instead of five, and every sum belongs to one thread, in one
 * order. Both are one kernel, `backward`, whose block has "rows" (the 128 that stay) and "columns" (the 64
 * that pass).
 *   delta = rowsum(do o);  p = e^(s - lse);  dp = drop(do v^T);  ds = p (dp - delta)
 *   dv = drop(p)^T do;  dk = scale ds^T q;  dq = scale ds k */
#include "model/gpu/attention/internal.h"
#include "model/gpu/attention/tiles.h"
#include "model/gpu/attention/weights.h"

/* ---- forward ------------------------------------------------------------------------------------------- */

enum { ROWS = 128 };

/* Grid: x blocks of rows, the last (longest) first; y heads of all leaves; z sequences. Four warps of 32
 * rows, as two tiles of 16. Shared memory: q, then one tile of k and one of v. The values travel while
 * scores are computed, the next keys while values are used. Of heads up to 64 channels q stays in registers:
 * a multiprocessor then has two blocks, and none spills registers. */
template <int D> static __global__ void __launch_bounds__(128, 2) forward(const __grid_constant__ attend_t p)
{
    constexpr int LD = D + 8, KEEPS = D == 64;
    GYRE_DYNAMIC_SHARED(bf16, shared);
    bf16 *tile_q = shared, *tile_k = tile_q + ROWS * LD, *tile_v = tile_k + COLUMNS * LD;
    const model_cuda_attention_t *a = &p.a;
    const int T = (int)a->T, dim = (int)a->head_dim, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int r0 = (int)(gridDim.x - 1 - blockIdx.x) * ROWS, b = blockIdx.z;
    const int leaf = blockIdx.y / (int)a->heads, h = blockIdx.y % (int)a->heads,
              kv = h / (int)(a->heads / a->kv_heads);
    const int prefix = prefix_of(a, b), end = columns_end(r0 + ROWS, prefix, T);
    const float slope = a->slopes ? a->slopes[blockIdx.y] / a->scale : 0; /* scores are not scaled yet */
    const bf16 *q = (const bf16 *)head_at(&a->q, leaf, b, h, dim, 2),
               *k = (const bf16 *)head_at(&a->k, leaf, b, kv, dim, 2);
    const bf16 *v = (const bf16 *)head_at(&a->v, leaf, b, kv, dim, 2);

    load_tile<D, ROWS, 128>(tile_q, q, a->q.row, r0, T, dim, p.fast);
    load_tile<D, COLUMNS, 128>(tile_k, k, a->k.row, 0, T, dim, p.fast);
    gyre_cp_async_commit();

    float out[2][D / 8][4], largest[2][2], sum[2][2];
    uint32_t kept[2][D / 16][4]; /* q */
#pragma unroll
    for (int i = 0; i < 2; i++) {
        largest[i][0] = largest[i][1] = -INFINITY;
        sum[i][0] = sum[i][1] = 0;
#pragma unroll
        for (int j = 0; j < D / 8; j++)
            out[i][j][0] = out[i][j][1] = out[i][j][2] = out[i][j][3] = 0;
    }

    if (KEEPS) {
        gyre_cp_async_wait<0>();
        __syncthreads();
        keep<D, 2>(kept, tile_q, warp * 32);
    }

    for (int c0 = 0; c0 < end; c0 += COLUMNS) {
        gyre_cp_async_wait<0>();
        __syncthreads(); /* the keys are there, and the values before were used */
        load_tile<D, COLUMNS, 128>(tile_v, v, a->v.row, c0, T, dim, p.fast);
        gyre_cp_async_commit();

        float s[2][COLUMNS / 8][4];
        scores<D, 2, COLUMNS>(s, KEEPS ? kept : NULL, tile_q, warp * 32, tile_k, 0);

        const int masked = c0 + COLUMNS > seen(r0, prefix), c = c0 + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int row = r0 + warp * 32 + i * 16 + lane / 4;
#pragma unroll
            for (int upper = 0; upper < 2; upper++)
                soften<D>(s[i], out[i], &largest[i][upper], &sum[i][upper], upper * 2, &p, slope,
                          row + upper * 8, prefix, c, masked);
            if (a->keys) {
                const uint32_t lost = lost_of<0, COLUMNS / 8>(a, b, blockIdx.y, row, c);
#pragma unroll
                for (int j = 0; j < COLUMNS / 8; j++)
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        s[i][j][e] = lost >> (j * 4 + e) & 1 ? 0 : s[i][j][e] * a->kept;
            }
        }

        gyre_cp_async_wait<0>();
        __syncthreads(); /* the values are there, and the keys were used */
        if (c0 + COLUMNS < end)
            load_tile<D, COLUMNS, 128>(tile_k, k, a->k.row, c0 + COLUMNS, T, dim, p.fast);
        gyre_cp_async_commit();
        gather<D, 2, COLUMNS>(out, s, tile_v, 0);
    }
    gyre_cp_async_wait<0>();

    bf16 *o = (bf16 *)head_at(&a->o, leaf, b, h, dim, 2);
    float *lse = a->lse + row_stats(a, leaf, b, h);
#pragma unroll
    for (int i = 0; i < 2; i++) {
#pragma unroll
        for (int upper = 0; upper < 2; upper++) {
            sum[i][upper] += __shfl_xor_sync(0xffffffffu, sum[i][upper], 1);
            sum[i][upper] += __shfl_xor_sync(0xffffffffu, sum[i][upper], 2);
            int row = r0 + warp * 32 + i * 16 + upper * 8 + lane / 4;
            if (lane % 4 == 0 && row < T)
                lse[row] = largest[i][upper] * a->scale + logf(sum[i][upper]);
        }
        int first = warp * 32 + i * 16;
        store16<D>(o, a->o.row, r0 + first, T, dim, p.fast, tile_q + first * LD, out[i], 1 / sum[i][0],
                   1 / sum[i][1]);
    }
}

/* ---- backward ------------------------------------------------------------------------------------------ */

/* OF_KEYS: rows are keys and columns queries; grid y: heads of keys and values; dk and dv. Else: rows are
 * queries; y: heads; dq. Grid: x blocks of rows, z sequences.
 * A warp has 32 rows where its sums fit into its registers, which halves what is read from shared memory for
 * a product; four warps are a block, and two blocks hide each other's waiting. For dk and dv of heads over 64
 * channels a warp has 16 rows; eight warps are a block. The next columns of dk and dv come while these are
 * used. A warp adds its columns in the same order either way. */
template <int D, int OF_KEYS> struct part_t {
    static constexpr int I = OF_KEYS && D > 64 ? 1 : 2; /* tiles of 16 rows of a warp */
    static constexpr int THREADS = 256 / I, STAGES = OF_KEYS ? 2 : 1;
    static constexpr int C = COLUMNS / I; /* columns that a warp works on at a time */
};

/* Shared memory: two tiles of rows (k, v or q, do), STAGES times two tiles of columns (q, do or k, v), and
 * the queries' lse and delta: of the rows, or two stages of those of the columns. */
template <int D, int OF_KEYS>
static __global__ void __launch_bounds__(part_t<D, OF_KEYS>::THREADS, part_t<D, OF_KEYS>::I)
    backward(const __grid_constant__ attend_t p)
{
    constexpr int LD = D + 8, I = part_t<D, OF_KEYS>::I, C = part_t<D, OF_KEYS>::C,
                  THREADS = part_t<D, OF_KEYS>::THREADS;
    constexpr int STAGES = part_t<D, OF_KEYS>::STAGES, QUERIES = OF_KEYS ? COLUMNS : ROWS;
    GYRE_DYNAMIC_SHARED(bf16, shared);
    bf16 *rows_x = shared, *rows_y = rows_x + ROWS * LD, *columns = rows_y + ROWS * LD;
    float *stats =
        (float *)(columns + STAGES * 2 * COLUMNS * LD); /* [lse, delta][QUERIES], OF_KEYS: of each stage */
    const model_cuda_attention_t *a = &p.a;
    const int T = (int)a->T, dim = (int)a->head_dim, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int share = (int)(a->heads / a->kv_heads), of_y = (int)(OF_KEYS ? a->kv_heads : a->heads);
    const int leaf = blockIdx.y / of_y, b = blockIdx.z, prefix = prefix_of(a, b);
    const int r0 =
        (OF_KEYS ? (int)blockIdx.x : (int)(gridDim.x - 1 - blockIdx.x)) * ROWS; /* the longest first */
    const int h0 = (int)blockIdx.y % of_y * (OF_KEYS ? share : 1), kv = h0 / share;
    const int begin = OF_KEYS && r0 >= prefix ? r0 : 0, end = OF_KEYS ? T : columns_end(r0 + ROWS, prefix, T);
    const int passes = (end - begin + COLUMNS - 1) / COLUMNS, all = (OF_KEYS ? share : 1) * passes;
    const model_cuda_heads_t *at_x = OF_KEYS ? &a->k : &a->q,
                             *at_y = OF_KEYS ? &a->v : &a->d_o; /* of the rows */
    const model_cuda_heads_t *with_x = OF_KEYS ? &a->q : &a->k,
                             *with_y = OF_KEYS ? &a->d_o : &a->v; /* of the columns */
    const int own = OF_KEYS ? kv : h0, which = threadIdx.x / COLUMNS;
    load_tile<D, ROWS, THREADS>(rows_x, (const bf16 *)head_at(at_x, leaf, b, own, dim, 2), at_x->row, r0, T,
                                dim, p.fast);
    load_tile<D, ROWS, THREADS>(rows_y, (const bf16 *)head_at(at_y, leaf, b, own, dim, 2), at_y->row, r0, T,
                                dim, p.fast);
    if (!OF_KEYS) { /* queries beyond T: e^(s - inf) = 0 */
        stats[threadIdx.x] = stat_of(a, 0, row_stats(a, leaf, b, h0), r0 + (int)threadIdx.x);
        stats[ROWS + threadIdx.x] = stat_of(a, 1, row_stats(a, leaf, b, h0), r0 + (int)threadIdx.x);
    }

    float acc_x[I][D / 8][4], acc_y[I][OF_KEYS ? D / 8 : 1][4];
#pragma unroll
    for (int i = 0; i < I; i++)
#pragma unroll
        for (int j = 0; j < D / 8; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                acc_x[i][j][e] = acc_y[i][OF_KEYS ? j : 0][e] = 0;

    for (int pass = 1 - STAGES; pass < all; pass++) { /* -1: only brings the first columns */
        const int next = pass + STAGES - 1, c0 = begin + pass % passes * COLUMNS;
        float next_stat = 0;
        gyre_cp_async_wait<0>();
        __syncthreads(); /* with two stages: these columns are there, and those before were used */
        if (next < all) {
            int at = begin + next % passes * COLUMNS, head = OF_KEYS ? h0 + next / passes : kv;
            bf16 *to = columns + next % STAGES * 2 * COLUMNS * LD;
            load_tile<D, COLUMNS, THREADS>(to, (const bf16 *)head_at(with_x, leaf, b, head, dim, 2),
                                           with_x->row, at, T, dim, p.fast);
            load_tile<D, COLUMNS, THREADS>(to + COLUMNS * LD,
                                           (const bf16 *)head_at(with_y, leaf, b, head, dim, 2), with_y->row,
                                           at, T, dim, p.fast);
            if (OF_KEYS && which < 2)
                next_stat = stat_of(a, which, row_stats(a, leaf, b, head), at + (int)threadIdx.x % COLUMNS);
        }
        gyre_cp_async_commit();
        if (STAGES == 1) {
            gyre_cp_async_wait<0>();
            __syncthreads();
        }
        if (pass >= 0) {
            const int head = leaf * (int)a->heads + (OF_KEYS ? h0 + pass / passes : h0);
            const bf16 *cols_x = columns + pass % STAGES * 2 * COLUMNS * LD, *cols_y = cols_x + COLUMNS * LD;
            const float *stat = stats + pass % STAGES * 2 * COLUMNS;
            const int masked = OF_KEYS ? r0 + ROWS > seen(c0, prefix) : c0 + COLUMNS > seen(r0, prefix);
#pragma unroll
            for (int sub = 0; sub < COLUMNS; sub += C) {
                float w[I][C / 8][4], d[I][C / 8][4];
                scores<D, I, C>(w, NULL, rows_x, warp * 16 * I, cols_x, sub);
                scores<D, I, C>(d, NULL, rows_y, warp * 16 * I, cols_y, sub);
#pragma unroll
                for (int i = 0; i < I; i++) {
                    int r = (warp * I + i) * 16 + lane / 4, c = sub + lane % 4 * 2, query = OF_KEYS ? c : r;
                    weigh<OF_KEYS, C / 8>(w[i], d[i], &p, b, head, prefix, r0 + r, c0 + c, stat + query,
                                          stat + QUERIES + query, masked);
                }
                gather<D, I, C>(acc_x, d, cols_x, sub);
                if constexpr (OF_KEYS)
                    gather<D, I, C>(acc_y, w, cols_y, sub);
            }
        }
        if (OF_KEYS && which < 2)
            stats[next % 2 * 2 * COLUMNS + threadIdx.x] = next_stat;
    }
    gyre_cp_async_wait<0>();

    const model_cuda_heads_t *to_x = OF_KEYS ? &a->d_k : &a->d_q;
#pragma unroll
    for (int i = 0; i < I; i++) {
        const int first = (warp * I + i) * 16;
        store16<D>((bf16 *)head_at(to_x, leaf, b, own, dim, 2), to_x->row, r0 + first, T, dim, p.fast,
                   rows_x + first * LD, acc_x[i], a->scale, a->scale);
        if constexpr (OF_KEYS)
            store16<D>((bf16 *)head_at(&a->d_v, leaf, b, own, dim, 2), a->d_v.row, r0 + first, T, dim, p.fast,
                       rows_x + first * LD, acc_y[i], 1, 1);
    }
}

/* Eight elements from `at` on, of which n are there; the others are 0. */
static __device__ __forceinline__ void read8(float x[8], const void *from, size_t at, int n, int is_bf16,
                                             int fast)
{
    if (is_bf16 && fast && n > 0) { /* all eight */
        uint4 four = *(const uint4 *)((const bf16 *)from + at);
        const uint32_t bits[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int e = 0; e < 8; e++)
            x[e] = __uint_as_float(e % 2 ? bits[e / 2] & 0xffff0000u : bits[e / 2] << 16);
    } else {
#pragma unroll
        for (int e = 0; e < 8; e++)
            x[e] = e >= n    ? 0
                   : is_bf16 ? __bfloat162float(((const bf16 *)from)[at + e])
                             : ((const float *)from)[at + e];
    }
}

/* Lanes of a row of row_delta. */
static inline __host__ __device__ int delta_lanes(size_t head_dim)
{
    return head_dim <= 64 ? 8 : 16;
}

/* delta = rowsum(do o), of both types: 8 or 16 lanes have a row. Grid: x groups of rows, y heads of all
 * leaves, z sequences. */
static __global__ void __launch_bounds__(256) row_delta(const __grid_constant__ attend_t p)
{
    const model_cuda_attention_t *a = &p.a;
    const int dim = (int)a->head_dim, lanes = delta_lanes(dim), b = blockIdx.z;
    const int leaf = blockIdx.y / (int)a->heads, h = blockIdx.y % (int)a->heads;
    const int row = (int)blockIdx.x * (256 / lanes) + (int)threadIdx.x / lanes,
              c = (int)threadIdx.x % lanes * 8;
    const int is_bf16 = a->type == MODEL_CUDA_BF16, n = row < (int)a->T ? dim - c : 0;
    const void *o = head_at(&a->o, leaf, b, h, dim, is_bf16 ? 2 : 4),
               *d_o = head_at(&a->d_o, leaf, b, h, dim, is_bf16 ? 2 : 4);
    float x[8], y[8], sum = 0;
    read8(x, o, (size_t)row * a->o.row + c, n, is_bf16, p.fast);
    read8(y, d_o, (size_t)row * a->d_o.row + c, n, is_bf16, p.fast);
#pragma unroll
    for (int e = 0; e < 8; e++)
        sum += x[e] * y[e];
    for (int apart = lanes / 2; apart > 0; apart /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, apart);
    if (c == 0 && row < (int)a->T)
        a->delta[row_stats(a, leaf, b, h) + row] = sum;
}

/* ---- launching ----------------------------------------------------------------------------------------- */

static size_t forward_bytes(size_t D)
{
    return (ROWS + 2 * COLUMNS) * (D + 8) * 2;
}

template <int D, int OF_KEYS> static size_t backward_bytes(void)
{
    return (2 * ROWS + part_t<D, OF_KEYS>::STAGES * 2 * COLUMNS) * (D + 8) * 2 + 4 * COLUMNS * sizeof(float);
}

extern "C" cudaError_t model_cuda_attention_forward_launch(const model_cuda_attention_t *attention, int wgmma,
                                                           cudaStream_t stream)
{
    attend_t p = attend_of(attention);
    dim3 grid((unsigned)((attention->T + ROWS - 1) / ROWS), (unsigned)(attention->leaves * attention->heads),
              (unsigned)attention->batch);
    if (attention->type == MODEL_CUDA_F32)
        return attention_f32_forward(&p, stream);
    if (wgmma)
        return attention_wgmma_forward(&p, stream);
    if (attention->head_dim <= 64)
        return attention_launch(forward<64>, &p, grid, 128, forward_bytes(64), stream);
    if (attention->head_dim <= 96)
        return attention_launch(forward<96>, &p, grid, 128, forward_bytes(96), stream);
    return attention_launch(forward<128>, &p, grid, 128, forward_bytes(128), stream);
}

template <int D> static cudaError_t backward_of(const attend_t *p, cudaStream_t stream)
{
    const model_cuda_attention_t *a = &p->a;
    unsigned blocks = (unsigned)((a->T + ROWS - 1) / ROWS), batch = (unsigned)a->batch,
             leaves = (unsigned)a->leaves;
    cudaError_t rc = attention_launch(backward<D, 1>, p, dim3(blocks, leaves * (unsigned)a->kv_heads, batch),
                                      part_t<D, 1>::THREADS, backward_bytes<D, 1>(), stream);
    if (rc != cudaSuccess)
        return rc;
    return attention_launch(backward<D, 0>, p, dim3(blocks, leaves * (unsigned)a->heads, batch),
                            part_t<D, 0>::THREADS, backward_bytes<D, 0>(), stream);
}

template <int D> static size_t most_bytes(void)
{
    return backward_bytes<D, 1>() > backward_bytes<D, 0>() ? backward_bytes<D, 1>() : backward_bytes<D, 0>();
}

extern "C" size_t model_cuda_attention_backward_shared(model_cuda_type_t type, size_t head_dim)
{
    if (type == MODEL_CUDA_F32)
        return attention_f32_backward_bytes();
    return head_dim <= 64 ? most_bytes<64>() : head_dim <= 96 ? most_bytes<96>() : most_bytes<128>();
}

extern "C" cudaError_t model_cuda_attention_backward_launch(const model_cuda_attention_t *attention,
                                                            int wgmma, cudaStream_t stream)
{
    attend_t p = attend_of(attention);
    const size_t rows = 256 / delta_lanes(attention->head_dim);
    dim3 grid((unsigned)((attention->T + rows - 1) / rows), (unsigned)(attention->leaves * attention->heads),
              (unsigned)attention->batch);
    cudaError_t rc = attention_launch(row_delta, &p, grid, 256, 0, stream);
    if (rc != cudaSuccess)
        return rc;
    if (attention->type == MODEL_CUDA_F32)
        return attention_f32_backward(&p, stream);
    if (wgmma)
        return attention_wgmma_backward(&p, stream);
    if (attention->head_dim <= 64)
        return backward_of<64>(&p, stream);
    if (attention->head_dim <= 96)
        return backward_of<96>(&p, stream);
    return backward_of<128>(&p, stream);
}
