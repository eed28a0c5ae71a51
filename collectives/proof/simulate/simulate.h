/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/proof/simulate/simulate.h: runs the schedules of all ranks in virtual time, on machines that
 * we lack and on this one.
 *
 * A schedule is data, so its time can be computed. Every rank walks through its steps. Messages travel over
 * the links of a network (topo/network/network.h) or through the memory of one host
 * (collectives/choose/cost.h). docs/simulator.md describes the model, its formulas and its limits. */
#ifndef COLLECTIVES_PROOF_SIMULATE_SIMULATE_H
#define COLLECTIVES_PROOF_SIMULATE_SIMULATE_H

#include "collectives/choose/cost.h"
#include "collectives/schedules/schedule.h"
#include "topo/network/network.h"

/* Where the caller's buffers are: from gyre_mem_alloc, which local peers read where they lie, or private. */
typedef enum { COLL_MEMORY_WINDOW = 0, COLL_MEMORY_PLAIN } coll_memory_t;

typedef struct {
    double ns;         /* until the last rank is through */
    uint64_t messages; /* of all ranks */
    /* messages on the longest chain of messages, each sent after the one before was received */
    uint32_t steps;
    uint32_t most_sent;   /* messages that one rank sends, at most */
    double payload;       /* bytes that ranks sent each other */
    double between_nodes; /* of these, bytes that left their node */
    /* and bytes that left their group (topo_network_group): the traffic that is scarce */
    double between_groups;
    /* links of a network; 0 for a host */
    double link_total, link_most, link_mean; /* bytes over all links, over the busiest, per link */
    uint32_t hottest;                        /* the link that carried most for its rate */
    double hottest_busy;                     /* part of `ns` for which it was busy, 0 to 1 */
} coll_simulation_t;

/* Over a network with args->n ranks. args: as for coll_schedule_build, the same for every rank (`rank` is
 * ignored; counts and displs are shared). esize: bytes per element. UNSUPPORTED (quiet): `algo` does not
 * serve args. NO_MEMORY; INTERNAL: the schedules get stuck. */
gyre_status_t coll_simulate(const topo_network_t *network, const coll_args_t *args, coll_algo_t algo,
                            size_t esize, coll_simulation_t *out);

/* On one host: all args->n ranks share cost->cores cores and the memory, and messages go the ways of
 * comm/shm/link.c. */
gyre_status_t coll_simulate_host(const coll_cost_t *cost, const coll_args_t *args, coll_algo_t algo,
                                 size_t esize, coll_memory_t memory, coll_simulation_t *out);

/* The time alone, quickly: long pipelines are simulated in part and go on in proportion. Errors as above. */
gyre_status_t coll_predict(const coll_cost_t *cost, const coll_args_t *args, coll_algo_t algo, size_t esize,
                           coll_memory_t memory, double *ns);

/* What `size / time` is multiplied with to compare with a link's rate, as nccl-tests define it: 2 (n - 1)
 * / n for all_reduce, (n - 1) / n for reduce_scatter, all_gather, gather, scatter and all_to_all, 1 for
 * the others. */
double coll_bus_factor(coll_op_t op, int n);

#endif
