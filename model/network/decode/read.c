/* SPDX-License-Identifier: Apache-2.0 */
/* model/network/decode.c: reading tokens with a cache of keys and values. The arithmetic is that of
 * stage/block.inc, attention.inc, head.inc and moe.inc, for all leaves on one rank; read it next to them.
 *
 * Shapes: n rows are read at a time, N at most; C hidden, G leaves; of one leaf: h heads, kv heads of keys
 * and values, D channels per head, q = (h + 2 kv) D, f channels of the MLP (f' = 2 f if it is gated). */
#include "model/network/decode.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/checked.h"
#include "base/error.h"
#include "model/kernels/kernels.h"

#define TOGETHER 64 /* rows at a time: enough for good products, little memory */

struct model_decoder {
    const model_params_t *params;
    const float *weights;
    model_config_t c;
    const model_kernels_t_f32 *k;
    base_arena_t arena;
    size_t heads, kv, qkv, attn_width, fc_width, ffn; /* of a leaf: h, kv, q, h D, f', f */
    size_t length, rows;                              /* tokens so far; N */
    const float *w[MODEL_KINDS];                      /* of the present layer, and of both ends */

    float *cache;    /* [L][G][T][2 kv D] keys, then values */
    size_t *taken;   /* [L][E] slots of an expert that positions so far have */
    float *x, *x2;   /* [N,C] residual stream */
    float *norm;     /* [N,C] */
    float *sum;      /* [N,C] of a row-parallel product */
    float *project;  /* [N,q] of one leaf */
    float *attn;     /* [G][N,h D] */
    float *score;    /* [T] */
    float *fc, *act; /* [N,f'], [N,f] of one leaf, or of an expert of all */
    float *prob;     /* [N,E] */
    float *share;    /* [N,top_k] */
    int32_t *choice; /* [N,top_k] */
    float *turn;     /* [T][rotary_dim] */
    float *stats;    /* [2][N] of norms */
    float *logits;   /* [V'] */
};

/* ---- life ---------------------------------------------------------------------------------------------- */

static float *take(model_decoder_t *d, int *ok, size_t a, size_t b)
{
    size_t count = 0;
    float *p = base_mul(a, b, &count) ? base_arena_alloc(&d->arena, count + 1, sizeof *p) : NULL;
    *ok &= p != NULL;
    return p;
}

static int take_all(model_decoder_t *d)
{
    const model_config_t *c = &d->c;
    const size_t C = c->hidden, N = d->rows, T = c->seq, G = c->leaves, E = c->experts;
    size_t wide = E > 0 ? (c->gated ? 2 : 1) * c->ffn : d->fc_width, cached = 0;
    int ok = base_mul(c->layers * G * 2 * d->kv, c->head_dim, &cached);
    d->cache = take(d, &ok, cached, T);
    d->x = take(d, &ok, N, C);
    d->x2 = take(d, &ok, N, C);
    d->norm = take(d, &ok, N, C);
    d->sum = take(d, &ok, N, C);
    d->project = take(d, &ok, N, d->qkv);
    d->attn = take(d, &ok, G * N, d->attn_width);
    d->score = take(d, &ok, T, 1);
    d->fc = take(d, &ok, N, wide);
    d->act = take(d, &ok, N, E > 0 ? c->ffn : d->ffn);
    d->stats = take(d, &ok, 2, N);
    d->logits = take(d, &ok, c->vocab_padded, 1);
    if (c->pos == MODEL_POS_ROPE) {
        d->turn = take(d, &ok, T, c->rotary_dim);
        if (ok)
            model_rope_table_f32(d->turn, T, c->rotary_dim / 2, c->rope_theta);
    }
    if (E > 0) {
        d->prob = take(d, &ok, N, E);
        d->share = take(d, &ok, N, c->top_k);
        d->choice = base_arena_alloc(&d->arena, N * c->top_k, sizeof *d->choice);
        d->taken = base_arena_alloc(&d->arena, c->layers * E, sizeof *d->taken);
        ok &= d->choice && d->taken;
    }
    return ok;
}

gyre_status_t model_decoder_create(const model_params_t *params, const float *weights, model_decoder_t **out)
{
    const model_config_t *c = &params->config;
    model_decoder_t *d = calloc(1, sizeof *d);
    if (!d)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to read tokens one by one");
    d->params = params;
    d->weights = weights;
    d->c = *c;
    d->k = model_kernels_f32(MODEL_ISA_BEST);
    d->heads = c->heads / c->leaves;
    d->kv = c->kv_heads / c->leaves;
    d->qkv = (d->heads + 2 * d->kv) * c->head_dim;
    d->attn_width = d->heads * c->head_dim;
    d->ffn = c->ffn / c->leaves;
    d->fc_width = c->gated ? 2 * d->ffn : d->ffn;
    d->rows = c->prefix ? c->seq : base_min_size(c->seq, TOGETHER); /* a prefix is read at once */
    model_matmul_init();
    if (!take_all(d)) {
        model_decoder_destroy(d);
        return gyre_fail(GYRE_ERR_NO_MEMORY,
                         "no memory for the keys and values of %zu positions in %zu layers", c->seq,
                         c->layers);
    }
    *out = d;
    return GYRE_OK;
}

void model_decoder_destroy(model_decoder_t *d)
{
    if (!d)
        return;
    base_arena_free(&d->arena);
    free(d);
}

void model_decoder_reset(model_decoder_t *d)
{
    d->length = 0;
    if (d->taken)
        memset(d->taken, 0, d->c.layers * d->c.experts * sizeof *d->taken);
}

size_t model_decoder_length(const model_decoder_t *d)
{
    return d->length;
}

/* ---- parts of a layer ---------------------------------------------------------------------------------- */

/* The weights of layer `layer`: -1 the embedding, L the head. */
static void find_weights(model_decoder_t *d, int layer)
{
    memset(d->w, 0, sizeof d->w);
    for (size_t r = 0; r < d->params->rows; r++) {
        const model_param_t *row = &d->params->row[r];
        if (row->layer == layer)
            d->w[row->kind] = d->weights + row->offset;
    }
}
#define W(kind) (d->w[MODEL_##kind])

/* y [n,C] = norm(x [n,C]) */
static void norm(const model_decoder_t *d, float *y, const float *x, const float *w, const float *b, size_t n)
{
    if (d->c.norm == MODEL_NORM_RMS)
        d->k->rmsnorm(y, d->stats, x, w, n, d->c.hidden, (float)d->c.norm_eps);
    else
        d->k->layernorm(y, d->stats, d->stats + d->rows, x, w, b, n, d->c.hidden, (float)d->c.norm_eps);
}

/* y [n,m] = x [n,k] w [k,m], whose rows are ldw apart, + bias [m] (NULL: none). */
static void product(float *y, const float *x, const float *w, size_t ldw, const float *bias, size_t n,
                    size_t m, size_t k, size_t ldy)
{
    for (size_t i = 0; bias && i < n; i++)
        memcpy(y + i * ldy, bias, m * sizeof *y);
    model_matmul_f32(0, 0, n, m, k, 1, x, k, w, ldw, bias ? 1 : 0, y, ldy);
}

/* out [n,C] = alpha base [n,C] + (d->sum [n,C] + bias); alpha is 1 but with post_norm. */
static void residual(const model_decoder_t *d, float *out, const float *base, const float *bias, size_t n)
{
    const size_t C = d->c.hidden;
    if (bias)
        d->k->bias_rows(d->sum, d->sum, bias, n, C);
    d->k->scale_add(out, d->c.post_norm ? (float)d->c.deepnorm : 1, base, d->sum, n * C);
}

/* Where position `t` of a leaf and layer is in the cache: keys [kv D], then values. */
static float *cached(const model_decoder_t *d, size_t layer, size_t leaf, size_t t)
{
    const size_t width = 2 * d->kv * d->c.head_dim;
    return d->cache + ((layer * d->c.leaves + leaf) * d->c.seq + t) * width;
}

/* Queries of a leaf to the rows of d->project, keys and values to the cache, of `in` [n,C]. */
static void queries_keys_values(model_decoder_t *d, size_t layer, size_t leaf, const float *in, size_t n)
{
    const model_config_t *c = &d->c;
    const size_t C = c->hidden, q = d->attn_width, D = c->head_dim, width = d->qkv;
    const float *w = W(ATTN_QKV_W) + leaf * C * width,
                *b = W(ATTN_QKV_B) ? W(ATTN_QKV_B) + leaf * width : NULL;
    /* the top layer's queries may come from an embedding of the positions (CodeGeeX) */
    const float *from = c->top_query && layer + 1 == c->layers ? W(WQE) + d->length * C : in;
    product(d->project, from, w, width, b, n, q, C, width);
    product(d->project + q, in, w + q, width, b ? b + q : NULL, n, width - q, C, width);
    for (size_t i = 0; c->pos == MODEL_POS_ROPE && i < d->heads + d->kv; i++)
        d->k->rope(d->project + i * D, d->turn + d->length * c->rotary_dim, n, width, c->rotary_dim / 2,
                   c->rope_interleaved, 0);
    for (size_t i = 0; i < n; i++)
        memcpy(cached(d, layer, leaf, d->length + i), d->project + i * width + q,
               (width - q) * sizeof(float));
}

/* out [D]: one head's sum of values at position t, which sees `seen` positions. */
static void attend(const model_decoder_t *d, const float *query, const float *keys, const float *values,
                   size_t t, size_t seen, double slope, float *out)
{
    const size_t D = d->c.head_dim, ld = 2 * d->kv * D;
    const float scale = 1.0f / (float)sqrt((double)D);
    float *s = d->score, max = -INFINITY, sum = 0;
    model_matmul_f32(0, 1, 1, seen, D, 1, query, D, keys, ld, 0, s, seen);
    for (size_t i = 0; i < seen; i++) {
        s[i] = s[i] * scale - (float)slope * (float)(i < t ? t - i : i - t);
        max = s[i] > max ? s[i] : max;
    }
    for (size_t i = 0; i < seen; i++)
        s[i] -= max;
    d->k->exp(s, s, seen);
    for (size_t i = 0; i < seen; i++)
        sum += s[i];
    d->k->scale(s, 1.0f / sum, s, seen);
    model_matmul_f32(0, 0, 1, D, seen, 1, s, seen, values, ld, 0, out, D);
}

/* d->sum [n,C] = attention of `in` [n,C], without its bias. */
static void attention(model_decoder_t *d, size_t layer, const float *in, size_t n, int open)
{
    const model_config_t *c = &d->c;
    const size_t C = c->hidden, D = c->head_dim, group = d->heads / d->kv;
    for (size_t leaf = 0; leaf < c->leaves; leaf++) {
        float *out = d->attn + leaf * d->rows * d->attn_width;
        queries_keys_values(d, layer, leaf, in, n);
        for (size_t h = 0; h < d->heads; h++) {
            const float *keys = cached(d, layer, leaf, 0) + h / group * D, *values = keys + d->kv * D;
            double slope = c->pos == MODEL_POS_ALIBI ? model_alibi_slope(leaf * d->heads + h, c->heads) : 0.0;
            for (size_t i = 0; i < n; i++)
                attend(d, d->project + i * d->qkv + h * D, keys, values, d->length + i,
                       open ? n : d->length + i + 1, slope, out + i * d->attn_width + h * D);
        }
        model_matmul_f32(0, 0, n, C, d->attn_width, 1, out, d->attn_width,
                         W(ATTN_PROJ_W) + leaf * d->attn_width * C, C, leaf > 0, d->sum, C);
    }
}

static void activate(const model_decoder_t *d, size_t n, size_t ffn)
{
    if (d->c.gated)
        d->k->gated[d->c.act](d->act, d->fc, n, ffn);
    else
        d->k->act[d->c.act](d->act, d->fc, n * ffn);
}

/* d->sum [n,C] = the MLP of `in` [n,C], without its last bias. */
static void mlp(const model_decoder_t *d, const float *in, size_t n)
{
    const size_t C = d->c.hidden, f = d->ffn, wide = d->fc_width;
    for (size_t leaf = 0; leaf < d->c.leaves; leaf++) {
        product(d->fc, in, W(MLP_FC_W) + leaf * C * wide, wide,
                W(MLP_FC_B) ? W(MLP_FC_B) + leaf * wide : NULL, n, wide, C, wide);
        activate(d, n, f);
        model_matmul_f32(0, 0, n, C, f, 1, d->act, f, W(MLP_PROJ_W) + leaf * f * C, C, leaf > 0, d->sum, C);
    }
}

/* The same of a mixture of experts: a position that finds no slot with one of its choices goes without. */
static void experts(model_decoder_t *d, size_t layer, const float *in, size_t n)
{
    const model_config_t *c = &d->c;
    const size_t C = c->hidden, E = c->experts, f = c->ffn, wide = c->gated ? 2 * f : f, k = c->top_k,
                 slots = model_config_capacity(c);
    model_matmul_f32(0, 0, n, E, C, 1, in, C, W(ROUTER_W), E, 0, d->prob, E);
    d->k->route(d->prob, d->choice, d->share, n, E, k);
    memset(d->sum, 0, n * C * sizeof *d->sum);
    for (size_t i = 0; i < n * k; i++) {
        const size_t expert = (size_t)d->choice[i];
        float *sum = d->sum + i / k * C;
        if (d->taken[layer * E + expert]++ >= slots)
            continue;
        product(d->fc, in + i / k * C, W(EXPERT_FC_W) + expert * C * wide, wide, NULL, 1, wide, C, wide);
        activate(d, 1, f);
        model_matmul_f32(0, 0, 1, C, f, d->share[i], d->act, f, W(EXPERT_PROJ_W) + expert * f * C, C, 1, sum,
                         C);
    }
}

/* d->x [n,C] through one layer. */
static void layer(model_decoder_t *d, size_t l, size_t n, int open)
{
    const model_config_t *c = &d->c;
    find_weights(d, (int)l);
    if (!c->post_norm)
        norm(d, d->norm, d->x, W(LN1_W), W(LN1_B), n);
    attention(d, l, c->post_norm ? d->x : d->norm, n, open);
    residual(d, d->x2, d->x, W(ATTN_PROJ_B), n);
    if (c->post_norm)
        norm(d, d->norm, d->x2, W(LN1_W), W(LN1_B), n);
    else
        norm(d, d->norm, c->parallel ? d->x : d->x2, W(LN2_W), W(LN2_B), n);
    if (c->experts > 0)
        experts(d, l, d->norm, n);
    else
        mlp(d, d->norm, n);
    residual(d, c->post_norm ? d->x2 : d->x, c->post_norm ? d->norm : d->x2, W(MLP_PROJ_B), n);
    if (c->post_norm)
        norm(d, d->x, d->x2, W(LN2_W), W(LN2_B), n);
}

/* ---- both ends ----------------------------------------------------------------------------------------- */

static void embed(model_decoder_t *d, const model_token_t *tokens, size_t n)
{
    const size_t C = d->c.hidden;
    find_weights(d, -1);
    for (size_t i = 0; i < n; i++) {
        const float *row = W(WTE) + (size_t)tokens[i] * C;
        if (W(WPE))
            d->k->add(d->x + i * C, row, W(WPE) + (d->c.pos_offset + d->length + i) * C, C);
        else
            memcpy(d->x + i * C, row, C * sizeof *d->x);
    }
    if (d->c.embed_norm) {
        memcpy(d->x2, d->x, n * C * sizeof *d->x);
        d->k->layernorm(d->x, d->stats, d->stats + d->rows, d->x2, W(EMB_LN_W), W(EMB_LN_B), n, C,
                        (float)d->c.norm_eps);
    }
}

/* logits [V] of row i of d->x. */
static void head(model_decoder_t *d, size_t i, float *logits)
{
    const size_t C = d->c.hidden;
    const float *x = d->x + i * C;
    find_weights(d, (int)d->c.layers);
    if (!d->c.post_norm) {
        norm(d, d->norm, x, W(LNF_W), W(LNF_B), 1);
        x = d->norm;
    }
    model_matmul_f32(0, 1, 1, d->c.vocab_padded, C, 1, x, C, W(HEAD), C, 0, d->logits, d->c.vocab_padded);
    memcpy(logits, d->logits, d->c.vocab * sizeof *logits);
}

static gyre_status_t check(const model_decoder_t *d, const model_token_t *tokens, size_t n, int open)
{
    if (n < 1 || n > d->c.seq - d->length)
        return gyre_fail(GYRE_ERR_INVALID, "%zu tokens after %zu: the model has %zu positions", n, d->length,
                         d->c.seq);
    if (open && (!d->c.prefix || d->length > 0))
        return gyre_fail(GYRE_ERR_INVALID, "a prefix needs a model with prefixes, and comes first");
    for (size_t i = 0; i < n; i++)
        if (tokens[i] < 0 || (size_t)tokens[i] >= d->c.vocab)
            return gyre_fail(GYRE_ERR_INVALID, "token %zu is %d: the vocabulary is 0..%zu", i, (int)tokens[i],
                             d->c.vocab - 1);
    return GYRE_OK;
}

gyre_status_t model_decoder_read(model_decoder_t *d, const model_token_t *tokens, size_t n, int open,
                                 float *logits)
{
    gyre_status_t status = check(d, tokens, n, open);
    for (size_t at = 0, rows; status == GYRE_OK && at < n; at += rows) {
        rows = base_min_size(n - at, d->rows);
        embed(d, tokens + at, rows);
        for (size_t l = 0; l < d->c.layers; l++)
            layer(d, l, rows, open);
        if (at + rows == n)
            head(d, rows - 1, logits);
        d->length += rows;
    }
    return status;
}
