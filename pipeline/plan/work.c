/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/plan/work.c: counts operations and bytes of a layer, of the head and of a step. */
#include "pipeline/plan/work.h"

/* Elements that [m, k] x [k, n] reads and writes; the products of backward have the same three. */
static double product(double m, double k, double n)
{
    return m * k + k * n + m * n;
}

/* Elements of the products of one layer's forward on a rank. */
static double layer_products(const pipe_recipe_t *r)
{
    const model_config_t *c = &r->model;
    const double t = (double)r->layout.tp, m = (double)plan_tokens(r), h = (double)c->hidden;
    const double q = (double)(c->heads * c->head_dim) / t,
                 kv = (double)(model_config_key_heads(c) * c->head_dim) / t;
    const double up = (c->gated ? 2.0 : 1.0) * (double)c->ffn, down = (double)c->ffn;
    double sum = product(m, h, q + 2.0 * kv) + product(m, q, h);
    if (c->kv_latent > 0) {
        const double v = (double)(c->heads * c->value_dim) / t;
        const double plain = (double)(c->heads * (c->head_dim - c->rotary_dim)) / t;
        sum = product(m, h, (double)model_config_latents(c)) + product(m, v, h) +
              product(m, c->q_latent ? (double)c->q_latent : h, q) +
              product(m, (double)c->kv_latent, plain + v);
    }
    if (c->shared_ffn > 0)
        sum += product(m, h, (c->gated ? 2.0 : 1.0) * (double)c->shared_ffn / t) +
               product(m, (double)c->shared_ffn / t, h);
    if (c->experts == 0)
        return sum + product(m, h, up / t) + product(m, down / t, h);
    /* whole experts on each rank, which share the tokens' copies; with expert parallelism those of others */
    const double own = (double)c->experts / t / (double)pipe_layout_experts(&r->layout),
                 copies = m * (double)c->top_k / t / own;
    return sum + own * (product(copies, h, up) + product(copies, down, h));
}

/* Bytes per token of what is neither product nor attention, in one layer's forward: norms, sums of the
 * residual stream and dropout (sequence parallelism cuts them), rotations and the activation (tensor
 * parallelism cuts them). */
static double layer_rest(const pipe_recipe_t *r)
{
    const model_config_t *c = &r->model;
    const double e = (double)pipe_precision_bytes(r->precision.type), h = (double)c->hidden;
    const double t = (double)r->layout.tp, parts = r->layout.sequence ? t : 1.0;
    const double blocks = c->parallel ? 1.0 : 2.0;
    double whole = blocks * (2.0 * e * h + 3.0 * e * h + (c->dropout > 0.0 ? h : 0.0));
    double wide = (double)c->ffn * (c->experts ? (double)c->top_k : 1.0) + (double)c->shared_ffn;
    double cut = e * wide * (c->gated ? 3.0 : 2.0);
    if (c->pos == MODEL_POS_ROPE)
        cut += 2.0 * e * (double)((c->heads + model_config_key_heads(c)) * c->head_dim);
    return whole / parts + cut / t;
}

/* Bytes per token of attention's matrices of scores, where they are in memory: softmax reads and writes
 * them, so do dropout and the products; *back: in backward. Korthikanti et al. 2022, figure 3, has the
 * operations. */
static double scores(const pipe_recipe_t *r, double *back)
{
    const model_config_t *c = &r->model;
    const double e = (double)pipe_precision_bytes(r->precision.type), drop = c->attn_dropout > 0.0;
    const double each = (double)c->heads * (double)c->seq / (double)r->layout.tp;
    *back = each * (7.0 * e + drop * (2.0 * e + 1.0));
    return each * (4.0 * e + drop * (2.0 * e + 1.0));
}

/* What attention takes longer in a ring than its share of the products, in `again` + 3 passes over them. The
 * last rows' rank has 2 - 1 / c times the mean of each pass, and backward makes the weights twice: 7 products
 * for 5. */
static double ring_factor(const pipe_recipe_t *r, double again)
{
    const double c = (double)pipe_layout_context(&r->layout);
    return r->layout.ring && c > 1.0 ? (2.0 - 1.0 / c) * (again + 1.0 + 2.0 * 7.0 / 5.0) / (again + 3.0)
                                     : 1.0;
}

plan_work_t plan_work_layer(const pipe_recipe_t *r, const plan_base_t *base, const plan_software_t *software)
{
    const double t = (double)r->layout.tp, m = (double)plan_tokens(r), b = m / (double)r->model.seq;
    const double e = (double)pipe_precision_bytes(r->precision.type);
    const double full = r->recompute == MODEL_RECOMPUTE_FULL;
    /* a fused kernel's backward computes scores again by itself: its rate has that */
    const double again = full || (r->recompute == MODEL_RECOMPUTE_SELECTIVE && software->keeps);
    double back, forward = scores(r, &back);
    plan_work_t w = {
        .products = b * base->flops.matrix * (3.0 + full) / t,
        .attention = b * base->flops.attention * (3.0 + again) * ring_factor(r, again) / t,
        .bytes = (3.0 + full) * (e * layer_products(r) + m * layer_rest(r)),
    };
    if (software->moves)
        w.bytes += m * (forward * (1.0 + again) + back);
    return w;
}

/* The loss: logits are copied to fp32; their exponentials are summed; their gradient is written and copied
 * back. */
plan_work_t plan_work_head(const pipe_recipe_t *r, const plan_base_t *base)
{
    const double t = (double)r->layout.tp, m = (double)plan_tokens(r), v = (double)r->model.vocab_padded / t;
    const double e = (double)pipe_precision_bytes(r->precision.type);
    return (plan_work_t){
        .products = 3.0 * m / (double)r->model.seq * base->flops.head / t,
        .bytes = 3.0 * e * product(m, (double)r->model.hidden, v) + m * v * (2.0 * (e + 4.0) + 4.0 * 4.0),
    };
}

double plan_work_sum(const pipe_recipe_t *r, const plan_base_t *base, size_t parameters)
{
    return base->micro_batches > 1
               ? (double)parameters * 2.0 * (double)pipe_precision_bytes(r->precision.grad)
               : 0.0;
}

/* Gradients are read for their norm and for the step and set to zero; two moments and the master copy are
 * read and written; weights are written. */
double plan_work_update(const pipe_recipe_t *r, size_t parameters)
{
    const double shard =
        (double)parameters / (r->layout.zero >= 1 ? (double)pipe_layout_replicas(&r->layout) : 1.0);
    const double g = (double)pipe_precision_bytes(r->precision.grad);
    const double w =
        r->precision.type == MODEL_FLOAT32 ? 0.0 : (double)pipe_precision_bytes(r->precision.type);
    return shard * (3.0 * g + 24.0 + w);
}
