/* comm/ucx_socket.c: the TCP sockets that UCX makes: keepalive for those that it accepts.
 *
 * UCX sets TCP keepalive as comm/ucx_config.c asks it to, but on connections that it opens only, not on those that it accepts.
 * Listening sockets hand it on to the connections that they accept, so they are told once, when the worker is made: they are
 * those that it makes.
 *
 * TCP_USER_TIMEOUT stays off. It would bound how long lost data is sent again, but also how long a receiver may leave its window
 * shut, and UCX empties its sockets inside Gyre's calls only: a rank that computes for longer would look dead, though its kernel
 * answers every probe. A silent host is the watcher's to notice, and an operation has its deadline. */
#include <dirent.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/log.h"
#include "comm/ucx.h"

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
    if (before->n == before->cap) {
        int cap = 2 * before->cap + 16;
        int *fds = realloc(before->fds, (size_t)cap * sizeof *fds);
        if (!fds) {
            before->partial = 1;
            return;
        }
        before->fds = fds;
        before->cap = cap;
    }
    before->fds[before->n++] = fd;
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
