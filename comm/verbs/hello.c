/* SPDX-License-Identifier: Apache-2.0 */
/* comm/verbs/hello.c: how two ranks learn each other's queue pairs when a link between them is first used.
 *
 * Every group has one datagram (UD) queue pair, whose address all ranks learn when the group is made. A rank
 * thus keeps one card of each other rank, and queue pairs exist only between ranks that communicate. A rank
 * that needs a link sends its peer a hello, with the numbers of its queue pairs and the address of its ring,
 * and repeats it until it is answered:
 *
 *     A: hello                 ->  B: makes the link if it has none; its queue pairs get ready to receive
 *     from A
 *     A: ready            <-  hello, knows
 *     A: hello, knows, ready   ->  B: ready
 *
 * Both may begin at once. A rank that is ready knows that its peer can receive. Hellos may be lost, doubled
 * and overtake each other; a hello without READY after it is answered. The sender of a hello must know its
 * receiver's token, which the receiver gave to the group over the job's authenticated bootstrap. */
#include "comm/verbs/hello.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/settings/settings.h"

enum {
    GRH = VERBS_HELLO_GRH,
    SLOT = VERBS_HELLO_SLOT,
    RECEIVES = VERBS_HELLO_RECEIVES,
    SENDS = VERBS_HELLO_SENDS,
    PAUSE_MS = 4, /* before the second hello; doubled each time, */
    PAUSE_MOST_MS = 128,
    HELLOS_FEW = 4,  /* fewer without an answer are nothing to speak of */
    COMPLAIN_S = 20, /* without an answer; at most half the operations' deadline */
    MEND_MS = 100    /* between two attempts to bring up the datagram queue pair */
};
#define ID_SHIFT 56

struct ibv_ah_attr verbs_way_to(const verbs_rail_t *rail, const verbs_address_t *theirs)
{
    struct ibv_ah_attr way = {
        .dlid = theirs->lid, .sl = (uint8_t)base_setting_int(SET_VERBS_SL), .port_num = (uint8_t)rail->port};

    if (verbs_needs_grh(rail->address.roce, rail->demands_grh, rail->address.gid, theirs->gid)) {
        way.is_global = 1;
        memcpy(way.grh.dgid.raw, theirs->gid, sizeof theirs->gid);
        way.grh.sgid_index = (uint8_t)rail->gid_index;
        way.grh.hop_limit = 64;
        way.grh.traffic_class = (uint8_t)base_setting_int(SET_VERBS_TCLASS);
    }
    return way;
}

/* ---- datagrams ----------------------------------------------------------------------------------------- */

static void post_receive(comm_verbs_group_t *vg, uint32_t slot)
{
    struct ibv_sge piece = {.addr = (uintptr_t)vg->ud_memory.base + (size_t)slot * SLOT,
                            .length = SLOT,
                            .lkey = vg->ud_memory.mr[0]->lkey};
    struct ibv_recv_wr *bad, wr = {.wr_id = (uint64_t)VERBS_WR_UD << ID_SHIFT | VERBS_HELLO_RECEIVED | slot,
                                   .sg_list = &piece,
                                   .num_sge = 1};

    int err = ibv_post_recv(vg->ud, &wr, &bad);
    if (err != 0) {
        log_debug("verbs: a receive for hellos was not taken: %s", strerror(err));
        vg->ud_down = 1;
    }
}

int verbs_datagrams_up(struct ibv_qp *qp, int port, uint32_t qkey)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = (uint8_t)port, .qkey = qkey};
    int err = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);

    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR};
    if (err == 0)
        err = ibv_modify_qp(qp, &attr, IBV_QP_STATE);
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS};
    if (err == 0)
        err = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
    return err;
}

static gyre_status_t bring_up(comm_verbs_group_t *vg, uint32_t qkey)
{
    int err = verbs_datagrams_up(vg->ud, vg->rail[0]->port, qkey);

    return err == 0
               ? GYRE_OK
               : gyre_fail_errno(GYRE_ERR_SYSTEM, err,
                                 "verbs: the datagram queue pair of %s does not come up", vg->rail[0]->name);
}

gyre_status_t verbs_hello_open(comm_verbs_group_t *vg, verbs_card_t *mine)
{
    const verbs_rail_t *rail = vg->rail[0];
    struct ibv_qp_init_attr init = {
        .send_cq = vg->cq[0],
        .recv_cq = vg->cq[0],
        .qp_type = IBV_QPT_UD,
        .cap = {.max_send_wr = SENDS, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 1}};
    gyre_status_t status =
        verbs_region_create(vg->rail, 1, (size_t)(RECEIVES + SENDS) * SLOT, 0, &vg->ud_memory);

    if (status == GYRE_OK)
        status = verbs_cq_reserve(vg, 0, RECEIVES + SENDS);
    if (status != GYRE_OK)
        return status;
    vg->ud = ibv_create_qp(rail->pd, &init);
    if (!vg->ud)
        return gyre_fail_errno(GYRE_ERR_NO_MEMORY, errno, "%s gives no datagram queue pair", rail->name);
    mine->qpn = vg->ud->qp_num;
    mine->qkey = (uint32_t)base_random64() & 0x7fffffffu; /* the highest bit means something else */
    mine->token = base_random64();
    mine->address = rail->address;
    vg->ud_qkey = mine->qkey;
    status = bring_up(vg, mine->qkey);
    for (uint32_t slot = 0; slot < RECEIVES && status == GYRE_OK; slot++)
        post_receive(vg, slot);
    return status;
}

/* An error of a datagram, such as a route that is gone for a while, stops the queue pair, and all later
 * hellos would be lost. Where only its sending stopped it goes on as it is; else a RESET takes its work
 * requests away, and receives are posted anew. */
void verbs_hello_mend(comm_verbs_group_t *vg)
{
    struct ibv_qp_attr attr = {0};
    struct ibv_qp_init_attr init;
    base_time_t now = base_now();
    int err;

    if (now < vg->ud_next_try || vg->why[0])
        return;
    vg->ud_next_try = now + MEND_MS * BASE_MS;
    vg->ud_down = 0;
    err = ibv_query_qp(vg->ud, &attr, IBV_QP_STATE, &init);
    if (err == 0 && attr.qp_state == IBV_QPS_RTS)
        return;
    if (err == 0 && attr.qp_state == IBV_QPS_SQE) {
        attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS};
        err = ibv_modify_qp(vg->ud, &attr, IBV_QP_STATE);
    } else if (err == 0) {
        attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RESET};
        err = ibv_modify_qp(vg->ud, &attr, IBV_QP_STATE);
        if (err == 0 && bring_up(vg, vg->ud_qkey) != GYRE_OK) {
            verbs_group_fail(vg, "%s", gyre_last_error());
            return;
        }
        vg->ud_completed = vg->ud_sent;
        for (uint32_t slot = 0; slot < RECEIVES && err == 0; slot++)
            post_receive(vg, slot);
    }
    if (err != 0)
        verbs_group_fail(vg, "the datagram queue pair of %s stopped and does not come up again: %s",
                         vg->rail[0]->name, strerror(err));
    else
        log_info("verbs: the datagram queue pair of %s had stopped and was brought up again",
                 vg->rail[0]->name);
}

void verbs_hello_close(comm_verbs_group_t *vg)
{
    if (vg->ud)
        ibv_destroy_qp(vg->ud);
    vg->ud = NULL;
    verbs_region_free(&vg->ud_memory);
}

/* ---- saying hello -------------------------------------------------------------------------------------- */

static void write_hello(const verbs_link_t *link, verbs_hello_t *hello)
{
    const comm_verbs_group_t *vg = link->vg;

    *hello = (verbs_hello_t){.magic = VERBS_HELLO_MAGIC,
                             .token = vg->cards[link->base.peer].token,
                             .group = vg->group->id,
                             .source = vg->group->rank,
                             .dest = link->base.peer,
                             .lane = (uint32_t)link->base.lane,
                             .stripes = (uint32_t)link->stripes,
                             .rails = (uint32_t)vg->rails,
                             .units = link->rx.units,
                             .ring = (uintptr_t)link->ring,
                             .rkey = link->memory.mr[0]->rkey};
    if (link->know_them)
        hello->flags |= VERBS_HELLO_KNOWS;
    if (link->state == VERBS_READY)
        hello->flags |= VERBS_HELLO_READY;
    for (int r = 0; r < vg->rails; r++)
        hello->address[r] = vg->rail[r]->address;
    for (int s = 0; s < link->stripes; s++) {
        hello->qp[s].qpn = link->qps[s].qp->qp_num;
        hello->qp[s].psn = link->qps[s].psn;
    }
}

static void say_hello(verbs_link_t *link)
{
    comm_verbs_group_t *vg = link->vg;
    const verbs_card_t *card = &vg->cards[link->base.peer];
    unsigned char *slot = vg->ud_memory.base + (size_t)(RECEIVES + vg->ud_sent % SENDS) * SLOT;
    struct ibv_sge piece = {
        .addr = (uintptr_t)slot, .length = sizeof(verbs_hello_t), .lkey = vg->ud_memory.mr[0]->lkey};
    struct ibv_send_wr *bad, wr = {.wr_id = (uint64_t)VERBS_WR_UD << ID_SHIFT | vg->ud_sent,
                                   .sg_list = &piece,
                                   .num_sge = 1,
                                   .opcode = IBV_WR_SEND,
                                   .send_flags = IBV_SEND_SIGNALED};
    verbs_hello_t hello;

    if (vg->ud_sent - vg->ud_completed >= SENDS) /* later: hellos are repeated */
        return;
    if (!link->ah) {
        struct ibv_ah_attr way = verbs_way_to(vg->rail[0], &card->address);
        link->ah = ibv_create_ah(vg->rail[0]->pd, &way);
    }
    if (!link->ah) {
        char gid[46];
        verbs_gid_text(card->address.gid, gid);
        verbs_link_fail(link, "there is no way from %s to %s: %s", vg->rail[0]->name, gid, strerror(errno));
        return;
    }
    write_hello(link, &hello);
    memcpy(slot, &hello, sizeof hello);
    wr.wr.ud.ah = link->ah;
    wr.wr.ud.remote_qpn = card->qpn;
    wr.wr.ud.remote_qkey = card->qkey;
    int err = ibv_post_send(vg->ud, &wr, &bad);
    if (err == 0) {
        vg->ud_sent++;
        link->hellos++;
    } else if (err != ENOMEM) { /* which is a full queue: later */
        log_debug("verbs: a hello was not taken: %s", strerror(err));
        vg->ud_down = 1;
    }
}

/* "from A of rxe0 to B" */
static void way_text(const verbs_link_t *link, char *text, size_t bytes)
{
    const comm_verbs_group_t *vg = link->vg;
    char ours[46], theirs[46];

    verbs_gid_text(vg->rail[0]->address.gid, ours);
    verbs_gid_text(vg->cards[link->base.peer].address.gid, theirs);
    snprintf(text, bytes, "from %s of %s port %d to %s", ours, vg->rail[0]->name, vg->rail[0]->port, theirs);
}

int verbs_unanswered(const comm_group_t *group, char *text, size_t bytes)
{
    const comm_verbs_group_t *vg = verbs_of(group);
    int count = 0;

    for (size_t i = 0; i < (size_t)group->n * COMM_LANES; i++) {
        const verbs_link_t *link = verbs_link_at(vg, i);
        char way[200];
        if (!link || link->state == VERBS_READY || link->failed || link->hellos < HELLOS_FEW || count++ > 0)
            continue;
        way_text(link, way, sizeof way);
        snprintf(text, bytes,
                 "%s rank %d %s %u hellos in %.1f s, %s: it does not call Gyre, or RDMA does not get "
                 "through (GYRE_TRANSPORT=ucx works without)",
                 link->know_them ? "verbs: heard of" : "verbs:", link->base.peer,
                 link->know_them ? "but it confirms none of" : "answered none of", link->hellos,
                 (double)(base_now() - link->hello_since) / 1e9, way);
    }
    return count;
}

/* Late peers are common, so this is not an error; but a rank that waits in vain logs early what it waits
 * for. */
static void complain(verbs_link_t *link, base_time_t now)
{
    const comm_verbs_group_t *vg = link->vg;
    double half = vg->group->world->timeout_s / 2;
    base_time_t after =
        (half > 0 && half < COMPLAIN_S ? (base_time_t)(half * 1e3) : COMPLAIN_S * 1000) * BASE_MS;
    char way[200];

    if (link->complained || link->know_them || now - link->hello_since < after)
        return;
    link->complained = 1;
    way_text(link, way, sizeof way);
    log_warning(
        "verbs: rank %d answered none of %u hellos in %.1f s, %s: it does not call Gyre, or RDMA does not "
        "get through; going on",
        link->base.peer, link->hellos, (double)(now - link->hello_since) / 1e9, way);
}

void verbs_hello_begin(verbs_link_t *link)
{
    link->hello_since = link->next_hello = link->vg->next_hello = base_now();
    link->hello_pause = PAUSE_MS * BASE_MS;
    link->vg->connecting++;
}

void verbs_hello_progress(comm_verbs_group_t *vg)
{
    base_time_t now = base_now();

    if (vg->leaving || now < vg->next_hello)
        return;
    vg->next_hello = BASE_TIME_NEVER;
    for (size_t i = 0; i < (size_t)vg->group->n * COMM_LANES; i++) {
        verbs_link_t *link = verbs_link_at(vg, i);
        if (!link || link->state == VERBS_READY || link->failed)
            continue;
        if (now >= link->next_hello) {
            say_hello(link);
            link->next_hello = now + link->hello_pause;
            if (link->hello_pause < PAUSE_MOST_MS * BASE_MS)
                link->hello_pause *= 2;
            complain(link, now);
        }
        if (link->next_hello < vg->next_hello)
            vg->next_hello = link->next_hello;
    }
}

/* ---- received hellos ----------------------------------------------------------------------------------- */

static int connect_qp(verbs_link_t *link, verbs_qp_t *qp, const verbs_address_t *theirs)
{
    const comm_verbs_group_t *vg = link->vg;
    const verbs_rail_t *rail = vg->rail[qp->rail];
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = (enum ibv_mtu)(theirs->mtu < rail->address.mtu ? theirs->mtu : rail->address.mtu),
        .dest_qp_num = qp->theirs,
        .rq_psn = qp->their_psn,
        .max_dest_rd_atomic = rail->address.rd_atomic,
        .min_rnr_timer = 16, /* 2.56 ms */
        .ah_attr = verbs_way_to(rail, theirs)};
    int err = ibv_modify_qp(qp->qp, &attr,
                            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);

    if (err != 0)
        return err;
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS,
        .timeout = vg->patience.timeout,
        .retry_cnt = vg->patience.retries,
        /* A link's own receives never run out (ring.h). Shared ones may while the peer computes: then retry
         * forever (7); the deadline and the watcher end a wait. */
        .rnr_retry = link->vg->group->n - 1 > VERBS_SRQ_PEERS ? 7 : 6,
        .sq_psn = qp->psn,
        .max_rd_atomic = theirs->rd_atomic < rail->reads_out ? theirs->rd_atomic : rail->reads_out};
    return ibv_modify_qp(qp->qp, &attr,
                         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                             IBV_QP_MAX_QP_RD_ATOMIC);
}

static void meet(verbs_link_t *link, const verbs_hello_t *hello)
{
    link->their_ring = hello->ring;
    link->their_rkey = hello->rkey;
    link->their_rails = (int)hello->rails;
    verbs_brief_prepare(link);
    verbs_link_shape(link, hello->units);
    if ((int)hello->stripes < link->stripes)
        link->stripes = (int)hello->stripes;
    for (int s = 0; s < link->stripes && !link->failed; s++) {
        verbs_qp_t *qp = &link->qps[s];
        const verbs_address_t *theirs = &hello->address[s % (int)hello->rails];
        int err;
        qp->theirs = hello->qp[s].qpn;
        qp->their_psn = hello->qp[s].psn;
        err = connect_qp(link, qp, theirs);
        if (err != 0) {
            char gid[46];
            verbs_gid_text(theirs->gid, gid);
            verbs_link_fail(link,
                            "queue pair 0x%06x of %s (%s) cannot be joined to 0x%06x of %s: %s; can the two "
                            "reach each other?",
                            qp->qp->qp_num, link->vg->rail[qp->rail]->name,
                            verbs_rail_state(link->vg->rail[qp->rail]), qp->theirs, gid, strerror(err));
        }
    }
    link->know_them = 1;
    log_debug("verbs: rank %d, lane %d: %d queue pair%s, 0x%06x to 0x%06x", link->base.peer, link->base.lane,
              link->stripes, link->stripes == 1 ? "" : "s", link->qps[0].qp->qp_num, link->qps[0].theirs);
}

void verbs_link_ready(verbs_link_t *link)
{
    if (link->state == VERBS_READY)
        return;
    link->state = VERBS_READY;
    link->vg->connecting--;
}

static int is_sound(const comm_verbs_group_t *vg, const verbs_hello_t *hello)
{
    const comm_group_t *group = vg->group;

    return hello->magic == VERBS_HELLO_MAGIC && hello->token == vg->cards[group->rank].token &&
           hello->group == group->id && hello->dest == group->rank && hello->source >= 0 &&
           hello->source < group->n && hello->source != group->rank && hello->lane < COMM_LANES &&
           hello->rails >= 1 && hello->rails <= VERBS_RAILS && hello->stripes >= 1 &&
           hello->stripes <= VERBS_STRIPES && hello->units >= VERBS_LEAST_UNITS &&
           hello->units <= VERBS_MOST_UNITS;
}

static void take_hello(comm_verbs_group_t *vg, const void *at)
{
    verbs_link_t *link;
    verbs_hello_t hello;

    memcpy(&hello, at, sizeof hello);
    if (!is_sound(vg, &hello)) {
        log_debug("verbs: dropped a datagram that is no hello for us");
        return;
    }
    if (vg->leaving || verbs_link_of(vg, hello.source, (int)hello.lane, &link) != GYRE_OK || link->failed)
        return;
    if (!link->know_them)
        meet(link, &hello);
    if (link->failed)
        return;
    if (hello.flags & VERBS_HELLO_KNOWS)
        verbs_link_ready(link);
    if (!(hello.flags & VERBS_HELLO_READY))
        say_hello(link);
}

void verbs_hello_completion(comm_verbs_group_t *vg, const struct ibv_wc *wc)
{
    uint32_t slot = (uint32_t)(wc->wr_id & 0xffffffffu);

    if (wc->status != IBV_WC_SUCCESS) {
        vg->ud_down = 1;
        if (wc->status != IBV_WC_WR_FLUSH_ERR)
            log_info("verbs: a hello failed on %s: %s (status %d): %s", vg->rail[0]->name,
                     verbs_wc_words((int)wc->status), (int)wc->status, verbs_wc_cause((int)wc->status));
    }
    if (!(wc->wr_id & VERBS_HELLO_RECEIVED)) {
        /* Its number. The sends before it are done too; one from before a RESET does not count. */
        if ((int32_t)(slot + 1 - vg->ud_completed) > 0)
            vg->ud_completed = slot + 1;
        return;
    }
    if (wc->status != IBV_WC_SUCCESS) /* it is posted again once the queue pair is up */
        return;
    if (wc->byte_len == GRH + sizeof(verbs_hello_t))
        take_hello(vg, vg->ud_memory.base + (size_t)slot * SLOT + GRH);
    post_receive(vg, slot);
}
