/* SPDX-License-Identifier: Apache-2.0 */
/* model/network/decode/internal.h: the state of a decoder (private to this folder).
 *
 * Shapes: n rows are read at a time, N at most; C hidden, G leaves, g of them here; of one leaf: h heads, kv
 * heads of keys and values, D channels per head (V of v), q = (h + kv) D + kv V, f channels of the MLP (f' =
 * 2 f if it is gated), v rows of the vocabulary; T positions of which there are keys and values, whole blocks
 * of attention or all of the model's; T' these rounded up to whole lanes. */
#ifndef MODEL_NETWORK_DECODE_INTERNAL_H
#define MODEL_NETWORK_DECODE_INTERNAL_H

#include "base/arena.h"
#include "model/kernels/kernels.h"
#include "model/kernels/order.h"
#include "model/network/decode/decode.h"

/* Products whose orders are found, of leaves and experts. */
enum {
    OF_QKV,     /* and of the top layer's queries, and its keys and values, if it has an embedding of them */
    OF_QUERIES, /* or of latents, as the next one */
    OF_KEYS_VALUES,
    OF_SCORES, /* [2][2] by blocks of rows and of columns: 1 is the last one, if it is short */
    OF_VALUES = OF_SCORES + 4, /* [2][2][2] the same; 1: added to those of the blocks before */
    OF_ATTN_PROJ = OF_VALUES + 8,
    OF_MLP_FC,
    OF_MLP_PROJ,
    OF_HEAD,
    OF_ROUTER, /* of a block of positions, and of one that has one more */
    OF_ROUTER_MORE,
    OF_EXPERT_FC,
    OF_EXPERT_PROJ,
    OF_LATENT,
    OF_SHARED_FC, /* of the MLP next to experts */
    OF_SHARED_PROJ,
    ORDERS
};
enum { DECODE_LANES = 16 };

struct model_decoder {
    model_decoder_config_t config;
    model_config_t c;
    const model_kernels_t_f32 *k;
    base_arena_t arena;
    size_t g, heads, kv, qkv, attn_width, vocab; /* of a leaf: h, kv, q, h V, v */
    size_t latents, up_width;    /* with kv_latent: latents; of a leaf's heads what KV_UP_W gives */
    size_t experts_leaf;         /* experts of a leaf */
    size_t held, padded;         /* T, T' */
    size_t threads;              /* that do heads at a time, at least 1 */
    const float *w[MODEL_KINDS]; /* of the present layer, and of both ends */
    model_order_t *order[ORDERS];

    size_t *length;            /* [slots] */
    float *keys;               /* [slots][layers][g][kv D][T'] */
    float *values;             /* [slots][layers][g][T][kv V] */
    float *latent, *up;        /* [N,latents], [N,up_width] of a leaf */
    float *beside;             /* [N,C] what shared experts give */
    size_t *taken;             /* [slots][layers][E] slots of an expert that positions so far have */
    size_t *slot;              /* [N] of the rows of the present call */
    size_t *at;                /* [N] their positions */
    float *x, *x2;             /* [N,C] residual stream */
    float *norm;               /* [N,C] */
    float *sum;                /* [N,C] of a row-parallel product */
    float *level;              /* [levels][N,C] partial sums of leaves */
    float *project;            /* [g][N,q] */
    float *squares;            /* [g][2][N] with qk_whole: sums of squares of q and of k */
    float *attn;               /* [g][N,h V] */
    float *score;              /* [threads][min(N, MODEL_ATTENTION_BLOCK),T'] */
    float *fc;                 /* [g][N,f'] of the widest MLP, or [f'] of an expert */
    float *act;                /* [g][N,f], or [f] */
    float *expert;             /* [C] of an expert's output */
    float *prob;               /* [N,E] */
    float *share;              /* [N,top_k] */
    int32_t *choice, *slot_of; /* [N,top_k] experts; their slots, -1: none was free */
    float *turn, *turn_local;  /* [T][rotary_dim]; the latter with local_theta: of layers with windows */
    float *stats;              /* [2][N] of norms */
    float *gain;               /* [max(C, D)] with gain_plus_1: 1 + a norm's gain */
    float *head;               /* [g][C][v] its weights, transposed */
    float *part, *whole;       /* [g][N,v], [G][N,v] logits */
};

/* d->w: the weights of layer `layer` of the whole model; -1: the embedding, L: the head. */
void model_decoder_find_weights(model_decoder_t *d, int layer);
/* d->project of all leaves from `in` [n,C], before the angles of positions (config.kv_latent). */
void model_decoder_latents(const model_decoder_t *d, const float *in, size_t n);
/* Rounds a tensor where a stage stores it. */
static inline void model_decoder_keep(const model_decoder_t *d, float *x, size_t n)
{
    model_keep_f32(d->k, d->config.precision, x, n);
}
/* Of a leaf: its rows of d->project [N,q]; where a layer of a sequence has its keys [kv D][T'], and its
 * values [T][kv V]. */
static inline float *model_decoder_project(const model_decoder_t *d, size_t leaf)
{
    return d->project + leaf * d->config.rows * d->qkv;
}
static inline float *model_decoder_keys(const model_decoder_t *d, size_t slot, size_t layer, size_t leaf)
{
    return d->keys + ((slot * d->config.layers + layer) * d->g + leaf) * d->kv * d->c.head_dim * d->padded;
}
static inline float *model_decoder_values(const model_decoder_t *d, size_t slot, size_t layer, size_t leaf)
{
    return d->values + ((slot * d->config.layers + layer) * d->g + leaf) * d->kv * d->c.value_dim * d->held;
}
/* d->attn of n rows, those of `piece` [pieces], from d->project and a layer's keys and values. */
void model_decoder_attend(const model_decoder_t *d, size_t layer, const model_piece_t *piece, size_t pieces,
                          size_t n);
#define W(kind) (d->w[MODEL_##kind])

#endif
