/* comm/ucx/link.c: links over the process's UCX worker (worker.c).
 *
 * A message goes *eagerly*, at once, or by *rendezvous*, when the receiver has asked for it. Rendezvous needs
 * no copy and no memory at the receiver. But over TCP each rendezvous waits for a round trip during which the
 * wire is idle: two hosts at 1 Gbit/s got 65 % of the bandwidth with chunks of 256 KiB. Eager messages keep
 * the wire busy, and would fill the memory of a receiver that is late. Eager messages are therefore counted,
 * per lane. A sender that is WINDOW ahead of its receiver continues by rendezvous. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "comm/ucx/ucx.h"

enum { GRACE_MS = 1500, LEAVE_MS = 1000 };
/* How much of an operation's deadline others may take to give back what a failed group has offered them: one part of so many. */
enum { PATIENCE_PART = 4 };
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
#define MS ((base_time_t)1000000)

/* comm_msg_t.phase of messages under way */
enum { UNDER_WAY = 1, FINISHED = 2 };

/* A message that UCX has not sent yet; its header must stay where it is until then. */
typedef struct {
    ucx_header_t header;
    ucs_status_ptr_t request; /* NULL: this place is free */
} ucx_sending_t;

typedef struct ucx_link {
    comm_link_t base;
    struct ucx_link *next; /* in the list of links that are closed and not freed yet */
    ucx_peer_t *peer;      /* NULL until the first message is sent, or received by rendezvous */
    ucx_inbox_t *inbox;
    uint64_t sent;
    uint64_t spent;             /* cost of the messages that were sent */
    ucx_sending_t telling;      /* a message without a number that is under way */
    ucx_sending_t withdrawing;  /* likewise; its turn comes once */
    ucx_arrival_t *viewed;      /* messages that the caller is reading */
    ucs_status_ptr_t receiving; /* a rendezvous into the caller's buffer, or NULL */
    int know_their_call;
    comm_call_t their_call;
    ucx_sending_t sending[COMM_SENDS_OPEN];
} ucx_link_t;

/* The connection is broken. The watcher reports deaths, and may take a moment longer than UCX. */
static gyre_status_t ucx_broken(ucx_link_t *link, ucs_status_t why)
{
    comm_group_t *group = link->base.group;
    int rank = group->world_ranks[link->base.peer];

    if (link->peer && base_now() - link->peer->failed_at < GRACE_MS * MS &&
        comm_watch_dead(group->world->watch, &rank, 1, NULL, 0) < 0)
        return GYRE_IN_PROGRESS;
    return comm_link_broken(&link->base, ucs_status_string(why));
}

static gyre_status_t send_continue(ucx_link_t *link, comm_msg_t *msg)
{
    ucx_sending_t *sending = &link->sending[msg->ticket];
    ucs_status_t status = ucp_request_check_status(sending->request);

    if (status == UCS_INPROGRESS) {
        ucx_poll();
        status = ucp_request_check_status(sending->request);
    }
    if (status == UCS_INPROGRESS)
        return link->peer->failed != UCS_OK ? ucx_broken(link, link->peer->failed) : GYRE_IN_PROGRESS;
    if (status != UCS_OK) { /* the request stays until the link is closed: the caller may ask again */
        ucx_peer_fail(link->peer, status);
        return ucx_broken(link, status);
    }
    ucp_request_free(sending->request);
    sending->request = NULL;
    msg->phase = FINISHED;
    return GYRE_OK;
}

static ucx_header_t header_of(const ucx_link_t *link)
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
        if (ucp_request_check_status(link->telling.request) == UCS_INPROGRESS)
            return GYRE_OK;
        ucp_request_free(link->telling.request);
        link->telling.request = NULL;
    }
    if (!link->peer) {
        gyre_status_t status = ucx_peer_get(ucx_of(link->base.group), link->base.peer, &link->peer);
        if (status != GYRE_OK)
            return status;
    }
    if (link->peer->failed != UCS_OK)
        return GYRE_OK; /* a send or a receive on it returns the error */
    link->telling.header = header_of(link);
    link->telling.header.number = UCX_NO_NUMBER;
    request = ucp_am_send_nbx(link->peer->ep, UCX_AM_ID, &link->telling.header, sizeof link->telling.header,
                              NULL, 0, &param);
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

/* Messages from and into the group's device memory (comm/lend.h) go by rendezvous only: no byte of them is the host's. */
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
    if (link->peer->failed != UCS_OK)
        return ucx_broken(link, link->peer->failed);
    if (is_lent(link, buf)) {
        param.flags = UCP_AM_SEND_FLAG_RNDV;
        say_cuda(&param);
    } else if (!choose_way(link, bytes, &cost, &param.flags)) {
        ucx_poll(); /* the receiver may just be reporting */
        if (!choose_way(link, bytes, &cost, &param.flags))
            return GYRE_IN_PROGRESS;
    }
    sending->header = header_of(link);
    sending->header.number = link->sent;
    sending->header.bytes = bytes;
    sending->header.tag = tag;
    sending->header.cost = cost;
    request = ucp_am_send_nbx(link->peer->ep, UCX_AM_ID, &sending->header, sizeof sending->header, buf, bytes,
                              &param);
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
    ucs_status_t status = ucp_request_check_status(link->receiving);

    if (status == UCS_INPROGRESS) {
        ucx_poll();
        status = ucp_request_check_status(link->receiving);
    }
    if (status == UCS_INPROGRESS)
        return link->peer->failed != UCS_OK ? ucx_broken(link, link->peer->failed) : GYRE_IN_PROGRESS;
    if (status != UCS_OK) {
        ucx_peer_fail(link->peer, status);
        return ucx_broken(link, status);
    }
    ucp_request_free(link->receiving);
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
        ucx_poll();
    head = inbox->head;
    if (ucx_lost())
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
        ucp_am_data_release(ucx_worker(), arrival->data);
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
        if (!link->peer) { /* known, so that ucx_close can end it */
            status = ucx_peer_get(ucx_of(link->base.group), link->base.peer, &link->peer);
            if (status != GYRE_OK)
                return status;
        }
        if (link->peer->failed != UCS_OK) /* its payload is still there */
            return ucx_broken(link, link->peer->failed);
        if (is_lent(link, buf))
            say_cuda(&param);
        request = ucp_am_recv_data_nbx(ucx_worker(), head->data, buf, bytes, &param);
        head->data = NULL; /* UCX's again */
        recv_done(link, recv_pop(link));
        if (UCS_PTR_IS_ERR(request))
            return comm_link_broken(&link->base, ucs_status_string(UCS_PTR_STATUS(request)));
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

static int in_progress(ucs_status_ptr_t request)
{
    return request && ucp_request_check_status(request) == UCS_INPROGRESS;
}

/* Is UCX still using a buffer of the caller for this link? */
static int under_way(const ucx_link_t *link)
{
    int found = in_progress(link->receiving);

    for (int i = 0; i < COMM_SENDS_OPEN && !found; i++)
        found = in_progress(link->sending[i].request);
    return found;
}

/* Links that are closed while UCX still reads headers in them; under the lock. */
static ucx_link_t *closed;

void ucx_links_reap(void)
{
    ucx_link_t **at = &closed;

    while (*at) {
        ucx_link_t *link = *at;
        if (under_way(link) || in_progress(link->telling.request) || in_progress(link->withdrawing.request)) {
            at = &link->next;
            continue;
        }
        *at = link->next;
        if (link->receiving)
            ucp_request_free(link->receiving);
        if (link->telling.request)
            ucp_request_free(link->telling.request);
        if (link->withdrawing.request)
            ucp_request_free(link->withdrawing.request);
        for (int i = 0; i < COMM_SENDS_OPEN; i++) {
            if (link->sending[i].request)
                ucp_request_free(link->sending[i].request);
        }
        free(link);
    }
}

void ucx_links_drop(void)
{
    while (closed) {
        ucx_link_t *link = closed;
        closed = link->next;
        free(link);
    }
}

/* Is it in vain to wait for messages that are under way? */
static int in_vain(const ucx_link_t *link)
{
    const comm_group_t *group = link->base.group;

    if (!link->peer) /* nothing to be cut */
        return 0;
    return link->peer->failed != UCS_OK ||
           comm_watch_dead(group->world->watch, &group->world_ranks[link->base.peer], 1, NULL, 0) >= 0;
}

static void turn(void)
{
    if (ucp_worker_progress(ucx_worker()) > 0)
        return;
    ucx_look_at_sockets(); /* a wait over a link that was cut ends with its connection */
    ucx_breathe();
}

/* Asks the peer to give back what it was offered by rendezvous and has not begun to take. */
static void withdraw(ucx_link_t *link)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_AM_SEND_FLAG_EAGER};
    ucs_status_ptr_t request;

    if (!link->peer || link->peer->failed != UCS_OK)
        return;
    link->withdrawing.header = header_of(link);
    link->withdrawing.header.number = UCX_WITHDRAWN;
    request = ucp_am_send_nbx(link->peer->ep, UCX_AM_ID, &link->withdrawing.header,
                              sizeof link->withdrawing.header, NULL, 0, &param);
    if (UCS_PTR_IS_ERR(request))
        ucx_peer_fail(link->peer, UCS_PTR_STATUS(request));
    else
        link->withdrawing.request = request;
}

/* A link of the group is closed for the first time: all of them will be. */
static void leave_begins(comm_group_t *group)
{
    comm_ucx_group_t *ug = ucx_of(group);
    const int failed = comm_group_failed(group);
    /* A rank that computes gives back what it was offered when it next calls Gyre. */
    const double timeout_s = group->world->timeout_s > 0 ? group->world->timeout_s : 1000;
    const base_time_t patience = failed ? (base_time_t)(timeout_s / PATIENCE_PART * 1e9) : 0;

    ug->leave_begun = base_now();
    ug->leave_by = ug->leave_begun + (patience > LEAVE_MS * MS ? patience : LEAVE_MS * MS);
    ucx_give_back(ug, -1);
    for (size_t i = 0; failed && i < (size_t)group->n * COMM_LANES; i++) {
        if (group->links[i] && group->links[i]->ops == &comm_ucx && under_way((ucx_link_t *)group->links[i]))
            withdraw((ucx_link_t *)group->links[i]);
    }
}

/* After an error, messages may be under way in buffers that the caller is about to free. UCX can cancel
 * neither a rendezvous that was offered nor one that has begun. So:
 *
 *  - Each side gives back, unread, the offers that it will not take. It does so when it closes its own
 *    links, and when the other side asks for it (UCX_WITHDRAWN). Any call of Gyre over UCX answers that
 *    request, for every communicator. A transfer that has begun ends by itself. In both cases the connection
 *    stays whole, and other groups notice nothing.
 *  - Cutting the connection ends everything on it. It is cut at once if it is broken or the peer is dead.
 *    Otherwise the peer has a second: with the connection it loses what it has not read yet of groups that
 *    are gone here. If other groups here need the connection, too, the peer has a quarter of an operation's
 *    deadline.
 *  - A group that has not failed cuts nothing that other groups need.
 *
 * What the link itself still has to send to the peer is no reason to wait: the link stays until it is
 * sent. */
static void ucx_close(comm_link_t *base)
{
    ucx_link_t *link = (ucx_link_t *)base;
    comm_group_t *group = base->group;
    comm_ucx_group_t *ug = ucx_of(group);
    base_time_t by;
    int needed;

    ucx_lock();
    needed = ucx_needed_elsewhere(ug, base->peer);
    if (ug->leave_by == 0)
        leave_begins(group);
    by = needed ? ug->leave_by : ug->leave_begun + LEAVE_MS * MS;
    while (under_way(link) && !in_vain(link) && base_now() < by)
        turn();
    if (under_way(link) && link->peer && (in_vain(link) || !needed || comm_group_failed(group))) {
        if (!in_vain(link) && needed)
            log_warning("rank %d has not given back messages of this failed communicator within %.1f s: the "
                        "connection with it is cut, which ends other communicators with it, so that buffers "
                        "can be freed",
                        base->peer, (double)(base_now() - ug->leave_begun) / 1e9);
        base_time_t until = base_now() + LEAVE_MS * MS;
        ucx_peer_cut(link->peer);
        while (under_way(link) && base_now() < until)
            turn();
    }
    if (under_way(link))
        log_warning(
            "UCX still uses a buffer of a message with rank %d; do not free it before the process ends",
            base->peer);
    while (link->viewed) { /* after an error */
        ucx_arrival_t *arrival = link->viewed;
        link->viewed = arrival->next;
        ucp_am_data_release(ucx_worker(), arrival->data);
        ucx_arrival_free(arrival);
    }
    link->next = closed;
    closed = link;
    ucx_links_reap();
    ucx_unlock();
}

static gyre_status_t ucx_connect(comm_group_t *group, int peer, int lane, comm_link_t **out)
{
    ucx_link_t *link = calloc(1, sizeof *link);

    if (!link)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a link to rank %d", peer);
    link->base = (comm_link_t){&comm_ucx, group, peer, lane, sizeof *link};
    ucx_lock();
    link->inbox = ucx_inbox(ucx_of(group), peer, lane);
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
    .close = ucx_close,
    .introduce = ucx_introduce,
    .prepare = ucx_prepare,
    .leave = ucx_leave,
    .progress = ucx_progress,
    .thread_safe = 1,
    .sleep = ucx_sleep,
    .lend = ucx_lend,
    .reclaim = ucx_reclaim,
    .try_device = ucx_try_device,
};
