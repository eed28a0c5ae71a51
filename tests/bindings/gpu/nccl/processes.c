/* SPDX-License-Identifier: Apache-2.0 */
/* tests/bindings/gpu/nccl/processes.c: a process per rank, each on one device. */
#include "tests/bindings/gpu/nccl/launched.h"

#include <pthread.h>
#include <signal.h>

enum { COUNT = 1000 };
static int rank, n;
static ncclComm_t comm;
static cudaStream_t stream;
static float *a, *b; /* [n * COUNT]; a: 1000 rank, 1000 rank + 1, ... */

static void start(void)
{
    int devices, count, device, mine;
    CUDA(cudaGetDeviceCount(&devices));
    CUDA(cudaSetDevice(rank % devices));
    NCCL(ncclCommInitRank(&comm, n, new_id(rank == 0), rank));
    NCCL(ncclCommCount(comm, &count));
    NCCL(ncclCommCuDevice(comm, &device));
    NCCL(ncclCommUserRank(comm, &mine));
    CHECK(count == n && device == rank % devices && mine == rank, "%d %d %d", count, device, mine);
    CUDA(cudaStreamCreate(&stream));
    a = floats((size_t)n * COUNT, (float)(1000 * rank), 1);
    b = floats((size_t)n * COUNT, -1, 0);
    meet(rank, n);
}

static float sum_of_first(void) /* of a, over the ranks */
{
    return (float)(1000 * (n * (n - 1) / 2));
}

static void collectives(void)
{
    NCCL(ncclAllReduce(a, b, COUNT, ncclFloat, ncclSum, comm, stream));
    CUDA(cudaStreamSynchronize(stream));
    expect("all-reduce", b, COUNT, sum_of_first(), (float)n);
    NCCL(ncclReduceScatter(a, b, COUNT, ncclFloat, ncclSum, comm, stream));
    CUDA(cudaStreamSynchronize(stream));
    expect("reduce-scatter", b, COUNT, sum_of_first() + (float)(n * COUNT * rank), (float)n);
    NCCL(ncclAllGather(a, b, COUNT, ncclFloat, comm, stream));
    CUDA(cudaStreamSynchronize(stream));
    expect("all-gather", b, (size_t)n * COUNT, 0, 1);
    NCCL(ncclBroadcast(a, b, COUNT, ncclFloat, n - 1, comm, stream));
    CUDA(cudaStreamSynchronize(stream));
    expect("broadcast", b, COUNT, (float)(1000 * (n - 1)), 1);
    NCCL(ncclReduce(a, b, COUNT, ncclFloat, ncclAvg, 0, comm, stream));
    CUDA(cudaStreamSynchronize(stream));
    if (rank == 0)
        expect("reduce", b, COUNT, sum_of_first() / (float)n, 1);
    NCCL(ncclAlltoAll(a, b, COUNT, ncclFloat, comm, stream));
    CUDA(cudaStreamSynchronize(stream));
    for (int p = 0; p < n; p++)
        expect("all-to-all", b + p * COUNT, COUNT, (float)(1000 * p + COUNT * rank), 1);
}

/* Messages around a ring, then between all pairs. */
static void ring(void)
{
    const int next = (rank + 1) % n, last = (rank + n - 1) % n;
    for (int step = 0; step < 5; step++) {
        NCCL(ncclGroupStart());
        NCCL(ncclSend(step % 2 ? b : a, COUNT, ncclFloat, next, comm, stream));
        NCCL(ncclRecv(step % 2 ? a : b, COUNT, ncclFloat, last, comm, stream));
        NCCL(ncclGroupEnd());
    }
    CUDA(cudaStreamSynchronize(stream));
    expect("five steps round", b, COUNT, (float)(1000 * ((rank + 5 * n - 5) % n)), 1);
    CUDA(cudaFree(a));
    a = floats((size_t)n * COUNT, (float)(1000 * rank), 1);
    NCCL(ncclGroupStart());
    for (int p = 0; p < n; p++) {
        NCCL(ncclSend(a + p * COUNT, COUNT, ncclFloat, p, comm, stream));
        NCCL(ncclRecv(b + p * COUNT, COUNT, ncclFloat, p, comm, stream));
    }
    NCCL(ncclGroupEnd());
    CUDA(cudaStreamSynchronize(stream));
    for (int p = 0; p < n; p++)
        expect("all pairs", b + p * COUNT, COUNT, (float)(1000 * p + COUNT * rank), 1);
}

/* Halves, and all but the last; the parent goes first. */
static void splits(void)
{
    ncclComm_t half, fewer = NULL, none;
    int mine, size, last = n - 1;
    NCCL(ncclCommSplit(comm, rank % 2, -rank, &half, NULL));
    NCCL(ncclCommSplit(comm, NCCL_SPLIT_NOCOLOR, 0, &none, NULL));
    CHECK(!none, "no color");
    NCCL(ncclCommUserRank(half, &mine));
    NCCL(ncclCommCount(half, &size));
    CHECK(size == (n + 1 - rank % 2) / 2 && mine == size - 1 - rank / 2, "rank %d of %d", mine, size);
    if (rank != last && n > 1)
        NCCL(ncclCommShrink(comm, &last, 1, &fewer, NULL, NCCL_SHRINK_DEFAULT));
    NCCL(ncclCommDestroy(comm));
    comm = half;
    NCCL(ncclAllReduce(a, b, COUNT, ncclFloat, ncclMax, half, stream));
    CUDA(cudaStreamSynchronize(stream));
    expect("maximum of a half", b, COUNT, (float)(1000 * (rank % 2 + 2 * (size - 1))), 1);
    if (fewer) {
        NCCL(ncclAllReduce(a, b, COUNT, ncclFloat, ncclMax, fewer, stream));
        CUDA(cudaStreamSynchronize(stream));
        expect("maximum without the last", b, COUNT, (float)(1000 * (n - 2)), 1);
        NCCL(ncclCommDestroy(fewer));
    }
}

/* Two communicators, made in one group. */
static void two(void)
{
    ncclComm_t more[2];
    const ncclUniqueId first = new_id(rank == 0), second = new_id(rank == 0);
    NCCL(ncclGroupStart());
    NCCL(ncclCommInitRank(&more[0], n, first, rank));
    NCCL(ncclCommInitRank(&more[1], n, second, rank));
    NCCL(ncclGroupEnd());
    NCCL(ncclGroupStart());
    NCCL(ncclAllReduce(a, a, COUNT, ncclFloat, ncclSum, more[0], stream));
    NCCL(ncclAllReduce(b, b, COUNT, ncclFloat, ncclSum, more[1], stream));
    NCCL(ncclGroupEnd());
    CUDA(cudaStreamSynchronize(stream));
    expect("the first", a, COUNT, sum_of_first(), (float)n);
    expect("the second", b, COUNT, (float)-n, 0);
    for (int i = 0; i < 2; i++)
        NCCL(ncclCommDestroy(more[i]));
}

/* As many communicators as frameworks make: an id for each. */
static void ids(void)
{
    enum { MANY = 20 };
    ncclComm_t more[MANY];
    for (int i = 0; i < MANY; i++)
        NCCL(ncclCommInitRank(&more[i], n, new_id(rank == 0), rank));
    for (int i = 0; i < MANY; i++)
        NCCL(ncclAllReduce(a + i, b + i, 1, ncclFloat, ncclSum, more[i], stream));
    CUDA(cudaStreamSynchronize(stream));
    expect("each of many", b, MANY, sum_of_first(), (float)n);
    for (int i = 0; i < MANY; i++)
        NCCL(ncclCommDestroy(more[i]));
}

/* Communicators of two ids end in another order on each process; another one ends late, while rank 0, which
 * has ended it, captures a graph. */
static void order(void)
{
    ncclComm_t more[3];
    cudaGraph_t graph;
    for (int i = 0; i < 3; i++)
        NCCL(ncclCommInitRank(&more[i], n, new_id(rank == 0), rank));
    NCCL(ncclCommDestroy(more[rank % 2]));
    NCCL(ncclCommDestroy(more[1 - rank % 2]));
    if (rank == 0) {
        NCCL(ncclCommDestroy(more[2]));
        CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    }
    const ncclUniqueId id = new_id(rank == 0); /* the others wait for its file */
    if (rank > 0) {
        NCCL(ncclCommDestroy(more[2]));
    } else {
        (void)usleep(500 * 1000);
        CUDA(cudaMemsetAsync(b, 0, sizeof *b, stream));
        CUDA(cudaStreamEndCapture(stream, &graph));
        CUDA(cudaGraphDestroy(graph));
    }
    (void)id;
}

static void *destroy_beside(void *late)
{
    NCCL(ncclCommDestroy(late));
    return NULL;
}

/* Two threads of rank 0 destroy the last communicators, of two ids. The other ranks destroy the first one
 * late, and rank 0 does not end before that. */
static void ends(void)
{
    ncclComm_t late;
    pthread_t thread;
    NCCL(ncclCommInitRank(&late, n, new_id(rank == 0), rank));
    if (rank == 0) {
        CHECK(pthread_create(&thread, NULL, destroy_beside, late) == 0, "no thread");
        (void)usleep(100 * 1000); /* the thread is the first one of the two */
        NCCL(ncclCommDestroy(comm));
        CHECK(pthread_join(thread, NULL) == 0, "pthread_join");
    } else {
        NCCL(ncclCommDestroy(comm));
        (void)usleep(1000 * 1000); /* longer than rank 0's thread waits while there is another id */
        NCCL(ncclCommDestroy(late));
    }
    exit(0);
}

/* Calls that programs make and that look odd: in place where NCCL promises no result, nothing with no buffer,
 * two messages to one rank, and collectives next to messages in one group. */
static void habits(void)
{
    const int next = (rank + 1) % n, last = (rank + n - 1) % n;
    NCCL(ncclAlltoAll(b, b, COUNT, ncclFloat, comm, stream));
    NCCL(ncclGroupStart());
    NCCL(ncclSend(b, COUNT, ncclFloat, next, comm, stream));
    NCCL(ncclRecv(b, COUNT, ncclFloat, last, comm, stream));
    NCCL(ncclGroupEnd());
    NCCL(ncclGroupStart());
    NCCL(ncclAllReduce(NULL, NULL, 0, ncclFloat, ncclSum, comm, stream));
    NCCL(ncclSend(NULL, 0, ncclFloat, next, comm, stream));
    NCCL(ncclRecv(NULL, 0, ncclFloat, last, comm, stream));
    NCCL(ncclGroupEnd());
    NCCL(ncclGroupStart());
    NCCL(ncclSend(a, 10, ncclFloat, next, comm, stream));
    NCCL(ncclSend(a + 10, 20, ncclFloat, next, comm, stream));
    NCCL(ncclRecv(b, 10, ncclFloat, last, comm, stream));
    NCCL(ncclRecv(b + 10, 20, ncclFloat, last, comm, stream));
    NCCL(ncclAllReduce(a + 30, b + 30, 10, ncclFloat, ncclSum, comm, stream));
    NCCL(ncclGroupEnd());
    NCCL(ncclBroadcast(rank == 0 ? a : NULL, b + COUNT, 10, ncclFloat, 0, comm, stream));
    CUDA(cudaStreamSynchronize(stream));
    expect("two messages", b, 30, (float)(1000 * last), 1);
    expect("and a sum", b + 30, 10, sum_of_first() + (float)(30 * n), (float)n);
    expect("from rank 0's buffer", b + COUNT, 10, 0, 1);
    NCCL(ncclGroupStart()); /* each rank's part to all, then sums of parts in place */
    for (int p = 0; p < n; p++)
        NCCL(ncclBroadcast(a, b + p * 10, 10, ncclFloat, p, comm, stream));
    for (int i = 0; i < 2; i++)
        NCCL(
            ncclReduceScatter(a + i * 10 * n, a + (i * n + rank) * 10, 10, ncclFloat, ncclSum, comm, stream));
    NCCL(ncclGroupEnd());
    CUDA(cudaStreamSynchronize(stream));
    for (int p = 0; p < n; p++)
        expect("all parts", b + p * 10, 10, (float)(1000 * p), 1);
    for (int i = 0; i < 2; i++)
        expect("my part", a + (i * n + rank) * 10, 10, sum_of_first() + (float)(10 * n * (i * n + rank)),
               (float)n);
}

/* One group and one stream: a message that not all ranks make, and collectives of two communicators. */
static void mixed(void)
{
    ncclComm_t second;
    NCCL(ncclCommSplit(comm, 0, rank, &second, NULL));
    NCCL(ncclGroupStart());
    if (rank == 0)
        NCCL(ncclSend(a, COUNT, ncclFloat, 1, comm, stream));
    if (rank == 1)
        NCCL(ncclRecv(b, COUNT, ncclFloat, 0, comm, stream));
    NCCL(ncclAllReduce(a, b + COUNT, COUNT, ncclFloat, ncclSum, comm, stream));
    NCCL(ncclAllReduce(a, b + 2 * COUNT, COUNT, ncclFloat, ncclSum, second, stream));
    NCCL(ncclGroupEnd());
    CUDA(cudaStreamSynchronize(stream));
    if (rank == 1)
        expect("message", b, COUNT, 0, 1);
    expect("the first", b + COUNT, COUNT, sum_of_first(), (float)n);
    expect("the second", b + 2 * COUNT, COUNT, sum_of_first(), (float)n);
    NCCL(ncclCommDestroy(second));
}

/* A stream is captured meanwhile, in the mode that forbids the most, and its graph is whole in the end. */
static void captures(void)
{
    ncclComm_t more[2], part;
    ncclWindow_t window;
    cudaGraph_t graph;
    const ncclUniqueId first = new_id(rank == 0), second = new_id(rank == 0);
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    NCCL(ncclGroupStart());
    NCCL(ncclCommInitRank(&more[0], n, first, rank));
    NCCL(ncclCommInitRank(&more[1], n, second, rank));
    NCCL(ncclGroupEnd());
    NCCL(ncclCommSplit(more[0], 0, 0, &part, NULL));
    NCCL(ncclCommWindowRegister(part, a, COUNT, &window, NCCL_WIN_COLL_SYMMETRIC));
    NCCL(ncclCommWindowDeregister(part, window));
    NCCL(ncclCommDestroy(part));
    for (int i = 0; i < 2; i++)
        NCCL(ncclCommDestroy(more[i]));
    CUDA(cudaStreamEndCapture(stream, &graph));
    CUDA(cudaGraphDestroy(graph));
}

static void windows(void)
{
    enum { BYTES = 8192, MANY = 3 };
    void *buffer[MANY];
    ncclWindow_t window[MANY];
    for (int i = 0; i < MANY; i++) {
        NCCL(ncclMemAlloc(&buffer[i], BYTES));
        NCCL(ncclCommWindowRegister(comm, buffer[i], BYTES, &window[i], NCCL_WIN_COLL_SYMMETRIC));
    }
    for (int i = 0; i < MANY; i++) {
        NCCL(ncclCommWindowDeregister(comm, window[i]));
        NCCL(ncclMemFree(buffer[i]));
    }
}

/* More windows than a communicator has room for: those beyond have no effect, until others are gone. */
static void many_windows(void)
{
    enum { BYTES = 8192, ROOM = 256, MANY = ROOM + 3 };
    static ncclWindow_t window[MANY];
    void *buffer;
    NCCL(ncclMemAlloc(&buffer, BYTES));
    for (int i = 0; i < MANY; i++)
        NCCL(ncclCommWindowRegister(comm, buffer, BYTES, &window[i], NCCL_WIN_COLL_SYMMETRIC));
    NCCL(ncclCommWindowDeregister(comm, window[0]));
    NCCL(ncclCommWindowRegister(comm, buffer, BYTES, &window[0], NCCL_WIN_COLL_SYMMETRIC));
    for (int i = 0; i < MANY; i++)
        NCCL(ncclCommWindowDeregister(comm, window[i]));
    NCCL(ncclMemFree(buffer));
}

/* Two ranks on one device. A window of the other process's memory, which cannot be shared again, has no
 * effect, and the next window is registered all the same: the third one is refused as the first. */
static void foreign(void)
{
    enum { BYTES = 8192, MANY = 3 };
    cudaIpcMemHandle_t handles[2];
    void *mine, *other, *buffer[MANY];
    ncclWindow_t window[MANY];
    NCCL(ncclMemAlloc(&mine, BYTES));
    CUDA(cudaIpcGetMemHandle(&handles[0], mine));
    CUDA(cudaMemcpy(a, &handles[0], sizeof *handles, cudaMemcpyHostToDevice));
    NCCL(ncclAllGather(a, b, sizeof *handles, ncclChar, comm, stream));
    CUDA(cudaStreamSynchronize(stream));
    CUDA(cudaMemcpy(handles, b, sizeof handles, cudaMemcpyDeviceToHost));
    CUDA(cudaIpcOpenMemHandle(&other, handles[1 - rank], cudaIpcMemLazyEnablePeerAccess));
    for (int i = 0; i < MANY; i++) {
        buffer[i] = i == 1 ? mine : other;
        NCCL(ncclCommWindowRegister(comm, buffer[i], BYTES, &window[i], NCCL_WIN_COLL_SYMMETRIC));
    }
    for (int i = 0; i < MANY; i++)
        NCCL(ncclCommWindowDeregister(comm, window[i]));
    CUDA(cudaIpcCloseMemHandle(other));
}

static ncclResult_t wait_for_error(void)
{
    ncclResult_t error = ncclSuccess;
    CUDA(cudaStreamSynchronize(stream));
    for (int tries = 0; error == ncclSuccess && tries < 20000; tries++) {
        NCCL(ncclCommGetAsyncError(comm, &error));
        (void)usleep(1000);
    }
    return error;
}

static void *register_alone(void *part)
{
    ncclWindow_t window;
    CHECK(ncclCommWindowRegister(part, a, COUNT, &window, NCCL_WIN_COLL_SYMMETRIC) != ncclSuccess, "alone");
    return NULL;
}

/* A thread of rank 0 registers a window, and waits for the others, which hear of an abort instead. */
static void abort_window(void)
{
    ncclComm_t part;
    pthread_t thread;
    ncclResult_t error = ncclSuccess;
    NCCL(ncclCommSplit(comm, 0, 0, &part, NULL));
    if (rank == 0) {
        CHECK(pthread_create(&thread, NULL, register_alone, part) == 0, "no thread");
        (void)usleep(100 * 1000); /* the thread waits by now */
    }
    for (int tries = 0; rank > 0 && error == ncclSuccess && tries < 20000; tries++) {
        NCCL(ncclCommGetAsyncError(part, &error));
        (void)usleep(1000);
    }
    NCCL(ncclCommAbort(part));
    if (rank == 0)
        CHECK(pthread_join(thread, NULL) == 0, "pthread_join");
}

static void aborts_window(void)
{
    for (int times = 0; times < 5; times++)
        abort_window();
}

/* The last rank dies; the others hear of it and abort. */
static void dead(void)
{
    NCCL(ncclAllReduce(a, b, COUNT, ncclFloat, ncclSum, comm, stream));
    CUDA(cudaStreamSynchronize(stream));
    if (rank == n - 1)
        (void)raise(SIGKILL);
    (void)ncclAllReduce(a, b, COUNT, ncclFloat, ncclSum, comm, stream);
    CHECK(wait_for_error() == ncclRemoteError, "%s", ncclGetLastError(comm));
    CHECK(strstr(ncclGetLastError(comm), "died"), "%s", ncclGetLastError(comm));
    (void)printf("rank %d goes on\n", rank);
    (void)fflush(stdout);
    NCCL(ncclCommAbort(comm));
    exit(0);
}

static void go_on_without_the_last(int flags)
{
    ncclComm_t fewer;
    int last = n - 1, count;
    NCCL(ncclCommShrink(comm, &last, 1, &fewer, NULL, flags));
    NCCL(ncclCommDestroy(comm));
    comm = fewer;
    NCCL(ncclCommCount(comm, &count));
    CHECK(count == n - 1, "%d ranks", count);
    NCCL(ncclAllReduce(a, b, COUNT, ncclFloat, ncclMax, comm, stream));
    CUDA(cudaStreamSynchronize(stream));
    expect("maximum of those left", b, COUNT, (float)(1000 * (n - 2)), 1);
    (void)printf("rank %d goes on\n", rank);
}

/* The last rank dies; the others go on in a smaller communicator. */
static void shrinks(void)
{
    if (rank == n - 1)
        (void)raise(SIGKILL);
    (void)ncclAllReduce(a, b, COUNT, ncclFloat, ncclSum, comm, stream);
    CHECK(wait_for_error() == ncclRemoteError, "%s", ncclGetLastError(comm));
    go_on_without_the_last(NCCL_SHRINK_ABORT);
}

/* Rank 0 aborts; the others' operation ends. Rank 0 does not wait for another id, which the others destroy
 * after that. */
static void aborts(void)
{
    ncclComm_t more;
    NCCL(ncclCommInitRank(&more, n, new_id(rank == 0), rank));
    if (rank == 0)
        NCCL(ncclCommDestroy(more));
    NCCL(ncclAllReduce(a, b, COUNT, ncclFloat, ncclSum, comm, stream));
    CUDA(cudaStreamSynchronize(stream));
    if (rank > 0) {
        (void)ncclAllReduce(a, b, COUNT, ncclFloat, ncclSum, comm, stream);
        CHECK(wait_for_error() == ncclRemoteError, "%s", ncclGetLastError(comm));
    }
    NCCL(ncclCommAbort(comm));
    (void)new_id(rank == 0); /* the others wait for its file */
    if (rank > 0)
        NCCL(ncclCommDestroy(more));
    exit(0);
}

/* Rank 0 aborts the last communicator, which is not that of the job: it does not wait for the others. */
static void aborts_part(void)
{
    ncclComm_t half;
    NCCL(ncclCommSplit(comm, rank == 0, 0, &half, NULL));
    NCCL(ncclCommDestroy(comm));
    if (rank == 0)
        NCCL(ncclCommAbort(half));
    (void)new_id(rank == 0); /* the others wait for its file */
    if (rank > 0)
        NCCL(ncclCommDestroy(half));
    exit(0);
}

/* After ncclCommRevoke ncclCommShrink goes on without the last rank; ncclCommSplit is refused. */
static void revokes(void)
{
    ncclComm_t half;
    NCCL(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
    CHECK(wait_for_error() == ncclRemoteError, "%s", ncclGetLastError(comm));
    REFUSED(ncclRemoteError, "ncclCommRevoke", ncclAllReduce(a, b, COUNT, ncclFloat, ncclSum, comm, stream));
    REFUSED(ncclRemoteError, "ncclCommRevoke", ncclCommSplit(comm, 0, rank, &half, NULL));
    if (rank < n - 1)
        go_on_without_the_last(NCCL_SHRINK_DEFAULT);
}

/* Ranks that call different operations, or with different counts: no hang, an error on all. */
static void mismatch(void)
{
    if (rank == 0)
        (void)ncclAllReduce(a, b, COUNT, ncclFloat, ncclSum, comm, stream);
    else
        (void)ncclAllGather(a, b, COUNT / 2, ncclFloat, comm, stream);
    CHECK(wait_for_error() == ncclInvalidUsage, "%s", ncclGetLastError(comm));
    NCCL(ncclCommAbort(comm));
    exit(0);
}

static void counts(void)
{
    (void)ncclAllReduce(a, b, rank == 0 ? COUNT : COUNT / 2, ncclFloat, ncclSum, comm, stream);
    CHECK(wait_for_error() == ncclInvalidUsage, "%s", ncclGetLastError(comm));
    NCCL(ncclCommAbort(comm));
    exit(0);
}

/* 16 + 1 + 0 in E4M3: 17 lies in the middle of 16 and 18, and 16 is even. The average, 16 / 3, lies between 5
 * and 5.5, and is nearer to 5.5. */
static void float8(void)
{
    static const unsigned char inputs[3] = {0x58, 0x38, 0x00};
    unsigned char got[2];
    CUDA(cudaMemcpy(a, &inputs[rank % 3], 1, cudaMemcpyHostToDevice));
    NCCL(ncclAllReduce(a, b, 1, ncclFloat8e4m3, ncclSum, comm, stream));
    NCCL(ncclAllReduce(a, (char *)b + 1, 1, ncclFloat8e4m3, ncclAvg, comm, stream));
    CUDA(cudaStreamSynchronize(stream));
    CUDA(cudaMemcpy(got, b, 2, cudaMemcpyDeviceToHost));
    CHECK(got[0] == 0x58 && got[1] == 0x4b, "%02x %02x", got[0], got[1]);
}

/* What Gyre lacks goes to the library of GYRE_NCCL_FALLBACK, which has a communicator of its own. */
ncclResult_t ncclSignal(int peer, int signal, int ctx, unsigned flags, ncclComm_t comm, cudaStream_t stream);
static void signals(void)
{
    NCCL(ncclSignal((rank + 1) % n, 0, 0, 0, comm, stream));
    NCCL(ncclAllReduce(a, b, COUNT, ncclFloat, ncclSum, comm, stream));
    CUDA(cudaStreamSynchronize(stream));
    expect("all-reduce", b, COUNT, sum_of_first(), (float)n);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } parts[] = {{"collectives", collectives},
                 {"ring", ring},
                 {"splits", splits},
                 {"two", two},
                 {"ids", ids},
                 {"order", order},
                 {"ends", ends},
                 {"habits", habits},
                 {"mixed", mixed},
                 {"captures", captures},
                 {"windows", windows},
                 {"many_windows", many_windows},
                 {"foreign", foreign},
                 {"dead", dead},
                 {"shrinks", shrinks},
                 {"aborts", aborts},
                 {"aborts_part", aborts_part},
                 {"aborts_window", aborts_window},
                 {"revokes", revokes},
                 {"mismatch", mismatch},
                 {"counts", counts},
                 {"float8", float8},
                 {"signals", signals}};
    CHECK(argc == 3, "usage: processes PART FILE");
    launched(argv[2], &rank, &n);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strcmp(argv[1], parts[i].name) == 0) {
            start();
            parts[i].run();
            NCCL(ncclCommDestroy(comm));
            return 0;
        }
    CHECK(0, "no part '%s'", argv[1]);
}
