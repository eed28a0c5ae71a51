/* SPDX-License-Identifier: Apache-2.0 */
/* model/gpu/layers/norm_back.cu: gradients of norms, sums over positions. Compiled without contraction. */
#include "model/gpu/layers/launch.h"
#include "model/gpu/layers/norm.h"
#include "model/gpu/layers/rows.h"

enum {
    /* shared memory for the rows of a block: GPUs of compute capability 8.6 have it, too */
    ROOM = 98 * 1024
};

/* ---- pieces of positions ------------------------------------------------------------------------------- */

enum { COLUMNS = 32, PIECES = MODEL_CUDA_PIECES };

/* The pieces of a sequence that lie here, and the first position, of those here, of the i-th of them. */
typedef struct {
    size_t pieces, skip, here, all, begin;
} cut_t;

static cut_t cut_of(const model_cuda_span_t *span)
{
    size_t pieces = model_cuda_pieces(span->all, span->leaves);
    return (cut_t){pieces, pieces * span->begin / span->all, pieces * span->rows / span->all, span->all,
                   span->begin}; /* whole numbers: see norm.h */
}

static __device__ __forceinline__ size_t piece_begin(const cut_t &cut, size_t i)
{
    return (cut.skip + i) * cut.all / cut.pieces - cut.begin;
}

typedef struct {
    const float *partial; /* [sequences][here][kinds][channels] */
    float *to[MODEL_CUDA_SUMMED];
    size_t here, kinds, channels, step_sum;
} tree_t;

/* Block: 32 columns x up to 32 pieces; grid: (columns / 32, sequences, kinds). Shared: the pieces' sums of 32
 * columns. */
static __global__ void join_pieces(const __grid_constant__ tree_t p)
{
    GYRE_DYNAMIC_SHARED(float, shared);
    float(*part)[COLUMNS] = (float(*)[COLUMNS])shared;
    size_t C = p.channels, c = (size_t)blockIdx.x * COLUMNS + threadIdx.x, sequence = blockIdx.y;
    float *to = p.to[blockIdx.z];
    if (!to)
        return;
    for (size_t i = threadIdx.y; i < p.here; i += blockDim.y)
        part[i][threadIdx.x] =
            c < C ? p.partial[((sequence * p.here + i) * p.kinds + blockIdx.z) * C + c] : 0.0f;
    for (size_t n = 1; n < p.here; n *= 2) {
        __syncthreads();
        for (size_t i = threadIdx.y * 2 * n; i + n < p.here; i += blockDim.y * 2 * n)
            part[i][threadIdx.x] = part[i][threadIdx.x] + part[i + n][threadIdx.x];
    }
    if (threadIdx.y == 0 && c < C) /* the threads that wrote piece 0 last */
        to[sequence * p.step_sum + c] = part[0][threadIdx.x];
}

static gyre_status_t join(const tree_t *p, size_t sequences, struct CUstream_st *stream)
{
    dim3 grid((unsigned)((p->channels + COLUMNS - 1) / COLUMNS), (unsigned)sequences, (unsigned)p->kinds);
    dim3 block(COLUMNS, (unsigned)(p->here < (size_t)PIECES ? p->here : (size_t)PIECES));
    return model_cuda_launched(
        GYRE_LAUNCH(join_pieces, grid, block, p->here * COLUMNS * sizeof(float), stream, *p), "join_pieces",
        grid, block);
}

/* ---- gradients of norms -------------------------------------------------------------------------------- */

/* What a row's elements need: mean, rstd, mean(g), mean(g n). */
typedef struct {
    float m, s, g, gn;
} row_t;

/* Rows of a tensor to shared memory, which others may read after the wait and a barrier. Returns `to`. */
template <typename S>
static __device__ __forceinline__ const S *bring(S *to, const S *from, size_t rows, size_t C, size_t pitch,
                                                 int wide)
{
    const unsigned step = wide ? 16 / sizeof(S) : 1;
    for (size_t r = 0; r < rows; r++)
        for (size_t c = threadIdx.x * step; c < C; c += blockDim.x * step)
            if (wide)
                gyre_cp_async16(to + r * pitch + c, from + r * C + c);
            else
                to[r * pitch + c] = from[r * C + c];
    return to;
}

/* With n = (x - mean) rstd and g = dy w:  dx = rstd (g - mean(g) - n mean(g n)); a root mean square has n = x
 * rstd, and no mean(g). Block: a piece of a sequence's positions, `most` rows of it at a time: brought to
 * shared memory; summed by half a warp each, in the host's lanes; then a thread has eight channels of all
 * these rows, whose sums over positions it goes on with, in registers or in `partial`. Grid: (pieces,
 * sequences). Shared: [most] row_t, then dy, x and base, [3][most][pitch]; pitch 0: they do not fit, and are
 * read again from memory. */
template <typename S>
static __global__ void __launch_bounds__(256, 2)
    norm_backward(const model_cuda_norm_back_t p, const cut_t cut, size_t most, size_t pitch, int wide)
{
    GYRE_DYNAMIC_SHARED(row_t, row);
    S *const shared = (S *)(row + most);
    size_t C = p.span.channels, from = piece_begin(cut, blockIdx.x), to = piece_begin(cut, blockIdx.x + 1);
    size_t before = blockIdx.y * p.span.rows, step = pitch > 0 ? pitch : C;
    float *partial = p.partial + (blockIdx.y * cut.here + blockIdx.x) * MODEL_CUDA_SUMMED * C;
    float sum[MODEL_CUDA_SUMMED][EACH];
    int rms = p.norm == MODEL_NORM_RMS, alone = blockDim.x * EACH >= C; /* a thread has no second channels */
    for (size_t c = threadIdx.x; c < MODEL_CUDA_SUMMED * C && from == to; c += blockDim.x)
        partial[c] = 0.0f; /* more leaves than positions */
    for (size_t t = from; t < to; t += most) {
        size_t rows = to - t < most ? to - t : most, at = (before + t) * C;
        const S *d = (const S *)p.dy + at, *x = (const S *)p.x + at, *base = (const S *)p.base + at;
        if (pitch > 0) {
            d = bring(shared, d, rows, C, pitch, wide);
            x = bring(shared + most * pitch, x, rows, C, pitch, wide);
            if (p.base)
                base = bring(shared + 2 * most * pitch, base, rows, C, pitch, wide);
            gyre_cp_async_commit();
            gyre_cp_async_wait<0>();
            __syncthreads();
        }
        for (size_t r = threadIdx.x / WARP * 2; r < rows; r += blockDim.x / MODEL_LANES) { /* a whole warp */
            size_t mine = r + threadIdx.x % WARP / MODEL_LANES, i = mine < rows ? mine : rows - 1;
            row_t a = {rms ? 0.0f : p.mean[before + t + i], p.rstd[before + t + i], 0.0f, 0.0f};
#pragma unroll 4
            for (size_t c = threadIdx.x % MODEL_LANES; c < C; c += MODEL_LANES) {
                float g = model_load(d + i * step + c) * model_load((const S *)p.w + c),
                      v = model_load(x + i * step + c);
                a.g = a.g + g;
                a.gn = a.gn + g * (rms ? v * a.s : (v - a.m) * a.s);
            }
            a.g = model_join_lanes(a.g) / (float)C;
            a.gn = model_join_lanes(a.gn) / (float)C;
            if (mine < rows && threadIdx.x % MODEL_LANES == 0)
                row[mine] = a;
        }
        __syncthreads();
        for (size_t c = threadIdx.x * EACH; c < C; c += blockDim.x * EACH) {
            size_t left = C - c;
            float w[EACH];
            load_part(w, (const S *)p.w + c, left, wide);
            if (t == from || !alone) /* else they are still here */
#pragma unroll
                for (int k = 0; k < MODEL_CUDA_SUMMED; k++)
                    load_part(sum[k], partial + (unsigned)k * C + c, t > from ? left : 0, wide);
            for (size_t r = 0; r < rows; r++) {
                const row_t a = row[r];
                float dy[EACH], v[EACH], old[EACH];
                load_part(dy, d + r * step + c, left, wide);
                load_part(v, x + r * step + c, left, wide);
                load_part(old, base + r * step + c, p.base ? left : 0, wide);
#pragma unroll
                for (int i = 0; i < EACH; i++) {
                    float n = rms ? v[i] * a.s : (v[i] - a.m) * a.s, g = dy[i] * w[i];
                    v[i] = model_rounded(x, old[i] + a.s * (rms ? g - n * a.gn : g - a.g - n * a.gn));
                    sum[MODEL_CUDA_SUM_W][i] = sum[MODEL_CUDA_SUM_W][i] + dy[i] * n;
                    sum[MODEL_CUDA_SUM_B][i] = sum[MODEL_CUDA_SUM_B][i] + dy[i];
                    sum[MODEL_CUDA_SUM_BASE][i] = sum[MODEL_CUDA_SUM_BASE][i] + old[i];
                    sum[MODEL_CUDA_SUM_OUT][i] = sum[MODEL_CUDA_SUM_OUT][i] + v[i];
                }
                store_part((S *)p.out + at + r * C + c, v, left, wide);
            }
            if (t + most >= to || !alone)
#pragma unroll
                for (int k = 0; k < MODEL_CUDA_SUMMED; k++)
                    store_part(partial + (unsigned)k * C + c, sum[k], left, wide);
        }
        __syncthreads(); /* the next rows come over these */
    }
}

extern "C" gyre_status_t model_cuda_norm_back(const model_cuda_norm_back_t *p, struct CUstream_st *stream)
{
    const cut_t cut = cut_of(&p->span);
    size_t C = p->span.channels, size = bytes_of(p->type), pitch = pitch_of(C), most = 8;
    while (most > 1 && most * (3 * pitch * size + sizeof(row_t)) > ROOM)
        most /= 2;
    if (most * (3 * pitch * size + sizeof(row_t)) > ROOM) {
        most = 8;
        pitch = 0;
    }
    const int wide = C % EACH == 0 && is_wide(p->dy, 0, 1) && is_wide(p->x, 0, 1) && is_wide(p->w, 0, 1) &&
                     is_wide(p->base, 0, 1) && is_wide(p->out, 0, 1) && is_wide(p->partial, 0, 1);
    size_t bytes = most * (3 * pitch * size + sizeof(row_t));
    dim3 grid((unsigned)cut.here, (unsigned)p->span.sequences), block(C > 128 * EACH ? 256 : 128);
    cudaError_t rc =
        p->type == MODEL_CUDA_BF16
            ? GYRE_LAUNCH(norm_backward<uint16_t>, grid, block, bytes, stream, *p, cut, most, pitch, wide)
            : GYRE_LAUNCH(norm_backward<float>, grid, block, bytes, stream, *p, cut, most, pitch, wide);
    gyre_status_t status = model_cuda_launched(rc, "norm_backward", grid, block);
    tree_t tree = {p->partial, {}, cut.here, MODEL_CUDA_SUMMED, C, p->step_sum};
    for (int k = 0; k < MODEL_CUDA_SUMMED; k++)
        tree.to[k] = p->sum[k];
    return status == GYRE_OK ? join(&tree, p->span.sequences, stream) : status;
}

/* ---- sums over positions ------------------------------------------------------------------------------- */

/* A thread: eight channels of a piece, from its first position to its last, the loads of eight rows under
 * way. Grid: (channels / 256, pieces, sequences). */
template <typename S>
static __global__ void __launch_bounds__(WARP)
    sum_pieces(const model_cuda_position_sums_t p, const cut_t cut, int wide)
{
    size_t C = p.span.channels, c = ((size_t)blockIdx.x * WARP + threadIdx.x) * EACH;
    size_t from = piece_begin(cut, blockIdx.y), to = piece_begin(cut, blockIdx.y + 1);
    const S *d = (const S *)p.dy + blockIdx.z * p.step_dy + c;
    float sum[EACH] = {0.0f}, v[EACH];
    if (c >= C)
        return;
#pragma unroll 8
    for (size_t t = from; t < to; t++) {
        load_part(v, d + t * C, C - c, wide);
#pragma unroll
        for (int i = 0; i < EACH; i++)
            sum[i] = sum[i] + v[i];
    }
    store_part(p.partial + (blockIdx.z * cut.here + blockIdx.y) * C + c, sum, C - c, wide);
}

extern "C" gyre_status_t model_cuda_position_sums(const model_cuda_position_sums_t *p,
                                                  struct CUstream_st *stream)
{
    const cut_t cut = cut_of(&p->span);
    size_t C = p->span.channels;
    const int wide =
        C % EACH == 0 && is_wide(p->dy, p->step_dy, bytes_of(p->type)) && is_wide(p->partial, 0, 1);
    dim3 grid((unsigned)((C + WARP * EACH - 1) / (WARP * EACH)), (unsigned)cut.here,
              (unsigned)p->span.sequences),
        block(WARP);
    cudaError_t rc = p->type == MODEL_CUDA_BF16
                         ? GYRE_LAUNCH(sum_pieces<uint16_t>, grid, block, 0, stream, *p, cut, wide)
                         : GYRE_LAUNCH(sum_pieces<float>, grid, block, 0, stream, *p, cut, wide);
    gyre_status_t status = model_cuda_launched(rc, "sum_pieces", grid, block);
    const tree_t tree = {p->partial, {p->sum}, cut.here, 1, C, p->step_sum};
    return status == GYRE_OK ? join(&tree, p->span.sequences, stream) : status;
}
