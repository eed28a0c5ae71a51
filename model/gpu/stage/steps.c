/* SPDX-License-Identifier: Apache-2.0 */
/* model/gpu/stage/steps.c: the steps that layers are made of: products, sums over leaves and positions,
 * norms, and the group's collectives, all in the order of the stage's stream. */
#ifdef GYRE_CUDA
#include <gyre/cuda.h>

#include "base/error.h"
#include "model/gpu/stage/runtime.h"

void stage_call(stage_t *s, cudaError_t rc, const char *what)
{
    if (rc != cudaSuccess && s->status == GYRE_OK)
        s->status =
            gyre_fail(GYRE_ERR_SYSTEM, "a stage of layers %zu..%zu on the GPU, %s: %s", s->config.first,
                      s->config.first + s->config.layers, what, cudaGetErrorString(rc));
}

void stage_copy(stage_t *s, void *to, const void *from, size_t bytes)
{
    if (s->status == GYRE_OK && to != from)
        stage_call(s, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, s->stream), "copying");
}

/* ---- the group ----------------------------------------------------------------------------------------- */

void *stage_own(const stage_t *s, void *whole)
{
    return stage_at(s, whole, s->begin * s->c.hidden);
}

void stage_gather(stage_t *s, size_t n, void *whole)
{
    size_t mine = s->here * s->c.hidden, all = s->c.seq * s->c.hidden;
    for (size_t j = 0; s->tp.sequence && j < n && s->status == GYRE_OK; j++) {
        char *sequence = stage_at(s, whole, j * all);
        s->traffic.all_gather += all;
        s->status = gyre_all_gather_stream(stage_own(s, sequence), sequence, mine, model_cuda_stage_type(s),
                                           s->tp.comm, s->stream);
    }
}

/* x S [n][R,C] to this rank's positions of whole S [n][T,C]. */
static void put_own(stage_t *s, size_t n, void *whole, const void *x)
{
    size_t width = s->here * s->c.hidden * s->size, pitch = s->c.seq * s->c.hidden * s->size;
    if (s->status == GYRE_OK && stage_own(s, whole) != x)
        stage_call(s,
                   cudaMemcpy2DAsync(stage_own(s, whole), pitch, x, width, width, n, cudaMemcpyDeviceToDevice,
                                     s->stream),
                   "copying positions");
}

void stage_spread(stage_t *s, size_t n, void *whole, const void *x)
{
    put_own(s, n, whole, x);
    stage_gather(s, n, whole);
}

void stage_complete(stage_t *s, float *sums, size_t count)
{
    if (!s->tp.sequence || s->status != GYRE_OK)
        return;
    s->traffic.sums += count;
    s->status =
        gyre_all_reduce_stream(sums, sums, count, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), s->tp.comm, s->stream);
}

/* Sums s->whole [n][T,C] over the group: this rank's positions of it, or all of them. */
static const float *reduce(stage_t *s, size_t n, int everywhere)
{
    size_t all = s->c.seq * s->c.hidden, mine = s->here * s->c.hidden;
    if (!s->tp.sequence || everywhere) {
        *(everywhere ? &s->traffic.sums : &s->traffic.all_reduce) += n * all;
        if (s->status == GYRE_OK)
            s->status = gyre_all_reduce_stream(s->whole, s->whole, n * all, GYRE_FLOAT32, GYRE_OP(GYRE_SUM),
                                               s->tp.comm, s->stream);
        return s->whole;
    }
    for (size_t j = 0; j < n && s->status == GYRE_OK; j++) {
        s->traffic.reduce_scatter += all;
        s->status = gyre_reduce_scatter_stream(s->whole + j * all, s->shard + j * mine, mine, GYRE_FLOAT32,
                                               GYRE_OP(GYRE_SUM), s->tp.comm, s->stream);
    }
    return s->shard;
}

const float *stage_reduce(stage_t *s, size_t n)
{
    return reduce(s, n, 0);
}

/* ---- products ------------------------------------------------------------------------------------------ */

void stage_multiply(stage_t *s, const model_cuda_product_t *product, const void *a, const void *b, void *d)
{
    if (s->status == GYRE_OK)
        s->status = model_cuda_matmul(s->matmul, product, a, b, d, s->stream);
}

void stage_columns(stage_t *s, size_t n, void *y, const void *x, const void *w, const void *bias,
                   size_t width, int act, void *pre)
{
    size_t C = s->c.hidden, M = n * s->c.seq;
    const model_cuda_product_t p = {.M = M,
                                    .N = width,
                                    .K = C,
                                    .lda = C,
                                    .ldb = width,
                                    .ldd = width,
                                    .batch = s->g,
                                    .step_b = C * width,
                                    .step_d = M * width,
                                    .alpha = 1,
                                    .in = s->type,
                                    .out = s->type,
                                    .epilogue = act    ? MODEL_CUDA_ACT
                                                : bias ? MODEL_CUDA_BIAS
                                                       : MODEL_CUDA_PLAIN,
                                    .act = s->c.act,
                                    .bias = bias,
                                    .step_bias = width,
                                    .pre = pre,
                                    .ldpre = width,
                                    .step_pre = M * width};
    stage_multiply(s, &p, x, w, y);
}

/* What an H200 takes, in tenths of a nanosecond: a multiprocessor for one of K's elements of a tile, all of
 * its memory to write and read a tile in fp32, and a launch. */
enum { PROCESSORS = 132, TILE = 128, STEP_TIME = 63, TILE_TIME = 320, LAUNCH_TIME = 30000, MOST_PIECES = 8 };

/* The number of pieces of K that the gradient [M,N] of a leaf's weight is summed in: the one that takes least
 * by these figures, for leaves one after the other. More than one helps where the tiles of all leaves leave
 * multiprocessors idle. The figures are the same on every GPU, and the leaves those of all ranks, so bits
 * depend on neither. The weight has `width` rows or columns, and C of the others: the pieces' sums fit into
 * s->part. */
static size_t pieces_of(const stage_t *s, size_t M, size_t N, size_t K, size_t width)
{
    const size_t tiles = (M + TILE - 1) / TILE * ((N + TILE - 1) / TILE), leaves = s->c.leaves;
    size_t best = 1, least = (tiles * leaves + PROCESSORS - 1) / PROCESSORS * K * STEP_TIME;
    for (size_t n = 2; n <= MOST_PIECES && K % n == 0 && n * width <= K; n *= 2) {
        size_t turns = (tiles * n + PROCESSORS - 1) / PROCESSORS;
        size_t time = leaves * (turns * (K / n) * STEP_TIME + tiles * n * TILE_TIME + LAUNCH_TIME);
        if (time < least) {
            best = n;
            least = time;
        }
    }
    return best;
}

/* dw [g][M,N], the gradient of a weight: `whole`, or products of pieces of K, joined in the tree of
 * docs/contract.md. */
static void weigh(stage_t *s, const model_cuda_product_t *whole, size_t width, const void *a, const void *b,
                  float *dw)
{
    const size_t pieces = pieces_of(s, whole->M, whole->N, whole->K, width), count = whole->M * whole->N;
    model_cuda_product_t p = *whole;
    if (pieces == 1) {
        stage_multiply(s, whole, a, b, dw);
        return;
    }
    p.K /= pieces;
    p.batch = pieces;
    p.step_a = p.K * p.lda;
    p.step_b = p.K * p.ldb;
    p.step_d = count;
    for (size_t leaf = 0; leaf < s->g; leaf++) {
        stage_multiply(s, &p, stage_at(s, a, leaf * whole->step_a), stage_at(s, b, leaf * whole->step_b),
                       s->part);
        if (s->status == GYRE_OK)
            s->status = model_cuda_join(MODEL_CUDA_F32, dw + leaf * count, s->part, pieces, count, s->stream);
    }
}

void stage_columns_weight(stage_t *s, const slot_t *slot, size_t j, float *dw, float *db, const void *dy,
                          const void *x, size_t width)
{
    size_t C = s->c.hidden, T = s->c.seq, rows = s->config.grad_sequences * T;
    const model_cuda_product_t p = {.trans_a = 1,
                                    .M = C,
                                    .N = width,
                                    .K = rows,
                                    .lda = C,
                                    .ldb = width,
                                    .ldd = width,
                                    .batch = s->g,
                                    .step_b = slot->n * T * width,
                                    .step_d = C * width,
                                    .alpha = 1,
                                    .in = s->type,
                                    .out = MODEL_CUDA_F32};
    const void *d = stage_at(s, dy, j * T * width);
    weigh(s, &p, width, stage_at(s, x, j * T * C), d, dw);
    if (db && s->status == GYRE_OK)
        s->status = model_cuda_column_sum(s->matmul, db, d, s->type, rows, width, width, s->g,
                                          slot->n * T * width, s->stream);
}

void stage_rows_input(stage_t *s, size_t n, void *dx, const void *dy, const void *w, size_t width, void *pre)
{
    size_t C = s->c.hidden, M = n * s->c.seq;
    const model_cuda_product_t p = {.trans_b = 1,
                                    .M = M,
                                    .N = width,
                                    .K = C,
                                    .lda = C,
                                    .ldb = C,
                                    .ldd = width,
                                    .batch = s->g,
                                    .step_b = width * C,
                                    .step_d = M * width,
                                    .alpha = 1,
                                    .in = s->type,
                                    .out = s->type,
                                    .epilogue = pre ? MODEL_CUDA_ACT_BACK : MODEL_CUDA_PLAIN,
                                    .act = s->c.act,
                                    .pre = pre,
                                    .ldpre = width,
                                    .step_pre = M * width};
    stage_multiply(s, &p, dy, w, dx);
}

void stage_rows_weight(stage_t *s, const slot_t *slot, size_t j, float *dw, const void *dy, const void *x,
                       size_t width)
{
    size_t C = s->c.hidden, T = s->c.seq;
    const model_cuda_product_t p = {.trans_a = 1,
                                    .M = width,
                                    .N = C,
                                    .K = s->config.grad_sequences * T,
                                    .lda = width,
                                    .ldb = C,
                                    .ldd = C,
                                    .batch = s->g,
                                    .step_a = slot->n * T * width,
                                    .step_d = width * C,
                                    .alpha = 1,
                                    .in = s->type,
                                    .out = MODEL_CUDA_F32};
    weigh(s, &p, width, stage_at(s, x, j * T * width), stage_at(s, dy, j * T * C), dw);
}

/* ---- sums over leaves ---------------------------------------------------------------------------------- */

/* Products of the leaves here: d [g][n][T,C] of `out`. */
static void leaves_of(stage_t *s, size_t n, const join_t *j, void *d, model_cuda_type_t out)
{
    size_t C = s->c.hidden, M = n * s->c.seq;
    const model_cuda_product_t p = {.trans_b = j->trans,
                                    .M = M,
                                    .N = C,
                                    .K = j->K,
                                    .lda = j->lda,
                                    .ldb = j->ldb,
                                    .ldd = C,
                                    .batch = s->g,
                                    .step_a = j->step_a,
                                    .step_b = j->step_b,
                                    .step_d = M * C,
                                    .alpha = j->alpha,
                                    .in = s->type,
                                    .out = out};
    stage_multiply(s, &p, j->a, j->b, d);
}

const float *stage_sum(stage_t *s, size_t n, const join_t *join, size_t *leaves)
{
    size_t count = n * s->c.seq * s->c.hidden;
    if (s->tp.size == 1) {
        leaves_of(s, n, join, s->part, MODEL_CUDA_F32);
        *leaves = s->g;
        return s->part;
    }
    *leaves = 1;
    leaves_of(s, n, join, s->g > 1 ? s->part : s->whole, MODEL_CUDA_F32);
    if (s->g > 1 && s->status == GYRE_OK)
        s->status = model_cuda_join(MODEL_CUDA_F32, s->whole, s->part, s->g, count, s->stream);
    return reduce(s, n, join->everywhere);
}

void stage_sum_to(stage_t *s, size_t n, const join_t *join, void *out)
{
    size_t leaves;
    if (s->tp.size == 1 && s->g == 1) {
        leaves_of(s, n, join, out, s->type);
        return;
    }
    const float *sum = stage_sum(s, n, join, &leaves);
    if (s->status == GYRE_OK)
        s->status = model_cuda_join(s->type, out, sum, leaves, n * s->here * s->c.hidden, s->stream);
}

/* ---- norms and what stands on the residual stream ------------------------------------------------------ */

model_cuda_dropout_t stage_dropout(const stage_t *s, const slot_t *slot, size_t layer, unsigned site)
{
    if (slot->evaluate || s->c.dropout <= 0.0)
        return (model_cuda_dropout_t){0};
    return (model_cuda_dropout_t){.keys = slot->device.keys,
                                  .place = (uint32_t)layer * 4 + site,
                                  .below = model_dropout_below(s->c.dropout),
                                  .kept = (float)(1.0 / (1.0 - s->c.dropout)),
                                  .first = s->begin * s->c.hidden};
}

void stage_norm(stage_t *s, size_t n, void *y, size_t step_y, float *mean, float *rstd, const void *x,
                const void *w, const void *b)
{
    const model_cuda_norm_t p = {.type = s->type,
                                 .sequences = n,
                                 .rows = s->here,
                                 .channels = s->c.hidden,
                                 .x = x,
                                 .step_x = s->here * s->c.hidden,
                                 .y = y,
                                 .step_y = step_y,
                                 .norm = mean ? MODEL_NORM_LAYER : MODEL_NORM_RMS,
                                 .w = w,
                                 .b = b,
                                 .mean = mean,
                                 .rstd = rstd,
                                 .eps = (float)s->c.norm_eps};
    if (s->status == GYRE_OK)
        s->status = model_cuda_norm(&p, s->stream);
}

static model_cuda_span_t span_of(const stage_t *s, size_t n)
{
    return (model_cuda_span_t){.sequences = n,
                               .rows = s->here,
                               .channels = s->c.hidden,
                               .all = s->c.seq,
                               .begin = s->begin,
                               .leaves = s->c.leaves};
}

void stage_norm_back(stage_t *s, size_t n, const stage_norm_back_t *b)
{
    size_t C = s->c.hidden;
    model_cuda_norm_back_t p = {.type = s->type,
                                .span = span_of(s, n),
                                .dy = b->dy,
                                .x = b->x,
                                .w = b->w,
                                .mean = b->mean,
                                .rstd = b->rstd,
                                .norm = b->mean ? MODEL_NORM_LAYER : MODEL_NORM_RMS,
                                .base = b->base,
                                .out = b->out,
                                .partial = s->part,
                                .step_sum = b->rows * C};
    for (size_t i = 0; i < MODEL_CUDA_SUMMED; i++)
        p.sum[i] = b->row[i] < 0 ? NULL : b->sums + (size_t)b->row[i] * C;
    if (s->status == GYRE_OK)
        s->status = model_cuda_norm_back(&p, s->stream);
}

void stage_position_sum(stage_t *s, size_t n, float *sums, size_t row, const void *whole)
{
    size_t C = s->c.hidden;
    const model_cuda_position_sums_t p = {.type = s->type,
                                          .span = span_of(s, n),
                                          .dy = stage_at(s, whole, s->begin * C),
                                          .step_dy = s->c.seq * C,
                                          .partial = s->part,
                                          .sum = sums + row * C,
                                          .step_sum = MODEL_SUMS * C};
    if (s->status == GYRE_OK)
        s->status = model_cuda_position_sums(&p, s->stream);
}

const void *stage_branch_back(stage_t *s, const slot_t *slot, void *into, const void *d_x, size_t layer,
                              unsigned site)
{
    size_t C = s->c.hidden;
    const model_cuda_dropout_t drop = stage_dropout(s, slot, layer, site);
    if (!into)
        return d_x;
    if (!drop.keys)
        put_own(s, slot->n, into, d_x);
    else if (s->status == GYRE_OK)
        s->status = model_cuda_drop(s->type, stage_own(s, into), s->c.seq * C, d_x, s->here * C, slot->n,
                                    s->here, C, &drop, s->stream);
    stage_gather(s, slot->n, into);
    return into;
}
#else
#include "model/gpu/stage/stage.h" /* a build without CUDA has nothing of it */
#endif
