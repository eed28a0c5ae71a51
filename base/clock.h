/* SPDX-License-Identifier: Apache-2.0 */
/* base/clock.h: monotonic time. No system call where the vDSO serves the clock. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

typedef int64_t base_time_t; /* nanoseconds since some fixed moment; differences only */
#define BASE_TIME_NEVER INT64_MAX
#define BASE_MS         ((base_time_t)1000000) /* a millisecond */

base_time_t base_now(void);
/* The same for a tenth of the time, up to one tick of the kernel (10 ms at most) late. */
base_time_t base_now_coarse(void);
/* now + seconds, saturating; seconds <= 0 gives BASE_TIME_NEVER. */
base_time_t base_deadline(double seconds);
/* Milliseconds until `deadline` for poll(2): 0 if past, -1 for NEVER, rounded up. */
int base_poll_ms(base_time_t deadline);

#endif
