/* SPDX-License-Identifier: Apache-2.0 */
/* tests/comm/verbs/test_kept.c: what a world remembers of the last try of its rails is one value, also while
 * threads make communicators of it at once. ThreadSanitizer sees a missing lock at once; without it the value
 * lies across two lines of the cache, so that halves of two values would show. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "comm/verbs/verbs.h"

enum { ROUNDS = 2000000, LINE = 64 };

static comm_world_t *world;
static _Atomic int done;

static void keep(uint64_t name)
{
    uint8_t rail[VERBS_RAILS];

    memset(rail, (int)name, sizeof rail);
    verbs_try_keep(world, name, (int)name, rail);
}

static void *write_values(void *arg)
{
    for (unsigned i = 0; i < ROUNDS; i++) {
        if (i % 16 == 15)
            verbs_try_forget(world);
        else
            keep(i % 2 ? 7 : 9);
    }
    done = 1;
    return arg;
}

static void one_value(void **state)
{
    pthread_t thread;
    uint64_t name, wrong = 0;
    uint8_t rail[VERBS_RAILS];
    int rails;

    (void)state;
    assert_int_equal(verbs_try_known(world, &name, &rails, rail), 0);
    keep(9);
    assert_int_equal(verbs_try_known(world, &name, &rails, rail), 1);
    assert_true(name == 9 && rails == 9 && rail[VERBS_RAILS - 1] == 9);
    assert_int_equal(pthread_create(&thread, NULL, write_values, NULL), 0);
    while (!done) {
        verbs_try_known(world, &name, &rails, rail);
        wrong += (uint64_t)rails != name;
        for (int k = 0; k < VERBS_RAILS; k++)
            wrong += rail[k] != name;
    }
    pthread_join(thread, NULL);
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_value)};
    const size_t at = offsetof(comm_world_t, kept) +
                      (size_t)comm_transport_number(&comm_verbs) * sizeof world->kept[0] + sizeof(uint64_t);
    unsigned char *memory = aligned_alloc(LINE, 8 * LINE);

    if (!memory || sizeof *world > 7 * LINE)
        return 1;
    memset(memory, 0, 8 * LINE);
    world = (comm_world_t *)(void *)(memory + (LINE - at % LINE) % LINE);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(memory);
    return failed;
}
