/* SPDX-License-Identifier: Apache-2.0 */
/* model/network/decode/read.c: reading tokens with a cache of keys and values. The arithmetic is that of
 * stage/block.inc, attention.inc, head.inc and moe.inc; read it next to them. */
#include <math.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "model/network/decode/internal.h"

/* ---- parts of a layer ---------------------------------------------------------------------------------- */

/* [n] What an RMSNorm with the gain w multiplies by; valid until the next one. */
static const float *gain_of(const model_decoder_t *d, const float *w, size_t n)
{
    for (size_t c = 0; d->c.gain_plus_1 && c < n; c++)
        d->gain[c] = 1 + w[c];
    return d->c.gain_plus_1 ? d->gain : w;
}

/* y [n,C] = norm(x [n,C]) */
static void norm(const model_decoder_t *d, float *y, const float *x, const float *w, const float *b, size_t n)
{
    const size_t C = d->c.hidden;
    if (d->c.norm == MODEL_NORM_RMS)
        d->k->rmsnorm(y, d->stats, x, gain_of(d, w, C), n, C, (float)d->c.norm_eps);
    else
        d->k->layernorm(y, d->stats, d->stats + d->config.rows, x, w, b, n, C, (float)d->c.norm_eps);
    model_decoder_keep(d, y, n * C);
}

/* y [n,m] = x [n,K] w [K,m] + bias [m] (NULL: none), rows ldy, K and ldw apart. */
static void product(const model_decoder_t *d, int which, size_t n, size_t m, size_t K, const float *x,
                    const float *w, size_t ldw, const float *bias, float *y, size_t ldy)
{
    for (size_t i = 0; bias && i < n; i++)
        memcpy(y + i * ldy, bias, m * sizeof *y);
    model_order_rows(d->order[which], n, d->at, m, K, x, K, w, ldw, y, ldy);
}

/* out [n,C] = the tree over leaves [first, first + leaves) of x [g][N,K] times w [g][K,C]. */
static void join(const model_decoder_t *d, int which, size_t first, size_t leaves, size_t n, size_t K,
                 const float *x, const float *w, float *out, float *level)
{
    const size_t C = d->c.hidden;
    if (leaves == 1) {
        product(d, which, n, C, K, x + first * d->config.rows * K, w + first * K * C, C, NULL, out, C);
        return;
    }
    join(d, which, first, leaves / 2, n, K, x, w, out, level);
    join(d, which, first + leaves / 2, leaves / 2, n, K, x, w, level, level + d->config.rows * C);
    d->k->add(out, out, level, n * C);
}

/* x [n,C] summed over the group. */
static gyre_status_t reduce(const model_decoder_t *d, float *x, size_t n)
{
    return d->config.tp.size == 1
               ? GYRE_OK
               : gyre_all_reduce(x, x, n * d->c.hidden, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), d->config.tp.comm);
}

/* out [n,C] = alpha base [n,C] + (d->sum [n,C] + bias); alpha is 1 but with post_norm. */
static void residual(const model_decoder_t *d, float *out, const float *base, const float *bias, size_t n)
{
    const size_t C = d->c.hidden;
    if (bias)
        d->k->bias_rows(d->sum, d->sum, bias, n, C);
    if (d->c.post_norm)
        d->k->scale_add(out, (float)d->c.deepnorm, base, d->sum, n * C);
    else
        d->k->add(out, base, d->sum, n * C);
    model_decoder_keep(d, out, n * C);
}

/* ---- attention ----------------------------------------------------------------------------------------- */

/* A leaf's rows of d->project, of `in` [n,C]; queries of the top layer may come from an embedding of the
 * positions (CodeGeeX). */
static void queries_keys_values(const model_decoder_t *d, size_t layer, size_t leaf, const float *in,
                                size_t n)
{
    const size_t C = d->c.hidden, q = d->attn_width, width = d->qkv;
    const float *w = W(ATTN_QKV_W) + leaf * C * width,
                *b = W(ATTN_QKV_B) ? W(ATTN_QKV_B) + leaf * width : NULL;
    float *project = model_decoder_project(d, leaf);
    if (!d->c.top_query || d->config.first + layer + 1 != d->c.layers) {
        product(d, OF_QKV, n, width, C, in, w, width, b, project, width);
    } else {
        for (size_t i = 0; i < n; i++)
            memcpy(d->x2 + i * C, W(WQE) + d->at[i] * C, C * sizeof *d->x2);
        product(d, OF_QUERIES, n, q, C, d->x2, w, width, b, project, width);
        product(d, OF_KEYS_VALUES, n, width - q, C, in, w + q, width, b ? b + q : NULL, project + q, width);
    }
    model_decoder_keep(d, project, n * width);
    if (d->c.qk_norm && !d->c.qk_whole) {
        const float eps = (float)d->c.norm_eps;
        const size_t D = d->c.head_dim;
        d->k->head_norm(project, NULL, NULL, gain_of(d, W(Q_NORM_W), D), n, width, d->heads, D, eps);
        d->k->head_norm(project + q, NULL, NULL, gain_of(d, W(K_NORM_W), D), n, width, d->kv, D, eps);
        model_decoder_keep(d, project, n * width);
    }
}

/* q and k of all leaves become their norms (config.qk_whole). */
static gyre_status_t norm_whole(const model_decoder_t *d, size_t n)
{
    const size_t q = d->attn_width, k = d->kv * d->c.head_dim, width = d->qkv, G = d->c.leaves;
    const float eps = (float)d->c.norm_eps;
    for (size_t leaf = 0; leaf < d->g; leaf++) {
        const float *project = model_decoder_project(d, leaf);
        d->k->part_squares(d->squares + 2 * leaf * n, project, n, width, q);
        d->k->part_squares(d->squares + (2 * leaf + 1) * n, project + q, n, width, k);
    }
    for (size_t count = d->g; count > 1; count /= 2)
        for (size_t i = 0; i < count / 2; i++)
            d->k->add(d->squares + 2 * i * n, d->squares + 4 * i * n, d->squares + (4 * i + 2) * n, 2 * n);
    gyre_status_t status = d->config.tp.size == 1
                               ? GYRE_OK
                               : gyre_all_reduce(d->squares, d->squares, 2 * n, GYRE_FLOAT32,
                                                 GYRE_OP(GYRE_SUM), d->config.tp.comm);
    for (size_t leaf = 0; status == GYRE_OK && leaf < d->g; leaf++) {
        float *project = model_decoder_project(d, leaf);
        d->k->part_norm(project, NULL, NULL, d->squares, W(Q_NORM_W) + leaf * q, n, width, q, q * G, eps);
        d->k->part_norm(project + q, NULL, NULL, d->squares + n, W(K_NORM_W) + leaf * k, n, width, k, k * G,
                        eps);
        model_decoder_keep(d, project, n * width);
    }
    return status;
}

/* Queries and keys of a layer turn by the angles of their positions. */
static void turn(const model_decoder_t *d, size_t layer, size_t leaf, size_t n)
{
    const size_t width = d->qkv, D = d->c.head_dim, first = d->c.kv_latent ? D - d->c.rotary_dim : 0;
    const int local = d->turn_local && model_config_is_local(&d->c, d->config.first + layer);
    const float *table = local ? d->turn_local : d->turn;
    float *project = model_decoder_project(d, leaf);
    if (!model_config_turns(&d->c, d->config.first + layer))
        return;
    for (size_t i = 0; i < n; i++)
        for (size_t h = 0; h < d->heads + d->kv; h++)
            d->k->rope(project + i * width + h * D + first, table + d->at[i] * d->c.rotary_dim, 1, width,
                       d->c.rotary_dim / 2, d->c.rope_interleaved, 0);
    model_decoder_keep(d, project, n * width);
}

/* Keys and values of the rows of d->project into the cache. */
static void remember(const model_decoder_t *d, size_t layer, size_t leaf, size_t n)
{
    const size_t D = d->c.head_dim, width = d->kv * D, wide = d->kv * d->c.value_dim;
    for (size_t i = 0; i < n; i++) {
        const float *key = model_decoder_project(d, leaf) + i * d->qkv + d->heads * D;
        float *keys = model_decoder_keys(d, d->slot[i], layer, leaf),
              *values = model_decoder_values(d, d->slot[i], layer, leaf);
        for (size_t j = 0; j < width; j++)
            keys[j * d->padded + d->at[i]] = key[j];
        memcpy(values + d->at[i] * wide, key + width, wide * sizeof *values);
    }
}

/* d->sum [n,C] = attention of `in` [n,C], without its bias. */
static gyre_status_t attention(model_decoder_t *d, size_t layer, const float *in, const model_piece_t *piece,
                               size_t pieces, size_t n)
{
    if (d->c.kv_latent > 0)
        model_decoder_latents(d, in, n);
    for (size_t leaf = 0; !d->c.kv_latent && leaf < d->g; leaf++)
        queries_keys_values(d, layer, leaf, in, n);
    gyre_status_t status = d->c.qk_whole ? norm_whole(d, n) : GYRE_OK;
    if (status != GYRE_OK)
        return status;
    for (size_t leaf = 0; leaf < d->g; leaf++) {
        turn(d, layer, leaf, n);
        remember(d, layer, leaf, n);
    }
    model_decoder_attend(d, layer, piece, pieces, n);
    for (size_t leaf = 0; leaf < d->g; leaf++)
        model_decoder_keep(d, d->attn + leaf * d->config.rows * d->attn_width, n * d->attn_width);
    join(d, OF_ATTN_PROJ, 0, d->g, n, d->attn_width, d->attn, W(ATTN_PROJ_W), d->sum, d->level);
    return reduce(d, d->sum, n);
}

/* ---- the MLP ------------------------------------------------------------------------------------------- */

static void activate(const model_decoder_t *d, float *act, const float *fc, size_t n, size_t ffn)
{
    if (d->c.act_limit > 0.0)
        d->k->limited(act, fc, n, ffn, (float)d->c.act_limit);
    else if (d->c.gated)
        d->k->gated[d->c.act](act, fc, n, ffn);
    else
        d->k->act[d->c.act](act, fc, n * ffn);
    model_decoder_keep(d, act, n * ffn);
}

/* d->sum [n,C] = the MLP of `in` [n,C], without its last bias; or the one next to experts. */
static gyre_status_t mlp(model_decoder_t *d, size_t layer, const float *in, size_t n)
{
    const size_t C = d->c.hidden, rows = d->config.rows,
                 ffn = model_config_mlp(&d->c, d->config.first + layer) / d->c.leaves,
                 wide = d->c.gated ? 2 * ffn : ffn;
    const int shared = W(ROUTER_W) != NULL;
    for (size_t leaf = 0; leaf < d->g; leaf++) {
        float *fc = d->fc + leaf * rows * wide;
        product(d, shared ? OF_SHARED_FC : OF_MLP_FC, n, wide, C, in, W(MLP_FC_W) + leaf * C * wide, wide,
                W(MLP_FC_B) ? W(MLP_FC_B) + leaf * wide : NULL, fc, wide);
        model_decoder_keep(d, fc, n * wide);
        activate(d, d->act + leaf * rows * ffn, fc, n, ffn);
    }
    join(d, shared ? OF_SHARED_PROJ : OF_MLP_PROJ, 0, d->g, n, ffn, d->act, W(MLP_PROJ_W), d->sum, d->level);
    return reduce(d, d->sum, n);
}

/* Experts of the rows of `in` [n,C], and their slots. */
static void route(model_decoder_t *d, size_t layer, const float *in, size_t n)
{
    const model_config_t *c = &d->c;
    const size_t C = c->hidden, E = c->experts, k = c->top_k, T = c->seq, G = c->leaves;
    for (size_t i = 0; i < n; i++) {
        size_t block = d->at[i] * G / T; /* or the next one */
        block += (block + 1) * T / G <= d->at[i];
        size_t from = block * T / G, at = d->at[i] - from, rows = (block + 1) * T / G - from;
        if (W(ROUTER_B))
            memcpy(d->prob + i * E, W(ROUTER_B), E * sizeof *d->prob);
        model_order_rows(d->order[rows > T / G ? OF_ROUTER_MORE : OF_ROUTER], 1, &at, E, C, in + i * C, C,
                         W(ROUTER_W), E, d->prob + i * E, E);
    }
    const model_router_t_f32 router = {.experts = E,
                                       .top_k = k,
                                       .groups = c->groups,
                                       .top_groups = c->top_groups,
                                       .sigmoid = c->router_sigmoid,
                                       .raw = c->raw_weights,
                                       .scale = (float)c->routed_scale,
                                       .choice = W(ROUTER_CHOICE)};
    d->k->route(d->prob, d->choice, d->share, n, &router);
    for (size_t i = 0; i < n * k; i++) {
        size_t *taken = d->taken + (d->slot[i / k] * d->config.layers + layer) * E;
        size_t slot = taken[d->choice[i]]++;
        d->slot_of[i] = slot < model_config_capacity(c) ? (int32_t)slot : -1;
    }
}

/* out [C] += a row's share of the output of one of this rank's experts. */
static void expert(const model_decoder_t *d, size_t x, size_t slot, float share, const float *in, float *out)
{
    const size_t C = d->c.hidden, f = d->c.ffn, wide = d->c.gated ? 2 * f : f;
    if (W(EXPERT_FC_B))
        memcpy(d->fc, W(EXPERT_FC_B) + x * wide, wide * sizeof *d->fc);
    model_order_rows(d->order[OF_EXPERT_FC], 1, &slot, wide, C, in, C, W(EXPERT_FC_W) + x * C * wide, wide,
                     d->fc, wide);
    model_decoder_keep(d, d->fc, wide);
    activate(d, d->act, d->fc, 1, f);
    if (W(EXPERT_PROJ_B))
        memcpy(d->expert, W(EXPERT_PROJ_B) + x * C, C * sizeof *d->expert);
    model_order_rows(d->order[OF_EXPERT_PROJ], 1, &slot, C, f, d->act, f, W(EXPERT_PROJ_W) + x * f * C, C,
                     d->expert, C);
    model_decoder_keep(d, d->expert, C);
    d->k->scale_add(out, share, d->expert, out, C);
}

/* out [n,C] = the tree over leaves [first, first + leaves) of their experts' shares of each row, an expert
 * after the other. */
static void join_experts(const model_decoder_t *d, size_t first, size_t leaves, const float *in, size_t n,
                         float *out, float *level)
{
    const size_t C = d->c.hidden, k = d->c.top_k, each = d->experts_leaf, here = d->config.tp.rank * d->g;
    if (leaves > 1) {
        join_experts(d, first, leaves / 2, in, n, out, level);
        join_experts(d, first + leaves / 2, leaves / 2, in, n, level, level + d->config.rows * C);
        d->k->add(out, out, level, n * C);
        return;
    }
    memset(out, 0, n * C * sizeof *out);
    for (size_t i = 0; i < n; i++)
        for (size_t x = first * each; x < (first + 1) * each; x++)
            for (size_t j = i * k; j < (i + 1) * k; j++)
                if ((size_t)d->choice[j] == here * each + x && d->slot_of[j] >= 0)
                    expert(d, x, (size_t)d->slot_of[j], d->share[j], in + i * C, out + i * C);
}

/* The same as mlp of a mixture of experts: a position that finds no slot with one of its choices goes
 * without. */
static gyre_status_t experts(model_decoder_t *d, size_t layer, const float *in, size_t n)
{
    const size_t count = n * d->c.hidden;
    gyre_status_t status = d->beside ? mlp(d, layer, in, n) : GYRE_OK;
    if (status != GYRE_OK)
        return status;
    if (d->beside)
        memcpy(d->beside, d->sum, count * sizeof *d->sum);
    route(d, layer, in, n);
    join_experts(d, 0, d->g, in, n, d->sum, d->level);
    status = reduce(d, d->sum, n);
    if (status == GYRE_OK && d->beside)
        d->k->add(d->sum, d->sum, d->beside, count);
    return status;
}

/* ---- a layer, and both ends ---------------------------------------------------------------------------- */

/* d->sum [n,C] plus bias [C] (NULL: none) becomes its norm. */
static void norm_of_output(const model_decoder_t *d, const float *bias, const float *w, const float *b,
                           size_t n)
{
    const size_t C = d->c.hidden;
    if (bias)
        d->k->bias_rows(d->sum, d->sum, bias, n, C);
    model_decoder_keep(d, d->sum, n * C);
    norm(d, d->norm, d->sum, w, b, n);
    memcpy(d->sum, d->norm, n * C * sizeof *d->sum);
}

/* d->x [n,C] through layer l of this rank's. */
static gyre_status_t layer(model_decoder_t *d, size_t l, const model_piece_t *piece, size_t pieces, size_t n)
{
    const model_config_t *c = &d->c;
    model_decoder_find_weights(d, (int)(d->config.first + l));
    const int in_front = !c->post_norm && !c->out_norm;
    if (in_front)
        norm(d, d->norm, d->x, W(LN1_W), W(LN1_B), n);
    gyre_status_t status = attention(d, l, in_front ? d->norm : d->x, piece, pieces, n);
    if (status != GYRE_OK)
        return status;
    if (c->out_norm)
        norm_of_output(d, W(ATTN_PROJ_B), W(LN1_W), W(LN1_B), n);
    if (c->both_norms)
        norm_of_output(d, W(ATTN_PROJ_B), W(LN3_W), NULL, n);
    residual(d, d->x2, d->x, c->out_norm || c->both_norms ? NULL : W(ATTN_PROJ_B), n);
    if (c->post_norm)
        norm(d, d->norm, d->x2, W(LN1_W), W(LN1_B), n);
    else if (in_front)
        norm(d, d->norm, c->parallel ? d->x : d->x2, W(LN2_W), W(LN2_B), n);
    const float *in = c->out_norm ? d->x2 : d->norm;
    if ((status = W(ROUTER_W) ? experts(d, l, in, n) : mlp(d, l, in, n)) != GYRE_OK)
        return status;
    if (c->out_norm || c->both_norms) {
        norm_of_output(d, W(MLP_PROJ_B), c->out_norm ? W(LN2_W) : W(LN4_W), c->out_norm ? W(LN2_B) : NULL, n);
        residual(d, d->x, d->x2, NULL, n);
        return GYRE_OK;
    }
    residual(d, c->post_norm ? d->x2 : d->x, c->post_norm ? d->norm : d->x2, W(MLP_PROJ_B), n);
    if (c->post_norm)
        norm(d, d->x, d->x2, W(LN2_W), W(LN2_B), n);
    return GYRE_OK;
}

/* A token's embedding is on one rank of the group; -0.0 from the others changes no bit. */
static gyre_status_t embed(model_decoder_t *d, const model_piece_t *piece, size_t pieces, size_t n)
{
    const size_t C = d->c.hidden, held = d->g * d->vocab, first = d->config.tp.rank * held;
    float *to = d->c.embed_norm ? d->x2 : d->x, *row = d->sum;
    model_decoder_find_weights(d, -1);
    for (size_t p = 0; p < pieces; p++)
        for (size_t i = 0; i < piece[p].count; i++, row += C) {
            size_t token = (size_t)piece[p].tokens[i];
            if (token >= first && token - first < held)
                memcpy(row, W(WTE) + (token - first) * C, C * sizeof *row);
            else
                for (size_t j = 0; j < C; j++)
                    row[j] = -0.0f;
        }
    gyre_status_t status = reduce(d, d->sum, n);
    float scale = (float)sqrt((double)C);
    model_decoder_keep(d, &scale, 1);
    for (size_t i = 0; d->c.embed_scaled && i < n * C; i++)
        d->sum[i] *= scale;
    for (size_t i = 0; status == GYRE_OK && i < n; i++)
        if (W(WPE))
            d->k->add(to + i * C, d->sum + i * C, W(WPE) + (d->c.pos_offset + d->at[i]) * C, C);
        else
            memcpy(to + i * C, d->sum + i * C, C * sizeof *to);
    if (d->c.embed_norm) {
        model_decoder_keep(d, to, n * C);
        d->k->layernorm(d->x, d->stats, d->stats + d->config.rows, to, W(EMB_LN_W), W(EMB_LN_B), n, C,
                        (float)d->c.norm_eps);
    }
    model_decoder_keep(d, d->x, n * C);
    return status;
}

/* logits [pieces, V'] of the last row of each piece. */
static gyre_status_t head(model_decoder_t *d, const model_piece_t *piece, size_t pieces, float *logits)
{
    const size_t C = d->c.hidden, v = d->vocab, G = d->c.leaves;
    float *x = d->x2;
    model_decoder_find_weights(d, (int)d->c.layers);
    for (size_t p = 0, row = 0; p < pieces; p++) {
        row += piece[p].count;
        memcpy(x + p * C, d->x + (row - 1) * C, C * sizeof *x);
        d->at[p] = d->at[row - 1];
    }
    if (!d->c.post_norm) {
        norm(d, d->norm, x, W(LNF_W), W(LNF_B), pieces);
        x = d->norm;
    }
    for (size_t leaf = 0; leaf < d->g; leaf++)
        product(d, OF_HEAD, pieces, v, C, x, d->head + leaf * v * C, v, NULL, d->part + leaf * pieces * v, v);
    if (d->c.logit_cap > 0.0)
        d->k->cap(d->part, d->g * pieces * v, 1, (float)d->c.logit_cap);
    gyre_status_t status = d->config.tp.size == 1 ? GYRE_OK
                                                  : gyre_all_gather(d->part, d->whole, d->g * pieces * v,
                                                                    GYRE_FLOAT32, d->config.tp.comm);
    for (size_t p = 0; status == GYRE_OK && p < pieces; p++)
        for (size_t leaf = 0; leaf < G; leaf++)
            memcpy(logits + p * d->c.vocab_padded + leaf * v, d->whole + (leaf * pieces + p) * v,
                   v * sizeof *logits);
    return status;
}

/* ---- reading ------------------------------------------------------------------------------------------- */

static gyre_status_t check(const model_decoder_t *d, const model_piece_t *piece)
{
    const size_t most = d->config.positions > 0 ? base_min_size(d->config.positions, d->c.seq) : d->c.seq;
    if (piece->count < 1 || piece->count > most - d->length[piece->slot])
        return gyre_fail(GYRE_ERR_INVALID, "%zu tokens after %zu: there is room for %zu positions",
                         piece->count, d->length[piece->slot], most);
    if (piece->open && (!d->c.prefix || d->length[piece->slot] > 0))
        return gyre_fail(GYRE_ERR_INVALID, "a prefix needs a model with prefixes, and comes first");
    for (size_t i = 0; i < piece->count; i++)
        if (piece->tokens[i] < 0 || (size_t)piece->tokens[i] >= d->c.vocab)
            return gyre_fail(GYRE_ERR_INVALID, "token %zu is %d: the vocabulary is 0..%zu", i,
                             (int)piece->tokens[i], d->c.vocab - 1);
    return GYRE_OK;
}

/* Counts the rows of a call, and finds where they are. */
static gyre_status_t place_rows(model_decoder_t *d, const model_piece_t *piece, size_t pieces, size_t *n)
{
    gyre_status_t status = GYRE_OK;
    *n = 0;
    for (size_t p = 0; p < pieces; p++) {
        if ((status = check(d, &piece[p])) != GYRE_OK)
            return status;
        if (piece[p].count > d->config.rows - *n)
            return gyre_fail(GYRE_ERR_INVALID, "more than %zu tokens together", d->config.rows);
        for (size_t i = 0; i < piece[p].count; i++, (*n)++) {
            d->at[*n] = d->length[piece[p].slot] + i;
            d->slot[*n] = piece[p].slot;
        }
    }
    return GYRE_OK;
}

gyre_status_t model_decoder_read(model_decoder_t *d, const model_piece_t *piece, size_t pieces,
                                 const float *x_in, float *x_out, float *logits)
{
    size_t n;
    gyre_status_t status = place_rows(d, piece, pieces, &n);
    if (status == GYRE_OK && d->config.embed)
        status = embed(d, piece, pieces, n);
    else if (status == GYRE_OK)
        memcpy(d->x, x_in, n * d->c.hidden * sizeof *d->x);
    for (size_t l = 0; status == GYRE_OK && l < d->config.layers; l++)
        status = layer(d, l, piece, pieces, n);
    if (status == GYRE_OK && !d->config.head)
        memcpy(x_out, d->x, n * d->c.hidden * sizeof *x_out);
    else if (status == GYRE_OK)
        status = head(d, piece, pieces, logits);
    for (size_t p = 0; status == GYRE_OK && p < pieces; p++)
        d->length[piece[p].slot] += piece[p].count;
    return status;
}

float model_log_probability(const model_config_t *c, const float *logits, model_token_t token, float *scratch)
{
    const model_kernels_t_f32 *k = model_kernels_f32(MODEL_ISA_BEST);
    const size_t G = c->leaves, v = c->vocab_padded / G;
    float max = 0, *sum = scratch + c->vocab_padded;
    for (size_t leaf = 0; leaf < G; leaf++) {
        size_t first = leaf * v, tokens = first >= c->vocab ? 0 : base_min_size(v, c->vocab - first);
        k->row_max(&max, logits + first, 1, tokens, v, leaf > 0);
    }
    memcpy(scratch, logits, c->vocab_padded * sizeof *scratch);
    for (size_t leaf = 0; leaf < G; leaf++) {
        size_t first = leaf * v, tokens = first >= c->vocab ? 0 : base_min_size(v, c->vocab - first);
        k->row_exp(sum + leaf, scratch + first, &max, 1, tokens, v);
    }
    for (size_t n = G; n > 1; n /= 2)
        for (size_t i = 0; i < n / 2; i++)
            sum[i] = sum[2 * i] + sum[2 * i + 1];
    return -(float)(log((double)sum[0]) + (double)(max - logits[token]));
}
