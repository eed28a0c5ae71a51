/* SPDX-License-Identifier: Apache-2.0 */
/* tests/abi/program.c: a program written for Gyre 0.1; tests/abi/README.md. It uses what 0.1 had, and checks
 * what it gets. Run with any number of ranks. */
#include <gyre/gyre.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, gyre_last_error()); \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define OK(call) CHECK((call) == GYRE_OK)

static int n, rank;

static void collectives(gyre_comm_t *comm)
{
    double in[64], out[64];
    size_t counts[64], displs[64];
    const double total = n * (n - 1) / 2.0;
    for (int i = 0; i < 64; i++) {
        in[i] = rank;
        counts[i] = 1;
        displs[i] = (size_t)i;
    }
    OK(gyre_all_reduce(in, out, 64, GYRE_FLOAT64, GYRE_OP(GYRE_SUM), comm));
    CHECK(out[0] == total && out[63] == total);
    OK(gyre_all_reduce(in, out, 1, GYRE_FLOAT64, GYRE_SCALED_SUM(0.5), comm));
    CHECK(out[0] == total / 2);
    OK(gyre_reduce_scatter(in, out, 1, GYRE_FLOAT64, GYRE_OP(GYRE_MAX), comm));
    CHECK(out[0] == n - 1);
    OK(gyre_reduce_scatterv(in, out, counts, GYRE_FLOAT64, GYRE_OP(GYRE_MIN), comm));
    CHECK(out[0] == 0);
    OK(gyre_all_gather(in, out, 1, GYRE_FLOAT64, comm));
    CHECK(out[0] == 0 && out[n - 1] == n - 1);
    OK(gyre_all_gatherv(in, out, counts, displs, GYRE_FLOAT64, comm));
    CHECK(out[n - 1] == n - 1);
    OK(gyre_broadcast(in, out, 2, GYRE_FLOAT64, n - 1, comm));
    CHECK(out[1] == n - 1);
    OK(gyre_reduce(in, out, 1, GYRE_FLOAT64, GYRE_OP(GYRE_SUM), 0, comm));
    CHECK(rank != 0 || out[0] == total);
    OK(gyre_gather(in, out, 1, GYRE_FLOAT64, 0, comm));
    CHECK(rank != 0 || out[n - 1] == n - 1);
    OK(gyre_gatherv(in, 1, out, counts, displs, GYRE_FLOAT64, 0, comm));
    OK(gyre_scatter(in, out, 1, GYRE_FLOAT64, 0, comm));
    CHECK(out[0] == 0);
    OK(gyre_scatterv(in, counts, displs, out, 1, GYRE_FLOAT64, 0, comm));
    OK(gyre_all_to_all(in, out, 1, GYRE_FLOAT64, comm));
    CHECK(out[n - 1] == n - 1);
    OK(gyre_all_to_allv(in, counts, displs, out, counts, displs, GYRE_FLOAT64, comm));
    OK(gyre_barrier(comm));
}

static void requests(gyre_comm_t *comm)
{
    int32_t one = 1, sum = 0, token = rank, got = -1;
    gyre_request_t *r[3] = {NULL, NULL, NULL};
    gyre_status_t st;
    OK(gyre_isend(&token, 1, GYRE_INT32, (rank + 1) % n, comm, &r[0]));
    OK(gyre_irecv(&got, 1, GYRE_INT32, (rank + n - 1) % n, comm, &r[1]));
    OK(gyre_iall_reduce(&one, &sum, 1, GYRE_INT32, GYRE_OP(GYRE_SUM), comm, &r[2]));
    OK(gyre_wait(&r[2]));
    OK(gyre_wait_all(2, r));
    CHECK(sum == n && got == (rank + n - 1) % n && !r[0] && !r[1] && !r[2]);
    OK(gyre_ibarrier(comm, &r[0]));
    while ((st = gyre_test(&r[0])) == GYRE_IN_PROGRESS)
        OK(gyre_progress(comm));
    OK(st);
    OK(gyre_group_start());
    OK(gyre_send(&token, 1, GYRE_INT32, (rank + 1) % n, comm));
    OK(gyre_recv(&got, 1, GYRE_INT32, (rank + n - 1) % n, comm));
    OK(gyre_group_end());
}

static int landed;

static void land(const gyre_bucket_t *bucket, void *user)
{
    CHECK(user == &landed && bucket->count > 0 && bucket->tensors > 0);
    landed++;
}

static void buckets(gyre_comm_t *comm)
{
    const size_t counts[3] = {100, 50, 2000};
    gyre_buckets_config_t config = {
        sizeof config, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), GYRE_BUCKET_ALL_REDUCE, 1000, land, &landed};
    gyre_buckets_t *b;
    gyre_bucket_t bucket;
    OK(gyre_buckets_create(comm, &config, 3, counts, &b));
    for (size_t t = 0; t < 3; t++) {
        float *at = gyre_buckets_tensor(b, t);
        for (size_t i = 0; i < counts[t]; i++)
            at[i] = 1;
        OK(gyre_buckets_ready(b, t));
    }
    OK(gyre_buckets_wait(b));
    CHECK(landed == (int)gyre_buckets_count(b));
    OK(gyre_buckets_get(b, 0, &bucket));
    CHECK(((float *)bucket.data)[0] == (float)n);
    OK(gyre_buckets_destroy(b));
}

int main(void)
{
    gyre_config_t config;
    memset(&config, 0x5a, sizeof config); /* a stack has garbage in what a struct does not use */
    config = (gyre_config_t)GYRE_CONFIG_INITIALIZER;
    config.timeout_s = 30;
    gyre_comm_t *world, *comm;
    OK(gyre_init(&config, &world));
    n = gyre_comm_size(world);
    rank = gyre_comm_rank(world);
    CHECK(gyre_comm_local_size(world) <= n && gyre_comm_local_rank(world) <= rank);
    OK(gyre_comm_split(world, 0, rank, &comm));
    collectives(comm);
    requests(comm);
    buckets(comm);

    struct { /* what lies after the struct is the program's */
        gyre_comm_stats_t stats;
        uint64_t after;
    } s = {.stats.size = sizeof s.stats, .after = 0x0123456789abcdefu};
    OK(gyre_comm_stats(comm, &s.stats));
    CHECK(s.stats.operations > 10 && s.stats.size == sizeof s.stats && s.after == 0x0123456789abcdefu);

    void *memory;
    OK(gyre_mem_alloc(100000, &memory));
    OK(gyre_all_reduce(memory, memory, 10000, GYRE_FLOAT32, GYRE_OP(GYRE_AVG), comm));
    OK(gyre_mem_free(memory));

    CHECK(strcmp(gyre_type_name(GYRE_BFLOAT16), "bfloat16") == 0 && gyre_type_size(GYRE_BFLOAT16) == 2);
    CHECK(strcmp(gyre_redop_name(GYRE_MAX), "max") == 0);
    CHECK(gyre_status_scope(GYRE_ERR_ABORTED) == GYRE_SCOPE_COMMUNICATOR);
    CHECK(gyre_all_reduce(NULL, NULL, 1, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), comm) == GYRE_ERR_INVALID);
    CHECK(strlen(gyre_last_error()) > 0 && strlen(gyre_status_string(GYRE_ERR_INVALID)) > 0);
    OK(gyre_barrier(world)); /* all have the result of the all-reduce, which the abort would end */
    OK(gyre_comm_abort(comm, "the end"));
    CHECK(gyre_comm_error(comm) == GYRE_ERR_ABORTED && gyre_barrier(comm) == GYRE_ERR_ABORTED);
    OK(gyre_comm_destroy(comm));
    if (rank == 0)
        printf("built for 0.1, runs with %s\n", gyre_version());
    OK(gyre_finalize(world));
    return 0;
}
