/* SPDX-License-Identifier: Apache-2.0 */
/* model/gpu/attention/wgmma.cu: FlashAttention-2 as in mma.cu, by wgmma, for bf16 with heads of up to 64 or
 * of 97 to 128 channels on GPUs of compute capability 9.0. Compiled for sm_90a alone.
 *
 * A warpgroup has 64 rows. Its scores come from two tiles in shared memory; weights stay in the registers of
 * the sums, which are also the layout of a left factor, so nothing is stored between the products. The sums
 * of a row are added in another order than by mma.cu: within an instruction in that of the tensor cores. */
#include "base/device/wgmma.h"
#include "model/gpu/attention/internal.h"
#include "model/gpu/attention/tiles.h"
#include "model/gpu/attention/weights.h"

#ifdef GYRE_NO_WGMMA

extern "C" int model_cuda_attention_wgmma_built(void)
{
    return 0;
}

cudaError_t attention_wgmma_forward(const attend_t *, cudaStream_t)
{
    return cudaErrorNoKernelImageForDevice;
}

cudaError_t attention_wgmma_backward(const attend_t *, cudaStream_t)
{
    return cudaErrorNoKernelImageForDevice;
}

#else

/* A tile for wgmma = rows r0 .. of x, as load_tile of tiles.h. */
template <int D, int LINES, int THREADS>
static __device__ __forceinline__ void bring_tile(bf16 *tile, const bf16 *x, size_t ld, int r0, int T,
                                                  int head_dim, int fast)
{
    constexpr int W = D / 8, STEP = THREADS / W; /* STEP is a multiple of 8: one permutation a thread */
    static_assert(STEP % 8 == 0 && LINES % STEP == 0, "every thread has whole rows");
    const int c = (int)threadIdx.x % W * 8, line = (int)threadIdx.x / W, here = T - r0 - line;
    const int n = head_dim - c < 0 ? 0 : head_dim - c > 8 ? 8 : head_dim - c;
    const bf16 *from = x + (size_t)(r0 + line) * ld + c;
    bf16 *to = tile + gyre_wgmma_at(LINES, line, c);
    if (fast) {
#pragma unroll
        for (int j = 0; j < LINES / STEP; j++, from += STEP * ld) {
            int m = j * STEP < here ? n : 0;
            gyre_cp_async16(to + j * STEP * 64, m > 0 ? from : x, 2 * m);
        }
    } else {
#pragma unroll 1
        for (int j = 0; j < LINES / STEP; j++, from += STEP * ld)
#pragma unroll
            for (int e = 0; e < 8; e++)
                to[j * STEP * 64 + e] = e < n && j * STEP < here ? from[e] : __float2bfloat16(0);
    }
}

/* What this block's threads copied is there for all of them, and for products. */
static __device__ __forceinline__ void arrive(void)
{
    gyre_cp_async_wait<0>();
    gyre_wgmma_publish();
    __syncthreads();
}

/* s [64, 64] of a warpgroup = lines line .. of a tile times those of another, over the channels: begun. */
template <int D, int LINES>
static __device__ __forceinline__ void begin_scores(float (&s)[8][4], const bf16 *rows, int line,
                                                    const bf16 *columns)
{
    const uint64_t left = gyre_wgmma_tile(rows, LINES), right = gyre_wgmma_tile(columns, COLUMNS);
#pragma unroll
    for (int k = 0; k < D; k += 16)
        gyre_wgmma_tiles(s, gyre_wgmma_across(left, LINES, line, k), gyre_wgmma_across(right, COLUMNS, 0, k),
                         k > 0);
}

/* sum [64, D] += weights [64, 64], as bf16, times the lines of a tile: begun. */
template <int D>
static __device__ __forceinline__ void begin_sums(float (&sum)[D / 8][4], const uint32_t (&weights)[4][4],
                                                  const bf16 *columns)
{
    const uint64_t right = gyre_wgmma_tile(columns, COLUMNS);
#pragma unroll
    for (int k = 0; k < COLUMNS / 16; k++)
        gyre_wgmma_registers(sum, weights[k], gyre_wgmma_along(right, 16 * k));
}

static __device__ __forceinline__ void as_weights(uint32_t (&f)[4][4], const float (&s)[8][4])
{
#pragma unroll
    for (int k = 0; k < 4; k++)
        as_left(f[k], s[2 * k], s[2 * k + 1]);
}

/* ---- forward ------------------------------------------------------------------------------------------- */

enum { FORWARD_ROWS = 128, FORWARD_THREADS = 256 };

/* Grid: x blocks of rows, the last (longest) first; y heads of all leaves; z sequences. Two warpgroups.
 * Shared memory: q, then two times a tile of k and one of v: the next ones come while these are used. */
template <int D>
static __global__ void __launch_bounds__(FORWARD_THREADS, D == 64 ? 2 : 1)
    wgmma_forward(const __grid_constant__ attend_t p)
{
    constexpr int TILE = COLUMNS * D;
    GYRE_WGMMA_SHARED(bf16, shared);
    bf16 *tile_q = shared, *tiles = tile_q + FORWARD_ROWS * D;
    const model_cuda_attention_t *a = &p.a;
    const int T = (int)a->T, dim = (int)a->head_dim, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int r0 = (int)(gridDim.x - 1 - blockIdx.x) * FORWARD_ROWS, b = blockIdx.z;
    const int leaf = blockIdx.y / (int)a->heads, h = blockIdx.y % (int)a->heads,
              kv = h / (int)(a->heads / a->kv_heads);
    const int first = warp / 4 * 64, row = r0 + warp * 16 + lane / 4; /* the warpgroup's; the lane's upper */
    const int prefix = prefix_of(a, b), end = columns_end(r0 + FORWARD_ROWS, prefix, T),
              own_end = columns_end(r0 + first + 64, prefix, T);
    const float slope = a->slopes ? a->slopes[blockIdx.y] / a->scale : 0; /* scores are not scaled yet */
    const bf16 *q = (const bf16 *)head_at(&a->q, leaf, b, h, dim, 2),
               *k = (const bf16 *)head_at(&a->k, leaf, b, kv, dim, 2);
    const bf16 *v = (const bf16 *)head_at(&a->v, leaf, b, kv, dim, 2);

    bring_tile<D, FORWARD_ROWS, FORWARD_THREADS>(tile_q, q, a->q.row, r0, T, dim, p.fast);
    bring_tile<D, COLUMNS, FORWARD_THREADS>(tiles, k, a->k.row, 0, T, dim, p.fast);
    bring_tile<D, COLUMNS, FORWARD_THREADS>(tiles + TILE, v, a->v.row, 0, T, dim, p.fast);
    gyre_cp_async_commit();

    float out[D / 8][4], largest[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
#pragma unroll
    for (int j = 0; j < D / 8; j++)
        out[j][0] = out[j][1] = out[j][2] = out[j][3] = 0;

    for (int c0 = 0, stage = 0; c0 < end; c0 += COLUMNS, stage ^= 1) {
        const bf16 *tile_k = tiles + stage * 2 * TILE, *tile_v = tile_k + TILE;
        arrive(); /* these are there, and those before were used */
        if (c0 + COLUMNS < end) {
            bf16 *next = tiles + (stage ^ 1) * 2 * TILE;
            bring_tile<D, COLUMNS, FORWARD_THREADS>(next, k, a->k.row, c0 + COLUMNS, T, dim, p.fast);
            bring_tile<D, COLUMNS, FORWARD_THREADS>(next + TILE, v, a->v.row, c0 + COLUMNS, T, dim, p.fast);
        }
        gyre_cp_async_commit();
        if (c0 >= own_end) /* no row of this warpgroup sees these columns */
            continue;

        float s[COLUMNS / 8][4];
        uint32_t weights[COLUMNS / 16][4];
        gyre_wgmma_fence();
        begin_scores<D, FORWARD_ROWS>(s, tile_q, first, tile_k);
        gyre_wgmma_commit();
        gyre_wgmma_wait(s);

        const int masked = c0 + COLUMNS > seen(r0 + first, prefix), c = c0 + lane % 4 * 2;
#pragma unroll
        for (int upper = 0; upper < 2; upper++)
            soften<D>(s, out, &largest[upper], &sum[upper], upper * 2, &p, slope, row + upper * 8, prefix, c,
                      masked);
        if (a->keys) {
            const uint32_t lost = lost_of<0, COLUMNS / 8>(a, b, blockIdx.y, row, c);
#pragma unroll
            for (int j = 0; j < COLUMNS / 8; j++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    s[j][e] = lost >> (j * 4 + e) & 1 ? 0 : s[j][e] * a->kept;
        }
        as_weights(weights, s);
        gyre_wgmma_fence();
        begin_sums<D>(out, weights, tile_v);
        gyre_wgmma_commit();
        gyre_wgmma_wait(out);
    }
    gyre_cp_async_wait<0>();
    __syncthreads(); /* results pass through shared memory */

    float *lse = a->lse + row_stats(a, leaf, b, h);
#pragma unroll
    for (int upper = 0; upper < 2; upper++) {
        sum[upper] += __shfl_xor_sync(0xffffffffu, sum[upper], 1);
        sum[upper] += __shfl_xor_sync(0xffffffffu, sum[upper], 2);
        if (lane % 4 == 0 && row + upper * 8 < T)
            lse[row + upper * 8] = largest[upper] * a->scale + logf(sum[upper]);
    }
    store16<D>((bf16 *)head_at(&a->o, leaf, b, h, dim, 2), a->o.row, r0 + warp * 16, T, dim, p.fast,
               shared + warp * 16 * (D + 8), out, 1 / sum[0], 1 / sum[1]);
}

/* ---- backward ------------------------------------------------------------------------------------------ */

enum { BACK_ROWS = 64, BACK_THREADS = 128 };

/* As `backward` of mma.cu, seven products in two kernels: OF_KEYS: rows are keys and columns queries, grid y:
 * heads of keys and values; dk and dv. Else rows are queries, y: heads; dq. Grid: x blocks of rows, z
 * sequences. One warpgroup: several blocks of a multiprocessor hide each other's waiting, three for dk and dv
 * of heads up to 64 channels.
 * Shared memory: two tiles of rows (k, v or q, do), two times two of columns (q, do or k, v), of which the
 * next come while these are used, and the queries' lse and delta: of the rows, or twice those of columns. */
template <int D, int OF_KEYS>
static __global__ void __launch_bounds__(BACK_THREADS, D == 64 ? 3 : 2)
    wgmma_backward(const __grid_constant__ attend_t p)
{
    constexpr int TILE = COLUMNS * D; /* of rows and of columns */
    GYRE_WGMMA_SHARED(bf16, shared);
    bf16 *rows_x = shared, *rows_y = rows_x + TILE, *tiles = rows_y + TILE;
    float *stats = (float *)(tiles + 4 * TILE); /* [lse, delta][64], OF_KEYS: of each stage */
    const model_cuda_attention_t *a = &p.a;
    const int T = (int)a->T, dim = (int)a->head_dim, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int share = (int)(a->heads / a->kv_heads), of_y = (int)(OF_KEYS ? a->kv_heads : a->heads);
    const int leaf = blockIdx.y / of_y, b = blockIdx.z, prefix = prefix_of(a, b);
    const int r0 =
        (OF_KEYS ? (int)blockIdx.x : (int)(gridDim.x - 1 - blockIdx.x)) * BACK_ROWS; /* the longest first */
    const int h0 = (int)blockIdx.y % of_y * (OF_KEYS ? share : 1), kv = h0 / share;
    const int begin = OF_KEYS && r0 >= prefix ? r0 : 0,
              end = OF_KEYS ? T : columns_end(r0 + BACK_ROWS, prefix, T);
    const int passes = (end - begin + COLUMNS - 1) / COLUMNS, all = (OF_KEYS ? share : 1) * passes;
    const model_cuda_heads_t *at_x = OF_KEYS ? &a->k : &a->q, *at_y = OF_KEYS ? &a->v : &a->d_o,
                             *with_x = OF_KEYS ? &a->q : &a->k, *with_y = OF_KEYS ? &a->d_o : &a->v;
    const int own = OF_KEYS ? kv : h0, which = (int)threadIdx.x / COLUMNS,
              query_of = (int)threadIdx.x % COLUMNS;
    bring_tile<D, BACK_ROWS, BACK_THREADS>(rows_x, (const bf16 *)head_at(at_x, leaf, b, own, dim, 2),
                                           at_x->row, r0, T, dim, p.fast);
    bring_tile<D, BACK_ROWS, BACK_THREADS>(rows_y, (const bf16 *)head_at(at_y, leaf, b, own, dim, 2),
                                           at_y->row, r0, T, dim, p.fast);
    if (!OF_KEYS) /* queries beyond T: e^(s - inf) = 0 */
        stats[threadIdx.x] = stat_of(a, which, row_stats(a, leaf, b, h0), r0 + query_of);

    float acc_x[D / 8][4], acc_y[OF_KEYS ? D / 8 : 1][4];
#pragma unroll
    for (int j = 0; j < D / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            acc_x[j][e] = acc_y[OF_KEYS ? j : 0][e] = 0;

    for (int pass = -1; pass < all; pass++) { /* -1: only brings the first columns */
        const int next = pass + 1, c0 = begin + pass % passes * COLUMNS;
        float next_stat = 0;
        arrive(); /* these columns are there, and those before were used */
        if (next < all) {
            const int at = begin + next % passes * COLUMNS, head = OF_KEYS ? h0 + next / passes : kv;
            bf16 *to = tiles + next % 2 * 2 * TILE;
            bring_tile<D, COLUMNS, BACK_THREADS>(to, (const bf16 *)head_at(with_x, leaf, b, head, dim, 2),
                                                 with_x->row, at, T, dim, p.fast);
            bring_tile<D, COLUMNS, BACK_THREADS>(to + TILE,
                                                 (const bf16 *)head_at(with_y, leaf, b, head, dim, 2),
                                                 with_y->row, at, T, dim, p.fast);
            if (OF_KEYS)
                next_stat = stat_of(a, which, row_stats(a, leaf, b, head), at + query_of);
        }
        gyre_cp_async_commit();
        if (pass < 0) {
            if (OF_KEYS)
                stats[threadIdx.x] = next_stat;
            continue;
        }

        const int head = leaf * (int)a->heads + (OF_KEYS ? h0 + pass / passes : h0);
        const bf16 *cols_x = tiles + pass % 2 * 2 * TILE, *cols_y = cols_x + TILE;
        const int masked = OF_KEYS ? r0 + BACK_ROWS > seen(c0, prefix) : c0 + COLUMNS > seen(r0, prefix);
        const int r = warp * 16 + lane / 4, c = lane % 4 * 2;
        const float *stat = stats + (OF_KEYS ? pass % 2 * 2 * COLUMNS + c : r);
        float w[COLUMNS / 8][4], d[COLUMNS / 8][4];
        uint32_t left_w[4][4], left_d[4][4];
        gyre_wgmma_fence();
        begin_scores<D, BACK_ROWS>(w, rows_x, 0, cols_x);
        begin_scores<D, BACK_ROWS>(d, rows_y, 0, cols_y);
        gyre_wgmma_commit();
        gyre_wgmma_wait(w);
        gyre_wgmma_wait(d);
        weigh<OF_KEYS, COLUMNS / 8>(w, d, &p, b, head, prefix, r0 + r, c0 + c, stat, stat + COLUMNS, masked);
        as_weights(left_d, d);
        if constexpr (OF_KEYS)
            as_weights(left_w, w);
        gyre_wgmma_fence();
        begin_sums<D>(acc_x, left_d, cols_x);
        if constexpr (OF_KEYS)
            begin_sums<D>(acc_y, left_w, cols_y);
        gyre_wgmma_commit();
        gyre_wgmma_wait(acc_x);
        if constexpr (OF_KEYS) {
            gyre_wgmma_wait(acc_y);
            stats[next % 2 * 2 * COLUMNS + threadIdx.x] = next_stat;
        }
    }
    gyre_cp_async_wait<0>();
    __syncthreads(); /* results pass through shared memory */

    const model_cuda_heads_t *to_x = OF_KEYS ? &a->d_k : &a->d_q;
    bf16 *by_way = shared + warp * 16 * (D + 8);
    store16<D>((bf16 *)head_at(to_x, leaf, b, own, dim, 2), to_x->row, r0 + warp * 16, T, dim, p.fast, by_way,
               acc_x, a->scale, a->scale);
    if constexpr (OF_KEYS)
        store16<D>((bf16 *)head_at(&a->d_v, leaf, b, own, dim, 2), a->d_v.row, r0 + warp * 16, T, dim, p.fast,
                   by_way, acc_y, 1, 1);
}

/* ---- launching ----------------------------------------------------------------------------------------- */

extern "C" int model_cuda_attention_wgmma_built(void)
{
    return 1;
}

template <int D> static cudaError_t forward_of(const attend_t *p, cudaStream_t stream)
{
    const model_cuda_attention_t *a = &p->a;
    dim3 grid((unsigned)((a->T + FORWARD_ROWS - 1) / FORWARD_ROWS), (unsigned)(a->leaves * a->heads),
              (unsigned)a->batch);
    return attention_launch(wgmma_forward<D>, p, grid, FORWARD_THREADS,
                            (FORWARD_ROWS + 4 * COLUMNS) * D * sizeof(bf16), stream);
}

cudaError_t attention_wgmma_forward(const attend_t *p, cudaStream_t stream)
{
    return p->a.head_dim <= 64 ? forward_of<64>(p, stream) : forward_of<128>(p, stream);
}

template <int D> static cudaError_t backward_of(const attend_t *p, cudaStream_t stream)
{
    const model_cuda_attention_t *a = &p->a;
    const unsigned blocks = (unsigned)((a->T + BACK_ROWS - 1) / BACK_ROWS), batch = (unsigned)a->batch,
                   leaves = (unsigned)a->leaves;
    const size_t tiles = 6 * COLUMNS * D * sizeof(bf16), stats = 2 * COLUMNS * sizeof(float);
    cudaError_t rc =
        attention_launch(wgmma_backward<D, 1>, p, dim3(blocks, leaves * (unsigned)a->kv_heads, batch),
                         BACK_THREADS, tiles + 2 * stats, stream);
    if (rc != cudaSuccess)
        return rc;
    return attention_launch(wgmma_backward<D, 0>, p, dim3(blocks, leaves * (unsigned)a->heads, batch),
                            BACK_THREADS, tiles + stats, stream);
}

cudaError_t attention_wgmma_backward(const attend_t *p, cudaStream_t stream)
{
    return p->a.head_dim <= 64 ? backward_of<64>(p, stream) : backward_of<128>(p, stream);
}

#endif
