/* SPDX-License-Identifier: Apache-2.0 */
/* model/gpu/stage/ends.c: both ends of the model: the embedding, and the final norm, head and loss
 * (model/network/stage/head.inc). */
#ifdef GYRE_CUDA
#include <gyre/cuda.h>

#include "base/checked.h"
#include "model/gpu/stage/runtime.h"

/* ---- embedding ----------------------------------------------------------------------------------------- */

void stage_embed_forward(stage_t *s, slot_t *slot, void *out)
{
    size_t C = s->c.hidden;
    const model_cuda_dropout_t drop = stage_dropout(s, slot, 0, SITE_EMBED);
    model_cuda_embed_t p = {.type = s->type,
                            .sequences = slot->n,
                            .T = s->c.seq,
                            .rows = s->here,
                            .channels = C,
                            .begin = s->begin,
                            .tokens = slot->device.tokens,
                            .wte = W(WTE),
                            .first = s->tp.rank * s->g * s->leaf_vocab,
                            .vocab = s->g * s->leaf_vocab,
                            .wpe = W(WPE) ? stage_at(s, W(WPE), s->c.pos_offset * C) : NULL,
                            .out = s->c.embed_norm ? slot->x_embed : out};
    if (!s->c.embed_norm)
        p.drop = drop;
    if (s->tp.size > 1 && s->status == GYRE_OK) {
        s->status = model_cuda_embed_part(&p, s->whole, s->stream);
        p.sum = stage_reduce(s, slot->n);
    }
    if (s->status == GYRE_OK)
        s->status = model_cuda_embed(&p, s->stream);
    if (!s->c.embed_norm || s->status != GYRE_OK)
        return;
    const model_cuda_norm_t norm = {.type = s->type,
                                    .sequences = slot->n,
                                    .rows = s->here,
                                    .channels = C,
                                    .x = slot->x_embed,
                                    .step_x = s->here * C,
                                    .y = out,
                                    .step_y = s->here * C,
                                    .norm = MODEL_NORM_LAYER,
                                    .w = W(EMB_LN_W),
                                    .b = W(EMB_LN_B),
                                    .mean = slot->meane,
                                    .rstd = slot->rstde,
                                    .eps = (float)s->c.norm_eps,
                                    .drop_y = drop};
    s->status = model_cuda_norm(&norm, s->stream);
}

/* d_x S [n][R,C], which is used up -> slot->d_embed S [n][T,C]. */
void stage_embed_backward(stage_t *s, slot_t *slot, void *d_x)
{
    size_t C = s->c.hidden, edge = s->here * C;
    const model_cuda_dropout_t drop = stage_dropout(s, slot, 0, SITE_EMBED);
    if (drop.keys && s->status == GYRE_OK)
        s->status = model_cuda_drop(s->type, d_x, edge, d_x, edge, slot->n, s->here, C, &drop, s->stream);
    if (s->c.embed_norm) {
        stage_norm_back(s, slot->n,
                        &(stage_norm_back_t){.dy = d_x,
                                             .x = slot->x_embed,
                                             .w = W(EMB_LN_W),
                                             .out = d_x,
                                             .mean = slot->meane,
                                             .rstd = slot->rstde,
                                             .sums = slot->sums_embed,
                                             .rows = 2,
                                             .row = {0, 1, -1, -1}});
        stage_complete(s, slot->sums_embed, slot->n * 2 * C);
    }
    stage_spread(s, slot->n, slot->d_embed, d_x);
}

/* Up to two rows of sums [n][2][C], from sequence j on, into their gradients. */
static void put_sums(stage_t *s, float *first, float *second, const float *sums, size_t j)
{
    model_cuda_copies_t copies = {
        .count = s->c.hidden, .terms = s->config.grad_sequences, .step = 2 * s->c.hidden};
    for (size_t i = 0; i < 2; i++)
        if (i == 0 ? first : second) {
            copies.to[copies.rows] = i == 0 ? first : second;
            copies.from[copies.rows++] = sums + (2 * j + i) * s->c.hidden;
        }
    if (s->status == GYRE_OK)
        s->status = model_cuda_copy_rows(&copies, s->stream);
}

void stage_embed_weights(stage_t *s, const slot_t *slot, size_t j)
{
    size_t T = s->c.seq, C = s->c.hidden, vocab = s->g * s->leaf_vocab, many = s->config.grad_sequences;
    const void *d = stage_at(s, slot->d_embed, j * T * C);
    if (s->status == GYRE_OK)
        stage_call(s, cudaMemsetAsync(D(WTE), 0, vocab * C * sizeof(float), s->stream),
                   "clearing a gradient");
    if (s->status == GYRE_OK) /* GLM-130B: the token embedding learns more slowly */
        s->status = model_cuda_embed_back(s->type, D(WTE), s->tp.rank * vocab, vocab, d,
                                          slot->device.tokens + j * T, slot->device.segments + j * T,
                                          many * T, C, (float)s->c.embed_shrink, s->stream);
    if (s->c.embed_norm)
        put_sums(s, D(EMB_LN_W), D(EMB_LN_B), slot->sums_embed, j);
    if (!D(WPE) || s->status != GYRE_OK)
        return;
    if (s->c.pos_offset > 0)
        stage_call(s, cudaMemsetAsync(D(WPE), 0, s->c.pos_offset * C * sizeof(float), s->stream),
                   "clearing a gradient");
    if (s->status == GYRE_OK)
        s->status = model_cuda_widen(s->type, D(WPE) + s->c.pos_offset * C, d, many, T * C, s->stream);
}

/* ---- head and loss ------------------------------------------------------------------------------------- */

/* slot->logits [g][rows,v] of `type`, rows logit_ld apart, of positions `first` .. of lnf S [.,C]. */
static void make_logits(stage_t *s, slot_t *slot, size_t first, size_t rows, model_cuda_type_t type)
{
    size_t C = s->c.hidden, v = s->leaf_vocab;
    const model_cuda_product_t p = {.trans_b = 1,
                                    .M = rows,
                                    .N = v,
                                    .K = C,
                                    .lda = C,
                                    .ldb = C,
                                    .ldd = s->logit_ld,
                                    .batch = s->g,
                                    .step_b = v * C,
                                    .step_d = rows * s->logit_ld,
                                    .alpha = 1,
                                    .in = s->type,
                                    .out = type};
    stage_multiply(s, &p, stage_at(s, slot->lnf, first * C), W(HEAD), slot->logits);
}

static void final_norm(stage_t *s, slot_t *slot)
{
    if (s->c.post_norm) {
        stage_spread(s, slot->n, slot->lnf, slot->x_out);
        return;
    }
    stage_norm(s, slot->n, stage_own(s, slot->lnf), s->c.seq * s->c.hidden, slot->meanf, slot->rstdf,
               slot->x_out, W(LNF_W), W(LNF_B));
    stage_gather(s, slot->n, slot->lnf);
}

static model_cuda_loss_t loss_of(const stage_t *s, const slot_t *slot)
{
    return (model_cuda_loss_t){.type = s->type,
                               .sequences = slot->n,
                               .T = s->c.seq,
                               .leaves = s->g,
                               .width = s->leaf_vocab,
                               .ld = s->logit_ld,
                               .first = s->tp.rank * s->g,
                               .vocab = s->c.vocab,
                               .logits = slot->logits,
                               .leaf = s->leaf_loss,
                               .max = slot->max,
                               .pair = slot->pair,
                               .targets = slot->device.targets,
                               .prefix = s->c.prefix ? slot->device.prefix : NULL,
                               .loss = s->loss};
}

/* Sums or maxima of the group in place. */
static void agree(stage_t *s, float *x, size_t count, gyre_redop_t op)
{
    if (s->tp.size == 1 || s->status != GYRE_OK)
        return;
    s->traffic.loss += count;
    s->status = gyre_all_reduce_stream(x, x, count, GYRE_FLOAT32, op, s->tp.comm, s->stream);
}

/* model_cuda_loss, of a vocabulary that is cut over ranks. */
static void lose_together(stage_t *s, slot_t *slot, const model_cuda_loss_t *p)
{
    size_t rows = slot->n * s->c.seq;
    if (s->status == GYRE_OK)
        s->status = model_cuda_loss_max(p, s->stream);
    agree(s, slot->max, rows, GYRE_OP(GYRE_MAX));
    if (s->status == GYRE_OK)
        s->status = model_cuda_loss_pair(p, s->stream);
    agree(s, slot->pair, 2 * rows, GYRE_OP(GYRE_SUM));
    if (s->status == GYRE_OK && !slot->evaluate)
        s->status = model_cuda_loss_back(p, s->stream);
}

void stage_head_forward(stage_t *s, slot_t *slot)
{
    size_t rows = slot->n * s->c.seq;
    const model_cuda_loss_t p = loss_of(s, slot);
    final_norm(s, slot);
    make_logits(s, slot, 0, rows, s->type);
    if (s->tp.size == 1) {
        if (s->status == GYRE_OK)
            s->status = model_cuda_loss(&p, !slot->evaluate, s->stream);
    } else {
        lose_together(s, slot, &p);
    }
    if (s->status == GYRE_OK)
        s->status = model_cuda_loss_mean(&p, s->stream);
}

/* The loss's scale is a factor of the two products that read the gradient. */
void stage_head_backward(stage_t *s, slot_t *slot, void *d_x)
{
    size_t C = s->c.hidden, ld = s->logit_ld;
    stage_sum_to(s, slot->n,
                 &(join_t){.a = slot->logits,
                           .b = W(HEAD),
                           .K = s->leaf_vocab,
                           .lda = ld,
                           .ldb = C,
                           .step_a = slot->n * s->c.seq * ld,
                           .step_b = s->leaf_vocab * C,
                           .alpha = slot->scale},
                 s->c.post_norm ? d_x : s->d_norm);
    if (s->c.post_norm)
        return;
    stage_norm_back(s, slot->n,
                    &(stage_norm_back_t){.dy = s->d_norm,
                                         .x = slot->x_out,
                                         .w = W(LNF_W),
                                         .out = d_x,
                                         .mean = slot->meanf,
                                         .rstd = slot->rstdf,
                                         .sums = slot->sums_head,
                                         .rows = 2,
                                         .row = {0, 1, -1, -1}});
    stage_complete(s, slot->sums_head, slot->n * 2 * C);
}

/* dw [g][v,C] = scale dlogits^T lnf. */
void stage_head_weights(stage_t *s, const slot_t *slot, size_t j)
{
    size_t T = s->c.seq, C = s->c.hidden, v = s->leaf_vocab, ld = s->logit_ld;
    const model_cuda_product_t p = {.trans_a = 1,
                                    .M = v,
                                    .N = C,
                                    .K = s->config.grad_sequences * T,
                                    .lda = ld,
                                    .ldb = C,
                                    .ldd = C,
                                    .batch = s->g,
                                    .step_a = slot->n * T * ld,
                                    .step_d = v * C,
                                    .alpha = slot->scale,
                                    .in = s->type,
                                    .out = MODEL_CUDA_F32};
    stage_multiply(s, &p, stage_at(s, slot->logits, j * T * ld), stage_at(s, slot->lnf, j * T * C), D(HEAD));
    if (!s->c.post_norm)
        put_sums(s, D(LNF_W), D(LNF_B), slot->sums_head, j);
}

/* ---- logits for sampling ------------------------------------------------------------------------------- */

void stage_head_logits(stage_t *s, slot_t *slot, size_t first, size_t count, float *logits)
{
    size_t V = s->c.vocab, v = s->leaf_vocab, ld = s->logit_ld, leaves = s->c.leaves;
    final_norm(s, slot);
    for (size_t t = 0, rows; t < count && s->status == GYRE_OK; t += rows) {
        rows = base_min_size(count - t, LOGIT_ROWS);
        make_logits(s, slot, first + t, rows, MODEL_CUDA_F32);
        const float *all = s->tp.size > 1 ? s->rows : slot->logits;
        if (s->tp.size > 1 && s->status == GYRE_OK)
            s->status = gyre_all_gather_stream(slot->logits, s->rows, s->g * rows * ld, GYRE_FLOAT32,
                                               s->tp.comm, s->stream);
        for (size_t leaf = 0; leaf * v < V && leaf < leaves && s->status == GYRE_OK; leaf++)
            stage_call(s,
                       cudaMemcpy2DAsync(logits + t * V + leaf * v, V * sizeof(float), all + leaf * rows * ld,
                                         ld * sizeof(float), base_min_size(v, V - leaf * v) * sizeof(float),
                                         rows, cudaMemcpyDefault, s->stream),
                       "copying logits");
    }
}
#else
#include "model/gpu/stage/stage.h" /* a build without CUDA has nothing of it */
#endif
