/* SPDX-License-Identifier: Apache-2.0 */
/* base/thread/bias.c: the rare ways into a biased lock. See bias.h. */
#include "base/thread/bias.h"

#include <stddef.h>

#include "base/thread/fence.h"

#if !defined(__x86_64__) && !defined(__aarch64__)
_Thread_local char base_bias_me;
#endif

/* Makes it an ordinary lock. 0: another thread is at it. */
static int revoke(base_bias_t *lock)
{
    uint32_t expected = BASE_BIAS_OWNED;
    if (!atomic_compare_exchange_strong(&lock->revoked, &expected, BASE_BIAS_REVOKING))
        return expected == BASE_BIAS_REVOKED;
    if (base_fence_threads_ready())
        base_fence_threads();
    /* release: a thread that sees it may believe `inside` */
    atomic_store_explicit(&lock->revoked, BASE_BIAS_REVOKED, memory_order_release);
    return 1;
}

int base_bias_try_slow(base_bias_t *lock)
{
    if (atomic_load_explicit(&lock->revoked, memory_order_acquire) != BASE_BIAS_REVOKED) {
        const void *nobody = NULL;
        if (base_fence_threads_ready() && !atomic_load_explicit(&lock->revoked, memory_order_relaxed) &&
            atomic_compare_exchange_strong(&lock->owner, &nobody, base_bias_self()))
            return base_bias_try(lock); /* the first */
        if (!revoke(lock))
            return 0;
    }
    /* acquire: sees what the owner did while it was in */
    if (atomic_load_explicit(&lock->inside, memory_order_acquire))
        return 0;
    return !atomic_load_explicit(&lock->held, memory_order_relaxed) &&
           !atomic_exchange_explicit(&lock->held, 1, memory_order_acquire);
}
