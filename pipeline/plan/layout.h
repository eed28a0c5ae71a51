/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/plan/layout.h: how a job is cut: tensor x pipeline x data parallelism, ZeRO, sequence parallelism,
 * micro-batches.
 *
 * Ranks are numbered with tensor parallelism fastest, then context, data, pipeline: rank = ((pp * DP + dp) *
 * CP + cp) * TP + tp. So a tensor-parallel group has consecutive ranks (on one host), those that share a
 * sequence lie next to it, and pipeline neighbours are far apart, as in Megatron-LM (Narayanan et al. 2021,
 * section 3). No field of a layout changes a bit of a result
 * (docs/layouts.md). */
#ifndef PIPELINE_PLAN_LAYOUT_H
#define PIPELINE_PLAN_LAYOUT_H

#include <stddef.h>

#include "model/network/params.h"
#include "model/network/stage/stage.h"
#include "optim/batch.h"
#include "optim/ramp.h"
#include "pipeline/schedules/schedule.h"

typedef struct {
    size_t tp, pp, dp; /* degrees; dp 0: what the ranks leave over */
    size_t cp; /* context parallelism: ranks that share each sequence; divides the batch's parts. 0: 1 */
    /* 1: keys and values go round these ranks (model/network/stage/ring.inc); 0: heads are dealt out to
     * them, so that cp divides the heads of keys and values of a tensor rank */
    int ring;
    /* Expert parallelism: data-parallel ranks, so many neighbours of them, that share the experts of a tensor
     * rank's leaves: a power of two that divides dp. 0: 1 */
    size_t ep;
    size_t chunks; /* virtual stages per rank: 1; interleaved: >= 2; zb-v: 2. 0: the schedule's least */
    pipe_kind_t schedule;
    int zero;     /* ZeRO stage 0 .. 3 over pipe_layout_replicas */
    int sequence; /* 1: sequence parallelism in the tensor-parallel group */
    /* Sequences that travel through the pipeline together: whole leaves of the batch (optim/batch.h). 0: one
     * of them; where ZeRO 3 gathers weights for every micro-batch, and there is no pipeline that wants
     * many of them, what pipe_layout_together says. */
    size_t micro_batch;
    /* 1: embedding and head count as a layer each when layers are shared out (BLOOM, GLM-130B) */
    int balance;
} pipe_layout_t;

/* What a run holds in addition to its layout. */
typedef struct {
    model_config_t model;
    optim_batch_t batch;
    model_precision_t precision;
    model_recompute_t recompute;
    int grad16, keep, offload; /* as optim_zero_config_t has them; offload 1: there is a folder */
} pipe_load_t;

/* `layout` with zeros replaced by what they mean on `ranks` ranks. load NULL: it is not known, micro_batch
 * 0 is 1. */
pipe_layout_t pipe_layout_complete(const pipe_layout_t *layout, size_t ranks, const pipe_load_t *load);

/* micro_batch.c: the micro-batch of a layout that gathers its weights for each of them (ZeRO 3), where it is
 * not given: the largest whose activations beyond those of one sequence take at most half of what stage 3
 * saves on a rank against stage 0, so that the other half stays saved; then the least that makes as few
 * micro-batches. From a leaf of the batch (optim/batch.h) to the longest share, always whole leaves; one leaf
 * where weights are gathered once in any case (keep), where there is a pipeline, and for what does not
 * pass the checks. Counted in the bytes of the CPU's stages. */
size_t pipe_layout_together(const pipe_layout_t *layout, const pipe_load_t *load);

/* Whether a job of `ranks` ranks can train this model on this batch with this layout. `layout` must be
 * complete. INVALID: the message names the broken rule with both values, and the nearest layout that works,
 * as flags to use instead of the given ones. */
gyre_status_t pipe_layout_check(const pipe_layout_t *layout, const model_config_t *model, size_t ranks,
                                const optim_batch_t *batch);

/* The same, quietly: 1, or 0 and `why` names the rule. */
#define PIPE_LAYOUT_WHY 240
int pipe_layout_works(const pipe_layout_t *layout, const model_config_t *model, size_t ranks,
                      const optim_batch_t *batch, char why[PIPE_LAYOUT_WHY]);

/* A rank's coordinates. */
typedef struct {
    size_t tp, cp, pp, dp;
} pipe_place_t;
pipe_place_t pipe_layout_place(const pipe_layout_t *layout, size_t rank);

/* Stages 0 .. pp * chunks - 1 (pipe_stage_of says where they lie) carry the layers in order; the first ones
 * have one more where they do not divide. The embedding belongs to stage 0, final norm and head to the last.
 * With layout.balance it is layers + 2 that are shared out, and the first and the last stage have a layer
 * less. */
size_t pipe_layout_stages(const pipe_layout_t *layout);
void pipe_layout_layers(const pipe_layout_t *layout, size_t layers, size_t stage, size_t *first,
                        size_t *count);

/* Ranks that share experts, at least 1. */
size_t pipe_layout_experts(const pipe_layout_t *layout);
/* Ranks of a sequence, at least 1. */
size_t pipe_layout_context(const pipe_layout_t *layout);
/* Ranks that hold the same slice of the weights but for experts, DP times CP, over which gradients are added
 * and ZeRO shards: dp * CP + cp is a rank's number among them. Those of the same dp mod EP hold the same
 * experts. */
size_t pipe_layout_replicas(const pipe_layout_t *layout);

/* 1 if gradients are reduced leaf by leaf (optim_batch_part), so that a rank keeps none but its shards: with
 * ZeRO, where a batch is given lanes and this layout's ranks divide them. With context parallelism always:
 * a sequence's parts are next to one another in the tree, and lie on several ranks. Of a batch that grows
 * (optim/ramp.h) the last size decides. */
int pipe_layout_spreads(const pipe_layout_t *layout, const optim_batch_t *batch);
/* What a data-parallel rank has of the batch: optim_batch_part, and its parts of each sequence. */
optim_part_t pipe_layout_part(const pipe_layout_t *layout, const optim_batch_t *batch, size_t dp, int spread);
/* What the data-parallel rank with most sequences has of the batch. */
optim_part_t pipe_layout_most(const pipe_layout_t *layout, const optim_batch_t *batch);
/* 1 if all data-parallel ranks have as many sequences of the batch, as ranks that share experts must. */
int pipe_layout_equal(const pipe_layout_t *layout, const optim_batch_t *batch);
/* Sequences of the data-parallel rank that has most. */
size_t pipe_layout_longest(const pipe_layout_t *layout, const optim_batch_t *batch);
/* Micro-batches that data-parallel rank `dp` makes of its share (optim_batch_share) of the batch; 0 if the
 * share is empty. */
size_t pipe_layout_micro_batches(const pipe_layout_t *layout, const optim_batch_t *batch, size_t dp);
/* Of a layout's pipeline. forward_only: an evaluation. */
pipe_shape_t pipe_layout_shape(const pipe_layout_t *layout, size_t micro_batches, int forward_only);
/* Sequences of a column that go through the pipeline in one run of an evaluation, many enough for its bubble;
 * and how many of them go together: one, which keeps the bubble small, but where each costs a gather of the
 * weights. */
enum { PIPE_EVALUATED = 32 };
size_t pipe_layout_evaluated_together(const pipe_layout_t *layout);
/* Micro-batches of the longest share, which is what every column's schedule has: others are idle in some
 * of them. */
size_t pipe_layout_rounds(const pipe_layout_t *layout, const optim_batch_t *batch);
/* Of the sizes that a batch has while it grows, all but the last, the first with which the longest share has
 * *rounds micro-batches, and the schedule needs a multiple of the pipeline's ranks; 0: there is none. The
 * layout is complete. */
size_t pipe_layout_uneven(const pipe_layout_t *layout, const optim_batch_t *batch, const optim_ramp_t *ramp,
                          size_t *rounds);
/* The first of all sizes of which ranks that share experts have no equal shares; 0: there is none. */
size_t pipe_layout_unequal(const pipe_layout_t *layout, const optim_batch_t *batch, const optim_ramp_t *ramp);

#endif
