/* SPDX-License-Identifier: Apache-2.0 */
/* one thread: TSan has nothing to see */
/* tests/comm/verbs/test_planes.c: which ranks try which, and which rails are used after that. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "comm/verbs/planes.h"

enum { MOST = 200, PARTNERS = 64 };

/* Partners are others, once each, and see it the same way; what a rank does grows with log n. */
static void test_partners(void **state)
{
    (void)state;
    for (int n = 1; n <= MOST; n++) {
        assert_true(verbs_partners_most(n) <= (n <= VERBS_TRY_ALL ? n - 1 : 16));
        for (int r = 0; r < n; r++) {
            int partners[PARTNERS], count = verbs_partners(n, r, partners);
            assert_true(count <= verbs_partners_most(n));
            assert_true(n > VERBS_TRY_ALL || count == n - 1);
            for (int k = 0; k < count; k++) {
                assert_true(partners[k] >= 0 && partners[k] < n && partners[k] != r);
                assert_int_equal(verbs_partner_number(n, r, partners[k]), k); /* hence no other before it */
                assert_true(verbs_partner_number(n, partners[k], r) >= 0);
            }
            assert_int_equal(verbs_partner_number(n, r, r), -1);
        }
    }
    assert_int_equal(verbs_partners_most(1 << 20), 40);
    int partners[PARTNERS];
    assert_true(verbs_partners(INT32_MAX, INT32_MAX - 1, partners) <= 62);
}

/* A fabric: which subnet each rail of each rank is in; equal ones reach each other, negative ones nothing. */
static struct {
    int n, rails[MOST], host_of[MOST], subnet[MOST][VERBS_RAILS];
} fabric;
static uint16_t heard[MOST * PARTNERS];
static uint8_t rail_of[VERBS_RAILS * MOST];
static verbs_gap_t gap;

static void build(int n, int rails)
{
    fabric.n = n;
    for (int r = 0; r < n; r++) {
        fabric.rails[r] = rails;
        fabric.host_of[r] = r;
        for (int k = 0; k < VERBS_RAILS; k++)
            fabric.subnet[r][k] = k;
    }
}

static int reach(int a, int i, int b, int j)
{
    return fabric.subnet[a][i] >= 0 && fabric.subnet[a][i] == fabric.subnet[b][j];
}

static int planes(void)
{
    int n = fabric.n, partners[PARTNERS], found;
    verbs_heard_t said = {n, fabric.rails, fabric.host_of, heard};

    memset(heard, 0, sizeof heard);
    for (int r = 0; r < n; r++) {
        int count = verbs_partners(n, r, partners);
        for (int k = 0; k < count; k++) {
            for (int i = 0; i < fabric.rails[partners[k]]; i++) {
                for (int j = 0; j < fabric.rails[r]; j++)
                    heard[r * verbs_partners_most(n) + k] |=
                        reach(partners[k], i, r, j) ? verbs_heard_bit(i, j) : 0;
            }
        }
    }
    found = verbs_planes(&said, rail_of, &gap);
    /* the result is consistent: a rail is in one plane only, and partners reach each other */
    for (int k = 0; k < found; k++) {
        for (int r = 0; r < n; r++) {
            int count = verbs_partners(n, r, partners);
            assert_true(rail_of[k * n + r] < fabric.rails[r]);
            for (int other = 0; other < k; other++)
                assert_int_not_equal(rail_of[other * n + r], rail_of[k * n + r]);
            for (int p = 0; p < count; p++)
                assert_true(fabric.host_of[partners[p]] == fabric.host_of[r] ||
                            reach(r, rail_of[k * n + r], partners[p], rail_of[k * n + partners[p]]));
        }
    }
    return found;
}

static void all_as_numbered(int found)
{
    for (int k = 0; k < found; k++) {
        for (int r = 0; r < fabric.n; r++)
            assert_int_equal(rail_of[k * fabric.n + r], k);
    }
}

/* Rails in subnets of their own, or all in one: every rank's rail k is plane k. */
static void test_sound(void **state)
{
    (void)state;
    for (int n = 2; n <= 70; n++) {
        for (int rails = 1; rails <= VERBS_RAILS; rails++) {
            build(n, rails);
            assert_int_equal(planes(), rails);
            all_as_numbered(rails);
            memset(fabric.subnet, 0, sizeof fabric.subnet);
            assert_int_equal(planes(), rails);
            all_as_numbered(rails);
            assert_int_equal(gap.a, -1);
        }
    }
}

/* One rail of one rank reaches no other: the other rail is used, and the culprit is one of the pair that is
 * named. */
static void test_dead_rail(void **state)
{
    (void)state;
    for (int n = 2; n <= 40; n++) {
        for (int r = 0; r < n; r++) {
            for (int dead = 0; dead < 2; dead++) {
                build(n, 2);
                fabric.subnet[r][dead] = -1;
                assert_int_equal(planes(), 1);
                for (int p = 0; p < n; p++)
                    assert_int_equal(rail_of[p], 1 - dead);
                assert_true(gap.a == r || gap.b == r);
                assert_int_equal(gap.rail_a, dead);
                assert_int_equal(gap.rail_b, dead);
                assert_true(!gap.a_hears && !gap.b_hears);
            }
        }
    }
}

/* A port of one host is down, so that its only rail is the others' second. */
static void test_shifted(void **state)
{
    (void)state;
    for (int n = 2; n <= 40; n++) {
        for (int r = 0; r < n; r++) {
            build(n, 2);
            fabric.rails[r] = 1;
            fabric.subnet[r][0] = 1;
            assert_int_equal(planes(), 1);
            for (int p = 0; p < n; p++)
                assert_int_equal(rail_of[p], p == r ? 0 : 1);
        }
    }
}

/* Islands have no plane, unless ranks of one host are all that is not joined; and one direction is not
 * enough. */
static void test_islands(void **state)
{
    (void)state;
    for (int n = 2; n <= 70; n++) {
        for (int cut = 1; cut < n; cut++) {
            build(n, 2);
            for (int r = 0; r < cut; r++) {
                for (int k = 0; k < VERBS_RAILS; k++)
                    fabric.subnet[r][k] += 10;
            }
            assert_int_equal(planes(), 0);
            assert_true(gap.a < cut && gap.b >= cut);
            memset(fabric.host_of, 0, sizeof fabric.host_of);
            assert_int_equal(planes(), 2);
        }
    }
    build(2, 1);
    uint16_t one_way[2] = {verbs_heard_bit(0, 0), 0};
    verbs_heard_t said = {2, fabric.rails, fabric.host_of, one_way};
    assert_int_equal(verbs_planes(&said, rail_of, &gap), 0);
    assert_true(gap.a == 0 && gap.b == 1 && gap.a_hears && !gap.b_hears);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_partners), cmocka_unit_test(test_sound),
                                       cmocka_unit_test(test_dead_rail), cmocka_unit_test(test_shifted),
                                       cmocka_unit_test(test_islands)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
