/* gyre/bucket.h: buckets, the bridge between training and communication.
 *
 * Tensors are laid out back to back in zero-copy memory, in the order in which they become ready (backward's
 * order), and cut into buckets of about `bucket_bytes` at tensor borders. When the last tensor of a bucket is
 * marked ready its reduction starts by itself and runs beside the caller's compute; a callback says when a
 * bucket has landed. With GYRE_BUCKET_REDUCE_SCATTER every rank ends with its shard only: the answer to "who
 * owns which shard" is all that distinguishes plain data parallelism from ZeRO.
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

/* A bucket as its callback sees it. All counts in elements; `data` belongs to the buckets object. */
typedef struct {
    size_t index; /* 0-based, in the order of readiness */
    void *data;   /* [count] */
    size_t count;
    size_t first_tensor; /* tensors first_tensor .. first_tensor + tensors - 1 lie in it */
    size_t tensors;
    size_t shard_offset; /* this rank's shard of the result; the whole bucket in ALL_REDUCE mode */
    size_t shard_count;
} gyre_bucket_t;

/* Called by whichever thread makes progress (the caller of ready/wait/progress, or the progress thread). It
 * may use the data; it must not call Gyre. */
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

/* counts: [tensors], elements of each tensor in order of readiness; the same on all ranks. */
GYRE_API gyre_status_t gyre_buckets_create(gyre_comm_t *comm, const gyre_buckets_config_t *config,
                                           size_t tensors, const size_t *counts, gyre_buckets_t **out);
GYRE_API gyre_status_t gyre_buckets_destroy(gyre_buckets_t *buckets);

/* Where tensor i lives; stays valid until destroy. NULL for an index out of range. */
GYRE_API void *gyre_buckets_tensor(gyre_buckets_t *buckets, size_t tensor);
GYRE_API size_t gyre_buckets_count(const gyre_buckets_t *buckets);
GYRE_API gyre_status_t gyre_buckets_get(const gyre_buckets_t *buckets, size_t index, gyre_bucket_t *out);

/* Tensor i is final on this rank. In any order, once per round. Starts what is full, in bucket order, and
 * moves what runs. */
GYRE_API gyre_status_t gyre_buckets_ready(gyre_buckets_t *buckets, size_t tensor);
/* Moves what runs, without blocking. */
GYRE_API gyre_status_t gyre_buckets_progress(gyre_buckets_t *buckets);
/* Waits until every bucket has landed (every tensor must have been marked ready) and opens the next round. */
GYRE_API gyre_status_t gyre_buckets_wait(gyre_buckets_t *buckets);

/* About the round that the last gyre_buckets_wait ended, in seconds: the time during which at least one bucket was under
 * way, and the time that the caller spent on it, waiting or moving data in gyre_buckets_wait, _ready and _progress. What is
 * left of the first went on beside the caller's compute. */
GYRE_API gyre_status_t gyre_buckets_times(const gyre_buckets_t *buckets, double *total_s, double *exposed_s);

#ifdef __cplusplus
}
#endif
#endif
