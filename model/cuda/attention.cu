/* model/cuda/attention.cu: FlashAttention-2 (Dao 2023), forward and backward, for bf16 on tensor cores.
 *
 * Forward (algorithm 1): a block has 128 rows of one head and goes through the keys that these rows see, 64 at a time, keeping for
 * each row the largest score so far, the sum of exponentials under it, and the product with the values; both are rescaled when the
 * largest grows. Exponentials are powers of two of scores times scale log2(e): one fused multiply-add and one instruction each.
 * Backward (algorithm 2), without its atomics: the weights are computed again from the stored log-sum-exp, once in blocks of
 * 128 keys that go through the queries (dk, dv) and once in blocks of 128 queries that go through the keys (dq). That is seven
 * products in place of five, and every sum is one thread's, in one order. Both are one kernel, `backward`, whose block has "rows" (the 128
 * that stay) and "columns" (the 64 that pass).
 *   delta = rowsum(do o);  p = e^(s - lse);  dp = drop(do v^T);  ds = p (dp - delta)
 *   dv = drop(p)^T do;  dk = scale ds^T q;  dq = scale ds k
 * Rows of a tile in shared memory are D + 8 elements apart: an odd number of 16-byte groups, so that ldmatrix's eight rows never meet
 * in a bank. Tiles are padded with zeros to D = 64, 96 or 128 columns, and beyond T. */
#include "model/cuda/attention_parts.h"

/* ---- tiles ------------------------------------------------------------------------------------------------------- */

/* tile [LINES][D + 8] = rows r0 .. of x, rows `ld` elements apart, by cp.async (fast) or plainly. 8 or 16 threads have a row; of D 96
 * a quarter of them has nothing to do, which costs less than divisions by 12. */
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

/* Fragments of 16 x 16: of the left factor from rows of its own; of the right one for 16 columns of the result, which are rows in
 * memory (`across`) or columns (`along`: the tile is [K][N]). */
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

/* A warp stores 16 rows x D of a result, times `factor` of the two rows that a lane has, by way of its own rows of a tile that nobody
 * else uses any longer. */
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

/* ---- forward ------------------------------------------------------------------------------------------------------- */

enum { ROWS = 128, COLUMNS = 64 };

/* Grid: x blocks of rows, the last (longest) first; y heads of all leaves; z sequences. Four warps of 32 rows, as two tiles of 16.
 * Shared memory: q, then one tile of k and one of v. The values travel while scores are computed, the next keys while values are used. */
template <int D>
static __global__ void __launch_bounds__(128, D == 64 ? 3 : 2) forward(const __grid_constant__ attend_t p)
{
    constexpr int LD = D + 8;
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
#pragma unroll
    for (int i = 0; i < 2; i++) {
        largest[i][0] = largest[i][1] = -INFINITY;
        sum[i][0] = sum[i][1] = 0;
#pragma unroll
        for (int j = 0; j < D / 8; j++)
            out[i][j][0] = out[i][j][1] = out[i][j][2] = out[i][j][3] = 0;
    }

    for (int c0 = 0; c0 < end; c0 += COLUMNS) {
        gyre_cp_async_wait<0>();
        __syncthreads(); /* the keys are there, and the values before were used */
        load_tile<D, COLUMNS, 128>(tile_v, v, a->v.row, c0, T, dim, p.fast);
        gyre_cp_async_commit();

        float s[2][COLUMNS / 8][4];
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int j = 0; j < COLUMNS / 8; j++)
                s[i][j][0] = s[i][j][1] = s[i][j][2] = s[i][j][3] = 0;
#pragma unroll
        for (int kk = 0; kk < D; kk += 16) {
            uint32_t fq[2][4];
            left16<D>(fq[0], tile_q, warp * 32, kk);
            left16<D>(fq[1], tile_q, warp * 32 + 16, kk);
#pragma unroll
            for (int j = 0; j < COLUMNS / 16; j++) {
                uint32_t fk[4];
                across16<D>(fk, tile_k, j * 16, kk);
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    gyre_mma_bf16(s[i][2 * j], fq[i], fk);
                    gyre_mma_bf16(s[i][2 * j + 1], fq[i], fk + 2);
                }
            }
        }

        const int masked = c0 + COLUMNS > seen(r0, prefix);
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int upper = 0; upper < 2; upper++) {
                const int row = r0 + warp * 32 + i * 16 + upper * 8 + lane / 4, sees = seen(row, prefix);
                float top = largest[i][upper];
                if (slope > 0)
#pragma unroll
                    for (int j = 0; j < COLUMNS / 8; j++)
#pragma unroll
                        for (int e = 0; e < 2; e++)
                            s[i][j][upper * 2 + e] -=
                                slope * fabsf((float)(row - (c0 + j * 8 + lane % 4 * 2 + e)));
                if (masked) {
                    const int last = (sees < T ? sees : T) - (c0 + lane % 4 * 2);
#pragma unroll
                    for (int j = 0; j < COLUMNS / 8; j++)
#pragma unroll
                        for (int e = 0; e < 2; e++)
                            if (j * 8 + e >= last)
                                s[i][j][upper * 2 + e] = -INFINITY;
                }
#pragma unroll
                for (int j = 0; j < COLUMNS / 8; j++)
                    top = fmaxf(top, fmaxf(s[i][j][upper * 2], s[i][j][upper * 2 + 1]));
                top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
                top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2)); /* finite: every row sees column 0 */
                const float shrink = power_2((largest[i][upper] - top) * p.scale_2), top_2 = top * p.scale_2;
                float add = 0;
                largest[i][upper] = top;
#pragma unroll
                for (int j = 0; j < COLUMNS / 8; j++)
#pragma unroll
                    for (int e = 0; e < 2; e++) {
                        float *x = &s[i][j][upper * 2 + e];
                        *x = power_2(*x * p.scale_2 - top_2);
                        add += *x;
                    }
                sum[i][upper] = sum[i][upper] * shrink + add;
#pragma unroll
                for (int j = 0; j < D / 8; j++) {
                    out[i][j][upper * 2] *= shrink;
                    out[i][j][upper * 2 + 1] *= shrink;
                }
            }
        if (a->keys) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                uint32_t lost = 0; /* bit 4 j + e: element e of tile j is dropped */
#pragma unroll 1
                for (int pair = 0; pair < COLUMNS / 4; pair++) {
                    int row = r0 + warp * 32 + i * 16 + pair % 2 * 8 + lane / 4,
                        column = c0 + pair / 2 * 8 + lane % 4 * 2;
                    lost |= dropped_pair(a, b, first_element(a, blockIdx.y, row) + column) << pair * 2;
                }
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
#pragma unroll
        for (int kk = 0; kk < COLUMNS; kk += 16) {
            uint32_t fp[2][4];
#pragma unroll
            for (int i = 0; i < 2; i++)
                as_left(fp[i], s[i][kk / 8], s[i][kk / 8 + 1]);
#pragma unroll
            for (int j = 0; j < D / 16; j++) {
                uint32_t fv[4];
                along16<D>(fv, tile_v, kk, j * 16);
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    gyre_mma_bf16(out[i][2 * j], fp[i], fv);
                    gyre_mma_bf16(out[i][2 * j + 1], fp[i], fv + 2);
                }
            }
        }
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

/* ---- backward ------------------------------------------------------------------------------------------------------ */

/* Where the elements of a lane's tiles are, 16 x 8 each: in the block's rows and columns; in the queries' lse and delta. */
#define ROW(e)       (warp * 16 + ((e)&2) * 4 + lane / 4)
#define COLUMN(j, e) (sub + (j)*8 + lane % 4 * 2 + ((e)&1))
#define AT(j, e)     (OF_KEYS ? COLUMN(j, e) : ROW(e))
#define DELTA        (OF_KEYS ? COLUMNS : ROWS)

/* Bit 4 j + e: dropout takes element e of tile j, which are those of row r (and r + 8) and columns c + 8 j (and the next). */
template <int OF_KEYS, int SUB>
static __device__ __forceinline__ uint32_t lost_of(const model_cuda_attention_t *a, int b, int head, int r,
                                                   int c)
{
    uint32_t lost = 0;
#pragma unroll 1
    for (int i = 0; i < SUB / 2; i += OF_KEYS ? 1 : 2) {
        int row = r + (i & 2) * 4, column = c + i / 4 * 8 + (i & 1);
        uint32_t pair =
            dropped_pair(a, b, first_element(a, head, OF_KEYS ? column : row) + (OF_KEYS ? row : column));
        lost |= (OF_KEYS ? pair & 1 : pair)
                << i; /* neighbours in memory are neighbours here only if columns are keys */
    }
    return lost;
}

/* OF_KEYS: rows are keys and columns queries; grid y: heads of keys and values; dk and dv. Else: rows are queries; y: heads; dq.
 * Grid: x blocks of rows, z sequences. Eight warps of 16 rows. Shared memory: two tiles of rows (k, v or q, do), two stages of two tiles of
 * columns (q, do or k, v), and the queries' lse and delta: of the rows, or two stages of those of the columns. */
template <int D, int OF_KEYS>
static __global__ void __launch_bounds__(256, 1) backward(const __grid_constant__ attend_t p)
{
    constexpr int LD = D + 8, SUB = COLUMNS;
    GYRE_DYNAMIC_SHARED(bf16, shared);
    bf16 *rows_x = shared, *rows_y = rows_x + ROWS * LD, *columns = rows_y + ROWS * LD;
    float *stats =
        (float *)(columns +
                  4 * COLUMNS * LD); /* OF_KEYS: [stage][lse, delta][COLUMNS]; else [lse, delta][ROWS] */
    const model_cuda_attention_t *a = &p.a;
    const int T = (int)a->T, dim = (int)a->head_dim, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int share = (int)(a->heads / a->kv_heads), of_y = (int)(OF_KEYS ? a->kv_heads : a->heads);
    const int leaf = blockIdx.y / of_y, b = blockIdx.z, prefix = prefix_of(a, b);
    const int block = OF_KEYS ? (int)blockIdx.x : (int)(gridDim.x - 1 - blockIdx.x),
              r0 = block * ROWS; /* the longest first */
    const int h0 = OF_KEYS ? (int)blockIdx.y % of_y * share : (int)blockIdx.y % of_y, kv = h0 / share;
    const int begin = OF_KEYS && r0 >= prefix ? r0 / COLUMNS * COLUMNS : 0;
    const int end = OF_KEYS ? T : columns_end(r0 + ROWS, prefix, T);
    const int passes = (end - begin + COLUMNS - 1) / COLUMNS, all = (OF_KEYS ? share : 1) * passes;

    const model_cuda_heads_t *at_x = OF_KEYS ? &a->k : &a->q,
                             *at_y = OF_KEYS ? &a->v : &a->d_o; /* of the rows */
    const model_cuda_heads_t *with_x = OF_KEYS ? &a->q : &a->k,
                             *with_y = OF_KEYS ? &a->d_o : &a->v; /* of the columns */
    load_tile<D, ROWS, 256>(rows_x, (const bf16 *)head_at(at_x, leaf, b, OF_KEYS ? kv : h0, dim, 2),
                            at_x->row, r0, T, dim, p.fast);
    load_tile<D, ROWS, 256>(rows_y, (const bf16 *)head_at(at_y, leaf, b, OF_KEYS ? kv : h0, dim, 2),
                            at_y->row, r0, T, dim, p.fast);
    load_tile<D, COLUMNS, 256>(columns, (const bf16 *)head_at(with_x, leaf, b, OF_KEYS ? h0 : kv, dim, 2),
                               with_x->row, begin, T, dim, p.fast);
    load_tile<D, COLUMNS, 256>(columns + COLUMNS * LD,
                               (const bf16 *)head_at(with_y, leaf, b, OF_KEYS ? h0 : kv, dim, 2), with_y->row,
                               begin, T, dim, p.fast);
    gyre_cp_async_commit();
    const int which = threadIdx.x / (OF_KEYS ? COLUMNS : ROWS),
              place = threadIdx.x % (OF_KEYS ? COLUMNS : ROWS);
    if (which < 2) /* queries beyond T: e^(s - inf) = 0 */
        stats[threadIdx.x] = stat_of(a, which, row_stats(a, leaf, b, h0), (OF_KEYS ? begin : r0) + place);

    float acc_x[D / 8][4], acc_y[OF_KEYS ? D / 8 : 1][4];
#pragma unroll
    for (int j = 0; j < D / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            acc_x[j][e] = acc_y[OF_KEYS ? j : 0][e] = 0;

    for (int pass = 0; pass < all; pass++) {
        const int c0 = begin + pass % passes * COLUMNS, h = h0 + pass / passes, next = pass + 1;
        const float slope = a->slopes ? a->slopes[leaf * (int)a->heads + h] * LOG2E : 0;
        const bf16 *cols_x = columns + pass % 2 * 2 * COLUMNS * LD, *cols_y = cols_x + COLUMNS * LD;
        const float *stat = OF_KEYS ? stats + pass % 2 * 2 * COLUMNS : stats;
        float next_stat = 0;
        gyre_cp_async_wait<0>();
        __syncthreads(); /* these columns are there, and those before were used */
        if (next < all) {
            int at = begin + next % passes * COLUMNS, head = OF_KEYS ? h0 + next / passes : kv;
            bf16 *to = columns + next % 2 * 2 * COLUMNS * LD;
            load_tile<D, COLUMNS, 256>(to, (const bf16 *)head_at(with_x, leaf, b, head, dim, 2), with_x->row,
                                       at, T, dim, p.fast);
            load_tile<D, COLUMNS, 256>(to + COLUMNS * LD,
                                       (const bf16 *)head_at(with_y, leaf, b, head, dim, 2), with_y->row, at,
                                       T, dim, p.fast);
            if (OF_KEYS && which < 2)
                next_stat = stat_of(a, which, row_stats(a, leaf, b, head), at + place);
        }
        gyre_cp_async_commit();

        const int masked = OF_KEYS ? r0 + ROWS > seen(c0, prefix) : c0 + COLUMNS > seen(r0, prefix);
#pragma unroll
        for (int sub = 0; sub < COLUMNS; sub += SUB) {
            float w[SUB / 8][4], d[SUB / 8][4]; /* scores, then weights; their gradients */
#pragma unroll
            for (int j = 0; j < SUB / 8; j++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    w[j][e] = d[j][e] = 0;
#pragma unroll
            for (int kk = 0; kk < D; kk += 16) {
                uint32_t left[4], right[4];
                left16<D>(left, rows_x, warp * 16, kk);
#pragma unroll
                for (int j = 0; j < SUB / 16; j++) {
                    across16<D>(right, cols_x, sub + j * 16, kk);
                    gyre_mma_bf16(w[2 * j], left, right);
                    gyre_mma_bf16(w[2 * j + 1], left, right + 2);
                }
            }
#pragma unroll
            for (int kk = 0; kk < D; kk += 16) {
                uint32_t left[4], right[4];
                left16<D>(left, rows_y, warp * 16, kk);
#pragma unroll
                for (int j = 0; j < SUB / 16; j++) {
                    across16<D>(right, cols_y, sub + j * 16, kk);
                    gyre_mma_bf16(d[2 * j], left, right);
                    gyre_mma_bf16(d[2 * j + 1], left, right + 2);
                }
            }
#pragma unroll
            for (int j = 0; j < SUB / 8; j++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    w[j][e] = w[j][e] * p.scale_2 - stat[AT(j, e)];
            if (slope > 0)
#pragma unroll
                for (int j = 0; j < SUB / 8; j++)
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        w[j][e] -= slope * fabsf((float)(r0 - c0 + ROW(e) - COLUMN(j, e)));
            if (masked)
#pragma unroll
                for (int j = 0; j < SUB / 8; j++)
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        int query = OF_KEYS ? c0 + COLUMN(j, e) : r0 + ROW(e),
                            key = OF_KEYS ? r0 + ROW(e) : c0 + COLUMN(j, e);
                        if (key >= seen(query, prefix) || key >= T)
                            w[j][e] = -INFINITY;
                    }
#pragma unroll
            for (int j = 0; j < SUB / 8; j++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    w[j][e] = power_2(w[j][e]);
            if (a->keys) {
                const uint32_t lost =
                    lost_of<OF_KEYS, SUB>(a, b, leaf * (int)a->heads + h, r0 + ROW(0), c0 + COLUMN(0, 0));
#pragma unroll
                for (int j = 0; j < SUB / 8; j++)
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        float keep = lost >> (j * 4 + e) & 1 ? 0 : a->kept;
                        d[j][e] = w[j][e] * (d[j][e] * keep - stat[DELTA + AT(j, e)]);
                        w[j][e] *= keep;
                    }
            } else {
#pragma unroll
                for (int j = 0; j < SUB / 8; j++)
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        d[j][e] = w[j][e] * (d[j][e] - stat[DELTA + AT(j, e)]);
            }
#pragma unroll
            for (int kk = 0; kk < SUB; kk += 16) {
                uint32_t left[4], right[4];
                as_left(left, d[kk / 8], d[kk / 8 + 1]);
#pragma unroll
                for (int j = 0; j < D / 16; j++) {
                    along16<D>(right, cols_x, sub + kk, j * 16);
                    gyre_mma_bf16(acc_x[2 * j], left, right);
                    gyre_mma_bf16(acc_x[2 * j + 1], left, right + 2);
                }
                if (!OF_KEYS)
                    continue;
                as_left(left, w[kk / 8], w[kk / 8 + 1]);
#pragma unroll
                for (int j = 0; j < D / 16; j++) {
                    along16<D>(right, cols_y, sub + kk, j * 16);
                    gyre_mma_bf16(acc_y[OF_KEYS ? 2 * j : 0], left, right);
                    gyre_mma_bf16(acc_y[OF_KEYS ? 2 * j + 1 : 0], left, right + 2);
                }
            }
        }
        if (OF_KEYS && which < 2)
            stats[next % 2 * 2 * COLUMNS + threadIdx.x] = next_stat;
    }
    gyre_cp_async_wait<0>();

    const model_cuda_heads_t *to_x = OF_KEYS ? &a->d_k : &a->d_q;
    bf16 *tile = rows_x + warp * 16 * LD;
    store16<D>((bf16 *)head_at(to_x, leaf, b, OF_KEYS ? kv : h0, dim, 2), to_x->row, r0 + warp * 16, T, dim,
               p.fast, tile, acc_x, a->scale, a->scale);
    if (OF_KEYS)
        store16<D>((bf16 *)head_at(&a->d_v, leaf, b, kv, dim, 2), a->d_v.row, r0 + warp * 16, T, dim, p.fast,
                   tile, (const float(*)[4])acc_y, 1, 1);
}

/* delta = rowsum(do o), of both types: a warp has a row. Grid: x groups of 8 rows, y heads of all leaves, z sequences. */
static __global__ void __launch_bounds__(256) row_delta(const __grid_constant__ attend_t p)
{
    const model_cuda_attention_t *a = &p.a;
    const int dim = (int)a->head_dim, lane = threadIdx.x % 32, b = blockIdx.z;
    const int leaf = blockIdx.y / (int)a->heads, h = blockIdx.y % (int)a->heads;
    const size_t row = (size_t)blockIdx.x * 8 + threadIdx.x / 32, bytes = a->type == MODEL_CUDA_BF16 ? 2 : 4;
    if (row >= a->T)
        return;
    const void *o = head_at(&a->o, leaf, b, h, dim, bytes), *d_o = head_at(&a->d_o, leaf, b, h, dim, bytes);
    float sum = 0;
    for (int c = lane; c < dim; c += 32) {
        size_t at = row * a->o.row + c, d_at = row * a->d_o.row + c;
        if (a->type == MODEL_CUDA_BF16)
            sum += __bfloat162float(((const bf16 *)o)[at]) * __bfloat162float(((const bf16 *)d_o)[d_at]);
        else
            sum += ((const float *)o)[at] * ((const float *)d_o)[d_at];
    }
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, apart);
    if (lane == 0)
        a->delta[row_stats(a, leaf, b, h) + row] = sum;
}

/* ---- launching ------------------------------------------------------------------------------------------------------ */

static size_t forward_bytes(size_t D)
{
    return (ROWS + 2 * COLUMNS) * (D + 8) * 2;
}

static size_t backward_bytes(size_t D)
{
    return (2 * ROWS + 4 * COLUMNS) * (D + 8) * 2 + 4 * COLUMNS * sizeof(float);
}

extern "C" cudaError_t model_cuda_attention_forward_launch(const model_cuda_attention_t *attention,
                                                           cudaStream_t stream)
{
    attend_t p = attend_of(attention);
    dim3 grid((unsigned)((attention->T + ROWS - 1) / ROWS), (unsigned)(attention->leaves * attention->heads),
              (unsigned)attention->batch);
    if (attention->type == MODEL_CUDA_F32)
        return attention_f32_forward(&p, stream);
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
                                      256, backward_bytes(D), stream);
    if (rc != cudaSuccess)
        return rc;
    return attention_launch(backward<D, 0>, p, dim3(blocks, leaves * (unsigned)a->heads, batch), 256,
                            backward_bytes(D), stream);
}

extern "C" cudaError_t model_cuda_attention_backward_launch(const model_cuda_attention_t *attention,
                                                            cudaStream_t stream)
{
    attend_t p = attend_of(attention);
    dim3 grid((unsigned)((attention->T + 7) / 8), (unsigned)(attention->leaves * attention->heads),
              (unsigned)attention->batch);
    cudaError_t rc = attention_launch(row_delta, &p, grid, 256, 0, stream);
    if (rc != cudaSuccess)
        return rc;
    if (attention->type == MODEL_CUDA_F32)
        return attention_f32_backward(&p, stream);
    if (attention->head_dim <= 64)
        return backward_of<64>(&p, stream);
    if (attention->head_dim <= 96)
        return backward_of<96>(&p, stream);
    return backward_of<128>(&p, stream);
}
