/* SPDX-License-Identifier: Apache-2.0 */
/* model/network/hf_deepseek.h: keys of config.json that only DeepSeek-V2 and V3 have; for hf_config.c. Both
 * have one block with options; V3's router has sigmoids (config.router_sigmoid). */
#ifndef MODEL_NETWORK_HF_DEEPSEEK_H
#define MODEL_NETWORK_HF_DEEPSEEK_H

#include <jansson.h>

#include "model/network/config.h"

/* After the keys of the tables: widths of a head's two parts, of shared experts and of layers without
 * experts, and how experts are chosen. `where` names the file. FORMAT, UNSUPPORTED. */
gyre_status_t model_hf_read_deepseek(model_config_t *c, const json_t *object, const char *where);
/* The same keys into `object`. 1: no memory. */
int model_hf_write_deepseek(const model_config_t *c, json_t *object);

/* UNSUPPORTED: with `shares` the weights of chosen experts sum to 1, and there is only one, whose weight is
 * its score here (also for qwen3_moe). */
gyre_status_t model_hf_check_shares(const model_config_t *c, int shares, const char *where);

#endif
