/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/load/source.h: where the weights of a model come from: a Hugging Face folder, a file of weights,
 * or a checkpoint of a run. */
#ifndef PIPELINE_LOAD_SOURCE_H
#define PIPELINE_LOAD_SOURCE_H

#include <limits.h>

#include <gyre/gyre.h>

#include "model/network/params.h"
#include "model/network/stage/stage.h"
#include "pipeline/load/tokenizer.h"

typedef struct pipe_source pipe_source_t;

typedef struct {
    const char
        *path;     /* such a folder or file; a folder of checkpoints: the newest good one; or one of them */
    size_t seq;    /* positions of a sequence, at most the model's; 0: all */
    size_t leaves; /* 0: the checkpoint's, or what gyre-train takes */
    size_t heads;  /* of a file that does not say how many; 0: it says so */
    int precision; /* a model_precision_t; -1: the checkpoint's, else fp32 */
    int chosen;    /* 1: of a folder of checkpoints that of `step`, instead of the newest good one */
    uint64_t step;
} pipe_source_config_t;

/* 1: `path` is a checkpoint of a run, or a folder of checkpoints. */
int pipe_source_is_checkpoint(const char *path);
/* INVALID: `path`, which shall be a file of weights, belongs to a checkpoint. */
gyre_status_t pipe_source_check_file(const char *path);

/* Before `path`, an output of option --`flag`, is written. INVALID: it would replace the file `read`. Each
 * path may be NULL. */
gyre_status_t pipe_source_check_input(const char *flag, const char *path, const char *read);
/* Before `path`, an output of option --`flag`, is written. INVALID: it would replace `model`, a file or a
 * folder of weights or adapters; a file directly in that folder that by its name is a model's
 * (model_hf_is_file), or next to that file and read with it; the file of the tokenizer that `tokenizer`
 * names (model_tokenizer_open); or a file of any checkpoint. Each path may be NULL. */
gyre_status_t pipe_source_check_output(const char *flag, const char *path, const char *model,
                                       const char *tokenizer);
/* The same of an output of weights, which may replace those of `model`, if these are one file. */
gyre_status_t pipe_source_check_save(const char *flag, const char *path, const char *model,
                                     const char *tokenizer);

/* Before ranks open the same model: of a folder of checkpoints rank 0 chooses, since a run may write there
 * meanwhile; chosen and step are set. path NULL: nothing to choose. Collective; an error is that of every
 * rank: those of optim_snapshot_open_newest. agreed: as pipe_agree has it. */
gyre_status_t pipe_source_choose(gyre_comm_t *comm, pipe_source_config_t *config, int *agreed);
/* NOT_FOUND, IO, FORMAT, UNSUPPORTED, INVALID: the message names the file or option. */
gyre_status_t pipe_source_open(const pipe_source_config_t *config, pipe_source_t **out);
void pipe_source_close(pipe_source_t *source);

/* Complete. */
const model_config_t *pipe_source_model(const pipe_source_t *source);
model_precision_t pipe_source_precision(const pipe_source_t *source);
/* Why results may be no finite numbers, and what to do, for a message. */
const char *pipe_source_overflow(const pipe_source_t *source);
/* The step of the checkpoint; UINT64_MAX: it is not one. */
uint64_t pipe_source_step(const pipe_source_t *source);
/* Of all that the checkpoint holds; 0: it is not one. */
uint64_t pipe_source_hash(const pipe_source_t *source);
/* Where the model was that the checkpoint's run began with; NULL: it began with random weights, or does not
 * say. */
const char *pipe_source_began(const pipe_source_t *source);
/* Of the ids that a checkpoint's model has learned. */
const pipe_tokenizer_t *pipe_source_learned(const pipe_source_t *source);
/* The tokenizer that `spec` names (model_tokenizer_open). NULL: that in the model's folder, or bytes for a
 * model that has learned them or, where that is not known, has 256 ids. *out NULL: there is none, or `spec`
 * is "none". INVALID: the checkpoint is of another one (pipe_tokenizer_compare); that in the folder has other
 * ids than `spec`, unless it is "bytes"; or it cannot be read, or is another model's than the file's, and
 * `spec` is NULL. */
gyre_status_t pipe_source_tokenizer(const pipe_source_t *source, const char *spec, model_tokenizer_t **out);
/* INVALID: which tokenizer the model's ids are from is not known. */
gyre_status_t pipe_source_no_tokenizer(const pipe_source_t *source);
/* The rows of `slice`, of the table `whole` of pipe_source_model, into weights [slice->total], rounded to the
 * precision. */
gyre_status_t pipe_source_read(const pipe_source_t *source, const model_params_t *whole,
                               const model_params_t *slice, float *weights);

/* Of a checkpoint alone, whose rows are those of `whole`: files index, index + of, ... have their checksums
 * (INVALID: other rows; FORMAT, IO); elements [first, first + count) of a canonical row, in fp32 as they were
 * trained, into to [count]. */
gyre_status_t pipe_source_verify(const pipe_source_t *source, const model_params_t *whole, size_t index,
                                 size_t of);
gyre_status_t pipe_source_range(const pipe_source_t *source, const model_params_t *whole, size_t row,
                                size_t first, size_t count, float *to);

#endif
