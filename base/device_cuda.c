/* base/device_cuda.c: device memory and streams with the CUDA runtime, linked statically.
 *
 * The runtime opens the driver (libcuda.so.1) when it is first called, which takes a good part of a second on a
 * machine with GPUs. So nothing here calls it before somebody asks for a device, and base_cuda_of(), which sees
 * every user buffer, answers "host" without it until the driver is in the process. Every call leaves the calling
 * thread's current device as it was: that belongs to the application. */
#include "base/device_cuda.h"

#ifdef GYRE_CUDA

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"

struct base_cuda_stream {
    int index;
    cudaStream_t stream;
};

static pthread_once_t counted = PTHREAD_ONCE_INIT;
static int count;
static char why_not[256];

static void count_devices(void)
{
    int found = 0;
    cudaError_t rc = cudaGetDeviceCount(&found);
    if (rc == cudaSuccess && found > 0) {
        count = found;
        return;
    }
    cudaGetLastError(); /* the runtime keeps the error; it is not the application's */
    if (rc == cudaErrorInsufficientDriver || rc == cudaErrorSystemDriverMismatch) {
        int driver = 0;
        if (cudaDriverGetVersion(&driver) != cudaSuccess)
            driver = 0;
        if (driver == 0)
            snprintf(why_not, sizeof(why_not),
                     "no NVIDIA driver (libcuda.so.1) on this machine: install one to use its GPUs");
        else
            snprintf(why_not, sizeof(why_not),
                     "the NVIDIA driver supports CUDA %d.%d but this build needs %d.%d: update the driver",
                     driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    } else if (rc == cudaErrorNoDevice || rc == cudaSuccess) {
        snprintf(why_not, sizeof(why_not),
                 "the NVIDIA driver shows no GPU to this process (CUDA_VISIBLE_DEVICES?)");
    } else {
        snprintf(why_not, sizeof(why_not), "CUDA cannot start: %s", cudaGetErrorString(rc));
    }
}

int base_cuda_count(void)
{
    pthread_once(&counted, count_devices);
    return count;
}

const char *base_cuda_why_not(void)
{
    pthread_once(&counted, count_devices);
    return why_not;
}

/* CUDA memory exists only where the driver is loaded, by us or by the application. Once seen it stays. */
static int driver_is_loaded(void)
{
    static _Atomic int state; /* 0 not seen yet, 1 loaded, -1 no GPU device file: never will be */
    int known = atomic_load_explicit(&state, memory_order_relaxed);
    if (known != 0)
        return known > 0;
    if (access("/dev/nvidiactl", F_OK) != 0 && access("/dev/nvhost-ctrl", F_OK) != 0 &&
        access("/dev/nvmap", F_OK) != 0 && access("/dev/dxg", F_OK) != 0) {
        atomic_store_explicit(&state, -1, memory_order_relaxed);
        return 0;
    }
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (driver == NULL)
        return 0;
    dlclose(driver); /* only looked: whoever loaded it keeps it */
    atomic_store_explicit(&state, 1, memory_order_relaxed);
    return 1;
}

int base_cuda_of(const void *ptr, int *index)
{
    struct cudaPointerAttributes attributes;
    if (!driver_is_loaded())
        return 0;
    if (cudaPointerGetAttributes(&attributes, ptr) != cudaSuccess) {
        cudaGetLastError();
        return 0;
    }
    if (attributes.type != cudaMemoryTypeDevice && attributes.type != cudaMemoryTypeManaged)
        return 0;
    *index = attributes.device;
    return 1;
}

/* Turns a CUDA error into ours. */
static gyre_status_t failed(cudaError_t rc, const char *what, int index)
{
    cudaGetLastError();
    return gyre_fail(rc == cudaErrorMemoryAllocation ? GYRE_ERR_NO_MEMORY : GYRE_ERR_SYSTEM,
                     "%s on CUDA device %d: %s", what, index, cudaGetErrorString(rc));
}

/* Makes `index` current; *before is what to restore. */
static gyre_status_t enter(int index, int *before)
{
    cudaError_t rc = cudaGetDevice(before);
    if (rc == cudaSuccess && *before != index)
        rc = cudaSetDevice(index);
    return rc == cudaSuccess ? GYRE_OK : failed(rc, "selecting the device", index);
}

static void leave(int index, int before)
{
    if (before != index)
        cudaSetDevice(before); /* it was current a moment ago */
}

gyre_status_t base_cuda_name(int index, char *name, size_t bytes)
{
    struct cudaDeviceProp properties;
    cudaError_t rc = cudaGetDeviceProperties(&properties, index);
    if (rc != cudaSuccess)
        return failed(rc, "asking for the name", index);
    snprintf(name, bytes, "%s", properties.name);
    return GYRE_OK;
}

gyre_status_t base_cuda_alloc(int index, size_t bytes, void **ptr)
{
    int before;
    void *memory = NULL;
    gyre_status_t status = enter(index, &before);
    if (status != GYRE_OK)
        return status;
    cudaError_t rc = cudaMalloc(&memory, bytes == 0 ? 64 : bytes); /* at least 256-byte aligned */
    if (rc != cudaSuccess) {
        char what[64];
        snprintf(what, sizeof(what), "allocating %zu bytes", bytes);
        status = failed(rc, what, index);
    } else {
        *ptr = memory;
    }
    leave(index, before);
    return status;
}

gyre_status_t base_cuda_free(int index, void *ptr)
{
    cudaError_t rc = cudaFree(ptr); /* CUDA knows which device it is on */
    return rc == cudaSuccess ? GYRE_OK : failed(rc, "freeing memory", index);
}

gyre_status_t base_cuda_copy_now(void *to, const void *from, size_t bytes)
{
    int index = 0, before;
    if (!base_cuda_of(to, &index))
        base_cuda_of(from, &index);
    gyre_status_t status = enter(index, &before);
    if (status != GYRE_OK)
        return status;
    cudaError_t rc = cudaMemcpy(to, from, bytes, cudaMemcpyDefault);
    if (rc == cudaSuccess) /* between two places on devices cudaMemcpy may return early */
        rc = cudaStreamSynchronize(cudaStreamLegacy);
    if (rc != cudaSuccess)
        status = failed(rc, "copying", index);
    leave(index, before);
    return status;
}

gyre_status_t base_cuda_zero_now(void *ptr, size_t bytes)
{
    int index = 0, before;
    base_cuda_of(ptr, &index);
    gyre_status_t status = enter(index, &before);
    if (status != GYRE_OK)
        return status;
    cudaError_t rc = cudaMemset(ptr, 0, bytes);
    if (rc == cudaSuccess)
        rc = cudaStreamSynchronize(cudaStreamLegacy);
    if (rc != cudaSuccess)
        status = failed(rc, "zeroing memory", index);
    leave(index, before);
    return status;
}

gyre_status_t base_cuda_stream_create(int index, base_cuda_stream_t **stream)
{
    int before;
    base_cuda_stream_t *fresh = calloc(1, sizeof(*fresh));
    if (fresh == NULL)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "stream create: no memory left");
    gyre_status_t status = enter(index, &before);
    if (status != GYRE_OK)
        goto free_stream;
    fresh->index = index;
    cudaError_t rc = cudaStreamCreateWithFlags(&fresh->stream, cudaStreamNonBlocking);
    if (rc != cudaSuccess)
        status = failed(rc, "creating a stream", index);
    leave(index, before);
    if (status != GYRE_OK)
        goto free_stream;
    *stream = fresh;
    return GYRE_OK;
free_stream:
    free(fresh);
    return status;
}

gyre_status_t base_cuda_stream_destroy(base_cuda_stream_t *stream)
{
    int index = stream->index;
    cudaError_t rc = cudaStreamDestroy(stream->stream);
    free(stream);
    return rc == cudaSuccess ? GYRE_OK : failed(rc, "destroying a stream", index);
}

gyre_status_t base_cuda_stream_copy(base_cuda_stream_t *stream, void *to, const void *from, size_t bytes)
{
    cudaError_t rc = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream->stream);
    return rc == cudaSuccess ? GYRE_OK : failed(rc, "copying", stream->index);
}

gyre_status_t base_cuda_stream_zero(base_cuda_stream_t *stream, void *ptr, size_t bytes)
{
    /* The runtime knows no host memory here, while the contract of base_stream_zero takes any. */
    int index;
    if (!base_cuda_of(ptr, &index)) {
        gyre_status_t status = base_cuda_stream_wait(stream); /* what was queued before comes before */
        if (status == GYRE_OK)
            memset(ptr, 0, bytes);
        return status;
    }
    cudaError_t rc = cudaMemsetAsync(ptr, 0, bytes, stream->stream);
    return rc == cudaSuccess ? GYRE_OK : failed(rc, "zeroing memory", stream->index);
}

gyre_status_t base_cuda_stream_wait(base_cuda_stream_t *stream)
{
    cudaError_t rc = cudaStreamSynchronize(stream->stream);
    return rc == cudaSuccess ? GYRE_OK : failed(rc, "waiting for a stream", stream->index);
}

#endif
