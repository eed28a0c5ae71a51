/* SPDX-License-Identifier: Apache-2.0 */
/* model/gpu/stage/experts.c: a mixture of experts instead of the MLP (model/network/stage/moe.inc), on the
 * GPU.
 *
 * Experts are leaves: each rank of the tensor-parallel group owns E / t of them. Every rank has all positions
 * before an MLP, with sequence parallelism, too, after a gather. So each rank routes all of them, alike, and
 * takes the rows of its own experts. The result is a sum over leaves like that of any row-parallel product.
 * Sending rows to their owners, as the CPU does with sequence parallelism, would need counts on the host, or
 * as much padding as gathering costs. */
#ifdef GYRE_CUDA
#include <gyre/cuda.h>

#include "model/gpu/stage/runtime.h"

static model_cuda_routing_t routing_of(const stage_t *s, size_t n, const layer_t *a)
{
    return (model_cuda_routing_t){.sequences = n,
                                  .T = s->c.seq,
                                  .experts = s->c.experts,
                                  .top_k = s->c.top_k,
                                  .cap = s->cap,
                                  .first = s->tp.rank * s->experts_here,
                                  .here = s->experts_here,
                                  .leaf_experts = s->c.experts / s->c.leaves,
                                  .prob = a->prob,
                                  .share = a->share,
                                  .choice = a->choice,
                                  .place = a->place,
                                  .owner = a->owner,
                                  .chosen = a->chosen,
                                  .mass = a->mass};
}

/* y S [e][n][cap,N] = x S [e][n][cap,K] times each expert's w [K,N], or [N,K] if trans. */
static model_cuda_product_t by_experts(const stage_t *s, size_t n, size_t N, size_t K, int trans)
{
    size_t M = n * s->cap;
    return (model_cuda_product_t){.trans_b = trans,
                                  .M = M,
                                  .N = N,
                                  .K = K,
                                  .lda = K,
                                  .ldb = trans ? K : N,
                                  .ldd = N,
                                  .batch = s->experts_here,
                                  .step_a = M * K,
                                  .step_b = K * N,
                                  .step_d = M * N,
                                  .alpha = 1,
                                  .in = s->type,
                                  .out = s->type};
}

/* dw [e][M,N] = x^T d of the sequences that have one gradient, from j on, x S [e][n][cap,M], d S
 * [e][n][cap,N]. */
static void expert_weight(stage_t *s, size_t n, size_t j, float *dw, const void *x, const void *d, size_t M,
                          size_t N)
{
    size_t rows = n * s->cap;
    const model_cuda_product_t p = {.trans_a = 1,
                                    .M = M,
                                    .N = N,
                                    .K = s->config.grad_sequences * s->cap,
                                    .lda = M,
                                    .ldb = N,
                                    .ldd = N,
                                    .batch = s->experts_here,
                                    .step_a = rows * M,
                                    .step_b = rows * N,
                                    .step_d = M * N,
                                    .alpha = 1,
                                    .in = s->type,
                                    .out = MODEL_CUDA_F32};
    stage_multiply(s, &p, stage_at(s, x, j * s->cap * M), stage_at(s, d, j * s->cap * N), dw);
}

/* ---- forward ------------------------------------------------------------------------------------------- */

static void route(stage_t *s, size_t n, const layer_t *a)
{
    size_t C = s->c.hidden, E = s->c.experts;
    const model_cuda_routing_t r = routing_of(s, n, a);
    const model_cuda_product_t p = {.M = n * s->c.seq,
                                    .N = E,
                                    .K = C,
                                    .lda = C,
                                    .ldb = E,
                                    .ldd = E,
                                    .alpha = 1,
                                    .in = s->type,
                                    .out = MODEL_CUDA_F32};
    stage_multiply(s, &p, a->ln2, W(ROUTER_W), a->prob);
    if (s->status == GYRE_OK)
        s->status = model_cuda_route(&r, s->stream);
    if (s->status == GYRE_OK)
        s->status = model_cuda_assign(&r, s->stream);
    if (s->status == GYRE_OK)
        s->status = model_cuda_fill_slots(s->type, &r, C, a->xe, a->ln2, s->stream);
}

void stage_experts_inner(stage_t *s, size_t n, const layer_t *a)
{
    size_t C = s->c.hidden, f = s->c.ffn, wide = s->c.gated ? 2 * f : f;
    route(s, n, a);
    model_cuda_product_t p = by_experts(s, n, wide, C, 0);
    if (!s->c.gated) {
        p.epilogue = MODEL_CUDA_ACT;
        p.act = s->c.act;
        p.pre = a->fc;
        p.ldpre = wide;
        p.step_pre = p.step_d;
    }
    stage_multiply(s, &p, a->xe, W(EXPERT_FC_W), s->c.gated ? a->fc : a->act);
    if (s->c.gated && s->status == GYRE_OK)
        s->status =
            model_cuda_gated(s->type, s->c.act, a->act, a->fc, s->experts_here * n * s->cap, f, s->stream);
    p = by_experts(s, n, C, f, 0);
    stage_multiply(s, &p, a->act, W(EXPERT_PROJ_W), a->ye);
}

/* The sum over experts of their rows in slots S [e][n][cap,C]: of this rank's positions, [n][R,C]. */
static const float *collect(stage_t *s, size_t n, const layer_t *a, const void *slots, int weighted)
{
    const model_cuda_routing_t r = routing_of(s, n, a);
    float *sum = s->tp.size > 1 ? s->whole : s->part;
    if (s->status == GYRE_OK)
        s->status = model_cuda_join_slots(s->type, &r, s->c.hidden, sum, slots, weighted, s->stream);
    return s->tp.size > 1 ? stage_reduce(s, n) : sum;
}

const float *stage_experts_sum(stage_t *s, size_t n, const layer_t *a)
{
    return collect(s, n, a, a->ye, 1);
}

/* ---- backward ------------------------------------------------------------------------------------------ */

/* a->d_ye of dy S [n][T,C], and s->d_share. */
static void share_back(stage_t *s, size_t n, const layer_t *a, const void *dy)
{
    const model_cuda_routing_t r = routing_of(s, n, a);
    size_t count = n * s->c.seq * s->c.top_k;
    if (s->status == GYRE_OK)
        stage_call(s, cudaMemsetAsync(s->d_share, 0, count * sizeof(float), s->stream), "clearing gradients");
    if (s->status == GYRE_OK)
        s->status =
            model_cuda_slots_back(s->type, &r, s->c.hidden, a->d_ye, s->d_share, a->ye, dy, s->stream);
    if (s->tp.size == 1 || s->status != GYRE_OK)
        return;
    s->traffic.sums += count;
    s->status = gyre_all_reduce_stream(s->d_share, s->d_share, count, GYRE_FLOAT32, GYRE_OP(GYRE_SUM),
                                       s->tp.comm, s->stream);
}

/* s->d_norm: of the sum over experts, and what goes through the router. */
static void router_back(stage_t *s, size_t n, const layer_t *a, const float *sum)
{
    const model_cuda_routing_t r = routing_of(s, n, a);
    double balance = (double)s->scale * s->c.balance * (double)s->c.experts;
    if (s->status == GYRE_OK)
        s->status = model_cuda_route_back(s->type, &r, balance, a->d_router, s->d_share, s->stream);
    if (s->status == GYRE_OK)
        s->status = model_cuda_router_input(s->type, &r, s->c.hidden, s->here, s->begin, s->d_norm, sum,
                                            a->d_router, W(ROUTER_W), s->stream);
}

void stage_experts_backward(stage_t *s, size_t n, const layer_t *a, const void *dy)
{
    size_t C = s->c.hidden, f = s->c.ffn, wide = s->c.gated ? 2 * f : f;
    share_back(s, n, a, dy);
    model_cuda_product_t p = by_experts(s, n, f, C, 1);
    if (!s->c.gated) {
        p.epilogue = MODEL_CUDA_ACT_BACK;
        p.act = s->c.act;
        p.pre = a->fc;
        p.ldpre = f;
        p.step_pre = p.step_d;
    }
    stage_multiply(s, &p, a->d_ye, W(EXPERT_PROJ_W), s->c.gated ? s->d_act : a->d_fc);
    if (s->c.gated && s->status == GYRE_OK)
        s->status = model_cuda_gated_back(s->type, s->c.act, a->d_fc, s->d_act, a->fc,
                                          s->experts_here * n * s->cap, f, s->stream);
    p = by_experts(s, n, C, wide, 1);
    stage_multiply(s, &p, a->d_fc, W(EXPERT_FC_W), s->d_xe);
    router_back(s, n, a, collect(s, n, a, s->d_xe, 0));
}

void stage_experts_weights(stage_t *s, size_t n, const layer_t *a, size_t j)
{
    size_t C = s->c.hidden, f = s->c.ffn, T = s->c.seq, E = s->c.experts, parts = MODEL_CUDA_PARTS(s->type);
    expert_weight(s, n, j, D(EXPERT_PROJ_W), a->act, a->d_ye, f, C);
    expert_weight(s, n, j, D(EXPERT_FC_W), a->xe, a->d_fc, C, s->c.gated ? 2 * f : f);
    for (size_t i = 0; i < parts; i++) {
        const model_cuda_product_t p = {.trans_a = 1,
                                        .M = C,
                                        .N = E,
                                        .K = s->config.grad_sequences * T,
                                        .lda = C,
                                        .ldb = parts * E,
                                        .ldd = E,
                                        .alpha = 1,
                                        .beta = i > 0 ? 1.0f : 0.0f,
                                        .in = s->type,
                                        .out = MODEL_CUDA_F32};
        stage_multiply(s, &p, stage_at(s, a->ln2, j * T * C),
                       stage_at(s, a->d_router, (j * T * parts + i) * E), D(ROUTER_W));
    }
}

/* ---- statistics --------------------------------------------------------------------------------------- */

void stage_experts_routed(stage_t *s, const slot_t *slot, model_routed_t *out)
{
    size_t count = slot->n * s->config.layers;
    if (s->status == GYRE_OK)
        s->status =
            model_cuda_routed(s->routed, slot->chosen, slot->mass, s->config.layers, s->config.together,
                              slot->n, s->c.seq, s->c.experts, s->cap, s->c.balance, s->stream);
    stage_copy(s, out, s->routed, count * sizeof *out);
}
#else
#include "model/gpu/stage/stage.h" /* a build without CUDA has nothing of it */
#endif
