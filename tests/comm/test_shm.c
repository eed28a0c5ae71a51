/* SPDX-License-Identifier: Apache-2.0 */
/* tests/comm/test_shm.c: messages between ranks of one host, each way of copying forced and verified. */
/* takes: 5 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
#include <cmocka.h>

#include "../support/ranks.h"
#include "base/settings/settings.h"
#include "comm/shm/link.h"
#include "comm/memory/memory.h"
#include "comm/shm/ring.h"

static void set(base_setting_t id, const char *value)
{
    assert_int_equal(base_settings_set(id, value, "test"), GYRE_OK);
}

/* ---- ways of copying ----------------------------------------------------------------------------------- */

typedef struct {
    const char *mode;
    int in_window; /* the buffers come from comm_mem_alloc */
    unsigned used; /* bit per comm_shm_way_t */
    int lane;
} way_t;

static size_t most = SIZE_MAX; /* bytes of a message */

static int echo(ranks_t *self)
{
    const way_t *way = self->arg;
    comm_link_t *link = ranks_link(self, 1 - self->rank, way->lane);
    unsigned char *buf = NULL;

    RANKS_CHECK(self, link && strcmp(comm_link_transport(link), "shm") == 0);
    if (way->in_window)
        RANKS_CHECK(self, comm_mem_alloc(RANKS_ECHO_BYTES, (void **)&buf) == GYRE_OK);
    else
        buf = malloc(RANKS_ECHO_BYTES);
    RANKS_CHECK(self, buf && ranks_echo(self, way->lane, buf, most) == 0);
    for (int w = 0; w < COMM_SHM_WAYS; w++)
        RANKS_CHECK(self, (comm_shm_sent(link, (comm_shm_way_t)w) > 0) == (way->used >> w & 1));
    ranks_barrier(self);
    if (way->in_window)
        RANKS_CHECK(self, comm_mem_free(buf) == GYRE_OK);
    else
        free(buf);
    return 0;
}

static void test_ways(void **state)
{
    enum {
        EAGER = 1 << COMM_SHM_EAGER,
        WINDOW = 1 << COMM_SHM_WINDOW,
        CMA = 1 << COMM_SHM_CMA,
        BULK = 1 << COMM_SHM_BULK
    };
    static const way_t ways[] = {
        {"auto", 1, EAGER | WINDOW, 0}, {"auto", 0, EAGER | CMA, 1}, {"window", 1, EAGER | WINDOW, 2},
        {"window", 0, EAGER | BULK, 0}, {"cma", 1, EAGER | CMA, 0},  {"copy", 1, EAGER | BULK, 0},
        {"copy", 0, EAGER | BULK, 2},
    };

    (void)state;
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        way_t way = ways[i];
        set(SET_SHM_COPY, way.mode);
        assert_int_equal(ranks_fork(2, 60, echo, &way), 0);
        if (i == 0 || i == 1 || i == 5)
            assert_int_equal(ranks_threads(2, 60, echo, &way), 0);
    }
    set(SET_SHM_COPY, "auto");
}

/* An ordinary user whose processes may not look into each other, as in many containers. */
static void become_nobody(int rank)
{
    (void)rank;
    if (getuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0))
        perror("setuid");
    prctl(PR_SET_DUMPABLE, 0);
}

static void test_no_ptrace(void **state)
{
    way_t way = {"auto", 0, 1 << COMM_SHM_EAGER | 1 << COMM_SHM_BULK, 0};

    (void)state;
    ranks_before_join = become_nobody;
    assert_int_equal(ranks_fork(2, 60, echo, &way), 0);
    set(SET_SHM_COPY, "cma"); /* where it can work at all: here it cannot */
    assert_int_equal(ranks_fork(2, 60, echo, &way), 0);
    set(SET_SHM_COPY, "auto");
    ranks_before_join = NULL;
}

/* Ranks that were started with different settings get an error, all of them. */
static void other_transport(int rank)
{
    if (rank == 1 && base_settings_set(SET_TRANSPORT, "ucx", "test") != GYRE_OK)
        exit(9);
}

static int never(ranks_t *self)
{
    (void)self;
    return 0;
}

static void test_settings_differ(void **state)
{
    (void)state;
    ranks_before_join = other_transport;
    assert_int_equal(ranks_fork(3, 20, never, NULL), 3);
    ranks_before_join = NULL;
}

/* The smallest rings: four slots, so every message but the smallest is in fragments that wrap around. */
static void test_tiny_budget(void **state)
{
    way_t way = {"copy", 0, 1 << COMM_SHM_EAGER | 1 << COMM_SHM_BULK, 1};

    (void)state;
    most = getenv("TEST_LONG") ? SIZE_MAX : 65537; /* which goes around often enough */
    set(SET_SHM_COPY, "copy");
    set(SET_SHM_BUDGET, "16K");
    assert_int_equal(ranks_fork(2, 60, echo, &way), 0);
    way.lane = 0;
    set(SET_SHM_BUDGET, "8K");
    assert_int_equal(ranks_fork(2, 60, echo, &way), 0);
    set(SET_SHM_BUDGET, "4M");
    set(SET_SHM_COPY, "auto");
    most = SIZE_MAX;
}

/* ---- order, independence, windows of messages ---------------------------------------------------------- */

enum { FLIGHT = COMM_SENDS_OPEN, FLIGHT_BYTES = 20000 };

/* 64 open window messages on lane 0, received as views and released backwards; meanwhile lane 1 goes its
 * own way. */
static int flight(ranks_t *self)
{
    comm_link_t *link = ranks_link(self, 1 - self->rank, 0);
    comm_msg_t msgs[FLIGHT + 1] = {{0}};
    const void *views[FLIGHT];
    unsigned char *buf = NULL, small[40];

    RANKS_CHECK(self, link != NULL);
    RANKS_CHECK(self, comm_mem_alloc((FLIGHT + 1) * FLIGHT_BYTES, (void **)&buf) == GYRE_OK);
    if (self->rank == 0) {
        for (unsigned k = 0; k <= FLIGHT; k++) {
            ranks_fill(buf + k * FLIGHT_BYTES, FLIGHT_BYTES, k);
            RANKS_CHECK(self, comm_send(link, buf + k * FLIGHT_BYTES, FLIGHT_BYTES, (comm_tag_t){k, 9},
                                        &msgs[k]) == GYRE_IN_PROGRESS);
            RANKS_CHECK(self, comm_send_accepted(&msgs[k]) == (k < FLIGHT)); /* one too many */
        }
        ranks_fill(small, sizeof small, 5);
        RANKS_CHECK(self, ranks_send(self, 1, 1, small, sizeof small, (comm_tag_t){1, 1}) == GYRE_OK);
        RANKS_CHECK(self, ranks_recv(self, 1, 1, small, sizeof small, (comm_tag_t){2, 1}) == GYRE_OK);
        for (unsigned k = 0; k <= FLIGHT; k++) {
            gyre_status_t status;
            do
                status = comm_send(link, buf + k * FLIGHT_BYTES, FLIGHT_BYTES, (comm_tag_t){k, 9}, &msgs[k]);
            while (status == GYRE_IN_PROGRESS);
            RANKS_CHECK(self, status == GYRE_OK);
        }
    } else {
        RANKS_CHECK(self, ranks_recv(self, 0, 1, small, sizeof small, (comm_tag_t){1, 1}) == GYRE_OK);
        RANKS_CHECK(self, ranks_wrong(small, sizeof small, 5) == -1);
        RANKS_CHECK(self, ranks_send(self, 0, 1, small, sizeof small, (comm_tag_t){2, 1}) == GYRE_OK);
        for (unsigned k = 0; k < FLIGHT; k++) {
            gyre_status_t status;
            do /* the first one fetches the window */
                status = comm_recv_view(link, FLIGHT_BYTES, (comm_tag_t){k, 9}, &msgs[k], &views[k]);
            while (status == GYRE_IN_PROGRESS && k == 0);
            RANKS_CHECK(self, status == GYRE_OK);
        }
        for (unsigned k = FLIGHT; k-- > 0;) {
            RANKS_CHECK(self, ranks_wrong(views[k], FLIGHT_BYTES, k) == -1);
            comm_release(link, &msgs[k]);
        }
        RANKS_CHECK(self, ranks_recv(self, 0, 0, buf, FLIGHT_BYTES, (comm_tag_t){FLIGHT, 9}) == GYRE_OK);
        RANKS_CHECK(self, ranks_wrong(buf, FLIGHT_BYTES, FLIGHT) == -1);
    }
    ranks_barrier(self);
    return comm_mem_free(buf) != GYRE_OK;
}

static void test_many_in_flight(void **state)
{
    (void)state;
    assert_int_equal(ranks_fork(2, 30, flight, NULL), 0);
    assert_int_equal(ranks_threads(2, 30, flight, NULL), 0);
}

/* Small messages cannot be viewed; a view of nothing yet is not an error. */
static int small_view(ranks_t *self)
{
    comm_link_t *link = ranks_link(self, 1 - self->rank, 0);
    comm_tag_t tag = {3, 3};
    comm_msg_t msg = {0};
    const void *view;
    uint32_t word = 77;
    gyre_status_t status;

    RANKS_CHECK(self, link != NULL);
    if (self->rank == 0) {
        ranks_barrier(self);
        return ranks_send(self, 1, 0, &word, sizeof word, tag) != GYRE_OK;
    }
    RANKS_CHECK(self, comm_recv_view(link, sizeof word, tag, &msg, &view) == GYRE_IN_PROGRESS);
    ranks_barrier(self);
    do
        status = comm_recv_view(link, sizeof word, tag, &msg, &view);
    while (status == GYRE_IN_PROGRESS);
    RANKS_CHECK(self, status == GYRE_ERR_UNSUPPORTED && msg.phase == 0);
    word = 0;
    RANKS_CHECK(self, comm_recv(link, &word, sizeof word, tag, &msg) == GYRE_OK && word == 77);
    return 0;
}

static void test_small_view(void **state)
{
    (void)state;
    assert_int_equal(ranks_fork(2, 30, small_view, NULL), 0);
}

/* ---- disagreement -------------------------------------------------------------------------------------- */

static int disagree(ranks_t *self)
{
    comm_call_t call = {.seq = 41u + (uint32_t)self->rank, .op = 3, .count = 1000, .root = -1}, theirs = {0};
    comm_link_t *link = ranks_link(self, 1 - self->rank, 0);
    unsigned char buf[100] = {0};

    RANKS_CHECK(self, link != NULL);
    RANKS_CHECK(self, comm_group_peer_call(self->group, 1 - self->rank, &theirs) == 0);
    ranks_barrier(self);
    comm_board_post(comm_group_board(self->group), &call);
    if (self->rank == 0) {
        RANKS_CHECK(self, ranks_send(self, 1, 0, buf, 100, (comm_tag_t){41, 1}) == GYRE_OK);
        return 0;
    }
    RANKS_CHECK(self, ranks_recv(self, 0, 0, buf, 100, (comm_tag_t){42, 1}) == GYRE_ERR_MISMATCH);
    RANKS_CHECK(self, ranks_recv(self, 0, 0, buf, 100, (comm_tag_t){41, 2}) == GYRE_ERR_MISMATCH);
    RANKS_CHECK(self, ranks_recv(self, 0, 0, buf, 99, (comm_tag_t){41, 1}) == GYRE_ERR_MISMATCH);
    RANKS_CHECK(self, comm_link_their_call(link, &theirs) == 1);
    RANKS_CHECK(self, theirs.seq == 41 && theirs.op == 3 && theirs.count == 1000 && theirs.root == -1);
    RANKS_CHECK(self, comm_group_peer_call(self->group, 0, &theirs) == 1 && theirs.seq == 41);
    /* Nothing was consumed. */
    RANKS_CHECK(self, ranks_recv(self, 0, 0, buf, 100, (comm_tag_t){41, 1}) == GYRE_OK);
    return 0;
}

static void test_mismatch(void **state)
{
    (void)state;
    assert_int_equal(ranks_fork(2, 30, disagree, NULL), 0);
    set(SET_TRANSPORT, "ucx");
    assert_int_equal(ranks_fork(2, 30, disagree, NULL), 0);
    set(SET_TRANSPORT, "auto");
}

/* ---- waiting ------------------------------------------------------------------------------------------- */

/* A peer that is 200 ms late, five times: the waiting rank sleeps most of it. */
static int late(ranks_t *self)
{
    return ranks_late(self, 5, 200, 0.1, 0); /* it spins for 10 ms */
}

static int past_deadline(ranks_t *self)
{
    comm_wait_t wait;
    gyre_status_t status;
    base_time_t start = base_now();

    if (self->rank == 1)
        return 0;
    comm_wait_begin(&wait, self->group, base_deadline(0.1));
    do {
        status = comm_wait_idle(&wait);
        if (status == GYRE_OK)
            status = comm_wait_rest(&wait);
    } while (status == GYRE_OK);
    RANKS_CHECK(self, status == GYRE_ERR_TIMEOUT && wait.sleeps > 0);
    RANKS_CHECK(self, base_now() - start > 90000000 && base_now() - start < 2000000000);
    comm_wait_end(&wait);
    RANKS_CHECK(self, wait.waited > 80000000);
    return 0;
}

static void test_waiting(void **state)
{
    (void)state;
    assert_int_equal(ranks_fork(2, 30, late, NULL), 0);
    assert_int_equal(ranks_fork(2, 30, past_deadline, NULL), 0);
}

/* A token around a ring of ranks that outnumber the cores. */
static int token(ranks_t *self)
{
    int next = (self->rank + 1) % self->n, last = (self->rank + self->n - 1) % self->n;
    uint64_t value = 0;

    for (uint32_t k = 1; k <= 200; k++) {
        comm_tag_t tag = {k, 0};
        if (self->rank == 0)
            RANKS_CHECK(self, ranks_send(self, next, 0, &value, sizeof value, tag) == GYRE_OK);
        RANKS_CHECK(self, ranks_recv(self, last, 0, &value, sizeof value, tag) == GYRE_OK);
        value++;
        if (self->rank != 0)
            RANKS_CHECK(self, ranks_send(self, next, 0, &value, sizeof value, tag) == GYRE_OK);
    }
    RANKS_CHECK(self, self->rank != 0 || value / 200 == (uint64_t)self->n);
    return 0;
}

static int crowd(ranks_t *self)
{
    RANKS_CHECK(self,
                comm_group_oversubscribed(self->group) == (self->n > (int)sysconf(_SC_NPROCESSORS_ONLN)));
    return token(self);
}

static void test_oversubscribed(void **state)
{
    (void)state;
    assert_int_equal(ranks_fork(8, 20, crowd, NULL), 0);
}

/* ---- self ---------------------------------------------------------------------------------------------- */

static int to_itself(ranks_t *self)
{
    comm_link_t *link = ranks_link(self, self->rank, 1);
    unsigned char from[1000], to[1000];
    comm_msg_t out[2] = {{0}}, in[2] = {{0}};
    const void *view = NULL;
    comm_group_stats_t stats;

    RANKS_CHECK(self, link && strcmp(comm_link_transport(link), "self") == 0);
    ranks_fill(from, sizeof from, 1);
    RANKS_CHECK(self, comm_recv(link, to, sizeof to, (comm_tag_t){1, 0}, &in[0]) == GYRE_IN_PROGRESS);
    RANKS_CHECK(self, comm_send(link, from, sizeof from, (comm_tag_t){1, 0}, &out[0]) == GYRE_IN_PROGRESS);
    RANKS_CHECK(self, comm_send(link, from, 500, (comm_tag_t){2, 0}, &out[1]) == GYRE_IN_PROGRESS);
    RANKS_CHECK(self, comm_recv(link, to, sizeof to, (comm_tag_t){7, 0}, &in[0]) == GYRE_ERR_MISMATCH);
    RANKS_CHECK(self, comm_recv(link, to, sizeof to, (comm_tag_t){1, 0}, &in[0]) == GYRE_OK);
    RANKS_CHECK(self, ranks_wrong(to, sizeof to, 1) == -1);
    RANKS_CHECK(self, comm_send(link, from, sizeof from, (comm_tag_t){1, 0}, &out[0]) == GYRE_OK);
    RANKS_CHECK(self,
                comm_recv_view(link, 500, (comm_tag_t){2, 0}, &in[1], &view) == GYRE_OK && view == from);
    RANKS_CHECK(self, comm_send(link, from, 500, (comm_tag_t){2, 0}, &out[1]) == GYRE_IN_PROGRESS);
    comm_release(link, &in[1]);
    RANKS_CHECK(self, comm_send(link, from, 500, (comm_tag_t){2, 0}, &out[1]) == GYRE_OK);
    comm_group_stats(self->group, &stats);
    RANKS_CHECK(self, stats.connections == 1);
    RANKS_CHECK(self, self->n > 1 || (stats.shared_bytes == 0 && stats.private_bytes < 65536));
    return 0;
}

static void test_self(void **state)
{
    (void)state;
    assert_int_equal(ranks_fork(1, 30, to_itself, NULL), 0);
    assert_int_equal(ranks_fork(2, 30, to_itself, NULL), 0);
}

/* ---- budget, hosts ------------------------------------------------------------------------------------- */

static int budget(ranks_t *self)
{
    comm_group_stats_t stats;
    uint64_t value = 0;

    comm_group_stats(self->group, &stats);
    RANKS_CHECK(self, stats.shared_bytes > 0 &&
                          stats.shared_bytes <=
                              comm_segment_budget((size_t)base_setting_int(SET_SHM_BUDGET), self->n));
    for (int peer = 0; peer < self->n; peer++) { /* every pair can talk */
        if (peer == self->rank)
            continue;
        RANKS_CHECK(self, ranks_send(self, peer, 2, &self->rank, 4, (comm_tag_t){1, 1}) == GYRE_OK);
    }
    for (int peer = 0; peer < self->n; peer++) {
        if (peer == self->rank)
            continue;
        RANKS_CHECK(self, ranks_recv(self, peer, 2, &value, 4, (comm_tag_t){1, 1}) == GYRE_OK);
        RANKS_CHECK(self, (int)value == peer);
    }
    return 0;
}

static void test_budget(void **state)
{
    (void)state;
    assert_int_equal(ranks_fork(3, 30, budget, NULL), 0);
    set(SET_SHM_BUDGET, "256K");
    assert_int_equal(ranks_fork(12, 30, budget, NULL), 0);
    set(SET_SHM_BUDGET, "4M");
}

static int two_hosts(ranks_t *self)
{
    int hosts = 0;
    const int *host_of = comm_group_hosts(self->group, &hosts);
    comm_link_t *link = NULL;

    RANKS_CHECK(self, hosts == (self->n + 1) / 2);
    for (int r = 0; r < self->n; r++)
        RANKS_CHECK(self, host_of[r] == r / 2);
    if (strcmp(base_setting_string(SET_TRANSPORT), "shm") == 0) {
        RANKS_CHECK(self,
                    comm_group_link(self->group, self->rank < 2 ? 2 : 0, 0, &link) == GYRE_ERR_UNSUPPORTED);
        RANKS_CHECK(self, strstr(gyre_last_error(), "GYRE_TRANSPORT") != NULL);
        return 0;
    }
    for (int peer = 0; peer < self->n; peer++) {
        const char *expected = peer == self->rank ? "self" : peer / 2 == self->rank / 2 ? "shm" : "ucx";
        link = ranks_link(self, peer, 0);
        RANKS_CHECK(self, link && strcmp(comm_link_transport(link), expected) == 0);
    }
    return token(self);
}

static void test_hosts(void **state)
{
    (void)state;
    set(SET_HOST_RANKS, "2");
    assert_int_equal(ranks_fork(3, 30, two_hosts, NULL), 0);
    assert_int_equal(ranks_fork(4, 30, two_hosts, NULL), 0);
    set(SET_TRANSPORT, "shm");
    assert_int_equal(ranks_fork(3, 30, two_hosts, NULL), 0);
    set(SET_TRANSPORT, "auto");
    set(SET_HOST_RANKS, "0");
}

/* ---- a ring that has gone around very often ------------------------------------------------------------ */

static void test_ring_takes(void **state)
{
    enum { SLOTS = 8, LAPS = 6 };
    static struct {
        comm_ring_ctl_t ctl;
        ring_slot_t slots[SLOTS];
    } ring;
    uint64_t start = (0xffffffffull - LAPS / 2) * SLOTS; /* the turn starts anew in the middle */
    ring_tx_t tx;
    ring_rx_t rx;

    (void)state;
    for (uint64_t lap = 0xfffffff0ull; lap < 0x100000010ull; lap++) {
        assert_true(ring_turn(lap * SLOTS, SLOTS) - 1 < 0xffffffffull); /* 1 .. 2^32 - 1 */
        assert_true(ring_turn(lap * SLOTS, SLOTS) != ring_turn((lap + 1) * SLOTS, SLOTS));
    }
    ring_tx_open(&tx, &ring.ctl, SLOTS);
    ring_rx_open(&rx, &ring.ctl, SLOTS);
    tx.head = tx.consumed = rx.tail = rx.told = start;
    for (unsigned i = 0; i < LAPS * SLOTS; i++) {
        ring_kind_t kind;
        size_t bytes = 0;
        unsigned got[128] = {0}; /* as much as any packet of this ring holds */

        assert_null(ring_peek(&rx, &kind, &bytes)); /* a slot that was never written is not a packet */
        assert_true(ring_room(&tx, 1));
        ring_put(&tx, PACKET_EAGER, (comm_tag_t){i, 0}, &i, sizeof i);
        assert_non_null(ring_peek(&rx, &kind, &bytes));
        assert_int_equal(bytes, sizeof i);
        ring_get(&rx, got, bytes);
        assert_int_equal(got[0], i);
        ring_advance(&rx, bytes, 0);
    }
}

/* A receiver takes the lines of payload that it has read, all of them and no others, around the end of
 * the ring, too; later laps find their packets. Without being asked it writes nothing. */
static void lines_are_taken_if_asked(void **state)
{
    enum { SLOTS = 64, PACKETS = 500, MOST = RING_BODY + (SLOTS / 4 - 1) * COMM_LINE };
    static struct {
        comm_ring_ctl_t ctl;
        ring_slot_t slots[SLOTS];
    } ring;

    (void)state;
    for (int turns = 0; turns < 2; turns++) {
        ring_tx_t tx;
        ring_rx_t rx;
        memset(&ring, 0, sizeof ring);
        ring_tx_open(&tx, &ring.ctl, SLOTS);
        ring_rx_open(&rx, &ring.ctl, SLOTS);
        rx.takes = turns;
        for (unsigned i = 0; i < PACKETS; i++) {
            unsigned char sent[MOST], got[MOST];
            const size_t length = i * 37 % (MOST + 1);
            const uint64_t first = rx.tail + 1, need = ring_slots_for(length);
            ring_kind_t kind;
            size_t bytes = 0;

            memset(sent, (int)(i % 255 + 1), sizeof sent);
            memset(got, 0, sizeof got);
            assert_true(ring_room(&tx, need));
            ring_put(&tx, PACKET_EAGER, (comm_tag_t){i, 0}, sent, length);
            assert_non_null(ring_peek(&rx, &kind, &bytes));
            assert_int_equal(bytes, length);
            ring_get(&rx, got, bytes);
            assert_memory_equal(got, sent, length);
            for (uint64_t k = 0; k + 1 < need; k++) {
                const ring_slot_t *slot = &ring.slots[(first + k) % SLOTS];
                assert_int_equal(atomic_load(&slot->word) == 0, turns);
            }
            assert_int_equal(atomic_load(&ring.slots[(first - 1) % SLOTS].word) & 0xffffff, length);
            ring_advance(&rx, bytes, 0);
        }
    }
}

/* ---- groups that are not the whole job ----------------------------------------------------------------- */

static gyre_status_t all_gather_in_half(void *user, const void *mine, size_t bytes, void *all)
{
    ranks_t *self = user;
    unsigned char everyone[4 * RANKS_GATHER_BYTES];
    gyre_status_t status = ranks_all_gather(self, mine, bytes, everyone);

    for (int i = 0; i < 2; i++)
        memcpy((unsigned char *)all + (size_t)i * bytes, everyone + (size_t)(2 * i + self->rank % 2) * bytes,
               bytes);
    return status;
}

/* Ranks 0 and 2, and 1 and 3, each pair in reverse order, in addition to the group of all. */
static int halves(ranks_t *self)
{
    int members[2] = {self->rank % 2, self->rank % 2 + 2}, place = self->rank / 2;
    comm_group_t *half = NULL, *whole = self->group;
    uint64_t value = 10u + (uint64_t)self->rank;

    for (int round = 0; round < 3; round++) {
        RANKS_CHECK(self, comm_group_create(&self->world, 1000u + (uint64_t)(round * 2 + self->rank % 2),
                                            members, 2, place, all_gather_in_half, self, base_deadline(10),
                                            &half) == GYRE_OK);
        RANKS_CHECK(self, comm_group_world_rank(half, 1 - place) == members[1 - place]);
        self->group = half;
        RANKS_CHECK(self, ranks_send(self, 1 - place, 0, &value, 8, (comm_tag_t){1, 2}) == GYRE_OK);
        RANKS_CHECK(self, ranks_recv(self, 1 - place, 0, &value, 8, (comm_tag_t){1, 2}) == GYRE_OK);
        RANKS_CHECK(self, value == 10u + (uint64_t)(round % 2 == 0 ? members[1 - place] : self->rank));
        self->group = whole;
        RANKS_CHECK(self, ranks_send(self, self->rank ^ 1, 0, &self->rank, 4, (comm_tag_t){1, 2}) == GYRE_OK);
        int other = -1;
        RANKS_CHECK(self, ranks_recv(self, self->rank ^ 1, 0, &other, 4, (comm_tag_t){1, 2}) == GYRE_OK);
        RANKS_CHECK(self, other == (self->rank ^ 1));
        ranks_barrier(self);
        comm_group_destroy(half);
    }
    return 0;
}

static void test_halves(void **state)
{
    (void)state;
    assert_int_equal(ranks_fork(4, 20, halves, NULL), 0);
    assert_int_equal(ranks_threads(4, 20, halves, NULL), 0);
    set(SET_TRANSPORT, "ucx");
    assert_int_equal(ranks_fork(4, 20, halves, NULL), 0);
    assert_int_equal(ranks_threads(4, 20, halves, NULL), 0);
    set(SET_TRANSPORT, "auto");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ways),
        cmocka_unit_test(test_tiny_budget),
        cmocka_unit_test(test_many_in_flight),
        cmocka_unit_test(test_small_view),
        cmocka_unit_test(test_mismatch),
        cmocka_unit_test(test_waiting),
        cmocka_unit_test(test_oversubscribed),
        cmocka_unit_test(test_self),
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_no_ptrace),
        cmocka_unit_test(test_settings_differ),
        cmocka_unit_test(test_ring_takes),
        cmocka_unit_test(test_halves),
        cmocka_unit_test(lines_are_taken_if_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
