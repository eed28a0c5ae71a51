/* model/checkpoint.h: the weights of a whole model as one safetensors file, under Hugging Face's names, so that other tools
 * read them and theirs are read (model/names.h).
 *
 * The file: u64 header bytes, JSON header {name: {dtype, shape, data_offsets}, __metadata__}, data; little-endian
 * (https://github.com/huggingface/safetensors). F32 is written; F32, BF16 and F16 are read. The number of heads,
 * which no shape tells, stands in the metadata as "n_head". Tables of parameters are whole ones. */
#ifndef MODEL_CHECKPOINT_H
#define MODEL_CHECKPOINT_H

#include "model/params.h"

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

typedef struct model_checkpoint model_checkpoint_t;
/* Opens it for this table. Every tensor must be there in its shape; GPT-2's names may lack the prefix "transformer.", as in
 * its own files; other tensors are ignored. NOT_FOUND, IO, NO_MEMORY; FORMAT names the tensor. */
gyre_status_t model_checkpoint_open(const char *path, const model_params_t *params, model_checkpoint_t **out);
/* Canonical row `row` of the table, not that of a tied head. IO, FORMAT: the file ends early. */
gyre_status_t model_checkpoint_row(model_checkpoint_t *checkpoint, size_t row, float *canonical);
void model_checkpoint_close(model_checkpoint_t *checkpoint);

/* All rows into flat [params->total]. On failure part of it may be overwritten. */
gyre_status_t model_checkpoint_load(const char *path, const model_params_t *params, float *flat);

#endif
