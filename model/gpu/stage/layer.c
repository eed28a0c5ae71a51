/* SPDX-License-Identifier: Apache-2.0 */
/* model/gpu/stage/layer.c: one layer, in the three forms of model/network/stage/block.inc: pre-norm,
 * parallel, post-norm. */
#ifdef GYRE_CUDA
#include <math.h>

#include "model/gpu/stage/runtime.h"

int stage_is_top_query(const stage_t *s, size_t l)
{
    return s->c.top_query && s->config.first + l + 1 == s->c.layers;
}

/* ---- attention ----------------------------------------------------------------------------------------- */

/* Rotary positions: queries and keys of every leaf of layer l turn by their positions' angles, or back. */
static void rotate(stage_t *s, const slot_t *slot, size_t l, void *qkv, int back)
{
    const model_cuda_rope_t p = {.type = s->type,
                                 .x = qkv,
                                 .turn = s->turn,
                                 .positions = slot->moved ? slot->device.positions : NULL,
                                 .leaves = s->g,
                                 .sequences = slot->n,
                                 .T = s->c.seq,
                                 .ld = s->leaf_qkv,
                                 .heads = s->leaf_heads + s->leaf_kv,
                                 .head_dim = s->c.head_dim,
                                 .half = s->c.rotary_dim / 2,
                                 .interleaved = s->c.rope_interleaved,
                                 .back = back};
    if (model_config_turns(&s->c, s->config.first + l) && s->status == GYRE_OK)
        s->status = model_cuda_rope(&p, s->stream);
}

/* Heads of a tensor S [g][n][T,width] from channel `first` of each row on. */
static model_cuda_heads_t heads_at(const stage_t *s, size_t n, const void *tensor, size_t width, size_t first)
{
    return (model_cuda_heads_t){.data = stage_at(s, tensor, first),
                                .row = width,
                                .sequence = s->c.seq * width,
                                .leaf = n * s->c.seq * width};
}

static model_cuda_attention_t attention_of(const stage_t *s, const slot_t *slot, const layer_t *a, size_t l)
{
    size_t D = s->c.head_dim, q = s->leaf_qkv, k = s->leaf_heads * D, v = k + s->leaf_kv * D;
    model_cuda_attention_t p = {.type = s->type,
                                .batch = slot->n,
                                .leaves = s->g,
                                .heads = s->leaf_heads,
                                .kv_heads = s->leaf_kv,
                                .T = s->c.seq,
                                .head_dim = D,
                                .scale = 1.0f / sqrtf((float)D),
                                .slopes = s->slopes,
                                .prefix = s->c.prefix ? slot->device.prefix : NULL,
                                .first_head = s->tp.rank * s->g * s->leaf_heads,
                                .q = heads_at(s, slot->n, a->qkv, q, 0),
                                .k = heads_at(s, slot->n, a->qkv, q, k),
                                .v = heads_at(s, slot->n, a->qkv, q, v),
                                .o = heads_at(s, slot->n, a->attn, s->leaf_attn, 0),
                                .lse = a->lse};
    if (s->c.attn_dropout > 0.0 && !slot->evaluate) {
        p.keys = slot->device.weight_keys + l * slot->n * 4;
        p.below = model_dropout_below(s->c.attn_dropout);
        p.kept = (float)(1.0 / (1.0 - s->c.attn_dropout));
    }
    return p;
}

/* A product with the queries' or the keys' and values' columns of the qkv weight, of the top layer with
 * queries of its own. */
static model_cuda_product_t part_of_qkv(const stage_t *s, size_t M, size_t N)
{
    size_t C = s->c.hidden, n = s->leaf_qkv;
    return (model_cuda_product_t){.M = M,
                                  .N = N,
                                  .K = C,
                                  .lda = C,
                                  .ldb = n,
                                  .ldd = n,
                                  .batch = s->g,
                                  .step_b = C * n,
                                  .alpha = 1,
                                  .in = s->type,
                                  .out = s->type,
                                  .epilogue = W(ATTN_QKV_B) ? MODEL_CUDA_BIAS : MODEL_CUDA_PLAIN,
                                  .step_bias = n};
}

/* a->qkv of a->ln1, or queries of the embedding and the rest of a->ln1. */
static void queries_keys_values(stage_t *s, const slot_t *slot, const layer_t *a, size_t l)
{
    size_t T = s->c.seq, n = s->leaf_qkv, q = s->leaf_attn, M = slot->n * T;
    if (!stage_is_top_query(s, l)) {
        stage_columns(s, slot->n, a->qkv, a->ln1, W(ATTN_QKV_W), W(ATTN_QKV_B), n, 0, NULL);
    } else {
        model_cuda_product_t p = part_of_qkv(s, T, q);
        p.step_d = M * n;
        p.bias = W(ATTN_QKV_B);
        for (size_t j = 0; j < slot->n; j++)
            stage_multiply(s, &p, W(WQE), W(ATTN_QKV_W), stage_at(s, a->qkv, j * T * n));
        p = part_of_qkv(s, M, n - q);
        p.step_d = M * n;
        p.bias = W(ATTN_QKV_B) ? stage_at(s, W(ATTN_QKV_B), q) : NULL;
        stage_multiply(s, &p, a->ln1, stage_at(s, W(ATTN_QKV_W), q), stage_at(s, a->qkv, q));
    }
    rotate(s, slot, l, a->qkv, 0);
}

/* ---- forward ------------------------------------------------------------------------------------------- */

/* out = alpha x + dropout(the branch's sum (NULL: the experts') + bias), and with y the norm after it;
 * sequences of x step_x, of y step_y apart. */
static void residual(stage_t *s, const slot_t *slot, size_t l, unsigned site, const join_t *branch,
                     const void *bias, model_cuda_norm_t p)
{
    p.leaves = 1;
    p.sum =
        branch ? stage_sum(s, slot->n, branch, &p.leaves) : stage_experts_sum(s, slot->n, &slot->layer[l]);
    p.type = s->type;
    p.sequences = slot->n;
    p.rows = s->here;
    p.channels = s->c.hidden;
    p.bias = bias;
    p.alpha = s->c.post_norm ? (float)s->c.deepnorm : 1.0f;
    p.drop = stage_dropout(s, slot, s->config.first + l, site);
    p.norm = p.mean ? MODEL_NORM_LAYER : MODEL_NORM_RMS;
    p.eps = (float)s->c.norm_eps;
    if (s->status == GYRE_OK)
        s->status = model_cuda_norm(&p, s->stream);
}

/* The layer up to the residual stream between attention and MLP, in the form in which the MLP takes it:
 * a->ln2. */
static void attention_forward(stage_t *s, const slot_t *slot, size_t l)
{
    const layer_t *a = &slot->layer[l];
    size_t C = s->c.hidden, whole = s->c.seq * C, edge = s->here * C;
    if (s->c.post_norm) {
        stage_spread(s, slot->n, a->ln1, a->x);
    } else {
        stage_norm(s, slot->n, stage_own(s, a->ln1), whole, a->mean1, a->rstd1, a->x, W(LN1_W), W(LN1_B));
        stage_gather(s, slot->n, a->ln1);
    }
    queries_keys_values(s, slot, a, l);
    const model_cuda_attention_t attention = attention_of(s, slot, a, l);
    if (s->status == GYRE_OK)
        s->status = model_cuda_attention(&attention, s->stream);
    const join_t branch = {.alpha = 1,
                           .a = a->attn,
                           .b = W(ATTN_PROJ_W),
                           .K = s->leaf_attn,
                           .lda = s->leaf_attn,
                           .ldb = C,
                           .step_a = slot->n * s->c.seq * s->leaf_attn,
                           .step_b = s->leaf_attn * C};
    model_cuda_norm_t p = {.x = a->x, .step_x = edge, .out = a->x2};
    if (!s->c.parallel) { /* the norm in the same pass */
        p.y = stage_own(s, a->ln2);
        p.step_y = whole;
        p.w = s->c.post_norm ? W(LN1_W) : W(LN2_W);
        p.b = s->c.post_norm ? W(LN1_B) : W(LN2_B);
        p.mean = s->c.post_norm ? a->mean1 : a->mean2;
        p.rstd = s->c.post_norm ? a->rstd1 : a->rstd2;
    }
    residual(s, slot, l, SITE_ATTENTION, &branch, W(ATTN_PROJ_B), p);
    if (s->c.parallel)
        stage_norm(s, slot->n, stage_own(s, a->ln2), whole, a->mean2, a->rstd2, a->x, W(LN2_W), W(LN2_B));
    stage_gather(s, slot->n, a->ln2);
}

/* Everything up to the activation of the MLP: what backward needs. */
static void layer_inner(stage_t *s, const slot_t *slot, size_t l)
{
    const layer_t *a = &slot->layer[l];
    attention_forward(s, slot, l);
    if (s->c.experts > 0) {
        stage_experts_inner(s, slot->n, a);
        return;
    }
    if (!s->c.gated) {
        stage_columns(s, slot->n, a->act, a->ln2, W(MLP_FC_W), W(MLP_FC_B), s->leaf_fc, 1, a->fc);
        return;
    }
    stage_columns(s, slot->n, a->fc, a->ln2, W(MLP_FC_W), W(MLP_FC_B), s->leaf_fc, 0, NULL);
    if (s->status == GYRE_OK)
        s->status = model_cuda_gated(s->type, s->c.act, a->act, a->fc, s->g * slot->n * s->c.seq, s->leaf_ffn,
                                     s->stream);
}

void stage_layer_forward(stage_t *s, const slot_t *slot, size_t l, void *out)
{
    const layer_t *a = &slot->layer[l];
    size_t C = s->c.hidden, whole = s->c.seq * C, edge = s->here * C;
    layer_inner(s, slot, l);
    const join_t branch = {.alpha = 1,
                           .a = a->act,
                           .b = W(MLP_PROJ_W),
                           .K = s->leaf_ffn,
                           .lda = s->leaf_ffn,
                           .ldb = C,
                           .step_a = slot->n * s->c.seq * s->leaf_ffn,
                           .step_b = s->leaf_ffn * C};
    model_cuda_norm_t p = {.x = a->x2, .step_x = edge, .out = out};
    if (s->c.post_norm)
        p = (model_cuda_norm_t){.x = stage_own(s, a->ln2),
                                .step_x = whole,
                                .out = a->post,
                                .y = out,
                                .step_y = edge,
                                .w = W(LN2_W),
                                .b = W(LN2_B),
                                .mean = a->mean2,
                                .rstd = a->rstd2};
    residual(s, slot, l, SITE_MLP, s->c.experts > 0 ? NULL : &branch, W(MLP_PROJ_B), p);
}

/* ---- backward: the gradients of weights ---------------------------------------------------------------- */

static void qkv_weights(stage_t *s, const slot_t *slot, const layer_t *a, size_t l, size_t j)
{
    size_t T = s->c.seq, C = s->c.hidden, n = s->leaf_qkv, q = s->leaf_attn, many = s->config.grad_sequences;
    if (!stage_is_top_query(s, l)) {
        stage_columns_weight(s, slot, j, D(ATTN_QKV_W), D(ATTN_QKV_B), a->d_qkv, a->ln1, n);
        return;
    }
    const void *d = stage_at(s, a->d_qkv, j * T * n);
    model_cuda_product_t p = {.trans_a = 1,
                              .M = C,
                              .N = q,
                              .K = T,
                              .lda = C,
                              .ldb = n,
                              .ldd = n,
                              .batch = s->g,
                              .step_b = slot->n * T * n,
                              .step_d = C * n,
                              .alpha = 1,
                              .in = s->type,
                              .out = MODEL_CUDA_F32};
    for (size_t k = 0; k < many; k++) { /* all of them with the same queries */
        p.beta = k > 0 ? 1.0f : 0.0f;
        stage_multiply(s, &p, W(WQE), stage_at(s, d, k * T * n), D(ATTN_QKV_W));
    }
    p.beta = 0;
    p.K = many * T;
    p.N = n - q;
    stage_multiply(s, &p, stage_at(s, a->ln1, j * T * C), stage_at(s, d, q), D(ATTN_QKV_W) + q);
    if (D(ATTN_QKV_B) && s->status == GYRE_OK)
        s->status = model_cuda_column_sum(s->matmul, D(ATTN_QKV_B), d, s->type, many * T, n, n, s->g,
                                          slot->n * T * n, s->stream);
    if (s->status == GYRE_OK)
        s->status = model_cuda_widen(MODEL_CUDA_F32, D(WQE), slot->d_wqe + j * T * C, many, T * C, s->stream);
}

void stage_layer_weights(stage_t *s, const slot_t *slot, size_t l, size_t j)
{
    const layer_t *a = &slot->layer[l];
    const struct {
        model_kind_t kind;
        size_t row;
    } sum[] = {{MODEL_MLP_PROJ_B, SUM_MLP_PROJ_B},   {MODEL_LN2_W, SUM_LN2_W}, {MODEL_LN2_B, SUM_LN2_B},
               {MODEL_ATTN_PROJ_B, SUM_ATTN_PROJ_B}, {MODEL_LN1_W, SUM_LN1_W}, {MODEL_LN1_B, SUM_LN1_B}};
    model_cuda_copies_t copies = {
        .count = s->c.hidden, .terms = s->config.grad_sequences, .step = MODEL_SUMS * s->c.hidden};
    if (s->c.experts > 0) {
        stage_experts_weights(s, slot->n, a, j);
    } else {
        stage_rows_weight(s, slot, j, D(MLP_PROJ_W), a->d_proj ? a->d_proj : s->dy_mlp, a->act, s->leaf_ffn);
        stage_columns_weight(s, slot, j, D(MLP_FC_W), D(MLP_FC_B), a->d_fc, a->ln2, s->leaf_fc);
    }
    stage_rows_weight(s, slot, j, D(ATTN_PROJ_W), a->d_out ? a->d_out : s->dy_attention, a->attn,
                      s->leaf_attn);
    qkv_weights(s, slot, a, l, j);
    for (size_t i = 0; i < sizeof sum / sizeof *sum; i++)
        if (s->grad[sum[i].kind]) {
            copies.to[copies.rows] = s->grad[sum[i].kind];
            copies.from[copies.rows++] = a->sums + (j * MODEL_SUMS + sum[i].row) * s->c.hidden;
        }
    if (s->status == GYRE_OK)
        s->status = model_cuda_copy_rows(&copies, s->stream);
}

/* ---- backward ------------------------------------------------------------------------------------------ */

/* Whether the norm between attention and MLP also sums the gradients of both branches' outputs: they are what
 * it reads and writes, where no dropout changes them. */
static int sums_with_norm(const stage_t *s, const slot_t *slot)
{
    return !s->c.post_norm && !s->c.parallel && !stage_dropout(s, slot, 0, SITE_MLP).keys;
}

/* s->d_norm: the gradient of the MLP's input, from dy S [n][T,C], that of its output. */
static void mlp_backward(stage_t *s, const slot_t *slot, const layer_t *a, const void *dy)
{
    size_t n = slot->n, C = s->c.hidden, f = s->leaf_fc;
    if (s->c.experts > 0) {
        stage_experts_backward(s, n, a, dy);
        return;
    }
    if (!sums_with_norm(s, slot))
        stage_position_sum(s, n, a->sums, SUM_MLP_PROJ_B, dy);
    if (s->c.gated) {
        stage_rows_input(s, n, s->d_act, dy, W(MLP_PROJ_W), s->leaf_ffn, NULL);
        if (s->status == GYRE_OK)
            s->status = model_cuda_gated_back(s->type, s->c.act, a->d_fc, s->d_act, a->fc,
                                              s->g * n * s->c.seq, s->leaf_ffn, s->stream);
    } else {
        stage_rows_input(s, n, a->d_fc, dy, W(MLP_PROJ_W), s->leaf_ffn, a->fc);
    }
    stage_sum_to(s, n,
                 &(join_t){.alpha = 1,
                           .a = a->d_fc,
                           .b = W(MLP_FC_W),
                           .K = f,
                           .lda = f,
                           .ldb = f,
                           .step_a = n * s->c.seq * f,
                           .step_b = C * f,
                           .trans = 1},
                 s->d_norm);
}

/* slot->d_wqe: the sum of all leaves' heads. */
static void query_backward(stage_t *s, const slot_t *slot, const join_t *queries)
{
    size_t leaves;
    const float *sum = stage_sum(s, slot->n, queries, &leaves);
    if (s->status == GYRE_OK)
        s->status = model_cuda_join(MODEL_CUDA_F32, slot->d_wqe, sum, leaves,
                                    slot->n * s->c.seq * s->c.hidden, s->stream);
}

/* The same for attention. */
static void attention_backward(stage_t *s, const slot_t *slot, const layer_t *a, size_t l, const void *dy)
{
    size_t n = slot->n, C = s->c.hidden, q = s->leaf_qkv, D = s->c.head_dim;
    if (!sums_with_norm(s, slot))
        stage_position_sum(s, n, a->sums, SUM_ATTN_PROJ_B, dy);
    stage_rows_input(s, n, s->d_attn, dy, W(ATTN_PROJ_W), s->leaf_attn, NULL);
    model_cuda_attention_t p = attention_of(s, slot, a, l);
    p.d_o = heads_at(s, n, s->d_attn, s->leaf_attn, 0);
    p.d_q = heads_at(s, n, a->d_qkv, q, 0);
    p.d_k = heads_at(s, n, a->d_qkv, q, s->leaf_heads * D);
    p.d_v = heads_at(s, n, a->d_qkv, q, (s->leaf_heads + s->leaf_kv) * D);
    p.delta = s->delta;
    if (s->status == GYRE_OK)
        s->status = model_cuda_attention_backward(&p, s->stream);
    rotate(s, slot, l, a->d_qkv, 1);
    join_t join = {.alpha = 1,
                   .a = a->d_qkv,
                   .b = W(ATTN_QKV_W),
                   .K = q,
                   .lda = q,
                   .ldb = q,
                   .step_a = n * s->c.seq * q,
                   .step_b = C * q,
                   .trans = 1};
    if (stage_is_top_query(s, l)) {
        join.K = s->leaf_attn;
        join.everywhere = 1;
        query_backward(s, slot, &join);
        join.everywhere = 0;
        join.a = stage_at(s, join.a, s->leaf_attn);
        join.b = stage_at(s, join.b, s->leaf_attn);
        join.K = q - s->leaf_attn;
    }
    stage_sum_to(s, n, &join, s->d_norm);
}

/* d_in = the gradient dy through the norm, added to `base`. */
static void through_norm(stage_t *s, const slot_t *slot, const layer_t *a, int second, void *d_in,
                         const void *base, const void *dy, const void *x)
{
    stage_norm_back_t p = {.dy = dy,
                           .x = x,
                           .w = W(LN1_W),
                           .base = base,
                           .out = d_in,
                           .mean = a->mean1,
                           .rstd = a->rstd1,
                           .sums = a->sums,
                           .rows = MODEL_SUMS,
                           .row = {SUM_LN1_W, SUM_LN1_B, -1, -1}};
    if (second) {
        p.w = W(LN2_W);
        p.mean = a->mean2;
        p.rstd = a->rstd2;
        p.row[MODEL_CUDA_SUM_W] = SUM_LN2_W;
        p.row[MODEL_CUDA_SUM_B] = SUM_LN2_B;
        if (sums_with_norm(s, slot)) { /* base and d_in are the gradients of the branches' outputs */
            p.row[MODEL_CUDA_SUM_BASE] = s->c.experts > 0 ? -1 : SUM_MLP_PROJ_B;
            p.row[MODEL_CUDA_SUM_OUT] = SUM_ATTN_PROJ_B;
        }
    }
    stage_norm_back(s, slot->n, &p);
}

static void pre_norm_backward(stage_t *s, const slot_t *slot, size_t l, const void *d_x, void *d_in)
{
    const layer_t *a = &slot->layer[l];
    size_t layer = s->config.first + l;
    void *mid = s->mid[0];
    if (s->c.parallel)
        s->dy_attention = stage_branch_back(s, slot, a->d_out, d_x, layer, SITE_ATTENTION);
    s->dy_mlp = stage_branch_back(s, slot, a->d_proj, d_x, layer, SITE_MLP);
    mlp_backward(s, slot, a, s->dy_mlp);
    through_norm(s, slot, a, 1, mid, d_x, s->d_norm, s->c.parallel ? a->x : a->x2);
    if (!s->c.parallel)
        s->dy_attention = stage_branch_back(s, slot, a->d_out, mid, layer, SITE_ATTENTION);
    attention_backward(s, slot, a, l, s->dy_attention);
    through_norm(s, slot, a, 0, d_in, mid, s->d_norm, a->x);
}

/* to = alpha d + s->d_norm */
static void past_branch(stage_t *s, const slot_t *slot, void *to, const void *d)
{
    if (s->status == GYRE_OK)
        s->status = model_cuda_scale_add(s->type, to, (float)s->c.deepnorm, d, s->d_norm,
                                         slot->n * s->here * s->c.hidden, s->stream);
}

static void post_norm_backward(stage_t *s, const slot_t *slot, size_t l, const void *d_x, void *d_in)
{
    const layer_t *a = &slot->layer[l];
    size_t layer = s->config.first + l;
    through_norm(s, slot, a, 1, s->mid[0], NULL, d_x, a->post);
    s->dy_mlp = stage_branch_back(s, slot, a->d_proj, s->mid[0], layer, SITE_MLP);
    mlp_backward(s, slot, a, s->dy_mlp);
    past_branch(s, slot, d_in, s->mid[0]);
    through_norm(s, slot, a, 0, s->mid[1], NULL, d_in, a->x2);
    s->dy_attention = stage_branch_back(s, slot, a->d_out, s->mid[1], layer, SITE_ATTENTION);
    attention_backward(s, slot, a, l, s->dy_attention);
    past_branch(s, slot, d_in, s->mid[1]);
}

void stage_layer_backward(stage_t *s, const slot_t *slot, size_t l, const void *d_x, void *d_in)
{
    if (s->config.recompute == MODEL_RECOMPUTE_FULL)
        layer_inner(s, slot, l);
    (s->c.post_norm ? post_norm_backward : pre_norm_backward)(s, slot, l, d_x, d_in);
    stage_complete(s, slot->layer[l].sums, slot->n * MODEL_SUMS * s->c.hidden);
}
#else
#include "model/gpu/stage/stage.h" /* a build without CUDA has nothing of it */
#endif
