/* comm/recorder.c: the flight recorder's slots. See recorder.h. */
#include "comm/recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bias.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/futex.h"
#include "base/log.h"
#include "base/settings.h"

static comm_recorder_slot_t last_resort; /* when there is not even a page of memory */

/* Held while a thread of this process records. Not in the slot, so that nobody who dies can leave it taken there. */
static base_bias_t turn;

static void take_turn(void)
{
    while (!base_bias_try(&turn))
        base_relax();
}

static size_t page_size(void)
{
    long n = sysconf(_SC_PAGESIZE);
    return n > 0 ? (size_t)n : 4096;
}

size_t comm_recorder_bytes(int slots)
{
    return base_round_up((size_t)(slots > 0 ? slots : 1) * sizeof(comm_recorder_slot_t), page_size());
}

/* The pages that hold bytes [offset, offset + size of a slot): the same arithmetic maps and unmaps. */
static size_t span(size_t offset, size_t *first)
{
    size_t page = page_size();
    *first = offset & ~(page - 1);
    return base_round_up(offset + sizeof(comm_recorder_slot_t), page) - *first;
}

/* The launcher's memfd, or NULL. Anything but shared memory is refused: after an exec the number in the environment
 * may name some other file, which must not be written into. */
static comm_recorder_slot_t *map_shared(int fd, int64_t index)
{
    struct stat info;
    size_t first;
    size_t offset = (size_t)index * sizeof(comm_recorder_slot_t);
    if (index < 0 || index >= 1 << 16) {
        log_warning("GYRE_RECORDER_FD is set but GYRE_LOCAL_RANK=%lld is no slot: errors are recorded in "
                    "this process "
                    "only",
                    (long long)index);
        return NULL;
    }
    if (fstat(fd, &info) != 0 || fcntl(fd, F_GET_SEALS) < 0) {
        log_warning("GYRE_RECORDER_FD=%d is not the launcher's shared memory: errors are recorded in this "
                    "process only",
                    fd);
        return NULL;
    }
    if (info.st_size < 0 || (size_t)info.st_size < comm_recorder_bytes((int)index + 1)) {
        log_warning(
            "the flight recorder (%lld bytes) has no slot %lld: errors are recorded in this process only",
            (long long)info.st_size, (long long)index);
        return NULL;
    }
    size_t bytes = span(offset, &first);
    unsigned char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)first);
    if (at == MAP_FAILED) {
        log_warning("the flight recorder cannot be mapped: %s", strerror(errno));
        return NULL;
    }
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0)
        log_warning("GYRE_RECORDER_FD=%d: %s", fd, strerror(errno));
    return (comm_recorder_slot_t *)(void *)(at + (offset - first));
}

comm_recorder_slot_t *comm_recorder_open(int rank)
{
    int fd = (int)base_setting_int(SET_RECORDER_FD);
    comm_recorder_slot_t *slot = fd >= 0 ? map_shared(fd, base_setting_int(SET_LOCAL_RANK)) : NULL;
    if (slot == NULL) {
        size_t first;
        void *at = mmap(NULL, span(0, &first), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        slot = at != MAP_FAILED ? at : &last_resort;
    }
    memset(slot->calls, 0, sizeof(slot->calls));
    memset(slot->error, 0, sizeof(slot->error));
    slot->rank = rank;
    slot->pid = (int32_t)getpid();
    slot->started_ns = 0;
    slot->waiting_for = -1;
    atomic_store_explicit(&slot->head, 0, memory_order_relaxed);
    atomic_store_explicit(&slot->state, 1,
                          memory_order_release); /* a reader that sees 1 sees the fields above */
    return slot;
}

void comm_recorder_close(comm_recorder_slot_t *slot)
{
    if (slot == NULL)
        return;
    if (atomic_load_explicit(&slot->state, memory_order_relaxed) != 3)
        atomic_store_explicit(&slot->state, 4, memory_order_release);
    if (slot == &last_resort)
        return;
    size_t inside = (size_t)((uintptr_t)slot & (page_size() - 1));
    size_t first;
    munmap((unsigned char *)slot - inside, span(inside, &first));
}

void comm_recorder_begin(comm_recorder_slot_t *slot, const comm_call_t *call, int64_t now)
{
    take_turn();
    uint32_t head = atomic_load_explicit(&slot->head, memory_order_relaxed);
    slot->calls[head % COMM_RECORDER_CALLS] = *call;
    atomic_store_explicit(&slot->waiting_for, -1, memory_order_relaxed);
    atomic_store_explicit(&slot->started_ns, now, memory_order_relaxed);
    atomic_store_explicit(&slot->head, head + 1, memory_order_release); /* the call before its number */
    atomic_store_explicit(&slot->state, 2, memory_order_release);
    base_bias_leave(&turn);
}

void comm_recorder_end(comm_recorder_slot_t *slot)
{
    if (atomic_load_explicit(&slot->state, memory_order_relaxed) == 2)
        atomic_store_explicit(&slot->state, 1, memory_order_release);
}

void comm_recorder_fail(comm_recorder_slot_t *slot, const char *text)
{
    take_turn();
    snprintf(slot->error, sizeof(slot->error), "%s", text);
    atomic_store_explicit(&slot->state, 3,
                          memory_order_release); /* the text before the state that announces it */
    base_bias_leave(&turn);
}
