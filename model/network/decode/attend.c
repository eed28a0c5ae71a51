/* SPDX-License-Identifier: Apache-2.0 */
/* model/network/decode/attend.c: attention of some tokens over the cache of keys and values, by the threads
 * of a rank. The arithmetic is that of stage/attention.inc; read it next to it. */
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "base/checked.h"
#include "base/thread/team.h"
#include "model/network/decode/internal.h"

/* 1: the last block of a sequence's positions, which is short, has this one. */
static int in_short_block(const model_decoder_t *d, size_t t)
{
    return t / MODEL_ATTENTION_BLOCK * MODEL_ATTENTION_BLOCK + MODEL_ATTENTION_BLOCK > d->c.seq;
}

/* Attention of one head of some sequence: its cache, and how positions are seen. */
typedef struct {
    const float *keys, *values; /* [D][T'], [T][kv V] */
    float slope;
    const float *sink; /* NULL: none */
    size_t window,
        prefix; /* the piece is the first `prefix` positions, which see one another; 0: it is not */
} head_t;

/* `count` rows of a block of positions, the first at *at: queries [count], rows q apart, to out [count,V],
 * rows h V apart. Blocks of columns are those of a stage (model/kernels/attention/api.inc). s: a thread's
 * part of d->score. */
static void attend_block(const model_decoder_t *d, const head_t *a, const float *query, const size_t *at,
                         size_t count, float *s, float *out)
{
    enum { B = MODEL_ATTENTION_BLOCK };
    const size_t D = d->c.head_dim, V = d->c.value_dim, ld = d->padded, begin = *at / B * B,
                 from = model_first_seen(begin, a->window) / B * B,
                 most = a->prefix ? a->prefix : at[count - 1] + 1;
    const int rows = in_short_block(d, begin);
    size_t place[B];
    for (size_t i = 0; i < count; i++)
        place[i] = at[i] - begin;
    for (size_t c = from; c < most; c += B) {
        const size_t lanes = (most - c + DECODE_LANES - 1) / DECODE_LANES * DECODE_LANES;
        model_order_rows(d->order[OF_SCORES + 2 * rows + in_short_block(d, c)], count, place,
                         base_min_size(lanes, base_min_size(B, d->c.seq - c)), D, query, d->qkv, a->keys + c,
                         ld, s + c, ld);
    }
    for (size_t i = 0; i < count; i++) {
        size_t first = model_first_seen(at[i], a->window), seen = a->prefix ? most : at[i] + 1;
        float *row = s + i * ld;
        float scale = 1.0f / (float)sqrt((double)(float)model_config_query_scale(&d->c));
        if (d->c.attn_cap > 0.0) {
            d->k->cap(row + first, seen - first, scale, (float)d->c.attn_cap);
            scale = 1;
        }
        d->k->softmax_one(row + first, at[i] - first, seen - first, scale, a->slope, a->sink);
        memset(row + from, 0, (first - from) * sizeof *s);
        memset(row + seen, 0, (most - seen) * sizeof *s);
        model_decoder_keep(d, row + first, seen - first);
    }
    for (size_t c = from; c < most; c += B)
        model_order_rows(d->order[OF_VALUES + 4 * rows + 2 * in_short_block(d, c) + (c > from)], count, place,
                         V, base_min_size(B, most - c), s + c, ld, a->values + c * d->kv * V, d->kv * V, out,
                         d->attn_width);
}

/* The same of the `count` rows of a piece, block by block. */
static void attend(const model_decoder_t *d, const head_t *a, const float *query, const size_t *at,
                   size_t count, float *s, float *out)
{
    for (size_t i = 0, rows; i < count; i += rows) {
        rows = base_min_size(count - i, MODEL_ATTENTION_BLOCK - at[i] % MODEL_ATTENTION_BLOCK);
        attend_block(d, a, query + i * d->qkv, at + i, rows, s, out + i * d->attn_width);
    }
}

/* Multiplications from which heads are dealt out to threads: to wake these takes as long as less work. */
#define DIVIDED_ATTENTION ((size_t)1 << 17)

/* What the threads of a rank share while they do the heads of a layer. */
typedef struct {
    const model_decoder_t *d;
    const model_piece_t *piece;
    size_t layer, window, units; /* units: heads of all leaves and pieces */
    _Atomic size_t next;         /* unit that nobody has taken */
} heads_t;

/* Head h of a leaf, of the piece p whose first row is `row`. */
static void attend_head(const heads_t *all, size_t leaf, size_t h, size_t p, size_t row, float *s)
{
    const model_decoder_t *d = all->d;
    const model_piece_t *piece = &all->piece[p];
    const size_t D = d->c.head_dim, V = d->c.value_dim, kv = h / (d->heads / d->kv),
                 head = (d->config.tp.rank * d->g + leaf) * d->heads + h;
    const head_t a = {.keys = model_decoder_keys(d, piece->slot, all->layer, leaf) + kv * D * d->padded,
                      .values = model_decoder_values(d, piece->slot, all->layer, leaf) + kv * V,
                      .slope = d->c.pos == MODEL_POS_ALIBI ? (float)model_alibi_slope(head, d->c.heads) : 0,
                      .sink = W(SINKS) ? W(SINKS) + leaf * d->heads + h : NULL,
                      .window = all->window,
                      .prefix = piece->open ? piece->count : 0};
    attend(d, &a, model_decoder_project(d, leaf) + row * d->qkv + h * D, d->at + row, piece->count, s,
           d->attn + (leaf * d->config.rows + row) * d->attn_width + h * V);
}

/* Takes units until none is left, in the `at`-th part of d->score. */
static void attend_some(void *arg, size_t at)
{
    heads_t *all = arg;
    const model_decoder_t *d = all->d;
    float *s = d->score + at * base_min_size(d->config.rows, MODEL_ATTENTION_BLOCK) * d->padded;
    size_t p = 0, row = 0; /* units of a piece follow one another */
    for (size_t unit; (unit = atomic_fetch_add(&all->next, 1)) < all->units;) {
        const size_t heads = d->g * d->heads;
        while (p < unit / heads)
            row += all->piece[p++].count;
        attend_head(all, unit % heads / d->heads, unit % d->heads, p, row, s);
    }
}

void model_decoder_attend(const model_decoder_t *d, size_t layer, const model_piece_t *piece, size_t pieces,
                          size_t n)
{
    heads_t all = {.d = d,
                   .piece = piece,
                   .layer = layer,
                   .window = model_config_window(&d->c, d->config.first + layer),
                   .units = pieces * d->g * d->heads};
    size_t seen = 0; /* positions, by all rows */
    for (size_t i = 0; i < n; i++)
        seen += d->at[i] + 1;
    const int small = seen * d->g * d->heads * d->c.head_dim < DIVIDED_ATTENTION;
    base_each(small ? 1 : base_min_size(all.units, d->threads), attend_some, &all);
}
