/* SPDX-License-Identifier: Apache-2.0 */
/* model/formats/safetensors.h: the container of tensors that Hugging Face defined, little-endian
 * (https://github.com/huggingface/safetensors):
 *
 *     u64 bytes of the header | header: JSON {name: {dtype, shape, data_offsets}, __metadata__: {...}} | data
 *
 * The header is padded: data begin at a multiple of 8 bytes. Other files know the meaning of tensors:
 * model/formats/weights.h, model/formats/hf.h, optim/checkpoint/shards.h. */
#ifndef MODEL_FORMATS_SAFETENSORS_H
#define MODEL_FORMATS_SAFETENSORS_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "base/file.h"
#include "base/hash.h"

/* ---- writing ------------------------------------------------------------------------------------------- */

/* A file that is being written: first the list of its tensors, then their data. Zeros at the beginning. */
typedef struct {
    json_t *header; /* owned; until the data begin */
    int bad;        /* 1: there was no memory for it */
    size_t data;    /* bytes before the data, set by ..._begin; until then: of the tensors */
    base_file_t file;
    int open;
    base_hash_t *hash; /* of all bytes so far; NULL: not computed */
    uint64_t bytes;    /* so far */
    size_t unsynced;   /* of them, at the end */
} model_safetensors_t;

/* Puts `metadata` (a new reference, an object of texts) before the tensors. */
void model_safetensors_metadata(model_safetensors_t *to, json_t *metadata);
/* The next tensor, whose data follow those before it: `bytes` of `dtype`, shape [dims]. */
void model_safetensors_tensor(model_safetensors_t *to, const char *name, const char *dtype,
                              const size_t *shape, size_t dims, size_t bytes);
/* Opens the file as base/file.h does and writes the header. NO_MEMORY, IO; after an error the file is
 * closed. */
gyre_status_t model_safetensors_begin(model_safetensors_t *to, const char *path);
/* Data, in the order of the tensors. They are synced as they come, MODEL_SAFETENSORS_SYNC at a time: other
 * ranks may wait for the one that writes, and no call may take as long as the sync of a whole file. IO. */
#define MODEL_SAFETENSORS_SYNC ((size_t)32 << 20)
gyre_status_t model_safetensors_put(model_safetensors_t *to, const void *data, size_t bytes);
/* finish: puts the file in its place; IO. drop: discards it, in any state. Both leave zeros. */
gyre_status_t model_safetensors_commit(model_safetensors_t *to);
void model_safetensors_abandon(model_safetensors_t *to);

/* ---- reading ------------------------------------------------------------------------------------------- */

/* An open file; zeros if closed. */
typedef struct {
    char *path; /* owned */
    int fd;
    size_t bytes, data; /* of the file; where its tensors begin */
    json_t *header;     /* an object; its members are not checked */
} model_safetensors_file_t;

/* NOT_FOUND, IO, FORMAT, NO_MEMORY; then nothing is open. */
gyre_status_t model_safetensors_open(const char *path, model_safetensors_file_t *out);
void model_safetensors_close(model_safetensors_file_t *file);

#endif
