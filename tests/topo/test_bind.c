/* SPDX-License-Identifier: Apache-2.0 */
/* tests/topo/test_bind.c: binding plans on every fixture, for every number of ranks. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "fixture.h"

enum { MOST = 200 };

static const char *const fixtures[] = {"numa-64.xml", "gpu-8.xml", "one-core.xml"};

/* Ranks per value of one of a core's numbers differ by one at most. */
static void expect_even(const topo_t *topo, int ranks, const int *cores, int domains, int which)
{
    int count[16] = {0}, low = ranks, high = 0;
    for (int rank = 0; rank < ranks; rank++) {
        const topo_core_t *core = topo_core(topo, cores[rank]);
        count[which == 0 ? core->package : which == 1 ? core->numa : core->l3]++;
    }
    for (int i = 0; i < domains; i++) {
        low = count[i] < low ? count[i] : low;
        high = count[i] > high ? count[i] : high;
    }
    assert_true(high - low <= 1);
}

static void core_plans(void **state)
{
    (void)state;
    for (int f = 0; f < 3; f++) {
        topo_t *topo = load_fixture(fixtures[f]);
        topo_summary_t sum;
        int cores[MOST];
        topo_summary(topo, &sum);
        for (int ranks = 1; ranks <= sum.cores; ranks++) {
            assert_int_equal(topo_bind_plan(topo, TOPO_BIND_CORE, ranks, cores), GYRE_OK);
            /* Increasing: no two ranks share a core, and consecutive ranks are as near as the spreading lets
             * them be. */
            for (int rank = 0; rank < ranks; rank++)
                assert_true(cores[rank] < sum.cores &&
                            (rank == 0 ? cores[0] == 0 : cores[rank] > cores[rank - 1]));
            expect_even(topo, ranks, cores, sum.packages, 0);
            expect_even(topo, ranks, cores, sum.numa_nodes, 1);
            if (sum.l3_count > 0)
                expect_even(topo, ranks, cores, sum.l3_count, 2);
        }
        for (int ranks = sum.cores + 1; ranks < sum.cores + 4; ranks++) {
            assert_int_equal(topo_bind_plan(topo, TOPO_BIND_CORE, ranks, cores), GYRE_OK);
            for (int rank = 0; rank < ranks; rank++)
                assert_int_equal(cores[rank], -1);
        }
        topo_free(topo);
    }
}

static void shared_plans(void **state)
{
    (void)state;
    for (int f = 0; f < 3; f++) {
        topo_t *topo = load_fixture(fixtures[f]);
        topo_summary_t sum;
        int cores[MOST];
        topo_summary(topo, &sum);
        for (int ranks = 1; ranks <= MOST; ranks += 1 + ranks / 9) {
            for (topo_bind_t how = TOPO_BIND_L3; how <= TOPO_BIND_NUMA; how++) {
                assert_int_equal(topo_bind_plan(topo, how, ranks, cores), GYRE_OK);
                for (int rank = 0; rank < ranks; rank++)
                    assert_true(cores[rank] >= (rank > 0 ? cores[rank - 1] : 0) && cores[rank] < sum.cores);
                expect_even(topo, ranks, cores, sum.numa_nodes, 1);
            }
        }
        topo_free(topo);
    }
}

static void none_and_wrong(void **state)
{
    (void)state;
    topo_t *topo = load_fixture("numa-64.xml");
    int cores[2] = {5, 5};
    assert_int_equal(topo_bind_plan(topo, TOPO_BIND_NONE, 2, cores), GYRE_OK);
    assert_int_equal(cores[0], -1);
    assert_int_equal(cores[1], -1);
    assert_int_equal(topo_bind_plan(topo, TOPO_BIND_CORE, 0, cores), GYRE_ERR_INVALID);
    assert_int_equal(topo_bind_plan(topo, TOPO_BIND_CORE, 2, NULL), GYRE_ERR_INVALID);
    topo_free(topo);
}

static void words(void **state)
{
    (void)state;
    static const char *const names[] = {"none", "core", "l3", "numa"};
    topo_bind_t how = TOPO_BIND_NONE;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(topo_bind_parse(names[i], &how), 1);
        assert_string_equal(topo_bind_name(how), names[i]);
    }
    assert_int_equal(topo_bind_parse("cores", &how), 0);
    assert_int_equal(topo_bind_parse("", &how), 0);
    assert_int_equal(topo_bind_parse(NULL, &how), 0);
    assert_int_equal(how, TOPO_BIND_NUMA);
}

/* Binding for real is tested in test_load.c, in a child; here what must not bind. */
static void binding_self(void **state)
{
    (void)state;
    char text[64] = "";
    topo_t *topo = load_fixture("numa-64.xml");
    assert_int_equal(topo_bind_self(topo, TOPO_BIND_CORE, 0, NULL, 0), GYRE_ERR_UNSUPPORTED);
    assert_int_equal(topo_bind_self(topo, TOPO_BIND_CORE, 64, NULL, 0), GYRE_ERR_INVALID);
    assert_int_equal(topo_bind_self(topo, TOPO_BIND_CORE, -1, text, sizeof text), GYRE_OK);
    assert_string_equal(text, "unbound");
    assert_int_equal(topo_bind_self(topo, TOPO_BIND_NONE, 3, text, sizeof text), GYRE_OK);
    assert_string_equal(text, "unbound");
    topo_free(topo);
    assert_int_equal(topo_load(NULL, &topo), GYRE_OK);
    assert_int_equal(topo_bind_self(topo, TOPO_BIND_NUMA, 0, text, sizeof text), GYRE_OK);
    assert_non_null(strstr(text, "numa"));
    topo_free(topo);
    /* a machine of one core without packages, which is said to be this one */
    cpu_set_t mine;
    char machine[64];
    size_t cpu = 0;
    assert_int_equal(sched_getaffinity(0, sizeof mine, &mine), 0);
    while (!CPU_ISSET(cpu, &mine))
        cpu++;
    snprintf(machine, sizeof machine, "numa:1 core:1 pu:1(indexes=%zu)", cpu);
    assert_int_equal(setenv("HWLOC_SYNTHETIC", machine, 1) | setenv("HWLOC_THISSYSTEM", "1", 1), 0);
    assert_int_equal(topo_load(NULL, &topo), GYRE_OK);
    assert_int_equal(unsetenv("HWLOC_SYNTHETIC") | unsetenv("HWLOC_THISSYSTEM"), 0);
    assert_int_equal(topo_bind_self(topo, TOPO_BIND_CORE, 0, text, sizeof text), GYRE_OK);
    assert_string_equal(text, "core 0 (numa 0)");
    assert_int_equal(topo_bind_self(topo, TOPO_BIND_NUMA, 0, text, sizeof text), GYRE_OK);
    assert_string_equal(text, "numa 0");
    assert_int_equal(sched_setaffinity(0, sizeof mine, &mine), 0);
    topo_free(topo);
}

int main(void)
{
    base_log_set_level(BASE_LOG_NONE);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(core_plans), cmocka_unit_test(shared_plans), cmocka_unit_test(none_and_wrong),
        cmocka_unit_test(words),      cmocka_unit_test(binding_self),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
