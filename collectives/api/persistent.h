/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/api/persistent.h: persistent operations (gyre/plan.h), as the rest of this module sees them. */
#ifndef COLLECTIVES_API_PERSISTENT_H
#define COLLECTIVES_API_PERSISTENT_H

#include "collectives/run/call.h"

/* Calls that make persistent operations need a place for them. */
gyre_status_t coll_check_plan(const char *name, gyre_plan_t **plan);
/* An exchange with neighbours whose arguments were checked. */
typedef struct coll_neighbors coll_neighbors_t;
/* Starts its messages. under_way: as for coll_request_of; request: NULL: blocking. neighbors.c. */
gyre_status_t coll_neighbors_start(const coll_neighbors_t *exchange, uint32_t tag,
                                   _Atomic uint32_t *under_way, gyre_request_t **request);

/* Makes a persistent operation of a call whose arguments were checked: *c->plan. */
gyre_status_t coll_persistent_make(const coll_call_t *c);
/* The same of an exchange, which was allocated in one piece and belongs to the plan from here on. */
gyre_status_t coll_persistent_make_neighbors(const char *name, gyre_type_t type, gyre_comm_t *comm,
                                             coll_neighbors_t *exchange, gyre_plan_t **plan);
/* The communicator ends: its persistent operations are the program's, but can only be freed. The caller is
 * driving. */
void coll_persistent_end(gyre_comm_t *comm);

#endif
