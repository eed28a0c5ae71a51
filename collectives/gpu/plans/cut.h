/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/gpu/plans/cut.h: a schedule while it is prepared for a device, between cut.c and schedule.c. */
#ifndef COLLECTIVES_GPU_PLANS_CUT_H
#define COLLECTIVES_GPU_PLANS_CUT_H

#include "collectives/gpu/state.h"

#ifdef GYRE_CUDA

#include "base/arena.h"
#include "collectives/gpu/plans/lower.h"

/* The result for a shape. */
struct coll_cuda_plan {
    coll_cuda_plan_t *next;
    coll_op_t op;
    coll_algo_t algo;
    size_t esize, count;
    int root, in_place;
    int fast;          /* sums need not follow the canonical tree (coll_args_t) */
    size_t *blocks_of; /* [2 n] counts and displs; NULL: a vector; owned */
    int served;        /* 0: no kernel can run it; shots do, because: */
    char refused[96];
    coll_cuda_schedule_t run;
    int blocks;
    int kept; /* in a slab for graphs */
};

/* A shape of which a program is made. */
typedef struct {
    const coll_cuda_t *c;
    const coll_shape_t *s;
    coll_cuda_plan_t *p;
    size_t longest;
    int n, me, lanes;
    size_t chunk, length; /* elements; length: of a segment */
    uint32_t segments, forms;
    uint32_t *form_of;            /* [segments] */
    size_t *counts;               /* [n] of the segment at hand */
    coll_cuda_lowered_t *lowered; /* [forms][n][lanes] */
    uint32_t *memory;             /* [2 n n] */
    base_arena_t arena;           /* of one attempt */
} coll_cuda_maker_t;

/* The list of `rank` in `lane` for segments of this form. */
coll_cuda_lowered_t *coll_cuda_lowered_at(const coll_cuda_maker_t *m, uint32_t form, int rank, int lane);
/* Cuts the shape into segments and chunks with which all ranks' lists fit into their regions and come to an
 * end; then m->lanes, length, segments, forms and lowered are set. Outputs: slots per link, and bytes of a
 * slot and where TMP is in a region. UNSUPPORTED: there is no such cut (recorded, not logged). */
gyre_status_t coll_cuda_fit(coll_cuda_maker_t *m, uint32_t *depth, size_t *slot, size_t *tmp_at);

#endif
#endif
