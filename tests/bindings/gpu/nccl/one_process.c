/* SPDX-License-Identifier: Apache-2.0 */
/* tests/bindings/gpu/nccl/one_process.c: ranks of one process, each on a device of its own, driven by one
 * thread in groups. */
#include "tests/bindings/gpu/nccl/program.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

ncclResult_t pncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                            ncclComm_t comm, cudaStream_t stream);

enum { N = 3, COUNT = 1000 };
static ncclComm_t comms[N];
static cudaStream_t streams[N];
static float *a[N], *b[N]; /* [N * COUNT]; a of rank r: 1000 r, 1000 r + 1, ... */

#define EACH(call)                  \
    do {                            \
        NCCL(ncclGroupStart());     \
        for (int r = 0; r < N; r++) \
            NCCL(call);             \
        NCCL(ncclGroupEnd());       \
        wait_for_all();             \
    } while (0)

static void wait_for_all(void)
{
    for (int r = 0; r < N; r++)
        CUDA(cudaStreamSynchronize(streams[r]));
}

static void fill(void)
{
    for (int r = 0; r < N; r++) {
        CUDA(cudaSetDevice(r));
        CUDA(cudaFree(a[r]));
        CUDA(cudaFree(b[r]));
        a[r] = floats(N * COUNT, (float)(1000 * r), 1);
        b[r] = floats(N * COUNT, -1, 0);
    }
}

static void start(void)
{
    NCCL(ncclCommInitAll(comms, N, NULL));
    for (int r = 0; r < N; r++) {
        int count, device, rank;
        NCCL(ncclCommCount(comms[r], &count));
        NCCL(ncclCommCuDevice(comms[r], &device));
        NCCL(ncclCommUserRank(comms[r], &rank));
        CHECK(count == N && device == r && rank == r, "%d %d %d", count, device, rank);
        CUDA(cudaSetDevice(r));
        CUDA(cudaStreamCreate(&streams[r]));
    }
    fill();
}

static void stop(void)
{
    for (int r = 0; r < N; r++) {
        ncclResult_t error;
        NCCL(ncclCommGetAsyncError(comms[r], &error));
        CHECK(error == ncclSuccess, "%d", (int)error);
        NCCL(ncclCommFinalize(comms[r]));
        NCCL(ncclCommDestroy(comms[r]));
    }
}

static void collectives(void)
{
    EACH(ncclAllReduce(a[r], b[r], COUNT, ncclFloat, ncclSum, comms[r], streams[r]));
    for (int r = 0; r < N; r++)
        expect("all-reduce", b[r], COUNT, 3000, 3);
    EACH(ncclAllReduce(a[r], b[r], COUNT, ncclFloat, ncclMax, comms[r], streams[r]));
    expect("maximum", b[0], COUNT, 2000, 1);
    EACH(ncclAllReduce(a[r], b[r], COUNT, ncclFloat, ncclMin, comms[r], streams[r]));
    expect("minimum", b[2], COUNT, 0, 1);
    EACH(ncclAllReduce(a[r], b[r], COUNT, ncclFloat, ncclAvg, comms[r], streams[r]));
    expect("average", b[1], COUNT, 1000, 1);
    EACH(ncclAllReduce(a[r], b[r], 1, ncclFloat, ncclProd, comms[r], streams[r]));
    expect("product", b[1], 1, 0, 0);
    EACH(ncclReduce(a[r], r == 1 ? b[r] : NULL, COUNT, ncclFloat, ncclSum, 1, comms[r], streams[r]));
    expect("reduce", b[1], COUNT, 3000, 3);
    EACH(ncclReduceScatter(a[r], b[r], COUNT, ncclFloat, ncclSum, comms[r], streams[r]));
    for (int r = 0; r < N; r++)
        expect("reduce-scatter", b[r], COUNT, 3000 + 3 * COUNT * (float)r, 3);
    EACH(ncclBroadcast(a[r], b[r], COUNT, ncclFloat, 2, comms[r], streams[r]));
    for (int r = 0; r < N; r++)
        expect("broadcast", b[r], COUNT, 2000, 1);
    EACH(ncclAllGather(a[r], b[r], COUNT, ncclFloat, comms[r], streams[r]));
    for (int r = 0; r < N; r++)
        expect("all-gather", b[r], N * COUNT, 0, 1);
    EACH(ncclAlltoAll(a[r], b[r], COUNT, ncclFloat, comms[r], streams[r]));
    for (int r = 0; r < N; r++)
        for (int p = 0; p < N; p++)
            expect("all-to-all", b[r] + p * COUNT, COUNT, (float)(1000 * p + COUNT * r), 1);
    EACH(ncclGather(a[r], r == 2 ? b[r] : NULL, COUNT, ncclFloat, 2, comms[r], streams[r]));
    expect("gather", b[2], N * COUNT, 0, 1);
    EACH(ncclScatter(r == 1 ? a[r] : NULL, b[r], COUNT, ncclFloat, 1, comms[r], streams[r]));
    for (int r = 0; r < N; r++)
        expect("scatter", b[r], COUNT, (float)(1000 + COUNT * r), 1);
    EACH(ncclBcast(a[r], COUNT, ncclFloat, 0, comms[r], streams[r]));
    for (int r = 0; r < N; r++)
        expect("bcast", a[r], COUNT, 0, 1);
    EACH(pncclAllReduce(a[r], a[r], COUNT, ncclFloat, ncclSum, comms[r], streams[r]));
    expect("in place, by its other name", a[1], COUNT, 0, 3);
}

/* Numbers of every type add up. */
/* The stream on which a factor is read waits, by another call of the group, for the ranks that come next. */
static void factor_after_another(void)
{
    ncclComm_t others[N];
    ncclRedOp_t op[N];
    NCCL(ncclCommInitAll(others, N, NULL));
    for (int r = 0; r < N; r++) {
        CUDA(cudaSetDevice(r));
        NCCL(ncclRedOpCreatePreMulSum(&op[r], floats(1, 0.5f, 0), ncclFloat, ncclScalarDevice, others[r]));
    }
    NCCL(ncclGroupStart());
    for (int r = 0; r < N; r++) {
        NCCL(ncclAllReduce(a[r], b[r], COUNT, ncclFloat, ncclSum, comms[r], streams[r]));
        NCCL(ncclAllReduce(a[r], b[r] + COUNT, COUNT, ncclFloat, op[r], others[r], streams[r]));
    }
    NCCL(ncclGroupEnd());
    wait_for_all();
    for (int r = 0; r < N; r++) {
        expect("a sum before a factor", b[r], COUNT, 3000, 3);
        expect("half of the sum after another", b[r] + COUNT, COUNT, 1500, 1.5f);
        NCCL(ncclCommDestroy(others[r]));
    }
}

static void types(void)
{
    static const struct {
        ncclDataType_t type;
        size_t bytes;
        uint64_t one, three; /* bits of 1 and of 3 */
    } all[] = {{ncclInt8, 1, 1, 3},
               {ncclUint8, 1, 1, 3},
               {ncclInt32, 4, 1, 3},
               {ncclUint32, 4, 1, 3},
               {ncclInt64, 8, 1, 3},
               {ncclUint64, 8, 1, 3},
               {ncclFloat16, 2, 0x3c00, 0x4200},
               {ncclFloat32, 4, 0x3f800000, 0x40400000},
               {ncclFloat64, 8, 0x3ff0000000000000, 0x4008000000000000},
               {ncclBfloat16, 2, 0x3f80, 0x4040}};
    for (size_t t = 0; t < sizeof all / sizeof *all; t++) {
        uint64_t result = 0;
        for (int r = 0; r < N; r++)
            CUDA(cudaMemcpy(a[r], &all[t].one, 8, cudaMemcpyHostToDevice));
        EACH(ncclAllReduce(a[r], b[r], 1, all[t].type, ncclSum, comms[r], streams[r]));
        CUDA(cudaMemcpy(&result, b[1], all[t].bytes, cudaMemcpyDeviceToHost));
        CHECK(result == all[t].three, "type %d: %llx", (int)all[t].type, (unsigned long long)result);
        /* each multiplied by 3, which is read as that type: 9 for three ranks, 3 for one */
        ncclRedOp_t op[N];
        for (int r = 0; r < N; r++) {
            uint64_t factor = r == 0 ? all[t].three : 0;
            NCCL(ncclRedOpCreatePreMulSum(&op[r], &factor, all[t].type, ncclScalarHostImmediate, comms[r]));
            CHECK(op[r] >= ncclNumOps, "%d", (int)op[r]);
        }
        NCCL(ncclGroupStart());
        for (int r = 0; r < N; r++) {
            NCCL(ncclAllReduce(a[r], b[r], 1, all[t].type, op[r], comms[r], streams[r]));
            NCCL(ncclRedOpDestroy(op[r], comms[r])); /* allowed as soon as the call has returned */
        }
        NCCL(ncclGroupEnd());
        wait_for_all();
        CUDA(cudaMemcpy(&result, b[2], all[t].bytes, cudaMemcpyDeviceToHost));
        CHECK(result == all[t].three, "scaled sum of type %d: %llx", (int)all[t].type,
              (unsigned long long)result);
    }
    fill();
    /* Gyre's device code moves 8-bit floats, and does not add them */
    EACH(ncclBroadcast(a[r], b[r], COUNT, ncclFloat8e4m3, 2, comms[r], streams[r]));
    expect("8-bit floats", b[0], COUNT / 4, 2000, 1);
    REFUSED(ncclInvalidUsage, "no sum of float8",
            ncclAllReduce(a[0], b[0], 1, ncclFloat8e5m2, ncclSum, comms[0], streams[0]));
    /* a factor in device memory: read when the stream gets there */
    ncclRedOp_t op[N];
    for (int r = 0; r < N; r++) {
        CUDA(cudaSetDevice(r));
        NCCL(ncclRedOpCreatePreMulSum(&op[r], floats(1, 0.5f, 0), ncclFloat, ncclScalarDevice, comms[r]));
    }
    EACH(ncclAllReduce(a[r], b[r], COUNT, ncclFloat, op[r], comms[r], streams[r]));
    expect("half of the sum", b[0], COUNT, 1500, 1.5f);
    REFUSED(ncclInvalidArgument, "datatype",
            ncclAllReduce(a[0], b[0], 1, ncclInt, op[0], comms[0], streams[0]));
    for (int r = 0; r < N; r++)
        NCCL(ncclRedOpDestroy(op[r], comms[r]));
    REFUSED(ncclInvalidArgument, "ncclRedOpCreatePreMulSum", ncclRedOpDestroy(op[0], comms[0]));
    factor_after_another();
}

/* One thread lists all calls of a rank before the next rank's, and messages in all directions. */
static void groups(void)
{
    enum { MANY = 60 };
    NCCL(ncclGroupStart());
    for (int r = 0; r < N; r++)
        for (int i = 0; i < MANY; i++)
            NCCL(ncclAllReduce(a[r] + i, b[r] + i, 1, ncclFloat, ncclSum, comms[r], streams[r]));
    NCCL(ncclGroupEnd());
    wait_for_all();
    for (int r = 0; r < N; r++)
        expect("many all-reduces", b[r], MANY, 3000, 3);

    NCCL(ncclGroupStart());
    for (int r = 0; r < N; r++)
        for (int p = 0; p < N; p++) { /* to itself, too */
            NCCL(ncclGroupStart());
            NCCL(ncclSend(a[r] + p * COUNT, COUNT, ncclFloat, p, comms[r], streams[r]));
            NCCL(ncclRecv(b[r] + p * COUNT, COUNT, ncclFloat, p, comms[r], streams[r]));
            NCCL(ncclGroupEnd());
        }
    NCCL(ncclGroupEnd());
    wait_for_all();
    for (int r = 0; r < N; r++)
        for (int p = 0; p < N; p++)
            expect("messages", b[r] + p * COUNT, COUNT, (float)(1000 * p + COUNT * r), 1);

    for (int bad = 0; bad < 2;
         bad++) { /* what is wrong with a message to itself shows in ncclGroupEnd alone */
        NCCL(ncclGroupStart());
        for (int r = 0; r < N; r++)
            NCCL(ncclAllReduce(a[r], b[r], 1, ncclFloat, ncclSum, comms[r], streams[r]));
        NCCL(ncclSend(a[0], 2, ncclFloat, 0, comms[0], streams[0]));
        if (bad)
            NCCL(ncclRecv(b[0], 1, ncclFloat, 0, comms[0], streams[0]));
        REFUSED(bad ? ncclInvalidArgument : ncclInvalidUsage,
                bad ? "they must be equal" : "no call for the other end", ncclGroupEnd());
        wait_for_all();
        for (int r = 0; r < N; r++)
            expect("nothing of a refused group", b[r], COUNT, (float)(COUNT * r), 1);
    }
}

static void splits(void)
{
    ncclComm_t parts[N], whole[N], fewer[N] = {NULL};
    NCCL(ncclGroupStart());
    for (int r = 0; r < N; r++)
        NCCL(ncclCommSplit(comms[r], r == 1 ? NCCL_SPLIT_NOCOLOR : 7, -r, &parts[r], NULL));
    NCCL(ncclGroupEnd());
    int rank, count;
    NCCL(ncclCommUserRank(parts[0], &rank));
    NCCL(ncclCommCount(parts[2], &count));
    CHECK(rank == 1 && count == 2 && !parts[1], "rank %d of %d", rank, count);
    NCCL(ncclGroupStart());
    for (int r = 0; r < N; r += 2)
        NCCL(ncclAllReduce(a[r], b[r], COUNT, ncclFloat, ncclSum, parts[r], streams[r]));
    NCCL(ncclGroupEnd());
    wait_for_all();
    expect("sum of two", b[2], COUNT, 2000, 2);

    int excluded = 0;
    NCCL(ncclGroupStart());
    for (int r = 1; r < N; r++)
        NCCL(ncclCommShrink(comms[r], &excluded, 1, &fewer[r], NULL, NCCL_SHRINK_DEFAULT));
    NCCL(ncclGroupEnd());
    NCCL(ncclGroupStart());
    for (int r = 1; r < N; r++)
        NCCL(ncclAllReduce(a[r], b[r], COUNT, ncclFloat, ncclSum, fewer[r], streams[r]));
    NCCL(ncclGroupEnd());
    wait_for_all();
    expect("sum without rank 0", b[1], COUNT, 3000, 2);

    /* all ranks of an id in one group */
    ncclUniqueId id;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    NCCL(ncclGetUniqueId(&id));
    NCCL(ncclGroupStart());
    for (int r = 0; r < N; r++) {
        CUDA(cudaSetDevice(r));
        NCCL(ncclCommInitRankConfig(&whole[r], N, id, r, &config));
    }
    NCCL(ncclGroupEnd());
    EACH(ncclAllReduce(a[r], b[r], COUNT, ncclFloat, ncclSum, whole[r], streams[r]));
    expect("an id in a group", b[0], COUNT, 3000, 3);

    NCCL(ncclGroupStart());
    for (int r = 0; r < N; r++)
        NCCL(ncclAllReduce(a[r], b[r], COUNT, ncclFloat, ncclMax, whole[r], streams[r]));
    CHECK(ncclCommDestroy(whole[0]) == ncclInvalidUsage &&
              strstr(ncclGetLastError(NULL), "end the group first"),
          "%s", ncclGetLastError(NULL));
    NCCL(ncclGroupEnd());
    wait_for_all();
    expect("the group that it was in", b[0], COUNT, 2000, 1);
    for (int r = 0; r < N; r++) {
        NCCL(ncclCommDestroy(whole[r]));
        NCCL(ncclCommDestroy(parts[r]));
        NCCL(ncclCommDestroy(fewer[r]));
    }
}

ncclResult_t ncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t window, void **buffer); /* of a later version */

static void memory(void)
{
    enum { MANY = 257 }; /* more than Gyre registers */
    ncclWindow_t window[N], more[N][MANY];
    void *buffer[N], *handle;
    for (int r = 0; r < N; r++) {
        CUDA(cudaSetDevice(r));
        NCCL(ncclMemAlloc(&buffer[r], N * COUNT * sizeof(float)));
        CUDA(cudaMemcpy(buffer[r], a[r], N * COUNT * sizeof(float), cudaMemcpyDeviceToDevice));
        NCCL(ncclCommWindowRegister(comms[r], buffer[r], N * COUNT * sizeof(float), &window[r],
                                    NCCL_WIN_COLL_SYMMETRIC));
        NCCL(ncclCommRegister(comms[r], a[r], 4, &handle));
        NCCL(ncclCommDeregister(comms[r], handle));
        NCCL(ncclWinGetUserPtr(comms[r], window[r], &handle));
        CHECK(handle == buffer[r], "%p", handle);
    }
    EACH(ncclAllReduce(buffer[r], buffer[r], COUNT, ncclFloat, ncclSum, comms[r], streams[r]));
    expect("in a window", buffer[1], COUNT, 3000, 3);
    for (int i = 0; i < MANY; i++)
        for (int r = 0; r < N; r++)
            NCCL(ncclCommWindowRegister(comms[r], a[r] + i, 4, &more[r][i], NCCL_WIN_COLL_SYMMETRIC));
    for (int i = 0; i < MANY; i++)
        for (int r = 0; r < N; r++)
            NCCL(ncclCommWindowDeregister(comms[r], more[r][i]));
    for (int r = 0; r < N; r++) {
        CUDA(cudaSetDevice(r));
        NCCL(ncclCommWindowDeregister(comms[r], window[r]));
        NCCL(ncclMemFree(buffer[r]));
    }
}

/* A stream is captured meanwhile, in the mode that forbids the most, and its graph is whole in the end. */
static void captures(void)
{
    ncclComm_t more[N], half[N];
    ncclWindow_t window[N];
    void *buffer[N];
    cudaGraph_t graph;
    CUDA(cudaSetDevice(0));
    CUDA(cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeGlobal));
    NCCL(ncclCommInitAll(more, N, NULL));
    NCCL(ncclGroupStart());
    for (int r = 0; r < N; r++)
        NCCL(ncclCommSplit(more[r], r % 2, r, &half[r], NULL));
    NCCL(ncclGroupEnd());
    for (int r = 0; r < N; r++) {
        CUDA(cudaSetDevice(r));
        NCCL(ncclMemAlloc(&buffer[r], COUNT));
        NCCL(ncclCommWindowRegister(more[r], buffer[r], COUNT, &window[r], NCCL_WIN_COLL_SYMMETRIC));
    }
    for (int r = 0; r < N; r++) {
        CUDA(cudaSetDevice(r));
        NCCL(ncclCommWindowDeregister(more[r], window[r]));
        NCCL(ncclMemFree(buffer[r]));
        NCCL(ncclCommAbort(half[r]));
        NCCL(ncclCommDestroy(more[r]));
    }
    CUDA(cudaStreamEndCapture(streams[0], &graph));
    CUDA(cudaGraphDestroy(graph));
}

ncclResult_t ncclCommSuspend(ncclComm_t comm, int flags); /* later than 2.28 */

static void errors(void)
{
    ncclComm_t comm = NULL;
    ncclUniqueId id;
    ncclConfig_t config = {0};
    int version = 0;
    NCCL(ncclGetVersion(&version));
    CHECK(version == 22809, "%d", version);
    NCCL(ncclGetUniqueId(&id));
    REFUSED(ncclInvalidArgument, "comm is NULL", ncclAllReduce(a[0], b[0], 1, ncclFloat, ncclSum, NULL, 0));
    REFUSED(ncclInvalidArgument, "op 5", ncclAllReduce(a[0], b[0], 1, ncclFloat, ncclNumOps, comms[0], 0));
    REFUSED(ncclInvalidArgument, "datatype 99",
            ncclAllReduce(a[0], b[0], 1, (ncclDataType_t)99, ncclSum, comms[0], 0));
    REFUSED(ncclInvalidArgument, "root 3", ncclBcast(a[0], 1, ncclFloat, 3, comms[0], 0));
    REFUSED(ncclInvalidArgument, "peer -1", ncclSend(a[0], 1, ncclFloat, -1, comms[0], 0));
    REFUSED(ncclInvalidUsage, "itself", ncclSend(a[0], 1, ncclFloat, 0, comms[0], 0));
    REFUSED(ncclInvalidArgument, "rank 2 of 2", ncclCommInitRank(&comm, 2, id, 2));
    REFUSED(ncclInvalidArgument, "NCCL_CONFIG_INITIALIZER", ncclCommInitRankConfig(&comm, 2, id, 0, &config));
    REFUSED(ncclInvalidUsage, "ncclGroupStart", ncclGroupEnd());
    REFUSED(ncclInvalidUsage, "all of them must", ncclCommSplit(comms[0], 0, 0, &comm, NULL));
    REFUSED(ncclInvalidUsage, "Gyre has no such call", ncclCommSuspend(comms[0], 0));
    CHECK(setenv("NCCL_COMM_ID", "127.0.0.1:9999", 1) == 0, "setenv");
    for (int i = 0; i < 2; i++) /* PyTorch, too, gives all ranks the id that rank 0 makes: then it works */
        NCCL(ncclGetUniqueId(&id));
    CHECK(unsetenv("NCCL_COMM_ID") == 0, "unsetenv");
    NCCL(ncclGroupStart()); /* one rank twice */
    for (int i = 0; i < 2; i++)
        NCCL(ncclCommInitRank(&comm, 3, id, 1));
    REFUSED(ncclInvalidArgument, "rank 1 of 3 and rank 1 of 3", ncclGroupEnd());
    REFUSED(ncclInvalidArgument,
            "ncclAllReduce: ", ncclAllReduce(NULL, b[0], 1, ncclFloat, ncclSum, comms[0], streams[0]));
    REFUSED(ncclInvalidArgument,
            "ncclAllGather: ", ncclAllGather(a[0], NULL, 1, ncclFloat, comms[0], streams[0]));
    REFUSED(ncclInvalidArgument, "ncclRecv: ", ncclRecv(NULL, 1, ncclFloat, 1, comms[0], streams[0]));
    REFUSED(ncclInvalidUsage, "host memory",
            ncclAllReduce(&version, &version, 1, ncclInt, ncclSum, comms[0], streams[0]));
    NCCL(ncclGroupStart()); /* a refused call: the others are not run */
    NCCL(ncclAllReduce(a[0], b[0], 1, ncclFloat, ncclSum, comms[0], streams[0]));
    GIVES(ncclInvalidArgument, ncclAllReduce(a[1], b[1], 1, ncclFloat, ncclNumOps, comms[1], streams[1]));
    GIVES(ncclInvalidArgument, ncclGroupEnd());
    NCCL(ncclGroupStart());
    NCCL(ncclAllReduce(a[0], b[0], 1, ncclFloat, ncclSum, comms[0], streams[0]));
    NCCL(ncclCommSplit(comms[0], 0, 0, &comm, NULL));
    REFUSED(ncclInvalidUsage, "a group for each kind", ncclGroupEnd());
    EACH(ncclAllReduce(a[r], b[r], COUNT, ncclFloat, ncclSum, comms[r], streams[r]));
    expect("after errors", b[1], COUNT, 3000, 3);
    CHECK(strcmp(ncclGetErrorString(ncclSuccess), "success") == 0, "%s", ncclGetErrorString(ncclSuccess));
    NCCL(ncclCommDestroy(NULL));
}

/* Fields of a config, groups of two kinds, and a communicator that has ended. */
static void configs(void)
{
    ncclComm_t ready[N];
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    ncclComm_t comm = NULL;
    NCCL(ncclGetUniqueId(&id));
    config.blocking = 5;
    REFUSED(ncclInvalidArgument, "ncclCommInitRankConfig: config.blocking is 5",
            ncclCommInitRankConfig(&comm, 2, id, 0, &config));
    config.blocking = 0;
    config.minCTAs = 4, config.maxCTAs = 2;
    REFUSED(ncclInvalidArgument, "ncclCommSplit: config.minCTAs is 4",
            ncclCommSplit(comms[0], 0, 0, &comm, &config));
    config.size = offsetof(ncclConfig_t, cgaClusterSize) + sizeof(int); /* as of NCCL 2.14, which pads it */
    config.version = NCCL_VERSION(2, 14, 3);                            /* and has none of these fields */
    NCCL(ncclGroupStart());
    for (int r = 0; r < N; r++)
        NCCL(ncclCommSplit(comms[r], 0, r, &ready[r], &config));
    NCCL(ncclGroupEnd());
    NCCL(ncclGroupStart());
    NCCL(ncclAllReduce(a[0], b[0], 1, ncclFloat, ncclSum, comms[0], streams[0]));
    REFUSED(ncclInvalidArgument, "config.blocking of the communicator is 0",
            ncclAllReduce(a[1], b[1], 1, ncclFloat, ncclSum, ready[1], streams[1]));
    GIVES(ncclInvalidArgument, ncclGroupEnd());
    EACH(ncclAllReduce(a[r], b[r], COUNT, ncclFloat, ncclSum, ready[r], streams[r]));
    expect("without blocking", b[1], COUNT, 3000, 3);
    for (int r = 0; r < N; r++)
        NCCL(ncclCommFinalize(ready[r]));
    REFUSED(ncclInvalidArgument, "ncclCommFinalize: ", ncclCommFinalize(ready[0]));
    for (int r = 0; r < N; r++)
        NCCL(ncclCommDestroy(ready[r]));
    REFUSED(ncclInvalidArgument, "ncclCommDestroy: ", ncclCommDestroy(ready[0]));
    REFUSED(ncclInvalidArgument, "was destroyed",
            ncclAllReduce(a[0], b[0], 1, ncclFloat, ncclSum, ready[0], streams[0]));
    int count;
    REFUSED(ncclInvalidArgument, "ncclCommCount: ", ncclCommCount(ready[0], &count));
}

/* What the host asks of NCCL's interface for kernels: there is none, and each rank reaches itself alone. */
typedef struct {
    size_t size;
    unsigned magic, version;
    int rank, ranks, device, nvml;
    bool kernels, multimem;
    int gin, lsa_teams;
    bool rma;
    int railed_gin;
    int later[8];
} properties_t;
typedef struct {
    int ranks, rank, stride;
} team_t;
ncclResult_t ncclCommQueryProperties(ncclComm_t comm, properties_t *properties);
ncclResult_t ncclGetLsaDevicePointer(ncclWindow_t window, size_t offset, int rank, void **out);
team_t ncclTeamWorld(ncclComm_t comm);
team_t ncclTeamLsa(ncclComm_t comm);
team_t ncclTeamRail(ncclComm_t comm);
int ncclTeamRankToWorld(ncclComm_t comm, team_t team, int rank);
int ncclTeamRankToLsa(ncclComm_t comm, team_t team, int rank);

static void properties(void)
{
    enum { SHORT = offsetof(properties_t, rma) };
    properties_t got = {sizeof got, 0xcafebeef, 22907, .kernels = 1, .rma = 1, .later = {1, 1}};
    NCCL(ncclCommQueryProperties(comms[1], &got));
    CHECK(got.rank == 1 && got.ranks == N && got.device == 1 && got.lsa_teams == N, "%d of %d on %d, %d",
          got.rank, got.ranks, got.device, got.lsa_teams);
    CHECK(!got.kernels && !got.multimem && !got.gin && !got.rma && !got.railed_gin && !got.later[1], "%d",
          got.rma);
    got = (properties_t){SHORT, 0xcafebeef, 22902, .rma = 1};
    NCCL(ncclCommQueryProperties(comms[2], &got));
    CHECK(got.rank == 2 && got.rma, "%d: more than %d bytes were written", got.rank, SHORT);
    got.magic = 0;
    REFUSED(ncclInvalidArgument, "INITIALIZER", ncclCommQueryProperties(comms[0], &got));
    const team_t world = ncclTeamWorld(comms[1]), lsa = ncclTeamLsa(comms[1]), rail = ncclTeamRail(comms[1]);
    CHECK(world.ranks == N && world.rank == 1 && world.stride == 1, "%d of %d", world.rank, world.ranks);
    CHECK(lsa.ranks == 1 && lsa.rank == 0 && lsa.stride == 1, "%d of %d", lsa.rank, lsa.ranks);
    CHECK(memcmp(&rail, &world, sizeof rail) == 0, "%d of %d", rail.rank, rail.ranks);
    CHECK(ncclTeamRankToWorld(comms[1], world, 2) == 2 && ncclTeamRankToWorld(comms[1], lsa, 0) == 1,
          "world");
    CHECK(ncclTeamRankToLsa(comms[1], world, 1) == 0 && ncclTeamRankToLsa(comms[1], lsa, 0) == 0, "itself");
    void *pointer;
    REFUSED(ncclInvalidUsage, "ncclGetLsaDevicePointer", ncclGetLsaDevicePointer(NULL, 0, 0, &pointer));
}

static void *one_rank(void *argument)
{
    const int r = *(int *)argument;
    CUDA(cudaSetDevice(r));
    for (int i = 0; i < 5; i++)
        NCCL(ncclAllReduce(a[r], b[r], COUNT, ncclFloat, ncclSum, comms[r], streams[r]));
    CUDA(cudaStreamSynchronize(streams[r]));
    return NULL;
}

/* A thread per rank: calls need no group. */
static void threads(void)
{
    pthread_t each[N];
    int ranks[N];
    for (int r = 0; r < N; r++) {
        ranks[r] = r;
        CHECK(pthread_create(&each[r], NULL, one_rank, &ranks[r]) == 0, "no thread");
    }
    for (int r = 0; r < N; r++)
        CHECK(pthread_join(each[r], NULL) == 0, "thread %d", r);
    expect("by threads", b[2], COUNT, 3000, 3);
}

static void *abort_it(void *comm)
{
    NCCL(ncclCommAbort(comm));
    return NULL;
}

/* A rank that never calls: ncclCommAbort ends the others' operations. */
static void aborts(void)
{
    ncclResult_t error = ncclSuccess;
    for (int r = 0; r < N - 1; r++)
        NCCL(ncclAllReduce(a[r], b[r], COUNT, ncclFloat, ncclSum, comms[r], streams[r]));
    NCCL(ncclCommAbort(comms[0]));
    CUDA(cudaStreamSynchronize(streams[0]));
    CUDA(cudaStreamSynchronize(streams[1]));
    for (int tries = 0; error == ncclSuccess && tries < 5000; tries++) {
        NCCL(ncclCommGetAsyncError(comms[1], &error));
        (void)usleep(1000);
    }
    CHECK(error == ncclRemoteError, "%d", (int)error);
    CHECK(strstr(ncclGetLastError(comms[1]), "ncclCommAbort"), "%s", ncclGetLastError(comms[1]));
    REFUSED(ncclInvalidArgument, "ncclSend: ", ncclSend(a[0], 1, ncclFloat, 1, comms[0], streams[0]));
    /* by another thread, as a watchdog does, while this one has a group open */
    pthread_t watchdog;
    NCCL(ncclGroupStart());
    NCCL(ncclAllReduce(a[1], b[1], COUNT, ncclFloat, ncclSum, comms[1], streams[1]));
    CHECK(pthread_create(&watchdog, NULL, abort_it, comms[1]) == 0, "no thread");
    CHECK(pthread_join(watchdog, NULL) == 0, "the watchdog");
    REFUSED(ncclInvalidArgument, "ncclAllReduce: comm is not a communicator, or was destroyed",
            ncclGroupEnd());
    NCCL(ncclCommAbort(comms[2]));
    exit(0);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } parts[] = {{"collectives", collectives}, {"types", types},      {"groups", groups},
                 {"splits", splits},           {"memory", memory},    {"errors", errors},
                 {"configs", configs},         {"threads", threads},  {"aborts", aborts},
                 {"properties", properties},   {"captures", captures}};
    CHECK(argc == 2, "usage: one_process PART");
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strcmp(argv[1], parts[i].name) == 0) {
            start();
            parts[i].run();
            stop();
            return 0;
        }
    CHECK(0, "no part '%s'", argv[1]);
}
