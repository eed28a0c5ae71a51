/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/proof/check/check.h: proves schedules: runs all ranks' schedules symbolically.
 *
 * Proved for the given arguments:
 *  1. Every output element holds exactly the right contributions, combined in the canonical order (or, with
 *     fast_order, each exactly once; with exact, all of them in one step).
 *  2. Every element of a reduction passes exactly one FINAL step before it spreads.
 *  3. Messages match in order and length.
 *  4. No step can deadlock. Sends never block and receives are blocking, so one maximal run decides.
 *  5. Two accesses to overlapping memory, one of them a write, are always ordered: by channel order,
 *     dependencies and messages (vector clocks over (rank, channel)). A SEND reads until it is complete.
 *  6. IN is never written unless in place.
 *  7. No range leaves its buffer. */
#ifndef COLLECTIVES_PROOF_CHECK_CHECK_H
#define COLLECTIVES_PROOF_CHECK_CHECK_H

#include "collectives/schedules/schedule.h"

/* args: [n], one per rank (counts, displs and in_place may differ per rank). schedules: [n].
 * OK, or GYRE_ERR_INTERNAL (quiet) with the proof's failure in why: which rank, step, element and what was
 * expected. */
gyre_status_t coll_check(const coll_args_t *args, const coll_schedule_t *schedules, int n, char *why,
                         size_t why_bytes);

#endif
