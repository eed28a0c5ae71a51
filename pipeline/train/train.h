/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/train/train.h: one training step in any layout: tensor x pipeline x data parallelism, ZeRO,
 * sequence parallelism.
 *
 * It makes the groups, gives each rank its slice of the model, and joins what the modules offer: stages
 * (model/network/stage/stage.h) are what the executor's callbacks run (pipeline/run/executor.h),
 * optim/store/zero.h is the store that they work on and the update after them. Loss, gradient norm and
 * weights are the same bits in every layout (docs/layouts.md). */
#ifndef PIPELINE_TRAIN_TRAIN_H
#define PIPELINE_TRAIN_TRAIN_H

#include "model/data/data.h"
#include "base/device/device.h"
#include "model/spans.h"
#include "model/network/stage/stage.h"
#include "optim/store/lora.h"
#include "pipeline/run/executor.h"
#include "pipeline/plan/layout.h"

typedef struct {
    model_config_t model;
    pipe_layout_t layout;
    optim_batch_t batch;
    optim_zero_config_t zero; /* stage, share and precision are filled in from what stands here */
    model_precision_t precision;
    int matmul_bf16; /* model_stage_config_t.matmul_bf16 */
    model_recompute_t recompute;
    int offload_activations; /* model_stage_config_t.offload */
    model_graphs_t graphs;   /* of a GPU: model_stage_config_t.graphs */
    model_isa_t isa;
    base_device_t device; /* that stages compute on; zeros: the CPU */
    uint64_t seed;        /* of the initial weights and of dropout */
    const char *freeze;   /* rows that are not trained (model_params_freeze); NULL: none. Not on a GPU */
    /* of what is trained, the weights or adapters: model_params_rates, _decays; NULL: none. Not on a GPU */
    const char *rates, *decays;
    model_lora_t lora; /* adapters that are trained instead of the weights; zeros: none. Not on a GPU */
    size_t threads;    /* of this rank, on the CPU; 0: its share of the processors (pipe_threads_share) */
    int documents;     /* 1: sequences have documents that do not see one another (model_sequence_t) */
} pipe_train_config_t;

typedef struct pipe_train pipe_train_t;

/* What it holds with a batch of `batch` sequences, for pipe_layout_complete. */
pipe_load_t pipe_train_load(const pipe_train_config_t *config, size_t batch);

/* Writes sequence `index` of the present global batch (or validation set) to *out, whose prefix is 0 before;
 * positions are asked for by a model with prefixes and rotary positions, documents by config.documents.
 * Called on the ranks that hold the first or the last stage, with prefixes or documents on all. An error,
 * which is logged, ends the step on all ranks before it changes anything. */
typedef gyre_status_t (*pipe_fetch_fn)(void *user, size_t index, model_example_t *out);

/* Makes it over `world`, which must outlive it. INVALID (pipe_layout_check, optim_batch_check, ...),
 * NO_MEMORY, errors of the communicator. Weights are not initialised: optim_zero_init or a checkpoint.
 *
 * In four steps, so that ranks can agree on what one of them lacks (memory, room on a disk) before
 * any waits for it: the groups, which is collective; what is planned, and what is made, which is local;
 * the rest, which is collective. Between them pipe_train_destroy is all that may be called, and after the
 * second pipe_train_need; strings in `config` must last until the third is done. */
gyre_status_t pipe_train_begin(gyre_comm_t *world, const pipe_train_config_t *config, pipe_train_t **out);
gyre_status_t pipe_train_plan(pipe_train_t *train);
gyre_status_t pipe_train_make(pipe_train_t *train);
/* Bytes of host memory that this rank's third step will take at least: weights, gradients, optimiser state,
 * and what is kept of sequences between forward and backward, on the CPU. */
gyre_status_t pipe_train_need(const pipe_train_t *train, uint64_t *bytes);
gyre_status_t pipe_train_join(pipe_train_t *train);

/* The end, in this order: what operations use is freed when they cannot use it any more, which after an error
 * is so only once their communicator is gone (docs/transports.md, "Buffers after an error").
 *
 *     pipe_train_abort     if this rank cannot go on, and others may not know: ends what is under way in its
 *                          groups, on all of their ranks. world is the caller's to abort.
 *     pipe_train_leave     waits for what is under way, and destroys the groups
 *     gyre_finalize        world
 *     pipe_train_release   frees everything but the tables of rows
 *     pipe_train_destroy   the rest
 *
 * Each does what those above it have not done; NULL is allowed. */
void pipe_train_abort(pipe_train_t *train, const char *reason);
void pipe_train_leave(pipe_train_t *train);
void pipe_train_release(pipe_train_t *train);
void pipe_train_destroy(pipe_train_t *train);

#define PIPE_NOTES 2
#define PIPE_ASKS  4 /* bits that any rank may set for all to see; what they mean is the caller's */
typedef struct {
    double loss;             /* mean over the learned positions of the global batch, nats per token */
    double learned;          /* these positions */
    model_spans_t *spans;    /* in: where this rank notes what it does; NULL: nobody asks */
    unsigned asked;          /* in: what this rank asks for, PIPE_ASKS bits; out: what any rank does */
    double limit[2];         /* in: the largest loss and norm whose update is made (zero.spiked); 0: any */
    double note[PIPE_NOTES]; /* in: world rank 0's word to all ranks; out: that word, on every rank */
    /* of models with experts, else NaN: what balancing adds to the loss that is differentiated, to 2^-40 of
     * each layer and sequence, and the part of all choices that were dropped. The former is the sum over
     * sequences, divided as the loss is: the mean over the batch, times its positions over those that are
     * learned, if there are any. */
    double balance, dropped;
    /* The z-losses that the loss that is differentiated has in addition, to 2^-40 of each sequence: of the
     * logits, mean over the learned positions; of routers as balance. NaN: there are none. */
    double z_loss, router_z;
    optim_zero_step_t zero; /* norm, skipped, traffic and the times of data parallelism */
    double join_s;          /* of this rank: joining the losses, and waiting for the slowest there */
    double pipe_wait_s;     /* of this rank: waiting for its neighbours */
    double tensor_s;        /* in callbacks: in collectives of the groups of tp and cp */
} pipe_train_step_t;

/* Between two steps: the next have `batch` sequences, at most as many as it was created for
 * (optim_batch_sized says in which groups). What a step works in is made anew; weights and state stay. Every
 * rank must call it with the same number; nothing is done where the batch has it. INVALID, NO_MEMORY: no
 * further step can be made. */
gyre_status_t pipe_train_resize(pipe_train_t *train, size_t batch);

/* Forward, backward and update number `step` (0-based; it keys dropout) at learning rate `rate`.
 * Collective over world. */
gyre_status_t pipe_train_step(pipe_train_t *train, uint64_t step, pipe_fetch_fn fetch, void *user,
                              double rate, pipe_train_step_t *out);

/* Mean loss over the learned positions of sequences 0 .. count - 1 of `fetch`; the same bits in every layout.
 * Collective over world. asks: what this rank asks for at present (PIPE_ASKS bits); NULL: nothing. The ranks
 * compare that now and then, a second or so of a processor core apart. If any asks for something, they all
 * stop: *asked has the bits of all ranks, and *loss is NaN. */
typedef unsigned (*pipe_asks_fn)(void *user);
gyre_status_t pipe_train_evaluate(pipe_train_t *train, pipe_fetch_fn fetch, void *user, size_t count,
                                  pipe_asks_fn asks, unsigned *asked, double *loss);

/* 1: the last step or evaluation failed because a rank could not read a sequence. Each such rank has logged
 * its first one, and all ranks have the error. */
int pipe_train_unread(const pipe_train_t *train);

/* What it is made of; all borrowed. The whole table of weights; what is trained, with its state, and its
 * whole table: the weights, or their adapters (config.lora); with adapters the weights, else NULL; the
 * layout. */
const model_params_t *pipe_train_whole(const pipe_train_t *train);
optim_zero_t *pipe_train_zero(pipe_train_t *train);
const model_params_t *pipe_train_table(const pipe_train_t *train);
optim_zero_t *pipe_train_base(pipe_train_t *train);
const pipe_layout_t *pipe_train_layout(const pipe_train_t *train); /* complete */
/* Of this rank, on the CPU; 1 on a GPU. */
size_t pipe_train_threads(const pipe_train_t *train);
/* Bytes of activations (slots and workspace) and of boundary tensors, those of an evaluation among them. */
size_t pipe_train_activation_bytes(const pipe_train_t *train);

/* optim_zero_init of one of its two stores, by its threads. */
gyre_status_t pipe_train_init(pipe_train_t *train, optim_zero_t *store, uint64_t seed);
/* optim_zero_memory, _verify, _digest of all that it holds. */
void pipe_train_memory(const pipe_train_t *train, size_t bytes[OPTIM_MEMORY_KINDS]);
gyre_status_t pipe_train_verify(pipe_train_t *train);
gyre_status_t pipe_train_digest(pipe_train_t *train, uint64_t *digest);
/* NULL: all weights are trained. */
const model_adapters_t *pipe_train_adapters(const pipe_train_t *train);
/* Collective: adapter `i` on rank 0, canonical A and then B, as stages compute with them, in the precision of
 * the run; `factors` is NULL on other ranks. Errors of optim_zero_gather_row. */
gyre_status_t pipe_train_gather_adapter(pipe_train_t *train, size_t i, float *factors);
/* optim_zero_gather_row of the whole table, with adapters merged. */
gyre_status_t pipe_train_gather_row(pipe_train_t *train, size_t row, float *canonical);

#endif
