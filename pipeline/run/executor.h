/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/run/executor.h: runs any pipeline schedule over a communicator of the pipeline's ranks.
 *
 * The executor owns the order, the messages and the buffers between stages. Callbacks compute.
 * pipeline/schedules/program.h fixes where the executor waits and for what. The checker proves the same data:
 * a schedule that the checker refuses is not run.
 *
 * On a GPU (config.links) everything runs in stream order (pipeline/run/links.h): the computation's stream
 * waits, and the host only enqueues.
 *
 * A boundary tensor is what one stage hands to the next for one micro-batch, `count` elements. Its gradient
 * on the way back is one, too. The buffers come from gyre_mem_alloc once, when the executor is made: as many
 * as the schedule keeps alive at a time, one more of each kind so that a message can come while another is
 * worked on, and two of each kind to send from. Receives are posted ahead. A send is waited for when its
 * buffer is needed again. After the first step nothing is allocated.
 *
 * Messages also move while a callback computes. Between ranks of one host that needs no thread: the receiver
 * reads the sender's buffer where it lies. Over the network the adapter moves them, and each thread that
 * calls Gyre. So a callback that computes for long calls pipe_executor_progress from time to time, or the
 * communicator has a progress thread (GYRE_PROGRESS_THREAD). */
#ifndef PIPELINE_RUN_EXECUTOR_H
#define PIPELINE_RUN_EXECUTOR_H

#include <gyre/collectives.h>

#include "base/clock.h"
#include "base/device/device.h"
#include "pipeline/run/links.h"
#include "pipeline/schedules/schedule.h"

/* Flags that a callback gets in addition to its tensors. */
enum {
    PIPE_INPUT_ONLY =
        1, /* backward: the gradient of the input only; backward_weight comes later for this micro-batch */
    PIPE_LAST =
        2 /* backward or backward_weight: with it this chunk's weight gradients are final in this step */
};

/* The work of one chunk on one micro-batch, always in the caller's thread. Any status but GYRE_OK ends the
 * step; the callback sets the error's text with gyre_fail (base/error.h). Callbacks may call Gyre on other
 * communicators, not on the executor's. The calls of a tensor-parallel group come in the same order on all
 * ranks of the group, since these ranks run the same schedule.
 *
 *   forward          in -> out. in is NULL on the first stage (the chunk reads the batch itself), out is NULL
 *                    on the last (the chunk computes the loss).
 *   backward         d_out -> d_in: gradients by out and in. d_out is NULL on the last stage, d_in on the
 *                    first. Without PIPE_INPUT_ONLY it also adds to the weights' gradients.
 *   backward_weight  adds to the weights' gradients for a micro-batch whose backward had PIPE_INPUT_ONLY.
 *                    May be NULL if the schedule does not split (pipe_kind_splits).
 *
 * in [count] stays as it is until this micro-batch's backward pass is over on this chunk. d_out stays until
 * the weight gradient is done (with a split schedule: until backward_weight returns). So a callback may keep
 * pointers instead of copies. A callback may write neither of the two. A callback must write out and d_in
 * whole: they are undefined before and belong to the executor once the callback returns. Micro-batches of a
 * chunk come in the order 0, 1, ... in each of the three. */
typedef struct {
    gyre_status_t (*forward)(void *user, int chunk, int micro_batch, const void *in, void *out);
    gyre_status_t (*backward)(void *user, int chunk, int micro_batch, const void *d_out, void *d_in,
                              unsigned flags);
    gyre_status_t (*backward_weight)(void *user, int chunk, int micro_batch, unsigned flags);
} pipe_callbacks_t;

typedef struct {
    pipe_callbacks_t call;
    void *user;
    size_t count;          /* elements of a boundary tensor, of the largest micro-batch */
    const size_t *counts;  /* [micro_batches] elements of each, at most `count`; copied. NULL: all `count` */
    gyre_type_t type;      /* of activations */
    gyre_type_t grad_type; /* of their gradients */
    /* NULL: on the host. Connected before the first step. On a GPU the boundary tensors lie in the GPU's
     * memory. Callbacks and the executor enqueue on the links' stream, and a step returns when all is
     * enqueued. A caller that has waited for that stream then calls pipe_links_error. */
    base_device_t device;
    pipe_links_t *links;
} pipe_executor_config_t;

typedef struct pipe_executor pipe_executor_t;

/* Not collective, but every rank of comm must run the same shape with the same sizes. INVALID, OVERFLOW,
 * NO_MEMORY.
 *
 * comm: of shape.ranks ranks, in the order of the pipeline. comm must outlive the executor, and no other code
 * may use comm during a step. The schedule is copied, and proved first (pipe_check; beyond 262,144 actions of
 * all ranks together the generators are trusted). Several executors may share a communicator (one that
 * trains, one that evaluates), as long as all ranks run their steps in the same order. */
gyre_status_t pipe_executor_create(gyre_comm_t *comm, const pipe_schedule_t *schedule,
                                   const pipe_executor_config_t *config, pipe_executor_t **out);
/* NULL is allowed. Where a step has failed destroy the communicator first: over UCX it may use the buffers
 * until then (docs/transports.md). */
void pipe_executor_destroy(pipe_executor_t *executor);

/* One batch through the pipeline: all actions of this rank. Returns when its last action is done and its
 * messages have been taken; other ranks may still be at work. Collective over comm.
 *
 * A callback's error is returned here with a text that names rank, stage, chunk and micro-batch. The error
 * ends the step on all ranks with ABORTED (gyre_comm_abort): the communicator is dead then, and so is every
 * executor on it. Errors of the communicator are passed on. After an error every further step returns the
 * same status. */
gyre_status_t pipe_executor_step(pipe_executor_t *executor);

/* On a GPU: while watched, the host waits for what comes from another stage, so that the timeline separates
 * waits from work. */
void pipe_executor_watch(pipe_executor_t *executor, int watched);

/* For callbacks that compute for long: moves what is under way, without blocking. */
gyre_status_t pipe_executor_progress(pipe_executor_t *executor);

/* One event per computing action of the last step, in order. */
typedef struct {
    pipe_op_t op;
    int stage, chunk, micro_batch;
    base_time_t start, end; /* base_now() around the callback */
    base_time_t waited;     /* directly before it: for its input, or for room for its output */
} pipe_event_t;
/* events: borrowed, valid until the next step. Returns their number; 0 before the first step. */
size_t pipe_executor_timeline(const pipe_executor_t *executor, const pipe_event_t **events);

typedef struct {
    double
        /* of the last step on this rank, from call to return; on a GPU of its stream, once that was waited
         * for */
        span_s;
    double busy_s;       /* in callbacks */
    double wait_s;       /* for messages, at any point of the step */
    size_t buffer_bytes; /* of all boundary tensors that the executor holds */
    size_t bytes_sent;   /* by this rank in a step */
} pipe_report_t;
void pipe_executor_report(const pipe_executor_t *executor, pipe_report_t *out);

#endif
