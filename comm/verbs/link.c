/* SPDX-License-Identifier: Apache-2.0 */
/* comm/verbs/link.c: links over verbs.
 *
 * A message goes one of four ways, chosen by the sender:
 *   short  up to VERBS_SHORT_MOST, while the receiver watches its ring: one plain inline write of a unit; the
 *          receiver finds it by looking at memory
 *   eager  up to eager_most: composed in the mirror of the peer's ring, one write with immediate data (inline
 *          up to VERBS_INLINE or so), copied out of the ring
 *   rndv   larger, from a window: only its place travels. The receiver reads it by RDMA over all stripes,
 *          straight into its buffer if that lies in a window too, else through bounce buffers, and reports
 *          the end
 *   bulk   larger, from other memory: in parts through the ring, so that the copies at both ends overlap
 * The sender of a rendezvous need not do anything meanwhile. Only a rank's own adapter writes into a user's
 * buffer, and only when that rank asks for it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "comm/verbs/verbs.h"

enum {
    EAGER_MOST = 8192,
    /* time for the watcher to report why a connection broke, if the peer is dead */
    GRACE_MS = 1500,
    LEAVE_MS = 1000,
    BULK_OPEN = 1 /* comm_msg_t.pad: this message's parts are under way */
};

/* comm_msg_t.phase of messages under way */
enum { SEND_RNDV = 1, SEND_FINISHED = 2 };

gyre_status_t verbs_link_broken(verbs_link_t *link)
{
    comm_group_t *group = link->base.group;
    int rank = group->world_ranks[link->base.peer];

    if (base_now() - link->failed_at < GRACE_MS * BASE_MS &&
        comm_watch_dead(group->world->watch, &rank, 1, NULL, 0) < 0)
        return GYRE_IN_PROGRESS;
    return comm_link_broken(&link->base, link->why);
}

/* ---- sending ------------------------------------------------------------------------------------------- */

/* The call that messages of this tag belong to; a peer that expects another call reports it. */
static const comm_call_t *describe(verbs_link_t *link, comm_tag_t tag)
{
    comm_group_t *group = link->base.group;
    int p2p = link->base.lane == COMM_LANE_P2P;

    if (link->described.seq == tag.seq && link->described.sig == tag.sig && tag.seq != 0)
        return &link->call;
    if (!comm_board_find_own(group->board, tag.seq, p2p, link->base.peer, &link->call))
        link->call = (comm_call_t){0};
    link->described = tag;
    return &link->call;
}

static verbs_header_t header_for(verbs_link_t *link, verbs_kind_t kind, size_t bytes, comm_tag_t tag,
                                 size_t part)
{
    const comm_call_t *call = describe(link, tag);

    return (verbs_header_t){.bytes = bytes,
                            .tag = tag,
                            .op = call->op,
                            .type = call->type,
                            .redop = call->redop,
                            .flags = call->flags,
                            .root = call->root,
                            .count = call->count,
                            .user_tag = call->user_tag,
                            .part = (uint32_t)kind << 24 | (uint32_t)part};
}

/* Composes a packet in the mirror and sends it. 0: no credit or no room now. */
static int put(verbs_link_t *link, verbs_kind_t kind, size_t bytes, comm_tag_t tag, const void *payload,
               size_t part)
{
    uint32_t need = verbs_units_for(sizeof(verbs_header_t) + part), unit;
    unsigned char *at;

    if (!verbs_tx_place(&link->tx, need, &unit) || !verbs_qp_room(link, &link->qps[0]))
        return 0;
    at = link->mirror + (size_t)unit * VERBS_UNIT;
    *(verbs_header_t *)(void *)at = header_for(link, kind, bytes, tag, part);
    if (part > 0)
        memcpy(at + sizeof(verbs_header_t), payload, part);
    verbs_tx_sent(&link->tx, need, unit);
    verbs_post_packet(link, unit, sizeof(verbs_header_t) + part);
    return 1;
}

static int put_short(verbs_link_t *link, const void *buf, size_t bytes, comm_tag_t tag)
{
    uint32_t unit;

    if (!verbs_tx_place(&link->tx, 1, &unit) || !verbs_qp_room(link, &link->qps[0]))
        return 0;
    link->brief.header = header_for(link, VERBS_SHORT, bytes, tag, bytes);
    link->brief.header.bytes++; /* makes its first byte not 0: verbs_short_t */
    if (bytes > 0)
        memcpy(link->brief.payload, buf, bytes);
    verbs_tx_sent(&link->tx, 1, unit);
    verbs_post_brief(link, unit);
    return 1;
}

/* For credits, which short messages bring, too. */
static void look_around(verbs_link_t *link)
{
    verbs_marks(link);
    verbs_poll(link->vg);
}

/* The message counts as accepted only at its end: no other may come between its parts. */
static gyre_status_t send_parts(verbs_link_t *link, const unsigned char *buf, size_t bytes, comm_tag_t tag,
                                comm_msg_t *msg)
{
    while (msg->done < bytes) {
        size_t part = base_min_size(link->packet_most, bytes - (size_t)msg->done);
        if (!put(link, msg->done == 0 ? VERBS_BULK : VERBS_FRAG, bytes, tag, buf + msg->done, part))
            break;
        link->bulk_open = 1;
        msg->pad = BULK_OPEN;
        msg->done += part;
    }
    if (msg->done < bytes) {
        look_around(link);
        return GYRE_IN_PROGRESS;
    }
    link->bulk_open = 0;
    msg->pad = 0;
    msg->phase = SEND_FINISHED;
    return GYRE_OK;
}

static gyre_status_t send_offer(verbs_link_t *link, const void *buf, size_t bytes, comm_tag_t tag,
                                const verbs_keys_t *keys, comm_msg_t *msg)
{
    verbs_offer_t offer = {.address = (uintptr_t)buf};

    memcpy(offer.rkey, keys->rkey, sizeof offer.rkey);
    if (link->rndv_sent - link->rndv_ended >= COMM_SENDS_OPEN ||
        !put(link, VERBS_RNDV, bytes, tag, &offer, sizeof offer)) {
        look_around(link);
        return GYRE_IN_PROGRESS;
    }
    msg->ticket = link->rndv_sent++;
    msg->phase = SEND_RNDV;
    return GYRE_IN_PROGRESS;
}

static gyre_status_t send_start(verbs_link_t *link, const void *buf, size_t bytes, comm_tag_t tag,
                                comm_msg_t *msg)
{
    verbs_keys_t keys;

    if (bytes > link->eager_most) {
        if (verbs_window_keys(link->vg, buf, bytes, &keys))
            return send_offer(link, buf, bytes, tag, &keys, msg);
        return send_parts(link, buf, bytes, tag, msg);
    }
    int plain =
        link->they_watch && bytes <= VERBS_SHORT_MOST && link->qps[0].inline_most >= sizeof link->brief;
    if (!(plain ? put_short(link, buf, bytes, tag) : put(link, VERBS_EAGER, bytes, tag, buf, bytes))) {
        look_around(link);
        return GYRE_IN_PROGRESS;
    }
    /* That they watch no more may have come, unseen as yet. The program may now compute for long, and they
     * would sleep on what was sent just now: taking the news wakes them. The message is on its way
     * meanwhile. */
    if (plain)
        verbs_poll(link->vg);
    msg->phase = SEND_FINISHED;
    return GYRE_OK;
}

static gyre_status_t verbs_send(comm_link_t *base, const void *buf, size_t bytes, comm_tag_t tag,
                                comm_msg_t *msg)
{
    verbs_link_t *link = (verbs_link_t *)base;

    if (link->failed)
        return verbs_link_broken(link);
    if (msg->phase == SEND_RNDV) {
        if ((int32_t)(link->rndv_ended - (uint32_t)msg->ticket) <= 0) {
            verbs_poll(link->vg);
            if ((int32_t)(link->rndv_ended - (uint32_t)msg->ticket) <= 0)
                return GYRE_IN_PROGRESS;
        }
        msg->phase = SEND_FINISHED;
        return GYRE_OK;
    }
    if (link->state != VERBS_READY) {
        verbs_poll(link->vg);
        if (link->state != VERBS_READY)
            return GYRE_IN_PROGRESS;
    }
    if (msg->pad == BULK_OPEN)
        return send_parts(link, buf, bytes, tag, msg);
    if (link->bulk_open)
        return GYRE_IN_PROGRESS;
    return send_start(link, buf, bytes, tag, msg);
}

/* ---- leaving ------------------------------------------------------------------------------------------- */

/* Does a peer still wait for what this rank sent? A peer that sent its farewell or is gone does not. */
static int is_owed(const verbs_link_t *link)
{
    const comm_group_t *group = link->base.group;

    return link->bye_sent && !link->bye_done && !link->bye_came && !link->failed &&
           comm_watch_dead(group->world->watch, &group->world_ranks[link->base.peer], 1, NULL, 0) < 0;
}

/* Once per group, before its first link is closed: destroying a queue pair discards unsent messages. The
 * farewell is sent after them, so its arrival means theirs. After a failure the rank leaves at once: the
 * watcher reports to its peers. */
static void farewell(comm_verbs_group_t *vg)
{
    size_t places = (size_t)vg->group->n * COMM_LANES;
    base_time_t until = base_now() + LEAVE_MS * BASE_MS;
    int owed = 1;

    if (vg->leaving)
        return;
    vg->leaving = 1;
    if (comm_group_failed(vg->group))
        return;
    verbs_poll(vg);
    for (size_t i = 0; i < places; i++) {
        verbs_link_t *link = verbs_link_at(vg, i);
        if (link && link->state == VERBS_READY && !link->failed && !link->bye_came)
            verbs_post_bye(link);
    }
    while (owed && base_now() < until) {
        verbs_poll(vg);
        owed = 0;
        for (size_t i = 0; i < places; i++) {
            const verbs_link_t *link = verbs_link_at(vg, i);
            owed += link && is_owed(link);
        }
    }
}

static void free_link(verbs_link_t *link)
{
    for (int s = 0; s < VERBS_STRIPES; s++) {
        if (link->qps[s].qp)
            ibv_destroy_qp(link->qps[s].qp);
    }
    if (link->ah)
        ibv_destroy_ah(link->ah);
    verbs_region_free(&link->bounce);
    verbs_region_free(&link->memory);
    free(link);
}

static void verbs_close(comm_link_t *base)
{
    verbs_link_t *link = (verbs_link_t *)base;
    comm_group_t *group = base->group;

    farewell(link->vg);
    /* Completions of this link that are polled later find no link. */
    group->links[(size_t)base->peer * COMM_LANES + (size_t)base->lane] = NULL;
    verbs_place_remove(link->vg, link);
    link->vg->watched -= link->told_watching;
    free_link(link);
}

/* ---- making one ---------------------------------------------------------------------------------------- */

verbs_link_t *verbs_link_at(const comm_verbs_group_t *vg, size_t i)
{
    comm_link_t *link = vg->group->links[i];

    return link && link->ops == &comm_verbs ? (verbs_link_t *)link : NULL;
}

gyre_status_t verbs_link_of(comm_verbs_group_t *vg, int peer, int lane, verbs_link_t **out)
{
    comm_link_t *link;
    gyre_status_t status = comm_group_link(vg->group, peer, lane, &link);

    if (status == GYRE_OK && link->ops != &comm_verbs)
        return gyre_fail_quiet(GYRE_ERR_INTERNAL,
                               "rank %d reaches this rank over verbs, but this rank reaches it over %s", peer,
                               link->ops->name);
    if (status == GYRE_OK)
        *out = (verbs_link_t *)link;
    return status;
}

void verbs_link_shape(verbs_link_t *link, uint32_t units)
{
    size_t most;

    /* Both directions have the size of the smaller ring: a mirror is as long as its owner's ring, and both
     * ends must agree on what a quarter is. */
    link->tx.units = link->rx.units = units < link->rx.units ? units : link->rx.units;
    most = verbs_packet_most(link->tx.units) - sizeof(verbs_header_t);
    link->packet_most = most;
    link->eager_most = base_min_size(EAGER_MOST, most);
}

static gyre_status_t make_qp(verbs_link_t *link, int s)
{
    comm_verbs_group_t *vg = link->vg;
    verbs_qp_t *qp = &link->qps[s];
    int r = qp->rail = s % vg->rails;
    int shared = s == 0 && vg->srq;
    struct ibv_qp_init_attr init = {.send_cq = vg->cq[r],
                                    .recv_cq = vg->cq[r],
                                    .qp_context = link,
                                    .srq = shared ? vg->srq : NULL,
                                    .qp_type = IBV_QPT_RC,
                                    .cap = {.max_send_wr = VERBS_SQ,
                                            .max_recv_wr = shared   ? 0
                                                           : s == 0 ? VERBS_RQ
                                                                    : 1,
                                            .max_send_sge = 1,
                                            .max_recv_sge = 1,
                                            .max_inline_data = VERBS_INLINE}};
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
                               .port_num = (uint8_t)vg->rail[r]->port,
                               .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
    gyre_status_t status = verbs_cq_reserve(vg, r, VERBS_SQ + (s == 0 && !shared ? VERBS_RQ : 1));
    int err;

    if (status != GYRE_OK)
        return status;
    qp->qp = ibv_create_qp(vg->rail[r]->pd, &init);
    if (!qp->qp) /* not every adapter sends inline */
        init.cap.max_inline_data = 0, qp->qp = ibv_create_qp(vg->rail[r]->pd, &init);
    if (!qp->qp)
        return gyre_fail_errno(GYRE_ERR_NO_MEMORY, errno, "%s gives no queue pair for rank %d",
                               vg->rail[r]->name, link->base.peer);
    qp->inline_most = init.cap.max_inline_data;
    qp->psn = (uint32_t)((uint64_t)base_now() >> 8 ^ qp->qp->qp_num * 2654435761u) & 0xffffff;
    err = ibv_modify_qp(qp->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    if (err != 0)
        return gyre_fail_errno(GYRE_ERR_SYSTEM, err, "a queue pair of %s cannot be set up",
                               vg->rail[r]->name);
    return verbs_place_add(vg, link, s);
}

static gyre_status_t verbs_connect(comm_group_t *group, int peer, int lane, comm_link_t **out)
{
    comm_verbs_group_t *vg = verbs_of(group);
    verbs_link_t *link = calloc(1, sizeof *link);
    size_t ring = (size_t)vg->ring_units * VERBS_UNIT;
    gyre_status_t status;

    if (!link)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a link to rank %d", peer);
    link->base = (comm_link_t){&comm_verbs, group, peer, lane, sizeof *link + 2 * ring};
    link->vg = vg;
    link->rx.units = vg->ring_units;
    link->stripes =
        vg->rails * vg->stripes_wanted < VERBS_STRIPES ? vg->rails * vg->stripes_wanted : VERBS_STRIPES;
    status = verbs_region_create(vg->rail, 1, 2 * ring, IBV_ACCESS_REMOTE_WRITE, &link->memory);
    link->ring = link->memory.base;
    link->mirror = link->memory.base + ring;
    for (int s = 0; s < link->stripes && status == GYRE_OK; s++)
        status = make_qp(link, s);
    if (status == GYRE_OK && !vg->srq)
        status = verbs_post_receives(link, VERBS_RQ);
    if (status != GYRE_OK) {
        verbs_place_remove(vg, link);
        free_link(link);
        return status;
    }
    verbs_hello_begin(link);
    if (vg->why[0])
        verbs_link_fail(link, "%s", vg->why);
    *out = &link->base;
    return GYRE_OK;
}

const comm_transport_ops_t comm_verbs = {
    .name = "verbs",
    .scope = COMM_BETWEEN_HOSTS,
    .send = verbs_send,
    .recv = verbs_recv,
    .recv_view = verbs_recv_view,
    .release = verbs_release,
    .their_call = verbs_their_call,
    .linger = verbs_linger,
    .connect = verbs_connect,
    .close = verbs_close,
    .introduce = verbs_introduce,
    .prepare = verbs_prepare,
    .leave = verbs_leave,
    .progress = verbs_progress,
    .arm = verbs_arm,
    .sleep_on = verbs_sleep_on,
    .let_go = verbs_let_go,
    .unanswered = verbs_unanswered,
    .lend = verbs_lend,
    .reclaim = verbs_reclaim,
    .describe = verbs_describe,
    .try_device = verbs_try_device,
};
