/* SPDX-License-Identifier: Apache-2.0 */
/* comm/memory/bell.h: doorbells: how a rank that sleeps is woken by a rank of its host.
 *
 *     owner                                        ringer
 *     announce: read the word                      make a message visible
 *               store `sleeping`, fence            order (a fence, which may be light)
 *     look for messages once more                  `sleeping`? take it back, change the word, wake
 *     sleep while the word is unchanged
 *
 * An owner that waits for the outbox of one rank (comm/memory/outbox.h) says of which: then posts of others
 * do not wake it. Of n ranks that sleep each would be woken n times otherwise.
 *
 * A sleeper that waits for shared memory alone sleeps on the word (futex). One that waits for a network, too,
 * sleeps in poll(2): its bell has a socket, to which the ringer sends a byte. */
#ifndef COMM_MEMORY_BELL_H
#define COMM_MEMORY_BELL_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/thread/fence.h"

/* How the owner sleeps, and so how it is woken. */
typedef enum { COMM_BELL_AWAKE = 0, COMM_BELL_FUTEX = 1, COMM_BELL_SOCKET = 2 } comm_bell_how_t;
enum { COMM_BELL_HOW = 0xff, COMM_BELL_WHOM = 8 /* bits below the rank */ };

typedef struct {
    _Atomic uint32_t bell; /* futex word; changes with every ring */
    /* Its owner is about to sleep or sleeps: comm_bell_how_t, and above COMM_BELL_HOW 1 + the local rank for
     * whose outbox it waits; 0 there: for any. */
    _Atomic uint32_t sleeping;
    _Atomic uint32_t heavy;      /* 1: its owner makes ringers' fences unnecessary; see comm_bell_ring */
    _Atomic uint32_t has_socket; /* written with `socket` before the owner announces that it sleeps there */
    unsigned char socket[16];    /* random: names it */
    uint32_t pad[8];
} __attribute__((aligned(64))) comm_bell_t;

/* The owner of `bell` promises to make the fences of its ringers unnecessary, if the kernel allows it. */
void comm_bell_promise(comm_bell_t *bell);
/* 1: this process takes part in the fences that sleepers have the kernel make; set by comm_bell_promise. */
extern _Atomic int comm_bell_registered;

/* By the owner, at any time: a descriptor that becomes readable when the bell is rung while it sleeps as
 * COMM_BELL_SOCKET. -1: there is none, errno says why. */
int comm_bell_open(comm_bell_t *bell);
/* -1 is allowed. */
void comm_bell_close(int fd);
/* Takes what made it readable. */
void comm_bell_drain(int fd);

/* By the owner, one thread at a time: it is about to sleep, and will look for messages once more before.
 * *word: what to compare with in a sleep on bell->bell. An announcement stands until a ringer takes it back:
 * announcing again costs two loads. Returns the fences that it took. */
int comm_bell_announce(comm_bell_t *bell, uint32_t how, uint32_t *word);
/* `how` of an owner that waits for the outbox of local rank `whom`; -1: for any. */
static inline uint32_t comm_bell_for(comm_bell_how_t how, int whom)
{
    return (uint32_t)how | (uint32_t)(whom + 1) << COMM_BELL_WHOM;
}

/* Ends the owner's sleep and the next one, announced or not. */
void comm_bell_wake(comm_bell_t *bell);
void comm_bell_ring_slow(comm_bell_t *bell);

/* Call after making something visible to the owner of `bell` by a release store.
 *
 * The fence pairs with the one in comm_bell_announce. The owner stores `sleeping`, fences, and looks for
 * messages once more; we store the message, fence, and look at `sleeping`. In the single order of the two
 * fences one comes first, so either the owner sees the message or we see that it sleeps. A release store
 * alone would not do: it may be ordered after the following load, on x86 as well as on Arm.
 *
 * A fence for every message costs as much as moving a cache line, and only ranks that sleep need it, which is
 * rare. So the owner calls membarrier before it sleeps, where the kernel offers that: the kernel puts a fence
 * into all running threads of the registered processes. Then our fence need only keep the compiler from
 * exchanging the two. */
static inline void comm_bell_order(const comm_bell_t *bell)
{
    if (atomic_load_explicit(&comm_bell_registered, memory_order_relaxed) &&
        atomic_load_explicit(&bell->heavy, memory_order_relaxed))
        base_fence_light();
    else
        base_fence();
}

static inline void comm_bell_ring(comm_bell_t *bell)
{
    comm_bell_order(bell);
    if (atomic_load_explicit(&bell->sleeping, memory_order_relaxed))
        comm_bell_ring_slow(bell);
}

/* For a change in the outbox of local rank `from`. The caller has made it visible and its order, as
 * above. */
static inline void comm_bell_ring_for(comm_bell_t *bell, int from)
{
    uint32_t sleeping = atomic_load_explicit(&bell->sleeping, memory_order_relaxed);

    if (sleeping != COMM_BELL_AWAKE &&
        (sleeping >> COMM_BELL_WHOM == 0 || sleeping >> COMM_BELL_WHOM == (uint32_t)from + 1))
        comm_bell_ring_slow(bell);
}

#endif
