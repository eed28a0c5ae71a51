/* SPDX-License-Identifier: Apache-2.0 */
/* comm/net/held.c: see held.h. A thread that forks has the lock meanwhile, and so has one that makes a socket
 * or closes it: the list is true in the child, too. */
#include "comm/net/held.h"

#include <errno.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/grow.h"

static struct {
    pthread_mutex_t lock;
    int *fds; /* [n] */
    size_t n, cap;
} held = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void lock_held(void)
{
    pthread_mutex_lock(&held.lock);
}

static void unlock_held(void)
{
    pthread_mutex_unlock(&held.lock);
}

static void close_in_child(void)
{
    for (size_t i = 0; i < held.n; i++)
        close(held.fds[i]);
    held.n = 0;
    unlock_held();
}

/* When the library is loaded: what is registered first runs first in the parent. libgyre-malloc.so lets the
 * parent wait there until the child has copied its blocks, and the watcher may need the lock meanwhile. Its
 * own lock is taken first before a fork: with this one nothing as large as a block is allocated. */
__attribute__((constructor)) static void watch_fork(void)
{
    (void)pthread_atfork(lock_held, unlock_held, close_in_child);
}

static size_t find(int fd)
{
    size_t i = 0;
    while (i < held.n && held.fds[i] != fd)
        i++;
    return i;
}

/* With the lock; fd -1: none. */
static int hold(int fd)
{
    if (fd >= 0 && find(fd) == held.n && base_grow(&held.fds, &held.cap, held.n, 1, sizeof(fd)))
        held.fds[held.n++] = fd; /* without memory it is as if there were no children */
    return fd;
}

/* With the lock. */
static void keep(int fd)
{
    const size_t i = find(fd);
    if (i < held.n)
        held.fds[i] = held.fds[--held.n];
}

int boot_socket(int family, int type)
{
    lock_held();
    const int fd = hold(socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)), err = errno;
    unlock_held();
    errno = err;
    return fd;
}

int boot_accept(int listener)
{
    lock_held();
    const int fd = hold(accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)), err = errno;
    unlock_held();
    errno = err;
    return fd;
}

void boot_let_go(int fd)
{
    const int err = errno;
    lock_held();
    keep(fd);
    close(fd);
    unlock_held();
    errno = err;
}

void boot_hold(int fd)
{
    lock_held();
    (void)hold(fd);
    unlock_held();
}

void boot_keep(int fd)
{
    lock_held();
    keep(fd);
    unlock_held();
}
