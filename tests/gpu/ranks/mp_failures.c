/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: 2 3 */
/* tests/gpu/ranks/mp_failures.c: errors on a device are reported on all ranks, and no stream waits forever:
 * ranks that disagree, a rank that never calls, a rank that dies in the middle, one that aborts. Each case
 * runs in a child job of its own communicator, between ranks that map each other's memory and staged. Also
 * several communicators at once, and capture into graphs. `mp_failures dying|late|held PATH
 * [COUNT [SECONDS]]`: with so many elements, and that deadline. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/settings/settings.h"
#include "collectives/gpu/state.h"
#include "tests/gpu/ranks/mp_gpu.h"

enum { COUNT = 50000 };
static size_t count = COUNT; /* of the calls that do not end well */
static double seconds;       /* their deadline; 0: GYRE_TIMEOUT */

static int n, rank;
static gyre_comm_t *world;
static float *a, *b;
static cudaStream_t stream;

static gyre_comm_t *open_path(const char *path)
{
    gyre_comm_t *comm;
    MP_OK(base_settings_set(SET_CUDA_PATH, path, "test"));
    MP_OK(gyre_comm_split(world, 0, rank, &comm));
    MP_OK(gyre_comm_prepare_cuda(comm));
    MP_OK(gyre_barrier(world)); /* what goes wrong goes wrong when all are ready */
    return comm;
}

/* The stream ends and the communicator has failed with one of two errors. */
static void failed(gyre_comm_t *comm, const char *what, gyre_status_t wanted, gyre_status_t or)
{
    const base_time_t from = base_now();
    CUDA(cudaStreamSynchronize(stream));
    gyre_status_t st = GYRE_OK;
    while (st == GYRE_OK && base_now() - from < (base_time_t)20e9) {
        st = gyre_comm_error(comm);
        usleep(1000);
    }
    MP_CHECK(st == wanted || st == or, "rank %d: %s ended with %s", rank, what, gyre_status_string(st));
    /* and so does every later call */
    MP_CHECK(gyre_all_reduce_stream(a, b, 4, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), comm, stream) == st,
             "rank %d: %s: a later call was taken", rank, what);
}

static void close_failed(gyre_comm_t *comm)
{
    MP_OK(gyre_comm_destroy(comm));
    MP_OK(gyre_barrier(world));
}

/* One rank cannot set up its part: all ranks get the rank and the reason, no rank waits for it, and the next
 * time works like the first. */
static void unable(void)
{
    gyre_comm_t *comm;
    MP_OK(base_settings_set(SET_CUDA_PATH, "direct", "test"));
    MP_OK(base_settings_set(SET_CUDA_STAGING, rank == n - 1 ? "64" : "64K", "test"));
    MP_OK(gyre_comm_split(world, 0, rank, &comm));
    MP_CHECK(gyre_comm_prepare_cuda(comm) == GYRE_ERR_INVALID, "rank %d: was prepared", rank);
    MP_CHECK(strstr(gyre_last_error(), "GYRE_CUDA_STAGING=64 is too little") != NULL, "rank %d: error: %s",
             rank, gyre_last_error());
    MP_OK(base_settings_set(SET_CUDA_STAGING, "64K", "test"));
    MP_OK(gyre_comm_prepare_cuda(comm));
    MP_OK(gyre_all_reduce(a, b, 4, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), comm));
    MP_OK(gyre_comm_destroy(comm));
}

static void disagreeing(const char *path)
{
    gyre_comm_t *comm = open_path(path);
    const gyre_redop_t op = GYRE_OP(rank == 0 ? GYRE_MAX : GYRE_SUM);
    (void)gyre_all_reduce_stream(a, b, count, GYRE_FLOAT32, op, comm, stream); /* may know already */
    failed(comm, "a disagreement", GYRE_ERR_MISMATCH, GYRE_ERR_MISMATCH);
    MP_CHECK(strstr(gyre_last_error(), "all_reduce") != NULL, "the error does not name the calls: %s",
             gyre_last_error());
    close_failed(comm);
}

/* Types of one number and two sizes. */
static void sizes_differ(void)
{
    gyre_comm_t *comm = open_path("direct");
    gyre_type_t own;
    MP_OK(gyre_type_create(rank == 0 ? 12 : 16, &own));
    (void)gyre_broadcast_stream(a, a, count / 4, own, 0, comm, stream); /* may know already */
    failed(comm, "types of two sizes", GYRE_ERR_MISMATCH, GYRE_ERR_MISMATCH);
    MP_CHECK(strstr(gyre_last_error(), "the size of a type of gyre_type_create") != NULL,
             "the error does not name sizes: %s", gyre_last_error());
    MP_OK(gyre_type_free(&own));
    close_failed(comm);
}

/* Elements of which a slot has no room for one of each rank, but for one. */
static void large_elements(void)
{
    gyre_comm_t *comm = open_path("staged");
    gyre_type_t own;
    MP_OK(gyre_type_create(GYRE_TYPE_BYTES_MOST, &own));
    MP_CHECK(gyre_all_gather_stream(a, b, 1, own, comm, stream) == GYRE_ERR_INVALID,
             "rank %d: elements that do not fit were taken", rank);
    MP_CHECK(strstr(gyre_last_error(), "GYRE_CUDA_STAGING=64K is too little for elements of 4096 bytes"),
             "error: %s", gyre_last_error());
    MP_OK(gyre_broadcast_stream(a, a, 3, own, 0, comm, stream));
    CUDA(cudaStreamSynchronize(stream));
    MP_OK(gyre_comm_error(comm));
    MP_OK(gyre_type_free(&own));
    MP_OK(gyre_comm_destroy(comm));
}

/* A block of another length than the root expects, which only kernels find. */
static void lengths_differ(void)
{
    gyre_comm_t *comm = open_path("direct");
    size_t counts[COLL_CUDA_RANKS];
    for (int r = 0; r < n; r++)
        counts[r] = 2000;
    (void)gyre_gatherv_stream(a, rank == n - 1 ? 1999 : 2000, b, counts, NULL, GYRE_FLOAT32, 0, comm,
                              stream); /* may know already */
    failed(comm, "blocks of two lengths", GYRE_ERR_MISMATCH, GYRE_ERR_MISMATCH);
    close_failed(comm);
}

static gyre_status_t one_more(const void *left, void *right, size_t elements, gyre_type_t type, void *user)
{
    const float *x = left;
    float *y = right;
    (void)type, (void)user;
    for (size_t i = 0; i < elements; i++)
        y[i] = x[i] + y[i] + 1;
    return GYRE_OK;
}

static atomic_int gate;

static void wait_for_gate(void *unused)
{
    (void)unused;
    while (!atomic_load(&gate))
        usleep(1000);
}

/* An operation of the program cannot be freed before the stream has come to its call. */
static void own_operation(void)
{
    gyre_comm_t *comm = open_path("staged");
    gyre_redop_t op;
    float sum = 0;
    MP_OK(gyre_op_create(one_more, NULL, GYRE_OP_COMMUTATIVE, &op));
    CUDA(cudaLaunchHostFunc(stream, wait_for_gate, NULL));
    MP_OK(gyre_all_reduce_stream(a, b, 301, GYRE_FLOAT32, op, comm, stream));
    MP_CHECK(gyre_op_free(&op) == GYRE_ERR_INVALID, "the operation of a call under way was freed");
    atomic_store(&gate, 1);
    CUDA(cudaStreamSynchronize(stream));
    MP_OK(gyre_op_free(&op));
    CUDA(cudaMemcpy(&sum, b + 300, sizeof sum, cudaMemcpyDeviceToHost));
    MP_CHECK(sum == (float)(n - 1), "rank %d: %g and not %d", rank, (double)sum, n - 1);
    MP_OK(gyre_comm_destroy(comm));
}

/* Rank 0 on the device, the others on the host. */
static void two_kinds(const char *path)
{
    gyre_comm_t *comm = open_path(path);
    static float host[4];
    gyre_status_t st = rank == 0 ? gyre_all_reduce(a, b, 4, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), comm)
                                 : gyre_all_reduce(host, host, 4, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), comm);
    MP_CHECK(st == GYRE_ERR_MISMATCH, "rank %d: memory of two kinds ended with %s: %s", rank,
             gyre_status_string(st), gyre_last_error());
    MP_CHECK(strstr(gyre_last_error(), "on device memory") != NULL, "the error does not name the kind: %s",
             gyre_last_error());
    close_failed(comm);
}

static void aborting(const char *path)
{
    gyre_comm_t *comm = open_path(path);
    if (rank == 0)
        MP_OK(gyre_comm_abort(comm, "no more"));
    else
        (void)gyre_all_reduce_stream(a, b, count, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), comm,
                                     stream); /* may know already */
    failed(comm, "an abort", GYRE_ERR_ABORTED, GYRE_ERR_ABORTED);
    close_failed(comm);
}

/* The last rank never calls; the others' deadline passes. */
static void late(const char *path)
{
    gyre_comm_t *comm = open_path(path);
    if (seconds > 0) {
        gyre_options_t soon = GYRE_OPTIONS_INITIALIZER;
        soon.timeout_s = seconds;
        MP_OK(gyre_comm_set(comm, &soon));
    }
    if (rank != n - 1)
        MP_OK(gyre_all_reduce_stream(a, b, count, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), comm, stream));
    failed(comm, "a late rank", GYRE_ERR_TIMEOUT, GYRE_ERR_ABORTED);
    close_failed(comm);
}

/* 1: this process has an arena on the device, in addition to its buffers. */
static int has_arena(void)
{
    enum { LEAST = 2 << 20 };
    size_t left, all;
    CUDA(cudaMemGetInfo(&left, &all));
    return all - left >= LEAST;
}

/* Schedules take the room of those that no longer run: none does after a failure, or who knows. */
static void no_more_schedules(const gyre_comm_t *comm)
{
    coll_cuda_explanation_t x;
    coll_shape_t shape = {.op = COLL_BROADCAST, .type = GYRE_FLOAT32, .uniform = 1, .count = (size_t)3 << 30};
    gyre_status_t st = GYRE_OK;
    MP_OK(base_settings_set(SET_ALGO, "ring", "test"));
    for (int i = 0; i < 64 && st == GYRE_OK; i++, shape.count++)
        st = coll_cuda_explain((gyre_comm_t *)comm, &shape, 0, &x);
    MP_OK(base_settings_set(SET_ALGO, NULL, "test"));
    MP_CHECK(st == gyre_comm_error(comm), "rank %d: schedules end with %s", rank, gyre_status_string(st));
}

/* Work of the program that does not end keeps rank 0 from the calls: the others' deadline passes, all
 * communicators end together, and rank 0 can destroy them. Rank 0 still has the others' memory mapped, so
 * they keep it. */
static void held(const char *path)
{
    enum { COMMS = 3 };
    static int let_go;
    gyre_options_t soon = GYRE_OPTIONS_INITIALIZER;
    gyre_comm_t *comms[COMMS];
    cudaStream_t streams[COMMS];
    const base_time_t until = base_deadline(20);
    soon.timeout_s = 3; /* for opening the path, too */
    MP_OK(gyre_comm_set(world, &soon));
    for (int i = 0; i < COMMS; i++) {
        comms[i] = open_path(path);
        CUDA(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
    }
    MP_OK(gyre_comm_set(world, NULL)); /* the others wait for rank 0 in gyre_finalize */
    for (int i = 0; i < COMMS; i++) {
        if (rank == 0)
            CUDA(cudaLaunchHostFunc(streams[i], gpu_hold, &let_go));
        MP_OK(gyre_all_reduce_stream(a, b, count, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), comms[i], streams[i]));
    }
    for (int i = 0; i < COMMS; i++) {
        gyre_status_t st = GYRE_OK;
        while ((st == GYRE_OK || !atomic_load(&comms[i]->cuda->stopped)) && base_now() < until) {
            st = gyre_comm_error(comms[i]);
            usleep(1000);
        }
        MP_CHECK(st == GYRE_ERR_TIMEOUT || st == GYRE_ERR_ABORTED,
                 "rank %d: a stream that is held ended with %s", rank, gyre_status_string(st));
    }
    MP_CHECK(rank > 0 || base_now() < comms[0]->cuda->stop_until,
             "one communicator has failed only when the time of another was over");
    if (rank == 0 && comms[0]->cuda->path == COLL_CUDA_PEERS)
        no_more_schedules(comms[0]);
    for (int i = 0; i < COMMS; i++)
        MP_OK(gyre_comm_destroy(comms[i]));
    if (rank == 0)
        MP_CHECK(cudaStreamQuery(streams[0]) == cudaErrorNotReady, "the stream was not held");
    __atomic_store_n(&let_go, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < COMMS; i++) {
        CUDA(cudaStreamSynchronize(streams[i]));
        CUDA(cudaStreamDestroy(streams[i]));
    }
}

static void several(const char *path)
{
    enum { COMMS = 3 };
    gyre_comm_t *comms[COMMS];
    cudaStream_t streams[COMMS];
    static float host[COUNT];
    for (int i = 0; i < COUNT; i++)
        host[i] = 1;
    CUDA(cudaMemcpy(a, host, sizeof host, cudaMemcpyHostToDevice));
    for (int i = 0; i < COMMS; i++) {
        comms[i] = open_path(path);
        CUDA(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
    }
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < COMMS; i++) { /* each rank in another order */
            const int c = (i + rank) % COMMS;
            MP_OK(gyre_all_reduce_stream(a, b + (size_t)c * 1000, 1000, GYRE_FLOAT32, GYRE_OP(GYRE_SUM),
                                         comms[c], streams[c]));
        }
    for (int i = 0; i < COMMS; i++)
        CUDA(cudaStreamSynchronize(streams[i]));
    CUDA(cudaMemcpy(host, b, COMMS * 1000 * sizeof *host, cudaMemcpyDeviceToHost));
    for (int i = 0; i < COMMS * 1000; i++)
        MP_CHECK(host[i] == (float)n, "%s: element %d is %g", path, i, (double)host[i]);
    for (int i = 0; i < COMMS; i++) {
        CUDA(cudaStreamDestroy(streams[i]));
        MP_OK(gyre_comm_destroy(comms[i]));
    }
}

/* Rank 0 prepares a communicator after a call of another one, the other ranks before it: the call is on a
 * stream that the legacy stream waits for, so nothing may be prepared on that. */
static void crossed(void)
{
    gyre_comm_t *first = open_path("direct"), *second;
    cudaStream_t blocking;
    CUDA(cudaStreamCreate(&blocking));
    MP_OK(gyre_comm_split(world, 0, rank, &second));
    for (int i = 0; i < 2; i++) {
        if (i == (rank != 0))
            MP_OK(gyre_all_reduce_stream(a, b, 1000, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), first, blocking));
        else
            MP_OK(gyre_comm_prepare_cuda(second));
    }
    CUDA(cudaStreamSynchronize(blocking));
    MP_OK(gyre_all_reduce(a, b, 1000, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), second));
    CUDA(cudaStreamDestroy(blocking));
    MP_OK(gyre_comm_destroy(first));
    MP_OK(gyre_comm_destroy(second));
}

/* A graph of two operations, run three times: each run multiplies by n. */
static void captured(void)
{
    gyre_comm_t *comm = open_path("direct");
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    static float host[COUNT];
    for (int i = 0; i < COUNT; i++)
        host[i] = 1;
    CUDA(cudaMemcpy(a, host, sizeof host, cudaMemcpyHostToDevice));
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    MP_OK(gyre_all_reduce_stream(a, b, COUNT, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), comm, stream));
    MP_OK(gyre_broadcast_stream(b, a, COUNT, GYRE_FLOAT32, 0, comm, stream));
    CUDA(cudaStreamEndCapture(stream, &graph));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    float want = 1;
    for (int k = 0; k < 3; k++) {
        CUDA(cudaGraphLaunch(exec, stream));
        want *= (float)n;
    }
    MP_OK(gyre_all_reduce_stream(a, b, COUNT, GYRE_FLOAT32, GYRE_OP(GYRE_MAX), comm,
                                 stream)); /* and after it */
    CUDA(cudaStreamSynchronize(stream));
    CUDA(cudaMemcpy(host, b, sizeof host, cudaMemcpyDeviceToHost));
    for (int i = 0; i < COUNT; i++)
        MP_CHECK(host[i] == want, "element %d is %g, not %g", i, (double)host[i], (double)want);
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphDestroy(graph));
    MP_OK(gyre_comm_destroy(comm));

    comm = open_path("staged"); /* and where capture is not possible: refused, and nothing is broken */
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    MP_CHECK(gyre_all_reduce_stream(a, b, COUNT, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), comm, stream) ==
                 GYRE_ERR_UNSUPPORTED,
             "a staged operation was captured");
    CUDA(cudaStreamEndCapture(stream, &graph));
    CUDA(cudaGraphDestroy(graph));
    MP_OK(gyre_all_reduce(a, b, COUNT, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), comm));
    MP_OK(gyre_comm_destroy(comm));
}

/* The last: rank n - 1 ends in the middle of things. The other ranks get the error. */
static void dying(const char *path)
{
    gyre_comm_t *comm = open_path(path);
    if (rank == n - 1) {
        usleep(50 * 1000); /* the others have left the barrier */
        _exit(0);
    }
    (void)gyre_all_reduce_stream(a, b, count, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), comm,
                                 stream); /* may know already */
    failed(comm, "a death", GYRE_ERR_PEER_DEAD, GYRE_ERR_ABORTED);
    MP_OK(gyre_comm_destroy(comm));
}

int main(int argc, char **argv)
{
    static const char *const paths[] = {"direct", "staged"};
    if (!gpu_here())
        return 77;
    MP_OK(gyre_init(NULL, &world));
    n = gyre_comm_size(world);
    rank = gyre_comm_rank(world);
    MP_OK(base_settings_set(SET_CUDA_BLOCKS, "2", "test"));
    MP_OK(base_settings_set(SET_CUDA_STAGING, "64K", "test"));
    CUDA(cudaMalloc((void **)&a, COUNT * sizeof *a));
    CUDA(cudaMalloc((void **)&b, COUNT * sizeof *b));
    CUDA(cudaMemset(a, 0, COUNT * sizeof *a));
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    if (argc >= 4)
        count = strtoul(argv[3], NULL, 10);
    if (argc == 5)
        seconds = strtod(argv[4], NULL);
    if (argc >= 3 && strcmp(argv[1], "dying") == 0) { /* tests/gpu/ranks/jobs.sh: jobs that do not end well */
        dying(argv[2]);
        return 0;
    }
    if (argc >= 3 && (strcmp(argv[1], "late") == 0 || strcmp(argv[1], "held") == 0)) {
        const int stays = argv[1][0] == 'h' && strcmp(argv[2], "direct") == 0;
        (argv[1][0] == 'l' ? late : held)(argv[2]);
        MP_OK(gyre_finalize(world));
        MP_CHECK(!gpu_is_emulated() || has_arena() == stays, "rank %d has %s arena", rank,
                 stays ? "no" : "an");
        return 0;
    }
    unable();
    large_elements();
    own_operation();
    captured();
    crossed();
    MP_OK(base_settings_set(SET_CUDA_WAIT, "kernel", "test"));
    captured();
    crossed();
    for (int i = 0; i < 2; i++) {
        several(paths[i]);
        disagreeing(paths[i]);
        aborting(paths[i]);
    }
    lengths_differ();
    sizes_differ();
    count = 301; /* LL */
    sizes_differ();
    disagreeing("direct");
    aborting("direct");
    count = COUNT;
    MP_OK(base_settings_set(SET_CUDA_WAIT, "auto", "test")); /* streams, as the ranks share the device */
    for (int i = 0; i < 2; i++) {
        several(paths[i]);
        disagreeing(paths[i]);
        two_kinds(paths[i]);
        aborting(paths[i]);
    }
    MP_OK(gyre_finalize(world));
    return 0;
}
