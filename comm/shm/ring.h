/* SPDX-License-Identifier: Apache-2.0 */
/* comm/shm/ring.h: a ring of 64-byte slots between one sender and one receiver in shared memory.
 *
 * The ring carries packets: a header slot, and as many slots of payload after it as are needed.
 *
 *     word (8)                    tag (8)      body (48)                    | slot | slot ...
 *     turn:32 | kind:8 | len:24   seq, sig     first 48 bytes of payload    | payload, 64 bytes each
 *
 * `turn` is the number of the lap around the ring, modulo 2^32 - 1 and from 1 (0 is a slot never written). A
 * header is new exactly when its turn is the receiver's lap. So there is no separate head index, and a small
 * message moves one cache line. The sender writes the word last, with release. The receiver reads the word
 * with acquire: a receiver that sees the word sees the payload.
 *
 * A slot that held payload may hold any bytes where a later lap expects a header. So the sender zeroes the
 * word after a packet if that slot ever held payload, before it publishes the packet. `raw` keeps which slots
 * held payload. For the zeroed word the sender always keeps one slot free after the packet.
 *
 * The receiver writes how far it has read to the control line, once per quarter of the ring. A packet takes
 * at most a quarter. In the smallest ring a packet takes up to three of the four slots, and the receiver
 * writes after every packet. So a receiver that has read everything never owes news that the sender waits
 * for. After a packet that names a buffer the receiver writes at once: the sender needs the buffer.
 *
 * Where that pays (comm_group_set_ring) the receiver takes the lines of payload that it has read:
 * base/thread/cacheline.h. */
#ifndef COMM_SHM_RING_H
#define COMM_SHM_RING_H

#include <string.h>

#include "base/checked.h"
#include "base/machine/copy.h"
#include "base/thread/cacheline.h"
#include "comm/memory/segment.h"
#include "comm/peer_memory.h"

enum { RING_BODY = 48, RING_SMALLEST = 8 };

typedef enum {
    PACKET_EAGER = 1,  /* the whole message */
    PACKET_BULK = 2,   /* head of a message in fragments; body: ring_rndv_t, bytes only */
    PACKET_FRAG = 3,   /* a part of it */
    PACKET_WINDOW = 4, /* the message lies in a window of the sender; body: ring_rndv_t */
    PACKET_CMA = 5,    /* the message lies in private memory of the sender; body: ring_rndv_t */
    PACKET_POOL = 6    /* the message lies in a buffer of the sender's pool; body: ring_rndv_t */
} ring_kind_t;

typedef struct {
    uint64_t bytes;
    uint64_t gives;     /* comm_msg_t's */
    comm_place_t place; /* window 0: PACKET_CMA; PACKET_POOL: offset is the number of the buffer */
} ring_rndv_t;

typedef struct {
    _Atomic uint64_t word;
    comm_tag_t tag;
    unsigned char body[RING_BODY];
} __attribute__((aligned(64))) ring_slot_t;

/* The sender's private side. */
typedef struct {
    ring_slot_t *slots;
    comm_ring_ctl_t *ctl; /* written by the receiver */
    uint64_t count;       /* slots in the ring */
    uint64_t head;        /* slots written so far */
    uint64_t consumed;    /* ctl->consumed as last read */
    uint64_t most;        /* slots that a packet may take */
    uint64_t raw[64];     /* bit per slot: it held payload since it last held a header */
} ring_tx_t;

/* The receiver's private side. */
typedef struct {
    ring_slot_t *slots;
    comm_ring_ctl_t *ctl;            /* written by us */
    uint64_t count, tail, told, owe; /* slots read; slots reported; slots owed at which it reports */
    int takes; /* 1: it takes the lines of payload that it has read (base/thread/cacheline.h) */
} ring_rx_t;

static inline uint64_t ring_slots_for(size_t bytes)
{
    return bytes <= RING_BODY ? 1 : 1 + (bytes - RING_BODY + COMM_LINE - 1) / COMM_LINE;
}

static inline void ring_tx_open(ring_tx_t *tx, comm_ring_ctl_t *ctl, uint32_t slots)
{
    *tx = (ring_tx_t){.slots = (ring_slot_t *)(void *)(ctl + 1), .ctl = ctl, .count = slots};
    tx->most = slots <= RING_SMALLEST ? slots - 1 : slots / 4;
}

static inline void ring_rx_open(ring_rx_t *rx, comm_ring_ctl_t *ctl, uint32_t slots)
{
    *rx = (ring_rx_t){.slots = (ring_slot_t *)(void *)(ctl + 1), .ctl = ctl, .count = slots};
    rx->owe = slots <= RING_SMALLEST ? 1 : slots / 4;
}

/* Largest payload of one packet. */
static inline size_t ring_packet_bytes(const ring_tx_t *tx)
{
    return RING_BODY + (size_t)(tx->most - 1) * COMM_LINE;
}

static inline uint64_t ring_turn(uint64_t position, uint64_t count)
{
    return position / count % 0xffffffffu + 1; /* count is a power of two */
}

/* True if a packet of `need` slots fits, with the free slot after it. */
static inline int ring_room(ring_tx_t *tx, uint64_t need)
{
    if (tx->count - (tx->head - tx->consumed) > need)
        return 1;
    /* Acquire: pairs with the release in ring_advance. The receiver's reads of those slots are over before we
     * write to them again. */
    tx->consumed = atomic_load_explicit(&tx->ctl->consumed, memory_order_acquire);
    return tx->count - (tx->head - tx->consumed) > need;
}

static inline int ring_is_raw(const ring_tx_t *tx, uint64_t slot)
{
    return (int)(tx->raw[slot / 64] >> (slot % 64) & 1);
}

/* Copies payload into the slots after the header; they may go around the end of the ring. */
static inline void ring_put_rest(ring_tx_t *tx, const unsigned char *from, size_t bytes, uint64_t need)
{
    uint64_t first = (tx->head + 1) & (tx->count - 1);
    size_t straight = (size_t)(tx->count - first) * COMM_LINE;

    for (uint64_t i = 0; i < need - 1; i++) {
        uint64_t slot = (first + i) & (tx->count - 1);
        tx->raw[slot / 64] |= 1ull << (slot % 64);
    }
    if (bytes <= straight) {
        base_copy(&tx->slots[first], from, bytes);
    } else {
        base_copy(&tx->slots[first], from, straight);
        base_copy(&tx->slots[0], from + straight, bytes - straight);
    }
}

/* Writes a packet; the caller has asked ring_room. */
static inline void ring_put(ring_tx_t *tx, ring_kind_t kind, comm_tag_t tag, const void *payload,
                            size_t bytes)
{
    uint64_t at = tx->head & (tx->count - 1), need = ring_slots_for(bytes);
    uint64_t next = (tx->head + need) & (tx->count - 1);
    ring_slot_t *slot = &tx->slots[at];

    tx->raw[at / 64] &= ~(1ull << (at % 64));
    slot->tag = tag;
    if (bytes <= RING_BODY) {
        if (bytes > 0)
            memcpy(slot->body, payload, bytes);
    } else {
        memcpy(slot->body, payload, RING_BODY);
        ring_put_rest(tx, (const unsigned char *)payload + RING_BODY, bytes - RING_BODY, need);
    }
    if (ring_is_raw(tx, next)) {
        /* Relaxed is enough: the release below orders it before the word that leads the receiver to it. */
        atomic_store_explicit(&tx->slots[next].word, 0, memory_order_relaxed);
        tx->raw[next / 64] &= ~(1ull << (next % 64));
    }
    /* Release: pairs with the acquire in ring_peek; payload, tag and the zeroed word come first. */
    atomic_store_explicit(&slot->word, ring_turn(tx->head, tx->count) << 32 | (uint64_t)kind << 24 | bytes,
                          memory_order_release);
    tx->head += need;
}

/* The packet at the tail, or NULL. */
static inline const ring_slot_t *ring_peek(const ring_rx_t *rx, ring_kind_t *kind, size_t *bytes)
{
    const ring_slot_t *slot = &rx->slots[rx->tail & (rx->count - 1)];
    uint64_t word = atomic_load_explicit(&slot->word, memory_order_acquire);

    if (word >> 32 != ring_turn(rx->tail, rx->count))
        return NULL;
    *kind = (ring_kind_t)(word >> 24 & 0xff);
    *bytes = (size_t)(word & 0xffffff);
    return slot;
}

static inline void ring_get(const ring_rx_t *rx, void *to, size_t bytes)
{
    const ring_slot_t *slot = &rx->slots[rx->tail & (rx->count - 1)];
    uint64_t first = (rx->tail + 1) & (rx->count - 1);
    size_t straight = (size_t)(rx->count - first) * COMM_LINE, rest;
    unsigned char *at = to;

    if (bytes <= RING_BODY) {
        if (bytes > 0)
            memcpy(to, slot->body, bytes);
        return;
    }
    memcpy(at, slot->body, RING_BODY);
    at += RING_BODY;
    rest = bytes - RING_BODY;
    if (rest <= straight) {
        base_copy(at, &rx->slots[first], rest);
    } else {
        base_copy(at, &rx->slots[first], straight);
        base_copy(at + straight, &rx->slots[0], rest - straight);
    }
    if (rx->takes) {
        base_take(&rx->slots[first], base_min_size(rest, straight));
        base_take(&rx->slots[0], rest > straight ? rest - straight : 0);
    }
}

/* Done with the packet at the tail. now: report that in any case. 1 if it was reported to the sender, so that
 * the sender should be woken. */
static inline int ring_advance(ring_rx_t *rx, size_t bytes, int now)
{
    rx->tail += ring_slots_for(bytes);
    if (rx->tail - rx->told < rx->owe && !now)
        return 0;
    rx->told = rx->tail;
    /* Release: our reads of the slots, and of the buffer that a packet named, are over before the sender may
     * write to them (acquire in ring_room, comm_pool_find). */
    atomic_store_explicit(&rx->ctl->consumed, rx->tail, memory_order_release);
    return 1;
}

#endif
