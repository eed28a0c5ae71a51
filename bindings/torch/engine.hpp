// bindings/torch/engine.hpp: a communicator of Gyre that several threads of a program use, and the operations
// that are under way on it. It knows nothing of PyTorch, whose headers take long to compile.
//
// A communicator takes calls from one thread at a time. A mutex sees to that. Operations start on the thread
// that asks for them. While some are under way, one thread drives them: a thread that waits for one of them,
// or, if no thread waits, a thread of the engine, which a timer wakes. So a call that waits at once never
// changes threads. The driver sleeps without the mutex, on the descriptor of the communicator (gyre_comm_arm)
// and on `kick`.
//
// What an operation completes may be a callback of the program that waits for the future of another
// operation, which drives nothing. So operations are completed one by one, without the mutex, and the timer
// runs meanwhile. Nobody knows whether a callback will wait. So if all threads of the engine complete
// operations and others are under way, a further thread starts. Two idle threads stay.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gyre/collectives.h>
#include <gyre/comm.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace gyre_torch
{

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;
using Requests = std::vector<gyre_request_t *>;

[[noreturn]] void fail(const std::string &text);

// A call under way: the requests of Gyre that it has started, and other calls that it stands for.
struct Operation {
    const char *call;
    std::vector<std::shared_ptr<Operation>> parts; // finished, before this one is
    std::function<void()> complete; // called once, without the engine's mutex; keeps what the requests use
    Requests requests;
    std::function<bool()> reached; // of work on a device: that has got to its end. It must not throw
    std::string error;             // the first one; empty: none
    std::atomic<bool> finished{false};
    bool test(); // with the engine's mutex: all requests and parts have finished
};
using OperationPtr = std::shared_ptr<Operation>;

class Engine : public std::enable_shared_from_this<Engine>
{
  public:
    // Starts a thread of the engine, which owns `comm` and ends it. parent: of its communicator `comm` was
    // made; null: `comm` is a job's.
    static std::shared_ptr<Engine> create(gyre_comm_t *comm, const std::shared_ptr<Engine> &parent);
    ~Engine();

    // start(comm, requests) begins the operation's requests: in a group, if there are several, so it must not
    // throw. Throws Gyre's text.
    using Start = std::function<gyre_status_t(gyre_comm_t *, Requests &)>;
    void issue(const OperationPtr &operation, const Start &start, size_t requests = 1);
    // False: `until` has passed.
    bool wait(const Operation &operation, std::optional<Clock::time_point> until);
    // For work on a device, which no call of Gyre drives: completes the operation, and no other one, if it
    // has got to its end. False: it has not, or another thread completes it now.
    bool look(const OperationPtr &operation);
    bool failed() const { return gyre_comm_error(comm_) != GYRE_OK; }
    // Whether any work has failed that is on a device, where failures end the communicator: Gyre's text, or empty.
    std::string failure() const { return failed() ? gyre_last_error() : ""; }
    // The last thread of the engine ends the communicator when all work has finished, or some seconds have
    // passed, and those that were made of it have ended.
    // failing: the other ranks are not waited for, and get an error.
    void close(bool failing);
    // When Python ends, without its lock: waits for that end, of all engines of the process. False: it has not
    // come in time, and from then on no other thread completes work.
    static bool close_all(bool failing, Milliseconds limit);

  private:
    Engine(gyre_comm_t *comm, const std::shared_ptr<Engine> &parent);
    void open(); // the descriptors; throws
    void complete(std::list<OperationPtr> &finished, std::unique_lock<std::mutex> &lock);
    int longest() const; // sleep of a driver, in ms
    void end();          // the communicator
    std::vector<std::shared_ptr<Engine>> children();
    void run();
    void start_thread();
    void see_to_it();
    void turn(std::unique_lock<std::mutex> &lock, Clock::time_point &spin,
              const std::optional<Clock::time_point> &until);
    void kick();
    void set_timer(long nanoseconds);

    std::mutex mutex_;
    std::condition_variable changed_;
    gyre_comm_t *const comm_;
    const std::shared_ptr<Engine> parent_;
    int comm_fd_ = -1;
    int kick_ = -1;
    int timer_ = -1;
    std::list<OperationPtr> open_;
    std::list<OperationPtr> reached_; // have finished, and are to be completed
    bool idle() const { return open_.empty() && reached_.empty(); }
    bool driven_ = false; // a thread is in turn()
    bool asleep_ = false; // it sleeps on the descriptors
    bool timed_ = false;  // the timer will wake a thread of the engine
    int threads_ = 0;     // of the engine
    int waiting_ = 0;     // those that the timer wakes
    bool coming_ = false; // one was started that is not among them yet
    bool closing_ = false;
    Clock::time_point closed_at_;
    bool ending_ = false; // in gyre_finalize or gyre_comm_destroy
    bool ended_ = false;
    const pid_t process_; // a child of fork has the engine, and not its threads
};

} // namespace gyre_torch
