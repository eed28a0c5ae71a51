/* SPDX-License-Identifier: Apache-2.0 */
/* topo/graph.h: inside of a topo_t, for the files of this room only. */
#ifndef TOPO_GRAPH_H
#define TOPO_GRAPH_H

#include <hwloc.h>

#include "topo/topo.h"

typedef struct {
    topo_core_t facts;
    hwloc_obj_t obj; /* the Core; a PU where the machine shows no cores. Owned by hwloc. */
} topo_place_t;

typedef struct {
    topo_device_t facts;
    hwloc_obj_t obj;  /* the PCI device; the OS device if it is not on PCI. Owned by hwloc. */
    int rank_of_name; /* how well the name in facts says what it is; while collecting only */
} topo_attached_t;

struct topo {
    hwloc_topology_t hwloc;
    hwloc_cpuset_t usable; /* PUs that this process may use; owned */
    int is_this_machine;
    int core_count;
    topo_place_t *cores; /* [core_count], owned */
    int device_count;
    topo_attached_t *devices; /* [device_count], owned */
};

/* Fills topo->devices. NO_MEMORY. */
gyre_status_t topo_find_devices(topo_t *topo);

/* Logical index of the smallest object of `type` that holds all of `set`; -1 if there is none or set is
 * empty. */
int topo_smallest_around(hwloc_topology_t hwloc, hwloc_obj_type_t type, hwloc_const_cpuset_t set);

/* The bridge above `obj` that another device shares too and that is no host bridge: its PCIe switch; or
 * NULL. */
hwloc_obj_t topo_switch_of(const topo_t *topo, int device);

#endif
