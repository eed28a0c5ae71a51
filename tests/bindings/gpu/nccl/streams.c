/* SPDX-License-Identifier: Apache-2.0 */
/* tests/bindings/gpu/nccl/streams.c: one process with two devices. Buffers come from ncclMemAlloc and are
 * registered. Data is copied in and out on a stream of the program, and summed on two others in turn; only
 * events order them, and the host waits at the end. Before that a rank sends to itself from one stream to
 * another. */
#include "tests/bindings/gpu/nccl/program.h"

enum { N = 2, COUNT = 3000, STEPS = 12, SLOTS = 2, BYTES = COUNT * sizeof(float) };
typedef struct {
    cudaStream_t copies, sums[SLOTS];
    cudaEvent_t filled[SLOTS], summed[SLOTS];
    float *device[SLOTS], *in[STEPS], *out[STEPS]; /* in, out: pinned host memory */
    ncclWindow_t window[SLOTS];
} rank_t;
static rank_t ranks[N];
static ncclComm_t comms[N];

static void start(int r)
{
    rank_t *mine = &ranks[r];
    CUDA(cudaSetDevice(r));
    CUDA(cudaStreamCreateWithFlags(&mine->copies, cudaStreamNonBlocking));
    for (int s = 0; s < SLOTS; s++) {
        CUDA(cudaStreamCreateWithFlags(&mine->sums[s], cudaStreamNonBlocking));
        CUDA(cudaEventCreateWithFlags(&mine->filled[s], cudaEventDisableTiming));
        CUDA(cudaEventCreateWithFlags(&mine->summed[s], cudaEventDisableTiming));
        NCCL(ncclMemAlloc((void **)&mine->device[s], BYTES));
        NCCL(ncclCommWindowRegister(comms[r], mine->device[s], BYTES, &mine->window[s],
                                    NCCL_WIN_COLL_SYMMETRIC));
    }
    for (int step = 0; step < STEPS; step++) {
        CUDA(cudaMallocHost((void **)&mine->in[step], BYTES));
        CUDA(cudaMallocHost((void **)&mine->out[step], BYTES));
        for (int i = 0; i < COUNT; i++)
            mine->in[step][i] = (float)(1000 * r + step + i);
    }
}

static void stop(int r)
{
    rank_t *mine = &ranks[r];
    CUDA(cudaSetDevice(r));
    for (int step = 0; step < STEPS; step++) {
        CUDA(cudaFreeHost(mine->in[step]));
        CUDA(cudaFreeHost(mine->out[step]));
    }
    for (int s = 0; s < SLOTS; s++) {
        NCCL(ncclCommWindowDeregister(comms[r], mine->window[s]));
        NCCL(ncclMemFree(mine->device[s]));
        CUDA(cudaEventDestroy(mine->filled[s]));
        CUDA(cudaEventDestroy(mine->summed[s]));
        CUDA(cudaStreamDestroy(mine->sums[s]));
    }
    CUDA(cudaStreamDestroy(mine->copies));
}

/* The receive's stream waits for what the send's has got before, and the send's for the message: it
 * overwrites what was sent. In both directions at once, while the thread is on another device than the
 * rank. */
static void to_itself(void)
{
    enum { HALF = BYTES / 2 };
    const rank_t *mine = &ranks[1];
    char *const from = (char *)mine->device[0], *const to = (char *)mine->device[1];
    for (int round = 0; round < STEPS; round++) {
        unsigned char *got = (unsigned char *)mine->out[round];
        CUDA(cudaSetDevice(1));
        for (int s = 0; s < 2; s++)
            CUDA(cudaMemsetAsync(from + s * HALF, 100 * s + round, HALF, mine->sums[s]));
        CUDA(cudaSetDevice(0));
        NCCL(ncclGroupStart());
        NCCL(ncclSend(from, HALF, ncclChar, 1, comms[1], mine->sums[0]));
        NCCL(ncclRecv(to, HALF, ncclChar, 1, comms[1], mine->sums[1]));
        NCCL(ncclRecv(to + HALF, HALF, ncclChar, 1, comms[1], mine->sums[0]));
        NCCL(ncclSend(from + HALF, HALF, ncclChar, 1, comms[1], mine->sums[1]));
        NCCL(ncclGroupEnd());
        CUDA(cudaSetDevice(1));
        for (int s = 0; s < 2; s++) {
            CUDA(cudaMemsetAsync(from + s * HALF, 255, HALF, mine->sums[s]));
            CUDA(cudaMemcpyAsync(got + s * HALF, to + s * HALF, HALF, cudaMemcpyDeviceToHost,
                                 mine->sums[1 - s]));
        }
        for (int s = 0; s < 2; s++)
            CUDA(cudaStreamSynchronize(mine->sums[s]));
        for (int i = 0; i < BYTES; i++)
            CHECK(got[i] == 100 * (i / HALF) + round, "round %d, byte %d: %d", round, i, got[i]);
    }
}

int main(void)
{
    (void)alarm(50);
    NCCL(ncclCommInitAll(comms, N, NULL));
    for (int r = 0; r < N; r++)
        start(r);
    to_itself();
    for (int step = 0; step < STEPS; step++) {
        const int s = step % SLOTS;
        for (int r = 0; r < N; r++) {
            rank_t *mine = &ranks[r];
            CUDA(cudaSetDevice(r));
            CUDA(cudaMemcpyAsync(mine->device[s], mine->in[step], BYTES, cudaMemcpyHostToDevice,
                                 mine->copies));
            CUDA(cudaEventRecord(mine->filled[s], mine->copies));
            CUDA(cudaStreamWaitEvent(mine->sums[s], mine->filled[s], 0));
        }
        NCCL(ncclGroupStart());
        for (int r = 0; r < N; r++)
            NCCL(ncclAllReduce(ranks[r].device[s], ranks[r].device[s], COUNT, ncclFloat, ncclSum, comms[r],
                               ranks[r].sums[s]));
        NCCL(ncclGroupEnd());
        for (int r = 0; r < N; r++) {
            rank_t *mine = &ranks[r];
            CUDA(cudaSetDevice(r));
            CUDA(cudaEventRecord(mine->summed[s], mine->sums[s]));
            CUDA(cudaStreamWaitEvent(mine->copies, mine->summed[s], 0));
            CUDA(cudaMemcpyAsync(mine->out[step], mine->device[s], BYTES, cudaMemcpyDeviceToHost,
                                 mine->copies));
        }
    }
    for (int r = 0; r < N; r++)
        CUDA(cudaStreamSynchronize(ranks[r].copies));
    for (int r = 0; r < N; r++)
        for (int step = 0; step < STEPS; step++)
            for (int i = 0; i < COUNT; i++)
                CHECK(ranks[r].out[step][i] == (float)(1000 + 2 * (step + i)),
                      "rank %d, step %d, element %d: %g", r, step, i, (double)ranks[r].out[step][i]);
    for (int r = 0; r < N; r++)
        stop(r);
    for (int r = 0; r < N; r++)
        NCCL(ncclCommDestroy(comms[r]));
    return 0;
}
