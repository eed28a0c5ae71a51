/* SPDX-License-Identifier: Apache-2.0 */
/* topo/numa.c: on which NUMA node some processors are, as the system itself says. Some ten small files are
 * read: hwloc's tree would take far longer, and each communicator that is made wants to know. */
#include "topo/topo.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
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
static int holds_any(const char *nodes, long node, const uint64_t *mask, int words)
{
    char name[64], text[LIST];
    const char *list = text;
    long first, last;
    snprintf(name, sizeof name, "node%ld/cpulist", node);
    if (!read_text(nodes, name, text))
        return 0;
    while (next_range(&list, &first, &last))
        for (long pu = first; pu <= last && pu < words * 64L; pu++)
            if (mask[pu / 64] >> (pu % 64) & 1)
                return 1;
    return 0;
}

int topo_numa_node(const char *nodes, const uint64_t *mask, int words)
{
    char text[LIST];
    const char *list = text;
    long first, last, found = -1;
    if (!nodes)
        nodes = "/sys/devices/system/node";
    if (!read_text(nodes, "has_cpu", text))
        return errno == ENOENT ? 0 : -1;
    while (next_range(&list, &first, &last))
        for (long node = first; node <= last; node++)
            if (holds_any(nodes, node, mask, words)) {
                if (found >= 0)
                    return -1;
                found = node;
            }
    return (int)found;
}
