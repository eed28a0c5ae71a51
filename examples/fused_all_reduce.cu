/* SPDX-License-Identifier: Apache-2.0 */
/* examples/fused_all_reduce.cu: an all-reduce inside a kernel of the program (gyre/device.cuh), fused with
 * what comes after it: y = residual + the sum of x over the ranks. Built with the library where nvcc is.
 * Alone:
 *
 *     nvcc --fmad=false fused_all_reduce.cu $(pkg-config --cflags --libs gyre) -o fused_all_reduce
 *     ucx-run -n 4 build/examples/fused_all_reduce [ELEMENTS]
 *
 * The sum is that of gyre_all_reduce, to the last bit: the program compares them. One shot: every rank reads
 * all vectors, which suits short ones. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gyre/device.cuh>
#include <gyre/gyre.h>

enum { BLOCKS = 4, THREADS = 128, REPEATS = 3, DEPTH = 8 };

/* The canonical tree over the ranks (docs/contract.md), left to right: sums of 2^k ranks that begin at a
 * multiple of 2^k, and at the end what is left over, from the right. */
static __device__ float sum_of_ranks(const gyre_cuda_peers_t &peers, size_t i)
{
    float part[DEPTH];
    int depth = 0;
    for (int rank = 0; rank < peers.n; rank++) {
        part[depth++] = ((const volatile float *)gyre_device_pointer(peers, rank, 0))[i];
        for (int pairs = rank + 1; pairs % 2 == 0; pairs /= 2, depth--)
            part[depth - 2] += part[depth - 1];
    }
    for (; depth > 1; depth--)
        part[depth - 2] += part[depth - 1];
    return part[0];
}

/* Each block does its elements with the blocks of its number on the other ranks. */
static __global__ void fused_all_reduce(gyre_cuda_peers_t peers, const float *residual, float *y,
                                        size_t count)
{
    const int slot = (int)blockIdx.x;
    if (!gyre_device_barrier(peers, slot)) /* everyone's x is there */
        return;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += (size_t)gridDim.x * blockDim.x)
        y[i] = residual[i] + sum_of_ranks(peers, i);
    gyre_device_barrier(peers, slot); /* everyone has read it, so that it may change */
}

static int failed(const char *what, const char *why)
{
    fprintf(stderr, "fused_all_reduce: %s: %s\n", what, why);
    return -1;
}
#define CUDA(call)                                         \
    do {                                                   \
        const cudaError_t rc_ = (call);                    \
        if (rc_ != cudaSuccess)                            \
            return failed(#call, cudaGetErrorString(rc_)); \
    } while (0)
#define GYRE(call)                                   \
    do {                                             \
        if ((call) != GYRE_OK)                       \
            return failed(#call, gyre_last_error()); \
    } while (0)

/* Elements of both signs and many sizes: their sum depends on the order. */
static float element(int rank, int repeat, size_t i)
{
    const uint32_t h = ((uint32_t)i * 2654435761u + (uint32_t)rank * 40503u + (uint32_t)repeat) * 2246822519u;
    const float size = (float)(1u << (h >> 28));
    return ((float)(h >> 8 & 0xffff) / 65536.0f - 0.5f) * size;
}

/* x, residual, y: [count]. 1: some bits differ; -1: failed, and the others may wait for this rank. */
static int run(gyre_comm_t *comm, size_t count)
{
    const int rank = gyre_comm_rank(comm);
    const size_t bytes = count * sizeof(float);
    float *x, *residual, *y, *host = (float *)malloc(bytes), *sum = (float *)malloc(bytes),
                             *back = (float *)malloc(bytes);
    gyre_cuda_registration_t *registration;
    gyre_cuda_peers_t peers;
    cudaStream_t stream;
    int devices, wrong = 0;
    if (!host || !sum || !back)
        return failed("malloc", "no memory");
    CUDA(cudaGetDeviceCount(&devices));
    CUDA(cudaSetDevice(gyre_comm_local_rank(comm) % devices));
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA(cudaMalloc((void **)&x, bytes));
    CUDA(cudaMalloc((void **)&residual, bytes));
    CUDA(cudaMalloc((void **)&y, bytes));
    GYRE(gyre_comm_register_cuda(comm, x, bytes, &registration));
    GYRE(gyre_comm_peers_cuda(comm, registration, &peers));
    void *arguments[] = {&peers, &residual, &y, &count};
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        for (size_t i = 0; i < count; i++)
            host[i] = element(rank, repeat, i);
        CUDA(cudaMemcpyAsync(x, host, bytes, cudaMemcpyHostToDevice, stream));
        CUDA(cudaMemcpyAsync(residual, host, bytes, cudaMemcpyHostToDevice, stream));
        /* fused_all_reduce<<<BLOCKS, THREADS, 0, stream>>>(peers, residual, y, count); with its error */
        CUDA(cudaLaunchKernel(fused_all_reduce, dim3(BLOCKS), dim3(THREADS), arguments, 0, stream));
        CUDA(cudaMemcpyAsync(back, y, bytes, cudaMemcpyDeviceToHost, stream));
        CUDA(cudaStreamSynchronize(stream));
        GYRE(gyre_all_reduce(host, sum, count, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), comm));
        for (size_t i = 0; i < count; i++) {
            const float want = host[i] + sum[i];
            wrong += memcmp(&back[i], &want, sizeof want) != 0;
        }
    }
    GYRE(gyre_comm_deregister_cuda(comm, registration));
    CUDA(cudaFree(x));
    CUDA(cudaFree(residual));
    CUDA(cudaFree(y));
    CUDA(cudaStreamDestroy(stream));
    free(host);
    free(sum);
    free(back);
    printf("rank %d of %d: %d of %zu elements differ from gyre_all_reduce's\n", rank, gyre_comm_size(comm),
           wrong, REPEATS * count);
    return wrong != 0;
}

int main(int argc, char **argv)
{
    gyre_comm_t *comm;
    char *end = NULL;
    const size_t count = argc > 1 ? strtoul(argv[1], &end, 10) : 10007;
    if (argc > 2 || count == 0 || (end && *end)) {
        fprintf(stderr, "usage: ucx-run -n RANKS fused_all_reduce [ELEMENTS]\n");
        return 2;
    }
    if (gyre_init(NULL, &comm) != GYRE_OK)
        return 1; /* Gyre has logged why */
    const int bad = run(comm, count);
    if (bad < 0)
        (void)gyre_comm_abort(comm, "a rank of fused_all_reduce failed");
    return gyre_finalize(comm) != GYRE_OK || bad;
}
