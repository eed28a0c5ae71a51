/* SPDX-License-Identifier: Apache-2.0 */
/* one thread: TSan has nothing to see */
/* tests/topo/test_numa.c: the NUMA node of some processors, in folders as the system has them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
    static const char *const files[] = {"has_cpu", "node0/cpulist", "node1/cpulist", "node2/cpulist",
                                        "node3/cpulist"};
    char path[128];
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        unlink(path);
    }
    for (int node = 0; node < 4; node++) {
        snprintf(path, sizeof path, "%s/node%d", folder, node);
        rmdir(path);
    }
    return rmdir(folder);
}

static int node_of(int first, int last)
{
    uint64_t mask[WORDS] = {0};
    for (int pu = first; pu <= last; pu++)
        mask[pu / 64] |= (uint64_t)1 << (pu % 64);
    return topo_numa_node(folder, mask, WORDS);
}

static void one_node_holds_them_all(void **state)
{
    (void)state;
    assert_int_equal(node_of(0, 15), 0);
    assert_int_equal(node_of(0, 0), 0);
    assert_int_equal(node_of(128, 143), 0);
    assert_int_equal(node_of(16, 16), 2);
    assert_int_equal(node_of(17, 17), 3);
    assert_int_equal(node_of(200, 1023), 3);
}

static void several_or_none(void **state)
{
    (void)state;
    assert_int_equal(node_of(15, 16), -1);
    assert_int_equal(node_of(0, 1023), -1);
    assert_int_equal(node_of(18, 18), -1); /* on none */
    assert_int_equal(node_of(5, 4), -1);   /* no processor */
}

static void what_the_system_does_not_say(void **state)
{
    (void)state;
    uint64_t mask[WORDS] = {1};
    assert_int_equal(topo_numa_node("/nonexistent", mask, WORDS), 0); /* it has one node */
    write_text("has_cpu", "garbage\n");
    assert_int_equal(node_of(0, 0), -1);
    write_text("has_cpu", "0,7\n"); /* the second has no folder */
    assert_int_equal(node_of(0, 0), 0);
    assert_int_equal(node_of(16, 16), -1);
    write_text("has_cpu", "3-0\n");
    assert_int_equal(node_of(17, 17), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_node_holds_them_all),
                                       cmocka_unit_test(several_or_none),
                                       cmocka_unit_test(what_the_system_does_not_say)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
