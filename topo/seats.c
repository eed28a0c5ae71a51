/* SPDX-License-Identifier: Apache-2.0 */
/* topo/seats.c: ranks in the order of their seats: ranks that share a cache, a NUMA node, a package, a host
 * or a switch follow each other.
 *
 * A ring over that order enters each of these places once and leaves it once, which is as seldom as any ring
 * can. That is so because places lie within each other like boxes; topo/orders/ring.c serves distances of any
 * kind.
 *
 * One level after the other divides the groups that the levels above have made. Groups keep the order of
 * their lowest ranks, and ranks of a group their own order. So an order by rank that serves places as well is
 * left as it is. */
#include "topo/topo.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"

enum { FABRIC_LEVELS = 4, FABRIC_BITS = 16, LEVELS = FABRIC_LEVELS + 4 };

typedef struct {
    uint64_t value; /* what ranks of one group have in common: of a level, then the group's lowest rank */
    int group, rank;
} entry_t;

/* A number that ranks of one place share, among those that share all levels above. */
static uint64_t value_at(const topo_seat_t *seat, int level)
{
    const int own[] = {seat->host, seat->package, seat->numa, seat->cache};
    if (level < FABRIC_LEVELS)
        return seat->fabric >> (FABRIC_BITS * (FABRIC_LEVELS - 1 - level));
    return (uint64_t)(int64_t)own[level - FABRIC_LEVELS];
}

static int entry_order(const void *a, const void *b)
{
    const entry_t *x = a, *y = b;
    if (x->group != y->group)
        return x->group < y->group ? -1 : 1;
    if (x->value != y->value)
        return x->value < y->value ? -1 : 1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

static int same_group(const entry_t *a, const entry_t *b)
{
    return a->group == b->group && a->value == b->value;
}

/* Divides each group by one level. */
static void divide(entry_t *entries, size_t n, const topo_seat_t *seats, int level)
{
    int differ = 0;
    for (size_t i = 0; i < n; i++) {
        entries[i].value = value_at(&seats[entries[i].rank], level);
        differ |= entries[i].value != entries[0].value;
    }
    if (!differ)
        return;
    qsort(entries, n, sizeof *entries, entry_order);
    for (size_t i = 0, end; i < n; i = end) { /* a group is named by its lowest rank, which comes first */
        const entry_t first = entries[i];
        for (end = i; end < n && same_group(&entries[end], &first); end++)
            ;
        for (size_t k = i; k < end; k++)
            entries[k].value = (uint64_t)first.rank;
    }
    qsort(entries, n, sizeof *entries, entry_order);
    entry_t before = entries[0];
    for (size_t i = 0, group = 0; i < n; i++) {
        group += !same_group(&entries[i], &before);
        before = entries[i];
        entries[i].group = (int)group;
    }
}

gyre_status_t topo_seat_order(int n, const topo_seat_t *seats, int *order)
{
    if (n < 1 || !seats || !order)
        return gyre_fail(GYRE_ERR_INVALID, "topo_seat_order: n is %d, seats %s, order %s", n,
                         seats ? "given" : "NULL", order ? "given" : "NULL");
    entry_t *entries = calloc((size_t)n, sizeof *entries);
    if (!entries)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the order of %d ranks", n);
    for (int r = 0; r < n; r++)
        entries[r].rank = r;
    for (int level = 0; level < LEVELS; level++)
        divide(entries, (size_t)n, seats, level);
    for (int i = 0; i < n; i++)
        order[i] = entries[i].rank;
    free(entries);
    return GYRE_OK;
}

uint64_t topo_fabric(const char *path)
{
    uint64_t fabric = 0;
    while (*path) {
        const size_t length = strcspn(path, ".");
        /* never 0, and two switches with equal bits are taken for one: a worse order, no wrong one */
        fabric = fabric << FABRIC_BITS | ((base_hash64(path, length, 3) & 0x7fff) + 1);
        path += length + (path[length] == '.');
    }
    return fabric;
}
