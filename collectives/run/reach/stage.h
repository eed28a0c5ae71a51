/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/run/reach/stage.h: buffers that peers cannot map, brought to memory that they can.
 *
 * Peers read a window where it lies. Any other memory costs them a call of the kernel for each message, which
 * looks up every page, and reductions a copy of what was read. So a rank may copy its input into its scratch
 * memory, a window, work there, and copy the result out. Both copies stay in the cache if the buffers are
 * small. Each rank decides for itself: peers do not see a difference but in time. */
#ifndef COLLECTIVES_RUN_REACH_STAGE_H
#define COLLECTIVES_RUN_REACH_STAGE_H

#include "collectives/run/communicator.h"

/* For comm_group_set_ring. */
size_t coll_stage_ring_best(const gyre_comm_t *comm);
/* Elements of a segment, if a long sum is cut so that caches hold the staged copies of all ranks; 0: it is
 * not. The same on all ranks, whatever their memory. */
size_t coll_stage_segment(const gyre_comm_t *comm, const coll_plan_t *plan);
/* The cut whose segments are staged. */
const coll_cut_t *coll_stage_cut(const coll_plan_t *plan);
/* Sets plan->staging and plan->staging_cold: what of this rank's buffers is worth it, by the machine's costs.
 * After the plan's segments are built. */
void coll_stage_plan(const gyre_comm_t *comm, coll_plan_t *plan);
/* One of the two, by whether a call of the communicator has had r's input of late, and whether there is room
 * for the copies. Once for each run. */
const coll_staging_t *coll_stage_choose(const gyre_request_t *r);
/* What of it lies in no window, in this segment of the run: so many bytes of scratch memory are needed, each
 * rounded up to 64. */
coll_staging_t coll_stage_needs(const gyre_request_t *r);
/* 1: COLL_STAGE copies are made in this run; 0: they are left out, and peers read IN where it lies. */
int coll_stage_chunks(const gyre_request_t *r);
/* Before the first step of a segment: copies the input to `at`, and has the segment work there. */
void coll_stage_begin(gyre_request_t *r, const coll_staging_t *needs, char *at);
/* 1: each part of the staged input is read by one peer alone, which may overwrite it then. */
int coll_stage_gives(const gyre_request_t *r);
/* After its last step: copies the result out. */
void coll_stage_end(gyre_request_t *r);

#endif
