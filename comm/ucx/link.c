/* SPDX-License-Identifier: Apache-2.0 */
/* comm/ucx/link.c: links over the process's UCX worker (worker.c).
 *
 * A message goes *eagerly*, at once, or by *rendezvous*, when the receiver has asked for it. Rendezvous needs
 * no copy and no memory at the receiver. But over TCP each rendezvous waits for a round trip during which the
 * wire is idle: two hosts at 1 Gbit/s got 65 % of the bandwidth with chunks of 256 KiB. Eager messages keep
 * the wire busy, and would fill the memory of a receiver that is late. Eager messages are therefore counted,
 * per lane. A sender that is WINDOW ahead of its receiver continues by rendezvous. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "comm/ucx/link.h"

enum { GRACE_MS = 1500 };
/* Eager bytes per lane that may be sent and not yet received: 3.4 ms at 10 Gbit/s, or 34 ms at 1 Gbit/s. A
 * receiver that shares its core gets its turn in that time. Small messages, which are not worth a rendezvous,
 * may go as far again; then they wait. */
enum {
    WINDOW = 4 << 20,
    SMALL = 4096,
    EAGER_MOST = 1 << 20, /* over TCP: longer than this, one round trip does not matter and a copy does */
    /* cost of a message in addition to its payload: its header, UCX's descriptor, Gyre's */
    OVERHEAD = 256
};

/* comm_msg_t.phase of messages under way */
enum { UNDER_WAY = 1, FINISHED = 2 };

/* The connection is broken. The watcher reports deaths, and may take a moment longer than UCX. */
static gyre_status_t ucx_broken(ucx_link_t *link, ucs_status_t why)
{
    comm_group_t *group = link->base.group;
    int rank = group->world_ranks[link->base.peer];
    char text[256];

    if (link->peer && base_now() - link->peer->failed_at < GRACE_MS * BASE_MS &&
        comm_watch_dead(group->world->watch, &rank, 1, NULL, 0) < 0)
        return GYRE_IN_PROGRESS;
    if (!link->peer || link->peer->ready)
        return comm_link_broken(&link->base, ucx_lib.ucs_status_string(why));
    snprintf(text, sizeof text,
             "no connection came to be (%s): do the interfaces that UCX chose reach each other? "
             "UCX_NET_DEVICES names those that do",
             ucx_lib.ucs_status_string(why));
    return comm_link_broken(&link->base, text);
}

static gyre_status_t send_continue(ucx_link_t *link, comm_msg_t *msg)
{
    ucx_sending_t *sending = &link->sending[msg->ticket];
    ucs_status_t status = ucx_lib.ucp_request_check_status(sending->request);

    if (status == UCS_INPROGRESS) {
        ucx_poll(link->base.group);
        status = ucx_lib.ucp_request_check_status(sending->request);
    }
    if (status == UCS_INPROGRESS)
        return link->peer->failed != UCS_OK ? ucx_broken(link, link->peer->failed) : GYRE_IN_PROGRESS;
    if (status != UCS_OK) { /* the request stays until the link is closed: the caller may ask again */
        ucx_peer_fail(link->peer, status);
        return ucx_broken(link, status);
    }
    ucx_lib.ucp_request_free(sending->request);
    sending->request = NULL;
    msg->phase = FINISHED;
    return GYRE_OK;
}

ucx_header_t ucx_header_of(const ucx_link_t *link)
{
    const comm_group_t *group = link->base.group;
    ucx_header_t header = {.group = group->id,
                           .taken = link->inbox->taken,
                           .source = group->rank,
                           .dest = link->base.peer,
                           .lane = (uint32_t)link->base.lane};

    comm_board_read(group->board, &header.call); /* stays zero without a call */
    return header;
}

/* Reports to the sender how much was received, after each quarter of the window. If the report cannot be sent
 * now, the next receive tries again. */
static gyre_status_t tell_taken(ucx_link_t *link)
{
    ucx_inbox_t *inbox = link->inbox;
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_AM_SEND_FLAG_EAGER};
    ucs_status_ptr_t request;

    if (inbox->taken - inbox->told < WINDOW / 4)
        return GYRE_OK;
    if (link->telling.request) {
        if (ucx_lib.ucp_request_check_status(link->telling.request) == UCS_INPROGRESS)
            return GYRE_OK;
        ucx_lib.ucp_request_free(link->telling.request);
        link->telling.request = NULL;
    }
    if (!link->peer) {
        gyre_status_t status = ucx_peer_get(ucx_of(link->base.group), link->base.peer, &link->peer);
        if (status != GYRE_OK)
            return status;
    }
    if (link->peer->failed != UCS_OK || !link->peer->ready)
        return GYRE_OK; /* a send or a receive on it returns the error */
    link->telling.header = ucx_header_of(link);
    link->telling.header.number = UCX_NO_NUMBER;
    request = ucx_lib.ucp_am_send_nbx(link->peer->ep, UCX_AM_ID, &link->telling.header,
                                      sizeof link->telling.header, NULL, 0, &param);
    if (UCS_PTR_IS_ERR(request)) {
        ucx_peer_fail(link->peer, UCS_PTR_STATUS(request));
        return GYRE_OK;
    }
    link->telling.request = request;
    inbox->told = inbox->taken;
    return GYRE_OK;
}

/* How a message of `bytes` goes: its cost and UCX's flags. 0: not now. */
static int choose_way(const ucx_link_t *link, size_t bytes, uint32_t *cost, uint32_t *flags)
{
    const uint64_t ahead = link->spent - link->inbox->acked;
    const int small = bytes <= SMALL;
    const uint64_t room = (uint64_t)WINDOW * (small ? 2 : 1);
    const comm_group_t *group = link->base.group;
    /* On one host the wire is memory, a copy costs as much as the transfer, and a round trip little. */
    const int wire = link->peer->tcp && group->host_of[group->rank] != group->host_of[link->base.peer];

    *cost = 0;
    *flags = UCP_AM_SEND_FLAG_RNDV;
    if (wire && bytes > EAGER_MOST)
        return 1;
    if (bytes > room || ahead + bytes + OVERHEAD > room)
        return !small;
    *cost = (uint32_t)bytes + OVERHEAD;
    *flags = wire || small ? UCP_AM_SEND_FLAG_EAGER : 0; /* for other adapters UCX chooses */
    return 1;
}

static ucx_sending_t *free_place(ucx_link_t *link)
{
    for (int i = 0; i < COMM_SENDS_OPEN; i++) {
        if (!link->sending[i].request)
            return &link->sending[i];
    }
    return NULL;
}

/* Messages from and into the group's device memory (comm/lend.h) go by rendezvous only: no byte of them is
 * the host's. */
static int is_lent(const ucx_link_t *link, const void *buf)
{
    const comm_ucx_group_t *ug = ucx_of(link->base.group);

    return ug->lent && (uintptr_t)buf - (uintptr_t)ug->lent < ug->lent_bytes;
}

static void say_cuda(ucp_request_param_t *param)
{
    param->op_attr_mask |= UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    param->memory_type = UCS_MEMORY_TYPE_CUDA;
}

static gyre_status_t send_start(ucx_link_t *link, const void *buf, size_t bytes, comm_tag_t tag,
                                comm_msg_t *msg)
{
    comm_group_t *group = link->base.group;
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS};
    ucx_sending_t *sending = free_place(link);
    ucs_status_ptr_t request;
    gyre_status_t status;
    uint32_t cost = 0;

    if (!sending)
        return GYRE_IN_PROGRESS;
    if (!link->peer) {
        status = ucx_peer_get(ucx_of(group), link->base.peer, &link->peer);
        if (status != GYRE_OK)
            return status;
    }
    if (link->peer->failed == UCS_OK && !link->peer->ready)
        ucx_poll(group);
    if (link->peer->failed != UCS_OK)
        return ucx_broken(link, link->peer->failed);
    if (!link->peer->ready)
        return GYRE_IN_PROGRESS;
    if (is_lent(link, buf)) {
        param.flags = UCP_AM_SEND_FLAG_RNDV;
        say_cuda(&param);
    } else if (!choose_way(link, bytes, &cost, &param.flags)) {
        ucx_poll(link->base.group); /* the receiver may just be reporting */
        if (!choose_way(link, bytes, &cost, &param.flags))
            return GYRE_IN_PROGRESS;
    }
    sending->header = ucx_header_of(link);
    sending->header.number = link->sent;
    sending->header.bytes = bytes;
    sending->header.tag = tag;
    sending->header.cost = cost;
    request = ucx_lib.ucp_am_send_nbx(link->peer->ep, UCX_AM_ID, &sending->header, sizeof sending->header,
                                      buf, bytes, &param);
    if (UCS_PTR_IS_ERR(request)) {
        ucx_peer_fail(link->peer, UCS_PTR_STATUS(request));
        return ucx_broken(link, UCS_PTR_STATUS(request));
    }
    link->sent++;
    link->spent += cost;
    link->inbox->told = sending->header.taken;
    if (!request) {
        msg->phase = FINISHED;
        return GYRE_OK;
    }
    sending->request = request;
    msg->ticket = (uint64_t)(sending - link->sending);
    msg->phase = UNDER_WAY;
    return GYRE_IN_PROGRESS;
}

static gyre_status_t ucx_send(comm_link_t *base, const void *buf, size_t bytes, comm_tag_t tag,
                              comm_msg_t *msg)
{
    ucx_link_t *link = (ucx_link_t *)base;
    gyre_status_t status;

    ucx_lock();
    status = msg->phase == UNDER_WAY ? send_continue(link, msg) : send_start(link, buf, bytes, tag, msg);
    ucx_unlock();
    return status;
}

static gyre_status_t recv_continue(ucx_link_t *link, comm_msg_t *msg)
{
    ucs_status_t status = ucx_lib.ucp_request_check_status(link->receiving);

    if (status == UCS_INPROGRESS) {
        ucx_poll(link->base.group);
        status = ucx_lib.ucp_request_check_status(link->receiving);
    }
    if (status == UCS_INPROGRESS)
        return link->peer->failed != UCS_OK ? ucx_broken(link, link->peer->failed) : GYRE_IN_PROGRESS;
    if (status != UCS_OK) {
        ucx_peer_fail(link->peer, status);
        return ucx_broken(link, status);
    }
    ucx_lib.ucp_request_free(link->receiving);
    link->receiving = NULL;
    msg->phase = FINISHED;
    return GYRE_OK;
}

/* A rank that has only received so far has no connection of its own: UCX made its end by itself and reports
 * no errors on it. A rank that sleeps takes over that end. */
static gyre_status_t listen_to(ucx_link_t *link)
{
    comm_ucx_group_t *ug = ucx_of(link->base.group);

    if (link->peer || !ug->slept || link->inbox->next == 0)
        return GYRE_OK;
    return ucx_peer_get(ug, link->base.peer, &link->peer);
}

/* The next message, if it has arrived and is the one expected. */
static gyre_status_t recv_head(ucx_link_t *link, size_t bytes, comm_tag_t tag, ucx_arrival_t **out)
{
    ucx_inbox_t *inbox = link->inbox;
    ucx_arrival_t *head;

    if (!inbox->head || inbox->head->header.number != inbox->next)
        ucx_poll(link->base.group);
    head = inbox->head;
    if (ucx_of(link->base.group)->lost)
        return gyre_fail_quiet(GYRE_ERR_NO_MEMORY, "no memory for messages that arrived");
    if (!head || head->header.number != inbox->next) {
        gyre_status_t status = listen_to(link);
        if (status == GYRE_OK)
            status = link->peer && link->peer->failed != UCS_OK ? ucx_broken(link, link->peer->failed)
                                                                : tell_taken(link);
        return status == GYRE_OK ? GYRE_IN_PROGRESS : status;
    }
    if (head->header.tag.seq != tag.seq || head->header.tag.sig != tag.sig || head->header.bytes != bytes) {
        link->their_call = head->header.call;
        link->know_their_call = head->header.call.seq != 0;
        return gyre_fail_quiet(
            GYRE_ERR_MISMATCH,
            "rank %d sent %llu bytes (call %u, signature %08x), %zu bytes were expected (call %u, "
            "signature %08x)",
            link->base.peer, (unsigned long long)head->header.bytes, head->header.tag.seq,
            head->header.tag.sig, bytes, tag.seq, tag.sig);
    }
    *out = head;
    return GYRE_OK;
}

/* Takes the next message out of the inbox; the entry is the caller's. */
static ucx_arrival_t *recv_pop(ucx_link_t *link)
{
    ucx_inbox_t *inbox = link->inbox;
    ucx_arrival_t *head = inbox->head;

    inbox->head = head->next;
    if (!inbox->head)
        inbox->tail = NULL;
    inbox->next++;
    return head;
}

/* The message was received whole: its payload and entry are no longer needed. */
static void recv_done(ucx_link_t *link, ucx_arrival_t *arrival)
{
    link->inbox->taken += arrival->header.cost;
    if (arrival->data)
        ucx_lib.ucp_am_data_release(ucx_worker(), arrival->data);
    ucx_arrival_free(arrival);
    (void)tell_taken(link); /* what fails now fails again, and is reported, at the next receive or send */
}

static gyre_status_t recv_start(ucx_link_t *link, void *buf, size_t bytes, comm_tag_t tag, comm_msg_t *msg)
{
    ucp_request_param_t param = {0};
    ucx_arrival_t *head = NULL;
    gyre_status_t status = recv_head(link, bytes, tag, &head);
    ucs_status_ptr_t request;

    if (status != GYRE_OK)
        return status;
    if (head->rndv && head->data) {
        if (!link->peer) { /* known, so that ucx_link_close can end it */
            status = ucx_peer_get(ucx_of(link->base.group), link->base.peer, &link->peer);
            if (status != GYRE_OK)
                return status;
        }
        if (link->peer->failed != UCS_OK) /* its payload is still there */
            return ucx_broken(link, link->peer->failed);
        if (is_lent(link, buf))
            say_cuda(&param);
        request = ucx_lib.ucp_am_recv_data_nbx(ucx_worker(), head->data, buf, bytes, &param);
        head->data = NULL; /* UCX's again */
        recv_done(link, recv_pop(link));
        if (UCS_PTR_IS_ERR(request))
            return comm_link_broken(&link->base, ucx_lib.ucs_status_string(UCS_PTR_STATUS(request)));
        if (request) {
            link->receiving = request;
            msg->phase = UNDER_WAY;
            return GYRE_IN_PROGRESS;
        }
    } else {
        if (is_lent(link, buf))
            return comm_link_broken(&link->base, "a message for device memory did not come by rendezvous");
        if (head->data)
            memcpy(buf, head->data, bytes);
        recv_done(link, recv_pop(link));
    }
    msg->phase = FINISHED;
    return GYRE_OK;
}

static gyre_status_t ucx_recv(comm_link_t *base, void *buf, size_t bytes, comm_tag_t tag, comm_msg_t *msg)
{
    ucx_link_t *link = (ucx_link_t *)base;
    gyre_status_t status;

    ucx_lock();
    status = msg->phase == UNDER_WAY ? recv_continue(link, msg) : recv_start(link, buf, bytes, tag, msg);
    ucx_unlock();
    return status;
}

/* An eager message can be read where UCX put it together. */
static gyre_status_t ucx_recv_view(comm_link_t *base, size_t bytes, comm_tag_t tag, comm_msg_t *msg,
                                   const void **view)
{
    ucx_link_t *link = (ucx_link_t *)base;
    ucx_arrival_t *head = NULL;
    gyre_status_t status;

    ucx_lock();
    status = recv_head(link, bytes, tag, &head);
    if (status == GYRE_OK && (!head->data || head->rndv))
        status = GYRE_ERR_UNSUPPORTED;
    if (status == GYRE_OK) {
        head = recv_pop(link);
        head->next = link->viewed;
        link->viewed = head;
        msg->handle = head;
        *view = head->data;
    }
    ucx_unlock();
    return status;
}

static void ucx_release(comm_link_t *base, comm_msg_t *msg)
{
    ucx_link_t *link = (ucx_link_t *)base;
    ucx_arrival_t *arrival = msg->handle, **at;

    ucx_lock();
    for (at = &link->viewed; *at != arrival; at = &(*at)->next) {
    }
    *at = arrival->next;
    recv_done(link, arrival);
    ucx_unlock();
    msg->handle = NULL;
}

static int ucx_their_call(comm_link_t *base, comm_call_t *call)
{
    ucx_link_t *link = (ucx_link_t *)base;

    if (link->know_their_call)
        *call = link->their_call;
    return link->know_their_call;
}

static gyre_status_t ucx_connect(comm_group_t *group, int peer, int lane, comm_link_t **out)
{
    comm_ucx_group_t *ug = ucx_of(group);
    ucx_link_t *link = calloc(1, sizeof *link);

    if (!link)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a link to rank %d", peer);
    link->base = (comm_link_t){&comm_ucx, group, peer, lane, sizeof *link};
    ucx_lock();
    link->inbox = ucx_inbox(ug, peer, lane);
    if (link->inbox) {
        link->next = ug->links;
        ug->links = link;
    }
    ucx_unlock();
    if (!link->inbox) {
        free(link);
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a link to rank %d", peer);
    }
    *out = &link->base;
    return GYRE_OK;
}

const comm_transport_ops_t comm_ucx = {
    .name = "ucx",
    .scope = COMM_BETWEEN_HOSTS,
    .send = ucx_send,
    .recv = ucx_recv,
    .recv_view = ucx_recv_view,
    .release = ucx_release,
    .their_call = ucx_their_call,
    .connect = ucx_connect,
    .close = ucx_link_close,
    .introduce = ucx_introduce,
    .prepare = ucx_prepare,
    .leave = ucx_leave,
    .progress = ucx_progress,
    .sleep_on = ucx_sleep_on,
    .lend = ucx_lend,
    .reclaim = ucx_reclaim,
    .expose = ucx_expose,
    .know = ucx_know,
    .conceal = ucx_conceal,
    .move = ucx_move,
    .flush = ucx_flush,
    .retire = ucx_retire,
    .describe = ucx_describe,
    .try_device = ucx_try_device,
};
