// bindings/torch/work.hpp: what a call of PyTorch returns: an operation of the engine as PyTorch's work and its
// future. Work on the CPU has finished when wait() returns. Work on a device is ordered by streams.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device.hpp"

#include <ATen/core/ivalue.h>
#include <thread>

namespace gyre_torch
{

class Work : public c10d::Work
{
  public:
    // after: on success, before the work is complete; it throws if the result is wrong.
    Work(std::shared_ptr<Engine> engine, int rank, c10d::OpType type, const char *call, Tensors inputs,
         Tensors outputs, std::function<void()> after)
        : c10d::Work(rank, type, call), operation(std::make_shared<Operation>()), engine_(std::move(engine)),
          inputs_(std::move(inputs)), outputs_(std::move(outputs)), after_(std::move(after)),
          future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get())))
    {
        operation->call = call;
    }
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
    Tensors result() override { return outputs_; }
    // timeout 0: no limit but the deadline of the group.
    bool wait(Milliseconds timeout) override
    {
        std::optional<Clock::time_point> until;
        if (timeout.count() > 0)
            until = Clock::now() + timeout;
        if (!operation->finished && !engine_->wait(*operation, until))
            fail(text(operation->call, "it has not finished within the " + std::to_string(timeout.count()) +
                                           " ms that wait() was given. It goes on: wait again"));
        if (auto error = exception())
            std::rethrow_exception(error);
        return true;
    }
    // The end of the operation.
    void complete()
    {
        std::exception_ptr error;
        try {
            for (const auto &part : operation->parts)
                if (operation->error.empty())
                    operation->error = part->error;
            if (!operation->error.empty())
                fail(operation->error);
            if (after_)
                after_();
        } catch (const std::exception &e) {
            error = std::current_exception();
            operation->error = e.what();
        }
        after_ = nullptr;
        inputs_.clear();
        operation->parts.clear();
        finish(error);
        operation->finished = true;
        if (error)
            future_->setError(error);
        else
            future_->markCompleted(c10::IValue(outputs_));
    }

    const OperationPtr operation;

  private:
    const std::shared_ptr<Engine> engine_;
    Tensors inputs_;
    const Tensors outputs_;
    std::function<void()> after_;
    const c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// What a call on a device uses until the device has done it. It is not the work, which the program may drop before.
struct Flight {
    explicit Flight(c10::DeviceType type) : end(type) {}
    // On the stream of the group, when everything is enqueued.
    void mark(const Device &device)
    {
        end.record(device.stream);
        marked = true;
    }
    bool reached()
    {
        try {
            return marked && end.query();
        } catch (const std::exception &e) { // the device is of no use any more
            error = e.what();
            return true;
        }
    }
    // Memory of tensors may be used again in the order of the program's stream, which waits for the end.
    void release()
    {
        Tensors tensors;
        std::lock_guard<std::mutex> lock(mutex);
        tensors.swap(used);
    }

    c10::Event end;
    std::atomic<bool> marked{false};
    std::string error;
    std::mutex mutex;
    Tensors used;
};

class DeviceWork : public c10d::Work
{
  public:
    // blocks: wait() returns when the device has done the work.
    DeviceWork(std::shared_ptr<Engine> engine, std::shared_ptr<Device> device, int rank, c10d::OpType type,
               const char *call, const Tensors &inputs, Tensors outputs, bool blocks)
        : c10d::Work(rank, type, call), operation(std::make_shared<Operation>()), engine_(std::move(engine)),
          device_(std::move(device)), flight_(std::make_shared<Flight>(device_->device.type())),
          outputs_(std::move(outputs)), blocks_(blocks),
          future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                           std::vector<c10::Device>{device_->device}))
    {
        flight_->used = inputs;
        flight_->used.insert(flight_->used.end(), outputs_.begin(), outputs_.end());
        operation->call = call;
        operation->reached = [flight = flight_] { return flight->reached(); };
        operation->complete = [flight = flight_, of = operation.get(), engine = engine_] {
            const auto why = flight->error.empty() ? engine->failure() : flight->error;
            if (!why.empty())
                of->error = text(of->call, why);
            flight->release();
            of->finished = true;
        };
    }
    // The end of what was enqueued on the stream of the group, which is the current one.
    void mark()
    {
        flight_->mark(*device_);
        future_->markCompleted(c10::IValue(outputs_));
    }
    // Before it is enqueued: it uses the tensor, too.
    void use(const at::Tensor &tensor) { flight_->used.push_back(tensor); }
    // It was not enqueued, or not all of it.
    void give_up() { flight_->marked = true; }
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
    Tensors result() override { return outputs_; }
    bool isCompleted() override { return operation->finished || engine_->look(operation); }
    bool isSuccess() const override { return operation->finished && operation->error.empty(); }
    std::exception_ptr exception() const override
    {
        const bool failed = operation->finished && !operation->error.empty();
        return failed ? std::make_exception_ptr(std::runtime_error(operation->error)) : nullptr;
    }
    void synchronize() override { flight_->end.block(device_->current()); }
    // The current stream waits, and the thread does not, unless there is a timeout.
    bool wait(Milliseconds timeout) override
    {
        synchronize();
        const auto until = Clock::now() + timeout;
        while ((blocks_ || timeout.count() > 0) && !isCompleted()) {
            if (timeout.count() > 0 && Clock::now() >= until)
                fail(text(operation->call, "it has not finished within the " +
                                               std::to_string(timeout.count()) +
                                               " ms that wait() was given. It goes on: wait again"));
            std::this_thread::sleep_for(kNap);
        }
        if (auto error = exception())
            std::rethrow_exception(error);
        const auto why = operation->finished ? "" : engine_->failure();
        if (!why.empty())
            fail(text(operation->call, why));
        flight_->release();
        return true;
    }

    const OperationPtr operation;

  private:
    static constexpr auto kNap = std::chrono::microseconds(50);

    const std::shared_ptr<Engine> engine_;
    const std::shared_ptr<Device> device_;
    const std::shared_ptr<Flight> flight_;
    const Tensors outputs_;
    const bool blocks_;
    const c10::intrusive_ptr<c10::ivalue::Future> future_;
};

} // namespace gyre_torch
