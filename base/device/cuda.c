/* base/device/cuda.c: device memory and streams with the CUDA runtime, linked statically.
 *
 * The runtime opens the driver (libcuda.so.1) when it is first called, which takes a good part of a second on a
 * machine with GPUs. So nothing here calls it before somebody asks for a device, and base_cuda_of(), which sees
 * every user buffer, answers "host" without it until the driver is in the process. Every call leaves the calling
 * thread's current device as it was: that belongs to the application. */
#include "base/device/cuda.h"

#ifdef GYRE_CUDA

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"

struct base_cuda_stream {
    int index;
    int borrowed; /* the caller's: not destroyed */
    cudaStream_t stream;
};

struct base_cuda_event {
    int index;
    int timed, recorded;
    cudaEvent_t event;
};

/* Whether there may be CUDA memory: 0 not seen yet, 1 there may, -1 no GPU device file: never will be. */
static _Atomic int at_work;

void base_cuda_seen(void)
{
    atomic_store_explicit(&at_work, 1, memory_order_relaxed);
}

static pthread_once_t counted = PTHREAD_ONCE_INIT;
static int count;
static char why_not[256];

static void count_devices(void)
{
    int found = 0;
    cudaError_t rc = cudaGetDeviceCount(&found);
    if (rc == cudaSuccess && found > 0) {
        count = found;
        base_cuda_seen();
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
    int known = atomic_load_explicit(&at_work, memory_order_relaxed);
    if (known != 0)
        return known > 0;
    if (access("/dev/nvidiactl", F_OK) != 0 && access("/dev/nvhost-ctrl", F_OK) != 0 &&
        access("/dev/nvmap", F_OK) != 0 && access("/dev/dxg", F_OK) != 0) {
        int unknown = 0;
        atomic_compare_exchange_strong(&at_work, &unknown, -1);
        return 0;
    }
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (driver == NULL)
        return 0;
    dlclose(driver); /* only looked: the part that loaded it keeps it */
    base_cuda_seen();
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

/* The text for a CUDA error of a call, with its arguments. */
static gyre_status_t in_words(cudaError_t rc, int index, const char *format, va_list list, char *text,
                              size_t bytes)
{
    char call[160];
    vsnprintf(call, sizeof(call), format, list);
    cudaGetLastError(); /* the runtime keeps the error; it is not the application's */
    snprintf(text, bytes, "CUDA device %d: %s: %s (%s)", index, call, cudaGetErrorString(rc),
             cudaGetErrorName(rc));
    return rc == cudaErrorMemoryAllocation ? GYRE_ERR_NO_MEMORY
           : rc == cudaErrorInvalidValue   ? GYRE_ERR_INVALID
           : rc == cudaErrorNotSupported   ? GYRE_ERR_UNSUPPORTED
                                           : GYRE_ERR_SYSTEM;
}

static gyre_status_t __attribute__((format(printf, 3, 4)))
failed(cudaError_t rc, int index, const char *format, ...)
{
    char text[320];
    va_list list;
    va_start(list, format);
    gyre_status_t status = in_words(rc, index, format, list, text, sizeof(text));
    va_end(list);
    return gyre_fail(status, "%s", text);
}

/* Of what is tried, and done otherwise where it fails: recorded, not logged. */
static gyre_status_t __attribute__((format(printf, 3, 4)))
cannot(cudaError_t rc, int index, const char *format, ...)
{
    char text[320];
    va_list list;
    va_start(list, format);
    gyre_status_t status = in_words(rc, index, format, list, text, sizeof(text));
    va_end(list);
    return gyre_fail_quiet(status, "%s", text);
}

/* ---- the current device ---------------------------------------------------------------------------------- */

enum { DEVICES = 64 }; /* whose contexts are kept at hand; others go by cudaSetDevice */

static struct {
    pthread_once_t found;
    CUresult (*get)(CUdevice *, int);
    CUresult (*retain)(CUcontext *, CUdevice);
    CUresult (*push)(CUcontext);
    CUresult (*pop)(CUcontext *);
    int usable;
    _Atomic(CUcontext) of[DEVICES]; /* primary ones, retained until the process ends */
} contexts = {.found = PTHREAD_ONCE_INIT};

static void find_contexts(void)
{
    static const char *const names[] = {"cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuCtxPushCurrent",
                                        "cuCtxPopCurrent"};
    void *to[] = {&contexts.get, &contexts.retain, &contexts.push, &contexts.pop}, *function = NULL;
    for (int i = 0; i < 4; i++) {
        if (base_cuda_driver(names[i], &function) != GYRE_OK)
            return;
        memcpy(to[i], &function, sizeof(function)); /* ISO C converts no pointer to a function's */
    }
    contexts.usable = 1;
}

/* The device's primary context, which is the one that the runtime uses; NULL: cudaSetDevice must do. */
static CUcontext context_of(int index)
{
    CUdevice device;
    CUcontext fresh = NULL, none = NULL;
    pthread_once(&contexts.found, find_contexts);
    if (!contexts.usable || index < 0 || index >= DEVICES)
        return NULL;
    CUcontext known = atomic_load(&contexts.of[index]);
    if (known != NULL)
        return known;
    if (contexts.get(&device, index) != CUDA_SUCCESS || contexts.retain(&fresh, device) != CUDA_SUCCESS)
        return NULL;
    /* two threads at once retain it twice: it is kept forever all the same */
    return atomic_compare_exchange_strong(&contexts.of[index], &none, fresh) ? fresh : none;
}

/* Pushed and popped, not set and set back: cudaSetDevice opens a context on the device that it is given, since CUDA 12 at once,
 * and the current device of a thread that has done nothing yet is device 0. Of a job with a GPU per rank every rank would then
 * take some hundred MiB of device 0. */
gyre_status_t base_cuda_enter(int index, int *before)
{
    cudaError_t rc = cudaGetDevice(before);
    if (rc != cudaSuccess || *before == index)
        return rc == cudaSuccess ? GYRE_OK : failed(rc, index, "cudaGetDevice");
    CUcontext context = context_of(index);
    if (context != NULL && contexts.push(context) == CUDA_SUCCESS) {
        *before = BASE_DEVICE_PUSHED;
        return GYRE_OK;
    }
    rc = cudaSetDevice(index);
    return rc == cudaSuccess ? GYRE_OK : failed(rc, index, "cudaSetDevice(%d)", index);
}

void base_cuda_leave(int index, int before)
{
    CUcontext ours;
    if (before == BASE_DEVICE_PUSHED)
        (void)contexts.pop(&ours); /* on top: what was pushed above it has been popped */
    else if (before != index)
        cudaSetDevice(before); /* it was current a moment ago */
}

gyre_status_t base_cuda_name(int index, char *name, size_t bytes)
{
    struct cudaDeviceProp properties;
    cudaError_t rc = cudaGetDeviceProperties(&properties, index);
    if (rc != cudaSuccess)
        return failed(rc, index, "cudaGetDeviceProperties");
    snprintf(name, bytes, "%s", properties.name);
    return GYRE_OK;
}

gyre_status_t base_cuda_identity(int index, unsigned char uuid[16])
{
    struct cudaDeviceProp properties;
    cudaError_t rc = cudaGetDeviceProperties(&properties, index);
    if (rc != cudaSuccess)
        return cannot(rc, index, "cudaGetDeviceProperties");
    memcpy(uuid, properties.uuid.bytes, 16);
    return GYRE_OK;
}

gyre_status_t base_cuda_use(int index)
{
    cudaError_t rc = cudaSetDevice(index);
    return rc == cudaSuccess ? GYRE_OK : failed(rc, index, "cudaSetDevice(%d)", index);
}

gyre_status_t base_cuda_driver(const char *name, void **function)
{
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    void *entry = NULL;
#if CUDART_VERSION >= 12050
    cudaError_t rc = cudaGetDriverEntryPointByVersion(name, &entry, 12000, cudaEnableDefault, &found);
#else
    cudaError_t rc = cudaGetDriverEntryPoint(name, &entry, cudaEnableDefault, &found);
#endif
    if (rc != cudaSuccess || found != cudaDriverEntryPointSuccess || entry == NULL) {
        cudaGetLastError();
        return gyre_fail_quiet(GYRE_ERR_UNSUPPORTED, "the CUDA driver has no %s: %s", name,
                               rc == cudaSuccess ? "it is older, or for another device"
                                                 : cudaGetErrorString(rc));
    }
    *function = entry;
    return GYRE_OK;
}

/* ---- memory ---------------------------------------------------------------------------------------------- */

gyre_status_t base_cuda_alloc(int index, size_t bytes, void **ptr)
{
    int before;
    void *memory = NULL;
    gyre_status_t status = base_cuda_enter(index, &before);
    if (status != GYRE_OK)
        return status;
    cudaError_t rc = cudaMalloc(&memory, bytes == 0 ? 64 : bytes); /* at least 256-byte aligned */
    if (rc != cudaSuccess)
        status = failed(rc, index, "cudaMalloc(%zu bytes)", bytes);
    else
        *ptr = memory;
    base_cuda_leave(index, before);
    return status;
}

gyre_status_t base_cuda_free(int index, void *ptr)
{
    cudaError_t rc = cudaFree(ptr); /* CUDA knows which device it is on */
    return rc == cudaSuccess ? GYRE_OK : failed(rc, index, "cudaFree(%p)", ptr);
}

gyre_status_t base_cuda_memory(int index, size_t *free_bytes, size_t *total)
{
    int before;
    size_t left = 0, all = 0;
    gyre_status_t status = base_cuda_enter(index, &before);
    if (status != GYRE_OK)
        return status;
    cudaError_t rc = cudaMemGetInfo(&left, &all);
    if (rc != cudaSuccess)
        status = failed(rc, index, "cudaMemGetInfo");
    base_cuda_leave(index, before);
    if (status == GYRE_OK && free_bytes != NULL)
        *free_bytes = left;
    if (status == GYRE_OK && total != NULL)
        *total = all;
    return status;
}

gyre_status_t base_cuda_pinned_alloc(int index, size_t bytes, void **ptr)
{
    int before;
    void *memory = NULL;
    gyre_status_t status = base_cuda_enter(index, &before);
    if (status != GYRE_OK)
        return status;
    cudaError_t rc =
        cudaHostAlloc(&memory, bytes == 0 ? 64 : bytes, cudaHostAllocPortable | cudaHostAllocMapped);
    if (rc != cudaSuccess)
        status = failed(rc, index, "cudaHostAlloc(%zu bytes)", bytes);
    else
        *ptr = memory;
    base_cuda_leave(index, before);
    return status;
}

gyre_status_t base_cuda_pinned_free(int index, void *ptr)
{
    cudaError_t rc = cudaFreeHost(ptr);
    return rc == cudaSuccess ? GYRE_OK : failed(rc, index, "cudaFreeHost(%p)", ptr);
}

gyre_status_t base_cuda_pin(int index, void *ptr, size_t bytes)
{
    int before;
    gyre_status_t status = base_cuda_enter(index, &before);
    if (status != GYRE_OK)
        return status;
    cudaError_t rc = cudaHostRegister(ptr, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
    if (rc == cudaErrorHostMemoryAlreadyRegistered) {
        cudaGetLastError();
        status = gyre_fail(GYRE_ERR_INVALID,
                           "CUDA device %d: cudaHostRegister(%p, %zu bytes): the memory is pinned already",
                           index, ptr, bytes);
    } else if (rc != cudaSuccess) {
        status = failed(rc, index, "cudaHostRegister(%p, %zu bytes)", ptr, bytes);
    }
    base_cuda_leave(index, before);
    return status;
}

gyre_status_t base_cuda_unpin(int index, void *ptr)
{
    cudaError_t rc = cudaHostUnregister(ptr);
    return rc == cudaSuccess ? GYRE_OK : failed(rc, index, "cudaHostUnregister(%p)", ptr);
}

gyre_status_t base_cuda_copy_now(void *to, const void *from, size_t bytes)
{
    int index = 0, before;
    if (!base_cuda_of(to, &index))
        base_cuda_of(from, &index);
    gyre_status_t status = base_cuda_enter(index, &before);
    if (status != GYRE_OK)
        return status;
    cudaError_t rc = cudaMemcpy(to, from, bytes, cudaMemcpyDefault);
    if (rc == cudaSuccess) /* between two places on devices cudaMemcpy may return early */
        rc = cudaStreamSynchronize(cudaStreamLegacy);
    if (rc != cudaSuccess)
        status = failed(rc, index, "cudaMemcpy(to %p, from %p, %zu bytes)", to, from, bytes);
    base_cuda_leave(index, before);
    return status;
}

gyre_status_t base_cuda_zero_now(void *ptr, size_t bytes)
{
    int index = 0, before;
    base_cuda_of(ptr, &index);
    gyre_status_t status = base_cuda_enter(index, &before);
    if (status != GYRE_OK)
        return status;
    cudaError_t rc = cudaMemset(ptr, 0, bytes);
    if (rc == cudaSuccess)
        rc = cudaStreamSynchronize(cudaStreamLegacy);
    if (rc != cudaSuccess)
        status = failed(rc, index, "cudaMemset(%p, 0, %zu bytes)", ptr, bytes);
    base_cuda_leave(index, before);
    return status;
}

/* ---- streams --------------------------------------------------------------------------------------------- */

gyre_status_t base_cuda_stream_create(int index, int urgent, base_cuda_stream_t **stream)
{
    int before, least = 0, greatest = 0;
    base_cuda_stream_t *fresh = calloc(1, sizeof(*fresh));
    if (fresh == NULL)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "stream create: no memory left");
    gyre_status_t status = base_cuda_enter(index, &before);
    if (status != GYRE_OK)
        goto free_stream;
    fresh->index = index;
    cudaError_t rc = cudaDeviceGetStreamPriorityRange(&least, &greatest);
    if (rc == cudaSuccess)
        rc = cudaStreamCreateWithPriority(&fresh->stream, cudaStreamNonBlocking, urgent ? greatest : least);
    if (rc != cudaSuccess)
        status = failed(rc, index, "cudaStreamCreateWithPriority(%d)", urgent ? greatest : least);
    base_cuda_leave(index, before);
    if (status != GYRE_OK)
        goto free_stream;
    *stream = fresh;
    return GYRE_OK;
free_stream:
    free(fresh);
    return status;
}

gyre_status_t base_cuda_stream_wrap(int index, void *native, base_cuda_stream_t **stream)
{
    base_cuda_stream_t *fresh = calloc(1, sizeof(*fresh));
    if (fresh == NULL)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "stream wrap: no memory left");
    fresh->index = index;
    fresh->borrowed =
        1; /* NULL is the default stream of whatever device is current: calls make `index` current */
    fresh->stream = native;
    *stream = fresh;
    return GYRE_OK;
}

gyre_status_t base_cuda_stream_destroy(base_cuda_stream_t *stream)
{
    int index = stream->index;
    cudaError_t rc = stream->borrowed ? cudaSuccess : cudaStreamDestroy(stream->stream);
    free(stream);
    return rc == cudaSuccess ? GYRE_OK : failed(rc, index, "cudaStreamDestroy");
}

void *base_cuda_stream_native(const base_cuda_stream_t *stream)
{
    return stream->stream;
}

gyre_status_t base_cuda_stream_copy(base_cuda_stream_t *stream, void *to, const void *from, size_t bytes)
{
    int before;
    gyre_status_t status = base_cuda_enter(stream->index, &before);
    if (status != GYRE_OK)
        return status;
    cudaError_t rc = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream->stream);
    if (rc != cudaSuccess)
        status = failed(rc, stream->index, "cudaMemcpyAsync(to %p, from %p, %zu bytes)", to, from, bytes);
    base_cuda_leave(stream->index, before);
    return status;
}

gyre_status_t base_cuda_stream_zero(base_cuda_stream_t *stream, void *ptr, size_t bytes)
{
    /* The runtime knows no host memory here, while the contract of base_stream_zero takes any. */
    int index, before;
    gyre_status_t status;
    if (!base_cuda_of(ptr, &index)) {
        status = base_cuda_stream_wait(stream); /* what was queued before comes before */
        if (status == GYRE_OK)
            memset(ptr, 0, bytes);
        return status;
    }
    status = base_cuda_enter(stream->index, &before);
    if (status != GYRE_OK)
        return status;
    cudaError_t rc = cudaMemsetAsync(ptr, 0, bytes, stream->stream);
    if (rc != cudaSuccess)
        status = failed(rc, stream->index, "cudaMemsetAsync(%p, 0, %zu bytes)", ptr, bytes);
    base_cuda_leave(stream->index, before);
    return status;
}

gyre_status_t base_cuda_stream_wait(base_cuda_stream_t *stream)
{
    int before;
    gyre_status_t status = base_cuda_enter(stream->index, &before);
    if (status != GYRE_OK)
        return status;
    cudaError_t rc = cudaStreamSynchronize(stream->stream);
    if (rc != cudaSuccess)
        status = failed(rc, stream->index, "cudaStreamSynchronize");
    base_cuda_leave(stream->index, before);
    return status;
}

gyre_status_t base_cuda_stream_call(base_cuda_stream_t *stream, void (*fn)(void *user), void *user)
{
    int before;
    gyre_status_t status = base_cuda_enter(stream->index, &before);
    if (status != GYRE_OK)
        return status;
    cudaError_t rc = cudaLaunchHostFunc(stream->stream, fn, user);
    if (rc != cudaSuccess)
        status = failed(rc, stream->index, "cudaLaunchHostFunc");
    base_cuda_leave(stream->index, before);
    return status;
}

/* ---- events ---------------------------------------------------------------------------------------------- */

gyre_status_t base_cuda_event_create(int index, int timed, base_cuda_event_t **event)
{
    int before;
    base_cuda_event_t *fresh = calloc(1, sizeof(*fresh));
    if (fresh == NULL)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "event create: no memory left");
    gyre_status_t status = base_cuda_enter(index, &before);
    if (status != GYRE_OK)
        goto free_event;
    fresh->index = index;
    fresh->timed = timed;
    cudaError_t rc =
        cudaEventCreateWithFlags(&fresh->event, timed ? cudaEventDefault : cudaEventDisableTiming);
    if (rc != cudaSuccess)
        status = failed(rc, index, "cudaEventCreateWithFlags");
    base_cuda_leave(index, before);
    if (status != GYRE_OK)
        goto free_event;
    *event = fresh;
    return GYRE_OK;
free_event:
    free(fresh);
    return status;
}

gyre_status_t base_cuda_event_destroy(base_cuda_event_t *event)
{
    int index = event->index;
    cudaError_t rc = cudaEventDestroy(event->event);
    free(event);
    return rc == cudaSuccess ? GYRE_OK : failed(rc, index, "cudaEventDestroy");
}

gyre_status_t base_cuda_event_record(base_cuda_event_t *event, base_cuda_stream_t *stream)
{
    int before;
    gyre_status_t status = base_cuda_enter(stream->index, &before);
    if (status != GYRE_OK)
        return status;
    cudaError_t rc = cudaEventRecord(event->event, stream->stream);
    if (rc != cudaSuccess)
        status = failed(rc, stream->index, "cudaEventRecord(an event of device %d)", event->index);
    else
        event->recorded = 1;
    base_cuda_leave(stream->index, before);
    return status;
}

gyre_status_t base_cuda_stream_wait_event(base_cuda_stream_t *stream, base_cuda_event_t *event)
{
    int before;
    gyre_status_t status = base_cuda_enter(stream->index, &before);
    if (status != GYRE_OK)
        return status;
    cudaError_t rc = cudaStreamWaitEvent(stream->stream, event->event, 0);
    if (rc != cudaSuccess)
        status = failed(rc, stream->index, "cudaStreamWaitEvent");
    base_cuda_leave(stream->index, before);
    return status;
}

gyre_status_t base_cuda_event_done(base_cuda_event_t *event, int *done)
{
    cudaError_t rc = cudaEventQuery(event->event);
    if (rc != cudaSuccess && rc != cudaErrorNotReady)
        return failed(rc, event->index, "cudaEventQuery");
    *done = rc == cudaSuccess;
    return GYRE_OK;
}

gyre_status_t base_cuda_event_wait(base_cuda_event_t *event)
{
    cudaError_t rc = cudaEventSynchronize(event->event);
    return rc == cudaSuccess ? GYRE_OK : failed(rc, event->index, "cudaEventSynchronize");
}

gyre_status_t base_cuda_event_elapsed_ms(base_cuda_event_t *from, base_cuda_event_t *to, double *ms)
{
    float value = 0;
    if (!from->timed || !to->timed || !from->recorded || !to->recorded)
        return gyre_fail(GYRE_ERR_INVALID, "time between events of CUDA device %d: an event %s", from->index,
                         !from->timed || !to->timed ? "was created without time" : "was never recorded");
    cudaError_t rc = cudaEventElapsedTime(&value, from->event, to->event);
    if (rc == cudaErrorNotReady)
        return gyre_fail(GYRE_ERR_INVALID,
                         "time between events of CUDA device %d: the device has not reached them yet",
                         from->index);
    if (rc != cudaSuccess)
        return failed(rc, from->index, "cudaEventElapsedTime");
    *ms = value;
    return GYRE_OK;
}

/* ---- memory of other processes and devices ---------------------------------------------------------------- */

_Static_assert(BASE_CUDA_IPC_BYTES == sizeof(cudaIpcMemHandle_t), "a handle's size");

gyre_status_t base_cuda_range(const void *ptr, void **begin, size_t *bytes)
{
    void *function = NULL;
    CUdeviceptr base = 0;
    size_t size = 0;
    gyre_status_t status = base_cuda_driver("cuMemGetAddressRange", &function);
    if (status != GYRE_OK)
        return gyre_fail_quiet(
            status, "the allocation of %p is unknown: the CUDA driver has no cuMemGetAddressRange", ptr);
    CUresult (*address_range)(CUdeviceptr *, size_t *, CUdeviceptr);
    memcpy(&address_range, &function, sizeof(function)); /* ISO C converts no pointer to a function's */
    CUresult rc = address_range(&base, &size, (CUdeviceptr)ptr);
    if (rc != CUDA_SUCCESS)
        return gyre_fail_quiet(GYRE_ERR_INVALID,
                               "cuMemGetAddressRange(%p): error %d: it is not memory of CUDA", ptr, (int)rc);
    *begin = (void *)base;
    *bytes = size;
    return GYRE_OK;
}

gyre_status_t base_cuda_ipc_export(const void *begin, unsigned char handle[BASE_CUDA_IPC_BYTES])
{
    cudaIpcMemHandle_t native;
    int index = 0;
    base_cuda_of(begin, &index);
    cudaError_t rc = cudaIpcGetMemHandle(&native, (void *)begin);
    if (rc != cudaSuccess)
        return cannot(rc, index, "cudaIpcGetMemHandle(%p)", begin);
    memcpy(handle, &native, BASE_CUDA_IPC_BYTES);
    return GYRE_OK;
}

gyre_status_t base_cuda_ipc_open(int index, const unsigned char handle[BASE_CUDA_IPC_BYTES], void **begin)
{
    cudaIpcMemHandle_t native;
    int before;
    void *memory = NULL;
    memcpy(&native, handle, BASE_CUDA_IPC_BYTES);
    gyre_status_t status = base_cuda_enter(index, &before);
    if (status != GYRE_OK)
        return status;
    cudaError_t rc = cudaIpcOpenMemHandle(&memory, native, cudaIpcMemLazyEnablePeerAccess);
    if (rc != cudaSuccess)
        status = cannot(rc, index, "cudaIpcOpenMemHandle");
    else
        *begin = memory;
    base_cuda_leave(index, before);
    return status;
}

gyre_status_t base_cuda_ipc_close(int index, void *begin)
{
    int before;
    gyre_status_t status = base_cuda_enter(index, &before);
    if (status != GYRE_OK)
        return status;
    cudaError_t rc = cudaIpcCloseMemHandle(begin);
    if (rc != cudaSuccess)
        status = cannot(rc, index, "cudaIpcCloseMemHandle(%p)", begin);
    base_cuda_leave(index, before);
    return status;
}

gyre_status_t base_cuda_reach(int index, int other)
{
    int before, can = 0;
    if (index == other)
        return GYRE_OK;
    gyre_status_t status = base_cuda_enter(index, &before);
    if (status != GYRE_OK)
        return status;
    cudaError_t rc = cudaDeviceCanAccessPeer(&can, index, other);
    if (rc == cudaSuccess && !can)
        status = gyre_fail_quiet(GYRE_ERR_UNSUPPORTED, "CUDA device %d cannot reach the memory of device %d",
                                 index, other);
    else if (rc == cudaSuccess)
        rc = cudaDeviceEnablePeerAccess(other, 0);
    if (rc == cudaErrorPeerAccessAlreadyEnabled)
        cudaGetLastError();
    else if (rc != cudaSuccess)
        status = cannot(rc, index, "cudaDeviceEnablePeerAccess(%d)", other);
    base_cuda_leave(index, before);
    return status;
}

#endif
