/* SPDX-License-Identifier: Apache-2.0 */
/* tests/topo/test_ring.c: ring orders visit every rank once, and far links are as few as they can be. */
#include <stdlib.h>

#include "base/log.h"
#include "fixture.h"
#include "topo/drawing/drawing.h"
#include "topo/orders/order.h"

static void expect_permutation(int n, const int *order)
{
    char *seen = calloc((size_t)n, 1);
    assert_non_null(seen);
    assert_int_equal(order[0], 0);
    for (int i = 0; i < n; i++) {
        assert_in_range(order[i], 0, n - 1);
        assert_int_equal(seen[order[i]], 0);
        seen[order[i]] = 1;
    }
    free(seen);
}

static void numa_ring(void **state)
{
    (void)state;
    topo_t *topo = load_fixture("numa-64.xml");
    int cores[64], order[64];
    for (int ranks = 2; ranks <= 64; ranks++) {
        int packages = 0, caches = 0, used = 0;
        char used_l3[8] = {0};
        assert_int_equal(topo_bind_plan(topo, TOPO_BIND_CORE, ranks, cores), GYRE_OK);
        assert_int_equal(topo_ring_of_cores(topo, ranks, cores, order), GYRE_OK);
        expect_permutation(ranks, order);
        for (int i = 0; i < ranks; i++) {
            const topo_core_t *a = topo_core(topo, cores[order[i]]);
            const topo_core_t *b = topo_core(topo, cores[order[(i + 1) % ranks]]);
            packages += a->package != b->package;
            caches += a->l3 != b->l3;
            used += !used_l3[a->l3];
            used_l3[a->l3] = 1;
        }
        assert_int_equal(packages, 2);
        assert_int_equal(caches, used); /* each cache is entered once */
    }
    topo_free(topo);
}

/* Ranks whose numbers say nothing about where they are: the ring must find out. */
static void scattered_ring(void **state)
{
    (void)state;
    topo_t *topo = load_fixture("numa-64.xml");
    int cores[64], order[64], packages = 0, caches = 0;
    for (int rank = 0; rank < 64; rank++)
        cores[rank] = rank * 37 % 64;
    assert_int_equal(topo_ring_of_cores(topo, 64, cores, order), GYRE_OK);
    expect_permutation(64, order);
    for (int i = 0; i < 64; i++) {
        const topo_core_t *a = topo_core(topo, cores[order[i]]),
                          *b = topo_core(topo, cores[order[(i + 1) % 64]]);
        packages += a->package != b->package;
        caches += a->l3 != b->l3;
    }
    assert_int_equal(packages, 2);
    assert_int_equal(caches, 8);
    topo_free(topo);
}

static int trip_length(int n, const unsigned char *near, const int *order)
{
    int sum = 0;
    for (int i = 0; i < n; i++)
        sum += near[order[i] * n + order[(i + 1) % n]];
    return sum;
}

/* Distances without any order: nearest neighbour alone leaves much, and no 2-opt swap may be left that
 * helps. */
static void local_optimum(void **state)
{
    (void)state;
    enum { N = 21 };
    unsigned char near[N * N];
    int order[N];
    unsigned seed = 7;
    for (int round = 0; round < 20; round++) {
        for (int a = 0; a < N; a++)
            for (int b = a; b < N; b++) {
                seed = seed * 1664525u + 1013904223u;
                near[a * N + b] = near[b * N + a] = (unsigned char)(a == b ? 0 : 1 + (seed >> 16) % 100);
            }
        assert_int_equal(topo_ring_order(N, near, order), GYRE_OK);
        expect_permutation(N, order);
        int length = trip_length(N, near, order);
        for (int i = 1; i < N; i++)
            for (int j = i + 1; j < N; j++) {
                int other[N];
                for (int k = 0; k < N; k++)
                    other[k] = k >= i && k <= j ? order[i + j - k] : order[k];
                assert_true(trip_length(N, near, other) >= length);
            }
    }
}

static void small_and_wrong(void **state)
{
    (void)state;
    unsigned char near[9] = {0, 1, 1, 1, 0, 1, 1, 1, 0};
    int order[3] = {-1, -1, -1};
    for (int n = 1; n <= 3; n++) {
        assert_int_equal(topo_ring_order(n, near, order), GYRE_OK);
        expect_permutation(n, order);
    }
    assert_int_equal(topo_ring_order(0, near, order), GYRE_ERR_INVALID);
    assert_int_equal(topo_ring_order(3, NULL, order), GYRE_ERR_INVALID);
    assert_int_equal(topo_ring_order(3, near, NULL), GYRE_ERR_INVALID);
}

static void unbound_ring(void **state)
{
    (void)state;
    topo_t *topo = load_fixture("one-core.xml");
    int cores[5], order[5];
    assert_int_equal(topo_bind_plan(topo, TOPO_BIND_CORE, 5, cores), GYRE_OK);
    assert_int_equal(topo_ring_of_cores(topo, 5, cores, order), GYRE_OK);
    for (int i = 0; i < 5; i++)
        assert_int_equal(order[i], i); /* nothing is nearer than anything else */
    topo_free(topo);
}

int main(void)
{
    base_log_set_level(BASE_LOG_NONE);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numa_ring),       cmocka_unit_test(scattered_ring), cmocka_unit_test(local_optimum),
        cmocka_unit_test(small_and_wrong), cmocka_unit_test(unbound_ring),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
