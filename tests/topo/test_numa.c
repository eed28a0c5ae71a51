/* SPDX-License-Identifier: Apache-2.0 */
/* one thread: TSan has nothing to see */
/* tests/topo/test_numa.c: the NUMA node, the core, the package and the last-level cache of some processors,
 * in folders as the system has them. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "topo/topo.h"

enum { WORDS = 16 };

static char folder[64];

static void write_text(const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void make_node(int node, const char *pus)
{
    char path[128];
    snprintf(path, sizeof path, "%s/node%d", folder, node);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "node%d/cpulist", node);
    write_text(path, pus);
}

/* Two sockets whose hyperthreads are numbered after all cores, and two nodes with memory alone. */
static int set_up(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/test_numa.XXXXXX");
    assert_non_null(mkdtemp(folder));
    write_text("has_cpu", "0,2-3\n");
    make_node(0, "0-15,128-143\n");
    make_node(1, "\n");
    make_node(2, "16\n");
    make_node(3, "17,19-127,200-1023\n");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    static const char *const files[] = {"has_cpu",       "node0/cpulist",   "node1/cpulist",  "node2/cpulist",
                                        "node3/cpulist", "node255/cpulist", "node256/cpulist"};
    static const int nodes[] = {0, 1, 2, 3, 255, 256};
    char path[128];
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        unlink(path);
    }
    for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++) {
        snprintf(path, sizeof path, "%s/node%d", folder, nodes[i]);
        rmdir(path);
    }
    return rmdir(folder);
}

/* The nodes of the PUs first .. last as bits. */
static uint64_t nodes_of(const char *where, int first, int last)
{
    uint64_t mask[WORDS] = {0}, nodes[TOPO_SETS] = {9, 9, 9, 9};
    for (int pu = first; pu <= last; pu++)
        mask[pu / 64] |= (uint64_t)1 << (pu % 64);
    const int count = topo_numa_set(where, mask, WORDS, nodes);
    assert_int_equal(count, __builtin_popcountll(nodes[0]));
    assert_int_equal(nodes[1] | nodes[2] | nodes[3], 0);
    return nodes[0];
}

static void one_node_holds_them_all(void **state)
{
    (void)state;
    assert_int_equal(nodes_of(folder, 0, 15), 1);
    assert_int_equal(nodes_of(folder, 0, 0), 1);
    assert_int_equal(nodes_of(folder, 128, 143), 1);
    assert_int_equal(nodes_of(folder, 16, 16), 4);
    assert_int_equal(nodes_of(folder, 17, 17), 8);
    assert_int_equal(nodes_of(folder, 200, 1023), 8);
}

static void several_or_none(void **state)
{
    (void)state;
    assert_int_equal(nodes_of(folder, 15, 16), 1 | 4);
    assert_int_equal(nodes_of(folder, 0, 1023), 1 | 4 | 8);
    assert_int_equal(nodes_of(folder, 18, 18), 0); /* on none */
    assert_int_equal(nodes_of(folder, 5, 4), 0);   /* no processor */
}

static void what_the_system_does_not_say(void **state)
{
    (void)state;
    assert_int_equal(nodes_of("/nonexistent", 0, 0), 1); /* it has one node */
    write_text("has_cpu", "");
    assert_int_equal(nodes_of(folder, 0, 0), 0);
    write_text("has_cpu", "garbage\n");
    assert_int_equal(nodes_of(folder, 0, 0), 0);
    write_text("has_cpu", "0,7\n"); /* the second has no folder */
    assert_int_equal(nodes_of(folder, 0, 0), 1);
    assert_int_equal(nodes_of(folder, 16, 16), 0);
    write_text("has_cpu", "3-0\n");
    assert_int_equal(nodes_of(folder, 17, 17), 0);
}

/* Nodes whose numbers do not fit among the bits, and the last that does. */
static void many_nodes(void **state)
{
    (void)state;
    uint64_t mask[1] = {3}, nodes[TOPO_SETS];
    write_text("has_cpu", "255-256\n");
    make_node(255, "0\n");
    make_node(256, "1\n");
    assert_int_equal(topo_numa_set(folder, mask, 1, nodes), 1);
    assert_int_equal(nodes[0] | nodes[1] | nodes[2], 0);
    assert_true(nodes[3] == (uint64_t)1 << 63);
}

/* The calling thread's, before and after it is bound. */
static void own_nodes(void **state)
{
    (void)state;
    cpu_set_t before, one;
    uint64_t all[TOPO_SETS], own[TOPO_SETS];
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    const int known = topo_own_nodes(all) > 0; /* or the system hides it */
    CPU_ZERO(&one);
    for (size_t pu = 0; CPU_COUNT(&one) == 0; pu++)
        if (CPU_ISSET(pu, &before))
            CPU_SET(pu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(topo_own_nodes(own), known);
    for (int i = 0; i < TOPO_SETS; i++)
        assert_int_equal(own[i] & ~all[i], 0);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    topo_own_nodes(own);
    assert_memory_equal(own, all, sizeof all);
}

/* Processors 4 and 132 are threads of one core; its cache holds 4-7 and their siblings, its package more. */
static const char *const cpu_folders[] = {"cpu4", "cpu4/topology", "cpu4/cache", "cpu4/cache/index3"};
static const char *const cpu_files[] = {"cpu4/topology/core_siblings_list",
                                        "cpu4/cache/index3/shared_cpu_list",
                                        "cpu4/topology/thread_siblings_list"};

static void packages_and_caches(void **state)
{
    (void)state;
    static const struct {
        int pus[2], package, cache, core;
    } rows[] = {{{4, 4}, 0, 4, 4},      {{4, 132}, 0, 4, 4},   {{4, 7}, 0, 4, -1},
                {{4, 8}, 0, -1, -1},    {{4, 64}, -1, -1, -1}, /* beyond the cache, beyond the package */
                {{5, 6}, -1, -1, -1},                          /* of which the system says nothing */
                {{4, 1000}, -1, -1, -1}};
    const uint64_t none[WORDS] = {0};
    char path[128];
    for (size_t i = 0; i < sizeof cpu_folders / sizeof *cpu_folders; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, cpu_folders[i]);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    write_text(cpu_files[0], "0-31,128-159\n");
    write_text(cpu_files[1], "4-7,132-135\n");
    write_text(cpu_files[2], "4,132\n");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint64_t mask[WORDS] = {0};
        for (int k = 0; k < 2; k++)
            mask[rows[i].pus[k] / 64] |= (uint64_t)1 << (rows[i].pus[k] % 64);
        assert_int_equal(topo_package(folder, mask, WORDS), rows[i].package);
        assert_int_equal(topo_cache(folder, mask, WORDS), rows[i].cache);
        assert_int_equal(topo_one_core(folder, mask, WORDS), rows[i].core);
    }
    assert_int_equal(topo_package(folder, none, WORDS), -1);
    assert_int_equal(topo_cache("/nonexistent", (uint64_t[WORDS]){16}, WORDS), -1);
    for (size_t i = 0; i < sizeof cpu_files / sizeof *cpu_files; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, cpu_files[i]);
        unlink(path);
    }
    for (size_t i = sizeof cpu_folders / sizeof *cpu_folders; i-- > 0;) {
        snprintf(path, sizeof path, "%s/%s", folder, cpu_folders[i]);
        rmdir(path);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_node_holds_them_all),
        cmocka_unit_test(several_or_none),
        cmocka_unit_test(packages_and_caches),
        cmocka_unit_test(what_the_system_does_not_say),
        cmocka_unit_test(many_nodes),
        cmocka_unit_test(own_nodes),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
