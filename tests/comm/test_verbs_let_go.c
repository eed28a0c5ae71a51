/* tests/comm/test_verbs_let_go.c: after comm_group_let_go no adapter touches a buffer of what was under way, on either side.
 *
 * Needs a device: skipped where there is none, run by `make check-verbs` where there is. Two forked ranks; a message of BIG
 * bytes goes by rendezvous, so that rank 0's adapter reads it from rank 1's memory, which takes Soft-RoCE half a second. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <cmocka.h>

#include "../support/ranks.h"
#include "base/settings.h"
#include "comm/link.h"
#include "comm/mem.h"

enum { BIG = 48 << 20, MESSAGE = 1, LATER = 0x5a };

/* Shared by both ranks. */
static struct {
    atomic_int began; /* rank 0 has seen the first bytes */
    atomic_int over;  /* the side that let go has written to its buffer */
} * seen;

static void nap(double seconds)
{
    struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};

    nanosleep(&t, NULL);
}

/* Goes on sending or receiving until `flag` is set, at most 20 s. 0: the message ended before. */
static int go_on(ranks_t *self, unsigned char *buf, comm_msg_t *msg, const volatile unsigned char *first,
                 atomic_int *flag)
{
    comm_link_t *link = ranks_link(self, 1 - self->rank, 0);
    gyre_status_t status = GYRE_IN_PROGRESS;

    for (base_time_t end = base_deadline(20); status == GYRE_IN_PROGRESS && base_now() < end;) {
        status = self->rank == 1 ? comm_send(link, buf, BIG, (comm_tag_t){7, 7}, msg)
                                 : comm_recv(link, buf, BIG, (comm_tag_t){7, 7}, msg);
        comm_group_progress(self->group);
        if (first && *first == MESSAGE)
            atomic_store(&seen->began, 1);
        if (atomic_load(flag))
            return status == GYRE_IN_PROGRESS;
    }
    return 0;
}

static long first_not(const unsigned char *buf, unsigned char value)
{
    for (long i = 0; i < BIG; i++) {
        if (buf[i] != value)
            return i;
    }
    return -1;
}

/* Rank 0 gives up in the middle of the transfer and uses its buffer for something else. */
static int receiver(ranks_t *self)
{
    comm_msg_t msg = {0};
    void *at;

    RANKS_CHECK(self, comm_mem_alloc(BIG, &at) == GYRE_OK);
    unsigned char *buf = at;
    if (self->rank == 1) {
        memset(buf, MESSAGE, BIG);
        ranks_barrier(self);
        RANKS_CHECK(self, go_on(self, buf, &msg, NULL, &seen->over));
        ranks_barrier(self);
    } else {
        memset(buf, 0, BIG);
        ranks_barrier(self);
        RANKS_CHECK(self, go_on(self, buf, &msg, buf, &seen->began));
        RANKS_CHECK(self, first_not(buf, MESSAGE) >= 0); /* not all of it is there */
        comm_group_let_go(self->group);
        memset(buf, LATER, BIG);
        nap(1.5);
        atomic_store(&seen->over, 1);
        ranks_barrier(self);
        RANKS_CHECK(self, first_not(buf, LATER) == -1);
    }
    comm_group_let_go(self->group);
    comm_group_let_go(self->group); /* once more does nothing */
    RANKS_CHECK(self, comm_mem_free(at) == GYRE_OK);
    return 0;
}

/* Rank 1 gives up in the middle of the transfer and writes to its buffer; rank 0, who knows nothing of it, goes on. */
static int sender(ranks_t *self)
{
    comm_msg_t msg = {0};
    void *at;

    RANKS_CHECK(self, comm_mem_alloc(BIG, &at) == GYRE_OK);
    unsigned char *buf = at;
    if (self->rank == 1) {
        memset(buf, MESSAGE, BIG);
        ranks_barrier(self);
        RANKS_CHECK(self, go_on(self, buf, &msg, NULL, &seen->began));
        comm_group_let_go(self->group);
        memset(buf, LATER, BIG);
        atomic_store(&seen->over, 1);
        ranks_barrier(self);
        RANKS_CHECK(self, comm_mem_free(at) == GYRE_OK);
        return 0;
    }
    memset(buf, 0, BIG);
    ranks_barrier(self);
    RANKS_CHECK(self, go_on(self, buf, &msg, buf, &seen->over));
    for (base_time_t end = base_deadline(1.5); base_now() < end;) {
        if (comm_recv(ranks_link(self, 1, 0), buf, BIG, (comm_tag_t){7, 7}, &msg) != GYRE_IN_PROGRESS)
            break;
        comm_group_progress(self->group);
    }
    RANKS_CHECK(self, !memchr(buf, LATER, BIG));
    ranks_barrier(self);
    comm_group_let_go(self->group);
    RANKS_CHECK(self, comm_mem_free(at) == GYRE_OK);
    return 0;
}

/* Another group of the same ranks does not notice. */
static int other_group(ranks_t *self)
{
    const int both[2] = {0, 1};
    comm_group_t *second = NULL, *first = self->group;
    unsigned char *buf = malloc(RANKS_ECHO_BYTES);

    RANKS_CHECK(self, buf && comm_group_create(&self->world, 78, both, 2, self->rank, ranks_exchange, self,
                                               base_deadline(20), &second) == GYRE_OK);
    RANKS_CHECK(self, ranks_echo(self, 0, buf) == 0);
    ranks_barrier(self);
    comm_group_let_go(first);
    self->group = second;
    RANKS_CHECK(self, ranks_echo(self, 0, buf) == 0);
    ranks_barrier(self);
    self->group = first;
    comm_group_destroy(second);
    free(buf);
    return 0;
}

static void with(ranks_body_t body)
{
    if (!comm_verbs_there())
        skip();
    atomic_store(&seen->began, 0);
    atomic_store(&seen->over, 0);
    assert_int_equal(ranks_fork(2, 90, body, NULL), 0);
}

static void test_receiver(void **state)
{
    (void)state;
    with(receiver);
}

static void test_sender(void **state)
{
    (void)state;
    with(sender);
}

static void test_other_group(void **state)
{
    (void)state;
    with(other_group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_receiver), cmocka_unit_test(test_sender),
                                       cmocka_unit_test(test_other_group)};

    seen = mmap(NULL, sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (seen == MAP_FAILED || base_settings_set(SET_TRANSPORT, "verbs", "test") != GYRE_OK)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
