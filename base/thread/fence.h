/* SPDX-License-Identifier: Apache-2.0 */
/* base/thread/fence.h: fences, and the asymmetric pair: where one side runs all the time and the other once
 * in a blue moon, the rare side has the kernel put a full fence into every thread concerned (membarrier), and
 * the frequent side only keeps the compiler from exchanging its store and its load. */
#ifndef BASE_THREAD_FENCE_H
#define BASE_THREAD_FENCE_H

#include <stdatomic.h>

/* A full fence. GCC refuses atomic_thread_fence under TSan, which cannot model it; every access that our
 * fences order is atomic by itself, so TSan loses nothing by not seeing them. */
static inline void base_fence(void)
{
#if !defined(__SANITIZE_THREAD__)
    atomic_thread_fence(memory_order_seq_cst);
#elif defined(__x86_64__)
    __asm__ volatile("mfence" ::: "memory");
#elif defined(__aarch64__)
    __asm__ volatile("dmb ish" ::: "memory");
#else
    __sync_synchronize();
#endif
}

/* The frequent side; only where the matching base_fence_*_ready said 1. */
static inline void base_fence_light(void)
{
    atomic_signal_fence(memory_order_seq_cst);
}

/* The rare side, among the threads of this process, or of all processes that have asked whether they are
 * ready. 0: the kernel does not offer it (before 4.16, or a seccomp filter): both sides must use
 * base_fence. Once 1, always 1. */
int base_fence_threads_ready(void);
int base_fence_processes_ready(void);
void base_fence_threads(void);
void base_fence_processes(void);

#endif
