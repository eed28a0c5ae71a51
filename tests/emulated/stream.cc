/* SPDX-License-Identifier: Apache-2.0 */
/* tests/emulated/stream.cc: streams, events, and the capture of streams into graphs.
 *
 * A stream is an OS thread that takes work from a queue, in order. Work of the legacy default stream and of
 * blocking streams waits for one another as CUDA says. One lock is over all queues, one condition says that
 * something went on.
 *
 * A capture keeps the work of its streams in the order of the calls, which is an order that all its
 * dependencies allow; a graph's launch runs it in that order on one stream. So branches of a graph do not run
 * at the same time here.
 *
 * Longer than 600 lines: streams, events and captures change each other's state under one lock. The lock is
 * this file's own. */
#include "tests/emulated/machine.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <errno.h>
#include <fcntl.h>
#include <map>
#include <mutex>
#include <set>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace emulated
{

struct Graph {
    std::vector<std::function<cudaError_t()>> nodes;
    cudaStream_t origin;
    unsigned long long id;
    bool broken = false;
    std::thread::id thread;
    cudaStreamCaptureMode mode;
    std::set<cudaStream_t> members;
};

typedef std::map<cudaStream_t, size_t> Cover; /* how much of each captured stream comes before */

/* What a recorded event stands for. */
struct Record {
    bool done = false;
    double at_ms = 0;
    std::shared_ptr<Graph> graph; /* recorded in a capture */
    Cover cover;
};

struct Item {
    std::function<cudaError_t()> run;
    std::vector<std::pair<cudaStream_t, uint64_t>> after;
};

/* A page that processes share: the event was recorded so many times, and so many of them have happened. */
struct Shared {
    std::atomic<uint64_t> recorded, happened;
};

static double now_ms(void)
{
    using namespace std::chrono;
    return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

} // namespace emulated

using namespace emulated;

struct CUstream_st {
    int device, priority;
    unsigned flags;
    std::deque<Item> queue;
    std::condition_variable work;
    uint64_t queued = 0, done = 0;
    bool started = false, closing = false, legacy = false;
    std::shared_ptr<Graph> capture;
    size_t captured = 0;
    Cover cover;
};

struct CUevent_st {
    unsigned flags;
    int device;
    std::shared_ptr<Record> record;
    Shared *shared = NULL;
    int fd = -1;
};

struct CUgraph_st {
    std::shared_ptr<Graph> graph;
};

struct CUgraphExec_st {
    std::vector<std::function<cudaError_t()>> nodes;
};

namespace emulated
{

struct Streams {
    std::mutex lock;
    std::condition_variable progress;
    std::set<cudaStream_t> live, ending; /* destroyed, and still have work */
    std::set<cudaEvent_t> events;
    std::set<cudaGraph_t> graphs;
    std::set<cudaGraphExec_t> execs;
    cudaStream_t legacy[16] = {};
    int captures = 0;
    unsigned long long begun = 0; /* captures so far */
    unsigned long long given = 0; /* emulated_given */
};

static Streams &all(void)
{
    static Streams *it = new Streams(); /* streams' threads outlive main */
    return *it;
}

typedef std::unique_lock<std::mutex> Lock;

/* A destroyed stream's object stays: others may wait for what it did. They are few. */
static void serve(cudaStream_t stream)
{
    Streams &s = all();
    Lock lock(s.lock);
    for (;;) {
        stream->work.wait(lock, [&] { return !stream->queue.empty() || stream->closing; });
        if (stream->queue.empty()) {
            s.ending.erase(stream);
            return;
        }
        Item item = std::move(stream->queue.front());
        stream->queue.pop_front();
        for (auto &each : item.after)
            s.progress.wait(lock, [&] { return each.first->done >= each.second; });
        lock.unlock();
        if (sticky() == cudaSuccess) {
            cudaError_t rc = item.run();
            if (rc != cudaSuccess)
                set_sticky(rc);
        }
        item.run = nullptr; /* frees what it holds before waiters are woken */
        lock.lock();
        stream->done++;
        s.progress.notify_all();
    }
}

static cudaStream_t make_stream(int device, unsigned flags, int priority)
{
    cudaStream_t stream = new CUstream_st();
    stream->device = device;
    stream->flags = flags;
    stream->priority = priority;
    return stream;
}

/* The stream that a handle names, or NULL. */
static cudaStream_t find(Streams &s, cudaStream_t handle)
{
    if (handle == NULL || handle == cudaStreamLegacy) {
        int device = current_device();
        if (s.legacy[device] == NULL) {
            s.legacy[device] = make_stream(device, cudaStreamDefault, 0);
            s.legacy[device]->legacy = true;
        }
        return s.legacy[device];
    }
    return s.live.count(handle) != 0 ? handle : NULL;
}

static bool blocking(cudaStream_t stream)
{
    return stream->legacy || !(stream->flags & cudaStreamNonBlocking);
}

static void push(Streams &s, cudaStream_t stream, std::function<cudaError_t()> run)
{
    Item item;
    item.run = std::move(run);
    if (stream->legacy) {
        for (cudaStream_t each : s.live)
            if (each->device == stream->device && blocking(each) && each->done < each->queued)
                item.after.push_back({each, each->queued});
    } else if (blocking(stream) && s.legacy[stream->device] != NULL) {
        cudaStream_t legacy = s.legacy[stream->device];
        if (legacy->done < legacy->queued)
            item.after.push_back({legacy, legacy->queued});
    }
    stream->queue.push_back(std::move(item));
    stream->queued++;
    if (!stream->started) {
        stream->started = true;
        std::thread(serve, stream).detach();
    }
    stream->work.notify_one();
}

static cudaError_t enqueue_locked(Streams &s, cudaStream_t stream, std::function<cudaError_t()> run)
{
    if (sticky() != cudaSuccess)
        return sticky();
    if (stream->capture != NULL) {
        if (stream->capture->broken)
            return fail(cudaErrorStreamCaptureInvalidated);
        stream->capture->nodes.push_back(std::move(run));
        stream->captured++;
        return cudaSuccess;
    }
    if (stream->legacy && s.captures > 0)
        for (cudaStream_t each : s.live)
            if (each->capture != NULL && blocking(each)) {
                each->capture->broken = true;
                return fail(cudaErrorStreamCaptureImplicit);
            }
    s.given++;
    push(s, stream, std::move(run));
    return cudaSuccess;
}

cudaError_t enqueue(cudaStream_t handle, const char *what, std::function<cudaError_t()> run)
{
    Streams &s = all();
    if (in_host_function) {
        say("%s from a host function of a stream, where no CUDA call may be made", what);
        return fail(cudaErrorNotPermitted);
    }
    Lock lock(s.lock);
    cudaStream_t stream = find(s, handle);
    if (stream == NULL) {
        say("%s on stream %p, which does not exist (destroyed?)", what, (void *)handle);
        return fail(cudaErrorInvalidResourceHandle);
    }
    return enqueue_locked(s, stream, std::move(run));
}

static cudaError_t drain(Lock &lock, Streams &s, cudaStream_t stream)
{
    uint64_t until = stream->queued;
    s.progress.wait(lock, [&] { return stream->done >= until; });
    return sticky();
}

cudaError_t drain_all(void)
{
    Streams &s = all();
    Lock lock(s.lock);
    std::vector<cudaStream_t> streams(s.live.begin(), s.live.end());
    streams.insert(streams.end(), s.ending.begin(), s.ending.end());
    for (cudaStream_t each : s.legacy)
        if (each != NULL)
            streams.push_back(each);
    for (cudaStream_t each : streams)
        drain(lock, s, each);
    return sticky();
}

static thread_local cudaStreamCaptureMode this_threads_mode = cudaStreamCaptureModeGlobal;

/* Whether a call that is not safe while streams are captured may not be made by this thread now. If so the
 * captures are broken. */
static bool unsafe_now(Streams &s)
{
    bool refused = false;
    if (s.captures == 0 || this_threads_mode == cudaStreamCaptureModeRelaxed)
        return false;
    for (cudaStream_t each : s.live) {
        Graph *graph = each->capture.get();
        if (graph == NULL || graph->mode == cudaStreamCaptureModeRelaxed)
            continue;
        if (graph->thread == std::this_thread::get_id() ||
            (graph->mode == cudaStreamCaptureModeGlobal &&
             this_threads_mode == cudaStreamCaptureModeGlobal)) {
            graph->broken = true;
            refused = true;
        }
    }
    return refused;
}

bool any_capture_of_this_thread(void)
{
    Streams &s = all();
    Lock lock(s.lock);
    return unsafe_now(s);
}

bool captured(cudaStream_t handle)
{
    Streams &s = all();
    Lock lock(s.lock);
    cudaStream_t stream = find(s, handle);
    return stream != NULL && stream->capture != NULL;
}

void break_capture(cudaStream_t handle)
{
    Streams &s = all();
    Lock lock(s.lock);
    cudaStream_t stream = find(s, handle);
    if (stream != NULL && stream->capture != NULL)
        stream->capture->broken = true;
}

size_t handles(void)
{
    Streams &s = all();
    Lock lock(s.lock);
    return s.live.size() + s.events.size() + s.graphs.size() + s.execs.size();
}

} // namespace emulated

/* Calls of the host that gave work to streams so far: a kernel, a copy, an event's record or wait, a graph's
 * launch is one each. What is captured was given to a graph. */
extern "C" unsigned long long emulated_given(void)
{
    Streams &s = all();
    Lock lock(s.lock);
    return s.given;
}

/* Events that have not been destroyed. */
extern "C" unsigned long long emulated_events(void)
{
    Streams &s = all();
    Lock lock(s.lock);
    return s.events.size();
}

#define NOT_IN_HOST_FUNCTION \
    if (in_host_function)    \
        return fail(cudaErrorNotPermitted);

/* ---- streams ------------------------------------------------------------------------------------------- */
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority)
{
    NOT_IN_HOST_FUNCTION
    MAY_FAIL
    Streams &s = all();
    if (sticky() != cudaSuccess)
        return sticky();
    Lock lock(s.lock);
    *out = make_stream(current_device(), flags, priority < -5 ? -5 : priority > 0 ? 0 : priority);
    s.live.insert(*out);
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    return cudaStreamCreateWithPriority(out, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t *out)
{
    return cudaStreamCreateWithPriority(out, cudaStreamDefault, 0);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    MAY_FAIL
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaStreamGetPriority(cudaStream_t handle, int *priority)
{
    Streams &s = all();
    Lock lock(s.lock);
    cudaStream_t stream = find(s, handle);
    if (stream == NULL)
        return fail(cudaErrorInvalidResourceHandle);
    *priority = stream->priority;
    return cudaSuccess;
}

cudaError_t cudaStreamGetDevice(cudaStream_t handle, int *device)
{
    Streams &s = all();
    Lock lock(s.lock);
    cudaStream_t stream = find(s, handle);
    if (stream == NULL)
        return fail(cudaErrorInvalidResourceHandle);
    *device = stream->device;
    return cudaSuccess;
}

/* The work that it holds is still done. */
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    open_current();
    NOT_IN_HOST_FUNCTION
    Streams &s = all();
    Lock lock(s.lock);
    if (s.live.erase(stream) == 0) {
        say("cudaStreamDestroy(%p): there is no such stream (destroyed twice?)", (void *)stream);
        return fail(cudaErrorInvalidResourceHandle);
    }
    stream->closing = true;
    if (stream->started)
        s.ending.insert(stream);
    stream->work.notify_one();
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle)
{
    NOT_IN_HOST_FUNCTION
    MAY_FAIL
    Streams &s = all();
    Lock lock(s.lock);
    cudaStream_t stream = find(s, handle);
    if (stream == NULL)
        return fail(cudaErrorInvalidResourceHandle);
    if (stream->capture != NULL) {
        stream->capture->broken = true;
        return fail(cudaErrorStreamCaptureUnsupported);
    }
    if (unsafe_now(s))
        return fail(cudaErrorStreamCaptureUnsupported);
    if (stream->legacy) /* it waits for the blocking ones, too */
        push(s, stream, [] { return cudaSuccess; });
    return drain(lock, s, stream);
}

cudaError_t cudaStreamQuery(cudaStream_t handle)
{
    open_current();
    NOT_IN_HOST_FUNCTION
    Streams &s = all();
    Lock lock(s.lock);
    cudaStream_t stream = find(s, handle);
    if (stream == NULL)
        return fail(cudaErrorInvalidResourceHandle);
    if (stream->capture != NULL) {
        stream->capture->broken = true;
        return fail(cudaErrorStreamCaptureUnsupported);
    }
    if (unsafe_now(s))
        return fail(cudaErrorStreamCaptureUnsupported);
    if (sticky() != cudaSuccess)
        return sticky();
    return stream->done == stream->queued ? cudaSuccess : fail(cudaErrorNotReady);
}

cudaError_t cudaDeviceSynchronize(void)
{
    NOT_IN_HOST_FUNCTION
    MAY_FAIL
    if (any_capture_of_this_thread())
        return fail(cudaErrorStreamCaptureUnsupported);
    return drain_all();
}

/* ---- events -------------------------------------------------------------------------------------------- */
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    NOT_IN_HOST_FUNCTION
    MAY_FAIL
    Streams &s = all();
    if (sticky() != cudaSuccess)
        return sticky();
    if ((flags & cudaEventInterprocess) && !(flags & cudaEventDisableTiming))
        return fail(cudaErrorInvalidValue);
    cudaEvent_t event = new CUevent_st();
    event->flags = flags;
    event->device = current_device();
    if (flags & cudaEventInterprocess) {
        event->fd = memfd_create("emulated-event", MFD_CLOEXEC);
        void *at = MAP_FAILED;
        if (event->fd >= 0 && ftruncate(event->fd, 4096) == 0)
            at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, event->fd, 0);
        if (at == MAP_FAILED) {
            if (event->fd >= 0)
                close(event->fd);
            delete event;
            return fail(cudaErrorMemoryAllocation);
        }
        event->shared = (Shared *)at;
    }
    Lock lock(s.lock);
    s.events.insert(event);
    *out = event;
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *out)
{
    return cudaEventCreateWithFlags(out, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    open_current();
    NOT_IN_HOST_FUNCTION
    Streams &s = all();
    Lock lock(s.lock);
    if (s.events.erase(event) == 0) {
        say("cudaEventDestroy(%p): there is no such event (destroyed twice?)", (void *)event);
        return fail(cudaErrorInvalidResourceHandle);
    }
    /* The shared page stays mapped: work in a queue may still write to it. The descriptor is what is
     * scarce. */
    if (event->fd >= 0)
        close(event->fd);
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle)
{
    NOT_IN_HOST_FUNCTION
    MAY_FAIL
    Streams &s = all();
    Lock lock(s.lock);
    cudaStream_t stream = find(s, handle);
    if (stream == NULL || s.events.count(event) == 0)
        return fail(cudaErrorInvalidResourceHandle);
    if (event->device != stream->device)
        return fail(cudaErrorInvalidResourceHandle);
    auto record = std::make_shared<Record>();
    if (stream->capture != NULL) {
        if (event->shared != NULL)
            return fail(cudaErrorStreamCaptureUnsupported);
        record->graph = stream->capture;
        record->cover = stream->cover;
        record->cover[stream] = stream->captured;
        event->record = record;
        return cudaSuccess;
    }
    Shared *shared = event->shared;
    uint64_t turn = shared != NULL ? shared->recorded.fetch_add(1) + 1 : 0;
    event->record = record;
    return enqueue_locked(s, stream, [record, shared, turn] {
        if (shared != NULL && shared->happened.load() < turn)
            shared->happened.store(turn);
        Lock inner(all().lock);
        record->done = true;
        record->at_ms = now_ms();
        all().progress.notify_all();
        return cudaSuccess;
    });
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned)
{
    return cudaEventRecord(event, stream);
}

static cudaError_t wait_shared(Shared *shared, uint64_t turn)
{
    for (unsigned round = 0; shared->happened.load() < turn && sticky() == cudaSuccess; round++)
        usleep(round < 100 ? 10 : round < 1000 ? 100 : 1000);
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned)
{
    NOT_IN_HOST_FUNCTION
    MAY_FAIL
    Streams &s = all();
    Lock lock(s.lock);
    cudaStream_t stream = find(s, handle);
    if (stream == NULL || s.events.count(event) == 0)
        return fail(cudaErrorInvalidResourceHandle);
    if (event->shared != NULL) {
        Shared *shared = event->shared;
        uint64_t turn = shared->recorded.load();
        return enqueue_locked(s, stream, [shared, turn] { return wait_shared(shared, turn); });
    }
    auto record = event->record;
    if (record == NULL)
        return cudaSuccess; /* never recorded: nothing to wait for */
    if (record->graph != NULL) {
        if (stream->capture == NULL) { /* it joins the capture */
            stream->capture = record->graph;
            stream->captured = 0;
            stream->cover.clear();
            record->graph->members.insert(stream);
        } else if (stream->capture != record->graph) {
            return fail(cudaErrorStreamCaptureIsolation);
        }
        for (auto &each : record->cover)
            if (stream->cover[each.first] < each.second)
                stream->cover[each.first] = each.second;
        return cudaSuccess;
    }
    if (stream->capture != NULL) { /* waits for work outside of the capture */
        stream->capture->broken = true;
        return fail(cudaErrorStreamCaptureIsolation);
    }
    if (record->done)
        return cudaSuccess;
    return enqueue_locked(s, stream, [record] {
        Lock inner(all().lock);
        all().progress.wait(inner, [&] { return record->done || sticky() != cudaSuccess; });
        return cudaSuccess;
    });
}

/* An event that a capture holds happens whenever its graph runs: it cannot be queried, and a query breaks the
 * capture. */
static cudaError_t ask_captured(Record &record)
{
    record.graph->broken = true;
    return fail(cudaErrorCapturedEvent);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    open_current();
    NOT_IN_HOST_FUNCTION
    Streams &s = all();
    Lock lock(s.lock);
    if (s.events.count(event) == 0)
        return fail(cudaErrorInvalidResourceHandle);
    if (unsafe_now(s))
        return fail(cudaErrorStreamCaptureUnsupported);
    if (sticky() != cudaSuccess)
        return sticky();
    if (event->shared != NULL)
        return event->shared->happened.load() >= event->shared->recorded.load() ? cudaSuccess
                                                                                : fail(cudaErrorNotReady);
    if (event->record == NULL)
        return cudaSuccess;
    if (event->record->graph != NULL)
        return ask_captured(*event->record);
    return event->record->done ? cudaSuccess : fail(cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    open_current();
    NOT_IN_HOST_FUNCTION
    MAY_FAIL
    Streams &s = all();
    Lock lock(s.lock);
    if (s.events.count(event) == 0)
        return fail(cudaErrorInvalidResourceHandle);
    if (unsafe_now(s))
        return fail(cudaErrorStreamCaptureUnsupported);
    if (event->shared != NULL) {
        Shared *shared = event->shared;
        uint64_t turn = shared->recorded.load();
        lock.unlock();
        wait_shared(shared, turn);
        return sticky();
    }
    auto record = event->record;
    if (record == NULL)
        return cudaSuccess;
    if (record->graph != NULL)
        return ask_captured(*record);
    s.progress.wait(lock, [&] { return record->done || sticky() != cudaSuccess; });
    return sticky();
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    Streams &s = all();
    Lock lock(s.lock);
    if (s.events.count(from) == 0 || s.events.count(to) == 0 ||
        ((from->flags | to->flags) & cudaEventDisableTiming) || from->record == NULL || to->record == NULL)
        return fail(cudaErrorInvalidResourceHandle);
    if (from->record->graph != NULL || to->record->graph != NULL)
        return ask_captured(from->record->graph != NULL ? *from->record : *to->record);
    if (!from->record->done || !to->record->done)
        return fail(cudaErrorNotReady);
    *ms = (float)(to->record->at_ms - from->record->at_ms);
    return cudaSuccess;
}

static const uint32_t EVENT_MAGIC = 0x656d6576;
struct EventHandle {
    uint32_t magic;
    int pid, fd, device;
};

cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t *handle, cudaEvent_t event)
{
    MAY_FAIL
    Streams &s = all();
    Lock lock(s.lock);
    if (s.events.count(event) == 0 || event->fd < 0)
        return fail(cudaErrorInvalidResourceHandle);
    EventHandle out = {EVENT_MAGIC, getpid(), event->fd, event->device};
    memset(handle, 0, sizeof(*handle));
    memcpy(handle, &out, sizeof(out));
    return cudaSuccess;
}

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t *out, cudaIpcEventHandle_t handle)
{
    MAY_FAIL
    Streams &s = all();
    EventHandle in;
    memcpy(&in, &handle, sizeof(in));
    if (in.magic != EVENT_MAGIC)
        return fail(cudaErrorInvalidResourceHandle);
    if (in.pid == getpid())
        return fail(cudaErrorDeviceUninitialized);
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", in.pid, in.fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    void *at = fd < 0 ? MAP_FAILED : mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    if (at == MAP_FAILED) {
        say("cudaIpcOpenEventHandle: %s: %s", path, strerror(errno));
        return fail(cudaErrorMapBufferObjectFailed);
    }
    cudaEvent_t event = new CUevent_st();
    event->flags = cudaEventDisableTiming | cudaEventInterprocess;
    event->device = current_device();
    event->shared = (Shared *)at;
    Lock lock(s.lock);
    s.events.insert(event);
    *out = event;
    return cudaSuccess;
}

/* A graph's kernels are there already. */
cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t)
{
    MAY_FAIL
    return exec != NULL ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    open_current();
    std::swap(*mode, this_threads_mode);
    return cudaSuccess;
}

/* ---- graphs -------------------------------------------------------------------------------------------- */
cudaError_t cudaStreamBeginCapture(cudaStream_t handle, enum cudaStreamCaptureMode mode)
{
    NOT_IN_HOST_FUNCTION
    MAY_FAIL
    Streams &s = all();
    Lock lock(s.lock);
    cudaStream_t stream = find(s, handle);
    if (stream == NULL)
        return fail(cudaErrorInvalidResourceHandle);
    if (stream->legacy)
        return fail(cudaErrorStreamCaptureUnsupported);
    if (stream->capture != NULL)
        return fail(cudaErrorIllegalState);
    stream->capture = std::make_shared<Graph>();
    stream->capture->origin = stream;
    stream->capture->id = ++s.begun;
    stream->capture->mode = mode;
    stream->capture->thread = std::this_thread::get_id();
    stream->capture->members.insert(stream);
    stream->captured = 0;
    stream->cover.clear();
    s.captures++;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *out)
{
    NOT_IN_HOST_FUNCTION
    Streams &s = all();
    Lock lock(s.lock);
    cudaStream_t stream = find(s, handle);
    *out = NULL;
    if (stream == NULL)
        return fail(cudaErrorInvalidResourceHandle);
    if (stream->capture == NULL)
        return fail(cudaErrorIllegalState);
    auto graph = stream->capture;
    if (graph->origin != stream)
        return fail(cudaErrorStreamCaptureUnmatched);
    if (graph->mode != cudaStreamCaptureModeRelaxed && graph->thread != std::this_thread::get_id())
        return fail(cudaErrorStreamCaptureWrongThread);
    bool joined = true;
    for (cudaStream_t each : graph->members) {
        if (each != stream && s.live.count(each) != 0 && stream->cover[each] < each->captured)
            joined = false;
        each->capture = NULL;
    }
    s.captures--;
    if (graph->broken)
        return fail(cudaErrorStreamCaptureInvalidated);
    if (!joined)
        return fail(cudaErrorStreamCaptureUnjoined);
    *out = new CUgraph_st{graph};
    s.graphs.insert(*out);
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, enum cudaStreamCaptureStatus *status)
{
    Streams &s = all();
    Lock lock(s.lock);
    cudaStream_t stream = find(s, handle);
    if (stream == NULL)
        return fail(cudaErrorInvalidResourceHandle);
    *status = stream->capture == NULL   ? cudaStreamCaptureStatusNone
              : stream->capture->broken ? cudaStreamCaptureStatusInvalidated
                                        : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, enum cudaStreamCaptureStatus *status,
                                     unsigned long long *id, cudaGraph_t *, const cudaGraphNode_t **,
                                     const cudaGraphEdgeData **, size_t *)
{
    const cudaError_t rc = cudaStreamIsCapturing(handle, status);
    if (rc != cudaSuccess || *status != cudaStreamCaptureStatusActive)
        return rc;
    Streams &s = all();
    Lock lock(s.lock);
    *id = find(s, handle)->capture->id;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long)
{
    MAY_FAIL
    Streams &s = all();
    Lock lock(s.lock);
    if (s.graphs.count(graph) == 0)
        return fail(cudaErrorInvalidValue);
    *out = new CUgraphExec_st{graph->graph->nodes};
    s.execs.insert(*out);
    return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count)
{
    Streams &s = all();
    Lock lock(s.lock);
    if (s.graphs.count(graph) == 0)
        return fail(cudaErrorInvalidValue);
    if (nodes != NULL)
        return fail(cudaErrorNotSupported); /* they are counted here, no more */
    *count = graph->graph->nodes.size();
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t handle)
{
    NOT_IN_HOST_FUNCTION
    MAY_FAIL
    Streams &s = all();
    Lock lock(s.lock);
    cudaStream_t stream = find(s, handle);
    if (stream == NULL || s.execs.count(exec) == 0)
        return fail(stream == NULL ? cudaErrorInvalidResourceHandle : cudaErrorInvalidValue);
    auto nodes = exec->nodes;
    return enqueue_locked(s, stream, [nodes] {
        for (auto &each : nodes) {
            cudaError_t rc = each();
            if (rc != cudaSuccess)
                return rc;
        }
        return cudaSuccess;
    });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    Streams &s = all();
    Lock lock(s.lock);
    if (s.graphs.erase(graph) == 0)
        return fail(cudaErrorInvalidValue);
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    Streams &s = all();
    Lock lock(s.lock);
    if (s.execs.erase(exec) == 0)
        return fail(cudaErrorInvalidValue);
    delete exec;
    return cudaSuccess;
}
