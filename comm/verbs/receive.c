/* SPDX-License-Identifier: Apache-2.0 */
/* comm/verbs/receive.c: receiving over a link: packets are taken from the ring; of a rendezvous the peer's
 * buffer is read by RDMA. link.c has the ways of a message. */
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "comm/verbs/verbs.h"

enum { LINGER = 32 }; /* looks at memory for each at the completion queue */

/* comm_msg_t.phase of messages under way */
enum { RECV_BULK = 1, RECV_PULL = 2, RECV_FINISHED = 3 };

/* Wipes what marks of plain writes are known by, before the sender gets the place back. */
static void wipe(verbs_link_t *link, uint32_t unit, uint32_t units)
{
    verbs_short_t *at = (verbs_short_t *)(void *)(link->ring + (size_t)unit * VERBS_UNIT);

    for (uint32_t u = 0; u < units; u++) {
        at[u].header.bytes = 0;
        at[u].header.part = 0;
        atomic_store_explicit(&at[u].mark, 0, memory_order_relaxed);
    }
}

/* The ring is worth watching once messages keep being taken without a sleep: where cores are scarce they
 * never are for long. */
static void count_prompt(verbs_link_t *link)
{
    const comm_verbs_group_t *vg = link->vg;

    if (link->naps != vg->naps) {
        link->naps = vg->naps;
        link->prompt = 0;
    }
    link->watching = ++link->prompt >= VERBS_WATCH;
}

static void consume(verbs_link_t *link, size_t part)
{
    uint32_t units = verbs_units_for(sizeof(verbs_header_t) + part);

    wipe(link, link->rx.unit[link->rx.consumed % VERBS_WINDOW], units);
    count_prompt(link);
    if (verbs_rx_consume(&link->rx, units))
        verbs_post_control(link);
}

/* The oldest packet that was not consumed; NULL: no packet. */
static const verbs_header_t *head(verbs_link_t *link, verbs_kind_t *kind, size_t *part)
{
    const verbs_rx_t *rx = &link->rx;
    const verbs_header_t *at;
    uint32_t unit;

    if (rx->arrived == rx->consumed && verbs_marks(link) == 0) {
        verbs_poll(link->vg);
        if (rx->arrived == rx->consumed)
            return NULL;
    }
    unit = rx->unit[rx->consumed % VERBS_WINDOW];
    at = (const verbs_header_t *)(const void *)(link->ring + (size_t)unit * VERBS_UNIT);
    *kind = (verbs_kind_t)(at->part >> 24);
    *part = at->part & 0xffffff;
    if (sizeof *at + *part <= (size_t)(rx->units - unit) * VERBS_UNIT && *part <= at->bytes)
        return at;
    if (*kind == VERBS_RNDV && *part == sizeof(verbs_offer_t))
        return at;
    verbs_link_fail(link, "a packet is not what it should be");
    return NULL;
}

static void remember_their_call(verbs_link_t *link, const verbs_header_t *header)
{
    link->know_their_call = header->op != 0;
    link->their_call = (comm_call_t){.seq = header->tag.seq,
                                     .op = header->op,
                                     .type = header->type,
                                     .redop = header->redop,
                                     .flags = header->flags,
                                     .root = header->root,
                                     .sig = header->tag.sig,
                                     .count = header->count,
                                     .user_tag = header->user_tag,
                                     .comm = (uint32_t)link->base.group->id};
}

static gyre_status_t recv_head(verbs_link_t *link, size_t bytes, comm_tag_t tag, verbs_kind_t *kind,
                               size_t *part, const verbs_header_t **out)
{
    const verbs_header_t *header = head(link, kind, part);

    if (!header)
        return link->failed ? verbs_link_broken(link) : GYRE_IN_PROGRESS;
    if (header->tag.seq == tag.seq && header->tag.sig == tag.sig && header->bytes == bytes) {
        *out = header;
        return GYRE_OK;
    }
    remember_their_call(link, header);
    return gyre_fail_quiet(GYRE_ERR_MISMATCH,
                           "rank %d sent %llu bytes (call %u, signature %08x), %zu bytes were expected (call "
                           "%u, signature %08x)",
                           link->base.peer, (unsigned long long)header->bytes, header->tag.seq,
                           header->tag.sig, bytes, tag.seq, tag.sig);
}

static gyre_status_t recv_parts(verbs_link_t *link, unsigned char *buf, size_t bytes, comm_msg_t *msg)
{
    while (msg->done < bytes) {
        verbs_kind_t kind;
        size_t part;
        const verbs_header_t *header = head(link, &kind, &part);
        if (!header)
            return link->failed ? verbs_link_broken(link) : GYRE_IN_PROGRESS;
        if (kind != (msg->done == 0 ? VERBS_BULK : VERBS_FRAG) || part > bytes - msg->done) {
            verbs_link_fail(link, "a part of a message is not what it should be");
            return verbs_link_broken(link);
        }
        memcpy(buf + msg->done, header + 1, part);
        msg->done += part;
        consume(link, part);
    }
    msg->phase = RECV_FINISHED;
    return GYRE_OK;
}

/* ---- rendezvous: reading the peer's buffer ------------------------------------------------------------- */

static gyre_status_t make_bounces(verbs_link_t *link)
{
    gyre_status_t status;

    if (link->bounce.base)
        return GYRE_OK;
    status = verbs_region_create(link->vg->rail, link->vg->rails, (size_t)VERBS_BOUNCES * VERBS_BOUNCE_BYTES,
                                 0, &link->bounce);
    if (status != GYRE_OK)
        return status;
    link->base.bytes += link->bounce.bytes;
    link->base.group->private_bytes += link->bounce.bytes;
    return GYRE_OK;
}

/* The next stripe among those whose rails are near to the destination. */
static int next_stripe(const verbs_link_t *link, int from)
{
    int s = from;

    for (int tries = 0; tries < link->stripes; tries++) {
        s = (s + 1) % link->stripes;
        if (link->pull.keys.near & 1u << link->qps[s].rail)
            break;
    }
    return s;
}

static gyre_status_t pull_begin(verbs_link_t *link, void *buf, size_t bytes, const verbs_offer_t *offer)
{
    verbs_pull_t *pull = &link->pull;
    int near = 0;
    size_t share;

    *pull = (verbs_pull_t){.offer = *offer, .to = buf, .bytes = bytes};
    pull->direct = verbs_window_keys(link->vg, buf, bytes, &pull->keys);
    if (!pull->direct) {
        pull->keys.near = ~0u;
        pull->piece = VERBS_BOUNCE_BYTES;
        return make_bounces(link);
    }
    for (int s = 0; s < link->stripes; s++)
        near += (pull->keys.near & 1u << link->qps[s].rail) != 0;
    pull->stripe = next_stripe(link, link->stripes - 1);
    /* Whole pages: no two stripes write to one. */
    share = (bytes / (size_t)(near > 0 ? near : 1) + 4095) & ~(size_t)4095;
    pull->piece = share < VERBS_STRIPE_LEAST ? VERBS_STRIPE_LEAST : share;
    if (pull->piece > link->vg->rail[0]->message_most)
        pull->piece = link->vg->rail[0]->message_most & ~(size_t)4095;
    return GYRE_OK;
}

/* Asks for the next piece. 0: not now. */
static int pull_ask(verbs_link_t *link)
{
    verbs_pull_t *pull = &link->pull;
    verbs_qp_t *qp = &link->qps[pull->stripe];
    size_t bytes = base_min_size(pull->piece, pull->bytes - pull->asked);
    uint32_t rkey = pull->offer.rkey[pull->stripe % link->their_rails], lkey = pull->keys.lkey[qp->rail];
    int bounce = (int)(pull->asked / VERBS_BOUNCE_BYTES % VERBS_BOUNCES);
    unsigned char *to = pull->to + pull->asked;

    if (bytes == 0 || !verbs_qp_room(link, qp) || (!pull->direct && pull->bounced[bounce] != 0))
        return 0;
    if (!pull->direct) {
        pull->bounced[bounce] = 1;
        to = link->bounce.base + (size_t)bounce * VERBS_BOUNCE_BYTES;
        lkey = link->bounce.mr[qp->rail]->lkey;
    }
    verbs_post_read(link, qp, pull->offer.address + pull->asked, rkey, to, lkey, bytes, bounce);
    pull->asked += bytes;
    pull->stripe = next_stripe(link, pull->stripe);
    return !link->failed;
}

/* Copies out what has come, in order. */
static void pull_copy(verbs_link_t *link)
{
    verbs_pull_t *pull = &link->pull;

    while (pull->finished < pull->bytes) {
        int bounce = (int)(pull->finished / VERBS_BOUNCE_BYTES % VERBS_BOUNCES);
        size_t bytes = base_min_size(VERBS_BOUNCE_BYTES, pull->bytes - pull->finished);
        if (pull->bounced[bounce] != 2)
            return;
        memcpy(pull->to + pull->finished, link->bounce.base + (size_t)bounce * VERBS_BOUNCE_BYTES, bytes);
        pull->bounced[bounce] = 0;
        pull->finished += bytes;
    }
}

static gyre_status_t pull_some(verbs_link_t *link, comm_msg_t *msg)
{
    verbs_pull_t *pull = &link->pull;

    while (pull_ask(link)) {
    }
    verbs_poll(link->vg);
    if (link->failed)
        return verbs_link_broken(link);
    if (!pull->direct)
        pull_copy(link);
    while (pull_ask(link)) {
    }
    if (pull->open > 0 || pull->asked < pull->bytes || (!pull->direct && pull->finished < pull->bytes))
        return GYRE_IN_PROGRESS;
    link->rndv_read++;
    verbs_post_control(link);
    msg->phase = RECV_FINISHED;
    return GYRE_OK;
}

gyre_status_t verbs_recv(comm_link_t *base, void *buf, size_t bytes, comm_tag_t tag, comm_msg_t *msg)
{
    verbs_link_t *link = (verbs_link_t *)base;
    const verbs_header_t *header = NULL;
    verbs_kind_t kind = VERBS_EAGER;
    size_t part = 0;
    gyre_status_t status;

    if (msg->phase == RECV_BULK)
        return recv_parts(link, buf, bytes, msg);
    if (msg->phase == RECV_PULL)
        return link->failed ? verbs_link_broken(link) : pull_some(link, msg);
    status = recv_head(link, bytes, tag, &kind, &part, &header);
    if (status != GYRE_OK)
        return status;
    switch (kind) {
    case VERBS_SHORT:
    case VERBS_EAGER:
        if (part != bytes)
            break;
        if (bytes > 0)
            memcpy(buf, header + 1, bytes);
        consume(link, part);
        msg->phase = RECV_FINISHED;
        return GYRE_OK;
    case VERBS_BULK:
        msg->phase = RECV_BULK;
        return recv_parts(link, buf, bytes, msg);
    case VERBS_RNDV: {
        verbs_offer_t offer;
        memcpy(&offer, header + 1, sizeof offer);
        status = pull_begin(link, buf, bytes, &offer);
        if (status != GYRE_OK)
            return status;
        consume(link, part);
        msg->phase = RECV_PULL;
        return pull_some(link, msg);
    }
    default:
        break;
    }
    verbs_link_fail(link, "a packet is not what it should be");
    return verbs_link_broken(link);
}

/* Nothing lies where it could stay: places of the ring are needed for what comes next. */
gyre_status_t verbs_recv_view(comm_link_t *base, size_t bytes, comm_tag_t tag, comm_msg_t *msg,
                              const void **view)
{
    verbs_link_t *link = (verbs_link_t *)base;
    const verbs_header_t *header;
    verbs_kind_t kind;
    size_t part;
    gyre_status_t status = recv_head(link, bytes, tag, &kind, &part, &header);

    (void)msg;
    (void)view;
    return status == GYRE_OK ? GYRE_ERR_UNSUPPORTED : status;
}

void verbs_release(comm_link_t *link, comm_msg_t *msg)
{
    (void)link;
    (void)msg;
}

int verbs_their_call(comm_link_t *base, comm_call_t *call)
{
    const verbs_link_t *link = (const verbs_link_t *)base;

    if (link->know_their_call)
        *call = link->their_call;
    return link->know_their_call;
}

/* One look that finds nothing costs mostly the call. Several looks in a row notice a message sooner, and
 * disturb the other threads of the core's caches less. */
int verbs_linger(comm_link_t *base)
{
    verbs_link_t *link = (verbs_link_t *)base;

    if (!link->told_watching)
        return verbs_poll_often(link->vg);
    for (int looks = 0; looks < LINGER && verbs_marks(link) == 0; looks++) {
    }
    return 1;
}
