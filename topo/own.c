/* SPDX-License-Identifier: Apache-2.0 */
/* topo/own.c: the NUMA nodes of the calling thread. A file of its own: tests/collectives/comms/mp_create.c
 * replaces it. */
#include "topo/topo.h"

#include <sched.h>
#include <string.h>

int topo_own_nodes(uint64_t nodes[TOPO_SETS])
{
    static _Thread_local struct {
        int known, count;
        cpu_set_t set;
        uint64_t nodes[TOPO_SETS];
    } last; /* asking reads files */
    uint64_t mask[sizeof(cpu_set_t) / sizeof(uint64_t)];
    cpu_set_t mine;

    CPU_ZERO(&mine);
    if (sched_getaffinity(0, sizeof mine, &mine) != 0) {
        memset(nodes, 0, TOPO_SETS * sizeof *nodes);
        return 0;
    }
    if (!last.known || !CPU_EQUAL(&mine, &last.set)) {
        memcpy(mask, &mine, sizeof mask);
        last.count = topo_numa_set(NULL, mask, (int)(sizeof mask / sizeof mask[0]), last.nodes);
        last.set = mine;
        last.known = 1;
    }
    memcpy(nodes, last.nodes, sizeof last.nodes);
    return last.count;
}
