/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: 1 2 3, over UCX: 2 3 */
/* tests/collectives/mp_threads.c: the progress thread drives operations that no thread waits for, callbacks
 * come before the wait ends, and threads with communicators of their own do not disturb one another. Meant
 * for ThreadSanitizer, too. */
#include "tests/support/mp.h"

#include <pthread.h>
#include <stdatomic.h>

enum { TENSORS = 12, COUNT = 3000, ROUNDS = 20 };

static int n, rank;
static _Atomic int landed_count;

static void landed(const gyre_bucket_t *bucket, void *user)
{
    float *sum = user;
    const float *data = bucket->data;
    sum[bucket->index] = data[0];
    atomic_fetch_add(&landed_count, 1);
}

static void buckets(gyre_comm_t *comm)
{
    size_t counts[TENSORS];
    float first[TENSORS] = {0};
    for (size_t t = 0; t < TENSORS; t++)
        counts[t] = 100 + 50 * t;
    gyre_buckets_config_t config = {.size = sizeof config,
                                    .type = GYRE_FLOAT32,
                                    .op = GYRE_OP(GYRE_SUM),
                                    .mode = GYRE_BUCKET_ALL_REDUCE,
                                    .bucket_bytes = 2000,
                                    .landed = landed,
                                    .user = first};
    gyre_buckets_t *b;
    MP_OK(gyre_buckets_create(comm, &config, TENSORS, counts, &b));
    for (int round = 0; round < ROUNDS; round++) {
        atomic_store(&landed_count, 0);
        for (size_t t = TENSORS; t-- > 0;) { /* not in bucket order: they start in order all the same */
            float *data = gyre_buckets_tensor(b, t);
            for (size_t i = 0; i < counts[t]; i++)
                data[i] = (float)(rank + round);
            MP_OK(gyre_buckets_ready(b, t));
        }
        MP_OK(gyre_buckets_wait(b));
        MP_CHECK((size_t)atomic_load(&landed_count) == gyre_buckets_count(b), "a callback is missing");
        for (size_t k = 0; k < gyre_buckets_count(b); k++)
            MP_CHECK(first[k] == (float)(n * (n - 1) / 2 + n * round), "bucket %zu: %g", k, (double)first[k]);
    }
    MP_CHECK(gyre_buckets_ready(b, TENSORS) == GYRE_ERR_INVALID, "no such tensor");
    MP_OK(gyre_buckets_ready(b, 0));
    MP_CHECK(gyre_buckets_ready(b, 0) == GYRE_ERR_INVALID, "ready twice");
    MP_CHECK(gyre_buckets_wait(b) == GYRE_ERR_INVALID, "tensors are missing");
    for (size_t t = 1; t < TENSORS; t++)
        MP_OK(gyre_buckets_ready(b, t));
    MP_OK(gyre_buckets_wait(b));
    MP_OK(gyre_buckets_destroy(b));
}

/* No thread calls Gyre while the operation runs: it must finish all the same. */
static void driven_by_the_thread(gyre_comm_t *comm)
{
    static float in[COUNT], out[COUNT];
    for (int i = 0; i < COUNT; i++)
        in[i] = (float)rank;
    gyre_request_t *r;
    MP_OK(gyre_iall_reduce(in, out, COUNT, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), comm, &r));
    mp_nap(50);
    MP_OK(gyre_wait(&r));
    MP_CHECK(out[COUNT - 1] == (float)(n * (n - 1) / 2), "%g", (double)out[COUNT - 1]);
}

static void *own_communicator(void *arg)
{
    gyre_comm_t *comm = arg;
    for (int round = 0; round < 200; round++) {
        int64_t in[64], out[64];
        for (int i = 0; i < 64; i++)
            in[i] = rank + i + round;
        if (round % 2) {
            gyre_request_t *r;
            MP_OK(gyre_iall_reduce(in, out, 64, GYRE_INT64, GYRE_OP(GYRE_SUM), comm, &r));
            MP_OK(gyre_wait(&r));
        } else {
            MP_OK(gyre_all_reduce(in, out, 64, GYRE_INT64, GYRE_OP(GYRE_SUM), comm));
        }
        for (int i = 0; i < 64; i++)
            MP_CHECK(out[i] == n * (n - 1) / 2 + (int64_t)n * (i + round), "%lld", (long long)out[i]);
    }
    return NULL;
}

static void two_threads(gyre_comm_t *world)
{
    gyre_comm_t *comm[2];
    pthread_t thread[2];
    for (int i = 0; i < 2; i++)
        MP_OK(gyre_comm_split(world, 0, rank, &comm[i]));
    for (int i = 0; i < 2; i++)
        MP_CHECK(!pthread_create(&thread[i], NULL, own_communicator, comm[i]), "no thread");
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < 2; i++)
        MP_OK(gyre_comm_destroy(comm[i]));
}

int main(int argc, char **argv)
{
    (void)argv;
    gyre_config_t config = GYRE_CONFIG_INITIALIZER;
    gyre_comm_t *world;
    config.progress_thread = argc < 2; /* with any argument: without the thread */
    MP_OK(gyre_init(&config, &world));
    n = gyre_comm_size(world);
    rank = gyre_comm_rank(world);
    buckets(world);
    if (config.progress_thread)
        driven_by_the_thread(world);
    two_threads(world);
    MP_OK(gyre_finalize(world));
    return 0;
}
