/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: 1 2 */
/* tests/collectives/mp_refused.c: the refusals of all public calls that mp_errors does not come by: status,
 * the words that name the culprit, and that nothing else happened: the same communicator, buckets, requests
 * and memory work afterwards. */
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collectives/run/communicator.h"
#include "tests/support/mp.h"

static gyre_comm_t *world;
static int n, rank;
static float a[64], b[64];
static const gyre_redop_t sum = {GYRE_SUM, 0, 1.0};
static const size_t few[4] = {1, 1, 1, 1}, huge[4] = {SIZE_MAX - 1, 3}, most = SIZE_MAX / 2 + 1;

static void refused(gyre_status_t got, gyre_status_t want, const char *word)
{
    MP_CHECK(got == want, "got %s (%s), expected %s for \"%s\"", gyre_status_string(got), gyre_last_error(),
             gyre_status_string(want), word);
    MP_CHECK(strstr(gyre_last_error(), word), "\"%s\" does not mention \"%s\"", gyre_last_error(), word);
    MP_CHECK(gyre_comm_error(world) == GYRE_OK, "the communicator is dead");
}

static void works(gyre_comm_t *comm)
{
    float one = 1, all = 0;
    MP_OK(gyre_all_reduce(&one, &all, 1, GYRE_FLOAT32, sum, comm));
    MP_CHECK(all == (float)gyre_comm_size(comm), "%g", (double)all);
}

/* Counts times ranks, or counts and displacements, that no size_t holds; arrays that are not there. */
static void counts(void)
{
    const gyre_type_t type = GYRE_FLOAT32;
    if (n > 1) {
        refused(gyre_reduce_scatter(a, b, most, type, sum, world), GYRE_ERR_OVERFLOW,
                "reduce_scatter: counts");
        refused(gyre_all_to_all(a, b, most, type, world), GYRE_ERR_OVERFLOW, "all_to_all: counts");
        refused(gyre_reduce_scatterv(a, b, huge, type, sum, world), GYRE_ERR_OVERFLOW,
                "reduce_scatterv: counts");
        refused(gyre_gather(a, b, most, type, rank, world), GYRE_ERR_OVERFLOW, "gather: counts");
        refused(gyre_scatter(a, b, most, type, rank, world), GYRE_ERR_OVERFLOW, "scatter: counts");
        refused(gyre_gatherv(a, huge[rank], b, huge, NULL, type, rank, world), GYRE_ERR_OVERFLOW,
                "gatherv: counts");
        refused(gyre_all_to_allv(a, huge, NULL, b, huge, NULL, type, world), GYRE_ERR_OVERFLOW,
                "all_to_allv: counts");
    }
    const size_t far[4] = {SIZE_MAX, SIZE_MAX, SIZE_MAX, SIZE_MAX};
    refused(gyre_scatterv(a, few, far, b, 1, type, rank, world), GYRE_ERR_OVERFLOW, "scatterv: counts");
    refused(gyre_all_to_allv(a, few, NULL, b, few, far, type, world), GYRE_ERR_OVERFLOW,
            "all_to_allv: counts");
    refused(gyre_reduce_scatterv(a, b, NULL, type, sum, world), GYRE_ERR_INVALID, "counts is NULL");
    refused(gyre_gatherv(a, 1, b, NULL, NULL, type, rank, world), GYRE_ERR_INVALID,
            "gatherv: counts is NULL");
    refused(gyre_scatterv(a, NULL, NULL, b, 1, type, rank, world), GYRE_ERR_INVALID,
            "counts is NULL at the root");
    refused(gyre_gatherv(a, 2, b, few, NULL, type, rank, world), GYRE_ERR_INVALID,
            "own count is 2, but counts[");
    refused(gyre_scatterv(a, few, NULL, b, 0, type, rank, world), GYRE_ERR_INVALID, "own count is 0");
    refused(gyre_all_to_allv(a, NULL, NULL, b, few, NULL, type, world), GYRE_ERR_INVALID,
            "send_counts is NULL");
    refused(gyre_all_to_allv(a, few, NULL, b, NULL, NULL, type, world), GYRE_ERR_INVALID,
            "recv_counts is NULL");
    const size_t more[4] = {2, 2, 2, 2};
    refused(gyre_all_to_allv(a, few, NULL, b, more, NULL, type, world), GYRE_ERR_INVALID,
            "sends 1 elements to itself but receives 2");
    works(world);
}

static void roots_and_types(void)
{
    const gyre_type_t none = (gyre_type_t)-1;
    const gyre_redop_t odd = {(gyre_redop_kind_t)-1, 0, 1.0}, scaled = {GYRE_PROD, 1, 2.0};
    refused(gyre_reduce(a, b, 1, GYRE_FLOAT32, sum, n, world), GYRE_ERR_INVALID, "reduce: root");
    refused(gyre_gather(a, b, 1, GYRE_FLOAT32, -1, world), GYRE_ERR_INVALID, "gather: root -1");
    refused(gyre_scatter(a, b, 1, GYRE_FLOAT32, n, world), GYRE_ERR_INVALID, "scatter: root");
    refused(gyre_gatherv(a, 1, b, few, NULL, GYRE_FLOAT32, n, world), GYRE_ERR_INVALID, "gatherv: root");
    refused(gyre_scatterv(a, few, NULL, b, 1, GYRE_FLOAT32, -2, world), GYRE_ERR_INVALID,
            "scatterv: root -2");
    refused(gyre_all_gather(a, b, 1, none, world), GYRE_ERR_TYPE, "all_gather: -1 is not a type");
    refused(gyre_send(a, 1, none, 0, world), GYRE_ERR_TYPE, "send: -1 is not a type");
    refused(gyre_reduce(a, b, 1, GYRE_FLOAT32, odd, 0, world), GYRE_ERR_TYPE,
            "reduce: -1 is not a reduction");
    refused(gyre_reduce_scatter(a, b, 1, GYRE_FLOAT32, scaled, world), GYRE_ERR_TYPE,
            "only sums can be scaled");
    works(world);
}

static void messages(void)
{
    gyre_request_t *request;
    refused(gyre_irecv(b, 1, GYRE_FLOAT32, -1, world, &request), GYRE_ERR_INVALID,
            "irecv: peer -1 is not in 0..");
    refused(gyre_isend(a, SIZE_MAX / 2, GYRE_FLOAT32, rank, world, &request), GYRE_ERR_OVERFLOW,
            "isend: count");
    refused(gyre_irecv(NULL, 1, GYRE_FLOAT32, rank, world, &request), GYRE_ERR_INVALID, "buffer is NULL");
    refused(gyre_isend(a, 1, GYRE_FLOAT32, rank, world, NULL), GYRE_ERR_INVALID, "isend: request is NULL");
    refused(gyre_irecv(b, 1, GYRE_FLOAT32, rank, world, NULL), GYRE_ERR_INVALID, "irecv: request is NULL");
    refused(gyre_recv(b, 1, GYRE_FLOAT32, rank, world), GYRE_ERR_INVALID,
            "recv: a blocking message to oneself");
    gyre_request_t *both[2];
    a[0] = 7;
    MP_OK(gyre_isend(a, 1, GYRE_FLOAT32, rank, world, &both[0]));
    MP_OK(gyre_irecv(b, 1, GYRE_FLOAT32, rank, world, &both[1]));
    MP_OK(gyre_wait_all(2, both));
    MP_CHECK(b[0] == 7, "%g", (double)b[0]);
}

static void requests(void)
{
    gyre_request_t *none = NULL, *grouped;
    refused(gyre_wait(NULL), GYRE_ERR_INVALID, "gyre_wait: request is NULL");
    refused(gyre_test(NULL), GYRE_ERR_INVALID, "gyre_test: request is NULL");
    refused(gyre_wait_all(3, NULL), GYRE_ERR_INVALID, "gyre_wait_all: requests is NULL but count is 3");
    MP_OK(gyre_wait(&none));
    MP_OK(gyre_test(&none));
    MP_OK(gyre_wait_all(0, NULL));
    MP_OK(gyre_group_start());
    MP_OK(gyre_ibarrier(world, &grouped));
    refused(gyre_wait(&grouped), GYRE_ERR_INVALID, "part of a group that has not ended");
    MP_CHECK(grouped, "the request stays");
    MP_OK(gyre_group_end());
    gyre_request_t *copy = grouped;
    ptrdiff_t index = 7;
    MP_OK(gyre_wait(&grouped));
    refused(gyre_wait(&copy), GYRE_ERR_INVALID, "gyre_wait: the request was freed");
    refused(gyre_test(&copy), GYRE_ERR_INVALID, "gyre_test: the request was freed");
    refused(gyre_wait_all(1, &copy), GYRE_ERR_INVALID, "the request was freed");
    refused(gyre_test_all(1, &copy), GYRE_ERR_INVALID, "gyre_test_all: the request was freed");
    refused(gyre_wait_any(1, &copy, &index), GYRE_ERR_INVALID, "gyre_wait_any: the request was freed");
    MP_CHECK(index == -1, "%td", index);
    refused(gyre_test_any(1, &copy, &index), GYRE_ERR_INVALID, "gyre_test_any: the request was freed");
    works(world);
    refused(gyre_progress(NULL), GYRE_ERR_INVALID, "comm is NULL");
    refused(gyre_comm_error(NULL), GYRE_ERR_INVALID, "gyre_comm_error: comm is NULL");
    /* what plans were made for stays as it is while they are in use */
    MP_OK(gyre_ibarrier(world, &grouped));
    refused(coll_comm_pin(world, NULL), GYRE_ERR_INVALID, "the choice of algorithms cannot change");
    MP_OK(gyre_wait(&grouped));
    MP_OK(coll_comm_pin(world, NULL));
    works(world);
}

static void communicators(void)
{
    gyre_comm_t *part, *made = NULL;
    char text[128];
    struct {
        gyre_comm_stats_t known;
        uint64_t newer;
    } later = {.known = {.size = sizeof later}, .newer = 5};
    gyre_comm_stats_t stats = {.size = 8};
    gyre_config_t config = GYRE_CONFIG_INITIALIZER;
    refused(gyre_init(&config, NULL), GYRE_ERR_INVALID, "gyre_init: world is NULL");
    refused(gyre_comm_split(world, 0, 0, NULL), GYRE_ERR_INVALID, "gyre_comm_split: out is NULL");
    MP_OK(gyre_comm_split(world, 0, rank, &part));
    MP_OK(gyre_group_start());
    refused(gyre_comm_split(world, 0, 0, &made), GYRE_ERR_INVALID,
            "gyre_comm_split cannot be part of a group");
    refused(gyre_comm_shrink(world, &made), GYRE_ERR_INVALID, "gyre_comm_shrink cannot be part of a group");
    MP_OK(gyre_group_end());
    refused(gyre_comm_shrink(world, NULL), GYRE_ERR_INVALID, "gyre_comm_shrink: newcomm is NULL");
    refused(gyre_comm_grow(world, 1, NULL), GYRE_ERR_INVALID, "gyre_comm_grow: newcomm is NULL");
    refused(gyre_comm_shrink(part, &made), GYRE_ERR_INVALID, "gyre_comm_shrink takes the job's communicator");
    refused(gyre_comm_grow(part, 1, &made), GYRE_ERR_INVALID, "gyre_comm_grow takes the job's communicator");
    refused(gyre_comm_address(world, NULL, 128), GYRE_ERR_INVALID, "gyre_comm_address: text is NULL");
    refused(gyre_comm_address(world, text, 3), GYRE_ERR_INVALID,
            "gyre_comm_address: the job's address does not fit into 3 bytes");
    MP_OK(gyre_comm_address(world, text, sizeof text));
    refused(gyre_comm_stats(world, NULL), GYRE_ERR_INVALID, "gyre_comm_stats: stats is NULL");
    refused(gyre_comm_stats(world, &stats), GYRE_ERR_INVALID, "the struct's size is 8");
    MP_OK(gyre_comm_stats(world, &later.known));
    MP_CHECK(later.known.operations > 0 && later.newer == 0, "what is newer than the library is zero");
    MP_CHECK(!made, "nothing was made");
    works(part);
    MP_OK(gyre_barrier(world)); /* an abort does not wait for those who are still at work */
    MP_OK(gyre_comm_abort(part, NULL));
    MP_CHECK(gyre_barrier(part) == GYRE_ERR_ABORTED && strstr(gyre_last_error(), "no reason given"), "%s",
             gyre_last_error());
    MP_CHECK(gyre_barrier(part) == GYRE_ERR_ABORTED &&
                 strstr(gyre_last_error(), "barrier: the communicator failed before: "),
             "%s", gyre_last_error());
    MP_OK(gyre_barrier(world)); /* what others still read of a communicator goes with it */
    MP_OK(gyre_comm_destroy(part));
    works(world);
}

static void options(void)
{
    gyre_comm_t *comm;
    char algorithm[600];
    gyre_options_t options = GYRE_OPTIONS_INITIALIZER;
    memset(algorithm, 'a', sizeof algorithm - 1);
    algorithm[sizeof algorithm - 1] = '\0';
    refused(gyre_get_unique_id(NULL), GYRE_ERR_INVALID, "gyre_get_unique_id: id is NULL");
    refused(gyre_exact_all_reduce(NULL, world), GYRE_ERR_INVALID, "exact is NULL");
    MP_OK(gyre_comm_dup(world, &comm));
    options.algorithm = algorithm;
    refused(gyre_comm_set(comm, &options), GYRE_ERR_INVALID, "algorithm has 599 characters");
    options.algorithm = NULL;
    options.leaves = 2;
    MP_OK(gyre_comm_set(comm, &options));
    refused(gyre_all_reduce(a, b, most, GYRE_INT8, sum, comm), GYRE_ERR_OVERFLOW, "all_reduce: counts");
    a[0] = a[1] = 3;
    MP_OK(gyre_all_reduce(a, b, 1, GYRE_FLOAT32, sum, comm));
    MP_CHECK(b[0] == 6 * (float)n, "%g", (double)b[0]);
    const gyre_buckets_config_t config = {.size = sizeof config, .type = GYRE_FLOAT32, .op = sum};
    const size_t count = 1;
    gyre_buckets_t *made;
    MP_OK(gyre_buckets_create(comm, &config, 1, &count, &made));
    refused(gyre_buckets_ready(made, 0), GYRE_ERR_UNSUPPORTED, "has leaves");
    MP_OK(gyre_comm_set(comm, NULL));
    MP_OK(gyre_buckets_ready(made, 0));
    MP_OK(gyre_buckets_wait(made));
    MP_OK(gyre_buckets_destroy(made));
    MP_OK(gyre_comm_destroy(comm));
}

/* An algorithm that does not serve a collective is refused in the program's calls, not in Gyre's own, which
 * are made of the same collectives: else nobody could take it back. */
static void own_calls(void)
{
    gyre_comm_t *comm, *part;
    void *shared;
    gyre_exact_t *exact;
    gyre_options_t options = GYRE_OPTIONS_INITIALIZER;
    options.algorithm = "all_gather:tree,barrier:ring,all_reduce:bruck";
    MP_OK(gyre_comm_dup(world, &comm));
    MP_OK(gyre_comm_set(comm, &options));
    refused(gyre_all_gather(a, b, 1, GYRE_FLOAT32, comm), GYRE_ERR_UNSUPPORTED, "does not serve this");
    refused(gyre_barrier(comm), GYRE_ERR_UNSUPPORTED, "does not serve this barrier");
    MP_OK(gyre_comm_split(comm, 0, 0, &part));
    MP_OK(gyre_comm_destroy(part));
    MP_OK(gyre_mem_alloc_shared(comm, 8, &shared));
    MP_OK(gyre_mem_free(shared));
    MP_OK(gyre_exact_create(&exact));
    MP_OK(gyre_exact_all_reduce(exact, comm));
    MP_OK(gyre_exact_destroy(exact));
    refused(gyre_all_gather(a, b, 1, GYRE_FLOAT32, comm), GYRE_ERR_UNSUPPORTED, "does not serve this");
    MP_OK(gyre_comm_set(comm, NULL));
    works(comm);
    MP_OK(gyre_comm_destroy(comm));
    MP_OK(gyre_comm_set(world, &options)); /* and gyre_finalize waits all the same */
}

static void buckets(void)
{
    const size_t of[2] = {3, 40};
    double total, exposed;
    gyre_bucket_t bucket;
    gyre_buckets_t *made = NULL;
    gyre_buckets_config_t c = {.size = sizeof c, .type = GYRE_FLOAT32, .op = sum, .bucket_bytes = 16};
    refused(gyre_buckets_create(world, NULL, 2, of, &made), GYRE_ERR_INVALID,
            "config, counts or out is NULL");
    refused(gyre_buckets_create(world, &c, 2, NULL, &made), GYRE_ERR_INVALID,
            "config, counts or out is NULL");
    refused(gyre_buckets_create(world, &c, 2, of, NULL), GYRE_ERR_INVALID, "config, counts or out is NULL");
    c.type = (gyre_type_t)77;
    refused(gyre_buckets_create(world, &c, 2, of, &made), GYRE_ERR_TYPE, "77 is not a type");
    c.type = GYRE_FLOAT32;
    c.op = (gyre_redop_t){GYRE_MAX, 1, 2.0};
    refused(gyre_buckets_create(world, &c, 2, of, &made), GYRE_ERR_TYPE, "only sums can be scaled");
    c.op = sum;
    c.mode = (gyre_bucket_mode_t)9;
    refused(gyre_buckets_create(world, &c, 2, of, &made), GYRE_ERR_INVALID, "9 is not a mode");
    c.mode = GYRE_BUCKET_ALL_REDUCE;
    MP_CHECK(!made, "nothing was made");
    MP_OK(gyre_buckets_create(world, &c, 2, of, &made));
    MP_CHECK(gyre_buckets_count(made) == 2 && gyre_buckets_count(NULL) == 0, "%zu", gyre_buckets_count(made));
    refused(gyre_buckets_get(made, 2, &bucket), GYRE_ERR_INVALID, "there is no bucket 2");
    refused(gyre_buckets_get(made, 0, NULL), GYRE_ERR_INVALID, "a pointer is NULL");
    refused(gyre_buckets_ready(made, 2), GYRE_ERR_INVALID, "there is no tensor 2");
    refused(gyre_buckets_ready(NULL, 0), GYRE_ERR_INVALID, "buckets is NULL");
    refused(gyre_buckets_progress(NULL), GYRE_ERR_INVALID, "gyre_buckets_progress: buckets is NULL");
    refused(gyre_buckets_wait(NULL), GYRE_ERR_INVALID, "gyre_buckets_wait: buckets is NULL");
    refused(gyre_buckets_times(made, &total, NULL), GYRE_ERR_INVALID, "an argument is NULL");
    for (size_t t = 0; t < 2; t++)
        for (size_t i = 0; i < of[t]; i++)
            ((float *)gyre_buckets_tensor(made, t))[i] = (float)t + 1;
    MP_OK(gyre_group_start());
    refused(gyre_buckets_ready(made, 0), GYRE_ERR_INVALID, "gyre_buckets_ready cannot be part of a group");
    refused(gyre_buckets_wait(made), GYRE_ERR_INVALID, "gyre_buckets_wait cannot be part of a group");
    MP_OK(gyre_group_end());
    MP_OK(gyre_buckets_ready(made, 0));
    refused(gyre_buckets_ready(made, 0), GYRE_ERR_INVALID, "tensor 0 was marked ready before");
    refused(gyre_buckets_wait(made), GYRE_ERR_INVALID, "tensor 1 was not marked ready");
    MP_OK(gyre_buckets_ready(made, 1)); /* the round goes on */
    MP_OK(gyre_buckets_wait(made));
    MP_OK(gyre_buckets_times(made, &total, &exposed));
    for (size_t t = 0; t < 2; t++)
        for (size_t i = 0; i < of[t]; i++)
            MP_CHECK(((float *)gyre_buckets_tensor(made, t))[i] == (float)(t + 1) * (float)n, "tensor %zu",
                     t);
    MP_OK(gyre_buckets_destroy(made));
}

static void memory(void)
{
    void *window = NULL;
    char *plain = malloc(1 << 20);
    MP_CHECK(plain, "no memory");
    memset(plain, 5, 1 << 20);
    refused(gyre_mem_alloc(1, NULL), GYRE_ERR_INVALID, "gyre_mem_alloc: ptr is NULL");
    refused(gyre_mem_alloc(SIZE_MAX - 5, &window), GYRE_ERR_OVERFLOW, "more than any machine has");
    refused(gyre_mem_free(plain), GYRE_ERR_INVALID, "gyre_mem_free: ");
    refused(gyre_mem_register(plain, 0), GYRE_ERR_INVALID, "the range is empty");
    refused(gyre_mem_register(plain, SIZE_MAX - 5), GYRE_ERR_OVERFLOW, "exceed the address space");
    refused(gyre_mem_register(plain, SIZE_MAX - (uintptr_t)plain - 5), GYRE_ERR_OVERFLOW,
            "exceed the address");
    refused(gyre_mem_deregister(plain), GYRE_ERR_INVALID, "is not registered");
    MP_OK(gyre_mem_register(plain, 1 << 20));
    refused(gyre_mem_register(plain + 4096, 1 << 16), GYRE_ERR_INVALID, "overlap");
    MP_OK(gyre_mem_deregister(plain));
    for (int i = 0; i < 1 << 20; i++)
        MP_CHECK(plain[i] == 5, "byte %d", i);
    free(plain);
    MP_CHECK(!window, "nothing was allocated");
}

/* A child of fork has no job: it says so by its exit status. */
static void child(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        gyre_comm_t *mine;
        const int said =
            gyre_init(NULL, &mine) == GYRE_ERR_INVALID && strstr(gyre_last_error(), "child of fork");
        _exit(said ? 0 : 1);
    }
    int status = -1;
    MP_CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0, "the child ended with %x", status);
    works(world);
}

int main(void)
{
    setenv("GYRE_LOG", "none", 1); /* the refusals are wanted */
    gyre_config_t config = GYRE_CONFIG_INITIALIZER;
    config.size = 3;
    MP_CHECK(gyre_init(&config, &world) == GYRE_ERR_INVALID &&
                 strstr(gyre_last_error(), "gyre_init: the struct's size is 3"),
             "%s", gyre_last_error());
    config.size = sizeof config;
    MP_OK(gyre_init(&config, &world));
    n = gyre_comm_size(world);
    rank = gyre_comm_rank(world);
    counts();
    roots_and_types();
    messages();
    requests();
    communicators();
    options();
    buckets();
    memory();
    child();
    own_calls();
    MP_OK(gyre_finalize(world));
    return 0;
}
