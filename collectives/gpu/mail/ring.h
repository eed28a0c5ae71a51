/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/gpu/mail/ring.h: the places of the pieces of messages between two ranks in a ring of bytes.
 * Sender and receiver each have one of these, do the same steps, and come to the same places without asking
 * each other.
 *
 * A piece lies in one stretch: if it does not fit before the ring's end, it begins at the ring's beginning.
 * Its place is free once all pieces that lay there, and the one whose letter it overwrites, were fetched.
 * Pieces are fetched in order, so one number expresses that. */
#ifndef COLLECTIVES_GPU_MAIL_RING_H
#define COLLECTIVES_GPU_MAIL_RING_H

#include <stddef.h>
#include <stdint.h>

enum {
    COLL_MAIL_LETTERS = 64, /* most pieces under way between two ranks */
    COLL_MAIL_ALIGN = 256   /* pieces begin at multiples of it */
};

typedef struct {
    uint64_t head;                     /* bytes given out so far, with those skipped at the ends */
    uint64_t count;                    /* pieces so far */
    uint64_t start[COLL_MAIL_LETTERS]; /* of piece q at [q % LETTERS], counted as head is */
} coll_mail_ring_t;

/* Places the next piece: number ring->count from now on. bytes <= room, which is a multiple of ALIGN. Returns
 * its place; *fetched: so many pieces must have been fetched before it is written there. */
static inline size_t coll_mail_ring_next(coll_mail_ring_t *ring, size_t room, size_t bytes, uint64_t *fetched)
{
    const uint64_t length = (bytes + COLL_MAIL_ALIGN - 1) / COLL_MAIL_ALIGN * COLL_MAIL_ALIGN;
    uint64_t at = ring->head;
    if (at % room + length > room)
        at = (at / room + 1) * room;
    const uint64_t before = ring->count++;
    *fetched = before < COLL_MAIL_LETTERS ? 0 : ring->count - COLL_MAIL_LETTERS;
    while (*fetched < before && ring->start[(*fetched + 1) % COLL_MAIL_LETTERS] + room < at + length)
        ++*fetched;
    ring->start[ring->count % COLL_MAIL_LETTERS] = at;
    ring->head = at + length;
    return (size_t)(at % room);
}

#endif
