/* SPDX-License-Identifier: Apache-2.0 */
/* gyre/train.h: train a GPT from a program, with the engine of gyre-train. It is part of libgyre-train, a
 * static library: `pkg-config --cflags --libs gyre-train`.
 *
 *     gyre_train_create      settings -> data, model and layout, ready for the first step
 *     gyre_train_resume      optional: the state of a checkpoint
 *     gyre_train_step        as often as the settings have steps
 *     gyre_train_finish      optional: the outputs that the settings name
 *     gyre_train_destroy
 *
 * Every function is collective: all ranks of the communicator call the same functions in the same order, with
 * the same arguments. Loss and weights have the bits that gyre-train gives with the same settings, in every
 * layout (docs/layouts.md).
 *
 * Errors are logged, and gyre_last_error has the text. After an error other than those that a function's
 * comment calls harmless, the training has failed on all ranks: every later call but gyre_train_destroy
 * returns the same status. */
#ifndef GYRE_TRAIN_H
#define GYRE_TRAIN_H

#include <stddef.h>
#include <stdint.h>

#include <gyre/comm.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gyre_train gyre_train_t;

/* One step. Losses are means in nats per token; all ranks get the same values, but for `seconds`. */
typedef struct {
    size_t size;            /* in: sizeof(gyre_train_stats_t) */
    uint64_t step;          /* steps so far, this one and those before a resume included */
    uint64_t tokens;        /* tokens of this step's batch, over all ranks */
    double loss;            /* over the batch, before the update */
    double validation_loss; /* after the update; NaN: the settings ask for no validation after this step */
    double grad_norm;       /* of all gradients, before they are clipped; not finite if `skipped` is 1 */
    double learning_rate;   /* of this update */
    double seconds;         /* time of the step on this rank, without validation */
    /* 0: updated. The update was skipped, 1: fp16 gradients overflowed; 2: the step was a spike
     * ("spike-loss", "spike-norm") */
    uint32_t skipped;
    uint32_t done; /* 1: this was the last step: the number of steps or the time limit is reached */
} gyre_train_stats_t;

/* Reads the data, builds the model in its layout over the ranks and initializes or loads the weights.
 *
 * comm: the ranks that train. The training gets a communicator of its own from it; `comm` stays the
 * caller's, and must outlive the training. NULL: the job's ranks; gyre_train_create then calls gyre_init,
 * and gyre_train_destroy calls gyre_finalize.
 *
 * config: a JSON object as text (it begins with '{'), or the path of a file with one. Its keys are the
 * options of gyre-train(1) without the dashes, as for its --config: {"data": "text", "zero": 1}. Missing
 * keys have gyre-train's defaults, with two exceptions: there is no report and no sample of text unless the
 * object has the keys "report" and "sample-tokens". "progress" has no effect. "device": "cuda" sets
 * CUDA_DEVICE_MAX_CONNECTIONS and CUDA_MODULE_LOADING unless they are set, so call this before CUDA starts.
 *
 * out: the caller frees *out with gyre_train_destroy. After an error there is nothing to free.
 *
 * INVALID: an argument is NULL, a key or value is wrong, the layout does not suit the ranks, or another run
 * writes to the folder of the setting "checkpoint"; NOT_FOUND, IO, FORMAT: a file; UNSUPPORTED: the device;
 * NO_MEMORY; the errors of gyre_init and gyre_comm_split. */
GYRE_API gyre_status_t gyre_train_create(gyre_comm_t *comm, const char *config, gyre_train_t **out);

/* One step: forward, backward and update of one global batch; then what the settings ask for after this step
 * (validation, a line of the log, a checkpoint). The first call also measures the validation loss before
 * training or, of a run that is resumed, one that was due and not made, which is in the log and not in
 * stats. stats: filled as far as its size says; NULL is allowed. INVALID, harmless: a wrong size, the last
 * step is done, or gyre_train_finish was called. INVALID: the loss is no longer finite. IO: the data cannot
 * be read. Also the errors of gyre_all_reduce. */
GYRE_API gyre_status_t gyre_train_step(gyre_train_t *train, gyre_train_stats_t *stats);

/* *loss: the mean over the validation sequences in nats per token, the same on all ranks; over several sets
 * the mean of theirs; NaN: there are none. Changes nothing.
 * INVALID, harmless: an argument is NULL or gyre_train_finish was called. Also the errors of
 * gyre_train_step. */
GYRE_API gyre_status_t gyre_train_evaluate(gyre_train_t *train, double *loss);

/* Writes a checkpoint of weights, optimizer and progress, and returns when it is on disk. folder: all
 * ranks must see it; it is made if it is missing, and holds the newest "checkpoint-keep" checkpoints.
 * NULL: the setting "checkpoint". INVALID, harmless: `folder` is NULL and there is no such setting, it is
 * that setting's folder, it holds the checkpoints of another run, another run writes there now, or
 * gyre_train_finish was called. IO, TIMEOUT, NO_MEMORY, harmless: the checkpoint was not written; older ones
 * are as they were. */
GYRE_API gyre_status_t gyre_train_save(gyre_train_t *train, const char *folder);

/* Takes over the newest good checkpoint of `folder`, written by gyre_train_save or by gyre-train in any
 * layout. *step: the steps that it has done; 0: there is no checkpoint, and the training begins with step
 * 1. step may be NULL. Call it before the first step. INVALID, harmless: it is too late for that, or
 * `folder` is NULL. INVALID: the checkpoint belongs to a run with other settings or data, or
 * `folder` holds checkpoints of two runs. */
GYRE_API gyre_status_t gyre_train_resume(gyre_train_t *train, const char *folder, uint64_t *step);

/* Writes the weights to rank 0's `path`: a safetensors file, or, if `path` ends in '/', a folder in Hugging
 * Face's format, which replaces an older one as a whole. INVALID, harmless: an argument is NULL,
 * gyre_train_finish was called, or the folder is a mount point or the working folder. IO, NO_MEMORY,
 * harmless: the file cannot be written. */
GYRE_API gyre_status_t gyre_train_export(gyre_train_t *train, const char *path);

/* Compares the weights of the ranks and writes what the settings "save", "log", "tensorboard", "report"
 * and "trace" name; waits for the last checkpoint. Afterwards only gyre_train_destroy may be called.
 * MISMATCH: the ranks' weights differ. IO: an output could not be written; the others were. */
GYRE_API gyre_status_t gyre_train_finish(gyre_train_t *train);

/* Frees everything. A checkpoint under way is finished, which takes up to 300 s; outputs are not written:
 * that is what gyre_train_finish does. NULL is allowed. Returns the errors of gyre_finalize or
 * gyre_comm_destroy. */
GYRE_API gyre_status_t gyre_train_destroy(gyre_train_t *train);

#ifdef __cplusplus
}
#endif
#endif
