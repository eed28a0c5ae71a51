/* SPDX-License-Identifier: Apache-2.0 */
/* model/network/decode/create.c: a decoder's memory, and the orders of its products. */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "model/network/decode/internal.h"

static const char *order_name(int of)
{
    static const char *const names[ORDERS] = {[OF_QKV] = "queries, keys and values",
                                              [OF_QUERIES] = "queries",
                                              [OF_KEYS_VALUES] = "keys and values",
                                              [OF_SCORES] = "attention's scores",
                                              [OF_VALUES] = "attention's values",
                                              [OF_ATTN_PROJ] = "attention's projection",
                                              [OF_MLP_FC] = "the MLP",
                                              [OF_MLP_PROJ] = "the MLP's output",
                                              [OF_HEAD] = "the head",
                                              [OF_ROUTER] = "the router",
                                              [OF_ROUTER_MORE] = "the router",
                                              [OF_EXPERT_FC] = "experts",
                                              [OF_EXPERT_PROJ] = "experts' output",
                                              [OF_LATENT] = "latents",
                                              [OF_SHARED_FC] = "shared experts",
                                              [OF_SHARED_PROJ] = "shared experts' output"};
    while (!names[of])
        of--;
    return names[of];
}

static float *take(model_decoder_t *d, int *ok, size_t a, size_t b)
{
    size_t count = 0;
    float *p = base_mul(a, b, &count) ? base_arena_alloc(&d->arena, count + 1, sizeof *p) : NULL;
    *ok &= p != NULL;
    return p;
}

static void *take_sizes(model_decoder_t *d, int *ok, size_t count, size_t size)
{
    void *p = base_arena_alloc(&d->arena, count + 1, size);
    *ok &= p != NULL;
    return p;
}

/* Levels of a tree over the leaves of this rank. */
static size_t levels(const model_decoder_t *d)
{
    size_t n = 0;
    for (size_t leaves = d->g; leaves > 1; leaves /= 2)
        n++;
    return n;
}

static void take_experts(model_decoder_t *d, int *ok)
{
    const model_config_t *c = &d->c;
    const size_t N = d->config.rows;
    d->beside = c->shared_ffn > 0 ? take(d, ok, N, c->hidden) : NULL;
    d->expert = take(d, ok, c->hidden, 1);
    d->prob = take(d, ok, N, c->experts);
    d->share = take(d, ok, N, c->top_k);
    d->choice = take_sizes(d, ok, N * c->top_k, sizeof *d->choice);
    d->slot_of = take_sizes(d, ok, N * c->top_k, sizeof *d->slot_of);
    d->taken = take_sizes(d, ok, d->config.slots * d->config.layers * c->experts, sizeof *d->taken);
}

static void take_ends(model_decoder_t *d, int *ok)
{
    const size_t C = d->c.hidden, N = d->config.rows, v = d->vocab;
    if (d->config.head) {
        d->head = take(d, ok, d->g * v, C);
        d->part = take(d, ok, N, d->g * v);
        d->whole = d->config.tp.size > 1 ? take(d, ok, N, d->c.vocab_padded) : d->part;
    }
    if (d->c.pos == MODEL_POS_ROPE) {
        d->turn = take(d, ok, d->held, d->c.rotary_dim);
        if (*ok)
            model_rope_table_f32(d->turn, d->held, d->c.rotary_dim / 2, &d->c.rope);
        d->turn_local = d->c.local_theta > 0.0 ? take(d, ok, d->held, d->c.rotary_dim) : NULL;
        if (*ok && d->turn_local)
            model_rope_table_f32(d->turn_local, d->held, d->c.rotary_dim / 2,
                                 &(model_rope_t){.theta = d->c.local_theta});
    }
}

static int take_all(model_decoder_t *d)
{
    const size_t C = d->c.hidden, N = d->config.rows;
    size_t places = 0; /* of a channel of keys or values: heads of all layers and sequences */
    int ok = base_mul(d->config.slots * d->config.layers, d->g * d->kv, &places);
    d->length = take_sizes(d, &ok, d->config.slots, sizeof *d->length);
    d->slot = take_sizes(d, &ok, N, sizeof *d->slot);
    d->at = take_sizes(d, &ok, N, sizeof *d->at);
    d->keys = take(d, &ok, places, d->c.head_dim * d->padded);
    d->values = take(d, &ok, places, d->c.value_dim * d->held);
    d->x = take(d, &ok, N, C);
    d->x2 = take(d, &ok, N, C);
    d->norm = take(d, &ok, N, C);
    d->sum = take(d, &ok, N, C);
    d->level = take(d, &ok, levels(d) * N, C);
    d->project = take(d, &ok, d->g * N, d->qkv);
    d->squares = d->c.qk_whole ? take(d, &ok, d->g * 2, N) : NULL;
    d->attn = take(d, &ok, d->g * N, d->attn_width);
    d->score = take(d, &ok, d->threads * base_min_size(N, MODEL_ATTENTION_BLOCK), d->padded);
    d->stats = take(d, &ok, 2, N);
    d->gain = d->c.gain_plus_1 ? take(d, &ok, 1, base_max_size(C, d->c.head_dim)) : NULL;
    if (d->c.experts > 0)
        take_experts(d, &ok);
    size_t act = d->c.experts > 0 ? d->c.ffn : 0; /* an expert's, or all rows of an MLP */
    for (size_t l = 0; l < d->config.layers; l++)
        act = base_max_size(act, d->g * N * (model_config_mlp(&d->c, d->config.first + l) / d->c.leaves));
    d->fc = take(d, &ok, act, d->c.gated ? 2 : 1);
    d->act = take(d, &ok, act, 1);
    d->latent = take(d, &ok, N, d->latents);
    d->up = take(d, &ok, N, d->up_width);
    take_ends(d, &ok);
    return ok;
}

typedef struct {
    int wanted, trans;
    size_t M, N, K;
    int more;
} shape_t;

/* Of attention: products of whole blocks, and of a short one at the end of the sequence. A short block of
 * columns is seen from other blocks of rows in a prefix only. */
static void attention_shapes(const model_config_t *c, shape_t *scores, shape_t *values)
{
    const size_t size[2] = {c->seq < MODEL_ATTENTION_BLOCK ? 0 : MODEL_ATTENTION_BLOCK,
                            c->seq % MODEL_ATTENTION_BLOCK};
    for (int rows = 0; rows < 2; rows++)
        for (int columns = 0; columns < 2; columns++) {
            const size_t M = size[rows], N = size[columns];
            const int wanted = M > 0 && N > 0 && (rows >= columns || c->prefix);
            *scores++ = (shape_t){wanted, 1, M, N, c->head_dim, 0};
            *values++ = (shape_t){wanted, 0, M, c->value_dim, N, 0};
            *values++ = (shape_t){wanted, 0, M, c->value_dim, N, 1};
        }
}

/* Into shape [ORDERS]; they are those of a stage. */
static void order_shapes(const model_decoder_t *d, shape_t *shape)
{
    const model_config_t *c = &d->c;
    const size_t T = c->seq, C = c->hidden, E = c->experts, wide = c->gated ? 2 * c->ffn : c->ffn,
                 cap = model_config_capacity(c), ffn = (E > 0 ? c->dense_ffn : c->ffn) / c->leaves,
                 shared = c->shared_ffn / c->leaves, q = d->heads * c->head_dim, halves = c->gated ? 2 : 1;
    const int layers = d->config.layers > 0, bias = !c->no_qkv_bias,
              dense = layers && !model_config_is_sparse(c, d->config.first),
              sparse = layers && model_config_is_sparse(c, d->config.first + d->config.layers - 1),
              latent = layers && c->kv_latent > 0,
              top = c->top_query && d->config.first + d->config.layers == c->layers;
    const shape_t products[ORDERS] = {
        [OF_QKV] = {layers && !latent, 0, T, d->qkv, C, bias},
        [OF_QUERIES] = {top || latent, 0, T, q, c->q_latent ? c->q_latent : C, bias},
        [OF_KEYS_VALUES] = {top || latent, 0, T, latent ? d->up_width : d->qkv - q, latent ? c->kv_latent : C,
                            bias},
        [OF_LATENT] = {latent, 0, T, d->latents, C, 0},
        [OF_ATTN_PROJ] = {layers, 0, T, C, d->attn_width, 0},
        [OF_MLP_FC] = {dense, 0, T, halves * ffn, C, !c->no_mlp_bias},
        [OF_MLP_PROJ] = {dense, 0, T, C, ffn, 0},
        [OF_SHARED_FC] = {sparse && shared > 0, 0, T, halves * shared, C, 0},
        [OF_SHARED_PROJ] = {sparse && shared > 0, 0, T, C, shared, 0},
        [OF_HEAD] = {d->config.head, 1, T, d->vocab, C, 0},
        [OF_ROUTER] = {sparse && T >= c->leaves, 0, T / c->leaves, E, C, c->router_bias},
        [OF_ROUTER_MORE] = {sparse && T % c->leaves > 0, 0, T / c->leaves + 1, E, C, c->router_bias},
        [OF_EXPERT_FC] = {sparse, 0, cap, wide, C, c->expert_bias},
        [OF_EXPERT_PROJ] = {sparse, 0, cap, C, c->ffn, c->expert_bias},
    };
    memcpy(shape, products, sizeof products);
    if (layers)
        attention_shapes(c, shape + OF_SCORES, shape + OF_VALUES);
}

/* Multiplications of all products whose orders are looked for, from which on that takes about a minute.
 * Measured: 5.2e10 in 2.7 s of one core of an Intel Xeon, 2026-11-30, as gyre-generate's time with --order
 * canonical less that with --order fast, one layer of hidden 512 with 4 leaves, --seq 64000. */
#define LONG_START 1e12

static void warn_long_start(const model_decoder_t *d, const shape_t *shape)
{
    double work = 0.0;
    for (int i = 0; i < ORDERS; i++)
        if (shape[i].wanted)
            work += (double)shape[i].M * (double)shape[i].N * (double)shape[i].K;
    if (work > LONG_START)
        log_warning("the start looks for orders of sums in products of all %zu positions, which takes "
                    "minutes or more: give --seq, if fewer positions are enough, or --order fast",
                    d->c.seq);
}

static gyre_status_t find_orders(model_decoder_t *d, const shape_t *shape)
{
    gyre_status_t status = GYRE_OK;
    for (int i = 0; status == GYRE_OK && i < ORDERS; i++)
        if (shape[i].wanted)
            status = model_order_create(shape[i].trans, shape[i].M, shape[i].N, shape[i].K, shape[i].more,
                                        d->config.fast, &d->order[i]);
    for (int i = OF_SCORES; i < OF_ATTN_PROJ; i++) /* it makes the product in memory of its own */
        if (d->order[i] && !model_order_known(d->order[i]))
            d->threads = 1;
    return status;
}

void model_decoder_find_weights(model_decoder_t *d, int layer)
{
    memset(d->w, 0, sizeof d->w);
    for (size_t r = 0; r < d->config.params->rows; r++) {
        const model_param_t *row = &d->config.params->row[r];
        if (row->layer == layer)
            d->w[row->kind] = d->config.weights + row->offset;
    }
}

/* A product of an unknown order takes the whole block in which a position is. */
static size_t held_positions(const model_config_t *c, size_t positions)
{
    const size_t B = MODEL_ATTENTION_BLOCK;
    return positions > 0 && positions < c->seq ? base_min_size(c->seq, (positions + B - 1) / B * B) : c->seq;
}

gyre_status_t model_decoder_create(const model_decoder_config_t *config, model_decoder_t **out)
{
    const model_config_t *c = &config->params->config;
    model_decoder_t *d = calloc(1, sizeof *d);
    if (!d)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to read tokens one by one");
    d->config = *config;
    d->c = *c;
    d->k = model_kernels_f32(MODEL_ISA_BEST);
    d->g = c->leaves / config->tp.size;
    d->heads = c->heads / c->leaves;
    d->kv = model_config_key_heads(c) / c->leaves;
    d->qkv = (d->heads + d->kv) * c->head_dim + d->kv * c->value_dim;
    d->attn_width = d->heads * c->value_dim;
    d->latents = model_config_latents(c);
    d->up_width = d->latents > 0 ? d->kv * (c->head_dim - c->rotary_dim + c->value_dim) : 0;
    d->vocab = c->vocab_padded / c->leaves;
    d->experts_leaf = c->experts / c->leaves;
    d->held = held_positions(c, config->positions);
    d->padded = (d->held + DECODE_LANES - 1) / DECODE_LANES * DECODE_LANES;
    d->threads = base_min_size(base_max_size(1, config->threads), config->slots * d->g * d->heads);
    shape_t shape[ORDERS];
    order_shapes(d, shape);
    if (config->warns && !config->fast)
        warn_long_start(d, shape);
    gyre_status_t status = take_all(d) ? find_orders(d, shape)
                                       : gyre_fail(GYRE_ERR_NO_MEMORY,
                                                   "no memory for the keys and values of %zu sequences of "
                                                   "%zu positions in %zu layers: take fewer at a time, or "
                                                   "fewer positions",
                                                   config->slots, d->held, config->layers);
    if (status != GYRE_OK) {
        model_decoder_destroy(d);
        return status;
    }
    model_decoder_find_weights(d, (int)c->layers);
    for (size_t leaf = 0; config->head && leaf < d->g; leaf++)
        d->k->transpose(d->head + leaf * d->vocab * c->hidden, W(HEAD) + leaf * d->vocab * c->hidden,
                        d->vocab, c->hidden, c->hidden);
    *out = d;
    return GYRE_OK;
}

void model_decoder_destroy(model_decoder_t *d)
{
    if (!d)
        return;
    for (int i = 0; i < ORDERS; i++)
        model_order_destroy(d->order[i]);
    base_arena_free(&d->arena);
    free(d);
}

const char *model_decoder_slow(const model_decoder_t *d)
{
    for (int i = 0; i < ORDERS; i++) /* a router's products are short */
        if (i != OF_ROUTER && i != OF_ROUTER_MORE && d->order[i] && !model_order_known(d->order[i]))
            return order_name(i);
    return NULL;
}

void model_decoder_reset(model_decoder_t *d, size_t slot)
{
    d->length[slot] = 0;
    if (d->taken)
        memset(d->taken + slot * d->config.layers * d->c.experts, 0,
               d->config.layers * d->c.experts * sizeof *d->taken);
}

size_t model_decoder_length(const model_decoder_t *d, size_t slot)
{
    return d->length[slot];
}
