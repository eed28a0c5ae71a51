/* SPDX-License-Identifier: Apache-2.0 */
/* model/network/stage/stage.h: a run of layers of the decoder on one rank, forward and backward, for float
 * and double.
 *
 * A stage is the unit that pipeline parallelism places: some consecutive layers, with the embedding before
 * the first and final norm, head and loss after the last. Tensor parallelism cuts its products over the ranks
 * of a group. With sequence parallelism norms, residual stream and dropout live on shards of T / size
 * positions, and each all-reduce becomes a reduce-scatter and an all-gather (Shoeybi et al. 2019; Korthikanti
 * et al. 2022).
 *
 * Bits do not depend on any of that. A stage computes one sequence at a time. It takes the sequences of a
 * micro-batch layer by layer, so a layer's weights are fetched once for all of them. Every sum that a layout
 * may cut has config.leaves fixed leaves (heads of attention, slices of the MLP, blocks of the vocabulary,
 * blocks of positions). Each leaf is computed by the same product of the same shape on any rank. The leaves
 * are joined in the tree of docs/contract.md: first those of a rank, then over ranks in the collective. */
#ifndef MODEL_NETWORK_STAGE_STAGE_H
#define MODEL_NETWORK_STAGE_STAGE_H

#include <gyre/gyre.h>

#include "model/kernels/kernels.h"
#include "model/network/params.h"
#include "model/network/routed.h"
#include "model/spans.h"

/* The most parts that a sequence is cut into. */
#define MODEL_SEQUENCE_PARTS 64

/* The tensor-parallel group of a rank. */
typedef struct {
    gyre_comm_t *comm; /* NULL: a group of one */
    size_t rank, size; /* of comm; size is a power of two that divides config.leaves */
    int sequence;      /* 1: sequence parallelism; size divides seq */
    /* With size > kv_heads: the size / kv_heads consecutive ranks of comm, this one among them, that hold the
     * same head of keys and values. Only backward needs it. Else NULL. */
    gyre_comm_t *keys;
} model_tp_t;

/* What backward makes again. Attention's weights are never kept: of a stage, SELECTIVE is NONE. */
typedef enum { MODEL_RECOMPUTE_NONE, MODEL_RECOMPUTE_SELECTIVE, MODEL_RECOMPUTE_FULL } model_recompute_t;
/* Values are rounded to the type wherever a tensor is stored; products and sums are of float
 * (docs/precision.md). */
typedef enum { MODEL_FLOAT32, MODEL_BFLOAT16, MODEL_FLOAT16 } model_precision_t;

/* Whether a GPU's work is launched as CUDA graphs (model/gpu/stage/graphs.c); AUTO: if kernels are short.
 * Bits are the same. */
typedef enum { MODEL_GRAPHS_OFF, MODEL_GRAPHS_AUTO, MODEL_GRAPHS_ON } model_graphs_t;

typedef struct {
    size_t first, layers; /* first .. first + layers - 1 of the whole model */
    int embed, head;      /* 1: has the embedding before its layers, final norm + head + loss after them */
    size_t slots;         /* sequences between forward and backward at the same time */
    size_t together;      /* of them in one call of model_stage_*_batch, at most; 0: 1 */
    /* So many consecutive sequences have one gradient of each weight, placed and announced once, under the
     * slot of the first of them. Backward takes a multiple of them in each call. 0: 1 */
    size_t grad_sequences;
    model_recompute_t recompute;
    model_precision_t precision; /* MODEL_FLOAT32 for double */
    /* 1, on the CPU with MODEL_BFLOAT16: products are model_matmul_bf16, but the router's. Bits are others,
     * and the same in every layout. Needs model_matmul_has_bf16. */
    int matmul_bf16;
    int split; /* 1: backward leaves the weights' gradients to model_stage_backward_weight (zero bubble) */
    /* 1, on a GPU with MODEL_RECOMPUTE_FULL: what slots keep of their layers waits in host memory
     * (model/gpu/stage/offload.c) */
    int offload;
    model_graphs_t graphs; /* on a GPU */
    size_t stages;         /* of the GPU's, which share the memory that graphs may take; 0: 1 */
    uint64_t seed;         /* of dropout */
    int documents;         /* 1: sequences may have documents; on the CPU only */
    /* Context parallelism, on the CPU only. A sequence is cut into `parts` equal parts (0: 1), `parts_here`
     * of which (0: all), consecutive ones, this rank has; the others lie on the other ranks of `context`
     * (NULL: there are none), in the order of ranks. What is called a sequence in this file is then a part of
     * one: it has a slot, a loss and gradients of its own, and calls take whole runs of parts_here of them.
     * Attention alone sees the whole sequence (context.inc, ring.inc). Bits depend on `parts`. */
    size_t parts, parts_here;
    gyre_comm_t *context;
    int ring; /* 1: keys and values go round those ranks (ring.inc); 0: heads are dealt out to them */
    /* Expert parallelism, on the CPU only. The experts of this rank's leaves lie in `ep` (0: 1) equal parts
     * on the ranks of `experts` (NULL: there is one), in the order of ranks. Each of those ranks has
     * sequences of its own, and all make the same passes of as many sequences at the same time: a pass is
     * collective over them. Gradients of experts (model_kind_of_experts) come once for each rank's sequence:
     * after those of rank 0, with all rows of the layer, the rows of experts are placed and announced
     * ep - 1 times more. */
    size_t ep;
    gyre_comm_t *experts;
    /* On the CPU: threads for which attention has memory to work in; 0: 1. Those of the caller's team
     * (base/thread/team.h) do the work; bits do not depend on them. */
    size_t threads;
} model_stage_config_t;

/* One sequence. tokens and targets [T] are read by stages that have embedding or head (or a prefix);
 * `sequence` and `step` key the random numbers of dropout. */
typedef struct {
    const model_token_t *tokens, *targets;
    size_t prefix; /* with config.prefix: positions 0 .. prefix - 1 see one another */
    /* [T], each below T: the positions whose angles the channels turn by, of a model that has prefixes and
     * MODEL_POS_ROPE. NULL: 0 .. T - 1 */
    const int32_t *positions;
    /* [T], with config.documents: the first position of the document that a position is part of. A position
     * sees those of its document up to its own, and counts from the first of them. NULL: the sequence is
     * one */
    const int32_t *documents;
    uint64_t sequence, step;
    /* with config.parts: which part of the sequence this is; the arrays above are those of the whole [T] */
    size_t part;
    int evaluate; /* 1: no dropout, for a loss of validation; logits never have any */
} model_sequence_t;

/* Called when rows first .. first + rows - 1 of the table have their final gradient of this sequence (of
 * these config.grad_sequences). The rows are all gradients of one layer, or of the parts before or after the
 * layers. A status other than GYRE_OK ends backward, which returns it. */
typedef gyre_status_t (*model_rows_fn)(void *user, size_t slot, size_t first, size_t rows);

/* The traffic of a stage in its group since it was created, in elements of the whole tensor. n elements
 * all-reduced travel 2 n (t - 1) / t times per rank, n reduce-scattered or all-gathered n (t - 1) / t
 * times. */
typedef struct {
    /* [T, C] tensors between products and the residual stream. Per layer, sequence and pass without
     * recomputation: 2 all-reduced, or 2 gathered and 2 reduce-scattered; so 8 T C (t - 1) / t elements
     * travel for both passes, either way. The embedding and the head add one of each kind. */
    uint64_t all_reduce, reduce_scatter, all_gather;
    /* All-reduced in addition. With sequence parallelism: gradients of norms' gains and of biases after
     * products, [C] each, and of routers, [C, E] each, [C + 1, E] with biases; and per layer with experts
     * and forward pass, E counts of choices that are all-gathered, with a balance loss E sums, and with a
     * z-loss of routers one. Without it: per layer with experts and
     * backward pass the gradients of the choices' weights, [T, top_k]. With latent attention, per layer
     * and backward pass, the gradients of the latents, [T, model_config_latents], and with latents of
     * queries one all_reduce or reduce_scatter less. In both cases: with top_query the gradient of its
     * embedding, [T, C]. With expert parallelism, per layer with experts and forward pass, the counts of
     * choices that an all-to-all brings to the owners of experts. */
    uint64_t sums;
    uint64_t all_to_all; /* sent to the owners of experts and back, with sequence or expert parallelism */
    /* all-reduced by the cross-entropy: 3 T per backward of the head, and per forward that gives a loss */
    uint64_t loss;
    uint64_t keys;    /* all-reduced over model_tp_t.keys: 2 T D per layer, sequence and backward */
    uint64_t context; /* of attention in config.context: all-to-alls, sent to itself and others; with ring
                       * what is sent to others */
} model_traffic_t;

#include "model/kernels/real.h"
#include "model/network/stage/api.inc"
#undef real
#undef real_bits_t
#undef REAL
#undef REAL_TYPE

#endif
