/* SPDX-License-Identifier: Apache-2.0 */
/* comm/verbs/ring.h: the accounting of a ring that one rank writes by RDMA and the other reads: who may write
 * where, and when. Nothing here uses verbs.
 *
 * The ring lies in the receiver's memory, in units of 64 bytes. The sender keeps a mirror of the same shape:
 * it composes messages there, and its adapter sends them from there. A place of the mirror is therefore free
 * exactly when the same place of the ring is. A message lies in one piece: if it does not fit before the
 * ring's end, the rest of the ring is skipped. A message is announced by a write with immediate data, in
 * order:
 *
 *     31      30    29   28      | 27 .. 16                                     | 15 .. 0
 *     control bye   mark watches | data: the unit where the message begins;     | messages that the writer
 *     has consumed from
 *                                | control: rendezvous that the writer has read | the other, modulo 2^16
 *                                | to the end, modulo 2^12                      |
 *
 * A receiver may *watch* the memory of its ring. It then gets the shortest messages by a plain write, which
 * costs no completion at either end:
 *  - The write fills one whole unit, so one cache line, right after the message before it. The unit's last
 *    word is the mark: it has what would have been the immediate data.
 *  - The receiver wipes what it has consumed, so old bytes never look like a mark. When the ring is full,
 *    the receiver does not look for a mark: that unit is the oldest message, not yet consumed.
 *  - All other messages still come with immediate data, in the order of sending: writes of a connection are
 *    carried out in order.
 *  - Only a completion wakes a receiver that sleeps. Before it sleeps, it reports that it no longer watches.
 *
 * Credits and the ends of rendezvous thus cost nothing if messages go both ways. Otherwise the receiver sends
 * a control message for every quarter of the ring or of the window that it has consumed. The window is the
 * number of messages that may be sent and not consumed; as many receives must be posted.
 *
 * A packet takes at most a quarter of the ring, and a consumed quarter is reported at once. So a receiver
 * that has consumed everything never withholds a report that the sender waits for. */
#ifndef COMM_VERBS_RING_H
#define COMM_VERBS_RING_H

#include <stddef.h>
#include <stdint.h>

enum {
    VERBS_UNIT = 64,
    VERBS_WINDOW = 64,       /* messages */
    VERBS_MOST_UNITS = 4096, /* of a ring: 12 bits */
    VERBS_LEAST_UNITS = 64,
    VERBS_RNDV_MASK = 0xfff, /* ends of rendezvous are reported modulo that + 1 */
};

#define VERBS_IMM_CONTROL 0x80000000u
#define VERBS_IMM_BYE     0x40000000u /* a control message: the writer has closed its end */
#define VERBS_IMM_MARK    0x20000000u /* not immediate data, but in the unit's last word; so never zero */
#define VERBS_IMM_WATCHES 0x10000000u /* the writer looks at its own ring: plain writes may come */

static inline uint32_t verbs_imm_data(uint32_t unit, uint64_t consumed)
{
    return unit << 16 | (uint32_t)(consumed & 0xffff);
}

static inline uint32_t verbs_imm_control(uint64_t rndv_ends, uint64_t consumed)
{
    return VERBS_IMM_CONTROL | (uint32_t)(rndv_ends & VERBS_RNDV_MASK) << 16 | (uint32_t)(consumed & 0xffff);
}

static inline uint32_t verbs_imm_upper(uint32_t imm)
{
    return imm >> 16 & 0xfff;
}

/* The sender's side. Positions count units from the beginning of time, skipped ones included. */
typedef struct {
    uint32_t units;
    uint32_t at;                /* head % units */
    uint64_t head;              /* position after the last message */
    uint64_t sent, consumed;    /* messages; consumed: by the peer's last report */
    uint64_t end[VERBS_WINDOW]; /* position after message k, at k % VERBS_WINDOW */
} verbs_tx_t;

/* The receiver's side. */
typedef struct {
    uint32_t units;
    uint64_t arrived, consumed, told; /* messages; the last: those reported as consumed */
    uint32_t untold_units;            /* of those consumed and not reported */
    uint32_t next;                    /* unit after the last message, where a plain write begins */
    uint16_t unit[VERBS_WINDOW];      /* where message k begins */
} verbs_rx_t;

static inline uint32_t verbs_units_for(size_t bytes)
{
    return (uint32_t)((bytes + VERBS_UNIT - 1) / VERBS_UNIT);
}

/* Largest packet, header included. */
static inline size_t verbs_packet_most(uint32_t units)
{
    return (size_t)(units / 4) * VERBS_UNIT;
}

/* 1 and *unit: where a packet of `need` units goes. 0: no credit for it now. */
static inline int verbs_tx_place(const verbs_tx_t *tx, uint32_t need, uint32_t *unit)
{
    uint32_t at = tx->at, skip = at + need > tx->units ? tx->units - at : 0;
    uint64_t tail = tx->consumed > 0 ? tx->end[(tx->consumed - 1) % VERBS_WINDOW] : 0;

    if (tx->sent - tx->consumed >= VERBS_WINDOW || tx->head + skip + need - tail > tx->units)
        return 0;
    *unit = skip ? 0 : at;
    return 1;
}

/* Counts the packet that verbs_tx_place found a place for. */
static inline void verbs_tx_sent(verbs_tx_t *tx, uint32_t need, uint32_t unit)
{
    tx->head += (unit == 0 && tx->at != 0 ? tx->units - tx->at : 0) + need;
    tx->at = unit + need < tx->units ? unit + need : 0;
    tx->end[tx->sent % VERBS_WINDOW] = tx->head;
    tx->sent++;
}

/* Notes that the peer has consumed so many, modulo 2^16. 0: the peer claims more than was sent. */
static inline int verbs_tx_told(verbs_tx_t *tx, uint32_t consumed)
{
    uint64_t more = (uint16_t)(consumed - (uint32_t)tx->consumed);

    if (more > tx->sent - tx->consumed)
        return 0;
    tx->consumed += more;
    return 1;
}

/* A control message has no place in the ring. It may thus be seen later than plain writes that were sent
 * after it. Is its report older than the last one? */
static inline int verbs_tx_is_old(const verbs_tx_t *tx, uint32_t consumed)
{
    return (uint16_t)(consumed - (uint32_t)tx->consumed) >= 0x8000;
}

/* Does the oldest message that was not consumed lie where the next one would begin? Then no new message can
 * have come. */
static inline int verbs_rx_is_full(const verbs_rx_t *rx)
{
    return rx->arrived != rx->consumed && rx->next == rx->unit[rx->consumed % VERBS_WINDOW];
}

/* Counts a message of `need` units that has arrived at `unit`. 0: more than the window allows, or not in the
 * ring. */
static inline int verbs_rx_arrived(verbs_rx_t *rx, uint32_t unit, uint32_t need)
{
    if (rx->arrived - rx->consumed >= VERBS_WINDOW || unit >= rx->units || need > rx->units - unit)
        return 0;
    rx->unit[rx->arrived++ % VERBS_WINDOW] = (uint16_t)unit;
    rx->next = unit + need < rx->units ? unit + need : 0;
    return 1;
}

/* Consumes the oldest message, of `units`. 1: report to the sender soon. */
static inline int verbs_rx_consume(verbs_rx_t *rx, uint32_t units)
{
    rx->consumed++;
    rx->untold_units += units;
    return rx->consumed - rx->told >= VERBS_WINDOW / 4 || rx->untold_units >= rx->units / 4;
}

/* The report for the immediate data of the next message to the sender. */
static inline uint64_t verbs_rx_tell(verbs_rx_t *rx)
{
    rx->told = rx->consumed;
    rx->untold_units = 0;
    return rx->consumed;
}

#endif
