/* SPDX-License-Identifier: Apache-2.0 */
/* comm/verbs/post.c: posts work requests of a link and handles their completions.
 *
 * Only every VERBS_SIGNAL-th write asks for a completion, which covers the writes before it. That is enough,
 * since a completion of a write only frees places of the send queue. Reads always ask for one. */
#include "comm/verbs/verbs.h"

#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"

enum { ID_SHIFT = 56, BOUNCE_SHIFT = 48 };

void verbs_link_fail(verbs_link_t *link, const char *format, ...)
{
    va_list args;

    if (link->failed)
        return;
    va_start(args, format);
    vsnprintf(link->why, sizeof link->why, format, args);
    va_end(args);
    link->failed = 1;
    link->failed_at = base_now();
    link->vg->watched -= link->told_watching; /* nothing more comes */
    link->told_watching = link->watching = 0;
    log_debug("verbs: link with rank %d, lane %d: %s", link->base.peer, link->base.lane, link->why);
}

/* One place is kept for the farewell. */
int verbs_qp_room(verbs_link_t *link, verbs_qp_t *qp)
{
    (void)link;
    return qp->posted - qp->completed < VERBS_SQ - 1;
}

/* 0: it was not taken, and the link has failed. */
static int post(verbs_link_t *link, verbs_qp_t *qp, struct ibv_send_wr *wr, int kind, uint64_t detail)
{
    struct ibv_send_wr *bad;
    int err;

    qp->posted++;
    wr->wr_id =
        (uint64_t)kind << ID_SHIFT | detail << BOUNCE_SHIFT | (qp->posted & ((1ull << BOUNCE_SHIFT) - 1));
    if (kind != VERBS_WR_SEND || qp->posted - qp->signaled >= VERBS_SIGNAL) {
        wr->send_flags |= IBV_SEND_SIGNALED;
        qp->signaled = qp->posted;
    }
    err = ibv_post_send(qp->qp, wr, &bad);
    if (err != 0)
        verbs_link_fail(link, "queue pair 0x%06x of %s takes no work: %s", qp->qp->qp_num,
                        link->vg->rail[qp->rail]->name, strerror(err));
    return err == 0;
}

static void post_write(verbs_link_t *link, uint32_t imm, struct ibv_sge *piece, uint64_t to, int kind)
{
    verbs_qp_t *qp = &link->qps[0];
    struct ibv_send_wr wr = {.sg_list = piece,
                             .num_sge = piece ? 1 : 0,
                             .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                             .imm_data = htonl(imm),
                             .wr.rdma = {.remote_addr = to, .rkey = link->their_rkey}};

    if (!piece || piece->length <= qp->inline_most)
        wr.send_flags = IBV_SEND_INLINE;
    post(link, qp, &wr, kind, 0);
}

/* The news in every message: credits, and whether this rank watches. It does not watch if the group was about
 * to sleep meanwhile. */
static uint32_t news(verbs_link_t *link)
{
    int watching = link->watching && link->naps == link->vg->naps;

    link->vg->watched += watching - link->told_watching;
    link->told_watching = watching;
    return (uint32_t)(verbs_rx_tell(&link->rx) & 0xffff) | (watching ? VERBS_IMM_WATCHES : 0);
}

void verbs_brief_prepare(verbs_link_t *link)
{
    link->brief_piece = (struct ibv_sge){.addr = (uintptr_t)&link->brief, .length = sizeof link->brief};
    link->brief_wr = (struct ibv_send_wr){.sg_list = &link->brief_piece,
                                          .num_sge = 1,
                                          .opcode = IBV_WR_RDMA_WRITE,
                                          .wr.rdma.rkey = link->their_rkey};
}

void verbs_post_brief(verbs_link_t *link, uint32_t unit)
{
    struct ibv_send_wr *wr = &link->brief_wr;

    atomic_store_explicit(&link->brief.mark, VERBS_IMM_MARK | news(link), memory_order_relaxed);
    wr->wr.rdma.remote_addr = link->their_ring + (size_t)unit * VERBS_UNIT;
    wr->send_flags = IBV_SEND_INLINE;
    post(link, &link->qps[0], wr, VERBS_WR_SEND, 0);
}

void verbs_post_packet(verbs_link_t *link, uint32_t unit, size_t bytes)
{
    struct ibv_sge piece = {.addr = (uintptr_t)link->mirror + (size_t)unit * VERBS_UNIT,
                            .length = (uint32_t)bytes,
                            .lkey = link->memory.mr[0]->lkey};

    post_write(link, verbs_imm_data(unit, 0) | news(link), &piece,
               link->their_ring + (size_t)unit * VERBS_UNIT, VERBS_WR_SEND);
}

void verbs_post_control(verbs_link_t *link)
{
    if (!verbs_qp_room(link, &link->qps[0]) || link->failed) {
        link->vg->control_due += !link->control_due;
        link->control_due = 1;
        return;
    }
    link->vg->control_due -= link->control_due;
    link->control_due = 0;
    post_write(link, verbs_imm_control(link->rndv_read, 0) | news(link), NULL, link->their_ring,
               VERBS_WR_SEND);
}

void verbs_post_bye(verbs_link_t *link)
{
    link->bye_sent = 1;
    post_write(link, verbs_imm_control(link->rndv_read, 0) | news(link) | VERBS_IMM_BYE, NULL,
               link->their_ring, VERBS_WR_BYE);
}

void verbs_post_read(verbs_link_t *link, verbs_qp_t *qp, uint64_t from, uint32_t rkey, void *to,
                     uint32_t lkey, size_t bytes, int bounce)
{
    struct ibv_sge piece = {.addr = (uintptr_t)to, .length = (uint32_t)bytes, .lkey = lkey};
    struct ibv_send_wr wr = {.sg_list = &piece,
                             .num_sge = 1,
                             .opcode = IBV_WR_RDMA_READ,
                             .wr.rdma = {.remote_addr = from, .rkey = rkey}};

    link->pull.open += post(link, qp, &wr, VERBS_WR_READ, (uint64_t)bounce);
}

/* ---- receives: they only count messages, whose place the sender chose --------------------------------- */

/* To `srq`, or, if it is NULL, to `qp`. Returns 0 or errno's value. */
static int post_receives(struct ibv_qp *qp, struct ibv_srq *srq, uint32_t count)
{
    struct ibv_recv_wr wrs[VERBS_REPOST], *bad;

    for (uint32_t part; count > 0; count -= part) {
        part = count < VERBS_REPOST ? count : VERBS_REPOST;
        for (uint32_t i = 0; i < part; i++)
            wrs[i] = (struct ibv_recv_wr){.wr_id = (uint64_t)VERBS_WR_RECV << ID_SHIFT,
                                          .next = i + 1 < part ? &wrs[i + 1] : NULL};
        int err = srq ? ibv_post_srq_recv(srq, wrs, &bad) : ibv_post_recv(qp, wrs, &bad);
        if (err != 0)
            return err;
    }
    return 0;
}

gyre_status_t verbs_post_receives(verbs_link_t *link, uint32_t count)
{
    struct ibv_qp *qp = link->qps[0].qp;
    int err = post_receives(qp, NULL, count);

    if (err == 0)
        return GYRE_OK;
    verbs_link_fail(link, "queue pair 0x%06x takes no receives: %s", qp->qp_num, strerror(err));
    return GYRE_ERR_TRANSPORT;
}

int verbs_post_shared_receives(comm_verbs_group_t *vg, uint32_t count)
{
    return post_receives(NULL, vg->srq, count);
}

/* ---- completions --------------------------------------------------------------------------------------- */

static void explain(verbs_link_t *link, const verbs_place_t *place, const struct ibv_wc *wc)
{
    const comm_verbs_group_t *vg = link->vg;
    const verbs_qp_t *qp = &link->qps[place->stripe];
    const verbs_rail_t *rail = vg->rail[place->rail];

    if (link->failed)
        return;
    verbs_link_fail(
        link,
        "%s (status %d, vendor code 0x%x) on queue pair 0x%06x of %s port %d, joined to 0x%06x, while %s: "
        "%s; our port is %s, it tries for about %.1f s",
        verbs_wc_words((int)wc->status), (int)wc->status, wc->vendor_err, wc->qp_num, rail->name, rail->port,
        qp->theirs,
        wc->wr_id >> ID_SHIFT == VERBS_WR_READ   ? "reading"
        : wc->wr_id >> ID_SHIFT == VERBS_WR_RECV ? "receiving"
                                                 : "writing",
        verbs_wc_cause((int)wc->status), verbs_rail_state(rail), vg->patience.seconds);
}

/* Notes whether the peer watches, by its newest message. If the peer stopped watching, it may be asleep
 * already, with an unseen message of this rank in its ring: a control message wakes it. */
static void note_watching(verbs_link_t *link, uint32_t news_of_them)
{
    int watch = (news_of_them & VERBS_IMM_WATCHES) != 0;
    int unseen = link->they_watch && !watch && link->tx.sent != link->tx.consumed;

    link->they_watch = watch;
    if (unseen)
        verbs_post_control(link);
}

static int has_begun(const verbs_short_t *at)
{
    const _Atomic unsigned char *first = (const _Atomic unsigned char *)(const void *)at;

    return atomic_load_explicit(first, memory_order_acquire) != 0;
}

int verbs_marks(verbs_link_t *link)
{
    int count = 0;

    while (!link->failed && !verbs_rx_is_full(&link->rx)) {
        verbs_short_t *at = (verbs_short_t *)(void *)(link->ring + (size_t)link->rx.next * VERBS_UNIT);
        /* acquire: the rest of the unit after its mark, or after its first byte, whichever was written last.
         * Software that writes byte by byte writes the bit that is asked for last. */
        uint32_t mark = atomic_load_explicit(&at->mark, memory_order_acquire);
        if (!(mark & VERBS_IMM_MARK) || at->header.part >> 24 != VERBS_SHORT || !has_begun(at))
            return count; /* absent, incomplete, or a payload that comes with immediate data */
        at->header.bytes--;
        if (!verbs_tx_told(&link->tx, mark & 0xffff) || !verbs_rx_arrived(&link->rx, link->rx.next, 1)) {
            verbs_link_fail(link, "a short message came that should not have been sent (0x%08x)", mark);
            return count;
        }
        note_watching(link, mark);
        count++;
    }
    return count;
}

/* The units of a packet at `unit`; an impossible size is found when the packet is received. */
static uint32_t units_at(const verbs_link_t *link, uint32_t unit)
{
    const verbs_header_t *at = (const verbs_header_t *)(const void *)(link->ring + (size_t)unit * VERBS_UNIT);

    return unit < link->rx.units ? verbs_units_for(sizeof *at + (at->part & 0xffffff)) : 1;
}

static void received(verbs_link_t *link, const struct ibv_wc *wc)
{
    uint32_t imm = ntohl(wc->imm_data), unit = verbs_imm_upper(imm);

    if (link->vg->srq)
        link->vg->srq_owed++;
    if (link->failed) /* its queue pair may be gone (quiesce.c) */
        return;
    if (link->state != VERBS_READY)
        verbs_link_ready(link);
    verbs_marks(link); /* they were sent before */
    int old = (imm & VERBS_IMM_CONTROL) && verbs_tx_is_old(&link->tx, imm & 0xffff);
    if (wc->opcode != IBV_WC_RECV_RDMA_WITH_IMM || (!old && !verbs_tx_told(&link->tx, imm & 0xffff))) {
        verbs_link_fail(link, "a message came that should not have been sent (0x%08x)", imm);
        return;
    }
    if (!old)
        note_watching(link, imm);
    if (imm & VERBS_IMM_CONTROL) {
        uint32_t more = (unit - link->rndv_ended) & VERBS_RNDV_MASK;
        if (more > link->rndv_sent - link->rndv_ended) {
            verbs_link_fail(link, "more rendezvous were ended than begun");
            return;
        }
        link->rndv_ended += more;
        if (imm & VERBS_IMM_BYE)
            link->bye_came = 1;
    } else if (!verbs_rx_arrived(&link->rx, unit, units_at(link, unit))) {
        verbs_link_fail(link, "a message came without credit or outside of the ring");
        return;
    }
    if (!link->vg->srq && ++link->receives_owed >= VERBS_REPOST) {
        link->receives_owed = 0;
        verbs_post_receives(link, VERBS_REPOST); /* its failure is the link's */
    }
}

void verbs_completion(comm_verbs_group_t *vg, verbs_place_t place, const struct ibv_wc *wc)
{
    verbs_link_t *link = place.link;
    verbs_qp_t *qp = &link->qps[place.stripe];

    (void)vg;
    if (wc->status != IBV_WC_SUCCESS) {
        explain(link, &place, wc);
        link->pull.open -= wc->wr_id >> ID_SHIFT == VERBS_WR_READ; /* it writes to memory no more */
        return;
    }
    switch (wc->wr_id >> ID_SHIFT) {
    case VERBS_WR_RECV:
        received(link, wc);
        return;
    case VERBS_WR_READ:
        link->pull.open--;
        if (!link->pull.direct)
            link->pull.bounced[wc->wr_id >> BOUNCE_SHIFT & 0xff] = 2;
        break;
    case VERBS_WR_BYE:
        link->bye_done = 1;
        break;
    default:
        break;
    }
    /* The number of the work request; the identifier has its lower bits. */
    qp->completed += (wc->wr_id - qp->completed) & ((1ull << BOUNCE_SHIFT) - 1);
}
