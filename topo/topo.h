/* topo/topo.h: what the machine is: hwloc's tree turned into the graph that communication needs.
 *
 * A pure function of an hwloc topology, of this machine or from an XML file, so that a laptop can test machines
 * that it is not. */
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
    int bridge;    /* number of the outermost PCIe switch or host bridge it sits under; -1 unknown */
    int rdma;      /* a NIC that speaks verbs (OpenFabrics) */
} topo_device_t;

typedef struct {
    int packages, numa_nodes, cores, pus; /* that this process may use */
    int l3_count;                         /* shared last-level caches */
    size_t l1_bytes, l2_bytes, l3_bytes;  /* of one cache each; 0 unknown */
    size_t memory_bytes;
    int devices;
} topo_summary_t;

/* xml: a file written by lstopo or hwloc; NULL: this machine. FORMAT or NOT_FOUND name the file. */
gyre_status_t topo_load(const char *xml, topo_t **out);
void topo_free(topo_t *topo);
void topo_summary(const topo_t *topo, topo_summary_t *out);
const topo_device_t *topo_device(const topo_t *topo, int index); /* NULL out of range */
/* 64-bit signature of what matters for tuning (kernel release and hwloc's shape). */
uint64_t topo_signature(const topo_t *topo);

/* Distance between two cores or devices: the largest thing that both are inside of. */
typedef enum {
    TOPO_SAME_CORE = 0,
    TOPO_SAME_L2,
    TOPO_SAME_L3,
    TOPO_SAME_NUMA,
    TOPO_SAME_PACKAGE,
    TOPO_SAME_HOST
} topo_distance_t;
topo_distance_t topo_core_distance(const topo_t *topo, int core_a, int core_b);
/* Between devices: hops over the PCIe tree: 0 same device, 1 same switch, 2 same host bridge, 3 same NUMA node, 4 same
 * host. */
int topo_device_distance(const topo_t *topo, int device_a, int device_b);
/* The nearest device of a kind to core `core` (or to another device), lowest index first; -1 if there is none. */
int topo_nearest_to_core(const topo_t *topo, int core, topo_device_kind_t kind);
int topo_nearest_to_device(const topo_t *topo, int device, topo_device_kind_t kind);

/* --- binding --- */
typedef enum { TOPO_BIND_NONE = 0, TOPO_BIND_CORE, TOPO_BIND_L3, TOPO_BIND_NUMA } topo_bind_t;
/* Where each of `ranks` local ranks should run: cores[r] is the logical core of rank r (-1: unbound), chosen so that
 * consecutive ranks are near and all packages are used evenly. NONE, or more ranks than cores: all -1 (CORE) or shared (others). */
gyre_status_t topo_bind_plan(const topo_t *topo, topo_bind_t how, int ranks, int *cores);
/* Binds the calling process as the plan says; text (may be NULL) gets "core 3 (package 0, numa 0)". */
gyre_status_t topo_bind_self(const topo_t *topo, topo_bind_t how, int core, char *text, size_t bytes);
int topo_bind_parse(const char *word, topo_bind_t *out); /* none core l3 numa; 0 if unknown */

/* --- printing --- */
void topo_print(const topo_t *topo, FILE *out);
/* ranks > 0: also where they would be bound, the ring and the trees over them. */
gyre_status_t topo_svg(const topo_t *topo, int ranks, const char *path);

#endif
