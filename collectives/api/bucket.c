/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/api/bucket.c: buckets (gyre/bucket.h): tensors packed in order of readiness, reduced while the
 * caller goes on computing.
 *
 * A bucket is a counter of tensors that are not ready yet. Buckets start in order (all ranks must call
 * alike), so one that is full waits for those before it. The reductions are ordinary non-blocking
 * collectives of the communicator. */
#include <gyre/bucket.h>

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/defined.h"
#include "base/error.h"
#include "base/settings/settings.h"
#include "collectives/api/sized.h"
#include "collectives/api/start.h"
#include "collectives/run/communicator.h"
#include "comm/memory/memory.h"

typedef struct {
    gyre_buckets_t *owner;
    gyre_bucket_t view;
    size_t missing; /* tensors not ready in this round */
    size_t *shards; /* [n] counts; REDUCE_SCATTER only */
    gyre_request_t *request;
    base_time_t started,
        landed; /* in this round; landed is written by the driver before the request is finished */
} bucket_t;

struct gyre_buckets {
    gyre_comm_t *comm;
    gyre_buckets_config_t config;
    size_t esize;
    size_t tensors, nbuckets;
    size_t *offset;       /* [tensors] elements from the start of memory */
    size_t *bucket_of;    /* [tensors] */
    unsigned char *ready; /* [tensors] */
    bucket_t *buckets;    /* [nbuckets] */
    size_t *shards;       /* [nbuckets * n], REDUCE_SCATTER only */
    char *memory;
    size_t next;         /* first bucket that was not started in this round */
    coll_first_t failed; /* a start that went wrong; wait returns it again */
    base_time_t inside;  /* time that the caller spent in here while a bucket was under way, in this round */
    double total_s, exposed_s; /* of the round before */
};

/* Tensors start on cache lines, so that no bucket border shares one with compute that is still writing. */
static size_t aligned(size_t count, size_t esize)
{
    return base_round_up(count * esize, 64) / esize;
}

static int layout(gyre_buckets_t *b, const size_t *counts, size_t *total)
{
    size_t at = 0, start = 0, buckets = 0, per = b->config.bucket_bytes / b->esize;
    for (size_t i = 0; i < b->tensors; i++) {
        size_t bytes, end;
        if (!base_mul(counts[i], b->esize, &bytes) || !base_add(bytes, 64, &bytes) ||
            !base_add(at, aligned(counts[i], b->esize), &end) || !base_mul(end, b->esize, &bytes))
            return 0;
        if (i == 0 || (end - start > per && at > start)) {
            start = at;
            buckets++;
        }
        b->offset[i] = at;
        b->bucket_of[i] = buckets - 1;
        at = end;
    }
    b->nbuckets = buckets;
    *total = at;
    return 1;
}

/* Shards: equal to within a cache line, in rank order. */
static void cut_shards(gyre_buckets_t *b, bucket_t *k)
{
    size_t n = (size_t)b->comm->n, per = aligned((k->view.count + n - 1) / n, b->esize), at = 0;
    for (size_t r = 0; r < n; r++) {
        size_t len = base_min_size(per, k->view.count - at);
        k->shards[r] = len;
        if (r == (size_t)b->comm->rank) {
            k->view.shard_offset = at;
            k->view.shard_count = len;
        }
        at += len;
    }
}

static void fill_buckets(gyre_buckets_t *b, size_t total)
{
    for (size_t i = 0; i < b->tensors; i++) {
        bucket_t *k = &b->buckets[b->bucket_of[i]];
        if (k->view.tensors++ == 0) {
            k->view.first_tensor = i;
            k->view.data = b->memory + b->offset[i] * b->esize;
        }
        k->missing++;
    }
    for (size_t j = 0; j < b->nbuckets; j++) {
        bucket_t *k = &b->buckets[j];
        size_t first = b->offset[k->view.first_tensor];
        size_t end = j + 1 < b->nbuckets ? b->offset[b->buckets[j + 1].view.first_tensor] : total;
        k->owner = b;
        k->view.index = j;
        k->view.count = end - first;
        k->view.shard_count = k->view.count;
        if (b->config.mode == GYRE_BUCKET_REDUCE_SCATTER) {
            k->shards = b->shards + j * (size_t)b->comm->n;
            cut_shards(b, k);
        }
    }
}

static gyre_status_t check_config(gyre_comm_t *comm, const gyre_buckets_config_t *c, size_t tensors)
{
    if (gyre_type_size(c->type) == 0)
        return gyre_fail(GYRE_ERR_TYPE, "gyre_buckets_create: %d is not a type", (int)c->type);
    gyre_status_t st = coll_check_redop("gyre_buckets_create", c->op, c->type);
    if (st != GYRE_OK)
        return st;
    size_t shards;
    if (!base_add(tensors, 1, &shards) || !base_mul(shards, (size_t)comm->n, &shards) ||
        !base_mul(shards, sizeof(bucket_t), &shards) || shards > PTRDIFF_MAX)
        return gyre_fail(GYRE_ERR_OVERFLOW, "gyre_buckets_create: %zu tensors are more than memory can hold",
                         tensors);
    if (c->mode != GYRE_BUCKET_ALL_REDUCE && c->mode != GYRE_BUCKET_REDUCE_SCATTER)
        return gyre_fail(GYRE_ERR_INVALID, "gyre_buckets_create: %d is not a mode", (int)c->mode);
    return GYRE_OK;
}

gyre_status_t gyre_buckets_create(gyre_comm_t *comm, const gyre_buckets_config_t *config, size_t tensors,
                                  const size_t *counts, gyre_buckets_t **out)
{
    gyre_buckets_config_t c = {0};
    gyre_status_t st = coll_check_live("gyre_buckets_create", comm);
    if (st == GYRE_OK && (!config || !out || (tensors && !counts)))
        st = gyre_fail(GYRE_ERR_INVALID, "gyre_buckets_create: config, counts or out is NULL");
    if (st != GYRE_OK)
        return st;
    st = coll_sized_read(&c, sizeof c, offsetof(gyre_buckets_config_t, bucket_bytes), config,
                         "gyre_buckets_create");
    if (st == GYRE_OK)
        st = check_config(comm, &c, tensors);
    if (st != GYRE_OK)
        return st;
    gyre_buckets_t *b = calloc(1, sizeof *b);
    if (!b)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "gyre_buckets_create: no memory");
    b->comm = comm;
    b->config = c;
    b->esize = gyre_type_size(c.type);
    base_redop_hold(c.op.kind);
    base_type_hold(c.type);
    b->tensors = tensors;
    if (!b->config.bucket_bytes)
        b->config.bucket_bytes = (size_t)base_setting_int(SET_BUCKET_BYTES);
    b->offset = calloc(tensors + 1, sizeof *b->offset);
    b->bucket_of = calloc(tensors + 1, sizeof *b->bucket_of);
    b->ready = calloc(tensors + 1, 1);
    b->buckets = calloc(tensors + 1, sizeof *b->buckets);
    b->shards = calloc((tensors + 1) * (size_t)comm->n, sizeof *b->shards);
    size_t total = 0;
    if (!b->offset || !b->bucket_of || !b->ready || !b->buckets || !b->shards)
        st = gyre_fail(GYRE_ERR_NO_MEMORY, "gyre_buckets_create: no memory for %zu tensors", tensors);
    else if (!layout(b, counts, &total))
        st = gyre_fail(GYRE_ERR_OVERFLOW,
                       "gyre_buckets_create: the tensors' sizes add up to more than memory");
    if (st == GYRE_OK)
        st = comm_mem_alloc_now(total ? total * b->esize : 1, (void **)&b->memory);
    if (st != GYRE_OK) {
        gyre_buckets_destroy(b);
        return st;
    }
    fill_buckets(b, total);
    *out = b;
    return GYRE_OK;
}

gyre_status_t gyre_buckets_destroy(gyre_buckets_t *b)
{
    if (!b)
        return GYRE_OK;
    coll_first_t first;
    coll_first_begin(&first);
    for (size_t j = 0; b->buckets && j < b->nbuckets; j++)
        coll_first_note(&first, gyre_wait(&b->buckets[j].request));
    base_redop_release(b->config.op.kind);
    base_type_release(b->config.type);
    if (b->memory)
        comm_mem_free(b->memory);
    free(b->offset);
    free(b->bucket_of);
    free(b->ready);
    free(b->buckets);
    free(b->shards);
    free(b);
    return coll_first_end(&first);
}

void *gyre_buckets_tensor(gyre_buckets_t *b, size_t tensor)
{
    return b && tensor < b->tensors ? b->memory + b->offset[tensor] * b->esize : NULL;
}

size_t gyre_buckets_count(const gyre_buckets_t *b)
{
    return b ? b->nbuckets : 0;
}

gyre_status_t gyre_buckets_get(const gyre_buckets_t *b, size_t index, gyre_bucket_t *out)
{
    if (!b || !out || index >= b->nbuckets)
        return gyre_fail(GYRE_ERR_INVALID, "gyre_buckets_get: a pointer is NULL, or there is no bucket %zu",
                         index);
    *out = b->buckets[index].view;
    return GYRE_OK;
}

/* Runs in whichever thread drives the communicator. */
static void landed(void *user, gyre_status_t status)
{
    bucket_t *k = user;
    gyre_buckets_t *b = k->owner;
    k->landed = base_now();
    if (status == GYRE_OK && b->config.landed)
        b->config.landed(&k->view, b->config.user);
}

static gyre_status_t start_bucket(gyre_buckets_t *b, bucket_t *k)
{
    k->started = base_now();
    char *data = k->view.data;
    if (b->config.mode == GYRE_BUCKET_ALL_REDUCE)
        return coll_start_all_reduce(data, k->view.count, b->config.type, b->config.op, b->comm, landed, k,
                                     &k->request);
    return coll_start_reduce_scatterv(data, data + k->view.shard_offset * b->esize, k->shards, b->config.type,
                                      b->config.op, b->comm, landed, k, &k->request);
}

/* Progress, with the time since the caller entered counted: it is time that it did not compute. */
static gyre_status_t progress(gyre_buckets_t *b, base_time_t entered)
{
    gyre_status_t st = gyre_progress(b->comm);
    if (b->next)
        b->inside += base_now() - entered;
    return st;
}

gyre_status_t gyre_buckets_ready(gyre_buckets_t *b, size_t tensor)
{
    if (!b || tensor >= b->tensors)
        return gyre_fail(GYRE_ERR_INVALID, "gyre_buckets_ready: buckets is NULL, or there is no tensor %zu",
                         tensor);
    if (coll_group_open())
        return gyre_fail(GYRE_ERR_INVALID, "gyre_buckets_ready cannot be part of a group");
    if (b->ready[tensor])
        return gyre_fail(GYRE_ERR_INVALID,
                         "gyre_buckets_ready: tensor %zu was marked ready before in this round", tensor);
    if (b->comm->leaves)
        return gyre_fail(GYRE_ERR_UNSUPPORTED,
                         "gyre_buckets_ready: the communicator has leaves (gyre_comm_set), and a bucket is "
                         "one input: use a communicator of gyre_comm_dup");
    base_time_t entered = base_now(); /* what starts is moved at once, as far as it goes */
    b->ready[tensor] = 1;
    b->buckets[b->bucket_of[tensor]].missing--;
    while (b->failed.status == GYRE_OK && b->next < b->nbuckets && b->buckets[b->next].missing == 0) {
        coll_first_note(&b->failed, start_bucket(b, &b->buckets[b->next]));
        b->next++;
    }
    return b->failed.status != GYRE_OK ? coll_first_end(&b->failed) : progress(b, entered);
}

gyre_status_t gyre_buckets_progress(gyre_buckets_t *b)
{
    if (!b)
        return gyre_fail(GYRE_ERR_INVALID, "gyre_buckets_progress: buckets is NULL");
    return progress(b, base_now());
}

/* Time with at least one bucket under way: the union of their intervals, which begin and end in bucket
 * order. */
static base_time_t under_way(const gyre_buckets_t *b)
{
    base_time_t sum = 0, end = 0;
    for (size_t j = 0; j < b->next; j++) {
        const bucket_t *k = &b->buckets[j];
        base_time_t from = k->started > end ? k->started : end;
        if (k->landed > from)
            sum += k->landed - from;
        end = k->landed > end ? k->landed : end;
    }
    return sum;
}

static void next_round(gyre_buckets_t *b)
{
    memset(b->ready, 0, b->tensors);
    for (size_t j = 0; j < b->nbuckets; j++)
        b->buckets[j].missing = b->buckets[j].view.tensors;
    b->next = 0;
    b->inside = 0;
    coll_first_begin(&b->failed);
}

gyre_status_t gyre_buckets_wait(gyre_buckets_t *b)
{
    if (!b)
        return gyre_fail(GYRE_ERR_INVALID, "gyre_buckets_wait: buckets is NULL");
    if (coll_group_open())
        return gyre_fail(GYRE_ERR_INVALID, "gyre_buckets_wait cannot be part of a group");
    for (size_t i = 0; i < b->tensors && b->failed.status == GYRE_OK; i++)
        if (!b->ready[i])
            return gyre_fail(GYRE_ERR_INVALID,
                             "gyre_buckets_wait: tensor %zu was not marked ready in this round", i);
    base_time_t entered = base_now();
    for (size_t j = 0; j < b->next; j++)
        coll_first_note(&b->failed, gyre_wait(&b->buckets[j].request));
    const gyre_status_t st = coll_first_end(&b->failed);
    b->total_s = (double)under_way(b) * 1e-9;
    b->exposed_s = (double)(b->inside + base_now() - entered) * 1e-9;
    next_round(b);
    return st;
}

gyre_status_t gyre_buckets_times(const gyre_buckets_t *b, double *total_s, double *exposed_s)
{
    if (!b || !total_s || !exposed_s)
        return gyre_fail(GYRE_ERR_INVALID, "gyre_buckets_times: an argument is NULL");
    *total_s = b->total_s;
    *exposed_s = b->exposed_s;
    return GYRE_OK;
}
