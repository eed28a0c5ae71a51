/* SPDX-License-Identifier: Apache-2.0 */
/* tests/comm/ucx/test_offers.c: a communicator over UCX ends while messages that it offered by rendezvous are
 * not taken. */
/* takes: 7 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "comm/ucx/ucx.h"
#include "tests/comm/ucx/pair.h"

enum { HUGE = 8 << 20 }; /* goes by rendezvous */

/* Shared by the ranks: which rank has what the other offers. */
static _Atomic int *has_offer;

static int fork_with_offers(double seconds, ranks_body_t body, void *arg)
{
    int failed;

    has_offer = mmap(NULL, 2 * sizeof *has_offer, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(has_offer != MAP_FAILED);
    failed = fork_over_tcp(seconds, body, arg);
    munmap((void *)has_offer, 2 * sizeof *has_offer);
    return failed;
}

/* The ranks connect, until those that are `offered` (a bit each) a message have it in their inbox. */
static int until_offered(ranks_t *self, int offered)
{
    int there = 0;

    for (base_time_t end = base_deadline(20); there != offered && base_now() < end;) {
        comm_group_progress(self->group);
        ucx_lock();
        ucx_inbox_t *inbox = ucx_inbox(ucx_of(self->group), 1 - self->rank, 0);
        atomic_store(&has_offer[self->rank], inbox && inbox->head);
        ucx_unlock();
        there = atomic_load(&has_offer[0]) + 2 * atomic_load(&has_offer[1]);
    }
    RANKS_CHECK(self, there == offered);
    ranks_barrier(self);
    return 0;
}

/* Offers the other rank, which drives the group meanwhile, a message that goes by rendezvous. */
static int offer(ranks_t *self, const unsigned char *buf)
{
    comm_link_t *link = ranks_link(self, 1 - self->rank, 0);
    comm_msg_t msg = {0};

    RANKS_CHECK(self, link);
    for (base_time_t end = base_deadline(20); msg.phase == 0 && base_now() < end;)
        RANKS_CHECK(self, comm_send(link, buf, HUGE, (comm_tag_t){1, 0}, &msg) == GYRE_IN_PROGRESS);
    RANKS_CHECK(self, msg.phase != 0);
    return 0;
}

/* A rank that only receives gives up in the middle of a rendezvous: its buffer is its own again, and no
 * warning is logged. */
static int unreceived(ranks_t *self)
{
    comm_link_t *link = ranks_link(self, 1 - self->rank, 0);
    unsigned char *buf = calloc(1, HUGE);
    comm_msg_t msg = {0};
    char said[4096] = "";
    int log = memfd_create("log", 0);

    RANKS_CHECK(self, link && buf && log >= 0);
    if (self->rank == 0)
        RANKS_CHECK(self, offer(self, buf) == 0);
    RANKS_CHECK(self, until_offered(self, 2) == 0);
    if (self->rank == 1) {
        for (base_time_t end = base_deadline(0.3); base_now() < end;)
            RANKS_CHECK(self, comm_recv(link, buf, HUGE, (comm_tag_t){1, 0}, &msg) == GYRE_IN_PROGRESS);
        RANKS_CHECK(self, msg.phase != 0); /* it has begun */
        comm_watch_abort(self->world.watch, comm_group_id(self->group), GYRE_ERR_ABORTED, "enough");
        fflush(stderr);
        RANKS_CHECK(self, dup2(log, STDERR_FILENO) >= 0);
        comm_group_destroy(self->group);
        RANKS_CHECK(self, pread(log, said, sizeof said - 1, 0) >= 0 && !strstr(said, "still uses"));
    }
    ranks_barrier(self);
    if (self->rank == 0)
        comm_group_destroy(self->group);
    free(buf);
    fflush(NULL);
    _exit(0);
}

static void test_unreceived(void **state)
{
    (void)state;
    assert_int_equal(fork_with_offers(30, unreceived, NULL), 0);
}

/* A second communicator of both ranks fails while rendezvous that will not be taken are under way in it, and
 * is destroyed. The first one notices nothing, whether the other rank destroys its own at the same time
 * (mutual) or is busy with the first. */
static gyre_status_t another_group(ranks_t *self, uint64_t id, comm_group_t **out)
{
    static const int world_ranks[] = {0, 1};

    return comm_group_create(&self->world, id, world_ranks, 2, self->rank, ranks_all_gather, self,
                             base_deadline(20), out);
}

static int beside(ranks_t *self)
{
    const int mutual = *(int *)self->arg;
    unsigned char *buf = calloc(1, HUGE);
    comm_group_t *first = self->group, *second;

    RANKS_CHECK(self, buf && another_group(self, 78, &second) == GYRE_OK);
    self->group = second;
    if (mutual || self->rank == 0)
        RANKS_CHECK(self, offer(self, buf) == 0);
    RANKS_CHECK(self, until_offered(self, mutual ? 3 : 2) == 0);
    if (self->rank == 0)
        comm_watch_abort(self->world.watch, comm_group_id(second), GYRE_ERR_ABORTED, "enough");
    for (base_time_t end = base_deadline(20); !comm_group_failed(second) && base_now() < end;)
        usleep(1000);
    if (mutual || self->rank == 0)
        comm_group_destroy(second); /* for as long as it takes: there is no timeout_s */
    free(buf);
    self->group = first;
    RANKS_CHECK(self, echo(self) == 0);
    if (!mutual && self->rank == 1)
        comm_group_destroy(second);
    return 0;
}

static void test_beside(void **state)
{
    (void)state;
    for (int mutual = 0; mutual < 2; mutual++)
        assert_int_equal(fork_with_offers(40, beside, &mutual), 0);
}

/* The other rank makes no call for so long that the connection is cut: the first communicator has failed,
 * too, but a new one has a new connection. `taker` has never sent anything over the old one. */
static int anew(ranks_t *self)
{
    const int taker = *(int *)self->arg;
    unsigned char *buf = calloc(1, HUGE);
    comm_group_t *first = self->group, *second, *third;
    gyre_status_t status = GYRE_OK;

    self->world.timeout_s = 2; /* whose quarter is less than the second that it takes at least */
    RANKS_CHECK(self, buf && another_group(self, 78, &second) == GYRE_OK);
    self->group = second;
    if (self->rank != taker)
        RANKS_CHECK(self, offer(self, buf) == 0);
    RANKS_CHECK(self, until_offered(self, 1 << taker) == 0);
    comm_watch_abort(self->world.watch, comm_group_id(second), GYRE_ERR_ABORTED, "enough");
    if (self->rank != taker)
        comm_group_destroy(second);
    ranks_barrier(self);
    if (self->rank == taker)
        comm_group_destroy(second);
    self->group = first;
    if (self->rank != taker)
        status = ranks_send(self, taker, 0, buf, 8, (comm_tag_t){2, 0});
    RANKS_CHECK(self, self->rank == taker || status == GYRE_ERR_TRANSPORT);
    RANKS_CHECK(self, another_group(self, 79, &third) == GYRE_OK);
    self->group = third;
    RANKS_CHECK(self, echo(self) == 0);
    self->group = first;
    comm_group_destroy(third);
    free(buf);
    return 0;
}

static void test_anew(void **state)
{
    (void)state;
    for (int taker = 0; taker < 2; taker++)
        assert_int_equal(fork_with_offers(40, anew, &taker), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unreceived),
        cmocka_unit_test(test_beside),
        cmocka_unit_test(test_anew),
    };
    if (choose_ucx() != 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
