// bindings/torch/engine.hpp: a communicator of Gyre that several threads of a PyTorch program use, and the
// work that is under way on it.
//
// A communicator takes calls from one thread at a time. A mutex sees to that. Operations start on the thread
// that asks for them. While some are under way, one thread drives them: a thread that waits for one of them,
// or, if no thread waits, a thread of the engine, which a timer wakes. So a call that waits at once never
// changes threads. The driver sleeps without the mutex, on the descriptor of the communicator (gyre_comm_arm)
// and on `kick`.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gyre/collectives.h>
#include <gyre/comm.h>

#include <torch/csrc/api/include/torch/version.h>
#if TORCH_VERSION_MAJOR >= 2
#include <torch/csrc/distributed/c10d/Backend.hpp>
#else
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#endif

#include <ATen/core/ivalue.h>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace gyre_torch
{

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;
using Tensors = std::vector<at::Tensor>;
using Requests = std::vector<gyre_request_t *>;

[[noreturn]] void fail(const std::string &text);

class Engine;

// One call of PyTorch: its requests, the tensors that they use, and what is left to do when they have
// finished.
class Work : public c10d::Work
{
  public:
    Work(std::shared_ptr<Engine> engine, int rank, c10d::OpType type, const char *call, Tensors inputs,
         Tensors outputs);
    bool wait(Milliseconds timeout) override; // 0: no limit but the deadline of the group
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
    Tensors result() override { return outputs_; }

    std::function<void()> after; // on success, before the work is complete; it throws if the result is wrong

  private:
    friend class Engine;
    bool test();     // with the engine's mutex: all requests have finished
    void complete(); // without it: runs `after`, wakes who waits, calls callbacks

    const std::shared_ptr<Engine> engine_;
    const char *const call_;
    Requests requests_;
    Tensors inputs_;
    Tensors outputs_;
    std::string error_;
    std::atomic<bool> finished_{false};
    const c10::intrusive_ptr<c10::ivalue::Future> future_;
};

class Engine : public std::enable_shared_from_this<Engine>
{
  public:
    // Starts the thread of the engine, which owns `comm` and ends it.
    static std::shared_ptr<Engine> create(gyre_comm_t *comm);
    ~Engine();

    // start(comm, requests) begins the operations of `work`: in a group, if there are several. Throws Gyre's
    // text.
    using Start = std::function<gyre_status_t(gyre_comm_t *, Requests &)>;
    void issue(const c10::intrusive_ptr<Work> &work, const Start &start, size_t requests = 1);
    // False: `until` has passed.
    bool wait(const Work &work, std::optional<Clock::time_point> until);
    // The thread of the engine ends the communicator when all work has finished, or some seconds have passed.
    // failing: the other ranks are not waited for, and get an error.
    void close(bool failing);
    // Waits for that end, of all engines of the process. False: it has not come in time.
    static bool close_all(bool failing, Milliseconds limit);

  private:
    explicit Engine(gyre_comm_t *comm);
    void run();
    void turn(std::unique_lock<std::mutex> &lock, Clock::time_point &spin,
              const std::optional<Clock::time_point> &until);
    void kick();
    void set_timer(long nanoseconds);

    std::mutex mutex_;
    std::condition_variable changed_;
    gyre_comm_t *const comm_;
    int comm_fd_ = -1;
    int kick_ = -1;
    int timer_ = -1;
    std::list<c10::intrusive_ptr<Work>> open_;
    bool driven_ = false; // a thread is in turn()
    bool asleep_ = false; // it sleeps on the descriptors
    bool timed_ = false;  // the timer will wake the thread of the engine
    bool closing_ = false;
    Clock::time_point closed_at_;
    bool ending_ = false; // in gyre_finalize
    bool ended_ = false;
};

} // namespace gyre_torch
