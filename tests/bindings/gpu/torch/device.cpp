// SPDX-License-Identifier: Apache-2.0
// tests/bindings/gpu/torch/device.cpp: CUDA devices of PyTorch on the emulator, for a PyTorch without CUDA or driver: what
// PyTorch asks of a device (streams, events, memory) and the few kernels that the tests use.
//
// Memory that is freed is overwritten in the order of the stream on which it was allocated, as a caching allocator
// would give it to others. So a tensor that is freed too early is seen.
//
// Only the headers that it needs: torch/extension.h, with all of PyTorch, takes long to compile.
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/from_blob.h>
#include <atomic>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <chrono>
#include <cuda_runtime_api.h>
#include <map>
#include <pybind11/pybind11.h>
#include <string>
#include <thread>
#include <torch/library.h>
#include <vector>

#define CUDA(call)                                                              \
    do {                                                                        \
        const cudaError_t code = (call);                                        \
        TORCH_CHECK(code == cudaSuccess, #call ": ", cudaGetErrorString(code)); \
    } while (0)

namespace
{

// The identifier of a stream is its handle.
cudaStream_t handle(const c10::Stream &stream)
{
    return reinterpret_cast<cudaStream_t>(stream.id()); // NOLINT
}

thread_local std::map<c10::DeviceIndex, c10::StreamId> current;

struct Guard final : c10::impl::DeviceGuardImplInterface {
    c10::DeviceType type() const override { return c10::kCUDA; }
    c10::Device getDevice() const override
    {
        int index = 0;
        CUDA(cudaGetDevice(&index));
        return {c10::kCUDA, static_cast<c10::DeviceIndex>(index)};
    }
    void setDevice(c10::Device device) const override
    {
        if (device.has_index())
            CUDA(cudaSetDevice(device.index()));
    }
    void uncheckedSetDevice(c10::Device device) const noexcept override { cudaSetDevice(device.index()); }
    c10::Device exchangeDevice(c10::Device device) const override
    {
        const auto before = getDevice();
        setDevice(device);
        return before;
    }
    c10::Stream getStream(c10::Device device) const noexcept override
    {
        return c10::Stream(c10::Stream::UNSAFE, device, current[device.index()]);
    }
    c10::Stream getDefaultStream(c10::Device device) const override
    {
        return c10::Stream(c10::Stream::UNSAFE, device, 0);
    }
    c10::Stream exchangeStream(c10::Stream stream) const noexcept override
    {
        const auto before = getStream(stream.device());
        current[stream.device_index()] = stream.id();
        return before;
    }
    c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override
    {
        cudaStream_t stream;
        const auto before = exchangeDevice(device);
        CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        setDevice(before);
        return c10::Stream(c10::Stream::UNSAFE, device, reinterpret_cast<c10::StreamId>(stream));
    }
    void record(void **event, const c10::Stream &stream, const c10::DeviceIndex,
                const c10::EventFlag) const override
    {
        const auto before = exchangeDevice(stream.device());
        if (!*event)
            CUDA(cudaEventCreateWithFlags(reinterpret_cast<cudaEvent_t *>(event), cudaEventDisableTiming));
        CUDA(cudaEventRecord(static_cast<cudaEvent_t>(*event), handle(stream)));
        setDevice(before);
    }
    void block(void *event, const c10::Stream &stream) const override
    {
        CUDA(cudaStreamWaitEvent(handle(stream), static_cast<cudaEvent_t>(event), 0));
    }
    bool queryEvent(void *event) const override
    {
        const cudaError_t error = cudaEventQuery(static_cast<cudaEvent_t>(event));
        if (error == cudaErrorNotReady)
            return false;
        CUDA(error);
        return true;
    }
    void destroyEvent(void *event, const c10::DeviceIndex) const noexcept override
    {
        if (event)
            cudaEventDestroy(static_cast<cudaEvent_t>(event));
    }
    void synchronizeStream(const c10::Stream &stream) const override
    {
        CUDA(cudaStreamSynchronize(handle(stream)));
    }
    c10::DeviceIndex deviceCount() const noexcept override
    {
        int count = 0;
        return cudaGetDeviceCount(&count) == cudaSuccess ? static_cast<c10::DeviceIndex>(count) : 0;
    }
};
Guard &guard = *new Guard;

c10::Stream stream_of(const at::Tensor &tensor)
{
    return guard.getStream(tensor.device());
}

at::Tensor allocate(at::IntArrayRef sizes, c10::optional<at::ScalarType> type,
                    c10::optional<c10::Device> device)
{
    const c10::Device on = device && device->has_index() ? *device : guard.getDevice();
    const auto options = at::TensorOptions().dtype(type.value_or(at::kFloat)).device(on);
    size_t bytes = c10::elementSize(type.value_or(at::kFloat));
    for (const auto size : sizes)
        bytes *= static_cast<size_t>(size);
    const auto before = guard.exchangeDevice(on);
    void *memory = nullptr;
    CUDA(cudaMalloc(&memory, bytes ? bytes : 1));
    guard.setDevice(before);
    const auto stream = handle(guard.getStream(on));
    const auto free = [stream, bytes](void *p) { cudaMemsetAsync(p, 0xa5, bytes, stream); };
    return at::for_blob(memory, sizes).deleter(free).options(options).target_device(on).make_tensor();
}

at::Tensor empty(c10::SymIntArrayRef sizes, c10::optional<at::ScalarType> type, c10::optional<at::Layout>,
                 c10::optional<c10::Device> device, c10::optional<bool>, c10::optional<at::MemoryFormat>)
{
    return allocate(c10::asIntArrayRefUnchecked(sizes), type, device);
}

at::Tensor empty_strided(c10::SymIntArrayRef sizes, c10::SymIntArrayRef, c10::optional<at::ScalarType> type,
                         c10::optional<at::Layout>, c10::optional<c10::Device> device, c10::optional<bool>)
{
    return allocate(c10::asIntArrayRefUnchecked(sizes), type, device);
}

at::Tensor as_strided(const at::Tensor &self, c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides,
                      c10::optional<c10::SymInt> offset)
{
    auto view = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(self.storage()),
                                                         self.key_set(), self.dtype());
    view.unsafeGetTensorImpl()->set_sizes_and_strides(c10::asIntArrayRefUnchecked(sizes),
                                                      c10::asIntArrayRefUnchecked(strides),
                                                      offset ? offset->expect_int() : self.storage_offset());
    return view;
}

at::Tensor view(const at::Tensor &self, c10::SymIntArrayRef sizes)
{
    TORCH_CHECK(self.is_contiguous(), "only views of what is contiguous");
    std::vector<int64_t> shape, strides(sizes.size(), 1);
    int64_t known = 1;
    for (const auto &size : sizes)
        known *= size.expect_int() < 0 ? 1 : size.expect_int();
    for (const auto &size : sizes)
        shape.push_back(size.expect_int() < 0 ? self.numel() / known : size.expect_int());
    for (size_t i = shape.size(); i-- > 1;)
        strides[i - 1] = strides[i] * shape[i];
    return self.as_strided(shape, strides);
}

at::Tensor &copy(at::Tensor &self, const at::Tensor &from, bool async)
{
    TORCH_CHECK(self.is_contiguous() && from.is_contiguous() && self.dtype() == from.dtype(),
                "only copies of what is contiguous, and of one type");
    const auto stream = stream_of(self.is_cuda() ? self : from);
    CUDA(cudaMemcpyAsync(self.data_ptr(), from.data_ptr(), self.nbytes(), cudaMemcpyDefault, handle(stream)));
    if (!async || !self.is_cuda() || !from.is_cuda())
        guard.synchronizeStream(stream);
    return self;
}

// PyTorch with CUDA has some of them.
template <typename F>
void provide(torch::Library &library, const char *name, const char *overload, F *function)
{
    const auto found = c10::Dispatcher::singleton().findSchema({std::string("aten::") + name, overload});
    TORCH_CHECK(found, "PyTorch has no aten::", name);
    library.impl(*overload ? (std::string(name) + "." + overload).c_str() : name, function);
}

// A thread of the host may wait in the stream: what comes after it there waits for release().
std::atomic<bool> held{false};
void hold_here(void *)
{
    while (held)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

} // namespace

PYBIND11_MODULE(emulated_device, m)
{
    c10::impl::DeviceGuardImplRegistrar registrar(c10::kCUDA, &guard);
    auto &library =
        *new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__, __LINE__);
    provide(library, "empty", "memory_format", empty);
    provide(library, "empty_strided", "", empty_strided);
    provide(library, "as_strided", "", as_strided);
    provide(library, "view", "", view);
    provide(library, "copy_", "", copy);
    m.def("raw_stream",
          [](int device) { return static_cast<uintptr_t>(current[static_cast<c10::DeviceIndex>(device)]); });
    m.def("new_stream", [](int device) {
        const c10::Device on(c10::kCUDA, static_cast<c10::DeviceIndex>(device));
        return guard.getStreamFromGlobalPool(on, false).id();
    });
    m.def("set_stream", [](int device, int64_t stream) {
        const c10::Device on(c10::kCUDA, static_cast<c10::DeviceIndex>(device));
        guard.exchangeStream(c10::Stream(c10::Stream::UNSAFE, on, stream));
    });
    // Waits for the current stream.
    m.def("synchronize", [] { guard.synchronizeStream(guard.getStream(guard.getDevice())); });
    m.def("hold", [] {
        held = true;
        CUDA(cudaLaunchHostFunc(handle(guard.getStream(guard.getDevice())), hold_here, nullptr));
    });
    m.def("release", [] { held = false; });
}
