/* SPDX-License-Identifier: Apache-2.0 */
/* one thread: TSan has nothing to see */
/* tests/collectives/schedules/test_measure.c: with which processors the machine is measured. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "collectives/choose/tune.h"

/* A rank on both hardware threads of its core measures with two cores, as one on a single thread does. */
static void test_processors(void **state)
{
    (void)state;
    enum { PUS = 6 }; /* of three cores: 0 and 3, 1 and 4, 2 and 5 */
    static const struct {
        unsigned own, all;
        int here, n, cpus[3];
    } rows[] = {{0x3f, 0x3f, 1, 3, {1, 2, 3}}, {0x01, 0x3f, 0, 3, {0, 1, 2}}, {0x12, 0x3f, 4, 3, {4, 5, 0}},
                {0x1b, 0x3f, 3, 2, {3, 4}},    {0x09, 0x09, 0, 1, {0}},       {0x06, 0x3f, -1, 2, {1, 2}}};
    char folder[] = "build/test_measure.XXXXXX", path[128];
    int cpus[COLL_MEASURE_CPUS];
    assert_non_null(mkdtemp(folder));
    for (int pu = 0; pu < PUS; pu++) {
        snprintf(path, sizeof path, "%s/cpu%d", folder, pu);
        assert_int_equal(mkdir(path, 0700), 0);
        snprintf(path, sizeof path, "%s/cpu%d/topology", folder, pu);
        assert_int_equal(mkdir(path, 0700), 0);
        snprintf(path, sizeof path, "%s/cpu%d/topology/thread_siblings_list", folder, pu);
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fprintf(file, "%d,%d\n", pu % 3, pu % 3 + 3);
        fclose(file);
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cpu_set_t own, all;
        CPU_ZERO(&own);
        CPU_ZERO(&all);
        for (size_t pu = 0; pu < PUS; pu++) {
            if (rows[i].own >> pu & 1)
                CPU_SET(pu, &own);
            if (rows[i].all >> pu & 1)
                CPU_SET(pu, &all);
        }
        assert_int_equal(coll_measure_cpus(folder, &own, &all, rows[i].here, cpus), rows[i].n);
        assert_memory_equal(cpus, rows[i].cpus, (size_t)rows[i].n * sizeof *cpus);
    }
    for (int pu = 0; pu < PUS; pu++) {
        snprintf(path, sizeof path, "%s/cpu%d/topology/thread_siblings_list", folder, pu);
        unlink(path);
        snprintf(path, sizeof path, "%s/cpu%d/topology", folder, pu);
        rmdir(path);
        snprintf(path, sizeof path, "%s/cpu%d", folder, pu);
        rmdir(path);
    }
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_processors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
