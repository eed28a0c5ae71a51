/* SPDX-License-Identifier: Apache-2.0 */
/* model/network/params.c: builds the parameter table, slices of it, and its initial values. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/thread/team.h"
#include "model/network/names.h"
#include "model/network/params.h"
#include "model/random.h"

/* What an extent is a multiple of. */
typedef enum {
    ONE,
    C,
    D,
    F,
    FF,
    EFF,
    Q,
    O,
    KV,
    QKV,
    T,
    TP,
    V,
    EF,
    EC,
    E,
    H,
    EB,
    LAT,
    QL,
    QIN,
    KL,
    UP
} extent_t;

typedef struct {
    extent_t shape[2];
    int cut;
    model_init_t init;
    int residual; /* projects into the residual stream */
} kind_t;

static const kind_t kinds[MODEL_KINDS] = {
    [MODEL_MLP_PROJ_W] = {{F, C}, 0, MODEL_INIT_NORMAL, 1},
    [MODEL_MLP_PROJ_B] = {{C, ONE}, -1, MODEL_INIT_ZERO, 0},
    [MODEL_MLP_FC_W] = {{C, FF}, 1, MODEL_INIT_NORMAL, 0},
    [MODEL_MLP_FC_B] = {{FF, ONE}, 0, MODEL_INIT_ZERO, 0},
    [MODEL_LN2_W] = {{C, ONE}, -1, MODEL_INIT_ONE, 0},
    [MODEL_LN2_B] = {{C, ONE}, -1, MODEL_INIT_ZERO, 0},
    [MODEL_ATTN_PROJ_W] = {{O, C}, 0, MODEL_INIT_NORMAL, 1},
    [MODEL_ATTN_PROJ_B] = {{C, ONE}, -1, MODEL_INIT_ZERO, 0},
    [MODEL_ATTN_QKV_W] = {{C, QKV}, 1, MODEL_INIT_NORMAL, 0},
    [MODEL_ATTN_QKV_B] = {{QKV, ONE}, 0, MODEL_INIT_ZERO, 0},
    [MODEL_LN1_W] = {{C, ONE}, -1, MODEL_INIT_ONE, 0},
    [MODEL_LN1_B] = {{C, ONE}, -1, MODEL_INIT_ZERO, 0},
    [MODEL_EXPERT_PROJ_W] = {{EF, C}, 0, MODEL_INIT_NORMAL, 1},
    [MODEL_EXPERT_FC_W] = {{EC, EFF}, 0, MODEL_INIT_NORMAL, 0},
    [MODEL_ROUTER_W] = {{C, E}, -1, MODEL_INIT_NORMAL, 0},
    [MODEL_LNF_W] = {{C, ONE}, -1, MODEL_INIT_ONE, 0},
    [MODEL_LNF_B] = {{C, ONE}, -1, MODEL_INIT_ZERO, 0},
    [MODEL_WPE] = {{TP, C}, -1, MODEL_INIT_NORMAL, 0},
    [MODEL_WTE] = {{V, C}, 0, MODEL_INIT_NORMAL, 0},
    [MODEL_HEAD] = {{V, C}, 0, MODEL_INIT_NORMAL, 0},
    [MODEL_WQE] = {{T, C}, -1, MODEL_INIT_NORMAL, 0},
    [MODEL_EMB_LN_W] = {{C, ONE}, -1, MODEL_INIT_ONE, 0},
    [MODEL_EMB_LN_B] = {{C, ONE}, -1, MODEL_INIT_ZERO, 0},
    [MODEL_Q_NORM_W] = {{D, ONE}, -1, MODEL_INIT_ONE, 0},
    [MODEL_K_NORM_W] = {{D, ONE}, -1, MODEL_INIT_ONE, 0},
    [MODEL_LN3_W] = {{C, ONE}, -1, MODEL_INIT_ONE, 0},
    [MODEL_LN4_W] = {{C, ONE}, -1, MODEL_INIT_ONE, 0},
    [MODEL_SINKS] = {{H, ONE}, 0, MODEL_INIT_ZERO, 0},
    [MODEL_ROUTER_B] = {{E, ONE}, -1, MODEL_INIT_ZERO, 0},
    [MODEL_EXPERT_FC_B] = {{EB, ONE}, 0, MODEL_INIT_ZERO, 0},
    [MODEL_EXPERT_PROJ_B] = {{EC, ONE}, 0, MODEL_INIT_ZERO, 0},
    [MODEL_LATENT_W] = {{C, LAT}, -1, MODEL_INIT_NORMAL, 0},
    [MODEL_Q_UP_W] = {{QIN, Q}, 1, MODEL_INIT_NORMAL, 0},
    [MODEL_KV_UP_W] = {{KL, UP}, 1, MODEL_INIT_NORMAL, 0},
    [MODEL_ROUTER_CHOICE] = {{E, ONE}, -1, MODEL_INIT_ZERO, 0},
};

static const model_kind_t layer_order[] = {
    MODEL_LN4_W,         MODEL_MLP_PROJ_W,    MODEL_MLP_PROJ_B,  MODEL_MLP_FC_W,    MODEL_MLP_FC_B,
    MODEL_EXPERT_PROJ_W, MODEL_EXPERT_PROJ_B, MODEL_EXPERT_FC_W, MODEL_EXPERT_FC_B, MODEL_ROUTER_W,
    MODEL_ROUTER_B,      MODEL_ROUTER_CHOICE, MODEL_LN2_W,       MODEL_LN2_B,       MODEL_LN3_W,
    MODEL_ATTN_PROJ_W,   MODEL_ATTN_PROJ_B,   MODEL_SINKS,       MODEL_ATTN_QKV_W,  MODEL_ATTN_QKV_B,
    MODEL_Q_UP_W,        MODEL_KV_UP_W,       MODEL_Q_NORM_W,    MODEL_K_NORM_W,    MODEL_LATENT_W,
    MODEL_LN1_W,         MODEL_LN1_B,
};
#define LAYER_ROWS (sizeof layer_order / sizeof layer_order[0])

/* 1 if a model of this shape has such a row. */
static int has_kind(const model_config_t *c, model_kind_t kind, size_t layer)
{
    switch (kind) {
    case MODEL_MLP_PROJ_W:
    case MODEL_MLP_FC_W:
        return model_config_mlp(c, layer) > 0;
    case MODEL_MLP_PROJ_B:
    case MODEL_MLP_FC_B:
        return c->experts == 0 && !c->no_mlp_bias;
    case MODEL_EXPERT_PROJ_W:
    case MODEL_EXPERT_FC_W:
    case MODEL_ROUTER_W:
        return model_config_is_sparse(c, layer);
    case MODEL_ROUTER_B:
        return model_config_is_sparse(c, layer) && c->router_bias;
    case MODEL_EXPERT_FC_B:
    case MODEL_EXPERT_PROJ_B:
        return model_config_is_sparse(c, layer) && c->expert_bias;
    case MODEL_SINKS:
        return c->sinks;
    case MODEL_ROUTER_CHOICE:
        return model_config_is_sparse(c, layer) && c->router_sigmoid;
    case MODEL_LATENT_W:
    case MODEL_Q_UP_W:
    case MODEL_KV_UP_W:
        return c->kv_latent > 0;
    case MODEL_ATTN_QKV_W:
        return c->kv_latent == 0;
    case MODEL_ATTN_PROJ_B:
        return !c->no_proj_bias;
    case MODEL_ATTN_QKV_B:
        return !c->no_qkv_bias;
    case MODEL_Q_NORM_W:
        return c->qk_norm || c->q_latent > 0;
    case MODEL_K_NORM_W:
        return c->qk_norm || c->kv_latent > 0;
    case MODEL_LN3_W:
    case MODEL_LN4_W:
        return c->both_norms;
    case MODEL_LN1_B:
    case MODEL_LN2_B:
        return c->norm == MODEL_NORM_LAYER;
    case MODEL_LNF_W:
        return !c->post_norm;
    case MODEL_LNF_B:
        return !c->post_norm && c->norm == MODEL_NORM_LAYER;
    case MODEL_WPE:
        return c->pos == MODEL_POS_LEARNED;
    case MODEL_WQE:
        return c->top_query && layer + 1 == c->layers;
    case MODEL_EMB_LN_W:
    case MODEL_EMB_LN_B:
        return c->embed_norm;
    default:
        return 1;
    }
}

/* In a layer whose MLP has the width `ffn`. */
static int extent(const model_config_t *c, size_t ffn, extent_t what, size_t *out)
{
    size_t gate = c->gated ? 2 : 1;
    switch (what) {
    case ONE:
        *out = 1;
        return 1;
    case C:
        *out = c->hidden;
        return 1;
    case D:
        *out = c->head_dim;
        return 1;
    case F:
        *out = ffn;
        return 1;
    case FF:
        return base_mul(gate, ffn, out);
    case EFF:
        return base_mul(gate, c->ffn, out);
    case Q:
        return base_mul(c->heads, c->head_dim, out);
    case O:
        return base_mul(c->heads, c->value_dim, out);
    case KV:
        return base_mul(c->kv_heads, c->head_dim, out);
    case QKV:
        return base_mul(c->heads + 2 * c->kv_heads, c->head_dim, out);
    case T:
        *out = c->seq;
        return 1;
    case TP:
        return base_add(c->seq, c->pos_offset, out);
    case V:
        *out = c->vocab_padded;
        return 1;
    case EF:
        return base_mul(c->experts, c->ffn, out);
    case EC:
        return base_mul(c->experts, c->hidden, out);
    case E:
        *out = c->experts;
        return 1;
    case H:
        *out = c->heads;
        return 1;
    case EB:
        return base_mul(gate, c->ffn, out) && base_mul(c->experts, *out, out);
    case LAT:
        *out = model_config_latents(c);
        return 1;
    case QL:
        *out = c->q_latent;
        return 1;
    case QIN:
        *out = c->q_latent ? c->q_latent : c->hidden;
        return 1;
    case KL:
        *out = c->kv_latent;
        return 1;
    case UP:
        return base_mul(c->heads, c->head_dim - c->rotary_dim + c->value_dim, out);
    }
    return 0;
}

/* `kinds` for this model: gains of all heads together are cut as those are. */
static kind_t kind_of(const model_config_t *c, model_kind_t kind)
{
    kind_t k = kinds[kind];
    if (c->qk_whole && (kind == MODEL_Q_NORM_W || kind == MODEL_K_NORM_W)) {
        k.shape[0] = kind == MODEL_Q_NORM_W ? Q : KV;
        k.cut = 0;
    }
    if (c->kv_latent > 0 && (kind == MODEL_Q_NORM_W || kind == MODEL_K_NORM_W))
        k.shape[0] = kind == MODEL_Q_NORM_W ? QL : KL;
    if (c->gain_plus_1 && k.init == MODEL_INIT_ONE && kind != MODEL_EMB_LN_W)
        k.init = MODEL_INIT_ZERO;
    return k;
}

/* The pieces that lie side by side along the cut. */
static void set_parts(const model_config_t *c, model_param_t *row)
{
    row->parts = row->copies = 1;
    row->part[0] = row->cut < 0 ? 0 : row->shape[row->cut];
    if (row->kind == MODEL_ATTN_QKV_W || row->kind == MODEL_ATTN_QKV_B) {
        row->parts = 3;
        row->part[0] = c->heads * c->head_dim;
        row->part[1] = row->part[2] = c->kv_heads * c->head_dim;
        row->copies = model_config_copies(c);
    } else if ((row->kind == MODEL_MLP_FC_W || row->kind == MODEL_MLP_FC_B) && c->gated) {
        row->parts = 2;
        row->part[0] = row->part[1] = row->shape[row->cut] / 2;
    } else if (row->kind == MODEL_LATENT_W && c->q_latent > 0) {
        row->parts = 2;
        row->part[0] = c->q_latent;
        row->part[1] = row->shape[1] - c->q_latent;
    }
}

int model_param_measure(model_param_t *row)
{
    size_t copied = 0, width;
    for (size_t p = 1; p < row->parts; p++)
        copied += (row->copies - 1) * row->part[p];
    row->leaf_count = row->count = 0;
    if (row->cut >= 0 && copied > 0) {
        if (!base_add(row->shape[row->cut], copied, &width) ||
            !base_mul(row->shape[!row->cut], width, &row->count))
            return 0;
    } else if (!base_mul(row->shape[0], row->shape[1], &row->count)) {
        return 0;
    }
    row->leaf_count = row->count / row->leaves;
    return 1;
}

static gyre_status_t add_row(model_params_t *params, model_family_t family, model_kind_t kind, size_t layer)
{
    const model_config_t *c = &params->config;
    const kind_t of = kind_of(c, kind), *k = &of;
    if (!has_kind(c, kind, layer))
        return GYRE_OK;
    model_param_t *row = &params->row[params->rows];
    int in_layer = model_kind_of_layers(kind) || kind == MODEL_WQE;
    int at_end = kind == MODEL_LNF_W || kind == MODEL_LNF_B || kind == MODEL_HEAD;
    *row = (model_param_t){.kind = kind,
                           .layer = in_layer ? (int)layer
                                    : at_end ? (int)c->layers
                                             : -1,
                           .dims = k->shape[1] == ONE ? 1 : 2,
                           .cut = k->cut,
                           .leaves = k->cut < 0 ? 1 : c->leaves,
                           .global = params->rows,
                           .offset = params->total,
                           .grad = params->grad_total,
                           .alias = MODEL_NONE,
                           .twin = !c->untied && (kind == MODEL_HEAD || kind == MODEL_WTE),
                           .init = k->init,
                           .std = c->init_std > 0.0 ? c->init_std : 0.02 * sqrt(768.0 / (double)c->hidden),
                           .decay = k->shape[1] != ONE,
                           .frozen = kind == MODEL_ROUTER_CHOICE,
                           .rate = 1.0,
                           .own_decay = -1.0};
    if (k->residual)
        row->std /= sqrt(2.0 * (double)c->layers);
    model_row_name(c, family, kind, layer, row->name);
    const size_t ffn = in_layer ? model_config_mlp(c, layer) : 0;
    int fits = extent(c, ffn, k->shape[0], &row->shape[0]) && extent(c, ffn, k->shape[1], &row->shape[1]);
    set_parts(c, row);
    fits = fits && model_param_measure(row) &&
           base_add(params->grad_total, row->count, &params->grad_total) &&
           params->grad_total <= SIZE_MAX / sizeof(double);
    if (!fits)
        return gyre_fail(GYRE_ERR_OVERFLOW, "%s [%zu, %zu]: the model does not fit in the address space",
                         row->name, row->shape[0], row->shape[1]);
    if (!(row->twin && kind == MODEL_HEAD)) /* a tied head gets the place of the embedding, in link_twins */
        params->total += row->count;
    params->rows++;
    return GYRE_OK;
}

/* A tied head lies where its embedding lies, if both are here; else it is a copy of its own. */
static void link_twins(model_params_t *params)
{
    size_t head = model_params_find(params, MODEL_HEAD, 0), wte = model_params_find(params, MODEL_WTE, 0);
    if (head == MODEL_NONE || wte == MODEL_NONE || !params->row[head].twin)
        return;
    params->row[head].alias = wte;
    params->row[head].offset = params->row[wte].offset;
}

static model_params_t *new_table(const model_config_t *config, size_t rows)
{
    model_params_t *params = calloc(1, sizeof *params);
    if (params)
        params->row = calloc(rows ? rows : 1, sizeof *params->row);
    if (!params || !params->row) {
        free(params);
        gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a table of %zu parameters", rows);
        return NULL;
    }
    params->config = *config;
    return params;
}

gyre_status_t model_params_create(const model_config_t *given, model_params_t **out)
{
    gyre_status_t status = model_config_check(given);
    if (status != GYRE_OK)
        return status;
    const model_config_t config = model_config_complete(given);
    model_params_t *params = new_table(&config, (LAYER_ROWS + 1) * config.layers + MODEL_KINDS);
    if (!params)
        return GYRE_ERR_NO_MEMORY;
    static const model_kind_t first[] = {MODEL_HEAD, MODEL_LNF_W, MODEL_LNF_B};
    static const model_kind_t last[] = {MODEL_EMB_LN_W, MODEL_EMB_LN_B, MODEL_WPE, MODEL_WTE};
    model_family_t family;
    status = model_config_family(&config, &family);
    for (size_t i = 0; status == GYRE_OK && i < sizeof first / sizeof first[0]; i++)
        status = add_row(params, family, first[i], 0);
    for (size_t layer = config.layers; status == GYRE_OK && layer-- > 0;) {
        for (size_t i = 0; status == GYRE_OK && i < LAYER_ROWS; i++)
            status = add_row(params, family, layer_order[i], layer);
        if (status == GYRE_OK)
            status = add_row(params, family, MODEL_WQE, layer);
    }
    for (size_t i = 0; status == GYRE_OK && i < sizeof last / sizeof last[0]; i++)
        status = add_row(params, family, last[i], 0);
    if (status != GYRE_OK) {
        model_params_destroy(params);
        return status;
    }
    link_twins(params);
    *out = params;
    return GYRE_OK;
}

static int held(const model_params_t *whole, const model_slice_t *slice, const model_param_t *row)
{
    if (row->layer < 0)
        return slice->embed;
    if ((size_t)row->layer == whole->config.layers)
        return slice->head;
    return !slice->has || slice->has[row->layer];
}

static gyre_status_t check_slice(const model_config_t *c, const model_slice_t *slice, size_t ep)
{
    if (slice->tp_size < 1 || slice->tp_rank >= slice->tp_size || c->leaves % slice->tp_size != 0)
        return gyre_fail(GYRE_ERR_INVALID,
                         "tensor parallelism of %zu does not divide the %zu leaves that sums have: take a "
                         "power of two up to %zu, or more leaves",
                         slice->tp_size, c->leaves, c->leaves);
    if (ep > 1 && (slice->ep_rank >= ep || c->experts == 0 || c->experts % (slice->tp_size * ep) != 0))
        return gyre_fail(GYRE_ERR_INVALID,
                         "expert parallelism of %zu (rank %zu) with tensor parallelism of %zu does not "
                         "divide the %zu experts",
                         ep, slice->ep_rank, slice->tp_size, c->experts);
    return GYRE_OK;
}

/* The next row of a table, a copy of `row` at its own place; weights 0: those of another row. */
static model_param_t *append(model_params_t *params, const model_param_t *row, size_t count, int weights)
{
    model_param_t *added = &params->row[params->rows++];
    *added = *row;
    added->count = count;
    added->alias = MODEL_NONE;
    added->offset = params->total;
    added->grad = params->grad_total;
    params->grad_total += count;
    if (weights)
        params->total += count;
    return added;
}

gyre_status_t model_params_slice(const model_params_t *whole, const model_slice_t *slice,
                                 model_params_t **out)
{
    const size_t ep = slice->ep_size ? slice->ep_size : 1;
    gyre_status_t status = check_slice(&whole->config, slice, ep);
    if (status != GYRE_OK)
        return status;
    model_params_t *params = new_table(&whole->config, whole->rows);
    if (!params)
        return GYRE_ERR_NO_MEMORY;
    for (size_t r = 0; r < whole->rows; r++) {
        const model_param_t *row = &whole->row[r];
        size_t parts = row->cut >= 0 ? slice->tp_size : 1, part = row->cut >= 0 ? slice->tp_rank : 0;
        if (!held(whole, slice, row))
            continue;
        if (model_kind_of_experts(row->kind)) {
            part = part * ep + slice->ep_rank;
            parts *= ep;
        }
        const size_t count = row->count / parts;
        const int aliased = row->twin && row->kind == MODEL_HEAD && slice->embed;
        append(params, row, count, !aliased)->first = part * count;
    }
    link_twins(params);
    *out = params;
    return GYRE_OK;
}

gyre_status_t model_params_pick(const model_params_t *slice, int experts, model_params_t **out)
{
    model_params_t *params = new_table(&slice->config, slice->rows);
    if (!params)
        return GYRE_ERR_NO_MEMORY;
    for (size_t r = 0; r < slice->rows; r++) {
        const model_param_t *row = &slice->row[r];
        if (model_kind_of_experts(row->kind) == experts)
            append(params, row, row->count, row->alias == MODEL_NONE);
    }
    link_twins(params);
    *out = params;
    return GYRE_OK;
}

void model_params_destroy(model_params_t *params)
{
    if (!params)
        return;
    free(params->row);
    free(params);
}

size_t model_params_find(const model_params_t *params, model_kind_t kind, size_t layer)
{
    for (size_t r = 0; r < params->rows; r++) {
        const model_param_t *row = &params->row[r];
        if (row->kind == kind && (!model_kind_of_layers(kind) || row->layer == (int)layer))
            return r;
    }
    return MODEL_NONE;
}

/* Of element `at` of a line of leaf `leaf`: its part, *in its place in the leaf's piece of it, *width that
 * piece, *start where the piece begins in a line of the whole. */
static size_t piece_of(const model_param_t *row, size_t leaf, size_t at, size_t *in, size_t *width,
                       size_t *start)
{
    size_t p = 0, copies = 1;
    *start = *width = 0;
    for (; p < row->parts; p++, copies = row->copies) {
        *width = row->part[p] * copies / row->leaves;
        if (at < *width)
            break;
        at -= *width;
        *start += row->part[p];
    }
    *start += leaf / copies * *width;
    *in = at;
    return p;
}

/* Elements of a leaf's line: what lies side by side along the cut. */
static size_t line_of(const model_param_t *row)
{
    return row->cut == 1 ? row->leaf_count / row->shape[0] : row->leaf_count;
}

size_t model_param_place(const model_param_t *row, size_t i)
{
    if (row->leaves == 1 || (row->cut <= 0 && row->parts == 1))
        return i; /* leaves along the slowest dimension lie as in the file */
    size_t in, width, start;
    const size_t line = i % row->leaf_count / line_of(row);
    piece_of(row, i / row->leaf_count, i % row->leaf_count % line_of(row), &in, &width, &start);
    return line * row->shape[1] + start + in;
}

size_t model_param_run(const model_param_t *row, size_t i)
{
    if (row->leaves == 1 || (row->cut <= 0 && row->parts == 1))
        return row->leaves * row->leaf_count - i;
    size_t in, width, start;
    piece_of(row, i / row->leaf_count, i % row->leaf_count % line_of(row), &in, &width, &start);
    return width - in;
}

int model_param_is_copy(const model_param_t *row, size_t i)
{
    size_t in, width, start;
    const size_t leaf = i / row->leaf_count;
    return row->copies > 1 && leaf % row->copies > 0 &&
           piece_of(row, leaf, i % row->leaf_count % line_of(row), &in, &width, &start) > 0;
}

void model_param_to_file(const model_param_t *row, const float *canonical, float *file)
{
    for (size_t i = 0, n; i < row->leaves * row->leaf_count; i += n) {
        n = model_param_run(row, i);
        memcpy(file + model_param_place(row, i), canonical + i, n * sizeof *file);
    }
}

/* Identifies a row in every layout and for any number of layers. A tied head begins as its embedding. */
static uint32_t random_stream(const model_param_t *row)
{
    model_kind_t kind = row->kind == MODEL_HEAD && row->twin ? MODEL_WTE : row->kind;
    uint32_t layer = model_kind_of_layers(kind) ? (uint32_t)row->layer + 1 : 0;
    /* adapters of a layer are the second half of its 64 */
    return layer * 64 + (uint32_t)(kind < MODEL_ADAPTERS ? kind : kind - MODEL_ADAPTERS + 32);
}

/* Elements first .. first + count - 1 of a row. */
typedef struct {
    const model_param_t *row;
    uint64_t seed;
    size_t first, count;
    float *out;
} init_t;

enum { INIT_PIECE = 4096 }; /* elements for a thread, some 200 us */

static void init_piece(void *arg, size_t piece)
{
    const init_t *init = arg;
    const model_param_t *row = init->row;
    const uint32_t stream = random_stream(row);
    const size_t end = base_min_size((piece + 1) * INIT_PIECE, init->count);
    for (size_t i = piece * INIT_PIECE; i < end; i++)
        init->out[i] = row->init == MODEL_INIT_ZERO ? 0.0f
                       : row->init == MODEL_INIT_ONE
                           ? 1.0f
                           : (float)(row->std * model_random_normal(init->seed, MODEL_RANDOM_INIT, stream,
                                                                    model_param_place(row, init->first + i)));
}

void model_param_init(const model_param_t *row, uint64_t seed, size_t first, size_t count, float *out)
{
    init_t init = {row, seed, first, count, out};
    base_each(count / INIT_PIECE + (count % INIT_PIECE > 0), init_piece, &init);
}
