/* tests/cuda/gpu_peers.c: the kernel of collectives on device memory with several ranks in one process: each has a stream, an arena in
 * plain device memory and the operations of collectives/cuda_peers.c, launched from CUDA graphs. A part of gpu-check.
 *
 * Gyre's ranks are processes, and without MPS the kernels of processes take turns on a GPU; streams of one process run at
 * once. So this shows what the kernel itself needs: time of small operations, and the bytes that it reads and writes per second,
 * as a share of the rate of device copies. All results are compared.
 *
 * usage: gpu_peers [--tiny] [--copy]
 * A line for each figure: what, figure, unit, and `at least G` or `at most G` if it has a goal. --tiny: small and few, to see that the
 * program works (the emulator). --copy: the rate of copies only. Traffic is counted per rank as the kernel makes it, S being the vector: in one shot S is read and
 * written (published), n S read, S written; in two shots S read and written, S read, S / n written, S read and written;
 * reduce_scatter: S read and written, S read, S / n written.
 * Exit status: 0; 1 an error, a wrong element or a kernel that does not end; 2 there is no GPU. */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/device.h"
#include "base/settings.h"
#include "collectives/communicator.h"
#include "collectives/cuda_state.h"
#include "collectives/kernels.h"

enum { MOST = 8, GIVE_UP_S = 30 };

typedef struct {
    gyre_comm_t *comm; /* its rank and size are all that is looked at */
    coll_cuda_t state;
    cudaStream_t stream;
    cudaGraphExec_t graph;
    char *in, *out;
} rank_t;

static rank_t ranks[MOST];
static int tiny, processors;

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

/* ---- ranks ------------------------------------------------------------------------------------------------------- */

/* Blocks of all ranks wait for one another, so all must find room on the device at once: at most one for each multiprocessor. */
/* staging: of the blocks' part of each arena. */
static void open_ranks(int n, size_t bytes, size_t staging)
{
    int blocks = (int)base_setting_int(SET_CUDA_BLOCKS);
    if (blocks > processors / n)
        blocks = processors / n;
    if (tiny || blocks < 1)
        blocks = 2;
    const size_t region = (staging / (size_t)blocks) & ~(size_t)511;
    memset(ranks, 0, sizeof ranks);
    for (int r = 0; r < n; r++) {
        rank_t *me = &ranks[r];
        me->comm = calloc(1, sizeof *me->comm);
        if (!me->comm)
            fatal("a rank", "no memory left");
        me->comm->n = n;
        me->comm->rank = r;
        me->state = (coll_cuda_t){.comm = me->comm, .region = region, .blocks = blocks};
        CUDA(cudaStreamCreateWithFlags(&me->stream, cudaStreamNonBlocking));
        CUDA(cudaHostAlloc((void **)&me->state.board, sizeof *me->state.board,
                           cudaHostAllocPortable | cudaHostAllocMapped));
        memset(me->state.board, 0, sizeof *me->state.board);
        CUDA(cudaMalloc((void **)&me->state.arena[r], COLL_CUDA_HEAD + region * (size_t)blocks));
        CUDA(cudaMemset(me->state.arena[r], 0, COLL_CUDA_HEAD));
        CUDA(cudaMalloc((void **)&me->in, bytes));
        CUDA(cudaMalloc((void **)&me->out, bytes));
    }
    CUDA(cudaDeviceSynchronize());
    for (int r = 0; r < n; r++)
        for (int peer = 0; peer < n; peer++)
            ranks[r].state.arena[peer] = ranks[peer].state.arena[peer];
}

static void close_ranks(int n)
{
    for (int r = 0; r < n; r++) {
        rank_t *me = &ranks[r];
        CUDA(cudaFree(me->in));
        CUDA(cudaFree(me->out));
        CUDA(cudaFree(me->state.arena[r]));
        CUDA(cudaFreeHost(me->state.board));
        CUDA(cudaStreamDestroy(me->stream));
        free(me->comm);
    }
}

/* Waits for all streams; a kernel that waits for ever is told to end. */
static void wait_for_all(int n)
{
    const base_time_t deadline = base_now() + (base_time_t)GIVE_UP_S * 1000000000;
    for (int r = 0; r < n; r++) {
        cudaError_t rc;
        while ((rc = cudaStreamQuery(ranks[r].stream)) == cudaErrorNotReady && base_now() < deadline)
            ;
        if (rc == cudaErrorNotReady) {
            for (int peer = 0; peer < n; peer++)
                __atomic_store_n(&ranks[peer].state.board->abort, 1, __ATOMIC_RELEASE);
            fatal("ranks wait for one another", "their kernels did not end");
        }
        cuda(rc, "cudaStreamQuery");
    }
    for (int r = 0; r < n; r++)
        if (ranks[r].state.board->mismatch)
            fatal("ranks do not agree", "their calls carry different hashes");
}

/* As the library enqueues it into a graph: one kernel, whose blocks wait for their peers. */
static void enqueue(int r, const coll_shape_t *shape)
{
    rank_t *me = &ranks[r];
    const coll_call_t call = {.name = "gpu_peers",
                              .comm = me->comm,
                              .shape = *shape,
                              .send = me->in,
                              .recv = me->out,
                              .scale = 1,
                              .streamed = 1,
                              .stream = me->stream};
    const comm_call_t as = {.seq = ++me->comm->seq, .sig = coll_cuda_sig(&me->state, shape)};
    if (coll_cuda_enqueue_peers(&me->state, &call, &as, me->stream, 1) != GYRE_OK)
        exit(1); /* which the library has told */
}

/* ---- contents: small whole numbers, whose sums are exact in every type -------------------------------------------- */

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

/* ---- measuring ------------------------------------------------------------------------------------------------------- */

static void tell(const char *what, double figure, const char *unit, const char *goal)
{
    printf("%-58s %10.2f %s%s%s\n", what, figure, unit, *goal ? " " : "", goal);
    fflush(stdout);
}

static coll_shape_t shape_of(coll_op_t op, int n, size_t count, gyre_type_t type)
{
    return (coll_shape_t){.op = op,
                          .type = type,
                          .redop = GYRE_SUM,
                          .uniform = 1,
                          .count = op == COLL_REDUCE_SCATTER ? count / (size_t)n : count};
}

/* Seconds of one operation, of `calls` in each of `rounds` launches of the ranks' graphs: the shortest. */
static double time_of(int n, const coll_shape_t *shape, int calls, int rounds)
{
    double best = 0;
    for (int r = 0; r < n; r++) {
        cudaGraph_t graph;
        CUDA(cudaStreamBeginCapture(ranks[r].stream, cudaStreamCaptureModeThreadLocal));
        for (int i = 0; i < calls; i++)
            enqueue(r, shape);
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
        const double seconds = (double)(base_now() - from) / 1e9 / calls;
        if (round == 1 || (round > 1 && seconds < best))
            best = seconds;
    }
    for (int r = 0; r < n; r++)
        CUDA(cudaGraphExecDestroy(ranks[r].graph));
    return best;
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
    const coll_shape_t shape = shape_of(op, n, count, type);
    fill(n, count, type, host);
    for (int r = 0; r < n; r++)
        enqueue(r, &shape);
    wait_for_all(n);
    const size_t bad = wrong(n, count, type, op == COLL_REDUCE_SCATTER, host, want);
    const double seconds = time_of(n, &shape, tiny ? 1 : 3, tiny ? 1 : 5);
    const double rate = traffic_of(op, n, (double)bytes) / seconds;
    const char *name = op == COLL_REDUCE_SCATTER ? "reduce_scatter" : "all_reduce";
    snprintf(what, sizeof what, "%s, %d ranks, %zu KiB of %s, time", name, n, bytes >> 10,
             gyre_type_name(type));
    tell(what, seconds * 1e6, "us", "");
    snprintf(what, sizeof what, "%s, %d ranks, %zu KiB of %s, counted traffic", name, n, bytes >> 10,
             gyre_type_name(type));
    tell(what, rate / 1e9, "GB/s", "");
    snprintf(what, sizeof what, "%s, %d ranks, %zu KiB of %s, of the copy rate", name, n, bytes >> 10,
             gyre_type_name(type));
    tell(what, 100 * rate / copies, "%", goal);
    return bad;
}

static size_t every_type(int n, size_t most, char *host, char *want)
{
    size_t bad = 0;
    for (int type = GYRE_INT8; type <= GYRE_FLOAT64; type++)
        for (size_t bytes = 8; bytes <= most; bytes *= 32) {
            const size_t count = bytes / gyre_type_size((gyre_type_t)type);
            const coll_shape_t shape = shape_of(COLL_ALL_REDUCE, n, count, (gyre_type_t)type);
            fill(n, count, (gyre_type_t)type, host);
            for (int r = 0; r < n; r++)
                enqueue(r, &shape);
            wait_for_all(n);
            const size_t here = wrong(n, count, (gyre_type_t)type, 0, host, want);
            if (here)
                fprintf(stderr, "gpu_peers: all_reduce, %d ranks, %zu bytes of %s: %zu elements are wrong\n",
                        n, bytes, gyre_type_name((gyre_type_t)type), here);
            bad += here;
        }
    return bad;
}

static size_t with(int n, double copies, char *host, char *want, size_t bytes)
{
    char what[128];
    open_ranks(n, bytes, (size_t)base_setting_int(SET_CUDA_STAGING));
    size_t bad = every_type(n, tiny ? 8 << 10 : 8 << 20, host, want);
    for (size_t small = 8; small <= (tiny ? 8 : 8 << 10); small *= 32) {
        const coll_shape_t shape = shape_of(COLL_ALL_REDUCE, n, small / 4, GYRE_FLOAT32);
        snprintf(what, sizeof what, "all_reduce, %d ranks, %zu bytes, time", n, small);
        tell(what, time_of(n, &shape, tiny ? 2 : 100, tiny ? 1 : 10) * 1e6, "us",
             small == 8 ? "at most 15" : "");
    }
    close_ranks(n);
    /* Large ones in arenas of twice the vector, that is in one round or few: what goes through small ones in many stays in the
     * device's cache, and is no traffic of its memory. */
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
    int copy_only = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--tiny") == 0) {
            tiny = 1;
        } else if (strcmp(argv[i], "--copy") == 0) {
            copy_only = 1;
        } else {
            fprintf(stderr, "usage: gpu_peers [--tiny] [--copy]\n");
            return 1;
        }
    }
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0); /* each stream its own queue */
    if (base_device_count(BASE_CUDA) == 0) {
        fprintf(stderr, "gpu_peers: %s\n", base_device_why_not(BASE_CUDA));
        return 2;
    }
    const size_t bytes = tiny ? 96 << 10 : (size_t)256 << 20;
    char *host = malloc(bytes), *want = malloc(bytes);
    if (!host || !want)
        fatal("room to compare results in", "no memory left");
    CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
    CUDA(coll_cuda_load());
    const double copies = copy_rate(bytes);
    tell("copy on the device, read and written", copies / 1e9, "GB/s", "");
    size_t bad = 0;
    for (int n = 2; n <= (tiny ? 4 : MOST) && !copy_only; n *= 2)
        bad += with(n, copies, host, want, bytes);
    free(host);
    free(want);
    return bad != 0;
}
