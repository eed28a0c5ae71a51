/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/train/worker.h: what computes a chunk of the pipeline: a stage on the CPU
 * (model/network/stage/stage.h) or on a GPU (model/gpu/stage/stage.h), with one set of calls. On a GPU
 * tensors between stages lie in its memory and calls enqueue; losses come with pipe_gpu_finish. */
#ifndef PIPELINE_TRAIN_WORKER_H
#define PIPELINE_TRAIN_WORKER_H

#include "base/device/device.h"
#include "model/gpu/stage/store.h"
#include "model/spans.h"
#include "model/network/stage/stage.h"

/* A rank's GPU: the stream that its stages and its optimiser (optim/store/zero.h) work on. */
typedef struct pipe_gpu pipe_gpu_t;

/* On CUDA device `index`, which becomes this thread's current one. `losses`: of how many sequences they are
 * outstanding at a time without waiting. UNSUPPORTED (no CUDA, no driver), NO_MEMORY, errors of the
 * device. */
gyre_status_t pipe_gpu_create(int index, size_t losses, pipe_gpu_t **out);
/* After its workers and the optimiser. NULL is allowed. */
void pipe_gpu_destroy(pipe_gpu_t *gpu);
/* The cudaStream_t. */
void *pipe_gpu_stream(const pipe_gpu_t *gpu);
/* Zeros, after the work so far; gpu NULL: host memory, now. */
gyre_status_t pipe_gpu_zero(pipe_gpu_t *gpu, void *memory, size_t bytes);
/* Waits for all work, and delivers the losses and what routers did. NULL: nothing. */
gyre_status_t pipe_gpu_finish(pipe_gpu_t *gpu);
/* Operations per second of the best of some products of the precision, ever larger until they take 5 ms. */
gyre_status_t pipe_gpu_peak(base_device_t device, model_precision_t precision, double *flops);

typedef struct pipe_worker pipe_worker_t;

/* Gets what the router of a layer did with a sequence that is trained on. */
typedef void (*pipe_routed_fn)(void *user, const model_routed_t *routed);

/* Arguments as of model_stage_create; gpu NULL: on the CPU, with its store and isa. */
typedef struct {
    const model_params_t *params;
    const model_tp_t *tp;
    const model_stage_config_t *config;
    const model_store_t_f32 *store;       /* on the CPU */
    const model_cuda_store_t *cuda_store; /* on a GPU */
    model_isa_t isa;
    pipe_gpu_t *gpu;
    /* of a model with experts: called for each layer and sequence in forward, on a GPU in pipe_gpu_finish;
     * NULL: nobody asks. Workers of one GPU have the same */
    pipe_routed_fn routed;
    /* of a model with config.z_loss, on the CPU: called in backward with the z-loss of each sequence's
     * logits; NULL: nobody asks */
    void (*z_loss)(void *user, double z);
    void *user;
} pipe_worker_config_t;
gyre_status_t pipe_worker_create(const pipe_worker_config_t *config, pipe_worker_t **out);
void pipe_worker_destroy(pipe_worker_t *worker);

/* Elements of the tensor between stages of one sequence, and their type. */
size_t pipe_worker_boundary(const pipe_worker_t *worker);
gyre_type_t pipe_worker_type(const pipe_worker_t *worker);
size_t pipe_worker_bytes(const pipe_worker_t *worker); /* of activations and workspace, wherever they are */
base_time_t
pipe_worker_exposed(const pipe_worker_t *worker); /* model_stage_exposed; on a GPU nobody waits there: 0 */
/* model_stage_watch; on a GPU passes are waited for while somebody watches, so that they take as long as
 * there. */
void pipe_worker_watch(pipe_worker_t *worker, model_spans_t *spans);
/* model_stage_*_batch. in, out, d_out, d_in: of the type above, in host memory or on the GPU. With the head,
 * the loss of sequence j is written to loss[j * step] by forward on a GPU (in pipe_gpu_finish) and forward of
 * an evaluation, else by backward; loss NULL: nobody asks. */
gyre_status_t pipe_worker_forward(pipe_worker_t *worker, size_t slot, size_t n,
                                  const model_sequence_t *sequence, const void *in, void *out, double *loss,
                                  size_t step);
gyre_status_t pipe_worker_backward(pipe_worker_t *worker, size_t slot, size_t n, float scale,
                                   const void *d_out, void *d_in, double *loss, size_t step);
gyre_status_t pipe_worker_backward_weight(pipe_worker_t *worker, size_t slot, size_t n);

#endif
