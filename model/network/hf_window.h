/* SPDX-License-Identifier: Apache-2.0 */
/* model/network/hf_window.h: sliding windows in config.json; for hf_config.c. `where` names the file. */
#ifndef MODEL_NETWORK_HF_WINDOW_H
#define MODEL_NETWORK_HF_WINDOW_H

#include "model/network/config.h"
#include "model/network/hf_values.h"

/* The keys that a family has for them. */
typedef enum {
    MODEL_HF_NO_WINDOWS,
    MODEL_HF_WINDOWS,      /* sliding_window, null: none; the layers are those of the family */
    MODEL_HF_USE_WINDOWS,  /* only with use_sliding_window; the first max_window_layers layers have none */
    MODEL_HF_LAYER_WINDOWS /* as MODEL_HF_WINDOWS, and layer_types says in which layers */
} model_hf_windows_t;

/* On entry c->window, window_from and window_every are what absent keys mean. "layer_types" is refused where
 * it says otherwise than the family's keys, or than a window in all layers but each n-th. UNSUPPORTED,
 * FORMAT. */
gyre_status_t model_hf_read_window(model_config_t *c, const json_t *object, const char *where,
                                   model_hf_windows_t keys, const char *type);
/* 1: no memory. */
int model_hf_write_window(const model_config_t *c, json_t *object, model_hf_windows_t keys);

#endif
