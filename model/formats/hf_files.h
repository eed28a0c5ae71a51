/* SPDX-License-Identifier: Apache-2.0 */
/* model/formats/hf_files.h: the files of weights of a Hugging Face folder, whatever model they are of:
 * opened, their headers read and checked. For hf_read.c. */
#ifndef MODEL_FORMATS_HF_FILES_H
#define MODEL_FORMATS_HF_FILES_H

#include "model/formats/safetensors.h"

typedef struct {
    char *path; /* owned, as asked for */
    model_safetensors_file_t *file;
    size_t count;
} hf_files_t;

/* `path`: one file, or a folder with model.safetensors or with shards and their index. Errors are those of
 * model_hf_open; nothing is open then. */
gyre_status_t hf_files_open(const char *path, hf_files_t *out);
void hf_files_close(hf_files_t *files);

/* The header's entry of a tensor, and its file; NULL: no file holds it. */
const json_t *hf_files_find(const hf_files_t *files, const char *name, const model_safetensors_file_t **file);

/* Bytes of an element; 0: a type that is not known. */
size_t hf_type_bytes(const char *type);
/* 1: rows are read from tensors of this type. */
int hf_type_is_read(const char *type);
/* `count` elements of such a type at byte `at` of a file, into to [count]. IO. */
gyre_status_t hf_files_decode(const model_safetensors_file_t *file, size_t at, const char *type, float *to,
                              size_t count);
/* 1: masks, angles and numbers of positions that `transformers` has kept among weights. */
int hf_name_is_made(const char *name);

/* UNSUPPORTED: the folder's config.json, whose content is `config`, has a quantization_config, and its files
 * hold tensors that are not read: the text names the method. MXFP4 is left to the reading of its tensors. */
gyre_status_t hf_files_check_quantized(const char *folder, const json_t *config);

#endif
