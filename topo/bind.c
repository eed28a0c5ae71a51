/* SPDX-License-Identifier: Apache-2.0 */
/* topo/bind.c: which rank runs on which core, and making it so. */
#include "topo/graph.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

static const struct {
    topo_bind_t how;
    const char *name;
} words[] = {
    {TOPO_BIND_NONE, "none"}, {TOPO_BIND_CORE, "core"}, {TOPO_BIND_L3, "l3"}, {TOPO_BIND_NUMA, "numa"}};

int topo_bind_parse(const char *word, topo_bind_t *out)
{
    for (size_t i = 0; word && i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(word, words[i].name) == 0) {
            *out = words[i].how;
            return 1;
        }
    }
    return 0;
}

const char *topo_bind_name(topo_bind_t how)
{
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (words[i].how == how)
            return words[i].name;
    return "unknown";
}

/* --- the plan --- */

/* What a core is inside of, from large to small; the last level is the core itself. */
enum { LEVEL_PACKAGE, LEVEL_NUMA, LEVEL_L3, LEVEL_L2, LEVEL_CORE };

static int domain(const topo_t *topo, int core, int level)
{
    const topo_core_t *facts = &topo->cores[core].facts;
    switch (level) {
    case LEVEL_PACKAGE:
        return facts->package;
    case LEVEL_NUMA:
        return facts->numa;
    case LEVEL_L3:
        return facts->l3;
    case LEVEL_L2:
        return facts->l2;
    default:
        return core;
    }
}

static int domain_end(const topo_t *topo, int first, int end, int level)
{
    int here = domain(topo, first, level), next = first + 1;
    while (next < end && domain(topo, next, level) == here)
        next++;
    return next;
}

typedef struct {
    const topo_t *topo;
    int per_core; /* ranks that may share a core */
    int *quota;   /* [LEVEL_CORE + 1][core_count]: ranks of the domain that starts at that core */
    int *cores;   /* the plan: [ranks] */
} spread_t;

/* Deals `ranks` ranks out to the domains of `level` in first..end-1, one each in turn; full domains are
 * passed over. Neighbours that are not full thus differ by one at most. */
static void deal(const spread_t *s, int level, int first, int end, int ranks)
{
    int *quota = s->quota + (size_t)level * (size_t)s->topo->core_count;
    for (int core = first; core < end; core++)
        quota[core] = 0;
    while (ranks > 0) {
        for (int at = first, next; at < end && ranks > 0; at = next) {
            next = domain_end(s->topo, at, end, level);
            if (quota[at] < (next - at) * s->per_core) {
                quota[at]++;
                ranks--;
            }
        }
    }
}

/* Gives ranks first_rank .. first_rank + ranks - 1 cores of first..end-1 (which have room for them): evenly
 * over the domains of `level`, in each of them evenly over those of the next. */
static void spread(const spread_t *s, int level, int first, int end, int first_rank, int ranks)
{
    if (level > LEVEL_CORE) {
        for (int rank = 0; rank < ranks; rank++)
            s->cores[first_rank + rank] = first;
        return;
    }
    deal(s, level, first, end, ranks);
    for (int at = first, next; at < end; at = next) {
        next = domain_end(s->topo, at, end, level);
        int mine = s->quota[(size_t)level * (size_t)s->topo->core_count + (size_t)at];
        if (mine > 0)
            spread(s, level + 1, at, next, first_rank, mine);
        first_rank += mine;
    }
}

gyre_status_t topo_bind_plan(const topo_t *topo, topo_bind_t how, int ranks, int *cores)
{
    if (!topo || ranks < 1 || !cores)
        return gyre_fail(GYRE_ERR_INVALID, "topo_bind_plan: cannot place %d ranks", ranks);
    for (int rank = 0; rank < ranks; rank++)
        cores[rank] = -1;
    int room = topo->core_count;
    if (how == TOPO_BIND_NONE || (how == TOPO_BIND_CORE && ranks > room))
        return GYRE_OK;
    int *quota = calloc((size_t)room * (LEVEL_CORE + 1), sizeof *quota);
    if (!quota)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "topo_bind_plan: no memory to place %d ranks", ranks);
    spread_t s = {.topo = topo, .per_core = (ranks - 1) / room + 1, .quota = quota, .cores = cores};
    spread(&s, LEVEL_PACKAGE, 0, room, 0, ranks);
    free(quota);
    return GYRE_OK;
}

/* --- making it so --- */

/* The L3 cache or NUMA node around a core; the next larger thing if the machine has none. */
static hwloc_obj_t object_around(const topo_t *topo, topo_bind_t how, int core)
{
    const topo_place_t *place = &topo->cores[core];
    hwloc_obj_t found = how == TOPO_BIND_CORE ? place->obj : NULL;
    if (how == TOPO_BIND_L3)
        found = hwloc_get_ancestor_obj_by_type(topo->hwloc, HWLOC_OBJ_L3CACHE, place->obj);
    if (!found && place->facts.numa >= 0)
        found = hwloc_get_obj_by_type(topo->hwloc, HWLOC_OBJ_NUMANODE, (unsigned)place->facts.numa);
    if (!found)
        found = hwloc_get_ancestor_obj_by_type(topo->hwloc, HWLOC_OBJ_PACKAGE, place->obj);
    return found ? found : hwloc_get_root_obj(topo->hwloc);
}

static void describe(const topo_t *topo, hwloc_obj_t where, int core, char *text, size_t bytes)
{
    const topo_core_t *facts = &topo->cores[core].facts;
    const int is_node = where->type == HWLOC_OBJ_NUMANODE, numa = is_node ? -1 : facts->numa;
    char type[32] = "numa", around[64] = "";
    if (!is_node)
        hwloc_obj_type_snprintf(type, sizeof type, where, 0);
    if (facts->package >= 0 && numa >= 0)
        snprintf(around, sizeof around, " (package %d, numa %d)", facts->package, numa);
    else if (facts->package >= 0 || numa >= 0)
        snprintf(around, sizeof around, facts->package >= 0 ? " (package %d)" : " (numa %d)",
                 facts->package >= 0 ? facts->package : numa);
    if (where->type == HWLOC_OBJ_CORE || where->type == HWLOC_OBJ_PU)
        snprintf(text, bytes, "core %d%s", facts->number, around);
    else
        snprintf(text, bytes, "%s %u%s", type, where->logical_index, around);
}

gyre_status_t topo_bind_self(const topo_t *topo, topo_bind_t how, int core, char *text, size_t bytes)
{
    if (!topo || core < -1 || core >= topo->core_count)
        return gyre_fail(GYRE_ERR_INVALID, "topo_bind_self: there is no core %d", core);
    if (how == TOPO_BIND_NONE || core < 0) {
        if (text)
            snprintf(text, bytes, "unbound");
        return GYRE_OK;
    }
    if (!topo->is_this_machine)
        return gyre_fail(GYRE_ERR_UNSUPPORTED, "topo_bind_self: the topology was read from a file and is not "
                                               "that of this machine; bind to a topology loaded without one");
    hwloc_obj_t where = object_around(topo, how, core);
    hwloc_bitmap_t set = hwloc_bitmap_dup(where->cpuset);
    if (!set)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "topo_bind_self: no memory");
    hwloc_bitmap_and(set, set, topo->usable);
    int failed = hwloc_set_cpubind(topo->hwloc, set, HWLOC_CPUBIND_PROCESS) != 0 ? errno : 0;
    hwloc_bitmap_free(set);
    if (failed)
        return gyre_fail_errno(GYRE_ERR_UNSUPPORTED, failed,
                               "cannot bind this process to core %d; run with --bind none",
                               topo->cores[core].facts.number);
    if (text)
        describe(topo, where, core, text, bytes);
    return GYRE_OK;
}
