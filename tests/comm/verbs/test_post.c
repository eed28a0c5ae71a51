/* SPDX-License-Identifier: Apache-2.0 */
/* tests/comm/verbs/test_post.c: how the verbs transport handles messages in a ring, with an adapter that
 * carries out at once what is posted. A message is taken once, and only when all of it is there. A rank that
 * is about to sleep reports that. Nothing is done with a link that has failed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <arpa/inet.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "comm/verbs/verbs.h"

enum { UNITS = 64 };

static struct {
    int writes, receives, notified;
    int completions; /* that the next look at the queue finds, of a queue pair that is gone */
    uint32_t imm;    /* of the last write that had some */
} adapter;

static int fake_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    (void)qp;
    (void)bad;
    adapter.writes++;
    if (wr->num_sge == 1)
        memcpy((void *)(uintptr_t)wr->wr.rdma.remote_addr, (const void *)(uintptr_t)wr->sg_list->addr,
               wr->sg_list->length);
    if (wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
        adapter.imm = ntohl(wr->imm_data);
    return 0;
}

static int fake_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    (void)qp;
    (void)wr;
    (void)bad;
    adapter.receives++;
    return 0;
}

static int fake_poll(struct ibv_cq *cq, int most, struct ibv_wc *wc)
{
    const int found = adapter.completions < most ? adapter.completions : most;

    (void)cq;
    memset(wc, 0, (size_t)found * sizeof *wc);
    adapter.completions -= found;
    return found;
}

static int fake_notify(struct ibv_cq *cq, int solicited)
{
    (void)cq;
    (void)solicited;
    adapter.notified++;
    return 0;
}

/* One rank: its link, with a ring, and all around it. */
typedef struct {
    struct ibv_context context;
    struct ibv_qp qp;
    struct ibv_cq cq;
    comm_group_t group;
    comm_verbs_group_t vg;
    verbs_link_t link;
    _Alignas(VERBS_UNIT) unsigned char ring[VERBS_MOST_UNITS * VERBS_UNIT];
} side_t;

static side_t a, b;

static int pipes[2];
static struct ibv_comp_channel channel; /* no events of the adapter */
static verbs_rail_t rail = {.context = &(struct ibv_context){.async_fd = -1}};

static void begin(side_t *side, side_t *peer, uint32_t units)
{
    memset(side, 0, sizeof *side);
    side->context.ops.post_send = fake_post_send;
    side->context.ops.post_recv = fake_post_recv;
    side->context.ops.poll_cq = fake_poll;
    side->context.ops.req_notify_cq = fake_notify;
    side->qp.context = side->cq.context = &side->context;
    side->group.network = &comm_verbs;
    side->group.network_state = &side->vg;
    side->vg.group = &side->group;
    side->vg.rails = 1;
    side->vg.cq[0] = &side->cq;
    side->vg.channel[0] = &channel;
    side->vg.rail[0] = &rail;
    side->link.base.group = &side->group;
    side->link.vg = &side->vg;
    side->link.state = VERBS_READY;
    side->link.ring = side->ring;
    side->link.their_ring = (uintptr_t)peer->ring;
    side->link.qps[0] = (verbs_qp_t){.qp = &side->qp, .inline_most = VERBS_INLINE};
    side->link.tx.units = side->link.rx.units = units;
    verbs_brief_prepare(&side->link);
}

static void begin_both(void)
{
    begin(&a, &b, UNITS);
    begin(&b, &a, UNITS);
    memset(&adapter, 0, sizeof adapter);
}

static int setup(void **state)
{
    (void)state;
    if (pipe2(pipes, O_NONBLOCK) != 0)
        return -1;
    channel.fd = rail.context->async_fd = pipes[0];
    begin_both();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    close(pipes[0]);
    close(pipes[1]);
    return 0;
}

/* As the sender composes it: one more than there are. */
static void compose(side_t *side, size_t bytes)
{
    side->link.brief.header =
        (verbs_header_t){.bytes = bytes + 1, .part = (uint32_t)VERBS_SHORT << 24 | (uint32_t)bytes};
    memset(side->link.brief.payload, 0x5a, bytes);
}

/* A short message from one side to the other. 0: no credit. */
static int send_short(side_t *side, size_t bytes)
{
    uint32_t unit;

    if (!verbs_tx_place(&side->link.tx, 1, &unit))
        return 0;
    compose(side, bytes);
    verbs_tx_sent(&side->link.tx, 1, unit);
    verbs_post_brief(&side->link, unit);
    return 1;
}

static verbs_short_t *unit_of(side_t *side, uint64_t message)
{
    return (verbs_short_t *)(void *)(side->ring +
                                     (size_t)side->link.rx.unit[message % VERBS_WINDOW] * VERBS_UNIT);
}

/* The whole ring in short messages, none of them consumed: each is taken once. */
static void test_full_of_short_ones(void **state)
{
    (void)state;
    for (int k = 0; k < UNITS; k++)
        assert_int_equal(send_short(&a, 1 + (size_t)k % VERBS_SHORT_MOST), 1);
    assert_int_equal(send_short(&a, 1), 0);
    assert_int_equal(verbs_marks(&b.link), UNITS);
    assert_int_equal(verbs_marks(&b.link), 0);
    assert_int_equal(b.link.failed, 0);
    assert_int_equal(b.link.rx.arrived, UNITS);
    for (uint64_t k = 0; k < UNITS; k++)
        assert_int_equal(unit_of(&b, k)->header.bytes, 1 + k % VERBS_SHORT_MOST);
}

/* One short message, and after it large ones that fill the ring up to it. */
static void test_full_of_long_ones(void **state)
{
    enum { LARGE = 2048, QUARTER = LARGE / 4 };
    static const uint32_t needs[] = {QUARTER, QUARTER - 1, QUARTER, QUARTER};

    (void)state;
    begin(&a, &b, LARGE);
    begin(&b, &a, LARGE);
    a.link.tx.at = b.link.rx.next = LARGE / 2;
    assert_int_equal(send_short(&a, 8), 1);
    assert_int_equal(verbs_marks(&b.link), 1);
    /* up to the end of the ring, and on from its beginning */
    for (size_t k = 0; k < sizeof needs / sizeof *needs; k++)
        assert_int_equal(verbs_rx_arrived(&b.link.rx, b.link.rx.next, needs[k]), 1);
    assert_int_equal(b.link.rx.next, LARGE / 2);
    assert_int_equal(verbs_marks(&b.link), 0);
    assert_int_equal(b.link.failed, 0);
    assert_int_equal(b.link.rx.arrived, 5);
}

/* The writer of the unit may begin at either end; the message is taken with its last piece. */
static void written_in_pieces(size_t piece, int backwards, size_t bytes)
{
    size_t pieces = VERBS_UNIT / piece;
    const unsigned char *from = (const unsigned char *)&a.link.brief;

    begin_both();
    compose(&a, bytes);
    atomic_store(&a.link.brief.mark, VERBS_IMM_MARK);
    for (size_t i = 0; i < pieces; i++) {
        size_t at = (backwards ? pieces - 1 - i : i) * piece;
        assert_int_equal(verbs_marks(&b.link), 0);
        memcpy(b.ring + at, from + at, piece);
    }
    assert_int_equal(verbs_marks(&b.link), 1);
    assert_int_equal(unit_of(&b, 0)->header.bytes, bytes);
    assert_int_equal(b.link.failed, 0);
}

static void test_written_in_pieces(void **state)
{
    (void)state;
    for (size_t bytes = 0; bytes <= VERBS_SHORT_MOST; bytes++) {
        for (size_t piece = 1; piece <= VERBS_UNIT; piece *= 2) {
            written_in_pieces(piece, 0, bytes);
            written_in_pieces(piece, 1, bytes);
        }
    }
}

/* A rank that is about to sleep does not say that it watches, though it was to say so with its next
 * message. */
static void test_no_watch_before_sleep(void **state)
{
    (void)state;
    b.link.watching = 1; /* no peer knows it yet */
    verbs_arm(&b.group);
    assert_int_equal(send_short(&b, 8), 1);
    assert_int_equal(verbs_marks(&a.link), 1);
    assert_int_equal(a.link.they_watch, 0);
    assert_int_equal(b.vg.watched, 0);
}

/* A rank that has reported that it watches after it prepared to sleep prepares again, instead of sleeping. */
static void test_no_sleep_while_watched(void **state)
{
    struct pollfd polls[COMM_SLEEP_POLLS];

    (void)state;
    verbs_arm(&b.group);
    b.link.naps = b.vg.naps; /* it has taken many messages meanwhile */
    b.link.watching = 1;
    assert_int_equal(send_short(&b, 8), 1);
    assert_int_equal(verbs_marks(&a.link), 1);
    assert_int_equal(a.link.they_watch, 1);
    b.vg.polled = 1;
    assert_int_equal(adapter.notified, 1);
    assert_int_equal(verbs_sleep_on(&b.group, polls), 0);
    assert_int_equal(adapter.notified, 2);
}

/* Completions of before the queue was armed cause no event. */
static void test_no_sleep_over_completions(void **state)
{
    struct pollfd polls[COMM_SLEEP_POLLS];

    (void)state;
    verbs_arm(&b.group);
    adapter.completions = 1;
    assert_int_equal(verbs_sleep_on(&b.group, polls), 0); /* nobody has polled since */
    verbs_arm(&b.group);
    assert_int_equal(verbs_poll(&b.vg), 0);
    assert_int_equal(verbs_sleep_on(&b.group, polls), 1);
    assert_int_equal(polls[0].fd, channel.fd);
}

static void come(side_t *side, uint32_t imm)
{
    const struct ibv_wc wc = {.wr_id = (uint64_t)VERBS_WR_RECV << 56,
                              .status = IBV_WC_SUCCESS,
                              .opcode = IBV_WC_RECV_RDMA_WITH_IMM,
                              .imm_data = htonl(imm)};

    verbs_completion(&side->vg, (verbs_place_t){.link = &side->link}, &wc);
}

/* A control message may be seen after a short one that was sent later: what it says of watching is old,
 * too. */
static void test_old_news(void **state)
{
    (void)state;
    a.link.tx.sent = 10;
    a.link.tx.consumed = 6;
    come(&a, verbs_imm_control(0, 4) | VERBS_IMM_WATCHES);
    assert_int_equal(a.link.they_watch, 0);
    assert_int_equal(a.link.tx.consumed, 6);
    come(&a, verbs_imm_control(0, 7) | VERBS_IMM_WATCHES);
    assert_int_equal(a.link.they_watch, 1);
    assert_int_equal(adapter.writes, 0);
    come(&a, verbs_imm_control(0, 8)); /* it may be asleep, and three messages under way to it: it is woken */
    assert_int_equal(a.link.they_watch, 0);
    assert_int_equal(adapter.writes, 1);
    assert_int_equal(adapter.imm & VERBS_IMM_CONTROL, VERBS_IMM_CONTROL);
    assert_int_equal(a.link.failed, 0);
}

/* Completions that come after the link has failed, and its queue pair was taken away, belong to no link. */
static void test_after_the_end(void **state)
{
    (void)state;
    a.link.receives_owed = VERBS_REPOST - 1;
    a.link.told_watching = a.vg.watched = 1;
    verbs_link_fail(&a.link, "it has ended");
    assert_int_equal(a.vg.watched, 0); /* it keeps no rank from sleeping */
    a.link.qps[0].qp = NULL;
    come(&a, verbs_imm_data(0, 0));
    assert_int_equal(adapter.receives, 0);
    assert_int_equal(a.link.rx.arrived, 0);
}

/* A buffer in the device memory that the group may use has its keys, up to the last byte, and no window is
 * looked for. */
static void test_lent_memory(void **state)
{
    static unsigned char memory[3];
    verbs_keys_t keys = {0};

    (void)state;
    assert_int_equal(verbs_window_keys(&a.vg, memory + 1, 1, &keys), 0);
    a.vg.lent =
        (verbs_lent_t){.base = memory + 1, .bytes = 1, .keys = {.usable = 1, .near = 2, .lkey = {7, 8}}};
    assert_int_equal(verbs_window_keys(&a.vg, memory + 1, 1, &keys), 1);
    assert_int_equal(keys.near, 2);
    assert_int_equal(keys.lkey[1], 8);
    assert_int_equal(verbs_window_keys(&a.vg, memory, 1, &keys), 0);
    assert_int_equal(verbs_window_keys(&a.vg, memory + 2, 1, &keys), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_full_of_short_ones, setup, teardown),
        cmocka_unit_test_setup_teardown(test_full_of_long_ones, setup, teardown),
        cmocka_unit_test_setup_teardown(test_written_in_pieces, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_watch_before_sleep, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_sleep_while_watched, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_sleep_over_completions, setup, teardown),
        cmocka_unit_test_setup_teardown(test_old_news, setup, teardown),
        cmocka_unit_test_setup_teardown(test_after_the_end, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lent_memory, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
