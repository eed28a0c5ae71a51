/* SPDX-License-Identifier: Apache-2.0 */
/* comm/verbs/probe.c: the try. When a communicator is made, before its ranks agree on a transport: do they
 * reach each other over RDMA, and over which rails?
 *
 * A host's adapter may have a port that is up and still not reach another host: other fabrics, VLANs, a
 * firewall that drops RoCE, switches that do not carry the ports' MTU. So every rank sends to its partners
 * (comm/verbs/planes.h) what a connection would send: datagrams as long as the path's MTU, with the address,
 * service level and traffic class of the later queue pairs. All ranks exchange what they received over the
 * bootstrap, and draw the same conclusion.
 *
 *     rank      exchange: my address          exchange: what I received
 *     A   ------------|--- send, listen ---------------|--- planes
 *     B   ------------|-------- send, listen ----------|--- planes
 *
 *  - Receives are posted before the first exchange, so no datagram sent after it is lost for want of a
 *    receive.
 *  - A rank that has received all expected datagrams of a partner, over rail i from its rail i, confirms
 *    that in its further datagrams to the partner, the first time at once.
 *  - A rank that has received all, and the confirmations of all partners, is done: a round trip and a half.
 *  - Until then a rank sends again, later also between rails of different number, and listens until TRY_MS
 *    are over. A datagram that is lost now and then costs no rail.
 *
 * The immediate data has the sender's rail and the confirmation, so all receives share one buffer, which is
 * never read. The adapter drops datagrams without the queue pair's key, which travels over the authenticated
 * bootstrap. */
#include "comm/verbs/verbs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"

enum {
    TRY_MS = 4000,       /* ranks come from an all-gather, so they begin together */
    FIRST_PAUSE_MS = 8,  /* before what did not come is sent again; four times as long each time, */
    MOST_PAUSE_MS = 512, /* up to that */
    CROSS_MS = 100,      /* then rails of different number are tried, too */
    SLOW_MS = 300,       /* an address that takes longer to find is not there, */
    SLOW_MOST = 2,       /* and a rail that has met so many of them tries no further ones */
    NAP_US = 100,
    STUCK_MS = 100, /* a send queue that is full for so long is left alone until all is sent again */
    /* in immediate data, with the number of a rail: the sender has received all of the receiver's
     * datagrams */
    HEARD_YOU = 0x80,
    SENDS = 32,       /* under way per rail */
    RECEIVES_PER = 2, /* of every rail of a partner */
    RECEIVES_MOST = 1024,
    MTU_MOST = 4096,
    GRH = 40,       /* what adapters put in front of a datagram */
    SEND_AT = 8192, /* in the memory of a rail: after what is received */
    MEMORY = 3 * 4096
};
#define RECEIVED (1ull << 32) /* in the identifier of a work request */
_Static_assert(GRH + MTU_MOST <= SEND_AT && SEND_AT + MTU_MOST <= MEMORY, "a datagram fits");

typedef struct {
    verbs_rail_t *rail;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    verbs_region_t memory;
    uint32_t sent, completed;
    int slow;  /* addresses that took long */
    int down;  /* 1: an error stopped the queue pair */
    int stuck; /* 1: its send queue stays full */
} port_t;

/* All memory that a try needs is allocated before its ranks rely on each other. A rank without memory reports
 * that on its card. */
struct verbs_try {
    int ports;
    uint32_t qkey;
    int receives; /* per port */
    port_t port[VERBS_RAILS];
    base_time_t patience; /* that the last try had */
    /* [verbs_partners_most(n)] what was received; every rank sends it to the others */
    uint16_t *mine;
    uint16_t *heard;  /* [n, verbs_partners_most(n)] by each */
    uint8_t *rail_of; /* [VERBS_RAILS, n] */
    int *rails;       /* [n] */
    /* [verbs_partners_most(n), VERBS_RAILS of the partner, VERBS_RAILS of this rank] */
    struct target *targets;
};

/* A rail of a partner, seen from one of this rank's. */
typedef struct target {
    struct ibv_ah *ah;
    int dead; /* 1: there is no way to it */
} target_t;

/* One try, while it runs. */
typedef struct {
    verbs_try_t *try;
    const comm_group_t *group;
    const verbs_intro_t *intros;
    base_time_t until;
    int count; /* of partners */
    int partners[2 * 31];
    uint8_t told[2 * 31]; /* 1: this rank has confirmed the partner's datagrams */
    uint8_t said[2 * 31]; /* 1: the partner has confirmed this rank's */
    uint16_t *heard;      /* [count] */
    target_t *targets;    /* verbs_try.targets */
} course_t;

/* ---- queue pairs --------------------------------------------------------------------------------------- */

static void post_receive(port_t *port)
{
    struct ibv_sge piece = {
        .addr = (uintptr_t)port->memory.base, .length = GRH + MTU_MOST, .lkey = port->memory.mr[0]->lkey};
    struct ibv_recv_wr *bad, wr = {.wr_id = RECEIVED, .sg_list = &piece, .num_sge = 1};

    port->down |= ibv_post_recv(port->qp, &wr, &bad) != 0;
}

static gyre_status_t bring_up(verbs_try_t *try, port_t *port)
{
    int err = verbs_datagrams_up(port->qp, port->rail->port, try->qkey);

    if (err != 0)
        return gyre_fail_errno(GYRE_ERR_SYSTEM, err, "verbs: a datagram queue pair of %s does not come up",
                               port->rail->name);
    port->down = 0;
    port->completed = port->sent;
    for (int i = 0; i < try->receives; i++)
        post_receive(port);
    return GYRE_OK;
}

static gyre_status_t open_port(verbs_try_t *try, port_t *port)
{
    verbs_rail_t *rail = port->rail;
    struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_UD,
                                    .cap = {.max_send_wr = SENDS,
                                            .max_recv_wr = (uint32_t)try->receives,
                                            .max_send_sge = 1,
                                            .max_recv_sge = 1}};
    gyre_status_t status = verbs_region_create(&rail, 1, MEMORY, 0, &port->memory);

    if (status != GYRE_OK)
        return status;
    init.send_cq = init.recv_cq = port->cq =
        ibv_create_cq(rail->context, try->receives + SENDS, NULL, NULL, 0);
    port->qp = port->cq ? ibv_create_qp(rail->pd, &init) : NULL;
    if (!port->qp)
        return gyre_fail_errno(GYRE_ERR_NO_MEMORY, errno,
                               "%s gives no datagram queue pair with %d receives to try it", rail->name,
                               try->receives);
    return bring_up(try, port);
}

static int allocate(verbs_try_t *try, size_t n)
{
    size_t most = (size_t)verbs_partners_most((int)n);

    try->mine = calloc(most, sizeof *try->mine);
    try->heard = calloc(n, most * sizeof *try->heard);
    try->rail_of = calloc(n, VERBS_RAILS);
    try->rails = calloc(n, sizeof *try->rails);
    try->targets = calloc(most, sizeof *try->targets * VERBS_RAILS * VERBS_RAILS);
    return try->mine && try->heard && try->rail_of && try->rails && try->targets;
}

gyre_status_t verbs_try_open(verbs_rail_t *rails, int count, int n, verbs_try_t **out, verbs_intro_t *mine)
{
    verbs_try_t *try = calloc(1, sizeof *try);
    int receives = verbs_partners_most(n) * VERBS_RAILS * RECEIVES_PER;
    gyre_status_t status = GYRE_OK;

    *out = try;
    if (!try || !allocate(try, (size_t)n))
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to try the adapters of %d ranks", n);
    try->receives = receives < RECEIVES_MOST ? receives : RECEIVES_MOST;
    try->qkey = (uint32_t)base_random64() & 0x7fffffffu; /* the highest bit means something else */
    mine->try_qkey = try->qkey;
    for (; try->ports < count && status == GYRE_OK; try->ports++) {
        port_t *port = &try->port[try->ports];
        port->rail = &rails[try->ports];
        status = open_port(try, port);
        mine->rail[try->ports].qpn = port->qp ? port->qp->qp_num : 0;
    }
    return status;
}

void verbs_try_close(verbs_try_t *try)
{
    for (int i = 0; try && i < try->ports; i++) {
        if (try->port[i].qp)
            ibv_destroy_qp(try->port[i].qp);
        if (try->port[i].cq)
            ibv_destroy_cq(try->port[i].cq);
        verbs_region_free(&try->port[i].memory);
    }
    if (try) {
        free(try->targets);
        free(try->rails);
        free(try->rail_of);
        free(try->heard);
        free(try->mine);
    }
    free(try);
}

/* ---- sending and listening ----------------------------------------------------------------------------- */

static target_t *target_at(const course_t *course, int partner, int to, int from)
{
    return &course->targets[(partner * VERBS_RAILS + to) * VERBS_RAILS + from];
}

/* Does verbs join the two ranks? Ranks of one host have faster transports. */
static int is_wanted(const comm_group_t *group, int peer)
{
    return group->host_of[peer] != group->host_of[group->rank] || comm_group_shuns_memory(group);
}

static int heard_all_of(const course_t *course, int partner)
{
    int theirs = course->intros[course->partners[partner]].rails, ours = course->try->ports;

    for (int i = 0; i < theirs && i < ours; i++) {
        if (!(course->heard[partner] & verbs_heard_bit(i, i)))
            return 0;
    }
    return 1;
}

static void completion(course_t *course, port_t *port, const struct ibv_wc *wc)
{
    int at = (int)(port - course->try->port);

    if (wc->wr_id & RECEIVED) {
        uint32_t imm = ntohl(wc->imm_data), partner = imm >> 8, from = imm & (HEARD_YOU - 1);
        if (wc->status != IBV_WC_SUCCESS) {
            port->down = 1;
            return;
        }
        if ((wc->wc_flags & IBV_WC_WITH_IMM) && partner < (uint32_t)course->count && from < VERBS_RAILS) {
            course->heard[partner] |= verbs_heard_bit((int)from, at);
            course->said[partner] |= (imm & HEARD_YOU) != 0;
        }
        post_receive(port);
        return;
    }
    port->completed++;
    if (wc->status == IBV_WC_SUCCESS)
        return;
    port->down = 1;
    if (wc->status != IBV_WC_WR_FLUSH_ERR) { /* a flushed receive proves nothing about the path */
        course->targets[wc->wr_id].dead = 1;
        log_info("verbs: a datagram that %s was tried with failed: %s", port->rail->name,
                 verbs_wc_words((int)wc->status));
    }
}

/* Returns how much there was. */
static int look(course_t *course)
{
    struct ibv_wc wc[16];
    int all = 0;

    for (int i = 0; i < course->try->ports; i++) {
        port_t *port = &course->try->port[i];
        int got = ibv_poll_cq(port->cq, 16, wc);
        for (int k = 0; k < got; k++)
            completion(course, port, &wc[k]);
        all += got > 0 ? got : 0;
        if (port->down && got <= 0) { /* all of its end has been seen */
            struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
            if (ibv_modify_qp(port->qp, &reset, IBV_QP_STATE) != 0 ||
                bring_up(course->try, port) != GYRE_OK) {
                log_info("verbs: %s cannot be tried any further: %s", port->rail->name, strerror(errno));
                port->slow = SLOW_MOST;
                port->down = 0;
            }
        }
    }
    return all;
}

static void nap(void)
{
    struct timespec t = {0, NAP_US * 1000L};

    nanosleep(&t, NULL);
}

/* Finding an address may ask the network, and one that is not there is waited for: a second or so each, in
 * the kernel. */
static void find_way(port_t *port, const verbs_address_t *theirs, target_t *target)
{
    struct ibv_ah_attr way = verbs_way_to(port->rail, theirs);
    base_time_t before = base_now();

    if (port->slow >= SLOW_MOST)
        return;
    target->ah = ibv_create_ah(port->rail->pd, &way);
    target->dead = !target->ah;
    if (!target->ah) {
        char gid[46];
        port->slow += base_now() - before > SLOW_MS * BASE_MS;
        verbs_gid_text(theirs->gid, gid);
        log_info("verbs: there is no way from %s to %s: %s", port->rail->name, gid, strerror(errno));
    }
}

static void send_one(course_t *course, int partner, int to, int from)
{
    const comm_group_t *group = course->group;
    int peer = course->partners[partner];
    const verbs_intro_t *theirs = &course->intros[peer];
    port_t *port = &course->try->port[from];
    target_t *target = target_at(course, partner, to, from);
    int number = verbs_partner_number(group->n, peer, group->rank);
    uint8_t mtu = theirs->rail[to].address.mtu < port->rail->address.mtu ? theirs->rail[to].address.mtu
                                                                         : port->rail->address.mtu;
    struct ibv_sge piece = {.addr = (uintptr_t)port->memory.base + SEND_AT,
                            .length = 128u << mtu,
                            .lkey = port->memory.mr[0]->lkey};
    struct ibv_send_wr *bad,
        wr = {.wr_id = (uint64_t)(target - course->targets),
              .sg_list = &piece,
              .num_sge = 1,
              .opcode = IBV_WR_SEND_WITH_IMM,
              .send_flags = IBV_SEND_SIGNALED,
              .imm_data = htonl((uint32_t)number << 8 | (uint32_t)from |
                                (heard_all_of(course, partner) ? (uint32_t)HEARD_YOU : 0))};
    base_time_t end;

    if (port->stuck)
        return;

    if (!target->ah && !target->dead)
        find_way(port, &theirs->rail[to].address, target);
    if (!target->ah || target->dead || theirs->rail[to].qpn == 0)
        return;
    end = base_now() + STUCK_MS * BASE_MS;
    while (port->sent - port->completed >= SENDS && base_now() < end && base_now() < course->until)
        look(course);
    port->stuck = port->sent - port->completed >= SENDS;
    if (port->down || port->stuck)
        return; /* it is sent again */
    wr.wr.ud.ah = target->ah;
    wr.wr.ud.remote_qpn = theirs->rail[to].qpn;
    wr.wr.ud.remote_qkey = theirs->try_qkey;
    if (ibv_post_send(port->qp, &wr, &bad) == 0)
        port->sent++;
    else
        port->down = 1;
}

/* Everything has come, here and at the partners. */
static int all_is_heard(const course_t *course)
{
    for (int k = 0; k < course->count; k++) {
        if (is_wanted(course->group, course->partners[k]) && !(heard_all_of(course, k) && course->said[k]))
            return 0;
    }
    return 1;
}

/* A dead partner is not waited for; the next exchange reports it. */
static int is_over(const course_t *course)
{
    const comm_group_t *group = course->group;

    return base_now() >= course->until ||
           comm_watch_dead(group->world->watch, group->world_ranks, group->n, NULL, 0) >= 0;
}

/* crossed: also between rails of different number, to partners that do not reach this rank over equal
 * numbers. */
static void send_all(course_t *course, int crossed)
{
    for (int from = 0; from < course->try->ports; from++)
        course->try->port[from].stuck = 0;
    for (int from = 0; from < course->try->ports; from++) {
        for (int k = 0; k < course->count && !is_over(course); k++) {
            int theirs = course->intros[course->partners[k]].rails;
            if (!is_wanted(course->group, course->partners[k]))
                continue;
            for (int to = 0; to < theirs; to++) {
                if (to == from || (crossed && !heard_all_of(course, k)))
                    send_one(course, k, to, from);
            }
        }
    }
}

/* Confirms the partners whose datagrams have arrived by now. */
static void answer(course_t *course)
{
    for (int k = 0; k < course->count; k++) {
        int theirs = course->intros[course->partners[k]].rails;
        if (course->told[k] || !is_wanted(course->group, course->partners[k]) || !heard_all_of(course, k))
            continue;
        course->told[k] = 1;
        for (int i = 0; i < theirs && i < course->try->ports; i++)
            send_one(course, k, i, i);
    }
}

static void run(course_t *course)
{
    base_time_t begun = base_now(), pause = FIRST_PAUSE_MS * BASE_MS, next = begun;

    while (!all_is_heard(course) && !is_over(course)) {
        base_time_t now = base_now();
        if (now >= next) {
            send_all(course, now - begun >= CROSS_MS * BASE_MS);
            next = base_now() + pause;
            pause = pause < MOST_PAUSE_MS * BASE_MS ? 4 * pause : MOST_PAUSE_MS * BASE_MS;
        }
        if (look(course) == 0)
            nap();
        answer(course);
    }
    send_all(course, 0); /* the partners may not have this rank's confirmation */
    for (base_time_t end = base_now() + 100 * BASE_MS; base_now() < end;) {
        int open = 0;
        for (int i = 0; i < course->try->ports; i++)
            open += course->try->port[i].sent != course->try->port[i].completed;
        if (open == 0)
            break;
        if (look(course) == 0)
            nap();
    }
}

/* Fills try->mine. Takes TRY_MS at most, and no more than half of the time until the deadline: the result
 * must be exchanged. */
static void try_all(verbs_try_t *try, const comm_group_t *group, const verbs_intro_t *intros,
                    base_time_t deadline)
{
    course_t course = {
        .try = try, .group = group, .intros = intros, .heard = try->mine, .targets = try->targets};
    base_time_t now = base_now();

    try->patience = deadline - now < 2 * TRY_MS * BASE_MS ? (deadline - now) / 2 : TRY_MS * BASE_MS;
    course.until = now + try->patience;
    course.count = verbs_partners(group->n, group->rank, course.partners);
    run(&course);
    for (int i = 0; i < course.count * VERBS_RAILS * VERBS_RAILS; i++) {
        if (course.targets[i].ah)
            ibv_destroy_ah(course.targets[i].ah);
        course.targets[i] = (target_t){0};
    }
}

/* ---- what comes of it ---------------------------------------------------------------------------------- */

static pthread_mutex_t memory_lock = PTHREAD_MUTEX_INITIALIZER; /* of what worlds remember */

/* The world's place for it. */
typedef struct {
    uint64_t name; /* of the try; 0: none so far */
    uint8_t rails; /* 0: RDMA does not join the ranks */
    uint8_t rail[VERBS_RAILS];
} known_t;
_Static_assert(sizeof(known_t) <= COMM_KEPT_WORDS * sizeof(uint64_t), "a world has a place for it");

static known_t get_known(const comm_world_t *world)
{
    known_t known;

    memcpy(&known, &world->kept[comm_transport_number(&comm_verbs)], sizeof known);
    return known;
}

static void set_known(comm_world_t *world, known_t known)
{
    memcpy(&world->kept[comm_transport_number(&comm_verbs)], &known, sizeof known);
}

int verbs_try_known(const comm_world_t *world, uint64_t *name, int *rails, uint8_t rail[VERBS_RAILS])
{
    known_t known;

    pthread_mutex_lock(&memory_lock);
    known = get_known(world);
    pthread_mutex_unlock(&memory_lock);
    *name = known.name;
    *rails = known.rails;
    memcpy(rail, known.rail, VERBS_RAILS);
    return *name != 0;
}

void verbs_try_forget(comm_world_t *world)
{
    pthread_mutex_lock(&memory_lock);
    set_known(world, (known_t){0});
    pthread_mutex_unlock(&memory_lock);
}

void verbs_try_keep(comm_world_t *world, uint64_t name, int rails, const uint8_t rail[VERBS_RAILS])
{
    known_t known = {.name = name, .rails = (uint8_t)rails};

    memcpy(known.rail, rail, sizeof known.rail);
    pthread_mutex_lock(&memory_lock);
    set_known(world, known);
    pthread_mutex_unlock(&memory_lock);
}

static void remember(const comm_group_t *group, const uint8_t *rail_of, int planes)
{
    uint8_t rail[VERBS_RAILS] = {0};

    for (int k = 0; k < planes && k < VERBS_RAILS; k++)
        rail[k] = rail_of[(size_t)k * (size_t)group->n + (size_t)group->rank];
    verbs_try_keep(group->world, base_hash64(&group->id, sizeof group->id, 6) | 1, planes, rail);
}

static void gap_text(const verbs_gap_t *gap, const verbs_intro_t *intros, base_time_t patience, char *text,
                     size_t bytes)
{
    char a[46], b[46];

    verbs_gid_text(intros[gap->a].rail[gap->rail_a].address.gid, a);
    verbs_gid_text(intros[gap->b].rail[gap->rail_b].address.gid, b);
    snprintf(text, bytes,
             "rank %d (%s, %s) and rank %d (%s, %s) do not reach each other over RDMA: %s came within %.3g s",
             gap->a, intros[gap->a].rail[gap->rail_a].name, a, gap->b, intros[gap->b].rail[gap->rail_b].name,
             b,
             gap->a_hears   ? "nothing of the former's"
             : gap->b_hears ? "nothing of the latter's"
                            : "nothing",
             (double)patience * 1e-9);
}

static gyre_status_t conclude(const verbs_try_t *try, comm_group_t *group, int quiet,
                              const verbs_intro_t *intros, int planes, const verbs_gap_t *gap, int *change)
{
    char text[400] = "";
    int most = 0;

    for (int r = 0; r < group->n; r++) {
        most = intros[r].rails > most ? intros[r].rails : most;
        *change |= intros[r].rails != planes;
        for (int k = 0; k < planes; k++)
            *change |= try->rail_of[(size_t)k * (size_t)group->n + (size_t)r] != k;
    }
    if (gap->a >= 0)
        gap_text(gap, intros, try->patience, text, sizeof text);
    if (planes > 0) {
        if (group->rank == 0 && text[0])
            log_warning("verbs: going on with %d of %d rails, since %s", planes, most, text);
        else if (group->rank == 0 && *change)
            log_info("verbs: going on with %d of %d rails: some rank has fewer, or others", planes, most);
        return GYRE_OK;
    }
    if (!quiet)
        return gyre_fail(GYRE_ERR_TRANSPORT,
                         "%s; GYRE_TRANSPORT=ucx works without, GYRE_VERBS_DEVICES and GYRE_VERBS_GID choose "
                         "other ports and addresses",
                         text);
    if (group->rank == 0)
        log_warning("verbs are not used between hosts, UCX is, since %s", text);
    return gyre_fail_quiet(GYRE_ERR_UNSUPPORTED, "%s", text);
}

gyre_status_t verbs_try_agree(verbs_try_t *try, comm_group_t *group, int quiet, const verbs_intro_t *intros,
                              comm_all_gather_fn all_gather, void *user, base_time_t deadline, int *change)
{
    size_t most = (size_t)verbs_partners_most(group->n);
    verbs_heard_t all = {group->n, try->rails, comm_group_shuns_memory(group) ? NULL : group->host_of,
                         try->heard};
    verbs_gap_t gap;
    gyre_status_t status;
    int planes;

    try_all(try, group, intros, deadline);
    status = all_gather(user, try->mine, most * sizeof *try->mine, try->heard);
    if (status != GYRE_OK)
        return status;
    for (int r = 0; r < group->n; r++)
        try->rails[r] = intros[r].rails;
    planes = verbs_planes(&all, try->rail_of, &gap);
    remember(group, try->rail_of, planes);
    return conclude(try, group, quiet, intros, planes, &gap, change);
}
