/* SPDX-License-Identifier: Apache-2.0 */
/* model/formats/hf.h: models in Hugging Face's form: a folder with config.json and model.safetensors, or with
 * shards and model.safetensors.index.json (https://github.com/huggingface/safetensors).
 *
 * Both directions go row by row of the parameter table, in canonical order, so neither needs the whole model
 * in memory. A reader has at most one row in memory; a writer gets rows one by one. model/network/names.h has
 * names, orientation and pieces. */
#ifndef MODEL_FORMATS_HF_H
#define MODEL_FORMATS_HF_H

#include "model/formats/peft.h"
#include "model/network/names.h"

/* ---- reading ------------------------------------------------------------------------------------------- */

typedef struct model_hf model_hf_t;

/* The configuration in FOLDER/config.json, for sequences of `seq` tokens (model_config_from_json).
 * UNSUPPORTED, too: its weights are quantized; the text names the method. */
gyre_status_t model_hf_config(const char *folder, size_t seq, model_config_t *out);
/* 1: `path` is a file with weights of `model`, and the config.json next to it is of another one, which *next
 * becomes: so are the tokenizer and all else there. 0: they are the file's, as far as is known. */
int model_hf_foreign(const char *path, const model_config_t *model, model_config_t *next);

/* Opens `path`: such a folder, or one safetensors file. `params`: the table whose rows are to be read, whole
 * or a slice, which must outlive the object. Headers are read. Every tensor of every header is checked: type,
 * shape, offsets and file size agree, no two overlap, no name is in two files. NOT_FOUND (the text names the
 * file of the folder that is missing), IO, FORMAT, NO_MEMORY. */
gyre_status_t model_hf_open(const char *path, const model_params_t *params, model_hf_t **out);
void model_hf_close(model_hf_t *hf);
/* Rows are read with these adapters merged, in fp32. They must outlive the object. */
void model_hf_merge(model_hf_t *hf, const model_peft_t *adapters);
/* Warns, on rank 0, of tensors that the files hold and the model has no place for. */
void model_hf_report(const model_hf_t *hf);

/* Reads elements [first, first + count) of a canonical row (model/network/params.h) into to [count]. File
 * types: F32, BF16 and F16. Names may lack their first part ("transformer.", "model."), as in files of base
 * models. A tied head is read from the embedding's tensor. A file may have more learned positions than the
 * table: the first ones are read. If a file holds a row in the row's own order
 * (embeddings, vectors, GPT-2's matrices that are cut by rows), only the range is read. A row that is
 * transposed, in pieces, woven by head or merged with adapters is read whole, with memory for it and for one
 * of its tensors, and kept for its next range, until another such row is read. FORMAT names the tensor that
 * is missing or has another shape. NO_MEMORY. One thread at a time. */
gyre_status_t model_hf_read(model_hf_t *hf, const model_param_t *row, size_t first, size_t count, float *to);
/* A hash of a few numbers from the middle of each tensor: the same for the same weights in other files, or of
 * another type that holds them. Errors as of model_hf_read. */
gyre_status_t model_hf_sample(const model_hf_t *hf, uint64_t *hash);
/* All rows of a table, whole or a slice, into flat [params->total]; with model_hf_report. */
gyre_status_t model_hf_load(const char *path, const model_params_t *params, float *flat);

/* The type of the weights in the files of a model: BF16 if all of them are; else F32, which holds the values
 * of all types. */
typedef enum { MODEL_HF_F32, MODEL_HF_BF16, MODEL_HF_F16 } model_hf_type_t;
model_hf_type_t model_hf_type(const model_hf_t *hf);
/* Rows of the files' table of learned positions that the sequences of a model use (all but pos_offset); 0: no
 * such table. */
size_t model_hf_positions(const model_hf_t *hf);

/* ---- what a trained model keeps of the model that it was loaded from ----------------------------------- */

typedef struct model_hf_origin model_hf_origin_t;

/* 1: a file of that name is the tokenizer's or of the settings of generation: of its model, and kept. */
int model_hf_keeps(const char *name);
/* 1: a file of that name belongs to a model's folder: configuration, weights or adapters, of any form, or
 * what model_hf_keeps. Others there are the user's, such as the results of a run. */
int model_hf_is_file(const char *name);
/* Reads into memory what an export takes from `path` (as for model_hf_open): the keys of config.json, of a
 * folder; the files of tokenizer and generation, also those next to a single file with its config.json;
 * the folder's Python files, if `auto_map` names some; and learned positions beyond those of `trained`, the
 * whole table. The files are not needed afterwards. NOT_FOUND, IO, FORMAT, NO_MEMORY. */
gyre_status_t model_hf_origin_open(const char *path, const model_params_t *trained, model_hf_origin_t **out);
void model_hf_origin_close(model_hf_origin_t *origin);
/* The table to be exported: `trained`, but with all positions of the files. Borrowed. Rows have the same
 * numbers; one with more positions has them at its end. */
const model_params_t *model_hf_origin_params(const model_hf_origin_t *origin);
/* Puts into canonical row `row` of that table what is beyond the row of `trained`. */
void model_hf_origin_fill(const model_hf_origin_t *origin, size_t row, float *canonical);
model_hf_type_t model_hf_origin_type(const model_hf_origin_t *origin);
/* For the writer: config.json of a model of the shape `config`, with the origin's keys where training has not
 * changed them: a new reference. And the files, into `folder`. */
gyre_status_t model_hf_origin_config(const model_hf_origin_t *origin, const model_config_t *config,
                                     json_t **out);
gyre_status_t model_hf_origin_copy(const model_hf_origin_t *origin, const char *folder);

/* ---- writing ------------------------------------------------------------------------------------------- */

typedef struct model_hf_writer model_hf_writer_t;

/* Bytes of a file of an exported model, as `transformers` cuts them. */
#define MODEL_HF_SHARD_BYTES ((size_t)5000000000)

/* Begins an export of a whole table into `folder`. It is written next to its place and exchanged by
 * model_hf_finish (base/folder.h): until then, and after any failure, an older model there is as it was.
 * Files of an older model, its tokenizer's among them, do not stay; other files do. shard_bytes: files of at
 * most so many bytes of tensors (one tensor may be more); 0: one file. origin: what the model keeps of
 * another one; it must outlive the writer; NULL: nothing. IO, INVALID (base_folder_begin), NO_MEMORY. */
gyre_status_t model_hf_create(const char *folder, const model_params_t *params, model_hf_type_t type,
                              size_t shard_bytes, const model_hf_origin_t *origin, model_hf_writer_t **out);
/* Writes the next row of the table, in its order; `canonical`: all of it. A tied head has no tensor and may
 * be left out. IO. */
gyre_status_t model_hf_write(model_hf_writer_t *writer, size_t row, const float *canonical);
/* Ends the export, with success only if all rows were written; frees. */
gyre_status_t model_hf_finish(model_hf_writer_t *writer);
/* Ends the export early: the folder is as it was. NULL is allowed. */
void model_hf_abandon(model_hf_writer_t *writer);

#endif
