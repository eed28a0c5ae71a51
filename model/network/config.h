/* SPDX-License-Identifier: Apache-2.0 */
/* model/network/config.h: the shape of a decoder and the features that distinguish architectures.
 *
 * A field that is zero means what GPT-2 has; model_config_complete fills in what follows from others. Every
 * feature is an option of one block: GPT-2, OPT, BLOOM, GPT-NeoX, LLaMA, GLM, CodeGeeX, MT-NLG and a mixture
 * of experts are configurations, not programs. */
#ifndef MODEL_NETWORK_CONFIG_H
#define MODEL_NETWORK_CONFIG_H

#include <stddef.h>
#include <stdint.h>

#include <gyre/status.h>

#include "model/types.h"

/* Added under the root of latents' norms, whatever norm_eps is: as DeepSeek's code and `transformers` have
 * it. */
#define MODEL_LATENT_EPS 1e-6

typedef struct {
    size_t vocab;  /* V: tokens */
    size_t seq;    /* T: positions */
    size_t layers; /* L */
    size_t hidden; /* C: channels of the residual stream */
    size_t heads;  /* H */

    size_t kv_heads;  /* heads of k and v, divides heads; 0: heads (grouped-query attention: fewer) */
    size_t head_dim;  /* D; 0: hidden / heads */
    size_t value_dim; /* of v with kv_latent; 0, or without it: head_dim */
    /* Multi-head latent attention (DeepSeek-AI 2024, DeepSeek-V2, section 2.1): heads of keys and values are
     * products of the norm of so many channels, of which a layer has one set; 0: of the residual stream. The
     * last rotary_dim channels of each head turn; those of keys are the same in all heads. kv_heads is
     * heads. */
    size_t kv_latent;
    size_t q_latent; /* with kv_latent, the same of queries; 0: they are products of the residual stream */
    size_t ffn;      /* F: width of the MLP; 0: 4 hidden */

    /* G: fixed leaves of every sum and every cut of tensor parallelism, a power of two; heads, kv_heads, ffn
     * (experts) and the padded vocabulary are multiples of it. Or kv_heads divide it, and G / kv_heads leaves
     * share a head of k and v, of which each has a copy. Bits depend on it, and on no degree. 0: 1. */
    size_t leaves;
    size_t vocab_padded; /* V': rows of the embedding; 0: vocab rounded up to a multiple of leaves */

    model_pos_t pos;
    size_t pos_offset; /* learned positions begin at this row (OPT: 2) */
    size_t rotary_dim; /* of MODEL_POS_ROPE, even; 0: head_dim (GPT-NeoX-20B: a quarter) */
    model_rope_t rope;
    /* 1: pairs are neighbours (GPT-J, ChatGLM2); 0: halves (GPT-NeoX, LLaMA, GLM-130B) */
    int rope_interleaved;

    /* Position t sees itself and the window - 1 before it; 0: all before it. Of the model's layers the first
     * `window_from` see all, and of the others each window_every-th (counted from the first layer; 0: none):
     * Gemma 2 has 2, Gemma 3 has 6. */
    size_t window, window_from, window_every;
    /* Base of rotary positions in layers with a window, where nothing scales them; 0: `rope` (Gemma 3) */
    double local_theta;

    /* Each nope_every-th layer has no rotary positions (NoPE, Kazemnejad et al. 2023; SmolLM3 has 4); 0: all
     * have. */
    size_t nope_every;

    int sinks; /* a learned logit of each head in the sum of its softmax, which no value has (gpt-oss) */
    double query_scale; /* attention's scores are over the root of this; 0: head_dim (Gemma 2 has its own) */
    /* Scores of attention, and logits, become cap tanh(score / cap); 0: they do not (Gemma 2: 50, 30). */
    double attn_cap, logit_cap;

    model_norm_t norm;
    double norm_eps;  /* 0: 1e-5 */
    int post_norm;    /* 1: norm(alpha x + f(x)), with no final norm */
    int out_norm;     /* x + norm(f(x)): norms of what attention and MLP give, none in front (OLMo 2) */
    int both_norms;   /* RMSNorms in front of attention and MLP, and of what they give (Gemma 2) */
    double deepnorm;  /* alpha of post_norm (DeepNorm: (2 L)^0.5 as GLM-130B has it); 0: 1 */
    int embed_norm;   /* LayerNorm after the embedding (BLOOM) */
    int gain_plus_1;  /* RMSNorms multiply by 1 + their gain, which is 0 at first (Gemma) */
    int embed_scaled; /* token embeddings times sqrt(hidden), which is rounded as activations are (Gemma) */
    double embed_shrink; /* gradient of the token embedding is scaled by this (GLM-130B: 0.1); 0: 1 */

    model_act_t act;
    int gated; /* GeGLU, SwiGLU: act(x W_gate) * (x W_up) */
    /* With `gated` and MODEL_ACT_GELU_FAST: act(gate) (up + 1), with gates up to this, and up within +- this
     * (gpt-oss: 7); 0: not */
    double act_limit;
    int parallel; /* x + attention(norm1 x) + mlp(norm2 x) (GPT-NeoX) */
    int untied;   /* the head has a weight of its own */
    int no_qkv_bias, no_proj_bias, no_mlp_bias;
    int qk_norm;  /* RMSNorm of each head of q and k, with one gain for all heads, before they turn (Qwen3) */
    int qk_whole; /* with qk_norm: of all heads together, with a gain for each channel (OLMo 2) */
    int prefix;   /* the mask is open within a sequence's prefix (GLM) */
    int top_query; /* the last layer's queries come from a learned position embedding (CodeGeeX) */

    int fused_files; /* files have q, k and v in one tensor, and so gate and up (Phi-3) */
    int fused_gates; /* files have gate and up in one tensor (GLM-4) */

    size_t experts;  /* E; 0: a dense MLP */
    int router_bias; /* logits of experts have a bias (gpt-oss) */
    int expert_bias; /* so have both products of each expert */
    size_t top_k;    /* experts per token; 0: 2 */
    /* With experts: the first `dense_first` layers have an MLP instead, of width dense_ffn (0: ffn); all
     * others have next to their experts an MLP of width shared_ffn that each position sees (0: none). */
    size_t dense_first, dense_ffn, shared_ffn;
    /* The router (DeepSeek-AI 2024, DeepSeek-V3, section 2.1.2). Of `groups` equal groups of experts (0: 1)
     * only those in the best top_groups (0: all) are chosen from. A group is as good as its best expert. With
     * router_sigmoid scores are sigmoids instead of a softmax, and a bias of each expert is added to them
     * where experts are chosen, and nowhere else (training leaves it as it is); a group is then as good as
     * the sum of its best two. Weights are the scores of the chosen over their sum, or with raw_weights the
     * scores themselves; times routed_scale (0: 1). */
    size_t groups, top_groups;
    int router_sigmoid, raw_weights;
    double routed_scale;
    double capacity; /* slots per expert and sequence = ceil(capacity * top_k * T / E); 0: 1.25 */
    /* weight of the load-balancing loss (Switch, Fedus et al. 2021, eq. 4); 0: no such loss */
    double balance;
    /* Weights of z-losses, means over positions of the square of ln(sum of e^logit): of each router's logits
     * (ST-MoE, Zoph et al. 2022, eq. 5), and of the head's over the vocabulary (PaLM, Chowdhery et al. 2022,
     * section 5); 0: none. They are differentiated, and no part of the loss that is
     * reported. */
    double router_z, z_loss;
    double dropout;      /* probability, of embeddings and both residual branches; 0: no dropout */
    double attn_dropout; /* the same of attention's weights */
    double init_std;     /* deviation of matrices' initial values; 0: 0.02 sqrt(768 / hidden) */
} model_config_t;

/* Checks every extent and every divisibility. INVALID names the value. If another value of one field is
 * enough, it also names the nearest one: with it alone the configuration is accepted (if q, k and v have as
 * many heads, they keep as many). */
gyre_status_t model_config_check(const model_config_t *config);
/* The same without an error text: 1 or 0. */
int model_config_works(const model_config_t *config);
/* The same for a file, which the message names. */
gyre_status_t model_config_check_of(const model_config_t *config, const char *where);
/* Slots of each expert for each sequence: ceil(capacity top_k T / E), at least 1, at most T. 0 without
 * experts. */
size_t model_config_capacity(const model_config_t *config);
/* Leaves that share a head of keys and values; 1: none does. Of a complete configuration. */
size_t model_config_copies(const model_config_t *config);
/* Heads of keys and values with these copies: kv_heads, or one for each leaf. */
size_t model_config_key_heads(const model_config_t *config);
/* Of `tp` tensor-parallel ranks those that hold the same head of keys and values. */
size_t model_config_sharing(const model_config_t *config, size_t tp);
/* Attention's scores are over the root of this. */
double model_config_query_scale(const model_config_t *config);
/* 1: a layer with a window, which may be longer than a sequence. */
int model_config_is_local(const model_config_t *config, size_t layer);
/* Positions that one of layer `layer` sees at most, itself among them. 0: all before it, also where a window
 * is not shorter than a sequence. */
size_t model_config_window(const model_config_t *config, size_t layer);
/* 1: queries and keys of layer `layer` turn by their positions. */
int model_config_turns(const model_config_t *config, size_t layer);
/* 1: layer `layer` has experts. */
int model_config_is_sparse(const model_config_t *config, size_t layer);
/* The width of its MLP, which with experts is that of the shared one; 0: it has none. */
size_t model_config_mlp(const model_config_t *config, size_t layer);
/* Channels of a complete configuration's one product in front of q, k and v: latents of queries, latents of
 * keys and values, the part of keys that turns. 0 without kv_latent. */
size_t model_config_latents(const model_config_t *config);
/* `config` with zeros replaced by their meaning. */
model_config_t model_config_complete(const model_config_t *config);

#endif
