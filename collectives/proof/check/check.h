/* collectives/proof/check/check.h: proves schedules: runs all ranks' schedules symbolically.
 *
 * Proved for the given arguments: every output element holds exactly the contributions it should, combined in
 * the canonical order (or, with fast_order, each exactly once); every element of a reduction passes exactly
 * one FINAL step before it spreads; messages match in order and length; no step can deadlock (no order of
 * execution gets stuck: sends never block, receives are blocking, so one maximal run decides); no two
 * accesses to overlapping memory, one of them a write, are unordered by channel order, dependencies and
 * messages (vector clocks over (rank, channel); a SEND reads until it is complete); IN is never written
 * unless in place; no range leaves its buffer. */
#ifndef COLLECTIVES_PROOF_CHECK_CHECK_H
#define COLLECTIVES_PROOF_CHECK_CHECK_H

#include "collectives/schedules/schedule.h"

/* args: [n], one per rank (counts, displs and in_place may differ per rank). schedules: [n].
 * OK, or GYRE_ERR_INTERNAL (quiet) with the proof's failure in why: which rank, step, element and what was
 * expected. */
gyre_status_t coll_check(const coll_args_t *args, const coll_schedule_t *schedules, int n, char *why,
                         size_t why_bytes);

#endif
