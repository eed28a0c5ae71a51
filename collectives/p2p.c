/* collectives/p2p.c: send and recv: messages of their own lane, matched in the order of their calls per peer, so that any
 * number may be under way in both directions. They run beside the collectives, not in their order. */
#include "collectives/communicator.h"

#include <stdlib.h>

#include "base/checked.h"
#include "base/error.h"

/* Makes comm->p2p on first use. */
static gyre_status_t prepare(gyre_comm_t *comm)
{
    if (comm->p2p)
        return GYRE_OK;
    comm->p2p = calloc((size_t)comm->n, sizeof *comm->p2p);
    if (!comm->p2p)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for point-to-point state of %d ranks", comm->n);
    return GYRE_OK;
}

/* comm_send of a lane accepts messages in order; comm_recv takes one at a time. A pass walks the queue once and
 * leaves alone whatever stands behind a message of the same lane and direction that has not got that far. */
static gyre_status_t advance_one(gyre_request_t *r, coll_p2p_peer_t *peer, uint32_t pass, int *moved)
{
    uint32_t *blocked = r->kind == COLL_REQ_SEND ? &peer->send_pass : &peer->recv_pass;
    if (*blocked == pass && r->msg.phase == 0)
        return GYRE_IN_PROGRESS;
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
    if (st == GYRE_IN_PROGRESS && (r->kind == COLL_REQ_RECV || !comm_send_accepted(&r->msg)))
        *blocked = pass;
    return st;
}

static void count_traffic(gyre_comm_t *comm, const gyre_request_t *r)
{
    if (r->kind == COLL_REQ_SEND) {
        comm->traffic.bytes_sent += r->bytes;
        comm->traffic.messages_sent++;
    } else {
        comm->traffic.bytes_received += r->bytes;
    }
}

int coll_p2p_advance(gyre_comm_t *comm)
{
    int moved = 0;
    gyre_request_t *prev = NULL;
    uint32_t pass = ++comm->p2p_pass;
    for (gyre_request_t *r = comm->p2p_head; r;) {
        gyre_request_t *next = r->next;
        gyre_status_t st = advance_one(r, &comm->p2p[r->peer], pass, &moved);
        if (st == GYRE_IN_PROGRESS) {
            prev = r;
        } else if (st == GYRE_OK) {
            if (prev)
                prev->next = next;
            else
                comm->p2p_head = next;
            if (comm->p2p_tail == r)
                comm->p2p_tail = prev;
            count_traffic(comm, r);
            coll_request_finish(r, GYRE_OK);
        } else {
            coll_comm_fail(comm, r, st, NULL);
            return 1;
        }
        r = next;
    }
    return moved;
}

static gyre_status_t p2p(const char *name, coll_req_kind_t kind, void *buffer, size_t count, gyre_type_t type,
                         int peer, gyre_comm_t *comm, gyre_request_t **request)
{
    size_t bytes;
    gyre_status_t st = coll_check_comm(name, comm);
    if (st == GYRE_OK)
        st = coll_check_type(name, type);
    if (st != GYRE_OK)
        return coll_refuse(st);
    if (peer < 0 || peer >= comm->n)
        return coll_refuse(
            gyre_fail(GYRE_ERR_INVALID, "%s: peer %d is not in 0..%d", name, peer, comm->n - 1));
    if (!base_mul(count, gyre_type_size(type), &bytes) || bytes > PTRDIFF_MAX)
        return coll_refuse(gyre_fail(GYRE_ERR_OVERFLOW,
                                     "%s: count %zu x %zu bytes is more than memory can hold", name, count,
                                     gyre_type_size(type)));
    if (bytes && !buffer)
        return coll_refuse(gyre_fail(GYRE_ERR_INVALID, "%s: buffer is NULL but count is %zu", name, count));
    if (peer == comm->rank && !request && !coll_group_open())
        return coll_refuse(gyre_fail(
            GYRE_ERR_INVALID,
            "%s: a blocking message to oneself never ends; use the non-blocking call or a group", name));
    st = prepare(comm);
    if (st != GYRE_OK)
        return coll_refuse(st);
    gyre_request_t *r = coll_request_new(comm);
    if (!r)
        return coll_refuse(GYRE_ERR_NO_MEMORY);
    r->kind = kind;
    r->buffer = buffer;
    r->bytes = bytes;
    r->peer = peer;
    r->tag.sig = (uint32_t)type;
    r->call = (comm_call_t){.op = COLL_SENDRECV,
                            .type = (uint8_t)type,
                            .flags = COMM_CALL_P2P | (kind == COLL_REQ_RECV ? COMM_CALL_RECV : 0),
                            .root = peer,
                            .count = count,
                            .comm = (uint32_t)comm->id};
    return coll_request_start(r, request);
}

gyre_status_t gyre_send(const void *buffer, size_t count, gyre_type_t type, int peer, gyre_comm_t *comm)
{
    return p2p("send", COLL_REQ_SEND, (void *)(uintptr_t)buffer, count, type, peer, comm, NULL);
}

gyre_status_t gyre_isend(const void *buffer, size_t count, gyre_type_t type, int peer, gyre_comm_t *comm,
                         gyre_request_t **request)
{
    gyre_status_t st = coll_check_request("isend", request);
    return st != GYRE_OK
               ? st
               : p2p("isend", COLL_REQ_SEND, (void *)(uintptr_t)buffer, count, type, peer, comm, request);
}

gyre_status_t gyre_recv(void *buffer, size_t count, gyre_type_t type, int peer, gyre_comm_t *comm)
{
    return p2p("recv", COLL_REQ_RECV, buffer, count, type, peer, comm, NULL);
}

gyre_status_t gyre_irecv(void *buffer, size_t count, gyre_type_t type, int peer, gyre_comm_t *comm,
                         gyre_request_t **request)
{
    gyre_status_t st = coll_check_request("irecv", request);
    return st != GYRE_OK ? st : p2p("irecv", COLL_REQ_RECV, buffer, count, type, peer, comm, request);
}
