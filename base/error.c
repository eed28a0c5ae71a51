/* SPDX-License-Identifier: Apache-2.0 */
/* base/error.c: each thread's last error, in words.
 *
 * The text is formatted on the stack first and copied after: an argument may be gyre_last_error() itself,
 * when a caller repeats an older error with more around it. errno is left as it was. */
#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "base/log.h"
#include "base/utf8.h"

#define TEXT_BYTES 2048

static _Thread_local char last_error[TEXT_BYTES];

const char *gyre_last_error(void)
{
    return last_error;
}

/* 1: the process could not get memory. A thread that gets no room for its stack is EAGAIN. */
static int lacks_memory(gyre_status_t status, int err)
{
    return err == ENOMEM || err == EAGAIN || (err == 0 && status == GYRE_ERR_NO_MEMORY);
}

/* Appends the limit of the address space, if the process has one: machines with memory to spare refuse for
 * it. Once, and not where the text names another limit. Returns the length. */
static size_t name_limit(char *text, size_t bytes, size_t used)
{
    struct rlimit space;
    if (used >= bytes || getrlimit(RLIMIT_AS, &space) != 0 || space.rlim_cur == RLIM_INFINITY ||
        strstr(text, "ulimit") != NULL)
        return used;
    int n = snprintf(text + used, bytes - used, "; ulimit -v allows this process %llu MiB of address space",
                     (unsigned long long)(space.rlim_cur >> 20));
    return used + (n < 0 ? 0 : (size_t)n);
}

/* err: an errno value whose words are appended; 0: none. loud: logs it. */
static void record(gyre_status_t status, int err, int loud, const char *format, va_list args)
{
    int saved = errno;
    char text[TEXT_BYTES];
    int n = vsnprintf(text, sizeof(text), format, args);
    size_t used = n < 0 ? 0 : (size_t)n;
    if (err != 0 && used < sizeof(text)) {
        char words[128];
        /* GNU strerror_r: thread-safe, and returns the words wherever they are. */
        n = snprintf(text + used, sizeof(text) - used, ": %s", strerror_r(err, words, sizeof(words)));
        used += n < 0 ? 0 : (size_t)n;
    }
    if (lacks_memory(status, err))
        used = name_limit(text, sizeof(text), used);
    if (used >= sizeof(text))
        memcpy(text + sizeof(text) - 4, "...", 4);
    /* A file's name need not be UTF-8, and a part that is too long was cut anywhere; Python takes no less. */
    base_utf8_mend(text);
    memcpy(last_error, text, sizeof(text) < used + 1 ? sizeof(text) : used + 1);
    if (loud)
        log_error("%s", last_error);
    errno = saved;
}

gyre_status_t gyre_fail(gyre_status_t status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    record(status, 0, 1, format, args);
    va_end(args);
    return status;
}

gyre_status_t gyre_fail_errno(gyre_status_t status, int err, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    record(status, err, 1, format, args);
    va_end(args);
    return status;
}

gyre_status_t gyre_fail_quiet(gyre_status_t status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    record(status, 0, 0, format, args);
    va_end(args);
    return status;
}
