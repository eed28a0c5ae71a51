/* SPDX-License-Identifier: Apache-2.0 */
/* model/network/decode/latent.c: queries, keys and values of latent attention. The arithmetic is that of
 * stage/latent.inc; read it next to that. The cache keeps whole heads, as for other models. */
#include <string.h>

#include "model/network/decode/internal.h"

/* d->latent [n,latents] of `in` [n,C]. */
static void find_latents(const model_decoder_t *d, const float *in, size_t n)
{
    const size_t C = d->c.hidden, all = d->latents, ql = d->c.q_latent;
    const float eps = (float)MODEL_LATENT_EPS;
    model_order_rows(d->order[OF_LATENT], n, d->at, all, C, in, C, W(LATENT_W), all, d->latent, all);
    model_decoder_keep(d, d->latent, n * all);
    if (ql > 0)
        d->k->head_norm(d->latent, NULL, NULL, W(Q_NORM_W), n, all, 1, ql, eps);
    d->k->head_norm(d->latent + ql, NULL, NULL, W(K_NORM_W), n, all, 1, d->c.kv_latent, eps);
    model_decoder_keep(d, d->latent, n * all);
}

/* Row i of a leaf: its keys and values from d->up [N,leaf_up] and d->latent. */
static void place_heads(const model_decoder_t *d, float *row, size_t i)
{
    const size_t D = d->c.head_dim, V = d->c.value_dim, R = d->c.rotary_dim, plain = D - R;
    const float *up = d->up + i * d->up_width, *turning = d->latent + (i + 1) * d->latents - R;
    float *key = row + d->heads * D, *value = key + d->kv * D;
    for (size_t h = 0; h < d->kv; h++, up += plain + V, key += D, value += V) {
        memcpy(key, up, plain * sizeof *key);
        memcpy(key + plain, turning, R * sizeof *key);
        memcpy(value, up + plain, V * sizeof *value);
    }
}

void model_decoder_latents(const model_decoder_t *d, const float *in, size_t n)
{
    const size_t C = d->c.hidden, ql = d->c.q_latent, kl = d->c.kv_latent, q = d->heads * d->c.head_dim,
                 K = ql ? ql : C, ld = ql ? d->latents : C, up = d->up_width;
    find_latents(d, in, n);
    for (size_t leaf = 0; leaf < d->g; leaf++) {
        float *project = d->project + leaf * d->config.rows * d->qkv;
        model_order_rows(d->order[OF_QUERIES], n, d->at, q, K, ql ? d->latent : in, ld,
                         W(Q_UP_W) + leaf * K * q, q, project, d->qkv);
        model_order_rows(d->order[OF_KEYS_VALUES], n, d->at, up, kl, d->latent + ql, d->latents,
                         W(KV_UP_W) + leaf * kl * up, up, d->up, up);
        for (size_t i = 0; i < n; i++)
            place_heads(d, project + i * d->qkv, i);
        model_decoder_keep(d, project, n * d->qkv);
    }
}
