/* SPDX-License-Identifier: Apache-2.0 */
/* gyre/bucket.h: buckets: many tensors, such as the gradients of a training step, reduced in large pieces
 * while the caller computes.
 *
 * The tensors lie back to back in zero-copy memory, in the order in which they become ready (for gradients,
 * the order of the backward pass). They are grouped, without cutting a tensor, into buckets of about
 * `bucket_bytes` bytes. When the last tensor of a bucket is marked ready, the reduction of the bucket starts
 * and runs while the caller computes. A callback reports each bucket whose reduction has finished ("landed").
 * With GYRE_BUCKET_ALL_REDUCE every rank gets the whole result (plain data parallelism), with
 * GYRE_BUCKET_REDUCE_SCATTER only its own shard of each bucket (ZeRO).
 *
 * Bits do not depend on bucket_bytes (docs/contract.md). */
#ifndef GYRE_BUCKET_H
#define GYRE_BUCKET_H

#include <gyre/collectives.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gyre_buckets gyre_buckets_t;

typedef enum { GYRE_BUCKET_ALL_REDUCE = 0, GYRE_BUCKET_REDUCE_SCATTER = 1 } gyre_bucket_mode_t;

/* A bucket as its callback sees it. All counts are in elements. `data` belongs to the buckets object. */
typedef struct {
    size_t index; /* 0-based, in the order of readiness */
    void *data;   /* [count] */
    size_t count;
    size_t first_tensor; /* the bucket holds tensors first_tensor .. first_tensor + tensors - 1 */
    size_t tensors;
    size_t shard_offset; /* this rank's shard of the result; the whole bucket in ALL_REDUCE mode */
    size_t shard_count;
} gyre_bucket_t;

/* Called by the thread that makes progress: the caller of ready, wait or progress, or the progress thread. It
 * may use the data; it must not call Gyre. Not called for a bucket that failed. */
typedef void (*gyre_bucket_fn)(const gyre_bucket_t *bucket, void *user);

typedef struct {
    size_t size; /* sizeof(gyre_buckets_config_t) */
    gyre_type_t type;
    gyre_redop_t op;
    gyre_bucket_mode_t mode;
    size_t bucket_bytes;   /* 0: GYRE_BUCKET_BYTES */
    gyre_bucket_fn landed; /* may be NULL */
    void *user;
} gyre_buckets_config_t;

/* counts: [tensors], elements of each tensor in order of readiness; may be freed after the call. All ranks
 * pass the same counts and config; not checked here: ranks that differ get MISMATCH from the first reduction.
 * *out is freed with gyre_buckets_destroy, before `comm` is freed. Not collective. Errors: INVALID, TYPE,
 * OVERFLOW, NO_MEMORY; then *out is unchanged. */
GYRE_API gyre_status_t gyre_buckets_create(gyre_comm_t *comm, const gyre_buckets_config_t *config,
                                           size_t tensors, const size_t *counts, gyre_buckets_t **out);
/* Frees the tensors and the buckets; NULL is allowed. Waits for reductions that are under way and returns the
 * first of their errors; the memory is freed all the same. Not collective. */
GYRE_API gyre_status_t gyre_buckets_destroy(gyre_buckets_t *buckets);

/* The memory of tensor i, valid until gyre_buckets_destroy. NULL if the index is out of range. */
GYRE_API void *gyre_buckets_tensor(gyre_buckets_t *buckets, size_t tensor);
/* The number of buckets. */
GYRE_API size_t gyre_buckets_count(const gyre_buckets_t *buckets);
/* Describes bucket `index` in *out. INVALID if the index is out of range. */
GYRE_API gyre_status_t gyre_buckets_get(const gyre_buckets_t *buckets, size_t index, gyre_bucket_t *out);

/* Marks tensor i as final on this rank. Tensors may come in any order, each once per round. Starts the
 * buckets that are full, in bucket order, and advances those under way; does not block. INVALID: the
 * tensor does not exist or was marked before in this round; a group is open. UNSUPPORTED: `comm` has leaves
 * (gyre_comm_set). Else the errors of gyre_all_reduce. */
GYRE_API gyre_status_t gyre_buckets_ready(gyre_buckets_t *buckets, size_t tensor);
/* Advances the reductions under way, without blocking. */
GYRE_API gyre_status_t gyre_buckets_progress(gyre_buckets_t *buckets);
/* Waits until every bucket has landed and opens the next round, also if a reduction failed: then it
 * returns the first error. INVALID, and the round goes on: a tensor was not marked ready, or a group is
 * open. */
GYRE_API gyre_status_t gyre_buckets_wait(gyre_buckets_t *buckets);

/* Times of the round that the last gyre_buckets_wait ended, in seconds. *total_s: at least one bucket was
 * under way. *exposed_s: the caller was in gyre_buckets_wait, _ready or _progress while a bucket was under
 * way. The difference was hidden by the caller's compute. */
GYRE_API gyre_status_t gyre_buckets_times(const gyre_buckets_t *buckets, double *total_s, double *exposed_s);

#ifdef __cplusplus
}
#endif
#endif
