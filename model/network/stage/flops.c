/* SPDX-License-Identifier: Apache-2.0 */
/* model/network/stage/flops.c: counts the products of a step. */
#include "model/network/stage/flops.h"

model_flops_t model_flops(const model_config_t *config)
{
    const model_config_t c = model_config_complete(config);
    const double tokens = (double)c.seq, width = (double)c.hidden, queries = (double)(c.heads * c.head_dim),
                 values = (double)(c.heads * c.value_dim), matrices = c.gated ? 3.0 : 2.0;
    double qkv = width * (double)((c.heads + 2 * c.kv_heads) * c.head_dim);
    if (c.kv_latent > 0)
        qkv = width * (double)model_config_latents(&c) +
              (double)(c.q_latent ? c.q_latent : c.hidden) * queries +
              (double)c.kv_latent * ((double)(c.heads * (c.head_dim - c.rotary_dim)) + values);
    double mlp = width * (double)c.ffn * matrices;
    if (c.experts > 0) { /* each token meets top_k experts, those next to them, and the router */
        const double dense = (double)c.dense_first / (double)c.layers; /* the mean over layers */
        mlp = mlp * (double)c.top_k + width * (double)c.experts + width * (double)c.shared_ffn * matrices;
        mlp = (1.0 - dense) * mlp + dense * width * (double)c.dense_ffn * matrices;
    }
    return (model_flops_t){
        .matrix = 2.0 * tokens * (qkv + values * width + mlp),
        .attention = 2.0 * tokens * tokens * (queries + values),
        .head = 2.0 * tokens * width * (double)c.vocab_padded,
    };
}

double model_flops_step(const model_flops_t *flops, double layers, model_recompute_t redo)
{
    double layer = 3.0 * (flops->matrix + flops->attention);
    if (redo == MODEL_RECOMPUTE_FULL)
        layer += flops->matrix + flops->attention;
    else if (redo == MODEL_RECOMPUTE_SELECTIVE)
        layer += flops->attention;
    return layers * layer + 3.0 * flops->head;
}
