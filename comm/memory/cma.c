/* SPDX-License-Identifier: Apache-2.0 */
/* comm/memory/cma.c: reads and writes another process's memory, by process_vm_readv and process_vm_writev.
 *
 * Users, ptrace_scope, seccomp filters and pid namespaces decide whether the kernel allows these calls.
 * So the permission is tried, never assumed: with a word whose value the owner has sent us. */
#include "comm/memory/cma.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/machine/copy.h"
#include "base/log.h"
#include "base/order.h"
#include "base/settings/settings.h"

typedef ssize_t move_fn(pid_t pid, const struct iovec *here, unsigned long nhere, const struct iovec *there,
                        unsigned long nthere, unsigned long flags);

static int move(move_fn *call, int pid, uint64_t address, void *buf, size_t bytes)
{
    unsigned char *at = buf;
    size_t done = 0;

    while (done < bytes) {
        struct iovec here = {at + done, bytes - done};
        struct iovec there = {(void *)(uintptr_t)(address + done),
                              bytes - done}; /* NOLINT: an address there */
        ssize_t got = call(pid, &here, 1, &there, 1, 0);

        if (got <= 0) {
            if (got < 0 && errno == EINTR)
                continue;
            return got < 0 ? errno : EFAULT;
        }
        done += (size_t)got;
    }
    return 0;
}

/* ---- places that lie badly for each other (base_copy_trips) -------------------------------------------- */

enum { ROOM = 64 * 1024, PAGE = 4096 };

/* Where neither place trips with one on the other side, which lies like `address`. */
static unsigned char rooms[ROOM + PAGE];
static atomic_flag room_taken = ATOMIC_FLAG_INIT;
static enum { PAYS_UNKNOWN, PAYS_NOT, PAYS } room_pays; /* who has the room sets it */

static unsigned char *room_for(uint64_t address)
{
    return rooms + ((address + PAGE / 2 - (uintptr_t)rooms) & (PAGE - 1));
}

/* ns of the best of some copies of a quarter of the room within it, `ahead` bytes after a multiple of
 * pages. */
static base_time_t time_in_room(size_t ahead)
{
    enum { TIMES = 5 };
    base_time_t best = INT64_MAX;
    for (int i = 0; i < TIMES; i++) {
        const base_time_t since = base_now();
        if (move(process_vm_readv, getpid(), (uintptr_t)rooms, rooms + ROOM / 2 + ahead, ROOM / 4) != 0)
            return 0;
        const base_time_t took = base_now() - since;
        best = took < best ? took : best;
    }
    return best;
}

/* 1: the kernel's copies trip on this processor, so that two copies take less time. */
static int kernel_trips(void)
{
    if (room_pays == PAYS_UNKNOWN)
        room_pays = time_in_room(16) > 2 * time_in_room(64) ? PAYS : PAYS_NOT;
    return room_pays == PAYS;
}

/* Reads to, or writes from, `buf`, by way of the room. */
static int move_through(move_fn *call, int pid, uint64_t address, unsigned char *buf, size_t bytes)
{
    unsigned char *const room = room_for(address);
    const int reads = call == process_vm_readv;
    for (size_t done = 0, part; done < bytes; done += part) {
        part = bytes - done < ROOM ? bytes - done : ROOM;
        if (!reads)
            base_copy(room, buf + done, part);
        const int err = move(call, pid, address + done, room, part);
        if (err)
            return err;
        if (reads)
            base_copy(buf + done, room, part);
    }
    return 0;
}

static int move_well(move_fn *call, int pid, uint64_t address, void *buf, size_t bytes)
{
    const uintptr_t here = (uintptr_t)buf, there = (uintptr_t)address;
    const int trips = call == process_vm_readv ? base_copy_trips(here, there) : base_copy_trips(there, here);
    if (!trips || bytes < BASE_COPY_LONG ||
        atomic_flag_test_and_set_explicit(&room_taken, memory_order_acquire))
        return move(call, pid, address, buf, bytes);
    const int err =
        kernel_trips() ? move_through(call, pid, address, buf, bytes) : move(call, pid, address, buf, bytes);
    atomic_flag_clear_explicit(&room_taken, memory_order_release);
    return err;
}

int comm_cma_read(int pid, uint64_t address, void *to, size_t bytes)
{
    return move_well(process_vm_readv, pid, address, to, bytes);
}

int comm_cma_write(int pid, uint64_t address, const void *from, size_t bytes)
{
    return move_well(process_vm_writev, pid, address, (void *)(uintptr_t)from,
                     bytes); /* which only reads `from` */
}

int comm_cma_works(int pid, uint64_t address, uint64_t expected)
{
    uint64_t value = 0;

    return comm_cma_read(pid, address, &value, sizeof value) == 0 && value == expected &&
           comm_cma_write(pid, address, &value, sizeof value) == 0;
}

double comm_cma_call_ns(int pid, uint64_t address)
{
    enum { CALLS = 9 };
    double took[CALLS];
    uint64_t value;

    for (int i = 0; i < CALLS; i++) {
        base_time_t since = base_now();
        (void)comm_cma_read(pid, address, &value, sizeof value);
        took[i] = (double)(base_now() - since);
    }
    qsort(took, CALLS, sizeof *took, base_order_double);
    return took[CALLS / 2];
}

/* Yama lets a process reach its descendants and those that have called this; ranks are brothers. Nothing else
 * about access changes: the other process has to be the same user's. */
static void set_tracer(unsigned long tracer)
{
    if (prctl(PR_SET_PTRACER, tracer, 0ul, 0ul, 0ul) != 0 && errno != EINVAL) /* EINVAL: without Yama */
        log_info("prctl(PR_SET_PTRACER): %s", strerror(errno));
}

void comm_cma_allow(void)
{
    const char *who = base_setting_string(SET_PTRACER);

    if (strcmp(who, "none") != 0)
        set_tracer(strcmp(who, "parent") == 0 ? (unsigned long)getppid() : PR_SET_PTRACER_ANY);
}

void comm_cma_forbid(void)
{
    if (strcmp(base_setting_string(SET_PTRACER), "none") != 0)
        set_tracer(0);
}
