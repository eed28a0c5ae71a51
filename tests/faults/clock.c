/* SPDX-License-Identifier: Apache-2.0 */
/* tests/faults/clock.c: a library for LD_PRELOAD: the time of day jumps by hours, forwards and back, at every
 * look. Clocks that only measure (CLOCK_MONOTONIC) stay as they are. */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static time_t jump(void)
{
    static atomic_uint looks;
    unsigned n = atomic_fetch_add(&looks, 1) * 2654435761u;
    return (time_t)(n >> 16) - 32768; /* 9 hours either way */
}

int clock_gettime(clockid_t clock, struct timespec *t)
{
    int rc = (int)syscall(SYS_clock_gettime, clock, t);
    if (rc == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        t->tv_sec += jump();
    return rc;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone)
{
    (void)zone;
    struct timespec now;
    int rc = clock_gettime(CLOCK_REALTIME, &now);
    if (rc == 0)
        *t = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
    return rc;
}

time_t time(time_t *out)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out != NULL)
        *out = now.tv_sec;
    return now.tv_sec;
}
