/* model/checkpoint.h: weights as safetensors, under Hugging Face's GPT-2 names, so that other tools read them.
 *
 * The file: u64 header bytes, JSON header {name: {dtype, shape, data_offsets}, __metadata__}, data; little-endian
 * (https://github.com/huggingface/safetensors). Linear weights are [in, out], as GPT-2's are. The number of heads,
 * which no shape tells, stands in the metadata as "n_head". */
#ifndef MODEL_CHECKPOINT_H
#define MODEL_CHECKPOINT_H

#include "model/params.h"

/* Writes flat [params->total] as base/file.h does: a reader never sees half a file, and a full disk leaves the old
 * one. IO. */
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

/* Fills flat [params->total]. Every row of the table must be there as F32 in its shape; names may lack the prefix
 * "transformer.", as in GPT-2's own files; other tensors are ignored. FORMAT names the tensor. flat is set on success
 * only in so far as a failed read may leave part of it overwritten. */
gyre_status_t model_checkpoint_load(const char *path, const model_params_t *params, float *flat);

#endif
