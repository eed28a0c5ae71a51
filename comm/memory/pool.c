/* SPDX-License-Identifier: Apache-2.0 */
/* comm/memory/pool.c: see pool.h. tests/comm/test_pool.c tries every interleaving. */
#include "comm/memory/pool.h"

static int is_free(comm_pool_t *pool, uint32_t buffer)
{
    const _Atomic uint64_t *consumed = pool->lent[buffer].consumed;

    if (!consumed)
        return 1;
    /* acquire: pairs with the release in ring_advance; the receiver's loads from the buffer are over */
    if (atomic_load_explicit(consumed, memory_order_acquire) < pool->lent[buffer].until)
        return 0;
    pool->lent[buffer].consumed = NULL;
    return 1;
}

/* The buffer that was lent first is the likeliest to be free. One that was never used costs a new page: a
 * rank takes as many as it has messages under way. */
int comm_pool_find(comm_pool_t *pool)
{
    for (uint32_t i = 0; i < pool->used; i++) {
        const uint32_t at = (pool->next + i) % pool->used;
        if (is_free(pool, at)) {
            pool->next = (at + 1) % pool->used;
            return (int)at;
        }
        if (i == 0 && pool->used < pool->count)
            return (int)pool->used++;
    }
    return pool->used < pool->count ? (int)pool->used++ : -1;
}
