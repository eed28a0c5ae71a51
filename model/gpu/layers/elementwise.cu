/* SPDX-License-Identifier: Apache-2.0 */
/* model/gpu/layers/elementwise.cu: one thread per element or pair. Compiled without contraction. */
#include "model/gpu/layers/elementwise.h"
#include "model/gpu/layers/launch.h"
#include "model/gpu/scalar.h"

/* Blocks of a kernel that strides over `count` elements: enough to fill a GPU several times over, and no
 * more. */
enum { THREADS = 256, MOST_BLOCKS = 16384 };
#define MOST_ROWS ((size_t)8192) /* blocks along y */

static size_t blocks_of(size_t count)
{
    size_t blocks = (count + THREADS - 1) / THREADS;
    return blocks < (size_t)MOST_BLOCKS ? blocks : (size_t)MOST_BLOCKS;
}

#define FOR_EACH(i, count)                                                      \
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < (count); \
         i += (size_t)gridDim.x * blockDim.x)

/* ---- sums of leaves ------------------------------------------------------------------------------------ */

template <typename S> static __global__ void join(S *out, const float *part, size_t leaves, size_t count)
{
    FOR_EACH(i, count)
    model_store(out + i, model_join_leaves(part, leaves, count, i));
}

extern "C" gyre_status_t model_cuda_join(model_cuda_type_t type, void *out, const float *part, size_t leaves,
                                         size_t count, struct CUstream_st *stream)
{
    dim3 grid((unsigned)blocks_of(count)), block(THREADS);
    if (grid.x == 0)
        return GYRE_OK;
    if (type == MODEL_CUDA_BF16)
        return model_cuda_launched(
            GYRE_LAUNCH(join<uint16_t>, grid, block, 0, stream, (uint16_t *)out, part, leaves, count), "join",
            grid, block);
    return model_cuda_launched(
        GYRE_LAUNCH(join<float>, grid, block, 0, stream, (float *)out, part, leaves, count), "join", grid,
        block);
}

/* Arguments of the kernels below; their launchers describe them. */
typedef struct {
    void *y;
    const void *a, *b;
    size_t n, F; /* elements; or rows, of F elements */
    float alpha;
    int act;
} operands_t;

template <typename S> static __global__ void scale_add(const operands_t p)
{
    FOR_EACH(i, p.n)
    model_store((S *)p.y + i, p.alpha * model_load((const S *)p.a + i) + model_load((const S *)p.b + i));
}

extern "C" gyre_status_t model_cuda_scale_add(model_cuda_type_t type, void *out, float alpha, const void *a,
                                              const void *b, size_t count, struct CUstream_st *stream)
{
    const operands_t p = {out, a, b, count, 0, alpha, 0};
    return MODEL_LAUNCH(type, scale_add, blocks_of(count), THREADS, stream, p);
}

/* ---- gated activations --------------------------------------------------------------------------------- */

/* Grid for kernels on rows of `width` elements: x over a row, y over rows, which needs no division. */
static dim3 rows_grid(size_t width, size_t rows)
{
    return dim3((unsigned)((width + THREADS - 1) / THREADS), (unsigned)(rows < MOST_ROWS ? rows : MOST_ROWS));
}

#define FOR_EACH_ROW(row, rows) for (size_t row = blockIdx.y; row < (rows); row += gridDim.y)

template <typename S> static __global__ void gated(const operands_t p)
{
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= p.F)
        return;
    FOR_EACH_ROW(row, p.n)
    {
        const S *x = (const S *)p.a + 2 * row * p.F + i;
        model_store((S *)p.y + row * p.F + i, model_act(p.act, model_load(x)) * model_load(x + p.F));
    }
}

extern "C" gyre_status_t model_cuda_gated(model_cuda_type_t type, model_act_t act, void *y, const void *x,
                                          size_t rows, size_t F, struct CUstream_st *stream)
{
    const operands_t p = {y, x, NULL, rows, F, 0.0f, (int)act};
    return MODEL_LAUNCH_AS(type, gated, rows_grid(F, rows), dim3(THREADS), stream, p);
}

template <typename S> static __global__ void gated_back(const operands_t p)
{
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= p.F)
        return;
    FOR_EACH_ROW(row, p.n)
    {
        size_t at = 2 * row * p.F + i;
        const S *x = (const S *)p.b + at;
        S *dx = (S *)p.y + at;
        float d = model_load((const S *)p.a + row * p.F + i), gate = model_load(x), up = model_load(x + p.F);
        model_store(dx, d * up * model_act_slope(p.act, gate));
        model_store(dx + p.F, d * model_act(p.act, gate));
    }
}

extern "C" gyre_status_t model_cuda_gated_back(model_cuda_type_t type, model_act_t act, void *dx,
                                               const void *dy, const void *x, size_t rows, size_t F,
                                               struct CUstream_st *stream)
{
    const operands_t p = {dx, dy, x, rows, F, 0.0f, (int)act};
    return MODEL_LAUNCH_AS(type, gated_back, rows_grid(F, rows), dim3(THREADS), stream, p);
}

/* ---- rotary positions ---------------------------------------------------------------------------------- */

/* One thread per pair of channels and several rows (Su et al. 2021); a row's pairs lie side by side over
 * its heads. */
template <typename S> static __global__ void rope(const model_cuda_rope_t p)
{
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x, all = p.sequences * p.T;
    if (i >= p.heads * p.half)
        return;
    size_t head = i / p.half, k = i % p.half, first = head * p.head_dim + (p.interleaved ? 2 * k : k),
           apart = p.interleaved ? 1 : p.half;
    float sign = p.back ? -1.0f : 1.0f;
    FOR_EACH_ROW(row, p.leaves * all)
    {
        size_t at = p.positions ? (size_t)p.positions[row % all] : row % p.T;
        const float *turn = p.turn + 2 * at * p.half;
        S *one = (S *)p.x + row * p.ld + first, *two = one + apart;
        float a = model_load(one), b = model_load(two), c = turn[k], s = sign * turn[p.half + k];
        model_store(one, a * c - b * s);
        model_store(two, b * c + a * s);
    }
}

extern "C" gyre_status_t model_cuda_rope(const model_cuda_rope_t *p, struct CUstream_st *stream)
{
    return MODEL_LAUNCH_AS(p->type, rope, rows_grid(p->heads * p->half, p->leaves * p->sequences * p->T),
                           dim3(THREADS), stream, *p);
}

/* ---- dropout ------------------------------------------------------------------------------------------- */

typedef struct {
    void *y;
    const void *x;
    size_t step_y, step_x, count, sequences;
    model_cuda_dropout_t drop;
} drop_t;

template <typename S> static __global__ void drop(const drop_t p)
{
    FOR_EACH_ROW(sequence, p.sequences)
    {
        const uint32_t *keys = p.drop.keys + sequence * 4;
        const S *x = (const S *)p.x + sequence * p.step_x;
        S *y = (S *)p.y + sequence * p.step_y;
        FOR_EACH(i, p.count)
        model_store(y + i, model_drop(model_load(x + i), keys, p.drop.place, p.drop.first + i, p.drop.below,
                                      p.drop.kept));
    }
}

extern "C" gyre_status_t model_cuda_drop(model_cuda_type_t type, void *y, size_t step_y, const void *x,
                                         size_t step_x, size_t sequences, size_t rows, size_t channels,
                                         const model_cuda_dropout_t *how, struct CUstream_st *stream)
{
    const drop_t p = {y, x, step_y, step_x, rows * channels, sequences, *how};
    dim3 grid((unsigned)blocks_of(p.count), (unsigned)(sequences < MOST_ROWS ? sequences : MOST_ROWS));
    return MODEL_LAUNCH_AS(type, drop, grid, dim3(THREADS), stream, p);
}

/* ---- copies -------------------------------------------------------------------------------------------- */

static __global__ void copy_rows(const model_cuda_copies_t p)
{
    FOR_EACH(i, p.count)
    {
        const float *from = p.from[blockIdx.y] + i;
        float sum = *from;
        for (size_t k = 1; k < p.terms; k++)
            sum = sum + from[k * p.step];
        p.to[blockIdx.y][i] = sum;
    }
}

extern "C" gyre_status_t model_cuda_copy_rows(const model_cuda_copies_t *p, struct CUstream_st *stream)
{
    dim3 grid((unsigned)blocks_of(p->count), (unsigned)p->rows), block(THREADS);
    if (grid.x == 0 || grid.y == 0)
        return GYRE_OK;
    return model_cuda_launched(GYRE_LAUNCH(copy_rows, grid, block, 0, stream, *p), "copy_rows", grid, block);
}
