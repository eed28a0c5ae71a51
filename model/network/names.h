/* SPDX-License-Identifier: Apache-2.0 */
/* model/network/names.h: Hugging Face's name for each row of the parameter table, and the row's form in
 * files.
 *
 * A row is one matrix [in, out] or one vector. A family's files may hold it transposed ([out, in], all but
 * GPT-2), in pieces (q, k, v in tensors of their own), with q, k, v side by side per head (BLOOM, GPT-NeoX),
 * or expert by expert. A piece is one tensor of a file and the block of the row-major whole that it fills.
 * Families that `transformers` does not have (model/network/hf_config.h) hold each row in one tensor as it
 * is, under GPT-2's names. */
#ifndef MODEL_NETWORK_NAMES_H
#define MODEL_NETWORK_NAMES_H

#include "model/network/hf_config.h"
#include "model/network/params.h"

#define MODEL_NAME_MAX 80

/* The table's name of a row: that of its tensor, or for a row in pieces one for all of them
 * ("model.layers.0.self_attn.qkv_proj.weight"). `name` has MODEL_NAME_MAX bytes. */
void model_row_name(const model_config_t *config, model_family_t family, model_kind_t kind, size_t layer,
                    char *name);

typedef enum {
    MODEL_ORDER_PLAIN,   /* [rows, columns] */
    MODEL_ORDER_TURNED,  /* [columns, rows] */
    MODEL_ORDER_BY_HEAD, /* [heads, 3, head_dim, rows]: columns are q, k, v, each of all heads */
    MODEL_ORDER_WOVEN    /* [rows, columns]: of each `woven` elements gate and up in turn */
} model_order_t;

typedef struct {
    char name[MODEL_NAME_MAX];
    size_t dims, shape[3];             /* in the file; 1 after dims */
    size_t row, column, rows, columns; /* the block of the row-major whole [shape[0], shape[1]] of the row */
    model_order_t order;
    size_t heads, head_dim; /* of MODEL_ORDER_BY_HEAD */
    size_t woven;           /* F' of MODEL_ORDER_WOVEN: columns are gates, then ups, of an expert */
    /* 1: a table of positions. A file's tensor may have more rows than shape[0]: the first ones are meant, as
     * for a model that is trained on shorter sequences. */
    int positions;
} model_tensor_t;

/* Piece i of a row of a table of `family` (model_config_family): 1, or 0 after the last one. A tied head has
 * no pieces. Rows of the vocabulary from `vocab` on are in no file: they are zero. */
int model_row_tensor(const model_params_t *params, model_family_t family, const model_param_t *row, size_t i,
                     model_tensor_t *out);

/* Copies the piece's elements between file order and the row-major whole, `ld` elements a row. */
void model_tensor_to_whole(const model_tensor_t *tensor, const float *file, float *whole, size_t ld);
void model_tensor_from_whole(const model_tensor_t *tensor, float *file, const float *whole, size_t ld);

#endif
