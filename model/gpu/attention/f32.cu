/* SPDX-License-Identifier: Apache-2.0 */
/* model/gpu/attention/f32.cu: mma.cu's scheme in fp32 on the ordinary units, for runs that are compared with
 * the CPU's.
 *
 * A block of 256 threads has 64 "rows" (queries; for dk and dv: keys) that stay and 32 "columns" at a time
 * that pass. Thread (y, x) of 16 x 16 has the scores of rows 4 y .. 4 y + 3 with columns x and x + 16, and of
 * the sums over columns those rows' channels 4 x .. 4 x + 3 and 64 + 4 x .. . In between the weights go
 * through shared memory. Every sum is one thread's, or one of 16 lanes by a fixed tree. */
#include "model/gpu/attention/internal.h"

enum { ROWS = 64, COLUMNS = 32, WIDTH = 128, LD = WIDTH + 4, LD_W = COLUMNS + 4 };

/* tile [rows][LD] = rows r0 .. of x; zeros beyond T and head_dim. */
static __device__ __forceinline__ void load_tile(float *tile, const float *x, size_t ld, int r0, int rows,
                                                 int T, int head_dim, int fast)
{
    for (int i = threadIdx.x; i < rows * (WIDTH / 4); i += 256) {
        int r = i / (WIDTH / 4), c = i % (WIDTH / 4) * 4, n = r0 + r < T ? head_dim - c : 0;
        const float *from = x + (size_t)(r0 + r) * ld + c;
        float *to = tile + r * LD + c;
        if (fast && n >= 4) {
            *(float4 *)to = *(const float4 *)from;
        } else {
#pragma unroll
            for (int e = 0; e < 4; e++)
                to[e] = e < n ? from[e] : 0;
        }
    }
}

/* s[i][j] = the product of row 4 y + i of `rows` and row x + 16 j of `columns`, over the channels in
 * order. */
static __device__ __forceinline__ void scores(float s[4][2], const float *rows, const float *columns,
                                              int head_dim)
{
    const float *left = rows + threadIdx.x / 16 * 4 * LD, *right = columns + threadIdx.x % 16 * LD;
#pragma unroll
    for (int i = 0; i < 4; i++)
        s[i][0] = s[i][1] = 0;
    for (int c = 0; c < head_dim; c += 4) {
        float4 y[2] = {*(const float4 *)(right + c), *(const float4 *)(right + 16 * LD + c)};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float4 x = *(const float4 *)(left + i * LD + c);
#pragma unroll
            for (int j = 0; j < 2; j++) {
                s[i][j] += x.x * y[j].x;
                s[i][j] += x.y * y[j].y;
                s[i][j] += x.z * y[j].z;
                s[i][j] += x.w * y[j].w;
            }
        }
    }
}

/* weights [ROWS][LD_W] = s. */
static __device__ __forceinline__ void put(float *weights, const float s[4][2])
{
    float *to = weights + threadIdx.x / 16 * 4 * LD_W + threadIdx.x % 16;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        to[i * LD_W] = s[i][0];
        to[i * LD_W + 16] = s[i][1];
    }
}

/* acc[i] += the row 4 y + i of weights times columns, column after column: the thread's eight channels. */
static __device__ __forceinline__ void gather(float acc[4][8], const float *weights, const float *columns,
                                              int head_dim)
{
    const float *left = weights + threadIdx.x / 16 * 4 * LD_W, *right = columns + threadIdx.x % 16 * 4;
#pragma unroll 4
    for (int c = 0; c < COLUMNS; c++) {
        float4 low = *(const float4 *)(right + c * LD), high = make_float4(0, 0, 0, 0);
        if (head_dim > 64)
            high = *(const float4 *)(right + c * LD + 64);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float w = left[i * LD_W + c];
            acc[i][0] += w * low.x;
            acc[i][1] += w * low.y;
            acc[i][2] += w * low.z;
            acc[i][3] += w * low.w;
            acc[i][4] += w * high.x;
            acc[i][5] += w * high.y;
            acc[i][6] += w * high.z;
            acc[i][7] += w * high.w;
        }
    }
}

static __device__ __forceinline__ void store(float *x, size_t ld, int r0, int T, int head_dim, int fast,
                                             const float acc[4][8], const float factor[4])
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int row = r0 + (int)threadIdx.x / 16 * 4 + i;
        if (row >= T)
            continue;
#pragma unroll
        for (int upper = 0; upper < 2; upper++) {
            int c = upper * 64 + (int)threadIdx.x % 16 * 4;
            float *to = x + (size_t)row * ld + c;
            const float *from = &acc[i][upper * 4];
            if (fast && c + 4 <= head_dim) {
                *(float4 *)to = make_float4(from[0] * factor[i], from[1] * factor[i], from[2] * factor[i],
                                            from[3] * factor[i]);
            } else {
#pragma unroll
                for (int e = 0; e < 4; e++)
                    if (c + e < head_dim)
                        to[e] = from[e] * factor[i];
            }
        }
    }
}

/* What the 16 threads that share rows have between them. */
static __device__ __forceinline__ float largest_of_row(float x)
{
#pragma unroll
    for (int apart = 8; apart > 0; apart /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, apart));
    return x;
}

static __device__ __forceinline__ float sum_of_row(float x)
{
#pragma unroll
    for (int apart = 8; apart > 0; apart /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, apart);
    return x;
}

/* 1, or what dropout makes of a weight. */
static __device__ __forceinline__ float keep_of(const model_cuda_attention_t *a, int b, int head, int query,
                                                int key)
{
    if (!a->keys)
        return 1;
    return dropped_pair(a, b, first_element(a, head, query) + key) & 1 ? 0 : a->kept;
}

/* Grid: x blocks of rows, the last first; y heads of all leaves; z sequences. */
static __global__ void __launch_bounds__(256) forward(const __grid_constant__ attend_t p)
{
    GYRE_DYNAMIC_SHARED(float, shared);
    float *tile_q = shared, *tile_k = tile_q + ROWS * LD, *tile_v = tile_k + COLUMNS * LD,
          *weights = tile_v + COLUMNS * LD;
    const model_cuda_attention_t *a = &p.a;
    const int T = (int)a->T, dim = (int)a->head_dim, x = threadIdx.x % 16, y = threadIdx.x / 16;
    const int r0 = (int)(gridDim.x - 1 - blockIdx.x) * ROWS, b = blockIdx.z;
    const int leaf = blockIdx.y / (int)a->heads, h = blockIdx.y % (int)a->heads,
              kv = h / (int)(a->heads / a->kv_heads);
    const int prefix = prefix_of(a, b), end = columns_end(r0 + ROWS, prefix, T);
    const float slope = a->slopes ? a->slopes[blockIdx.y] * LOG2E : 0;
    const float *k = (const float *)head_at(&a->k, leaf, b, kv, dim, 4),
                *v = (const float *)head_at(&a->v, leaf, b, kv, dim, 4);
    load_tile(tile_q, (const float *)head_at(&a->q, leaf, b, h, dim, 4), a->q.row, r0, ROWS, T, dim, p.fast);

    float out[4][8], largest[4], sum[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        largest[i] = -INFINITY;
        sum[i] = 0;
#pragma unroll
        for (int e = 0; e < 8; e++)
            out[i][e] = 0;
    }
    for (int c0 = 0; c0 < end; c0 += COLUMNS) {
        __syncthreads(); /* the columns before were used */
        load_tile(tile_k, k, a->k.row, c0, COLUMNS, T, dim, p.fast);
        load_tile(tile_v, v, a->v.row, c0, COLUMNS, T, dim, p.fast);
        __syncthreads();
        float s[4][2];
        scores(s, tile_q, tile_k, dim);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int row = r0 + y * 4 + i;
#pragma unroll
            for (int j = 0; j < 2; j++) {
                int column = c0 + x + 16 * j;
                s[i][j] *= p.scale_2;
                if (slope > 0)
                    s[i][j] -= slope * fabsf((float)(row - column));
                if (column >= seen(row, prefix) || column >= T)
                    s[i][j] = -INFINITY;
            }
            float top = fmaxf(largest[i],
                              largest_of_row(fmaxf(s[i][0], s[i][1]))); /* finite: every row sees column 0 */
            float shrink = power_2(largest[i] - top);
            largest[i] = top;
            s[i][0] = power_2(s[i][0] - top);
            s[i][1] = power_2(s[i][1] - top);
            sum[i] = sum[i] * shrink + (s[i][0] + s[i][1]);
#pragma unroll
            for (int e = 0; e < 8; e++)
                out[i][e] *= shrink;
#pragma unroll
            for (int j = 0; j < 2; j++)
                s[i][j] *= keep_of(a, b, blockIdx.y, row, c0 + x + 16 * j);
        }
        put(weights, s);
        __syncthreads();
        gather(out, weights, tile_v, dim);
    }
    float *lse = a->lse + row_stats(a, leaf, b, h), factor[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float total = sum_of_row(sum[i]);
        int row = r0 + y * 4 + i;
        factor[i] = 1 / total;
        if (x == 0 && row < T)
            lse[row] = (largest[i] + log2f(total)) * LN2;
    }
    store((float *)head_at(&a->o, leaf, b, h, dim, 4), a->o.row, r0, T, dim, p.fast, out, factor);
}

/* As backward of mma.cu. */
template <int OF_KEYS>
static __global__ void __launch_bounds__(256) backward(const __grid_constant__ attend_t p)
{
    GYRE_DYNAMIC_SHARED(float, shared);
    float *rows_x = shared, *rows_y = rows_x + ROWS * LD, *cols_x = rows_y + ROWS * LD,
          *cols_y = cols_x + COLUMNS * LD;
    float *weights_x = cols_y + COLUMNS * LD, *weights_y = weights_x + ROWS * LD_W;
    const model_cuda_attention_t *a = &p.a;
    const int T = (int)a->T, dim = (int)a->head_dim, x = threadIdx.x % 16, y = threadIdx.x / 16;
    const int share = (int)(a->heads / a->kv_heads), of_y = (int)(OF_KEYS ? a->kv_heads : a->heads);
    const int leaf = blockIdx.y / of_y, b = blockIdx.z, prefix = prefix_of(a, b);
    const int block = OF_KEYS ? (int)blockIdx.x : (int)(gridDim.x - 1 - blockIdx.x), r0 = block * ROWS;
    const int h0 = OF_KEYS ? (int)blockIdx.y % of_y * share : (int)blockIdx.y % of_y, kv = h0 / share;
    const int begin = OF_KEYS && r0 >= prefix ? r0 : 0, end = OF_KEYS ? T : columns_end(r0 + ROWS, prefix, T);
    const model_cuda_heads_t *at_x = OF_KEYS ? &a->k : &a->q, *at_y = OF_KEYS ? &a->v : &a->d_o;
    const model_cuda_heads_t *with_x = OF_KEYS ? &a->q : &a->k, *with_y = OF_KEYS ? &a->d_o : &a->v;
    load_tile(rows_x, (const float *)head_at(at_x, leaf, b, OF_KEYS ? kv : h0, dim, 4), at_x->row, r0, ROWS,
              T, dim, p.fast);
    load_tile(rows_y, (const float *)head_at(at_y, leaf, b, OF_KEYS ? kv : h0, dim, 4), at_y->row, r0, ROWS,
              T, dim, p.fast);

    float acc_x[4][8], acc_y[4][8];
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int e = 0; e < 8; e++)
            acc_x[i][e] = acc_y[i][e] = 0;
    for (int h = h0; h < (OF_KEYS ? h0 + share : h0 + 1); h++) {
        const int head = leaf * (int)a->heads + h, with = OF_KEYS ? h : kv;
        const size_t stats = row_stats(a, leaf, b, h);
        const float slope = a->slopes ? a->slopes[head] * LOG2E : 0;
        for (int c0 = begin; c0 < end; c0 += COLUMNS) {
            __syncthreads(); /* the columns before were used */
            load_tile(cols_x, (const float *)head_at(with_x, leaf, b, with, dim, 4), with_x->row, c0, COLUMNS,
                      T, dim, p.fast);
            load_tile(cols_y, (const float *)head_at(with_y, leaf, b, with, dim, 4), with_y->row, c0, COLUMNS,
                      T, dim, p.fast);
            __syncthreads();
            float w[4][2], d[4][2];
            scores(w, rows_x, cols_x, dim);
            scores(d, rows_y, cols_y, dim);
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    int r = r0 + y * 4 + i, c = c0 + x + 16 * j, query = OF_KEYS ? c : r,
                        key = OF_KEYS ? r : c;
                    float s = w[i][j] * p.scale_2 - stat_of(a, 0, stats, query);
                    if (slope > 0)
                        s -= slope * fabsf((float)(query - key));
                    s = key >= seen(query, prefix) || key >= T ? 0 : power_2(s);
                    float keep = keep_of(a, b, head, query, key);
                    d[i][j] = s * (d[i][j] * keep - stat_of(a, 1, stats, query));
                    w[i][j] = s * keep;
                }
            put(weights_x, d);
            if (OF_KEYS)
                put(weights_y, w);
            __syncthreads();
            gather(acc_x, weights_x, cols_x, dim);
            if (OF_KEYS)
                gather(acc_y, weights_y, cols_y, dim);
        }
    }
    const model_cuda_heads_t *to = OF_KEYS ? &a->d_k : &a->d_q;
    const float scale[4] = {a->scale, a->scale, a->scale, a->scale}, one[4] = {1, 1, 1, 1};
    store((float *)head_at(to, leaf, b, OF_KEYS ? kv : h0, dim, 4), to->row, r0, T, dim, p.fast, acc_x,
          scale);
    if (OF_KEYS)
        store((float *)head_at(&a->d_v, leaf, b, kv, dim, 4), a->d_v.row, r0, T, dim, p.fast, acc_y, one);
}

cudaError_t attention_f32_forward(const attend_t *p, cudaStream_t stream)
{
    const model_cuda_attention_t *a = &p->a;
    dim3 grid((unsigned)((a->T + ROWS - 1) / ROWS), (unsigned)(a->leaves * a->heads), (unsigned)a->batch);
    return attention_launch(forward, p, grid, 256, ((ROWS + 2 * COLUMNS) * LD + ROWS * LD_W) * sizeof(float),
                            stream);
}

size_t attention_f32_backward_bytes(void)
{
    return ((2 * ROWS + 2 * COLUMNS) * LD + 2 * ROWS * LD_W) * sizeof(float);
}

cudaError_t attention_f32_backward(const attend_t *p, cudaStream_t stream)
{
    const model_cuda_attention_t *a = &p->a;
    const size_t bytes = attention_f32_backward_bytes();
    unsigned blocks = (unsigned)((a->T + ROWS - 1) / ROWS), batch = (unsigned)a->batch,
             leaves = (unsigned)a->leaves;
    cudaError_t rc = attention_launch(backward<1>, p, dim3(blocks, leaves * (unsigned)a->kv_heads, batch),
                                      256, bytes, stream);
    if (rc != cudaSuccess)
        return rc;
    return attention_launch(backward<0>, p, dim3(blocks, leaves * (unsigned)a->heads, batch), 256, bytes,
                            stream);
}
