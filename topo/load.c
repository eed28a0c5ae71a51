/* SPDX-License-Identifier: Apache-2.0 */
/* topo/load.c: an hwloc topology, of this machine or from a file, and what of it this process may use.
 *
 * The tree is loaded whole, also the parts that the process may not use, and the usable part is kept as a set
 * of its own: so package and NUMA numbers mean the same in every process of the host. */
#include "topo/graph.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"

int topo_smallest_around(hwloc_topology_t hwloc, hwloc_obj_type_t type, hwloc_const_cpuset_t set)
{
    hwloc_obj_t best = NULL;
    if (!set || hwloc_bitmap_iszero(set))
        return -1;
    for (hwloc_obj_t obj = NULL; (obj = hwloc_get_next_obj_by_type(hwloc, type, obj));) {
        if (!obj->cpuset || !hwloc_bitmap_isincluded(set, obj->cpuset))
            continue;
        if (!best || hwloc_bitmap_weight(obj->cpuset) < hwloc_bitmap_weight(best->cpuset))
            best = obj;
    }
    return best ? (int)best->logical_index : -1;
}

static int machine_core_count(const topo_t *topo, hwloc_obj_type_t *type)
{
    int cores = hwloc_get_nbobjs_by_type(topo->hwloc, HWLOC_OBJ_CORE);
    *type = cores > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
    return cores > 0 ? cores : hwloc_get_nbobjs_by_type(topo->hwloc, HWLOC_OBJ_PU);
}

/* PUs of `obj` that this process may use. */
static int usable_pus(const topo_t *topo, hwloc_obj_t obj)
{
    int count = 0, pu;
    hwloc_bitmap_foreach_begin(pu, obj->cpuset) count += hwloc_bitmap_isset(topo->usable, (unsigned)pu);
    hwloc_bitmap_foreach_end();
    return count;
}

static int ancestor_index(hwloc_topology_t hwloc, hwloc_obj_type_t type, hwloc_obj_t obj)
{
    hwloc_obj_t found = hwloc_get_ancestor_obj_by_type(hwloc, type, obj);
    return found ? (int)found->logical_index : -1;
}

/* Fills topo->cores. NO_MEMORY. */
static gyre_status_t topo_find_cores(topo_t *topo)
{
    hwloc_obj_type_t type;
    int all = machine_core_count(topo, &type);
    topo->cores = calloc((size_t)all + 1, sizeof *topo->cores);
    if (!topo->cores)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the %d cores of the topology", all);
    for (hwloc_obj_t obj = NULL; (obj = hwloc_get_next_obj_by_type(topo->hwloc, type, obj));) {
        int pus = usable_pus(topo, obj);
        if (pus == 0)
            continue;
        topo->cores[topo->core_count++] = (topo_place_t){
            .obj = obj,
            .facts = {.number = (int)obj->logical_index,
                      .package = ancestor_index(topo->hwloc, HWLOC_OBJ_PACKAGE, obj),
                      .numa = topo_smallest_around(topo->hwloc, HWLOC_OBJ_NUMANODE, obj->cpuset),
                      .l3 = ancestor_index(topo->hwloc, HWLOC_OBJ_L3CACHE, obj),
                      .l2 = ancestor_index(topo->hwloc, HWLOC_OBJ_L2CACHE, obj),
                      .pus = pus}};
    }
    return GYRE_OK;
}

/* hwloc answers EINVAL for everything; look first, so that the message can say what is wrong with the
 * file. */
static gyre_status_t check_file(const char *xml)
{
    struct stat info;
    if (stat(xml, &info) != 0)
        return gyre_fail_errno(errno == ENOENT || errno == ENOTDIR ? GYRE_ERR_NOT_FOUND : GYRE_ERR_IO, errno,
                               "cannot read the topology file %s", xml);
    if (S_ISDIR(info.st_mode))
        return gyre_fail_errno(GYRE_ERR_IO, EISDIR, "cannot read the topology file %s", xml);
    if (!S_ISREG(info.st_mode)) /* a pipe can be read only once, by hwloc */
        return GYRE_OK;
    FILE *file = fopen(xml, "r");
    if (!file)
        return gyre_fail_errno(GYRE_ERR_IO, errno, "cannot read the topology file %s", xml);
    /* A file cut short, the commonest defect, makes hwloc 2.9 leak what it has read so far. */
    char tail[256] = "";
    long start = info.st_size < (long)sizeof tail ? 0 : (long)info.st_size - (long)sizeof tail + 1;
    size_t got = fseek(file, start, SEEK_SET) == 0 ? fread(tail, 1, sizeof tail - 1, file) : 0;
    int failed = ferror(file);
    fclose(file);
    if (failed)
        return gyre_fail(GYRE_ERR_IO, "cannot read the topology file %s", xml);
    if (!memmem(tail, got, "</topology>", 11))
        return gyre_fail(GYRE_ERR_FORMAT,
                         "%s is not a whole topology in hwloc's XML form (it does not end in </topology>); "
                         "write one with: lstopo --of xml FILE",
                         xml);
    return GYRE_OK;
}

static gyre_status_t load_hwloc(const char *xml, int devices, hwloc_topology_t hwloc)
{
    /* The X11 component would open a connection to a display, and wait for it. */
    hwloc_topology_set_components(hwloc, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "gl");
    if (hwloc_topology_set_flags(hwloc, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED) != 0 ||
        hwloc_topology_set_io_types_filter(hwloc, devices ? HWLOC_TYPE_FILTER_KEEP_IMPORTANT
                                                          : HWLOC_TYPE_FILTER_KEEP_NONE) != 0)
        return gyre_fail_errno(GYRE_ERR_SYSTEM, errno, "hwloc refused its settings");
    if (!xml)
        return hwloc_topology_load(hwloc) == 0
                   ? GYRE_OK
                   : gyre_fail_errno(GYRE_ERR_SYSTEM, errno, "hwloc cannot find out this machine's topology");
    gyre_status_t status = check_file(xml);
    if (status != GYRE_OK)
        return status;
    if (hwloc_topology_set_xml(hwloc, xml) != 0 || hwloc_topology_load(hwloc) != 0 ||
        hwloc_get_nbobjs_by_type(hwloc, HWLOC_OBJ_PU) < 1)
        return gyre_fail(GYRE_ERR_FORMAT,
                         "%s is not a topology that hwloc can read; write one with: lstopo --of xml FILE",
                         xml);
    return GYRE_OK;
}

/* What both the host's cpuset (containers) and the affinity of this process (taskset, a launcher) leave. */
static gyre_status_t find_usable(topo_t *topo)
{
    topo->usable = hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(topo->hwloc));
    hwloc_bitmap_t affinity = hwloc_bitmap_alloc();
    if (!topo->usable || !affinity) {
        hwloc_bitmap_free(affinity);
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the topology's sets of processors");
    }
    /* Where the system cannot tell a process's affinity there is none to respect. */
    if (topo->is_this_machine && hwloc_get_cpubind(topo->hwloc, affinity, HWLOC_CPUBIND_PROCESS) == 0 &&
        hwloc_bitmap_intersects(topo->usable, affinity))
        hwloc_bitmap_and(topo->usable, topo->usable, affinity);
    hwloc_bitmap_free(affinity);
    return GYRE_OK;
}

static gyre_status_t load(const char *xml, int devices, topo_t **out)
{
    if (!out)
        return gyre_fail(GYRE_ERR_INVALID, "topo_load: out is NULL");
    topo_t *topo = calloc(1, sizeof *topo);
    if (!topo || hwloc_topology_init(&topo->hwloc) != 0) {
        free(topo);
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a topology");
    }
    gyre_status_t status = load_hwloc(xml, devices, topo->hwloc);
    if (status == GYRE_OK) {
        topo->is_this_machine = hwloc_topology_is_thissystem(topo->hwloc);
        status = find_usable(topo);
    }
    if (status == GYRE_OK)
        status = topo_find_cores(topo);
    if (status == GYRE_OK && topo->core_count == 0)
        status = gyre_fail(GYRE_ERR_FORMAT, "%s allows no processor at all", xml ? xml : "this machine");
    if (status == GYRE_OK)
        status = topo_find_devices(topo);
    if (status != GYRE_OK) {
        topo_free(topo);
        return status;
    }
    *out = topo;
    return GYRE_OK;
}

gyre_status_t topo_load(const char *xml, topo_t **out)
{
    return load(xml, 1, out);
}

gyre_status_t topo_load_cores(topo_t **out)
{
    return load(NULL, 0, out);
}

void topo_free(topo_t *topo)
{
    if (!topo)
        return;
    hwloc_topology_destroy(topo->hwloc);
    hwloc_bitmap_free(topo->usable);
    free(topo->cores);
    free(topo->devices);
    free(topo);
}

/* Objects of `type` with a PU that this process may use. */
static int usable_objects(const topo_t *topo, hwloc_obj_type_t type)
{
    int count = 0;
    for (hwloc_obj_t obj = NULL; (obj = hwloc_get_next_obj_by_type(topo->hwloc, type, obj));)
        count += hwloc_bitmap_intersects(obj->cpuset, topo->usable);
    return count;
}

static size_t cache_bytes(const topo_t *topo, hwloc_obj_type_t type)
{
    hwloc_obj_t cache = hwloc_get_next_obj_by_type(topo->hwloc, type, NULL);
    return cache ? (size_t)cache->attr->cache.size : 0;
}

void topo_summary(const topo_t *topo, topo_summary_t *out)
{
    hwloc_obj_type_t core_type;
    *out = (topo_summary_t){.packages = usable_objects(topo, HWLOC_OBJ_PACKAGE),
                            .numa_nodes = usable_objects(topo, HWLOC_OBJ_NUMANODE),
                            .cores = topo->core_count,
                            .pus = usable_objects(topo, HWLOC_OBJ_PU),
                            .l3_count = usable_objects(topo, HWLOC_OBJ_L3CACHE),
                            .l1_bytes = cache_bytes(topo, HWLOC_OBJ_L1CACHE),
                            .l2_bytes = cache_bytes(topo, HWLOC_OBJ_L2CACHE),
                            .l3_bytes = cache_bytes(topo, HWLOC_OBJ_L3CACHE),
                            .memory_bytes = (size_t)hwloc_get_root_obj(topo->hwloc)->total_memory,
                            .devices = topo->device_count,
                            .machine_cores = machine_core_count(topo, &core_type)};
}

const topo_core_t *topo_core(const topo_t *topo, int core)
{
    return core >= 0 && core < topo->core_count ? &topo->cores[core].facts : NULL;
}

topo_distance_t topo_core_distance(const topo_t *topo, int core_a, int core_b)
{
    const topo_core_t *a = topo_core(topo, core_a), *b = topo_core(topo, core_b);
    if (!a || !b)
        return TOPO_SAME_HOST;
    if (core_a == core_b)
        return TOPO_SAME_CORE;
    if (a->l2 >= 0 && a->l2 == b->l2)
        return TOPO_SAME_L2;
    if (a->l3 >= 0 && a->l3 == b->l3)
        return TOPO_SAME_L3;
    if (a->numa >= 0 && a->numa == b->numa)
        return TOPO_SAME_NUMA;
    if (a->package >= 0 && a->package == b->package)
        return TOPO_SAME_PACKAGE;
    return TOPO_SAME_HOST;
}
