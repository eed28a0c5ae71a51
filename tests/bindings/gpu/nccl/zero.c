/* SPDX-License-Identifier: Apache-2.0 */
/* tests/bindings/gpu/nccl/zero.c: steps of a sharded optimizer (ZeRO), on a grid of processes with two in a
 * row. The ranks of a column hold the same parameters: they add up their gradients by reduce-scatter, each
 * updates its shard, and an all-gather gives all shards to all. A row adds up its loss. */
#include "tests/bindings/gpu/nccl/launched.h"

enum { ACROSS = 2, SHARD = 500, STEPS = 3 };

/* Of element i on process p in a step: small integers, so that sums are exact. */
static float gradient(int p, int step, int i)
{
    return (float)((p + 1) * (step + 1) + i % 7);
}

int main(int argc, char **argv)
{
    int p, processes, devices;
    ncclComm_t all, row, column;
    cudaStream_t stream;
    CHECK(argc == 3, "usage: zero steps FILE");
    launched(argv[2], &p, &processes);
    const int down = processes / ACROSS, count = down * SHARD, me = p / ACROSS;
    float *weight = calloc((size_t)count, sizeof *weight), *host = malloc((size_t)count * sizeof *host);
    CHECK(weight && host && processes % ACROSS == 0, "%d processes", processes);
    CUDA(cudaGetDeviceCount(&devices));
    CUDA(cudaSetDevice(p % devices));
    CUDA(cudaStreamCreate(&stream));
    float *w = floats((size_t)count, 0, 0), *g = floats((size_t)count, 0, 0), *shard = floats(SHARD, 0, 0),
          *loss = floats(1, 0, 0);

    NCCL(ncclCommInitRank(&all, processes, new_id(p == 0), p));
    NCCL(ncclCommSplit(all, p / ACROSS, p, &row, NULL));
    NCCL(ncclCommSplit(all, p % ACROSS, p, &column, NULL));
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < count; i++)
            host[i] = gradient(p, step, i);
        CUDA(cudaMemcpyAsync(g, host, (size_t)count * sizeof *host, cudaMemcpyHostToDevice, stream));
        NCCL(ncclReduceScatter(g, shard, SHARD, ncclFloat, ncclSum, column, stream));
        CUDA(cudaMemcpyAsync(host, shard, SHARD * sizeof *host, cudaMemcpyDeviceToHost, stream));
        CUDA(cudaMemcpyAsync(host + SHARD, w + me * SHARD, SHARD * sizeof *host, cudaMemcpyDeviceToHost,
                             stream));
        CUDA(cudaStreamSynchronize(stream));
        for (int i = 0; i < SHARD; i++)
            host[SHARD + i] -= host[i] / 2;
        CUDA(cudaMemcpyAsync(w + me * SHARD, host + SHARD, SHARD * sizeof *host, cudaMemcpyHostToDevice,
                             stream));
        NCCL(ncclAllGather(w + me * SHARD, w, SHARD, ncclFloat, column, stream)); /* in place */
        CUDA(cudaStreamSynchronize(stream));
        for (int i = 0; i < count; i++)
            for (int q = p % ACROSS; q < processes; q += ACROSS)
                weight[i] -= gradient(q, step, i) / 2;
    }
    CUDA(cudaMemcpy(host, w, (size_t)count * sizeof *host, cudaMemcpyDeviceToHost));
    for (int i = 0; i < count; i++)
        CHECK(host[i] == weight[i], "weight %d is %g and should be %g", i, (double)host[i],
              (double)weight[i]);

    const float mine = (float)p;
    CUDA(cudaMemcpyAsync(loss, &mine, sizeof mine, cudaMemcpyHostToDevice, stream));
    NCCL(ncclAllReduce(loss, loss, 1, ncclFloat, ncclAvg, row, stream));
    CUDA(cudaStreamSynchronize(stream));
    expect("loss", loss, 1, (float)(p / ACROSS * ACROSS) + 0.5f, 0);
    NCCL(ncclCommDestroy(column));
    NCCL(ncclCommDestroy(row));
    NCCL(ncclCommDestroy(all));
    free(weight);
    free(host);
    return 0;
}
