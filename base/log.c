/* SPDX-License-Identifier: Apache-2.0 */
/* base/log.c: one line per message, one write(2) per line, so that lines of many ranks do not mix.
 *
 * Relies on nothing but write(2): it may be called while the settings are being read, and from any thread. */
#include "base/log.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

int base_log_limit = BASE_LOG_WARNING;
static _Atomic int log_rank = -1;
static _Thread_local int thread_muted, thread_hurries;
static _Atomic unsigned lost; /* lines that were dropped and not yet counted on stderr */

/* Below PIPE_BUF, so that a line into a pipe stays whole; room for gyre_fail's longest text. */
#define LINE_BYTES 2304

static const char *level_name(base_log_level_t level)
{
    static const char *const names[] = {"none", "error", "warning", "info", "debug", "trace"};
    return (unsigned)level < sizeof(names) / sizeof(names[0]) ? names[level] : "log";
}

void base_log_set_level(base_log_level_t level)
{
    __atomic_store_n(&base_log_limit, (int)level, __ATOMIC_RELAXED);
}

int base_log_mute(int muted)
{
    int before = thread_muted;
    thread_muted = muted;
    return before;
}

void base_log_hurry(int by)
{
    thread_hurries += by;
}

void base_log_set_rank(int rank)
{
    atomic_store_explicit(&log_rank, rank < 0 ? -1 : rank, memory_order_relaxed);
}

int base_log_rank(void)
{
    return atomic_load_explicit(&log_rank, memory_order_relaxed);
}

/* A message is one line, and it may quote what strangers sent: nothing in it may move the terminal's
 * cursor. */
static void flatten(char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '\n' || c == '\r')
            text[i] = ' ';
        else if ((c < 0x20 && c != '\t') || c == 0x7f)
            text[i] = '?';
    }
}

static size_t clip(int wanted, size_t room)
{
    if (wanted < 0)
        return 0;
    return (size_t)wanted < room ? (size_t)wanted : room - 1;
}

/* write(2) to stderr that fails with EAGAIN instead of waiting. A pipe or terminal is opened once more. Where
 * that is not permitted it is asked first, and another process may be faster. A file never waits. */
static ssize_t write_now(const char *line, size_t bytes)
{
    struct stat info;
    if (fstat(STDERR_FILENO, &info) != 0)
        return -1;
    if (S_ISSOCK(info.st_mode))
        return send(STDERR_FILENO, line, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (S_ISFIFO(info.st_mode) || S_ISCHR(info.st_mode)) {
        int fd = base_file_open_again(STDERR_FILENO);
        if (fd >= 0) {
            ssize_t n = write(fd, line, bytes);
            int err = errno;
            close(fd);
            errno = err;
            return n;
        }
        struct pollfd room = {.fd = STDERR_FILENO, .events = POLLOUT};
        if (poll(&room, 1, 0) != 1 || (room.revents & POLLOUT) == 0) {
            errno = EAGAIN;
            return -1;
        }
    }
    return write(STDERR_FILENO, line, bytes);
}

/* 0: there is no room and this thread does not wait. */
static int put(const char *line, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = thread_hurries > 0 ? write_now(line + done, bytes - done)
                                       : write(STDERR_FILENO, line + done, bytes - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) /* stderr is closed, or full: then somebody may read it later */
            return !(n < 0 && errno == EAGAIN);
        done += (size_t)n;
    }
    return 1;
}

/* "gyre[3] error: ", of at most `room` bytes. Returns its length. */
static size_t begin(char *line, size_t room, base_log_level_t level)
{
    int rank = base_log_rank();
    if (rank >= 0)
        return clip(snprintf(line, room, "gyre[%d] %s: ", rank, level_name(level)), room);
    return clip(snprintf(line, room, "gyre: %s: ", level_name(level)), room);
}

/* 0: still no room. */
static int count_lost(unsigned n)
{
    char line[160];
    size_t used = begin(line, sizeof(line), BASE_LOG_WARNING);
    used +=
        clip(snprintf(line + used, sizeof(line) - used, "%u lines are missing here: stderr was full\n", n),
             sizeof(line) - used);
    return put(line, used);
}

void base_log_write(base_log_level_t level, const char *format, ...)
{
    if (thread_muted)
        return;
    int saved = errno;
    char line[LINE_BYTES];
    size_t room = sizeof(line) - 1; /* one byte is kept for the newline */
    size_t used = begin(line, room, level);

    va_list args;
    va_start(args, format);
    size_t text = clip(vsnprintf(line + used, room - used, format, args), room - used);
    va_end(args);
    while (text > 0 && line[used + text - 1] == '\n')
        text--;
    flatten(line + used, text);
    used += text;
    line[used++] = '\n';

    unsigned missing = atomic_exchange(&lost, 0);
    if (missing > 0 && !count_lost(missing))
        atomic_fetch_add(&lost, missing + 1);
    else if (!put(line, used))
        atomic_fetch_add(&lost, 1);
    errno = saved;
}
