/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/plan/recipe_tiny.c: a recipe cut down to what 8 ranks on one host hold. */
#include <math.h>

#include "base/checked.h"
#include "model/network/hf_config.h"
#include "pipeline/plan/recipe.h"

enum {
    RANKS = 8,
    HIDDEN = 64,
    HEADS = 8,
    VOCAB = 256,
    SEQ = 64,
    BATCH = 8,
    EXPERTS = 4,
    STEPS = 200,
    WARM = 10
};

/* Doubles degrees in turn while ranks are left and the full recipe has more. ZeRO-3 is about data
 * parallelism, which is therefore the first to grow with it; tensor parallelism is otherwise. */
static void cut_degrees(const pipe_layout_t *full, pipe_layout_t *tiny)
{
    const size_t most[3] = {full->tp, full->pp, full->dp};
    size_t *degree[3] = {&tiny->tp, &tiny->pp, &tiny->dp};
    static const int turns[2][3] = {{0, 1, 2}, {2, 1, 0}};
    const int *turn = turns[full->zero == 3];
    size_t ranks = 1;
    tiny->tp = tiny->pp = tiny->dp = 1;
    for (int grown = 1; grown && ranks < RANKS;) {
        grown = 0;
        for (int i = 0; i < 3 && ranks < RANKS; i++)
            if (*degree[turn[i]] * 2 <= most[turn[i]]) {
                *degree[turn[i]] *= 2;
                ranks *= 2;
                grown = 1;
            }
    }
    tiny->ep = base_min_size(full->ep, tiny->dp); /* powers of two */
}

static size_t round_to(double value, size_t multiple)
{
    return base_max_size(1, (size_t)lround(value / (double)multiple)) * multiple;
}

static void cut_model(const model_config_t *full, const pipe_layout_t *layout, model_config_t *tiny)
{
    const double narrow = (double)HIDDEN / (double)full->hidden;
    tiny->vocab = tiny->vocab_padded = VOCAB;
    tiny->seq = SEQ;
    tiny->hidden = HIDDEN;
    tiny->heads = HEADS;
    /* at least one for each rank that shares a layer, as the full recipe has */
    tiny->kv_heads = base_max_size(layout->tp, HEADS * full->kv_heads / full->heads);
    /* keeps the ratio of the width of all heads to the residual stream's */
    tiny->head_dim = round_to((double)(full->heads * full->head_dim) * narrow / HEADS, 2);
    tiny->rotary_dim =
        round_to((double)tiny->head_dim * (double)full->rotary_dim / (double)full->head_dim, 2);
    tiny->query_scale = full->query_scale * (double)tiny->head_dim / (double)full->head_dim;
    tiny->ffn = round_to((double)full->ffn * narrow, 16);
    tiny->experts =
        base_min_size(full->experts, base_max_size(EXPERTS, layout->tp * pipe_layout_experts(layout)));
    tiny->top_k = full->experts ? base_min_size(full->top_k, tiny->experts) : full->top_k;
    tiny->value_dim = full->value_dim == full->head_dim
                          ? tiny->head_dim
                          : round_to((double)(full->heads * full->value_dim) * narrow / HEADS, 2);
    tiny->kv_latent = full->kv_latent ? round_to((double)full->kv_latent * narrow, 2) : 0;
    tiny->q_latent = full->q_latent ? round_to((double)full->q_latent * narrow, 2) : 0;
    if (full->kv_latent)
        tiny->kv_heads = HEADS;
    tiny->dense_first = full->dense_first > 0;
    tiny->dense_ffn = full->dense_first ? round_to((double)full->dense_ffn * narrow, 16) : 0;
    tiny->shared_ffn = full->shared_ffn ? round_to((double)full->shared_ffn * narrow, 16) : 0;
    tiny->groups = tiny->top_groups = 1;
    size_t stages = pipe_layout_stages(layout);
    tiny->layers = stages == 1 ? 2 : stages < 4 ? 2 * stages : stages;
    if (full->deepnorm > 1.0) /* alpha grows with the root of the depth (Wang et al. 2022, table 1) */
        tiny->deepnorm = full->deepnorm * sqrt((double)tiny->layers / (double)full->layers);
    tiny->leaves = 0;
    tiny->leaves = model_config_leaves(tiny);
}

pipe_recipe_t pipe_recipe_tiny(const pipe_recipe_t *recipe)
{
    pipe_recipe_t r = *recipe;
    cut_degrees(&recipe->layout, &r.layout);
    cut_model(&recipe->model, &r.layout, &r.model);
    if (recipe->objective.said && recipe->objective.kind == MODEL_OBJECTIVE_INFILL) {
        r.model.vocab = r.model.vocab_padded = VOCAB + MODEL_INFILL_IDS;
        r.objective.infill = model_infill_ids_last(r.model.vocab);
    }
    size_t share = BATCH / r.layout.dp;
    /* as many micro-batches as stages at least, where the full recipe has that */
    r.layout.micro_batch = base_max_size(1, base_min_size(recipe->layout.micro_batch, share / r.layout.pp));
    if (recipe->batch.leaf > 1 && r.layout.micro_batch > 1)
        r.layout.micro_batch = r.layout.micro_batch / 2 * 2;
    const size_t leaf = recipe->batch.leaf > 1 && r.layout.micro_batch > 1 ? 2 : 1;
    /* two rounds, where there are gradients enough for all ranks in each */
    const size_t lanes = recipe->batch.lanes ? base_max_size(BATCH / leaf / 2, r.layout.dp) : 0;
    r.batch = optim_batch_complete(&(optim_batch_t){.batch = BATCH, .leaf = leaf, .lanes = lanes});
    r.nodes = 1;
    r.per_node = r.layout.tp * r.layout.pp * r.layout.dp;
    r.accelerator[0] = '\0';
    r.optimizer.lr = 3e-3;
    r.optimizer.min_lr =
        recipe->optimizer.lr > 0.0 ? 3e-3 * recipe->optimizer.min_lr / recipe->optimizer.lr : 0.0;
    r.optimizer.warmup = recipe->optimizer.warmup ? WARM * BATCH : 0;
    r.optimizer.decay = recipe->optimizer.decay ? STEPS * BATCH : 0;
    r.optimizer.cooldown = recipe->optimizer.cooldown ? WARM * BATCH : 0;
    if (recipe->optimizer.ramp_start) {
        r.optimizer.ramp_start = r.optimizer.ramp_step = BATCH / 2;
        r.optimizer.ramp_over = WARM * BATCH;
    }
    return r;
}
