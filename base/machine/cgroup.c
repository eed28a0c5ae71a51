/* SPDX-License-Identifier: Apache-2.0 */
/* base/machine/cgroup.c: see the header.
 *
 * /proc/self/cgroup has lines "ID:CONTROLLERS:PATH". Version 2 has the line "0::PATH" and all files in one
 * tree; version 1 has a tree for each controller. In a container PATH may be one that only the host sees; the
 * container's own group is the root of its trees then, which is looked at last. */
#include "base/machine/cgroup.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH = 1024, TEXT = 128 };

/* The first line of ROOT/sys/fs/cgroup/TREE/PATH/NAME. 0: there is none. */
static int read_line(const char *root, const char *tree, const char *path, const char *name, char text[TEXT])
{
    char full[2 * PATH];
    snprintf(full, sizeof full, "%s/sys/fs/cgroup/%s%s/%s", root, tree, path, name);
    FILE *file = fopen(full, "re");
    if (!file)
        return 0;
    const int good = fgets(text, TEXT, file) != NULL;
    fclose(file);
    return good;
}

static void least_cpus(base_cgroup_t *limits, double cpus)
{
    if (cpus > 0 && (limits->cpus == 0 || cpus < limits->cpus))
        limits->cpus = cpus;
}

/* Bytes that a group uses. Pages of files are not counted: the kernel takes them back. prefix: of the lines
 * of memory.stat that count the groups within, too. */
static double used_memory(const char *root, const char *tree, const char *path, const char *name,
                          const char *prefix)
{
    char full[2 * PATH], text[TEXT], key[TEXT];
    double used = read_line(root, tree, path, name, text) ? strtod(text, NULL) : 0, bytes;
    const size_t n = strlen(prefix);
    snprintf(full, sizeof full, "%s/sys/fs/cgroup/%s%s/memory.stat", root, tree, path);
    FILE *file = fopen(full, "re");
    while (file && fgets(text, sizeof text, file))
        if (sscanf(text, "%127s %lf", key, &bytes) == 2 && strncmp(key, prefix, n) == 0 &&
            (strcmp(key + n, "inactive_file") == 0 || strcmp(key + n, "active_file") == 0))
            used -= bytes;
    if (file)
        fclose(file);
    return used > 0 ? used : 0;
}

/* names: the files of the limit and of what is used. */
static void least_memory(const char *root, const char *tree, const char *path, const char *const names[2],
                         const char *prefix, base_cgroup_t *limits)
{
    char text[TEXT];
    const double memory = read_line(root, tree, path, names[0], text) ? strtod(text, NULL) : 0;
    /* version 1 says "none" by a number near 2^63, version 2 by "max", which is 0 */
    if (memory <= 0 || memory >= 0x1p62)
        return;
    const double used = used_memory(root, tree, path, names[1], prefix),
                 left = used < memory ? memory - used : 0;
    if (memory < (double)limits->memory)
        limits->memory = (uint64_t)memory;
    if (left < (double)limits->left)
        limits->left = (uint64_t)left;
}

static void look_v2(const char *root, const char *path, base_cgroup_t *limits)
{
    char text[TEXT];
    double used, period;
    if (read_line(root, "", path, "cpu.max", text) && sscanf(text, "%lf %lf", &used, &period) == 2 &&
        period > 0)
        least_cpus(limits, used / period);
    least_memory(root, "", path, (const char *const[]){"memory.max", "memory.current"}, "", limits);
}

static void look_cpu(const char *root, const char *path, base_cgroup_t *limits)
{
    char used[TEXT], period[TEXT];
    if (read_line(root, "cpu", path, "cpu.cfs_quota_us", used) &&
        read_line(root, "cpu", path, "cpu.cfs_period_us", period) && strtod(period, NULL) > 0)
        least_cpus(limits, strtod(used, NULL) / strtod(period, NULL)); /* -1: none */
}

static void look_memory(const char *root, const char *path, base_cgroup_t *limits)
{
    least_memory(root, "memory", path,
                 (const char *const[]){"memory.limit_in_bytes", "memory.usage_in_bytes"}, "total_", limits);
}

typedef void look_fn(const char *root, const char *path, base_cgroup_t *limits);

/* The group at `path` and those around it. Overwrites path. */
static void look_up(look_fn *look, const char *root, char *path, base_cgroup_t *limits)
{
    for (char *slash; (slash = strrchr(path, '/')) != NULL; *slash = '\0')
        if (slash[1] != '\0') /* of "/" only the root is left */
            look(root, path, limits);
    look(root, "", limits);
}

/* 1: the list, with commas between, has the word. */
static int has(const char *list, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = list; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, word, n) == 0 && (at[n] == ',' || at[n] == '\0'))
            return 1;
    }
    return 0;
}

base_cgroup_t base_cgroup_limits(const char *root)
{
    base_cgroup_t limits = {.cpus = 0, .memory = UINT64_MAX, .left = UINT64_MAX};
    char name[PATH], line[PATH];
    snprintf(name, sizeof name, "%s/proc/self/cgroup", root);
    FILE *file = fopen(name, "re");
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL;
        if (!path)
            continue;
        *list++ = *path++ = '\0';
        look_fn *const look = *list == '\0'         ? look_v2
                              : has(list, "cpu")    ? look_cpu
                              : has(list, "memory") ? look_memory
                                                    : NULL;
        if (look)
            look_up(look, root, path, &limits);
    }
    if (file)
        fclose(file);
    return limits;
}

int base_cpus_allowed(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}
