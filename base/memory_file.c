/* SPDX-License-Identifier: Apache-2.0 */
/* base/memory_file.c: see the header. */
#include "base/memory_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"

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

int base_memory_file_give_back(int fd, uint64_t at, uint64_t bytes)
{
    const int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK)) {
        errno = EOPNOTSUPP;
        return -1;
    }
    return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at, (off_t)bytes);
}
