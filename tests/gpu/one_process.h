/* SPDX-License-Identifier: Apache-2.0 */
/* tests/gpu/one_process.h: a team of ranks in one process (gyre_cuda_comms_create), for tests of cmocka.
 * Opens and closes the communicators with a stream and buffers for each rank, calls any collective on
 * all ranks, and compares the results with the host's arithmetic in the canonical order, bit by bit. */
#ifndef TESTS_GPU_ONE_PROCESS_H
#define TESTS_GPU_ONE_PROCESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gyre/gyre.h>

#include "base/settings/settings.h"
#include "collectives/gpu/gpu.h"
#include "collectives/kernels/kernels.h"
#include "collectives/schedules/schedule.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/values.h"

/* MOST: ranks. ROOM: bytes of a buffer, with GUARD bytes of POISON around it, which no call may change. */
enum { MOST = 8, ROOM = 1 << 18, GUARD = 64, POISON = 0x5a };

/* How all ranks make a call. */
typedef enum { BY_ONE_THREAD, BY_GROUP, BY_THREADS, BY_GRAPH, MANNERS } manner_t;

/* What is called; uneven: the form with counts (gyre_all_gatherv ...). */
typedef struct {
    coll_op_t op;
    gyre_type_t type;
    int redop; /* DEVICE_REDOPS: a scaled sum */
    size_t count;
    int root, in_place, uneven;
    size_t shift; /* bytes off alignment */
} collective_t;

typedef struct {
    size_t send[MOST], recv[MOST]; /* elements to and from each rank, or [0] of the whole */
    size_t send_all, recv_all;
} lengths_t;

/* The ranks, with a stream and buffers each. */
static struct {
    int n;
    gyre_comm_t *comms[MOST];
    cudaStream_t streams[MOST];
    int device[MOST];
    char *in[MOST], *out[MOST];             /* on the devices: ROOM + 2 GUARD bytes */
    char *host_in[MOST], *want[MOST], *sum; /* on the host: ROOM */
    collective_t collective;                /* that is being called */
    lengths_t lengths[MOST];
    uint64_t seed;
} team;

static inline void set(base_setting_t id, const char *value)
{
    assert_int_equal(base_settings_set(id, value, "test"), GYRE_OK);
}

#define assert_gyre(call) assert_int_equal((call), GYRE_OK)

/* ---- the team ----------------------------------------------------------------------------------------- */

/* devices: of each rank; NULL: the devices in turn. */
static inline void open_comms(int n, const int *devices)
{
    int count;
    assert_cuda(cudaGetDeviceCount(&count));
    team.n = n;
    assert_gyre(gyre_cuda_comms_create(n, devices, team.comms));
    for (int r = 0; r < n; r++)
        team.device[r] = devices ? devices[r] : r % count;
}

/* With streams and buffers. */
static inline void open_team(int n, const int *devices)
{
    open_comms(n, devices);
    for (int r = 0; r < n; r++) {
        assert_int_equal(gyre_comm_rank(team.comms[r]), r);
        assert_int_equal(gyre_comm_size(team.comms[r]), n);
        assert_int_equal(gyre_comm_local_size(team.comms[r]), n);
        char bus[24];
        gyre_place_t place = {.size = sizeof place};
        assert_gyre(gyre_comm_place(team.comms[0], r, &place));
        assert_cuda(cudaDeviceGetPCIBusId(bus, sizeof bus, team.device[r]));
        assert_int_equal(place.device, team.device[r]);
        assert_string_equal(place.device_bus, bus);
        assert_int_equal(place.job_rank, r);
        assert_int_equal(place.host_size, n);
        assert_true(place.host_name[0] != '\0');
        assert_cuda(cudaSetDevice(team.device[r]));
        assert_cuda(cudaStreamCreateWithFlags(&team.streams[r], cudaStreamNonBlocking));
        assert_cuda(cudaMalloc((void **)&team.in[r], ROOM + 2 * GUARD));
        assert_cuda(cudaMalloc((void **)&team.out[r], ROOM + 2 * GUARD));
        team.host_in[r] = malloc(ROOM);
        team.want[r] = malloc(ROOM);
        assert_true(team.host_in[r] && team.want[r]);
    }
    team.sum = malloc(ROOM);
    assert_non_null(team.sum);
    assert_cuda(cudaSetDevice(0));
}

static inline void close_comms(void)
{
    for (int r = 0; r < team.n; r++) {
        assert_gyre(gyre_comm_destroy(team.comms[r]));
        team.comms[r] = NULL;
    }
}

static inline void close_team(void)
{
    for (int r = 0; r < team.n; r++) {
        assert_cuda(cudaSetDevice(team.device[r]));
        assert_cuda(cudaStreamSynchronize(team.streams[r]));
        if (team.comms[r])
            assert_gyre(gyre_comm_destroy(team.comms[r]));
        team.comms[r] = NULL;
    }
    for (int r = 0; r < team.n; r++) {
        assert_cuda(cudaStreamDestroy(team.streams[r]));
        assert_cuda(cudaFree(team.in[r]));
        assert_cuda(cudaFree(team.out[r]));
        free(team.host_in[r]);
        free(team.want[r]);
    }
    free(team.sum);
    assert_cuda(cudaSetDevice(0));
    if (emulated_unloaded && emulated_unloaded()) /* a launch might wait for kernels that wait for it */
        fail_msg("%s was launched before it was loaded", emulated_unloaded());
}

static inline void wait_for_streams(void)
{
    for (int r = 0; r < team.n; r++)
        assert_cuda(cudaStreamSynchronize(team.streams[r]));
}

/* ---- what is given, and what must come ----------------------------------------------------------------- */

static inline double factor(int rank)
{
    return rank % 2 ? 1.7 : -3.0;
}

static inline gyre_redop_t redop_of(const collective_t *a, int rank)
{
    return a->redop == DEVICE_REDOPS ? GYRE_SCALED_SUM(factor(rank)) : GYRE_OP((gyre_redop_kind_t)a->redop);
}

/* The elements of block r, or from rank s to rank r. */
static inline size_t block(const collective_t *a, int s, int r)
{
    if (!a->uneven)
        return a->count;
    if (a->op == COLL_ALL_TO_ALL)
        return (size_t)((s * 3 + r) % 4) * a->count / 2;
    return r % 3 == 1 ? 0 : a->count + (size_t)(7 * r); /* some are empty */
}

/* How many elements a rank gives and gets: team.lengths[rank]. */
static inline void find_lengths(int rank)
{
    const collective_t *a = &team.collective;
    lengths_t *l = &team.lengths[rank];
    size_t blocks = 0;
    memset(l, 0, sizeof *l);
    for (int r = 0; r < team.n; r++) {
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

static inline size_t before(const size_t *counts, int r)
{
    size_t at = 0;
    for (int i = 0; i < r; i++)
        at += counts[i];
    return at;
}

/* The host's arithmetic over all inputs: to team.sum. */
static inline void reduce_on_host(size_t count)
{
    const collective_t *a = &team.collective;
    const void *from[MOST];
    char *scaled[MOST] = {NULL};
    for (int r = 0; r < team.n; r++) {
        from[r] = team.host_in[r];
        if (a->redop == DEVICE_REDOPS) {
            scaled[r] = malloc(ROOM);
            assert_non_null(scaled[r]);
            coll_kernel_scale(a->type, scaled[r], team.host_in[r], count, factor(r));
            from[r] = scaled[r];
        }
    }
    coll_kernel_reduce(a->redop == DEVICE_REDOPS ? GYRE_SUM : (gyre_redop_kind_t)a->redop, a->type, team.sum,
                       from, team.n, count);
    if (a->redop == GYRE_AVG)
        coll_kernel_divide(a->type, team.sum, count, team.n);
    for (int r = 0; r < team.n; r++)
        free(scaled[r]);
}

/* What must be in a rank's receive buffer: team.want[rank]. */
static inline void fill_want(int rank)
{
    const collective_t *a = &team.collective;
    const lengths_t *l = &team.lengths[rank];
    const size_t size = gyre_type_size(a->type);
    char *to = team.want[rank];
    if (coll_op_reduces(a->op)) {
        const size_t at = a->op == COLL_REDUCE_SCATTER ? before(l->send, rank) : 0;
        memcpy(to, team.sum + at * size, l->recv_all * size);
    } else if (a->op == COLL_BROADCAST || a->op == COLL_SCATTER) {
        const size_t at = a->op == COLL_SCATTER ? before(team.lengths[a->root].send, rank) : 0;
        memcpy(to, team.host_in[a->root] + at * size, l->recv_all * size);
    } else if (l->recv_all) {
        for (int r = 0; r < team.n; r++) {
            const size_t count = a->op == COLL_ALL_TO_ALL ? l->recv[r] : block(a, 0, r);
            const size_t at = a->op == COLL_ALL_TO_ALL ? before(team.lengths[r].send, rank) : 0;
            memcpy(to, team.host_in[r] + at * size, count * size);
            to += count * size;
        }
    }
}

/* ---- a call -------------------------------------------------------------------------------------------- */

/* Where the buffers of a rank begin: in place as its collective says. */
static inline void find_buffers(int rank, char **from, char **to)
{
    const collective_t *a = &team.collective;
    const lengths_t *l = &team.lengths[rank];
    const size_t size = gyre_type_size(a->type);
    *from = team.in[rank] + GUARD + a->shift;
    *to = team.out[rank] + GUARD + a->shift;
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
static inline gyre_status_t call(int rank, int streamed)
{
    const collective_t *a = &team.collective;
    const lengths_t *l = &team.lengths[rank];
    gyre_comm_t *comm = team.comms[rank];
    cudaStream_t stream = team.streams[rank];
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

static inline void *call_in_thread(void *rank)
{
    const int r = (int)(intptr_t)rank;
    return (void *)(intptr_t)(cudaSetDevice(team.device[r]) == cudaSuccess ? call(r, 0) : GYRE_ERR_SYSTEM);
}

static inline void call_by_threads(void)
{
    pthread_t threads[MOST];
    for (int r = 0; r < team.n; r++)
        assert_int_equal(pthread_create(&threads[r], NULL, call_in_thread, (void *)(intptr_t)r), 0);
    for (int r = 0; r < team.n; r++) {
        void *status;
        assert_int_equal(pthread_join(threads[r], &status), 0);
        assert_int_equal((intptr_t)status, GYRE_OK);
    }
}

/* All graphs are there before the first is launched: making one may wait for the device. Not in place they
 * run twice. */
static inline void call_by_graph(void)
{
    cudaGraphExec_t made[MOST];
    const int times = team.collective.in_place ? 1 : 2;
    for (int r = 0; r < team.n; r++) {
        cudaGraph_t graph;
        assert_cuda(cudaSetDevice(team.device[r]));
        assert_cuda(cudaStreamBeginCapture(team.streams[r], cudaStreamCaptureModeThreadLocal));
        assert_gyre(call(r, 1));
        assert_cuda(cudaStreamEndCapture(team.streams[r], &graph));
        assert_cuda(cudaGraphInstantiate(&made[r], graph, 0));
        assert_cuda(cudaGraphDestroy(graph));
    }
    for (int i = 0; i < times; i++)
        for (int r = 0; r < team.n; r++) {
            assert_cuda(cudaSetDevice(team.device[r]));
            assert_cuda(cudaGraphLaunch(made[r], team.streams[r]));
        }
    wait_for_streams();
    for (int r = 0; r < team.n; r++)
        assert_cuda(cudaGraphExecDestroy(made[r]));
    assert_cuda(cudaSetDevice(0));
}

static inline void call_on_all_ranks(manner_t manner)
{
    switch (manner) {
    case BY_ONE_THREAD:
        for (int i = 0; i < team.n; i++) /* in any order */
            assert_gyre(call((i + (int)(team.seed % 7)) % team.n, 1));
        wait_for_streams();
        return;
    case BY_GROUP:
        assert_gyre(gyre_group_start());
        for (int r = 0; r < team.n; r++)
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

/* Calls it on all ranks with random values: every byte of the results is the host's, no other is written. */
static inline void check_collective(const collective_t *ask, manner_t manner)
{
    static char back[ROOM + 2 * GUARD];
    const size_t size = gyre_type_size(ask->type);
    team.collective = *ask;
    size_t most = 0;
    for (int r = 0; r < team.n; r++) {
        find_lengths(r);
        most = team.lengths[r].send_all > most ? team.lengths[r].send_all : most;
        assert_true((team.lengths[r].send_all + 1) * size + ask->shift < ROOM);
        assert_true((team.lengths[r].recv_all + 1) * size + ask->shift < ROOM);
    }
    for (int r = 0; r < team.n; r++) {
        char *from, *to;
        find_buffers(r, &from, &to);
        values_fill(team.host_in[r], team.lengths[r].send_all, ask->type, &team.seed);
        assert_cuda(cudaMemset(team.out[r], POISON, ROOM + 2 * GUARD));
        assert_cuda(
            cudaMemcpy(from, team.host_in[r], team.lengths[r].send_all * size, cudaMemcpyHostToDevice));
        assert_cuda(cudaStreamSynchronize(cudaStreamLegacy));
    }
    if (coll_op_reduces(ask->op))
        reduce_on_host(most);
    call_on_all_ranks(manner);
    for (int r = 0; r < team.n; r++) {
        char *from, *to;
        find_buffers(r, &from, &to);
        const size_t bytes = team.lengths[r].recv_all * size, at = (size_t)(to - team.out[r]);
        fill_want(r);
        assert_cuda(cudaMemcpy(back, team.out[r], sizeof back, cudaMemcpyDeviceToHost));
        if (memcmp(back + at, team.want[r], bytes) != 0)
            fail_msg("op %d type %s redop %d count %zu root %d in place %d uneven %d shift %zu manner %d, "
                     "rank %d of %d: "
                     "other bits than the host's",
                     (int)ask->op, gyre_type_name(ask->type), ask->redop, ask->count, ask->root,
                     ask->in_place, ask->uneven, ask->shift, (int)manner, r, team.n);
        for (size_t i = 0; i < GUARD && at + bytes + i < sizeof back && !ask->in_place; i++)
            assert_int_equal(back[at + bytes + i], POISON);
        assert_gyre(gyre_comm_error(team.comms[r]));
    }
}

/* A call has this status, and its error contains the text. */
static inline void assert_refused(gyre_status_t got, gyre_status_t wanted, const char *text)
{
    assert_int_equal(got, wanted);
    if (!strstr(gyre_last_error(), text))
        fail_msg("\"%s\" is not in: %s", text, gyre_last_error());
}

/* `count` bytes of this operation run by this algorithm. */
static inline void assert_algorithm(coll_op_t op, size_t count, const char *algorithm)
{
    coll_cuda_explanation_t x;
    const coll_shape_t shape = {
        .op = op, .type = GYRE_UINT8, .redop = GYRE_SUM, .uniform = 1, .count = count};
    assert_gyre(coll_cuda_explain(team.comms[0], &shape, 0, &x));
    assert_string_equal(x.algorithm, algorithm);
}

/* Before all tests. 0: there is no device, and the reason is printed. Limits are low, so that small sizes run
 * every algorithm. */
static inline int one_process_begin(void)
{
    (void)setenv("EMULATED_DEVICES", "4", 0);
    if (!gpu_here())
        return 0;
    set(SET_CUDA_STAGING, "64K");
    set(SET_CUDA_ONE_SHOT, "2K");
    set(SET_CUDA_LL, "1K");
    return 1;
}

#endif
