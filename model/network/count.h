/* SPDX-License-Identifier: Apache-2.0 */
/* model/network/count.h: the number of parameters of a model and of its parts, without building its table
 * once per layout.
 *
 * The layers of a model are alike, so the table of a model of one layer (model/network/params.h) describes
 * all of them. A rank's number is a sum of a few counts, for any tensor-parallel degree and any run of
 * layers. */
#ifndef MODEL_NETWORK_COUNT_H
#define MODEL_NETWORK_COUNT_H

#include "model/network/params.h"

/* Elements of a part of the model: `whole` lie on every rank of a tensor-parallel group, `cut` are divided
 * among them. `copies` of these are of others, as leaves share heads of keys and values. */
typedef struct {
    size_t whole, cut, copies;
} model_part_t;

typedef struct {
    model_part_t layer; /* of one layer, with experts if there are any */
    model_part_t top;   /* what the last layer has in addition (config.top_query) */
    model_part_t embed; /* token and learned position embeddings, norm after them */
    model_part_t norm;  /* final norm */
    model_part_t head;  /* the matrix of the logits; tied: a copy on a stage without the embedding */
    size_t experts;     /* of `layer`'s cut elements those of its experts */
    size_t idle;        /* of one layer: what a token does not use, (E - top_k) experts */
    size_t layers;
    model_part_t dense;  /* of one of the first layers without experts (config.dense_first) */
    size_t dense_layers; /* of `layers` */
    int tied;
} model_count_t;

/* INVALID (model_config_check), OVERFLOW, NO_MEMORY. config.leaves matters only for the padding of the
 * vocabulary and for copies. */
gyre_status_t model_count(const model_config_t *config, model_count_t *out);

/* Parameters of the model; a tied head counts once. */
size_t model_count_total(const model_count_t *count);
/* Those that take part in a token's pass: fewer in a mixture of experts. */
size_t model_count_active(const model_count_t *count);

/* The part of a model on a pipeline stage. */
typedef struct {
    size_t layers;
    int embed, head; /* 1: the embeddings; final norm and head */
    int top;         /* 1: the model's last layer is among `layers` */
    size_t dense;    /* of `layers`: those of config.dense_first */
} model_holds_t;
/* Elements of one rank's flat buffer of weights (model_params_slice's total): `tp` ranks share the cut parts,
 * and tp * ep those of experts. A tied head on the stage of its embedding takes no place of its own. */
size_t model_count_rank(const model_count_t *count, const model_holds_t *holds, size_t tp, size_t ep);
/* Of these the experts'. */
size_t model_count_experts(const model_count_t *count, const model_holds_t *holds, size_t tp, size_t ep);

#endif
