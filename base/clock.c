/* SPDX-License-Identifier: Apache-2.0 */
/* base/clock.c: CLOCK_MONOTONIC in nanoseconds, and deadlines on it. */
#include "base/clock.h"

#include <limits.h>
#include <time.h>

static base_time_t now_by(clockid_t clock)
{
    struct timespec now;
    /* Cannot fail: the clocks exist on every Linux and the pointer is good. */
    clock_gettime(clock, &now);
    return (base_time_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

base_time_t base_now(void)
{
    return now_by(CLOCK_MONOTONIC);
}

base_time_t base_now_coarse(void)
{
    return now_by(CLOCK_MONOTONIC_COARSE);
}

base_time_t base_deadline(double seconds)
{
    if (!(seconds > 0.0)) /* NaN too */
        return BASE_TIME_NEVER;
    double ns = seconds * 1e9;
    base_time_t now = base_now();
    /* 2^63 - now, computed as a double, may round up by up to 1024: stay clear of it. */
    if (ns >= (double)(BASE_TIME_NEVER - now) - 4096.0)
        return BASE_TIME_NEVER;
    return now + (base_time_t)ns;
}

int base_poll_ms(base_time_t deadline)
{
    if (deadline == BASE_TIME_NEVER)
        return -1;
    base_time_t now = base_now();
    if (deadline <= now)
        return 0;
    base_time_t left = deadline - now;
    base_time_t ms = left / BASE_MS + (left % BASE_MS != 0);
    return ms > INT_MAX ? INT_MAX : (int)ms;
}
