/* model/formats/weights.h: the weights of a whole model as one safetensors file, under Hugging Face's names, so that other tools
 * read them (model/network/names.h; model/formats/hf.h for folders, and for reading).
 *
 * The file: u64 header bytes, JSON header {name: {dtype, shape, data_offsets}, __metadata__}, data; little-endian
 * (https://github.com/huggingface/safetensors). The number of heads,
 * which no shape tells, stands in the metadata as "n_head". Tables of parameters are whole ones. */
#ifndef MODEL_FORMATS_WEIGHTS_H
#define MODEL_FORMATS_WEIGHTS_H

#include "model/network/params.h"

/* Fills canonical row `row` [leaves * leaf_count]; NULL: this rank takes part in bringing it, but does not get it. */
typedef gyre_status_t (*model_row_fn)(void *user, size_t row, float *canonical);
/* Writes the model row by row, as base/file.h does: a reader never sees half a file, and a full disk leaves the old one.
 * `get` is called for every row but a tied head, in the order of the table, also where `path` is NULL (this rank only takes
 * part) and where the file cannot be written (canonical is NULL or unused then). IO, NO_MEMORY, errors of `get`, which end
 * it. */
gyre_status_t model_checkpoint_stream(const char *path, const model_params_t *params, model_row_fn get,
                                      void *user);
/* The same from flat [params->total], canonical rows where the table says. */
gyre_status_t model_checkpoint_save(const char *path, const model_params_t *params, const float *flat);

/* What tells one file from a damaged one. */
typedef struct {
    uint64_t bytes;
    uint64_t hash; /* base_hash64 of all of them */
} model_file_sum_t;
/* Reads the whole file once, in pieces. NOT_FOUND, IO, NO_MEMORY. */
gyre_status_t model_checkpoint_sum(const char *path, model_file_sum_t *sum);

/* The shape of the model in the file; heads is 0 if the file does not say. NOT_FOUND, IO, FORMAT (n_head is no number, too). */
gyre_status_t model_checkpoint_config(const char *path, model_config_t *config);

/* All rows into flat [params->total], canonical rows where the table says: model_hf_load of a file. */
gyre_status_t model_checkpoint_load(const char *path, const model_params_t *params, float *flat);

#endif
