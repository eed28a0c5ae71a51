/* SPDX-License-Identifier: Apache-2.0 */
/* tests/emulated/runtime.cc: the device that the emulator pretends to be, its errors, and the driver's
 * entry points. */
#include "tests/emulated/machine.h"

#include <atomic>
#include <mutex>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <type_traits>
#include <unistd.h>

namespace emulated
{

static thread_local int current;
static thread_local int below[8], depth;    /* devices that were current when contexts were pushed, */
static thread_local bool below_own[8], own; /* and whether the context was one of the program's own */
static std::atomic<unsigned> opened;        /* bit per device: it has a context */
static thread_local cudaError_t last = cudaSuccess;
static std::atomic<int> stuck{cudaSuccess};
thread_local bool in_host_function;

static long number(const char *name, long otherwise, long least, long most)
{
    const char *text = getenv(name);
    long value = text == NULL ? otherwise : strtol(text, NULL, 10);
    return value < least ? least : value > most ? most : value;
}

/* base/device/cuda.c looks for the driver's files, of which there are none. */
extern "C" __attribute__((weak)) void base_cuda_seen(void);
static const struct Seen {
    Seen()
    {
        if (base_cuda_seen != NULL)
            base_cuda_seen();
    }
} seen;

int device_count(void)
{
    static const int count = (int)number("EMULATED_DEVICES", 1, 0, 16);
    return count;
}

size_t device_bytes(void)
{
    static const size_t bytes = (size_t)number("EMULATED_MEMORY", 8192, 1, 1 << 20) << 20;
    return bytes;
}

bool peers_reach(void)
{
    static const bool reach = number("EMULATED_PEERS", 1, 0, 1) != 0;
    return reach;
}

int current_device(void)
{
    return current;
}

void open_current(void)
{
    opened |= 1u << current;
}

cudaError_t fail(cudaError_t rc)
{
    last = rc;
    return rc;
}

void set_sticky(cudaError_t rc)
{
    int none = cudaSuccess;
    stuck.compare_exchange_strong(none, rc);
}

cudaError_t sticky(void)
{
    return (cudaError_t)stuck.load();
}

void say(const char *format, ...)
{
    char line[512];
    va_list list;
    va_start(list, format);
    vsnprintf(line, sizeof(line), format, list);
    va_end(list);
    fprintf(stderr, "emulated CUDA: %s\n", line);
}

} // namespace emulated

using namespace emulated;

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = device_count();
    return *count == 0 ? fail(cudaErrorNoDevice) : cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    if (device < 0 || device >= device_count())
        return fail(cudaErrorInvalidDevice);
    current = device;
    own = false;
    opened |= 1u << device; /* as CUDA 12 does */
    return sticky();
}

cudaError_t cudaGetDevice(int *device)
{
    *device = current;
    return cudaSuccess; /* also where the device is lost: no context is asked */
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    MAY_FAIL
    if (device < 0 || device >= device_count())
        return fail(cudaErrorInvalidDevice);
    memset(p, 0, sizeof(*p));
    snprintf(p->name, sizeof(p->name), "emulated");
    memcpy(p->uuid.bytes, "emulated-device", 15);
    p->uuid.bytes[15] = (char)device;
    p->totalGlobalMem = device_bytes();
    p->sharedMemPerBlock = 48 * 1024;
    p->sharedMemPerBlockOptin = (size_t)number("EMULATED_SHARED", 227, 48, 227) * 1024;
    p->sharedMemPerMultiprocessor = p->sharedMemPerBlockOptin + 1024;
    p->regsPerBlock = p->regsPerMultiprocessor = 65536;
    p->warpSize = 32;
    p->maxThreadsPerBlock = 1024;
    p->maxThreadsPerMultiProcessor = 2048;
    p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
    p->maxThreadsDim[2] = 64;
    p->maxGridSize[0] = 0x7fffffff;
    p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->major = 9;
    p->multiProcessorCount = (int)number("EMULATED_PROCESSORS", 4, 1, 1024);
    p->maxBlocksPerMultiProcessor = 32;
    p->l2CacheSize = 1 << 20;
    p->canMapHostMemory = p->unifiedAddressing = p->concurrentKernels = p->hostRegisterSupported = 1;
    p->canUseHostPointerForRegisteredMem = p->streamPrioritiesSupported = p->ipcEventSupported = 1;
    p->asyncEngineCount = 2;
    p->pciBusID = device;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    struct cudaDeviceProp p;
    cudaError_t rc = cudaGetDeviceProperties(&p, device);
    if (rc != cudaSuccess)
        return rc;
    switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
        *value = p.multiProcessorCount;
        break;
    case cudaDevAttrMemoryClockRate: /* three that take 24 blocks */
        *value = (int)number("EMULATED_MEMORY_CLOCK", 1200000, 0, 100000000);
        break;
    case cudaDevAttrGlobalMemoryBusWidth:
        *value = 5120;
        break;
    case cudaDevAttrClockRate:
        *value = 1000000;
        break;
    case cudaDevAttrComputeCapabilityMajor:
        *value = p.major;
        break;
    case cudaDevAttrComputeCapabilityMinor:
        *value = p.minor;
        break;
    case cudaDevAttrMaxThreadsPerBlock:
        *value = p.maxThreadsPerBlock;
        break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
        *value = (int)p.sharedMemPerBlock;
        break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = (int)p.sharedMemPerBlockOptin;
        break;
    case cudaDevAttrWarpSize:
        *value = 32;
        break;
    case cudaDevAttrPciBusId:
        *value = p.pciBusID;
        break;
    case cudaDevAttrPciDeviceId:
        *value = 0;
        break;
    case cudaDevAttrPciDomainId:
        *value = 0;
        break;
    case cudaDevAttrL2CacheSize:
        *value = p.l2CacheSize;
        break;
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrHostRegisterSupported:
    case cudaDevAttrCanUseHostPointerForRegisteredMem:
    case cudaDevAttrIpcEventSupport:
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrGPUDirectRDMAFlushWritesOptions: /* writes of adapters are flushed */
        *value = 1;
        break;
    default:
        *value = 0;
        break;
    }
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int bytes, int device)
{
    if (device < 0 || device >= device_count())
        return fail(cudaErrorInvalidDevice);
    snprintf(text, (size_t)bytes, "0000:%02X:00.0", device);
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    MAY_FAIL
    if (device < 0 || device >= device_count() || peer < 0 || peer >= device_count())
        return fail(cudaErrorInvalidDevice);
    *can = device != peer && peers_reach();
    return cudaSuccess;
}

cudaError_t cudaDeviceGetP2PAttribute(int *value, enum cudaDeviceP2PAttr attribute, int from, int to)
{
    if (from < 0 || from >= device_count() || to < 0 || to >= device_count() || from == to)
        return fail(cudaErrorInvalidDevice);
    const bool near = number("EMULATED_SWITCH", 1, 0, 1) != 0 || from / 2 == to / 2;
    *value = attribute == cudaDevP2PAttrPerformanceRank            ? !near
             : attribute == cudaDevP2PAttrCudaArrayAccessSupported ? 0
                                                                   : near && peers_reach();
    return cudaSuccess;
}

cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *text)
{
    unsigned bus = 0;
    if (sscanf(text, "0000:%X:00.0", &bus) != 1 || (int)bus >= device_count())
        return fail(cudaErrorInvalidDevice);
    *device = (int)bus;
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned)
{
    MAY_FAIL
    static std::mutex lock;
    static uint32_t enabled[16];
    if (peer < 0 || peer >= device_count() || peer == current)
        return fail(cudaErrorInvalidDevice);
    if (!peers_reach())
        return fail(cudaErrorPeerAccessUnsupported);
    std::lock_guard<std::mutex> guard(lock);
    if (enabled[current] >> peer & 1)
        return fail(cudaErrorPeerAccessAlreadyEnabled);
    enabled[current] |= 1u << peer;
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t rc = sticky() != cudaSuccess ? sticky() : last;
    last = cudaSuccess;
    return rc;
}

cudaError_t cudaPeekAtLastError(void)
{
    return sticky() != cudaSuccess ? sticky() : last;
}

#define EMULATED_ERRORS(X)                                                                                 \
    X(cudaSuccess, "no error")                                                                             \
    X(cudaErrorInvalidValue, "invalid argument")                                                           \
    X(cudaErrorMemoryAllocation, "out of memory")                                                          \
    X(cudaErrorInvalidDevice, "invalid device ordinal")                                                    \
    X(cudaErrorNoDevice, "no CUDA-capable device is detected")                                             \
    X(cudaErrorInvalidConfiguration, "invalid configuration argument")                                     \
    X(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy")                                \
    X(cudaErrorInvalidResourceHandle, "invalid resource handle")                                           \
    X(cudaErrorNotReady, "device not ready")                                                               \
    X(cudaErrorNotPermitted, "operation not permitted")                                                    \
    X(cudaErrorNotSupported, "operation not supported")                                                    \
    X(cudaErrorIllegalAddress, "an illegal memory access was encountered")                                 \
    X(cudaErrorLaunchFailure, "unspecified launch failure")                                                \
    X(cudaErrorECCUncorrectable, "uncorrectable ECC error encountered")                                    \
    X(cudaErrorDeviceUninitialized, "invalid device context")                                              \
    X(cudaErrorMapBufferObjectFailed, "mapping of buffer object failed")                                   \
    X(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled")                                 \
    X(cudaErrorPeerAccessUnsupported, "peer access is not supported between these two devices")            \
    X(cudaErrorHostMemoryAlreadyRegistered, "part or all of the requested memory range is already mapped") \
    X(cudaErrorHostMemoryNotRegistered, "pointer does not correspond to a registered memory region")       \
    X(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing")               \
    X(cudaErrorStreamCaptureImplicit, "dependency created on uncaptured work in another stream")           \
    X(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work")                                \
    X(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture")        \
    X(cudaErrorStreamCaptureUnmatched, "capture was not initiated in this stream")                         \
    X(cudaErrorCapturedEvent, "operation not permitted on an event last recorded in a capturing stream")   \
    X(cudaErrorStreamCaptureWrongThread,                                                                   \
      "attempt to terminate a thread-local capture sequence from another thread")                          \
    X(cudaErrorStreamCaptureIsolation, "dependency created on uncaptured work in another stream")          \
    X(cudaErrorIllegalState, "the operation cannot be performed in the present state")                     \
    X(cudaErrorSymbolNotFound, "named symbol not found")

const char *cudaGetErrorName(cudaError_t rc)
{
    switch (rc) {
#define EMULATED_NAME(code, text) \
    case code:                    \
        return #code;
        EMULATED_ERRORS(EMULATED_NAME)
    default:
        return "cudaErrorUnknown";
    }
}

const char *cudaGetErrorString(cudaError_t rc)
{
    switch (rc) {
#define EMULATED_TEXT(code, text) \
    case code:                    \
        return text;
        EMULATED_ERRORS(EMULATED_TEXT)
    default:
        return "unknown error";
    }
}

/* Frames of kernels: the emulator cannot know them, and says what nvcc reported of the largest. */
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *kernel)
{
    MAY_FAIL
    note_loaded(kernel);
    memset(attributes, 0, sizeof(*attributes));
    attributes->localSizeBytes = 64;
    attributes->maxThreadsPerBlock = 1024;
    return sticky();
}

static std::atomic<size_t> stack_limit{1024};

cudaError_t cudaDeviceGetLimit(size_t *value, enum cudaLimit limit)
{
    MAY_FAIL
    if (limit != cudaLimitStackSize)
        return fail(cudaErrorUnsupportedLimit);
    *value = stack_limit;
    return sticky();
}

cudaError_t cudaDeviceSetLimit(enum cudaLimit limit, size_t value)
{
    MAY_FAIL
    if (limit != cudaLimitStackSize)
        return fail(cudaErrorUnsupportedLimit);
    stack_limit = value;
    return sticky();
}

/* Adapters write where the host's memory is: all is seen at once. */
cudaError_t cudaDeviceFlushGPUDirectRDMAWrites(enum cudaFlushGPUDirectRDMAWritesTarget,
                                               enum cudaFlushGPUDirectRDMAWritesScope)
{
    return sticky();
}

/* ---- the driver's own calls, by cudaGetDriverEntryPointByVersion --------------------------------------- */
static CUresult result(cudaError_t rc)
{
    return rc == cudaSuccess                      ? CUDA_SUCCESS
           : rc == cudaErrorInvalidValue          ? CUDA_ERROR_INVALID_VALUE
           : rc == cudaErrorInvalidResourceHandle ? CUDA_ERROR_INVALID_HANDLE
           : rc == cudaErrorMemoryAllocation      ? CUDA_ERROR_OUT_OF_MEMORY
           : rc == cudaErrorECCUncorrectable      ? CUDA_ERROR_ECC_UNCORRECTABLE
           : rc == cudaErrorStreamCaptureUnsupported
               ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
               : CUDA_ERROR_UNKNOWN; /* the runtime's own number is kept by fail() */
}

/* No words of memory are waited for, or written, by a graph of captured streams. */
static cudaError_t usable(CUstream stream, CUdeviceptr address, size_t bytes)
{
    if (captured(stream)) {
        break_capture(stream);
        return fail(cudaErrorStreamCaptureUnsupported);
    }
    if (address % bytes != 0 || where((void *)address).place == Place::UNKNOWN)
        return fail(cudaErrorInvalidValue);
    return cudaSuccess;
}

template <typename T> static bool reached(T now, T value, unsigned flags)
{
    switch (flags & 3) {
    case CU_STREAM_WAIT_VALUE_GEQ:
        return (typename std::make_signed<T>::type)(now - value) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
        return now == value;
    case CU_STREAM_WAIT_VALUE_AND:
        return (now & value) != 0;
    default:
        return ~(now | value) != 0;
    }
}

template <typename T>
static CUresult stream_wait(CUstream stream, CUdeviceptr address, T value, unsigned flags)
{
    if (number("EMULATED_WAITS", 1, 0, 1) == 0)
        return CUDA_ERROR_NOT_SUPPORTED;
    cudaError_t rc = planned("cuStreamWaitValue32");
    if (rc == cudaSuccess)
        rc = usable(stream, address, sizeof(T));
    if (rc == cudaSuccess)
        rc = enqueue(stream, "cuStreamWaitValue", [address, value, flags] {
            for (unsigned round = 0; sticky() == cudaSuccess; round++) {
                T now;
                if (!peek((const void *)address, &now, sizeof(now))) {
                    Touch touch;
                    now = __atomic_load_n((const T *)address, __ATOMIC_ACQUIRE);
                }
                if (reached(now, value, flags))
                    return cudaSuccess;
                usleep(round < 100 ? 10 : round < 1000 ? 100 : 1000);
            }
            return cudaSuccess;
        });
    return result(rc);
}

template <typename T> static CUresult stream_write(CUstream stream, CUdeviceptr address, T value, unsigned)
{
    cudaError_t rc = planned("cuStreamWriteValue32");
    if (rc == cudaSuccess)
        rc = usable(stream, address, sizeof(T));
    if (rc == cudaSuccess)
        rc = enqueue(stream, "cuStreamWriteValue", [address, value] {
            Touch touch;
            __atomic_store_n((T *)address, value, __ATOMIC_RELEASE);
            return cudaSuccess;
        });
    return result(rc);
}

/* As the driver's: unknown memory is no error, its attributes are 0. */
static CUresult pointer_attributes(unsigned n, CUpointer_attribute *attributes, void **data,
                                   CUdeviceptr address)
{
    if (sticky() != cudaSuccess)
        return result(sticky());
    Where w = where((void *)address);
    const bool known = w.place != Place::UNKNOWN;
    for (unsigned i = 0; i < n; i++)
        switch (attributes[i]) {
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
            *(CUdeviceptr *)data[i] = known ? (CUdeviceptr)w.base : 0;
            break;
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
            *(size_t *)data[i] = known ? w.bytes : 0;
            break;
        default:
            return CUDA_ERROR_INVALID_VALUE;
        }
    return CUDA_SUCCESS;
}

/* As a driver without dma-bufs says it: there is no kernel that could make one of this memory. */
static CUresult range_handle(void *handle, CUdeviceptr address, size_t bytes, CUmemRangeHandleType type,
                             unsigned long long)
{
    if (handle == NULL || type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || address % 4096 != 0 ||
        bytes % 4096 != 0)
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult error_string(CUresult, const char **text)
{
    *text = "emulated driver's error";
    return CUDA_SUCCESS;
}

/* Contexts: primary ones, which are as good as their device; and, for tests, 0x100 more than that: one that
 * the program made for itself. */
enum { OWN = 0x100 };
static CUcontext context_of(int device)
{
    return (CUcontext)(intptr_t)(device + 1 + (own ? OWN : 0));
}

static CUresult context_current(CUcontext *context)
{
    *context = context_of(current);
    return CUDA_SUCCESS;
}

static CUresult device_get(CUdevice *device, int ordinal)
{
    *device = ordinal;
    return ordinal >= 0 && ordinal < device_count() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult context_retain(CUcontext *context, CUdevice device)
{
    if (device < 0 || device >= device_count())
        return CUDA_ERROR_INVALID_DEVICE;
    opened |= 1u << device;
    *context = (CUcontext)(intptr_t)(device + 1);
    return CUDA_SUCCESS;
}

static CUresult context_state(CUdevice device, unsigned *flags, int *active)
{
    *flags = 0;
    *active = opened >> device & 1;
    return CUDA_SUCCESS;
}

static CUresult context_push(CUcontext context)
{
    if (depth == 8)
        return CUDA_ERROR_INVALID_VALUE;
    below_own[depth] = own;
    below[depth++] = current;
    own = ((intptr_t)context & OWN) != 0;
    current = (int)((intptr_t)context & ~(intptr_t)OWN) - 1;
    return CUDA_SUCCESS;
}

static CUresult context_pop(CUcontext *context)
{
    if (depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    *context = context_of(current);
    current = below[--depth];
    own = below_own[depth];
    return CUDA_SUCCESS;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned,
                                             unsigned long long, enum cudaDriverEntryPointQueryResult *status)
{
    static const struct {
        const char *name;
        void *function;
    } known[] = {
        {"cuStreamWaitValue32", (void *)stream_wait<cuuint32_t>},
        {"cuStreamWriteValue32", (void *)stream_write<cuuint32_t>},
        {"cuStreamWaitValue64", (void *)stream_wait<cuuint64_t>},
        {"cuStreamWriteValue64", (void *)stream_write<cuuint64_t>},
        {"cuPointerGetAttributes", (void *)pointer_attributes},
        {"cuCtxGetCurrent", (void *)context_current},
        {"cuMemGetHandleForAddressRange", (void *)range_handle},
        {"cuGetErrorString", (void *)error_string},
        {"cuDeviceGet", (void *)device_get},
        {"cuDevicePrimaryCtxRetain", (void *)context_retain},
        {"cuDevicePrimaryCtxGetState", (void *)context_state},
        {"cuCtxPushCurrent", (void *)context_push},
        {"cuCtxPopCurrent", (void *)context_pop},
    };
    *function = NULL;
    for (const auto &each : known)
        if (strcmp(each.name, symbol) == 0)
            *function = each.function;
    if (status != NULL)
        *status = *function != NULL ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}
