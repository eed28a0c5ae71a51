/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/run/request.h: what request.c, wait.c and group.c ask of each other. */
#ifndef COLLECTIVES_RUN_REQUEST_H
#define COLLECTIVES_RUN_REQUEST_H

#include "collectives/run/communicator.h"

/* --- request.c --- */
/* The deadline of `r` counts from `now`. */
void coll_request_begin_at(gyre_request_t *r, base_time_t now);
/* Appends to the communicator's queue. now: base_now(), or 0 for a call that is waited for at once: most are done before it is
 * time to read the clock (wait_turn in wait.c). */
void coll_request_enqueue(gyre_request_t *r, base_time_t now);
/* Back to the free list. The caller is driving. */
void coll_request_free_driving(gyre_request_t *r);
/* The first rank that r waits for goes into the flight recorder. The caller is driving. */
void coll_note_blocker_driving(const gyre_request_t *r);

/* --- group.c --- */
/* A filled request waits for gyre_group_end; a group of this thread is open. request == NULL: the call is blocking. */
void coll_group_collect(gyre_request_t *r, gyre_request_t **request);

#endif
