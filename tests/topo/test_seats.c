/* SPDX-License-Identifier: Apache-2.0 */
/* one thread: TSan has nothing to see */
/* tests/topo/test_seats.c: the order of ranks by their seats: a ring over it enters each place once, whatever
 * numbers the ranks have, and an order by rank that does so stays. */

#include "base/log.h"
#include "fixture.h"
#include "topo/drawing/drawing.h"

enum { MOST = 200 };

static unsigned random_below(unsigned *state, unsigned n)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % n;
}

static void expect_permutation(int n, const int *order)
{
    char seen[MOST] = {0};
    assert_int_equal(order[0], 0);
    for (int i = 0; i < n; i++) {
        assert_in_range(order[i], 0, n - 1);
        assert_int_equal(seen[order[i]]++, 0);
    }
}

/* 1: the seats differ at a level, or above it. Levels: four of switches, host, package, NUMA node, cache. */
static int apart(const topo_seat_t *a, const topo_seat_t *b, int level)
{
    for (int i = 0; i < 4 && i <= level; i++)
        if (a->fabric >> (16 * (3 - i)) != b->fabric >> (16 * (3 - i)))
            return 1;
    return (level > 3 && a->host != b->host) || (level > 4 && a->package != b->package) ||
           (level > 5 && a->numa != b->numa) || (level > 6 && a->cache != b->cache);
}

static int places(int n, const topo_seat_t *seats, int level)
{
    int count = 0;
    for (int r = 0, known; r < n; r++, count += !known)
        for (int s = known = 0; s < r; s++)
            known |= !apart(&seats[s], &seats[r], level);
    return count;
}

static int crossings(int n, const topo_seat_t *seats, const int *order, int level)
{
    int count = 0;
    for (int i = 0; i < n; i++)
        count += apart(&seats[order[i]], &seats[order[(i + 1) % n]], level);
    return count;
}

static void expect_best(int n, const topo_seat_t *seats, const int *order)
{
    expect_permutation(n, order);
    for (int level = 0; level < 8; level++) {
        const int count = places(n, seats, level);
        assert_int_equal(crossings(n, seats, order, level), count > 1 ? count : 0);
    }
}

/* Every n, seats by chance on a machine room of 3 x 2 switches, 8 hosts, ... */
static void every_place_once(void **state)
{
    (void)state;
    topo_seat_t seats[MOST];
    int order[MOST], again[MOST];
    unsigned seed = 5;
    for (int n = 1; n <= MOST; n += n < 65 ? 1 : 27)
        for (int round = 0; round < 4; round++) {
            for (int r = 0; r < n; r++) {
                const int host = (int)random_below(&seed, round ? 8 : 2), at = (int)random_below(&seed, 8);
                seats[r] = (topo_seat_t){.host = host, .package = at / 4, .numa = at / 2, .cache = at};
                if (round > 1)
                    seats[r].fabric = (uint64_t)(host % 3 + 1) << 16 | (uint64_t)(host % 6 + 1);
                if (round == 3 && random_below(&seed, 4) == 0) /* not bound */
                    seats[r].package = seats[r].numa = seats[r].cache = -1;
            }
            assert_int_equal(topo_seat_order(n, seats, order), GYRE_OK);
            expect_best(n, seats, order);
            assert_int_equal(topo_seat_order(n, seats, again), GYRE_OK);
            assert_memory_equal(order, again, (size_t)n * sizeof *order);
        }
}

/* Two hosts whose ranks are dealt out in turn: the ring leaves a host twice, and not six times. */
static void round_robin(void **state)
{
    (void)state;
    static const int best[6] = {0, 2, 4, 1, 3, 5}, by_rank[6] = {0, 1, 2, 3, 4, 5};
    topo_seat_t seats[6] = {{0}};
    int order[6];
    for (int r = 0; r < 6; r++)
        seats[r].host = r % 2;
    assert_int_equal(topo_seat_order(6, seats, order), GYRE_OK);
    assert_memory_equal(order, best, sizeof best);
    assert_int_equal(crossings(6, seats, by_rank, 4), 6);
    assert_int_equal(crossings(6, seats, order, 4), 2);
}

/* Places that follow each other already stay, however they are numbered. */
static void good_orders_stay(void **state)
{
    (void)state;
    topo_seat_t seats[24];
    int order[24];
    for (int r = 0; r < 24; r++)
        seats[r] =
            (topo_seat_t){.host = 7 - r / 8, .package = 1 - r / 4 % 2, .numa = -1, .cache = 64 - r / 2};
    assert_int_equal(topo_seat_order(24, seats, order), GYRE_OK);
    for (int i = 0; i < 24; i++)
        assert_int_equal(order[i], i);
}

/* On the recorded machines, with ranks dealt out in every way: as short a trip as nearest neighbour and 2-opt
 * find over the distances of the cores. */
static void as_short_as_any(void **state)
{
    (void)state;
    static const char *const files[] = {"numa-64.xml",  "gpu-8.xml",      "one-core.xml",
                                        "epyc-128.xml", "rapids-112.xml", "grace-144.xml"};
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        topo_t *topo = load_fixture(files[f]);
        topo_summary_t summary;
        topo_summary(topo, &summary);
        const int n = summary.cores;
        for (int step = 1; step < n || step == 1; step += n > 100 ? 15 : 1) {
            int cores[MOST], order[MOST], other[MOST], length = 0, shortest = 0;
            topo_seat_t seats[MOST];
            for (int r = 0, at = 0; r < n; r++, at += step) {
                cores[r] = at % n; /* several ranks on a core where step divides n */
                const topo_core_t *core = topo_core(topo, cores[r]);
                seats[r] = (topo_seat_t){.package = core->package, .numa = core->numa, .cache = core->l3};
            }
            assert_int_equal(topo_seat_order(n, seats, order), GYRE_OK);
            assert_int_equal(topo_ring_of_cores(topo, n, cores, other), GYRE_OK);
            for (int i = 0; i < n; i++) {
                /* what is nearer than a cache is left to the order of ranks */
                const int a = topo_core_distance(topo, cores[order[i]], cores[order[(i + 1) % n]]);
                const int b = topo_core_distance(topo, cores[other[i]], cores[other[(i + 1) % n]]);
                length += a > TOPO_SAME_L3 ? a : 0;
                shortest += b > TOPO_SAME_L3 ? b : 0;
            }
            assert_true(length <= shortest);
        }
        topo_free(topo);
    }
}

static void fabrics(void **state)
{
    (void)state;
    const uint64_t leaf = topo_fabric("leaf7"), both = topo_fabric("spine1.leaf7");
    assert_int_equal(topo_fabric(""), 0);
    assert_true(leaf > 0 && leaf <= 0xffff);
    assert_int_equal(both & 0xffff, leaf);
    assert_int_equal(both >> 16, topo_fabric("spine1"));
    assert_int_not_equal(topo_fabric("leaf8"), leaf);
    assert_int_equal(topo_fabric("a.b.spine1.leaf7") & 0xffffffff, both);
    assert_int_equal(topo_fabric("z.a.b.spine1.leaf7"), topo_fabric("a.b.spine1.leaf7"));
}

static void wrong(void **state)
{
    (void)state;
    topo_seat_t seat = {0};
    int order;
    assert_int_equal(topo_seat_order(0, &seat, &order), GYRE_ERR_INVALID);
    assert_int_equal(topo_seat_order(1, NULL, &order), GYRE_ERR_INVALID);
    assert_int_equal(topo_seat_order(1, &seat, NULL), GYRE_ERR_INVALID);
}

int main(void)
{
    base_log_set_level(BASE_LOG_NONE);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_place_once), cmocka_unit_test(round_robin), cmocka_unit_test(good_orders_stay),
        cmocka_unit_test(as_short_as_any),  cmocka_unit_test(fabrics),     cmocka_unit_test(wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
