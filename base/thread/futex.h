/* SPDX-License-Identifier: Apache-2.0 */
/* base/thread/futex.h: the three ways to wait, cheapest first. */
#ifndef BASE_THREAD_FUTEX_H
#define BASE_THREAD_FUTEX_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/clock.h"

/* One polite turn of a spin loop. */
static inline void base_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield" ::: "memory");
#endif
}

/* Sleeps while *word == expected, at most until `deadline`; spurious returns happen. Works between processes
 * that share the page. Returns 0 woken or changed, 1 deadline passed. */
int base_futex_wait(_Atomic uint32_t *word, uint32_t expected, base_time_t deadline);
void base_futex_wake(_Atomic uint32_t *word, int waiters);

#endif
