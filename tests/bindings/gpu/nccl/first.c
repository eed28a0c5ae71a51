/* SPDX-License-Identifier: Apache-2.0 */
/* tests/bindings/gpu/nccl/first.c: the first example of docs/nccl.md: one process, all its devices, one
 * all-reduce. Prints the sum. */
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdio.h>

int main(void)
{
    enum { MOST = 16, COUNT = 1000 };
    ncclComm_t comm[MOST];
    cudaStream_t stream[MOST];
    float *buffer[MOST], host[COUNT];
    int n = 0;

    cudaGetDeviceCount(&n);
    n = n < MOST ? n : MOST;
    if (ncclCommInitAll(comm, n, NULL) != ncclSuccess) {
        fprintf(stderr, "first: %s\n", ncclGetLastError(NULL));
        return 1;
    }
    for (int r = 0; r < n; r++) {
        for (int i = 0; i < COUNT; i++)
            host[i] = (float)(r + 1);
        cudaSetDevice(r);
        cudaStreamCreate(&stream[r]);
        cudaMalloc((void **)&buffer[r], sizeof host);
        cudaMemcpy(buffer[r], host, sizeof host, cudaMemcpyHostToDevice);
    }

    ncclGroupStart();
    for (int r = 0; r < n; r++)
        ncclAllReduce(buffer[r], buffer[r], COUNT, ncclFloat, ncclSum, comm[r], stream[r]);
    if (ncclGroupEnd() != ncclSuccess) {
        fprintf(stderr, "first: %s\n", ncclGetLastError(comm[0]));
        return 1;
    }

    for (int r = 0; r < n; r++) {
        cudaSetDevice(r);
        cudaStreamSynchronize(stream[r]);
        cudaMemcpy(host, buffer[r], sizeof host, cudaMemcpyDeviceToHost);
        printf("rank %d of %d has %g\n", r, n, (double)host[COUNT - 1]);
        cudaFree(buffer[r]);
        ncclCommDestroy(comm[r]);
    }
    return 0;
}
