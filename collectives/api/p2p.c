/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/api/p2p.c: send and recv.
 *
 * Messages have a lane of their own and match per peer in the order of their calls. Any number may be under
 * way in both directions. Messages run concurrently with the collectives, not in the order of the
 * collectives.
 *
 * A short blocking message with nothing else under way needs no request, no queue and no clock while its peer
 * is on time (run_alone). Every other message, and one that turns out to be late, is a request like a
 * collective's. */
#include "collectives/run/communicator.h"

#include <stdlib.h>

#include "base/checked.h"
#include "base/error.h"
#include "collectives/run/bounce.h"
#include "collectives/gpu/gpu.h"

enum {
    ALONE_MOST = 8192, /* bytes: what all transports send at once if there is room */
    /* About 10 us, then the general way of waiting takes over: it has a clock, so it is the one that learns
     * when ranks lose their cores (comm/wait.c). Far more looks would hide that from it where a look is
     * slow. */
    LOOKS = 128
};

/* What a call asks for. */
typedef struct {
    coll_req_kind_t kind;
    void *buffer;
    size_t bytes;
    int peer;
    comm_tag_t tag;
    comm_call_t call;
} message_t;

/* Makes comm->p2p on first use, and a request for the first message that is late. The caller is driving. */
static gyre_status_t prepare(gyre_comm_t *comm)
{
    if (comm->p2p)
        return GYRE_OK;
    if (!coll_request_reserve(comm))
        return GYRE_ERR_NO_MEMORY;
    comm->p2p = calloc((size_t)comm->n, sizeof *comm->p2p);
    if (!comm->p2p)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for point-to-point state of %d ranks", comm->n);
    return GYRE_OK;
}

void coll_p2p_queued(gyre_request_t *r)
{
    gyre_comm_t *comm = r->comm;
    coll_p2p_peer_t *with = &comm->p2p[r->peer];
    coll_p2p_lane_t *lane = r->kind == COLL_REQ_SEND ? &with->sends : &with->recvs;
    r->lane_next = NULL;
    if (lane->head) {
        lane->tail->lane_next = r;
    } else {
        lane->head = r;
        lane->next = comm->p2p_lanes;
        comm->p2p_lanes = lane;
    }
    lane->tail = r;
}

void coll_p2p_forget(gyre_comm_t *comm)
{
    for (; comm->p2p_lanes; comm->p2p_lanes = comm->p2p_lanes->next)
        comm->p2p_lanes->head = NULL;
}

static gyre_status_t advance_one(gyre_request_t *r, int *moved)
{
    if (!r->link) {
        gyre_status_t st = comm_group_link(r->comm->group, r->peer, COMM_LANE_P2P, &r->link);
        if (st != GYRE_OK)
            return st;
    }
    uint64_t before = r->msg.done;
    uint32_t phase = r->msg.phase;
    gyre_status_t st = r->kind == COLL_REQ_SEND ? comm_send(r->link, r->buffer, r->bytes, r->tag, &r->msg)
                                                : comm_recv(r->link, r->buffer, r->bytes, r->tag, &r->msg);
    if (st == GYRE_OK || r->msg.done != before || r->msg.phase != phase)
        *moved = 1;
    return st;
}

static void count_traffic(gyre_comm_t *comm, coll_req_kind_t kind, size_t bytes)
{
    if (kind == COLL_REQ_SEND) {
        comm->traffic.bytes_sent += bytes;
        comm->traffic.messages_sent++;
    } else {
        comm->traffic.bytes_received += bytes;
    }
}

/* A message has gone or come. before: the one before it in its lane, or NULL. */
static void finish(coll_p2p_lane_t *lane, gyre_request_t *before, gyre_request_t *r)
{
    gyre_comm_t *comm = r->comm;
    if (before)
        before->lane_next = r->lane_next;
    else
        lane->head = r->lane_next;
    if (lane->tail == r)
        lane->tail = before;
    if (r->prev)
        r->prev->next = r->next;
    else
        comm->p2p_head = r->next;
    if (r->next)
        r->next->prev = r->prev;
    else
        comm->p2p_tail = r->prev;
    count_traffic(comm, r->kind, r->bytes);
    coll_request_finish(r, GYRE_OK);
}

/* comm_send of a lane accepts messages in order; comm_recv takes one at a time. So those after a message that
 * is not accepted or complete cannot move, and are not looked at, however many there are. */
static gyre_status_t advance_lane(coll_p2p_lane_t *lane, gyre_request_t **failed, int *moved)
{
    gyre_request_t *before = NULL;
    for (gyre_request_t *r = lane->head, *next; r; r = next) {
        next = r->lane_next;
        gyre_status_t st = advance_one(r, moved);
        if (st == GYRE_OK) {
            finish(lane, before, r);
        } else if (st != GYRE_IN_PROGRESS) {
            *failed = r;
            return st;
        } else if (r->kind == COLL_REQ_RECV || !comm_send_accepted(&r->msg)) {
            break;
        } else {
            before = r;
        }
    }
    return GYRE_OK;
}

int coll_p2p_advance(gyre_comm_t *comm)
{
    int moved = 0;
    gyre_request_t *failed = NULL;
    for (coll_p2p_lane_t **at = &comm->p2p_lanes; *at;) {
        coll_p2p_lane_t *lane = *at;
        gyre_status_t st = advance_lane(lane, &failed, &moved);
        if (st != GYRE_OK) {
            coll_comm_fail(comm, failed, st, NULL);
            return 1;
        }
        if (lane->head)
            at = &lane->next;
        else
            *at = lane->next;
    }
    return moved;
}

static gyre_status_t look(const message_t *m, comm_link_t *link, comm_msg_t *msg)
{
    return m->kind == COLL_REQ_SEND ? comm_send(link, m->buffer, m->bytes, m->tag, msg)
                                    : comm_recv(link, m->buffer, m->bytes, m->tag, msg);
}

/* Looks until the message has gone or come, at most LOOKS times. Other threads that want the communicator,
 * other communicators that this thread must move, a GYRE_SPIN and ranks without a core of their own need
 * the general way of waiting at once. */
static gyre_status_t spin(gyre_comm_t *comm, const message_t *m, comm_link_t *link, comm_msg_t *msg)
{
    gyre_status_t st = look(m, link, msg);
    if (m->kind ==
        COLL_REQ_SEND) /* who only sends must hear of others, too, but the message need not wait for that */
        comm_group_progress(comm->group);
    if (st != GYRE_IN_PROGRESS || !comm_wait_patient(comm->group))
        return st;
    for (int looks = 1; looks < LOOKS && st == GYRE_IN_PROGRESS;) {
        if (!base_bias_unwanted(&comm->driving) || coll_registry_others(comm) || coll_comm_troubled(comm))
            return st;
        looks += comm_linger(link);
        st = look(m, link, msg);
    }
    if (st == GYRE_OK)
        comm_wait_was_short(comm->group);
    return st;
}

/* What has begun becomes the only request of its queue: for waiting, or (st is an error) for telling what
 * went wrong. */
static gyre_status_t go_on_as_request(gyre_comm_t *comm, const message_t *m, comm_link_t *link,
                                      const comm_msg_t *msg, gyre_status_t st)
{
    gyre_request_t *r = coll_request_new_driving(comm);
    if (!r) { /* half a message cannot be taken back */
        coll_comm_fail(comm, NULL, GYRE_ERR_NO_MEMORY, NULL);
        coll_stop_driving(comm);
        return GYRE_ERR_NO_MEMORY;
    }
    r->kind = m->kind;
    r->buffer = m->buffer;
    r->bytes = m->bytes;
    r->peer = m->peer;
    r->tag = m->tag;
    r->call = m->call;
    r->link = link;
    r->msg = *msg;
    comm->p2p_head = comm->p2p_tail = r;
    coll_p2p_queued(r);
    if (st != GYRE_IN_PROGRESS)
        coll_comm_fail(comm, r, st, NULL);
    coll_stop_driving(comm);
    return coll_request_wait(r);
}

/* A blocking message with nothing else under way on its communicator. The caller is driving and stops
 * driving here. */
static gyre_status_t run_alone(gyre_comm_t *comm, message_t *m)
{
    comm_recorder_slot_t *recorder = comm->world->recorder;
    coll_p2p_peer_t *with = &comm->p2p[m->peer];
    comm_msg_t msg = {0};
    m->tag.seq = m->call.seq = m->kind == COLL_REQ_SEND ? ++with->sent : ++with->received;
    comm_recorder_begin(recorder, &m->call, 0); /* the clock is read when it turns out to be late */
    coll_post_call(comm, &m->call);
    gyre_status_t st =
        with->link ? GYRE_OK : comm_group_link(comm->group, m->peer, COMM_LANE_P2P, &with->link);
    if (st == GYRE_OK)
        st = spin(comm, m, with->link, &msg);
    if (st != GYRE_OK)
        return go_on_as_request(comm, m, with->link, &msg, st);
    count_traffic(comm, m->kind, m->bytes);
    comm->operations++;
    comm_recorder_end(recorder);
    coll_stop_driving(comm);
    return GYRE_OK;
}

/* The arguments of a message. *bytes: its length. */
static gyre_status_t check_message(const char *name, const void *buffer, size_t count, gyre_type_t type,
                                   int peer, gyre_comm_t *comm, size_t *bytes)
{
    size_t size = gyre_type_size(type);
    gyre_status_t st = coll_check_comm(name, comm);
    if (st == GYRE_OK && size == 0)
        st = coll_check_type(name, type);
    if (st != GYRE_OK)
        return st;
    if (peer < 0 || peer >= comm->n)
        return gyre_fail(GYRE_ERR_INVALID, "%s: peer %d is not in 0..%d", name, peer, comm->n - 1);
    if (!base_mul(count, size, bytes) || *bytes > PTRDIFF_MAX)
        return gyre_fail(GYRE_ERR_OVERFLOW, "%s: count %zu x %zu bytes is more than memory can hold", name,
                         count, size);
    if (*bytes && !buffer)
        return gyre_fail(GYRE_ERR_INVALID, "%s: buffer is NULL but count is %zu", name, count);
    return GYRE_OK;
}

/* bounce: NULL, or what stands for a buffer on a device: `buffer` is its memory. Given back if no request
 * comes of it. */
static gyre_status_t start_message(coll_req_kind_t kind, void *buffer, coll_bounce_t *bounce, size_t count,
                                   gyre_type_t type, int peer, gyre_comm_t *comm, gyre_request_t **request)
{
    const size_t bytes = count * gyre_type_size(type);
    message_t m = {.kind = kind,
                   .buffer = buffer,
                   .bytes = bytes,
                   .peer = peer,
                   .tag = {.sig = (uint32_t)type},
                   .call = {.op = COLL_SENDRECV,
                            .type = (uint8_t)type,
                            .flags = COMM_CALL_P2P | (kind == COLL_REQ_RECV ? COMM_CALL_RECV : 0),
                            .root = peer,
                            .count = count,
                            .comm = (uint32_t)comm->id,
                            .user_tag = comm->options.tag}};
    coll_drive(comm);
    gyre_status_t st = prepare(comm);
    int alone = !request && !bounce && bytes <= ALONE_MOST && !comm->head && !comm->p2p_head &&
                !coll_group_open() && atomic_load_explicit(&comm->error, memory_order_acquire) == GYRE_OK;
    if (st == GYRE_OK && alone)
        return run_alone(comm, &m);
    gyre_request_t *r = st == GYRE_OK ? coll_request_new_driving(comm) : NULL;
    if (bounce && r)
        coll_bounce_attach(bounce, r);
    else if (bounce)
        coll_bounce_give(bounce);
    coll_stop_driving(comm);
    if (!r)
        return coll_refuse(GYRE_ERR_NO_MEMORY);
    r->kind = kind;
    r->buffer = buffer;
    r->bytes = bytes;
    r->peer = peer;
    r->tag = m.tag;
    r->call = m.call;
    return coll_request_start(r, request);
}

gyre_status_t coll_p2p_start(coll_req_kind_t kind, void *buffer, size_t count, gyre_type_t type, int peer,
                             gyre_comm_t *comm, gyre_request_t **request)
{
    return start_message(kind, buffer, NULL, count, type, peer, comm, request);
}

gyre_status_t coll_p2p_check(const char *name, const gyre_comm_t *comm)
{
    if (!comm->team)
        return GYRE_OK;
    return gyre_fail(GYRE_ERR_UNSUPPORTED,
                     "%s: the communicator's ranks are all in this process (gyre_cuda_comms_create), whose "
                     "messages go on streams: gyre_send_stream, gyre_recv_stream, "
                     "gyre_neighbor_exchange_stream",
                     name);
}

gyre_status_t coll_p2p_begin(coll_req_kind_t kind, void *buffer, int on_device, size_t count,
                             gyre_type_t type, int peer, gyre_comm_t *comm, gyre_request_t **request)
{
    if (!on_device || count == 0)
        return coll_p2p_start(kind, buffer, count, type, peer, comm, request);
    coll_drive(comm);
    coll_bounce_t *bounce = coll_bounce_take(comm, kind, buffer, count * gyre_type_size(type));
    coll_stop_driving(comm);
    if (!bounce)
        return coll_refuse(GYRE_ERR_NO_MEMORY);
    return start_message(kind, coll_bounce_memory(bounce), bounce, count, type, peer, comm, request);
}

/* gyre_send and its like: the checks, and where the buffer is. */
static gyre_status_t call(const char *name, coll_req_kind_t kind, void *buffer, size_t count,
                          gyre_type_t type, int peer, gyre_comm_t *comm, gyre_request_t **request)
{
    size_t bytes = 0;
    gyre_status_t st = check_message(name, buffer, count, type, peer, comm, &bytes);
    if (st == GYRE_OK)
        st = coll_p2p_check(name, comm);
    if (st != GYRE_OK)
        return coll_refuse(st);
    if (peer == comm->rank && !request && !coll_group_open())
        return coll_refuse(gyre_fail(
            GYRE_ERR_INVALID,
            "%s: a blocking message to oneself never ends; use the non-blocking call or a group", name));
    return coll_p2p_begin(kind, buffer, bytes > 0 && coll_cuda_holds(buffer), count, type, peer, comm,
                          request);
}

gyre_status_t gyre_send(const void *buffer, size_t count, gyre_type_t type, int peer, gyre_comm_t *comm)
{
    return call("send", COLL_REQ_SEND, (void *)(uintptr_t)buffer, count, type, peer, comm, NULL);
}

gyre_status_t gyre_isend(const void *buffer, size_t count, gyre_type_t type, int peer, gyre_comm_t *comm,
                         gyre_request_t **request)
{
    gyre_status_t st = coll_check_request("isend", request);
    return st != GYRE_OK
               ? st
               : call("isend", COLL_REQ_SEND, (void *)(uintptr_t)buffer, count, type, peer, comm, request);
}

gyre_status_t gyre_recv(void *buffer, size_t count, gyre_type_t type, int peer, gyre_comm_t *comm)
{
    return call("recv", COLL_REQ_RECV, buffer, count, type, peer, comm, NULL);
}

gyre_status_t gyre_irecv(void *buffer, size_t count, gyre_type_t type, int peer, gyre_comm_t *comm,
                         gyre_request_t **request)
{
    gyre_status_t st = coll_check_request("irecv", request);
    return st != GYRE_OK ? st : call("irecv", COLL_REQ_RECV, buffer, count, type, peer, comm, request);
}

gyre_status_t gyre_send_stream(const void *buffer, size_t count, gyre_type_t type, int peer,
                               gyre_comm_t *comm, gyre_cuda_stream_t stream)
{
    size_t bytes = 0;
    gyre_status_t st = check_message("send_stream", buffer, count, type, peer, comm, &bytes);
    return st != GYRE_OK ? coll_refuse(st)
                         : coll_cuda_message("send_stream", COLL_REQ_SEND, (void *)(uintptr_t)buffer, count,
                                             type, peer, comm, stream);
}

gyre_status_t gyre_recv_stream(void *buffer, size_t count, gyre_type_t type, int peer, gyre_comm_t *comm,
                               gyre_cuda_stream_t stream)
{
    size_t bytes = 0;
    gyre_status_t st = check_message("recv_stream", buffer, count, type, peer, comm, &bytes);
    return st != GYRE_OK
               ? coll_refuse(st)
               : coll_cuda_message("recv_stream", COLL_REQ_RECV, buffer, count, type, peer, comm, stream);
}
