/* SPDX-License-Identifier: Apache-2.0 */
/* comm/watch/fd_pass.c: passes descriptors to local peers. See fd_pass.h. */
#include "comm/watch/fd_pass.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/machine/identity.h"
#include "comm/boot/wire.h"
#include "comm/net/held.h"

#define CLIENT_SECONDS   2.0  /* in which a client must finish */
#define PATIENCE_SECONDS 0.25 /* of it, even if others want its place */
#define PAUSE_SECONDS    0.05

enum { QUESTION = 40, CHALLENGE = 64, PROOF = 32, ANSWER = 36, LATER = 1, BACKLOG = 1024, LOST_MOST = 8 };

static void mac(const unsigned char key[32], char label, const unsigned char question[QUESTION],
                const unsigned char nonce[32], uint32_t status, unsigned char out[32])
{
    unsigned char text[1 + QUESTION + 32 + 4];
    text[0] = (unsigned char)label;
    memcpy(text + 1, question, QUESTION);
    memcpy(text + 1 + QUESTION, nonce, 32);
    boot_put32(text + 1 + QUESTION + 32, status);
    crypto_generichash(out, 32, text, sizeof(text), key, 32);
}

static socklen_t socket_name(const unsigned char address[32], struct sockaddr_un *name)
{
    memset(name, 0, sizeof(*name));
    name->sun_family = AF_UNIX;
    memcpy(name->sun_path + 1, "gyre-", 5); /* a leading NUL: abstract, no file */
    sodium_bin2hex(name->sun_path + 6, 33, address, 16);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 6 + 32);
}

gyre_status_t watch_fds_init(watch_fds_t *fds, const comm_boot_t *boot)
{
    memset(fds, 0, sizeof(*fds));
    fds->fd = -1;
    for (int i = 0; i < WATCH_CLIENTS_MAX; i++)
        fds->clients[i].fd = -1;
    if (pthread_mutex_init(&fds->lock, NULL) != 0)
        return gyre_fail(GYRE_ERR_SYSTEM, "pthread_mutex_init");
    comm_boot_key(boot, "fd", fds->key);
    randombytes_buf(fds->address, 16);
    /* What two processes must share to see each other's abstract sockets. */
    const uint64_t machine = base_machine(BASE_MACHINE_NET);
    memcpy(fds->address + 16, &machine, sizeof(machine));
    return GYRE_OK;
}

void watch_fds_free(watch_fds_t *fds)
{
    boot_refusals_sum(&fds->refused, "memory windows");
    for (int i = 0; i < WATCH_CLIENTS_MAX; i++)
        if (fds->clients[i].fd >= 0)
            boot_let_go(fds->clients[i].fd);
    if (fds->fd >= 0)
        boot_let_go(fds->fd);
    for (int b = 0; b < WATCH_BUCKETS; b++)
        while (fds->offers[b] != NULL) {
            watch_offer_t *offer = fds->offers[b];
            fds->offers[b] = offer->next;
            free(offer);
        }
    pthread_mutex_destroy(&fds->lock);
    sodium_memzero(fds->key, sizeof(fds->key));
}

gyre_status_t watch_fds_listen(watch_fds_t *fds)
{
    struct sockaddr_un name;
    socklen_t bytes = socket_name(fds->address, &name);
    int fd = boot_socket(AF_UNIX, SOCK_SEQPACKET);
    if (fd < 0)
        return gyre_fail_errno(GYRE_ERR_SYSTEM, errno, "cannot make a Unix socket for local peers");
    if (bind(fd, (const struct sockaddr *)&name, bytes) != 0 || listen(fd, BACKLOG) != 0) {
        gyre_status_t st = gyre_fail_errno(GYRE_ERR_SYSTEM, errno, "cannot listen for local peers");
        boot_let_go(fd);
        return st;
    }
    fds->fd = fd;
    return GYRE_OK;
}

static watch_offer_t **find(watch_fds_t *fds, uint64_t key)
{
    uint64_t mixed =
        key * UINT64_C(0x9E3779B97F4A7C15); /* Knuth's multiplicative hash: keys are often dense */
    watch_offer_t **at = &fds->offers[(mixed >> 32) % WATCH_BUCKETS];
    while (*at != NULL && (*at)->key != key)
        at = &(*at)->next;
    return at;
}

/* To hand a window over takes two descriptors for a moment: a peer's connection, and a duplicate. Where there
 * are none the owner hears it now; peers would wait until there are some. */
static gyre_status_t check_room(int fd)
{
    const int first = fcntl(fd, F_DUPFD_CLOEXEC, 0), err = errno;
    const int second = first >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
    if (first >= 0)
        close(first);
    if (second >= 0) {
        close(second);
        return GYRE_OK;
    }
    return gyre_fail_errno(err == EBADF ? GYRE_ERR_INVALID : GYRE_ERR_NO_MEMORY, first < 0 ? err : EMFILE,
                           "cannot duplicate descriptor %d of a window%s", fd,
                           first >= 0 || err == EMFILE ? " (raise the limit: ulimit -n)" : "");
}

gyre_status_t watch_fds_offer(watch_fds_t *fds, uint64_t key, int fd)
{
    gyre_status_t status = check_room(fd);
    if (status != GYRE_OK)
        return status;
    watch_offer_t *offer = malloc(sizeof(*offer));
    if (offer == NULL)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to offer a window");
    *offer = (watch_offer_t){.key = key, .fd = fd};
    pthread_mutex_lock(&fds->lock);
    watch_offer_t **at = find(fds, key);
    int twice = *at != NULL;
    if (!twice)
        *at = offer;
    pthread_mutex_unlock(&fds->lock);
    if (!twice)
        return GYRE_OK;
    free(offer);
    return gyre_fail(GYRE_ERR_INVALID, "window %llx is offered already", (unsigned long long)key);
}

void watch_fds_withdraw(watch_fds_t *fds, uint64_t key)
{
    pthread_mutex_lock(&fds->lock);
    watch_offer_t **at = find(fds, key);
    watch_offer_t *offer = *at;
    if (offer != NULL)
        *at = offer->next;
    pthread_mutex_unlock(&fds->lock);
    free(offer);
}

/* Returns a duplicate of the offered descriptor, which the owner may close once it is withdrawn, or -1 with
 * errno; ENOENT. */
static int take(watch_fds_t *fds, uint64_t key)
{
    pthread_mutex_lock(&fds->lock);
    watch_offer_t *offer = *find(fds, key);
    int fd = offer != NULL ? fcntl(offer->fd, F_DUPFD_CLOEXEC, 0) : -1;
    int err = offer != NULL ? errno : ENOENT;
    pthread_mutex_unlock(&fds->lock);
    errno = err;
    return fd;
}

/* The client that has been here longest; NULL while a place is free. */
static watch_client_t *longest(watch_fds_t *fds)
{
    watch_client_t *first = NULL;
    for (int i = 0; i < WATCH_CLIENTS_MAX; i++) {
        if (fds->clients[i].fd < 0)
            return NULL;
        if (first == NULL || fds->clients[i].since < first->since)
            first = &fds->clients[i];
    }
    return first;
}

/* When the next client can be taken: when the longest one's time is over; at once (0) while a place is
 * free. */
static base_time_t room_at(watch_fds_t *fds)
{
    const watch_client_t *first = longest(fds);
    base_time_t at = first != NULL ? first->since + (base_time_t)(PATIENCE_SECONDS * 1e9) : 0;
    return fds->paused > at ? fds->paused : at;
}

int watch_fds_polls(watch_fds_t *fds, struct pollfd polls[WATCH_FD_POLLS], base_time_t *until)
{
    int n = 1;
    for (int i = 0; i < WATCH_CLIENTS_MAX; i++) {
        if (fds->clients[i].fd < 0)
            continue; /* not even as -1: poll takes no more entries than RLIMIT_NOFILE */
        polls[n++] = (struct pollfd){.fd = fds->clients[i].fd, .events = POLLIN, .revents = 0};
        if (fds->clients[i].deadline < *until)
            *until = fds->clients[i].deadline;
    }
    base_time_t at = room_at(fds);
    int open = at == 0 || at <= base_now();
    if (!open && at < *until)
        *until = at;
    polls[0].fd = open ? fds->fd : -1;
    polls[0].events = POLLIN;
    polls[0].revents = 0;
    return n;
}

static void client_close(watch_client_t *client)
{
    boot_let_go(client->fd);
    client->fd = -1;
}

static void client_refuse(watch_fds_t *fds, watch_client_t *client, boot_refused_t kind, const char *why)
{
    struct ucred who = {.pid = 0, .uid = 0, .gid = 0};
    socklen_t bytes = sizeof(who);
    char name[64];
    getsockopt(client->fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes);
    snprintf(name, sizeof(name), "process %ld of user %ld", (long)who.pid, (long)who.uid);
    boot_refuse(&fds->refused, kind, "memory windows", name, why);
    client_close(client);
}

static void client_accept(watch_fds_t *fds)
{
    base_time_t at;
    while ((at = room_at(fds)) == 0 || at <= base_now()) {
        int fd = boot_accept(fds->fd);
        if (fd < 0) {
            if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
                log_warning("cannot serve local peers for a moment: accept: %s", strerror(errno));
                fds->paused = base_deadline(PAUSE_SECONDS);
            }
            return;
        }
        watch_client_t *client = longest(fds);
        if (client != NULL) { /* all places are taken */
            (void)send(client->fd, "", LATER, MSG_NOSIGNAL | MSG_DONTWAIT);
            client_refuse(fds, client, BOOT_REFUSED_SLOW, "it was slow to prove who it is, and others wait");
        }
        for (client = fds->clients; client->fd >= 0; client++)
            ; /* there is a free place now */
        memset(client, 0, sizeof(*client));
        client->fd = fd;
        client->since = base_now();
        client->deadline = base_deadline(CLIENT_SECONDS);
    }
}

/* The last packet: status and, if OK, the descriptor. */
static void client_answer(watch_fds_t *fds, watch_client_t *client)
{
    int fd = take(fds, boot_get64(client->question + 32));
    uint32_t status = fd >= 0 ? GYRE_OK : errno == ENOENT ? GYRE_ERR_NOT_FOUND : GYRE_ERR_NO_MEMORY;
    unsigned char text[ANSWER];
    boot_put32(text, status);
    mac(fds->key, 'R', client->question, client->nonce, status, text + 4);
    struct iovec part = {.iov_base = text, .iov_len = sizeof(text)};
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd >= 0) {
        memset(&control, 0, sizeof(control));
        message.msg_control = &control;
        message.msg_controllen = sizeof(control);
        struct cmsghdr *c = CMSG_FIRSTHDR(&message);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &fd, sizeof(int));
    }
    if (sendmsg(client->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        log_info("a local peer went away before it got its window: %s", strerror(errno));
    if (fd >= 0)
        close(fd);
}

static void client_handle(watch_fds_t *fds, watch_client_t *client)
{
    unsigned char packet[QUESTION + 1], text[CHALLENGE], expected[32];
    ssize_t n = recv(client->fd, packet, sizeof(packet), 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        if (client->asked && n == 0)
            client_refuse(fds, client, BOOT_REFUSED_SECRET,
                          "it left when it saw our proof: its job secret may differ");
        else
            client_close(client);
        return;
    }
    if (!client->asked) {
        if (n != QUESTION) {
            client_refuse(fds, client, BOOT_REFUSED_STRANGE, "it does not speak Gyre's protocol");
            return;
        }
        memcpy(client->question, packet, QUESTION);
        client->asked = 1;
        randombytes_buf(client->nonce, 32);
        memcpy(text, client->nonce, 32);
        mac(fds->key, 'S', client->question, client->nonce, 0, text + 32);
        if (send(client->fd, text, CHALLENGE, MSG_NOSIGNAL | MSG_DONTWAIT) != CHALLENGE)
            client_close(client);
        return;
    }
    mac(fds->key, 'C', client->question, client->nonce, 0, expected);
    if (n != PROOF || sodium_memcmp(packet, expected, PROOF) != 0) {
        client_refuse(fds, client, BOOT_REFUSED_SECRET, "it does not know the job's secret");
        return;
    }
    client_answer(fds, client);
    client_close(client);
}

void watch_fds_handle(watch_fds_t *fds, const struct pollfd *polls, int n)
{
    base_time_t now = base_now();
    for (int i = 0, at = 1; i < WATCH_CLIENTS_MAX; i++) {
        watch_client_t *client = &fds->clients[i];
        if (client->fd < 0)
            continue;
        if (at < n &&
            polls[at++].revents != 0) /* the same clients in the same order as when it was asked for */
            client_handle(fds, client);
        if (client->fd >= 0 && client->deadline <= now)
            client_refuse(fds, client, BOOT_REFUSED_SLOW, "it took too long");
    }
    if (polls[0].revents != 0)
        client_accept(fds);
}

/* ---- fetching: the client's side, one step per packet that comes --------------------------------------- */

/* Where a fetch stands: comm_watch_fetch_t.step. */
enum { FETCH_IDLE, FETCH_ASKED, FETCH_PROVED };

static gyre_status_t fetch_lost(int err)
{
    return gyre_fail_quiet(GYRE_ERR_TRANSPORT, "a local peer did not hand over its window: %s",
                           err != 0 ? strerror(err) : "it closed the connection");
}

/* Connects to the socket of `address`. IN_PROGRESS: its backlog was full until `until`. */
static gyre_status_t fetch_connect(const unsigned char address[32], base_time_t until, int *out)
{
    struct sockaddr_un name;
    socklen_t bytes = socket_name(address, &name);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return gyre_fail_errno(GYRE_ERR_NO_MEMORY, errno, "cannot make a Unix socket to reach a local peer");
    while (connect(fd, (const struct sockaddr *)&name, bytes) != 0) {
        int err = errno;
        if ((err == EAGAIN || err == EINTR) && base_poll_ms(until) != 0) {
            poll(NULL, 0, 1); /* its backlog is full; connecting cannot be polled for */
            continue;
        }
        close(fd);
        if (err == EAGAIN || err == EINTR)
            return GYRE_IN_PROGRESS;
        if (err == ECONNREFUSED)
            return gyre_fail_quiet(GYRE_ERR_UNSUPPORTED,
                                   "no process of this host serves windows at that address");
        return fetch_lost(err);
    }
    *out = fd;
    return GYRE_OK;
}

/* Receives one packet of exactly `bytes`. *passed gets a descriptor that came with it, or -1. IN_PROGRESS: no
 * packet came. */
static gyre_status_t fetch_packet(comm_watch_fetch_t *fetch, unsigned char *data, size_t bytes, int *passed,
                                  base_time_t until)
{
    const int fd = fetch->fd;
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec part = {.iov_base = data, .iov_len = bytes};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
    *passed = -1;
    for (;;) {
        ssize_t n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
        if (n >= 0) {
            struct cmsghdr *c = CMSG_FIRSTHDR(&message);
            if (c != NULL && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
                c->cmsg_len == CMSG_LEN(sizeof(int)))
                memcpy(passed, CMSG_DATA(c), sizeof(int));
            if (n == (ssize_t)bytes && !(message.msg_flags & MSG_TRUNC))
                return GYRE_OK;
            if (*passed >= 0)
                close(*passed);
            *passed = -1;
            if (n == LATER)
                fetch->since = 0; /* comes again, as if the answer had been given up */
            return n == 0 || n == LATER
                       ? fetch_lost(0)
                       : gyre_fail(GYRE_ERR_FORMAT, "a local peer sent a packet of %zd bytes instead of %zu",
                                   n, bytes);
        }
        if (errno == EAGAIN) {
            struct pollfd p = {.fd = fd, .events = POLLIN, .revents = 0};
            int got = poll(&p, 1, base_poll_ms(until));
            if (got == 0)
                return GYRE_IN_PROGRESS;
            if (got < 0 && errno != EINTR)
                return gyre_fail_errno(GYRE_ERR_SYSTEM, errno, "poll");
        } else if (errno != EINTR) {
            return fetch_lost(errno);
        }
    }
}

static gyre_status_t fetch_ask(const unsigned char address[32], uint64_t key, comm_watch_fetch_t *fetch,
                               base_time_t until)
{
    gyre_status_t st = fetch_connect(address, until, &fetch->fd);
    if (st != GYRE_OK)
        return st;
    fetch->step = FETCH_ASKED;
    fetch->since = base_now();
    randombytes_buf(fetch->question, 32);
    boot_put64(fetch->question + 32, key);
    return send(fetch->fd, fetch->question, QUESTION, MSG_NOSIGNAL) == QUESTION ? GYRE_OK : fetch_lost(errno);
}

static gyre_status_t fetch_prove(watch_fds_t *fds, comm_watch_fetch_t *fetch, base_time_t until)
{
    unsigned char challenge[CHALLENGE], proof[PROOF], expected[32];
    int passed;
    gyre_status_t st = fetch_packet(fetch, challenge, CHALLENGE, &passed, until);
    if (st != GYRE_OK)
        return st;
    if (passed >= 0)
        close(passed); /* not asked for yet */
    memcpy(fetch->nonce, challenge, 32);
    mac(fds->key, 'S', fetch->question, fetch->nonce, 0, expected);
    if (sodium_memcmp(expected, challenge + 32, 32) != 0)
        return gyre_fail(GYRE_ERR_AUTH, "a local peer does not prove knowledge of this job's secret");
    mac(fds->key, 'C', fetch->question, fetch->nonce, 0, proof);
    if (send(fetch->fd, proof, PROOF, MSG_NOSIGNAL) != PROOF)
        return fetch_lost(errno);
    fetch->step = FETCH_PROVED;
    return GYRE_OK;
}

static gyre_status_t fetch_take(watch_fds_t *fds, comm_watch_fetch_t *fetch, int *fd, base_time_t until)
{
    unsigned char answer[ANSWER], expected[32];
    unsigned long long key = (unsigned long long)boot_get64(fetch->question + 32);
    int passed;
    gyre_status_t st = fetch_packet(fetch, answer, ANSWER, &passed, until);
    if (st != GYRE_OK)
        return st;
    uint32_t status = boot_get32(answer);
    mac(fds->key, 'R', fetch->question, fetch->nonce, status, expected);
    if (sodium_memcmp(expected, answer + 4, 32) != 0)
        st = gyre_fail(GYRE_ERR_AUTH, "a local peer's answer is forged");
    else if (status == GYRE_ERR_NOT_FOUND)
        st = gyre_fail_quiet(GYRE_ERR_NOT_FOUND, "the local peer offers no window %llx", key);
    else if (status != GYRE_OK)
        st = gyre_fail(GYRE_ERR_NO_MEMORY, "the local peer has no descriptor left to hand over window %llx",
                       key);
    else if (passed < 0)
        st = gyre_fail(GYRE_ERR_NO_MEMORY,
                       "no descriptor left to take window %llx: raise the limit (ulimit -n)", key);
    if (st == GYRE_OK)
        *fd = passed;
    else if (passed >= 0)
        close(passed);
    return st;
}

void comm_watch_fetch_drop(comm_watch_fetch_t *fetch)
{
    if (fetch->step != FETCH_IDLE)
        close(fetch->fd);
    *fetch = (comm_watch_fetch_t){0};
}

static gyre_status_t fetch_own(watch_fds_t *fds, uint64_t key, int *fd)
{
    int own = take(fds, key);
    if (own < 0)
        return errno == ENOENT
                   ? gyre_fail_quiet(GYRE_ERR_NOT_FOUND, "no window %llx is offered", (unsigned long long)key)
                   : gyre_fail_errno(GYRE_ERR_NO_MEMORY, errno, "cannot duplicate a window's descriptor");
    *fd = own;
    return GYRE_OK;
}

gyre_status_t watch_fds_fetch(watch_fds_t *fds, const unsigned char address[32], uint64_t key,
                              comm_watch_fetch_t *fetch, int *fd, base_time_t until)
{
    gyre_status_t st = GYRE_OK;
    if (memcmp(address + 16, fds->address + 16, 16) != 0)
        return gyre_fail_quiet(GYRE_ERR_UNSUPPORTED,
                               "that process is on another host or in another network namespace");
    if (memcmp(address, fds->address, 16) == 0)
        return fetch_own(fds, key, fd);
    if (fetch->step == FETCH_IDLE)
        st = fetch_ask(address, key, fetch, until);
    if (st == GYRE_OK && fetch->step == FETCH_ASKED)
        st = fetch_prove(fds, fetch, until);
    if (st == GYRE_OK && fetch->step == FETCH_PROVED)
        st = fetch_take(fds, fetch, fd, until);
    if (st == GYRE_IN_PROGRESS)
        return st;
    /* The server gave up a caller that returned late, or was itself stopped: connect again. The same holds
     * for a server that had no free descriptor for a moment. But not forever: a server may close all
     * connections at once. */
    int again = 0, lost = fetch->lost;
    if (st == GYRE_ERR_TRANSPORT && fetch->step != FETCH_IDLE) {
        int late = base_now() - fetch->since > (base_time_t)(CLIENT_SECONDS / 2 * 1e9);
        again = late || ++lost <= LOST_MOST;
    }
    comm_watch_fetch_drop(fetch);
    fetch->lost = again ? lost : 0;
    return again ? GYRE_IN_PROGRESS : st;
}
