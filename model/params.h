/* model/params.h: the parameter table: one row per parameter; nothing else knows parameter names (design, idea 6).
 *
 * Rows stand in the order in which backward finishes them: final norm, then the layers from the top, each from its
 * output to its input, then the embeddings; the tied token embedding is last because the head adds to it first and
 * the input last. Parameters lie back to back in that order in one flat buffer, so a range of rows is a range of
 * memory, and a bucket is both. */
#ifndef MODEL_PARAMS_H
#define MODEL_PARAMS_H

#include <stddef.h>
#include <stdint.h>

#include <gyre/status.h>

/* The shape of a GPT-2-style decoder. */
typedef struct {
    size_t vocab;  /* V: tokens */
    size_t seq;    /* T: positions */
    size_t layers; /* L */
    size_t hidden; /* C: channels of the residual stream */
    size_t heads;  /* H: divides hidden */
} model_config_t;

/* Checks every extent and that heads divides hidden; INVALID names the value and the way out. */
gyre_status_t model_config_check(const model_config_t *config);

/* Kinds before MODEL_LAYER_KINDS occur once per layer, in this order in the table. */
typedef enum {
    MODEL_MLP_PROJ_W,  /* [4C, C] (Conv1D: [in, out], as GPT-2 stores every product) */
    MODEL_MLP_PROJ_B,  /* [C] */
    MODEL_MLP_FC_W,    /* [C, 4C] */
    MODEL_MLP_FC_B,    /* [4C] */
    MODEL_LN2_W,       /* [C] */
    MODEL_LN2_B,       /* [C] */
    MODEL_ATTN_PROJ_W, /* [C, C] */
    MODEL_ATTN_PROJ_B, /* [C] */
    MODEL_ATTN_QKV_W,  /* [C, 3C]: q, k, v side by side, each cut by heads */
    MODEL_ATTN_QKV_B,  /* [3C] */
    MODEL_LN1_W,       /* [C] */
    MODEL_LN1_B,       /* [C] */
    MODEL_LAYER_KINDS,
    MODEL_LNF_W = MODEL_LAYER_KINDS, /* [C] */
    MODEL_LNF_B,                     /* [C] */
    MODEL_WPE,                       /* [T, C] */
    MODEL_WTE,                       /* [V, C], also the head */
    MODEL_KINDS
} model_kind_t;

typedef enum { MODEL_INIT_ZERO, MODEL_INIT_ONE, MODEL_INIT_NORMAL } model_init_t;

typedef struct {
    char name[64]; /* Hugging Face GPT-2: "transformer.h.0.attn.c_attn.weight" */
    model_kind_t kind;
    int layer;       /* 0 .. L-1; -1: before the first (embeddings); L: behind the last (final norm) */
    size_t dims;     /* 1 or 2 */
    size_t shape[2]; /* shape[1] is 1 for dims == 1 */
    size_t count;    /* elements */
    size_t offset;   /* of its first element in the flat buffer */
    int cut;         /* the dimension that tensor parallelism cuts; -1: every rank holds it whole */
    int cut_groups;  /* equal groups along `cut` that are cut one by one: 3 for q, k, v; else 1 */
    model_init_t init;
    double std; /* of MODEL_INIT_NORMAL */
    int decay;  /* 1: weight decay applies (matrices) */
} model_param_t;

typedef struct {
    model_config_t config;
    size_t rows;
    model_param_t *row; /* [rows] */
    size_t total;       /* elements of all rows: the flat buffer's size */
} model_params_t;

/* Builds the table. INVALID (model_config_check), OVERFLOW, NO_MEMORY. Freed by model_params_destroy. */
gyre_status_t model_params_create(const model_config_t *config, model_params_t **out);
void model_params_destroy(model_params_t *params);

/* The row of `kind`; `layer` is ignored for kinds that occur once. */
size_t model_params_find(const model_params_t *params, model_kind_t kind, size_t layer);

/* Initial values of every row into flat [total]: each element is a function of (seed, name's row, element) only.
 * Matrices are normal with GPT-2's deviation, 0.02 at its width of 768, and for other widths 0.02 sqrt(768 / hidden),
 * which keeps products at the same scale (narrow models learn markedly sooner with it). The two projections into the
 * residual stream are scaled by 1/sqrt(2 L), as GPT-2's are. */
void model_params_init(const model_params_t *params, uint64_t seed, float *flat);

#endif
