/* SPDX-License-Identifier: Apache-2.0 */
/* model/gpu/stage/internal.h: the fields of a stage on the GPU, shared by the files of this folder: passes.c
 * its calls and the order of units, layout.c where its tensors lie, memory.c creation, offload.c what waits
 * on the host, steps.c single steps (products, collectives, norms), layer.c a layer, experts.c its experts,
 * ends.c embedding and head, graphs.c their launches as CUDA graphs.
 *
 * Shapes: n sequences of T positions, R of each on this rank (T, or T / t with sequence parallelism), C
 * hidden, g leaves on this rank; of one leaf: h heads, kv of keys and values, D channels per head, q = (h + 2
 * kv) D, f channels of the MLP (f' = 2 f if it is gated), v rows of the vocabulary; E experts, e of them
 * here, with cap slots each for a sequence, k choices of a position. "S": of the stage's storage. A row is a
 * position of a sequence: [n][T], or [n][R].
 *
 * Errors are kept in stage->status. After the first error of a call the further steps do nothing, so steps
 * read like the model. */
#ifndef MODEL_GPU_STAGE_INTERNAL_H
#define MODEL_GPU_STAGE_INTERNAL_H

#include "model/gpu/attention/attention.h"
#include "model/gpu/layers/elementwise.h"
#include "model/gpu/layers/experts.h"
#include "model/gpu/graphs.h"
#include "model/gpu/products/matmul.h"
#include "model/gpu/layers/norm.h"
#include "model/gpu/stage/stage.h"
#include "model/gpu/layers/vocabulary.h"

/* Places in a layer that dropout acts on (model_dropout_key); the embedding is layer 0's. */
enum { SITE_EMBED, SITE_ATTENTION, SITE_MLP, SITE_WEIGHTS };
/* Rows of `sums`, in the order of the parameter table. */
enum { SUM_MLP_PROJ_B, SUM_LN2_W, SUM_LN2_B, SUM_ATTN_PROJ_B, SUM_LN1_W, SUM_LN1_B, MODEL_SUMS };

/* Activations of one layer, kept from forward to backward. What recomputation makes again lies in memory that
 * all layers share. */
typedef struct {
    void *x;                              /* S [n][R,C] the residual stream that enters the layer */
    float *mean1, *rstd1, *mean2, *rstd2; /* [n][R] */
    void *ln1;                            /* S [n][T,C] */
    void *qkv;                            /* S [g][n][T,q] */
    float *lse;                           /* [g][n][h][T] */
    void *attn;                           /* S [g][n][T,h D] */
    void *x2;                             /* S [n][R,C] residual stream between attention and MLP */
    void *ln2;                            /* S [n][T,C] */
    void *fc;                             /* S [g][n][T,f'] before the activation */
    void *act;                            /* S [g][n][T,f] after it */
    /* a mixture of experts (model/gpu/layers/experts.h), instead of fc and act of all leaves: fc S
     * [e][n][cap,F'], act S [e][n][cap,F] */
    float *prob, *share;             /* [n][T,E], [n][T,k] */
    int32_t *choice, *place, *owner; /* [n][T,k] twice, [e][n][cap] */
    int32_t *chosen;                 /* [n][E] in slot->chosen */
    float *mass;                     /* [n][E] in slot->mass */
    void *xe, *ye;                   /* S [e][n][cap,C] rows in slots, experts' outputs */
    void *post;                      /* S [n][R,C] with post_norm: the sum that the second norm normalises */

    /* gradients that the products with weights' gradients need; with config.split each slot has its own */
    void *d_proj,
        /* S [n][T,C] of the outputs of the MLP and of attention; NULL: the gradient that came in is not
         * changed */
        *d_out;
    void *d_fc; /* S [g][n][T,f'], or as fc */
    void *d_ye,
        *d_router; /* S [e][n][cap,C], S [n][T][parts][E] of experts' outputs, of the router's logits */
    void *d_qkv;   /* S [g][n][T,q] */
    float *sums;   /* [n][MODEL_SUMS][C] sums over positions */
} layer_t;

enum {
    LOGIT_ROWS = 32, /* positions whose logits are gathered at a time */
    LOGIT_ALIGN =
        16 /* elements: rows of odd vocabularies (GPT-2's 50257) begin where kernels load 16 bytes */
};

/* The input of a forward, copied to the GPU in one piece. */
typedef struct {
    int32_t *tokens, *targets, *segments, *positions; /* [n][T] */
    uint32_t *prefix, *keys; /* [n], [n][4] of residual dropout; its last words are not read */
    uint32_t *weight_keys;   /* [layers][n][4] of attention's weights */
} input_t;

typedef struct {
    layer_t *layer;      /* [layers] */
    size_t n;            /* sequences */
    int evaluate, moved; /* no dropout; some positions are not 0 .. T - 1 */
    enum { SLOT_EMPTY, SLOT_FORWARD, SLOT_BACKWARD } state;
    /* pinned: S [layers][n][R,C], the layers' x; NULL: they stay on the GPU */
    void *away;
    void *host;              /* pinned: the source of `device` */
    input_t in, device;      /* the same places in both */
    struct CUevent_st *read; /* recorded after the copy */
    /* with head */
    void *x_out;          /* S [n][R,C] the residual stream after the last layer */
    void *lnf;            /* S [n][T,C] */
    float *meanf, *rstdf; /* [n][R] */
    /* S [g][n][T,v], rows logit_ld apart; after a forward that backward may follow: the gradient of the
     * mean loss. For sampling: floats. */
    void *logits;
    float scale;       /* of the loss, in the slot's backward */
    float *max, *pair; /* [n][T], [2][n][T] */
    float *sums_head;  /* [n][2][C] */
    /* with embedding */
    void *d_embed;        /* S [n][T,C] gradient of the embedding's sum */
    void *x_embed;        /* S [n][R,C] with embed_norm: the sum before its norm */
    float *meane, *rstde; /* [n][R] */
    float *sums_embed;    /* [n][2][C] */
    float *d_wqe;         /* [n][T,C] with the top layer, if its queries are an embedding of their own */
    /* with experts */
    int32_t *chosen; /* [layers][together][E] choices of each */
    float *mass;     /* [layers][together][E] sums of their probabilities */
} slot_t;

typedef struct {
    size_t first, rows; /* consecutive rows of the table */
} unit_t;

/* With config.offload: layer l's x is in ring[l % 2] while the layer needs it, and else in slot->away. */
typedef struct {
    void *ring[2];                 /* S [n][R,C] */
    struct CUstream_st *stream;    /* that they are copied on */
    struct CUevent_st *saved[2];   /* ring[i] is on the host */
    struct CUevent_st *fetched[2]; /* ring[i] is back */
    struct CUevent_st *edge;       /* the stage's stream at the time of the request for a copy */
} offload_t;

/* Device memory: measured first (base NULL), then taken in one piece. */
typedef struct {
    char *base;
    size_t used;
} pool_t;

struct model_cuda_stage {
    const model_params_t *params;
    model_config_t c;
    model_stage_config_t config; /* slots: micro-batches; together, grad_sequences: at least 1 */
    model_tp_t tp;
    model_cuda_store_t store;
    struct CUstream_st *stream;
    model_cuda_matmul_t *matmul;
    model_cuda_graphs_t
        *graphs[2];         /* of work without and with the group's collectives; NULL: kernel by kernel */
    model_cuda_type_t type; /* S */
    size_t size;            /* bytes of an element of S */
    gyre_status_t status;   /* of the present call */
    size_t g, here, begin;  /* leaves held; positions held, R, and the first of them */
    size_t leaf_heads, leaf_kv, leaf_qkv, leaf_attn, leaf_fc, leaf_ffn,
        leaf_vocab;           /* h, kv, q, h D, f', f, v */
    size_t logit_ld;          /* elements between rows of logits: v rounded up */
    size_t experts_here, cap; /* e, cap */
    float scale;              /* of the loss, in the present backward */
    unit_t *unit_layer, unit_embed, unit_head;
    slot_t *slot; /* [config.slots] */
    offload_t offload;
    pool_t kept, work;
    model_traffic_t traffic;
    size_t input_bytes; /* of slot->host */
    int32_t *last;      /* host, [V]: of model_cuda_segments */

    const void *weight[MODEL_KINDS]; /* of the rows that are acquired now */
    float *grad[MODEL_KINDS];        /* destination of their gradients, for config.grad_sequences */

    /* workspace */
    float *part;  /* [g][n][T,C] leaves of a sum; or [n][pieces][MODEL_CUDA_SUMMED][C] sums over positions */
    float *whole; /* [n][T,C] what the group reduces; NULL: no group */
    float *shard; /* [n][R,C] the result, with sequence parallelism */
    void *d_norm; /* S [n][R,C] gradient of a norm's output */
    void *d_x[2]; /* S [n][R,C] gradients of the residual stream between layers, by turns */
    void *mid[2]; /* S [n][R,C] the same within a layer */
    const void *dy_mlp, *dy_attention; /* S [n][T,C] of the layer in work: of its branches' outputs */
    void *d_attn;                      /* S [g][n][T,h D] */
    void *d_act;                       /* S [g][n][T,f] where the MLP is gated */
    float *delta;                      /* as lse */
    float *turn;                       /* [T][rotary_dim] */
    float *slopes;                     /* [g h] of ALiBi */
    float *leaf_loss;                  /* [2][g][n][T] */
    double *loss;                      /* [together] */
    float *d_share;                    /* [n][T,k] of the weights of choices */
    void *d_xe;                        /* S [e][n][cap,C] */
    model_routed_t *routed;            /* [n][layers] */
    /* [G][LOGIT_ROWS,logit_ld] of logits that are gathered; NULL: no group */
    float *rows;
};
typedef model_cuda_stage_t stage_t;

#define W(kind) (s->weight[MODEL_##kind])
#define D(kind) (s->grad[MODEL_##kind])

/* Element i of a tensor of storage S. */
static inline void *stage_at(const stage_t *s, const void *tensor, size_t i)
{
    return (char *)(uintptr_t)tensor + i * s->size;
}

/* ---- layout.c: without a device ---- */
/* s->params, c, config and tp are set: everything that follows from them. */
void stage_measure(stage_t *s);
/* 1: what stage_lay_out adds up can be counted. */
int stage_countable(const stage_t *s);
/* Lays everything out in s->kept and s->work; first without memory, to measure, then in it. */
void stage_lay_out(stage_t *s);
/* Where a forward's numbers lie in the `base` that host and device have of them; returns the bytes. */
size_t stage_lay_input(const stage_t *s, input_t *in, char *base);
/* Whether the GPU can train such a stage, as far as a device need not be asked. UNSUPPORTED, INVALID. */
gyre_status_t stage_check(const model_config_t *c, const model_tp_t *tp, const model_stage_config_t *config);

/* ---- steps.c: each does nothing once stage->status is an error ---- */
void stage_copy(stage_t *s, void *to, const void *from, size_t bytes);

/* The address of this rank's positions in a tensor [n][T,C]. */
void *stage_own(const stage_t *s, void *whole);
/* Completes whole S [n][T,C], in which each rank has filled its own positions. */
void stage_gather(stage_t *s, size_t n, void *whole);
/* whole S [n][T,C] = x S [n][R,C] of every rank. */
void stage_spread(stage_t *s, size_t n, void *whole, const void *x);
/* s->whole [n][T,C] summed over the group: all of it, or this rank's positions [n][R,C]. */
const float *stage_reduce(stage_t *s, size_t n);
/* sums [count] of this rank's positions become those of all. */
void stage_complete(stage_t *s, float *sums, size_t count);

/* d = a b, as model_cuda_matmul. */
void stage_multiply(stage_t *s, const model_cuda_product_t *product, const void *a, const void *b, void *d);
/* Column-parallel: y S [g][n][T,width] = x S [n][T,C] w [g][C,width] + bias [g][width], which may be NULL.
 * With `act` y is the activation of that, and `pre` gets the activation's input. */
void stage_columns(stage_t *s, size_t n, void *y, const void *x, const void *w, const void *bias,
                   size_t width, int act, void *pre);
/* dw [g][C,width] = x^T dy of the sequences that have one gradient, k of them, from sequence j on; db
 * [g][width], which may be NULL. */
void stage_columns_weight(stage_t *s, const slot_t *slot, size_t j, float *dw, float *db, const void *dy,
                          const void *x, size_t width);
/* Row-parallel, backward: dx S [g][n][T,width] = dy S [n][T,C] w^T, w [g][width,C]; with `pre` times the
 * activation's derivative. */
void stage_rows_input(stage_t *s, size_t n, void *dx, const void *dy, const void *w, size_t width, void *pre);
/* dw [g][width,C] = x^T dy of k sequences from j on, x S [g][n][T,width]. */
void stage_rows_weight(stage_t *s, const slot_t *slot, size_t j, float *dw, const void *dy, const void *x,
                       size_t width);

/* A sum over all leaves of a S [g][n][T,K] (rows lda, leaves step_a apart) times b [g][K,C], or [g][C,K]
 * if trans (ldb, step_b). */
typedef struct {
    const void *a, *b;
    size_t K, lda, ldb, step_a, step_b;
    float alpha; /* a factor of the sum */
    int trans;
    int everywhere; /* 1: every rank gets all positions, with sequence parallelism, too */
} join_t;
/* The sum of this rank's positions, as fp32 parts [leaves][n][R,C] that the reader joins. */
const float *stage_sum(stage_t *s, size_t n, const join_t *join, size_t *leaves);
/* The same, joined and rounded to `out` S [n][R,C]. */
void stage_sum_to(stage_t *s, size_t n, const join_t *join, void *out);

model_cuda_dropout_t stage_dropout(const stage_t *s, const slot_t *slot, size_t layer, unsigned site);
/* y = norm(x S [n][R,C]), sequences of y step_y apart. */
void stage_norm(stage_t *s, size_t n, void *y, size_t step_y, float *mean, float *rstd, const void *x,
                const void *w, const void *b);
/* out = base + the gradient through the norm (model_cuda_norm_back), and its sums over this rank's positions
 * to rows row[MODEL_CUDA_SUM_...] of sums [n][rows][C]; -1: not asked for. */
typedef struct {
    const void *dy, *x, *w, *base;
    void *out;
    const float *mean, *rstd;
    float *sums;
    size_t rows;
    int row[MODEL_CUDA_SUMMED];
} stage_norm_back_t;
void stage_norm_back(stage_t *s, size_t n, const stage_norm_back_t *back);
/* Row `row` of sums [n][MODEL_SUMS][C] = sums over this rank's positions of whole S [n][T,C]. */
void stage_position_sum(stage_t *s, size_t n, float *sums, size_t row, const void *whole);
/* The dy S [n][T,C] of a branch, from the gradient of its sum d_x S [n][R,C]: d_x itself if `into` is
 * NULL. */
const void *stage_branch_back(stage_t *s, const slot_t *slot, void *into, const void *d_x, size_t layer,
                              unsigned site);

/* ---- offload.c: all but create do nothing without config.offload ---- */
gyre_status_t stage_offload_create(stage_t *s);
void stage_offload_destroy(stage_t *s);
/* Before the x of layer l is written: waits until the x that had its place is on the host. Beyond the last
 * layer: does nothing. */
void stage_offload_room(stage_t *s, size_t l);
/* The x of layer l is complete: copies it to the host, while later work runs. */
void stage_offload_save(stage_t *s, const slot_t *slot, size_t l);
/* Waits for the x of layer l and starts the copy of the x of the layer below. In backward, from the last
 * layer down. */
void stage_offload_bring(stage_t *s, const slot_t *slot, size_t l);

/* ---- graphs.c ---- */
/* Work that is enqueued on the stage's stream between two calls of the store. */
typedef enum {
    SEGMENT_EMBED_FORWARD,
    SEGMENT_LAYER_FORWARD,
    SEGMENT_HEAD_FORWARD, /* s->loss */
    SEGMENT_HEAD_BACKWARD,
    SEGMENT_LAYER_BACKWARD,
    SEGMENT_EMBED_BACKWARD,
    SEGMENT_HEAD_WEIGHTS, /* of the sequences with one gradient */
    SEGMENT_LAYER_WEIGHTS,
    SEGMENT_EMBED_WEIGHTS
} segment_kind_t;
typedef struct {
    segment_kind_t kind;
    slot_t *slot;
    size_t at;      /* of a layer: its number */
    size_t j;       /* of WEIGHTS: the first sequence of the gradient */
    const void *in; /* of LAYER_BACKWARD: the gradient of the layer's output */
    /* destination of the result, if it is not the slot's own; of EMBED_BACKWARD: scratch */
    void *out;
    float scale; /* of HEAD_BACKWARD and HEAD_WEIGHTS, and of experts' LAYER_BACKWARD */
} segment_t;
/* Enqueues it, by a graph if there is one. */
void stage_segment(stage_t *s, const segment_t *segment);
gyre_status_t stage_graphs_create(stage_t *s);
void stage_graphs_destroy(stage_t *s);

/* ---- layer.c ---- */
void stage_layer_forward(stage_t *s, const slot_t *slot, size_t l, void *out);
/* d_x: the gradient of the layer's output; d_in: of its input. They are different tensors. */
void stage_layer_backward(stage_t *s, const slot_t *slot, size_t l, const void *d_x, void *d_in);
/* The gradients of the weights of config.grad_sequences sequences, the first of which is j, into
 * stage->grad; d_x as above. */
void stage_layer_weights(stage_t *s, const slot_t *slot, size_t l, size_t j);
/* 1: the queries of this layer come from an embedding of the positions (CodeGeeX). */
int stage_is_top_query(const stage_t *s, size_t l);

/* ---- experts.c: of n sequences ---- */
/* Routes a->ln2 and computes everything up to the experts' outputs: what backward needs. */
void stage_experts_inner(stage_t *s, size_t n, const layer_t *a);
/* The weighted sum of this rank's positions [n][R,C]. */
const float *stage_experts_sum(stage_t *s, size_t n, const layer_t *a);
/* Writes s->d_norm, the gradient of the experts' input, from dy S [n][T,C], that of the sum. */
void stage_experts_backward(stage_t *s, size_t n, const layer_t *a, const void *dy);
/* Gradients of experts and router, as stage_layer_weights. */
void stage_experts_weights(stage_t *s, size_t n, const layer_t *a, size_t j);
/* out [n][layers]: the statistics of a slot after its forward. */
void stage_experts_routed(stage_t *s, const slot_t *slot, model_routed_t *out);

/* ---- ends.c; weights as those of a layer ---- */
void stage_embed_forward(stage_t *s, slot_t *slot, void *out);
void stage_embed_backward(stage_t *s, slot_t *slot, void *d_x);
void stage_embed_weights(stage_t *s, const slot_t *slot, size_t j);
/* The losses of the slot's sequences go to s->loss. */
void stage_head_forward(stage_t *s, slot_t *slot);
void stage_head_logits(stage_t *s, slot_t *slot, size_t first, size_t count, float *logits);
void stage_head_backward(stage_t *s, slot_t *slot, void *d_x);
void stage_head_weights(stage_t *s, const slot_t *slot, size_t j);

#endif
