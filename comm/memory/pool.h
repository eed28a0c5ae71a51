/* SPDX-License-Identifier: Apache-2.0 */
/* comm/memory/pool.h: a rank's buffers for messages of middle size, where the rings of many ranks are short.
 *
 * The memory of a ring for each pair of ranks grows with the square of their number, unless rings get
 * shorter. A message that a short ring does not hold lies in a buffer of its sender instead, and the ring
 * carries the number of that buffer. So each rank needs the same memory, however many ranks there are, and
 * only the sender writes to it.
 *
 *     sender: take a buffer, copy the message there, put a packet with its number into the receiver's ring
 *     receiver: copy the message out of the buffer, then report the packet as consumed (comm_ring_ctl_t)
 *     sender: the buffer is free once that report covers the packet
 *
 * A receiver that is late keeps buffers. A sender that finds none sends the message another way, so a late
 * receiver never keeps messages from other receivers. */
#ifndef COMM_MEMORY_POOL_H
#define COMM_MEMORY_POOL_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum { COMM_POOL_BYTES = 4096, COMM_POOL_BUFFERS = 32 /* of a rank, at most */ };

/* The private side of the rank that owns the buffers. */
typedef struct {
    uint32_t count, used, next; /* buffers; those that were taken so far; the one that was taken first */
    struct {
        const _Atomic uint64_t *consumed; /* of the ring that carries its number; NULL: it is free */
        uint64_t until;                   /* free again once *consumed is that much */
    } lent[COMM_POOL_BUFFERS];
} comm_pool_t;

/* The number of a free buffer; -1: there is none. It stays free until it is lent. */
int comm_pool_find(comm_pool_t *pool);

/* The packet with its number ends before slot `until` of the ring whose receiver writes *consumed. */
static inline void comm_pool_lend(comm_pool_t *pool, int buffer, const _Atomic uint64_t *consumed,
                                  uint64_t until)
{
    pool->lent[buffer].consumed = consumed;
    pool->lent[buffer].until = until;
}

#endif
