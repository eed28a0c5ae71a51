/* SPDX-License-Identifier: Apache-2.0 */
/* tests/emulated/memory.cc: the pretend device's memory.
 *
 * Each device has a range of addresses. Each allocation in it is a mapping of one memfd of the process,
 * between inaccessible pages. Addresses are used again soon, as on a GPU. Places in the memfd are never used
 * again: a process that still maps a freed allocation sees zeroes and not its successor. An allocation ends,
 * up to 256 bytes, where its last page ends: kernels and copies that go beyond it end the process with a
 * message. Another process maps an allocation through /proc/PID/fd: nothing is left over, however a process
 * ends. Fresh memory is 0xff (NaN) as far as FILL goes.
 *
 * With EMULATED_GUARD=1 only running kernels and copies may touch device memory: host code that dereferences
 * a device pointer ends then, as with a GPU. Allocations are closed, and each is opened when device code
 * first touches it, until nothing runs. */
#include "tests/emulated/machine.h"

#include <errno.h>
#include <fcntl.h>
#include <map>
#include <mutex>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace emulated
{

static const size_t PAGE = 4096, RANGE = (size_t)1 << 40, FILL = (size_t)4 << 20;
static const uint32_t MAGIC = 0x656d756d;

struct Allocation {
    Place place;
    int device;
    size_t bytes, mapped; /* asked for; mapped, without the guard */
    size_t lead;          /* pages' bytes before the allocation */
    off_t offset;         /* in the memfd */
    bool imported, registered;
    unsigned opened; /* times, of an import */
    uint64_t id;
    int pid;
    bool open = false; /* where host code is kept out: the device is at work there */
};

struct Memory {
    std::mutex lock;
    std::map<char *, Allocation> all;
    char *range[16] = {}; /* of device i */
    int fd = -1;
    off_t next_offset = 0;
    size_t used[16] = {};
    uint64_t next_id = 1;
    std::atomic<size_t> pinned{0};
    /* where host code is kept out: kernels and copies that run, and what they have touched so far */
    size_t touching = 0;
    std::vector<char *> open;
};

static Memory &memory(void)
{
    static Memory *it = new Memory(); /* threads may outlive main */
    return *it;
}

/* What cudaIpcGetMemHandle hands out. */
struct Handle {
    uint32_t magic;
    int pid, fd, device;
    uint64_t offset, bytes, id;
    uint32_t lead;
};
static_assert(sizeof(Handle) <= CUDA_IPC_HANDLE_SIZE, "fits");

static size_t round_up(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

static bool start_locked(Memory &m, int device)
{
    if (m.fd < 0) {
        m.fd = memfd_create("emulated-device", MFD_CLOEXEC);
        if (m.fd < 0 || ftruncate(m.fd, (off_t)RANGE * 16) != 0)
            return false;
    }
    if (m.range[device] == NULL) {
        void *at = mmap(NULL, RANGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at == MAP_FAILED)
            return false;
        m.range[device] = (char *)at;
    }
    return true;
}

static int device_of_address(Memory &m, const void *pointer)
{
    for (int i = 0; i < device_count(); i++)
        if (m.range[i] != NULL && (const char *)pointer >= m.range[i] &&
            (const char *)pointer < m.range[i] + RANGE)
            return i;
    return -1;
}

/* The first hole of the device's range that `bytes` and a guard fit into. */
static char *find_room(Memory &m, int device, size_t bytes)
{
    char *at = m.range[device] + PAGE; /* the first has a guard before it, too */
    for (auto it = m.all.lower_bound(at); it != m.all.end() && it->first < m.range[device] + RANGE; ++it) {
        char *pages = it->first - it->second.lead;
        if (at + bytes + PAGE <= pages)
            return at;
        at = pages + it->second.mapped + PAGE;
    }
    return at + bytes + PAGE <= m.range[device] + RANGE ? at : NULL;
}

static std::map<char *, Allocation>::iterator find_locked(Memory &m, const void *pointer)
{
    auto it = m.all.upper_bound((char *)pointer);
    if (it == m.all.begin())
        return m.all.end();
    --it;
    size_t bytes = it->second.bytes == 0 ? 1 : it->second.bytes;
    return (const char *)pointer < it->first + bytes ? it : m.all.end();
}

Where where(const void *pointer)
{
    Memory &m = memory();
    Where result = {Place::UNKNOWN, 0, NULL, 0, false};
    std::lock_guard<std::mutex> guard(m.lock);
    if (m.pinned.load() == 0 && device_of_address(m, pointer) < 0)
        return result;
    auto it = find_locked(m, pointer);
    if (it != m.all.end())
        result = {it->second.place, it->second.device, it->first, it->second.bytes, it->second.imported};
    return result;
}

size_t allocations(bool own)
{
    Memory &m = memory();
    size_t count = 0;
    std::lock_guard<std::mutex> guard(m.lock);
    for (auto &each : m.all)
        count += (each.second.place == Place::DEVICE && !each.second.imported) == own;
    return count;
}

bool inside(const void *pointer, size_t bytes)
{
    Memory &m = memory();
    Where w = where(pointer);
    if (w.place == Place::UNKNOWN) {
        std::lock_guard<std::mutex> guard(m.lock);
        return device_of_address(m, pointer) < 0; /* freed, or between two allocations */
    }
    return w.place == Place::PINNED || bytes <= w.bytes - (size_t)((const char *)pointer - w.base);
}

static bool guarded(void)
{
    static const char *const text = getenv("EMULATED_GUARD");
    static const bool on = text != NULL && text[0] == '1';
    return on;
}

static thread_local int touches; /* of this thread */

Touch::Touch()
{
    Memory &m = memory();
    if (!guarded())
        return;
    watch_segments(); /* whatever handler the program has made since */
    touches++;
    std::lock_guard<std::mutex> guard(m.lock);
    m.touching++;
}

Touch::~Touch()
{
    Memory &m = memory();
    if (!guarded())
        return;
    touches--;
    std::lock_guard<std::mutex> guard(m.lock);
    if (--m.touching > 0)
        return;
    for (char *each : m.open) {
        auto it = m.all.find(each);
        if (it != m.all.end() && it->second.open)
            mprotect(it->first - it->second.lead, it->second.mapped, PROT_NONE);
        if (it != m.all.end())
            it->second.open = false;
    }
    m.open.clear();
}

/* In a signal handler, of a thread that has stopped in device code or in a copy: it holds no lock. */
bool let_in(const void *address, bool device_code)
{
    Memory &m = memory();
    if (!guarded() || (!device_code && touches == 0) || device_of_address(m, address) < 0)
        return false;
    std::lock_guard<std::mutex> guard(m.lock);
    auto it = m.all.upper_bound((char *)address);
    if (it != m.all.end() && it->second.place == Place::DEVICE &&
        (const char *)address >= it->first - it->second.lead)
        ; /* in the pages before its beginning */
    else if (it == m.all.begin() || (--it)->second.place != Place::DEVICE ||
             (const char *)address >= it->first - it->second.lead + it->second.mapped)
        return false;
    if (!it->second.open) { /* else another thread has let it in meanwhile */
        it->second.open = true;
        m.open.push_back(it->first);
        mprotect(it->first - it->second.lead, it->second.mapped, PROT_READ | PROT_WRITE);
    }
    return true;
}

bool peek(const void *word, void *to, size_t bytes)
{
    Memory &m = memory();
    if (!guarded())
        return false;
    std::lock_guard<std::mutex> guard(m.lock);
    auto it = find_locked(m, word);
    if (it == m.all.end() || it->second.place != Place::DEVICE || it->second.imported)
        return false;
    const off_t at = it->second.offset + (off_t)it->second.lead + ((const char *)word - it->first);
    return pread(m.fd, to, bytes, at) == (ssize_t)bytes;
}

/* A new allocation, or import. */
static void close_now(char *pages, size_t mapped)
{
    if (guarded())
        mprotect(pages, mapped, PROT_NONE);
}

static cudaError_t allocate(int device, size_t bytes, void **pointer)
{
    Memory &m = memory();
    watch_segments();
    std::lock_guard<std::mutex> guard(m.lock);
    size_t mapped = round_up(bytes), lead = mapped - (bytes + 255) / 256 * 256;
    if (!start_locked(m, device))
        return cudaErrorMemoryAllocation;
    if (mapped < bytes || mapped > device_bytes() - m.used[device])
        return cudaErrorMemoryAllocation;
    char *at = find_room(m, device, mapped);
    if (at == NULL ||
        mmap(at, mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, m.fd, m.next_offset) != at)
        return cudaErrorMemoryAllocation;
    memset(at, 0xff, mapped < FILL ? mapped : FILL);
    close_now(at, mapped);
    m.all[at + lead] = {Place::DEVICE, device, bytes, mapped,      lead,    m.next_offset,
                        false,         false,  0,     m.next_id++, getpid()};
    m.next_offset += (off_t)mapped;
    m.used[device] += mapped;
    *pointer = at + lead;
    return cudaSuccess;
}

/* Makes these addresses inaccessible. */
static void unmap(char *at, size_t mapped)
{
    mmap(at, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

/* In a signal handler: no lock, since the failed thread may hold it; the table is read as it is. */
bool describe(const void *address, char *text, size_t bytes)
{
    Memory &m = memory();
    int device = device_of_address(m, address);
    if (device < 0)
        return false;
    auto it = m.all.upper_bound((char *)address);
    if (it == m.all.begin() || (--it)->second.place != Place::DEVICE)
        snprintf(text, bytes, "device memory that is not allocated");
    else
        snprintf(text, bytes,
                 "%td bytes from the beginning of an allocation of %zu, or in one that was freed",
                 (const char *)address - it->first, it->second.bytes);
    return true;
}

} // namespace emulated

using namespace emulated;

#define NOT_IN_HOST_FUNCTION \
    if (in_host_function)    \
        return fail(cudaErrorNotPermitted);

cudaError_t cudaMalloc(void **pointer, size_t bytes)
{
    NOT_IN_HOST_FUNCTION
    MAY_FAIL
    if (pointer == NULL)
        return fail(cudaErrorInvalidValue);
    if (any_capture_of_this_thread())
        return fail(cudaErrorStreamCaptureUnsupported);
    if (sticky() != cudaSuccess)
        return sticky();
    if (bytes == 0) {
        *pointer = NULL;
        return cudaSuccess;
    }
    cudaError_t rc = allocate(current_device(), bytes, pointer);
    return rc == cudaSuccess ? rc : fail(rc);
}

/* Waits for the device first, as cudaFree does. */
cudaError_t cudaFree(void *pointer)
{
    NOT_IN_HOST_FUNCTION
    if (pointer == NULL)
        return cudaSuccess;
    if (any_capture_of_this_thread())
        return fail(cudaErrorStreamCaptureUnsupported);
    cudaError_t rc = drain_all();
    Memory &m = memory();
    std::lock_guard<std::mutex> guard(m.lock);
    auto it = m.all.find((char *)pointer);
    if (it == m.all.end() || it->second.place != Place::DEVICE || it->second.imported) {
        say("cudaFree(%p): %s", pointer,
            it == m.all.end() ? "no allocation begins there (freed twice?)"
                              : "it is not this process's device memory");
        return fail(cudaErrorInvalidValue);
    }
    unmap(it->first - it->second.lead, it->second.mapped);
    fallocate(m.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, it->second.offset, (off_t)it->second.mapped);
    m.used[it->second.device] -= it->second.mapped;
    m.all.erase(it);
    return rc;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    MAY_FAIL
    Memory &m = memory();
    std::lock_guard<std::mutex> guard(m.lock);
    *total = device_bytes();
    *free_bytes = *total - m.used[current_device()];
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *pointer)
{
    if (sticky() != cudaSuccess)
        return sticky();
    Where w = where(pointer);
    memset(attributes, 0, sizeof(*attributes));
    if (w.place == Place::UNKNOWN) {
        attributes->type = cudaMemoryTypeUnregistered;
        attributes->device = -2;
        attributes->hostPointer = (void *)pointer;
        return cudaSuccess;
    }
    attributes->type = w.place == Place::DEVICE ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
    attributes->device = w.device;
    attributes->devicePointer = (void *)pointer;
    attributes->hostPointer = w.place == Place::DEVICE ? NULL : (void *)pointer;
    return cudaSuccess;
}

/* ---- host memory that the device reaches --------------------------------------------------------------- */
cudaError_t cudaHostAlloc(void **pointer, size_t bytes, unsigned)
{
    NOT_IN_HOST_FUNCTION
    MAY_FAIL
    if (any_capture_of_this_thread())
        return fail(cudaErrorStreamCaptureUnsupported);
    Memory &m = memory();
    size_t mapped = round_up(bytes == 0 ? 1 : bytes);
    if (sticky() != cudaSuccess)
        return sticky();
    void *at = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return fail(cudaErrorMemoryAllocation);
    std::lock_guard<std::mutex> guard(m.lock);
    m.all[(char *)at] = {Place::PINNED, current_device(), bytes, mapped, 0, 0, false, false, 0,
                         m.next_id++,   getpid()};
    m.pinned++;
    *pointer = at;
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **pointer, size_t bytes)
{
    return cudaHostAlloc(pointer, bytes, 0);
}

cudaError_t cudaFreeHost(void *pointer)
{
    NOT_IN_HOST_FUNCTION
    if (pointer == NULL)
        return cudaSuccess;
    if (any_capture_of_this_thread())
        return fail(cudaErrorStreamCaptureUnsupported);
    cudaError_t rc = drain_all();
    Memory &m = memory();
    std::lock_guard<std::mutex> guard(m.lock);
    auto it = m.all.find((char *)pointer);
    if (it == m.all.end() || it->second.place != Place::PINNED || it->second.registered)
        return fail(cudaErrorInvalidValue);
    munmap(it->first, it->second.mapped);
    m.all.erase(it);
    m.pinned--;
    return rc;
}

cudaError_t cudaHostRegister(void *pointer, size_t bytes, unsigned)
{
    NOT_IN_HOST_FUNCTION
    MAY_FAIL
    if (any_capture_of_this_thread())
        return fail(cudaErrorStreamCaptureUnsupported);
    Memory &m = memory();
    std::lock_guard<std::mutex> guard(m.lock);
    if (pointer == NULL || bytes == 0)
        return fail(cudaErrorInvalidValue);
    auto next = m.all.lower_bound((char *)pointer);
    if (find_locked(m, pointer) != m.all.end() ||
        (next != m.all.end() && next->first < (char *)pointer + bytes))
        return fail(cudaErrorHostMemoryAlreadyRegistered);
    m.all[(char *)pointer] = {Place::PINNED, current_device(), bytes, bytes, 0, 0, false, true, 0,
                              m.next_id++,   getpid()};
    m.pinned++;
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *pointer)
{
    NOT_IN_HOST_FUNCTION
    if (any_capture_of_this_thread())
        return fail(cudaErrorStreamCaptureUnsupported);
    cudaError_t rc = drain_all();
    Memory &m = memory();
    std::lock_guard<std::mutex> guard(m.lock);
    auto it = m.all.find((char *)pointer);
    if (it == m.all.end() || !it->second.registered)
        return fail(cudaErrorHostMemoryNotRegistered);
    m.all.erase(it);
    m.pinned--;
    return rc;
}

cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned)
{
    if (where(host).place != Place::PINNED)
        return fail(cudaErrorInvalidValue);
    *device = host;
    return cudaSuccess;
}

/* ---- between processes --------------------------------------------------------------------------------- */
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *pointer)
{
    open_current();
    MAY_FAIL
    Memory &m = memory();
    std::lock_guard<std::mutex> guard(m.lock);
    auto it = find_locked(m, pointer);
    if (it == m.all.end() || it->second.place != Place::DEVICE || it->second.imported)
        return fail(cudaErrorInvalidValue);
    const Allocation &a = it->second;
    Handle out = {MAGIC, getpid(), m.fd, a.device, (uint64_t)a.offset, a.bytes, a.id, (uint32_t)a.lead};
    memset(handle, 0, sizeof(*handle));
    memcpy(handle, &out, sizeof(out));
    return cudaSuccess;
}

/* The pointer is the allocation's beginning, wherever in it the handle was asked for. */
cudaError_t cudaIpcOpenMemHandle(void **pointer, cudaIpcMemHandle_t handle, unsigned)
{
    NOT_IN_HOST_FUNCTION
    MAY_FAIL
    if (any_capture_of_this_thread())
        return fail(cudaErrorStreamCaptureUnsupported);
    Memory &m = memory();
    Handle in;
    memcpy(&in, &handle, sizeof(in));
    if (in.magic != MAGIC || in.device < 0 || in.device >= device_count())
        return fail(cudaErrorInvalidValue);
    if (in.pid == getpid())
        return fail(cudaErrorDeviceUninitialized); /* CUDA opens no handle of the same process */
    if (in.device != current_device() && !peers_reach())
        return fail(cudaErrorPeerAccessUnsupported);
    std::lock_guard<std::mutex> guard(m.lock);
    for (auto &each : m.all)
        if (each.second.imported && each.second.pid == in.pid && each.second.id == in.id) {
            each.second.opened++;
            *pointer = each.first;
            return cudaSuccess;
        }
    if (!start_locked(m, in.device))
        return fail(cudaErrorMemoryAllocation);
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", in.pid, in.fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        say("cudaIpcOpenMemHandle: %s: %s", path, strerror(errno));
        return fail(cudaErrorMapBufferObjectFailed);
    }
    size_t mapped = round_up(in.bytes);
    char *at = find_room(m, in.device, mapped);
    if (at == NULL ||
        mmap(at, mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, (off_t)in.offset) != at) {
        close(fd);
        return fail(cudaErrorMapBufferObjectFailed);
    }
    close(fd);
    close_now(at, mapped);
    at += in.lead;
    m.all[at] = {Place::DEVICE, in.device, in.bytes, mapped, in.lead, (off_t)in.offset,
                 true,          false,     1,        in.id,  in.pid};
    *pointer = at;
    return cudaSuccess;
}

cudaError_t cudaIpcCloseMemHandle(void *pointer)
{
    NOT_IN_HOST_FUNCTION
    if (any_capture_of_this_thread())
        return fail(cudaErrorStreamCaptureUnsupported);
    cudaError_t rc = drain_all();
    Memory &m = memory();
    std::lock_guard<std::mutex> guard(m.lock);
    auto it = m.all.find((char *)pointer);
    if (it == m.all.end() || !it->second.imported) {
        say("cudaIpcCloseMemHandle(%p): no imported memory begins there", pointer);
        return fail(cudaErrorInvalidValue);
    }
    if (--it->second.opened == 0) {
        unmap(it->first - it->second.lead, it->second.mapped);
        m.all.erase(it);
    }
    return rc;
}

/* ---- a kernel's arguments ------------------------------------------------------------------------------ */
cudaError_t emulated_check_argument(const char *name, int index, const volatile void *pointer)
{
    const void *plain = (const void *)pointer;
    if (plain == NULL)
        return cudaSuccess;
    Where w = where(plain);
    if (w.place != Place::UNKNOWN)
        return cudaSuccess;
    /* One past an allocation's end is where an empty range begins. */
    if (where((const char *)plain - 1).place != Place::UNKNOWN)
        return cudaSuccess;
    say("kernel %s: argument %d, %p, is neither device memory nor mapped host memory", name, index, plain);
    return fail(cudaErrorIllegalAddress);
}
