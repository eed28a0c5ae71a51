/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/run/bounce.h: gyre_send, gyre_recv and their non-blocking forms on device memory.
 *
 * The message goes through pinned memory of the host and is a message of the host. So the rules of host
 * messages hold: any number under way in both directions, groups, and a peer whose buffer is of the other
 * kind. (gyre_send_stream and gyre_recv_stream: collectives/gpu/call/enqueue.c.) */
#ifndef COLLECTIVES_RUN_BOUNCE_H
#define COLLECTIVES_RUN_BOUNCE_H

#include "collectives/run/communicator.h"

typedef struct coll_bounce coll_bounce_t;

/* Pinned memory of `bytes` > 0 for a message, instead of `buffer`, which is on a device. The bytes of a
 * message to send have been copied. NULL: an error (reported). The caller is driving. */
coll_bounce_t *coll_bounce_take(gyre_comm_t *comm, coll_req_kind_t kind, void *buffer, size_t bytes);
void *coll_bounce_memory(coll_bounce_t *bounce);
/* r: the request of the message. When r is finished, the received bytes are copied to the device, and the
 * memory is free to be used again. */
void coll_bounce_attach(coll_bounce_t *bounce, gyre_request_t *r);
/* Gives the memory back: there will be no message. The caller is driving. */
void coll_bounce_give(coll_bounce_t *bounce);
/* With the communicator, of which nothing is under way. */
void coll_bounce_free_all(gyre_comm_t *comm);

#endif
