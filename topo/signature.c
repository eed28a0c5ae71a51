/* SPDX-License-Identifier: Apache-2.0 */
/* topo/signature.c: one number for "the same kind of machine", so that tuning tables know where they apply.
 *
 * It covers what timing depends on and every process of a machine agrees on: the kernel's release, the
 * processor, the shape of the tree with its cache sizes, how many PUs the host's cpuset leaves, and the
 * devices on PCI. It leaves out names that differ from boot to boot, memory sizes (the kernel keeps a varying
 * bit for itself), and this process's own affinity. */
#include "topo/graph.h"

#include <string.h>

#include "base/hash.h"

static uint64_t add_text(uint64_t hash, const char *text)
{
    return text ? base_hash64(text, strlen(text) + 1, hash) : base_hash64("", 1, hash);
}

static uint64_t add_number(uint64_t hash, uint64_t number)
{
    return base_hash64(&number, sizeof number, hash);
}

/* Depth first, so that the same objects in another shape give another number. */
static uint64_t add_object(uint64_t hash, hwloc_obj_t obj)
{
    hash = add_number(hash, (uint64_t)obj->type);
    hash = add_number(hash, obj->arity);
    hash = add_number(hash, obj->memory_arity);
    if (hwloc_obj_type_is_cache(obj->type))
        hash = add_number(hash, obj->attr->cache.size);
    if (obj->type == HWLOC_OBJ_PACKAGE)
        hash = add_text(hash, hwloc_obj_get_info_by_name(obj, "CPUModel"));
    for (hwloc_obj_t child = obj->first_child; child; child = child->next_sibling)
        hash = add_object(hash, child);
    return hash;
}

uint64_t topo_signature(const topo_t *topo)
{
    hwloc_obj_t root = hwloc_get_root_obj(topo->hwloc);
    uint64_t hash = add_text(0x67797265, hwloc_obj_get_info_by_name(root, "OSRelease"));
    hash = add_text(hash, hwloc_obj_get_info_by_name(root, "Architecture"));
    hash = add_text(hash, hwloc_obj_get_info_by_name(root, "CPUModel"));
    hash = add_object(hash, root);
    hash = add_number(hash, (uint64_t)hwloc_bitmap_weight(hwloc_topology_get_allowed_cpuset(topo->hwloc)));
    for (int i = 0; i < topo->device_count; i++) {
        if (topo->devices[i].facts.pci[0] == 0)
            continue;
        hash = add_number(hash, (uint64_t)topo->devices[i].facts.kind);
        hash = add_text(hash, topo->devices[i].facts.pci);
    }
    return hash;
}
