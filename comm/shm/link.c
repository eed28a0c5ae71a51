/* comm/shm/link.c: links between ranks of one host, through the group's shared segment.
 *
 * A message goes one of four ways, chosen by the sender:
 *   eager    small: copied into the ring and out of it (ring.h);
 *   window   the buffer came from gyre_mem_alloc: only its place travels, the receiver reads it where it lies, once;
 *   cma      another large buffer, and the receiver is able to read our memory: process_vm_readv, once;
 *   bulk     any other: in fragments through the ring, so that both copies overlap.
 * For window and cma the sender waits for a bit in the ring's control line that the receiver flips when it is done
 * with the message. GYRE_SHM_COPY narrows the choice. */
#include "comm/shm/link.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/settings/settings.h"
#include "comm/memory/memory.h"
#include "comm/shm/ring.h"
#include "comm/memory/cma.h"

enum {
    MAP_CACHE = 8,  /* windows of the peer that a link remembers */
    BULK_OPEN = 1,  /* comm_msg_t.pad: this message's fragments are under way */
    FETCH_MS = 2,   /* that one call may wait for the peer's watcher to hand over a window */
    GRACE_MS = 1000 /* in which the watcher tells why a peer's memory cannot be read, if the peer is dead */
};
#define MS ((base_time_t)1000000)

/* comm_msg_t.phase of messages under way */
enum { SEND_RNDV = 1, SEND_FINISHED = 2, RECV_BULK = 1, RECV_VIEW = 2, RECV_FINISHED = 3 };

typedef struct {
    uint64_t window; /* 0: unused */
    const unsigned char *base;
    size_t bytes;
} shm_map_t;

typedef struct {
    comm_link_t base;
    comm_bell_t *bell; /* the peer's */
    int use_windows;   /* what GYRE_SHM_COPY lets the sender do */
    int use_cma;       /* and the peer is able to read our memory */
    size_t eager_most, cma_least;

    ring_tx_t tx;
    uint64_t rndv_sent; /* window and cma messages sent so far */
    uint64_t rndv_open; /* bit r % 64: number r was sent and its owner has not seen the end of it */
    int bulk_open;      /* a message's fragments are under way: nothing else may enter the ring */

    ring_rx_t rx;
    uint64_t rndv_received;
    uint64_t acks;        /* what is in rx.ctl->acks */
    uint32_t foreign_seq; /* number of the call that the unexpected message at the head belongs to; 0: none */
    int peer_pid;
    unsigned next_map;
    shm_map_t maps[MAP_CACHE];
    comm_watch_fetch_t fetch; /* of the window of the message at the head */
    int no_window;            /* 1: that window cannot be mapped here */
    int may_cma;              /* GYRE_SHM_COPY allows it to the receiver, too */
    base_time_t broken_at;    /* 0: not broken */

    uint64_t ways[COMM_SHM_WAYS]; /* messages sent, by comm_shm_way_t */
} shm_link_t;

/* ---- sending ------------------------------------------------------------------------------------------- */

/* Has the receiver flipped the bit of rendezvous message `number`? In even laps of 64 messages it becomes 1. */
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

static gyre_status_t shm_send_start(shm_link_t *shm, const void *buf, size_t bytes, comm_tag_t tag,
                                    comm_msg_t *msg)
{
    ring_rndv_t rndv = {.bytes = bytes, .address = (uint64_t)(uintptr_t)buf};
    uint64_t window;
    size_t offset;

    if (bytes <= shm->eager_most) {
        if (!ring_room(&shm->tx, ring_slots_for(bytes)))
            return GYRE_IN_PROGRESS;
        ring_put(&shm->tx, PACKET_EAGER, tag, buf, bytes);
        comm_bell_ring(shm->bell);
        shm->ways[COMM_SHM_EAGER]++;
        msg->phase = SEND_FINISHED;
        return GYRE_OK;
    }
    if (shm->use_windows && comm_mem_find(buf, bytes, &window, &offset)) {
        rndv.window = window;
        rndv.offset = offset;
        return shm_send_rndv(shm, &rndv, PACKET_WINDOW, tag, msg);
    }
    if (shm->use_cma && bytes >= shm->cma_least)
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

static void shm_advance(shm_link_t *shm, size_t bytes)
{
    if (ring_advance(&shm->rx, bytes))
        comm_bell_ring(shm->bell);
}

static void shm_ack(shm_link_t *shm, uint64_t number)
{
    shm->acks ^= 1ull << (number % COMM_SENDS_OPEN);
    /* Release: our loads from the sender's buffer come before it; pairs with the acquire in shm_acked. */
    atomic_store_explicit(&shm->rx.ctl->acks, shm->acks, memory_order_release);
    comm_bell_ring(shm->bell);
}

/* What was read of the message at the head is done with. */
static void shm_finish_rndv(shm_link_t *shm, size_t packet)
{
    shm->no_window = 0;
    shm_advance(shm, packet);
}

/* Death is the watcher's to tell, and it may take a moment longer than it takes to find that memory is gone. */
static gyre_status_t shm_broken(shm_link_t *shm, const char *why)
{
    base_time_t now = base_now();

    if (shm->broken_at == 0)
        shm->broken_at = now;
    if (now - shm->broken_at < GRACE_MS * MS && comm_group_lost(shm->base.group) == GYRE_OK)
        return GYRE_IN_PROGRESS;
    return comm_link_broken(&shm->base, why);
}

/* The peer's window, mapped here: OK and *at; IN_PROGRESS while its watcher has not handed it over; else it cannot be
 * mapped. A window's number is never used again, so an entry can be stale only for windows that are never asked for
 * again. */
static gyre_status_t shm_map(shm_link_t *shm, const ring_rndv_t *rndv, const void **at)
{
    comm_group_t *group = shm->base.group;
    shm_map_t *map = NULL;
    gyre_status_t status;

    for (unsigned i = 0; i < MAP_CACHE; i++) {
        if (shm->maps[i].window != rndv->window)
            continue;
        map = &shm->maps[i];
        if (rndv->offset <= map->bytes && rndv->bytes <= map->bytes - rndv->offset) {
            *at = map->base + rndv->offset;
            return GYRE_OK;
        }
    }
    if (shm->no_window)
        return GYRE_ERR_UNSUPPORTED;
    status =
        comm_mem_map(group->world->watch, group->cards[shm->base.peer].address, rndv->window,
                     (size_t)rndv->offset, (size_t)rndv->bytes, &shm->fetch, base_now() + FETCH_MS * MS, at);
    if (status != GYRE_OK) {
        shm->no_window = status != GYRE_IN_PROGRESS;
        return status;
    }
    if (!map)
        map = &shm->maps[shm->next_map++ % MAP_CACHE];
    map->window = rndv->window;
    map->base = (const unsigned char *)*at - rndv->offset;
    map->bytes = (size_t)(rndv->offset + rndv->bytes); /* at least so far it was checked */
    return GYRE_OK;
}

/* Reads the payload of a window or cma message. A window that cannot be mapped is read by CMA if that works, unless
 * GYRE_SHM_COPY asks for windows. */
static gyre_status_t shm_pull(shm_link_t *shm, ring_kind_t kind, const ring_rndv_t *rndv, void *buf)
{
    const void *from = NULL;
    gyre_status_t status;

    if (kind == PACKET_WINDOW) {
        status = shm_map(shm, rndv, &from);
        if (status == GYRE_OK)
            memcpy(buf, from, (size_t)rndv->bytes);
        if (status == GYRE_OK || status == GYRE_IN_PROGRESS)
            return status;
        if (!shm->may_cma)
            return shm_broken(shm, "its window could not be mapped here (see ulimit -n and -v), and "
                                   "GYRE_SHM_COPY=window allows nothing else");
    }
    if (comm_cma_read(shm->peer_pid, rndv->address, buf, (size_t)rndv->bytes) == 0)
        return GYRE_OK;
    if (kind == PACKET_WINDOW)
        return shm_broken(shm, "its window could not be mapped here (see ulimit -n and -v); "
                               "GYRE_SHM_COPY=copy avoids windows");
    return shm_broken(shm, "process_vm_readv was allowed when the group was made and fails now; "
                           "GYRE_SHM_COPY=copy avoids it");
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
        shm_advance(shm, part);
    }
    msg->phase = RECV_FINISHED;
    return GYRE_OK;
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
        shm_advance(shm, bytes);
        break;
    case PACKET_BULK:
        shm_advance(shm, packet);
        msg->phase = RECV_BULK;
        return shm_recv_frags(shm, buf, bytes, msg);
    case PACKET_WINDOW:
    case PACKET_CMA:
        status = shm_pull(shm, kind, &rndv, buf);
        if (status != GYRE_OK)
            return status;
        shm_finish_rndv(shm, packet);
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
    const void *at = NULL;
    ring_rndv_t rndv;
    ring_kind_t kind;
    size_t packet;
    gyre_status_t status = shm_head(shm, bytes, tag, &kind, &packet, &rndv);

    if (status != GYRE_OK)
        return status;
    status = kind == PACKET_WINDOW ? shm_map(shm, &rndv, &at) : GYRE_ERR_UNSUPPORTED;
    if (status != GYRE_OK)
        return status == GYRE_IN_PROGRESS ? status
                                          : GYRE_ERR_UNSUPPORTED; /* quiet: the caller copies instead */
    shm_finish_rndv(shm, packet);
    msg->ticket = shm->rndv_received++;
    msg->phase = RECV_VIEW;
    *view = at;
    return GYRE_OK;
}

static void shm_release(comm_link_t *link, comm_msg_t *msg)
{
    if (msg->phase != RECV_VIEW)
        return;
    msg->phase = RECV_FINISHED;
    shm_ack((shm_link_t *)link, msg->ticket);
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
    comm_watch_fetch_drop(&((shm_link_t *)link)->fetch);
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
    shm_link_t *shm = calloc(1, sizeof *shm);

    if (!shm)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a link to rank %d", peer);
    shm->base = (comm_link_t){&comm_shm, group, peer, lane, sizeof *shm};
    shm->bell = comm_segment_bell(seg, them);
    shm->peer_pid = group->cards[peer].pid;
    ring_tx_open(&shm->tx, comm_segment_ring(seg, us, them, lane), seg->slots[lane]);
    ring_rx_open(&shm->rx, comm_segment_ring(seg, them, us, lane), seg->slots[lane]);
    comm_segment_populate(comm_segment_ring(seg, us, them, lane),
                          sizeof(comm_ring_ctl_t) + (size_t)seg->slots[lane] * COMM_LINE);
    comm_segment_populate(comm_segment_ring(seg, them, us, lane),
                          sizeof(comm_ring_ctl_t) + (size_t)seg->slots[lane] * COMM_LINE);
    shm->use_windows = automatic || strcmp(copy, "window") == 0;
    shm->use_cma = (automatic || strcmp(copy, "cma") == 0) &&
                   atomic_load_explicit(comm_segment_cma(seg, them, us), memory_order_acquire);
    shm->may_cma = strcmp(copy, "window") != 0;
    shm->eager_most = base_min_size(COMM_SHM_EAGER_MOST, ring_packet_bytes(&shm->tx));
    shm->cma_least = automatic ? COMM_SHM_CMA_LEAST : 0;
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
    .their_call = shm_their_call,
    .connect = shm_connect,
    .close = shm_close,
};
