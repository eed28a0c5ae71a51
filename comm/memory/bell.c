/* SPDX-License-Identifier: Apache-2.0 */
/* comm/memory/bell.c: see bell.h. tests/comm/test_wake.c explores its interleavings. */
#include "comm/memory/bell.h"

#include <errno.h>
#include <pthread.h>
#include <sodium.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/thread/futex.h"

enum { DRAIN_MOST = 16 }; /* strangers may send, too: that ends a sleep, nothing else */

_Atomic int comm_bell_registered;

void comm_bell_promise(comm_bell_t *bell)
{
    int ready = base_fence_processes_ready();
    atomic_store_explicit(&comm_bell_registered, ready, memory_order_relaxed);
    atomic_store_explicit(&bell->heavy, (uint32_t)ready, memory_order_relaxed);
}

/* ---- the owner's side ---------------------------------------------------------------------------------- */

/* Between storing `sleeping` and the last look for messages. */
static void fence(const comm_bell_t *bell)
{
    /* Ringers who have not registered make their own fences. */
    if (atomic_load_explicit(&bell->heavy, memory_order_relaxed))
        base_fence_processes();
    else
        base_fence();
}

int comm_bell_announce(comm_bell_t *bell, uint32_t how, uint32_t *word)
{
    /* Read the word before the announcement. A ringer takes the announcement back and then changes the word.
     * So a ringer that takes this announcement back changes the word after this load, and the futex wait
     * returns at once. That also holds for a message that was seen long ago. If we read the word after the
     * announcement, we could load the new value and sleep unannounced. acquire: no load or store below comes
     * before it. */
    *word = atomic_load_explicit(&bell->bell, memory_order_acquire);
    /* The last announcement stands: its fence has made it visible to all. If a ringer takes it back just now,
     * it changes the word later than we read it. The fence is worth avoiding: it interrupts every rank of the
     * host that computes. One for another rank's outbox needs its own: that rank may have looked already. */
    if (atomic_load_explicit(&bell->sleeping, memory_order_relaxed) == how)
        return 0;
    atomic_store_explicit(&bell->sleeping, how, memory_order_release);
    /* Pairs with the order in comm_bell_ring: a ringer that does not see `sleeping` has made its message
     * visible before the caller looks once more. */
    fence(bell);
    return 1;
}

/* ---- the ringer's side --------------------------------------------------------------------------------- */

/* One for all that this process rings, while it has bells with sockets. With a network between hosts the
 * others of a group have such bells if this rank has. Where one rank alone has (comm/event.h), the others
 * open a socket for each ring. */
static int sender = -1, bells;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static socklen_t socket_name(const comm_bell_t *bell, struct sockaddr_un *name)
{
    memset(name, 0, sizeof *name);
    name->sun_family = AF_UNIX;
    memcpy(name->sun_path + 1, "gyre-bell-", 10); /* a leading NUL: abstract, no file */
    sodium_bin2hex(name->sun_path + 11, 2 * sizeof bell->socket + 1, bell->socket, sizeof bell->socket);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 11 + 2 * sizeof bell->socket);
}

/* Where it fails, the socket is full, and so readable, or its owner is gone. Where the system does not allow
 * it, the owner's sleeps are short (comm/wait.c). */
static void send_byte(const comm_bell_t *bell)
{
    int saved = errno;
    struct sockaddr_un name;
    socklen_t bytes = socket_name(bell, &name);

    /* Until it is sent: once closed, the descriptor may be the program's. */
    pthread_mutex_lock(&lock);
    const int own = sender < 0 ? socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) : -1;
    (void)sendto(own < 0 ? sender : own, "", 1, MSG_NOSIGNAL, (struct sockaddr *)&name, bytes);
    if (own >= 0)
        close(own);
    pthread_mutex_unlock(&lock);
    errno = saved;
}

void comm_bell_ring_slow(comm_bell_t *bell)
{
    /* Only one of several ringers needs to wake the owner. If the owner has announced its sleep but does not
     * sleep yet, the changed word or the byte ends its sleep at once. */
    uint32_t how = atomic_exchange_explicit(&bell->sleeping, COMM_BELL_AWAKE, memory_order_acq_rel);

    if (how == COMM_BELL_AWAKE)
        return;
    atomic_fetch_add_explicit(&bell->bell, 1, memory_order_release);
    if ((how & COMM_BELL_HOW) == COMM_BELL_SOCKET)
        send_byte(bell);
    else
        base_futex_wake(&bell->bell, INT32_MAX);
}

void comm_bell_wake(comm_bell_t *bell)
{
    atomic_fetch_add_explicit(&bell->bell, 1, memory_order_release);
    base_futex_wake(&bell->bell, INT32_MAX);
    if (atomic_load_explicit(&bell->has_socket, memory_order_acquire))
        send_byte(bell);
}

/* ---- the socket ---------------------------------------------------------------------------------------- */

int comm_bell_open(comm_bell_t *bell)
{
    struct sockaddr_un name;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), saved;

    if (fd < 0)
        return -1;
    randombytes_buf(bell->socket, sizeof bell->socket);
    socklen_t bytes = socket_name(bell, &name);
    if (bind(fd, (struct sockaddr *)&name, bytes) == 0) {
        pthread_mutex_lock(&lock);
        if (bells++ == 0)
            sender = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        pthread_mutex_unlock(&lock);
        /* release: a thread that sees it may read the name */
        atomic_store_explicit(&bell->has_socket, 1, memory_order_release);
        return fd;
    }
    saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

void comm_bell_close(int fd)
{
    if (fd < 0)
        return;
    close(fd);
    pthread_mutex_lock(&lock);
    if (--bells == 0 && sender >= 0) {
        close(sender);
        sender = -1;
    }
    pthread_mutex_unlock(&lock);
}

void comm_bell_drain(int fd)
{
    char byte;

    for (int i = 0; i < DRAIN_MOST && recv(fd, &byte, 1, MSG_DONTWAIT) >= 0; i++) {
    }
}
