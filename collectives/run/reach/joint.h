/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/run/reach/joint.h: JOINT steps (collectives/schedules/schedule.h) for real: announcements, and
 * work in other ranks' memory. */
#ifndef COLLECTIVES_RUN_REACH_JOINT_H
#define COLLECTIVES_RUN_REACH_JOINT_H

#include "collectives/run/communicator.h"

/* Elements that hold an announcement; 0 where not all ranks can reach each other's memory. */
size_t coll_joint_place(const gyre_comm_t *comm, const coll_shape_t *shape);
/* Adds to a segment what its JOINT steps need. `bytes`: of the vector. NO_MEMORY. */
gyre_status_t coll_joint_prepare(const gyre_comm_t *comm, size_t bytes, coll_segment_t *segment);
/* Before a segment's first step: writes the announcement. tmp: where TMP is; in, out: the buffers, NULL:
 * not used. */
void coll_joint_announce(const gyre_request_t *r, coll_segment_t *segment, void *tmp, const void *in,
                         const void *out);
/* Goes on with step `s`. in, out: this rank's buffers. IN_PROGRESS: call again; s->msg.done is 1 if anything
 * was done. */
gyre_status_t coll_joint_advance(gyre_request_t *r, coll_segment_t *segment, coll_pstep_t *s, char *tmp,
                                 const char *in, char *out);
/* After the segment's last step: brings what peers have written to where it belongs (comm_mem_fetch), and
 * keeps whether a rank's memory could not be mapped. */
void coll_joint_finish(gyre_request_t *r, const coll_segment_t *segment, char *out);

#endif
