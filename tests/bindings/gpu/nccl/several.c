/* SPDX-License-Identifier: Apache-2.0 */
/* tests/bindings/gpu/nccl/several.c: several processes, each with two ranks on two devices, driven by one
 * thread in groups, or by a thread for each rank. */
#include "tests/bindings/gpu/nccl/launched.h"

#include <pthread.h>
#include <signal.h>

enum { COUNT = 1000, MINE = 2, PARTS = 5 };
static int process, processes, n;
static ncclComm_t comms[MINE];
static cudaStream_t streams[MINE];
static float *a[MINE], *b[MINE]; /* [n * COUNT]; a of rank r: 1000 r, 1000 r + 1, ... */

#define EACH(call)                     \
    do {                               \
        NCCL(ncclGroupStart());        \
        for (int i = 0; i < MINE; i++) \
            NCCL(call);                \
        NCCL(ncclGroupEnd());          \
        wait_for_both();               \
    } while (0)

static int rank_of(int i)
{
    return MINE * process + i;
}

static void wait_for_both(void)
{
    for (int i = 0; i < MINE; i++)
        CUDA(cudaStreamSynchronize(streams[i]));
}

static void use_device(int i)
{
    int devices;
    CUDA(cudaGetDeviceCount(&devices));
    CUDA(cudaSetDevice(rank_of(i) % devices));
}

static void start_rank(int i)
{
    use_device(i);
    CUDA(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
    a[i] = floats((size_t)n * COUNT, (float)(1000 * rank_of(i)), 1);
    b[i] = floats((size_t)n * COUNT, -1, 0);
}

static void start(void)
{
    const ncclUniqueId id = new_id(process == 0);
    for (int i = 0; i < MINE; i++)
        start_rank(i);
    NCCL(ncclGroupStart());
    for (int i = 0; i < MINE; i++) {
        use_device(i);
        NCCL(ncclCommInitRank(&comms[i], n, id, rank_of(i)));
    }
    NCCL(ncclGroupEnd());
    for (int i = 0; i < MINE; i++) {
        int rank, count;
        NCCL(ncclCommUserRank(comms[i], &rank));
        NCCL(ncclCommCount(comms[i], &count));
        CHECK(rank == rank_of(i) && count == n, "rank %d of %d", rank, count);
    }
    meet(process, processes);
}

static float sum_of_first(void)
{
    return (float)(1000 * (n * (n - 1) / 2));
}

static void collectives(void)
{
    for (int step = 0; step < 3; step++)
        EACH(ncclAllReduce(a[i], b[i], COUNT, ncclFloat, ncclSum, comms[i], streams[i]));
    for (int i = 0; i < MINE; i++)
        expect("all-reduce", b[i], COUNT, sum_of_first(), (float)n);
    EACH(ncclReduceScatter(a[i], b[i], COUNT, ncclFloat, ncclSum, comms[i], streams[i]));
    for (int i = 0; i < MINE; i++)
        expect("reduce-scatter", b[i], COUNT, sum_of_first() + (float)(n * COUNT * rank_of(i)), (float)n);
    EACH(ncclAllGather(a[i], b[i], COUNT, ncclFloat, comms[i], streams[i]));
    for (int i = 0; i < MINE; i++)
        expect("all-gather", b[i], (size_t)n * COUNT, 0, 1);
    NCCL(ncclGroupStart());
    for (int i = 0; i < MINE; i++)
        for (int p = 0; p < n; p++) {
            NCCL(ncclSend(a[i] + p * COUNT, COUNT, ncclFloat, p, comms[i], streams[i]));
            NCCL(ncclRecv(b[i] + p * COUNT, COUNT, ncclFloat, p, comms[i], streams[i]));
        }
    NCCL(ncclGroupEnd());
    wait_for_both();
    for (int i = 0; i < MINE; i++)
        for (int p = 0; p < n; p++)
            expect("all pairs", b[i] + p * COUNT, COUNT, (float)(1000 * p + COUNT * rank_of(i)), 1);
    /* parts of one length to all ranks, in their order; the calls of one rank after those of the other */
    NCCL(ncclGroupStart());
    for (int i = 0; i < MINE; i++)
        for (int part = 0; part < PARTS; part++)
            for (int p = 0; p < n; p++) {
                const int at = p * COUNT + part * (COUNT / PARTS);
                NCCL(ncclSend(a[i] + at, COUNT / PARTS, ncclFloat, p, comms[i], streams[i]));
                NCCL(ncclRecv(b[i] + at, COUNT / PARTS, ncclFloat, p, comms[i], streams[i]));
            }
    NCCL(ncclGroupEnd());
    wait_for_both();
    for (int i = 0; i < MINE; i++)
        for (int p = 0; p < n; p++)
            expect("parts", b[i] + p * COUNT, COUNT, (float)(1000 * p + COUNT * rank_of(i)), 1);
    /* a window is registered by one rank after the other */
    for (int i = 0; i < MINE; i++) {
        ncclWindow_t window;
        NCCL(ncclCommWindowRegister(comms[i], a[i], COUNT, &window, NCCL_WIN_COLL_SYMMETRIC));
        NCCL(ncclCommWindowDeregister(comms[i], window));
    }
}

/* The ranks of a process, and the ranks with one number in theirs; both made in one group. */
static void splits(void)
{
    ncclComm_t row[MINE], column[MINE];
    NCCL(ncclGroupStart());
    for (int i = 0; i < MINE; i++) {
        NCCL(ncclCommSplit(comms[i], process, i, &row[i], NULL));
        NCCL(ncclCommSplit(comms[i], i, process, &column[i], NULL));
    }
    NCCL(ncclGroupEnd());
    EACH(ncclAllReduce(a[i], b[i], COUNT, ncclFloat, ncclMax, row[i], streams[i]));
    for (int i = 0; i < MINE; i++)
        expect("maximum of a process", b[i], COUNT, (float)(1000 * rank_of(MINE - 1)), 1);
    EACH(ncclAllReduce(a[i], b[i], COUNT, ncclFloat, ncclMin, column[i], streams[i]));
    for (int i = 0; i < MINE; i++)
        expect("minimum of a column", b[i], COUNT, (float)(1000 * i), 1);
    for (int i = 0; i < MINE; i++) {
        NCCL(ncclCommDestroy(row[i]));
        NCCL(ncclCommDestroy(column[i]));
    }
}

static ncclUniqueId shared_id;
static void *one_rank(void *argument)
{
    const int i = *(int *)argument;
    ncclComm_t comm;
    use_device(i);
    NCCL(ncclCommInitRank(&comm, n, shared_id, rank_of(i)));
    for (int step = 0; step < 5; step++)
        NCCL(ncclAllReduce(a[i], b[i], COUNT, ncclFloat, ncclSum, comm, streams[i]));
    CUDA(cudaStreamSynchronize(streams[i]));
    NCCL(ncclCommDestroy(comm));
    return NULL;
}

static void threads(void)
{
    pthread_t thread[MINE];
    int number[MINE];
    shared_id = new_id(process == 0);
    for (int i = 0; i < MINE; i++) {
        number[i] = i;
        CHECK(pthread_create(&thread[i], NULL, one_rank, &number[i]) == 0, "no thread");
    }
    for (int i = 0; i < MINE; i++)
        CHECK(pthread_join(thread[i], NULL) == 0, "thread %d", i);
    for (int i = 0; i < MINE; i++)
        expect("by threads", b[i], COUNT, sum_of_first(), (float)n);
}

/* A process dies with both of its ranks; the others hear of it, and go on without them. */
static void dead(void)
{
    ncclComm_t fewer[MINE];
    int last[MINE];
    for (int i = 0; i < MINE; i++)
        last[i] = n - MINE + i;
    if (process == processes - 1)
        (void)raise(SIGKILL);
    NCCL(ncclGroupStart());
    for (int i = 0; i < MINE; i++)
        (void)ncclAllReduce(a[i], b[i], COUNT, ncclFloat, ncclSum, comms[i], streams[i]);
    (void)ncclGroupEnd(); /* may know already */
    wait_for_both();
    for (int i = 0; i < MINE; i++) {
        ncclResult_t error = ncclSuccess;
        for (int tries = 0; error == ncclSuccess && tries < 20000; tries++) {
            NCCL(ncclCommGetAsyncError(comms[i], &error));
            (void)usleep(1000);
        }
        CHECK(error == ncclRemoteError, "%d: %s", (int)error, ncclGetLastError(comms[i]));
    }
    NCCL(ncclGroupStart());
    for (int i = 0; i < MINE; i++)
        NCCL(ncclCommShrink(comms[i], last, MINE, &fewer[i], NULL, NCCL_SHRINK_ABORT));
    NCCL(ncclGroupEnd());
    for (int i = 0; i < MINE; i++) {
        NCCL(ncclCommDestroy(comms[i]));
        comms[i] = fewer[i];
    }
    EACH(ncclAllReduce(a[i], b[i], COUNT, ncclFloat, ncclMax, comms[i], streams[i]));
    for (int i = 0; i < MINE; i++)
        expect("maximum of those left", b[i], COUNT, (float)(1000 * (n - MINE - 1)), 1);
    (void)printf("process %d goes on\n", process);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } parts[] = {{"collectives", collectives}, {"splits", splits}, {"threads", threads}, {"dead", dead}};
    CHECK(argc == 3, "usage: several PART FILE");
    launched(argv[2], &process, &processes);
    n = MINE * processes;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strcmp(argv[1], parts[i].name) == 0) {
            start();
            parts[i].run();
            for (int k = 0; k < MINE; k++)
                NCCL(ncclCommDestroy(comms[k]));
            return 0;
        }
    CHECK(0, "no part '%s'", argv[1]);
}
