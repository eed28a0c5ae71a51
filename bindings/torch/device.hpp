// bindings/torch/device.hpp: the stream on which a group works on a device. Streams and events are those of
// PyTorch's interface for devices of any kind, so the package also builds and loads with a PyTorch that has no CUDA.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensors.hpp"

#include <c10/core/Event.h>
#include <gyre/cuda.h>
#include <pybind11/pybind11.h>

namespace gyre_torch
{

// Only newer versions of PyTorch can say so.
template <typename Guard>
auto is_captured(const Guard &guard, const c10::Stream &stream, int)
    -> decltype(guard.isStreamCapturing(stream))
{
    return guard.isStreamCapturing(stream);
}
template <typename Guard> bool is_captured(const Guard &, const c10::Stream &, long)
{
    return false;
}

struct Device {
    explicit Device(c10::Device d)
        : device(d), guard(*c10::impl::getDeviceGuardImpl(d.type())), stream(guard.getStreamFromGlobalPool(d))
    {
    }
    c10::Stream current() const { return guard.getStream(device); }
    // Of the current stream, as a stream of CUDA.
    gyre_cuda_stream_t native() const
    {
        pybind11::gil_scoped_acquire python;
        const auto get = pybind11::module_::import("torch._C").attr("_cuda_getCurrentRawStream");
        return reinterpret_cast<gyre_cuda_stream_t>(get(static_cast<int>(device.index())).cast<uintptr_t>());
    }

    const c10::Device device;
    const c10::impl::DeviceGuardImplInterface &guard;
    const c10::Stream stream; // of all calls of the group on the device
    gyre_cuda_stream_t handle = nullptr;
};

// While it lives, what this thread enqueues on the device goes to the stream of the group, after all that its
// current stream has until now.
class OnStream
{
  public:
    OnStream(const char *call, const std::shared_ptr<Device> &of)
        : device(of), stream_(device->current()), before_(device->guard.exchangeDevice(device->device))
    {
        try {
            if (is_captured(device->guard, stream_, 0))
                fail(text(
                    call,
                    "a CUDA graph cannot capture calls of the backend gyre. Call it outside of the graph"));
            c10::Event reached(device->device.type());
            reached.record(stream_);
            reached.block(device->stream);
            device->guard.exchangeStream(device->stream);
            if (!device->handle)
                device->handle = device->native();
        } catch (...) {
            end();
            throw;
        }
    }
    OnStream(const OnStream &) = delete;
    OnStream &operator=(const OnStream &) = delete;
    ~OnStream() { end(); }

    const std::shared_ptr<Device> device;

  private:
    void end() const
    {
        device->guard.exchangeStream(stream_);
        device->guard.uncheckedSetDevice(before_);
    }

    const c10::Stream stream_;
    const c10::Device before_;
};

} // namespace gyre_torch
