/* SPDX-License-Identifier: Apache-2.0 */
/* comm/launch/pmi1.c: see pmi1.h. */
#include "comm/launch/pmi1.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "comm/launch/pmi1_parse.h"

static gyre_status_t ready(const pmi1_t *pmi, short events, const char *what)
{
    for (;;) {
        struct pollfd p = {.fd = pmi->fd, .events = events, .revents = 0};
        int n = poll(&p, 1, base_poll_ms(pmi->deadline));
        if (n > 0)
            return GYRE_OK;
        if (n == 0)
            return gyre_fail(
                GYRE_ERR_TIMEOUT, "PMI (PMI_FD=%d): the launcher did not answer \"%s\" before the deadline%s",
                pmi->fd, what,
                strcmp(what, "barrier_in") == 0 ? ": some ranks of the job have not called gyre_init" : "");
        if (errno != EINTR)
            return gyre_fail_errno(GYRE_ERR_SYSTEM, errno, "poll");
    }
}

static gyre_status_t lost(const pmi1_t *pmi, const char *what, int err)
{
    return gyre_fail(GYRE_ERR_BOOTSTRAP, "PMI (PMI_FD=%d): the launcher is gone: \"%s\": %s", pmi->fd, what,
                     err != 0 ? strerror(err) : "it closed the connection");
}

/* Hydra and slurmstepd give a socket; on a pipe a launcher that is gone would raise SIGPIPE. */
static gyre_status_t send_all(const pmi1_t *pmi, const char *text, size_t bytes, const char *what)
{
    while (bytes > 0) {
        ssize_t n = send(pmi->fd, text, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n >= 0) {
            text += n;
            bytes -= (size_t)n;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            gyre_status_t st = ready(pmi, POLLOUT, what);
            if (st != GYRE_OK)
                return st;
        } else if (errno != EINTR) {
            return lost(pmi, what, errno);
        }
    }
    return GYRE_OK;
}

/* The next line, without its newline, to in[0, line_bytes). */
static gyre_status_t read_line(pmi1_t *pmi, const char *what)
{
    for (;;) {
        char *newline = memchr(pmi->in, '\n', pmi->have);
        if (newline != NULL) {
            pmi->line_bytes = (size_t)(newline - pmi->in);
            return GYRE_OK;
        }
        if (pmi->have == sizeof(pmi->in))
            return gyre_fail(GYRE_ERR_BOOTSTRAP, "PMI (PMI_FD=%d): the answer to \"%s\" has no end", pmi->fd,
                             what);
        gyre_status_t st = ready(pmi, POLLIN, what);
        if (st != GYRE_OK)
            return st;
        ssize_t n = recv(pmi->fd, pmi->in + pmi->have, sizeof(pmi->in) - pmi->have, MSG_DONTWAIT);
        if (n > 0)
            pmi->have += (size_t)n;
        else if (n == 0)
            return lost(pmi, what, 0);
        else if (errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK)
            return lost(pmi, what, errno);
    }
}

/* Sends "cmd=`what``format`" and reads the answer, which must be "cmd=`answer`". The line stays in `in`
 * until the next call. */
__attribute__((format(printf, 4, 5))) static gyre_status_t ask(pmi1_t *pmi, const char *what,
                                                               const char *answer, const char *format, ...)
{
    char text[PMI1_LINE_MAX];
    va_list args;
    int head = snprintf(text, sizeof(text), "cmd=%s", what);
    va_start(args, format);
    int tail = vsnprintf(text + head, sizeof(text) - (size_t)head, format, args);
    va_end(args);
    if (tail < 0 || (size_t)(head + tail) + 2 > sizeof(text))
        return gyre_fail(GYRE_ERR_INVALID, "PMI: the request \"%s\" is too long", what);
    text[head + tail] = '\n';
    pmi->have = pmi->line_bytes = 0; /* nothing comes unasked */
    gyre_status_t st = send_all(pmi, text, (size_t)(head + tail) + 1, what);
    if (st == GYRE_OK)
        st = read_line(pmi, what);
    if (st == GYRE_OK && !pmi1_field_is(pmi->in, pmi->line_bytes, "cmd", answer))
        st = gyre_fail(GYRE_ERR_BOOTSTRAP, "PMI (PMI_FD=%d): the launcher answers \"%s\" with \"%.*s\"",
                       pmi->fd, what, (int)(pmi->line_bytes < 200 ? pmi->line_bytes : 200), pmi->in);
    return st;
}

/* Answers without "rc" are good news, too. */
static int refused(const pmi1_t *pmi)
{
    int rc = 0;
    return pmi1_field_int(pmi->in, pmi->line_bytes, "rc", &rc) && rc != 0;
}

static gyre_status_t check(const pmi1_t *pmi, const char *what)
{
    if (!refused(pmi))
        return GYRE_OK;
    return gyre_fail(GYRE_ERR_BOOTSTRAP, "PMI (PMI_FD=%d): the launcher refuses \"%s\": %.*s", pmi->fd, what,
                     (int)(pmi->line_bytes < 200 ? pmi->line_bytes : 200), pmi->in);
}

/* The word `key` of the answer as a string. */
static int take(const pmi1_t *pmi, const char *key, char *out, size_t room)
{
    const char *text;
    size_t n;
    if (!pmi1_field(pmi->in, pmi->line_bytes, key, &text, &n) || n == 0 || n >= room ||
        memchr(text, '\0', n) != NULL)
        return 0;
    memcpy(out, text, n);
    out[n] = '\0';
    return 1;
}

gyre_status_t pmi1_open(pmi1_t *pmi, int fd, base_time_t deadline)
{
    int type = 0;
    socklen_t len = sizeof(type);
    memset(pmi, 0, sizeof(*pmi));
    pmi->fd = fd;
    pmi->deadline = deadline;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) != 0)
        return gyre_fail_errno(
            GYRE_ERR_INVALID, errno,
            "PMI_FD=%d is not the launcher's socket (was it closed on the way here? A process that "
            "shall not belong to the job needs: env -u PMI_FD -u PMI_RANK -u PMI_SIZE)",
            fd);
    gyre_status_t st = ask(pmi, "init", "response_to_init", " pmi_version=1 pmi_subversion=1");
    if (st == GYRE_OK)
        st = check(pmi, "init");
    if (st == GYRE_OK)
        st = ask(pmi, "get_maxes", "maxes", "%s", "");
    if (st != GYRE_OK)
        return st;
    if (!pmi1_field_int(pmi->in, pmi->line_bytes, "vallen_max", &pmi->value_max) || pmi->value_max < 1)
        return gyre_fail(GYRE_ERR_BOOTSTRAP,
                         "PMI (PMI_FD=%d): the launcher does not say how long a value may be", fd);
    st = ask(pmi, "get_my_kvsname", "my_kvsname", "%s", "");
    if (st == GYRE_OK && !take(pmi, "kvsname", pmi->space, sizeof(pmi->space)))
        st = gyre_fail(GYRE_ERR_BOOTSTRAP, "PMI (PMI_FD=%d): the launcher does not name its key-value space",
                       fd);
    return st;
}

gyre_status_t pmi1_get(pmi1_t *pmi, const char *key, char *text, size_t room)
{
    gyre_status_t st = ask(pmi, "get", "get_result", " kvsname=%s key=%s", pmi->space, key);
    if (st != GYRE_OK)
        return st;
    if (refused(pmi) || !take(pmi, "value", text, room))
        return gyre_fail_quiet(GYRE_ERR_NOT_FOUND, "PMI: no value of \"%s\"", key);
    return GYRE_OK;
}

gyre_status_t pmi1_put(pmi1_t *pmi, const char *key, const char *text)
{
    if (strlen(text) >= (size_t)pmi->value_max)
        return gyre_fail(
            GYRE_ERR_BOOTSTRAP,
            "PMI (PMI_FD=%d): the launcher takes values of %d bytes, %zu are needed: give GYRE_ROOT", pmi->fd,
            pmi->value_max, strlen(text) + 1);
    gyre_status_t st = ask(pmi, "put", "put_result", " kvsname=%s key=%s value=%s", pmi->space, key, text);
    return st == GYRE_OK ? check(pmi, "put") : st;
}

gyre_status_t pmi1_barrier(pmi1_t *pmi)
{
    gyre_status_t st = ask(pmi, "barrier_in", "barrier_out", "%s", "");
    return st == GYRE_OK ? check(pmi, "barrier_in") : st;
}

gyre_status_t pmi1_goodbye(pmi1_t *pmi)
{
    return ask(pmi, "finalize", "finalize_ack", "%s", "");
}
