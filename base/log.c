/* SPDX-License-Identifier: Apache-2.0 */
/* base/log.c: one line per message, one write(2) per line, so that lines of many ranks do not mix.
 *
 * Relies on nothing but write(2): it may be called while the settings are being read, and from any thread. */
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

int base_log_limit = BASE_LOG_WARNING;
static _Atomic int log_rank = -1;
static _Thread_local int thread_muted;

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

void base_log_write(base_log_level_t level, const char *format, ...)
{
    if (thread_muted)
        return;
    int saved = errno;
    char line[LINE_BYTES];
    size_t room = sizeof(line) - 1; /* one byte is kept for the newline */
    int rank = base_log_rank();
    size_t used;
    if (rank >= 0)
        used = clip(snprintf(line, room, "gyre[%d] %s: ", rank, level_name(level)), room);
    else
        used = clip(snprintf(line, room, "gyre: %s: ", level_name(level)), room);

    va_list args;
    va_start(args, format);
    size_t text = clip(vsnprintf(line + used, room - used, format, args), room - used);
    va_end(args);
    while (text > 0 && line[used + text - 1] == '\n')
        text--;
    flatten(line + used, text);
    used += text;
    line[used++] = '\n';

    for (size_t done = 0; done < used;) {
        ssize_t n = write(STDERR_FILENO, line + done, used - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break; /* stderr is closed or full: there is nowhere left to say so */
        done += (size_t)n;
    }
    errno = saved;
}
