/* SPDX-License-Identifier: Apache-2.0 */
/* comm/ucx/sockets.c: the TCP sockets that UCX makes: sets keepalive on those that it accepts, and ends those
 * that get no answers.
 *
 * UCX sets TCP keepalive as comm/ucx/config.c asks, but only on connections that it opens, not on those that
 * it accepts. An accepted connection inherits keepalive from its listening socket. So keepalive is set once
 * on the listening sockets, when the worker is made: they are those that appear during its making.
 *
 * TCP_USER_TIMEOUT stays off. It would bound how long lost data is sent again, but also how long a receiver
 * may leave its window shut. UCX empties its sockets inside Gyre's calls only: a rank that computes for
 * longer would look dead, though its kernel answers every probe. The kernel's account of a connection
 * (TCP_INFO) shows the difference: a living kernel acknowledges, even with its window shut.
 *
 * A rank that waits in UCX therefore reads that account twice a second. It shuts down a connection whose data
 * was sent again and again without an answer for GYRE_HEARTBEAT. The time counts from the loss, since the
 * idle time of a connection proves nothing. This serves a job in which one of several links is cut and the
 * bootstrap's link works; the watcher notices a silent host. */
#include <arpa/inet.h>
#include <dirent.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/grow.h"
#include "base/log.h"
#include "base/settings/settings.h"
#include "comm/ucx/ucx.h"

static int option(int fd, int level, int name)
{
    int value = -1;
    socklen_t bytes = sizeof value;

    return getsockopt(fd, level, name, &value, &bytes) == 0 ? value : -1;
}

static int is_tcp(int fd)
{
    int domain = option(fd, SOL_SOCKET, SO_DOMAIN);

    return (domain == AF_INET || domain == AF_INET6) && option(fd, SOL_SOCKET, SO_TYPE) == SOCK_STREAM;
}

static int listens(int fd)
{
    return option(fd, SOL_SOCKET, SO_ACCEPTCONN) > 0;
}

static int tune(int fd)
{
    static const struct {
        int level, name, value;
    } options[] = {
        {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, UCX_KEEP_IDLE},
        {IPPROTO_TCP, TCP_KEEPINTVL, UCX_KEEP_INTERVAL},
        {IPPROTO_TCP, TCP_KEEPCNT, UCX_KEEP_COUNT},
    };
    int done = 1;

    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        done &= setsockopt(fd, options[i].level, options[i].name, &options[i].value, sizeof(int)) == 0;
    return done;
}

/* Calls for every descriptor of the process. */
static void each_descriptor(void (*visit)(int fd, void *user), void *user)
{
    DIR *dir = opendir("/proc/self/fd");
    struct dirent *entry;

    if (!dir) {
        log_info("ucx: /proc/self/fd cannot be read: connections that are idle when they are cut are noticed "
                 "by the heartbeat only");
        return;
    }
    while ((entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] != '.' && atoi(entry->d_name) != dirfd(dir))
            visit(atoi(entry->d_name), user);
    }
    closedir(dir);
}

static void note_listening(int fd, void *user)
{
    ucx_sockets_t *before = user;

    if (before->partial || !is_tcp(fd) || !listens(fd))
        return;
    if (base_grow(&before->fds, &before->cap, (size_t)before->n, 1, sizeof fd))
        before->fds[before->n++] = fd;
    else
        before->partial = 1;
}

static void tune_new_listening(int fd, void *user)
{
    const ucx_sockets_t *before = user;

    if (!is_tcp(fd) || !listens(fd))
        return;
    for (int i = 0; i < before->n; i++) {
        if (before->fds[i] == fd)
            return;
    }
    if (!tune(fd))
        log_info("ucx: a listening socket's keepalive cannot be set");
}

void ucx_sockets_before(ucx_sockets_t *listening)
{
    *listening = (ucx_sockets_t){0};
    each_descriptor(note_listening, listening);
}

void ucx_sockets_after(ucx_sockets_t *listening)
{
    if (listening->partial) /* others' sockets are not to be touched */
        log_info("ucx: no memory to tell its sockets from others: those that it accepts get no keepalive");
    else
        each_descriptor(tune_new_listening, listening);
    free(listening->fds);
}

/* Transmissions in a row without an answer, and how long so many probes take at least. */
enum { TRIES = 3, PROBES_MS = 1400, ROUNDING_MS = 100 };

/* The place of fd's silence; with fd -1 a free one, or NULL. */
static ucx_silence_t *silence_of(ucx_silences_t *silences, int fd)
{
    for (int i = 0; i < UCX_SILENCES; i++) {
        ucx_silence_t *at = &silences->of[i];
        if (fd >= 0 ? at->since != 0 && at->fd == fd : at->since == 0)
            return at;
    }
    return NULL;
}

/* The least time without an answer. Each try waits twice as long as the one before, and tcpi_rto is the wait
 * after the last: the k before it took that less a part in 2^k. */
static unsigned silent_by_now(const struct tcp_info *info)
{
    const unsigned wait_ms = info->tcpi_rto / 1000, k = info->tcpi_retransmits;
    const unsigned ms = k < TRIES ? PROBES_MS : k < 16 ? wait_ms - (wait_ms >> k) : wait_ms;

    return ms < info->tcpi_last_ack_recv ? ms : info->tcpi_last_ack_recv;
}

unsigned ucx_socket_silent_ms(ucx_silences_t *silences, int fd, const struct tcp_info *info, base_time_t now)
{
    const base_time_t answered = now - info->tcpi_last_ack_recv * BASE_MS;
    ucx_silence_t *at = silence_of(silences, fd);

    if (info->tcpi_state != TCP_ESTABLISHED ||
        (info->tcpi_retransmits < TRIES && info->tcpi_probes < TRIES)) {
        if (at)
            at->since = 0;
        return 0;
    }
    if (!at || answered > at->since + ROUNDING_MS * BASE_MS) { /* it has answered since, or is another */
        at = at ? at : silence_of(silences, -1);
        if (!at)
            return 0; /* its turn comes when others have been ended */
        *at = (ucx_silence_t){.fd = fd, .since = now - silent_by_now(info) * BASE_MS};
    }
    at->seen = silences->look;
    return (unsigned)((now - at->since) / BASE_MS);
}

static void name_end(int fd, int (*ask)(int, struct sockaddr *, socklen_t *), char text[INET6_ADDRSTRLEN])
{
    union {
        struct sockaddr any;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
        struct sockaddr_storage room;
    } at = {0};
    socklen_t bytes = sizeof at;
    const void *address = &at.in.sin_addr;

    snprintf(text, INET6_ADDRSTRLEN, "?");
    if (ask(fd, &at.any, &bytes) != 0)
        return;
    if (at.any.sa_family == AF_INET6)
        address = &at.in6.sin6_addr;
    inet_ntop(at.any.sa_family, address, text, INET6_ADDRSTRLEN);
}

typedef struct {
    ucx_silences_t *silences;
    unsigned most_ms;
} look_t;

static void look_at(int fd, void *user)
{
    const look_t *look = user;
    struct tcp_info info = {0};
    socklen_t bytes = sizeof info;
    char here[INET6_ADDRSTRLEN], there[INET6_ADDRSTRLEN];
    unsigned silent_ms;

    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0)
        return;
    silent_ms = ucx_socket_silent_ms(look->silences, fd, &info, base_now());
    if (silent_ms < look->most_ms)
        return;
    name_end(fd, getsockname, here);
    name_end(fd, getpeername, there);
    shutdown(fd,
             /* UCX finds it closed. Before the log, which may block: an answer could come meanwhile. */
             SHUT_RDWR);
    log_warning("ucx: %s has acknowledged nothing to %s for %.1f s: that link is cut, and this connection is "
                "given up",
                there, here, silent_ms / 1000.0);
}

/* Visits the TCP sockets among what an epoll descriptor waits for, and among what such descriptors in it wait
 * for. Returns how many. */
static int each_below(int epoll_fd, int depth, void (*visit)(int fd, void *user), void *user)
{
    char path[64], line[256];
    FILE *file;
    int fd, found = 0;

    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", epoll_fd);
    file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "tfd: %d", &fd) != 1)
            continue;
        if (is_tcp(fd)) {
            visit(fd, user);
            found++;
        } else if (depth > 0) {
            found += each_below(fd, depth - 1, visit, user);
        }
    }
    if (file)
        fclose(file);
    return found;
}

int ucx_sockets_look(ucx_silences_t *silences, int event_fd)
{
    const double most_s = base_setting_seconds(SET_HEARTBEAT);
    int found;

    if (most_s <= 0)
        return 0;
    silences->look++;
    look_t look = {silences, most_s < UINT_MAX / 1000 ? (unsigned)(most_s * 1000) : UINT_MAX};
    found = each_below(event_fd, 1, look_at, &look);
    for (int i = 0; i < UCX_SILENCES; i++) {
        if (silences->of[i].seen != silences->look)
            silences->of[i].since = 0; /* it is closed, and its number may be another's next time */
    }
    return found;
}

static void end_connection(int fd, void *unused)
{
    (void)unused;
    if (!listens(fd))
        shutdown(fd, SHUT_RDWR);
}

void ucx_sockets_end(int event_fd)
{
    if (event_fd >= 0)
        (void)each_below(event_fd, 1, end_connection, NULL);
}
