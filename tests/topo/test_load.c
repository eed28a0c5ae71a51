/* SPDX-License-Identifier: Apache-2.0 */
/* tests/topo/test_load.c: what is found on each fixture and on this machine, and the errors of files that are
 * not topologies. */
#include <sched.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "fixture.h"

static void summary_of_numa(void **state)
{
    (void)state;
    topo_t *topo = load_fixture("numa-64.xml");
    topo_summary_t sum;
    topo_summary(topo, &sum);
    assert_int_equal(sum.packages, 2);
    assert_int_equal(sum.numa_nodes, 2);
    assert_int_equal(sum.cores, 64);
    assert_int_equal(sum.machine_cores, 64);
    assert_int_equal(sum.pus, 128);
    assert_int_equal(sum.l3_count, 8);
    assert_int_equal(sum.l1_bytes, 32 << 10);
    assert_int_equal(sum.l2_bytes, 1 << 20);
    assert_int_equal(sum.l3_bytes, 32 << 20);
    assert_int_equal(sum.memory_bytes, (size_t)256 << 30);
    assert_int_equal(sum.devices, 0);
    assert_int_equal(topo_core(topo, 40)->number, 40);
    assert_int_equal(topo_core(topo, 40)->package, 1);
    assert_int_equal(topo_core(topo, 40)->numa, 1);
    assert_int_equal(topo_core(topo, 40)->l3, 5);
    assert_int_equal(topo_core(topo, 40)->pus, 2);
    assert_null(topo_core(topo, 64));
    assert_null(topo_core(topo, -1));
    topo_free(topo);
}

static void core_distances(void **state)
{
    (void)state;
    topo_t *topo = load_fixture("numa-64.xml");
    assert_int_equal(topo_core_distance(topo, 3, 3), TOPO_SAME_CORE);
    assert_int_equal(topo_core_distance(topo, 0, 7), TOPO_SAME_L3);
    assert_int_equal(topo_core_distance(topo, 7, 8), TOPO_SAME_NUMA);
    assert_int_equal(topo_core_distance(topo, 31, 32), TOPO_SAME_HOST);
    assert_int_equal(topo_core_distance(topo, 0, -1), TOPO_SAME_HOST);
    assert_int_equal(topo_core_distance(topo, -1, -1), TOPO_SAME_HOST);
    assert_int_equal(topo_core_distance(topo, 0, 64), TOPO_SAME_HOST);
    topo_free(topo);
    topo = load_fixture("gpu-8.xml"); /* two NUMA nodes in a package */
    assert_int_equal(topo_core_distance(topo, 0, 12), TOPO_SAME_PACKAGE);
    assert_int_equal(topo_core_distance(topo, 0, 24), TOPO_SAME_HOST);
    topo_free(topo);
}

static void one_core(void **state)
{
    (void)state;
    topo_t *topo = load_fixture("one-core.xml");
    topo_summary_t sum;
    topo_summary(topo, &sum);
    assert_int_equal(sum.cores, 1);
    assert_int_equal(sum.pus, 1);
    assert_int_equal(sum.packages, 1);
    assert_int_equal(sum.l3_count, 0);
    assert_int_equal(sum.l3_bytes, 0);
    assert_int_equal(topo_core(topo, 0)->l3, -1);
    topo_free(topo);
}

static void signatures(void **state)
{
    (void)state;
    static const char *const names[] = {"numa-64.xml", "gpu-8.xml", "one-core.xml"};
    uint64_t seen[3];
    for (int i = 0; i < 3; i++) {
        topo_t *a = load_fixture(names[i]), *b = load_fixture(names[i]);
        seen[i] = topo_signature(a);
        assert_int_equal(seen[i], topo_signature(b));
        for (int j = 0; j < i; j++)
            assert_int_not_equal(seen[i], seen[j]);
        topo_free(a);
        topo_free(b);
    }
}

static void expect_error(const char *path, gyre_status_t expected)
{
    topo_t *topo = NULL;
    assert_int_equal(topo_load(path, &topo), expected);
    assert_null(topo);
    assert_non_null(strstr(gyre_last_error(), path));
}

static void expect_format_error(const char *content, size_t bytes)
{
    char path[] = "/tmp/gyre-topo-test-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    assert_int_equal(write(file, content, bytes), (long)bytes);
    close(file);
    expect_error(path, GYRE_ERR_FORMAT);
    unlink(path);
}

static void bad_files(void **state)
{
    (void)state;
    static char content[8192];
    char path[512];
    expect_error("/nonexistent/machine.xml", GYRE_ERR_NOT_FOUND);
    expect_error("/", GYRE_ERR_IO);
    expect_format_error("", 0);
    expect_format_error("no xml at all", 13);
    expect_format_error("<html></html>", 13);
    expect_format_error("<html></html></topology>", 24);
    expect_format_error("<topology version=\"2.0\"></topology>", 35);
    /* A whole file cut anywhere. */
    FILE *file = fopen(fixture_path("one-core.xml", path, sizeof path), "r");
    assert_non_null(file);
    size_t bytes = fread(content, 1, sizeof content, file), whole = bytes;
    fclose(file);
    assert_true(whole > 1000 && whole < sizeof content);
    for (bytes = 40; bytes < whole - 12; bytes += 97)
        expect_format_error(content, bytes);
    topo_t *topo;
    assert_int_equal(topo_load(NULL, NULL), GYRE_ERR_INVALID);
    assert_int_equal(topo_load(path, &topo), GYRE_OK);
    topo_free(topo);
    topo_free(NULL);
}

static void this_machine(void **state)
{
    (void)state;
    topo_t *topo = NULL;
    topo_summary_t sum;
    cpu_set_t affinity;
    assert_int_equal(sched_getaffinity(0, sizeof affinity, &affinity), 0);
    assert_int_equal(topo_load(NULL, &topo), GYRE_OK);
    topo_summary(topo, &sum);
    assert_int_equal(sum.pus, CPU_COUNT(&affinity));
    assert_true(sum.cores >= 1 && sum.cores <= sum.pus);
    assert_true(sum.machine_cores >= sum.cores);
    assert_true(sum.memory_bytes > 0);
    topo_free(topo);
}

/* In a child: bound to one PU, sees that one only, but numbers and signature are those of the whole
 * machine. */
static int confined(uint64_t signature, const topo_core_t *wanted, int pu)
{
    cpu_set_t set;
    topo_t *topo = NULL;
    topo_summary_t sum;
    CPU_ZERO(&set);
    CPU_SET((size_t)pu, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0 || topo_load(NULL, &topo) != GYRE_OK)
        return 1;
    topo_summary(topo, &sum);
    const topo_core_t *core = topo_core(topo, 0);
    int wrong = sum.cores != 1 || sum.pus != 1 ? 2 : 0;
    if (topo_signature(topo) != signature)
        wrong = 3;
    if (core->number != wanted->number || core->package != wanted->package || core->numa != wanted->numa)
        wrong = 4;
    topo_free(topo);
    return wrong;
}

static void affinity_counts(void **state)
{
    (void)state;
    topo_t *topo = NULL;
    cpu_set_t set;
    int pu = CPU_SETSIZE - 1, status, last;
    topo_summary_t sum;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    assert_int_equal(topo_load(NULL, &topo), GYRE_OK);
    topo_summary(topo, &sum);
    last = sum.cores - 1;
    /* Bind to the last core through the library, so that the test need not know how PUs are numbered. */
    pid_t child = fork();
    if (child == 0) {
        cpu_set_t bound;
        topo_core_t wanted = *topo_core(topo, last);
        uint64_t signature = topo_signature(topo);
        if (topo_bind_self(topo, TOPO_BIND_CORE, last, NULL, 0) != GYRE_OK)
            _exit(10);
        if (sched_getaffinity(0, sizeof bound, &bound) != 0)
            _exit(11);
        if (CPU_COUNT(&bound) != wanted.pus)
            _exit(12);
        while (pu > 0 && !CPU_ISSET((size_t)pu, &bound))
            pu--;
        _exit(confined(signature, &wanted, pu));
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    topo_free(topo);
}

int main(void)
{
    base_log_set_level(BASE_LOG_NONE);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(summary_of_numa), cmocka_unit_test(core_distances), cmocka_unit_test(one_core),
        cmocka_unit_test(signatures),      cmocka_unit_test(bad_files),      cmocka_unit_test(this_machine),
        cmocka_unit_test(affinity_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
