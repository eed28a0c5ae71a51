/* SPDX-License-Identifier: Apache-2.0 */
/* model/network/names.c: the names of every family, and the positions of a file's elements in a row. */
#include "model/network/names.h"

#include <stdio.h>
#include <string.h>

typedef struct {
    const char *layer;             /* in front of a layer's names */
    const char *name[MODEL_KINDS]; /* of the whole row; NULL: the family has no such row */
    const char *qkv[3];            /* where they are apart, without .weight */
    const char *gate_up[2];
    const char *expert[3];        /* gate, up, down of expert %zu */
    const char *shared[4];        /* of the MLP next to experts: the whole first row, gate, up, down */
    const char *latent[2];        /* of queries; of keys and values */
    int turned, by_head, stacked; /* stacked: experts are a dimension of their tensors, none is turned */
} names_t;

#define GENERIC                                                                                              \
    [MODEL_MLP_PROJ_W] = "mlp.c_proj.weight", [MODEL_MLP_PROJ_B] = "mlp.c_proj.bias",                        \
    [MODEL_MLP_FC_W] = "mlp.c_fc.weight", [MODEL_MLP_FC_B] = "mlp.c_fc.bias", [MODEL_LN2_W] = "ln_2.weight", \
    [MODEL_LN2_B] = "ln_2.bias", [MODEL_ATTN_PROJ_W] = "attn.c_proj.weight",                                 \
    [MODEL_ATTN_PROJ_B] = "attn.c_proj.bias", [MODEL_ATTN_QKV_W] = "attn.c_attn.weight",                     \
    [MODEL_ATTN_QKV_B] = "attn.c_attn.bias", [MODEL_LN1_W] = "ln_1.weight", [MODEL_LN1_B] = "ln_1.bias",     \
    [MODEL_EXPERT_PROJ_W] = "mlp.experts.c_proj.weight", [MODEL_EXPERT_FC_W] = "mlp.experts.c_fc.weight",    \
    [MODEL_ROUTER_W] = "mlp.router.weight", [MODEL_WQE] = "attn.wqe.weight",                                 \
    [MODEL_LNF_W] = "transformer.ln_f.weight", [MODEL_LNF_B] = "transformer.ln_f.bias",                      \
    [MODEL_WPE] = "transformer.wpe.weight", [MODEL_WTE] = "transformer.wte.weight",                          \
    [MODEL_HEAD] = "lm_head.weight", [MODEL_EMB_LN_W] = "transformer.ln_emb.weight",                         \
    [MODEL_EMB_LN_B] = "transformer.ln_emb.bias", [MODEL_Q_NORM_W] = "attn.q_norm.weight",                   \
    [MODEL_K_NORM_W] = "attn.k_norm.weight", [MODEL_LN3_W] = "ln_3.weight", [MODEL_LN4_W] = "ln_4.weight",   \
    [MODEL_SINKS] = "attn.sinks", [MODEL_ROUTER_B] = "mlp.router.bias",                                      \
    [MODEL_EXPERT_FC_B] = "mlp.experts.c_fc.bias", [MODEL_EXPERT_PROJ_B] = "mlp.experts.c_proj.bias",        \
    [MODEL_LATENT_W] = "attn.latent.weight", [MODEL_Q_UP_W] = "attn.q_up.weight",                            \
    [MODEL_KV_UP_W] = "attn.kv_up.weight", [MODEL_ROUTER_CHOICE] = "mlp.router.choice"

static const names_t generic = {.layer = "transformer.h.%zu.", .name = {GENERIC}};

static const names_t opt = {.layer = "model.decoder.layers.%zu.",
                            .name = {[MODEL_MLP_PROJ_W] = "fc2.weight",
                                     [MODEL_MLP_PROJ_B] = "fc2.bias",
                                     [MODEL_MLP_FC_W] = "fc1.weight",
                                     [MODEL_MLP_FC_B] = "fc1.bias",
                                     [MODEL_LN2_W] = "final_layer_norm.weight",
                                     [MODEL_LN2_B] = "final_layer_norm.bias",
                                     [MODEL_ATTN_PROJ_W] = "self_attn.out_proj.weight",
                                     [MODEL_ATTN_PROJ_B] = "self_attn.out_proj.bias",
                                     [MODEL_ATTN_QKV_W] = "self_attn.qkv_proj.weight",
                                     [MODEL_ATTN_QKV_B] = "self_attn.qkv_proj.bias",
                                     [MODEL_LN1_W] = "self_attn_layer_norm.weight",
                                     [MODEL_LN1_B] = "self_attn_layer_norm.bias",
                                     [MODEL_LNF_W] = "model.decoder.final_layer_norm.weight",
                                     [MODEL_LNF_B] = "model.decoder.final_layer_norm.bias",
                                     [MODEL_WPE] = "model.decoder.embed_positions.weight",
                                     [MODEL_WTE] = "model.decoder.embed_tokens.weight",
                                     [MODEL_HEAD] = "lm_head.weight"},
                            .qkv = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
                            .turned = 1};

#define BLOOM_LAYER(attention)                                                                          \
    [MODEL_MLP_PROJ_W] = "mlp.dense_4h_to_h.weight", [MODEL_MLP_PROJ_B] = "mlp.dense_4h_to_h.bias",     \
    [MODEL_MLP_FC_W] = "mlp.dense_h_to_4h.weight", [MODEL_MLP_FC_B] = "mlp.dense_h_to_4h.bias",         \
    [MODEL_LN2_W] = "post_attention_layernorm.weight", [MODEL_LN2_B] = "post_attention_layernorm.bias", \
    [MODEL_ATTN_PROJ_W] = attention ".dense.weight", [MODEL_ATTN_PROJ_B] = attention ".dense.bias",     \
    [MODEL_ATTN_QKV_W] = attention ".query_key_value.weight",                                           \
    [MODEL_ATTN_QKV_B] = attention ".query_key_value.bias", [MODEL_LN1_W] = "input_layernorm.weight",   \
    [MODEL_LN1_B] = "input_layernorm.bias"

static const names_t bloom = {
    .layer = "transformer.h.%zu.",
    .name =
        {BLOOM_LAYER("self_attention"), [MODEL_LNF_W] = "transformer.ln_f.weight",
         [MODEL_LNF_B] = "transformer.ln_f.bias", [MODEL_WTE] = "transformer.word_embeddings.weight",
         [MODEL_EMB_LN_W] = "transformer.word_embeddings_layernorm.weight",
         [MODEL_EMB_LN_B] = "transformer.word_embeddings_layernorm.bias", [MODEL_HEAD] = "lm_head.weight"},
    .turned = 1,
    .by_head = 1};

static const names_t gpt_neox = {
    .layer = "gpt_neox.layers.%zu.",
    .name = {BLOOM_LAYER("attention"), [MODEL_LNF_W] = "gpt_neox.final_layer_norm.weight",
             [MODEL_LNF_B] = "gpt_neox.final_layer_norm.bias", [MODEL_WTE] = "gpt_neox.embed_in.weight",
             [MODEL_HEAD] = "embed_out.weight"},
    .turned = 1,
    .by_head = 1};

#define LLAMA_NAMES_OF(mlp, ln1, ln2, ln3, ln4)                 \
    .layer = "model.layers.%zu.",                               \
    .name = {[MODEL_MLP_PROJ_W] = "mlp.down_proj.weight",       \
             [MODEL_MLP_PROJ_B] = "mlp.down_proj.bias",         \
             [MODEL_MLP_FC_W] = "mlp.gate_up_proj.weight",      \
             [MODEL_MLP_FC_B] = "mlp.gate_up_proj.bias",        \
             [MODEL_LN2_W] = ln2 ".weight",                     \
             [MODEL_ATTN_PROJ_W] = "self_attn.o_proj.weight",   \
             [MODEL_ATTN_PROJ_B] = "self_attn.o_proj.bias",     \
             [MODEL_ATTN_QKV_W] = "self_attn.qkv_proj.weight",  \
             [MODEL_ATTN_QKV_B] = "self_attn.qkv_proj.bias",    \
             [MODEL_LN1_W] = ln1 ".weight",                     \
             [MODEL_EXPERT_PROJ_W] = mlp ".experts.w2.weight",  \
             [MODEL_EXPERT_FC_W] = mlp ".experts.w1_w3.weight", \
             [MODEL_ROUTER_W] = mlp ".gate.weight",             \
             [MODEL_LNF_W] = "model.norm.weight",               \
             [MODEL_WTE] = "model.embed_tokens.weight",         \
             [MODEL_HEAD] = "lm_head.weight",                   \
             [MODEL_Q_NORM_W] = "self_attn.q_norm.weight",      \
             [MODEL_K_NORM_W] = "self_attn.k_norm.weight",      \
             [MODEL_LN3_W] = ln3 ".weight",                     \
             [MODEL_LN4_W] = ln4 ".weight"},                    \
    .turned = 1
#define LLAMA_NAMES(mlp)                                                                           \
    LLAMA_NAMES_OF(mlp, "input_layernorm", "post_attention_layernorm", "post_self_attn_layernorm", \
                   "post_mlp_layernorm")
#define LLAMA_QKV    .qkv = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}
#define LLAMA_PIECES LLAMA_QKV, .gate_up = {"mlp.gate_proj", "mlp.up_proj"}

static const names_t llama = {LLAMA_NAMES("block_sparse_moe"), LLAMA_PIECES,
                              .expert = {"block_sparse_moe.experts.%zu.w1.weight",
                                         "block_sparse_moe.experts.%zu.w3.weight",
                                         "block_sparse_moe.experts.%zu.w2.weight"}};

static const names_t qwen_moe = {LLAMA_NAMES("mlp"), LLAMA_PIECES,
                                 .expert = {"mlp.experts.%zu.gate_proj.weight",
                                            "mlp.experts.%zu.up_proj.weight",
                                            "mlp.experts.%zu.down_proj.weight"}};

static const names_t deepseek = {
    .layer = "model.layers.%zu.",
    .name = {[MODEL_MLP_PROJ_W] = "mlp.down_proj.weight",
             [MODEL_MLP_FC_W] = "mlp.gate_up_proj.weight",
             [MODEL_LN2_W] = "post_attention_layernorm.weight",
             [MODEL_ATTN_PROJ_W] = "self_attn.o_proj.weight",
             [MODEL_LN1_W] = "input_layernorm.weight",
             [MODEL_EXPERT_PROJ_W] = "mlp.experts.down_proj.weight",
             [MODEL_EXPERT_FC_W] = "mlp.experts.gate_up_proj.weight",
             [MODEL_ROUTER_W] = "mlp.gate.weight",
             [MODEL_ROUTER_CHOICE] = "mlp.gate.e_score_correction_bias",
             [MODEL_LNF_W] = "model.norm.weight",
             [MODEL_WTE] = "model.embed_tokens.weight",
             [MODEL_HEAD] = "lm_head.weight",
             [MODEL_LATENT_W] = "self_attn.a_proj.weight",
             [MODEL_Q_NORM_W] = "self_attn.q_a_layernorm.weight",
             [MODEL_K_NORM_W] = "self_attn.kv_a_layernorm.weight",
             [MODEL_Q_UP_W] = "self_attn.q_b_proj.weight",
             [MODEL_KV_UP_W] = "self_attn.kv_b_proj.weight"},
    .gate_up = {"mlp.gate_proj", "mlp.up_proj"},
    .expert = {"mlp.experts.%zu.gate_proj.weight", "mlp.experts.%zu.up_proj.weight",
               "mlp.experts.%zu.down_proj.weight"},
    .shared = {"mlp.shared_experts.gate_up_proj.weight", "mlp.shared_experts.gate_proj",
               "mlp.shared_experts.up_proj", "mlp.shared_experts.down_proj.weight"},
    .latent = {"self_attn.q_a_proj", "self_attn.kv_a_proj_with_mqa"},
    .turned = 1};

static const names_t phi3 = {LLAMA_NAMES("mlp")};

static const names_t glm4 = {LLAMA_NAMES("mlp"), LLAMA_QKV};

/* It has no third and fourth norm. */
static const names_t olmo2 = {
    LLAMA_NAMES_OF("mlp", "post_attention_layernorm", "post_feedforward_layernorm", "ln_3", "ln_4"),
    LLAMA_PIECES};

static const names_t gemma2 = {LLAMA_NAMES_OF("mlp", "input_layernorm", "pre_feedforward_layernorm",
                                              "post_attention_layernorm", "post_feedforward_layernorm"),
                               LLAMA_PIECES};

static const names_t gpt_oss = {.layer = "model.layers.%zu.",
                                .name = {[MODEL_LN2_W] = "post_attention_layernorm.weight",
                                         [MODEL_ATTN_PROJ_W] = "self_attn.o_proj.weight",
                                         [MODEL_ATTN_PROJ_B] = "self_attn.o_proj.bias",
                                         [MODEL_ATTN_QKV_W] = "self_attn.qkv_proj.weight",
                                         [MODEL_ATTN_QKV_B] = "self_attn.qkv_proj.bias",
                                         [MODEL_LN1_W] = "input_layernorm.weight",
                                         [MODEL_SINKS] = "self_attn.sinks",
                                         [MODEL_EXPERT_PROJ_W] = "mlp.experts.down_proj",
                                         [MODEL_EXPERT_PROJ_B] = "mlp.experts.down_proj_bias",
                                         [MODEL_EXPERT_FC_W] = "mlp.experts.gate_up_proj",
                                         [MODEL_EXPERT_FC_B] = "mlp.experts.gate_up_proj_bias",
                                         [MODEL_ROUTER_W] = "mlp.router.weight",
                                         [MODEL_ROUTER_B] = "mlp.router.bias",
                                         [MODEL_LNF_W] = "model.norm.weight",
                                         [MODEL_WTE] = "model.embed_tokens.weight",
                                         [MODEL_HEAD] = "lm_head.weight"},
                                LLAMA_QKV,
                                .turned = 1,
                                .stacked = 1};

static const names_t *names_of(model_family_t family)
{
    static const names_t *const all[MODEL_FAMILIES] = {
#define FAMILY(id, type, names, ...) [MODEL_FAMILY_##id] = &names,
#include "model/network/families.def"
#undef FAMILY
    };
    return all[family];
}

static int in_layer(model_kind_t kind)
{
    return model_kind_of_layers(kind) || kind == MODEL_WQE;
}

/* "transformer.h.3." + text, or text. */
static void join(const names_t *names, model_kind_t kind, size_t layer, const char *text, char *name)
{
    int n = 0;
    if (in_layer(kind))
        n = snprintf(name, MODEL_NAME_MAX, names->layer, layer);
    snprintf(name + n, MODEL_NAME_MAX - (size_t)n, "%s", text);
}

void model_row_name(const model_config_t *config, model_family_t family, model_kind_t kind, size_t layer,
                    char *name)
{
    const names_t *names = names_of(family);
    const char *text = names->name[kind] ? names->name[kind] : generic.name[kind];
    if (names->shared[0] && model_config_is_sparse(config, layer) &&
        (kind == MODEL_MLP_FC_W || kind == MODEL_MLP_PROJ_W))
        text = names->shared[kind == MODEL_MLP_FC_W ? 0 : 3];
    if (names->latent[0] && kind == MODEL_Q_UP_W && config->q_latent == 0)
        text = "self_attn.q_proj.weight";
    join(names, kind, layer, text, name);
}

/* The block of the whole that starts at (row, column), in the family's orientation. */
static void block(const names_t *names, const model_param_t *p, size_t row, size_t column, size_t rows,
                  size_t columns, model_tensor_t *out)
{
    int turned = names->turned && p->dims == 2;
    out->dims = p->dims;
    out->row = row;
    out->column = column;
    out->rows = rows;
    out->columns = columns;
    out->order = turned ? MODEL_ORDER_TURNED : MODEL_ORDER_PLAIN;
    out->shape[0] = turned ? columns : rows;
    out->shape[1] = turned ? rows : columns;
    out->shape[2] = 1;
}

/* q, k, v (gate, up) apart: piece i of a matrix's columns or of a vector. */
static void apart(const names_t *names, const model_param_t *p, const char *const *text, size_t i,
                  model_tensor_t *out)
{
    char name[MODEL_NAME_MAX];
    size_t start = 0;
    for (size_t j = 0; j < i; j++)
        start += p->part[j];
    if (p->dims == 2)
        block(names, p, 0, start, p->shape[0], p->part[i], out);
    else
        block(names, p, start, 0, p->part[i], 1, out);
    snprintf(name, sizeof name, "%s.%s", text[i], p->dims == 2 ? "weight" : "bias");
    join(names, p->kind, (size_t)p->layer, name, out->name);
}

/* Experts lie one below the other: [E F, C], or [E C, F'] with gate and up side by side. */
static int expert(const names_t *names, const model_params_t *params, const model_param_t *p, size_t i,
                  model_tensor_t *out)
{
    const model_config_t *c = &params->config;
    char format[MODEL_NAME_MAX], name[MODEL_NAME_MAX];
    size_t gates = p->kind == MODEL_EXPERT_FC_W ? 2 : 1, e = i / gates, part = i % gates;
    if (e >= c->experts)
        return 0;
    size_t rows = p->shape[0] / c->experts, columns = p->shape[1] / gates;
    block(names, p, e * rows, part * columns, rows, columns, out);
    snprintf(format, sizeof format, "%s", names->expert[p->kind == MODEL_EXPERT_FC_W ? part : 2]);
    char *number = strstr(format, "%zu");
    snprintf(name, sizeof name, "%.*s%zu%s", (int)(number - format), format, e, number + 3);
    join(names, p->kind, (size_t)p->layer, name, out->name);
    return 1;
}

/* Of all experts: [E, F, C] or [E, C, F'], biases [E, C] or [E, F']; of F' gate and up in turn. */
static void stack(const model_params_t *params, const model_param_t *p, model_tensor_t *out)
{
    const model_config_t *c = &params->config;
    const int fc = p->kind == MODEL_EXPERT_FC_W || p->kind == MODEL_EXPERT_FC_B;
    const size_t wide = c->gated ? 2 * c->ffn : c->ffn, vector = p->dims == 1;
    *out = (model_tensor_t){.dims = 3 - vector,
                            .rows = p->shape[0],
                            .columns = p->shape[1],
                            .order = fc && c->gated ? MODEL_ORDER_WOVEN : MODEL_ORDER_PLAIN,
                            .woven = wide};
    out->shape[0] = c->experts;
    out->shape[1] = p->shape[0] / c->experts;
    out->shape[2] = p->shape[1];
    memcpy(out->name, p->name, sizeof out->name);
}

int model_row_tensor(const model_params_t *params, model_family_t family, const model_param_t *row, size_t i,
                     model_tensor_t *out)
{
    const names_t *names = names_of(family);
    const model_config_t *c = &params->config;
    model_kind_t kind = row->kind;
    int qkv = kind == MODEL_ATTN_QKV_W || kind == MODEL_ATTN_QKV_B;
    int fc = kind == MODEL_MLP_FC_W || kind == MODEL_MLP_FC_B;
    *out = (model_tensor_t){.heads = c->heads, .head_dim = c->head_dim};
    if (kind == MODEL_HEAD && row->twin)
        return 0;
    if ((kind == MODEL_EXPERT_FC_W || kind == MODEL_EXPERT_PROJ_W) && names->expert[0])
        return expert(names, params, row, i, out);
    if ((qkv && names->qkv[0]) || (fc && names->gate_up[0] && c->gated)) {
        if (i >= row->parts)
            return 0;
        const int shared = names->shared[0] && model_config_is_sparse(c, (size_t)row->layer);
        apart(names, row, qkv ? names->qkv : shared ? names->shared + 1 : names->gate_up, i, out);
        return 1;
    }
    if (kind == MODEL_LATENT_W && names->latent[0]) {
        model_param_t one = *row; /* without q_latent, which has no parts */
        one.part[0] = row->parts == 2 ? row->part[0] : row->shape[1];
        if (i >= row->parts)
            return 0;
        apart(names, &one, names->latent + (row->parts == 1), i, out);
        return 1;
    }
    if (i > 0)
        return 0;
    if (model_kind_of_experts(kind) && names->stacked) {
        stack(params, row, out);
        return 1;
    }
    int table = kind == MODEL_WTE || kind == MODEL_HEAD;
    block(names, row, 0, 0, table ? c->vocab : row->shape[0], row->shape[1], out);
    if (table || kind == MODEL_WPE || kind == MODEL_WQE) { /* tables of vectors are never turned */
        out->order = MODEL_ORDER_PLAIN;
        out->shape[0] = out->rows;
        out->shape[1] = out->columns;
        out->positions = !table;
    }
    if (qkv && names->by_head)
        out->order = MODEL_ORDER_BY_HEAD;
    memcpy(out->name, row->name, sizeof out->name);
    return 1;
}

/* ---- elements ------------------------------------------------------------------------------------------ */

/* Where column c of the block begins in a file that is turned, in rows of the file; in one that is woven, in
 * its columns. */
static size_t line_of(const model_tensor_t *t, size_t c)
{
    if (t->order == MODEL_ORDER_WOVEN) {
        const size_t at = c % t->woven, half = t->woven / 2;
        return c - at + (at < half ? 2 * at : 2 * (at - half) + 1);
    }
    if (t->order != MODEL_ORDER_BY_HEAD)
        return c;
    size_t D = t->head_dim, part = c / (t->heads * D), head = c / D % t->heads;
    return (head * 3 + part) * D + c % D;
}

/* A vector's elements are its rows; to BY_HEAD and WOVEN they are what columns are to a matrix. */
static void move(const model_tensor_t *t, float *file, float *whole, size_t ld, int to_whole)
{
    enum { TILE = 64 }; /* turned in tiles that the cache holds */
    if (ld == 1) {
        for (size_t i = 0; i < t->rows; i++) {
            float *f = file + line_of(t, i), *w = whole + t->row + i;
            *(to_whole ? w : f) = *(to_whole ? f : w);
        }
        return;
    }
    float *at = whole + t->row * ld + t->column;
    if (t->order == MODEL_ORDER_PLAIN) {
        for (size_t r = 0; r < t->rows; r++)
            memcpy(to_whole ? at + r * ld : file + r * t->columns,
                   to_whole ? file + r * t->columns : at + r * ld, t->columns * sizeof(float));
        return;
    }
    for (size_t r = 0; t->order == MODEL_ORDER_WOVEN && r < t->rows; r++)
        for (size_t c = 0; c < t->columns; c++) {
            float *f = file + r * t->columns + line_of(t, c), *w = at + r * ld + c;
            *(to_whole ? w : f) = *(to_whole ? f : w);
        }
    for (size_t r0 = 0; t->order != MODEL_ORDER_WOVEN && r0 < t->rows; r0 += TILE)
        for (size_t c0 = 0; c0 < t->columns; c0 += TILE)
            for (size_t c = c0; c < c0 + TILE && c < t->columns; c++) {
                float *line = file + line_of(t, c) * t->rows;
                for (size_t r = r0; r < r0 + TILE && r < t->rows; r++) {
                    float *f = line + r, *w = at + r * ld + c;
                    *(to_whole ? w : f) = *(to_whole ? f : w);
                }
            }
}

void model_tensor_to_whole(const model_tensor_t *tensor, const float *file, float *whole, size_t ld)
{
    move(tensor, (float *)file, whole, ld, 1); /* which is read only then */
}

void model_tensor_from_whole(const model_tensor_t *tensor, float *file, const float *whole, size_t ld)
{
    move(tensor, file, (float *)whole, ld, 0);
}
