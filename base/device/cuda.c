/* SPDX-License-Identifier: Apache-2.0 */
/* base/device/cuda.c: devices with the CUDA runtime, linked statically: which there are, what went wrong, and
 * which one is current.
 *
 * The runtime opens the driver (libcuda.so.1) when it is first called, which takes a good part of a second on
 * a machine with GPUs. So nothing here calls it before somebody asks for a device, and base_cuda_of(), which
 * sees every user buffer, answers "host" without it until the driver is in the process. Every call leaves the
 * calling thread's current device as it was: that belongs to the application. */
#include "base/device/cuda.h"

#ifdef GYRE_CUDA

#include <cuda.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/device/cuda_error.h"
#include "base/error.h"

_Atomic int base_device_cuda_memory; /* -1: there is no GPU's device file */

void base_cuda_seen(void)
{
    atomic_store_explicit(&base_device_cuda_memory, 1, memory_order_relaxed);
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
    int known = atomic_load_explicit(&base_device_cuda_memory, memory_order_relaxed);
    if (known != 0)
        return known > 0;
    if (access("/dev/nvidiactl", F_OK) != 0 && access("/dev/nvhost-ctrl", F_OK) != 0 &&
        access("/dev/nvmap", F_OK) != 0 && access("/dev/dxg", F_OK) != 0) {
        int unknown = 0;
        atomic_compare_exchange_strong(&base_device_cuda_memory, &unknown, -1);
        return 0;
    }
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (driver == NULL)
        return 0;
    dlclose(driver); /* only looked: the part that loaded it keeps it */
    base_cuda_seen();
    return 1;
}

/* Without touching it: the kernel copies the new mask before it looks at `how`, which is invalid. */
static int host_reads(const void *ptr)
{
    const uintptr_t word = (uintptr_t)ptr & ~(uintptr_t)7;
    return syscall(SYS_rt_sigprocmask, -1, word, NULL, 8) != 0 && errno != EFAULT;
}

int base_cuda_of(const void *ptr, int *index)
{
    struct cudaPointerAttributes attributes;
    if (!driver_is_loaded())
        return 0;
    cudaError_t rc = cudaPointerGetAttributes(&attributes, ptr);
    if (rc != cudaSuccess) {
        cudaGetLastError();
        if (rc == cudaErrorInvalidValue || ptr == NULL || host_reads(ptr))
            return 0;
        /* a device that is lost says nothing of its memory, which no code of the host may touch */
        if (cudaGetDevice(index) != cudaSuccess)
            *index = 0;
        return 1;
    }
    if (attributes.type != cudaMemoryTypeDevice && attributes.type != cudaMemoryTypeManaged)
        return 0;
    *index = attributes.device;
    return 1;
}

/* A CUDA error of a call, with its arguments. loud: logged. */
static gyre_status_t fail(cudaError_t rc, int index, int loud, const char *format, va_list list)
{
    char call[160];
    vsnprintf(call, sizeof(call), format, list);
    cudaGetLastError(); /* the runtime keeps the error; it is not the application's */
    const gyre_status_t status = rc == cudaErrorMemoryAllocation ? GYRE_ERR_NO_MEMORY
                                 : rc == cudaErrorInvalidValue   ? GYRE_ERR_INVALID
                                 : rc == cudaErrorNotSupported   ? GYRE_ERR_UNSUPPORTED
                                                                 : GYRE_ERR_SYSTEM;
    return (loud ? gyre_fail : gyre_fail_quiet)(status, "CUDA device %d: %s: %s (%s)", index, call,
                                                cudaGetErrorString(rc), cudaGetErrorName(rc));
}

gyre_status_t __attribute__((format(printf, 3, 4)))
base_cuda_failed(cudaError_t rc, int index, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    gyre_status_t status = fail(rc, index, 1, format, list);
    va_end(list);
    return status;
}

gyre_status_t __attribute__((format(printf, 3, 4)))
base_cuda_cannot(cudaError_t rc, int index, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    gyre_status_t status = fail(rc, index, 0, format, list);
    va_end(list);
    return status;
}

gyre_status_t __attribute__((format(printf, 4, 5)))
base_cuda_end(cudaError_t rc, int index, int before, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    gyre_status_t status = rc == cudaSuccess ? GYRE_OK : fail(rc, index, 1, format, list);
    va_end(list);
    base_cuda_leave(index, before);
    return status;
}

/* ---- the current device -------------------------------------------------------------------------------- */

enum { DEVICES = 64 }; /* whose contexts are kept at hand; others go by cudaSetDevice */

static struct {
    pthread_once_t found;
    CUresult (*get)(CUdevice *, int);
    CUresult (*retain)(CUcontext *, CUdevice);
    CUresult (*push)(CUcontext);
    CUresult (*pop)(CUcontext *);
    CUresult (*current)(CUcontext *);
    int usable;
    _Atomic(CUcontext) of[DEVICES]; /* primary ones, retained until the process ends */
} contexts = {.found = PTHREAD_ONCE_INIT};

static void find_contexts(void)
{
    static const char *const names[] = {"cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuCtxPushCurrent",
                                        "cuCtxPopCurrent", "cuCtxGetCurrent"};
    void *to[] = {&contexts.get, &contexts.retain, &contexts.push, &contexts.pop, &contexts.current};
    void *function = NULL;
    for (int i = 0; i < 5; i++) {
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

/* The calling thread works on its current device, `index`, in another context than the primary one. */
static int in_own_context(int index)
{
    CUcontext mine = NULL;
    pthread_once(&contexts.found, find_contexts);
    if (!contexts.usable || contexts.current(&mine) != CUDA_SUCCESS || mine == NULL)
        return 0;
    const CUcontext primary = context_of(index);
    return primary != NULL && mine != primary;
}

/* Pushed and popped, not set and set back: cudaSetDevice opens a context on the device that it is given,
 * since CUDA 12 at once, and the current device of a thread that has done nothing yet is device 0. Of a job
 * with a GPU per rank every rank would then take some hundred MiB of device 0. */
gyre_status_t base_cuda_enter(int index, int *before)
{
    cudaError_t rc = cudaGetDevice(before);
    const int own = rc == cudaSuccess && *before == index && in_own_context(index);
    if (rc != cudaSuccess || (*before == index && !own))
        return rc == cudaSuccess ? GYRE_OK : base_cuda_failed(rc, index, "cudaGetDevice");
    CUcontext context = context_of(index);
    if (context != NULL && contexts.push(context) == CUDA_SUCCESS) {
        *before = BASE_DEVICE_PUSHED;
        return GYRE_OK;
    }
    if (own) /* cudaSetDevice would replace it, and nothing could bring it back */
        return gyre_fail(GYRE_ERR_SYSTEM,
                         "the primary context of CUDA device %d cannot be pushed on a thread "
                         "that works in a context of its own",
                         index);
    rc = cudaSetDevice(index);
    return rc == cudaSuccess ? GYRE_OK : base_cuda_failed(rc, index, "cudaSetDevice(%d)", index);
}

void base_cuda_leave(int index, int before)
{
    CUcontext ours;
    if (before == BASE_DEVICE_PUSHED)
        (void)contexts.pop(&ours); /* on top: what was pushed above it has been popped */
    else if (before != index)
        cudaSetDevice(before); /* it was current a moment ago */
}

gyre_status_t base_cuda_primary(int index)
{
    int device = -1;
    if (cudaGetDevice(&device) != cudaSuccess || device != index || !in_own_context(index))
        return GYRE_OK;
    return gyre_fail(
        GYRE_ERR_UNSUPPORTED,
        "this thread works in a context of its own on CUDA device %d (cuCtxCreate, a green "
        "context): Gyre works in the device's primary context, as the CUDA runtime does; make that "
        "one current (cuDevicePrimaryCtxRetain), and streams and memory in it",
        index);
}

gyre_status_t base_cuda_name(int index, char *name, size_t bytes)
{
    struct cudaDeviceProp properties;
    cudaError_t rc = cudaGetDeviceProperties(&properties, index);
    if (rc != cudaSuccess)
        return base_cuda_failed(rc, index, "cudaGetDeviceProperties");
    snprintf(name, bytes, "%s", properties.name);
    return GYRE_OK;
}

gyre_status_t base_cuda_current(int *index)
{
    cudaError_t rc = cudaGetDevice(index);
    return rc == cudaSuccess ? GYRE_OK : base_cuda_failed(rc, 0, "cudaGetDevice");
}

gyre_status_t base_cuda_identity(int index, unsigned char uuid[16])
{
    struct cudaDeviceProp properties;
    cudaError_t rc = cudaGetDeviceProperties(&properties, index);
    if (rc != cudaSuccess)
        return base_cuda_cannot(rc, index, "cudaGetDeviceProperties");
    memcpy(uuid, properties.uuid.bytes, 16);
    return GYRE_OK;
}

gyre_status_t base_cuda_use(int index)
{
    cudaError_t rc = cudaSetDevice(index);
    return rc == cudaSuccess ? GYRE_OK : base_cuda_failed(rc, index, "cudaSetDevice(%d)", index);
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

#endif
