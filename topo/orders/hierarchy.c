/* SPDX-License-Identifier: Apache-2.0 */
/* topo/orders/hierarchy.c: groups of ranks by what they share, from small to large. */
#include "topo/orders/order.h"

static int at(const int *numbers, int rank, int if_null)
{
    return numbers ? numbers[rank] : if_null;
}

static int share(const int *host, const int *package, const int *numa, int level, int a, int b)
{
    if (level >= 3)
        return 1;
    if (at(host, a, 0) < 0 || at(host, a, 0) != at(host, b, 0))
        return 0;
    if (level <= 1 && at(package, a, -1) != at(package, b, -1))
        return 0;
    return level > 0 || at(numa, a, -1) == at(numa, b, -1);
}

int topo_hierarchy(int n, const int *host, const int *package, const int *numa, int level, int *group)
{
    int groups = 0;
    if (n < 1 || level < 0 || !group)
        return 0;
    for (int rank = 0; rank < n; rank++) {
        group[rank] = -1;
        /* Nearby ranks mostly share, so the search for a fellow goes downwards from the rank before. */
        for (int other = rank - 1; other >= 0 && group[rank] < 0; other--)
            if (share(host, package, numa, level, rank, other))
                group[rank] = group[other];
        if (group[rank] < 0)
            group[rank] = groups++;
    }
    return groups;
}
