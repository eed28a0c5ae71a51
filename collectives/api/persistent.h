/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/api/persistent.h: persistent operations (gyre/plan.h), as the rest of this room sees them. */
#ifndef COLLECTIVES_API_PERSISTENT_H
#define COLLECTIVES_API_PERSISTENT_H

#include "collectives/run/call.h"

/* Makes a persistent operation of a call whose arguments were checked: *c->plan. */
gyre_status_t coll_persistent_make(const coll_call_t *c);
/* The communicator ends: its persistent operations are the program's, but can only be freed. The caller is
 * driving. */
void coll_persistent_end(gyre_comm_t *comm);

#endif
