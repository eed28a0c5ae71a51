/* SPDX-License-Identifier: Apache-2.0 */
/* tests/failing/calls.c: every call of a communicator once; a newcomer. */
#include <time.h>

#include "base/settings/settings.h"
#include "tests/failing/scenario.h"

static const gyre_redop_t sum = {GYRE_SUM, 0, 1.0};

static gyre_status_t collectives(job_t *job, gyre_comm_t *comm)
{
    double in[2 * RANKS], out[2 * RANKS] = {0};
    size_t counts[RANKS], displs[RANKS];
    gyre_request_t *request;
    const int n = job->n, peer = (job->rank + 1) % n;
    for (int i = 0; i < 2 * RANKS; i++)
        in[i] = 1;
    for (int r = 0; r < n; r++)
        counts[r] = 1, displs[r] = (size_t)r;
    STEP("all_reduce", gyre_all_reduce(in, out, 1, GYRE_FLOAT64, sum, comm));
    job->wrong |= out[0] != n;
    STEP("reduce_scatter", gyre_reduce_scatter(in, out, 1, GYRE_FLOAT64, sum, comm));
    STEP("reduce_scatterv", gyre_reduce_scatterv(in, out, counts, GYRE_FLOAT64, sum, comm));
    STEP("all_gather", gyre_all_gather(in, out, 1, GYRE_FLOAT64, comm));
    job->wrong |= out[n - 1] != 1;
    STEP("all_gatherv", gyre_all_gatherv(in, out, counts, displs, GYRE_FLOAT64, comm));
    STEP("broadcast", gyre_broadcast(in, out, 1, GYRE_FLOAT64, 0, comm));
    STEP("reduce", gyre_reduce(in, out, 1, GYRE_FLOAT64, sum, 0, comm));
    STEP("gather", gyre_gather(in, out, 1, GYRE_FLOAT64, 0, comm));
    STEP("gatherv", gyre_gatherv(in, 1, out, counts, displs, GYRE_FLOAT64, 0, comm));
    STEP("scatter", gyre_scatter(in, out, 1, GYRE_FLOAT64, 0, comm));
    STEP("scatterv", gyre_scatterv(in, counts, displs, out, 1, GYRE_FLOAT64, 0, comm));
    STEP("all_to_all", gyre_all_to_all(in, out, 1, GYRE_FLOAT64, comm));
    STEP("all_to_allv", gyre_all_to_allv(in, counts, displs, out, counts, displs, GYRE_FLOAT64, comm));
    STEP("barrier", gyre_barrier(comm));
    STEP("iall_reduce", gyre_iall_reduce(in, out, 1, GYRE_FLOAT64, sum, comm, &request));
    STEP("wait", gyre_wait(&request));
    job->wrong |= out[0] != n;
    STEP("group_start", gyre_group_start());
    gyre_status_t sent = gyre_send(in, 2, GYRE_FLOAT64, peer, comm);
    gyre_status_t received = gyre_recv(out, 2, GYRE_FLOAT64, peer, comm);
    gyre_status_t ended = gyre_group_end();
    STEP("send", sent);
    STEP("recv", received);
    STEP("group_end", ended);
    job->wrong |= out[1] != 1;
    return GYRE_OK;
}

/* Prefixes, two at once; an exact sum; an operation and a type of the program's own. */
static gyre_status_t more_collectives(job_t *job, gyre_comm_t *comm)
{
    double in[2] = {1, 1}, out[2] = {0}, before[2] = {0}, value = 0;
    gyre_request_t *requests[2] = {NULL, NULL};
    ptrdiff_t at;
    gyre_exact_t *exact;
    STEP("scan", gyre_scan(in, out, 1, GYRE_FLOAT64, sum, comm));
    STEP("exscan", gyre_exscan(in, before, 1, GYRE_FLOAT64, sum, comm));
    job->wrong |= out[0] != job->rank + 1 || before[0] != job->rank;
    gyre_status_t first = gyre_iscan(in, out, 2, GYRE_FLOAT64, sum, comm, &requests[0]);
    gyre_status_t second =
        first == GYRE_OK ? gyre_iexscan(in, before, 2, GYRE_FLOAT64, sum, comm, &requests[1]) : first;
    gyre_status_t any;
    do
        any = gyre_test_any(2, requests, &at);
    while (any == GYRE_IN_PROGRESS);
    gyre_status_t all = gyre_wait_all(2, requests);
    STEP("iscan", first);
    STEP("iexscan", second);
    STEP("test_any", any);
    STEP("wait_all", all);
    job->wrong |= out[1] != job->rank + 1 || before[1] != job->rank;
    STEP("exact_create", gyre_exact_create(&exact));
    gyre_status_t added = gyre_exact_add(exact, in, 2, GYRE_FLOAT64);
    gyre_status_t summed = added == GYRE_OK ? gyre_exact_all_reduce(exact, comm) : added;
    gyre_status_t rounded = gyre_exact_value(exact, &value);
    gyre_status_t ended = gyre_exact_destroy(exact);
    STEP("exact_add", added);
    STEP("exact_all_reduce", summed);
    STEP("exact_value", rounded);
    STEP("exact_destroy", ended);
    job->wrong |= value != 2 * job->n;
    return GYRE_OK;
}

static gyre_status_t add_pairs(const void *left, void *right, size_t count, gyre_type_t type, void *user)
{
    const double *from = left;
    double *to = right;
    (void)type, (void)user;
    for (size_t i = 0; i < 2 * count; i++)
        to[i] += from[i];
    return GYRE_OK;
}

static gyre_status_t own_operation(job_t *job, gyre_comm_t *comm)
{
    double in[2] = {1, 2}, out[2] = {0};
    gyre_type_t pair;
    gyre_redop_t add;
    STEP("type_create", gyre_type_create(sizeof in, &pair));
    gyre_status_t made = gyre_op_create(add_pairs, NULL, GYRE_OP_COMMUTATIVE, &add);
    gyre_status_t added = made == GYRE_OK ? gyre_all_reduce(in, out, 1, pair, add, comm) : made;
    gyre_status_t op_freed = made == GYRE_OK ? gyre_op_free(&add) : made;
    gyre_status_t type_freed = gyre_type_free(&pair);
    STEP("op_create", made);
    STEP("all_reduce of a type", added);
    STEP("op_free", op_freed);
    STEP("type_free", type_freed);
    job->wrong |= out[0] != job->n || out[1] != 2 * job->n;
    return GYRE_OK;
}

/* Several messages with one request and as a plan, and a plan whose schedule is made twice. */
static gyre_status_t requests_and_plans(job_t *job, gyre_comm_t *comm)
{
    double in[3] = {1, 1, 1}, out[6] = {0};
    const int peer = (job->rank + 1) % job->n, peers[3] = {peer, peer, job->rank};
    const size_t ones[3] = {1, 1, 1};
    gyre_request_t *request;
    gyre_plan_t *plan;
    gyre_options_t options = GYRE_OPTIONS_INITIALIZER;
    STEP("ineighbor_exchange", gyre_ineighbor_exchange(in, ones, NULL, 3, peers, out, ones, NULL, 3, peers,
                                                       GYRE_FLOAT64, comm, &request));
    STEP("wait for neighbours", gyre_wait(&request));
    job->wrong |= out[0] != 1 || out[1] != 1 || out[2] != 1;
    STEP("plan_neighbor_exchange", gyre_plan_neighbor_exchange(in, ones, NULL, 3, peers, out + 3, ones, NULL,
                                                               3, peers, GYRE_FLOAT64, comm, &plan));
    gyre_status_t exchanged = gyre_start(plan, NULL);
    gyre_status_t dropped = gyre_plan_free(&plan);
    STEP("start of messages", exchanged);
    STEP("plan_free of messages", dropped);
    job->wrong |= out[3] != 1 || out[5] != 1;
    STEP("plan_all_reduce", gyre_plan_all_reduce(in, out, 3, GYRE_FLOAT64, sum, comm, &plan));
    options.order = GYRE_ORDER_EXACT;
    gyre_status_t set = gyre_plan_set(plan, &options);
    gyre_status_t started = set == GYRE_OK ? gyre_start(plan, NULL) : set;
    gyre_status_t freed = gyre_plan_free(&plan);
    STEP("plan_set", set);
    STEP("start", started);
    STEP("plan_free", freed);
    job->wrong |= out[2] != job->n;
    return GYRE_OK;
}

static gyre_status_t communicators(job_t *job)
{
    int ranks[RANKS], all[RANKS] = {0};
    gyre_request_t *made;
    const int one = 1;
    for (int r = 0; r < job->n; r++)
        ranks[r] = r;
    STEP("comm_create_group", gyre_comm_create_group(job->world, ranks, job->n, 1, &job->more[0]));
    STEP("all_reduce of a group", gyre_all_reduce(&one, all, 1, GYRE_INT32, GYRE_OP(GYRE_SUM), job->more[0]));
    job->wrong |= all[0] != job->n;
    STEP("comm_split_type", gyre_comm_split_type(job->world, GYRE_SPLIT_HOST, 0, &job->more[1]));
    STEP("barrier of a host", gyre_barrier(job->more[1]));
    STEP("comm_isplit", gyre_comm_isplit(job->world, job->rank, 0, &job->more[2], &made));
    STEP("wait for comm_isplit", gyre_wait(&made));
    STEP("barrier of it", gyre_barrier(job->more[2]));
    return GYRE_OK;
}

/* 0: rank 0 gave up before it was. */
static int is_told(const meeting_t *meeting)
{
    while (!meeting->told) {
        if (meeting->gone)
            return 0;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return 1;
}

/* Another job of the same processes. The id, at which rank 0 listens, is used up in any case: where there is
 * no thread, by the call that needs none. */
static gyre_status_t job_aside(job_t *job, double patience)
{
    gyre_create_t config = GYRE_CREATE_INITIALIZER;
    meeting_t *meeting = job->meeting;
    gyre_request_t *made;
    config.init_timeout_s = config.timeout_s = patience;
    if (job->rank == 0) {
        STEP("get_unique_id", gyre_get_unique_id(&meeting->aside));
        meeting->told = 1;
    }
    if (!is_told(meeting))
        return GYRE_OK;
    gyre_status_t status =
        gyre_comm_icreate_id(&meeting->aside, job->rank, job->n, &config, &job->aside, &made);
    if (status != GYRE_OK)
        STEP("comm_create_id", gyre_comm_create_id(&meeting->aside, job->rank, job->n, &config, &job->aside));
    else
        STEP("wait for comm_icreate_id", gyre_wait(&made));
    STEP("barrier of the job aside", gyre_barrier(job->aside));
    return GYRE_OK;
}

static gyre_status_t large(job_t *job)
{
    for (int i = 0; i < LARGE; i++)
        job->window[i] = job->own[i] = 1;
    STEP("all_reduce of a window",
         gyre_all_reduce(job->window, job->window, LARGE, GYRE_FLOAT64, sum, job->world));
    STEP("all_reduce of malloc", gyre_all_reduce(job->own, job->own, LARGE, GYRE_FLOAT64, sum, job->world));
    job->wrong |= job->window[LARGE - 1] != job->n || job->own[LARGE / 2] != job->n;
    return GYRE_OK;
}

/* Ranks of one host load and store, others put and get. */
static gyre_status_t use_shared(job_t *job)
{
    void *theirs;
    const int next = (job->rank + 1) % job->n, last = (job->rank + job->n - 1) % job->n;
    double *mine = &job->moved[0], *got = &job->moved[1]; /* not on this stack: a flush may fail */
    *mine = job->rank;
    if (!job->hosts && gyre_comm_local_size(job->world) < job->n)
        return GYRE_OK; /* what failed has kept them from finding that they share a host */
    STEP("mem_alloc_shared", gyre_mem_alloc_shared(job->world, 8, (void **)&job->shared));
    if (job->hosts) {
        STEP("put", gyre_put(mine, 8, job->shared, next, 0));
        STEP("flush", gyre_flush(job->shared, -1));
        STEP("barrier after a put", gyre_barrier(job->world));
        STEP("get", gyre_get(got, 8, job->shared, next, 0));
        STEP("flush of a get", gyre_flush(job->shared, next));
        job->wrong |= *got != *mine;
    } else {
        STEP("mem_peer", gyre_mem_peer(job->shared, next, &theirs, NULL));
        *(double *)theirs = *mine;
        STEP("barrier after a store", gyre_barrier(job->world));
    }
    job->wrong |= *job->shared != last;
    return GYRE_OK;
}

static gyre_status_t use_buckets(job_t *job)
{
    const gyre_buckets_config_t config = {
        .size = sizeof config, .type = GYRE_FLOAT64, .op = GYRE_OP(GYRE_SUM), .bucket_bytes = 100};
    const size_t counts[] = {10, 1000};
    STEP("buckets_create", gyre_buckets_create(job->world, &config, 2, counts, &job->buckets));
    for (size_t i = 0; i < 2; i++)
        for (size_t k = 0; k < counts[i]; k++)
            ((double *)gyre_buckets_tensor(job->buckets, i))[k] = 1;
    gyre_status_t ready = gyre_buckets_ready(job->buckets, 0);
    gyre_status_t more = gyre_buckets_ready(job->buckets, 1);
    gyre_status_t waited = gyre_buckets_wait(job->buckets);
    STEP("buckets_ready", ready);
    STEP("buckets_ready", more);
    STEP("buckets_wait", waited);
    job->wrong |= ((double *)gyre_buckets_tensor(job->buckets, 1))[999] != job->n;
    return GYRE_OK;
}

static gyre_status_t all_calls(job_t *job, double patience)
{
    gyre_config_t config = GYRE_CONFIG_INITIALIZER;
    config.init_timeout_s = config.timeout_s = patience;
    STEP("init", gyre_init(&config, &job->world));
    gyre_status_t st = collectives(job, job->world);
    if (st == GYRE_OK)
        st = requests_and_plans(job, job->world);
    if (st == GYRE_OK)
        st = more_collectives(job, job->world);
    if (st == GYRE_OK)
        st = own_operation(job, job->world);
    if (st == GYRE_OK)
        st = communicators(job);
    if (st == GYRE_OK)
        st = job_aside(job, patience);
    if (st != GYRE_OK)
        return st;
    STEP("comm_split", gyre_comm_split(job->world, 0, 0, &job->part));
    STEP("all_reduce of a split", gyre_all_reduce(job->own, job->own, 1, GYRE_FLOAT64, sum, job->part));
    gyre_request_t *made;
    STEP("comm_idup", gyre_comm_idup(job->world, &job->later, &made));
    STEP("wait for comm_idup", gyre_wait(&made));
    STEP("all_reduce of it", gyre_all_reduce(job->own, job->own, 1, GYRE_FLOAT64, sum, job->later));
    STEP("mem_alloc", gyre_mem_alloc(LARGE * sizeof(double), (void **)&job->window));
    st = large(job);
    if (st != GYRE_OK)
        return st;
    STEP("mem_register", gyre_mem_register(job->own, LARGE * sizeof(double)));
    job->registered = 1;
    st = large(job);
    if (st == GYRE_OK)
        st = use_shared(job);
    if (st == GYRE_OK)
        st = use_buckets(job);
    if (st != GYRE_OK)
        return st;
    if (job->n > 1) {
        gyre_comm_t *old = job->world;
        (void)gyre_barrier(old); /* the others' shrink may abort it */
        STEP("comm_shrink", gyre_comm_shrink(old, &job->world));
        STEP("comm_destroy", gyre_comm_destroy(old));
        STEP("all_reduce after a shrink",
             gyre_all_reduce(job->own, job->own, 1, GYRE_FLOAT64, sum, job->world));
    }
    return GYRE_OK;
}

gyre_status_t calls_all(job_t *job, double patience)
{
    gyre_status_t st = all_calls(job, patience);
    if (st != GYRE_OK)
        job->meeting->gone = 1;
    return st;
}

/* ---- a newcomer ---------------------------------------------------------------------------------------- */

static gyre_status_t join(job_t *job, double patience)
{
    gyre_config_t config = GYRE_CONFIG_INITIALIZER;
    config.init_timeout_s = config.timeout_s = patience;
    if (!is_told(job->meeting))
        return GYRE_OK;
    /* not with setenv: the environment is read once */
    STEP("the setting of the address", base_settings_set(SET_JOIN, job->meeting->address, "the test"));
    STEP("init of a newcomer", gyre_init(&config, &job->world));
    return GYRE_OK;
}

static gyre_status_t let_in(job_t *job, double patience)
{
    gyre_config_t config = GYRE_CONFIG_INITIALIZER;
    config.init_timeout_s = config.timeout_s = patience;
    STEP("init", gyre_init(&config, &job->world));
    STEP("all_reduce before a newcomer",
         gyre_all_reduce(job->own, job->own, 1, GYRE_FLOAT64, sum, job->world));
    if (job->rank == 0) {
        STEP("comm_address",
             gyre_comm_address(job->world, job->meeting->address, sizeof job->meeting->address));
        job->meeting->told = 1;
    }
    gyre_comm_t *old = job->world;
    STEP("comm_grow", gyre_comm_grow(old, 1, &job->world));
    STEP("all_reduce of the old ones", gyre_all_reduce(job->own, job->own, 1, GYRE_FLOAT64, sum, old));
    STEP("comm_destroy", gyre_comm_destroy(old));
    return GYRE_OK;
}

gyre_status_t calls_grow(job_t *job, double patience)
{
    const int comes = job->rank == job->n - 1;
    gyre_status_t st = comes ? join(job, patience) : let_in(job, patience);
    if (st != GYRE_OK && !comes)
        job->meeting->gone = 1;
    if (st != GYRE_OK || !job->world)
        return st;
    double in = 1, out = 0;
    STEP("all_reduce of all", gyre_all_reduce(&in, &out, 1, GYRE_FLOAT64, sum, job->world));
    job->wrong |= out != job->n;
    STEP("comm_split of all", gyre_comm_split(job->world, 0, 0, &job->part));
    STEP("barrier of a split", gyre_barrier(job->part));
    return GYRE_OK;
}
