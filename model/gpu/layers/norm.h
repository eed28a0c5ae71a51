/* SPDX-License-Identifier: Apache-2.0 */
/* model/gpu/layers/norm.h: what lies between products on the GPU: the residual stream and its norms, and sums
 * over positions.
 *
 * Rows are positions: [sequences][rows][channels]. Values are rounded where a tensor is stored
 * (docs/precision.md). Sums of a row run in the host's 16 lanes, so in fp32 every result here but the sums
 * over positions has the bits of the .inc files of model/kernels. Launchers enqueue on `stream` and return
 * the launch's status. */
#ifndef MODEL_GPU_LAYERS_NORM_H
#define MODEL_GPU_LAYERS_NORM_H

#include <stdint.h>

#include "model/network/config.h"
#include "model/gpu/products/matmul.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Dropout of a tensor with the host's numbers (model/kernels/residual.inc). */
typedef struct {
    /* device, [sequences][4]: model_dropout_key of any place; NULL: no dropout */
    const uint32_t *keys;
    uint32_t place; /* 4 layer + site */
    uint32_t below; /* model_dropout_below */
    float kept;     /* 1 / (1 - probability) */
    size_t first;   /* element of a sequence's tensor at which its first row here begins */
} model_cuda_dropout_t;

/* out = alpha x + drop(sum + bias), and y = norm of it, or of x where there is no sum. Memory is read once: a
 * row waits in shared memory for its mean, its variance and y, if two of them fit in 48 KiB. */
typedef struct {
    model_cuda_type_t type; /* of x, bias, out, y, w, b */
    size_t sequences, rows, channels;
    const void *x; /* rows of a sequence side by side, sequences step_x elements apart */
    size_t step_x;
    const float *
        /* [leaves][sequences][rows][channels], joined in the tree; NULL: no residual, out and bias are not
         * used */
        sum;
    size_t leaves;    /* a power of two, up to 64 */
    const void *bias; /* [channels]; NULL: no bias */
    float alpha;
    model_cuda_dropout_t drop;
    void *out; /* [sequences][rows][channels]; may be x */
    void *y;   /* rows of a sequence side by side, sequences step_y elements apart; NULL: no norm */
    size_t step_y;
    model_norm_t norm;
    const void *w, *b;  /* [channels]; b only of MODEL_NORM_LAYER */
    float *mean, *rstd; /* [sequences][rows], kept for backward; mean only of MODEL_NORM_LAYER */
    float eps;
    model_cuda_dropout_t drop_y; /* of y, after the norm (an embedding's) */
} model_cuda_norm_t;
gyre_status_t model_cuda_norm(const model_cuda_norm_t *norm, struct CUstream_st *stream);

/* Sums over positions, of each sequence. A sequence's `all` positions are cut into pieces at floor(k all /
 * pieces): 32 of them, or fewer powers of two where those would be shorter than 8, and at least one per leaf;
 * each is added up in order, and the pieces are joined in a tree. Rows here are positions `begin` .. begin +
 * rows - 1, whole pieces of them (sequence parallelism). */
typedef struct {
    size_t sequences, rows, channels, all, begin, leaves;
} model_cuda_span_t;
enum { MODEL_CUDA_PIECES = 32, MODEL_CUDA_SHORTEST = 8 /* positions that a piece is worth */ };
/* Pieces of `all` positions. */
static inline size_t model_cuda_pieces(size_t all, size_t leaves)
{
    size_t pieces = 1;
    while (pieces < (size_t)MODEL_CUDA_PIECES && 2 * pieces * MODEL_CUDA_SHORTEST <= all)
        pieces *= 2;
    return leaves > pieces ? leaves : pieces;
}

/* What is summed with the gradient of a norm's input: with n = (x - mean) rstd, or x rstd, dy n and dy
 * (gradients of gain and bias), base, and out as stored (gradients of the biases on the residual stream). */
enum { MODEL_CUDA_SUM_W, MODEL_CUDA_SUM_B, MODEL_CUDA_SUM_BASE, MODEL_CUDA_SUM_OUT, MODEL_CUDA_SUMMED };

/* out = base + the gradient of x in y = norm(x), from that of y; and sums over positions in the same pass. */
typedef struct {
    model_cuda_type_t type; /* of dy, x, w, base, out */
    model_cuda_span_t span;
    const void *dy, *x, *w;   /* [sequences][rows][channels]; w [channels] */
    const float *mean, *rstd; /* [sequences][rows]; mean only of MODEL_NORM_LAYER */
    model_norm_t norm;
    const void *base; /* as x; NULL: 0 */
    void *out;        /* may be base or dy */
    float *partial;   /* scratch: [sequences][pieces here][MODEL_CUDA_SUMMED][channels] */
    /* [channels] of each sequence, step_sum elements apart; NULL: not asked for */
    float *sum[MODEL_CUDA_SUMMED];
    size_t step_sum;
} model_cuda_norm_back_t;
gyre_status_t model_cuda_norm_back(const model_cuda_norm_back_t *back, struct CUstream_st *stream);

/* Sums over positions of dy. */
typedef struct {
    model_cuda_type_t type; /* of dy */
    model_cuda_span_t span;
    const void *dy; /* rows of a sequence side by side, sequences step_dy elements apart */
    size_t step_dy;
    float *partial; /* scratch: [sequences][pieces here][channels] */
    float *sum;     /* [channels] of each sequence, step_sum elements apart */
    size_t step_sum;
} model_cuda_position_sums_t;
gyre_status_t model_cuda_position_sums(const model_cuda_position_sums_t *sums, struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
