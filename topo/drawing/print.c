/* SPDX-License-Identifier: Apache-2.0 */
/* topo/drawing/print.c: the machine in text: its tree, its devices, and where ranks would go. */
#include "topo/graph.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/settings/size.h"
#include "topo/drawing/drawing.h"
#include "topo/orders/order.h"

static void print_counts(const topo_t *topo, FILE *out)
{
    topo_summary_t sum;
    char memory[BASE_SIZE_TEXT];
    const char *host = hwloc_obj_get_info_by_name(hwloc_get_root_obj(topo->hwloc), "HostName");
    topo_summary(topo, &sum);
    fprintf(out, "machine%s%s: %d package%s, %d NUMA node%s, %d core%s, %d PU%s, %s\n", host ? " " : "",
            host ? host : "", sum.packages, sum.packages == 1 ? "" : "s", sum.numa_nodes,
            sum.numa_nodes == 1 ? "" : "s", sum.cores, sum.cores == 1 ? "" : "s", sum.pus,
            sum.pus == 1 ? "" : "s", base_size_about((double)sum.memory_bytes, memory));
    if (sum.cores < sum.machine_cores)
        fprintf(out, "  (%d of the machine's %d cores are not this process's to use)\n",
                sum.machine_cores - sum.cores, sum.machine_cores);
    fprintf(out, "signature %016" PRIx64 "\n", topo_signature(topo));
}

/* "cores 0-7, 12" for the cores first..end-1 of the list. */
static void print_core_numbers(const topo_t *topo, int first, int end, FILE *out)
{
    fprintf(out, "%s ", end - first == 1 ? "core" : "cores");
    for (int at = first; at < end; at++) {
        int from = topo->cores[at].facts.number, to = from;
        while (at + 1 < end && topo->cores[at + 1].facts.number == to + 1) {
            at++;
            to++;
        }
        fprintf(out, from == to ? "%d" : "%d-%d", from, to);
        if (at + 1 < end)
            fprintf(out, ", ");
    }
}

static hwloc_obj_t object(const topo_t *topo, hwloc_obj_type_t type, int index)
{
    return index < 0 ? NULL : hwloc_get_obj_by_type(topo->hwloc, type, (unsigned)index);
}

static void print_private_caches(const topo_t *topo, int core, FILE *out)
{
    char l2[BASE_SIZE_TEXT], l1[BASE_SIZE_TEXT];
    hwloc_obj_t obj = topo->cores[core].obj;
    hwloc_obj_t cache2 = hwloc_get_ancestor_obj_by_type(topo->hwloc, HWLOC_OBJ_L2CACHE, obj);
    hwloc_obj_t cache1 = hwloc_get_ancestor_obj_by_type(topo->hwloc, HWLOC_OBJ_L1CACHE, obj);
    if (cache2)
        fprintf(out, ", L2 %s", base_size_about((double)cache2->attr->cache.size, l2));
    if (cache1)
        fprintf(out, ", L1d %s", base_size_about((double)cache1->attr->cache.size, l1));
    if (topo->cores[core].facts.pus > 1)
        fprintf(out, ", %d PUs each", topo->cores[core].facts.pus);
}

/* One line per L3 cache under one line per NUMA node under one per package; a level the machine lacks is
 * left out. */
static void print_tree(const topo_t *topo, FILE *out)
{
    char size[BASE_SIZE_TEXT];
    int package = -1, numa = -1;
    for (int at = 0, end; at < topo->core_count; at = end) {
        const topo_core_t *here = &topo->cores[at].facts;
        for (end = at + 1; end < topo->core_count; end++) {
            const topo_core_t *next = &topo->cores[end].facts;
            if (next->package != here->package || next->numa != here->numa || next->l3 != here->l3)
                break;
        }
        hwloc_obj_t package_obj = object(topo, HWLOC_OBJ_PACKAGE, here->package);
        hwloc_obj_t numa_obj = object(topo, HWLOC_OBJ_NUMANODE, here->numa);
        hwloc_obj_t l3 = object(topo, HWLOC_OBJ_L3CACHE, here->l3);
        const char *model = package_obj ? hwloc_obj_get_info_by_name(package_obj, "CPUModel") : NULL;
        if (package_obj && here->package != package)
            fprintf(out, "package %d%s%s\n", here->package, model ? "  " : "", model ? model : "");
        if (numa_obj && (here->numa != numa || here->package != package))
            fprintf(out, "  numa %d  %s\n", here->numa,
                    base_size_about((double)numa_obj->attr->numanode.local_memory, size));
        package = here->package;
        numa = here->numa;
        fprintf(out, "    ");
        if (l3)
            fprintf(out, "L3 %d  %s  ", here->l3, base_size_about((double)l3->attr->cache.size, size));
        print_core_numbers(topo, at, end, out);
        print_private_caches(topo, at, out);
        fprintf(out, "\n");
    }
}

/* The nodes that are no core's own in the tree: memory without cores, such as a CXL expander, or next to
 * another node's, such as HBM. */
static void print_more_memory(const topo_t *topo, FILE *out)
{
    char size[BASE_SIZE_TEXT];
    for (hwloc_obj_t node = NULL;
         (node = hwloc_get_next_obj_by_type(topo->hwloc, HWLOC_OBJ_NUMANODE, node));) {
        int first = -1, own = 0; /* core that it is near */
        for (int core = topo->core_count - 1; core >= 0; core--) {
            own |= topo->cores[core].facts.numa == (int)node->logical_index;
            if (hwloc_bitmap_intersects(topo->cores[core].obj->cpuset, node->cpuset))
                first = core;
        }
        if (own || (first < 0 && !hwloc_bitmap_iszero(node->cpuset)))
            continue;
        fprintf(out, "numa %u  %s", node->logical_index,
                base_size_about((double)node->attr->numanode.local_memory, size));
        if (first < 0)
            fprintf(out, ", no cores\n");
        else
            fprintf(out, ", near the cores of numa %d\n", topo->cores[first].facts.numa);
    }
}

static void print_number(FILE *out, const char *what, int number)
{
    if (number >= 0)
        fprintf(out, "  %s %d", what, number);
}

static void print_devices(const topo_t *topo, FILE *out)
{
    static const char *const kinds[] = {"gpu", "nic"};
    for (int i = 0; i < topo->device_count; i++) {
        const topo_device_t *device = &topo->devices[i].facts;
        topo_device_kind_t other = device->kind == TOPO_GPU ? TOPO_NIC : TOPO_GPU;
        int nearest = topo_nearest_to_device(topo, i, other);
        fprintf(out, "%s %-2d  %-12s  %-12s", kinds[device->kind], i, device->name,
                device->pci[0] ? device->pci : "not on PCI");
        print_number(out, "package", device->package);
        print_number(out, "numa", device->numa);
        print_number(out, "host bridge", device->bridge);
        if (device->kind == TOPO_NIC)
            fprintf(out, "  %s", device->rdma ? "rdma" : "no rdma");
        if (nearest >= 0)
            fprintf(out, "  nearest %s %s", kinds[other], topo->devices[nearest].facts.name);
        fprintf(out, "\n");
    }
}

static void print_distances(const topo_t *topo, FILE *out)
{
    fprintf(out,
            "distance: 0 itself, 1 same PCIe switch, 2 same host bridge, 3 same NUMA node, 4 same host\n");
    fprintf(out, "%18s", "");
    for (int b = 0; b < topo->device_count; b++)
        fprintf(out, " %2d", b);
    fprintf(out, "\n");
    for (int a = 0; a < topo->device_count; a++) {
        fprintf(out, "  %2d  %-12.12s", a, topo->devices[a].facts.name);
        for (int b = 0; b < topo->device_count; b++)
            fprintf(out, " %2d", topo_device_distance(topo, a, b));
        fprintf(out, "\n");
    }
}

void topo_print(const topo_t *topo, FILE *out)
{
    print_counts(topo, out);
    print_tree(topo, out);
    print_more_memory(topo, out);
    if (topo->device_count == 0) {
        fprintf(out, "no GPUs or network devices\n");
        return;
    }
    print_devices(topo, out);
    print_distances(topo, out);
}

/* --- ranks --- */

gyre_status_t topo_ring_of_cores(const topo_t *topo, int ranks, const int *cores, int *order)
{
    if (!topo || ranks < 1 || !cores || !order)
        return gyre_fail(GYRE_ERR_INVALID, "topo_ring_of_cores: cannot order %d ranks", ranks);
    unsigned char *near = calloc((size_t)ranks, (size_t)ranks);
    if (!near)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "topo_ring_of_cores: no memory for the distances of %d ranks",
                         ranks);
    for (int a = 0; a < ranks; a++)
        for (int b = 0; b < ranks; b++)
            near[(size_t)a * (size_t)ranks + (size_t)b] =
                (unsigned char)topo_core_distance(topo, cores[a], cores[b]);
    gyre_status_t status = topo_ring_order(ranks, near, order);
    free(near);
    return status;
}

static void print_node(const topo_tree_node_t *node, int pad, FILE *out)
{
    char text[64];
    int used = node->parent < 0 ? snprintf(text, sizeof text, "root")
                                : snprintf(text, sizeof text, "%d", node->parent);
    for (int i = 0; i < 2; i++)
        if (node->child[i] >= 0 && used > 0 && (size_t)used < sizeof text)
            used +=
                snprintf(text + used, sizeof text - (size_t)used, i == 0 ? " > %d" : " %d", node->child[i]);
    fprintf(out, pad ? "  %-26s" : "  %s", text);
}

/* -1: a bar. */
static void print_place(int width, int number, FILE *out)
{
    if (number >= 0)
        fprintf(out, "  %*d", width, number);
    else
        fprintf(out, "  %*s", width, "-");
}

static void print_rank(const topo_t *topo, int ranks, int rank, int core, int next, FILE *out)
{
    const topo_core_t *place = topo_core(topo, core);
    fprintf(out, "%5d", rank);
    print_place(5, place ? place->number : -1, out);
    print_place(7, place ? place->package : -1, out);
    print_place(5, place ? place->numa : -1, out);
    fprintf(out, "  %9d", next);
    for (int tree = 0; tree < 2; tree++) {
        topo_tree_node_t node = topo_double_tree(ranks, rank, tree);
        print_node(&node, tree == 0, out);
    }
    fprintf(out, "\n");
}

/* How many links of the ring leave a package and a NUMA node. */
static void print_ring(const topo_t *topo, int ranks, const int *cores, const int *order, FILE *out)
{
    int packages = 0, nodes = 0;
    for (int i = 0; i < ranks; i++) {
        const topo_core_t *a = topo_core(topo, cores[order[i]]);
        const topo_core_t *b = topo_core(topo, cores[order[(i + 1) % ranks]]);
        packages += a && b && a->package != b->package;
        nodes += a && b && a->numa != b->numa;
    }
    fprintf(out, "ring:");
    for (int i = 0; i < ranks; i++)
        fprintf(out, " %d", order[i]);
    fprintf(out, "\n");
    if (cores[0] >= 0)
        fprintf(out, "  %d of its %d links leave a package, %d a NUMA node\n", packages, ranks, nodes);
}

gyre_status_t topo_print_ranks(const topo_t *topo, int ranks, FILE *out)
{
    if (!topo || ranks < 1)
        return gyre_fail(GYRE_ERR_INVALID, "cannot place %d ranks", ranks);
    int *cores = calloc((size_t)ranks, 3 * sizeof *cores);
    if (!cores)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to place %d ranks", ranks);
    int *order = cores + ranks, *next = order + ranks;
    gyre_status_t status = topo_bind_plan(topo, TOPO_BIND_CORE, ranks, cores);
    if (status == GYRE_OK)
        status = topo_ring_of_cores(topo, ranks, cores, order);
    if (status == GYRE_OK) {
        for (int i = 0; i < ranks; i++)
            next[order[i]] = order[(i + 1) % ranks];
        if (cores[0] < 0)
            fprintf(out, "%d ranks would share %d core%s\n", ranks, topo->core_count,
                    topo->core_count == 1 ? "" : "s");
        print_ring(topo, ranks, cores, order, out);
        fprintf(out,
                " rank   core  package   numa  ring next  tree 0: parent > children   tree 1: the same\n");
        for (int rank = 0; rank < ranks; rank++)
            print_rank(topo, ranks, rank, cores[rank], next[rank], out);
    }
    free(cores);
    return status;
}
