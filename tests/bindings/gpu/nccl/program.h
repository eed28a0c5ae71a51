/* SPDX-License-Identifier: Apache-2.0 */
/* tests/bindings/gpu/nccl/program.h: what the programs against nccl.h share. They use NCCL and CUDA alone, as
 * programs that know nothing of Gyre. */
#ifndef TESTS_NCCL_PROGRAM_H
#define TESTS_NCCL_PROGRAM_H

#include <nccl.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CHECK(condition, ...)                                                     \
    do {                                                                          \
        if (!(condition)) {                                                       \
            (void)fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition); \
            (void)fprintf(stderr, __VA_ARGS__);                                   \
            (void)fputc('\n', stderr);                                            \
            exit(1);                                                              \
        }                                                                         \
    } while (0)
#define CUDA(call)                                                               \
    do {                                                                         \
        const cudaError_t cuda_ = (call);                                        \
        CHECK(cuda_ == cudaSuccess, "%s: %s", #call, cudaGetErrorString(cuda_)); \
    } while (0)
#define NCCL(call) GIVES(ncclSuccess, call)
#define GIVES(wanted, call)                                                                           \
    do {                                                                                              \
        const ncclResult_t nccl_ = (call);                                                            \
        CHECK(nccl_ == (wanted), "%s gave %d (%s: %s)", #call, (int)nccl_, ncclGetErrorString(nccl_), \
              ncclGetLastError(NULL));                                                                \
    } while (0)
/* The call gives that result, with that in its text. */
#define REFUSED(wanted, text, call)                                                             \
    do {                                                                                        \
        GIVES(wanted, call);                                                                    \
        CHECK(strstr(ncclGetLastError(NULL), text), "%s: '%s'", #call, ncclGetLastError(NULL)); \
    } while (0)

/* A buffer of floats on the current device, of the values first, first + step, ... */
static inline float *floats(size_t count, float first, float step)
{
    float *device, *host = malloc(count * sizeof *host);
    CHECK(host, "no memory");
    for (size_t i = 0; i < count; i++)
        host[i] = first + step * (float)i;
    CUDA(cudaMalloc((void **)&device, count * sizeof *host));
    CUDA(cudaMemcpy(device, host, count * sizeof *host, cudaMemcpyHostToDevice));
    free(host);
    return device;
}

/* device: [count] has the values first, first + step, ... */
static inline void expect(const char *what, const float *device, size_t count, float first, float step)
{
    float *host = malloc(count * sizeof *host);
    CHECK(host, "no memory");
    CUDA(cudaMemcpy(host, device, count * sizeof *host, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < count; i++)
        CHECK(host[i] == first + step * (float)i, "%s: element %zu is %g and should be %g", what, i,
              (double)host[i], (double)(first + step * (float)i));
    free(host);
}

#endif
