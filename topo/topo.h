/* SPDX-License-Identifier: Apache-2.0 */
/* topo/topo.h: what the machine is: hwloc's tree turned into the graph that communication needs.
 *
 * A pure function of an hwloc topology, of this machine or from an XML file, so that a laptop can test
 * machines that it is not.
 *
 * Cores are counted 0, 1, ... over those that this process may run on, in the order of hwloc's tree; the
 * package, NUMA and cache numbers of a core are those of the whole machine, so that two processes of one host
 * that were bound to different cores can compare them. A topo_t does not change after topo_load: threads
 * may share it. */
#ifndef TOPO_TOPO_H
#define TOPO_TOPO_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <gyre/status.h>

typedef struct topo topo_t;

typedef enum { TOPO_GPU = 0, TOPO_NIC = 1 } topo_device_kind_t;

/* A GPU or network device. Strings are owned by the topo_t. */
typedef struct {
    topo_device_kind_t kind;
    char name[64]; /* OS name such as mlx5_0, eth0, cuda0, or the PCI address where there is none */
    char pci[32];  /* "0000:17:00.0"; empty if not on PCI */
    int numa;      /* NUMA node it hangs off, -1 unknown */
    int package;   /* -1 unknown */
    int bridge;    /* number of the PCIe host bridge that it sits under; -1 unknown */
    int rdma;      /* a NIC that speaks verbs (OpenFabrics) */
} topo_device_t;

/* A core. hwloc's logical numbers over the whole machine; -1 where the machine does not say. */
typedef struct {
    int number, package, numa, l3, l2;
    int pus; /* hardware threads of it that this process may use */
} topo_core_t;

typedef struct {
    int packages, numa_nodes, cores, pus; /* that this process may use */
    int l3_count;                         /* shared last-level caches */
    size_t l1_bytes, l2_bytes, l3_bytes;  /* of one cache each; 0 unknown */
    size_t memory_bytes;
    int devices;
    int machine_cores; /* all there are, also those that this process may not use */
} topo_summary_t;

/* xml: a file written by lstopo or hwloc; NULL: this machine, of which only the PUs count that both the
 * host's cpuset and this process's affinity allow. The caller frees *out. NOT_FOUND, IO or FORMAT name the
 * file. */
gyre_status_t topo_load(const char *xml, topo_t **out);
/* This machine without its devices, which take longest to find: then it has none. */
gyre_status_t topo_load_cores(topo_t **out);
void topo_free(topo_t *topo);
void topo_summary(const topo_t *topo, topo_summary_t *out);
/* GPUs first, then NICs, each in the order of hwloc's tree. One PCI function is one device, however many
 * names the system has for it; the display adapters of management controllers and of virtual machines are
 * not GPUs. */
const topo_device_t *topo_device(const topo_t *topo, int index); /* NULL out of range */
const topo_core_t *topo_core(const topo_t *topo, int core);      /* NULL out of range */
/* 64-bit signature of what matters for tuning (kernel release, processor and hwloc's shape): the same for
 * every process of the machine, wherever it is bound. */
uint64_t topo_signature(const topo_t *topo);

/* Distance between two cores: the smallest thing that both are inside of. */
typedef enum {
    TOPO_SAME_CORE = 0,
    TOPO_SAME_L2,
    TOPO_SAME_L3,
    TOPO_SAME_NUMA,
    TOPO_SAME_PACKAGE,
    TOPO_SAME_HOST
} topo_distance_t;
/* A core out of range, such as the -1 of an unbound rank, is SAME_HOST to all others. */
topo_distance_t topo_core_distance(const topo_t *topo, int core_a, int core_b);
/* Between devices: hops over the PCIe tree: 0 same device, 1 same switch, 2 same host bridge, 3 same NUMA
 * node, 4 same host. */
int topo_device_distance(const topo_t *topo, int device_a, int device_b);
/* The same between the GPU (or whatever it is) at PCI address `pci`, "0000:17:00.0", and the RDMA device that
 * the system calls `rdma`; 4 if either is not known. */
int topo_gpu_distance(const topo_t *topo, const char *pci, const char *rdma);
/* The nearest device of a kind to another device (by distance, then by how far down the PCIe tree they
 * meet); of equals the lowest index; -1 if there is none. */
int topo_nearest_to_device(const topo_t *topo, int device, topo_device_kind_t kind);

/* How far the RDMA device that the system calls `name` is from the cores that this process may use: 0 same
 * NUMA node, 1 same package, 2 further (also if the process may use several packages), or not known. */
int topo_rdma_distance(const topo_t *topo, const char *name);

/* The NUMA nodes that the PUs of `mask` are on, asked of the system and without a topo_t. Bit i of nodes[] is
 * the node that the system (and numactl) calls i. mask: [words] PUs by the system's numbers, as
 * sched_getaffinity gives them. folder: where the system describes its nodes; NULL: this machine's. Returns
 * how many they are. A system that describes none has one: 0. None: the system does not say, or their numbers
 * are beyond the bits. */
enum { TOPO_SETS = 4 };
int topo_numa_set(const char *folder, const uint64_t *mask, int words, uint64_t nodes[TOPO_SETS]);
/* The same of the PUs that the calling thread may run on now. Cheap as long as these do not change. */
int topo_own_nodes(uint64_t nodes[TOPO_SETS]);
/* The core that holds all PUs of `mask` ([words], as above). A core is named by its lowest PU. -1: they are
 * of several cores, or the system does not say. cpus: the folder in which the system describes its PUs; NULL:
 * this machine's. */
int topo_one_core(const char *cpus, const uint64_t *mask, int words);
/* The same for the package. */
int topo_package(const char *cpus, const uint64_t *mask, int words);
/* The same for the last-level cache. */
int topo_cache(const char *cpus, const uint64_t *mask, int words);

/* --- binding --- */
typedef enum { TOPO_BIND_NONE = 0, TOPO_BIND_CORE, TOPO_BIND_L3, TOPO_BIND_NUMA } topo_bind_t;
/* Where each of `ranks` local ranks should run: cores[r] is the core of rank r (-1: unbound). A pure function
 * of the topology: packages, in them NUMA nodes, in them L3 caches share the ranks evenly, and consecutive
 * ranks are near. NONE: all -1. More ranks than cores: CORE leaves all at -1, L3 and NUMA let ranks share
 * their domain. INVALID: ranks < 1. */
gyre_status_t topo_bind_plan(const topo_t *topo, topo_bind_t how, int ranks, int *cores);
/* Binds the calling process to core `core` of the plan, or to the L3 or NUMA node around it (to the next
 * larger thing where the machine has none); to nothing for NONE or -1. text (may be NULL) gets
 * "core 3 (package 0, numa 0)". UNSUPPORTED: topo came from a file, or the system refuses. */
gyre_status_t topo_bind_self(const topo_t *topo, topo_bind_t how, int core, char *text, size_t bytes);
int topo_bind_parse(const char *word, topo_bind_t *out); /* none core l3 numa; 0 if unknown */

const char *topo_bind_name(topo_bind_t how);

/* --- who is near whom --- */
/* Divides the `ranks` ranks of one host into cells: those that share a last-level cache; where a cache spans
 * its package or a rank may leave its cache, those that share a NUMA node. masks[r]: [words] the PUs that
 * rank r may use, by the system's numbers, as sched_getaffinity gives them. cells: [ranks] 0, 1, ... in order
 * of their lowest rank; *count of them. One cell holds all as soon as one rank may leave its NUMA node or
 * uses PUs that the topology does not have. INVALID, NO_MEMORY. */
gyre_status_t topo_cells(const topo_t *topo, int ranks, const uint64_t *const *masks, int words, int *cells,
                         int *count);

/* Where a rank runs, as the other ranks know it. -1: several places, or not known. */
typedef struct {
    /* of the four switches above the host, the root's first, 16 bits each that tell it from its siblings
     * (topo_fabric); 0: not known */
    uint64_t fabric;
    int host;                 /* a number for each host of the job */
    int package, numa, cache; /* of that host: topo_package, topo_own_nodes, topo_cache */
} topo_seat_t;

/* The ranks in an order in which those that share a switch, a host, a package, a NUMA node or a cache follow
 * each other: a ring over it enters each of these once. Places come in the order of their lowest rank, and
 * ranks of one place in their own, so order[0] is 0. seats, order: [n]. A pure function, O(n log n).
 * INVALID, NO_MEMORY. */
gyre_status_t topo_seat_order(int n, const topo_seat_t *seats, int *order);
/* topo_seat_t.fabric of a host below the switches of `path`, the root's name first, separated by dots:
 * "spine1.leaf7". Of more than four switches the four nearest to the host count. 0: path is empty. */
uint64_t topo_fabric(const char *path);

#endif
