/* SPDX-License-Identifier: Apache-2.0 */
/* comm/link.c: the calls of comm/transport.h that go through a link, and how a link gets its transport. */
#include "comm/link.h"

#include <stdio.h>

#include "base/error.h"
#include "base/thread/futex.h"
#include "base/log.h"
#include "base/settings/settings.h"

gyre_status_t comm_send(comm_link_t *link, const void *buf, size_t bytes, comm_tag_t tag, comm_msg_t *msg)
{
    return link->ops->send(link, buf, bytes, tag, msg);
}

gyre_status_t comm_recv(comm_link_t *link, void *buf, size_t bytes, comm_tag_t tag, comm_msg_t *msg)
{
    return link->ops->recv(link, buf, bytes, tag, msg);
}

gyre_status_t comm_recv_view(comm_link_t *link, size_t bytes, comm_tag_t tag, comm_msg_t *msg,
                             const void **view)
{
    return link->ops->recv_view(link, bytes, tag, msg, view);
}

void comm_release(comm_link_t *link, comm_msg_t *msg)
{
    link->ops->release(link, msg);
}

int comm_view_lost(const comm_link_t *link)
{
    return link->ops->gave_up && link->ops->gave_up(link);
}

int comm_linger(comm_link_t *link)
{
    if (link->ops->linger)
        return link->ops->linger(link);
    base_relax();
    comm_group_progress(link->group);
    return 1;
}

int comm_link_their_call(comm_link_t *link, comm_call_t *call)
{
    return link->ops->their_call(link, call);
}

const char *comm_link_transport(const comm_link_t *link)
{
    return link->ops->name;
}

/* "rank 3", with its world rank where that is another number. */
static void name_rank(const comm_group_t *group, int rank, char *text, size_t bytes)
{
    int world = group->world_ranks[rank];

    if (world == rank)
        snprintf(text, bytes, "rank %d", rank);
    else
        snprintf(text, bytes, "rank %d (world rank %d)", rank, world);
}

gyre_status_t comm_group_lost(const comm_group_t *group)
{
    char how[300] = "", who[64];
    int dead, rank = 0;

    if (!group->world->watch)
        return GYRE_OK;
    dead = comm_watch_dead(group->world->watch, group->world_ranks, group->n, how, sizeof how);
    if (dead < 0)
        return GYRE_OK;
    while (group->world_ranks[rank] != dead)
        rank++;
    name_rank(group, rank, who, sizeof who);
    return gyre_fail_quiet(GYRE_ERR_PEER_DEAD, "%s %s", who, how);
}

gyre_status_t comm_group_trouble(const comm_group_t *group, char *text, size_t bytes)
{
    gyre_status_t lost, status;

    if (!group->world->watch)
        return GYRE_OK;
    /* In this order: an abort is known before the end of the rank that sent it, and must not slip in
     * between. */
    lost = comm_group_lost(group);
    if (lost != GYRE_OK)
        snprintf(text, bytes, "%s", gyre_last_error());
    status = comm_watch_aborted(group->world->watch, group->id, text, bytes);
    return status != GYRE_OK ? status : lost;
}

int comm_group_failed(const comm_group_t *group)
{
    const comm_watch_t *watch = group->world->watch;

    if (group->failed || !watch)
        return group->failed;
    return comm_watch_dead(watch, group->world_ranks, group->n, NULL, 0) >= 0 ||
           comm_watch_aborted(watch, group->id, NULL, 0) != GYRE_OK;
}

gyre_status_t comm_link_broken(const comm_link_t *link, const char *why)
{
    gyre_status_t status = comm_group_lost(link->group);
    char who[64];

    if (status != GYRE_OK)
        return status;
    name_rank(link->group, link->peer, who, sizeof who);
    return gyre_fail_quiet(GYRE_ERR_TRANSPORT, "%s link with %s, lane %d: %s", link->ops->name, who,
                           link->lane, why);
}

static comm_scope_t scope_of(const comm_group_t *group, int peer)
{
    if (peer == group->rank)
        return COMM_TO_ITSELF;
    return group->local_of[peer] >= 0 && !comm_group_shuns_memory(group) ? COMM_ON_HOST : COMM_BETWEEN_HOSTS;
}

static const comm_transport_ops_t *transport_to(const comm_group_t *group, int peer)
{
    const comm_scope_t scope = scope_of(group, peer);

    if (scope == COMM_BETWEEN_HOSTS)
        return group->network;
    for (int i = 0; i < COMM_TRANSPORTS && comm_transports[i]; i++)
        if (comm_transports[i]->scope == scope && !comm_transports[i]->missing)
            return comm_transports[i];
    return NULL;
}

static gyre_status_t connect_link(comm_group_t *group, int peer, int lane, comm_link_t **out)
{
    const comm_transport_ops_t *ops = transport_to(group, peer);

    if (!ops)
        return gyre_fail(
            GYRE_ERR_UNSUPPORTED,
            "rank %d cannot share memory with rank %d (world rank %d): they are on different hosts, or in "
            "containers that see different networks; unset GYRE_TRANSPORT=%s so that a network joins them",
            group->rank, peer, group->world_ranks[peer], base_setting_string(SET_TRANSPORT));
    return ops->connect(group, peer, lane, out);
}

gyre_status_t comm_group_link(comm_group_t *group, int peer, int lane, comm_link_t **out)
{
    comm_link_t **place, *made = NULL;
    gyre_status_t status;

    if (peer < 0 || peer >= group->n || lane < 0 || lane >= COMM_LANES)
        return gyre_fail(GYRE_ERR_INVALID,
                         "no link to rank %d on lane %d: the group has %d ranks and %d lanes", peer, lane,
                         group->n, COMM_LANES);
    place = &group->links[(size_t)peer * COMM_LANES + (size_t)lane];
    if (!*place) {
        status = connect_link(group, peer, lane, &made);
        if (status != GYRE_OK)
            return status;
        *place = made;
        group->private_bytes += made->bytes;
        group->connections++;
        log_debug("link to rank %d, lane %d: %s", peer, lane, made->ops->name);
    }
    *out = *place;
    return GYRE_OK;
}
