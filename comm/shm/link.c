/* SPDX-License-Identifier: Apache-2.0 */
/* comm/shm/link.c: links between ranks of one host, through the group's shared segment.
 *
 * A message goes one of four ways, chosen by the sender:
 *   eager    small: copied into the ring and out of it (ring.h); where many ranks have short rings, up to
 *            COMM_SHM_EAGER_MOST bytes go into a buffer of the sender and out of it (comm/memory/pool.h);
 *   window   the buffer came from gyre_mem_alloc: only its place travels, the receiver reads it where it
 *            lies, once;
 *   cma      another large buffer, and the receiver is able to read our memory: process_vm_readv, once;
 *   bulk     any other, and those that cost less so (comm_group_ring_most): in fragments through the ring, so
 *            that both copies overlap.
 * For window and cma the sender waits for a bit in the ring's control line that the receiver flips when it is
 * done with the message. GYRE_SHM_COPY narrows the choice. */
#include "comm/shm/link.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/machine/copy.h"
#include "base/error.h"
#include "base/settings/settings.h"
#include "comm/memory/memory.h"
#include "comm/shm/ring.h"

enum { BULK_OPEN = 1 /* comm_msg_t.pad: this message's fragments are under way */ };

/* comm_msg_t.phase of messages under way */
enum { SEND_RNDV = 1, SEND_FINISHED = 2, RECV_BULK = 1, RECV_VIEW = 2, RECV_FINISHED = 3 };

typedef struct {
    comm_link_t base;
    comm_bell_t *bell;                       /* the peer's */
    int use_windows;                         /* what GYRE_SHM_COPY lets the sender do */
    int use_cma;                             /* and the peer is able to read our memory */
    size_t eager_most, pool_most, cma_least; /* pool_most 0: there is no pool */

    ring_tx_t tx;
    uint64_t rndv_sent; /* window and cma messages sent so far */
    uint64_t rndv_open; /* bit r % 64: number r was sent and its owner has not seen the end of it */
    int bulk_open;      /* a message's fragments are under way: nothing else may enter the ring */

    ring_rx_t rx;
    uint64_t rndv_received;
    uint64_t acks;        /* what is in rx.ctl->acks */
    uint32_t foreign_seq; /* number of the call that the unexpected message at the head belongs to; 0: none */
    comm_peer_memory_t *memory;
    int may_cma; /* GYRE_SHM_COPY allows it to the receiver, too */
    /* Of the open view of rendezvous message r, at r % 64; NULL: it is not open. */
    comm_mapping_t *viewed[COMM_SENDS_OPEN];

    uint64_t ways[COMM_SHM_WAYS]; /* messages sent, by comm_shm_way_t */
} shm_link_t;

/* ---- sending ------------------------------------------------------------------------------------------- */

/* Has the receiver flipped the bit of rendezvous message `number`? In even laps of 64 messages it becomes
 * 1. */
static int shm_acked(const shm_link_t *shm, uint64_t number)
{
    /* Acquire: pairs with the release in shm_ack; the receiver's loads of our buffer are over. */
    uint64_t acks = atomic_load_explicit(&shm->tx.ctl->acks, memory_order_acquire);

    return (int)(acks >> (number % 64) & 1) == !(number / 64 & 1);
}

static gyre_status_t shm_send_rndv(shm_link_t *shm, const ring_rndv_t *rndv, ring_kind_t kind, comm_tag_t tag,
                                   comm_msg_t *msg)
{
    uint64_t bit = 1ull << (shm->rndv_sent % COMM_SENDS_OPEN);

    if (shm->rndv_open & bit || !ring_room(&shm->tx, 1))
        return GYRE_IN_PROGRESS;
    ring_put(&shm->tx, kind, tag, rndv, sizeof *rndv);
    comm_bell_ring(shm->bell);
    shm->rndv_open |= bit;
    shm->ways[kind == PACKET_WINDOW ? COMM_SHM_WINDOW : COMM_SHM_CMA]++;
    msg->ticket = shm->rndv_sent++;
    msg->phase = SEND_RNDV;
    return GYRE_IN_PROGRESS;
}

/* Puts as many fragments into the ring as fit. The message counts as accepted only at its end, so that
 * no other can come between its fragments. */
static gyre_status_t shm_send_frags(shm_link_t *shm, const unsigned char *buf, size_t bytes, comm_tag_t tag,
                                    comm_msg_t *msg)
{
    int moved = 0;

    while (msg->done < bytes) {
        size_t part = base_min_size(ring_packet_bytes(&shm->tx), bytes - (size_t)msg->done);
        if (!ring_room(&shm->tx, ring_slots_for(part)))
            break;
        ring_put(&shm->tx, PACKET_FRAG, tag, buf + msg->done, part);
        msg->done += part;
        moved = 1;
    }
    if (moved)
        comm_bell_ring(shm->bell);
    if (msg->done < bytes)
        return GYRE_IN_PROGRESS;
    shm->bulk_open = 0;
    msg->pad = 0;
    msg->phase = SEND_FINISHED;
    return GYRE_OK;
}

static gyre_status_t shm_send_bulk(shm_link_t *shm, const void *buf, size_t bytes, comm_tag_t tag,
                                   comm_msg_t *msg)
{
    ring_rndv_t head = {.bytes = bytes};

    if (!ring_room(&shm->tx, 1))
        return GYRE_IN_PROGRESS;
    ring_put(&shm->tx, PACKET_BULK, tag, &head, sizeof head);
    shm->bulk_open = 1;
    shm->ways[COMM_SHM_BULK]++;
    msg->pad = BULK_OPEN;
    return shm_send_frags(shm, buf, bytes, tag, msg);
}

/* 0: no buffer is free. The caller has asked ring_room for one slot. */
static int shm_put_pool(shm_link_t *shm, const void *buf, size_t bytes, comm_tag_t tag)
{
    comm_group_t *group = shm->base.group;
    const int buffer = comm_pool_find(&group->pool);
    const ring_rndv_t head = {.bytes = bytes, .place.offset = (uint64_t)buffer};

    if (buffer < 0)
        return 0;
    base_copy(comm_segment_buffer(&group->seg, group->seg.local, (uint32_t)buffer), buf, bytes);
    ring_put(&shm->tx, PACKET_POOL, tag, &head, sizeof head);
    comm_pool_lend(&group->pool, buffer, &shm->tx.ctl->consumed, shm->tx.head);
    return 1;
}

static gyre_status_t shm_sent_eager(shm_link_t *shm, comm_msg_t *msg)
{
    comm_bell_ring(shm->bell);
    shm->ways[COMM_SHM_EAGER]++;
    msg->phase = SEND_FINISHED;
    return GYRE_OK;
}

static gyre_status_t shm_send_start(shm_link_t *shm, const void *buf, size_t bytes, comm_tag_t tag,
                                    comm_msg_t *msg)
{
    ring_rndv_t rndv = {.bytes = bytes, .place.address = (uint64_t)(uintptr_t)buf};
    uint64_t window;
    size_t offset;

    if (bytes <= shm->eager_most) {
        if (!ring_room(&shm->tx, ring_slots_for(bytes)))
            return GYRE_IN_PROGRESS;
        ring_put(&shm->tx, PACKET_EAGER, tag, buf, bytes);
        return shm_sent_eager(shm, msg);
    }
    if (bytes <= shm->pool_most) {
        if (!ring_room(&shm->tx, 1))
            return GYRE_IN_PROGRESS;
        if (shm_put_pool(shm, buf, bytes, tag))
            return shm_sent_eager(shm, msg);
    }
    if (shm->use_windows && comm_mem_show(buf, bytes, &window, &offset, &rndv.place.address)) {
        rndv.gives = msg->gives;
        rndv.place.window = window;
        rndv.place.offset = offset;
        return shm_send_rndv(shm, &rndv, PACKET_WINDOW, tag, msg);
    }
    if (shm->use_cma && (bytes >= shm->cma_least || bytes <= shm->pool_most))
        return shm_send_rndv(shm, &rndv, PACKET_CMA, tag, msg);
    return shm_send_bulk(shm, buf, bytes, tag, msg);
}

static gyre_status_t shm_send(comm_link_t *link, const void *buf, size_t bytes, comm_tag_t tag,
                              comm_msg_t *msg)
{
    shm_link_t *shm = (shm_link_t *)link;

    if (msg->phase == SEND_RNDV) {
        if (!shm_acked(shm, msg->ticket))
            return GYRE_IN_PROGRESS;
        shm->rndv_open &= ~(1ull << (msg->ticket % COMM_SENDS_OPEN));
        msg->phase = SEND_FINISHED;
        return GYRE_OK;
    }
    if (msg->pad == BULK_OPEN)
        return shm_send_frags(shm, buf, bytes, tag, msg);
    if (shm->bulk_open)
        return GYRE_IN_PROGRESS;
    return shm_send_start(shm, buf, bytes, tag, msg);
}

/* ---- receiving ----------------------------------------------------------------------------------------- */

static void shm_advance(shm_link_t *shm, size_t bytes, int now)
{
    if (ring_advance(&shm->rx, bytes, now))
        comm_bell_ring(shm->bell);
}

static void shm_ack(shm_link_t *shm, uint64_t number)
{
    shm->acks ^= 1ull << (number % COMM_SENDS_OPEN);
    /* Release: our loads from the sender's buffer come before it; pairs with the acquire in shm_acked. */
    atomic_store_explicit(&shm->rx.ctl->acks, shm->acks, memory_order_release);
    comm_bell_ring(shm->bell);
}

/* Reads the payload of a window or cma message. A window that cannot be mapped is read by CMA if that works,
 * unless GYRE_SHM_COPY asks for windows. */
static gyre_status_t shm_read(shm_link_t *shm, ring_kind_t kind, const ring_rndv_t *rndv, void *buf)
{
    void *from = NULL;
    gyre_status_t status;

    if (kind == PACKET_WINDOW) {
        status = comm_peer_memory_map(shm->memory, &rndv->place, (size_t)rndv->bytes, &from);
        if (status == GYRE_OK) {
            base_copy(buf, from, (size_t)rndv->bytes);
            if (rndv->gives && shm->rx.takes)
                comm_peer_memory_take(shm->memory, from, (size_t)rndv->bytes);
        }
        if (status == GYRE_OK || status == GYRE_IN_PROGRESS)
            return status;
        if (!shm->may_cma) {
            status = comm_peer_memory_lost(shm->memory);
            return status != GYRE_OK
                       ? status
                       : comm_link_broken(&shm->base,
                                          "its window could not be mapped here (see ulimit -n and "
                                          "-v), and GYRE_SHM_COPY=window allows nothing else");
        }
    }
    return comm_peer_memory_read(shm->memory, &rndv->place, 0, buf, (size_t)rndv->bytes);
}

/* The same, but never OK after the sender has given up: its program may have changed the buffer meanwhile. */
static gyre_status_t shm_pull(shm_link_t *shm, ring_kind_t kind, const ring_rndv_t *rndv, void *buf)
{
    gyre_status_t status = GYRE_IN_PROGRESS;

    if (!comm_peer_memory_closed(shm->memory))
        status = shm_read(shm, kind, rndv, buf);
    return comm_peer_memory_closed(shm->memory) ? GYRE_IN_PROGRESS : status;
}

/* The head of the lane's next message: OK and its packet if it is the one expected. */
static gyre_status_t shm_head(shm_link_t *shm, size_t bytes, comm_tag_t tag, ring_kind_t *kind,
                              size_t *packet, ring_rndv_t *rndv)
{
    const ring_slot_t *slot = ring_peek(&shm->rx, kind, packet);
    size_t total;

    if (!slot)
        return GYRE_IN_PROGRESS;
    if (*kind == PACKET_EAGER) {
        total = *packet;
    } else {
        memcpy(rndv, slot->body, sizeof *rndv);
        total = (size_t)rndv->bytes;
    }
    if (slot->tag.seq == tag.seq && slot->tag.sig == tag.sig && total == bytes)
        return GYRE_OK;
    shm->foreign_seq = slot->tag.seq;
    return gyre_fail_quiet(
        GYRE_ERR_MISMATCH,
        "rank %d sent %zu bytes (call %u, signature %08x), %zu bytes were expected (call %u, "
        "signature %08x)",
        shm->base.peer, total, slot->tag.seq, slot->tag.sig, bytes, tag.seq, tag.sig);
}

static gyre_status_t shm_recv_frags(shm_link_t *shm, unsigned char *buf, size_t bytes, comm_msg_t *msg)
{
    while (msg->done < bytes) {
        ring_kind_t kind;
        size_t part;

        if (!ring_peek(&shm->rx, &kind, &part))
            return GYRE_IN_PROGRESS;
        if (kind != PACKET_FRAG || part > bytes - msg->done)
            return comm_link_broken(&shm->base, "a fragment of the message is not what it should be");
        ring_get(&shm->rx, buf + msg->done, part);
        msg->done += part;
        shm_advance(shm, part, 0);
    }
    msg->phase = RECV_FINISHED;
    return GYRE_OK;
}

static unsigned char *shm_their_buffer(const shm_link_t *shm, uint32_t buffer)
{
    const comm_group_t *group = shm->base.group;

    return comm_segment_buffer(&group->seg, group->local_of[shm->base.peer], buffer);
}

static gyre_status_t shm_recv(comm_link_t *link, void *buf, size_t bytes, comm_tag_t tag, comm_msg_t *msg)
{
    shm_link_t *shm = (shm_link_t *)link;
    ring_rndv_t rndv;
    ring_kind_t kind;
    size_t packet;
    gyre_status_t status;

    if (msg->phase == RECV_BULK)
        return shm_recv_frags(shm, buf, bytes, msg);
    status = shm_head(shm, bytes, tag, &kind, &packet, &rndv);
    if (status != GYRE_OK)
        return status;
    switch (kind) {
    case PACKET_EAGER:
        ring_get(&shm->rx, buf, bytes);
        shm_advance(shm, bytes, 0);
        break;
    case PACKET_POOL:
        if (rndv.place.offset >= shm->base.group->seg.buffers || bytes > COMM_POOL_BYTES)
            return comm_link_broken(link, "a packet names a buffer that its sender does not have");
        base_copy(buf, shm_their_buffer(shm, (uint32_t)rndv.place.offset), bytes);
        if (shm->rx.takes)
            base_take(shm_their_buffer(shm, (uint32_t)rndv.place.offset), bytes);
        shm_advance(shm, packet, 1);
        break;
    case PACKET_BULK:
        shm_advance(shm, packet, 0);
        msg->phase = RECV_BULK;
        return shm_recv_frags(shm, buf, bytes, msg);
    case PACKET_WINDOW:
    case PACKET_CMA:
        status = shm_pull(shm, kind, &rndv, buf);
        if (status != GYRE_OK)
            return status;
        shm_advance(shm, packet, 0);
        shm_ack(shm, shm->rndv_received++);
        break;
    default:
        return comm_link_broken(link, "a packet is not what it should be");
    }
    msg->phase = RECV_FINISHED;
    return GYRE_OK;
}

static gyre_status_t shm_recv_view(comm_link_t *link, size_t bytes, comm_tag_t tag, comm_msg_t *msg,
                                   const void **view)
{
    shm_link_t *shm = (shm_link_t *)link;
    void *at = NULL;
    ring_rndv_t rndv;
    ring_kind_t kind;
    size_t packet;
    gyre_status_t status = shm_head(shm, bytes, tag, &kind, &packet, &rndv);

    if (status != GYRE_OK)
        return status;
    status = kind == PACKET_WINDOW ? comm_peer_memory_map(shm->memory, &rndv.place, bytes, &at)
                                   : GYRE_ERR_UNSUPPORTED; /* quiet: the caller copies instead */
    if (status != GYRE_OK)
        return status;
    shm_advance(shm, packet, 0);
    msg->ticket = shm->rndv_received++;
    shm->viewed[msg->ticket % COMM_SENDS_OPEN] = comm_peer_memory_hold(shm->memory, &rndv.place);
    msg->phase = RECV_VIEW;
    msg->handle = rndv.gives && shm->rx.takes ? at : NULL;
    msg->done = bytes;
    *view = at;
    return GYRE_OK;
}

static void shm_release(comm_link_t *link, comm_msg_t *msg)
{
    shm_link_t *shm = (shm_link_t *)link;
    comm_mapping_t **viewed = &shm->viewed[msg->ticket % COMM_SENDS_OPEN];

    if (msg->phase != RECV_VIEW)
        return;
    msg->phase = RECV_FINISHED;
    if (msg->handle)
        comm_peer_memory_take(shm->memory, msg->handle, (size_t)msg->done);
    comm_mapping_release(*viewed);
    *viewed = NULL;
    shm_ack(shm, msg->ticket);
}

static int shm_gave_up(const comm_link_t *link)
{
    return comm_peer_memory_closed(((const shm_link_t *)link)->memory);
}

/* ---- the link itself ----------------------------------------------------------------------------------- */

static int shm_their_call(comm_link_t *link, comm_call_t *call)
{
    const shm_link_t *shm = (const shm_link_t *)link;
    const comm_group_t *group = link->group;
    int p2p = link->lane == COMM_LANE_P2P;

    if (shm->foreign_seq && comm_group_find_call(group, link->peer, shm->foreign_seq, p2p, group->rank, call))
        return 1;
    return comm_group_peer_call(group, link->peer, call);
}

static void shm_close(comm_link_t *link)
{
    for (int i = 0; i < COMM_SENDS_OPEN; i++)
        comm_mapping_release(((shm_link_t *)link)->viewed[i]); /* of operations that failed */
    free(link);
}

uint64_t comm_shm_sent(const comm_link_t *link, comm_shm_way_t way)
{
    return ((const shm_link_t *)link)->ways[way];
}

static gyre_status_t shm_connect(comm_group_t *group, int peer, int lane, comm_link_t **out)
{
    const char *copy = base_setting_string(SET_SHM_COPY);
    int us = group->seg.local, them = group->local_of[peer], automatic = strcmp(copy, "auto") == 0;
    const comm_segment_t *seg = &group->seg;
    comm_peer_memory_t *memory = comm_peer_memory(group, peer);
    shm_link_t *shm = memory ? calloc(1, sizeof *shm) : NULL;

    if (!shm)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a link to rank %d", peer);
    shm->memory = memory;
    shm->base = (comm_link_t){&comm_shm, group, peer, lane, sizeof *shm};
    shm->bell = comm_segment_bell(seg, them);
    ring_tx_open(&shm->tx, comm_segment_ring(seg, us, them, lane), seg->slots[lane]);
    ring_rx_open(&shm->rx, comm_segment_ring(seg, them, us, lane), seg->slots[lane]);
    shm->rx.takes = group->ring_takes;
    comm_segment_populate(comm_segment_ring(seg, us, them, lane),
                          sizeof(comm_ring_ctl_t) + (size_t)seg->slots[lane] * COMM_LINE);
    comm_segment_populate(comm_segment_ring(seg, them, us, lane),
                          sizeof(comm_ring_ctl_t) + (size_t)seg->slots[lane] * COMM_LINE);
    shm->use_windows = automatic || strcmp(copy, "window") == 0;
    shm->use_cma = (automatic || strcmp(copy, "cma") == 0) &&
                   atomic_load_explicit(comm_segment_cma(seg, them, us), memory_order_acquire);
    shm->may_cma = strcmp(copy, "window") != 0;
    shm->eager_most = base_min_size(COMM_SHM_EAGER_MOST, ring_packet_bytes(&shm->tx));
    _Static_assert((int)COMM_POOL_BYTES >= (int)COMM_SHM_EAGER_MOST, "a buffer holds an eager message");
    if (seg->buffers > 0 && shm->eager_most < COMM_SHM_EAGER_MOST) {
        /* What takes more than two slots of the shortest rings would keep the next message waiting. */
        if (seg->slots[lane] <= RING_SMALLEST)
            shm->eager_most = RING_BODY + COMM_LINE;
        shm->pool_most = COMM_SHM_EAGER_MOST;
    }
    shm->cma_least = automatic ? comm_group_ring_most(group, lane) + 1 : 0;
    *out = &shm->base;
    return GYRE_OK;
}

const comm_transport_ops_t comm_shm = {
    .name = "shm",
    .scope = COMM_ON_HOST,
    .send = shm_send,
    .recv = shm_recv,
    .recv_view = shm_recv_view,
    .release = shm_release,
    .gave_up = shm_gave_up,
    .their_call = shm_their_call,
    .connect = shm_connect,
    .close = shm_close,
};
