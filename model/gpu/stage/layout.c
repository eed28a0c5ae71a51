/* SPDX-License-Identifier: Apache-2.0 */
/* model/gpu/stage/layout.c: which stages the GPU can train, and what each tensor of them takes: all that
 * needs no device, so that it can be planned without one. */
#include <stdlib.h>

#include "base/checked.h"
#include "base/error.h"
#include "model/gpu/stage/internal.h"

/* ---- what the GPU can do ------------------------------------------------------------------------------- */

enum { MOST_LEAVES = 64 }; /* of model_join_leaves */

gyre_status_t stage_check(const model_config_t *c, const model_tp_t *tp, const model_stage_config_t *config)
{
    if (c->experts > 0 && c->top_k > MODEL_CHOICES)
        return gyre_fail(GYRE_ERR_UNSUPPORTED, "top_k %zu: a position has at most %d experts", c->top_k,
                         MODEL_CHOICES);
    if (model_config_copies(c) > 1)
        return gyre_fail(
            GYRE_ERR_UNSUPPORTED,
            "%zu leaves that share %zu heads of keys and values on the GPU: take --device cpu, or "
            "--leaves %zu",
            c->leaves, c->kv_heads, c->kv_heads);
    if (config->precision == MODEL_FLOAT16)
        return gyre_fail(
            GYRE_ERR_UNSUPPORTED,
            "fp16 is not supported on the GPU: take bf16, which needs no loss scale, or --device cpu");
    if (config->offload && config->recompute != MODEL_RECOMPUTE_FULL)
        return gyre_fail(GYRE_ERR_INVALID, "offload of activations needs full recomputation: then they are "
                                           "one tensor per layer, which travels during the layer's work");
    if (c->head_dim > MODEL_CUDA_HEAD_MAX)
        return gyre_fail(GYRE_ERR_UNSUPPORTED,
                         "heads of %zu channels on the GPU: at most %d; --device cpu has no limit",
                         c->head_dim, MODEL_CUDA_HEAD_MAX);
    for (size_t l = config->first; l < config->first + config->layers; l++)
        if (model_config_window(c, l) > 0)
            return gyre_fail(GYRE_ERR_UNSUPPORTED,
                             "a window of %zu positions on the GPU: take --seq %zu, or --device cpu",
                             c->window, c->window);
    if (c->kv_latent > 0 || c->dense_first > 0 || c->shared_ffn > 0 || c->router_sigmoid || c->groups > 1 ||
        c->raw_weights || c->routed_scale != 1.0)
        return gyre_fail(
            GYRE_ERR_UNSUPPORTED,
            "latent attention, shared experts, layers without experts, and a router of DeepSeek's "
            "kind on the GPU: take --device cpu");
    if (c->z_loss > 0.0 || c->router_z > 0.0)
        return gyre_fail(GYRE_ERR_UNSUPPORTED, "z-losses on the GPU: take --device cpu");
    if (c->local_theta > 0.0)
        return gyre_fail(GYRE_ERR_UNSUPPORTED,
                         "a rotary base of its own for layers with windows on the GPU: take --device cpu");
    if (c->qk_norm)
        return gyre_fail(GYRE_ERR_UNSUPPORTED, "norms of queries and keys on the GPU: take --device cpu");
    if (c->out_norm || c->both_norms)
        return gyre_fail(GYRE_ERR_UNSUPPORTED,
                         "norms of what attention and MLP give on the GPU: take --device cpu");
    if (c->gain_plus_1 || c->embed_scaled)
        return gyre_fail(GYRE_ERR_UNSUPPORTED,
                         "gains that 1 is added to, and scaled embeddings, on the GPU: take --device cpu");
    if (c->attn_cap > 0.0 || c->logit_cap > 0.0 || model_config_query_scale(c) != (double)c->head_dim)
        return gyre_fail(GYRE_ERR_UNSUPPORTED,
                         "soft caps, and a scale of queries of its own, on the GPU: take --device cpu");
    if (c->sinks || c->act_limit > 0.0 || c->router_bias || c->expert_bias)
        return gyre_fail(GYRE_ERR_UNSUPPORTED, "sinks, limits of gates, and biases of routers and experts "
                                               "(gpt-oss) on the GPU: take --device cpu");
    if (c->leaves > MOST_LEAVES)
        return gyre_fail(GYRE_ERR_UNSUPPORTED, "%zu leaves on the GPU: at most %d", c->leaves, MOST_LEAVES);
    if (c->leaves == 0 || tp->size < 1 || tp->rank >= tp->size || c->leaves % tp->size != 0)
        return gyre_fail(GYRE_ERR_INVALID,
                         "tensor parallelism of %zu (rank %zu) does not divide the %zu leaves that sums "
                         "have: take a power of two up "
                         "to %zu, or more leaves",
                         tp->size, tp->rank, c->leaves, c->leaves);
    if (tp->size > 1 && tp->sequence && c->seq % tp->size != 0)
        return gyre_fail(
            GYRE_ERR_INVALID,
            "sequence parallelism over %zu ranks does not divide seq %zu: take seq %zu, or go without",
            tp->size, c->seq, (c->seq / tp->size + 1) * tp->size);
    if (config->first + config->layers > c->layers || config->slots < 1 ||
        (config->embed && config->first != 0) ||
        (config->head && config->first + config->layers != c->layers))
        return gyre_fail(GYRE_ERR_INVALID,
                         "a stage of layers %zu..%zu of %zu with %zu slots: only the first layer has the "
                         "embedding before it, and only the last the head after it",
                         config->first, config->first + config->layers, c->layers, config->slots);
    return GYRE_OK;
}

/* ---- memory -------------------------------------------------------------------------------------------- */

void stage_measure(stage_t *s)
{
    const model_config_t *c = &s->c;
    s->config.together = base_max_size(1, s->config.together);
    s->config.grad_sequences = base_max_size(1, s->config.grad_sequences);
    s->config.slots = (s->config.slots + s->config.together - 1) / s->config.together;
    s->tp.sequence = s->tp.sequence && s->tp.size > 1;
    s->type = s->config.precision == MODEL_BFLOAT16 ? MODEL_CUDA_BF16 : MODEL_CUDA_F32;
    s->size = s->type == MODEL_CUDA_BF16 ? sizeof(uint16_t) : sizeof(float);
    s->g = c->leaves / s->tp.size;
    s->here = s->tp.sequence ? c->seq / s->tp.size : c->seq;
    s->begin = s->tp.sequence ? s->tp.rank * s->here : 0;
    s->leaf_heads = c->heads / c->leaves;
    s->leaf_kv = c->kv_heads / c->leaves;
    s->leaf_qkv = (s->leaf_heads + 2 * s->leaf_kv) * c->head_dim;
    s->leaf_attn = s->leaf_heads * c->head_dim;
    s->leaf_ffn = c->ffn / c->leaves;
    s->leaf_fc = c->gated ? 2 * s->leaf_ffn : s->leaf_ffn;
    s->leaf_vocab = c->vocab_padded / c->leaves;
    s->experts_here = c->experts / s->tp.size;
    s->cap = model_config_capacity(c);
    s->logit_ld = (s->leaf_vocab + LOGIT_ALIGN - 1) / LOGIT_ALIGN * LOGIT_ALIGN;
}

/* [a, b, c] elements of `size` bytes; an address only once the pool has its memory. */
static void *take(pool_t *pool, size_t size, size_t a, size_t b, size_t c)
{
    void *p = pool->base ? pool->base + pool->used : NULL;
    pool->used = base_round_up(pool->used + a * b * c * size, 256);
    return p;
}

/* Buffers of a layer's experts, as take_layer. */
static void take_experts(stage_t *s, layer_t *a, int mine)
{
    pool_t *pool = mine ? &s->kept : &s->work;
    size_t B = s->config.together, T = s->c.seq, C = s->c.hidden, E = s->c.experts, k = s->c.top_k;
    size_t S = s->experts_here * s->cap, f = s->c.ffn, wide = s->c.gated ? 2 * f : f, word = sizeof(int32_t);
    int split = s->config.split, full = s->config.recompute == MODEL_RECOMPUTE_FULL;
#define TAKE(when, field, size, n0, n1, n2) \
    if ((when) == mine)                     \
    a->field = take(pool, size, n0, n1, n2)
    TAKE(!full, prob, sizeof(float), B, T, E);
    TAKE(!full, share, sizeof(float), B, T, k);
    TAKE(!full, choice, word, B, T, k);
    TAKE(!full, place, word, B, T, k);
    TAKE(!full, owner, word, B, S, 1);
    TAKE(!full, fc, s->size, B, S, wide);
    TAKE(!full, ye, s->size, B, S, C);
    TAKE(!full || split, xe, s->size, B, S, C);
    TAKE(!full || split, act, s->size, B, S, f);
    TAKE(split, d_ye, s->size, B, S, C);
    TAKE(split, d_fc, s->size, B, S, wide);
    TAKE(split, d_router, s->size, B, T, MODEL_CUDA_PARTS(s->type) * E);
}

/* Buffers of a layer: those that each slot keeps (mine), or those that all share. */
static void take_layer(stage_t *s, layer_t *a, int mine)
{
    pool_t *pool = mine ? &s->kept : &s->work;
    size_t B = s->config.together, T = s->c.seq, C = s->c.hidden, R = s->here, g = s->g, f4 = sizeof(float);
    int split = s->config.split, full = s->config.recompute == MODEL_RECOMPUTE_FULL, post = s->c.post_norm;
    TAKE(s->config.offload ? -1 : 1, x, s->size, B, R, C); /* else it has a place in the ring */
    if (s->c.norm != MODEL_NORM_RMS) {
        TAKE(!full, mean1, f4, B, R, 1);
        TAKE(!full || post, mean2, f4, B, R, 1);
    }
    TAKE(!full, rstd1, f4, B, R, 1);
    TAKE(!full || post, rstd2, f4, B, R, 1); /* the norm after the MLP is not computed again */
    if (post)
        TAKE(1, post, s->size, B, R, C);
    TAKE(!full || split, ln1, s->size, B, T, C);
    TAKE(!full, qkv, s->size, B, T, g * s->leaf_qkv);
    TAKE(!full, lse, f4, B, T, g * s->leaf_heads);
    TAKE(!full || split, attn, s->size, B, T, g * s->leaf_attn);
    TAKE(!full, x2, s->size, B, R, C);
    TAKE(!full || split, ln2, s->size, B, T, C);
    if (s->c.experts > 0) {
        take_experts(s, a, mine);
    } else {
        TAKE(!full, fc, s->size, B, T, g * s->leaf_fc);
        TAKE(!full || split, act, s->size, B, T, g * s->leaf_ffn);
        TAKE(split, d_fc, s->size, B, T, g * s->leaf_fc);
    }
    if (split || s->tp.sequence || s->c.dropout > 0.0 || s->c.parallel) {
        TAKE(split, d_proj, s->size, B, T, C);
        TAKE(split, d_out, s->size, B, T, C);
    }
    TAKE(split, d_qkv, s->size, B, T, g * s->leaf_qkv);
    TAKE(split, sums, f4, B, MODEL_SUMS, C);
#undef TAKE
}

size_t stage_lay_input(const stage_t *s, input_t *in, char *base)
{
    pool_t pool = {.base = base};
    size_t B = s->config.together, T = s->c.seq;
    *in = (input_t){.tokens = take(&pool, sizeof(int32_t), B, T, 1),
                    .targets = take(&pool, sizeof(int32_t), B, T, 1),
                    .segments = take(&pool, sizeof(int32_t), B, T, 1),
                    .positions = take(&pool, sizeof(int32_t), B, T, 1),
                    .prefix = take(&pool, sizeof(uint32_t), B, 1, 1),
                    .keys = take(&pool, sizeof(uint32_t), B, 4, 1),
                    .weight_keys = take(&pool, sizeof(uint32_t), s->config.layers + 1, B, 4)};
    return pool.used;
}

static int has_top_query(const stage_t *s)
{
    return s->c.top_query && s->config.first + s->config.layers == s->c.layers;
}

/* `shared`, `work`: what slots have together; without split backward also gradients of the embedding's sum
 * and of top_query. */
static void take_slot(stage_t *s, slot_t *slot, const layer_t *shared, const slot_t *work)
{
    size_t B = s->config.together, T = s->c.seq, C = s->c.hidden, R = s->here, f4 = sizeof(float);
    size_t E = s->c.experts;
    if (E > 0) {
        slot->chosen = take(&s->kept, sizeof(int32_t), s->config.layers, B, E);
        slot->mass = take(&s->kept, f4, s->config.layers, B, E);
    }
    for (size_t l = 0; l < s->config.layers; l++) {
        slot->layer[l] = *shared;
        take_layer(s, &slot->layer[l], 1);
        if (s->kept.base && E > 0) {
            slot->layer[l].chosen = slot->chosen + l * B * E;
            slot->layer[l].mass = slot->mass + l * B * E;
        }
        if (s->config.offload)
            slot->layer[l].x = s->offload.ring[l % 2];
    }
    stage_lay_input(s, &slot->device, take(&s->kept, 1, s->input_bytes, 1, 1));
    if (s->config.head) {
        slot->x_out = take(&s->kept, s->size, B, R, C);
        slot->lnf = take(&s->kept, s->size, B, T, C);
        slot->meanf = s->c.norm == MODEL_NORM_RMS ? NULL : take(&s->kept, f4, B, R, 1);
        slot->rstdf = take(&s->kept, f4, B, R, 1);
        slot->logits =
            take(&s->kept, s->g * s->logit_ld, base_max_size(B * T * s->size, LOGIT_ROWS * f4), 1, 1);
        slot->max = take(&s->kept, f4, B, T, 1);
        slot->pair = take(&s->kept, f4, 2, B, T);
        slot->sums_head = take(&s->kept, f4, B, 2, C);
    }
    if (has_top_query(s))
        slot->d_wqe = s->config.split ? take(&s->kept, f4, B, T, C) : work->d_wqe;
    if (s->config.embed && s->c.embed_norm) {
        slot->x_embed = take(&s->kept, s->size, B, R, C);
        slot->meane = take(&s->kept, f4, B, R, 1);
        slot->rstde = take(&s->kept, f4, B, R, 1);
        slot->sums_embed = take(&s->kept, f4, B, 2, C);
    }
    if (s->config.embed)
        slot->d_embed = s->config.split ? take(&s->kept, s->size, B, T, C) : work->d_embed;
}

static void take_work(stage_t *s)
{
    size_t B = s->config.together, T = s->c.seq, C = s->c.hidden, R = s->here, f4 = sizeof(float);
    pool_t *w = &s->work;
    s->part =
        take(w, f4, B, base_max_size(s->g * T, model_cuda_pieces(T, s->c.leaves) * MODEL_CUDA_SUMMED), C);
    s->whole = s->tp.size > 1 ? take(w, f4, B, T, C) : NULL;
    s->shard = s->tp.sequence ? take(w, f4, B, R, C) : NULL;
    s->d_norm = take(w, s->size, B, R, C);
    for (size_t i = 0; i < 2; i++) {
        s->d_x[i] = take(w, s->size, B, R, C);
        s->mid[i] = take(w, s->size, B, R, C);
        s->offload.ring[i] = s->config.offload ? take(w, s->size, B, R, C) : NULL;
    }
    s->d_attn = take(w, s->size, B, T, s->g * s->leaf_attn);
    if (s->c.experts > 0) {
        size_t S = s->experts_here * s->cap;
        s->d_act = s->c.gated ? take(w, s->size, B, S, s->c.ffn) : NULL;
        s->d_xe = take(w, s->size, B, S, C);
        s->d_share = take(w, f4, B, T, s->c.top_k);
        s->routed = take(w, sizeof *s->routed, B, s->config.layers, 1);
    } else {
        s->d_act = s->c.gated ? take(w, s->size, B, T, s->g * s->leaf_ffn) : NULL;
    }
    s->delta = take(w, f4, B, T, s->g * s->leaf_heads);
    s->turn = s->c.pos == MODEL_POS_ROPE ? take(w, f4, T, s->c.rotary_dim, 1) : NULL;
    s->slopes = s->c.pos == MODEL_POS_ALIBI ? take(w, f4, s->g, s->leaf_heads, 1) : NULL;
    if (s->config.head) {
        s->leaf_loss = take(w, f4, 2 * s->g, B, T);
        s->loss = take(w, sizeof(double), B, 1, 1);
        s->rows = s->tp.size > 1 ? take(w, f4, s->c.leaves, LOGIT_ROWS, s->logit_ld) : NULL;
    }
}

void stage_lay_out(stage_t *s)
{
    layer_t shared = {0};
    slot_t work = {0};
    size_t B = s->config.together, T = s->c.seq, C = s->c.hidden;
    s->kept.used = s->work.used = 0;
    take_work(s);
    take_layer(s, &shared, 0);
    if (has_top_query(s) && !s->config.split)
        work.d_wqe = take(&s->work, sizeof(float), B, T, C);
    if (s->config.embed && !s->config.split)
        work.d_embed = take(&s->work, s->size, B, T, C);
    for (size_t i = 0; i < s->config.slots; i++)
        take_slot(s, &s->slot[i], &shared, &work);
}

/* The largest of them has a few products of extents below 2^20 each: two factors do not overflow, three
 * could. */
int stage_countable(const stage_t *s)
{
    size_t wide =
               base_max_size(base_max_size(s->logit_ld, s->leaf_fc), base_max_size(s->leaf_qkv, s->c.hidden)),
           n;
    if (s->c.experts > 0) { /* int32_t numbers the slots and a sequence's choices */
        wide = base_max_size(wide, base_max_size(2 * s->c.ffn, s->c.experts));
        if (!base_mul(s->config.together * s->experts_here, s->cap, &n) || n > INT32_MAX ||
            s->c.seq * s->c.top_k > INT32_MAX)
            return 0;
    }
    return base_mul(s->config.together * s->c.seq, base_max_size(s->g, s->experts_here), &n) &&
           base_mul(n, wide, &n) && base_mul(n, 64 * (s->config.layers + 1), &n) &&
           base_mul(n, s->config.slots, &n);
}

/* ---- the plan ------------------------------------------------------------------------------------------ */

static gyre_status_t plan(stage_t *s)
{
    input_t in;
    stage_measure(s);
    if (!stage_countable(s))
        return gyre_fail(GYRE_ERR_OVERFLOW, "the activations of %zu layers are more than can be counted",
                         s->config.layers);
    s->slot = calloc(s->config.slots, sizeof *s->slot);
    for (size_t i = 0; s->slot && i < s->config.slots; i++)
        if (!(s->slot[i].layer = calloc(s->config.layers + 1, sizeof *s->slot[i].layer)))
            return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a plan of %zu layers", s->config.layers);
    if (!s->slot)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a plan of %zu micro-batches", s->config.slots);
    s->input_bytes = stage_lay_input(s, &in, NULL);
    stage_lay_out(s);
    return GYRE_OK;
}

gyre_status_t model_cuda_stage_plan(const model_config_t *model, const model_tp_t *tp,
                                    const model_stage_config_t *config, size_t *kept, size_t *workspace,
                                    size_t *boundary)
{
    gyre_status_t status = stage_check(model, tp, config);
    stage_t *s = calloc(1, sizeof *s);
    if (status == GYRE_OK && !s)
        status = gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a plan");
    if (status == GYRE_OK) {
        s->c = *model;
        s->config = *config;
        s->tp = *tp;
        status = plan(s);
    }
    if (status == GYRE_OK) {
        *kept = s->kept.used;
        *workspace = s->work.used;
        *boundary = s->here * s->c.hidden;
    }
    for (size_t i = 0; s && s->slot && i < s->config.slots; i++)
        free(s->slot[i].layer);
    if (s)
        free(s->slot);
    free(s);
    return status;
}
