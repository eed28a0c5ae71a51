/* SPDX-License-Identifier: Apache-2.0 */
/* base/thread/bias.h: a lock that costs one thread next to nothing.
 *
 * Most locks of a library are taken by one thread only, but must be right with several. The first thread that
 * takes this one becomes its owner and from then on enters with a plain store and a load. When another thread
 * comes, it revokes that once, with a fence in all threads (base/thread/fence.h); afterwards it is an
 * ordinary lock. (Biased locking as in Java's monitors, with the asymmetric fence of Dice, Huang and Yang
 * 2001.) */
#ifndef BASE_THREAD_BIAS_H
#define BASE_THREAD_BIAS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* Zeroed: free, without owner. Never waited for here: the caller tries again. */
typedef struct {
    _Atomic(const void *) owner; /* thread that may enter by `inside`; NULL until one comes */
    _Atomic uint32_t inside;     /* written by the owner only: it is in */
    _Atomic uint32_t revoked;    /* base_bias_state_t */
    _Atomic uint32_t held;       /* the ordinary lock, once revoked */
} base_bias_t;

typedef enum { BASE_BIAS_OWNED = 0, BASE_BIAS_REVOKING = 1, BASE_BIAS_REVOKED = 2 } base_bias_state_t;

#if !defined(__x86_64__) && !defined(__aarch64__)
extern _Thread_local char base_bias_me;
#endif
/* An address that is this thread's alone: of its control block, from a register, which is cheaper than that
 * of a thread-local variable in a shared library and needs no static TLS, of which programs that load the
 * library late have little. */
static inline const void *base_bias_self(void)
{
#if defined(__x86_64__)
    const void *self;
    __asm__("movq %%fs:0, %0" : "=r"(self));
    return self;
#elif defined(__aarch64__)
    return __builtin_thread_pointer();
#else
    return &base_bias_me;
#endif
}

int base_bias_try_slow(base_bias_t *lock);

/* The owner's way out, if it came in by base_bias_enter. */
static inline void base_bias_exit(base_bias_t *lock)
{
    /* release: pairs with the acquire of the thread that enters next */
    atomic_store_explicit(&lock->inside, 0, memory_order_release);
}

/* The owner's way in, without a call. 0: the caller is not the owner, or it is an ordinary lock by now. */
static inline int base_bias_enter(base_bias_t *lock)
{
    if (atomic_load_explicit(&lock->owner, memory_order_relaxed) != base_bias_self())
        return 0;
    atomic_store_explicit(&lock->inside, 1, memory_order_relaxed);
    /* Pairs with base_fence_threads in revoke(): either we see `revoked` below, or the revoker sees
     * `inside`. */
    atomic_signal_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&lock->revoked, memory_order_relaxed) == BASE_BIAS_OWNED)
        return 1; /* the thread that was in before was this one */
    base_bias_exit(lock);
    return 0;
}

/* 1: taken. 0: somebody else has it, or is about to revoke it. */
static inline int base_bias_try(base_bias_t *lock)
{
    return base_bias_enter(lock) || base_bias_try_slow(lock);
}

/* 1: only one thread has ever wanted it, as far as its owner can tell. Who is in and sees 0 should leave
 * soon. */
static inline int base_bias_unwanted(const base_bias_t *lock)
{
    return atomic_load_explicit(&lock->revoked, memory_order_relaxed) == BASE_BIAS_OWNED;
}

/* By a thread that is not in: if it is the owner, the next thread that comes is. For what one thread makes
 * and another one uses. */
static inline void base_bias_disown(base_bias_t *lock)
{
    if (atomic_load_explicit(&lock->owner, memory_order_relaxed) == base_bias_self())
        /* release: pairs with the exchange by which the next one becomes owner */
        atomic_store_explicit(&lock->owner, NULL, memory_order_release);
}

/* By the thread that took it. */
static inline void base_bias_leave(base_bias_t *lock)
{
    if (atomic_load_explicit(&lock->owner, memory_order_relaxed) == base_bias_self() &&
        atomic_load_explicit(&lock->inside, memory_order_relaxed))
        base_bias_exit(lock);
    else
        atomic_store_explicit(&lock->held, 0, memory_order_release); /* as in base_bias_exit */
}

#endif
