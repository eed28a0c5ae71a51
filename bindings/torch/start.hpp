// bindings/torch/start.hpp: how a call of a process group starts: on the CPU or on a device, by itself or with others.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "work.hpp"

#include <exception>

namespace gyre_torch
{

#if TORCH_VERSION_MAJOR >= 2
using Base = c10d::Backend;
#else
using Base = c10d::ProcessGroup;
#endif
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// A collective of the call `call` on `comm`, on the stream of the device or with request i.
#define GYRE(name, i, ...)                                                   \
    (call.stream() ? gyre_##name##_stream(__VA_ARGS__, comm, *call.stream()) \
                   : gyre_i##name(__VA_ARGS__, comm, &r[i]))

// What a process group has under way, and its calls start.
class Starter : public Base
{
  public:
    using Base::Base;
#if TORCH_VERSION_MAJOR >= 2
    // Calls between these two start at once, and the second one returns work that stands for all of them. This
    // one and abort are virtual from PyTorch 2.7 on, and so not marked as overriding.
    bool supportsCoalescing() const
    {
        return true;
    }
    void startCoalescing() override
    {
        coalesced_.clear(); // of an earlier one that an exception of the program has left without its end
        enqueued_.clear();
        messages_ = {};
        coalescing_ = true;
    }
    WorkPtr endCoalescing() override
    {
        Call call(*this, "coalesced calls");
        coalescing_ = false;
        WorkPtr messages;
        Tensors outputs;
        if (messages_.work || !enqueued_.empty())
            call.on(device_);
        if (messages_.work)
            messages = exchange(call);
        for (const auto &work : enqueued_)
            add(outputs, work->result());
        if (messages && enqueued_.empty())
            return messages;
        enqueued_.clear();
        std::vector<OperationPtr> parts;
        for (const auto &work : coalesced_) {
            parts.push_back(work->operation);
            add(outputs, work->result());
        }
        coalesced_.clear();
        return start(
            call, c10d::OpType::COALESCED, {}, outputs, [](auto, auto &) { return GYRE_OK; }, nullptr, 0,
            std::move(parts));
    }
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 3
    // device_id of init_process_group: the ranks meet on their devices at once. Virtual, where it is.
    void setBoundDeviceId(std::optional<at::Device> device)
    {
        Base::setBoundDeviceId(device);
        if (!device || !device->is_cuda() || prepared_)
            return;
        Call call(*this, "init_process_group");
        call.on(device_of(call, *device));
        start(call, c10d::OpType::UNKNOWN, {}, {},
              [](auto comm, auto &) { return gyre_comm_prepare_cuda(comm); });
    }
#endif
#endif

  protected:
    // A call of the program, by its name for errors. An exception that leaves it ends the coalescing of calls:
    // the program does not get to the end of it.
    class Call
    {
      public:
        Call(Starter &group, const char *name)
            : group_(group), name_(name), before_(std::uncaught_exceptions())
        {
        }
        Call(const Call &) = delete;
        Call &operator=(const Call &) = delete;
        ~Call()
        {
            if (std::uncaught_exceptions() == before_)
                return;
            group_.coalescing_ = false;
            group_.coalesced_.clear();
            group_.enqueued_.clear();
            group_.messages_ = {};
        }
        operator const char *() const { return name_; }
        // The call works on the device of `tensor`, which was checked.
        void on(const at::Tensor &tensor)
        {
            if (tensor.is_cuda())
                on(group_.device_of(name_, tensor.device()));
        }
        void on(const std::shared_ptr<Device> &device)
        {
            if (!on_)
                on_.emplace(name_, device);
        }
        // Null: on the CPU.
        std::shared_ptr<Device> device() const { return on_ ? on_->device : nullptr; }
        const gyre_cuda_stream_t *stream() const { return on_ ? &on_->device->handle : nullptr; }

      private:
        Starter &group_;
        const char *const name_;
        const int before_;
        std::optional<OnStream> on_;
    };

    WorkPtr start(const Call &call, c10d::OpType type, Tensors inputs, Tensors outputs,
                  const Engine::Start &begin, std::function<void()> after = nullptr, size_t requests = 1,
                  std::vector<OperationPtr> parts = {})
    {
        check_coalesced(call);
        if (const auto device = call.device()) {
            const auto work =
                c10::make_intrusive<DeviceWork>(engine_, device, rank_, type, call, inputs,
                                                std::move(outputs), type == c10d::OpType::BARRIER);
            enqueue(call, *work, begin, after);
            prepared_ = true;
            sequence_++;
            if (coalescing_)
                enqueued_.push_back(work);
            return work;
        }
        auto work = c10::make_intrusive<Work>(engine_, rank_, type, call, std::move(inputs),
                                              std::move(outputs), std::move(after));
        const auto operation = work->operation;
        operation->parts = std::move(parts);
        operation->complete = [work] { work->complete(); };
        try {
            engine_->issue(operation, begin, requests);
        } catch (...) {
            operation->complete = nullptr; // it holds the work, which holds the operation
            throw;
        }
        sequence_ += type != c10d::OpType::SEND && type != c10d::OpType::RECV;
        if (coalescing_)
            coalesced_.push_back(work);
        return work;
    }

    void check_coalesced(const Call &call) const
    {
        if (coalescing_ && (call.device() ? !coalesced_.empty() : messages_.work || !enqueued_.empty()))
            fail(text(call, "coalesced calls work on one device. End them before calls on another one"));
    }

    // On the device of the call; after: enqueues what follows there.
    void enqueue(const Call &call, DeviceWork &work, const Engine::Start &begin,
                 const std::function<void()> &after)
    {
        try {
            engine_->issue(work.operation, begin, 0);
            if (after)
                after();
            work.mark();
        } catch (...) {
            const auto device = call.device();
            device->guard.synchronizeStream(device->stream); // some of it may be under way
            work.give_up();
            throw;
        }
    }

    // Messages on a device: those of coalesced calls start together, and have one work.
    WorkPtr message(const Call &call, c10d::OpType type, const at::Tensor &t, int peer)
    {
        if (!prepared_)
            fail(text(call,
                      "the first call of a group on a device is one of all ranks. Give init_process_group a "
                      "device_id, or make a collective of CUDA tensors first"));
        check_coalesced(call);
        const auto stream = *call.stream();
        const auto kind = type_of(call, t);
        if (!messages_.work)
            messages_.work = c10::make_intrusive<DeviceWork>(engine_, call.device(), rank_, type, call,
                                                             Tensors(), Tensors(), false);
        messages_.work->use(t);
        messages_.calls.push_back([=](gyre_comm_t *comm) {
            return type == c10d::OpType::SEND
                       ? gyre_send_stream(t.data_ptr(), count_of(t), kind, peer, comm, stream)
                       : gyre_recv_stream(t.data_ptr(), count_of(t), kind, peer, comm, stream);
        });
        return coalescing_ ? WorkPtr(messages_.work) : exchange(call);
    }
    WorkPtr exchange(const Call &call)
    {
        const auto messages = std::move(messages_);
        messages_ = {};
        enqueue(
            call, *messages.work,
            [&](auto comm, auto &) {
                gyre_status_t status = gyre_group_start();
                for (size_t i = 0; i < messages.calls.size() && status == GYRE_OK; i++)
                    status = messages.calls[i](comm);
                const gyre_status_t end = gyre_group_end();
                return status == GYRE_OK ? end : status;
            },
            nullptr);
        return messages.work;
    }

    static void add(Tensors &all, const Tensors &more)
    {
        all.insert(all.end(), more.begin(), more.end());
    }

    std::shared_ptr<Device> device_of(const char *call, c10::Device device)
    {
        std::lock_guard<std::mutex> lock(device_mutex_);
        if (!device_)
            device_ = std::make_shared<Device>(device);
        if (device_->device != device)
            fail(text(call, "the tensor is on " + device.str() + ", and the group works on " +
                                device_->device.str() + ". Another device takes another group: new_group()"));
        return device_;
    }

    std::shared_ptr<Engine> engine_;
    std::atomic<uint64_t> sequence_{0};
    bool coalescing_ = false;
    std::vector<c10::intrusive_ptr<Work>> coalesced_;
    // The same on a device; of messages those that have not started.
    std::mutex device_mutex_;
    std::shared_ptr<Device> device_;
    std::atomic<bool> prepared_{false}; // all ranks have met on their devices
    std::vector<c10::intrusive_ptr<DeviceWork>> enqueued_;
    struct {
        c10::intrusive_ptr<DeviceWork> work;
        std::vector<std::function<gyre_status_t(gyre_comm_t *)>> calls;
    } messages_;
};

} // namespace gyre_torch
