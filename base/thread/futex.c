/* SPDX-License-Identifier: Apache-2.0 */
/* base/thread/futex.c: sleeping on a word of memory that may be shared between processes. */
#include "base/thread/futex.h"

#include <errno.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int base_futex_wait(_Atomic uint32_t *word, uint32_t expected, base_time_t deadline)
{
    int saved = errno;
    struct timespec until, *timeout = NULL;
    if (deadline != BASE_TIME_NEVER) {
        base_time_t ns = deadline > 0 ? deadline : 0;
        until.tv_sec = (time_t)(ns / 1000000000);
        until.tv_nsec = (long)(ns % 1000000000);
        timeout = &until;
    }
    /* WAIT_BITSET takes a moment on CLOCK_MONOTONIC, which base_time_t is: no arithmetic, no drift over
     * spurious returns. Not FUTEX_PRIVATE: the waker may be another process. */
    long rc = syscall(SYS_futex, word, FUTEX_WAIT_BITSET, expected, timeout, NULL, FUTEX_BITSET_MATCH_ANY);
    int late = rc != 0 && errno == ETIMEDOUT;
    errno = saved;
    return late;
}

void base_futex_wake(_Atomic uint32_t *word, int waiters)
{
    int saved = errno;
    /* Fails only for a bad address; then there is nobody to wake. */
    syscall(SYS_futex, word, FUTEX_WAKE, waiters, NULL, NULL, 0);
    errno = saved;
}
