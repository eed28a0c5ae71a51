/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-doctor/kernel.c: ways between two processes of one host, each found by trying it. */
#include "tools/gyre-doctor/report.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory_file.h"
#include "base/thread/fence.h"
#include "base/thread/futex.h"
#include "comm/memory/cma.h"

#define PATTERN 0x6779726521ULL

/* A page that the trial's processes share. */
typedef struct {
    _Atomic uint32_t ready; /* 1: the reader has the answer */
    int err;                /* errno of the reader, or 0 */
    uint64_t seen;
} trial_t;

/* Waits for a child that this process forked; its exit status, or -1. */
static int reap(pid_t child)
{
    int status;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* A window as Gyre makes them: mapped shared, stored to by another process that is woken by futex. */
static void try_window(report_t *report)
{
    static const char advice[] =
        "local ranks then have no shared memory: allow memfd_create in the seccomp filter";
    const int memfd = memfd_create("gyre-doctor", MFD_CLOEXEC), refused = memfd < 0 ? errno : 0;
    if (memfd >= 0)
        close(memfd);
    report->facts.memfd = memfd >= 0;
    const int fd = base_memory_file("gyre-doctor", 4096, 0);
    if (fd < 0) {
        report_add(report, FOUND_MISSING, "memfd windows", advice, "memfd_create: %s",
                   strerror(refused ? refused : errno));
        return;
    }
    trial_t *trial = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    int err = errno;
    close(fd);
    if (trial == MAP_FAILED) {
        report_add(report, FOUND_MISSING, "memfd windows", advice, "mmap: %s", strerror(err));
        return;
    }
    pid_t child = fork();
    if (child == 0) {
        trial->seen = PATTERN;
        trial->ready = 1;
        base_futex_wake(&trial->ready, 1);
        _exit(0);
    }
    base_time_t deadline = base_deadline(5);
    int late = child < 0;
    while (!late && trial->ready == 0)
        late = base_futex_wait(&trial->ready, 0, deadline);
    if (child > 0)
        reap(child);
    report->facts.windows = !late && trial->seen == PATTERN;
    if (report->facts.windows && refused)
        report_add(report, FOUND_WARNING, "memfd windows",
                   "they take all their memory when they are made, and communicators more of it: allow "
                   "memfd_create in the seccomp filter",
                   "memfd_create: %s; files without a name in /dev/shm, /tmp or /var/tmp work instead",
                   strerror(refused));
    else if (report->facts.windows)
        report_add(report, FOUND_OK, "memfd windows", "",
                   "work: shared memory without files, with futex wake-ups");
    else
        report_add(report, FOUND_MISSING, "memfd windows", advice, "%s",
                   child < 0 ? "fork failed" : "a child's store was not seen within 5 s");
    munmap(trial, 4096);
}

/* Whether gyre_mem_alloc gets huge pages. */
static void try_huge_pages(report_t *report)
{
    enum { LENGTH = 2 << 20 };
    uint64_t got = 0;
    const int fd = base_memory_file("gyre-doctor", LENGTH, 0);
    void *base = fd < 0 ? MAP_FAILED : base_memory_file_map(fd, LENGTH);
    if (fd >= 0)
        close(fd);
    if (base != MAP_FAILED) {
        got = base_memory_file_fill(base, LENGTH);
        munmap(base, LENGTH);
    }
    if (got > 0)
        report_add(report, FOUND_OK, "windows' pages", "", "huge ones from 2 MiB on");
    else
        report_add(report, FOUND_NOTE, "windows' pages",
                   "long operations on memory of gyre_mem_alloc are slower: they want Linux 6.1 with "
                   "transparent huge pages, and free memory",
                   "small ones: no huge page was given");
}

/* Ranks are brothers: one child reads the memory of another, not of its parent, which Yama treats
 * otherwise. */
static int try_cma(int *err)
{
    *err = 0;
    trial_t *trial = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    volatile uint64_t *secret = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (trial == MAP_FAILED || secret == MAP_FAILED) {
        *err = errno;
        return 0;
    }
    int gate[2];
    if (pipe(gate) != 0) {
        *err = errno;
        return 0;
    }
    pid_t owner = fork();
    if (owner == 0) { /* holds the value until its end of the pipe is closed */
        char byte;
        close(gate[1]);
        *secret = PATTERN;
        comm_cma_allow(); /* as ranks do */
        trial->ready = 1;
        base_futex_wake(&trial->ready, 1);
        ssize_t n = read(gate[0], &byte, 1);
        _exit(n == 0 ? 0 : 1);
    }
    close(gate[0]);
    base_time_t deadline = base_deadline(5);
    while (owner > 0 && trial->ready == 0 && base_futex_wait(&trial->ready, 0, deadline) == 0)
        ;
    pid_t reader = owner > 0 ? fork() : -1;
    if (reader == 0) {
        uint64_t value = 0;
        struct iovec local = {&value, sizeof(value)}, remote = {(void *)(uintptr_t)secret, sizeof(value)};
        ssize_t n = process_vm_readv(owner, &local, 1, &remote, 1, 0);
        trial->err = n < 0 ? errno : 0;
        trial->seen = value;
        _exit(0);
    }
    if (reader > 0)
        reap(reader);
    close(gate[1]);
    if (owner > 0)
        reap(owner);
    int works = reader > 0 && trial->seen == PATTERN;
    *err = trial->err;
    munmap(trial, 4096);
    munmap((void *)(uintptr_t)secret, 4096);
    return works;
}

/* How a rank that goes to sleep makes sure that it misses no message. */
static void try_fence(report_t *report)
{
    if (base_fence_processes_ready())
        report_add(report, FOUND_OK, "membarrier", "",
                   "works: among few ranks of a host messages take no fence");
    else
        report_add(report, FOUND_NOTE, "membarrier",
                   "each message takes a fence, some 10 ns: allow membarrier in the seccomp filter",
                   "not to be had (a seccomp filter, or a kernel before 4.16)");
}

static void yama(report_t *report)
{
    char text[32] = "";
    FILE *file = fopen("/proc/sys/kernel/yama/ptrace_scope", "re");
    int good = file != NULL && fgets(text, sizeof(text), file) != NULL;
    if (file != NULL)
        fclose(file);
    if (!good) {
        report_add(report, FOUND_OK, "ptrace scope", "", "no Yama in this kernel");
        return;
    }
    text[strcspn(text, "\n")] = '\0';
    report_add(report, FOUND_OK, "ptrace scope", "", "%s (%s)", text,
               strcmp(text, "0") == 0 ? "any process of the same user may be read"
               : strcmp(text, "1") == 0
                   ? "children may be read, and processes that allow it, as ranks do (GYRE_PTRACER)"
                   : "reading other processes is restricted");
}

void look_at_kernel(report_t *report)
{
    int err;
    report->section = "Between processes of this host";
    try_window(report);
    try_huge_pages(report);
    try_fence(report);
    report->facts.cma = try_cma(&err);
    if (report->facts.cma)
        report_add(report, FOUND_OK, "CMA", "",
                   "works: process_vm_readv between two processes of one parent");
    else
        report_add(report, FOUND_NOTE, "CMA",
                   "only large messages from memory that gyre_mem_alloc did not make get slower; to allow "
                   "it: `sysctl kernel.yama.ptrace_scope=0`, in a container --cap-add=SYS_PTRACE",
                   "process_vm_readv: %s", err != 0 ? strerror(err) : "no answer");
    yama(report);
}
