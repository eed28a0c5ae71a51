/* SPDX-License-Identifier: Apache-2.0 */
/* model/formats/weights.h: the weights of a whole model as one safetensors file, under Hugging Face's names,
 * which other tools read (model/network/names.h; model/formats/hf.h for folders, and for reading).
 *
 * The file is a safetensors container (model/formats/safetensors.h). The number of heads does not follow from
 * any shape: the metadata has it as "n_head", and if the model is not the GPT-2 that shapes of tensors say,
 * its config.json as "gyre_config". Tables of parameters are whole ones. */
#ifndef MODEL_FORMATS_WEIGHTS_H
#define MODEL_FORMATS_WEIGHTS_H

#include "model/network/params.h"

/* Fills canonical row `row` [leaves * leaf_count]; NULL: this rank takes part in gathering the row, but does
 * not get it. */
typedef gyre_status_t (*model_row_fn)(void *user, size_t row, float *canonical);
/* Writes the model row by row, as base/file.h does: a reader never sees half a file, and a full disk leaves
 * the old one. Calls `get` for every row but a tied head, in the order of the table, also if `path` is NULL
 * (this rank only takes part) and if the file cannot be written (canonical is NULL or unused then). IO,
 * NO_MEMORY, errors of `get`, which end the call. */
gyre_status_t model_checkpoint_stream(const char *path, const model_params_t *params, model_row_fn get,
                                      void *user);

/* Distinguishes a file from a damaged one. */
typedef struct {
    uint64_t bytes;
    uint64_t hash; /* base_hash64 of all of them */
} model_file_sum_t;
/* Reads the whole file once, in pieces. NOT_FOUND, IO, NO_MEMORY. */
gyre_status_t model_checkpoint_sum(const char *path, model_file_sum_t *sum);

/* Reads the model in the file, of which a run chooses leaves and vocab_padded (0), dropout and z-losses.
 * Where the metadata do not say it, it is the GPT-2 that shapes of tensors say; heads is 0 if n_head is not
 * there either. NOT_FOUND, IO, NO_MEMORY, FORMAT (also: n_head is not a number), and errors of
 * model_config_from_json. */
gyre_status_t model_checkpoint_config(const char *path, model_config_t *config);

#endif
