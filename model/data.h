/* model/data.h: bytes of text files as tokens (vocabulary 256), split into training and validation, and cut into
 * sequences that depend on (seed, step, index) only: never on the number of ranks.
 *
 * A folder is read recursively, files in the order of their paths, one behind the other. Skipped in folders: names
 * that begin with a dot, symbolic links (they would repeat text), and files with a zero byte in their first 8 KiB. */
#ifndef MODEL_DATA_H
#define MODEL_DATA_H

#include <stddef.h>
#include <stdint.h>

#include <gyre/status.h>

#include "model/kernels.h"

#define MODEL_DATA_VOCAB 256

typedef struct {
    unsigned char *text;    /* [bytes] */
    size_t bytes;           /* training part first */
    size_t train;           /* bytes of the training part; the rest, the last tenth, is for validation */
    size_t files;           /* read */
    size_t skipped;         /* files in the folder that do not look like text */
    double unigram_entropy; /* of all bytes, nats per byte: the loss of a model that knows frequencies only */
} model_data_t;

/* Reads `path`, a file or folder. NOT_FOUND, IO, NO_MEMORY, FORMAT (nothing to read): the text names the path and the
 * way out. Freed by model_data_destroy. */
gyre_status_t model_data_open(const char *path, model_data_t **out);
void model_data_destroy(model_data_t *data);

/* INVALID unless each part holds a sequence of `seq` tokens and its targets; `path` is named in the message. */
gyre_status_t model_data_check(const model_data_t *data, const char *path, size_t seq);

/* Sequence `index` of step `step`: tokens, targets [seq] from a uniform place in the training part. */
void model_data_train(const model_data_t *data, uint64_t seed, uint64_t step, size_t index, size_t seq,
                      model_token_t *tokens, model_token_t *targets);

/* Sequences that lie side by side in the validation part. */
size_t model_data_validation_count(const model_data_t *data, size_t seq);
void model_data_validation(const model_data_t *data, size_t index, size_t seq, model_token_t *tokens,
                           model_token_t *targets);

#endif
