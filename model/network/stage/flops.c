/* SPDX-License-Identifier: Apache-2.0 */
/* model/network/stage/flops.c: counts the products of a step. */
#include "model/network/stage/flops.h"

model_flops_t model_flops(const model_config_t *config)
{
    const model_config_t c = model_config_complete(config);
    const double tokens = (double)c.seq, width = (double)c.hidden, heads = (double)(c.heads * c.head_dim);
    const double qkv = width * (double)((c.heads + 2 * c.kv_heads) * c.head_dim);
    double mlp = width * (double)c.ffn * (c.gated ? 3.0 : 2.0);
    if (c.experts > 0) /* each token meets top_k experts, and the router */
        mlp = mlp * (double)c.top_k + width * (double)c.experts;
    return (model_flops_t){
        .matrix = 2.0 * tokens * (qkv + heads * width + mlp),
        .attention = 4.0 * tokens * tokens * heads,
        .head = 2.0 * tokens * width * (double)c.vocab_padded,
    };
}

double model_flops_step(const model_flops_t *flops, double layers, int head, model_recompute_t redo)
{
    double layer = 3.0 * (flops->matrix + flops->attention);
    if (redo == MODEL_RECOMPUTE_FULL)
        layer += flops->matrix + flops->attention;
    else if (redo == MODEL_RECOMPUTE_SELECTIVE)
        layer += flops->attention;
    return layers * layer + (head ? 3.0 * flops->head : 0.0);
}
