/* SPDX-License-Identifier: Apache-2.0 */
/* tests/emulated/copy.cc: copies, fills, host functions and kernels as a stream's work.
 *
 * Copies from and to ordinary host memory are as late here as a GPU may ever make them: code that does not
 * wait for the stream sees old bytes. */
#include "tests/emulated/emulated.h"
#include "tests/emulated/machine.h"

#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <string.h>

using namespace emulated;

static cudaError_t check_copy(const char *what, const void *to, const void *from, size_t bytes,
                              enum cudaMemcpyKind kind)
{
    bool to_device = where(to).place == Place::DEVICE, from_device = where(from).place == Place::DEVICE;
    if (to == NULL || from == NULL || !inside(to, bytes) || !inside(from, bytes)) {
        say("%s of %zu bytes from %p to %p: %s", what, bytes, from, to,
            to == NULL || from == NULL ? "a pointer is NULL" : "beyond an allocation's end, or freed");
        return fail(cudaErrorInvalidValue);
    }
    if ((kind == cudaMemcpyHostToDevice && (!to_device || from_device)) ||
        (kind == cudaMemcpyDeviceToHost && (to_device || !from_device)) ||
        (kind == cudaMemcpyDeviceToDevice && (!to_device || !from_device)) ||
        (kind == cudaMemcpyHostToHost && (to_device || from_device)))
        return fail(cudaErrorInvalidMemcpyDirection);
    return cudaSuccess;
}

/* The graph would read or write ordinary host memory whenever it runs. CUDA does not report that; it is an
 * error of the capturing code. */
static cudaError_t check_capture(const char *what, const void *to, const void *from, cudaStream_t stream)
{
    if (!captured(stream) || (where(to).place != Place::UNKNOWN && where(from).place != Place::UNKNOWN))
        return cudaSuccess;
    say("%s from %p to %p is captured: one of them is ordinary host memory", what, from, to);
    break_capture(stream);
    return fail(cudaErrorStreamCaptureUnsupported);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    MAY_FAIL
    if (bytes == 0)
        return sticky();
    cudaError_t rc = check_copy("cudaMemcpyAsync", to, from, bytes, kind);
    if (rc == cudaSuccess)
        rc = check_capture("cudaMemcpyAsync", to, from, stream);
    if (rc != cudaSuccess)
        return rc;
    return enqueue(stream, "cudaMemcpyAsync", [=] {
        Touch touch;
        memmove(to, from, bytes);
        return cudaSuccess;
    });
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    if (any_capture_of_this_thread())
        return fail(cudaErrorStreamCaptureUnsupported);
    cudaError_t rc = cudaMemcpyAsync(to, from, bytes, kind, cudaStreamLegacy);
    return rc == cudaSuccess ? cudaStreamSynchronize(cudaStreamLegacy) : rc;
}

cudaError_t cudaMemcpyPeerAsync(void *to, int, const void *from, int, size_t bytes, cudaStream_t stream)
{
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                              size_t height, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    MAY_FAIL
    if (width == 0 || height == 0)
        return sticky();
    if (width > to_pitch || width > from_pitch)
        return fail(cudaErrorInvalidValue);
    cudaError_t rc = check_copy("cudaMemcpy2DAsync", to, from, width, kind);
    if (rc == cudaSuccess &&
        (!inside(to, to_pitch * (height - 1) + width) || !inside(from, from_pitch * (height - 1) + width)))
        rc = fail(cudaErrorInvalidValue);
    if (rc == cudaSuccess)
        rc = check_capture("cudaMemcpy2DAsync", to, from, stream);
    if (rc != cudaSuccess)
        return rc;
    return enqueue(stream, "cudaMemcpy2DAsync", [=] {
        Touch touch;
        for (size_t row = 0; row < height; row++)
            memmove((char *)to + row * to_pitch, (const char *)from + row * from_pitch, width);
        return cudaSuccess;
    });
}

/* Fills device memory or mapped host memory. */
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    MAY_FAIL
    if (bytes == 0)
        return sticky();
    if (where(to).place == Place::UNKNOWN || !inside(to, bytes)) {
        say("cudaMemsetAsync(%p, %d, %zu): not inside an allocation of the device", to, value, bytes);
        return fail(cudaErrorInvalidValue);
    }
    return enqueue(stream, "cudaMemsetAsync", [=] {
        Touch touch;
        memset(to, value, bytes);
        return cudaSuccess;
    });
}

cudaError_t cudaMemset(void *to, int value, size_t bytes)
{
    if (any_capture_of_this_thread())
        return fail(cudaErrorStreamCaptureUnsupported);
    cudaError_t rc = cudaMemsetAsync(to, value, bytes, cudaStreamLegacy);
    return rc == cudaSuccess ? cudaStreamSynchronize(cudaStreamLegacy) : rc;
}

cudaError_t cudaMemset2DAsync(void *to, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream)
{
    MAY_FAIL
    if (width == 0 || height == 0)
        return sticky();
    if (width > pitch || where(to).place == Place::UNKNOWN || !inside(to, pitch * (height - 1) + width))
        return fail(cudaErrorInvalidValue);
    return enqueue(stream, "cudaMemset2DAsync", [=] {
        Touch touch;
        for (size_t row = 0; row < height; row++)
            memset((char *)to + row * pitch, value, width);
        return cudaSuccess;
    });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data)
{
    MAY_FAIL
    if (function == NULL)
        return fail(cudaErrorInvalidValue);
    return enqueue(stream, "cudaLaunchHostFunc", [=] {
        in_host_function = true;
        function(data);
        in_host_function = false;
        return cudaSuccess;
    });
}

/* ---- kernels ------------------------------------------------------------------------------------------- */
static std::mutex allowed_lock;
static std::map<const void *, size_t> &allowed(void)
{
    static std::map<const void *, size_t> *it = new std::map<const void *, size_t>();
    return *it;
}

void emulated_allow_shared(const void *kernel, size_t bytes)
{
    std::lock_guard<std::mutex> guard(allowed_lock);
    allowed()[kernel] = bytes;
}

cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute attribute, int value)
{
    MAY_FAIL
    if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) {
        int most = 0;
        (void)cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0);
        if (value < 0 || value > most)
            return fail(cudaErrorInvalidValue);
        emulated_allow_shared(kernel, (size_t)value);
    }
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *, int threads,
                                                          size_t bytes)
{
    MAY_FAIL
    int by_threads = 2048 / (threads < 1 ? 1 : threads),
        by_shared = bytes == 0 ? 32 : (int)(228 * 1024 / bytes);
    *blocks = by_threads < by_shared ? by_threads : by_shared;
    return cudaSuccess;
}

static std::mutex loaded_lock;
static std::set<const void *> &loaded(void)
{
    static auto *kernels = new std::set<const void *>; /* never destroyed: threads may launch at the end */
    return *kernels;
}
static std::atomic<const char *> unloaded;

namespace emulated
{

void note_loaded(const void *kernel)
{
    std::lock_guard<std::mutex> guard(loaded_lock);
    loaded().insert(kernel);
}

} // namespace emulated

/* The first kernel that was launched before it was loaded; NULL: none. A GPU loads it at its first launch,
 * and may wait for kernels that wait for this one. */
extern "C" const char *emulated_unloaded(void)
{
    return unloaded.load();
}

cudaError_t emulated_launch(const char *name, const void *kernel, dim3 grid, dim3 block, size_t bytes,
                            cudaStream_t stream, void (*run)(void *), void (*drop)(void *), void *closure)
{
    auto work = std::shared_ptr<Kernel>(new Kernel{name, grid, block, bytes, run, drop, closure});
    if (cudaError_t rc = planned("cudaLaunchKernel"); rc != cudaSuccess)
        return rc;
    {
        std::lock_guard<std::mutex> guard(loaded_lock);
        const char *none = NULL;
        if (loaded().count(kernel) == 0)
            unloaded.compare_exchange_strong(none, name);
    }
    size_t most = 48 * 1024;
    {
        std::lock_guard<std::mutex> guard(allowed_lock);
        auto it = allowed().find(kernel);
        if (it != allowed().end() && it->second > most)
            most = it->second;
    }
    if ((uint64_t)block.x * block.y * block.z > 1024 || block.x == 0 || block.y == 0 || block.z == 0 ||
        block.z > 64 || grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7fffffff || grid.y > 65535 ||
        grid.z > 65535 || bytes > most || bytes > 227 * 1024) {
        say("kernel %s: a grid of (%u, %u, %u) blocks of (%u, %u, %u) threads with %zu bytes of shared "
            "memory cannot "
            "be launched",
            name, grid.x, grid.y, grid.z, block.x, block.y, block.z, bytes);
        return fail(cudaErrorInvalidConfiguration);
    }
    return enqueue(stream, name, [work] { return execute(*work); });
}
