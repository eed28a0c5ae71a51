/* SPDX-License-Identifier: Apache-2.0 */
/* tests/gpu/ranks/gpu_peers.c: collectives of several ranks in one process on one GPU
 * (gyre_cuda_comms_create): each has a stream, and the library's calls are captured into CUDA graphs, so that
 * what is measured is the device's part. A part of gpu-check.
 *
 * Without MPS the kernels of processes take turns on a GPU; streams of one process run at once. So this shows
 * what the kernel itself needs: time of small operations, and the bytes that it reads and writes per second,
 * as a share of the rate of device copies. Small ones are also enqueued call by call, by one thread for all
 * ranks and by a thread per rank: then the time is mostly that of launching as many kernels as there are
 * ranks, which one GPU takes one after the other. All results are compared.
 *
 * usage: gpu_peers [--tiny] [--copy] [--ranks 2|4|8]
 * A line for each figure: what, the median of several rounds, unit, `at least G` or `at most G` if it has a
 * goal, and [least to most] of the rounds. --tiny: small and few, to see that the program works (the
 * emulator). --copy: the rate of copies only. --ranks: so many only, since a rank that fails ends the
 * program. Traffic is counted per rank as the kernel makes it, S being the vector: in one shot S is read
 * and written (published), n S read, S written; in two shots S read and written, S read, S / n written, S
 * read and written; reduce_scatter: S read and written, S read, S / n written. Exit status: 0; 1 an error,
 * a wrong element or a kernel that does not end; 2 there is no GPU. */
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gyre/gyre.h>

#include "base/clock.h"
#include "base/device/device.h"
#include "base/settings/settings.h"
#include "collectives/kernels/kernels.h"
#include "collectives/schedules/schedule.h"
#include "tests/gpu/spread.h"

enum { MOST = 8, MOST_ROUNDS = 10 };

typedef struct {
    gyre_comm_t *comm;
    cudaStream_t stream;
    cudaGraphExec_t graph;
    char *in, *out;
} rank_t;

/* An operation: `count` elements of the vector, or of a rank's block of a reduce_scatter. */
typedef struct {
    coll_op_t op;
    gyre_type_t type;
    size_t count;
} ask_t;

static rank_t ranks[MOST];
static int tiny;

static void fatal(const char *what, const char *why)
{
    fprintf(stderr, "gpu_peers: %s: %s\n", what, why);
    exit(1);
}

static void cuda(cudaError_t rc, const char *call)
{
    if (rc != cudaSuccess)
        fatal(call, cudaGetErrorString(rc));
}
#define CUDA(call) cuda(call, #call)

static void gyre(gyre_status_t status, const char *call)
{
    if (status != GYRE_OK)
        fatal(call, gyre_last_error());
}
#define GYRE(call) gyre(call, #call)

/* ---- ranks --------------------------------------------------------------------------------------------- */

/* staging: bytes of each rank's arena that the kernel works through. */
static void open_ranks(int n, size_t bytes, size_t staging)
{
    static const int devices[MOST] = {0};
    gyre_comm_t *comms[MOST];
    char text[32];
    snprintf(text, sizeof text, "%zu", staging);
    GYRE(base_settings_set(SET_CUDA_STAGING, text, "gpu_peers"));
    GYRE(gyre_cuda_comms_create(n, devices, comms));
    for (int r = 0; r < n; r++) {
        rank_t *me = &ranks[r];
        *me = (rank_t){.comm = comms[r]};
        CUDA(cudaStreamCreateWithFlags(&me->stream, cudaStreamNonBlocking));
        CUDA(cudaMalloc((void **)&me->in, bytes));
        CUDA(cudaMalloc((void **)&me->out, bytes));
    }
    CUDA(cudaDeviceSynchronize());
}

static void close_ranks(int n)
{
    for (int r = 0; r < n; r++)
        GYRE(gyre_comm_destroy(ranks[r].comm));
    for (int r = 0; r < n; r++) {
        CUDA(cudaFree(ranks[r].in));
        CUDA(cudaFree(ranks[r].out));
        CUDA(cudaStreamDestroy(ranks[r].stream));
    }
}

/* Waits for all streams; the library ends kernels that wait forever. */
static void wait_for_all(int n)
{
    for (int r = 0; r < n; r++) {
        cudaError_t rc;
        while ((rc = cudaStreamQuery(ranks[r].stream)) == cudaErrorNotReady)
            ;
        cuda(rc, "cudaStreamQuery");
    }
    for (int r = 0; r < n; r++)
        if (gyre_comm_error(ranks[r].comm) != GYRE_OK)
            fatal("an operation", "it has failed, as logged above");
}

static void enqueue(int r, const ask_t *a)
{
    rank_t *me = &ranks[r];
    const gyre_redop_t sum = GYRE_OP(GYRE_SUM);
    if (a->op == COLL_REDUCE_SCATTER)
        GYRE(gyre_reduce_scatter_stream(me->in, me->out, a->count, a->type, sum, me->comm, me->stream));
    else
        GYRE(gyre_all_reduce_stream(me->in, me->out, a->count, a->type, sum, me->comm, me->stream));
}

/* ---- contents: small whole numbers, whose sums are exact in every type --------------------------------- */

static unsigned value_of(int rank, size_t i)
{
    return (unsigned)((i * 5 + (size_t)rank * 3) % 14);
}

static void store(char *to, size_t i, gyre_type_t type, unsigned value)
{
    const float single = (float)value;
    const double real = value;
    uint64_t bits = value;
    uint32_t word;
    memcpy(&word, &single, sizeof word);
    if (type == GYRE_FLOAT64)
        memcpy(&bits, &real, sizeof bits);
    else if (type == GYRE_FLOAT32)
        bits = word;
    else if (type == GYRE_BFLOAT16)
        bits = word >> 16;
    else if (type == GYRE_FLOAT16)
        bits = coll_float_to_half(single);
    memcpy(to + i * gyre_type_size(type), &bits, gyre_type_size(type)); /* little-endian, as GPUs are */
}

static void fill(int n, size_t count, gyre_type_t type, char *host)
{
    const size_t bytes = count * gyre_type_size(type);
    for (int r = 0; r < n; r++) {
        for (size_t i = 0; i < count; i++)
            store(host, i, type, value_of(r, i));
        CUDA(cudaMemcpy(ranks[r].in, host, bytes, cudaMemcpyHostToDevice));
        CUDA(cudaMemset(ranks[r].out, 0xff, bytes));
    }
    CUDA(cudaDeviceSynchronize());
}

/* Elements of all ranks that are not the sum. */
static size_t wrong(int n, size_t count, gyre_type_t type, int scattered, char *host, char *want)
{
    const size_t size = gyre_type_size(type), each = scattered ? count / (size_t)n : count;
    size_t bad = 0;
    for (size_t i = 0; i < count; i++) {
        unsigned sum = 0;
        for (int r = 0; r < n; r++)
            sum += value_of(r, i);
        store(want, i, type, sum);
    }
    for (int r = 0; r < n; r++) {
        const char *from = scattered ? want + (size_t)r * each * size : want;
        CUDA(cudaMemcpy(host, ranks[r].out, each * size, cudaMemcpyDeviceToHost));
        if (memcmp(host, from, each * size) == 0)
            continue;
        for (size_t i = 0; i < each; i++)
            bad += memcmp(host + i * size, from + i * size, size) != 0;
    }
    return bad;
}

/* ---- measuring ----------------------------------------------------------------------------------------- */

static void tell(const char *what, double figure, const char *unit, const char *goal)
{
    printf("%-58s %10.2f %s%s%s\n", what, figure, unit, *goal ? " " : "", goal);
    fflush(stdout);
}

/* The same for `by` times what was measured. */
static void tell_spread(const char *what, spread_t s, double by, const char *unit, const char *goal)
{
    printf("%-58s %10.2f %s%s%s [%.2f to %.2f]\n", what, by * s.median, unit, *goal ? " " : "", goal,
           by * s.least, by * s.most);
    fflush(stdout);
}

static ask_t ask_for(coll_op_t op, int n, size_t count, gyre_type_t type)
{
    return (ask_t){.op = op, .type = type, .count = op == COLL_REDUCE_SCATTER ? count / (size_t)n : count};
}

/* Seconds of one operation of `calls`, enqueued one by one by this thread. */
static spread_t time_of_calls(int n, const ask_t *ask, int calls, int rounds)
{
    double seconds[MOST_ROUNDS];
    for (int round = 0; round <= rounds; round++) { /* the first one is not counted */
        const base_time_t from = base_now();
        for (int i = 0; i < calls; i++)
            for (int r = 0; r < n; r++)
                enqueue(r, ask);
        wait_for_all(n);
        if (round > 0)
            seconds[round - 1] = (double)(base_now() - from) / 1e9 / calls;
    }
    return spread_of(seconds, rounds);
}

typedef struct {
    int rank, calls;
    const ask_t *ask;
    pthread_barrier_t *start;
} caller_t;

static void *caller(void *argument)
{
    const caller_t *c = argument;
    CUDA(cudaSetDevice(0));
    pthread_barrier_wait(c->start);
    for (int i = 0; i < c->calls; i++)
        enqueue(c->rank, c->ask);
    CUDA(cudaStreamSynchronize(ranks[c->rank].stream));
    return NULL;
}

/* The same by a thread per rank. */
static spread_t time_of_threads(int n, const ask_t *ask, int calls, int rounds)
{
    double seconds[MOST_ROUNDS];
    for (int round = 0; round <= rounds; round++) {
        pthread_t threads[MOST];
        caller_t callers[MOST];
        pthread_barrier_t start;
        pthread_barrier_init(&start, NULL, (unsigned)n + 1);
        for (int r = 0; r < n; r++) {
            callers[r] = (caller_t){.rank = r, .calls = calls, .ask = ask, .start = &start};
            if (pthread_create(&threads[r], NULL, caller, &callers[r]) != 0)
                fatal("a thread per rank", "cannot be started");
        }
        pthread_barrier_wait(&start);
        const base_time_t from = base_now();
        for (int r = 0; r < n; r++)
            pthread_join(threads[r], NULL);
        if (round > 0)
            seconds[round - 1] = (double)(base_now() - from) / 1e9 / calls;
        pthread_barrier_destroy(&start);
        wait_for_all(n);
    }
    return spread_of(seconds, rounds);
}

/* Seconds of one operation, of `calls` in each of `rounds` launches of the ranks' graphs. */
static spread_t time_of(int n, const ask_t *ask, int calls, int rounds)
{
    double seconds[MOST_ROUNDS];
    for (int r = 0; r < n; r++) {
        cudaGraph_t graph;
        CUDA(cudaStreamBeginCapture(ranks[r].stream, cudaStreamCaptureModeThreadLocal));
        for (int i = 0; i < calls; i++)
            enqueue(r, ask);
        CUDA(cudaStreamEndCapture(ranks[r].stream, &graph));
        CUDA(cudaGraphInstantiate(&ranks[r].graph, graph, 0));
        CUDA(cudaGraphDestroy(graph));
    }
    for (int r = 0; r < n;
         r++) /* all before the first launch: an upload might wait for a kernel that waits for a rank */
        CUDA(cudaGraphUpload(ranks[r].graph, ranks[r].stream));
    wait_for_all(n);
    for (int round = 0; round <= rounds; round++) { /* the first one is not counted */
        const base_time_t from = base_now();
        for (int r = 0; r < n; r++)
            CUDA(cudaGraphLaunch(ranks[r].graph, ranks[r].stream));
        wait_for_all(n);
        if (round > 0)
            seconds[round - 1] = (double)(base_now() - from) / 1e9 / calls;
    }
    for (int r = 0; r < n; r++)
        CUDA(cudaGraphExecDestroy(ranks[r].graph));
    return spread_of(seconds, rounds);
}

/* Read and written per second, by the driver's copy on the device. */
static double copy_rate(size_t bytes)
{
    void *from, *to;
    cudaStream_t stream;
    double best = 0;
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA(cudaMalloc(&from, bytes));
    CUDA(cudaMalloc(&to, bytes));
    CUDA(cudaMemset(from, 1, bytes));
    CUDA(cudaDeviceSynchronize());
    for (int round = 0; round < 5; round++) {
        enum { COPIES = 10 };
        const base_time_t since = base_now();
        for (int i = 0; i < COPIES; i++)
            CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream));
        CUDA(cudaStreamSynchronize(stream));
        const double rate = 2.0 * COPIES * (double)bytes / ((double)(base_now() - since) / 1e9);
        best = rate > best ? rate : best;
    }
    CUDA(cudaFree(from));
    CUDA(cudaFree(to));
    CUDA(cudaStreamDestroy(stream));
    return best;
}

static double traffic_of(coll_op_t op, int n, double bytes)
{
    if (op == COLL_REDUCE_SCATTER)
        return n * (3 * bytes + bytes / n);
    return n == 2 ? n * (3 + n) * bytes : n * (5 * bytes + bytes / n);
}

/* One large operation: every element, then its rate. */
static size_t large(coll_op_t op, int n, size_t bytes, gyre_type_t type, double copies, const char *goal,
                    char *host, char *want)
{
    char what[128];
    const size_t count = bytes / gyre_type_size(type);
    const ask_t ask = ask_for(op, n, count, type);
    fill(n, count, type, host);
    for (int r = 0; r < n; r++)
        enqueue(r, &ask);
    wait_for_all(n);
    const size_t bad = wrong(n, count, type, op == COLL_REDUCE_SCATTER, host, want);
    const spread_t seconds = time_of(n, &ask, tiny ? 1 : 3, tiny ? 1 : 5);
    const double traffic = traffic_of(op, n, (double)bytes) / 1e9;
    const spread_t rate = {traffic / seconds.median, traffic / seconds.most, traffic / seconds.least};
    const char *name = op == COLL_REDUCE_SCATTER ? "reduce_scatter" : "all_reduce";
    snprintf(what, sizeof what, "%s, %d ranks, %zu KiB of %s, time", name, n, bytes >> 10,
             gyre_type_name(type));
    tell_spread(what, seconds, 1e6, "us", "");
    snprintf(what, sizeof what, "%s, %d ranks, %zu KiB of %s, counted traffic", name, n, bytes >> 10,
             gyre_type_name(type));
    tell_spread(what, rate, 1, "GB/s", "");
    snprintf(what, sizeof what, "%s, %d ranks, %zu KiB of %s, of the copy rate", name, n, bytes >> 10,
             gyre_type_name(type));
    tell_spread(what, rate, 100e9 / copies, "%", goal);
    return bad;
}

static size_t every_type(int n, size_t most, char *host, char *want)
{
    size_t bad = 0;
    for (int type = GYRE_INT8; type <= GYRE_FLOAT64; type++)
        for (size_t bytes = 8; bytes <= most; bytes *= 32) {
            const size_t count = bytes / gyre_type_size((gyre_type_t)type);
            const ask_t ask = ask_for(COLL_ALL_REDUCE, n, count, (gyre_type_t)type);
            fill(n, count, (gyre_type_t)type, host);
            for (int r = 0; r < n; r++)
                enqueue(r, &ask);
            wait_for_all(n);
            const size_t here = wrong(n, count, (gyre_type_t)type, 0, host, want);
            if (here)
                fprintf(stderr, "gpu_peers: all_reduce, %d ranks, %zu bytes of %s: %zu elements are wrong\n",
                        n, bytes, gyre_type_name((gyre_type_t)type), here);
            bad += here;
        }
    return bad;
}

/* usual: GYRE_CUDA_STAGING as it was given. */
static size_t with(int n, double copies, char *host, char *want, size_t bytes, size_t usual)
{
    char what[128];
    open_ranks(n, bytes, usual);
    size_t bad = every_type(n, tiny ? 8 << 10 : 8 << 20, host, want);
    for (size_t small = 8; small <= (tiny ? 8 : 8 << 10); small *= 32) {
        const ask_t ask = ask_for(COLL_ALL_REDUCE, n, small / 4, GYRE_FLOAT32);
        snprintf(what, sizeof what, "all_reduce, %d ranks, %zu bytes, time", n, small);
        tell_spread(what, time_of(n, &ask, tiny ? 2 : 100, tiny ? 1 : MOST_ROUNDS), 1e6, "us",
                    small == 8 ? "at most 15" : "");
        if (small > 8)
            continue;
        snprintf(what, sizeof what, "all_reduce, %d ranks, %zu bytes, called by one thread", n, small);
        tell_spread(what, time_of_calls(n, &ask, tiny ? 2 : 100, tiny ? 1 : MOST_ROUNDS), 1e6, "us", "");
        snprintf(what, sizeof what, "all_reduce, %d ranks, %zu bytes, called by a thread each", n, small);
        tell_spread(what, time_of_threads(n, &ask, tiny ? 2 : 100, tiny ? 1 : MOST_ROUNDS), 1e6, "us", "");
    }
    close_ranks(n);
    /* Large ones in arenas of twice the vector, that is in one round or few: what goes through small ones in
     * many stays in the device's cache, and is no traffic of its memory. */
    open_ranks(n, bytes, 2 * bytes);
    bad += large(COLL_ALL_REDUCE, n, bytes, GYRE_FLOAT32, copies, "at least 80", host, want);
    bad += large(COLL_ALL_REDUCE, n, bytes, GYRE_BFLOAT16, copies, "", host, want);
    bad += large(COLL_REDUCE_SCATTER, n, bytes, GYRE_FLOAT32, copies, "at least 90", host, want);
    close_ranks(n);
    snprintf(what, sizeof what, "%d ranks, elements of every type and size", n);
    tell(what, (double)bad, "wrong", "at most 0");
    return bad;
}

int main(int argc, char **argv)
{
    int copy_only = 0, least = 2, most = MOST;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--tiny") == 0) {
            tiny = 1;
        } else if (strcmp(argv[i], "--copy") == 0) {
            copy_only = 1;
        } else if (strcmp(argv[i], "--ranks") == 0 && i + 1 < argc && strlen(argv[i + 1]) == 1 &&
                   strchr("248", argv[i + 1][0])) {
            least = most = argv[++i][0] - '0';
        } else {
            fprintf(stderr, "usage: gpu_peers [--tiny] [--copy] [--ranks 2|4|8]\n");
            return 1;
        }
    }
    base_device_prepare_process(); /* each stream its own queue */
    if (base_device_count(BASE_CUDA) == 0) {
        fprintf(stderr, "gpu_peers: %s\n", base_device_why_not(BASE_CUDA));
        return 2;
    }
    const size_t bytes = tiny ? 96 << 10 : (size_t)256 << 20;
    char *host = malloc(bytes), *want = malloc(bytes);
    if (!host || !want)
        fatal("room to compare results in", "no memory left");
    const size_t usual = (size_t)base_setting_int(SET_CUDA_STAGING);
    GYRE(base_settings_set(SET_TIMEOUT, "30s", "gpu_peers"));
    const double copies = copy_rate(bytes);
    tell("copy on the device, read and written", copies / 1e9, "GB/s", "");
    size_t bad = 0;
    for (int n = least; n <= most && !copy_only; n *= 2)
        bad += with(n, copies, host, want, bytes, usual);
    free(host);
    free(want);
    return bad != 0;
}
