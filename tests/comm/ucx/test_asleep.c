/* SPDX-License-Identifier: Apache-2.0 */
/* tests/comm/ucx/test_asleep.c: the threads of a process share UCX's worker. One that sleeps hears of a
 * message that another one has taken for it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/settings/settings.h"
#include "comm/link.h"
#include "tests/support/ranks.h"

enum { PATIENCE_MS = 20000, ROUNDS = 5 };

static _Atomic int woken;

/* Up to the point where it would call poll(2). */
static int fall_asleep(ranks_t *self, comm_wait_t *wait)
{
    comm_wait_begin(wait, self->group, BASE_TIME_NEVER);
    do {
        RANKS_CHECK(self, comm_wait_idle(wait) == GYRE_OK);
        if (wait->rest != COMM_REST_SLEEP)
            RANKS_CHECK(self, comm_wait_rest(wait) == GYRE_OK);
    } while (wait->rest != COMM_REST_SLEEP);
    return 0;
}

static int sleeper(ranks_t *self, uint32_t round)
{
    unsigned char byte = 0;
    comm_wait_t wait;

    RANKS_CHECK(self, fall_asleep(self, &wait) == 0);
    ranks_barrier(self);
    struct pollfd *bell = &wait.polls[wait.npolls - 1];
    RANKS_CHECK(self, bell->fd == self->group->bell_fd && poll(bell, 1, PATIENCE_MS) == 1);
    comm_bell_drain(bell->fd);
    comm_wait_end(&wait);
    atomic_store(&woken, (int)round);
    RANKS_CHECK(self, ranks_recv(self, 1, 0, &byte, 1, (comm_tag_t){round, 0}) == GYRE_OK && byte == round);
    return 0;
}

/* Sends, and takes what comes for both. */
static int sender(ranks_t *self, uint32_t round)
{
    unsigned char byte = (unsigned char)round;
    const base_time_t until = base_now() + PATIENCE_MS * (base_time_t)1000000;

    ranks_barrier(self);
    RANKS_CHECK(self, ranks_send(self, 0, 0, &byte, 1, (comm_tag_t){round, 0}) == GYRE_OK);
    while (atomic_load(&woken) != (int)round && base_now() < until)
        comm_group_progress(self->group);
    return 0;
}

static int asleep(ranks_t *self)
{
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        RANKS_CHECK(self, (self->rank == 0 ? sleeper : sender)(self, round) == 0);
        ranks_barrier(self);
    }
    return 0;
}

static void test_asleep(void **state)
{
    (void)state;
    assert_int_equal(ranks_threads(2, 100, asleep, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_asleep)};

    if (base_settings_set(SET_TRANSPORT, "ucx", "test") != GYRE_OK ||
        base_settings_set(SET_SPIN, "1", "test") != GYRE_OK)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
