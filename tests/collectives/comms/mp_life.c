/* SPDX-License-Identifier: Apache-2.0 */
/* tests/collectives/comms/mp_life.c: communicators that were destroyed, or ended by gyre_finalize: every
 * call on them is INVALID, with a text that names the call and says what was done before, and nothing else
 * happens. ranks: 1 2 3
 * over UCX: 2 */
#include <string.h>

#include "tests/support/mp.h"

static gyre_comm_t *world;
static int rank;

/* Every call that takes a communicator. Each gets arguments that are right but for it. */
typedef gyre_status_t (*use_t)(gyre_comm_t *comm);
static double in[64], out[64];
static const size_t counts[64], displs[64];
static const gyre_redop_t sum = {GYRE_SUM, 0, 1.0};
static gyre_request_t *request;
static gyre_plan_t *plan;
static int descriptor;
static void *shared;
static gyre_comm_t *other;
static gyre_exact_t *exact;

#define USE(name, call)                          \
    static gyre_status_t name(gyre_comm_t *comm) \
    {                                            \
        return call;                             \
    }
USE(all_reduce, gyre_all_reduce(in, out, 1, GYRE_FLOAT64, sum, comm))
USE(iall_reduce, gyre_iall_reduce(in, out, 1, GYRE_FLOAT64, sum, comm, &request))
USE(reduce_scatter, gyre_reduce_scatter(in, out, 1, GYRE_FLOAT64, sum, comm))
USE(ireduce_scatter, gyre_ireduce_scatter(in, out, 1, GYRE_FLOAT64, sum, comm, &request))
USE(reduce_scatterv, gyre_reduce_scatterv(in, out, counts, GYRE_FLOAT64, sum, comm))
USE(ireduce_scatterv, gyre_ireduce_scatterv(in, out, counts, GYRE_FLOAT64, sum, comm, &request))
USE(all_gather, gyre_all_gather(in, out, 1, GYRE_FLOAT64, comm))
USE(iall_gather, gyre_iall_gather(in, out, 1, GYRE_FLOAT64, comm, &request))
USE(all_gatherv, gyre_all_gatherv(in, out, counts, displs, GYRE_FLOAT64, comm))
USE(iall_gatherv, gyre_iall_gatherv(in, out, counts, displs, GYRE_FLOAT64, comm, &request))
USE(broadcast, gyre_broadcast(in, out, 1, GYRE_FLOAT64, 0, comm))
USE(ibroadcast, gyre_ibroadcast(in, out, 1, GYRE_FLOAT64, 0, comm, &request))
USE(reduce, gyre_reduce(in, out, 1, GYRE_FLOAT64, sum, 0, comm))
USE(ireduce, gyre_ireduce(in, out, 1, GYRE_FLOAT64, sum, 0, comm, &request))
USE(scan, gyre_scan(in, out, 1, GYRE_FLOAT64, sum, comm))
USE(iscan, gyre_iscan(in, out, 1, GYRE_FLOAT64, sum, comm, &request))
USE(exscan, gyre_exscan(in, out, 1, GYRE_FLOAT64, sum, comm))
USE(iexscan, gyre_iexscan(in, out, 1, GYRE_FLOAT64, sum, comm, &request))
USE(gather, gyre_gather(in, out, 1, GYRE_FLOAT64, 0, comm))
USE(igather, gyre_igather(in, out, 1, GYRE_FLOAT64, 0, comm, &request))
USE(gatherv, gyre_gatherv(in, 0, out, counts, displs, GYRE_FLOAT64, 0, comm))
USE(igatherv, gyre_igatherv(in, 0, out, counts, displs, GYRE_FLOAT64, 0, comm, &request))
USE(scatter, gyre_scatter(in, out, 1, GYRE_FLOAT64, 0, comm))
USE(iscatter, gyre_iscatter(in, out, 1, GYRE_FLOAT64, 0, comm, &request))
USE(scatterv, gyre_scatterv(in, counts, displs, out, 0, GYRE_FLOAT64, 0, comm))
USE(iscatterv, gyre_iscatterv(in, counts, displs, out, 0, GYRE_FLOAT64, 0, comm, &request))
USE(all_to_all, gyre_all_to_all(in, out, 1, GYRE_FLOAT64, comm))
USE(iall_to_all, gyre_iall_to_all(in, out, 1, GYRE_FLOAT64, comm, &request))
USE(all_to_allv, gyre_all_to_allv(in, counts, displs, out, counts, displs, GYRE_FLOAT64, comm))
USE(iall_to_allv, gyre_iall_to_allv(in, counts, displs, out, counts, displs, GYRE_FLOAT64, comm, &request))
USE(barrier, gyre_barrier(comm))
USE(ibarrier, gyre_ibarrier(comm, &request))
USE(plan_all_reduce, gyre_plan_all_reduce(in, out, 1, GYRE_FLOAT64, sum, comm, &plan))
USE(plan_reduce_scatter, gyre_plan_reduce_scatter(in, out, 1, GYRE_FLOAT64, sum, comm, &plan))
USE(plan_reduce_scatterv, gyre_plan_reduce_scatterv(in, out, counts, GYRE_FLOAT64, sum, comm, &plan))
USE(plan_all_gather, gyre_plan_all_gather(in, out, 1, GYRE_FLOAT64, comm, &plan))
USE(plan_all_gatherv, gyre_plan_all_gatherv(in, out, counts, displs, GYRE_FLOAT64, comm, &plan))
USE(plan_broadcast, gyre_plan_broadcast(in, out, 1, GYRE_FLOAT64, 0, comm, &plan))
USE(plan_reduce, gyre_plan_reduce(in, out, 1, GYRE_FLOAT64, sum, 0, comm, &plan))
USE(plan_scan, gyre_plan_scan(in, out, 1, GYRE_FLOAT64, sum, comm, &plan))
USE(plan_exscan, gyre_plan_exscan(in, out, 1, GYRE_FLOAT64, sum, comm, &plan))
USE(plan_gather, gyre_plan_gather(in, out, 1, GYRE_FLOAT64, 0, comm, &plan))
USE(plan_gatherv, gyre_plan_gatherv(in, 0, out, counts, displs, GYRE_FLOAT64, 0, comm, &plan))
USE(plan_scatter, gyre_plan_scatter(in, out, 1, GYRE_FLOAT64, 0, comm, &plan))
USE(plan_scatterv, gyre_plan_scatterv(in, counts, displs, out, 0, GYRE_FLOAT64, 0, comm, &plan))
USE(plan_all_to_all, gyre_plan_all_to_all(in, out, 1, GYRE_FLOAT64, comm, &plan))
USE(plan_all_to_allv,
    gyre_plan_all_to_allv(in, counts, displs, out, counts, displs, GYRE_FLOAT64, comm, &plan))
USE(plan_barrier, gyre_plan_barrier(comm, &plan))
USE(plan_neighbor_exchange, gyre_plan_neighbor_exchange(in, counts, displs, 0, NULL, out, counts, displs, 0,
                                                        NULL, GYRE_FLOAT64, comm, &plan))
USE(send, gyre_send(in, 1, GYRE_FLOAT64, 0, comm))
USE(isend, gyre_isend(in, 1, GYRE_FLOAT64, 0, comm, &request))
USE(recv, gyre_recv(out, 1, GYRE_FLOAT64, 0, comm))
USE(irecv, gyre_irecv(out, 1, GYRE_FLOAT64, 0, comm, &request))
USE(neighbor_exchange,
    gyre_neighbor_exchange(in, counts, displs, 0, NULL, out, counts, displs, 0, NULL, GYRE_FLOAT64, comm))
USE(ineighbor_exchange, gyre_ineighbor_exchange(in, counts, displs, 0, NULL, out, counts, displs, 0, NULL,
                                                GYRE_FLOAT64, comm, &request))
USE(all_reduce_stream, gyre_all_reduce_stream(in, out, 1, GYRE_FLOAT64, sum, comm, NULL))
USE(reduce_scatter_stream, gyre_reduce_scatter_stream(in, out, 1, GYRE_FLOAT64, sum, comm, NULL))
USE(reduce_scatterv_stream, gyre_reduce_scatterv_stream(in, out, counts, GYRE_FLOAT64, sum, comm, NULL))
USE(all_gather_stream, gyre_all_gather_stream(in, out, 1, GYRE_FLOAT64, comm, NULL))
USE(all_gatherv_stream, gyre_all_gatherv_stream(in, out, counts, displs, GYRE_FLOAT64, comm, NULL))
USE(broadcast_stream, gyre_broadcast_stream(in, out, 1, GYRE_FLOAT64, 0, comm, NULL))
USE(reduce_stream, gyre_reduce_stream(in, out, 1, GYRE_FLOAT64, sum, 0, comm, NULL))
USE(gather_stream, gyre_gather_stream(in, out, 1, GYRE_FLOAT64, 0, comm, NULL))
USE(gatherv_stream, gyre_gatherv_stream(in, 0, out, counts, displs, GYRE_FLOAT64, 0, comm, NULL))
USE(scatter_stream, gyre_scatter_stream(in, out, 1, GYRE_FLOAT64, 0, comm, NULL))
USE(scatterv_stream, gyre_scatterv_stream(in, counts, displs, out, 0, GYRE_FLOAT64, 0, comm, NULL))
USE(all_to_all_stream, gyre_all_to_all_stream(in, out, 1, GYRE_FLOAT64, comm, NULL))
USE(all_to_allv_stream,
    gyre_all_to_allv_stream(in, counts, displs, out, counts, displs, GYRE_FLOAT64, comm, NULL))
USE(send_stream, gyre_send_stream(in, 1, GYRE_FLOAT64, 0, comm, NULL))
USE(recv_stream, gyre_recv_stream(out, 1, GYRE_FLOAT64, 0, comm, NULL))
USE(neighbor_exchange_stream, gyre_neighbor_exchange_stream(in, counts, displs, 0, NULL, out, counts, displs,
                                                            0, NULL, GYRE_FLOAT64, comm, NULL))
USE(barrier_stream, gyre_barrier_stream(comm, NULL))
USE(exact_all_reduce, gyre_exact_all_reduce(exact, comm))
USE(exact_iall_reduce, gyre_exact_iall_reduce(exact, comm, &request))
USE(comm_prepare_cuda, gyre_comm_prepare_cuda(comm))
USE(comm_destroy, gyre_comm_destroy(comm))
USE(finalize, gyre_finalize(comm))
USE(comm_split, gyre_comm_split(comm, 0, 0, &other))
USE(comm_dup, gyre_comm_dup(comm, &other))
USE(comm_split_type, gyre_comm_split_type(comm, GYRE_SPLIT_HOST, 0, &other))
USE(mem_alloc_shared, gyre_mem_alloc_shared(comm, 8, &shared))
USE(comm_create_group, gyre_comm_create_group(comm, &rank, 1, 0, &other))
USE(comm_idup, gyre_comm_idup(comm, &other, &request))
USE(comm_isplit, gyre_comm_isplit(comm, 0, 0, &other, &request))
USE(comm_isplit_type, gyre_comm_isplit_type(comm, GYRE_SPLIT_HOST, 0, &other, &request))
USE(comm_icreate_group, gyre_comm_icreate_group(comm, &rank, 1, 0, &other, &request))
USE(comm_abort, gyre_comm_abort(comm, "no reason"))
USE(comm_shrink, gyre_comm_shrink(comm, &other))
USE(comm_grow, gyre_comm_grow(comm, 1, &other))
USE(comm_error, gyre_comm_error(comm))
USE(progress, gyre_progress(comm))
USE(comm_on_failure, gyre_comm_on_failure(comm, NULL, NULL))
USE(comm_fd, gyre_comm_fd(comm, &descriptor))
USE(comm_arm, gyre_comm_arm(comm))

static gyre_status_t comm_address(gyre_comm_t *comm)
{
    char text[128];
    return gyre_comm_address(comm, text, sizeof text);
}

static gyre_status_t comm_stats(gyre_comm_t *comm)
{
    gyre_comm_stats_t stats = {.size = sizeof stats};
    return gyre_comm_stats(comm, &stats);
}

static gyre_status_t comm_place(gyre_comm_t *comm)
{
    gyre_place_t place = {.size = sizeof place};
    return gyre_comm_place(comm, 0, &place);
}

static gyre_status_t comm_set(gyre_comm_t *comm)
{
    const gyre_options_t options = GYRE_OPTIONS_INITIALIZER;
    return gyre_comm_set(comm, &options);
}

static gyre_status_t buckets_create(gyre_comm_t *comm)
{
    const gyre_buckets_config_t config = {
        .size = sizeof config, .type = GYRE_FLOAT32, .op = GYRE_OP(GYRE_SUM)};
    const size_t one = 1;
    gyre_buckets_t *buckets;
    return gyre_buckets_create(comm, &config, 1, &one, &buckets);
}

static gyre_status_t comm_register_cuda(gyre_comm_t *comm)
{
    gyre_cuda_registration_t *registration;
    return gyre_comm_register_cuda(comm, in, sizeof in, &registration);
}

static gyre_status_t comm_deregister_cuda(gyre_comm_t *comm)
{
    return gyre_comm_deregister_cuda(comm, (gyre_cuda_registration_t *)in);
}

static gyre_status_t comm_peers_cuda(gyre_comm_t *comm)
{
    gyre_cuda_peers_t peers;
    return gyre_comm_peers_cuda(comm, (gyre_cuda_registration_t *)in, &peers);
}

#define CALL(name)  \
    {               \
#name, name \
    }
static const struct {
    const char *name; /* in the error text */
    use_t use;
} calls[] = {CALL(all_reduce),
             CALL(iall_reduce),
             CALL(reduce_scatter),
             CALL(ireduce_scatter),
             CALL(reduce_scatterv),
             CALL(ireduce_scatterv),
             CALL(all_gather),
             CALL(iall_gather),
             CALL(all_gatherv),
             CALL(iall_gatherv),
             CALL(broadcast),
             CALL(ibroadcast),
             CALL(reduce),
             CALL(ireduce),
             CALL(scan),
             CALL(iscan),
             CALL(exscan),
             CALL(iexscan),
             CALL(gather),
             CALL(igather),
             CALL(gatherv),
             CALL(igatherv),
             CALL(scatter),
             CALL(iscatter),
             CALL(scatterv),
             CALL(iscatterv),
             CALL(all_to_all),
             CALL(iall_to_all),
             CALL(all_to_allv),
             CALL(iall_to_allv),
             CALL(barrier),
             CALL(ibarrier),
             CALL(plan_all_reduce),
             CALL(plan_reduce_scatter),
             CALL(plan_reduce_scatterv),
             CALL(plan_all_gather),
             CALL(plan_all_gatherv),
             CALL(plan_broadcast),
             CALL(plan_reduce),
             CALL(plan_scan),
             CALL(plan_exscan),
             CALL(plan_gather),
             CALL(plan_gatherv),
             CALL(plan_scatter),
             CALL(plan_scatterv),
             CALL(plan_all_to_all),
             CALL(plan_all_to_allv),
             CALL(plan_barrier),
             CALL(plan_neighbor_exchange),
             CALL(send),
             CALL(isend),
             CALL(recv),
             CALL(irecv),
             CALL(neighbor_exchange),
             CALL(ineighbor_exchange),
             CALL(all_reduce_stream),
             CALL(reduce_scatter_stream),
             CALL(reduce_scatterv_stream),
             CALL(all_gather_stream),
             CALL(all_gatherv_stream),
             CALL(broadcast_stream),
             CALL(reduce_stream),
             CALL(gather_stream),
             CALL(gatherv_stream),
             CALL(scatter_stream),
             CALL(scatterv_stream),
             CALL(all_to_all_stream),
             CALL(all_to_allv_stream),
             CALL(send_stream),
             CALL(recv_stream),
             CALL(neighbor_exchange_stream),
             CALL(barrier_stream),
             CALL(exact_all_reduce),
             CALL(exact_iall_reduce),
             CALL(comm_prepare_cuda),
             CALL(comm_destroy),
             CALL(finalize),
             CALL(comm_split),
             CALL(comm_dup),
             CALL(comm_split_type),
             CALL(mem_alloc_shared),
             CALL(comm_create_group),
             CALL(comm_idup),
             CALL(comm_isplit),
             CALL(comm_isplit_type),
             CALL(comm_icreate_group),
             CALL(comm_abort),
             CALL(comm_shrink),
             CALL(comm_grow),
             CALL(comm_error),
             CALL(progress),
             CALL(comm_on_failure),
             CALL(comm_fd),
             CALL(comm_arm),
             CALL(comm_address),
             CALL(comm_stats),
             CALL(comm_place),
             CALL(comm_set),
             CALL(buckets_create),
             CALL(comm_register_cuda),
             CALL(comm_deregister_cuda),
             CALL(comm_peers_cuda)};

/* "iall_reduce" and "plan_all_reduce" are refused by what "all_reduce" is, too, and say so by that name. */
static const char *said(const char *name)
{
    const char *plain = name[0] == 'i' && strncmp(name, "isend", 5) != 0 && strncmp(name, "irecv", 5) != 0
                            ? name + 1
                        : strncmp(name, "plan_", 5) == 0 ? name + 5
                                                         : name;
    static char text[64];
    snprintf(text, sizeof text, "%s", plain);
    char *stream = strstr(text, "_stream");
    if (stream && strncmp(text, "send", 4) != 0 && strncmp(text, "recv", 4) != 0)
        *stream = '\0';
    return text;
}

static void refused(gyre_comm_t *dead, const char *why)
{
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        gyre_status_t st = calls[i].use(dead);
        MP_CHECK(st == GYRE_ERR_INVALID, "%s after %s: %s", calls[i].name, why, gyre_status_string(st));
        MP_CHECK(strstr(gyre_last_error(), said(calls[i].name)), "\"%s\" does not name %s", gyre_last_error(),
                 calls[i].name);
        MP_CHECK(strstr(gyre_last_error(), why), "%s: \"%s\" does not say %s", calls[i].name,
                 gyre_last_error(), why);
    }
    MP_CHECK(gyre_comm_rank(dead) == -1 && gyre_comm_size(dead) == -1, "%d %d", gyre_comm_rank(dead),
             gyre_comm_size(dead));
    MP_CHECK(gyre_comm_local_rank(dead) == -1 && gyre_comm_local_size(dead) == -1, "a rank of the dead");
    MP_CHECK(gyre_comm_hosts(dead) == -1 && gyre_comm_leaves(dead) == -1, "hosts or leaves of the dead");
}

static void works(gyre_comm_t *comm)
{
    double mine = gyre_comm_rank(comm) + 1, all = 0;
    const int n = gyre_comm_size(comm);
    MP_OK(gyre_all_reduce(&mine, &all, 1, GYRE_FLOAT64, sum, comm));
    MP_CHECK(all == n * (n + 1) / 2.0, "%g", all);
}

static void join(void)
{
    MP_OK(gyre_init(NULL, &world));
    rank = gyre_comm_rank(world);
    works(world);
}

static gyre_comm_t *split(void)
{
    gyre_comm_t *made;
    MP_OK(gyre_comm_split(world, 0, rank, &made));
    works(made);
    return made;
}

static void after_destroy(void)
{
    join();
    gyre_comm_t *comm = split(), *kept = split();
    MP_OK(gyre_comm_destroy(comm));
    refused(comm, "gyre_comm_destroy");
    works(kept);
    works(world);
    MP_OK(gyre_comm_destroy(kept));
    MP_OK(gyre_finalize(world));
}

/* As destructors of C++ statics, __del__ and handlers of atexit do: the splits go after the job's
 * communicator, in either order. */
static void after_finalize(void)
{
    join();
    gyre_comm_t *a = split(), *b = split(), *gone = world;
    MP_OK(gyre_finalize(world));
    refused(gone, "gyre_finalize");
    refused(b, "gyre_finalize");
    refused(a, "gyre_finalize");

    join(); /* and the next job has nothing of theirs */
    refused(a, "gyre_finalize");
    gyre_comm_t *c = split();
    works(c);
    MP_OK(gyre_comm_destroy(c));
    MP_OK(gyre_finalize(world));
}

static void requests_keep_the_job(void)
{
    join();
    gyre_comm_t *comm = split();
    gyre_request_t *open;
    MP_OK(gyre_ibarrier(comm, &open));
    MP_CHECK(gyre_finalize(world) == GYRE_ERR_INVALID, "%s", gyre_last_error());
    MP_CHECK(strstr(gyre_last_error(), "gyre_finalize: 1 request"), "%s", gyre_last_error());
    MP_OK(gyre_wait(&open));
    works(comm);
    works(world);
    MP_OK(gyre_finalize(world));
    MP_CHECK(gyre_comm_destroy(comm) == GYRE_ERR_INVALID, "%s", gyre_last_error());
}

/* Buckets, plans and memory outlive the communicator that they were made for. */
static void what_outlives(void)
{
    void *memory, *early;
    MP_OK(gyre_mem_alloc(100000, &early));
    join();
    MP_OK(gyre_mem_alloc(100000, &memory));
    const gyre_buckets_config_t config = {
        .size = sizeof config, .type = GYRE_FLOAT32, .op = GYRE_OP(GYRE_SUM)};
    const size_t elements[] = {100, 20000};
    gyre_buckets_t *one, *two;
    gyre_comm_t *comm = split();
    const gyre_options_t options = GYRE_OPTIONS_INITIALIZER;
    char byte = 5;
    MP_OK(gyre_plan_all_reduce(in, out, 1, GYRE_FLOAT64, sum, comm, &plan));
    MP_OK(gyre_mem_alloc_shared(comm, 8, &shared));
    MP_OK(gyre_buckets_create(comm, &config, 2, elements, &one));
    MP_OK(gyre_buckets_create(world, &config, 2, elements, &two));
    MP_OK(gyre_comm_destroy(comm));
    MP_EXPECT(gyre_start(plan, NULL), GYRE_ERR_INVALID, "gyre_start: the communicator");
    MP_EXPECT(gyre_start(plan, &request), GYRE_ERR_INVALID, "gyre_start: the communicator");
    MP_EXPECT(gyre_plan_set(plan, &options), GYRE_ERR_INVALID, "gyre_plan_set: the communicator");
    MP_OK(gyre_plan_free(&plan));
    MP_OK(gyre_put(&byte, 1, shared, rank, 3)); /* of a rank of this host */
    MP_OK(gyre_get(&byte, 1, shared, rank, 4));
    MP_OK(gyre_flush(shared, -1));
    MP_CHECK(((char *)shared)[3] == 5 && byte == 0, "%d %d", ((char *)shared)[3], byte);
    MP_OK(gyre_mem_free(shared));
    MP_CHECK(gyre_buckets_ready(one, 0) == GYRE_ERR_INVALID, "%s", gyre_last_error());
    MP_CHECK(gyre_buckets_progress(one) == GYRE_ERR_INVALID, "%s", gyre_last_error());
    MP_OK(gyre_finalize(world));
    MP_CHECK(gyre_buckets_ready(two, 0) == GYRE_ERR_INVALID, "%s", gyre_last_error());
    MP_CHECK(gyre_buckets_wait(two) == GYRE_ERR_INVALID, "%s", gyre_last_error());
    memset(gyre_buckets_tensor(two, 1), 1, 20000 * sizeof(float));
    MP_OK(gyre_buckets_destroy(two));
    MP_OK(gyre_buckets_destroy(one));
    MP_OK(gyre_mem_free(memory));
    MP_OK(gyre_mem_free(early));
}

/* What a shrink replaced is ended by gyre_finalize, too, and the dead do not pile up. */
static void many(void)
{
    MP_OK(gyre_init(NULL, &world)); /* no call before the shrink, which would end it on the slower ranks */
    gyre_comm_t *old = world, *first = NULL;
    if (gyre_comm_size(world) > 1) {
        MP_OK(gyre_comm_shrink(old, &world));
        MP_EXPECT(gyre_finalize(old), GYRE_ERR_INVALID, "the newest of gyre_comm_shrink");
        works(world);
    }
    for (int i = 0; i < 200; i++) {
        gyre_comm_t *comm = split();
        first = first ? first : comm;
        MP_OK(gyre_comm_destroy(comm));
    }
    works(world);
    gyre_comm_t *last = world;
    MP_OK(gyre_finalize(world));
    refused(last, "gyre_finalize");
    refused(old, "gyre_finalize");
    (void)gyre_comm_destroy(first); /* so long ago that it may be another one now; but never a crash */
}

int main(void)
{
    MP_OK(gyre_exact_create(&exact));
    after_destroy();
    after_finalize();
    requests_keep_the_job();
    what_outlives();
    many();
    MP_OK(gyre_exact_destroy(exact));
    return 0;
}
