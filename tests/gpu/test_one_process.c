/* SPDX-License-Identifier: Apache-2.0 */
/* tests/gpu/test_one_process.c: ranks of one process (gyre_cuda_comms_create). Every collective has the bits
 * of the host's arithmetic in the canonical order, on one device and on several, called by one thread, in a
 * group, by a thread per rank, and from graphs. Invalid calls are refused. Errors on one rank are reported on
 * all, and nothing waits forever or is left over.
 *
 * Longer than 600 lines: all tests share one job, its buffers, and the arithmetic of the expected results. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <cuda.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gyre/gyre.h>

#include "base/clock.h"
#include "base/settings/settings.h"
#include "collectives/gpu/gpu.h"
#include "collectives/kernels/kernels.h"
#include "collectives/schedules/schedule.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/values.h"

enum { MOST = 8, ROOM = 1 << 18, GUARD = 64, POISON = 0x5a };
enum {
    PERIOD = 64
}; /* operations until LL kernels count from 0 again, emulated: collectives/gpu/ll/lines.h */

typedef enum { BY_ONE_THREAD, BY_GROUP, BY_THREADS, BY_GRAPH, MANNERS } manner_t;

typedef struct {
    coll_op_t op;
    gyre_type_t type;
    int redop; /* DEVICE_REDOPS: a scaled sum */
    size_t count;
    int root, in_place, uneven;
    size_t shift; /* bytes off alignment */
} ask_t;

typedef struct {
    size_t send[MOST], recv[MOST]; /* elements to and from each rank, or [0] of the whole */
    size_t send_all, recv_all;
} lengths_t;

static struct {
    int n;
    gyre_comm_t *comms[MOST];
    cudaStream_t streams[MOST];
    int device[MOST];
    char *in[MOST], *out[MOST];             /* on the devices: ROOM + 2 GUARD bytes */
    char *host_in[MOST], *want[MOST], *sum; /* on the host: ROOM */
    ask_t ask;
    lengths_t lengths[MOST];
    uint64_t seed;
} job;

static void set(base_setting_t id, const char *value)
{
    assert_int_equal(base_settings_set(id, value, "test"), GYRE_OK);
}

#define assert_gyre(call) assert_int_equal((call), GYRE_OK)

/* ---- a job --------------------------------------------------------------------------------------------- */

static void open_comms(int n, const int *devices)
{
    int count;
    assert_cuda(cudaGetDeviceCount(&count));
    job.n = n;
    assert_gyre(gyre_cuda_comms_create(n, devices, job.comms));
    for (int r = 0; r < n; r++)
        job.device[r] = devices ? devices[r] : r % count;
}

static void open_job(int n, const int *devices)
{
    open_comms(n, devices);
    for (int r = 0; r < n; r++) {
        assert_int_equal(gyre_comm_rank(job.comms[r]), r);
        assert_int_equal(gyre_comm_size(job.comms[r]), n);
        assert_int_equal(gyre_comm_local_size(job.comms[r]), n);
        char bus[24];
        gyre_place_t place = {.size = sizeof place};
        assert_gyre(gyre_comm_place(job.comms[0], r, &place));
        assert_cuda(cudaDeviceGetPCIBusId(bus, sizeof bus, job.device[r]));
        assert_int_equal(place.device, job.device[r]);
        assert_string_equal(place.device_bus, bus);
        assert_int_equal(place.job_rank, r);
        assert_int_equal(place.host_size, n);
        assert_true(place.host_name[0] != '\0');
        assert_cuda(cudaSetDevice(job.device[r]));
        assert_cuda(cudaStreamCreateWithFlags(&job.streams[r], cudaStreamNonBlocking));
        assert_cuda(cudaMalloc((void **)&job.in[r], ROOM + 2 * GUARD));
        assert_cuda(cudaMalloc((void **)&job.out[r], ROOM + 2 * GUARD));
        job.host_in[r] = malloc(ROOM);
        job.want[r] = malloc(ROOM);
        assert_true(job.host_in[r] && job.want[r]);
    }
    job.sum = malloc(ROOM);
    assert_non_null(job.sum);
    assert_cuda(cudaSetDevice(0));
}

static void close_comms(void)
{
    for (int r = 0; r < job.n; r++) {
        assert_gyre(gyre_comm_destroy(job.comms[r]));
        job.comms[r] = NULL;
    }
}

static void close_job(void)
{
    for (int r = 0; r < job.n; r++) {
        assert_cuda(cudaSetDevice(job.device[r]));
        assert_cuda(cudaStreamSynchronize(job.streams[r]));
        if (job.comms[r])
            assert_gyre(gyre_comm_destroy(job.comms[r]));
        job.comms[r] = NULL;
    }
    for (int r = 0; r < job.n; r++) {
        assert_cuda(cudaStreamDestroy(job.streams[r]));
        assert_cuda(cudaFree(job.in[r]));
        assert_cuda(cudaFree(job.out[r]));
        free(job.host_in[r]);
        free(job.want[r]);
    }
    free(job.sum);
    assert_cuda(cudaSetDevice(0));
}

static void wait_for_streams(void)
{
    for (int r = 0; r < job.n; r++)
        assert_cuda(cudaStreamSynchronize(job.streams[r]));
}

/* ---- what is given, and what must come ----------------------------------------------------------------- */

static double factor(int rank)
{
    return rank % 2 ? 1.7 : -3.0;
}

static gyre_redop_t redop_of(const ask_t *a, int rank)
{
    return a->redop == DEVICE_REDOPS ? GYRE_SCALED_SUM(factor(rank)) : GYRE_OP((gyre_redop_kind_t)a->redop);
}

/* The elements of block r, or from rank s to rank r. */
static size_t block(const ask_t *a, int s, int r)
{
    if (!a->uneven)
        return a->count;
    if (a->op == COLL_ALL_TO_ALL)
        return (size_t)((s * 3 + r) % 4) * a->count / 2;
    return r % 3 == 1 ? 0 : a->count + (size_t)(7 * r); /* some are empty */
}

static void measure(int rank)
{
    const ask_t *a = &job.ask;
    lengths_t *l = &job.lengths[rank];
    size_t blocks = 0;
    memset(l, 0, sizeof *l);
    for (int r = 0; r < job.n; r++) {
        l->send[r] = block(a, rank, r);
        l->recv[r] = block(a, r, rank);
        blocks += a->op == COLL_ALL_TO_ALL ? 0 : l->send[r];
        l->send_all += l->send[r];
        l->recv_all += l->recv[r];
    }
    const size_t mine = block(a, rank, rank), root = rank == a->root;
    switch (a->op) {
    case COLL_ALL_REDUCE:
        l->send_all = l->recv_all = a->count;
        break;
    case COLL_REDUCE:
        l->send_all = a->count, l->recv_all = root ? a->count : 0;
        break;
    case COLL_BROADCAST:
        l->send_all = root ? a->count : 0, l->recv_all = a->count;
        break;
    case COLL_REDUCE_SCATTER:
        l->send_all = blocks, l->recv_all = mine;
        break;
    case COLL_ALL_GATHER:
        l->send_all = mine, l->recv_all = blocks;
        break;
    case COLL_GATHER:
        l->send_all = mine, l->recv_all = root ? blocks : 0;
        break;
    case COLL_SCATTER:
        l->send_all = root ? blocks : 0, l->recv_all = mine;
        break;
    default:
        if (a->op == COLL_BARRIER)
            memset(l, 0, sizeof *l);
        break;
    }
}

static size_t before(const size_t *counts, int r)
{
    size_t at = 0;
    for (int i = 0; i < r; i++)
        at += counts[i];
    return at;
}

/* The host's arithmetic over all inputs: to job.sum. */
static void add_up(size_t count)
{
    const ask_t *a = &job.ask;
    const void *from[MOST];
    char *scaled[MOST] = {NULL};
    for (int r = 0; r < job.n; r++) {
        from[r] = job.host_in[r];
        if (a->redop == DEVICE_REDOPS) {
            scaled[r] = malloc(ROOM);
            assert_non_null(scaled[r]);
            coll_kernel_scale(a->type, scaled[r], job.host_in[r], count, factor(r));
            from[r] = scaled[r];
        }
    }
    coll_kernel_reduce(a->redop == DEVICE_REDOPS ? GYRE_SUM : (gyre_redop_kind_t)a->redop, a->type, job.sum,
                       from, job.n, count);
    if (a->redop == GYRE_AVG)
        coll_kernel_divide(a->type, job.sum, count, job.n);
    for (int r = 0; r < job.n; r++)
        free(scaled[r]);
}

static void expect(int rank)
{
    const ask_t *a = &job.ask;
    const lengths_t *l = &job.lengths[rank];
    const size_t size = gyre_type_size(a->type);
    char *to = job.want[rank];
    if (coll_op_reduces(a->op)) {
        const size_t at = a->op == COLL_REDUCE_SCATTER ? before(l->send, rank) : 0;
        memcpy(to, job.sum + at * size, l->recv_all * size);
    } else if (a->op == COLL_BROADCAST || a->op == COLL_SCATTER) {
        const size_t at = a->op == COLL_SCATTER ? before(job.lengths[a->root].send, rank) : 0;
        memcpy(to, job.host_in[a->root] + at * size, l->recv_all * size);
    } else if (l->recv_all) {
        for (int r = 0; r < job.n; r++) {
            const size_t count = a->op == COLL_ALL_TO_ALL ? l->recv[r] : block(a, 0, r);
            const size_t at = a->op == COLL_ALL_TO_ALL ? before(job.lengths[r].send, rank) : 0;
            memcpy(to, job.host_in[r] + at * size, count * size);
            to += count * size;
        }
    }
}

/* ---- a call -------------------------------------------------------------------------------------------- */

/* Where the buffers of a rank begin: in place as its collective says. */
static void find_buffers(int rank, char **from, char **to)
{
    const ask_t *a = &job.ask;
    const lengths_t *l = &job.lengths[rank];
    const size_t size = gyre_type_size(a->type);
    *from = job.in[rank] + GUARD + a->shift;
    *to = job.out[rank] + GUARD + a->shift;
    const int whole = a->op == COLL_ALL_REDUCE || a->op == COLL_ALL_TO_ALL ||
                      ((a->op == COLL_REDUCE || a->op == COLL_BROADCAST) && rank == a->root);
    const int spread = a->op == COLL_REDUCE_SCATTER || (a->op == COLL_SCATTER && rank == a->root);
    const int collect = a->op == COLL_ALL_GATHER || (a->op == COLL_GATHER && rank == a->root);
    if (!a->in_place || (a->op == COLL_ALL_TO_ALL && a->uneven))
        return;
    if (whole)
        *from = *to;
    else if (spread)
        *from = *to, *to += before(l->send, rank) * size;
    else if (collect)
        *from = *to + before(l->send, rank) * size;
}

/* streamed: on the rank's stream, else blocking. */
#define CALL(NAME, ...) \
    (streamed ? gyre_##NAME##_stream(__VA_ARGS__, comm, stream) : gyre_##NAME(__VA_ARGS__, comm))
static gyre_status_t call(int rank, int streamed)
{
    const ask_t *a = &job.ask;
    const lengths_t *l = &job.lengths[rank];
    gyre_comm_t *comm = job.comms[rank];
    cudaStream_t stream = job.streams[rank];
    const gyre_redop_t op = redop_of(a, rank);
    char *from, *to;
    find_buffers(rank, &from, &to);
    char *given = l->send_all || rank == a->root ? from : NULL, *taken = l->recv_all ? to : NULL;
    switch (a->op) {
    case COLL_ALL_REDUCE:
        return CALL(all_reduce, from, to, a->count, a->type, op);
    case COLL_REDUCE:
        return CALL(reduce, from, taken, a->count, a->type, op, a->root);
    case COLL_BROADCAST:
        return CALL(broadcast, given, to, a->count, a->type, a->root);
    case COLL_REDUCE_SCATTER:
        return a->uneven ? CALL(reduce_scatterv, from, to, l->send, a->type, op)
                         : CALL(reduce_scatter, from, to, a->count, a->type, op);
    case COLL_ALL_GATHER:
        return a->uneven ? CALL(all_gatherv, from, to, l->send, NULL, a->type)
                         : CALL(all_gather, from, to, a->count, a->type);
    case COLL_GATHER:
        return a->uneven ? CALL(gatherv, from, l->send_all, taken, l->send, NULL, a->type, a->root)
                         : CALL(gather, from, taken, a->count, a->type, a->root);
    case COLL_SCATTER:
        return a->uneven ? CALL(scatterv, given, l->send, NULL, to, l->recv_all, a->type, a->root)
                         : CALL(scatter, given, to, a->count, a->type, a->root);
    case COLL_ALL_TO_ALL:
        return a->uneven ? CALL(all_to_allv, from, l->send, NULL, to, l->recv, NULL, a->type)
                         : CALL(all_to_all, from, to, a->count, a->type);
    default:
        return streamed ? gyre_barrier_stream(comm, stream) : gyre_barrier(comm);
    }
}

static void *call_in_thread(void *rank)
{
    const int r = (int)(intptr_t)rank;
    return (void *)(intptr_t)(cudaSetDevice(job.device[r]) == cudaSuccess ? call(r, 0) : GYRE_ERR_SYSTEM);
}

static void call_by_threads(void)
{
    pthread_t threads[MOST];
    for (int r = 0; r < job.n; r++)
        assert_int_equal(pthread_create(&threads[r], NULL, call_in_thread, (void *)(intptr_t)r), 0);
    for (int r = 0; r < job.n; r++) {
        void *status;
        assert_int_equal(pthread_join(threads[r], &status), 0);
        assert_int_equal((intptr_t)status, GYRE_OK);
    }
}

/* All graphs are there before the first is launched: making one may wait for the device. Not in place they
 * run twice. */
static void call_by_graph(void)
{
    cudaGraphExec_t made[MOST];
    const int times = job.ask.in_place ? 1 : 2;
    for (int r = 0; r < job.n; r++) {
        cudaGraph_t graph;
        assert_cuda(cudaSetDevice(job.device[r]));
        assert_cuda(cudaStreamBeginCapture(job.streams[r], cudaStreamCaptureModeThreadLocal));
        assert_gyre(call(r, 1));
        assert_cuda(cudaStreamEndCapture(job.streams[r], &graph));
        assert_cuda(cudaGraphInstantiate(&made[r], graph, 0));
        assert_cuda(cudaGraphDestroy(graph));
    }
    for (int i = 0; i < times; i++)
        for (int r = 0; r < job.n; r++) {
            assert_cuda(cudaSetDevice(job.device[r]));
            assert_cuda(cudaGraphLaunch(made[r], job.streams[r]));
        }
    wait_for_streams();
    for (int r = 0; r < job.n; r++)
        assert_cuda(cudaGraphExecDestroy(made[r]));
    assert_cuda(cudaSetDevice(0));
}

static void call_all(manner_t manner)
{
    switch (manner) {
    case BY_ONE_THREAD:
        for (int i = 0; i < job.n; i++) /* in any order */
            assert_gyre(call((i + (int)(job.seed % 7)) % job.n, 1));
        wait_for_streams();
        return;
    case BY_GROUP:
        assert_gyre(gyre_group_start());
        for (int r = 0; r < job.n; r++)
            assert_gyre(call(r, 0));
        assert_gyre(gyre_group_end());
        return;
    case BY_THREADS:
        call_by_threads();
        return;
    default:
        call_by_graph();
    }
}

static void check(const ask_t *ask, manner_t manner)
{
    static char back[ROOM + 2 * GUARD];
    const size_t size = gyre_type_size(ask->type);
    job.ask = *ask;
    size_t most = 0;
    for (int r = 0; r < job.n; r++) {
        measure(r);
        most = job.lengths[r].send_all > most ? job.lengths[r].send_all : most;
        assert_true((job.lengths[r].send_all + 1) * size + ask->shift < ROOM);
        assert_true((job.lengths[r].recv_all + 1) * size + ask->shift < ROOM);
    }
    for (int r = 0; r < job.n; r++) {
        char *from, *to;
        find_buffers(r, &from, &to);
        values_fill(job.host_in[r], job.lengths[r].send_all, ask->type, &job.seed);
        assert_cuda(cudaMemset(job.out[r], POISON, ROOM + 2 * GUARD));
        assert_cuda(cudaMemcpy(from, job.host_in[r], job.lengths[r].send_all * size, cudaMemcpyHostToDevice));
        assert_cuda(cudaStreamSynchronize(cudaStreamLegacy));
    }
    if (coll_op_reduces(ask->op))
        add_up(most);
    call_all(manner);
    for (int r = 0; r < job.n; r++) {
        char *from, *to;
        find_buffers(r, &from, &to);
        const size_t bytes = job.lengths[r].recv_all * size, at = (size_t)(to - job.out[r]);
        expect(r);
        assert_cuda(cudaMemcpy(back, job.out[r], sizeof back, cudaMemcpyDeviceToHost));
        if (memcmp(back + at, job.want[r], bytes) != 0)
            fail_msg("op %d type %s redop %d count %zu root %d in place %d uneven %d shift %zu manner %d, "
                     "rank %d of %d: "
                     "other bits than the host's",
                     (int)ask->op, gyre_type_name(ask->type), ask->redop, ask->count, ask->root,
                     ask->in_place, ask->uneven, ask->shift, (int)manner, r, job.n);
        for (size_t i = 0; i < GUARD && at + bytes + i < sizeof back && !ask->in_place; i++)
            assert_int_equal(back[at + bytes + i], POISON);
        assert_gyre(gyre_comm_error(job.comms[r]));
    }
}

/* ---- the tests ----------------------------------------------------------------------------------------- */

static const coll_op_t operations[] = {COLL_ALL_REDUCE,     COLL_REDUCE,     COLL_BROADCAST,
                                       COLL_REDUCE_SCATTER, COLL_ALL_GATHER, COLL_GATHER,
                                       COLL_SCATTER,        COLL_ALL_TO_ALL, COLL_BARRIER};
enum { OPERATIONS = sizeof operations / sizeof *operations };

static void every_operation(void)
{
    static const size_t sizes[] = {0, 1, 5, 333, 2003};
    static const gyre_type_t types[] = {GYRE_FLOAT32, GYRE_UINT8, GYRE_FLOAT16, GYRE_INT64};
    int turn = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int op = 0; op < OPERATIONS; op++)
            for (int form = 0; form < 4; form++, turn++) {
                ask_t a = {.op = operations[op],
                           .type = types[turn % 4],
                           .count = sizes[i],
                           .root = turn % job.n,
                           .in_place = form & 1,
                           .uneven = form >> 1};
                a.shift = turn % 5 == 1 ? gyre_type_size(a.type) : 0;
                if (a.uneven && (a.op == COLL_ALL_REDUCE || a.op == COLL_REDUCE || a.op == COLL_BROADCAST ||
                                 a.op == COLL_BARRIER))
                    continue;
                check(&a, (manner_t)((turn + turn / 4) % MANNERS));
            }
}

static void every_arithmetic(void)
{
    for (int type = 0; type < DEVICE_TYPES; type++)
        for (int op = 0; op <= DEVICE_REDOPS; op++) {
            const ask_t a = {.op = COLL_ALL_REDUCE,
                             .type = (gyre_type_t)type,
                             .redop = op,
                             .count = 503,
                             .in_place = op % 2};
            check(&a, BY_ONE_THREAD);
        }
}

static void on_one_device(void **state)
{
    static const int devices[MOST] = {0};
    (void)state;
    for (int n = 1; n <= MOST; n += n < 3 ? 1 : n < 4 ? 2 : 3) {
        open_job(n, devices);
        every_operation();
        if (n == 5)
            every_arithmetic();
        close_job();
    }
}

static void on_several_devices(void **state)
{
    (void)state;
    open_job(6, NULL);
    every_operation();
    close_job();
}

static void refused(gyre_status_t got, gyre_status_t wanted, const char *text)
{
    assert_int_equal(got, wanted);
    if (!strstr(gyre_last_error(), text))
        fail_msg("\"%s\" is not in: %s", text, gyre_last_error());
}

static void runs_as(coll_op_t op, size_t count, const char *algorithm)
{
    coll_cuda_explanation_t x;
    const coll_shape_t shape = {
        .op = op, .type = GYRE_UINT8, .redop = GYRE_SUM, .uniform = 1, .count = count};
    assert_gyre(coll_cuda_explain(job.comms[0], &shape, 0, &x));
    assert_string_equal(x.algorithm, algorithm);
}

/* ---- LL kernels (collectives/gpu/ll) ---- */

/* A rank's share of a pretend device's four multiprocessors is the blocks that it has. */
static void short_ones(void **state)
{
    static const struct {
        int n;
        size_t most;
    } jobs[] = {{2, 16 << 10}, {5, 8 << 10}};
    (void)state;
    set(SET_CUDA_LL, NULL);
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        open_job(jobs[i].n, NULL);
        runs_as(COLL_ALL_REDUCE, jobs[i].most, "ll");
        runs_as(COLL_ALL_REDUCE, jobs[i].most + 1, jobs[i].n > 2 ? "two_shot" : "one_shot");
        runs_as(COLL_BARRIER, 0, "direct");
        every_operation();
        if (jobs[i].n > 3)
            every_arithmetic();
        close_job();
    }
    set(SET_CUDA_LL, "0");
    open_job(2, NULL);
    runs_as(COLL_ALL_REDUCE, 4, "one_shot");
    close_job();
    set(SET_CUDA_LL, "16385");
    refused(gyre_cuda_comms_create(2, NULL, job.comms), GYRE_ERR_INVALID,
            "GYRE_CUDA_LL=16385 is not in 0..16384 bytes");
    set(SET_CUDA_LL, "1K");
}

/* More ranks than a thread looks at together, in four groups. */
static void short_ones_of_many(void **state)
{
    enum { N = 27, COUNT = 301 };
    gyre_comm_t *comms[N];
    cudaStream_t streams[N];
    float *there[N], host[N][COUNT], want[COUNT], got[COUNT];
    const void *from[N];
    (void)state;
    set(SET_CUDA_LL, NULL);
    assert_gyre(gyre_cuda_comms_create(N, NULL, comms));
    for (int r = 0; r < N; r++) {
        values_fill((char *)host[r], COUNT, GYRE_FLOAT32, &job.seed);
        from[r] = host[r];
        assert_cuda(cudaSetDevice(r % 4));
        assert_cuda(cudaStreamCreateWithFlags(&streams[r], cudaStreamNonBlocking));
        assert_cuda(cudaMalloc((void **)&there[r], sizeof got));
        assert_cuda(cudaMemcpy(there[r], host[r], sizeof got, cudaMemcpyHostToDevice));
        assert_cuda(cudaStreamSynchronize(cudaStreamLegacy));
    }
    job.comms[0] = comms[0];
    runs_as(COLL_ALL_REDUCE, COUNT * sizeof(float), "ll");
    runs_as(COLL_ALL_REDUCE, (4 << 10) + 1, "two_shot");
    for (int r = 0; r < N; r++)
        assert_gyre(gyre_all_reduce_stream(there[r], there[r], COUNT, GYRE_FLOAT32, GYRE_OP(GYRE_SUM),
                                           comms[r], streams[r]));
    coll_kernel_reduce(GYRE_SUM, GYRE_FLOAT32, want, from, N, COUNT);
    for (int r = 0; r < N; r++) {
        assert_cuda(cudaStreamSynchronize(streams[r]));
        assert_cuda(cudaMemcpy(got, there[r], sizeof got, cudaMemcpyDeviceToHost));
        assert_memory_equal(got, want, sizeof got);
    }
    for (int r = 0; r < N; r++) {
        assert_gyre(gyre_comm_destroy(comms[r]));
        assert_cuda(cudaSetDevice(r % 4));
        assert_cuda(cudaStreamDestroy(streams[r]));
        assert_cuda(cudaFree(there[r]));
    }
    job.comms[0] = NULL;
    assert_cuda(cudaSetDevice(0));
    set(SET_CUDA_LL, "1K");
}

/* Many short ones that nobody waits for, of other lengths and kinds each time and with others in between:
 * through all numbers that operations have, twice and more. The last rank is late now and then. */
static void short_ones_in_a_row(void **state)
{
    enum { ROUNDS = PERIOD * 5 / 2, MOST_EACH = 60, LONG = 1000, FIRST = 3 };
    static int host[ROUNDS][MOST_EACH], want[LONG];
    (void)state;
    set(SET_CUDA_LL, NULL);
    open_job(3, NULL);
    runs_as(COLL_ALL_REDUCE, LONG * sizeof(int), "ll");
    for (int r = 0; r < job.n; r++) {
        int *values = (int *)job.host_in[r];
        for (int i = 0; i < 2 * LONG; i++)
            values[i] = (r + 1) * (i + 1);
        assert_cuda(cudaMemcpy(job.in[r], values, 2 * LONG * sizeof(int), cudaMemcpyHostToDevice));
        assert_cuda(cudaMemset(job.out[r], POISON, ROOM));
    }
    assert_cuda(cudaStreamSynchronize(cudaStreamLegacy));
    for (int k = 0; k < ROUNDS; k++) /* every rank's result k is at the place of its number */
        for (int r = 0; r < job.n; r++) {
            gyre_comm_t *comm = job.comms[r];
            int *in = (int *)job.in[r] + k % 7, *out = (int *)job.out[r] + LONG + k * MOST_EACH;
            const size_t count = (size_t)(k * 13 % MOST_EACH + 1);
            cudaStream_t stream = job.streams[r];
            if (k % 11 == 5)
                assert_gyre(gyre_barrier_stream(comm, stream));
            if (r == job.n - 1 && k % 29 == 3)
                usleep(3000);
            if (k == FIRST || k == FIRST + PERIOD) {
                /* the same number, and lines that only these two have: new ones, which come late */
                if (k > FIRST && r == job.n - 1)
                    usleep(30000);
                assert_gyre(gyre_all_reduce_stream((int *)job.in[r] + (k > FIRST ? LONG : 0), job.out[r],
                                                   LONG, GYRE_INT32, GYRE_OP(GYRE_SUM), comm, stream));
            } else if (k % 3 == 0) {
                assert_gyre(gyre_broadcast_stream(r == k % job.n ? in : NULL, out, count, GYRE_INT32,
                                                  k % job.n, comm, stream));
            } else {
                assert_gyre(
                    gyre_all_reduce_stream(in, out, count, GYRE_INT32, GYRE_OP(GYRE_SUM), comm, stream));
            }
        }
    wait_for_streams();
    for (int r = 0; r < job.n; r++) {
        assert_cuda(cudaMemcpy(host, (int *)job.out[r] + LONG, sizeof host, cudaMemcpyDeviceToHost));
        assert_cuda(cudaMemcpy(want, job.out[r], sizeof want, cudaMemcpyDeviceToHost));
        for (int i = 0; i < LONG; i++)
            assert_int_equal(want[i], 6 * (LONG + i + 1));
        for (int k = 0; k < ROUNDS; k++)
            for (int i = 0; i <= k * 13 % MOST_EACH && k != FIRST && k != FIRST + PERIOD; i++)
                if (host[k][i] != (k % 3 == 0 ? k % job.n + 1 : 6) * (k % 7 + i + 1))
                    fail_msg("rank %d, operation %d, element %d: %d", r, k, i, host[k][i]);
    }
    set(SET_CUDA_LL, "1K");
    close_job();
}

/* Long ones by copy engines, in several rounds. */
static void by_copy_engines(void **state)
{
    (void)state;
    set(SET_CUDA_ENGINES, "300");
    open_job(3, NULL);
    for (int manner = 0; manner < MANNERS; manner++) {
        const ask_t gather = {.op = COLL_ALL_GATHER, .type = GYRE_FLOAT32, .count = 20011},
                    cast = {.op = COLL_BROADCAST, .type = GYRE_UINT8, .count = 100003, .root = 1};
        check(&gather, (manner_t)manner);
        check(&cast, (manner_t)manner);
    }
    close_job();
    set(SET_CUDA_ENGINES, NULL);
}

/* Messages around the ring by one thread, of lengths around a piece and beyond all that can be on its way:
 * those go in a group. */
static void messages(void **state)
{
    static const size_t sizes[] = {0, 1, 5, 1000, 5000, ROOM / 4 - 8};
    (void)state;
    for (int several = 0; several < 2; several++) {
        static const int devices[MOST] = {0};
        open_job(3, several ? NULL : devices);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            const size_t bytes = sizes[i] * sizeof(float);
            for (int r = 0; r < job.n; r++) {
                values_fill(job.host_in[r], sizes[i], GYRE_FLOAT32, &job.seed);
                assert_cuda(cudaMemset(job.out[r], POISON, ROOM));
                assert_cuda(cudaMemcpy(job.in[r], job.host_in[r], bytes, cudaMemcpyHostToDevice));
                assert_cuda(cudaStreamSynchronize(cudaStreamLegacy));
            }
            const int grouped = sizes[i] > 1000 || i % 2;
            if (grouped)
                assert_gyre(gyre_group_start());
            for (int r = 0; r < job.n; r++) {
                const int next = (r + 1) % job.n, before = (r + job.n - 1) % job.n;
                if (i % 3 == 0) {
                    assert_gyre(gyre_neighbor_exchange_stream(job.in[r], &sizes[i], NULL, 1, &next,
                                                              job.out[r], &sizes[i], NULL, 1, &before,
                                                              GYRE_FLOAT32, job.comms[r], job.streams[r]));
                    continue;
                }
                assert_gyre(
                    gyre_send_stream(job.in[r], sizes[i], GYRE_FLOAT32, next, job.comms[r], job.streams[r]));
                assert_gyre(gyre_recv_stream(job.out[r], sizes[i], GYRE_FLOAT32, before, job.comms[r],
                                             job.streams[r]));
            }
            if (grouped)
                assert_gyre(gyre_group_end());
            wait_for_streams();
            for (int r = 0; r < job.n; r++) {
                assert_cuda(cudaMemcpy(job.want[r], job.out[r], bytes, cudaMemcpyDeviceToHost));
                assert_memory_equal(job.want[r], job.host_in[(r + job.n - 1) % job.n], bytes);
                assert_gyre(gyre_comm_error(job.comms[r]));
            }
        }
        const ask_t a = {.op = COLL_ALL_REDUCE, .type = GYRE_FLOAT32, .count = 1000};
        check(&a, BY_THREADS);
        close_job();
    }
}

/* Two teams of the same devices, with operations of both under way; the second works on when the first has
 * gone. */
static void several_teams(void **state)
{
    enum { N = 2, COUNT = 3000 };
    static const int devices[N] = {0, 0};
    static float ones[COUNT], got[COUNT];
    gyre_comm_t *other[N];
    cudaStream_t streams[N];
    (void)state;
    open_job(N, devices);
    assert_gyre(gyre_cuda_comms_create(N, devices, other));
    for (int i = 0; i < COUNT; i++)
        ones[i] = 1;
    for (int r = 0; r < N; r++) {
        assert_cuda(cudaStreamCreateWithFlags(&streams[r], cudaStreamNonBlocking));
        assert_cuda(cudaMemcpy(job.in[r], ones, sizeof ones, cudaMemcpyHostToDevice));
        assert_cuda(cudaMemcpy(job.out[r], ones, sizeof ones, cudaMemcpyHostToDevice));
    }
    for (int i = 0; i < 3; i++)
        for (int r = 0; r < N; r++) {
            assert_gyre(gyre_all_reduce_stream(job.in[r], job.in[r], COUNT, GYRE_FLOAT32, GYRE_OP(GYRE_SUM),
                                               job.comms[r], job.streams[r]));
            assert_gyre(gyre_all_reduce_stream(job.out[r], job.out[r], COUNT, GYRE_FLOAT32, GYRE_OP(GYRE_SUM),
                                               other[N - 1 - r], streams[r]));
        }
    wait_for_streams();
    close_comms();
    for (int r = 0; r < N; r++)
        assert_gyre(gyre_all_reduce_stream(job.out[r], job.out[r], COUNT, GYRE_FLOAT32, GYRE_OP(GYRE_SUM),
                                           other[N - 1 - r], streams[r]));
    for (int r = 0; r < N; r++) {
        assert_cuda(cudaStreamSynchronize(streams[r]));
        assert_cuda(cudaMemcpy(got, job.in[r], sizeof got, cudaMemcpyDeviceToHost));
        assert_true(got[0] == 8 && got[COUNT - 1] == 8);
        assert_cuda(cudaMemcpy(got, job.out[r], sizeof got, cudaMemcpyDeviceToHost));
        assert_true(got[0] == 16 && got[COUNT - 1] == 16);
    }
    for (int r = 0; r < N; r++) {
        assert_gyre(gyre_comm_destroy(other[r]));
        assert_cuda(cudaStreamDestroy(streams[r]));
    }
    close_job();
}

/* A process of a job may have such communicators, too, and they outlive the job. */
static void beside_a_job(void **state)
{
    gyre_comm_t *world;
    (void)state;
    assert_gyre(gyre_init(NULL, &world));
    open_job(2, NULL);
    assert_gyre(gyre_all_reduce(job.in[0], job.in[0], 4, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), world));
    assert_gyre(gyre_finalize(world));
    every_operation();
    close_job();
}

static size_t free_memory(void)
{
    size_t bytes = 0, all;
    assert_gyre(base_device_memory((base_device_t){BASE_CUDA, 0}, &bytes, &all));
    return bytes;
}

static void nothing_stays_behind(void **state)
{
    (void)state;
    open_comms(4, NULL);
    close_comms();
    const size_t before_all = free_memory();
    for (int i = 0; i < 3; i++) {
        open_comms(4, NULL);
        if (gpu_is_emulated()) /* others may use a real one */
            assert_true(free_memory() < before_all);
        close_comms();
    }
    if (gpu_is_emulated())
        assert_int_equal(free_memory(), before_all);
}

static void what_cannot_be(void **state)
{
    static const int devices[2] = {0, 0}, far[2] = {0, 99};
    float host[8] = {0};
    gyre_comm_t *none[2] = {NULL}, *split;
    gyre_request_t *request;
    char text[128];
    (void)state;
    refused(gyre_cuda_comms_create(2, devices, NULL), GYRE_ERR_INVALID, "comms is NULL");
    refused(gyre_cuda_comms_create(0, devices, none), GYRE_ERR_INVALID, "0 ranks");
    refused(gyre_cuda_comms_create(65, NULL, none), GYRE_ERR_INVALID, "65 ranks");
    refused(gyre_cuda_comms_create(2, far, none), GYRE_ERR_INVALID, "devices[1] is 99");
    set(SET_CUDA_STAGING, "1");
    refused(gyre_cuda_comms_create(2, devices, none), GYRE_ERR_INVALID, "is too little");
    set(SET_CUDA_STAGING, "64K");
    set(SET_CUDA_PATH, "staged");
    refused(gyre_cuda_comms_create(2, devices, none), GYRE_ERR_UNSUPPORTED, "GYRE_CUDA_PATH=staged");
    set(SET_CUDA_PATH, NULL);
    assert_gyre(gyre_group_start());
    refused(gyre_cuda_comms_create(2, devices, none), GYRE_ERR_INVALID, "part of a group");
    assert_gyre(gyre_group_end());
    assert_null(none[0]);

    open_job(2, devices);
    gyre_comm_t *comm = job.comms[0];
    const gyre_redop_t sum = GYRE_OP(GYRE_SUM);
    refused(gyre_all_reduce(host, host, 4, GYRE_FLOAT32, sum, comm), GYRE_ERR_UNSUPPORTED,
            "process per rank");
    refused(gyre_all_reduce(job.in[0], host, 4, GYRE_FLOAT32, sum, comm), GYRE_ERR_INVALID, "one kind");
    refused(gyre_all_reduce_stream(job.in[0], host, 4, GYRE_FLOAT32, sum, comm, job.streams[0]),
            GYRE_ERR_INVALID, "one kind");
    refused(gyre_send(job.in[0], 4, GYRE_FLOAT32, 1, comm), GYRE_ERR_UNSUPPORTED, "gyre_send_stream");
    refused(gyre_irecv(job.in[0], 4, GYRE_FLOAT32, 1, comm, &request), GYRE_ERR_UNSUPPORTED,
            "gyre_recv_stream");
    refused(gyre_neighbor_exchange(NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL, 0, NULL, GYRE_FLOAT32, comm),
            GYRE_ERR_UNSUPPORTED, "gyre_neighbor_exchange_stream");
    refused(gyre_send_stream(job.in[0], 4, GYRE_FLOAT32, 1, comm, NULL), GYRE_ERR_INVALID, "default stream");
    refused(gyre_send_stream(host, 4, GYRE_FLOAT32, 1, comm, job.streams[0]), GYRE_ERR_UNSUPPORTED,
            "host memory");
    refused(gyre_send_stream(job.in[0], 4, GYRE_FLOAT32, 0, comm, job.streams[0]), GYRE_ERR_INVALID,
            "to oneself");
    refused(gyre_comm_split(comm, 0, 0, &split), GYRE_ERR_UNSUPPORTED, "gyre_cuda_comms_create");
    refused(gyre_comm_address(comm, text, sizeof text), GYRE_ERR_UNSUPPORTED, "no other process can join");
    refused(gyre_comm_shrink(comm, &split), GYRE_ERR_INVALID, "gyre_comm_shrink");
    refused(gyre_comm_grow(comm, 1, &split), GYRE_ERR_INVALID, "gyre_comm_grow");
    refused(gyre_finalize(comm), GYRE_ERR_INVALID, "gyre_comm_destroy");
    refused(gyre_all_reduce_stream(job.in[0], job.out[0], 4, GYRE_FLOAT32, sum, comm, NULL), GYRE_ERR_INVALID,
            "default stream");
    assert_gyre(gyre_all_reduce_stream(job.in[0], job.out[0], 4, GYRE_FLOAT32, sum, comm, job.streams[0]));
    refused(gyre_all_reduce_stream(job.in[1], job.out[1], 4, GYRE_FLOAT32, sum, job.comms[1], job.streams[0]),
            GYRE_ERR_INVALID, "the same stream");
    assert_gyre(
        gyre_all_reduce_stream(job.in[1], job.out[1], 4, GYRE_FLOAT32, sum, job.comms[1], job.streams[1]));
    wait_for_streams();
    gyre_comm_stats_t stats = {.size = sizeof stats};
    assert_gyre(gyre_comm_stats(comm, &stats));
    assert_gyre(gyre_comm_prepare_cuda(comm));
    assert_gyre(gyre_comm_error(comm));
    /* and none of that was a call that others must make, too */
    const ask_t a = {.op = COLL_ALL_REDUCE, .type = GYRE_FLOAT32, .count = 100};
    check(&a, BY_THREADS);
    close_job();
}

/* On a device a rank's call is not enqueued after another's that waits for it, through any number of calls
 * between and any stream that was used meanwhile. It may be enqueued after one that is done with it. */
/* A launch that needs more stack than the device has set aside waits for the whole device. */
static void kernels_that_wait_have_their_stack(void **state)
{
    (void)state;
    static const int devices[2] = {0};
    gyre_comm_t *comms[2] = {NULL};
    size_t stack = 0;
    assert_cuda(cudaDeviceSetLimit(cudaLimitStackSize, 16));
    assert_int_equal(gyre_cuda_comms_create(2, devices, comms), GYRE_OK);
    assert_cuda(cudaDeviceGetLimit(&stack, cudaLimitStackSize));
    assert_in_range(stack, 48, 1 << 20); /* the frame of the kernels that add */
    assert_int_equal(gyre_comm_destroy(comms[0]), GYRE_OK);
    assert_int_equal(gyre_comm_destroy(comms[1]), GYRE_OK);
}

static void a_context_of_its_own(void **state)
{
    (void)state;
    static const int devices[2] = {0};
    gyre_comm_t *comms[2] = {NULL};
    CUresult (*push)(CUcontext), (*pop)(CUcontext *);
    void *function = NULL;
    CUcontext popped;
    if (!gpu_is_emulated()) {
        print_message("skipped: contexts are those of the emulator\n");
        skip();
    }
    assert_int_equal(base_device_driver("cuCtxPushCurrent", &function), GYRE_OK);
    memcpy(&push, &function, sizeof push);
    assert_int_equal(base_device_driver("cuCtxPopCurrent", &function), GYRE_OK);
    memcpy(&pop, &function, sizeof pop);
    assert_int_equal(push((CUcontext)(intptr_t)0x101), CUDA_SUCCESS);
    refused(gyre_cuda_comms_create(2, devices, comms), GYRE_ERR_UNSUPPORTED,
            "a context of its own on CUDA device 0");
    assert_int_equal(pop(&popped), CUDA_SUCCESS);
    assert_ptr_equal(popped, (CUcontext)(intptr_t)0x101);
    assert_int_equal(gyre_cuda_comms_create(2, devices, comms), GYRE_OK);
    assert_int_equal(gyre_comm_destroy(comms[0]), GYRE_OK);
    assert_int_equal(gyre_comm_destroy(comms[1]), GYRE_OK);
}

static void streams_that_are_shared(void **state)
{
    static const int devices[2] = {0, 0};
    const gyre_redop_t sum = GYRE_OP(GYRE_SUM);
    cudaStream_t further;
    (void)state;
#define ADD_UP(r, stream) \
    gyre_all_reduce_stream(job.in[r], job.out[r], 4, GYRE_FLOAT32, sum, job.comms[r], stream)
    open_job(2, devices);
    assert_cuda(cudaStreamCreateWithFlags(&further, cudaStreamNonBlocking));
    assert_gyre(ADD_UP(0, job.streams[0]));
    assert_gyre(ADD_UP(0, job.streams[0]));
    refused(ADD_UP(1, job.streams[0]), GYRE_ERR_INVALID, "the same stream");
    assert_gyre(ADD_UP(1, job.streams[1]));
    refused(ADD_UP(1, job.streams[0]), GYRE_ERR_INVALID, "the same stream");
    assert_gyre(ADD_UP(1, job.streams[1]));
    assert_gyre(ADD_UP(1, job.streams[0])); /* after work that no longer waits for rank 1 */
    refused(ADD_UP(0, job.streams[0]), GYRE_ERR_INVALID, "the same stream");
    assert_gyre(ADD_UP(0, job.streams[1]));
    wait_for_streams();
    assert_gyre(
        ADD_UP(0, job.streams[0])); /* another stream is this rank's newest, and that call still waits here */
    assert_gyre(ADD_UP(0, further));
    refused(ADD_UP(1, job.streams[0]), GYRE_ERR_INVALID, "the same stream");
    refused(ADD_UP(1, further), GYRE_ERR_INVALID, "the same stream");
    assert_gyre(ADD_UP(1, job.streams[1]));
    assert_gyre(ADD_UP(1, job.streams[1]));
    wait_for_streams();
    assert_cuda(cudaStreamSynchronize(further));
    assert_cuda(cudaStreamDestroy(further));
#undef ADD_UP
    const ask_t a = {.op = COLL_ALL_REDUCE, .type = GYRE_FLOAT32, .count = 100};
    check(&a, BY_THREADS);
    close_job();
}

/* As a process of its own does, which exports it. */
static void memory_that_is_registered(void **state)
{
    static const int devices[2] = {0, 0};
    gyre_cuda_registration_t *one[2] = {NULL};
    float host[4];
    (void)state;
    for (int several = 0; several < 2; several++) {
        open_job(2, several ? NULL : devices);
        gyre_comm_t *comm = job.comms[0];
        const size_t all = ROOM + 2 * GUARD;
        refused(gyre_comm_register_cuda(comm, job.in[0], all + 1, &one[0]), GYRE_ERR_INVALID,
                "more than the allocation's");
        refused(gyre_comm_register_cuda(comm, job.in[0] + 16, all - 15, &one[0]), GYRE_ERR_INVALID,
                "more than the allocation's");
        refused(gyre_comm_register_cuda(comm, host, sizeof host, &one[0]), GYRE_ERR_INVALID,
                "not in the memory");
        for (int r = 0; r < 2; r++)
            assert_gyre(gyre_comm_register_cuda(job.comms[r], job.in[r] + 16, all - 16, &one[r]));
        for (int r = 0; r < 2; r++)
            assert_gyre(gyre_comm_deregister_cuda(job.comms[r], one[r]));
        close_job();
    }
}

/* An operation leaves room in a stream's queue for many more. */
static void few_launches(void **state)
{
    (void)state;
    open_job(3, NULL);
    set(SET_CUDA_ENGINES, "300");
    runs_as(COLL_ALL_GATHER, 256 << 10, "engines"); /* 16 rounds of 5 launches, through 16 KiB each */
    runs_as(COLL_ALL_GATHER, 1 << 20, "direct");
    runs_as(COLL_BROADCAST, 1 << 20, "engines");
    runs_as(COLL_BROADCAST, 4 << 20, "direct");
    set(SET_CUDA_ENGINES, NULL);
    close_job();
}

static struct {
    gyre_unique_id_t id;
    gyre_comm_t *comms[2];
} by_id;

static void *one_of_two(void *argument)
{
    const int r = *(int *)argument;
    gyre_comm_t **comm = &by_id.comms[r];
    if (cudaSetDevice(r % base_device_count(BASE_CUDA)) != cudaSuccess ||
        gyre_comm_create_id(&by_id.id, r, 2, NULL, comm) != GYRE_OK ||
        gyre_comm_prepare_cuda(*comm) != GYRE_OK)
        *comm = NULL;
    return NULL;
}

static void *leave_by_id(void *argument)
{
    return gyre_finalize(by_id.comms[*(int *)argument]) == GYRE_OK ? argument : NULL;
}

static void both(void *(*function)(void *))
{
    static int numbers[2] = {0, 1};
    pthread_t threads[2];
    for (int r = 0; r < 2; r++)
        assert_int_equal(pthread_create(&threads[r], NULL, function, &numbers[r]), 0);
    for (int r = 0; r < 2; r++)
        assert_int_equal(pthread_join(threads[r], NULL), 0);
}

/* Two ranks of a job: one thread calls for both, and neither takes memory or a queue of launches. */
static void two_of_a_job(void **state)
{
    (void)state;
    assert_gyre(gyre_get_unique_id(&by_id.id));
    both(one_of_two);
    job.comms[0] = by_id.comms[0];
    assert_non_null(by_id.comms[0]);
    assert_non_null(by_id.comms[1]);
    set(SET_CUDA_ENGINES, "300");
    runs_as(COLL_ALL_GATHER, 256 << 10, "engines");
    runs_as(COLL_ALL_GATHER, 1 << 20, "direct");
    set(SET_CUDA_ALGO, "schedule");
    runs_as(COLL_BROADCAST, 4 << 20, "direct");
    set(SET_CUDA_ALGO, NULL);
    set(SET_CUDA_ENGINES, NULL);
    both(leave_by_id);
    job.comms[0] = NULL;
}

/* Two ranks whose streams wait, each with a stream and a buffer; one thread calls for both. */
typedef struct {
    int32_t *buffer[2];
    cudaStream_t streams[2];
} waiting_t;

static void begin_waiting(waiting_t *w, size_t bytes)
{
    set(SET_CUDA_WAIT, "stream");
    assert_gyre(gyre_get_unique_id(&by_id.id));
    both(one_of_two);
    for (int r = 0; r < 2; r++) {
        assert_non_null(by_id.comms[r]);
        assert_cuda(cudaSetDevice(r % base_device_count(BASE_CUDA)));
        assert_cuda(cudaStreamCreateWithFlags(&w->streams[r], cudaStreamNonBlocking));
        assert_cuda(cudaMalloc((void **)&w->buffer[r], bytes));
    }
}

static void end_waiting(const waiting_t *w)
{
    both(leave_by_id);
    for (int r = 0; r < 2; r++) {
        assert_cuda(cudaStreamDestroy(w->streams[r]));
        assert_cuda(cudaFree(w->buffer[r]));
    }
    assert_cuda(cudaSetDevice(0));
    set(SET_CUDA_WAIT, NULL);
}

/* Streams wait, and one thread calls for both ranks: a long operation does not put all of its phases on the
 * first rank's stream. */
static void few_phases(void **state)
{
    enum { MOST_BYTES = 4 << 20, LEAST = 1 << 20 };
    int32_t first[2], last;
    waiting_t w;
    (void)state;
    begin_waiting(&w, MOST_BYTES);
    for (int r = 0; r < 2; r++)
        assert_cuda(cudaMemset(w.buffer[r], 1, MOST_BYTES));
    for (size_t bytes = LEAST; bytes <= MOST_BYTES; bytes *= 4) {
        for (int r = 0; r < 2; r++) {
            const unsigned long long before = gpu_is_emulated() ? emulated_given() : 0;
            assert_gyre(gyre_all_reduce_stream(w.buffer[r], w.buffer[r], bytes / sizeof *w.buffer[r],
                                               GYRE_INT32, GYRE_OP(GYRE_SUM), by_id.comms[r], w.streams[r]));
            if (gpu_is_emulated()) /* 35 rounds of two launches and a wait; or one kernel, and the event */
                assert_in_range(emulated_given() - before, bytes == LEAST ? 100 : 1,
                                bytes == LEAST ? 203 : 3);
        }
        for (int r = 0; r < 2; r++)
            assert_cuda(cudaStreamSynchronize(w.streams[r]));
    }
    for (int r = 0; r < 2; r++) {
        assert_cuda(cudaMemcpy(first, w.buffer[r], sizeof first, cudaMemcpyDeviceToHost));
        assert_cuda(cudaMemcpy(&last, (char *)w.buffer[r] + MOST_BYTES - sizeof last, sizeof last,
                               cudaMemcpyDeviceToHost));
        assert_int_equal(first[1], 4 * 0x01010101);
        assert_int_equal(last, 2 * 0x01010101);
    }
    end_waiting(&w);
}

/* Of an operation whose streams wait, a captured form is another: its kernel waits. Both must not meet. */
static void captured_by_one(void **state)
{
    enum { COUNT = 1 << 18 };
    waiting_t w;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    (void)state;
    set(SET_TIMEOUT, "10s");
    begin_waiting(&w, COUNT * sizeof *w.buffer[0]);
    for (int r = 0; r < 2; r++) {
        assert_cuda(cudaSetDevice(r % base_device_count(BASE_CUDA)));
        if (r == 0)
            assert_cuda(cudaStreamBeginCapture(w.streams[r], cudaStreamCaptureModeThreadLocal));
        assert_gyre(gyre_all_reduce_stream(w.buffer[r], w.buffer[r], COUNT, GYRE_INT32, GYRE_OP(GYRE_SUM),
                                           by_id.comms[r], w.streams[r]));
        if (r > 0)
            continue;
        assert_cuda(cudaStreamEndCapture(w.streams[r], &graph));
        assert_cuda(cudaGraphInstantiate(&exec, graph, 0));
        assert_cuda(cudaGraphLaunch(exec, w.streams[r]));
    }
    for (int r = 0; r < 2; r++) {
        const base_time_t until = base_deadline(20);
        while (gyre_comm_error(by_id.comms[r]) == GYRE_OK && base_now() < until)
            usleep(1000);
        assert_int_equal(gyre_comm_error(by_id.comms[r]), GYRE_ERR_MISMATCH);
        assert_cuda(cudaStreamSynchronize(w.streams[r]));
    }
    end_waiting(&w);
    assert_cuda(cudaGraphExecDestroy(exec));
    assert_cuda(cudaGraphDestroy(graph));
    set(SET_TIMEOUT, NULL);
}

static int by_ring(int rank, size_t count)
{
    coll_cuda_explanation_t x;
    const coll_shape_t shape = {
        .op = COLL_ALL_REDUCE, .type = GYRE_FLOAT32, .redop = GYRE_SUM, .uniform = 1, .count = count};
    assert_gyre(coll_cuda_explain(job.comms[rank], &shape, 0, &x));
    return strcmp(x.algorithm, "ring") == 0;
}

/* Schedules have room for some shapes, and a call takes no memory for others: those run as shots, on all
 * ranks, in any order of calls, and works in place. */
static void schedules(void **state)
{
    size_t count = 2000;
    (void)state;
    set(SET_ALGO, "ring");
    open_job(3, NULL);
    for (int full = 0; full < 2; full++) {
        for (size_t i = 0; i < 18; i++) {
            const coll_op_t op = i % 3 == 1   ? COLL_ALL_GATHER
                                 : i % 3 == 2 ? COLL_REDUCE_SCATTER
                                              : COLL_ALL_REDUCE;
            ask_t a = {.op = op,
                       .type = GYRE_FLOAT32,
                       .count = (full ? 9000 : 3001) + 100 * i,
                       .in_place = i % 5 == 1,
                       .uneven = op != COLL_ALL_REDUCE && i % 4 == 0};
            check(&a, i % 2 ? BY_THREADS : BY_GRAPH);
            check(&a, BY_ONE_THREAD);
            a.in_place = !a.in_place;
            check(&a, BY_ONE_THREAD);
        }
        /* one rank comes first, and what it takes is taken for all */
        while (!full && by_ring(0, count) && count < 100000)
            count += 2;
        assert_true(count > 2010 && count < 100000);
        assert_true(by_ring(1, count - 2) && !by_ring(1, count) && by_ring(2, count - 2) &&
                    !by_ring(2, count));
        for (int i = -4; i <= 4; i += 2) {
            const ask_t a = {.op = COLL_ALL_REDUCE, .type = GYRE_FLOAT32, .count = count + (size_t)i};
            check(&a, i % 4 ? BY_THREADS : BY_ONE_THREAD);
        }
    }
    close_job();
    set(SET_ALGO, NULL);
}

/* All ranks have failed with `wanted`, and a rank's story has these words. */
static void all_failed(gyre_status_t wanted, const char *words)
{
    const base_time_t until = base_deadline(20);
    wait_for_streams();
    for (int r = 0; r < job.n; r++) {
        while (gyre_comm_error(job.comms[r]) == GYRE_OK && base_now() < until)
            usleep(1000);
        assert_int_equal(gyre_comm_error(job.comms[r]), wanted);
        refused(call(r, 1), wanted, words);
    }
}

static void failures(void **state)
{
    enum { LL = 7 }; /* from here on the first three again, short enough for LL */
    const ask_t large = {.op = COLL_ALL_REDUCE, .type = GYRE_FLOAT32, .count = 50000},
                little = {.op = COLL_ALL_REDUCE, .type = GYRE_FLOAT32, .count = 201};
    (void)state;
    set(SET_TIMEOUT, "1s");
    const unsigned long long events = gpu_is_emulated() ? emulated_events() : 0;
    for (int which = 0; which < LL + 3; which++) {
        const int what = which % LL;
        open_job(3, NULL);
        job.ask = which < LL ? large : little;
        for (int r = 0; r < 3; r++)
            measure(r);
        if (what == 0) { /* they disagree */
            for (int r = 0; r < 3; r++) {
                job.ask.redop = r == 1 ? GYRE_MAX : GYRE_SUM;
                (void)call(r, 1); /* may know already */
            }
            all_failed(GYRE_ERR_MISMATCH, "all_reduce #1");
        } else if (what == 1) { /* one never calls */
            assert_gyre(call(0, 1));
            assert_gyre(call(1, 1));
            all_failed(GYRE_ERR_TIMEOUT, "rank 2 has called nothing yet");
        } else if (what == 2) { /* one aborts */
            assert_gyre(call(0, 1));
            assert_gyre(call(1, 1));
            assert_gyre(gyre_comm_abort(job.comms[2], "no more"));
            all_failed(GYRE_ERR_ABORTED, "no more");
        } else if (what == 3) { /* one has gone */
            assert_gyre(gyre_comm_destroy(job.comms[2]));
            job.comms[2] = NULL;
            job.n = 2;
            assert_gyre(call(1, 1));
            refused(call(0, 0), GYRE_ERR_TIMEOUT, "rank 2 has destroyed its communicator");
            all_failed(GYRE_ERR_TIMEOUT, "rank 2 has destroyed its communicator");
            job.n = 3;
        } else if (what == 5) { /* a message that no rank sends */
            assert_gyre(gyre_recv_stream(job.out[0], 100, GYRE_FLOAT32, 2, job.comms[0], job.streams[0]));
            all_failed(GYRE_ERR_TIMEOUT, "rank 2 has not made the other end's call");
        } else if (what == 6) { /* another length than the other end's */
            assert_gyre(gyre_send_stream(job.in[2], 99, GYRE_FLOAT32, 0, job.comms[2], job.streams[2]));
            assert_gyre(gyre_recv_stream(job.out[0], 100, GYRE_FLOAT32, 2, job.comms[0], job.streams[0]));
            all_failed(GYRE_ERR_MISMATCH, "has 396 bytes");
        } else { /* one thread calls for one rank, and waits */
            refused(call(1, 0), GYRE_ERR_TIMEOUT, "rank 0 has called nothing yet");
            all_failed(GYRE_ERR_TIMEOUT, "rank 0 has called nothing yet");
        }
        close_job();
        if (gpu_is_emulated()) /* those of requests, too */
            assert_int_equal(emulated_events(), events);
    }
    set(SET_TIMEOUT, NULL);
}

/* Work of the program on a stream that the legacy stream waits for: communicators are made without it. */
static void made_meanwhile(void **state)
{
    static int let_go;
    cudaStream_t stream;
    (void)state;
    assert_cuda(cudaSetDevice(0));
    assert_cuda(cudaStreamCreate(&stream));
    assert_cuda(cudaLaunchHostFunc(stream, gpu_hold, &let_go));
    open_comms(2, NULL);
    __atomic_store_n(&let_go, 1, __ATOMIC_RELEASE);
    assert_cuda(cudaStreamSynchronize(stream));
    assert_cuda(cudaStreamDestroy(stream));
    close_comms();
}

/* Work of the program that does not end, before a collective: once the communicators have failed they can be
 * destroyed, and what was enqueued does no harm when the stream gets to it. A job can end meanwhile. */
static void held(void **state)
{
    static int let_go;
    const ask_t sum = {.op = COLL_ALL_REDUCE, .type = GYRE_FLOAT32, .count = 5000};
    gyre_comm_t *world, *part;
    (void)state;
    set(SET_TIMEOUT, "1s");
    assert_gyre(gyre_init(NULL, &world));
    assert_gyre(gyre_comm_split(world, 0, 0, &part));
    assert_gyre(gyre_comm_prepare_cuda(part));
    assert_gyre(gyre_comm_destroy(part));
    open_job(2, NULL);
    job.ask = sum;
    for (int r = 0; r < 2; r++)
        measure(r);
    assert_cuda(cudaLaunchHostFunc(job.streams[0], gpu_hold, &let_go));
    for (int r = 0; r < 2; r++)
        assert_gyre(call(r, 1));
    for (int r = 0; r < 2; r++) {
        const base_time_t until = base_deadline(20);
        while (gyre_comm_error(job.comms[r]) == GYRE_OK && base_now() < until)
            usleep(1000);
        assert_int_equal(gyre_comm_error(job.comms[r]), GYRE_ERR_TIMEOUT);
    }
    close_comms();
    assert_gyre(gyre_finalize(world));
    assert_int_equal(cudaStreamQuery(job.streams[0]), cudaErrorNotReady);
    __atomic_store_n(&let_go, 1, __ATOMIC_RELEASE);
    close_job();
    set(SET_TIMEOUT, NULL);
}

/* `test_one_process job`: two ranks of a job, for jobs.sh. */
static int of_a_job(void)
{
    if (gyre_get_unique_id(&by_id.id) != GYRE_OK)
        return 1;
    both(one_of_two);
    return !by_id.comms[0] || !by_id.comms[1];
}

/* `test_one_process queues`: a program that gives its streams no queues of their own, for jobs.sh. */
static int without_queues(void)
{
    static const int devices[2] = {0};
    gyre_comm_t *comms[2] = {NULL};
    return gyre_cuda_comms_create(2, devices, comms) != GYRE_OK || gyre_comm_destroy(comms[0]) != GYRE_OK ||
           gyre_comm_destroy(comms[1]) != GYRE_OK;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "queues") == 0)
        return without_queues();
    if (argc > 1 && strcmp(argv[1], "job") == 0)
        return of_a_job();
    (void)setenv("EMULATED_DEVICES", "4", 0);
    base_device_prepare_process();
    if (!gpu_here())
        return 77;
    set(SET_CUDA_STAGING, "64K");
    set(SET_CUDA_ONE_SHOT, "2K");
    set(SET_CUDA_LL, "1K"); /* some of each */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_one_device),
        cmocka_unit_test(on_several_devices),
        cmocka_unit_test(short_ones),
        cmocka_unit_test(short_ones_of_many),
        cmocka_unit_test(short_ones_in_a_row),
        cmocka_unit_test(by_copy_engines),
        cmocka_unit_test(messages),
        cmocka_unit_test(several_teams),
        cmocka_unit_test(beside_a_job),
        cmocka_unit_test(nothing_stays_behind),
        cmocka_unit_test(what_cannot_be),
        cmocka_unit_test(kernels_that_wait_have_their_stack),
        cmocka_unit_test(a_context_of_its_own),
        cmocka_unit_test(streams_that_are_shared),
        cmocka_unit_test(memory_that_is_registered),
        cmocka_unit_test(few_launches),
        cmocka_unit_test(two_of_a_job),
        cmocka_unit_test(few_phases),
        cmocka_unit_test(captured_by_one),
        cmocka_unit_test(schedules),
        cmocka_unit_test(failures),
        cmocka_unit_test(made_meanwhile),
        cmocka_unit_test(held),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
