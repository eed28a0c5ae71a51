// bindings/torch/engine.cpp: who drives a communicator, and when. engine.hpp has the idea.
// SPDX-License-Identifier: Apache-2.0
#include "engine.hpp"

#include <algorithm>
#include <poll.h>
#include <sched.h>
#include <stdexcept>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>

namespace gyre_torch
{

namespace
{

// Work that no thread waits for is first driven after this time.
constexpr long kUnwaited = 50'000; // ns
// A thread that waits looks so long before it sleeps.
constexpr auto kSpin = std::chrono::microseconds(50);
// Work on a device, and a communicator that has failed, wake no descriptor: a driver looks for both so often.
constexpr int kLook = 5; // ms
// Threads of an engine that are left idle next to one that is.
constexpr int kSpare = 1;
// Work that is under way when its group is destroyed has so long to finish.
constexpr auto kGrace = std::chrono::seconds(5);

struct All {
    std::mutex mutex;
    std::list<std::weak_ptr<Engine>> engines;
    std::atomic<int> completing{0}; // threads that complete work, and so may run Python
    std::atomic<bool> left{false};  // Python ends, and engines have not: their threads complete no more
    std::thread::id leaver;         // who ends it
};
All &all = *new All; // never destroyed: threads of engines may run until the process ends

// Python ends a thread that asks for its lock while it ends, in the middle of C++, which is the end of the process
// by std::terminate. So such threads stay here.
void stay_if_left()
{
    while (all.left && std::this_thread::get_id() != all.leaver)
        pause();
}

void drain(int fd)
{
    uint64_t count;
    while (read(fd, &count, sizeof count) > 0) {
    }
}

} // namespace

void fail(const std::string &text)
{
    throw std::runtime_error(text);
}

bool Operation::test()
{
    bool busy = false;
    for (auto &request : requests) {
        gyre_status_t status = gyre_test(&request);
        busy |= status == GYRE_IN_PROGRESS;
        if (status != GYRE_OK && status != GYRE_IN_PROGRESS && error.empty())
            error = std::string(call) + ": " + gyre_last_error();
    }
    for (const auto &part : parts)
        busy |= !part->finished;
    return !busy && (!reached || reached());
}

Engine::Engine(gyre_comm_t *comm, const std::shared_ptr<Engine> &parent)
    : comm_(comm), parent_(parent), process_(getpid())
{
}

void Engine::open()
{
    kick_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    timer_ = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (kick_ < 0 || timer_ < 0)
        fail("init_process_group: no descriptor is left. Raise the limit: ulimit -n");
    if (gyre_comm_fd(comm_, &comm_fd_) != GYRE_OK)
        fail(std::string("init_process_group: ") + gyre_last_error());
}

Engine::~Engine()
{
    if (kick_ >= 0)
        ::close(kick_);
    if (timer_ >= 0)
        ::close(timer_);
}

std::shared_ptr<Engine> Engine::create(gyre_comm_t *comm, const std::shared_ptr<Engine> &parent)
{
    std::shared_ptr<Engine> engine(new Engine(comm, parent));
    std::lock_guard<std::mutex> lock(all.mutex);
    all.engines.remove_if([](const std::weak_ptr<Engine> &e) { return e.expired(); });
    all.engines.push_back(engine);
    try {
        engine->open();
        engine->start_thread();
    } catch (...) { // no descriptor, or no thread: nobody else would end it
        gyre_comm_abort(comm, "a rank has no descriptor or thread for its process group");
        engine->end();
        throw;
    }
    return engine;
}

void Engine::kick()
{
    const uint64_t one = 1;
    if (write(kick_, &one, sizeof one) < 0) { // it is full of kicks already
    }
}

void Engine::set_timer(long nanoseconds)
{
    const itimerspec when = {{0, 0}, {0, nanoseconds}};
    timerfd_settime(timer_, 0, &when, nullptr);
    timed_ = nanoseconds > 0;
}

// With the mutex, or before others have the engine.
void Engine::start_thread()
{
    threads_++;
    coming_ = true;
    try {
        std::thread([engine = shared_from_this()] { engine->run(); }).detach();
    } catch (...) {
        threads_--;
        coming_ = false;
        throw;
    }
}

// With the mutex: somebody drives what is under way.
void Engine::see_to_it()
{
    if (idle() || driven_)
        return;
    if (!timed_)
        set_timer(kUnwaited);
    try {
        if (waiting_ == 0 && !coming_)
            start_thread();
    } catch (const std::system_error &) { // then those that there are do it, when they have completed theirs
    }
}

void Engine::issue(const OperationPtr &operation, const Start &start, size_t requests)
{
    std::lock_guard<std::mutex> lock(mutex_);
    if (closing_)
        fail(std::string(operation->call) + ": the process group was destroyed");
    operation->requests.assign(requests, nullptr);
    const bool group = requests > 1;
    gyre_status_t status = group ? gyre_group_start() : GYRE_OK;
    std::string text;
    if (status == GYRE_OK) {
        status = start(comm_, operation->requests);
        if (status != GYRE_OK)
            text = gyre_last_error();
        if (group) {
            gyre_status_t end = gyre_group_end();
            status = status == GYRE_OK ? end : status;
        }
    }
    if (status != GYRE_OK) {
        operation->requests.clear(); // none was started
        fail(std::string(operation->call) + ": " + (text.empty() ? gyre_last_error() : text.c_str()));
    }
    open_.push_back(operation);
    if (asleep_)
        kick(); // the descriptor was armed for less than what is under way now
    see_to_it();
}

// What has reached its end, one by one. A callback may start work and wait for it, or for a future: meanwhile
// any thread may drive, or complete the next one of reached_.
void Engine::complete(std::list<OperationPtr> &finished, std::unique_lock<std::mutex> &lock)
{
    const bool timed = timed_;
    while (!finished.empty()) {
        const auto operation = std::move(finished.front());
        finished.pop_front();
        see_to_it();
        changed_.notify_all();
        lock.unlock();
        all.completing++;
        if (all.left) {
            all.completing--;
            stay_if_left();
            all.completing++;
        }
        std::exchange(operation->complete, nullptr)();
        all.completing--;
        lock.lock();
    }
    if (timed_ && !timed && !closing_) // it was short: this thread goes on
        set_timer(0);
    if (asleep_)
        kick(); // that thread may wait for what was completed here
    changed_.notify_all();
}

bool Engine::look(const OperationPtr &operation)
{
    std::unique_lock<std::mutex> lock(mutex_);
    const auto at = std::find(open_.begin(), open_.end(), operation);
    if (at == open_.end() || !operation->test())
        return operation->finished;
    std::list<OperationPtr> own; // others could block this call
    own.splice(own.end(), open_, at);
    complete(own, lock);
    see_to_it();
    return operation->finished;
}

int Engine::longest() const
{
    for (const auto &operation : open_)
        if (operation->reached)
            return kLook;
    return 1000;
}

// One turn of the driver: completes what has finished, or sleeps until something has moved.
void Engine::turn(std::unique_lock<std::mutex> &lock, Clock::time_point &spin,
                  const std::optional<Clock::time_point> &until)
{
    for (auto next = open_.begin(); next != open_.end();) {
        const auto at = next++;
        if ((*at)->test())
            reached_.splice(reached_.end(), open_, at);
    }
    if (!reached_.empty()) {
        driven_ = false;
        complete(reached_, lock);
        return;
    }
    const auto now = Clock::now();
    const auto armed = now < spin ? GYRE_IN_PROGRESS : gyre_comm_arm(comm_);
    if (armed == GYRE_IN_PROGRESS) {
        lock.unlock();
        sched_yield();
        lock.lock();
    } else {
        // A communicator that has failed does not wake the descriptor. What another thread completes kicks.
        int limit = armed == GYRE_OK ? longest() : kLook;
        if (until)
            limit = std::max<int>(
                0, static_cast<int>(std::min<int64_t>(
                       limit, std::chrono::duration_cast<Milliseconds>(*until - now).count() + 1)));
        asleep_ = true;
        lock.unlock();
        pollfd fds[2] = {{armed == GYRE_OK ? comm_fd_ : -1, POLLIN, 0}, {kick_, POLLIN, 0}};
        poll(fds, 2, limit);
        drain(kick_);
        lock.lock();
        asleep_ = false;
    }
    driven_ = false;
}

bool Engine::wait(const Operation &operation, std::optional<Clock::time_point> until)
{
    std::unique_lock<std::mutex> lock(mutex_);
    auto spin = Clock::now() + kSpin;
    while (!operation.finished && !(until && Clock::now() >= *until)) {
        if (driven_) {
            if (until)
                changed_.wait_until(lock, *until);
            else
                changed_.wait(lock);
        } else {
            driven_ = true;
            turn(lock, spin, until);
        }
    }
    changed_.notify_all(); // another thread that waits drives from here on
    see_to_it();
    return operation.finished;
}

std::vector<std::shared_ptr<Engine>> Engine::children()
{
    std::vector<std::shared_ptr<Engine>> engines;
    std::lock_guard<std::mutex> lock(all.mutex);
    for (auto &weak : all.engines)
        if (auto engine = weak.lock())
            if (engine->parent_.get() == this)
                engines.push_back(engine);
    return engines;
}

void Engine::close(bool failing)
{
    if (process_ != getpid())
        return;
    for (auto &engine : children())
        engine->close(failing);
    std::lock_guard<std::mutex> lock(mutex_);
    if (ended_)
        return;
    if (failing && !ending_)
        gyre_comm_abort(comm_, "a rank exits after an exception");
    if (!closing_) {
        closing_ = true;
        closed_at_ = Clock::now();
    }
    set_timer(1);
}

// From here on only this thread completes work. It has not Python's lock, which others may wait for.
static void leave()
{
    const auto until = Clock::now() + kGrace;
    all.leaver = std::this_thread::get_id();
    all.left = true;
    while (all.completing > 0 && Clock::now() < until)
        std::this_thread::sleep_for(Milliseconds(1));
}

bool Engine::close_all(bool failing, Milliseconds limit)
{
    const auto until = Clock::now() + limit;
    std::vector<std::shared_ptr<Engine>> engines;
    {
        std::lock_guard<std::mutex> lock(all.mutex);
        for (auto &weak : all.engines)
            if (auto engine = weak.lock(); engine && engine->process_ == getpid())
                engines.push_back(engine);
    }
    for (auto &engine : engines)
        if (!engine->parent_)
            engine->close(failing);
    for (auto &engine : engines) {
        std::unique_lock<std::mutex> lock(engine->mutex_);
        if (!engine->changed_.wait_until(lock, until, [&] { return engine->ended_; })) {
            lock.unlock();
            leave();
            return false;
        }
    }
    return true;
}

void Engine::end()
{
    if (parent_)
        gyre_comm_destroy(comm_);
    else
        gyre_finalize(comm_);
}

// A thread of the engine. The last one ends the communicator.
void Engine::run()
{
    std::unique_lock<std::mutex> lock(mutex_);
    auto spin = Clock::now(); // it never spins: nobody waits
    coming_ = false;
    while (!closing_ || !idle()) {
        if (closing_ && Clock::now() - closed_at_ > kGrace)
            gyre_comm_abort(comm_, "its process group was destroyed with work under way");
        if (!driven_ && !idle()) {
            driven_ = true;
            turn(lock, spin, std::nullopt);
            continue;
        }
        if (waiting_ > kSpare)
            break;
        const int limit = closing_ ? 100 : -1;
        waiting_++;
        lock.unlock();
        pollfd fd = {timer_, POLLIN, 0};
        poll(&fd, 1, limit);
        stay_if_left();
        lock.lock();
        waiting_--;
        drain(timer_);
        timed_ = false;
    }
    if (--threads_ > 0) {
        if (closing_)
            set_timer(1); // for the next one
        return;
    }
    ending_ = true;
    lock.unlock();
    for (auto &engine : children()) {
        std::unique_lock<std::mutex> of_child(engine->mutex_);
        engine->changed_.wait(of_child, [&] { return engine->ended_; });
    }
    end();
    lock.lock();
    ended_ = true;
    changed_.notify_all();
}

} // namespace gyre_torch
