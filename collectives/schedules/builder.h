/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/schedules/builder.h: the fields of coll_builder_t, for builder.c and hazards.c alone. */
#ifndef COLLECTIVES_SCHEDULES_BUILDER_H
#define COLLECTIVES_SCHEDULES_BUILDER_H

#include "collectives/schedules/schedule.h"

typedef struct {
    uint32_t step, on; /* `step` starts after `on` is complete */
} coll_edge_t;

struct coll_builder {
    coll_args_t args;
    coll_step_t *steps;
    coll_ref_t *sources;
    coll_edge_t *edges;
    uint32_t nsteps, nsources, nedges, channels;
    size_t step_capacity, source_capacity, edge_capacity;
    size_t tmp_count;
    int failed; /* 1: memory ran out; later calls add nothing */
    base_arena_t scratch;
};

int coll_add_edge(coll_builder_t *b, uint32_t step, uint32_t on); /* 0: no memory */

/* Adds, for each step that overwrites what an earlier SEND may still read, an edge to that SEND. 0: no
 * memory. */
int coll_add_hazard_edges(coll_builder_t *b);

#endif
