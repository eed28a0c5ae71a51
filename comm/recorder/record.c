/* SPDX-License-Identifier: Apache-2.0 */
/* comm/recorder/record.c: the flight recorder's slots. See recorder.h. */
#include "comm/recorder/recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/thread/bias.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/thread/futex.h"
#include "base/log.h"
#include "base/settings/settings.h"
#include "comm/recorder/file.h"

static comm_recorder_slot_t last_resort; /* when there is not even a page of memory */
static comm_recorder_t own;              /* this process's, if no launcher made one; slots NULL: not made */
static comm_recorder_slot_t *given;      /* the launcher's; NULL: not in use */
static comm_recorder_slot_t *kept;       /* the same after it was closed, while holds > 0; else NULL */
static uint32_t holds;                   /* writes of this process that must be finished */
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

base_bias_t comm_recorder_turn;

static void take_turn(void)
{
    while (!base_bias_try(&comm_recorder_turn))
        base_relax();
}

static size_t page_size(void)
{
    long n = sysconf(_SC_PAGESIZE);
    return n > 0 ? (size_t)n : 4096;
}

size_t comm_recorder_bytes(int slots)
{
    return base_round_up(COMM_RECORDER_HEAD + (size_t)(slots > 0 ? slots : 1) * sizeof(comm_recorder_slot_t),
                         page_size());
}

/* The pages that hold bytes [offset, offset + size of a slot): the same arithmetic maps and unmaps. */
static size_t span(size_t offset, size_t *first)
{
    size_t page = page_size();
    *first = offset & ~(page - 1);
    return base_round_up(offset + sizeof(comm_recorder_slot_t), page) - *first;
}

/* The launcher's recorder, or NULL. Anything else is refused: after an exec the number in the environment may
 * name some other file, which must not be written into. */
static comm_recorder_slot_t *map_shared(int fd, int64_t index)
{
    comm_recorder_head_t head;
    struct stat info;
    const char *why = "it is no such file";
    size_t first;
    if (fstat(fd, &info) != 0 || pread(fd, &head, sizeof(head), 0) != (ssize_t)sizeof(head) ||
        !comm_recorder_head_check(&head, sizeof(head), (unsigned long long)info.st_size, &why)) {
        log_warning(
            "GYRE_RECORDER_FD=%d is not this version's flight recorder (%s): calls are recorded in this "
            "process only",
            fd, why);
        return NULL;
    }
    if (index < 0 || index >= head.slots) {
        log_warning("GYRE_RECORDER_FD is set but GYRE_LOCAL_RANK=%lld is not one of its %d slots: calls are "
                    "recorded in "
                    "this process only",
                    (long long)index, head.slots);
        return NULL;
    }
    size_t offset = COMM_RECORDER_HEAD + (size_t)index * sizeof(comm_recorder_slot_t);
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

/* Makes a recorder of this process alone, for gyre-doctor --job; or memory that no other process sees. */
static comm_recorder_slot_t *map_own(const char *job, int rank, int size)
{
    char part[48];
    snprintf(part, sizeof(part), "rank%d.%d", rank, (int)getpid());
    size_t first;
    if (own.slots == NULL) {
        gyre_status_t st = comm_recorder_create(base_setting_string(SET_RECORD), job, part, size, 1, &own);
        if (st == GYRE_OK) {
            own.head->launcher = 0;
            return own.slots;
        }
        log_info("%s: gyre-doctor --job will not find this rank", gyre_last_error());
    }
    void *at = mmap(NULL, span(0, &first), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at != MAP_FAILED ? at : &last_resort;
}

static void unmap(comm_recorder_slot_t *slot)
{
    size_t inside = (size_t)((uintptr_t)slot & (page_size() - 1));
    size_t first;
    munmap((unsigned char *)slot - inside, span(inside, &first));
}

/* `kept` is not needed any more; holds `opening`. */
static void drop_kept(void)
{
    if (kept != NULL)
        unmap(kept);
    kept = NULL;
}

void comm_recorder_hold(int begins)
{
    pthread_mutex_lock(&opening);
    holds = begins ? holds + 1 : holds - (holds > 0);
    comm_recorder_slot_t *slot = given != NULL ? given : kept;
    if (slot != NULL)
        atomic_store_explicit(&slot->finishing, holds, memory_order_release); /* after what was written */
    if (holds == 0)
        drop_kept();
    pthread_mutex_unlock(&opening);
}

comm_recorder_slot_t *comm_recorder_open(const char *job, int rank, int size)
{
    int fd = (int)base_setting_int(SET_RECORDER_FD);
    comm_recorder_slot_t *slot = NULL;
    pthread_mutex_lock(&opening);
    if (fd >= 0 && given == NULL)
        slot = given = map_shared(fd, base_setting_int(SET_LOCAL_RANK));
    if (slot != NULL) {
        drop_kept();
        /* not what a process before this one has left */
        atomic_store_explicit(&slot->finishing, holds, memory_order_relaxed);
    } else {
        slot = map_own(job, rank, size);
    }
    pthread_mutex_unlock(&opening);
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
    int failed = atomic_load_explicit(&slot->state, memory_order_relaxed) == 3;
    if (!failed)
        atomic_store_explicit(&slot->state, 4, memory_order_release);
    if (slot == &last_resort)
        return;
    pthread_mutex_lock(&opening);
    if (slot == own.slots) {
        comm_recorder_destroy(&own, !failed);
    } else if (slot == given && holds > 0) {
        kept = slot; /* the launcher still looks at it */
        given = NULL;
    } else {
        given = slot == given ? NULL : given;
        unmap(slot);
    }
    pthread_mutex_unlock(&opening);
}

void comm_recorder_begin_late(comm_recorder_slot_t *slot, const comm_call_t *call, int64_t now)
{
    take_turn();
    comm_recorder_write(slot, call, now);
    base_bias_leave(&comm_recorder_turn);
}

void comm_recorder_doing(comm_recorder_slot_t *slot, comm_doing_t *doing)
{
    *doing = (comm_doing_t){.seconds = -1};
    take_turn();
    uint32_t head = atomic_load_explicit(&slot->head, memory_order_relaxed);
    for (uint32_t k = head; k > 0 && head - k < COMM_DOING_CALLS; k--)
        doing->calls[doing->calls_n++] = slot->calls[(k - 1) % COMM_RECORDER_CALLS];
    int64_t started = atomic_load_explicit(&slot->started_ns, memory_order_relaxed);
    doing->waiting_for = atomic_load_explicit(&slot->waiting_for, memory_order_relaxed);
    base_bias_leave(&comm_recorder_turn);
    doing->state = atomic_load_explicit(&slot->state, memory_order_relaxed);
    if (started > 0)
        doing->seconds = (double)(base_now() - started) * 1e-9;
}

void comm_recorder_fail(comm_recorder_slot_t *slot, const char *text)
{
    take_turn();
    snprintf(slot->error, sizeof(slot->error), "%s", text);
    atomic_store_explicit(&slot->state, 3,
                          memory_order_release); /* the text before the state that announces it */
    base_bias_leave(&comm_recorder_turn);
}

void comm_recorder_fail_join(comm_recorder_slot_t *slot, const char *text)
{
    pthread_mutex_lock(&opening);
    const int launched = slot == given;
    pthread_mutex_unlock(&opening);
    if (launched)
        comm_recorder_fail(slot, text);
}
