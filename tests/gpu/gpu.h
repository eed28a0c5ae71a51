/* SPDX-License-Identifier: Apache-2.0 */
/* tests/gpu/gpu.h: what tests of device code begin with. */
#ifndef TESTS_GPU_GPU_H
#define TESTS_GPU_GPU_H

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <time.h>

#include "base/device/device.h"

#define assert_cuda(call) assert_string_equal(cudaGetErrorName(call), "cudaSuccess")

/* cudaMemcpy of pageable memory and cudaMemset may return before the device has the bytes, and the streams
 * of tests do not wait for the legacy one, which both use: so tests do. Not cudaDeviceSynchronize: a
 * kernel may wait for one that is launched later. */
static inline cudaError_t gpu_filled(cudaError_t rc)
{
    return rc == cudaSuccess ? cudaStreamSynchronize(cudaStreamLegacy) : rc;
}
#define cudaMemcpy(...) gpu_filled(cudaMemcpy(__VA_ARGS__))
#define cudaMemset(...) gpu_filled(cudaMemset(__VA_ARGS__))

/* Whether there is a device, emulated or not; says why not, for a test that then exits with 77. The first
 * thing that a test does: streams then have queues of their own. */
static inline int gpu_here(void)
{
    base_device_prepare_process();
    if (base_device_count(BASE_CUDA) > 0)
        return 1;
    printf("skipped: %s\n", base_device_why_not(BASE_CUDA));
    return 0;
}

/* Calls of the host that gave work to streams so far, of which a graph's launch is one; NULL on a GPU. */
extern unsigned long long emulated_given(void) __attribute__((weak));
/* Events that have not been destroyed; NULL on a GPU. */
extern unsigned long long emulated_events(void) __attribute__((weak));

/* The first kernel that was launched before it was loaded (gyre_load), or NULL; NULL itself on a GPU. */
extern const char *emulated_unloaded(void) __attribute__((weak));

/* Whether the device is the emulator's. */
static inline int gpu_is_emulated(void)
{
    char name[64] = "";
    base_device_name((base_device_t){BASE_CUDA, 0}, name, sizeof(name));
    return name[0] == 'e';
}

/* Work of the program that does not end, for cudaLaunchHostFunc: until *let_go, an int, is no longer 0. */
static inline void gpu_hold(void *let_go)
{
    const struct timespec pause = {.tv_nsec = 1000 * 1000};
    while (!__atomic_load_n((int *)let_go, __ATOMIC_ACQUIRE))
        nanosleep(&pause, NULL);
}

#endif
