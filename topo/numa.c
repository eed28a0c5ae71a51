/* SPDX-License-Identifier: Apache-2.0 */
/* topo/numa.c: on which NUMA nodes, in which core and package and below which cache some processors are, as
 * the system itself says. Some ten small files are read: hwloc's tree would take far longer, and each
 * communicator that is made wants to know. */
#include "topo/topo.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LIST = 8192 }; /* bytes of a file */

/* The text of the file `name` of `folder`; 0 and errno: none. */
static int read_text(const char *folder, const char *name, char text[LIST])
{
    char path[512];
    const int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    const int fd = length > 0 && (size_t)length < sizeof path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return 0;
    const ssize_t got = read(fd, text, LIST - 1);
    close(fd);
    text[got > 0 ? got : 0] = '\0';
    return got > 0;
}

/* Takes the first range of a list such as "0-3,8". 0: there is none, or something else stands there. */
static int next_range(const char **list, long *first, long *last)
{
    char *end;
    *first = *last = strtol(*list, &end, 10);
    if (end == *list || *first < 0)
        return 0;
    if (*end == '-')
        *last = strtol(end + 1, &end, 10);
    *list = *end == ',' ? end + 1 : end;
    return *last >= *first;
}

/* 1: some PU of `mask` is on the node. 0: none, or the system does not say. */
static int holds_any(const char *folder, long node, const uint64_t *mask, int words)
{
    char name[64], text[LIST];
    const char *list = text;
    long first, last;
    snprintf(name, sizeof name, "node%ld/cpulist", node);
    if (!read_text(folder, name, text))
        return 0;
    while (next_range(&list, &first, &last))
        for (long pu = first; pu <= last && pu < words * 64L; pu++)
            if (mask[pu / 64] >> (pu % 64) & 1)
                return 1;
    return 0;
}

int topo_numa_set(const char *folder, const uint64_t *mask, int words, uint64_t nodes[TOPO_SETS])
{
    char text[LIST];
    const char *list = text;
    long first, last;
    int count = 0;
    memset(nodes, 0, TOPO_SETS * sizeof *nodes);
    if (!folder)
        folder = "/sys/devices/system/node";
    errno = 0;
    if (!read_text(folder, "has_cpu", text)) {
        nodes[0] = errno == ENOENT;
        return (int)nodes[0];
    }
    while (next_range(&list, &first, &last))
        for (long node = first; node <= last && node < TOPO_SETS * 64L; node++)
            if (holds_any(folder, node, mask, words))
                nodes[node / 64] |= (uint64_t)1 << (node % 64);
    for (int i = 0; i < TOPO_SETS; i++)
        count += __builtin_popcountll(nodes[i]);
    return count;
}

static int lowest(const uint64_t *mask, int words)
{
    for (int w = 0; w < words; w++)
        if (mask[w])
            return w * 64 + __builtin_ctzll(mask[w]);
    return -1;
}

/* The lowest PU of the list in the file `name` of the lowest PU of `mask`. -1: there is no such file, or the
 * list lacks a PU of the mask. */
static int lowest_beside(const char *cpus, const char *name, const uint64_t *mask, int words)
{
    const int pu = lowest(mask, words);
    char file[96], text[LIST];
    const char *list = text;
    long first, last, found = -1;
    int left = 0;
    for (int w = 0; w < words; w++)
        left += __builtin_popcountll(mask[w]);
    snprintf(file, sizeof file, "cpu%d/%s", pu, name);
    if (pu < 0 || !read_text(cpus ? cpus : "/sys/devices/system/cpu", file, text))
        return -1;
    while (next_range(&list, &first, &last)) {
        found = found < 0 ? first : found;
        for (long i = first; i <= last && i < words * 64L; i++)
            left -= (int)(mask[i / 64] >> (i % 64) & 1);
    }
    return left == 0 ? (int)found : -1;
}

int topo_one_core(const char *cpus, const uint64_t *mask, int words)
{
    return lowest_beside(cpus, "topology/thread_siblings_list", mask, words);
}

int topo_package(const char *cpus, const uint64_t *mask, int words)
{
    return lowest_beside(cpus, "topology/core_siblings_list", mask, words);
}

int topo_cache(const char *cpus, const uint64_t *mask, int words)
{
    return lowest_beside(cpus, "cache/index3/shared_cpu_list", mask, words);
}
