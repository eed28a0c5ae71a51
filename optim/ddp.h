/* optim/ddp.h: data parallelism: ranks share the sequences of a batch, gradients meet in buckets.
 *
 * The leaves of every sum are the sequences of the global batch: each has its own backward pass, and sums follow the
 * tree of optim/batch.h, first inside a rank, then over ranks in the all-reduce. Where each rank's sequences are a subtree
 * of the batch's (optim_batch_share), the two are one tree: with a power of two of sequences loss and gradients are the
 * same bits for every number of ranks up to it, and for any micro-batches.
 *
 * During the backward pass of a rank's last sequence each parameter is joined with the sums so far as soon as it is
 * final and marked ready in its bucket, whose all-reduce runs while backward goes on. */
#ifndef OPTIM_DDP_H
#define OPTIM_DDP_H

#include <gyre/bucket.h>

#include "model/gpt.h"
#include "model/spans.h"
#include "optim/batch.h"

typedef struct {
    optim_batch_t batch;
    size_t
        accum; /* micro-batches that a rank's share is cut into, >= 1; as many as there are sequences at most */
    size_t bucket_bytes; /* 0: GYRE_BUCKET_BYTES */
} optim_ddp_config_t;

typedef struct optim_ddp optim_ddp_t;

/* Writes sequence `index` of the present global batch (or validation set) to tokens, targets [config.seq]. */
typedef void (*optim_fetch_fn)(void *user, size_t index, model_token_t *tokens, model_token_t *targets);

/* Collective over comm. `comm`, `params` and `gpt` must outlive it. INVALID (sizes that do not divide, with the way
 * out), NO_MEMORY, errors of the communicator. */
gyre_status_t optim_ddp_create(gyre_comm_t *comm, const model_params_t *params, model_gpt_t_f32 *gpt,
                               const optim_ddp_config_t *config, optim_ddp_t **out);
void optim_ddp_destroy(optim_ddp_t *ddp);

#define OPTIM_NOTES 2
typedef struct {
    double loss;              /* mean over the global batch, nats per token */
    double note[OPTIM_NOTES]; /* in: rank 0's word to all ranks; out: that word, on every rank */
    double exposed_s;         /* this thread spent in communication: waiting, or moving data itself */
    double hidden_s;          /* gradients under way while this thread computed */
    model_spans_t *spans;     /* in: what this rank did when goes there; NULL: nobody asks */
} optim_ddp_step_t;

/* Forward and backward over this rank's share and the reduction of gradients. Collective. */
gyre_status_t optim_ddp_step(optim_ddp_t *ddp, optim_fetch_fn fetch, void *user, optim_ddp_step_t *step);

/* [rows]: gradients of the *sum* of the sequences' losses, behind optim_ddp_step: scale by 1/batch. */
float *const *optim_ddp_grads(const optim_ddp_t *ddp);

/* Mean loss over sequences 0 .. count - 1 of `fetch`, shared out over the ranks; same bits for any number of ranks.
 * Collective. */
gyre_status_t optim_ddp_evaluate(optim_ddp_t *ddp, optim_fetch_fn fetch, void *user, size_t count,
                                 double *loss);

/* MISMATCH if flat [params->total] is not the same bits on all ranks. *hash: the hash of the bits. Collective. */
gyre_status_t optim_ddp_verify(const optim_ddp_t *ddp, const float *flat, uint64_t *hash);

#endif
