/* SPDX-License-Identifier: Apache-2.0 */
/* base/thread/aside.h: calls into libraries that know no deadline (a resolver, a launcher's client
 * library), made on a thread of their own. */
#ifndef BASE_THREAD_ASIDE_H
#define BASE_THREAD_ASIDE_H

#include "base/clock.h"

/* Runs work(arg) on another thread and waits for it until `deadline`. 0: it is done. ETIMEDOUT: it is not;
 * the thread goes on and owns arg: when it comes back, if ever, it calls drop(arg). Another errno: it was
 * never begun. */
int base_aside(void (*work)(void *arg), void (*drop)(void *arg), void *arg, base_time_t deadline);

#endif
