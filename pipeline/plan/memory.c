/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/plan/memory.c: bytes per rank, by kind. */
#include <stdint.h>

#include "base/checked.h"
#include "pipeline/plan/estimate.h"
#include "pipeline/schedules/kinds.h"

void plan_base_layout(const pipe_recipe_t *recipe, plan_base_t *base)
{
    const pipe_layout_t *l = &recipe->layout;
    base->micro_batches = 0;
    for (size_t d = 0; d < l->dp; d++)
        base->micro_batches =
            base_max_size(base->micro_batches, pipe_layout_micro_batches(l, &recipe->batch, d));
    base->shape = pipe_layout_shape(l, base->micro_batches, 0);
}

gyre_status_t plan_base(const pipe_recipe_t *recipe, plan_base_t *out)
{
    plan_base_t base = {.flops = model_flops(&recipe->model)};
    gyre_status_t status = model_count(&recipe->model, &base.count);
    if (status != GYRE_OK)
        return status;
    plan_base_layout(recipe, &base);
    *out = base;
    return GYRE_OK;
}

model_holds_t plan_holds(const pipe_recipe_t *recipe, const plan_base_t *base, size_t rank)
{
    const pipe_layout_t *l = &recipe->layout;
    model_holds_t holds = {0};
    for (size_t c = 0; c < l->chunks; c++) {
        size_t stage = (size_t)pipe_stage_of(&base->shape, (int)rank, (int)c), first, count;
        pipe_layout_layers(l, recipe->model.layers, stage, &first, &count);
        holds.layers += count;
        if (first < base->count.dense_layers)
            holds.dense += base_min_size(count, base->count.dense_layers - first);
        holds.embed |= stage == 0;
        holds.head |= stage + 1 == pipe_layout_stages(l);
        holds.top |= count > 0 && first + count == recipe->model.layers;
    }
    return holds;
}

static size_t share(size_t bytes, size_t ranks)
{
    return (bytes + ranks - 1) / ranks;
}

static size_t times(size_t bytes, double x)
{
    const double product = x * (double)bytes;
    return product < 1e19 ? (size_t)product : SIZE_MAX;
}

size_t plan_tokens(const pipe_recipe_t *r)
{
    return r->layout.micro_batch * r->model.seq / pipe_layout_context(&r->layout);
}

/* Bytes per token of what tensor parallelism leaves whole (sequence parallelism cuts it) and of what it
 * cuts. */
static void layer_tensors(const pipe_recipe_t *r, size_t *whole, size_t *cut, size_t *scores)
{
    const model_config_t *c = &r->model;
    const size_t e = pipe_precision_bytes(r->precision.type), drop = c->dropout > 0.0;
    const size_t q = c->heads * c->head_dim, kv = model_config_key_heads(c) * c->head_dim,
                 matrices = c->gated ? 3 : 2;
    /* attention: input of the norm, input of q, k, v; dropout's mask. q, k, v, input of the projection. */
    *whole = (2 * e + drop) * c->hidden;
    *cut = e * (q + 2 * kv) + e * q;
    *whole += 2 * e * model_config_latents(c); /* in front of their norms, and after */
    /* the MLP: the same two inputs (a parallel block shares the first), mask; inputs of activation and
     * projection */
    *whole += ((c->parallel ? 1 : 2) * e + drop) * c->hidden;
    if (c->experts == 0)
        *cut += matrices * e * c->ffn;
    else { /* copies to the experts and back, their tensors, the router's probabilities */
        *cut += c->top_k * (matrices * e * c->ffn + 2 * e * c->hidden) + matrices * e * c->shared_ffn;
        *whole += 4 * c->experts;
    }
    /* softmax; with dropout its mask and what is left */
    *scores = (e + (c->attn_dropout > 0.0 ? 1 + e : 0)) * c->heads * c->seq;
}

static int keeps_scores(const plan_software_t *software, model_recompute_t recompute)
{
    return software->keeps && recompute == MODEL_RECOMPUTE_NONE;
}

/* Bytes that the layers keep for backward of one micro-batch: Korthikanti et al. 2022, equations 1 to 5, with
 * the terms of their section 4.1 taken one by one, so that other widths, gates, grouped queries, no
 * dropout and fp32 have theirs. */
static size_t layer_bytes(const pipe_recipe_t *r, const plan_software_t *software,
                          model_recompute_t recompute)
{
    const size_t t = r->layout.tp, n = plan_tokens(r), cuts = r->layout.sequence ? t : 1;
    if (recompute == MODEL_RECOMPUTE_FULL)
        return share(n * pipe_precision_bytes(r->precision.type) * r->model.hidden, cuts);
    size_t whole, cut, scores;
    layer_tensors(r, &whole, &cut, &scores);
    return share(n * whole, cuts) + share(n * (cut + (keeps_scores(software, recompute) ? scores : 0)), t);
}

/* What the layers of all chunks keep. Weight gradients that are put off need the inputs of all products, as
 * many bytes as selective recomputation keeps (Qi et al. 2023, table 1: 32 s b h per layer), with full
 * recomputation, too. */
static size_t kept_bytes(const pipe_recipe_t *r, const plan_base_t *base, const plan_software_t *software,
                         const plan_memory_t *m, size_t rank)
{
    const size_t each = layer_bytes(r, software, r->recompute),
                 left = (size_t)pipe_weight_bound(&base->shape, (int)rank);
    size_t bytes = m->in_flight * each;
    if (r->recompute == MODEL_RECOMPUTE_FULL)
        bytes += left * (layer_bytes(r, software, MODEL_RECOMPUTE_SELECTIVE) - each);
    /* chunks of a stage differ by a layer at most: in flight are as many of one as of another */
    return times(bytes * m->holds.layers / r->layout.chunks, software->kept);
}

/* What backward computes again of one layer at a time: a split one keeps all but scores for the weights. */
static size_t working_bytes(const pipe_recipe_t *r, const plan_software_t *software)
{
    const int splits = pipe_kind_splits(r->layout.schedule);
    return layer_bytes(r, software, MODEL_RECOMPUTE_NONE) -
           layer_bytes(r, software, splits ? MODEL_RECOMPUTE_SELECTIVE : r->recompute);
}

/* Of a layer's parameters nearly all are matrices, of which Muon has one moment. */
static void state_bytes(const pipe_recipe_t *r, const plan_base_t *base, plan_memory_t *m)
{
    const model_part_t layer = base->count.layer, dense = base->count.dense;
    /* experts have fewer replicas with expert parallelism, and a rank as much fewer of them: a shard is the
     * same */
    const size_t tp = r->layout.tp, ep = r->layout.zero >= 1 ? 1 : pipe_layout_experts(&r->layout);
    const size_t layers =
        (m->holds.layers - m->holds.dense) * (layer.whole + (layer.cut - base->count.experts) / tp) +
        m->holds.dense * (dense.whole + dense.cut / tp) +
        model_count_experts(&base->count, &m->holds, tp, ep);
    const size_t weight = pipe_precision_bytes(r->precision.type),
                 grad = pipe_precision_bytes(r->precision.grad);
    const size_t state = r->precision.type == MODEL_FLOAT32 ? 8 : 12; /* moments; a master copy of 16 bits */
    const size_t replicas = pipe_layout_replicas(&r->layout);
    m->shard = share(model_count_rank(&base->count, &m->holds, tp, 1), replicas);
    m->weights = weight * (r->layout.zero >= 3 ? m->shard : m->parameters);
    m->gradients = grad * (r->layout.zero >= 2 ? m->shard : m->parameters);
    m->optimizer = state * (r->layout.zero >= 1 ? m->shard : m->parameters);
    if (r->optimizer.muon)
        m->optimizer -= 4 * (r->layout.zero >= 1 ? layers / replicas : layers);
}

/* Micro-batches of a rank's first chunk in flight, of `all` pairs: where there are more chunks, those that go
 * through the first before one of them comes back (pipe_schedule_in_flight). */
static size_t first_in_flight(const pipe_shape_t *shape, size_t all)
{
    return shape->chunks > 1 ? (size_t)base_min_int(shape->micro_batches, 2 * shape->ranks) : all;
}

/* Embedding: the mask of its dropout, the input of a norm after it. Head: input of final norm and of the
 * product, logits in fp32 (Korthikanti et al. 2022, section 4.3) or what the software keeps of them. */
static size_t end_bytes(const pipe_recipe_t *r, const plan_base_t *base, const plan_software_t *software,
                        const model_holds_t *holds, size_t in_flight)
{
    const model_config_t *c = &r->model;
    const size_t e = pipe_precision_bytes(r->precision.type), cuts = r->layout.sequence ? r->layout.tp : 1;
    size_t bytes = 0;
    if (holds->embed)
        bytes += first_in_flight(&base->shape, in_flight) *
                 share(plan_tokens(r) * c->hidden * ((c->dropout > 0.0) + (c->embed_norm ? e : 0)), cuts);
    if (holds->head) {
        /* where all micro-batches go forward first, or the head's weight gradients are put off */
        size_t held = pipe_kind_row(r->layout.schedule)->holds_logits ? in_flight : 1;
        bytes += held * (share(plan_tokens(r) * c->hidden * 2 * e, cuts) +
                         share(times(plan_tokens(r) * c->vocab_padded, software->logit), r->layout.tp));
    }
    return bytes;
}

static size_t buffer_bytes(const pipe_recipe_t *r, const plan_base_t *base, const plan_memory_t *m,
                           size_t rank, size_t bucket)
{
    const pipe_layout_t *l = &r->layout;
    const size_t weight = pipe_precision_bytes(r->precision.type),
                 grad = pipe_precision_bytes(r->precision.grad);
    size_t bytes = 0;
    if (pipe_layout_replicas(l) > 1 && l->zero >= 2) /* a bucket that fills, and one under way */
        bytes += base_min_size(2 * bucket, grad * m->parameters);
    if (pipe_layout_replicas(l) > 1 && l->zero >= 3) { /* the layer that computes, and the next */
        size_t layer = base->count.layer.whole + (base->count.layer.cut - base->count.experts) / l->tp +
                       base->count.experts / (l->tp * pipe_layout_experts(l));
        size_t embed = base->count.embed.whole + base->count.embed.cut / l->tp;
        size_t largest = m->holds.embed || m->holds.head ? base_max_size(layer, embed) : layer;
        bytes += weight * base_min_size(largest + layer, m->parameters);
    }
    if (l->pp >
        /* received ahead, and two to send from, of activations and of gradients
         * (pipeline/schedules/program.h) */
        1) {
        size_t boundary = share(plan_tokens(r) * r->model.hidden * weight, l->sequence ? l->tp : 1);
        size_t lefts, rights; /* the chunks of a rank share the tensors of a side */
        plan_sides(r, base, rank, &lefts, &rights);
        bytes += boundary * 3 * ((lefts > 0 ? 1u : 0u) + (rights > 0 ? 1u : 0u));
    }
    return bytes;
}

void plan_memory(const pipe_recipe_t *r, const plan_base_t *base, size_t rank,
                 const plan_software_t *software, plan_memory_t *out)
{
    plan_memory_t m = {.holds = plan_holds(r, base, rank)};
    m.parameters = model_count_rank(&base->count, &m.holds, r->layout.tp, pipe_layout_experts(&r->layout));
    m.in_flight = (size_t)pipe_activation_bound(&base->shape, (int)rank);
    state_bytes(r, base, &m);
    m.activations = kept_bytes(r, base, software, &m, rank);
    m.ends = end_bytes(r, base, software, &m.holds, m.in_flight);
    if (r->recompute != MODEL_RECOMPUTE_NONE && m.holds.layers > 0)
        m.working = working_bytes(r, software);
    m.buffers = buffer_bytes(r, base, &m, rank, software->bucket) + software->extra * m.parameters +
                software->workspace;
    m.total = m.weights + m.gradients + m.optimizer + m.activations + m.ends + m.working + m.buffers;
    *out = m;
}

size_t plan_memory_worst(const pipe_recipe_t *r, const plan_base_t *base, const plan_software_t *software,
                         plan_memory_t *out)
{
    size_t worst = 0;
    for (size_t rank = 0; rank < r->layout.pp; rank++) {
        plan_memory_t m;
        plan_memory(r, base, rank, software, &m);
        if (rank == 0 || m.total > out->total) {
            *out = m;
            worst = rank;
        }
    }
    return worst;
}
