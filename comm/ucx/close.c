/* SPDX-License-Identifier: Apache-2.0 */
/* comm/ucx/close.c: the end of links: messages under way in buffers that the caller is about to free. */
#include <stdlib.h>

#include "base/log.h"
#include "comm/ucx/link.h"

enum { LEAVE_MS = 1000 };
/* How much of an operation's deadline others may take to give back what a failed group has offered them:
 * one part of so many. */
enum { PATIENCE_PART = 4 };

static int in_progress(ucs_status_ptr_t request)
{
    return request && ucx_lib.ucp_request_check_status(request) == UCS_INPROGRESS;
}

/* Is UCX still using a buffer of the caller for this link? */
static int under_way(const ucx_link_t *link)
{
    int found = in_progress(link->receiving);

    for (int i = 0; i < COMM_SENDS_OPEN && !found; i++)
        found = in_progress(link->sending[i].request);
    return found;
}

int ucx_links_busy(const comm_ucx_group_t *ug, const ucx_peer_t *peer)
{
    for (const ucx_link_t *link = ug->links; link; link = link->next) {
        if (link->peer == peer && under_way(link))
            return 1;
    }
    return 0;
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
            ucx_lib.ucp_request_free(link->receiving);
        if (link->telling.request)
            ucx_lib.ucp_request_free(link->telling.request);
        if (link->withdrawing.request)
            ucx_lib.ucp_request_free(link->withdrawing.request);
        for (int i = 0; i < COMM_SENDS_OPEN; i++) {
            if (link->sending[i].request)
                ucx_lib.ucp_request_free(link->sending[i].request);
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
    if (ucx_poll(NULL) > 0)
        return;
    ucx_look_at_sockets(); /* a wait over a link that was cut ends with its connection */
    ucx_breathe();
}

/* Asks the peer to give back what it was offered by rendezvous and has not begun to take. */
static void withdraw(ucx_link_t *link)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_AM_SEND_FLAG_EAGER};
    ucs_status_ptr_t request;

    if (!link->peer || link->peer->failed != UCS_OK || !link->peer->ready)
        return;
    link->withdrawing.header = ucx_header_of(link);
    link->withdrawing.header.number = UCX_WITHDRAWN;
    request = ucx_lib.ucp_am_send_nbx(link->peer->ep, UCX_AM_ID, &link->withdrawing.header,
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
    ug->leave_by = ug->leave_begun + (patience > LEAVE_MS * BASE_MS ? patience : LEAVE_MS * BASE_MS);
    ucx_give_back(ug, -1);
    for (ucx_link_t *link = failed ? ug->links : NULL; link; link = link->next) {
        if (under_way(link))
            withdraw(link);
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
void ucx_link_close(comm_link_t *base)
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
    by = needed ? ug->leave_by : ug->leave_begun + LEAVE_MS * BASE_MS;
    while (under_way(link) && !in_vain(link) && base_now() < by)
        turn();
    if (under_way(link) && link->peer && (in_vain(link) || !needed || comm_group_failed(group))) {
        if (!in_vain(link) && needed)
            log_warning("rank %d has not given back messages of this failed communicator within %.1f s: the "
                        "connection with it is cut, which ends other communicators with it, so that buffers "
                        "can be freed",
                        base->peer, (double)(base_now() - ug->leave_begun) / 1e9);
        base_time_t until = base_now() + LEAVE_MS * BASE_MS;
        ucx_end_connections(ug);
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
        ucx_lib.ucp_am_data_release(ucx_worker(), arrival->data);
        ucx_arrival_free(arrival);
    }
    ucx_link_t **at = &ug->links;
    while (*at != link)
        at = &(*at)->next;
    *at = link->next;
    link->next = closed;
    closed = link;
    ucx_links_reap();
    ucx_unlock();
}
