/* base/bias.h: a lock that costs one thread next to nothing.
 *
 * Most locks of a library are taken by one thread only, but must be right with several. The first thread that takes
 * this one becomes its owner and from then on enters with a plain store and a load. When another thread comes, it revokes that
 * once, with a fence in all threads (base/fence.h); afterwards it is an ordinary lock. (Biased locking as in Java's
 * monitors, with the asymmetric fence of Dice, Huang and Yang 2001.) */
#ifndef BASE_BIAS_H
#define BASE_BIAS_H

#include <stdatomic.h>
#include <stdint.h>

/* Zeroed: free, without owner. Never waited for here: the caller tries again. */
typedef struct {
    _Atomic(const void *) owner; /* thread that may enter by `inside`; set once */
    _Atomic uint32_t inside;     /* written by the owner only: it is in */
    _Atomic uint32_t revoked;    /* base_bias_state_t */
    _Atomic uint32_t held;       /* the ordinary lock, once revoked */
} base_bias_t;

typedef enum { BASE_BIAS_OWNED = 0, BASE_BIAS_REVOKING = 1, BASE_BIAS_REVOKED = 2 } base_bias_state_t;

extern _Thread_local char base_bias_me
    __attribute__((tls_model("initial-exec"))); /* its address is the thread */

int base_bias_try_slow(base_bias_t *lock);

/* 1: taken. 0: somebody else has it, or is about to revoke it. */
static inline int base_bias_try(base_bias_t *lock)
{
    if (atomic_load_explicit(&lock->owner, memory_order_relaxed) == &base_bias_me) {
        atomic_store_explicit(&lock->inside, 1, memory_order_relaxed);
        /* Pairs with base_fence_threads in revoke(): either we see `revoked` below, or the revoker sees `inside`. */
        atomic_signal_fence(memory_order_seq_cst);
        if (atomic_load_explicit(&lock->revoked, memory_order_relaxed) == BASE_BIAS_OWNED)
            return 1; /* whoever was in before was this thread */
        atomic_store_explicit(&lock->inside, 0, memory_order_release);
    }
    return base_bias_try_slow(lock);
}

/* By the thread that took it. */
static inline void base_bias_leave(base_bias_t *lock)
{
    /* release: pairs with the acquire of whoever enters next */
    if (atomic_load_explicit(&lock->owner, memory_order_relaxed) == &base_bias_me &&
        atomic_load_explicit(&lock->inside, memory_order_relaxed))
        atomic_store_explicit(&lock->inside, 0, memory_order_release);
    else
        atomic_store_explicit(&lock->held, 0, memory_order_release);
}

#endif
