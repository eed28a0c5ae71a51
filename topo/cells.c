/* SPDX-License-Identifier: Apache-2.0 */
/* topo/cells.c: which ranks of one host are near each other, by what each may run on. */
#include "topo/graph.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* Whether a last-level cache divides its package. */
static int divides(const topo_t *topo, int l3)
{
    hwloc_obj_t cache = hwloc_get_obj_by_type(topo->hwloc, HWLOC_OBJ_L3CACHE, (unsigned)l3);
    hwloc_obj_t package = hwloc_get_ancestor_obj_by_type(topo->hwloc, HWLOC_OBJ_PACKAGE, cache);
    if (!package)
        package = hwloc_get_root_obj(topo->hwloc);
    return !hwloc_bitmap_isincluded(package->cpuset, cache->cpuset);
}

/* The cache or NUMA node that holds all of `set`; -1 if none does. */
static int place_of(const topo_t *topo, hwloc_obj_type_t type, hwloc_const_cpuset_t set)
{
    int found = topo_smallest_around(topo->hwloc, type, set);
    return found >= 0 && type == HWLOC_OBJ_L3CACHE && !divides(topo, found) ? -1 : found;
}

/* hwloc's numbers become 0, 1, ... in order of their lowest rank. -> how many. */
static int number_places(int *places, int ranks, int *cells)
{
    int count = 0;
    for (int r = 0; r < ranks; r++) {
        int like = 0;
        while (places[like] != places[r])
            like++;
        cells[r] = like == r ? count++ : cells[like];
    }
    return count;
}

/* Adds the PUs of a mask, by the system's numbers. */
static void add_pus(hwloc_bitmap_t set, const uint64_t *mask, int words)
{
    for (int pu = 0; pu < words * 64; pu++)
        if (mask[pu / 64] >> (pu % 64) & 1)
            hwloc_bitmap_set(set, (unsigned)pu);
}

gyre_status_t topo_cells(const topo_t *topo, int ranks, const uint64_t *const *masks, int words, int *cells,
                         int *count)
{
    static const hwloc_obj_type_t types[] = {HWLOC_OBJ_L3CACHE, HWLOC_OBJ_NUMANODE};
    if (!topo || ranks < 1 || !masks || words < 1 || !cells || !count)
        return gyre_fail(GYRE_ERR_INVALID,
                         "topo_cells: a pointer is NULL, or the number of ranks (%d) or of words is below 1",
                         ranks);
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    int *places = malloc((size_t)ranks * sizeof *places), missing = 1;
    if (!set || !places) {
        hwloc_bitmap_free(set);
        free(places);
        return gyre_fail(GYRE_ERR_NO_MEMORY, "topo_cells: no memory for %d ranks", ranks);
    }
    for (int t = 0; t < 2 && missing; t++) {
        missing = 0;
        for (int r = 0; r < ranks && !missing; r++) {
            hwloc_bitmap_zero(set);
            add_pus(set, masks[r], words);
            places[r] = place_of(topo, types[t], set);
            missing = places[r] < 0;
        }
    }
    if (missing)
        memset(places, 0, (size_t)ranks * sizeof *places);
    *count = number_places(places, ranks, cells);
    hwloc_bitmap_free(set);
    free(places);
    return GYRE_OK;
}
