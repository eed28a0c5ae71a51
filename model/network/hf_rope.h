/* SPDX-License-Identifier: Apache-2.0 */
/* model/network/hf_rope.h: rotary positions in config.json; for hf_config.c. `where` names the file. */
#ifndef MODEL_NETWORK_HF_ROPE_H
#define MODEL_NETWORK_HF_ROPE_H

#include "model/network/config.h"
#include "model/network/hf_values.h"

extern const model_hf_word_t model_hf_rope_types[];

/* The share of a head that rotates, `share` where no key says it, and the scaling of the frequencies: from
 * the object, and from its objects "rope_scaling" or, as `transformers` 5 has it, "rope_parameters". c->seq
 * are the model's own positions. UNSUPPORTED, FORMAT. */
gyre_status_t model_hf_read_rope(model_config_t *c, const json_t *object, const char *where, double share);
/* "rope_scaling", if frequencies are scaled. 1: no memory. */
int model_hf_write_rope(const model_config_t *c, json_t *object);

/* SmolLM3's "no_rope_layers", which says layer by layer what else "no_rope_layer_interval" says: each n-th
 * layer has no rotary positions. UNSUPPORTED: another pattern; FORMAT. */
gyre_status_t model_hf_read_nope(model_config_t *c, const json_t *object, const char *where);
/* The list. 1: no memory. */
int model_hf_write_nope(const model_config_t *c, json_t *object);

#endif
