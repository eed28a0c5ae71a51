/* SPDX-License-Identifier: Apache-2.0 */
/* model/network/params.h: the parameter table: one row per parameter; no other code knows parameter names
 * (design, idea 6).
 *
 * Rows stand in the order in which backward finishes them: head, final norm, the layers from the top, each
 * from its output to its input, then the embeddings. Parameters lie back to back in that order in one flat
 * buffer. A range of rows is thus a range of memory, and a bucket is both.
 *
 * A row that tensor parallelism cuts is stored leaf by leaf (config.leaves of them): leaf k is what rank k
 * would hold if every leaf had a rank of its own, row-major by itself. Any rank's part of any row is thus one
 * range of elements of the canonical row. Shards of optimiser state, checkpoints and hashes are such ranges,
 * in every layout. Leaves that share a head of keys and values have a copy of it each, with the same values
 * and gradients. model_param_to_file converts a canonical row into the order of Hugging Face's files. */
#ifndef MODEL_NETWORK_PARAMS_H
#define MODEL_NETWORK_PARAMS_H

#include <stddef.h>
#include <stdint.h>

#include <gyre/status.h>

#include "model/network/config.h"

/* Kinds before MODEL_LAYER_KINDS, and from MODEL_MORE_LAYER_KINDS on, occur at most once per layer. F' is F,
 * or 2 F if the MLP is gated (gate, up). */
typedef enum {
    MODEL_MLP_PROJ_W,    /* [F, C] (Conv1D: [in, out], as GPT-2 stores every product); of the MLP or the
                          * shared experts of the layer: F is model_config_mlp */
    MODEL_MLP_PROJ_B,    /* [C] */
    MODEL_MLP_FC_W,      /* [C, F'] */
    MODEL_MLP_FC_B,      /* [F'] */
    MODEL_LN2_W,         /* [C] */
    MODEL_LN2_B,         /* [C] */
    MODEL_ATTN_PROJ_W,   /* [H value_dim, C] */
    MODEL_ATTN_PROJ_B,   /* [C] */
    MODEL_ATTN_QKV_W,    /* [C, (H + 2 KV) D]: q, k, v side by side, each cut by heads */
    MODEL_ATTN_QKV_B,    /* [(H + 2 KV) D] */
    MODEL_LN1_W,         /* [C] */
    MODEL_LN1_B,         /* [C] */
    MODEL_EXPERT_PROJ_W, /* [E F, C]: expert by expert [F, C]; a leaf is E / G experts */
    MODEL_EXPERT_FC_W,   /* [E C, F']: expert by expert [C, F'] */
    MODEL_ROUTER_W,      /* [C, E] */
    MODEL_LAYER_KINDS,
    MODEL_LNF_W = MODEL_LAYER_KINDS, /* [C] */
    MODEL_LNF_B,                     /* [C] */
    MODEL_WPE,                       /* [pos_offset + T, C] */
    MODEL_WTE,                       /* [V', C] */
    MODEL_HEAD,                      /* [V', C]; tied: the head's share of the token embedding's gradient */
    MODEL_WQE,                       /* [T, C]: the top layer's queries (config.top_query) */
    MODEL_EMB_LN_W,                  /* [C] */
    MODEL_EMB_LN_B,                  /* [C] */
    /* of each layer again: initial values of the kinds above are numbered by their places here */
    MODEL_MORE_LAYER_KINDS,
    /* [D] gains of config.qk_norm, or [H D] with qk_whole, or [q_latent] */
    MODEL_Q_NORM_W = MODEL_MORE_LAYER_KINDS,
    MODEL_K_NORM_W, /* [D], or [kv D], or [kv_latent] */
    MODEL_LN3_W,    /* [C] with both_norms: of what attention gives */
    MODEL_LN4_W,    /* [C] and of what the MLP gives */
    /* with kv_latent, instead of q, k, v: latents of queries, of keys and values, and the part of keys that
     * turns, side by side; of a head of v value_dim channels, D' = D - rotary_dim of keys from the latents */
    MODEL_LATENT_W, /* [C, model_config_latents] */
    MODEL_Q_UP_W,   /* [q_latent, H D], or [C, H D] without it */
    MODEL_KV_UP_W,  /* [kv_latent, H (D' + value_dim)]: per head its key, its value */
    /* initial values of these are not drawn: kinds from here on have no number of their own for it */
    MODEL_SINKS,         /* [H] of config.sinks */
    MODEL_ROUTER_B,      /* [E] of config.router_bias */
    MODEL_EXPERT_FC_B,   /* [E F'] of config.expert_bias, expert by expert */
    MODEL_EXPERT_PROJ_B, /* [E C] */
    MODEL_ROUTER_CHOICE, /* [E] with router_sigmoid: what is added to scores where experts are chosen */
    MODEL_KINDS,
    /* and more: factors of a weight of the kind that is so much less (model/network/lora.h) */
    MODEL_ADAPTERS = 64
} model_kind_t;
_Static_assert((int)MODEL_KINDS <= (int)MODEL_ADAPTERS, "a weight and an adapter are of the same kind");
_Static_assert((int)MODEL_SINKS < 32, "random_stream of params.c has 32 numbers for kinds");

/* 1: each layer may have a row of this kind. */
static inline int model_kind_of_layers(model_kind_t kind)
{
    return kind < MODEL_LAYER_KINDS || kind >= MODEL_MORE_LAYER_KINDS;
}

/* 1: a row of this kind has a part for each expert, one after another. */
static inline int model_kind_of_experts(model_kind_t kind)
{
    return kind == MODEL_EXPERT_PROJ_W || kind == MODEL_EXPERT_FC_W || kind == MODEL_EXPERT_PROJ_B ||
           kind == MODEL_EXPERT_FC_B;
}

/* 1: rows that stay fp32 where weights are held in 16 bits, as DeepSeek's files have them: a rounded one
 * would change choices. They are whole on each rank, and frozen. */
static inline int model_kind_is_exact(model_kind_t kind)
{
    return kind == MODEL_ROUTER_CHOICE;
}

typedef enum { MODEL_INIT_ZERO, MODEL_INIT_ONE, MODEL_INIT_NORMAL } model_init_t;

#define MODEL_PARTS 3
#define MODEL_NONE  SIZE_MAX

/* Counts and offsets in elements. A table is whole (model_params_create) or a rank's slice of it
 * (model_params_slice); for a whole one global is the row itself, first is 0 and count is that of the
 * canonical row. */
typedef struct {
    char name
        /* Hugging Face's for this architecture: "transformer.h.0.attn.c_attn.weight"
         * (model/network/names.h) */
        [80];
    model_kind_t kind;
    int layer;   /* 0 .. L-1; -1: before the first (embeddings); L: after the last (final norm, head) */
    size_t dims; /* 1 or 2 */
    /* of the whole row, in Hugging Face's GPT-2 order [in, out]; shape[1] is 1 for dims == 1 */
    size_t shape[2];
    int cut; /* the dimension that is cut in leaves; -1: every rank holds it whole */
    size_t
        /* pieces side by side along `cut`, each cut by itself: 3 for q, k, v; 2 for gate, up; 2 for latents
         * of queries, of keys and values, which are not cut; else 1 */
        parts;
    size_t part[MODEL_PARTS]; /* their extents */
    size_t leaves;            /* G of the whole row; 1 if it is not cut */
    size_t leaf_count;        /* elements of a leaf */
    size_t copies; /* so many leaves, side by side, have the same of each part but the first; 1: none */

    size_t global; /* row of the whole table */
    size_t first;  /* element of the canonical row where this slice begins: a multiple of leaf_count */
    size_t count;  /* elements of this slice */
    size_t offset; /* of its first element in the flat buffer of weights */
    size_t grad;   /* the same in a flat buffer of gradients */

    /* A tied head is not a weight of its own. MODEL_NONE, or on a slice that holds both the local row of the
     * token embedding, whose offset it shares. Its gradient is added to that row's when both are sums over
     * the whole batch. */
    size_t alias;
    /* 1: the token embedding or the head of a tied model: both hold the same weights, and one gradient */
    int twin;

    model_init_t init;
    double std;       /* of MODEL_INIT_NORMAL */
    int decay;        /* 1: weight decay applies (matrices) */
    int frozen;       /* 1: training leaves it as it is (model_params_freeze) */
    double rate;      /* times the run's learning rate (model_params_rates) */
    double own_decay; /* weight decay instead of the run's (model_params_decays); negative: the run's */
} model_param_t;

typedef struct {
    model_config_t config; /* complete */
    size_t rows;
    model_param_t *row; /* [rows] */
    size_t total;       /* elements of the flat buffer of weights */
    size_t grad_total;  /* elements of the gradients: total, and a tied head on the slice of its embedding */
} model_params_t;

/* Builds the table. INVALID (model_config_check), OVERFLOW, NO_MEMORY. Freed by model_params_destroy. */
gyre_status_t model_params_create(const model_config_t *config, model_params_t **out);
void model_params_destroy(model_params_t *params);

/* Freezes the rows whose names fit one of `patterns`: fnmatch(3), commas between them. A tied head and its
 * embedding go together. Before the table is cut into slices. INVALID: a pattern fits no name (the text has
 * the names), or no row is left to train. NO_MEMORY. */
gyre_status_t model_params_freeze(model_params_t *params, const char *patterns);
/* The same for "PATTERN=X,...", of which the last that fits counts: X becomes the row's `rate` (0 .. 1000),
 * or its `own_decay` (0 .. 100), also of a vector. INVALID as above, or X is malformed or out of range. */
gyre_status_t model_params_rates(model_params_t *params, const char *patterns);
gyre_status_t model_params_decays(model_params_t *params, const char *patterns);
/* Elements of frozen rows. */
size_t model_params_frozen(const model_params_t *params);

/* The part of the model on one rank: its tensor-parallel leaves [tp_rank G / tp_size, + G / tp_size) of the
 * layers whose `has` is 1 ([L]), the embeddings with `embed`, head and final norm with `head`. */
typedef struct {
    size_t tp_rank, tp_size;  /* tp_size divides config.leaves */
    const unsigned char *has; /* [L]; NULL: all */
    int embed, head;
    /* Expert parallelism: of the experts of its leaves the rank has part ep_rank of ep_size (0: 1) equal
     * parts. tp_size * ep_size divides config.experts. */
    size_t ep_rank, ep_size;
} model_slice_t;
/* The rows of `whole` that the slice holds, in the same order. INVALID: tp_size does not divide the
 * leaves, or with ep_size the experts. NO_MEMORY. */
gyre_status_t model_params_slice(const model_params_t *whole, const model_slice_t *slice,
                                 model_params_t **out);
/* The rows of a slice that are of experts (model_kind_of_experts), or with experts 0 all others: a table of
 * its own, with offsets of its own. NO_MEMORY. */
gyre_status_t model_params_pick(const model_params_t *slice, int experts, model_params_t **out);

/* Sets row->leaf_count and row->count to those of the whole canonical row, from shape, parts, leaves, copies.
 * 0: overflow. */
int model_param_measure(model_param_t *row);

/* The row of `kind`, or MODEL_NONE; `layer` is ignored for kinds that occur once. */
size_t model_params_find(const model_params_t *params, model_kind_t kind, size_t layer);

/* Initial values of elements [first, first + count) of one canonical row. Each element is a function of
 * (seed, row of the whole table, element of the canonical row in the file's order) only, so every layout
 * begins with the same bits. Matrices are normal with GPT-2's deviation, 0.02 at its width of 768, and for
 * other widths 0.02 sqrt(768 / hidden), which keeps products at the same scale (narrow models learn markedly
 * sooner with it). The two projections into the residual stream are scaled by 1/sqrt(2 L), like GPT-2's. */
void model_param_init(const model_param_t *row, uint64_t seed, size_t first, size_t count, float *out);

/* The index of element i of a canonical row (0 <= i < leaves * leaf_count) in the row-major whole [shape[0],
 * shape[1]]. */
size_t model_param_place(const model_param_t *row, size_t i);
/* 1: element i is the copy of one in a leaf before its own. */
int model_param_is_copy(const model_param_t *row, size_t i);
/* The number of elements from i on that are contiguous there, too: at least 1. */
size_t model_param_run(const model_param_t *row, size_t i);
/* Copies the whole canonical row [leaves * leaf_count] into the row-major whole. */
void model_param_to_file(const model_param_t *row, const float *canonical, float *file);

#endif
