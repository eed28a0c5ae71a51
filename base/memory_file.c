/* SPDX-License-Identifier: Apache-2.0 */
/* base/memory_file.c: see the header. */
#include "base/memory_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/file.h"
#include "base/log.h"

enum { SMALL_PAGE = 4096, HUGE_PAGE = 2 << 20 }; /* pages of those processors that have huge ones of 2 MiB */

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* headers older than Linux 6.1 */
#endif

/* Closes it and keeps errno. */
static int give_up(int fd)
{
    const int err = errno;
    close(fd);
    errno = err;
    return -1;
}

static int forbidden(int err)
{
    return err == ENOSYS || err == EPERM || err == EACCES; /* not: no descriptors, no memory */
}

static int unnamed_file(uint64_t bytes)
{
    static const char *const folders[] = {"/dev/shm", "/tmp", "/var/tmp"};
    int err = 0;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        const int fd = open(folders[i], O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
        err = fd < 0 ? errno : posix_fallocate(fd, 0, (off_t)bytes);
        if (err == 0)
            return fd;
        log_info("no shared memory in %s: %s", folders[i], strerror(err));
        if (fd >= 0)
            close(fd);
    }
    errno = err;
    return -1;
}

int base_memory_file(const char *name, uint64_t bytes, uint64_t sparse)
{
    base_file_fill_standard();
    const int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return forbidden(errno) ? unnamed_file(bytes) : -1;
    if ((sparse == 0 || ftruncate(fd, (off_t)sparse) != 0) && ftruncate(fd, (off_t)bytes) != 0)
        return give_up(fd);
    return fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0 ? fd : give_up(fd);
}

void *base_memory_file_map(int fd, uint64_t bytes)
{
    const size_t length = (size_t)bytes, more = length + HUGE_PAGE;
    unsigned char *all = MAP_FAILED, *at = NULL;
    if (bytes >= HUGE_PAGE)
        all = mmap(NULL, more, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED)
        return mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    const size_t before = -(uintptr_t)all & (HUGE_PAGE - 1), page = (size_t)sysconf(_SC_PAGESIZE);
    at = mmap(all + before, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
    if (at == MAP_FAILED) {
        const int err = errno;
        munmap(all, more);
        errno = err;
        return MAP_FAILED;
    }
    const size_t end = before + (size_t)base_round_up(length, page);
    if (before > 0)
        munmap(all, before);
    if (end < more)
        munmap(all + end, more - end);
    return at;
}

uint64_t base_memory_file_fill(void *base, uint64_t bytes)
{
    unsigned char *at = base;
    uint64_t done = 0;
    if (sysconf(_SC_PAGESIZE) != SMALL_PAGE || (uintptr_t)base % HUGE_PAGE != 0)
        return 0;
    for (; bytes - done >= HUGE_PAGE; done += HUGE_PAGE) {
        *(volatile unsigned char *)(at + done) = 0; /* the kernel takes no file that is empty */
        if (madvise(at + done, HUGE_PAGE, MADV_COLLAPSE) != 0) {
            log_debug("huge pages for %llu of %llu bytes: %s", (unsigned long long)done,
                      (unsigned long long)bytes, strerror(errno));
            break;
        }
    }
    return done;
}

int base_memory_file_give_back(int fd, uint64_t at, uint64_t bytes)
{
    const int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK)) {
        errno = EOPNOTSUPP;
        return -1;
    }
    return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at, (off_t)bytes);
}
