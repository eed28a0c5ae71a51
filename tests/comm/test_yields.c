/* SPDX-License-Identifier: Apache-2.0 */
/* tests/comm/test_yields.c: comm/yields.c with a clock of its own: when a rank yields, when it sleeps, and
 * that both together cost at most twice what the cheaper of them costs alone. */
/* one thread: TSan has nothing to see */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "comm/yields.h"

#define US ((base_time_t)1000)
/* As in comm/yields.c. */
#define SLICE (4000 * US)
enum { WORTH_MOST = 256 };

static const int crowds[] = {3, 4, 8, 16, 17, 20, 24, 32, 64}; /* ranks on 2 cores */
enum { CROWDS = sizeof crowds / sizeof crowds[0] };

/* A rank that waits, and what happened to it. */
typedef struct {
    comm_yields_t rule;
    base_time_t now, price;
    int yielded, slept, slices;
} rank_t;

static rank_t begin(int ranks, int cores)
{
    rank_t r = {.now = 1};
    comm_yields_begin(&r.rule, ranks, cores);
    r.price = SLICE / r.rule.worth;
    return r;
}

/* One yield, of `took`. */
static void yield(rank_t *r, base_time_t took)
{
    comm_yields_took(&r->rule, r->now, r->now + took, 0);
    r->now += took;
}

/* A wait that ends with a yield of `took`, or with a sleep. */
static void wait_once(rank_t *r, base_time_t took)
{
    if (comm_yields_pay(&r->rule)) {
        comm_yields_wait(&r->rule);
        yield(r, took);
        r->yielded++;
        r->slices += took >= SLICE;
    } else {
        comm_yields_slept(&r->rule);
        r->now += r->price;
        r->slept++;
    }
}

static void wait_often(rank_t *r, int waits, base_time_t took)
{
    for (int i = 0; i < waits; i++)
        wait_once(r, took);
}

/* Yields that other ranks' turns explain, up to those of 64 ranks on a core that each work for 50 us. */
static void only_ranks(void **state)
{
    (void)state;
    for (int c = 0; c < CROWDS; c++) {
        rank_t r = begin(crowds[c], 2);
        wait_often(&r, 10000, crowds[c] * 25 * US);
        assert_int_equal(r.slept, 0);
    }
    rank_t r = begin(128, 2);
    wait_often(&r, 1000, 64 * 50 * US);
    assert_int_equal(r.slept, 0);
}

/* A slice by accident costs few sleeps, and is then forgotten. */
static void one_slice(void **state)
{
    (void)state;
    for (int c = 0; c < CROWDS; c++) {
        rank_t r = begin(crowds[c], 2);
        base_time_t alone = 0;
        wait_often(&r, 10, 10 * US);
        wait_once(&r, r.rule.turns + SLICE);
        alone = r.now;
        while (!comm_yields_pay(&r.rule))
            wait_once(&r, 0);
        assert_in_range(r.slept, 1, 200 / 8);
        assert_true(r.now - alone <= SLICE / 8 + r.price);
        assert_int_equal(r.rule.doubled, 1);
        wait_often(&r, r.rule.worth + 1, 10 * US);
        assert_int_equal(r.rule.doubled, 0);
    }
}

/* A peer that computes for long costs many slices in one wait. They count as one. */
static void one_long_wait(void **state)
{
    rank_t r = begin(8, 2);

    (void)state;
    comm_yields_wait(&r.rule);
    for (int i = 0; i < 200; i++)
        yield(&r, SLICE);
    assert_int_equal(r.rule.doubled, 1);
    assert_int_equal(r.rule.sleeps, (r.rule.worth + 7) / 8);
}

/* Next to a program that computes, each wait that yields loses a slice. */
static void foreign_program(void **state)
{
    (void)state;
    for (int c = 0; c < CROWDS; c++) {
        rank_t r = begin(crowds[c], 2);
        int longest = r.rule.worth * WORTH_MOST, waits = 20 * longest;
        wait_often(&r, waits, r.rule.turns + SLICE);
        assert_in_range(r.slices, 8, 30);
        assert_true(r.rule.first << r.rule.doubled >= longest);
        longest = r.rule.first << r.rule.doubled;

        /* It ends: at most the sleeps that are left, then yields only. */
        r.slept = r.yielded = 0;
        wait_often(&r, 2 * longest, 10 * US);
        assert_true(r.slept <= longest);
        assert_int_equal(r.slept + r.yielded, 2 * longest);
        assert_int_equal(r.rule.doubled, 0);
    }
}

/* Ranks that copy for long are no program that computes; small operations after a large one lose nothing. */
static void large_operation(void **state)
{
    rank_t r = begin(8, 2);
    const size_t bytes = (size_t)64 << 20;

    (void)state;
    for (int i = 0; i < 100; i++) {
        comm_yields_wait(&r.rule);
        comm_yields_took(&r.rule, r.now, r.now + 20 * SLICE, bytes);
    }
    wait_often(&r, 1000, 10 * US);
    assert_int_equal(r.slept, 0);
    comm_yields_took(&r.rule, r.now, r.now + 2 * SLICE, bytes / 64); /* but so long is no turn of 1 MiB */
    assert_int_equal(comm_yields_pay(&r.rule), 0);
}

/* A slice in every `gap` waits that yield, for all kinds of gaps. ASan sees no more in the other crowds. */
static void cheaper_of_both(void **state)
{
#ifdef __SANITIZE_ADDRESS__
    const int step = CROWDS / 2;
#else
    const int step = 1;
#endif
    (void)state;
    for (int c = 0; c < CROWDS; c += step) {
        int worth = begin(crowds[c], 2).rule.worth, waits = 20 * worth * WORTH_MOST;
        for (int gap = 1; gap <= 20 * worth; gap += 1 + gap / 8) {
            rank_t r = begin(crowds[c], 2);
            base_time_t quick = r.price / 8, slow = r.rule.turns + SLICE, yields = 0, sleeps = 0;
            for (int i = 0; i < waits; i++)
                wait_once(&r, r.yielded % gap == gap - 1 ? slow : quick);
            yields = (waits / gap) * slow + (waits - waits / gap) * quick;
            sleeps = waits * r.price;
            base_time_t least = yields < sleeps ? yields : sleeps;
            if ((double)r.now > 2.2 * (double)least)
                fail_msg("%d ranks, a slice in %d waits: %.0f ms, yields alone %.0f, sleeps alone %.0f",
                         crowds[c], gap, (double)r.now / 1e6, (double)yields / 1e6, (double)sleeps / 1e6);
        }
    }
}

/* Nothing is known of a group before its ranks have been counted. */
static void no_ranks(void **state)
{
    rank_t r = {.now = 1};

    (void)state;
    wait_often(&r, 1000, SLICE);
    assert_int_equal(r.slept, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(only_ranks),      cmocka_unit_test(one_slice),
                                       cmocka_unit_test(one_long_wait),   cmocka_unit_test(foreign_program),
                                       cmocka_unit_test(large_operation), cmocka_unit_test(cheaper_of_both),
                                       cmocka_unit_test(no_ranks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
