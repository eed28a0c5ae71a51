/* SPDX-License-Identifier: Apache-2.0 */
/* one thread: TSan has nothing to see */
/* tests/base/test_cgroup.c: limits of control groups, version 1 and 2, in made-up trees of files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/machine/cgroup.h"

static char root[64];

/* Writes `text` to ROOT/PATH, and makes the folders. */
static void put(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s/%s", root, path);
    for (char *slash = strchr(full + strlen(root) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(full, 0700);
        *slash = '/';
    }
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static int make(void **state)
{
    (void)state;
    strcpy(root, "build/test_cgroup.XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int drop(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command); /* NOLINT: a name of our own */
}

static void none(void **state)
{
    (void)state;
    base_cgroup_t limits = base_cgroup_limits(root);
    assert_true(limits.cpus == 0 && limits.memory == UINT64_MAX);
    put("proc/self/cgroup", "nonsense\n:\n::\n1:cpu\n");
    limits = base_cgroup_limits(root);
    assert_true(limits.cpus == 0 && limits.memory == UINT64_MAX && limits.left == UINT64_MAX);
    limits = base_cgroup_limits("");
    assert_true(limits.cpus >= 0 && limits.memory > 0 && limits.left <= limits.memory);
}

static void version_2(void **state)
{
    (void)state;
    put("proc/self/cgroup", "0::/user/job\n");
    put("sys/fs/cgroup/user/job/cpu.max", "max 100000\n");
    put("sys/fs/cgroup/user/job/memory.max", "max\n");
    base_cgroup_t limits = base_cgroup_limits(root);
    assert_true(limits.cpus == 0 && limits.memory == UINT64_MAX);
    /* the least counts, whether it is the process's own, one around it, or a container's root */
    put("sys/fs/cgroup/user/cpu.max", "50000 100000\n");
    put("sys/fs/cgroup/user/memory.max", "67108864\n");
    limits = base_cgroup_limits(root);
    assert_true(limits.cpus == 0.5 && limits.memory == 64 << 20 && limits.left == 64 << 20);
    /* of what is used, files can be taken back; another group may have less left */
    put("sys/fs/cgroup/user/memory.current", "60000000\n");
    put("sys/fs/cgroup/user/memory.stat",
        "anon 9000\nfile 59000000\ninactive_file 50000000\nactive_file 8000000\n");
    put("sys/fs/cgroup/user/job/memory.current", "99\n");
    assert_true(base_cgroup_limits(root).left == (64 << 20) - 2000000);
    put("sys/fs/cgroup/user/job/memory.max", "65011712\n");
    assert_true(base_cgroup_limits(root).left == 65011712 - 99);
    put("sys/fs/cgroup/user/memory.stat", "anon 9000\n");
    assert_true(base_cgroup_limits(root).left == (64 << 20) - 60000000);
    put("sys/fs/cgroup/user/memory.current", "70000000\n");
    assert_true(base_cgroup_limits(root).left == 0);
    put("sys/fs/cgroup/user/job/memory.max", "33554432\n");
    put("sys/fs/cgroup/cpu.max", "25000 100000\n");
    limits = base_cgroup_limits(root);
    assert_true(limits.cpus == 0.25 && limits.memory == 32 << 20);
    put("proc/self/cgroup", "0::/of/the/host\n");
    limits = base_cgroup_limits(root);
    assert_true(limits.cpus == 0.25 && limits.memory == UINT64_MAX);
}

static void version_1(void **state)
{
    (void)state;
    put("proc/self/cgroup", "9:name=systemd:/\n4:memory:/a/b\n3:cpuset:/\n2:cpuacct,cpu:/c\n0::/\n");
    put("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n");
    put("sys/fs/cgroup/cpu/c/cpu.cfs_quota_us", "-1\n");
    put("sys/fs/cgroup/cpu/c/cpu.cfs_period_us", "100000\n");
    base_cgroup_t limits = base_cgroup_limits(root);
    assert_true(limits.cpus == 0 && limits.memory == UINT64_MAX);
    put("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1073741824\n");
    put("sys/fs/cgroup/cpu/c/cpu.cfs_quota_us", "150000\n");
    limits = base_cgroup_limits(root);
    assert_true(limits.cpus == 1.5 && limits.memory == 1 << 30);
    put("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "1000000000\n");
    put("sys/fs/cgroup/memory/a/memory.stat",
        "inactive_file 7\ntotal_inactive_file 10000\ntotal_active_file 20000\n");
    assert_true(base_cgroup_limits(root).left == (1 << 30) - 1000000000 + 30000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(none, make, drop),
        cmocka_unit_test_setup_teardown(version_2, make, drop),
        cmocka_unit_test_setup_teardown(version_1, make, drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
