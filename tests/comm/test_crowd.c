/* SPDX-License-Identifier: Apache-2.0 */
/* tests/comm/test_crowd.c: many ranks on one host: how their shared memory is laid out, and messages through
 * short rings and buffers of their senders (comm/memory/pool.h), which a small budget gives few ranks,
 * too. */
/* takes: 6 */
#include <setjmp.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "../support/ranks.h"
#include "base/settings/settings.h"
#include "comm/link.h"
#include "comm/shm/link.h"

static void set(base_setting_t id, const char *value)
{
    assert_int_equal(base_settings_set(id, value, "test"), GYRE_OK);
}

/* ---- layout -------------------------------------------------------------------------------------------- */

enum { BUDGET = 4 << 20, MANY = 512 };

/* No two parts of a segment overlap, and the last one ends with it. */
static void check_places(const comm_segment_t *seg)
{
    const int n = seg->locals;
    const size_t ring = sizeof(comm_ring_ctl_t);
    const unsigned char *end = seg->base + seg->bytes;

    assert_true((unsigned char *)(comm_segment_board(seg, n - 1) + 1) + n <= comm_segment_outbox(seg, 0));
    if (seg->outbox.lines > 0)
        assert_true(comm_segment_outbox(seg, 1) - comm_segment_outbox(seg, 0) >=
                    (ptrdiff_t)comm_outbox_bytes(&seg->outbox));
    assert_true(comm_segment_outbox(seg, n) <= comm_segment_buffer(seg, 0, 0));
    assert_true(comm_segment_buffer(seg, 1, 0) == comm_segment_buffer(seg, 0, seg->buffers));
    assert_true(comm_segment_buffer(seg, n, 0) <= (unsigned char *)comm_segment_ring(seg, 0, 1, 0));
    assert_int_equal((uintptr_t)comm_segment_buffer(seg, 1, 0) % COMM_POOL_BYTES, 0);
    for (int lane = 0; lane < COMM_LANES; lane++) {
        const size_t bytes = ring + (size_t)seg->slots[lane] * COMM_LINE;
        const unsigned char *last = (unsigned char *)comm_segment_ring(seg, n - 1, n - 2, lane) + bytes;
        assert_true(last <=
                    (lane + 1 < COMM_LANES ? (unsigned char *)comm_segment_ring(seg, 0, 1, lane + 1) : end));
        if (n > 2)
            assert_true((unsigned char *)comm_segment_ring(seg, 0, 2, lane) ==
                        (unsigned char *)comm_segment_ring(seg, 0, 1, lane) + bytes);
    }
}

/* What a rank gets does not depend on how many there are: posts of 16 KiB, eager messages of 4 KiB. */
static void layout(void **state)
{
    (void)state;
    for (int n = 2; n <= MANY; n += n < 64 ? 1 : n / 16) {
        comm_segment_t seg, again;
        int fd;
        assert_int_equal(comm_segment_create(BUDGET, n, 77, NULL, &seg, &fd), GYRE_OK);
        assert_int_equal(comm_segment_open(fd, n, 77, &again), GYRE_OK);
        assert_int_equal(again.bytes, seg.bytes);
        check_places(&seg);
        check_places(&again);
        assert_true(seg.bytes <= comm_segment_budget(BUDGET, n));
        if (n > COMM_BUDGET_RANKS)
            assert_true(seg.bytes / (size_t)n <= BUDGET / COMM_BUDGET_RANKS);
        if (n <= COMM_OUTBOX_RANKS)
            assert_int_equal(comm_outbox_most(&seg.outbox), 16 << 10);
        if (n <= 192)
            assert_true(seg.buffers == COMM_POOL_BUFFERS || comm_segment_ring_holds(&seg, 0) > 8000);
        assert_true(seg.buffers > 0 || n < 64);
        comm_segment_close(&again);
        comm_segment_close(&seg);
        close(fd);
    }
}

/* The smallest budgets still give each pair rings, and what does not fit is left out. */
static void small_budgets(void **state)
{
    static const size_t budgets[] = {1, 4096, 8192, 16384, 65536, 262144, 1048576};

    (void)state;
    for (size_t b = 0; b < sizeof budgets / sizeof budgets[0]; b++)
        for (int n = 2; n <= 64; n += n < 8 ? 1 : 7) {
            comm_segment_t seg;
            int fd;
            assert_int_equal(comm_segment_create(budgets[b], n, 77, NULL, &seg, &fd), GYRE_OK);
            check_places(&seg);
            comm_segment_close(&seg);
            close(fd);
        }
    assert_int_equal(comm_segment_budget(SIZE_MAX, 64) / 64, SIZE_MAX / COMM_BUDGET_RANKS / 64);
    assert_int_equal(comm_segment_budget(BUDGET, 2), BUDGET);
    assert_int_equal(comm_segment_budget(BUDGET, 192), (size_t)BUDGET * 24);
}

/* ---- messages ------------------------------------------------------------------------------------------ */

enum { FEW = 4, ROUNDS = 100 };

static size_t size_of_round(int round)
{
    static const size_t sizes[] = {4096, 1,    113,  4095, 48,   49,  112, 0,
                                   1000, 4096, 4097, 2048, 4096, 240, 241};
    return sizes[(size_t)round % (sizeof sizes / sizeof sizes[0])];
}

/* Everyone sends everyone messages of all sizes, each rank in its own order; each arrives as it was sent. */
static int everyone(ranks_t *self)
{
    unsigned char *out = malloc(5000), *in = malloc(5000);

    RANKS_CHECK(self, out && in && self->group->seg.buffers > 0);
    for (int i = 0; i < ROUNDS; i++) {
        const size_t bytes = size_of_round(i);
        const comm_tag_t tag = {(uint32_t)i, 3};
        comm_msg_t sent[FEW] = {{0}}, got = {0};
        ranks_fill(out, bytes, (unsigned)(i + self->rank));
        for (int step = 1, lane = i % COMM_LANES; step < self->n; step++) {
            const int to = (self->rank + step) % self->n, from = (self->rank + self->n - step) % self->n;
            comm_link_t *there = ranks_link(self, to, lane), *here = ranks_link(self, from, lane);
            gyre_status_t out_st = GYRE_IN_PROGRESS, in_st = GYRE_IN_PROGRESS;
            RANKS_CHECK(self, there && here);
            memset(&got, 0, sizeof got);
            while (out_st == GYRE_IN_PROGRESS || in_st == GYRE_IN_PROGRESS) {
                if (out_st == GYRE_IN_PROGRESS)
                    out_st = comm_send(there, out, bytes, tag, &sent[step]);
                if (in_st == GYRE_IN_PROGRESS)
                    in_st = comm_recv(here, in, bytes, tag, &got);
                sched_yield();
            }
            RANKS_CHECK(self, out_st == GYRE_OK && in_st == GYRE_OK);
            RANKS_CHECK(self, ranks_wrong(in, bytes, (unsigned)(i + from)) == -1);
        }
    }
    RANKS_CHECK(self, self->group->pool.used > 0);
    free(out);
    free(in);
    return 0;
}

static void messages(void **state)
{
    static const char *const modes[] = {"auto", "copy", "window", "cma"};

    (void)state;
    set(SET_SHM_BUDGET, "256K");
    for (size_t m = 0; m < sizeof modes / sizeof modes[0]; m++) {
        set(SET_SHM_COPY, modes[m]);
        assert_int_equal(ranks_fork(FEW, 30, everyone, NULL), 0);
    }
    assert_int_equal(ranks_threads(FEW, 30, everyone, NULL), 0);
    set(SET_SHM_COPY, "auto");
    set(SET_SHM_BUDGET, "4M");
}

enum { LATE_BYTES = 4096, LATE_MESSAGES = 40 };

/* Rank 1 receives only once rank 2 reports that all messages of rank 0 have come. So rank 0, whose buffers
 * wait for rank 1, must be able to send to rank 2 all the same. */
static int late(ranks_t *self)
{
    static unsigned char out[LATE_MESSAGES][LATE_BYTES], in[LATE_BYTES];
    comm_msg_t msgs[LATE_MESSAGES] = {{0}};
    unsigned char word = 0;
    int started = 0, finished[LATE_MESSAGES] = {0};

    RANKS_CHECK(self, self->group->seg.buffers > 0 && self->group->seg.buffers < LATE_MESSAGES);
    if (self->rank > 2)
        return 0;
    if (self->rank == 0) {
        comm_link_t *link = ranks_link(self, 1, 0);
        RANKS_CHECK(self, link);
        for (int i = 0; i < LATE_MESSAGES; i++)
            ranks_fill(out[i], LATE_BYTES, (unsigned)i);
        while (started < LATE_MESSAGES) { /* as many as are accepted */
            const gyre_status_t st =
                comm_send(link, out[started], LATE_BYTES, (comm_tag_t){(uint32_t)started, 1}, &msgs[started]);
            RANKS_CHECK(self, st == GYRE_OK || st == GYRE_IN_PROGRESS);
            finished[started] = st == GYRE_OK;
            if (!comm_send_accepted(&msgs[started]))
                break;
            started++;
        }
        RANKS_CHECK(self, started >= (int)self->group->seg.buffers && comm_pool_find(&self->group->pool) < 0);
        for (int i = 0; i < LATE_MESSAGES; i++)
            RANKS_CHECK(self,
                        ranks_send(self, 2, 0, out[i], LATE_BYTES, (comm_tag_t){(uint32_t)i, 2}) == GYRE_OK);
        for (int i = 0; i < LATE_MESSAGES; i++)
            while (!finished[i])
                finished[i] =
                    comm_send(link, out[i], LATE_BYTES, (comm_tag_t){(uint32_t)i, 1}, &msgs[i]) == GYRE_OK;
        return 0;
    }
    if (self->rank == 1)
        RANKS_CHECK(self, ranks_recv(self, 2, 0, &word, 1, (comm_tag_t){0, 3}) == GYRE_OK);
    for (int i = 0; i < LATE_MESSAGES; i++) {
        const comm_tag_t tag = {(uint32_t)i, (uint32_t)self->rank};
        RANKS_CHECK(self, ranks_recv(self, 0, 0, in, LATE_BYTES, tag) == GYRE_OK);
        RANKS_CHECK(self, ranks_wrong(in, LATE_BYTES, (unsigned)i) == -1);
    }
    if (self->rank == 2)
        RANKS_CHECK(self, ranks_send(self, 1, 0, &word, 1, (comm_tag_t){0, 3}) == GYRE_OK);
    return 0;
}

static void late_receiver(void **state)
{
    (void)state;
    set(SET_SHM_BUDGET, "256K");
    assert_int_equal(ranks_fork(FEW, 30, late, NULL), 0);
    set(SET_SHM_COPY, "copy");
    assert_int_equal(ranks_fork(FEW, 30, late, NULL), 0);
    set(SET_SHM_COPY, "auto");
    set(SET_SHM_BUDGET, "4M");
}

/* ---- deaths -------------------------------------------------------------------------------------------- */

/* Rank 0 sends to all in turn and is killed anywhere in that. The others get what it sent, byte for byte, and
 * then its death. */
static int killed(ranks_t *self)
{
    static unsigned char buf[4096];
    uint32_t i = 0;
    gyre_status_t st = GYRE_OK;

    RANKS_CHECK(self, ranks_link(self, self->rank == 0 ? 1 : 0, 0) != NULL);
    ranks_barrier(self);
    if (self->rank == 0) {
        for (;; i++) {
            if (i == 2 && fork() == 0) { /* each rank has two messages by then */
                usleep(20000 + (useconds_t)(base_now() % 5000));
                kill(getppid(), SIGKILL);
                _exit(0);
            }
            ranks_fill(buf, sizeof buf, i);
            for (int to = 1; to < self->n; to++)
                RANKS_CHECK(self, ranks_send(self, to, 0, buf, sizeof buf, (comm_tag_t){i, 1}) == GYRE_OK);
        }
    }
    for (; st == GYRE_OK; i++) {
        st = ranks_recv(self, 0, 0, buf, sizeof buf, (comm_tag_t){i, 1});
        RANKS_CHECK(self, st != GYRE_OK || ranks_wrong(buf, sizeof buf, i) == -1);
    }
    RANKS_CHECK(self, st == GYRE_ERR_PEER_DEAD && i > 1);
    comm_group_destroy(self->group);
    fflush(NULL);
    _exit(0);
}

static void deaths(void **state)
{
    (void)state;
    set(SET_SHM_BUDGET, "256K");
    for (int times = 0; times < 5; times++)
        assert_int_equal(ranks_fork(FEW, 20, killed, NULL), 1); /* the killed one */
    set(SET_SHM_BUDGET, "4M");
}

/* ---- who makes memory of what -------------------------------------------------------------------------- */

/* 1: pages of the outbox of `local` are in memory, after its first and before its last. */
static int in_memory(const comm_segment_t *seg, int local)
{
    enum { PAGE = 4096, PAGES = 16 };
    unsigned char resident[PAGES];
    unsigned char *at = comm_segment_outbox(seg, local) + PAGE;
    int count = 0;

    at -= (uintptr_t)at % PAGE;
    if (mincore(at, (size_t)PAGE * PAGES, resident) != 0)
        return -1;
    for (int i = 0; i < PAGES; i++)
        count += resident[i] & 1;
    return count > 0;
}

/* A rank maps its own outbox, and leaves those of others for them to map: on their NUMA nodes. */
static int own_outbox(ranks_t *self)
{
    const comm_segment_t *seg = &self->group->seg;

    ranks_barrier(self);
    if (self->rank == 0) {
        RANKS_CHECK(self, in_memory(seg, 0) == 0 && in_memory(seg, 1) == 0);
        comm_group_outbox_populate(self->group, 4096, 0);
        RANKS_CHECK(self, in_memory(seg, 1) == 0);
        comm_segment_outbox(seg, 0)[8192] = 1; /* where the kernel does not know the advice */
        RANKS_CHECK(self, in_memory(seg, 0) == 1);
    }
    ranks_barrier(self);
    return 0;
}

static void owners(void **state)
{
    (void)state;
    assert_int_equal(ranks_fork(2, 20, own_outbox, NULL), 0);
}

/* ---- a node -------------------------------------------------------------------------------------------- */

enum { NODE = 64 };

/* Messages of 4 KiB between all of 64 ranks: each is eager, so all can be sent before any is received. */
static int node(ranks_t *self)
{
    static unsigned char out[4096], in[4096];
    const int step = 1 + self->n / 3;

    ranks_fill(out, sizeof out, (unsigned)self->rank);
    RANKS_CHECK(self, comm_group_outbox(self->group) != NULL);
    for (int i = 1; i < self->n; i += step)
        RANKS_CHECK(self, ranks_send(self, (self->rank + i) % self->n, 2, out, sizeof out,
                                     (comm_tag_t){1, 1}) == GYRE_OK);
    for (int i = 1; i < self->n; i += step) {
        const int from = (self->rank + self->n - i) % self->n;
        RANKS_CHECK(self, ranks_recv(self, from, 2, in, sizeof in, (comm_tag_t){1, 1}) == GYRE_OK);
        RANKS_CHECK(self, ranks_wrong(in, sizeof in, (unsigned)from) == -1);
        RANKS_CHECK(self,
                    comm_shm_sent(ranks_link(self, (self->rank + i) % self->n, 2), COMM_SHM_EAGER) == 1);
    }
    return 0;
}

static void whole_node(void **state)
{
    (void)state;
    assert_int_equal(ranks_fork(NODE, 60, node, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layout),        cmocka_unit_test(small_budgets), cmocka_unit_test(messages),
        cmocka_unit_test(late_receiver), cmocka_unit_test(deaths),        cmocka_unit_test(owners),
        cmocka_unit_test(whole_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
