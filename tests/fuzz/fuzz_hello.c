/* SPDX-License-Identifier: Apache-2.0 */
/* tests/fuzz/fuzz_hello.c: datagrams by which ranks over verbs find each other, at a rank whose adapter does
 * as it should. The input is a row of {how, hello}: the bits of `how` put in what a stranger cannot know
 * (HOW_SOUND), and let calls of the adapter fail. A datagram without the token changes nothing. */
#include <errno.h>

#include "comm/verbs/hello.h"
#include "tests/fuzz/fuzz.h"

enum { N = 3, RANK = 1, LINKS = N * COMM_LANES, RAILS = 2, UNITS = 256, SLOTS = 160 };
enum { HOW_SOUND = 1, HOW_REFUSE = 2, HOW_FULL = 4, HOW_SHORT = 8, HOW_SENT = 16, HOW_NO_WAY = 32 };

static int how;

/* ---- the adapter: libibverbs by our own functions, and what its inline ones call ----------------------- */

static struct ibv_ah way;

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    (void)qp;
    if (attr->qp_state == IBV_QPS_RTR && (mask & IBV_QP_PATH_MTU))
        return attr->path_mtu < IBV_MTU_256 || attr->path_mtu > IBV_MTU_4096 ? EINVAL : how & HOW_REFUSE;
    return 0;
}

int(ibv_query_port)(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr)
{
    (void)context;
    (void)port;
    (void)attr;
    return ENODEV;
}

struct ibv_ah *(ibv_create_ah)(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
    (void)pd;
    (void)attr;
    errno = EHOSTUNREACH;
    return how & HOW_NO_WAY ? NULL : &way;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    (void)qp;
    (void)bad;
    FUZZ_CHECK(wr->num_sge == 1 && wr->sg_list->length == sizeof(verbs_hello_t));
    FUZZ_CHECK(((const verbs_hello_t *)(uintptr_t)wr->sg_list->addr)->magic == VERBS_HELLO_MAGIC);
    return how & HOW_FULL ? ENOMEM : 0;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    (void)qp;
    (void)wr;
    (void)bad;
    return 0;
}

/* ---- the rank ------------------------------------------------------------------------------------------ */

static struct {
    struct ibv_context context;
    struct ibv_qp qp;
    struct ibv_mr mr;
    comm_world_t world;
    comm_group_t group;
    comm_verbs_group_t vg;
    verbs_rail_t rail[RAILS];
    verbs_card_t cards[N];
    verbs_link_t link[LINKS];
    comm_link_t *links[LINKS];
    _Alignas(64) unsigned char datagrams[SLOTS * VERBS_HELLO_SLOT];
} self;

static void begin(void)
{
    memset(&self, 0, sizeof self);
    self.context.ops.post_send = post_send;
    self.context.ops.post_recv = post_recv;
    self.qp.context = &self.context;
    self.group = (comm_group_t){.world = &self.world, .id = 7, .n = N, .rank = RANK, .links = self.links};
    self.group.network = &comm_verbs;
    self.group.network_state = &self.vg;
    self.vg.group = &self.group;
    self.vg.rails = RAILS;
    self.vg.ud = &self.qp;
    self.vg.cards = self.cards;
    self.vg.ud_memory = (verbs_region_t){self.datagrams, sizeof self.datagrams, {&self.mr}};
    for (int i = 0; i < N; i++)
        self.cards[i].token = 0x1234567890abcdefu + (uint64_t)i;
    for (int r = 0; r < RAILS; r++) {
        self.rail[r].context = &self.context;
        self.rail[r].address = (verbs_address_t){.mtu = IBV_MTU_1024, .roce = 1, .rd_atomic = 16};
        self.vg.rail[r] = &self.rail[r];
    }
    for (int i = 0; i < LINKS; i++) {
        verbs_link_t *link = &self.link[i];
        if (i / COMM_LANES == RANK)
            continue;
        link->base = (comm_link_t){.ops = &comm_verbs, .group = &self.group, .peer = i / COMM_LANES};
        link->base.lane = i % COMM_LANES;
        link->vg = &self.vg;
        link->rx.units = UNITS;
        link->stripes = 2 * RAILS;
        link->memory.mr[0] = &self.mr;
        for (int s = 0; s < link->stripes; s++)
            link->qps[s] = (verbs_qp_t){.qp = &self.qp, .rail = s % RAILS};
        self.links[i] = &link->base;
        verbs_hello_begin(link);
    }
}

static void check(void)
{
    int connecting = 0;
    FUZZ_CHECK(self.vg.ud_sent - self.vg.ud_completed <= VERBS_HELLO_SENDS);
    for (int i = 0; i < LINKS; i++) {
        const verbs_link_t *link = &self.link[i];
        if (i / COMM_LANES == RANK)
            continue;
        connecting += link->state == VERBS_CONNECTING;
        FUZZ_CHECK(link->stripes >= 1 && link->stripes <= 2 * RAILS);
        FUZZ_CHECK(!link->failed == !link->why[0]);
        FUZZ_CHECK(link->state != VERBS_READY || link->know_them);
        FUZZ_CHECK(link->rx.units >= VERBS_LEAST_UNITS && link->rx.units <= UNITS);
        if (link->know_them)
            FUZZ_CHECK(link->their_rails >= 1 && link->their_rails <= VERBS_RAILS &&
                       link->tx.units == link->rx.units);
    }
    FUZZ_CHECK(connecting == self.vg.connecting);
}

static void hello(fuzz_input_t *in)
{
    const uint32_t slot = 3;
    struct ibv_wc wc = {.wr_id = VERBS_HELLO_RECEIVED | slot, .status = IBV_WC_SUCCESS};
    verbs_hello_t said = {0};
    size_t n = sizeof said;
    how = fuzz_byte(in);
    const uint8_t *bytes = fuzz_bytes(in, &n);
    if (n > 0)
        memcpy(&said, bytes, n);
    if (how & HOW_SENT) { /* not a datagram: the end of one that was sent */
        if (self.vg.ud_completed == self.vg.ud_sent)
            return;
        wc.wr_id = self.vg.ud_completed + said.magic % (self.vg.ud_sent - self.vg.ud_completed);
        verbs_hello_completion(&self.vg, &wc);
        return;
    }
    const verbs_hello_t wanted = {.magic = VERBS_HELLO_MAGIC, .token = self.cards[RANK].token, .group = 7};
    if (how & HOW_SOUND) {
        said.magic = wanted.magic;
        said.token = wanted.token;
        said.group = wanted.group;
        said.dest = RANK;
    }
    wc.byte_len = (uint32_t)(VERBS_HELLO_GRH + sizeof said) - (how & HOW_SHORT ? 1 : 0);
    memcpy(self.datagrams + slot * VERBS_HELLO_SLOT + VERBS_HELLO_GRH, &said, sizeof said);
    static verbs_link_t before[LINKS];
    memcpy(before, self.link, sizeof before);
    verbs_hello_completion(&self.vg, &wc);
    if ((how & HOW_SHORT) || said.token != wanted.token)
        FUZZ_CHECK(memcmp(before, self.link, sizeof before) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input_t in = {data, size};
    begin();
    while (in.left > 0) {
        hello(&in);
        check();
    }
    return 0;
}
