// bindings/torch/work.hpp: what a call of PyTorch returns: an operation of the engine as PyTorch's work and its
// future.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensors.hpp"

#include <ATen/core/ivalue.h>

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

} // namespace gyre_torch
