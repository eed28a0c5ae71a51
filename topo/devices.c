/* SPDX-License-Identifier: Apache-2.0 */
/* topo/devices.c: GPUs and network devices, where they hang, and how far they are from cores and each other.
 *
 * The system shows one card under several names (card0, renderD128, nvml0, cuda0; eth2, mlx5_0): the names of
 * one PCI function are one device here, which carries the name that says most. */
#include "topo/graph.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

static hwloc_obj_t pci_of(hwloc_obj_t obj)
{
    while (obj && obj->type != HWLOC_OBJ_PCI_DEVICE)
        obj = obj->parent;
    return obj;
}

/* Display adapters that draw a console and compute nothing: of management controllers and of virtual
 * machines. */
static int is_console(hwloc_obj_t pci)
{
    static const unsigned short vendors[] = {
        0x1a03, /* ASPEED */
        0x102b, /* Matrox */
        0x1013, /* Cirrus, as in QEMU */
        0x1234, /* QEMU's own */
        0x1af4, /* virtio */
        0x1b36, /* QXL */
        0x1414, /* Hyper-V */
        0x15ad, /* VMware */
        0x80ee, /* VirtualBox */
        0x19e5, /* Huawei's iBMC */
    };
    if (!pci || pci->attr->pcidev.class_id != 0x0300) /* VGA; 3D controllers have 0302 */
        return 0;
    for (size_t i = 0; i < sizeof vendors / sizeof vendors[0]; i++)
        if (pci->attr->pcidev.vendor_id == vendors[i])
            return 1;
    return 0;
}

/* Whether an OS device is one of ours, of which kind, and how much its name says. */
static int classify(hwloc_obj_t os, topo_device_kind_t *kind, int *rank_of_name)
{
    const char *subtype = os->subtype ? os->subtype : "";
    const char *opencl = hwloc_obj_get_info_by_name(os, "OpenCLDeviceType");
    switch (os->attr->osdev.type) {
    case HWLOC_OBJ_OSDEV_OPENFABRICS:
        *kind = TOPO_NIC;
        *rank_of_name = 3;
        return 1;
    case HWLOC_OBJ_OSDEV_NETWORK:
        *kind = TOPO_NIC;
        *rank_of_name = 2;
        return 1;
    case HWLOC_OBJ_OSDEV_COPROC:
        *kind = TOPO_GPU;
        *rank_of_name = strcmp(subtype, "CUDA") == 0 ? 5 : strcmp(subtype, "OpenCL") == 0 ? 3 : 4;
        return !(opencl && strcmp(opencl, "CPU") == 0);
    case HWLOC_OBJ_OSDEV_GPU: /* nvml0, rsmi0 have a subtype; card0 and renderD128 have none */
        *kind = TOPO_GPU;
        *rank_of_name = subtype[0] ? 4 : 2;
        return !is_console(pci_of(os));
    default:
        return 0;
    }
}

static void describe(const topo_t *topo, topo_attached_t *device)
{
    hwloc_topology_t hwloc = topo->hwloc;
    hwloc_obj_t place = hwloc_get_non_io_ancestor_obj(hwloc, device->obj);
    device->facts.numa = topo_smallest_around(hwloc, HWLOC_OBJ_NUMANODE, place ? place->cpuset : NULL);
    device->facts.package = topo_smallest_around(hwloc, HWLOC_OBJ_PACKAGE, place ? place->cpuset : NULL);
    device->facts.bridge = -1;
    /* Host bridges are numbered among themselves; hwloc numbers all bridges together. */
    int number = 0;
    for (hwloc_obj_t bridge = NULL; (bridge = hwloc_get_next_bridge(hwloc, bridge));) {
        if (bridge->attr->bridge.upstream_type != HWLOC_OBJ_BRIDGE_HOST)
            continue;
        for (hwloc_obj_t up = device->obj; up; up = up->parent)
            if (up == bridge)
                device->facts.bridge = number;
        number++;
    }
}

/* Finds the device of `obj` among those collected, or makes it. */
static topo_attached_t *device_of(topo_t *topo, hwloc_obj_t obj, topo_device_kind_t kind)
{
    for (int i = 0; i < topo->device_count; i++)
        if (topo->devices[i].obj == obj && topo->devices[i].facts.kind == kind)
            return &topo->devices[i];
    topo_attached_t *device = &topo->devices[topo->device_count++];
    *device = (topo_attached_t){.obj = obj, .facts = {.kind = kind}};
    if (obj->type == HWLOC_OBJ_PCI_DEVICE) {
        const struct hwloc_pcidev_attr_s *pci = &obj->attr->pcidev;
        snprintf(device->facts.pci, sizeof device->facts.pci, "%04x:%02x:%02x.%01x", (unsigned)pci->domain,
                 (unsigned)pci->bus, (unsigned)pci->dev, (unsigned)pci->func);
        snprintf(device->facts.name, sizeof device->facts.name, "%s", device->facts.pci);
    }
    describe(topo, device);
    return device;
}

static void collect(topo_t *topo, topo_device_kind_t wanted)
{
    for (hwloc_obj_t os = NULL; (os = hwloc_get_next_osdev(topo->hwloc, os));) {
        topo_device_kind_t kind;
        int rank;
        if (!classify(os, &kind, &rank) || kind != wanted)
            continue;
        hwloc_obj_t pci = pci_of(os);
        topo_attached_t *device = device_of(topo, pci ? pci : os, kind);
        device->facts.rdma |= os->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS;
        if (rank > device->rank_of_name) {
            device->rank_of_name = rank;
            snprintf(device->facts.name, sizeof device->facts.name, "%s", os->name ? os->name : "unnamed");
        }
    }
    /* A GPU may be there without a driver that gives it a name. */
    for (hwloc_obj_t pci = NULL; wanted == TOPO_GPU && (pci = hwloc_get_next_pcidev(topo->hwloc, pci));)
        if (pci->attr->pcidev.class_id >> 8 == 0x03 && !is_console(pci))
            device_of(topo, pci, TOPO_GPU);
}

gyre_status_t topo_find_devices(topo_t *topo)
{
    size_t most = 1;
    for (hwloc_obj_t os = NULL; (os = hwloc_get_next_osdev(topo->hwloc, os));)
        most++;
    for (hwloc_obj_t pci = NULL; (pci = hwloc_get_next_pcidev(topo->hwloc, pci));)
        most++;
    topo->devices = calloc(most, sizeof *topo->devices);
    if (!topo->devices)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the devices of the topology");
    collect(topo, TOPO_GPU);
    collect(topo, TOPO_NIC);
    return GYRE_OK;
}

const topo_device_t *topo_device(const topo_t *topo, int index)
{
    return index >= 0 && index < topo->device_count ? &topo->devices[index].facts : NULL;
}

static int is_above(hwloc_obj_t above, hwloc_obj_t obj)
{
    while (obj && obj != above)
        obj = obj->parent;
    return obj != NULL;
}

/* hwloc_get_common_ancestor_obj does not know I/O objects: they have no depth. */
static hwloc_obj_t common_ancestor(hwloc_obj_t a, hwloc_obj_t b)
{
    while (a && !is_above(a, b))
        a = a->parent;
    return a;
}

/* Between two objects of the PCIe tree that are not one device. */
static int distance(hwloc_obj_t a, int numa_a, hwloc_obj_t b, int numa_b)
{
    hwloc_obj_t meet = common_ancestor(a, b);
    if (meet && meet->type == HWLOC_OBJ_BRIDGE)
        return meet->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI ? 1 : 2;
    if (meet && (meet->type == HWLOC_OBJ_PCI_DEVICE || meet->type == HWLOC_OBJ_OS_DEVICE))
        return 1; /* one card that is both a GPU and a NIC */
    return numa_a >= 0 && numa_a == numa_b ? 3 : 4;
}

int topo_device_distance(const topo_t *topo, int device_a, int device_b)
{
    const topo_device_t *a = topo_device(topo, device_a), *b = topo_device(topo, device_b);
    if (!a || !b)
        return 4;
    if (device_a == device_b)
        return 0;
    return distance(topo->devices[device_a].obj, a->numa, topo->devices[device_b].obj, b->numa);
}

hwloc_obj_t topo_switch_of(const topo_t *topo, int device)
{
    for (hwloc_obj_t up = topo->devices[device].obj->parent; up && up->type == HWLOC_OBJ_BRIDGE;
         up = up->parent) {
        if (up->attr->bridge.upstream_type != HWLOC_OBJ_BRIDGE_PCI)
            return NULL;
        for (int other = 0; other < topo->device_count; other++)
            if (other != device && is_above(up, topo->devices[other].obj))
                return up;
    }
    return NULL;
}

/* Objects above the place where two devices meet: more means that they meet further down, below more
 * switches. */
static int meeting_depth(const topo_t *topo, int device_a, int device_b)
{
    int depth = 0;
    hwloc_obj_t meet = common_ancestor(topo->devices[device_a].obj, topo->devices[device_b].obj);
    for (; meet; meet = meet->parent)
        depth++;
    return depth;
}

int topo_nearest_to_device(const topo_t *topo, int device, topo_device_kind_t kind)
{
    int best = -1, best_distance = 0, best_depth = 0;
    if (!topo_device(topo, device))
        return -1;
    for (int i = 0; i < topo->device_count; i++) {
        if (i == device || topo->devices[i].facts.kind != kind)
            continue;
        int distance = topo_device_distance(topo, device, i), depth = meeting_depth(topo, device, i);
        if (best < 0 || distance < best_distance || (distance == best_distance && depth > best_depth)) {
            best = i;
            best_distance = distance;
            best_depth = depth;
        }
    }
    return best;
}

/* 1 if all cores of the process have the device's number in the field that `of` reads, and it is known. */
static int all_there(const topo_t *topo, int number, int (*of)(const topo_core_t *core))
{
    for (int i = 0; i < topo->core_count; i++)
        if (of(&topo->cores[i].facts) != number)
            return 0;
    return number >= 0 && topo->core_count > 0;
}

static int numa_of(const topo_core_t *core)
{
    return core->numa;
}

static int package_of(const topo_core_t *core)
{
    return core->package;
}

/* The device on which the OS device `name` sits: one function may have several names, of which only one is
 * in its facts. */
static const topo_attached_t *device_named(const topo_t *topo, const char *name)
{
    for (hwloc_obj_t os = NULL; (os = hwloc_get_next_osdev(topo->hwloc, os));) {
        if (!os->name || strcmp(os->name, name) != 0)
            continue;
        hwloc_obj_t pci = pci_of(os);
        for (int i = 0; i < topo->device_count; i++)
            if (topo->devices[i].obj == (pci ? pci : os) && topo->devices[i].facts.kind == TOPO_NIC)
                return &topo->devices[i];
    }
    return NULL;
}

int topo_rdma_distance(const topo_t *topo, const char *name)
{
    const topo_attached_t *device = device_named(topo, name);
    if (device && all_there(topo, device->facts.numa, numa_of))
        return 0;
    return device && all_there(topo, device->facts.package, package_of) ? 1 : 2;
}

int topo_gpu_distance(const topo_t *topo, const char *pci, const char *rdma)
{
    /* Not by the list of devices: a GPU whose driver has no display part has no name there. */
    hwloc_obj_t gpu = hwloc_get_pcidev_by_busidstring(topo->hwloc, pci);
    const topo_attached_t *nic = device_named(topo, rdma);
    hwloc_obj_t place = gpu ? hwloc_get_non_io_ancestor_obj(topo->hwloc, gpu) : NULL;
    if (!gpu || !nic)
        return 4;
    return distance(gpu, topo_smallest_around(topo->hwloc, HWLOC_OBJ_NUMANODE, place ? place->cpuset : NULL),
                    nic->obj, nic->facts.numa);
}
