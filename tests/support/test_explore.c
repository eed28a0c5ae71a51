/* SPDX-License-Identifier: Apache-2.0 */
/* tests/support/test_explore.c: the explorer finds what goes wrong in only some interleavings, whatever the
 * order of the threads, and nothing where nothing can. */
/* one thread: TSan has nothing to see */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/explore.h"

static struct {
    uint32_t word, seen[2];
} shared;

static void reset(void)
{
    memset(&shared, 0, sizeof shared);
}

static void sleeps(void)
{
    explore_sleep(&shared.word, 0);
}

static void looks_and_sleeps(void)
{
    if (explore_load(&shared.word) == 0)
        explore_sleep(&shared.word, 0);
}

static void sleeps_until_it_changes(void)
{
    while (explore_load(&shared.word) == 0)
        explore_sleep(&shared.word, 0);
}

static void wakes_first(void)
{
    explore_wake(&shared.word);
    explore_store(&shared.word, 1);
}

static void wakes_in_the_buffer(void) /* its store may become visible after the wake-up */
{
    explore_store(&shared.word, 1);
    explore_wake(&shared.word);
}

static void wakes_last(void)
{
    explore_exchange(&shared.word, 1);
    explore_wake(&shared.word);
}

static void sees(int me)
{
    explore_store(&shared.seen[me], 1);
    if (explore_load(&shared.seen[1 - me]) == 0)
        explore_add(&shared.word, 1);
}

static void sees_0(void)
{
    sees(0);
}

static void sees_1(void)
{
    sees(1);
}

static int one_is_first(void)
{
    return shared.word < 2;
}

typedef void (*body_t)(void);

static explore_result_t play(body_t a, body_t b, body_t c)
{
    explore_t what = {.threads = c ? 3 : 2,
                      .body = {a, b, c},
                      .reset = reset,
                      .right = one_is_first,
                      .memory = &shared,
                      .bytes = sizeof shared};
    return explore(&what);
}

static void test_lost_wake_ups_are_found(void **state)
{
    static const body_t sleepers[] = {sleeps, looks_and_sleeps, sleeps_until_it_changes};
    static const body_t wakers[] = {wakes_first, wakes_in_the_buffer};

    (void)state;
    for (int s = 0; s < 3; s++) {
        for (int w = 0; w < 2; w++) {
            if (!play(sleepers[s], wakers[w], NULL).stuck || !play(wakers[w], sleepers[s], NULL).stuck)
                fail_msg("sleeper %d, waker %d: nobody sleeps forever", s, w);
            if (!play(sleepers[s], sleepers[s], wakers[w]).stuck)
                fail_msg("two sleepers %d, waker %d: nobody sleeps forever", s, w);
        }
    }
}

static void test_a_right_wake_up_wakes_all(void **state)
{
    static const body_t sleepers[] = {sleeps, looks_and_sleeps, sleeps_until_it_changes};

    (void)state;
    for (int s = 0; s < 3; s++) {
        assert_false(play(sleepers[s], wakes_last, NULL).stuck);
        assert_false(play(wakes_last, sleepers[s], NULL).stuck);
        assert_false(play(sleepers[s], sleepers[s], wakes_last).stuck);
    }
}

/* Both loads overtake both stores. */
static void test_stores_wait_in_their_buffers(void **state)
{
    (void)state;
    assert_true(play(sees_0, sees_1, NULL).wrong);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lost_wake_ups_are_found),
        cmocka_unit_test(test_a_right_wake_up_wakes_all),
        cmocka_unit_test(test_stores_wait_in_their_buffers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
