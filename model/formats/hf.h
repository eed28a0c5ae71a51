/* SPDX-License-Identifier: Apache-2.0 */
/* model/formats/hf.h: models in Hugging Face's form: a folder with config.json and model.safetensors, or with
 * shards and model.safetensors.index.json (https://github.com/huggingface/safetensors).
 *
 * Both directions go row by row of the parameter table, in canonical order, so neither needs the whole model
 * in memory. A reader has at most one row in memory; a writer gets rows one by one. model/network/names.h has
 * names, orientation and pieces. */
#ifndef MODEL_FORMATS_HF_H
#define MODEL_FORMATS_HF_H

#include "model/network/names.h"

/* ---- reading ------------------------------------------------------------------------------------------- */

typedef struct model_hf model_hf_t;

/* The configuration in FOLDER/config.json (model_config_from_json). */
gyre_status_t model_hf_config(const char *folder, model_config_t *out);

/* Opens `path`: such a folder, or one safetensors file. `params`: the table whose rows are to be read, whole
 * or a slice, which must outlive the object. Headers are read. Every tensor of every header is checked: type,
 * shape, offsets and file size agree, no two overlap, no name is in two files. NOT_FOUND, IO, FORMAT,
 * NO_MEMORY. */
gyre_status_t model_hf_open(const char *path, const model_params_t *params, model_hf_t **out);
void model_hf_close(model_hf_t *hf);

/* Reads elements [first, first + count) of a canonical row (model/network/params.h) into to [count]. File
 * types: F32, BF16 and F16. Names may lack their first part ("transformer.", "model."), as in files of base
 * models. A tied head is read from the embedding's tensor. If a file holds a row in the row's own order
 * (embeddings, vectors, GPT-2's matrices that are cut by rows), only the range is read. A row that is
 * transposed, in pieces or woven by head is read whole, with memory for it and for one of its tensors. FORMAT
 * names the tensor that is missing or has another shape. NO_MEMORY. */
gyre_status_t model_hf_read(const model_hf_t *hf, const model_param_t *row, size_t first, size_t count,
                            float *to);
/* All rows of a table, whole or a slice, into flat [params->total]. */
gyre_status_t model_hf_load(const char *path, const model_params_t *params, float *flat);

/* ---- writing ------------------------------------------------------------------------------------------- */

typedef enum { MODEL_HF_F32, MODEL_HF_BF16, MODEL_HF_F16 } model_hf_type_t;
typedef struct model_hf_writer model_hf_writer_t;

/* Begins an export of a whole table into `folder`, which is made if absent. shard_bytes: files of at most so
 * many bytes of tensors (one tensor may be more); 0: one file. Each file appears whole (base/file.h), the
 * index after the shards, config.json last: a folder with config.json is complete. An older model in the
 * folder is removed first: its config.json, then its index, then its model.safetensors, so it never hides the
 * new one. IO, NO_MEMORY. */
gyre_status_t model_hf_create(const char *folder, const model_params_t *params, model_hf_type_t type,
                              size_t shard_bytes, model_hf_writer_t **out);
/* Writes the next row of the table, in its order; `canonical`: all of it. A tied head has no tensor and may
 * be left out. IO. */
gyre_status_t model_hf_write(model_hf_writer_t *writer, size_t row, const float *canonical);
/* Ends the export, with success only if all rows were written; frees. */
gyre_status_t model_hf_finish(model_hf_writer_t *writer);
/* Ends the export early: complete files stay, there is no config.json. NULL is allowed. */
void model_hf_abandon(model_hf_writer_t *writer);

#endif
