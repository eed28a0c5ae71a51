/* SPDX-License-Identifier: Apache-2.0 */
/* model/data/sources.h: what --data and --valid-data name, as open sources (this folder only). */
#ifndef MODEL_DATA_SOURCES_H
#define MODEL_DATA_SOURCES_H

#include "model/data/data.h"

/* Opens PATH, or WEIGHT:PATH,WEIGHT:PATH... What was opened is in *mix also after an error. */
gyre_status_t sources_open(const char *path, model_tokens_format_t format, model_mix_t *mix);
/* own 0: the tokens are another's. */
void sources_close(model_mix_t *mix, int own);
/* Adds the content of each source, its part and its weight to *hash. */
gyre_status_t sources_hash(const model_mix_t *mix, uint64_t *hash);

/* Opens data->set of its own: one without a name, or NAME=SOURCES,NAME=SOURCES... INVALID: a name twice, or
 * more than MODEL_DATA_SETS. */
gyre_status_t sources_open_sets(const char *text, model_tokens_format_t format, model_data_t *data);
/* The last `fraction` of each source for training becomes data->set[0]; with 0 there is no set. */
gyre_status_t sources_hold_out(model_data_t *data, double fraction);

/* What names it in messages. */
const char *sources_path(const model_tokens_t *tokens);

#endif
